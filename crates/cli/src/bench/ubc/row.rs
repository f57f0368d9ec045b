//! Row, the child's side of the UBC suite: reads or writes standard input in one way, once or again and again.
//!
//! Owns: the measured loops, the clocks, the sums that prove that the right bytes arrived.
//! Does not own: which file that is, making it cold.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater::Engine;
use headwater::ring::{
    Access, Arena, Completion, DirectIo, Direction, Driver, DriverOptions, Extent, Extents, Finished,
    OpenFile, Route, Transfer, Urgency,
};
use headwater::testing::{MapAdvice, MappedFile, Pressure};
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use headwater_measure::Meter;
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};

use super::{Way, Work};
use crate::bench::arguments::RowArguments;
use crate::bench::input::{self, INPUT, no_such_row};
use crate::bench::tally::Tally;

/// What a child has done.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(in crate::bench) struct Measured {
    pub(super) passes: Vec<Pass>,
    /// Which driver headwater used.
    pub(super) driver: Option<String>,
}

/// Once over the file, or as much of it as time allowed.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Pass {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Sums of what was looked at up to these offsets.
    pub(super) sums: Vec<(u64, u64)>,
}

/// # Errors
/// What reading or writing reports; an unknown row.
pub(in crate::bench) fn measure(arguments: &RowArguments) -> io::Result<Measured> {
    let (work, way) = arguments.row.split_once(':').ok_or_else(no_such_row)?;
    let work = Work::ALL.into_iter().find(|known| known.id() == work).ok_or_else(no_such_row)?;
    let way =
        Way::ALL.into_iter().find(|known| known.id() == way && known.can(work)).ok_or_else(no_such_row)?;
    let mut clock = Clock::start(arguments);
    let mut passes = Vec::new();
    let driver = if work.writes() {
        let driver = write(arguments, work, way, &mut clock)?;
        passes.push(clock.pass(Vec::new()));
        driver
    } else {
        let opened = Opened::new(arguments, way)?;
        for _ in 0..work.passes() {
            let mut tally = Tally::new(arguments.bytes, clock.limit);
            opened.read(work, &mut tally)?;
            let (bytes, sums) = tally.finish();
            clock.bytes = bytes;
            // The ring looks at nothing, and the blocks of a device change while it is in use.
            let has_sums = way != Way::Device && work != Work::Disk;
            passes.push(clock.pass(if has_sums { sums } else { Vec::new() }));
        }
        opened.driver()
    };
    Ok(Measured { passes, driver })
}

/// Both clocks, from the start of a pass.
struct Clock {
    limit: Duration,
    meter: Meter,
    bytes: u64,
}

impl Clock {
    fn start(arguments: &RowArguments) -> Clock {
        Clock { limit: Duration::from_millis(arguments.limit_ms), meter: Meter::start(), bytes: 0 }
    }

    /// Ends a pass and begins the next.
    fn pass(&mut self, sums: Vec<(u64, u64)>) -> Pass {
        let (seconds, cpu_seconds) = (self.meter.seconds(), self.meter.cpu_seconds());
        let pass = Pass { bytes: self.bytes, seconds, cpu_seconds, sums };
        (self.meter, self.bytes) = (Meter::start(), 0);
        pass
    }

    /// Counts what was written, and tells whether to go on.
    fn wrote(&mut self, bytes: u64) -> ControlFlow<()> {
        self.bytes += bytes;
        if self.meter.started().elapsed() >= self.limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// A file that is open for reading in one way.
enum Opened {
    Kernel(File),
    Direct(File),
    Mapped(MappedFile),
    Headwater(Engine, headwater::File, Taking),
    Device(Ring),
}

/// What becomes of headwater's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taking {
    Copied,
    Seen,
}

impl Opened {
    fn new(arguments: &RowArguments, way: Way) -> io::Result<Opened> {
        let taking = if way == Way::View { Taking::Seen } else { Taking::Copied };
        Ok(match way {
            Way::Buffered => Opened::Kernel(File::open(INPUT)?),
            Way::Direct => Opened::Direct(input::direct(OpenOptions::new().read(true))?),
            Way::Mapped => {
                let file = File::open(INPUT)?;
                Opened::Mapped(MappedFile::map(file.as_fd(), arguments.bytes, MapAdvice::Normal)?)
            }
            Way::Headwater | Way::View => {
                let engine = arguments.engine.builder().build()?;
                let file = headwater::OpenOptions::new().engine(&engine).open(INPUT)?;
                Opened::Headwater(engine, file, taking)
            }
            Way::Device => Opened::Device(Ring::new(Access::Read)?),
        })
    }

    fn driver(&self) -> Option<String> {
        match self {
            Opened::Headwater(engine, ..) => Some(engine.info().driver.to_owned()),
            _ => None,
        }
    }

    fn read(&self, work: Work, tally: &mut Tally) -> io::Result<()> {
        match self {
            Opened::Kernel(file) => {
                tally.take_all(&mut vec![0; BUFFERED_BYTES], |buffer, offset| file.read_at(buffer, offset))
            }
            Opened::Direct(file) => {
                tally.take_all(&mut block()?, |buffer, offset| file.read_at(buffer, offset))
            }
            Opened::Mapped(mapping) => mapped(tally, mapping),
            Opened::Headwater(_, file, Taking::Copied) if work.is_raw() => {
                tally.take_copies(&mut file.reader(), &mut vec![0; BLOCK_BYTES])
            }
            Opened::Headwater(_, file, Taking::Copied) => {
                let read = |buffer: &mut [u8], offset| Ok(file.read_at(buffer, offset)?);
                tally.take_all(&mut vec![0; BLOCK_BYTES], read)
            }
            Opened::Headwater(_, file, Taking::Seen) if work.is_raw() => tally.take_lent(&mut file.reader()),
            Opened::Headwater(_, file, Taking::Seen) => viewed(tally, file),
            Opened::Device(ring) => ring.read(tally),
        }
    }
}

fn mapped(tally: &mut Tally, mapping: &MappedFile) -> io::Result<()> {
    loop {
        let mut firsts = 0;
        let end_bytes = tally.end_bytes.min(tally.position_bytes + BUFFERED_BYTES as u64);
        for offset in (tally.position_bytes..end_bytes).step_by(PAGE_BYTES) {
            let mut first = [0];
            mapping.copy_at(&mut first, offset);
            firsts += u64::from(first[0]);
        }
        if tally.count(end_bytes - tally.position_bytes, firsts).is_break() {
            return Ok(());
        }
    }
}

fn viewed(tally: &mut Tally, file: &headwater::File) -> io::Result<()> {
    loop {
        let left_bytes = tally.end_bytes - tally.position_bytes;
        let view = file.view(tally.position_bytes, left_bytes.min(BLOCK_BYTES as u64) as usize)?;
        for chunk in view.chunks() {
            if tally.take(chunk).is_break() {
                return Ok(());
            }
        }
    }
}

/// Writes zeros, and returns when they are on the device.
fn write(arguments: &RowArguments, work: Work, way: Way, clock: &mut Clock) -> io::Result<Option<String>> {
    let mut options = OpenOptions::new();
    options.write(true);
    match way {
        Way::Direct => {
            let file = input::direct(&mut options)?;
            let mut zeros = block()?;
            zeros.fill(0);
            write_all(arguments.bytes, clock, &zeros, |bytes, offset| file.write_all_at(bytes, offset))?;
            file.sync_all()?;
        }
        Way::Headwater => {
            let engine = arguments.engine.builder().build()?;
            let file = headwater::OpenOptions::new().engine(&engine).write(true).open(INPUT)?;
            let zeros = vec![0; BLOCK_BYTES];
            write_all(arguments.bytes, clock, &zeros, |bytes, offset| Ok(file.write_all_at(bytes, offset)?))?;
            file.sync_all()?;
            return Ok(Some(engine.info().driver.to_owned()));
        }
        Way::Device => {
            let ring = Ring::new(Access::ReadWrite)?;
            if work == Work::New {
                // Allocation is the file system's part, not the device's. Where it cannot be done ahead it shows.
                let _ =
                    rustix::fs::fallocate(ring.file.buffered(), FallocateFlags::empty(), 0, arguments.bytes);
            }
            ring.write(arguments.bytes, clock)?;
        }
        Way::Buffered | Way::Mapped | Way::View => {
            let mut file = options.open(INPUT)?;
            let zeros = vec![0; BUFFERED_BYTES];
            write_all(arguments.bytes, clock, &zeros, |bytes, _| file.write_all(bytes))?;
            file.sync_all()?;
        }
    }
    Ok(None)
}

fn write_all(
    end_bytes: u64,
    clock: &mut Clock,
    zeros: &[u8],
    mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    while clock.bytes < end_bytes {
        let length = zeros.len().min((end_bytes - clock.bytes) as usize);
        write(&zeros[..length], clock.bytes)?;
        if clock.wrote(length as u64).is_break() {
            break;
        }
    }
    Ok(())
}

/// Direct requests, many in flight, the bytes of which no code looks at.
struct Ring {
    driver: Driver,
    arena: Arena,
    file: Arc<OpenFile>,
}

impl Ring {
    fn new(access: Access) -> io::Result<Ring> {
        let driver = Driver::new(&DriverOptions::default())?;
        // Where there is less memory, fewer requests are in flight.
        let arena = Arena::elastic(RING_BYTES, Pressure::new()).map_err(io::Error::other)?;
        driver.register_memory(&arena);
        let file = Arc::new(OpenFile::open(Path::new(INPUT), DirectIo::Required, access)?);
        Ok(Ring { driver, arena, file })
    }

    fn read(&self, tally: &mut Tally) -> io::Result<()> {
        let end_bytes = tally.end_bytes;
        self.transfer(Direction::Read, end_bytes, |bytes| tally.count(bytes, 0))
    }

    fn write(&self, end_bytes: u64, clock: &mut Clock) -> io::Result<()> {
        self.transfer(Direction::Write, end_bytes, |bytes| clock.wrote(bytes))?;
        rustix::fs::fsync(self.file.buffered())?;
        Ok(())
    }

    fn transfer(
        &self,
        direction: Direction,
        end_bytes: u64,
        mut done: impl FnMut(u64) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let mut under_way: VecDeque<(u64, Completion)> = VecDeque::new();
        let mut offset_bytes = 0;
        loop {
            while under_way.len() < RING_DEPTH && offset_bytes < end_bytes {
                let extent = match extent_of(&self.arena) {
                    Err(_) if !under_way.is_empty() => break,
                    extent => extent?,
                };
                let extents = Extents::from_iter([extent]);
                let wanted_bytes = (end_bytes - offset_bytes).min(BLOCK_BYTES as u64);
                let length_bytes = wanted_bytes.next_multiple_of(PAGE_SIZE_BYTES) as usize;
                let (file, route) = (self.file.clone(), Route::Direct);
                let transfer = Transfer { direction, file, route, offset_bytes, length_bytes, extents };
                let completion = self.driver.submit(transfer, Urgency::Demand);
                under_way.push_back((wanted_bytes, completion?));
                offset_bytes += wanted_bytes;
            }
            let Some((wanted_bytes, completion)) = under_way.pop_front() else { return Ok(()) };
            let Finished { result, .. } = completion.wait();
            let arrived_bytes = (result? as u64).min(wanted_bytes);
            if done(arrived_bytes).is_break() {
                under_way.drain(..).for_each(|(_, completion)| drop(completion.wait()));
                return Ok(());
            }
        }
    }
}

/// A buffer for direct I/O in a huge page where there are any.
fn block() -> io::Result<Extent> {
    extent_of(&Arena::new(RING_BYTES).map_err(io::Error::other)?)
}

fn extent_of(arena: &Arena) -> io::Result<Extent> {
    arena.allocate(BLOCK_BYTES, Urgency::Demand).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// At which copies from and to the page cache are cheapest: beyond, the processor's cache is too small.
const BUFFERED_BYTES: usize = 128 << 10;

/// At which one direct request at a time is fastest.
const BLOCK_BYTES: usize = 1 << 20;

/// At which flash devices reach their rate.
const RING_DEPTH: usize = 32;

/// As much memory, and a chunk for what the arena keeps beside it.
const RING_BYTES: usize = (RING_DEPTH + 2) * BLOCK_BYTES;
