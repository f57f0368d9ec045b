//! Processors: which the kernel lets this thread use, and staying on one of them.
//!
//! Owns: the affinity of the calling thread.
//! Does not own: which thread belongs where.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may use, in the order of their numbers; cgroups are considered.
///
/// # Errors
/// What `sched_getaffinity(2)` reports.
pub fn usable_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Keeps the calling thread on one processor, until the kernel takes that away from the process: then it runs where others may.
///
/// # Errors
/// What `sched_setaffinity(2)` reports: `EINVAL` for a processor that the process may not use.
///
/// # Panics
/// If there can be no processor of that number.
pub fn stay_on_processor(processor: usize) -> io::Result<()> {
    assert!(processor < CpuSet::MAX_CPU, "a kernel has no processor {processor}");
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(all(test, not(miri), not(headwater_loom)))]
mod tests {
    use super::*;

    /// Goal: a thread that stays on a processor may use that one alone, and threads beside it all of them.
    #[test]
    fn a_thread_stays_on_each_in_turn() {
        let all = usable_processors().unwrap();
        assert!(!all.is_empty() && all.is_sorted());
        std::thread::scope(|scope| {
            for &processor in &all {
                scope.spawn(move || {
                    stay_on_processor(processor).unwrap();
                    assert_eq!(usable_processors().unwrap(), [processor]);
                });
            }
        });
        assert_eq!(usable_processors().unwrap(), all);
        let missing = (0..CpuSet::MAX_CPU).rfind(|processor| !all.contains(processor)).unwrap();
        assert!(stay_on_processor(missing).is_err());
    }
}
