//! Hits: operations on bytes that are in memory already, beside the same of the kernel's page cache, in one run.
//!
//! ```text
//!   row ─► 7 rounds: ours, theirs, ours, … ─► medians ─► ratio : bar
//!   cargo run --release -p headwater --example hits -- [PART OF A ROW'S NAME] [DIRECTORY]
//! ```
//!
//! Owns: the rows of cached reads, views and overwrites.
//! Does not own: cold reads, other libraries (`headwater-bench peers`).

use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Caching, Engine, File, IoMode, ManyRead, OpenOptions};

/// One operation at one offset.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Read,
    ReadMany,
    View,
    Peek,
    Write,
    Pread,
    PreadEach,
    Pwrite,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Random,
    Sequential,
}

struct Row {
    set_bytes: u64,
    piece_bytes: usize,
    order: Order,
    ours: Way,
    theirs: Way,
    /// The least ratio of speeds, for one thread and for two.
    bar: f64,
    threads: &'static [usize],
}

/// One file, open twice.
struct Files {
    ours: File,
    theirs: std::fs::File,
    length_bytes: u64,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().map_or("", String::as_str);
    let directory = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    println!("{:<40} {:>10} {:>10} {:>7} {:>5}", "row, with threads", "ours ns", "theirs ns", "ratio", "bar");
    for set in ROWS.chunk_by(|a, b| a.set_bytes == b.set_bytes) {
        let wanted: Vec<&Row> = set.iter().filter(|row| row.name().contains(wanted)).collect();
        if !wanted.is_empty() {
            measure_set(&directory, set[0].set_bytes, &wanted)?;
        }
    }
    Ok(())
}

fn measure_set(directory: &Path, set_bytes: u64, rows: &[&Row]) -> io::Result<()> {
    let (directory, files) = Files::create(directory, set_bytes)?;
    for row in rows {
        for &threads in row.threads {
            let [ours, theirs] = files.compare(row, threads);
            let name = format!("{} ×{threads}", row.name());
            let (ours, theirs) = (ours.as_nanos() as f64 / 1000.0, theirs.as_nanos() as f64 / 1000.0);
            println!("{name:<40} {ours:>10.1} {theirs:>10.1} {:>7.2} {:>5.2}", theirs / ours, row.bar);
        }
    }
    drop(directory);
    Ok(())
}

impl Files {
    /// Both sides have all of the file in memory.
    fn create(directory: &Path, length_bytes: u64) -> io::Result<(tempfile::TempDir, Files)> {
        let directory = tempfile::tempdir_in(directory)?;
        let path = directory.path().join("set");
        let theirs = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
        let mebibyte: Vec<u8> = (0..1 << 20).map(|at| ((at * 31) >> 8) as u8).collect();
        for offset_bytes in (0..length_bytes).step_by(mebibyte.len()) {
            theirs.write_all_at(&mebibyte, offset_bytes)?;
        }
        theirs.sync_all()?;
        let engine = Engine::builder().build()?;
        let mut options = OpenOptions::new();
        let ours = options.engine(&engine).io(IoMode::Auto).caching(Caching::On).write(true).open(&path)?;
        let files = Files { ours, theirs, length_bytes };
        let mut buffer = vec![0; mebibyte.len()];
        for _ in 0..4 {
            for offset_bytes in (0..length_bytes).step_by(buffer.len()) {
                files.ours.read_exact_at(&mut buffer, offset_bytes)?;
                files.theirs.read_exact_at(&mut buffer, offset_bytes)?;
            }
        }
        Ok((directory, files))
    }

    /// Medians of the time of one operation, in thousandths: nanoseconds read as picoseconds.
    fn compare(&self, row: &Row, threads: usize) -> [Duration; 2] {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for (way, samples) in [row.ours, row.theirs].into_iter().zip(&mut samples) {
                samples.push(self.sample(row, way, threads, round));
            }
        }
        samples.map(|mut samples| {
            samples.sort_unstable();
            samples[samples.len() / 2]
        })
    }

    /// Time of a thousand operations while all threads work.
    fn sample(&self, row: &Row, way: Way, threads: usize, round: u64) -> Duration {
        let operations = (SAMPLE_BYTES / (row.piece_bytes as u64 + 256)).clamp(64, 400_000) / threads as u64;
        let begin = Barrier::new(threads);
        let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
            let work = |thread| self.work(row, way, operations, round * 64 + thread, &begin);
            let workers: Vec<_> =
                (0..threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
            workers.into_iter().map(|worker| worker.join().expect("it reads")).collect()
        });
        let first = times.iter().map(|time| time.0).min().expect("there is a thread");
        let last = times.iter().map(|time| time.1).max().expect("there is a thread");
        (last - first) * 1000 / (operations * threads as u64 * row.batch()) as u32
    }

    /// Begin and end of the operations of one thread.
    fn work(&self, row: &Row, way: Way, operations: u64, seed: u64, begin: &Barrier) -> (Instant, Instant) {
        let length = row.piece_bytes * row.batch() as usize;
        let mut memory = vec![1; length + CACHE_LINE_BYTES];
        let at = memory.as_ptr().align_offset(CACHE_LINE_BYTES);
        let buffer = &mut memory[at..at + length];
        let mut offsets = Offsets::new(row, self.length_bytes, seed);
        begin.wait();
        let started = Instant::now();
        for _ in 0..operations {
            self.operate(way, || offsets.next(), buffer, row.piece_bytes);
            black_box(&buffer);
        }
        (started, Instant::now())
    }

    fn operate(&self, way: Way, mut next_offset: impl FnMut() -> u64, buffer: &mut [u8], piece_bytes: usize) {
        match way {
            Way::Read => self.ours.read_exact_at(buffer, next_offset()).expect("it is in memory"),
            Way::Write => self.ours.write_all_at(buffer, next_offset()).expect("it fits"),
            Way::View => {
                let view = self.ours.view(next_offset(), piece_bytes).expect("it is in memory");
                match view.as_slice() {
                    Some(bytes) => _ = black_box(bytes[0]),
                    None => view.chunks().for_each(|chunk| _ = black_box(chunk[0])),
                }
            }
            Way::Peek => _ = black_box(self.ours.peek(next_offset()).expect("it is in memory")[0]),
            Way::ReadMany => {
                let read = |buffer| ManyRead::new(next_offset(), buffer);
                let mut reads: Vec<_> = buffer.chunks_mut(piece_bytes).map(read).collect();
                self.ours.read_many(&mut reads).expect("all are in memory");
            }
            Way::Pread => self.theirs.read_exact_at(buffer, next_offset()).expect("it is in memory"),
            Way::Pwrite => self.theirs.write_all_at(buffer, next_offset()).expect("it fits"),
            Way::PreadEach => buffer.chunks_mut(piece_bytes).for_each(|piece| {
                self.theirs.read_exact_at(piece, next_offset()).expect("it is in memory");
            }),
        }
    }
}

/// Where one operation after the other begins.
struct Offsets {
    order: Order,
    piece_bytes: u64,
    pieces: u64,
    piece: u64,
    state: u64,
}

impl Offsets {
    fn new(row: &Row, length_bytes: u64, seed: u64) -> Offsets {
        let (piece_bytes, state) = (row.piece_bytes as u64, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let pieces = length_bytes / piece_bytes;
        Offsets { order: row.order, piece_bytes, pieces, piece: state % pieces, state }
    }

    fn next(&mut self) -> u64 {
        self.piece = match self.order {
            Order::Sequential => (self.piece + 1) % self.pieces,
            Order::Random => {
                // Xorshift64 of Marsaglia (2003).
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                ((u128::from(self.state) * u128::from(self.pieces)) >> 64) as u64
            }
        };
        self.piece * self.piece_bytes
    }
}

impl Row {
    fn name(&self) -> String {
        let order = if self.order == Order::Random { "random" } else { "in order" };
        let (ours, theirs) = (self.ours.name(), self.theirs.name());
        format!("{ours} : {theirs} {} {order} {} MiB", size(self.piece_bytes), self.set_bytes >> 20)
    }

    /// Pieces of one operation.
    fn batch(&self) -> u64 {
        if self.ours == Way::ReadMany { 32 } else { 1 }
    }
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Read => "read_at",
            Way::ReadMany => "read_many",
            Way::View => "view",
            Way::Peek => "peek",
            Way::Write => "write_at",
            Way::Pread | Way::PreadEach => "pread",
            Way::Pwrite => "pwrite",
        }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

const fn row(set_mebibytes: u64, piece_bytes: usize, order: Order, ways: (Way, Way), bar: f64) -> Row {
    let (ours, theirs) = ways;
    Row { set_bytes: set_mebibytes << 20, piece_bytes, order, ours, theirs, bar, threads: &[1, 2] }
}

const READS: (Way, Way) = (Way::Read, Way::Pread);
const WRITES: (Way, Way) = (Way::Write, Way::Pwrite);
const VIEWS: (Way, Way) = (Way::View, Way::Read);

/// Sets in the processor's cache, beside it, and far larger; the bars are those that a user-space cache has to clear to be worth
/// its memory.
const ROWS: &[Row] = &[
    Row { threads: &[1, 2, 20], ..row(1, 4 << 10, Order::Random, (Way::View, Way::Read), 1.2) },
    row(1, 4 << 10, Order::Random, READS, 2.5),
    row(1, 16 << 10, Order::Random, READS, 1.3),
    row(1, 4 << 10, Order::Random, (Way::Peek, Way::Read), 2.0),
    row(1, 128 << 10, Order::Sequential, VIEWS, 1.2),
    row(50, 64 << 10, Order::Sequential, READS, 1.3),
    row(50, 128 << 10, Order::Sequential, READS, 1.3),
    row(50, 1 << 20, Order::Sequential, READS, 1.3),
    row(64, 8, Order::Random, READS, 15.0),
    row(64, 4 << 10, Order::Random, READS, 2.5),
    row(64, 16 << 10, Order::Random, READS, 1.3),
    row(64, 4 << 10, Order::Random, WRITES, 2.0),
    row(64, 1 << 20, Order::Sequential, WRITES, 1.3),
    Row { threads: &[1, 2, 20], ..row(64, 4 << 10, Order::Random, VIEWS, 1.2) },
    row(64, 128 << 10, Order::Sequential, VIEWS, 1.2),
    row(512, 64 << 10, Order::Sequential, READS, 1.3),
    row(512, 128 << 10, Order::Sequential, READS, 1.3),
    row(512, 1 << 20, Order::Sequential, READS, 1.3),
    row(1024, 8, Order::Random, READS, 6.0),
    row(1024, 4 << 10, Order::Random, READS, 2.0),
    row(1024, 4 << 10, Order::Random, (Way::ReadMany, Way::PreadEach), 2.4),
];

const ROUNDS: u64 = 7;

/// Where buffers begin, so that both sides copy as fast as they can.
const CACHE_LINE_BYTES: usize = 64;

/// Of one sample, with 256 B for the call: some 10 ms of copying.
const SAMPLE_BYTES: u64 = 128 << 20;
