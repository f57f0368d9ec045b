//! uring: the io_uring driver. Any thread submits; a thread that waits reaps, for itself and for the others.
//!
//! ```text
//!   wait ─┬─ my request is done ─────────────────────────────► take it, hand the lead to a follower
//!         ├─ nobody leads: lead ─► drain CQ, else io_uring_enter(wait 1) ─► drain ─► wake owners ─┐
//!         └─ somebody leads: follow ─► park until done or made leader ◄───────────────────────────┘
//!   poll / abandon ─► attend: one driver thread leads while requests are in flight and a moment longer, then parks
//! ```
//!
//! A lone blocking reader therefore pays no thread switch, and the driver thread exists only once somebody waits
//! without a thread.
//!
//! Owns: the ring, the driver thread, who leads.
//! Does not own: request state and memory (slots).
//! Invariants: I4 the ring is dropped only when nothing is in flight; I5 the `submission` lock covers writing one
//! entry, the `reaper` lock is the right to wait; wakers run with neither held.
//! Locks: reaper -> slot; submission -> nothing; followers -> nothing.
//! Hot path: one `io_uring_enter` to submit; waiting takes another one only when nothing is complete yet.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use smallvec::SmallVec;

use crate::request::Finished;
use crate::slots::{SlotId, Slots, Verdict, Waiter, lock};
use crate::sys::{IoSegment, Operation};

/// Whether the ring polls the device for completions (`IORING_SETUP_IOPOLL`) instead of taking interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Polling {
    /// Completions come by interrupt.
    #[default]
    Off,
    /// Waiting spins in the kernel. Only direct requests to a device that polls are possible, others fail with
    /// `Unsupported`; [`crate::device_polls`] tells beforehand.
    On,
}

pub(crate) struct Uring {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    ring: IoUring,
    slots: Arc<Slots>,
    submission: Mutex<()>,
    reaper: Mutex<()>,
    followers: Mutex<Vec<Thread>>,
    follower_count: AtomicUsize,
    attended: AtomicBool,
    stopping: AtomicBool,
}

/// Why the kernel gives this process no ring, or `None` when it does.
pub fn uring_refusal() -> Option<String> {
    build_ring(1, Polling::Off).err().map(|error| error.to_string())
}

impl Uring {
    pub(crate) fn new(slots: &Arc<Slots>, polling: Polling) -> io::Result<Uring> {
        let shared = Shared {
            ring: build_ring(slots.count(), polling)?,
            slots: slots.clone(),
            submission: Mutex::new(()),
            reaper: Mutex::new(()),
            followers: Mutex::new(Vec::new()),
            follower_count: AtomicUsize::new(0),
            attended: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        };
        Ok(Uring { shared: Arc::new(shared), thread: Mutex::new(None) })
    }

    pub(crate) fn start(&self, id: SlotId) {
        self.shared.start(id);
    }

    pub(crate) fn wait(&self, id: SlotId) -> Finished {
        self.shared.wait(id)
    }

    /// Settles what the ring already shows as complete, unless somebody else is at it.
    pub(crate) fn glance(&self) {
        if let Ok(lead) = self.shared.reaper.try_lock() {
            self.shared.settle(lead, Shared::drain_ready);
            self.shared.hand_over();
        }
    }

    /// Sees to it that the driver thread reaps until nothing is in flight.
    pub(crate) fn attend(&self) {
        if self.shared.attended.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut thread = lock(&self.thread);
        if let Some(thread) = &*thread {
            thread.thread().unpark();
            return;
        }
        let shared = self.shared.clone();
        let builder = thread::Builder::new().name("headwater-ring".into()).stack_size(THREAD_STACK_BYTES);
        match builder.spawn(move || shared.drive()) {
            Ok(handle) => *thread = Some(handle),
            // Without a thread to be had, the caller reaps once itself; the next call tries again.
            Err(_) => {
                self.shared.attended.store(false, Ordering::SeqCst);
                drop(thread);
                self.shared.reap(lock(&self.shared.reaper));
            }
        }
    }
}

impl Drop for Uring {
    /// All completions are gone by now, so what is in flight is abandoned; it is waited for.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            None => self.shared.drain(),
            Some(handle) => {
                handle.thread().unpark();
                // A waker that drops the last handle runs on the driver thread, which then ends by itself.
                if handle.thread().id() != thread::current().id() {
                    let _ = handle.join();
                }
            }
        }
    }
}

impl Shared {
    fn start(&self, id: SlotId) {
        let attempt = self.slots.prepare(id);
        // SAFETY: the slot keeps the segments and the memory behind them until the completion of this attempt.
        let segments = unsafe { attempt.segments.as_slice() };
        let entry = build_entry(attempt.operation, attempt.descriptor, segments, attempt.offset_bytes);
        self.push(&entry.user_data(encode(id)));
        self.submit();
    }

    fn push(&self, entry: &squeue::Entry) {
        let guard = lock(&self.submission);
        // SAFETY: the `submission` lock makes this the only access to the queue's tail, and the queue handle is
        // dropped (publishing the tail) before the lock is released. The memory that the entry names is valid until
        // its completion: see `start`.
        unsafe {
            let mut queue = self.ring.submission_shared();
            queue.push(entry).expect("the queue has a place for each slot");
        }
        drop(guard);
    }

    /// Hands queued entries to the kernel. Entries that it does not take now are taken by the next call, at the
    /// latest when somebody waits.
    fn submit(&self) {
        for _ in 0..SUBMIT_ATTEMPTS {
            match self.ring.submitter().submit() {
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory or of room for completions: make room.
                Err(_) => match self.reaper.try_lock() {
                    Ok(lead) => self.settle(lead, Self::drain_ready),
                    Err(_) => thread::yield_now(),
                },
            }
        }
    }

    fn wait(&self, id: SlotId) -> Finished {
        let finished = loop {
            if let Some(finished) = self.slots.take(id, || Waiter::Thread(thread::current())) {
                break finished;
            }
            match self.reaper.try_lock() {
                Ok(lead) => self.lead(lead, id),
                Err(_) => self.follow(id),
            }
        };
        self.hand_over();
        finished
    }

    /// Reaps once, unless the request was completed by the last leader in the meantime.
    fn lead(&self, lead: MutexGuard<'_, ()>, id: SlotId) {
        if !self.slots.is_done(id) {
            self.reap(lead);
        }
    }

    /// Parks until the request is done or the leader hands over.
    fn follow(&self, id: SlotId) {
        lock(&self.followers).push(thread::current());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `hand_over`: either the leader sees this entry, or we see that it has left.
        fence(Ordering::SeqCst);
        // The leader may have left between our try and our entry in the list; then nobody would wake us.
        match self.reaper.try_lock() {
            Ok(lead) => self.lead(lead, id),
            Err(_) => thread::park(),
        }
        let me = thread::current().id();
        let mut followers = lock(&self.followers);
        if let Some(place) = followers.iter().position(|thread| thread.id() == me) {
            followers.swap_remove(place);
            self.follower_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Wakes one follower so that it can lead. Called by everyone who stops waiting, after it last held the lead.
    fn hand_over(&self) {
        fence(Ordering::SeqCst);
        if self.follower_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let follower = lock(&self.followers).pop();
        if let Some(thread) = follower {
            self.follower_count.fetch_sub(1, Ordering::SeqCst);
            thread.unpark();
        }
    }

    /// Completes what is complete; waits for one completion if there is none.
    fn reap(&self, lead: MutexGuard<'_, ()>) {
        self.settle(lead, |shared, batch| {
            shared.drain_ready(batch);
            if batch.seen == 0 && shared.slots.in_flight() > 0 {
                // An error here (EINTR, EBUSY) means that there may be nothing; the caller looks and comes again.
                let _ = shared.ring.submitter().submit_and_wait(1);
                shared.drain_ready(batch);
            }
        });
    }

    /// Runs `drain` with the lead, then tells the owners and continues unfinished requests without it.
    fn settle(&self, lead: MutexGuard<'_, ()>, drain: impl FnOnce(&Self, &mut Batch)) {
        let mut batch = Batch::default();
        drain(self, &mut batch);
        drop(lead);
        batch.done.into_iter().for_each(Waiter::wake);
        batch.again.into_iter().for_each(|id| self.start(id));
    }

    fn drain_ready(&self, batch: &mut Batch) {
        // SAFETY: only the holder of the `reaper` lock gets here, so this is the only access to the completion queue.
        let queue = unsafe { self.ring.completion_shared() };
        for entry in queue.take(BATCH_MAX) {
            batch.seen += 1;
            let id = decode(entry.user_data());
            match self.slots.attempt(id, to_result(entry.result())) {
                Verdict::Finished(waiter) => batch.done.extend(waiter),
                Verdict::Again => batch.again.push(id),
            }
        }
    }

    /// The driver thread: leads while anything is in flight and somebody asked for attention, else parks.
    fn drive(&self) {
        loop {
            if self.slots.in_flight() > 0 {
                self.reap(lock(&self.reaper));
                continue;
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            if self.linger() {
                continue;
            }
            // Lower the flag, then look once more: who raised it before this line has its request counted already,
            // who raises it later unparks us.
            self.attended.store(false, Ordering::SeqCst);
            if self.slots.in_flight() == 0 {
                self.hand_over();
                thread::park();
            } else {
                self.attended.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Stays in the kernel for a moment although nothing is in flight: the task just woken will most likely submit
    /// again, and that completion then needs no unpark of this thread. Says whether there was one.
    fn linger(&self) -> bool {
        let mut seen = 0;
        self.settle(lock(&self.reaper), |shared, batch| {
            let limit = types::Timespec::from(LINGER);
            // An error (ETIME, EINTR, or a kernel without timeouts) means that there may be nothing.
            let _ = shared.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit));
            shared.drain_ready(batch);
            seen = batch.seen;
        });
        seen > 0
    }

    fn drain(&self) {
        while self.slots.in_flight() > 0 {
            self.reap(lock(&self.reaper));
        }
    }
}

/// What one pass over the completion queue found. Sized so that it never allocates.
#[derive(Default)]
struct Batch {
    seen: usize,
    done: SmallVec<[Waiter; 2 * BATCH_MAX]>,
    again: SmallVec<[SlotId; 2 * BATCH_MAX]>,
}

fn build_ring(slots: usize, polling: Polling) -> io::Result<IoUring> {
    let entries = u32::try_from(slots).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp();
    if polling == Polling::On {
        builder.setup_iopoll();
    }
    let ring = builder.build(entries.next_power_of_two())?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Readv::CODE, opcode::Write::CODE, opcode::Writev::CODE];
    if needed.iter().all(|&code| probe.is_supported(code)) {
        Ok(ring)
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring lacks read or write"))
    }
}

fn build_entry(
    operation: Operation,
    descriptor: i32,
    segments: &[IoSegment],
    offset_bytes: u64,
) -> squeue::Entry {
    let file = types::Fd(descriptor);
    match (operation, segments) {
        (Operation::Read, [one]) => {
            opcode::Read::new(file, one.base(), one.length_bytes() as u32).offset(offset_bytes).build()
        }
        (Operation::Write, [one]) => {
            opcode::Write::new(file, one.base(), one.length_bytes() as u32).offset(offset_bytes).build()
        }
        (Operation::Read, many) => opcode::Readv::new(file, IoSegment::as_iovec(many), many.len() as u32)
            .offset(offset_bytes)
            .build(),
        (Operation::Write, many) => opcode::Writev::new(file, IoSegment::as_iovec(many), many.len() as u32)
            .offset(offset_bytes)
            .build(),
    }
}

fn encode(id: SlotId) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

fn decode(user_data: u64) -> SlotId {
    SlotId { index: user_data as u32, generation: (user_data >> 32) as u32 }
}

fn to_result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Completions settled with one hold of the lead; keeps a [`Batch`] on the stack.
const BATCH_MAX: usize = 32;

/// Random reads of 4 KiB, 32 in flight from one task queue, tend to complete together. Without parking the driver thread
/// in the gap between two such bursts there were 9.9 instead of 13.6 thousand context switches a second, 77.5 instead of
/// 75.6 thousand reads, and 6.5 instead of 6.7 µs of processor time for each. Long against such a gap (tens of µs), short
/// for who drops the engine meanwhile.
const LINGER: Duration = Duration::from_millis(1);

/// The driver thread calls wakers, whose depth is theirs; 256 KiB is what small executors give their workers.
const THREAD_STACK_BYTES: usize = 256 << 10;

/// Tries to hand an entry to a kernel that is short of memory before leaving it to whoever waits next.
const SUBMIT_ATTEMPTS: usize = 64;
