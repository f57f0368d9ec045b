//! Append: a descriptor with `O_APPEND`, so that programs which append to one file at the same time do not overwrite each other.
//!
//! ```text
//!   append ─► append_lock ─► write(2): the kernel takes the end of the file and writes there, under the inode's lock
//!                     └─► lseek(SEEK_CUR) less the bytes written: their offset
//! ```
//!
//! One append is one system call, so its bytes lie together even if other processes append. `pwritev2(2)` with `RWF_APPEND`
//! would need no descriptor, but does not return the offset; the position of this descriptor shows it, because nothing else
//! moves it. That holds on ext4, XFS, Btrfs and tmpfs, among processes of one kernel, but not on NFS (`open(2)`).
//!
//! Owns: the descriptor, the lock of its position, the offset of each append.
//! Does not own: cached pages, durability.
//! Locks: `append_lock`, from the write until the position is known. The write may block on memory and on the device.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::open_file::OpenFile;
use super::status::{FileKey, FileKind};
use crate::sync::lock;
use crate::system::fork::ProcessMark;
use crate::system::reject::RejectReason;

/// A file open for appending, through the kernel's page cache. Any thread may use it; appends of one `AppendFile` run one after the
/// other.
#[derive(Debug)]
pub struct AppendFile {
    file: Descriptor,
    key: FileKey,
    process: ProcessMark,
    append_lock: Mutex<()>,
}

/// Where appended bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The first byte.
    pub offset_bytes: u64,
    /// How many there are: fewer than were given on a full device, and where a signal ends a write of gigabytes.
    pub length_bytes: usize,
}

impl Appended {
    /// One past the last byte.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes as u64
    }
}

impl AppendFile {
    /// Opens a regular file that is open already once more, for appending. `path` is for systems without `/proc`.
    ///
    /// # Errors
    /// What `open(2)` reports; `Unsupported` for other kinds of files; `ESTALE` if another file is at the path by now.
    pub fn open(file: &OpenFile, path: &Path) -> io::Result<AppendFile> {
        if file.kind() != FileKind::Regular {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let key = FileKey::of_descriptor(file.buffered())?;
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let by_descriptor = format!("/proc/self/fd/{}", file.buffered().as_raw_fd());
        // Miri numbers descriptors in its own way.
        let first = if cfg!(miri) { path } else { Path::new(&by_descriptor) };
        let opened = match Descriptor::open(first, flags) {
            // If a FIFO is at the path by now, the open does not wait for its other end; on files the flag means nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Descriptor::open(path, flags | OFlags::NONBLOCK)
            }
            opened => opened,
        }?;
        if FileKey::of_descriptor(opened.as_fd())? != key {
            return Err(Errno::STALE.into());
        }
        Ok(AppendFile { file: opened, key, process: ProcessMark::here(), append_lock: Mutex::default() })
    }

    /// Writes the bytes at the end of the file, in one piece, and returns where they lie. Blocks as `write(2)` does.
    ///
    /// # Errors
    /// What `write(2)` reports; nothing was written then. [`RejectReason::Forked`] in a child of the process that opened this: the
    /// position is its parent's.
    pub fn append(&self, bytes: &[u8]) -> io::Result<Appended> {
        self.lock()?.append(bytes)
    }

    /// Blocks until this thread alone appends by the descriptor.
    pub(crate) fn lock(&self) -> io::Result<AppendGuard<'_>> {
        if !self.process.is_here() {
            return Err(RejectReason::Forked.into());
        }
        Ok(AppendGuard { file: &self.file, key: self.key, _guard: lock(&self.append_lock) })
    }
}

/// The right to append by this descriptor, until dropped.
pub(crate) struct AppendGuard<'a> {
    file: &'a File,
    key: FileKey,
    _guard: MutexGuard<'a, ()>,
}

impl AppendGuard<'_> {
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<Appended> {
        if bytes.is_empty() {
            return Ok(Appended { offset_bytes: self.end()?, length_bytes: 0 });
        }
        let length_bytes = loop {
            match (&mut &*self.file).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // Nothing was written.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        let end = (&mut &*self.file).stream_position()?;
        Ok(Appended { offset_bytes: end - length_bytes as u64, length_bytes })
    }

    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    /// Where the next append lands, unless another process appends first.
    pub(crate) fn end(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
