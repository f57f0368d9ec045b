//! Inode: a file as the cache knows it, shared by all who have it open.
//!
//! ```text
//!   open ─► Inodes: by device and number ─► known? same stamp? ─► pages are kept : dropped
//!   read ─► leased, or checked lately? ─► yes: the length as it was
//!                           └► no: fstat ─► stamp changed? ─► pages dropped
//! ```
//!
//! The cache's bytes are right as long as nobody else writes to the file. Who did is told by the stamp: length, time of
//! modification and of change, looked at when the file is opened, at most every [`REVALIDATE_INTERVAL`] while it is read,
//! and whenever a read reaches the end that was known. So what another process writes shows within that interval, and
//! what it appends at once. A write moves the times when it begins, so what was read within 30 s of a change is dropped
//! once more after these; who asks for each read to look has it dropped at each look. Linux 6.13 and later tell two
//! writes apart however short the time between them; before, a write within the same tick of the clock (4 ms) as the look
//! before goes unnoticed, so a stamp younger than a tick is not trusted. Writes through `mmap` move no stamp until they are written back; block devices have none.
//!
//! Owns: stamp, length, streams and counters of a file; which files are known.
//! Does not own: pages, descriptors.
//! Invariants: I10 no page outlives a change of length that was seen.
//! Locks: `inodes` for the maps; `stamp` and `readahead` of one inode, `stamp` across `fstat` and across `control` when
//! pages are dropped; none is held across any other I/O.

mod inodes;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use headwater_core::cache::{DirtyToo, Evicted};
use headwater_core::frame::{FileId, FirstUse, Usage};
use headwater_core::readahead::{
    Access, Advice, Lookup, Plan, PlannedRead, Presence, ReadId, ReadResult, Readahead, ReadaheadLimits,
    ReadaheadPolicy,
};
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use headwater_io::{
    Dropped, Extents, FileKey, FileKind, FilePages, FileStamp, Found, Glanced, OpenFile, Opened, Overwritten,
    StampTrust,
};

use crate::coherence::Leasing;
use crate::counters::{Counts, FileCounters, FileStats};
use crate::engine::Shared;
use crate::events;
use crate::listeners::Listeners;
use crate::put_pages::Put;
use crate::sync::SyncTurns;
use crate::unwritten::{Moment, Unwritten};

pub(crate) use inodes::Inodes;

/// A file that is, or was, open.
pub(crate) struct Inode {
    pub(crate) pages: FilePages,
    pub(crate) counters: FileCounters,
    key: FileKey,
    length_bytes: AtomicU64,
    /// When the stamp was last looked at, in ticks of the coarse clock.
    pub(crate) checked_nanoseconds: AtomicU64,
    stamp: Mutex<Option<FileStamp>>,
    readahead: Mutex<Reading>,
    /// The bounds of its readahead, as its device had them when it was first opened.
    limits: ReadaheadLimits,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) unwritten: Unwritten,
    pub(crate) sync_turns: SyncTurns,
    pub(crate) leasing: Leasing,
    once: AtomicBool,
    opens: AtomicUsize,
    /// Whether it is in the list of closed files; changes under the lock of the maps.
    is_listed: AtomicBool,
    /// Whether it was opened since it was put there.
    is_reopened: AtomicBool,
}

/// The policy of a file, and room for its plans.
pub(crate) struct Reading {
    pub(crate) policy: Readahead,
    pub(crate) kind: ReadaheadPolicy,
    pub(crate) plan: Plan,
}

impl Inode {
    fn new(key: FileKey, shared: &Shared, limits: ReadaheadLimits) -> io::Result<Inode> {
        let kind = shared.readahead_policy;
        let policy = Readahead::new(kind, limits).map_err(invalid)?;
        Ok(Inode {
            pages: shared.cache.pages.add_file()?,
            counters: FileCounters::default(),
            key,
            length_bytes: AtomicU64::new(0),
            checked_nanoseconds: AtomicU64::new(0),
            stamp: Mutex::new(None),
            readahead: Mutex::new(Reading { policy, kind, plan: Plan::new() }),
            limits,
            listeners: Arc::default(),
            unwritten: Unwritten::default(),
            sync_turns: SyncTurns::default(),
            leasing: Leasing::default(),
            once: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_reopened: AtomicBool::new(false),
        })
    }

    /// Copies a few bytes of a page that is much in use, if nothing stands against that: no lock, no pin, no system call.
    #[inline]
    pub(crate) fn glance(&self, buffer: &mut [u8], offset_bytes: u64, interval: Duration) -> Glanced {
        let length = buffer.len() as u64;
        let page = PageIndex::containing(offset_bytes);
        let start = offset_bytes - page.start_bytes();
        let is_small = length.wrapping_sub(1) < u64::from(FilePages::GLANCE_BYTES_MAX);
        let fits = start + length <= PAGE_SIZE_BYTES;
        if !is_small
            || !fits
            || offset_bytes.saturating_add(length) > self.length_bytes()
            || self.once.load(Ordering::Relaxed)
            || self.is_due(interval)
        {
            return Glanced::Not;
        }
        let glanced = self.pages.glance(page, start as u32..(start + length) as u32, buffer);
        if glanced == Glanced::Copied {
            self.counters.hit(1);
        }
        glanced
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
            match self.pages.pin(page, within.clone()) {
                Found::Page(pinned) => {
                    target.copy_from_slice(&pinned[within.start as usize..within.end as usize]);
                }
                Found::Pending(_) | Found::Absent => match self.unwritten.windows.covering(part) {
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

    /// Whether the file is not leased, and was not looked at for as long as `interval`.
    #[inline]
    fn is_due(&self, interval: Duration) -> bool {
        if self.leasing.is_trusted() {
            return false;
        }
        let checked = self.checked_nanoseconds.load(Ordering::Relaxed);
        coarse_nanoseconds().wrapping_sub(checked) >= interval.as_nanos() as u64
    }

    /// The length when last looked at.
    #[inline]
    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// Looks at the file again if that was not done for as long as `interval`.
    #[inline]
    pub(crate) fn revalidate(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        if self.is_due(interval) { self.look(file, trust_for(interval)) } else { Ok(()) }
    }

    /// Looks at the file now, unless it is leased.
    pub(crate) fn refresh(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        if self.leasing.is_trusted() { Ok(()) } else { self.look(file, trust_for(interval)) }
    }

    /// The same for a file that was just opened: what was seen then is enough, unless it says that something has changed.
    fn refresh_opened(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        let opened = file.opened();
        if self.leasing.is_trusted() {
            return Ok(());
        }
        let mut stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let is_as_known = match stamp.as_ref() {
            Some(known) => known.proves_unchanged(&opened.stamp, trust_for(interval)),
            None => file.kind() == FileKind::Regular,
        };
        if !is_as_known {
            drop(stamp);
            return self.look(file, trust_for(interval));
        }
        if stamp.replace(opened.stamp).is_none() {
            // Nobody has written through this inode yet: who could would have looked before.
            *self.unwritten.device_length() = opened.stamp.length_bytes;
            self.length_bytes.store(opened.stamp.length_bytes, Ordering::Release);
        }
        self.checked_nanoseconds.fetch_max(opened.looked_at.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the file, seen by its path just now, holds what is cached of it, all of which is on the device.
    pub(crate) fn is_as_seen(&self, seen: &Opened) -> bool {
        let stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = stamp
            .as_ref()
            .is_some_and(|known| known.proves_unchanged(&seen.stamp, trust_for(REVALIDATE_INTERVAL)));
        is_same && !self.unwritten.may_lack() && self.length_bytes() == seen.stamp.length_bytes
    }

    #[cold]
    fn look(&self, file: &OpenFile, trust: StampTrust) -> io::Result<()> {
        // Before the look, so that what is changed after it is not taken for seen.
        self.checked_nanoseconds.store(coarse_nanoseconds(), Ordering::Relaxed);
        let mut stamp = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_own, moment) = (self.unwritten.take_device_change(), self.unwritten.moment());
        // Under the lock: of two who look at once, the one who saw less must not have the last word.
        let mut now = {
            let mut device_length = self.unwritten.device_length();
            let (_, now) = file.identity()?;
            *device_length = now.length_bytes;
            now
        };
        if is_own {
            // What others did meanwhile cannot be told apart from that.
            now = now.settled();
        }
        let changed = !is_own && stamp.as_ref().is_some_and(|known| !known.proves_unchanged(&now, trust));
        *stamp = Some(now);
        let dropped = self.take_length(now.length_bytes, changed, moment);
        drop(stamp);
        if changed {
            events::changed(self, now.length_bytes, dropped.len());
        }
        self.on_dropped(&dropped);
        Ok(())
    }

    /// The length is what was seen, unless this engine has written since, or has still to write; pages leave if the file was
    /// changed by others, but for dirty ones.
    fn take_length(&self, length_bytes: u64, changed: bool, moment: Moment) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        let state = self.unwritten.lock();
        let length_before = self.length_bytes.load(Ordering::Acquire);
        let is_settled = state.dirty.is_empty() && self.unwritten.moment() == moment;
        let changed = changed || is_settled && length_before > length_bytes;
        if changed {
            // Under the lock: a read that begins after it sees none of the old pages.
            self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| dropped.push(page));
            self.unwritten.note_written();
            self.unwritten.note_change();
        }
        if is_settled {
            // After the pages: who does not look must not read beyond the old end in the old last page.
            self.length_bytes.store(length_bytes, Ordering::Release);
        }
        if changed && length_before != length_bytes {
            // And what was loaded in between, up to the old end.
            self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| dropped.push(page));
        }
        dropped
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
        if let Found::Page(pinned) = self.pages.pin(page, 0..PAGE_SIZE_BYTES as u32) {
            spare[0].store(0, &pinned);
        }
        spare[0].store(start_bytes as usize, zeros);
        self.pages.install(PageRange::new(page, page + PageCount::new(1)), spare);
    }

    /// Whether nobody has it open.
    pub(crate) fn is_closed(&self) -> bool {
        self.opens.load(Ordering::Acquire) == 0
    }

    /// The device has all that was written. If nobody has the file open, it is let go of, with a last look by which somebody
    /// else's changes are told from ours later.
    pub(crate) fn on_clean(&self, shared: &Shared) {
        if !self.is_closed() {
            return;
        }
        let file = self
            .unwritten
            .change(shared, |state| if state.dirty.is_empty() { state.file.take() } else { None });
        if let Some(file) = file
            && self.look(&file, StampTrust::Settling).is_err()
        {
            // It cannot be looked at, so nothing is known of it.
            *self.stamp.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.drop_pages(ALL_PAGES);
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
    pub(crate) fn complete(&self, shared: &Shared, reads: &[ReadId], result: ReadResult) {
        if !reads.is_empty() {
            let (policy, now) = (&mut self.reading().policy, shared.now());
            reads.iter().for_each(|read| policy.complete(*read, result, now));
        }
    }

    pub(crate) fn stats(&self) -> FileStats {
        let held = self.pages.count(ALL_PAGES);
        FileStats {
            counts: self.counters.counts(),
            resident_pages: held.resident,
            loading_pages: held.loading,
            unwritten_pages: self.unwritten.pages(),
        }
    }

    pub(crate) fn reading(&self) -> MutexGuard<'_, Reading> {
        self.readahead.lock().unwrap_or_else(PoisonError::into_inner)
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
        let is_there = self.0.pages.holds(page) || self.0.unwritten.windows.holds(page);
        if is_there { Presence::Cached } else { Presence::Absent }
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({:?})", self.pages)
    }
}

/// Who looks at each read wants nothing missed.
fn trust_for(interval: Duration) -> StampTrust {
    if interval.is_zero() { StampTrust::Strict } else { StampTrust::Settling }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn coarse_nanoseconds() -> u64 {
    headwater_io::coarse_clock().as_nanos() as u64
}

/// How long what was seen of a file is trusted. A look costs 0.2 to 1 µs, so this is 0.01 % of the time of one thread;
/// the coarse clock of the kernel moves every 1 to 10 ms, so much less is the same.
pub(crate) const REVALIDATE_INTERVAL: Duration = Duration::from_millis(10);

/// A page of nothing.
pub(crate) static ZEROS: [u8; PAGE_SIZE_BYTES as usize] = [0; PAGE_SIZE_BYTES as usize];

pub(crate) const ALL_PAGES: PageRange = PageRange { start: PageIndex::new(0), end: PageIndex::MAX };
