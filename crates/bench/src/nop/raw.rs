//! Raw: the `io-uring` crate alone, a ring a thread: what a library can cost at least.
//!
//! Owns: the unsafe code that this crate's queues of `io-uring` need, for `kbio` as well.
//! Does not own: threads and clocks.
#![allow(unsafe_code)]

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::{IoUring, Submitter, opcode};

use headwater_io::lock;
use headwater_measure::{Figures, crew};

use super::{ArmOptions, all_threads, figures};

/// How the kernel runs what completes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// In the middle of whatever the thread does.
    Interrupting,
    /// When the thread asks for completions (`IORING_SETUP_DEFER_TASKRUN`, which needs `SINGLE_ISSUER`).
    Deferred,
}

pub(super) fn run(options: &ArmOptions, completion: Completion) -> io::Result<Figures> {
    let enters = AtomicU64::new(0);
    let latencies = all_threads(
        options,
        || build(options.entries, completion),
        |mut ring| {
            let mut own_enters = 0;
            let latencies = crew::time_steps(options.time(), || {
                own_enters += 1;
                batch(&mut ring, options.batch)
            });
            enters.fetch_add(own_enters, Ordering::Relaxed);
            latencies
        },
    )?;
    Ok(figures(&latencies, Some(enters.into_inner())))
}

fn build(entries: u32, completion: Completion) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    if completion == Completion::Deferred {
        builder.setup_single_issuer().setup_defer_taskrun();
    }
    builder.build(entries)
}

/// A ring that threads share, by locks, for requests that do nothing.
pub(super) struct SharedRing {
    ring: IoUring,
    submission: Mutex<()>,
    reaping: Mutex<()>,
}

impl SharedRing {
    pub(super) fn new(ring: IoUring) -> SharedRing {
        SharedRing { ring, submission: Mutex::new(()), reaping: Mutex::new(()) }
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    /// Adds a request.
    ///
    /// # Errors
    /// When the queue is full.
    pub(super) fn push_nop(&self, user_data: u64) -> io::Result<()> {
        let _lock = lock(&self.submission);
        let entry = opcode::Nop::new().build().user_data(user_data);
        // SAFETY: the lock makes this the only access to the queue, which is dropped before it; a request that does nothing refers to no
        // memory.
        unsafe { self.ring.submission_shared().push(&entry) }.map_err(io::Error::other)
    }

    /// Takes the completions that are there: `user_data` and result of each.
    pub(super) fn reap(&self, each: impl FnMut((u64, i32))) {
        let _lock = lock(&self.reaping);
        // SAFETY: the lock makes this the only access to the queue.
        let completions = unsafe { self.ring.completion_shared() };
        completions.map(|entry| (entry.user_data(), entry.result())).for_each(each);
    }
}

/// One `io_uring_enter` for all.
fn batch(ring: &mut IoUring, size: u32) -> io::Result<()> {
    let entry = opcode::Nop::new().build();
    let mut queue = ring.submission();
    for _ in 0..size {
        // SAFETY: a request that does nothing refers to no memory.
        unsafe { queue.push(&entry) }.map_err(io::Error::other)?;
    }
    drop(queue);
    ring.submit_and_wait(size as usize)?;
    let mut count = 0;
    for completed in ring.completion() {
        if completed.result() < 0 {
            return Err(io::Error::from_raw_os_error(-completed.result()));
        }
        count += 1;
    }
    assert_eq!(count, size, "all of a batch are waited for");
    Ok(())
}
