//! Nop: batches of requests that do nothing, by headwater's ring and by other io_uring libraries.
//!
//! Question: What does the ring itself cost?
//!
//! ```text
//!   shape ─► rounds × arms, each in a process of its own (nop-arm) ─► medians ─► table ─► ratios against bars
//! ```
//!
//! Owns: the arms, the shapes, what is promised of which arm against which.
//! Does not own: how an arm uses its library (a module each).

mod ours;
mod raw;
#[cfg(feature = "rio")]
mod rio;
mod tokio_uring;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use headwater_measure::affinity::Affinity;
use headwater_measure::rounds::interleave;
use headwater_measure::verdict::skipped;
use headwater_measure::{
    Better, Column, Figures, Latencies, Limit, Metric, Promise, Row, Table, Verdict, Whose, child, crew,
    latency, syscalls,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::tools::name_of;

/// Options of `nop`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds of each run of an arm.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
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

/// What was measured of a shape.
struct Contest {
    shape: Shape,
    rows: Vec<Row>,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let contests: io::Result<Vec<Contest>> = SHAPES.iter().map(|&shape| contest(options, shape)).collect();
    match &options.json {
        Some(path) => std::fs::write(path, format!("{:#}\n", report(options, &contests?))),
        None => contests.map(drop),
    }
}

fn report(options: &Options, contests: &[Contest]) -> Value {
    let table = |contest: &Contest| {
        let Shape { threads, entries, batch } = contest.shape;
        json!({"threads": threads, "entries": entries, "batch": batch, "lines": contest.rows})
    };
    json!({
        "suite": "nop",
        "seconds": options.seconds,
        "rounds": options.rounds,
        "affinity": options.affinity.to_string(),
        "tables": contests.iter().map(table).collect::<Value>(),
        "verdicts": contests.iter().flat_map(Contest::verdicts).collect::<Vec<Verdict>>(),
    })
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let figures = match options.arm {
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
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// In all threads of an arm: what `prepare` makes for it is worked with until time is up.
fn all_threads<P>(
    options: &ArmOptions,
    prepare: impl Fn() -> io::Result<P> + Sync,
    work: impl Fn(P) -> io::Result<Latencies> + Sync,
) -> io::Result<Latencies> {
    Ok(Latencies::sum(crew::run(options.threads, &options.affinity, |_| prepare(), work)?))
}

impl ArmOptions {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// What an arm reports; latencies are of a batch. `enters`: calls of `io_uring_enter`, where the arm knows.
fn figures(latencies: &Latencies, enters: Option<u64>) -> Figures {
    let batches = latencies.count() as f64;
    let figures = latencies.figures().with("batches", batches);
    match enters {
        Some(enters) => figures.with("enters", enters as f64 / batches.max(1.0)),
        None => figures,
    }
}

fn contest(options: &Options, shape: Shape) -> io::Result<Contest> {
    let arms: Vec<Arm> = ARMS.into_iter().filter(|&arm| arm != Arm::Rio || cfg!(feature = "rio")).collect();
    let samples = interleave(&arms, options.rounds, |&arm| {
        let mut command = command(arm, shape, options, options.seconds)?;
        Ok::<Figures, io::Error>(child::result(&mut command, None)?)
    })?;
    let row = |(&arm, samples): (&Arm, &Vec<Figures>)| {
        let samples_of = |name| samples.iter().filter_map(move |figures| figures.find(name));
        let whose = if matches!(arm, Arm::AnyThread | Arm::Local) { Whose::Headwater } else { Whose::Peer };
        let batches = Metric::new("batches", "", Better::Higher, samples_of("batches"));
        let row = Row::new(whose, name_of(arm)).label("arm", name_of(arm)).metric(batches);
        let row = latency::COLUMNS.into_iter().fold(row, |row, (name, ..)| {
            row.metric(Metric::new(name, "µs", Better::Lower, samples_of(name)))
        });
        row.metric(Metric::new("enters", "", Better::Lower, samples_of("enters"))).metric(Metric::cost(
            "syscalls",
            "",
            syscalls_of(arm, shape, options).ok(),
        ))
    };
    let contest = Contest { shape, rows: arms.iter().zip(&samples).map(row).collect() };
    contest.print(options)?;
    if arms.len() < ARMS.len() {
        skipped("rio", &RIO_MISSING)?;
    }
    contest.verdicts().iter().try_for_each(Verdict::print)?;
    Ok(contest)
}

impl Contest {
    fn print(&self, options: &Options) -> io::Result<()> {
        let Shape { threads, entries, batch } = self.shape;
        let mut columns = vec![Column::names("arm"), Column::value("batches", "batches", 0)];
        columns.extend(latency::COLUMNS.map(|(name, head, places)| Column::value(head, name, places)));
        columns.extend([Column::value("enters", "enters", 2), Column::value("syscalls", "syscalls", 2)]);
        writeln!(
            io::stdout(),
            "\nthreads x entries: {threads} x {entries}, batches of {batch}; {} s x {} rounds, medians; affinity {}; us a \
             batch\n{}",
            options.seconds,
            options.rounds,
            options.affinity,
            Table::of("", &columns, &self.rows)
        )
    }

    /// Of those promises whose arms have run.
    fn verdicts(&self) -> Vec<Verdict> {
        let promises = if self.shape.threads == 1 { &ONE_THREAD[..] } else { &MANY_THREADS };
        promises.iter().filter_map(|promise| self.verdict(promise)).collect()
    }

    fn verdict(&self, promise: &Promise<Arm>) -> Option<Verdict> {
        let of = |arm, figure: &str| self.rows.iter().find(|row| row.name == name_of(arm))?.value(figure);
        let (threads, entries) = (self.shape.threads, self.shape.entries);
        let what = if promise.figure == BATCHES { "batches" } else { "p99.9 of a batch" };
        let (ours, theirs) = (name_of(promise.ours), promise.theirs.map(name_of).unwrap_or_default());
        let title = format!("{what}, {threads} x {entries}, {ours} : {theirs}");
        Some(Verdict::new(title, promise.measured(of)?, promise.limit))
    }
}

/// System calls a batch, in a run of its own: being counted slows it down.
fn syscalls_of(arm: Arm, shape: Shape, options: &Options) -> io::Result<f64> {
    let (count, stdout) = syscalls::count(&command(arm, shape, options, COUNTED_SECONDS)?)?;
    Ok(count / serde_json::from_slice::<Figures>(&stdout)?.get(BATCHES))
}

fn command(arm: Arm, shape: Shape, options: &Options, seconds: f64) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["nop-arm", &name_of(arm), "--affinity", &options.affinity.to_string()])
        .args(["--threads", &shape.threads.to_string(), "--entries", &shape.entries.to_string()])
        .args(["--batch", &shape.batch.to_string(), "--seconds", &seconds.to_string()]);
    Ok(command)
}

const ARMS: [Arm; 7] =
    [Arm::AnyThread, Arm::Local, Arm::Raw, Arm::RawDefer, Arm::TokioUring, Arm::TokioUringGroups, Arm::Rio];

/// Those by which users compare io_uring libraries.
const SHAPES: [Shape; 2] =
    [Shape { threads: 1, entries: 64, batch: 32 }, Shape { threads: 4, entries: 1024, batch: 32 }];

const BATCHES: &str = "batches";

const fn batches(ours: Arm, theirs: Arm, at_least: f64) -> Promise<Arm> {
    Promise { ours, theirs: Some(theirs), figure: BATCHES, limit: Some(Limit::AtLeast(at_least)) }
}

/// The time that 999 of 1000 batches stay within.
const fn tail(ours: Arm, theirs: Arm, at_most: f64) -> Promise<Arm> {
    Promise { ours, theirs: Some(theirs), figure: "p99_9_us", limit: Some(Limit::AtMost(at_most)) }
}

const fn told(ours: Arm, theirs: Arm) -> Promise<Arm> {
    Promise { ours, theirs: Some(theirs), figure: BATCHES, limit: None }
}

/// What bookkeeping, safe cancellation and sharing may cost beyond the bare ring.
const ONE_THREAD: [Promise<Arm>; 10] = [
    batches(Arm::Local, Arm::Raw, 0.75),
    told(Arm::Local, Arm::RawDefer),
    batches(Arm::Local, Arm::TokioUring, 3.0),
    told(Arm::Local, Arm::TokioUringGroups),
    batches(Arm::Local, Arm::Rio, 12.0),
    batches(Arm::AnyThread, Arm::Raw, 0.5),
    told(Arm::AnyThread, Arm::RawDefer),
    batches(Arm::AnyThread, Arm::TokioUring, 2.0),
    told(Arm::AnyThread, Arm::TokioUringGroups),
    batches(Arm::AnyThread, Arm::Rio, 8.0),
];

/// One handle for all threads against a ring for each.
const MANY_THREADS: [Promise<Arm>; 8] = [
    batches(Arm::AnyThread, Arm::Raw, 0.6),
    told(Arm::AnyThread, Arm::RawDefer),
    batches(Arm::AnyThread, Arm::TokioUring, 2.4),
    told(Arm::AnyThread, Arm::TokioUringGroups),
    batches(Arm::AnyThread, Arm::Rio, 15.0),
    tail(Arm::AnyThread, Arm::TokioUring, 0.25),
    tail(Arm::AnyThread, Arm::Rio, 0.25),
    told(Arm::Local, Arm::Raw),
];

const RIO_MISSING: &str = "not built in: it is GPL-3.0; build with --features rio";

/// Ten thousand batches and more, so that what starting costs does not show.
const COUNTED_SECONDS: f64 = 1.0;
