//! Extent: a piece of frame memory that has one owner.
//!
//! Owns: the right to read and write its bytes, and their return to the arena.
//! Does not own: the mapping (the arena's, which each extent keeps).
//! Invariants: I1 the buddy gives a block to one extent at a time; only `&mut Extent` writes to it.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use headwater_core::buddy::Block;

use super::{Arena, Chunk, Shared};
use crate::system::sys;

/// A contiguous, page-aligned piece of frame memory with one owner. Its bytes are always initialised, but hold
/// whatever was there before. Goes back to its arena when dropped.
pub struct Extent {
    pub(super) shared: Arc<Shared>,
    pub(super) base: NonNull<u8>,
    pub(super) block: Block,
    /// Not where the kernel may still take the memory for itself: it does not count as written what a device writes to registered memory
    /// (measured on Linux 6.18), so the bytes would be gone once no ring has that.
    pub(super) may_be_registered: bool,
}

// SAFETY: an extent is the only owner of its bytes, like a `Box<[u8]>`; the arena behind it is shared by a lock.
unsafe impl Send for Extent {}
// SAFETY: through `&Extent` the bytes can only be read.
unsafe impl Sync for Extent {}

impl Extent {
    /// Copies bytes into the extent, as fast as through the slice. Unlike that, it is sound while an optimistic read of the page
    /// that was in these frames before may still be under way.
    ///
    /// # Panics
    /// If they reach beyond the extent.
    pub fn store(&mut self, offset_bytes: usize, bytes: &[u8]) {
        assert!(offset_bytes.checked_add(bytes.len()).is_some_and(|end_bytes| end_bytes <= self.len()));
        // An optimistic reader that sees these bytes also sees that its page has left.
        fence(Ordering::Release);
        // SAFETY: the bytes lie in this extent, which has one owner, borrowed mutably; its base is page-aligned. An
        // optimistic reader of the page that was here before reads atomically.
        unsafe { sys::store_streaming(self.base, offset_bytes..offset_bytes + bytes.len(), bytes) };
    }

    /// The arena that it goes back to.
    pub(crate) fn arena(&self) -> Arena {
        Arena { shared: self.shared.clone() }
    }

    /// The frames that it consists of.
    pub(crate) fn frames(&self) -> Range<u32> {
        self.block.frames()
    }

    /// Where the bytes begin; page-aligned.
    pub(crate) fn as_raw(&self) -> NonNull<u8> {
        self.base
    }

    /// The chunk that the extent is part of, for a ring to register.
    pub(crate) fn chunk_to_register(&self) -> Option<Chunk> {
        // SAFETY: the extent lies that far inside its chunk.
        let base = unsafe { self.base.sub(self.block.offset_bytes()) };
        let chunk = Chunk { arena: self.shared.id, index: self.block.chunk as usize, base };
        self.may_be_registered.then_some(chunk)
    }
}

impl Deref for Extent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block lies inside one chunk, which stays mapped and initialised while `shared` lives; the
        // buddy hands a block to one owner at a time.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.block.bytes()) }
    }
}

impl DerefMut for Extent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.block.bytes()) }
    }
}

impl AsRef<[u8]> for Extent {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} bytes)", self.block.bytes())
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if !self.shared.mark.is_here() {
            return;
        }
        let mut state = self.shared.lock();
        state.used_bytes -= self.block.bytes();
        state.buddy.free(self.block);
        drop(state);
        self.shared.freed.notify(usize::MAX);
    }
}
