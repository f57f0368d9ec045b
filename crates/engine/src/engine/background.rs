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

use std::fmt;
use std::sync::{Arc, OnceLock};

use headwater_io::{Background, BackgroundWaker, Pause};

/// The thread of an engine, once there is something to do.
pub(crate) struct BackgroundThread {
    presence: Presence,
    thread: Background,
    /// What a round does. It holds the engine weakly.
    round: OnceLock<Arc<dyn Fn() -> Pause + Send + Sync>>,
}

/// Whether an engine has a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Presence {
    #[default]
    Present,
    Absent,
}

impl BackgroundThread {
    pub(crate) fn new(presence: Presence) -> BackgroundThread {
        let thread = Background::new("headwater-keeper", STACK_BYTES);
        BackgroundThread { presence, thread, round: OnceLock::new() }
    }

    /// Sets what a round does, once, when the engine is built.
    pub(crate) fn keep(&self, round: impl Fn() -> Pause + Send + Sync + 'static) {
        let _ = self.round.set(Arc::new(round));
    }

    /// A file was opened, or became dirty: there is something to watch, from the next tick on.
    pub(crate) fn note(&self) {
        if self.thread.note() {
            self.wake();
        }
    }

    /// Has the thread do a round. Where the system refuses a thread, writes and syncs alone write dirty pages back.
    pub(crate) fn wake(&self) {
        let Some(round) = self.round.get().filter(|_| self.presence == Presence::Present) else { return };
        self.thread.call(|| {
            let round = round.clone();
            move || round()
        });
    }

    /// To wake it by, once it is started. `None` where there is none.
    pub(crate) fn waker(&self) -> Option<BackgroundWaker> {
        (self.presence == Presence::Present).then(|| self.thread.waker())
    }

    /// The engine goes.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }
}

impl fmt::Debug for BackgroundThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keeper({:?}, {:?})", self.presence, self.thread)
    }
}

/// It runs system calls and wakers.
const STACK_BYTES: usize = 256 << 10;
