//! sim: a driver that does real transfers in a seeded, adverse order, with short transfers and errors on demand.
//!
//! ```text
//!   start ──► pending (delay drawn) ──step──► one ready request, drawn ──► fault? short? ──► preadv ──► slot
//! ```
//!
//! Nothing runs by itself: a step is taken when somebody waits, polls or drops. With one thread, the same seed and the
//! same calls give the same order, delays and faults.
//!
//! Owns: the order, the injected faults.
//! Does not own: file contents (they are real files), request state (slots).
//! Invariants: I4 dropping the driver completes what is pending.
//! Locks: `state` while drawing, never across a transfer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use headwater_core::limits::Limits;
use headwater_core::units::ByteRange;
use smallvec::SmallVec;

use crate::file::{OpenFile, Route};
use crate::fork::ProcessMark;
use crate::pool::SlotId;
use crate::slots::{Attempt, Completed, Slots, Verdict};
use crate::sync::lock;
use crate::sys::{self, IoSegment, Operation};

/// How adverse the simulation is.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Decides order, delays, short transfers and transient errors.
    pub seed: u64,
    /// A request becomes ready after 0 to this many steps.
    pub delay_steps_max: u32,
    /// Attempts of a thousand that move only part of what is left.
    pub short_per_mille: u32,
    /// Attempts of a thousand that fail with EINTR, EAGAIN or ECANCELED.
    pub transient_per_mille: u32,
    /// Faults that a test adds and removes while the driver runs.
    pub control: SimControl,
}

impl SimOptions {
    /// A hostile device with this seed: everything is reordered, one attempt in five is short, one in ten transient.
    pub fn hostile(seed: u64) -> SimOptions {
        let control = SimControl::default();
        SimOptions { seed, delay_steps_max: 8, short_per_mille: 200, transient_per_mille: 100, control }
    }
}

/// A part of every file that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultRange {
    /// The bytes that cannot be transferred.
    pub range: ByteRange,
    /// The error number reported, such as `5` for EIO.
    pub errno: i32,
}

/// Changes a running simulation. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimControl {
    faults: Arc<Mutex<Vec<FaultRange>>>,
    attempts: Arc<AtomicU64>,
}

impl SimControl {
    /// Makes a range fail from now on.
    pub fn add_fault(&self, fault: FaultRange) {
        lock(&self.faults).push(fault);
    }

    /// Heals all ranges.
    pub fn clear_faults(&self) {
        lock(&self.faults).clear();
    }

    /// Attempts made so far.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    fn first_fault(&self, range: ByteRange) -> Option<FaultRange> {
        let faults = lock(&self.faults);
        faults
            .iter()
            .filter(|fault| !fault.range.intersect(range).is_empty())
            .min_by_key(|f| f.range.start)
            .copied()
    }
}

pub(crate) struct Sim {
    slots: Arc<Slots>,
    options: SimOptions,
    state: Mutex<State>,
    mark: ProcessMark,
}

struct State {
    random: u64,
    pending: Vec<Pending>,
}

struct Pending {
    id: SlotId,
    delay_steps: u32,
}

impl Sim {
    pub(crate) fn new(slots: &Arc<Slots>, options: &SimOptions) -> Sim {
        let state = State { random: options.seed, pending: Vec::with_capacity(slots.depth() as usize) };
        Sim {
            slots: slots.clone(),
            options: options.clone(),
            state: Mutex::new(state),
            mark: ProcessMark::here(),
        }
    }

    pub(crate) fn start(&self, id: SlotId) {
        let mut state = lock(&self.state);
        let delay_steps = state.below(u64::from(self.options.delay_steps_max) + 1) as u32;
        state.pending.push(Pending { id, delay_steps });
    }

    pub(crate) fn wait(&self, id: SlotId) {
        while !self.slots.is_done(id) {
            self.step();
        }
    }

    /// Time passes: every pending request comes one step nearer, and one that is ready is attempted.
    pub(crate) fn step(&self) {
        let chosen = lock(&self.state).choose();
        let Some(id) = chosen else {
            // Another thread may be attempting the last one.
            return thread::yield_now();
        };
        let mut completed = Completed::new();
        // SAFETY: a pending request has this driver, and one thread takes it out. The slot keeps the segments, their
        // memory and the open file until it is told the result.
        if unsafe { self.slots.attempt(id, self.transfer(id), &mut completed) } == Verdict::Again {
            return self.start(id);
        }
        let launched = self.slots.settle(&mut completed);
        launched.into_iter().for_each(|id| self.start(id));
        completed.conclude();
    }

    /// # Safety
    /// The caller is the driver of this request.
    unsafe fn transfer(&self, id: SlotId) -> io::Result<usize> {
        // SAFETY: as the caller promises.
        unsafe {
            let Attempt::Transfer(attempt) = self.slots.prepare(id) else { return Ok(0) };
            let file = BorrowedFd::borrow_raw(attempt.descriptor);
            let segments = SmallVec::from_slice(attempt.segments.as_slice());
            self.attempt(attempt.operation, file, segments, attempt.offset_bytes, attempt.alignment_bytes)
        }
    }

    /// Completes everything that is pending.
    pub(crate) fn settle(&self) {
        while !lock(&self.state).pending.is_empty() {
            self.step();
        }
    }

    pub(crate) fn read_blocking(
        &self,
        file: &OpenFile,
        route: Route,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> io::Result<usize> {
        let (mut done_bytes, mut fruitless_attempts) = (0, 0);
        while done_bytes < buffer.len() {
            let rest = &mut buffer[done_bytes..];
            let segment = IoSegment::new(NonNull::from(&mut *rest).cast(), rest.len());
            let (fd, at) = (file.descriptor(route), offset_bytes + done_bytes as u64);
            // SAFETY: the segment is the rest of the caller's buffer, borrowed for the whole call.
            let result = unsafe {
                let alignment_bytes = file.transfer_alignment_bytes(route);
                self.attempt(Operation::Read, fd, SmallVec::from_slice(&[segment]), at, alignment_bytes)
            };
            match result {
                Ok(0) => break,
                Ok(read_bytes) => (done_bytes, fruitless_attempts) = (done_bytes + read_bytes, 0),
                Err(error) if sys::is_transient(&error) && fruitless_attempts < Limits::RETRIES_MAX => {
                    fruitless_attempts += 1;
                }
                Err(_) if done_bytes > 0 => break,
                Err(error) => return Err(error),
            }
            if file.ends_transfer(route, done_bytes) {
                break;
            }
        }
        Ok(done_bytes)
    }

    /// One transfer as this device does it.
    ///
    /// # Safety
    /// As for [`sys::transfer`].
    unsafe fn attempt(
        &self,
        operation: Operation,
        file: BorrowedFd<'_>,
        mut segments: SmallVec<[IoSegment; 1]>,
        offset_bytes: u64,
        alignment_bytes: usize,
    ) -> io::Result<usize> {
        self.options.control.attempts.fetch_add(1, Ordering::Relaxed);
        let length_bytes: usize = segments.iter().map(IoSegment::length_bytes).sum();
        let mut moved_bytes = self.draw_length(length_bytes, alignment_bytes)?;
        let range = ByteRange::at(offset_bytes, moved_bytes as u64);
        if let Some(fault) = self.options.control.first_fault(range) {
            let good_bytes = fault.range.start.saturating_sub(offset_bytes) as usize;
            moved_bytes = good_bytes / alignment_bytes * alignment_bytes;
            if moved_bytes == 0 {
                return Err(io::Error::from_raw_os_error(fault.errno));
            }
        }
        truncate(&mut segments, moved_bytes);
        debug_assert!(file.as_raw_fd() >= 0);
        // SAFETY: the segments are those that the caller vouches for, or a part of them.
        unsafe { sys::transfer(operation, file, &segments, offset_bytes) }
    }

    /// Everything, or a transient error, or an aligned part.
    fn draw_length(&self, length_bytes: usize, alignment_bytes: usize) -> io::Result<usize> {
        let mut state = lock(&self.state);
        if state.below(1000) < u64::from(self.options.transient_per_mille) {
            let errno = [libc::EINTR, libc::EAGAIN, libc::ECANCELED][state.below(3) as usize];
            return Err(io::Error::from_raw_os_error(errno));
        }
        let units = length_bytes / alignment_bytes;
        if units > 1 && state.below(1000) < u64::from(self.options.short_per_mille) {
            return Ok((1 + state.below(units as u64 - 1) as usize) * alignment_bytes);
        }
        Ok(length_bytes)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // In a forked child, a thread that is gone may hold the lock, or be at the last request.
            return;
        }
        while self.slots.in_flight() > 0 {
            self.step();
        }
    }
}

impl State {
    fn choose(&mut self) -> Option<SlotId> {
        if self.pending.is_empty() {
            return None;
        }
        self.pending
            .iter_mut()
            .for_each(|pending| pending.delay_steps = pending.delay_steps.saturating_sub(1));
        let ready = self.pending.iter().filter(|pending| pending.delay_steps == 0).count() as u64;
        let nth = if ready == 0 { return self.choose() } else { self.below(ready) as usize };
        let ready = self.pending.iter().enumerate().filter(|(_, pending)| pending.delay_steps == 0);
        let (place, _) = ready.into_iter().nth(nth)?;
        Some(self.pending.swap_remove(place).id)
    }

    fn below(&mut self, bound: u64) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014): small, seedable, good enough to shuffle.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

fn truncate(segments: &mut SmallVec<[IoSegment; 1]>, mut length_bytes: usize) {
    segments.retain_mut(|segment| {
        let kept_bytes = segment.length_bytes().min(length_bytes);
        length_bytes -= kept_bytes;
        *segment = segment.shortened(kept_bytes);
        kept_bytes > 0
    });
}
