//! File pages: the pages of one file, looked up without a lock.
//!
//! ```text
//!   pin ─┬─ Page ─► &[u8] ─► drop: unpinned
//!        ├─ Pending ─► the caller waits for that load
//!        └─ Absent ─► extents ─► begin_load ─► Loading
//! ```
//!
//! Owns: the lookup, and the calls by which pages begin to load and leave.
//! Does not own: the end of a load (loading), writes (writing), which page is evicted (the cache).
//! Hot path: `pin`: no lock, no syscall, no allocation.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use headwater_core::cache::{DirtyToo, Lookup};
use headwater_core::frame::{FileId, FirstUse, FrameState, Invalidated, LoadId, LoadKind, Pin, Usage};
use headwater_core::table::PageTable;
use headwater_core::units::{
    ByteRange, FrameId, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange,
};
use smallvec::SmallVec;

use super::{Loading, PinnedPage, Shared};
use crate::memory::arena::Extents;
use crate::system::sys;

/// The pages of one file. Clones share them; with the last one they leave the cache.
#[derive(Clone)]
pub struct FilePages {
    pub(super) file: Arc<Pages>,
}

pub(super) struct Pages {
    pub(super) shared: Arc<Shared>,
    pub(super) table: Arc<PageTable>,
}

/// Result of a page lookup.
#[derive(Debug)]
pub enum Found<'a> {
    /// It is there.
    Page(PinnedPage<'a>),
    /// This load brings it.
    Pending(LoadId),
    /// It seems not to be there.
    Absent,
}

/// What a page with as many pins as can be counted is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crowded {
    IsAbsent,
    IsWaitedFor,
}

/// What became of an optimistic read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptimisticRead {
    /// The bytes are in the buffer.
    Copied,
    /// They are not; the buffer may hold anything.
    Failed,
}

/// A page that was taken out of use before it was evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Which.
    pub page: PageIndex,
    /// Whether it was of use.
    pub usage: Usage,
}

impl FilePages {
    /// The file's number in the cache, as [`Evicted`](headwater_core::cache::Evicted) names it.
    pub fn id(&self) -> FileId {
        self.file.table.file()
    }

    /// Whether there are pages, or some on their way.
    pub fn has_pages(&self) -> bool {
        !self.file.table.is_empty()
    }

    /// Finds a page and pins it, if that can be done without a lock. `part` is what will be read of it: going on where
    /// the last read of the page ended is no second reference. `Absent` too in a forked child, and while
    /// [`FilePages::PINS_MAX`] pins keep the page; [`FilePages::is_resident`] distinguishes these cases.
    #[inline]
    pub fn pin(&self, page: PageIndex, part: Range<u32>) -> Found<'_> {
        self.pin_or(page, part, Crowded::IsAbsent)
    }

    /// As [`FilePages::pin`], but while the page has [`FilePages::PINS_MAX`] pins, waits until one of them is released: for
    /// callers that do not keep as many pins.
    #[inline]
    pub fn pin_or_wait(&self, page: PageIndex, part: Range<u32>) -> Found<'_> {
        self.pin_or(page, part, Crowded::IsWaitedFor)
    }

    /// Pins that a page can have at once, those aside of [`FilePages::hold`].
    pub const PINS_MAX: u32 = headwater_core::frame::PINS_MAX;

    #[inline]
    fn pin_or(&self, page: PageIndex, part: Range<u32>, crowded: Crowded) -> Found<'_> {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        loop {
            let Some((found, base)) = self.find(page) else { return Found::Absent };
            fetch_ahead(base, part.start);
            match shared.cache.pin(table, page, found, part.start, part.end) {
                Lookup::Pinned(frame, first_use) => {
                    return Found::Page(PinnedPage { shared, frame, base, first_use });
                }
                Lookup::Pending(load) => return Found::Pending(load),
                Lookup::Absent => return Found::Absent,
                Lookup::Offered(frame) => shared.touch(frame),
                Lookup::Crowded if crowded == Crowded::IsAbsent => return Found::Absent,
                Lookup::Busy | Lookup::Crowded => give_way(),
            }
        }
    }

    /// As [`FilePages::pin`] for all pages of a range, in order, each with the part of it that is in the range: up to the first that
    /// is not pinned. Faster than one by one.
    #[inline]
    pub fn pin_each<'a>(&'a self, range: ByteRange, mut keep: impl FnMut(PinnedPage<'a>, Range<u32>)) {
        let (shared, file) = (&*self.file.shared, self.id());
        if !shared.arena.is_here() {
            return;
        }
        let pages = PageRange::covering(range);
        let mut page = pages.start;
        while page < pages.end {
            // A pin is an atomic operation, past which the processor does not run ahead: what several need is loaded before the first.
            let numbers =
                shared.cache.find_run(&self.file.table, page).take((pages.end - page).get() as usize);
            let found: SmallVec<[_; RUN_PAGES]> = numbers
                .map_while(|number| Some((number, shared.cache.frame(number)?, shared.arena.frame(number)?)))
                .collect();
            if found.is_empty() {
                return;
            }
            for (number, frame, base) in found {
                let start = range.start.saturating_sub(page.start_bytes());
                let part = start as u32..(range.end - page.start_bytes()).min(PAGE_SIZE_BYTES) as u32;
                fetch_ahead(base, part.start);
                let Pin::Pinned(first_use) = frame.pin(file, page, part.start, part.end) else { return };
                keep(PinnedPage { shared, frame: number, base, first_use }, part);
                page = page + PageCount::new(1);
            }
        }
    }

    /// Prefetches the beginning of `part` of a resident page, and the frame's word, into the processor's cache.
    #[inline]
    pub fn fetch(&self, page: PageIndex, part: Range<u32>) {
        let Some((found, base)) = self.find(page) else { return };
        if let Some(frame) = self.file.shared.cache.frame(found) {
            sys::prefetch(NonNull::from(frame).cast(), 0..1);
        }
        let end = part.end.min(part.start.saturating_add(FETCHED_BYTES_MAX)).min(PAGE_BYTES as u32);
        sys::prefetch(base, part.start as usize..end as usize);
    }

    /// Optimistic read: copies bytes of a page without a pin, then checks that the page has not changed meanwhile. A pin
    /// is an atomic operation, past which the processor does not run ahead; this is not, so that the next read can overlap.
    ///
    /// Fails, and the caller pins, if the page is absent or changes, if its reference count is not yet at its maximum (a pin
    /// would raise it), and for a `part` that is longer than [`FilePages::OPTIMISTIC_BYTES_MAX`] or than the buffer, or
    /// is not within a page.
    #[inline]
    pub fn read_optimistic(&self, page: PageIndex, part: Range<u32>, buffer: &mut [u8]) -> OptimisticRead {
        let is_part = part.start <= part.end && part.end <= PAGE_BYTES as u32;
        if !is_part || part.len() > buffer.len().min(Self::OPTIMISTIC_BYTES_MAX as usize) {
            return OptimisticRead::Failed;
        }
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let Some((found, base)) = self.find(page) else { return OptimisticRead::Failed };
        let Some((frame, version)) = shared.cache.begin_optimistic_read(table, page, found) else {
            return OptimisticRead::Failed;
        };
        // SAFETY: the part lies in the page, as was checked above, and the frame is mapped as long as the arena. Others may
        // write to it meanwhile, if the page has left since: the kernel, or `zero_tail` by atomic stores; what
        // was copied is not used then.
        unsafe { sys::load_racing(base, part.start as usize..part.end as usize, buffer) };
        if frame.is_unchanged(version) { OptimisticRead::Copied } else { OptimisticRead::Failed }
    }

    /// The most that [`FilePages::read_optimistic`] copies: a page where the processor copies words by one instruction, else a
    /// cache line, because word by word a copy takes longer than a pin saves.
    pub const OPTIMISTIC_BYTES_MAX: u32 = if sys::STRING_COPIES { PAGE_BYTES as u32 } else { 64 };

    /// The frame that seems to hold the page, and where it lies; nothing in a forked child.
    #[inline]
    pub(super) fn find(&self, page: PageIndex) -> Option<(FrameId, NonNull<u8>)> {
        let shared = &*self.file.shared;
        if !shared.arena.is_here() {
            return None;
        }
        let frame = shared.cache.find(&self.file.table, page)?;
        Some((frame, shared.arena.frame(frame)?))
    }

    /// Adds the runs of `pages` that are neither there nor on their way; exact at the moment of the call.
    pub fn missing(&self, pages: PageRange, runs: &mut impl Extend<PageRange>) {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let controlled = shared.lock();
        let mut from = pages.start;
        while from < pages.end {
            let next =
                controlled.control.next(&shared.cache, table, from).unwrap_or(pages.end).min(pages.end);
            if next > from {
                runs.extend([PageRange::new(from, next)]);
            }
            from = next;
            while from < pages.end && controlled.control.state(&shared.cache, table, from).is_some() {
                from = from + PageCount::new(1);
            }
        }
    }

    /// The first of `pages`, up to the first that is there or on its way; exact at the moment of the call. A lookup without the lock may take
    /// a page for absent while it is being replaced. In a forked child, which finds none, all are absent.
    pub fn absent(&self, pages: PageRange) -> PageRange {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        if !shared.arena.is_here() {
            return pages;
        }
        let next = shared.lock().control.next(&shared.cache, table, pages.start);
        PageRange::new(pages.start, next.map_or(pages.end, |next| next.min(pages.end)))
    }

    /// Whether the page can be read now, as far as is visible without a lock.
    pub fn is_resident(&self, page: PageIndex) -> bool {
        let state = self.file.shared.cache.state(&self.file.table, page);
        state.is_some_and(|state| state != FrameState::Loading)
    }

    /// Whether the page is there or on its way, as far as is visible without a lock.
    pub fn holds(&self, page: PageIndex) -> bool {
        self.file.shared.cache.holds(&self.file.table, page)
    }

    /// The first of `pages` become pages on their way into `extents`: up to the first that is there or on its way
    /// already, or for which there is no memory in tables. Those from `ahead_from` on are readahead.
    ///
    /// # Errors
    /// When that is the first.
    ///
    /// # Panics
    /// If `extents` do not hold `pages`, are of another arena, or are those of another load under way.
    pub fn begin_load(
        &self,
        pages: PageRange,
        extents: &Extents,
        load: LoadId,
        ahead_from: PageIndex,
    ) -> Result<Loading, NotBegun> {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        assert!(extents.iter().all(|extent| shared.arena.owns(extent)), "the extents are of this arena");
        let frames = extents.iter().map(|extent| extent.frames()).collect();
        // Ends what was begun if the next page is refused with a panic.
        let begun = PageRange::new(pages.start, pages.start);
        let mut loading = Loading { file: self.file.clone(), pages: begun, frames };
        let mut controlled = shared.lock();
        let mut obstacle = NotBegun::Present;
        let mut numbers = extents.iter().flat_map(|extent| extent.frames());
        for page in pages.iter() {
            let frame = numbers.next().expect("the extents hold the pages");
            if controlled.control.state(&shared.cache, table, page).is_some() {
                break;
            }
            obstacle = NotBegun::NoTable;
            if controlled.prepare(&shared.cache, frame).is_none() {
                break;
            }
            let control = &mut controlled.control;
            let kind = if page < ahead_from { LoadKind::Demand } else { LoadKind::Ahead };
            if control.begin_load(&shared.cache, table, page, FrameId::new(frame), (load, kind)).is_err() {
                break;
            }
            loading.pages.end = page + PageCount::new(1);
        }
        drop(controlled);
        if loading.pages.is_empty() { Err(obstacle) } else { Ok(loading) }
    }

    /// Called when a reader waits for a loading page, which counts as demanded from now on. Returns whether it was read ahead or
    /// marked; `None` if it is not on its way.
    pub fn demand(&self, page: PageIndex) -> Option<FirstUse> {
        let shared = &*self.file.shared;
        shared.lock().control.demand(&shared.cache, &self.file.table, page)
    }

    /// The next use of the page is to be reported ([`PinnedPage::first_use`]), if it is there or on its way.
    pub fn mark(&self, page: PageIndex) {
        let shared = &*self.file.shared;
        shared.lock().control.mark(&shared.cache, &self.file.table, page);
    }

    /// Removes pages from the cache, dirty ones if `dirty_too` is `Yes`. Pins stay valid; the result of a load under way is
    /// discarded.
    pub fn invalidate(&self, pages: PageRange, dirty_too: DirtyToo, mut each: impl FnMut(Dropped)) {
        self.file.invalidate(pages, dirty_too, &mut each);
    }

    /// Pages of this file that can be read or are on their way, counted one by one.
    pub fn count(&self, pages: PageRange) -> PageCounts {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let controlled = shared.lock();
        let mut counts = PageCounts::default();
        let mut from = pages.start;
        while let Some(page) =
            controlled.control.next(&shared.cache, table, from).filter(|page| *page < pages.end)
        {
            match controlled.control.state(&shared.cache, table, page) {
                Some(FrameState::Loading) => counts.loading += 1,
                _ => counts.resident += 1,
            }
            from = page + PageCount::new(1);
        }
        counts
    }
}

/// Why pages were not begun to be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotBegun {
    /// The first is there or on its way.
    Present,
    /// Tables have no room for it: pages elsewhere must leave first.
    NoTable,
}

/// How many pages of a file are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCounts {
    /// Can be read.
    pub resident: u64,
    /// On their way.
    pub loading: u64,
}

impl fmt::Debug for FilePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilePages({:?})", self.id())
    }
}

impl Pages {
    fn invalidate(&self, pages: PageRange, dirty_too: DirtyToo, each: &mut dyn FnMut(Dropped)) {
        let mut freed: SmallVec<[FrameId; 64]> = SmallVec::new();
        let mut dropped: SmallVec<[Dropped; 64]> = SmallVec::new();
        let note = |frame, page, became, usage| {
            if became == Invalidated::Freed {
                freed.push(frame);
            }
            if became != Invalidated::Stale {
                dropped.push(Dropped { page, usage });
            }
        };
        self.shared.lock().control.invalidate(&self.shared.cache, &self.table, pages, dirty_too, note);
        // SAFETY: the cache has just named each of them free.
        unsafe { self.shared.arena.give_back(&freed) };
        dropped.into_iter().for_each(each);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.shared.arena.is_here() {
            // In a forked child, a thread that is gone may hold the lock.
            return;
        }
        let all = PageRange::new(PageIndex::new(0), PageIndex::MAX);
        self.invalidate(all, DirtyToo::Yes, &mut |_| {});
        self.shared.lock().control.remove_file(&self.table);
    }
}

/// A writer or a reader copies at most a page, but may have lost its processor meanwhile.
#[cold]
pub(super) fn give_way() {
    std::thread::yield_now();
}

/// Pages that the cache finds in one step.
const RUN_PAGES: usize = 16;

/// Has the processor fetch the first bytes that will be read of a page. It would not begin by itself before the pin, an
/// atomic operation, is done.
#[inline]
fn fetch_ahead(base: NonNull<u8>, start_bytes: u32) {
    let start = start_bytes as usize;
    sys::prefetch(base, start..start + FETCHED_AHEAD_BYTES);
}

/// The processor's own prefetchers go on from there. Of 1 to 16 cache lines, a view of a random page of 256 MiB whose bytes are then
/// added up was fastest with 2 and 4 (690 to 610 ns), and reads of 64 KiB to 1 MiB in order with 4.
const FETCHED_AHEAD_BYTES: usize = 256;

/// Of each page that is fetched early. The copy itself runs ahead from there.
const FETCHED_BYTES_MAX: u32 = 512;
