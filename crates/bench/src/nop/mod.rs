//! Nop: what the ring itself costs, against other io_uring libraries, with batches of requests that do nothing.
//!
//! ```text
//!   shape ─► rounds × arms, each in a process of its own (nop-arm) ─► medians ─► table ─► ratios against bars
//! ```
//!
//! Owns: the arms, the shapes, the order of runs.
//! Does not own: how an arm uses its library (a module each), what is promised (promises).

mod affinity;
mod crew;
mod latency;
mod ours;
mod promises;
mod raw;
#[cfg(feature = "rio")]
mod rio;
mod table;
mod tokio_uring;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use serde::Serialize;

use crate::measure::interleave;
use crate::verdict::skipped;
use crate::{syscalls, tools};
use affinity::Affinity;
use latency::NopSample;
use table::{Line, Table};

/// Options of `nop`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds of each run of an arm.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where threads run: none, spread, or a list of processors for all of them like 0 or 0,1.
    #[arg(long, default_value = "none")]
    affinity: Affinity,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One arm, in a process of its own.
#[derive(clap::Args, Clone)]
pub(crate) struct ArmOptions {
    arm: Arm,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    entries: u32,
    #[arg(long)]
    batch: u32,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    affinity: Affinity,
}

/// A library, and a way to use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Arm {
    /// headwater, a ring that any thread may use and all share.
    AnyThread,
    /// headwater, a local ring for each thread.
    Local,
    /// The `io-uring` crate, a ring a thread.
    Raw,
    /// The same with DEFER_TASKRUN and SINGLE_ISSUER.
    RawDefer,
    /// A runtime a thread, a batch joined as one writes it.
    TokioUring,
    /// The same, joined with more care.
    TokioUringGroups,
    /// One ring for all threads.
    Rio,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Shape {
    threads: u32,
    entries: u32,
    batch: u32,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let tables: io::Result<Vec<Table>> = SHAPES.iter().map(|&shape| contest(options, shape)).collect();
    match &options.json {
        Some(path) => std::fs::write(path, table::json(options, &tables?)? + "\n"),
        None => tables.map(drop),
    }
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let sample = match options.arm {
        Arm::AnyThread => ours::any_thread(options),
        Arm::Local => ours::local(options),
        Arm::Raw => raw::run(options, raw::Completion::Interrupting),
        Arm::RawDefer => raw::run(options, raw::Completion::Deferred),
        Arm::TokioUring => tokio_uring::run(options, tokio_uring::Join::Plain),
        Arm::TokioUringGroups => tokio_uring::run(options, tokio_uring::Join::Groups),
        #[cfg(feature = "rio")]
        Arm::Rio => rio::run(options),
        #[cfg(not(feature = "rio"))]
        Arm::Rio => Err(io::Error::new(io::ErrorKind::Unsupported, RIO_MISSING)),
    }?;
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
}

fn contest(options: &Options, shape: Shape) -> io::Result<Table> {
    let arms: Vec<Arm> = ARMS.into_iter().filter(|&arm| arm != Arm::Rio || cfg!(feature = "rio")).collect();
    let samples = interleave(&arms, options.rounds, |&arm| {
        tools::json_of::<NopSample>(command(arm, shape, options, options.seconds)?)
    })?;
    let line = |(&arm, samples): (&Arm, &Vec<NopSample>)| Line {
        arm,
        sample: NopSample::medians(samples),
        syscalls: syscalls_of(arm, shape, options).ok(),
    };
    let table = Table { shape, lines: arms.iter().zip(&samples).map(line).collect() };
    table.print(options)?;
    if arms.len() < ARMS.len() {
        skipped("rio", &RIO_MISSING)?;
    }
    promises::judge(&table)?;
    Ok(table)
}

/// System calls a batch, in a run of its own: being counted slows it down.
fn syscalls_of(arm: Arm, shape: Shape, options: &Options) -> io::Result<f64> {
    let (count, stdout) = syscalls::count(&command(arm, shape, options, COUNTED_SECONDS)?)?;
    Ok(count / serde_json::from_slice::<NopSample>(&stdout)?.batches)
}

fn command(arm: Arm, shape: Shape, options: &Options, seconds: f64) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["nop-arm", &tools::name_of(arm), "--affinity", &options.affinity.to_string()])
        .args(["--threads", &shape.threads.to_string(), "--entries", &shape.entries.to_string()])
        .args(["--batch", &shape.batch.to_string(), "--seconds", &seconds.to_string()]);
    Ok(command)
}

const ARMS: [Arm; 7] =
    [Arm::AnyThread, Arm::Local, Arm::Raw, Arm::RawDefer, Arm::TokioUring, Arm::TokioUringGroups, Arm::Rio];

/// Those by which users compare io_uring libraries.
const SHAPES: [Shape; 2] =
    [Shape { threads: 1, entries: 64, batch: 32 }, Shape { threads: 4, entries: 1024, batch: 32 }];

const RIO_MISSING: &str = "not built in: it is GPL-3.0; build with --features rio";

/// Ten thousand batches and more, so that what starting costs does not show.
const COUNTED_SECONDS: f64 = 1.0;
