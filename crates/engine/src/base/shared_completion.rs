//! Shared completion: the completion of a request for several waiters; the first to arrive processes the result.
//!
//! ```text
//!   Starting ─► under_way ─► UnderWay ─┬─ a thread waits ──► Taken ─► the taker processes it ─► over
//!                                ▲     │                       └─ wakers are to run ─┐
//!                                │     ├─ a task polls ready ───────► as above       │
//!                                │     └─ no waiter: until `take_arrived`            │
//!                                └───────────────────────────────────────────────────┘
//!   over: all waiters are woken, in the order they came
//! ```
//!
//! No thread or task waits for a read ahead or a writeback from the start. Its result stays with the driver until it is needed:
//! no thread, task or callback for each request.
//!
//! A thread that has taken the result runs no code of the program until the request is over: that code may wait for this very
//! request. A thread that waits reaps for others as well, and so has their wakers to run: before it does, it puts the completion back.
//!
//! Owns: the completion, the waiters.
//! Does not own: the meaning of the result.
//! Invariants: I4 dropping it frees nothing that the device still uses; exactly one waiter takes the result.
//! Locks: `progress`, not held while waiting or waking.

use std::borrow::Borrow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use headwater_io::{Arena, Completion, Driver, Event, EventListener, Finished, Interruption, Stuck, lock};

use crate::base::listeners::Undisturbed;

/// A request in flight, with its payload.
#[derive(Debug)]
pub(crate) struct SharedCompletion<P> {
    progress: Mutex<Progress<P>>,
    done: Arc<Done>,
}

#[derive(Debug)]
enum Progress<P> {
    /// The request is not submitted yet.
    Starting,
    /// The payload comes first, because fields are dropped in this order.
    UnderWay {
        payload: P,
        completion: Completion,
    },
    /// A waiter has taken the result, or blocks for it.
    Taken,
    Over,
}

#[derive(Debug, Default)]
struct Done {
    event: Event,
    /// Whose waiters are notified as well, once one of them has asked for it: a request that is over leaves memory.
    arena: OnceLock<Arena>,
}

impl<P> SharedCompletion<P> {
    /// A request that is about to be submitted.
    pub(crate) fn new() -> SharedCompletion<P> {
        SharedCompletion { progress: Mutex::new(Progress::Starting), done: Arc::default() }
    }

    /// The request is submitted: from now on any waiter may take its result.
    pub(crate) fn under_way(&self, completion: Completion, payload: P) {
        *self.lock() = Progress::UnderWay { payload, completion };
        // Waiters that came before the submission try again.
        self.done.notify();
    }

    /// The result is processed, or the request was never submitted.
    pub(crate) fn over(&self) {
        *self.lock() = Progress::Over;
        self.done.notify();
    }

    /// Blocks until the request is over. If this thread is the one that takes the result, `complete` processes it, and ends the request.
    pub(crate) fn wait(&self, complete: impl FnOnce(Ended<P>)) {
        let mut complete = Some(complete);
        loop {
            let listener = self.done.event.listen();
            if self.wait_as_taker(Duration::MAX, &mut complete) {
                return;
            }
            listener.wait();
        }
    }

    /// As [`SharedCompletion::wait`], for `limit` at most.
    pub(crate) fn wait_at_most(&self, limit: Duration, complete: impl FnOnce(Ended<P>)) {
        let (began, listener) = (Instant::now(), self.done.event.listen());
        if !self.wait_as_taker(limit, &mut Some(complete)) {
            listener.wait_timeout(limit.saturating_sub(began.elapsed()));
        }
    }

    /// Waits for the device, for `limit` at most, unless another waiter does. Returns whether the request is over.
    fn wait_as_taker(&self, limit: Duration, complete: &mut Option<impl FnOnce(Ended<P>)>) -> bool {
        let _undisturbed = Undisturbed::enter();
        let mut progress = self.lock();
        let (payload, completion) = match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::UnderWay { payload, completion } => (payload, completion),
            other => {
                *progress = other;
                return matches!(*progress, Progress::Over);
            }
        };
        drop(progress);
        match completion.wait_unless_interrupted(limit) {
            Ok(finished) => take(complete)(Ended::Arrived(finished, payload)),
            Err((completion, Interruption::Stuck)) => {
                take(complete)(Ended::given_up(payload, completion));
            }
            Err((completion, Interruption::Wakers | Interruption::Late)) => {
                self.under_way(completion, payload);
                return false;
            }
        }
        true
    }

    /// As [`SharedCompletion::wait`], for a task. May be dropped at any moment.
    pub(crate) async fn ready(&self, driver: &Driver, complete: impl FnOnce(Ended<P>)) {
        let mut complete = Some(complete);
        loop {
            let listener = Notified { listener: Some(self.done.event.listen()), driver };
            if self.look(&mut complete) {
                return;
            }
            listener.await;
        }
    }

    /// From now on, waiters for memory of this arena are notified as well when the request is over or has arrived. If it has arrived,
    /// `complete` processes it. Returns whether it is over.
    pub(crate) fn announce_in(&self, arena: &Arena, complete: impl FnOnce(Ended<P>)) -> bool {
        let _ = self.done.arena.set(arena.clone());
        self.look(&mut Some(complete))
    }

    /// Has `complete` process the result, if it has arrived and no waiter has taken it. Returns whether it did.
    pub(crate) fn take_arrived(&self, complete: impl FnOnce(Ended<P>)) -> bool {
        // Looking may complete other requests.
        let _undisturbed = Undisturbed::enter();
        let mut progress = self.lock();
        if !matches!(&*progress, Progress::UnderWay { completion, .. } if completion.is_done()) {
            return false;
        }
        let (payload, completion) = Progress::take(&mut progress);
        drop(progress);
        complete(Ended::Arrived(completion.wait(), payload));
        true
    }

    /// Abandons the request, unless a waiter has taken it; `ended` then ends it.
    pub(crate) fn abandon(&self, ended: impl FnOnce(Ended<P>)) {
        let _undisturbed = Undisturbed::enter();
        let mut progress = self.lock();
        if matches!(*progress, Progress::UnderWay { .. }) {
            let (payload, completion) = Progress::take(&mut progress);
            drop(progress);
            ended(Ended::given_up(payload, completion));
        }
    }

    /// Looks whether the result is there, and processes it; else the driver later wakes all waiters. Returns whether the request is over.
    fn look(&self, complete: &mut Option<impl FnOnce(Ended<P>)>) -> bool {
        let _undisturbed = Undisturbed::enter();
        let mut progress = self.lock();
        let Progress::UnderWay { completion, .. } = &mut *progress else {
            return matches!(*progress, Progress::Over);
        };
        let waker = Waker::from(self.done.clone());
        let Poll::Ready(result) = completion.poll_unless_stuck(&mut Context::from_waker(&waker)) else {
            return false;
        };
        let (payload, completion) = Progress::take(&mut progress);
        drop(progress);
        take(complete)(match result {
            Ok(finished) => Ended::Arrived(finished, payload),
            Err(Stuck) => Ended::given_up(payload, completion),
        });
        true
    }

    fn lock(&self) -> MutexGuard<'_, Progress<P>> {
        lock(&self.progress)
    }
}

impl<P> Progress<P> {
    fn take(progress: &mut Progress<P>) -> (P, Completion) {
        match std::mem::replace(progress, Progress::Taken) {
            Progress::UnderWay { payload, completion } => (payload, completion),
            _ => unreachable!("it was under way"),
        }
    }
}

/// What a waiter has taken, and ends.
pub(crate) enum Ended<P> {
    Arrived(Finished, P),
    /// The request is abandoned: no handle wants it, or a thread stuck in the kernel keeps the result of a read.
    GivenUp,
}

impl<P> Ended<P> {
    fn given_up(payload: P, completion: Completion) -> Ended<P> {
        // The payload first, as in `UnderWay`.
        drop(payload);
        drop(completion);
        Ended::GivenUp
    }
}

/// The one result is taken once.
fn take<F>(complete: &mut Option<F>) -> F {
    complete.take().expect("a request has one result")
}

impl Done {
    fn notify(&self) {
        self.event.notify(usize::MAX);
        if let Some(arena) = self.arena.get() {
            arena.announce();
        }
    }
}

impl Wake for Done {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// A request as old as this may never end: waiters for memory pay no heed to it. Slow devices answer sooner.
pub(crate) const HELD_UP: Duration = Duration::from_secs(1);

/// A waiter for memory has this many of the oldest loads, and of the oldest writes, announce their ends: each is a look at its request.
pub(crate) const ANNOUNCED_MAX: usize = 8;

/// A registration for a notification.
pub(crate) struct Notified<D: Borrow<Driver>> {
    pub(crate) listener: Option<EventListener>,
    pub(crate) driver: D,
}

impl<D: Borrow<Driver> + Unpin> Future for Notified<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let listener = self.listener.as_mut().expect("there until it is dropped");
        Pin::new(listener).poll(context)
    }
}

impl<D: Borrow<Driver>> Drop for Notified<D> {
    fn drop(&mut self) {
        if self.driver.borrow().is_forked() {
            // Deregistering takes the list's lock, which in a forked child may be held by a thread that does not exist.
            std::mem::forget(self.listener.take());
        }
    }
}
