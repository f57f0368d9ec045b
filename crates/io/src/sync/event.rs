//! Event: something that threads and tasks wait for, and the wakers of tasks.
//!
//! ```text
//!   notify, with the list's lock: wakers are noted ─► the outermost scope of this thread ends ─► they run, one after the other
//! ```
//!
//! A waker is user code: it may poll its task at once and so re-enter this module, drop the last handle of an engine, or panic. So
//! no waker runs while its thread holds a lock, none runs inside another, and a panic is caught: the thread wakes the others all
//! the same. With `panic = "abort"` it aborts.
//!
//! Owns: when wakers run and are dropped.
//! Does not own: the list of listeners (event-listener).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use event_listener::Listener;

use crate::sync::{AtomicBool, Ordering, fence};

/// Something that threads and tasks wait for, without order or count.
#[derive(Debug, Default)]
pub struct Event {
    listeners: event_listener::Event,
    interest: Interest,
}

impl Event {
    /// An event without listeners.
    pub fn new() -> Event {
        Event::default()
    }

    /// Begins to wait: no notification from now on is missed.
    pub fn listen(&self) -> EventListener {
        let listener = self.listeners.listen();
        self.interest.announce();
        EventListener(Some(listener))
    }

    /// Ends the waits of `count` listeners, the oldest first. Listeners that were notified before and have not gone on yet count too.
    /// Returns how many it notified.
    #[inline]
    pub fn notify(&self, count: usize) -> usize {
        if self.interest.is_there(count) { self.notify_listeners(count) } else { 0 }
    }

    #[cold]
    fn notify_listeners(&self, count: usize) -> usize {
        let _scope = WakeScope::enter();
        self.listeners.notify(count)
    }
}

/// Whether there may be listeners that were not notified: the list of listeners has a lock, which every notification would take.
///
/// A listener is in the list before it announces itself, and looks at what it waits for after that. A notification of all takes the
/// announcement back before it takes the lock of the list: a listener that it does not find there announces itself later.
#[derive(Debug)]
struct Interest(AtomicBool);

impl Interest {
    /// A listener is in the list.
    fn announce(&self) {
        self.0.store(true, Ordering::SeqCst);
        // What the listener looks at next is what it was before this, or it is notified.
        fence(Ordering::SeqCst);
    }

    /// Whether a notification of `count` listeners has to look at the list.
    #[inline]
    fn is_there(&self, count: usize) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) && self.take(count)
    }

    #[cold]
    fn take(&self, count: usize) -> bool {
        if count == usize::MAX {
            self.0.store(false, Ordering::SeqCst);
        }
        true
    }
}

impl Default for Interest {
    fn default() -> Interest {
        Interest(AtomicBool::new(false))
    }
}

/// A wait for an [`Event`]: of a thread, or as a future of a task.
#[must_use]
pub struct EventListener(Option<event_listener::EventListener>);

impl EventListener {
    /// Blocks until it is notified.
    pub fn wait(mut self) {
        self.0.take().expect("there until it is used").wait();
    }

    /// Blocks until it is notified, or for `timeout`. Returns whether it was notified.
    pub fn wait_timeout(mut self, timeout: Duration) -> bool {
        let _scope = WakeScope::enter();
        self.0.take().expect("there until it is used").wait_timeout(timeout).is_some()
    }
}

impl Future for EventListener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let _scope = WakeScope::enter();
        let waker = Waker::from(Arc::new(Later(Some(context.waker().clone()))));
        Pin::new(self.0.as_mut().expect("there until it is used")).poll(&mut Context::from_waker(&waker))
    }
}

impl Drop for EventListener {
    /// A listener dropped after its notification passes it to the next.
    fn drop(&mut self) {
        let _scope = WakeScope::enter();
        self.0 = None;
    }
}

impl fmt::Debug for EventListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventListener")
    }
}

/// Wakes, and goes, when the thread's outermost scope ends.
struct Later(Option<Waker>);

impl Wake for Later {
    fn wake(mut self: Arc<Self>) {
        match Arc::get_mut(&mut self).and_then(|later| later.0.take()) {
            Some(waker) => wake(waker),
            None => wake(self.0.clone().expect("taken by its only owner")),
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            run_or_defer(Deferred::Drop(waker));
        }
    }
}

/// Wakes a task: at once, or at the end of this thread's outermost scope.
pub(crate) fn wake(waker: Waker) {
    run_or_defer(Deferred::Wake(waker));
}

/// As long as this exists, its thread runs no waker; the outermost runs them when it is dropped. Declared before a lock is taken, so
/// that it is given up first.
#[derive(Debug)]
#[must_use]
pub struct WakeScope(());

impl WakeScope {
    /// Begins.
    #[inline]
    pub fn enter() -> WakeScope {
        let _ = DEFERRED.try_with(|calls| calls.borrow_mut().scopes += 1);
        WakeScope(())
    }

    /// Whether there are wakers to run when this thread's outermost scope ends.
    #[inline]
    pub fn has_wakers(&self) -> bool {
        DEFERRED.try_with(|calls| !calls.borrow().queue.is_empty()) == Ok(true)
    }

    /// Takes these wakers out, for another thread to run.
    pub fn take_wakers(&self) -> TakenWakers {
        TakenWakers(DEFERRED.try_with(|calls| mem::take(&mut calls.borrow_mut().queue)).unwrap_or_default())
    }
}

/// Wakers that no scope runs any more.
#[must_use]
pub struct TakenWakers(VecDeque<Deferred>);

impl TakenWakers {
    /// Runs them, one after the other. A panic is caught.
    pub fn run(self) {
        self.0.into_iter().for_each(Deferred::run);
    }
}

impl fmt::Debug for TakenWakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TakenWakers({})", self.0.len())
    }
}

impl Drop for WakeScope {
    #[inline]
    fn drop(&mut self) {
        let is_done = DEFERRED.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            if calls.scopes > 1 || calls.queue.is_empty() {
                calls.scopes -= 1;
                return true;
            }
            false
        });
        if matches!(is_done, Ok(false)) {
            run_deferred();
        }
    }
}

/// What a wait for a request ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    Done,
    /// Also with wakers that run when the thread's only scope ends.
    DoneOrWakers,
}

impl Until {
    #[inline]
    pub(crate) fn is_interrupted(self) -> bool {
        self == Until::DoneOrWakers
            && DEFERRED.try_with(|calls| {
                let calls = calls.borrow();
                calls.scopes == 1 && !calls.queue.is_empty()
            }) == Ok(true)
    }
}

/// Runs the deferred calls of this thread, including those added meanwhile, and ends the last scope.
#[cold]
fn run_deferred() {
    loop {
        let next = DEFERRED.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            let next = calls.queue.pop_front();
            if next.is_none() {
                calls.scopes -= 1;
            }
            next
        });
        let Ok(Some(deferred)) = next else { return };
        deferred.run();
    }
}

enum Deferred {
    Wake(Waker),
    Drop(Waker),
}

impl Deferred {
    fn run(self) {
        let run = || match self {
            Deferred::Wake(waker) => waker.wake(),
            Deferred::Drop(waker) => drop(waker),
        };
        contain(run);
    }
}

/// Runs user code; a panic reaches the panic hook and is caught.
pub fn contain(run: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { return };
    // Dropping it may panic again.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(payload);
    }
}

/// Calls that a thread runs when its outermost scope ends.
struct DeferredCalls {
    scopes: usize,
    queue: VecDeque<Deferred>,
}

thread_local! {
    static DEFERRED: RefCell<DeferredCalls> = const { RefCell::new(DeferredCalls { scopes: 0, queue: VecDeque::new() }) };
}

fn run_or_defer(deferred: Deferred) {
    let mut deferred = Some(deferred);
    let _ = DEFERRED.try_with(|calls| {
        let mut calls = calls.borrow_mut();
        if calls.scopes > 0 {
            calls.queue.extend(deferred.take());
        }
    });
    // No scope, or a thread that is ending.
    if let Some(deferred) = deferred {
        deferred.run();
    }
}

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What its waker does, with a note of it.
    struct Does<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn waker(does: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker::from(Arc::new(Does(does)))
    }

    /// Goal: wakers run when the outermost scope ends, in order, not within each other, and after one that panics.
    #[test]
    fn wakers_run_when_the_outermost_scope_ends() {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let note = |number| {
            let noted = noted.clone();
            move || noted.lock().unwrap().push(number)
        };
        let scope = WakeScope::enter();
        let (began, ended) = (note(1), note(2));
        wake(waker(move || {
            began();
            wake(waker(|| panic!("a waker that panics")));
            ended();
        }));
        wake(waker(note(3)));
        drop(WakeScope::enter());
        assert!(noted.lock().unwrap().is_empty());
        drop(scope);
        assert_eq!(*noted.lock().unwrap(), [1, 2, 3]);
        wake(waker(note(4)));
        assert_eq!(*noted.lock().unwrap(), [1, 2, 3, 4], "no scope");
    }

    /// Goal: a waker may use the event that wakes it, which has a lock of its own; one that is replaced or not needed any more is dropped
    /// when that lock is free. Method: wakers that notify, and that listen when they are dropped.
    #[test]
    fn a_waker_may_use_its_event() {
        struct Notifies(Arc<Event>);
        impl Drop for Notifies {
            fn drop(&mut self) {
                drop(self.0.listen());
            }
        }
        let event = Arc::new(Event::new());
        let waker = || {
            let notifies = Notifies(event.clone());
            waker(move || _ = notifies.0.notify(usize::MAX))
        };
        let mut listeners: Vec<_> = (0..4).map(|_| event.listen()).collect();
        for listener in &mut listeners {
            for _ in 0..2 {
                assert!(Pin::new(&mut *listener).poll(&mut Context::from_waker(&waker())).is_pending());
            }
        }
        drop(listeners.pop());
        event.notify(1);
        for mut listener in listeners {
            assert!(Pin::new(&mut listener).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
    }
}

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// Goal: a listener sees what it waits for, or is notified. Method: a list with a lock, as event-listener has one; two threads
    /// change something and notify, while one listens.
    #[test]
    fn loom_no_listener_is_missed() {
        loom::model(|| {
            let state = Arc::new((Interest::default(), Mutex::new(None::<bool>), AtomicUsize::new(0)));
            let notifiers = [(); 2].map(|()| {
                let state = state.clone();
                thread::spawn(move || {
                    let (interest, list, changes) = &*state;
                    changes.fetch_add(1, Ordering::Relaxed);
                    if interest.is_there(usize::MAX)
                        && let Some(notified) = list.lock().unwrap().as_mut()
                    {
                        *notified = true;
                    }
                })
            });
            let (interest, list, changes) = &*state;
            *list.lock().unwrap() = Some(false);
            interest.announce();
            let seen = changes.load(Ordering::Relaxed);
            notifiers.into_iter().for_each(|notifier| notifier.join().unwrap());
            let is_notified = *list.lock().unwrap() == Some(true);
            assert!(seen == 2 || is_notified, "{seen} of 2 were seen, and nothing more would be");
        });
    }
}
