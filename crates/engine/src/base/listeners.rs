//! Listeners: callbacks of the program for pages of a file that left the cache.
//!
//! ```text
//!   pages left ─► no listener? done ─► deferred or inside a listener? queue : call ─► then calls queued meanwhile
//! ```
//!
//! A listener may read, and a read may evict. So a thread that is inside a listener, or has requests staged, only queues the
//! calls, and makes them afterwards: listeners never nest, and none waits for requests that its own thread holds back.
//!
//! Owns: the listeners of a file, when they are called.
//! Does not own: why pages leave.
//! Locks: `listeners`, never while a listener runs or is dropped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
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
