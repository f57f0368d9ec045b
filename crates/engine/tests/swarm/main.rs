//! Swarm: thousands of short runs of everything at once, each decided by its seed.
//!
//! ```text
//!   seed ─► Setup, steps ─► World ─► Ok: coverage is counted
//!                 ▲           └─► wrong, or a panic ─► shorten ─► the list, the seed, how to replay it
//!                 └────────────────────────┘
//!   a child process runs some hundred seeds; one that crashes or hangs is run again, seed by seed
//! ```
//!
//! One thread does everything: it polls tasks when the steps say so, on a device that moves when it is asked (`sim`) and a clock that
//! goes when the steps say so. So a seed replays: `HEADWATER_SEED=0x… cargo test -p headwater --test swarm seeds`.
//! `HEADWATER_SOAK_SECONDS=600` makes ten minutes of it (`just swarm 10m`), `HEADWATER_SEEDS_FROM=1` always draws the same seeds.
//!
//! Owns: which seeds run, in which process, what is printed of one that fails, which branches have to be reached.
//! Does not own: steps, what they do (world), what is right (versions).

#![forbid(unsafe_code)]

mod coverage;
mod exits;
mod moods;
#[path = "../writing/shrink.rs"]
mod shrink;
mod steps;
mod versions;
mod world;

use std::cell::Cell;
use std::io::ErrorKind;
use std::num::NonZero;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use headwater::{File, SharedView};
use headwater_testkit::{
    FileSystem, Rng, ScratchDir, run_self_with_env, seed_from_env, soak_seconds, watched,
};

use crate::coverage::{Coverage, Reached};
use crate::moods::is_expected;
use crate::shrink::shorten;
use crate::steps::{Setup, Step};
use crate::world::World;

/// Goal: whatever tasks, wakers, listeners, faults, leaks, forks and exits come together in, nothing is wrong, nothing hangs, and nothing
/// is left. Method: random steps; children, so that what one leaks or breaks ends with it.
#[test]
fn seeds() {
    if let Ok(range) = std::env::var(CHILD) {
        return run_child(&range);
    }
    if std::env::var_os("HEADWATER_SEED").is_some() {
        let mut coverage = Coverage::default();
        return check(seed_from_env("seeds"), &directory(), &mut coverage);
    }
    let (began, wanted) = (Instant::now(), Duration::from_secs(soak_seconds().unwrap_or(SECONDS)));
    let first = std::env::var(FROM).map_or_else(|_| seed_from_env("seeds"), |from| from.parse().unwrap());
    let (rng, all) = (Mutex::new(Rng::new(first)), Mutex::new((Coverage::default(), 0)));
    let work = || {
        while began.elapsed() < wanted {
            let seed = rng.lock().unwrap().next_u64();
            let coverage = run_batch(seed, BATCH);
            let mut all = all.lock().unwrap();
            all.0.add(&coverage);
            all.1 += BATCH;
            println!("{} seeds in {:.0} s", all.1, began.elapsed().as_secs_f64());
        }
    };
    thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        (0..WORKERS_PER_PROCESSOR * processors).for_each(|_| _ = scope.spawn(work));
    });
    let (coverage, done) = all.into_inner().unwrap();
    println!("{coverage}");
    if done >= SEEDS_THAT_REACH_ALL {
        let is_possible = |reached: &Reached| {
            (tracks_windows() || !reached.needs_windows())
                && (has_windows_on_demand() || !reached.needs_windows_on_demand())
        };
        let missing: Vec<Reached> = coverage.missing().into_iter().filter(is_possible).collect();
        assert_eq!(missing, [], "what the swarm no longer reaches");
    } else {
        println!("fewer than {SEEDS_THAT_REACH_ALL} seeds: it is not checked what they reach");
    }
}

/// Whether this kernel tracks writes to windows.
fn tracks_windows() -> bool {
    is_supported(|file| file.map_contiguous(0..1))
}

/// Whether this kernel hands accesses to absent pages to their process.
fn has_windows_on_demand() -> bool {
    is_supported(|file| file.map_on_demand(0..1, 1 << 20))
}

fn is_supported(map: impl FnOnce(&File) -> headwater::Result<SharedView>) -> bool {
    let scratch = ScratchDir::on_target().unwrap();
    let file = File::create(scratch.path().join("file")).unwrap();
    !map(&file).is_err_and(|error| error.kind() == ErrorKind::Unsupported)
}

/// Some seeds in a child, whose coverage comes back.
fn run_batch(seed: u64, count: u64) -> Coverage {
    let output = run_self_with_env("seeds", CHILD, &format!("{seed} {count}"));
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) =
        text.lines().find_map(|line| line.strip_prefix(REPORT)).filter(|_| output.status.success())
    {
        return Coverage::parse(line);
    }
    panic!("{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

fn run_child(range: &str) {
    panic::set_hook(Box::new(|information| {
        if !is_expected(information.payload()) {
            eprintln!("{information}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    let (seed, count) = range.split_once(' ').expect("a seed and a count");
    let (mut rng, mut coverage) = (Rng::new(seed.parse().unwrap()), Coverage::default());
    let directory = directory();
    for _ in 0..count.parse().unwrap() {
        check(rng.next_u64(), &directory, &mut coverage);
    }
    println!("\n{REPORT}{}", coverage.line());
}

/// Not on tmpfs, where nothing has to be waited for; with `TMPDIR=/dev/shm`, and as root, on a file system in memory, which is some times
/// as fast.
fn directory() -> ScratchDir {
    let in_memory =
        std::env::temp_dir().starts_with("/dev/shm").then(|| ScratchDir::on_loop(FileSystem::Ext4));
    in_memory.and_then(Result::ok).or_else(|| ScratchDir::on_target().ok()).expect("a directory")
}

/// # Panics
/// When the seed fails, with all that is known about it.
fn check(seed: u64, directory: &ScratchDir, coverage: &mut Coverage) {
    let setup = Setup::new(seed);
    let steps = setup.steps();
    let Err((error, reached)) = run(&setup, &steps, directory.path(), coverage) else { return };
    let steps = &steps[..(reached + 1).min(steps.len())];
    eprintln!("{error}\nlooking for a shorter list of steps that fails");
    let fails = |fewer: &[Step]| run(&setup, fewer, directory.path(), &mut Coverage::default()).is_err();
    let shortest = shorten(steps, fails);
    let again = run(&setup, &shortest, directory.path(), &mut Coverage::default());
    panic!(
        "{error}\n{setup:x?}\nat step {reached}; these are left that fail{}:\n{}\nHEADWATER_SEED={seed:#x} cargo test -p headwater --test swarm seeds",
        again.err().map(|(error, _)| format!(" ({error})")).unwrap_or_default(),
        shortest.iter().map(|step| format!("    {step:?}\n")).collect::<String>(),
    );
}

/// An error comes with the number of the step that was reached.
fn run(
    setup: &Setup,
    steps: &[Step],
    directory: &Path,
    coverage: &mut Coverage,
) -> Result<(), (String, usize)> {
    if steps.iter().any(|step| matches!(step, Step::Exit(_))) {
        return exits::run(setup, steps, directory, coverage);
    }
    watched(&format!("HEADWATER_SEED={:#x}", setup.seed), || run_here(setup, steps, directory, coverage))
}

/// As [`run`]; does not return if it comes to an exit.
fn run_here(
    setup: &Setup,
    steps: &[Step],
    directory: &Path,
    coverage: &mut Coverage,
) -> Result<(), (String, usize)> {
    let (reached, is_traced) = (Cell::new(0), std::env::var_os("HEADWATER_SWARM_TRACE").is_some());
    let work = || -> Result<(), String> {
        let mut world = World::new(setup, directory)?;
        for (number, &step) in steps.iter().enumerate() {
            reached.set(number);
            if is_traced {
                eprintln!("step {number}, {step:?}");
            }
            if let Step::Exit(exit) = step {
                return world.exit(exit);
            }
            world.perform(step).map_err(|error| format!("step {number}, {step:?}: {error}"))?;
        }
        reached.set(steps.len());
        let ended = if setup.seed.is_multiple_of(4) { world.leave() } else { world.finish() };
        coverage.add(&ended.map_err(|error| format!("at the end: {error}"))?);
        Ok(())
    };
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("")))
    });
    outcome.map_err(|error| (error, reached.get()))
}

/// A child's seeds: the number that they are drawn from, and how many.
const CHILD: &str = "HEADWATER_SWARM";

/// The number from which all seeds are drawn, so that two runs have the same ones.
const FROM: &str = "HEADWATER_SEEDS_FROM";

/// What a child prints before its coverage.
const REPORT: &str = "reached: ";

const BATCH: u64 = 100;

/// The end of an engine waits some 12 ms for the kernel to give up what files were watched with.
const WORKERS_PER_PROCESSOR: usize = 4;

/// In an ordinary run of all tests.
const SECONDS: u64 = 5;

/// This many reach every branch that is counted, by far.
const SEEDS_THAT_REACH_ALL: u64 = 4000;
