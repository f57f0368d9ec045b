//! Row, the child's side of the alignment suite: reads or writes standard input at random places, one request at a time.
//!
//! Owns: the measured loops, the clocks, the counters of the kernel, the proof that the right bytes arrived.
//! Does not own: making the file cold, which rows there are.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use headwater::{Caching, Engine};
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use headwater_measure::process::{device_read_bytes, device_written_bytes};
use serde::{Deserialize, Serialize};

use super::{Shape, Way, Work};
use crate::bench::arguments::RowArguments;
use crate::bench::input::{self, CHECKS, INPUT, check, no_such_row};
use crate::shared::buffer::shifted;
use crate::shared::random::mixed;

/// What a child has done.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(in crate::bench) struct Measured {
    pub(super) ops: u64,
    pub(super) seconds: f64,
    /// What the process has had devices read, and write; `None` where the kernel does not count.
    pub(super) device_read_bytes: Option<u64>,
    pub(super) device_written_bytes: Option<u64>,
    /// Which driver headwater used.
    pub(super) driver: Option<String>,
    /// The error of the first request, where that is an answer: of `O_DIRECT`.
    pub(super) refusal: Option<String>,
}

/// # Errors
/// What reading or writing reports; wrong bytes; an unknown row.
pub(in crate::bench) fn measure(arguments: &RowArguments) -> io::Result<Measured> {
    let mut words = arguments.row.split(':');
    let mut word = || words.next().unwrap_or_default();
    let (work, way, shape) = (Work::of(word()), Way::of(word()), Shape::of(word()));
    let (Some(work), Some(way), Some(shape)) = (work, way, shape) else { return Err(no_such_row()) };
    let opened = Opened::new(arguments, work, way)?;
    let (mut room, limit) = (Vec::new(), Duration::from_millis(arguments.limit_ms));
    let buffer = shifted(&mut room, shape.length_bytes(), shape.buffer_shift_bytes());
    let places = places(work, arguments);
    match opened.first_refusal(work, shape, buffer, &places)? {
        Some(refusal) => Ok(Measured { refusal: Some(refusal), ..opened.measured(0, 0.0, None) }),
        None => {
            let measured = opened.run(work, shape, buffer, &places, limit)?;
            opened.check(work, shape, buffer, &places[..places.len().min(measured.ops as usize)])?;
            Ok(measured)
        }
    }
}

/// A file that is open in one way.
enum Opened {
    Kernel(File, Way),
    Headwater(Engine, headwater::File),
}

impl Opened {
    fn new(arguments: &RowArguments, work: Work, way: Way) -> io::Result<Opened> {
        let (writes, mut options) = (work == Work::Write, OpenOptions::new());
        options.read(true).write(writes);
        let caching = match way {
            Way::Buffered => return Ok(Opened::Kernel(options.open(INPUT)?, way)),
            Way::Direct => return Ok(Opened::Kernel(input::direct(&mut options)?, way)),
            Way::Headwater => Caching::Auto,
            Way::Uncached => Caching::Off,
        };
        let engine = arguments.engine.builder().build()?;
        let mut options = headwater::OpenOptions::new();
        let file = options.engine(&engine).caching(caching).write(writes).open(INPUT)?;
        Ok(Opened::Headwater(engine, file))
    }

    fn read(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self {
            Opened::Kernel(file, _) => match file.read_at(buffer, offset_bytes)? {
                length if length == buffer.len() => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            },
            Opened::Headwater(_, file) => Ok(file.read_exact_at(buffer, offset_bytes)?),
        }
    }

    fn write(&self, buffer: &[u8], offset_bytes: u64) -> io::Result<()> {
        match self {
            Opened::Kernel(file, _) => match file.write_at(buffer, offset_bytes)? {
                length if length == buffer.len() => Ok(()),
                _ => Err(io::ErrorKind::WriteZero.into()),
            },
            Opened::Headwater(_, file) => Ok(file.write_all_at(buffer, offset_bytes)?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Opened::Kernel(file, _) => file.sync_data(),
            Opened::Headwater(_, file) => Ok(file.sync_data()?),
        }
    }

    fn driver(&self) -> Option<String> {
        match self {
            Opened::Headwater(engine, _) => Some(engine.info().driver.to_owned()),
            Opened::Kernel(..) => None,
        }
    }

    /// Whether this file system takes no such request around its page cache. The place is the last one, which no row measures.
    fn first_refusal(
        &self,
        work: Work,
        shape: Shape,
        buffer: &mut [u8],
        places: &[u64],
    ) -> io::Result<Option<String>> {
        let Opened::Kernel(_, Way::Direct) = self else { return Ok(None) };
        let offset_bytes = places.last().map_or(0, |place| shape.offset_bytes(*place));
        let tried = match work {
            Work::Write => self.write(buffer, offset_bytes),
            Work::Read | Work::Held => self.read(buffer, offset_bytes),
        };
        match tried {
            Ok(()) => Ok(None),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                Ok(Some("EINVAL".to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    fn run(
        &self,
        work: Work,
        shape: Shape,
        buffer: &mut [u8],
        places: &[u64],
        limit: Duration,
    ) -> io::Result<Measured> {
        if work == Work::Held {
            self.fill(shape, buffer, places)?;
        }
        buffer.fill(PATTERN);
        let measured_places = &places[..places.len() - 1];
        let (before, started, mut ops) = (counters(), Instant::now(), 0);
        for &place in measured_places.iter().cycle() {
            match work {
                Work::Write => self.write(buffer, shape.offset_bytes(place))?,
                Work::Read | Work::Held => self.read(buffer, shape.offset_bytes(place))?,
            }
            ops += 1;
            let is_over = work != Work::Held && ops == measured_places.len() as u64;
            if is_over || (ops.is_multiple_of(work.ops_between_looks()) && started.elapsed() >= limit) {
                break;
            }
        }
        if work == Work::Write {
            self.sync()?;
        }
        Ok(self.measured(ops, started.elapsed().as_secs_f64(), Some(before)))
    }

    /// Brings in what will be read, and marks it as used.
    fn fill(&self, shape: Shape, buffer: &mut [u8], places: &[u64]) -> io::Result<()> {
        let fill = || places.iter().copied();
        fill().chain(fill()).try_for_each(|place| self.read(buffer, shape.offset_bytes(place)))
    }

    fn measured(&self, ops: u64, seconds: f64, before: Option<[Option<u64>; 2]>) -> Measured {
        let since = |index: usize| counters()[index].zip(before?[index]).map(|(now, before)| now - before);
        Measured {
            ops,
            seconds,
            device_read_bytes: since(0),
            device_written_bytes: since(1),
            driver: self.driver(),
            refusal: None,
        }
    }

    /// That what was read is what the file has, and what was written is in it.
    fn check(&self, work: Work, shape: Shape, buffer: &mut [u8], places: &[u64]) -> io::Result<()> {
        let file = File::open(INPUT)?;
        places.iter().take(CHECKS as usize).try_for_each(|&place| {
            let offset_bytes = shape.offset_bytes(place);
            match work {
                Work::Write => buffer.fill(PATTERN),
                Work::Read | Work::Held => self.read(buffer, offset_bytes)?,
            }
            check(&file, buffer, offset_bytes)
        })
    }
}

fn counters() -> [Option<u64>; 2] {
    [device_read_bytes(), device_written_bytes()]
}

/// Where requests go: pages in a random order, with a page between any two, so that no request meets what another one has brought.
/// One more than is measured.
fn places(work: Work, arguments: &RowArguments) -> Vec<u64> {
    let set_bytes = if work == Work::Held { arguments.bytes.min(HELD_BYTES) } else { arguments.bytes };
    // The last page has no page behind it.
    let pairs = (set_bytes / PAGE_SIZE_BYTES).saturating_sub(1) / 2;
    let mut places: Vec<u64> = (0..pairs).map(|pair| pair * 2 * PAGE_SIZE_BYTES).collect();
    for index in (1..places.len()).rev() {
        let other = mixed(arguments.seed ^ (index as u64) << 20) % (index as u64 + 1);
        places.swap(index, other as usize);
    }
    places.truncate(usize::try_from(arguments.places).unwrap_or(usize::MAX).saturating_add(1));
    places
}

impl Shape {
    pub(super) fn length_bytes(self) -> usize {
        match self {
            Shape::Aligned | Shape::BufferBy512 | Shape::BufferBy1 | Shape::OffsetBy1 => PAGE_BYTES,
            Shape::Length | Shape::All => PAGE_BYTES - 1,
            Shape::Block => 512,
            Shape::Few => 100,
        }
    }

    fn buffer_shift_bytes(self) -> usize {
        match self {
            Shape::BufferBy512 => 512,
            Shape::BufferBy1 | Shape::All => 1,
            Shape::Aligned | Shape::OffsetBy1 | Shape::Length | Shape::Block | Shape::Few => 0,
        }
    }

    fn offset_bytes(self, place: u64) -> u64 {
        place
            + match self {
                Shape::OffsetBy1 => 1,
                Shape::All => 3001,
                Shape::Block => 512,
                Shape::Few => 1000,
                Shape::Aligned | Shape::BufferBy512 | Shape::BufferBy1 | Shape::Length => 0,
            }
    }
}

impl Work {
    /// A look at the clock costs as much as a read of what is held, and nothing beside a request to a device.
    fn ops_between_looks(self) -> u64 {
        if self == Work::Held { 64 } else { 1 }
    }
}

/// More than the processor's caches, and less than an engine has here.
const HELD_BYTES: u64 = 16 << 20;

const PATTERN: u8 = 0xa5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no request reaches beyond the file or into the pages of another one.
    #[test]
    fn requests_lie_apart_and_within_the_file() {
        for shape in Shape::ALL {
            let end = shape.offset_bytes(0) + shape.length_bytes() as u64;
            assert!(end <= 2 * PAGE_SIZE_BYTES, "{shape:?}");
            assert!(shape.length_bytes() + shape.buffer_shift_bytes() <= 2 * PAGE_BYTES, "{shape:?}");
        }
    }
}
