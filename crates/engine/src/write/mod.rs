//! Write: from bytes to the device.
//!
//! With [`crate::load`], this is the seam below which nothing else reaches pages: `load` gets them, `writeback::begin` and
//! `fsync::flush` put them to their file, `Inode::drop_pages` puts them out of the cache. Reads, writes, views, readahead, syncs and the
//! background thread pass through these. They correspond to `VOP_GETPAGES` and `VOP_PUTPAGES` of NetBSD:
//!
//! | NetBSD | here |
//! |---|---|
//! | `getpages`, asynchronous | `Starter::start_all`: begins to read what a plan names, and does not wait |
//! | `getpages`, `PGO_SYNCIO` | `CachedRead`: gives out a pinned page, or what to wait for, which threads and tasks do each their way |
//! | `getpages`, `PGO_LOCKED` (resident only) | `Inode::copy_resident`, `FilePages::pin` |
//! | `getpages`, `PGO_OVERWRITE` (without reading) | `memory_wait::frames_for_write`, filled, then `FilePages::install` |
//! | `getpages`, `PGO_PASTEOF` | the same with zeros around, then `Inode::grow` |
//! | `putpages`, `PGO_CLEANIT` | `writeback::begin`: begins to write dirty pages, and does not wait |
//! | `putpages`, `PGO_FREE` | `Inode::drop_pages`: clean pages only; dirty ones are freed by a cut alone |
//! | `putpages`, `PGO_CLEANIT`, `PGO_SYNCIO` | `fsync::flush`, and `fsync::flush_async` for tasks |
//! | `ubc_alloc`, `ubc_release` | a pin: nothing is mapped, as all frames always are |
//!
//! Owns: writes into the cache, write-back, syncs.
//! Does not own: which pages are dirty (inode).

pub(crate) mod append;
pub(crate) mod cached;
pub(crate) mod fsync;
pub(crate) mod memory_wait;
pub(crate) mod positional;
pub(crate) mod space;
pub(crate) mod truncate;
pub(crate) mod window_create;
pub(crate) mod window_flush;
pub(crate) mod writeback;
