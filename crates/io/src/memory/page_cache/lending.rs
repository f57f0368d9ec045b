//! Lending: what keeps a cache while its pages are pinned for callers, and how many may be.
//!
//! ```text
//!   PageCache::lending ─► LendingQuota ─► reserve ─► LentPages ─┐
//!                         FilePages ────────────────────────────┴─► Keeper of an OwnedPage, of a PinnedRun
//! ```
//!
//! Owns: the kinds of keepers.
//! Does not own: the counts (quota), the pins.
//! Hot path: one compare-and-swap to reserve, one subtraction to return; no allocation, no write that threads share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::units::PAGE_BYTES;

use super::{FilePages, PageCache, Shared};
use crate::memory::quota::{Quota, Share};

/// How many bytes of a cache's memory are lent to callers.
pub struct LendingQuota(Quota<Arc<Shared>>);

/// A share of a [`LendingQuota`], returned when dropped. Keeps the cache.
pub struct LentPages(Share<Arc<Shared>>);

/// What keeps the cache of a page that is pinned: [`FilePages`], or a share of the lending quota.
pub struct Keeper(Kept);

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = match &self.0 {
            Kept::Cache(_) => "the cache",
            Kept::Quota(_) => "a share of the lending quota",
        };
        write!(f, "Keeper({kept})")
    }
}

enum Kept {
    Cache(Arc<Shared>),
    Quota(LentPages),
}

impl PageCache {
    /// A quota for lending up to `bytes_max` of the cache's memory.
    ///
    /// ```
    /// use headwater_core::replacement::Policy;
    /// use headwater_io::{Arena, PageCache};
    /// let quota = PageCache::new(&Arena::new(4 << 20)?, Policy::Clock2QPlus).lending(8192);
    /// let lent = quota.reserve(5000).expect("nothing is lent yet");
    /// assert_eq!(quota.lent_bytes(), 8192);
    /// assert!(quota.reserve(1).is_none());
    /// drop(lent);
    /// assert!(quota.reserve(1).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lending(&self, bytes_max: usize) -> LendingQuota {
        LendingQuota(Quota::new(bytes_max / PAGE_BYTES, self.shared.clone()))
    }
}

impl LendingQuota {
    /// Reserves quota for `bytes`, rounded up to whole pages, at least one. `None` when less is left.
    #[inline]
    pub fn reserve(&self, bytes: usize) -> Option<LentPages> {
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).ok()?;
        self.0.reserve(pages).map(LentPages)
    }

    /// From now on up to `bytes_max` may be lent. What is lent stays so.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.0.set(bytes_max / PAGE_BYTES);
    }

    /// Bytes lent now.
    pub fn lent_bytes(&self) -> usize {
        self.0.lent_pages() * PAGE_BYTES
    }
}

impl LentPages {
    /// Bytes of this share.
    pub fn len_bytes(&self) -> usize {
        self.0.pages() as usize * PAGE_BYTES
    }
}

impl Keeper {
    /// The cache that is kept.
    #[inline]
    pub(super) fn shared(&self) -> &Shared {
        match &self.0 {
            Kept::Cache(shared) => shared,
            Kept::Quota(lent) => &lent.0,
        }
    }

    /// Splits off what a quota's share has beside `pages`, if both are some.
    pub(super) fn split_unused(&mut self, pages: usize) -> Option<LentPages> {
        match &mut self.0 {
            Kept::Quota(LentPages(share)) if pages > 0 && share.pages() as usize > pages => {
                let unused = share.pages() - pages as u32;
                Some(LentPages(share.split(unused)))
            }
            _ => None,
        }
    }

    /// A keeper of the same kind for `pages` more; `None` when less of the quota is left.
    pub(super) fn another(&self, pages: usize) -> Option<Keeper> {
        let kept = match &self.0 {
            Kept::Cache(shared) => Kept::Cache(shared.clone()),
            Kept::Quota(LentPages(share)) => {
                Kept::Quota(LentPages(share.another(u32::try_from(pages).ok()?)?))
            }
        };
        Some(Keeper(kept))
    }

    /// Moves the gauge of pages that are pinned without a quota.
    #[inline]
    pub(super) fn note_pinned(&self, pages: usize) {
        if let Kept::Cache(shared) = &self.0 {
            shared.owned_pages.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// The pages are pinned no more.
    #[inline]
    pub(super) fn note_unpinned(&self, pages: usize) {
        if let Kept::Cache(shared) = &self.0 {
            shared.owned_pages.fetch_sub(pages, Ordering::Relaxed);
        }
    }
}

impl From<&FilePages> for Keeper {
    fn from(file: &FilePages) -> Keeper {
        Keeper(Kept::Cache(file.file.shared.clone()))
    }
}

impl From<LentPages> for Keeper {
    #[inline]
    fn from(lent: LentPages) -> Keeper {
        Keeper(Kept::Quota(lent))
    }
}

impl fmt::Debug for LentPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentPages({} bytes)", self.len_bytes())
    }
}

impl fmt::Debug for LendingQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LendingQuota({} bytes lent)", self.lent_bytes())
    }
}
