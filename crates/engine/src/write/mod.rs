//! Write: from bytes to the device.
//!
//! Owns: writes into the cache, write-back, syncs.
//! Does not own: which pages are dirty (inode).

pub(crate) mod cached;
pub(crate) mod fsync;
pub(crate) mod put_pages;
pub(crate) mod window_create;
pub(crate) mod window_flush;
pub(crate) mod writeback;
