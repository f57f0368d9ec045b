//! Opening: a path becomes a file without the executor waiting for a device.
//!
//! ```text
//!   openat2(O_PATH, RESOLVE_CACHED) ─┬─ the kernel knows all of the path ─► opened here
//!                                    └─ it has to ask a device ──────────► opened by a thread of ours ─► the task is woken
//! ```
//!
//! The probe takes two system calls, a tenth of what waking another thread does, and nearly always suffices. On a network file system the
//! kernel may know a path and ask the server all the same when it opens the file: the executor then waits for that.
//!
//! Owns: the choice, the threads.
//! Does not own: which files are opened (store).
//! Locks: one around the queue, held across no system call but those of the condition variable. A forked child has a queue of its own.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use headwater::{Engine, File, OpenOptions};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use tokio::sync::oneshot;

/// Opens a file for reading. May be dropped at any moment.
pub(crate) async fn open(engine: &Engine, path: &Path) -> headwater::Result<File> {
    match lookup(path) {
        Lookup::Cached => open_here(engine, path),
        Lookup::Unknown => open_elsewhere(engine.clone(), path.to_owned()).await,
    }
}

/// Whether the kernel can tell without a device where a path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lookup {
    /// It can, or can tell why it leads nowhere.
    Cached,
    Unknown,
}

fn lookup(path: &Path) -> Lookup {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        // `AGAIN` is the answer; the others are those of kernels before 5.12 and of filters of system calls.
        Err(Errno::AGAIN | Errno::NOSYS | Errno::INVAL | Errno::PERM) => Lookup::Unknown,
        Ok(_) | Err(_) => Lookup::Cached,
    }
}

fn open_here(engine: &Engine, path: &Path) -> headwater::Result<File> {
    OpenOptions::new().engine(engine).open(path)
}

async fn open_elsewhere(engine: Engine, path: PathBuf) -> headwater::Result<File> {
    let (answer, opened) = oneshot::channel();
    let job: Job = {
        let (engine, path) = (engine.clone(), path.clone());
        // A dropped receiver: the task has given up, and the file is closed.
        Box::new(move || drop(answer.send(open_here(&engine, &path))))
    };
    match Openers::of_this_process() {
        Some(openers) => openers.run(job),
        None => job(),
    }
    match opened.await {
        Ok(opened) => opened,
        // The thread has panicked.
        Err(_) => open_here(&engine, &path),
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that begin with work and end without.
struct Openers {
    queue: Mutex<Queue>,
    work: Condvar,
}

struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// One for each generation of processes that opens files. A forked child has what its parent's openers count, and perhaps their lock as a
/// thread held it, but none of their threads.
static OPENERS: [Openers; GENERATIONS] = [const { Openers::new() }; GENERATIONS];

/// The id of the process that opened a file last, in the low half; its generation, from 1, in the high half.
static USER: AtomicU64 = AtomicU64::new(0);

impl Openers {
    const fn new() -> Openers {
        let queue = Queue { jobs: VecDeque::new(), threads: 0, idle: 0 };
        Openers { queue: Mutex::new(queue), work: Condvar::new() }
    }

    /// Those that no other process has used; `None` behind the last generation. Takes no lock: a child may inherit it locked.
    fn of_this_process() -> Option<&'static Openers> {
        let process = u64::from(process::id());
        let mut user = USER.load(Ordering::Relaxed);
        if user & u64::from(u32::MAX) != process {
            let next = (((user >> 32) + 1) << 32) | process;
            // If another thread was faster, it has stored the same.
            let _ = USER.compare_exchange(user, next, Ordering::Relaxed, Ordering::Relaxed);
            user = next;
        }
        OPENERS.get((user >> 32) as usize - 1)
    }

    fn run(&'static self, job: Job) {
        let mut queue = self.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == THREADS_MAX {
            self.work.notify_one();
            return;
        }
        queue.threads += 1;
        drop(queue);
        if self.start().is_err() {
            // Without a thread the caller works itself.
            self.lock().threads -= 1;
            while let Some(job) = self.take_now() {
                job();
            }
        }
    }

    fn start(&'static self) -> io::Result<()> {
        thread::Builder::new().name("headwater-open".to_owned()).spawn(|| self.work()).map(drop)
    }

    fn work(&self) {
        while let Some(job) = self.take() {
            // A panic of one job is told to its task by the dropped sender; the thread lives on for the others.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    }

    fn take_now(&self) -> Option<Job> {
        self.lock().jobs.pop_front()
    }

    /// The next job. Without one for some time, the thread is counted as ended.
    fn take(&self) -> Option<Job> {
        let mut queue = self.lock();
        queue.idle += 1;
        let is_empty = |queue: &mut Queue| queue.jobs.is_empty();
        let waited = self.work.wait_timeout_while(queue, IDLE, is_empty);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.idle -= 1;
        let job = queue.jobs.pop_front();
        if job.is_none() {
            queue.threads -= 1;
        }
        job
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than programs fork one in another and read in each. What comes behind opens files in the threads that ask.
const GENERATIONS: usize = 8;

/// Many more than have a disk look up several folders at once: openings on a server that has gone hang, and others are not to wait for
/// them. Idle ones end.
const THREADS_MAX: usize = 64;

/// Longer than between two openings of a query, shorter than a user looks at the list of threads.
const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_testkit::{block_on, run_forked, watched};

    /// Goal: threads open many files at once, more than there are threads, report errors, and a dropped task leaves nothing.
    #[test]
    fn threads_open_and_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"abc").unwrap();
        let engine = Engine::builder().memory(8 << 20).build().unwrap();
        watched("opening", || {
            let many: Vec<_> = (0..20).map(|_| open_elsewhere(engine.clone(), path.clone())).collect();
            drop(open_elsewhere(engine.clone(), path.clone()));
            block_on(futures_util::future::join_all(many)).into_iter().for_each(|file| assert!(file.is_ok()));
            let missing = block_on(open_elsewhere(engine.clone(), folder.path().join("missing")));
            assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        });
        assert!(Openers::of_this_process().unwrap().lock().threads <= THREADS_MAX);
    }

    /// Goal: a forked child opens files, and so does each of a line of descendants longer than there are generations. Method: a fork while
    /// a thread is idle, which the child does not have; a line of forks while the lock is held, which the child cannot take.
    #[test]
    fn a_forked_child_opens_by_threads_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"abc").unwrap();
        watched("opening in children", || {
            let openers = Openers::of_this_process().unwrap();
            while openers.lock().idle == 0 {
                open_by_thread(&path);
            }
            run_forked(|| open_by_thread(&path));
            let locked = openers.lock();
            open_in_descendants(&path, GENERATIONS + 1);
            drop(locked);
        });
    }

    fn open_by_thread(path: &Path) {
        let engine = Engine::builder().memory(8 << 20).build().unwrap();
        assert!(block_on(open_elsewhere(engine, path.to_owned())).is_ok());
    }

    fn open_in_descendants(path: &Path, generations: usize) {
        run_forked(|| {
            open_by_thread(path);
            if generations > 1 {
                open_in_descendants(path, generations - 1);
            }
        });
    }

    /// Goal: openings that hang, as on a server that has gone, keep no others waiting. Method: jobs that wait for the test.
    #[test]
    fn openings_that_hang_keep_no_others_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"abc").unwrap();
        let openers = Openers::of_this_process().unwrap();
        // Dropping these ends the jobs, also where the test fails.
        let hung: Vec<_> = (0..32)
            .map(|_| {
                let (release, released) = std::sync::mpsc::channel::<()>();
                openers.run(Box::new(move || _ = released.recv()));
                release
            })
            .collect();
        watched("opening beside what hangs", || open_by_thread(&path));
        drop(hung);
    }

    /// Goal: a path that was just used needs no thread, nor does one that just led nowhere.
    #[test]
    fn what_the_kernel_knows_is_opened_here() {
        let folder = tempfile::tempdir().unwrap();
        let (path, missing) = (folder.path().join("file"), folder.path().join("missing"));
        std::fs::write(&path, b"abc").unwrap();
        assert!(std::fs::metadata(&path).is_ok() && std::fs::metadata(&missing).is_err());
        if openat2(CWD, "/", OFlags::PATH, Mode::empty(), ResolveFlags::CACHED).is_err() {
            return headwater_testkit::skip("the kernel does not tell what it knows of paths");
        }
        // A rename anywhere on the machine may make the kernel give up a lookup.
        let is_cached = |path: &Path| (0..1000).any(|_| lookup(path) == Lookup::Cached);
        assert!(is_cached(&path) && is_cached(&missing));
    }
}
