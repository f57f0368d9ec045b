//! Actor: carries out the steps, and compares.
//!
//! Owns: handles, cursors, views and windows, and what each must show.
//! Does not own: which steps there are (steps), the bytes of the file (model).

mod cursors;

use std::io::{Error, ErrorKind, Result, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use headwater::testing::SimOptions;
use headwater::{
    Advice, ByteRange, Caching, DriverKind, Engine, File, IoMode, ManyRead, OpenOptions, Profiles,
    ReadaheadPolicy, SharedView, View, Writer,
};
use headwater_fuzz::bounds::Number;
use headwater_fuzz::guarded::{Guarded, Side};
use headwater_fuzz::memory_file::MemoryFile;
use headwater_fuzz::model::Model;

use crate::steps::{Case, DriverChoice, Handle, Place, Step, Way};
use cursors::Cursor;

pub(crate) fn run(case: &Case) {
    let disk = (case.place == Place::Disk).then(|| MemoryFile::on_disk().ok()).flatten();
    let offset_bytes_max = if disk.is_some() { DISK_BYTES_MAX } else { OFFSET_BYTES_MAX };
    let file = disk.unwrap_or_default();
    let engine = match case.driver {
        DriverChoice::Sim => SIM.with(Engine::clone),
        DriverChoice::Threads => THREADS.with(Engine::clone),
    };
    let mut actor = Actor {
        handles: case.handles.map(|handle| open(&engine, &file, handle)),
        writer: None,
        readers: Vec::new(),
        views: Vec::new(),
        windows: Vec::new(),
        model: Model::default(),
        guarded: GUARDED.take().unwrap_or_else(|| Guarded::new(17)),
        offset_bytes_max,
        makes_holes: matches!(case.driver, DriverChoice::Threads),
        fill: 0,
    };
    for step in case.steps.iter().take(STEPS_MAX) {
        actor.perform(step);
    }
    actor.finish(&engine, &file);
}

thread_local! {
    static GUARDED: std::cell::Cell<Option<Guarded>> = const { std::cell::Cell::new(None) };
    /// All cases share them: the kernel takes 15 ms to give up what an engine watches files with.
    static SIM: Engine = engine(DriverKind::Sim(sim()));
    static THREADS: Engine = engine(DriverKind::Threads);
}

/// Delivers late and short, but without errors.
fn sim() -> SimOptions {
    SimOptions { delay_steps_max: 4, short_per_mille: 200, transient_per_mille: 0, ..SimOptions::hostile(1) }
}

fn engine(driver: DriverKind) -> Engine {
    let builder = Engine::builder().memory(3 << 20).queue_depth(4).profiles(Profiles::Off);
    builder.driver(driver).build().expect("3 MiB are enough")
}

fn open(engine: &Engine, file: &MemoryFile, handle: Handle) -> File {
    let caching = [Caching::Auto, Caching::On, Caching::Off][usize::from(handle.caching) % 3];
    let readahead =
        [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Linux, ReadaheadPolicy::Off, ReadaheadPolicy::Fixed(3)];
    let mut options = OpenOptions::new();
    options.engine(engine).write(true).caching(caching);
    options.readahead(readahead[usize::from(handle.readahead) % readahead.len()]);
    options.io(if handle.buffered { IoMode::Buffered } else { IoMode::Auto });
    if handle.looks_always {
        options.revalidate(Duration::ZERO);
    }
    options.open(file.path()).expect("it is a regular file")
}

struct Actor {
    handles: [File; 2],
    writer: Option<(Writer, u64)>,
    /// With the position of each.
    readers: Vec<(Cursor, u64)>,
    views: Vec<(View, Vec<u8>)>,
    windows: Vec<SharedView>,
    model: Model,
    guarded: Guarded,
    offset_bytes_max: u64,
    /// A simulated device makes none.
    makes_holes: bool,
    fill: u8,
}

impl Actor {
    fn perform(&mut self, step: &Step) {
        // What the writer buffers is not in the file yet.
        if !matches!(step, Step::WriteOn(..) | Step::SeekWriter(..))
            && let Some((writer, _)) = &mut self.writer
        {
            writer.flush().expect("the device has not failed");
        }
        self.fill = self.fill.wrapping_add(1).max(1);
        match *step {
            Step::Read(on, offset, length, side) => self.read(on, offset.get(), usize::from(length), side),
            Step::ReadExact(on, offset, length, side) => {
                self.read_exact(on, offset.get(), usize::from(length), side);
            }
            Step::ReadAsync(on, offset, length) => self.read_async(on, offset.get(), length),
            Step::ReadExactAsync(on, offset, length) => {
                let (offset, length) = (offset.get(), usize::from(length));
                let read = block_on(self.file(on).read_exact_at_async(offset, length));
                self.check_exact(read.map(|bytes| bytes.to_vec()).map_err(Error::from), offset, length);
            }
            Step::ReadMany(on, reads) => self.read_many(on, reads),
            Step::Write(on, offset, length, way) => self.write(on, offset, usize::from(length), way),
            Step::Append(on, length, way) => self.append(on, usize::from(length), way),
            Step::SetLen(on, length, way) => self.set_len(on, length, way),
            Step::PunchHole(on, start, end, way) => self.punch_hole(on, start.get()..end.get(), way),
            Step::CopyRange(on, [start, length], at, way) => {
                self.copy_range(on, start.get(), length, at, way)
            }
            Step::Sync(on, Way::Blocking) => self.file(on).sync_data().expect("the device has not failed"),
            Step::Sync(on, Way::Async) => {
                block_on(self.file(on).sync_all_async()).expect("the device has not failed");
            }
            Step::Flush(on, Way::Blocking) => self.file(on).flush().expect("the device has not failed"),
            Step::Flush(on, Way::Async) => {
                block_on(self.file(on).flush_async()).expect("the device has not failed");
            }
            Step::Refresh(on) => {
                self.file(on).refresh().expect("the file is there");
                assert_eq!(self.file(on).len().expect("the file is there"), self.model.length_bytes);
            }
            Step::View(on, offset, length, way) => self.view(on, offset.get(), length, way),
            Step::ForgetViews => self.check_views(),
            Step::Map(..)
            | Step::MapContiguous(..)
            | Step::MapOnDemand(..)
            | Step::ForgetWindows
            | Step::ReadWindow(..)
            | Step::WriteWindow(..)
            | Step::Add(..)
            | Step::Exchange(..) => self.perform_on_window(step),
            Step::Advise(on, advice, start, end) => {
                let range = ByteRange { start: start.get(), end: end.get() };
                // Refused or not, it changes no byte.
                _ = self.file(on).advise(ADVICE[usize::from(advice) % ADVICE.len()], range);
            }
            Step::Residency(on, start, end) => {
                self.file(on).residency(ByteRange { start: start.get(), end: end.get() });
            }
            _ => self.perform_on_cursor(step),
        }
    }

    fn file(&self, on: u8) -> &File {
        &self.handles[usize::from(on) % self.handles.len()]
    }

    fn read(&mut self, on: u8, offset: u64, length: usize, side: Side) {
        let file = &self.handles[usize::from(on) % self.handles.len()];
        let buffer = self.guarded.buffer(length, side, FILL);
        match file.read_at(buffer, offset) {
            Ok(read) => {
                assert!(
                    buffer[..read] == self.model.read(offset, buffer.len()),
                    "{length} bytes at {offset}"
                );
                // Behind the end of the file, a buffer may hold anything.
            }
            Err(error) => check_error(error.into(), offset > OFFSET_BYTES_MAX),
        }
    }

    fn read_exact(&mut self, on: u8, offset: u64, length: usize, side: Side) {
        let file = &self.handles[usize::from(on) % self.handles.len()];
        let buffer = self.guarded.buffer(length, side, FILL);
        let length = buffer.len();
        let read = file.read_exact_at(buffer, offset).map(|()| buffer.to_vec());
        self.check_exact(read.map_err(Error::from), offset, length);
    }

    fn check_exact(&self, read: Result<Vec<u8>>, offset: u64, length: usize) {
        let expected = self.model.read(offset, length);
        match read {
            Ok(bytes) => assert!(bytes == expected, "{length} bytes at {offset}"),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                assert!(expected.len() < length, "{length} bytes at {offset} are there: {error}");
            }
            Err(error) => check_error(error, offset > OFFSET_BYTES_MAX),
        }
    }

    fn read_async(&mut self, on: u8, offset: u64, length: Number) {
        let length = self.bearable(offset, length.cheap(LENGTH_MAX));
        match block_on(self.file(on).read_at_async(offset, length)) {
            Ok(bytes) => assert!(*bytes == self.model.read(offset, length), "{length} bytes at {offset}"),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => assert!(length as u64 > LENGTH_MAX),
            Err(error) => check_error(error.into(), offset > OFFSET_BYTES_MAX),
        }
    }

    fn read_many(&mut self, on: u8, reads: [(Number, u16); 3]) {
        let file = &self.handles[usize::from(on) % self.handles.len()];
        let all = self.guarded.buffer(16 << 12, Side::End, FILL);
        let mut rest = all;
        let mut many = Vec::new();
        for (offset, length) in reads {
            let (buffer, behind) = rest.split_at_mut(usize::from(length) % (5 << 12));
            many.push(ManyRead::new(offset.get(), buffer));
            rest = behind;
        }
        let done = file.read_many(&mut many);
        for read in &many {
            let expected = self.model.read(read.offset_bytes, read.buffer.len());
            let is_read = read.buffer[..read.read_bytes] == expected;
            assert!(
                is_read || read.offset_bytes > OFFSET_BYTES_MAX,
                "{} at {}",
                read.read_bytes,
                read.offset_bytes
            );
        }
        let is_refused = many.iter().any(|read| read.offset_bytes > OFFSET_BYTES_MAX);
        if let Err(error) = done {
            check_error(error.into(), is_refused);
        }
    }

    fn write(&mut self, on: u8, offset: Number, length: usize, way: Way) {
        let offset = self.place(offset);
        let bytes = vec![self.fill; length];
        let file = self.file(on);
        let written = match way {
            Way::Blocking => file.write_at(&bytes, offset),
            Way::Async => block_on(file.write_all_at_async(bytes.clone(), offset)).map(|()| length),
        };
        match written {
            Ok(written) => self.model.write(offset, &bytes[..written]),
            Err(error) => check_error(error.into(), !fits(offset, length)),
        }
    }

    fn append(&mut self, on: u8, length: usize, way: Way) {
        let bytes = vec![self.fill; length];
        let appended = match way {
            Way::Blocking => self.file(on).append(&bytes),
            Way::Async => block_on(self.file(on).append_async(bytes.clone())),
        };
        match appended {
            Ok(offset) => {
                assert_eq!(offset, self.model.length_bytes);
                self.model.write(offset, &bytes);
            }
            Err(error) => check_error(error.into(), !fits(self.model.length_bytes, length)),
        }
    }

    fn set_len(&mut self, on: u8, length: Number, way: Way) {
        let length = self.place(length);
        let done = match way {
            Way::Blocking => self.file(on).set_len(length),
            Way::Async => block_on(self.file(on).set_len_async(length)),
        };
        match done {
            Ok(()) => self.model.set_len(length),
            Err(error) => check_error(error.into(), !fits(length, 0)),
        }
        assert_eq!(self.file(on).len().expect("the file is there"), self.model.length_bytes);
    }

    fn punch_hole(&mut self, on: u8, mut range: Range<u64>, way: Way) {
        if !self.makes_holes && range.start < range.end {
            // Zeros are written in place of the hole.
            range.end = range.start + self.brief(range.start, range.end - range.start);
        }
        let done = match way {
            Way::Blocking => self.file(on).punch_hole(range.clone()),
            Way::Async => block_on(self.file(on).punch_hole_async(range.clone())),
        };
        match done {
            Ok(()) if range.is_empty() => {}
            Ok(()) => self.model.zero(range),
            Err(error) => check_error(error.into(), range.end < range.start || range.end > OFFSET_BYTES_MAX),
        }
        assert_eq!(self.file(on).len().expect("the file is there"), self.model.length_bytes);
    }

    fn copy_range(&mut self, on: [u8; 2], start: u64, length: Number, at: Number, way: Way) {
        let at = self.place(at);
        let end = start.saturating_add(self.brief(start, length.cheap(LENGTH_MAX)));
        let [from, to] = on.map(|on| self.file(on).clone());
        let copied = match way {
            Way::Blocking => from.copy_range_to(start..end, &to, at),
            Way::Async => block_on(from.copy_range_to_async(start..end, &to, at)),
        };
        let bytes = self.model.read(start, (end - start) as usize);
        match copied {
            Ok(copied) => {
                assert_eq!(copied, bytes.len() as u64, "{start}..{end} to {at}");
                self.model.write(at, &bytes);
            }
            Err(error) => {
                let source = ByteRange::at(start, bytes.len() as u64);
                let overlaps = !source.intersect(ByteRange::at(at, source.len())).is_empty();
                let is_beyond = end > OFFSET_BYTES_MAX || !fits(at, bytes.len());
                check_error(error.into(), overlaps || is_beyond);
            }
        }
    }

    fn view(&mut self, on: u8, offset: u64, length: Number, way: Way) {
        let length = length.cheap(LENGTH_MAX) as usize;
        let viewed = match way {
            Way::Blocking => self.file(on).view(offset, length),
            Way::Async => block_on(self.file(on).view_async(offset, length)),
        };
        match viewed {
            Ok(view) => {
                let expected = self.model.read(offset, length);
                assert!(view.to_vec() == expected, "{length} bytes at {offset}");
                assert_eq!(view.len(), expected.len());
                self.views.push((view, expected));
            }
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof => {
                    assert!(!self.reaches(offset, length), "{length} at {offset}: {error}")
                }
                ErrorKind::OutOfMemory => assert!(length as u64 > LENGTH_MAX, "{error}"),
                _ => check_error(error.into(), offset > OFFSET_BYTES_MAX),
            },
        }
    }

    /// A view stays as it was.
    fn check_views(&mut self) {
        for (view, expected) in self.views.drain(..) {
            assert!(view.chunks().flatten().eq(&expected), "a view has changed");
            assert!(*view.into_bytes() == *expected);
        }
    }

    fn perform_on_window(&mut self, step: &Step) {
        match *step {
            Step::Map(on, start, end) => {
                let range = ByteRange { start: start.get(), end: end.get() };
                match self.file(on).map(range) {
                    Ok(window) => {
                        assert_eq!(window.len(), range.len());
                        self.windows.push(window);
                    }
                    Err(error) => {
                        check_error(error.into(), range.end > READABLE_BYTES_MAX || range.is_empty())
                    }
                }
            }
            Step::MapContiguous(on, start, length) => {
                let range = ByteRange::at(start.get(), u64::from(length));
                // Where the kernel lacks what it takes, or the memory is used, it is refused.
                self.windows.extend(self.file(on).map_contiguous(range));
            }
            Step::MapOnDemand(on, start, length, memory) => {
                let range = ByteRange::at(start.get(), u64::from(length));
                let memory_bytes = memory.cheap(LENGTH_MAX);
                self.windows.extend(self.file(on).map_on_demand(range.start..range.end, memory_bytes));
            }
            Step::ForgetWindows => self.windows.clear(),
            Step::ReadWindow(which, at, length, side) => {
                self.read_window(which, at.get(), usize::from(length), side)
            }
            Step::WriteWindow(which, at, length, side) => {
                self.write_window(which, at.get(), usize::from(length), side);
            }
            Step::Add(which, at, value) => self.change(which, at.get(), &mut |window, at, word| {
                assert!(window.fetch_add_u64(at, value).is_ok_and(|before| before == word));
                word.wrapping_add(value)
            }),
            Step::Exchange(which, at, value) => self.change(which, at.get(), &mut |window, at, word| {
                assert!(window.compare_exchange_u64(at, word ^ 1, value).is_ok_and(|before| before == word));
                assert!(window.compare_exchange_u64(at, word, value).is_ok_and(|before| before == word));
                value
            }),
            _ => unreachable!("it is no step of a window"),
        }
    }

    fn window(&self, which: u8) -> Option<SharedView> {
        let count = self.windows.len();
        (count > 0).then(|| self.windows[usize::from(which) % count].clone())
    }

    /// Where the bytes are in the file, if window and file reach so far.
    fn seen(&self, window: &SharedView, at: u64, length: usize) -> Option<u64> {
        let is_inside = at.checked_add(length as u64).is_some_and(|end| end <= window.len());
        let place = window.range().start.saturating_add(at);
        (is_inside && self.reaches(place, length)).then_some(place)
    }

    fn read_window(&mut self, which: u8, at: u64, length: usize, side: Side) {
        let Some(window) = self.window(which) else { return };
        let seen = self.seen(&window, at, length);
        let buffer = self.guarded.buffer(length, side, FILL);
        match (window.read(at, buffer), seen) {
            (Ok(()), Some(place)) => assert!(*buffer == self.model.read(place, length), "{length} at {at}"),
            (Ok(()), None) => assert_eq!(length, 0, "there are no bytes at {at}"),
            (Err(error), _) => check_error(error.into(), seen.is_none()),
        }
    }

    fn write_window(&mut self, which: u8, at: u64, length: usize, side: Side) {
        let Some(window) = self.window(which) else { return };
        let seen = self.seen(&window, at, length);
        let bytes = &*self.guarded.buffer(length, side, self.fill);
        match (window.write(at, bytes), seen) {
            (Ok(()), Some(place)) => self.model.write(place, bytes),
            (Ok(()), None) => assert_eq!(length, 0, "there are no bytes at {at}"),
            (Err(error), _) => check_error(error.into(), seen.is_none()),
        }
    }

    fn change(&mut self, which: u8, at: u64, change: &mut dyn FnMut(&SharedView, u64, u64) -> u64) {
        let Some(window) = self.window(which) else { return };
        match self.seen(&window, at, 8).filter(|place| place.is_multiple_of(8)) {
            Some(place) => {
                let word = self.model.read(place, 8).try_into().expect("the file reaches so far");
                let word = change(&window, at, u64::from_ne_bytes(word));
                self.model.write(place, &word.to_ne_bytes());
            }
            None => assert!(window.fetch_add_u64(at, 1).is_err(), "there is no word at {at}"),
        }
    }

    /// Where a write may go: a disk ends sooner than offsets do, and says so late.
    fn place(&self, offset: Number) -> u64 {
        match self.offset_bytes_max {
            DISK_BYTES_MAX => offset.below(DISK_BYTES_MAX),
            _ => offset.get(),
        }
    }

    fn reaches(&self, offset: u64, length: usize) -> bool {
        length == 0 || offset.checked_add(length as u64).is_some_and(|end| end <= self.model.length_bytes)
    }

    /// The length, unless the file has that much and a machine might have as well, but not at once.
    fn bearable(&self, offset: u64, length: u64) -> usize {
        let there = self.model.length_bytes.saturating_sub(offset).min(length);
        if (LENGTH_MAX + 1..1 << 48).contains(&there) { LENGTH_MAX as usize } else { length as usize }
    }

    /// The length, unless the file has more bytes there than are quickly written.
    fn brief(&self, offset: u64, length: u64) -> u64 {
        let there = self.model.length_bytes.saturating_sub(offset).min(length);
        if there > LENGTH_MAX { LENGTH_MAX } else { length }
    }

    fn finish(mut self, engine: &Engine, file: &MemoryFile) {
        self.check_views();
        drop((self.readers, self.windows, self.writer));
        self.handles[0].flush().expect("the device has not failed");
        drop(self.handles);
        engine.flush().expect("the device has not failed");
        assert_eq!(file.file.metadata().expect("it is open").len(), self.model.length_bytes);
        for offset in self.model.offsets() {
            let expected = self.model.read(offset, 4096);
            let mut page = vec![0; expected.len()];
            file.file.read_exact_at(&mut page, offset).expect("it was written");
            assert!(page == expected, "the file differs at {offset}");
        }
        GUARDED.set(Some(self.guarded));
    }
}

/// Such an error may be, and is no one that says that something broke.
fn check_error(error: Error, is_expected: bool) {
    headwater_fuzz::guarded::check_fault(&error);
    let kinds = [ErrorKind::InvalidInput, ErrorKind::FileTooLarge, ErrorKind::UnexpectedEof];
    assert!(is_expected && kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
    assert!(!error.to_string().contains('\n'), "an error is one line: {error}");
}

/// Whether files can be so long.
fn fits(offset: u64, length: usize) -> bool {
    offset.checked_add(length as u64).is_some_and(|end| end <= WRITABLE_BYTES_MAX)
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::NoReuse, Advice::WillNeed, Advice::DontNeed];

const FILL: u8 = 0;

const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// The last page of a file is one that can be read as a whole.
const READABLE_BYTES_MAX: u64 = OFFSET_BYTES_MAX / 4096 * 4096;

/// Pages that frames can number.
const WRITABLE_BYTES_MAX: u64 = 1 << 56;

/// ext4 with blocks of 4 KiB ends at twice as much.
const DISK_BYTES_MAX: u64 = 1 << 43;

/// As long as a buffer.
const LENGTH_MAX: u64 = 64 << 10;

const STEPS_MAX: usize = 40;
