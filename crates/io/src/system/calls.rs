//! Calls: the system calls that a driver makes for its callers, beyond transfers and syncs, by a thread.
//!
//! Owns: their arguments, as addresses that the caller vouches for; how a thread makes each.
//! Does not own: the memory behind the addresses (work), how a ring makes them (uring's entries), waiting for time or descriptors
//! (`waits`).

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::types::Timespec;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, Statx, StatxFlags};

/// Where an argument lies. Valid as the one says that has it.
pub(crate) struct Address<T>(NonNull<T>);

impl<T> Clone for Address<T> {
    fn clone(&self) -> Address<T> {
        *self
    }
}

impl<T> Copy for Address<T> {}

// SAFETY: an address; whoever follows it vouches for what is there.
unsafe impl<T: Send> Send for Address<T> {}

impl<T> Address<T> {
    pub(crate) fn of(place: &mut T) -> Address<T> {
        Address(NonNull::from(place))
    }

    pub(crate) fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }
}

impl Address<c_char> {
    /// Of a path, which the kernel only reads.
    pub(crate) fn of_path(path: &CStr) -> Address<c_char> {
        Address(NonNull::new(path.as_ptr().cast_mut()).expect("a path has an address"))
    }
}

/// A system call with its arguments.
#[derive(Clone, Copy)]
pub(crate) enum SystemCall {
    /// `openat(2)`
    Open { directory: RawFd, path: Address<c_char>, flags: i32, mode: u32 },
    /// `close(2)`
    Close { descriptor: RawFd },
    /// `statx(2)` of a path, or of a descriptor by an empty one.
    Attributes { directory: RawFd, path: Address<c_char>, flags: i32, into: Address<MaybeUninit<Statx>> },
    /// `fallocate(2)`
    Allocate { descriptor: RawFd, mode: i32, offset_bytes: u64, length_bytes: u64 },
    /// `sync_file_range(2)`
    SyncRange { descriptor: RawFd, offset_bytes: u64, length_bytes: u64, flags: u32 },
    /// `renameat2(2)`
    Rename { directories: [RawFd; 2], from: Address<c_char>, to: Address<c_char>, flags: u32 },
    /// `unlinkat(2)`
    Unlink { directory: RawFd, path: Address<c_char>, flags: i32 },
    /// `mkdirat(2)`
    MakeDirectory { directory: RawFd, path: Address<c_char>, mode: u32 },
    /// Waits until a moment of `CLOCK_MONOTONIC`, which is known once the first attempt is made: `time` after that.
    Timeout { time: Duration, deadline: Option<Duration>, place: Address<Timespec> },
    /// `poll(2)` of one descriptor.
    Poll { descriptor: RawFd, events: u32 },
}

impl SystemCall {
    /// Whether it lasts as long as something else pleases.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self, SystemCall::Timeout { .. } | SystemCall::Poll { .. })
    }

    /// Whether it changes anything that is stored.
    pub(crate) fn changes(&self) -> bool {
        !self.is_wait() && !matches!(self, SystemCall::Attributes { .. })
    }

    /// The first attempt begins: a timeout counts from now.
    ///
    /// # Safety
    /// As for [`SystemCall::carry_out`].
    pub(crate) unsafe fn begin(&mut self) {
        if let SystemCall::Timeout { time, deadline: deadline @ None, place } = self {
            let at = monotonic().saturating_add(*time).min(DEADLINE_MAX);
            *deadline = Some(at);
            // SAFETY: as the caller promises.
            unsafe { place.as_ptr().write(Timespec::from(at)) };
        }
    }

    /// Makes the call in this thread. A timeout or a poll is looked at once, and fails with `WouldBlock` if it is not over.
    ///
    /// # Safety
    /// Descriptors are open, addresses valid, and no other code uses what they lead to; a descriptor to be closed is the call's own.
    pub(crate) unsafe fn carry_out(&self) -> io::Result<usize> {
        // SAFETY: as the caller promises.
        unsafe {
            match *self {
                SystemCall::Open { directory, path, flags, mode } => {
                    let (flags, mode) =
                        (OFlags::from_bits_retain(flags as u32), Mode::from_bits_retain(mode));
                    let (directory, path) =
                        (BorrowedFd::borrow_raw(directory), CStr::from_ptr(path.as_ptr()));
                    let opened = rustix::fs::openat(directory, path, flags, mode)?;
                    Ok(std::os::fd::IntoRawFd::into_raw_fd(opened) as usize)
                }
                SystemCall::Close { descriptor } => match libc::close(descriptor) {
                    0 => Ok(0),
                    _ => Err(io::Error::last_os_error()),
                },
                SystemCall::Attributes { directory, path, flags, into } => {
                    let flags = AtFlags::from_bits_retain(flags as u32);
                    let directory = BorrowedFd::borrow_raw(directory);
                    let found =
                        rustix::fs::statx(directory, CStr::from_ptr(path.as_ptr()), flags, ATTRIBUTES)?;
                    into.as_ptr().write(MaybeUninit::new(found));
                    Ok(0)
                }
                SystemCall::Allocate { descriptor, mode, offset_bytes, length_bytes } => {
                    let (file, mode) =
                        (BorrowedFd::borrow_raw(descriptor), FallocateFlags::from_bits_retain(mode as u32));
                    Ok(rustix::fs::fallocate(file, mode, offset_bytes, length_bytes).map(|()| 0)?)
                }
                SystemCall::SyncRange { descriptor, offset_bytes, length_bytes, flags } => {
                    let (offset, length) = (offset_bytes.cast_signed(), length_bytes.cast_signed());
                    match libc::sync_file_range(descriptor, offset, length, flags) {
                        0 => Ok(0),
                        _ => Err(io::Error::last_os_error()),
                    }
                }
                SystemCall::Rename { directories, from, to, flags } => {
                    let [from_directory, to_directory] = directories.map(|it| BorrowedFd::borrow_raw(it));
                    let (from, to) = (CStr::from_ptr(from.as_ptr()), CStr::from_ptr(to.as_ptr()));
                    let flags = RenameFlags::from_bits_retain(flags);
                    Ok(rustix::fs::renameat_with(from_directory, from, to_directory, to, flags)
                        .map(|()| 0)?)
                }
                SystemCall::Unlink { directory, path, flags } => {
                    let (directory, flags) =
                        (BorrowedFd::borrow_raw(directory), AtFlags::from_bits_retain(flags as u32));
                    Ok(rustix::fs::unlinkat(directory, CStr::from_ptr(path.as_ptr()), flags).map(|()| 0)?)
                }
                SystemCall::MakeDirectory { directory, path, mode } => {
                    let (directory, mode) = (BorrowedFd::borrow_raw(directory), Mode::from_bits_retain(mode));
                    Ok(rustix::fs::mkdirat(directory, CStr::from_ptr(path.as_ptr()), mode).map(|()| 0)?)
                }
                SystemCall::Timeout { deadline, .. } => {
                    let is_over = deadline.is_some_and(|deadline| monotonic() >= deadline);
                    if is_over { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
                }
                SystemCall::Poll { descriptor, events } => {
                    let mut entry = libc::pollfd { fd: descriptor, events: events as i16, revents: 0 };
                    match libc::poll(&raw mut entry, 1, 0) {
                        0 => Err(io::ErrorKind::WouldBlock.into()),
                        1 => Ok(ready_events(entry.revents)?),
                        _ => Err(io::Error::last_os_error()),
                    }
                }
            }
        }
    }
}

/// What `poll(2)` reports, as a ring does.
///
/// # Errors
/// `EBADF`, which `poll(2)` reports as an event.
pub(crate) fn ready_events(events: i16) -> io::Result<usize> {
    if events & libc::POLLNVAL != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(usize::from(events.cast_unsigned()))
}

/// Time of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// What is asked for of a file.
pub(crate) const ATTRIBUTES: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::DIOALIGN);

/// The kernel's time has a sign, and it adds to it.
const DEADLINE_MAX: Duration = Duration::from_secs(1 << 32);
