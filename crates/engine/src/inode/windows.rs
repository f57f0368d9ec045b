//! Windows: pages of a file that lie in live memory instead of the cache.
//!
//! ```text
//!   Making ─► Live ─► Closing ─┬─ written back ─► gone
//!                ▲             │
//!                └── failed ───┘
//! ```
//!
//! A page in a Live or Closing window is in no page table: a lookup in the cache misses, and the miss path comes here. So the hit
//! path knows nothing of windows. The stage changes under the lock of `dirty`; while it is Making or Closing, a write through the
//! cache needs the size lock, which the making or closing thread holds.
//!
//! Owns: which windows a file has, and their stages.
//! Does not own: how they are made (window create) and written back (window flush).
//! Invariants: W1 windows of a file do not overlap; W2 a page of a Live or Closing window is not in the cache; W3 the device is
//! as long as a file with windows.
//! W4 at most one piece of a file's windows is in flight, and no truncate passes it.
//! Locks: `list`, for lookups and changes; `unsaved`; `stray`; all inside all others, and no other call is made under them.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Instant;

use headwater_core::readahead::MissingPages;
use headwater_core::units::{ByteRange, PageIndex, PageRange};
use headwater_io::{Completion, LentOut, LiveMemory, OpenFile, lock, unpoisoned};

use crate::base::shared_completion::SharedCompletion;

/// The windows of one file.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    count: AtomicUsize,
    list: RwLock<Vec<Arc<Window>>>,
    stray: Mutex<Option<Arc<Stray>>>,
}

/// A piece of a window in flight to its file, of a flush that was dropped.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) completion: SharedCompletion<()>,
}

/// Consecutive pages of a file in live memory.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) memory: LiveMemory,
    pub(crate) pages: PageRange,
    /// Open for writing.
    pub(crate) file: Arc<OpenFile>,
    stage: AtomicU8,
    unsaved: Mutex<Unsaved>,
    /// The memory's share of the engine's budget.
    #[expect(dead_code, reason = "given back after the memory")]
    charge: LentOut,
}

/// Ranges that the kernel reported as written, and the device does not have.
#[derive(Debug)]
pub(crate) struct Unsaved {
    pub(crate) ranges: Vec<Range<usize>>,
    /// When the kernel was last asked for written ranges.
    pub(crate) asked: Instant,
    /// The window has no user any more, but could not be written back.
    pub(crate) is_orphan: bool,
}

/// The stage of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Making = 0,
    Live = 1,
    Closing = 2,
}

impl Window {
    pub(crate) fn new(memory: LiveMemory, pages: PageRange, file: Arc<OpenFile>, charge: LentOut) -> Window {
        let unsaved = Mutex::new(Unsaved { ranges: Vec::new(), asked: Instant::now(), is_orphan: false });
        Window { memory, pages, file, stage: AtomicU8::new(Stage::Making as u8), unsaved, charge }
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Making,
            1 => Stage::Live,
            _ => Stage::Closing,
        }
    }

    /// Called under the lock of `dirty`.
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    /// Where a byte of the file lies in the memory.
    pub(crate) fn place(&self, offset_bytes: u64) -> usize {
        (offset_bytes - self.pages.start.start_bytes()) as usize
    }

    /// Copies bytes of the file that all lie in this window.
    pub(crate) fn read(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.memory.read(self.place(offset_bytes), buffer)
    }

    pub(crate) fn unsaved(&self) -> MutexGuard<'_, Unsaved> {
        lock(&self.unsaved)
    }

    fn is_readable(&self) -> bool {
        self.stage() != Stage::Making
    }
}

impl Windows {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether no window overlaps the pages; else the pages of one that does.
    pub(crate) fn check(&self, pages: PageRange) -> Result<(), PageRange> {
        let other = self.select(|other| other.pages.meets(pages)).pop();
        other.map_or(Ok(()), |other| Err(other.pages))
    }

    /// Adds a window, unless it would overlap another. Called under the lock of `dirty`.
    pub(crate) fn add(&self, window: &Arc<Window>) -> Result<(), PageRange> {
        self.check(window.pages)?;
        let mut list = unpoisoned(self.list.write());
        list.push(window.clone());
        self.count.store(list.len(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn remove(&self, window: &Arc<Window>) {
        let mut list = unpoisoned(self.list.write());
        list.retain(|other| !Arc::ptr_eq(other, window));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Bytes that the device lacks, as far as the kernel was asked.
    pub(crate) fn unsaved_bytes(&self) -> usize {
        let windows = self.all();
        windows.iter().flat_map(|window| window.unsaved().ranges.clone()).map(|range| range.len()).sum()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Window>> {
        self.select(|_| true)
    }

    /// Leaves a piece in flight to the next holder of the size lock.
    pub(crate) fn leave(&self, completion: Completion, file: Arc<OpenFile>) {
        let stray = Stray { file, completion: SharedCompletion::new() };
        stray.completion.under_way(completion, ());
        *lock(&self.stray) = Some(Arc::new(stray));
    }

    /// The piece that was left. There is none without windows.
    pub(crate) fn stray(&self) -> Option<Arc<Stray>> {
        if self.is_empty() { None } else { lock(&self.stray).clone() }
    }

    /// The piece that was left has arrived.
    pub(crate) fn forget_stray(&self) {
        *lock(&self.stray) = None;
    }

    /// The window of the page, in any stage.
    pub(crate) fn find(&self, page: PageIndex) -> Option<Arc<Window>> {
        self.select(|window| (window.pages.start..window.pages.end).contains(&page)).pop()
    }

    /// Whether a window in any stage has the page.
    pub(crate) fn holds(&self, page: PageIndex) -> bool {
        !self.is_empty() && self.find(page).is_some()
    }

    /// Whether a window in any stage has one of the pages.
    pub(crate) fn touches(&self, pages: PageRange) -> bool {
        !self.select(|window| window.pages.meets(pages)).is_empty()
    }

    /// The pages before the first that lies in a window of any stage.
    pub(crate) fn before(&self, pages: PageRange) -> PageRange {
        let windows = self.select(|window| window.pages.meets(pages));
        let end = windows.iter().map(|window| window.pages.start).min().unwrap_or(pages.end);
        PageRange::new(pages.start, end.max(pages.start))
    }

    /// Removes the pages of windows from ascending runs.
    pub(crate) fn leave_out(&self, runs: &mut MissingPages) {
        for window in self.select(|window| runs.iter().any(|run| run.meets(window.pages))) {
            let around = |run: PageRange| {
                let (start, end) = (window.pages.start, window.pages.end);
                let left = PageRange::new(run.start, start.clamp(run.start, run.end));
                let right = PageRange::new(end.clamp(run.start, run.end), run.end);
                [left, right].into_iter().filter(|part| !part.is_empty())
            };
            *runs = runs.drain(..).flat_map(around).collect();
        }
    }

    /// Whether a readable window has bytes of a range.
    pub(crate) fn overlaps(&self, range: ByteRange) -> bool {
        self.first(range).is_some()
    }

    /// The first part of a range that lies in a readable window.
    pub(crate) fn first(&self, range: ByteRange) -> Option<ByteRange> {
        let windows = self.select(Window::is_readable);
        let parts = windows.iter().map(|window| window.pages.bytes().intersect(range));
        parts.filter(|part| !part.is_empty()).min_by_key(|part| part.start)
    }

    /// The readable window that has all of a range.
    pub(crate) fn covering(&self, range: ByteRange) -> Option<Arc<Window>> {
        let covers = |window: &Window| {
            let bytes = window.pages.bytes();
            window.is_readable() && bytes.start <= range.start && range.end <= bytes.end
        };
        self.select(covers).pop()
    }

    /// Zeroes a range in all readable windows. Called under the lock of `dirty`.
    pub(crate) fn zero(&self, range: ByteRange) {
        for window in self.select(Window::is_readable) {
            let part = window.pages.bytes().intersect(range);
            if !part.is_empty() {
                let zeroed = window.memory.zero(window.place(part.start)..window.place(part.end));
                zeroed.expect("the part lies in the window, and only the process that has it gets here");
            }
        }
    }

    /// Writes to all readable windows what the file has in a range from now on. Called under the lock of `dirty`.
    pub(crate) fn write(&self, range: ByteRange, bytes: &[u8]) {
        for window in self.select(Window::is_readable) {
            let part = window.pages.bytes().intersect(range);
            if !part.is_empty() {
                let bytes = &bytes[(part.start - range.start) as usize..][..part.len() as usize];
                let written = window.memory.write(window.place(part.start), bytes);
                written.expect("the part lies in the window, and only the process that has it gets here");
            }
        }
    }

    fn select(&self, mut is_wanted: impl FnMut(&Window) -> bool) -> Vec<Arc<Window>> {
        if self.is_empty() {
            return Vec::new();
        }
        let list = unpoisoned(self.list.read());
        list.iter().filter(|window| is_wanted(window)).cloned().collect()
    }
}
