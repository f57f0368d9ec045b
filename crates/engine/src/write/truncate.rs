//! Truncate: a change of the length, and what it waits for.
//!
//! ```text
//!   set_len ─► barrier behind the new end ─► a frame to spare ─► the device ─► the cache
//! ```
//!
//! Owns: the order of these steps, for threads and for tasks.
//! Does not own: the length (inode).
//! Invariants: I10 the bytes of a page beyond the length are zeros.

use std::io;
use std::sync::Arc;

use headwater_core::cache::DirtyToo;
use headwater_core::units::{ByteRange, PageCount, PageIndex, PageRange};
use headwater_io::{Dropped, Extents, FileKind};

use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::{calls_after, defer};
use crate::engine::handle::Source;
use crate::inode::Inode;
use crate::inode::dirty::State;
use crate::write::barrier::Barrier;
use crate::write::memory_wait;
use crate::write::positional::WRITABLE_BYTES_MAX;

impl Source {
    pub(crate) fn set_len(self: &Arc<Self>, length_bytes: u64) -> Result<()> {
        if length_bytes == 0 && self.empty_around() {
            return Ok(());
        }
        let Some(inode) = self.check_set_len(length_bytes)? else { return Ok(()) };
        let barrier = Barrier::new(self, inode, inode.dirty.size_lock.lock(), end_page(length_bytes))?;
        Truncate { barrier, length_bytes, grows_only: false }.run()
    }

    pub(crate) async fn set_len_async(self: &Arc<Self>, length_bytes: u64) -> Result<()> {
        let Some(inode) = self.check_set_len(length_bytes)? else { return Ok(()) };
        let truncate = async {
            let size_lock = inode.dirty.size_lock.lock_async(&self.shared().driver).await;
            let barrier = Barrier::new(self, inode, size_lock, end_page(length_bytes))?;
            Truncate { barrier, length_bytes, grows_only: false }.run_async().await
        };
        calls_after(truncate).await
    }

    /// Makes the file at least this long, with zeros, of which the last block at the most takes room on the device.
    pub(crate) fn grow_to(self: &Arc<Self>, length_bytes: u64) -> Result<()> {
        let Some(inode) = self.check_set_len(length_bytes)? else { return Ok(()) };
        let barrier = Barrier::new(self, inode, inode.dirty.size_lock.lock(), end_page(length_bytes))?;
        if inode.length_bytes() >= length_bytes {
            return Ok(());
        }
        Truncate { barrier, length_bytes, grows_only: true }.run()
    }

    /// As [`Source::grow_to`], for a task.
    pub(crate) async fn grow_to_async(self: &Arc<Self>, length_bytes: u64) -> Result<()> {
        let Some(inode) = self.check_set_len(length_bytes)? else { return Ok(()) };
        let grow = async {
            let size_lock = inode.dirty.size_lock.lock_async(&self.shared().driver).await;
            let barrier = Barrier::new(self, inode, size_lock, end_page(length_bytes))?;
            if inode.length_bytes() >= length_bytes {
                return Ok(());
            }
            Truncate { barrier, length_bytes, grows_only: true }.run_async().await
        };
        calls_after(grow).await
    }

    /// The inode, if the file has a length to set.
    fn check_set_len(&self, length_bytes: u64) -> Result<Option<&Arc<Inode>>> {
        self.check_process_for(Operation::SetLength)?;
        self.check_conflicts(Operation::SetLength)?;
        let refused = |error| Err(Error::on_file(Operation::SetLength, self.path(), error));
        if self.open.kind() != FileKind::Regular {
            let text = "only regular files have a length that can be set";
            return refused(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if length_bytes > WRITABLE_BYTES_MAX {
            return refused(io::ErrorKind::FileTooLarge.into());
        }
        Ok(self.known())
    }
}

/// The page in which a file of this length ends, or would begin to grow.
fn end_page(length_bytes: u64) -> PageIndex {
    PageIndex::containing(length_bytes)
}

/// A change of the length. If dropped early, nothing has changed.
struct Truncate<'a> {
    /// In front of the page in which the file will end.
    barrier: Barrier<'a>,
    length_bytes: u64,
    /// A file that others have made longer meanwhile stays so.
    grows_only: bool,
}

impl Truncate<'_> {
    /// Blocks until nothing is in the way, and changes the length.
    fn run(self) -> Result<()> {
        self.barrier.wait();
        let (shared, inode) = (self.barrier.source.shared(), self.barrier.inode);
        loop {
            match memory_wait::frames_for_write(shared, inode, PageCount::new(1)) {
                Ok((spare, _)) => return self.finish(spare),
                Err(wait) => wait.wait(shared).map_err(|error| self.error(error))?,
            }
        }
    }

    /// As [`Truncate::run`], for a task.
    async fn run_async(self) -> Result<()> {
        self.barrier.ready().await;
        let (shared, inode) = (self.barrier.source.shared(), self.barrier.inode);
        loop {
            match memory_wait::frames_for_write(shared, inode, PageCount::new(1)) {
                Ok((spare, _)) => return self.finish(spare),
                Err(wait) => wait.ready(shared).await.map_err(|error| self.error(error))?,
            }
        }
    }

    fn error(&self, error: io::Error) -> Error {
        Error::on_file(Operation::SetLength, self.barrier.source.path(), error)
    }

    /// `spare` replaces the last page if that is pinned. Listeners are called after the size lock is released, because they may
    /// use the file.
    fn finish(self, spare: Extents) -> Result<()> {
        let (deferral, inode) = (defer(), self.barrier.inode);
        let before_bytes = inode.length_bytes();
        let finished = self.finish_locked(spare);
        drop(self);
        inode.note_length_since(before_bytes);
        drop(deferral);
        finished
    }

    fn finish_locked(&self, spare: Extents) -> Result<()> {
        let Barrier { inode, source, .. } = self.barrier;
        // The pages behind the end leave before the check after the change could take the truncate for one by others.
        let finished = inode.own_change(&source.open, || self.set_length(spare));
        let dropped = finished.map_err(|error| self.error(error))?;
        inode.on_dropped(&dropped);
        Ok(())
    }

    /// Truncates or extends the file on the device, and then in the cache.
    fn set_length(&self, spare: Extents) -> io::Result<Vec<Dropped>> {
        let Barrier { inode, source, .. } = self.barrier;
        let shared = source.shared();
        self.barrier.make_firm()?;
        {
            let mut device_length = inode.dirty.device_length();
            let (driver, file) = (&shared.driver, &source.open);
            let is_longer = self.length_bytes > *device_length && self.length_bytes > file.length_bytes()?;
            if is_longer {
                // Bytes that others append meanwhile stay.
                driver.extend_blocking(file, self.length_bytes)?;
            } else if self.grows_only {
                return Ok(Vec::new());
            } else {
                driver.set_len_blocking(file, self.length_bytes)?;
            }
            *device_length = self.length_bytes;
        }
        let mut dropped = Vec::new();
        inode.dirty.change(shared.cache.writes.dirty(), |state| {
            let before_bytes = inode.length_bytes();
            let is_shorter = self.length_bytes < before_bytes;
            // Bytes of a window beyond an end must not become visible.
            let changed =
                ByteRange::new(before_bytes.min(self.length_bytes), before_bytes.max(self.length_bytes));
            inode.dirty.windows.zero(changed);
            inode.set_length(self.length_bytes);
            if is_shorter {
                self.drop_rest(state, spare, &mut dropped);
            }
            inode.dirty.note_written();
            inode.dirty.note_change();
            if state.dirty.is_empty() {
                shared.cache.writes.forget(inode);
            }
        });
        Ok(dropped)
    }

    /// Drops what lies behind the end. Called under the lock of `state`.
    fn drop_rest(&self, state: &mut State, spare: Extents, dropped: &mut Vec<Dropped>) {
        let inode = self.barrier.inode;
        let end = PageRange::covering(ByteRange::new(0, self.length_bytes)).end;
        let rest = PageRange::new(end, PageIndex::MAX);
        state.dirty.forget(rest);
        inode.pages.invalidate(rest, DirtyToo::Yes, |page| dropped.push(page));
        let last = end_page(self.length_bytes);
        if last == end {
            return;
        }
        let last_page = PageRange::new(last, end);
        state.dirty.forget_behind(last, (self.length_bytes - last.start_bytes()) as u32);
        if state.dirty.first_dirty(last_page).is_none() {
            // All dirty bytes of the last page are behind the end; the page is read again.
            inode.pages.invalidate(last_page, DirtyToo::Yes, |page| dropped.push(page));
            return;
        }
        // The rest of the last page becomes zeros. The device has zeroed its own copy; a clean page is read again.
        inode.pages.invalidate(last_page, DirtyToo::No, |page| dropped.push(page));
        inode.zero_tail(last, (self.length_bytes - last.start_bytes()) as u32, spare);
    }
}
