//! Compare: queries × stores in turn, and whether their answers are the same.
//!
//! ```text
//!   round ─► query × store ─► a process (headwater-tpch one) ─┬─► figures ─► rows ─► report
//!                                                            └─► answer == the first one == the published one (scale 1)
//! ```
//!
//! Owns: the order, the processes, their cgroups.
//! Does not own: what a process measures (`one`), how answers are compared (`answers`) and figures shown (`tables`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use headwater_measure::cgroup::MemoryCgroup;
use headwater_measure::{Failure, Figures, Findings, Report, Section, Skipped, child, rounds};
use serde_json::json;

use crate::answers::Answers;
use crate::args::{Run, State};
use crate::data::Data;
use crate::one::Outcome;
use crate::queries::Query;
use crate::tables::{self, Way};
use crate::{Error, Result};

/// Runs what the arguments name, and returns the report and whether every run came to its end.
///
/// # Errors
/// [`Error::NoData`] without data, [`Error::Answer`] when two answers differ.
pub fn run(arguments: &Run) -> Result<(Findings, bool)> {
    let data = Data::open(&arguments.folder)?;
    let queries = Query::list(&arguments.queries).map_err(Error::Other)?;
    let of_query = |query: &Query| {
        arguments.stores.iter().map(|&store| Way::new(query.clone(), store)).collect::<Vec<_>>()
    };
    let mut ways: Vec<Way> = queries.iter().flat_map(of_query).collect();
    let mut answers = Answers::of(&data);
    let name = |way: &Way| format!("{} over {}", way.query.name, way.store.name());
    rounds::with_progress(&mut ways, arguments.rounds, name, |way, _| step(way, arguments, &mut answers))?;
    let is_whole = ways.iter().all(|way| way.failure.is_none());
    Ok((report(arguments, &data, &ways, &answers).findings(), is_whole))
}

/// One run of a way. A way that has failed is not run again, and the others go on.
fn step(way: &mut Way, arguments: &Run, answers: &mut Answers) -> Result<()> {
    if way.failure.is_some() {
        return Ok(());
    }
    match process(way, arguments)? {
        Ok(outcome) => {
            answers.check(&way.query, way.store.name(), outcome.answer)?;
            way.samples.push(Figures::median(&outcome.runs));
        }
        Err(failure) => way.failure = Some(failure),
    }
    Ok(())
}

fn process(way: &mut Way, arguments: &Run) -> Result<std::result::Result<Outcome, String>> {
    let program = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let mut command = Command::new(program);
    command
        .args(["one", "--store", way.store.name(), "--query", &way.query.name])
        .arg("--folder")
        .arg(&arguments.folder);
    if arguments.state() == State::Warm {
        command.args(["--warm-runs", WARM_RUNS]);
    }
    if arguments.after_a_run {
        command.arg("--after-a-run");
    }
    for (option, size) in [("--memory", arguments.memory), ("--pool", arguments.pool)] {
        command.args(size.map(|size| [option.to_owned(), size.0.to_string()]).into_iter().flatten());
    }
    if let Some(spill) = &arguments.spill {
        command.arg("--spill").arg(spill);
    }
    let cgroup = match arguments.cgroup {
        Some(limit) => {
            // What earlier runs left in the page cache would be charged to them, and cost this one nothing.
            Data::open(&arguments.folder)?.make_cold()?;
            Some(MemoryCgroup::new(limit.0, |path| Ok(Removed(path))).map_err(Error::Other)?)
        }
        None => None,
    };
    if let Some(cgroup) = &cgroup {
        command.arg("--enter").arg(cgroup.path());
    }
    let outcome = child::result::<Outcome>(&mut command, None);
    let kills = cgroup.as_ref().map_or(0, MemoryCgroup::kills);
    Ok(match outcome {
        Ok(outcome) => Ok(outcome),
        Err(Failure::Signal(..)) if kills > 0 => Err("killed: the cgroup had no memory left".to_owned()),
        Err(failure) => Err(failure.to_string().replace("headwater-tpch: ", "")),
    })
}

/// Removes the folder of a cgroup when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // Its process has ended. Where the kernel still counts it, an empty cgroup is left.
        let _ = fs::remove_dir(&self.0);
    }
}

fn report(arguments: &Run, data: &Data, ways: &[Way], answers: &Answers) -> Report {
    let state = match arguments.state() {
        State::Cold if arguments.after_a_run => "cold after a run",
        State::Cold => "cold",
        State::Warm => "warm",
    };
    let failed = ways.iter().filter_map(|way| {
        let reason = way.failure.as_ref()?;
        Some(Skipped::new(&*way.query.name, format!("{} over {}", way.query.name, way.store.name()), reason))
    });
    let sizes = [("cgroup", arguments.cgroup), ("memory", arguments.memory), ("pool", arguments.pool)];
    let bounds = sizes.iter().filter_map(|(name, size)| Some(format!(", {name} {} MiB", (*size)?.0 >> 20)));
    let head = format!(
        "TPC-H at scale {}, {} MiB of Parquet, {state}, {} round{}{}",
        data.scale,
        data.bytes() >> 20,
        arguments.rounds,
        if arguments.rounds == 1 { "" } else { "s" },
        bounds.collect::<String>()
    );
    let section = Section {
        id: "tpch",
        title: head.clone(),
        question: "What does a query engine gain that reads through headwater?".to_owned(),
        answer: answers.sentence("all stores", |query| tables::is_whole(ways, query)),
        figures: tables::all(ways, &arguments.stores),
        ..Section::default()
    };
    let fields = vec![
        ("scale", json!(data.scale)),
        ("data_bytes", json!(data.bytes())),
        ("state", json!(state)),
        ("rounds", json!(arguments.rounds)),
        ("cgroup_bytes", json!(arguments.cgroup.map(|size| size.0))),
        ("memory_bytes", json!(arguments.memory.map(|size| size.0))),
        ("pool_bytes", json!(arguments.pool.map(|size| size.0))),
    ];
    let rows = ways.iter().map(|way| way.row()).collect();
    Report { section, fields, rows, skipped: failed.collect(), head: vec![head], ..Report::default() }
}

/// Enough for a median that one disturbance does not move.
const WARM_RUNS: &str = "3";
