//! Read stream: sequential reading with readahead, the part that blocking and async readers share.
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
//! Invariants: I6 readahead that finds no frame or slot gives up, demand waits; I9 an error in what was read ahead
//! is dropped, the demand read is done again and reports; I10 bytes beyond the end never show.
//! Blocking: `step` waits for no device, except that a file system without non-blocking reads may make a resident
//! copy slow.
//! Hot path: no syscall, copy or allocation while the current extent has bytes; one submit an extent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use headwater_core::plan::Run;
use headwater_core::readahead::SequentialStream;
use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Completion, EventListener, Extents, Finished, Listener, Operation, Request, Urgency};

use crate::error::Result;
use crate::file::{File, Inner};

pub(crate) struct ReadStream {
    file: Arc<Inner>,
    policy: SequentialStream,
    /// Extents from the current one on, in file order, without gaps.
    ahead: VecDeque<Ahead>,
    current: Option<Current>,
    position_bytes: u64,
    /// Never read beyond this.
    bound_bytes: u64,
    /// Length of the file when last looked at.
    length_bytes: u64,
    /// What an async task is waiting for besides I/O.
    listener: Option<EventListener>,
}

/// An extent that was planned and not consumed yet.
enum Ahead {
    /// The kernel's page cache held it when it was planned.
    Resident(ByteRange),
    /// On its way from the device.
    Pending { range: ByteRange, completion: Completion, urgency: Urgency },
    /// Arrived while it was waited for.
    Arrived { range: ByteRange, finished: Finished, urgency: Urgency },
}

/// The extent being consumed.
struct Current {
    extents: Extents,
    /// File offset of the first byte in `extents`.
    start_bytes: u64,
    /// File bytes that are valid.
    range: ByteRange,
}

/// What a caller has to do next.
enum Step {
    /// There are bytes at the position.
    Ready,
    /// The file ends at the position.
    End,
    /// Wait for the first extent ahead.
    Io,
    /// Wait for memory or a slot.
    Room(EventListener),
}

/// Why an extent was not started.
enum Obstacle {
    Memory,
    Slot,
}

impl ReadStream {
    /// From byte 0 to the end, ramping up.
    pub(crate) fn new(file: &File) -> ReadStream {
        let (limits, alignment) = (file.inner.shared().readahead, Self::alignment(&file.inner));
        Self::with_policy(file, SequentialStream::new(0, limits, alignment), ByteRange::new(0, u64::MAX))
    }

    /// One range that the caller wants all of: in flight at once as far as limits allow.
    pub(crate) fn whole(file: &File, range: ByteRange) -> ReadStream {
        let (limits, alignment) = (file.inner.shared().readahead, Self::alignment(&file.inner));
        Self::with_policy(file, SequentialStream::whole(range, limits, alignment), range)
    }

    fn with_policy(file: &File, policy: SequentialStream, range: ByteRange) -> ReadStream {
        ReadStream {
            file: file.inner.clone(),
            policy,
            ahead: VecDeque::new(),
            current: None,
            position_bytes: range.start,
            bound_bytes: range.end,
            length_bytes: 0,
            listener: None,
        }
    }

    /// Extents begin and end at pages, so that resident ones can be told apart.
    fn alignment(file: &Inner) -> Alignment {
        file.offset_alignment().max(Alignment::PAGE)
    }

    pub(crate) fn file(&self) -> &Inner {
        &self.file
    }

    pub(crate) fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// Bytes at the position that are there now; empty when the next call must wait or the file ends.
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

    /// Moves the position. An extent used up goes back to the pool before its successor is asked for.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.chunk().len() || bytes == 0, "no more is consumed than was shown");
        self.position_bytes += bytes as u64;
        if self.current.as_ref().is_some_and(|current| self.position_bytes >= current.range.end) {
            self.finish_current();
            // An obstacle here is met again, and reported, by the next `step`.
            let _ = self.top_up();
        }
    }

    /// The chunk as [`Bytes`] that share its frame, consumed. `None` when there is none.
    pub(crate) fn take_chunk(&mut self) -> Option<Bytes> {
        let length = self.chunk().len();
        let current = self.current.as_mut().filter(|_| length > 0)?;
        let skip_bytes = (self.position_bytes - current.start_bytes) as usize;
        // Extents are given away front to back, so the one at the position is the first.
        let extent = current.extents.remove(0);
        current.start_bytes += extent.len() as u64;
        let bytes = self.file.engine.lend(extent, skip_bytes..skip_bytes + length);
        self.position_bytes += length as u64;
        if self.position_bytes >= current.range.end {
            self.finish_current();
            let _ = self.top_up();
        }
        Some(bytes)
    }

    /// Waits for bytes at the position; an empty slice is the end of the file.
    pub(crate) fn fill_blocking(&mut self) -> Result<&[u8]> {
        loop {
            match self.step()? {
                Step::Ready | Step::End => return Ok(self.chunk()),
                Step::Io => self.wait_for_first(),
                Step::Room(listener) => listener.wait(),
            }
        }
    }

    /// As [`ReadStream::fill_blocking`], but wakes the task.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if let Some(listener) = &mut self.listener {
                ready!(Future::poll(Pin::new(listener), context));
                self.listener = None;
            }
            match self.step() {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Step::Ready | Step::End) => return Poll::Ready(Ok(())),
                Ok(Step::Io) => ready!(self.poll_first(context)),
                Ok(Step::Room(listener)) => self.listener = Some(listener),
            }
        }
    }

    /// Fills `buffer` straight from the kernel's page cache when the next extent is there: one copy instead of two.
    /// `None` when it is not, or bytes are already at hand.
    pub(crate) fn read_resident_into(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        if self.current.is_some() || !matches!(self.first_ahead()?, Some(Ahead::Resident(_))) {
            return Ok(None);
        }
        let Some(Ahead::Resident(range)) = self.ahead.front() else { return Ok(None) };
        let left_bytes = range.end.min(self.bound_bytes) - self.position_bytes;
        let length = buffer.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
        let (end_bytes, position_bytes) = (range.end, self.position_bytes);
        match self.file.read_resident(&mut buffer[..length], position_bytes)? {
            None | Some(0) => Ok(None),
            Some(read_bytes) => {
                self.position_bytes += read_bytes as u64;
                if self.position_bytes >= end_bytes {
                    self.ahead.pop_front();
                    self.catch_up();
                }
                Ok(Some(read_bytes))
            }
        }
    }

    /// Goes to `position_bytes`, keeping what is ahead if that is where it leads.
    pub(crate) fn seek(&mut self, position_bytes: u64) {
        self.listener = None;
        if let Some(current) = &self.current {
            // Extents before the position may have been given away.
            if position_bytes >= current.start_bytes && current.range.contains(position_bytes) {
                self.position_bytes = position_bytes;
                return;
            }
            self.finish_current();
        }
        self.position_bytes = position_bytes;
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
            if self.first_ahead()?.is_none() {
                if self.is_at_end()? {
                    return Ok(Step::End);
                }
                if let Some(obstacle) = self.start_demand() {
                    return Ok(Step::Room(obstacle));
                }
            }
            match self.ahead.pop_front() {
                None => {}
                Some(Ahead::Resident(range)) => {
                    if let Some(listener) = self.copy_resident(range)? {
                        return Ok(Step::Room(listener));
                    }
                }
                Some(Ahead::Arrived { range, finished, urgency }) => {
                    if self.publish(range, finished, urgency)? == Published::End {
                        return Ok(Step::End);
                    }
                }
                Some(pending @ Ahead::Pending { .. }) => {
                    self.ahead.push_front(pending);
                    return Ok(Step::Io);
                }
            }
        }
    }
}
