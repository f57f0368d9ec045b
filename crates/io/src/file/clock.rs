//! Clock: the kernel's coarse clock, which dates the checks of files.

use std::time::Duration;

use crate::system::known::KnownNumber;

/// Monotonic time as of the kernel's last tick: cheaper than the exact time.
pub fn coarse_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// How far [`coarse_clock`] may lie behind the exact time: 1 to 10 ms. Asked of the kernel once.
pub fn coarse_tick() -> Duration {
    static TICK_NANOS: KnownNumber = KnownNumber::new();
    Duration::from_nanos(TICK_NANOS.get_or(|| {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
    }))
}
