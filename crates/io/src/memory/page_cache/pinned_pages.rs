//! Pinned pages: a few consecutive pages of a file, pinned one after the other and then copied together.
//!
//! A pin and an unpin are locked instructions: each waits until the stores before it are in the cache, and no load behind it begins
//! earlier. With a copy between them, each page begins with a miss of its own that nothing overlaps: 4 KiB pieces of memory beyond
//! the processor's cache came at 17 GB/s, and come at 28 when 64 KiB are pinned first.
//!
//! Owns: one pin of each page.
//! Does not own: which pages.
//! Invariants: I1 as for one pinned page.

use std::fmt;
use std::mem;
use std::ops::Range;

use super::frame_runs::FrameRuns;
use super::{PinnedPage, Shared};

/// Pages in file order, pinned until this is dropped.
pub struct PinnedPages<'a> {
    shared: &'a Shared,
    frames: FrameRuns<[Range<u32>; PinnedPages::PAGES_MAX]>,
}

impl fmt::Debug for PinnedPages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPages").finish_non_exhaustive()
    }
}

impl<'a> PinnedPages<'a> {
    /// Further pages had better be copied by themselves: 64 KiB are copied at full speed, and standard libraries go around the
    /// processor's cache with much more.
    pub const PAGES_MAX: usize = 16;

    /// One page.
    #[inline]
    pub fn of(page: PinnedPage<'a>) -> PinnedPages<'a> {
        let mut pages = PinnedPages { shared: page.shared, frames: FrameRuns::new() };
        pages.push(page);
        pages
    }

    /// Adds the next page.
    ///
    /// # Panics
    /// If it is of another cache.
    #[inline]
    pub fn push(&mut self, page: PinnedPage<'a>) {
        assert!(std::ptr::eq(page.shared, self.shared), "the pages are of one cache");
        self.frames.push(mem::ManuallyDrop::new(page).frame);
    }

    /// The bytes of the pages, in pieces that are contiguous in memory.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the pins are those of the pages, which were not dropped.
        unsafe { self.frames.slices(self.shared) }
    }
}

impl Drop for PinnedPages<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.release(self.shared);
    }
}

/// Small, for miri.
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use headwater_core::units::PAGE_BYTES;

    use super::super::tests::{assert_idle, bench, load, pin};
    use super::*;

    /// Goal: adjacent frames are one slice, others are not, and the bytes are in file order.
    #[test]
    fn adjacent_pages_are_one_slice() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..4).unwrap();
        [6, 5].into_iter().for_each(|page| load(&arena, &file, page..page + 1).unwrap());
        let mut pages = PinnedPages::of(pin(&file, 1).unwrap());
        [2, 3, 5, 6].into_iter().for_each(|page| pages.push(pin(&file, page).unwrap()));
        assert_eq!(pages.slices().next().unwrap().len(), 3 * PAGE_BYTES);
        let bytes: Vec<u8> = pages.slices().flatten().copied().step_by(PAGE_BYTES).collect();
        assert_eq!(bytes, [1, 2, 3, 5, 6]);
        drop(pages);
        drop((file, cache));
        assert_idle(&arena);
    }
}
