//! Units against arithmetic in 128 bits, which cannot overflow here.

use headwater_core::{Alignment, ByteRange, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};
use proptest::prelude::*;

/// Offsets that matter: small, around 4 GiB, around the largest, and any.
pub(crate) fn offset_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..20_000u64,
        (4u64 << 30) - 10_000..(4u64 << 30) + 10_000,
        u64::MAX - 10_000..=u64::MAX,
        any::<u64>()
    ]
}

fn byte_range() -> impl Strategy<Value = ByteRange> {
    prop_oneof![
        (offset_bytes(), offset_bytes()).prop_map(|(a, b)| ByteRange::new(a.min(b), a.max(b))),
        (offset_bytes(), 0..20_000u64).prop_map(|(start, length)| ByteRange::at(start, length)),
    ]
}

fn alignment() -> impl Strategy<Value = Alignment> {
    (0..=21u32).prop_map(|shift| Alignment::new(1 << shift).unwrap())
}

proptest! {
    /// Goal: aligning is exact, and saturates only beyond the last multiple. Method: division in 128 bits.
    #[test]
    fn alignment_rounds_as_division_does(alignment in alignment(), offset in offset_bytes()) {
        let (unit, wide) = (u128::from(alignment.get()), u128::from(offset));
        let last = u128::from(u64::MAX) / unit * unit;
        prop_assert_eq!(u128::from(alignment.down(offset)), wide / unit * unit);
        prop_assert_eq!(u128::from(alignment.up(offset)), (wide.div_ceil(unit) * unit).min(last));
        prop_assert_eq!(alignment.is_aligned(offset), wide % unit == 0);
        prop_assert!(alignment.is_aligned(alignment.up(offset)));
    }

    /// Goal: the hull is aligned, holds the range, and is less than a unit wider at each end. Method:
    /// properties.
    #[test]
    fn expand_is_the_smallest_hull(alignment in alignment(), range in byte_range()) {
        let hull = alignment.expand(range);
        prop_assert!(alignment.is_aligned(hull.start) && alignment.is_aligned(hull.end));
        prop_assert!(hull.start <= range.start && range.start - hull.start < alignment.get());
        let last = alignment.down(u64::MAX);
        prop_assert!(hull.end >= range.end.min(last) && hull.end.saturating_sub(range.end) < alignment.get());
    }

    /// Goal: of two alignments the stricter is taken, and it serves both. Method: properties.
    #[test]
    fn max_serves_both(a in alignment(), b in alignment(), offset in offset_bytes()) {
        let aligned = a.max(b).down(offset);
        prop_assert!(a.is_aligned(aligned) && b.is_aligned(aligned));
        prop_assert_eq!(a.max(b).get(), a.get().max(b.get()));
    }

    /// Goal: an intersection holds exactly the common bytes and stays within the first range. Method:
    /// membership of every interesting offset, as sets define it.
    #[test]
    fn intersect_is_membership_in_both(a in byte_range(), b in byte_range(), offset in offset_bytes()) {
        let common = a.intersect(b);
        prop_assert!(a.start <= common.start && common.start <= common.end && common.end <= a.end);
        let neighbours = |at: u64| [at.saturating_sub(1), at, at.saturating_add(1)];
        for at in [a.start, a.end, b.start, b.end, offset].into_iter().flat_map(neighbours) {
            prop_assert_eq!(common.contains(at), a.contains(at) && b.contains(at), "offset {}", at);
        }
        prop_assert_eq!(common.is_empty(), b.intersect(a).is_empty());
    }

    /// Goal: clipping to a file leaves its bytes only, and an empty range where nothing is left. Method: min.
    #[test]
    fn clip_ends_at_the_length(range in byte_range(), length in offset_bytes()) {
        let clipped = range.clip(length);
        prop_assert_eq!(clipped.start, range.start);
        prop_assert_eq!(clipped.end, range.end.min(length).max(range.start));
    }

    /// Goal: pages cover a byte range exactly. Method: division in 128 bits.
    #[test]
    fn pages_cover_the_bytes(range in byte_range()) {
        let pages = PageRange::covering(range);
        prop_assert_eq!(pages.is_empty(), range.is_empty());
        if !range.is_empty() {
            let page = u128::from(PAGE_SIZE_BYTES);
            prop_assert_eq!(u128::from(pages.start.get()), u128::from(range.start) / page);
            prop_assert_eq!(u128::from(pages.end.get()), u128::from(range.end).div_ceil(page));
            prop_assert_eq!(pages.bytes().intersect(range), range);
        }
        prop_assert_eq!(pages.len(), pages.end - pages.start);
        prop_assert_eq!(pages.start + pages.len(), pages.end);
    }

    /// Goal: a page holds its own bytes and no others; a count covers. Method: both neighbours of an offset.
    #[test]
    fn page_contains_its_offset(offset in offset_bytes()) {
        let page = PageIndex::containing(offset);
        let bytes = PageRange::new(page, page + PageCount::new(1)).bytes();
        prop_assert!(bytes.contains(offset) || offset == u64::MAX);
        let pages = PageCount::covering(offset);
        prop_assert!(pages.bytes() >= offset);
        prop_assert!(pages.get() == 0 || PageCount::new(pages.get() - 1).bytes() < offset);
    }
}

/// Goal: the ends of the number line. Method: the exact values by hand.
#[test]
fn nothing_wraps_at_the_last_offset() {
    let last = PageIndex::containing(u64::MAX);
    assert_eq!(last + PageCount::new(1), PageIndex::MAX);
    assert_eq!(PageIndex::MAX.start_bytes(), u64::MAX);
    assert_eq!(ByteRange::at(u64::MAX - 1, 10), ByteRange::new(u64::MAX - 1, u64::MAX));
    assert_eq!(PageRange::covering(ByteRange::new(0, u64::MAX)).len().bytes(), u64::MAX);
    assert_eq!(Alignment::PAGE.up(u64::MAX), u64::MAX - 4095);
    assert_eq!(Alignment::ONE.up(u64::MAX), u64::MAX);
}

/// Goal: only powers of two up to the largest are alignments. Method: the borders.
#[test]
fn alignment_takes_powers_of_two_only() {
    for bytes in [0, 3, 4095, Alignment::BYTES_MAX * 2, u64::MAX, 1 << 32, 1 << 63] {
        assert_eq!(Alignment::new(bytes), None, "{bytes}");
    }
    assert_eq!(Alignment::new(4096), Some(Alignment::PAGE));
    assert_eq!(Alignment::new(1), Some(Alignment::ONE));
    assert!(Alignment::new(Alignment::BYTES_MAX).is_some());
}

/// Goal: pages are enumerated once each, from both ends. Method: compare with numbers.
#[test]
fn page_range_iterates_both_ways() {
    let range = PageRange::new(PageIndex::new(5), PageIndex::new(8));
    assert_eq!(range.iter().map(PageIndex::get).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(range.iter().rev().map(PageIndex::get).collect::<Vec<_>>(), [7, 6, 5]);
    assert_eq!(PageRange::default().iter().count(), 0);
}

/// Goal: a negative distance is refused, never wrapped: the backward jump taken as a forward one. Method:
/// panic.
#[test]
#[should_panic(expected = "never negative")]
fn page_distance_is_never_negative() {
    let _ = PageIndex::new(1) - PageIndex::new(2);
}

/// Goal: U1 at construction. Method: panic.
#[test]
#[should_panic(expected = "ends before it starts")]
fn byte_range_is_never_reversed() {
    ByteRange::new(2, 1);
}

/// Goal: U2 at construction. Method: panic.
#[test]
#[should_panic(expected = "beyond the last page")]
fn page_index_is_bounded() {
    let _ = PageIndex::MAX + PageCount::new(1);
}
