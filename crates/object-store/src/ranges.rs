//! Ranges: many parts of one object, all in flight at once.
//!
//! ```text
//!   ranges ─► checked ─► sorted ─► batches ─┬─ next batch: neighbours merged ─► submitted together, not waited for
//!                                           └─ this batch: each range ─► Bytes
//!
//!   a batch: 32 MiB, or half of the reader's share of the memory where that is less
//! ```
//!
//! Owns: their order, what is read with one request, how much is in flight.
//! Does not own: reading one of them (stream), the share of the memory (ahead).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headwater::ByteRange;

use crate::failure::Failure;
use crate::object::{ADAPTIVE_BYTES_MAX, IN_FLIGHT_BYTES, Object, PIECE_BYTES};

/// The bytes of each range, in the order of the ranges.
pub(crate) async fn read(object: &Arc<Object>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Failure> {
    ranges.iter().try_for_each(|range| object.check(range))?;
    if let [lone] = ranges
        && lone.end - lone.start <= ADAPTIVE_BYTES_MAX
    {
        return Ok(vec![object.bytes(lone.clone(), None).await?]);
    }
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_unstable_by_key(|&index| ranges[index].start);
    let share = needs_share(ranges, &order).then(|| object.share());
    let share_bytes = || share.as_ref().map_or(2 * PIECE_BYTES, |share| share.bytes());
    let bytes_max = || IN_FLIGHT_BYTES.min(share_bytes() / 2);
    let mut read = vec![Bytes::new(); ranges.len()];
    let (mut batch, mut rest) = next(ranges, &order, bytes_max());
    batch.start(object);
    while !batch.order.is_empty() {
        let ahead;
        (ahead, rest) = next(ranges, rest, bytes_max());
        // Beside a range that takes the share for itself, it would be evicted before it is read.
        let is_early = !batch.is_long || batch.bytes.saturating_add(ahead.bytes) <= share_bytes();
        if is_early {
            ahead.start(object);
        }
        for &index in batch.order {
            read[index] = object.bytes(ranges[index].clone(), share.as_ref()).await?;
        }
        if !is_early {
            ahead.start(object);
        }
        batch = ahead;
    }
    Ok(read)
}

/// Whether the ranges are more than one piece.
fn needs_share(ranges: &[Range<u64>], order: &[usize]) -> bool {
    let (first, rest) = next(ranges, order, PIECE_BYTES);
    first.is_long || !rest.is_empty()
}

/// Ranges, in order, that are in flight at once.
#[derive(Default, Debug)]
struct Batch<'o> {
    /// Empty behind the last batch.
    order: &'o [usize],
    /// What to read for them: ranges with a small gap between them are read as one.
    merged: Vec<ByteRange>,
    /// Of all pages that are read.
    bytes: u64,
    /// Whether it is a single range with more bytes than a batch may have.
    is_long: bool,
}

/// The next batch, of up to `bytes_max`, and what is left in order.
fn next<'o>(ranges: &[Range<u64>], order: &'o [usize], bytes_max: u64) -> (Batch<'o>, &'o [usize]) {
    let mut batch = Batch::default();
    let mut count = 0;
    for range in order.iter().map(|&index| &ranges[index]) {
        let more = batch.bytes_for(range);
        if batch.bytes > 0 && more > bytes_max.saturating_sub(batch.bytes) {
            break;
        }
        batch.add(range, more);
        count += 1;
    }
    let (in_batch, rest) = order.split_at(count);
    let is_long = batch.bytes > bytes_max;
    (Batch { order: in_batch, is_long, ..batch }, rest)
}

impl Batch<'_> {
    /// Starts its reads, without waiting. A range that is too long for a batch, and longer than a piece, is started by its own read, piece by
    /// piece.
    fn start(&self, object: &Object) {
        let is_in_pieces = self.is_long && self.merged.iter().any(|range| range.len() > PIECE_BYTES);
        if !is_in_pieces && !self.merged.is_empty() {
            object.read_early(&self.merged);
        }
    }

    /// How many bytes are read for one more range.
    fn bytes_for(&self, range: &Range<u64>) -> u64 {
        // It may begin and end anywhere.
        if range.is_empty() {
            return 0;
        }
        let end = range.end.next_multiple_of(GRAIN_BYTES);
        match self.merged.last() {
            Some(last) if joins(last, range) => end.saturating_sub(last.end.next_multiple_of(GRAIN_BYTES)),
            _ => end - range.start / GRAIN_BYTES * GRAIN_BYTES,
        }
    }

    fn add(&mut self, range: &Range<u64>, bytes: u64) {
        self.bytes += bytes;
        match self.merged.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if joins(last, range) => last.end = last.end.max(range.end),
            _ => self.merged.push(ByteRange::new(range.start, range.end)),
        }
    }
}

/// Whether a range is read together with the one before it.
fn joins(last: &ByteRange, range: &Range<u64>) -> bool {
    range.start <= last.end.saturating_add(GAP_BYTES)
}

/// A device reads as much in the time that one more request costs the processor.
const GAP_BYTES: u64 = 16 << 10;

/// A range reads the pages in which it begins and ends.
const GRAIN_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn batches(ranges: &[Range<u64>], bytes_max: u64) -> Vec<Batch<'static>> {
        let order: Vec<usize> = (0..ranges.len()).collect();
        let (mut batches, mut rest) = (Vec::new(), &*order.leak());
        while !rest.is_empty() {
            let batch;
            (batch, rest) = next(ranges, rest, bytes_max);
            batches.push(batch);
        }
        batches
    }

    fn all(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
        let batches = batches(ranges, u64::MAX);
        assert_eq!(batches.len(), 1);
        batches[0].merged.iter().map(|range| (range.start, range.end)).collect()
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
        let ranges: Vec<Range<u64>> = (0..20)
            .map(|at| at * 5 * MIB..(at * 5 + 4) * MIB)
            .chain(std::iter::once(200 * MIB..300 * MIB))
            .collect();
        let batches = batches(&ranges, IN_FLIGHT_BYTES);
        let order: Vec<usize> = batches.iter().flat_map(|batch| batch.order.iter().copied()).collect();
        assert_eq!(order, (0..ranges.len()).collect::<Vec<_>>());
        assert_eq!(batches.iter().map(|batch| batch.order.len()).collect::<Vec<_>>(), [8, 8, 4, 1]);
        assert_eq!(
            batches.iter().map(|batch| batch.is_long).collect::<Vec<_>>(),
            [false, false, false, true]
        );
    }

    /// Goal: what counts is what is read: gaps and the pages around short ranges too, and pages that several ranges name once.
    #[test]
    fn batches_count_pages() {
        let short: Vec<Range<u64>> = (0..1024).map(|at| at * MIB + 4000..at * MIB + 4100).collect();
        assert!(batches(&short, MIB).iter().all(|batch| batch.order.len() == 128 && batch.bytes == MIB));
        let near: Vec<Range<u64>> = (0..1024).map(|at| at * (16 << 10)..at * (16 << 10) + 100).collect();
        let near = batches(&near, MIB);
        assert!(near.iter().all(|batch| batch.bytes <= MIB && batch.merged.len() == 1), "{near:?}");
        assert_eq!(near.len(), 16);
        assert_eq!(batches(&vec![0..MIB; 100], MIB).len(), 1);
    }
}
