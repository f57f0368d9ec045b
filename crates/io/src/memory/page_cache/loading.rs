//! Loading: pages on their way into the cache, until they are published or have failed.
//!
//! ```text
//!   FilePages::begin_load ─► Loading ─┬─ publish ─► Resident (pages that arrived), Free (the rest)
//!                                     └─ fail, drop ─► Free
//! ```
//!
//! Owns: the end of a load, and the zeros behind the last byte of a file.
//! Does not own: the request and its memory.
//! Invariants: I1 frames become readable only once their extents are the arena's again; a frame is free before its memory
//! is.
//! Locks: `control`, and `arena.state` before and after it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use headwater_core::cache::LoadResult;
use headwater_core::frame::Ended;
use headwater_core::units::{FrameId, PAGE_BYTES, PageRange};
use smallvec::SmallVec;

use super::file_pages::Pages;
use crate::memory::arena::Extents;

/// Pages on their way. Dropped, the load has failed; the memory is wherever the request is.
pub struct Loading {
    pub(super) file: Arc<Pages>,
    pub(super) pages: PageRange,
    pub(super) frames: SmallVec<[Range<u32>; 1]>,
}

impl Loading {
    /// Which.
    pub fn pages(&self) -> PageRange {
        self.pages
    }

    /// The first `read_bytes` (or all, if that is more) of the pages are in `extents` now: as many pages as these fill, or
    /// begin, can be read from now on; the others, and those that were invalidated meanwhile, leave the cache.
    ///
    /// # Panics
    /// If the extents are not those that the load was begun with.
    pub fn publish(mut self, mut extents: Extents, read_bytes: usize) {
        let shared = &*self.file.shared;
        let are_same = extents.iter().map(|extent| extent.frames()).eq(self.frames.iter().cloned());
        let are_own = extents.iter().all(|extent| shared.arena.owns(extent));
        assert!(are_same && are_own, "its extents");
        zero_tail(&mut extents, read_bytes);
        for extent in extents {
            shared.arena.adopt(extent);
        }
        let read_pages = read_bytes.div_ceil(PAGE_BYTES);
        let mut numbers = self.frames.iter().flat_map(Range::clone).map(FrameId::new);
        let mut freed: SmallVec<[FrameId; 16]> = SmallVec::new();
        let mut controlled = shared.lock();
        for (place, frame) in numbers.by_ref().take(self.pages.len().get() as usize).enumerate() {
            let result = if place < read_pages { LoadResult::Read } else { LoadResult::Failed };
            let ended = controlled.control.end_load(&shared.cache, frame, result);
            if ended == Ended::Stale || result == LoadResult::Failed {
                freed.push(frame);
            }
        }
        drop(controlled);
        freed.extend(numbers);
        // SAFETY: these were adopted above, and are free or were never more than memory.
        unsafe { shared.arena.give_back(&freed) };
        // What has come can leave again.
        shared.arena.announce();
        self.frames.clear();
        self.pages.end = self.pages.start;
    }

    /// The load failed. In this order: a frame is free before its memory is.
    pub fn fail(self, extents: Extents) {
        drop(self);
        drop(extents);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let shared = &*self.file.shared;
        if self.pages.is_empty() || !shared.arena.is_here() {
            return;
        }
        let frames = self.frames.iter().flat_map(Range::clone).map(FrameId::new);
        let mut controlled = shared.lock();
        for frame in frames.take(self.pages.len().get() as usize) {
            controlled.control.end_load(&shared.cache, frame, LoadResult::Failed);
        }
    }
}

impl fmt::Debug for Loading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loading({:?})", self.pages)
    }
}

/// Zeroes the rest of the page that `read_bytes` end in, so that no reader sees the memory's earlier contents.
fn zero_tail(extents: &mut Extents, read_bytes: usize) {
    let mut skip_bytes = read_bytes;
    for extent in extents {
        if skip_bytes < extent.len() {
            let tail_bytes = skip_bytes.next_multiple_of(PAGE_BYTES) - skip_bytes;
            // Atomically and after the fence: an optimistic reader of the page that was here before may still be reading. If it
            // sees one of these bytes, it also sees that its page has left.
            fence(Ordering::Release);
            for byte in &mut extent[skip_bytes..skip_bytes + tail_bytes] {
                // SAFETY: the byte is borrowed mutably, so it is valid and writable.
                unsafe { AtomicU8::from_ptr(byte) }.store(0, Ordering::Relaxed);
            }
            return;
        }
        skip_bytes -= extent.len();
    }
}
