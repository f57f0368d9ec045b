//! Offering: pages whose memory the operating system's kernel may take without a word, and how a reader tells whether it has.
//!
//! ```text
//!   offerer  begin ─► offer, each page ─► Sentinel of its bytes ─► the kernel is told ─► end
//!   reader   Pin::Offered ─► begin_touch ─► under way? yes: unpin, later again
//!                                             │ no
//!                                             ▼
//!              compare-and-exchange of the sentinel's word for itself ─┬─ it is there ─► withdraw ─► unpin ─► pin
//!                                                                      └─ it is not ─► invalidate ─► unpin: a miss
//! ```
//!
//! Linux takes memory under `MADV_FREE` unless it was written to since, and gives back zeros (madvise(2)). A page that a reader wants is
//! therefore written to first, by an exchange of a word for the same word: from then on the kernel cannot take it. If the exchange fails,
//! the kernel was faster. What is kept of each page is one word that is not zero, and where it lies: after the kernel took the page this
//! word is zero. A page of zeros needs none, because what the kernel gives back are its bytes.
//!
//! Owns: the transitions to and from Offered, sentinels, whether the kernel is being told.
//! Does not own: the bytes, the kernel, which chunks are offered (cache).
//! Invariants: F7 as of the frame; F8 while a frame is pinned and Offered, and the offer is not under way, the kernel is not told of its
//! chunk: what was touched stays.
//! Locks: [`Frame::offer`] and [`Frame::withdraw`] are called under the cache's control lock; touching needs none.

use super::*;
use crate::apart::{Apart, apart};
use crate::sync::AtomicU32;

/// What offering a frame gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// It is Offered now: its sentinel is to be set.
    New,
    /// It was Offered before, and no reader is touching it.
    Again,
    /// It holds nothing.
    Free,
    /// It is pinned, or neither of these.
    Refused,
}

/// What a page that was touched turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// There, and the kernel cannot take it any more.
    Intact,
    /// Taken.
    Taken,
}

impl Frame {
    /// Resident -> Offered, unless pinned. A frame that is Offered already stays so. By a compare-and-exchange in each case, so that a
    /// reader that begins to touch it afterwards sees that the offer is under way.
    pub fn offer(&self) -> Offer {
        let word = self.word.load(Ordering::Acquire);
        let (next, offer) = match word & (STATE | PINS) {
            RESIDENT => (word & !STATE | OFFERED, Offer::New),
            OFFERED => (word, Offer::Again),
            state if state & STATE == FREE => return Offer::Free,
            _ => return Offer::Refused,
        };
        match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => offer,
            Err(_) => Offer::Refused,
        }
    }

    /// Pins a page on offer, for touching it: its bytes may have been taken. Says whether it did; [`Frame::unpin`] must follow then.
    pub fn begin_touch(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while word & STATE == OFFERED && word & PINS < u64::from(PINS_MAX) << PINS_SHIFT {
            match self.word.compare_exchange_weak(word, word + PIN, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Offered -> Resident: the caller has touched the page, and found it; or the kernel was not told of it. Says whether it was Offered.
    pub fn withdraw(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while word & STATE == OFFERED {
            let next = word & !STATE | RESIDENT;
            match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}

/// A word of a page that is not zero, and where it lies; or that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sentinel(u64);

impl Sentinel {
    /// Words of a page.
    pub const WORDS: u32 = (PAGE_SIZE_BYTES / 4) as u32;

    /// The first word that is not zero of those that `word` gives.
    pub fn find(word: impl Fn(u32) -> u32) -> Sentinel {
        let found = (0..Self::WORDS).find_map(|place| match word(place) {
            0 => None,
            word => Some(u64::from(place) << 32 | u64::from(word)),
        });
        Sentinel(found.unwrap_or(0))
    }

    /// Place and value of the word; `None` for a page of zeros, which is what it is even after the kernel took it.
    pub fn word(self) -> Option<(u32, u32)> {
        (self.0 != 0).then_some(((self.0 >> 32) as u32, self.0 as u32))
    }
}

/// What is kept of a chunk that is, or was, on offer.
#[derive(Debug)]
pub struct ChunkOffer {
    gate: OfferGate,
    has_lost: AtomicU32,
    uses: AtomicU32,
    sentinels: [Apart<AtomicU64>; CHUNK_FRAMES],
}

impl ChunkOffer {
    pub(crate) fn new() -> ChunkOffer {
        ChunkOffer {
            gate: OfferGate::new(),
            has_lost: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            sentinels: core::array::from_fn(|_| apart(AtomicU64::new(0))),
        }
    }

    pub(crate) fn gate(&self) -> &OfferGate {
        &self.gate
    }

    /// Whether the kernel has been told of the chunk, and is not being told again: asked after [`Frame::begin_touch`].
    pub fn is_settled(&self) -> bool {
        self.gate.is_open()
    }

    /// Sets the sentinel of a page, by its place in the chunk, while the offer is under way.
    pub fn set_sentinel(&self, place: usize, sentinel: Sentinel) {
        self.sentinels[place].store(sentinel.0, Ordering::Relaxed);
    }

    /// The sentinel of a page on offer.
    pub fn sentinel(&self, place: usize) -> Sentinel {
        Sentinel(self.sentinels[place].load(Ordering::Relaxed))
    }

    /// A page of the chunk was found taken; others may be.
    pub fn note_lost(&self) {
        self.has_lost.store(1, Ordering::Relaxed);
    }

    /// Whether that was noted since this was last asked.
    pub fn take_lost(&self) -> bool {
        self.has_lost.swap(0, Ordering::Relaxed) != 0
    }

    /// A page of the chunk was used, and is on offer no more.
    pub fn note_used(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was noted since [`ChunkOffer::take_uses`].
    pub fn uses(&self) -> u32 {
        self.uses.load(Ordering::Relaxed)
    }

    /// How often that was noted since this was last called.
    pub fn take_uses(&self) -> u32 {
        self.uses.swap(0, Ordering::Relaxed)
    }
}

/// Keeps readers from touching the pages of a chunk while the kernel is being told of it.
#[derive(Debug)]
pub(crate) struct OfferGate(AtomicU32);

impl OfferGate {
    pub(crate) fn new() -> OfferGate {
        OfferGate(AtomicU32::new(0))
    }

    /// Before the first frame is offered.
    pub(crate) fn close(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// After the kernel was told.
    pub(crate) fn open(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Asked by a reader after [`Frame::begin_touch`].
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}
