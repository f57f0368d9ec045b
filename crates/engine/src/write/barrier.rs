//! Barrier: the right to change a file on its device past the cache, from one page on.
//!
//! ```text
//!   size lock ─► no writeback begins from this page on ─► wait for writes in flight there ─► the device, then the cache ─► lifted
//! ```
//!
//! Owns: the barrier of a file while its length or its extents change.
//! Does not own: the change.

use std::io;
use std::sync::Arc;

use headwater_core::units::PageIndex;

use crate::base::error::Result;
use crate::engine::handle::Source;
use crate::inode::Inode;
use crate::inode::page_write::PageWrite;
use crate::inode::size_lock::SizeLockGuard;
use crate::write::window_flush;

/// Until this is dropped, the length stays as it is but for the holder, and no page from `from` on begins to be written back.
pub(crate) struct Barrier<'a> {
    pub(crate) source: &'a Arc<Source>,
    pub(crate) inode: &'a Arc<Inode>,
    from: PageIndex,
    /// Excludes other changes of the length.
    size_lock: SizeLockGuard<'a>,
}

impl<'a> Barrier<'a> {
    pub(crate) fn new(
        source: &'a Arc<Source>,
        inode: &'a Arc<Inode>,
        size_lock: SizeLockGuard<'a>,
        from: PageIndex,
    ) -> Result<Barrier<'a>> {
        source.end_bytes(inode)?;
        let mut state = inode.dirty.lock();
        // Under the lock: an exit that seizes the size lock lifts the barrier after that.
        if size_lock.holds() {
            state.barrier = Some(from);
        }
        drop(state);
        Ok(Barrier { source, inode, from, size_lock })
    }

    /// Blocks until nothing is in flight from the page on.
    pub(crate) fn wait(&self) {
        window_flush::wait_for_stray(self.inode);
        while let Some(write) = self.in_the_way() {
            self.source.shared().cache.writes.wait(&write);
        }
    }

    /// As [`Barrier::wait`], for a task.
    pub(crate) async fn ready(&self) {
        let shared = self.source.shared();
        window_flush::stray_ready(shared, self.inode).await;
        while let Some(write) = self.in_the_way() {
            shared.cache.writes.ready(&write).await;
        }
    }

    /// From here on an exit of the process waits for this change.
    ///
    /// # Errors
    /// When the exit came first.
    pub(crate) fn make_firm(&self) -> io::Result<()> {
        self.size_lock.keep()
    }

    /// A write in flight from the page on, which would undo the change if it came after it.
    fn in_the_way(&self) -> Option<Arc<PageWrite>> {
        let state = self.inode.dirty.lock();
        state.in_flight.values().find(|write| write.pages().end > self.from).cloned()
    }
}

impl Drop for Barrier<'_> {
    fn drop(&mut self) {
        // A forked child may find the lock as a thread of its parent held it.
        if !self.source.shared().driver.is_forked() && self.size_lock.make_firm() {
            self.inode.dirty.lock().barrier = None;
        }
    }
}
