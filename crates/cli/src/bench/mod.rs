//! Bench: measurements of the user's own storage.
//!
//! Owns: which suites there are, and their quick form.
//! Does not own: the suites.

mod cache;
mod file;
mod host;
mod nop;
mod readahead;
mod report;
mod row;
mod rows;
mod scan;
mod suite;
mod ubc;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use headwater::ReadaheadPolicy;

use serde::Serialize;

pub(crate) use nop::Affinity;
pub(crate) use ubc::{EXAMPLES as UBC_EXAMPLES, UbcArguments};

use crate::args::{
    BenchArguments, CacheArguments, PlaceArguments, ReadaheadArguments, RowArguments, RowSuite,
    ScanArguments, Suite,
};
use crate::complain;
use crate::units::ByteSize;
use file::{Fitting, Target, Wanted};
use suite::Findings;

pub(crate) fn run(arguments: &BenchArguments) -> ExitCode {
    let outcome = match &arguments.suite {
        Some(Suite::Scan(arguments)) => scan(arguments),
        Some(Suite::Cache(arguments)) => cache(arguments),
        Some(Suite::Readahead(arguments)) => readahead(arguments),
        Some(Suite::Ubc(arguments)) => ubc(arguments),
        Some(Suite::Nop(arguments)) => nop::run(arguments),
        None => quick(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain(text);
            ExitCode::FAILURE
        }
    }
}

/// The child's side: measures one row and prints what it took as one line of JSON.
pub(crate) fn run_row(arguments: &RowArguments) -> ExitCode {
    let line = match arguments.suite {
        RowSuite::Scan => row::measure(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Cache => cache::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Readahead => readahead::measure_row(arguments).and_then(|measured| line_of(&measured)),
        RowSuite::Ubc => ubc::measure_row(arguments).and_then(|measured| line_of(&measured)),
    };
    match line {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(format_args!("failed to measure {}: {error}", arguments.row));
            ExitCode::FAILURE
        }
    }
}

fn line_of(measured: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(measured)?)
}

fn scan(arguments: &ScanArguments) -> Result<(), String> {
    let common = &arguments.common;
    let size = arguments.size.or(arguments.file.is_none().then_some(ByteSize(FULL_BYTES)));
    let wanted = wanted(arguments.file.as_ref(), size, &common.place);
    let plan = scan::Plan { rounds: arguments.rounds, limit: FULL_LIMIT, engine: common.engine.clone() };
    measure(&wanted, &common.place, &[&|target| scan::run(&plan, target)])
}

fn cache(arguments: &CacheArguments) -> Result<(), String> {
    let (place, queue) = (&arguments.place, arguments.queue.clone());
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.set), place);
    let (rounds, limit) = (arguments.rounds, arguments.seconds);
    let plan = cache::Plan { set_bytes: arguments.set.0, rounds, limit, queue };
    measure(&wanted, place, &[&|target| cache::run(&plan, target)])
}

fn readahead(arguments: &ReadaheadArguments) -> Result<(), String> {
    let (common, places) = (&arguments.common, arguments.places);
    let wanted = wanted(arguments.file.as_ref(), Some(arguments.size), &common.place);
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
    let plan = ubc::Plan { rounds: arguments.rounds, limit: UBC_LIMIT, queue: arguments.queue.clone() };
    measure(&wanted, place, &[&|target| ubc::run(&plan, target)])
}

/// All suites that read a file, on one file.
fn quick(arguments: &BenchArguments) -> Result<(), String> {
    let common = &arguments.common;
    let (engine, queue) = (common.engine.clone(), common.engine.queue.clone());
    let scan = scan::Plan { rounds: QUICK_ROUNDS, limit: QUICK_LIMIT, engine: engine.clone() };
    let cache =
        cache::Plan { set_bytes: QUICK_SET_BYTES, rounds: QUICK_ROUNDS, limit: QUICK_CACHE_LIMIT, queue };
    let readahead = readahead::Plan {
        bytes_max: QUICK_READAHEAD_BYTES,
        places: QUICK_PLACES,
        rounds: 1,
        limit: QUICK_READAHEAD_LIMIT,
        engine,
        policies: vec![ReadaheadPolicy::Adaptive],
    };
    let size = ByteSize(QUICK_BYTES);
    let wanted = Wanted::New { dir: common.place.dir.clone(), size, fitting: Fitting::AsPossible };
    measure(
        &wanted,
        &common.place,
        &[&|target| scan::run(&scan, target), &|target| cache::run(&cache, target), &|target| {
            readahead::run(&readahead, target)
        }],
    )
}

type Measure<'a> = &'a dyn Fn(&Target) -> Result<Findings, String>;

/// Measures one suite after the other on one file, and shows each table as soon as it is there.
fn measure(wanted: &Wanted, place: &PlaceArguments, suites: &[Measure<'_>]) -> Result<(), String> {
    if let Some(path) = &place.json {
        check_output(path)?;
    }
    let target = suite::prepare(wanted)?;
    let mut all = Vec::new();
    for suite in suites {
        let findings = suite(&target)?;
        findings.print(if all.is_empty() { "" } else { "\n" })?;
        all.push(findings);
    }
    suite::write_json(&all, place.json.as_deref())
}

/// The file given, up to `size` of it, or one of that size.
fn wanted(file: Option<&PathBuf>, size: Option<ByteSize>, place: &PlaceArguments) -> Wanted {
    match (file, size) {
        (Some(path), limit) => Wanted::Existing { path: path.clone(), limit },
        (None, size) => Wanted::New {
            dir: place.dir.clone(),
            size: size.expect("a new file has a size"),
            fitting: Fitting::Exact,
        },
    }
}

/// Not to be able to write the results is better known before the measurement. Leaves no file that was not there.
pub(crate) fn check_output(path: &Path) -> Result<(), String> {
    let was_there = path.exists();
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| format!("failed to open {}: {error}", path.display()))?;
    if !was_there {
        // Nothing is lost if it stays: it is written to in the end.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Longer than a second on the fastest devices, so that start and end do not show in the rate.
const FULL_BYTES: u64 = 4 << 30;

/// A fast row reads 4 GiB within it on any flash device; what is slower is measured on a slice. The 60 rows of readahead
/// take nine minutes at most.
const FULL_LIMIT: Duration = Duration::from_secs(3);

/// A hard disk moves the 1 GiB by default within it.
const UBC_LIMIT: Duration = Duration::from_secs(20);

const QUICK_BYTES: u64 = 1 << 30;

const QUICK_ROUNDS: u32 = 3;

/// Fourteen rows, three rounds, and 20 s to make the file: about 65 s on a slow device; 31 s were measured on a fast one.
const QUICK_LIMIT: Duration = Duration::from_secs(1);

/// Far more than processors cache.
const QUICK_SET_BYTES: u64 = 128 << 20;

/// Eighteen cells and three rounds: 3 s.
const QUICK_CACHE_LIMIT: Duration = Duration::from_millis(50);

const QUICK_READAHEAD_BYTES: u64 = 64 << 20;

const QUICK_PLACES: u64 = 2000;

/// Thirty-six rows: 11 s at most.
const QUICK_READAHEAD_LIMIT: Duration = Duration::from_millis(300);
