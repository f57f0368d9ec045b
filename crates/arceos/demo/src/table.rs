//! Table: rows for people, and the same as JSON for programs.
//!
//! Owns: how a row looks.
//! Does not own: what is measured.

use alloc::format;
use alloc::string::{String, ToString};

use ax_std::println;

use crate::measure::Row;

/// Where the rows were measured; the same for all of a run.
pub struct Machine {
    pub file_system: String,
    pub processors: usize,
    /// Requests and MiB that the disk serves in a second at most; none if it is not held back.
    pub iops: Option<u64>,
    pub mibps: Option<u64>,
    /// Milliseconds that each request takes at least.
    pub latency_ms: Option<u64>,
}

pub fn print_head(machine: &Machine) {
    println!("{}, {} processor(s)", machine.file_system, machine.processors);
    println!(
        "at most {} requests/s, {} MiB/s; a request takes {} ms more",
        or_dash(machine.iops),
        or_dash(machine.mibps),
        or_dash(machine.latency_ms)
    );
    println!(
        "{:<12}{:<21}{:>9}{:>9}{:>9}{:>11}{:>7}{:>9}{:>9}{:>10}{:>9}{:>9}{:>10}{:>10}{:>10}",
        "arm",
        "workload",
        "requests",
        "KiB each",
        "MiB read",
        "in flight",
        "busy",
        "misses",
        "waits",
        "switches",
        "copied",
        "ms",
        "MiB/s",
        "p50 us",
        "p99 us"
    );
}

pub fn print(machine: &Machine, row: &Row) {
    let kib = if row.requests == 0 { 0 } else { row.disk_bytes / 1024 / row.requests };
    let computing = row.computing.as_ref();
    println!(
        "{:<12}{:<21}{:>9}{:>9}{:>9.1}{:>11}{:>7}{:>9}{:>9}{:>10}{:>9}{:>9}{:>10.1}{:>10.1}{:>10.1}",
        row.arm,
        row.workload,
        row.requests,
        kib,
        row.disk_bytes as f64 / MIB,
        or_dash(computing.map(|seen| seen.inflight_max)),
        or_dash(computing.map(|seen| format!("{} %", 100 * seen.busy_samples / seen.samples.max(1)))),
        or_dash(row.misses),
        or_dash(row.waits),
        row.switches,
        or_dash(row.copied_bytes.map(|bytes| bytes >> 20)),
        row.micros / 1000,
        row.bytes as f64 / MIB / (row.micros.max(1) as f64 / 1e6),
        row.latencies.p50_nanos as f64 / 1e3,
        row.latencies.p99_nanos as f64 / 1e3,
    );
    println!("@row {}", json(machine, row));
}

/// Numbers and plain names only, so nothing is to be escaped.
fn json(machine: &Machine, row: &Row) -> String {
    let computing = row.computing.as_ref();
    format!(
        "{{\"file_system\":\"{}\",\"processors\":{},\"iops\":{},\"mibps\":{},\"latency_ms\":{},\"arm\":\"{}\",\"workload\":\"{}\",\"bytes\":{},\
         \"requests\":{},\"disk_bytes\":{},\"batches\":{},\"peak_inflight\":{},\"misses\":{},\"waits\":{},\"switches\":{},\"copied_bytes\":{},\"micros\":{},\"mean_nanos\":{},\"p50_nanos\":{},\"p99_nanos\":{},\"p999_nanos\":{},\"computing_micros\":{},\
         \"inflight_max\":{},\"samples\":{},\"busy_samples\":{}}}",
        machine.file_system,
        machine.processors,
        or_null(machine.iops),
        or_null(machine.mibps),
        or_null(machine.latency_ms),
        row.arm,
        row.workload,
        row.bytes,
        row.requests,
        row.disk_bytes,
        row.batches,
        row.peak_inflight,
        or_null(row.misses),
        or_null(row.waits),
        row.switches,
        or_null(row.copied_bytes),
        row.micros,
        row.latencies.mean_nanos,
        row.latencies.p50_nanos,
        row.latencies.p99_nanos,
        row.latencies.p999_nanos,
        or_null(computing.map(|seen| seen.micros)),
        or_null(computing.map(|seen| seen.inflight_max)),
        or_null(computing.map(|seen| seen.samples)),
        or_null(computing.map(|seen| seen.busy_samples)),
    )
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

fn or_null(value: Option<u64>) -> String {
    value.map_or("null".into(), |value| value.to_string())
}

const MIB: f64 = (1 << 20) as f64;
