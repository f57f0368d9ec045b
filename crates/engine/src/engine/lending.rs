//! Lending: frames and pages lent to callers as [`Bytes`].
//!
//! Owns: the lending quota, and the choice between lending and copying.
//! Does not own: the memory.
//! Invariants: I6 at most half of the budget is lent out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use headwater_io::{Arena, Extent, FilePages, PinnedPage};

/// How much of an engine's memory is lent to callers.
pub(crate) struct Lending {
    bytes: Arc<AtomicUsize>,
    bytes_max: AtomicUsize,
}

impl Lending {
    pub(crate) fn new(budget_bytes: usize) -> Lending {
        Lending { bytes: Arc::default(), bytes_max: AtomicUsize::new(budget_bytes / 2) }
    }

    /// From now on the quota is half of this much. What is lent stays so.
    pub(crate) fn set_budget(&self, budget_bytes: usize) {
        self.bytes_max.store(budget_bytes / 2, Ordering::Relaxed);
    }

    /// The bytes lent now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reserves lending quota; `None` when it is exhausted.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<LentBytes> {
        // Added first, so that concurrent callers do not exceed the quota together.
        let before_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let lent_bytes = LentBytes { total: self.bytes.clone(), bytes };
        (before_bytes + bytes <= self.bytes_max.load(Ordering::Relaxed)).then_some(lent_bytes)
    }
}

/// The bytes `used` of an extent as [`Bytes`]: the frame itself while the lending quota lasts and memory is not short, else a
/// copy.
pub(crate) fn lend(lending: &Lending, arena: &Arena, extent: Extent, used: std::ops::Range<usize>) -> Bytes {
    let (arena, reserve_bytes) = (arena.stats(), arena.demand_reserve_bytes());
    // Lent pages must not be those of the reserve: the next demand has to get these back.
    let is_short = arena.used_bytes + reserve_bytes > arena.budget_bytes;
    match lending.reserve(extent.len()) {
        Some(lent_bytes) if !is_short => Bytes::from_owner(Lent { memory: extent, lent_bytes }).slice(used),
        _ => Bytes::copy_from_slice(&extent[used]),
    }
}

/// A part of a page as [`Bytes`]: the page itself while the lending quota lasts, else a copy.
pub(crate) fn lend_page(
    lending: &Lending,
    page: PinnedPage<'_>,
    file: &FilePages,
    part: std::ops::Range<usize>,
) -> Bytes {
    // Copying a smaller part is cheaper than lending.
    if part.len() < LENT_BYTES_MIN || page.pins() > LENT_TIMES_MAX {
        return Bytes::copy_from_slice(&page[part]);
    }
    match lending.reserve(page.len()) {
        Some(lent_bytes) => Bytes::from_owner(Lent { memory: page.into_owned(file), lent_bytes }).slice(part),
        None => Bytes::copy_from_slice(&page[part]),
    }
}

/// A frame or page lent to a caller.
struct Lent<M: AsRef<[u8]>> {
    memory: M,
    #[expect(dead_code, reason = "dropped with the memory")]
    lent_bytes: LentBytes,
}

impl<M: AsRef<[u8]>> AsRef<[u8]> for Lent<M> {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref()
    }
}

/// A share of the lending quota, returned when dropped.
pub(crate) struct LentBytes {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl LentBytes {
    /// Splits off a share, to be returned separately.
    pub(crate) fn split(&mut self, bytes: usize) -> LentBytes {
        assert!(bytes <= self.bytes, "no more is split off than there is");
        self.bytes -= bytes;
        LentBytes { total: self.total.clone(), bytes }
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A page that is lent this many times is copied from then on. A frame counts up to [`headwater_io::FilePages::PINS_MAX`] pins,
/// some 64 000: the other half is for threads that are reading the page, which beyond it wait for each other.
pub(crate) const LENT_TIMES_MAX: u32 = 32_768;

/// Lending a page allocates 72 bytes and pins it; copying less than this takes no longer.
pub(crate) const LENT_BYTES_MIN: usize = 512;
