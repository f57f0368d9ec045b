//! Clock: the coarse clock by which checks of files are timed.
//!
//! Owns: its unit, and how long a check is trusted.
//! Does not own: when a file is checked (inode).

use std::time::Duration;

pub(crate) fn coarse_nanoseconds() -> u64 {
    headwater_io::coarse_clock().as_nanos() as u64
}

/// How long the length and times of a file are trusted. A check costs 0.2 to 1 µs, so this is 0.01 % of the time of one thread;
/// the kernel's coarse clock moves every 1 to 10 ms, so a much shorter interval changes nothing.
pub(crate) const REVALIDATE_INTERVAL: Duration = Duration::from_millis(10);
