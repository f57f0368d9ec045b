//! Tasks: what is begun, polled, dropped and forgotten, and what comes of it.
//!
//! Owns: the futures, when they are polled, whether their results are possible.
//! Does not own: what else a step does (world).

use std::fs;
use std::future::Future;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::{AsyncReadExt, AsyncWriteExt, StreamExt};
use headwater::{ByteRange, Caching, Engine, File, OpenOptions, View};
use headwater_testkit::Pattern;

use super::{IDLE_STEPS, KEPT_MAX, Kept, Outcome, POLLS_MAX, QUIET_POLLS, TASKS_MAX, Target, World, text};
use crate::coverage::Reached;
use crate::moods::{Alarm, Mood, is_expected};
use crate::steps::{Place, Span, Work};
use crate::versions::{Moment, Seen, Settled};

pub(super) struct Task {
    pub(super) future: Pin<Box<dyn Future<Output = Done> + Send>>,
    pub(super) file: usize,
    pub(super) work: Work,
    pub(super) since: Moment,
    pub(super) faults: u64,
    pub(super) began_faulty: bool,
    pub(super) alarm: Arc<Alarm>,
    pub(super) mood: Mood,
}

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
        let target = &mut self.targets[place.file];
        let since = target.versions.now();
        let future = target.begin(&self.engine, &file, work);
        let alarm = Arc::new(Alarm {
            is_woken: AtomicBool::new(false),
            mood,
            file: Mutex::new(Some(file)),
            outbreaks: self.outbreaks[0].clone(),
        });
        self.alarms.push(Arc::downgrade(&alarm));
        let (faults, began_faulty) = (self.faults, self.is_faulty);
        self.tasks.push(Task { future, file: place.file, work, since, faults, began_faulty, alarm, mood });
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
        while let Some(number) = self.tasks.iter().position(|task| task.file == file && task.work.changes()) {
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
            if self.engine.stats().driver.in_flight == 0 {
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
                self.conclude(&task, done)
                    .map_err(|error| format!("{:?} of file {}: {error}", task.work, task.file))
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
            if quiet_polls == QUIET_POLLS {
                break;
            }
            let is_idle = self.poll_woken()? == Woken::None && self.engine.stats().driver.in_flight == 0;
            quiet_polls = if is_idle { quiet_polls + 1 } else { 0 };
        }
        let waited: Vec<_> = self.tasks.iter().map(|task| (task.file, task.work)).collect();
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
        let works: Vec<_> = self.tasks.iter().map(|task| (task.file, task.work)).collect();
        Err(format!("tasks that never end: {works:?}, {:?}", self.engine.stats()))
    }

    pub(super) fn conclude(&mut self, task: &Task, done: Done) -> Outcome {
        let may_fail = task.began_faulty || task.faults != self.faults;
        let (is_beside, has_failed) = (self.targets[task.file].versions.is_changing(), self.faults > 0);
        let target = &mut self.targets[task.file];
        match done {
            Done::Bytes(Ok(bytes)) => {
                let (offset_bytes, length) = task.work.range(bytes.len());
                // A fault may end a read early.
                let length = if may_fail { bytes.len() } else { length };
                let seen = target.versions.check(task.since, offset_bytes, length, &bytes)?;
                self.coverage.note_if(seen == Seen::Mixed, Reached::ReadSawTwoVersions);
                self.coverage.note_if(is_beside, Reached::ReadBesideMutation);
                Ok(())
            }
            Done::Bytes(Err(error)) => self.forgive(may_fail, Reached::ReadFailed, &error),
            Done::View(Ok(view)) => {
                let ((offset_bytes, length), bytes) = (task.work.range(0), view.to_vec());
                if bytes.len() != length {
                    return Err(format!("a view of {length} bytes has {}", bytes.len()));
                }
                target.versions.check(task.since, offset_bytes, length, &bytes)?;
                self.kept.push(Kept { view, file: task.file, bytes });
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
                self.note_change(task.file);
                if at != end_bytes {
                    return Err(format!("appended at {at}, not {end_bytes}"));
                }
                self.coverage.note_if(matches!(task.work, Work::AppendShared(..)), Reached::AppendedShared);
                match task.work {
                    Work::AppendDurable(length, fill) => self.check_durable(task.file, at, length, fill),
                    _ => Ok(()),
                }
            }
            Done::Nothing(Ok(())) if task.work.changes() => {
                target.versions.finish();
                self.note_change(task.file);
                self.coverage.note_if(matches!(task.work, Work::PunchHole(_)), Reached::HolePunched);
                self.coverage.note_if(matches!(task.work, Work::CopyWithin(..)), Reached::CopiedWithin);
                self.coverage.note_if(matches!(task.work, Work::WriteAlone(..)), Reached::WrittenAlone);
                Ok(())
            }
            Done::Nothing(Ok(())) => self.check_synced(task.file, task.since),
            Done::Nothing(Err(error)) | Done::Appended(Err(error)) if task.work.changes() => {
                target.versions.give_up();
                self.forgive(has_failed, Reached::MutationFailed, &error)
            }
            Done::Nothing(Err(error)) | Done::Appended(Err(error)) => {
                self.forgive(has_failed, Reached::SyncFailed, &error)
            }
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
        if matches!(self.tasks[number].work, Work::WriteInOrder(..)) {
            // Its drop would block for other tasks of this thread: where there are no threads of the engine, none goes on with it.
            return;
        }
        let task = self.tasks.remove(number);
        if task.work.changes() {
            self.targets[task.file].versions.give_up();
            self.coverage.note(Reached::MutationDropped);
        }
    }

    /// Only of what reads: a task that has begun to change a file, or to sync it, has others wait for its end.
    pub(super) fn forget_nth(&mut self, number: usize) {
        if self.tasks.is_empty() || !self.tasks[number % self.tasks.len()].work.reads() {
            return;
        }
        let task = self.tasks.remove(number % self.tasks.len());
        std::mem::forget(task.future);
        self.has_leaked = true;
        self.coverage.note(Reached::FutureForgotten);
    }
}

impl Target {
    pub(super) fn begin(
        &mut self,
        engine: &Engine,
        file: &File,
        work: Work,
    ) -> Pin<Box<dyn Future<Output = Done> + Send>> {
        match work {
            Work::Read(Span { offset_bytes, length }) => {
                let reading = file.read_at_async(offset_bytes, length);
                Box::pin(async { Done::Bytes(reading.await.map(|bytes| bytes.to_vec()).map_err(text)) })
            }
            Work::View(Span { offset_bytes, length }) => {
                let viewing = file.view_async(offset_bytes, length);
                Box::pin(async { Done::View(viewing.await) })
            }
            Work::Stream(items) => {
                let mut stream = file.stream();
                Box::pin(async move {
                    let mut all = Vec::new();
                    for _ in 0..items {
                        match stream.next().await {
                            None => break,
                            Some(Ok(bytes)) => all.extend_from_slice(&bytes),
                            Some(Err(error)) => return Done::Bytes(Err(text(error))),
                        }
                    }
                    Done::Bytes(Ok(all))
                })
            }
            Work::ReadInOrder(Span { offset_bytes, length }) => {
                let mut reader = file.async_reader().starting_at(offset_bytes).take(length as u64);
                Box::pin(async move {
                    let mut all = Vec::new();
                    let read = reader.read_to_end(&mut all).await;
                    Done::Bytes(read.map(|_| all).map_err(text))
                })
            }
            Work::SyncData => nothing(file.sync_data_async()),
            Work::SyncAll => nothing(file.sync_all_async()),
            Work::Flush => nothing(file.flush_async()),
            _ => self.begin_change(engine, file, work),
        }
    }

    fn begin_change(
        &mut self,
        engine: &Engine,
        file: &File,
        work: Work,
    ) -> Pin<Box<dyn Future<Output = Done> + Send>> {
        match work {
            Work::Write(Span { offset_bytes, length }, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| overwrite(file, offset_bytes as usize, &bytes));
                nothing(file.write_all_at_async(bytes, offset_bytes))
            }
            Work::WriteInOrder(Span { offset_bytes, length }, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| overwrite(file, offset_bytes as usize, &bytes));
                let mut writer = file.async_writer().starting_at(offset_bytes);
                Box::pin(async move {
                    for piece in bytes.chunks(length / 3 + 1) {
                        if let Err(error) = writer.write_all(piece).await {
                            return Done::Nothing(Err(text(error)));
                        }
                    }
                    Done::Nothing(writer.into_inner().await.map(drop).map_err(text))
                })
            }
            Work::WriteAlone(Span { offset_bytes, length }, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| overwrite(file, offset_bytes as usize, &bytes));
                let opened = OpenOptions::new().engine(engine).read(false).write(true).open(&self.path);
                Box::pin(async move {
                    let Ok(file) = opened else { return Done::Nothing(opened.map(drop).map_err(text)) };
                    Done::Nothing(file.write_all_at_async(bytes, offset_bytes).await.map_err(text))
                })
            }
            Work::Append(length, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| file.extend_from_slice(&bytes));
                let appending = file.append_async(bytes);
                Box::pin(async { Done::Appended(appending.await.map_err(text)) })
            }
            Work::AppendDurable(length, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| file.extend_from_slice(&bytes));
                let appending = file.append_durable_async(bytes);
                Box::pin(async { Done::Appended(appending.await.map_err(text)) })
            }
            Work::AppendShared(length, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| file.extend_from_slice(&bytes));
                let opened = OpenOptions::new().engine(engine).append(true).open(&self.path);
                Box::pin(async {
                    let Ok(log) = opened else { return Done::Appended(opened.map(|_| 0).map_err(text)) };
                    Done::Appended(log.append_async(bytes).await.map_err(text))
                })
            }
            Work::PunchHole(Span { offset_bytes, length }) => {
                let range = offset_bytes..offset_bytes + length as u64;
                self.versions.begin(|file| {
                    let end = file.len().min(range.end as usize);
                    file[end.min(range.start as usize)..end].fill(0);
                });
                nothing(file.punch_hole_async(range))
            }
            Work::CopyWithin(span, at_bytes) => self.copy_within(file, span, at_bytes),
            Work::SetLength(length_bytes) => {
                self.versions.begin(|file| file.resize(length_bytes as usize, 0));
                nothing(file.set_len_async(length_bytes))
            }
            _ => unreachable!("it changes nothing"),
        }
    }

    fn copy_within(
        &mut self,
        file: &File,
        span: Span,
        at_bytes: u64,
    ) -> Pin<Box<dyn Future<Output = Done> + Send>> {
        let range = ByteRange::at(span.offset_bytes, span.length as u64);
        let read = range.clip(self.versions.now_bytes() as u64);
        let at_bytes =
            if read.intersect(ByteRange::at(at_bytes, read.len())).is_empty() { at_bytes } else { read.end };
        self.versions.begin(|bytes| {
            let copied =
                bytes.get(read.start as usize..read.end as usize).map_or_else(Vec::new, <[u8]>::to_vec);
            overwrite(bytes, at_bytes as usize, &copied);
        });
        let copying = file.copy_range_to_async(range.start..range.end, file, at_bytes);
        Box::pin(async move {
            Done::Nothing(match copying.await {
                Ok(copied) if copied == read.len() => Ok(()),
                Ok(copied) => Err(format!("{copied} bytes of {read:?} were copied")),
                Err(error) => Err(text(error)),
            })
        })
    }
}

fn nothing(
    work: impl Future<Output = headwater::Result<()>> + Send + 'static,
) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(async { Done::Nothing(work.await.map_err(text)) })
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
        )
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Work::Read(_) | Work::View(_) | Work::Stream(_) | Work::ReadInOrder(_))
    }

    /// The bytes that it reads, of which so many were there.
    pub(super) fn range(self, found: usize) -> (u64, usize) {
        match self {
            Work::Read(span) | Work::View(span) | Work::ReadInOrder(span) => (span.offset_bytes, span.length),
            _ => (0, found),
        }
    }
}

pub(super) fn overwrite(file: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        file.resize(file.len().max(start + bytes.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

pub(super) fn contents(length: usize, fill: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(fill).fill(0, &mut bytes);
    bytes
}
