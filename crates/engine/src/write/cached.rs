//! Cached write: positional writes into the cache, top to bottom.
//!
//! ```text
//!   write ─► beyond the end? size lock ─► too much dirty? wait for a write ─► whole pages ─► frames ─► copied ─► install
//!                                                     └─ part of a page ─► in place
//!                                                          ├─ pinned ─► copy of the page ─► install      (loan-break)
//!                                                          ├─ pending ─► wait for its load ─► again
//!                                                          └─ absent ─┬─ no bytes of it exist ─► zeros around ─► install
//!                                                                     └─ else ─► loaded ─► again
//!   every 4 MiB written sequentially ─► writeback of those 64 MiB before begins; a whole MiB elsewhere ─► its writeback begins
//! ```
//!
//! The caller's bytes are copied before any lock or latch is taken: they may be a view of the same file, or memory that has to be
//! paged in from a disk.
//!
//! Owns: the order of these steps, for threads and for tasks.
//! Does not own: which pages are dirty (inode), when they are written (writeback).
//! Invariants: I1 a pinned page is not changed, but replaced; I5 no lock is held while waiting; I6 a write without memory waits
//! until pages are clean; I8 written bytes are visible to all readers when this returns; I10 the bytes of a page beyond the
//! length are zeros.
//! Hot path: part of a resident page: one lock, two copies, no system call, no allocation.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use headwater_io::{Extents, Found, Overwritten};
use smallvec::SmallVec;

use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::calls_after;
use crate::engine::frames;
use crate::engine::frames::RUN_PAGES_MAX;
use crate::engine::handle::Source;
use crate::engine::shortage::Shortage;
use crate::engine::writes::Noted;
use crate::inode::dirty::State;
use crate::inode::size_lock::SizeLockGuard;
use crate::inode::{Inode, ZEROS};
use crate::load::submit::Caller;
use crate::read::cached::{CachedRead, Next};
use crate::write::memory_wait;
use crate::write::memory_wait::MemoryWait;
use crate::write::place::{Growth, Place};
use crate::write::space;
use crate::write::writeback;
use crate::write::writeback::Awaited;

mod atomic_update;
mod base;
mod gap;
mod into_window;
#[cfg(test)]
mod tests;

use base::Base;

impl Source {
    /// Writes into the cache. Blocks. Returns how many bytes were accepted, if any.
    pub(crate) fn write_cached(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        bytes: &[u8],
        place: Place<'_>,
    ) -> Result<Accepted> {
        let before_bytes = inode.length_bytes();
        if let Some(start_bytes) = place.before_a_check() {
            let looked = self.revalidate(inode);
            looked.map_err(|error| self.error(Operation::Write, start_bytes, error))?;
        }
        let mut write = CachedWrite::new(self, inode, Caller::Thread, bytes.len(), place);
        while let Some(next) = write.advance(bytes)? {
            let waited = write.wait(next);
            if write.is_over(waited)? {
                break;
            }
        }
        let accepted = write.finish();
        inode.note_length_since(before_bytes);
        Ok(accepted)
    }

    /// As [`Source::write_cached`], for a task.
    pub(crate) async fn write_cached_async(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        bytes: &[u8],
        place: Place<'_>,
    ) -> Result<Accepted> {
        let (driver, before_bytes) = (&self.shared().driver, inode.length_bytes());
        if let Some(start_bytes) = place.before_a_check() {
            let looked = self.revalidate_for_task(inode).await;
            looked.map_err(|error| self.error(Operation::Write, start_bytes, error))?;
        }
        let mut write = CachedWrite::new(self, inode, Caller::Task, bytes.len(), place);
        let ran = write.run_async(bytes).await?;
        let accepted = match ran {
            Ran::ToItsEnd => write.finish(),
            Ran::ToTheEndOfTheFile => {
                let extend = async {
                    write.size_lock = Some(inode.dirty.size_lock.lock_async(driver).await);
                    write.run_async(bytes).await?;
                    Ok::<_, Error>(write.finish())
                };
                calls_after(extend).await?
            }
        };
        inode.note_length_since(before_bytes);
        Ok(accepted)
    }
}

/// The outcome of a write.
pub(crate) struct Accepted {
    /// Number of bytes written, from the beginning.
    pub(crate) bytes: usize,
    /// Why the remaining bytes were not.
    pub(crate) stopped_by: Option<Error>,
}

/// One write into the cache, with its progress.
struct CachedWrite<'a> {
    source: &'a Arc<Source>,
    inode: &'a Arc<Inode>,
    caller: Caller,
    range: ByteRange,
    done: usize,
    /// Held by a write that extends the file.
    size_lock: Option<SizeLockGuard<'a>>,
    growth: Growth,
    /// Zeros from the end of the file to where the device was extended for this write, until the first bytes behind them are
    /// written.
    gap: Option<ByteRange>,
    /// Why it ended before all was written.
    stopped_by: Option<Error>,
    /// The page's present bytes, read past the cache when the page could not be loaded.
    base: Option<Base>,
    /// Failed attempts at the present page.
    attempts: u32,
}

/// What has to be done before the write can continue.
enum WriteNext {
    /// Take the size lock.
    SizeLock,
    /// Wait for the page, or for memory.
    Wait(MemoryWait),
    /// Read these bytes of a page past the cache.
    Read(ByteRange),
}

/// How far a write of a task has come.
enum Ran {
    ToItsEnd,
    /// It needs the size lock.
    ToTheEndOfTheFile,
}

impl<'a> CachedWrite<'a> {
    fn new(
        source: &'a Arc<Source>,
        inode: &'a Arc<Inode>,
        caller: Caller,
        length: usize,
        place: Place<'a>,
    ) -> CachedWrite<'a> {
        let (start_bytes, growth, size_lock) = place.parts();
        let range = ByteRange::at(start_bytes, length as u64);
        CachedWrite {
            source,
            inode,
            caller,
            range,
            done: 0,
            size_lock,
            growth,
            gap: None,
            stopped_by: None,
            base: None,
            attempts: 0,
        }
    }

    /// Does what has to be done before the write can continue. Blocks.
    fn wait(&mut self, next: WriteNext) -> Result<()> {
        match next {
            WriteNext::SizeLock => self.size_lock = Some(self.inode.dirty.size_lock.lock()),
            WriteNext::Wait(wait) => {
                wait.wait(self.source.shared()).map_err(|error| self.error(error))?;
            }
            WriteNext::Read(range) => {
                let version = self.inode.dirty.version();
                let mut page = vec![0; PAGE_BYTES];
                self.source.read_device_whole(&mut page[..range.len() as usize], range)?;
                self.base = Some(Base::new(range, page, version));
            }
        }
        Ok(())
    }

    /// Writes on, until all is written or the write needs the size lock, which it does not hold.
    async fn run_async(&mut self, bytes: &[u8]) -> Result<Ran> {
        let (source, inode) = (self.source, self.inode);
        while let Some(next) = self.advance(bytes)? {
            let waited = match next {
                WriteNext::SizeLock => return Ok(Ran::ToTheEndOfTheFile),
                WriteNext::Wait(wait) => wait.ready(source.shared()).await.map_err(|error| self.error(error)),
                WriteNext::Read(range) => {
                    let version = inode.dirty.version();
                    let read = source.read_device_whole_async(range).await;
                    read.map(|page| self.base = Some(Base::new(range, page, version)))
                }
            };
            if self.is_over(waited)? {
                break;
            }
        }
        Ok(Ran::ToItsEnd)
    }

    /// As [`CachedWrite::step`]; an error after some bytes were written ends the write with these.
    fn advance(&mut self, bytes: &[u8]) -> Result<Option<WriteNext>> {
        match self.step(bytes) {
            Err(error) if self.done > 0 => {
                self.stopped_by = Some(error);
                Ok(None)
            }
            stepped => stepped,
        }
    }

    /// Whether the failure of a wait ends the write. If nothing was written yet, returns the error.
    fn is_over(&mut self, waited: Result<()>) -> Result<bool> {
        match waited {
            Ok(()) => Ok(false),
            Err(error) if self.done > 0 => {
                self.stopped_by = Some(error);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// The bytes written, and why no more were. Releases the size lock.
    fn finish(mut self) -> Accepted {
        Accepted { bytes: self.done, stopped_by: self.stopped_by.take() }
    }

    /// Writes as far as possible without waiting. `None` when all is written.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<WriteNext>> {
        while self.done < bytes.len() {
            if let Some(size_lock) = &self.size_lock {
                size_lock.check().map_err(|error| self.error(error))?;
            }
            let may_grow = self.size_lock.is_some() && self.growth == Growth::Allowed;
            if self.range.end > self.inode.length_bytes() && !may_grow {
                return self.beyond_end().map(Some);
            }
            if let Some(next) = self.limit()? {
                return Ok(Some(next));
            }
            let (page, part) = self.part();
            self.promise(page)?;
            let next = match part.len() {
                _ if self.inode.dirty.windows.holds(page) => self.write_window(page, part, bytes)?,
                PAGE_BYTES => self.write_pages(page, bytes)?,
                _ => self.write_part(page, part, bytes)?,
            };
            if next.is_some() {
                return Ok(next);
            }
        }
        writeback::begin_early(self.source.shared(), self.inode);
        Ok(None)
    }

    /// Reserves space on the device for the next bytes, up to the end of a MiB; once, before their pages are looked up.
    fn promise(&self, page: PageIndex) -> Result<()> {
        if self.attempts > 0 {
            return Ok(());
        }
        let start_bytes = self.range.start + self.done as u64;
        let block_bytes = RUN_PAGES_MAX * PAGE_SIZE_BYTES;
        let block_end_bytes = (page.start_bytes() / block_bytes + 1) * block_bytes;
        let range = ByteRange::new(start_bytes, self.range.end.min(block_end_bytes));
        let promised = space::promise(self.source.shared(), self.inode, &self.source.open, range);
        promised.map_err(|error| self.error(error))
    }

    /// The page of the next byte, and the part of it to write.
    fn part(&self) -> (PageIndex, Range<u32>) {
        let offset_bytes = self.range.start + self.done as u64;
        let page = PageIndex::containing(offset_bytes);
        let start = offset_bytes - page.start_bytes();
        let end = (self.range.end - page.start_bytes()).min(PAGE_SIZE_BYTES);
        (page, start as u32..end as u32)
    }

    /// The write reaches beyond the end: take the size lock, or fail.
    fn beyond_end(&self) -> Result<WriteNext> {
        if self.growth == Growth::Allowed {
            return Ok(WriteNext::SizeLock);
        }
        let end_bytes = self.inode.length_bytes().max(self.range.start);
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here");
        Err(self.source.error(Operation::Write, end_bytes, error))
    }

    /// What to wait for when too many pages are dirty. An error if this file's own writeback fails. Failures of other files, and writes
    /// that are held up, do not stop the write: the writeback of this file begins each time, so it has few dirty pages itself.
    fn limit(&self) -> Result<Option<WriteNext>> {
        let (shared, writes) = (self.source.shared(), &self.source.shared().cache.writes);
        let are_too_many = || writes.dirty().pages() >= writeback::dirty_pages_max(shared);
        if !are_too_many() {
            return Ok(None);
        }
        let shortage = Shortage::listen(shared);
        if writes.complete_arrived() > 0 && !are_too_many() {
            return Ok(None);
        }
        if writes.oldest_moving().is_some() {
            return Ok(Some(WriteNext::Wait(MemoryWait::Memory(shortage))));
        }
        if writeback::begin_any(shared) > 0 || !are_too_many() {
            let waits = writes.oldest_moving().is_some() && are_too_many();
            return Ok(waits.then_some(WriteNext::Wait(MemoryWait::Memory(shortage))));
        }
        match self.inode.dirty.failing() {
            Some(error) => Err(self.error(error)),
            None => Ok(None),
        }
    }

    /// Writes whole pages, up to the end of a MiB.
    fn write_pages(&mut self, first: PageIndex, bytes: &[u8]) -> Result<Option<WriteNext>> {
        let end = PageIndex::new(self.range.end / PAGE_SIZE_BYTES);
        let block_end = PageIndex::new((first.get() / RUN_PAGES_MAX + 1) * RUN_PAGES_MAX);
        let mut pages = self.inode.dirty.windows.before(PageRange::new(first, end.min(block_end)));
        let (mut extents, count) = match self.memory(pages.len()) {
            Ok(found) => found,
            Err(next) => return Ok(Some(next)),
        };
        pages.end = first + count;
        let source = &bytes[self.done..][..pages.len().bytes() as usize];
        let mut rest = source;
        for extent in &mut extents {
            let (part, behind) = rest.split_at(rest.len().min(extent.len()));
            extent.store(0, part);
            rest = behind;
        }
        let written = ByteRange::at(first.start_bytes(), source.len() as u64);
        self.commit(written, |inode, _| Some(inode.pages.install(pages, extents).bytes()))?;
        Ok(None)
    }

    /// Writes a part of a page.
    fn write_part(&mut self, page: PageIndex, part: Range<u32>, bytes: &[u8]) -> Result<Option<WriteNext>> {
        // Copied before the page is latched.
        let buffer = SmallVec::<[u8; PAGE_BYTES]>::from_slice(&bytes[self.done..][..part.len()]);
        let buffer = &buffer[..];
        let written = ByteRange::at(page.start_bytes() + u64::from(part.start), part.len() as u64);
        let mut found = Overwritten::Absent;
        self.commit(written, |inode, _| {
            found = inode.pages.overwrite(page, part.start, buffer);
            matches!(found, Overwritten::Done(_)).then_some(written.len())
        })?;
        match found {
            Overwritten::Done(first_use) => {
                self.inode.note_written_ahead(first_use);
                Ok(None)
            }
            Overwritten::Pending(load) => {
                let load = self.source.shared().cache.loads.find(load);
                Ok(load.map(|load| WriteNext::Wait(MemoryWait::Load(load))))
            }
            Overwritten::Pinned => self.replace(page, part, buffer, written),
            Overwritten::Absent if self.is_new(page, &part) => self.replace(page, part, buffer, written),
            Overwritten::Absent if self.base.as_ref().is_some_and(|base| base.page == page) => {
                self.replace(page, part, buffer, written)
            }
            Overwritten::Absent => self.bring(page),
        }
    }

    /// Whether no present byte of the page is kept: it has none yet, or all are overwritten.
    fn is_new(&self, page: PageIndex, part: &Range<u32>) -> bool {
        let valid_bytes = self.inode.length_bytes().saturating_sub(page.start_bytes());
        valid_bytes == 0 || part.start == 0 && u64::from(part.end) >= valid_bytes
    }

    /// Replaces the page's frame: with its present bytes, or zeros, and the written ones.
    fn replace(
        &mut self,
        page: PageIndex,
        part: Range<u32>,
        buffer: &[u8],
        written: ByteRange,
    ) -> Result<Option<WriteNext>> {
        let (mut extents, _) = match self.memory(PageCount::new(1)) {
            Ok(found) => found,
            Err(next) => return Ok(Some(next)),
        };
        let base = self.base.take();
        let is_new = self.is_new(page, &part);
        let length_bytes = self.inode.length_bytes();
        let pages = PageRange::new(page, page + PageCount::new(1));
        self.commit(written, |inode, state| {
            match inode.pages.pin_or_wait(page, part.clone()) {
                Found::Page(pinned) => extents[0].store(0, &pinned),
                Found::Absent => match &base {
                    Some(base) if base.is_as_now(inode, state) => extents[0].store(0, &base.bytes),
                    _ if is_new && inode.length_bytes() == length_bytes => extents[0].store(0, &ZEROS),
                    _ => return None,
                },
                Found::Pending(_) if is_new && inode.length_bytes() == length_bytes => {
                    extents[0].store(0, &ZEROS);
                }
                Found::Pending(_) => return None,
            }
            extents[0].store(part.start as usize, buffer);
            let installed = inode.pages.install(pages, std::mem::take(&mut extents));
            (installed == PageCount::new(1)).then_some(written.len())
        })?;
        Ok(None)
    }

    /// Loads the page into the cache; or, after repeated attempts, reads it past the cache, because it was evicted again or
    /// cannot be read (that read reports the error).
    fn bring(&mut self, page: PageIndex) -> Result<Option<WriteNext>> {
        if self.attempts < ATTEMPTS_MAX {
            self.attempts += 1;
            let first_byte = ByteRange::at(page.start_bytes(), 1);
            let read = CachedRead::new(self.source, self.inode, self.caller, first_byte)?;
            let mut read = read.for_write();
            match read.copy(|_, _| {}) {
                // Resident, at least for a moment.
                None => return Ok(None),
                Some(Next::Wait(load)) => return Ok(Some(WriteNext::Wait(MemoryWait::Load(load)))),
                Some(Next::Memory(shortage)) => {
                    return Ok(Some(WriteNext::Wait(MemoryWait::Memory(shortage))));
                }
                Some(Next::Bypass(_)) => {}
            }
        }
        let page_bytes = PageRange::new(page, page + PageCount::new(1)).bytes();
        // If truncated meanwhile, the next attempt finds it new.
        let range = page_bytes.clip(self.inode.length_bytes());
        Ok((!range.is_empty()).then_some(WriteNext::Read(range)))
    }

    /// Whether the length may be changed. Exact under the lock of `state`, but for an exit that seizes the size lock at this moment.
    fn holds_size_lock(&self) -> bool {
        self.size_lock.as_ref().is_some_and(SizeLockGuard::holds)
    }

    /// Changes pages and marks them dirty, unless the write needs the size lock first. `change` returns the bytes written; `None`
    /// if something has changed in between, so that the step is repeated.
    fn commit(
        &mut self,
        written: ByteRange,
        change: impl FnOnce(&Inode, &State) -> Option<u64>,
    ) -> Result<()> {
        let (inode, shared) = (self.inode, self.source.shared());
        let is_behind_end = || written.start > inode.length_bytes();
        let leaves_gap = is_behind_end() && self.size_lock.is_some();
        if leaves_gap {
            self.leave_gap(written.start)?;
        }
        let mut block = None;
        let done_bytes = inode.dirty.change(shared.cache.writes.dirty(), |state| {
            let may_grow = self.holds_size_lock() && (leaves_gap || !is_behind_end());
            if written.end > inode.length_bytes() && !may_grow {
                return 0;
            }
            if inode.dirty.windows.touches(PageRange::covering(written)) {
                return 0;
            }
            let done_bytes = change(inode, state).unwrap_or(0);
            if done_bytes > 0 {
                block = self.note(state, ByteRange::at(written.start, done_bytes));
            }
            done_bytes
        });
        if done_bytes == 0 {
            return self.after_nothing(written);
        }
        self.done += done_bytes as usize;
        (self.attempts, self.gap) = (0, None);
        if let Some(block) = block {
            writeback::begin(shared, inode, block, writeback::SYNC_RUNS, Awaited::No);
        }
        Ok(())
    }

    /// Marks the pages dirty and extends the length. Returns the pages to write back at once: at each multiple of the stream
    /// size, those that a sequential writer wrote some time ago; or a whole MiB elsewhere. Called under the lock of `state`.
    fn note(&self, state: &mut State, done: ByteRange) -> Option<PageRange> {
        let inode = self.inode;
        if self.gap.is_some() {
            // That of this write, not of another that waits.
            state.gap = None;
        }
        if inode.dirty.windows.holds(PageIndex::containing(done.start)) {
            // The kernel tracks writes to windows.
            inode.grow(done);
            inode.dirty.note_change_at(done);
            return None;
        }
        let is_part = self.mark(state, done);
        match &state.file {
            Some(file) if file.direct().is_some() || self.source.open.direct().is_none() => {}
            _ => state.file = Some(self.source.open.clone()),
        }
        let shared = self.source.shared();
        if inode.dirty.pages() == 0 && shared.cache.writes.note_dirty(inode) == Noted::New {
            shared.background.note();
        }
        // Before the change is noted: what sees that version must see that the device lacks these bytes.
        inode.dirty.update_counts(shared.cache.writes.dirty(), state);
        inode.grow(done);
        inode.dirty.note_change_at(done);
        let is_in_order = std::mem::replace(&mut state.next_bytes, done.end) == done.start;
        if !is_in_order {
            state.run_start = done.start;
        }
        if is_part && inode.is_contested() {
            // The page's other bytes belong to other writers, so the page is not kept.
            return Some(PageRange::covering(done));
        }
        if is_in_order {
            return writeback::due_in_order(self.source.shared(), state.run_start, done.end);
        }
        let block_bytes = RUN_PAGES_MAX * PAGE_SIZE_BYTES;
        let is_block = done.end.is_multiple_of(block_bytes) && done.len() == block_bytes;
        is_block.then(|| PageRange::covering(done))
    }

    /// Marks the written bytes dirty: whole pages, or a part of one. Returns whether it is a part.
    fn mark(&self, state: &mut State, done: ByteRange) -> bool {
        let (pages, within) = (PageRange::covering(done), done.start % PAGE_SIZE_BYTES);
        let is_part = within > 0 || !done.end.is_multiple_of(PAGE_SIZE_BYTES);
        if is_part {
            state.dirty.mark_part(pages.start, within as u32..(within + done.len()) as u32);
        } else {
            state.dirty.mark(pages);
        }
        is_part
    }

    /// Nothing was written, because something changed in between, or tables are full.
    fn after_nothing(&mut self, written: ByteRange) -> Result<()> {
        self.attempts += 1;
        if self.attempts > NOTHING_MAX {
            let error = io::Error::from(io::ErrorKind::OutOfMemory);
            return Err(self.source.error(Operation::Write, written.start, error));
        }
        if self.attempts > ATTEMPTS_MAX {
            frames::make_room_in_tables(self.source.shared());
        }
        Ok(())
    }

    /// Frames for at least some of the pages, or what to wait for.
    fn memory(&self, pages: PageCount) -> std::result::Result<(Extents, PageCount), WriteNext> {
        memory_wait::frames_for_write(self.source.shared(), self.inode, pages).map_err(WriteNext::Wait)
    }

    fn error(&self, error: io::Error) -> Error {
        self.source.error(Operation::Write, self.range.start + self.done as u64, error)
    }
}

/// How often a page may be loaded and evicted again, or another thread interfere, before a write reads the page past the cache.
const ATTEMPTS_MAX: u32 = 4;

/// Attempts in a row that may write nothing.
const NOTHING_MAX: u32 = 10_000;
