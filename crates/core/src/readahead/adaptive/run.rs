//! Run: a stream of adjacent pages.
//!
//! ```text
//!   origin        position                          frontier
//!   ├── consumed ──┤├──────────┬───────────┬──────────┤┌ ─ ─ ─ ─ ─┐
//!                   ▼          ▼           ▼           next extent
//!                   marks: the first page of each extent
//!                   │◄───────── distance ───────────────►│
//! ```
//!
//! The reader is heard of when it uses the mark of an extent; one more extent is planned then, so as many are
//! in flight as the distance holds. Reads need not be in order: whatever lies a little around the stream belongs
//! to it.
//!
//! Owns: position and frontier of one stream, and what to plan next.
//!
//! Does not own: size and distance (see `sizing`), the demanded pages, which are planned already.
//!
//! States: new -> ramping -> steady, all by `follow`; restarted `[follow of a miss within what was read ahead]`.

use super::direction::Span;
use super::reach::{Heard, Reach};
use crate::readahead::Outcome;

/// Places of one run: see the drawing.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) origin: u64,
    pub(super) position: u64,
    pub(super) frontier: u64,
    /// End of the requests, or of what was there before.
    asked: u64,
    /// Some of what was planned was never read: a miss there is no thrashing.
    has_holes: bool,
    /// First page of the last extent.
    last_mark: u64,
    /// The reader used what was read ahead.
    is_proven: bool,
    /// It did so since it last skipped something.
    is_used: bool,
}

impl Run {
    /// A stream that began at `origin`, and whose reader is at `request` now.
    pub(super) fn new(origin: u64, request: Span) -> Self {
        Self {
            origin,
            position: request.start,
            frontier: request.end,
            asked: request.end,
            has_holes: false,
            last_mark: request.start,
            is_proven: false,
            is_used: false,
        }
    }

    /// A stream that was forgotten: what lies between its reader and `frontier` is there already.
    pub(super) fn adopted(request: Span, frontier: u64) -> Self {
        Self {
            frontier,
            asked: frontier,
            is_proven: true,
            is_used: true,
            ..Self::new(request.start, request)
        }
    }

    /// A stream that was a stride: earlier requests may reach beyond the one of its reader.
    pub(super) fn escaped(origin: u64, request: Span, asked: u64, frontier: u64) -> Self {
        Self {
            frontier: frontier.max(request.end),
            asked: asked.max(request.end),
            ..Self::new(origin, request)
        }
    }

    /// Whether the access belongs here.
    pub(super) fn claims(&self, heard: &Heard, distance: u64) -> bool {
        let at = heard.at;
        if heard.outcome == Outcome::Miss {
            let slack = if self.is_proven { NEAR } else { 0 };
            return at >= self.position.saturating_sub(slack) && at <= self.frontier + slack;
        }
        at >= self.position.saturating_sub(distance) && at < self.frontier
    }

    /// Takes note of the access, and plans what is missing up to the distance.
    pub(super) fn follow(&mut self, heard: &Heard, reach: &mut Reach<'_, '_>) {
        self.is_used &= !self.is_skipped_to(heard);
        let consumed = heard.at.saturating_sub(self.position);
        let is_ahead = heard.at >= self.asked;
        self.end_at(reach.limit());
        reach.sizing.on_consumed(consumed, heard.now);
        match heard.outcome {
            Outcome::Hit if is_ahead => self.prove(),
            Outcome::Hit => {}
            Outcome::Pending | Outcome::PendingMarked if is_ahead => {
                self.prove();
                reach.on_wait();
            }
            Outcome::Pending | Outcome::PendingMarked => {}
            Outcome::Miss => self.on_miss(heard, reach),
        }
        self.position = self.position.max(heard.at);
        self.asked = self.asked.max(heard.request.end);
        self.frontier = self.frontier.max(heard.request.end);
        if heard.at >= self.position {
            let is_overrun = heard.outcome == Outcome::Miss;
            self.refill_beyond(heard.request, u64::from(is_overrun), reach);
        }
    }

    fn prove(&mut self) {
        self.is_proven = true;
        self.is_used = true;
    }

    /// Whether an access, `age` accesses after the last one, may be another reader's: it skips something, or
    /// nothing that was read ahead was used so far.
    pub(super) fn is_doubtful(&self, heard: &Heard, age: u64) -> bool {
        let is_doubtful_skip = self.is_skipped_to(heard) && (age > SKIP_ACCESSES || !self.is_used);
        is_doubtful_skip || age > GUESS_ACCESSES && !self.is_proven
    }

    /// Whether the reader left out pages behind the end of what was read ahead.
    fn is_skipped_to(&self, heard: &Heard) -> bool {
        heard.outcome == Outcome::Miss && heard.at > self.frontier
    }

    /// Plans extents while they fit into the distance; one at least if no mark is left ahead of the request,
    /// since the reader would not be heard of again.
    pub(super) fn refill(&mut self, request: Span, reach: &mut Reach<'_, '_>) {
        self.refill_beyond(request, 0, reach);
    }

    /// The same with a mark at least this far behind the request: a reader that went past a mark without using
    /// the page may do it again.
    fn refill_beyond(&mut self, request: Span, pages: u64, reach: &mut Reach<'_, '_>) {
        let near = request.end.saturating_add(reach.size());
        let consumed = self.position.max(request.end) - self.origin.min(self.position);
        let distance = reach.distance().min(consumed.saturating_mul(AHEAD_PER_CONSUMED));
        let target = self.position.saturating_add(distance).max(near);
        loop {
            let size = reach.size();
            let end = extent_end(self.frontier, size, reach.extent_max());
            let is_last_marked = self.last_mark < request.end + pages;
            if size == 0 || (end > target && !is_last_marked) {
                return;
            }
            let Some(planned_end) = reach.plan(Span { start: self.frontier, end }) else { return };
            self.last_mark = self.frontier;
            self.frontier = planned_end;
            reach.sizing.on_planned();
        }
    }

    /// Planned beyond what was asked for.
    pub(super) fn ahead(&self) -> u64 {
        self.frontier.saturating_sub(self.position.max(self.asked))
    }

    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The read of `span` was not submitted or delivered nothing, or its pages were dropped.
    pub(super) fn on_hole(&mut self, span: Span) {
        if span.end <= self.position || span.start >= self.frontier {
            return;
        }
        self.has_holes = true;
        if span.end >= self.frontier {
            self.end_at(span.start.max(self.position));
        }
    }

    /// Nothing is ahead behind this place, whatever was planned there.
    fn end_at(&mut self, limit: u64) {
        if self.frontier > limit {
            self.frontier = limit;
            self.last_mark = self.last_mark.min(limit);
        }
    }

    fn on_miss(&mut self, heard: &Heard, reach: &mut Reach<'_, '_>) {
        if heard.at < self.position {
            return;
        }
        if heard.at >= self.frontier {
            reach.on_wait();
            reach.plan_gap(Span { start: self.frontier, end: heard.at });
            return;
        }
        if !self.has_holes {
            reach.sizing.on_thrashed();
        }
        self.has_holes = false;
        self.last_mark = heard.at;
        self.frontier = heard.request.end;
    }
}

/// End of the extent that starts at `start`: the next multiple of the size, or the one behind it where the
/// extent would be less than half a size.
fn extent_end(start: u64, size: u64, extent_max: u64) -> u64 {
    let Some(size) = core::num::NonZeroU64::new(size) else { return start };
    let boundary = (start / size + 1).saturating_mul(size.get());
    let longer = boundary.saturating_add(size.get());
    if boundary - start < size.get() / 2 && longer - start <= extent_max { longer } else { boundary }
}

/// Ahead of a young run is at most twice of what it consumed, or one extent: a run that ends early wastes no more
/// than a part of its length.
const AHEAD_PER_CONSUMED: u64 = 2;

/// How far off its way a reader may be: 8 pages, for files whose records were shuffled within groups, and for
/// requests that are submitted in parallel.
pub(super) const NEAR: u64 = 8;

/// A reader that continues a guess does so within this many accesses: sixteen interleaved streams have four accesses
/// each by then.
const GUESS_ACCESSES: u64 = 64;

/// A reader that skips a few pages does so within this many accesses: it is one reader whose requests are a little out of
/// order, and each of them reaches the policy.
const SKIP_ACCESSES: u64 = 16;
