//! Whole: small files, each read at once by the thread that opened it.
//!
//! ```text
//!   open with O_DIRECT ─► fstat ─► cachestat ─┬─ all in the page cache ─► O_DIRECT off ─► pread from there
//!                                             └─ else ─► pread from the device ─► cachestat: nothing has come in
//! ```
//!
//! Many threads wait here at the same time, which keeps the device's queue as full as a ring does, and a file costs no
//! more than is drawn above: the two descriptors of an `OpenFile`, and looking up their alignment, cost twice as many.
//!
//! Owns: the descriptor of a file, and whether it is direct.
//! Does not own: memory, hashing, larger files.
//! Hot path: 6 system calls a file that is not cached.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use headwater::ByteRange;
use headwater::testing::resident_pages;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::buffer::Buffer;
use super::extents::{PAGE_BYTES, Unreadable, locate};

/// A file that is open for being read once.
pub(super) struct Input {
    file: File,
    pub(super) kind: Kind,
    pub(super) length_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Regular,
    BlockDevice,
}

impl Input {
    /// # Errors
    /// What `open(2)` reports; `Unsupported` for files that can only be streamed.
    pub(super) fn open(path: &Path) -> io::Result<Input> {
        // Should it have become a FIFO, opening it does not wait.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = |flags| rustix::fs::open(path, flags, Mode::empty());
        let opened = match open(flags | OFlags::DIRECT) {
            Err(Errno::INVAL) => open(flags),
            other => other,
        };
        let file = File::from(opened?);
        let metadata = file.metadata()?;
        Ok(Input { kind: kind(&metadata)?, length_bytes: metadata.len(), file })
    }

    /// How many pages the kernel's page cache holds; `None` if it does not tell. None of a block device.
    pub(super) fn resident_pages(&self) -> Option<u64> {
        resident_pages(self.file.as_fd(), ByteRange::new(0, self.length_bytes))
    }

    /// Reads all of the file, which the buffer holds. Less than its length arrives if it has become shorter.
    ///
    /// # Errors
    /// What `pread(2)` reports.
    pub(super) fn read(&self, resident_pages: Option<u64>, buffer: &mut Buffer) -> io::Result<usize> {
        let range = ByteRange::new(0, self.length_bytes);
        if resident_pages == Some(self.length_bytes.div_ceil(PAGE_BYTES)) {
            self.become_buffered()?;
        }
        match self.read_range(range, buffer) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                self.become_buffered()?;
                self.read_range(range, buffer)
            }
            read => read,
        }
    }

    /// Takes out of the page cache what reading brought in, if there was nothing before: without direct I/O, and where it is
    /// refused for parts of a file (Btrfs).
    pub(super) fn restore(&self, resident_pages: Option<u64>) {
        if resident_pages == Some(0) && self.resident_pages() != Some(0) {
            // Only advice: what somebody else uses at this moment stays.
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        }
    }

    /// Which parts cannot be read.
    ///
    /// # Errors
    /// What reading reports that does not tell of a place.
    pub(super) fn unreadable(&self, buffer: &mut Buffer) -> io::Result<Vec<Unreadable>> {
        let mut found = Vec::new();
        let mut read = |range| self.read_range(range, buffer).map(drop);
        locate(ByteRange::new(0, self.length_bytes), &mut read, &mut found)?;
        Ok(found)
    }

    /// What says that it is empty may have contents nevertheless, in `/proc`.
    ///
    /// # Errors
    /// What reading reports.
    pub(super) fn stream(
        &self,
        buffer: &mut Buffer,
        each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        self.become_buffered()?;
        stream(&self.file, buffer, each)
    }

    fn become_buffered(&self) -> io::Result<()> {
        Ok(rustix::fs::fcntl_setfl(&self.file, OFlags::empty())?)
    }

    fn read_range(&self, range: ByteRange, buffer: &mut Buffer) -> io::Result<usize> {
        let wanted_bytes = range.len() as usize;
        // Direct reads take whole pages; the file ends where it ends.
        let bytes = &mut buffer.bytes()[..wanted_bytes.next_multiple_of(PAGE_BYTES as usize)];
        let mut done_bytes = 0;
        while done_bytes < wanted_bytes {
            match self.file.read_at(&mut bytes[done_bytes..], range.start + done_bytes as u64) {
                Ok(0) => break,
                Ok(read_bytes) => done_bytes += read_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done_bytes.min(wanted_bytes))
    }
}

/// Reads to the end, piece by piece.
///
/// # Errors
/// What reading reports, and what `each` returns.
pub(super) fn stream(
    mut input: impl io::Read,
    buffer: &mut Buffer,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut total_bytes = 0;
    loop {
        match input.read(buffer.bytes()) {
            Ok(0) => return Ok(total_bytes),
            Ok(read_bytes) => {
                each(&buffer.bytes()[..read_bytes])?;
                total_bytes += read_bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn kind(metadata: &Metadata) -> io::Result<Kind> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        Ok(Kind::Regular)
    } else if file_type.is_block_device() {
        Ok(Kind::BlockDevice)
    } else {
        let text = "it is neither a file nor a block device any more";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}
