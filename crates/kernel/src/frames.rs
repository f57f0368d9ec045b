//! Frames: the memory of the cache, and which values may access its bytes.
//!
//! ```text
//!   allocate ─► Spare (the caller's) ──┬─ begin_load ─► Filling (the I/O's) ─► publish ─► Pinned (readers')
//!                                      └─ install ─► Dirty ─► HeldRun (being written to the file) ─► clean
//!   pin ─► Pinned      write_in_place ─► the writer's, while it is not pinned      evict ─► Leaving ─► free
//!   grow ─► a chunk ─► … ─► empty ─► Leaving ─► release: the kernel's again
//! ```
//!
//! All the unsafe code of the crate. Each kind of access is a type of its own, made only here and only by the transition of
//! `headwater-core` that gives the right to it: M1 to M4 of [`headwater_core::frame`]. No reader here is optimistic. Blocks of frames are contiguous, so that what one load
//! brings is one slice.
//!
//! Owns: chunks of memory, and what these values may do with it.
//! Does not own: the frames' states (`headwater-core`), I/O, waiting, what a file is.
//! Invariants: K1 of the pool: no two of these values have the same frame, except pins. F1 a chunk's memory goes back only once it is
//! retired from the pool: none of these values has a frame of it then, and none gets one before `grow`.
//! Locks: `pool`, a spin lock, and `unreported` within it, innermost; never held across I/O, listeners or an allocation of a chunk.

mod leaving;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ops::{Deref, DerefMut, Range};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use headwater_core::CHUNK_BYTES;
use headwater_core::cache::{Cache, DirtyToo, Lookup, frames_of};
use headwater_core::frame::{CHUNK_FRAMES, FirstUse, FrameState, LoadId, Unpinned, WriteLatch};
use headwater_core::pool::Pool;
use headwater_core::replacement::Policy;
use headwater_core::table::{NoNode, PageTable};
use headwater_core::units::{FrameId, PAGE_BYTES, PageIndex, PageRange};
use lock_api::Mutex;

use crate::kernel::Kernel;

pub(crate) use leaving::Leaving;
use leaving::Unreported;

/// All frames of a cache.
pub(crate) struct Frames<K: Kernel> {
    cache: Cache,
    /// Start of each chunk; null while it is not there.
    chunks: Box<[AtomicPtr<u8>]>,
    chunks_here: AtomicU32,
    pool: Mutex<K::SpinLock, Pool>,
    /// Taken within `pool`.
    unreported: Mutex<K::SpinLock, Unreported>,
}

/// What looking for a page gives.
pub(crate) enum Found<'a, K: Kernel> {
    Page(Pinned<'a, K>),
    Pending(LoadId),
    Absent,
}

/// As many as frames have numbers: 16 TiB.
const CHUNKS_MAX: usize = u32::MAX as usize / (CHUNK_BYTES / PAGE_BYTES);

/// What trying to write in place gives.
pub(crate) enum Wrote {
    InPlace,
    Pinned,
    Pending(LoadId),
    Absent,
}

impl<K: Kernel> Frames<K> {
    /// Room for at most `memory_bytes`, rounded down to chunks of 2 MiB, but at least one of them; none is there yet.
    pub(crate) fn new(memory_bytes: usize, policy: Policy) -> Self {
        // Frames have numbers of 32 bits.
        let chunks_max = (memory_bytes / CHUNK_BYTES).clamp(1, CHUNKS_MAX) as u32;
        let (cache, pool) = Pool::new(chunks_max, policy);
        let chunks = (0..chunks_max).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self {
            cache,
            chunks,
            chunks_here: AtomicU32::new(0),
            pool: Mutex::new(pool),
            unreported: Mutex::new(Unreported::new()),
        }
    }

    pub(crate) fn add_file(&self) -> Result<Arc<PageTable>, NoNode> {
        self.pool.lock().control().add_file()
    }

    /// Panics if the file has pages.
    pub(crate) fn remove_file(&self, table: &PageTable) {
        self.pool.lock().control().remove_file(table);
    }

    /// Memory that frames can have, bytes.
    pub(crate) fn memory_bytes_max(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    /// Memory that frames have, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks_here.load(Ordering::Acquire) as usize * CHUNK_BYTES
    }

    /// Memory beside that of the frames, bytes.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.cache.metadata_bytes() + self.pool.lock().control().metadata_bytes()
    }

    /// Pages that can be read, and pages on their way.
    pub(crate) fn pages(&self) -> (u32, u32) {
        let mut pool = self.pool.lock();
        (pool.control().resident_pages(), pool.control().loading_pages())
    }

    /// Whether the page is cached or loading, read without the lock, so it may be outdated.
    pub(crate) fn holds(&self, table: &PageTable, page: PageIndex) -> bool {
        self.cache.holds(table, page)
    }

    /// Whether the page is neither there nor on its way; exact at the moment of the call. A lookup without the lock may take a page for
    /// absent while it is being replaced.
    pub(crate) fn is_absent(&self, table: &PageTable, page: PageIndex) -> bool {
        self.pool.lock().control().next(&self.cache, table, page) != Some(page)
    }

    /// Pins a page; spins while a writer, whom nothing preempts, copies into it.
    pub(crate) fn pin(&self, table: &PageTable, page: PageIndex, within: Range<u32>) -> Found<'_, K> {
        loop {
            let Some(found) = self.cache.find(table, page) else { return Found::Absent };
            match self.cache.pin(table, page, found, within.start, within.end) {
                Lookup::Pinned(frame, first_use) => {
                    return Found::Page(Pinned { frames: self, frame, first_use });
                }
                Lookup::Pending(load) => return Found::Pending(load),
                Lookup::Absent => return Found::Absent,
                // As many as a frame counts read it, none of whom keeps it.
                Lookup::Busy | Lookup::Crowded => core::hint::spin_loop(),
                Lookup::Offered(_) => unreachable!("a kernel offers its memory to no other"),
            }
        }
    }

    /// Writes part of a page in place, if it is not pinned. The caller cannot be preempted meanwhile and is
    /// the file's only writer.
    pub(crate) fn write_in_place(
        &self,
        table: &PageTable,
        page: PageIndex,
        start_bytes: usize,
        bytes: &[u8],
    ) -> Wrote {
        let end_bytes = start_bytes + bytes.len();
        assert!(end_bytes <= PAGE_BYTES, "a write is of one page");
        let Some(found) = self.cache.find(table, page) else { return Wrote::Absent };
        match self.cache.begin_write(table, page, found, start_bytes as u32, end_bytes as u32) {
            WriteLatch::Latched(_) => {
                // SAFETY: M2: the frame is Writing until `end_write`. A frame holds a page.
                let target = unsafe { self.slice_mut(found, PAGE_BYTES) };
                target[start_bytes..end_bytes].copy_from_slice(bytes);
                self.cache.end_write(found);
                Wrote::InPlace
            }
            WriteLatch::Pending(load) => Wrote::Pending(load),
            WriteLatch::Absent => Wrote::Absent,
            WriteLatch::Pinned | WriteLatch::Busy => Wrote::Pinned,
            WriteLatch::Offered => unreachable!("a kernel offers its memory to no other"),
        }
    }

    /// `2^order` pages that lie together, if any are free now.
    pub(crate) fn allocate(self: &Arc<Self>, order: u8) -> Option<Spare<K>> {
        let block = self.pool.lock().allocate(order)?;
        Some(Spare { frames: self.clone(), block })
    }

    /// The most that lies together and is free, of at most `2^order` pages.
    pub(crate) fn allocate_at_most(self: &Arc<Self>, order: u8) -> Option<Spare<K>> {
        let block = self.pool.lock().allocate_at_most(order)?;
        Some(Spare { frames: self.clone(), block })
    }

    /// Makes another chunk, if there may be one and the kernel has the memory. Says whether.
    pub(crate) fn grow(&self) -> bool {
        let layout = Self::chunk_layout();
        if self.memory_bytes() >= self.memory_bytes_max() {
            return false;
        }
        // Without the lock: zeroing 2 MiB takes long. Readers of a frame never see bytes that nobody wrote.
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return false;
        }
        if self.add_chunk(memory) {
            return true;
        }
        // SAFETY: allocated above with this layout, and nobody was told of it.
        unsafe { alloc::alloc::dealloc(memory, layout) };
        false
    }

    fn add_chunk(&self, memory: *mut u8) -> bool {
        let mut pool = self.pool.lock();
        if self.memory_bytes() >= self.memory_bytes_max() {
            return false;
        }
        let Ok(chunk) = pool.add_chunk(&self.cache) else { return false };
        // Under the lock: a frame of it is given out after this.
        self.chunks[chunk as usize].store(memory, Ordering::Release);
        self.chunks_here.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// The chunks that are there, those first whose pages are the fewest and the least used; read without the lock, so it may be outdated.
    pub(crate) fn chunks_by_cost(&self) -> Vec<u32> {
        let is_here = |chunk: &u32| !self.chunks[*chunk as usize].load(Ordering::Acquire).is_null();
        let mut chunks: Vec<u32> = (0..self.chunks.len() as u32).filter(is_here).collect();
        chunks.sort_by_cached_key(|chunk| self.cost(*chunk));
        chunks
    }

    /// What evicting a chunk costs: its pages, those that were used again more than others.
    fn cost(&self, chunk: u32) -> u32 {
        let frames = frames_of(chunk).filter_map(|frame| self.cache.frame(frame));
        let pages = frames.filter(|frame| frame.state() != FrameState::Free);
        pages.map(|frame| 1 + REFERENCE_COST * u32::from(frame.references())).sum()
    }

    /// Evicts all pages of a chunk, if all can be. Once the result is dropped, [`Frames::release`] gives its memory back.
    pub(crate) fn empty(&self, chunk: u32) -> Option<Leaving<'_, K>> {
        let mut pool = self.pool.lock();
        let left = pool.empty_chunk(&self.cache, chunk)?;
        Some(Leaving::new(self, &pool, left))
    }

    /// Gives the memory of an emptied chunk back; says whether: not if a reader was quicker and has a page of it.
    pub(crate) fn release(&self, chunk: u32) -> bool {
        let mut pool = self.pool.lock();
        if !pool.retire(chunk) {
            return false;
        }
        let memory = self.chunks[chunk as usize].swap(ptr::null_mut(), Ordering::AcqRel);
        self.chunks_here.fetch_sub(1, Ordering::AcqRel);
        drop(pool);
        // SAFETY: F1: allocated in `grow` with this layout, and just retired: no value of this module has a frame of it.
        unsafe { alloc::alloc::dealloc(memory, Self::chunk_layout()) };
        true
    }

    fn chunk_layout() -> Layout {
        Layout::from_size_align(CHUNK_BYTES, PAGE_BYTES).expect("a power of two")
    }

    /// Enters the first pages of `wanted` that are missing, as many as follow each other and have room in the block;
    /// a reader waits for those before `ahead_from`. `None` if none is missing, or the table has no node.
    pub(crate) fn begin_load(
        &self,
        table: &Arc<PageTable>,
        wanted: PageRange,
        ahead_from: PageIndex,
        load: LoadId,
        spare: Spare<K>,
    ) -> Option<Filling<K>> {
        let block = spare.block.clone();
        let pages = self.pool.lock().begin_load(&self.cache, table, wanted, ahead_from, load, block);
        (!pages.is_empty()).then(|| Filling { pages, memory: spare.split_off(pages.len().get() as u32) })
    }

    /// A page that waits for its load is demanded from now on. `None` if it is not on its way.
    pub(crate) fn demand(&self, table: &PageTable, page: PageIndex) -> Option<FirstUse> {
        self.pool.lock().demand(&self.cache, table, page)
    }

    /// The next use of the page is to be reported.
    pub(crate) fn mark(&self, table: &PageTable, page: PageIndex) {
        self.pool.lock().control().mark(&self.cache, table, page);
    }

    /// The block, one page as it was written, takes the place of what the table had, which is the result.
    pub(crate) fn install(
        &self,
        table: &PageTable,
        page: PageIndex,
        spare: Spare<K>,
    ) -> Result<Leaving<'_, K>, NoNode> {
        let mut pool = self.pool.lock();
        let left = pool.install(&self.cache, table, page, FrameId::new(spare.block.start))?;
        let leaving = Leaving::new(self, &pool, left);
        drop(pool);
        spare.forget();
        Ok(leaving)
    }

    /// The block becomes the page, unless there is one.
    pub(crate) fn install_absent(
        &self,
        table: &PageTable,
        page: PageIndex,
        spare: Spare<K>,
    ) -> Result<(), NoNode> {
        let mut pool = self.pool.lock();
        if pool.control().state(&self.cache, table, page).is_some() {
            drop(pool);
            return Ok(());
        }
        let left = pool.install(&self.cache, table, page, FrameId::new(spare.block.start))?;
        pool.free_left(left);
        drop(pool);
        spare.forget();
        Ok(())
    }

    /// Takes pages out of use; their memory is free once the result is dropped.
    pub(crate) fn invalidate(
        &self,
        table: &PageTable,
        pages: PageRange,
        dirty_too: DirtyToo,
    ) -> Leaving<'_, K> {
        let mut pool = self.pool.lock();
        let left = pool.invalidate(&self.cache, table, pages, dirty_too);
        Leaving::new(self, &pool, left)
    }

    /// Evicts pages so that `2^order` that lie together may be free once the result is dropped.
    pub(crate) fn evict(&self, order: u8) -> Leaving<'_, K> {
        let mut pool = self.pool.lock();
        let left = pool.evict(&self.cache, order);
        Leaving::new(self, &pool, left)
    }

    /// Pins the first dirty pages of a range that follow each other in the file and in memory, for writing them.
    /// `None` if the first is not dirty.
    pub(crate) fn hold(&self, table: &PageTable, pages: PageRange) -> Option<HeldRun<'_, K>> {
        let first = self.hold_first(table, pages.start)?;
        let mut run = HeldRun { frames: self, first, count: 1 };
        for page in pages.iter().skip(1) {
            match self.cache.hold(table, page) {
                Some(frame) if frame == run.frame(run.count) && self.is_contiguous(run.first, frame) => {
                    run.count += 1;
                }
                Some(frame) => {
                    self.unpin(frame);
                    break;
                }
                None => break,
            }
        }
        Some(run)
    }

    /// A page that a writer is at, or has put into another frame, is dirty nevertheless: what was written to it before
    /// has to be written to the file.
    fn hold_first(&self, table: &PageTable, page: PageIndex) -> Option<FrameId> {
        if let Some(frame) = self.cache.hold(table, page) {
            return Some(frame);
        }
        // Under the lock no page comes or goes; the writer, whom nothing preempts, does not need it.
        let mut pool = self.pool.lock();
        while let Some(FrameState::Dirty | FrameState::Writing) =
            pool.control().state(&self.cache, table, page)
        {
            if let Some(frame) = self.cache.hold(table, page) {
                return Some(frame);
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Asserts what `headwater-core` asserts.
    pub(crate) fn check(&self) {
        self.pool.lock().check(&self.cache);
    }

    /// Frames of one chunk lie one behind the other.
    fn is_contiguous(&self, first: FrameId, last: FrameId) -> bool {
        first.get() / CHUNK_FRAMES as u32 == last.get() / CHUNK_FRAMES as u32
    }

    fn unpin(&self, frame: FrameId) {
        if self.cache.unpin(frame) == Unpinned::Freed {
            self.pool.lock().free_unpinned(frame);
        }
    }

    fn address(&self, frame: FrameId) -> *mut u8 {
        let (chunk, place) = (frame.get() as usize / CHUNK_FRAMES, frame.get() as usize % CHUNK_FRAMES);
        let start = self.chunks[chunk].load(Ordering::Acquire);
        assert!(!start.is_null(), "a frame's chunk is there");
        start.wrapping_add(place * PAGE_BYTES)
    }

    /// The bytes from a frame on.
    ///
    /// # Safety
    /// The frames are of one chunk, and nothing writes to them while the slice is in use.
    unsafe fn slice(&self, first: FrameId, length: usize) -> &[u8] {
        // SAFETY: chunks are zeroed when made, and there while a caller has a frame of them (F1); it promises the rest.
        unsafe { core::slice::from_raw_parts(self.address(first), length) }
    }

    /// The bytes from a frame on.
    ///
    /// # Safety
    /// The frames are of one chunk, and nothing else accesses them while the slice is in use.
    #[expect(
        clippy::mut_from_ref,
        reason = "who may write is told by the frames' states, not by a borrow of them"
    )]
    unsafe fn slice_mut(&self, first: FrameId, length: usize) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.address(first), length) }
    }
}

impl<K: Kernel> Drop for Frames<K> {
    fn drop(&mut self) {
        let layout = Self::chunk_layout();
        for chunk in self.chunks.iter_mut().map(|chunk| *chunk.get_mut()).filter(|chunk| !chunk.is_null()) {
            // SAFETY: allocated in `grow` with this layout; everything that borrows from it holds `self`.
            unsafe { alloc::alloc::dealloc(chunk, layout) };
        }
    }
}

/// A pinned page: its bytes do not change while this value lives.
pub(crate) struct Pinned<'a, K: Kernel> {
    frames: &'a Frames<K>,
    frame: FrameId,
    first_use: FirstUse,
}

impl<K: Kernel> Pinned<'_, K> {
    pub(crate) fn first_use(&self) -> FirstUse {
        self.first_use
    }

    /// Whether this frame is still what the table has for the page.
    pub(crate) fn is_current(&self, table: &PageTable, page: PageIndex) -> bool {
        self.frames.cache.find(table, page) == Some(self.frame)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.frames.cache.frame(self.frame).is_some_and(|frame| frame.state() == FrameState::Dirty)
    }
}

impl<K: Kernel> Deref for Pinned<'_, K> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: M1: this has the frame pinned.
        unsafe { self.frames.slice(self.frame, PAGE_BYTES) }
    }
}

impl<K: Kernel> Drop for Pinned<'_, K> {
    fn drop(&mut self) {
        self.frames.unpin(self.frame);
    }
}

/// Memory that holds no page yet, all of one chunk.
pub(crate) struct Spare<K: Kernel> {
    frames: Arc<Frames<K>>,
    block: Range<u32>,
}

impl<K: Kernel> Spare<K> {
    /// Pages.
    pub(crate) fn len(&self) -> u32 {
        self.block.len() as u32
    }

    /// The first pages; the others are given back.
    fn split_off(mut self, count: u32) -> Self {
        let block = self.block.start..self.block.start + count;
        self.block.start += count;
        Self { frames: self.frames.clone(), block }
    }

    /// Gives up the frames without freeing them: another value owns them now.
    fn forget(mut self) {
        self.block = 0..0;
    }
}

impl<K: Kernel> Deref for Spare<K> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: M3, M4: the block is this value's alone; it lies in one chunk.
        unsafe { self.frames.slice(FrameId::new(self.block.start), self.block.len() * PAGE_BYTES) }
    }
}

impl<K: Kernel> DerefMut for Spare<K> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and this is borrowed mutably.
        unsafe { self.frames.slice_mut(FrameId::new(self.block.start), self.block.len() * PAGE_BYTES) }
    }
}

impl<K: Kernel> Drop for Spare<K> {
    fn drop(&mut self) {
        if !self.block.is_empty() {
            self.frames.pool.lock().free(self.block.clone().map(FrameId::new));
        }
    }
}

/// Pages being loaded: the owner of this value fills them. If it is dropped, the load has failed.
pub(crate) struct Filling<K: Kernel> {
    pages: PageRange,
    memory: Spare<K>,
}

impl<K: Kernel> Filling<K> {
    pub(crate) fn pages(&self) -> PageRange {
        self.pages
    }

    /// Where the pages' bytes go.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// The first bytes are there: pages that these fill, or begin, can be read from now on; the others leave.
    pub(crate) fn publish(mut self, read_bytes: usize) {
        let read_pages = read_bytes.div_ceil(PAGE_BYTES);
        self.memory[read_bytes..read_pages * PAGE_BYTES].fill(0);
        self.end(read_pages);
    }

    fn end(&mut self, read_pages: usize) {
        let frames = &self.memory.frames;
        let block = core::mem::take(&mut self.memory.block);
        frames.pool.lock().end_load(&frames.cache, block, read_pages as u32);
    }
}

impl<K: Kernel> Drop for Filling<K> {
    fn drop(&mut self) {
        self.end(0);
    }
}

/// Dirty pages, one behind the other in memory, that stay as they are while they are written to their file.
pub(crate) struct HeldRun<'a, K: Kernel> {
    frames: &'a Frames<K>,
    first: FrameId,
    count: u32,
}

impl<K: Kernel> HeldRun<'_, K> {
    /// Pages.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Where one of them begins in memory.
    pub(crate) fn address(&self, place: u32) -> usize {
        self.frames.address(self.frame(place)) as usize
    }

    /// The file has them.
    pub(crate) fn clean(&self) {
        (0..self.count).for_each(|place| self.frames.cache.clean(self.frame(place)));
    }

    fn frame(&self, place: u32) -> FrameId {
        FrameId::new(self.first.get() + place)
    }
}

impl<K: Kernel> Deref for HeldRun<'_, K> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: M1: this has all of them pinned; they are of one chunk.
        unsafe { self.frames.slice(self.first, self.count as usize * PAGE_BYTES) }
    }
}

impl<K: Kernel> Drop for HeldRun<'_, K> {
    fn drop(&mut self) {
        (0..self.count).for_each(|place| self.frames.unpin(self.frame(place)));
    }
}

/// A page that was used again is worth two that were not; the count ends at three.
const REFERENCE_COST: u32 = 2;
