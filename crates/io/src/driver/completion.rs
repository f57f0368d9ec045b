//! Completion: the handle of a request under way.
//!
//! ```text
//!   Driver::submit ──► Completion: wait (blocks) | poll (any executor) | drop (the I/O goes on without its owner)
//! ```
//!
//! Owns: the right to a request's result.
//! Does not own: the request (slot), requests that are submitted together (plug) or waited for together (batch).
//! Invariants: I4 dropping it at any moment frees nothing that the device still uses.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::threads::carry_out_here;
use crate::driver::Driver;
use crate::driver::queue::{Backend, Queue, Start};
use crate::file::{OpenFile, Route};
use crate::memory::arena::{Arena, Urgency};
use crate::request::slot_table::SlotId;
use crate::request::work::Work;
use crate::request::{Finished, Rejected, Request, Transfer};
use crate::sync::event::Until;
use crate::system::reject::RejectReason;
use crate::system::sys::Direction;

/// A request under way. Dropping it does not stop the I/O, whose memory returns to the arena afterwards.
pub struct Completion {
    queue: Arc<Queue>,
    id: SlotId,
    taken: bool,
    /// A copy of the request, if it is a read whose completion a stuck thread may hold back.
    again: Option<Reread>,
    /// Whether it is a call that ends when it is dropped, since it may last for ever.
    ends_here: bool,
    /// The queue's stalls when the request was submitted, or was last begun again.
    stalls: u64,
}

impl Driver {
    /// Accepts a request. It starts if there is a place in the queue, at once or with those of tasks that were woken together; else it
    /// waits in order, unless it is readahead. Never blocks. Readahead leaves places to demand.
    ///
    /// # Errors
    /// The request itself with the reason; `WouldBlock` only for readahead.
    ///
    /// # Panics
    /// If the request moves no byte, does not fit its memory, begins beyond 2^63 - 1, or takes the direct route on a file without
    /// one or with an offset or length that is not a multiple of [`DirectAlignment::offset`](crate::DirectAlignment); if a [`WriteBack`](crate::WriteBack) skips a page or has more than 1024 pieces; on a local driver when called by another
    /// thread than the one that built it.
    #[allow(clippy::result_large_err)] // The request goes back to its owner by value; boxing it would allocate.
    pub fn submit(&self, request: impl Into<Request>, urgency: Urgency) -> Result<Completion, Rejected> {
        let request = request.into();
        // First of all: another thread of the parent may hold the locks that even the choice of a queue takes.
        if self.is_forked() {
            return Err(Rejected { request, reason: RejectReason::Forked });
        }
        self.check_thread();
        let queue = self.pick(self.queues_for(&request));
        Completion::submit(queue, request, urgency, Start::Now)
    }
}

impl Completion {
    /// Submits a request.
    #[allow(clippy::result_large_err)] // The request goes back to its owner by value; boxing it would allocate.
    pub(crate) fn submit(
        queue: &Arc<Queue>,
        request: Request,
        urgency: Urgency,
        start: Start,
    ) -> Result<Completion, Rejected> {
        let again = if queue.may_get_stuck() { Reread::of(&request) } else { None };
        let ends_here = matches!(&request, Request::Call(work) if work.ends_with_its_caller());
        let stalls = queue.stalls();
        let id = queue.submit(request, urgency, start)?;
        Ok(Completion { queue: queue.clone(), id, taken: false, again, ends_here, stalls })
    }

    /// Blocks until the request is done. In a lone thread on `uring` this costs no thread switch: it reaps for itself.
    ///
    /// A thread that is stuck in the kernel (a network file system that does not answer, `vfork(2)`, a debugger) holds back the
    /// completions of its requests. After some milliseconds, this thread then repeats a read itself, into other memory of the same
    /// arena. The kernel itself completes a sync; a direct write waits for as long as that thread is stuck (uring's `stalls` has the
    /// reasons).
    ///
    /// # Panics
    /// In a forked child, which does not have the request.
    pub fn wait(mut self) -> Finished {
        let mut limit = STUCK_LOOK;
        while self.wait_or_look(&mut limit, Until::Done, Duration::MAX).is_some() {
            if let Some(finished) = self.again.as_ref().and_then(Reread::read) {
                // The stuck thread's request is abandoned.
                return finished;
            }
        }
        self.take()
    }

    /// As [`Completion::wait`], but does not repeat a read that a stuck thread holds back; and under a [`WakeScope`](crate::WakeScope),
    /// where this thread can run no wakers, returns when there are some. Returns after `patience` at the latest.
    ///
    /// # Errors
    /// The completion, and why it is not waited for any longer. Dropping it abandons the request.
    ///
    /// # Panics
    /// When [`Completion::wait`] does.
    pub fn wait_unless_interrupted(
        mut self,
        patience: Duration,
    ) -> Result<Finished, (Completion, Interruption)> {
        match self.wait_or_look(&mut { STUCK_LOOK }, Until::DoneOrWakers, patience) {
            None => Ok(self.take()),
            Some(interruption) => Err((self, interruption)),
        }
    }

    /// Blocks until the request is done (`None`), or it is a read that a stuck thread may hold back, or there are wakers to run, or this time
    /// has passed.
    fn wait_or_look(
        &self,
        limit: &mut Duration,
        until: Until,
        mut patience: Duration,
    ) -> Option<Interruption> {
        assert!(!self.queue.is_forked(), "a request of the parent process is waited for there");
        self.queue.hasten(self.id);
        while !self.queue.wait_for(self.id, patience.min(*limit), until) {
            if until.is_interrupted() {
                return Some(Interruption::Wakers);
            }
            if self.again.is_some() && self.queue.ends_wait() {
                return Some(Interruption::Stuck);
            }
            patience = patience.saturating_sub(*limit);
            if patience.is_zero() {
                return Some(Interruption::Late);
            }
            *limit = (2 * *limit).min(STUCK_LOOK_MAX);
        }
        None
    }

    fn take(&mut self) -> Finished {
        self.taken = true;
        // SAFETY: this handle is the request's only owner, and gives that up.
        unsafe { self.queue.slots.take(self.id) }.expect("waited for")
    }

    /// Returns the result if the request is done, else arranges for the task to be woken. As with [`Completion::wait`], a read is
    /// repeated, by a worker thread, if a thread that is stuck in the kernel holds back its completion.
    ///
    /// # Panics
    /// If polled again after it was ready, or in a forked child; on a local driver also outside of its `block_on`,
    /// unless the feature `tokio` is on and a tokio runtime runs the task.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Finished> {
        match self.poll_unless_stuck(context) {
            Poll::Ready(Ok(finished)) => Poll::Ready(finished),
            Poll::Ready(Err(Stuck)) => self.poll_elsewhere(context),
            Poll::Pending => Poll::Pending,
        }
    }

    /// As [`Completion::poll`], but does not repeat a read that a stuck thread holds back.
    ///
    /// # Errors
    /// It may be such a read, so that the task had better drop this, which abandons it. Each time a thread is found to be stuck, this
    /// is returned once.
    ///
    /// # Panics
    /// When [`Completion::poll`] does.
    pub fn poll_unless_stuck(&mut self, context: &mut Context<'_>) -> Poll<Result<Finished, Stuck>> {
        match self.poll_once(context) {
            Poll::Ready(finished) => Poll::Ready(Ok(finished)),
            Poll::Pending if self.is_stuck() => Poll::Ready(Err(Stuck)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether a thread was found to be stuck since the last call, so that the read is better begun elsewhere.
    fn is_stuck(&mut self) -> bool {
        let stalls = self.queue.stalls();
        let is_stuck = self.again.is_some() && stalls != self.stalls;
        if is_stuck {
            self.stalls = stalls;
            self.queue.note_stuck_wait();
        }
        is_stuck
    }

    /// Has a worker thread read again, into other memory, and abandons the request under way. Goes on with that one while there is no
    /// memory.
    #[cold]
    fn poll_elsewhere(&mut self, context: &mut Context<'_>) -> Poll<Finished> {
        let begun = self.again.as_ref().and_then(Reread::request).and_then(|read| {
            Completion::submit(self.queue.relief(), read.into(), Urgency::Demand, Start::Now).ok()
        });
        let Some(begun) = begun else { return Poll::Pending };
        *self = begun;
        self.poll_once(context)
    }

    fn poll_once(&mut self, context: &mut Context<'_>) -> Poll<Finished> {
        self.poll_by(context, Completion::take_or_wait)
    }

    /// As [`Completion::poll`], for a call.
    pub(crate) fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Box<Work>> {
        self.poll_by(context, Completion::take_work_or_wait)
    }

    fn poll_by<D>(
        &mut self,
        context: &mut Context<'_>,
        take_or_wait: fn(&mut Self, &mut Context<'_>) -> Option<D>,
    ) -> Poll<D> {
        assert!(!self.taken, "a completion is polled again after it was ready");
        assert!(!self.queue.is_forked(), "a request of the parent process is waited for there");
        if let Some(finished) = take_or_wait(self, context) {
            return Poll::Ready(finished);
        }
        self.queue.hasten(self.id);
        match &self.queue.backend {
            // No thread is to be had that reaps, so the task does, again and again.
            Backend::Uring(uring) if !uring.attend_task() => context.waker().wake_by_ref(),
            Backend::Uring(_) | Backend::Threads(_) => {}
            // The simulation makes progress only in calls: it takes a step, and the task is polled again.
            Backend::Sim(sim) => {
                let repolls = sim.step_and_repolls(self.id);
                if let Some(finished) = take_or_wait(self, context) {
                    return Poll::Ready(finished);
                }
                if repolls {
                    context.waker().wake_by_ref();
                }
            }
        }
        Poll::Pending
    }

    fn take_or_wait(&mut self, context: &mut Context<'_>) -> Option<Finished> {
        // SAFETY: this handle is the request's only owner, and notes when it no longer is.
        let finished = unsafe { self.queue.slots.take_or_wait(self.id, context.waker()) };
        self.taken = finished.is_some();
        finished
    }

    fn take_work_or_wait(&mut self, context: &mut Context<'_>) -> Option<Box<Work>> {
        // SAFETY: as above.
        let work = unsafe { self.queue.slots.take_work_or_wait(self.id, context.waker()) };
        self.taken = work.is_some();
        work
    }

    /// As [`Completion::wait`], for a call.
    pub(crate) fn wait_for_work(mut self) -> Box<Work> {
        assert!(!self.taken, "a call is asked again after it was ready");
        let interrupted = self.wait_or_look(&mut { STUCK_LOOK }, Until::Done, Duration::MAX);
        assert!(interrupted.is_none(), "only a request of an arena is begun again");
        self.taken = true;
        // SAFETY: this handle is the request's only owner, and gives that up.
        unsafe { self.queue.slots.take_work(self.id) }.expect("waited for")
    }

    /// Whether the request is done, or its result was taken. No syscall, except to collect deferred completions of a local ring, and
    /// to submit entries left to others.
    pub fn is_done(&self) -> bool {
        if self.taken {
            // The slot may hold another request by now.
            return true;
        }
        if !self.queue.slots.is_done(self.id) && !self.queue.is_forked() {
            self.queue.reap_ready();
        }
        self.queue.slots.is_done(self.id)
    }

    /// Asks the kernel to cancel the request. The result shows whether it did: `ECANCELED`, or fewer bytes with `stopped_by`, or all
    /// of them. A transfer that the device has begun is mostly not stopped.
    pub fn cancel(&self) {
        if self.taken || self.queue.is_forked() {
            return;
        }
        self.queue.slots.set_cancelled(self.id);
        match &self.queue.backend {
            Backend::Uring(uring) => uring.cancel(self.id),
            Backend::Threads(threads) => threads.look_at_waits(),
            Backend::Sim(_) => {}
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.id)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.taken || self.queue.is_forked() {
            return;
        }
        if self.ends_here && !self.queue.slots.is_done(self.id) {
            self.queue.end_wait(self.id);
        }
        // SAFETY: this handle is the request's only owner, and gone after this.
        let under_way = unsafe { self.queue.slots.abandon(self.id) };
        // The simulation completes abandoned requests in its later steps.
        if under_way && !matches!(self.queue.backend, Backend::Sim(_)) {
            self.queue.attend();
        }
    }
}

/// Why a wait ended before the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interruption {
    /// A thread that is stuck in the kernel may hold back the completion of this read.
    Stuck,
    /// This thread has wakers to run, when its [`WakeScope`](crate::WakeScope) ends.
    Wakers,
    /// The time that the caller gives it has passed.
    Late,
}

/// A read that the waiting thread may repeat.
struct Reread {
    arena: Arena,
    /// Of the memory, piece by piece: the owner finds each byte where it would be without a stuck thread.
    sizes: SmallVec<[usize; 2]>,
    file: Arc<OpenFile>,
    route: Route,
    offset_bytes: u64,
    length_bytes: usize,
}

impl Reread {
    fn of(request: &Request) -> Option<Reread> {
        match request {
            Request::Transfer(read) if read.direction == Direction::Read => Some(Reread {
                arena: read.extents.first()?.arena(),
                sizes: read.extents.iter().map(|extent| extent.len()).collect(),
                file: read.file.clone(),
                route: read.route,
                offset_bytes: read.offset_bytes,
                length_bytes: read.length_bytes,
            }),
            _ => None,
        }
    }

    /// `None` if there is no memory for it.
    #[cold]
    fn read(&self) -> Option<Finished> {
        self.request().map(|read| carry_out_here(read.into()))
    }

    /// The same.
    #[cold]
    fn request(&self) -> Option<Transfer> {
        let pieces = self.sizes.iter().map(|&bytes| self.arena.allocate(bytes, Urgency::Demand));
        Some(Transfer {
            direction: Direction::Read,
            file: self.file.clone(),
            route: self.route,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            extents: pieces.collect::<Option<_>>()?,
        })
    }
}

/// A thread that is stuck in the kernel may hold back the completion of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck;

/// A waiting thread first looks for a stuck one after this time, or up to twice that; then after twice as long each time. Most
/// devices answer before.
const STUCK_LOOK: Duration = Duration::from_millis(1);
const STUCK_LOOK_MAX: Duration = Duration::from_millis(500);

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use headwater_core::units::PAGE_BYTES;

    use super::*;
    use crate::file::{Access, DirectIo};
    use crate::memory::arena::Extents;

    /// Goal: a read that is begun again has memory of the same pieces, so that its owner does not look for bytes where they are not.
    /// Method: memory of which no two free pieces lie together.
    #[test]
    fn a_read_begun_again_has_the_same_pieces() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(OpenFile::open(file.path(), DirectIo::Off, Access::Read).unwrap());
        let arena = Arena::new(4 << 20).unwrap();
        const PIECE_BYTES: usize = if cfg!(miri) { 16 * PAGE_BYTES } else { PAGE_BYTES };
        let sizes = [PIECE_BYTES, 8 * PIECE_BYTES, PIECE_BYTES];
        let allocate = |bytes| arena.allocate(bytes, Urgency::Demand);
        let extents: Extents = sizes.iter().map(|&bytes| allocate(bytes).unwrap()).collect();
        let again = Reread::of(&Request::Transfer(Transfer {
            direction: Direction::Read,
            file,
            route: Route::Buffered,
            offset_bytes: 0,
            length_bytes: 10 * PIECE_BYTES,
            extents,
        }));
        let again = again.unwrap();
        let pieces = |again: &Reread| {
            again.request().map(|read| read.extents.iter().map(|extent| extent.len()).collect::<Vec<_>>())
        };
        assert_eq!(pieces(&again).unwrap(), sizes);
        let mut pages: Vec<_> = std::iter::from_fn(|| allocate(PIECE_BYTES)).map(Some).collect();
        pages.sort_by_key(|page| page.as_ref().map(|page| page.as_ptr() as usize));
        pages.iter_mut().step_by(2).for_each(|page| *page = None);
        assert_eq!(pieces(&again), None, "there are small pieces only");
    }
}
