//! Inode: a file as the cache knows it, shared by all handles that have it open.
//!
//! ```text
//!   open ─► Inodes: by device and number ─► known? unchanged? ─► pages are kept : dropped        (revalidate)
//!   read ─► leased, or looked at lately? ─► yes: the length as it was
//!                           └► no: look ─► changed by others? ─► pages dropped                    (revalidate)
//! ```
//!
//! Owns: length, streams and counters of a file; which files are known.
//! Does not own: pages, descriptors, whether others have changed the file (revalidate, origin).
//! Locks: `inodes` for the maps; `readahead` of one inode; neither is held across I/O.

pub(crate) mod coherence;
pub(crate) mod dirty;
pub(crate) mod errseq;
pub(crate) mod group_sync;
pub(crate) mod lease;
mod origin;
pub(crate) mod page_write;
mod revalidate;
pub(crate) mod size_lock;
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
    Dropped, Extents, FileKey, FilePages, FileStamp, Found, OpenFile, OptimisticRead, Overwritten, lock,
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
    /// When the file was last looked at, in ticks of the coarse clock; 0 if the next read has to look.
    pub(crate) checked_nanoseconds: AtomicU64,
    pub(crate) origin: Origin,
    pub(crate) space: Space,
    readahead: Mutex<Reading>,
    /// The bounds of its readahead, as its device had them when it was first opened.
    limits: ReadaheadLimits,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) dirty: Dirty,
    pub(crate) group_sync: GroupSync,
    pub(crate) leasing: Leasing,
    /// Whether others were seen to change the file while it was open.
    is_contested: AtomicBool,
    once: AtomicBool,
    opens: AtomicUsize,
    /// Whether it is in the list of closed files; changes under the lock of the maps.
    is_listed: AtomicBool,
    /// Whether it was opened since it was put there.
    is_reopened: AtomicBool,
}

/// What was last seen of a file's device.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) looked_nanoseconds: AtomicU64,
    pub(crate) is_short: AtomicBool,
}

/// The policy of a file, and room for its plans.
pub(crate) struct Reading {
    pub(crate) policy: Readahead,
    pub(crate) kind: ReadaheadPolicy,
    pub(crate) plan: Plan,
}

impl Inode {
    /// A file of which nothing is known yet, and its place in the cache.
    pub(crate) fn new(
        key: FileKey,
        pages: FilePages,
        watch: &Arc<EngineWatch>,
        kind: ReadaheadPolicy,
        limits: ReadaheadLimits,
    ) -> io::Result<Inode> {
        let policy = Readahead::new(kind, limits).map_err(invalid)?;
        Ok(Inode {
            pages,
            counters: FileCounters::default(),
            key,
            length_bytes: AtomicU64::new(0),
            checked_nanoseconds: AtomicU64::new(0),
            origin: Origin::new(key, watch),
            space: Space::default(),
            readahead: Mutex::new(Reading { policy, kind, plan: Plan::new() }),
            limits,
            listeners: Arc::default(),
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

    /// Copies a few bytes of a page that is much in use, if nothing stands against that: no lock, no pin, no system call.
    #[inline]
    pub(crate) fn read_optimistic(
        &self,
        buffer: &mut [u8],
        offset_bytes: u64,
        interval: Duration,
    ) -> OptimisticRead {
        let length = buffer.len() as u64;
        let page = PageIndex::containing(offset_bytes);
        let start = offset_bytes - page.start_bytes();
        let is_small = length.wrapping_sub(1) < u64::from(FilePages::OPTIMISTIC_BYTES_MAX);
        let fits = start + length <= PAGE_SIZE_BYTES;
        if !is_small
            || !fits
            || offset_bytes.saturating_add(length) > self.length_bytes()
            || self.once.load(Ordering::Relaxed)
            || self.is_due(interval)
        {
            return OptimisticRead::Failed;
        }
        let outcome = self.pages.read_optimistic(page, start as u32..(start + length) as u32, buffer);
        if outcome == OptimisticRead::Copied {
            self.counters.hit(1);
        }
        outcome
    }

    /// Whether all pages of a range, as far as the file reaches, can be read now.
    pub(crate) fn is_resident(&self, range: ByteRange) -> bool {
        let mut pages = PageRange::covering(range.clip(self.length_bytes())).iter();
        !range.is_empty() && self.has_pages() && pages.all(|page| self.pages.is_resident(page))
    }

    /// Copies what can be read from `offset_bytes` on, up to the first page that cannot. `None` if that is the first.
    pub(crate) fn copy_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let range = ByteRange::at(offset_bytes, buffer.len() as u64).clip(self.length_bytes());
        let mut done_bytes = 0;
        for page in PageRange::covering(range).iter() {
            let part = range.intersect(PageRange::new(page, page + PageCount::new(1)).bytes());
            let within = (part.start - page.start_bytes()) as u32..(part.end - page.start_bytes()) as u32;
            let target = &mut buffer[done_bytes..done_bytes + within.len()];
            match self.pages.pin_in_turn(page, within.clone()) {
                Found::Page(pinned) => {
                    target.copy_from_slice(&pinned[within.start as usize..within.end as usize]);
                }
                Found::Pending(_) | Found::Absent => match self.dirty.windows.covering(part) {
                    Some(window) if window.read(target, part.start).is_ok() => {}
                    _ => break,
                },
            }
            done_bytes += target.len();
            self.counters.hit(1);
        }
        (done_bytes > 0).then_some(done_bytes)
    }

    /// Has the processor fetch bytes of the page that a read begins in, if it is there.
    #[inline]
    pub(crate) fn fetch(&self, offset_bytes: u64, length: usize) {
        let page = PageIndex::containing(offset_bytes);
        let start = offset_bytes - page.start_bytes();
        self.pages.fetch(page, start as u32..(start + length as u64).min(PAGE_SIZE_BYTES) as u32);
    }

    /// The length when last looked at.
    #[inline]
    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// The file reaches to `end_bytes` at the least. Under the lock of what is unwritten.
    pub(crate) fn grow(&self, end_bytes: u64) {
        self.length_bytes.fetch_max(end_bytes, Ordering::AcqRel);
    }

    /// The file was cut. Under the lock of what is unwritten.
    pub(crate) fn set_length(&self, length_bytes: u64) {
        self.length_bytes.store(length_bytes, Ordering::Release);
    }

    /// Zeroes a dirty page from `start_bytes` on, in `spare` if somebody has it pinned. Under the lock of what is unwritten.
    pub(crate) fn zero_tail(&self, page: PageIndex, start_bytes: u32, mut spare: Extents) {
        let zeros = &ZEROS[start_bytes as usize..];
        if self.pages.overwrite(page, start_bytes, zeros) != Overwritten::Pinned {
            return;
        }
        if let Found::Page(pinned) = self.pages.pin_in_turn(page, 0..PAGE_SIZE_BYTES as u32) {
            spare[0].store(0, &pinned);
        }
        spare[0].store(start_bytes as usize, zeros);
        self.pages.install(PageRange::new(page, page + PageCount::new(1)), spare);
    }

    /// Whether nobody has it open.
    pub(crate) fn is_closed(&self) -> bool {
        self.opens.load(Ordering::Acquire) == 0
    }

    /// The device has all that was written. If no handle has the file open, the engine closes it and stops watching it: its own
    /// last change was followed by a look, so that from now on its times tell of changes by others alone.
    pub(crate) fn on_clean(&self, total: &DirtyTotal, open: &OpenFile) {
        if !self.is_closed() {
            return;
        }
        let file =
            self.dirty.change(total, |state| if state.dirty.is_empty() { state.file.take() } else { None });
        self.end_watch(open);
        drop(file);
    }

    /// The file was opened after all its handles had been closed. What others did while it was closed, or before it was made anew, does
    /// not say that they go on.
    pub(crate) fn forgive(&self, stamp: &FileStamp) {
        if stamp.length_bytes == 0 || stamp.is_old() {
            self.is_contested.store(false, Ordering::Release);
        }
    }

    /// Takes the answer of a sync that was dropped while it was under way, if it has come.
    pub(crate) fn conclude_sync(&self) {
        if let Some(Err(error)) = self.group_sync.take_answered().map(|completion| completion.wait().result) {
            self.dirty.errseq.latch(&error);
        }
    }

    /// A page that was read ahead was written to, and so used.
    pub(crate) fn note_written_ahead(&self, first_use: FirstUse) {
        if first_use.is_ahead() {
            self.counters.used.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes pages out of the cache, but for dirty ones.
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
        // They are the user's, and may do anything: no lock is held.
        self.listeners.tell(pages);
    }

    /// What to read now that somebody met `access`.
    pub(crate) fn plan(&self, access: Access, end: PageIndex, now: Duration) -> Vec<PlannedRead> {
        let mut reading = self.reading();
        let Reading { policy, plan, .. } = &mut *reading;
        policy.on_read(access, end, now, &Present(self), plan);
        plan.reads().to_vec()
    }

    /// Planned reads are done.
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
            unwritten_pages: self.dirty.pages(),
        }
    }

    pub(crate) fn reading(&self) -> MutexGuard<'_, Reading> {
        lock(&self.readahead)
    }

    /// Changes the policy, for all who have the file open.
    pub(crate) fn set_policy(&self, kind: ReadaheadPolicy) -> io::Result<()> {
        let mut policy = Readahead::new(kind, self.limits).map_err(invalid)?;
        let mut reading = self.reading();
        if reading.kind != kind {
            policy.advise(reading.policy.advice());
            (reading.policy, reading.kind) = (policy, kind);
        }
        Ok(())
    }

    /// Takes advice about the order of reads, for all who have the file open.
    pub(crate) fn advise(&self, advice: Advice) {
        self.reading().policy.advise(advice);
        self.once.store(advice == Advice::NoReuse, Ordering::Relaxed);
    }

    /// Plans to read pages that nobody waits for.
    pub(crate) fn plan_will_need(&self, pages: PageRange) -> Vec<PlannedRead> {
        let end = PageIndex::new(self.length_bytes().div_ceil(PAGE_SIZE_BYTES));
        let mut reading = self.reading();
        let Reading { policy, plan, .. } = &mut *reading;
        policy.on_will_need(pages, end, plan);
        plan.reads().to_vec()
    }

    /// These bytes were read. If each page is needed once, those that they reach the end of leave.
    #[inline]
    pub(crate) fn after_read(&self, bytes: ByteRange) {
        if self.once.load(Ordering::Relaxed) {
            self.drop_pages(
                self.whole_pages(ByteRange::new(bytes.start / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES, bytes.end)),
            );
        }
    }

    /// The pages that lie wholly in a range; to the last one belongs what the file has of it.
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

/// What the policy sees of the cache.
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

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// A page of nothing.
pub(crate) static ZEROS: [u8; PAGE_SIZE_BYTES as usize] = [0; PAGE_SIZE_BYTES as usize];

pub(crate) const ALL_PAGES: PageRange = PageRange { start: PageIndex::new(0), end: PageIndex::MAX };
