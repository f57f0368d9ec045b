//! Positional reads: blocking into the caller's buffer, asynchronous into a frame.
//!
//! ```text
//!   read_at ─┬─ in memory ─────────► copied
//!            ├─ cached ────────────► up to 16 KiB: optimistic reads, else through the cache (`cached`)
//!            ├─ character device ──► pread
//!            └─ else ─► page cache (RWF_NOWAIT) ─┬─ all there ─► done
//!                                                └─ rest ─┬─ small ─► pread in this thread, through a frame if unaligned
//!                                                         └─ large ─► read stream: runs in flight at once, copied in order
//!   read_at_async ─► the same paths; around the cache one request into one frame, lent as Bytes; large reads are assembled
//! ```
//!
//! Owns: the choice between these, and reading without the cache.
//! Does not own: the cache (cached), readahead (a read around the cache starts none).
//! Invariants: I4 memory of the caller is given to the kernel only during blocking calls.
//! Hot path: cached: see `cached`. Resident: 1 system call, 1 copy, no allocation. Direct and aligned: 1 more system call, no
//! copy in user space.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use headwater_core::backing::{Backing, Form};
use headwater_core::units::ByteRange;
use headwater_io::OptimisticRead;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::addressable;
use crate::engine::handle::{Entry, Source};

impl File {
    /// Reads at `offset_bytes` into `buffer`, as `std::os::unix::fs::FileExt::read_at` does, and fills it unless the file ends
    /// first. Returns the bytes read; 0 at or beyond the end. Blocks; needs no alignment. The rest of `buffer`, behind the bytes
    /// read, is unspecified: a direct read into aligned memory delivers the last block of the file whole.
    ///
    /// # Errors
    /// What the device reports, with path and offset, if no byte was read; `PermissionDenied` when the file is not open for reading.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        match &self.contents {
            Contents::Stored(source)
                if source.read_optimistic(buffer, offset_bytes) == OptimisticRead::Copied =>
            {
                Ok(buffer.len())
            }
            Contents::Stored(source) => source.read_at(buffer, offset_bytes),
            Contents::Memory(memory) => memory.read_at(buffer, offset_bytes),
        }
    }

    /// Fills `buffer` from `offset_bytes` on, as `std::os::unix::fs::FileExt::read_exact_at` does. Blocks.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before `buffer` is full, else as [`File::read_at`]. The buffer's contents are then
    /// unspecified.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset_bytes + done as u64)? {
                0 => return Err(self.ended_early(offset_bytes + done as u64)),
                read_bytes => done += read_bytes,
            }
        }
        Ok(())
    }

    /// Reads at `offset_bytes` into the buffers in order, as `preadv(2)` does. Returns the bytes read, fewer than the buffers have room
    /// for only where the file ends. Otherwise as [`File::read_at`].
    ///
    /// ```
    /// let file = headwater::File::from_bytes("header, body");
    /// let (mut header, mut body) = ([0; 6], [0; 10]);
    /// let mut buffers = [std::io::IoSliceMut::new(&mut header), std::io::IoSliceMut::new(&mut body)];
    /// assert_eq!(file.read_vectored_at(&mut buffers, 0)?, 12);
    /// assert_eq!((&header, &body[..6]), (b"header", &b", body"[..]));
    /// # headwater::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`File::read_at`], if no byte was read.
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset_bytes: u64) -> Result<usize> {
        let mut done = 0;
        for buffer in buffers {
            let end = done + buffer.len();
            match self.read_at(buffer, offset_bytes.saturating_add(done as u64)) {
                Ok(read_bytes) => done += read_bytes,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if done < end {
                break;
            }
        }
        Ok(done)
    }

    /// Reads up to `length` bytes at `offset_bytes`; fewer only at the end of the file. The bytes share the engine's memory if they are 512
    /// or more and lie in one cached page, or up to 2 MiB and read around the cache; others are copied into memory of their own. A file in
    /// memory shares its bytes, whatever the length. The future is `Send`, runs on any executor and may be dropped at any moment.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static + use<> {
        let file = self.clone();
        async move {
            match &file.contents {
                Contents::Stored(source) => source.read_at_async(offset_bytes, length).await,
                Contents::Memory(memory) => memory.slice(offset_bytes, length),
            }
        }
    }

    /// Reads exactly `length` bytes at `offset_bytes`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before `length` bytes, else as [`File::read_at`].
    pub fn read_exact_at_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<Bytes>> + Send + 'static + use<> {
        let (file, reading) = (self.clone(), self.read_at_async(offset_bytes, length));
        async move {
            let bytes = reading.await?;
            if bytes.len() == length {
                return Ok(bytes);
            }
            // Either the file ended, or the device failed there: reading the rest tells which.
            let mut assembled = BytesMut::from(bytes);
            while assembled.len() < length {
                let (end_bytes, left) = (offset_bytes + assembled.len() as u64, length - assembled.len());
                let rest = file.read_at_async(end_bytes, left).await?;
                if rest.is_empty() {
                    return Err(file.ended_early(end_bytes));
                }
                assembled.extend_from_slice(&rest);
            }
            Ok(assembled.freeze())
        }
    }

    pub(crate) fn ended_early(&self, offset_bytes: u64) -> Error {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here");
        Error::at(Operation::Read, self.path(), offset_bytes, error)
    }
}

impl Source {
    /// Copies bytes of cached pages that are in frequent use, by optimistic reads: all of them or none.
    #[inline]
    fn read_optimistic(&self, buffer: &mut [u8], offset_bytes: u64) -> OptimisticRead {
        match self.entered() {
            Some(Entry::Cached(inode)) => inode.read_optimistic(buffer, offset_bytes, self.revalidate_after),
            _ => OptimisticRead::Failed,
        }
    }

    fn read_at(self: &Arc<Self>, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        self.check_read(offset_bytes)?;
        let range = addressable(self.path(), offset_bytes, buffer.len())?;
        let buffer = &mut buffer[..range.len() as usize];
        if let Some(read_bytes) = self.read_once(buffer, offset_bytes) {
            return Ok(read_bytes);
        }
        match (self.inode_for(range), self.open.form()) {
            (Some(inode), _) => {
                let read_bytes = self.read_cached(inode, buffer, range)?;
                inode.after_read(ByteRange::at(range.start, read_bytes as u64));
                Ok(read_bytes)
            }
            (None, Form::Direct | Form::InMemory) => {
                let read = Backing::read_at(&*self.open, buffer, range.start);
                read.map_err(|error| self.read_error(range.start, error))
            }
            (None, Form::Cached) => self.read_uncached(buffer, range),
        }
    }

    async fn read_at_async(self: &Arc<Self>, offset_bytes: u64, length: usize) -> Result<Bytes> {
        self.check_read(offset_bytes)?;
        let range = addressable(self.path(), offset_bytes, length)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = self.read_once_async(range).await {
            return Ok(bytes);
        }
        let Some(inode) = self.inode_for(range) else { return self.read_device_async(range).await };
        let bytes = self.read_cached_async(inode, range).await?;
        inode.after_read(ByteRange::at(range.start, bytes.len() as u64));
        Ok(bytes)
    }
}
