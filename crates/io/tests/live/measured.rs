//! Measured: what filling and taking cost, printed for whoever asks.
//!
//! `cargo test --release -p headwater-io --test live -- --ignored --nocapture measured`
//!
//! Owns: nothing.
//! Does not own: any claim; nothing is asserted.

use std::time::{Duration, Instant};

use headwater_io::{Arena, Extents, Urgency};
use headwater_testkit::Rng;

use crate::{HUGE_BYTES, PAGE_BYTES, live_memory};

/// Little, so that rounds after the first take memory that a virtual machine's host has not taken back meanwhile.
const FILL_BYTES: usize = 64 << 20;
const TOTAL_BYTES: usize = 256 << 20;

/// Goal: figures of filling by extents and by bytes, with what the arena's next use of the frames costs.
#[test]
#[ignore = "prints, asserts nothing"]
fn measured_fills() {
    for _ in 0..5 {
        for length in [64 << 10, 1 << 20, HUGE_BYTES] {
            let arena = Arena::new(FILL_BYTES + (512 << 10)).unwrap();
            let allocate = || -> Vec<Extents> {
                let extents = (0..FILL_BYTES / length).map(|_| arena.allocate_run(length, Urgency::Demand));
                extents.map(Option::unwrap).collect()
            };
            let Some(memory) = live_memory(FILL_BYTES) else { return };
            let mut extents = allocate();
            extents.iter_mut().flatten().for_each(|extent| extent.fill(1));
            let start = Instant::now();
            for (number, extents) in extents.into_iter().enumerate() {
                memory.fill_moved(number * length, length, extents).unwrap();
            }
            let fill = start.elapsed();
            let mut extents = allocate();
            let start = Instant::now();
            for extent in extents.iter_mut().flatten() {
                (0..length).step_by(PAGE_BYTES).for_each(|at| extent[at] = 1);
            }
            let touch = start.elapsed();
            drop(memory);
            let Some(memory) = live_memory(FILL_BYTES) else { return };
            let start = Instant::now();
            for (number, extents) in extents.iter().enumerate() {
                memory.fill_copied(number * length, &extents[0]).unwrap();
            }
            let copy = start.elapsed();
            let start = Instant::now();
            for (number, extents) in extents.iter().enumerate() {
                memory.write(number * length, &extents[0]).unwrap();
            }
            let write = start.elapsed();
            drop(memory);
            let Some(memory) = live_memory(FILL_BYTES) else { return };
            let start = Instant::now();
            for (number, extents) in extents.iter().enumerate() {
                memory.write(number * length, &extents[0]).unwrap();
            }
            let absent = start.elapsed();
            println!(
                "{:>5} KiB, us a page: fill_moved {:.3} and the frames' next use {:.3}; fill_copied {:.3}; write \
                 over pages {:.3}, where none is {:.3}",
                length >> 10,
                per_page(fill, FILL_BYTES),
                per_page(touch, FILL_BYTES),
                per_page(copy, FILL_BYTES),
                per_page(write, FILL_BYTES),
                per_page(absent, FILL_BYTES)
            );
        }
    }
}

/// Goal: figures of tracking: beginning, taking of nothing, of some and of all, and the fault of a first write.
#[test]
#[ignore = "prints, asserts nothing"]
fn measured_tracking() {
    for huge in [false, true] {
        let Some(memory) = live_memory(TOTAL_BYTES) else { return };
        if huge {
            let arena = Arena::new(TOTAL_BYTES + (512 << 10)).unwrap();
            for at in (0..TOTAL_BYTES).step_by(HUGE_BYTES) {
                let extents = arena.allocate_run(HUGE_BYTES, Urgency::Demand).unwrap();
                memory.fill_moved(at, HUGE_BYTES, extents).unwrap();
            }
        } else {
            memory.zero(0..TOTAL_BYTES).unwrap();
        }
        let mut written = Vec::new();
        let start = Instant::now();
        memory.track().unwrap();
        let track = start.elapsed();
        let mut time = |writes: &dyn Fn()| {
            let start = Instant::now();
            writes();
            let wrote = start.elapsed();
            let start = Instant::now();
            memory.take_written(&mut written).unwrap();
            (wrote, start.elapsed())
        };
        let touch = |page: usize| memory.write(page * PAGE_BYTES, &[1; 8]).unwrap();
        let pages = TOTAL_BYTES / PAGE_BYTES;
        let none = time(&|| ()).1;
        let (hundredth_writes, hundredth) = time(&|| {
            let mut rng = Rng::new(1);
            (0..pages / 100).for_each(|_| touch(rng.below(pages as u64) as usize));
        });
        let (other_writes, other) = time(&|| (0..pages).step_by(2).for_each(touch));
        let (all_writes, all) = time(&|| (0..pages).for_each(touch));
        let (again_writes, again) = time(&|| (0..pages).for_each(touch));
        println!(
            "huge {huge}: ns a page of 256 MiB: track {:.1}; take none {:.1}, one in 100 {:.1}, every other {:.1}, all \
             {:.1}, again {:.1}",
            1000.0 * per_page(track, TOTAL_BYTES),
            1000.0 * per_page(none, TOTAL_BYTES),
            1000.0 * per_page(hundredth, TOTAL_BYTES),
            1000.0 * per_page(other, TOTAL_BYTES),
            1000.0 * per_page(all, TOTAL_BYTES),
            1000.0 * per_page(again, TOTAL_BYTES)
        );
        println!(
            "huge {huge}: us a first write: one in 100 {:.2}, every other {:.2}, all {:.2}, again {:.2}",
            100.0 * per_page(hundredth_writes, TOTAL_BYTES),
            2.0 * per_page(other_writes, TOTAL_BYTES),
            per_page(all_writes, TOTAL_BYTES),
            per_page(again_writes, TOTAL_BYTES)
        );
    }
}

fn per_page(time: Duration, bytes: usize) -> f64 {
    time.as_secs_f64() * 1e6 / (bytes / PAGE_BYTES) as f64
}
