//! Calling: the handle of a call under way, a future and something to wait for.
//!
//! ```text
//!   Driver::call ─► Calling: wait (blocks) | await (any executor) | drop (the call goes on without its owner)
//! ```
//!
//! Owns: the right to a call's result.
//! Does not own: the call (slot), how its request is waited for (completion).
//! Invariants: I4 dropping or leaking it at any moment frees nothing that the kernel still uses.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::driver::Driver;
use crate::driver::batch::{Kind, UnderWay};
use crate::driver::completion::Completion;
use crate::driver::queue::{Queue, Start};
use crate::file::{OpenFile, Route, SharedDescriptor};
use crate::memory::arena::Urgency;
use crate::request::attributes::Attributes;
use crate::request::call::{self, Call, CallOutput, Returned};
use crate::request::slot_table::SlotId;
use crate::request::work::Work;
use crate::request::{Rejected, Request};
use crate::system::reject::RejectReason;

/// A [`Call`] under way, a future of its result. It may be dropped or leaked at any moment: the call goes on, and keeps its descriptor and
/// its buffers until it is done. What is to be written is written; a read, a timeout or a poll that was dropped is cancelled, as far as the
/// kernel can.
#[must_use = "a call goes on without its handle, but its result is lost"]
pub struct Calling<T> {
    state: State,
    output: PhantomData<fn() -> T>,
}

enum State {
    UnderWay(Completion),
    /// Not accepted; `None` once that was reported.
    Refused(Option<Box<Work>>),
}

impl Driver {
    /// Makes a system call with the caller's own descriptor and buffers. It starts if there is a place in the queue, at once or
    /// with those of tasks that were woken together; else it waits in order. Never blocks. Refused calls are ready at once, with the error of
    /// [`Rejected::kind`].
    ///
    /// # Panics
    /// On a local driver when called by another thread than the one that built it.
    pub fn call<T: CallOutput>(&self, call: Call<T>) -> Calling<T> {
        self.call_by(call, Driver::ordinary_queues)
    }

    /// Asks the server of a file for its length and its times, however new those are that the kernel has.
    ///
    /// # Panics
    /// As [`Driver::call`].
    pub fn ask_server(&self, file: &Arc<OpenFile>) -> Calling<Returned<Attributes, SharedDescriptor>> {
        let file = file.shared_descriptor(Route::Buffered);
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
        self.call_by(Call::attributes_at(file, "", flags), Driver::queues_of_servers)
    }

    fn call_by<T: CallOutput>(&self, call: Call<T>, queues: fn(&Driver) -> &[Arc<Queue>]) -> Calling<T> {
        if self.is_forked() {
            return Calling::refused(call.work, RejectReason::Forked);
        }
        self.check_thread();
        Calling::submit(self.pick(queues(self)).for_work(&call.work), call, Start::Now)
    }

    /// Makes calls together, waits for all, and passes the result of each to `each` with its number: one system call and one lock for up to 32
    /// of them, where the operations of all can be carried out by a ring. Blocks.
    ///
    /// ```
    /// use std::{fs::File, sync::Arc};
    /// use headwater_io::{Call, Driver, DriverOptions};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("data");
    /// # std::fs::write(&path, vec![7; 40_000])?;
    /// let driver = Driver::new(&DriverOptions::default())?;
    /// let file = Arc::new(File::open(&path)?);
    /// let reads = (0..10).map(|part| Call::pread(file.clone(), vec![0; 4000], part * 4000));
    /// driver.call_all(reads, |_, read| assert!(read.result.unwrap() == 4000 && read.given.1 == [7; 4000]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// On a local driver when called by another thread than the one that built it. If `each` panics, calls that were not yet submitted
    /// are not made.
    #[inline]
    pub fn call_all<T: CallOutput>(
        &self,
        calls: impl IntoIterator<Item = Call<T>>,
        mut each: impl FnMut(usize, T),
    ) {
        let mut requests: Vec<Request> = calls.into_iter().map(|call| Request::Call(call.work)).collect();
        let mut each = |place, work| each(place, call::returned(work));
        if self.is_forked() {
            let refused = requests.into_iter().map(|request| Calls::rejected(request, RejectReason::Forked));
            return refused.enumerate().for_each(|(place, work)| each(place, work));
        }
        self.check_thread();
        let ring = self.pick(self.ordinary_queues());
        // One queue takes all.
        let for_each = requests.iter().map(|request| match request {
            Request::Call(work) => ring.for_work(work),
            _ => ring,
        });
        let queue = for_each.into_iter().find(|queue| !Arc::ptr_eq(queue, ring)).unwrap_or(ring);
        let mut under_way = UnderWay::<Calls>::new(queue);
        under_way.submit(&mut requests, &mut each);
        under_way.wait(each);
    }
}

impl<T: CallOutput> Calling<T> {
    pub(crate) fn submit(queue: &Arc<Queue>, call: Call<T>, start: Start) -> Calling<T> {
        match Completion::submit(queue, Request::Call(call.work), Urgency::Demand, start) {
            Ok(completion) => Calling { state: State::UnderWay(completion), output: PhantomData },
            Err(Rejected { request: Request::Call(work), reason }) => Calling::refused(work, reason),
            Err(_) => unreachable!("the request goes back to its owner"),
        }
    }

    /// A call that was not accepted.
    pub(crate) fn refused(mut work: Box<Work>, reason: RejectReason) -> Calling<T> {
        work.refuse(reason.into());
        Calling { state: State::Refused(Some(work)), output: PhantomData }
    }

    /// Blocks until the call is done. In a lone thread on `uring` this costs no thread switch: it reaps for itself.
    ///
    /// A thread that is stuck in the kernel holds back the completions of what it submitted, as it does for
    /// [`Completion::wait`](crate::Completion::wait); a call is not repeated elsewhere, since its buffer is the caller's.
    ///
    /// # Panics
    /// In a forked child, which does not have the call; after it was ready as a future.
    pub fn wait(self) -> T {
        match self.state {
            State::UnderWay(completion) => call::returned(completion.wait_for_work()),
            State::Refused(work) => call::returned(work.expect(READY)),
        }
    }

    /// Whether the result is there. No system call, except to collect deferred completions of a local ring.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::UnderWay(completion) => completion.is_done(),
            State::Refused(_) => true,
        }
    }

    /// Asks the kernel to cancel the call, as [`Completion::cancel`](crate::Completion::cancel) does; the result shows whether it did.
    pub fn cancel(&self) {
        if let State::UnderWay(completion) = &self.state {
            completion.cancel();
        }
    }
}

impl<T: CallOutput> Future for Calling<T> {
    type Output = T;

    /// # Panics
    /// If polled again after it was ready, and when [`Completion::poll`](crate::Completion::poll) does.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.state {
            State::UnderWay(completion) => completion.poll_work(context).map(call::returned),
            State::Refused(work) => Poll::Ready(call::returned(work.take().expect(READY))),
        }
    }
}

impl<T> fmt::Debug for Calling<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::UnderWay(completion) => write!(f, "Calling({completion:?})"),
            State::Refused(_) => f.write_str("Calling(refused)"),
        }
    }
}

/// Calls as a batch.
struct Calls;

impl Kind for Calls {
    type Ended = Box<Work>;

    #[inline]
    unsafe fn take(queue: &Queue, ids: &[SlotId], place: usize, each: impl FnMut(usize, Box<Work>)) {
        // SAFETY: as the caller promises.
        unsafe { queue.slots.take_works_together(ids, place, each) }
    }

    fn rejected(request: Request, reason: RejectReason) -> Box<Work> {
        let Request::Call(mut work) = request else { unreachable!("these are calls") };
        work.refuse(reason.into());
        work
    }
}

const READY: &str = "a call is asked again after it was ready";
