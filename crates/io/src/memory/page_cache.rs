//! Page cache: frames of the arena that hold pages of files, shared by all who read them.
//!
//! ```text
//!   FilePages::pin ─┬─ Page ─► &[u8] ─► drop: unpinned                                   (no lock)
//!                   ├─ Pending ─► the caller waits for that load
//!                   └─ Absent ─► extents ─► begin_load ─► Loading ─► request ─► publish | fail
//!   PageCache::evict ─► memory back to the arena
//! ```
//!
//! What `headwater-core` decides is joined here with the memory that it is about. The states of the frames
//! ([`headwater_core::frame`]) say who may touch their bytes, and only this module changes them.
//!
//! Owns: the frames' states, the control lock, pins as values.
//! Does not own: requests (an extent on its way is the request's), who waits for a load, files' names and lengths.
//! Invariants: I1 bytes are lent only while pinned, and written only in extents, which no Resident frame is part of;
//! I2 a page has one load at a time; I6 memory is the arena's.
//! Locks: `control`, for table and queue operations only; never across I/O. `arena.state` is taken inside it never: memory
//! goes back after.
//! Hot path: `pin` and the drop of its result: no lock, no syscall, no allocation.

#[cfg(all(test, not(headwater_loom)))]
mod arguments;
mod loading;
mod pinned_run;
mod shrinking;
mod writing;

use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headwater_core::cache::{Cache, Control, DirtyToo, Evicted, Lookup};
use headwater_core::frame::{
    CHUNK_FRAMES, FileId, FirstUse, FrameState, Invalidated, LoadId, LoadKind, Unpinned, Usage,
};
use headwater_core::replacement::Policy;
use headwater_core::table::PageTable;
use headwater_core::units::{FrameId, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use smallvec::SmallVec;

use crate::memory::arena::{Arena, Extents};
use crate::sync::lock;
use crate::system::sys;

pub use loading::Loading;
pub use pinned_run::PinnedRun;
pub use writing::{Modified, Overwritten};

/// A cache of pages in the memory of an arena. Clones share it.
#[derive(Clone)]
pub struct PageCache {
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arena,
    cache: Cache,
    control: Mutex<Controlled>,
    /// Owned pages, and those of runs.
    owned_pages: AtomicUsize,
}

struct Controlled {
    control: Control,
    /// Chunks that have frames.
    chunks: u32,
}

/// A page cache's gauges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PageCacheStats {
    /// Pages that can be read.
    pub resident_pages: usize,
    /// Pages on their way.
    pub loading_pages: usize,
    /// Pages that somebody keeps, as [`OwnedPage`] or in a [`PinnedRun`].
    pub pinned_pages: usize,
    /// Memory of tables, states and queues, bytes.
    pub metadata_bytes: usize,
}

/// The pages of one file. Clones share them; with the last one they leave the cache.
#[derive(Clone)]
pub struct FilePages {
    file: Arc<Pages>,
}

struct Pages {
    shared: Arc<Shared>,
    table: Arc<PageTable>,
}

/// What looking for a page gives.
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

/// Whether [`FilePages::glance`] copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Glanced {
    /// It did.
    Copied,
    /// It did not; the buffer holds anything.
    Not,
}

/// A page that was taken out of use before it was evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Which.
    pub page: PageIndex,
    /// Whether it was of use.
    pub usage: Usage,
}

impl PageCache {
    /// An empty cache, which takes memory of this arena as pages are loaded.
    pub fn new(arena: &Arena, policy: Policy) -> PageCache {
        let (cache, control) = Cache::new(arena.chunks_max() as u32, policy);
        let control = Mutex::new(Controlled { control, chunks: 0 });
        let (arena, owned_pages) = (arena.clone(), AtomicUsize::new(0));
        PageCache { shared: Arc::new(Shared { arena, cache, control, owned_pages }) }
    }

    /// Room for the pages of one more file.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn add_file(&self) -> io::Result<FilePages> {
        let table = self.shared.lock().control.add_file();
        let table = table.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(FilePages { file: Arc::new(Pages { shared: self.shared.clone(), table }) })
    }

    /// Gives the memory of up to `pages` pages back to the arena, and adds to `evicted` which they were. None means that
    /// all are pinned, or on their way.
    pub fn evict(&self, pages: usize, evicted: &mut Vec<Evicted>) -> usize {
        let before = evicted.len();
        let mut frames: SmallVec<[FrameId; 64]> = SmallVec::new();
        let mut controlled = self.shared.lock();
        while frames.len() < pages {
            let Some(page) = controlled.control.evict(&self.shared.cache) else { break };
            frames.push(page.frame);
            evicted.push(page);
        }
        drop(controlled);
        // SAFETY: the cache has just named each of them free.
        unsafe { self.shared.arena.give_back(&frames) };
        evicted.len() - before
    }

    /// The gauges now; all zero in a forked child.
    pub fn stats(&self) -> PageCacheStats {
        if !self.shared.arena.is_here() {
            return PageCacheStats::default();
        }
        let control = &self.shared.lock().control;
        PageCacheStats {
            resident_pages: control.resident_pages() as usize,
            loading_pages: control.loading_pages() as usize,
            pinned_pages: self.shared.owned_pages.load(Ordering::Relaxed),
            metadata_bytes: self.shared.cache.metadata_bytes() + control.metadata_bytes(),
        }
    }

    /// Pages on their way. The caller's process must be the one that built the cache.
    pub fn loading_pages(&self) -> usize {
        self.shared.lock().control.loading_pages() as usize
    }

    /// Asserts the invariants of tables, queues and frames. Takes time in proportion to what is cached.
    pub fn check(&self) {
        self.shared.lock().control.check(&self.shared.cache);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Controlled> {
        lock(&self.control)
    }

    fn release(&self, frame: FrameId) {
        if self.cache.unpin(frame) == Unpinned::Freed {
            // SAFETY: the last reader of a page that had left the cache was told so, once.
            unsafe { self.arena.give_back(&[frame]) };
        }
    }
}

impl Controlled {
    /// Frames for all chunks up to the one of this frame.
    fn prepare(&mut self, cache: &Cache, frame: u32) -> Option<()> {
        while self.chunks <= frame / CHUNK_FRAMES as u32 {
            self.control.add_chunk(cache, self.chunks).ok()?;
            self.chunks += 1;
        }
        Some(())
    }
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

impl FilePages {
    /// The file's number in the cache, as [`Evicted`] names it.
    pub fn id(&self) -> FileId {
        self.file.table.file()
    }

    /// Whether there are pages, or some on their way.
    pub fn has_pages(&self) -> bool {
        !self.file.table.is_empty()
    }

    /// Finds a page and pins it, if that can be done without a lock. `part` is what will be read of it: going on where
    /// the last read of the page ended is no second reference. `Absent` too in a forked child, and while
    /// [`FilePages::PINS_MAX`] pins keep the page: [`FilePages::is_resident`] tells the difference.
    #[inline]
    pub fn pin(&self, page: PageIndex, part: Range<u32>) -> Found<'_> {
        self.pin_or(page, part, Crowded::IsAbsent)
    }

    /// As [`FilePages::pin`], but while the page has [`FilePages::PINS_MAX`] pins, waits until one of them is given up: for
    /// callers that do not keep so many.
    #[inline]
    pub fn pin_in_turn(&self, page: PageIndex, part: Range<u32>) -> Found<'_> {
        self.pin_or(page, part, Crowded::IsWaitedFor)
    }

    /// Pins that a page can have at once, those aside of [`FilePages::hold`].
    pub const PINS_MAX: u32 = headwater_core::frame::PINS_MAX;

    #[inline]
    fn pin_or(&self, page: PageIndex, part: Range<u32>, crowded: Crowded) -> Found<'_> {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        loop {
            let Some((found, base)) = self.find(page) else { return Found::Absent };
            match shared.cache.pin(table, page, found, part.start, part.end) {
                Lookup::Pinned(frame, first_use) => {
                    return Found::Page(PinnedPage { shared, frame, base, first_use });
                }
                Lookup::Pending(load) => return Found::Pending(load),
                Lookup::Absent => return Found::Absent,
                Lookup::Crowded if crowded == Crowded::IsAbsent => return Found::Absent,
                Lookup::Busy | Lookup::Crowded => give_way(),
            }
        }
    }

    /// Has the processor fetch the beginning of `part` of a page that is there, and what pinning it takes.
    #[inline]
    pub fn fetch(&self, page: PageIndex, part: Range<u32>) {
        let Some((found, base)) = self.find(page) else { return };
        if let Some(frame) = self.file.shared.cache.frame(found) {
            sys::prefetch(NonNull::from(frame).cast(), 0);
        }
        let end = part.end.min(part.start.saturating_add(FETCHED_BYTES_MAX)).min(PAGE_SIZE_BYTES as u32);
        (part.start..end).step_by(CACHE_LINE_BYTES).for_each(|at| sys::prefetch(base, at as usize));
    }

    /// Copies a few bytes of a page, without even a pin, if they are there and taking them changes nothing: the page is
    /// as much in use as is counted. Says whether it did. The processor can go on with the next read meanwhile, which
    /// it does not past the atomic operations of a pin. `Not` for a part that is longer than
    /// [`FilePages::GLANCE_BYTES_MAX`] or than the buffer, or is no part of a page.
    #[inline]
    pub fn glance(&self, page: PageIndex, part: Range<u32>, buffer: &mut [u8]) -> Glanced {
        let is_part = part.start <= part.end && part.end <= PAGE_SIZE_BYTES as u32;
        if !is_part || part.len() > buffer.len().min(Self::GLANCE_BYTES_MAX as usize) {
            return Glanced::Not;
        }
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let Some((found, base)) = self.find(page) else { return Glanced::Not };
        let Some((frame, glance)) = shared.cache.glance(table, page, found) else { return Glanced::Not };
        // SAFETY: the part lies in the page, as was checked above, and the frame is mapped as long as the arena. Others may
        // write to it meanwhile, if it was given away since the glance: the kernel, or `zero_tail` by atomic stores; what
        // was copied is not used then.
        unsafe { sys::copy_racing(base, part.start as usize..part.end as usize, buffer) };
        if frame.is_unchanged(glance) { Glanced::Copied } else { Glanced::Not }
    }

    /// The most that [`FilePages::glance`] copies: a cache line; beyond it pins cost little beside the copy.
    pub const GLANCE_BYTES_MAX: u32 = 64;

    /// The frame that seems to hold the page, and where it lies; nothing in a forked child.
    #[inline]
    fn find(&self, page: PageIndex) -> Option<(FrameId, NonNull<u8>)> {
        let shared = &*self.file.shared;
        if !shared.arena.is_here() {
            return None;
        }
        let frame = shared.cache.find(&self.file.table, page)?;
        Some((frame, shared.arena.frame(frame)?))
    }

    /// Adds the runs of `pages` that are neither there nor on their way; exact at the moment of the call.
    pub fn missing(&self, pages: PageRange, runs: &mut Vec<PageRange>) {
        let (shared, table) = (&*self.file.shared, &*self.file.table);
        let controlled = shared.lock();
        let mut from = pages.start;
        while from < pages.end {
            let next =
                controlled.control.next(&shared.cache, table, from).unwrap_or(pages.end).min(pages.end);
            if next > from {
                runs.push(PageRange::new(from, next));
            }
            from = next;
            while from < pages.end && controlled.control.state(&shared.cache, table, from).is_some() {
                from = from + PageCount::new(1);
            }
        }
    }

    /// Whether the page can be read now, as far as can be told without a lock.
    pub fn is_resident(&self, page: PageIndex) -> bool {
        let state = self.file.shared.cache.state(&self.file.table, page);
        state.is_some_and(|state| state != FrameState::Loading)
    }

    /// Whether the page is there or on its way, as far as can be told without a lock.
    pub fn holds(&self, page: PageIndex) -> bool {
        self.file.shared.cache.holds(&self.file.table, page)
    }

    /// The first of `pages` become pages on their way into `extents`: up to the first that is there or on its way
    /// already, or for which there is no memory in tables. Those from `ahead_from` on are guesses, for which nobody waits.
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

    /// Somebody waits for a page on its way: it counts as demanded from now on. Says whether it had been read ahead or
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

    /// Takes pages out of use, dirty ones perhaps with them. Who has pinned one keeps its bytes; what is on its way is thrown
    /// away when it comes.
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

/// A page that stays as it is while this exists.
pub struct PinnedPage<'a> {
    shared: &'a Shared,
    frame: FrameId,
    base: NonNull<u8>,
    first_use: FirstUse,
}

// SAFETY: the bytes can only be read, and unpinning is an atomic operation, or the arena's under its lock.
unsafe impl Send for PinnedPage<'_> {}
// SAFETY: as above.
unsafe impl Sync for PinnedPage<'_> {}

impl<'a> PinnedPage<'a> {
    /// What the pin found out for readahead.
    #[inline]
    pub fn first_use(&self) -> FirstUse {
        self.first_use
    }

    /// How many have the page pinned, this one included.
    pub fn pins(&self) -> u32 {
        self.shared.cache.pins(self.frame)
    }

    /// The same pin, for as long as is wanted.
    pub fn into_owned(self, file: &FilePages) -> OwnedPage {
        assert!(std::ptr::eq(self.shared, &*file.file.shared), "the page is of that file's cache");
        let page = std::mem::ManuallyDrop::new(self);
        page.shared.owned_pages.fetch_add(1, Ordering::Relaxed);
        OwnedPage { shared: file.file.shared.clone(), frame: page.frame, base: page.base }
    }
}

impl Deref for PinnedPage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is mapped as long as the arena, which `shared` keeps. It is pinned, so it is Resident or
        // Doomed: no extent covers it, and nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), PAGE_BYTES) }
    }
}

impl Drop for PinnedPage<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shared.release(self.frame);
    }
}

impl fmt::Debug for PinnedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedPage({:?})", self.frame)
    }
}

/// A [`PinnedPage`] that keeps its cache.
pub struct OwnedPage {
    shared: Arc<Shared>,
    frame: FrameId,
    base: NonNull<u8>,
}

// SAFETY: as for `PinnedPage`.
unsafe impl Send for OwnedPage {}
// SAFETY: as for `PinnedPage`.
unsafe impl Sync for OwnedPage {}

impl Deref for OwnedPage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `PinnedPage`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), PAGE_BYTES) }
    }
}

impl AsRef<[u8]> for OwnedPage {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for OwnedPage {
    fn drop(&mut self) {
        if !self.shared.arena.is_here() {
            return;
        }
        self.shared.owned_pages.fetch_sub(1, Ordering::Relaxed);
        self.shared.release(self.frame);
        // Somebody may have found every page pinned.
        self.shared.arena.announce();
    }
}

impl fmt::Debug for OwnedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedPage({:?})", self.frame)
    }
}

/// A writer or a reader copies at most a page, but may have lost its processor meanwhile.
#[cold]
fn give_way() {
    std::thread::yield_now();
}

const CACHE_LINE_BYTES: usize = 64;

/// Of each page that is fetched early. The copy itself runs ahead from there.
const FETCHED_BYTES_MAX: u32 = 512;

/// Small, for miri; `tests/drivers/page_cache.rs` has the rest.
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use super::*;
    use crate::memory::arena::Urgency;
    use crate::memory::arena::tests::announces;

    pub(super) fn bench() -> (Arena, PageCache, FilePages) {
        let arena = Arena::new(3 << 20).unwrap();
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let file = cache.add_file().unwrap();
        (arena, cache, file)
    }

    fn begin(arena: &Arena, file: &FilePages, pages: Range<u64>) -> Result<(Loading, Extents), NotBegun> {
        let pages = PageRange::new(PageIndex::new(pages.start), PageIndex::new(pages.end));
        let extents = arena.allocate_run(pages.len().bytes() as usize, Urgency::Demand).unwrap();
        let loading = file.begin_load(pages, &extents, LoadId::new(0), pages.end)?;
        Ok((loading, extents))
    }

    /// Each page is full of its number.
    pub(super) fn load(arena: &Arena, file: &FilePages, pages: Range<u64>) -> Result<(), NotBegun> {
        let (loading, mut extents) = begin(arena, file, pages.clone())?;
        let frames = extents.iter_mut().flat_map(|extent| extent.as_chunks_mut::<PAGE_BYTES>().0);
        frames.zip(pages.clone()).for_each(|(frame, page)| frame.fill(page as u8));
        loading.publish(extents, (pages.end - pages.start) as usize * PAGE_BYTES);
        Ok(())
    }

    pub(super) fn pin(file: &FilePages, page: u64) -> Option<PinnedPage<'_>> {
        match file.pin(PageIndex::new(page), 0..4096) {
            Found::Page(pinned) => Some(pinned),
            Found::Pending(_) | Found::Absent => None,
        }
    }

    pub(super) fn assert_idle(arena: &Arena) {
        let stats = arena.stats();
        assert_eq!((stats.used_bytes, stats.cached_bytes), (0, 0));
    }

    /// Goal: what is pinned outlives eviction, invalidation, file and cache, and its memory comes back after that.
    #[test]
    fn a_pinned_page_outlives_all_else() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..3).unwrap();
        let owned = pin(&file, 1).unwrap().into_owned(&file);
        assert_eq!(cache.evict(10, &mut Vec::new()), 2);
        file.invalidate(PageRange::new(PageIndex::new(0), PageIndex::MAX), DirtyToo::Yes, |_| {});
        load(&arena, &file, 1..2).unwrap();
        assert_eq!(arena.stats().cached_bytes, 2 * PAGE_BYTES);
        cache.check();
        drop((cache, file));
        assert_eq!(arena.stats().cached_bytes, PAGE_BYTES);
        assert!(owned.iter().step_by(509).all(|&byte| byte == 1));
        drop(owned);
        assert_idle(&arena);
    }

    /// Goal: who waits for memory is told when a page can leave that could not before, and when pages have left. Method: pages kept in
    /// each way there is, and let go; pages that leave in each way there is.
    #[test]
    fn pages_that_are_let_go_are_announced() {
        let (arena, cache, file) = bench();
        let pages =
            |pages: Range<u64>| PageRange::new(PageIndex::new(pages.start), PageIndex::new(pages.end));
        load(&arena, &file, 0..4).unwrap();
        let owned = pin(&file, 0).unwrap().into_owned(&file);
        announces(&arena, "an owned page", || drop(owned));
        let mut run = PinnedRun::of(&file);
        run.push(pin(&file, 1).unwrap());
        announces(&arena, "a run", || drop(run));
        let doomed = pin(&file, 3).unwrap();
        announces(&arena, "an eviction", || assert_eq!(cache.evict(1, &mut Vec::new()), 1));
        announces(&arena, "an invalidation", || file.invalidate(pages(0..3), DirtyToo::No, |_| {}));
        file.invalidate(pages(3..4), DirtyToo::No, |_| {});
        announces(&arena, "a page that had left", || drop(doomed));
        let (loading, extents) = begin(&arena, &file, 0..2).unwrap();
        announces(&arena, "a load of less", || loading.publish(extents, PAGE_BYTES));
        let (loading, extents) = begin(&arena, &file, 4..6).unwrap();
        announces(&arena, "a load of all", || loading.publish(extents, 2 * PAGE_BYTES));
        announces(&arena, "a file", || drop(file));
        assert_idle(&arena);
    }

    /// Goal: a load that was overtaken brings nothing, however it ends. Method: invalidate while loading, load anew, then
    /// let the old one end, or be abandoned.
    #[test]
    fn an_overtaken_load_brings_nothing() {
        for is_abandoned in [false, true] {
            let (arena, cache, file) = bench();
            let (loading, extents) = begin(&arena, &file, 4..6).unwrap();
            let overtaken = PageRange::new(PageIndex::new(5), PageIndex::new(6));
            file.invalidate(overtaken, DirtyToo::No, |_| panic!("none was there"));
            load(&arena, &file, 5..6).unwrap();
            if is_abandoned {
                drop(loading);
                drop(extents);
            } else {
                loading.publish(extents, 2 * PAGE_BYTES);
            }
            assert_eq!(pin(&file, 4).is_some(), !is_abandoned);
            assert_eq!(pin(&file, 5).unwrap()[77], 5);
            cache.check();
            drop((file, cache));
            assert_idle(&arena);
        }
    }

    /// Goal: fewer bytes than pages are zeroes behind, in pieces of memory too; pages that got none are not there.
    #[test]
    fn a_tail_is_zeroed() {
        let (arena, cache, file) = bench();
        let pieces = [1, 2, 1].map(|pages| arena.allocate(pages * PAGE_BYTES, Urgency::Demand).unwrap());
        let mut extents = Extents::from_iter(pieces);
        extents.iter_mut().for_each(|extent| extent.fill(0xEE));
        let pages = PageRange::new(PageIndex::new(0), PageIndex::new(4));
        let loading = file.begin_load(pages, &extents, LoadId::new(0), pages.start).unwrap();
        loading.publish(extents, 2 * PAGE_BYTES + 100);
        let tail = pin(&file, 2).unwrap();
        assert!(tail[..100].iter().all(|&byte| byte == 0xEE) && tail[100..].iter().all(|&byte| byte == 0));
        assert!(pin(&file, 3).is_none());
        drop(tail);
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: readers of one page race with its eviction and with loads into the same memory, and see its bytes or none.
    #[test]
    fn readers_race_with_eviction() {
        let (arena, cache, file) = bench();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        if let Some(pinned) = pin(&file, round % 2) {
                            assert!(pinned.iter().step_by(509).all(|&byte| byte == (round % 2) as u8));
                        }
                    }
                });
            }
            for round in 0..ROUNDS {
                let _ = load(&arena, &file, round % 2..round % 2 + 1);
                cache.evict(1, &mut Vec::new());
            }
        });
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    fn page(number: u64) -> PageIndex {
        PageIndex::new(number)
    }

    fn pages(range: Range<u64>) -> PageRange {
        PageRange::new(page(range.start), page(range.end))
    }

    /// Extents full of one byte.
    fn full_of(arena: &Arena, count: u64, byte: u8) -> Extents {
        let mut extents = arena.allocate_run(count as usize * PAGE_BYTES, Urgency::Demand).unwrap();
        for extent in &mut extents {
            let contents = vec![byte; extent.len()];
            extent.store(0, &contents);
        }
        extents
    }

    fn overwrite(file: &FilePages, number: u64, start: u32, bytes: &[u8]) -> Overwritten {
        file.overwrite(page(number), start, bytes)
    }

    /// Goal: a part of a page is written in place, at any offset and length, and nothing beside it; the page is dirty then.
    #[test]
    fn a_part_is_overwritten_in_place() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..2).unwrap();
        let mut expected = vec![1; PAGE_BYTES];
        for (start, length) in [(0, 1), (3, 2), (7, 9), (16, 8), (4095, 1), (100, 333), (0, 4096), (50, 0)] {
            let bytes = vec![(start + length) as u8; length];
            let written = overwrite(&file, 1, start as u32, &bytes);
            assert!(matches!(written, Overwritten::Done(_)), "{written:?}");
            expected[start..start + length].copy_from_slice(&bytes);
            assert!(pin(&file, 1).unwrap()[..] == expected, "{start} {length}");
        }
        assert!(pin(&file, 0).unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(file.file.shared.cache.state(&file.file.table, page(1)), Some(FrameState::Dirty));
        assert_eq!(overwrite(&file, 7, 0, b"nowhere"), Overwritten::Absent);
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: what is pinned or on its way is not written to.
    #[test]
    fn what_is_pinned_or_pending_is_not_overwritten() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..1).unwrap();
        let pinned = pin(&file, 0).unwrap();
        assert_eq!(overwrite(&file, 0, 5, b"new"), Overwritten::Pinned);
        assert!(pinned.iter().all(|&byte| byte == 0));
        drop(pinned);
        let (loading, extents) = begin(&arena, &file, 1..2).unwrap();
        assert_eq!(overwrite(&file, 1, 5, b"new"), Overwritten::Pending(LoadId::new(0)));
        loading.fail(extents);
        assert_eq!(overwrite(&file, 1, 5, b"new"), Overwritten::Absent);
        assert!(matches!(overwrite(&file, 0, 5, b"new"), Overwritten::Done(_)));
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: what is installed over a pinned page, one on its way, one that is there and none is what all find from then on;
    /// who had it pinned keeps the old bytes, whose memory comes back after him.
    #[test]
    fn what_is_installed_replaces_what_was_there() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..2).unwrap();
        let owned = pin(&file, 1).unwrap().into_owned(&file);
        let (loading, extents) = begin(&arena, &file, 2..3).unwrap();
        assert_eq!(file.install(pages(0..4), full_of(&arena, 4, 0xAB)), PageCount::new(4));
        assert!((0..4).all(|number| pin(&file, number).unwrap().iter().all(|&byte| byte == 0xAB)));
        loading.publish(extents, PAGE_BYTES);
        assert!(pin(&file, 2).unwrap().iter().all(|&byte| byte == 0xAB), "an overtaken load brings nothing");
        cache.check();
        assert_eq!(arena.stats().cached_bytes, 5 * PAGE_BYTES);
        assert!(owned.iter().all(|&byte| byte == 1));
        drop(owned);
        assert_eq!(arena.stats().cached_bytes, 4 * PAGE_BYTES);
        // Memory for more than the pages goes back at once.
        assert_eq!(file.install(pages(0..1), full_of(&arena, 2, 0xCD)), PageCount::new(1));
        assert_eq!(arena.stats().cached_bytes, 4 * PAGE_BYTES);
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: what is dirty is neither evicted nor dropped with what is clean; what was held and is clean leaves again, but
    /// not while it is held; what was replaced meanwhile stays dirty.
    #[test]
    fn what_is_dirty_stays_until_it_is_clean() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..1).unwrap();
        file.install(pages(1..4), full_of(&arena, 3, 0xAB));
        assert!(matches!(overwrite(&file, 0, 0, b"new"), Overwritten::Done(_)));
        let all = PageRange::new(page(0), PageIndex::MAX);
        let evict = || cache.evict(10, &mut Vec::new());
        assert_eq!(evict(), 0);
        file.invalidate(all, DirtyToo::No, |_| panic!("all are dirty"));
        let run = file.hold(pages(0..3));
        assert_eq!((run.len_bytes(), cache.stats().pinned_pages), (3 * PAGE_BYTES, 3));
        assert_eq!(overwrite(&file, 0, 0, b"newer"), Overwritten::Pinned);
        file.install(pages(0..1), full_of(&arena, 1, 0xCD));
        run.clean();
        assert_eq!(evict(), 0, "held");
        cache.check();
        drop(run);
        assert_eq!(cache.stats().pinned_pages, 0);
        assert_eq!(evict(), 2, "1 and 2 are clean, 0 was replaced, 3 is dirty");
        assert_eq!(pin(&file, 0).unwrap()[0], 0xCD);
        let mut left = Vec::new();
        file.invalidate(all, DirtyToo::Yes, |dropped| left.push(dropped.page.get()));
        assert_eq!(left, [0, 3]);
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: a run that is not cleaned leaves its pages dirty; one whose cache is gone is memory for as long as it is held.
    #[test]
    fn a_run_that_failed_leaves_pages_dirty() {
        let (arena, cache, file) = bench();
        file.install(pages(0..2), full_of(&arena, 2, 0xAB));
        drop(file.hold(pages(0..2)));
        assert_eq!(cache.evict(10, &mut Vec::new()), 0);
        let run = file.hold(pages(0..2));
        drop((file, cache));
        run.clean();
        assert_eq!(arena.stats().cached_bytes, 2 * PAGE_BYTES);
        drop(run);
        assert_idle(&arena);
    }

    /// Goal: I1: readers of a page race with writes in place, with its replacement and with its writing to a device, and see
    /// whole writes through pins, which do not change, and whole words in glances. Method: each write fills the page.
    #[test]
    fn readers_race_with_writers() {
        let (arena, cache, file) = bench();
        load(&arena, &file, 0..1).unwrap();
        let look = || {
            if let Some(pinned) = pin(&file, 0) {
                let first = pinned[0];
                assert!(pinned.iter().step_by(257).all(|&byte| byte == first), "a torn page");
            }
            let mut glanced = [0; 64];
            if file.glance(page(0), 100..164, &mut glanced) == Glanced::Copied {
                assert!(glanced.iter().all(|&byte| byte == glanced[0]), "a torn glance: {glanced:?}");
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| look()));
            }
            for round in 0..ROUNDS {
                let contents = [round as u8; PAGE_BYTES];
                match overwrite(&file, 0, 0, &contents) {
                    Overwritten::Done(_) if round % 3 == 0 => file.hold(pages(0..1)).clean(),
                    Overwritten::Done(_) => {}
                    Overwritten::Pinned => {
                        file.install(pages(0..1), full_of(&arena, 1, round as u8));
                    }
                    other => panic!("{other:?}, and nobody else takes the page away"),
                }
                assert_eq!(pin(&file, 0).unwrap()[4095], round as u8);
            }
        });
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    /// Goal: the same with eviction and loads of what is on the device: what is found is the last that was written, or absent
    /// after it was clean. Method: the device is a word.
    #[test]
    fn writers_race_with_eviction() {
        let (arena, cache, file) = bench();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    cache.evict(1, &mut Vec::new());
                    file.invalidate(pages(0..1), DirtyToo::No, |_| {});
                    std::thread::yield_now();
                }
            });
            let mut device = 0;
            for round in 0..ROUNDS {
                let byte = round as u8;
                if let Some(pinned) = pin(&file, 0) {
                    assert_eq!((pinned[0], pinned[4095]), (device, device));
                }
                if !matches!(overwrite(&file, 0, 0, &[byte; PAGE_BYTES]), Overwritten::Done(_)) {
                    file.install(pages(0..1), full_of(&arena, 1, byte));
                }
                // It is dirty, so it must be there.
                assert_eq!(pin(&file, 0).unwrap()[77], byte);
                let run = file.hold(pages(0..1));
                device = byte;
                run.clean();
            }
            is_done.store(true, Ordering::Release);
        });
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }

    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };
}
