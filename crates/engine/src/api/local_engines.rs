//! Local engines: a local engine for each processor, in a thread that stays there.
//!
//! ```text
//!   spawn(core, work) ─► inbox of the core ─► its thread: work(engine) ─► a future beside others ─► Task, in any thread
//! ```
//!
//! Owns: the threads, where they run, what is handed to them, their end.
//! Does not own: an engine and its futures (local, task queue), outcomes (task).
//!
//! Locks: `inbox.state`, for a push or a swap, with no user code inside.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe, resume_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};

use headwater_io::{lock, stay_on_processor, usable_processors, without_signals};

use crate::api::builder::EngineBuilder;
use crate::api::local::LocalEngine;
use crate::api::task::Task;
use crate::base::error::{Error, Result};
use crate::engine::Engine;

/// A [`LocalEngine`] for each processor, in a thread that stays on it, with a way to hand work over. The engines share nothing.
/// Built by [`LocalEngines::per_processor`], or with settings by
/// [`EngineBuilder::per_processor`].
///
/// There are as many as this thread may use processors, by its affinity and cgroup, when they are built. Where the kernel refuses
/// to keep a thread on its processor, or where the process may use less time than its processors have (a quota of the cgroup), the
/// threads run wherever the kernel puts them; so does a thread after the system has taken its processor from the process.
/// [`LocalEngines::processor`] says where each was placed. The threads block all signals, but for those of faults.
///
/// Dropping it waits for all work that was handed over, detached work and what that has spawned included, then for the engines,
/// which write back what is dirty. In one of its own threads it waits for nothing, and the threads end with their work. In a
/// forked child, which has none of the threads, dropping it does nothing.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![1; 1 << 20])?;
/// use headwater::LocalEngines;
/// let engines = LocalEngines::per_processor()?;
/// let count = engines.count() as u64;
/// let sums = engines.run(move |engine, core| {
///     let path = path.clone();
///     async move {
///         let file = engine.open(&path)?;
///         let part = file.len()? / count;
///         // Two reads in flight, in this thread.
///         let ahead = engine.spawn(file.read_at_async(core as u64 * part + part / 2, (part / 2) as usize));
///         let bytes = file.read_at_async(core as u64 * part, (part / 2) as usize).await?;
///         let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
///         Ok(sum(&bytes) + sum(&ahead.await?))
///     }
/// });
/// let sums: headwater::Result<Vec<u64>> = sums.into_iter().collect();
/// assert_eq!(sums?.len() as u64, count);
///
/// // One piece of work for one core.
/// let driver = engines.spawn(0, |engine| async move { engine.info().driver });
/// println!("{}", driver.wait());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalEngines {
    cores: Vec<Core>,
    process: u32,
}

struct Core {
    inbox: Arc<Inbox>,
    processor: Option<usize>,
    thread: JoinHandle<()>,
}

impl LocalEngines {
    /// [`EngineBuilder::per_processor`] with the settings by default, which are 64 MiB for each
    /// engine.
    ///
    /// # Errors
    /// As [`EngineBuilder::per_processor`].
    pub fn per_processor() -> Result<LocalEngines> {
        Engine::builder().per_processor()
    }

    fn start(builder: &EngineBuilder) -> Result<LocalEngines> {
        let mut engines = LocalEngines { cores: Vec::new(), process: std::process::id() };
        let (report, reports) = channel();
        for place in places() {
            engines.cores.push(Core::start(builder.clone(), place, report.clone())?);
        }
        drop(report);
        // A thread that reports nothing has panicked, which joining it shows.
        for (thread, processor) in reports.iter().collect::<Result<Vec<_>>>()? {
            let core = engines.cores.iter_mut().find(|core| core.thread.thread().id() == thread);
            core.expect("it is one of them").processor = processor;
        }
        Ok(engines)
    }

    /// How many engines there are, at least one.
    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// The number of the processor on which a core's thread stays; `None` if it runs wherever the kernel puts it.
    ///
    /// ```
    /// let engines = headwater::Engine::builder().memory(4 << 20).per_processor()?;
    /// for core in 0..engines.count() {
    ///     match engines.processor(core) {
    ///         Some(processor) => println!("core {core} stays on processor {processor}"),
    ///         None => println!("core {core} runs anywhere"),
    ///     }
    /// }
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    ///
    /// # Panics
    /// If there is no such core.
    pub fn processor(&self, core: usize) -> Option<usize> {
        self.cores[core].processor
    }

    /// Hands work to the thread of a core, from any thread: it makes a future there, which may keep to that thread, as
    /// files and futures of its engine do, and runs beside the others. Returns at once.
    ///
    /// # Panics
    /// If there is no such core; in a forked child, which has none of the threads.
    pub fn spawn<T, F>(
        &self,
        core: usize,
        work: impl FnOnce(Rc<LocalEngine>) -> F + Send + 'static,
    ) -> Task<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        assert_eq!(self.process, std::process::id(), "a forked child has none of its parent's threads");
        let core = &self.cores[core];
        let (task, running) = Task::new(core.thread.thread().id());
        core.inbox.push(Box::new(|engine| {
            let ours = engine.clone();
            // Inside of the future, so that a panic of `work` is one of the task.
            engine.tasks().push(running.run(async move { work(ours).await }));
        }));
        task
    }

    /// Runs the same work on each core, and blocks until all are done. The outputs are in the order of the cores; the work gets
    /// the core's engine and index.
    ///
    /// # Panics
    /// With the first panic of any, after all are done; in one of its own threads, which await what they [spawn](LocalEngines::spawn);
    /// in a forked child.
    pub fn run<T, F>(&self, work: impl Fn(Rc<LocalEngine>, usize) -> F + Clone + Send + 'static) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        assert!(!self.is_own_thread(), "a thread of local engines awaits what it spawns");
        let spawn = |core| {
            let work = work.clone();
            self.spawn(core, move |engine| work(engine, core))
        };
        let tasks: Vec<_> = (0..self.count()).map(spawn).collect();
        let outcomes: Vec<_> = tasks.into_iter().map(Task::wait_caught).collect();
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    }

    fn is_own_thread(&self) -> bool {
        let here = thread::current().id();
        self.cores.iter().any(|core| core.thread.thread().id() == here)
    }
}

impl Drop for LocalEngines {
    fn drop(&mut self) {
        let cores = mem::take(&mut self.cores);
        if self.process != std::process::id() {
            // Locks may be held by threads that do not exist here.
            return mem::forget(cores);
        }
        cores.iter().for_each(|core| core.inbox.close());
        let here = thread::current().id();
        if cores.iter().any(|core| core.thread.thread().id() == here) {
            return;
        }
        for core in cores {
            if let Err(panic) = core.thread.join()
                && !thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

// A panic of a future ends in its thread, as the outcome of its task.
impl UnwindSafe for LocalEngines {}

impl RefUnwindSafe for LocalEngines {}

impl fmt::Debug for LocalEngines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processors: Vec<_> = self.cores.iter().map(|core| core.processor).collect();
        f.debug_struct("LocalEngines").field("processors", &processors).finish_non_exhaustive()
    }
}

impl EngineBuilder {
    /// Builds an engine for each processor that this thread may use, each in a thread that stays there; see [`LocalEngines`]. The
    /// settings, [`EngineBuilder::memory`] among them, are those of each engine.
    ///
    /// # Errors
    /// As [`EngineBuilder::local`]; when a thread cannot be started.
    pub fn per_processor(self) -> Result<LocalEngines> {
        LocalEngines::start(&self)
    }
}

/// Where a thread was placed, as it reports.
type Placed = (thread::ThreadId, Option<usize>);

impl Core {
    fn start(builder: EngineBuilder, place: Option<usize>, report: Sender<Result<Placed>>) -> Result<Core> {
        let inbox = Arc::new(Inbox::default());
        let jobs = inbox.clone();
        let run = move || {
            // Before the engine is built: the kernel places its memory near the processor that first touches it.
            let processor = place.filter(|&place| stay_on_processor(place).is_ok());
            let engine = match builder.local() {
                Ok(engine) => Rc::new(engine),
                // The receiver is gone if another thread has failed before.
                Err(error) => return drop(report.send(Err(error))),
            };
            let _ = report.send(Ok((thread::current().id(), processor)));
            drop(report);
            jobs.serve(&engine);
        };
        let name = place.map_or_else(|| "headwater-core".to_owned(), |place| format!("headwater-{place}"));
        let started = without_signals(|| thread::Builder::new().name(name).spawn(run));
        Ok(Core { inbox, processor: None, thread: started.map_err(Error::build)? })
    }
}

type Job = Box<dyn FnOnce(&Rc<LocalEngine>) + Send>;

/// What was handed to a core and has not begun.
#[derive(Default)]
struct Inbox {
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_closed: bool,
    thread: Option<Waker>,
}

impl Inbox {
    fn push(&self, job: Job) {
        self.change(|state| state.jobs.push_back(job));
    }

    fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut state = lock(&self.state);
        change(&mut state);
        let thread = state.thread.take();
        drop(state);
        thread.into_iter().for_each(Waker::wake);
    }

    /// Begins what arrives, until the inbox is closed and all is over.
    fn serve(&self, engine: &Rc<LocalEngine>) {
        engine.block_on(async {
            while let Some(jobs) = self.next().await {
                jobs.into_iter().for_each(|job| job(engine));
            }
            engine.tasks().idle().await;
        });
    }

    async fn next(&self) -> Option<VecDeque<Job>> {
        std::future::poll_fn(|context| {
            let mut state = lock(&self.state);
            if !state.jobs.is_empty() {
                return Poll::Ready(Some(mem::take(&mut state.jobs)));
            }
            state.thread = Some(context.waker().clone());
            if state.is_closed { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

/// A place for each thread. With less time than its processors have, a process would have some of its threads wait for each other
/// on processors that others use as well.
fn places() -> Vec<Option<usize>> {
    let parallelism = thread::available_parallelism().map_or(1, usize::from);
    match usable_processors() {
        Ok(processors) if processors.len() == parallelism => processors.into_iter().map(Some).collect(),
        _ => vec![None; parallelism],
    }
}
