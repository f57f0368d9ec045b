//! Thread: the driver thread, which reaps for tasks whose runtime cannot watch the ring's descriptor, and for abandoned requests.
//!
//! Owns: the thread, started when first needed, parked when nothing is in flight; what tasks do where the system has no thread for it.
//! Does not own: reaping.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::stalls::LOOK;
use super::submission::{BUSY_MIN, LOOK_AGAIN};
use super::{Attendant, BURST_LIMIT, Reaper, Shared, WaitsIdle};
use crate::sync::{lock, unpoisoned};
use crate::system::signals::spawn;

#[derive(Default)]
pub(super) struct DriverThread {
    /// Once it is started, to unpark it.
    thread: OnceLock<Thread>,
    /// Locked while it is started.
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl DriverThread {
    /// Ensures that the driver thread reaps until nothing is in flight. If there is no thread to be had, reaps once in the calling thread,
    /// for a moment, and returns false: the next call tries again.
    pub(super) fn attend(&self, shared: &Arc<Shared>) -> bool {
        let Some(thread) = self.thread.get().or_else(|| self.start(shared)) else {
            shared.reap_without_attendant();
            return false;
        };
        // Raised only where there is a thread that lowers it.
        if !shared.attended.swap(true, Ordering::SeqCst) {
            thread.unpark();
        }
        true
    }

    #[cold]
    fn start(&self, shared: &Arc<Shared>) -> Option<&Thread> {
        let mut handle = lock(&self.handle);
        if handle.is_none() {
            let shared = shared.clone();
            let started = spawn("headwater-ring", THREAD_STACK_BYTES, move || shared.drive()).ok()?;
            _ = self.thread.set(started.thread().clone());
            *handle = Some(started);
        }
        self.thread.get()
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
        let mut has_seen = false;
        loop {
            if self.slots.in_flight() > 0 {
                has_seen = self.lead_for_tasks(has_seen);
                continue;
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            // Stays in the kernel for a moment although nothing is in flight: the task just woken will most likely
            // submit again, and that completion then needs no unpark of this thread.
            let attendant = Reaper::Attendant(Attendant::THREAD);
            if self.reap(self.lead_after_others(), attendant, LINGER, WaitsIdle::Yes) {
                continue;
            }
            self.end_burst();
            // Lower the flag, then look once more: a thread that raised it before this line has its request counted already,
            // one that raises it later unparks us.
            // A swap: the load below could overtake a store.
            self.attended.swap(false, Ordering::SeqCst);
            if self.slots.in_flight() == 0 {
                self.hand_over();
                thread::park();
            } else {
                self.attended.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Called by a task or for an abandoned request, where nothing else reaps.
    #[cold]
    fn reap_without_attendant(&self) {
        self.end_burst();
        match self.try_lead() {
            Some(lead) => {
                self.reap(lead, Reaper::Waiting, LOOK, WaitsIdle::No);
                self.hand_over();
            }
            // The leader reaps, and may not do so much longer.
            None => thread::sleep(LOOK_AGAIN),
        }
        self.look_for_tasks();
    }

    /// `has_seen`: the pass before saw completions. Returns whether this one did.
    fn lead_for_tasks(&self, has_seen: bool) -> bool {
        let in_burst = self.in_burst();
        // Where completions are rare, or wait for what need not come, nothing is left to this thread.
        let takes_entries = has_seen && self.slots.in_flight() >= BUSY_MIN;
        let limit = if in_burst || takes_entries { BURST_LIMIT } else { LOOK };
        let attendant = Reaper::Attendant(Attendant::THREAD);
        let lead = self.lead_after_others();
        // What tasks leave from here on is submitted by this pass, by the next, or when another thread turns out to lead by then.
        self.attendant_leads.store(takes_entries, Ordering::Relaxed);
        let seen = self.reap(lead, attendant, limit, WaitsIdle::No);
        self.attendant_leads.store(false, Ordering::Relaxed);
        if !seen {
            // Also entries that the kernel did not take while it was short of a resource.
            self.end_burst();
        }
        self.look_for_tasks();
        seen
    }

    /// Blocks while another thread leads, which may wait in the kernel for long, and does not submit what a burst has left meanwhile.
    fn lead_after_others(&self) -> MutexGuard<'_, ()> {
        self.try_lead().unwrap_or_else(|| {
            self.end_burst();
            lock(&self.reaper)
        })
    }
}

/// Random reads of 4 KiB, 32 in flight from one task queue, tend to complete together. Without parking the driver thread
/// in the gap between two such bursts there were 9.9 instead of 13.6 thousand context switches a second, 77.5 instead of
/// 75.6 thousand reads, and 6.5 instead of 6.7 µs of processor time for each. Long against such a gap (tens of µs), short
/// for a thread that drops the engine meanwhile.
const LINGER: Duration = Duration::from_millis(1);

/// The driver thread calls wakers, whose depth is theirs; 256 KiB is what small executors give their workers.
const THREAD_STACK_BYTES: usize = 256 << 10;

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::faults::{Enter, Faults};
    use super::super::tests::ring_of;
    use super::*;
    use crate::memory::arena::Urgency;
    use crate::request::Request;
    use crate::request::slot_table::SlotId;
    use crate::request::slots::Slots;

    /// Goal: an entry that a task leaves to the driver thread is submitted although no request completes, and nothing is left to a thread
    /// that sees no completions. Method: the completions of as many requests as make a ring busy are kept back.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's rings
    fn a_lone_entry_waits_for_no_completion() {
        let slots = Arc::new(Slots::new(BUSY_MIN as u32 + 2));
        let Some(uring) = ring_of(&slots, 16, 32) else { return };
        let (shared, held) = (&uring.shared, Arc::new(AtomicBool::new(true)));
        let (is_held, mut kept) = (held.clone(), Vec::new());
        uring.inject(Faults::new(Enter::Waits, move |shown| {
            kept.append(shown);
            if !is_held.load(Ordering::SeqCst) {
                shown.append(&mut kept);
            }
        }));
        let begin = || slots.begin(Request::Nop, Urgency::Demand).unwrap().id;
        let mut ids: Vec<SlotId> = (0..=BUSY_MIN).map(|_| begin()).collect();
        ids.iter().for_each(|&id| uring.start(&[id]));
        assert!(!shared.has_staged(), "no thread leads");
        uring.attend_task();
        headwater_testkit::watched("the thread's passes", || {
            while !shared.attendant_leads.swap(true, Ordering::Relaxed) || !shared.leaves_to_others(1, 1) {
                thread::yield_now();
            }
        });
        ids.push(begin());
        uring.start(&ids[BUSY_MIN + 1..]);
        headwater_testkit::watched("the entry", || {
            while shared.has_staged() {
                thread::yield_now();
            }
        });
        headwater_testkit::watched("the thread's next pass", || {
            while shared.leaves_to_others(1, 1) {
                thread::yield_now();
            }
        });
        held.store(false, Ordering::SeqCst);
        for id in ids {
            uring.wait(id);
            // SAFETY: this thread began it and is its owner.
            unsafe { slots.take(id) }.unwrap().result.unwrap();
        }
    }

    /// Goal: an entry that a task leaves to others of its burst is submitted, although a thread that waits for long has the lead. Method: a
    /// thread that never gives up the lead, and a burst of two tasks, of which one submits.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's rings
    fn a_burst_ends_while_another_thread_leads() {
        let slots = Arc::new(Slots::new(4));
        let Some(uring) = ring_of(&slots, 4, 8) else { return };
        let shared = &uring.shared;
        let lead = shared.try_lead().expect("there is no other thread");
        shared.burst_attendant.store(Attendant::THREAD.0, Ordering::Relaxed);
        shared.burst.store(2, Ordering::Release);
        let id = slots.begin(Request::Nop, Urgency::Demand).unwrap().id;
        uring.start(&[id]);
        assert!(shared.has_staged(), "it is left to the burst");
        uring.attend_task();
        headwater_testkit::watched("a burst", || {
            while shared.has_staged() {
                thread::yield_now();
            }
        });
        drop(lead);
        uring.wait(id);
        // SAFETY: this thread began it and is its owner.
        unsafe { slots.take(id) }.unwrap().result.unwrap();
    }
}
