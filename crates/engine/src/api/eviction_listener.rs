//! Listeners: users who want to know which pages of a file left the cache.
//!
//! ```text
//!   pages left ─► nobody listens? done ─► deferred or inside a listener? queue : call ─► then what was queued meanwhile
//! ```
//!
//! A listener may read, and a read may evict. So a thread that is inside a listener, or has requests staged, only notes
//! what left, and calls when it is out of there: listeners never nest, and none waits for what its own thread holds back.
//!
//! Owns: who listens, when they are called.
//! Does not own: why pages leave.
//! Locks: `listeners`, never while a listener runs or is dropped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_core::units::PageRange;
use headwater_io::contain;
use os_display::Quotable;

use crate::api::file::{Contents, File};

impl File {
    /// Has `listener` called with pages of this file after they left the cache, until the guard is dropped: to make room,
    /// on [`Advice::DontNeed`](crate::Advice::DontNeed) or [`Advice::NoReuse`](crate::Advice::NoReuse), or because the file
    /// had changed. Pages that follow each other are told together. A file that is not cached never calls.
    ///
    /// It is called by whichever thread made the pages leave, before that thread's read or advice returns, with no lock
    /// held: it may use this file and any other, but must not block long, in a thread that runs tasks not at all. It is not called while it runs in the same
    /// thread; what leaves meanwhile is told afterwards. So a listener that reads what has just left, while the cache is
    /// full, keeps its thread busy without end. Several threads may call it at once.
    ///
    /// A page that failed to load never was in the cache, and is not told. A page may be back by the time of the call. A panic of the
    /// listener is reported by the panic hook and goes no further, where panics unwind.
    ///
    /// The guard keeps the file open. A call that another thread has begun may still be running when it has been dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use headwater::{Advice, Caching, OpenOptions};
    /// let file = OpenOptions::new().caching(Caching::On).open(&path)?;
    /// let left = Arc::new(AtomicU64::new(0));
    /// let counter = left.clone();
    /// let guard = file.on_evicted(move |pages| {
    ///     counter.fetch_add(pages.len().get(), Ordering::Relaxed);
    /// });
    /// file.read_at(&mut [0; 4096], 0)?;
    /// file.advise_all(Advice::DontNeed)?;
    /// assert_eq!(left.load(Ordering::Relaxed), file.stats().counts.evictions);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_evicted(&self, listener: impl Fn(PageRange) + Send + Sync + 'static) -> EvictionListener {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Some(listeners) = listeners(self) {
            listeners.add(Listening { id, listener: Arc::new(listener) });
        }
        EvictionListener { file: self.clone(), id }
    }
}

/// Keeps a listener registered; see [`File::on_evicted`].
#[must_use = "the listener is called no more once this is dropped"]
pub struct EvictionListener {
    file: File,
    id: u64,
}

impl Drop for EvictionListener {
    fn drop(&mut self) {
        if let Some(listeners) = listeners(&self.file) {
            listeners.remove(self.id);
        }
    }
}

impl fmt::Debug for EvictionListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EvictionListener({})", self.file.path().maybe_quote())
    }
}

fn listeners(file: &File) -> Option<&Arc<Listeners>> {
    match &file.contents {
        // In a forked child, a thread that is not there may hold the list.
        Contents::Stored(source) if source.shared().driver.is_forked() => None,
        Contents::Stored(source) => source.inode.as_ref().map(|inode| &inode.listeners),
        Contents::Memory(_) => None,
    }
}

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
    fn add(&self, listening: Listening) {
        self.change(|list| list.iter().cloned().chain([listening]).collect());
    }

    fn remove(&self, id: u64) {
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
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
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
