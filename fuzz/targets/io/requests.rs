//! Requests: memory of an arena and buffers of the caller, moved to and from a file by each driver and by the file itself.
//!
//! Owns: the operations, what a file and each extent must hold afterwards.
//! Does not own: write-back of cached pages (pages).

use std::cell::RefCell;
use std::fs::File;
use std::sync::Arc;

use arbitrary::Arbitrary;
use headwater_core::readahead::Advice;
use headwater_core::units::{ByteRange, PageRange};
use headwater_fuzz::bounds::{MORE_THAN_THERE_IS, Number};
use headwater_fuzz::guarded::{Guarded, Side, check_fault};
use headwater_fuzz::memory_file::MemoryFile;
use headwater_fuzz::model::Model;
use headwater_fuzz::panics::documented;
use headwater_io::{
    Access, AppendFile, Arena, Batch, Call, DirectIo, Direction, Driver, DriverKind, DriverOptions, Extents,
    Finished, Fsync, OpenFile, Request, Route, SimOptions, SyncScope, Transfer, Urgency, uring_refusal,
};

#[derive(Arbitrary, Debug)]
pub(crate) struct Case {
    driver: DriverChoice,
    place: Place,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum DriverChoice {
    Sim(u64),
    Threads,
    Uring,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Place {
    Memory,
    Disk,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Way {
    Submit,
    Plug,
    Batch,
    /// Submitted and dropped, if it is a read.
    Abandon,
}

/// Which function of two does it.
#[derive(Arbitrary, Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Driver,
    File,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Allocate { bytes: Number, ahead: bool },
    AllocateRun { bytes: Number, ahead: bool },
    Store { which: u8, at: Number, length: u16 },
    LendOut { bytes: Number },
    Release { bytes: Number },
    Free { which: u8 },
    Transfer { which: u8, write: bool, direct: bool, offset: Number, length: Number, way: Way },
    Sync { all: bool },
    Call { write: bool, several: bool, offset: Number, lengths: [u16; 3] },
    Read { by: By, direct: bool, offset: Number, length: u16, side: Side },
    Write { by: By, direct: bool, offset: Number, length: u16, side: Side },
    ReadResident { offset: Number, length: u16, side: Side },
    Append { length: u16, side: Side },
    SetLen { by: By, length: Number },
    SetAside { reserve: bool, start: Number, end: Number },
    Extend { by: By, length: Number },
    Ask { start: Number, end: Number },
    Advise { advice: u8, start: Number, end: Number },
}

pub(crate) fn run(case: &Case) {
    BENCH.with_borrow_mut(|bench| {
        let place = match (case.place, &bench.disk) {
            (Place::Disk, Some(_)) => bench.disk.take(),
            _ => None,
        };
        let (on_disk, opened) =
            (place.is_some(), place.unwrap_or_else(|| Opened::new(&MemoryFile::new(), DirectIo::Off)));
        opened.file.set_len(0).expect("a file can be empty");
        let driver = match case.driver {
            DriverChoice::Sim(seed) => sim(seed),
            DriverChoice::Threads => bench.threads.clone(),
            DriverChoice::Uring => bench.uring.as_ref().unwrap_or(&bench.threads).clone(),
        };
        let mut scene =
            Scene { bench, opened, on_disk, driver, model: Model::default(), held: Vec::new(), fill: 0 };
        case.steps.iter().take(STEPS_MAX).for_each(|step| scene.perform(step));
        let opened = scene.finish();
        if on_disk {
            bench.disk = Some(opened);
        }
    });
}

/// What outlives a case.
struct Bench {
    arena: Arena,
    threads: Driver,
    uring: Option<Driver>,
    disk: Option<Opened>,
    guarded: Guarded,
}

struct Opened {
    file: Arc<OpenFile>,
    append: AppendFile,
    /// For calls with descriptors of their own.
    descriptor: Arc<File>,
}

impl Opened {
    fn new(file: &MemoryFile, direct_io: DirectIo) -> Opened {
        let opened = OpenFile::open(file.path(), direct_io, Access::ReadWrite).expect("it is a regular file");
        let append = AppendFile::open(&opened, file.path()).expect("it is a regular file");
        let descriptor =
            File::options().read(true).write(true).open(file.path()).expect("it is a regular file");
        Opened { file: Arc::new(opened), append, descriptor: Arc::new(descriptor) }
    }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench {
        arena: Arena::new(9 << 20).expect("it holds four chunks"),
        threads: driver(DriverKind::Threads),
        uring: uring_refusal().is_none().then(|| driver(DriverKind::Uring)),
        disk: MemoryFile::on_disk().ok().map(|file| Opened::new(&file, DirectIo::Preferred)),
        guarded: Guarded::new(17),
    });
}

fn driver(kind: DriverKind) -> Driver {
    let options = DriverOptions { kind, queue_depth: 4, ..DriverOptions::default() };
    Driver::new(&options).expect("it was not refused before")
}

/// Delivers late and short, but without errors.
fn sim(seed: u64) -> Driver {
    let options = SimOptions {
        delay_steps_max: 4,
        short_per_mille: 300,
        transient_per_mille: 0,
        ..SimOptions::hostile(seed)
    };
    driver(DriverKind::Sim(options))
}

struct Held {
    extents: Extents,
    contents: Vec<u8>,
}

struct Scene<'a> {
    bench: &'a mut Bench,
    opened: Opened,
    on_disk: bool,
    driver: Driver,
    model: Model,
    held: Vec<Held>,
    fill: u8,
}

impl Scene<'_> {
    fn perform(&mut self, step: &Step) {
        self.fill = self.fill.wrapping_add(1).max(1);
        match *step {
            Step::Allocate { bytes, ahead } => {
                let allocate = || self.bench.arena.allocate(bytes.get() as usize, urgency(ahead));
                let allocated = documented(&["an extent has at most 2 MiB"], allocate);
                self.hold(allocated.flatten().into_iter().collect());
            }
            Step::AllocateRun { bytes, ahead } => {
                let run = self.bench.arena.allocate_run(bytes.cheap(5 << 20) as usize, urgency(ahead));
                self.hold(run.unwrap_or_default());
            }
            Step::Store { which, at, length } => self.store(which, at.get() as usize, usize::from(length)),
            Step::LendOut { bytes } => _ = self.bench.arena.lend_out(bytes.get() as usize),
            Step::Release { bytes } => _ = self.bench.arena.release(bytes.get() as usize),
            Step::Free { which } => drop(self.take(which)),
            Step::Transfer { which, write, direct, offset, length, way } => {
                let Some(held) = self.take(which) else { return };
                let direction = if write { Direction::Write } else { Direction::Read };
                let request = Transfer {
                    direction,
                    file: self.opened.file.clone(),
                    route: route(direct),
                    offset_bytes: offset.get(),
                    length_bytes: length.get() as usize,
                    extents: held.extents,
                };
                self.transfer(request, held.contents, way);
            }
            Step::Sync { all } => {
                let scope = if all { SyncScope::All } else { SyncScope::Data };
                let request = Fsync { file: self.opened.file.clone(), scope };
                let finished = self.driver.submit(request, Urgency::Demand).expect("there is a place").wait();
                assert_eq!(finished.result.expect("a file can be synced"), 0);
            }
            Step::Call { write, several, offset, lengths } => {
                let buffers = lengths.map(|length| vec![self.fill; usize::from(length)]);
                let direction = if write { Direction::Write } else { Direction::Read };
                self.call(direction, offset.get(), buffers[..if several { 3 } else { 1 }].to_vec());
            }
            _ => self.perform_on_file(step),
        }
    }

    fn perform_on_file(&mut self, step: &Step) {
        match *step {
            Step::Read { by, direct, offset, length, side } => {
                self.read(by, route(direct), offset.get(), (usize::from(length), side));
            }
            Step::Write { by, direct, offset, length, side } => {
                self.write(by, route(direct), offset.get(), (usize::from(length), side));
            }
            Step::ReadResident { offset, length, side } => {
                self.read_resident(offset.get(), usize::from(length), side);
            }
            Step::Append { length, side } => self.append(usize::from(length), side),
            Step::SetLen { by, length } => {
                let done = match by {
                    By::Driver => self.driver.set_len_blocking(&self.opened.file, length.get()),
                    By::File => self.opened.file.set_len(length.get()),
                };
                if done.is_ok() {
                    self.model.set_len(length.get());
                }
            }
            Step::SetAside { reserve, start, end } => self.set_aside(reserve, start, end),
            Step::Extend { by, length } => {
                let done = match by {
                    By::Driver => self.driver.extend_blocking(&self.opened.file, length.get()),
                    By::File => self.opened.file.extend(length.get()),
                };
                if done.is_ok() {
                    self.model.set_len(length.get().max(self.model.length_bytes));
                }
            }
            Step::Ask { start, end } => self.ask(ByteRange { start: start.get(), end: end.get() }),
            Step::Advise { advice, start, end } => {
                let range = ByteRange { start: start.get(), end: end.get() };
                let advice = ADVICE[usize::from(advice) % ADVICE.len()];
                if let Err(error) = self.opened.file.advise_kernel(advice, range) {
                    assert!(range.end > i64::MAX as u64, "{advice:?} {range:?}: {error}");
                }
            }
            _ => unreachable!("it moves memory of the arena"),
        }
    }

    fn hold(&mut self, mut extents: Extents) {
        extents.iter_mut().for_each(|extent| extent.fill(self.fill));
        let contents = vec![self.fill; extents.iter().map(|extent| extent.len()).sum()];
        if !contents.is_empty() {
            self.held.push(Held { extents, contents });
        }
    }

    fn take(&mut self, which: u8) -> Option<Held> {
        let count = self.held.len();
        (count > 0).then(|| self.held.swap_remove(usize::from(which) % count))
    }

    fn store(&mut self, which: u8, at: usize, length: usize) {
        let Some(mut held) = self.take(which) else { return };
        let bytes = &*self.bench.guarded.buffer(length, Side::End, self.fill);
        let extent = &mut held.extents[0];
        let room = extent.len();
        // The text of an assertion without one is its condition.
        let stored = documented(&["end_bytes <= self.len()"], || extent.store(at, bytes));
        assert_eq!(stored.is_some(), at.checked_add(bytes.len()).is_some_and(|end| end <= room));
        if stored.is_some() {
            held.contents[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.held.push(held);
    }

    /// By the caller's own descriptor and buffers; one buffer is moved by a call that takes one.
    fn call(&mut self, direction: Direction, offset: u64, mut buffers: Vec<Vec<u8>>) {
        let (driver, file, given) = (&self.driver, self.opened.descriptor.clone(), buffers.concat());
        let one = (buffers.len() == 1).then(|| buffers.remove(0));
        let (result, stopped_by, buffers) = match (direction, one) {
            (Direction::Read, Some(buffer)) => {
                let returned = driver.call(Call::pread(file, buffer, offset)).wait();
                (returned.result, returned.stopped_by, vec![returned.given.1])
            }
            (Direction::Write, Some(buffer)) => {
                let returned = driver.call(Call::pwrite(file, buffer, offset)).wait();
                (returned.result, returned.stopped_by, vec![returned.given.1])
            }
            (Direction::Read, None) => {
                let returned = driver.call(Call::preadv(file, buffers, offset)).wait();
                (returned.result, returned.stopped_by, returned.given.1)
            }
            (Direction::Write, None) => {
                let returned = driver.call(Call::pwritev(file, buffers, offset)).wait();
                (returned.result, returned.stopped_by, returned.given.1)
            }
        };
        let found = buffers.concat();
        assert_eq!(found.len(), given.len());
        match (direction, result) {
            (_, Err(error)) => check_error(&error, Route::Buffered, offset, given.len()),
            (Direction::Read, Ok(read)) => {
                let expected = self.model.read(offset, given.len());
                assert!(read == expected.len() || stopped_by.is_some(), "{read} of {}", expected.len());
                assert!(found[..read] == expected[..read], "{read} bytes at {offset}");
            }
            (Direction::Write, Ok(written)) => {
                assert!(written == given.len() || stopped_by.is_some(), "{written} of {}", given.len());
                assert!(found == given, "a write changes no buffer");
                self.model.write(offset, &given[..written]);
            }
        }
    }

    fn transfer(&mut self, request: Transfer, contents: Vec<u8>, way: Way) {
        let (direction, route) = (request.direction, request.route);
        let (offset, length) = (request.offset_bytes, request.length_bytes);
        let driver = &self.driver;
        let finished = documented(&REFUSED, || match way {
            Way::Abandon if direction == Direction::Read => {
                drop(driver.submit(request, Urgency::Demand).expect("demand has a place"));
                None
            }
            Way::Submit | Way::Abandon => {
                Some(driver.submit(request, Urgency::Demand).expect("demand has a place").wait())
            }
            Way::Plug => {
                let mut plug = driver.plug();
                let completion = plug.submit(request, Urgency::Demand).expect("demand has a place");
                drop(plug);
                Some(completion.wait())
            }
            Way::Batch => finish_batch(driver.batch(), request),
        });
        let is_sound = (1..=contents.len()).contains(&length)
            && offset <= i64::MAX as u64
            && (route == Route::Buffered
                || self
                    .opened
                    .file
                    .direct()
                    .is_some_and(|direct| direct.offset.is_aligned(offset | length as u64)));
        assert_eq!(finished.is_some(), is_sound, "{direction:?} {offset} {length} of {}", contents.len());
        let Some(Some(finished)) = finished else { return };
        self.check(finished, contents, (direction, route, offset, length));
    }

    fn check(
        &mut self,
        finished: Finished,
        mut contents: Vec<u8>,
        (direction, route, offset, length): (Direction, Route, u64, usize),
    ) {
        let extents = finished.extents;
        match (direction, finished.result) {
            (_, Err(error)) => check_error(&error, route, offset, length),
            (Direction::Read, Ok(read)) => {
                let expected = self.model.read(offset, length);
                assert!(
                    read == expected.len() || route == Route::Direct || finished.stopped_by.is_some(),
                    "{read}"
                );
                contents[..read].copy_from_slice(&expected[..read]);
            }
            (Direction::Write, Ok(written)) => self.model.write(offset, &contents[..written]),
        }
        let mut found: Vec<u8> = extents.iter().flat_map(|extent| extent.iter().copied()).collect();
        if direction == Direction::Read {
            // Up to the length that was asked for, memory may hold anything behind what was read.
            let unspecified = contents.len().min(length);
            let read = contents.iter().zip(&found).take_while(|(left, right)| left == right).count();
            found[read.min(unspecified)..unspecified]
                .copy_from_slice(&contents[read.min(unspecified)..unspecified]);
        }
        assert!(found == contents, "{direction:?} of {length} bytes at {offset} changed other bytes");
        let contents = extents.iter().flat_map(|extent| extent.iter().copied()).collect();
        self.held.push(Held { extents, contents });
    }

    fn read(&mut self, by: By, route: Route, offset: u64, (length, side): (usize, Side)) {
        let (file, driver) = (&self.opened.file, &self.driver);
        let buffer = self.bench.guarded.buffer(length, side, self.fill);
        let read = documented(&[NO_DIRECT], || match by {
            By::Driver => driver.read_blocking(file, route, buffer, offset),
            By::File => file.read_blocking(route, buffer, offset),
        });
        match read {
            Some(Ok(read)) => {
                let expected = self.model.read(offset, buffer.len());
                assert!(read == expected.len() || route == Route::Direct, "{read} of {}", expected.len());
                assert!(buffer[..read] == expected[..read], "{} bytes at {offset}", buffer.len());
            }
            Some(Err(error)) => check_error(&error, route, offset, length),
            None => assert!(self.opened.file.direct().is_none() && route == Route::Direct),
        }
    }

    fn write(&mut self, by: By, route: Route, offset: u64, (length, side): (usize, Side)) {
        let (file, driver) = (&self.opened.file, &self.driver);
        let bytes = &*self.bench.guarded.buffer(length, side, self.fill);
        let written = documented(&[NO_DIRECT], || match by {
            By::Driver => driver.write_blocking(file, route, bytes, offset),
            By::File => file.write_blocking(route, bytes, offset),
        });
        match written {
            Some(Ok(written)) => self.model.write(offset, &bytes[..written]),
            Some(Err(error)) => check_error(&error, route, offset, length),
            None => assert!(self.opened.file.direct().is_none() && route == Route::Direct),
        }
    }

    fn read_resident(&mut self, offset: u64, length: usize, side: Side) {
        let buffer = self.bench.guarded.buffer(length, side, self.fill);
        let file = &self.opened.file;
        for read in [file.read_if_resident(buffer, offset), file.read_resident(buffer, offset)] {
            match read {
                Ok(Some(read)) => assert!(buffer[..read] == self.model.read(offset, buffer.len())[..read]),
                Ok(None) => {}
                Err(error) => check_error(&error, Route::Buffered, offset, length),
            }
        }
    }

    fn append(&mut self, length: usize, side: Side) {
        let bytes = &*self.bench.guarded.buffer(length, side, self.fill);
        match self.driver.append_blocking(&self.opened.append, bytes) {
            Ok(appended) => {
                assert_eq!(appended.offset_bytes, self.model.length_bytes);
                self.model.write(appended.offset_bytes, &bytes[..appended.length_bytes]);
            }
            Err(error) => check_error(&error, Route::Buffered, self.model.length_bytes, length),
        }
    }

    /// Little, or so much that a disk refuses it; a file in memory would take all that there is.
    fn set_aside(&mut self, reserve: bool, start: Number, end: Number) {
        let (start, end) = (start.get(), end.get());
        let length = end.saturating_sub(start);
        let refused_from = if self.on_disk { MORE_THAN_THERE_IS } else { u64::MAX };
        if (SET_ASIDE_BYTES_MAX..refused_from).contains(&length) {
            return;
        }
        let (file, range) = (&self.opened.file, ByteRange { start, end });
        if reserve {
            _ = self.driver.reserve_blocking(file, range);
        } else if let Ok(headwater_io::Allocated::Yes) = self.driver.allocate_blocking(file, range)
            && length > 0
        {
            self.model.set_len(end.max(self.model.length_bytes));
        }
    }

    fn ask(&mut self, range: ByteRange) {
        let file = &self.opened.file;
        // The kernel keeps pages beyond the end of a file that was truncated.
        let real = ByteRange { start: range.start.min(range.end), ..range }.clip(self.model.length_bytes);
        assert!(
            file.resident_pages(real)
                .is_none_or(|resident| resident <= PageRange::covering(real).len().get())
        );
        // Answers may be out of date at once, so that they are given is all that counts.
        _ = (file.residency(range), file.is_dirty_in_kernel(range));
        _ = (self.driver.is_held_by_kernel(file, range), self.driver.is_dirty_in_kernel(file, range));
    }

    /// Everything is as it was left, and the driver has nothing of it any more.
    fn finish(self) -> Opened {
        while self.driver.stats().slots_used > 0 {
            self.driver.submit(Request::Nop, Urgency::Demand).expect("demand has a place").wait();
        }
        for held in &self.held {
            let found = held.extents.iter().flat_map(|extent| extent.iter());
            assert!(found.eq(&held.contents), "an extent that nobody used has changed");
        }
        assert_eq!(self.opened.file.length_bytes().expect("it is open"), self.model.length_bytes);
        for offset in self.model.offsets() {
            let expected = self.model.read(offset, 4096);
            // The kernel refuses a read that would end beyond 2^63 - 1.
            let mut page = vec![0; expected.len()];
            let read = self.opened.file.read_blocking(Route::Buffered, &mut page, offset);
            assert_eq!(read.expect("it was written"), expected.len());
            assert!(page == expected, "the file differs at {offset}");
        }
        drop(self.held);
        let stats = self.bench.arena.stats();
        assert_eq!((stats.used_bytes, stats.lent_out_bytes), (0, 0));
        self.opened
    }
}

/// An error is one that this offset, length or route may have.
fn check_error(error: &std::io::Error, route: Route, offset: u64, length: usize) {
    check_fault(error);
    let ends = offset.saturating_add(length as u64);
    // Where files of this file system end, and what direct transfers have to be multiples of.
    let is_expected = ends > FILE_BYTES_MIN || route == Route::Direct;
    assert!(is_expected, "{length} bytes at {offset}: {error}");
}

fn finish_batch(mut batch: Batch, request: Transfer) -> Option<Finished> {
    batch.push(Request::Nop).expect("this process built the driver");
    batch.push(request).expect("this process built the driver");
    let mut finished = None;
    batch.finish(|place, each| finished = (place == 1).then_some(each));
    finished
}

fn urgency(ahead: bool) -> Urgency {
    if ahead { Urgency::Readahead } else { Urgency::Demand }
}

fn route(direct: bool) -> Route {
    if direct { Route::Direct } else { Route::Buffered }
}

const REFUSED: [&str; 5] = [
    "a request transfers at least one byte",
    "a request fits its memory",
    "file offsets are below 2^63",
    "the file has a direct descriptor",
    "a direct transfer is aligned",
];

const NO_DIRECT: &str = "requests check the route";

const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::NoReuse, Advice::WillNeed, Advice::DontNeed];

/// Files of all file systems can be so long: ext4 with blocks of 4 KiB ends at 16 TiB.
const FILE_BYTES_MIN: u64 = (1 << 44) - 8192;

const SET_ASIDE_BYTES_MAX: u64 = 1 << 20;

const STEPS_MAX: usize = 40;
