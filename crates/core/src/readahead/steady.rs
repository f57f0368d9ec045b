//! Steady readahead: a fixed number of pages beyond what is demanded.
//!
//! ```text
//!   demanded    ahead: n pages        next half, once the mark is used
//!   ├──────┤├──────────▼──────────┤▼ ─ ─ ─ ─ ─┤
//!                     mark        mark of the next
//! ```
//!
//! The half is so that it comes in requests of half the distance, not of a page.

use super::limits::{LimitsError, ReadaheadLimits};
use super::reads::{Planner, saturating_add};
use super::{Access, Lookup, Outcome, demand_missing, first_absent};
use crate::units::{PageIndex, PageRange};

/// The policy; it has no state but its setting.
#[derive(Clone, Debug)]
pub(super) struct Steady {
    pages: u64,
}

impl Steady {
    pub(super) fn new(pages: u32, limits: ReadaheadLimits) -> Result<Self, LimitsError> {
        let pages = u64::from(pages);
        if pages == 0 || pages > limits.distance_pages_max() {
            return Err(LimitsError::FixedBeyondDistance);
        }
        Ok(Self { pages })
    }

    pub(super) fn on_read(&mut self, access: Access, cache: &impl Lookup, planner: &mut Planner<'_>) {
        demand_missing(access, planner);
        let half = (self.pages / 2).max(1);
        let request_end = access.pages.end.min(planner.end);
        match access.outcome {
            Outcome::Miss => {
                let end = saturating_add(request_end, self.pages);
                let mark = saturating_add(request_end, half - 1).min(last_page(planner.end));
                planner.ahead_all(PageRange::new(request_end, end), Some(mark));
            }
            Outcome::Hit | Outcome::PendingMarked => {
                let reach = PageRange::new(access.at, saturating_add(access.at, self.pages).min(planner.end));
                let Some(start) = first_absent(reach, cache).or(Some(reach.end)) else { return };
                planner.ahead_all(PageRange::new(start, saturating_add(start, half)), Some(start));
            }
            Outcome::Pending => {}
        }
    }
}

fn last_page(end: PageIndex) -> PageIndex {
    PageIndex::new(end.get().saturating_sub(1))
}
