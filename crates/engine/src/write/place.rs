//! Place: where a write goes, and whether it may extend the file.
//!
//! Owns: the kinds of places.
//! Does not own: how a write gets there (cached, by_kernel).

use crate::inode::size_lock::SizeLockGuard;

/// Where to write.
pub(crate) enum Place<'a> {
    /// At this offset.
    At(u64),
    /// At this offset, the end of the file, which was read under the size lock.
    End(u64, SizeLockGuard<'a>),
    /// At this offset, if the file reaches that far.
    Within(u64),
}

/// Whether a write may extend the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    Allowed,
    Refused,
}

impl<'a> Place<'a> {
    /// The offset, unless the file was checked when its end was read.
    pub(crate) fn before_a_check(&self) -> Option<u64> {
        match self {
            Place::At(start_bytes) | Place::Within(start_bytes) => Some(*start_bytes),
            Place::End(..) => None,
        }
    }

    /// Offset, growth, and the size lock if it is held.
    pub(crate) fn parts(self) -> (u64, Growth, Option<SizeLockGuard<'a>>) {
        match self {
            Place::At(start_bytes) => (start_bytes, Growth::Allowed, None),
            Place::End(start_bytes, size_lock) => (start_bytes, Growth::Allowed, Some(size_lock)),
            Place::Within(start_bytes) => (start_bytes, Growth::Refused, None),
        }
    }
}
