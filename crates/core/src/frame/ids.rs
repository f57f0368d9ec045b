//! Ids: numbers of files and loads, as frames hold them, and what a load is for.

use super::PAGE_BITS;

/// Number of a file within one cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub(super) u32);

impl FileId {
    /// The last file that there can be: a million at once.
    pub const MAX: Self = Self((1 << (u64::BITS - PAGE_BITS)) - 1);

    /// The file with this number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Number of a load in flight, by which readers of its pages wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LoadId(pub(super) u32);

impl LoadId {
    /// The load with this number, of which the upper four bits are left out: there are 2^28.
    pub const fn new(index: u32) -> Self {
        Self(index & (u32::MAX >> 4))
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a page is loaded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadKind {
    /// A reader waits for it.
    Demand,
    /// A guess.
    Ahead,
}
