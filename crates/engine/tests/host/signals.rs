//! Signals: those of the program, and the engine's threads.
//!
//! Owns: that the engine's threads block them.
//! Does not own: what a program does with them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use headwater::{Caching, Coherence, Engine, IoMode, LocalEngines, OpenOptions};
use headwater_testkit::{ScratchDir, block_on, watched};

use super::drivers;

/// Goal: the kernel never gives a signal of the program to a thread of headwater's, but for what that thread causes itself; and the
/// threads of the program block what they blocked before. Method: work that starts every kind of thread; the masks in `/proc`.
#[test]
fn the_engines_threads_block_signals() {
    let before = blocked(Path::new("/proc/thread-self"));
    let mut seen = BTreeSet::new();
    let local = LocalEngines::per_processor().unwrap();
    for driver in drivers() {
        watched("the_engines_threads_block_signals", || {
            let directory = ScratchDir::on_target().unwrap();
            let (read, written) = (directory.path().join("read"), directory.path().join("written"));
            fs::write(&read, vec![7; 1 << 20]).unwrap();
            let engine = Engine::builder().memory(16 << 20).driver(driver.clone()).build().unwrap();
            let mut options = OpenOptions::new();
            let reader = options.engine(&engine).io(IoMode::Direct).caching(Caching::On);
            let reader = reader.coherence(Coherence::Leased).open(&read).unwrap();
            let writer = OpenOptions::new().engine(&engine).write(true).create(true).open(&written).unwrap();
            writer.write_all_at(b"X", 0).unwrap();
            block_on(reader.read_at_async(0, 1 << 20)).unwrap();
            let window = reader.map_on_demand(.., 1 << 20);
            // A thread that has not run yet has no name.
            while !looked_at_all(&mut seen) {
                thread::yield_now();
            }
            drop(window);
        });
    }
    drop(local);
    assert!(seen.contains("headwater-io"), "{seen:?}");
    assert_eq!(blocked(Path::new("/proc/thread-self")), before);
}

/// Checks the engine's threads that have a name, and notes these. Whether those are there that every driver has.
fn looked_at_all(seen: &mut BTreeSet<String>) -> bool {
    let mut names = BTreeSet::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        if name.starts_with("headwater-") {
            let mask = settled_mask(&task);
            assert_eq!(mask & WANTED, WANTED, "{name} blocks {mask:x}");
            assert_eq!(mask & OWN, 0, "{name} blocks {mask:x}");
            names.insert(name.trim().to_owned());
        }
    }
    let has_all = ["headwater-maint", "headwater-lease"].iter().all(|name| names.contains(*name));
    seen.extend(names);
    has_all
}

/// What a thread blocks, once it does not block all: the C library has it do so while it starts another, and at its end.
fn settled_mask(task: &Path) -> u64 {
    let mut mask = blocked(task);
    for _ in 0..100 {
        if mask & OWN == 0 {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        mask = blocked(task);
    }
    mask
}

/// The signals that a thread blocks, a bit for each.
fn blocked(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    // One that has ended meanwhile blocks all.
    line.map_or(WANTED, |line| u64::from_str_radix(line.trim(), 16).unwrap())
}

const fn bits(signals: &[u32]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < signals.len() {
        bits |= 1 << (signals[at] - 1);
        at += 1;
    }
    bits
}

/// SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD, SIGURG, SIGIO, and the first of real time.
const WANTED: u64 = bits(&[1, 2, 3, 10, 12, 13, 14, 15, 17, 23, 29, 34]);

/// SIGILL, SIGBUS, SIGFPE, SIGSEGV.
const OWN: u64 = bits(&[4, 7, 8, 11]);
