//! Oracle: random operations on a file, through handles of all kinds, against a vector of bytes.
//!
//! ```text
//!   seed ─► Case ─► operations ─► Actor ─► Ok
//!                        ▲          └─► wrong, or a panic ─► shorten ─► the list, the seed, the last operations
//!                        └──────────────────────────────────────┘
//! ```
//!
//! Some thousands of operations; `HEADWATER_SOAK_SECONDS=600` makes a soak of it (`just soak-write 10m`).
//!
//! Owns: where cases run, how many, what is printed of one that fails.
//! Does not own: operations, actor, model.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater_testkit::{
    FileSystem, LoopMount, Rng, ScratchDir, on_each, scratch_dirs, skip, soak_seconds, tmpfs, with_seed,
};

use crate::actor::Actor;
use crate::model::Outcome;
use crate::operations::{Case, Mixture, Operation};
use crate::rig::{DriverKind, Rig, drivers, watched};
use crate::shrink::shorten;

/// Goal: whatever is done through handles that are cached, every byte is right, here and on disk, on every driver and file
/// system.
#[test]
fn cached_handles_agree_on_every_file_system() {
    with_seed("oracle::cached_handles_agree_on_every_file_system", |seed| {
        on_every_file_system(seed, Mixture::Cached);
    });
}

/// Goal: the same where some handles go through the cache and some do not.
#[test]
fn mixed_handles_agree_on_every_file_system() {
    with_seed("oracle::mixed_handles_agree_on_every_file_system", |seed| {
        on_every_file_system(seed, Mixture::Mixed);
    });
}

/// Goal: the same on ext4 with blocks smaller than a page, where less than a page can be a hole.
#[test]
fn cached_handles_agree_on_blocks_smaller_than_pages() {
    with_seed("oracle::cached_handles_agree_on_blocks_smaller_than_pages", |seed| {
        // Of this size mkfs makes blocks of 1 KiB if `mke2fs.conf` is as it was shipped for long.
        let mount = match LoopMount::new(FileSystem::Ext4, 200 << 20) {
            Ok(mount) => mount,
            Err(reason) => return skip(format!("ext4: {reason}")),
        };
        let mut rng = Rng::new(seed);
        (0..CASES * 3).for_each(|_| check(&Case::new(rng.next_u64(), Mixture::Cached, COUNT), mount.path()));
    });
}

/// Goal: as above, for as long as one likes, and then on all file systems.
#[test]
fn soak_cached() {
    with_seed("oracle::soak_cached", |seed| soak(seed, Mixture::Cached));
}

/// Goal: as above, for as long as one likes.
#[test]
fn soak_mixed() {
    with_seed("oracle::soak_mixed", |seed| soak(seed, Mixture::Mixed));
}

/// Goal: files that share memory and queue do not wait for each other for ever, and have their own bytes each.
#[test]
fn files_share_an_engine() {
    with_seed("oracle::files_share_an_engine", |seed| share(seed, Mixture::Cached));
}

/// Goal: the same where some handles go through the cache and some do not.
#[test]
fn mixed_files_share_an_engine() {
    with_seed("oracle::mixed_files_share_an_engine", |seed| share(seed, Mixture::Mixed));
}

fn share(seed: u64, mixture: Mixture) {
    let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
    let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(0));
    let mut rounds = 0;
    while rounds < 2 || Instant::now() < end {
        rounds += 1;
        for driver in drivers(rng.next_u64()) {
            let rig =
                Rig::sized(driver, [3, 3, 6, 64][rng.below(4) as usize] << 20, 1 + rng.below(24) as u32);
            let cases: Vec<Case> = (0..THREADS).map(|_| Case::new(rng.next_u64(), mixture, COUNT)).collect();
            watched(&format!("{} {cases:x?}", rig.name()), || {
                thread::scope(|scope| {
                    for (number, case) in cases.iter().enumerate() {
                        let (rig, path) = (&rig, directory.path().join(number.to_string()));
                        scope.spawn(move || perform_beside(rig, case, &path));
                    }
                });
            });
            rig.assert_idle();
        }
    }
}

/// What fails here depends on the other threads, so no shorter list is looked for.
fn perform_beside(rig: &Rig, case: &Case, path: &Path) {
    let (operations, reached) = (case.operations(), Cell::new(0));
    let _ = std::fs::remove_file(path);
    let mut actor = Actor::new(rig, path);
    let outcome = perform_each(&mut actor, &operations, &reached).and_then(|()| actor.finish());
    if let Err(error) = outcome {
        let end = (reached.get() + 1).min(operations.len());
        let last = listed(&operations[end.saturating_sub(LOGGED)..end]);
        panic!("{}: {error}\n{case:#x?}\nthe last of {end} operations:\n{last}", rig.name());
    }
}

fn on_every_file_system(seed: u64, mixture: Mixture) {
    let mut rng = Rng::new(seed);
    for (kind, directory, driver) in on_each((0..drivers(0).len()).collect()) {
        eprintln!("{kind}");
        for _ in 0..CASES {
            let case = Case { driver, ..Case::new(rng.next_u64(), mixture, COUNT) };
            check(&case, directory.path());
        }
    }
}

fn soak(seed: u64, mixture: Mixture) {
    let places: Vec<ScratchDir> = match soak_seconds() {
        Some(_) => scratch_dirs().into_iter().map(|(_, directory)| directory).collect(),
        None => [ScratchDir::on_target(), tmpfs()].into_iter().flatten().collect(),
    };
    let (start, done) = (Instant::now(), AtomicU64::new(0));
    let end = start + Duration::from_secs(soak_seconds().unwrap_or(SECONDS));
    let printed = Mutex::new(start);
    let (mut rng, places, done, printed) = (Rng::new(seed), &places, &done, &printed);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                while Instant::now() < end {
                    let case = Case::new(rng.next_u64(), mixture, 2 * COUNT + rng.below(500) as usize);
                    let place = &places[rng.below(places.len() as u64) as usize];
                    let directory = place.path().join(number.to_string());
                    std::fs::create_dir_all(&directory).unwrap();
                    check(&case, &directory);
                    done.fetch_add(case.count as u64, Ordering::Relaxed);
                    progress(start, done, printed, PRINT_INTERVAL);
                }
            });
        }
    });
    println!("seed {seed:#x}");
    progress(start, done, printed, Duration::ZERO);
}

fn progress(start: Instant, done: &AtomicU64, printed: &Mutex<Instant>, interval: Duration) {
    let Ok(mut printed) = printed.lock() else { return };
    if printed.elapsed() >= interval {
        *printed = Instant::now();
        println!("{} operations in {:.0} s", done.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
    }
}

/// # Panics
/// When the case fails, with all that is known about it.
fn check(case: &Case, directory: &Path) {
    let (operations, path) = (case.operations(), directory.join("file"));
    let Err((error, reached)) = run(case, &operations, &path) else { return };
    let operations = &operations[..(reached + 1).min(operations.len())];
    eprintln!("{error}\nlooking for a shorter list of operations that fails");
    // What depends on the order of threads does not fail each time.
    let fails = |fewer: &[Operation]| (0..2).any(|_| run(case, fewer, &path).is_err());
    let shortest = shorten(operations, fails);
    let last = &operations[operations.len().saturating_sub(LOGGED)..];
    panic!(
        "{error}\n{case:#x?}\nin {}\nthe last of {} operations:\n{}\nof these are left that fail:\n{}",
        directory.display(),
        operations.len(),
        listed(last),
        listed(&shortest)
    );
}

/// An error comes with the number of the operation that was reached.
fn run(case: &Case, operations: &[Operation], path: &Path) -> Result<(), (String, usize)> {
    let reached = Cell::new(0);
    let work = || {
        let _ = std::fs::remove_file(path);
        let kinds = drivers(case.seed);
        let mut driver = kinds[case.driver % kinds.len()].clone();
        if let DriverKind::Sim(options) = &mut driver {
            // Whether the device makes holes, and shares extents where the files can.
            options.remaps = case.seed.is_multiple_of(2);
        }
        let rig = Rig::sized(driver, case.memory_bytes, case.queue_depth);
        perform_all(rig, case, operations, path, &reached)
    };
    let result = watched(&format!("{case:x?}"), || catch_unwind(AssertUnwindSafe(work)));
    let outcome = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("")))
    });
    outcome.map_err(|error| (error, reached.get()))
}

fn perform_all(
    rig: Rig,
    case: &Case,
    operations: &[Operation],
    path: &Path,
    reached: &Cell<usize>,
) -> Outcome {
    let (mut actor, name) = (Actor::new(&rig, path), rig.name());
    perform_each(&mut actor, operations, reached).map_err(|error| format!("{name}: {error}"))?;
    if case.seed.is_multiple_of(4) {
        let abandoned = actor.abandon();
        drop(rig);
        return abandoned.check().map_err(|error| format!("{name}: without an engine: {error}"));
    }
    actor.finish().map_err(|error| format!("{name}: at the end: {error}"))?;
    rig.assert_idle();
    Ok(())
}

fn perform_each(actor: &mut Actor<'_>, operations: &[Operation], reached: &Cell<usize>) -> Outcome {
    for (number, &operation) in operations.iter().enumerate() {
        reached.set(number);
        let failed = |error| format!("operation {number}, {operation:?}: {error}");
        actor.perform(operation).map_err(failed)?;
    }
    reached.set(operations.len());
    Ok(())
}

fn listed(operations: &[Operation]) -> String {
    operations.iter().map(|operation| format!("    {operation:?}\n")).collect()
}

/// On each driver and file system.
const CASES: usize = 2;
const COUNT: usize = 150;
const LOGGED: usize = 30;
const SECONDS: u64 = 2;
const THREADS: usize = 4;
const PRINT_INTERVAL: Duration = Duration::from_secs(10);
