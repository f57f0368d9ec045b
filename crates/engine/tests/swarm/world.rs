//! World: an engine, its files and tasks, and what each step does to them.
//!
//! Owns: what is under way and kept; whether an error is forgiven.
//! Does not own: what bytes are possible (versions).

mod advice;
mod changes;
mod leaving;
mod memory;
mod peeks;
mod reads;
mod silent;
mod tasks;
mod whole;
mod windows;

use std::fs;
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::time::Duration;
use std::time::SystemTime;

use headwater::testing::{FaultRange, SimControl, SimOptions};
use headwater::{
    Advice, ByteRange, DriverKind, Engine, Error, EvictionListener, File, IoMode, OpenOptions, View,
};
use headwater_testkit::{is_more_than_owner, run_forked, take_lazy_memory};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::coverage::{Coverage, Reached};
use crate::moods::{Alarm, Mood, Outbreaks, listen};
use crate::steps::{EIO, FILES, HANDLES, Opening, Place, Setup, Span, Step, Work};
use crate::versions::Versions;
use changes::{contents, overwrite};
use silent::Silent;
use tasks::Task;
use windows::Window;

pub(crate) struct World {
    /// First, so that its device answers when all the others end.
    silent: Option<Silent>,
    engine: Engine,
    control: SimControl,
    /// Not a file whose pages are cached: each read goes to the device, and moves what is under way.
    clock: File,
    targets: Vec<Target>,
    pressing: PathBuf,
    tasks: Vec<Task>,
    /// After the tasks, which may have what the end of a window waits for.
    windows: Vec<Window>,
    alarms: Vec<Weak<Alarm>>,
    kept: Vec<Kept>,
    listeners: Vec<Arc<Mutex<Option<EvictionListener>>>>,
    outbreaks: [Arc<Outbreaks>; 2],
    directory: PathBuf,
    coverage: Coverage,
    is_faulty: bool,
    /// Grows when faults come and go.
    faults: u64,
    has_leaked: bool,
    /// The engine can end all the same.
    has_leaked_pages: bool,
    /// A window on demand was made. Its threads run in real time, and so do the wakers that they call.
    has_handlers: bool,
    is_checked: bool,
    remaps: bool,
    shares_extents: bool,
}

struct Target {
    path: PathBuf,
    versions: Versions,
    handles: [Option<File>; HANDLES],
    /// A sync failed, so that none succeeds any more.
    is_latched: bool,
    /// A window ended beside faults; where it could not be written back, the engine keeps it.
    may_keep_windows: bool,
}

struct Kept {
    view: View,
    file: usize,
    bytes: Vec<u8>,
}

type Outcome<T = ()> = Result<T, String>;

impl World {
    pub(crate) fn new(setup: &Setup, directory: &Path) -> Outcome<World> {
        if is_more_than_owner() {
            // The owner of a file that is made from now on may only write it.
            umask(Mode::RUSR);
        }
        let mut options = SimOptions::hostile(setup.seed);
        if !setup.is_hostile {
            (options.short_per_mille, options.transient_per_mille) = (0, 0);
        }
        (options.repolls, options.remaps) = (false, setup.remaps);
        let control = options.control.clone();
        let builder = Engine::builder().memory(setup.memory_bytes).queue_depth(setup.queue_depth);
        let builder = builder.replacement(setup.replacement).readahead_policy(setup.readahead);
        let builder = memory::limit(builder, setup.headroom, directory).map_err(text)?;
        let engine = builder.driver(DriverKind::Sim(options)).build().map_err(text)?;
        let targets = (0..FILES).map(|number| {
            let path = directory.join(format!("file{number}"));
            let _ = fs::remove_file(&path);
            Target {
                path,
                versions: Versions::new(),
                handles: Default::default(),
                is_latched: false,
                may_keep_windows: false,
            }
        });
        let clock =
            OpenOptions::new().engine(&engine).io(IoMode::Buffered).open("/proc/version").map_err(text)?;
        let mut world = World {
            targets: targets.collect(),
            silent: None,
            clock,
            engine,
            control,
            pressing: directory.join("pressing"),
            tasks: Vec::new(),
            windows: Vec::new(),
            alarms: Vec::new(),
            kept: Vec::new(),
            listeners: Vec::new(),
            outbreaks: Default::default(),
            directory: directory.to_owned(),
            coverage: Coverage::default(),
            is_faulty: false,
            faults: 0,
            has_leaked: false,
            has_leaked_pages: false,
            has_handlers: false,
            is_checked: setup.is_checked,
            remaps: setup.remaps,
            shares_extents: setup.remaps && setup.shares_extents,
        };
        if setup.has_silent {
            world.silent = Some(Silent::new(&world).map_err(text)?);
        }
        Ok(world)
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
            Step::ReadVectoredNow(place, span) => self.read_vectored_now(place, span)?,
            Step::WriteVectoredNow(place, span, fill) => self.write_vectored_now(place, span, fill)?,
            Step::Now(place, work, before) => self.perform_now(place, work, before)?,
            Step::AllocateNow(place, span) => self.allocate_now(place, span)?,
            Step::ForgetPeek(place, span) => self.forget_peek(place, span)?,
            Step::ReadInOrderNow(place, span) => self.read_in_order_now(place, span)?,
            Step::WriteInOrderNow(place, span, fill) => self.write_in_order_now(place, span, fill)?,
            Step::ReadWholeNow(file, handles) => self.read_whole_now(file, handles)?,
            Step::CheckClean(file) => self.check_clean(file)?,
            Step::CheckKept => self.check_kept()?,
            Step::DropKept => drop(self.kept.drain(..self.kept.len().div_ceil(2))),
            Step::ForgetKept => self.forget_kept(),
            Step::Map(place, span, shape) => self.map(place, span, shape)?,
            Step::ReadWindow(number, span) => self.read_window(number, span)?,
            Step::LoadFromWindow(number, span) => self.load_from_window(number, span)?,
            Step::WriteWindow(number, span, fill) => self.write_window(number, span, fill)?,
            Step::AddToWindow(number, span, value) => self.add_to_window(number, span, value)?,
            Step::StoreInWindow(number, span, fill) => self.store_in_window(number, span, fill)?,
            Step::SyncWindow(number) => self.sync_window(number)?,
            Step::Unmap(number) => self.unmap(number)?,
            Step::ForgetWindow => self.forget_window(),
            Step::Open(place, opening) => self.open(place, opening)?,
            Step::Close(place) => self.targets[place.file].handles[place.handle] = None,
            Step::Listen(place, mood) => self.listen(place, mood)?,
            Step::Unlisten => drop(self.listeners.pop()),
            Step::WillNeed(place, span) => self.advise(place, Advice::WillNeed, span)?,
            Step::DontNeed(place, span) => self.advise(place, Advice::DontNeed, span)?,
            Step::Advise(place, advice, span) => self.advise(place, advice, span)?,
            Step::WillNeedMany(place, span, count, then) => self.will_need_many(place, span, count, then)?,
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
            Step::Squeeze(mebibytes) => self.squeeze(mebibytes)?,
            Step::TakeOffered => take_lazy_memory(),
            Step::Later(milliseconds) => self.later(milliseconds)?,
            Step::Fork(place) => self.fork(place)?,
            Step::FlushAll => self.flush_all()?,
            Step::Cool(file) => self.cool(file)?,
            Step::Touch(file) => self.touch(file)?,
            Step::Hang(page) => self.hang(page),
            Step::Peek(..) => unreachable!("it has others performed meanwhile"),
            Step::Exit(_) => unreachable!("it takes the world with it"),
        }
        Ok(())
    }

    /// Nothing is under way, kept or unwritten any more, and all bytes are right.
    pub(crate) fn finish(mut self) -> Outcome<Coverage> {
        self.heal();
        self.answer();
        while !self.tasks.is_empty() {
            self.finish_nth(0)?;
        }
        self.check_kept()?;
        self.kept.clear();
        self.windows.clear();
        self.listeners.clear();
        for file in 0..FILES {
            self.finish_file(file)?;
        }
        self.note_outbreaks();
        let stats = self.engine.stats();
        self.coverage.note_if(stats.memory.taken_bytes > 0, Reached::OfferTaken);
        let counts = stats.cache.counts;
        self.coverage.note_if(counts.evictions > 0, Reached::Evicted);
        self.coverage.note_if(counts.conflicts > 0, Reached::Conflict);
        if self.has_leaked {
            // What was leaked keeps the engine.
            std::mem::forget(self.engine);
            return Ok(self.coverage);
        }
        if !self.has_leaked_pages {
            self.wait_idle()?;
        }
        Ok(self.coverage)
    }

    /// Everything is let go in the middle: what was written is in the files all the same.
    pub(crate) fn leave(mut self) -> Outcome<Coverage> {
        self.heal();
        self.answer();
        self.note_outbreaks();
        let World { engine, targets, tasks, windows, alarms, kept, listeners, clock, coverage, .. } = self;
        if self.has_leaked {
            // What was leaked keeps the engine.
            std::mem::forget((engine, tasks, windows));
            return Ok(coverage);
        }
        // The device still has wakers of tasks that are gone, which hold handles.
        for alarm in alarms.iter().filter_map(Weak::upgrade) {
            // Dropped without the lock: that may wake the same task.
            let _file = alarm.file.lock().unwrap().take();
        }
        let mut files = Vec::new();
        for Target { path, versions, handles, is_latched, .. } in targets {
            files.push((path, versions, is_latched));
            drop(handles);
        }
        // The drop of a writer waits for whatever task changes the file.
        let (writers, others): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| matches!(task.deed.work, Work::WriteInOrder(..)));
        drop(others);
        drop((engine, clock, kept, listeners, writers, windows));
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
            let used_bytes = stats.arena.used_bytes + stats.arena.lent_out_bytes + stats.lent_bytes;
            if used_bytes == 0 && driver.in_flight + driver.slots_used == 0 {
                return Ok(());
            }
            self.pass_time();
        }
        Err(format!("still in use: {:?}", self.engine.stats()))
    }

    /// Whether the device has nothing to do that it will answer.
    fn is_idle(&self) -> bool {
        self.engine.stats().driver.in_flight == self.control.held_requests() as usize
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

    /// In three pieces. Nothing else changes the file: the writer would wait for a task of this thread.
    fn write_in_order_now(&mut self, place: Place, span: Span, fill: u64) -> Outcome {
        if !self.free_size_lock(place.file)? {
            return Ok(());
        }
        let mut writer = self.handle(place)?.writer().starting_at(span.offset_bytes);
        let bytes = contents(span.length, fill);
        let versions = &mut self.targets[place.file].versions;
        versions.begin(|file| overwrite(file, span.offset_bytes as usize, &bytes));
        let written = bytes.chunks(span.length / 3 + 1).try_for_each(|piece| writer.write_all(piece));
        match written.map_err(text).and_then(|()| writer.into_inner().map(drop).map_err(text)) {
            Ok(()) => {
                versions.finish();
                self.note_change(place.file);
                self.coverage.note(Reached::WrittenInOrderNow);
                Ok(())
            }
            Err(error) => {
                versions.give_up();
                self.forgive(self.faults > 0, Reached::MutationFailed, &error)
            }
        }
    }

    fn handle(&mut self, place: Place) -> Outcome<File> {
        if self.targets[place.file].handles[place.handle].is_none() {
            self.open(place, Opening::PLAIN)?;
        }
        Ok(self.targets[place.file].handle(place.handle).clone())
    }

    fn open(&mut self, place: Place, opening: Opening) -> Outcome {
        let Opening { caching, mode, readahead, revalidate, coherence } = opening;
        let mut options = OpenOptions::new();
        options.engine(&self.engine).caching(caching).io(mode).write(true).create(true).coherence(coherence);
        readahead.map(|policy| options.readahead(policy));
        revalidate.map(|interval| options.revalidate(interval));
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

    fn later(&mut self, milliseconds: u64) -> Outcome {
        let unwritten = || self.engine.stats().cache.dirty_pages;
        let before = unwritten();
        self.control.advance(Duration::from_millis(milliseconds));
        self.engine.maintain();
        self.pass_time();
        self.engine.maintain();
        let is_written = unwritten() < before;
        self.coverage.note_if(is_written, Reached::WrittenBackByAge);
        self.coverage.note_if(is_written && self.is_hung(), Reached::WrittenBesideHung);
        if milliseconds >= OLD_MILLISECONDS { self.check_old() } else { Ok(()) }
    }

    /// What is so old is written, unless it could not be, or a cut holds it back.
    fn check_old(&self) -> Outcome {
        if self.faults > 0
            || self.is_hung()
            || self.targets.iter().any(|target| target.versions.is_changing())
        {
            return Ok(());
        }
        for _ in 0..IDLE_STEPS {
            let stats = self.engine.stats();
            if stats.cache.dirty_pages == 0 {
                return Ok(());
            }
            if self.is_idle() {
                self.engine.maintain();
            }
            self.pass_time();
        }
        Err(format!("{} pages are old and not written", self.engine.stats().cache.dirty_pages))
    }

    fn fork(&mut self, place: Place) -> Outcome {
        let file = self.handle(place)?;
        let (tasks, windows) = (&mut self.tasks, &mut self.windows);
        run_forked(|| {
            let _ = (file.stats(), file.coherence(), file.is_clean());
            assert!(
                matches!(file.read_at(&mut [0; 10], 0), Err(Error::Forked(_))),
                "the engine is the parent's"
            );
            assert!(matches!(file.sync_data(), Err(Error::Forked(_))), "the engine is the parent's");
            World::check_windows_forked(windows);
            tasks.clear();
            drop(file);
        });
        self.coverage.note(Reached::Forked);
        Ok(())
    }

    fn touch(&mut self, file: usize) -> Outcome {
        match fs::OpenOptions::new().write(true).open(&self.targets[file].path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            file => {
                self.coverage.note(Reached::Touched);
                // From then on, a change may be refused.
                self.faults += u64::from(self.is_checked);
                file.and_then(|file| file.set_modified(SystemTime::now())).map_err(text)
            }
        }
    }

    /// Not beside a change: it waits for what only a poll ends.
    fn flush_all(&mut self) -> Outcome {
        let is_changing = self.targets.iter().any(|target| target.versions.is_changing());
        if is_changing || self.is_hung() || self.has_busy_windows() {
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

/// How long a thread may take until it runs the wakers that it has, far longer than on a busy machine.
const WAKERS_RUN_AFTER: Duration = Duration::from_secs(5);

/// Longer than pages may stay dirty, by far.
const OLD_MILLISECONDS: u64 = 40_000;

/// Polls that move the device before it is left alone again.
const STEPS_MAX: usize = 100;

/// Requests until a device is idle that delays each by some steps, far more than it takes.
const IDLE_STEPS: usize = 5000;

/// With the device in order again, what failed before may be told once more, and by each handle.
const SYNC_ATTEMPTS: usize = 3;
