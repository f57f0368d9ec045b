//! Handle: an open file (`Source`) as all rooms above see it.
//!
//! Owns: the descriptors, the path for error texts, the I/O mode, a share of the engine.
//! Does not own: positions and requests in flight (the readers).

use std::fmt;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
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

/// Whether I/O bypasses the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum IoMode {
    /// Bytes in the kernel's page cache are copied from there; the rest is read directly, where the file system allows it. The
    /// page cache is left as it is.
    #[default]
    Auto,
    /// Always directly (`O_DIRECT`). Opening fails where the file system does not allow it.
    Direct,
    /// Always through the kernel's page cache.
    Buffered,
}

/// A question to the server of a file, and the check with its answer.
pub(crate) type Asking = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// Where bytes can be read.
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
    /// What the file is in the cache. A small file is entered when it is used for something else than one read of all of it.
    pub(crate) entry: OnceLock<Entry>,
    /// Number of write errors reported to this handle, or older than it.
    pub(crate) reported_failures: AtomicU64,
    /// Number of conflicts with other programs reported to this handle, or older than it.
    pub(crate) reported_conflicts: AtomicU64,
    /// Appends with `O_APPEND`, if the file was opened for that.
    pub(crate) appender: Option<Arc<AppendFile>>,
    /// The level requested when the file was opened.
    pub(crate) coherence: Coherence,
    /// How long the known length and times are trusted, while the file is not leased.
    pub(crate) revalidate_after: Duration,
    /// Distinguishes the handles of a file, for readahead.
    pub(crate) handle: u32,
    /// The limits of sequential readahead.
    pub(crate) readahead: ReadaheadLimits,
    /// What this handle may still write around the cache; `None` for one that never may.
    pub(crate) around: Option<Mutex<Around>>,
    /// Whether the program has locked the file through this handle.
    pub(crate) is_locked: AtomicBool,
}

/// The writes of a handle around the cache, which come before all else that it does.
#[derive(Debug)]
pub(crate) struct Around {
    /// Whether the file was so small that its first writes need no pages in the kernel.
    pub(crate) is_small: bool,
    /// Where the last one ended.
    pub(crate) end_bytes: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) writes: u32,
    /// To here the kernel's page cache was seen to have the file.
    pub(crate) resident_end_bytes: u64,
}

/// The inode of an open file, as its handle uses it.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The handle reads through the cache.
    Cached(Arc<Inode>),
    /// The handle reads around the cache: other handles may have dirty pages there.
    Beside(Arc<Inode>),
    /// The file has none.
    Nothing,
}

impl Entry {
    pub(crate) fn inode(&self) -> Option<&Arc<Inode>> {
        match self {
            Entry::Cached(inode) | Entry::Beside(inode) => Some(inode),
            Entry::Nothing => None,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.shared().driver.is_forked() {
            return;
        }
        if let Some(inode) = self.entered().and_then(Entry::inode) {
            if self.access.writes() {
                inode.leasing.remove_writer();
            }
            if self.is_locked.load(Ordering::Acquire) {
                // The next program to lock the file reads what was written under this lock.
                (self.shared().upcalls.flush)(self.shared(), inode);
            }
            (self.shared().upcalls.close)(self.shared(), inode, &self.open);
        }
        if self.is_locked.load(Ordering::Acquire) {
            // Requests in flight may keep the descriptor open for a while.
            _ = self.open.as_std().unlock();
        }
    }
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file has a length: character devices have none.
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

    /// The inode, whether this handle reads through the cache or around it.
    pub(crate) fn known(&self) -> Option<&Arc<Inode>> {
        self.entry().inode()
    }

    /// The entry, if the file is entered already.
    #[inline]
    pub(crate) fn entered(&self) -> Option<&Entry> {
        self.entry.get()
    }

    /// The entry. Enters the file; in a forked child, where locks may be held by threads that do not exist, as without an inode.
    #[inline]
    fn entry(&self) -> &Entry {
        static NOTHING: Entry = Entry::Nothing;
        match self.entry.get() {
            Some(entry) => entry,
            None if self.shared().driver.is_forked() => &NOTHING,
            None => self.entry.get_or_init(|| (self.shared().upcalls.enter)(self)),
        }
    }

    /// The inode, unless this handle reads around the cache.
    #[inline]
    pub(crate) fn inode(&self) -> Option<&Arc<Inode>> {
        match self.entry() {
            Entry::Cached(inode) => Some(inode),
            Entry::Beside(_) | Entry::Nothing => None,
        }
    }

    /// The inode, if this handle reads through the cache.
    #[inline]
    pub(crate) fn cached(&self) -> Option<&Arc<Inode>> {
        self.inode().filter(|inode| !self.may_hide_contents(inode))
    }

    /// The inode, if a range must be read from the cache: the file is cached, or the range is dirty.
    pub(crate) fn inode_for(&self, range: ByteRange) -> Option<&Arc<Inode>> {
        let is_needed = |inode: &&Arc<Inode>| inode.dirty.overlaps(range) && !self.may_hide_contents(inode);
        match self.entry() {
            Entry::Cached(_) => self.cached(),
            Entry::Beside(inode) => Some(inode).filter(is_needed),
            Entry::Nothing => None,
        }
    }

    /// Whether the file reports length 0 and may still have contents, different ones at each read. Such a file is read around the
    /// cache, until this engine has written to it; read-only handles also after such a write has failed.
    #[inline]
    pub(crate) fn may_hide_contents(&self, inode: &Inode) -> bool {
        if inode.dirty.may_lack() {
            !self.access.writes()
                && self.open.opened().stamp.length_bytes == 0
                && self.open.may_hide_contents()
                && inode.dirty.failing().is_some()
        } else {
            inode.length_bytes() == 0 && self.open.may_hide_contents()
        }
    }

    /// Registers the handle as a writer, or requests a lease, as its [`Coherence`] says.
    pub(crate) fn begin_coherence(&self) {
        let Some(inode) = self.entered().and_then(Entry::inode) else { return };
        if self.coherence == Coherence::Unwatched {
            inode.origin.leave_unwatched();
        }
        if self.access.writes() {
            inode.leasing.add_writer();
        } else if self.coherence == Coherence::Leased && self.inode().is_some() {
            self.shared().leases.enlist(&self.shared().background, inode, &self.open);
        }
    }

    /// The level in effect now. In a forked child, where locks may be held by threads that do not exist, the level requested.
    pub(crate) fn coherence(&self) -> Coherence {
        if self.shared().driver.is_forked() {
            return self.coherence;
        }
        let is_leased = self.inode().is_some_and(|inode| inode.leasing.is_trusted());
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

    /// Fails once after each conflict with other programs, if the handle was opened with [`Coherence::Checked`].
    pub(crate) fn check_conflicts(&self, operation: Operation) -> Result<()> {
        if self.coherence != Coherence::Checked {
            return Ok(());
        }
        let Some(inode) = self.known() else { return Ok(()) };
        let conflicts = inode.counters.conflicts.load(Ordering::Acquire);
        if self.reported_conflicts.swap(conflicts, Ordering::AcqRel) == conflicts {
            return Ok(());
        }
        Err(Error::conflict(operation, &self.path))
    }

    /// Fails in a forked child, where no part of the parent's engine works, not even waiting.
    pub(crate) fn check_process_for(&self, operation: Operation) -> Result<()> {
        if !self.shared().driver.is_forked() {
            return Ok(());
        }
        Err(Error::on_file(operation, &self.path, RejectReason::Forked.into()))
    }

    /// As [`Source::check_read`], for an operation without an offset.
    pub(crate) fn check_read_for(&self, operation: Operation) -> Result<()> {
        self.check_process_for(operation)?;
        if self.access.reads() {
            return Ok(());
        }
        Err(Error::on_file(operation, &self.path, unreadable()))
    }

    /// Fails in a forked child, and where the file is open for writing alone.
    pub(crate) fn check_read(&self, offset_bytes: u64) -> Result<()> {
        if self.shared().driver.is_forked() {
            return Err(self.read_error(offset_bytes, RejectReason::Forked.into()));
        }
        if self.access.reads() {
            return Ok(());
        }
        Err(self.read_error(offset_bytes, unreadable()))
    }

    /// The route for bytes that the kernel's page cache lacks.
    pub(crate) fn device_route(&self) -> Route {
        if self.open.direct().is_some() { Route::Direct } else { Route::Buffered }
    }

    /// The alignment of offsets and lengths on the device route.
    pub(crate) fn offset_alignment(&self) -> Alignment {
        self.open.direct().map_or(Alignment::ONE, |direct| direct.offset)
    }

    /// Copies the resident bytes of the range from the kernel's page cache; `None` when none are known to be there.
    pub(crate) fn read_if_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<Option<usize>> {
        match self.mode {
            IoMode::Direct => Ok(None),
            IoMode::Auto | IoMode::Buffered => self
                .open
                .read_if_resident(buffer, offset_bytes)
                .map_err(|error| self.read_error(offset_bytes, error)),
        }
    }

    /// As [`Source::read_if_resident`], for a range that [`Source::is_resident`] has found. Also `None` if the bytes have left
    /// meanwhile, or on an error: the device is asked next, and its answer counts.
    pub(crate) fn read_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let cached = self.known().and_then(|inode| {
            let length_bytes = inode.length_bytes();
            self.reconcile(inode);
            inode.copy_below(length_bytes, buffer, offset_bytes)
        });
        cached.or_else(|| match self.first_part(ByteRange::at(offset_bytes, buffer.len() as u64)) {
            // They became dirty since; the kernel lacks them.
            (_, Whence::Cache) => None,
            (part, Whence::Anywhere) => {
                self.read_from_kernel(&mut buffer[..part.len() as usize], offset_bytes)
            }
        })
    }

    /// The first part of a range that lies in one place: dirty, and so in the cache only; or not dirty, and so available
    /// anywhere.
    pub(crate) fn first_part(&self, range: ByteRange) -> (ByteRange, Whence) {
        let may_lack = |inode: &&Arc<Inode>| inode.dirty.may_lack() && !self.may_hide_contents(inode);
        let Some(inode) = self.known().filter(may_lack) else {
            return (range, Whence::Anywhere);
        };
        match inode.dirty.first(range) {
            None => (range, Whence::Anywhere),
            // Memory of a window beyond the end is no part of the file, and no read would ever get there.
            Some(run) if run.start >= inode.length_bytes() => (range, Whence::Anywhere),
            Some(run) if run.start > range.start => {
                (ByteRange::new(range.start, run.start), Whence::Anywhere)
            }
            Some(run) => (ByteRange::new(range.start, run.end.min(range.end)), Whence::Cache),
        }
    }

    /// Checks the file for changes if that is due, and applies the result. May block, if others have changed the file while pages
    /// were dirty in part.
    #[inline]
    pub(crate) fn revalidate(&self, inode: &Arc<Inode>) -> io::Result<()> {
        inode.revalidate(&self.open, self.revalidate_after)?;
        self.reconcile(inode);
        Ok(())
    }

    /// As [`Source::revalidate`], due or not.
    pub(crate) fn refresh(&self, inode: &Arc<Inode>) -> io::Result<()> {
        inode.refresh(&self.open, self.revalidate_after)?;
        self.reconcile(inode);
        Ok(())
    }

    /// Checks the file for changes before a read or a write of a range: if that is due, or the range ends behind the known end.
    pub(crate) fn check_for(&self, inode: &Arc<Inode>, range: ByteRange) -> io::Result<()> {
        self.revalidate(inode)?;
        if range.end > inode.length_bytes() { self.refresh(inode) } else { Ok(()) }
    }

    /// As [`Source::check_for`], for a task, which does not block its thread until a server answers.
    pub(crate) async fn check_for_task(&self, inode: &Arc<Inode>, range: ByteRange) -> io::Result<()> {
        if !self.open.may_not_answer() {
            return self.check_for(inode, range);
        }
        if range.end <= inode.length_bytes() {
            return self.revalidate_for_task(inode).await;
        }
        self.ask_server().await?;
        self.reconcile(inode);
        Ok(())
    }

    /// As [`Source::revalidate`], for a task, which does not block its thread until a server answers.
    pub(crate) async fn revalidate_for_task(&self, inode: &Arc<Inode>) -> io::Result<()> {
        if !self.open.may_not_answer() {
            return self.revalidate(inode);
        }
        if inode.is_to_be_asked(self.revalidate_after) {
            self.ask_server().await?;
        }
        self.reconcile(inode);
        Ok(())
    }

    /// Asks the server of the file, and checks it with the answer, as [`Source::refresh`] would.
    pub(crate) fn ask_server(&self) -> Asking {
        let (open, inode, interval) = (self.open.clone(), self.known().cloned(), self.revalidate_after);
        let question = inode.as_ref().map(|inode| inode.begin_question());
        let asking = self.shared().driver.ask_server(&self.open);
        // Few reads ask; the futures of all would be larger.
        Box::pin(async move {
            let answer = asking.await.result.ok();
            match inode.zip(question) {
                Some((inode, question)) => inode.refresh_answered(&open, interval, question, answer.as_ref()),
                None => Ok(()),
            }
        })
    }

    /// Checks the watch for changes by others, due or not; without a watch, checks the file.
    pub(crate) fn check_watch(&self, inode: &Arc<Inode>) -> io::Result<()> {
        inode.check_watch(&self.open)?;
        self.reconcile(inode);
        Ok(())
    }

    /// Writes and drops pages that may be stale in part, if there are any. May block.
    #[inline]
    pub(crate) fn reconcile(&self, inode: &Arc<Inode>) {
        if inode.dirty.is_unreconciled() {
            (self.shared().upcalls.reconcile)(self.shared(), inode);
            // Dirty pages written meanwhile may lie before or behind a truncate by others; a check determines the length.
            if inode.refresh(&self.open, self.revalidate_after).is_ok() {
                (self.shared().upcalls.reconcile)(self.shared(), inode);
            }
        }
    }

    /// Whether the engine's cache (as of the last check) or the kernel's page cache has all of the range.
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

    /// Dirty bytes are not in the kernel's page cache.
    fn is_in_kernel(&self, range: ByteRange) -> bool {
        self.mode != IoMode::Direct
            && self.open.residency(range) == Residency::Whole
            && !self.known().is_some_and(|inode| inode.dirty.overlaps(range))
            && self.open.begin_copy(range)
    }

    pub(crate) fn length_bytes(&self) -> Result<u64> {
        let is_dirty = |inode: &&Arc<Inode>| inode.dirty.pages() > 0 && !self.may_hide_contents(inode);
        if let Some(inode) = self.known().filter(is_dirty) {
            self.revalidate(inode).map_err(|error| self.length_error(error))?;
            return Ok(inode.length_bytes());
        }
        // Files without a length report 0.
        let length = Backing::length_bytes(&*self.open).map_err(|error| self.length_error(error))?;
        let device_bytes = length.unwrap_or(0);
        match self.known() {
            // Reads do not know it yet: a change by this engine is about to announce it, or others have appended.
            Some(inode) if device_bytes > inode.length_bytes() && !self.may_hide_contents(inode) => {
                self.refresh(inode).map_err(|error| self.length_error(error))?;
                Ok(inode.length_bytes())
            }
            _ => Ok(device_bytes),
        }
    }

    /// Adds what `Debug` shows of an open file. Neither enters the file nor checks it.
    pub(crate) fn show(&self, fields: &mut fmt::DebugStruct<'_, '_>) {
        let length = self.shown_length_bytes();
        match &length {
            Ok(length_bytes) => fields.field("length", length_bytes),
            Err(error) => fields.field("length", error),
        };
        fields.field("read", &self.access.reads()).field("write", &self.access.writes());
        if self.appender.is_some() {
            fields.field("append", &true);
        }
        fields.field("io", &self.mode).field("direct", &self.open.direct().is_some());
    }

    /// The length as the kernel has it, or as the engine does while pages are dirty.
    fn shown_length_bytes(&self) -> io::Result<u64> {
        let is_dirty = |inode: &&Arc<Inode>| inode.dirty.pages() > 0 && !self.shared().driver.is_forked();
        match self.entered().and_then(Entry::inode).filter(is_dirty) {
            Some(inode) => Ok(inode.length_bytes()),
            None => self.open.length_bytes(),
        }
    }

    pub(crate) fn open(&self) -> &Arc<OpenFile> {
        &self.open
    }

    /// Fills the extents with the bytes of `range` if the kernel's page cache has all of them; returns how many.
    pub(crate) fn copy_from_kernel(&self, range: ByteRange, extents: &mut Extents) -> Option<usize> {
        if range.is_empty() || !self.is_in_kernel(range) {
            return None;
        }
        // A page that another process has mapped and dirtied takes further stores without a change of the file's times, until the
        // kernel writes it back. A direct read makes the kernel do that first.
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

/// The range to read, clipped at the largest file offset.
pub(crate) fn addressable(path: &Path, offset_bytes: u64, length: usize) -> Result<ByteRange> {
    if offset_bytes > OFFSET_BYTES_MAX {
        let text = "offsets of files end at 2^63 - 1";
        let error = io::Error::new(io::ErrorKind::InvalidInput, text);
        return Err(Error::at(Operation::Read, path, offset_bytes, error));
    }
    let end_bytes = offset_bytes.saturating_add(length as u64).min(READABLE_BYTES_MAX);
    Ok(ByteRange::new(offset_bytes, end_bytes.max(offset_bytes)))
}

/// The bytes of the file at `path` that a caller's range means. What has no end ends at `end_bytes`.
///
/// # Errors
/// `InvalidInput` for a range that ends before it begins; those of `end_bytes`.
pub(crate) fn byte_range(
    (operation, path): (Operation, &Path),
    range: &impl RangeBounds<u64>,
    end_bytes: impl FnOnce() -> Result<u64>,
) -> Result<ByteRange> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => end_bytes()?.max(start),
    };
    let range = ByteRange { start, end };
    check_order((operation, path), range).map(|()| range)
}

/// # Errors
/// `InvalidInput` for a range that ends before it begins, which its public fields allow.
pub(crate) fn check_order((operation, path): (Operation, &Path), range: ByteRange) -> Result<()> {
    let ByteRange { start, end } = range;
    if start <= end {
        return Ok(());
    }
    let error = io::Error::new(io::ErrorKind::InvalidInput, format!("{start}..{end} ends before it begins"));
    Err(Error::at(operation, path, start, error))
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the file is not open for reading")
}

/// The largest file offset.
pub(crate) const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// The end of the readable range. The last page is left out, so that rounding up stays addressable.
pub(crate) const READABLE_BYTES_MAX: u64 = OFFSET_BYTES_MAX / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
