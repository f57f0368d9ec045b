//! Writing: what changes an open file, in the calling thread, and what has the device keep it.
//!
//! Owns: loops around what may be interrupted or short, and the reading of `fallocate`'s answers.
//! Does not own: requests (drivers), when something is written.

use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use headwater_core::units::ByteRange;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::access::{Access, DirectIo, Route};
use super::clock::coarse_clock;
use super::descriptor::Descriptor;
use super::open_file::OpenFile;
use super::status::{Status, positioned_kind};
use crate::system::sys::{self, SyncScope};

/// How a file comes to be when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// A new one where there is none.
    IfMissing,
    /// A new one, or an error where there is one already, or a symbolic link.
    New,
}

/// Whether space was set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocated {
    /// It was; after [`OpenFile::allocate`] the file also reaches to the end of the range.
    Yes,
    /// The file system does not do that; nothing has changed.
    Unsupported,
}

impl OpenFile {
    /// As [`OpenFile::open`], but makes the file if need be, for all to read and write whom the process's mask does not
    /// exclude. A new file stays also when this fails.
    ///
    /// # Errors
    /// Those of [`OpenFile::open`]; `AlreadyExists` with [`Creation::New`]; `InvalidInput` with [`Access::Read`].
    pub fn create(
        path: &Path,
        direct_io: DirectIo,
        access: Access,
        creation: Creation,
    ) -> io::Result<OpenFile> {
        if access == Access::Read {
            let text = "a file that is created is opened for writing";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (looked_at, created) = (coarse_clock(), create(path, creation)?);
        let status = Status::of(&created)?;
        OpenFile::from_ordinary(created, status, looked_at, path, (direct_io, access))
    }

    /// Truncates the file, or extends it by zeroes without storing them.
    ///
    /// # Errors
    /// What `ftruncate(2)` reports.
    pub fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        self.buffered.set_len(length_bytes)
    }

    /// Sets space aside for `range`, zeroes where nothing is stored yet, so that writing there does not find the file
    /// system full. Extends the file to the end of the range.
    ///
    /// # Errors
    /// What `fallocate(2)` reports, other than that it is not supported. Part of the space may be set aside then.
    pub fn allocate(&self, range: ByteRange) -> io::Result<Allocated> {
        self.fallocate(FallocateFlags::empty(), range)
    }

    /// The same without a change to the length: space beyond the end is set aside too, until the file is truncated.
    ///
    /// # Errors
    /// As for [`OpenFile::allocate`].
    pub fn reserve(&self, range: ByteRange) -> io::Result<Allocated> {
        self.fallocate(FallocateFlags::KEEP_SIZE, range)
    }

    /// Makes the file at least this long, sparse, and never shorter, whatever others append at the same time: sets space aside for
    /// the last byte alone (`fallocate(2)`), which overwrites nothing. Where the file system does not do that, looks at the length
    /// and then sets it: what others append in between is cut off.
    ///
    /// # Errors
    /// What `fallocate(2)`, `fstat(2)` and `ftruncate(2)` report. `StorageFull` is possible: the last byte takes a block.
    pub fn extend(&self, length_bytes: u64) -> io::Result<()> {
        if self.length_bytes()? >= length_bytes {
            return Ok(());
        }
        match self.allocate(ByteRange::new(length_bytes - 1, length_bytes))? {
            Allocated::Yes => Ok(()),
            // Appended to since it was looked at.
            Allocated::Unsupported if self.length_bytes()? >= length_bytes => Ok(()),
            Allocated::Unsupported => self.set_len(length_bytes),
        }
    }

    /// How many names the file has; 0 when it was deleted. One system call.
    ///
    /// # Errors
    /// What `fstat(2)` reports.
    pub fn links(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.nlink())
    }

    /// What the file system has room for, as it tells users without privileges; the largest number where it has no limit. Quotas and
    /// what it sets aside for itself are not in it. One system call.
    ///
    /// # Errors
    /// What `fstatfs(2)` reports.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::fstatvfs(&self.buffered)?;
        // A tmpfs without limit has no blocks.
        let is_limited = status.f_blocks > 0;
        Ok(if is_limited { status.f_bavail.saturating_mul(status.f_frsize) } else { u64::MAX })
    }

    fn fallocate(&self, flags: FallocateFlags, range: ByteRange) -> io::Result<Allocated> {
        if range.is_empty() {
            return Ok(Allocated::Yes);
        }
        if i64::try_from(range.end).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        loop {
            match rustix::fs::fallocate(&self.buffered, flags, range.start, range.len()) {
                Ok(()) => return Ok(Allocated::Yes),
                Err(Errno::INTR) => {}
                // INVAL: the range is a good one, so it is the file system that takes none.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(Allocated::Unsupported),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes borrowed memory and returns when the kernel has it all, or the bytes that it took before an error. With
    /// [`Route::Direct`] offset, length and memory must be aligned.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is written, when the direct route meets something unaligned. What `pwrite(2)` reports, if
    /// nothing was written before.
    ///
    /// # Panics
    /// With [`Route::Direct`] on a file without it ([`OpenFile::direct`]).
    pub fn write_blocking(&self, route: Route, bytes: &[u8], offset_bytes: u64) -> io::Result<usize> {
        let file = self.file(route);
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

    /// Makes durable what was written through any descriptor (`fsync(2)`). Blocks.
    ///
    /// # Errors
    /// What `fsync(2)` reports: something that was written is lost. The kernel says so once.
    pub fn sync(&self, scope: SyncScope) -> io::Result<()> {
        loop {
            match sys::sync(self.buffered(), scope) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

/// The ordinary descriptor of a file that may be new.
fn create(path: &Path, creation: Creation) -> io::Result<Descriptor> {
    let flags = OFlags::RDWR | OFlags::CREATE;
    if creation == Creation::New {
        return Descriptor::open(path, flags | OFlags::EXCL);
    }
    // Opening a FIFO would wait for its other end, so look before.
    match std::fs::metadata(path) {
        Ok(metadata) => _ = positioned_kind(rustix::fs::FileType::from_raw_mode(metadata.mode()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Descriptor::open(path, flags)
}
