//! Tracking: which pages were written, told once each.
//!
//! Owns: exactness against a model, writers while it is taken, fills.
//! Does not own: what is done with the pages.

#![expect(clippy::single_range_in_vec_init, reason = "one range is what was written")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use headwater_io::{Arena, LiveMemory};
use headwater_testkit::{Pattern, Rng, watched, with_seed};
use smallvec::smallvec;

use crate::filling::extent;
use crate::{HUGE_BYTES, PAGE_BYTES, bytes_of, live_memory};

fn take(memory: &LiveMemory) -> Vec<Range<usize>> {
    let mut written = vec![1..2];
    memory.take_written(&mut written).unwrap();
    assert!(written.windows(2).all(|pair| pair[0].end < pair[1].start), "ascending and merged: {written:?}");
    written
}

/// Numbers of the pages.
fn pages_of(written: &[Range<usize>]) -> BTreeSet<usize> {
    written.iter().flat_map(|range| range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)).collect()
}

/// Moved, copied and absent memory in turn, ten huge pages.
fn mixed() -> Option<LiveMemory> {
    let memory = live_memory(10 * HUGE_BYTES)?;
    let (arena, pattern) = (Arena::new(9 << 20).unwrap(), Pattern::new(2));
    for number in [0, 1, 5, 6] {
        let extents = smallvec![extent(&arena, HUGE_BYTES, &pattern)];
        memory.fill_moved(number * HUGE_BYTES, HUGE_BYTES, extents).unwrap();
    }
    for number in [2, 3] {
        memory.fill_copied(number * HUGE_BYTES, &extent(&arena, HUGE_BYTES, &pattern)).unwrap();
    }
    memory.write(4 * HUGE_BYTES, &[1; 10_000]).unwrap();
    // Read before: the kernel's page of zeros is there.
    assert_eq!(bytes_of(&memory, 7 * HUGE_BYTES, 10_000), [0; 10_000]);
    Some(memory)
}

/// Goal: exactly the pages written since the last time are told, over many rounds of few and many writes of all kinds, in
/// memory moved, copied, never filled and only read.
#[test]
fn tells_what_was_written() {
    with_seed("tracking::tells_what_was_written", |seed| {
        let Some(memory) = mixed() else { return };
        let mut rng = Rng::new(seed);
        memory.track().unwrap();
        assert_eq!(take(&memory), []);
        for round in 0..40 {
            let mut model = BTreeSet::new();
            for _ in 0..[0, 1, 30, 2000][round % 4] {
                let length = [1, 8, 100, 9000][rng.below(4) as usize];
                let at = rng.below((memory.length_bytes() - length) as u64) as usize;
                if rng.chance(1, 3) {
                    bytes_of(&memory, at, length);
                    continue;
                }
                match rng.below(3) {
                    0 => memory.write(at, &vec![round as u8; length]).unwrap(),
                    1 => memory.zero(at..at + length).unwrap(),
                    _ => memory.as_cells()[at..at + length]
                        .iter()
                        .for_each(|cell| cell.store(1, Ordering::Relaxed)),
                }
                model.extend(at / PAGE_BYTES..(at + length).div_ceil(PAGE_BYTES));
            }
            assert_eq!(pages_of(&take(&memory)), model, "round {round}");
            assert_eq!(take(&memory), [], "round {round}, taken already");
        }
    });
}

/// Goal: what is written before tracking begins is not told, what was not taken is forgotten when it begins anew, and the
/// last range ends with the memory.
#[test]
fn begins_and_ends_where_it_should() {
    let Some(memory) = live_memory(10_000) else { return };
    memory.write(0, &[1; 10_000]).unwrap();
    memory.track().unwrap();
    assert_eq!(take(&memory), []);
    memory.write(5000, &[1]).unwrap();
    memory.track().unwrap();
    assert_eq!(take(&memory), []);
    memory.write(9999, &[1]).unwrap();
    assert_eq!(take(&memory), [8192..10_000]);
    memory.write(4095, &[1; 6]).unwrap();
    assert_eq!(take(&memory), [0..8192]);
}

/// Goal: more runs than the kernel tells at once are all told.
#[test]
fn many_runs() {
    let Some(memory) = live_memory(2000 * PAGE_BYTES) else { return };
    memory.track().unwrap();
    for page in (0..2000).step_by(2) {
        memory.write(page * PAGE_BYTES + page, &[1]).unwrap();
    }
    let runs: Vec<_> = (0..2000).step_by(2).map(|page| page * PAGE_BYTES..(page + 1) * PAGE_BYTES).collect();
    assert_eq!(take(&memory), runs);
    assert_eq!(take(&memory), []);
    memory.zero(0..memory.length_bytes()).unwrap();
    assert_eq!(take(&memory), [0..2000 * PAGE_BYTES]);
}

/// Goal: filling absent pages while writes are tracked is no write; filling those that are there is; writes to the filled
/// ones are told.
#[test]
fn fills_are_no_writes() {
    let Some(memory) = live_memory(4 * HUGE_BYTES) else { return };
    let (arena, pattern) = (Arena::new(9 << 20).unwrap(), Pattern::new(2));
    memory.track().unwrap();
    memory.fill_moved(0, HUGE_BYTES, smallvec![extent(&arena, HUGE_BYTES, &pattern)]).unwrap();
    memory.fill_copied(HUGE_BYTES + 100, &extent(&arena, 64 << 10, &pattern)).unwrap();
    assert_eq!(take(&memory), []);
    assert_eq!(pattern.mismatch(0, &bytes_of(&memory, 0, HUGE_BYTES)), None);
    assert_eq!(pattern.mismatch(0, &bytes_of(&memory, HUGE_BYTES + 100, 64 << 10)), None);
    memory.write(HUGE_BYTES - 1, &[1, 2]).unwrap();
    assert_eq!(take(&memory), [HUGE_BYTES - PAGE_BYTES..HUGE_BYTES + PAGE_BYTES]);
    memory.fill_copied(3 * PAGE_BYTES, &[7; PAGE_BYTES]).unwrap();
    assert_eq!(take(&memory), [3 * PAGE_BYTES..4 * PAGE_BYTES]);
}

/// Goal: pages that the kernel writes to on the program's behalf are told too, and it waits for nobody. Method: a pipe is
/// read into absent, filled and protected pages.
#[test]
fn tells_what_the_kernel_wrote() {
    let Some(memory) = live_memory(8 * PAGE_BYTES) else { return };
    memory.fill_copied(0, &[1; 4 * PAGE_BYTES]).unwrap();
    memory.track().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    watched("tells_what_the_kernel_wrote", || {
        for round in 2..4 {
            for page in [1, 6] {
                assert_eq!(rustix::io::write(&writer, &[round; 100]).unwrap(), 100);
                let place = memory.as_cells()[page * PAGE_BYTES + 50].as_ptr();
                // SAFETY: a hundred bytes of the memory, which nobody else accesses meanwhile.
                let into = unsafe { std::slice::from_raw_parts_mut(place, 100) };
                assert_eq!(rustix::io::read(&reader, into).unwrap(), 100);
                assert_eq!(bytes_of(&memory, page * PAGE_BYTES + 50, 100), [round; 100]);
            }
            assert_eq!(pages_of(&take(&memory)), BTreeSet::from([1, 6]));
        }
    });
}

/// Goal: two threads' writes of a round are told together, exactly, while both go on with the next round after a barrier.
#[test]
fn tells_what_two_threads_wrote() {
    const ROUNDS: u64 = 30;
    let Some(memory) = mixed() else { return };
    memory.track().unwrap();
    let (written, taken) = (Barrier::new(3), Barrier::new(3));
    let pages = memory.length_bytes() / PAGE_BYTES;
    // Drawn by writers and by the one who checks alike.
    let draw = |thread: u64, round: u64| {
        let mut rng = Rng::new(thread * 1000 + round);
        (0..300).map(move |_| rng.below(pages as u64) as usize)
    };
    let mut told = Vec::new();
    watched("tells_what_two_threads_wrote", || {
        thread::scope(|scope| {
            for thread in 0..2 {
                let (memory, written, taken) = (&memory, &written, &taken);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        draw(thread, round)
                            .for_each(|page| memory.write(page * PAGE_BYTES + 17, &[round as u8]).unwrap());
                        written.wait();
                        taken.wait();
                    }
                });
            }
            for _ in 0..ROUNDS {
                written.wait();
                told.push(pages_of(&take(&memory)));
                taken.wait();
            }
        });
    });
    // Only now: a thread that panics between barriers would leave the others there.
    for (round, told) in (0..).zip(told) {
        assert_eq!(told, draw(0, round).chain(draw(1, round)).collect(), "round {round}");
    }
}

/// Goal: nothing is lost when pages are taken while they are written. Method: two writers count upwards in words of their
/// own; a keeper copies what it is told to a mirror, as writeback would. After the last time the mirror is the memory.
#[test]
fn nothing_is_lost_under_writers() {
    const PAGES: usize = 700;
    const WRITES: u64 = 60_000;
    let Some(memory) = live_memory(PAGES * PAGE_BYTES) else { return };
    memory.track().unwrap();
    let (mirror, writing) = ([const { AtomicU64::new(0) }; 2 * PAGES], AtomicUsize::new(2));
    watched("nothing_is_lost_under_writers", || {
        thread::scope(|scope| {
            for writer in 0..2 {
                let (memory, writing) = (&memory, &writing);
                scope.spawn(move || {
                    let mut rng = Rng::new(writer as u64);
                    for count in 1..=WRITES {
                        let page = rng.below(PAGES as u64) as usize;
                        memory.write(page * PAGE_BYTES + writer * 2000, &count.to_ne_bytes()).unwrap();
                    }
                    writing.fetch_sub(1, Ordering::Release);
                });
            }
            let mut last = false;
            while !last {
                last = writing.load(Ordering::Acquire) == 0;
                for page in pages_of(&take(&memory)) {
                    for writer in 0..2 {
                        let word = memory.atomic_u64(page * PAGE_BYTES + writer * 2000).unwrap();
                        mirror[2 * page + writer].store(word.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                }
            }
        });
    });
    for (place, mirrored) in mirror.iter().enumerate() {
        let word = memory.atomic_u64(place / 2 * PAGE_BYTES + place % 2 * 2000).unwrap();
        assert_eq!(mirrored.load(Ordering::Relaxed), word.load(Ordering::Relaxed), "page {}", place / 2);
    }
    assert_eq!(take(&memory), []);
}
