//! Plan against a model that decides for each aligned unit, or each page, which run it belongs to.

use headwater_core::{
    Alignment, ByteRange, Geometry, PageCount, PageIndex, PageRange, Run, merge_pages, runs,
};
use proptest::prelude::*;

/// Small units, and longest runs that are no power of two as well.
fn geometry() -> impl Strategy<Value = Geometry> {
    (prop_oneof![Just(0u32), Just(9), Just(12)], 1..20u64).prop_map(|(shift, units)| {
        let alignment = Alignment::new(1 << shift).unwrap();
        Geometry::new(alignment, units << shift)
    })
}

/// Short ranges at the start, across 4 GiB, and at the end of the number line.
fn wanted() -> impl Strategy<Value = ByteRange> {
    let start = prop_oneof![0..70_000u64, (4u64 << 30) - 70_000..4u64 << 30, u64::MAX - 70_000..u64::MAX];
    (start, 0..70_000u64, 0..200u64, any::<bool>())
        .prop_map(|(start, long, short, is_long)| ByteRange::at(start, if is_long { long } else { short }))
}

/// Unit by unit: a unit belongs to the run of its neighbour unless a multiple of the longest run lies
/// between.
fn naive_runs(wanted: ByteRange, geometry: Geometry) -> Vec<ByteRange> {
    let unit_bytes = u128::from(geometry.alignment.get());
    let units = u128::from(wanted.start) / unit_bytes..u128::from(wanted.end).div_ceil(unit_bytes);
    let mut found: Vec<ByteRange> = Vec::new();
    for unit in units.filter(|_| !wanted.is_empty()) {
        let Ok(end) = u64::try_from((unit + 1) * unit_bytes) else { break };
        let start = end - geometry.alignment.get();
        match found.last_mut() {
            Some(run) if !start.is_multiple_of(geometry.run_bytes_max) => run.end = end,
            _ => found.push(ByteRange::new(start, end)),
        }
    }
    found
}

/// Page by page: a page joins the last run if it follows it and the run is not full.
fn naive_merge(pages: &[u64], run_pages_max: u64) -> Vec<PageRange> {
    let mut found: Vec<Vec<u64>> = Vec::new();
    for page in pages {
        match found.last_mut() {
            Some(run) if run.last() == Some(&(page - 1)) && (run.len() as u64) < run_pages_max => {
                run.push(*page)
            }
            _ => found.push(vec![*page]),
        }
    }
    found
        .iter()
        .map(|run| PageRange::new(PageIndex::new(run[0]), PageIndex::new(run[run.len() - 1] + 1)))
        .collect()
}

proptest! {
    /// Goal: P1 to P3. Method: the naive model, unit by unit.
    #[test]
    fn runs_equal_the_naive_model(wanted in wanted(), geometry in geometry()) {
        let planned: Vec<Run> = runs(wanted, geometry).collect();
        let ranges: Vec<ByteRange> = planned.iter().map(|run| run.range).collect();
        prop_assert_eq!(ranges, naive_runs(wanted, geometry));
        prop_assert!(planned.iter().all(|run| run.range.len() <= geometry.run_bytes_max));
    }

    /// Goal: P4, and that the iterator knows its length throughout. Method: glue the wanted parts together.
    #[test]
    fn wanted_parts_add_up(wanted in wanted(), geometry in geometry()) {
        let mut iterator = runs(wanted, geometry);
        let mut at_bytes = wanted.start;
        loop {
            let announced = iterator.len();
            let Some(run) = iterator.next() else {
                prop_assert_eq!(announced, 0);
                break;
            };
            prop_assert_eq!(iterator.len() + 1, announced);
            prop_assert!(!run.wanted.is_empty());
            prop_assert_eq!(run.wanted.start, at_bytes);
            prop_assert_eq!(run.wanted.intersect(run.range), run.wanted);
            at_bytes = run.wanted.end;
        }
        let reachable = if wanted.is_empty() { wanted.start } else { geometry.alignment.down(u64::MAX) };
        prop_assert_eq!(at_bytes, wanted.end.min(reachable).max(wanted.start));
    }

    /// Goal: a read that ends early delivers the wanted bytes it covered, and is complete only if those are
    /// all. Method: byte by byte.
    #[test]
    fn delivered_equals_the_naive_model(
        wanted in (0..5000u64, 1..5000u64).prop_map(|(start, length)| ByteRange::at(start, length)),
        geometry in geometry(),
        part in 0.0..=1.0f64,
    ) {
        for run in runs(wanted, geometry).take(3) {
            let read_bytes = (run.range.len() as f64 * part) as u64;
            let covered = run.range.start..run.range.start + read_bytes;
            let wanted_bytes = run.wanted.start..run.wanted.end;
            let naive = wanted_bytes.filter(|byte| covered.contains(byte)).count() as u64;
            let delivered = run.delivered(read_bytes);
            prop_assert_eq!(delivered.len(), naive);
            prop_assert_eq!(delivered.start, run.wanted.start);
            prop_assert_eq!(run.is_complete(read_bytes), naive == run.wanted.len());
        }
    }

    /// Goal: P5. Method: the naive model, page by page; the iterator stays at its end.
    #[test]
    fn merged_pages_equal_the_naive_model(
        pages in prop::collection::btree_set(1..80u64, 0..60),
        high in prop_oneof![Just(0u64), Just(1 << 20), Just(PageIndex::MAX.get() - 80)],
        run_pages_max in 1..12u64,
    ) {
        let pages: Vec<u64> = pages.into_iter().map(|page| page + high).collect();
        let indexes = pages.iter().copied().map(PageIndex::new);
        let mut merged = merge_pages(indexes, PageCount::new(run_pages_max));
        let found: Vec<PageRange> = merged.by_ref().collect();
        prop_assert_eq!(&found, &naive_merge(&pages, run_pages_max));
        prop_assert_eq!(merged.next(), None);
        let back: Vec<u64> = found.iter().flat_map(|run| run.iter().map(PageIndex::get)).collect();
        prop_assert_eq!(back, pages);
    }
}

/// Goal: nothing is asked of the device for nothing. Method: empty ranges, unaligned ones too.
#[test]
fn empty_range_has_no_runs() {
    let geometry = Geometry::new(Alignment::PAGE, 1 << 20);
    for start in [0, 1, 4096, 5000, u64::MAX] {
        assert_eq!(runs(ByteRange::new(start, start), geometry).len(), 0);
        assert_eq!(runs(ByteRange::new(start, start), geometry).next(), None);
    }
}

/// Goal: counting does not overflow for the whole number line. Method: the exact count, and the first run.
#[test]
fn whole_number_line_is_counted() {
    let mut all = runs(ByteRange::new(0, u64::MAX), Geometry::new(Alignment::PAGE, 2 << 20));
    assert_eq!(all.len(), 1 << 43);
    assert_eq!(all.next().unwrap().range, ByteRange::new(0, 2 << 20));
    assert_eq!(all.len(), (1 << 43) - 1);
    assert_eq!(runs(ByteRange::new(0, u64::MAX), Geometry::new(Alignment::ONE, 1)).len(), usize::MAX);
}

/// Goal: the tail of a file whose length is no multiple of the block. Method: 5000 bytes of 8192 arrive.
#[test]
fn tail_is_delivered_up_to_end_of_file() {
    let mut planned = runs(ByteRange::new(100, 8000), Geometry::new(Alignment::PAGE, 1 << 20));
    let run = planned.next().unwrap();
    assert_eq!(run.range, ByteRange::new(0, 8192));
    assert_eq!(run.delivered(5000), ByteRange::new(100, 5000));
    assert_eq!(run.delivered(50), ByteRange::new(100, 100));
    assert!(!run.is_complete(5000) && run.is_complete(8000) && run.is_complete(8192));
}

/// Goal: a driver that reports more than was asked for is caught. Method: panic.
#[test]
#[should_panic(expected = "more was read")]
fn reading_more_than_asked_for_is_caught() {
    let run = runs(ByteRange::new(0, 10), Geometry::new(Alignment::PAGE, 4096)).next().unwrap();
    let _ = run.delivered(4097);
}

/// Goal: a run longer than the device takes cannot be configured. Method: panic.
#[test]
#[should_panic(expected = "not aligned")]
fn unaligned_longest_run_is_refused() {
    Geometry::new(Alignment::PAGE, 5000);
}

/// Goal: pages twice or out of order are caught, also across the border of two runs. Method: panic.
#[test]
#[should_panic(expected = "strictly ascending")]
fn repeated_page_is_caught() {
    merge_pages([1, 2, 2].map(PageIndex::new), PageCount::new(2)).for_each(drop);
}

/// As above, for a page that goes back.
#[test]
#[should_panic(expected = "strictly ascending")]
fn descending_page_is_caught() {
    merge_pages([5, 9, 8].map(PageIndex::new), PageCount::new(2)).for_each(drop);
}
