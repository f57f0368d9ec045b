//! Descriptor: a descriptor of a user's file whose closing leaves the locks that the rest of the process holds on the file.
//!
//! ```text
//!   drop ─► is anything locked? ─┬─ no ──► close
//!                                └─ yes ─► parked ─┬─► asked again each second, and at opens and closes ─► close
//!                                                  └─► the same file is opened: used again
//! ```
//!
//! Closing any descriptor of a file drops all POSIX locks (`F_SETLK` of `fcntl(2)`) that the process holds on the file, whichever
//! descriptor they were taken through. SQLite, for one, locks its files like that: an engine that closes descriptors in the
//! background would unlock the databases of its own process. So before a descriptor is closed, `F_OFD_GETLK` asks whether a write
//! lock on the whole file would conflict with anything: a lock of an open file description conflicts with the POSIX locks of every
//! process, this one included. Locks of other processes delay the close too; the answer does not always distinguish them.
//!
//! A file that is opened again while it is locked gets its parked descriptor, so that their number does not grow with each opening.
//! Only `open(2)` makes all the checks whether the program may open the file; so a thread opens and closes the file in an empty
//! descriptor table of its own (`close_range(2)` with `CLOSE_RANGE_UNSHARE`, Linux 5.9). POSIX
//! locks belong to a table, so that close leaves those of the program alone. It takes some 200 us, for such files only.
//!
//! Not covered: another thread may take a lock between the query and the close, some 100 ns; that lock is lost. At most
//! [`parked_max`] descriptors are parked; beyond, the oldest is closed, which drops its file's locks. `execve(2)` closes
//! descriptors too, and so drops the locks that it would otherwise keep. Where the query fails (before Linux 3.15, some
//! file systems), descriptors are closed at once. The query costs 0.3 us, and on a network file system a message to the server.
//!
//! Owns: the open and the close of every descriptor of a user's file, the list of parked ones.
//! Does not own: which descriptors a file has (file).
//! Locks: `pass` before `files`. `files` is held to add and remove entries, without a system call; `pass` while all files are
//! queried, so that a file opened meanwhile finds its parked descriptor.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, fcntl_getfl, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::clock::coarse_clock;
use super::status::FileKey;
use crate::sync::{lock, try_lock};
use crate::system::fork::ProcessMark;
use crate::system::signals::without_signals;

/// An open file. In a child of the process that opened it, which has none of the locks, it is closed without a query.
#[derive(Debug)]
pub(crate) struct Descriptor {
    file: ManuallyDrop<File>,
    process: ProcessMark,
}

impl Descriptor {
    /// Opens a file, with the flags of `open(2)`; a new one gets the usual permissions.
    pub(super) fn open(path: impl AsRef<Path>, flags: OFlags) -> io::Result<Descriptor> {
        Descriptor::open_with(path.as_ref(), flags, USUAL_PERMISSIONS)
    }

    /// As [`Descriptor::open`]; a new file gets these permissions, less the process's umask.
    pub(super) fn open_with(path: &Path, flags: OFlags, permissions: u32) -> io::Result<Descriptor> {
        let parked = Parked::here();
        parked.close_sometimes();
        let file = match parked.take(path, flags) {
            Some(file) => file,
            None => open_file(path, flags, permissions)?,
        };
        Ok(file.into())
    }
}

impl From<File> for Descriptor {
    fn from(file: File) -> Descriptor {
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

/// Closes parked descriptors of files that are no longer locked, as a thread does each second, and returns how many stay parked. Costs an atomic load if there are
/// none, else a system call for each file.
pub fn close_parked() -> usize {
    let parked = Parked::here();
    if parked.count.load(Ordering::Acquire) == 0 { 0 } else { parked.close(lock(&parked.pass)) }
}

/// Descriptors that are parked at most: few beside the descriptors that a process may have open.
fn parked_max() -> usize {
    const MAX: usize = 4096;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX.min(usize::try_from(limit / 2).unwrap_or(MAX))
}

/// As the standard library's, without its detour by the C library: 0.1 us of the 2 that opening and closing take.
fn open_file(path: &Path, flags: OFlags, permissions: u32) -> io::Result<File> {
    // Miri has `open(2)` alone, as the standard library calls it.
    if cfg!(miri) {
        let (mode, others) = (flags & OFlags::ACCMODE, flags - OFlags::ACCMODE);
        let mut options = File::options();
        options.read(mode != OFlags::WRONLY).write(mode != OFlags::RDONLY);
        return options.mode(permissions).custom_flags(others.bits().cast_signed()).open(path);
    }
    let open = || openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(permissions));
    match rustix::io::retry_on_intr(open) {
        Ok(file) => Ok(file.into()),
        Err(Errno::INVAL) if path.as_os_str().as_bytes().contains(&0) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has a NUL character in it"))
        }
        Err(error) => Err(error.into()),
    }
}

/// The parked descriptors of one process.
struct Parked {
    process: ProcessMark,
    count: AtomicUsize,
    /// [`coarse_clock`] when they were last looked at, nanoseconds.
    looked_at: AtomicU64,
    files: Mutex<VecDeque<Waiting>>,
    /// Held while the list is looked through, and is empty for others.
    pass: Mutex<()>,
    /// A thread asks again and again.
    is_asked: AtomicBool,
}

/// A descriptor that is not closed yet.
struct Waiting {
    key: FileKey,
    /// What it is open for.
    mode: OFlags,
    file: File,
}

impl Parked {
    /// The list of this process. A child has one of its own: in its copy of the parent's, another thread may hold the lock. What its
    /// parent had parked stays open in it until it ends or executes another program.
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
            pass: Mutex::default(),
            is_asked: AtomicBool::new(false),
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

    fn park(&'static self, file: File) {
        // A descriptor without a key is closed at once.
        let Ok(key) = FileKey::of_descriptor(file.as_fd()) else { return };
        let Ok(flags) = fcntl_getfl(&file) else { return };
        self.put(Waiting { key, mode: lasting(flags), file });
        self.keep_asking();
    }

    /// Starts a thread, if there is none, that asks again each second as long as anything is parked. Where the system refuses one, later
    /// opens and closes ask.
    fn keep_asking(&'static self) {
        if self.is_asked.swap(true, Ordering::SeqCst) {
            return;
        }
        let ask = || {
            loop {
                thread::sleep(ASK_AGAIN);
                if self.close(lock(&self.pass)) > 0 {
                    continue;
                }
                self.is_asked.store(false, Ordering::SeqCst);
                // A thread that parks meanwhile finds the flag cleared, or its descriptor is found here.
                if self.count.load(Ordering::SeqCst) == 0 || self.is_asked.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("headwater-close".to_owned()).stack_size(STACK_BYTES);
        if without_signals(|| builder.spawn(ask)).is_err() {
            self.is_asked.store(false, Ordering::SeqCst);
        }
    }

    fn put(&self, waiting: Waiting) {
        let mut files = lock(&self.files);
        files.push_back(waiting);
        let oldest = if files.len() > parked_max() { files.pop_front() } else { None };
        self.count.store(files.len(), Ordering::SeqCst);
        drop(files);
        drop(oldest);
    }

    /// A parked descriptor of the file at `path`, if there is one for these uses, and the kernel still lets the file be opened.
    fn take(&self, path: &Path, flags: OFlags) -> Option<File> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (key, mode) = (FileKey::of_path(path).ok()?, lasting(flags));
        // A pass may wait for the server of a parked file; this file is opened anew then.
        let pass = try_lock(&self.pass)?;
        let mut files = lock(&self.files);
        let place = files.iter().position(|waiting| waiting.key == key && waiting.mode == mode)?;
        let waiting = files.remove(place)?;
        self.count.store(files.len(), Ordering::Release);
        drop((files, pass));
        if open_elsewhere(path, flags).is_some_and(|opened| opened == key) && renew(&waiting.file, flags) {
            return Some(waiting.file);
        }
        self.put(waiting);
        None
    }

    /// As [`Parked::close`], unless that was done just now: opens and closes may come by the hundred thousand a second.
    fn close_sometimes(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let now = coarse_clock().as_nanos() as u64;
        if now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= LOOK_AGAIN_NANOSECONDS {
            // A pass that is under way will do.
            if let Ok(pass) = self.pass.try_lock() {
                self.close(pass);
            }
        }
    }

    fn close(&self, _pass: MutexGuard<'_, ()>) -> usize {
        self.looked_at.store(coarse_clock().as_nanos() as u64, Ordering::Relaxed);
        let found = std::mem::take(&mut *lock(&self.files));
        let mut locked = None;
        let mut left = VecDeque::new();
        for waiting in found {
            // The descriptors of a file mostly lie side by side.
            if locked == Some(waiting.key) || is_locked(&waiting.file) {
                locked = Some(waiting.key);
                left.push_back(waiting);
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

/// The flags that stay as they are from open to close.
fn lasting(flags: OFlags) -> OFlags {
    flags & (OFlags::ACCMODE | OFlags::APPEND)
}

/// Resets a parked descriptor to the state of a new one.
fn renew(file: &File, flags: OFlags) -> bool {
    let changeable = OFlags::APPEND | OFlags::DIRECT | OFlags::NONBLOCK;
    fcntl_setfl(file, flags & changeable).is_ok() && fadvise(file, 0, None, Advice::Normal).is_ok()
}

/// Opens a file and closes it, in another descriptor table, and returns its key. `None` where that fails.
fn open_elsewhere(path: &Path, flags: OFlags) -> Option<FileKey> {
    thread::scope(|scope| {
        let open = || {
            leave_descriptors()?;
            FileKey::of_descriptor(open_file(path, flags, USUAL_PERMISSIONS)?.as_fd())
        };
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        let thread = without_signals(|| builder.spawn_scoped(scope, open));
        thread.ok()?.join().ok()?.ok()
    })
}

/// Moves the calling thread to an empty descriptor table of its own.
fn leave_descriptors() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    let (first, last): (libc::c_uint, libc::c_uint) = (0, libc::c_uint::MAX);
    // SAFETY: takes plain numbers. The thread was made for this, and uses no descriptor that it could have had before.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether any part of the file is locked. No, if the query fails.
fn is_locked(file: &File) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: zeroes are a valid `struct flock`, and what the call wants: from the start to the end, however far that is.
    let mut asked = unsafe { std::mem::zeroed::<libc::flock64>() };
    asked.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the structure lives until the call returns; the descriptor is open.
    let result =
        unsafe { libc::syscall(libc::SYS_fcntl, file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) };
    result == 0 && asked.l_type != libc::F_UNLCK as libc::c_short
}

/// How soon parked descriptors are checked for locks again: programs hold such locks for moments or for hours.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Of a new file, less the process's umask.
pub(super) const USUAL_PERMISSIONS: u32 = 0o666;

/// It runs three system calls.
const STACK_BYTES: usize = 64 << 10;

/// Looking at some thousand files takes a millisecond.
const LOOK_AGAIN_NANOSECONDS: u64 = 20_000_000;
