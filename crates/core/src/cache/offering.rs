//! Offering: chunks whose pages are on offer to the operating system's kernel.
//!
//! ```text
//!   begin_offer ─► sentinels ─► the kernel is told ─► end_offer
//!   Lookup::Offered ─► begin_touch ─► touch ─┬─ Intact ─► withdraw ─► unpin ─► pin
//!                                            └─ Taken ─► drop_taken ─► unpin
//! ```
//!
//! A chunk is offered as a whole, because its memory may be one huge page, which the kernel takes, or keeps, as one. Each of its frames
//! holds a page that could be evicted, or is free with memory that the allocator withholds meanwhile. Pages on offer are unknown to the
//! replacement policy: those that are used come back to it.
//!
//! Owns: which frames of a chunk are offered, and that all of them can be.
//! Does not own: touching, telling the kernel, the choice of chunks.
//! Invariants: C2 as of the cache.
//! Locks: methods of [`Control`] under the caller's lock; [`Cache::begin_touch`] needs none.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Cache, Control, Evicted, FrameAccess};
use crate::frame::{CHUNK_FRAMES, ChunkOffer, FrameState, Offer, Usage};
use crate::replacement::Origin;
use crate::units::FrameId;

/// Why a page on offer becomes an ordinary one again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithdrawnFor {
    /// It was used.
    Use,
    /// Its chunk is no longer on offer.
    Chunk,
}

/// Something in a chunk cannot be offered: it is pinned, dirty, loading, or memory of another use. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOffered;

impl Cache {
    /// What is kept of a chunk that was offered before.
    pub fn chunk_offer(&self, chunk: u32) -> Option<&ChunkOffer> {
        self.offers.get(chunk as usize)
    }

    /// Pins a page on offer, for touching it, and gives what is kept of its chunk; [`Cache::unpin`] must follow, at once unless the offer
    /// [is settled](ChunkOffer::is_settled). `None` if it is not on offer any more: try to pin it again.
    pub fn begin_touch(&self, id: FrameId) -> Option<&ChunkOffer> {
        let frame = self.frames.get(id)?;
        let offer = self.offers.get(id.get() as usize / CHUNK_FRAMES)?;
        frame.begin_touch().then_some(offer)
    }

    pub(super) fn offers_bytes(&self) -> usize {
        self.offers.iter().count() * size_of::<ChunkOffer>() + self.offers.table_bytes()
    }
}

impl Control {
    /// All pages of the chunk become Offered, or stay so. The caller withholds its free frames, `free_pages`, from allocation. Adds the
    /// frames to `offered` whose sentinels are to be set before the kernel is told; then [`Control::end_offer`] must follow.
    ///
    /// # Errors
    /// When something in it cannot be offered, or there is no memory to note it.
    pub fn begin_offer(
        &mut self,
        cache: &Cache,
        chunk: u32,
        free_pages: u32,
        offered: &mut Vec<FrameId>,
    ) -> Result<(), NotOffered> {
        let Some(offer) = cache.chunk_offer(chunk) else {
            let made = cache.offers.set(chunk as usize, Box::new(ChunkOffer::new()));
            made.map_err(|_| NotOffered)?;
            return self.begin_offer(cache, chunk, free_pages, offered);
        };
        let before = offered.len();
        offer.gate().close();
        if self.offer_frames(cache, chunk, free_pages, offered).is_err() {
            for frame in offered.drain(before..) {
                cache.frames[frame].withdraw();
            }
            offer.gate().open();
            return Err(NotOffered);
        }
        for frame in &offered[before..] {
            self.replacement.remove(*frame);
        }
        self.offered += (offered.len() - before) as u32;
        Ok(())
    }

    fn offer_frames(
        &self,
        cache: &Cache,
        chunk: u32,
        free_pages: u32,
        offered: &mut Vec<FrameId>,
    ) -> Result<(), NotOffered> {
        let mut pages = free_pages as usize;
        for id in frames_of(chunk) {
            match cache.frames[id].offer() {
                Offer::New => offered.push(id),
                Offer::Again => {}
                Offer::Free => continue,
                Offer::Refused => return Err(NotOffered),
            }
            pages += 1;
        }
        // What is neither free nor holds a page is memory of another use, or on its way back to the allocator.
        if pages == CHUNK_FRAMES { Ok(()) } else { Err(NotOffered) }
    }

    /// The kernel was told.
    ///
    /// # Panics
    /// If no offer of the chunk has begun.
    pub fn end_offer(&mut self, cache: &Cache, chunk: u32) {
        cache.chunk_offer(chunk).expect("it was begun").gate().open();
    }

    /// The caller has touched the page under a pin of [`Cache::begin_touch`], and found it: it is an ordinary page again.
    pub fn withdraw(&mut self, cache: &Cache, id: FrameId, why: WithdrawnFor) {
        let frame = &cache.frames[id];
        if !frame.withdraw() {
            return;
        }
        self.offered -= 1;
        frame.take_references();
        match (why, frame.usage()) {
            (WithdrawnFor::Use, _) => self.replacement.insert_again(id),
            (WithdrawnFor::Chunk, Usage::Used) => {
                self.replacement.insert(id, Origin::Demand, &mut FrameAccess { cache, evicted: None });
            }
            (WithdrawnFor::Chunk, Usage::Unused) => {
                self.replacement.insert(id, Origin::Readahead, &mut FrameAccess { cache, evicted: None });
            }
        }
    }

    /// The caller has touched the page under a pin of [`Cache::begin_touch`], and found it taken: it leaves, and its frame is free with the
    /// last unpin. `None` if it has left before.
    ///
    /// # Panics
    /// If the frame's page is not on offer.
    pub fn drop_taken(&mut self, cache: &Cache, id: FrameId) -> Option<Evicted> {
        let frame = &cache.frames[id];
        if frame.state() != FrameState::Offered {
            return None;
        }
        let (_, usage) = frame.invalidate_clean().expect("a page on offer is clean");
        Some(self.left(cache, id, usage))
    }

    /// Evicts a page on offer, taken or not. `None` if it is not on offer, or a reader is touching it.
    pub fn evict_offered(&mut self, cache: &Cache, id: FrameId) -> Option<Evicted> {
        let frame = cache.frames.get(id)?;
        if frame.state() != FrameState::Offered {
            return None;
        }
        let usage = frame.evict()?;
        Some(self.left(cache, id, usage))
    }

    /// Pages on offer.
    pub fn offered_pages(&self) -> u32 {
        self.offered
    }

    fn left(&mut self, cache: &Cache, id: FrameId, usage: Usage) -> Evicted {
        self.offered -= 1;
        self.take_out(cache, id);
        let frame = &cache.frames[id];
        Evicted { frame: id, file: frame.file(), page: frame.page(), usage }
    }
}

/// The frames of a chunk.
pub fn frames_of(chunk: u32) -> impl Iterator<Item = FrameId> {
    let first = chunk * CHUNK_FRAMES as u32;
    (first..first + CHUNK_FRAMES as u32).map(FrameId::new)
}
