//! Dirty: bytes of a file that are in memory and not yet on its device.
//!
//! ```text
//!   write ─► page changed, marked ─► dirty ─► taken ─► pinned, in flight ─┬─ written ─► clean
//!                                      ▲                                   └─ failed ──► dirty again, error noted
//!                                      └───────────────────────────────────────┘
//! ```
//!
//! Owns: which pages are dirty or in flight, the length on the device, the size lock, windows and errors of a file.
//! Does not own: the pages, the requests and when they are made (writeback).
//! Invariants: I3 at most one write of a page is in flight; I11 no direct and no buffered write of this engine are in flight at once
//! in the same aligned 2 MiB of the file; U1 a page that is marked dirty here is dirty in the cache too, and in
//! the table; U2 a page below the length that is not in the cache lies below the length on the device.
//! Locks: `state`, while pages are changed or selected: page cache and arena are locked inside it, and nothing waits under it.
//! `device_length`, only across changes of the length on the device. `recently` inside all others. The size lock is taken before
//! these, and kept while waiting.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use headwater_core::dirty::DirtyPages;
use headwater_core::units::{ByteRange, PAGE_BYTES, PageIndex, PageRange};
use headwater_io::{Driver, OpenFile, lock, try_lock};

use crate::inode::ALL_PAGES;
use crate::inode::errseq::Errseq;
use crate::inode::on_demand::DemandWindows;
use crate::inode::page_write::PageWrite;
use crate::inode::size_lock::SizeLock;
use crate::inode::windows::Windows;

/// Bytes of a file that are not yet on its device.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    state: Mutex<State>,
    /// Pages that are dirty or in flight.
    pages: AtomicU64,
    /// Incremented after every change of the file's contents.
    generation: AtomicU64,
    /// Incremented by every write to the device, and by other changes of pages that do not make them dirty.
    written: AtomicU64,
    /// Whether others have changed the file while pages were dirty in part: the rest of those pages may be stale. Each read looks at it,
    /// and each write changes most of what is beside it.
    is_unreconciled: CachePadded<AtomicBool>,
    /// The ranges of the latest of these; `written` changes under this lock.
    recently: Mutex<VecDeque<ByteRange>>,
    /// A lower bound of the length on the device.
    pub(crate) device_length: Mutex<u64>,
    pub(crate) size_lock: SizeLock,
    /// Pages that lie in live memory instead of frames.
    pub(crate) windows: Windows,
    /// Pages that lie in memory of windows beside frames.
    pub(crate) on_demand: DemandWindows,
    pub(crate) errseq: Errseq,
    /// Whether a thread of its own begins writes of the file.
    pub(crate) is_begun_apart: AtomicBool,
}

/// Dirty pages of all files of an engine, and the clock for their age.
#[derive(Debug)]
pub(crate) struct DirtyTotal {
    pages: AtomicU64,
    pub(crate) driver: Driver,
}

/// The version of a file's contents at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContentVersion {
    generation: u64,
    written: u64,
}

/// State that changes together.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) dirty: DirtyPages,
    /// Open for writing, as long as there are dirty pages.
    pub(crate) file: Option<Arc<OpenFile>>,
    /// When pages that may be stale could not be written, so that they still may.
    pub(crate) reconcile_failed_at: Option<Instant>,
    pub(crate) in_flight: BTreeMap<u64, Arc<PageWrite>>,
    /// Pages beside which no direct write begins: bytes there wait for a buffered write, or are in one that is not in `in_flight`.
    pub(crate) claims: Vec<PageRange>,
    /// Pages from here on are not written back: the file is being truncated.
    pub(crate) barrier: Option<PageIndex>,
    /// Zeros on the device for the sake of a write that has not yet put a byte behind them. The file ends before them.
    pub(crate) gap: Option<ByteRange>,
    /// Where the last write ended, to detect sequential writers.
    pub(crate) next_bytes: u64,
    /// Where the sequential writer began.
    pub(crate) run_start: u64,
    /// Where the search for pages to write back early continues.
    pub(crate) sweep: PageIndex,
    /// When the oldest dirty page became dirty.
    pub(crate) dirty_since: Option<Instant>,
    /// When the last write to the device failed; `None` if it succeeded.
    pub(crate) failed_at: Option<Instant>,
}

impl DirtyTotal {
    pub(crate) fn new(driver: &Driver) -> DirtyTotal {
        DirtyTotal { pages: AtomicU64::default(), driver: driver.clone() }
    }

    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Moves the gauge of dirty pages from `before` to `now`.
    fn move_gauge(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            self.pages.fetch_sub(before - now, Ordering::AcqRel);
        }
    }
}

impl ContentVersion {
    /// Whether nothing has changed since this version was taken.
    #[inline]
    pub(crate) fn is_now(&self, dirty: &Dirty) -> bool {
        self.generation == dirty.generation()
    }
}

impl Dirty {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// `None` while another thread has it, which may wait for the device meanwhile.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        try_lock(&self.state)
    }

    /// Whether a thread changes the length on the device, or asks for it.
    pub(crate) fn is_length_changing(&self) -> bool {
        try_lock(&self.device_length).is_none()
    }

    /// Changes the state, then updates the counts.
    pub(crate) fn change<R>(&self, total: &DirtyTotal, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.update_counts(total, &mut state);
        result
    }

    /// Updates the counts after a change of the state.
    pub(crate) fn update_counts(&self, total: &DirtyTotal, state: &mut State) {
        let pages = state.dirty.dirty_pages().get() + state.dirty.writing_pages().get();
        // Changes under the lock alone.
        let before = self.pages.load(Ordering::Relaxed);
        if pages != before {
            self.pages.store(pages, Ordering::Release);
            total.move_gauge(before, pages);
        }
        if state.dirty.dirty_pages().get() == 0 {
            state.dirty_since = None;
        } else if state.dirty_since.is_none() {
            state.dirty_since = Some(total.driver.now());
        }
    }

    /// Number of pages that are dirty or in flight.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Number of pages that the device lacks, those of windows included as far as the kernel was asked.
    pub(crate) fn unsaved_pages(&self) -> u64 {
        self.pages() + self.windows.unsaved_bytes().div_ceil(PAGE_BYTES) as u64
    }

    /// Whether the device may lack bytes of this file.
    pub(crate) fn may_lack(&self) -> bool {
        self.pages() > 0 || !self.windows.is_empty()
    }

    /// Whether the device lacks bytes of a range, or may lack them: stores to windows are not reported one by one.
    pub(crate) fn overlaps(&self, range: ByteRange) -> bool {
        self.windows.overlaps(range)
            || self.pages() > 0 && self.lock().dirty.first_dirty(PageRange::covering(range)).is_some()
    }

    /// The first part of a range that the device lacks. A window may reach beyond the end of the file.
    pub(crate) fn first(&self, range: ByteRange) -> Option<ByteRange> {
        let dirty = self.lock().dirty.first_dirty(PageRange::covering(range));
        let dirty = dirty.map(|run| run.bytes().intersect(range));
        dirty.into_iter().chain(self.windows.first(range)).min_by_key(|part| part.start)
    }

    /// The present version of the contents, for [`Dirty::has_changed`].
    pub(crate) fn version(&self) -> ContentVersion {
        ContentVersion { generation: self.generation(), written: self.written.load(Ordering::Acquire) }
    }

    /// Whether a range may have been written to since `version`, when the device had all of it.
    pub(crate) fn has_changed(&self, version: ContentVersion, range: ByteRange) -> bool {
        if self.windows.overlaps(range) {
            return true;
        }
        if self.generation() == version.generation {
            return false;
        }
        // Checked in this order: a write that leaves the dirty set meanwhile is noted in `recently` first.
        self.overlaps(range) || self.was_written(version.written, range)
    }

    /// As [`Dirty::has_changed`], for pages outside of windows. Called under the lock of the state.
    pub(crate) fn have_changed(&self, state: &State, version: ContentVersion, pages: PageRange) -> bool {
        state.dirty.first_dirty(pages).is_some() || self.was_written(version.written, pages.bytes())
    }

    /// Whether a device write after the first `before` may have touched this range.
    fn was_written(&self, before: u64, range: ByteRange) -> bool {
        let recently = self.recently();
        let since = (self.written.load(Ordering::Acquire) - before) as usize;
        let meets = |written: &ByteRange| !written.intersect(range).is_empty();
        since > recently.len() || recently.iter().rev().take(since).any(meets)
    }

    fn recently(&self) -> MutexGuard<'_, VecDeque<ByteRange>> {
        lock(&self.recently)
    }

    /// Notes that bytes anywhere in the file reached the device, or that the file changed other than by writes to pages.
    pub(crate) fn note_written(&self) {
        self.note_written_at(ByteRange::new(0, u64::MAX));
    }

    /// As [`Dirty::note_written`], for a part of the file.
    pub(crate) fn note_written_at(&self, range: ByteRange) {
        let mut recently = self.recently();
        if recently.len() == RECENTLY_MAX {
            recently.pop_front();
        }
        recently.push_back(range);
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Incremented after every change of the file's contents.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Notes that the file's contents have changed, which reads see already.
    pub(crate) fn note_change(&self) {
        self.note_change_at(ByteRange::new(0, u64::MAX));
    }

    /// As [`Dirty::note_change`], for a part of the file.
    pub(crate) fn note_change_at(&self, range: ByteRange) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.on_demand.forget(range);
    }

    /// End of the last byte that the device lacks, in a file of this length; 0 if it lacks none.
    pub(crate) fn end_bytes(state: &State, length_bytes: u64) -> u64 {
        let dirty = state.dirty.last_dirty().map(|(page, end)| page.start_bytes() + u64::from(end));
        let in_flight = state.in_flight.values().map(|write| write.bytes().end);
        dirty.map(|end_bytes| end_bytes.min(length_bytes)).into_iter().chain(in_flight).max().unwrap_or(0)
    }

    /// Whether pages may be stale after others have changed the file: pages that are dirty in part, and pages in flight that
    /// others may have overwritten on the device.
    pub(crate) fn is_doubtful(state: &State) -> bool {
        state.dirty.first_in_part(ALL_PAGES).is_some()
            || state.in_flight.values().any(|write| write.is_doubted())
    }

    /// Notes that others have changed the file while pages were dirty in part. Called under the lock of the state.
    pub(crate) fn set_unreconciled(&self, _state: &State) {
        self.is_unreconciled.store(true, Ordering::Release);
    }

    /// Whether pages that are dirty in part must be written and dropped before the next read.
    pub(crate) fn is_unreconciled(&self) -> bool {
        self.is_unreconciled.load(Ordering::Acquire)
    }

    /// Clears the mark of [`Dirty::set_unreconciled`]. Called under the lock of the state.
    pub(crate) fn clear_unreconciled(&self, _state: &State) {
        self.is_unreconciled.store(false, Ordering::Release);
    }

    /// The length on the device.
    pub(crate) fn device_length(&self) -> MutexGuard<'_, u64> {
        lock(&self.device_length)
    }

    /// The last error, if the last write to the device failed.
    pub(crate) fn failing(&self) -> Option<io::Error> {
        self.lock().failed_at?;
        self.errseq.last()
    }

    /// The last error, if a write to the device or a sync has failed since the errseq counted `since`.
    pub(crate) fn failed_since(&self, since: u64) -> Option<io::Error> {
        if self.errseq.count() == since { None } else { self.errseq.last() }
    }

    /// The present path of the file, from `/proc`, while there are dirty pages.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let file = self.lock().file.clone()?;
        fs::read_link(format!("/proc/self/fd/{}", file.buffered().as_raw_fd())).ok()
    }
}

/// The ranges of this many recent device writes are kept for each file: enough for a stream that consumes an extent beside a
/// writer of whole MiBs. An older write counts as one of the whole file. At most a KiB for each file.
const RECENTLY_MAX: usize = 64;
