//! Inode: a file as the cache knows it, shared by all handles that have it open.
//!
//! ```text
//!   open ─► Inodes: by device and number ─► known? unchanged? ─► pages are kept : dropped        (revalidate)
//!   read ─► leased, or checked lately? ─► yes: the known length
//!                           └► no: check ─► changed by others? ─► pages dropped                   (revalidate)
//! ```
//!
//! Owns: length, streams and counters of a file; the table of known files.
//! Does not own: pages, descriptors, whether others have changed the file (revalidate, origin).
//! Locks: `inodes` for the maps; `readahead` of one inode; neither is held across I/O.

pub(crate) mod coherence;
pub(crate) mod dirty;
pub(crate) mod errseq;
pub(crate) mod group_sync;
pub(crate) mod lease;
pub(crate) mod on_demand;
pub(crate) mod origin;
pub(crate) mod page_write;
mod revalidate;
pub(crate) mod size_lock;
mod sync_pace;
pub(crate) mod table;
pub(crate) mod windows;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use headwater_core::cache::{DirtyToo, Evicted};
use headwater_core::frame::{FileId, FirstUse, Usage};
use headwater_core::readahead::{
    Access, Advice, Lookup, Plan, PlannedRead, Presence, ReadId, ReadResult, Readahead, ReadaheadLimits,
    ReadaheadPolicy,
};
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use headwater_io::{
    Dropped, Event, Extents, FileKey, FilePages, FileStamp, Found, OpenFile, OptimisticRead, Overwritten,
    lock,
};

use crate::base::counters::{Counts, FileCounters, FileStats};
use crate::base::listeners::Listeners;
use crate::inode::coherence::Leasing;
use dirty::{Dirty, DirtyTotal};
use group_sync::GroupSync;
use origin::Origin;

pub(crate) use origin::EngineWatch;

/// A file that is, or was, open.
pub(crate) struct Inode {
    pub(crate) pages: FilePages,
    pub(crate) counters: FileCounters,
    key: FileKey,
    length_bytes: AtomicU64,
    /// When the file was last checked, by the coarse clock; 0 if the next read has to check.
    pub(crate) checked_nanoseconds: AtomicU64,
    /// When a task last asked the server of the file, by the same clock.
    asked_nanoseconds: AtomicU64,
    pub(crate) origin: Origin,
    pub(crate) space: Space,
    readahead: Mutex<Reading>,
    /// Limits of readahead, those of the device when the file was first opened.
    limits: ReadaheadLimits,
    pub(crate) listeners: Arc<Listeners>,
    /// Notified after this engine has changed the length, and while a caller waits for growth also after others have written.
    pub(crate) lengthened: Arc<Event>,
    pub(crate) dirty: Dirty,
    pub(crate) group_sync: GroupSync,
    pub(crate) leasing: Leasing,
    /// Whether others have changed the file while it was open.
    is_contested: AtomicBool,
    once: AtomicBool,
    opens: AtomicUsize,
    /// Whether it is in the list of closed files; changes under the lock of the table.
    is_listed: AtomicBool,
    /// Whether it was opened since it was listed.
    is_reopened: AtomicBool,
}

/// The last known free space of a file's device.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) looked_nanoseconds: AtomicU64,
    pub(crate) is_short: AtomicBool,
}

/// The policy of a file, and a buffer for its plans.
pub(crate) struct Reading {
    pub(crate) policy: Readahead,
    pub(crate) kind: ReadaheadPolicy,
    pub(crate) plan: Plan,
}

impl Inode {
    /// The inode of a file of which nothing is known yet, and its place in the cache.
    pub(crate) fn new(
        key: FileKey,
        pages: FilePages,
        watch: &Arc<EngineWatch>,
        kind: ReadaheadPolicy,
        limits: ReadaheadLimits,
    ) -> io::Result<Inode> {
        let policy = policy(kind, limits)?;
        Ok(Inode {
            pages,
            counters: FileCounters::default(),
            key,
            length_bytes: AtomicU64::new(0),
            checked_nanoseconds: AtomicU64::new(0),
            asked_nanoseconds: AtomicU64::new(0),
            origin: Origin::new(key, watch),
            space: Space::default(),
            readahead: Mutex::new(Reading { policy, kind, plan: Plan::new() }),
            limits,
            listeners: Arc::default(),
            lengthened: Arc::default(),
            dirty: Dirty::default(),
            group_sync: GroupSync::default(),
            leasing: Leasing::default(),
            is_contested: AtomicBool::new(false),
            once: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_reopened: AtomicBool::new(false),
        })
    }

    /// Copies bytes of frequently used pages by optimistic reads: no lock, no pin, no system call.
    #[inline]
    pub(crate) fn read_optimistic(
        &self,
        buffer: &mut [u8],
        offset_bytes: u64,
        interval: Duration,
    ) -> OptimisticRead {
        let length = buffer.len() as u64;
        let is_short = length.wrapping_sub(1) < OPTIMISTIC_BYTES_MAX;
        if !is_short
            || offset_bytes.saturating_add(length) > self.length_bytes()
            || !self.is_current(interval)
        {
            return OptimisticRead::Failed;
        }
        let (mut at, mut rest, mut pages) = (offset_bytes, buffer, 0);
        while !rest.is_empty() {
            let page = PageIndex::containing(at);
            let start = at - page.start_bytes();
            let end = (start + rest.len() as u64).min(PAGE_SIZE_BYTES);
            let (now, later) = rest.split_at_mut((end - start) as usize);
            if self.pages.read_optimistic(page, start as u32..end as u32, now) == OptimisticRead::Failed {
                return OptimisticRead::Failed;
            }
            (at, rest, pages) = (at + end - start, later, pages + 1);
        }
        self.counters.hit(pages);
        OptimisticRead::Copied
    }

    /// Whether pages can be used without a check of the file now, or a step afterwards, up to the length as it was known before.
    #[inline]
    pub(crate) fn is_current(&self, interval: Duration) -> bool {
        !self.once.load(Ordering::Relaxed) && !self.dirty.is_unreconciled() && !self.is_due(interval)
    }

    /// Whether all pages of a range, up to the end of the file, are resident.
    pub(crate) fn is_resident(&self, range: ByteRange) -> bool {
        let mut pages = PageRange::covering(range.clip(self.length_bytes())).iter();
        !range.is_empty() && self.has_pages() && pages.all(|page| self.pages.is_resident(page))
    }

    /// Copies resident bytes from `offset_bytes` on, up to the first page that is missing. `None` if that is the first, or the file has
    /// to be reconciled before.
    pub(crate) fn copy_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let length_bytes = self.length_bytes();
        // After the length was read: an append announces its bytes last.
        if self.dirty.is_unreconciled() { None } else { self.copy_below(length_bytes, buffer, offset_bytes) }
    }

    /// As [`Inode::copy_resident`], of a file that was reconciled, as far as that was possible, after it had this length.
    pub(crate) fn copy_below(
        &self,
        length_bytes: u64,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> Option<usize> {
        let range = ByteRange::at(offset_bytes, buffer.len() as u64).clip(length_bytes);
        let mut done_bytes = 0;
        for page in PageRange::covering(range).iter() {
            let part = range.intersect(PageRange::new(page, page + PageCount::new(1)).bytes());
            let within = (part.start - page.start_bytes()) as u32..(part.end - page.start_bytes()) as u32;
            let target = &mut buffer[done_bytes..done_bytes + within.len()];
            match self.pages.pin_or_wait(page, within.clone()) {
                Found::Page(pinned) => {
                    target.copy_from_slice(&pinned[within.start as usize..within.end as usize]);
                }
                Found::Pending(_) | Found::Absent => match self.dirty.windows.covering(part) {
                    // A truncate may have moved the end meanwhile, and what a window has beyond it is not in the file.
                    Some(window)
                        if window.read(target, part.start).is_ok() && part.end <= self.length_bytes() => {}
                    _ => break,
                },
            }
            done_bytes += target.len();
            self.counters.hit(1);
        }
        (done_bytes > 0).then_some(done_bytes)
    }

    /// Prefetches into the processor's cache the bytes that a read begins with, if the page is resident.
    #[inline]
    pub(crate) fn fetch(&self, offset_bytes: u64, length: usize) {
        let page = PageIndex::containing(offset_bytes);
        let start = offset_bytes - page.start_bytes();
        self.pages.fetch(page, start as u32..(start + length as u64).min(PAGE_SIZE_BYTES) as u32);
    }

    /// The length at the last check, or after later writes.
    #[inline]
    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// Extends the length to at least the end of what was written. Called under the lock of `dirty`.
    pub(crate) fn grow(&self, written: ByteRange) {
        let length_bytes = self.length_bytes();
        // Written only when it changes: a write takes the cache line away from all that read the file.
        if written.end > length_bytes {
            // Bytes of a window beyond an end must not become visible.
            self.dirty.windows.zero(ByteRange::new(length_bytes, written.start.max(length_bytes)));
            self.length_bytes.fetch_max(written.end, Ordering::AcqRel);
        }
    }

    /// Notifies those that wait for a change of the length, if it is not as it was. Called under no lock.
    #[inline]
    pub(crate) fn note_length_since(&self, before_bytes: u64) {
        if self.length_bytes() != before_bytes {
            self.lengthened.notify(usize::MAX);
        }
    }

    /// Sets the length of a truncated file. Called under the lock of `dirty`.
    pub(crate) fn set_length(&self, length_bytes: u64) {
        self.length_bytes.store(length_bytes, Ordering::Release);
    }

    /// Zeroes a dirty page from `start_bytes` on; in the frame `spare` if the page is pinned. Called under the lock of `dirty`.
    pub(crate) fn zero_tail(&self, page: PageIndex, start_bytes: u32, mut spare: Extents) {
        let zeros = &ZEROS[start_bytes as usize..];
        if self.pages.overwrite(page, start_bytes, zeros) != Overwritten::Pinned {
            return;
        }
        if let Found::Page(pinned) = self.pages.pin_or_wait(page, 0..PAGE_SIZE_BYTES as u32) {
            spare[0].store(0, &pinned);
        }
        spare[0].store(start_bytes as usize, zeros);
        self.pages.install(PageRange::new(page, page + PageCount::new(1)), spare);
    }

    /// Whether no handle is open.
    pub(crate) fn is_closed(&self) -> bool {
        self.opens.load(Ordering::Acquire) == 0
    }

    /// Called when nothing is dirty any more. If no handle is open, closes the engine's descriptor and ends the watch: the last
    /// own change was followed by a check, so that from now on the file's times show only changes by others.
    pub(crate) fn on_clean(&self, total: &DirtyTotal, open: &OpenFile) {
        if !self.is_closed() {
            return;
        }
        let file =
            self.dirty.change(total, |state| if state.dirty.is_empty() { state.file.take() } else { None });
        self.end_watch(open);
        drop(file);
    }

    /// Called when the file is opened after all its handles were closed. Changes by others while it was closed, or before it was
    /// created anew, do not suggest further ones. Of an empty file nothing is lost: a failed sync was that of a file which had its number before,
    /// or of bytes that are no more.
    pub(crate) fn forgive(&self, stamp: &FileStamp) {
        if stamp.length_bytes == 0 && !self.dirty.may_lack() {
            self.group_sync.forget();
            self.dirty.errseq.unlatch();
        }
        if stamp.length_bytes == 0 || stamp.is_old() {
            self.is_contested.store(false, Ordering::Release);
        }
    }

    /// Records the error of an abandoned sync that has completed.
    pub(crate) fn record_abandoned_sync(&self) {
        self.group_sync.settle(&self.dirty.errseq);
    }

    /// Counts a page that was read ahead as used, because it was written to.
    pub(crate) fn note_written_ahead(&self, first_use: FirstUse) {
        if first_use.is_ahead() {
            self.counters.used.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops clean pages from the cache.
    pub(crate) fn drop_pages(&self, pages: PageRange) {
        let mut dropped = Vec::new();
        self.pages.invalidate(pages, DirtyToo::No, |page| dropped.push(page));
        self.on_dropped(&dropped);
    }

    pub(crate) fn on_dropped(&self, dropped: &[Dropped]) {
        for run in dropped.chunk_by(|a, b| a.page + PageCount::new(1) == b.page && a.usage == b.usage) {
            let first = run[0].page;
            let pages = PageRange::new(first, first + PageCount::new(run.len() as u64));
            self.reading().policy.on_dropped(pages);
            self.on_left(pages, run[0].usage);
        }
    }

    fn on_left(&self, pages: PageRange, usage: Usage) {
        self.counters.evicted(pages.len().get(), usage);
        // Listeners are user code: no lock is held.
        self.listeners.notify(pages);
    }

    /// The reads to start after `access`, as the policy decides.
    pub(crate) fn plan(&self, access: Access, end: PageIndex, now: Duration) -> Vec<PlannedRead> {
        let mut reading = self.reading();
        let Reading { policy, plan, .. } = &mut *reading;
        policy.on_read(access, end, now, &Present(self), plan);
        plan.reads().to_vec()
    }

    /// Tells the policy that planned reads are complete.
    pub(crate) fn complete(&self, reads: &[ReadId], result: ReadResult, now: Duration) {
        if !reads.is_empty() {
            let policy = &mut self.reading().policy;
            reads.iter().for_each(|read| policy.complete(*read, result, now));
        }
    }

    pub(crate) fn stats(&self) -> FileStats {
        let held = self.pages.count(ALL_PAGES);
        FileStats {
            counts: self.counters.counts(),
            resident_pages: held.resident,
            loading_pages: held.loading,
            dirty_pages: self.dirty.pages(),
        }
    }

    pub(crate) fn reading(&self) -> MutexGuard<'_, Reading> {
        lock(&self.readahead)
    }

    /// Changes the policy, for all handles of the file.
    pub(crate) fn set_policy(&self, kind: ReadaheadPolicy) -> io::Result<()> {
        let mut policy = policy(kind, self.limits)?;
        let mut reading = self.reading();
        if reading.kind != kind {
            policy.advise(reading.policy.advice());
            (reading.policy, reading.kind) = (policy, kind);
        }
        Ok(())
    }

    /// Takes advice about the order of reads, for all handles of the file.
    pub(crate) fn advise(&self, advice: Advice) {
        self.reading().policy.advise(advice);
        self.once.store(advice == Advice::NoReuse, Ordering::Relaxed);
    }

    /// Plans reads of pages that no reader waits for.
    pub(crate) fn plan_will_need(&self, pages: PageRange) -> Vec<PlannedRead> {
        let end = PageIndex::new(self.length_bytes().div_ceil(PAGE_SIZE_BYTES));
        let mut reading = self.reading();
        let Reading { policy, plan, .. } = &mut *reading;
        policy.on_will_need(pages, end, plan);
        plan.reads().to_vec()
    }

    /// Called after these bytes were read. With `NoReuse`, drops the pages of which the end was read.
    #[inline]
    pub(crate) fn after_read(&self, bytes: ByteRange) {
        if self.once.load(Ordering::Relaxed) {
            self.drop_pages(
                self.whole_pages(ByteRange::new(bytes.start / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES, bytes.end)),
            );
        }
    }

    /// The pages that lie wholly in a range; the last page of the file counts up to the end of the file.
    pub(crate) fn whole_pages(&self, bytes: ByteRange) -> PageRange {
        let start = bytes.start.div_ceil(PAGE_SIZE_BYTES);
        let reaches_end = bytes.end >= self.length_bytes();
        let end = if reaches_end { bytes.end.div_ceil(PAGE_SIZE_BYTES) } else { bytes.end / PAGE_SIZE_BYTES };
        PageRange::new(PageIndex::new(start), PageIndex::new(end.max(start)))
    }

    fn has_pages(&self) -> bool {
        self.pages.has_pages()
    }
}

/// The policy's view of the cache.
struct Present<'a>(&'a Inode);

impl Lookup for Present<'_> {
    fn is_cached(&self, page: PageIndex) -> Presence {
        let is_there = self.0.pages.holds(page) || self.0.dirty.windows.holds(page);
        if is_there { Presence::Cached } else { Presence::Absent }
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({:?})", self.pages)
    }
}

/// A fixed distance is cut to the limits, which are those of the file's device: no caller knows them.
fn policy(kind: ReadaheadPolicy, limits: ReadaheadLimits) -> io::Result<Readahead> {
    let kind = match kind {
        ReadaheadPolicy::Fixed(pages) => {
            let pages_max = u32::try_from(limits.distance_bytes_max / PAGE_SIZE_BYTES).unwrap_or(u32::MAX);
            ReadaheadPolicy::Fixed(pages.min(pages_max))
        }
        kind => kind,
    };
    Readahead::new(kind, limits).map_err(invalid)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// One page of zeros.
pub(crate) static ZEROS: [u8; PAGE_SIZE_BYTES as usize] = [0; PAGE_SIZE_BYTES as usize];

/// What optimistic reads copy. In the processor's cache, 8, 16 and 64 KiB take 104, 195 and 1570 ns instead of 193, 300 and 1750; but 64
/// KiB in order out of 50 MiB take 8.7 instead of 7.7 µs, because runs of pages are fetched ahead and copied in one piece.
const OPTIMISTIC_BYTES_MAX: u64 = 4 * FilePages::OPTIMISTIC_BYTES_MAX as u64;

pub(crate) const ALL_PAGES: PageRange = PageRange { start: PageIndex::new(0), end: PageIndex::MAX };
