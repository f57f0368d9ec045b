//! Kbio: the io_uring wrapper of KuiBaDB, rebuilt from its description, which is all that is published of what it measured.
//!
//! ```text
//!   task: slot from the free list ─► entry, under the lock of the ring ─► (SQPOLL: nothing, else io_uring_enter) ─► its waker
//!   one thread: io_uring_enter(wait) ─► each completion: result into its slot ─► wake
//! ```
//!
//! As described: one ring for all threads, slots allocated before, linked through themselves as a free list, a slot named by the entry's
//! `user_data`, a kernel thread that submits, one thread that reaps. A task that finds no slot free wakes itself and is polled again. Slots are
//! named by their number here, not by their address, and locked, so that the reconstruction is safe; tasks of a thread run on one tokio
//! runtime.
//!
//! Owns: the reconstruction.
//! Does not own: requests other than those that do nothing.

use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_util::future::join_all;
use io_uring::IoUring;

use headwater_io::lock;
use headwater_measure::affinity::Affinity;
use headwater_measure::{Figures, Latencies, crew};

use super::{ArmOptions, all_threads, figures, raw};

/// How entries get into the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Submission {
    ByKernelThread,
    BySystemCall,
}

pub(super) fn run(options: &ArmOptions, submission: Submission) -> io::Result<Figures> {
    let shared = Shared::new(raw::SharedRing::new(build(options, submission)?), options.entries);
    let latencies = thread::scope(|scope| {
        let shared = &shared;
        let reaper = scope.spawn(move || {
            pin(options)?;
            let mut is_over = false;
            while !is_over {
                shared.ring.submitter().submit_and_wait(1)?;
                shared.ring.reap(|(index, result)| match index {
                    LAST => is_over = true,
                    _ => shared.complete(index, result),
                });
            }
            io::Result::Ok(())
        });
        let runtime = || tokio::runtime::Builder::new_current_thread().build();
        let latencies = all_threads(options, runtime, |runtime| runtime.block_on(batches(options, shared)));
        let ended = shared.submit(LAST);
        reaper.join().expect("it does not panic").and(ended).and(latencies)
    })?;
    Ok(figures(&latencies, None))
}

fn build(options: &ArmOptions, submission: Submission) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    if submission == Submission::ByKernelThread {
        builder.setup_sqpoll(IDLE_MS);
        if let Some(processor) = options.kernel_affinity {
            builder.setup_sqpoll_cpu(processor);
        }
    }
    builder.build(options.entries)
}

/// The thread that reaps runs where the kernel thread does, if that was asked for.
fn pin(options: &ArmOptions) -> io::Result<()> {
    match options.kernel_affinity {
        Some(processor) => Affinity::List(vec![processor as usize]).apply(0),
        None => Ok(()),
    }
}

async fn batches(options: &ArmOptions, shared: &Shared) -> io::Result<Latencies> {
    let mut clock = crew::Clock::start(options.time());
    while clock.runs() {
        let all = join_all((0..options.batch).map(|_| Nop::new(shared)));
        all.await.into_iter().collect::<io::Result<()>>()?;
        clock.lap();
    }
    Ok(clock.latencies)
}

struct Shared {
    ring: raw::SharedRing,
    slots: Box<[Mutex<Slot>]>,
    first_free: Mutex<Option<usize>>,
}

#[derive(Default)]
struct Slot {
    next_free: Option<usize>,
    result: Option<i32>,
    waker: Option<Waker>,
}

impl Shared {
    fn new(ring: raw::SharedRing, count: u32) -> Shared {
        let count = count as usize;
        let slot =
            |index: usize| Slot { next_free: (index + 1 < count).then_some(index + 1), ..Slot::default() };
        Shared {
            ring,
            slots: (0..count).map(|index| Mutex::new(slot(index))).collect(),
            first_free: Mutex::new(Some(0)),
        }
    }

    fn take_slot(&self) -> Option<usize> {
        let mut first_free = lock(&self.first_free);
        let index = (*first_free)?;
        *first_free = lock(&self.slots[index]).next_free;
        Some(index)
    }

    fn free_slot(&self, index: usize) {
        let mut first_free = lock(&self.first_free);
        lock(&self.slots[index]).next_free = first_free.replace(index);
    }

    /// Never blocks: each slot has an entry.
    fn submit(&self, index: u64) -> io::Result<()> {
        self.ring.push_nop(index)?;
        // With a kernel thread, only if it sleeps.
        self.ring.submitter().submit().map(drop)
    }

    fn complete(&self, index: u64, result: i32) {
        let waker = {
            let mut slot = lock(&self.slots[index as usize]);
            slot.result = Some(result);
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A request that does nothing.
struct Nop<'a> {
    shared: &'a Shared,
    slot: Option<usize>,
}

impl<'a> Nop<'a> {
    fn new(shared: &'a Shared) -> Nop<'a> {
        Nop { shared, slot: None }
    }
}

impl Future for Nop<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = self.shared;
        let Some(index) = self.slot else {
            let Some(index) = shared.take_slot() else {
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            lock(&shared.slots[index]).waker = Some(context.waker().clone());
            self.slot = Some(index);
            return match shared.submit(index as u64) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            };
        };
        let result = {
            let mut slot = lock(&shared.slots[index]);
            if slot.result.is_none() {
                slot.waker = Some(context.waker().clone());
            }
            slot.result.take()
        };
        let Some(result) = result else { return Poll::Pending };
        shared.free_slot(index);
        self.slot = None;
        Poll::Ready(if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) })
    }
}

/// The request that ends the thread that reaps.
const LAST: u64 = u64::MAX;

/// The kernel thread stays awake between batches.
const IDLE_MS: u32 = 100;
