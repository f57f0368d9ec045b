//! Bench: measurements of the user's own storage.
//!
//! Owns: which suites there are.
//! Does not own: the suites, their quick form (`quick`).

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
mod scan;
mod suite;
mod tally;
mod ubc;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use headwater_measure::{Findings, report};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;

use ubc::UbcArguments;

use crate::bench::arguments::{
    CacheArguments, PlaceArguments, ReadaheadArguments, ResultArguments, RowArguments, RowSuite,
    ScanArguments,
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
    measure(&wanted, &common.place, &[&|target| scan::run(&plan, target)])
}

fn cache(arguments: &CacheArguments) -> Result<(), String> {
    let (place, queue) = (&arguments.place, arguments.queue.clone());
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.set), "--set", place);
    let (rounds, limit) = (arguments.rounds, arguments.seconds);
    let plan = cache::Plan { set_bytes: arguments.set.0, rounds, limit, queue };
    measure(&wanted, place, &[&|target| cache::run(&plan, target)])
}

fn readahead(arguments: &ReadaheadArguments) -> Result<(), String> {
    let (common, places) = (&arguments.common, arguments.places);
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.size), "--size", &common.place);
    let (rounds, engine) = (arguments.rounds, common.engine.clone());
    let policies = arguments.policy.clone();
    let plan = readahead::Plan { bytes_max: u64::MAX, places, rounds, limit: FULL_LIMIT, engine, policies };
    measure(&wanted, &common.place, &[&|target| readahead::run(&plan, target)])
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
    measure(&wanted, place, &[&|target| ubc::run(&plan, target)])
}

type Measure<'a> = &'a dyn Fn(&Target) -> Result<Findings, String>;

/// Measures one suite after the other on one file, and shows each table as soon as it is there.
fn measure(wanted: &Wanted, place: &PlaceArguments, suites: &[Measure<'_>]) -> Result<(), String> {
    check_results(&place.results, None)?;
    let target = Target::prepare(wanted)?;
    let mut all = Vec::new();
    for suite in suites {
        let findings = suite(&target)?;
        if place.results.json.to().wants_text() {
            let text = findings.text(place.results.shown());
            output::print(&format!("{}{text}", if all.is_empty() { "" } else { "\n" }))?;
        }
        all.push(findings);
    }
    let headline = report::headline(&all);
    if place.results.json.to().wants_text() && !headline.is_empty() {
        output::print(&format!("\n{headline}"))?;
    }
    suite::write_results(&all, &place.results)
}

/// Checks before the work that all results can be written after it. Without a file for them the work ends with the reader of the text.
///
/// # Errors
/// One sentence for the user.
fn check_results(results: &ResultArguments, plot: Option<&Path>) -> Result<(), String> {
    let html = results.html.as_deref();
    html.into_iter().chain(plot).try_for_each(output::check_file)?;
    let json = results.json.to();
    json.check_printed()?;
    json.end_with_reader(html.or(plot));
    Ok(())
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
