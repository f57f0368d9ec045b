//! headwater-arceos: the page cache and the readahead of headwater over ArceOS's VFS.
//!
//! ```text
//!   Location ─► open_at ─► CachedFile ─► headwater-kernel ─► VfsNode ─► FileNodeOps: ext4, FAT, devices, …
//!                                               └─► ArceOs: locks, wait queues, clock
//! ```
//!
//! In place of `ax_fs_ng`'s `CachedFile`. The kernel makes one [`PageCache`], spawns a task or two that call its `serve`,
//! and opens files by [`open_at`].
//
// Owns: what ArceOS calls things.
// Does not own: the cache (`headwater-kernel`) and its decisions (`headwater-core`).

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

#[cfg(feature = "ax-task")]
mod arceos;
mod node;

use alloc::sync::Arc;

use axfs_ng_vfs::{Location, VfsResult};

#[cfg(feature = "ax-task")]
pub use arceos::{ArceOs, Queue};
pub use headwater_kernel::{
    Advice, CachedFile, Failure, FileBackend, Kernel, ListenerId, MemoryHint, Page, PageAccess, PageCache,
    PageEvent, PageIndex, PageRange, Policy, PutPages, ReadaheadLimits, ReadaheadPolicy, ReadaheadStats,
    Settings, ShrinkScope, Stats, SyncScope, WaitQueue,
};
pub use node::VfsNode;

/// The file at a location: opened once, and kept open by the directory entry, so that its pages outlast its readers.
///
/// # Errors
/// [`IsADirectory`](axfs_ng_vfs::VfsError::IsADirectory), and those of [`PageCache::open`].
pub fn open_at<K: Kernel<Node = VfsNode>>(
    cache: &Arc<PageCache<K>>,
    location: &Location,
) -> VfsResult<CachedFile<K>> {
    let known = location.user_data().get::<CachedFile<K>>();
    if let Some(known) = known {
        return Ok((*known).clone());
    }
    let opened = cache.open(VfsNode::new(location.entry().as_file()?.inner().clone()))?;
    Ok((*location.user_data().get_or_insert_with(|| opened.clone())).clone())
}
