//! Background thread: the work that no caller waits for.
//!
//! ```text
//!   file opened for writing, memory grows ─► woken ─► tick ─┬─ requests done? completed; pages old, or file closed? written back
//!     ▲                                                     └─ memory short? released; lease refused before? tried again
//!     └── nothing is open or dirty: sleeps ◄── until the next tick, which the state of memory sets ──┘
//! ```
//!
//! A program that only reads, with little memory, has no such thread: to start and to join the first thread of a process takes 0.1 ms.
//!
//! An opening or a first dirty page wakes the thread only from its long sleep. While files come and go it ticks at intervals:
//! waking it for each of them cost 30 us for a file that is opened, read and closed within 10, and as much for each sync.
//!
//! Heavy writers write back inline, and a sync waits for its own writes. The thread does the rest: it writes back pages that are
//! old or of closed files, completes requests that no caller waits for, returns memory to the system, and retries refused leases.
//! It holds the engine weakly, so that it does not keep it alive.
//!
//! Owns: when there is a round, that it runs, whether rounds come late.
//! Does not own: the steps of a round (`api::upcalls`), the thread (io's background).
//! Locks: none while it waits. Local engines have no such thread, because only one thread may use their ring; nor has `sim`,
//! where time passes only while a caller waits.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headwater_io::{Background, BackgroundWaker, Pause};

use crate::base::clock::coarse_nanoseconds;

/// The background thread of an engine, started on first use.
pub(crate) struct BackgroundThread {
    presence: Presence,
    thread: Background,
    /// One round. It holds the engine weakly.
    round: OnceLock<Arc<dyn Fn() -> Pause + Send + Sync>>,
    /// By the coarse clock: when the next round is due, or the one under way began; 0 if none is.
    due: AtomicU64,
    /// Until when rounds are expected to come late, because one did.
    late_until: AtomicU64,
}

/// Whether an engine has a background thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Presence {
    #[default]
    Present,
    Absent,
}

impl BackgroundThread {
    pub(crate) fn new(presence: Presence) -> BackgroundThread {
        let thread = Background::new("headwater-maint", STACK_BYTES);
        let (due, late_until) = (AtomicU64::new(0), AtomicU64::new(0));
        BackgroundThread { presence, thread, round: OnceLock::new(), due, late_until }
    }

    /// Sets the function of a round, once, when the engine is built.
    pub(crate) fn set_round(&self, round: impl Fn() -> Pause + Send + Sync + 'static) {
        let _ = self.round.set(Arc::new(round));
    }

    /// Notes that a file was opened, or became dirty: there is work from the next tick on.
    pub(crate) fn note(&self) {
        if self.thread.note() {
            self.wake();
        }
    }

    /// Makes the thread run a round. Where the system refuses a thread, only writes and syncs write dirty pages back.
    pub(crate) fn wake(&self) {
        let Some(round) = self.round.get().filter(|_| self.presence == Presence::Present) else { return };
        self.thread.call(|| {
            let round = round.clone();
            move || round()
        });
    }

    /// Whether the thread does not come in time for a round, or through it, so that the caller should do its work for memory.
    pub(crate) fn is_late(&self) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due != 0 && coarse_nanoseconds().saturating_sub(due) > nanoseconds(LATE)
    }

    /// Notes that a round begins now, by the thread or in its place, and whether it is late.
    pub(crate) fn begin_round(&self) {
        let is_late = self.is_late();
        let now = coarse_nanoseconds();
        if is_late {
            self.late_until.store(now + nanoseconds(LATE_FOR), Ordering::Relaxed);
        }
        self.due.store(now, Ordering::Relaxed);
    }

    /// Notes when the next round is due; `None` if that is when it is called.
    pub(crate) fn end_round(&self, pause: Option<Duration>) {
        let due = pause.map_or(0, |pause| coarse_nanoseconds() + nanoseconds(pause));
        self.due.store(due, Ordering::Relaxed);
    }

    /// Whether the next round may come late, as one of late did: other threads have the processors.
    pub(crate) fn may_be_late(&self) -> bool {
        coarse_nanoseconds() < self.late_until.load(Ordering::Relaxed)
    }

    /// Whether there is such a thread, or will be.
    pub(crate) fn is_present(&self) -> bool {
        self.presence == Presence::Present
    }

    /// A handle that wakes the thread once it is started. `None` where there is none.
    pub(crate) fn waker(&self) -> Option<BackgroundWaker> {
        (self.presence == Presence::Present).then(|| self.thread.waker())
    }

    /// Stops the thread, when the engine ends.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }
}

impl fmt::Debug for BackgroundThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackgroundThread({:?}, {:?})", self.presence, self.thread)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Later than by the coarseness of the clock, and than other threads keep a thread waiting on a machine with processors to spare. In
/// so long others touch 80 MB.
const LATE: Duration = Duration::from_millis(20);

/// How long a late round is remembered.
const LATE_FOR: Duration = Duration::from_secs(30);

/// A round runs system calls and wakers.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a round that comes late is remembered, and one that lasts long counts as late; a thread that waits for a call does not.
    #[test]
    fn late_rounds_are_noticed() {
        let background = BackgroundThread::new(Presence::Absent);
        // As if that time had passed since.
        let pass = || {
            let due = background.due.load(Ordering::Relaxed);
            background.due.store(due.saturating_sub(2 * nanoseconds(LATE)), Ordering::Relaxed);
        };
        background.begin_round();
        background.end_round(None);
        pass();
        assert!(!background.is_late(), "no round is due");
        background.end_round(Some(Duration::from_secs(3600)));
        assert!(!background.is_late() && !background.may_be_late());
        background.end_round(Some(Duration::ZERO));
        pass();
        assert!(background.is_late() && !background.may_be_late());
        background.begin_round();
        assert!(background.may_be_late());
        pass();
        assert!(background.is_late(), "the round lasts");
    }
}
