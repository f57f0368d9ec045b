//! Checks: what is tried in the guest, on a disk whose contents are known.
//!
//! ```text
//!   the disk polls ─► the same reads, polled and by interrupt: right bytes? how many interrupts? ─► compare
//!                  ─► reads of 4 KiB, by turns polled and by interrupt: processor time? latency?
//!                  ─► a file that cannot be polled, by interrupt
//! ```
//!
//! Processor time and latency are reported, not judged: they are of an emulated machine.
//!
//! Owns: the reads whose bytes are compared, and their expected results.
//! Does not own: the reads that are timed (cost), the disk's contents (disk), the report (init).

use std::fs;
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use headwater::testing::device_polls;
use headwater::{DriverKind, Engine, File, IoMode, OpenOptions, Polling, ReadaheadLimits};
use headwater_core::units::PAGE_SIZE_BYTES as PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::cost::{self, Cost};
use super::{disk, interrupts};
use crate::pages::Offsets;

/// What came of one check.
#[derive(Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) ok: bool,
    /// What was seen, or what went wrong.
    pub(crate) detail: String,
}

/// Makes all checks, each reported as soon as it is made.
pub(crate) fn run(mut report: impl FnMut(&Check)) {
    let mut check = |name: &str, outcome: io::Result<String>| {
        let (ok, detail) = match outcome {
            Ok(detail) => (true, detail),
            Err(error) => (false, error.to_string()),
        };
        report(&Check { name: name.to_owned(), ok, detail });
    };
    check("the disk polls", disk_polls());
    for &(pattern, read, expected) in PATTERNS {
        let polled = in_time(move || measure(read, Polling::Auto));
        check(&format!("{pattern}, polled: right bytes"), described(&polled));
        let interrupted = in_time(move || measure(read, Polling::Off));
        check(&format!("{pattern}, by interrupt: right bytes"), described(&interrupted));
        if let (Expected::Polled, Ok(polled), Ok(interrupted)) = (expected, polled, interrupted) {
            check(&format!("{pattern}, polled: no interrupts"), compare(&polled, &interrupted));
        }
    }
    for &(pattern, read) in cost::PATTERNS {
        match costs(read) {
            Ok(costs) => WAYS.iter().zip(&costs).for_each(|((way, _), costs)| {
                check(&format!("{pattern}, {way}: a request"), Ok(cost::described(costs)));
            }),
            Err(error) => check(&format!("{pattern}: a request"), Err(error)),
        }
    }
    check("file in memory, by interrupt: right bytes", in_time(|| file_in_memory(Polling::Off)));
    check("file in memory, polling allowed: right bytes", in_time(|| file_in_memory(Polling::Auto)));
}

/// Reads the disk in one way, compares every byte, and says how many reads that was.
type Read = fn(&File) -> io::Result<u64>;

/// How completions come where polling is allowed.
#[derive(Clone, Copy)]
enum Expected {
    Polled,
    /// The disk does not take such requests in one command, which the kernel does not poll for.
    ByInterrupt,
}

const PATTERNS: &[(&str, Read, Expected)] = &[
    ("4 KiB x 32", random::<PAGE_BYTES, 32, 4096>, Expected::Polled),
    ("1 MiB x 4", random::<MEBIBYTE, 4, 256>, Expected::ByInterrupt),
    ("scan", scan, Expected::Polled),
    ("two scans at once", two_scans, Expected::Polled),
];

/// The ways to complete requests, whose costs are reported side by side.
const WAYS: [(&str, Polling); 2] = [("polled", Polling::Auto), ("by interrupt", Polling::Off)];

/// What was counted while a pattern was read.
struct Counted {
    reads: u64,
    interrupts: u64,
}

fn disk_polls() -> io::Result<String> {
    let setting = |folder: &str, name: &str| {
        fs::read_to_string(format!("{folder}/{name}")).map(|text| text.trim().to_owned())
    };
    let (io_poll, poll_queues) = (setting(QUEUE, "io_poll")?, setting(DRIVER, "poll_queues")?);
    let (sectors_kb, segments) = (setting(QUEUE, "max_sectors_kb")?, setting(QUEUE, "max_segments")?);
    let polls = device_polls(Path::new(DISK))?;
    let detail = format!(
        "io_poll {io_poll}, poll_queues {poll_queues}, device_polls {polls}; \
         max_sectors_kb {sectors_kb}, max_segments {segments}"
    );
    if io_poll == "1" && poll_queues == "2" && polls { Ok(detail) } else { Err(io::Error::other(detail)) }
}

fn measure(read: Read, polling: Polling) -> io::Result<Counted> {
    let file = open_disk(polling)?;
    let before = interrupts::of_nvme()?;
    let reads = read(&file)?;
    Ok(Counted { reads, interrupts: interrupts::of_nvme()? - before })
}

/// What requests cost in each round, for each of [`WAYS`]: by turns, so that a slow moment of the host meets both.
fn costs(read: cost::Read) -> io::Result<[Vec<Cost>; WAYS.len()]> {
    let mut costs = WAYS.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (costs, (_, polling)) in costs.iter_mut().zip(WAYS) {
            costs.push(in_time(move || read(&open_disk(polling)?, round))?);
        }
    }
    Ok(costs)
}

/// With an engine of its own, so that nothing is cached.
fn open_disk(polling: Polling) -> io::Result<File> {
    let file = OpenOptions::new().engine(&engine(polling)?).io(IoMode::Direct).open(DISK)?;
    match file.len()? {
        disk::LENGTH_BYTES => Ok(file),
        other => Err(io::Error::other(format!("the disk has {other} bytes"))),
    }
}

fn described(counted: &io::Result<Counted>) -> io::Result<String> {
    match counted {
        Ok(Counted { reads, interrupts }) => Ok(format!("{reads} reads, {interrupts} interrupts")),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

fn compare(polled: &Counted, interrupted: &Counted) -> io::Result<String> {
    let detail = format!("{} against {}", polled.interrupts, interrupted.interrupts);
    let is_polled = polled.interrupts * POLLED_SHARE <= interrupted.interrupts;
    let is_told_apart = interrupted.interrupts * INTERRUPTED_SHARE >= interrupted.reads;
    if is_polled && is_told_apart { Ok(detail) } else { Err(io::Error::other(detail)) }
}

/// What cannot be polled has to be readable as ever.
fn file_in_memory(polling: Polling) -> io::Result<String> {
    const LENGTH_BYTES: u64 = 1 << 20;
    fs::write(FILE_IN_MEMORY, disk::contents(LENGTH_BYTES))?;
    let file = OpenOptions::new().engine(&engine(polling)?).open(FILE_IN_MEMORY)?;
    let reads = scan(&file)? + random::<PAGE_BYTES, 8, 64>(&file)?;
    Ok(format!("{reads} reads"))
}

fn engine(polling: Polling) -> io::Result<Engine> {
    // Requests that the disk takes whole.
    let readahead = ReadaheadLimits { size_bytes_max: 256 << 10, ..ReadaheadLimits::default() };
    let builder = Engine::builder().memory(MEMORY_BYTES).readahead(readahead);
    Ok(builder.driver(DriverKind::Uring).polling(polling).build()?)
}

/// `READS` asynchronous reads of `BYTES` at random places, `DEPTH` of them in flight.
fn random<const BYTES: u64, const DEPTH: u64, const READS: u64>(file: &File) -> io::Result<u64> {
    let blocks = file.len()? / BYTES;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let readers: Vec<_> = (0..DEPTH)
            .map(|seed| {
                let (file, mut places) = (file.clone(), Offsets::new(seed, blocks * PAGE_BYTES));
                tokio::spawn(async move {
                    for _ in 0..READS / DEPTH {
                        let offset_bytes = places.next() / PAGE_BYTES * BYTES;
                        let bytes = file.read_exact_at_async(offset_bytes, BYTES as usize).await?;
                        disk::compare(offset_bytes, &bytes)?;
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        for reader in readers {
            reader.await.map_err(io::Error::other)??;
        }
        Ok(READS)
    })
}

fn scan(file: &File) -> io::Result<u64> {
    let mut reader = file.reader();
    let (mut offset_bytes, mut chunks) = (0, 0);
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        disk::compare(offset_bytes, chunk)?;
        let length = chunk.len();
        offset_bytes += length as u64;
        chunks += 1;
        reader.consume(length);
    }
    if offset_bytes == file.len()? { Ok(chunks) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Two threads on one ring: the one that polls reaps for the other too.
fn two_scans(file: &File) -> io::Result<u64> {
    thread::scope(|scope| {
        let other = scope.spawn(|| scan(file));
        Ok(scan(file)? + other.join().expect("a scan does not panic")?)
    })
}

/// Polled I/O that goes wrong tends not to end, and the checks after it are of interest all the same.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    let late = |_| io::Error::other(format!("not done after {} s", TIME_LIMIT.as_secs()));
    receiver.recv_timeout(TIME_LIMIT).map_err(late)?
}

/// The first NVMe disk.
pub(crate) const DISK: &str = "/dev/nvme0n1";

/// Its settings, and those of its driver.
const QUEUE: &str = "/sys/block/nvme0n1/queue";
const DRIVER: &str = "/sys/module/nvme/parameters";

/// The root of the guest is in memory.
const FILE_IN_MEMORY: &str = "/in-memory";

const MEMORY_BYTES: u64 = 32 << 20;
const MEBIBYTE: u64 = 1 << 20;

/// Reads under polling take at most the twentieth of the interrupts of those without; the disk may have something else
/// to say in between.
const POLLED_SHARE: u64 = 20;

/// At least one interrupt for this many reads: one interrupt may announce a whole queue of completions.
const INTERRUPTED_SHARE: u64 = 64;

/// Of each way: an odd number has a median.
const ROUNDS: u64 = 5;

/// A check takes about a second on an emulated processor of a machine that is not busy.
const TIME_LIMIT: Duration = Duration::from_secs(30);
