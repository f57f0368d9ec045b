//! Reach: what a pattern learns of an access, and what it may plan.
//!
//! Owns: the bounds of a plan (file, share, extent), the planning of one extent.
//!
//! Does not own: what a pattern plans (`run`, `stride`).

use core::time::Duration;

use super::direction::{Direction, Span};
use super::issued::{Issue, Issued};
use super::sizing::Sizing;
use crate::readahead::Outcome;
use crate::readahead::reads::Planner;

/// An access in the places of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) request: Span,
    pub(super) at: u64,
    pub(super) outcome: Outcome,
    pub(super) now: Duration,
}

/// What a stream may plan in this call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Pages left of the share, for all streams.
    pub(super) room: u64,
    /// Pages that this stream may have ahead if all get the same, and one more stream as well.
    pub(super) fair: u64,
    /// Shortest time that a read took lately.
    pub(super) latency: Option<Duration>,
    pub(super) now: Duration,
}

/// What planning goes through.
pub(super) struct Tools<'a, 'b> {
    pub(super) planner: &'a mut Planner<'b>,
    pub(super) issued: &'a mut Issued,
}

/// How far a pattern may reach: the file, the share, and the largest extent.
pub(super) struct Reach<'a, 'b> {
    pub(super) sizing: &'a mut Sizing,
    pub(super) direction: Direction,
    pub(super) serial: u64,
    pub(super) bounds: Bounds,
    pub(super) tools: Tools<'a, 'b>,
}

impl Reach<'_, '_> {
    /// Size of the next extent: what the controls say, if the stream's part of the share holds two of it, and
    /// what is left of the share one.
    pub(super) fn size(&self) -> u64 {
        let half = (self.bounds.fair / 2).min(self.bounds.room);
        let allowed = if half == 0 { 0 } else { 1 << half.ilog2() };
        self.sizing.size().min(allowed)
    }

    /// How far ahead: what the controls say, at most the stream's part of the share.
    pub(super) fn distance(&self) -> u64 {
        self.sizing.distance().min(self.bounds.fair)
    }

    pub(super) fn extent_max(&self) -> u64 {
        self.tools.planner.extent_pages_max
    }

    /// The reader waits for a page of the stream.
    pub(super) fn on_wait(&mut self) {
        self.sizing.on_wait(self.bounds.latency);
    }

    /// One past the last place of the file.
    pub(super) fn limit(&self) -> u64 {
        self.direction.limit(self.tools.planner.end)
    }

    /// Plans an extent with the mark on its first page, and says where it ends within the file; `None` if
    /// nothing of it does, or if the share is used up.
    pub(super) fn plan(&mut self, span: Span) -> Option<u64> {
        self.plan_marked(span, Some(span.start))
    }

    /// Plans what was skipped between the frontier and a miss, so that it leaves no hole.
    pub(super) fn plan_gap(&mut self, span: Span) {
        if span.start < span.end {
            self.plan_marked(span, None);
        }
    }

    /// Plans `span` with a mark at this place, and says where it ends within the file.
    pub(super) fn plan_marked(&mut self, span: Span, mark: Option<u64>) -> Option<u64> {
        let span = Span { start: span.start, end: span.end.min(self.limit()) };
        if span.start >= span.end || span.len() > self.bounds.room {
            return None;
        }
        let mark = mark.filter(|mark| *mark < span.end).map(|mark| self.direction.page(mark));
        let first_id = *self.tools.planner.next_id;
        self.tools.planner.ahead_all(self.direction.range(span), mark);
        self.bounds.room -= span.len();
        let ids = first_id..*self.tools.planner.next_id;
        let (serial, now) = (self.serial, self.bounds.now);
        self.tools.issued.push(Issue { ids, serial, span, submitted: now });
        Some(span.end)
    }
}
