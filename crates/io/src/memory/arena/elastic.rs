//! Elastic: the arena grows while the system has memory to spare, and returns free chunks under pressure.
//!
//! ```text
//!            ┌── grow: headroom? touch ◄──┐
//!   unmapped ┴─► in circulation ─ retire ─┴─► rings forget it ─► MADV_DONTNEED ─► released: addresses only
//!                     ▲                           │
//!                     └── a ring still uses it ───┘
//! ```
//!
//! A released chunk stays mapped, because an optimistic read of a page that has just left may still be under way; it may
//! see zeros, and is then discarded.
//!
//! Owns: when the arena may grow, which chunks have memory, which rings know the arena.
//! Does not own: the buddy (the arena's state), the headroom (pressure), the choice of pages to evict.
//! Invariants: I1 a chunk is released only while it is wholly free and out of circulation, so that no extent or frame has a byte
//! of it, and no ring has it registered: a ring would go on with the old memory. I6 chunks count as mapped until their memory is
//! back with the system, and again before it is taken.
//! Locks: `arena.state` for its bookkeeping, `rings` for its list; neither while the system is called.
//! Hot path: none. Growing reads the headroom; after a refusal, growth is refused for 20 ms without reading it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use headwater_core::buddy::CHUNK_BYTES;
use smallvec::SmallVec;

use super::offers::{Offers, Standing};
use super::{Arena, ArenaKey, Chunk, MappedChunk, State};
use crate::memory::pressure::{Headroom, Pressure, Stall};
use crate::sync::lock;
use crate::system::chunk_memory;

/// Whether an arena may grow.
pub(super) struct Growth {
    pressure: Option<Pressure>,
    made: Instant,
    /// Until when growth is refused without another look, microseconds since `made`.
    refused_until: AtomicU64,
    /// Growth was refused when it was last asked for.
    is_limited: AtomicBool,
    /// Growth was refused, and [`Arena::take_refusal`] has not reported it yet.
    is_refusal_new: AtomicBool,
    pub(super) offers: Offers,
}

impl Growth {
    pub(super) fn unlimited() -> Growth {
        Growth {
            pressure: None,
            made: Instant::now(),
            refused_until: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            is_refusal_new: AtomicBool::new(false),
            offers: Offers::default(),
        }
    }

    pub(super) fn under(pressure: Pressure) -> Growth {
        Growth { pressure: Some(pressure), ..Growth::unlimited() }
    }

    /// Whether what is mapped is all there is, as of the last look at the headroom.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Whether it was refused a moment ago.
    fn is_refused(&self) -> bool {
        self.is_limited() && self.now() < self.refused_until.load(Ordering::Relaxed)
    }

    pub(super) fn headroom(&self) -> Headroom {
        let Some(pressure) = &self.pressure else {
            self.is_limited.store(false, Ordering::Relaxed);
            return Headroom::UNKNOWN;
        };
        let headroom = pressure.headroom_beside(self.offers.offered_bytes(), self.offers.misplaced_bytes());
        self.is_limited.store(headroom.spare_bytes() < CHUNK_BYTES as u64, Ordering::Relaxed);
        headroom
    }

    /// Whether the reserve stays untouched when this many chunks are taken.
    fn allows(&self, chunks: usize) -> bool {
        if self.headroom().spare_bytes() >= (chunks * CHUNK_BYTES) as u64 {
            return true;
        }
        self.refuse();
        self.is_refusal_new.store(true, Ordering::Relaxed);
        false
    }

    fn refuse(&self) {
        self.is_limited.store(true, Ordering::Relaxed);
        self.refused_until.store(self.now() + REFUSAL.as_micros() as u64, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.made.elapsed().as_micros() as u64
    }
}

/// A ring that registers chunks with the kernel. A trait, because rings are built on memory, and memory must not know them.
pub(crate) trait ChunkUser: Send + Sync {
    /// Unregisters a free chunk, whose memory is about to be given back.
    fn forget(&self, chunk: &Chunk) -> Forgotten;
}

/// Whether a ring does not know a chunk any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgotten {
    Yes,
    No,
}

/// The rings that may know chunks of an arena.
#[derive(Default)]
pub(super) struct Rings(Mutex<Vec<Weak<dyn ChunkUser>>>);

impl Rings {
    fn living(&self) -> SmallVec<[Arc<dyn ChunkUser>; 8]> {
        let mut rings = lock(&self.0);
        rings.retain(|ring| ring.strong_count() > 0);
        rings.iter().filter_map(Weak::upgrade).collect()
    }
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rings")
    }
}

impl ArenaKey {
    /// The ring may register chunks from now on. Before the memory of one is released, it is asked to forget it.
    pub(crate) fn add_ring(&self, ring: Weak<dyn ChunkUser>) {
        lock(&self.rings.0).push(ring);
    }
}

impl Arena {
    /// Returns the memory of wholly free chunks to the system, up to `bytes` rounded up to chunks, and returns how much.
    /// The arena takes it again when it is needed. Blocks for some 50 µs a chunk, more where it is not a huge page.
    pub fn release(&self, bytes: usize) -> usize {
        if !self.is_here() {
            return 0;
        }
        let mut released_bytes = 0;
        let mut kept: SmallVec<[u32; 8]> = SmallVec::new();
        while released_bytes < bytes {
            let mut state = self.shared.lock();
            let Some(index) = state.buddy.retire() else { break };
            let chunk = self.chunk(&state, index);
            drop(state);
            if self.discard(&chunk) {
                released_bytes += CHUNK_BYTES;
                let mut state = self.shared.lock();
                self.note_unmapped(&mut state, index);
                state.released_bytes += CHUNK_BYTES as u64;
            } else {
                kept.push(index);
            }
        }
        let mut state = self.shared.lock();
        kept.into_iter().for_each(|index| state.buddy.restore(index));
        drop(state);
        // Others may have been refused what was out of circulation, or what the budget has room for now.
        self.announce();
        released_bytes
    }

    /// The headroom of the system now; [`Headroom::UNKNOWN`] for an arena that is not elastic.
    pub fn headroom(&self) -> Headroom {
        self.shared.growth.headroom()
    }

    /// Whether threads lose time to waiting for memory; never for an arena that is not elastic.
    pub fn is_stalling(&self) -> Stall {
        self.shared.growth.pressure.as_ref().map_or(Stall::No, Pressure::is_stalling)
    }

    /// Grows no more until the headroom is looked at again, or some milliseconds have passed.
    pub fn refuse_growth(&self) {
        self.shared.growth.refuse();
    }

    /// Whether there are wholly free chunks, such as [`Arena::release`] leaves where a ring or the system keeps their memory. None
    /// in a forked child.
    pub fn has_free_chunks(&self) -> bool {
        if !self.is_here() {
            return false;
        }
        let mut state = self.shared.lock();
        let found = state.buddy.retire();
        found.map(|index| state.buddy.restore(index)).is_some()
    }

    /// Whether growth was refused for lack of headroom since this was last asked.
    pub fn take_refusal(&self) -> bool {
        let is_new = &self.shared.growth.is_refusal_new;
        is_new.load(Ordering::Relaxed) && is_new.swap(false, Ordering::Relaxed)
    }

    /// All chunks in order but those on offer: of each the number, and how many of its pages are free, which of a released one are none.
    pub(crate) fn chunks(&self) -> Vec<(u32, u32)> {
        let mut state = self.shared.lock();
        let count = state.buddy.chunk_count();
        let mut chunks = Vec::new();
        for chunk in 0..count {
            if !state.buddy.is_withheld(chunk) {
                chunks.push((chunk, state.buddy.free_pages_in(chunk)));
            }
            if chunk % CHUNKS_PER_LOCK == CHUNKS_PER_LOCK - 1 {
                drop(state);
                state = self.shared.lock();
            }
        }
        drop(state);
        chunks
    }

    /// Whether the budget has room for another chunk, and the system did not refuse one a moment ago.
    pub(super) fn may_grow(&self, state: &State) -> bool {
        let chunks = state.chunks_mapped + state.chunks_growing;
        let chunks_max = self.shared.chunks_max - self.shared.chunks_lent();
        chunks < chunks_max && (chunks < CHUNKS_MIN || !self.shared.growth.is_refused())
    }

    /// Puts one chunk into circulation, with the lock released while the system is called; the growing count keeps others
    /// inside the budget meanwhile.
    pub(super) fn grow<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        let is_sparse =
            state.chunks.is_empty() && !state.is_much_expected && self.shared.chunks_max >= SPARSE_CHUNKS_MIN;
        let is_first = state.chunks_mapped + state.chunks_growing < CHUNKS_MIN;
        state.chunks_growing += 1;
        let growing = state.chunks_growing;
        let released = state.released.pop();
        let known = released.map(|index| self.chunk(&state, index));
        drop(state);
        let is_allowed = is_first || self.shared.growth.allows(growing);
        let mut mapped = None;
        match &known {
            _ if !is_allowed => {}
            // SAFETY: the chunk was released, so nobody owns any of it, and optimistic readers read atomically.
            Some(chunk) => unsafe { chunk_memory::touch_chunk(chunk.base, CHUNK_BYTES) },
            None if is_sparse => mapped = MappedChunk::map_sparse(),
            None => mapped = MappedChunk::map(),
        }
        if is_allowed && known.is_none() && mapped.is_none() {
            // A limit of the process (`ulimit -v`), or of the system (`vm.overcommit_memory`). Those that wait do not try it again at once.
            self.shared.growth.refuse();
        }
        let mut state = self.shared.lock();
        state.chunks_growing -= 1;
        // Others were refused meanwhile; whether this went well or not, they can try again, once the caller's scope has ended.
        self.announce();
        match released {
            Some(index) if !is_allowed => {
                state.released.push(index);
                return None;
            }
            Some(index) => state.buddy.restore(index),
            None => {
                self.add_chunk(&mut state, mapped?);
                state.is_first_sparse |= is_sparse && state.chunks.len() == 1;
            }
        }
        state.chunks_mapped += 1;
        Some(state)
    }

    /// Much more than a few pages will be allocated: the first chunk is a huge page from the beginning, or becomes one before a device
    /// reads into it. Later the kernel cannot make it one as long as a device does, or a ring has it registered; and requests into small
    /// pages are slow on virtual disks where the kernel merges them: reads of 2 MiB, 4 in flight, 0.7 GB/s, and 2.6 into huge pages.
    pub fn expect_much(&self) {
        if !self.shared.mark.is_here() {
            return;
        }
        let mut state = self.shared.lock();
        state.is_much_expected = true;
        if state.is_first_sparse {
            drop(self.fill_first(state));
        }
    }

    /// Fills the sparse first chunk, with the lock released meanwhile: others go on using it.
    pub(super) fn fill_first<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.is_first_sparse = false;
        let base = state.chunks[0].base;
        drop(state);
        // SAFETY: the first chunk was mapped sparse, and stays mapped as long as the arena.
        unsafe { chunk_memory::fill_chunk(base, CHUNK_BYTES) };
        self.shared.lock()
    }

    fn add_chunk(&self, state: &mut State, chunk: MappedChunk) {
        self.shared.bases[state.chunks.len()].store(chunk.base.as_ptr(), Ordering::Release);
        state.chunks.push(chunk);
        let index = state.buddy.add_chunk();
        assert_eq!(index as usize + 1, state.chunks.len(), "the buddy numbers chunks as this vector does");
    }

    pub(super) fn chunk(&self, state: &State, index: u32) -> Chunk {
        let base = state.chunks[index as usize].base;
        Chunk { arena: self.shared.id, index: index as usize, base }
    }

    /// Has all rings forget a chunk; says whether they did.
    pub(super) fn is_forgotten(&self, chunk: &Chunk) -> bool {
        self.shared.rings.living().iter().all(|ring| ring.forget(chunk) == Forgotten::Yes)
    }

    /// Takes the memory of a retired chunk away; does nothing while a ring knows it and cannot forget it.
    pub(super) fn discard(&self, chunk: &Chunk) -> bool {
        // SAFETY: the chunk is mapped as long as the arena and out of circulation, so nobody owns any of it; no ring knows
        // it.
        self.is_forgotten(chunk) && unsafe { chunk_memory::discard_chunk(chunk.base, CHUNK_BYTES) }.is_ok()
    }
}

impl Arena {
    /// The memory of a retired chunk is back with the system.
    pub(super) fn note_unmapped(&self, state: &mut State, index: u32) {
        state.chunks_mapped -= 1;
        state.released.push(index);
        self.set_standing(state, index, Standing::Ordinary);
    }
}

/// Chunks that are mapped whatever the headroom: with them an engine can read, by evicting.
pub(super) const CHUNKS_MIN: usize = 2;

/// An arena of less than 64 MiB touches its first chunk at once: it may never have another.
const SPARSE_CHUNKS_MIN: usize = 31;

/// How long a refusal holds. A look at the headroom costs some 20 µs, as much as a small read; in this time others come to
/// have, or give back, tens of mebibytes at the most.
const REFUSAL: Duration = Duration::from_millis(20);

/// The lock is held for some microseconds each time.
const CHUNKS_PER_LOCK: u32 = 64;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use super::*;
    use crate::memory::arena::{ArenaStats, Extent, Urgency};
    use headwater_testkit::{ScratchDir, run_self_with_env};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    const BUDGET_BYTES: usize = (512 << 10) + 6 * CHUNK_BYTES;

    fn take(arena: &Arena, count: usize) -> Vec<Extent> {
        (0..count).map_while(|_| arena.allocate(CHUNK_BYTES, Urgency::Demand)).collect()
    }

    /// A system with `mib` available of 64 MiB, of which 16 are the reserve.
    fn set_available(root: &Path, mib: usize) {
        let text = format!("MemTotal: 65536 kB\nMemAvailable: {} kB\n", mib * 1024);
        std::fs::create_dir_all(root.join("proc")).unwrap();
        std::fs::write(root.join("proc/meminfo"), text).unwrap();
    }

    /// From one byte that is looked at to the next; each takes miri a millisecond.
    const STEP_BYTES: usize = if cfg!(miri) { 50_021 } else { 509 };

    /// Goal: an arena to which the system maps no more memory counts on what it has, and grows again once it does. Method: a process of its own with
    /// a limit below what it has.
    #[test]
    #[cfg_attr(miri, ignore)] // it starts a process
    fn memory_that_is_not_mapped_is_a_refusal() {
        const CHILD: &str = "HEADWATER_MAPS_NO_MORE";
        if std::env::var_os(CHILD).is_none() {
            let name = "memory::arena::elastic::tests::memory_that_is_not_mapped_is_a_refusal";
            let output = run_self_with_env(name, CHILD, "1");
            return assert!(output.status.success(), "{output:?}");
        }
        let arena = Arena::new(1 << 30).unwrap();
        let mut extents = take(&arena, 8);
        let before = getrlimit(Resource::Data);
        setrlimit(Resource::Data, Rlimit { current: Some(1 << 20), ..before }).unwrap();
        extents.extend(take(&arena, 8));
        let (usable_bytes, mapped_bytes) = (arena.usable_bytes(), arena.stats().mapped_bytes);
        setrlimit(Resource::Data, before).unwrap();
        assert_eq!((usable_bytes, extents.len()), (mapped_bytes, mapped_bytes / CHUNK_BYTES));
        std::thread::sleep(REFUSAL);
        extents.extend(take(&arena, 8));
        assert_eq!(extents.len() * CHUNK_BYTES, mapped_bytes + 8 * CHUNK_BYTES);
        assert!(arena.usable_bytes() > 1000 << 20);
    }

    /// Goal: what is released is gone, counts as unmapped, comes back empty, and all gauges end at zero.
    #[test]
    fn released_memory_is_gone_and_comes_back() {
        let arena = Arena::new(BUDGET_BYTES).unwrap();
        let mut extents = take(&arena, 3);
        extents.iter_mut().for_each(|extent| extent.fill(0xEE));
        assert_eq!(arena.release(usize::MAX), 0, "all is in use");
        let kept = extents.swap_remove(1);
        drop(extents);
        assert_eq!(arena.release(CHUNK_BYTES + 1), 2 * CHUNK_BYTES);
        assert_eq!(arena.stats().mapped_bytes, CHUNK_BYTES);
        assert!(kept.iter().step_by(STEP_BYTES).all(|&byte| byte == 0xEE));
        let again = take(&arena, 9);
        assert_eq!(again.len(), 5);
        assert!(again[..2].iter().all(|extent| extent.iter().step_by(STEP_BYTES).all(|&byte| byte == 0)));
        assert_eq!(arena.stats().mapped_bytes, arena.stats().budget_bytes);
        drop((kept, again));
        assert_eq!(arena.release(usize::MAX), 6 * CHUNK_BYTES);
        let stats = arena.stats();
        assert_eq!((stats.mapped_bytes, stats.used_bytes, stats.cached_bytes), (0, 0, 0));
        assert_eq!(stats.released_bytes, 8 * CHUNK_BYTES as u64);
    }

    /// Goal: the memory really goes back to the system. Method: the process's resident memory as procfs has it.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn the_system_gets_it() {
        let resident_bytes = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let arena = Arena::new(200 << 20).unwrap();
        drop(take(&arena, 64));
        let before_bytes = resident_bytes();
        assert_eq!(arena.release(usize::MAX), 64 * CHUNK_BYTES);
        // Tests beside this one use a few mebibytes at most.
        assert!(resident_bytes() + 100 * (1 << 20) < before_bytes);
    }

    /// Goal: allocations, releases and readers of what is not theirs race, and each owner sees its own bytes alone.
    #[test]
    fn owners_race_with_releases() {
        let arena = Arena::new(BUDGET_BYTES).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let owners: Vec<_> = (1..=2_u8)
                .map(|number| {
                    let arena = &arena;
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let bytes = 4096 << (round % 10);
                            let Some(mut extent) = arena.allocate(bytes, Urgency::Demand) else { continue };
                            extent.iter_mut().step_by(STEP_BYTES).for_each(|byte| *byte = number);
                            std::thread::yield_now();
                            assert!(extent.iter().step_by(STEP_BYTES).all(|&byte| byte == number));
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    arena.release(2 * CHUNK_BYTES);
                    assert!(arena.stats().mapped_bytes <= arena.stats().budget_bytes);
                    std::thread::yield_now();
                }
            });
            owners.into_iter().for_each(|owner| owner.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        arena.release(usize::MAX);
        assert_eq!(arena.stats(), ArenaStats { mapped_bytes: 0, used_bytes: 0, ..arena.stats() });
        arena.shared.lock().buddy.check();
    }

    /// Goal: growth stops at the reserve, but for the first two chunks, and goes on when there is room again.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn growth_stops_at_the_reserve() {
        let scratch = ScratchDir::on_target().unwrap();
        set_available(scratch.path(), 1);
        let arena = Arena::elastic(BUDGET_BYTES, Pressure::at(scratch.path())).unwrap();
        let mut extents = take(&arena, 9);
        assert_eq!((extents.len(), arena.take_refusal(), arena.take_refusal()), (2, true, false));
        assert_eq!(arena.stats().mapped_bytes, 2 * CHUNK_BYTES);
        assert!(arena.allocate(4096, Urgency::Demand).is_none());
        set_available(scratch.path(), 18);
        while extents.len() < 3 {
            // Until the refusal is over.
            extents.extend(take(&arena, 1));
        }
        drop(extents);
        assert_eq!(arena.release(usize::MAX), 3 * CHUNK_BYTES);
        set_available(scratch.path(), 17);
        let again = take(&arena, 9);
        assert_eq!(again.len(), 2, "what was released is refused like what is new");
    }

    /// Goal: where memory is plentiful, a page costs a page, and what lies there stays when the chunk is filled. Method: the process's
    /// resident memory, and bytes that are written before.
    #[test]
    fn the_first_chunk_is_filled_when_more_is_used() {
        let arena = Arena::new(128 << 20).unwrap();
        let mut pages: Vec<Extent> = (0..7).map(|_| arena.allocate(4096, Urgency::Demand).unwrap()).collect();
        pages.iter_mut().zip(1..).for_each(|(page, number)| page.fill(number));
        assert!(arena.shared.lock().is_first_sparse);
        let filled = Arena::new(128 << 20).unwrap();
        drop(filled.allocate(4096, Urgency::Demand).unwrap());
        filled.expect_much();
        assert!(!filled.shared.lock().is_first_sparse, "it is filled when much is expected");
        let dense = Arena::new(128 << 20).unwrap();
        dense.expect_much();
        drop(dense.allocate(4096, Urgency::Demand).unwrap());
        assert!(!dense.shared.lock().is_first_sparse, "it is not in small pages where much is expected");
        let large = arena.allocate(512 << 10, Urgency::Demand).unwrap();
        assert!(!arena.shared.lock().is_first_sparse);
        assert!(large.iter().step_by(STEP_BYTES).all(|&byte| byte == 0));
        assert!(pages.iter().zip(1..).all(|(page, number)| page[..] == [number; 4096]));
        drop((pages, large));
        assert_eq!(arena.release(usize::MAX), CHUNK_BYTES);
        assert!(
            arena
                .allocate(CHUNK_BYTES, Urgency::Demand)
                .unwrap()
                .iter()
                .step_by(STEP_BYTES)
                .all(|&byte| byte == 0)
        );
    }

    /// Goal: an arena counts on its budget until the system refuses more, and then on what it has; another look tells.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn usable_memory_is_what_the_system_grants() {
        let scratch = ScratchDir::on_target().unwrap();
        set_available(scratch.path(), 1);
        let arena = Arena::elastic(64 << 20, Pressure::at(scratch.path())).unwrap();
        assert_eq!(arena.usable_bytes(), arena.budget_bytes());
        let extents = take(&arena, 9);
        assert_eq!((extents.len(), arena.usable_bytes()), (2, 2 * CHUNK_BYTES));
        assert_eq!(arena.lend_out(CHUNK_BYTES).unwrap_err(), 0, "the system has none");
        set_available(scratch.path(), 40);
        assert_eq!(arena.headroom().spare_bytes(), 24 << 20);
        assert_eq!(arena.usable_bytes(), arena.budget_bytes());
        assert_eq!(arena.lend_out(26 << 20).unwrap_err(), 24 << 20);
    }

    /// Goal: while growth is refused, readahead leaves demand its share of what is mapped.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn demand_keeps_its_share_of_what_is_mapped() {
        let scratch = ScratchDir::on_target().unwrap();
        set_available(scratch.path(), 1);
        let arena = Arena::elastic(64 << 20, Pressure::at(scratch.path())).unwrap();
        drop(take(&arena, 3));
        let held: Vec<Extent> = std::iter::from_fn(|| arena.allocate(4096, Urgency::Readahead)).collect();
        let share_bytes = 2 * CHUNK_BYTES / 8;
        assert!(2 * CHUNK_BYTES - held.len() * 4096 >= share_bytes);
        assert!(arena.allocate(4096, Urgency::Demand).is_some());
    }

    const ROUNDS: usize = if cfg!(miri) { 5 } else { 3000 };
}
