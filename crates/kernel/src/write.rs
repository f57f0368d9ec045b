//! Write: bytes into pages, and pages into their files.
//!
//! ```text
//!   write_at ─► the file's turn ─► longer? set_len of the node ─► for each page ─┬─ there, unpinned ─► in place
//!      too much dirty? write back                                                ├─ pinned, new, whole ─► another frame, install
//!                                                                                └─ no frame ─► through to the node
//!   sync ─► dirty runs ─► hold ─► listeners protect them ─► one write_at each ─► clean ─► the node's own sync
//! ```
//!
//! A node is as long as the cache says before any byte beyond its old end is cached, so that a full device is reported to
//! the writer, and a load finds what it expects.
//!
//! Owns: the order of these steps; what is dirty.
//! Does not own: frames, reading.
//! Invariants: I3 one write of a page is under way at most. I7 what could not be written stays dirty, and each sync says so.
//! I8 a read after a write finds what was written.
//! Locks: `writers`, then `flushing`, both across I/O; `copying` and `dirty` inside, for moments.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use core::time::Duration;

use headwater_core::backing::Form;
use headwater_core::cache::DirtyToo;
use headwater_core::dirty::{DirtyPages, Written};
use headwater_core::readahead::Purpose;
use headwater_core::table::NoNode;
use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};

use crate::file::{ALL_PAGES, CachedFile, part};
use crate::frames::{Found, HeldRun, Pinned, Spare, Wrote};
use crate::kernel::{Error, Failure, Kernel, Node, SyncScope};
use crate::mapping::only;
use crate::state::{File, PageEvent, count};

impl<K: Kernel> CachedFile<K> {
    /// Writes `buffer` at `offset`; reads see it from then on, the device with a sync, or when memory is short. Says how
    /// much was written. Blocks where a page has to be read first, and while too much is dirty. `buffer` is the kernel's
    /// memory: touching it must not fault. Two writes at once are one after the other; a read sees each page before or
    /// after a write, not in between.
    ///
    /// # Errors
    /// The node's own, if no byte was written; [`Failure::FileTooLarge`], [`Failure::NoMemory`].
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<usize, Error<K>> {
        if self.file.form == Form::Direct {
            return self.file.node.write_at(buffer, offset);
        }
        let _turn = self.file.writers.lock();
        self.file.write(buffer, offset)
    }

    /// Writes `buffer` at the end. Says how much was written, and where the end is now.
    ///
    /// # Errors
    /// As [`CachedFile::write_at`].
    pub fn append(&self, buffer: &[u8]) -> Result<(usize, u64), Error<K>> {
        if self.file.form == Form::Direct {
            return self.file.node.append(buffer);
        }
        let _turn = self.file.writers.lock();
        let end = self.file.len();
        self.file.write(buffer, end).map(|written| (written, end + written as u64))
    }

    /// Truncates the file, or lengthens it by zeros. Blocks.
    ///
    /// # Errors
    /// The node's own; nothing has changed then.
    pub fn set_len(&self, length_bytes: u64) -> Result<(), Error<K>> {
        let file = &self.file;
        if file.form == Form::Direct {
            return file.node.set_len(length_bytes);
        }
        let _turn = file.writers.lock();
        let before = file.len();
        if length_bytes > before {
            file.zero_stored_tail();
        }
        {
            let _pause = file.flushing.lock();
            file.set_node_length(length_bytes)?;
            file.set_length(length_bytes);
            if length_bytes < before {
                let beyond = PageIndex::new(length_bytes.div_ceil(PAGE_SIZE_BYTES));
                file.forget(PageRange { start: beyond, end: PageIndex::MAX });
            }
        }
        if length_bytes < before {
            file.zero_tail(length_bytes);
        }
        file.await_unmapped();
        Ok(())
    }

    /// The page was stored to through a mapping, or is about to be. Blocks if it has left meanwhile, and as long as anybody has it
    /// pinned: not to be called from within [`CachedFile::with_page`]. Blocks too while too much is dirty.
    ///
    /// Called before the store, as at a fault, it says nothing of a store that comes later: the page may be written back, and be
    /// clean again, between the two. What is stored then is lost unless the page is mapped as [`Page::access`](crate::Page::access)
    /// says, which [`CachedFile::get_pages`] is for.
    ///
    /// # Errors
    /// [`Failure::InvalidInput`] beyond the end and for files that are not cached; as [`CachedFile::write_at`].
    pub fn mark_dirty(&self, page: PageIndex) -> Result<(), Error<K>> {
        if self.try_mark_dirty(page)? {
            return Ok(());
        }
        self.file.probe(only(page).bytes().clip(self.file.len()))?;
        Err(K::Node::error(Failure::NoMemory))
    }

    /// As [`CachedFile::mark_dirty`]; says whether there was memory for the page, and the node had it.
    pub(crate) fn try_mark_dirty(&self, page: PageIndex) -> Result<bool, Error<K>> {
        let _turn = self.file.writers.lock();
        if page.start_bytes() >= self.file.len() || self.file.form == Form::Direct {
            return Err(K::Node::error(Failure::InvalidInput));
        }
        self.file.is_stored_to.store(true, Ordering::Release);
        self.file.limit_dirty();
        let is_dirty = self.file.write_page(page, 0, &[], self.file.len())?;
        // Before a program stores to it.
        self.file.await_unmapped();
        Ok(is_dirty)
    }

    /// Writes what is dirty of the file to its node, and has that synced. Blocks.
    ///
    /// # Errors
    /// The first of the node's; what could not be written stays dirty, and the next sync tries again.
    pub fn sync(&self, scope: SyncScope) -> Result<(), Error<K>> {
        self.file.sync(scope)
    }

    /// The file was deleted: what is cached of it, written or not, is of no use any more.
    pub fn discard(&self) {
        let _turn = self.file.writers.lock();
        let _pause = self.file.flushing.lock();
        self.file.forget(ALL_PAGES);
        self.file.await_unmapped();
        drop(self.file.cache.let_go(self.file.table.file()));
    }
}

impl<K: Kernel> File<K> {
    fn write(self: &Arc<Self>, buffer: &[u8], offset: u64) -> Result<usize, Error<K>> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(buffer.len() as u64).ok_or(K::Node::error(Failure::FileTooLarge))?;
        let (before, range) = (self.len(), ByteRange::new(offset, end));
        if end > before {
            self.zero_stored_tail();
            self.set_node_length(end)?;
        }
        let mut done = 0;
        let mut result = Ok(());
        while done < buffer.len() && result.is_ok() {
            let (page, within) = part(range, done);
            let bytes = &buffer[done..][..within.len()];
            result = self.write_page(page, within.start as usize, bytes, before).map(drop);
            if result.is_ok() {
                done += bytes.len();
                self.set_length(self.len().max(offset + done as u64));
                self.limit_dirty();
            }
        }
        if self.len() < end {
            // Nobody shall find zeros where the write did not come to.
            let _pause = self.flushing.lock();
            result = result.and(self.set_node_length(self.len()));
        }
        self.await_unmapped();
        if done > 0 { Ok(done) } else { result.map(|()| 0) }
    }

    /// Sets the length of the node; a caller that shortens it holds `flushing`.
    fn set_node_length(&self, length_bytes: u64) -> Result<(), Error<K>> {
        self.node.set_len(length_bytes)?;
        self.writes.fetch_add(1, Ordering::AcqRel);
        self.node_bytes.store(length_bytes, Ordering::Release);
        Ok(())
    }

    /// Writes into one page; `length_bytes` is how long the file was before. Says whether the page is dirty then: if the cache cannot have
    /// it, the node has the bytes.
    fn write_page(
        self: &Arc<Self>,
        page: PageIndex,
        start_bytes: usize,
        bytes: &[u8],
        length_bytes: u64,
    ) -> Result<bool, Error<K>> {
        let page_range = PageRange::new(page, page + PageCount::new(1));
        let old = page_range.bytes().clip(length_bytes);
        let is_whole = start_bytes == 0 && bytes.len() as u64 >= old.len() && !bytes.is_empty();
        let mut attempts = 0;
        loop {
            match self.write_in_place(page, start_bytes, bytes) {
                Wrote::InPlace => break,
                Wrote::Pending(load) if !is_whole => self.join(load, page, old),
                Wrote::Absent if !is_whole && !old.is_empty() && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    drop(self.page(page, 0..PAGE_BYTES as u32, old)?);
                }
                Wrote::Pinned => {
                    let Some(before) = self.listeners_so_far() else {
                        // A program that has it mapped must not lose it, and those that have it pinned are soon done.
                        self.wait_for_pins();
                        continue;
                    };
                    let Some(pinned) = self.page(page, 0..PAGE_BYTES as u32, old)? else { continue };
                    let Some(spare) = self.copy_with(pinned, start_bytes, bytes) else {
                        return Err(K::Node::error(Failure::NoMemory));
                    };
                    let replaced = self.replace_unmapped(page, spare, before);
                    if replaced.map_err(|_| K::Node::error(Failure::NoMemory))? {
                        break;
                    }
                }
                Wrote::Pending(_) | Wrote::Absent => {
                    let is_new = is_whole || old.is_empty();
                    let spare = if is_new { self.cache.allocate(0, Purpose::Demand) } else { None };
                    let Some(mut spare) = spare else {
                        return self.write_through(page, start_bytes, bytes).map(|()| false);
                    };
                    spare.fill(0);
                    spare[start_bytes..][..bytes.len()].copy_from_slice(bytes);
                    if self.install(page, spare).is_err() {
                        return self.write_through(page, start_bytes, bytes).map(|()| false);
                    }
                    break;
                }
            }
        }
        self.note_dirty(page_range);
        Ok(true)
    }

    /// Waits until pins may be gone: those of a write to the node, or of a reader.
    fn wait_for_pins(&self) {
        drop(self.flushing.lock());
        self.cache.kernel.yield_now();
    }

    fn write_in_place(&self, page: PageIndex, start_bytes: usize, bytes: &[u8]) -> Wrote {
        let _not_preempted = self.copying.lock();
        self.cache.frames.write_in_place(&self.table, page, start_bytes, bytes)
    }

    /// What a page that is pinned will be; `None` without memory for it.
    fn copy_with(&self, pinned: Pinned<'_, K>, start_bytes: usize, bytes: &[u8]) -> Option<Spare<K>> {
        let mut spare = self.cache.allocate(0, Purpose::Demand)?;
        spare.copy_from_slice(&pinned);
        spare[start_bytes..][..bytes.len()].copy_from_slice(bytes);
        Some(spare)
    }

    /// Replaces a page by another frame and notifies the listeners that may have it mapped.
    fn install(&self, page: PageIndex, spare: Spare<K>) -> Result<(), NoNode> {
        let leaving = self.cache.frames.install(&self.table, page, spare)?;
        self.tell_left(&leaving, leaving.pages());
        Ok(())
    }

    /// As [`File::install`], of a copy made while there had been `before` listeners, unless the page may have been mapped since: what a
    /// program has stored to the old frame would be lost. Says whether it could.
    fn replace_unmapped(&self, page: PageIndex, spare: Spare<K>, before: u64) -> Result<bool, NoNode> {
        // Under the lock: what adds a listener maps pages afterwards, and then finds the new frame.
        let listeners = self.listeners.lock();
        let is_unmapped = listeners.is_empty() && self.next_listener.load(Ordering::Relaxed) == before;
        let leaving =
            if is_unmapped { Some(self.cache.frames.install(&self.table, page, spare)?) } else { None };
        drop(listeners);
        drop(leaving);
        Ok(is_unmapped)
    }

    /// Writes a part of a page that the cache cannot have to the node.
    fn write_through(&self, page: PageIndex, start_bytes: usize, bytes: &[u8]) -> Result<(), Error<K>> {
        if self.form == Form::InMemory {
            return Err(K::Node::error(Failure::StorageFull));
        }
        count(&self.cache.counters.bypassed, 1);
        let offset = page.start_bytes() + start_bytes as u64;
        let result = self.write_all(bytes, offset);
        // Whoever loads it meanwhile may have what it was before.
        self.drop_pages(PageRange::new(page, page + PageCount::new(1)), DirtyToo::No);
        result
    }

    /// Writes all of `buffer` to the node.
    fn write_all(&self, buffer: &[u8], offset: u64) -> Result<(), Error<K>> {
        let mut done = 0;
        while done < buffer.len() {
            let written = self.node.write_at(&buffer[done..], offset + done as u64);
            // After it: a sync that was under way may have missed it. What failed may have come there in part.
            self.writes.fetch_add(1, Ordering::AcqRel);
            match written? {
                0 => return Err(K::Node::error(Failure::StorageFull)),
                written => done += written,
            }
        }
        Ok(())
    }

    /// A file in memory gets a page of nothing, if it has none there.
    pub(crate) fn install_zeros(self: &Arc<Self>, page: PageIndex) -> Result<(), Error<K>> {
        let no_memory = || K::Node::error(Failure::NoMemory);
        let Some(mut spare) = self.cache.allocate(0, Purpose::Demand) else {
            // A writer may have been replacing it.
            return if self.cache.frames.is_absent(&self.table, page) { Err(no_memory()) } else { Ok(()) };
        };
        spare.fill(0);
        self.cache.frames.install_absent(&self.table, page, spare).map_err(|_| no_memory())?;
        self.cache.keep(self);
        Ok(())
    }

    /// Before the file gets longer: what a program has stored behind the end, through a mapping of the last page, is not the file's.
    pub(crate) fn zero_stored_tail(self: &Arc<Self>) {
        if self.is_stored_to.load(Ordering::Acquire) {
            self.zero_tail(self.len());
        }
    }

    /// Behind the end nothing is left of what was there. The node is truncated already, so a page that is not there needs nothing.
    fn zero_tail(self: &Arc<Self>, length_bytes: u64) {
        let page = PageIndex::containing(length_bytes);
        let start_bytes = (length_bytes - page.start_bytes()) as usize;
        let request = ByteRange::new(page.start_bytes(), length_bytes);
        if start_bytes == 0 {
            return;
        }
        loop {
            match self.write_in_place(page, start_bytes, &[0; PAGE_BYTES][start_bytes..]) {
                Wrote::InPlace => {
                    return self.note_dirty(PageRange::new(page, page + PageCount::new(1)));
                }
                Wrote::Absent => return,
                Wrote::Pending(load) => self.join(load, page, request),
                Wrote::Pinned if self.replace_tail(page, start_bytes) => return,
                // Those who have it pinned are soon done.
                Wrote::Pinned => self.wait_for_pins(),
            }
        }
    }

    /// Says whether it could: not if the page may be mapped, or there is no memory.
    fn replace_tail(self: &Arc<Self>, page: PageIndex, start_bytes: usize) -> bool {
        let Found::Page(pinned) = self.cache.frames.pin(&self.table, page, 0..PAGE_BYTES as u32) else {
            return false;
        };
        let Some(before) = self.listeners_so_far() else { return false };
        let spare = self.copy_with(pinned, start_bytes, &[0; PAGE_BYTES][start_bytes..]);
        let is_replaced = spare.is_some_and(|spare| self.replace_unmapped(page, spare, before) == Ok(true));
        if is_replaced {
            self.note_dirty(PageRange::new(page, page + PageCount::new(1)));
        }
        is_replaced
    }

    fn note_dirty(self: &Arc<Self>, pages: PageRange) {
        if self.form == Form::InMemory {
            return self.cache.keep(self);
        }
        self.change_dirty(|dirty| {
            dirty.mark(pages);
        });
    }

    /// Pages are dropped, written or not.
    pub(crate) fn forget(self: &Arc<Self>, pages: PageRange) {
        self.change_dirty(|dirty| {
            dirty.forget(pages);
        });
        self.drop_pages(pages, DirtyToo::Yes);
    }

    /// Changes what is dirty, and what follows from it.
    fn change_dirty(self: &Arc<Self>, change: impl FnOnce(&mut DirtyPages)) {
        let pages = |dirty: &DirtyPages| dirty.dirty_pages().get() + dirty.writing_pages().get();
        let mut dirty = self.dirty.lock();
        let before = pages(&dirty);
        change(&mut dirty);
        let after = pages(&dirty);
        let gauge = &self.cache.counters.dirty;
        gauge.fetch_add(after.wrapping_sub(before), Ordering::AcqRel);
        let let_go = match (before, after) {
            (0, 1..) => {
                self.note_dirty_since();
                self.cache.keep(self);
                None
            }
            (1.., 0) => self.cache.let_go(self.table.file()),
            _ => None,
        };
        drop(dirty);
        drop(let_go);
    }

    /// A writer above the limit of dirty pages writes back: its own file first.
    fn limit_dirty(self: &Arc<Self>) {
        let dirty_bytes = || self.cache.counters.dirty.load(Ordering::Acquire) * PAGE_SIZE_BYTES;
        let limit_bytes = self.cache.usable_bytes() / DIRTY_SHARE;
        // What fails stays dirty; the next sync says so.
        if dirty_bytes() > limit_bytes && (self.write_back().is_err() || dirty_bytes() > limit_bytes) {
            let _ = self.cache.write_back();
        }
    }

    pub(crate) fn sync(self: &Arc<Self>, scope: SyncScope) -> Result<(), Error<K>> {
        self.write_back()?;
        if self.form == Form::InMemory {
            return Ok(());
        }
        let writes = self.writes.load(Ordering::Acquire);
        self.node.sync(scope)?;
        self.synced_writes.fetch_max(writes, Ordering::AcqRel);
        Ok(())
    }

    /// Whether anything is dirty, or was written to the node since it was last synced.
    pub(crate) fn is_unsynced(&self) -> bool {
        // In this order: what is not dirty any more was counted before.
        let is_clean = self.dirty.lock().is_empty();
        !is_clean || self.synced_writes.load(Ordering::Acquire) < self.writes.load(Ordering::Acquire)
    }

    fn note_dirty_since(&self) {
        self.dirty_since_nanos.store(self.cache.kernel.now().as_nanos() as u64, Ordering::Release);
    }

    /// Since when there may be dirty pages that were not tried to be written, if there are any.
    pub(crate) fn dirty_since(&self) -> Duration {
        Duration::from_nanos(self.dirty_since_nanos.load(Ordering::Acquire))
    }

    /// Writes what is dirty to the node. Blocks.
    pub(crate) fn write_back(self: &Arc<Self>) -> Result<(), Error<K>> {
        // What becomes dirty from here on is as old as this at most.
        self.note_dirty_since();
        self.write_back_pages(ALL_PAGES)
    }

    /// The same for some pages.
    pub(crate) fn write_back_pages(self: &Arc<Self>, pages: PageRange) -> Result<(), Error<K>> {
        if self.form == Form::InMemory {
            return Ok(());
        }
        let _turn = self.flushing.lock();
        let (mut rest, mut result) = (pages, Ok(()));
        loop {
            // Nothing but the kernel writes to a node: pages are dirty as a whole.
            let Some(taken) = self.dirty.lock().take(rest, WRITE_PAGES_MAX) else { return result };
            result = result.and(self.write_run(taken.pages));
            rest.start = taken.pages.end;
        }
    }

    fn write_run(self: &Arc<Self>, run: PageRange) -> Result<(), Error<K>> {
        let (mut rest, mut result) = (run, Ok(()));
        while !rest.is_empty() {
            let held = self.cache.frames.hold(&self.table, rest);
            let pages = held.as_ref().map_or(1, HeldRun::len);
            let part = PageRange::new(rest.start, rest.start + PageCount::new(u64::from(pages)));
            // What is not dirty any more was written through, or dropped.
            let written = held.map_or(Ok(()), |held| self.write_held(&held, part));
            let outcome = if written.is_ok() { Written::Yes } else { Written::No };
            self.change_dirty(|dirty| dirty.complete(part, outcome));
            result = result.and(written);
            rest.start = part.end;
        }
        result
    }

    fn write_held(&self, held: &HeldRun<'_, K>, pages: PageRange) -> Result<(), Error<K>> {
        let event = |(place, page)| PageEvent::WriteBack { page, address: held.address(place) };
        self.notify((0..).zip(pages.iter()).map(event));
        // Of the node's length: a write that lengthens the file sets that before it comes to a page, and the file's after.
        let bytes = pages.bytes().clip(self.node_bytes.load(Ordering::Acquire));
        self.write_all(&held[..bytes.len() as usize], bytes.start)?;
        held.clean();
        count(&self.cache.counters.written, pages.len().get());
        Ok(())
    }
}

/// Of the memory, what may be dirty before writers have to write it back: as much again is there for readers.
const DIRTY_SHARE: u64 = 2;

/// The most that is taken to be written at once: 1 MiB, as much as is read at once.
const WRITE_PAGES_MAX: u64 = 256;

/// How often a page is loaded in vain before a part of it is written to the node.
const ATTEMPTS_MAX: u32 = 2;
