//! Page cache: pages of files in frames of the arena, shared by all readers.
//!
//! ```text
//!   FilePages::pin ─┬─ Page ─► &[u8] ─► drop: unpinned                                   (no lock)
//!                   ├─ Pending ─► the caller waits for that load
//!                   └─ Absent ─► extents ─► begin_load ─► Loading ─► request ─► publish | fail
//!   PageCache::evict ─► memory back to the arena
//!   PageCache::offer ─► the kernel may take the memory ─► touched by the next reader: there, or a miss      (offers)
//! ```
//!
//! Joins the decisions of `headwater-core` with the memory of the arena. The state of a frame decides which thread may access its
//! bytes (M1 to M4 of [`headwater_core::frame`]), and only this module changes the states.
//!
//! Owns: the frames' states, the control lock, pins as values.
//! Does not own: requests (which own their extents), waits for loads, names and lengths of files.
//! Invariants: I1 bytes are lent only while pinned, and written only in extents, which no Resident frame is part of;
//! I2 a page has one load at a time; I6 memory is the arena's.
//! Locks: `offers`, while chunks are offered or come back → `control`, for table and queue operations only; neither across I/O. `arena.state` is taken inside it never: memory
//! goes back after.
//! Hot path: `pin` and the drop of its result: no lock, no syscall, no allocation.

#[cfg(all(test, not(headwater_loom)))]
mod arguments;
mod file_pages;
mod frame_runs;
mod lending;
mod loading;
mod offers;
mod pinned_page;
mod pinned_pages;
mod pinned_run;
mod shrinking;
#[cfg(all(test, not(headwater_loom)))]
mod tests;
mod writing;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_utils::CachePadded;
use headwater_core::cache::{Cache, Control, Evicted};
use headwater_core::frame::{CHUNK_FRAMES, Unpinned};
use headwater_core::replacement::Policy;
use headwater_core::units::FrameId;
use smallvec::SmallVec;

use crate::memory::arena::Arena;
use crate::sync::lock;

use file_pages::Pages;
use offers::Offers;

pub use file_pages::{Dropped, FilePages, Found, NotBegun, OptimisticRead, PageCounts};
pub use lending::{Keeper, LendingQuota, LentPages};
pub use loading::Loading;
pub use pinned_page::{OwnedPage, PinnedPage};
pub use pinned_pages::PinnedPages;
pub use pinned_run::PinnedRun;
pub use writing::{Modified, Overwritten};

/// A cache of pages in the memory of an arena: pages of anything, loaded by the thread that brings their bytes into extents of the arena,
/// found and pinned by any thread without a lock. Clones share it.
///
/// ```
/// use headwater_core::frame::LoadId;
/// use headwater_core::replacement::Policy;
/// use headwater_core::units::{PageIndex, PageRange};
/// use headwater_io::{Arena, Extents, FilePages, Found, PageCache, Urgency};
/// let arena = Arena::new(4 << 20)?;
/// let cache = PageCache::new(&arena, Policy::Clock2QPlus);
/// let file: FilePages = cache.add_file()?;
/// let mut extent = arena.allocate(8192, Urgency::Demand).expect("the arena is empty");
/// extent.fill(7);
/// let (pages, extents) = (PageRange::new(PageIndex::new(0), PageIndex::new(2)), Extents::from_iter([extent]));
/// let loading = file.begin_load(pages, &extents, LoadId::new(0), pages.end).expect("no thread has loaded them");
/// loading.publish(extents, 8192);
/// let Found::Page(page) = file.pin(PageIndex::new(1), 0..4096) else { panic!("it was loaded") };
/// assert_eq!(page[0], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PageCache {
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arena,
    cache: Cache,
    /// Hits look at what is beside it, and do not lock it.
    control: CachePadded<Mutex<Controlled>>,
    /// Owned pages, and those of runs, without those that a quota counts.
    owned_pages: AtomicUsize,
    /// Bytes of runs that their owners have copied.
    copied_bytes: AtomicU64,
    /// Where the next search for cold chunks begins.
    hand: AtomicUsize,
    offers: Mutex<Offers>,
}

struct Controlled {
    control: Control,
    /// Chunks that have frames.
    chunks: u32,
    /// Pages that readers found taken, until they are reported.
    taken: Vec<Evicted>,
}

/// A page cache's gauges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PageCacheStats {
    /// Pages that can be read.
    pub resident_pages: usize,
    /// Those of them whose memory the system may take by itself.
    pub offered_pages: usize,
    /// Pages on their way.
    pub loading_pages: usize,
    /// Pages pinned by an [`OwnedPage`] or a [`PinnedRun`], without those that are lent by a [`LendingQuota`].
    pub pinned_pages: usize,
    /// Bytes that owners of a [`PinnedRun`] have copied, so far; see [`PinnedRun::note_copied`].
    pub copied_bytes: u64,
    /// Memory of tables, states and queues, bytes.
    pub metadata_bytes: usize,
}

impl PageCache {
    /// An empty cache, which takes memory of this arena as pages are loaded.
    pub fn new(arena: &Arena, policy: Policy) -> PageCache {
        let (cache, control) = Cache::new(arena.chunks_max() as u32, policy);
        let control = CachePadded::new(Mutex::new(Controlled { control, chunks: 0, taken: Vec::new() }));
        let (arena, owned_pages, hand) = (arena.clone(), AtomicUsize::new(0), AtomicUsize::new(0));
        let (copied_bytes, offers) = (AtomicU64::new(0), Mutex::default());
        let shared = Shared { arena, cache, control, owned_pages, copied_bytes, hand, offers };
        PageCache { shared: Arc::new(shared) }
    }

    /// Reserves table space for the pages of one more file.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn add_file(&self) -> io::Result<FilePages> {
        let table = self.shared.lock().control.add_file();
        let table = table.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(FilePages { file: Arc::new(Pages { shared: self.shared.clone(), table }) })
    }

    /// Evicts up to `pages` pages, whose memory goes back to the arena, and adds them to `evicted`. None means that
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
        if frames.is_empty() {
            self.evict_offered(evicted);
        }
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
            offered_pages: control.offered_pages() as usize,
            loading_pages: control.loading_pages() as usize,
            pinned_pages: self.shared.owned_pages.load(Ordering::Relaxed),
            copied_bytes: self.shared.copied_bytes.load(Ordering::Relaxed),
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

    #[inline]
    fn release(&self, frame: FrameId) {
        if self.cache.unpin(frame) == Unpinned::Freed {
            // SAFETY: as told by the last unpin.
            unsafe { self.give_back(frame) };
        }
    }

    /// The same for frames of one chunk.
    #[inline]
    fn release_run(&self, frames: Range<u32>) {
        // SAFETY: these are those that were unpinned last.
        self.cache.unpin_run(frames, |frame| unsafe { self.give_back(frame) });
    }

    /// Gives the memory of a frame back to the arena.
    ///
    /// # Safety
    /// The last unpin of a page that had left the cache has reported this frame as freed (M4).
    #[cold]
    unsafe fn give_back(&self, frame: FrameId) {
        // SAFETY: the caller ensures it.
        unsafe { self.arena.give_back(&[frame]) };
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
