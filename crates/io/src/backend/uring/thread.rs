//! Thread: the driver thread, which reaps for tasks whose runtime cannot watch the ring's descriptor, and for abandoned requests.
//!
//! Owns: the thread, started when first needed, parked when nothing is in flight.
//! Does not own: reaping.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::stalls::LOOK;
use super::{Attendant, BURST_LIMIT, Reaper, Shared, WAIT, WaitsIdle};
use crate::sync::{lock, unpoisoned};
use crate::system::signals::spawn;

#[derive(Default)]
pub(super) struct DriverThread {
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl DriverThread {
    /// Ensures that the driver thread reaps until nothing is in flight.
    pub(super) fn attend(&self, shared: &Arc<Shared>) {
        if shared.attended.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut handle = lock(&self.handle);
        if let Some(handle) = &*handle {
            handle.thread().unpark();
            return;
        }
        let thread_shared = shared.clone();
        match spawn("headwater-ring", THREAD_STACK_BYTES, move || thread_shared.drive()) {
            Ok(started) => *handle = Some(started),
            // If no thread can be started, the caller reaps once itself; the next call tries again.
            Err(_) => {
                shared.attended.store(false, Ordering::SeqCst);
                drop(handle);
                shared.reap(lock(&shared.reaper), Reaper::Waiting, WAIT, WaitsIdle::No);
            }
        }
    }

    /// Waits until the thread has drained the ring. False when there is none.
    pub(super) fn stop(&mut self) -> bool {
        let Some(handle) = unpoisoned(self.handle.get_mut()).take() else {
            return false;
        };
        handle.thread().unpark();
        // A waker that drops the last handle runs on the driver thread, which then ends by itself.
        if handle.thread().id() != thread::current().id() {
            let _ = handle.join();
        }
        true
    }

    /// In a forked child there is no such thread.
    pub(super) fn forget(&mut self) {
        std::mem::forget(unpoisoned(self.handle.get_mut()).take());
    }
}

impl Shared {
    /// The driver thread: leads while requests are in flight and `attend` was called, else parks.
    fn drive(&self) {
        loop {
            if self.slots.in_flight() > 0 {
                self.lead_for_tasks();
                continue;
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            // Stays in the kernel for a moment although nothing is in flight: the task just woken will most likely
            // submit again, and that completion then needs no unpark of this thread.
            let attendant = Reaper::Attendant(Attendant::THREAD);
            if self.reap(lock(&self.reaper), attendant, LINGER, WaitsIdle::Yes) {
                continue;
            }
            self.end_burst();
            // Lower the flag, then look once more: a thread that raised it before this line has its request counted already,
            // one that raises it later unparks us.
            self.attended.store(false, Ordering::SeqCst);
            if self.slots.in_flight() == 0 {
                self.hand_over();
                thread::park();
            } else {
                self.attended.store(true, Ordering::SeqCst);
            }
        }
    }

    fn lead_for_tasks(&self) {
        let in_burst = self.in_burst();
        let limit = if in_burst { BURST_LIMIT } else { LOOK };
        let attendant = Reaper::Attendant(Attendant::THREAD);
        let seen = self.reap(lock(&self.reaper), attendant, limit, WaitsIdle::No);
        if in_burst && !seen {
            self.end_burst();
        }
        self.look_for_tasks();
    }
}

/// Random reads of 4 KiB, 32 in flight from one task queue, tend to complete together. Without parking the driver thread
/// in the gap between two such bursts there were 9.9 instead of 13.6 thousand context switches a second, 77.5 instead of
/// 75.6 thousand reads, and 6.5 instead of 6.7 µs of processor time for each. Long against such a gap (tens of µs), short
/// for a thread that drops the engine meanwhile.
const LINGER: Duration = Duration::from_millis(1);

/// The driver thread calls wakers, whose depth is theirs; 256 KiB is what small executors give their workers.
const THREAD_STACK_BYTES: usize = 256 << 10;
