//! Shared completion: the completion of a request for several waiters; the first to arrive processes the result.
//!
//! ```text
//!   Starting ─► under_way ─► UnderWay ─┬─ a thread waits ──► Taken ─► the taker processes it ─► over
//!                                      ├─ a task polls ready ───────► as above
//!                                      └─ no waiter: until `take_arrived`
//!   over: all waiters are woken, in the order they came
//! ```
//!
//! No thread or task waits for a read ahead or a writeback from the start. Its result stays with the driver until it is needed:
//! no thread, task or callback for each request.
//!
//! Owns: the completion, the waiters.
//! Does not own: the meaning of the result.
//! Invariants: I4 dropping it frees nothing that the device still uses; exactly one waiter takes the result.
//! Locks: `progress`, not held while waiting or waking.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use headwater_io::{Completion, Driver, Event, EventListener, Finished, Stuck, WakeScope, lock};

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

#[derive(Debug)]
struct Done(Event);

impl<P> SharedCompletion<P> {
    /// A request that is about to be submitted.
    pub(crate) fn new() -> SharedCompletion<P> {
        SharedCompletion { progress: Mutex::new(Progress::Starting), done: Arc::new(Done(Event::new())) }
    }

    /// The request is submitted: from now on any waiter may take its result.
    pub(crate) fn under_way(&self, completion: Completion, payload: P) {
        *self.lock() = Progress::UnderWay { payload, completion };
        // Waiters that came before the submission try again.
        self.done.0.notify(usize::MAX);
    }

    /// The result is processed, or the request was never submitted.
    pub(crate) fn over(&self) {
        *self.lock() = Progress::Over;
        self.done.0.notify(usize::MAX);
    }

    /// Blocks until the request is over, or returns the result, which the caller then processes.
    pub(crate) fn wait(&self) -> Waited<P> {
        loop {
            let listener = self.done.0.listen();
            let mut progress = self.lock();
            match std::mem::replace(&mut *progress, Progress::Taken) {
                Progress::UnderWay { payload, completion } => {
                    drop(progress);
                    return match completion.wait_unless_stuck() {
                        Ok(finished) => Waited::Arrived(finished, payload),
                        Err(stuck) => Waited::give_up(payload, stuck),
                    };
                }
                Progress::Over => {
                    *progress = Progress::Over;
                    return Waited::Over;
                }
                Progress::Starting => *progress = Progress::Starting,
                Progress::Taken => {}
            }
            drop(progress);
            listener.wait();
        }
    }

    /// As [`SharedCompletion::wait`], for a task. May be dropped at any moment.
    pub(crate) async fn ready(&self, driver: &Driver) -> Waited<P> {
        loop {
            let listener = Notified { listener: Some(self.done.0.listen()), driver };
            match self.poll_device() {
                Some(waited) => return waited,
                None => listener.await,
            }
        }
    }

    /// Registers a thread or task to be notified when the request is over or has arrived; also returns how it ended if it has, which the
    /// caller then processes.
    pub(crate) fn listen(&self) -> (EventListener, Option<Waited<P>>) {
        (self.done.0.listen(), self.poll_device())
    }

    /// The result, if it has arrived and no waiter has taken it.
    pub(crate) fn take_arrived(&self) -> Option<(Finished, P)> {
        // Polling may complete other requests.
        let _scope = WakeScope::enter();
        let mut progress = self.lock();
        if !matches!(&*progress, Progress::UnderWay { completion, .. } if completion.is_done()) {
            return None;
        }
        let Progress::UnderWay { payload, completion } = std::mem::replace(&mut *progress, Progress::Taken)
        else {
            unreachable!("it was under way")
        };
        drop(progress);
        Some((completion.wait(), payload))
    }

    /// Abandons the request, unless a waiter has taken it. Returns whether it did.
    pub(crate) fn abandon(&self) -> Abandoned {
        let mut progress = self.lock();
        if !matches!(*progress, Progress::UnderWay { .. }) {
            return Abandoned::No;
        }
        let abandoned = std::mem::replace(&mut *progress, Progress::Taken);
        drop(progress);
        drop(abandoned);
        Abandoned::Yes
    }

    /// Polls the driver, which later wakes all waiters. `None` while the request is under way.
    fn poll_device(&self) -> Option<Waited<P>> {
        let _scope = WakeScope::enter();
        let mut progress = self.lock();
        let Progress::UnderWay { completion, .. } = &mut *progress else {
            return matches!(*progress, Progress::Over).then_some(Waited::Over);
        };
        let waker = Waker::from(self.done.clone());
        let Poll::Ready(result) = completion.poll_unless_stuck(&mut Context::from_waker(&waker)) else {
            return None;
        };
        let Progress::UnderWay { payload, completion } = std::mem::replace(&mut *progress, Progress::Taken)
        else {
            unreachable!("it was under way")
        };
        drop(progress);
        Some(match result {
            Ok(finished) => Waited::Arrived(finished, payload),
            Err(Stuck) => Waited::give_up(payload, completion),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Progress<P>> {
        lock(&self.progress)
    }
}

/// The outcome of waiting for a request.
pub(crate) enum Waited<P> {
    Over,
    /// The result, for the caller to process.
    Arrived(Finished, P),
    /// A thread stuck in the kernel keeps the result of a read. The request is abandoned; the caller ends it.
    GivenUp,
}

impl<P> Waited<P> {
    fn give_up(payload: P, completion: Completion) -> Waited<P> {
        // The payload first, as in `UnderWay`.
        drop(payload);
        drop(completion);
        Waited::GivenUp
    }
}

/// Whether a request was abandoned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Abandoned {
    Yes,
    No,
}

impl Wake for Done {
    fn wake(self: Arc<Self>) {
        self.0.notify(usize::MAX);
    }
}

/// A registration for a notification.
pub(crate) struct Notified<'a> {
    pub(crate) listener: Option<EventListener>,
    pub(crate) driver: &'a Driver,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let listener = self.listener.as_mut().expect("there until it is dropped");
        Pin::new(listener).poll(context)
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if self.driver.is_forked() {
            // Deregistering takes the list's lock, which in a forked child may be held by a thread that does not exist.
            std::mem::forget(self.listener.take());
        }
    }
}
