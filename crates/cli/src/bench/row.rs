//! Row, the child's side: reads standard input once in one way, and says what that cost.
//!
//! A process of its own, so that memory and processor time are those of this row and nothing else.
//!
//! Owns: the measured loops, the clocks, the sums that prove that the right bytes arrived.
//! Does not own: which row, making the file cold.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use headwater::ring::{Arena, Urgency};
use headwater::testing::{MapAdvice, MappedFile};
use headwater::{IoMode, Polling, ReadaheadLimits};
use serde::{Deserialize, Serialize};

use super::rows::{self, Delivery, Memory, Method};
use super::suite::{INPUT, PAGE_BYTES, cpu_seconds};
use crate::bench::arguments::RowArguments;
use crate::shared::arguments::EngineArguments;

/// What one pass over the file, or the part of it that time allowed, has cost.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(super) struct Measurement {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) peak_rss_kib: u64,
    /// Sums of the first bytes of all pages up to these offsets.
    pub(super) sums: Vec<(u64, u64)>,
    /// Which driver a headwater row used.
    pub(super) driver: Option<String>,
}

pub(super) fn measure(arguments: &RowArguments) -> io::Result<Measurement> {
    let row = rows::by_id(&arguments.row, &arguments.engine)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no such row"))?;
    let started = Instant::now();
    let cpu_before = cpu_seconds();
    let mut tally = Tally::new(arguments.bytes, started + Duration::from_millis(arguments.limit_ms));
    let driver = match row.method {
        Method::Idle => None,
        Method::Buffered { block_bytes } => buffered(&mut tally, block_bytes)?,
        Method::Direct { block_bytes, memory } => direct(&mut tally, block_bytes, memory)?,
        Method::Mapped(advice) => mapped(&mut tally, advice)?,
        Method::Headwater { limits, delivery, polls } => {
            let polling = if polls { Polling::Auto } else { Polling::Off };
            headwater(&mut tally, &arguments.engine, limits, delivery, polling)?
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu_before;
    let (bytes, sums) = tally.finish();
    Ok(Measurement { bytes, seconds, cpu_seconds, peak_rss_kib: peak_rss_kib()?, sums, driver })
}

fn buffered(tally: &mut Tally, block_bytes: usize) -> io::Result<Option<String>> {
    let mut file = File::open(INPUT)?;
    let mut buffer = vec![0; block_bytes];
    read_all(tally, &mut file, &mut buffer)
}

fn direct(tally: &mut Tally, block_bytes: usize, memory: Memory) -> io::Result<Option<String>> {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(INPUT)?;
    match memory {
        Memory::SmallPages => {
            let mut room = vec![0; block_bytes + ALIGNMENT_BYTES];
            let lead = room.as_ptr().align_offset(ALIGNMENT_BYTES);
            read_all(tally, &mut file, &mut room[lead..lead + block_bytes])
        }
        Memory::HugePages => {
            let arena = Arena::new(HUGE_BYTES).map_err(io::Error::other)?;
            let extent = arena.allocate(block_bytes, Urgency::Demand);
            let mut extent = extent.ok_or(io::ErrorKind::OutOfMemory)?;
            read_all(tally, &mut file, &mut extent[..block_bytes])
        }
    }
}

fn read_all(tally: &mut Tally, file: &mut impl Read, buffer: &mut [u8]) -> io::Result<Option<String>> {
    loop {
        let read_bytes = file.read(buffer)?;
        if read_bytes == 0 || tally.take(&buffer[..read_bytes]).is_break() {
            return Ok(None);
        }
    }
}

/// The sum is made inside, page by page; how much is mapped was cut by whoever asked.
fn mapped(tally: &mut Tally, advice: MapAdvice) -> io::Result<Option<String>> {
    let file = File::open(INPUT)?;
    let mapped = MappedFile::map(file.as_fd(), tally.end_bytes, advice)?;
    tally.sum = mapped.sum_of_pages();
    tally.position_bytes = tally.end_bytes;
    Ok(None)
}

fn headwater(
    tally: &mut Tally,
    arguments: &EngineArguments,
    limits: Option<ReadaheadLimits>,
    delivery: Delivery,
    polling: Polling,
) -> io::Result<Option<String>> {
    let builder = arguments.builder().polling(polling);
    let builder = match limits {
        Some(limits) => builder.readahead(limits),
        None => builder,
    };
    let engine = builder.build()?;
    let file = headwater::OpenOptions::new().engine(&engine).io(IoMode::Direct).open(INPUT)?;
    let mut reader = file.reader();
    match delivery {
        Delivery::ZeroCopy => loop {
            let chunk = reader.fill_buf()?;
            let length = chunk.len();
            if length == 0 || tally.take(chunk).is_break() {
                break;
            }
            reader.consume(length);
        },
        Delivery::Copying => {
            read_all(tally, &mut reader, &mut vec![0; COPY_BYTES])?;
        }
    }
    Ok(Some(engine.info().driver.to_owned()))
}

/// Consumes what every row delivers, in the same way: the first byte of each page.
pub(super) struct Tally {
    pub(super) position_bytes: u64,
    pub(super) end_bytes: u64,
    sum: u64,
    sums: Vec<(u64, u64)>,
    deadline: Instant,
    look_at_clock_bytes: u64,
}

impl Tally {
    pub(super) fn new(end_bytes: u64, deadline: Instant) -> Tally {
        Tally { position_bytes: 0, end_bytes, sum: 0, sums: Vec::new(), deadline, look_at_clock_bytes: 0 }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        let left_bytes = usize::try_from(self.end_bytes - self.position_bytes).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(left_bytes)];
        let first = (self.position_bytes.wrapping_neg() % PAGE_BYTES) as usize;
        let firsts = chunk.get(first..).unwrap_or_default().iter().step_by(PAGE_BYTES as usize);
        let firsts = firsts.fold(0, |sum, &byte| sum + u64::from(byte));
        self.count(chunk.len() as u64, firsts)
    }

    /// The same when others have made the sum of the first bytes.
    pub(super) fn count(&mut self, bytes: u64, firsts: u64) -> ControlFlow<()> {
        self.sum += firsts;
        self.position_bytes += bytes;
        if self.position_bytes.is_multiple_of(SUM_BYTES) {
            self.sums.push((self.position_bytes, self.sum));
        }
        if self.position_bytes >= self.end_bytes || self.is_late() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn is_late(&mut self) -> bool {
        if self.position_bytes < self.look_at_clock_bytes {
            return false;
        }
        self.look_at_clock_bytes = self.position_bytes + CLOCK_BYTES;
        Instant::now() >= self.deadline
    }

    pub(super) fn finish(mut self) -> (u64, Vec<(u64, u64)>) {
        if self.sums.last().is_none_or(|&(offset, _)| offset != self.position_bytes) {
            self.sums.push((self.position_bytes, self.sum));
        }
        (self.position_bytes, self.sums)
    }
}

/// `VmHWM` of `proc_pid_status(5)`.
pub(super) fn peak_rss_kib() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse().ok());
    number.ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}

/// Sums are noted this often, so that rows that came unequally far can be compared.
pub(super) const SUM_BYTES: u64 = 4 << 20;

/// A look at the clock costs 30 ns, a 4 KiB read from the page cache 1 µs: only every 32nd looks.
const CLOCK_BYTES: u64 = 128 << 10;

const ALIGNMENT_BYTES: usize = 4096;

/// One chunk for the buffer.
const HUGE_BYTES: usize = 4 << 20;

const COPY_BYTES: usize = 1 << 20;
