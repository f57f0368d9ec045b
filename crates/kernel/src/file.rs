//! File: reading through the cache; the hit path and the miss path, top to bottom.
//!
//! ```text
//!   read_at ─► clip to the length ─► for each page: pin ─┬─ Page ─► marked? plan and queue ─► copy ─► unpin
//!                                                        ├─ Pending ─► notify the policy ─► run its load, or wait for it
//!                                                        └─ Absent ──► notify the policy ─► plan ─► start ─► run ─► again
//! ```
//!
//! Owns: the order of these steps, the length of a file, its policy, the listeners for pages that leave.
//! Does not own: writing (write), loads, frames.
//! Invariants: I2 a page on its way is never read again. I9 a page whose load failed is read again by each reader, around the
//! cache, and that reader gets the error. I10 nothing beyond the length is copied, and the cached rest of the last page is zero.
//! Locks: `readahead` and `listeners`, spin locks; within `listeners` that of frames. A hit takes none but where it meets a mark.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headwater_core::backing::{Backing, Form};
use headwater_core::cache::{DirtyToo, Evicted};
use headwater_core::dirty::DirtyPages;
use headwater_core::frame::{FirstUse, LoadId, Usage};
use headwater_core::readahead::{
    Access, Advice, Lookup, Outcome, Plan, Presence, ReadId, ReadResult, Readahead, ReadaheadStats,
};
use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use lock_api::Mutex;

use crate::frames::{Found, Leaving, Pinned};
use crate::kernel::{Error, Failure, Kernel, Node, NodeKey};
use crate::state::{File, Listener, ListenerId, PageCache, PageEvent, count};

/// A file of a [`PageCache`], open. Clones are the same file.
///
/// The cache's pages are authoritative: writes to the node by others are not seen.
pub struct CachedFile<K: Kernel> {
    pub(crate) file: Arc<File<K>>,
}

impl<K: Kernel> fmt::Debug for CachedFile<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFile").finish_non_exhaustive()
    }
}

/// A page of a file, which does not change or leave as long as this is there.
pub struct Page<'a, K: Kernel> {
    file: &'a File<K>,
    pinned: Pinned<'a, K>,
    index: PageIndex,
}

impl<K: Kernel> fmt::Debug for Page<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<K: Kernel> Clone for CachedFile<K> {
    fn clone(&self) -> Self {
        Self { file: self.file.clone() }
    }
}

impl<K: Kernel> CachedFile<K> {
    pub(crate) fn new(file: Arc<File<K>>) -> Self {
        Self { file }
    }

    /// Fills `buffer` from `offset` on, as far as the file reaches, and says how much that was. Blocks while the device
    /// reads. `buffer` is the kernel's memory: touching it must not fault.
    ///
    /// # Errors
    /// The node's own, if no byte was read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error<K>> {
        let file = &self.file;
        if file.form == Form::Direct {
            return file.node.read_at(buffer, offset);
        }
        let range = ByteRange::at(offset, buffer.len() as u64).clip(file.len());
        let mut done = 0;
        while done < range.len() as usize {
            let (page, within) = part(range, done);
            let target = &mut buffer[done..][..within.len()];
            match file.read_part(page, within.clone(), range, target) {
                Ok(read) if read == within.len() => done += read,
                Ok(read) => return Ok(done + read),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Calls `with` with the page, if it is there; reads nothing.
    pub fn with_page<R>(&self, page: PageIndex, with: impl FnOnce(Option<&Page<'_, K>>) -> R) -> R {
        with(self.resident(page).as_ref())
    }

    /// The page, if it is there. A mark stays on it for the next reader.
    pub(crate) fn resident(&self, page: PageIndex) -> Option<Page<'_, K>> {
        let (file, frames) = (&*self.file, &self.file.cache.frames);
        let Found::Page(pinned) = frames.pin(&file.table, page, 0..PAGE_BYTES as u32) else { return None };
        file.note_use(pinned.first_use());
        if pinned.first_use().is_marked() {
            frames.mark(&file.table, page);
        }
        Some(Page { file, pinned, index: page })
    }

    /// Calls `with` with the page, which is read if it is not there. Blocks then.
    ///
    /// # Errors
    /// [`Failure::InvalidInput`] beyond the end and for files that are not cached, [`Failure::NoMemory`], and the
    /// node's own.
    pub fn with_page_or_insert<R>(
        &self,
        page: PageIndex,
        with: impl FnOnce(&Page<'_, K>) -> R,
    ) -> Result<R, Error<K>> {
        for _ in 0..INSERT_ATTEMPTS_MAX {
            // Each time: the file may have been truncated.
            let length_bytes = self.file.len();
            if page.start_bytes() >= length_bytes || self.file.form == Form::Direct {
                return Err(K::Node::error(Failure::InvalidInput));
            }
            let range = PageRange::new(page, page + PageCount::new(1)).bytes().clip(length_bytes);
            if let Some(pinned) = self.file.page(page, 0..PAGE_BYTES as u32, range)? {
                return Ok(with(&Page { file: &self.file, pinned, index: page }));
            }
            // Unless the node fails again, others took the memory that was found for it.
            self.file.probe(range)?;
        }
        Err(K::Node::error(Failure::NoMemory))
    }

    /// Calls `listener` before any page leaves its memory or is written back: for code that maps pages.
    pub fn add_evict_listener(&self, listener: impl Fn(PageEvent) + Send + Sync + 'static) -> ListenerId {
        let listener: Listener = Arc::new(listener);
        let mut listeners = self.file.listeners.lock();
        let id = ListenerId(self.file.next_listener.fetch_add(1, Ordering::Relaxed));
        listeners.push((id, listener));
        id
    }

    /// Takes a listener back. It may still be running in another task.
    pub fn remove_evict_listener(&self, id: ListenerId) {
        let mut listeners = self.file.listeners.lock();
        let removed = listeners.iter().position(|(known, _)| *known == id).map(|at| listeners.remove(at));
        drop(listeners);
        drop(removed);
    }

    /// Whether the pages are all there is of the file: nothing is read, and none leaves.
    pub fn in_memory(&self) -> bool {
        self.file.form == Form::InMemory
    }

    /// Whether reads and writes go to the node each time.
    pub fn is_direct(&self) -> bool {
        self.file.form == Form::Direct
    }

    /// Length in bytes. Of what is not cached, as when it was opened.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both are the same file.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }

    /// Takes the user's advice about the order of reads.
    pub fn advise(&self, advice: Advice) {
        self.file.readahead.lock().advise(advice);
    }

    /// What its readahead has done.
    pub fn readahead_stats(&self) -> ReadaheadStats {
        self.file.readahead.lock().stats()
    }
}

impl<K: Kernel> Page<'_, K> {
    /// Which page of the file.
    pub fn index(&self) -> PageIndex {
        self.index
    }

    /// Where its memory begins, as the kernel addresses it. It may be mapped as [`Page::access`] says, until a [`PageEvent`] comes.
    pub fn address(&self) -> usize {
        self.pinned.as_ptr() as usize
    }

    pub(crate) fn file(&self) -> &File<K> {
        self.file
    }

    pub(crate) fn pinned(&self) -> &Pinned<'_, K> {
        &self.pinned
    }
}

impl<K: Kernel> Deref for Page<'_, K> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pinned
    }
}

impl<K: Kernel> File<K> {
    pub(crate) fn new(cache: &Arc<PageCache<K>>, key: NodeKey, node: K::Node) -> Result<Self, Error<K>> {
        let length_bytes = node.length_bytes()?.unwrap_or(0);
        let settings = &cache.settings;
        let readahead = Readahead::new(settings.readahead, settings.readahead_limits);
        Ok(Self {
            form: node.form(),
            table: cache.frames.add_file().map_err(|_| K::Node::error(Failure::NoMemory))?,
            node,
            key,
            length_bytes: AtomicU64::new(length_bytes),
            node_bytes: AtomicU64::new(length_bytes),
            readahead: Mutex::new(readahead.expect("the cache was made with these settings")),
            used: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            listeners: Mutex::new(Vec::new()),
            next_listener: AtomicU64::new(0),
            dirty: Mutex::new(DirtyPages::new()),
            dirty_since_nanos: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            synced_writes: AtomicU64::new(0),
            is_stored_to: AtomicBool::new(false),
            writers: Mutex::new(()),
            flushing: Mutex::new(()),
            copying: Mutex::new(()),
            cache: cache.clone(),
        })
    }

    /// The length that the node has now, of a file that no handle has yet.
    pub(crate) fn look_at_length(&self) -> Result<(), Error<K>> {
        let length_bytes = self.node.length_bytes()?.unwrap_or(0);
        self.set_length(length_bytes);
        self.node_bytes.store(length_bytes, Ordering::Release);
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn set_length(&self, length_bytes: u64) {
        self.length_bytes.store(length_bytes, Ordering::Release);
    }

    /// Copies a part of a page, through the cache or around it; says how much of it there is.
    fn read_part(
        self: &Arc<Self>,
        page: PageIndex,
        within: Range<u32>,
        request: ByteRange,
        target: &mut [u8],
    ) -> Result<usize, Error<K>> {
        let Some(pinned) = self.page(page, within.clone(), request)? else {
            return self.read_around(target, page.start_bytes() + u64::from(within.start));
        };
        target.copy_from_slice(&pinned[within.start as usize..within.end as usize]);
        Ok(target.len())
    }

    /// The page, pinned, once it is there; `None` if the cache cannot have it. Blocks.
    pub(crate) fn page(
        self: &Arc<Self>,
        page: PageIndex,
        within: Range<u32>,
        request: ByteRange,
    ) -> Result<Option<Pinned<'_, K>>, Error<K>> {
        let mut attempts = 0;
        loop {
            match self.cache.frames.pin(&self.table, page, within.clone()) {
                Found::Page(pinned) if !pinned.first_use().is_marked() => {
                    self.note_use(pinned.first_use());
                    return Ok(Some(pinned));
                }
                Found::Page(pinned) => {
                    self.note_use(pinned.first_use());
                    // Not while it is pinned: without prefetch tasks this reads.
                    drop(pinned);
                    self.notify_policy(page, Outcome::Hit, request);
                }
                Found::Pending(load) => self.join(load, page, request),
                Found::Absent if self.form == Form::InMemory => self.install_zeros(page)?,
                Found::Absent if attempts < ATTEMPTS_MAX => {
                    if attempts > 0 {
                        self.wait_for_memory();
                    }
                    count(&self.cache.counters.misses, u64::from(attempts == 0));
                    attempts += 1;
                    self.notify_policy(page, Outcome::Miss, request);
                }
                Found::Absent if self.cache.frames.is_absent(&self.table, page) => return Ok(None),
                // A writer was replacing it at each look: its bytes may be nowhere else.
                Found::Absent => {}
            }
        }
    }

    /// There was none: once what is on its way has come, there may be some.
    fn wait_for_memory(&self) {
        let oldest = self.cache.loads.lock().oldest();
        if let Some(load) = oldest {
            load.run();
            load.wait();
        }
    }

    #[inline]
    fn note_use(&self, first_use: FirstUse) {
        if first_use.is_ahead() {
            self.used.fetch_add(1, Ordering::Relaxed);
            self.change_ahead(|ahead| ahead.saturating_sub(1));
        }
    }

    /// Changes the pages ahead, and with them how many files have some.
    fn change_ahead(&self, change: impl Fn(u64) -> u64) {
        let changed =
            self.ahead.fetch_update(Ordering::AcqRel, Ordering::Acquire, |ahead| Some(change(ahead)));
        let before = changed.expect("the closure always gives a value");
        let files = &self.cache.counters.ahead_files;
        match (before, change(before)) {
            (0, 1..) => drop(files.fetch_add(1, Ordering::Relaxed)),
            (1.., 0) => drop(files.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// The page is loading: runs the load, if no task has begun it, or waits for it.
    #[cold]
    pub(crate) fn join(self: &Arc<Self>, load: LoadId, page: PageIndex, request: ByteRange) {
        let Some(load) = self.cache.loads.lock().find(load) else { return };
        count(&self.cache.counters.joined, 1);
        if let Some(first_use) = self.cache.frames.demand(&self.table, page) {
            self.note_use(first_use);
            let outcome = if first_use.is_marked() { Outcome::PendingMarked } else { Outcome::Pending };
            self.notify_policy(page, outcome, request);
        }
        load.run();
        count(&self.cache.counters.waits, u64::from(!load.is_over()));
        load.wait();
    }

    /// Asks the policy what to read and starts it; runs the loads that no other task will.
    fn notify_policy(self: &Arc<Self>, at: PageIndex, outcome: Outcome, request: ByteRange) {
        let end = PageIndex::new(self.len().div_ceil(PAGE_SIZE_BYTES));
        if at >= end {
            return;
        }
        let mut pages = PageRange::covering(request);
        // A request for more than its share of the memory is done in parts: what is read early must not leave before it
        // is copied.
        let share = (self.cache.settings.readahead_limits.share_bytes_max / PAGE_SIZE_BYTES).max(1);
        pages.end = pages.end.min(PageIndex::new(at.get().saturating_add(share).min(PageIndex::MAX.get())));
        let plan = self.plan(Access { pages, at, outcome, bytes: request, handle: 0 }, end);
        self.cache.start(self, plan.reads()).iter().for_each(|load| load.run());
    }

    fn plan(&self, access: Access, end: PageIndex) -> Plan {
        let mut plan = Plan::new();
        let mut readahead = self.readahead.lock();
        readahead.on_used(self.used.swap(0, Ordering::Relaxed));
        readahead.set_share(self.cache.share_bytes());
        readahead.on_read(access, end, self.cache.kernel.now(), &Present(self), &mut plan);
        let ahead_pages = readahead.stats().ahead_pages;
        self.change_ahead(|_| ahead_pages);
        drop(readahead);
        plan
    }

    /// Planned reads are done.
    pub(crate) fn complete(&self, reads: &[ReadId], result: ReadResult) {
        if !reads.is_empty() {
            let (mut readahead, now) = (self.readahead.lock(), self.cache.kernel.now());
            reads.iter().for_each(|read| readahead.complete(*read, result, now));
        }
    }

    /// Reads a part of a page that the cache cannot have.
    fn read_around(&self, target: &mut [u8], offset: u64) -> Result<usize, Error<K>> {
        count(&self.cache.counters.bypassed, 1);
        self.node.read_at(target, offset)
    }

    /// Reads around the cache what it could not have: the node may say why. Allocates nothing: memory may be what is short.
    pub(crate) fn probe(&self, range: ByteRange) -> Result<(), Error<K>> {
        let (mut sector, mut at) = ([0; 512], range.start);
        while at < range.end {
            let length = (range.end - at).min(sector.len() as u64) as usize;
            match self.read_around(&mut sector[..length], at)? {
                0 => break,
                read_bytes => at += read_bytes as u64,
            }
        }
        Ok(())
    }

    /// The number of listeners so far, if none is there now, so that no page is mapped.
    pub(crate) fn listeners_so_far(&self) -> Option<u64> {
        let listeners = self.listeners.lock();
        listeners.is_empty().then(|| self.next_listener.load(Ordering::Relaxed))
    }

    /// Whether pages may be mapped.
    pub(crate) fn is_listened_to(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    /// A page has changed: no mapping shows it as it was before, from here on. What changed cannot be evicted meanwhile.
    pub(crate) fn await_unmapped(&self) {
        if self.is_listened_to() {
            self.cache.frames.await_reports(&self.cache.kernel);
        }
    }

    /// Tells the listeners; no spin lock is held.
    pub(crate) fn notify(&self, events: impl Iterator<Item = PageEvent>) {
        let listeners: Vec<Listener> =
            self.listeners.lock().iter().map(|(_, listener)| listener.clone()).collect();
        if !listeners.is_empty() {
            events.for_each(|event| listeners.iter().for_each(|listener| listener(event)));
        }
    }

    /// Pages of this file have left.
    pub(crate) fn tell_left(&self, leaving: &Leaving<'_, K>, pages: &[Evicted]) {
        self.notify(pages.iter().map(|page| PageEvent::evict(leaving, page)));
    }

    /// Of pages that made room, the policy hears of those that were read in vain.
    pub(crate) fn on_unused(&self, pages: &[Evicted]) {
        let unused = pages.iter().filter(|page| page.usage == Usage::Unused);
        let mut readahead = self.readahead.lock();
        let ahead_pages = unused.clone().count() as u64;
        unused.for_each(|page| readahead.on_unused(PageRange::new(page.page, page.page + PageCount::new(1))));
        drop(readahead);
        self.change_ahead(|ahead| ahead.saturating_sub(ahead_pages));
    }

    /// Drops pages on request.
    pub(crate) fn drop_pages(&self, pages: PageRange, dirty_too: DirtyToo) {
        let leaving = self.cache.frames.invalidate(&self.table, pages, dirty_too);
        self.tell_left(&leaving, leaving.pages());
        self.readahead.lock().on_dropped(pages);
    }
}

impl<K: Kernel> Drop for File<K> {
    fn drop(&mut self) {
        self.drop_pages(ALL_PAGES, DirtyToo::Yes);
        self.change_ahead(|_| 0);
        // In this order: the number may be another file's as soon as it is given back.
        self.cache.forget(self.table.file(), self.key);
        self.cache.frames.remove_file(&self.table);
    }
}

/// What the policy sees of the cache.
struct Present<'a, K: Kernel>(&'a File<K>);

impl<K: Kernel> Lookup for Present<'_, K> {
    fn is_cached(&self, page: PageIndex) -> Presence {
        match self.0.cache.frames.holds(&self.0.table, page) {
            true => Presence::Cached,
            false => Presence::Absent,
        }
    }
}

/// The page that a request has come to, and which part of it.
pub(crate) fn part(request: ByteRange, done: usize) -> (PageIndex, Range<u32>) {
    let offset = request.start + done as u64;
    let page = PageIndex::containing(offset);
    let end = (request.end - page.start_bytes()).min(PAGE_SIZE_BYTES);
    (page, (offset - page.start_bytes()) as u32..end as u32)
}

pub(crate) const ALL_PAGES: PageRange = PageRange { start: PageIndex::new(0), end: PageIndex::MAX };

/// How often a page is loaded in vain until it is read around the cache.
const ATTEMPTS_MAX: u32 = 2;

/// Attempts to insert a page that cannot be read around the cache, while other tasks compete for all memory.
const INSERT_ATTEMPTS_MAX: u32 = 16;
