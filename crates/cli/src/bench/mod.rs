//! Bench: measurements of the user's own storage.
//!
//! Owns: which suites there are, and their quick form.
//! Does not own: the suites.

mod file;
mod host;
mod nop;
mod report;
mod row;
mod rows;
mod scan;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use nop::Affinity;
pub(crate) use row::run as run_row;

use crate::args::{BenchArguments, ScanArguments, Suite};
use crate::complain;
use crate::units::ByteSize;
use file::Wanted;
use scan::Plan;

pub(crate) fn run(arguments: &BenchArguments) -> ExitCode {
    let outcome = match &arguments.suite {
        Some(Suite::Scan(scan)) => scan::run(&full(scan)),
        Some(Suite::Nop(nop)) => nop::run(nop),
        None => scan::run(&quick(arguments)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain(text);
            ExitCode::FAILURE
        }
    }
}

fn full(arguments: &ScanArguments) -> Plan {
    let wanted = match (&arguments.file, arguments.size) {
        (Some(path), limit) => Wanted::Existing { path: path.clone(), limit },
        (None, size) => Wanted::New {
            dir: arguments.common.dir.clone(),
            size: size.unwrap_or(ByteSize(FULL_BYTES)),
            fitting: file::Fitting::Exact,
        },
    };
    Plan { wanted, rounds: arguments.rounds, limit: FULL_LIMIT, common: arguments.common.clone() }
}

fn quick(arguments: &BenchArguments) -> Plan {
    let (dir, size) = (arguments.common.dir.clone(), ByteSize(QUICK_BYTES));
    let wanted = Wanted::New { dir, size, fitting: file::Fitting::AsPossible };
    Plan { wanted, rounds: QUICK_ROUNDS, limit: QUICK_LIMIT, common: arguments.common.clone() }
}

/// Not to be able to write the results is better known before the measurement. Leaves no file that was not there.
fn check_output(path: &Path) -> Result<(), String> {
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

/// A fast row reads 4 GiB within it on any flash device; what is slower is measured on a slice.
const FULL_LIMIT: Duration = Duration::from_secs(3);

const QUICK_BYTES: u64 = 1 << 30;

const QUICK_ROUNDS: u32 = 3;

/// Fourteen rows, three rounds, and 20 s to make the file: about 65 s on a slow device; 31 s were measured on a fast one.
const QUICK_LIMIT: Duration = Duration::from_secs(1);
