//! Task queue: the futures that a local engine runs beside that of its `block_on`.
//!
//! ```text
//!   waker ─► woken: numbers of tasks, once each ─► block_on is woken ─► beside: its own future, if woken ─► the woken tasks
//! ```
//!
//! Owns: which futures there are, and which of them are to be polled.
//! Does not own: their results (task), the loop and its sleep (`LocalDriver`).
//!
//! Invariants: a future is polled only if it was woken since its last poll. No user code (polls, drops) runs inside a borrow of
//! `slots`, so that it may spawn.
//! Locks: `woken`, for a push or a pop, with nothing inside.
//! Hot path: a wake is one lock and no allocation.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use headwater_io::{contain, lock};

pub(crate) struct TaskQueue {
    woken: Arc<Woken>,
    slots: RefCell<Slots>,
}

impl TaskQueue {
    /// `block_on` is woken by `home`.
    pub(crate) fn new(home: Waker) -> TaskQueue {
        TaskQueue { woken: Arc::new(Woken { home, tasks: Mutex::default() }), slots: RefCell::default() }
    }

    /// The future is polled from the next pass on.
    pub(crate) fn push(&self, future: impl Future<Output = ()> + 'static) {
        let future = Box::pin(future);
        let mut slots = self.slots.borrow_mut();
        let number = slots.free.pop().unwrap_or(slots.all.len());
        let wake =
            Arc::new(TaskWaker { number, is_woken: AtomicBool::new(false), woken: self.woken.clone() });
        wake.wake_by_ref();
        let entry = Slot::Idle(Entry { future, waker: Waker::from(wake.clone()), wake });
        match slots.all.get_mut(number) {
            Some(slot) => *slot = entry,
            None => slots.all.push(entry),
        }
        slots.count += 1;
    }

    /// The future, and before it is ready all others that are woken.
    pub(crate) async fn beside<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let wake = Arc::new(MainWaker { is_woken: AtomicBool::new(true), home: self.woken.home.clone() });
        let waker = Waker::from(wake.clone());
        std::future::poll_fn(|_| {
            if wake.is_woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Poll::Ready(output);
            }
            self.poll_woken();
            Poll::Pending
        })
        .await
    }

    /// Until all others are over.
    pub(crate) async fn idle(&self) {
        std::future::poll_fn(|context| {
            let mut slots = self.slots.borrow_mut();
            if slots.count == 0 {
                return Poll::Ready(());
            }
            slots.idle = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Each once; those that they wake are for the next pass, after the requests were submitted.
    fn poll_woken(&self) {
        let count = lock(&self.woken.tasks).len();
        for _ in 0..count {
            // One at a time: a `block_on` inside of a poll may depend on those that are not polled yet.
            let next = lock(&self.woken.tasks).pop_front();
            let Some(number) = next else { return };
            let Some(entry) = self.slots.borrow_mut().take(number) else { continue };
            self.poll(number, entry);
        }
    }

    fn poll(&self, number: usize, mut entry: Entry) {
        entry.wake.is_woken.store(false, Ordering::Release);
        let mut is_over = true;
        let context = &mut Context::from_waker(&entry.waker);
        // The future contains the panics of what was spawned, but for those of its drop.
        contain(|| is_over = entry.future.as_mut().poll(context).is_ready());
        if is_over {
            contain(|| drop(entry));
            self.slots.borrow_mut().release(number);
        } else {
            self.slots.borrow_mut().put_back(number, entry);
        }
    }
}

impl fmt::Debug for TaskQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.slots.try_borrow().map_or(0, |slots| slots.count);
        f.debug_struct("TaskQueue").field("count", &count).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<usize>,
    /// Of futures that are not over.
    count: usize,
    /// Woken when there are none.
    idle: Option<Waker>,
}

enum Slot {
    Free,
    Idle(Entry),
    /// In a poll; and whether a `block_on` inside of that met it woken.
    Polled {
        is_missed: bool,
    },
}

struct Entry {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    wake: Arc<TaskWaker>,
}

impl Slots {
    fn take(&mut self, number: usize) -> Option<Entry> {
        let slot = &mut self.all[number];
        match mem::replace(slot, Slot::Polled { is_missed: false }) {
            Slot::Idle(entry) => return Some(entry),
            Slot::Polled { .. } => *slot = Slot::Polled { is_missed: true },
            // A waker that outlived its future.
            Slot::Free => *slot = Slot::Free,
        }
        None
    }

    fn put_back(&mut self, number: usize, entry: Entry) {
        if matches!(self.all[number], Slot::Polled { is_missed: true }) {
            entry.wake.woken.push(number);
        }
        self.all[number] = Slot::Idle(entry);
    }

    fn release(&mut self, number: usize) {
        self.all[number] = Slot::Free;
        self.free.push(number);
        self.count -= 1;
        if self.count == 0 {
            self.idle.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// What was woken since the last pass.
struct Woken {
    home: Waker,
    tasks: Mutex<VecDeque<usize>>,
}

impl Woken {
    fn push(&self, number: usize) {
        lock(&self.tasks).push_back(number);
        self.home.wake_by_ref();
    }
}

/// Of a task.
struct TaskWaker {
    number: usize,
    /// Whether its number is in the queue.
    is_woken: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.woken.push(self.number);
        }
    }
}

/// Of the future that `block_on` was called with, so that it is not polled for the sake of others.
struct MainWaker {
    is_woken: AtomicBool,
    home: Waker,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.home.wake_by_ref();
    }
}
