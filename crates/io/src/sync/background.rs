//! Background: a thread for work that no caller waits for, from the first call until the stop.
//!
//! ```text
//!   call ─► started, once ─► round ─► pause ─┬─ for a time, or until called ─► round
//!                                            └─ until called ─┬─ note meanwhile? once more, after a while
//!                                                             └─ sleeps
//!   stop ─► the round under way ends ─► joined, unless it is this thread that stops it
//! ```
//!
//! A call wakes the thread. A note does not: it sets a flag, which the thread reads before it sleeps, so that a note to a busy
//! thread costs no system call.
//!
//! Owns: the thread; the promise that no call is lost and that no round begins after the stop.
//! Does not own: what a round does.
//! Locks: `thread` while it is started; `call` alone. Neither while working.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{
    AtomicBool, Condvar, JoinHandle, Mutex, MutexGuard, Ordering, fence, spawn, thread, unpoisoned,
    wait_timeout,
};

/// A thread that starts with the first work for it. It is stopped by [`Background::stop`], not by dropping this.
pub struct Background {
    name: &'static str,
    stack_bytes: usize,
    is_started: AtomicBool,
    thread: Mutex<Option<JoinHandle>>,
    calls: Arc<Calls>,
}

/// How long the thread pauses between two rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// At most this long; a call ends the pause.
    AtMost(Duration),
    /// Until it is called; at most this long if news have come since the round began.
    UntilCalled(Duration),
    /// The thread ends.
    ForEver,
}

/// Wakes a [`Background`] thread. Its holder need not know what the thread does.
#[derive(Clone)]
pub struct BackgroundWaker(Arc<Calls>);

/// How a thread is called.
struct Calls {
    call: Mutex<Call>,
    called: Condvar,
    /// Whether it waits for a call alone. Before it does, it looks at `has_news`, which is set before the look here.
    is_resting: AtomicBool,
    /// Whether there were news since it last looked.
    has_news: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    None,
    Work,
    Stop,
}

impl Background {
    /// No thread yet.
    pub fn new(name: &'static str, stack_bytes: usize) -> Background {
        let calls = Calls {
            call: Mutex::new(Call::None),
            called: Condvar::new(),
            is_resting: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
        };
        let (is_started, thread) = (AtomicBool::new(false), Mutex::new(None));
        Background { name, stack_bytes, is_started, thread, calls: Arc::new(calls) }
    }

    /// Notes new work, which the caller has put in place already. Returns whether the thread sleeps and has to be called.
    #[must_use]
    pub fn note(&self) -> bool {
        if !self.is_started.load(Ordering::Acquire) {
            return true;
        }
        if !self.calls.has_news.load(Ordering::Relaxed) {
            self.calls.has_news.swap(true, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        self.calls.is_resting.load(Ordering::Relaxed)
    }

    /// Has the thread do a round from now on, if it is not stopped. The first call starts it, with rounds that `rounds` makes; if the
    /// system has no thread for it, the next call tries again.
    pub fn call<R: FnMut() -> Pause + Send + 'static>(&self, rounds: impl FnOnce() -> R) {
        if !self.is_started.load(Ordering::Acquire) {
            let mut thread = locked(&self.thread);
            if !self.is_started.load(Ordering::Relaxed) {
                *thread = self.start(rounds()).ok();
                self.is_started.store(thread.is_some(), Ordering::Release);
            }
        }
        self.calls.send(Call::Work);
    }

    fn start(&self, mut round: impl FnMut() -> Pause + Send + 'static) -> io::Result<JoinHandle> {
        let calls = self.calls.clone();
        spawn(self.name, self.stack_bytes, move || {
            let mut pause = Pause::UntilCalled(Duration::ZERO);
            while calls.wait(pause) == Call::Work {
                pause = round();
            }
        })
    }

    /// A handle that wakes the thread once it is started.
    pub fn waker(&self) -> BackgroundWaker {
        BackgroundWaker(self.calls.clone())
    }

    /// No round begins from now on, and none is under way when this returns, but in the thread itself.
    pub fn stop(&self) {
        self.calls.send(Call::Stop);
        let thread = locked(&self.thread).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl BackgroundWaker {
    /// Has the thread do a round.
    pub fn wake(&self) {
        self.0.send(Call::Work);
    }
}

impl Calls {
    fn send(&self, call: Call) {
        let mut now = locked(&self.call);
        if *now != Call::Stop {
            *now = call;
        }
        drop(now);
        self.called.notify_all();
    }

    /// Waits until a round is due, or it is stopped.
    fn wait(&self, pause: Pause) -> Call {
        let tick = match pause {
            Pause::AtMost(time) => {
                // The next round sees them.
                self.has_news.store(false, Ordering::Relaxed);
                Some(time)
            }
            Pause::UntilCalled(time) => self.rest_unless_news().then_some(time),
            Pause::ForEver => return Call::Stop,
        };
        let mut call = locked(&self.call);
        while *call == Call::None {
            let Some(tick) = tick else {
                call = unpoisoned(self.called.wait(call));
                continue;
            };
            call = wait_timeout(&self.called, &self.call, call, tick);
            break;
        }
        self.is_resting.store(false, Ordering::Relaxed);
        if *call == Call::Stop {
            return Call::Stop;
        }
        *call = Call::None;
        Call::Work
    }

    /// From now on the thread has to be called, unless there was a note, which this returns.
    fn rest_unless_news(&self) -> bool {
        self.is_resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let has_news = self.has_news.swap(false, Ordering::AcqRel);
        if has_news {
            self.is_resting.store(false, Ordering::Relaxed);
        }
        has_news
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Background({})", self.name)
    }
}

impl fmt::Debug for BackgroundWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackgroundWaker")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Condvar, Mutex};

    use super::*;

    fn model(run: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(run);
    }

    fn background() -> Arc<Background> {
        Arc::new(Background::new("", 0))
    }

    const REST: Pause = Pause::UntilCalled(Duration::ZERO);

    /// Goal: what is noted, or called for, while the thread is about to rest is seen. Method: a thread that rests after each round;
    /// something new, and a wait for the round that sees it.
    #[test]
    fn loom_news_are_seen() {
        model(|| {
            let (background, news) = (background(), Arc::new(AtomicBool::new(false)));
            let seen = Arc::new((Mutex::new(false), Condvar::new()));
            let rounds = || {
                let (news, seen) = (news.clone(), seen.clone());
                move || {
                    if news.load(Ordering::Relaxed) {
                        *seen.0.lock().unwrap() = true;
                        seen.1.notify_all();
                    }
                    REST
                }
            };
            background.call(rounds);
            news.store(true, Ordering::Relaxed);
            if background.note() {
                background.call(rounds);
            }
            let mut is_seen = seen.0.lock().unwrap();
            while !*is_seen {
                is_seen = seen.1.wait(is_seen).unwrap();
            }
            drop(is_seen);
            background.stop();
        });
    }

    /// What users share; the last one to go stops the thread, and what they had is gone.
    struct Users {
        background: Arc<Background>,
        is_gone: Arc<AtomicBool>,
    }

    impl Users {
        fn new() -> Arc<Users> {
            Arc::new(Users { background: background(), is_gone: Arc::new(AtomicBool::new(false)) })
        }

        /// Has a round done, which has what it works on.
        fn call(&self) {
            let is_gone = self.is_gone.clone();
            self.background.call(|| {
                move || {
                    assert!(!is_gone.load(Ordering::Relaxed));
                    REST
                }
            });
        }
    }

    impl Drop for Users {
        fn drop(&mut self) {
            self.background.stop();
            self.is_gone.store(true, Ordering::Relaxed);
        }
    }

    /// Goal: when the last user goes, the thread ends, whether it is started, works or rests, and works on nothing that is gone. Method:
    /// two users that call it and go; it is called once more, by a thread that is no user.
    #[test]
    fn loom_the_last_user_stops_it() {
        model(|| {
            let user = Users::new();
            let (other, waker) = (user.clone(), user.background.waker());
            let other = loom::thread::spawn(move || {
                other.call();
                drop(other);
                waker.wake();
            });
            user.call();
            drop(user);
            other.join().unwrap();
        });
    }

    /// Goal: the thread may stop itself, beside other users that go. Method: a round that has a user.
    #[test]
    fn loom_it_stops_itself() {
        model(|| {
            let user = Users::new();
            let mut own = Some(user.clone());
            let is_gone = user.is_gone.clone();
            user.background.call(|| {
                move || {
                    assert!(own.is_none() || !is_gone.load(Ordering::Relaxed));
                    own = None;
                    REST
                }
            });
            drop(user);
        });
    }
}
