//! Nop: batches of requests that do nothing, by headwater's ring and by others; batches of small reads, by each form of headwater's.
//!
//! Question: What does the ring itself cost? What do the caller's own buffers cost, and what does a kernel thread that submits bring?
//!
//! ```text
//!   shape ─► rounds × arms, each in a process of its own (nop-arm) ─► medians ─► table ─► ratios against bars
//! ```
//!
//! kbio, which was described and not published, is rebuilt from that description, as far as it says (`kbio`).
//!
//! Owns: the arms, the shapes, what is promised of which arm against which.
//! Does not own: rounds and verdicts (contest), how an arm uses its library (a module each).

mod kbio;
mod ours;
mod raw;
mod reads;
#[cfg(feature = "rio")]
mod rio;
mod tokio_uring;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use headwater_measure::affinity::Affinity;
use headwater_measure::{Figures, Latencies, Limit, child, crew, syscalls};

use crate::contest::{self, Contest, Promise, shown};
use crate::tools::{self, name_of};

/// Options of `nop`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds of each run of an arm.
    #[arg(long, default_value_t = 5.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where threads run: none, spread, or a list of processors for all of them like 0 or 0,1.
    #[arg(long, default_value = "none")]
    affinity: Affinity,
    /// The processor of kernel threads that submit (SQPOLL), and of kbio's thread that reaps; by default the kernel decides.
    #[arg(long, value_name = "PROCESSOR")]
    kernel_affinity: Option<u32>,
    /// Only these shapes: nop-1x64, nop-4x1024, cached-32, direct-1 and direct-32; `nop` is all that begin so.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where the file for reads is made; it has 64 MiB.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
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
    #[arg(long)]
    kernel_affinity: Option<u32>,
    #[arg(long)]
    work: Work,
    /// The file for reads.
    #[arg(long)]
    path: Option<PathBuf>,
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Work {
    Nop,
    /// Reads 4 KiB from the kernel's page cache.
    Cached,
    /// Reads 4 KiB at random from the device, around the cache.
    Direct,
}

/// A library, and a way to use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arm {
    /// headwater, a driver that any thread may use and all share, its entries divided among a ring for each processor; requests in
    /// batches, reads into its own arena.
    AnyThread,
    /// The same, with memory that the ring does not know.
    AnyThreadUnregistered,
    /// The same as the first with one ring, and a kernel thread that submits.
    AnyThreadSqpoll,
    /// The same as the first, each request submitted and awaited by itself, submissions together.
    AnyThreadPlug,
    /// headwater, the same with calls: reads into buffers of the caller's.
    Calls,
    /// The same, made together.
    CallsTogether,
    /// headwater, a local ring for each thread.
    Local,
    /// The `io-uring` crate, a ring a thread.
    Raw,
    /// The same with DEFER_TASKRUN and SINGLE_ISSUER.
    RawDefer,
    /// kbio as it was described, without its kernel thread.
    KbioRebuilt,
    /// kbio as it was described: one ring behind a lock, slots, a kernel thread that submits, a thread that reaps.
    KbioRebuiltSqpoll,
    /// A runtime a thread, a batch joined as one writes it.
    TokioUring,
    /// The same, joined with more care.
    TokioUringGroups,
    /// One ring for all threads.
    Rio,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    id: &'static str,
    threads: u32,
    entries: u32,
    batch: u32,
    work: Work,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let shapes = contest::chosen(&SHAPES, |shape| shape.id, &options.only, contest::is_family)?;
    contest::begin(options.json.as_deref())?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    let file = reads::File::make(&options.dir)?;
    for &shape in shapes {
        let outcome = contest(options, shape, file.path()).run(shape.id, options.rounds, PROMISES)?;
        failed.extend(outcome.failed);
        let findings = outcome.report.findings();
        tools::print(&findings.text)?;
        all.push(findings);
    }
    contest::finish("nop", &all, &failed, options.json.as_deref())
}

/// Every arm with this shape.
fn contest<'a>(options: &'a Options, shape: Shape, file: &'a Path) -> Contest<'a> {
    let mut contest = Contest::default();
    if shape.work == Work::Direct
        && let Err(error) = reads::open(file, Work::Direct)
    {
        contest.skip(shape.id, &format!("no direct reads here: {error}"));
        return contest;
    }
    for arm in ARMS.into_iter().filter(|arm| arm.does(shape.work)) {
        if arm == Arm::Rio && !cfg!(feature = "rio") {
            contest.skip("rio", &RIO_MISSING);
            continue;
        }
        let syscalls = syscalls_of(arm, shape, options, file).ok();
        contest.way(name_of(arm), move || {
            let mut command = command(arm, shape, options, file, options.seconds)?;
            let figures: Figures = child::result(&mut command, None)?;
            Ok(syscalls.iter().fold(figures, |figures, &count| figures.with("syscalls", count)))
        });
    }
    let Shape { threads, entries, batch, .. } = shape;
    contest.note(format!(
        "threads x entries: {threads} x {entries}, batches of {batch}; {} s, affinity {}, of kernel threads {}; us, enters and system calls of a batch",
        options.seconds,
        options.affinity,
        options.kernel_affinity.map_or("none".to_owned(), |processor| processor.to_string())
    ));
    contest
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let before = reads::processor_time();
    let figures = match options.arm {
        Arm::AnyThread
        | Arm::AnyThreadUnregistered
        | Arm::AnyThreadSqpoll
        | Arm::AnyThreadPlug
        | Arm::Calls
        | Arm::CallsTogether => ours::any_thread(options),
        Arm::Local => ours::local(options),
        Arm::KbioRebuilt => kbio::run(options, kbio::Submission::BySystemCall),
        Arm::KbioRebuiltSqpoll => kbio::run(options, kbio::Submission::ByKernelThread),
        Arm::Raw => raw::run(options, raw::Completion::Interrupting),
        Arm::RawDefer => raw::run(options, raw::Completion::Deferred),
        Arm::TokioUring => tokio_uring::run(options, tokio_uring::Join::Plain),
        Arm::TokioUringGroups => tokio_uring::run(options, tokio_uring::Join::Groups),
        #[cfg(feature = "rio")]
        Arm::Rio => rio::run(options),
        #[cfg(not(feature = "rio"))]
        Arm::Rio => Err(io::Error::new(io::ErrorKind::Unsupported, RIO_MISSING)),
    }?;
    let figures = match options.work {
        Work::Nop => figures,
        Work::Cached | Work::Direct => reads::figures(options, &figures, reads::processor_time() - before),
    };
    tools::print_json(&figures)
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

/// System calls a batch, in a run of its own: being counted slows it down.
fn syscalls_of(arm: Arm, shape: Shape, options: &Options, file: &Path) -> io::Result<f64> {
    let (count, stdout) =
        syscalls::count(&command(arm, shape, options, file, COUNTED_SECONDS.min(options.seconds))?)?;
    Ok(count / serde_json::from_slice::<Figures>(&stdout)?.get(BATCHES))
}

fn command(arm: Arm, shape: Shape, options: &Options, file: &Path, seconds: f64) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command
        .args(["nop-arm", &name_of(arm), "--affinity", &options.affinity.to_string()])
        .args(["--threads", &shape.threads.to_string(), "--entries", &shape.entries.to_string()])
        .args(["--batch", &shape.batch.to_string(), "--seconds", &seconds.to_string()])
        .args(["--work", &name_of(shape.work)])
        .arg("--path")
        .arg(file);
    if let Some(processor) = options.kernel_affinity {
        command.args(["--kernel-affinity", &processor.to_string()]);
    }
    Ok(command)
}

impl Arm {
    /// Whether it reads files, or does nothing, as asked.
    fn does(self, work: Work) -> bool {
        match work {
            // Without bytes there is no memory.
            Work::Nop => self != Arm::AnyThreadUnregistered,
            Work::Cached | Work::Direct => self.reads(),
        }
    }

    fn reads(self) -> bool {
        matches!(
            self,
            Arm::AnyThread
                | Arm::AnyThreadUnregistered
                | Arm::AnyThreadSqpoll
                | Arm::AnyThreadPlug
                | Arm::Calls
                | Arm::CallsTogether
                | Arm::Local
        )
    }
}

const ARMS: [Arm; 14] = [
    Arm::AnyThread,
    Arm::AnyThreadUnregistered,
    Arm::AnyThreadSqpoll,
    Arm::AnyThreadPlug,
    Arm::Calls,
    Arm::CallsTogether,
    Arm::Local,
    Arm::Raw,
    Arm::RawDefer,
    Arm::KbioRebuilt,
    Arm::KbioRebuiltSqpoll,
    Arm::TokioUring,
    Arm::TokioUringGroups,
    Arm::Rio,
];

/// The first two are those by which users compare io_uring libraries.
const SHAPES: [Shape; 5] = [
    Shape { id: ONE, threads: 1, entries: 64, batch: 32, work: Work::Nop },
    Shape { id: MANY, threads: 4, entries: 1024, batch: 32, work: Work::Nop },
    Shape { id: CACHED, threads: 1, entries: 64, batch: 32, work: Work::Cached },
    Shape { id: DIRECT_ONE, threads: 1, entries: 64, batch: 1, work: Work::Direct },
    Shape { id: DIRECT, threads: 1, entries: 64, batch: 32, work: Work::Direct },
];

const ONE: &str = "nop-1x64";
const MANY: &str = "nop-4x1024";
const CACHED: &str = "cached-32";
const DIRECT_ONE: &str = "direct-1";
const DIRECT: &str = "direct-32";

const BATCHES: &str = "batches";
const IOPS: &str = "iops";

const fn batches(shape: &'static str, ours: &'static str, theirs: &'static str, at_least: f64) -> Promise {
    contest::ratio(shape, ours, theirs, BATCHES, Limit::AtLeast(at_least))
}

const fn iops(shape: &'static str, ours: &'static str, theirs: &'static str, at_least: f64) -> Promise {
    contest::ratio(shape, ours, theirs, IOPS, Limit::AtLeast(at_least))
}

/// The time that 999 of 1000 batches stay within.
const fn tail(shape: &'static str, ours: &'static str, theirs: &'static str, at_most: f64) -> Promise {
    contest::ratio(shape, ours, theirs, "p99_9_us", Limit::AtMost(at_most))
}

const PROMISES: &[Promise] = &[
    // What bookkeeping, safe cancellation and sharing may cost beyond the bare ring.
    batches(ONE, "local", "raw", 0.75),
    shown(ONE, "local", "raw-defer", BATCHES),
    batches(ONE, "local", "tokio-uring", 3.0),
    shown(ONE, "local", "tokio-uring-groups", BATCHES),
    batches(ONE, "local", "rio", 12.0),
    batches(ONE, "any-thread", "raw", 0.5),
    shown(ONE, "any-thread", "raw-defer", BATCHES),
    batches(ONE, "any-thread", "tokio-uring", 2.0),
    shown(ONE, "any-thread", "tokio-uring-groups", BATCHES),
    batches(ONE, "any-thread", "rio", 8.0),
    // One handle for all threads against a ring for each.
    batches(MANY, "any-thread", "raw", 0.6),
    shown(MANY, "any-thread", "raw-defer", BATCHES),
    batches(MANY, "any-thread", "tokio-uring", 2.4),
    shown(MANY, "any-thread", "tokio-uring-groups", BATCHES),
    batches(MANY, "any-thread", "rio", 15.0),
    tail(MANY, "any-thread", "tokio-uring", 0.25),
    tail(MANY, "any-thread", "rio", 0.25),
    shown(MANY, "local", "raw", BATCHES),
    batches(ONE, "any-thread", "kbio-rebuilt-sqpoll", 1.0),
    batches(ONE, "any-thread", "kbio-rebuilt", 1.0),
    batches(MANY, "any-thread", "kbio-rebuilt-sqpoll", 1.0),
    batches(MANY, "any-thread", "kbio-rebuilt", 1.0),
    tail(MANY, "any-thread", "kbio-rebuilt-sqpoll", 1.0),
    shown(ONE, "any-thread-sqpoll", "any-thread", BATCHES),
    shown(MANY, "any-thread-sqpoll", "any-thread", BATCHES),
    // The caller's buffers, submitted in the same way, and against batches.
    batches(ONE, "calls", "any-thread-plug", 0.95),
    batches(ONE, "calls-together", "any-thread", 0.95),
    iops(CACHED, "calls", "any-thread-plug", 0.95),
    iops(CACHED, "calls-together", "any-thread", 0.95),
    iops(DIRECT, "calls", "any-thread-plug", 0.95),
    iops(DIRECT, "calls-together", "any-thread", 0.95),
    // What registered memory saves: the kernel need not look up its pages.
    shown(CACHED, "any-thread", "any-thread-unregistered", IOPS),
    shown(DIRECT, "any-thread", "any-thread-unregistered", IOPS),
    shown(DIRECT, "any-thread", "any-thread-unregistered", "cpu_us"),
    shown(CACHED, "any-thread-sqpoll", "any-thread", IOPS),
    shown(DIRECT_ONE, "any-thread-sqpoll", "any-thread", IOPS),
    shown(DIRECT_ONE, "any-thread-sqpoll", "any-thread", "cpu_us"),
    shown(DIRECT, "any-thread-sqpoll", "any-thread", IOPS),
    shown(DIRECT, "any-thread-sqpoll", "any-thread", "cpu_us"),
];

const RIO_MISSING: &str = "not built in: it is GPL-3.0; build with --features rio";

/// Ten thousand batches and more, so that what starting costs does not show.
const COUNTED_SECONDS: f64 = 1.0;
