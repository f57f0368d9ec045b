//! Stride: runs of equal length, equally far apart.
//!
//! ```text
//!   base                    base + delta            base + 2 delta
//!   ├──── run ────┤ · · · · ▼──── run ────┤ · · · · ▼──── run ────┤
//!            │    │
//!        reach    tail: up to here the current run was planned
//! ```
//!
//! The reader is heard of at the first page of each run, and one more is planned then. A run may be longer
//! than one request, and how long it is has to be learned: while it is unsettled, the last page planned of the
//! current run is marked as well, and if the reader gets there, a little more is planned, twice as much each
//! time. What it reached is the length of the next run; once that was right twice, runs are read in one piece.
//!
//! Owns: the runs of one stream, and what to plan next.
//!
//! Does not own: the demanded pages, which are planned already.
//!
//! States: unsettled -> settled `[begin_run]`; settled -> unsettled `[begin_run, on_unused]`; any -> a run
//! `[follow says Escaped]`.

use super::direction::Span;
use super::reach::{Heard, Reach};
use crate::readahead::Outcome;

/// Places and lengths of one stride.
#[derive(Clone, Debug)]
pub(super) struct Stride {
    base: u64,
    delta: u64,
    run: u64,
    reach: u64,
    tail: u64,
    step: u64,
    /// Runs that are planned behind the current one, and how many of them are wanted.
    planned: u64,
    planned_pages: u64,
    window: u64,
    confirmations: u32,
    is_probing: bool,
}

/// What became of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Followed {
    Stride,
    /// The reader goes on and on; it is a run now, which began at `origin`, was asked for up to `asked` and is planned up to `frontier`.
    Escaped {
        origin: u64,
        asked: u64,
        frontier: u64,
    },
}

impl Stride {
    /// A stride whose current run begins with `request`.
    pub(super) fn new(request: Span, delta: u64, run: u64) -> Self {
        let run = run.max(request.len()).min(delta);
        Self {
            base: request.start,
            delta,
            run,
            reach: request.len(),
            tail: request.len(),
            step: 1,
            planned: 0,
            planned_pages: 0,
            window: 1,
            confirmations: 0,
            is_probing: true,
        }
    }

    /// Whether the access belongs here.
    pub(super) fn claims(&self, heard: &Heard) -> bool {
        let Some(offset) = heard.at.checked_sub(self.base) else { return false };
        let (runs, place) = (offset / self.delta, offset % self.delta);
        if runs == 0 { place <= self.tail } else { runs <= self.planned + 1 && place < self.run }
    }

    /// Takes note of the access, and plans the rest of its run and runs to come.
    pub(super) fn follow(&mut self, heard: &Heard, reach: &mut Reach<'_, '_>) -> Followed {
        let runs = (heard.at - self.base) / self.delta;
        if runs == 0 {
            return self.follow_within(heard, reach);
        }
        self.begin_run(runs);
        reach.sizing.on_consumed(runs.saturating_mul(self.run), heard.now);
        if heard.outcome != Outcome::Hit {
            self.window = (self.window * 2).min(WINDOW_MAX);
            reach.on_wait();
        }
        self.begin(heard.request, reach);
        Followed::Stride
    }

    /// Plans the rest of the current run and runs to come.
    pub(super) fn begin(&mut self, request: Span, reach: &mut Reach<'_, '_>) {
        self.reach = request.end.saturating_sub(self.base).min(self.delta);
        self.tail = self.reach;
        self.is_probing = self.confirmations < CONFIRMATIONS || self.reach >= self.run;
        if self.reach < self.run {
            let mark = self.is_probing.then_some(self.base + self.run - 1);
            let rest = Span { start: self.base + self.reach, end: self.base + self.run };
            self.tail = reach.plan_marked(rest, mark).map_or(self.reach, |end| end - self.base);
        }
        self.refill(reach);
    }

    pub(super) fn ahead(&self) -> u64 {
        self.planned_pages + self.tail.saturating_sub(self.reach)
    }

    /// Whether the place is in a run behind the current one.
    pub(super) fn begins_run(&self, place: u64) -> bool {
        place >= self.base.saturating_add(self.delta)
    }

    /// Whether the place is in a run that was read ahead.
    pub(super) fn covers(&self, place: u64) -> bool {
        let Some(offset) = place.checked_sub(self.base) else { return false };
        let (runs, place) = (offset / self.delta, offset % self.delta);
        if runs == 0 { place < self.tail } else { runs <= self.planned && place < self.run }
    }

    /// Pages of it were evicted before use.
    pub(super) fn on_unused(&mut self) {
        self.confirmations = 0;
        self.window = (self.window / 2).max(1);
    }

    fn follow_within(&mut self, heard: &Heard, reach: &mut Reach<'_, '_>) -> Followed {
        let offset = heard.at - self.base;
        self.reach = self.reach.max(heard.request.end.saturating_sub(self.base));
        let is_at_tail = offset + 1 >= self.tail || self.reach >= self.tail;
        if !is_at_tail {
            return Followed::Stride;
        }
        self.tail = self.tail.max(self.reach);
        self.step = self.step.max(heard.request.len());
        let end = self.tail + self.step;
        if end >= self.delta || self.step >= STEP_MAX {
            let [asked, frontier] = [self.reach, self.tail].map(|place| self.base + place);
            return Followed::Escaped { origin: self.base, asked, frontier };
        }
        self.step *= 2;
        let span = Span { start: self.base + self.tail, end: self.base + end };
        if reach.plan_marked(span, Some(span.end - 1)).is_some() {
            self.tail = end;
        }
        Followed::Stride
    }

    /// The reader is `runs` runs farther on: learns from the one it left.
    fn begin_run(&mut self, runs: u64) {
        if self.is_probing {
            self.learn();
        }
        self.base += runs * self.delta;
        let left = self.planned.saturating_sub(runs);
        self.planned_pages = self.planned_pages * left / self.planned.max(1);
        self.planned = left;
        self.step = 1;
        self.window = self.window.max(WINDOW_MIN);
    }

    fn learn(&mut self) {
        if self.reach == self.run {
            self.confirmations = self.confirmations.saturating_add(1);
            return;
        }
        self.confirmations = 0;
        self.run = self.reach.max(self.run / 2).max(1);
    }

    fn refill(&mut self, reach: &mut Reach<'_, '_>) {
        let fitting = reach.distance() / self.run;
        while self.planned < self.window.min(fitting.max(1)) {
            let start = self.base + (self.planned + 1) * self.delta;
            let span = Span { start, end: start.saturating_add(self.run) };
            if start >= reach.limit() {
                return;
            }
            let Some(end) = reach.plan_marked(span, Some(start)) else { return };
            self.planned_pages += end - start;
            self.planned += 1;
        }
    }
}

/// Runs planned ahead once the second one was met: one to consume, one on its way.
const WINDOW_MIN: u64 = 2;

/// Most runs planned ahead: the queue depth at which flash delivers its random reads.
const WINDOW_MAX: u64 = 32;

/// How often the length of a run must be right before its last page is no longer marked.
const CONFIRMATIONS: u32 = 2;

/// A run that is 64 pages longer than the last one is no run of a stride.
const STEP_MAX: u64 = 64;
