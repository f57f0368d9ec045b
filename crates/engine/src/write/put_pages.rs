//! Put pages: the one way by which pages go to their file, or out of the cache.
//!
//! With [`crate::load::cached`], the one way by which they come, this is the seam below which nobody reaches: reads, writes, views,
//! readahead, syncs and the keeper pass through the two. They correspond to `VOP_GETPAGES` and `VOP_PUTPAGES` of NetBSD:
//!
//! | NetBSD | here |
//! |---|---|
//! | `getpages`, asynchronous | `Starter::start_all`: begins to read what a plan names, and does not wait |
//! | `getpages`, `PGO_SYNCIO` | `CachedRead`: gives out a pinned page, or what to wait for, which threads and tasks do each their way |
//! | `getpages`, `PGO_LOCKED` (resident only) | `Inode::copy_resident`, `FilePages::pin` |
//! | `getpages`, `PGO_OVERWRITE` (without reading) | `Shared::frames_for_write`, filled, then `FilePages::install` |
//! | `getpages`, `PGO_PASTEOF` | the same with zeros around, then `Inode::grow` |
//! | `putpages`, `PGO_CLEANIT` | [`Put::Clean`] |
//! | `putpages`, `PGO_FREE` | [`Put::Free`]: clean pages only; dirty ones are freed by a cut alone |
//! | `putpages`, `PGO_CLEANIT`, `PGO_SYNCIO` | [`Put::Sync`], and `Shared::flush_async` for tasks |
//! | `ubc_alloc`, `ubc_release` | a pin: nothing is mapped, as all frames always are |
//!
//! Owns: the names.
//! Does not own: how it is done (write back, sync, the page cache).

use std::sync::Arc;

use headwater_core::units::PageRange;

use crate::engine::Shared;
use crate::inode::Inode;
use crate::write::writeback::{Awaited, SYNC_RUNS};

/// What is to become of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// Dirty ones begin to be written, in as many runs as a sync has in flight; nothing is waited for.
    Clean,
    /// Clean ones leave; who has pinned one keeps it.
    Free,
    /// Dirty ones are written, and this waits for that. Failures are noted in the file.
    Sync,
}

impl Shared {
    /// Puts pages of a file where they belong.
    pub(crate) fn put_pages(&self, inode: &Arc<Inode>, pages: PageRange, put: Put) {
        match put {
            Put::Clean => _ = self.write_back(inode, pages, SYNC_RUNS, Awaited::No),
            Put::Free => inode.drop_pages(pages),
            Put::Sync => self.flush(inode, pages),
        }
    }
}
