//! Positional writes: into the cache, and from there to the file.
//!
//! Owns: the interface.
//! Does not own: writeback.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use headwater_io::{Access, SyncScope};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::Source;

impl File {
    /// Writes `bytes` at `offset_bytes`, as `std::os::unix::fs::FileExt::write_at` does; needs no alignment. A write beyond
    /// the end makes the file longer, with zeros in between. Returns the bytes written. The bytes can be read at once by
    /// everybody who uses the same engine, by others after [`File::sync_data`]; unless synced, they are lost if the process
    /// is killed. May block: for pages that are written in part, and while too much is unwritten.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; `InvalidInput` or `FileTooLarge` for offsets that files do
    /// not have, and `InvalidInput` if the file was opened with [`OpenOptions::append`](crate::OpenOptions::append); `StorageFull` when the
    /// device has no room for it; what the device reports, with path and offset, if no byte was written. A write-back of earlier
    /// bytes that has failed is reported once to each handle, by the next write or sync; those bytes are kept, and tried again.
    pub fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.writable(Operation::Write)?.write_at(bytes, offset_bytes)
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

    /// Writes all of `bytes` at the end of the file, and says where that was. Appends through any handle of the same engine
    /// never overlap.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.writable(Operation::Write)?.append(bytes)
    }

    /// Cuts the file, or makes it longer with zeros that take no room. Blocks.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is not open for writing; what `ftruncate(2)` reports.
    pub fn set_len(&self, length_bytes: u64) -> Result<()> {
        self.writable(Operation::SetLength)?.set_len(length_bytes)
    }

    /// Returns when all that was written before, through whatever handle of the same engine, is in the file for other programs to see.
    /// It may be lost with power; [`File::sync_data`] prevents that. Blocks for the device, but not for its `fdatasync(2)`.
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
    /// What the device reports, once to each handle. After a failed `fdatasync(2)` of the file every later call fails as well: what
    /// is on the device is not known any more.
    pub fn flush(&self) -> Result<()> {
        match &self.contents {
            Contents::Stored(source) => source.flush(),
            Contents::Memory(_) => Ok(()),
        }
    }

    /// Whether the file has all that was written through this engine, as [`File::flush`] leaves it. Says nothing of a loss of power. No
    /// system call; `true` in a forked child, which has none of it.
    pub fn is_clean(&self) -> bool {
        match &self.contents {
            Contents::Stored(source) if !source.shared().driver.is_forked() => {
                source.known().is_none_or(|inode| !inode.dirty.may_lack())
            }
            Contents::Stored(_) | Contents::Memory(_) => true,
        }
    }

    /// Returns when all that was written before, through whatever handle of the same engine, survives a loss of power: data,
    /// and the length if it changed. Blocks. Callers at the same time share one `fdatasync(2)`.
    ///
    /// # Errors
    /// What the device reports, once to each handle. After a failed `fdatasync(2)` of the file every later call fails as well: what
    /// is on the device is not known any more.
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncScope::Data)
    }

    /// As [`File::sync_data`], with times and permissions.
    ///
    /// # Errors
    /// As there.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncScope::All)
    }

    /// As [`File::write_all_at`], for tasks on any executor. May be dropped at any moment; some of the bytes may be written
    /// then.
    ///
    /// # Errors
    /// As there.
    pub fn write_all_at_async(
        &self,
        bytes: impl Into<Bytes>,
        offset_bytes: u64,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move {
            let source = file.writable(Operation::Write)?;
            let mut done = 0;
            while done < bytes.len() {
                done += source.write_at_async(&bytes[done..], offset_bytes + done as u64).await?;
            }
            Ok(())
        }
    }

    /// As [`File::append`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn append_async(
        &self,
        bytes: impl Into<Bytes>,
    ) -> impl Future<Output = Result<u64>> + Send + 'static {
        let (file, bytes) = (self.clone(), bytes.into());
        async move { file.writable(Operation::Write)?.append_async(&bytes).await }
    }

    /// As [`File::set_len`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn set_len_async(&self, length_bytes: u64) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.writable(Operation::SetLength)?.set_len_async(length_bytes).await }
    }

    /// As [`File::flush`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
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
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn sync_data_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.sync_async(SyncScope::Data).await }
    }

    /// As [`File::sync_all`], for tasks.
    ///
    /// Until it is done or dropped it has to be polled when woken: others who append, cut or sync the file may wait for it.
    ///
    /// # Errors
    /// As there.
    pub fn sync_all_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let file = self.clone();
        async move { file.sync_async(SyncScope::All).await }
    }

    /// Nothing is to be done for bytes in memory.
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
            Contents::Stored(source) if source.access == Access::ReadWrite => Ok(source),
            _ => Err(refused()),
        }
    }
}
