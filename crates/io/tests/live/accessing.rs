//! Accessing: many threads at the same bytes.
//!
//! Owns: memory that nothing was put into, words that are written, and filled, while they are read.
//! Does not own: what one thread sees (the crate's own tests).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater_io::{Arena, Urgency};
use headwater_testkit::{Rng, watched};
use smallvec::smallvec;

use crate::{HUGE_BYTES, PAGE_BYTES, bytes_of, live_memory};

/// Goal: memory that was never filled reads as zeros and takes writes, tracked or not, and nothing waits.
#[test]
fn what_was_never_filled_is_zeros() {
    let Some(memory) = live_memory(1 << 30) else { return };
    watched("what_was_never_filled_is_zeros", || {
        for tracked in [false, true] {
            if tracked {
                memory.track().unwrap();
            }
            let mut rng = Rng::new(u64::from(tracked));
            for _ in 0..200 {
                let at = rng.below((memory.length_bytes() - 2 * PAGE_BYTES) as u64) as usize;
                assert_eq!(bytes_of(&memory, at, 64), [0; 64]);
                memory.write(at, &[1; 64]).unwrap();
                assert_eq!(bytes_of(&memory, at, 64), [1; 64]);
                memory.zero(at..at + 64).unwrap();
            }
        }
    });
}

/// Goal: a word is seen whole, whichever way it is written and read, while pages arrive beneath it. Method: each write is of
/// one value in all words; readers look for words made of two.
#[test]
fn words_are_never_torn() {
    const BYTES: usize = 3 * PAGE_BYTES;
    let Some(memory) = live_memory(HUGE_BYTES) else { return };
    let stopping = AtomicBool::new(false);
    thread::scope(|scope| {
        let (memory, stopping) = (&memory, &stopping);
        scope.spawn(move || {
            let mut rng = Rng::new(1);
            for _ in 0..30_000 {
                let value = [rng.next_u64() as u8; BYTES];
                let start = rng.below(BYTES as u64 / 8) as usize * 8;
                let length = rng.below((BYTES - start) as u64 / 8 + 1) as usize * 8;
                memory.write(start, &value[..length]).unwrap();
            }
            stopping.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            let mut rng = Rng::new(2);
            while !stopping.load(Ordering::Relaxed) {
                let start = rng.below(BYTES as u64 / 8) as usize * 8;
                let words = bytes_of(memory, start, BYTES - start);
                assert!(words.as_chunks::<8>().0.iter().all(is_whole));
                let word = memory.atomic_u64(start).unwrap().load(Ordering::Relaxed);
                assert!(is_whole(&word.to_ne_bytes()), "{word:x}");
                // Bytes that begin and end within words, and are read word by word all the same.
                let inside = bytes_of(memory, start + 3, (BYTES - start - 3).min(90));
                assert!(inside[5..].as_chunks::<8>().0.iter().all(is_whole));
            }
        });
    });
}

/// Goal: pages may arrive, moved and copied, while others read, write beside them and take what was written: each word is of
/// the fill or from before, and in the end all of it is there. Method: fills of one value a round; readers look for words
/// made of two.
#[test]
fn fills_among_others() {
    const BYTES: usize = 4 * HUGE_BYTES;
    let Some(memory) = live_memory(BYTES + PAGE_BYTES) else { return };
    let (arena, stopping) = (Arena::new(9 << 20).unwrap(), AtomicBool::new(false));
    watched("fills_among_others", || {
        thread::scope(|scope| {
            let (memory, stopping, _stops) = (&memory, &stopping, Stops(&stopping));
            scope.spawn(move || {
                let mut rng = Rng::new(3);
                while !stopping.load(Ordering::Relaxed) {
                    let start = rng.below((BYTES - 2 * PAGE_BYTES) as u64 / 8) as usize * 8;
                    let words = bytes_of(memory, start, 2 * PAGE_BYTES);
                    assert!(words.as_chunks::<8>().0.iter().all(is_whole));
                    memory.write(BYTES + 100, &words[..500]).unwrap();
                    // Refused until it is tracked.
                    let _ = memory.take_written(&mut Vec::new());
                }
            });
            for value in 1..=6 {
                for (number, length) in
                    [HUGE_BYTES, HUGE_BYTES / 2, HUGE_BYTES, HUGE_BYTES].into_iter().enumerate()
                {
                    let mut extent = arena.allocate(length, Urgency::Demand).unwrap();
                    extent.fill(value);
                    memory.fill_moved(number * HUGE_BYTES, length, smallvec![extent]).unwrap();
                }
                memory.fill_copied(HUGE_BYTES * 3 / 2, &vec![value; HUGE_BYTES / 2]).unwrap();
                assert!(bytes_of(memory, 0, BYTES).iter().all(|&byte| byte == value), "round {value}");
                if value == 3 {
                    memory.track().unwrap();
                }
            }
        });
    });
}

/// Ends the other thread, also after a panic.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn is_whole(word: &[u8; 8]) -> bool {
    word.iter().all(|byte| *byte == word[0])
}
