//! Costs: what other processes have taken so far, as the kernel counts it.
//!
//! Owns: the files of `/proc` of a process, their sums.
//! Does not own: which processes those are (`cluster`), the costs of this process (`headwater-measure`).

use std::fs;
use std::iter::Sum;

use headwater_datafusion::{Error, Result};

/// Of one process, or the sum of several.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Costs {
    /// Of all threads, the kernel's part included.
    pub(crate) cpu_seconds: f64,
    /// What it asked of devices.
    pub(crate) read_bytes: u64,
    /// The most memory at a time.
    pub(crate) peak_kib: u64,
}

impl Costs {
    /// Of a process that has not been waited for.
    pub(crate) fn of(process: u32) -> Result<Costs> {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            fs::read_to_string(&path).map_err(Error::file(path))
        };
        let (stat, io, status) = (read("stat")?, read("io")?, read("status")?);
        Costs::parse(&stat, &io, &status)
            .ok_or_else(|| Error::Other(format!("/proc/{process} is not as proc(5) has it")))
    }

    fn parse(stat: &str, io: &str, status: &str) -> Option<Costs> {
        // `proc_pid_stat(5)`: after the name, which may have anything in it, state is the third field; utime and stime the 14th and 15th.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        Some(Costs {
            // A tick is a hundredth of a second on all Linux systems.
            cpu_seconds: (ticks(14)? + ticks(15)?) as f64 / 100.0,
            read_bytes: field(io, "read_bytes:")?,
            peak_kib: field(status, "VmHWM:")?,
        })
    }

    /// Since an earlier moment; the peak is that of now.
    pub(crate) fn since(self, before: Costs) -> Costs {
        Costs {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            read_bytes: self.read_bytes - before.read_bytes,
            peak_kib: self.peak_kib,
        }
    }
}

impl Sum for Costs {
    fn sum<I: Iterator<Item = Costs>>(all: I) -> Costs {
        all.fold(Costs::default(), |sum, costs| Costs {
            cpu_seconds: sum.cpu_seconds + costs.cpu_seconds,
            read_bytes: sum.read_bytes + costs.read_bytes,
            peak_kib: sum.peak_kib + costs.peak_kib,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_have_anything_in_them() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0";
        let costs =
            Costs::parse(stat, "rchar: 9\nread_bytes: 4096\n", "Name:\tx\nVmHWM:\t  12 kB\n").unwrap();
        assert_eq!(costs, Costs { cpu_seconds: 2.0, read_bytes: 4096, peak_kib: 12 });
        let twice: Costs = [costs, costs].into_iter().sum();
        assert_eq!(twice.since(costs), Costs { peak_kib: 24, ..costs });
    }

    #[test]
    fn this_process_has_costs() {
        assert!(Costs::of(std::process::id()).unwrap().peak_kib > 0);
        assert!(Costs::of(u32::MAX).unwrap_err().to_string().contains("/proc/"));
    }
}
