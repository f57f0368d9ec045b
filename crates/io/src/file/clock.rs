//! Clock: the kernel's coarse clock, which dates the checks of files.

use std::sync::OnceLock;
use std::time::Duration;

/// Monotonic time as of the kernel's last tick: cheaper than the exact time.
pub fn coarse_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// How far [`coarse_clock`] may lie behind the exact time: 1 to 10 ms. Asked of the kernel once.
pub fn coarse_tick() -> Duration {
    static TICK: OnceLock<Duration> = OnceLock::new();
    *TICK.get_or_init(|| {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        Duration::new(tick.tv_sec as u64, tick.tv_nsec as u32)
    })
}
