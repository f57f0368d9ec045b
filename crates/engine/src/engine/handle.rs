//! Source: an open file as the reading code sees it.
//!
//! Owns: the descriptors, the path for error texts, the I/O mode, a share of the engine.
//! Does not own: positions and what is in flight (the readers').

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headwater_core::backing::Backing;
use headwater_core::readahead::ReadaheadLimits;
use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Access, AppendFile, Extent, Extents, FileKind, OpenFile, RejectReason, Residency, Route};

use crate::base::error::{Error, Operation, Result};
use crate::engine::{Engine, Shared, lending};
use crate::inode::Inode;
use crate::inode::coherence::Coherence;

/// How bytes come from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IoMode {
    /// What the kernel's page cache holds is taken from there, the rest is read directly where the file system allows
    /// it. The page cache is left as it is.
    #[default]
    Auto,
    /// Always directly (`O_DIRECT`). Opening fails where the file system does not allow it.
    Direct,
    /// Always through the kernel's page cache.
    Buffered,
}

/// Where bytes are to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whence {
    /// From the engine's cache only.
    Cache,
    /// From the device too.
    Anywhere,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) open: Arc<OpenFile>,
    pub(crate) access: Access,
    pub(crate) path: PathBuf,
    pub(crate) mode: IoMode,
    pub(crate) engine: Engine,
    /// The file in the cache, unless it is read without.
    pub(crate) inode: Option<Arc<Inode>>,
    /// The file in the cache, if it is read without: others may have written to it there.
    pub(crate) beside: Option<Arc<Inode>>,
    /// How many failures to write were reported to this handle, or were there before it.
    pub(crate) reported_failures: AtomicU64,
    /// How many conflicts with others were reported to this handle, or were there before it.
    pub(crate) reported_conflicts: AtomicU64,
    /// For appending as the kernel orders it among processes, if the file was opened for that.
    pub(crate) appender: Option<AppendFile>,
    /// How it is wished to see what others write.
    pub(crate) coherence: Coherence,
    /// How long what was seen of the file is trusted, while it is not leased.
    pub(crate) revalidate_after: Duration,
    /// Tells the handles of a file apart, for readahead.
    pub(crate) handle: u32,
    /// How far and in which sizes readers read ahead.
    pub(crate) readahead: ReadaheadLimits,
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(inode) = self.known()
            && !self.shared().driver.is_forked()
        {
            if self.access == Access::ReadWrite {
                inode.leasing.remove_writer();
            }
            (self.shared().upcalls.close)(self.shared(), inode, &self.open);
        }
    }
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it tells a length: character devices do not.
    pub(crate) fn has_length(&self) -> bool {
        self.open.kind() != FileKind::CharacterDevice
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.engine.shared
    }

    /// As [`lending::lend`], of this engine's memory.
    pub(crate) fn lend(&self, extent: Extent, used: Range<usize>) -> Bytes {
        lending::lend(&self.shared().lending, &self.shared().arena, extent, used)
    }

    /// The file in the cache, whether this handle reads it there or not.
    pub(crate) fn known(&self) -> Option<&Arc<Inode>> {
        self.inode.as_ref().or(self.beside.as_ref())
    }

    /// The file in the cache, if what is read of it is kept there.
    #[inline]
    pub(crate) fn cached(&self) -> Option<&Arc<Inode>> {
        self.inode.as_ref().filter(|inode| !self.may_hide_contents(inode))
    }

    /// The file in the cache, if a range of it has to be read there: it is cached, or was written and is not on the device.
    pub(crate) fn inode_for(&self, range: ByteRange) -> Option<&Arc<Inode>> {
        let is_needed = |inode: &&Arc<Inode>| inode.dirty.overlaps(range) && !self.may_hide_contents(inode);
        self.cached().or_else(|| self.beside.as_ref().filter(is_needed))
    }

    /// Whether the file says that it is empty and may have contents all the same, which are not the same twice: it is read
    /// around the cache, until this engine has written to it, and by handles that only read if that failed.
    #[inline]
    pub(crate) fn may_hide_contents(&self, inode: &Inode) -> bool {
        if inode.dirty.may_lack() {
            self.access != Access::ReadWrite
                && self.open.opened().stamp.length_bytes == 0
                && self.open.may_hide_contents()
                && inode.dirty.failing().is_some()
        } else {
            inode.length_bytes() == 0 && self.open.may_hide_contents()
        }
    }

    /// Has others wait before they write, or be noted, as was wished.
    pub(crate) fn begin_coherence(&self) {
        let Some(inode) = self.known() else { return };
        if self.coherence == Coherence::Unwatched {
            inode.origin.leave_unwatched();
        }
        if self.access == Access::ReadWrite {
            inode.leasing.add_writer();
        } else if self.coherence == Coherence::Leased && self.inode.is_some() {
            self.shared().leases.enlist(&self.shared().background, inode, &self.open);
        }
    }

    /// How what others write is seen now. In a forked child, where a thread that is gone may hold the locks, as chosen.
    pub(crate) fn coherence(&self) -> Coherence {
        if self.shared().driver.is_forked() {
            return self.coherence;
        }
        let is_leased = self.inode.as_ref().is_some_and(|inode| inode.leasing.is_trusted());
        match self.coherence {
            Coherence::Private => Coherence::Private,
            _ if is_leased => Coherence::Leased,
            _ if self.known().is_some_and(|inode| !inode.origin.can_watch(&self.open)) => {
                Coherence::Unwatched
            }
            Coherence::Checked => Coherence::Checked,
            _ => Coherence::Revalidated,
        }
    }

    /// Fails once after each conflict with others, if the handle was opened for that.
    pub(crate) fn check_conflicts(&self, operation: Operation) -> Result<()> {
        let Some(inode) = self.known().filter(|_| self.coherence == Coherence::Checked) else {
            return Ok(());
        };
        let conflicts = inode.counters.conflicts.load(Ordering::Acquire);
        if self.reported_conflicts.swap(conflicts, Ordering::AcqRel) == conflicts {
            return Ok(());
        }
        Err(Error::conflict(operation, &self.path))
    }

    /// As [`Source::check_process`], for what has no offset.
    pub(crate) fn check_process_for(&self, operation: Operation) -> Result<()> {
        if !self.shared().driver.is_forked() {
            return Ok(());
        }
        Err(Error::on_file(operation, &self.path, RejectReason::Forked.into()))
    }

    /// Nothing of a parent's engine works in its child, not even waiting.
    pub(crate) fn check_process(&self, offset_bytes: u64) -> Result<()> {
        if !self.shared().driver.is_forked() {
            return Ok(());
        }
        Err(self.read_error(offset_bytes, RejectReason::Forked.into()))
    }

    /// The route for what the page cache does not hold.
    pub(crate) fn device_route(&self) -> Route {
        if self.open.direct().is_some() { Route::Direct } else { Route::Buffered }
    }

    /// What offsets and lengths on the device route are rounded to.
    pub(crate) fn offset_alignment(&self) -> Alignment {
        self.open.direct().map_or(Alignment::ONE, |direct| direct.offset)
    }

    /// Takes what the page cache holds of the range; `None` when nothing is known to be there.
    pub(crate) fn read_if_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<Option<usize>> {
        match self.mode {
            IoMode::Direct => Ok(None),
            IoMode::Auto | IoMode::Buffered => self
                .open
                .read_if_resident(buffer, offset_bytes)
                .map_err(|error| self.read_error(offset_bytes, error)),
        }
    }

    /// The same for a range that [`Source::is_resident`] said is there. `None` too where the bytes have left meanwhile, or
    /// an error: the device is asked next, and its answer is the one that counts.
    pub(crate) fn read_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let cached = self.known().and_then(|inode| inode.copy_resident(buffer, offset_bytes));
        // The kernel does not have what was written since it was asked.
        let (part, _) = self.first_part(ByteRange::at(offset_bytes, buffer.len() as u64));
        cached.or_else(|| self.read_from_kernel(&mut buffer[..part.len() as usize], offset_bytes))
    }

    /// The first part of a range that is all to be had from the cache alone, because it was written and is not on the
    /// device, or all from anywhere.
    pub(crate) fn first_part(&self, range: ByteRange) -> (ByteRange, Whence) {
        let may_lack = |inode: &&Arc<Inode>| inode.dirty.may_lack() && !self.may_hide_contents(inode);
        let Some(inode) = self.known().filter(may_lack) else {
            return (range, Whence::Anywhere);
        };
        match inode.dirty.first(range) {
            None => (range, Whence::Anywhere),
            Some(run) if run.start > range.start => {
                (ByteRange::new(range.start, run.start), Whence::Anywhere)
            }
            Some(run) => (ByteRange::new(range.start, run.end.min(range.end)), Whence::Cache),
        }
    }

    /// Looks at the file if that is due, and has what was found take effect. May block, if others have changed the file while
    /// pages of it were dirty in part.
    #[inline]
    pub(crate) fn revalidate(&self, inode: &Arc<Inode>) -> io::Result<()> {
        inode.revalidate(&self.open, self.revalidate_after)?;
        self.settle(inode);
        Ok(())
    }

    /// The same, due or not.
    pub(crate) fn refresh(&self, inode: &Arc<Inode>) -> io::Result<()> {
        inode.refresh(&self.open, self.revalidate_after)?;
        self.settle(inode);
        Ok(())
    }

    /// Asks, due or not, whether others have changed the file, and looks at it if nothing else tells.
    pub(crate) fn glance_at_origin(&self, inode: &Arc<Inode>) -> io::Result<()> {
        inode.glance_at_origin(&self.open)?;
        self.settle(inode);
        Ok(())
    }

    #[inline]
    fn settle(&self, inode: &Arc<Inode>) {
        if inode.dirty.is_unsettled() {
            (self.shared().upcalls.settle)(self.shared(), inode);
            // What was written meanwhile may lie before or behind a cut by others: the length is known after a look.
            if inode.refresh(&self.open, self.revalidate_after).is_ok() {
                (self.shared().upcalls.settle)(self.shared(), inode);
            }
        }
    }

    /// Whether the engine's cache, as it was when the file was last looked at, or the kernel's has all of the range.
    pub(crate) fn is_resident(&self, range: ByteRange) -> bool {
        let is_cached = self.known().is_some_and(|inode| inode.is_resident(range));
        is_cached || self.is_in_kernel(range)
    }

    fn read_from_kernel(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        if self.mode == IoMode::Direct {
            return None;
        }
        self.open.read_resident(buffer, offset_bytes).ok().flatten().filter(|&read_bytes| read_bytes > 0)
    }

    /// What was written and is not on the device, the kernel has not either.
    fn is_in_kernel(&self, range: ByteRange) -> bool {
        self.mode != IoMode::Direct
            && self.open.residency(range) == Residency::Whole
            && !self.known().is_some_and(|inode| inode.dirty.overlaps(range))
    }

    pub(crate) fn length_bytes(&self) -> Result<u64> {
        let is_unwritten = |inode: &&Arc<Inode>| inode.dirty.pages() > 0 && !self.may_hide_contents(inode);
        if let Some(inode) = self.known().filter(is_unwritten) {
            self.revalidate(inode).map_err(|error| self.length_error(error))?;
            return Ok(inode.length_bytes());
        }
        // Files without a length say 0.
        let length = Backing::length_bytes(&*self.open).map_err(|error| self.length_error(error))?;
        Ok(length.unwrap_or(0))
    }

    pub(crate) fn open(&self) -> &Arc<OpenFile> {
        &self.open
    }

    /// Fills the extents with the bytes of `range`, if the kernel's page cache has all of them; says how many.
    pub(crate) fn copy_from_kernel(&self, range: ByteRange, extents: &mut Extents) -> Option<usize> {
        if range.is_empty() || !self.is_in_kernel(range) {
            return None;
        }
        // A page that another process has mapped and written to takes its next stores without a change of the file's times, until
        // the kernel has written it. A direct read has the kernel do that first.
        if self.open.direct().is_some() && self.shared().driver.is_dirty_in_kernel(&self.open, range) {
            return None;
        }
        let (mut left_bytes, mut at) = (range.len() as usize, range.start);
        for extent in extents {
            let part_bytes = left_bytes.min(extent.len());
            if self.read_from_kernel(&mut extent[..part_bytes], at)? < part_bytes {
                return None;
            }
            (left_bytes, at) = (left_bytes - part_bytes, at + part_bytes as u64);
            if left_bytes == 0 {
                break;
            }
        }
        Some(range.len() as usize)
    }

    pub(crate) fn length_error(&self, error: io::Error) -> Error {
        Error::on_file(Operation::Length, &self.path, error)
    }

    pub(crate) fn read_error(&self, offset_bytes: u64, error: io::Error) -> Error {
        self.error(Operation::Read, offset_bytes, error)
    }

    pub(crate) fn error(&self, operation: Operation, offset_bytes: u64, error: io::Error) -> Error {
        Error::at(operation, &self.path, offset_bytes, error)
    }
}

/// The bytes asked for, cut at the largest offset that files have.
pub(crate) fn addressable(path: &Path, offset_bytes: u64, length: usize) -> Result<ByteRange> {
    if offset_bytes > OFFSET_BYTES_MAX {
        let text = "offsets of files end at 2^63 - 1";
        let error = io::Error::new(io::ErrorKind::InvalidInput, text);
        return Err(Error::at(Operation::Read, path, offset_bytes, error));
    }
    let end_bytes = offset_bytes.saturating_add(length as u64).min(READABLE_BYTES_MAX);
    Ok(ByteRange::new(offset_bytes, end_bytes.max(offset_bytes)))
}

/// The largest offset that files have.
pub(crate) const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// Where reading ends in any file. The last page of offsets is left out, so that rounding up stays addressable.
pub(crate) const READABLE_BYTES_MAX: u64 = OFFSET_BYTES_MAX / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
