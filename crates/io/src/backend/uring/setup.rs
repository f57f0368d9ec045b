//! Setup: builds a ring with the features that this kernel has, and tears it down.
//!
//! Owns: flags, sizes, restrictions, the check that the kernel has the operations needed.
//! Does not own: the requests on the ring.
//! Invariants: a forked child neither touches a ring nor unmaps its addresses: it does not have these mappings, and others may lie
//! there.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use headwater_core::units::PAGE_BYTES;
use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, cqueue, opcode, types};
use rustix::event::{EventfdFlags, eventfd};

use super::entry::Operation;
use crate::file::PageBuffer;
use crate::system::fork::ProcessMark;

/// What a ring is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingUse {
    /// Entries of the submission queue; when it is full, the kernel is entered.
    pub(crate) submission_entries: u32,
    /// Entries of the completion queue; the kernel keeps further completions on a list.
    pub(crate) completion_entries: u32,
    /// Which threads enter it.
    pub(crate) sharing: Sharing,
    /// Whether completions come by interrupt or are polled.
    pub(crate) polling: DevicePolling,
    /// Whether a kernel thread takes submissions.
    pub(crate) submission_polling: SubmissionPolling,
    /// What it may be asked for.
    pub(crate) operations: RingOperations,
}

/// Which threads may use a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// Any thread.
    AnyThread,
    /// Only the thread that built it (`IORING_SETUP_SINGLE_ISSUER`, `IORING_SETUP_DEFER_TASKRUN`): the kernel does a request's last
    /// step when that thread asks for completions, and does not interrupt it. Requests in flight when the program forbids itself
    /// `io_uring_enter(2)` never complete.
    Local,
}

/// Whether a kernel thread watches the submission queue (`IORING_SETUP_SQPOLL`), so that submitting takes no system
/// call while it is awake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum SubmissionPolling {
    /// Submitting is a system call.
    #[default]
    Off,
    /// A kernel thread for each ring watches, and sleeps after this many milliseconds without requests. Not for a program that
    /// forbids itself `io_uring_enter(2)` later: once that thread sleeps, requests are never carried out.
    On {
        /// 1 or more.
        idle_ms: u32,
        /// The processor on which that thread runs; on one with a busy thread of the program, both crawl. `None`: the kernel decides.
        processor: Option<u32>,
    },
}

/// What a ring may be asked for, from Linux 6.1 on by whichever code gets hold of its descriptor: there the kernel enforces it
/// (`IORING_REGISTER_RESTRICTIONS`). Worker threads carry out [`Call`](crate::Call)s that a ring is not allowed, or is too old for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[non_exhaustive]
pub enum RingOperations {
    /// Reads, writes and syncs, of descriptors that the program has: no file is opened, renamed or removed around a sandbox that watches
    /// system calls.
    Transfers,
    /// Every [`Call`](crate::Call) of this crate.
    #[default]
    Calls,
    /// All that the kernel has, for [`Call::raw`](crate::Call::raw).
    Any,
}

/// Whether the kernel polls the device for completions (`IORING_SETUP_IOPOLL`) instead of waiting for its interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DevicePolling {
    Interrupts,
    Polled,
}

/// A ring, closed in the process that built it and left alone in others.
pub(crate) struct Ring {
    ring: ManuallyDrop<IoUring>,
    mark: ProcessMark,
    /// An eventfd that the kernel signals when a completion is deferred, which the ring's own descriptor does not show to a thread
    /// that polls it already.
    event_descriptor: Option<OwnedFd>,
    /// Whether the kernel runs completions only when asked.
    pub(crate) deferred: bool,
    /// What it can be asked for beside transfers and syncs.
    calls: Vec<u8>,
    takes_any: bool,
}

impl Ring {
    /// # Errors
    /// What the kernel reports; `Unsupported` if it lacks an operation that the driver needs.
    pub(crate) fn new(wanted: RingUse) -> io::Result<Ring> {
        let mut refusal = None;
        // The best flags first; a kernel that does not know one returns EINVAL.
        for level in [Level::Linux6_6, Level::Linux6_1, Level::Linux5_11] {
            match build(wanted, level) {
                Ok(Built { ring, event_descriptor, calls }) => {
                    let (deferred, mark) = (event_descriptor.is_some(), ProcessMark::here());
                    let (ring, takes_any) =
                        (ManuallyDrop::new(ring), wanted.operations == RingOperations::Any);
                    return Ok(Ring { ring, mark, event_descriptor, deferred, calls, takes_any });
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = Some(error),
                Err(error) => return Err(explain(error)),
            }
        }
        Err(refusal.expect("the levels are not empty"))
    }

    /// Whether it can be asked for this.
    pub(crate) fn carries_out(&self, operation: Operation) -> bool {
        match operation {
            Operation::One(code) => NEEDED.contains(&code) || self.calls.contains(&code),
            Operation::Any => self.takes_any,
        }
    }

    /// The descriptor that becomes readable when a completion is ready.
    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        match &self.event_descriptor {
            Some(event_descriptor) => event_descriptor.as_fd(),
            // SAFETY: the ring is open for as long as `self` lives.
            None => unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) },
        }
    }

    /// Resets [`Ring::watched`], if that is an eventfd: only later completions make it readable.
    pub(crate) fn silence(&self) {
        if let Some(event_descriptor) = &self.event_descriptor {
            // An error means that it was silent.
            let _ = rustix::io::read(event_descriptor, &mut [0; 8]);
        }
    }
}

impl Deref for Ring {
    type Target = IoUring;

    fn deref(&self) -> &IoUring {
        &self.ring
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.mark.is_here() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        } else {
            // In a child the mappings are gone, and something else may lie there; only the descriptor was inherited.
            // SAFETY: the descriptor is the ring's, which is never used or dropped after this.
            drop(unsafe { OwnedFd::from_raw_fd(self.ring.as_raw_fd()) });
        }
    }
}

/// Whether a direct read of the file's first page completes on a ring that polls. A device may say that it polls while
/// a layer above it (a file system, a device mapper) cannot.
pub(crate) fn polled_read_works(file: BorrowedFd<'_>) -> bool {
    let read = || -> io::Result<i32> {
        let mut ring = IoUring::builder().dontfork().setup_iopoll().build(1)?;
        let mut page = Box::new(PageBuffer([0; PAGE_BYTES]));
        let descriptor = types::Fd(file.as_raw_fd());
        let entry = opcode::Read::new(descriptor, page.0.as_mut_ptr(), page.0.len() as u32).build();
        // SAFETY: the page is kept until the completion is there; without one it is given up for good.
        unsafe { ring.submission().push(&entry).expect("the ring is empty") };
        while ring.completion().is_empty() {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    std::mem::forget(page);
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(ring.completion().next().map_or(-1, |entry: cqueue::Entry| entry.result()))
    };
    read().is_ok_and(|result| result >= 0)
}

/// What a kernel offers, by the version that brought it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Linux5_11,
    Linux6_1,
    Linux6_6,
}

struct Built {
    ring: IoUring,
    event_descriptor: Option<OwnedFd>,
    calls: Vec<u8>,
}

fn build(wanted: RingUse, level: Level) -> io::Result<Built> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(wanted.completion_entries.next_power_of_two());
    if level >= Level::Linux6_6 {
        builder.setup_no_sqarray();
    }
    let defers = level >= Level::Linux6_1 && wanted.sharing == Sharing::Local;
    if level >= Level::Linux6_1 {
        builder.setup_submit_all().setup_r_disabled();
        if defers {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        }
    }
    if wanted.polling == DevicePolling::Polled {
        builder.setup_iopoll();
    }
    if let SubmissionPolling::On { idle_ms, processor } = wanted.submission_polling {
        builder.setup_sqpoll(idle_ms.max(1));
        if let Some(processor) = processor {
            builder.setup_sqpoll_cpu(processor);
        }
    }
    let ring = builder.build(wanted.submission_entries.next_power_of_two())?;
    if !ring.params().is_feature_ext_arg() {
        let text = "this kernel's io_uring cannot wait for a limited time (Linux 5.11, and 5.10 from 5.10.162 on, can)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !NEEDED.iter().all(|&code| probe.is_supported(code)) {
        let text = "this kernel's io_uring lacks read, write or fsync";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let event_descriptor = if defers { Some(register_event_descriptor(&ring)?) } else { None };
    let mut calls = Vec::new();
    if wanted.operations >= RingOperations::Calls && wanted.polling == DevicePolling::Interrupts {
        calls.extend(CALLS.iter().filter(|&&code| probe.is_supported(code)));
        // Those that may last for ever have to be cancelled.
        if level >= Level::Linux6_1 && can_cancel(&ring) {
            calls.extend(WAITS.iter().filter(|&&code| probe.is_supported(code)));
        }
    }
    if level >= Level::Linux6_1 {
        if wanted.operations < RingOperations::Any {
            restrict(&ring, &calls)?;
        }
        ring.submitter().register_enable_rings()?;
    }
    Ok(Built { ring, event_descriptor, calls })
}

/// With `IORING_SETUP_DEFER_TASKRUN` a completion wakes a thread inside `io_uring_enter` and signals an eventfd, but since Linux
/// 6.3 it does not wake a thread that polls the ring (`io_req_local_work_add` in io_uring/io_uring.c).
fn register_event_descriptor(ring: &IoUring) -> io::Result<OwnedFd> {
    let event_descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    ring.submitter().register_eventfd(event_descriptor.as_raw_fd())?;
    Ok(event_descriptor)
}

/// Restricts the ring to the operations of this crate, whichever code gets hold of its descriptor.
fn restrict(ring: &IoUring, calls: &[u8]) -> io::Result<()> {
    let operations = NEEDED.iter().chain(&FIXED).chain(calls).map(|&code| Restriction::sqe_op(code));
    let registrations = REGISTRATIONS.iter().map(|&code| Restriction::register_op(code));
    let mut restrictions: Vec<Restriction> = operations.chain(registrations).collect();
    ring.submitter().register_restrictions(&mut restrictions)
}

/// Whether the kernel has `IORING_REGISTER_SYNC_CANCEL` (Linux 6.0).
fn can_cancel(ring: &IoUring) -> bool {
    let nothing = types::CancelBuilder::user_data(u64::MAX);
    let cancelled = ring.submitter().register_sync_cancel(Some(types::Timespec::new()), nothing);
    cancelled.err().and_then(|error| error.raw_os_error()) != Some(libc::EINVAL)
}

fn explain(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let text = "the kernel has no memory for the ring, which many kernels count against `ulimit -l`: \
                lower the queue depth or raise the limit";
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

const NEEDED: [u8; 6] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Readv::CODE,
    opcode::Write::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
];

/// Calls that end by themselves.
const CALLS: [u8; 7] = [
    opcode::OpenAt::CODE,
    opcode::Close::CODE,
    opcode::Statx::CODE,
    opcode::Fallocate::CODE,
    opcode::SyncFileRange::CODE,
    opcode::RenameAt::CODE,
    opcode::UnlinkAt::CODE,
];

/// Calls that need not.
const WAITS: [u8; 2] = [opcode::Timeout::CODE, opcode::PollAdd::CODE];

const FIXED: [u8; 2] = [opcode::ReadFixed::CODE, opcode::WriteFixed::CODE];

/// Of <linux/io_uring.h>: `IORING_REGISTER_BUFFERS2`, `_BUFFERS_UPDATE`, `_SYNC_CANCEL`.
const REGISTRATIONS: [u8; 3] = [15, 16, 24];
