//! Gets: the measured loop, in one thread and in two.
//!
//! Owns: threads, clocks, that every get is a hit.
//! Does not own: caches, keys.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use headwater_measure::affinity::Affinity;
use headwater_measure::{Figures, Meter, crew};

use super::ArmOptions;
use super::keys::{Order, keys};

/// What the gets of each order took.
pub(super) type Gets = Vec<(Order, Figures)>;

pub(super) const ORDERS: [Order; 2] = [Order::Uniform, Order::Zipf];

/// All orders by one thread, and by two that must not be in each other's way. In each thread `prepare` makes what gets a page and says whether it was there.
///
/// # Errors
/// When a get was a miss.
pub(super) fn measure<G: FnMut(u32) -> bool>(
    options: &ArmOptions,
    prepare: impl Fn() -> G + Sync,
) -> io::Result<Gets> {
    let mut get = prepare();
    // All are there, and have been used once.
    let missing = (0..options.pages).filter(|&page| !get(page)).count();
    if missing > 0 {
        return Err(io::Error::other(format!("{missing} of {} pages are not in the cache", options.pages)));
    }
    let mut all = Vec::new();
    for order in ORDERS {
        let keys = keys(order, options.pages);
        // The processor's caches, and its pace, as they are in the middle of such work.
        cell(options.seconds, 1, &keys, &prepare)?;
        let [alone, both] = [1, 2].map(|threads| cell(options.seconds, threads, &keys, &prepare));
        let (alone, both) = (alone?, both?);
        let figures = Figures::from([
            ("cpu_ns_per_get", alone.cpu_ns),
            ("gets_per_cpu_s", 1e9 / alone.cpu_ns),
            ("gets_per_s", alone.gets_per_s),
            ("cpu_ns_per_get_x2", both.cpu_ns),
            ("gets_per_s_x2", both.gets_per_s),
            ("scaling", both.gets_per_s / alone.gets_per_s),
        ]);
        all.push((order, figures));
    }
    Ok(all)
}

struct Cell {
    /// Of all threads together, by the clock on the wall.
    gets_per_s: f64,
    /// A get's, of the process, whatever its library does beside the getting threads.
    cpu_ns: f64,
}

fn cell<G: FnMut(u32) -> bool>(
    seconds: f64,
    threads: u32,
    keys: &[u32],
    prepare: &(impl Fn() -> G + Sync),
) -> io::Result<Cell> {
    let meter = Meter::start();
    let prepared = |thread: u32| {
        let chunks = keys.chunks(GETS_BETWEEN_LOOKS);
        let start = chunks.len() / threads as usize * thread as usize;
        Ok((prepare(), chunks.cycle().skip(start)))
    };
    let work = |(mut get, chunks)| Ok(gets(seconds, chunks, &mut get));
    let results = crew::run(threads, &Affinity::None, prepared, work)?;
    let cpu_s = meter.cpu_seconds();
    let misses: u64 = results.iter().map(|&(_, misses, _)| misses).sum();
    if misses > 0 {
        return Err(io::Error::other(format!("{misses} gets missed although all pages were there")));
    }
    let gets: u64 = results.iter().map(|&(gets, ..)| gets).sum();
    let gets_per_s = results.iter().map(|&(gets, _, elapsed_s)| gets as f64 / elapsed_s).sum();
    Ok(Cell { gets_per_s, cpu_ns: cpu_s * 1e9 / gets as f64 })
}

/// Gets, misses and seconds of one thread.
fn gets<'a>(
    seconds: f64,
    chunks: impl Iterator<Item = &'a [u32]>,
    get: &mut impl FnMut(u32) -> bool,
) -> (u64, u64, f64) {
    let (start, mut count, mut misses, mut elapsed_s) = (Instant::now(), 0, 0, 0.0);
    for chunk in chunks {
        for &key in chunk {
            misses += u64::from(!get(black_box(key)));
        }
        count += chunk.len() as u64;
        elapsed_s = start.elapsed().as_secs_f64();
        if elapsed_s >= seconds {
            break;
        }
    }
    (count, misses, elapsed_s)
}

/// A look at the clock costs as much as a get.
const GETS_BETWEEN_LOOKS: usize = 1024;
