//! Submission: writes requests into the ring, and enters the kernel for each or for several together.
//!
//! A sandbox may forbid `io_uring_enter(2)` after the ring was built:
//!
//! ```text
//!   enter ─► refused: no thread enters any more ─► none is inside: the kernel takes no entry any more
//!                                                    └─► worker threads carry out staged and later requests
//! ```
//!
//! Requests that the kernel has taken by then complete by themselves. Local and polled rings are excepted, which complete only when
//! they are entered; and worker threads cannot replace `IORING_SETUP_SQPOLL`, whose thread in the kernel may still submit. A
//! program that forbids itself io_uring later must use neither.
//!
//! Owns: the tail of the submission queue (under the `submission` lock), when the kernel is entered, the worker threads that
//! replace it.
//! Does not own: completions, registered memory (registered).
//! Locks: `submission`, for writing entries only; the kernel is entered without it.
//! Invariants: an entry is carried out once, by the kernel or by a worker thread (gate).

use std::io;
#[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::types;
use rustix::io::Errno;

#[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
use super::faults;
use super::reaping::Harvest;
use super::registered::Lookup;
use super::{Shared, WAIT, entry};
use crate::backend::threads::Threads;
use crate::memory::arena::Chunk;
use crate::request::attempt::Attempt;
use crate::request::slot_table::{SlotId, SlotIds};
use crate::sync::lock;

impl Shared {
    pub(super) fn start(&self, ids: &[SlotId]) {
        self.submitters.fetch_add(1, Ordering::Relaxed);
        let staged = self.push(ids);
        if !self.leaves_to_others(ids.len(), staged) {
            self.flush(staged);
        }
        self.submitters.fetch_sub(1, Ordering::Relaxed);
    }

    /// The same for entries of a task that are written already. They count as one, also if another thread has submitted them.
    pub(super) fn submit_staged(&self) {
        let staged = self.staged();
        if !self.leaves_to_others(1, staged) && staged > 0 {
            self.flush(staged);
        }
    }

    /// Writes entries into the submission queue, and submits them whenever it is full. Returns how many are in it now.
    pub(super) fn push(&self, ids: &[SlotId]) -> usize {
        let (written, staged) = self.write(ids);
        if written < ids.len() {
            self.hand_over_all(staged, SlotIds::from_slice(&ids[written..]));
            return 0;
        }
        staged
    }

    /// Writes as many entries as fit. Returns how many, and how many are in the queue now.
    fn write(&self, ids: &[SlotId]) -> (usize, usize) {
        let mut wanted: Option<Chunk> = None;
        let (written, staged) = {
            let mut entries = lock(&self.submission);
            if let Some(substitute) = self.substitute.get() {
                drop(entries);
                ids.iter().for_each(|&id| substitute.start(id));
                return (ids.len(), 0);
            }
            // SAFETY: the `submission` lock makes this the only access to the queue's tail; the handle, which
            // publishes the tail when dropped, goes before the guard does.
            let mut queue = unsafe { self.ring.submission_shared() };
            let taken = &ids[..ids.len().min(queue.capacity() - queue.len())];
            for &id in taken {
                // SAFETY: these requests have places and were given to this driver. Their memory is theirs until
                // their completions are seen; the queue is not full.
                unsafe {
                    let attempt = self.slots.prepare(id);
                    let registered = self.look_up(&attempt, &mut wanted);
                    entry::push(&mut queue, &attempt, self.slots.attempt_id(id), registered);
                }
            }
            entries.note(taken, queue.capacity());
            (taken.len(), queue.len())
        };
        if let (Some(chunk), Some(memory)) = (wanted, self.memory.get()) {
            memory.register(&self.ring, &chunk);
        }
        (written, staged)
    }

    /// The registration of an attempt's memory. `wanted` receives a chunk to register.
    pub(super) fn look_up(&self, attempt: &Attempt, wanted: &mut Option<Chunk>) -> Option<u16> {
        let (Some(memory), Attempt::Transfer(transfer)) = (self.memory.get(), attempt) else { return None };
        let chunk = transfer.chunk.as_ref()?;
        match memory.look_up(chunk) {
            Lookup::Registered(index) => return Some(index),
            Lookup::Wanted if wanted.is_none() => *wanted = Some(*chunk),
            // Only one is registered at a time; the next request wants the other.
            Lookup::Wanted => memory.want_later(chunk),
            Lookup::Unregistered => {}
        }
        None
    }

    /// Whether tasks that were woken together are expected to submit.
    pub(super) fn in_burst(&self) -> bool {
        self.burst.load(Ordering::Relaxed) > 0
    }

    /// Whether another thread or task will submit these entries soon: one of the tasks that were woken with this one, or the driver
    /// thread.
    pub(super) fn leaves_to_others(&self, count: usize, staged: usize) -> bool {
        // Acquire and release: the task that ends the burst sees the entries of all tasks in it.
        let expects_more =
            self.in_burst() && self.burst.fetch_sub(count as isize, Ordering::AcqRel) > count as isize;
        // The busier the device is, the longer an entry can wait.
        let in_kernel = self.slots.in_flight().saturating_sub(staged);
        if expects_more {
            return staged < (STAGED_MIN + in_kernel / 2).min(STAGED_MAX);
        }
        let comes_soon = in_kernel >= BUSY_MIN && self.attendant_leads.load(Ordering::Relaxed);
        comes_soon && staged <= in_kernel / STAGED_DIVISOR && !self.submits_by_itself
    }

    /// Ends the burst that an attendant began, and submits its entries.
    pub(super) fn end_burst(&self) {
        self.burst.swap(0, Ordering::AcqRel);
        self.flush_staged();
    }

    pub(super) fn flush_staged(&self) {
        let staged = self.staged();
        if staged > 0 {
            self.flush(staged);
        }
    }

    /// The same for a thread that waits: the leader enters the kernel again anyway.
    pub(super) fn flush_once(&self) {
        let staged = self.staged();
        if staged > 0 {
            let _ = self.try_flush(staged);
        }
    }

    pub(super) fn has_staged(&self) -> bool {
        self.staged() > 0
    }

    /// Entries that the kernel has not taken yet, and will if it is entered.
    fn staged(&self) -> usize {
        let _guard = lock(&self.submission);
        // SAFETY: as in `write`.
        if self.is_substituted() { 0 } else { unsafe { self.ring.submission_shared() }.len() }
    }

    /// Waits until the kernel's thread has taken the entries, if it is one that takes them: what it has not seen cannot be cancelled.
    pub(super) fn await_taking(&self) {
        while self.submits_by_itself && self.has_staged() && !self.gate.is_closed() {
            let _ = self.enter(0, WAIT);
            std::thread::yield_now();
        }
    }

    /// Submits the staged entries, of which there are `staged` at least. A kernel short of memory, or of room for completions, takes
    /// some or none of them; the call is repeated until it has taken all. No other thread might do that: the owners may be tasks,
    /// which only completions wake.
    pub(super) fn flush(&self, staged: usize) {
        if !self.try_flush(staged).is_ok_and(|all| all) {
            self.hand_over_all(staged, SlotIds::new());
        }
    }

    /// Enters the kernel once. Returns whether at least `staged` entries were taken, by the kernel or by worker threads.
    pub(super) fn try_flush(&self, staged: usize) -> io::Result<bool> {
        let taken = self.enter(0, WAIT)?;
        // Entries that another thread submitted at the same time do not count here.
        Ok(taken >= staged || self.submits_by_itself || self.gate.is_closed() || !self.has_staged())
    }

    /// Writes these as well and submits all. Requests that are launched meanwhile are submitted in the same loop, without recursion:
    /// the stack does not grow with the completions that arrive while the kernel takes no entries.
    #[cold]
    fn hand_over_all(&self, mut staged: usize, mut left: SlotIds) {
        let mut attempts = 0;
        loop {
            match self.try_flush(staged) {
                Ok(true) if left.is_empty() => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if attempts >= SUBMIT_ATTEMPTS && !is_shortage(&error) && left.is_empty() {
                        return;
                    }
                    left.extend(self.make_room());
                    if attempts >= SUBMIT_ATTEMPTS {
                        std::thread::sleep(SHORTAGE_PAUSE);
                    }
                }
            }
            attempts += 1;
            let written;
            (written, staged) = self.write(&left);
            left.drain(..written);
        }
    }

    /// Reaps ready completions unless another thread leads. Returns the requests to start, which the caller submits.
    fn make_room(&self) -> SlotIds {
        let Some(lead) = self.try_lead() else {
            std::thread::yield_now();
            return SlotIds::new();
        };
        let mut harvest = Harvest::new();
        self.collect_deferred();
        self.drain_ready(&mut harvest);
        let next = self.release_lead(lead, &mut harvest);
        self.slots.wake_owners(&mut harvest.completed);
        next
    }

    /// Submits staged entries and waits for `want` completions, for no longer than `limit` (on a local ring where it is no shorter than
    /// [`WAIT`], without a limit).
    pub(super) fn enter(&self, want: usize, limit: Duration) -> io::Result<usize> {
        self.check_owner();
        self.enters.fetch_add(1, Ordering::Relaxed);
        self.entered.note();
        let entered = if !self.gate.enter() { Err(Errno::PERM.into()) } else { self.enter_ring(want, limit) };
        let is_refused = entered.as_ref().is_err_and(is_refusal);
        if is_refused {
            self.gate.close();
        }
        if self.gate.leave() {
            self.substitute();
        }
        if is_refused {
            if want > 0 {
                // The queue shows what the kernel had taken.
                std::thread::sleep(LOOK_AGAIN);
            }
            return Ok(0);
        }
        entered
    }

    #[inline]
    fn enter_ring(&self, want: usize, limit: Duration) -> io::Result<usize> {
        #[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
        let want = match faults::enter(self.faults.get(), &self.ring, want) {
            ControlFlow::Continue(want) => want,
            ControlFlow::Break(result) => return result,
        };
        // On a local ring the limit counts only where it is short: it costs a timer, and nothing else enters that ring.
        let is_limited = !self.ring.deferred || limit < WAIT;
        if want > 0 && is_limited {
            let limit = types::Timespec::from(limit);
            self.ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&limit))
        } else {
            self.ring.submitter().submit_and_wait(want)
        }
    }

    /// Called when no thread is in the kernel or will enter it: worker threads carry out the entries that it has not taken.
    #[cold]
    fn substitute(&self) {
        let entries = lock(&self.submission);
        if self.is_substituted() || self.submits_by_itself {
            return;
        }
        // SAFETY: as in `write`.
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

    /// The last `count`, in order.
    fn last(&self, count: usize) -> Vec<SlotId> {
        (self.written - count..self.written).map(|at| self.ids[at % self.ids.len()]).collect()
    }
}

/// Whether a sandbox forbids the system call from now on. Other errors pass.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// How often a thread that waits reaps requests that the kernel had taken before it refused.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Entries that accumulate before the kernel is entered: this many when the device is idle, [`STAGED_MAX`] when it is busy.
/// Random reads of 4 KiB, 32 in flight on a virtio disk, one tokio thread: 6 to 16 made 80.1 thousand a second at 0.19
/// system calls each, always 8 made 76.0 at 0.19, always 2 made 83.9 at 0.5, always 16 made 71.1.
const STAGED_MIN: usize = 6;
const STAGED_MAX: usize = 16;

/// With as many requests in the kernel, of which one has just completed, the next completes soon, and a driver thread that leads enters the
/// kernel then. Tasks leave their entries to that thread: each saves its own thread a system call.
/// Cached random reads of 4 KiB over 2.5 times the memory, 20 tasks on one thread: 55.1 thousand a second at 19.9 us of processor time,
/// 48.6 at 21.6 where each lone task submitted by itself (medians of three).
pub(super) const BUSY_MIN: usize = 8;
/// As many times more requests are in the kernel than entries are left, so that the device does not run out of work.
const STAGED_DIVISOR: usize = 4;

/// Whether the kernel may take later what it does not take now.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM))
}

/// Attempts to submit entries before the thread sleeps between attempts if the kernel is short of a resource, else leaves them to
/// the next thread that waits.
const SUBMIT_ATTEMPTS: usize = 64;

/// Short against the time in which a system finds memory.
const SHORTAGE_PAUSE: Duration = Duration::from_micros(200);
