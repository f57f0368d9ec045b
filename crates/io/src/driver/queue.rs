//! Queue: the slots of requests under way, and the backend that carries these out.
//!
//! Owns: the choice of backend for each call.
//! Does not own: which queue a request takes (driver).
//! Invariants: I4 a queue lives until its last completion is gone, and then waits for the requests in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::backend::sim::Sim;
use crate::backend::threads::Threads;
use crate::backend::uring::Uring;
use crate::memory::arena::{ArenaKey, Urgency};
use crate::request::slot_table::SlotId;
use crate::request::slots::Slots;
use crate::request::work::Work;
use crate::request::{Rejected, Request};
use crate::sync::event::Until;
use crate::system::fork::ProcessMark;
use crate::system::reject::RejectReason;

pub(crate) struct Queue {
    pub(crate) slots: Arc<Slots>,
    pub(crate) backend: Backend,
    /// See [`DriverStats::stuck_waits`](super::DriverStats::stuck_waits).
    stuck_waits: AtomicU64,
    /// Worker threads for reads that tasks begin again, and for calls that a ring cannot carry out.
    relief: OnceLock<Arc<Queue>>,
    mark: ProcessMark,
}

pub(crate) enum Backend {
    Uring(Uring),
    Threads(Threads),
    Sim(Sim),
}

/// When a request is submitted to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    /// By [`Queue::unplug`], or by a thread that waits.
    Staged,
}

impl Queue {
    pub(crate) fn new(slots: Arc<Slots>, backend: Backend) -> Queue {
        let (stuck_waits, relief) = (AtomicU64::new(0), OnceLock::new());
        Queue { slots, backend, stuck_waits, relief, mark: ProcessMark::here() }
    }

    pub(crate) fn is_forked(&self) -> bool {
        !self.mark.is_here()
    }

    /// Requests between submission and completion.
    pub(crate) fn load(&self) -> usize {
        let in_flight = self.slots.in_flight();
        // Counted only when it can be other than zero.
        if in_flight < self.slots.depth() as usize { in_flight } else { in_flight + self.slots.queued() }
    }

    /// Whether another thread is submitting here at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(&self.backend, Backend::Uring(uring) if uring.is_busy())
    }

    /// Whether tasks that were woken together are expected to submit here again, and a place is free.
    pub(crate) fn expects_more(&self) -> bool {
        matches!(&self.backend, Backend::Uring(uring) if uring.expects_more())
            && self.slots.in_flight() < self.slots.depth() as usize
    }

    /// # Panics
    /// On a queue of a local driver in another thread than its own.
    pub(crate) fn check_thread(&self) {
        if let Backend::Uring(uring) = &self.backend {
            uring.check_thread();
        }
    }

    /// The caller ensures that this is neither a forked child nor, on a local driver, a foreign thread.
    #[allow(clippy::result_large_err)] // The request goes back to its owner by value; boxing it would allocate.
    pub(crate) fn submit(
        &self,
        request: Request,
        urgency: Urgency,
        start: Start,
    ) -> Result<SlotId, Rejected> {
        let begun = self.slots.begin(request, urgency).map_err(|request| {
            let reason =
                if urgency == Urgency::Readahead { RejectReason::NoPlace } else { RejectReason::TooMany };
            Rejected { request, reason }
        })?;
        match (begun.has_place, start) {
            (true, Start::Now) => self.start(&[begun.id]),
            (true, Start::Staged) => self.stage(&[begun.id]),
            // Launched by the completion that frees a place; waiting for the request makes sure that one is reaped.
            (false, _) => {}
        }
        Ok(begun.id)
    }

    pub(crate) fn start(&self, ids: &[SlotId]) {
        match &self.backend {
            Backend::Uring(uring) => uring.start(ids),
            Backend::Threads(threads) => ids.iter().for_each(|&id| threads.start(id)),
            Backend::Sim(sim) => ids.iter().for_each(|&id| sim.start(id)),
        }
    }

    /// The owner waits for a request, which may have been advised only, and may wait for a place.
    pub(crate) fn hasten(&self, id: SlotId) {
        if self.slots.hasten(id) {
            self.start(&[id]);
        }
    }

    /// As [`Queue::start`], but a ring is entered later, by [`Queue::unplug`] or by a thread that waits.
    pub(crate) fn stage(&self, ids: &[SlotId]) {
        match &self.backend {
            Backend::Uring(uring) => uring.stage(ids),
            Backend::Threads(_) | Backend::Sim(_) => self.start(ids),
        }
    }

    /// A plug begins to stage requests here; [`Queue::unplug`] follows.
    pub(crate) fn plug(&self) {
        if let Backend::Uring(uring) = &self.backend {
            uring.plug();
        }
    }

    pub(crate) fn unplug(&self) {
        if let Backend::Uring(uring) = &self.backend {
            uring.unplug();
        }
    }

    /// The same for a task that waits for one of the requests next.
    pub(crate) fn unplug_for_task(&self) {
        if let Backend::Uring(uring) = &self.backend {
            uring.unplug_for_task();
        }
    }

    /// Blocks until the request is done.
    pub(crate) fn wait(&self, id: SlotId) {
        match &self.backend {
            Backend::Uring(uring) => uring.wait(id),
            Backend::Threads(threads) => threads.wait(id, Duration::MAX),
            Backend::Sim(sim) => sim.wait(id, Duration::MAX, Until::Done),
        }
    }

    /// Blocks until the request is done, on a ring no longer than about twice `limit`. Returns whether it is done.
    pub(crate) fn wait_for(&self, id: SlotId, limit: Duration, until: Until) -> bool {
        match &self.backend {
            Backend::Uring(uring) => return uring.wait_for(id, limit, until),
            // Its workers run the wakers.
            Backend::Threads(threads) => threads.wait(id, limit),
            Backend::Sim(sim) => sim.wait(id, limit, until),
        }
        self.slots.is_done(id)
    }

    /// See [`Driver::inject`](super::Driver::inject).
    #[cfg(all(feature = "faults", not(headwater_loom)))]
    pub(crate) fn inject(&self, faults: &crate::KernelFaults) {
        if let Backend::Uring(uring) = &self.backend {
            uring.inject(faults.of_ring());
        }
    }

    /// Whether a thread stuck in the kernel holds back completions, so that the caller waits no longer. Such waits are counted.
    pub(crate) fn ends_wait(&self) -> bool {
        let is_stuck = matches!(&self.backend, Backend::Uring(uring) if uring.has_stuck_submitter());
        self.stuck_waits.fetch_add(u64::from(is_stuck), Ordering::Relaxed);
        is_stuck
    }

    /// How often tasks that wait here were woken because a thread is stuck in the kernel.
    pub(crate) fn stalls(&self) -> u64 {
        if let Backend::Uring(uring) = &self.backend { uring.stalls() } else { 0 }
    }

    /// A task waits no longer for a request here, because a thread is stuck.
    pub(crate) fn note_stuck_wait(&self) {
        self.stuck_waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Worker threads that read while a thread is stuck: the kernel may hold the ring's lock for that thread.
    #[cold]
    pub(crate) fn relief(&self) -> &Arc<Queue> {
        self.relief.get_or_init(|| {
            // A timeout or a poll takes a place for as long as it lasts, but no thread: there are as many places as in the ring.
            let slots = Arc::new(Slots::new(self.slots.depth().max(RELIEF_WORKERS_MAX)));
            let threads = Backend::Threads(Threads::with_workers(&slots, RELIEF_WORKERS_MAX));
            Arc::new(Queue::new(slots, threads))
        })
    }

    /// The same, if there are any.
    pub(crate) fn started_relief(&self) -> Option<&Arc<Queue>> {
        self.relief.get()
    }

    /// Waits that ended so.
    pub(crate) fn stuck_waits(&self) -> u64 {
        self.stuck_waits.load(Ordering::Relaxed)
    }

    /// Whether a thread can hold back the completions of another.
    pub(crate) fn may_get_stuck(&self) -> bool {
        matches!(&self.backend, Backend::Uring(uring) if !uring.is_deferred())
    }

    /// This queue, or worker threads beside it if its backend cannot carry out the call.
    #[inline]
    pub(crate) fn for_work<'a>(self: &'a Arc<Queue>, work: &Work) -> &'a Arc<Queue> {
        match &self.backend {
            Backend::Uring(uring) if !uring.carries_out(work) => self.relief(),
            _ => self,
        }
    }

    /// Ends a wait that no caller is interested in any more.
    pub(crate) fn end_wait(&self, id: SlotId) {
        self.slots.set_cancelled(id);
        match &self.backend {
            Backend::Uring(uring) => uring.cancel_abandoned(id),
            Backend::Threads(threads) => threads.look_at_waits(),
            Backend::Sim(_) => {}
        }
    }

    /// Ensures that requests in flight are completed although no caller waits for them.
    pub(crate) fn attend(&self) {
        match &self.backend {
            Backend::Uring(uring) => uring.attend(),
            Backend::Threads(_) => {}
            Backend::Sim(sim) => sim.complete_pending(),
        }
    }

    pub(crate) fn register_memory(&self, arena: ArenaKey) {
        if let Backend::Uring(uring) = &self.backend {
            uring.register_memory(arena);
        }
    }

    /// Registered bytes, and why not more.
    pub(crate) fn registered_memory(&self) -> Option<(u64, Option<&str>)> {
        match &self.backend {
            Backend::Uring(uring) => Some(uring.registered_memory()),
            Backend::Threads(_) | Backend::Sim(_) => None,
        }
    }

    /// Completes requests under way on a ring, for `limit` at most. Returns whether there were any.
    pub(crate) fn reap(&self, limit: Duration) -> bool {
        match &self.backend {
            Backend::Uring(uring) => uring.reap(limit),
            Backend::Threads(_) | Backend::Sim(_) => false,
        }
    }

    /// Reaps ready completions, without a syscall where possible.
    pub(crate) fn reap_ready(&self) {
        match &self.backend {
            Backend::Uring(uring) => uring.reap_ready(),
            Backend::Threads(_) | Backend::Sim(_) => {}
        }
    }
}

/// Requests carried out at a time, each by a thread; more wait for one.
const RELIEF_WORKERS_MAX: u32 = 8;
