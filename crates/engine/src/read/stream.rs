//! Read stream: sequential reading with readahead, shared by blocking and async readers.
//!
//! ```text
//!   step ─┬─ bytes at the position ─────────────────────────────────────────► Ready
//!         ├─ top_up: policy ─► extent ─► resident? note it : frames ─► submit
//!         └─ first of the ahead queue ─┬─ Resident ─► copy from the page cache ─► current
//!                                      ├─ Pending, done ─► publish ─► current
//!                                      └─ Pending ─► Io: the caller waits, blocking or as a task
//!   consume ─► extent used up ─► frames back ─► top_up (refilled one by one, never a window at once)
//! ```
//!
//! Owns: the queue of extents ahead, the extent being consumed, the position.
//! Does not own: the policy (`headwater-core`), memory and slots (the engine's).
//! Invariants: I6 readahead that finds no frame or slot gives up, demand waits; I8 a fill shows nothing from before a write of
//! the same engine that had returned when the fill began; I9 an error of readahead is dropped, the demand read retries and
//! reports; I10 bytes beyond the end never show.
//! Blocking: `step` does not wait for the device, but on file systems without non-blocking reads the copy of a resident extent
//! may be slow.
//! Hot path: no system call, copy or allocation while the current extent has bytes (the coarse clock is read); a submission an extent.

mod extents;
mod overtaken;
mod resident;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headwater_core::plan::Run;
use headwater_core::readahead::{ReadaheadLimits, SequentialStream};
use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Direction, Finished, Plug, Transfer, Urgency};

use crate::base::error::Result;
use crate::base::listeners::defer;
use crate::engine::frames;
use crate::engine::handle::{Asking, READABLE_BYTES_MAX, Source, Whence};
use crate::engine::shortage::{Shortage, Waiting};
use crate::inode::Inode;
use crate::inode::dirty::ContentVersion;
use extents::{Ahead, Asked, Current};
use overtaken::{Fill, Polled};

pub(crate) struct ReadStream {
    source: Arc<Source>,
    policy: SequentialStream,
    /// Extents from the current one on, in file order, without gaps.
    ahead: VecDeque<Ahead>,
    current: Option<Current>,
    position_bytes: u64,
    /// Reads end here.
    bound_bytes: u64,
    /// Length of the file at the last check.
    length_bytes: u64,
    /// Up to here the page cache lacked bytes that it had seemed to hold, so the device is asked.
    distrust_end_bytes: u64,
    /// Consecutive extents that were planned as resident.
    resident_extents: u32,
    /// Copied at once from a resident extent.
    copy_bytes: u64,
    /// Number of fills begun so far.
    fills: u64,
    /// Version of the file's contents when bytes were last requested.
    fill_moment: Option<ContentVersion>,
    /// A task has requested bytes and waits for them.
    polled: Option<Polled>,
    /// Whether the wait for the first extent ahead has been counted.
    wait_counted: bool,
    /// An async task's wait for memory.
    shortage: Option<Waiting>,
    /// An async task's question to the server of the file.
    asking: Option<Question>,
}

/// A question to the server of the file.
struct Question {
    asking: Asking,
    began: Instant,
    is_repeated: bool,
}

impl Question {
    fn new(source: &Source) -> Question {
        Question { began: Instant::now(), asking: source.ask_server(), is_repeated: false }
    }
}

/// What the caller has to do next.
enum Step {
    /// Take the bytes at the position.
    Ready,
    /// Stop: the file ends at the position.
    End,
    /// Wait for the first extent ahead.
    Io,
    /// Wait for memory.
    Memory(Shortage),
}

/// Why an extent was not started.
enum Obstacle {
    Memory,
    Rejected(io::Error),
}

/// The outcome of an extent that arrived.
enum Published {
    /// Its bytes are the current ones, or the extent has to be requested again: take another step.
    Continue,
    /// The file ends at the position.
    End,
}

impl ReadStream {
    /// Reads from byte 0 to the end, with growing readahead.
    /// `own` is for a stream that always reads as far ahead, with requests as large, as these limits allow.
    pub(crate) fn new(source: &Arc<Source>, own: Option<ReadaheadLimits>) -> ReadStream {
        let alignment = Self::alignment(source);
        let policy = match own {
            Some(limits) => SequentialStream::steady(0, limits, alignment),
            None => SequentialStream::new(0, source.readahead, alignment),
        };
        Self::with_policy(source, policy, ByteRange::new(0, READABLE_BYTES_MAX))
    }

    /// Reads one range that the caller wants completely: in flight at once as far as limits allow.
    pub(crate) fn whole(source: &Arc<Source>, range: ByteRange) -> ReadStream {
        let policy = SequentialStream::whole(range, source.readahead, Self::alignment(source));
        Self::with_policy(source, policy, range)
    }

    fn with_policy(source: &Arc<Source>, policy: SequentialStream, range: ByteRange) -> ReadStream {
        frames::expect(source.shared(), range.clip(source.open().opened().stamp.length_bytes).len());
        ReadStream {
            source: source.clone(),
            policy,
            ahead: VecDeque::new(),
            current: None,
            position_bytes: range.start,
            bound_bytes: range.end,
            length_bytes: 0,
            distrust_end_bytes: 0,
            resident_extents: 0,
            copy_bytes: RESIDENT_COPY_BYTES,
            fills: 0,
            fill_moment: None,
            polled: None,
            wait_counted: false,
            shortage: None,
            asking: None,
        }
    }

    /// Extents begin and end at page boundaries, as the page cache's residency does.
    fn alignment(source: &Source) -> Alignment {
        source.offset_alignment().max(Alignment::PAGE)
    }

    /// See [`Reader::will_read`](crate::Reader::will_read).
    pub(crate) fn expect(&mut self, bytes: u64) {
        self.policy.expect(bytes);
    }

    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    pub(crate) fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// Bytes available at the position; empty when the next call must wait or the file ends.
    pub(crate) fn chunk(&self) -> &[u8] {
        let Some(current) = &self.current else { return &[] };
        let mut skip_bytes = (self.position_bytes - current.start_bytes) as usize;
        let left_bytes = (current.range.end.min(self.bound_bytes) - self.position_bytes) as usize;
        for extent in &current.extents {
            if skip_bytes < extent.len() {
                return &extent[skip_bytes..extent.len().min(skip_bytes + left_bytes)];
            }
            skip_bytes -= extent.len();
        }
        &[]
    }

    /// Moves the position. A consumed extent returns to the arena before the next one is requested.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.chunk().len() || bytes == 0, "no more is consumed than was shown");
        self.position_bytes += bytes as u64;
        if self.current.as_ref().is_some_and(|current| self.position_bytes >= current.range.end) {
            self.finish_current();
            self.top_up();
        }
    }

    /// Takes the chunk as [`Bytes`] that share its frame, and moves past it. `None` when it is empty.
    pub(crate) fn take_chunk(&mut self) -> Option<Bytes> {
        let length = self.chunk().len();
        let current = self.current.as_mut().filter(|_| length > 0)?;
        let mut extent = current.take_first();
        while current.start_bytes <= self.position_bytes {
            // Extents that `consume` has passed stay in place until now.
            extent = current.take_first();
        }
        let skip_bytes = extent.len() - (current.start_bytes - self.position_bytes) as usize;
        let bytes = self.source.lend(extent, skip_bytes..skip_bytes + length);
        self.position_bytes += length as u64;
        if self.position_bytes >= current.range.end {
            self.finish_current();
            self.top_up();
        }
        Some(bytes)
    }

    /// Waits for bytes at the position; an empty slice means the end of the file.
    pub(crate) fn fill_blocking(&mut self) -> Result<&[u8]> {
        self.begin_fill(Fill::First)?;
        loop {
            match self.step()? {
                Step::Ready | Step::End => return Ok(self.chunk()),
                Step::Io => self.wait_for_first(),
                Step::Memory(shortage) => shortage.wait(self.source.shared()),
            }
        }
    }

    /// As [`ReadStream::fill_blocking`], for a task, which is woken.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let polled = self.polled.take();
        // A task may have given up long ago, so that this is another read. On a slow device the file is checked once more at the most.
        let is_left = |polled: &Polled| !polled.is_repeated && polled.began.elapsed() > ANSWER_AGE_MAX;
        let is_repeated = polled.as_ref().is_some_and(is_left);
        let mut fill = if polled.is_some() && !is_repeated { Fill::Again } else { Fill::First };
        if fill == Fill::First && self.source.open.may_not_answer() {
            self.source.check_read(self.position_bytes)?;
            ready!(self.poll_server(context))?;
            fill = Fill::Checked;
        }
        self.begin_fill(fill)?;
        let filled = self.poll_steps(context);
        let as_before = polled.filter(|_| !is_repeated);
        self.polled = filled
            .is_pending()
            .then(|| as_before.unwrap_or_else(|| Polled { began: Instant::now(), is_repeated }));
        filled
    }

    /// Waits for the server's answer, if it is to be asked.
    fn poll_server(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.asking.is_none() && self.is_server_to_be_asked() {
            self.asking = Some(Question::new(&self.source));
        }
        while let Some(question) = &mut self.asking {
            let asked = ready!(question.asking.as_mut().poll(context));
            // A task may have left the question, so that the answer is from long ago. A slow server is asked once more at the most.
            let is_left = !question.is_repeated && question.began.elapsed() > ANSWER_AGE_MAX;
            self.asking = is_left.then(|| Question { is_repeated: true, ..Question::new(&self.source) });
            asked.map_err(|error| self.source.length_error(error))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether this fill would block this thread until the server has answered.
    fn is_server_to_be_asked(&self) -> bool {
        let is_due = |inode: &Arc<Inode>| inode.is_to_be_asked(self.source.revalidate_after);
        self.position_bytes >= self.length_bytes || self.source.known().is_some_and(is_due)
    }

    fn poll_steps(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if let Some(shortage) = &mut self.shortage {
                ready!(Future::poll(Pin::new(shortage), context));
                self.shortage = None;
            }
            match self.step() {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Step::Ready | Step::End) => return Poll::Ready(Ok(())),
                Ok(Step::Io) => ready!(self.poll_first(context)),
                Ok(Step::Memory(shortage)) => self.shortage = Some(shortage.begin(self.source.shared())),
            }
        }
    }

    /// Moves to a position, at most the largest file offset. Keeps extents ahead that contain it.
    pub(crate) fn go_to(&mut self, position_bytes: u64) {
        (self.shortage, self.polled) = (None, None);
        if position_bytes == self.position_bytes {
            // What is announced for this place stays.
            return;
        }
        if let Some(current) = &self.current {
            // Extents before the position may have been lent out.
            if position_bytes >= current.start_bytes && current.range.contains(position_bytes) {
                self.position_bytes = position_bytes;
                return;
            }
            self.finish_current();
        }
        self.position_bytes = position_bytes;
        self.wait_counted = false;
        while self.ahead.front().is_some_and(|ahead| ahead.range().end <= position_bytes) {
            self.ahead.pop_front();
        }
        let leads_there = self.ahead.front().is_some_and(|ahead| ahead.range().contains(position_bytes));
        if leads_there && position_bytes >= self.policy.position_bytes() {
            self.catch_up();
        } else {
            self.ahead.clear();
            self.policy.restart(position_bytes);
        }
    }

    fn step(&mut self) -> Result<Step> {
        loop {
            if !self.chunk().is_empty() {
                return Ok(Step::Ready);
            }
            if self.position_bytes >= self.bound_bytes {
                return Ok(Step::End);
            }
            if self.ahead.is_empty() {
                if self.is_at_end()? {
                    return Ok(Step::End);
                }
                if let Some(shortage) = self.start_demand()? {
                    return Ok(Step::Memory(shortage));
                }
            }
            match self.ahead.pop_front().expect("a demanded extent was started") {
                Ahead::Resident(range) => {
                    if let Some(shortage) = self.copy_resident(range) {
                        return Ok(Step::Memory(shortage));
                    }
                }
                Ahead::Pending { asked, completion } if completion.is_done() => {
                    let finished = completion.wait();
                    self.ahead.push_front(Ahead::Arrived { asked, finished });
                }
                Ahead::Arrived { asked, finished } => {
                    self.wait_counted = false;
                    if let Published::End = self.publish(asked, finished)? {
                        return Ok(Step::End);
                    }
                }
                pending @ Ahead::Pending { .. } => {
                    self.ahead.push_front(pending);
                    self.count_wait();
                    return Ok(Step::Io);
                }
            }
        }
    }

    /// Tells the policy, once, that the consumer waits; the extents that it adds are in flight before the wait begins.
    fn count_wait(&mut self) {
        if !std::mem::replace(&mut self.wait_counted, true) {
            self.policy.on_wait();
            self.top_up();
        }
    }

    fn wait_for_first(&mut self) {
        if let Some(Ahead::Pending { asked, completion }) = self.ahead.pop_front() {
            let finished = completion.wait();
            self.ahead.push_front(Ahead::Arrived { asked, finished });
        }
    }

    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(Ahead::Pending { asked, completion }) = self.ahead.front_mut() {
            let finished = ready!(completion.poll(context));
            let arrived = Ahead::Arrived { asked: *asked, finished };
            self.ahead[0] = arrived;
        }
        Poll::Ready(())
    }

    /// Whether the file ends at the position, as far as its length shows. Files of length 0 may have contents (`/proc`), so they
    /// are read.
    fn is_at_end(&mut self) -> Result<bool> {
        // It may have been truncated since: within a dirty page nothing else shows that.
        let is_behind = |inode: &Arc<Inode>| self.position_bytes >= inode.length_bytes();
        if self.position_bytes >= self.length_bytes || self.source.known().is_some_and(is_behind) {
            self.length_bytes = self.source.length_bytes()?;
        }
        Ok(self.length_bytes > 0 && self.position_bytes >= self.length_bytes)
    }

    /// The limit of planned extents.
    fn end_bytes(&self) -> u64 {
        let length_bytes = match self.length_bytes {
            0 => self.position_bytes.saturating_add(UNSIZED_STEP_BYTES),
            known => known,
        };
        length_bytes.min(self.bound_bytes)
    }

    /// Plans and starts readahead, with one system call. Gives up when memory or places in the queue are short.
    fn top_up(&mut self) {
        let source = self.source.clone();
        let _deferral = defer();
        self.plan_ahead(&mut source.shared().driver.plug());
    }

    fn plan_ahead(&mut self, plug: &mut Plug<'_>) {
        let end_bytes = self.end_bytes();
        while let Some(extent) = self.policy.next_extent(end_bytes) {
            if self.start(extent, Urgency::Readahead, plug).is_err() {
                return self.policy.on_refused(extent);
            }
        }
    }

    /// Starts the extent at the position, then the policy's readahead. When memory is short, starts a single page; if even that
    /// fails, returns what to wait for.
    fn start_demand(&mut self) -> Result<Option<Shortage>> {
        let source = self.source.clone();
        let _deferral = defer();
        let mut plug = source.shared().driver.plug();
        let extent = self.next_demand();
        if self.start(extent, Urgency::Demand, &mut plug).is_err() {
            let shortage = Shortage::listen(source.shared());
            self.policy.on_failed(self.position_bytes);
            let page = self.next_demand();
            if let Err(obstacle) = self.start(page, Urgency::Demand, &mut plug) {
                self.policy.on_failed(self.position_bytes);
                return match obstacle {
                    Obstacle::Memory => Ok(Some(shortage)),
                    Obstacle::Rejected(error) => Err(self.source.read_error(self.position_bytes, error)),
                };
            }
        }
        self.plan_ahead(&mut plug);
        Ok(None)
    }

    fn next_demand(&mut self) -> ByteRange {
        // No extent is ahead, so those that the policy counts as submitted are gone: a tail page that has grown since, or extents
        // behind a failed one.
        if self.policy.position_bytes() != self.position_bytes
            || self.policy.submitted_bytes() > self.position_bytes
        {
            self.policy.resume_at(self.position_bytes);
        }
        self.policy
            .next_extent(self.end_bytes())
            .expect("the position is before the end, and nothing is ahead")
    }

    /// Starts an extent: dirty parts come from the cache, the rest from wherever it is. Starts all of it or nothing.
    fn start(
        &mut self,
        range: ByteRange,
        urgency: Urgency,
        plug: &mut Plug<'_>,
    ) -> std::result::Result<(), Obstacle> {
        let (before, mut at_bytes) = (self.ahead.len(), range.start);
        while at_bytes < range.end {
            // Before the look for dirty bytes: what is written after that look is a change since this version.
            let version = self.source.known().map(|inode| inode.dirty.version());
            let (part, whence) = self.source.first_part(ByteRange::new(at_bytes, range.end));
            let started = match whence {
                Whence::Cache => {
                    self.ahead.push_back(Ahead::Resident(part));
                    Ok(())
                }
                Whence::Anywhere => self.start_part(part, version, urgency, plug),
            };
            if let Err(obstacle) = started {
                self.ahead.truncate(before);
                return Err(obstacle);
            }
            at_bytes = part.end;
        }
        Ok(())
    }

    fn start_part(
        &mut self,
        range: ByteRange,
        version: Option<ContentVersion>,
        urgency: Urgency,
        plug: &mut Plug<'_>,
    ) -> std::result::Result<(), Obstacle> {
        let (file, shared) = (&self.source, self.source.shared());
        let trusted = range.start >= self.distrust_end_bytes;
        if trusted && file.is_resident(self.residency_sample(range)) {
            self.resident_extents = self.resident_extents.saturating_add(1);
            self.ahead.push_back(Ahead::Resident(range));
            return Ok(());
        }
        self.resident_extents = 0;
        let length_bytes = range.len() as usize;
        let extents = frames::allocate_run(shared, length_bytes, for_memory(length_bytes, urgency))
            .ok_or(Obstacle::Memory)?;
        let request = Transfer {
            direction: Direction::Read,
            file: file.open.clone(),
            route: file.device_route(),
            offset_bytes: range.start,
            length_bytes,
            extents,
        };
        let completion =
            plug.submit(request, urgency).map_err(|rejected| Obstacle::Rejected(rejected.into()))?;
        self.ahead.push_back(Ahead::Pending {
            asked: Asked { range, urgency, version, fill: self.fills },
            completion,
        });
        Ok(())
    }

    /// Makes an extent from the device current, as far as the file reached.
    fn publish(&mut self, asked: Asked, finished: Finished) -> Result<Published> {
        let Asked { range, urgency, version, fill } = asked;
        if fill != self.fills && self.is_overtaken(asked) {
            self.forget_ahead();
            return Ok(Published::Continue);
        }
        let read_bytes = match finished.result {
            Ok(read_bytes) => read_bytes as u64,
            Err(error) => return self.retry_or_report(range, urgency, error),
        };
        assert!(range.start <= self.position_bytes, "extents follow each other without gaps");
        let wanted = ByteRange::new(self.position_bytes, range.end);
        let valid = Run { range, wanted }.delivered(read_bytes);
        if valid.is_empty() {
            if let Some(error) = finished.stopped_by {
                return self.retry_or_report(range, urgency, error);
            }
            // The file ended before the position when this was read, which may be long ago if it was read ahead, or for a fill
            // that was abandoned.
            self.forget_ahead();
            let is_over = urgency == Urgency::Demand && fill == self.fills;
            return Ok(if is_over { Published::End } else { Published::Continue });
        }
        if valid.end < range.end && valid.end != self.length_bytes {
            // Shorter than the known length: later extents were planned for the longer file, or lie behind an error.
            self.ahead.clear();
            self.policy.resume_at(valid.end);
        }
        self.current =
            Some(Current { extents: finished.extents, start_bytes: range.start, range: valid, version });
        Ok(Published::Continue)
    }

    /// Reports an error only for a single page on demand. Larger or earlier reads are retried in pages, so that the bytes before
    /// a bad sector arrive and the error names its offset.
    fn retry_or_report(&mut self, range: ByteRange, urgency: Urgency, error: io::Error) -> Result<Published> {
        self.ahead.clear();
        self.policy.on_failed(self.position_bytes);
        let smallest = range.len() <= Self::alignment(&self.source).get();
        if smallest && urgency == Urgency::Demand {
            return Err(self.source.read_error(self.position_bytes.max(range.start), error));
        }
        Ok(Published::Continue)
    }

    fn forget_ahead(&mut self) {
        self.ahead.clear();
        self.policy.resume_at(self.position_bytes);
    }

    fn finish_current(&mut self) {
        self.current = None;
        self.copy_bytes = (self.copy_bytes * 2).min(RESIDENT_COPY_BYTES);
        self.catch_up();
    }

    /// Tells the policy how far the consumer has come.
    fn catch_up(&mut self) {
        let (policy_bytes, ahead_bytes) = (self.policy.position_bytes(), self.policy.submitted_bytes());
        if (policy_bytes..=ahead_bytes).contains(&self.position_bytes) {
            self.policy.on_consumed(self.position_bytes - policy_bytes);
        }
    }
}

/// Allocation urgency of a stream: larger requests, which can fall back to single pages, leave the reserve to these. So, however
/// much idle readers of one thread hold, another reader gets its next bytes.
fn for_memory(bytes: usize, urgency: Urgency) -> Urgency {
    if bytes as u64 > PAGE_SIZE_BYTES { Urgency::Readahead } else { urgency }
}

/// A task that waits is polled sooner.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(1);

/// Request size for files without a length, such as those in `/proc`: more than nearly all of them hold.
const UNSIZED_STEP_BYTES: u64 = 64 << 10;

/// Copied at once from the kernel's page cache: large beside the cost of a system call, small enough to stay in the processor's
/// second-level cache until the consumer reads it.
const RESIDENT_COPY_BYTES: u64 = 256 << 10;

/// The copy size beside a writer of the same bytes, which forces the stream to copy them again.
const COPY_BYTES_MIN: u64 = 16 << 10;
