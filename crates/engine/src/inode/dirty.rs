//! Unwritten: what was written to a file in memory and its device does not have yet.
//!
//! ```text
//!   write ─► page changed, marked ─► dirty ─► take ─► held, in flight ─┬─ written ─► clean
//!                                      ▲                               └─ failed ──► dirty again, noted
//!                                      └───────────────────────────────────┘
//! ```
//!
//! Owns: which pages are dirty, which of them are in flight, the length on the device, what failed and who was told.
//! Does not own: the pages, the requests, when they are made (write back).
//! Invariants: I3 at most one write of a page is in flight; U1 a page that is marked dirty is dirty in the cache too, and in
//! the table; U2 a page below the length that is not in the cache lies below the length on the device.
//! Locks: `state`, for as long as pages are changed or chosen: page cache and arena are locked inside it, nothing waits.
//! `device_length` across what changes the length on the device, and nothing else. `recently` inside all others. The turn is taken before either, and
//! kept while waiting.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_core::dirty::DirtyPages;
use headwater_core::units::{ByteRange, PageIndex, PageRange};
use headwater_io::{Driver, Event, OpenFile};

use crate::base::listeners::{Deferral, defer};
use crate::base::shared_completion::Told;
use crate::inode::ALL_PAGES;
use crate::inode::page_write::PageWrite;
use crate::inode::windows::Windows;

/// What a file's device does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    state: Mutex<State>,
    /// Pages that are dirty or being written.
    pages: AtomicU64,
    /// Grows with every change of what the file holds.
    generation: AtomicU64,
    /// Grows with every write to the device, and what else changes pages that are not dirty then.
    written: AtomicU64,
    /// Whether others have changed the file while pages of it were dirty in part: what these hold beside may be old.
    is_unsettled: AtomicBool,
    /// Where the last of these were; `written` changes under its lock.
    recently: Mutex<VecDeque<ByteRange>>,
    /// What the device says the length is, at the least.
    pub(crate) device_length: Mutex<u64>,
    pub(crate) turn: Turn,
    /// Pages that are in nobody's frames, but in live memory.
    pub(crate) windows: Windows,
    failures: Mutex<Failures>,
    /// How many there were, for those that only ask whether there are new ones.
    failure_count: AtomicU64,
}

/// Pages of all files of an engine that their devices do not have, and the clock by which they age.
#[derive(Debug)]
pub(crate) struct DirtyTotal {
    pages: AtomicU64,
    pub(crate) driver: Driver,
}

/// What a file was when somebody looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    generation: u64,
    written: u64,
}

/// What changes together.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) dirty: DirtyPages,
    /// Open for writing, as long as there is something to write.
    pub(crate) file: Option<Arc<OpenFile>>,
    pub(crate) in_flight: BTreeMap<u64, Arc<PageWrite>>,
    /// Pages from here on are not written: the file is being cut.
    pub(crate) barrier: Option<PageIndex>,
    /// Where the last write ended, to know who writes in order.
    pub(crate) next_bytes: u64,
    /// Where to go on looking for pages to write early.
    pub(crate) sweep: PageIndex,
    /// When the oldest of the dirty pages became so.
    pub(crate) dirty_since: Option<Instant>,
    /// The last write failed; when.
    pub(crate) failed_at: Option<Instant>,
}

/// What failed, for those who have not been told.
#[derive(Debug, Default)]
struct Failures {
    /// How many there were.
    count: u64,
    last: Option<Cause>,
    /// The device lost something that it had taken: nothing is durable for sure any more.
    latched: Option<Cause>,
}

/// An error that several are told of.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl DirtyTotal {
    pub(crate) fn new(driver: &Driver) -> DirtyTotal {
        DirtyTotal { pages: AtomicU64::default(), driver: driver.clone() }
    }

    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Moves the gauge by what a file had `before` and has `now`.
    fn move_gauge(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            self.pages.fetch_sub(before - now, Ordering::AcqRel);
        }
    }
}

impl Moment {
    /// Whether nothing at all has changed since.
    #[inline]
    pub(crate) fn is_now(&self, unwritten: &Unwritten) -> bool {
        self.generation == unwritten.generation()
    }
}

impl Unwritten {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and has the counts follow.
    pub(crate) fn change<R>(&self, total: &DirtyTotal, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.settle(total, &mut state);
        result
    }

    /// Has the counts follow what was changed.
    pub(crate) fn settle(&self, total: &DirtyTotal, state: &mut State) {
        let pages = state.dirty.dirty_pages().get() + state.dirty.writing_pages().get();
        let before = self.pages.swap(pages, Ordering::AcqRel);
        total.move_gauge(before, pages);
        if state.dirty.dirty_pages().get() == 0 {
            state.dirty_since = None;
        } else if state.dirty_since.is_none() {
            state.dirty_since = Some(total.driver.now());
        }
    }

    /// Pages that the device does not have yet.
    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Whether there may be anything that the device lacks.
    pub(crate) fn may_lack(&self) -> bool {
        self.pages() > 0 || !self.windows.is_empty()
    }

    /// Whether the device lacks something of a range, or might by now, because others write to it without a word.
    pub(crate) fn overlaps(&self, range: ByteRange) -> bool {
        self.windows.overlaps(range)
            || self.pages() > 0 && self.lock().dirty.first_unwritten(PageRange::covering(range)).is_some()
    }

    /// The first part that the device lacks of a range.
    pub(crate) fn first(&self, range: ByteRange) -> Option<ByteRange> {
        let dirty = self.lock().dirty.first_unwritten(PageRange::covering(range));
        let dirty = dirty.map(|run| run.bytes().intersect(range));
        dirty.into_iter().chain(self.windows.first(range)).min_by_key(|part| part.start)
    }

    /// What the file is now, for [`Unwritten::has_changed`].
    pub(crate) fn moment(&self) -> Moment {
        Moment { generation: self.generation(), written: self.written.load(Ordering::Acquire) }
    }

    /// Whether a range may have been written to since that moment, when the device had all of it.
    pub(crate) fn has_changed(&self, moment: Moment, range: ByteRange) -> bool {
        if self.windows.overlaps(range) {
            return true;
        }
        if self.generation() == moment.generation {
            return false;
        }
        // What changed, and is not on the device yet, can be told from the rest. What gets there meanwhile is noted first.
        self.overlaps(range) || self.was_written(moment.written, range)
    }

    /// Whether a write to the device, after so many, may have been to this range.
    fn was_written(&self, before: u64, range: ByteRange) -> bool {
        let recently = self.recently();
        let since = (self.written.load(Ordering::Acquire) - before) as usize;
        let meets = |written: &ByteRange| !written.intersect(range).is_empty();
        since > recently.len() || recently.iter().rev().take(since).any(meets)
    }

    fn recently(&self) -> MutexGuard<'_, VecDeque<ByteRange>> {
        self.recently.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device has what it lacked, or a part of it; or the file was changed by other means than writing to pages.
    pub(crate) fn note_written(&self) {
        self.note_written_at(ByteRange::new(0, u64::MAX));
    }

    /// The same for a part of the file.
    pub(crate) fn note_written_at(&self, range: ByteRange) {
        let mut recently = self.recently();
        if recently.len() == RECENTLY_MAX {
            recently.pop_front();
        }
        recently.push_back(range);
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Grows with every change of what the file holds, after it.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What the file holds has changed.
    pub(crate) fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Where the last of the bytes ends that the device does not have, in a file of this length; 0 if it has all.
    pub(crate) fn end_bytes(state: &State, length_bytes: u64) -> u64 {
        let dirty = state.dirty.last_dirty().map(|(page, end)| page.start_bytes() + u64::from(end));
        let in_flight = state.in_flight.values().map(|write| write.bytes().end);
        dirty.map(|end_bytes| end_bytes.min(length_bytes)).into_iter().chain(in_flight).max().unwrap_or(0)
    }

    /// Whether pages may hold what is old now that others have changed the file: those that are dirty in part, and those that
    /// are being written, which others may have written over.
    pub(crate) fn is_doubtful(state: &State) -> bool {
        state.dirty.first_in_part(ALL_PAGES).is_some()
            || state.in_flight.values().any(|write| write.is_doubted())
    }

    /// Others have changed the file while pages were dirty in part.
    pub(crate) fn set_unsettled(&self) {
        self.is_unsettled.store(true, Ordering::Release);
    }

    /// Whether pages that are dirty in part have to be written and dropped before the next read.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_unsettled.load(Ordering::Acquire)
    }

    /// They were.
    pub(crate) fn clear_unsettled(&self) {
        self.is_unsettled.store(false, Ordering::Release);
    }

    /// The length on the device.
    pub(crate) fn device_length(&self) -> MutexGuard<'_, u64> {
        self.device_length.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write failed.
    pub(crate) fn note_failure(&self, error: &io::Error) {
        let mut failures = self.failures();
        failures.count += 1;
        self.failure_count.store(failures.count, Ordering::Release);
        failures.last = Some(Cause::of(error));
    }

    /// The device failed to keep what it had taken: from now on nobody is told otherwise.
    pub(crate) fn latch(&self, error: &io::Error) {
        let mut failures = self.failures();
        failures.count += 1;
        self.failure_count.store(failures.count, Ordering::Release);
        failures.latched.get_or_insert(Cause::of(error));
    }

    /// How many failures there were.
    pub(crate) fn failure_count(&self) -> u64 {
        self.failure_count.load(Ordering::Acquire)
    }

    /// The failure that a handle has not been told of, once, or that came after so many others: the last one; or for ever, that a
    /// sync failed.
    pub(crate) fn report(&self, told: &AtomicU64, since: u64) -> Option<io::Error> {
        let failures = self.failures();
        if let Some(latched) = &failures.latched {
            return Some(latched.latched());
        }
        let is_told =
            told.swap(failures.count, Ordering::AcqRel) == failures.count && failures.count == since;
        failures.last.as_ref().filter(|_| !is_told).map(Cause::error)
    }

    /// The failure that a handle has not been told of, once. A sync that failed is left to the next sync.
    #[inline]
    pub(crate) fn report_write(&self, told: &AtomicU64) -> Option<io::Error> {
        let is_told = self.failure_count.load(Ordering::Acquire) == told.load(Ordering::Relaxed);
        if is_told { None } else { self.report_new(told) }
    }

    #[cold]
    fn report_new(&self, told: &AtomicU64) -> Option<io::Error> {
        let failures = self.failures();
        if failures.latched.is_some() {
            return None;
        }
        let is_told = told.swap(failures.count, Ordering::AcqRel) == failures.count;
        failures.last.as_ref().filter(|_| !is_told).map(Cause::error)
    }

    /// The last failure there was.
    pub(crate) fn last_failure(&self) -> Option<io::Error> {
        self.failures().last.as_ref().map(Cause::error)
    }

    /// The last failure, if the last write failed.
    pub(crate) fn failing(&self) -> Option<io::Error> {
        self.lock().failed_at?;
        self.failures().last.as_ref().map(Cause::error)
    }

    /// Where the file lies now, as `/proc` tells, while there is something to write.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let file = self.lock().file.clone()?;
        fs::read_link(format!("/proc/self/fd/{}", file.buffered().as_raw_fd())).ok()
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cause {
    pub(crate) fn of(error: &io::Error) -> Cause {
        Cause { errno: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }

    pub(crate) fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }

    fn latched(&self) -> io::Error {
        let text = format!("an earlier sync failed, so what was written before may be lost: {}", self.text);
        io::Error::new(self.kind, text)
    }
}

/// The right to change the length of a file: one holder at a time, also while it waits for memory or for the device.
///
/// A thread that holds it goes on until it is done. A task that holds it may never be polled again, so when the process ends
/// its turn is taken away ([`Turn::take_leaving`]); what it does later has to ask [`TurnGuard::holds`].
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// 0 while the turn is free; else [`FIRM`], or the ticket of a task that may lose the turn, or both.
    holder: AtomicU64,
    tickets: AtomicU64,
    /// Threads and tasks that wait, at the least: telling none that the turn is free takes no lock.
    waiting: AtomicU64,
    given_up: Event,
}

/// A place among those that wait.
struct Waiting<'a>(&'a Turn);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a turn can be taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// No: a thread has it.
    Firm = FIRM as isize,
    /// When the process ends: a task has it.
    Loose = 0,
}

/// Gives the turn up when dropped.
#[derive(Debug)]
pub(crate) struct TurnGuard<'a> {
    turn: &'a Turn,
    /// 0 of a thread, which keeps the turn until it gives it up, and until then calls no listener: that may write to the file.
    ticket: u64,
}

impl Turn {
    /// Blocks until it is this thread's turn.
    pub(crate) fn take(&self) -> TurnGuard<'_> {
        if let Some(guard) = self.try_take(Hold::Firm) {
            return guard;
        }
        let _waiting = self.wait();
        loop {
            let listener = self.given_up.listen();
            if let Some(guard) = self.try_take(Hold::Firm) {
                return guard;
            }
            listener.wait();
        }
    }

    /// The same for a task. May be dropped at any moment.
    pub(crate) async fn take_async(&self, driver: &Driver) -> TurnGuard<'_> {
        if let Some(guard) = self.try_take(Hold::Loose) {
            return guard;
        }
        let _waiting = self.wait();
        loop {
            let listener = Told { listener: Some(self.given_up.listen()), driver };
            if let Some(guard) = self.try_take(Hold::Loose) {
                return guard;
            }
            listener.await;
        }
    }

    /// The same when the process ends: from `deadline` on, a task's turn is taken away. Blocks for as long as threads have it.
    /// Says whether a task lost it.
    pub(crate) fn take_leaving(&self, deadline: Instant) -> (TurnGuard<'_>, Taken) {
        let _waiting = self.wait();
        loop {
            if let Some(guard) = self.try_take(Hold::Firm) {
                return (guard, Taken::Given);
            }
            if Instant::now() >= deadline
                && let Some(guard) = self.seize()
            {
                return (guard, Taken::Seized);
            }
            // A task that waits and is never polled again keeps the news that the turn was given up to itself.
            let _ = self.given_up.listen().wait_timeout(LOOK_AGAIN);
        }
    }

    /// Before the look at the holder that fails: either that look sees the turn free, or its holder sees that it is waited for.
    fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    /// The turn, if nothing else has it.
    pub(crate) fn take_if_free(&self) -> Option<TurnGuard<'_>> {
        self.try_take(Hold::Firm)
    }

    fn try_take(&self, hold: Hold) -> Option<TurnGuard<'_>> {
        self.replace(0, hold)
    }

    fn seize(&self) -> Option<TurnGuard<'_>> {
        let holder = self.holder.load(Ordering::Acquire);
        if holder & FIRM == FIRM { None } else { self.replace(holder, Hold::Firm) }
    }

    fn replace(&self, holder: u64, hold: Hold) -> Option<TurnGuard<'_>> {
        if self.holder.load(Ordering::SeqCst) != holder {
            return None;
        }
        let ticket = match hold {
            Hold::Firm => 0,
            Hold::Loose => (self.tickets.fetch_add(1, Ordering::Relaxed) + 1) << 1,
        };
        let taken =
            self.holder.compare_exchange(holder, ticket | hold as u64, Ordering::SeqCst, Ordering::SeqCst);
        // Made only if it was taken: a guard that is dropped gives the turn up, whichever thread has it.
        taken.is_ok().then(|| {
            if hold == Hold::Firm {
                defer().leave_open();
            }
            TurnGuard { turn: self, ticket }
        })
    }
}

impl TurnGuard<'_> {
    /// Whether the turn was not taken away.
    pub(crate) fn holds(&self) -> bool {
        self.ticket == 0 || self.turn.holder.load(Ordering::Acquire) & !FIRM == self.ticket
    }

    /// From here on the turn cannot be taken away; false if that was done before.
    pub(crate) fn make_firm(&self) -> bool {
        if self.ticket == 0 {
            return true;
        }
        let holder = &self.turn.holder;
        let firm = self.ticket | FIRM;
        match holder.compare_exchange(self.ticket, firm, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(other) => other == firm,
        }
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        // Ends when the turn is given up.
        let _deferral = (self.ticket == 0).then(Deferral::left_open);
        // What cannot be taken away is given up for sure.
        if self.make_firm() {
            self.turn.holder.store(0, Ordering::SeqCst);
            if self.turn.waiting.load(Ordering::SeqCst) > 0 {
                self.turn.given_up.notify(1);
            }
        }
    }
}

/// How a turn was come by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Given,
    Seized,
}

/// A file remembers the places of this many of its last writes to the device: enough for a stream that consumes an extent beside a
/// writer of whole MiBs. An older write counts as one of the whole file. At most a KiB a file.
const RECENTLY_MAX: usize = 64;

/// By itself or beside a ticket, which is even: the holder keeps the turn until it gives it up.
const FIRM: u64 = 1;

/// While a process ends: short beside the second that it may take.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::thread;

    use std::time::Instant;

    use super::{Hold, Taken, Turn};

    /// Goal: one has the turn until it gives it up, however many want it. Method: a look that fails, and threads that add one
    /// in two steps.
    #[test]
    fn one_has_the_turn() {
        let turn = Turn::default();
        let taken = turn.take();
        assert!(turn.try_take(Hold::Firm).is_none());
        assert!(turn.try_take(Hold::Firm).is_none(), "looking gives up what is another's");
        drop(taken);
        let sum = std::sync::atomic::AtomicU64::new(0);
        let add = || {
            let _taken = turn.take();
            let before = sum.load(std::sync::atomic::Ordering::Relaxed);
            thread::yield_now();
            sum.store(before + 1, std::sync::atomic::Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5000).for_each(|_| add()));
            }
        });
        assert_eq!(sum.into_inner(), 20_000);
        assert!(turn.try_take(Hold::Firm).is_some());
    }

    /// Goal: a process that ends takes the turn from a task, not from a thread, nor from a task that cannot go back; the task
    /// knows, and gives nothing up that is not its own. Method: each in turn.
    #[test]
    fn a_task_loses_the_turn_at_the_end() {
        let turn = Turn::default();
        let thread = turn.take();
        assert!(turn.seize().is_none());
        drop(thread);
        let task = turn.try_take(Hold::Loose).unwrap();
        assert!(turn.try_take(Hold::Firm).is_none());
        let (ending, taken) = turn.take_leaving(Instant::now());
        assert_eq!((taken, task.holds(), ending.holds()), (Taken::Seized, false, true));
        assert!(!task.make_firm());
        drop(task);
        assert!(turn.try_take(Hold::Firm).is_none(), "the task gives up what is another's");
        drop(ending);
        let task = turn.try_take(Hold::Loose).unwrap();
        assert!(task.make_firm() && task.holds() && turn.seize().is_none());
        drop(task);
        assert_eq!(turn.take_leaving(Instant::now()).1, Taken::Given);
    }
}
