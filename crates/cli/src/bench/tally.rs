//! Tally: what every way of reading a file from start to end does with its bytes, so that all do the same.
//!
//! Owns: the sums that prove that the right bytes arrived, the end of time.
//! Does not own: reading.

use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Takes bytes in: looks at the first byte of each page, and sums those up.
pub(super) struct Tally {
    pub(super) position_bytes: u64,
    pub(super) end_bytes: u64,
    sum: u64,
    sums: Vec<(u64, u64)>,
    deadline: Instant,
    look_at_clock_bytes: u64,
}

impl Tally {
    pub(super) fn new(end_bytes: u64, limit: Duration) -> Tally {
        let deadline = Instant::now() + limit;
        Tally { position_bytes: 0, end_bytes, sum: 0, sums: Vec::new(), deadline, look_at_clock_bytes: 0 }
    }

    pub(super) fn take(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        let left_bytes = usize::try_from(self.end_bytes - self.position_bytes).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(left_bytes)];
        let first = (self.position_bytes.wrapping_neg() % PAGE_SIZE_BYTES) as usize;
        let firsts = chunk.get(first..).unwrap_or_default().iter().step_by(PAGE_BYTES);
        let firsts = firsts.fold(0, |sum, &byte| sum + u64::from(byte));
        self.count(chunk.len() as u64, firsts)
    }

    /// The same when the sum of the first bytes is made already.
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

    /// All that copying reads give, from where the tally is.
    pub(super) fn take_all(
        &mut self,
        buffer: &mut [u8],
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        loop {
            let read_bytes = read(buffer, self.position_bytes)?;
            if read_bytes == 0 || self.take(&buffer[..read_bytes]).is_break() {
                return Ok(());
            }
        }
    }

    /// The same of a reader that copies.
    pub(super) fn take_copies(&mut self, reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<()> {
        self.take_all(buffer, |buffer, _| reader.read(buffer))
    }

    /// The same of a reader that lends its own memory.
    pub(super) fn take_lent(&mut self, reader: &mut impl BufRead) -> io::Result<()> {
        loop {
            let chunk = reader.fill_buf()?;
            let length = chunk.len();
            if length == 0 || self.take(chunk).is_break() {
                return Ok(());
            }
            reader.consume(length);
        }
    }

    fn is_late(&mut self) -> bool {
        if self.position_bytes < self.look_at_clock_bytes {
            return false;
        }
        self.look_at_clock_bytes = self.position_bytes + CLOCK_BYTES;
        Instant::now() >= self.deadline
    }

    /// How much was read, and sums of the first bytes of all pages up to these offsets.
    pub(super) fn finish(mut self) -> (u64, Vec<(u64, u64)>) {
        if self.sums.last().is_none_or(|&(offset, _)| offset != self.position_bytes) {
            self.sums.push((self.position_bytes, self.sum));
        }
        (self.position_bytes, self.sums)
    }
}

/// All rows read the same bytes, or the table is worthless: the first sum of each key, and whose it was.
pub(super) struct Sums<Key> {
    first: HashMap<Key, (u64, String)>,
}

impl<Key: std::hash::Hash + Eq> Sums<Key> {
    pub(super) fn new() -> Sums<Key> {
        Sums { first: HashMap::new() }
    }

    /// # Errors
    /// Which two rows read different bytes.
    pub(super) fn compare(
        &mut self,
        name: &str,
        sums: impl IntoIterator<Item = (Key, u64)>,
    ) -> Result<(), String> {
        for (key, sum) in sums {
            let first = self.first.entry(key).or_insert_with(|| (sum, name.to_owned()));
            if first.0 != sum {
                return Err(format!("{} and {name} read different bytes: has the file changed?", first.1));
            }
        }
        Ok(())
    }
}

/// Sums are noted this often, so that rows that came unequally far can be compared.
pub(super) const SUM_BYTES: u64 = 4 << 20;

/// A look at the clock costs 30 ns, a 4 KiB read from the page cache 1 µs: only every 32nd looks.
const CLOCK_BYTES: u64 = 128 << 10;
