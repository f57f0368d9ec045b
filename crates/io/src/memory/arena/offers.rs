//! Offers: chunks whose memory the system may take by itself.
//!
//! ```text
//!   in circulation ─ withhold ─► rings forget it ─► MADV_FREE: offered ─┬─ reinstate ─► in circulation, misplaced
//!                                                                      └─ release_withheld, wholly free ─► released
//! ```
//!
//! The kernel counts offered memory as pages of files, which it drops on demand, and goes on doing so after the memory was written to
//! again, until it tries to take it (measured on Linux 6.18). So a chunk that comes back is *misplaced*: what cgroup and system claim to
//! have free is less by that. It ends when the chunk is given back or offered again. Frames of such a chunk that were free the kernel can still take
//! until they are written to.
//!
//! Owns: the call by which the kernel is told, how much is offered and misplaced.
//! Does not own: which chunks are offered, and how a reader finds that a page was taken (the page cache).
//! Invariants: I1 a chunk is offered only while none of its frames is an extent's, or allocated to anything but pages that are on offer
//! themselves, and no ring has it registered.
//! Locks: `arena.state` for bookkeeping, not while the system is called.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use headwater_core::buddy::CHUNK_BYTES;
use headwater_core::units::PAGE_BYTES;

use super::{Arena, State};
use crate::system::chunk_memory::{self, OfferForm};

/// Counts of an arena's offers.
#[derive(Default)]
pub(super) struct Offers {
    offered_chunks: AtomicUsize,
    misplaced_chunks: AtomicUsize,
    taken_bytes: AtomicU64,
}

impl Offers {
    pub(super) fn offered_bytes(&self) -> u64 {
        (self.offered_chunks.load(Ordering::Relaxed) * CHUNK_BYTES) as u64
    }

    pub(super) fn misplaced_bytes(&self) -> u64 {
        (self.misplaced_chunks.load(Ordering::Relaxed) * CHUNK_BYTES) as u64
    }

    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    fn gauge(&self, standing: Standing) -> Option<&AtomicUsize> {
        match standing {
            Standing::Ordinary => None,
            Standing::Offered => Some(&self.offered_chunks),
            Standing::Misplaced => Some(&self.misplaced_chunks),
        }
    }
}

/// What the kernel takes the memory of a chunk for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Memory in use.
    Ordinary,
    /// Memory that it may take.
    Offered,
    /// Memory that it may take, which is not so.
    Misplaced,
}

impl Arena {
    /// From now on no memory of this chunk is allocated. Says how many of its pages are free; `None` if it is withheld already, released,
    /// or still in small pages.
    pub(crate) fn withhold(&self, index: u32) -> Option<u32> {
        let mut state = self.shared.lock();
        if state.is_first_sparse && index == 0 {
            return None;
        }
        state.buddy.withhold(index)
    }

    /// Pages of a withheld chunk that are free.
    pub(crate) fn free_pages_in(&self, index: u32) -> u32 {
        self.shared.lock().buddy.free_pages_in(index)
    }

    /// Memory of the chunk is allocated again.
    pub(crate) fn reinstate(&self, index: u32) {
        let mut state = self.shared.lock();
        state.buddy.reinstate(index);
        if state.chunks[index as usize].standing == Standing::Offered {
            self.set_standing(&mut state, index, Standing::Misplaced);
        }
        drop(state);
        self.announce();
    }

    /// Tells the kernel that it may take the memory of a withheld chunk, until that is written to. Says whether it was told: not while a
    /// ring keeps the memory. Some 2 µs for a huge page.
    ///
    /// # Safety
    /// Each byte of the chunk is free memory, or of a page that readers touch before they use it.
    pub(crate) unsafe fn offer(&self, index: u32, form: OfferForm) -> bool {
        let state = self.shared.lock();
        assert!(state.buddy.is_withheld(index), "only what is withheld is offered");
        let chunk = self.chunk(&state, index);
        drop(state);
        // SAFETY: as the caller promises; the chunk is mapped as long as the arena, and no ring knows it.
        let is_offered = self.is_forgotten(&chunk)
            && unsafe { chunk_memory::offer_chunk(chunk.base, CHUNK_BYTES, form) }.is_ok();
        if is_offered {
            self.set_standing(&mut self.shared.lock(), index, Standing::Offered);
        }
        is_offered
    }

    /// Whether a part of the chunk has no memory: the kernel took it.
    pub(crate) fn has_lost_memory(&self, index: u32) -> bool {
        let chunk = self.chunk(&self.shared.lock(), index);
        chunk_memory::is_missing(chunk.base, CHUNK_BYTES)
    }

    /// Returns what the kernel left of a withheld chunk that is wholly free. Says whether it did; else nothing has changed. Does not count as
    /// released: the kernel took it.
    pub(crate) fn release_withheld(&self, index: u32) -> bool {
        let mut state = self.shared.lock();
        if !state.buddy.retire_withheld(index) {
            return false;
        }
        let chunk = self.chunk(&state, index);
        drop(state);
        let is_released = self.discard(&chunk);
        let mut state = self.shared.lock();
        if is_released {
            self.note_unmapped(&mut state, index);
        } else {
            state.buddy.restore(index);
            let standing = state.chunks[index as usize].standing;
            let standing = if standing == Standing::Offered { Standing::Misplaced } else { standing };
            self.set_standing(&mut state, index, standing);
        }
        drop(state);
        // There is room in the budget, or a chunk in circulation.
        self.announce();
        true
    }

    /// Pages were found taken.
    pub(crate) fn note_taken(&self, pages: usize) {
        self.shared.growth.offers.taken_bytes.fetch_add((pages * PAGE_BYTES) as u64, Ordering::Relaxed);
    }

    pub(super) fn set_standing(&self, state: &mut State, index: u32, standing: Standing) {
        let before = std::mem::replace(&mut state.chunks[index as usize].standing, standing);
        let offers = &self.shared.growth.offers;
        if let Some(gauge) = offers.gauge(before) {
            gauge.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(gauge) = offers.gauge(standing) {
            gauge.fetch_add(1, Ordering::Relaxed);
        }
    }
}
