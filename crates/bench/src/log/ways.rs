//! Ways: how each arm appends, from threads or from tasks.
//!
//! Owns: one run of an arm, and its figures.
//! Does not own: which arms there are (log), std's lines (plain).

use std::io::{self, BufWriter, Seek, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater::{Caching, Engine, File, OpenOptions};
use headwater_measure::affinity::Affinity;
use headwater_measure::crew::{self, Clock, time_steps};
use headwater_measure::{Figures, Latencies, Meter};

use super::plain::PlainLog;
use super::{Arm, ArmOptions};

pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let record = vec![b'x'; options.record_bytes];
    let record = record.as_slice();
    match options.arm {
        Arm::StdEach => {
            let log = PlainLog::open(&options.file)?;
            threads(options, || log.append_alone(record))
        }
        Arm::Std => {
            let log = PlainLog::open(&options.file)?;
            threads(options, || log.append(record))
        }
        Arm::HeadwaterTwoCalls => {
            let log = open(options)?;
            threads(options, || Ok(log.append(record).and_then(|_| log.sync_data())?))
        }
        Arm::Headwater | Arm::HeadwaterCached => {
            let log = open(options)?;
            threads(options, || Ok(log.append_durable(record).map(drop)?))
        }
        Arm::StdTasks | Arm::HeadwaterTasks | Arm::HeadwaterTwoCallsTasks => {
            tasks(options, Bytes::copy_from_slice(record))
        }
        Arm::StdWriter => {
            let file = std::fs::File::create(&options.file)?;
            writes(options, BufWriter::new(file), record)
        }
        Arm::HeadwaterWriter => writes(options, open(options)?.writer(), record),
        Arm::HeadwaterWriterWrapped => writes(options, BufWriter::new(open(options)?.writer()), record),
    }
}

fn open(options: &ArmOptions) -> io::Result<File> {
    let engine = Engine::builder().memory(MEMORY_BYTES).build()?;
    let mut open = OpenOptions::new();
    open.engine(&engine).caching(Caching::On).write(true).create(true).append(options.arm.is_appending());
    Ok(open.open(&options.file)?)
}

/// Writes in order over and over; nothing is synced, and the device is left out as far as memory goes.
fn writes(options: &ArmOptions, mut writer: impl Write + Seek, record: &[u8]) -> io::Result<Figures> {
    let (meter, mut written_bytes) = (Meter::start(), 0);
    let latencies = time_steps(options.time(), || {
        for _ in 0..WRITES_A_STEP {
            writer.write_all(record)?;
        }
        written_bytes += WRITES_A_STEP * record.len();
        if written_bytes >= WRITTEN_BYTES_MAX {
            written_bytes = 0;
            writer.rewind()?;
        }
        Ok(())
    })?;
    let writes = (latencies.count() as usize * WRITES_A_STEP) as f64;
    Ok(rates(&meter, writes))
}

fn threads(options: &ArmOptions, append: impl Fn() -> io::Result<()> + Sync) -> io::Result<Figures> {
    let meter = Meter::start();
    let work = |()| time_steps(options.time(), &append);
    let latencies = crew::run(options.callers, &Affinity::None, |_| Ok(()), work)?;
    Ok(figures(&meter, &Latencies::sum(latencies)))
}

#[tokio::main]
async fn tasks(options: &ArmOptions, record: Bytes) -> io::Result<Figures> {
    if options.arm == Arm::StdTasks {
        let log = Arc::new(PlainLog::open(&options.file)?);
        let append = move || {
            let (log, record) = (log.clone(), record.clone());
            async move { tokio::task::spawn_blocking(move || log.append(&record)).await? }
        };
        return all_tasks(options, append).await;
    }
    let log = open(options)?;
    if options.arm == Arm::HeadwaterTasks {
        let append = move || {
            let (log, record) = (log.clone(), record.clone());
            async move { Ok(log.append_durable_async(record).await.map(drop)?) }
        };
        return all_tasks(options, append).await;
    }
    let append = move || {
        let (log, record) = (log.clone(), record.clone());
        async move {
            log.append_async(record).await?;
            Ok(log.sync_data_async().await?)
        }
    };
    all_tasks(options, append).await
}

/// Tasks that each append over and over until time is up.
async fn all_tasks<A>(
    options: &ArmOptions,
    append: impl Fn() -> A + Clone + Send + 'static,
) -> io::Result<Figures>
where
    A: Future<Output = io::Result<()>> + Send + 'static,
{
    let (meter, time) = (Meter::start(), options.time());
    let tasks: Vec<_> = (0..options.callers).map(|_| tokio::spawn(repeat(append.clone(), time))).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await??);
    }
    Ok(figures(&meter, &Latencies::sum(all)))
}

async fn repeat<A>(append: impl Fn() -> A, time: Duration) -> io::Result<Latencies>
where
    A: Future<Output = io::Result<()>>,
{
    let mut clock = Clock::start(time);
    while clock.runs() {
        append().await?;
        clock.lap();
    }
    Ok(clock.latencies)
}

fn figures(meter: &Meter, latencies: &Latencies) -> Figures {
    let all = latencies.figures();
    let shown = ["p50_us", "p99_us"];
    let rates = rates(meter, latencies.count() as f64);
    shown.iter().fold(rates, |figures, name| figures.with(name, all.get(name)))
}

fn rates(meter: &Meter, appends: f64) -> Figures {
    let cpu_us = meter.cpu_seconds() / appends * 1e6;
    Figures::from([("appends_per_s", appends / meter.seconds()), ("cpu_us", cpu_us)])
}

impl Arm {
    fn is_appending(self) -> bool {
        !matches!(self, Arm::HeadwaterCached | Arm::HeadwaterWriter | Arm::HeadwaterWriterWrapped)
    }
}

/// Enough that the clock does not show.
const WRITES_A_STEP: usize = 1000;

/// Well below the limit of dirty pages.
const WRITTEN_BYTES_MAX: usize = 8 << 20;

/// A log is not read; a writer rewrites a part of it.
const MEMORY_BYTES: u64 = 64 << 20;
