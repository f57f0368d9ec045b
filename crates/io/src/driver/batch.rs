//! Batch: requests or calls that are submitted and waited for together.
//!
//! ```text
//!   Driver::batch ────► Batch: push, push, push, finish ─┬─► one lock and one system call for up to 32 ─► results in order
//!   Driver::call_all ────────────────────────────────────┘
//! ```
//!
//! Owns: the requests of a batch until they are submitted, the right to their results afterwards.
//! Does not own: requests under way (slots), what a call is (calling).
//! Invariants: I4 a panic in the middle frees nothing that the device still uses.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::driver::Driver;
use crate::driver::queue::{Queue, Start};
use crate::memory::arena::Urgency;
use crate::request::slot_table::{SlotId, SlotIds, TOGETHER};
use crate::request::{Finished, Rejected, Request};
use crate::system::reject::RejectReason;

/// Requests that are submitted and waited for together, with one system call and one lock for up to 32 of them. Can be
/// used again and again.
///
/// ```
/// use headwater_io::{Driver, DriverOptions, Request};
/// let driver = Driver::new(&DriverOptions::default())?;
/// let mut batch = driver.batch();
/// for _ in 0..32 {
///     batch.push(Request::Nop)?;
/// }
/// let mut done = 0;
/// batch.finish(|_, finished| done += usize::from(finished.result.is_ok()));
/// assert_eq!(done, 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batch {
    driver: Driver,
    /// The first `count` were pushed, the rest are `Nop` and own nothing.
    requests: Vec<Request>,
    count: usize,
}

impl Driver {
    /// Requests to be submitted and waited for together.
    pub fn batch(&self) -> Batch {
        Batch { driver: self.clone(), requests: Vec::new(), count: 0 }
    }
}

impl Batch {
    /// Adds a request. Nothing is submitted yet.
    ///
    /// # Errors
    /// The request itself in a forked child.
    ///
    /// # Panics
    /// As [`Driver::submit`] for the request, in any thread.
    #[inline]
    pub fn push(&mut self, request: impl Into<Request>) -> Result<(), Rejected> {
        let request = request.into();
        if self.driver.is_forked() {
            return Err(Rejected { request, reason: RejectReason::Forked });
        }
        if self.count == self.requests.len() {
            self.requests.push(Request::Nop);
        }
        match request {
            // Owns nothing, and is there already.
            Request::Nop => std::mem::forget(request),
            request => {
                request.check();
                self.requests[self.count] = request;
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Requests pushed and not finished.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Submits all, waits for all, and calls `each` with the index of each request and its result. Blocks. The batch is empty
    /// afterwards, also when `each` panics. In a forked child each result is the error `Unsupported`.
    ///
    /// # Panics
    /// On a local driver when called by another thread than the one that built it.
    #[inline]
    pub fn finish(&mut self, mut each: impl FnMut(usize, Finished)) {
        // Before anything is taken out: the thread that may use it finds it whole.
        self.driver.check_thread();
        let count = std::mem::take(&mut self.count);
        if self.driver.is_forked() {
            return self.requests.drain(..).take(count).enumerate().for_each(|(place, request)| {
                each(place, Finished::rejected(request, RejectReason::Forked));
            });
        }
        let queue = {
            let Some(first) = self.requests[..count].first() else { return };
            // One queue takes all: an ordinary one unless all are for the same others.
            let mut queues = self.driver.queues_for(first);
            let is_for_others = |request: &Request| !std::ptr::eq(self.driver.queues_for(request), queues);
            if self.requests[..count].iter().any(is_for_others) {
                queues = self.driver.ordinary_queues();
            }
            self.driver.pick(queues)
        };
        let mut under_way = UnderWay::<Requests>::new(queue);
        // Should `each` panic, the requests not yet submitted are dropped.
        let mut requests = std::mem::take(&mut self.requests);
        under_way.submit(&mut requests[..count], &mut each);
        self.requests = requests;
        under_way.wait(each);
    }
}

/// What a batch is of.
pub(super) trait Kind {
    /// What becomes of each.
    type Ended;

    /// Takes results, all of them there.
    ///
    /// # Safety
    /// As for [`Slots::take_together`](crate::request::slots::Slots::take_together); the requests are of this kind.
    unsafe fn take(queue: &Queue, ids: &[SlotId], place: usize, each: impl FnMut(usize, Self::Ended));

    /// A request that was not even begun.
    fn rejected(request: Request, reason: RejectReason) -> Self::Ended;
}

/// Requests in memory of an arena.
struct Requests;

impl Kind for Requests {
    type Ended = Finished;

    #[inline]
    unsafe fn take(queue: &Queue, ids: &[SlotId], place: usize, each: impl FnMut(usize, Finished)) {
        // SAFETY: as the caller promises.
        unsafe { queue.slots.take_together(ids, place, each) }
    }

    fn rejected(request: Request, reason: RejectReason) -> Finished {
        Finished::rejected(request, reason)
    }
}

/// The submitted part of a batch. Dropped early, it abandons the rest.
pub(super) struct UnderWay<'a, K: Kind> {
    kind: PhantomData<K>,
    queue: &'a Arc<Queue>,
    ids: SlotIds,
    /// Index in the batch of the first of `ids`.
    place: usize,
    /// How many of `ids` were passed to the caller already.
    handed_over: usize,
}

impl<'a, K: Kind> UnderWay<'a, K> {
    pub(super) fn new(queue: &'a Arc<Queue>) -> UnderWay<'a, K> {
        UnderWay { kind: PhantomData, queue, ids: SlotIds::new(), place: 0, handed_over: 0 }
    }

    pub(super) fn submit(&mut self, requests: &mut [Request], each: &mut dyn FnMut(usize, K::Ended)) {
        let mut left = requests;
        while !left.is_empty() {
            let before = self.ids.len();
            self.queue.slots.begin_together(left, &mut self.ids);
            let begun = self.ids.len() - before;
            self.queue.stage(&self.ids[before..]);
            left = &mut left[begun..];
            if begun == 0 {
                // No place is free: the next one queues.
                self.submit_one(std::mem::replace(&mut left[0], Request::Nop), each);
                left = &mut left[1..];
            }
        }
    }

    #[cold]
    fn submit_one(&mut self, request: Request, each: &mut dyn FnMut(usize, K::Ended)) {
        let again = match self.queue.submit(request, Urgency::Demand, Start::Staged) {
            Ok(id) => return self.ids.push(id),
            Err(rejected) => rejected.request,
        };
        // As many are outstanding as there can be: make room.
        self.wait(&mut *each);
        match self.queue.submit(again, Urgency::Demand, Start::Staged) {
            Ok(id) => self.ids.push(id),
            Err(Rejected { request, reason }) => {
                each(self.place, K::rejected(request, reason));
                self.place += 1;
            }
        }
    }

    /// Waits for all submitted requests and passes their results to `each`.
    #[inline]
    pub(super) fn wait(&mut self, mut each: impl FnMut(usize, K::Ended)) {
        for &id in &self.ids {
            if !self.queue.slots.is_done(id) {
                self.queue.wait(id);
            }
        }
        for ids in self.ids.chunks(TOGETHER) {
            // Noted before, should `each` panic.
            self.handed_over += ids.len();
            // SAFETY: the batch is the only owner of its requests, all of which are done; these are its own no longer.
            unsafe { K::take(self.queue, ids, self.place, &mut each) };
            self.place += ids.len();
        }
        self.ids.clear();
        self.handed_over = 0;
    }
}

impl<K: Kind> Drop for UnderWay<'_, K> {
    fn drop(&mut self) {
        for id in self.ids.drain(self.handed_over..) {
            // SAFETY: the batch is the only owner of its requests, and gives them up.
            unsafe { self.queue.slots.abandon(id) };
            self.queue.attend();
        }
    }
}
