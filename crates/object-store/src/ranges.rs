//! Ranges: many parts of one object, all in flight at once.
//!
//! ```text
//!   ranges ─► checked ─► sorted ─► batches of 32 MiB ─┬─ next batch: neighbours merged ─► submitted together, not waited for
//!                                                     └─ this batch: each range ─► Bytes
//! ```
//!
//! Owns: their order, what is read with one request, how much is in flight.
//! Does not own: reading one of them (object).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headwater::ByteRange;

use crate::failure::Failure;
use crate::object::{ADAPTIVE_BYTES_MAX, IN_FLIGHT_BYTES, Object};

/// The bytes of each range, in the order of the ranges.
pub(crate) async fn read(object: &Arc<Object>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Failure> {
    ranges.iter().try_for_each(|range| object.check(range))?;
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_unstable_by_key(|&index| ranges[index].start);
    let batches = batches(ranges, &order);
    let start = |batch: Option<&&[usize]>| {
        let batch = batch.copied().unwrap_or_default();
        // A range that is a batch of its own is started by its read.
        match merged(ranges, batch)[..] {
            [] => {}
            [lone] if ranges.len() == 1 && lone.len() <= ADAPTIVE_BYTES_MAX => {}
            [lone] if lone.len() > IN_FLIGHT_BYTES => {}
            ref merged => object.read_early(merged),
        }
    };
    start(batches.first());
    let mut read = vec![Bytes::new(); ranges.len()];
    for (number, batch) in batches.iter().enumerate() {
        start(batches.get(number + 1));
        for &index in *batch {
            read[index] = object.bytes(ranges[index].clone()).await?;
        }
    }
    Ok(read)
}

/// The ranges, in order, in groups of which each is in flight at once.
fn batches<'o>(ranges: &[Range<u64>], mut order: &'o [usize]) -> Vec<&'o [usize]> {
    let mut batches = Vec::new();
    while !order.is_empty() {
        let mut bytes = 0;
        let fits = |index: &&usize| {
            bytes += ranges[**index].end - ranges[**index].start;
            bytes <= IN_FLIGHT_BYTES
        };
        let count = order.iter().take_while(fits).count().max(1);
        let (batch, rest) = order.split_at(count);
        batches.push(batch);
        order = rest;
    }
    batches
}

/// What to read for a batch in order: ranges with a small gap between them are read as one.
fn merged(ranges: &[Range<u64>], batch: &[usize]) -> Vec<ByteRange> {
    let mut merged: Vec<ByteRange> = Vec::with_capacity(batch.len());
    for range in batch.iter().map(|&index| &ranges[index]).filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(ByteRange::new(range.start, range.end)),
        }
    }
    merged
}

/// A device reads as much in the time that one more request costs the processor.
const GAP_BYTES: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
        let order: Vec<usize> = (0..ranges.len()).collect();
        merged(ranges, &order).iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn neighbours_are_read_as_one() {
        let gap = GAP_BYTES;
        assert_eq!(all(&[0..10, 5..7, 10..20]), [(0, 20)]);
        assert_eq!(all(&[0..10, 10 + gap..30 + gap]), [(0, 30 + gap)]);
        assert_eq!(all(&[0..10, 11 + gap..30 + gap]), [(0, 10), (11 + gap, 30 + gap)]);
        assert_eq!(all(&[3..3, 5..9]), [(5, 9)]);
    }

    #[test]
    fn batches_hold_all_and_are_bounded() {
        let mib = 1 << 20;
        let ranges: Vec<Range<u64>> =
            (0..20).map(|at| at * 5 * mib..(at * 5 + 4) * mib).chain(std::iter::once(0..100 * mib)).collect();
        let order: Vec<usize> = (0..ranges.len()).collect();
        let batches = batches(&ranges, &order);
        assert_eq!(batches.concat(), order);
        assert_eq!(batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [8, 8, 4, 1]);
    }
}
