//! Row, the child's side of the cache suite: fills one source's cache, checks that, and reads at random.
//!
//! ```text
//!   headwater: read the set once ─┐                          ┌─ 8 bytes, 4 KiB, 64 KiB × 1, 2 threads
//!   pread, mmap: read it twice  ──┴─► is it where it should be? ─► the same bytes as the file's
//! ```
//!
//! Owns: filling, the measured loop, the checks.
//! Does not own: the order of sources.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use headwater::ring::{Access as FileAccess, DirectIo, OpenFile};
use headwater::testing::{MapAdvice, MappedFile};
use headwater::{ByteRange, Engine};
use serde::{Deserialize, Serialize};

use super::{Access, Source, THREADS};
use crate::bench::arguments::RowArguments;
use crate::bench::suite::{INPUT, PAGE_BYTES, cpu_seconds, mixed};

/// What a source did in one round.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(in crate::bench) struct Measured {
    pub(super) cells: Vec<Cell>,
    /// Pages of the set in the kernel's page cache before the first read and after the last; `None` where it does not
    /// tell.
    pub(super) kernel_pages: [Option<u64>; 2],
    /// Bytes of the set in headwater's own cache, where it tells.
    pub(super) held_bytes: Option<u64>,
    pub(super) driver: Option<String>,
}

/// Reads of one kind.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(in crate::bench) struct Cell {
    pub(super) bytes: u64,
    pub(super) threads: u32,
    pub(super) reads: u64,
    /// Of all threads together.
    pub(super) reads_per_s: f64,
    pub(super) cpu_seconds: f64,
}

/// # Errors
/// What reading reports; wrong bytes.
pub(in crate::bench) fn measure(arguments: &RowArguments) -> io::Result<Measured> {
    let source = Source::ALL.into_iter().find(|source| source.id() == arguments.row);
    let source = source.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no such row"))?;
    match source {
        Source::Headwater => headwater(arguments),
        Source::Pread => {
            let file = File::open(INPUT)?;
            fill_kernel(&file, arguments.bytes)?;
            cells(arguments, |buffer, offset_bytes| file.read_at(buffer, offset_bytes))
        }
        Source::Mapped => {
            let file = File::open(INPUT)?;
            fill_kernel(&file, arguments.bytes)?;
            let mapped = MappedFile::map(file.as_fd(), arguments.bytes, MapAdvice::Normal)?;
            black_box(mapped.sum_of_pages());
            cells(arguments, |buffer, offset_bytes| Ok(mapped.copy_at(buffer, offset_bytes)))
        }
    }
}

fn headwater(arguments: &RowArguments) -> io::Result<Measured> {
    let engine = arguments.engine.builder().build()?;
    let file = headwater::OpenOptions::new().engine(&engine).open(INPUT)?;
    // The first pass brings the pages in; then each is marked as used as often as is counted.
    for _ in 0..1 + USES_COUNTED {
        pass(arguments.bytes, |buffer, offset_bytes| Ok(file.read_exact_at(buffer, offset_bytes)?))?;
    }
    let held_bytes = Some(held_bytes(&engine));
    let measured = cells(arguments, |buffer, offset_bytes| Ok(file.read_at(buffer, offset_bytes)?))?;
    Ok(Measured { held_bytes, driver: Some(engine.info().driver.to_owned()), ..measured })
}

/// What headwater's own cache holds now.
fn held_bytes(engine: &Engine) -> u64 {
    engine.stats().cache.resident_pages * PAGE_BYTES
}

/// The first pass brings the pages in, the second marks them as used.
fn fill_kernel(file: &File, set_bytes: u64) -> io::Result<()> {
    for _ in 0..2 {
        pass(set_bytes, |buffer, offset_bytes| file.read_exact_at(buffer, offset_bytes))?;
    }
    Ok(())
}

/// Reads all of the set once.
fn pass(set_bytes: u64, read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; FILL_BYTES];
    (0..set_bytes).step_by(FILL_BYTES).try_for_each(|offset_bytes| {
        let length = (set_bytes - offset_bytes).min(FILL_BYTES as u64) as usize;
        read(&mut buffer[..length], offset_bytes)
    })
}

/// All kinds of reads with `read`, which must be given the file's bytes.
fn cells(
    arguments: &RowArguments,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync,
) -> io::Result<Measured> {
    let open = OpenFile::open(Path::new(INPUT), DirectIo::Off, FileAccess::Read)?;
    let kernel_pages = || open.resident_pages(ByteRange::new(0, arguments.bytes));
    let before = kernel_pages();
    let limit = Duration::from_millis(arguments.limit_ms);
    let mut cells = Vec::new();
    for access in Access::ALL {
        for threads in THREADS {
            let places = Places { access, set_bytes: arguments.bytes, seed: arguments.seed };
            cells.push(cell(places, threads, limit, &read)?);
        }
    }
    let after = kernel_pages();
    check(arguments, &read)?;
    Ok(Measured { cells, kernel_pages: [before, after], held_bytes: None, driver: None })
}

fn cell(
    places: Places,
    threads: u32,
    limit: Duration,
    read: &(impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync),
) -> io::Result<Cell> {
    let ready = Barrier::new(threads as usize);
    let cpu_before = cpu_seconds();
    let work = |thread: u32| {
        let mut places = Places { seed: mixed(places.seed << 8 | u64::from(thread)), ..places };
        ready.wait();
        reads(&mut places, limit, read)
    };
    let results: Vec<io::Result<(u64, Duration)>> = thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a measuring thread does not panic")).collect()
    });
    let cpu_seconds = cpu_seconds() - cpu_before;
    let (mut reads, mut reads_per_s) = (0, 0.0);
    for result in results {
        let (own_reads, elapsed) = result?;
        reads += own_reads;
        reads_per_s += own_reads as f64 / elapsed.as_secs_f64();
    }
    Ok(Cell { bytes: places.access.bytes(), threads, reads, reads_per_s, cpu_seconds })
}

/// One thread until time is up: how many reads, in what time.
fn reads(
    places: &mut Places,
    limit: Duration,
    read: &impl Fn(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<(u64, Duration)> {
    let mut buffer = vec![0; places.access.bytes() as usize];
    let (start, mut count) = (Instant::now(), 0);
    loop {
        for _ in 0..READS_BETWEEN_LOOKS {
            let read_bytes = read(&mut buffer, places.next())?;
            if read_bytes != buffer.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            black_box(&buffer);
        }
        count += READS_BETWEEN_LOOKS;
        let elapsed = start.elapsed();
        if elapsed >= limit {
            return Ok((count, elapsed));
        }
    }
}

/// A cache that gives wrong bytes may be as fast as it likes.
fn check(arguments: &RowArguments, read: &impl Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<()> {
    let file = File::open(INPUT)?;
    for access in Access::ALL {
        let mut places = Places { access, set_bytes: arguments.bytes, seed: !arguments.seed };
        let mut read_bytes = vec![0; access.bytes() as usize];
        let mut file_bytes = read_bytes.clone();
        for _ in 0..CHECKS {
            let offset_bytes = places.next();
            let length = read(&mut read_bytes, offset_bytes)?;
            file.read_exact_at(&mut file_bytes, offset_bytes)?;
            if length != file_bytes.len() || read_bytes != file_bytes {
                let text = format!("wrong bytes at offset {offset_bytes}: has the file changed?");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
    }
    Ok(())
}

/// Random places of a set, aligned to what is read (xorshift64, Marsaglia 2003).
#[derive(Clone, Copy)]
struct Places {
    access: Access,
    set_bytes: u64,
    seed: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        // Zero would stay zero.
        let mut state = self.seed.max(1);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.seed = state;
        match self.access {
            Access::Word => state % (self.set_bytes / PAGE_BYTES) * PAGE_BYTES + (state >> 48) % 512 * 8,
            Access::Page | Access::Extent => {
                state % (self.set_bytes / self.access.bytes()) * self.access.bytes()
            }
        }
    }
}

/// Uses of a page that headwater's replacement tells apart.
const USES_COUNTED: usize = 3;

/// As readers do that know what they want.
const FILL_BYTES: usize = 1 << 20;

/// A look at the clock costs as much as a short read.
const READS_BETWEEN_LOOKS: u64 = 32;

const CHECKS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: places lie within the set, are aligned, and reach its last part.
    #[test]
    fn places_lie_within_the_set() {
        for access in Access::ALL {
            let mut places = Places { access, set_bytes: 1 << 20, seed: 0 };
            let mut last = 0;
            for _ in 0..10_000 {
                let offset = places.next();
                assert!(offset.is_multiple_of(access.bytes()) && offset + access.bytes() <= 1 << 20);
                last = last.max(offset);
            }
            assert!(last >= (1 << 20) - (64 << 10), "{access:?}: {last}");
        }
    }
}
