//! Base: a page as it was read around the cache, for a write to a part of it.
//!
//! Owns: its bytes, and whether they are still valid.
//! Does not own: reading them (cached).

use headwater_core::units::{ByteRange, PageCount, PageIndex, PageRange};

use super::PAGE_BYTES;
use crate::inode::Inode;
use crate::inode::dirty::{ContentVersion, State};

/// A page as it was read past the cache.
pub(super) struct Base {
    pub(super) page: PageIndex,
    pub(super) bytes: Vec<u8>,
    /// Valid if the page was not changed or written to the device since, and the device had it then.
    version: ContentVersion,
}

impl Base {
    /// The page of which `range` was read, with zeros behind.
    pub(super) fn new(range: ByteRange, mut bytes: Vec<u8>, version: ContentVersion) -> Base {
        bytes.resize(PAGE_BYTES, 0);
        Base { page: PageIndex::containing(range.start), bytes, version }
    }

    /// Whether the page, which is not cached, is still as it was read. Nor may it have been in flight when it was read: a page may
    /// leave the cache after its write ends and before that is recorded. What is written beside the page does not count: beside a busy
    /// writer, no page would stay as it was read.
    pub(super) fn is_as_now(&self, inode: &Inode, state: &State) -> bool {
        let pages = PageRange::new(self.page, self.page + PageCount::new(1));
        !inode.dirty.have_changed(state, self.version, pages)
    }
}
