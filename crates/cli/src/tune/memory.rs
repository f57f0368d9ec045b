//! Memory: how fast bytes go from `/dev/zero` to `/dev/null`, by the size of the block.
//!
//! The upper bound of a copy through a buffer on this machine: small blocks cost system calls, large ones exceed the processor's
//! cache.
//!
//! Owns: the block sizes, the rounds.
//! Does not own: the text.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::shared::units::MIB;
use headwater_measure::median;
use headwater_measure::rounds::order;

#[derive(Serialize, Clone, Debug)]
pub(crate) struct Sweep {
    /// Bytes copied in each measurement.
    pub(crate) total_bytes: u64,
    pub(crate) blocks: Vec<Block>,
    /// The fastest block size.
    pub(crate) best_bytes: u64,
}

#[derive(Serialize, Clone, Debug)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    pub(crate) mib_per_s: f64,
    pub(crate) mib_per_s_min: f64,
    pub(crate) mib_per_s_max: f64,
}

/// Measures all block sizes, in about `budget`.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn sweep(budget: Duration) -> Result<Sweep, String> {
    let failed = |error: std::io::Error| format!("failed to measure memory: {error}");
    let mut zero = File::open("/dev/zero").map_err(failed)?;
    let mut null = OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
    let mut buffer = vec![0; BLOCKS[BLOCKS.len() - 1] as usize];
    let mut moved = |block: u64, total: u64| -> Result<f64, String> {
        let (start, part) = (Instant::now(), &mut buffer[..block as usize]);
        for _ in 0..total / block {
            zero.read_exact(part).and_then(|()| null.write_all(part)).map_err(failed)?;
        }
        Ok((total / block * block) as f64 / start.elapsed().as_secs_f64())
    };
    // The first touch of the buffer is not measured.
    moved(BLOCKS[BLOCKS.len() - 1], TOTAL_BYTES_MIN)?;
    let speed = moved(BLOCKS[0], TOTAL_BYTES_MIN)?;
    let share = budget.as_secs_f64() / (BLOCKS.len() * ROUNDS) as f64;
    let total_bytes =
        ((speed * share) as u64).clamp(TOTAL_BYTES_MIN, TOTAL_BYTES_MAX) / TOTAL_BYTES_MIN * TOTAL_BYTES_MIN;
    let mut rates = vec![Vec::new(); BLOCKS.len()];
    for round in 0..ROUNDS {
        for index in order(BLOCKS.len(), round as u32) {
            rates[index].push(moved(BLOCKS[index], total_bytes)? / MIB);
        }
    }
    let blocks: Vec<Block> = BLOCKS.iter().zip(&rates).map(|(&bytes, rates)| block(bytes, rates)).collect();
    let best = blocks.iter().max_by(|left, right| left.mib_per_s.total_cmp(&right.mib_per_s));
    let best_bytes = best.expect("there are blocks").bytes;
    Ok(Sweep { total_bytes, blocks, best_bytes })
}

fn block(bytes: u64, rates: &[f64]) -> Block {
    Block {
        bytes,
        mib_per_s: median(rates.iter().copied()),
        mib_per_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        mib_per_s_max: rates.iter().copied().fold(0.0, f64::max),
    }
}

/// Block sizes, from 4 KiB to 8 MiB.
const BLOCKS: [u64; 12] = {
    let mut blocks = [0; 12];
    let mut index = 0;
    while index < blocks.len() {
        blocks[index] = 4096 << index;
        index += 1;
    }
    blocks
};

const ROUNDS: usize = 3;

/// Two of the largest blocks.
const TOTAL_BYTES_MIN: u64 = 16 << 20;

const TOTAL_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every block is measured, each with a rate within its spread, and one of them is the best.
    #[test]
    fn every_block_is_measured() {
        let sweep = sweep(Duration::from_millis(1)).unwrap();
        assert_eq!(sweep.blocks.len(), BLOCKS.len());
        assert_eq!(sweep.blocks.last().unwrap().bytes, 8 << 20);
        for block in &sweep.blocks {
            assert!(block.mib_per_s_min > 0.0 && block.mib_per_s_min <= block.mib_per_s, "{block:?}");
            assert!(block.mib_per_s <= block.mib_per_s_max, "{block:?}");
        }
        assert!(sweep.blocks.iter().any(|block| block.bytes == sweep.best_bytes));
    }
}
