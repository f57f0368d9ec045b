//! Writing: changes of pages in memory, and pins of pages for writeback.
//!
//! ```text
//!   overwrite ─┬─ Done: in place                                              (no lock)
//!   modify ────┤
//!              ├─ Pinned ─► the caller makes a copy in an extent ─► install    (loan-break)
//!              └─ Absent, Pending ─► the caller brings the page, or writes all of it ─► install
//!   install ─► Dirty ─► hold ─► PinnedRun ─► request ─► clean ─► Resident
//! ```
//!
//! Owns: stores into frames of the cache, pins of pages under writeback.
//! Does not own: which pages are dirty (the engine knows), requests.
//! Invariants: I1 a pinned page is not written; writes in place are atomic stores, because of optimistic reads.
//! Locks: `control` for `install`; `arena.state` before and after it.

use headwater_core::frame::{FirstUse, Frame, FrameState, LoadId, WriteLatch};
use headwater_core::units::{FrameId, PAGE_BYTES, PageCount, PageIndex, PageRange};
use smallvec::SmallVec;

use super::{FilePages, Found, PinnedRun, Shared};
use crate::memory::arena::{Extent, Extents};
use crate::system::sys;

/// What became of a write in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwritten {
    /// The page has the bytes, and is dirty.
    Done(FirstUse),
    /// A reader or a request has the page pinned, so it must stay as it is.
    Pinned,
    /// This load brings the page.
    Pending(LoadId),
    /// The page seems not to be there.
    Absent,
}

/// What became of a change in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modified {
    /// The page has the new word, and is dirty.
    Done(FirstUse),
    /// Nothing was to be changed, and nothing was.
    Unchanged(FirstUse),
    /// A reader or a request has the page pinned, so it must stay as it is.
    Pinned,
    /// This load brings the page.
    Pending(LoadId),
    /// The page seems not to be there.
    Absent,
}

impl FilePages {
    /// Writes a part of a page that is there, in place. Readers wait meanwhile, so `bytes` must be at hand: reading them must
    /// not wait for a device. `Absent` too in a forked child.
    ///
    /// # Panics
    /// If the bytes reach beyond the page.
    pub fn overwrite(&self, page: PageIndex, start_bytes: u32, bytes: &[u8]) -> Overwritten {
        let end_bytes = end_in_page(start_bytes, bytes.len()).expect("a part of a page is written");
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        loop {
            let Some((found, base)) = self.find(page) else { return Overwritten::Absent };
            match shared.cache.begin_write(table, page, found, start_bytes, end_bytes) {
                WriteLatch::Latched(first_use) => {
                    // SAFETY: the frame is mapped as long as the arena; M2 of `headwater_core::frame`, as it is latched. The stores
                    // are atomic for the sake of optimistic readers.
                    unsafe { sys::store_racing(base, start_bytes as usize..end_bytes as usize, bytes) };
                    shared.cache.end_write(found);
                    return Overwritten::Done(first_use);
                }
                WriteLatch::Pinned => return Overwritten::Pinned,
                WriteLatch::Pending(load) => return Overwritten::Pending(load),
                WriteLatch::Absent => return Overwritten::Absent,
                WriteLatch::Busy => std::thread::yield_now(),
                WriteLatch::Offered => shared.touch(found),
            }
        }
    }

    /// Changes the eight bytes at `start_bytes` of a page that is there, in place: `change` is given the word, in the
    /// processor's order, and gives the new one, or `None` to leave it. No other write to the page comes in between. `change` may
    /// be called twice, the first time without changing anything yet; what it said last holds. It must not wait, nor use the
    /// file. `Absent` too in a forked child.
    ///
    /// # Panics
    /// If `start_bytes` is not a multiple of eight, or beyond the page.
    pub fn modify(
        &self,
        page: PageIndex,
        start_bytes: u32,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Modified {
        let end_bytes = end_in_page(start_bytes, WORD_BYTES as usize).expect("a word of a page is changed");
        assert!(start_bytes.is_multiple_of(WORD_BYTES), "the word is aligned");
        // A word that stays as it is must not make the page dirty, so it is looked at before the page is latched.
        let first_use = match self.pin(page, start_bytes..end_bytes) {
            Found::Page(pinned) => {
                let word = pinned[start_bytes as usize..].first_chunk().expect("the word lies in the page");
                match change(u64::from_ne_bytes(*word)) {
                    Some(_) => pinned.first_use(),
                    None => return Modified::Unchanged(pinned.first_use()),
                }
            }
            Found::Pending(load) => return Modified::Pending(load),
            Found::Absent => return Modified::Absent,
        };
        match self.modify_latched(page, start_bytes, change) {
            // Reported once: the look was the first use.
            Modified::Done(_) => Modified::Done(first_use),
            other => other,
        }
    }

    /// Changes a word that is to be changed. If it has become one that is not, it is written as it is.
    fn modify_latched(
        &self,
        page: PageIndex,
        start_bytes: u32,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Modified {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let range = start_bytes as usize..(start_bytes + WORD_BYTES) as usize;
        loop {
            let Some((found, base)) = self.find(page) else { return Modified::Absent };
            match shared.cache.begin_write(table, page, found, start_bytes, start_bytes + WORD_BYTES) {
                WriteLatch::Latched(first_use) => {
                    let latched = Latched { shared, frame: found };
                    let mut word = [0; WORD_BYTES as usize];
                    // SAFETY: as in `overwrite`; the range is one word of the page.
                    unsafe { sys::load_racing(base, range.clone(), &mut word) };
                    if let Some(next) = change(u64::from_ne_bytes(word)) {
                        // SAFETY: as above.
                        unsafe { sys::store_racing(base, range, &next.to_ne_bytes()) };
                    }
                    drop(latched);
                    return Modified::Done(first_use);
                }
                WriteLatch::Pinned => return Modified::Pinned,
                WriteLatch::Pending(load) => return Modified::Pending(load),
                WriteLatch::Absent => return Modified::Absent,
                WriteLatch::Busy => std::thread::yield_now(),
                WriteLatch::Offered => shared.touch(found),
            }
        }
    }

    /// The pages, as the extents hold them, take the place of what is there of them, and are dirty. Says how many of the
    /// first of them did: fewer than all if tables have no room for the next.
    ///
    /// # Panics
    /// If `extents` do not hold `pages`, are of another arena, or are those of a [`Loading`](super::Loading) under way.
    pub fn install(&self, pages: PageRange, extents: Extents) -> PageCount {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let held_pages: usize = extents.iter().map(|extent| extent.frames().len()).sum();
        assert!(held_pages as u64 >= pages.len().get(), "the extents hold the pages");
        assert!(extents.iter().all(|extent| shared.arena.owns(extent)), "the extents are of this arena");
        // Before any of them is a frame of the cache: from then on only the cache could return their memory.
        let state = |frame| shared.cache.frame(FrameId::new(frame)).map(Frame::state);
        let is_free = |frame| state(frame).is_none_or(|state| state == FrameState::Free);
        assert!(extents.iter().flat_map(Extent::frames).all(is_free), "the extents are those of no load");
        let frames: SmallVec<[u32; 64]> =
            extents.into_iter().flat_map(|extent| shared.arena.adopt(extent)).collect();
        let mut freed: SmallVec<[FrameId; 64]> = SmallVec::new();
        let mut numbers = frames.into_iter().map(FrameId::new);
        let mut controlled = shared.lock();
        let mut installed = 0;
        for (page, frame) in pages.iter().zip(numbers.by_ref()) {
            let prepared = controlled.prepare(&shared.cache, frame.get());
            let result = prepared.map(|()| controlled.control.install(&shared.cache, table, page, frame));
            let Some(Ok(done)) = result else {
                freed.push(frame);
                break;
            };
            freed.extend(done.freed);
            installed += 1;
        }
        drop(controlled);
        freed.extend(numbers);
        // SAFETY: these were adopted above and hold no page, or the cache has just named them free.
        unsafe { shared.arena.give_back(&freed) };
        PageCount::new(installed)
    }

    /// Pins dirty pages, for writing them to their file.
    ///
    /// # Panics
    /// If one of them is not dirty, or is held some thousand times already.
    pub fn hold(&self, pages: PageRange) -> PinnedRun {
        let (shared, table) = (&self.file.shared, &*self.file.table);
        let mut run = PinnedRun::of(self);
        for page in pages.iter() {
            let frame = shared.cache.hold(table, page).expect("what is to be written is dirty");
            // SAFETY: the frame was pinned just now, for the run.
            unsafe { run.push_pinned(frame) };
        }
        run
    }
}

/// The end of `length` bytes from `start_bytes` on, if it is in the page.
#[inline]
fn end_in_page(start_bytes: u32, length: usize) -> Option<u32> {
    let end_bytes = (start_bytes as usize).checked_add(length)?;
    (end_bytes <= PAGE_BYTES).then_some(end_bytes as u32)
}

/// Releases the latch of a frame when dropped, also if the caller's function panics.
struct Latched<'a> {
    shared: &'a Shared,
    frame: FrameId,
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.shared.cache.end_write(self.frame);
    }
}

const WORD_BYTES: u32 = u64::BITS / 8;

/// Small, for miri.
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use headwater_core::cache::DirtyToo;

    use super::super::tests::{assert_idle, bench, load, pin};
    use super::*;

    fn add(file: &FilePages, page: u64, start_bytes: u32, value: u64) -> Modified {
        file.modify(PageIndex::new(page), start_bytes, &mut |word| Some(word + value))
    }

    /// Goal: the word is changed and nothing else; a page that is not to be changed stays clean, so that it can be evicted; what
    /// is pinned, or not there, is told.
    #[test]
    fn words_are_modified_in_place() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..2).unwrap();
        let mut seen = 0;
        let looked = file.modify(PageIndex::new(1), 4088, &mut |word| {
            seen = word;
            None
        });
        assert_eq!((looked, seen), (Modified::Unchanged(FirstUse::No), u64::from_ne_bytes([1; 8])));
        assert!(matches!(add(&file, 0, 8, 7), Modified::Done(_)));
        let pinned = pin(&file, 0).unwrap();
        assert_eq!(
            (&pinned[..8], &pinned[8..16], &pinned[16..]),
            (&[0; 8][..], &7_u64.to_ne_bytes()[..], &[0; 4080][..])
        );
        assert_eq!(add(&file, 0, 8, 7), Modified::Pinned);
        drop(pinned);
        assert_eq!(add(&file, 2, 0, 1), Modified::Absent);
        assert_eq!(cache.evict(10, &mut Vec::new()), 1, "the other page is dirty");
        assert!(pin(&file, 0).is_some() && pin(&file, 1).is_none());
        cache.check();
        drop((cache, file));
        assert_idle(&arena);
    }

    /// Goal: no addition is lost between threads, and a reader sees the sum grow. Method: two threads add, one reads.
    #[test]
    fn additions_sum_up() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..1).unwrap();
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        let add_all = || {
            let mut left = rounds;
            while left > 0 {
                // Pinned by the reader, or by the other adder's look.
                left -= u64::from(matches!(add(&file, 0, 64, 1), Modified::Done(_)));
            }
        };
        let sum = || pin(&file, 0).map(|page| u64::from_ne_bytes(*page[64..].first_chunk().unwrap()));
        std::thread::scope(|scope| {
            scope.spawn(add_all);
            scope.spawn(add_all);
            let mut last = 0;
            while last < 2 * rounds {
                let now = sum().unwrap();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        assert_eq!(sum(), Some(2 * rounds));
        file.invalidate(PageRange::new(PageIndex::new(0), PageIndex::MAX), DirtyToo::Yes, |_| {});
        cache.check();
        drop((cache, file));
        assert_idle(&arena);
    }
}
