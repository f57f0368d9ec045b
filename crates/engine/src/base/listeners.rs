//! Listeners: callbacks of the program for pages of a file that left the cache.
//!
//! ```text
//!   pages left ─► no listener? done ─► deferred or inside a listener? queue : call ─► then calls queued meanwhile
//!              └─ during a poll of `calls_after` ─► kept by the task ─► it releases its lock, or is dropped ─► call
//! ```
//!
//! A listener may read, and a read may evict. So a thread that is inside a listener, or has requests staged, only queues the
//! calls, and makes them afterwards: listeners never nest, and none waits for requests that its own thread holds back. A task keeps them
//! while it holds a lock that a listener may want: a listener that waits for it in the task's own thread would wait for ever.
//!
//! Owns: the listeners of a file, when they are called.
//! Does not own: why pages leave.
//! Locks: `listeners`, never while a listener runs or is dropped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::thread::Builder;

use headwater_core::units::PageRange;
use headwater_io::{TakenWakers, WakeScope, contain, lock, without_signals};

/// The listeners of one file.
#[derive(Default)]
pub(crate) struct Listeners {
    list: Mutex<Arc<[Listening]>>,
}

#[derive(Clone)]
struct Listening {
    id: u64,
    listener: Arc<dyn Fn(PageRange) + Send + Sync>,
}

impl Listeners {
    /// Adds a listener. Returns the number by which it is removed.
    pub(crate) fn add(&self, listener: impl Fn(PageRange) + Send + Sync + 'static) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let listening = Listening { id, listener: Arc::new(listener) };
        self.change(|list| list.iter().cloned().chain([listening]).collect());
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        self.change(|list| list.iter().filter(|listening| listening.id != id).cloned().collect());
    }

    fn change(&self, change: impl FnOnce(&[Listening]) -> Arc<[Listening]>) {
        let mut list = self.lock();
        let after = change(&list);
        let before = mem::replace(&mut *list, after);
        drop(list);
        // Drops the user's values without the lock: their destructors may do anything.
        drop(before);
    }

    /// Calls the listeners with pages that left the cache.
    pub(crate) fn notify(self: &Arc<Self>, pages: PageRange) {
        if self.lock().is_empty() {
            return;
        }
        queue(|queue| queue.news.push_back((self.clone(), pages)));
        // Makes the call now, unless an outer deferral of this thread will.
        drop(defer());
    }

    fn call(&self, pages: PageRange) {
        let list = self.lock().clone();
        let listening = list.iter().filter(|listening| self.listens(listening.id));
        listening.for_each(|one| contain(|| (one.listener)(pages)));
    }

    /// Whether the listener is still registered: another one may have just dropped its guard.
    fn listens(&self, id: u64) -> bool {
        self.lock().iter().any(|listening| listening.id == id)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<[Listening]>> {
        lock(&self.list)
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listeners({})", self.lock().len())
    }
}

/// While this exists, its thread calls no listener; when the outermost is dropped, the thread makes the queued calls. Declare it
/// before a `Plug`, so that the requests are submitted first.
#[derive(Debug)]
#[must_use]
pub(crate) struct Deferral(());

/// See [`Deferral`].
pub(crate) fn defer() -> Deferral {
    queue(|queue| queue.deferrals += 1);
    Deferral(())
}

impl Deferral {
    /// Extends the deferral until [`Deferral::left_open`].
    pub(crate) fn leave_open(self) {
        mem::forget(self);
    }

    /// Takes back a deferral that was left open in this thread.
    pub(crate) fn left_open() -> Deferral {
        Deferral(())
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // Remains until the listeners have run, or panicked: pages that they make leave are queued.
        let _leave = Leave;
        while !std::thread::panicking() {
            let news = queue(|queue| if queue.deferrals == 1 { queue.news.pop_front() } else { None });
            let Some((listeners, pages)) = news.flatten() else { break };
            listeners.call(pages);
        }
    }
}

/// Runs a part of a task that takes the size lock of a file, and releases it at its end. No listener is called before that, nor before
/// the part is dropped.
pub(crate) async fn calls_after<T>(part: impl Future<Output = T>) -> T {
    // Dropped behind the part.
    let mut kept = Kept::default();
    let mut part = pin!(part);
    std::future::poll_fn(|context| kept.during(|| part.as_mut().poll(context))).await
}

/// Calls that a task makes when this is dropped.
#[derive(Default)]
struct Kept {
    news: VecDeque<News>,
}

impl Kept {
    /// Keeps the calls that become due during a poll.
    fn during<T>(&mut self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        let _deferral = defer();
        let queued_before = queue(|queue| mem::take(&mut queue.news)).unwrap_or_default();
        let polled = poll();
        queue(|queue| {
            self.news.append(&mut queue.news);
            queue.news = queued_before;
        });
        polled
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.news.is_empty() {
            queue(|queue| queue.news.append(&mut self.news));
            drop(defer());
        }
    }
}

/// While this exists, its thread runs no code of the program: wakers and listeners run when it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Undisturbed {
    // Wakers run first: they do not block.
    wakers: WakeScope,
    _listeners: Deferral,
}

impl Undisturbed {
    pub(crate) fn enter() -> Undisturbed {
        Undisturbed { wakers: WakeScope::enter(), _listeners: defer() }
    }

    /// Has a thread of its own run what is due by now. Without such a thread, it waits on.
    pub(crate) fn run_elsewhere(&self) {
        if !self.wakers.has_wakers() && queue(|queue| queue.news.is_empty()) != Some(false) {
            return;
        }
        let (calls, taken) = channel::<(TakenWakers, VecDeque<News>)>();
        let run = move || {
            let Ok((wakers, news)) = taken.recv() else { return };
            wakers.run();
            news.into_iter().for_each(|(listeners, pages)| listeners.call(pages));
        };
        if without_signals(|| Builder::new().name("headwater-calls".into()).spawn(run)).is_ok() {
            let news = queue(|queue| mem::take(&mut queue.news)).unwrap_or_default();
            calls.send((self.wakers.take_wakers(), news)).expect("it receives once");
        }
    }
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        queue(|queue| queue.deferrals -= 1);
    }
}

/// The queued calls of a thread.
struct Queue {
    deferrals: usize,
    news: VecDeque<News>,
}

/// Pages that left the cache.
type News = (Arc<Listeners>, PageRange);

thread_local! {
    static QUEUE: RefCell<Queue> = const { RefCell::new(Queue { deferrals: 0, news: VecDeque::new() }) };
}

/// `None` in a thread that is ending, which makes no more calls.
fn queue<T>(change: impl FnOnce(&mut Queue) -> T) -> Option<T> {
    QUEUE.try_with(|queue| change(&mut queue.borrow_mut())).ok()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Waker};

    use headwater_core::units::{PageIndex, PageRange};

    use super::{Listeners, calls_after, defer};

    /// Goal: a part of a task calls listeners when it is ready or dropped, not before, and holds back no call that is not its own. Method:
    /// pages that leave at each poll, between two polls, and before the first one.
    #[test]
    fn a_task_keeps_calls_until_its_part_is_over() {
        let (listeners, calls) = (Arc::new(Listeners::default()), Arc::new(AtomicU64::new(0)));
        let counter = calls.clone();
        listeners.add(move |_| _ = counter.fetch_add(1, Ordering::Relaxed));
        let leave = || listeners.notify(PageRange::new(PageIndex::new(0), PageIndex::new(1)));
        let mut context = Context::from_waker(Waker::noop());
        for polls_max in [1, 3] {
            calls.store(0, Ordering::Relaxed);
            let mut polls = 0;
            let part = poll_fn(|_| {
                polls += 1;
                leave();
                if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
            });
            let mut part = Box::pin(calls_after(part));
            for poll in 1..=polls_max {
                let deferral = defer();
                leave();
                assert_eq!(part.as_mut().poll(&mut context).is_ready(), poll == 3);
                drop(deferral);
                let expected = if poll == 3 { 2 * poll } else { poll };
                assert_eq!(calls.load(Ordering::Relaxed), expected, "poll {poll}");
            }
            drop(part);
            assert_eq!(calls.load(Ordering::Relaxed), 2 * polls_max);
        }
    }
}
