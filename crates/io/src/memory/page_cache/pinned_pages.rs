//! Pinned pages: a few consecutive pages of a file, pinned one after the other and then copied together.
//!
//! A pin and an unpin are locked instructions: each waits until the stores before it are in the cache, and no load behind it begins
//! earlier. With a copy between them, each page begins with a miss of its own that nothing overlaps: 4 KiB pieces of memory beyond
//! the processor's cache came at 17 GB/s, and come at 28 when 64 KiB are pinned first.
//!
//! Owns: one pin of each page.
//! Does not own: which pages.
//! Invariants: I1 as for one pinned page.

use headwater_core::frame::CHUNK_FRAMES;
use headwater_core::units::PAGE_BYTES;
use smallvec::SmallVec;

use super::PinnedPage;

/// Pages in file order, pinned until this is dropped.
pub struct PinnedPages<'a>(SmallVec<[PinnedPage<'a>; PAGES_MAX]>);

impl<'a> PinnedPages<'a> {
    /// One page.
    pub fn of(page: PinnedPage<'a>) -> PinnedPages<'a> {
        PinnedPages(SmallVec::from_iter([page]))
    }

    /// Adds the next page.
    pub fn push(&mut self, page: PinnedPage<'a>) {
        self.0.push(page);
    }

    /// Whether further pages had better be copied by themselves: 64 KiB are copied at full speed, and standard libraries go around
    /// the processor's cache with much more.
    pub fn is_full(&self) -> bool {
        self.0.len() >= PAGES_MAX
    }

    /// The bytes of the pages, in pieces that are contiguous in memory.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let are_adjacent = |a: &PinnedPage<'_>, b: &PinnedPage<'_>| {
            // Chunks are mapped each for itself.
            b.frame.get() == a.frame.get() + 1
                && !b.frame.get().is_multiple_of(CHUNK_FRAMES as u32)
                && std::ptr::eq(a.shared, b.shared)
        };
        self.0.chunk_by(are_adjacent).map(|pages| {
            // SAFETY: the frames are adjacent in one chunk, which is mapped as long as the arena, which `shared` keeps, and the
            // first's pointer may access all of it; M1 of `headwater_core::frame`, for each of them.
            unsafe { std::slice::from_raw_parts(pages[0].base.as_ptr(), pages.len() * PAGE_BYTES) }
        })
    }
}

const PAGES_MAX: usize = 16;

/// Small, for miri.
#[cfg(all(test, not(headwater_loom)))]
mod tests {
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
        assert_eq!((bytes, pages.is_full()), (vec![1, 2, 3, 5, 6], false));
        drop(pages);
        drop((file, cache));
        assert_idle(&arena);
    }
}
