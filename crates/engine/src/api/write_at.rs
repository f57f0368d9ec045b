//! Positional writes: into the cache, and from there to the file.
//!
//! Owns: the interface.
//! Does not own: the write itself, writeback, syncs (`write/`), copies within and between files (copy_range).

use std::io::{self, IoSlice};
use std::ops::RangeBounds;
use std::sync::Arc;

use bytes::Bytes;
use headwater_io::SyncScope;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::Source;

impl File {
    /// Writes `bytes` at `offset_bytes`, as `std::os::unix::fs::FileExt::write_at` does; needs no alignment. A write beyond the
    /// end extends the file, with zeros in between. Returns the bytes written. They are visible at once through every handle of
    /// the same engine, to other programs after [`File::flush`]; without a sync they are lost if the process is killed. May
    /// block: to load pages that are written in part, and while too many pages are dirty.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; `InvalidInput` or `FileTooLarge` for offsets that files cannot
    /// have, and `InvalidInput` if the file was opened with [`OpenOptions::append`](crate::OpenOptions::append); `StorageFull`
    /// when the device has no room; what the device reports, with path and offset, if no byte was written. A failed writeback of
    /// earlier bytes is reported once to each handle, by the next write or sync; those bytes stay dirty, and writeback tries
    /// again.
    pub fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.writable(Operation::Write)?.write_at(bytes, offset_bytes)
    }

    /// Writes the buffers in order at `offset_bytes`, as `pwritev(2)` does. Returns the bytes written. Otherwise as [`File::write_at`],
    /// also in that a reader beside it may see some of the bytes and not others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use std::io::{IoSlice, IoSliceMut};
    /// let file = headwater::File::create(&path)?;
    /// assert_eq!(file.write_vectored_at(&[IoSlice::new(b"head"), IoSlice::new(b"water")], 1)?, 9);
    /// let (mut first, mut second) = ([0; 5], [0; 10]);
    /// let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    /// assert_eq!(file.read_vectored_at(&mut buffers, 0)?, 10);
    /// assert_eq!((&first, &second[..5]), (b"\0head", &b"water"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset_bytes: u64) -> Result<usize> {
        let source = self.writable(Operation::Write)?;
        let mut done = 0;
        for buffer in buffers {
            let (end, reported) = (done + buffer.len(), source.reported());
            match source.write_at(buffer, offset_bytes.saturating_add(done as u64)) {
                Ok(written_bytes) => done += written_bytes,
                Err(_) if done > 0 => {
                    source.report_again(reported);
                    break;
                }
                Err(error) => return Err(error),
            }
            if done < end {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// As [`File::write_at`]; some of the bytes may be written then.
    pub fn write_all_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write_at(&bytes[done..], offset_bytes + done as u64)?;
        }
        Ok(())
    }

    /// Writes all of `bytes` at the end of the file, and returns the offset. Appends through any handle of the same engine never
    /// overlap.
    ///
    /// # Errors
    /// As [`File::write_at`]; a first part of the bytes may be in the file then. With [`OpenOptions::append`](crate::OpenOptions::append) also what keeps earlier bytes of this engine off the
    /// device, because the appended ones come behind them.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.writable(Operation::Write)?.append(bytes)
    }

    /// Writes all of `bytes` at the end of the file, and returns their offset once they survive a power loss: [`File::append`] and
    /// [`File::sync_data`] in one call. Blocks for the device. Concurrent callers share one `fdatasync(2)`, and those of handles
    /// opened with [`OpenOptions::append`](crate::OpenOptions::append) one `write(2)` as well: records of up to 64 KiB, each whole
    /// and in an order of the engine's choice. Such a caller may wait for others that have just been served, at most as long as a
    /// sync takes.
    ///
    /// After `Ok` these bytes, the file's length, and every write that had returned before the call are durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("log");
    /// let log = headwater::OpenOptions::new().create(true).append(true).open(&path)?;
    /// let offsets = std::thread::scope(|scope| {
    ///     let threads = [0, 1, 2].map(|_| scope.spawn(|| log.append_durable(b"a record\n")));
    ///     threads.map(|thread| thread.join().expect("no panic"))
    /// });
    /// let mut offsets = offsets.into_iter().collect::<headwater::Result<Vec<u64>>>()?;
    /// offsets.sort_unstable();
    /// assert_eq!(offsets, [0, 9, 18]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::append`] and [`File::sync_data`]. After an error of [`Operation::Write`](crate::Operation::Write) none or a first
    /// part of the bytes is in the file; after one of [`Operation::Sync`](crate::Operation::Sync) all of them may be in the file,
    /// and whether they survive a power loss is unknown. A failed `fdatasync(2)` is reported to every caller that waits for it,
    /// and later calls fail without writing.
    pub fn append_durable(&self, bytes: &[u8]) -> Result<u64> {
        self.writable(Operation::Write)?.append_durable(bytes)
    }

    /// Truncates the file, or extends it with zeros, of which the last block at the most takes room on the device. Blocks.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; what `ftruncate(2)` reports.
    pub fn set_len(&self, length_bytes: u64) -> Result<()> {
        self.writable(Operation::SetLength)?.set_len(length_bytes)
    }

    /// Reserves space on the device for a range, so that writes there do not find it full. The length stays. Space beyond it stays
    /// reserved until the file is truncated; an engine that has appended durably also gives it back when it closes the file. Blocks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use std::os::unix::fs::MetadataExt;
    /// let file = headwater::File::create(&path)?;
    /// match file.allocate(..1 << 20) {
    ///     Ok(()) => assert!(std::fs::metadata(&path)?.blocks() >= (1 << 20) / 512),
    ///     Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
    /// }
    /// assert_eq!(file.len()?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; `Unsupported` where the file system reserves no space;
    /// `StorageFull`, and what else `fallocate(2)` reports; `InvalidInput` for a range that ends before it begins.
    pub fn allocate(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.writable(Operation::Allocate)?.allocate(&range)
    }

    /// Makes the bytes of a range zeros, and gives the room of whole pages among them back to the device; where the file system makes
    /// no holes, writes zeros. The length stays. Views keep what they show; in a contiguous window, whose zeros are written back as other
    /// stores are, the pages take their room again. A read beside this call may see some of the bytes as zeros and others not yet.
    /// Blocks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// let file = headwater::File::create(&path)?;
    /// file.write_all_at(&[7; 20_000], 0)?;
    /// file.punch_hole(1000..)?;
    /// assert_eq!(file.len()?, 20_000);
    /// assert_eq!(file.view(998, 4)?, [7, 7, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; what `fallocate(2)` reports, and [`File::write_at`] for the pages at
    /// the edges; some of the bytes may be zeros then. `InvalidInput` for a range that ends before it begins.
    pub fn punch_hole(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.writable(Operation::PunchHole)?.punch_hole(&range)
    }

    /// Writes back all earlier writes, through any handle of the same engine, so that other programs see them in the file. A
    /// power loss may undo them; [`File::sync_data`] prevents that. Blocks for the device, but not for its `fdatasync(2)`.
    ///
    /// Not what `flush` of a [`Writer`](crate::Writer) is, which hands its buffer to the engine, nor that of `std::fs::File`, which does
    /// nothing:
    ///
    /// | after | readers of this engine | other programs, a killed process | a power loss |
    /// |---|---|---|---|
    /// | `write` of a `Writer` | may lack it | may lack it | may undo it |
    /// | `flush` of a `Writer`, [`File::write_at`], [`File::append`] | have it | may lack it | may undo it |
    /// | [`File::flush`], [`Engine::flush`](crate::Engine::flush), [`File::unlock`] | have it | have it | may undo it |
    /// | [`File::sync_data`], [`Writer::sync`](crate::Writer::sync), [`File::append_durable`] | have it | have it | leaves it, and the length |
    /// | [`File::sync_all`] | have it | have it | leaves it, length, times and permissions |
    ///
    /// Through a handle opened with [`OpenOptions::append`](crate::OpenOptions::append), each append is in the file at once, as after
    /// [`File::flush`].
    ///
    /// The file's modification time is that of this, or of an earlier write back by the engine, and not that of the write.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("lines");
    /// let file = headwater::File::create(&path)?;
    /// file.append(b"for another program\n")?;
    /// assert!(!file.is_clean());
    /// file.flush()?;
    /// assert!(file.is_clean());
    /// assert_eq!(std::fs::read(&path)?, b"for another program\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the device reports, once to each handle. After a failed `fdatasync(2)` of the file every later call fails as well,
    /// because the state of the device is then unknown.
    pub fn flush(&self) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.flush(),
            Contents::Memory(_) => Ok(()),
        }
    }

    /// Whether the file has all that was written through this engine, as after [`File::flush`]. Says nothing about a power loss.
    /// No system call; `true` in a forked child, which has no dirty pages.
    pub fn is_clean(&self) -> bool {
        match &self.contents {
            Contents::Stored(source) if !source.shared().driver.is_forked() => {
                source.known().is_none_or(|inode| !inode.dirty.may_lack())
            }
            Contents::Stored(_) | Contents::Memory(_) => true,
        }
    }

    /// Returns when all earlier writes, through any handle of the same engine, survive a power loss: data, and the length if it
    /// changed. Blocks. Concurrent callers share one `fdatasync(2)`. [`File::flush`] has a table of what such calls guarantee.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncScope::Data)
    }

    /// As [`File::sync_data`], including times and permissions.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncScope::All)
    }

    /// As [`File::write_all_at`], for tasks on any executor. May be dropped at any moment; some of the bytes may then be written.
    ///
    /// The other calls of this kind beside it:
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let file = headwater::File::create(&path)?;
    /// file.write_all_at_async("one two three", 0).await?;
    /// assert_eq!(file.read_exact_at_async(4, 3).await?, "two");
    /// file.punch_hole_async(3..8).await?;
    /// file.set_len_async(9).await?;
    /// file.flush_async().await?; // Other programs see it,
    /// assert_eq!(std::fs::read(&path).expect("it is there"), b"one\0\0\0\0\0t");
    /// file.sync_all_async().await?; // and a power loss undoes nothing of it.
    /// assert_eq!(file.append_durable_async(" -- the end").await?, 9);
    /// assert_eq!(file.append_async("!").await?, 20);
    /// file.sync_data_async().await?;
    /// # headwater::Result::Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::write_all_at`].
    pub fn write_all_at_async(
        &self,
        bytes: impl Into<Bytes>,
        offset_bytes: u64,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move { file.write_slice_async(&bytes, offset_bytes).await }
    }

    pub(crate) async fn write_slice_async(&self, bytes: &[u8], offset_bytes: u64) -> Result<()> {
        let source = self.writable(Operation::Write)?;
        let mut done = 0;
        while done < bytes.len() {
            done += source.write_at_async(&bytes[done..], offset_bytes + done as u64).await?;
        }
        Ok(())
    }

    /// As [`File::append`], for tasks.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_async(
        &self,
        bytes: impl Into<Bytes>,
    ) -> impl Future<Output = Result<u64>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move { file.writable(Operation::Write)?.append_async(&bytes).await }
    }

    /// As [`File::append_durable`], for tasks. If it is dropped, the bytes may be appended all the same.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::append_durable`].
    pub fn append_durable_async(
        &self,
        bytes: impl Into<Bytes>,
    ) -> impl Future<Output = Result<u64>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move { file.writable(Operation::Write)?.append_durable_async(&bytes).await }
    }

    /// As [`File::set_len`], for tasks.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub fn set_len_async(&self, length_bytes: u64) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.writable(Operation::SetLength)?.set_len_async(length_bytes).await }
    }

    /// As [`File::punch_hole`], for tasks.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::punch_hole`].
    pub fn punch_hole_async(
        &self,
        range: impl RangeBounds<u64> + Send + Sync + 'static,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.writable(Operation::PunchHole)?.punch_hole_async(&range).await }
    }

    /// As [`File::flush`], for tasks.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn flush_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move {
            match &file.contents {
                Contents::Stored(source) => source.flush_async().await,
                Contents::Memory(_) => Ok(()),
            }
        }
    }

    /// As [`File::sync_data`], for tasks.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync_data_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.sync_async(SyncScope::Data).await }
    }

    /// As [`File::sync_all`], for tasks.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the file may wait for it.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_all_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.sync_async(SyncScope::All).await }
    }

    /// Bytes in memory need no sync.
    fn sync(&self, scope: SyncScope) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.sync(scope),
            Contents::Memory(_) => Ok(()),
        }
    }

    async fn sync_async(&self, scope: SyncScope) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.sync_async(scope).await,
            Contents::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn writable(&self, operation: Operation) -> Result<&Arc<Source>> {
        let refused = || {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "the file is not open for writing");
            Error::on_file(operation, self.path(), error)
        };
        match &self.contents {
            Contents::Stored(source) if source.access.writes() => Ok(source),
            _ => Err(refused()),
        }
    }
}
