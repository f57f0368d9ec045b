//! Keeper: a thread that sees to what nobody waits for.
//!
//! ```text
//!   a file is opened, or becomes dirty ─► woken ─► tick ─┬─ arrived? concluded; old, or closed? written back
//!     ▲                                                    └─ memory short? given back; not leased? tried again
//!     └── nothing is open or dirty: rests ◄── until the next, which the memory decides ──┘
//! ```
//!
//! An opening or a first dirty page wakes it only from its rest. While files come and go, it looks once in a while and does not
//! rest: to be woken by each of them cost 30 us for a file that is opened, read and closed within 10, and as much for each sync.
//!
//! Who writes much has his pages written as he goes, and who syncs waits; the keeper is for the rest: what was written a while
//! ago, of files that are closed, results that nobody asked for, memory that others need, and leases that were refused. It knows the engine weakly, so that it does not keep it.
//!
//! Owns: when there is a round, and what it does.
//! Does not own: the thread (io's background), what is to be written back, how much memory goes.
//! Locks: none while it waits. There is no thread on local engines, where only one thread may use the ring, nor on `sim`, where time
//! passes only while a caller waits.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use headwater_io::{Background, Bell, Pause, close_parked};

use crate::engine::Shared;

/// The thread of an engine, once there is something to do.
#[derive(Debug)]
pub(crate) struct Keeper {
    presence: Presence,
    thread: Background,
    /// The engine that it keeps.
    engine: OnceLock<Weak<Shared>>,
}

/// Whether an engine has a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Presence {
    #[default]
    Present,
    Absent,
}

impl Keeper {
    pub(crate) fn new(presence: Presence) -> Keeper {
        let thread = Background::new("headwater-keeper", STACK_BYTES);
        Keeper { presence, thread, engine: OnceLock::new() }
    }

    /// Tells it which engine it is the keeper of.
    pub(crate) fn keep(&self, shared: &Arc<Shared>) {
        // Told once, when the engine is built.
        let _ = self.engine.set(Arc::downgrade(shared));
    }

    /// A file was opened, or became dirty: there is something to watch, from the next tick on.
    pub(crate) fn note(&self) {
        if self.thread.note() {
            self.wake();
        }
    }

    /// Has the thread do a round. Where the system refuses a thread, writes and syncs alone write dirty pages back.
    pub(crate) fn wake(&self) {
        let Some(shared) = self.engine.get().filter(|_| self.presence == Presence::Present) else { return };
        self.thread.call(|| {
            let shared = shared.clone();
            move || shared.upgrade().map_or(Pause::ForEver, |shared| shared.tend())
        });
    }

    /// To wake it by, once it is started. `None` where there is none.
    pub(crate) fn bell(&self) -> Option<Bell> {
        (self.presence == Presence::Present).then(|| self.thread.bell())
    }

    /// The engine goes.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }
}

impl Shared {
    /// One round of the keeper. Says when the next is due.
    pub(crate) fn tend(&self) -> Pause {
        self.cache.writes.conclude_arrived();
        self.write_back_old();
        self.watch.drain();
        let leases = self.leases.tend();
        let is_small = self.arena.stats().mapped_bytes <= WATCHED_BYTES_MIN;
        let memory = if is_small { GROWTH_TICK } else { self.relieve().look_again };
        let dirty = (!self.cache.writes.dirty_files().is_empty()).then_some(DIRTY_TICK);
        let memory = (!is_small || self.cache.inodes.are_open()).then_some(memory);
        let parked = (close_parked() > 0).then_some(PARKED_TICK);
        let tick = [dirty, memory, leases, parked].into_iter().flatten().min();
        tick.map_or(Pause::UntilCalled(GROWTH_TICK), Pause::AtMost)
    }
}

/// While pages are dirty: short beside the age at which they are written, long beside what looking costs.
const DIRTY_TICK: Duration = Duration::from_millis(100);

/// An engine with so little is not asked for memory: what it could give would help nobody.
const WATCHED_BYTES_MIN: usize = 64 << 20;

/// How often a small engine is looked at, whether it has grown.
const GROWTH_TICK: Duration = Duration::from_secs(1);

/// How soon descriptors that wait for locks of the program are looked at again: such locks are held for moments or for hours.
const PARKED_TICK: Duration = Duration::from_secs(1);

/// It runs system calls and wakers.
const STACK_BYTES: usize = 256 << 10;
