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
mod contents;
mod crew;
mod digest;
mod extents;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod gate;
mod jobs;
mod lines;
mod output;
mod pace;
mod progress;
mod report;
mod walk;
mod whole;

use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub(crate) use arguments::{EXAMPLES, ScanFilesArguments};

use crate::shared::complain::{complain, exit_code_of};
use crate::shared::output::{JsonTo, unwritten};
use contents::Contents;
use crew::Crew;
use jobs::{Jobs, Listed};
use progress::Progress;
use report::{Report, Totals};
use walk::Walk;

pub(crate) fn run(arguments: &ScanFilesArguments) -> ExitCode {
    let done = check_output(arguments).and_then(|()| match arguments.algorithm() {
        Some(algorithm) if arguments.check => {
            let listed = Listed::read(&arguments.paths, algorithm);
            match listed.other_algorithm(algorithm) {
                None => check(arguments, listed),
                Some(other) => Err(format!(
                    "the sums are of {}, not of {}: check them with --hash {}",
                    other.name(),
                    algorithm.name(),
                    other.argument()
                )),
            }
        }
        _ => scan(arguments, || Jobs::Walk(Walk::new(&arguments.paths))).map(|totals| totals.is_success()),
    });
    exit_code_of(done.map(|agrees| if agrees { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Checks the output before the work; standard output only if something is certainly printed there.
fn check_output(arguments: &ScanFilesArguments) -> Result<(), String> {
    match arguments.json.to() {
        json @ (JsonTo::Nowhere | JsonTo::File(_)) if arguments.status || arguments.quiet => json.check(),
        json => json.check_printed(),
    }
}

/// Verifies the listed files. `true` if all match, and there is at least one.
fn check(arguments: &ScanFilesArguments, listed: Listed) -> Result<bool, String> {
    let totals = scan(arguments, || Jobs::Listed(listed.sums.clone().into_iter()))?;
    if !arguments.status {
        warn(listed.malformed_lines, "line has another form", "lines have another form");
        warn(totals.failed_files, "listed file could not be read", "listed files could not be read");
        warn(totals.mismatched_files, "sum does NOT agree", "sums do NOT agree");
    }
    Ok(totals.is_success() && totals.files > 0 && listed.failed_lists == 0)
}

fn warn(count: u64, one: &str, several: &str) {
    match count {
        0 => {}
        1 => complain(format_args!("warning: 1 {one}")),
        _ => complain(format_args!("warning: {count} {several}")),
    }
}

fn scan(arguments: &ScanFilesArguments, jobs: impl Fn() -> Jobs) -> Result<Totals, String> {
    let (started, is_stopped) = (Instant::now(), AtomicBool::new(false));
    let files_max = arguments.engine.queue.queue_depth.unwrap_or(FILES_DEFAULT) as usize;
    let progress = Progress::new(&jobs);
    let contents = Contents::new(arguments, files_max, &progress, &is_stopped);
    let crew = Crew::new(jobs(), Report::new(arguments, &progress), &progress, &is_stopped);
    let (jobs, report) = match crew.run(&contents, files_max) {
        Ok(done) => done,
        // A reader that has gone wants no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Totals::default()),
        Err(error) => return Err(unwritten(&error)),
    };
    progress.finish();
    report.finish(jobs.skipped(), started.elapsed())
}

/// Files read at the same time: enough to saturate a disk queue; waiting threads cost little.
const FILES_DEFAULT: u32 = 32;
