//! Plan against a model that counts bytes.

use headwater_core::{Alignment, ByteRange, Run};
use proptest::prelude::*;

/// A request for the aligned hull of `wanted`.
fn run(wanted: ByteRange, alignment: Alignment) -> Run {
    Run { range: alignment.expand(wanted), wanted }
}

proptest! {
    /// Goal: a read that ends early delivers the wanted bytes it covered. Method: byte by byte.
    #[test]
    fn delivered_equals_the_naive_model(
        wanted in (0..5000u64, 1..5000u64).prop_map(|(start, length)| ByteRange::at(start, length)),
        shift in prop_oneof![Just(0u32), Just(9), Just(12)],
        part in 0.0..=1.0f64,
    ) {
        let run = run(wanted, Alignment::new(1 << shift).unwrap());
        let read_bytes = (run.range.len() as f64 * part) as u64;
        let covered = run.range.start..run.range.start + read_bytes;
        let wanted_bytes = run.wanted.start..run.wanted.end;
        let naive = wanted_bytes.filter(|byte| covered.contains(byte)).count() as u64;
        let delivered = run.delivered(read_bytes);
        prop_assert_eq!(delivered.len(), naive);
        prop_assert_eq!(delivered.start, run.wanted.start);
    }
}

/// Goal: the tail of a file whose length is no multiple of the block. Method: 5000 bytes of 8192 arrive.
#[test]
fn tail_is_delivered_up_to_end_of_file() {
    let run = run(ByteRange::new(100, 8000), Alignment::PAGE);
    assert_eq!(run.range, ByteRange::new(0, 8192));
    assert_eq!(run.delivered(5000), ByteRange::new(100, 5000));
    assert_eq!(run.delivered(50), ByteRange::new(100, 100));
    assert_eq!([run.delivered(8000), run.delivered(8192)], [run.wanted; 2]);
}

/// Goal: a driver that reports more than was asked for is caught. Method: panic.
#[test]
#[should_panic(expected = "more was read")]
fn reading_more_than_asked_for_is_caught() {
    let _ = run(ByteRange::new(0, 10), Alignment::PAGE).delivered(4097);
}
