//! threads: positioned vectored reads and writes, and syncs, on a small pool of threads, where io_uring is missing or forbidden.
//!
//! Containers often forbid io_uring by seccomp; there `Driver::new` chooses this driver.
//!
//! A worker runs the wakers of what it has done, and a waker may wait for a request. So workers in wakers do not count: while all are, there
//! is one more for requests that wait. And the thread that waits for timeouts and descriptors leaves wakers to the workers.
//!
//! Owns: the workers, the queue of requests that wait for one, and that of waits that have ended.
//! Does not own: request state and memory (slots).
//! Invariants: I4 dropping the driver waits for the workers, which finish all queued requests; I5 the queue never grows
//! beyond its first capacity.
//! Locks: `queue` for a push or pop only. Blocking: workers block in `preadv`/`pwritev`.
//! Hot path: one futex wake and one syscall a request.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_core::limits::Limits;

use crate::backend::waits::{Wait, Waits};
use crate::memory::arena::Urgency;
use crate::request::attempt::{Attempt, Verdict};
use crate::request::slot_table::SlotId;
use crate::request::slots::{Completed, Slots, Waiter};
use crate::request::{Finished, Request};
use crate::sync::{lock, unpoisoned};
use crate::system::fork::ProcessMark;
use crate::system::signals::spawn;
use crate::system::sys;

pub(crate) struct Threads {
    shared: Arc<Shared>,
    mark: ProcessMark,
}

struct Shared {
    slots: Arc<Slots>,
    queue: Mutex<Queue>,
    arrived: Condvar,
    waits: Waits,
    workers: Mutex<Vec<JoinHandle<()>>>,
    workers_max: usize,
}

struct Queue {
    waiting: VecDeque<SlotId>,
    /// Timeouts and polls that have ended, until a worker runs their wakers. Each was left to an idle or a new worker, so there are few.
    ended: VecDeque<Completed>,
    /// Started and not ended.
    workers: usize,
    idle_workers: usize,
    /// Workers that run wakers.
    waking_workers: usize,
    stopping: bool,
}

impl Threads {
    pub(crate) fn new(slots: &Arc<Slots>) -> Threads {
        Threads::with_workers(slots, Limits::THREADS_MAX)
    }

    /// The same with at most `workers_max` workers.
    pub(crate) fn with_workers(slots: &Arc<Slots>, workers_max: u32) -> Threads {
        let queue = Queue {
            waiting: VecDeque::with_capacity(slots.depth() as usize),
            ended: VecDeque::new(),
            workers: 0,
            idle_workers: 0,
            waking_workers: 0,
            stopping: false,
        };
        let shared = Shared {
            slots: slots.clone(),
            queue: Mutex::new(queue),
            arrived: Condvar::new(),
            waits: Waits::default(),
            workers: Mutex::default(),
            workers_max: slots.depth().min(workers_max) as usize,
        };
        Threads { shared: Arc::new(shared), mark: ProcessMark::here() }
    }

    pub(crate) fn start(&self, id: SlotId) {
        let mut queue = self.shared.lock();
        queue.waiting.push_back(id);
        let has_worker = self.shared.find_worker(&mut queue);
        drop(queue);
        if !has_worker {
            // No worker outside of wakers and none to be had: this thread does the work.
            self.shared.work_off_queue();
        }
        self.shared.arrived.notify_one();
    }

    /// Some request that waits may have been cancelled.
    pub(crate) fn look_at_waits(&self) {
        self.shared.waits.ring();
    }

    /// The worker unparks this thread when the request is done. Returns after `limit` at the latest.
    pub(crate) fn wait(&self, id: SlotId, limit: Duration) {
        let began = Instant::now();
        // SAFETY: the thread that waits for a request owns it.
        while unsafe { self.shared.slots.register_thread(id) } {
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

/// Carries out one request in this thread.
pub(crate) fn carry_out_here(request: Request) -> Finished {
    let slots = Arc::new(Slots::new(1));
    let Threads { shared, .. } = &Threads::new(&slots);
    let begun = slots.begin(request, Urgency::Demand).expect("there is a place");
    shared.carry_out(begun.id);
    // SAFETY: this is the request's only owner.
    unsafe { slots.take(begun.id) }.expect("carried out")
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // In a forked child there are no workers, and one that is gone may hold the lock.
            // Its handles of threads are never dropped.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.waits.stop();
        self.shared.lock().stopping = true;
        self.shared.arrived.notify_all();
        let me = thread::current().id();
        // One by one: a worker may start another.
        let next = || lock(&self.shared.workers).pop();
        // A waker that drops the last handle runs on a worker, which then ends by itself.
        for worker in std::iter::from_fn(next).filter(|worker| worker.thread().id() != me) {
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(self: &Arc<Shared>) {
        let mut queue = self.lock();
        loop {
            if let Some(completed) = queue.ended.pop_front() {
                drop(queue);
                queue = self.wake_as_worker(completed);
            } else if let Some(id) = queue.waiting.pop_front() {
                drop(queue);
                let completed = self.carry_out(id);
                queue = self.wake_as_worker(completed);
            } else if queue.stopping {
                return;
            } else {
                queue.idle_workers += 1;
                queue = unpoisoned(self.arrived.wait(queue));
                queue.idle_workers -= 1;
            }
        }
    }

    fn work_off_queue(self: &Arc<Shared>) {
        loop {
            let next = self.lock().waiting.pop_front();
            let Some(id) = next else { return };
            self.slots.wake_owners(&mut self.carry_out(id));
        }
    }

    /// Ensures that there is an idle worker for all that has arrived, as far as the pool may have more. Returns whether any worker will
    /// look at the queue; the caller notifies an idle one.
    fn find_worker(self: &Arc<Shared>, queue: &mut Queue) -> bool {
        queue.arrived() <= queue.idle_workers
            || self.add_worker(queue)
            || queue.workers > queue.waking_workers
    }

    /// Adds a worker, if the pool may have one more and the system has a thread. Returns whether it did.
    fn add_worker(self: &Arc<Shared>, queue: &mut Queue) -> bool {
        if queue.workers >= self.workers_max && queue.workers > queue.waking_workers {
            return false;
        }
        let shared = self.clone();
        let Ok(worker) = spawn("headwater-io", THREAD_STACK_BYTES, move || shared.work()) else {
            return false;
        };
        queue.workers += 1;
        lock(&self.workers).push(worker);
        true
    }

    /// Wakes the owners, and goes on with the queue.
    fn wake_as_worker(self: &Arc<Shared>, mut completed: Completed) -> MutexGuard<'_, Queue> {
        if !runs_foreign_code(&completed) {
            self.slots.wake_owners(&mut completed);
            return self.lock();
        }
        let mut queue = self.lock();
        queue.waking_workers += 1;
        if queue.arrived() > 0 {
            // Of what `launch` left there no idle worker knows, and the waker may wait for it.
            self.find_worker(&mut queue);
            self.arrived.notify_one();
        }
        drop(queue);
        self.slots.wake_owners(&mut completed);
        let mut queue = self.lock();
        queue.waking_workers -= 1;
        queue
    }

    /// Carries out a request, unless it is one that waits. The caller wakes the owners.
    fn carry_out(self: &Arc<Shared>, id: SlotId) -> Completed {
        // SAFETY: a request in the queue has this driver, and one worker takes it out. The slot keeps the segments,
        // their memory and the open file until `attempt` is told the result.
        while let Some(result) = unsafe { self.carry_out_once(id) } {
            let mut completed = Completed::new();
            // SAFETY: as above, and the attempt is over.
            if unsafe { self.slots.attempt(id, result, &mut completed) } == Verdict::Finished {
                self.launch(&mut completed);
                return completed;
            }
        }
        Completed::new()
    }

    /// A request is finished: others take its place.
    fn launch(&self, completed: &mut Completed) {
        let launched = self.slots.release_places(completed);
        self.lock().waiting.extend(launched);
    }

    /// Hands the request to the thread that waits.
    fn await_elsewhere(self: &Arc<Shared>, wait: Wait) -> io::Result<()> {
        self.waits.add(wait, || {
            let shared = self.clone();
            spawn("headwater-waits", THREAD_STACK_BYTES, move || {
                let is_cancelled = |id| shared.slots.may_end_early(id);
                shared.waits.work(is_cancelled, |id, result| shared.end_wait(id, result));
            })
        })
    }

    /// A request has waited long enough. Workers do what follows in it, and run its waker, so that other waits are looked at meanwhile.
    fn end_wait(self: &Arc<Shared>, id: SlotId, result: io::Result<usize>) {
        let mut completed = Completed::new();
        // SAFETY: a request that waits has this driver, and one thread looks at it.
        match unsafe { self.slots.attempt(id, result, &mut completed) } {
            Verdict::Finished => self.launch(&mut completed),
            Verdict::Again => self.lock().waiting.push_back(id),
        }
        let mut queue = self.lock();
        // A waker in this thread has dropped the driver: the workers have ended.
        let is_stopped = queue.stopping;
        if !is_stopped && runs_foreign_code(&completed) && self.has_room_for_ended(&mut queue) {
            queue.ended.push_back(mem::replace(&mut completed, Completed::new()));
        }
        let has_worker = !is_stopped && self.find_worker(&mut queue);
        drop(queue);
        if has_worker {
            self.arrived.notify_all();
        } else {
            // There is no thread to be had.
            self.work_off_queue();
        }
        self.slots.wake_owners(&mut completed);
    }

    /// Whether there is a worker, idle or new, for one more wait that is over.
    fn has_room_for_ended(self: &Arc<Shared>, queue: &mut Queue) -> bool {
        queue.ended.len() < queue.idle_workers || self.add_worker(queue)
    }

    /// The result of an attempt. `None` if the request waits now, and is carried on by the thread for that.
    ///
    /// # Safety
    /// The caller is the driver of this request, and no longer is with `None`.
    unsafe fn carry_out_once(self: &Arc<Shared>, id: SlotId) -> Option<io::Result<usize>> {
        // SAFETY: as the caller promises.
        Some(unsafe {
            match self.slots.prepare(id) {
                Attempt::Nop => Ok(0),
                Attempt::Raw(_) => Err(io::ErrorKind::Unsupported.into()),
                Attempt::Call(call) if call.is_wait() => match self.await_elsewhere(Wait { id, call }) {
                    Ok(()) => return None,
                    Err(error) => Err(error),
                },
                Attempt::Call(call) => call.carry_out(),
                Attempt::Transfer(attempt) => {
                    let file = BorrowedFd::borrow_raw(attempt.descriptor);
                    sys::transfer(attempt.direction, file, attempt.segments.as_slice(), attempt.offset_bytes)
                }
                Attempt::Sync(attempt) => {
                    sys::sync(BorrowedFd::borrow_raw(attempt.descriptor), attempt.scope).map(|()| 0)
                }
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl Queue {
    /// What no worker has begun with.
    fn arrived(&self) -> usize {
        self.waiting.len() + self.ended.len()
    }
}

/// Whether a waker runs, or a drop of what an abandoned call was given; both may wait for a request of this driver.
fn runs_foreign_code(completed: &Completed) -> bool {
    let has_task = || completed.waiters.iter().any(|waiter| matches!(waiter, Waiter::Task(_)));
    !completed.orphans.is_empty() || has_task()
}

/// Workers run a syscall and a waker; 256 KiB is what small executors give their workers.
const THREAD_STACK_BYTES: usize = 256 << 10;
