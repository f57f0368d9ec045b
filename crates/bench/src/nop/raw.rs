//! Raw: the `io-uring` crate alone, a ring a thread: what a library can cost at least.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::{IoUring, opcode};

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
