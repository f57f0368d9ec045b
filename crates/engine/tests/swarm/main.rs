//! Swarm: thousands of short runs of everything at once, each decided by its seed.
//!
//! ```text
//!   seed ─► Setup, steps ─► World ─► Ok: coverage is counted
//!                 ▲           └─► wrong, or a panic ─► shorten ─► the list, the seed, how to replay it
//!                 └────────────────────────┘
//!   a child process runs a hundred seeds; of one that crashes, the seed that it had begun is printed, and how to replay it
//! ```
//!
//! One thread does everything: it polls tasks when the steps say so, on a device that moves when it is asked (`sim`) and a clock that
//! goes when the steps say so. So a seed replays: `HEADWATER_SEED=0x… cargo test -p headwater --test swarm seeds`, with what else the
//! failure names.
//! `HEADWATER_SOAK_SECONDS=600` makes ten minutes of it (`just swarm 10m`), `HEADWATER_SEEDS_FROM=1` always draws the same seeds.
//!
//! Not here, because a kernel or a thread would decide what comes when, and no seed could bring it back: rings, so several of them and the
//! local engines, which are the same engine around a ring of their own (`reading`); leases, which a thread of the engine gives back
//! (`coherence`); waits for growth, which a thread ends when the kernel reports it (`writing`).
//!
//! Owns: which seeds run, in which process, what is printed of one that fails, which branches have to be reached.
//! Does not own: steps, what they do (world), what is right (versions).

#![forbid(unsafe_code)]

mod coverage;
mod draw;
mod exits;
mod moods;
#[path = "../writing/shrink.rs"]
mod shrink;
mod steps;
mod versions;
mod world;

use std::cell::Cell;
use std::fs;
use std::io::ErrorKind;
use std::num::NonZero;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use headwater::{File, SharedView};
use headwater_testkit::{
    FileSystem, Rng, ScratchDir, is_more_than_owner, run_self_with_env, seed_from_env, soak_seconds, watched,
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
        let kind = std::env::var(ON).map_or(FileSystem::Ext4, |name| kind_named(&name));
        return check(seed_from_env("seeds"), &Place::new(kind), &mut coverage);
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
        let shares_extents = Place::new(FileSystem::Xfs).shares_extents;
        let is_possible = |reached: &Reached| {
            (tracks_windows() || !reached.needs_windows())
                && (has_windows_on_demand() || !reached.needs_windows_on_demand())
                && (shares_extents || !reached.needs_shared_extents())
                && (is_more_than_owner() || !reached.needs_capabilities())
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
    let (begun, others): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with(BEGUN));
    panic!(
        "{}\n{}\n{}\n{}",
        output.status,
        others.join("\n"),
        String::from_utf8_lossy(&output.stderr),
        begun.last().unwrap_or(&"no seed was begun"),
    );
}

fn run_child(range: &str) {
    panic::set_hook(Box::new(|information| {
        if !is_expected(information.payload()) {
            eprintln!("{information}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    let (seed, count) = range.split_once(' ').expect("a seed and a count");
    let (mut rng, mut coverage) = (Rng::new(seed.parse().unwrap()), Coverage::default());
    let place = Place::new(KINDS[rng.below(KINDS.len() as u64) as usize]);
    for _ in 0..count.parse().unwrap() {
        let seed = rng.next_u64();
        println!("\n{BEGUN}{}", place.replay(seed));
        check(seed, &place, &mut coverage);
    }
    println!("\n{REPORT}{}", coverage.line());
}

/// Where files are.
struct Place {
    directory: ScratchDir,
    /// `None` where the project is built.
    kind: Option<FileSystem>,
    shares_extents: bool,
}

impl Place {
    /// Not on tmpfs, where nothing has to be waited for; with `TMPDIR=/dev/shm`, and as root, on a file system in memory, which is some times
    /// as fast.
    fn new(kind: FileSystem) -> Place {
        let in_memory = std::env::temp_dir().starts_with("/dev/shm").then(|| ScratchDir::on_loop(kind));
        let (directory, kind) = match in_memory.and_then(Result::ok) {
            Some(directory) => (directory, Some(kind)),
            None => (ScratchDir::on_target().expect("a directory"), None),
        };
        let shares_extents = shares_extents(directory.path()).unwrap_or(false);
        Place { directory, kind, shares_extents }
    }

    /// The command that runs a seed again.
    fn replay(&self, seed: u64) -> String {
        let on = self.kind.map_or_else(String::new, |kind| format!("TMPDIR=/dev/shm {ON}={} ", kind.name()));
        format!("{on}HEADWATER_SEED={seed:#x} cargo test -p headwater --test swarm seeds")
    }
}

fn shares_extents(directory: &Path) -> std::io::Result<bool> {
    let paths = ["one", "other"].map(|name| directory.join(name));
    fs::write(&paths[0], [7; 4096])?;
    let shared = rustix::fs::ioctl_ficlone(fs::File::create(&paths[1])?, fs::File::open(&paths[0])?);
    paths.iter().try_for_each(fs::remove_file)?;
    Ok(shared.is_ok())
}

fn kind_named(name: &str) -> FileSystem {
    KINDS.into_iter().find(|kind| kind.name() == name).unwrap_or_else(|| panic!("{ON} is not {name}"))
}

/// # Panics
/// When the seed fails, with all that is known about it.
fn check(seed: u64, place: &Place, coverage: &mut Coverage) {
    let mut setup = Setup::new(seed);
    setup.shares_extents = place.shares_extents;
    let directory = place.directory.path();
    let steps = setup.steps();
    let Err((error, reached)) = run(&setup, &steps, directory, coverage) else { return };
    let steps = &steps[..(reached + 1).min(steps.len())];
    eprintln!("{error}\nlooking for a shorter list of steps that fails");
    let fails = |fewer: &[Step]| run(&setup, fewer, directory, &mut Coverage::default()).is_err();
    let shortest = shorten(steps, fails);
    let again = run(&setup, &shortest, directory, &mut Coverage::default());
    panic!(
        "{error}\n{setup:x?}\nat step {reached}; these are left that fail{}:\n{}\n{}",
        again.err().map(|(error, _)| format!(" ({error})")).unwrap_or_default(),
        shortest.iter().map(|step| format!("    {step:?}\n")).collect::<String>(),
        place.replay(seed),
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
    watched(&format!("HEADWATER_SEED={:#x}", setup.seed), || {
        if !steps.iter().any(|step| matches!(step, Step::ForgetPeek(..))) {
            return run_here(setup, steps, directory, coverage);
        }
        // What a thread has borrowed and leaked is counted as long as it lives.
        thread::scope(|scope| {
            let running = scope.spawn(|| run_here(setup, steps, directory, coverage));
            running.join().expect("panics are caught")
        })
    })
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
        let (exit, steps) = match steps {
            [steps @ .., Step::Exit(exit)] => (Some(*exit), steps),
            steps => (None, steps),
        };
        perform_all(&mut world, steps, &|number, step| {
            reached.set(number);
            if is_traced {
                eprintln!("step {number}, {step:?}");
            }
        })?;
        reached.set(steps.len());
        if let Some(exit) = exit {
            return world.exit(exit);
        }
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

/// Some of them while pages are borrowed.
fn perform_all(world: &mut World, steps: &[Step], note: &dyn Fn(usize, Step)) -> Result<(), String> {
    let mut number = 0;
    while let Some(&step) = steps.get(number) {
        note(number, step);
        let first = number + 1;
        let done = if let Step::Peek(place, span, count) = step {
            number = (first + count).min(steps.len());
            world.peek(place, span, &steps[first..number], &mut |world, held| {
                perform_all(world, held, &|number, step| note(first + number, step))
            })
        } else {
            number = first;
            world.perform(step)
        };
        done.map_err(|error| format!("step {}, {step:?}: {error}", first - 1))?;
    }
    Ok(())
}

/// A child's seeds: the number that they are drawn from, and how many.
const CHILD: &str = "HEADWATER_SWARM";

/// The number from which all seeds are drawn, so that two runs have the same ones.
const FROM: &str = "HEADWATER_SEEDS_FROM";

/// The kind of file system on which a seed is run again.
const ON: &str = "HEADWATER_SWARM_ON";

/// Most users have the first, and it is the fastest; the others share extents.
const KINDS: [FileSystem; 6] = [
    FileSystem::Ext4,
    FileSystem::Ext4,
    FileSystem::Ext4,
    FileSystem::Ext4,
    FileSystem::Xfs,
    FileSystem::Btrfs,
];

/// What a child prints before each seed.
const BEGUN: &str = "begun: ";

/// What a child prints before its coverage.
const REPORT: &str = "reached: ";

const BATCH: u64 = 100;

/// The end of an engine waits some 12 ms for the kernel to give up what files were watched with.
const WORKERS_PER_PROCESSOR: usize = 4;

/// In an ordinary run of all tests.
const SECONDS: u64 = 5;

/// This many reach every branch that is counted, by far.
const SEEDS_THAT_REACH_ALL: u64 = 4000;
