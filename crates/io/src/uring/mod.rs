//! uring: the io_uring driver. Any thread submits; a thread that waits reaps, for itself and for the others.
//!
//! ```text
//!   start ─► SQE, under `submission` ─┬─ alone ──────────────────► io_uring_enter
//!                                     └─ one of a burst of tasks ─► left to the last of them, or to the attendant
//!   wait ─┬─ my request is done ─────────────────────────────► take it, hand the lead to a follower
//!         ├─ nobody leads: lead ─► drain CQ, else io_uring_enter(wait 1) ─► drain ─► wake owners ─┐
//!         └─ somebody leads: follow ─► park until done or made leader ◄───────────────────────────┘
//!   poll ─► attend: the runtime watches the ring's descriptor (reactor), or a driver thread leads while requests are
//!           in flight and a moment longer, then parks
//! ```
//!
//! A lone blocking reader therefore pays no thread switch, and the driver thread exists only once somebody waits
//! without a thread on a runtime that cannot watch a descriptor.
//!
//! Tasks that were woken together ask again nearly together. Their requests are only written into the ring; whoever
//! completes the burst enters the kernel for all. So that none of them waits for a task that does something else, the
//! attendant enters after it has let the tasks run (reactor) or after [`BURST_LIMIT`] (driver thread).
//!
//! Owns: the ring, the driver thread, who leads, what is submitted together.
//! Does not own: request state and memory (slots), how a ring is built (setup).
//! Invariants: I4 the ring is dropped only when nothing is in flight; I5 the `submission` lock covers writing entries,
//! the `reaper` lock is the right to wait; wakers run with neither held.
//! Locks: reaper -> the pool's, submission; submission -> nothing; followers -> nothing.
//! Hot path: one `io_uring_enter` to submit; waiting takes another one only when nothing is complete yet.

mod entry;
#[cfg(feature = "tokio")]
mod reactor;
mod setup;
mod thread;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::thread::{Thread, ThreadId};
use std::time::Duration;

use io_uring::types;
use smallvec::SmallVec;

use crate::fork::ProcessMark;
use crate::pool::{SlotId, SlotIds, TOGETHER};
use crate::slots::{Completed, Slots, Verdict, Waiter};
use crate::sync::lock;
use setup::Ring;
pub(crate) use setup::{DevicePolling, RingUse, polled_read_works};
pub use setup::{Sharing, SubmissionPolling};

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
    /// Whether a device is asked for completions, which no descriptor shows.
    polling: DevicePolling,
    submission: Mutex<()>,
    reaper: Mutex<()>,
    followers: Mutex<Followers>,
    follower_count: AtomicUsize,
    /// Threads that are submitting now.
    submitters: AtomicUsize,
    /// Tasks woken together that have not asked again yet.
    burst: AtomicIsize,
    /// Plugs that have something staged here.
    plugs: AtomicUsize,
    /// Somebody drives the tasks that wait for this ring; see [`Uring::drive_locally`].
    driven_locally: AtomicUsize,
    enters: AtomicU64,
    attended: AtomicBool,
    stopping: AtomicBool,
}

/// Who waits for the lead to become free.
#[derive(Default)]
struct Followers {
    threads: Vec<Thread>,
    tasks: Vec<Waker>,
}

/// Who reaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaper {
    /// A thread that waits for something itself.
    Waiting,
    /// Who does nothing else: tasks that it wakes may leave their requests to it.
    Attendant,
}

/// Why the kernel gives this process no ring, or `None` when it does.
pub fn uring_refusal() -> Option<String> {
    let wanted = RingUse {
        submission_entries: 1,
        completion_entries: 2,
        sharing: Sharing::AnyThread,
        polling: DevicePolling::Interrupts,
        submission_polling: SubmissionPolling::Off,
    };
    Ring::new(wanted).err().map(|error| error.to_string())
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
            submission: Mutex::new(()),
            reaper: Mutex::new(()),
            followers: Mutex::default(),
            follower_count: AtomicUsize::new(0),
            submitters: AtomicUsize::new(0),
            burst: AtomicIsize::new(0),
            plugs: AtomicUsize::new(0),
            driven_locally: AtomicUsize::new(0),
            enters: AtomicU64::new(0),
            attended: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        };
        Ok(Uring {
            shared: Arc::new(shared),
            thread: thread::DriverThread::default(),
            #[cfg(feature = "tokio")]
            reactors: Arc::default(),
        })
    }

    /// Hands requests to the kernel, now or with others of their burst.
    pub(crate) fn start(&self, ids: &[SlotId]) {
        self.shared.start(ids);
    }

    /// Writes requests into the ring; [`Uring::unplug`], or who waits, hands them over.
    pub(crate) fn stage(&self, ids: &[SlotId]) {
        self.shared.push(ids);
    }

    /// A plug begins to stage requests here; [`Uring::unplug`] follows.
    pub(crate) fn plug(&self) {
        self.shared.plugs.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands over what is staged.
    pub(crate) fn unplug(&self) {
        self.shared.plugs.fetch_sub(1, Ordering::Relaxed);
        self.shared.flush();
    }

    /// Blocks until the request is done. What is staged is handed over first.
    pub(crate) fn wait(&self, id: SlotId) {
        self.shared.wait(id);
    }

    /// Settles what the ring already shows as complete, unless somebody else is at it.
    pub(crate) fn glance(&self) {
        if let Some(lead) = self.shared.try_lead() {
            self.shared.reap_ready(lead);
            self.shared.hand_over();
        }
    }

    /// Whether another thread is submitting at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.submitters.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn enters(&self) -> u64 {
        self.shared.enters.load(Ordering::Relaxed)
    }

    /// Whether the kernel runs completions only when asked.
    pub(crate) fn is_deferred(&self) -> bool {
        self.shared.ring.deferred
    }

    /// Asks the kernel to end a request early (`IORING_REGISTER_SYNC_CANCEL`, Linux 6.0). It may be too late for that.
    pub(crate) fn cancel(&self, id: SlotId) {
        let builder = types::CancelBuilder::user_data(entry::encode(id));
        self.shared.check_owner();
        self.shared.flush();
        let _ = self.shared.ring.submitter().register_sync_cancel(Some(types::Timespec::new()), builder);
    }

    /// Somebody waits without a thread: sees to it that completions are reaped until nothing is in flight.
    pub(crate) fn attend_task(&self) {
        if self.shared.driven_locally.load(Ordering::Relaxed) > 0 {
            return;
        }
        assert!(!self.shared.is_foreign(), "{RUNS_INSIDE}");
        // What the task waits for may be staged by a plug that stays open until then.
        if self.shared.plugs.load(Ordering::Relaxed) > 0 {
            self.shared.flush_staged();
        }
        #[cfg(feature = "tokio")]
        if self.shared.polling == DevicePolling::Interrupts && self.reactors.attend(&self.shared) {
            return;
        }
        assert!(self.shared.owner.is_none(), "{RUNS_INSIDE}");
        self.thread.attend(&self.shared);
    }

    /// Nobody waits, but what is in flight must come back.
    pub(crate) fn attend(&self) {
        if self.shared.owner.is_none() {
            self.thread.attend(&self.shared);
        }
    }

    /// While the result lives, the caller reaps by [`Uring::turn`], so that nobody else must.
    pub(crate) fn drive_locally(&self) -> DrivenLocally {
        self.shared.driven_locally.fetch_add(1, Ordering::Relaxed);
        DrivenLocally(self.shared.clone())
    }

    /// Hands over what is staged and settles what is complete. Says whether anything was.
    pub(crate) fn turn(&self) -> bool {
        let Some(lead) = self.shared.try_lead() else { return false };
        let seen = self.shared.turn(lead);
        self.shared.hand_over();
        seen
    }

    /// Whether completions show only to those who ask again and again, and some are to come.
    pub(crate) fn must_spin(&self) -> bool {
        self.shared.polling == DevicePolling::Polled && self.shared.slots.in_flight() > 0
    }

    /// What becomes readable when something is complete.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.ring.watched()
    }

    /// See [`Ring::silence`].
    pub(crate) fn silence(&self) {
        self.shared.ring.silence();
    }

    /// # Panics
    /// On a local ring in another thread than its own.
    pub(crate) fn check_thread(&self) {
        self.shared.check_owner();
    }
}

/// See [`Uring::drive_locally`].
pub(crate) struct DrivenLocally(Arc<Shared>);

impl Drop for DrivenLocally {
    fn drop(&mut self) {
        self.0.driven_locally.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Uring {
    /// All completions are gone by now, so what is in flight is abandoned; it is waited for.
    fn drop(&mut self) {
        if !self.shared.mark.is_here() {
            self.thread.forget();
            return;
        }
        #[cfg(feature = "tokio")]
        self.reactors.stop();
        if self.shared.is_foreign() && self.shared.slots.in_flight() > 0 {
            // Only its own thread could wait for this ring. The memory stays with the kernel for good.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        if !self.thread.stop() {
            self.shared.drain();
        }
    }
}

impl Shared {
    fn start(&self, ids: &[SlotId]) {
        self.submitters.fetch_add(1, Ordering::Relaxed);
        let staged = self.push(ids);
        if !self.leaves_to_burst(ids.len(), staged) {
            self.flush();
        }
        self.submitters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writes entries into the submission queue; says how many are there now.
    fn push(&self, ids: &[SlotId]) -> usize {
        let mut left = ids;
        loop {
            let staged = {
                let _guard = lock(&self.submission);
                // SAFETY: the `submission` lock makes this the only access to the queue's tail; the handle, which
                // publishes the tail when dropped, goes before the guard does.
                let mut queue = unsafe { self.ring.submission_shared() };
                while let Some((&id, rest)) = left.split_first() {
                    if queue.is_full() {
                        break;
                    }
                    // SAFETY: these requests have places and were given to this driver. Their memory is theirs until
                    // their completions are seen; the queue is not full.
                    unsafe { entry::push(&mut queue, &self.slots.prepare(id), id) }
                    left = rest;
                }
                queue.len()
            };
            if left.is_empty() {
                return staged;
            }
            self.flush();
        }
    }

    /// Whether the tasks that were woken with this one will see to its request.
    fn leaves_to_burst(&self, count: usize, staged: usize) -> bool {
        if self.burst.load(Ordering::Relaxed) <= 0 {
            return false;
        }
        // Acquire and release: who ends the burst sees the entries of all who were in it.
        let left = self.burst.fetch_sub(count as isize, Ordering::AcqRel) - count as isize;
        left > 0 && staged < STAGED_MAX
    }

    /// Ends the burst that an attendant began, and hands over what was left to it.
    fn end_burst(&self) {
        self.burst.swap(0, Ordering::AcqRel);
        self.flush_staged();
    }

    fn flush_staged(&self) {
        if self.has_staged() {
            self.flush();
        }
    }

    fn has_staged(&self) -> bool {
        let _guard = lock(&self.submission);
        // SAFETY: as in `push`.
        !unsafe { self.ring.submission_shared() }.is_empty()
    }

    /// Hands staged entries to the kernel. Entries that it does not take now are taken by the next call, at the
    /// latest when somebody waits.
    fn flush(&self) {
        for _ in 0..SUBMIT_ATTEMPTS {
            match self.enter(0, None) {
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

    fn enter(&self, want: usize, limit: Option<Duration>) -> io::Result<usize> {
        self.check_owner();
        self.enters.fetch_add(1, Ordering::Relaxed);
        match limit {
            None => self.ring.submitter().submit_and_wait(want),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                self.ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&limit))
            }
        }
    }

    fn is_foreign(&self) -> bool {
        self.owner.is_some_and(|owner| owner != std::thread::current().id())
    }

    fn check_owner(&self) {
        assert!(!self.is_foreign(), "a local driver is used by the thread that built it");
    }

    fn try_lead(&self) -> Option<MutexGuard<'_, ()>> {
        match self.reaper.try_lock() {
            Ok(lead) => Some(lead),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn wait(&self, id: SlotId) {
        self.check_owner();
        while !self.slots.is_done(id) {
            match self.try_lead() {
                Some(lead) => self.lead(lead, id),
                None => {
                    self.flush_staged();
                    self.follow(id);
                }
            }
        }
        self.hand_over();
    }

    /// Reaps once, unless the request was completed by the last leader in the meantime.
    fn lead(&self, lead: MutexGuard<'_, ()>, id: SlotId) {
        if !self.slots.is_done(id) {
            self.reap(lead, Reaper::Waiting, None);
        }
    }

    /// Parks until the request is done or the leader hands over.
    fn follow(&self, id: SlotId) {
        // SAFETY: who waits for a request owns it.
        if !unsafe { self.slots.register_thread(id) } {
            return;
        }
        lock(&self.followers).threads.push(std::thread::current());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `hand_over`: either the leader sees this entry, or we see that it has left.
        fence(Ordering::SeqCst);
        // The leader may have left between our try and our entry in the list; then nobody would wake us.
        match self.try_lead() {
            Some(lead) => self.lead(lead, id),
            None => std::thread::park(),
        }
        let me = std::thread::current().id();
        let mut followers = lock(&self.followers);
        if let Some(place) = followers.threads.iter().position(|thread| thread.id() == me) {
            followers.threads.swap_remove(place);
            self.follower_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A task follows: it is woken when the lead becomes free. Says whether it is free already.
    #[cfg(feature = "tokio")]
    fn follow_as_task(&self, waker: &Waker) -> bool {
        lock(&self.followers).tasks.push(waker.clone());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.reaper.try_lock().is_ok()
    }

    /// Wakes one thread that follows so that it can lead, and all tasks, because one alone may be a task that nobody
    /// polls any more. Called by everyone who stops waiting, after it last held the lead.
    fn hand_over(&self) {
        fence(Ordering::SeqCst);
        if self.follower_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (thread, tasks) = {
            let mut followers = lock(&self.followers);
            (followers.threads.pop(), std::mem::take(&mut followers.tasks))
        };
        self.follower_count.fetch_sub(usize::from(thread.is_some()) + tasks.len(), Ordering::SeqCst);
        thread.iter().for_each(Thread::unpark);
        tasks.into_iter().for_each(Waker::wake);
    }

    /// Completes what is complete; waits for one completion if there is none.
    fn reap(&self, lead: MutexGuard<'_, ()>, reaper: Reaper, limit: Option<Duration>) -> bool {
        let mut harvest = Harvest::new();
        self.drain_ready(&mut harvest);
        if harvest.seen == 0 && (limit.is_some() || self.slots.in_flight() > 0) {
            // An error here (EINTR, EBUSY, ETIME) means that there may be nothing; the caller looks and comes again.
            let _ = self.enter(1, limit);
            self.drain_ready(&mut harvest);
        }
        self.conclude(lead, &mut harvest, reaper);
        harvest.seen > 0
    }

    /// Completes what is complete.
    fn reap_ready(&self, lead: MutexGuard<'_, ()>) {
        let mut harvest = Harvest::new();
        self.collect_deferred();
        self.drain_ready(&mut harvest);
        self.conclude(lead, &mut harvest, Reaper::Waiting);
    }

    /// Hands over what is staged, if anything, and completes what is complete by then.
    fn turn(&self, lead: MutexGuard<'_, ()>) -> bool {
        let mut harvest = Harvest::new();
        if self.has_staged() {
            let _ = self.enter(0, None);
        }
        self.collect_deferred();
        self.drain_ready(&mut harvest);
        self.conclude(lead, &mut harvest, Reaper::Attendant);
        harvest.seen > 0
    }

    /// Lets the kernel write down completions that it keeps: those deferred until asked for, and those for which the
    /// queue had no room.
    fn collect_deferred(&self) {
        let _guard = lock(&self.submission);
        // SAFETY: as in `push`.
        let queue = unsafe { self.ring.submission_shared() };
        let keeps = queue.cq_overflow() || queue.taskrun();
        drop(queue);
        drop(_guard);
        if keeps && !self.is_foreign() {
            let _ = self.enter(0, None);
        }
    }

    fn drain_ready(&self, harvest: &mut Harvest) {
        // SAFETY: only the holder of the `reaper` lock gets here, so this is the only access to the completion queue.
        let queue = unsafe { self.ring.completion_shared() };
        for entry in queue.take(TOGETHER) {
            harvest.seen += 1;
            let id = entry::decode(entry.user_data());
            let result = entry::to_result(entry.result());
            // SAFETY: this completion ends the attempt that `push` began.
            if unsafe { self.slots.attempt(id, result, &mut harvest.completed) } == Verdict::Again {
                harvest.again.push(id);
            }
        }
    }

    /// Gives places back, leaves the lead, starts what follows, and tells the owners.
    fn conclude(&self, lead: MutexGuard<'_, ()>, harvest: &mut Harvest, reaper: Reaper) {
        if harvest.seen == 0 {
            return;
        }
        // With the lead: who leads next must not wait for what this pass has seen.
        let mut next = self.slots.settle(&mut harvest.completed);
        drop(lead);
        next.extend(harvest.again.drain(..));
        if !next.is_empty() {
            self.push(&next);
            self.flush();
        }
        let completed = &mut harvest.completed;
        if reaper == Reaper::Attendant {
            let tasks = completed.waiters.iter().filter(|waiter| matches!(waiter, Waiter::Task(_))).count();
            // What an earlier burst left is handed over by the attendant's next turn, whatever this says.
            self.burst.store(if tasks > 1 { tasks as isize } else { 0 }, Ordering::Release);
        }
        completed.waiters.drain(..).for_each(Waiter::wake);
        completed.orphans.clear();
    }

    fn drain(&self) {
        while self.slots.in_flight() > 0 {
            let lead = self.reaper.lock().unwrap_or_else(PoisonError::into_inner);
            self.reap(lead, Reaper::Waiting, None);
        }
    }
}

/// What one pass over the completion queue found. Sized so that it never allocates: a pass sees [`TOGETHER`] entries.
struct Harvest {
    seen: usize,
    completed: Completed,
    again: SmallVec<[SlotId; TOGETHER]>,
}

impl Harvest {
    fn new() -> Harvest {
        Harvest { seen: 0, completed: Completed::new(), again: SlotIds::new() }
    }
}

const RUNS_INSIDE: &str = "futures of a local engine run inside its `block_on`, or on tokio (current thread) with the feature `tokio`";

/// Entries left to a burst at most: beyond it, a device that waits for work loses more than one system call a request
/// saves.
const STAGED_MAX: usize = 8;

/// Tries to hand entries to a kernel that is short of memory before leaving them to whoever waits next.
const SUBMIT_ATTEMPTS: usize = 64;

/// How long a request may be left to a burst whose other tasks do something else. A tenth of a millisecond is about one
/// read of a flash device.
const BURST_LIMIT: Duration = Duration::from_micros(100);

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::arena::{Arena, Extents, Urgency};
    use crate::file::{Access, DirectIo, OpenFile, Route};
    use crate::request::{Request, Transfer};
    use crate::sys::Operation;

    /// Goal: neither a submission queue of two entries nor a completion queue of two, which the kernel has to overflow,
    /// loses or doubles anything. Method: threads that start 64 at once, half of them reads, and all wait.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's rings
    fn tiny_queues_lose_nothing() {
        let slots = Arc::new(Slots::new(DEPTH));
        let wanted = RingUse {
            submission_entries: 2,
            completion_entries: 2,
            sharing: Sharing::AnyThread,
            polling: DevicePolling::Interrupts,
            submission_polling: SubmissionPolling::Off,
        };
        let uring = match Uring::new(&slots, wanted) {
            Ok(uring) => uring,
            Err(error) => return headwater_testkit::skip(format!("uring: {error}")),
        };
        let arena = Arena::new(4 << 20).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/uring/mod.rs");
        let contents = std::fs::read(path).unwrap();
        let file = Arc::new(OpenFile::open(path.as_ref(), DirectIo::Off, Access::Read).unwrap());
        let read = || Transfer {
            operation: Operation::Read,
            file: file.clone(),
            route: Route::Buffered,
            offset_bytes: 0,
            length_bytes: 4096,
            extents: arena.allocate(4096, Urgency::Demand).into_iter().collect::<Extents>(),
        };
        headwater_testkit::watched("tiny queues", || {
            for _ in 0..ROUNDS {
                burst(&uring, &slots, &read, &contents[..4096]);
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
