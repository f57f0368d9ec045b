//! Host: what the program and the kernel around an engine do to it: wakers, listeners, signals, rings that misbehave.
//!
//! Owns: one module for each.
//! Does not own: runtimes and executors (reading), the end of the process (writing).

mod kernel;
mod listeners;
mod signals;
mod silent;
mod stuck;
mod wakers;

use headwater::DriverKind;
use headwater::testing::uring_refusal;
use headwater_testkit::with_uring;

/// The drivers that have threads.
fn drivers() -> Vec<DriverKind> {
    with_uring([DriverKind::Threads], DriverKind::Uring, uring_refusal())
}
