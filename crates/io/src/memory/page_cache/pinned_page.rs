//! Pinned page: a page of the cache whose bytes can be read, borrowed or owned.
//!
//! Owns: one pin of a frame, from its making to its drop.
//! Does not own: the frame's state.
//! Invariants: I1 bytes are lent only while pinned (M1 of `headwater_core::frame`).

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::frame::FirstUse;
use headwater_core::units::{FrameId, PAGE_BYTES};

use super::{FilePages, Shared};

/// A page that stays as it is while this exists.
pub struct PinnedPage<'a> {
    pub(super) shared: &'a Shared,
    pub(super) frame: FrameId,
    pub(super) base: NonNull<u8>,
    pub(super) first_use: FirstUse,
}

// SAFETY: the bytes can only be read, and unpinning is an atomic operation, or the arena's under its lock.
unsafe impl Send for PinnedPage<'_> {}
// SAFETY: as above.
unsafe impl Sync for PinnedPage<'_> {}

impl<'a> PinnedPage<'a> {
    /// What the pin found out for readahead.
    #[inline]
    pub fn first_use(&self) -> FirstUse {
        self.first_use
    }

    /// How many have the page pinned, this one included.
    pub fn pins(&self) -> u32 {
        self.shared.cache.pins(self.frame)
    }

    /// The same pin, for as long as is wanted.
    pub fn into_owned(self, file: &FilePages) -> OwnedPage {
        assert!(std::ptr::eq(self.shared, &*file.file.shared), "the page is of that file's cache");
        let page = std::mem::ManuallyDrop::new(self);
        page.shared.owned_pages.fetch_add(1, Ordering::Relaxed);
        OwnedPage { shared: file.file.shared.clone(), frame: page.frame, base: page.base }
    }
}

impl Deref for PinnedPage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is mapped as long as the arena, which `shared` keeps; M1 of `headwater_core::frame`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), PAGE_BYTES) }
    }
}

impl Drop for PinnedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shared.release(self.frame);
    }
}

impl fmt::Debug for PinnedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedPage({:?})", self.frame)
    }
}

/// A [`PinnedPage`] that keeps its cache.
pub struct OwnedPage {
    pub(super) shared: Arc<Shared>,
    pub(super) frame: FrameId,
    pub(super) base: NonNull<u8>,
}

// SAFETY: as for `PinnedPage`.
unsafe impl Send for OwnedPage {}
// SAFETY: as for `PinnedPage`.
unsafe impl Sync for OwnedPage {}

impl Deref for OwnedPage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `PinnedPage`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), PAGE_BYTES) }
    }
}

impl AsRef<[u8]> for OwnedPage {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for OwnedPage {
    fn drop(&mut self) {
        if !self.shared.arena.is_here() {
            return;
        }
        self.shared.owned_pages.fetch_sub(1, Ordering::Relaxed);
        self.shared.release(self.frame);
        // Somebody may have found every page pinned.
        self.shared.arena.announce();
    }
}

impl fmt::Debug for OwnedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedPage({:?})", self.frame)
    }
}
