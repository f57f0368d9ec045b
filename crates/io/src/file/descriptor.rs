//! Descriptor: a descriptor of a user's file whose closing leaves the locks that the rest of the process holds on the file.
//!
//! ```text
//!   drop ─► is anything locked? ─┬─ no ──► close
//!                                └─ yes ─► parked ─► asked again at later opens and closes, and by close_parked ─► close
//! ```
//!
//! Closing any descriptor of a file drops all POSIX locks (`F_SETLK` of `fcntl(2)`) that the process holds on the file, whichever
//! descriptor they were taken through. SQLite, for one, locks its files like that: an engine that closes descriptors in the
//! background would unlock the databases of its own process. So before a descriptor is closed, `F_OFD_GETLK` asks whether a write
//! lock on the whole file would conflict with anything: a lock of an open file description conflicts with the POSIX locks of every
//! process, this one included. Locks of other processes delay the close too; they cannot be told apart for certain.
//!
//! What remains: another thread may take a lock between the question and the close, some 100 ns; that lock is lost. At most
//! [`parked_max`] descriptors are parked; beyond, the oldest is closed, with what that does to the locks. `execve(2)` closes
//! descriptors too, and so drops the locks that it would otherwise keep. Where the question fails (before Linux 3.15, some
//! file systems), descriptors are closed at once.
//!
//! Owns: the close of every descriptor of a user's file, the list of parked ones.
//! Does not own: opening (file), the ticks of [`close_parked`] (engine).
//! Locks: `files` of the list, for taking out and putting in; no system call is made under it.

use std::collections::VecDeque;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

use super::{FileKey, coarse_clock};
use crate::fork::ProcessMark;
use crate::sync::lock;

/// An open file. In a child of the process that opened it, which has none of the locks, it is closed without a question.
#[derive(Debug)]
pub(crate) struct Descriptor {
    file: ManuallyDrop<File>,
    process: ProcessMark,
}

impl Descriptor {
    pub(super) fn new(file: File) -> Descriptor {
        Parked::here().close_sometimes();
        Descriptor { file: ManuallyDrop::new(file), process: ProcessMark::here() }
    }
}

impl Deref for Descriptor {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: nothing uses the field after this.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if !self.process.is_here() {
            return drop(file);
        }
        let parked = Parked::here();
        if is_locked(&file) {
            parked.park(file);
        } else {
            drop(file);
            parked.close_sometimes();
        }
    }
}

/// Closes the descriptors that were kept because something was locked, as far as nothing is any more, and says how many stay. Costs
/// an atomic load if there are none, else a system call for each file.
pub fn close_parked() -> usize {
    Parked::here().close()
}

/// Descriptors that are parked at most: few beside what a process may have open.
fn parked_max() -> usize {
    const MAX: usize = 4096;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX.min(usize::try_from(limit / 2).unwrap_or(MAX))
}

/// The parked descriptors of one process.
struct Parked {
    process: ProcessMark,
    count: AtomicUsize,
    /// [`coarse_clock`] when they were last looked at, nanoseconds.
    looked_at: AtomicU64,
    files: Mutex<VecDeque<(FileKey, File)>>,
}

impl Parked {
    /// The list of this process. A child has one of its own: in its copy of the parent's, another thread may hold the lock.
    fn here() -> &'static Parked {
        static LIST: AtomicPtr<Parked> = AtomicPtr::new(std::ptr::null_mut());
        let known = LIST.load(Ordering::Acquire);
        // SAFETY: null, or a list that is never freed.
        if let Some(list) = unsafe { known.as_ref() }.filter(|list| list.process.is_here()) {
            return list;
        }
        let fresh = Box::into_raw(Box::new(Parked {
            process: ProcessMark::here(),
            count: AtomicUsize::new(0),
            looked_at: AtomicU64::new(0),
            files: Mutex::default(),
        }));
        match LIST.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was made above, and is never freed.
            Ok(_) => unsafe { &*fresh },
            // SAFETY: another thread of this process was first, and its list is never freed; ours is known here alone.
            Err(known) => unsafe {
                drop(Box::from_raw(fresh));
                &*known
            },
        }
    }

    fn park(&self, file: File) {
        // What cannot be told apart is closed by itself all the same.
        let Ok(key) = FileKey::of_descriptor(file.as_fd()) else { return };
        let mut files = lock(&self.files);
        files.push_back((key, file));
        let oldest = if files.len() > parked_max() { files.pop_front() } else { None };
        self.count.store(files.len(), Ordering::Release);
        drop(files);
        drop(oldest);
    }

    /// As [`Parked::close`], unless that was done just now: opens and closes may come by the hundred thousand a second.
    fn close_sometimes(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let now = coarse_clock().as_nanos() as u64;
        if now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= LOOK_AGAIN_NANOSECONDS {
            self.close();
        }
    }

    fn close(&self) -> usize {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.looked_at.store(coarse_clock().as_nanos() as u64, Ordering::Relaxed);
        let found = std::mem::take(&mut *lock(&self.files));
        let mut locked = None;
        let mut left = VecDeque::new();
        for (key, file) in found {
            // The descriptors of a file mostly lie side by side.
            if locked == Some(key) || is_locked(&file) {
                locked = Some(key);
                left.push_back((key, file));
            }
        }
        let mut files = lock(&self.files);
        // What was parked meanwhile is younger.
        left.append(&mut files);
        *files = left;
        self.count.store(files.len(), Ordering::Release);
        files.len()
    }
}

/// Whether a lock stands on any part of the file. Without an answer, no.
fn is_locked(file: &File) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: zeroes are a valid `struct flock`, and what the call wants: from the start to the end, however far that is.
    let mut asked = unsafe { std::mem::zeroed::<libc::flock64>() };
    asked.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the structure lives until the call returns; the descriptor is open.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) };
    result == 0 && asked.l_type != libc::F_UNLCK as libc::c_short
}

/// Looking at some thousand files takes a millisecond.
const LOOK_AGAIN_NANOSECONDS: u64 = 20_000_000;
