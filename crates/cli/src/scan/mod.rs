//! Scan: reads files and trees at the speed of the device, many files at the same time, and optionally hashes them.
//!
//! ```text
//!   arguments ─┬─ walk ──────────┬─► jobs ─► crew of threads ─► contents ─► outcomes ─► report, in order
//!              └─ lists of sums ─┘
//! ```
//!
//! Owns: the order of the steps, the exit code.
//! Does not own: the steps.

mod arguments;
mod buffer;
mod candidates;
mod contents;
mod crew;
mod digest;
mod extents;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod gate;
mod jobs;
mod lines;
mod listed;
mod output;
mod pace;
mod progress;
mod report;
mod walk;
mod whole;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub(crate) use arguments::{EXAMPLES, ScanFilesArguments};
use headwater_measure::standard;

use crate::shared::complain::{complain, exit_code_of};
use crate::shared::output::{JsonTo, unwritten};
use candidates::Candidates;
use contents::Contents;
use crew::Crew;
use digest::Algorithm;
use jobs::Jobs;
use listed::Listed;
use progress::Progress;
use report::{Report, Totals};
use walk::{STANDARD_INPUT, Walk};

pub(crate) fn run(arguments: &ScanFilesArguments) -> ExitCode {
    let done = check_output(arguments).and_then(|()| match arguments.check {
        true => check(arguments),
        false => {
            let walk = || Jobs::Walk(Walk::new(&arguments.paths));
            let scanned = scan(arguments, &Candidates::new(arguments.hash), walk(), || Some(walk()))?;
            Ok(scanned.map(|(totals, _)| totals.is_success()))
        }
    });
    exit_code_of(done.map(|agrees| match agrees {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => ExitCode::from(standard::READER_GONE),
    }))
}

/// Checks the output before the work; standard output only if something is certainly printed there.
fn check_output(arguments: &ScanFilesArguments) -> Result<(), String> {
    match arguments.json.to().beside(&arguments.paths)? {
        json @ (JsonTo::Nowhere | JsonTo::File(_)) if arguments.status || arguments.quiet => json.check(),
        json => json.check_printed(),
    }
}

/// Verifies the listed files. `true` if all match, and there is at least one; `None` as of [`scan`].
fn check(arguments: &ScanFilesArguments) -> Result<Option<bool>, String> {
    let listed = Listed::new(&arguments.paths, arguments.hash)?;
    let (algorithm, candidates) = (listed.algorithm(), listed.candidates());
    // A list that is no file can be read only once.
    let is_file = |path: &PathBuf| {
        path != Path::new(STANDARD_INPUT) && std::fs::metadata(path).is_ok_and(|list| list.is_file())
    };
    let again = || {
        let lists = Some(&arguments.paths).filter(|paths| paths.iter().all(is_file))?;
        Listed::new(lists, Some(algorithm)).ok().map(|listed| Jobs::Listed(Box::new(listed)))
    };
    let scanned = scan(arguments, &candidates, Jobs::Listed(Box::new(listed)), again)?;
    let Some((totals, jobs)) = scanned else { return Ok(None) };
    let faults = jobs.into_faults();
    faults.unusable.iter().for_each(complain);
    if !arguments.status {
        warn(faults.malformed_lines, "line has another form", "lines have another form");
        warn(
            faults.other_lines,
            "line has a sum of another algorithm",
            "lines have sums of other algorithms",
        );
        warn(totals.failed_files, "listed file could not be read", "listed files could not be read");
        warn(totals.mismatched_files, "sum does NOT agree", "sums do NOT agree");
        if totals.mismatched_files > 0 && totals.mismatched_files == totals.files {
            complain(none_agrees(candidates.left()));
        }
    }
    let is_all_sums = faults.malformed_lines + faults.other_lines == 0;
    let is_success = totals.is_success() && totals.files > 0 && faults.unusable.is_empty();
    Ok(Some(is_success && (is_all_sums || !arguments.strict)))
}

/// The warning about a list of which no sum agrees.
fn none_agrees(algorithms: &[Algorithm]) -> String {
    let names: Vec<_> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
    let [first, ..] = algorithms else { unreachable!("sums have an algorithm") };
    let others = first.of_equal_length().filter(|other| !algorithms.contains(other));
    let ours: String =
        others.map(|other| format!("{} (--hash {}), ", other.name(), other.argument())).collect();
    format!(
        "warning: none agrees: the sums may be of another algorithm than {} with as many digits, such as {ours}{}",
        names.join(" or "),
        first.confused_with()
    )
}

fn warn(count: u64, one: &str, several: &str) {
    match count {
        0 => {}
        1 => complain(format_args!("warning: 1 {one}")),
        _ => complain(format_args!("warning: {count} {several}")),
    }
}

/// Reads all files. `again` are the same, to be counted; `None` if they cannot be known before they are read. Returns `None` if the
/// reader of the output has gone, and nothing else takes results.
fn scan(
    arguments: &ScanFilesArguments,
    candidates: &Candidates,
    jobs: Jobs,
    again: impl FnOnce() -> Option<Jobs>,
) -> Result<Option<(Totals, Jobs)>, String> {
    let (started, is_stopped) = (Instant::now(), AtomicBool::new(false));
    let files_max = arguments.engine.queue.queue_depth.unwrap_or(FILES_DEFAULT) as usize;
    let progress = Progress::new(again);
    let contents = Contents::new(arguments, candidates, files_max, &progress, &is_stopped);
    let report = Report::new(arguments, candidates, &progress);
    let (jobs, report) = match Crew::new(jobs, report, &progress, &is_stopped).run(&contents, files_max) {
        Ok(done) => done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(None),
        Err(error) => return Err(candidates.refused().unwrap_or_else(|| unwritten(&error))),
    };
    progress.finish();
    let totals = report.finish(jobs.skipped(), started.elapsed())?;
    Ok(totals.map(|totals| (totals, jobs)))
}

/// Files read at the same time: enough to saturate a disk queue; waiting threads cost little.
const FILES_DEFAULT: u32 = 64;
