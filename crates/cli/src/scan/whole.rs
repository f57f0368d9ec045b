//! Whole: small files, each read at once by the thread that opened it.
//!
//! ```text
//!   open with O_DIRECT ─► fstat ─► cachestat ─┬─ all in the page cache ─► O_DIRECT off ─► pread from there
//!                                             └─ else ─► pread from the device ─► cachestat: nothing has come in
//! ```
//!
//! Many threads wait here at the same time, which keeps the device's queue as full as io_uring does. A file costs only the system
//! calls drawn above; an `OpenFile`, with two descriptors and a look-up of their alignment, costs twice as many.
//!
//! Owns: the descriptor of a file, and whether it is direct.
//! Does not own: memory, hashing, larger files.
//! Hot path: 6 system calls a file that is not cached.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use headwater::ByteRange;
use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::testing::resident_pages;
use headwater_core::units::PAGE_SIZE_BYTES;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::buffer::Buffer;
use super::extents::{Unreadable, locate};

/// A file that is open to be read once.
pub(super) struct Input {
    file: File,
    pub(super) kind: Kind,
    pub(super) length_bytes: u64,
    has_blocks: bool,
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
        let (kind, length_bytes, has_blocks) = (kind(&metadata)?, metadata.len(), metadata.blocks() > 0);
        Ok(Input { file, kind, length_bytes, has_blocks })
    }

    /// Whether the contents may be longer or shorter than the file says: those of `/sys` say that they have a page. `path` leads to it.
    ///
    /// # Errors
    /// What `open(2)` reports.
    pub(super) fn may_have_another_length(&self, path: &Path) -> io::Result<bool> {
        if self.has_blocks || self.kind != Kind::Regular {
            return Ok(false);
        }
        Ok(OpenFile::open(path, DirectIo::Off, Access::Read)?.may_hide_contents())
    }

    /// Pages of the file in the kernel's page cache; `None` if the kernel does not report them, and of block devices.
    pub(super) fn resident_pages(&self) -> Option<u64> {
        resident_pages(self.file.as_fd(), ByteRange::new(0, self.length_bytes))
    }

    /// Reads the whole file into the buffer, which is large enough. Returns less than its length if the file has shrunk.
    ///
    /// # Errors
    /// What `pread(2)` reports.
    pub(super) fn read(&self, resident_pages: Option<u64>, buffer: &mut Buffer) -> io::Result<usize> {
        let range = ByteRange::new(0, self.length_bytes);
        if resident_pages == Some(self.length_bytes.div_ceil(PAGE_SIZE_BYTES)) {
            self.become_buffered()?;
        }
        match self.read_range(range, buffer) {
            // The second also where the file system meets bytes of others in the page cache (XFS); a device that cannot read says so again.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::IO)) => {
                self.become_buffered()?;
                self.read_range(range, buffer)
            }
            read => read,
        }
    }

    /// Drops from the page cache what reading brought in, if the cache held nothing of the file before. Reads fill the cache without
    /// direct I/O, and where the file system refuses it for parts of a file (Btrfs).
    pub(super) fn restore(&self, resident_pages: Option<u64>) {
        if resident_pages == Some(0) && self.resident_pages() != Some(0) {
            // Only advice: pages that another process uses at this moment stay.
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        }
    }

    /// Locates the unreadable parts.
    ///
    /// # Errors
    /// An error of reading that does not concern a place.
    pub(super) fn unreadable(&self, buffer: &mut Buffer) -> io::Result<Vec<Unreadable>> {
        let mut found = Vec::new();
        let mut read = |range| self.read_range(range, buffer).map(drop);
        locate(ByteRange::new(0, self.length_bytes), &mut read, &mut found)?;
        Ok(found)
    }

    /// Reads a file of unknown length: files in `/proc` report a length of 0.
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
        let bytes = &mut buffer.bytes()[..wanted_bytes.next_multiple_of(PAGE_SIZE_BYTES as usize)];
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

/// # Errors
/// `Unsupported` for what can only be streamed.
pub(super) fn kind(metadata: &Metadata) -> io::Result<Kind> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        Ok(Kind::Regular)
    } else if file_type.is_block_device() {
        Ok(Kind::BlockDevice)
    } else {
        let text = "it is neither a file nor a block device";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}
