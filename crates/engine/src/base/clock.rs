//! Clock: the coarse clock by which looks at files are timed.
//!
//! Owns: its unit, and how long a look is trusted.
//! Does not own: when a file is looked at (inode).

use std::time::Duration;

pub(crate) fn coarse_nanoseconds() -> u64 {
    headwater_io::coarse_clock().as_nanos() as u64
}

/// How long what was seen of a file is trusted. A look costs 0.2 to 1 µs, so this is 0.01 % of the time of one thread;
/// the coarse clock of the kernel moves every 1 to 10 ms, so much less is the same.
pub(crate) const REVALIDATE_INTERVAL: Duration = Duration::from_millis(10);
