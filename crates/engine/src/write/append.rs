//! Append: writing at the end of a file, also together with other programs, and durably.
//!
//! ```text
//!   append_durable, O_APPEND: record ─► group of the next fdatasync ─► its leader: size lock ─► one write(2) for all records ─► fdatasync
//!   append_durable, cached:   append ─► sync
//! ```
//!
//! Owns: finding the end of the file.
//! Does not own: the write itself (cached), the semantics of `O_APPEND` (io).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use headwater_core::units::{ByteRange, PageRange};
use headwater_io::{AppendFile, Appended, SyncScope};

use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::{calls_after, defer};
use crate::engine::handle::Source;
use crate::inode::errseq::Cause;
use crate::inode::group_sync::{Batch, Group};
use crate::inode::size_lock::SizeLockGuard;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::fsync;
use crate::write::place::Place;
use crate::write::stretches::Claims;
use crate::write::window_flush;

impl Source {
    pub(crate) fn append(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        if self.appender.is_some() {
            let first = self.append_some(bytes)?;
            let mut done = first.length_bytes;
            // A full device, a limit and 2 GiB end a `write(2)` early; the next one has the rest, or the reason.
            while done < bytes.len() {
                done += self.append_some(&bytes[done..])?.length_bytes;
            }
            return Ok(first.offset_bytes);
        }
        self.check_write(0, bytes.len())?;
        let Some(inode) = self.known() else { return Err(self.no_end()) };
        let size_lock = inode.dirty.size_lock.lock();
        let end_bytes = self.end_bytes(inode)?;
        self.check_end(end_bytes, bytes.len())?;
        let accepted = self.write_to(inode, bytes, Place::End(end_bytes, size_lock))?;
        accepted.stopped_by.map_or(Ok(end_bytes), Err)
    }

    pub(crate) async fn append_async(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        if self.appender.is_some() {
            let first = self.append_some_async(bytes).await?;
            let mut done = first.length_bytes;
            while done < bytes.len() {
                done += self.append_some_async(&bytes[done..]).await?.length_bytes;
            }
            return Ok(first.offset_bytes);
        }
        self.check_write(0, bytes.len())?;
        let Some(inode) = self.known() else { return Err(self.no_end()) };
        let append = async {
            let size_lock = inode.dirty.size_lock.lock_async(&self.shared().driver).await;
            let end_bytes = self.end_bytes(inode)?;
            self.check_end(end_bytes, bytes.len())?;
            let accepted = self.write_to_async(inode, bytes, Place::End(end_bytes, size_lock)).await?;
            accepted.stopped_by.map_or(Ok(end_bytes), Err)
        };
        calls_after(append).await
    }

    /// As [`Source::append`], with one `write(2)`: fewer bytes than were given on a full device, and at least one.
    ///
    /// # Panics
    /// If the file is not open for appending.
    pub(crate) fn append_some(self: &Arc<Self>, bytes: &[u8]) -> Result<Appended> {
        let (inode, appender) = self.appending(bytes)?;
        // Dirty bytes of this engine's other handles are older and go first.
        fsync::flush(self.shared(), inode, ALL_PAGES);
        let locked = self.lock_end(inode);
        let appended = locked.and_then(|size_lock| self.append_by_kernel(inode, appender, bytes, size_lock));
        self.some_appended(inode, appended, bytes.len())
    }

    /// As [`Source::append_some`], for a task. If it is dropped before it is ready, nothing is written.
    ///
    /// # Panics
    /// As [`Source::append_some`].
    pub(crate) async fn append_some_async(self: &Arc<Self>, bytes: &[u8]) -> Result<Appended> {
        let (inode, appender) = self.appending(bytes)?;
        fsync::flush_async(self.shared(), inode).await;
        let append = async {
            let size_lock = self.lock_end_async(inode).await?;
            self.append_by_kernel(inode, appender, bytes, size_lock)
        };
        let appended = calls_after(append).await;
        self.some_appended(inode, appended, bytes.len())
    }

    /// What an append with `O_APPEND` needs, once it is checked.
    fn appending(&self, bytes: &[u8]) -> Result<(&Arc<Inode>, &AppendFile)> {
        self.check_write(0, bytes.len())?;
        let appender = self.appender.as_ref().expect("the file is open for appending");
        self.known().map(|inode| (inode, &**appender)).ok_or_else(|| self.no_end())
    }

    /// Returns when the bytes are in the file and durable.
    pub(crate) fn append_durable(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        let since = self.begin_durable(bytes)?;
        if let (Some(inode), Some(appender)) = (self.known(), &self.appender) {
            fsync::flush(self.shared(), inode, ALL_PAGES);
            self.report(inode, since)?;
            if let Some(member) = inode.group_sync.join_with(bytes, appender) {
                let (group, record) = (member.group.clone(), member.record.clone());
                let synced = self.sync_in_group(inode, member, SyncScope::Data, since);
                inode.lengthened.notify(usize::MAX);
                synced?;
                return self.placed(&group, record);
            }
        }
        let offset_bytes = self.append(bytes)?;
        self.sync(SyncScope::Data).map(|()| offset_bytes)
    }

    /// As [`Source::append_durable`], for a task.
    pub(crate) async fn append_durable_async(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        let since = self.begin_durable(bytes)?;
        if let (Some(inode), Some(appender)) = (self.known(), &self.appender) {
            fsync::flush_async(self.shared(), inode).await;
            self.report(inode, since)?;
            if let Some(member) = inode.group_sync.join_with(bytes, appender) {
                let (group, record) = (member.group.clone(), member.record.clone());
                let synced = self.sync_in_group_async(inode, member, SyncScope::Data, since).await;
                inode.lengthened.notify(usize::MAX);
                synced?;
                return self.placed(&group, record);
            }
        }
        let offset_bytes = self.append_async(bytes).await?;
        self.sync_async(SyncScope::Data).await.map(|()| offset_bytes)
    }

    /// Checks a durable append before it writes: after a failed sync nothing is durable any more. Returns the number of failures
    /// so far.
    fn begin_durable(&self, bytes: &[u8]) -> Result<u64> {
        self.check_write(0, bytes.len())?;
        let Some(inode) = self.known() else { return Err(self.no_end()) };
        let since = inode.dirty.errseq.count();
        self.report(inode, since).map(|()| since)
    }

    /// Locks the length for an append by the kernel: nothing that this engine has accepted lies beyond the end that the kernel knows, nor will
    /// be written over what is appended. Fails where earlier bytes cannot be written.
    pub(crate) fn lock_end<'a>(&self, inode: &'a Arc<Inode>) -> io::Result<SizeLockGuard<'a>> {
        self.flush_locked(inode, inode.dirty.size_lock.lock())
    }

    /// Writes what this engine has accepted, under the lock of the length.
    pub(crate) fn flush_locked<'a>(
        &self,
        inode: &Arc<Inode>,
        size_lock: SizeLockGuard<'a>,
    ) -> io::Result<SizeLockGuard<'a>> {
        let since = inode.dirty.errseq.count();
        if inode.dirty.pages() > 0 {
            // Written since the flush, or in vain.
            fsync::flush_pages(self.shared(), inode, ALL_PAGES);
        }
        self.unless_failed(inode, since, size_lock)
    }

    /// As [`Source::lock_end`], for a task.
    pub(crate) async fn lock_end_async<'a>(&self, inode: &'a Arc<Inode>) -> io::Result<SizeLockGuard<'a>> {
        let size_lock = inode.dirty.size_lock.lock_async(&self.shared().driver).await;
        self.flush_locked_async(inode, size_lock).await
    }

    /// As [`Source::flush_locked`], for a task.
    pub(crate) async fn flush_locked_async<'a>(
        &self,
        inode: &Arc<Inode>,
        size_lock: SizeLockGuard<'a>,
    ) -> io::Result<SizeLockGuard<'a>> {
        let since = inode.dirty.errseq.count();
        if inode.dirty.pages() > 0 {
            fsync::flush_pages_async(self.shared(), inode).await;
        }
        size_lock.keep()?;
        self.unless_failed(inode, since, size_lock)
    }

    /// The lock; or what has failed since this count of failures, which is reported by that.
    fn unless_failed<'a>(
        &self,
        inode: &Inode,
        since: u64,
        size_lock: SizeLockGuard<'a>,
    ) -> io::Result<SizeLockGuard<'a>> {
        let Some(error) = inode.dirty.failed_since(since) else { return Ok(size_lock) };
        inode.dirty.errseq.report_write(&self.reported_failures);
        Err(error)
    }

    /// Appends the records of a group. Returns the scope of the sync that the group waits for.
    pub(crate) fn append_group(
        &self,
        inode: &Arc<Inode>,
        (group, batch): (Arc<Group>, Batch),
        locked: io::Result<SizeLockGuard<'_>>,
    ) -> SyncScope {
        if let Some(appender) = &batch.appender {
            let appended = locked
                .and_then(|size_lock| self.append_by_kernel(inode, appender, &batch.records, size_lock));
            let _ = group.appended.set(appended.map_err(|error| Cause::of(&error)));
        }
        batch.scope
    }

    /// The offset of a record of a group.
    fn placed(&self, group: &Group, record: Range<usize>) -> Result<u64> {
        let error = match group.appended.get().expect("a group is durable after its records are written") {
            Ok(appended) if record.end <= appended.length_bytes => {
                return Ok(appended.offset_bytes + record.start as u64);
            }
            Ok(_) => io::ErrorKind::StorageFull.into(),
            Err(cause) => cause.error(),
        };
        Err(Error::on_file(Operation::Write, self.path(), error))
    }

    /// Appends at the end as the kernel knows it.
    fn append_by_kernel(
        &self,
        inode: &Arc<Inode>,
        appender: &AppendFile,
        bytes: &[u8],
        size_lock: SizeLockGuard<'_>,
    ) -> io::Result<Appended> {
        self.change_by_kernel(inode, bytes, size_lock, || {
            self.shared().driver.append_blocking(appender, bytes)
        })
    }

    /// Runs a write to the kernel's page cache, and releases the lock before listeners hear of the pages that leave. Blocks for the copy, and
    /// for direct writes that have begun since the flush (I11).
    pub(crate) fn change_by_kernel(
        &self,
        inode: &Arc<Inode>,
        bytes: &[u8],
        size_lock: SizeLockGuard<'_>,
        write: impl FnOnce() -> io::Result<Appended>,
    ) -> io::Result<Appended> {
        let mut claims = Claims::new(self.shared(), inode);
        claims.add(&[ALL_PAGES]);
        claims.wait();
        window_flush::wait_for_stray(inode);
        let (_deferral, mut dropped) = (defer(), Vec::new());
        inode.begin_changes(&self.open, 1);
        let appended = write();
        drop(claims);
        if let Ok(appended) = &appended {
            let written = ByteRange::at(appended.offset_bytes, appended.length_bytes as u64);
            let mut device_length = inode.dirty.device_length();
            *device_length = written.end.max(*device_length);
            drop(device_length);
            inode.dirty.change(self.shared().cache.writes.dirty(), |state| {
                // Others may have appended between the old end and this. Another handle may have written to the last page since the flush.
                let changed = ByteRange::new(inode.length_bytes().min(written.start), written.end);
                inode.drop_changed(state, PageRange::covering(changed), &mut dropped);
                inode.dirty.windows.write(written, bytes);
                inode.grow(written);
                // Pages loaded in between, up to the old end, leave as well.
                inode.drop_changed(state, PageRange::covering(changed), &mut dropped);
                inode.dirty.note_written();
                inode.dirty.note_change();
            });
        }
        inode.end_changes(&self.open, 1);
        inode.on_dropped(&dropped);
        drop(size_lock);
        appended
    }

    /// Bytes that were appended alone: all, or some of them.
    fn some_appended(
        &self,
        inode: &Inode,
        appended: io::Result<Appended>,
        length: usize,
    ) -> Result<Appended> {
        let appended = appended.map_err(|error| self.error(Operation::Write, inode.length_bytes(), error))?;
        inode.lengthened.notify(usize::MAX);
        if appended.length_bytes == 0 && length > 0 {
            return Err(self.error(
                Operation::Write,
                appended.offset_bytes,
                io::ErrorKind::StorageFull.into(),
            ));
        }
        Ok(appended)
    }

    /// The current end of the file; the cached one if this engine's dirty bytes extend the file.
    pub(crate) fn end_bytes(&self, inode: &Arc<Inode>) -> Result<u64> {
        let device_bytes = *inode.dirty.device_length();
        let is_own = inode.length_bytes() > device_bytes;
        let looked = if is_own { self.revalidate(inode) } else { self.check_watch(inode) };
        looked.map(|()| inode.length_bytes()).map_err(|error| self.length_error(error))
    }

    fn no_end(&self) -> Error {
        let error = io::Error::new(io::ErrorKind::NotSeekable, "a device without a length has no end");
        Error::on_file(Operation::Write, self.path(), error)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use headwater_io::DriverKind;

    use crate::api::contents::Contents;
    use crate::{Caching, Engine, OpenOptions};

    /// Goal: an append behind another one, past the engine, shows the bytes of both. Method: the other one comes after the end was
    /// looked at.
    #[test]
    fn an_append_behind_another_shows_both() {
        let engine = Engine::builder().memory(4 << 20).driver(DriverKind::Threads).build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, [1; 100]).unwrap();
        let mut options = OpenOptions::new();
        let log = options.engine(&engine).caching(Caching::On).read(true).append(true).open(&path).unwrap();
        log.read_exact_at(&mut [0; 100], 0).unwrap();
        let Contents::Stored(source) = &log.contents else { panic!("it is a file") };
        let inode = source.known().unwrap();
        let (size_lock, appender) = (source.lock_end(inode).unwrap(), source.appender.as_ref().unwrap());
        let appended = source.change_by_kernel(inode, b"own", size_lock, || {
            std::fs::File::options().append(true).open(&path)?.write_all(&[2; 8000])?;
            engine.shared.driver.append_blocking(appender, b"own")
        });
        assert_eq!(appended.unwrap().offset_bytes, 8100);
        let mut found = [0; 8003];
        log.read_exact_at(&mut found, 100).unwrap();
        assert_eq!((&found[..8000], &found[8000..]), (&[2; 8000][..], &b"own"[..]));
    }
}
