//! Kernel: the host in place of a kernel: its locks, sleeping threads and clock.
//!
//! Owns: how these meet what the cache needs.
//! Does not own: nodes, the threads that serve.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use headwater_arceos::{Kernel, MemoryHint, VfsNode, WaitQueue};

/// The host.
pub(crate) struct Host {
    start: Instant,
    dials: Arc<Dials>,
}

/// What tests see of the host, and what they make it say.
#[derive(Default)]
pub(crate) struct Dials {
    /// How often a task has waited by yielding.
    pub(crate) yields: AtomicU64,
    /// Time that has passed beside that of the clock.
    skipped_nanos: AtomicU64,
    memory: Mutex<MemoryHint>,
}

impl Dials {
    pub(crate) fn skip(&self, time: Duration) {
        self.skipped_nanos.fetch_add(time.as_nanos() as u64, Ordering::AcqRel);
    }

    pub(crate) fn set_memory(&self, hint: MemoryHint) {
        *self.memory.lock().unwrap() = hint;
    }
}

impl Host {
    pub(crate) fn new(dials: &Arc<Dials>) -> Self {
        Self { start: Instant::now(), dials: dials.clone() }
    }
}

impl Kernel for Host {
    type Node = VfsNode;
    type SpinLock = parking_lot::RawMutex;
    type SleepLock = parking_lot::RawMutex;
    type WaitQueue = Queue;

    fn now(&self) -> Duration {
        self.start.elapsed() + Duration::from_nanos(self.dials.skipped_nanos.load(Ordering::Acquire))
    }

    fn memory(&self) -> MemoryHint {
        *self.dials.memory.lock().unwrap()
    }

    fn yield_now(&self) {
        self.dials.yields.fetch_add(1, Ordering::AcqRel);
        std::thread::yield_now();
    }
}

/// Where threads sleep.
pub(crate) struct Queue {
    lock: Mutex<()>,
    changed: Condvar,
}

impl WaitQueue for Queue {
    fn new() -> Self {
        Self { lock: Mutex::new(()), changed: Condvar::new() }
    }

    fn wait_until(&self, condition: impl Fn() -> bool) {
        tell_waiting();
        let mut turn = self.lock.lock().unwrap();
        while !condition() {
            turn = self.changed.wait(turn).unwrap();
        }
    }

    fn notify_all(&self) {
        // Whoever has looked in vain sleeps by the time that this has the lock.
        drop(self.lock.lock().unwrap());
        self.changed.notify_all();
    }
}

/// Has the first wait of this thread reported.
pub(crate) fn report_waiting(to: Sender<()>) {
    WAITING.set(Some(to));
}

fn tell_waiting() {
    if let Some(to) = WAITING.take() {
        // Nobody may want to know any more.
        let _ = to.send(());
    }
}

thread_local! {
    static WAITING: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
}
