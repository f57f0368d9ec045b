//! Readahead: what to read before it is asked for, how much at once, and how far ahead of the reader.
//!
//! ```text
//!   read ─► hit on an ordinary page ─────────────────────────────► copy      (the policy does not hear of it)
//!      ├──► hit on a marked page ──┐
//!      ├──► pending page ──────────┼─► on_read ─► Plan: Demand … Ahead ─► device ─► complete
//!      └──► miss ──────────────────┘      ▲                       │
//!                                         └────────── mark ◄──────┘
//! ```
//!
//! A hit takes no lock, so a policy cannot count what is consumed. It puts a mark on a page instead, usually
//! the first of an extent that it reads ahead, and hears of the reader when that page is used: as one extent
//! begins to be consumed the next is submitted. (Linux does the same with `PG_readahead`.)
//!
//! One [`Readahead`] belongs to a file and serves all of its handles: two readers of one stream share it, and
//! each stream of one reader is followed separately.
//!
//! Invariants, for every policy:
//!
//! - A1 The plan of a miss covers each page of the request from the missing one to the end of the file.
//! - A2 Nothing at or beyond the end of the file is planned.
//! - A3 Demanded reads come before those ahead, and cover pages of the request only.
//! - A4 A read is at most the largest extent long, and the plan at most as long as the request and the distance,
//!   both counted in extents and pieces.
//! - A5 The plan is a function of the calls before it: no clock, no chance, no addresses.
//!
//! Locks: none; the caller holds the one of the file, and no I/O is done under it: it submits what was planned
//! after letting go. Nothing here blocks.
//!
//! Hot path: a hit on an ordinary page does not come here. Otherwise a walk over 16 streams at most; allocations
//! only while the plan and the tables grow to their bounds.
//
// Owns: the choice of the policy, its inputs and its plans.
// Does not own: the cache (asked through [`Lookup`]), the I/O, the frames and the marks in them, the clock:
// time is a duration since any fixed moment.

mod adaptive;
mod limits;
mod linux;
mod reads;
mod runs;
mod sequential;
mod steady;

use alloc::boxed::Box;
use core::time::Duration;

use crate::units::{ByteRange, PageIndex, PageRange};

use adaptive::Adaptive;
use linux::Linux;
use reads::Planner;
use steady::Steady;

pub use limits::{LimitsError, ReadaheadLimits};
pub use reads::{Plan, PlannedRead, Purpose, ReadId, ReadIds};
pub use runs::{MissingPages, MissingRun, MissingRuns, missing_runs};
pub use sequential::{HOLD_OFF, SequentialStream};

/// Which policy the reads of a file follow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
pub enum ReadaheadPolicy {
    /// headwater's own: many streams a file, patterns beyond the sequential one, distance from the latency.
    #[default]
    Adaptive,
    /// What Linux 6.18 does on demand, as a reference to compare with. One state for the whole file, as for a
    /// single descriptor; its window is the smallest size of the limits, its largest request the largest size.
    Linux,
    /// Exactly what is demanded. Advice changes nothing.
    Off,
    /// This many pages beyond what is demanded, whatever the pattern; at least one, and at most the largest
    /// distance of the limits. Of the advice only [`Advice::Random`] changes anything.
    Fixed(u32),
}

/// What the user said about a file, with the meaning of `posix_fadvise(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Advice {
    /// Nothing: takes back what was said before.
    #[default]
    Normal,
    /// From the lower offsets to the higher ones. `Adaptive` begins with twice the smallest size and keeps
    /// twice as much ahead; `Linux` reads windows of twice the size. The largest size is the device's and stays.
    Sequential,
    /// In no order: nothing is read ahead.
    Random,
    /// Each page once: read ahead as usual, replaced first (which is the engine's part).
    NoReuse,
    /// Read a range now. An act, which [`Readahead::on_will_need`] plans; changes no policy.
    WillNeed,
    /// Drop a range now. Done by the engine; changes no policy.
    DontNeed,
}

/// What a read met, at the page [`Access::at`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The page is there, and it was marked. The mark is gone now.
    Hit,
    /// The page is on its way, and the reader waits for it. It was not marked.
    Pending,
    /// The page is on its way, the reader waits for it, and it was marked. The mark is gone now.
    PendingMarked,
    /// The page is not there.
    Miss,
}

/// One read, as far as the policy hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The whole request, not only what missed; not empty.
    pub pages: PageRange,
    /// The page that is marked, pending or missing; one of `pages`.
    pub at: PageIndex,
    /// What is the matter with that page.
    pub outcome: Outcome,
    /// The bytes of the request: a read that continues another one starts where that ended. The same in all
    /// calls for one request.
    pub bytes: ByteRange,
    /// Which handle reads. A hint only: streams belong to the file.
    pub handle: u32,
}

/// Whether a page needs to be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Presence {
    /// It does.
    Absent,
    /// It is cached or on its way.
    Cached,
}

/// What a policy may ask about the cache.
pub trait Lookup {
    /// Whether this page is there. Cheap: a policy asks it of as many pages as a request or an extent has.
    fn is_cached(&self, page: PageIndex) -> Presence;
}

/// How a planned read ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadResult {
    /// All of it is there, or was there before.
    Read,
    /// The beginning of it is there: the file ended, or the device delivered less.
    Partly,
    /// None of it is there.
    Failed,
    /// It was not submitted: no frame, or no slot.
    Refused,
}

/// What readahead did for a file so far; pages unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadaheadStats {
    /// Planned because a reader asked for them. (Some may have been cached.)
    pub demanded_pages: u64,
    /// Planned ahead of the readers. (Some may have been cached.)
    pub read_ahead_pages: u64,
    /// Read ahead and then used, as reported.
    pub used_pages: u64,
    /// Read ahead and evicted without use, as reported.
    pub unused_pages: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Accesses that had to wait for a page on its way.
    pub late: u64,
    /// Planned reads that were refused.
    pub refused: u64,
    /// Planned reads that failed.
    pub failed: u64,
    /// Read ahead of the streams that are known now, and not known to be consumed.
    pub ahead_pages: u64,
}

/// Readahead of one file.
///
/// ```
/// # use core::time::Duration;
/// # use headwater_core::{units::*, readahead::*};
/// struct Empty;
/// impl Lookup for Empty {
///     fn is_cached(&self, _page: PageIndex) -> Presence {
///         Presence::Absent
///     }
/// }
/// let mut readahead = Readahead::new(ReadaheadPolicy::Adaptive, ReadaheadLimits::default())?;
/// let (first, bytes) = (PageIndex::new(0), ByteRange::new(0, 4096));
/// let pages = PageRange::covering(bytes);
/// let miss = Access { pages, at: first, outcome: Outcome::Miss, bytes, handle: 0 };
/// let mut plan = Plan::new();
/// readahead.on_read(miss, PageIndex::new(1000), Duration::ZERO, &Empty, &mut plan);
/// let planned: Vec<_> = plan.reads().iter().map(|read| (read.range.len().get(), read.purpose)).collect();
/// assert_eq!(planned, [(1, Purpose::Demand), (3, Purpose::Ahead)]);
/// assert_eq!(plan.reads()[1].mark, Some(PageIndex::new(1)));
/// # Ok::<(), LimitsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Readahead {
    policy: Policy,
    limits: ReadaheadLimits,
    advice: Advice,
    next_id: u64,
    stats: ReadaheadStats,
}

#[derive(Clone, Debug)]
enum Policy {
    Adaptive(Box<Adaptive>),
    Linux(Linux),
    Off,
    Fixed(Steady),
}

impl Readahead {
    /// A policy that knows nothing of its file yet.
    ///
    /// # Errors
    /// If the limits do not fit together, or if a fixed number of pages is beyond them.
    pub fn new(policy: ReadaheadPolicy, limits: ReadaheadLimits) -> Result<Self, LimitsError> {
        limits.validate()?;
        let policy = match policy {
            ReadaheadPolicy::Adaptive => Policy::Adaptive(Box::new(Adaptive::new(limits))),
            ReadaheadPolicy::Linux => Policy::Linux(Linux::new(limits)),
            ReadaheadPolicy::Off => Policy::Off,
            ReadaheadPolicy::Fixed(pages) => Policy::Fixed(Steady::new(pages, limits)?),
        };
        Ok(Self { policy, limits, advice: Advice::Normal, next_id: 0, stats: ReadaheadStats::default() })
    }

    /// Takes the user's advice, in place of what was said before. [`Advice::WillNeed`] and
    /// [`Advice::DontNeed`] are acts, not advice: the engine does them, and nothing changes here.
    pub fn advise(&mut self, advice: Advice) {
        if !matches!(advice, Advice::WillNeed | Advice::DontNeed) {
            self.advice = advice;
        }
    }

    /// Bounds what is read ahead and not consumed from now on, in bytes, below [`ReadaheadLimits::share_bytes_max`]: where many files
    /// share a memory, what the others left. What is ahead already stays. Only [`ReadaheadPolicy::Adaptive`] looks at it.
    pub fn set_share(&mut self, share_bytes: u64) {
        if let Policy::Adaptive(adaptive) = &mut self.policy {
            adaptive.set_share(share_bytes);
        }
    }

    /// What the user said last.
    pub fn advice(&self) -> Advice {
        self.advice
    }

    /// A reader missed, met a page on its way, or touched a mark. Replaces what is in `plan` with what to
    /// submit now, in that order: A1 to A4. `end` is one past the last page of the file as known now, and
    /// `now` never goes back.
    ///
    /// # Panics
    /// If the page in question is not one of the request.
    pub fn on_read(
        &mut self,
        access: Access,
        end: PageIndex,
        now: Duration,
        cache: &impl Lookup,
        plan: &mut Plan,
    ) {
        assert!(access.pages.start <= access.at, "the page in question is before the request");
        assert!(access.at < access.pages.end, "the page in question is behind the request");
        plan.clear();
        self.count_access(access.outcome);
        let Some(access) = clip_to_file(access, end) else { return };
        let extent_pages_max = self.limits.size_pages_max();
        let mut planner = Planner { plan, next_id: &mut self.next_id, end, extent_pages_max };
        match &mut self.policy {
            _ if self.advice == Advice::Random => demand_missing(access, &mut planner),
            Policy::Off => demand_missing(access, &mut planner),
            Policy::Adaptive(adaptive) => adaptive.on_read(access, self.advice, now, cache, &mut planner),
            Policy::Linux(linux) => linux.on_read(access, self.advice, cache, &mut planner),
            Policy::Fixed(steady) => steady.on_read(access, cache, &mut planner),
        }
        self.count_plan(plan);
    }

    /// The caller announces that these pages will be needed. Replaces what is in `plan` with all of them that lie within the
    /// file, to be read ahead of any reader. No stream begins by this.
    pub fn on_will_need(&mut self, pages: PageRange, end: PageIndex, plan: &mut Plan) {
        plan.clear();
        let extent_pages_max = self.limits.size_pages_max();
        let mut next_id = self.next_id | ReadId::ANNOUNCED;
        let mut planner = Planner { plan, next_id: &mut next_id, end, extent_pages_max };
        planner.ahead_all(pages, None);
        self.next_id = next_id & !ReadId::ANNOUNCED;
        self.count_plan(plan);
    }

    /// A read was all hits, none of them marked. Needs no call: only [`ReadaheadPolicy::Linux`] listens, which
    /// follows its model more closely if it knows where each read ended.
    pub fn on_hit(&mut self, bytes: ByteRange) {
        if let Policy::Linux(linux) = &mut self.policy {
            linux.on_hit(bytes);
        }
    }

    /// A planned read is done, or was not begun.
    pub fn complete(&mut self, id: ReadId, result: ReadResult, now: Duration) {
        match result {
            ReadResult::Failed => self.stats.failed += 1,
            ReadResult::Refused => self.stats.refused += 1,
            ReadResult::Read | ReadResult::Partly => {}
        }
        if let Policy::Adaptive(adaptive) = &mut self.policy {
            adaptive.complete(id, result, now);
        }
    }

    /// Pages that were read ahead were used for the first time. Only counted: what drives the policy are the
    /// marks, so the engine may report it late, in any order and any portions.
    pub fn on_used(&mut self, pages: u64) {
        self.stats.used_pages += pages;
    }

    /// These pages were read ahead and evicted before anybody used them. If a stream was about to use them,
    /// it shrinks.
    pub fn on_unused(&mut self, pages: PageRange) {
        self.stats.unused_pages += pages.len().get();
        if let Policy::Adaptive(adaptive) = &mut self.policy {
            adaptive.on_unused(pages);
        }
    }

    /// These pages were dropped on request (a truncate, an invalidation, [`Advice::DontNeed`]), not
    /// for want of memory: streams read them again without shrinking. The range may go beyond the file.
    pub fn on_dropped(&mut self, pages: PageRange) {
        if let Policy::Adaptive(adaptive) = &mut self.policy {
            adaptive.on_dropped(pages);
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> ReadaheadStats {
        let ahead_pages = match &self.policy {
            Policy::Adaptive(adaptive) => adaptive.ahead_pages(),
            Policy::Linux(_) | Policy::Off | Policy::Fixed(_) => 0,
        };
        ReadaheadStats { ahead_pages, ..self.stats }
    }

    /// Asserts the invariants that the state alone can show.
    pub fn check(&self) {
        if let Policy::Adaptive(adaptive) = &self.policy {
            adaptive.check();
        }
    }

    fn count_access(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Hit => {}
            Outcome::Pending | Outcome::PendingMarked => self.stats.late += 1,
            Outcome::Miss => self.stats.misses += 1,
        }
    }

    fn count_plan(&mut self, plan: &Plan) {
        for read in plan.reads() {
            let pages = read.range.len().get();
            match read.purpose {
                Purpose::Demand => self.stats.demanded_pages += pages,
                Purpose::Ahead => self.stats.read_ahead_pages += pages,
            }
        }
    }
}

/// The access without what lies behind the end of the file; `None` if nothing is left.
fn clip_to_file(access: Access, end: PageIndex) -> Option<Access> {
    let pages = PageRange { start: access.pages.start, end: access.pages.end.min(end) };
    (access.at < pages.end).then_some(Access { pages, ..access })
}

/// Plans the rest of the request from the missing page on; nothing unless the page is missing.
fn demand_missing(access: Access, planner: &mut Planner<'_>) {
    if access.outcome == Outcome::Miss {
        planner.demand(PageRange::new(access.at, access.pages.end), None);
    }
}

/// The first page of `range` that is not there.
fn first_absent(range: PageRange, cache: &impl Lookup) -> Option<PageIndex> {
    range.iter().find(|page| cache.is_cached(*page) == Presence::Absent)
}
