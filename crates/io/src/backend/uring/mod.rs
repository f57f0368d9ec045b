//! uring: the io_uring driver. Any thread submits; a thread that waits for a result reaps completions for all (it *leads*).
//!
//! ```text
//!   start ─► SQE, under `submission` ─┬─ alone ──────────────────► io_uring_enter
//!                                     └─ one of a burst of tasks, or on a busy device ─► submitted by the last of them, or by the attendant
//!   wait ─┬─ my request is done ─────────────────────────────► take it, hand the lead to a follower
//!         ├─ no leader: lead ─► drain CQ, else io_uring_enter(wait 1) ─► drain ─► wake owners ─┐
//!         └─ a leader: follow ─► park until done or made leader ◄──────────────────────────────┘
//!   poll ─► attend: the runtime watches the ring's descriptor (reactor), or a driver thread leads while requests are
//!           in flight and a moment longer, then parks
//! ```
//!
//! A lone blocking reader therefore pays no thread switch, and the driver thread exists only once a task waits on a runtime
//! that cannot watch a descriptor.
//!
//! Tasks that are woken together submit again nearly together (a *burst*). Each writes its request into the ring, and the last
//! one enters the kernel for all. In case one of them does something else instead, the *attendant* that woke them enters after
//! it has let the tasks run (reactor) or after [`BURST_LIMIT`] (driver thread). While many requests are in the kernel and complete one
//! after the other, the driver thread enters as often, and tasks leave their requests to it, for [`BURST_LIMIT`] at the most.
//!
//! Owns: the ring, the driver thread, the lead, bursts.
//! Does not own: request state and memory (slots), how a ring is built (setup), a pass over the completions (reaping).
//! Invariants: I4 the ring is dropped only when nothing is in flight; I5 the `submission` lock covers writing entries,
//! the `reaper` lock is the right to wait; wakers run with neither held.
//! Locks: reaper -> the slot table's, submission; submission -> nothing; followers -> nothing.
//! Hot path: one `io_uring_enter` to submit; waiting takes another one only when nothing is complete yet.

mod entry;
#[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
pub(crate) mod faults;
mod gate;
#[cfg(feature = "tokio")]
mod reactor;
mod reaping;
mod registered;
mod setup;
mod stalls;
mod submission;
mod thread;
mod waiting;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

use io_uring::types;

use crate::backend::threads::Threads;
use crate::backend::uring::gate::Gate;
use crate::memory::arena::{ArenaKey, Chunk, ChunkUser, Forgotten};
use crate::request::slot_table::SlotId;
use crate::request::slots::Slots;
use crate::request::work::Work;
use crate::sync::event::Until;
use crate::system::fork::ProcessMark;
use registered::RegisteredMemory;
use setup::Ring;
pub(crate) use setup::{DevicePolling, RingUse, Sharing, polled_read_works};
pub use setup::{RingOperations, SubmissionPolling};
use stalls::{Entered, Stalls};
use submission::Staged;
use waiting::Followers;

pub(crate) struct Uring {
    shared: Arc<Shared>,
    thread: thread::DriverThread,
    #[cfg(feature = "tokio")]
    reactors: Arc<reactor::Reactors>,
}

pub(crate) struct Shared {
    ring: Ring,
    slots: Arc<Slots>,
    mark: ProcessMark,
    /// The only thread that may enter a local ring.
    owner: Option<ThreadId>,
    /// Whether completions are polled from the device, which no descriptor shows.
    polling: DevicePolling,
    memory: OnceLock<RegisteredMemory>,
    submission: Mutex<Staged>,
    /// Worker threads that carry requests out since the kernel refused to be entered; set under the lock of `submission`.
    substitute: OnceLock<Threads>,
    /// Around calls of `io_uring_enter`; closed when the kernel has refused one.
    gate: Gate,
    entered: Entered,
    stalls: Stalls,
    /// Whether a thread of the kernel submits (`IORING_SETUP_SQPOLL`).
    submits_by_itself: bool,
    reaper: Mutex<()>,
    followers: Mutex<Followers>,
    follower_count: AtomicUsize,
    /// Threads that are submitting now.
    submitters: AtomicUsize,
    /// Tasks woken together that have not submitted again yet.
    burst: AtomicIsize,
    /// The attendant that woke them, and submits the entries they leave.
    burst_attendant: AtomicUsize,
    /// Plugs that have staged entries here.
    plugs: AtomicUsize,
    /// Loops that drive the tasks that wait for this ring; see [`Uring::drive_locally`].
    driven_locally: AtomicUsize,
    enters: AtomicU64,
    /// Completions that named no attempt under way.
    unmatched: AtomicU64,
    attended: AtomicBool,
    /// Whether the driver thread has the lead, and enters the kernel again within [`BURST_LIMIT`].
    attendant_leads: AtomicBool,
    stopping: AtomicBool,
    #[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
    faults: OnceLock<faults::Faults>,
}

/// The role in which a thread reaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaper {
    /// It waits for a result of its own.
    Waiting,
    /// It only reaps: tasks that it wakes may leave their entries for it to submit.
    Attendant(Attendant),
}

/// Whether a thread waits for completions although nothing is in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsIdle {
    Yes,
    No,
}

/// Number of an attendant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Attendant(usize);

impl Attendant {
    const THREAD: Attendant = Attendant(1);
    /// The loop of a local driver.
    const LOOP: Attendant = Attendant(2);
    /// Reactors are numbered from here on.
    #[cfg(feature = "tokio")]
    const FIRST_REACTOR: usize = 3;
}

/// Why the kernel refuses this process a ring; `None` if it grants one.
pub fn uring_refusal() -> Option<String> {
    let wanted = RingUse {
        submission_entries: 1,
        completion_entries: 2,
        sharing: Sharing::AnyThread,
        polling: DevicePolling::Interrupts,
        submission_polling: SubmissionPolling::Off,
        operations: RingOperations::Transfers,
    };
    Ring::new(wanted).err().map(|error| error.to_string())
}

impl ChunkUser for Shared {
    fn forget(&self, chunk: &Chunk) -> Forgotten {
        let Some(memory) = self.memory.get() else { return Forgotten::Yes };
        if self.is_foreign() { Forgotten::No } else { memory.forget(&self.ring, chunk) }
    }
}

impl Uring {
    pub(crate) fn new(slots: &Arc<Slots>, wanted: RingUse) -> io::Result<Uring> {
        let owner = (wanted.sharing == Sharing::Local).then(|| std::thread::current().id());
        let shared = Shared {
            ring: Ring::new(wanted)?,
            slots: slots.clone(),
            mark: ProcessMark::here(),
            owner,
            polling: wanted.polling,
            memory: OnceLock::new(),
            submission: Mutex::new(Staged::new(wanted.submission_entries)),
            substitute: OnceLock::new(),
            gate: Gate::new(),
            entered: Entered::new(),
            stalls: Stalls::new(),
            submits_by_itself: wanted.submission_polling != SubmissionPolling::Off,
            reaper: Mutex::new(()),
            followers: Mutex::default(),
            follower_count: AtomicUsize::new(0),
            submitters: AtomicUsize::new(0),
            burst: AtomicIsize::new(0),
            burst_attendant: AtomicUsize::new(0),
            plugs: AtomicUsize::new(0),
            driven_locally: AtomicUsize::new(0),
            enters: AtomicU64::new(0),
            unmatched: AtomicU64::new(0),
            attended: AtomicBool::new(false),
            attendant_leads: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            #[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
            faults: OnceLock::new(),
        };
        Ok(Uring {
            shared: Arc::new(shared),
            thread: thread::DriverThread::default(),
            #[cfg(feature = "tokio")]
            reactors: Arc::default(),
        })
    }

    /// Submits requests to the kernel, now or with others.
    pub(crate) fn start(&self, ids: &[SlotId]) {
        self.shared.start(ids);
    }

    /// Writes requests into the ring; [`Uring::unplug`], or a thread that waits, submits them.
    pub(crate) fn stage(&self, ids: &[SlotId]) {
        self.shared.push(ids);
    }

    /// Called when a plug begins to stage requests here; [`Uring::unplug`] follows.
    pub(crate) fn plug(&self) {
        self.shared.plugs.fetch_add(1, Ordering::Relaxed);
    }

    /// Submits staged entries. There may be none, if the queue had no place for readahead.
    pub(crate) fn unplug(&self) {
        self.shared.plugs.fetch_sub(1, Ordering::Relaxed);
        self.shared.flush_staged();
    }

    /// The same for a task that waits for one of them next: others may submit them.
    pub(crate) fn unplug_for_task(&self) {
        self.shared.plugs.fetch_sub(1, Ordering::Relaxed);
        self.shared.submit_staged();
    }

    /// Submits staged entries and blocks until the request is done.
    pub(crate) fn wait(&self, id: SlotId) {
        while !self.shared.wait_for(id, WAIT, Until::Done) {}
    }

    /// The same for `limit` to about twice that. Returns whether the request is done.
    pub(crate) fn wait_for(&self, id: SlotId, limit: Duration, until: Until) -> bool {
        self.shared.wait_for(id, limit, until)
    }

    /// Whether a thread that submitted here is stuck in the kernel.
    pub(crate) fn has_stuck_submitter(&self) -> bool {
        self.shared.any_is_stuck()
    }

    /// How often attendants found such a thread while tasks waited. With each time, a task that waits for a read is woken, to begin it
    /// again elsewhere.
    pub(crate) fn stalls(&self) -> u64 {
        self.shared.stalls.found()
    }

    /// Reaps completions that are ready, unless another thread leads.
    pub(crate) fn reap_ready(&self) {
        if self.shared.in_burst() {
            self.shared.end_burst();
        }
        if let Some(lead) = self.shared.try_lead() {
            self.shared.reap_ready(lead);
            self.shared.hand_over();
        }
    }

    /// Reaps for `limit` at most, unless another thread leads, or workers carry out what the kernel refuses. Returns whether anything is
    /// under way.
    pub(crate) fn reap(&self, limit: Duration) -> bool {
        let is_under_way = self.shared.slots.in_flight() > 0 && !self.shared.is_substituted();
        if let Some(lead) = self.shared.try_lead().filter(|_| is_under_way) {
            self.shared.reap(lead, Reaper::Waiting, limit, WaitsIdle::No);
            self.shared.hand_over();
        }
        is_under_way
    }

    /// Whether another thread is submitting at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.submitters.load(Ordering::Relaxed) > 0
    }

    /// Whether tasks that were woken together are expected to submit here again.
    pub(crate) fn expects_more(&self) -> bool {
        self.shared.in_burst()
    }

    pub(crate) fn enters(&self) -> u64 {
        self.shared.enters.load(Ordering::Relaxed)
    }

    /// Completions that named no attempt under way.
    pub(crate) fn unmatched(&self) -> u64 {
        self.shared.unmatched.load(Ordering::Relaxed)
    }

    /// Whether the kernel posts completions only when the ring is entered (`IORING_SETUP_DEFER_TASKRUN`).
    pub(crate) fn is_deferred(&self) -> bool {
        self.shared.ring.deferred
    }

    /// From now on, chunks of this arena are registered with the kernel on first use.
    pub(crate) fn register_memory(&self, arena: ArenaKey) {
        self.shared.memory.get_or_init(|| {
            let ring: Arc<dyn ChunkUser> = self.shared.clone();
            arena.add_ring(Arc::downgrade(&ring));
            RegisteredMemory::new(arena)
        });
    }

    /// Registered bytes, and why not more.
    pub(crate) fn registered_memory(&self) -> (u64, Option<&str>) {
        self.shared.memory.get().map_or((0, None), |memory| (memory.bytes(), memory.refusal()))
    }

    /// Asks the kernel to cancel a request (`IORING_REGISTER_SYNC_CANCEL`, Linux 6.0), for which it may be too late.
    pub(crate) fn cancel(&self, id: SlotId) {
        self.shared.check_owner();
        self.shared.flush_staged();
        self.shared.await_taking();
        if let Some(substitute) = self.shared.substitute.get() {
            substitute.look_at_waits();
        }
        let slots = &self.shared.slots;
        while let Some(attempt) = slots.attempt_under_way(id) {
            let builder = types::CancelBuilder::user_data(entry::encode(attempt));
            let _ = self.shared.ring.submitter().register_sync_cancel(Some(types::Timespec::new()), builder);
            if slots.attempt_under_way(id) == Some(attempt) {
                return;
            }
        }
    }

    /// The same for a request that no caller waits for any more. On a local ring in another thread than its own, the request is cancelled
    /// when the ring is dropped.
    pub(crate) fn cancel_abandoned(&self, id: SlotId) {
        if !self.shared.is_foreign() {
            self.cancel(id);
        }
    }

    /// Whether it can carry out a call.
    #[inline]
    pub(crate) fn carries_out(&self, work: &Work) -> bool {
        work.actions().all(|action| {
            entry::operation(action).is_some_and(|operation| self.shared.ring.carries_out(operation))
        })
    }

    /// Called by a task that begins to wait: ensures that a reactor or the driver thread reaps until nothing is in flight, and that
    /// entries left to a burst do not wait for an attendant which this task's runtime does not run. False if there is neither, for want of
    /// a thread: completions were reaped once, and the task has to come again.
    pub(crate) fn attend_task(&self) -> bool {
        let Some(attendant) = self.attendant() else { return false };
        if self.shared.in_burst() && self.shared.burst_attendant.load(Ordering::Relaxed) != attendant.0 {
            self.shared.end_burst();
        }
        true
    }

    /// The attendant that reaps for the calling task, if there is one.
    fn attendant(&self) -> Option<Attendant> {
        if self.shared.driven_locally.load(Ordering::Relaxed) > 0 {
            return Some(Attendant::LOOP);
        }
        assert!(!self.shared.is_foreign(), "{RUNS_INSIDE}");
        // The task's request may be staged by a plug that stays open until the task goes on.
        if self.shared.plugs.load(Ordering::Relaxed) > 0 {
            self.shared.flush_staged();
        }
        #[cfg(feature = "tokio")]
        if self.shared.polling == DevicePolling::Interrupts
            && let Some(reactor) = self.reactors.attend(&self.shared)
        {
            return Some(reactor);
        }
        assert!(self.shared.owner.is_none(), "{RUNS_INSIDE}");
        self.thread.attend(&self.shared).then_some(Attendant::THREAD)
    }

    /// Ensures that requests in flight are reaped although no thread or task waits for them.
    pub(crate) fn attend(&self) {
        if self.shared.owner.is_none() {
            self.thread.attend(&self.shared);
        }
    }

    /// While the result lives, the caller reaps with [`Uring::submit_and_reap`], and neither reactor nor driver thread does.
    pub(crate) fn drive_locally(&self) -> DrivenLocally {
        self.shared.driven_locally.fetch_add(1, Ordering::Relaxed);
        DrivenLocally(self.shared.clone())
    }

    /// Submits staged entries and reaps ready completions. Returns whether there were any.
    pub(crate) fn submit_and_reap(&self) -> bool {
        let Some(lead) = self.shared.try_lead() else { return false };
        let seen = self.shared.submit_and_reap(lead, Attendant::LOOP);
        self.shared.hand_over();
        seen
    }

    /// How long a thread may sleep until [`Uring::submit_and_reap`] has to be called again although the descriptor shows nothing.
    pub(crate) fn sleep_limit(&self) -> Option<Duration> {
        if self.shared.polling == DevicePolling::Polled && self.shared.slots.in_flight() > 0 {
            // Completions show only to a thread that polls.
            Some(Duration::ZERO)
        } else {
            // The kernel has not taken all entries yet.
            self.shared.has_staged().then_some(TAKE_AGAIN)
        }
    }

    /// The descriptor that becomes readable when a completion is ready.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.ring.watched()
    }

    /// The same; `None` once the kernel has refused the ring.
    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        (!self.shared.gate.is_closed()).then(|| self.descriptor())
    }

    /// See [`Ring::silence`].
    pub(crate) fn silence(&self) {
        self.shared.ring.silence();
    }

    /// From now on the calls of the ring fail as a test wants.
    #[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
    pub(crate) fn inject(&self, faults: faults::Faults) {
        assert!(self.shared.faults.set(faults).is_ok(), "one test for each ring");
    }

    /// # Panics
    /// On a local ring in another thread than its own.
    pub(crate) fn check_thread(&self) {
        self.shared.check_owner();
    }

    /// Whether this is a local ring in another thread than its own.
    pub(crate) fn is_foreign(&self) -> bool {
        self.shared.is_foreign()
    }
}

/// See [`Uring::drive_locally`].
pub(crate) struct DrivenLocally(Arc<Shared>);

impl Drop for DrivenLocally {
    fn drop(&mut self) {
        self.0.driven_locally.fetch_sub(1, Ordering::Relaxed);
        // What its tasks left to their burst, this loop submits no more.
        if self.0.in_burst() && !self.0.is_foreign() && self.0.mark.is_here() {
            self.0.end_burst();
        }
    }
}

impl Drop for Uring {
    /// No [`Completion`](crate::Completion) exists any more, so all requests in flight are abandoned; waits for them.
    fn drop(&mut self) {
        if !self.shared.mark.is_here() {
            self.thread.forget();
            return;
        }
        #[cfg(feature = "tokio")]
        self.reactors.stop();
        if self.shared.is_foreign() && self.shared.slots.in_flight() > 0 {
            // Only the ring's own thread could wait for them. Their memory stays with the kernel for good.
            std::mem::forget(self.shared.clone());
            return;
        }
        // Those that were given up where the ring could not be entered.
        self.shared.slots.cancelled().into_iter().for_each(|id| self.cancel(id));
        self.shared.stopping.store(true, Ordering::SeqCst);
        if !self.thread.stop() {
            self.shared.drain();
        }
    }
}

impl Shared {
    fn is_foreign(&self) -> bool {
        self.owner.is_some_and(|owner| owner != std::thread::current().id())
    }

    fn check_owner(&self) {
        assert!(!self.is_foreign(), "a local driver is used by the thread that built it");
    }
}

const RUNS_INSIDE: &str = "futures of a local engine run inside its `block_on`, or on tokio (current thread) with the feature `tokio`";

/// How long a thread waits in the kernel before it looks at the gate again: a ring that refused another thread is not entered any
/// more.
pub(super) const WAIT: Duration = Duration::from_millis(20);

/// How long an attendant waits before it submits entries again that a kernel short of memory has not taken.
const TAKE_AGAIN: Duration = Duration::from_millis(1);

/// How long an entry may wait for the other tasks of its burst, if they do something else. A tenth of a millisecond is about one
/// read of a flash device.
const BURST_LIMIT: Duration = Duration::from_micros(100);

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::file::{Access, DirectIo, OpenFile, Route};
    use crate::memory::arena::{Arena, Extents, Urgency};
    use crate::request::{Request, Transfer};
    use crate::system::sys::Direction;

    /// A ring with queues of these lengths; `None`, with the reason printed, where there are no rings.
    pub(super) fn ring_of(
        slots: &Arc<Slots>,
        submission_entries: u32,
        completion_entries: u32,
    ) -> Option<Uring> {
        let wanted = RingUse {
            submission_entries,
            completion_entries,
            sharing: Sharing::AnyThread,
            polling: DevicePolling::Interrupts,
            submission_polling: SubmissionPolling::Off,
            operations: RingOperations::Transfers,
        };
        Uring::new(slots, wanted).map_err(|error| headwater_testkit::skip(format!("uring: {error}"))).ok()
    }

    /// Goal: neither a submission queue of two entries nor a completion queue of two, which the kernel has to overflow,
    /// loses or doubles anything. Method: threads that start 64 at once, half of them reads, and all wait.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's rings
    fn tiny_queues_lose_nothing() {
        let slots = Arc::new(Slots::new(DEPTH));
        let Some(uring) = ring_of(&slots, 2, 2) else { return };
        let arena = Arena::new(4 << 20).unwrap();
        // Mapped now: while one thread maps a chunk, others are refused.
        drop(arena.allocate(4096, Urgency::Demand));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/uring/mod.rs");
        let contents = std::fs::read(path).unwrap();
        let file = Arc::new(OpenFile::open(path.as_ref(), DirectIo::Off, Access::Read).unwrap());
        let read = || Transfer {
            direction: Direction::Read,
            file: file.clone(),
            route: Route::Buffered,
            offset_bytes: 0,
            length_bytes: 4096,
            extents: Extents::from_iter([arena
                .allocate(4096, Urgency::Demand)
                .expect("there is room for all")]),
        };
        headwater_testkit::watched("tiny queues", || {
            for _ in 0..ROUNDS {
                burst(&uring, &slots, &read, &contents[..4096]);
                // A result is there a moment before its place is given back.
                while slots.in_flight() > 0 {
                    thread::yield_now();
                }
                slots.check_idle();
            }
        });
    }

    /// From each of four threads as many as there are places for it.
    fn burst(uring: &Uring, slots: &Slots, read: &(dyn Fn() -> Transfer + Sync), contents: &[u8]) {
        let barrier = Barrier::new(THREADS);
        let work = || {
            let begin = |request| slots.begin(request, Urgency::Demand).unwrap();
            let begun: Vec<_> = (0..DEPTH as usize / THREADS)
                .map(|n| begin(if n % 2 == 0 { Request::Nop } else { read().into() }))
                .collect();
            assert!(begun.iter().all(|begun| begun.has_place));
            let ids: Vec<SlotId> = begun.iter().map(|begun| begun.id).collect();
            barrier.wait();
            uring.start(&ids);
            for id in ids {
                uring.wait(id);
                // SAFETY: this thread began it and is its owner.
                let finished = unsafe { slots.take(id) }.unwrap();
                let bytes: Vec<u8> = finished.extents.iter().flat_map(|extent| extent.to_vec()).collect();
                assert_eq!(finished.result.unwrap(), bytes.len());
                assert!(bytes.is_empty() || bytes == contents);
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(work)));
    }

    const DEPTH: u32 = 64;
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
}
