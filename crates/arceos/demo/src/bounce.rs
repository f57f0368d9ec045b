//! Bounce: what the block layer's own buffers cost, apart from the disk.
//!
//! `ax-fs-ng` 0.11.2 does this for each request of a read (`block/runtime/dma.rs`, `lifecycle/io.rs`): it allocates a buffer, zeroes it, has
//! the device write to it, copies it into the caller's slice, and frees it. Here the same is done without the device, with the same
//! allocator and the same `memcpy`.
//!
//! Owns: this loop, its times.
//! Does not own: requests to the disk, which rows count (`measure`).

use alloc::vec;
use core::hint::black_box;

use ax_std::println;
use ax_std::time::{Duration, Instant};

use crate::layout::FILE_BYTES;
use crate::measure::Row;

/// How long it took for all bytes of a file.
struct Times {
    /// Allocating and zeroing.
    preparing: Duration,
    copying: Duration,
}

/// Prints what the buffers cost, beside the best of the arms that have read from the disk.
pub fn print(best: &Row) {
    let mut rounds: [Times; ROUNDS] = core::array::from_fn(|_| round());
    rounds.sort_by_key(|round| round.copying);
    let copying = micros_per_mib(rounds[ROUNDS / 2].copying);
    rounds.sort_by_key(|round| round.preparing);
    let preparing = micros_per_mib(rounds[ROUNDS / 2].preparing);
    let reading = best.micros as f64 * MIB / best.bytes as f64;
    println!(
        "the block layer's buffers of {} KiB, {} MiB, median of {ROUNDS}: copied in {copying:.0} us/MiB ({:.0} MiB/s), allocated and \
         zeroed in {preparing:.0} us/MiB; the best arm ({}, {}) takes {reading:.0} us/MiB ({:.0} MiB/s) in all",
        REQUEST_BYTES >> 10,
        FILE_BYTES >> 20,
        1e6 / copying,
        best.arm,
        best.workload,
        1e6 / reading,
    );
}

fn round() -> Times {
    let mut frames = vec![1_u8; FILE_BYTES];
    let mut times = Times { preparing: Duration::ZERO, copying: Duration::ZERO };
    for target in frames.chunks_mut(REQUEST_BYTES) {
        let start = Instant::now();
        let buffer = black_box(vec![0; target.len()]);
        let prepared = Instant::now();
        target.copy_from_slice(&buffer);
        black_box(target);
        times.preparing += prepared - start;
        times.copying += prepared.elapsed();
    }
    times
}

fn micros_per_mib(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3 * MIB / FILE_BYTES as f64
}

/// The largest request that the driver makes of QEMU's disk.
const REQUEST_BYTES: usize = 512 << 10;
/// An odd number has a median.
const ROUNDS: usize = 9;
const MIB: f64 = (1 << 20) as f64;
