//! Evictions: whoever listens hears of every page that leaves, and may do as he likes there.
//!
//! Owns: listeners for the three reasons to leave, in their own calls, across threads.
//! Does not own: which page leaves.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use headwater::{Advice, Caching, EvictionListener, File, OpenOptions};
use headwater_testkit::{Rng, with_seed};

use crate::rig::{Rig, Scratch, rigs, watched};

fn cached(rig: &Rig, scratch: &Scratch) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::ZERO);
    options.open(scratch.path()).unwrap()
}

fn count(file: &File) -> (EvictionListener, Arc<AtomicU64>) {
    let counted = Arc::new(AtomicU64::new(0));
    let counter = counted.clone();
    let listener = file.on_evicted(move |pages| {
        counter.fetch_add(pages.len().get(), Ordering::Relaxed);
    });
    (listener, counted)
}

/// Goal: what listeners hear adds up to what is counted, whatever the reason, in several threads at once.
#[test]
fn every_page_is_told_once() {
    with_seed("evictions::every_page_is_told_once", |seed| {
        let scratch = Scratch::new(seed, 12 << 20);
        for rig in rigs(seed) {
            let file = cached(&rig, &scratch);
            let (_listener, counted) = count(&file);
            watched(rig.name(), || {
                thread::scope(|scope| {
                    for thread in 0..3 {
                        let (file, scratch) = (&file, &scratch);
                        scope.spawn(move || scan_and_jump(file, scratch, seed + thread));
                    }
                });
            });
            let after_room = file.stats().counts.evictions;
            assert!(after_room > 0, "12 MiB in 6");
            assert_eq!(counted.load(Ordering::Relaxed), after_room);
            file.advise(Advice::DontNeed, ..).unwrap();
            let after_advice = file.stats().counts.evictions;
            assert_eq!(counted.load(Ordering::Relaxed), after_advice);
            assert!(after_advice > after_room);
            file.read_exact_at(&mut [0; 40_960], 0).unwrap();
            scratch.file().write_all_at(&[0; 1], (12 << 20) - 1).unwrap();
            file.read_exact_at(&mut [0; 1], 0).unwrap();
            let stats = file.stats();
            assert!(stats.counts.evictions >= after_advice + 10, "invalidation: {stats:?}");
            assert_eq!(counted.load(Ordering::Relaxed), stats.counts.evictions);
            scratch.pattern.write_file(scratch.path(), scratch.length_bytes).unwrap();
        }
    });
}

fn scan_and_jump(file: &File, scratch: &Scratch, seed: u64) {
    let (mut rng, mut buffer) = (Rng::new(seed), vec![0; 100_000]);
    for _ in 0..100 {
        let offset_bytes = rng.below(11 << 20);
        file.read_exact_at(&mut buffer, offset_bytes).unwrap();
        scratch.check(offset_bytes, &buffer);
    }
}

/// Goal: a listener reads the same file, whose pages leave for that again: no deadlock, no call within a call.
#[test]
fn a_listener_may_read_its_file() {
    with_seed("evictions::a_listener_may_read_its_file", |seed| {
        let scratch = Scratch::new(seed, 12 << 20);
        for rig in rigs(seed) {
            let file = cached(&rig, &scratch);
            let (inner, depth) = (file.clone(), AtomicU64::new(0));
            let calls = Arc::new(AtomicU64::new(0));
            let counter = calls.clone();
            let listener = file.on_evicted(move |pages| {
                assert_eq!(depth.fetch_add(1, Ordering::SeqCst), 0, "calls do not nest");
                if counter.fetch_add(1, Ordering::SeqCst) < 50 {
                    // Far from what the reader reads, and from what left.
                    let offset_bytes = (pages.start.start_bytes() + (5 << 20)) % (11 << 20);
                    inner.read_exact_at(&mut [0; 5000], offset_bytes).unwrap();
                }
                depth.fetch_sub(1, Ordering::SeqCst);
            });
            watched(rig.name(), || scan_and_jump(&file, &scratch, seed));
            assert!(calls.load(Ordering::SeqCst) > 0);
            drop((listener, file));
            rig.assert_idle();
        }
    });
}

/// Goal: a guard dropped by its own listener, or by another one in the same call, ends that listener at once.
#[test]
fn a_listener_may_drop_itself() {
    let scratch = Scratch::new(1, 100_000);
    for rig in rigs(1) {
        let file = cached(&rig, &scratch);
        let (guards, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        for _ in 0..2 {
            let (own, counter) = (guards.clone(), calls.clone());
            let guard = file.on_evicted(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
                let gone: Vec<EvictionListener> = std::mem::take(&mut own.lock().unwrap());
                drop(gone);
            });
            guards.lock().unwrap().push(guard);
        }
        for _ in 0..2 {
            file.read_exact_at(&mut [0; 50_000], 0).unwrap();
            file.advise(Advice::DontNeed, ..).unwrap();
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the first call ended both");
    }
}

/// Goal: pages are told in runs, and a listener that panics stops neither the call that it is told in, nor later ones, nor others.
#[test]
fn runs_and_panics() {
    let scratch = Scratch::new(1, 100_000);
    for rig in rigs(1) {
        let file = cached(&rig, &scratch);
        let told = Arc::new(Mutex::new(BTreeSet::new()));
        let listed = told.clone();
        let _listener = file.on_evicted(move |pages| {
            listed.lock().unwrap().insert((pages.start.get(), pages.end.get()));
        });
        file.advise(Advice::Random, ..).unwrap();
        file.read_exact_at(&mut [0; 100_000], 0).unwrap();
        let panicking = file.on_evicted(|_| panic!("as it was told to"));
        file.advise(Advice::DontNeed, ..).unwrap();
        drop(panicking);
        assert_eq!(*told.lock().unwrap(), BTreeSet::from([(0, 25)]));
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
        file.advise(Advice::DontNeed, ..).unwrap();
        assert_eq!(*told.lock().unwrap(), BTreeSet::from([(0, 1), (0, 25)]));
    }
}
