//! Sizing: how large the extents of a stream are, and how far ahead of its reader they reach.
//!
//! ```text
//!   size      4 … 32 pages ─x2─► largest              with every extent, unless held
//!   distance  2 sizes ─x2─► size + 1.5 pace x latency when the reader waited, unless held
//!             ─► 2 sizes, of half the size            when pages went unused, or were refused twice; then a hold
//!             ─minus a size─► 2 sizes                 after HOLD_OFF distances without a wait
//! ```
//!
//! Two controls, after PostgreSQL's read stream (`src/backend/storage/aio/read_stream.c`). What bounds the growth
//! of the distance is the product of the reader's pace and the shortest latency seen lately: a reader that waits
//! because the device has no more to give keeps its distance, since a deeper queue would only make each read
//! later (the bandwidth-delay product, as TCP BBR uses it).
//!
//! Owns: size, distance, and what they are grown and shrunk by.
//!
//! Does not own: positions, the share of memory.

use core::time::Duration;

use crate::readahead::limits::ReadaheadLimits;
use crate::readahead::{Advice, HOLD_OFF};

/// The two controls of one stream; pages.
#[derive(Clone, Debug)]
pub(super) struct Sizing {
    size: u64,
    distance: u64,
    size_max: u64,
    distance_max: u64,
    /// Consumed since the last wait, or since the distance last shrank.
    unwaited: u64,
    /// To be consumed before anything grows again.
    hold: u64,
    thrashing: Option<Thrashing>,
    /// In a row.
    refusals: u32,
    heard: Option<Duration>,
    pace: Option<Pace>,
    /// Sizes kept ahead at least.
    sizes_ahead: u64,
}

/// Pages of the stream were evicted before use; since then nothing was planned, or something was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thrashing {
    Noted,
    Again,
}

/// What the reader consumed between the last two times it was heard of.
#[derive(Clone, Copy, Debug)]
struct Pace {
    pages: u64,
    elapsed: Duration,
}

impl Sizing {
    /// For a stream that is guessed after a request of `requested` pages: begins with as many.
    pub(super) fn guess(requested: u64, advice: Advice, limits: &ReadaheadLimits) -> Self {
        let mut sizing = Self::new(requested, advice, limits);
        sizing.size = requested.clamp(1, sizing.size_max).next_power_of_two();
        sizing.distance = sizing.floor();
        sizing
    }

    /// For a stream that begins with a request of `requested` pages.
    pub(super) fn new(requested: u64, advice: Advice, limits: &ReadaheadLimits) -> Self {
        let is_sequential = advice == Advice::Sequential;
        let size_min = limits.size_pages_min() << u32::from(is_sequential);
        let size_max = limits.size_pages_max();
        let mut sizing = Self {
            size: initial_size(requested, size_min, size_max),
            distance: 0,
            size_max,
            distance_max: limits.distance_pages_max(),
            unwaited: 0,
            hold: 0,
            thrashing: None,
            refusals: 0,
            heard: None,
            pace: None,
            sizes_ahead: if is_sequential { SIZES_AHEAD * 2 } else { SIZES_AHEAD },
        };
        sizing.distance = sizing.floor();
        sizing
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// At least two sizes (one is consumed while the other is read), unless the limits hold less.
    pub(super) fn distance(&self) -> u64 {
        self.distance.max(self.floor())
    }

    /// An extent was planned: the next one is larger, unless growth is held.
    pub(super) fn on_planned(&mut self) {
        self.thrashing = self.thrashing.and(Some(Thrashing::Again));
        if self.hold > 0 || self.size == self.size_max {
            return;
        }
        let factor = if self.size < GROW_FAST_BELOW { 4 } else { 2 };
        self.size = self.size.saturating_mul(factor).min(self.size_max);
        if self.thrashing.is_some() {
            self.hold_growth();
        }
    }

    /// The stream has gone on for this many pages: extents as large as those that it would have grown to by then.
    pub(super) fn grow_to(&mut self, pages: u64) {
        self.size = pages.next_power_of_two().clamp(self.size, self.size_max);
    }

    /// The reader was heard of at `now`, `pages` farther on than before.
    pub(super) fn on_consumed(&mut self, pages: u64, now: Duration) {
        if let Some(heard) = self.heard
            && pages > 0
            && now > heard
        {
            self.pace = Some(Pace { pages, elapsed: now - heard });
        }
        if pages > 0 || self.heard.is_none() {
            self.heard = Some(now);
        }
        self.hold = self.hold.saturating_sub(pages);
        self.unwaited = self.unwaited.saturating_add(pages);
        if self.unwaited >= self.distance().saturating_mul(HOLD_OFF) {
            self.unwaited = 0;
            self.distance = self.distance.saturating_sub(self.size).max(self.floor());
        }
    }

    /// The reader waits for a page of this stream.
    pub(super) fn on_wait(&mut self, latency: Option<Duration>) {
        self.unwaited = 0;
        if self.hold > 0 {
            return;
        }
        let delay_pages = match (self.pace, latency) {
            (Some(pace), Some(latency)) => pages_during(latency, pace),
            _ => 0,
        };
        let enough = self.size.saturating_add(delay_pages.saturating_mul(3) / 2);
        let doubled = self.distance().saturating_mul(2);
        self.distance = doubled.min(enough).min(self.distance_max).max(self.distance());
    }

    /// Pages were evicted before they were used: half of both, and slow growth from then on. Counts once until
    /// more is planned: the pages of one extent are evicted one by one.
    pub(super) fn on_thrashed(&mut self) {
        if self.thrashing == Some(Thrashing::Noted) {
            return;
        }
        self.thrashing = Some(Thrashing::Noted);
        self.shrink();
    }

    /// A read found no frame or no slot. Once is chance; again, with nothing delivered between, it asks for more
    /// than there is.
    pub(super) fn on_refused(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals > 1 {
            self.shrink();
        }
    }

    /// A read was delivered.
    pub(super) fn on_delivered(&mut self) {
        self.refusals = 0;
    }

    fn shrink(&mut self) {
        self.size = (self.size / 2).max(SIZE_THRASHED_MIN).min(self.size_max);
        self.distance = self.floor();
        self.hold_growth();
    }

    fn hold_growth(&mut self) {
        self.hold = self.distance().saturating_mul(THRASHED_HOLD);
    }

    pub(super) fn check(&self) {
        assert!(self.size > 0, "no size");
        assert!(self.size <= self.size_max, "size beyond its limit");
        assert!(self.distance() <= self.distance_max, "distance beyond its limit");
    }

    fn floor(&self) -> u64 {
        self.size.saturating_mul(self.sizes_ahead).min(self.distance_max)
    }
}

/// First size for a request: a multiple of it while it is small, after `get_init_ra_size` of Linux; as much as
/// the request if that is more.
fn initial_size(requested: u64, size_min: u64, size_max: u64) -> u64 {
    let pages = requested.clamp(1, size_max).next_power_of_two();
    if pages <= size_min / 32 {
        pages * 4
    } else if pages <= size_min / 4 {
        pages * 2
    } else {
        pages.max(size_min).min(size_max)
    }
}

/// What a reader of this pace consumes while a read of this latency is under way.
fn pages_during(latency: Duration, pace: Pace) -> u64 {
    let pages = u128::from(pace.pages).saturating_mul(latency.as_nanos()) / pace.elapsed.as_nanos().max(1);
    u64::try_from(pages).unwrap_or(u64::MAX)
}

/// One extent to consume while the other is read.
const SIZES_AHEAD: u64 = 2;

/// Sizes below 32 KiB grow fourfold, as Linux lets windows below a sixteenth of the largest: a reader that
/// goes on past the first pages of a file usually reads all of it.
const GROW_FAST_BELOW: u64 = 8;

/// Distances that are consumed between two doublings after pages were evicted before use. The memory that others
/// need does not come back soon, and each attempt costs reads in vain.
const THRASHED_HOLD: u64 = 16;

/// A stream whose pages are evicted before use still reads 16 KiB at once: smaller extents cost the device as
/// much as this one.
const SIZE_THRASHED_MIN: u64 = 4;
