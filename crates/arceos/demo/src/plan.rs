//! Plan: what the guest is to do, read from a file on its disk.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use ax_fs_ng::ROOT_FS_CONTEXT;

/// A line a setting: `arms NAME...`, `iops NUMBER`, `mibps NUMBER`, `latency NUMBER`,
/// `only WORDS`.
#[derive(Default)]
pub struct Plan {
    /// The first one's pure reading sets how long computing readers compute.
    pub arms: Vec<String>,
    /// Requests and MiB that the disk serves in a second at most.
    pub iops: Option<u64>,
    pub mibps: Option<u64>,
    /// Milliseconds that each request takes at least.
    pub latency_ms: Option<u64>,
    /// Workloads whose names contain this; all if there is nothing.
    pub only: String,
}

impl Plan {
    pub fn read() -> Result<Plan, String> {
        let context = ROOT_FS_CONTEXT.get().ok_or("no file system is mounted")?;
        let text = context.read_to_string(PATH).map_err(|error| format!("{PATH}: {error:?}"))?;
        let mut plan = Plan::default();
        for line in text.lines() {
            plan.set(line).ok_or_else(|| format!("{PATH}: what is `{line}`?"))?;
        }
        Ok(plan)
    }

    pub fn asks_for(&self, workload: &str) -> bool {
        workload.contains(&*self.only)
    }

    fn set(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once(' ')?;
        match key {
            "arms" => self.arms = value.split_whitespace().map(String::from).collect(),
            "iops" => self.iops = Some(value.parse().ok()?),
            "only" => self.only = value.into(),
            "latency" => self.latency_ms = Some(value.parse().ok()?),
            "mibps" => self.mibps = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

const PATH: &str = "/plan.txt";
