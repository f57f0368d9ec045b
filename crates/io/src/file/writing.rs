//! Writing: writes, truncates, allocations and syncs of an open file, in the calling thread.
//!
//! Owns: loops around calls that may be interrupted or short, the interpretation of `fallocate`'s errors.
//! Does not own: requests (drivers), when to write.

use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use headwater_core::units::ByteRange;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::access::{Access, Creation, DirectIo, Opening, Route};
use super::open_file::OpenFile;
use super::status::FileKind;
use crate::system::sys::{self, SyncScope};

/// Whether space was reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocated {
    /// It was; after [`OpenFile::allocate`] the file also reaches to the end of the range.
    Yes,
    /// The file system does not support it; nothing has changed.
    Unsupported,
}

impl OpenFile {
    /// As [`OpenFile::open`], but creates the file if need be, with permissions 0666 less the process's umask. A file that this call has
    /// created is removed again when it fails.
    ///
    /// # Errors
    /// Those of [`OpenFile::open`]; `AlreadyExists` with [`Creation::New`]; `InvalidInput` with [`Access::Read`].
    pub fn create(
        path: &Path,
        direct_io: DirectIo,
        access: Access,
        creation: Creation,
    ) -> io::Result<OpenFile> {
        let opening = Opening { creation: Some(creation), ..Opening::default() };
        OpenFile::open_as(path, direct_io, access, &opening)
    }

    /// Truncates the file, or extends it by zeroes without storing them.
    ///
    /// # Errors
    /// What `ftruncate(2)` reports.
    pub fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        self.ordinary.set_len(length_bytes)
    }

    /// Reserves space for `range`, as zeroes where nothing is stored yet, so that a write there does not find the file system full.
    /// Extends the file to the end of the range.
    ///
    /// # Errors
    /// What `fallocate(2)` reports, other than that it is not supported. Part of the space may be reserved then.
    pub fn allocate(&self, range: ByteRange) -> io::Result<Allocated> {
        self.fallocate(FallocateFlags::empty(), range)
    }

    /// The same without a change of the length: space beyond the end is reserved too, until the file is truncated.
    ///
    /// # Errors
    /// As for [`OpenFile::allocate`].
    pub fn reserve(&self, range: ByteRange) -> io::Result<Allocated> {
        self.fallocate(FallocateFlags::KEEP_SIZE, range)
    }

    /// Makes the file at least this long, sparse, and never shorter, even if others append at the same time: reserves space for
    /// the last byte alone (`fallocate(2)`), which overwrites nothing. Where the file system does not support that, reads the length
    /// and then sets it: bytes that others append in between are cut off.
    ///
    /// # Errors
    /// What `fallocate(2)`, `fstat(2)` and `ftruncate(2)` report. `StorageFull` is possible: the last byte takes a block.
    pub fn extend(&self, length_bytes: u64) -> io::Result<()> {
        if self.length_bytes()? >= length_bytes {
            return Ok(());
        }
        match self.allocate(ByteRange::new(length_bytes - 1, length_bytes))? {
            Allocated::Yes => Ok(()),
            // Another process has appended since the length was read.
            Allocated::Unsupported if self.length_bytes()? >= length_bytes => Ok(()),
            Allocated::Unsupported => self.set_len(length_bytes),
        }
    }

    /// Number of the file's names (hard links); 0 when it was deleted. One system call.
    ///
    /// # Errors
    /// What `fstat(2)` reports.
    pub fn links(&self) -> io::Result<u64> {
        Ok(self.ordinary.metadata()?.nlink())
    }

    /// Free space of the file system for unprivileged users, in bytes; `u64::MAX` where it has no limit. Without regard to quotas
    /// and to reserves of the file system. One system call.
    ///
    /// # Errors
    /// What `fstatfs(2)` reports.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::fstatvfs(&self.ordinary)?;
        // A tmpfs without limit has no blocks.
        let is_limited = status.f_blocks > 0;
        Ok(if is_limited { status.f_bavail.saturating_mul(status.f_frsize) } else { u64::MAX })
    }

    fn fallocate(&self, flags: FallocateFlags, range: ByteRange) -> io::Result<Allocated> {
        if range.is_empty() {
            return Ok(Allocated::Yes);
        }
        // Miri has no `fallocate(2)`.
        if cfg!(miri) {
            return Ok(Allocated::Unsupported);
        }
        if i64::try_from(range.end).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        loop {
            match rustix::fs::fallocate(&self.ordinary, flags, range.start, range.len()) {
                Ok(()) => return Ok(Allocated::Yes),
                Err(Errno::INTR) => {}
                // INVAL: the range is valid, so the file system takes none.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(Allocated::Unsupported),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes borrowed memory and returns when the kernel has all of it, or had taken some bytes before an error. With
    /// [`Route::Direct`] offset, length and memory must be aligned.
    ///
    /// # Errors
    /// `InvalidInput` if the transfer is unaligned on the direct route; nothing is written then. What `pwrite(2)` reports, if
    /// nothing was written before.
    ///
    /// # Panics
    /// With [`Route::Direct`] on a file without it ([`OpenFile::direct`]).
    pub fn write_blocking(&self, route: Route, bytes: &[u8], offset_bytes: u64) -> io::Result<usize> {
        // Other calls than requests do not heed the flags of a regular file's descriptor.
        let is_plain = route == Route::Buffered && self.kind() == FileKind::Regular;
        let file = if is_plain { &self.ordinary } else { self.file(route) };
        self.check_aligned(route, (bytes.as_ptr(), bytes.len()), offset_bytes)?;
        let mut done_bytes = 0;
        while done_bytes < bytes.len() {
            match file.write_at(&bytes[done_bytes..], offset_bytes + done_bytes as u64) {
                Ok(0) if done_bytes == 0 => return Err(io::ErrorKind::WriteZero.into()),
                Ok(0) => break,
                Ok(written_bytes) => done_bytes += written_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if done_bytes > 0 => break,
                Err(error) => return Err(error),
            }
            if self.ends_transfer(route, done_bytes) {
                break;
            }
        }
        Ok(done_bytes)
    }

    /// Makes earlier writes through any descriptor durable (`fsync(2)`). Blocks.
    ///
    /// # Errors
    /// What `fsync(2)` reports: written bytes are lost. The kernel reports it once.
    pub fn sync(&self, scope: SyncScope) -> io::Result<()> {
        loop {
            match sys::sync(self.buffered(), scope) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}
