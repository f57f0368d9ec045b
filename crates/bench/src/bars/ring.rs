//! Ring: 4 KiB random direct reads, 32 in flight, from every kind of caller, against fio with the same.
//!
//! Owns: the callers, their bars, what a request costs in time, processor time and system calls.
//! Does not own: how the callers read (arms), counting system calls (syscalls).

use std::io;

use super::{Cache, Contest, Runner};
use crate::arms::{self, Arm};
use crate::tools::Sample;
use headwater_measure::median;
use headwater_measure::syscalls;
use headwater_measure::verdict::{Limit, detail, report, skipped};

use crate::tools;

impl Contest<'_> {
    pub(super) fn ring(&self) -> io::Result<()> {
        let mut arms: Vec<Runner> =
            CALLERS.iter().map(|caller| Runner::Arm(caller.arm, MEMORY_MIB)).collect();
        arms.push(Runner::Fio(fio_random(self.options.seconds)));
        self.settle()?;
        let samples = self.rounds(&arms, Cache::Cold)?;
        let costs: Vec<Cost> =
            arms.iter().zip(&samples).map(|(runner, samples)| self.cost(runner, samples)).collect();
        let (fio, ours) = costs.split_last().expect("fio is the last of the arms");
        for (caller, cost) in CALLERS.iter().zip(ours) {
            detail(&format!("{:<28} {}", caller.name, cost.words()))?;
        }
        detail(&format!("{:<28} {}", "fio", fio.words()))?;
        CALLERS.iter().zip(ours).try_for_each(|(caller, cost)| judge(caller, cost, fio))
    }

    fn cost(&self, runner: &Runner, samples: &[Sample]) -> Cost {
        Cost {
            iops: median(samples.iter().map(|sample| sample.iops)),
            cpu_us: median(samples.iter().map(|sample| sample.cpu_s / sample.requests * 1e6)),
            syscalls: self.syscalls(runner).map_err(|error| error.to_string()),
        }
    }

    /// A run of its own: being counted slows it down.
    fn syscalls(&self, runner: &Runner) -> io::Result<f64> {
        tools::make_cold(self.file)?;
        let (count, requests) = match runner {
            Runner::Arm(arm, memory_mib) => {
                let command = arms::command(*arm, self.file, *memory_mib, COUNTED_SECONDS)?;
                let (count, stdout) = syscalls::count(&command)?;
                (count, serde_json::from_slice::<Sample>(&stdout)?.requests)
            }
            Runner::Fio(_) => {
                let command = tools::fio_command(self.file, &fio_random(COUNTED_SECONDS));
                let (count, stdout) = syscalls::count(&command)?;
                (count, tools::fio_sample(&stdout)?.requests)
            }
            Runner::Beside(..) | Runner::Shell(_) => {
                return Err(io::Error::other("only arms of random reads have requests"));
            }
        };
        Ok(count / requests)
    }
}

/// Of one request.
struct Cost {
    iops: f64,
    cpu_us: f64,
    /// Or why they could not be counted.
    syscalls: Result<f64, String>,
}

impl Cost {
    fn words(&self) -> String {
        let syscalls = self.syscalls.as_ref().map_or("?".to_owned(), |count| format!("{count:.3}"));
        format!("{:>8.0} IOPS, {:>5.1} us CPU, {syscalls} syscalls each", self.iops, self.cpu_us)
    }
}

fn judge(caller: &Caller, cost: &Cost, fio: &Cost) -> io::Result<()> {
    let name = caller.name;
    report(&format!("4 KiB x 32, {name} : fio x 32"), cost.iops / fio.iops, Limit::AtLeast(caller.iops_min))?;
    if caller.kind == Kind::Threads {
        return Ok(());
    }
    report(&format!("  {name}: CPU per request : fio's"), cost.cpu_us / fio.cpu_us, Limit::AtMost(1.1))?;
    let title = format!("  {name}: system calls per request");
    match &cost.syscalls {
        Ok(count) => report(&title, *count, Limit::AtMost(0.2)),
        Err(reason) => skipped(&title, reason),
    }
}

struct Caller {
    name: &'static str,
    arm: Arm,
    kind: Kind,
    /// Against fio.
    iops_min: f64,
}

/// Of threads that wait for one request each nothing is promised but the rate: each of them sleeps and wakes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Async,
    Threads,
}

const CALLERS: [Caller; 4] = [
    Caller { name: "tokio, 2 workers", arm: Arm::RandomTokioMulti, kind: Kind::Async, iops_min: 0.95 },
    Caller { name: "tokio, current thread", arm: Arm::RandomTokio, kind: Kind::Async, iops_min: 0.95 },
    Caller { name: "smol, one thread", arm: Arm::RandomSmol, kind: Kind::Async, iops_min: 0.95 },
    Caller { name: "32 threads", arm: Arm::RandomThreads, kind: Kind::Threads, iops_min: 0.9 },
];

fn fio_random(seconds: f64) -> Vec<String> {
    // Other offsets in every run, as the arms have them.
    let words =
        ["--rw=randread", "--bs=4k", "--iodepth=32", "--time_based", "--randrepeat=0"].map(str::to_owned);
    // Fio takes whole milliseconds.
    words.into_iter().chain([format!("--runtime={:.0}ms", seconds * 1e3)]).collect()
}

const MEMORY_MIB: u64 = 32;

/// Tens of thousands of requests on any flash device, so that what starting costs does not show.
const COUNTED_SECONDS: f64 = 1.0;
