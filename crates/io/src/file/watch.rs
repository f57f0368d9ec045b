//! Watch: detects changes of a file by other processes, with `fanotify(7)`.
//!
//! ```text
//!   add: fanotify_mark(FAN_MODIFY | FAN_OPEN, inode) ─► any process writes, or opens ─► event: file handle, process
//!                                                                                       ─► queue of the group
//!   drain: read(2) ─┬─ EAGAIN: nothing
//!                   ├─ process is this one: the file's counter of own changes goes up
//!                   ├─ process is another: its counter of foreign changes goes up, or that of foreign openings, or both
//!                   └─ queue overflowed, or an event cannot be read: every counter goes up
//! ```
//!
//! A listener without `CAP_SYS_ADMIN` (Linux 5.13) sees its own process id in the events of its process and 0 in those of others;
//! a listener with it sees all ids. The kernel merges queued events only if file and process are the same, so an event of this
//! process never hides one of another (`fanotify_should_merge`). Threads of io_uring (`io-wq`, `SQPOLL`) belong to the process
//! that made them. The kernel queues the event before the system call that changed the file returns, but after the change is
//! visible: a drain that finds nothing proves nothing about a write that is under way.
//!
//! A program opens a file before it writes to it, so an opening warns of a change. The warning matters because the next sync of a
//! file fails if a direct write is under way when another program writes to the same page.
//!
//! A foreign change is proof; no foreign change is not. Measured on Linux 6.18 with ext4, XFS, Btrfs and tmpfs: `write`,
//! `pwrite`, `sendfile`, `splice`, `copy_file_range`, reflinks, `truncate`, `O_TRUNC` and `fallocate` queue an event. Stores
//! through a mapping and `io_submit(2)` (libaio) queue none; by the kernel's source, neither do polled rings
//! (`IORING_SETUP_IOPOLL`). Writes of this process that go past headwater look like its own. Other hosts of a network file system, the server
//! below FUSE and the layers of an overlay are not seen; [`OpenFile::file_system`] returns which kind of file system it is.
//!
//! Owns: the group, its marks, the counters.
//! Does not own: the reaction to a change, when the queue is drained.
//! Locks: `files`, held while events are read and counted, so that a drain returns only when the events that another drain took
//! are counted too. No call that blocks on a device is made under it.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use smallvec::SmallVec;

use super::open_file::OpenFile;
use super::status::FileKind;
use crate::sync::lock;
use crate::system::fork::ProcessMark;
use crate::system::reject::RejectReason;

/// A group of files for which the kernel reports changes by other processes. It takes one descriptor, and one of the 128 groups
/// that a user may have (`/proc/sys/fs/fanotify/max_user_groups`). In a forked child it does nothing: the group's queue is its
/// parent's.
#[derive(Debug)]
pub struct ChangeWatch {
    shared: Arc<Shared>,
}

/// A file that a [`ChangeWatch`] watches, until [`ChangeWatch::remove`]; without that call, a drop ends the counting, and the kernel's
/// mark stays until the file is watched and removed again, or deleted, or the `ChangeWatch` is dropped: a mark can be removed
/// only through a descriptor of the file, and this keeps none. A file with a mark keeps its inode in the kernel's memory.
#[derive(Debug)]
pub struct Watched {
    id: FileId,
    changes: Arc<Changes>,
    /// Whether it is still watched.
    is_marked: AtomicBool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    group: OwnedFd,
    /// This process, as the kernel names it in the events of its own changes.
    process_id: i32,
    process: ProcessMark,
    files: Mutex<HashMap<FileId, Entry>>,
}

/// How often drains have found changes of a file.
#[derive(Debug, Default)]
struct Changes {
    foreign: AtomicU64,
    own: AtomicU64,
    foreign_openings: AtomicU64,
}

/// One marked file.
#[derive(Debug)]
struct Entry {
    changes: Arc<Changes>,
    /// The [`Watched`] of it, and those of them that were not removed.
    users: usize,
    marks: usize,
}

/// File system and file handle, as they stand in an event: 36 bytes on Btrfs, fewer on others that are common.
type FileId = SmallVec<[u8; 36]>;

impl ChangeWatch {
    /// Opens an empty group; see `fanotify_init(2)`. Needs no privilege.
    ///
    /// # Errors
    /// `ENOSYS` and `EPERM` where kernel or sandbox has or permits no such groups (before Linux 5.13, only root may),
    /// `EMFILE` at the limit of groups or descriptors, `ENOMEM`.
    pub fn new() -> io::Result<ChangeWatch> {
        let (group, process) = (open_group()?, ProcessMark::here());
        let process_id = rustix::process::getpid().as_raw_nonzero().get();
        Ok(ChangeWatch { shared: Arc::new(Shared { group, process_id, process, files: Mutex::default() }) })
    }

    /// Watches a regular file from now on; see `fanotify_mark(2)`. A file may be added more than once, by the same or another
    /// descriptor: its mark stays until the last [`Watched`] of it is removed. Three system calls.
    ///
    /// # Errors
    /// `Unsupported` for other kinds of files; `EOPNOTSUPP` and `ENODEV` where the file system has no handles or no number;
    /// `ENOSPC` at the user's limit of marks; [`RejectReason::Forked`].
    pub fn add(&self, file: &OpenFile) -> io::Result<Watched> {
        self.shared.check_process()?;
        if file.kind() != FileKind::Regular {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let id = file_id(file.buffered())?;
        let mut files = lock(&self.shared.files);
        mark(&self.shared.group, file.buffered(), libc::FAN_MARK_ADD)?;
        let new = || Entry { changes: Arc::default(), users: 0, marks: 0 };
        let entry = files.entry(id.clone()).or_insert_with(new);
        (entry.users, entry.marks) = (entry.users + 1, entry.marks + 1);
        let changes = entry.changes.clone();
        drop(files);
        Ok(Watched { id, changes, is_marked: AtomicBool::new(true), shared: self.shared.clone() })
    }

    /// Stops watching a file, through any descriptor of it: later changes queue no event, and the next drain counts earlier ones, as
    /// long as there is a [`Watched`]. In a forked child it does nothing.
    ///
    /// # Errors
    /// `InvalidInput` if it is another file; what `name_to_handle_at(2)` and `fanotify_mark(2)` report. The mark has
    /// stayed then.
    pub fn remove(&self, watched: &Watched, file: &OpenFile) -> io::Result<()> {
        if self.shared.check_process().is_err() {
            return Ok(());
        }
        if file_id(file.buffered())? != watched.id || !Arc::ptr_eq(&self.shared, &watched.shared) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut files = lock(&self.shared.files);
        let removed = match watched.leave(&mut files) {
            Some(entry) if entry.marks == 0 => {
                mark(&self.shared.group, file.buffered(), libc::FAN_MARK_REMOVE)
            }
            _ => Ok(()),
        };
        drop(files);
        match removed {
            // NOENT: the file was deleted, and the kernel has removed the mark by itself.
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    /// Counts the queued events. After it returns, every change whose system call had returned before the call is in
    /// [`Watched::foreign_changes`]. Never blocks on a device; one system call where nothing is queued. In a forked child it does
    /// nothing.
    pub fn drain(&self) {
        if self.shared.check_process().is_err() {
            return;
        }
        let files = lock(&self.shared.files);
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            match rustix::io::read(&self.shared.group, &mut buffer) {
                Err(Errno::AGAIN) | Ok(0) => return,
                Err(Errno::INTR) => {}
                // The events read last have left the queue.
                Err(_) => return count_all(&files),
                Ok(read_bytes) => {
                    self.shared.count(&files, &buffer[..read_bytes]);
                    // Events are copied until none is left or the next does not fit.
                    if read_bytes + EVENT_BYTES_MAX <= BUFFER_BYTES {
                        return;
                    }
                }
            }
        }
    }
}

impl Watched {
    /// Changes by other processes that drains have found so far. Never decreases; several changes may count as one, and an
    /// overflow of the queue counts as one of every file.
    pub fn foreign_changes(&self) -> u64 {
        self.changes.foreign.load(Ordering::Acquire)
    }

    /// The same for changes by this process, whatever part of it made them.
    pub fn own_changes(&self) -> u64 {
        self.changes.own.load(Ordering::Acquire)
    }

    /// The same for openings of the file by other processes, for reading as well.
    pub fn foreign_openings(&self) -> u64 {
        self.changes.foreign_openings.load(Ordering::Acquire)
    }

    /// Marks this as no longer watched. Returns the entry of the file, unless that was done before.
    fn leave<'a>(&self, files: &'a mut HashMap<FileId, Entry>) -> Option<&'a mut Entry> {
        let entry = files.get_mut(&self.id).filter(|_| self.is_marked.swap(false, Ordering::AcqRel))?;
        entry.marks -= 1;
        Some(entry)
    }
}

impl Drop for Watched {
    /// Ends the counting, and leaves the mark.
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            // A thread that does not exist here may hold the lock.
            return;
        }
        let mut files = lock(&self.shared.files);
        self.leave(&mut files);
        if let Some(entry) = files.get_mut(&self.id) {
            entry.users -= 1;
            if entry.users == 0 {
                files.remove(&self.id);
            }
        }
    }
}

impl Shared {
    fn check_process(&self) -> io::Result<()> {
        if self.process.is_here() { Ok(()) } else { Err(RejectReason::Forked.into()) }
    }

    /// Counts the events of one read.
    fn count(&self, files: &HashMap<FileId, Entry>, mut events: &[u8]) {
        while !events.is_empty() {
            let Some((event, rest)) = split_event(events) else { return count_all(files) };
            events = rest;
            let Some(event) = Event::parse(event) else { return count_all(files) };
            match event.file {
                _ if event.mask & libc::FAN_Q_OVERFLOW != 0 => count_all(files),
                Some(id) => {
                    if let Some(entry) = files.get(id) {
                        entry.changes.count(event.mask, event.process_id == self.process_id);
                    }
                }
                None => count_all(files),
            }
        }
    }
}

impl Changes {
    /// Counts one event, in which the kernel may have merged a change and an opening.
    fn count(&self, mask: u64, is_own: bool) {
        if mask & libc::FAN_MODIFY != 0 {
            let changes = if is_own { &self.own } else { &self.foreign };
            changes.fetch_add(1, Ordering::AcqRel);
        }
        if mask & libc::FAN_OPEN != 0 && !is_own {
            self.foreign_openings.fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn count_all(files: &HashMap<FileId, Entry>) {
    files.values().for_each(|entry| _ = entry.changes.foreign.fetch_add(1, Ordering::AcqRel));
}

/// One event, as far as it matters here.
struct Event<'a> {
    mask: u64,
    process_id: i32,
    file: Option<&'a [u8]>,
}

impl<'a> Event<'a> {
    /// Reads a `struct fanotify_event_metadata` and the first record behind it, which is a `struct fanotify_event_info_fid`.
    fn parse(event: &'a [u8]) -> Option<Event<'a>> {
        if *event.get(4)? != libc::FANOTIFY_METADATA_VERSION {
            return None;
        }
        let info = event.get(usize::from(u16::from_ne_bytes(field(event, 6)?))..)?;
        let mask = u64::from_ne_bytes(field(event, 8)?);
        Some(Event { mask, process_id: i32::from_ne_bytes(field(event, 20)?), file: Event::file(info) })
    }

    /// File system, length of the handle, its type, the handle.
    fn file(info: &[u8]) -> Option<&[u8]> {
        if *info.first()? != libc::FAN_EVENT_INFO_TYPE_FID {
            return None;
        }
        let handle_bytes = u32::from_ne_bytes(field(info, INFO_HEADER_BYTES + 8)?) as usize;
        info.get(INFO_HEADER_BYTES..)?.get(..HANDLE_START_BYTES + handle_bytes)
    }
}

/// Splits off the first event. `None` if its length is invalid.
fn split_event(events: &[u8]) -> Option<(&[u8], &[u8])> {
    let length_bytes = u32::from_ne_bytes(field(events, 0)?) as usize;
    if length_bytes == 0 { None } else { events.split_at_checked(length_bytes) }
}

fn field<const N: usize>(bytes: &[u8], offset_bytes: usize) -> Option<[u8; N]> {
    bytes.get(offset_bytes..)?.first_chunk().copied()
}

fn open_group() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_FID;
    let event_flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as libc::c_uint;
    // SAFETY: takes plain numbers. A descriptor that it returns is new, and belongs to nothing else.
    unsafe {
        match libc::fanotify_init(flags, event_flags) {
            group @ 0.. => Ok(OwnedFd::from_raw_fd(group)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn mark(group: &OwnedFd, file: BorrowedFd<'_>, operation: libc::c_uint) -> io::Result<()> {
    let (group, file) = (group.as_raw_fd(), file.as_raw_fd());
    // SAFETY: both descriptors are open; without a path the mark is that of the file behind the descriptor.
    match unsafe { libc::fanotify_mark(group, operation, WATCHED_EVENTS, file, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The identity of this file in events.
fn file_id(file: BorrowedFd<'_>) -> io::Result<FileId> {
    let mut id = FileId::from_slice(&file_system_number(file)?);
    // The handle of events, where the kernel distinguishes it (Linux 6.5); else the one that can be opened, which is the same.
    let handle = match handle(file, libc::AT_HANDLE_FID) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => handle(file, 0),
        handle => handle,
    }?;
    let bytes = handle.bytes.get(..handle.length_bytes as usize).ok_or(io::ErrorKind::InvalidData)?;
    id.extend_from_slice(&handle.length_bytes.to_ne_bytes());
    id.extend_from_slice(&handle.kind.to_ne_bytes());
    id.extend_from_slice(bytes);
    Ok(id)
}

/// `f_fsid` of `statfs(2)`.
fn file_system_number(file: BorrowedFd<'_>) -> io::Result<[u8; 8]> {
    let mut answer = MaybeUninit::<libc::statfs64>::uninit();
    // SAFETY: the descriptor is open, and the answer lives until the call returns.
    if unsafe { libc::fstatfs64(file.as_raw_fd(), answer.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the answer. `fsid_t` is two `int`, which are private in `libc`.
    Ok(unsafe { std::mem::transmute::<libc::fsid_t, [u8; 8]>(answer.assume_init().f_fsid) })
}

fn handle(file: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<FileHandle> {
    let mut handle =
        FileHandle { length_bytes: HANDLE_BYTES_MAX as u32, kind: 0, bytes: [0; HANDLE_BYTES_MAX] };
    let (mut mount, place) = (0, (&raw mut handle).cast());
    let flags = flags | libc::AT_EMPTY_PATH;
    // SAFETY: the path is a text that ends with a zero; `handle` begins as a `struct file_handle` does and has the room behind
    // it that its length says; both live until the call returns.
    match unsafe { libc::name_to_handle_at(file.as_raw_fd(), c"".as_ptr(), place, &raw mut mount, flags) } {
        0 => Ok(handle),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct file_handle` with its room.
#[repr(C)]
struct FileHandle {
    length_bytes: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

const WATCHED_EVENTS: u64 = libc::FAN_MODIFY | libc::FAN_OPEN;

/// MAX_HANDLE_SZ of <fcntl.h>.
const HANDLE_BYTES_MAX: usize = 128;

/// `struct fanotify_event_info_header`.
const INFO_HEADER_BYTES: usize = 4;

/// What stands before the handle: file system, length, type.
const HANDLE_START_BYTES: usize = 16;

/// Metadata, header, the rest, and what aligns the next.
const EVENT_BYTES_MAX: usize = 24 + INFO_HEADER_BYTES + HANDLE_START_BYTES + HANDLE_BYTES_MAX + 8;

/// Some eighty events of common file systems.
const BUFFER_BYTES: usize = 4096;
