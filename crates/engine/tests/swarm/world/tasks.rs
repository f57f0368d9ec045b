//! Tasks: what is begun, polled, dropped and forgotten, and what comes of it.
//!
//! Owns: when the futures are polled, whether their results are possible.
//! Does not own: the futures and what they make of a file (changes), what else a step does (world).

use std::fs;
use std::future::Future;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Caching, OpenOptions, View};
use headwater_testkit::is_more_than_owner;

use super::changes::contents;
use super::{
    IDLE_STEPS, KEPT_MAX, Kept, Outcome, POLLS_MAX, QUIET_POLLS, TASKS_MAX, WAKERS_RUN_AFTER, World, text,
};
use crate::coverage::Reached;
use crate::moods::{Alarm, Mood, is_expected};
use crate::steps::{FILES, Place, Work};
use crate::versions::{Moment, Seen, Settled};

pub(super) struct Task {
    pub(super) future: Working,
    pub(super) deed: Deed,
    pub(super) alarm: Arc<Alarm>,
    pub(super) mood: Mood,
}

/// What a task does, or a call that blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    pub(super) file: usize,
    pub(super) work: Work,
    pub(super) since: Moment,
    pub(super) faults: u64,
    pub(super) began_faulty: bool,
    /// If it is a copy.
    pub(super) copied_bytes: u64,
    /// Whether the file that it copies from began to change meanwhile.
    pub(super) is_source_changed: bool,
}

impl Deed {
    /// Whether a copy has whole pages that lie in the source as they do in the target.
    fn copies_pages_in_step(&self) -> bool {
        let (Work::CopyWithin(span, at_bytes) | Work::CopyFrom(span, at_bytes)) = self.work else {
            return false;
        };
        at_bytes % 4096 == span.offset_bytes % 4096 && self.copied_bytes >= 2 * 4096
    }
}

pub(super) type Working = Pin<Box<dyn Future<Output = Done> + Send>>;

/// Whether a task was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    Some,
    None,
}

pub(super) enum Done {
    Bytes(Outcome<Vec<u8>>),
    View(headwater::Result<View>),
    Appended(Outcome<u64>),
    Copied(Outcome<u64>),
    Nothing(Outcome),
}

impl World {
    pub(super) fn begin(&mut self, place: Place, work: Work, mood: Mood) -> Outcome {
        if self.tasks.len() >= TASKS_MAX {
            self.finish_nth(0)?;
        }
        // A writer is not dropped in the middle.
        let mood =
            if matches!(work, Work::WriteInOrder(..)) && mood == Mood::Panics { Mood::Calm } else { mood };
        let file = self.handle(place)?;
        if work.changes() && !self.make_certain(place.file)? {
            return Ok(());
        }
        if work.source(place.file) != place.file && !self.make_certain(work.source(place.file))? {
            return Ok(());
        }
        let source = self.handle(Place { file: work.source(place.file), ..place })?;
        let deed = self.begin_deed(place.file, work);
        let future = self.call(&file, &source, &deed);
        self.note_source_change(&deed);
        let alarm = Arc::new(Alarm {
            is_woken: AtomicBool::new(false),
            mood,
            file: Mutex::new(Some(file)),
            outbreaks: self.outbreaks[0].clone(),
        });
        self.alarms.push(Arc::downgrade(&alarm));
        self.tasks.push(Task { future, deed, alarm, mood });
        let alarm = self.tasks[self.tasks.len() - 1].alarm.clone();
        self.poll_nth(self.tasks.len() - 1)?;
        if self.tasks.last().is_some_and(|task| Arc::ptr_eq(&task.alarm, &alarm)) {
            self.coverage.note(match work {
                _ if work.reads() => Reached::ReadWaited,
                _ if work.changes() => Reached::MutationWaited,
                _ => Reached::SyncWaited,
            });
        }
        Ok(())
    }

    /// No change is under way, and it is known what the file holds. False if that cannot be.
    pub(super) fn make_certain(&mut self, file: usize) -> Outcome<bool> {
        while let Some(number) =
            self.tasks.iter().position(|task| task.deed.file == file && task.deed.work.changes())
        {
            self.finish_nth(number)?;
        }
        self.settle(file)
    }

    /// Reads all of a file of which it is not known what it holds. False if that fails.
    pub(super) fn settle(&mut self, file: usize) -> Outcome<bool> {
        if self.targets[file].versions.is_certain() {
            return Ok(true);
        }
        // What a task that was dropped had sent to the device arrives.
        for _ in 0..IDLE_STEPS {
            if self.is_idle() {
                break;
            }
            self.pass_time();
        }
        let mut options = OpenOptions::new();
        let opened = options.engine(&self.engine).caching(Caching::On).open(&self.targets[file].path);
        let reader = opened.map_err(text)?;
        let mut bytes = vec![0; reader.len().map_err(text)? as usize];
        if let Err(error) = reader.read_exact_at(&mut bytes, 0) {
            return if self.is_faulty { Ok(false) } else { Err(format!("settling: {error}")) };
        }
        let settled =
            self.targets[file].versions.settle(bytes).map_err(|error| format!("settling: {error}"))?;
        self.coverage.note(match settled {
            Settled::Undone => Reached::DroppedUndone,
            Settled::InPart => Reached::DroppedInPart,
        });
        Ok(true)
    }

    pub(super) fn poll_nth(&mut self, number: usize) -> Outcome {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let number = number % self.tasks.len();
        let task = &mut self.tasks[number];
        task.alarm.is_woken.store(false, Ordering::SeqCst);
        let waker = Waker::from(task.alarm.clone());
        let polled =
            catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
            Ok(Poll::Pending) => Ok(()),
            Ok(Poll::Ready(done)) => {
                let task = self.tasks.remove(number);
                self.conclude(&task.deed, done)
            }
            Err(payload) if is_expected(&*payload) && task.mood == Mood::Panics => {
                // The task's own waker, in the task's own poll.
                self.drop_nth(number);
                Ok(())
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    pub(super) fn poll_woken(&mut self) -> Outcome<Woken> {
        self.pass_time();
        let is_woken = |task: &Task| task.alarm.is_woken.load(Ordering::SeqCst);
        let (mut number, mut woken) = (0, Woken::None);
        while number < self.tasks.len() {
            let before = self.tasks.len();
            if is_woken(&self.tasks[number]) {
                woken = Woken::Some;
                self.poll_nth(number)?;
            }
            number += usize::from(self.tasks.len() == before);
        }
        Ok(woken)
    }

    /// Polls what is woken, until that ends the task; all only if nothing is woken any more. Unless a waker was leaked, that must not
    /// help.
    pub(super) fn finish_nth(&mut self, number: usize) -> Outcome {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let wanted = self.tasks[number % self.tasks.len()].alarm.clone();
        let is_over = |world: &World| !world.tasks.iter().any(|task| Arc::ptr_eq(&task.alarm, &wanted));
        let mut quiet_polls = 0;
        for _ in 0..POLLS_MAX {
            if is_over(self) {
                return Ok(());
            }
            if quiet_polls == QUIET_POLLS && !self.await_woken() {
                break;
            }
            let woken = self.poll_woken()?;
            if woken == Woken::None && self.is_hung() {
                // A request without an answer is waited for as long as it is young.
                thread::sleep(HUNG_PAUSE);
            }
            let is_idle = woken == Woken::None && self.is_idle();
            quiet_polls = if is_idle { quiet_polls + 1 } else { 0 };
        }
        let waited: Vec<_> = self.tasks.iter().map(|task| (task.deed.file, task.deed.work)).collect();
        for _ in 0..POLLS_MAX {
            if is_over(self) {
                return if self.has_leaked { Ok(()) } else { Err(format!("nothing woke one of {waited:?}")) };
            }
            self.pass_time();
            let mut number = 0;
            while number < self.tasks.len() {
                let before = self.tasks.len();
                self.poll_nth(number)?;
                number += usize::from(self.tasks.len() == before);
            }
        }
        let works: Vec<_> = self.tasks.iter().map(|task| (task.deed.file, task.deed.work)).collect();
        Err(format!("tasks that never end: {works:?}, {:?}", self.engine.stats()))
    }

    /// Gives the threads of windows time to wake a task, and time to pass in which what waits for a request without an answer looks
    /// elsewhere. Whether one is woken.
    fn await_woken(&self) -> bool {
        let is_woken = || self.tasks.iter().any(|task| task.alarm.is_woken.load(Ordering::SeqCst));
        let began = Instant::now();
        while (self.has_handlers || self.is_hung())
            && !self.has_leaked
            && !is_woken()
            && began.elapsed() < WAKERS_RUN_AFTER
        {
            thread::sleep(Duration::from_millis(1));
        }
        is_woken()
    }

    pub(super) fn conclude(&mut self, deed: &Deed, done: Done) -> Outcome {
        self.judge(deed, done).map_err(|error| format!("{:?} of file {}: {error}", deed.work, deed.file))
    }

    fn judge(&mut self, deed: &Deed, done: Done) -> Outcome {
        let may_fail = deed.began_faulty || deed.faults != self.faults;
        let (is_beside, has_failed) = (self.targets[deed.file].versions.is_changing(), self.faults > 0);
        let target = &mut self.targets[deed.file];
        match done {
            Done::Bytes(Ok(bytes)) => {
                let (offset_bytes, length) = deed.work.range(bytes.len());
                // A fault may end a read early.
                let length = if may_fail { bytes.len() } else { length };
                let seen = target.versions.check(deed.since, offset_bytes, length, &bytes)?;
                self.coverage.note_if(seen == Seen::Mixed, Reached::ReadSawTwoVersions);
                self.coverage.note_if(is_beside, Reached::ReadBesideMutation);
                Ok(())
            }
            Done::Bytes(Err(error)) => self.forgive(may_fail, Reached::ReadFailed, &error),
            Done::View(Ok(view)) => {
                let ((offset_bytes, length), bytes) = (deed.work.range(0), view.to_vec());
                if bytes.len() != length {
                    return Err(format!("a view of {length} bytes has {}", bytes.len()));
                }
                target.versions.check(deed.since, offset_bytes, length, &bytes)?;
                self.kept.push(Kept { view, file: deed.file, bytes });
                if self.kept.len() > KEPT_MAX { self.kept.remove(0).check() } else { Ok(()) }
            }
            Done::View(Err(error)) => {
                let may_fail =
                    may_fail || matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::OutOfMemory);
                self.forgive(may_fail, Reached::ViewRefused, &error)
            }
            Done::Appended(Ok(at)) => {
                let end_bytes = target.versions.end_before();
                target.versions.finish();
                self.note_change(deed.file);
                if at != end_bytes {
                    return Err(format!("appended at {at}, not {end_bytes}"));
                }
                self.coverage.note_if(matches!(deed.work, Work::AppendShared(..)), Reached::AppendedShared);
                match deed.work {
                    Work::AppendDurable(length, fill) => self.check_durable(deed.file, at, length, fill),
                    _ => Ok(()),
                }
            }
            Done::Nothing(Ok(())) if deed.work.changes() => {
                target.versions.finish();
                self.note_change(deed.file);
                if let Work::PunchHole(span) = deed.work {
                    let is_of_pages = self.remaps && span.length >= 2 * 4096;
                    self.coverage.note(Reached::HolePunched);
                    self.coverage.note_if(is_of_pages, Reached::HoleMade);
                }
                let is_alone = matches!(deed.work, Work::WriteAlone(..)) && is_more_than_owner();
                self.coverage.note_if(is_alone, Reached::WrittenAlone);
                Ok(())
            }
            Done::Copied(Ok(copied_bytes)) => self.judge_copy(deed, copied_bytes),
            Done::Nothing(Ok(())) => self.check_synced(deed.file, deed.since),
            Done::Nothing(Err(error)) | Done::Appended(Err(error)) | Done::Copied(Err(error))
                if deed.work.changes() =>
            {
                target.versions.give_up();
                self.forgive(has_failed, Reached::MutationFailed, &error)
            }
            Done::Nothing(Err(error)) | Done::Appended(Err(error)) | Done::Copied(Err(error)) => {
                self.forgive(has_failed, Reached::SyncFailed, &error)
            }
        }
    }

    fn judge_copy(&mut self, deed: &Deed, copied_bytes: u64) -> Outcome {
        let versions = &mut self.targets[deed.file].versions;
        if deed.is_source_changed {
            // Of each byte it is not known which of the source's it is.
            versions.give_up();
            self.coverage.note(Reached::CopiedBesideChange);
            return Ok(());
        }
        versions.finish();
        self.note_change(deed.file);
        self.coverage.note(match deed.work {
            Work::CopyWithin(..) => Reached::CopiedWithin,
            _ => Reached::CopiedAcross,
        });
        let may_share = self.shares_extents && deed.copies_pages_in_step();
        self.coverage.note_if(may_share, Reached::CopiedInStep);
        if copied_bytes == deed.copied_bytes {
            Ok(())
        } else {
            Err(format!("{copied_bytes} bytes were copied, not {}", deed.copied_bytes))
        }
    }

    /// What a durable append has left on disk.
    fn check_durable(&mut self, file: usize, at: u64, length: usize, fill: u64) -> Outcome {
        if self.windows.iter().any(|window| window.file == file) {
            // It may have changed the bytes since.
            return Ok(());
        }
        self.coverage.note(Reached::DurableOnDisk);
        let disk = fs::read(&self.targets[file].path).map_err(text)?;
        let is_there = disk.get(at as usize..at as usize + length) == Some(&contents(length, fill)[..]);
        if is_there { Ok(()) } else { Err(format!("{length} bytes at {at} are not on disk")) }
    }

    /// What a sync that began then has left on disk.
    pub(super) fn check_synced(&mut self, file: usize, since: Moment) -> Outcome {
        let target = &mut self.targets[file];
        target.versions.note_synced(since);
        if !target.versions.is_unchanged(since) {
            return Ok(());
        }
        self.coverage.note(Reached::SyncSawDisk);
        let disk = fs::read(&target.path).map_err(text)?;
        target.versions.check(since, 0, usize::MAX, &disk)?;
        self.check_is_clean(file)
    }

    pub(super) fn forgive(
        &mut self,
        may_fail: bool,
        reached: Reached,
        error: &dyn std::fmt::Display,
    ) -> Outcome {
        self.coverage.note(reached);
        if may_fail { Ok(()) } else { Err(format!("without a fault: {error}")) }
    }

    pub(super) fn note_change(&mut self, file: usize) {
        let is_held = self.kept.iter().any(|kept| kept.file == file);
        self.coverage.note_if(is_held, Reached::ViewHeldOverWrite);
        let has_window = self.windows.iter().any(|window| window.file == file);
        self.coverage.note_if(has_window, Reached::WindowHeldOverChange);
    }

    pub(super) fn drop_nth(&mut self, number: usize) {
        if self.tasks.is_empty() {
            return;
        }
        let number = number % self.tasks.len();
        if matches!(self.tasks[number].deed.work, Work::WriteInOrder(..)) {
            // Its drop would block for other tasks of this thread: where there are no threads of the engine, none goes on with it.
            return;
        }
        let task = self.tasks.remove(number);
        if task.deed.work.changes() {
            self.targets[task.deed.file].versions.give_up();
            self.coverage.note(Reached::MutationDropped);
        }
    }

    /// Only of what reads: a task that has begun to change a file, or to sync it, has others wait for its end.
    pub(super) fn forget_nth(&mut self, number: usize) {
        if self.tasks.is_empty() || !self.tasks[number % self.tasks.len()].deed.work.reads() {
            return;
        }
        let task = self.tasks.remove(number % self.tasks.len());
        std::mem::forget(task.future);
        self.has_leaked = true;
        self.coverage.note(Reached::FutureForgotten);
    }
}

impl Work {
    pub(super) fn changes(self) -> bool {
        matches!(
            self,
            Work::Write(..)
                | Work::WriteInOrder(..)
                | Work::WriteAlone(..)
                | Work::Append(..)
                | Work::AppendDurable(..)
                | Work::AppendShared(..)
                | Work::SetLength(_)
                | Work::PunchHole(_)
                | Work::CopyWithin(..)
                | Work::CopyFrom(..)
        )
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Work::Read(_) | Work::View(_) | Work::Stream(_) | Work::ReadInOrder(_))
    }

    /// The file that has the bytes, if it is done to this one.
    pub(super) fn source(self, file: usize) -> usize {
        if matches!(self, Work::CopyFrom(..)) { (file + 1) % FILES } else { file }
    }

    /// The bytes that it reads, of which so many were there.
    pub(super) fn range(self, found: usize) -> (u64, usize) {
        match self {
            Work::Read(span) | Work::View(span) | Work::ReadInOrder(span) => (span.offset_bytes, span.length),
            _ => (0, found),
        }
    }
}

/// Polls for some times as long as an engine waits for one request while others are short of memory.
const HUNG_PAUSE: Duration = Duration::from_micros(200);
