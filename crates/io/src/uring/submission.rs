//! Submission: requests become entries of the ring, handed to the kernel alone or with others.
//!
//! A sandbox may forbid `io_uring_enter(2)` after the ring was built:
//!
//! ```text
//!   enter ─► refused: no thread enters any more ─► none is inside: nothing is taken from the queue any more
//!                                                    └─► worker threads carry out what is staged, and all that follows
//! ```
//!
//! What the kernel has taken by then completes by itself. Not so on rings that complete only when they are entered (local ones, polled
//! ones), nor do worker threads take over what a thread of the kernel may still submit (`IORING_SETUP_SQPOLL`): a program that forbids
//! itself the ring later uses neither.
//!
//! Owns: the tail of the submission queue (under the `submission` lock), when the kernel is entered for it, the worker threads that
//! replace it.
//! Does not own: completions; which memory the kernel knows (registered).
//! Locks: `submission`, for writing entries only; the kernel is entered without it.
//! Invariants: an entry is carried out once, by the kernel or by a worker thread (gate).

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::types;
use rustix::io::Errno;

use super::registered::Lookup;
use super::{Shared, WAIT, entry};
use crate::arena::Chunk;
use crate::pool::SlotId;
use crate::slots::Attempt;
use crate::sync::lock;
use crate::threads::Threads;

impl Shared {
    pub(super) fn start(&self, ids: &[SlotId]) {
        self.submitters.fetch_add(1, Ordering::Relaxed);
        let staged = self.push(ids);
        if !self.leaves_to_burst(ids.len(), staged) {
            self.flush();
        }
        self.submitters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writes entries into the submission queue; says how many are there now.
    pub(super) fn push(&self, ids: &[SlotId]) -> usize {
        let mut left = ids;
        let mut wanted: Option<Chunk> = None;
        loop {
            let staged = {
                let mut entries = lock(&self.submission);
                if let Some(substitute) = self.substitute.get() {
                    drop(entries);
                    left.iter().for_each(|&id| substitute.start(id));
                    return 0;
                }
                // SAFETY: the `submission` lock makes this the only access to the queue's tail; the handle, which
                // publishes the tail when dropped, goes before the guard does.
                let mut queue = unsafe { self.ring.submission_shared() };
                let (taken, rest) = left.split_at(left.len().min(queue.capacity() - queue.len()));
                for &id in taken {
                    // SAFETY: these requests have places and were given to this driver. Their memory is theirs until
                    // their completions are seen; the queue is not full.
                    unsafe {
                        let attempt = self.slots.prepare(id);
                        let registered = self.look_up(&attempt, &mut wanted);
                        entry::push(&mut queue, &attempt, id, registered);
                    }
                }
                entries.note(taken, queue.capacity());
                left = rest;
                queue.len()
            };
            if let (Some(chunk), Some(memory)) = (wanted.take(), self.memory.get()) {
                memory.register(&self.ring, &chunk);
            }
            if left.is_empty() {
                return staged;
            }
            self.flush();
        }
    }

    /// Where the kernel knows the memory of an attempt. A chunk to be made known is left in `wanted`.
    pub(super) fn look_up(&self, attempt: &Attempt, wanted: &mut Option<Chunk>) -> Option<u16> {
        let (Some(memory), Attempt::Transfer(transfer)) = (self.memory.get(), attempt) else { return None };
        let chunk = transfer.chunk.as_ref()?;
        match memory.look_up(chunk) {
            Lookup::Registered(index) => return Some(index),
            Lookup::Wanted if wanted.is_none() => *wanted = Some(*chunk),
            // Only one is made known at a time; the next request wants the other.
            Lookup::Wanted => memory.want_later(chunk),
            Lookup::Unregistered => {}
        }
        None
    }

    /// Whether the tasks that were woken with this one will see to its request.
    pub(super) fn leaves_to_burst(&self, count: usize, staged: usize) -> bool {
        if self.burst.load(Ordering::Relaxed) <= 0 {
            return false;
        }
        // Acquire and release: who ends the burst sees the entries of all who were in it.
        let left = self.burst.fetch_sub(count as isize, Ordering::AcqRel) - count as isize;
        // The busier the device is, the longer it can do without.
        let in_kernel = self.slots.in_flight().saturating_sub(staged);
        left > 0 && staged < (STAGED_MIN + in_kernel / 2).min(STAGED_MAX)
    }

    /// Ends the burst that an attendant began, and hands over what was left to it.
    pub(super) fn end_burst(&self) {
        self.burst.swap(0, Ordering::AcqRel);
        self.flush_staged();
    }

    pub(super) fn flush_staged(&self) {
        if self.has_staged() {
            self.flush();
        }
    }

    pub(super) fn has_staged(&self) -> bool {
        let _guard = lock(&self.submission);
        // SAFETY: as in `push`.
        !self.is_substituted() && !unsafe { self.ring.submission_shared() }.is_empty()
    }

    /// Hands staged entries to the kernel. Entries that it does not take now are taken by the next call, at the
    /// latest when somebody waits.
    pub(super) fn flush(&self) {
        for _ in 0..SUBMIT_ATTEMPTS {
            match self.enter(0, WAIT) {
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory or of room for completions: make room.
                Err(_) => match self.try_lead() {
                    Some(lead) => self.reap_ready(lead),
                    None => std::thread::yield_now(),
                },
            }
        }
    }

    /// Hands over what is staged, and waits for so many completions, no longer than `limit` (before Linux 5.11, and on a local ring, which
    /// no other thread enters, for as long as it takes).
    pub(super) fn enter(&self, want: usize, limit: Duration) -> io::Result<usize> {
        self.check_owner();
        self.enters.fetch_add(1, Ordering::Relaxed);
        self.entered.note();
        let entered = if !self.gate.enter() {
            Err(Errno::PERM.into())
        } else if want > 0 && !self.ring.deferred && self.ring.params().is_feature_ext_arg() {
            let limit = types::Timespec::from(limit);
            self.ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&limit))
        } else {
            self.ring.submitter().submit_and_wait(want)
        };
        let is_refused = entered.as_ref().is_err_and(is_refusal);
        if is_refused {
            self.gate.close();
        }
        if self.gate.leave() {
            self.substitute();
        }
        if is_refused {
            if want > 0 {
                // What the kernel had taken shows in the queue.
                std::thread::sleep(LOOK_AGAIN);
            }
            return Ok(0);
        }
        entered
    }

    /// No thread is in the kernel, nor will be: worker threads carry out what that has not taken.
    #[cold]
    fn substitute(&self) {
        let entries = lock(&self.submission);
        if self.is_substituted() || self.submits_by_itself {
            return;
        }
        // SAFETY: as in `push`.
        let staged = unsafe { self.ring.submission_shared() }.len();
        let staged = entries.last(staged);
        let substitute = self.substitute.get_or_init(|| Threads::new(&self.slots));
        drop(entries);
        staged.into_iter().for_each(|id| substitute.start(id));
    }

    /// Whether worker threads do the ring's work.
    pub(super) fn is_substituted(&self) -> bool {
        self.substitute.get().is_some()
    }
}

/// Which requests the entries of the submission queue are.
pub(super) struct Staged {
    /// By place in the queue.
    ids: Vec<SlotId>,
    /// Entries written so far.
    written: usize,
}

impl Staged {
    pub(super) fn new(entries: u32) -> Staged {
        Staged { ids: Vec::with_capacity(entries.next_power_of_two() as usize), written: 0 }
    }

    /// No more than fit into the queue, whose capacity is a power of two.
    fn note(&mut self, ids: &[SlotId], capacity: usize) {
        let Some(&filler) = ids.first() else { return };
        self.ids.resize(capacity, filler);
        let start = self.written & (capacity - 1);
        let (to_end, from_start) = ids.split_at(ids.len().min(capacity - start));
        self.ids[start..start + to_end.len()].copy_from_slice(to_end);
        self.ids[..from_start.len()].copy_from_slice(from_start);
        self.written += ids.len();
    }

    /// The last so many, in order.
    fn last(&self, count: usize) -> Vec<SlotId> {
        (self.written - count..self.written).map(|at| self.ids[at % self.ids.len()]).collect()
    }
}

/// Whether a sandbox forbids the system call from now on. Other errors pass.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// How often a thread that waits looks at what the kernel had taken before it refused.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Entries left to a burst: at least so many when the device has nothing else to do, at most so many when it is busy.
/// Random reads of 4 KiB, 32 in flight on a virtio disk, one tokio thread: 6 to 16 made 80.1 thousand a second at 0.19
/// system calls each, always 8 made 76.0 at 0.19, always 2 made 83.9 at 0.5, always 16 made 71.1.
const STAGED_MIN: usize = 6;
const STAGED_MAX: usize = 16;

/// Tries to hand entries to a kernel that is short of memory before leaving them to whoever waits next.
const SUBMIT_ATTEMPTS: usize = 64;
