//! Stream: one reader's way through a file.
//!
//! Owns: a pattern with its controls.
//!
//! Does not own: which access belongs to which stream (see the table in `adaptive`), the bounds of a plan (`reach`).

use core::time::Duration;

use super::direction::{Direction, Span};
use super::reach::{Bounds, Heard, Reach, Tools};
use super::run::Run;
use super::sizing::Sizing;
use super::stride::{Followed, Stride};
use crate::readahead::{Access, ReadResult};
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

impl Stream {
    pub(super) fn claims(&self, access: &Access, now: Duration) -> bool {
        match &self.pattern {
            Pattern::New(_) => false,
            Pattern::Run(run) => run.claims(&self.hear(access, now), self.sizing.distance()),
            Pattern::Stride(stride) => stride.claims(&self.hear(access, now)),
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
                if let Followed::Escaped { origin, asked, frontier } = stride.follow(&heard, &mut reach) {
                    let mut run = Run::escaped(origin, heard.request, asked, frontier);
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
