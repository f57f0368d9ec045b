//! World: an engine, its files and tasks, and what each step does to them.
//!
//! Owns: what is under way and kept; whether an error is forgiven.
//! Does not own: what bytes are possible (versions).

use std::fs;
use std::future::Future;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use headwater::io::{ByteRange, DriverKind, FaultRange, SimControl, SimOptions};
use headwater::{
    Advice, Caching, Engine, Error, EvictionListener, File, IoMode, ManyRead, OpenOptions, View,
};
use headwater_testkit::{Pattern, make_cold, run_forked};

use crate::coverage::{Coverage, Reached};
use crate::moods::{Alarm, Mood, Outbreaks, is_expected, listen};
use crate::steps::{EIO, FILES, HANDLES, Place, Setup, Span, Step, Work};
use crate::versions::{Moment, Seen, Settled, Versions};

pub(crate) struct World {
    engine: Engine,
    control: SimControl,
    /// Not a file whose pages are cached: each read goes to the device, and moves what is under way.
    clock: File,
    targets: Vec<Target>,
    pressing: PathBuf,
    tasks: Vec<Task>,
    alarms: Vec<Weak<Alarm>>,
    kept: Vec<Kept>,
    listeners: Vec<Arc<Mutex<Option<EvictionListener>>>>,
    outbreaks: [Arc<Outbreaks>; 2],
    coverage: Coverage,
    is_faulty: bool,
    /// Grows when faults come and go.
    faults: u64,
    has_leaked: bool,
}

struct Target {
    path: PathBuf,
    versions: Versions,
    handles: [Option<File>; HANDLES],
    /// A sync failed, so that none succeeds any more.
    is_latched: bool,
}

struct Task {
    future: Pin<Box<dyn Future<Output = Done> + Send>>,
    file: usize,
    work: Work,
    since: Moment,
    faults: u64,
    began_faulty: bool,
    alarm: Arc<Alarm>,
    mood: Mood,
}

struct Kept {
    view: View,
    file: usize,
    bytes: Vec<u8>,
}

/// Whether a task was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Some,
    None,
}

enum Done {
    Bytes(Outcome<Vec<u8>>),
    View(headwater::Result<View>),
    Appended(headwater::Result<u64>),
    Nothing(headwater::Result<()>),
}

type Outcome<T = ()> = Result<T, String>;

impl World {
    pub(crate) fn new(setup: &Setup, directory: &Path) -> Outcome<World> {
        let mut options = SimOptions::hostile(setup.seed);
        if !setup.is_hostile {
            (options.short_per_mille, options.transient_per_mille) = (0, 0);
        }
        options.repolls = false;
        let control = options.control.clone();
        let builder = Engine::builder().memory(setup.memory_bytes).queue_depth(setup.queue_depth);
        let engine = builder.driver(DriverKind::Sim(options)).build().map_err(text)?;
        let targets = (0..FILES).map(|number| {
            let path = directory.join(format!("file{number}"));
            let _ = fs::remove_file(&path);
            Target { path, versions: Versions::new(), handles: Default::default(), is_latched: false }
        });
        let clock =
            OpenOptions::new().engine(&engine).io(IoMode::Buffered).open("/proc/version").map_err(text)?;
        Ok(World {
            targets: targets.collect(),
            clock,
            engine,
            control,
            pressing: directory.join("pressing"),
            tasks: Vec::new(),
            alarms: Vec::new(),
            kept: Vec::new(),
            listeners: Vec::new(),
            outbreaks: Default::default(),
            coverage: Coverage::default(),
            is_faulty: false,
            faults: 0,
            has_leaked: false,
        })
    }

    pub(crate) fn perform(&mut self, step: Step) -> Outcome {
        match step {
            Step::Begin(place, work, mood) => self.begin(place, work, mood)?,
            Step::Poll(number) => self.poll_nth(number)?,
            Step::PollWoken => _ = self.poll_woken()?,
            Step::Finish(number) => self.finish_nth(number)?,
            Step::Drop(number) => self.drop_nth(number),
            Step::Forget(number) => self.forget_nth(number),
            Step::ReadNow(place, span) => self.read_now(place, span)?,
            Step::ReadManyNow(place, span) => self.read_many_now(place, span)?,
            Step::CheckKept => self.check_kept()?,
            Step::DropKept => drop(self.kept.drain(..self.kept.len().div_ceil(2))),
            Step::ForgetKept => self.forget_kept(),
            Step::Open(place, caching, mode) => self.open(place, caching, mode)?,
            Step::Close(place) => self.targets[place.file].handles[place.handle] = None,
            Step::Listen(place, mood) => self.listen(place, mood)?,
            Step::Unlisten => drop(self.listeners.pop()),
            Step::WillNeed(place, span) => self.advise(place, Advice::WillNeed, span)?,
            Step::DontNeed(place, span) => self.advise(place, Advice::DontNeed, span)?,
            Step::Fault(operation, span, errno) => {
                let range = ByteRange::at(span.offset_bytes / 4096 * 4096, span.length as u64 + 4096);
                self.control.add_fault(FaultRange { operation, ..FaultRange::new(range, errno) });
                self.begin_faults();
            }
            Step::FailSync => {
                self.control.fail_syncs(EIO, 1);
                self.targets.iter_mut().for_each(|target| target.is_latched = true);
                self.begin_faults();
            }
            Step::Fill(bytes) => {
                self.control.space_left(Some(bytes));
                self.coverage.note(Reached::FullDevice);
                self.begin_faults();
            }
            Step::Heal => self.heal(),
            Step::Press => self.press()?,
            Step::Later(milliseconds) => self.later(milliseconds)?,
            Step::Fork(place) => self.fork(place)?,
            Step::FlushAll => self.flush_all()?,
            Step::Cool(file) => self.cool(file)?,
        }
        Ok(())
    }

    /// Nothing is under way, kept or unwritten any more, and all bytes are right.
    pub(crate) fn finish(mut self) -> Outcome<Coverage> {
        self.heal();
        while !self.tasks.is_empty() {
            self.finish_nth(0)?;
        }
        self.check_kept()?;
        self.kept.clear();
        self.listeners.clear();
        for file in 0..FILES {
            self.finish_file(file)?;
        }
        self.note_outbreaks();
        let evictions = self.engine.stats().cache.counts.evictions;
        self.coverage.note_if(evictions > 0, Reached::Evicted);
        if self.has_leaked {
            // What was leaked keeps the engine.
            std::mem::forget(self.engine);
            return Ok(self.coverage);
        }
        self.wait_idle()?;
        Ok(self.coverage)
    }

    /// Everything is let go in the middle: what was written is in the files all the same.
    pub(crate) fn leave(mut self) -> Outcome<Coverage> {
        self.heal();
        self.note_outbreaks();
        let World { engine, targets, tasks, alarms, kept, listeners, clock, coverage, .. } = self;
        if self.has_leaked {
            // What was leaked keeps the engine.
            std::mem::forget((engine, tasks));
            return Ok(coverage);
        }
        // The device still has wakers of tasks that are gone, which hold handles.
        alarms.iter().filter_map(Weak::upgrade).for_each(|alarm| drop(alarm.file.lock().unwrap().take()));
        let mut files = Vec::new();
        for Target { path, versions, handles, is_latched } in targets {
            files.push((path, versions, is_latched));
            drop(handles);
        }
        drop((engine, clock, kept, listeners, tasks));
        for (path, versions, is_latched) in files {
            match fs::read(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Ok(_) if is_latched => {}
                disk => _ = versions.check(versions.now(), 0, usize::MAX, &disk.map_err(text)?)?,
            }
        }
        Ok(coverage)
    }

    fn finish_file(&mut self, file: usize) -> Outcome {
        self.settle(file)?;
        let place = Place { file, handle: 0 };
        self.targets[file].handles = Default::default();
        let length = self.targets[file].versions.now_bytes() + 100;
        self.read_now(place, Span { offset_bytes: 0, length })?;
        let synced = (0..SYNC_ATTEMPTS).find_map(|_| self.targets[file].handle(0).sync_data().ok());
        let target = &mut self.targets[file];
        target.handles = Default::default();
        if synced.is_none() {
            return if target.is_latched { Ok(()) } else { Err("it cannot be synced".to_owned()) };
        }
        let disk = fs::read(&target.path).map_err(text)?;
        target
            .versions
            .check(target.versions.now(), 0, usize::MAX, &disk)
            .map_err(|error| format!("on disk: {error}"))?;
        Ok(())
    }

    fn wait_idle(&self) -> Outcome {
        for _ in 0..IDLE_STEPS {
            let stats = self.engine.stats();
            let driver = stats.driver;
            if stats.arena.used_bytes + stats.lent_bytes == 0 && driver.in_flight + driver.slots_used == 0 {
                return Ok(());
            }
            self.pass_time();
        }
        Err(format!("still in use: {:?}", self.engine))
    }

    /// The device does some of what it is asked for.
    fn pass_time(&self) {
        let mut reading = pin!(self.clock.read_at_async(0, 100));
        let mut context = Context::from_waker(Waker::noop());
        // It may have to wait itself, for memory.
        for _ in 0..STEPS_MAX {
            if reading.as_mut().poll(&mut context).is_ready() {
                return;
            }
        }
    }

    fn begin(&mut self, place: Place, work: Work, mood: Mood) -> Outcome {
        if self.tasks.len() >= TASKS_MAX {
            self.finish_nth(0)?;
        }
        let file = self.handle(place)?;
        if work.changes() && !self.make_certain(place.file)? {
            return Ok(());
        }
        let target = &mut self.targets[place.file];
        let since = target.versions.now();
        let future = target.begin(&file, work);
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
                Work::Read(_) | Work::View(_) | Work::Stream(_) => Reached::ReadWaited,
                Work::Write(..) | Work::Append(..) | Work::SetLength(_) => Reached::MutationWaited,
                Work::SyncData | Work::SyncAll | Work::Flush => Reached::SyncWaited,
            });
        }
        Ok(())
    }

    /// No change is under way, and it is known what the file holds. False if that cannot be.
    fn make_certain(&mut self, file: usize) -> Outcome<bool> {
        while let Some(number) = self.tasks.iter().position(|task| task.file == file && task.work.changes()) {
            self.finish_nth(number)?;
        }
        self.settle(file)
    }

    /// Reads all of a file of which it is not known what it holds. False if that fails.
    fn settle(&mut self, file: usize) -> Outcome<bool> {
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

    fn poll_nth(&mut self, number: usize) -> Outcome {
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

    fn poll_woken(&mut self) -> Outcome<Woken> {
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
    fn finish_nth(&mut self, number: usize) -> Outcome {
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
        Err(format!("tasks that never end: {works:?}, {:?}", self.engine))
    }

    fn conclude(&mut self, task: &Task, done: Done) -> Outcome {
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
                if at == end_bytes { Ok(()) } else { Err(format!("appended at {at}, not {end_bytes}")) }
            }
            Done::Nothing(Ok(())) if task.work.changes() => {
                target.versions.finish();
                self.note_change(task.file);
                Ok(())
            }
            Done::Nothing(Ok(())) => {
                if !target.versions.is_unchanged(task.since) {
                    return Ok(());
                }
                self.coverage.note(Reached::SyncSawDisk);
                let disk = fs::read(&target.path).map_err(text)?;
                if disk == target.versions.bytes() {
                    return Ok(());
                }
                target.versions.check(target.versions.now(), 0, usize::MAX, &disk)?;
                Ok(())
            }
            Done::Nothing(Err(error)) | Done::Appended(Err(error)) if task.work.changes() => {
                target.versions.give_up();
                self.forgive(has_failed, Reached::MutationFailed, &error)
            }
            Done::Nothing(Err(error)) | Done::Appended(Err(error)) => {
                self.forgive(has_failed, Reached::SyncFailed, &error)
            }
        }
    }

    fn forgive(&mut self, may_fail: bool, reached: Reached, error: &dyn std::fmt::Display) -> Outcome {
        self.coverage.note(reached);
        if may_fail { Ok(()) } else { Err(format!("without a fault: {error}")) }
    }

    fn note_change(&mut self, file: usize) {
        let is_held = self.kept.iter().any(|kept| kept.file == file);
        self.coverage.note_if(is_held, Reached::ViewHeldOverWrite);
    }

    fn drop_nth(&mut self, number: usize) {
        if self.tasks.is_empty() {
            return;
        }
        let task = self.tasks.remove(number % self.tasks.len());
        if task.work.changes() {
            self.targets[task.file].versions.give_up();
            self.coverage.note(Reached::MutationDropped);
        }
    }

    /// Only of what reads: a task that has begun to change a file, or to sync it, has others wait for its end.
    fn forget_nth(&mut self, number: usize) {
        let reads = |task: &Task| matches!(task.work, Work::Read(_) | Work::View(_) | Work::Stream(_));
        if self.tasks.is_empty() || !reads(&self.tasks[number % self.tasks.len()]) {
            return;
        }
        let task = self.tasks.remove(number % self.tasks.len());
        std::mem::forget(task.future);
        self.has_leaked = true;
        self.coverage.note(Reached::FutureForgotten);
    }

    fn forget_kept(&mut self) {
        if let Some(kept) = self.kept.pop() {
            std::mem::forget(kept.view);
            self.has_leaked = true;
            self.coverage.note(Reached::ViewForgotten);
        }
    }

    fn check_kept(&mut self) -> Outcome {
        self.kept.iter().try_for_each(Kept::check)
    }

    fn read_now(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        let mut bytes = vec![0xAA; span.length];
        let read = file.read_at(&mut bytes, span.offset_bytes);
        self.check_read(place.file, span, &read, &bytes)
    }

    fn read_many_now(&mut self, place: Place, span: Span) -> Outcome {
        let (file, half) = (self.handle(place)?, span.length / 2);
        let (mut first, mut second) = (vec![0xAA; half], vec![0xAA; span.length - half]);
        let rest = Span { offset_bytes: span.offset_bytes + half as u64, length: span.length - half };
        let mut reads =
            [ManyRead::new(rest.offset_bytes, &mut second), ManyRead::new(span.offset_bytes, &mut first)];
        let done = file.read_many(&mut reads);
        let counts = [reads[0].read_bytes, reads[1].read_bytes];
        let read = |count| done.as_ref().map(|()| count).map_err(|_| EIO);
        let results = [read(counts[0]), read(counts[1])];
        if done.is_err() && !self.is_faulty {
            return Err(format!("without a fault: {done:?}"));
        }
        self.check_read_bytes(place.file, rest, results[0], &second)?;
        self.check_read_bytes(place.file, Span { length: half, ..span }, results[1], &first)
    }

    fn check_read(
        &mut self,
        file: usize,
        span: Span,
        read: &headwater::Result<usize>,
        bytes: &[u8],
    ) -> Outcome {
        match read {
            Ok(count) => self.check_read_bytes(file, span, Ok(*count), bytes),
            Err(error) => self.forgive(self.is_faulty, Reached::ReadFailed, error),
        }
    }

    fn check_read_bytes(
        &mut self,
        file: usize,
        span: Span,
        read: Result<usize, i32>,
        bytes: &[u8],
    ) -> Outcome {
        let Ok(count) = read else { return Ok(()) };
        let versions = &self.targets[file].versions;
        // A fault may end a read early.
        let length = if self.is_faulty { count } else { span.length };
        versions.check(versions.now(), span.offset_bytes, length, &bytes[..count])?;
        if bytes[count..].iter().all(|&byte| byte == 0xAA) {
            Ok(())
        } else {
            Err("a read wrote beyond what it read".to_owned())
        }
    }

    fn handle(&mut self, place: Place) -> Outcome<File> {
        if self.targets[place.file].handles[place.handle].is_none() {
            self.open(place, Caching::On, IoMode::Auto)?;
        }
        Ok(self.targets[place.file].handle(place.handle).clone())
    }

    fn open(&mut self, place: Place, caching: Caching, mode: IoMode) -> Outcome {
        let mut options = OpenOptions::new();
        options.engine(&self.engine).caching(caching).io(mode).create();
        let target = &mut self.targets[place.file];
        let opened = match options.open(&target.path) {
            // Where there is no direct I/O.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                options.io(IoMode::Auto).open(&target.path)
            }
            opened => opened,
        };
        target.handles[place.handle] = Some(opened.map_err(text)?);
        Ok(())
    }

    fn listen(&mut self, place: Place, mood: Mood) -> Outcome {
        let file = self.handle(place)?;
        self.listeners.push(listen(&file, mood, &self.outbreaks[1]));
        Ok(())
    }

    fn advise(&mut self, place: Place, advice: Advice, span: Span) -> Outcome {
        let (file, end_bytes) = (self.handle(place)?, span.offset_bytes + span.length as u64);
        match file.advise(advice, ByteRange::new(span.offset_bytes, end_bytes)) {
            // Beyond the end, or without a cache.
            Err(error) if ![ErrorKind::InvalidInput, ErrorKind::Unsupported].contains(&error.kind()) => {
                if self.is_faulty {
                    Ok(())
                } else {
                    Err(error.to_string())
                }
            }
            _ => Ok(()),
        }
    }

    fn begin_faults(&mut self) {
        self.is_faulty = true;
        self.faults += 1;
    }

    fn heal(&mut self) {
        self.control.clear_faults();
        self.control.fail_syncs(EIO, 0);
        self.control.space_left(None);
        if std::mem::take(&mut self.is_faulty) {
            self.faults += 1;
        }
    }

    fn press(&mut self) -> Outcome {
        if !self.pressing.exists() {
            Pattern::new(0).write_file(&self.pressing, PRESSING_BYTES).map_err(text)?;
        }
        let mut options = OpenOptions::new();
        let file = options.engine(&self.engine).caching(Caching::On).open(&self.pressing).map_err(text)?;
        let mut buffer = vec![0; 256 << 10];
        for offset_bytes in (0..PRESSING_BYTES).step_by(buffer.len()) {
            match file.read_exact_at(&mut buffer, offset_bytes) {
                Err(_) if self.is_faulty => return Ok(()),
                read => read.map_err(text)?,
            }
            if Pattern::new(0).mismatch(offset_bytes, &buffer).is_some() {
                return Err(format!("another file has wrong bytes from {offset_bytes}"));
            }
        }
        self.coverage.note(Reached::Pressed);
        Ok(())
    }

    fn later(&mut self, milliseconds: u64) -> Outcome {
        let unwritten = || self.engine.stats().cache.unwritten_pages;
        let before = unwritten();
        self.control.advance(std::time::Duration::from_millis(milliseconds));
        self.engine.keep();
        self.pass_time();
        self.engine.keep();
        let is_written = unwritten() < before;
        self.coverage.note_if(is_written, Reached::WrittenBackByAge);
        if milliseconds >= OLD_MILLISECONDS { self.check_old() } else { Ok(()) }
    }

    /// What is so old is written, unless it could not be, or a cut holds it back.
    fn check_old(&self) -> Outcome {
        if self.faults > 0 || self.targets.iter().any(|target| target.versions.is_changing()) {
            return Ok(());
        }
        for _ in 0..IDLE_STEPS {
            let stats = self.engine.stats();
            if stats.cache.unwritten_pages == 0 {
                return Ok(());
            }
            if stats.driver.in_flight == 0 {
                self.engine.keep();
            }
            self.pass_time();
        }
        Err(format!("{} pages are old and not written", self.engine.stats().cache.unwritten_pages))
    }

    fn fork(&mut self, place: Place) -> Outcome {
        let file = self.handle(place)?;
        let tasks = &mut self.tasks;
        run_forked(|| {
            let _ = (file.stats(), file.coherence(), file.is_clean());
            assert!(
                matches!(file.read_at(&mut [0; 10], 0), Err(Error::Forked(_))),
                "the engine is the parent's"
            );
            assert!(matches!(file.sync_data(), Err(Error::Forked(_))), "the engine is the parent's");
            tasks.clear();
            drop(file);
        });
        self.coverage.note(Reached::Forked);
        Ok(())
    }

    fn cool(&mut self, file: usize) -> Outcome {
        let place = Place { file, handle: 0 };
        self.advise(place, Advice::DontNeed, Span { offset_bytes: 0, length: 1 << 30 })?;
        make_cold(&fs::File::open(&self.targets[file].path).map_err(text)?).map_err(text)
    }

    /// Not beside a change: it waits for what only a poll ends.
    fn flush_all(&mut self) -> Outcome {
        if self.targets.iter().any(|target| target.versions.is_changing()) {
            return Ok(());
        }
        match self.engine.flush() {
            Err(error) => self.forgive(self.faults > 0, Reached::SyncFailed, &error),
            Ok(()) => Ok(()),
        }
    }

    fn note_outbreaks(&mut self) {
        let [wakers, listeners] = &self.outbreaks;
        let counts = [
            (&wakers.panicked, Reached::WakerPanicked),
            (&wakers.read, Reached::WakerRead),
            (&wakers.dropped, Reached::WakerDropped),
            (&listeners.panicked, Reached::ListenerPanicked),
            (&listeners.read, Reached::ListenerRead),
            (&listeners.dropped, Reached::ListenerDropped),
        ];
        for (count, reached) in counts {
            self.coverage.note_if(count.load(Ordering::Relaxed) > 0, reached);
        }
    }
}

impl Kept {
    /// A view holds what it held at first.
    fn check(&self) -> Outcome {
        if self.view.to_vec() == self.bytes {
            Ok(())
        } else {
            Err(format!("a view of file {} changed", self.file))
        }
    }
}

impl Target {
    /// # Panics
    /// If it is not open, and cannot be opened again.
    fn handle(&self, number: usize) -> &File {
        self.handles[number].as_ref().expect("it is open")
    }

    fn begin(&mut self, file: &File, work: Work) -> Pin<Box<dyn Future<Output = Done> + Send>> {
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
            Work::Write(Span { offset_bytes, length }, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| overwrite(file, offset_bytes as usize, &bytes));
                let writing = file.write_all_at_async(bytes, offset_bytes);
                Box::pin(async { Done::Nothing(writing.await) })
            }
            Work::Append(length, fill) => {
                let bytes = contents(length, fill);
                self.versions.begin(|file| file.extend_from_slice(&bytes));
                let appending = file.append_async(bytes);
                Box::pin(async { Done::Appended(appending.await) })
            }
            Work::SetLength(length_bytes) => {
                self.versions.begin(|file| file.resize(length_bytes as usize, 0));
                let cutting = file.set_len_async(length_bytes);
                Box::pin(async { Done::Nothing(cutting.await) })
            }
            Work::SyncData => nothing(file.sync_data_async()),
            Work::SyncAll => nothing(file.sync_all_async()),
            Work::Flush => nothing(file.flush_async()),
        }
    }
}

fn nothing(
    work: impl Future<Output = headwater::Result<()>> + Send + 'static,
) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(async { Done::Nothing(work.await) })
}

impl Work {
    fn changes(self) -> bool {
        matches!(self, Work::Write(..) | Work::Append(..) | Work::SetLength(_))
    }

    /// The bytes that it reads, of which so many were there.
    fn range(self, found: usize) -> (u64, usize) {
        match self {
            Work::Read(span) | Work::View(span) => (span.offset_bytes, span.length),
            _ => (0, found),
        }
    }
}

fn overwrite(file: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        file.resize(file.len().max(start + bytes.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

fn contents(length: usize, fill: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(fill).fill(0, &mut bytes);
    bytes
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

const TASKS_MAX: usize = 8;
const KEPT_MAX: usize = 8;

/// Polls of all tasks, far more than any needs.
const POLLS_MAX: usize = 20_000;

/// Polls without a task that is woken, while the device has nothing to do, after which none will be.
const QUIET_POLLS: usize = 3;

/// Longer than pages may stay dirty, by far.
const OLD_MILLISECONDS: u64 = 40_000;

/// Polls that move the device before it is left alone again.
const STEPS_MAX: usize = 100;

/// Requests until a device is idle that delays each by some steps, far more than it takes.
const IDLE_STEPS: usize = 5000;

/// With the device in order again, what failed before may be told once more, and by each handle.
const SYNC_ATTEMPTS: usize = 3;

/// Of the other file: more than the smallest memory.
const PRESSING_BYTES: u64 = 4 << 20;
