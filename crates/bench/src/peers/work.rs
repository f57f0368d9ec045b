//! Work: what every arm does with what it reads, so that all do the same.
//!
//! Owns: places and end of random reads, the sums, the clock.
//! Does not own: how bytes are read.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::rows::{Arm, Row};
use crate::pages::{Offsets, PAGE};
use headwater_measure::process::peak_rss_kib;
use headwater_measure::{Figures, sum_of_words};

/// What an arm is asked for.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) row: Row,
    pub(super) arm: Arm,
    /// A file, or the folder of small ones.
    pub(super) path: PathBuf,
    /// Of random reads.
    pub(super) seconds: f64,
    /// How many small files.
    pub(super) files: u32,
}

impl Job {
    pub(super) fn length_bytes(&self) -> io::Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }

    pub(super) fn file(&self, index: u32) -> PathBuf {
        self.path.join(index.to_string())
    }

    /// Offsets of the pieces of the file.
    pub(super) fn pieces(&self) -> io::Result<impl Iterator<Item = u64> + Clone + use<>> {
        Ok((0..self.length_bytes()?).step_by(PIECE_BYTES))
    }

    pub(super) fn unknown<T>(&self) -> io::Result<T> {
        Err(io::Error::other(format!("{:?} does not do {:?}", self.arm, self.row)))
    }
}

/// What an arm did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) bytes: u64,
    /// Pages or files; 0 of a scan.
    pub(super) requests: u64,
    pub(super) elapsed_s: f64,
    /// Of the whole process, what the kernel did for it included.
    pub(super) cpu_s: f64,
    pub(super) peak_rss_mib: f64,
    /// Of what was read; of random reads, of the first [`SUMMED_READS`].
    pub(super) sum: u64,
}

impl Sample {
    pub(super) fn figures(&self, row: Row) -> Figures {
        let (rate, cpu) = row.judged();
        let (count, unit) = match rate {
            "mib_per_s" => (self.bytes as f64 / f64::from(1 << 20), 1024.0),
            _ => (self.requests as f64, 1e6),
        };
        Figures::from([
            (rate, count / self.elapsed_s),
            (cpu, self.cpu_s / count * unit),
            ("peak_rss_mib", self.peak_rss_mib),
        ])
    }
}

/// The clocks, from when an arm has all it needs.
pub(super) struct Meter(headwater_measure::Meter);

impl Meter {
    pub(super) fn start() -> Meter {
        Meter(headwater_measure::Meter::start())
    }

    pub(super) fn sample(&self, bytes: u64, requests: u64, sum: u64) -> Sample {
        let (elapsed_s, cpu_s) = (self.0.seconds(), self.0.cpu_seconds());
        let peak_rss_mib = peak_rss_kib().unwrap_or(0) as f64 / 1024.0;
        Sample { bytes, requests, elapsed_s, cpu_s, peak_rss_mib, sum }
    }

    pub(super) fn lanes(&self, lanes: impl IntoIterator<Item = io::Result<Lane>>) -> io::Result<Sample> {
        let (mut requests, mut sum) = (0, 0_u64);
        for lane in lanes {
            let lane = lane?;
            requests += lane.taken;
            sum = sum.wrapping_add(lane.sum);
        }
        Ok(self.sample(requests * PAGE, requests, sum))
    }
}

/// One of the sequences of random reads that are under way at the same time. They begin with places that are the same in every
/// run and for any number of lanes, whose contents are summed up; then come others in every run.
pub(super) struct Lane {
    known: std::vec::IntoIter<u64>,
    others: Offsets,
    /// How many are known.
    known_reads: u64,
    asked: u64,
    taken: u64,
    sum: u64,
    start: Instant,
    seconds: f64,
    looks: u64,
    is_over: bool,
}

impl Lane {
    pub(super) fn all(job: &Job, lanes: u32) -> io::Result<Vec<Lane>> {
        let (length_bytes, start) = (job.length_bytes()?, Instant::now());
        let mut known = Offsets::known(1, length_bytes);
        let known: Vec<u64> = (0..SUMMED_READS).map(|_| known.next()).collect();
        let lane = |index: u32| {
            let known: Vec<u64> =
                known.iter().copied().skip(index as usize).step_by(lanes as usize).collect();
            Lane {
                known_reads: known.len() as u64,
                known: known.into_iter(),
                others: Offsets::new(u64::from(index), length_bytes),
                asked: 0,
                taken: 0,
                sum: 0,
                start,
                seconds: job.seconds,
                looks: if job.row == Row::WarmRandom { READS_BETWEEN_LOOKS } else { 1 },
                is_over: false,
            }
        };
        Ok((0..lanes).map(lane).collect())
    }

    /// Where to read a page next; `None` when time is over and the known places have been read.
    pub(super) fn next(&mut self) -> Option<u64> {
        if let Some(offset) = self.known.next() {
            return Some(offset);
        }
        // A look at the clock costs as much as some reads.
        if self.asked.is_multiple_of(self.looks) && self.start.elapsed().as_secs_f64() >= self.seconds {
            self.is_over = true;
        }
        self.asked += 1;
        (!self.is_over).then(|| self.others.next())
    }

    /// Takes what was read there, in the order in which it was asked for.
    pub(super) fn take(&mut self, page: &[u8]) -> io::Result<()> {
        if page.len() != PAGE as usize {
            return Err(io::Error::other(format!("a read of a page gave {} bytes", page.len())));
        }
        let sum = std::hint::black_box(sum_of_words(page));
        if self.taken < self.known_reads {
            self.sum = self.sum.wrapping_add(sum);
        }
        self.taken += 1;
        Ok(())
    }
}

/// What a scan has seen.
#[derive(Clone, Copy, Default)]
pub(super) struct PageSum {
    pub(super) bytes: u64,
    pub(super) sum: u64,
}

impl PageSum {
    /// Adds the first byte of each page of what follows.
    pub(super) fn add(&mut self, chunk: &[u8]) {
        let to_next_page = (self.bytes.next_multiple_of(PAGE) - self.bytes) as usize;
        let bytes = chunk.iter().skip(to_next_page).step_by(PAGE as usize);
        self.sum += bytes.map(|&byte| u64::from(byte)).sum::<u64>();
        self.bytes += chunk.len() as u64;
    }

    pub(super) fn merge(self, other: PageSum) -> PageSum {
        PageSum { bytes: self.bytes + other.bytes, sum: self.sum + other.sum }
    }
}

/// Of files that were read, in any order.
#[derive(Clone, Copy, Default)]
pub(super) struct FileSum {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) sum: u64,
}

impl FileSum {
    pub(super) fn add(&mut self, contents: &[u8]) {
        self.files += 1;
        self.bytes += contents.len() as u64;
        self.sum = self.sum.wrapping_add(sum_of_words(contents));
    }

    pub(super) fn merge(self, other: FileSum) -> FileSum {
        FileSum {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

/// What is hashed, in the pieces that the row is about.
#[derive(Default)]
pub(super) struct Hashing {
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Hashing {
    pub(super) fn add(&mut self, chunk: &[u8]) {
        for piece in chunk.chunks(HASHED_BYTES) {
            self.hasher.update(piece);
        }
        self.bytes += chunk.len() as u64;
    }

    pub(super) fn finish(&self, meter: &Meter) -> Sample {
        let hash = *self.hasher.finalize().as_bytes();
        let first = *hash.first_chunk().expect("a hash has 32 bytes");
        meter.sample(self.bytes, 0, u64::from_le_bytes(first))
    }
}

/// For rows that keep requests in flight by hand: the size and number that measured best for glommio and compio.
pub(super) const PIECE_BYTES: usize = 512 << 10;

/// Pieces in flight.
pub(super) const PIECES_AHEAD: usize = 5;

/// What a small file has at most.
pub(super) const SMALL_BYTES_MAX: usize = 16 << 10;

/// More than a small file has: a read that gives less than was asked for has seen the end.
pub(super) const SMALL_BUFFER_BYTES: usize = SMALL_BYTES_MAX + PAGE as usize;

const HASHED_BYTES: usize = 64 << 10;

/// Few enough for the slowest arm.
const SUMMED_READS: u64 = 200;

const READS_BETWEEN_LOOKS: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a sum of pages does not depend on how a file is cut.
    #[test]
    fn sums_of_pages_agree() {
        let file: Vec<u8> = (0..50_000_u32).map(|index| (index % 251) as u8).collect();
        let whole = file.iter().step_by(4096).map(|&byte| u64::from(byte)).sum::<u64>();
        for cut in [1, 1000, 4096, 5000, 50_000] {
            let mut sum = PageSum::default();
            file.chunks(cut).for_each(|chunk| sum.add(chunk));
            assert_eq!((sum.sum, sum.bytes), (whole, 50_000), "pieces of {cut}");
        }
    }
}
