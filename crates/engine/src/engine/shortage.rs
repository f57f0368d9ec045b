//! Shortage: what a reader or writer without memory waits for.
//!
//! ```text
//!   listen ─► look for memory once more ─┬─ wait: this thread completes the oldest request, or sleeps ──┬─► look again
//!                                        └─ begin: a task is woken when memory comes back or a request ends ─┘
//! ```
//!
//! A request that is over leaves memory: its pages can be evicted. But one that never ends (a network file system whose server does not
//! answer) must not hold up the users of other files. So no wait is for one request alone, none lasts longer than [`LOOK_AGAIN`], and a
//! request as old as [`HELD_UP`](crate::base::shared_completion::HELD_UP) is not waited for.
//!
//! Owns: what is waited for, and how long.
//! Does not own: the order in which memory is looked for (frames), what its callers do without.
//! Locks: `timer` while one is begun.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use headwater_io::{Arena, Call, Calling, Driver, EventListener, Returned, lock};

use crate::base::listeners::Undisturbed;
use crate::base::shared_completion::Notified;
use crate::engine::Shared;

/// A wait for memory: of a thread, or of a task.
#[derive(Debug)]
pub(crate) struct Shortage(EventListener);

impl Shortage {
    /// Begins to wait: before the last look for memory, or while a request is under way that leaves some.
    pub(crate) fn listen(shared: &Shared) -> Shortage {
        Shortage(shared.arena.freed())
    }

    /// Blocks until there may be memory. The thread meanwhile completes requests, its own on a local driver as well.
    pub(crate) fn wait(self, shared: &Shared) {
        shared.driver.attend();
        match (shared.cache.loads.oldest_moving(), shared.cache.writes.oldest_moving()) {
            (Some(load), write) if write.as_ref().is_none_or(|write| load.began() <= write.began) => {
                shared.cache.loads.wait_at_most(&load, LOOK_AGAIN);
            }
            (_, Some(write)) => shared.cache.writes.wait_at_most(&write, LOOK_AGAIN),
            _ if shared.driver.reap_own(LOOK_AGAIN) => {}
            _ => _ = self.0.wait_timeout(LOOK_AGAIN),
        }
    }

    /// What a task waits for until there may be memory.
    pub(crate) fn begin(self, shared: &Shared) -> Waiting {
        shared.driver.attend();
        let (loads, writes) = (&shared.cache.loads, &shared.cache.writes);
        let ended = loads.announce_in(&shared.arena) + writes.announce_in(&shared.arena);
        if ended == 0 {
            shared.look_again.begin(shared);
        }
        let notified = || Notified { listener: Some(self.0), driver: shared.driver.clone() };
        Waiting { notified: (ended == 0).then(notified), has_yielded: ended > 0 }
    }
}

/// Resolves when there may be memory. Where memory has come back meanwhile, other tasks run first, so that no task looks for it again and
/// again. May be dropped at any moment.
pub(crate) struct Waiting {
    /// `None` if there may be some already.
    notified: Option<Notified<Driver>>,
    has_yielded: bool,
}

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(notified) = &mut self.notified {
            if Pin::new(notified).poll(context).is_pending() {
                self.has_yielded = true;
                return Poll::Pending;
            }
            self.notified = None;
        }
        if std::mem::replace(&mut self.has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// Ends the waits of tasks: one timer for all of an engine.
#[derive(Default)]
pub(crate) struct LookAgain {
    timer: Arc<Mutex<Option<Timer>>>,
}

type Timer = Calling<Returned<(), ()>>;

impl LookAgain {
    /// Wakes all that wait for memory after [`LOOK_AGAIN`] at the latest, where the driver has a place for a timer.
    fn begin(&self, shared: &Shared) {
        let _undisturbed = Undisturbed::enter();
        let mut timer = lock(&self.timer);
        let waker = Waker::from(Arc::new(Elapsed(Arc::downgrade(&self.timer), shared.arena.clone())));
        // One under way is polled again: simulated time passes in polls alone.
        let under_way = timer.take();
        let was_under_way = under_way.is_some();
        let mut begun = under_way.unwrap_or_else(|| shared.driver.call(Call::timeout(LOOK_AGAIN)));
        if Pin::new(&mut begun).poll(&mut Context::from_waker(&waker)).is_pending() {
            *timer = Some(begun);
        } else if was_under_way {
            // It may have ended between two of its wakers: nothing else announces that.
            shared.arena.announce();
        }
        drop(timer);
        forget_if_over(&self.timer);
    }
}

/// Frees the timer's place in the queue. If another thread begins one meanwhile, that thread does this afterwards.
fn forget_if_over(timer: &Mutex<Option<Timer>>) {
    if let Ok(mut timer) = timer.try_lock()
        && timer.as_ref().is_some_and(Calling::is_done)
    {
        *timer = None;
    }
}

impl fmt::Debug for LookAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LookAgain")
    }
}

/// The timer is over. Its request holds this, and so must not be held by it.
struct Elapsed(Weak<Mutex<Option<Timer>>>, Arena);

impl Wake for Elapsed {
    fn wake(self: Arc<Self>) {
        let Elapsed(timer, arena) = &*self;
        timer.upgrade().iter().for_each(|timer| forget_if_over(timer));
        arena.announce();
    }
}

/// The longest wait before memory is looked for again. Most devices answer sooner.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
