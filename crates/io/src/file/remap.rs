//! Remap: where a file's bytes lie on the device, changed without moving bytes: holes, and extents that two files share.
//!
//! Owns: these calls, which of their errors mean that the file system cannot do it, and where holes are.
//! Does not own: what a cache holds of the file.

use std::io;
use std::os::fd::AsRawFd;

use headwater_core::units::ByteRange;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::file_system::FileSystem;
use super::open_file::OpenFile;
use super::status::FileKind;

/// What the first bytes of a range are to the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stretch {
    /// Stored, up to this offset; or the file system does not tell.
    Data(u64),
    /// A hole, up to this offset: zeros that are not stored. What lies beyond the end of the file counts as one.
    Hole(u64),
}

impl OpenFile {
    /// What the bytes from the start of `range` on are, as far as the range reaches: of what the kernel and the device have. One or two
    /// system calls, for a regular file. Only file systems of this machine are asked: a server, or a program that serves files (FUSE), may
    /// not have got yet what the kernel has of a file, and would call that a hole.
    ///
    /// # Errors
    /// What `lseek(2)` reports, other than that the file system does not tell.
    pub fn first_stretch(&self, range: ByteRange) -> io::Result<Stretch> {
        if range.is_empty() || !self.tells_holes() {
            return Ok(Stretch::Data(range.end));
        }
        match rustix::fs::seek(&self.ordinary, SeekFrom::Data(range.start)) {
            Ok(data_bytes) if data_bytes > range.start => {
                return Ok(Stretch::Hole(data_bytes.min(range.end)));
            }
            Ok(_) => {}
            Err(Errno::NXIO) => return Ok(Stretch::Hole(range.end)),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Stretch::Data(range.end)),
            Err(error) => return Err(error.into()),
        }
        match rustix::fs::seek(&self.ordinary, SeekFrom::Hole(range.start)) {
            // Another program may have made a hole in between.
            Ok(hole_bytes) => Ok(Stretch::Data(hole_bytes.clamp(range.start + 1, range.end))),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Stretch::Data(range.end)),
            Err(error) => Err(error.into()),
        }
    }

    fn tells_holes(&self) -> bool {
        let is_local = || matches!(self.file_system(), FileSystem::Local | FileSystem::Overlay);
        // Miri has no holes.
        self.may_seek && self.kind() == FileKind::Regular && !cfg!(miri) && is_local()
    }

    /// Gives the room of whole blocks of a range back to the file system; they read as zeros, and so do the range's bytes in other
    /// blocks. The length stays.
    ///
    /// # Errors
    /// `Unsupported` where the file system makes no holes; else what `fallocate(2)` reports.
    pub fn punch_hole(&self, range: ByteRange) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        remapped(|| rustix::fs::fallocate(self.buffered(), flags, range.start, range.len()))
    }

    /// Makes a range of `target` share the extents of a range of this file, which takes no room until one of them is written to.
    /// Extends `target` if the range ends behind it. The kernel writes back what it caches of both ranges first.
    ///
    /// # Errors
    /// `Unsupported` where the files are on different file systems, on one without shared extents, or not at multiples of its blocks;
    /// else what `ioctl_ficlonerange(2)` reports.
    pub fn clone_range(&self, range: ByteRange, target: &OpenFile, at_bytes: u64) -> io::Result<()> {
        let wanted = CloneRange {
            source: i64::from(self.buffered().as_raw_fd()),
            source_offset_bytes: range.start,
            length_bytes: range.len(),
            target_offset_bytes: at_bytes,
        };
        // SAFETY: FICLONERANGE reads a `struct file_clone_range`, which is what `CloneRange` is, and nothing beyond it.
        remapped(|| unsafe { ioctl(target.buffered(), Setter::<FICLONERANGE, CloneRange>::new(wanted)) })
    }
}

/// Calls until no signal interrupts.
fn remapped(call: impl Fn() -> rustix::io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL | Errno::XDEV) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// `struct file_clone_range` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CloneRange {
    source: i64,
    source_offset_bytes: u64,
    length_bytes: u64,
    target_offset_bytes: u64,
}

const FICLONERANGE: Opcode = opcode::write::<CloneRange>(0x94, 13);
