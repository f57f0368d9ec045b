//! Dirty: what was written to a file in memory and its device does not have yet.
//!
//! ```text
//!   write ─► page changed, marked ─► dirty ─► take ─► held, in flight ─┬─ written ─► clean
//!                                      ▲                               └─ failed ──► dirty again, noted
//!                                      └───────────────────────────────────┘
//! ```
//!
//! Owns: which pages are dirty, which of them are in flight, the length on the device, what failed and who was told.
//! Does not own: the pages, the requests, when they are made (write back).
//! Invariants: I3 at most one write of a page is in flight; U1 a page that is marked dirty is dirty in the cache too, and in
//! the table; U2 a page below the length that is not in the cache lies below the length on the device.
//! Locks: `state`, for as long as pages are changed or chosen: page cache and arena are locked inside it, nothing waits.
//! `device_length` across what changes the length on the device, and nothing else. `recently` inside all others. The turn is taken before either, and
//! kept while waiting.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use headwater_core::dirty::DirtyPages;
use headwater_core::units::{ByteRange, PageIndex, PageRange};
use headwater_io::{Driver, OpenFile, lock};

use crate::inode::ALL_PAGES;
use crate::inode::errseq::Errseq;
use crate::inode::page_write::PageWrite;
use crate::inode::size_lock::SizeLock;
use crate::inode::windows::Windows;

/// What a file's device does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    state: Mutex<State>,
    /// Pages that are dirty or being written.
    pages: AtomicU64,
    /// Grows with every change of what the file holds.
    generation: AtomicU64,
    /// Grows with every write to the device, and what else changes pages that are not dirty then.
    written: AtomicU64,
    /// Whether others have changed the file while pages of it were dirty in part: what these hold beside may be old.
    is_unsettled: AtomicBool,
    /// Where the last of these were; `written` changes under its lock.
    recently: Mutex<VecDeque<ByteRange>>,
    /// What the device says the length is, at the least.
    pub(crate) device_length: Mutex<u64>,
    pub(crate) size_lock: SizeLock,
    /// Pages that are in nobody's frames, but in live memory.
    pub(crate) windows: Windows,
    pub(crate) errseq: Errseq,
}

/// Pages of all files of an engine that their devices do not have, and the clock by which they age.
#[derive(Debug)]
pub(crate) struct DirtyTotal {
    pages: AtomicU64,
    pub(crate) driver: Driver,
}

/// What a file was when somebody looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContentVersion {
    generation: u64,
    written: u64,
}

/// What changes together.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) dirty: DirtyPages,
    /// Open for writing, as long as there is something to write.
    pub(crate) file: Option<Arc<OpenFile>>,
    pub(crate) in_flight: BTreeMap<u64, Arc<PageWrite>>,
    /// Pages from here on are not written: the file is being cut.
    pub(crate) barrier: Option<PageIndex>,
    /// Where the last write ended, to know who writes in order.
    pub(crate) next_bytes: u64,
    /// Where to go on looking for pages to write early.
    pub(crate) sweep: PageIndex,
    /// When the oldest of the dirty pages became so.
    pub(crate) dirty_since: Option<Instant>,
    /// The last write failed; when.
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

    /// Moves the gauge by what a file had `before` and has `now`.
    fn move_gauge(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            self.pages.fetch_sub(before - now, Ordering::AcqRel);
        }
    }
}

impl ContentVersion {
    /// Whether nothing at all has changed since.
    #[inline]
    pub(crate) fn is_now(&self, dirty: &Dirty) -> bool {
        self.generation == dirty.generation()
    }
}

impl Dirty {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes the state, and has the counts follow.
    pub(crate) fn change<R>(&self, total: &DirtyTotal, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.settle(total, &mut state);
        result
    }

    /// Has the counts follow what was changed.
    pub(crate) fn settle(&self, total: &DirtyTotal, state: &mut State) {
        let pages = state.dirty.dirty_pages().get() + state.dirty.writing_pages().get();
        let before = self.pages.swap(pages, Ordering::AcqRel);
        total.move_gauge(before, pages);
        if state.dirty.dirty_pages().get() == 0 {
            state.dirty_since = None;
        } else if state.dirty_since.is_none() {
            state.dirty_since = Some(total.driver.now());
        }
    }

    /// Pages that the device does not have yet.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Whether there may be anything that the device lacks.
    pub(crate) fn may_lack(&self) -> bool {
        self.pages() > 0 || !self.windows.is_empty()
    }

    /// Whether the device lacks something of a range, or might by now, because others write to it without a word.
    pub(crate) fn overlaps(&self, range: ByteRange) -> bool {
        self.windows.overlaps(range)
            || self.pages() > 0 && self.lock().dirty.first_unwritten(PageRange::covering(range)).is_some()
    }

    /// The first part that the device lacks of a range.
    pub(crate) fn first(&self, range: ByteRange) -> Option<ByteRange> {
        let dirty = self.lock().dirty.first_unwritten(PageRange::covering(range));
        let dirty = dirty.map(|run| run.bytes().intersect(range));
        dirty.into_iter().chain(self.windows.first(range)).min_by_key(|part| part.start)
    }

    /// What the file is now, for [`Dirty::has_changed`].
    pub(crate) fn version(&self) -> ContentVersion {
        ContentVersion { generation: self.generation(), written: self.written.load(Ordering::Acquire) }
    }

    /// Whether a range may have been written to since that moment, when the device had all of it.
    pub(crate) fn has_changed(&self, version: ContentVersion, range: ByteRange) -> bool {
        if self.windows.overlaps(range) {
            return true;
        }
        if self.generation() == version.generation {
            return false;
        }
        // What changed, and is not on the device yet, can be told from the rest. What gets there meanwhile is noted first.
        self.overlaps(range) || self.was_written(version.written, range)
    }

    /// Whether a write to the device, after so many, may have been to this range.
    fn was_written(&self, before: u64, range: ByteRange) -> bool {
        let recently = self.recently();
        let since = (self.written.load(Ordering::Acquire) - before) as usize;
        let meets = |written: &ByteRange| !written.intersect(range).is_empty();
        since > recently.len() || recently.iter().rev().take(since).any(meets)
    }

    fn recently(&self) -> MutexGuard<'_, VecDeque<ByteRange>> {
        lock(&self.recently)
    }

    /// The device has what it lacked, or a part of it; or the file was changed by other means than writing to pages.
    pub(crate) fn note_written(&self) {
        self.note_written_at(ByteRange::new(0, u64::MAX));
    }

    /// The same for a part of the file.
    pub(crate) fn note_written_at(&self, range: ByteRange) {
        let mut recently = self.recently();
        if recently.len() == RECENTLY_MAX {
            recently.pop_front();
        }
        recently.push_back(range);
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Grows with every change of what the file holds, after it.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What the file holds has changed.
    pub(crate) fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Where the last of the bytes ends that the device does not have, in a file of this length; 0 if it has all.
    pub(crate) fn end_bytes(state: &State, length_bytes: u64) -> u64 {
        let dirty = state.dirty.last_dirty().map(|(page, end)| page.start_bytes() + u64::from(end));
        let in_flight = state.in_flight.values().map(|write| write.bytes().end);
        dirty.map(|end_bytes| end_bytes.min(length_bytes)).into_iter().chain(in_flight).max().unwrap_or(0)
    }

    /// Whether pages may hold what is old now that others have changed the file: those that are dirty in part, and those that
    /// are being written, which others may have written over.
    pub(crate) fn is_doubtful(state: &State) -> bool {
        state.dirty.first_in_part(ALL_PAGES).is_some()
            || state.in_flight.values().any(|write| write.is_doubted())
    }

    /// Others have changed the file while pages were dirty in part.
    pub(crate) fn set_unsettled(&self) {
        self.is_unsettled.store(true, Ordering::Release);
    }

    /// Whether pages that are dirty in part have to be written and dropped before the next read.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_unsettled.load(Ordering::Acquire)
    }

    /// They were.
    pub(crate) fn clear_unsettled(&self) {
        self.is_unsettled.store(false, Ordering::Release);
    }

    /// The length on the device.
    pub(crate) fn device_length(&self) -> MutexGuard<'_, u64> {
        lock(&self.device_length)
    }

    /// The last failure, if the last write failed.
    pub(crate) fn failing(&self) -> Option<io::Error> {
        self.lock().failed_at?;
        self.errseq.last()
    }

    /// Where the file lies now, as `/proc` tells, while there is something to write.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let file = self.lock().file.clone()?;
        fs::read_link(format!("/proc/self/fd/{}", file.buffered().as_raw_fd())).ok()
    }
}

/// A file remembers the places of this many of its last writes to the device: enough for a stream that consumes an extent beside a
/// writer of whole MiBs. An older write counts as one of the whole file. At most a KiB a file.
const RECENTLY_MAX: usize = 64;
