//! sim: a simulated device for tests. Transfers are real, but their order, delays, faults and short counts come from a seed.
//!
//! ```text
//!   start ──► pending (delay drawn) ──step──► one ready request, drawn ──► fault? short? ──► preadv ──► slot
//! ```
//!
//! No thread runs in the background: a request makes progress only while a caller waits, polls or drops. With one thread, the
//! same seed and the same calls give the same order, delays and faults.
//!
//! Owns: the order of pending requests, the result of each attempt.
//! Does not own: file contents (they are real files), request state (slots), the faults that a test asks for (control).
//! Invariants: I4 dropping the driver completes what is pending.
//! Locks: `state` while drawing, never across a transfer.

mod calls;
mod control;
mod pending;
mod record;
mod remap;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use headwater_core::limits::Limits;
use headwater_core::units::ByteRange;
use smallvec::SmallVec;

use crate::file::{Allocated, AppendFile, Appended, FileKey, OpenFile, Route};
use crate::request::attempt::{Attempt, TransferAttempt, Verdict};
use crate::request::slot_table::SlotId;
use crate::request::slots::{Completed, Slots};
use crate::sync::event::Until;
use crate::sync::lock;
use crate::system::fork::ProcessMark;
use crate::system::sys::{self, Direction, IoSegment, SyncScope};

use calls::{SimWait, describe_call};
pub use control::{FaultOn, FaultRange, SimControl};
use pending::{Pending, State};
pub use record::DeviceEvent;
use record::{Recording, Ticket};

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
    /// Whether a poll that finds nothing has its task polled again at once, so that any executor comes to an end. Without, tasks are woken
    /// when their requests are done, which other polls and waits bring about.
    pub repolls: bool,
    /// Whether the device makes holes and shares extents, where the files can. Its log has nothing of either, so tests of crashes leave this
    /// off.
    pub remaps: bool,
    /// Faults that a test adds and removes while the driver runs.
    pub control: SimControl,
}

impl SimOptions {
    /// A hostile device with this seed: everything is reordered, one attempt in five is short, one in ten transient.
    pub fn hostile(seed: u64) -> SimOptions {
        let control = SimControl::default();
        SimOptions {
            seed,
            delay_steps_max: 8,
            short_per_mille: 200,
            transient_per_mille: 100,
            repolls: true,
            remaps: false,
            control,
        }
    }
}

pub(crate) struct Sim {
    slots: Arc<Slots>,
    options: SimOptions,
    state: Mutex<State>,
    mark: ProcessMark,
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

    /// The device has the request from now on, and may have done part of it.
    pub(crate) fn start(&self, id: SlotId) {
        // SAFETY: a request that is started has this driver, and no attempt of it is under way.
        let describe = || unsafe { describe(&self.slots.prepare(id)) };
        self.enqueue(id, self.control().begin(describe));
    }

    fn enqueue(&self, id: SlotId, ticket: Option<Ticket>) {
        // SAFETY: the caller is the driver of this request, and no attempt of it is under way.
        let (wait, held) = match unsafe { self.slots.prepare(id) } {
            Attempt::Call(call) if call.is_wait() => (Some(SimWait { call, due: self.due(&call) }), None),
            Attempt::Transfer(attempt) if self.control().holds_any() => {
                // SAFETY: the slot keeps the open file until the request is over.
                (None, FileKey::of_descriptor(unsafe { Piece::of(&attempt) }.file).ok())
            }
            _ => (None, None),
        };
        if held.is_some_and(|file| self.control().holds(file)) {
            self.control().note_held();
        }
        let mut state = lock(&self.state);
        let delay_steps = state.below(u64::from(self.options.delay_steps_max) + 1) as u32;
        state.pending.push(Pending { id, delay_steps, ticket, wait, held });
    }

    /// A task polls for this request. Says whether it is to poll again at once if it finds nothing.
    pub(crate) fn step_and_repolls(&self, id: SlotId) -> bool {
        self.step();
        self.options.repolls && !self.is_held(id)
    }

    fn is_held(&self, id: SlotId) -> bool {
        let state = lock(&self.state);
        state.pending.iter().any(|pending| pending.id == id && pending.is_held(self.control()))
    }

    /// By how much a test has advanced the clock.
    pub(crate) fn ahead(&self) -> Duration {
        self.options.control.ahead()
    }

    pub(crate) fn wait(&self, id: SlotId, limit: Duration, until: Until) {
        let began = Instant::now();
        while !self.slots.is_done(id) && !until.is_interrupted() && began.elapsed() < limit {
            self.step();
        }
    }

    /// Time passes: every pending request comes one step nearer, and one that is ready is attempted.
    pub(crate) fn step(&self) {
        let chosen = lock(&self.state).choose(self.control());
        let Some(Pending { id, ticket, wait, .. }) = chosen else {
            // Another thread may be attempting the last one. Where all are held, a thread that waits sleeps, as it does beside a real device.
            return if self.control().holds_any() { thread::sleep(HELD_PAUSE) } else { thread::yield_now() };
        };
        // A pending request has this driver, and one thread takes it out. The slot keeps the segments, their memory and the open file until
        // it is told the result.
        let result = match wait {
            // SAFETY: as above.
            None => unsafe { self.carry_out_once(id, ticket) },
            // SAFETY: as above.
            Some(waiting) => match unsafe { self.look_at(id, waiting) } {
                Some(result) => result,
                None => {
                    lock(&self.state).pending.push(Pending { id, delay_steps: 0, ticket, wait, held: None });
                    return thread::yield_now();
                }
            },
        };
        let mut completed = Completed::new();
        let has_moved = result.is_ok();
        // SAFETY: as above; the attempt is over.
        if unsafe { self.slots.attempt(id, result, &mut completed) } == Verdict::Again {
            // SAFETY: as above; the next attempt has not begun.
            let describe = || unsafe { describe(&self.slots.prepare(id)) };
            let ticket = if has_moved { self.control().go_on(ticket, describe) } else { ticket };
            return self.enqueue(id, ticket);
        }
        self.control().note(ticket, Recording::forget);
        let launched = self.slots.release_places(&mut completed);
        launched.into_iter().for_each(|id| self.start(id));
        self.slots.wake_owners(&mut completed);
    }

    /// # Safety
    /// The caller is the driver of this request.
    unsafe fn carry_out_once(&self, id: SlotId, ticket: Option<Ticket>) -> io::Result<usize> {
        // SAFETY: as the caller promises.
        unsafe {
            match self.slots.prepare(id) {
                Attempt::Nop => Ok(0),
                Attempt::Raw(_) => Err(io::ErrorKind::Unsupported.into()),
                Attempt::Call(call) => self.attempt_call(call, ticket),
                Attempt::Sync(sync) => {
                    let file = BorrowedFd::borrow_raw(sync.descriptor);
                    self.attempt_sync(file, sync.scope, ticket).map(|()| 0)
                }
                Attempt::Transfer(attempt) => self.attempt(Piece::of(&attempt), ticket),
            }
        }
    }

    /// Completes everything that is pending, but waits that have an owner, and transfers that are held.
    pub(crate) fn complete_pending(&self) {
        let control = self.control();
        let ends = |pending: &Pending| match pending.wait {
            Some(_) => self.slots.may_end_early(pending.id),
            None => !pending.is_held(control),
        };
        while lock(&self.state).pending.iter().any(ends) {
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
        let (base, length_bytes) = (NonNull::from(&mut *buffer).cast(), buffer.len());
        // SAFETY: the memory is the caller's buffer, borrowed for the whole call.
        unsafe { self.transfer_blocking(Direction::Read, file, route, (base, length_bytes), offset_bytes) }
    }

    pub(crate) fn write_blocking(
        &self,
        file: &OpenFile,
        route: Route,
        bytes: &[u8],
        offset_bytes: u64,
    ) -> io::Result<usize> {
        let (base, length_bytes) = (NonNull::from(bytes).cast(), bytes.len());
        // SAFETY: the memory is the caller's, borrowed for the whole call, and only read.
        unsafe { self.transfer_blocking(Direction::Write, file, route, (base, length_bytes), offset_bytes) }
    }

    /// # Safety
    /// As for [`sys::transfer`]: `memory` is valid for `length_bytes`.
    unsafe fn transfer_blocking(
        &self,
        direction: Direction,
        file: &OpenFile,
        mut route: Route,
        (base, length_bytes): (NonNull<u8>, usize),
        offset_bytes: u64,
    ) -> io::Result<usize> {
        file.check_aligned(route, (base.as_ptr(), length_bytes), offset_bytes)?;
        let mut done_bytes = 0;
        while done_bytes < length_bytes {
            let piece = || Piece {
                direction,
                file: file.descriptor(route),
                // SAFETY: what is done is within the memory, for which the caller vouches.
                segments: SmallVec::from_buf([unsafe {
                    IoSegment::new(base.add(done_bytes), length_bytes - done_bytes)
                }]),
                offset_bytes: offset_bytes + done_bytes as u64,
                alignment_bytes: file.transfer_alignment_bytes(route),
            };
            // SAFETY: the caller vouches for the memory.
            let ticket = self.control().begin(|| unsafe { piece().describe() });
            // SAFETY: as above.
            let moved = self.retry(|| unsafe { self.attempt(piece(), ticket) });
            self.control().note(ticket, Recording::forget);
            match moved {
                Ok(0) if direction == Direction::Write && done_bytes == 0 => {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                Ok(0) => break,
                Ok(moved_bytes) => done_bytes += moved_bytes,
                Err(error) if direction == Direction::Read && file.may_read_buffered(route, &error, 0) => {
                    route = Route::Buffered;
                }
                Err(_) if done_bytes > 0 => break,
                Err(error) => return Err(error),
            }
            let next = match direction {
                Direction::Read => file.route_after(route, done_bytes, 0),
                Direction::Write => (!file.ends_transfer(route, done_bytes)).then_some(route),
            };
            match next {
                Some(next) => route = next,
                None => break,
            }
        }
        Ok(done_bytes)
    }

    /// One attempt is one piece: only faults and a full device make it shorter.
    pub(crate) fn append(&self, file: &AppendFile, bytes: &[u8]) -> io::Result<Appended> {
        let appending = file.lock()?;
        let (key, expected) = (appending.key(), appending.end()?);
        let admitted_bytes = self.retry(|| {
            self.draw_transient()?;
            self.control().note_attempt();
            let wanted = ByteRange::at(expected, bytes.len() as u64);
            self.control().admit(Direction::Write, key, wanted, 1)
        })?;
        let bytes = &bytes[..admitted_bytes as usize];
        let write = || DeviceEvent::Write {
            file: key,
            offset_bytes: expected,
            bytes: bytes.to_vec(),
            began: 0,
            ended: None,
        };
        let ticket = self.control().begin(|| Ok(Some(write())));
        let result = appending.append(bytes);
        if let Ok(appended) = &result {
            let (offset_bytes, length_bytes) = (appended.offset_bytes, appended.length_bytes);
            self.control().note_write(key, ByteRange::at(offset_bytes, length_bytes as u64));
            let written = bytes[..length_bytes].to_vec();
            self.control().note(ticket, |log, ticket| log.end_append(ticket, offset_bytes, written));
        }
        self.control().note(ticket, Recording::forget);
        result
    }

    pub(crate) fn sync_blocking(&self, file: &OpenFile, scope: SyncScope) -> io::Result<()> {
        let ticket = self.control().begin(|| describe_sync(file.buffered(), scope));
        let result = self.retry(|| self.attempt_sync(file.buffered(), scope, ticket));
        self.control().note(ticket, Recording::forget);
        result
    }

    pub(crate) fn set_len(&self, file: &OpenFile, length_bytes: u64) -> io::Result<()> {
        let key = FileKey::of_descriptor(file.buffered())?;
        self.control().admit_set_len()?;
        let event = DeviceEvent::SetLen { file: key, length_bytes, began: 0, ended: None };
        let ticket = self.control().begin(|| Ok(Some(event)));
        let result = file.set_len(length_bytes);
        if result.is_ok() {
            self.control().note_set_len(key, length_bytes);
            self.control().note(ticket, Recording::end);
        }
        self.control().note(ticket, Recording::forget);
        result
    }

    pub(crate) fn allocate(&self, file: &OpenFile, range: ByteRange) -> io::Result<Allocated> {
        let key = FileKey::of_descriptor(file.buffered())?;
        self.control().admit_allocate(key, range)?;
        let event = DeviceEvent::Allocate { file: key, range, began: 0, ended: None };
        let ticket = self.control().begin(|| Ok(Some(event)));
        let result = file.allocate(range);
        if matches!(result, Ok(Allocated::Yes)) {
            self.control().note_allocate(key, range);
            self.control().note(ticket, Recording::end);
        }
        self.control().note(ticket, Recording::forget);
        result
    }

    /// Contents and length stay, so the log has nothing of it.
    pub(crate) fn reserve(&self, file: &OpenFile, range: ByteRange) -> io::Result<Allocated> {
        let key = FileKey::of_descriptor(file.buffered())?;
        self.control().admit_allocate(key, range)?;
        let result = file.reserve(range);
        if matches!(result, Ok(Allocated::Yes)) {
            self.control().note_allocate(key, range);
        }
        result
    }

    /// What makes a file longer takes room for its last byte.
    pub(crate) fn extend(&self, file: &OpenFile, length_bytes: u64) -> io::Result<()> {
        if file.length_bytes()? >= length_bytes {
            return self.control().admit_set_len();
        }
        match self.allocate(file, ByteRange::new(length_bytes - 1, length_bytes))? {
            Allocated::Yes => Ok(()),
            Allocated::Unsupported => file.extend(length_bytes),
        }
    }

    /// `None` without a limit.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.control().free_bytes()
    }

    /// Until the device answers, or has given none too often.
    fn retry<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..Limits::RETRIES_MAX {
            match attempt() {
                Err(error) if sys::is_transient(&error) => {}
                result => return result,
            }
        }
        attempt()
    }

    fn attempt_sync(&self, file: BorrowedFd<'_>, scope: SyncScope, ticket: Option<Ticket>) -> io::Result<()> {
        self.draw_transient()?;
        let result = self.control().admit_sync().and_then(|()| sys::sync(file, scope));
        match &result {
            Err(error) if sys::is_transient(error) => return result,
            Ok(()) => self.control().note_sync(),
            Err(_) => {}
        }
        self.control().note(ticket, |recording, ticket| recording.end_sync(ticket, &result));
        result
    }

    /// One transfer as this device does it.
    ///
    /// # Safety
    /// As for [`sys::transfer`].
    unsafe fn attempt(&self, mut piece: Piece<'_>, ticket: Option<Ticket>) -> io::Result<usize> {
        self.control().note_attempt();
        let unit_bytes = piece.unit_bytes();
        let wanted_bytes = self.draw_length(piece.length_bytes(), unit_bytes)?;
        let (direction, file, offset_bytes) = (piece.direction, piece.file, piece.offset_bytes);
        let (key, wanted) = (FileKey::of_descriptor(file)?, ByteRange::at(offset_bytes, wanted_bytes as u64));
        let admitted_bytes = self.control().admit(direction, key, wanted, unit_bytes as u64)?;
        truncate(&mut piece.segments, admitted_bytes as usize);
        debug_assert!(file.as_raw_fd() >= 0);
        // SAFETY: the segments are those that the caller vouches for, or a part of them.
        let moved_bytes = unsafe { sys::transfer(direction, file, &piece.segments, offset_bytes) }?;
        if direction == Direction::Write && moved_bytes > 0 {
            self.control().note_write(key, ByteRange::at(offset_bytes, moved_bytes as u64));
            truncate(&mut piece.segments, moved_bytes);
            // SAFETY: as above, and a write does not change it.
            let end =
                |recording: &mut Recording, ticket| recording.end_write(ticket, unsafe { piece.bytes() });
            self.control().note(ticket, end);
        }
        Ok(moved_bytes)
    }

    fn control(&self) -> &SimControl {
        &self.options.control
    }

    fn draw_transient(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.below(1000) >= u64::from(self.options.transient_per_mille) {
            return Ok(());
        }
        let errno = [libc::EINTR, libc::EAGAIN, libc::ECANCELED][state.below(3) as usize];
        Err(io::Error::from_raw_os_error(errno))
    }

    /// Everything, or a transient error, or a part.
    fn draw_length(&self, length_bytes: usize, unit_bytes: usize) -> io::Result<usize> {
        self.draw_transient()?;
        let mut state = lock(&self.state);
        let units = length_bytes / unit_bytes;
        if units > 1 && state.below(1000) < u64::from(self.options.short_per_mille) {
            return Ok((1 + state.below(units as u64 - 1) as usize) * unit_bytes);
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
        self.control().release();
        while self.slots.in_flight() > 0 {
            self.step();
        }
    }
}

/// What one attempt is to move.
struct Piece<'a> {
    direction: Direction,
    file: BorrowedFd<'a>,
    segments: SmallVec<[IoSegment; 1]>,
    offset_bytes: u64,
    alignment_bytes: usize,
}

impl Piece<'_> {
    /// # Safety
    /// The attempt is under way, or to be made next, and its result is not told while this is used.
    unsafe fn of(attempt: &TransferAttempt) -> Piece<'static> {
        // SAFETY: as the caller promises.
        let (file, segments) =
            unsafe { (BorrowedFd::borrow_raw(attempt.descriptor), attempt.segments.as_slice()) };
        Piece {
            direction: attempt.direction,
            file,
            segments: SmallVec::from_slice(segments),
            offset_bytes: attempt.offset_bytes,
            alignment_bytes: attempt.alignment_bytes,
        }
    }

    fn length_bytes(&self) -> usize {
        self.segments.iter().map(IoSegment::length_bytes).sum()
    }

    /// What is moved together: the kernel reads whole sectors into its page cache too.
    fn unit_bytes(&self) -> usize {
        const SECTOR_BYTES: usize = 512;
        match self.direction {
            Direction::Read => self.alignment_bytes.max(SECTOR_BYTES),
            Direction::Write => self.alignment_bytes,
        }
    }

    /// What the log says of it. Nothing, if it is a read.
    ///
    /// # Safety
    /// As for [`Piece::bytes`].
    unsafe fn describe(&self) -> io::Result<Option<DeviceEvent>> {
        if self.direction == Direction::Read {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        let bytes = unsafe { self.bytes() };
        let (file, offset_bytes) = (FileKey::of_descriptor(self.file)?, self.offset_bytes);
        Ok(Some(DeviceEvent::Write { file, offset_bytes, bytes, began: 0, ended: None }))
    }

    /// A copy of what is written.
    ///
    /// # Safety
    /// The segments are valid for reads, and no other code writes to them meanwhile.
    unsafe fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length_bytes());
        for segment in &self.segments {
            // SAFETY: as the caller promises.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(segment.base(), segment.length_bytes())
            });
        }
        bytes
    }
}

/// What the log says of a request.
///
/// # Safety
/// The attempt is under way, or to be made next.
unsafe fn describe(attempt: &Attempt) -> io::Result<Option<DeviceEvent>> {
    // SAFETY: as the caller promises; the slot keeps descriptors open and memory where it is, and nobody writes to what is
    // to be written.
    unsafe {
        match attempt {
            Attempt::Nop | Attempt::Raw(_) => Ok(None),
            Attempt::Call(call) => describe_call(call),
            Attempt::Sync(sync) => describe_sync(BorrowedFd::borrow_raw(sync.descriptor), sync.scope),
            Attempt::Transfer(attempt) => Piece::of(attempt).describe(),
        }
    }
}

fn describe_sync(file: BorrowedFd<'_>, scope: SyncScope) -> io::Result<Option<DeviceEvent>> {
    let file = FileKey::of_descriptor(file)?;
    Ok(Some(DeviceEvent::Sync { file, scope, began: 0, ended: None, succeeded: false }))
}

fn truncate(segments: &mut SmallVec<[IoSegment; 1]>, mut length_bytes: usize) {
    segments.retain_mut(|segment| {
        let kept_bytes = segment.length_bytes().min(length_bytes);
        length_bytes -= kept_bytes;
        *segment = segment.shortened(kept_bytes);
        kept_bytes > 0
    });
}

/// Longer than a look takes, so that the thread is asleep most of the time.
const HELD_PAUSE: Duration = Duration::from_micros(100);
