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
use std::time::{Duration, Instant};

use headwater::testing::{MapAdvice, MappedFile};
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::affinity::Affinity;
use headwater_measure::{Meter, crew};
use serde::{Deserialize, Serialize};

use super::{Access, Source, THREADS};
use crate::bench::arguments::RowArguments;
use crate::bench::input::{CHECKS, INPUT, check, no_such_row, pass, resident_pages};
use crate::shared::random::mixed;

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
    let file = File::open(INPUT)?;
    match source.ok_or_else(no_such_row)? {
        Source::Headwater => headwater(arguments),
        Source::Pread => {
            fill_kernel(&file, arguments.bytes)?;
            cells(arguments, |buffer, offset_bytes| file.read_at(buffer, offset_bytes))
        }
        Source::Mapped => {
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
    let held_bytes = Some(engine.stats().cache.resident_pages * PAGE_SIZE_BYTES);
    let measured = cells(arguments, |buffer, offset_bytes| Ok(file.read_at(buffer, offset_bytes)?))?;
    Ok(Measured { held_bytes, driver: Some(engine.info().driver.to_owned()), ..measured })
}

/// The first pass brings the pages in, the second marks them as used.
fn fill_kernel(file: &File, set_bytes: u64) -> io::Result<()> {
    (0..2).try_for_each(|_| pass(set_bytes, |buffer, offset_bytes| file.read_exact_at(buffer, offset_bytes)))
}

/// All kinds of reads with `read`, which must be given the file's bytes.
fn cells(
    arguments: &RowArguments,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync,
) -> io::Result<Measured> {
    let before = resident_pages(arguments.bytes)?;
    let limit = Duration::from_millis(arguments.limit_ms);
    let mut cells = Vec::new();
    for access in Access::ALL {
        for threads in THREADS {
            let places = Places { access, set_bytes: arguments.bytes, seed: arguments.seed };
            cells.push(cell(places, threads, limit, &read)?);
        }
    }
    let after = resident_pages(arguments.bytes)?;
    let file = File::open(INPUT)?;
    for access in Access::ALL {
        let mut places = Places { access, set_bytes: arguments.bytes, seed: !arguments.seed };
        let mut buffer = vec![0; access.bytes() as usize];
        for _ in 0..CHECKS {
            let offset_bytes = places.next();
            let length = read(&mut buffer, offset_bytes)?;
            check(&file, &buffer[..length], offset_bytes)?;
        }
    }
    Ok(Measured { cells, kernel_pages: [before, after], held_bytes: None, driver: None })
}

fn cell(
    places: Places,
    threads: u32,
    limit: Duration,
    read: &(impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync),
) -> io::Result<Cell> {
    let meter = Meter::start();
    let places_of = |thread: u32| Ok(Places { seed: mixed(places.seed << 8 | u64::from(thread)), ..places });
    let results = crew::run(threads, &Affinity::None, places_of, |places| reads(places, limit, read))?;
    Ok(Cell {
        bytes: places.access.bytes(),
        threads,
        reads: results.iter().map(|(reads, _)| reads).sum(),
        reads_per_s: results.iter().map(|(reads, elapsed)| *reads as f64 / elapsed.as_secs_f64()).sum(),
        cpu_seconds: meter.cpu_seconds(),
    })
}

/// One thread until time is up: how many reads, in what time.
fn reads(
    mut places: Places,
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

/// Random places of a set, aligned to what is read.
#[derive(Clone, Copy)]
struct Places {
    access: Access,
    set_bytes: u64,
    seed: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        let state = mixed(self.seed);
        match self.access {
            Access::Word => {
                state % (self.set_bytes / PAGE_SIZE_BYTES) * PAGE_SIZE_BYTES + (state >> 48) % 512 * 8
            }
            Access::Page | Access::Extent => {
                state % (self.set_bytes / self.access.bytes()) * self.access.bytes()
            }
        }
    }
}

/// Uses of a page that headwater's replacement tells apart.
const USES_COUNTED: usize = 3;

/// A look at the clock costs as much as a short read.
const READS_BETWEEN_LOOKS: u64 = 32;

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
