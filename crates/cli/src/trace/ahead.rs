//! Ahead: the readahead of a simulated cache.
//!
//! Every read completes at once: no page is ever pending, and no reader waits, so a policy that extends its distance while readers
//! wait stays at its shortest distance. A trace does not say where files end, so files have no end here.
//!
//! Owns: what a policy sees of a request.
//! Does not own: the cache (`replay`), the policy.

use std::collections::HashMap;
use std::time::Duration;

use headwater_core::readahead::{
    Access, Lookup, Outcome, Plan, PlannedRead, Presence, ReadResult, Readahead, ReadaheadLimits,
    ReadaheadPolicy,
};
use headwater_core::units::{ByteRange, FrameId, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};

use super::request::{Kind, Request};
use crate::shared::units::ByteSize;

pub(super) struct Ahead {
    policy: Readahead,
    plan: Plan,
    accesses: u64,
}

impl Ahead {
    /// Readahead by `policy` for a cache of this size; `None` for [`ReadaheadPolicy::Off`].
    pub(super) fn new(policy: ReadaheadPolicy, cache: ByteSize) -> Option<Ahead> {
        let defaults = ReadaheadLimits::default();
        let share_bytes_max = defaults.share_bytes_max.min(cache.0 / SHARE_DIVISOR);
        let limits = ReadaheadLimits { share_bytes_max, ..defaults };
        let policy = match policy {
            ReadaheadPolicy::Off => return None,
            _ => Readahead::new(policy, limits).expect("arguments allow what the limits do"),
        };
        Some(Ahead { policy, plan: Plan::new(), accesses: 0 })
    }

    /// Plans the reads that follow when a request meets `outcome` at a page. A policy does not see writes.
    pub(super) fn plan(
        &mut self,
        request: &Request,
        page: u64,
        outcome: Outcome,
        resident: &HashMap<u64, FrameId>,
    ) -> Vec<PlannedRead> {
        let end = request.first_page.saturating_add(request.pages);
        // Numbers of objects may be larger than any page's.
        if request.kind != Kind::Read || end > PageIndex::MAX.get() - FARTHEST_PAGES {
            return Vec::new();
        }
        let pages = PageRange::new(PageIndex::new(request.first_page), PageIndex::new(end));
        let bytes = ByteRange::new(request.first_page * PAGE_SIZE_BYTES, end * PAGE_SIZE_BYTES);
        let access = Access { pages, at: PageIndex::new(page), outcome, bytes, handle: 0 };
        self.accesses += 1;
        let now = Duration::from_micros(self.accesses);
        self.policy.on_read(access, PageIndex::MAX, now, &Resident(resident), &mut self.plan);
        let reads = self.plan.reads().to_vec();
        reads.iter().for_each(|read| self.policy.complete(read.id, ReadResult::Read, now));
        reads
    }

    /// Tells the policy that a page which it read ahead was evicted unused.
    pub(super) fn on_unused(&mut self, page: u64) {
        let start = PageIndex::new(page);
        self.policy.on_unused(PageRange::new(start, start + PageCount::new(1)));
    }
}

struct Resident<'a>(&'a HashMap<u64, FrameId>);

impl Lookup for Resident<'_> {
    fn is_cached(&self, page: PageIndex) -> Presence {
        if self.0.contains_key(&page.get()) { Presence::Cached } else { Presence::Absent }
    }
}

/// The share of the memory that an engine lets one file read ahead: a quarter.
const SHARE_DIVISOR: u64 = 4;

/// A number of pages greater than any policy plans beyond a request.
const FARTHEST_PAGES: u64 = 1 << 20;
