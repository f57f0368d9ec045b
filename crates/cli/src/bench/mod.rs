//! Bench: measurements of the user's own storage.
//!
//! Owns: which suites there are, that several go on when one fails.
//! Does not own: the suites, their quick form (`quick`), where results go (`results`).

mod alignment;
pub(crate) mod arguments;
mod cache;
mod cat;
pub(crate) mod command;
pub(crate) mod examples;
mod headline;
mod input;
mod nop;
mod quick;
mod random;
mod readahead;
mod results;
mod scan;
mod suite;
mod tally;
mod ubc;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use headwater_measure::Findings;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;

use results::Results;
use ubc::UbcArguments;

use crate::bench::arguments::{
    CacheArguments, PlaceArguments, ReadaheadArguments, RowArguments, RowSuite, ScanArguments,
};
use crate::bench::command::{BenchArguments, Suite};
use crate::shared::complain::exit_code;
use crate::shared::output;
use crate::shared::target::{Fitting, Target, Wanted};
use crate::shared::units::ByteSize;

pub(crate) fn run(arguments: &BenchArguments) -> ExitCode {
    let outcome = match &arguments.suite {
        Some(Suite::Scan(arguments)) => scan(arguments),
        Some(Suite::Cache(arguments)) => cache(arguments),
        Some(Suite::Readahead(arguments)) => readahead(arguments),
        Some(Suite::Ubc(arguments)) => ubc(arguments),
        Some(Suite::Cat(arguments)) => cat::run(arguments),
        Some(Suite::Random(arguments)) => random::run(arguments),
        Some(Suite::Alignment(arguments)) => alignment::run(arguments),
        Some(Suite::Nop(arguments)) => nop::run(arguments),
        None => quick::run(&arguments.common),
    };
    exit_code(outcome)
}

/// The child's side: measures one row and prints what it took as one line of JSON.
pub(crate) fn run_row(arguments: &RowArguments) -> ExitCode {
    // A measurement that is killed cannot end its rows. Where it is not possible, only time is lost.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if arguments.parent.is_some_and(|parent| parent != std::os::unix::process::parent_id()) {
        // Killed before that.
        return ExitCode::FAILURE;
    }
    let line = match arguments.suite {
        RowSuite::Scan => scan::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Cache => cache::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Readahead => readahead::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Cat => cat::run_row(arguments).map(|()| String::new()),
        RowSuite::Random => random::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Alignment => alignment::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Ubc => ubc::measure_row(arguments).and_then(|measured| line_of(&measured)),
    };
    match line {
        // Its output was the file's bytes.
        Ok(line) if line.is_empty() => ExitCode::SUCCESS,
        Ok(line) => exit_code(output::print(&format!("{line}\n"))),
        Err(error) => exit_code(Err(format!("failed to measure {}: {error}", arguments.row))),
    }
}

fn line_of(measured: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(measured)?)
}

fn scan(arguments: &ScanArguments) -> Result<(), String> {
    let common = &arguments.common;
    let size = arguments.size.or(arguments.file.is_none().then_some(ByteSize(FULL_BYTES)));
    let wanted = wanted(arguments.file.as_ref(), size, "--size", &common.place);
    let (rounds, engine, only) = (arguments.rounds, common.engine.clone(), arguments.only.clone());
    let plan = scan::Plan { rounds, limit: FULL_LIMIT, engine, only };
    plan.check()?;
    measure(&wanted, &common.place, &|target| scan::run(&plan, target))
}

fn cache(arguments: &CacheArguments) -> Result<(), String> {
    let (place, queue) = (&arguments.place, arguments.queue.clone());
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.set), "--set", place);
    let (rounds, limit) = (arguments.rounds, arguments.seconds);
    let plan = cache::Plan { set_bytes: arguments.set.0, rounds, limit, queue };
    measure(&wanted, place, &|target| cache::run(&plan, target))
}

fn readahead(arguments: &ReadaheadArguments) -> Result<(), String> {
    let (common, places) = (&arguments.common, arguments.places);
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.size), "--size", &common.place);
    let (rounds, engine) = (arguments.rounds, common.engine.clone());
    let policies = arguments.policy.clone();
    let plan = readahead::Plan { bytes_max: u64::MAX, places, rounds, limit: FULL_LIMIT, engine, policies };
    measure(&wanted, &common.place, &|target| readahead::run(&plan, target))
}

fn ubc(arguments: &UbcArguments) -> Result<(), String> {
    let place = &arguments.place;
    let wanted = match &arguments.file {
        Some(path) => {
            Wanted::Existing { path: path.clone(), limit: Some(arguments.size.unwrap_or(ubc::SIZE_DEFAULT)) }
        }
        None => ubc::wanted(arguments.size, place.dir.as_deref())?,
    };
    let (rounds, queue) = (arguments.rounds, arguments.queue.clone());
    let plan = ubc::Plan { bytes_max: u64::MAX, rounds, limit: UBC_LIMIT, queue };
    measure(&wanted, place, &|target| ubc::run(&plan, target))
}

type Measure<'a> = &'a dyn Fn(&Target) -> Result<Findings, String>;

/// One of several suites.
struct Part<'a> {
    id: &'static str,
    title: &'static str,
    measure: Measure<'a>,
}

/// Measures one suite on one file. If it fails, the files of results stay as they are.
fn measure(wanted: &Wanted, place: &PlaceArguments, suite: Measure<'_>) -> Result<(), String> {
    let mut results = Results::begin(&place.results, None, wanted.existing())?;
    results.add(suite(&Target::prepare(wanted)?)?)?;
    results.end(|| Ok(()))
}

/// Measures one suite after the other on one file, and shows each table as soon as it is there. A suite that fails says so in its place.
fn measure_all(wanted: &Wanted, place: &PlaceArguments, suites: &[Part<'_>]) -> Result<(), String> {
    let mut results = Results::begin(&place.results, None, wanted.existing())?;
    let target = Target::prepare(wanted)?;
    for Part { id, title, measure } in suites {
        match measure(&target) {
            Ok(findings) => results.add(findings)?,
            Err(reason) => results.add_failure(id, title, &reason)?,
        }
    }
    results.end(|| Ok(()))
}

/// The file given, up to `size` of it, or one of that size, which the user gives by `option`.
fn wanted(
    file: Option<&PathBuf>,
    size: Option<ByteSize>,
    option: &'static str,
    place: &PlaceArguments,
) -> Wanted {
    match (file, size) {
        (Some(path), limit) => Wanted::Existing { path: path.clone(), limit },
        (None, size) => Wanted::New {
            dir: place.dir.clone(),
            size: size.expect("a new file has a size"),
            fitting: Fitting::Exact(option),
        },
    }
}

/// Longer than a second on the fastest devices, so that start and end do not show in the rate.
const FULL_BYTES: u64 = 4 << 30;

/// A fast row reads 4 GiB within it on any flash device; what is slower is measured on a slice. The 60 rows of readahead
/// take nine minutes at most.
const FULL_LIMIT: Duration = Duration::from_secs(3);

/// A hard disk moves the 1 GiB by default within it.
const UBC_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use headwater_measure::{Report, Section};
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        place: PlaceArguments,
    }

    /// Goal: what one suite fails with is an error in the end, and costs nothing of the others. Method: three, of which the second fails.
    #[test]
    fn suites_go_on_when_one_fails() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let (json, html) = (at("out.json"), at("out.html"));
        let place =
            Line::parse_from(["", "--dir", &at(""), "--html", &html, &format!("--json={json}")]).place;
        let found = |id, answer: &str| {
            let section = Section { id, answer: answer.to_owned(), ..Section::default() };
            Report { section, ..Report::default() }.findings()
        };
        let suites: [Part<'_>; 3] = [
            Part { id: "one", title: "One", measure: &|_| Ok(found("one", "it is 1")) },
            Part { id: "two", title: "Two", measure: &|_| Err("no room".to_owned()) },
            Part { id: "three", title: "Three", measure: &|_| Ok(found("three", "it is 3")) },
        ];
        let wanted = wanted(None, Some(ByteSize(1 << 20)), "--size", &place);
        assert_eq!(measure_all(&wanted, &place, &suites).unwrap_err(), "the suite two failed: no room");
        let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        assert_eq!(results["suites"][0]["answer"], "it is 1");
        assert_eq!(results["suites"][1]["failed"], "no room");
        assert_eq!(results["suites"][2]["answer"], "it is 3");
        let page = fs::read_to_string(html).unwrap();
        assert!(
            page.contains("It is 1") && page.contains("Failed: no room.") && page.contains("It is 3"),
            "{page}"
        );
    }

    /// Goal: a suite that fails alone leaves the results of an earlier run.
    #[test]
    fn one_that_fails_writes_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let json = scratch.path().join("out.json");
        fs::write(&json, "earlier").unwrap();
        let option = format!("--json={}", json.to_str().unwrap());
        let place = Line::parse_from(["", "--dir", scratch.path().to_str().unwrap(), &option]).place;
        let wanted = wanted(None, Some(ByteSize(1 << 20)), "--size", &place);
        let failed = measure(&wanted, &place, &|_| Err("no room".to_owned()));
        assert_eq!(failed.unwrap_err(), "no room");
        assert_eq!(fs::read(&json).unwrap(), b"earlier");
    }
}
