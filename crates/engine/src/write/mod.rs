//! Write: from bytes to the device.
//!
//! With [`crate::load`], this is the seam below which nothing else reaches pages: `load` gets them, `writeback::begin` and
//! `fsync::flush` put them to their file, `Inode::drop_pages` drops them from the cache. Reads, writes, views, readahead, syncs
//! and the background thread pass through these. They correspond to `VOP_GETPAGES` and `VOP_PUTPAGES` of NetBSD:
//!
//! | NetBSD | here |
//! |---|---|
//! | `getpages`, asynchronous | `Starter::start_all`: begins the reads of a plan, and does not wait |
//! | `getpages`, `PGO_SYNCIO` | `CachedRead`: returns a pinned page, or what to wait for; threads and tasks wait in their own ways |
//! | `getpages`, `PGO_LOCKED` (resident only) | `Inode::copy_resident`, `FilePages::pin` |
//! | `getpages`, `PGO_OVERWRITE` (without reading) | `memory_wait::frames_for_write`, filled, then `FilePages::install` |
//! | `getpages`, `PGO_PASTEOF` | as `PGO_OVERWRITE`, with zeros around, then `Inode::grow` |
//! | `putpages`, `PGO_CLEANIT` | `writeback::begin`: begins to write dirty pages, and does not wait |
//! | `putpages`, `PGO_FREE` | `Inode::drop_pages`: clean pages only; only a truncate frees dirty ones |
//! | `putpages`, `PGO_CLEANIT`, `PGO_SYNCIO` | `fsync::flush`, and `fsync::flush_async` for tasks |
//! | `ubc_alloc`, `ubc_release` | a pin: all frames are always mapped |
//!
//! Owns: writes into the cache, writeback, syncs.
//! Does not own: which pages are dirty (inode).

pub(crate) mod append;
pub(crate) mod around;
pub(crate) mod barrier;
pub(crate) mod by_kernel;
pub(crate) mod cached;
pub(crate) mod fsync;
pub(crate) mod memory_wait;
pub(crate) mod place;
pub(crate) mod positional;
pub(crate) mod remap;
pub(crate) mod space;
pub(crate) mod stretches;
pub(crate) mod truncate;
pub(crate) mod window_create;
pub(crate) mod window_flush;
pub(crate) mod writeback;
