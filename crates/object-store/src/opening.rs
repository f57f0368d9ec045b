//! Opening: a path becomes a file without the executor waiting for a device or a server.
//!
//! ```text
//!   openat2(O_PATH, RESOLVE_CACHED) ─┬─ the kernel knows all of the path, on a file system that answers by itself ─► opened here
//!                                    └─ it has to ask a device, or a server ──► opened by a thread of ours ─► the task is woken
//! ```
//!
//! The probe takes three system calls, a tenth of what waking another thread does, and nearly always suffices. Whether a file system without
//! a device (tmpfs, Btrfs, overlayfs; NFS, FUSE) asks a server is known from its first file that was opened, from Linux 6.8 on.
//!
//! Owns: the choice, the threads, which file systems answer by themselves.
//! Does not own: which files are opened (store).
//! Locks: one around the queue, held across no system call but those of the condition variable. A forked child has a queue of its own. One
//! around the mounts, tried once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use headwater::{Engine, File, OpenOptions};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, major, makedev, openat2, statx,
};
use rustix::io::Errno;
use tokio::sync::oneshot;

/// Opens a file for reading. May be dropped at any moment.
pub(crate) async fn open(engine: &Engine, path: &Path) -> headwater::Result<File> {
    if answers_at_once(path) {
        return open_here(engine, path);
    }
    let (engine, path) = (engine.clone(), path.to_owned());
    elsewhere(move || open_here(&engine, &path)).await
}

/// Whether the kernel can tell where a path leads, and what of, without a device or a server.
pub(crate) fn answers_at_once(path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(known) => is_answering(&known),
        // `AGAIN` is the answer; the others are those of kernels before 5.12 and of filters of system calls.
        Err(Errno::AGAIN | Errno::NOSYS | Errno::INVAL | Errno::PERM) => false,
        // It leads nowhere, which the kernel knows.
        Err(_) => true,
    }
}

/// Whether the file system of a file answers by itself. What cannot be found out at once may not.
fn is_answering(file: &OwnedFd) -> bool {
    let Ok(found) = statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, MOUNT_ID) else {
        return false;
    };
    let is_known = |mount| ANSWERING.try_lock().is_ok_and(|mounts| mounts.contains(&mount));
    found.stx_dev_major != 0 || mount_of(&found).is_some_and(is_known)
}

/// The number of the mount that a file was reached by, which no other gets (Linux 6.8).
fn mount_of(found: &Statx) -> Option<u64> {
    (found.stx_mask & MOUNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// Mounts without a device that answer by themselves.
static ANSWERING: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn open_here(engine: &Engine, path: &Path) -> headwater::Result<File> {
    let file = OpenOptions::new().engine(engine).open(path)?;
    if let Some(opened) = file.opened_as()
        && major(opened.device) == 0
        && !opened.is_on_server
        && let Ok(found) = statx(CWD, path, AtFlags::STATX_DONT_SYNC, MOUNT_ID)
        && makedev(found.stx_dev_major, found.stx_dev_minor) == opened.device
        && let Some(mount) = mount_of(&found)
        && let Ok(mut mounts) = ANSWERING.try_lock()
        && !mounts.contains(&mount)
        && mounts.len() < MOUNTS_MAX
    {
        mounts.push(mount);
    }
    Ok(file)
}

/// What this work results in, in a thread of ours. It may run again in the calling thread, if that one fails. May be dropped at any moment.
pub(crate) async fn elsewhere<T: Send + 'static>(work: impl Fn() -> T + Send + Sync + 'static) -> T {
    let (answer, result) = oneshot::channel();
    let work = Arc::new(work);
    let job: Job = {
        let work = work.clone();
        // Without a receiver the task has given up; a file that was opened for it is closed.
        Box::new(move || {
            if !answer.is_closed() {
                drop(answer.send(work()));
            }
        })
    };
    match Openers::of_this_process() {
        Some(openers) => openers.run(job),
        None => job(),
    }
    match result.await {
        Ok(result) => result,
        // The thread has panicked.
        Err(_) => work(),
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

/// `STATX_MNT_ID_UNIQUE` of `linux/stat.h`.
const MOUNT_ID: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// More than a program reads from.
const MOUNTS_MAX: usize = 256;

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
            let many: Vec<_> = (0..20).map(|_| open_elsewhere(&engine, &path)).collect();
            drop(open_elsewhere(&engine, &path));
            block_on(futures_util::future::join_all(many)).into_iter().for_each(|file| assert!(file.is_ok()));
            let missing = block_on(open_elsewhere(&engine, &folder.path().join("missing")));
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
        assert!(block_on(open_elsewhere(&engine, path)).is_ok());
    }

    fn open_elsewhere(engine: &Engine, path: &Path) -> impl Future<Output = headwater::Result<File>> {
        let (engine, path) = (engine.clone(), path.to_owned());
        elsewhere(move || open_here(&engine, &path))
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
        // Where the folder is on no device, its mount is known from now on.
        open_by_thread(&path);
        let found = statx(CWD, &path, AtFlags::empty(), MOUNT_ID).unwrap();
        if found.stx_dev_major == 0 && mount_of(&found).is_none() {
            return headwater_testkit::lack("the kernel numbers no mounts");
        }
        // A rename anywhere on the machine may make the kernel give up a lookup.
        let is_cached = |path: &Path| (0..1000).any(|_| answers_at_once(path));
        assert!(is_cached(&path) && is_cached(&missing));
    }
}
