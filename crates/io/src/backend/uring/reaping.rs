//! Reaping: one pass over the completion queue, by the thread that has the lead.
//!
//! ```text
//!   lead ─► drain completions, else enter and wait ─► release places and the lead ─► start queued requests ─► wake owners
//! ```
//!
//! Owns: access to the completion queue (for the holder of `reaper`), the steps of a pass and their order.
//! Does not own: threads that wait and follow (waiting), submission.
//! Invariants: I5 a pass allocates nothing; owners are woken with no lock held.
//! Locks: `reaper`, given up before anything is submitted or woken.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use smallvec::SmallVec;

#[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
use super::faults;
use super::{Attendant, DevicePolling, Reaper, Shared, WAIT, WaitsIdle, entry};
use crate::request::attempt::Verdict;
use crate::request::slot_table::{SlotId, SlotIds, TOGETHER};
use crate::request::slots::{Completed, Waiter};
use crate::sync::lock;

impl Shared {
    pub(super) fn try_lead(&self) -> Option<MutexGuard<'_, ()>> {
        match self.reaper.try_lock() {
            Ok(lead) => Some(lead),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reaps the completions that are ready; if there are none, waits for one, for no longer than `limit`.
    pub(super) fn reap(
        &self,
        lead: MutexGuard<'_, ()>,
        reaper: Reaper,
        limit: Duration,
        waits_idle: WaitsIdle,
    ) -> bool {
        let mut harvest = Harvest::new();
        self.drain_ready(&mut harvest);
        if harvest.seen == 0 && (waits_idle == WaitsIdle::Yes || self.slots.in_flight() > 0) {
            // An error here (EINTR, EBUSY, ETIME) means that there may be nothing; the caller looks and comes again.
            let _ = self.enter(1, limit);
            self.drain_ready(&mut harvest);
        }
        self.finish_pass(lead, &mut harvest, reaper);
        harvest.seen > 0
    }

    /// Reaps the completions that are ready.
    pub(super) fn reap_ready(&self, lead: MutexGuard<'_, ()>) {
        let mut harvest = Harvest::new();
        self.collect_deferred();
        self.drain_ready(&mut harvest);
        self.finish_pass(lead, &mut harvest, Reaper::Waiting);
    }

    /// Submits staged entries, if any, and reaps the completions that are ready by then.
    pub(super) fn submit_and_reap(&self, lead: MutexGuard<'_, ()>, attendant: Attendant) -> bool {
        let mut harvest = Harvest::new();
        if self.has_staged() {
            let _ = self.enter(0, WAIT);
        }
        self.collect_deferred();
        self.drain_ready(&mut harvest);
        self.finish_pass(lead, &mut harvest, Reaper::Attendant(attendant));
        harvest.seen > 0
    }

    /// Makes the kernel post completions that it holds back: deferred ones, those for which the queue had no room, and on a ring that polls
    /// all of them.
    pub(super) fn collect_deferred(&self) {
        let is_polled = self.polling == DevicePolling::Polled && self.slots.in_flight() > 0;
        let keeps = is_polled || {
            let _guard = lock(&self.submission);
            // SAFETY: as in `push`.
            let queue = unsafe { self.ring.submission_shared() };
            queue.cq_overflow() || queue.taskrun()
        };
        if keeps && !self.is_foreign() {
            let _ = self.enter(0, WAIT);
        }
    }

    /// Takes completions from the queue. A completion that names no attempt under way (a duplicate, or an invented one) is counted
    /// and ignored: it ends no request and touches no memory. If a completion never comes, its request keeps its memory and its
    /// place in the queue for good, and threads that wait for the request or drop the driver block; all others go on.
    pub(super) fn drain_ready(&self, harvest: &mut Harvest) {
        // SAFETY: only the holder of the `reaper` lock gets here, so this is the only access to the completion queue.
        let queue = unsafe { self.ring.completion_shared() };
        let completions = queue.map(|entry| (entry.user_data(), entry.result()));
        #[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
        let completions = faults::show(self.faults.get(), completions);
        for (user_data, result) in completions.take(TOGETHER) {
            harvest.seen += 1;
            let attempt = entry::decode(user_data);
            if !self.slots.is_under_way(attempt) {
                self.unmatched.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let (id, result) = (attempt.request, entry::to_result(result));
            // SAFETY: this completion ends the attempt that `push` began: it is under way, and only here the kernel's are ended.
            if unsafe { self.slots.attempt(id, result, &mut harvest.completed) } == Verdict::Again {
                harvest.again.push(id);
            }
        }
    }

    /// Releases places and the lead, starts queued requests and next attempts, and wakes the owners.
    fn finish_pass(&self, lead: MutexGuard<'_, ()>, harvest: &mut Harvest, reaper: Reaper) {
        if harvest.seen == 0 {
            return;
        }
        self.attendant_leads.store(false, Ordering::Relaxed);
        let next = self.release_lead(lead, harvest);
        let staged = if next.is_empty() { 0 } else { self.push(&next) };
        // Once: should the kernel be short of memory, the owners are woken before it is entered again.
        let is_left = staged > 0 && !self.try_flush(staged).is_ok_and(|all| all);
        if let Reaper::Attendant(attendant) = reaper {
            let waiters = &harvest.completed.waiters;
            let tasks = waiters.iter().filter(|waiter| matches!(waiter, Waiter::Task(_))).count();
            // A lone task is not expected to wait for others.
            let before = self.burst.load(Ordering::Relaxed).clamp(0, TOGETHER as isize);
            let burst = if before + tasks as isize > 1 { before + tasks as isize } else { 0 };
            self.burst_attendant.store(attendant.0, Ordering::Relaxed);
            self.burst.store(burst, Ordering::Release);
            if before > 0 && burst == 0 {
                // What was left to the burst that ends here.
                self.flush_staged();
            }
        }
        self.slots.wake_owners(&mut harvest.completed);
        if is_left {
            self.flush(staged);
        }
    }

    /// Releases places and the lead. Returns the queued requests that got a place and those that need another attempt, for the
    /// caller to start.
    pub(super) fn release_lead(&self, lead: MutexGuard<'_, ()>, harvest: &mut Harvest) -> SlotIds {
        // With the lead: the next leader must not wait for completions that this pass has seen.
        let mut next = self.slots.release_places(&mut harvest.completed);
        drop(lead);
        next.extend(harvest.again.drain(..));
        next
    }

    pub(super) fn drain(&self) {
        while self.slots.in_flight() > 0 {
            let lead = lock(&self.reaper);
            self.reap(lead, Reaper::Waiting, WAIT, WaitsIdle::No);
        }
    }
}

/// What one pass over the completion queue found. Sized so that it never allocates: a pass sees [`TOGETHER`] entries.
pub(super) struct Harvest {
    seen: usize,
    pub(super) completed: Completed,
    again: SmallVec<[SlotId; TOGETHER]>,
}

impl Harvest {
    pub(super) fn new() -> Harvest {
        Harvest { seen: 0, completed: Completed::new(), again: SlotIds::new() }
    }
}
