//! Oracle-general: the binary format of libCacheSim, in which most public cache traces are published.
//!
//! ```text
//!   byte  0      4               12     16                24
//!         │ time │ object        │ size │ next access     │     all little-endian, no padding
//! ```
//!
//! An object counts as one page, whatever its size: policies are compared by the objects they keep, and the converters of block
//! traces have cut requests into blocks already.
//!
//! Owns: the records, error texts about them.
//! Does not own: other formats.

use std::io::{ErrorKind, Read};

use super::request::{Direction, Request};

pub(super) struct OracleGeneral<R> {
    reader: R,
    position_bytes: u64,
}

impl<R: Read> OracleGeneral<R> {
    /// A trace of `length_bytes`, 0 if the length is unknown. A file that ends within a record is refused here, not at its end.
    pub(super) fn new(reader: R, length_bytes: u64) -> Result<Self, String> {
        match length_bytes % RECORD_BYTES as u64 {
            0 => Ok(Self { reader, position_bytes: 0 }),
            rest => Err(truncated(length_bytes - rest, rest as usize)),
        }
    }

    pub(super) fn next_request(&mut self) -> Result<Option<Request>, String> {
        let mut record = [0; RECORD_BYTES];
        let read_bytes = self.fill(&mut record)?;
        if read_bytes == 0 {
            return Ok(None);
        }
        if read_bytes < RECORD_BYTES {
            return Err(truncated(self.position_bytes, read_bytes));
        }
        let (_, rest) = record.split_at(4);
        let (object, rest) = rest.split_at(8);
        let (_, next_access) = rest.split_at(4);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes were split off"));
        let next_access = number(next_access) as i64;
        if !is_access(next_access) {
            return Err(self.foreign(next_access));
        }
        self.position_bytes += RECORD_BYTES as u64;
        Ok(Some(Request::of_object(number(object), Direction::Read)))
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// Reads the next record. Returns how many of its bytes there are.
    fn fill(&mut self, record: &mut [u8]) -> Result<usize, String> {
        let mut filled = 0;
        while filled < record.len() {
            match self.reader.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("byte {}: {error}", self.position_bytes)),
            }
        }
        Ok(filled)
    }

    fn foreign(&self, next_access: i64) -> String {
        format!(
            "the record at byte {} says that its object comes next as request {next_access}, so this is another \
             format than oracle-general",
            self.position_bytes
        )
    }
}

/// The next access is the number of a request; -1, or the largest number, means never.
fn is_access(number: i64) -> bool {
    number == i64::MAX || (-1..REQUESTS_MAX).contains(&number)
}

fn truncated(position_bytes: u64, read_bytes: usize) -> String {
    let missing = RECORD_BYTES - read_bytes;
    format!(
        "the record at byte {position_bytes} is cut off, {missing} of its {RECORD_BYTES} bytes are missing (or this \
         is another format than oracle-general)"
    )
}

const RECORD_BYTES: usize = 24;

/// The limit of requests: the file of a longer trace would exceed 24 PiB.
const REQUESTS_MAX: i64 = 1 << 50;
