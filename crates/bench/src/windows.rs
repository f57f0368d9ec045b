//! Windows: eight bytes at random from a file four times as large as the memory for it, as loads.
//!
//! Question: What does a load from a window on demand cost, beside mmap?
//!
//! ```text
//!   threads ─► rounds × arms, each in a process of its own (windows-arm), mmap in a cgroup ─► medians ─► table ─► ratios against bars
//! ```
//!
//! Owns: the arms, the shapes, the file, equal memory for all.
//! Does not own: rounds and verdicts (contest).

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::ValueEnum;
use headwater::testing::{MapAdvice, MappedFile};
use headwater::{Caching, Engine, IoMode};
use headwater_measure::affinity::Affinity;
use headwater_measure::cgroup::{self, MemoryCgroup};
use headwater_measure::process::Meter;
use headwater_measure::{Figures, Limit, child, crew};
use headwater_testkit::{Pattern, Rng};

use crate::contest::{self, Contest, Promise, shown};
use crate::folder::{Folder, Guard};
use crate::tools::{self, name_of};

/// Options of `windows`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder on the device to measure; the file in it is removed afterwards.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// MiB of memory for the pages; the file has four times as much.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    mib: u64,
    /// Seconds of each run of an arm.
    #[arg(long, default_value_t = 2.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One arm, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct ArmOptions {
    arm: Arm,
    path: PathBuf,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    mib: u64,
    #[arg(long)]
    seconds: f64,
    /// The cgroup to measure in.
    #[arg(long)]
    cgroup: Option<PathBuf>,
}

/// How eight bytes are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arm {
    Mmap,
    /// With `MADV_RANDOM`.
    MmapRandom,
    /// `File::map`: a call for each load, from the cache.
    Map,
    /// `File::map_on_demand`: a call for each load.
    Calls,
    /// The same memory, loaded from as memory is.
    Cells,
}

impl Arm {
    fn is_mmap(self) -> bool {
        matches!(self, Arm::Mmap | Arm::MmapRandom)
    }
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    contest::begin(options.json.as_deref())?;
    let folder = Folder::create(&options.dir)?;
    folder.require_room(options.length_bytes())?;
    let file = folder.path().join("file");
    PATTERN.write_file(&file, options.length_bytes())?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for (id, threads) in SHAPES {
        let outcome = contest(options, &file, threads).run(id, options.rounds, PROMISES)?;
        failed.extend(outcome.failed);
        let findings = outcome.report.findings();
        tools::print(&findings.text)?;
        all.push(findings);
    }
    contest::finish("windows", &all, &failed, options.json.as_deref())
}

fn contest<'a>(options: &'a Options, file: &'a Path, threads: u32) -> Contest<'a> {
    let mut contest = Contest::default();
    for &arm in Arm::value_variants() {
        // Not everywhere: a cgroup takes rights, userfaultfd may be forbidden.
        contest.optional(name_of(arm), move || {
            tools::make_cold(file)?;
            let limit_bytes = (options.mib << 20) + MMAP_OWN_BYTES;
            let cgroup = arm
                .is_mmap()
                .then(|| MemoryCgroup::new(limit_bytes, |path| Guard::over(&path)))
                .transpose()
                .map_err(io::Error::other)?;
            let mut command = Command::new(tools::this_program());
            command.args(["windows-arm", &name_of(arm)]).arg(file);
            command.args(["--threads", &threads.to_string(), "--mib", &options.mib.to_string()]);
            command.args(["--seconds", &options.seconds.to_string()]);
            if let Some(cgroup) = &cgroup {
                command.arg("--cgroup").arg(cgroup.path());
            }
            Ok(child::result::<Figures>(&mut command, None)?)
        });
    }
    contest.note(format!(
        "{threads} threads, {} s, {} MiB of memory, a file of {} MiB; mmap in a cgroup of {} MiB",
        options.seconds,
        options.mib,
        options.length_bytes() >> 20,
        options.mib + (MMAP_OWN_BYTES >> 20)
    ));
    contest
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    if let Some(cgroup) = &options.cgroup {
        cgroup::enter(cgroup)?;
    }
    let (length_bytes, memory_bytes) = (FILE_OF_MEMORY * (options.mib << 20), options.mib << 20);
    let figures = match options.arm {
        Arm::Mmap | Arm::MmapRandom => {
            let advice = if options.arm == Arm::Mmap { MapAdvice::Normal } else { MapAdvice::Random };
            let mapped = MappedFile::map(File::open(&options.path)?.as_fd(), length_bytes, advice)?;
            options.measure(|at| {
                let mut word = [0; 8];
                mapped.copy_at(&mut word, at);
                Ok(u64::from_ne_bytes(word))
            })
        }
        Arm::Map => {
            let engine = Engine::builder().memory(memory_bytes).build()?;
            let file = options.open(&engine)?;
            let view = file.map(..length_bytes)?;
            options.measure(|at| Ok(view.load_u64(at)?))
        }
        Arm::Calls | Arm::Cells => {
            // The engine lends the memory of the window, and keeps an eighth.
            let engine = Engine::builder().memory(memory_bytes * 2).build()?;
            let file = options.open(&engine)?;
            let view = file.map_on_demand(..length_bytes, memory_bytes)?;
            match options.arm {
                Arm::Calls => options.measure(|at| Ok(view.load_u64(at)?)),
                _ => options.measure(|at| {
                    Ok(view.atomic_u64(at).ok_or(io::ErrorKind::Unsupported)?.load(Ordering::Relaxed))
                }),
            }
        }
    }?;
    tools::print_json(&figures)
}

impl Options {
    fn length_bytes(&self) -> u64 {
        FILE_OF_MEMORY * (self.mib << 20)
    }
}

impl ArmOptions {
    fn open(&self, engine: &Engine) -> io::Result<headwater::File> {
        let mut options = headwater::OpenOptions::new();
        Ok(options.engine(engine).caching(Caching::On).io(IoMode::Direct).open(&self.path)?)
    }

    /// Loads at random places with all threads, once the memory is full of pages.
    fn measure(&self, load: impl Fn(u64) -> io::Result<u64> + Sync) -> io::Result<Figures> {
        let words = FILE_OF_MEMORY * (self.mib << 20) / 8;
        let seed = RandomState::new().hash_one(self.threads);
        let loads = |number: u32, time: Duration| {
            let mut rng = Rng::new(seed ^ u64::from(number));
            crew::time_steps(time, || {
                let at = rng.below(words) * 8;
                let word = load(at)?;
                match PATTERN.mismatch(at, &word.to_ne_bytes()) {
                    None => Ok(()),
                    Some(place) => Err(io::Error::other(format!("another byte than was written at {place}"))),
                }
            })
        };
        let all = |time: Duration, first: u32| {
            crew::run(
                self.threads,
                &Affinity::None,
                |number| Ok(first + number),
                |number| loads(number, time),
            )
        };
        let seconds = Duration::from_secs_f64(self.seconds);
        all(WARMING, self.threads)?;
        let meter = Meter::start();
        let done: u64 = all(seconds, 0)?.iter().map(|latencies| latencies.count()).sum();
        let (elapsed, cpu) = (meter.seconds(), meter.cpu_seconds());
        Ok(Figures::from([(RATE, done as f64 / elapsed), ("cpu_us", cpu * 1e6 / done as f64)]))
    }
}

const PATTERN: Pattern = Pattern::new(38);

/// How many times as large as the memory the file is.
const FILE_OF_MEMORY: u64 = 4;

/// What a process of mmap takes beside the pages: its own memory and page tables.
const MMAP_OWN_BYTES: u64 = 4 << 20;

/// Until memory is full, on slow devices too: 30 000 pages.
const WARMING: Duration = Duration::from_secs(2);

const RATE: &str = "reads_per_s";

const SHAPES: [(&str, u32); 4] = [(ONE, 1), (TWO, 2), (EIGHT, 8), (TWENTY, 20)];
const ONE: &str = "windows-1";
const TWO: &str = "windows-2";
const EIGHT: &str = "windows-8";
const TWENTY: &str = "windows-20";

const fn loads(shape: &'static str, ours: &'static str) -> Promise {
    contest::ratio(shape, ours, "mmap-random", RATE, Limit::AtLeast(0.8))
}

const PROMISES: &[Promise] = &[
    loads(ONE, "calls"),
    loads(ONE, "cells"),
    shown(ONE, "map", "mmap-random", RATE),
    shown(ONE, "calls", "mmap", RATE),
    loads(TWO, "calls"),
    loads(TWO, "cells"),
    shown(TWO, "map", "mmap-random", RATE),
    loads(EIGHT, "calls"),
    loads(EIGHT, "cells"),
    shown(EIGHT, "map", "mmap-random", RATE),
    loads(TWENTY, "calls"),
    loads(TWENTY, "cells"),
    shown(TWENTY, "map", "mmap-random", RATE),
];
