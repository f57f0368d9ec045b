//! Direction: a stream that goes down is one that goes up, seen in a mirror.
//!
//! ```text
//!   pages       0   1   2  …  MAX-2  MAX-1
//!   Up          0   1   2  …                       at = page
//!   Down                …  2      1      0         at = MAX-1 - page
//! ```
//!
//! The patterns are written once, in places that grow the way the stream goes. The mirror is its own inverse,
//! so nothing is ever subtracted that could get negative. MAX is a multiple of every extent, so what is aligned
//! stays so.

use crate::units::{PageIndex, PageRange};

/// Which way a stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Up,
    Down,
}

/// Adjacent places of a stream, half open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }
}

impl Direction {
    /// Where a page is on the way.
    pub(super) fn place(self, page: PageIndex) -> u64 {
        match self {
            Self::Up => page.get(),
            Self::Down => PAGES - 1 - page.get().min(PAGES - 1),
        }
    }

    /// The page at a place.
    pub(super) fn page(self, place: u64) -> PageIndex {
        match self {
            Self::Up => PageIndex::new(place),
            Self::Down => PageIndex::new(PAGES - 1 - place),
        }
    }

    pub(super) fn span(self, range: PageRange) -> Span {
        match self {
            Self::Up => Span { start: range.start.get(), end: range.end.get() },
            Self::Down => Span { start: PAGES - range.end.get(), end: PAGES - range.start.get() },
        }
    }

    pub(super) fn range(self, span: Span) -> PageRange {
        match self {
            Self::Up => PageRange::new(PageIndex::new(span.start), PageIndex::new(span.end)),
            Self::Down => {
                PageRange::new(PageIndex::new(PAGES - span.end), PageIndex::new(PAGES - span.start))
            }
        }
    }

    /// One past the last place: the end of the file, or its first page for a stream that goes down.
    pub(super) fn limit(self, end: PageIndex) -> u64 {
        match self {
            Self::Up => end.get(),
            Self::Down => PAGES,
        }
    }
}

/// How many places there are.
pub(super) const PAGES: u64 = PageIndex::MAX.get();
