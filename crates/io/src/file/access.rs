//! Access: opens the ordinary descriptor of a file; the options of an opening, and the routes of a transfer.
//!
//! Owns: the options of an opening, and their flags of `open(2)`.
//! Does not own: the descriptor with `O_DIRECT` (direct), closing (descriptor).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::descriptor::Descriptor;
use super::status::positioned_kind;

/// The descriptor of the file that a transfer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The `O_DIRECT` descriptor: offset, length and memory must be aligned as [`OpenFile::direct`](super::OpenFile::direct) says.
    Direct,
    /// The ordinary descriptor, through the kernel's page cache.
    Buffered,
}

/// Whether a file is to be opened for direct I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DirectIo {
    /// Opening fails where the file system refuses `O_DIRECT`.
    Required,
    /// Direct where possible.
    Preferred,
    /// Only through the kernel's page cache.
    Off,
}

/// What the descriptors are opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    pub(super) fn flags(self) -> OFlags {
        match self {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        }
    }
}

/// The ordinary descriptor. Opening does not wait for the other end of a FIFO, which is refused; [`let_wait`] then makes the
/// descriptor an ordinary one.
pub(super) fn open_unwaiting(path: &Path, access: Access) -> io::Result<Descriptor> {
    let flags = access.flags();
    // Miri has no such flag.
    let unwaiting = if cfg!(miri) { OFlags::empty() } else { OFlags::NONBLOCK };
    match Descriptor::open(path, flags | unwaiting) {
        // Another process holds a lease on the file: wait until it gives that up. A socket cannot be opened at all; say so.
        Err(error) if [Some(libc::EAGAIN), Some(libc::ENXIO)].contains(&error.raw_os_error()) => {
            let mode = std::fs::metadata(path)?.mode();
            positioned_kind(rustix::fs::FileType::from_raw_mode(mode))?;
            Descriptor::open(path, flags)
        }
        opened => opened,
    }
}

/// Removes flags from a descriptor that was opened to be examined first: with `O_NONBLOCK`, requests on a ring would fail instead
/// of waiting.
pub(super) fn let_wait(file: &File) -> io::Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    Ok(rustix::fs::fcntl_setfl(file, OFlags::empty())?)
}
