//! Cost: what a request of 4 KiB costs, completed by polling and by interrupt.
//!
//! ```text
//!   pages in a random order, none twice ─► a few, not counted ─► the rest: interrupts, processor time, latencies
//! ```
//!
//! Every read is a request: no page is read twice. The bytes are not compared here, since comparing takes processor time and delays the
//! reads behind it.
//!
//! Owns: these reads, what they have cost, how that is shown.
//! Does not own: how the file is opened, and how often each way is run (checks).

use std::io;
use std::time::Instant;

use headwater::File;
use headwater_measure::process::system_cpu_seconds;
use headwater_measure::{Latencies, Meter, median};
use headwater_testkit::Rng;

use super::interrupts;
use crate::pages::{PAGE as PAGE_BYTES, shuffle};

/// Reads of 4 KiB, which begin with an empty cache; the seed sets their order.
pub(crate) type Read = fn(&File, seed: u64) -> io::Result<Cost>;

/// Asynchronous ones: a blocking read of 4 KiB runs in the calling thread without a ring, and is not polled.
pub(crate) const PATTERNS: &[(&str, Read)] =
    &[("4 KiB x 32", in_flight::<32>), ("4 KiB x 1", in_flight::<1>)];

/// What one run has cost.
pub(crate) struct Cost {
    requests: u64,
    interrupts: u64,
    process_cpu_s: f64,
    /// Of all processes and the kernel. The kernel samples it at each tick, so that interrupts of an idle processor are in it, and short
    /// runs are coarse.
    machine_cpu_s: f64,
    latencies: Latencies,
}

/// Medians of the runs for each request, with the range of the processor time, and the percentiles of all latencies.
pub(crate) fn described(runs: &[Cost]) -> String {
    let for_each_request = |value: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(|run| value(run) / run.requests as f64).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let interrupts = median(for_each_request(|run| run.interrupts as f64));
    let process_us = for_each_request(|run| run.process_cpu_s * 1e6);
    let machine_us = median(for_each_request(|run| run.machine_cpu_s * 1e6));
    let latencies = Latencies::sum(runs.iter().map(|run| run.latencies.clone()));
    let (least_us, most_us) = (process_us.first().unwrap_or(&0.0), process_us.last().unwrap_or(&0.0));
    format!(
        "{interrupts:.2} interrupts; cpu_us {:.0} ({least_us:.0} to {most_us:.0}), of the machine {machine_us:.0}; \
         p50 {:.0}, p99 {:.0} µs",
        median(process_us.iter().copied()),
        latencies.within_us(0.5),
        latencies.within_us(0.99)
    )
}

/// Asynchronous reads on one thread, `DEPTH` of them in flight.
fn in_flight<const DEPTH: usize>(file: &File, seed: u64) -> io::Result<Cost> {
    let (warm_up, counted) = pages(file, seed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        read_each(file.clone(), warm_up).await?;
        let counters = Counters::start()?;
        let tasks: Vec<_> = counted
            .chunks(counted.len() / DEPTH)
            .map(|pages| tokio::spawn(read_each(file.clone(), pages.to_vec())))
            .collect();
        let mut parts = Vec::new();
        for task in tasks {
            parts.push(task.await.map_err(io::Error::other)??);
        }
        counters.stop(Latencies::sum(parts))
    })
}

async fn read_each(file: File, pages: Vec<u32>) -> io::Result<Latencies> {
    let mut latencies = Latencies::coarse();
    for page in pages {
        let started = Instant::now();
        file.read_exact_at_async(u64::from(page) * PAGE_BYTES, PAGE_BYTES as usize).await?;
        latencies.record(started.elapsed());
    }
    Ok(latencies)
}

/// Pages to start with, and those that count.
fn pages(file: &File, seed: u64) -> io::Result<(Vec<u32>, Vec<u32>)> {
    let mut pages: Vec<u32> = (0..(file.len()? / PAGE_BYTES) as u32).collect();
    shuffle(&mut pages, &mut Rng::new(seed));
    pages.truncate(WARM_UP_READS + COUNTED_READS);
    let counted = pages.split_off(WARM_UP_READS);
    Ok((pages, counted))
}

/// All that is read before and after.
struct Counters {
    interrupts: u64,
    machine_cpu_s: f64,
    process: Meter,
}

impl Counters {
    fn start() -> io::Result<Counters> {
        let (interrupts, machine_cpu_s) = (interrupts::of_nvme()?, machine_cpu_s()?);
        Ok(Counters { interrupts, machine_cpu_s, process: Meter::start() })
    }

    fn stop(self, latencies: Latencies) -> io::Result<Cost> {
        let process_cpu_s = self.process.cpu_seconds();
        Ok(Cost {
            requests: latencies.count(),
            interrupts: interrupts::of_nvme()? - self.interrupts,
            process_cpu_s,
            machine_cpu_s: machine_cpu_s()? - self.machine_cpu_s,
            latencies,
        })
    }
}

fn machine_cpu_s() -> io::Result<f64> {
    system_cpu_seconds().ok_or_else(|| io::Error::other("/proc/stat shows no processor time"))
}

/// Enough for the rings to be made and every path to have been taken.
const WARM_UP_READS: usize = 64;

/// Half a second of processor time and more on an emulated processor, which is many ticks; the cache holds all of them.
const COUNTED_READS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: medians are of runs, for each request; percentiles are of all latencies.
    #[test]
    fn runs_are_summed_up() {
        let run = |interrupts, process_cpu_s, latency_us| {
            let mut latencies = Latencies::coarse();
            (0..10).for_each(|_| latencies.record(std::time::Duration::from_micros(latency_us)));
            Cost { requests: 10, interrupts, process_cpu_s, machine_cpu_s: 0.001, latencies }
        };
        let runs = [run(10, 0.0002, 100), run(9, 0.0004, 200), run(0, 0.0003, 100)];
        let text = described(&runs);
        assert!(
            text.starts_with("0.90 interrupts; cpu_us 30 (20 to 40), of the machine 100; p50 100,"),
            "{text}"
        );
        assert!(text.contains("p99 20"), "{text}");
    }
}
