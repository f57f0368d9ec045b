//! Cached: positional reads through the cache; the hit path and the miss path, top to bottom.
//!
//! ```text
//!   read_at ─► length known? ─► for each page: pin ─┬─ Page ─► copy ─► unpin          marked? ─► read on ahead
//!                                                   ├─ Pending ─► notify the policy ─► wait for its load ─► pin again
//!                                                   └─ Absent ──► notify the policy ─► plan ─► start ─► wait ─► pin again
//!   start: missing runs ─► frames (evict) ─► begin_load ─► kernel holds it? copy : submit
//! ```
//!
//! Owns: the order of these steps, for threads and for tasks.
//! Does not own: what is read ahead (`headwater-core`), pages (page cache), loads in flight (loads).
//! Invariants: I2 a pending page is waited for, not read again; I5 no lock is held while submitting or waiting; I6 readahead
//! without a frame gives up, and a demand without one reads around the cache; I9 after a failed load the reader that needs the
//! page reads it around the cache and reports its own error; I10 nothing beyond the length is copied.
//! Hot path: a hit takes no lock, makes no system call (it reads the clock in user space) and allocates nothing.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use headwater_core::frame::{FirstUse, LoadId};
use headwater_core::readahead::{Access, Outcome};
use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use headwater_io::{Found, PinnedPage, PinnedPages, Route};

use crate::base::error::Result;
use crate::base::events;
use crate::engine::handle::{Entry, IoMode, Source};
use crate::engine::loads::Load;
use crate::engine::shortage::Shortage;
use crate::engine::{frames, lending};
use crate::inode::Inode;
use crate::load::submit::{Caller, Starter};

impl Source {
    /// Reads through the cache. Blocks.
    pub(crate) fn read_cached(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        buffer: &mut [u8],
        range: ByteRange,
    ) -> Result<usize> {
        let mut read = CachedRead::new(self, inode, Caller::Thread, range)?;
        loop {
            let copy = |at: usize, bytes: &[u8]| buffer[at..at + bytes.len()].copy_from_slice(bytes);
            let Some(next) = read.copy(copy) else { return Ok(read.done()) };
            match next {
                Next::Wait(load) => self.shared().cache.loads.wait(&load),
                Next::Memory(shortage) => shortage.wait(self.shared()),
                Next::Bypass(part) => {
                    let target = &mut buffer[read.done()..][..part.len() as usize];
                    match self.read_device(target, part) {
                        Ok(read_bytes) if read_bytes < target.len() => return Ok(read.done() + read_bytes),
                        Ok(read_bytes) => read.bypassed(read_bytes),
                        Err(_) if read.done() > 0 => return Ok(read.done()),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// As [`Source::read_cached`], for a task. A read within one page shares it.
    pub(crate) async fn read_cached_async(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        range: ByteRange,
    ) -> Result<Bytes> {
        let mut read = CachedRead::of_task(self, inode, range).await?;
        let mut assembled = Vec::new();
        loop {
            if let Some(bytes) = read.lend() {
                let_others_run(bytes.len()).await;
                return Ok(bytes);
            }
            let too_much = |_| self.read_error(range.start, io::ErrorKind::OutOfMemory.into());
            assembled.try_reserve_exact(read.length() - assembled.len()).map_err(too_much)?;
            let Some(next) = read.copy(|_, bytes| assembled.extend_from_slice(bytes)) else {
                let_others_run(assembled.len()).await;
                return Ok(assembled.into());
            };
            match next {
                Next::Wait(load) => self.shared().cache.loads.ready(&load, &self.shared().driver).await,
                Next::Memory(shortage) => shortage.begin(self.shared()).await,
                Next::Bypass(part) => match self.read_device_async(part).await {
                    Ok(bytes) => {
                        assembled.extend_from_slice(&bytes);
                        read.bypassed(bytes.len());
                        if (bytes.len() as u64) < part.len() {
                            return Ok(assembled.into());
                        }
                    }
                    Err(_) if !assembled.is_empty() => return Ok(assembled.into()),
                    Err(error) => return Err(error),
                },
            }
        }
    }
}

impl Source {
    /// The straight path: a page that can be read at once, pinned, because it is resident and the file need not be checked now. With
    /// the range of up to `length` bytes from the offset on, as far as page and file reach; not empty.
    #[inline]
    pub(crate) fn pin_at_once(
        &self,
        offset_bytes: u64,
        length: u64,
        caller: Caller,
    ) -> Option<(PinnedPage<'_>, Range<usize>)> {
        let Some(Entry::Cached(inode)) = self.entered() else { return None };
        let range = ByteRange::at(offset_bytes, length).clip(inode.length_bytes());
        if range.is_empty() || !inode.is_current(self.revalidate_after) {
            return None;
        }
        let page = PageIndex::containing(range.start);
        let start = range.start - page.start_bytes();
        let part = start as u32..(start + range.len()).min(PAGE_SIZE_BYTES) as u32;
        let Found::Page(pinned) = inode.pages.pin(page, part.clone()) else { return None };
        if pinned.first_use() != FirstUse::No {
            CachedRead::of(self, inode, caller, range).first_used(page, pinned.first_use());
        }
        inode.counters.hit(1);
        Some((pinned, part.start as usize..part.end as usize))
    }
}

/// One read through the cache, with its progress.
pub(crate) struct CachedRead<'a> {
    source: &'a Source,
    inode: &'a Arc<Inode>,
    caller: Caller,
    /// How a single missing page is read.
    route: Route,
    /// The range, clipped at the end of the file.
    range: ByteRange,
    /// Bytes copied so far.
    done: usize,
    /// The page last found missing. If it is missing again after some attempts, the read goes around the cache.
    reported: Option<Reported>,
}

/// A page reported to the policy as missing.
#[derive(Clone, Copy, Debug)]
struct Reported {
    page: PageIndex,
    attempts: u32,
}

/// What has to be done before more can be copied.
pub(crate) enum Next {
    /// Wait for this load, which brings the page.
    Wait(Arc<Load>),
    /// Wait for memory.
    Memory(Shortage),
    /// Read these bytes around the cache.
    Bypass(ByteRange),
}

/// A pinned page, or what has to be done first.
enum Step<'a> {
    Page(PinnedPage<'a>),
    Next(Next),
}

impl<'a> CachedRead<'a> {
    /// A read of `range`, as far as the file reaches.
    pub(crate) fn new(
        source: &'a Source,
        inode: &'a Arc<Inode>,
        caller: Caller,
        range: ByteRange,
    ) -> Result<CachedRead<'a>> {
        source.check_for(inode, range).map_err(|error| source.length_error(error))?;
        Ok(CachedRead::checked(source, inode, caller, range))
    }

    /// The same of a task, which does not block its thread until a server answers.
    pub(crate) async fn of_task(
        source: &'a Source,
        inode: &'a Arc<Inode>,
        range: ByteRange,
    ) -> Result<CachedRead<'a>> {
        let checked = source.check_for_task(inode, range).await;
        checked.map_err(|error| source.length_error(error))?;
        Ok(CachedRead::checked(source, inode, Caller::Task, range))
    }

    fn checked(
        source: &'a Source,
        inode: &'a Arc<Inode>,
        caller: Caller,
        range: ByteRange,
    ) -> CachedRead<'a> {
        // In this order: behind the length that is known now, a page that is reconciled may still have zeros in place of an append.
        let length_bytes = inode.length_bytes();
        source.reconcile(inode);
        CachedRead::of(source, inode, caller, range.clip(length_bytes))
    }

    fn of(source: &'a Source, inode: &'a Arc<Inode>, caller: Caller, range: ByteRange) -> CachedRead<'a> {
        let route = source.device_route();
        CachedRead { source, inode, caller, route, range, done: 0, reported: None }
    }

    /// The same, for a write to a part of a page: the page is written back in that part, by the kernel, which would otherwise read
    /// it a second time.
    pub(crate) fn for_write(self) -> CachedRead<'a> {
        let is_direct = self.source.mode == IoMode::Direct;
        CachedRead { route: if is_direct { self.route } else { Route::Buffered }, ..self }
    }

    /// Bytes copied so far.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Bytes of the range that the file has.
    pub(crate) fn length(&self) -> usize {
        self.range.len() as usize
    }

    /// Records bytes that were read around the cache.
    pub(crate) fn bypassed(&mut self, read_bytes: usize) {
        self.done += read_bytes;
        self.reported = None;
    }

    /// Copies resident bytes to `sink`, piece by piece, up to the first page that has to be waited for. `None` when that was all.
    #[inline]
    pub(crate) fn copy(&mut self, mut sink: impl FnMut(usize, &[u8])) -> Option<Next> {
        while self.done < self.length() {
            let (page, part) = self.part();
            let first = match self.step(page, &part) {
                Step::Page(first) => first,
                Step::Next(next) => return Some(next),
            };
            let from = self.done;
            self.done += part.len();
            if self.done == self.length() || part.end < PAGE_SIZE_BYTES as u32 {
                sink(from, &first[part.start as usize..part.end as usize]);
                self.inode.counters.hit(1);
            } else {
                self.copy_run(first, part.start as usize, from, &mut sink);
            }
        }
        None
    }

    /// Copies the rest of a page and the resident pages behind it, pinned together, to `sink`.
    fn copy_run(
        &mut self,
        first: PinnedPage<'a>,
        mut skip: usize,
        from: usize,
        sink: &mut impl FnMut(usize, &[u8]),
    ) {
        let mut pages = PinnedPages::of(first);
        // Pages that are missing, or have too many pins, are waited for with no page pinned.
        let hits = 1 + self.pin_each(PinnedPages::PAGES_MAX - 1, |_, pinned, _| pages.push(pinned));
        let mut at = from;
        for slice in pages.slices() {
            let bytes = &slice[skip..slice.len().min(skip + self.done - at)];
            sink(at, bytes);
            (at, skip) = (at + bytes.len(), 0);
        }
        self.inode.counters.hit(hits);
    }

    /// Passes pinned pages from the next byte on to `keep`, with the number of bytes before each and the part of it that is read,
    /// up to the first page that has to be waited for. `None` when that was all.
    pub(crate) fn pin(&mut self, mut keep: impl FnMut(usize, PinnedPage<'a>, Range<u32>)) -> Option<Next> {
        while self.done < self.length() {
            let (page, part) = self.part();
            match self.step(page, &part) {
                Step::Page(pinned) => keep(self.done, pinned, part.clone()),
                Step::Next(next) => return Some(next),
            }
            self.done += part.len();
            let hits = 1 + self.pin_each(usize::MAX, &mut keep);
            self.inode.counters.hit(hits);
        }
        None
    }

    /// Pins up to `pages_max` of the pages from the next byte on that can be pinned at once, and returns how many. `keep` as for
    /// [`CachedRead::pin`].
    #[inline]
    fn pin_each(&mut self, pages_max: usize, mut keep: impl FnMut(usize, PinnedPage<'a>, Range<u32>)) -> u64 {
        let start = self.range.start + self.done as u64;
        let length = (self.length() - self.done).min(pages_max.saturating_mul(PAGE_BYTES));
        let (mut pages, mut at) = (0, start);
        self.inode.pages.pin_each(ByteRange::at(start, length as u64), |pinned, part| {
            self.note_use(PageIndex::containing(at), &pinned);
            let (done, length) = ((at - self.range.start) as usize, part.len() as u64);
            keep(done, pinned, part);
            (pages, at) = (pages + 1, at + length);
        });
        self.done += (at - start) as usize;
        pages
    }

    /// Pins the page of the next byte, if it is resident.
    #[inline]
    fn step(&mut self, page: PageIndex, part: &Range<u32>) -> Step<'a> {
        loop {
            let step = match self.inode.pages.pin_or_wait(page, part.clone()) {
                Found::Page(pinned) => {
                    self.note_use(page, &pinned);
                    return Step::Page(pinned);
                }
                Found::Pending(load) => self.pending(page, part.clone(), load),
                Found::Absent => self.absent(page, part.clone()),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// The whole range without a copy, if it lies in one resident page and the lending quota lasts.
    fn lend(&self) -> Option<Bytes> {
        let (page, part) = self.whole_page()?;
        Some(lending::lend_page(&self.source.shared().lending, page, part))
    }

    /// The page of the whole range, pinned, and the range within it; `None` if the range is in several pages, or the page is not
    /// resident, or the read has begun.
    #[inline]
    pub(crate) fn whole_page(&self) -> Option<(PinnedPage<'a>, Range<usize>)> {
        let (page, part) = self.part();
        // An empty range, at the end of the file, uses no page.
        if self.done > 0 || part.is_empty() || part.len() < self.length() {
            return None;
        }
        let Found::Page(pinned) = self.inode.pages.pin_or_wait(page, part.clone()) else { return None };
        self.note_use(page, &pinned);
        self.inode.counters.hit(1);
        Some((pinned, part.start as usize..part.end as usize))
    }

    /// The page of the next byte, and the part of it to read.
    #[inline]
    fn part(&self) -> (PageIndex, Range<u32>) {
        let offset_bytes = self.range.start + self.done as u64;
        let page = PageIndex::containing(offset_bytes);
        let start = offset_bytes - page.start_bytes();
        let end = (self.range.end - page.start_bytes()).min(PAGE_SIZE_BYTES);
        (page, start as u32..end as u32)
    }

    #[inline]
    fn note_use(&self, page: PageIndex, pinned: &PinnedPage<'_>) {
        if pinned.first_use() != FirstUse::No {
            self.first_used(page, pinned.first_use());
        }
    }

    #[cold]
    fn first_used(&self, page: PageIndex, first_use: FirstUse) {
        if first_use.is_ahead() {
            add(&self.inode.counters.used, 1);
        }
        if first_use.is_marked() {
            self.notify_policy(page, Outcome::Hit);
        }
    }

    /// Joins the load of a pending page. `None`: look once more.
    #[cold]
    fn pending(&mut self, page: PageIndex, part: Range<u32>, load: LoadId) -> Option<Step<'a>> {
        let Some(load) = self.source.shared().cache.loads.find(load) else {
            return self.absent(page, part);
        };
        add(&self.inode.counters.joined, 1);
        if let Some(first_use) = self.inode.pages.demand(page) {
            if first_use.is_ahead() {
                add(&self.inode.counters.late, 1);
                add(&self.inode.counters.used, 1);
            }
            let outcome = if first_use.is_marked() { Outcome::PendingMarked } else { Outcome::Pending };
            if first_use.is_marked() || !load.is_announced() {
                self.notify_policy(page, outcome);
            }
        }
        Some(Step::Next(Next::Wait(load)))
    }

    /// Handles a page that the lookup did not find. `None`: look once more.
    #[cold]
    fn absent(&mut self, page: PageIndex, part: Range<u32>) -> Option<Step<'a>> {
        // It may have arrived since the lookup, which takes no lock.
        if let Some(step) = self.look_again(page, &part) {
            return Some(step);
        }
        if let Some(part) = self.in_window(page, part.start) {
            return Some(Step::Next(Next::Bypass(part)));
        }
        let again = self.reported.is_some_and(|reported| reported.page == page);
        let attempts = if again { self.reported.expect("looked at above").attempts } else { 0 };
        if attempts < ATTEMPTS_MAX {
            self.reported = Some(Reported { page, attempts: attempts + 1 });
            if !again {
                add(&self.inode.counters.sync_misses, 1);
            }
            self.notify_policy(page, Outcome::Miss);
            if let Some(step) = self.look_again(page, &part) {
                return Some(step);
            }
            // There is no memory; when a load in flight is over, its pages can be evicted.
            let (shared, loads) = (self.source.shared(), &self.source.shared().cache.loads);
            if loads.oldest_moving().is_some() {
                let shortage = Shortage::listen(shared);
                // All that were under way may have ended before.
                if loads.oldest_moving().is_some() {
                    return Some(Step::Next(Next::Memory(shortage)));
                }
            }
        }
        let around = self.absent_range(page, part.start)?;
        add(&self.inode.counters.bypassed, 1);
        events::bypassed(self.inode.pages.id(), around);
        Some(Step::Next(Next::Bypass(around)))
    }

    /// From the next byte to the next page that the cache holds, or the end of the read. `None` if it holds the first: a writer was
    /// replacing it at each look, and the device may have none of its bytes.
    fn absent_range(&self, page: PageIndex, within_bytes: u32) -> Option<ByteRange> {
        let behind = PageRange::new(page + PageCount::new(1), PageRange::covering(self.range).end);
        // In this order: what leaves a window is on the device.
        let end = self.inode.dirty.windows.before(behind).end;
        let absent = self.inode.pages.absent(PageRange::new(page, end));
        let start_bytes = page.start_bytes() + u64::from(within_bytes);
        (!absent.is_empty())
            .then(|| ByteRange::new(start_bytes, absent.end.start_bytes().min(self.range.end)))
    }

    /// The part of a window that begins at the next byte, if there is one.
    fn in_window(&self, page: PageIndex, within_bytes: u32) -> Option<ByteRange> {
        let rest = ByteRange::new(page.start_bytes() + u64::from(within_bytes), self.range.end);
        self.inode.dirty.windows.first(rest).filter(|part| part.start == rest.start)
    }

    fn look_again(&mut self, page: PageIndex, part: &Range<u32>) -> Option<Step<'a>> {
        match self.inode.pages.pin_or_wait(page, part.clone()) {
            Found::Page(pinned) => {
                self.note_use(page, &pinned);
                Some(Step::Page(pinned))
            }
            Found::Pending(load) => {
                let load = self.source.shared().cache.loads.find(load)?;
                Some(Step::Next(Next::Wait(load)))
            }
            Found::Absent => None,
        }
    }

    /// Asks the policy what to read, and starts that.
    fn notify_policy(&self, page: PageIndex, outcome: Outcome) {
        let end = PageIndex::new(self.inode.length_bytes().div_ceil(PAGE_SIZE_BYTES));
        if page >= end {
            return;
        }
        let shared = self.source.shared();
        // A demand for more than its share of memory is loaded in parts: a page must not be evicted before it is copied.
        let mut pages = PageRange::covering(self.range);
        let share = PageCount::new((frames::demand_bytes_max(shared) / PAGE_SIZE_BYTES).max(1));
        pages.end = pages.end.min(PageIndex::new(page.get().saturating_add(share.get())));
        let access = Access { pages, at: page, outcome, bytes: self.range, handle: self.source.handle };
        let plan = self.inode.plan(access, end, shared.cache.loads.now());
        events::miss(self.inode.pages.id(), page, outcome, plan.len());
        let (source, inode, caller, route) = (self.source, self.inode, self.caller, self.route);
        Starter { source, inode, caller, route }.start_all(&plan);
    }
}

/// Yields to the executor now and then: a task that only hits would otherwise never let another task run. Called for each operation, with
/// its length.
pub(crate) async fn let_others_run(length: usize) {
    let work = WORK.get().saturating_add(1 + length / BYTES_PER_OPERATION);
    let mut has_yielded = work < WORK_AT_ONCE;
    WORK.set(if has_yielded { work } else { 0 });
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

thread_local! {
    /// What this thread has completed for tasks since the last yield, in operations.
    static WORK: Cell<usize> = const { Cell::new(0) };
}

/// As many operations as tokio allows a task before it has to yield: some ten microseconds of hits, or 8 MiB.
const WORK_AT_ONCE: usize = 128;

/// Bytes that count as one more operation: what is done with 64 KiB takes longer than a hit.
const BYTES_PER_OPERATION: usize = 64 << 10;

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// How often a page is loaded, and fails or is evicted before it could be copied, until the read goes around the cache.
const ATTEMPTS_MAX: u32 = 2;
