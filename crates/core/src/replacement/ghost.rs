//! Ghost: which pages left a short while ago.
//!
//! ```text
//!   page ─ mix ─► set (one of many) of eight slots  ┌ 16 bits ─┬─ 16 bits ──────┐
//!             └─► 16 bits that tell it from others  │ the page │ when it left   │ × 8
//!                                                   └──────────┴────────────────┘
//! ```
//!
//! A FIFO queue without the queue: time counts the pages that left, and an entry is in the ghost while no more
//! than the ghost's capacity have left since. What is older is not removed but overwritten, the oldest of a set
//! first, so nothing is linked and an entry takes four bytes. Of 8192 pages that never left, one at most, on average,
//! is taken for one that did.
//!
//! Owns: the table and its clock.
//! Does not own: how many pages the ghost remembers at a time; the caller says so with each question.
//!
//! Invariants:
//!
//! - G1 A set holds a page at most once.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::mem::size_of;

#[derive(Clone, Debug)]
pub(super) struct Ghost {
    sets: Vec<[Entry; WAYS]>,
    /// How many pages it is to remember, of a hundred frames.
    percent: u32,
    /// How many pages have left.
    left: u64,
    /// Binary logarithm of the pages that leave in one tick of the entries' clock.
    tick_shift: u32,
}

impl Ghost {
    /// Remembers nothing until it has frames; with 0 percent, never.
    pub(super) const fn new(percent: u32) -> Self {
        Self { sets: Vec::new(), percent, left: 0, tick_shift: 0 }
    }

    /// An empty one for a cache of `frames` frames.
    pub(super) fn with_frames(&self, frames: u32) -> Result<Self, TryReserveError> {
        let mut ghost = Self::new(self.percent);
        let pages = u64::from(frames) * u64::from(self.percent) / 100;
        ghost.tick_shift = pages.checked_ilog2().unwrap_or(0).saturating_sub(TICKS_SHIFT);
        let slots = (pages * SLOTS_PERCENT / 100).min(u64::from(frames));
        let sets = slots.div_ceil(WAYS as u64) as usize;
        ghost.sets.try_reserve_exact(sets)?;
        ghost.sets.resize(sets, [Entry::EMPTY; WAYS]);
        Ok(ghost)
    }

    /// The page left.
    pub(super) fn remember(&mut self, fingerprint: u64) {
        if self.sets.is_empty() {
            return;
        }
        self.left += 1;
        let now = self.now();
        let (set, page) = self.place(fingerprint);
        let slots = &mut self.sets[set];
        let same = slots.iter().position(|entry| entry.page == page);
        let oldest = || (0..WAYS).max_by_key(|&way| slots[way].age(now)).unwrap_or(0);
        let way = same.unwrap_or_else(oldest);
        slots[way] = Entry { page, when: now };
    }

    /// Whether the page is among the last `pages` that left. It is forgotten then, as it is back.
    pub(super) fn recall(&mut self, fingerprint: u64, pages: u32) -> bool {
        // The table of a large cache is some MiB: while the cache fills for the first time, it is not even read.
        if self.left == 0 {
            return false;
        }
        let (now, age_max) = (self.now(), u64::from(pages) >> self.tick_shift);
        let (set, page) = self.place(fingerprint);
        let found = self.sets[set].iter_mut().find(|entry| entry.page == page);
        found.filter(|entry| u64::from(entry.age(now)) < age_max).is_some_and(|entry| {
            *entry = Entry::EMPTY;
            true
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[Entry; WAYS]>()
    }

    /// # Panics
    /// Unless G1 holds.
    pub(super) fn check(&self) {
        for set in &self.sets {
            let taken = set.iter().enumerate().filter(|(_, entry)| entry.page != Entry::EMPTY.page);
            for (way, entry) in taken {
                assert!(set[..way].iter().all(|other| other.page != entry.page), "G1");
            }
        }
    }

    /// The time by the entries' clock. It wraps: after 8 times the ghost's capacity at the earliest, when every
    /// set has been overwritten about 25 times.
    fn now(&self) -> u16 {
        (self.left >> self.tick_shift) as u16
    }

    /// The page's set, and what stands for it there.
    fn place(&self, fingerprint: u64) -> (usize, u16) {
        let mixed = mix(fingerprint);
        let set = ((mixed >> 32) * self.sets.len() as u64) >> 32;
        (set as usize, (mixed as u16).max(1))
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Never 0 but in an empty entry.
    page: u16,
    when: u16,
}

impl Entry {
    const EMPTY: Self = Self { page: 0, when: 0 };

    /// Ticks since; an empty entry is older than any.
    fn age(self, now: u16) -> u32 {
        if self.page == 0 { u32::MAX } else { u32::from(now.wrapping_sub(self.when)) }
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): pages
/// that are neighbours land in sets that are not.
const fn mix(input: u64) -> u64 {
    let mixed = (input ^ (input >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Eight entries are 32 bytes, half a line of the processor's cache. Where pages fall by chance some sets overflow: of
/// the pages it is to remember, sets of eight have lost 6 % (10 % in the ghost of S3-FIFO), sets of four 12 %.
const WAYS: usize = 8;

/// Slots for each hundred pages to remember: what chance needs, see above. Slots never outnumber frames, for the sake
/// of E4, so a ghost nearly as large as the cache has less.
const SLOTS_PERCENT: u64 = 130;

/// The capacity is 4096 to 8191 ticks: fine enough to be exact below that many pages, coarse enough that the clock
/// of 16 bits runs 8 times through the capacity before it wraps.
const TICKS_SHIFT: u32 = 12;

/// Sets are whole: what the last of them may have too much.
pub(super) const SLACK_BYTES: usize = size_of::<[Entry; WAYS]>();

#[cfg(test)]
mod tests {
    use super::*;

    fn with(frames: u32, percent: u32) -> Ghost {
        Ghost::new(percent).with_frames(frames).unwrap()
    }

    /// Goal: how many of the pages it is to remember it finds, and how many others it takes for them. Method:
    /// ten times its capacity has left, in sizes with ticks of one page and of several.
    #[test]
    fn nearly_all_pages_are_found_and_hardly_any_other() {
        for (frames, percent, found_min) in [(2000, 50, 94), (40_000, 50, 94), (40_000, 90, 88)] {
            let mut ghost = with(frames, percent);
            let pages = u64::from(frames * percent / 100);
            (0..10 * pages).for_each(|page| ghost.remember(page));
            ghost.check();
            let young = pages - pages / 100; // the rest may be a tick too old
            let mut count = |range: core::ops::Range<u64>| {
                range.filter(|&page| ghost.recall(page, pages as u32)).count() as u64
            };
            let never = count(10 * pages..11 * pages);
            let (old, found) = (count(0..8 * pages), count(10 * pages - young..10 * pages));
            assert!(found * 100 >= young * found_min, "{found} of {young}");
            assert!(old <= pages / 100, "{old} of {}", 8 * pages);
            assert!(never <= pages / 500, "{never} of {pages}");
        }
    }

    /// Goal: exact as long as a set does not overflow: the most recent pages up to capacity, each once.
    #[test]
    fn remembers_the_last_pages_only() {
        let mut ghost = with(4000, 50);
        (0..20).for_each(|page| ghost.remember(page));
        assert!((0..15).all(|page| !ghost.recall(page, 5)));
        assert!((15..20).all(|page| ghost.recall(page, 5)));
        assert!((15..20).all(|page| !ghost.recall(page, 5)), "they are back");
        ghost.check();
    }

    /// Goal: when the clock of 16 bits wraps, nothing old comes back.
    #[test]
    fn nothing_returns_when_the_clock_wraps() {
        let mut ghost = with(200, 50);
        ghost.remember(7);
        (100..100 + (1 << 16)).for_each(|page| ghost.remember(page));
        assert!(!ghost.recall(7, 100));
    }

    /// Goal: a ghost of nothing, and one of a tiny cache, work.
    #[test]
    fn small_ghosts() {
        for (frames, percent) in [(10, 0), (0, 50), (1, 50)] {
            let mut ghost = with(frames, percent);
            ghost.remember(1);
            assert!(!ghost.recall(1, 1));
            assert_eq!(ghost.memory_bytes(), 0);
        }
        let mut ghost = with(2, 50);
        ghost.remember(1);
        assert!(ghost.recall(1, 1));
    }
}
