//! Process: what this process has cost so far, as the kernel counts it.
//
// Owns: the counters of `/proc` and their units.
// Does not own: which work they are read around (suites).

use std::fs;
use std::io;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// What work takes: time, and processor time of this process, all of its threads and the kernel's part included.
pub struct Meter {
    started: Instant,
    cpu_seconds: f64,
}

impl Meter {
    /// Starts both clocks.
    pub fn start() -> Meter {
        Meter { started: Instant::now(), cpu_seconds: cpu_seconds() }
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Time since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Processor time since the start.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds() - self.cpu_seconds
    }
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// `VmHWM` of `proc_pid_status(5)`.
///
/// # Errors
/// When the kernel does not tell.
pub fn peak_rss_kib() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let number = field(&status, "VmHWM:").and_then(|words| words.trim_end_matches(" kB").parse().ok());
    number.ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}

/// Has [`peak_rss_kib`] begin anew with what is resident now, where the kernel allows it (`clear_refs` of `proc_pid_clear_refs(5)`). The kernel
/// counts a parent's peak among that of a child, as long as they share memory.
pub fn forget_peak_rss() {
    // In a sandbox without it figures are those that they were.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// What this process asked of devices (`read_bytes` of `proc_pid_io(5)`); `None` where the kernel does not count.
pub fn device_read_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "read_bytes:")?.parse().ok()
}

/// What this process has had, or will have, written to devices (`write_bytes` of `proc_pid_io(5)`): counted when a page becomes dirty.
pub fn device_written_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/self/io").ok()?, "write_bytes:")?.parse().ok()
}

/// How often the kernel was made to drop its whole page cache since it was started; `None` where it does not tell.
pub fn page_cache_drops() -> Option<u64> {
    field(&fs::read_to_string("/proc/vmstat").ok()?, "drop_pagecache ")?.parse().ok()
}

/// Processor time of the whole machine since it was started, that of interrupts and of the kernel's threads included.
pub fn system_cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let mut ticks = text.lines().next()?.split_whitespace().skip(1).map(|ticks| ticks.parse::<u64>().ok());
    // `proc_stat(5)`: user, nice, system, idle, iowait, irq, softirq. A tick is a hundredth of a second on all Linux systems.
    let [user, nice, system, _, _, irq, softirq] = std::array::from_fn(|_| ticks.next().flatten());
    Some((user? + nice? + system? + irq? + softirq?) as f64 / 100.0)
}

/// What `/proc/meminfo` counts as available.
pub fn available_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(field(&text, "MemAvailable:")?.strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a peak that was forgotten is not counted any more. Method: 256 MiB are touched, and given back to the kernel.
    #[test]
    fn a_peak_is_forgotten() {
        let held_kib = (256 << 20) / 1024;
        drop(std::hint::black_box(vec![1_u8; held_kib << 10]));
        assert!(peak_rss_kib().unwrap() >= held_kib as u64);
        forget_peak_rss();
        assert!(peak_rss_kib().unwrap() < held_kib as u64);
    }
}
