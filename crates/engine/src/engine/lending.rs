//! Lending: frames and pages lent to callers as [`Bytes`].
//!
//! Owns: the lending quotas of engines, and the choice between lending and copying.
//! Does not own: the memory, how shares of a quota are counted (io).
//! Invariants: I6 at most half of the budget is lent out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use headwater_core::units::PAGE_BYTES;
use headwater_io::{Arena, Extent, LendingQuota, LentPages, PageCache, PinnedPage};

/// How much of an engine's memory is lent to callers.
pub(crate) struct Lending {
    quota: LendingQuota,
    /// Of that, in frames aside of the cache.
    extent_bytes: Arc<AtomicUsize>,
}

impl Lending {
    pub(crate) fn new(cache: &PageCache, budget_bytes: usize) -> Lending {
        Lending { quota: cache.lending(budget_bytes / 2), extent_bytes: Arc::default() }
    }

    /// From now on the quota is half of this much. What is lent stays so.
    pub(crate) fn set_budget(&self, budget_bytes: usize) {
        self.quota.set_bytes_max(budget_bytes / 2);
    }

    /// The bytes lent now.
    pub(crate) fn bytes(&self) -> usize {
        self.quota.lent_bytes()
    }

    /// Pages of the cache lent now.
    pub(crate) fn cached_pages(&self) -> usize {
        let extent_bytes = self.extent_bytes.load(Ordering::Relaxed);
        self.quota.lent_bytes().saturating_sub(extent_bytes) / PAGE_BYTES
    }

    /// Reserves lending quota; `None` when it is exhausted.
    #[inline]
    pub(crate) fn reserve(&self, bytes: usize) -> Option<LentPages> {
        self.quota.reserve(bytes)
    }
}

/// The bytes `used` of an extent as [`Bytes`]: the frame itself while the lending quota lasts and memory is not short, else a
/// copy.
pub(crate) fn lend(lending: &Lending, arena: &Arena, extent: Extent, used: std::ops::Range<usize>) -> Bytes {
    let (arena, reserve_bytes) = (arena.stats(), arena.demand_reserve_bytes());
    // Lent pages must not be those of the reserve: the next demand has to get these back.
    let is_short = arena.used_bytes + reserve_bytes > arena.budget_bytes;
    match lending.reserve(extent.len()) {
        Some(lent) if !is_short => {
            lending.extent_bytes.fetch_add(extent.len(), Ordering::Relaxed);
            let extent_bytes = lending.extent_bytes.clone();
            Bytes::from_owner(LentExtent { extent, extent_bytes, lent }).slice(used)
        }
        _ => Bytes::copy_from_slice(&extent[used]),
    }
}

/// A part of a page as [`Bytes`]: the page itself while the lending quota lasts, else a copy.
pub(crate) fn lend_page(lending: &Lending, page: PinnedPage<'_>, part: std::ops::Range<usize>) -> Bytes {
    // Copying a smaller part is cheaper than lending.
    if part.len() < LENT_BYTES_MIN || page.pins() > LENT_TIMES_MAX {
        return Bytes::copy_from_slice(&page[part]);
    }
    match lending.reserve(page.len()) {
        Some(lent) => Bytes::from_owner(page.into_owned(lent)).slice(part),
        None => Bytes::copy_from_slice(&page[part]),
    }
}

/// A frame lent to a caller.
struct LentExtent {
    extent: Extent,
    extent_bytes: Arc<AtomicUsize>,
    #[expect(dead_code, reason = "dropped with the memory")]
    lent: LentPages,
}

impl AsRef<[u8]> for LentExtent {
    fn as_ref(&self) -> &[u8] {
        &self.extent
    }
}

impl Drop for LentExtent {
    fn drop(&mut self) {
        self.extent_bytes.fetch_sub(self.extent.len(), Ordering::Relaxed);
    }
}

/// A page that is lent this many times is copied from then on. A frame counts up to [`headwater_io::FilePages::PINS_MAX`] pins,
/// some 64 000: the other half is for threads that are reading the page, which beyond it wait for each other.
pub(crate) const LENT_TIMES_MAX: u32 = 32_768;

/// Lending a page allocates 72 bytes and pins it; copying less than this takes no longer.
pub(crate) const LENT_BYTES_MIN: usize = 512;
