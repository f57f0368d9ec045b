//! Pinned page: a page of the cache whose bytes can be read, borrowed or owned.
//!
//! Owns: one pin of a frame, from its making to its drop.
//! Does not own: the frame's state.
//! Invariants: I1 bytes are lent only while pinned (M1 of `headwater_core::frame`).

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use headwater_core::frame::FirstUse;
use headwater_core::units::{FrameId, PAGE_BYTES};

use super::{Keeper, Shared};

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

    /// The same pin, for as long as is wanted: with the pages of the file, or with a share of the quota for lending.
    ///
    /// # Panics
    /// If the keeper is of another cache.
    #[inline]
    pub fn into_owned(self, keeper: impl Into<Keeper>) -> OwnedPage {
        let keeper = keeper.into();
        assert!(std::ptr::eq(self.shared, keeper.shared()), "the page is of that cache");
        let page = std::mem::ManuallyDrop::new(self);
        keeper.note_pinned(1);
        OwnedPage { keeper, frame: page.frame, base: page.base }
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
    keeper: Keeper,
    frame: FrameId,
    base: NonNull<u8>,
}

// SAFETY: as for `PinnedPage`.
unsafe impl Send for OwnedPage {}
// SAFETY: as for `PinnedPage`.
unsafe impl Sync for OwnedPage {}

impl OwnedPage {
    /// Pins the page once more. `None` if it has `pins_max` pins, when less than a page of the quota is left, and in a forked child.
    pub fn try_clone(&self, pins_max: u32) -> Option<OwnedPage> {
        let shared = self.keeper.shared();
        if !shared.arena.is_here() {
            return None;
        }
        let keeper = self.keeper.another(1)?;
        shared.cache.pin_again(self.frame, pins_max).then(|| {
            keeper.note_pinned(1);
            OwnedPage { keeper, frame: self.frame, base: self.base }
        })
    }
}

impl Deref for OwnedPage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `PinnedPage`; `keeper` keeps the arena.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), PAGE_BYTES) }
    }
}

impl AsRef<[u8]> for OwnedPage {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for OwnedPage {
    #[inline]
    fn drop(&mut self) {
        let shared = self.keeper.shared();
        if !shared.arena.is_here() {
            return;
        }
        self.keeper.note_unpinned(1);
        shared.release(self.frame);
        // Somebody may have found every page pinned.
        shared.arena.announce();
    }
}

impl fmt::Debug for OwnedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedPage({:?})", self.frame)
    }
}
