//! Offers: cold chunks whose memory the system may take by itself, and the pages of them that are wanted after all.
//!
//! ```text
//!   offer ─► the coldest chunks ─► withheld, pages Offered, sentinels, MADV_FREE ─► on offer
//!   a reader of such a page ─► touch ─┬─ Intact ─► an ordinary page again
//!                                     └─ Taken ─► it leaves: a miss
//!   tend ─► each chunk on offer ─┬─ lost memory? pages that were taken leave; the chunk too, when little is left
//!                                ├─ a few pages were used? offered again; of one in pages, when they have become some more
//!                                └─ many were? withdrawn: all of its pages are touched
//! ```
//!
//! What the engine gives back in time may come too late for a program that takes memory at once; what is on offer the kernel takes at the
//! moment of need, from whichever thread needs it. A page that was taken reads as zeros and counts as absent; `headwater_core::frame`'s
//! offering tells how that is noticed.
//!
//! Only cold chunks: one that is used while on offer costs a lock and a touch for each of its pages, and the kernel goes on counting it
//! as memory that it could take.
//!
//! Owns: which chunks are on offer, and until when.
//! Does not own: how much is (the engine), the frames' states (core), the call (the arena).
//! Invariants: I1 while a page is on offer it is loaded atomically alone, and its frame is not allocated to anything.
//! Locks: `offers` → `control`, one chunk at a time; `arena.state` under `offers` alone. What waits for memory is woken after `offers`: a waker may
//! ask for memory at once.

use std::collections::{HashMap, VecDeque};
use std::sync::MutexGuard;

use headwater_core::cache::{Evicted, WithdrawnFor, frames_of};
use headwater_core::frame::{CHUNK_FRAMES, FrameState, Touch};
use headwater_core::units::FrameId;
use smallvec::SmallVec;

use super::file_pages::give_way;
use super::{PageCache, Shared};
use crate::sync::event::WakeScope;
use crate::sync::lock;
use crate::system::chunk_memory::{self, OfferForm};

/// Chunks on offer.
#[derive(Default)]
pub(super) struct Offers {
    /// The oldest first.
    chunks: VecDeque<OnOffer>,
    /// Chunks that were used while on offer, or refused, and the round until which they are not offered again.
    hot: HashMap<u32, u64>,
    round: u64,
}

/// A chunk on offer.
#[derive(Clone, Copy)]
struct OnOffer {
    chunk: u32,
    /// As the kernel was told last.
    form: OfferForm,
    /// Pages of it that were used by the last round, since the kernel was told.
    uses: u32,
}

impl PageCache {
    /// Offers the memory of cold chunks to the system, until `bytes` are on offer in all, but at most a few chunks at a time. Says how
    /// many bytes are. Chunks in which something is pinned, dirty or on its way stay.
    pub fn offer(&self, bytes: usize, form: OfferForm) -> usize {
        if !self.shared.arena.is_here() {
            return 0;
        }
        let _scope = WakeScope::enter();
        let mut offers = self.shared.offers();
        let wanted = (bytes / headwater_core::buddy::CHUNK_BYTES).saturating_sub(offers.chunks.len());
        if wanted > 0 {
            for chunk in self.coldest_chunks(&offers).into_iter().take(wanted.min(OFFERED_AT_ONCE)) {
                if self.shared.offer_anew(chunk, form) {
                    offers.chunks.push_back(OnOffer { chunk, form, uses: 0 });
                } else {
                    let until = offers.round + REFUSED_ROUNDS;
                    offers.hot.insert(chunk, until);
                }
            }
        }
        offers.chunks.len() * headwater_core::buddy::CHUNK_BYTES
    }

    /// Looks after what is on offer: pages that were taken leave, and are added to `evicted` with those that readers found taken; chunks
    /// of which a few pages were used are offered again, as long as more than `bytes` are not on offer (one that is offered in pages when more of
    /// them have been used, in however many rounds); those that are used more come back.
    pub fn tend_offers(&self, bytes: usize, form: OfferForm, evicted: &mut Vec<Evicted>) {
        if !self.shared.arena.is_here() {
            return;
        }
        let _scope = WakeScope::enter();
        let mut offers = self.shared.offers();
        offers.round += 1;
        let round = offers.round;
        offers.hot.retain(|_, until| *until > round);
        let chunks_max = bytes / headwater_core::buddy::CHUNK_BYTES;
        for on_offer in std::mem::take(&mut offers.chunks) {
            let again = (offers.chunks.len() < chunks_max).then_some(form);
            match self.shared.tend(on_offer, again, evicted) {
                Tended::Stays(on_offer) => offers.chunks.push_back(on_offer),
                Tended::Gone => {}
                Tended::Hot => {
                    offers.hot.insert(on_offer.chunk, round + HOT_ROUNDS);
                }
            }
        }
        drop(offers);
        evicted.append(&mut self.shared.lock().taken);
    }

    /// Evicts all pages of the chunk that has been on offer for longest, whose memory the arena has again. Says whether there was one.
    pub(super) fn evict_offered(&self, evicted: &mut Vec<Evicted>) -> bool {
        let _scope = WakeScope::enter();
        let mut offers = self.shared.offers();
        let Some(OnOffer { chunk, .. }) = offers.chunks.pop_front() else { return false };
        self.shared.evict_all(chunk, evicted);
        self.shared.withdraw_all(chunk, evicted);
        true
    }

    /// Chunks full of pages, none of which was referenced much; the coldest first.
    fn coldest_chunks(&self, offers: &Offers) -> Vec<u32> {
        let mut chunks = self.shared.arena.chunks();
        chunks.retain(|(chunk, free_pages)| {
            *free_pages as usize <= CHUNK_FRAMES / 2 && !offers.hot.contains_key(chunk)
        });
        self.rotate(&mut chunks, OFFERED_AT_ONCE + LOOKED_AT);
        chunks.truncate(OFFERED_AT_ONCE + LOOKED_AT);
        let mut by_heat: Vec<(u32, u32)> =
            chunks.into_iter().filter_map(|(chunk, free)| Some((self.heat(chunk, free)?, chunk))).collect();
        by_heat.sort_unstable();
        by_heat.into_iter().map(|(_, chunk)| chunk).collect()
    }

    /// References of a chunk's pages; `None` if it cannot be offered as things are.
    fn heat(&self, chunk: u32, free_pages: u32) -> Option<u32> {
        let (mut heat, mut pages) = (0, free_pages as usize);
        for frame in frames_of(chunk).filter_map(|frame| self.shared.cache.frame(frame)) {
            if frame.state() == FrameState::Resident && frame.pins() == 0 {
                heat += u32::from(frame.references());
                pages += 1;
            }
        }
        (pages == CHUNK_FRAMES && (free_pages as usize) < CHUNK_FRAMES).then_some(heat)
    }
}

/// What became of a chunk on offer.
enum Tended {
    /// It still is.
    Stays(OnOffer),
    /// It is no longer: its memory is back with the system, or something in it is dirty.
    Gone,
    /// It is no longer, because it was used.
    Hot,
}

impl Shared {
    fn offers(&self) -> MutexGuard<'_, Offers> {
        lock(&self.offers)
    }

    /// Touches a page on offer that is wanted: afterwards it is an ordinary page, or it has left.
    #[cold]
    pub(super) fn touch(&self, id: FrameId) {
        let Some(offer) = self.cache.begin_touch(id) else { return };
        if !offer.is_settled() {
            self.release(id);
            return give_way();
        }
        let base = self.arena.frame(id).expect("a frame with a page is mapped");
        // SAFETY: the frame is mapped as long as the arena, and all access to a page on offer is atomic (M5 of `headwater_core::frame`).
        // The touch holds: while the frame is pinned the kernel is told nothing about it (F8).
        let touch = unsafe { chunk_memory::touch_page(base, offer.sentinel(place_of(id))) };
        let mut controlled = self.lock();
        match touch {
            Touch::Intact => {
                controlled.control.withdraw(&self.cache, id, WithdrawnFor::Use);
                offer.note_used();
            }
            Touch::Taken => {
                if let Some(page) = controlled.control.drop_taken(&self.cache, id) {
                    controlled.taken.push(page);
                    self.arena.note_taken(1);
                }
                offer.note_lost();
            }
        }
        drop(controlled);
        self.release(id);
    }

    /// Says whether the chunk is on offer now. The caller holds `offers`, as with all of the following.
    fn offer_anew(&self, chunk: u32, form: OfferForm) -> bool {
        let Some(free_pages) = self.arena.withhold(chunk) else { return false };
        if let Some(offer) = self.cache.chunk_offer(chunk) {
            // Those of an earlier offer.
            (_, _) = (offer.take_uses(), offer.take_lost());
        }
        match self.offer_chunk(chunk, free_pages, form) {
            Offered::Yes => true,
            Offered::Refused => {
                self.arena.reinstate(chunk);
                false
            }
            Offered::NotTold => {
                self.withdraw_all(chunk, &mut Vec::new());
                false
            }
        }
    }

    /// The chunk is withheld.
    ///
    /// The sentinels come before the rings forget the chunk: what a device writes to registered memory the kernel does not count as written
    /// (measured on Linux 6.18), so that of a chunk that was on offer before it may take such a page as soon as no ring has it.
    fn offer_chunk(&self, chunk: u32, free_pages: u32, form: OfferForm) -> Offered {
        let mut offered = Vec::new();
        if self.lock().control.begin_offer(&self.cache, chunk, free_pages, &mut offered).is_err() {
            return Offered::Refused;
        }
        let offer = self.cache.chunk_offer(chunk).expect("it was begun");
        for id in offered {
            let base = self.arena.frame(id).expect("a frame with a page is mapped");
            // SAFETY: the frame is mapped as long as the arena. Its page is Offered, and readers wait while the offer is under way, so
            // nothing is stored there; should the page leave meanwhile, its frame is withheld.
            offer.set_sentinel(place_of(id), unsafe { chunk_memory::sentinel_of(base) });
        }
        // SAFETY: each frame is Offered, so that readers touch it first, or was free when its chunk was withheld, or became so since.
        let is_told = unsafe { self.arena.offer(chunk, form) };
        self.lock().control.end_offer(&self.cache, chunk);
        if is_told { Offered::Yes } else { Offered::NotTold }
    }

    /// `again`: it may be offered again, in this form.
    fn tend(&self, on_offer: OnOffer, again: Option<OfferForm>, evicted: &mut Vec<Evicted>) -> Tended {
        let OnOffer { chunk, form, uses: uses_before } = on_offer;
        let offer = self.cache.chunk_offer(chunk).expect("it is on offer");
        let has_lost = offer.take_lost();
        if (has_lost || self.arena.has_lost_memory(chunk)) && self.drop_taken(chunk, evicted) {
            return Tended::Gone;
        }
        let uses = offer.uses();
        match again {
            _ if uses == 0 => Tended::Stays(on_offer),
            Some(again) if uses - uses_before <= USES_MAX => {
                let is_in_pages = (form, again) == (OfferForm::InPages, OfferForm::InPages);
                if is_in_pages && uses <= USES_MAX {
                    // The kernel may still take its other pages.
                    return Tended::Stays(OnOffer { uses, ..on_offer });
                }
                self.renew(on_offer, again, evicted)
            }
            _ => {
                offer.take_uses();
                self.withdraw_all(chunk, evicted);
                Tended::Hot
            }
        }
    }

    /// Offers what was used of a chunk again.
    fn renew(&self, on_offer: OnOffer, form: OfferForm, evicted: &mut Vec<Evicted>) -> Tended {
        let chunk = on_offer.chunk;
        let offer = self.cache.chunk_offer(chunk).expect("it is on offer");
        let uses = offer.take_uses();
        match self.offer_chunk(chunk, self.arena.free_pages_in(chunk), form) {
            Offered::Yes => Tended::Stays(OnOffer { chunk, form, uses: 0 }),
            Offered::Refused if !self.is_dirty(chunk) => {
                // A reader is at it. The next round will look again.
                (0..uses).for_each(|_| offer.note_used());
                Tended::Stays(OnOffer { uses, ..on_offer })
            }
            Offered::Refused | Offered::NotTold => {
                self.withdraw_all(chunk, evicted);
                Tended::Gone
            }
        }
    }

    fn is_dirty(&self, chunk: u32) -> bool {
        let states = frames_of(chunk).filter_map(|id| Some(self.cache.frame(id)?.state()));
        states.into_iter().any(|state| matches!(state, FrameState::Dirty | FrameState::Writing))
    }

    /// Pages that the kernel has taken leave. If few are left these leave too, and the chunk is released: says whether it was.
    fn drop_taken(&self, chunk: u32, evicted: &mut Vec<Evicted>) -> bool {
        let offer = self.cache.chunk_offer(chunk).expect("it is on offer");
        let taken: SmallVec<[FrameId; 64]> = frames_of(chunk)
            .filter(|id| self.cache.frame(*id).is_some_and(|frame| frame.state() == FrameState::Offered))
            .filter(|id| {
                let base = self.arena.frame(*id).expect("a frame with a page is mapped");
                // SAFETY: the frame is mapped as long as the arena. If its page has left, it is withheld, and zeros or the page's bytes.
                unsafe { chunk_memory::is_taken(base, offer.sentinel(place_of(*id))) }
            })
            .collect();
        let before = evicted.len();
        self.evict_frames(taken.into_iter(), evicted);
        self.arena.note_taken(evicted.len() - before);
        if evicted.len() - before < TAKEN_MIN {
            return false;
        }
        self.evict_all(chunk, evicted);
        if !self.arena.release_withheld(chunk) {
            self.withdraw_all(chunk, evicted);
        }
        true
    }

    /// Evicts the pages of a chunk that was on offer, but for those that are pinned or dirty.
    fn evict_all(&self, chunk: u32, evicted: &mut Vec<Evicted>) {
        self.evict_frames(frames_of(chunk), evicted);
    }

    fn evict_frames(&self, frames: impl Iterator<Item = FrameId>, evicted: &mut Vec<Evicted>) {
        let mut freed: SmallVec<[FrameId; 64]> = SmallVec::new();
        let mut controlled = self.lock();
        let control = &mut controlled.control;
        for id in frames {
            let page =
                control.evict_offered(&self.cache, id).or_else(|| control.evict_frame(&self.cache, id));
            if let Some(page) = page {
                freed.push(id);
                evicted.push(page);
            }
        }
        drop(controlled);
        // SAFETY: the cache has just named each of them free.
        unsafe { self.arena.give_back(&freed) };
    }

    /// Touches all pages of a chunk that are on offer: those that are there are ordinary pages again, the others leave. Its memory is
    /// allocated again.
    fn withdraw_all(&self, chunk: u32, evicted: &mut Vec<Evicted>) {
        let mut touched: SmallVec<[(FrameId, Touch); 64]> = SmallVec::new();
        for id in frames_of(chunk) {
            let Some(offer) = self.cache.begin_touch(id) else { continue };
            let base = self.arena.frame(id).expect("a frame with a page is mapped");
            // SAFETY: as in `touch`; the caller holds `offers`, so that no offer is under way.
            touched.push((id, unsafe { chunk_memory::touch_page(base, offer.sentinel(place_of(id))) }));
        }
        let before = evicted.len();
        let mut controlled = self.lock();
        for (id, touch) in &touched {
            match touch {
                Touch::Intact => controlled.control.withdraw(&self.cache, *id, WithdrawnFor::Chunk),
                Touch::Taken => evicted.extend(controlled.control.drop_taken(&self.cache, *id)),
            }
        }
        drop(controlled);
        self.arena.note_taken(evicted.len() - before);
        touched.into_iter().for_each(|(id, _)| self.release(id));
        self.arena.reinstate(chunk);
    }
}

/// What became of offering a chunk.
enum Offered {
    Yes,
    /// Something in it is in use.
    Refused,
    /// Its pages are on offer as far as readers know, but the kernel knows nothing: a ring keeps the memory.
    NotTold,
}

fn place_of(id: FrameId) -> usize {
    id.get() as usize % CHUNK_FRAMES
}

/// The sentinels of a chunk cost some 50 µs: 1 ms for these.
const OFFERED_AT_ONCE: usize = 16;

/// Chunks whose frames are looked at beyond those.
const LOOKED_AT: usize = 48;

/// A chunk of which more pages are used between two rounds is not cold. Of one in pages, as many that were used are not worth telling the
/// kernel again.
const USES_MAX: u32 = 32;

/// Rounds until a chunk that was used is offered again.
const HOT_ROUNDS: u64 = 256;

/// Rounds until one that could not be offered is tried again.
const REFUSED_ROUNDS: u64 = 16;

/// When 64 pages of a chunk were taken, its huge page is gone or in pieces: the rest leaves too.
const TAKEN_MIN: usize = 64;

#[cfg(all(test, not(headwater_loom)))]
mod tests;
