//! Row, the child's side of the scan: reads standard input once in one way, and says what that cost.
//!
//! Owns: the measured loops, the clocks.
//! Does not own: which row, making the file cold, the sums that prove that the right bytes arrived (`tally`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use headwater::ring::{Arena, Urgency};
use headwater::testing::{MapAdvice, MappedFile};
use headwater::{IoMode, Polling};
use headwater_core::units::PAGE_BYTES;
use headwater_measure::{Meter, process::peak_rss_kib};
use serde::{Deserialize, Serialize};

use super::ways::{self, Delivery, Memory, Method};
use crate::bench::arguments::RowArguments;
use crate::bench::input::{self, INPUT, no_such_row};
use crate::bench::tally::Tally;
use crate::shared::arguments::EngineArguments;

/// What one pass over the file, or the part of it that time allowed, has cost.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(in crate::bench) struct Measurement {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) peak_rss_kib: u64,
    /// Sums of the first bytes of all pages up to these offsets.
    pub(super) sums: Vec<(u64, u64)>,
    /// Which driver a headwater row used.
    pub(super) driver: Option<String>,
}

pub(in crate::bench) fn measure(arguments: &RowArguments) -> io::Result<Measurement> {
    let way = ways::by_id(&arguments.row, &arguments.engine).ok_or_else(no_such_row)?;
    let meter = Meter::start();
    let mut tally = Tally::new(arguments.bytes, Duration::from_millis(arguments.limit_ms));
    let driver = match way.method {
        Method::Idle => None,
        Method::Buffered { block_bytes } => {
            tally.take_copies(&mut File::open(INPUT)?, &mut vec![0; block_bytes])?;
            None
        }
        Method::Direct { block_bytes, memory } => direct(&mut tally, block_bytes, memory)?,
        Method::Mapped(advice) => mapped(&mut tally, advice)?,
        Method::Headwater { .. } => headwater(&mut tally, &arguments.engine, way.method)?,
    };
    let (seconds, cpu_seconds) = (meter.seconds(), meter.cpu_seconds());
    let (bytes, sums) = tally.finish();
    Ok(Measurement { bytes, seconds, cpu_seconds, peak_rss_kib: peak_rss_kib()?, sums, driver })
}

fn direct(tally: &mut Tally, block_bytes: usize, memory: Memory) -> io::Result<Option<String>> {
    let mut file = input::direct(OpenOptions::new().read(true))?;
    match memory {
        Memory::SmallPages => {
            let mut room = vec![0; block_bytes + PAGE_BYTES];
            let lead = room.as_ptr().align_offset(PAGE_BYTES);
            tally.take_copies(&mut file, &mut room[lead..lead + block_bytes])?;
        }
        Memory::HugePages => {
            let arena = Arena::new(HUGE_BYTES).map_err(io::Error::other)?;
            let extent = arena.allocate(block_bytes, Urgency::Demand);
            let mut extent = extent.ok_or(io::ErrorKind::OutOfMemory)?;
            tally.take_copies(&mut file, &mut extent[..block_bytes])?;
        }
    }
    Ok(None)
}

/// The sum is made inside, page by page; the caller has cut how much is mapped to what time allows.
fn mapped(tally: &mut Tally, advice: MapAdvice) -> io::Result<Option<String>> {
    let file = File::open(INPUT)?;
    let mapped = MappedFile::map(file.as_fd(), tally.end_bytes, advice)?;
    let _ = tally.count(tally.end_bytes, mapped.sum_of_pages());
    Ok(None)
}

fn headwater(tally: &mut Tally, engine: &EngineArguments, method: Method) -> io::Result<Option<String>> {
    let Method::Headwater { limits, delivery, polls } = method else { return Ok(None) };
    let builder = engine.builder().polling(if polls { Polling::Auto } else { Polling::Off });
    let builder = match limits {
        Some(limits) => builder.readahead(limits),
        None => builder,
    };
    let engine = builder.build()?;
    let file = headwater::OpenOptions::new().engine(&engine).io(IoMode::Direct).open(INPUT)?;
    let mut reader = file.reader();
    reader.will_read(tally.end_bytes);
    match delivery {
        Delivery::ZeroCopy => tally.take_lent(&mut reader)?,
        Delivery::Copying { buffer_bytes } => tally.take_copies(&mut reader, &mut vec![0; buffer_bytes])?,
    }
    Ok(Some(engine.info().driver.to_owned()))
}

/// One chunk for the buffer.
const HUGE_BYTES: usize = 4 << 20;
