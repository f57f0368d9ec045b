//! Once: a file that is opened, examined, perhaps read whole, and closed, with one descriptor.
//!
//! ```text
//!   open ─► fstat ─► known to a cache? its bytes, close
//!              ├───► small and new? cachestat ─┬─ all in the kernel's page cache ─► pread, close
//!              │                               └─ else ─► the descriptor becomes O_DIRECT ─► pread into aligned memory, close
//!              └───► else ─► the descriptor becomes an `OpenFile`'s
//! ```
//!
//! Only `open(2)` makes all the checks that may forbid reading a file: permissions, Landlock, security modules, listeners of
//! fanotify. All later calls use the descriptor, so they concern the file that was opened, even if its name leads elsewhere.
//!
//! Owns: the descriptor, from opening to closing or to its becoming an [`OpenFile`]'s.
//! Does not own: the cache, the fallback where this does not work.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES};
use rustix::fs::{OFlags, fcntl_setfl};

use super::access::{Access, DirectIo, let_wait, open_unwaiting};
use super::clock::coarse_clock;
use super::descriptor::Descriptor;
use super::open_file::{OpenFile, Opened};
use super::status::{FileKind, Status};
use crate::file::kernel_cache::resident_pages;

/// A file opened for reading, and the one look at it.
#[derive(Debug)]
pub struct SeenFile {
    /// Closed with this, unless it becomes an [`OpenFile`]'s.
    descriptor: Descriptor,
    status: Status,
    looked_at: Duration,
}

/// The bytes of a whole file, within memory that is larger.
pub struct WholeFile {
    /// The memory.
    pub memory: Vec<u8>,
    /// Which part of it is the file.
    pub file: Range<usize>,
}

impl SeenFile {
    /// Opens a regular file, block device or character device for reading, and looks at it: two system calls. Waits for
    /// a lease of another process, but for nothing else.
    ///
    /// # Errors
    /// As [`OpenFile::open`] without direct I/O.
    pub fn open(path: &Path) -> io::Result<SeenFile> {
        let looked_at = coarse_clock();
        let descriptor = open_unwaiting(path, Access::Read)?;
        let status = Status::in_brief(&descriptor)?;
        Ok(SeenFile { descriptor, status, looked_at })
    }

    /// What was seen of the file when it was opened.
    pub fn opened(&self) -> Opened {
        Opened { key: self.status.key, stamp: self.status.stamp, looked_at: self.looked_at }
    }

    /// What kind of file.
    pub fn kind(&self) -> FileKind {
        self.status.kind
    }

    /// Reads all of a regular file, around the kernel's page cache unless that has all of it: at most four system calls, of
    /// which the last finds the end. `None` where that does not work (no `O_DIRECT`, a kernel that does not tell what it
    /// caches) or is not all (the file has become longer or shorter since it was opened): another way is to be taken then.
    /// Blocks.
    ///
    /// # Errors
    /// What `pread(2)` reports, whatever was read before.
    pub fn read_whole(&self) -> io::Result<Option<WholeFile>> {
        let length_bytes = self.status.stamp.length_bytes;
        let cached = resident_pages(self.descriptor.as_fd(), ByteRange::new(0, length_bytes));
        let Some(cached_pages) = cached else { return Ok(None) };
        let is_cached = cached_pages >= length_bytes.div_ceil(PAGE_SIZE_BYTES);
        if !is_cached && fcntl_setfl(&self.descriptor, OFlags::DIRECT).is_err() {
            return Ok(None);
        }
        read_to_end(&self.descriptor, length_bytes)
    }

    /// Goes on with the same descriptor as an open file.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn into_open_file(self, path: &Path, direct_io: DirectIo) -> io::Result<OpenFile> {
        let_wait(&self.descriptor)?;
        let status = Status::of(&self.descriptor)?;
        OpenFile::from_ordinary(self.descriptor, status, self.looked_at, path, (direct_io, Access::Read))
    }
}

/// Into memory with room for a byte more, so that the end shows.
fn read_to_end(file: &File, length_bytes: u64) -> io::Result<Option<WholeFile>> {
    let length = length_bytes as usize;
    let room = (length + 1).next_multiple_of(PAGE_BYTES);
    let mut memory = vec![0; room + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    let mut done = 0;
    while done < room {
        match file.read_at(&mut memory[start + done..start + room], done as u64) {
            Ok(read_bytes) => {
                done += read_bytes;
                let is_end = read_bytes == 0 || !done.is_multiple_of(PAGE_BYTES);
                if is_end {
                    // A read that stops within a page met the end of the file, or an error that the next read would report.
                    // The length tells which.
                    let whole = WholeFile { memory, file: start..start + done };
                    return Ok((done == length).then_some(whole));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Of a device with larger blocks, of whatever has no positions, and see `OpenFile::may_read_buffered`.
            Err(error)
                if [libc::EINVAL, libc::ESPIPE, libc::EIO].map(Some).contains(&error.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
