//! Arena: the frame memory, in huge-page chunks cut into buddy extents.
//!
//! ```text
//!   chunk (2 MiB, MADV_HUGEPAGE, MADV_DONTFORK)      budget = at most n chunks, mapped when first needed
//!   ├── Extent 1 MiB ──┤├ 512 KiB ┤├ 256 ┤…├ 4 KiB ┤
//!        allocate ──► Extent (unique owner, `&mut [u8]`) ──► drop: back to the arena
//!                        └─ adopt ──► frames of the page cache ──► give_back
//! ```
//!
//! Chunks are 2 MiB because physically contiguous memory is what makes direct I/O cheap: on a virtio disk, 128 KiB
//! reads at depth 16 ran at 2.3–2.7 GB/s into huge pages and at 1.0–1.7 GB/s into 4 KiB pages. They are touched
//! once, when mapped, and given back only under pressure, whole (`elastic`): `MADV_DONTNEED` costs 2–16 µs a page. A whole
//! chunk that moves into live memory leaves zeros behind, which fault when next touched. Where there is plenty, the first chunk begins in
//! small pages that are not touched, so that a program that reads a page pays for a page; it is filled when more is used. Further ones
//! are prepared by a thread in the background while the arena grows (`ahead`).
//! `MADV_DONTFORK` keeps `fork` from copying the page tables of the pool; a forked child has none of it.
//!
//! Owns: chunk mappings, the buddy state, the budget, the threads and tasks that wait for memory.
//! Does not own: the contents, the choice of pages to evict.
//! Invariants: I1 an extent has one owner, so its bytes change only through it; I6 mapped memory never exceeds the
//! budget, readahead leaves a share for demand.
//! Locks: `state` is held for buddy operations only, never while memory is mapped or touched.
//! Hot path: no syscall; one lock for an allocation and one for a free.

mod ahead;
mod chunk;
mod elastic;
mod extent;
mod offers;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_utils::CachePadded;
use headwater_core::buddy::{Block, Buddy, CHUNK_BYTES, order_for_bytes};
use headwater_core::units::{FrameId, PAGE_BYTES};
use smallvec::SmallVec;

use crate::memory::pressure::Pressure;
use crate::sync::event::{Event, EventListener, WakeScope};
use crate::sync::lock;
use crate::system::fork::ProcessMark;
use ahead::Ahead;
use chunk::MappedChunk;
use elastic::{CHUNKS_MIN, Growth, Rings};

pub(crate) use chunk::{ArenaKey, Chunk};
pub(crate) use elastic::{ChunkUser, Forgotten};
pub use extent::Extent;

/// The extents of one request: in the order of the file's bytes. Nearly always one.
pub type Extents = SmallVec<[Extent; 1]>;

/// Urgency of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A caller waits for the bytes: may use all of the budget.
    Demand,
    /// A caller has said that it will ask for the bytes: memory as for readahead; waits for a place in the queue of the device, behind
    /// demands, until a caller does ask.
    Advised,
    /// A guess about the future: leaves [`Arena::demand_reserve_bytes`] untouched and gives up instead of waiting.
    Readahead,
}

/// A pool of frame memory with a fixed budget. Clones share the pool.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

struct Shared {
    /// Readers of pages look at what is beside it, and do not lock it.
    state: CachePadded<Mutex<State>>,
    /// Where each chunk lies; null for those that are not mapped. What is set stays as long as the arena.
    bases: Box<[AtomicPtr<u8>]>,
    freed: Event,
    chunks_max: usize,
    growth: Growth,
    /// Chunks whose share of the budget is lent to another user ([`LentOut`]), and which are not mapped meanwhile. Changes under the lock.
    chunks_lent: AtomicUsize,
    rings: Arc<Rings>,
    ahead: Ahead,
    id: u64,
    mark: ProcessMark,
}

#[derive(Default)]
struct State {
    buddy: Buddy,
    chunks: Vec<MappedChunk>,
    /// Chunks without memory: given back to the system, and out of the buddy's circulation.
    released: Vec<u32>,
    /// Chunks with memory.
    chunks_mapped: usize,
    /// The first chunk is in small pages, most of which were never touched.
    is_first_sparse: bool,
    /// The first chunk is not mapped in small pages, see [`Arena::expect_much`].
    is_much_expected: bool,
    /// Chunks that a thread is putting memory behind right now; they count against the budget.
    chunks_growing: usize,
    /// Given back to the system so far.
    released_bytes: u64,
    used_bytes: usize,
    /// In frames of the page cache.
    cached_bytes: usize,
}

/// The budget of an arena is smaller than one chunk and the metadata beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetTooSmall {
    /// The smallest budget that works, bytes.
    pub minimum_bytes: usize,
}

impl fmt::Display for BudgetTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory budget is below the minimum of {} KiB", self.minimum_bytes / 1024)
    }
}

impl std::error::Error for BudgetTooSmall {}

/// What an arena holds at one moment, all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Memory the arena may map at most.
    pub budget_bytes: usize,
    /// Memory mapped now.
    pub mapped_bytes: usize,
    /// Memory given back to the system under pressure, from the beginning; what was mapped again counts again.
    pub released_bytes: u64,
    /// Memory inside extents.
    pub used_bytes: usize,
    /// Memory in frames of a page cache.
    pub cached_bytes: usize,
    /// Memory of chunks that the system may take by itself. Part of `mapped_bytes`.
    pub offered_bytes: usize,
    /// Memory that the system has taken, from the beginning, as far as was noticed.
    pub taken_bytes: u64,
    /// Budget lent to other memory by [`Arena::lend_out`]. Not part of `budget_bytes`.
    pub lent_out_bytes: usize,
}

/// A part of an arena's budget that is used for other memory. Returns to the arena when dropped.
pub struct LentOut {
    shared: Arc<Shared>,
    chunks: usize,
}

impl Arena {
    /// An arena that maps at most `budget_bytes`, less a share for what the engine keeps beside its frames, rounded
    /// down to whole chunks of 2 MiB. Nothing is mapped yet. It grows whatever the system says; see [`Arena::elastic`].
    ///
    /// # Errors
    /// When the budget does not hold one chunk.
    ///
    /// ```
    /// use headwater_io::{Arena, Urgency};
    /// let arena = Arena::new(8 << 20)?;
    /// let mut extent = arena.allocate(5000, Urgency::Demand).expect("the arena is empty");
    /// assert_eq!(extent.len(), 8192);
    /// extent[0] = 1;
    /// # Ok::<(), headwater_io::BudgetTooSmall>(())
    /// ```
    pub fn new(budget_bytes: usize) -> Result<Arena, BudgetTooSmall> {
        Arena::with_growth(budget_bytes, Growth::unlimited())
    }

    /// As [`Arena::new`], but beyond its first 4 MiB it grows only while the headroom stays above the reserve; else it
    /// refuses memory as if the budget were used up.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn elastic(budget_bytes: usize, pressure: Pressure) -> Result<Arena, BudgetTooSmall> {
        Arena::with_growth(budget_bytes, Growth::under(pressure))
    }

    fn with_growth(budget_bytes: usize, growth: Growth) -> Result<Arena, BudgetTooSmall> {
        let chunks_max = budget_bytes.saturating_sub(METADATA_BYTES) / CHUNK_BYTES;
        if chunks_max == 0 {
            return Err(BudgetTooSmall { minimum_bytes: METADATA_BYTES + CHUNK_BYTES });
        }
        let bases = unmapped(chunks_max);
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let (state, freed) = (CachePadded::default(), Event::new());
        let (id, mark) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), ProcessMark::here());
        let (rings, chunks_lent, ahead) = (Arc::default(), AtomicUsize::new(0), Ahead::default());
        let shared = Shared { state, bases, freed, chunks_max, growth, chunks_lent, rings, ahead, id, mark };
        Ok(Arena { shared: Arc::new(shared) })
    }

    /// One contiguous extent of at least `bytes`, rounded up to a power of two of pages; at most 2 MiB.
    /// `None` when the budget (or for readahead its share) is used up or too fragmented, and in a forked child. Does not
    /// wait for others, but may map a chunk, which takes up to milliseconds.
    ///
    /// # Panics
    /// If `bytes` is more than 2 MiB.
    pub fn allocate(&self, bytes: usize, urgency: Urgency) -> Option<Extent> {
        let order = order_for_bytes(bytes).expect("an extent has at most 2 MiB");
        if !self.shared.mark.is_here() {
            return None;
        }
        // Growing wakes tasks, whose wakers may ask for memory at once: they run once the lock is released.
        let mut scope = None;
        let mut state = self.shared.lock();
        loop {
            if state.is_first_sparse
                && (order >= SPARSE_ORDER || state.buddy.free_pages() < SPARSE_FREE_PAGES)
            {
                state = self.fill_first(state);
            }
            let leaves_reserve = |chunks| urgency == Urgency::Demand || state.leaves_reserve(order, chunks);
            if !leaves_reserve(self.shared.chunks_max - self.shared.chunks_lent()) {
                return None;
            }
            // While the system refuses more, what is mapped is all there is.
            let is_limited = self.shared.growth.is_limited();
            if (!is_limited || leaves_reserve(state.chunks_mapped))
                && let Some(block) = state.buddy.allocate(order)
            {
                let (extent, lacks_ahead) = (self.claim(&mut state, block), self.lacks_ahead(&state));
                drop(state);
                if lacks_ahead {
                    self.shared.ahead.call();
                }
                return Some(extent);
            }
            if !self.may_grow(&state) {
                return None;
            }
            scope.get_or_insert_with(WakeScope::enter);
            state = self.grow(state)?;
        }
    }

    /// Extents of together at least `bytes`: one if memory is unfragmented, up to 2 MiB, else several in halves. `None` when the
    /// memory is not there; unless it is for a demand, also when it is in more than 16 pieces.
    pub fn allocate_run(&self, bytes: usize, urgency: Urgency) -> Option<Extents> {
        let piece_for = |bytes: usize| bytes.min(CHUNK_BYTES).next_power_of_two().max(PAGE_BYTES);
        let mut extents = Extents::new();
        let mut piece_bytes = piece_for(bytes);
        let mut missing_bytes = bytes;
        while missing_bytes > 0 {
            let want_bytes = piece_bytes.min(piece_for(missing_bytes));
            if let Some(extent) = self.allocate(want_bytes, urgency) {
                missing_bytes = missing_bytes.saturating_sub(extent.len());
                extents.push(extent);
                if urgency != Urgency::Demand && extents.len() == SEGMENTS_MAX && missing_bytes > 0 {
                    return None;
                }
            } else if want_bytes == PAGE_BYTES {
                return None;
            } else {
                piece_bytes = want_bytes / 2;
            }
        }
        Some(extents)
    }

    /// Resolves when memory comes back to the arena. Listen first, then try to allocate again, then wait.
    pub fn freed(&self) -> EventListener {
        self.shared.freed.listen()
    }

    /// Wakes all that wait for memory: an allocation that failed before may succeed now.
    pub fn announce(&self) {
        self.shared.freed.notify(usize::MAX);
    }

    /// What readahead leaves for demand: an eighth of the budget, 16 MiB at most.
    pub fn demand_reserve_bytes(&self) -> usize {
        demand_reserve_bytes(self.shared.chunks_max * CHUNK_BYTES)
    }

    /// Memory that the arena can count on: its budget, or, while the system refuses more, what is mapped. Zero in a forked child.
    pub fn usable_bytes(&self) -> usize {
        if !self.shared.mark.is_here() {
            return 0;
        }
        let budget_bytes = self.budget_bytes();
        if !self.shared.growth.is_limited() {
            return budget_bytes;
        }
        let mapped_bytes = self.shared.lock().chunks_mapped * CHUNK_BYTES;
        mapped_bytes.max(CHUNKS_MIN * CHUNK_BYTES).min(budget_bytes)
    }

    /// The arena's gauges; all zero in a forked child.
    pub fn stats(&self) -> ArenaStats {
        if !self.shared.mark.is_here() {
            return ArenaStats::default();
        }
        let state = self.shared.lock();
        ArenaStats {
            budget_bytes: self.budget_bytes(),
            mapped_bytes: state.chunks_mapped * CHUNK_BYTES,
            released_bytes: state.released_bytes,
            used_bytes: state.used_bytes,
            cached_bytes: state.cached_bytes,
            offered_bytes: self.shared.growth.offers.offered_bytes() as usize,
            taken_bytes: self.shared.growth.offers.taken_bytes(),
            lent_out_bytes: self.shared.chunks_lent() * CHUNK_BYTES,
        }
    }

    /// Memory the arena may map at most, bytes.
    pub fn budget_bytes(&self) -> usize {
        (self.shared.chunks_max - self.shared.chunks_lent()) * CHUNK_BYTES
    }

    /// Whether this much was ever mapped at a time, rounded down to whole chunks. No lock.
    pub fn has_mapped(&self, bytes: usize) -> bool {
        let Some(last) = (bytes / CHUNK_BYTES).checked_sub(1) else { return true };
        self.shared.bases.get(last).is_some_and(|base| !base.load(Ordering::Relaxed).is_null())
    }

    /// Lowers the budget by `bytes`, rounded up to whole chunks, for as long as the result lives, so that as much other memory can
    /// be used in its place.
    ///
    /// # Errors
    /// How many bytes there would be: what is mapped stays so, an eighth is never lent, nor is what the system does not have beyond
    /// its reserve.
    ///
    /// ```
    /// let arena = headwater_io::Arena::new(17 << 20)?;
    /// let lent = arena.lend_out(3 << 20).expect("nothing is mapped yet");
    /// assert_eq!((arena.stats().budget_bytes, arena.stats().lent_out_bytes), (12 << 20, 4 << 20));
    /// assert!(arena.lend_out(12 << 20).is_err());
    /// drop(lent);
    /// assert_eq!(arena.stats().lent_out_bytes, 0);
    /// # Ok::<(), headwater_io::BudgetTooSmall>(())
    /// ```
    pub fn lend_out(&self, bytes: usize) -> Result<LentOut, usize> {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        let spare_chunks = self.shared.growth.headroom().spare_bytes() / CHUNK_BYTES as u64;
        let state = self.shared.lock();
        let kept =
            (state.chunks_mapped + state.chunks_growing).max(self.shared.chunks_max.div_ceil(KEPT_DIVISOR));
        let lendable = self.shared.chunks_max.saturating_sub(self.shared.chunks_lent() + kept);
        let lendable = lendable.min(usize::try_from(spare_chunks).unwrap_or(usize::MAX));
        if chunks > lendable {
            return Err(lendable * CHUNK_BYTES);
        }
        self.shared.chunks_lent.fetch_add(chunks, Ordering::AcqRel);
        drop(state);
        Ok(LentOut { shared: self.shared.clone(), chunks })
    }

    /// Chunks at most.
    pub(crate) fn chunks_max(&self) -> usize {
        self.shared.chunks_max
    }

    /// Whether the memory can be used: it is not there in a forked child.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.shared.mark.is_here()
    }

    /// Whether the extent is of this arena.
    pub(crate) fn owns(&self, extent: &Extent) -> bool {
        Arc::ptr_eq(&extent.shared, &self.shared)
    }

    /// An extent becomes frames, each of which [`Arena::give_back`] takes by itself. Says which: as many as the extent
    /// has pages, from the first on.
    ///
    /// # Panics
    /// If the extent is another arena's.
    pub(crate) fn adopt(&self, extent: Extent) -> Range<u32> {
        assert!(self.owns(&extent), "the extent is this arena's");
        let extent = ManuallyDrop::new(extent);
        // SAFETY: read once, from a value that is not dropped; the other fields own nothing.
        drop(unsafe { std::ptr::read(&raw const extent.shared) });
        let mut state = self.shared.lock();
        state.used_bytes -= extent.block.bytes();
        state.cached_bytes += extent.block.bytes();
        state.buddy.break_up(extent.block);
        extent.block.frames()
    }

    /// Frees frames.
    ///
    /// # Safety
    /// They come from [`Arena::adopt`], and are given back once each.
    pub(crate) unsafe fn give_back(&self, frames: &[FrameId]) {
        if frames.is_empty() || !self.shared.mark.is_here() {
            return;
        }
        let mut state = self.shared.lock();
        state.cached_bytes -= frames.len() * PAGE_BYTES;
        frames.iter().for_each(|frame| state.buddy.free(Block::of_frame(*frame)));
        drop(state);
        self.announce();
    }

    /// Where a frame's bytes begin, if its chunk was ever mapped.
    #[inline]
    pub(crate) fn frame(&self, frame: FrameId) -> Option<NonNull<u8>> {
        let (chunk, place) = (frame.get() as usize / CHUNK_PAGES, frame.get() as usize % CHUNK_PAGES);
        let base = NonNull::new(self.shared.bases.get(chunk)?.load(Ordering::Acquire))?;
        // SAFETY: the place lies inside the chunk.
        Some(unsafe { base.add(place * PAGE_BYTES) })
    }

    /// The chunk that a frame is part of, if it was ever mapped.
    pub(crate) fn chunk_of(&self, frame: FrameId) -> Option<Chunk> {
        let index = frame.get() as usize / CHUNK_PAGES;
        let base = NonNull::new(self.shared.bases.get(index)?.load(Ordering::Acquire))?;
        Some(Chunk { arena: self.shared.id, index, base })
    }

    /// What tells this arena from others.
    pub(crate) fn key(&self) -> ArenaKey {
        ArenaKey { id: self.shared.id, chunks_max: self.shared.chunks_max, rings: self.shared.rings.clone() }
    }

    fn claim(&self, state: &mut State, block: Block) -> Extent {
        state.used_bytes += block.bytes();
        let chunk = &state.chunks[block.chunk as usize];
        let may_be_registered = chunk.standing == offers::Standing::Ordinary;
        Extent { shared: self.shared.clone(), base: chunk.at(block.offset_bytes()), block, may_be_registered }
    }
}

impl State {
    /// Whether demand keeps its share of `chunks` when a block of this order is taken.
    fn leaves_reserve(&self, order: u8, chunks: usize) -> bool {
        let (after_bytes, all_bytes) = (self.used_bytes + (PAGE_BYTES << order), chunks * CHUNK_BYTES);
        after_bytes + demand_reserve_bytes(all_bytes) <= all_bytes
    }
}

impl Shared {
    fn chunks_lent(&self) -> usize {
        self.chunks_lent.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the lock can only come from an assertion of the buddy; its state is then still memory-safe.
        lock(&self.state)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

impl Drop for LentOut {
    fn drop(&mut self) {
        if !self.shared.mark.is_here() {
            return;
        }
        let state = self.shared.lock();
        self.shared.chunks_lent.fetch_sub(self.chunks, Ordering::AcqRel);
        drop(state);
        self.shared.freed.notify(usize::MAX);
    }
}

impl fmt::Debug for LentOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentOut({} bytes)", self.chunks * CHUNK_BYTES)
    }
}

/// Addresses of chunks that are not mapped. The table is as large as memory may ever get; what is not used of it is not touched.
fn unmapped(chunks_max: usize) -> Box<[AtomicPtr<u8>]> {
    // Null pointers are zeros, so the allocator gives memory that is not touched.
    let addresses = vec![ptr::null_mut::<u8>(); chunks_max].into_boxed_slice();
    // SAFETY: an `AtomicPtr<u8>` has the size, the alignment and the values of a `*mut u8`, and the box is the only owner.
    unsafe { Box::from_raw(Box::into_raw(addresses) as *mut [AtomicPtr<u8>]) }
}

/// What readahead leaves of this much memory.
fn demand_reserve_bytes(bytes: usize) -> usize {
    (bytes / DEMAND_RESERVE_DIVISOR).min(DEMAND_RESERVE_BYTES_MAX)
}

const CHUNK_PAGES: usize = CHUNK_BYTES / PAGE_BYTES;

/// Set aside from the budget for slots, the ring and the stacks of the driver's threads, so that "memory 4 MiB" means
/// the whole process stays within 4 MiB beyond one that does nothing.
const METADATA_BYTES: usize = 512 << 10;

/// Readahead may take seven eighths. With 64 MiB the rest holds over a thousand single pages, so that many idle readers do not
/// keep a new one from its first bytes.
const DEMAND_RESERVE_DIVISOR: usize = 8;

/// Four thousand single pages, or sixteen of the longest requests that devices need: more memory does not need a larger reserve.
const DEMAND_RESERVE_BYTES_MAX: usize = 16 << 20;

/// Extents of 256 KiB are worth a huge page: readers of small files, and their first readahead, stay below.
const SPARSE_ORDER: u8 = 6;

/// From 256 KiB on, the faults of small pages cost more than a huge page.
const SPARSE_FREE_PAGES: u64 = CHUNK_PAGES as u64 - 64;

/// What is left to the arena whatever others would like: an eighth, a chunk at the least.
const KEPT_DIVISOR: usize = 8;

/// More pieces than this are no longer one cheap I/O; readahead does without.
const SEGMENTS_MAX: usize = 16;

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::Pin;
    use std::task::{Context, Wake, Waker};

    use headwater_testkit::watched;

    use super::*;

    /// Goal: the budget holds at every moment and everything comes back. Method: take single pages until refused.
    #[test]
    fn budget_is_never_exceeded_and_returns_to_zero() {
        let arena = Arena::new(METADATA_BYTES + 2 * CHUNK_BYTES).unwrap();
        let mut held = Vec::new();
        while let Some(extent) = arena.allocate(64 << 10, Urgency::Demand) {
            held.push(extent);
            assert!(arena.stats().mapped_bytes <= arena.stats().budget_bytes);
        }
        assert_eq!(arena.stats().used_bytes, 2 * CHUNK_BYTES);
        held.clear();
        assert_eq!(arena.stats().used_bytes, 0);
        assert_eq!(arena.allocate(CHUNK_BYTES, Urgency::Demand).unwrap().len(), CHUNK_BYTES);
    }

    /// Many fill a chunk.
    const PIECE_BYTES: usize = if cfg!(miri) { 16 * PAGE_BYTES } else { PAGE_BYTES };

    /// Goal: readahead leaves demand its share. Method: exhaust as readahead, then ask as demand.
    #[test]
    fn readahead_leaves_the_reserve_to_demand() {
        let arena = Arena::new(METADATA_BYTES + CHUNK_BYTES).unwrap();
        let mut held = Vec::new();
        while let Some(extent) = arena.allocate(PIECE_BYTES, Urgency::Readahead) {
            held.push(extent);
        }
        assert_eq!(CHUNK_BYTES - arena.stats().used_bytes, arena.demand_reserve_bytes());
        assert!(arena.allocate(PAGE_BYTES, Urgency::Demand).is_some());
    }

    /// Goal: a fragmented arena still serves a large run. Method: free every second page, ask for 16 of them.
    #[test]
    fn fragmented_memory_serves_a_run_in_pieces() {
        let arena = Arena::new(METADATA_BYTES + CHUNK_BYTES).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| arena.allocate(PIECE_BYTES, Urgency::Demand)).collect();
        let kept: Vec<_> = all.into_iter().enumerate().filter(|(i, _)| i % 2 == 0).map(|(_, e)| e).collect();
        assert!(arena.allocate(2 * PIECE_BYTES, Urgency::Demand).is_none());
        let run = arena.allocate_run(16 * PIECE_BYTES, Urgency::Demand).unwrap();
        assert_eq!(run.len(), 16);
        assert!(arena.allocate_run(32 * PIECE_BYTES, Urgency::Readahead).is_none());
        drop((kept, run));
        assert_eq!(arena.stats().used_bytes, 0);
    }

    /// Goal: a task that waits for memory is woken each time that some comes back, or that there is more, with no lock held. Method:
    /// one that waits, with a waker that asks the arena at once; memory comes back in each way there is.
    #[test]
    fn whatever_comes_back_is_announced() {
        let arena = Arena::new(METADATA_BYTES + 4 * CHUNK_BYTES).unwrap();
        let mut extents = Vec::new();
        watched("a waker that asks the arena", || {
            announces(&arena, "another chunk", || {
                extents.extend(arena.allocate(CHUNK_BYTES, Urgency::Demand))
            });
            announces(&arena, "an extent", || extents.clear());
            announces(&arena, "a chunk that was released", || assert_eq!(arena.release(1), CHUNK_BYTES));
            let lent = arena.lend_out(CHUNK_BYTES).unwrap();
            announces(&arena, "a part of the budget", || drop(lent));
            let frames = arena.adopt(arena.allocate(2 * PAGE_BYTES, Urgency::Demand).unwrap());
            let frames: Vec<FrameId> = frames.map(FrameId::new).collect();
            // SAFETY: they were adopted just now.
            announces(&arena, "frames", || unsafe { arena.give_back(&frames) });
            let arena = Arena::new(METADATA_BYTES + 256 * CHUNK_BYTES).unwrap();
            let held: Vec<Extent> =
                (0..32).filter_map(|_| arena.allocate(CHUNK_BYTES, Urgency::Demand)).collect();
            announces(&arena, "a chunk that was prepared", || arena.prepare());
            drop(held);
        });
    }

    /// Asserts that a waiting task is woken.
    pub(crate) fn announces(arena: &Arena, what: &str, give_back: impl FnOnce()) {
        struct Asks(Arena);
        impl Wake for Asks {
            fn wake(self: Arc<Self>) {
                self.0.stats();
            }
        }
        let mut freed = arena.freed();
        let waker = Waker::from(Arc::new(Asks(arena.clone())));
        let mut is_told = || Pin::new(&mut freed).poll(&mut Context::from_waker(&waker)).is_ready();
        assert!(!is_told());
        give_back();
        assert!(is_told(), "{what}");
    }

    /// Goal: a run may be longer than the longest extent, of nothing, or more than there is.
    #[test]
    fn runs_have_any_length() {
        let arena = Arena::new(METADATA_BYTES + 4 * CHUNK_BYTES).unwrap();
        let room = |bytes| {
            let run = arena.allocate_run(bytes, Urgency::Demand);
            run.map(|run| run.iter().map(|extent| extent.len()).sum::<usize>())
        };
        for (bytes, expected) in [(0, 0), (1, PAGE_BYTES), (CHUNK_BYTES + 1, CHUNK_BYTES + PAGE_BYTES)] {
            assert_eq!(room(bytes), Some(expected), "{bytes}");
        }
        assert_eq!(room(4 * CHUNK_BYTES), Some(4 * CHUNK_BYTES));
        assert_eq!((room(4 * CHUNK_BYTES + 1), room(usize::MAX)), (None, None));
        assert_eq!(arena.stats().used_bytes, 0);
    }

    /// Goal: extents never overlap. Method: fill each with its number, check all after.
    #[test]
    fn extents_do_not_overlap() {
        let arena = Arena::new(METADATA_BYTES + CHUNK_BYTES).unwrap();
        let sizes = [4096, 8192, 65536, 4096, 131072, 16384];
        let mut extents: Vec<_> =
            sizes.iter().map(|&bytes| arena.allocate(bytes, Urgency::Demand).unwrap()).collect();
        for (number, extent) in extents.iter_mut().enumerate() {
            extent.fill(number as u8);
        }
        for (number, extent) in extents.iter().enumerate() {
            // A prime step reaches every page at another place; miri takes minutes for every byte.
            assert!(extent.iter().step_by(509).all(|&byte| byte == number as u8));
        }
    }

    /// Goal: a budget below one chunk is refused with the minimum in the text.
    #[test]
    fn tiny_budget_is_an_error() {
        let error = Arena::new(1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "memory budget is below the minimum of 2560 KiB");
    }
}
