//! Stream: one reader's way through a file, and what it may plan.
//!
//! Owns: a pattern with its controls; the bounds within which it plans (file, share, extent).
//!
//! Does not own: which access belongs to which stream (see the table in `adaptive`).

use core::time::Duration;

use super::direction::{Direction, Span};
use super::issued::{Issue, Issued};
use super::run::Run;
use super::sizing::Sizing;
use super::stride::{Followed, Stride};
use crate::readahead::reads::Planner;
use crate::readahead::{Access, Outcome, ReadResult};
use crate::units::{ByteRange, PageRange};

/// One entry of the table.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Never used again, unlike the place in the table.
    pub(super) serial: u64,
    /// Number of the last access that belonged to it.
    pub(super) touched: u64,
    pub(super) handle: u32,
    pub(super) direction: Direction,
    pub(super) pattern: Pattern,
    pub(super) sizing: Sizing,
    /// What its beginning cost of the credit for guesses; given back once it proves right.
    pub(super) guess_pages: u64,
}

/// What is known of a stream.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    /// A request that belonged to nothing; perhaps some that went on from it.
    New(Seen),
    Run(Run),
    Stride(Stride),
}

/// The last request of a new stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) pages: PageRange,
    pub(super) bytes: ByteRange,
    /// How many requests went on from the first one.
    pub(super) continued: u32,
}

/// An access in the places of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) request: Span,
    pub(super) at: u64,
    pub(super) outcome: Outcome,
    pub(super) now: Duration,
}

impl Stream {
    pub(super) fn claims(&self, access: &Access, now: Duration) -> bool {
        let heard = self.hear(access, now);
        match &self.pattern {
            Pattern::New(_) => false,
            Pattern::Run(run) => run.claims(&heard, self.sizing.distance()),
            Pattern::Stride(stride) => stride.claims(&heard),
        }
    }

    /// The access in the places of this stream.
    pub(super) fn hear(&self, access: &Access, now: Duration) -> Heard {
        Heard {
            request: self.direction.span(access.pages),
            at: self.direction.place(access.at),
            outcome: access.outcome,
            now,
        }
    }

    /// Takes note of an access that it claims, and plans.
    pub(super) fn follow(&mut self, access: &Access, now: Duration, bounds: Bounds, tools: Tools<'_, '_>) {
        let heard = self.hear(access, now);
        let mut reach =
            Reach { sizing: &mut self.sizing, direction: self.direction, serial: self.serial, bounds, tools };
        match &mut self.pattern {
            Pattern::New(_) => {}
            Pattern::Run(run) => run.follow(&heard, &mut reach),
            Pattern::Stride(stride) => {
                if let Followed::Escaped { origin, frontier } = stride.follow(&heard, &mut reach) {
                    let mut run = Run::new(origin, heard.request);
                    run.position = heard.request.start;
                    run.frontier = frontier.max(heard.request.end);
                    // It has shown as much as a run of this length.
                    reach.sizing.grow_to(run.frontier - origin);
                    run.refill(heard.request, &mut reach);
                    self.pattern = Pattern::Run(run);
                }
            }
        }
    }

    /// Whether the access, `age` accesses after the last one, may be another reader's.
    pub(super) fn is_doubtful(&self, access: &Access, now: Duration, age: u64) -> bool {
        matches!(&self.pattern, Pattern::Run(run) if run.is_doubtful(&self.hear(access, now), age))
    }

    /// The stream is no more than its last access.
    pub(super) fn forget(&mut self, access: &Access) {
        self.pattern = Pattern::New(Seen::of(access));
        self.guess_pages = 0;
    }

    /// One of its planned reads is done.
    pub(super) fn complete(&mut self, span: Span, result: ReadResult) {
        match result {
            ReadResult::Read => self.sizing.on_delivered(),
            ReadResult::Refused => self.sizing.on_refused(),
            ReadResult::Partly | ReadResult::Failed => {}
        }
        if let Pattern::Run(run) = &mut self.pattern
            && result != ReadResult::Read
        {
            run.on_hole(span);
        }
    }

    /// Plans for the first time.
    pub(super) fn begin(&mut self, access: &Access, now: Duration, bounds: Bounds, tools: Tools<'_, '_>) {
        let heard = self.hear(access, now);
        self.sizing.on_consumed(0, now);
        let mut reach =
            Reach { sizing: &mut self.sizing, direction: self.direction, serial: self.serial, bounds, tools };
        match &mut self.pattern {
            Pattern::New(_) => {}
            Pattern::Run(run) => run.refill(heard.request, &mut reach),
            Pattern::Stride(stride) => stride.begin(heard.request, &mut reach),
        }
    }

    /// Pages read ahead and not known to be consumed.
    pub(super) fn ahead(&self) -> u64 {
        match &self.pattern {
            Pattern::New(_) => 0,
            Pattern::Run(run) => run.ahead(),
            Pattern::Stride(stride) => stride.ahead(),
        }
    }

    /// Whether the access begins another run of a stride.
    pub(super) fn begins_run(&self, access: &Access) -> bool {
        matches!(&self.pattern, Pattern::Stride(stride) if stride.begins_run(self.direction.place(access.at)))
    }

    /// Where the reader of a run is known to be; no other pattern says how much was used.
    pub(super) fn position(&self) -> Option<u64> {
        match &self.pattern {
            Pattern::Run(run) => Some(run.position),
            Pattern::New(_) | Pattern::Stride(_) => None,
        }
    }

    /// Whether some of what was read ahead was used.
    pub(super) fn is_proven(&self) -> bool {
        !matches!(&self.pattern, Pattern::Run(run) if !run.is_proven())
    }

    /// Whether others are replaced after it: it has shown that it is a stream.
    pub(super) fn is_established(&self) -> bool {
        !matches!(self.pattern, Pattern::New(_)) && self.guess_pages == 0
    }
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
    direction: Direction,
    serial: u64,
    bounds: Bounds,
    tools: Tools<'a, 'b>,
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
