//! Defaults: engines without a number for their memory, against the kernel's page cache with as much of it.
//!
//! ```text
//!   confined: cgroup ─► 20 readers of random pages of 2.5 × the limit ─► warm up ─► reads, share that was cached
//!   service:  64 tasks ─► every piece of 500 MiB, cold ─► all of them again, several times
//!   fill:     2 GiB in order, cold, through the cache
//! ```
//!
//! Owns: the programs, their cgroup, sizes.
//! Does not own: rounds and verdicts (contest).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::ValueEnum;
use futures_util::future::try_join_all;
use headwater::{Caching, Engine, IoMode, OpenOptions};
use headwater_measure::cgroup::{self, MemoryCgroup};
use headwater_measure::{Figures, Meter, child, sum_of_words};
use headwater_testkit::Rng;

use crate::contest::{Contest, Runs};
use crate::folder::Guard;
use crate::pages::{Offsets, PAGE, random_loop, shuffle};
use crate::setup::Bench;
use crate::tools;

/// Options of `default-arm`.
#[derive(clap::Args)]
pub(crate) struct ArmOptions {
    work: Work,
    side: Side,
    file: PathBuf,
    #[arg(long)]
    bytes: u64,
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    #[arg(long, default_value_t = PAGE as usize)]
    piece_bytes: usize,
    /// Entered first.
    #[arg(long)]
    cgroup: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Work {
    Confined,
    Service,
    Fill,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Side {
    Headwater,
    /// Tasks instead of threads.
    HeadwaterTasks,
    /// Through the kernel's page cache; from tasks by `spawn_blocking`.
    Std,
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    if let Some(cgroup) = &options.cgroup {
        cgroup::enter(cgroup)?;
    }
    let figures = match (options.work, options.side) {
        (Work::Confined, Side::HeadwaterTasks) => confined_tasks(options),
        (Work::Confined, _) => confined_threads(options),
        (Work::Service, _) => serve(options),
        (Work::Fill, _) => fill_once(options),
    }?;
    tools::print_json(&figures)
}

/// More than memory holds, at equal memory.
pub(super) fn confined<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let mut contest = Contest::default();
    let bytes = has(&mut contest, &bench.options.file, LIMIT_BYTES / 2 * 5)?;
    contest
        .note(format!("{READERS} readers of 4 KiB at random in {} MiB, in a cgroup of 256 MiB", bytes >> 20));
    for (name, side) in [
        ("std, threads", Side::Std),
        ("headwater, threads", Side::Headwater),
        ("headwater, tasks", Side::HeadwaterTasks),
    ] {
        contest.optional(name, move || {
            tools::make_cold(&bench.options.file)?;
            let cgroup =
                MemoryCgroup::new(LIMIT_BYTES, |path| Guard::over(&path)).map_err(io::Error::other)?;
            let mut command = command(bench, Work::Confined, side, bytes)?;
            command
                .args(["--seconds", &bench.options.seconds.to_string()])
                .arg("--cgroup")
                .arg(cgroup.path());
            Ok(child::result(&mut command, None)?)
        });
    }
    Ok(contest)
}

/// A working set that fits in memory.
pub(super) fn service<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let mut contest = Contest::default();
    contest.needs_page_cache();
    let bytes = has(&mut contest, &bench.options.file, SET_BYTES)?;
    contest.note(format!("{TASKS} tasks of tokio, {} MiB in any order", bytes >> 20));
    for (words, piece_bytes) in [("4 KiB", 4 << 10), ("64 KiB", 64 << 10)] {
        for (name, side) in [("spawn_blocking", Side::Std), ("headwater", Side::Headwater)] {
            contest.several(format!("{name}, {words}"), move || {
                tools::make_cold(&bench.options.file)?;
                let mut command = command(bench, Work::Service, side, bytes)?;
                let figures: Figures =
                    child::result(command.args(["--piece-bytes", &piece_bytes.to_string()]), None)?;
                tools::make_cold(&bench.options.file)?;
                let part = |part: &str| {
                    let of = |figure: &str| figures.get(&format!("{part}_{figure}"));
                    let row = Figures::from([("mib_per_s", of("mib_per_s")), ("cpu_s", of("cpu_s"))]);
                    (format!("{name}, {words}, {part}"), row)
                };
                Ok(Runs::from([part("cold"), part("again")]))
            });
        }
    }
    Ok(contest)
}

/// What a cache costs while it fills.
pub(super) fn fill<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let mut contest = Contest::default();
    let bytes = has(&mut contest, &bench.options.file, FILL_BYTES)?;
    contest.note(format!("{} MiB in order, in pieces of 1 MiB", bytes >> 20));
    for (name, side) in [("std", Side::Std), ("headwater", Side::Headwater)] {
        contest.way(name, move || {
            tools::make_cold(&bench.options.file)?;
            Ok(child::result(&mut command(bench, Work::Fill, side, bytes)?, None)?)
        });
    }
    Ok(contest)
}

/// What there is of this many bytes of the file.
fn has(contest: &mut Contest<'_>, file: &Path, wanted_bytes: u64) -> io::Result<u64> {
    let bytes = file.metadata()?.len();
    if bytes < wanted_bytes {
        contest.note(format!("the file has {} MiB instead of {}", bytes >> 20, wanted_bytes >> 20));
    }
    Ok(bytes.min(wanted_bytes))
}

fn command(bench: &Bench<'_>, work: Work, side: Side, bytes: u64) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command.args(["default-arm", &tools::name_of(work), &tools::name_of(side)]);
    command.arg(&bench.options.file).args(["--bytes", &bytes.to_string()]);
    Ok(command)
}

/// What is read, in one way or the other.
#[derive(Clone)]
enum Subject {
    Headwater(Engine, headwater::File),
    Std(Arc<File>),
}

impl Subject {
    fn open(options: &ArmOptions) -> io::Result<Subject> {
        if options.side == Side::Std {
            return Ok(Subject::Std(Arc::new(File::open(&options.file)?)));
        }
        let engine = Engine::builder().build()?;
        let mut open = OpenOptions::new();
        // All of the memory is headwater's: nothing is left in the kernel's page cache.
        let file = open.engine(&engine).io(IoMode::Direct).caching(Caching::On).open(&options.file)?;
        Ok(Subject::Headwater(engine, file))
    }

    fn read(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self {
            Subject::Headwater(_, file) => Ok(file.read_exact_at(buffer, offset_bytes)?),
            Subject::Std(file) => file.read_exact_at(buffer, offset_bytes),
        }
    }

    async fn read_async(&self, length_bytes: usize, offset_bytes: u64) -> io::Result<()> {
        match self {
            Subject::Headwater(_, file) => {
                std::hint::black_box(sum_of_words(
                    &file.read_exact_at_async(offset_bytes, length_bytes).await?,
                ));
                Ok(())
            }
            Subject::Std(file) => {
                let file = file.clone();
                let read = move || {
                    let mut buffer = vec![0; length_bytes];
                    file.read_exact_at(&mut buffer, offset_bytes).map(|()| buffer)
                };
                let bytes = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
                std::hint::black_box(sum_of_words(&bytes));
                Ok(())
            }
        }
    }

    /// With headwater's own counts: the share of reads that found their page, and the memory that the cache had.
    fn counted(&self, figures: Figures, misses_before: u64) -> Figures {
        let Subject::Headwater(engine, _) = self else { return figures };
        let (stats, reads) = (engine.stats(), figures.get("requests"));
        let hit_share = 1.0 - (stats.cache.counts.misses - misses_before) as f64 / reads;
        let cached_mib = stats.arena.cached_bytes as f64 / f64::from(1 << 20);
        figures.with("hit_share", hit_share).with("cached_mib", cached_mib)
    }

    fn misses(&self) -> u64 {
        match self {
            Subject::Headwater(engine, _) => engine.stats().cache.counts.misses,
            Subject::Std(_) => 0,
        }
    }
}

fn confined_threads(options: &ArmOptions) -> io::Result<Figures> {
    let subject = Subject::open(options)?;
    let read = |seed, seconds| {
        let mut buffer = vec![0; PAGE as usize];
        let offsets = Offsets::new(seed, options.bytes);
        random_loop(offsets, seconds, |offset| subject.read(&mut buffer, offset))
    };
    let all = |seconds| -> io::Result<u64> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..READERS).map(|seed| scope.spawn(move || read(seed, seconds))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a reading thread does not panic")).sum()
        })
    };
    all(WARM_SECONDS)?;
    let (misses, meter) = (subject.misses(), Meter::start());
    let bytes = all(options.seconds)?;
    Ok(subject.counted(figures(&meter, bytes), misses))
}

/// On one thread.
fn confined_tasks(options: &ArmOptions) -> io::Result<Figures> {
    let subject = Subject::open(options)?;
    let read = async |seed, seconds: f64| {
        let (mut offsets, meter, mut bytes) = (Offsets::new(seed, options.bytes), Meter::start(), 0);
        while meter.seconds() < seconds {
            subject.read_async(PAGE as usize, offsets.next()).await?;
            bytes += PAGE;
        }
        Ok::<u64, io::Error>(bytes)
    };
    let all = async |seconds| {
        Ok::<u64, io::Error>(try_join_all((0..READERS).map(|seed| read(seed, seconds))).await?.iter().sum())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        all(WARM_SECONDS).await?;
        let (misses, meter) = (subject.misses(), Meter::start());
        let bytes = all(options.seconds).await?;
        Ok(subject.counted(figures(&meter, bytes), misses))
    })
}

fn serve(options: &ArmOptions) -> io::Result<Figures> {
    let subject = Subject::open(options)?;
    let mut pieces: Vec<u32> = (0..(options.bytes / options.piece_bytes as u64) as u32).collect();
    shuffle(&mut pieces, &mut Rng::new(1));
    let pieces: Arc<[u32]> = pieces.into();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let pass = || {
        let next = Arc::new(AtomicUsize::new(0));
        let task = |_| {
            let (subject, pieces, next, piece_bytes) =
                (subject.clone(), pieces.clone(), next.clone(), options.piece_bytes);
            runtime.spawn(async move {
                while let Some(&piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    subject.read_async(piece_bytes, u64::from(piece) * piece_bytes as u64).await?;
                }
                Ok::<(), io::Error>(())
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.map_err(io::Error::other)??;
            }
            Ok::<(), io::Error>(())
        })
    };
    let timed = |passes: u64, part: &str| {
        let meter = Meter::start();
        (0..passes).try_for_each(|_| pass())?;
        let figures = figures(&meter, options.bytes * passes);
        let named = |figure: &str| (format!("{part}_{figure}"), figures.get(figure));
        Ok::<_, io::Error>([named("mib_per_s"), named("cpu_s")])
    };
    let cold = timed(1, "cold")?;
    pass()?;
    let again = timed(PASSES_AGAIN, "again")?;
    Ok(cold.into_iter().chain(again).fold(Figures::default(), |all, (name, value)| all.with(&name, value)))
}

fn fill_once(options: &ArmOptions) -> io::Result<Figures> {
    let (subject, mut buffer) = (Subject::open(options)?, vec![0; 1 << 20]);
    let meter = Meter::start();
    for offset_bytes in (0..options.bytes).step_by(buffer.len()) {
        let length = buffer.len().min((options.bytes - offset_bytes) as usize);
        subject.read(&mut buffer[..length], offset_bytes)?;
    }
    Ok(figures(&meter, options.bytes))
}

fn figures(meter: &Meter, bytes: u64) -> Figures {
    let mib = bytes as f64 / f64::from(1 << 20);
    tools::figures(mib, bytes as f64 / PAGE as f64, meter.seconds(), meter.cpu_seconds())
}

const LIMIT_BYTES: u64 = 256 << 20;
const SET_BYTES: u64 = 500 << 20;
const FILL_BYTES: u64 = 2 << 30;
const READERS: u64 = 20;
const TASKS: u32 = 64;

/// Long enough to fill the cache and to evict most of it once.
const WARM_SECONDS: f64 = 3.0;

const PASSES_AGAIN: u64 = 4;
