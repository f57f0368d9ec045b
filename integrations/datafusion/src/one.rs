//! One: a query over one store, measured, in a process that does nothing else.
//!
//! ```text
//!   cgroup entered ─► store and session ─┬─ warm: run once ─► run and measured, a few times
//!                                        └─ cold: (run once) ─► files dropped from all caches ─► run and measured once
//! ```
//!
//! What is measured: planning and running. Not: registering tables, which reads the footers; DataFusion keeps these for all stores.
//!
//! Owns: what belongs to the measured time.
//! Does not own: which queries and stores, rounds (`compare`).

use std::future::Future;

use headwater::{Advice, DriverKind, Engine, OpenOptions};
use headwater_measure::process::{device_read_bytes, peak_rss_kib};
use headwater_measure::{Figures, Meter, cgroup};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::args::One;
use crate::data::Data;
use crate::queries::Query;
use crate::session::{Session, Settings};
use crate::stores::{Counting, Waits};
use crate::{Error, Result};

/// What a run of a query reports.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// `seconds`, `cpu_seconds`, `wait_seconds`, `returned_mib`, `read_mib` of each run, `peak_mib` of the process.
    pub runs: Vec<Figures>,
    /// The same for all runs.
    pub answer: Answer,
}

/// Runs a query as the arguments say.
///
/// # Errors
/// What fails first; runs whose answers differ, too.
pub fn one(arguments: &One) -> Result<Outcome> {
    if let Some(path) = &arguments.enter {
        cgroup::enter(path).map_err(Error::file(path))?;
    }
    let data = Data::open(&arguments.folder)?;
    let query = Query::named(&arguments.query).map_err(Error::Other)?;
    block_on(measured(arguments, &data, &query))?
}

async fn measured(arguments: &One, data: &Data, query: &Query) -> Result<Outcome> {
    let waits = Waits::default();
    let memory = arguments.memory.map(|size| size.0);
    let (below, engine) = arguments.store.build_with_engine(memory, DriverKind::Auto)?;
    let settings = Settings {
        pool: arguments.pool.map(|size| size.0),
        spill: arguments.spill.clone(),
        partitions: None,
    };
    let session =
        Session::open(data, std::sync::Arc::new(Counting::new(below, waits.clone())), &settings).await?;
    let mut outcome = Outcome { runs: Vec::new(), answer: Answer::default() };
    match arguments.warm_runs {
        None => {
            if arguments.after_a_run {
                session.run(query).await?;
            }
            // To register a table reads the end of each of its files.
            engine.iter().try_for_each(|engine| forget(engine, data))?;
            data.make_cold()?;
            outcome.answer = sample(&session, query, &waits, &mut outcome.runs).await?;
        }
        Some(runs) => {
            outcome.answer = answer(&session.run(query).await?)?;
            for _ in 0..runs {
                let again = sample(&session, query, &waits, &mut outcome.runs).await?;
                if let Some(difference) = outcome.answer.difference(&again) {
                    let (store, other) =
                        (format!("{}, warm,", arguments.store.name()), "the same before".to_owned());
                    return Err(Error::Answer { query: query.name.clone(), store, other, difference });
                }
            }
        }
    }
    let peak = peak_rss_kib().map_err(Error::file("/proc/self/status"))? as f64 / 1024.0;
    outcome.runs = outcome.runs.into_iter().map(|run| run.with("peak_mib", peak)).collect();
    Ok(outcome)
}

/// Drops what an engine has cached of the files; its memory stays.
fn forget(engine: &Engine, data: &Data) -> Result<()> {
    for path in data.files() {
        let file = OpenOptions::new().engine(engine).open(&path);
        let dropped = file.and_then(|file| file.advise(Advice::DontNeed, ..));
        dropped.map_err(|error| Error::file(&path)(error.into()))?;
    }
    Ok(())
}

async fn sample(session: &Session, query: &Query, waits: &Waits, runs: &mut Vec<Figures>) -> Result<Answer> {
    waits.take();
    let (meter, read_before) = (Meter::start(), device_read_bytes());
    let batches = session.run(query).await?;
    let (seconds, cpu_seconds) = (meter.seconds(), meter.cpu_seconds());
    let read = device_read_bytes().zip(read_before).map(|(after, before)| after - before);
    let (waited, returned) = waits.take();
    let figures = Figures::from([
        ("seconds", seconds),
        ("cpu_seconds", cpu_seconds),
        ("wait_seconds", waited.as_secs_f64()),
        ("returned_mib", returned as f64 / MIB),
    ]);
    runs.push(match read {
        Some(bytes) => figures.with("read_mib", bytes as f64 / MIB),
        None => figures,
    });
    answer(&batches)
}

fn answer(batches: &[datafusion::arrow::array::RecordBatch]) -> Result<Answer> {
    Answer::of(batches).map_err(|error| Error::other("an answer has no text")(&error))
}

/// Runs a future to its end on a runtime as `#[tokio::main]` makes it.
///
/// # Errors
/// When there can be no runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Planning recurses deeply in builds without optimisation.
    let runtime = builder.enable_all().thread_stack_size(STACK_BYTES).build();
    Ok(runtime.map_err(|error| Error::other("starting tokio")(&error))?.block_on(work))
}

const STACK_BYTES: usize = 16 << 20;

const MIB: f64 = (1 << 20) as f64;
