//! Parts: which bytes of a page have changed.
//!
//! Owns: ranges within one page, in order, none of which touches another.
//! Does not own: which page.

use alloc::vec::Vec;
use core::ops::Range;

use super::PAGE_END;

/// Bytes of one page, as ranges in ascending order with gaps between them.
///
/// ```
/// # use headwater_core::dirty::Parts;
/// let mut parts = Parts::default();
/// parts.add(10..20);
/// parts.add(30..40);
/// parts.add(15..30);
/// assert_eq!(parts.iter().collect::<Vec<_>>(), [10..40]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// The first in place: a page mostly has one, which then takes no allocation. Empty if there is none.
    first: Range<u32>,
    rest: Vec<Range<u32>>,
}

impl Parts {
    /// All bytes of a page.
    pub fn whole() -> Parts {
        Parts { first: 0..PAGE_END, rest: Vec::new() }
    }

    /// Adds bytes.
    ///
    /// # Panics
    /// If the range is empty, or not within a page.
    pub fn add(&mut self, bytes: Range<u32>) {
        assert!(bytes.start < bytes.end && bytes.end <= PAGE_END, "the bytes are of a page");
        if self.rest.is_empty() && (self.first.is_empty() || touch(&self.first, &bytes)) {
            self.first = if self.first.is_empty() { bytes } else { join(&self.first, &bytes) };
            return;
        }
        let mut added = bytes;
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for range in self.iter() {
            if touch(&range, &added) { added = join(&range, &added) } else { ranges.push(range) }
        }
        let place = ranges.partition_point(|range| range.start < added.start);
        ranges.insert(place, added);
        self.first = ranges.remove(0);
        self.rest = ranges;
    }

    /// Takes out all bytes from `end` on.
    pub fn cut(&mut self, end: u32) {
        for range in [&mut self.first].into_iter().chain(&mut self.rest) {
            *range = range.start.min(end)..range.end.min(end);
        }
        self.rest.retain(|range| !range.is_empty());
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> {
        [&self.first].into_iter().chain(&self.rest).filter(|range| !range.is_empty()).cloned()
    }

    /// Whether these are no bytes.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Whether these are all bytes of the page.
    pub fn is_whole(&self) -> bool {
        self.first == (0..PAGE_END)
    }

    /// Where the last range ends.
    pub fn end(&self) -> u32 {
        self.rest.last().unwrap_or(&self.first).end
    }

    /// Asserts order and gaps.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        let ranges: Vec<Range<u32>> = self.iter().collect();
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "there are gaps");
        assert!(self.rest.is_empty() || !self.first.is_empty(), "the first comes first");
    }
}

fn touch(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start <= b.end && b.start <= a.end
}

fn join(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    a.start.min(b.start)..a.end.max(b.end)
}
