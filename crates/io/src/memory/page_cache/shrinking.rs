//! Shrinking: pages leave a chunk at a time, so that its memory can go back to the system.
//!
//! ```text
//!   chunks on offer, the oldest first ─► evict_offered
//!   others, those with the most free pages first ─► some more than wanted, the coldest first ─► all evictable? ─► evict_chunk
//! ```
//!
//! Evicting in the policy's order leaves holes everywhere: after random reads, half of all pages leave before the first chunk of
//! 512 is free. So this evicts whole chunks, those first whose pages are the fewest and the least referenced; frequently used pages
//! among them are loaded again elsewhere.
//!
//! Owns: which chunks are emptied.
//! Does not own: how much (the engine), giving the memory back (the arena).
//! Locks: `control`, for one chunk at a time; `arena.state` before and after it.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use headwater_core::cache::{Evicted, frames_of};
use headwater_core::frame::{CHUNK_FRAMES, FrameState};
use headwater_core::units::FrameId;
use smallvec::SmallVec;

use super::PageCache;

impl PageCache {
    /// Evicts all pages of as many chunks as `bytes` are, rounded up, and adds to `evicted` which they were. Those that cost least
    /// go first; chunks in which something is pinned or on its way stay. Says how many were emptied.
    pub fn shrink(&self, bytes: usize, evicted: &mut Vec<Evicted>) -> usize {
        if !self.shared.arena.is_here() {
            return 0;
        }
        let wanted = bytes.div_ceil(headwater_core::buddy::CHUNK_BYTES);
        let offered = (0..wanted).take_while(|_| self.evict_offered(evicted)).count();
        let others = self.chunks_by_cost(wanted - offered).into_iter();
        let emptied = others.filter(|&(chunk, free_pages)| self.evict_chunk(chunk, free_pages, evicted) > 0);
        offered + emptied.take(wanted - offered).count()
    }

    /// Chunks with pages: of those with the most free pages the coldest first, then the rest. Which of equals are looked at changes from
    /// call to call.
    fn chunks_by_cost(&self, wanted: usize) -> Vec<(u32, u32)> {
        let mut chunks = self.shared.arena.chunks();
        chunks.retain(|(_, free_pages)| (*free_pages as usize) < CHUNK_FRAMES);
        if chunks.is_empty() {
            return chunks;
        }
        let looked_at = (wanted + LOOKED_AT).min(chunks.len());
        self.rotate(&mut chunks, looked_at);
        chunks.sort_by_key(|(_, free_pages)| Reverse(*free_pages));
        chunks[..looked_at].sort_by_cached_key(|(chunk, _)| self.cost(*chunk));
        chunks
    }

    /// Begins with other chunks in each call, each of which looks at `looked_at`.
    pub(super) fn rotate<T>(&self, chunks: &mut [T], looked_at: usize) {
        let hand = self.shared.hand.fetch_add(looked_at, Ordering::Relaxed);
        let middle = hand % chunks.len().max(1);
        chunks.rotate_left(middle);
    }

    /// What evicting a chunk costs: its pages, those that are referenced more than those that are not.
    fn cost(&self, chunk: u32) -> u32 {
        let frames = frames_of(chunk).filter_map(|frame| self.shared.cache.frame(frame));
        let pages = frames.filter(|frame| frame.state() != FrameState::Free);
        pages.map(|frame| 1 + REFERENCE_COST * u32::from(frame.references())).sum()
    }

    /// Evicts the pages of one chunk, if all of them can be: else its memory would be no use to the system. Says how many.
    fn evict_chunk(&self, chunk: u32, free_pages: u32, evicted: &mut Vec<Evicted>) -> usize {
        let frames = || frames_of(chunk);
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

/// Chunks whose frames are looked at beyond those wanted: 32 768 frames, however large the cache is.
const LOOKED_AT: usize = 64;

/// A page that was used again is worth two that were not; the count ends at three.
const REFERENCE_COST: u32 = 2;
