//! Shrinking: pages leave a chunk at a time, so that its memory can go back to the system.
//!
//! ```text
//!   chunks, those with the most free pages first ─► all the rest evictable? ─► evict_chunk ─► wholly free
//! ```
//!
//! Evicting in the policy's order leaves holes everywhere: after random reads, half of all pages leave before the first chunk of
//! 512 is free. So this evicts whole chunks, frequently used pages among them, which are loaded again elsewhere.
//!
//! Owns: which chunks are emptied.
//! Does not own: how much (the engine), giving the memory back (the arena).
//! Locks: `control`, for one chunk at a time; `arena.state` before and after it.

use headwater_core::cache::Evicted;
use headwater_core::frame::CHUNK_FRAMES;
use headwater_core::units::FrameId;
use smallvec::SmallVec;

use super::PageCache;

impl PageCache {
    /// Evicts all pages of as many chunks as `bytes` are, rounded up, and adds to `evicted` which they were. Those that
    /// already have most of their pages free go first; chunks in which something is pinned or on its way stay. Says how
    /// many were emptied.
    pub fn shrink(&self, bytes: usize, evicted: &mut Vec<Evicted>) -> usize {
        if !self.shared.arena.is_here() {
            return 0;
        }
        let wanted = bytes.div_ceil(headwater_core::buddy::CHUNK_BYTES);
        let chunks = self.shared.arena.chunks_by_use().into_iter();
        let partly_used = chunks.filter(|(_, free_pages)| (*free_pages as usize) < CHUNK_FRAMES);
        partly_used
            .filter(|&(chunk, free_pages)| self.evict_chunk(chunk, free_pages, evicted) > 0)
            .take(wanted)
            .count()
    }

    /// Evicts the pages of one chunk, if all of them can be: else its memory would be no use to the system. Says how many.
    fn evict_chunk(&self, chunk: u32, free_pages: u32, evicted: &mut Vec<Evicted>) -> usize {
        let first = chunk * CHUNK_FRAMES as u32;
        let frames = || (first..first + CHUNK_FRAMES as u32).map(FrameId::new);
        let mut freed: SmallVec<[FrameId; 64]> = SmallVec::new();
        let mut controlled = self.shared.lock();
        let (control, cache) = (&mut controlled.control, &self.shared.cache);
        let evictable = frames().filter(|frame| control.is_evictable(cache, *frame)).count();
        if evictable == 0 || evictable + (free_pages as usize) < CHUNK_FRAMES {
            return 0;
        }
        for page in frames().filter_map(|frame| control.evict_frame(cache, frame)) {
            freed.push(page.frame);
            evicted.push(page);
        }
        drop(controlled);
        // SAFETY: the cache has just named each of them free.
        unsafe { self.shared.arena.give_back(&freed) };
        freed.len()
    }
}
