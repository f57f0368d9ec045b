//! Planned reads: what a policy wants to have read, in the order in which it is to be submitted.
//!
//! ```text
//!   request        ├──────────────┤
//!   at                   ▼ (the first page that is not there)
//!   plan                 ├─ Demand ┤├─ Ahead ──────┤├─ Ahead ──────┤
//!   marks                           ▼               ▼
//! ```
//!
//! Owns: the reusable list, and cutting what is demanded into extents.
//!
//! Does not own: the choice of what to read ahead; skipping what is cached (the executor does).
//!
//! Invariants:
//!
//! - P1 Demanded reads come first, ascending, without gap or overlap.
//! - P2 No read is empty, ends beyond the end of the file, or is longer than the largest extent.
//! - P3 A mark lies within the range of its read.

use smallvec::SmallVec;

use crate::units::{PageCount, PageIndex, PageRange};

/// Number of a planned read; no two of one file are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(u64);

impl ReadId {
    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether a program has announced the pages ([`Readahead::on_will_need`](super::Readahead::on_will_need)). A reader that meets
    /// such pages on their way reads what was announced: that is no sign of a stream, and no policy needs to hear of it.
    pub const fn is_announced(self) -> bool {
        self.0 & Self::ANNOUNCED != 0
    }

    /// Set in the numbers of announced reads.
    pub(super) const ANNOUNCED: u64 = 1 << 63;
}

/// Planned reads that end together: two where a demand was merged with the readahead behind it.
pub type ReadIds = SmallVec<[ReadId; 2]>;

/// Whether a reader waits for a read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// The reader that made the access; every page of the range is part of its request.
    Demand,
    /// No reader waits yet. Without a free frame or slot the read is refused; it does not wait.
    Ahead,
}

/// One read that a policy asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedRead {
    /// Identifies the read in [`Readahead::complete`](super::Readahead::complete).
    pub id: ReadId,
    /// Which pages; some or all may be cached or on their way, and the executor skips those. A read of which
    /// all pages are skipped still sets its mark, and completes as read.
    pub range: PageRange,
    /// The page whose next use is reported as [`Outcome::Hit`](super::Outcome::Hit). The executor sets it
    /// whether the page is read now, is on its way or is cached.
    pub mark: Option<PageIndex>,
    /// Whether a reader waits for it.
    pub purpose: Purpose,
}

/// A reusable list of planned reads: cleared by each access, allocating only for more than two, while it grows.
#[derive(Clone, Default, Debug)]
pub struct Plan {
    reads: SmallVec<[PlannedRead; 2]>,
}

impl Plan {
    /// An empty plan.
    pub const fn new() -> Self {
        Self { reads: SmallVec::new_const() }
    }

    /// The reads, in the order in which to submit them.
    pub fn reads(&self) -> &[PlannedRead] {
        &self.reads
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.reads.clear();
    }

    fn push(&mut self, read: PlannedRead) {
        assert!(!read.range.is_empty(), "an empty read is planned");
        assert!(read.mark.is_none_or(|mark| read.range.start <= mark && mark < read.range.end), "P3");
        self.reads.push(read);
    }
}

/// A plan in the making for one file.
pub(super) struct Planner<'a> {
    pub(super) plan: &'a mut Plan,
    pub(super) next_id: &'a mut u64,
    /// One past the last page of the file.
    pub(super) end: PageIndex,
    pub(super) extent_pages_max: u64,
}

impl Planner<'_> {
    /// Plans all of `range` that lies within the file, cut at multiples of the largest extent.
    pub(super) fn demand(&mut self, range: PageRange, mark: Option<PageIndex>) {
        self.push_cut(range, mark, Purpose::Demand);
    }

    /// Plans all of `range` that lies within the file as reads ahead, cut as [`Planner::demand`] does.
    pub(super) fn ahead_all(&mut self, range: PageRange, mark: Option<PageIndex>) {
        self.push_cut(range, mark, Purpose::Ahead);
    }

    fn push_cut(&mut self, range: PageRange, mark: Option<PageIndex>, purpose: Purpose) {
        let end = range.end.min(self.end);
        let mut start = range.start;
        while start < end {
            let cut = self.boundary_after(start).min(end);
            let own_mark = mark.filter(|mark| start <= *mark && *mark < cut);
            self.push(PageRange::new(start, cut), own_mark, purpose);
            start = cut;
        }
    }

    fn push(&mut self, range: PageRange, mark: Option<PageIndex>, purpose: Purpose) {
        let id = ReadId(*self.next_id);
        *self.next_id += 1;
        self.plan.push(PlannedRead { id, range, mark, purpose });
    }

    fn boundary_after(&self, start: PageIndex) -> PageIndex {
        let size = self.extent_pages_max;
        let boundary = (start.get() & !(size - 1)).saturating_add(size);
        PageIndex::new(boundary.min(PageIndex::MAX.get()))
    }
}

/// This many pages after `page`, or the last there is.
pub(super) fn saturating_add(page: PageIndex, count: u64) -> PageIndex {
    let rest = (PageIndex::MAX - page).get();
    page + PageCount::new(count.min(rest))
}
