//! Control: a test's handle on the simulated device: faults, free space, the clock, counters and the log.
//!
//! ```text
//!   write ─► nth to fail? ─► in a bad range? ─► free space? ─► carried out ─► counted, recorded
//!   sync, set_len, allocate ─► nth to fail? ─► set to fail? free space? ─► carried out ─► counted, recorded
//! ```
//!
//! Owns: faults, the free space of the device, counters, the log if the test records one.
//! Does not own: order and delays (sim), the entries of the log (record).
//! Locks: `state`, for decisions and notes; never across a transfer.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headwater_core::units::ByteRange;

use super::record::{DeviceEvent, Recording, Ticket};
use crate::file::FileKey;
use crate::sync::lock;
use crate::system::sys::Direction;

/// A part of every file that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultRange {
    /// The bytes that cannot be transferred.
    pub range: ByteRange,
    /// The error number reported, such as `5` for EIO.
    pub errno: i32,
    /// What fails.
    pub operation: FaultOn,
}

/// Which transfers a fault concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOn {
    /// All.
    Any,
    /// Those from the device.
    Reads,
    /// Those to the device.
    Writes,
}

impl FaultRange {
    /// A range that can neither be read nor written.
    pub fn new(range: ByteRange, errno: i32) -> FaultRange {
        FaultRange { range, errno, operation: FaultOn::Any }
    }

    fn concerns(&self, direction: Direction, range: ByteRange) -> bool {
        let concerned = match self.operation {
            FaultOn::Any => true,
            FaultOn::Reads => direction == Direction::Read,
            FaultOn::Writes => direction == Direction::Write,
        };
        concerned && !self.range.intersect(range).is_empty()
    }
}

/// Changes a running simulation, and looks at it. Clones share it.
#[derive(Clone, Default)]
pub struct SimControl {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    attempts: AtomicU64,
    ahead_nanoseconds: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    faults: Vec<FaultRange>,
    /// The error of the next syncs, and how many of them.
    failing_syncs: Option<(i32, u32)>,
    /// Operations until the one that fails, and its error.
    failing_operation: Option<(u64, i32)>,
    space: Option<Space>,
    /// Files whose transfers do not end.
    held: Vec<FileKey>,
    held_requests: u32,
    counts: Counts,
    recording: Option<Recording>,
    /// Logs begun so far.
    recordings: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    writes: u64,
    written_bytes: u64,
    syncs: u64,
}

/// Nothing is said of reads.
type Described = io::Result<Option<DeviceEvent>>;

/// Room on the device.
struct Space {
    left_bytes: u64,
    /// What was set aside, which writes take no more room for. Ranges do not overlap.
    set_aside: Vec<(FileKey, ByteRange)>,
}

impl SimControl {
    /// Makes a range fail from now on.
    pub fn add_fault(&self, fault: FaultRange) {
        self.state().faults.push(fault);
    }

    /// Heals all ranges.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// The next `count` syncs fail, and sync nothing.
    pub fn fail_syncs(&self, errno: i32, count: u32) {
        self.state().failing_syncs = (count > 0).then_some((errno, count));
    }

    /// One operation on the device fails, and changes nothing: 0 is the next one. Writes, syncs, changes of length and
    /// allocations count, a write that the device takes in parts once for each. Replaces what was asked for before.
    pub fn fail_at(&self, nth: u64, errno: i32) {
        self.state().failing_operation = Some((nth, errno));
    }

    /// Whether the operation named by [`SimControl::fail_at`] has not come yet.
    pub fn is_failure_to_come(&self) -> bool {
        self.state().failing_operation.is_some()
    }

    /// From now on the device has `bytes` of free space. Each write uses some up, also where the file was written before.
    /// Without any left, writes and allocations fail with ENOSPC; the last write that finds room for a part is short. What is
    /// allocated takes its room then, and not when it is written. `None` is room without end.
    pub fn space_left(&self, bytes: Option<u64>) {
        self.state().space = bytes.map(|left_bytes| Space { left_bytes, set_aside: Vec::new() });
    }

    /// Transfers that begin from now on to or from this file end no sooner than [`SimControl::release`], like those of a network file system
    /// whose server does not answer. Others go on.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn hold(&self, file: impl AsFd) -> io::Result<()> {
        self.state().held.push(FileKey::of_descriptor(file.as_fd())?);
        Ok(())
    }

    /// No transfer is held from now on.
    pub fn release(&self) {
        let state = &mut *self.state();
        state.held.clear();
        state.held_requests = 0;
    }

    /// How many requests are held: these are among those in flight.
    pub fn held_requests(&self) -> u32 {
        self.state().held_requests
    }

    /// Advances the driver's clock by `time`, for what depends on age: see [`Driver::now`](crate::Driver::now).
    ///
    /// # Panics
    /// If `time` is longer than 2^64 nanoseconds, some 584 years.
    pub fn advance(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).expect("less than centuries");
        self.shared.ahead_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// By how much the driver's clock is ahead.
    pub(crate) fn ahead(&self) -> Duration {
        Duration::from_nanos(self.shared.ahead_nanoseconds.load(Ordering::Relaxed))
    }

    /// Attempts made so far, reads among them.
    pub fn attempts(&self) -> u64 {
        self.shared.attempts.load(Ordering::Relaxed)
    }

    /// Writes that moved something.
    pub fn writes(&self) -> u64 {
        self.state().counts.writes
    }

    /// Bytes that were written.
    pub fn written_bytes(&self) -> u64 {
        self.state().counts.written_bytes
    }

    /// Syncs that succeeded.
    pub fn syncs(&self) -> u64 {
        self.state().counts.syncs
    }

    /// Begins a log of what is done to files; one that was begun before is forgotten.
    pub fn record(&self) {
        let state = &mut *self.state();
        state.recordings += 1;
        state.recording = Some(Recording::new(state.recordings));
    }

    /// Ends the log and gives it, in the order in which things began. What has not ended by then says so. Operations
    /// that failed are not in it, other than syncs: they changed nothing.
    pub fn take_log(&self) -> Vec<DeviceEvent> {
        self.state().recording.take().map_or_else(Vec::new, Recording::into_events)
    }

    /// As [`SimControl::take_log`], but goes on.
    pub fn log(&self) -> Vec<DeviceEvent> {
        self.state().recording.clone().map_or_else(Vec::new, Recording::into_events)
    }

    /// The moment that comes next in the log; 0 without one. What begins after this call begins then or later.
    pub fn next_moment(&self) -> u64 {
        self.state().recording.as_ref().map_or(0, Recording::next_moment)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl fmt::Debug for SimControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimControl({} attempts, {:?})", self.attempts(), self.state().counts)
    }
}

/// What the driver asks and tells.
impl SimControl {
    pub(super) fn holds_any(&self) -> bool {
        !self.state().held.is_empty()
    }

    pub(super) fn holds(&self, file: FileKey) -> bool {
        self.state().held.contains(&file)
    }

    pub(super) fn note_held(&self) {
        self.state().held_requests += 1;
    }

    pub(super) fn note_attempt(&self) {
        self.shared.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many bytes of a transfer the device does: a multiple of the alignment, or the error that none is done with.
    pub(super) fn admit(
        &self,
        direction: Direction,
        file: FileKey,
        range: ByteRange,
        alignment_bytes: u64,
    ) -> io::Result<u64> {
        let state = &mut *self.state();
        if direction == Direction::Write {
            state.count_down()?;
        }
        let concerned = state.faults.iter().filter(|fault| fault.concerns(direction, range));
        let mut admitted_bytes = range.len();
        if let Some(fault) = concerned.min_by_key(|fault| fault.range.start) {
            let good_bytes = fault.range.start.saturating_sub(range.start);
            admitted_bytes = good_bytes / alignment_bytes * alignment_bytes;
            if admitted_bytes == 0 {
                return Err(io::Error::from_raw_os_error(fault.errno));
            }
        }
        match &state.space {
            Some(space) if direction == Direction::Write => {
                let range = ByteRange::at(range.start, admitted_bytes);
                space.admit(file, range, alignment_bytes)
            }
            _ => Ok(admitted_bytes),
        }
    }

    /// A write is done.
    pub(super) fn note_write(&self, file: FileKey, range: ByteRange) {
        let state = &mut *self.state();
        state.counts.writes += 1;
        state.counts.written_bytes += range.len();
        if let Some(space) = &mut state.space {
            space.left_bytes -= space.needed(file, range).min(space.left_bytes);
        }
    }

    pub(super) fn admit_sync(&self) -> io::Result<()> {
        let state = &mut *self.state();
        state.count_down()?;
        let Some((errno, count)) = state.failing_syncs else { return Ok(()) };
        state.failing_syncs = (count > 1).then_some((errno, count - 1));
        Err(io::Error::from_raw_os_error(errno))
    }

    pub(super) fn note_sync(&self) {
        self.state().counts.syncs += 1;
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.state().space.as_ref().map(|space| space.left_bytes)
    }

    pub(super) fn admit_set_len(&self) -> io::Result<()> {
        self.state().count_down()
    }

    /// What is cut off is not set aside any more.
    pub(super) fn note_set_len(&self, file: FileKey, length_bytes: u64) {
        if let Some(space) = &mut self.state().space {
            for (_, range) in space.set_aside.iter_mut().filter(|(key, _)| *key == file) {
                *range = range.intersect(ByteRange::new(0, length_bytes));
            }
            space.set_aside.retain(|(_, range)| !range.is_empty());
        }
    }

    pub(super) fn admit_allocate(&self, file: FileKey, range: ByteRange) -> io::Result<()> {
        let state = &mut *self.state();
        state.count_down()?;
        match &state.space {
            Some(space) if space.needed(file, range) > space.left_bytes => Err(no_space()),
            _ => Ok(()),
        }
    }

    pub(super) fn note_allocate(&self, file: FileKey, range: ByteRange) {
        if let Some(space) = &mut self.state().space {
            space.set_aside(file, range);
        }
    }

    /// Begins an entry of the log, if there is one. What cannot be described, for want of a file, will not be done either.
    pub(super) fn begin(&self, describe: impl FnOnce() -> Described) -> Option<Ticket> {
        self.state().recording.as_ref()?;
        // Without the lock: what is written may be much.
        let event = describe().ok()??;
        self.state().recording.as_mut().map(|recording| recording.begin(event))
    }

    /// The rest of what was begun.
    pub(super) fn go_on(
        &self,
        earlier: Option<Ticket>,
        describe: impl FnOnce() -> Described,
    ) -> Option<Ticket> {
        let (earlier, event) = (earlier?, describe().ok()??);
        let state = &mut *self.state();
        let recording = state.recording.as_mut().filter(|recording| recording.has(earlier))?;
        Some(recording.go_on(event, earlier))
    }

    /// Changes the log, if there is one and the entry is in it.
    pub(super) fn note(&self, ticket: Option<Ticket>, change: impl FnOnce(&mut Recording, Ticket)) {
        let Some(ticket) = ticket else { return };
        if let Some(recording) = self.state().recording.as_mut().filter(|recording| recording.has(ticket)) {
            change(recording, ticket);
        }
    }
}

impl State {
    /// One operation comes to the device; fails if it is the one that must.
    fn count_down(&mut self) -> io::Result<()> {
        match &mut self.failing_operation {
            None => Ok(()),
            Some((0, errno)) => {
                let errno = *errno;
                self.failing_operation = None;
                Err(io::Error::from_raw_os_error(errno))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

impl Space {
    /// Bytes of the range that nothing was set aside for.
    fn needed(&self, file: FileKey, range: ByteRange) -> u64 {
        let ours = self.set_aside.iter().filter(|(key, _)| *key == file);
        range.len() - ours.map(|(_, aside)| aside.intersect(range).len()).sum::<u64>()
    }

    /// How much of a write there is room for.
    fn admit(&self, file: FileKey, range: ByteRange, alignment_bytes: u64) -> io::Result<u64> {
        let fits = |bytes| self.needed(file, ByteRange::at(range.start, bytes)) <= self.left_bytes;
        if fits(range.len()) {
            return Ok(range.len());
        }
        // What is needed only grows with the length, so the most that fits is found by halving.
        let (mut fitting, mut too_many) = (0, range.len().div_ceil(alignment_bytes));
        while too_many - fitting > 1 {
            let middle = fitting.midpoint(too_many);
            if fits(middle * alignment_bytes) { fitting = middle } else { too_many = middle }
        }
        if fitting == 0 { Err(no_space()) } else { Ok(fitting * alignment_bytes) }
    }

    fn set_aside(&mut self, file: FileKey, range: ByteRange) {
        self.left_bytes -= self.needed(file, range).min(self.left_bytes);
        let mut whole = range;
        self.set_aside.retain(|&(key, aside)| {
            let joins = key == file && !aside.intersect(range).is_empty();
            if joins {
                whole = ByteRange::new(whole.start.min(aside.start), whole.end.max(aside.end));
            }
            !joins
        });
        self.set_aside.push((file, whole));
    }
}

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}
