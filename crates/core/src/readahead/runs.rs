//! Runs: what of a plan has to be read, in as few requests as that takes.
//!
//! ```text
//!   plan      ├─ Demand ─┤├─ Ahead ──────────┤          ├─ Ahead ─┤
//!   missing       ├──────────────┤     ├─────┤          ├─────────┤
//!   runs          ├──────────────┤     ├─────┤          ├─────────┤
//!                     ▲ ahead_from
//! ```
//!
//! Owns: which missing pages are read together, and which planned reads that completes.
//! Does not own: what is missing, memory, the I/O.

use smallvec::{SmallVec, smallvec};

use super::{PlannedRead, Purpose, ReadId, ReadIds};
use crate::units::{PageCount, PageIndex, PageRange};

/// Adjacent pages that are missing, to be read at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingRun {
    /// Which.
    pub pages: PageRange,
    /// The first page that no reader waits for.
    pub ahead_from: PageIndex,
    /// The planned reads that are done when this is.
    pub ids: ReadIds,
}

/// The runs of a plan: one for a miss without a pattern.
pub type MissingRuns = SmallVec<[MissingRun; 1]>;

/// Ranges of pages that are missing, ascending.
pub type MissingPages = SmallVec<[PageRange; 1]>;

/// What is to be read for a plan, in its order. Neighbours are read together, be they demanded or not, up to `pages_max`:
/// one request costs the device less than two. `missing` adds the runs of a range that are not there, ascending; `there`
/// hears of reads of which nothing is missing.
///
/// ```
/// # use core::time::Duration;
/// # use headwater_core::{units::*, readahead::*};
/// # struct Empty;
/// # impl Lookup for Empty {
/// #     fn is_cached(&self, _page: PageIndex) -> Presence {
/// #         Presence::Absent
/// #     }
/// # }
/// # let mut readahead = Readahead::new(ReadaheadPolicy::Adaptive, ReadaheadLimits::default())?;
/// # let (first, bytes) = (PageIndex::new(0), ByteRange::new(0, 4096));
/// # let pages = PageRange::covering(bytes);
/// # let miss = Access { pages, at: first, outcome: Outcome::Miss, bytes, handle: 0 };
/// # let mut plan = Plan::new();
/// // The first read of a file: its page is demanded, three more are read ahead, and nothing is there.
/// readahead.on_read(miss, PageIndex::new(1000), Duration::ZERO, &Empty, &mut plan);
/// assert_eq!(plan.reads().len(), 2);
/// let runs = missing_runs(plan.reads(), 256, |pages, missing| missing.push(pages), |_there| ());
/// assert_eq!(runs.len(), 1);
/// assert_eq!((runs[0].pages.len().get(), runs[0].ahead_from), (4, PageIndex::new(1)));
/// assert_eq!(runs[0].ids.len(), 2);
/// # Ok::<(), LimitsError>(())
/// ```
pub fn missing_runs(
    plan: &[PlannedRead],
    pages_max: u64,
    mut missing: impl FnMut(PageRange, &mut MissingPages),
    mut there: impl FnMut(ReadId),
) -> MissingRuns {
    let (mut runs, mut found) = (MissingRuns::new(), MissingPages::new());
    for read in plan {
        found.clear();
        missing(read.range, &mut found);
        if found.is_empty() {
            there(read.id);
        }
        for (place, pages) in found.iter().enumerate() {
            let is_last = place + 1 == found.len();
            let ids = if is_last { smallvec![read.id] } else { ReadIds::new() };
            let ahead_from = match read.purpose {
                Purpose::Demand => pages.end,
                Purpose::Ahead => pages.start,
            };
            let run = MissingRun { pages: *pages, ahead_from, ids };
            match runs.last_mut() {
                Some(last) if last.takes(&run, pages_max) => last.append(run),
                _ => runs.push(run),
            }
        }
    }
    runs
}

impl MissingRun {
    /// Whether anybody waits for a page of it.
    pub fn purpose(&self) -> Purpose {
        if self.ahead_from > self.pages.start { Purpose::Demand } else { Purpose::Ahead }
    }

    /// What to try when there is no memory for all: the demanded part, then half of that.
    pub fn smaller(&self) -> Option<Self> {
        let demanded = self.ahead_from.clamp(self.pages.start, self.pages.end) - self.pages.start;
        let pages = if demanded < self.pages.len() { demanded.get() } else { demanded.get() / 2 };
        let end = self.pages.start + PageCount::new(pages);
        let part = PageRange::new(self.pages.start, end);
        (pages > 0).then_some(Self { pages: part, ahead_from: end, ids: ReadIds::new() })
    }

    /// Whether `next` can be read together with this: it follows, and demanded pages stay in front.
    fn takes(&self, next: &Self, pages_max: u64) -> bool {
        let pages = self.pages.len().get() + next.pages.len().get();
        let in_order = self.ahead_from == self.pages.end || next.purpose() == Purpose::Ahead;
        self.pages.end == next.pages.start && pages <= pages_max && in_order
    }

    fn append(&mut self, next: Self) {
        if self.ahead_from == self.pages.end {
            self.ahead_from = next.ahead_from;
        }
        self.pages.end = next.pages.end;
        self.ids.extend(next.ids);
    }
}
