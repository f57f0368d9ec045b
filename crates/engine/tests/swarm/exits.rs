//! Exits: runs that end with their process, and what their files have then.
//!
//! ```text
//!   fork ─► the steps ─► Exit: what may be in the files is stored ─► the process ends, in one way or another
//!     └► waits ─► reads what was stored ─► the files are one of these, and it did not take long
//! ```
//!
//! Owns: the process of such a run, what it has to leave.
//! Does not own: the state in which it ends (world).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use headwater_testkit::{Ended, forked_status};

use crate::coverage::{Coverage, Reached};
use crate::run_here;
use crate::steps::{Exit, FILES, Setup, Step, Way};
use crate::versions::Versions;

/// As [`crate::run`].
pub(crate) fn run(
    setup: &Setup,
    steps: &[Step],
    directory: &Path,
    coverage: &mut Coverage,
) -> Result<(), (String, usize)> {
    let apart = directory.join("apart");
    let _ = fs::remove_dir_all(&apart);
    fs::create_dir(&apart).map_err(|error| (error.to_string(), 0))?;
    let ended = forked_status(&format!("HEADWATER_SEED={:#x}", setup.seed), || {
        let result = run_here(setup, steps, directory, &mut Coverage::default());
        let (error, reached) = result.expect_err("an exit is the last step");
        fs::write(apart.join(FAILED), format!("{reached} {error}")).expect("there is room");
    });
    let found = SystemTime::now();
    if let Ok(failed) = fs::read_to_string(apart.join(FAILED)) {
        let (reached, error) = failed.split_once(' ').expect("a number and an error");
        return Err((error.to_owned(), reached.parse().expect("a number")));
    }
    judge(directory, ended, found, steps, coverage).map_err(|error| (error, steps.len()))
}

fn judge(
    directory: &Path,
    Ended { status, paused }: Ended,
    found: SystemTime,
    steps: &[Step],
    coverage: &mut Coverage,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let apart = directory.join("apart");
    let Some(Step::Exit(exit)) = steps.last() else { return Err(format!("it ended: {status:?}")) };
    let expected = if exit.way == Way::Killed { None } else { Some(LEFT) };
    if status.code() != expected || status.core_dumped() {
        return Err(format!("it left with {status:?}"));
    }
    let report = fs::metadata(apart.join(REPORT)).and_then(|report| report.modified()).map_err(text)?;
    let took = found.duration_since(report).unwrap_or_default().saturating_sub(paused);
    if took > LEAVES_WITHIN {
        return Err(format!("it took {took:?} to leave"));
    }
    coverage.add(&Coverage::parse(&fs::read_to_string(apart.join(REPORT)).map_err(text)?));
    for file in 0..FILES {
        let possible = Versions::load(&apart.join(file.to_string())).map_err(text)?;
        let disk = match fs::read(directory.join(format!("file{file}"))) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            disk => disk.map_err(text)?,
        };
        possible
            .check(possible.now(), 0, usize::MAX, &disk)
            .map_err(|error| format!("file {file} after the end: {error}"))?;
        coverage.note_if(possible.is_newer_than(&disk), Reached::ExitLostUnsynced);
    }
    Ok(())
}

/// Stored before a process ends; the time of it is when that begins.
pub(crate) fn report(directory: &Path, coverage: &Coverage) -> std::io::Result<()> {
    fs::write(directory.join("apart").join(REPORT), coverage.line())
}

/// What of each file is stored.
pub(crate) fn keeps_all(exit: Exit, is_faulty: bool, is_latched: bool) -> bool {
    exit.way == Way::Exits && !is_faulty && !is_latched
}

const FAILED: &str = "failed";
const REPORT: &str = "report";

/// The code of a process that was to exit.
pub(crate) const LEFT: i32 = 7;

/// Beside other processes; an exit abandons a device after a second without progress.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);
