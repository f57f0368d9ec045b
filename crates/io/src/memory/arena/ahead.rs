//! Ahead: while the arena grows, a background thread puts memory behind the next chunks before they are needed.
//!
//! ```text
//!   allocate ─► little is free, and it may grow? ─► wake ─► prepare: grow until an eighth more is there
//! ```
//!
//! New memory is dear: the kernel zeroes it, and on a virtual machine the host may have to find it first, some 2 ms for a huge page. A
//! reader that grows the arena waits for that; on another processor it costs the reader nothing. It pays off for requests that fault in
//! no memory, such as those of a ring, and for a single reader most of all.
//!
//! Owns: how much is prepared, and when the thread is woken.
//! Does not own: the thread (the engine's), whether the arena may grow (elastic).
//! Locks: `arena.state`, not while memory is touched.
//! Hot path: two comparisons an allocation, under the lock that it has anyway.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_core::buddy::CHUNK_BYTES;

use super::{Arena, CHUNK_PAGES, State, demand_reserve_bytes};
use crate::sync::background::BackgroundWaker;
use crate::sync::event::WakeScope;

/// What wakes the thread that prepares memory.
#[derive(Default)]
pub(super) struct Ahead {
    waker: OnceLock<BackgroundWaker>,
    /// It was woken, and has not begun.
    is_called: AtomicBool,
}

impl Ahead {
    pub(super) fn call(&self) {
        let Some(waker) = self.waker.get() else { return };
        if !self.is_called.swap(true, Ordering::Relaxed) {
            waker.wake();
        }
    }
}

impl Arena {
    /// From now on the thread behind this waker is woken when memory should be prepared; it calls [`Arena::prepare`]. Once.
    pub fn prepare_by(&self, waker: BackgroundWaker) {
        let _ = self.shared.ahead.waker.set(waker);
    }

    /// Maps chunks ahead of need, while the arena grows and the system has memory to spare. Blocks for up to milliseconds a chunk.
    pub fn prepare(&self) {
        if !self.is_here() {
            return;
        }
        self.shared.ahead.is_called.store(false, Ordering::Relaxed);
        // Growing wakes tasks, whose wakers may ask for memory at once: they run once the lock is released.
        let _scope = WakeScope::enter();
        let mut state = self.shared.lock();
        while state.buddy.free_pages() < ahead_pages(state.chunks_mapped) && self.may_prepare(&state) {
            let Some(grown) = self.grow(state) else { return };
            drop(grown);
            state = self.shared.lock();
        }
    }

    /// Whether the thread should be woken, after an allocation.
    pub(super) fn lacks_ahead(&self, state: &State) -> bool {
        state.buddy.free_pages() < ahead_pages(state.chunks_mapped) / 2
            && self.shared.ahead.waker.get().is_some()
            && self.may_prepare(state)
    }

    /// What demand has for itself is not prepared: a full cache leaves that free.
    fn may_prepare(&self, state: &State) -> bool {
        let budget_bytes = self.budget_bytes();
        let most_bytes = budget_bytes - demand_reserve_bytes(budget_bytes);
        (state.chunks_mapped + state.chunks_growing + 1) * CHUNK_BYTES <= most_bytes
            && !self.shared.growth.is_limited()
            && self.may_grow(state)
    }
}

/// Pages that should be free in an arena that grows and has this many chunks.
fn ahead_pages(chunks_mapped: usize) -> u64 {
    let chunks = (chunks_mapped / AHEAD_DIVISOR).min(AHEAD_CHUNKS_MAX);
    (chunks * CHUNK_PAGES) as u64
}

/// An arena of less than 16 MiB is not known to grow; then an eighth of what it has.
const AHEAD_DIVISOR: usize = 8;

/// 32 MiB: 10 ms of a device of 3 GB/s, some times as long as a thread takes to wake.
const AHEAD_CHUNKS_MAX: usize = 16;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use headwater_core::units::PAGE_BYTES;

    use super::*;
    use crate::memory::arena::{Extent, Urgency};
    use crate::sync::background::{Background, Pause};

    /// Goal: while an arena grows, the next chunks are there before they are needed; a small one, one that does not grow, and what demand
    /// has for itself are left alone. Method: chunks are taken one by one, and prepared by hand.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn the_next_chunks_are_there() {
        let arena = Arena::new(129 << 20).unwrap();
        let mapped = || arena.stats().mapped_bytes / CHUNK_BYTES;
        let mut held: Vec<Extent> = Vec::new();
        let mut take = || held.push(arena.allocate(CHUNK_BYTES, Urgency::Demand).unwrap());
        (0..7).for_each(|_| take());
        arena.prepare();
        assert_eq!(mapped(), 7, "too small to be known to grow");
        (0..25).for_each(|_| take());
        arena.prepare();
        assert_eq!(mapped(), 36, "an eighth, of what there is then");
        arena.prepare();
        assert_eq!(mapped(), 36);
        (0..20).for_each(|_| take());
        arena.prepare();
        assert_eq!(mapped(), 56, "the rest is for demand");
    }

    /// Goal: an allocation wakes the thread that prepares, and at least half of what should be free is there once allocations pause.
    /// Method: a thread that prepares, waited for. Rounds that begin at other moments leave more; the next allocation that finds less
    /// than half wakes it again.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn the_thread_is_woken() {
        let (arena, thread) = (Arena::new(512 << 20).unwrap(), Background::new("test-ahead", 64 << 10));
        arena.prepare_by(thread.waker());
        let prepared = arena.clone();
        thread.call(|| {
            move || {
                prepared.prepare();
                Pause::UntilCalled(Duration::from_secs(60))
            }
        });
        let held: Vec<Extent> =
            (0..64).map(|_| arena.allocate(CHUNK_BYTES, Urgency::Demand).unwrap()).collect();
        let (began, least_bytes) =
            (Instant::now(), held.len() * CHUNK_BYTES + (ahead_pages(64) / 2) as usize * PAGE_BYTES);
        while arena.stats().mapped_bytes < least_bytes {
            assert!(began.elapsed() < Duration::from_secs(60), "mapped: {}", arena.stats().mapped_bytes);
            thread::sleep(Duration::from_millis(1));
        }
        thread.stop();
        drop(held);
    }
}
