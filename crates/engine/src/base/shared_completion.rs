//! Joint: a request whose result whoever comes first takes, and concludes for all who wait for it.
//!
//! ```text
//!   Starting ─► under_way ─► UnderWay ─┬─ a thread waits ──► Taken ─► the taker concludes ─► over
//!                                      ├─ a task polls ready ───────► the same
//!                                      └─ nobody: until somebody looks (`take_arrived`)
//!   over: all who wait are woken, in the order they came
//! ```
//!
//! Nobody owns a read ahead or a writeback so as to wait for it. Its result stays with the driver until somebody needs it:
//! no thread, task or callback for each request.
//!
//! Owns: the completion, who is told.
//! Does not own: what the result means.
//! Invariants: I4 dropping it gives nothing away that the device still uses; one takes the result.
//! Locks: `progress`, not held while waiting or waking.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use headwater_io::{Completion, Driver, Event, EventListener, Finished, WakeScope, lock};

/// A request under way, with what belongs to it.
#[derive(Debug)]
pub(crate) struct SharedCompletion<P> {
    progress: Mutex<Progress<P>>,
    done: Arc<Done>,
}

#[derive(Debug)]
enum Progress<P> {
    /// The request is not submitted yet.
    Starting,
    /// The payload comes first, in this order they are dropped.
    UnderWay {
        payload: P,
        completion: Completion,
    },
    /// Somebody has, or waits for, the result.
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

    /// It is submitted: from now on anybody may take its result.
    pub(crate) fn under_way(&self, completion: Completion, payload: P) {
        *self.lock() = Progress::UnderWay { payload, completion };
        // Some wait for what they could not take yet.
        self.done.0.notify(usize::MAX);
    }

    /// It is concluded, or was never submitted.
    pub(crate) fn over(&self) {
        *self.lock() = Progress::Over;
        self.done.0.notify(usize::MAX);
    }

    /// Blocks until it is over, or gives out what the caller then concludes.
    pub(crate) fn wait(&self) -> Waited<P> {
        loop {
            let listener = self.done.0.listen();
            let mut progress = self.lock();
            match std::mem::replace(&mut *progress, Progress::Taken) {
                Progress::UnderWay { payload, completion } => {
                    drop(progress);
                    return match completion.wait_unless_stuck() {
                        Ok(finished) => Waited::Arrived(finished, payload),
                        Err(stuck) => {
                            // In this order.
                            drop(payload);
                            drop(stuck);
                            Waited::GivenUp
                        }
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

    /// The same for a task. May be dropped at any moment.
    pub(crate) async fn ready(&self, driver: &Driver) -> Option<(Finished, P)> {
        loop {
            let listener = Notified { listener: Some(self.done.0.listen()), driver };
            match self.poll_device() {
                Looked::Over => return None,
                Looked::Arrived(finished, payload) => return Some((finished, payload)),
                Looked::NotYet => listener.await,
            }
        }
    }

    /// A place among those that are told when it is over or has arrived, for a thread or task that waits for something else of it; and
    /// the result if it is there, which the caller then concludes.
    pub(crate) fn listen(&self) -> (EventListener, Option<(Finished, P)>) {
        let listener = self.done.0.listen();
        match self.poll_device() {
            Looked::Arrived(finished, payload) => (listener, Some((finished, payload))),
            Looked::Over | Looked::NotYet => (listener, None),
        }
    }

    /// The result, if it has arrived and nobody has it.
    pub(crate) fn take_arrived(&self) -> Option<(Finished, P)> {
        // Looking may complete other requests.
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

    /// Gives the request up, unless somebody is at it. Says whether it did.
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

    /// Asks the driver; it will wake all who wait.
    fn poll_device(&self) -> Looked<P> {
        let _scope = WakeScope::enter();
        let mut progress = self.lock();
        let Progress::UnderWay { completion, .. } = &mut *progress else {
            return if matches!(*progress, Progress::Over) { Looked::Over } else { Looked::NotYet };
        };
        let waker = Waker::from(self.done.clone());
        let Poll::Ready(finished) = completion.poll(&mut Context::from_waker(&waker)) else {
            return Looked::NotYet;
        };
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::UnderWay { payload, .. } => Looked::Arrived(finished, payload),
            _ => unreachable!("it was under way"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress<P>> {
        lock(&self.progress)
    }
}

/// What came of waiting for a request.
pub(crate) enum Waited<P> {
    Over,
    /// The result, for the caller to conclude.
    Arrived(Finished, P),
    /// A thread that is stuck in the kernel keeps the result of a read to itself. The request is abandoned; the caller says that it is
    /// over.
    GivenUp,
}

/// Whether a request was given up.
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

/// What a look at a request gave.
enum Looked<P> {
    Over,
    Arrived(Finished, P),
    NotYet,
}

/// A place among those who are told of something.
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
            // Leaving takes the list's lock, which in a forked child a thread that is gone may hold.
            std::mem::forget(self.listener.take());
        }
    }
}
