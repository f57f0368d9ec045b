//! Task: a future that runs in the thread of a local engine, from outside: what waits for it, and may cancel it.
//!
//! ```text
//!   Task ── outcome ◄── Running, around the future, in the engine's thread
//!     └──── dropped ──► woken: drops the future
//! ```
//!
//! Owns: the outcome, its waiter, cancellation.
//! Does not own: polling (task queue).
//!
//! States: Running -> Over [`Running::run`], Running -> Lost [its drop], Over -> Taken [`Task`]. The future is dropped before.
//! Locks: `state`, for a move, with no user code inside.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};

use headwater_io::{contain, lock};

/// What [`LocalEngine::spawn`](crate::LocalEngine::spawn) and [`LocalEngines::spawn`](crate::LocalEngines::spawn) have begun: awaited
/// on any executor, or waited for by a thread, for its output.
///
/// A panic of the future comes out here, where it is awaited. Dropping the task cancels it: the future is dropped in its own thread
/// instead of being polled again, or never made; [`Task::detach`] lets it run.
///
/// # Panics
/// When awaited: with the panic of the future; if its engine was dropped before it was over; if polled again after it was ready.
#[must_use = "dropping a task cancels it; `detach` lets it run"]
pub struct Task<T> {
    /// `None` once the output was taken, or detached.
    shared: Option<Arc<Shared<T>>>,
}

impl<T> Task<T> {
    /// A task of the engine in the thread `home`, and what has to run there.
    pub(crate) fn new(home: ThreadId) -> (Task<T>, Running<T>) {
        let state = Mutex::new(State { outcome: Outcome::Running, waiter: None, runner: None });
        let shared = Arc::new(Shared {
            state,
            is_cancelled: AtomicBool::new(false),
            home,
            process: std::process::id(),
        });
        (Task { shared: Some(shared.clone()) }, Running(shared))
    }

    /// Blocks this thread until the future is over.
    ///
    /// ```
    /// let engines = headwater::Engine::builder().memory(4 << 20).per_processor()?;
    /// let task = engines.spawn(0, async |engine| engine.open("/proc/self/status")?.read_at_async(0, 5).await);
    /// assert_eq!(task.wait()?, &b"Name:"[..]);
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    /// # Panics
    /// As when it is awaited; in the thread that runs the future, which can only await it; in a forked child.
    pub fn wait(self) -> T {
        self.wait_caught().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The same with its panic, if that is its outcome.
    pub(crate) fn wait_caught(mut self) -> thread::Result<T> {
        let shared = self.shared.as_ref().expect(TAKEN);
        assert_ne!(shared.home, thread::current().id(), "the thread of a local engine awaits its tasks");
        assert_eq!(shared.process, std::process::id(), "a forked child has none of its parent's tasks");
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(outcome) = self.poll_caught(&mut Context::from_waker(&waker)) {
                return outcome;
            }
            thread::park();
        }
    }

    /// Lets the future run to its end. Its output is dropped, and a panic goes no further than the panic hook.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// let engine = headwater::Engine::builder().local()?;
    /// let (sender, receiver) = channel();
    /// engine.spawn(async move { sender.send("detached").expect("it is received") }).detach();
    /// let task = engine.spawn(async { 42 });
    /// assert!(!task.is_finished(), "its thread is here");
    /// assert_eq!(engine.block_on(task), 42);
    /// assert_eq!(receiver.recv()?, "detached");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detach(mut self) {
        self.shared = None;
    }

    /// Whether the future is over, so that waiting would return at once.
    pub fn is_finished(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| !matches!(lock(&shared.state).outcome, Outcome::Running))
    }

    fn poll_caught(&mut self, context: &mut Context<'_>) -> Poll<thread::Result<T>> {
        let mut state = lock(&self.shared.as_ref().expect(TAKEN).state);
        match std::mem::replace(&mut state.outcome, Outcome::Taken) {
            Outcome::Running => {
                state.outcome = Outcome::Running;
                let before = state.waiter.replace(context.waker().clone());
                drop(state);
                drop(before);
                Poll::Pending
            }
            Outcome::Over(outcome) => {
                drop(state);
                self.shared = None;
                Poll::Ready(outcome)
            }
            Outcome::Lost | Outcome::Taken => panic!("the engine of this task ended before it"),
        }
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.poll_caught(context).map(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        // In a child the lock may be held by a thread that does not exist.
        if let Some(shared) = self.shared.take().filter(|shared| shared.process == std::process::id()) {
            shared.is_cancelled.store(true, Ordering::Release);
            let runner = lock(&shared.state).runner.take();
            runner.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    is_cancelled: AtomicBool,
    home: ThreadId,
    process: u32,
}

struct State<T> {
    outcome: Outcome<T>,
    waiter: Option<Waker>,
    /// Of the future, from its first poll on.
    runner: Option<Waker>,
}

enum Outcome<T> {
    Running,
    Over(thread::Result<T>),
    /// Dropped before it was over.
    Lost,
    Taken,
}

/// The half of a task that the engine's thread has. If it is dropped first, the waiter hears of that.
pub(crate) struct Running<T>(Arc<Shared<T>>);

impl<T> Running<T> {
    /// The future, until it is over, panics or is cancelled.
    pub(crate) async fn run(self, future: impl Future<Output = T>) {
        let outcome = {
            let mut future = pin!(future);
            std::future::poll_fn(|context| self.poll(future.as_mut(), context)).await
        };
        if let Some(outcome) = outcome {
            self.end(Outcome::Over(outcome));
        }
    }

    /// Ready with nothing if it is cancelled.
    fn poll(
        &self,
        future: Pin<&mut impl Future<Output = T>>,
        context: &mut Context<'_>,
    ) -> Poll<Option<thread::Result<T>>> {
        let has_runner = lock(&self.0.state)
            .runner
            .get_or_insert_with(|| context.waker().clone())
            .will_wake(context.waker());
        debug_assert!(has_runner, "a task has one waker");
        if self.0.is_cancelled.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Some(Ok(output))),
            Err(panic) => Poll::Ready(Some(Err(panic))),
        }
    }

    fn end(&self, outcome: Outcome<T>) {
        let mut state = lock(&self.0.state);
        if matches!(state.outcome, Outcome::Running) {
            state.outcome = outcome;
        }
        let (waiter, runner) = (state.waiter.take(), state.runner.take());
        drop(state);
        drop(runner);
        contain(|| waiter.into_iter().for_each(Waker::wake));
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.end(Outcome::Lost);
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

const TAKEN: &str = "a task is not polled after it was ready";
