//! Short: what a program pays that opens an engine, reads one page and ends.
//!
//! Owns: the two programs, what one takes more than the other.
//! Does not own: rounds and verdicts (contest).

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::ValueEnum;
use headwater::{Engine, OpenOptions};
use headwater_core::units::PAGE_BYTES;
use headwater_measure::Figures;

use crate::contest::Contest;
use crate::setup::Bench;
use crate::tools;

/// Options of `one-page`.
#[derive(clap::Args)]
pub(crate) struct ArmOptions {
    side: Side,
    file: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Side {
    Headwater,
    Std,
}

/// The program.
pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let mut page = [0; PAGE_BYTES];
    let read_bytes = match options.side {
        Side::Headwater => {
            let engine = Engine::builder().build()?;
            OpenOptions::new().engine(&engine).open(&options.file)?.read_at(&mut page, 0)?
        }
        Side::Std => std::fs::File::open(&options.file)?.read_at(&mut page, 0)?,
    };
    if read_bytes > 0 { Ok(()) } else { Err(io::Error::other("the file is empty")) }
}

/// With the page in the page cache and without.
pub(super) fn short<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let (mut contest, file) = (Contest::default(), &*bench.options.file);
    contest.way("headwater over std, cold", move || time_over_std(file, tools::make_cold));
    contest.way("headwater over std, warm", move || time_over_std(file, tools::make_warm_page));
    let trace = bench.path("trace");
    contest.optional("headwater over std, traced", move || {
        let calls = |side| system_calls(side, file, &trace);
        Ok(Figures::from([("syscalls", calls(Side::Headwater)? - calls(Side::Std)?)]))
    });
    Ok(contest)
}

/// The median of differences.
fn time_over_std(file: &Path, prepare: impl Fn(&Path) -> io::Result<()>) -> io::Result<Figures> {
    let time = |side| {
        prepare(file)?;
        let mut command = command(side, file)?;
        let start = Instant::now();
        let status = command.status()?;
        let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
        if status.success() { Ok(elapsed_ms) } else { Err(io::Error::other(status.to_string())) }
    };
    let difference = |_| Ok(time(Side::Headwater)? - time(Side::Std)?);
    let mut differences = (0..PAIRS).map(difference).collect::<io::Result<Vec<f64>>>()?;
    differences.sort_by(f64::total_cmp);
    Ok(Figures::from([("ms_each", differences[PAIRS / 2])]))
}

/// Of all threads, as strace counts them.
fn system_calls(side: Side, file: &Path, trace: &Path) -> io::Result<f64> {
    let program = command(side, file)?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "signal=none", "-o"]).arg(trace).arg(program.get_program());
    let status = strace.args(program.get_args()).stdin(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("strace: {status}")));
    }
    let lines = std::fs::read_to_string(trace)?;
    Ok(lines.lines().filter(|line| !line.contains(" resumed>")).count() as f64)
}

fn command(side: Side, file: &Path) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command.args(["one-page", &tools::name_of(side)]).arg(file).stdin(Stdio::null());
    Ok(command)
}

/// Differences of half a millisecond between processes of several.
const PAIRS: usize = 31;
