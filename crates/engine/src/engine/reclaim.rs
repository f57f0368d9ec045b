//! Reclaim: memory use follows what the system has to spare.
//!
//! ```text
//!   headroom:   0 ·················· ¾ of the reserve ············ the reserve ············ beyond
//!                 relieve: chunks go back              growth is refused         grows on demand
//!                 until the reserve is whole           (allocations evict instead)
//! ```
//!
//! Between the two marks nothing changes, so that released memory is not mapped again at once. Memory is released in chunks of 2
//! MiB: first those that are wholly free, then those that cost the cache least.
//!
//! Of the reserve, half may be memory of the cache itself: its coldest chunks are *on offer*, which the kernel counts as free and takes
//! by itself when anybody needs it, at once. So a full cache leaves an eighth of a cgroup unused instead of a quarter, and a program that
//! takes more than that at once gets it from what is on offer. A page that is used keeps its chunk from the kernel until it is offered
//! again: where the engine's thread gets its processor late, more is on offer, in pages, and threads that allocate do its work.
//!
//! The reserve is all that other processes can allocate between two checks: when it is used up the kernel kills a process,
//! whatever the cache could have released. In a cgroup of 256 MiB with a full cache, ten times 100 MiB touched at once on a busy
//! machine ended in a kill with a reserve of a thirty-second or an eighth, and in none of eight runs with a quarter, where checks
//! came at the intervals of [`Relief::look_again`]; with a check every 100 ms it did in each of four runs, whatever the reserve.
//!
//! Owns: when memory is released or offered, and how much.
//! Does not own: the headroom (`headwater-io`); the callers: the background thread's ticks, and allocations that were refused.
//! Locks: `relieving` meanwhile, for which no thread waits, then `on_demand`; listeners are called afterwards.

use std::sync::TryLockError;
use std::time::Duration;

use headwater_core::buddy::CHUNK_BYTES;
use headwater_core::cache::Evicted;
use headwater_core::units::PAGE_BYTES;
use headwater_io::{Headroom, MemoryLimit, OfferForm, Stall, WakeScope, lock};

use crate::base::events;
use crate::engine::Shared;

/// Whether an engine's memory follows what the system has to spare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Elasticity {
    /// The memory grows while the cgroup and the system have a reserve free, and shrinks when they do not.
    #[default]
    On,
    /// The memory grows up to its budget, whatever the state of the system, and stays there. Without
    /// [`EngineBuilder::memory`](crate::EngineBuilder::memory) that is 64 MiB.
    Off,
}

/// An engine's memory beside that of the system: what it has, could have, gave back, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemoryStats {
    /// What it has: pages of files, and room for more of them.
    pub mapped_bytes: u64,
    /// What it could have now: that, and what the system and the cgroups of the process have beyond their reserve; at most the
    /// ceiling.
    pub possible_bytes: u64,
    /// The most that it may ever have: [`Info::memory_bytes`](crate::Info::memory_bytes).
    pub ceiling_bytes: u64,
    /// What bounds `possible_bytes`.
    pub bound: MemoryBound,
    /// What it gave back to the system since it was built; what was mapped again meanwhile counts again.
    pub released_bytes: u64,
    /// Why it last gave some back.
    pub released_for: Option<MemoryBound>,
    /// What the system may take by itself: cold pages, still part of `mapped_bytes`. A page that was taken is read again when it is needed.
    pub offered_bytes: u64,
    /// What the system has taken that way since the engine was built, as far as it was noticed.
    pub taken_bytes: u64,
}

/// What keeps an engine from having more memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MemoryBound {
    /// The ceiling of the engine.
    Ceiling,
    /// The system has no more beyond its reserve.
    System,
    /// A cgroup of the process, or an ancestor of it, has no more beyond its reserve.
    Cgroup,
    /// Threads wait for memory.
    Stalls,
}

impl MemoryBound {
    /// A word for it: `ceiling`, `system`, `cgroup`, `stalls`.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryBound::Ceiling => "ceiling",
            MemoryBound::System => "system",
            MemoryBound::Cgroup => "cgroup",
            MemoryBound::Stalls => "stalls",
        }
    }
}

impl From<MemoryLimit> for MemoryBound {
    fn from(limit: MemoryLimit) -> MemoryBound {
        match limit {
            MemoryLimit::System => MemoryBound::System,
            MemoryLimit::Cgroup => MemoryBound::Cgroup,
        }
    }
}

/// The result of [`crate::Engine::relieve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Relief {
    /// Memory returned to the system.
    pub released_bytes: u64,
    /// Memory that should be returned, and could not be: its pages are dirty, pinned, or being loaded.
    pub missing_bytes: u64,
    /// When to check again: before other processes can have used up what is left.
    pub look_again: Duration,
}

/// Implements [`crate::Engine::relieve`].
pub(crate) fn relieve(shared: &Shared) -> Relief {
    let nothing = Relief { released_bytes: 0, missing_bytes: 0, look_again: LOOK_AGAIN_MAX };
    if shared.driver.is_forked() {
        return nothing;
    }
    // Before the lock: wakers that ask for memory, or for statistics, run after it.
    let _scope = WakeScope::enter();
    let mut guard = match shared.relieving.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Relief { look_again: LOOK_AGAIN_MIN, ..nothing },
    };
    let mapped_bytes = shared.arena.stats().mapped_bytes;
    let spare_bytes = mapped_bytes.saturating_sub(KEPT_BYTES);
    let (has_windows, windows_bytes) = windows_on_demand(shared);
    if spare_bytes == 0 && !has_windows {
        return nothing;
    }
    let mut evicted = Vec::new();
    let (pages, before) = (&shared.cache.pages, shared.arena.headroom());
    let share = OfferedShare::of(shared);
    pages.tend_offers(share.wanted_bytes(before, mapped_bytes), share.form(), &mut evicted);
    let headroom = shared.arena.headroom();
    let stall = if mapped_bytes > WATCHED_BYTES { shared.arena.is_stalling() } else { Stall::No };
    if stall == Stall::Yes {
        // What is given back is not to be prepared again at once.
        shared.arena.refuse_growth();
    }
    let wanted_bytes = wanted_bytes(headroom, stall, mapped_bytes).min(spare_bytes + windows_bytes);
    let given_bytes = give_back(shared, wanted_bytes.min(spare_bytes), &mut evicted);
    pages.offer(share.wanted_bytes(headroom, mapped_bytes.saturating_sub(given_bytes)), share.form());
    let released_bytes =
        given_bytes + shrink_windows(shared, wanted_bytes.saturating_sub(given_bytes), headroom);
    if released_bytes > 0 {
        *guard = Some(if is_touched(headroom) { headroom.limit.into() } else { MemoryBound::Stalls });
    }
    drop(guard);
    shared.lending.set_budget(shared.arena.usable_bytes());
    if wanted_bytes > 0 {
        events::relieved(headroom.free_bytes, wanted_bytes, released_bytes, evicted.len());
    }
    shared.cache.inodes.on_evicted(&evicted);
    let unused_bytes = headroom.unused_bytes().saturating_add(released_bytes as u64);
    Relief {
        released_bytes: released_bytes as u64,
        missing_bytes: wanted_bytes.saturating_sub(released_bytes) as u64,
        look_again: look_again(unused_bytes),
    }
}

/// The memory as it is now. Looks at the headroom.
pub(crate) fn memory_stats(shared: &Shared) -> MemoryStats {
    let arena = shared.arena.stats();
    let (mapped_bytes, ceiling_bytes) = (arena.mapped_bytes as u64, shared.memory_bytes);
    let nothing = MemoryStats {
        mapped_bytes,
        possible_bytes: 0,
        ceiling_bytes,
        bound: MemoryBound::Ceiling,
        released_bytes: arena.released_bytes,
        released_for: None,
        offered_bytes: (shared.cache.pages.stats().offered_pages * PAGE_BYTES) as u64,
        taken_bytes: arena.taken_bytes,
    };
    if shared.driver.is_forked() {
        return nothing;
    }
    let headroom = shared.arena.headroom();
    // The first mebibytes are the engine's whatever the headroom.
    let possible_bytes = mapped_bytes.saturating_add(headroom.spare_bytes()).max(KEPT_BYTES as u64);
    let bound = if possible_bytes < ceiling_bytes { headroom.limit.into() } else { MemoryBound::Ceiling };
    let released_for = *lock(&shared.relieving);
    MemoryStats { possible_bytes: possible_bytes.min(ceiling_bytes), bound, released_for, ..nothing }
}

/// Releases up to `wanted_bytes`; evicts pages for that.
fn give_back(shared: &Shared, wanted_bytes: usize, evicted: &mut Vec<Evicted>) -> usize {
    let (pages, loads) = (&shared.cache.pages, &shared.cache.loads);
    let shrink = |bytes: usize| {
        pages.shrink(bytes, evicted) > 0 || loads.publish_arrived() > 0 && pages.shrink(bytes, evicted) > 0
    };
    let is_kept = || shared.arena.has_free_chunks();
    release_in_parts(wanted_bytes, |bytes| shared.arena.release(bytes), is_kept, shrink)
}

/// Releases memory, at first what is free; then `shrink` frees some more and says whether it did. In small parts, because other threads
/// reuse freed frames at once; and while anything is released: a ring may keep the memory, and then evicting the next part is of no use.
fn release_in_parts(
    wanted_bytes: usize,
    release: impl Fn(usize) -> usize,
    is_kept: impl Fn() -> bool,
    mut shrink: impl FnMut(usize) -> bool,
) -> usize {
    let mut done_bytes = release(wanted_bytes);
    while done_bytes < wanted_bytes && !is_kept() {
        let part_bytes = (wanted_bytes - done_bytes).min(PART_BYTES);
        let released_bytes = if shrink(part_bytes) { release(part_bytes) } else { 0 };
        if released_bytes == 0 {
            break;
        }
        done_bytes += released_bytes;
    }
    done_bytes
}

/// Whether there are windows on demand, and what they can give back.
fn windows_on_demand(shared: &Shared) -> (bool, usize) {
    let windows = lock(&shared.on_demand);
    (!windows.is_empty(), windows.iter().map(|window| window.spare_bytes()).sum())
}

/// Has pages of windows on demand leave, or lets windows grow again. Returns how much memory was given back.
fn shrink_windows(shared: &Shared, wanted_bytes: usize, headroom: Headroom) -> usize {
    let mut released_bytes = 0;
    for window in &*lock(&shared.on_demand) {
        if released_bytes < wanted_bytes {
            released_bytes += window.shrink(wanted_bytes - released_bytes);
        } else if is_plenty(headroom) {
            window.let_grow();
        }
    }
    released_bytes
}

/// Whether memory is not expected to be short soon.
fn is_plenty(headroom: Headroom) -> bool {
    headroom.unused_bytes() >= headroom.reserve_bytes.saturating_add(headroom.reserve_bytes / PLENTY_DIVISOR)
}

/// Whether a quarter of the reserve is used up, or of what should be unused of it, so that memory is released.
fn is_touched(headroom: Headroom) -> bool {
    missing_bytes(headroom.free_bytes, headroom.reserve_bytes) > 0
        || missing_bytes(headroom.unused_bytes(), headroom.unused_bytes_min()) > 0
}

/// What is missing of that much, if a quarter is.
fn missing_bytes(there_bytes: u64, should_bytes: u64) -> u64 {
    if there_bytes < should_bytes / 4 * 3 { should_bytes - there_bytes } else { 0 }
}

/// How much to release.
fn wanted_bytes(headroom: Headroom, stall: Stall, mapped_bytes: usize) -> usize {
    let missing_bytes = missing_bytes(headroom.free_bytes, headroom.reserve_bytes)
        .max(missing_bytes(headroom.unused_bytes(), headroom.unused_bytes_min()));
    let stalled_bytes = match stall {
        Stall::Yes => mapped_bytes / STALL_DIVISOR,
        Stall::No => 0,
    };
    (missing_bytes as usize).max(stalled_bytes).next_multiple_of(CHUNK_BYTES)
}

/// How much of the cache may be on offer: what others take before this engine can give anything back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OfferedShare {
    /// A quarter: what is used of it costs a touch.
    Quarter,
    /// Half: the thread that gives memory back gets its processor late, and there is no other.
    Half,
}

impl OfferedShare {
    fn of(shared: &Shared) -> OfferedShare {
        if shared.background.may_be_late() { OfferedShare::Half } else { OfferedShare::Quarter }
    }

    /// Where a chunk that was used is not soon offered again, the kernel has to take it in parts.
    fn form(self) -> OfferForm {
        match self {
            OfferedShare::Quarter => OfferForm::AsAWhole,
            OfferedShare::Half => OfferForm::InPages,
        }
    }

    /// How much should be on offer: nothing where memory is plentiful.
    fn wanted_bytes(self, headroom: Headroom, mapped_bytes: usize) -> usize {
        if is_plenty(headroom) {
            return 0;
        }
        let reserve_bytes = headroom.reserve_bytes as usize;
        match self {
            OfferedShare::Quarter => reserve_bytes.min(mapped_bytes / 4),
            OfferedShare::Half => (2 * reserve_bytes).min(mapped_bytes / 2),
        }
    }
}

/// Half of the time in which other processes can use up the free memory.
fn look_again(free_bytes: u64) -> Duration {
    let microseconds = free_bytes / 2 / TAKEN_BYTES_PER_MICROSECOND;
    Duration::from_micros(microseconds).clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX)
}

/// Never released: the arena may map this much whatever the headroom.
pub(crate) const KEPT_BYTES: usize = 2 * CHUNK_BYTES;

/// An engine with less is not asked whether threads stall: its sixteenth would relieve no one, and the kernel takes some 10 ms to close the
/// files that tell.
const WATCHED_BYTES: usize = 64 << 20;

/// Chunks are put on offer before growth is refused for lack of them: from a quarter above the reserve on.
const PLENTY_DIVISOR: u64 = 4;

/// Evicted between two releases; small, so that other threads can reuse little of it meanwhile.
const PART_BYTES: usize = 8 * CHUNK_BYTES;

/// The fraction of mapped memory released at each check while threads stall: a stall says that memory is short, not by how much.
const STALL_DIVISOR: usize = 16;

/// Memory that a thread can touch in a microsecond, measured at 2 to 4 GB/s.
const TAKEN_BYTES_PER_MICROSECOND: u64 = 4000;

/// A check costs some 25 µs: at most a fortieth of a processor.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(1);

/// The interval with ample headroom.
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use headwater_io::{DriverKind, SimOptions, Urgency};

    use super::*;
    use crate::Engine;

    const MIB: u64 = 1 << 20;

    fn wanted_mib(free_mib: u64, stall: Stall) -> u64 {
        let headroom = Headroom { free_bytes: free_mib * MIB, reserve_bytes: 16 * MIB, ..Headroom::UNKNOWN };
        wanted_bytes(headroom, stall, 320 << 20) as u64 / MIB
    }

    /// Goal: nothing is released above three quarters of the reserve; below, as much as makes the reserve whole.
    #[test]
    fn the_reserve_is_made_whole() {
        assert_eq!([100, 16, 12, 11, 0].map(|free| wanted_mib(free, Stall::No)), [0, 0, 0, 6, 16]);
    }

    /// Goal: while threads stall a fraction of mapped memory is released, or more where more is missing.
    #[test]
    fn stalls_cost_a_share() {
        assert_eq!([100, 7, 0].map(|free| wanted_mib(free, Stall::Yes)), [20, 20, 20]);
    }

    /// Goal: memory that a ring keeps costs the cache one part, not all of its pages. Method: 64 chunks that can be evicted, of which all
    /// or none can be released.
    #[test]
    fn kept_memory_is_not_evicted_for() {
        let run = |is_kept: bool| {
            let (left, free) = (Cell::new(64 * CHUNK_BYTES), Cell::new(0));
            let shrink = |bytes: usize| {
                let bytes = bytes.min(left.get());
                left.set(left.get() - bytes);
                free.set(free.get() + bytes);
                bytes > 0
            };
            let release = |bytes: usize| {
                if is_kept { 0 } else { free.replace(free.get().saturating_sub(bytes)).min(bytes) }
            };
            let is_left = || is_kept && free.get() > 0;
            // Once a round.
            let released = [0; 20].map(|_| release_in_parts(2 * CHUNK_BYTES, release, is_left, shrink));
            (released.iter().sum::<usize>() / CHUNK_BYTES, left.get() / CHUNK_BYTES)
        };
        assert_eq!(run(false), (40, 24));
        assert_eq!(run(true), (0, 62));
    }

    /// Goal: what is given back while threads stall stays with the system. Method: rounds of an engine that has room to grow, on a system that
    /// stalls.
    #[test]
    fn what_is_given_back_in_a_stall_stays_there() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("meminfo", "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\n"),
            ("pressure/memory", "some avg10=20.00 avg60=0.00 avg300=0.00 total=0\n"),
        ] {
            let path = root.path().join("proc").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let builder = Engine::builder().memory(512 << 20).pressure_below(root.path());
        let engine = builder.driver(DriverKind::Sim(SimOptions::hostile(1))).build().unwrap();
        let take = || engine.shared.arena.allocate(CHUNK_BYTES, Urgency::Demand).unwrap();
        let mut used: Vec<_> = (0..50).map(|_| take()).collect();
        used.truncate(45);
        (0..20).for_each(|_| engine.maintain());
        assert_eq!(engine.shared.arena.stats().mapped_bytes, 45 * CHUNK_BYTES);
    }

    /// Goal: nothing is released where the headroom is unknown.
    #[test]
    fn nothing_is_known() {
        assert_eq!(wanted_bytes(Headroom::UNKNOWN, Stall::No, 1 << 30), 0);
        assert_eq!(look_again(u64::MAX), LOOK_AGAIN_MAX);
        assert_eq!(look_again(0), LOOK_AGAIN_MIN);
    }
}
