//! Stalls: detects threads that submitted requests and have since been stuck in the kernel.
//!
//! The thread that submitted a request also does its last step, when it leaves the kernel or waits there interruptibly
//! (`task_work_add(9)` with `TWA_SIGNAL`, io_uring/io_uring.c). A thread that waits uninterruptibly (for a child of
//! `vfork(2)`, a network file system, a FUSE server, a debugger) keeps the completions of its requests to itself.
//!
//! What that means for others:
//!
//! | request | waits for the stuck thread? |
//! |---|---|
//! | read, for which a thread waits | no: after some milliseconds that thread reads by itself, into other memory (completion) |
//! | read, for which a task waits | no: the task is woken, and a worker thread reads into other memory (completion) |
//! | sync | no: a worker thread of the kernel carries it out, and posts its completion itself |
//! | direct write | yes, and with it each sync that has to follow it |
//!
//! A direct write cannot be made again by another thread: where the device refuses for the moment, the kernel repeats it in the thread
//! that submitted it (`io_rw_should_reissue`), which would then put old bytes over those written since. Nor can it be cancelled: once the
//! device is done, what is left is work of that thread, which cancelling does not find. And a sync must not be made again in place of one
//! whose result is kept back: the kernel reports a failed write-back once, and the second sync would call lost bytes safe.
//!
//! A thread that waits looks for stuck ones by itself. For tasks their attendant looks:
//!
//! ```text
//!   attendant, each LOOK ─► a task waits longer than that? ─► any thread stuck? ─► count a stall ─► wake the tasks ─► they poll
//! ```
//!
//! Owns: which threads have entered, whether one is stuck, and when attendants look.
//! Does not own: the reaction (completion).

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Shared;
use crate::request::slots::Slots;
use crate::sync::lock;

/// Looks for stuck threads on behalf of tasks.
pub(super) struct Stalls {
    /// Stalls found so far.
    found: AtomicU64,
    looks: Mutex<Looks>,
}

struct Looks {
    /// Not before.
    next: Instant,
    /// Between looks at threads: longer each time that none is stuck although a task waits.
    pause: Duration,
    /// The requests that tasks waited for at the last look.
    waited_for: Vec<(u32, u32)>,
    /// Room for those of the next.
    spare: Vec<(u32, u32)>,
}

impl Stalls {
    pub(super) fn new() -> Stalls {
        let looks = Looks { next: Instant::now(), pause: LOOK, waited_for: Vec::new(), spare: Vec::new() };
        Stalls { found: AtomicU64::new(0), looks: Mutex::new(looks) }
    }

    pub(super) fn found(&self) -> u64 {
        self.found.load(Ordering::Acquire)
    }

    /// A thread is stuck.
    pub(super) fn note(&self) {
        self.found.fetch_add(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Called by an attendant while requests are in flight, some hundred times a second at the least: wakes all tasks when they are to
    /// poll again because a thread is stuck. The caller holds no lock.
    pub(super) fn look_for_tasks(&self) {
        // Another attendant looks.
        let Ok(mut looks) = self.stalls.looks.try_lock() else { return };
        let now = Instant::now();
        if now < looks.next {
            return;
        }
        let is_stuck = looks.any_is_old(&self.slots) && {
            looks.pause = (2 * looks.pause).min(LOOK_MAX);
            self.any_is_stuck()
        };
        looks.next = now + looks.pause;
        drop(looks);
        if is_stuck {
            self.stalls.note();
            self.slots.wake_early();
        }
    }
}

impl Shared {
    /// Whether a thread that submitted here is stuck in the kernel.
    pub(super) fn any_is_stuck(&self) -> bool {
        #[cfg(all(any(test, feature = "faults"), not(headwater_loom)))]
        if self.faults.get().is_some_and(super::faults::Faults::shows_a_stuck_thread) {
            return true;
        }
        self.entered.any_is_stuck()
    }
}

impl Looks {
    /// Whether a task waits for the same request as at the last look. If none does, the next look comes soon.
    fn any_is_old(&mut self, slots: &Slots) -> bool {
        slots.waited_for(&mut self.spare);
        std::mem::swap(&mut self.waited_for, &mut self.spare);
        // Both in the order of slots.
        let is_old = self.waited_for.iter().any(|request| self.spare.binary_search(request).is_ok());
        if !is_old {
            self.pause = LOOK;
        }
        is_old
    }
}

/// Threads that entered a ring, most of them: each has one place, which another may take.
pub(super) struct Entered {
    threads: [AtomicU32; PLACES],
    /// Those that waited in the kernel at the last look.
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Clone, Copy)]
struct Waiting {
    thread: u32,
    /// How often it had waited in the kernel before.
    waits: u64,
    /// The first look that found it in this wait.
    since: Instant,
}

impl Entered {
    pub(super) fn new() -> Entered {
        Entered { threads: [const { AtomicU32::new(0) }; PLACES], waiting: Mutex::default() }
    }

    /// This thread enters.
    pub(super) fn note(&self) {
        let thread = this_thread();
        self.threads[thread as usize % PLACES].store(thread, Ordering::Relaxed);
    }

    /// Whether looks have found one of the threads in one and the same wait for [`STUCK_AFTER`]. Reads a file of `/proc` for each.
    fn any_is_stuck(&self) -> bool {
        let now = Instant::now();
        let threads = self.threads.iter().map(|thread| thread.load(Ordering::Relaxed));
        let found: Vec<_> =
            threads.filter(|&thread| thread != 0).filter_map(|thread| wait_of(thread, now)).collect();
        let mut waiting = lock(&self.waiting);
        let before = std::mem::replace(&mut *waiting, found);
        for one in waiting.iter_mut() {
            let known = before.iter().find(|known| (known.thread, known.waits) == (one.thread, one.waits));
            one.since = known.map_or(now, |known| known.since);
        }
        waiting.iter().any(|one| now - one.since >= STUCK_AFTER)
    }
}

/// The wait of a thread that waits in the kernel for something that cannot be interrupted, or for a debugger.
fn wait_of(thread: u32, now: Instant) -> Option<Waiting> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let waits = field("voluntary_ctxt_switches:")?.parse().ok()?;
    field("State:")?.starts_with(['D', 'T', 't']).then_some(Waiting { thread, waits, since: now })
}

fn this_thread() -> u32 {
    thread_local! {
        static THREAD: u32 = rustix::thread::gettid().as_raw_pid().cast_unsigned();
    }
    THREAD.try_with(|&thread| thread).unwrap_or(0)
}

/// Longer than a device takes for what a thread waits for in this manner, mostly a page of a file.
const STUCK_AFTER: Duration = Duration::from_millis(3);

/// Between the looks of an attendant. The first finds a request, the second that it is old and that a thread
/// waits, and the third, after twice the time, that this thread is stuck: 6 ms at the most.
pub(super) const LOOK: Duration = Duration::from_micros(1600);

/// The devices for which tasks wait longest, disks that turn, complete hundreds of requests in this time.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Enough for the threads of most programs; the kernel numbers those that begin together in a row.
const PLACES: usize = 64;
