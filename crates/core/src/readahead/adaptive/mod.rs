//! Adaptive readahead: finds the streams of a file and reads each ahead in its own way.
//!
//! ```text
//!   access ─► claimed by a stream? ─ yes ─► follow: Run, Stride ────────────► extents ahead
//!              │ no
//!              ├─ mark of a forgotten stream ─► adopt: Run ─────────────────► extents ahead
//!              ├─ goes on from a new one ─► Run
//!              ├─ third of a progression ─► Run or Stride, up or down
//!              ├─ first page of the file, or credit to guess with ─► Run
//!              └─ anything else ─► New: what is demanded, no more
//! ```
//!
//! A table of [`STREAMS_MAX`] streams. New ones replace new ones as long as there are [`NEW_MIN`] of them, and
//! the least recently used otherwise, so random reads between those of a stream do not push it out.
//!
//! Guesses: a first read in the middle of a file is followed by as much again, if it is large and there is
//! credit. Credit is spent by guessing and given back by being right, and earned by what streams consume, so
//! what is guessed in vain is bounded by a constant and a part of what was useful.
//!
//! Sources: state, marks and first sizes after Linux (`mm/readahead.c`); size and distance after PostgreSQL
//! (`src/backend/storage/aio/read_stream.c`).
//!
//! Owns: the table, the credit, the share.
//!
//! Does not own: what the patterns plan.
//!
//! States of a stream: new -> run `[continued, progression]`; new -> stride `[progression]`; stride -> run
//! `[follow]`; run -> new `[follow]`; any -> forgotten `[insert, forget_stale]`.
//!
//! Invariants:
//!
//! - S1 What all streams have ahead is at most the share, or what a larger share allowed before.
//! - S2 A random read plans what it demands and nothing else, but for guesses within the credit.
//! - S3 An access moves at most one of the streams that exist.

mod direction;
mod issued;
mod reach;
mod run;
mod sizing;
mod starts;
mod stream;
mod stride;

use alloc::vec::Vec;
use core::time::Duration;

use super::limits::ReadaheadLimits;
use super::reads::{Planner, saturating_add};
use super::{Access, Advice, Lookup, Outcome, ReadId, ReadResult, first_absent};
use crate::units::{ByteRange, PAGE_SIZE_BYTES, PageIndex, PageRange};

use direction::{Direction, Span};
use issued::{Issue, Issued};
use reach::{Bounds, Tools};
use run::Run;
use sizing::Sizing;
use starts::{Progression, Starts};
use stream::{Pattern, Seen, Stream};
use stride::Stride;

/// The policy of one file.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    limits: ReadaheadLimits,
    /// What the share is now, at most that of the limits.
    share_bytes: u64,
    streams: Vec<Stream>,
    starts: Starts,
    issued: Issued,
    accesses: u64,
    serials: u64,
    credit_pages: u64,
    /// Handle and bytes of the request heard of last.
    request: Option<(u32, ByteRange)>,
}

/// How a new stream begins.
struct Beginning {
    direction: Direction,
    pattern: Pattern,
    guess_pages: u64,
}

impl Beginning {
    fn new_stream(access: &Access) -> Self {
        Self { direction: Direction::Up, pattern: Pattern::New(Seen::of(access)), guess_pages: 0 }
    }
}

impl Adaptive {
    pub(super) fn new(limits: ReadaheadLimits) -> Self {
        Self {
            limits,
            share_bytes: limits.share_bytes_max,
            streams: Vec::new(),
            starts: Starts::default(),
            issued: Issued::new(),
            accesses: 0,
            serials: 0,
            credit_pages: limits.size_pages_min().saturating_mul(CREDIT_SIZES),
            request: None,
        }
    }

    pub(super) fn on_read(
        &mut self,
        access: Access,
        advice: Advice,
        now: Duration,
        cache: &impl Lookup,
        planner: &mut Planner<'_>,
    ) {
        self.accesses += 1;
        self.demand(&access, now, cache, planner);
        self.forget_stale();
        if let Some(index) = self.claimant(&access, now) {
            self.follow(index, &access, now, planner);
        } else if matches!(access.outcome, Outcome::Hit | Outcome::PendingMarked) {
            self.adopt(&access, advice, now, cache, planner);
        } else {
            self.begin(&access, advice, now, planner);
        }
    }

    pub(super) fn complete(&mut self, id: ReadId, result: ReadResult, now: Duration) {
        let Some(issue) = self.issued.find(id) else { return };
        let (serial, span, submitted) = (issue.serial, issue.span, issue.submitted);
        if result == ReadResult::Read {
            self.issued.on_latency(now.saturating_sub(submitted));
        }
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.serial == serial) {
            stream.complete(span, result);
        }
    }

    pub(super) fn on_unused(&mut self, pages: PageRange) {
        for stream in &mut self.streams {
            let span = stream.direction.span(pages);
            match &mut stream.pattern {
                Pattern::Run(run) if span.start >= run.position && span.start < run.frontier => {
                    stream.sizing.on_thrashed();
                    return;
                }
                Pattern::Stride(stride) if stride.covers(span.start) => return stride.on_unused(),
                Pattern::Run(_) | Pattern::Stride(_) | Pattern::New(_) => {}
            }
        }
    }

    pub(super) fn on_dropped(&mut self, pages: PageRange) {
        for stream in &mut self.streams {
            let span = stream.direction.span(pages);
            if let Pattern::Run(run) = &mut stream.pattern {
                run.on_hole(span);
            }
        }
    }

    pub(super) fn set_share(&mut self, share_bytes: u64) {
        self.share_bytes = share_bytes.min(self.limits.share_bytes_max);
    }

    pub(super) fn ahead_pages(&self) -> u64 {
        self.streams.iter().map(Stream::ahead).sum()
    }

    pub(super) fn check(&self) {
        assert!(self.streams.len() <= STREAMS_MAX, "more streams than the table holds");
        assert!(self.ahead_pages() <= self.limits.share_bytes_max / PAGE_SIZE_BYTES, "S1");
        assert!(self.credit_pages <= self.credit_pages_max(), "more credit than there is");
        self.streams.iter().for_each(|stream| stream.sizing.check());
    }

    /// Plans what the request lacks, from the page in question on. Looked for once for each request, unless a
    /// page turns out to be missing: a long request that meets many marks does not look through its rest at each.
    fn demand(&mut self, access: &Access, now: Duration, cache: &impl Lookup, planner: &mut Planner<'_>) {
        let rest = PageRange::new(access.at, access.pages.end);
        let request = Some((access.handle, access.bytes));
        let is_known = core::mem::replace(&mut self.request, request) == request;
        let start = match access.outcome {
            Outcome::Miss => Some(access.at),
            _ if is_known => None,
            Outcome::Hit | Outcome::Pending | Outcome::PendingMarked => first_absent(rest, cache),
        };
        let Some(start) = start else { return };
        let first_id = *planner.next_id;
        planner.demand(PageRange::new(start, rest.end), None);
        let span = Span { start: start.get(), end: rest.end.get() };
        let ids = first_id..*planner.next_id;
        self.issued.push(Issue { ids, serial: NOBODY, span, submitted: now });
    }

    /// The stream that the access belongs to: the one touched last, should there be several.
    fn claimant(&self, access: &Access, now: Duration) -> Option<usize> {
        let claiming = (0..self.streams.len()).filter(|index| self.streams[*index].claims(access, now));
        claiming.max_by_key(|index| self.streams[*index].touched)
    }

    fn follow(&mut self, index: usize, access: &Access, now: Duration, planner: &mut Planner<'_>) {
        let bounds = self.bounds(index, now);
        let stream = &mut self.streams[index];
        let age = self.accesses - core::mem::replace(&mut stream.touched, self.accesses);
        if stream.is_doubtful(access, now, age) {
            // In a file most of which is read in no order, every page is met some time.
            stream.forget(access);
            return;
        }
        let is_start = stream.begins_run(access);
        let before = stream.position();
        stream.follow(access, now, bounds, Tools { planner, issued: &mut self.issued });
        let consumed =
            before.zip(stream.position()).map_or(0, |(before, after)| after.saturating_sub(before));
        let refund = if stream.is_proven() { core::mem::take(&mut stream.guess_pages) } else { 0 };
        self.earn(refund + consumed / EARN_DIVISOR);
        if is_start {
            self.note(access);
        }
    }

    /// Keeps the start of a run as a new stream as well: it may go on for itself while others take turns.
    fn note(&mut self, access: &Access) {
        let beginning = Beginning::new_stream(access);
        let stream = self.stream(beginning, access, Advice::Normal);
        self.insert(stream);
    }

    /// A mark that no stream knows: the stream was forgotten, or its pages are older than the policy.
    fn adopt(
        &mut self,
        access: &Access,
        advice: Advice,
        now: Duration,
        cache: &impl Lookup,
        planner: &mut Planner<'_>,
    ) {
        let end = access.pages.end;
        let scan = PageRange::new(end, saturating_add(end, self.limits.size_pages_max()).min(planner.end));
        let Some(frontier) = (end < planner.end).then(|| first_absent(scan, cache)).flatten() else { return };
        let request = Direction::Up.span(access.pages);
        let run = Run::adopted(request, frontier.get());
        let beginning = Beginning { direction: Direction::Up, pattern: Pattern::Run(run), guess_pages: 0 };
        self.insert_and_begin(beginning, access, advice, now, planner);
    }

    fn begin(&mut self, access: &Access, advice: Advice, now: Duration, planner: &mut Planner<'_>) {
        let beginning = match self.continued(access) {
            Continued::Stream(beginning) => beginning,
            Continued::Noted => return,
            Continued::Nothing => self.unrelated(access, advice, now, planner),
        };
        self.insert_and_begin(beginning, access, advice, now, planner);
    }

    /// Whether the access goes on from a new stream, and is evidence enough for a run.
    fn continued(&mut self, access: &Access) -> Continued {
        if self.streams.iter().any(|stream| is_same(stream, access)) {
            return Continued::Noted;
        }
        let Some(index) = self.newest(|stream| goes_on(stream, access)) else { return Continued::Nothing };
        let is_last = self.newest(|stream| stream.handle == access.handle) == Some(index);
        let Pattern::New(seen) = self.streams[index].pattern else { return Continued::Nothing };
        let is_next_byte = seen.bytes.start <= access.bytes.start && access.bytes.start <= seen.bytes.end;
        let is_certain = (is_last && is_next_byte) || seen.continued > 0;
        let cost = match is_next_byte {
            _ if is_certain => Some(0),
            true => self.spend(access.pages.len().get(), NEXT_COST_PAGES),
            false => None,
        };
        let Some(guess_pages) = cost else {
            let stream = &mut self.streams[index];
            stream.touched = self.accesses;
            stream.pattern = Pattern::New(Seen::after(&seen, access));
            return Continued::Noted;
        };
        self.streams.swap_remove(index);
        let run = Run::new(seen.pages.start.get(), Direction::Up.span(access.pages));
        Continued::Stream(Beginning { direction: Direction::Up, pattern: Pattern::Run(run), guess_pages })
    }

    /// How a read begins that belongs to nothing known.
    fn unrelated(
        &mut self,
        access: &Access,
        advice: Advice,
        now: Duration,
        planner: &mut Planner<'_>,
    ) -> Beginning {
        let start = access.pages.start;
        let progression = self.starts.progression(start.get());
        self.starts.push(start.get());
        let spent = self.spend_for_start(access);
        if let Some(progression) = progression {
            let beginning = self.pattern_of(progression, access);
            if !matches!(beginning.pattern, Pattern::Stride(_)) {
                self.earn(spent.unwrap_or(0));
                return beginning;
            }
            self.insert_and_begin(beginning, access, advice, now, planner);
        }
        let Some(guess_pages) = spent else { return Beginning::new_stream(access) };
        let run = Run::new(start.get(), Direction::Up.span(access.pages));
        Beginning { direction: Direction::Up, pattern: Pattern::Run(run), guess_pages }
    }

    /// What a guess costs that this read begins a run; nothing at the first page of the file. `None` if the
    /// read is too small or the credit too low.
    fn spend_for_start(&mut self, access: &Access) -> Option<u64> {
        let requested = access.pages.len().get();
        if access.pages.start == PageIndex::new(0) {
            return Some(0);
        }
        if requested < GUESS_PAGES_MIN {
            return None;
        }
        self.spend(requested, self.limits.size_pages_min())
    }

    /// A run if the gaps are cheaper to read than to skip, else a stride.
    fn pattern_of(&self, progression: Progression, access: &Access) -> Beginning {
        let (direction, delta) = match progression {
            Progression::Up(delta) => (Direction::Up, delta),
            Progression::Down(delta) => (Direction::Down, delta),
        };
        let request = direction.span(access.pages);
        let run_pages = self.run_before(request.start, delta, direction).max(request.len());
        let span_pages = self.limits.span_bytes_max / PAGE_SIZE_BYTES;
        let pattern = if delta <= run_pages.saturating_add(span_pages) {
            Pattern::Run(Run::new(request.start, request))
        } else {
            Pattern::Stride(Stride::new(request, delta, run_pages))
        };
        Beginning { direction, pattern, guess_pages: 0 }
    }

    /// How much was consumed of the run that began one delta before `start`.
    fn run_before(&self, start: u64, delta: u64, direction: Direction) -> u64 {
        let origin = start.checked_sub(delta);
        let lengths = self.streams.iter().filter_map(|stream| match &stream.pattern {
            Pattern::Run(run) if stream.direction == direction && Some(run.origin) == origin => {
                Some((run.position + 1).saturating_sub(run.origin))
            }
            _ => None,
        });
        lengths.max().unwrap_or(0)
    }

    fn insert_and_begin(
        &mut self,
        beginning: Beginning,
        access: &Access,
        advice: Advice,
        now: Duration,
        planner: &mut Planner<'_>,
    ) {
        let stream = self.stream(beginning, access, advice);
        let index = self.insert(stream);
        if matches!(self.streams[index].pattern, Pattern::New(_)) {
            return;
        }
        let bounds = self.bounds(index, now);
        let stream = &mut self.streams[index];
        stream.begin(access, now, bounds, Tools { planner, issued: &mut self.issued });
    }

    fn stream(&mut self, beginning: Beginning, access: &Access, advice: Advice) -> Stream {
        let sizing = if beginning.guess_pages > 0 { Sizing::guess } else { Sizing::new };
        self.serials += 1;
        Stream {
            serial: self.serials,
            touched: self.accesses,
            handle: access.handle,
            direction: beginning.direction,
            pattern: beginning.pattern,
            sizing: sizing(access.pages.len().get(), advice, &self.limits),
            guess_pages: beginning.guess_pages,
        }
    }

    fn insert(&mut self, stream: Stream) -> usize {
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
            return self.streams.len() - 1;
        }
        let unproven = self.streams.iter().filter(|stream| !stream.is_established()).count();
        let is_candidate = |stream: &Stream| unproven < NEW_MIN || !stream.is_established();
        let candidates = (0..self.streams.len()).filter(|index| is_candidate(&self.streams[*index]));
        let victim = candidates.min_by_key(|index| self.streams[*index].touched);
        let index = victim.expect("a full table has new streams, or all are candidates");
        self.streams[index] = stream;
        index
    }

    fn newest(&self, wanted: impl Fn(&Stream) -> bool) -> Option<usize> {
        let matching = (0..self.streams.len()).filter(|index| wanted(&self.streams[*index]));
        matching.max_by_key(|index| self.streams[*index].touched)
    }

    /// Streams without an access for long give back their part of the share.
    fn forget_stale(&mut self) {
        let oldest = self.accesses.saturating_sub(STALE_ACCESSES);
        self.streams.retain(|stream| stream.touched >= oldest || stream.ahead() == 0);
    }

    fn bounds(&self, index: usize, now: Duration) -> Bounds {
        let share = self.share_pages();
        let others = self.streams.iter().enumerate().filter(|(other, _)| *other != index);
        let active = 1 + others.filter(|(_, stream)| stream.ahead() > 0).count() as u64;
        let fair = share / (active + 1);
        let room = share.saturating_sub(self.ahead_pages());
        Bounds { room, fair, latency: self.issued.latency(), now }
    }

    fn share_pages(&self) -> u64 {
        self.share_bytes / PAGE_SIZE_BYTES
    }

    /// Takes credit for a guess of this many pages, which counts as at least `cost_min`, if there is enough.
    fn spend(&mut self, pages: u64, cost_min: u64) -> Option<u64> {
        let cost = pages.max(cost_min).min(self.credit_pages_max());
        self.credit_pages = self.credit_pages.checked_sub(cost)?;
        Some(cost)
    }

    fn credit_pages_max(&self) -> u64 {
        self.limits.size_pages_min().saturating_mul(CREDIT_SIZES)
    }

    fn earn(&mut self, pages: u64) {
        self.credit_pages = self.credit_pages.saturating_add(pages).min(self.credit_pages_max());
    }
}

/// What an access is to the new streams.
enum Continued {
    Stream(Beginning),
    /// Perhaps one of them goes on, or is only repeated: not certain enough to read ahead.
    Noted,
    Nothing,
}

impl Seen {
    pub(super) fn of(access: &Access) -> Self {
        Self { pages: access.pages, bytes: access.bytes, continued: 0 }
    }

    fn after(before: &Self, access: &Access) -> Self {
        Self { continued: before.continued + 1, ..Self::of(access) }
    }
}

/// Whether the access repeats the last request of a new stream: another reader waits for the same pages.
fn is_same(stream: &Stream, access: &Access) -> bool {
    matches!(&stream.pattern, Pattern::New(seen) if seen.pages == access.pages)
}

/// Whether the access begins within or right behind the last request of a new stream, and ends behind it.
fn goes_on(stream: &Stream, access: &Access) -> bool {
    let Pattern::New(seen) = &stream.pattern else { return false };
    seen.pages.start <= access.pages.start
        && access.pages.start <= seen.pages.end
        && access.pages.end > seen.pages.end
}

/// Streams of a file: more than the readers that a file has at once in the workloads known to the authors, and
/// few enough to go through at each miss.
const STREAMS_MAX: usize = 16;

/// New streams that are kept however many others there are: a stream that begins between random reads of four
/// others is still seen to go on.
const NEW_MIN: usize = 4;

/// A stream not heard of for this many accesses is over, or so slow that it can begin again.
const STALE_ACCESSES: u64 = 1024;

/// Shortest request after which a guess is made, in pages: 16 KiB. Random reads of
/// database pages or records are shorter.
const GUESS_PAGES_MIN: u64 = 4;

/// Credit of a new file, in smallest extents: enough for the first reads of four streams, 512 KiB by default.
const CREDIT_SIZES: u64 = 4;

/// What it costs at least to guess that a read goes on from an earlier one, with others between them, where that
/// one ended: a quarter of a guess without any evidence.
const NEXT_COST_PAGES: u64 = 8;

/// Of what streams consume, this part may be guessed in vain: less than two in a hundred pages, as each guess of 16
/// pages costs twice its length.
const EARN_DIVISOR: u64 = 64;

/// Serial of no stream.
const NOBODY: u64 = 0;
