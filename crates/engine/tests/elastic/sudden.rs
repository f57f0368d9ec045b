//! Sudden: the process of the engine needs far more memory at once than is unused, and everything at once is read, viewed and written.
//!
//! ```text
//!   cgroup of 256 MiB, a full cache, its cold chunks on offer ─► 100 MiB touched as fast as can be ─► the kernel takes what is on offer
//! ```
//!
//! Owns: that no burst ends in a kill, that what the kernel took is read again, and right.
//! Does not own: how a page that was taken is noticed (`page_cache/offers` of io).

use std::collections::HashMap;
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headwater::{File, MemoryStats};
use headwater_testkit::{Pattern, Rng, run_self_with_env, skip};

use super::{Ended, FILE_BYTES, LIMIT_BYTES, PATTERN, World, run_limited};

/// Goal: others take three times of what is unused at once, and get it. Method: 100 MiB are touched as fast as can be, by the process of a
/// full cache, 8 times, or as often as `HEADWATER_SUDDEN_ROUNDS` says.
#[test]
fn others_take_memory_suddenly() {
    run_limited("sudden::others_take_memory_suddenly", |world| {
        world.read_all();
        for round in 0..rounds() {
            let before = fill(world, round);
            let began = Instant::now();
            let taken = vec![round as u8 + 1; TAKEN_BYTES];
            println!("round {round}: {:?} for {} MiB, of {before:?}", began.elapsed(), TAKEN_BYTES >> 20);
            world.read_at_random(500, round);
            assert!(taken.iter().step_by(4096).all(|&byte| byte == round as u8 + 1));
        }
        println!("{:?}", world.engine.stats().memory);
    });
}

/// Goal: the same where the engine's thread hardly gets a processor: the later it comes, the more is on offer. Method: it runs only when no
/// other thread wants to, and others always do.
#[test]
fn others_take_memory_from_an_engine_that_is_late() {
    if Command::new("chrt").arg("--version").output().is_err() {
        return skip("there is no chrt");
    }
    run_limited("sudden::others_take_memory_from_an_engine_that_is_late", |world| {
        world.read_all();
        fill(world, 100);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(2, NonZero::get) + 1 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            // A failure ends them as well.
            let ended = Ended(&done, std::thread::current());
            starve("headwater-maint");
            for round in 0..rounds() / 2 {
                // Without help the kernel has no more to give than this, and kills for less.
                let before = fill_until(world, round, |memory| {
                    world.unused_bytes() + memory.offered_bytes >= TAKEN_BYTES as u64 + LATE_MARGIN_BYTES
                });
                let began = Instant::now();
                let taken = vec![round as u8 + 1; TAKEN_BYTES];
                println!("round {round}: {:?} for {} MiB, of {before:?}", began.elapsed(), TAKEN_BYTES >> 20);
                assert!(taken.iter().step_by(4096).all(|&byte| byte == round as u8 + 1));
            }
            drop(ended);
        });
        // What the kernel took has been noticed then. While the engine's thread is at it, a call returns at once.
        let began = Instant::now();
        while world.engine.stats().memory.possible_bytes >= LIMIT_BYTES && began.elapsed() < NOTICED_WITHIN {
            world.engine.relieve();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// The thread of this name runs only when no other thread wants to (`SCHED_IDLE`).
fn starve(name: &str) {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() == name {
            let number = task.file_name();
            let changed = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(number).status();
            assert!(changed.is_ok_and(|status| status.success()), "there is a chrt");
        }
    }
}

/// Goal: the same where the engine's thread is one of many that want a processor. Method: three threads touch 102 MiB together; each
/// so much that the allocator gives it back to the system at once.
#[test]
fn many_threads_take_memory_at_once() {
    run_limited("sudden::many_threads_take_memory_at_once", |world| {
        world.read_all();
        for round in 0..4 {
            fill(world, round);
            std::thread::scope(|scope| {
                let takers = [(); 3].map(|()| scope.spawn(move || vec![round as u8 + 1; 34 << 20]));
                takers.into_iter().for_each(|taker| {
                    let taken = taker.join().unwrap();
                    assert!(taken.iter().step_by(4096).all(|&byte| byte == round as u8 + 1));
                });
            });
        }
        println!("{:?}", world.engine.stats().memory);
    });
}

/// Goal: what is on offer the kernel takes without any help of the engine, and what it took is read again, and right. Method: another process
/// of the cgroup stops that of the engine, takes twice of what is unused, gives it back, and lets the engine go on.
#[test]
fn the_kernel_takes_from_an_engine_that_stands_still() {
    if let Ok(engine) = std::env::var(TAKER) {
        let signal =
            |name: &str| Command::new("kill").args([name, engine.as_str()]).status().unwrap().success();
        assert!(signal("-STOP"));
        let taken = vec![1_u8; STOPPED_BYTES];
        assert!(taken.iter().step_by(4096).all(|&byte| byte == 1));
        drop(taken);
        assert!(signal("-CONT"));
        return;
    }
    run_limited("sudden::the_kernel_takes_from_an_engine_that_stands_still", |world| {
        world.read_all();
        for round in 0..3 {
            fill(world, round);
            let before = world.engine.stats().memory;
            let engine = std::process::id().to_string();
            let test = "sudden::the_kernel_takes_from_an_engine_that_stands_still";
            let taker = run_self_with_env(test, TAKER, &engine);
            assert!(taker.status.success(), "{}", String::from_utf8_lossy(&taker.stdout));
            world.read_all();
            let after = world.engine.stats().memory;
            println!("round {round}: {} MiB taken", (after.taken_bytes - before.taken_bytes) >> 20);
            assert!(after.taken_bytes > before.taken_bytes, "{before:?} {after:?}");
        }
    });
}

/// Goal: writes, views and reads over more than the cgroup, beside memory that comes and goes, have the right bytes, in memory and in the
/// file. Method: 64 KiB pieces of the file are rewritten from another pattern; which of them were is remembered.
#[test]
fn written_and_viewed_beyond_the_cgroup() {
    run_limited("sudden::written_and_viewed_beyond_the_cgroup", |world| {
        let (mut rng, mut written) = (Rng::new(8), HashMap::new());
        fill(world, 0);
        for round in 0..4_u8 {
            let taken = vec![round + 1; TAKEN_BYTES / 2];
            for _ in 0..1500 {
                let piece = rng.below(PIECES);
                match rng.below(3) {
                    0 => {
                        let pattern = Pattern::new(100 + u64::from(round));
                        let mut bytes = vec![0; PIECE_BYTES];
                        pattern.fill(piece * PIECE_BYTES as u64, &mut bytes);
                        world.file.write_all_at(&bytes, piece * PIECE_BYTES as u64).unwrap();
                        written.insert(piece, pattern);
                    }
                    1 => {
                        let view = world.file.view(piece * PIECE_BYTES as u64, PIECE_BYTES).unwrap();
                        assert_eq!(mismatch(&written, piece, &view.to_vec()), None);
                    }
                    _ => check(&world.file, &written, piece),
                }
            }
            assert!(taken.iter().step_by(4096).all(|&byte| byte == round + 1));
        }
        world.file.sync_all().unwrap();
        (0..PIECES).for_each(|piece| check(&world.file, &written, piece));
    });
}

fn check(file: &File, written: &HashMap<u64, Pattern>, piece: u64) {
    let mut bytes = vec![0; PIECE_BYTES];
    file.read_exact_at(&mut bytes, piece * PIECE_BYTES as u64).unwrap();
    assert_eq!(mismatch(written, piece, &bytes), None);
}

fn mismatch(written: &HashMap<u64, Pattern>, piece: u64, bytes: &[u8]) -> Option<u64> {
    written.get(&piece).unwrap_or(&PATTERN).mismatch(piece * PIECE_BYTES as u64, bytes)
}

/// Reads until the cache is as large as it may get, and a part of it on offer.
fn fill(world: &World, seed: u64) -> MemoryStats {
    fill_until(world, seed, |memory| memory.offered_bytes >= OFFERED_BYTES)
}

fn fill_until(world: &World, seed: u64, is_enough: impl Fn(&MemoryStats) -> bool) -> MemoryStats {
    let began = Instant::now();
    for more in 0_u64.. {
        world.read_at_random(2000, seed << 32 | more);
        let memory = world.engine.stats().memory;
        if memory.mapped_bytes >= FULL_BYTES && is_enough(&memory) {
            return memory;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "it does not fill: {memory:?}");
    }
    unreachable!("it fills, or time is up")
}

fn rounds() -> u64 {
    std::env::var("HEADWATER_SUDDEN_ROUNDS").map_or(8, |rounds| rounds.parse().expect("a number of rounds"))
}

const TAKER: &str = "HEADWATER_TEST_SUDDEN_TAKER";

/// An eighth of the limit is unused.
const STOPPED_BYTES: usize = 64 << 20;
const TAKEN_BYTES: usize = 100 << 20;
const PIECE_BYTES: usize = 64 << 10;
const PIECES: u64 = FILE_BYTES / PIECE_BYTES as u64;

/// More than three quarters of the limit.
const FULL_BYTES: u64 = 200 << 20;
const OFFERED_BYTES: u64 = 16 << 20;

/// Far longer than a round of the engine's thread takes.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// What the kernel may not get of what is on offer: pages used since, and those that wait in its lists of each processor.
const LATE_MARGIN_BYTES: u64 = 20 << 20;
