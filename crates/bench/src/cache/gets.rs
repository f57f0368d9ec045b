//! Gets: the measured loop, in one thread and in two.
//!
//! Owns: threads, clocks, that every get is a hit.
//! Does not own: caches, keys.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use headwater_measure::affinity::Affinity;
use headwater_measure::crew;
use headwater_measure::process::cpu_seconds;
use serde::{Deserialize, Serialize};

use super::ArmOptions;
use super::keys::{Order, keys};

/// What gets of one kind took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) order: Order,
    pub(super) threads: u32,
    pub(super) gets: u64,
    /// Of all threads together, by the clock on the wall.
    pub(super) gets_per_s: f64,
    /// Of the process, whatever its library does beside the getting threads.
    pub(super) cpu_s: f64,
}

/// One thread, and two that must not be in each other's way.
pub(super) const THREADS: [u32; 2] = [1, 2];

pub(super) const ORDERS: [Order; 2] = [Order::Uniform, Order::Zipf];

/// All cells of an arm. In each thread `prepare` makes what gets a page and says whether it was there.
///
/// # Errors
/// When a get was a miss.
pub(super) fn measure<G: FnMut(u32) -> bool>(
    options: &ArmOptions,
    prepare: impl Fn() -> G + Sync,
) -> io::Result<Vec<Cell>> {
    let mut get = prepare();
    // All are there, and have been used once.
    let missing = (0..options.pages).filter(|&page| !get(page)).count();
    if missing > 0 {
        return Err(io::Error::other(format!("{missing} of {} pages are not in the cache", options.pages)));
    }
    let mut cells = Vec::new();
    for order in ORDERS {
        let keys = keys(order, options.pages);
        for threads in THREADS {
            cells.push(cell(options.seconds, order, threads, &keys, &prepare)?);
        }
    }
    Ok(cells)
}

fn cell<G: FnMut(u32) -> bool>(
    seconds: f64,
    order: Order,
    threads: u32,
    keys: &[u32],
    prepare: &(impl Fn() -> G + Sync),
) -> io::Result<Cell> {
    let cpu_before = cpu_seconds();
    let prepared = |thread: u32| {
        let chunks = keys.chunks(GETS_BETWEEN_LOOKS);
        let start = chunks.len() / threads as usize * thread as usize;
        Ok((prepare(), chunks.cycle().skip(start)))
    };
    let work = |(mut get, chunks)| Ok(gets(seconds, chunks, &mut get));
    let results = crew::run(threads, &Affinity::None, prepared, work)?;
    let misses: u64 = results.iter().map(|&(_, misses, _)| misses).sum();
    if misses > 0 {
        return Err(io::Error::other(format!("{misses} gets missed although all pages were there")));
    }
    Ok(Cell {
        order,
        threads,
        gets: results.iter().map(|&(gets, ..)| gets).sum(),
        gets_per_s: results.iter().map(|&(gets, _, elapsed_s)| gets as f64 / elapsed_s).sum(),
        cpu_s: cpu_seconds() - cpu_before,
    })
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
