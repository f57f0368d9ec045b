//! Processors: which of them a task runs on.

use ax_std::os::arceos::task::sched::{CpuId, CpuSet};
use ax_std::os::arceos::task::thread::current::set_current_thread_affinity;

/// The current task runs on this processor only.
pub fn bind(processor: usize) {
    let mut set = CpuSet::empty(ax_hal::cpu_num());
    assert!(set.insert(CpuId::new(processor as u32)), "there is such a processor");
    set_current_thread_affinity(set).expect("any task may be bound");
}

/// The processor that the disk interrupts, and that the tasks of its queue run on: with one queue, the first.
pub const DISK_PROCESSOR: usize = 0;
