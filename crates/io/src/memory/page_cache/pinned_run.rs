//! Pinned run: consecutive pages of a file that stay as they are while they are written.
//!
//! Owns: one pin of each frame, from its making to its drop.
//! Does not own: which pages are dirty, the result of the write.
//! Invariants: I1 no thread writes to these frames while the kernel reads them; I4 the request that writes them owns the run.

use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use headwater_core::units::{FrameId, PAGE_BYTES};

use super::frame_runs::FrameRuns;
use super::{Keeper, LentPages, PinnedPage};
use crate::memory::arena::Chunk;

/// Pages of one cache, in file order, pinned until this is dropped.
pub struct PinnedRun {
    keeper: Keeper,
    /// Two pieces take no more room than none: a request is not larger for them.
    frames: FrameRuns<[Range<u32>; 2]>,
}

impl PinnedRun {
    /// No pages yet, of this keeper's cache.
    pub fn of(keeper: impl Into<Keeper>) -> PinnedRun {
        PinnedRun { keeper: keeper.into(), frames: FrameRuns::new() }
    }

    /// Takes over the pin of the next page.
    ///
    /// # Panics
    /// If it is of another cache.
    #[inline]
    pub fn push(&mut self, page: PinnedPage<'_>) {
        assert!(std::ptr::eq(page.shared, self.keeper.shared()), "the pages are of one cache");
        let page = mem::ManuallyDrop::new(page);
        // SAFETY: the pin is the page's, which is not dropped.
        unsafe { self.push_pinned(page.frame) };
    }

    /// Pins the pages once more. `None` if one of them has `pins_max` pins, when less of the quota is left, and in a forked child.
    pub fn try_clone(&self, pins_max: u32) -> Option<PinnedRun> {
        let shared = self.keeper.shared();
        if !shared.arena.is_here() {
            return None;
        }
        let mut run = PinnedRun { keeper: self.keeper.another(self.frames.len())?, frames: FrameRuns::new() };
        for frame in self.frames.pieces().iter().flat_map(Range::clone).map(FrameId::new) {
            if !shared.cache.pin_again(frame, pins_max) {
                return None;
            }
            // SAFETY: the pin is new.
            unsafe { run.push_pinned(frame) };
        }
        Some(run)
    }

    /// Splits off the quota of pages that were not pinned, if there is some beside that of the pages that were.
    pub fn split_unused(&mut self) -> Option<LentPages> {
        let pages = self.len_bytes() / PAGE_BYTES;
        self.keeper.split_unused(pages)
    }

    /// Takes over one pin of a frame.
    ///
    /// # Safety
    /// The caller has pinned the frame, which is of this cache, for this run, which unpins it.
    pub(super) unsafe fn push_pinned(&mut self, frame: FrameId) {
        self.keeper.note_pinned(1);
        self.frames.push(frame);
    }

    /// The bytes of the pages, in pieces that are contiguous in memory.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the pins are this run's.
        unsafe { self.frames.slices(self.keeper.shared()) }
    }

    /// Counts bytes that were copied because the pages do not lie in one piece of memory.
    pub fn note_copied(&self, bytes: usize) {
        self.keeper.shared().copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The file has the bytes of all pages. Those that were written to meanwhile have other frames by now, and stay dirty.
    pub fn clean(&self) {
        let frames = self.frames.pieces().iter().flat_map(Range::clone).map(FrameId::new);
        frames.for_each(|frame| self.keeper.shared().cache.clean(frame));
    }

    /// Bytes in all pages.
    pub fn len_bytes(&self) -> usize {
        self.frames.len() * PAGE_BYTES
    }

    /// Pieces of memory that the pages lie in.
    pub(crate) fn pieces(&self) -> usize {
        self.frames.pieces().len()
    }

    /// The pieces of memory, in file order: where each begins, and its bytes.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        self.frames.segments(self.keeper.shared())
    }

    /// Where the pages lie, if in one piece.
    pub(crate) fn only_piece(&self) -> Option<(NonNull<u8>, Chunk)> {
        let [frames] = self.frames.pieces() else { return None };
        let chunk = self.keeper.shared().arena.chunk_of(FrameId::new(frames.start));
        let (base, _) = self.segments().next()?;
        Some((base, chunk.expect("pinned frames are mapped")))
    }
}

impl Drop for PinnedRun {
    fn drop(&mut self) {
        let shared = self.keeper.shared();
        if !shared.arena.is_here() {
            return;
        }
        self.keeper.note_unpinned(self.frames.len());
        self.frames.release(shared);
        // Somebody may have found every page pinned.
        shared.arena.announce();
    }
}

impl fmt::Debug for PinnedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedRun({:?})", self.frames.pieces())
    }
}

/// Small, for miri; `tests/drivers/writing.rs` writes runs.
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::path::Path;

    use super::super::FilePages;
    use super::super::tests::{assert_idle, bench, load, pin};
    use super::*;
    use crate::file::{Access, DirectIo, OpenFile, Route};
    use crate::memory::arena::Urgency;
    use crate::request::attempt::{Attempt, Verdict};
    use crate::request::slots::{Completed, Slots};
    use crate::request::{Request, WriteBack};

    fn run(file: &FilePages, pages: Range<u64>) -> PinnedRun {
        let mut run = PinnedRun::of(file);
        pages.for_each(|page| run.push(pin(file, page).unwrap()));
        run
    }

    /// Goal: I1, I4: what is being written stays as it is although its owner gave it up, its pages were evicted or
    /// invalidated, and the cache is gone; then its memory comes back. Method: under miri, play the driver.
    #[test]
    fn a_run_outlives_all_but_its_request() {
        let (arena, cache, file) = bench();
        // Apart in memory, but for the last two.
        [0, 2, 1, 3].into_iter().for_each(|page| load(&arena, &file, page..page + 1).unwrap());
        load(&arena, &file, 4..6).unwrap();
        let pages = run(&file, 0..6);
        assert_eq!((pages.len_bytes(), cache.stats().pinned_pages), (6 * PAGE_BYTES, 6));
        assert!(pages.pieces() > 1 && pages.only_piece().is_none());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let (length_bytes, open) = (pages.len_bytes(), OpenFile::open(&path, DirectIo::Off, Access::Read));
        let write = WriteBack {
            file: open.unwrap().into(),
            route: Route::Buffered,
            offset_bytes: 0,
            length_bytes,
            skip_bytes: 0,
            pages,
        };
        let slots = Slots::new(4);
        let id = slots.begin(Request::WriteBack(write), Urgency::Demand).unwrap().id;
        // SAFETY: the test is the only owner and the only driver.
        let Attempt::Transfer(attempt) = (unsafe { slots.prepare(id) }) else { panic!("it moves bytes") };
        // SAFETY: as above.
        assert!(unsafe { slots.abandon(id) }, "it is under way");
        assert_eq!(cache.evict(10, &mut Vec::new()), 0);
        drop((file, cache));
        // SAFETY: the attempt is under way.
        let segments = unsafe { attempt.segments.as_slice() };
        let bytes = segments.iter().flat_map(|segment| {
            // SAFETY: as above, and nobody writes to what is being written.
            unsafe { std::slice::from_raw_parts(segment.base(), segment.length_bytes()) }
        });
        let every_page: Vec<u8> = bytes.copied().step_by(PAGE_BYTES).collect();
        assert_eq!(every_page, [0, 1, 2, 3, 4, 5]);
        let mut completed = Completed::new();
        // SAFETY: as above.
        let verdict = unsafe { slots.attempt(id, Ok(length_bytes), &mut completed) };
        assert_eq!((verdict, completed.orphans.len()), (Verdict::Finished, 1));
        slots.release_places(&mut completed);
        assert_eq!(arena.stats().cached_bytes, length_bytes);
        slots.wake_owners(&mut completed);
        slots.check_idle();
        assert_idle(&arena);
    }

    /// Goal: a clone of pages, or of one, has pins of its own: what the original had stays when that has gone, and leaves with the clone;
    /// a clone that would have too many pins has none. Method: all that can be evicted is, in between.
    #[test]
    fn a_clone_has_pins_of_its_own() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..5).unwrap();
        let (page, pages) = (pin(&file, 0).unwrap().into_owned(&file), run(&file, 1..4));
        let (page_again, pages_again) = (page.try_clone(2).unwrap(), pages.try_clone(2).unwrap());
        assert!(page.try_clone(2).is_none() && pages.try_clone(2).is_none(), "each page has two pins");
        drop((page, pages));
        assert_eq!(cache.evict(10, &mut Vec::new()), 1, "the one page that nothing holds");
        load(&arena, &file, 5..7).unwrap();
        let every_page: Vec<u8> = pages_again.slices().flatten().copied().step_by(PAGE_BYTES).collect();
        assert_eq!((page_again[9], every_page), (0, vec![1, 2, 3]));
        drop((page_again, pages_again));
        assert_eq!(cache.evict(10, &mut Vec::new()), 6);
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: a run in one piece is recognised, with its chunk.
    #[test]
    fn one_piece() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..4).unwrap();
        let pages = run(&file, 1..4);
        let (base, chunk) = pages.only_piece().unwrap();
        assert_eq!(chunk.segment().base().addr(), base.as_ptr().addr() / Chunk::BYTES * Chunk::BYTES);
        // SAFETY: the page is pinned.
        assert_eq!(unsafe { base.read() }, 1);
        drop((pages, file, cache));
        assert_idle(&arena);
    }
}
