//! Plug: requests and calls that are submitted together, and waited for one by one.
//!
//! ```text
//!   Driver::plug ────► Plug: submits when dropped ──► Completion or Calling each
//! ```
//!
//! Owns: which queues have requests that are staged.
//! Does not own: requests that are waited for together (batch).
//! Invariants: I4 as for completions.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::driver::Driver;
use crate::driver::calling::Calling;
use crate::driver::completion::Completion;
use crate::driver::queue::{Queue, Start};
use crate::memory::arena::Urgency;
use crate::request::call::{Call, CallOutput};
use crate::request::{Rejected, Request};
use crate::system::reject::RejectReason;

/// Submits requests together: requests submitted through it reach the kernel in one system call when it is dropped or flushed, or
/// when a caller waits for one of them before that.
pub struct Plug<'a> {
    driver: &'a Driver,
    /// Queues with staged requests, at most one of each kind of ring.
    queues: SmallVec<[Arc<Queue>; 2]>,
}

impl Driver {
    /// A scope: requests that are submitted through it go to the kernel in one system call.
    pub fn plug(&self) -> Plug<'_> {
        Plug { driver: self, queues: SmallVec::new() }
    }
}

impl<'a> Plug<'a> {
    /// As [`Driver::submit`].
    ///
    /// # Errors
    /// Those of [`Driver::submit`].
    ///
    /// # Panics
    /// When [`Driver::submit`] does.
    #[allow(clippy::result_large_err)] // The request goes back to its owner by value; boxing it would allocate.
    pub fn submit(&mut self, request: impl Into<Request>, urgency: Urgency) -> Result<Completion, Rejected> {
        let request = request.into();
        if self.driver.is_forked() {
            return Err(Rejected { request, reason: RejectReason::Forked });
        }
        self.driver.check_thread();
        let queue = self.queue_among(self.driver.queues_for(&request));
        Completion::submit(&queue, request, urgency, Start::Staged)
    }

    /// The one that this has staged requests in already, else one that takes them from now on.
    fn queue_among(&mut self, queues: &'a [Arc<Queue>]) -> Arc<Queue> {
        let chosen = self.queues.iter().find(|chosen| queues.iter().any(|queue| Arc::ptr_eq(queue, chosen)));
        match chosen {
            Some(queue) => queue.clone(),
            None => {
                let queue = self.driver.pick(queues).clone();
                queue.plug();
                self.queues.push(queue.clone());
                queue
            }
        }
    }

    /// As [`Driver::call`].
    ///
    /// # Panics
    /// When [`Driver::call`] does.
    pub fn call<T: CallOutput>(&mut self, call: Call<T>) -> Calling<T> {
        if self.driver.is_forked() {
            return Calling::refused(call.work, RejectReason::Forked);
        }
        self.driver.check_thread();
        let queue = self.queue_among(self.driver.ordinary_queues());
        Calling::submit(queue.for_work(&call.work), call, Start::Staged)
    }

    /// Submits the staged requests to the kernel.
    pub fn flush(&mut self) {
        self.drain().for_each(|queue| queue.unplug());
    }

    /// The same for a task that polls one of them before it does anything else: they may be submitted together with those of tasks that
    /// were woken with it, some 100 us later at the most. If the task polls none, they may be submitted much later.
    pub fn flush_before_poll(&mut self) {
        self.drain().for_each(|queue| queue.unplug_for_task());
    }

    /// Requests that the parent staged are for the parent to submit.
    fn drain(&mut self) -> impl Iterator<Item = Arc<Queue>> {
        self.queues.drain(..).filter(|queue| !queue.is_forked())
    }
}

impl fmt::Debug for Plug<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plug({} rings)", self.queues.len())
    }
}

impl Drop for Plug<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
