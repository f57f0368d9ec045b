//! Listeners: a program's functions that are called with the pages of a file that left the cache.
//!
//! ```text
//!   pages left ─► nothing listens? done ─► deferred or inside a listener? queue : call ─► then what was queued meanwhile
//! ```
//!
//! A listener may read, and a read may evict. So a thread that is inside a listener, or has requests staged, only notes
//! what left, and calls when it is out of there: listeners never nest, and none waits for what its own thread holds back.
//!
//! Owns: the listeners of a file, when they are called.
//! Does not own: why pages leave.
//! Locks: `listeners`, never while a listener runs or is dropped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headwater_core::units::PageRange;
use headwater_io::{contain, lock};

/// Those of one file.
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
    /// Adds a listener. Says by which number it is removed.
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
        let before = std::mem::replace(&mut *list, after);
        drop(list);
        // The user's values are dropped here, which may do anything.
        drop(before);
    }

    /// These pages left the cache.
    pub(crate) fn tell(self: &Arc<Self>, pages: PageRange) {
        if self.lock().is_empty() {
            return;
        }
        queue(|queue| queue.news.push_back((self.clone(), pages)));
        // Tells it, unless somebody further out will.
        drop(defer());
    }

    fn call(&self, pages: PageRange) {
        let list = self.lock().clone();
        let listening = list.iter().filter(|listening| self.listens(listening.id));
        listening.for_each(|one| contain(|| (one.listener)(pages)));
    }

    /// Not any more if another listener has just dropped its guard.
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

/// As long as this exists, this thread calls no listener; when the outermost is dropped, it calls those it owes. Declared
/// before a `Plug`, so that the requests are handed over first.
#[derive(Debug)]
#[must_use]
pub(crate) struct Deferral(());

/// See [`Deferral`].
pub(crate) fn defer() -> Deferral {
    queue(|queue| queue.deferrals += 1);
    Deferral(())
}

impl Deferral {
    /// Goes on until [`Deferral::left_open`].
    pub(crate) fn leave_open(self) {
        std::mem::forget(self);
    }

    /// One that was left open in this thread.
    pub(crate) fn left_open() -> Deferral {
        Deferral(())
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // Stays until the listeners have run, or panicked: what they make leave is queued.
        let _leave = Leave;
        while !std::thread::panicking() {
            let news = queue(|queue| if queue.deferrals == 1 { queue.news.pop_front() } else { None });
            let Some((listeners, pages)) = news.flatten() else { break };
            listeners.call(pages);
        }
    }
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        queue(|queue| queue.deferrals -= 1);
    }
}

/// What a thread owes.
struct Queue {
    deferrals: usize,
    news: VecDeque<(Arc<Listeners>, PageRange)>,
}

thread_local! {
    static QUEUE: RefCell<Queue> = const { RefCell::new(Queue { deferrals: 0, news: VecDeque::new() }) };
}

/// `None` in a thread that is ending, which tells nobody any more.
fn queue<T>(change: impl FnOnce(&mut Queue) -> T) -> Option<T> {
    QUEUE.try_with(|queue| change(&mut queue.borrow_mut())).ok()
}
