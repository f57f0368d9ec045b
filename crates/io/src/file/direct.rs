//! Direct: whether a file has a descriptor with `O_DIRECT`, and the alignment that it requires.
//!
//! ```text
//!   statx returns ─┬─ alignment ─► opened on first use; if that fails, the ordinary descriptor serves
//!                  ├─ zero ──────► none
//!                  └─ nothing ───► opened now, and tried with one page
//! ```
//!
//! A small cached file is read and closed without it: opening it costs as much as opening the file did.
//!
//! Owns: the descriptor; that all goes through the kernel's page cache where the file system refuses it.
//! Does not own: the ordinary descriptor, the route of a request.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;

use headwater_core::units::{Alignment, PAGE_BYTES, PAGE_SIZE_BYTES};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::access::DirectIo;
use super::descriptor::Descriptor;
use super::status::{FileKind, Status};
use crate::system::known::KnownNumber;

/// The alignment that `O_DIRECT` requires of memory and file offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAlignment {
    /// Of memory addresses.
    pub memory: Alignment,
    /// Of offsets and lengths.
    pub offset: Alignment,
}

#[derive(Debug)]
pub(super) struct Direct {
    /// Empty until it is used; `None` in it if it could not be opened then.
    file: OnceLock<Option<Descriptor>>,
    /// What it is opened with, beside `O_DIRECT`.
    flags: OFlags,
    pub(super) alignment: DirectAlignment,
    /// `statx` did not tell the alignment: the device may move less at once.
    pub(super) is_assumed: bool,
}

/// When the descriptor is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// At once, so that it is known to work.
    Now,
    /// On first use, if `statx` has confirmed that it works.
    WhenUsed,
}

impl Direct {
    /// The second descriptor, as far as one is wanted and the file system grants it; without one, all goes through the kernel's page
    /// cache.
    ///
    /// # Errors
    /// `Unsupported` if direct I/O is required and there is none, as for a file that is open for writing alone.
    pub(super) fn choose(
        direct_io: DirectIo,
        buffered: &File,
        status: &Status,
        path: &Path,
        flags: OFlags,
    ) -> io::Result<Option<Direct>> {
        let is_only_written = flags & OFlags::ACCMODE == OFlags::WRONLY;
        Ok(match direct_io {
            DirectIo::Off => None,
            DirectIo::Preferred if is_only_written => None,
            DirectIo::Required if is_only_written => {
                let text = "a file that is open for writing alone has no direct I/O (O_DIRECT)";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            DirectIo::Preferred => Direct::find(buffered, status, path, flags, Moment::WhenUsed).ok(),
            DirectIo::Required => Some(Direct::find(buffered, status, path, flags, Moment::Now)?),
        })
    }

    /// # Errors
    /// `Unsupported` where there is no direct I/O.
    fn find(
        buffered: &File,
        status: &Status,
        path: &Path,
        flags: OFlags,
        moment: Moment,
    ) -> io::Result<Direct> {
        let refused = || {
            let text = "the file system does not support direct I/O (O_DIRECT) on this file";
            io::Error::new(io::ErrorKind::Unsupported, text)
        };
        let in_memory = || status.key.is_on_no_device() && is_memory_backed(buffered);
        match (status.kind, status.direct) {
            (FileKind::CharacterDevice, _) => {
                let text = "a character device has no direct I/O (O_DIRECT)";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            (_, Some((_, 0))) => return Err(refused()),
            // A block device lies in a file system in memory (/dev), but its contents do not.
            (FileKind::Regular, _) if in_memory() => return Err(refused()),
            (FileKind::Regular, Some((memory, offset))) if moment == Moment::WhenUsed && has_proc() => {
                let alignment = direct_alignment(memory, offset).ok_or_else(refused)?;
                return Ok(Direct { file: OnceLock::new(), flags, alignment, is_assumed: false });
            }
            _ => {}
        }
        let file = reopen(buffered, path, flags).map_err(|_| refused())?;
        let alignment = match status.direct {
            Some((memory, offset)) => direct_alignment(memory, offset),
            None => probe(&file),
        };
        let (alignment, is_assumed) = (alignment.ok_or_else(refused)?, status.direct.is_none());
        Ok(Direct { file: OnceLock::from(Some(file)), flags, alignment, is_assumed })
    }

    /// The descriptor; `None` if it cannot be opened any more, for want of descriptors for instance. The ordinary one then serves:
    /// an aligned transfer works on both.
    pub(super) fn file(&self, ordinary: &File) -> Option<&File> {
        self.file.get_or_init(|| by_descriptor(ordinary, self.flags).ok()).as_deref()
    }

    /// Whether the descriptor was opened, or tried to be.
    pub(super) fn is_opened(&self) -> bool {
        self.file.get().is_some()
    }
}

/// Whether files can be opened by descriptor. Looked up once.
fn has_proc() -> bool {
    static HAS_PROC: KnownNumber = KnownNumber::new();
    HAS_PROC.is(|| Path::new("/proc/self/fd").exists())
}

fn direct_alignment(memory: u64, offset: u64) -> Option<DirectAlignment> {
    let (memory, offset) = (Alignment::new(memory)?, Alignment::new(offset)?);
    // Extents and readahead are multiples of pages; a file system that requires more is read through the page cache.
    let fits = memory.get() <= PAGE_SIZE_BYTES && offset.get() <= PAGE_SIZE_BYTES;
    fits.then_some(DirectAlignment { memory, offset })
}

/// tmpfs accepts `O_DIRECT` since Linux 6.6, but its page cache is the storage: reading around it gains nothing.
fn is_memory_backed(file: &File) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&stat.f_type))
}

/// Opens the same file again, with `O_DIRECT`: by descriptor, so that a rename in between does no harm; without
/// /proc by path, checked to be the same file.
fn reopen(buffered: &File, path: &Path, flags: OFlags) -> io::Result<Descriptor> {
    match by_descriptor(buffered, flags) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = Descriptor::open(path, flags | OFlags::DIRECT)?;
            let (ours, theirs) = (buffered.metadata()?, file.metadata()?);
            let same = (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino());
            if same { Ok(file) } else { Err(Errno::STALE.into()) }
        }
        other => other,
    }
}

fn by_descriptor(buffered: &File, flags: OFlags) -> io::Result<Descriptor> {
    let path = format!("/proc/self/fd/{}", buffered.as_raw_fd());
    Descriptor::open(path, flags | OFlags::DIRECT)
}

/// Where `statx` does not return the alignment, a read of one aligned page shows whether direct reads work; page alignment is then
/// assumed. That is safe for requests, but the device may stop within a page ([`OpenFile::route_after`]).
fn probe(file: &File) -> Option<DirectAlignment> {
    let mut page = PageBuffer([0; PAGE_BYTES]);
    file.read_at(&mut page.0, 0).ok()?;
    Some(DirectAlignment { memory: Alignment::PAGE, offset: Alignment::PAGE })
}

/// A page for a trial read.
#[repr(C, align(4096))]
pub(crate) struct PageBuffer(pub(crate) [u8; PAGE_BYTES]);
