//! Measuring: carries a workload out with an arm, and checks every byte.
//!
//! The reads go into one long buffer, each into its own part, and are checked when the clock has stopped: checking in
//! between would be computing.
//!
//! Owns: time, counts of requests, requests in flight while the reader computes, the check.
//! Does not own: what is read and how (`workloads`, `arms`).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{vec, vec::IntoIter};

use ax_fs_ng::{block_batch_stats, block_io_stats};
use ax_std::os::arceos::task::diagnostics::qperf_scheduler_metrics_snapshot;
use ax_std::time::{Duration, Instant};

use crate::arm::{Arm, Reader};
use crate::arms::arm;
use crate::layout::{WORD_BYTES, seed, word};
use crate::workloads::{Pace, Read, Start, Workload};

/// What one workload has cost one arm.
pub struct Row {
    pub arm: String,
    pub workload: &'static str,
    pub bytes: usize,
    /// Requests to the disk that were submitted from the first read to the last.
    pub requests: u64,
    /// What they have read.
    pub disk_bytes: u64,
    /// Calls of the driver with one request or more.
    pub batches: u64,
    /// The most requests that were in flight since the machine started.
    pub peak_inflight: usize,
    /// Times that a read met a page that nothing had begun to read, and times that it slept until another task had.
    pub misses: Option<u64>,
    pub waits: Option<u64>,
    /// What processors copied, bytes.
    pub copied_bytes: Option<u64>,
    /// Switches from one task to another, of all processors.
    pub switches: u64,
    pub micros: u64,
    pub latencies: Latencies,
    pub computing: Option<Computing>,
}

/// How long single reads took, as fio's `psync` engine gives it: nanoseconds.
pub struct Latencies {
    pub mean_nanos: u64,
    pub p50_nanos: u64,
    pub p99_nanos: u64,
    pub p999_nanos: u64,
}

impl From<Vec<u64>> for Latencies {
    fn from(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |per_mille: usize| {
            nanos.get((nanos.len() * per_mille / 1000).min(nanos.len().max(1) - 1)).copied().unwrap_or(0)
        };
        Self {
            mean_nanos: nanos.iter().sum::<u64>() / nanos.len().max(1) as u64,
            p50_nanos: at(500),
            p99_nanos: at(990),
            p999_nanos: at(999),
        }
    }
}

/// What was seen while the reader computed.
#[derive(Default)]
pub struct Computing {
    pub micros: u64,
    pub inflight_max: u64,
    pub samples: u64,
    /// Samples with a request in flight.
    pub busy_samples: u64,
}

/// `computing` is the time to spend computing after each read, where the workload asks for it.
pub fn measure(name: &str, workload: &Workload, computing: Duration) -> Result<Row, String> {
    let run = Run::open(name, workload).map_err(|error| format!("{name}, {}: {error}", workload.name))?;
    if workload.start == Start::Again {
        run.check(&run.read_all(&mut Pacer::none())?.0)?;
    }
    let mut pacer = match workload.pace {
        Pace::Pure | Pace::Calibrating => Pacer::none(),
        Pace::Computing => Pacer::each(computing),
    };
    let counts_before = run.arm.counts();
    let (before, disk_bytes_before) = (block_batch_stats(), disk_bytes());
    let switches_before = switches();
    let start = Instant::now();
    let (bytes, nanos) = run.read_all(&mut pacer)?;
    let micros = start.elapsed().as_micros() as u64;
    let (after, switches) = (block_batch_stats(), switches() - switches_before);
    let counts = run.arm.counts().zip(counts_before);
    run.check(&bytes)?;
    Ok(Row {
        arm: name.into(),
        workload: workload.name,
        bytes: bytes.len(),
        disk_bytes: disk_bytes() - disk_bytes_before,
        requests: after.submitted_requests - before.submitted_requests,
        batches: after.submission_batches - before.submission_batches,
        peak_inflight: after.peak_inflight,
        misses: counts.map(|(after, before)| after.misses - before.misses),
        waits: counts.map(|(after, before)| after.waits - before.waits),
        copied_bytes: counts.map(|(after, before)| after.copied_bytes - before.copied_bytes),
        switches,
        micros,
        latencies: nanos.into(),
        computing: pacer.seen,
    })
}

impl Row {
    /// Time of one read, from the time of all of them.
    pub fn each(&self, reads: usize) -> Duration {
        Duration::from_micros(self.micros) / reads.max(1) as u32
    }

    /// In bytes a second.
    pub fn is_faster_than(&self, other: &Row) -> bool {
        self.bytes as u64 * other.micros > other.bytes as u64 * self.micros
    }
}

/// Since the machine started.
fn switches() -> u64 {
    qperf_scheduler_metrics_snapshot().context_switches
}

/// All that was read from the disk since the machine started.
fn disk_bytes() -> u64 {
    let (_, sectors_read, _, _) = block_io_stats();
    sectors_read * 512
}

/// An arm with its files open.
struct Run {
    arm: Box<dyn Arm>,
    paths: Vec<String>,
    readers: Vec<Box<dyn Reader>>,
    reads: Vec<Read>,
}

impl Run {
    fn open(name: &str, workload: &Workload) -> Result<Run, String> {
        let arm = arm(name).map_err(|error| format!("no arm of that name: {error:?}"))?;
        let paths: Vec<String> = workload.files.iter().map(|file| format!("/{name}/{file}")).collect();
        let open = |path: &String| arm.open(path).map_err(|error| format!("{path}: {error:?}"));
        let readers = paths.iter().map(open).collect::<Result<_, String>>()?;
        Ok(Run { arm, paths, readers, reads: (workload.reads)() })
    }

    /// All bytes in the order of the reads, and how long each read took, in nanoseconds.
    fn read_all(&self, pacer: &mut Pacer) -> Result<(Vec<u8>, Vec<u64>), String> {
        let mut bytes = vec![0; self.reads.iter().map(|read| read.bytes).sum()];
        let mut nanos = Vec::with_capacity(self.reads.len());
        for (read, part) in self.parts(&mut bytes) {
            let start = Instant::now();
            let count = self.readers[read.file].read_at(part, read.offset as u64);
            nanos.push(start.elapsed().as_nanos() as u64);
            if count != Ok(read.bytes) {
                return Err(format!(
                    "{} at {}: {count:?} instead of {}",
                    self.path(read),
                    read.offset,
                    read.bytes
                ));
            }
            pacer.pause();
        }
        Ok((bytes, nanos))
    }

    fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        for read in &self.reads {
            let part = rest.split_off(..read.bytes).expect("the buffer is as long as all reads");
            if let Some(offset) = first_difference(seed(self.path(read)), read.offset, part) {
                return Err(format!("{}: wrong bytes at {offset}", self.path(read)));
            }
        }
        Ok(())
    }

    fn parts<'a>(&'a self, bytes: &'a mut [u8]) -> IntoIter<(&'a Read, &'a mut [u8])> {
        let mut rest = bytes;
        let mut part =
            |read: &Read| rest.split_off_mut(..read.bytes).expect("the buffer is as long as all reads");
        self.reads.iter().map(|read| (read, part(read))).collect::<Vec<_>>().into_iter()
    }

    fn path(&self, read: &Read) -> &str {
        &self.paths[read.file]
    }
}

/// Computes after each read, and looks at the disk meanwhile.
struct Pacer {
    each: Duration,
    seen: Option<Computing>,
}

impl Pacer {
    fn none() -> Pacer {
        Pacer { each: Duration::ZERO, seen: None }
    }

    fn each(each: Duration) -> Pacer {
        Pacer { each, seen: Some(Computing::default()) }
    }

    fn pause(&mut self) {
        let Some(seen) = &mut self.seen else { return };
        let start = Instant::now();
        while start.elapsed() < self.each {
            let disk = block_batch_stats();
            let inflight = disk.submitted_requests.saturating_sub(disk.completed_requests);
            seen.inflight_max = seen.inflight_max.max(inflight);
            seen.samples += 1;
            seen.busy_samples += u64::from(inflight > 0);
        }
        seen.micros += start.elapsed().as_micros() as u64;
    }
}

/// The offset in the file of the first word that does not belong there. Offset and length are multiples of a word.
fn first_difference(seed: u64, offset: usize, bytes: &[u8]) -> Option<usize> {
    let mut words = (offset / WORD_BYTES..).zip(bytes.chunks_exact(WORD_BYTES));
    words
        .find(|(index, found)| word(seed, *index).to_le_bytes() != **found)
        .map(|(index, _)| index * WORD_BYTES)
}
