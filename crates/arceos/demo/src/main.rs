//! Demo: an ArceOS application that reads files through several caches and counts requests to the disk.

#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod arm;
mod arms;
mod bounce;
mod exercise;
mod headwater_arms;
mod layout;
#[allow(unsafe_code, reason = "a program accesses pages by their addresses")]
mod mapped;
mod measure;
mod plan;
mod processors;
mod story;
mod table;
mod workloads;

use alloc::string::String;

use ax_std::println;
use ax_std::time::Duration;

use measure::{Row, measure};
use plan::Plan;
use table::Machine;
use workloads::{Pace, WORKLOADS};

/// What the kernel calls when it has started.
#[expect(unsafe_code, reason = "the kernel finds its application by this name")]
#[unsafe(no_mangle)]
extern "C" fn main() {
    match run() {
        Ok(()) => println!("@done"),
        Err(message) => println!("@failed {message}"),
    }
    // The serial line is slower than the power switch.
    ax_std::thread::sleep(Duration::from_millis(200));
    ax_std::process::exit(0)
}

fn run() -> Result<(), String> {
    println!("@boot {}", ax_hal::time::monotonic_time().as_micros());
    let plan = Plan::read()?;
    let machine = Machine {
        file_system: arm::locate("/").map_err(|_| "there is no root")?.filesystem().name().into(),
        processors: ax_hal::cpu_num(),
        iops: plan.iops,
        mibps: plan.mibps,
        latency_ms: plan.latency_ms,
    };
    // Like most readers of a machine with many processors, not where the disk's interrupts are.
    processors::bind(machine.processors - 1);
    exercise::exercise()?;
    mapped::mapped()?;
    table::print_head(&machine);
    let mut computing = Duration::ZERO;
    let mut best: Option<Row> = None;
    for arm in &plan.arms {
        for workload in WORKLOADS.iter().filter(|workload| plan.asks_for(workload.name)) {
            let row = measure(arm, workload, computing)?;
            table::print(&machine, &row);
            if computing.is_zero() && workload.pace == Pace::Calibrating {
                computing = row.each((workload.reads)().len());
            }
            if row.disk_bytes > 0 && best.as_ref().is_none_or(|best| row.is_faster_than(best)) {
                best = Some(row);
            }
        }
    }
    best.iter().for_each(bounce::print);
    Ok(())
}
