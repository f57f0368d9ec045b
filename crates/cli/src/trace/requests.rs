//! Requests: reads and writes of a trace in any format.
//!
//! Owns: recognising the format of a file, errors about other files.
//! Does not own: the formats (`csv`, `oracle_general`).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use headwater_core::units::PAGE_SIZE_BYTES;
use os_display::Quotable;

use super::csv::Csv;
use super::oracle_general::OracleGeneral;
use crate::trace::arguments::FormatChoice;

/// A read or write of adjacent pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) first_page: u64,
    /// Zero for a request of zero bytes.
    pub(super) pages: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    /// A write. The flags say whether it overwrites the first and the last page in part, which takes a read before.
    Write {
        first: Covered,
        last: Covered,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Covered {
    Whole,
    Part,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Request {
    /// The pages of a range of bytes; an error text if it is longer than any system requests at once.
    pub(super) fn of_bytes(start: u64, length: u64, direction: Direction) -> Result<Request, String> {
        if length > REQUEST_BYTES_MAX {
            return Err(format!("{length} bytes are more than the 1 GiB that a request may have"));
        }
        let end =
            start.checked_add(length).ok_or("the request ends beyond the 16 EiB that offsets can say")?;
        let first_page = start / PAGE_SIZE_BYTES;
        let pages = if length == 0 { 0 } else { (end - 1) / PAGE_SIZE_BYTES - first_page + 1 };
        let covered = |aligned| if aligned { Covered::Whole } else { Covered::Part };
        let first_end = (first_page + 1).saturating_mul(PAGE_SIZE_BYTES);
        let first = covered(start.is_multiple_of(PAGE_SIZE_BYTES) && end >= first_end);
        let last = if pages == 1 { first } else { covered(end.is_multiple_of(PAGE_SIZE_BYTES)) };
        let kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write { first, last },
        };
        Ok(Request { first_page, pages, kind })
    }

    pub(super) fn of_object(object: u64, direction: Direction) -> Request {
        let kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write { first: Covered::Whole, last: Covered::Whole },
        };
        Request { first_page: object, pages: 1, kind }
    }
}

/// An iterator over the requests of a file.
pub(super) struct Requests {
    path: String,
    source: Source,
    length_bytes: u64,
    count: u64,
}

enum Source {
    OracleGeneral(OracleGeneral<BufReader<File>>),
    Csv(Csv<BufReader<File>>),
}

impl Requests {
    pub(super) fn open(path: &Path, format: FormatChoice) -> Result<Requests, String> {
        let path_text = path.maybe_quote().to_string();
        let failed = |error: std::io::Error| format!("failed to read {path_text}: {error}");
        let file = File::open(path).map_err(|error| format!("failed to open {path_text}: {error}"))?;
        let length_bytes = file.metadata().map_err(failed)?.len();
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let start = reader.fill_buf().map_err(failed)?;
        let named = |text: String| format!("failed to replay {path_text}: {text}");
        let format = detect(start, format).map_err(named)?;
        let source = match format {
            FormatChoice::Csv => Csv::new(reader).map(Source::Csv),
            _ => OracleGeneral::new(reader, length_bytes).map(Source::OracleGeneral),
        };
        Ok(Requests { source: source.map_err(named)?, path: path_text, length_bytes, count: 0 })
    }

    pub(super) fn next_request(&mut self) -> Result<Option<Request>, String> {
        let request = match &mut self.source {
            Source::OracleGeneral(records) => records.next_request(),
            Source::Csv(lines) => lines.next_request(),
        };
        let request = request.map_err(|text| format!("failed to replay {}: {text}", self.path))?;
        self.count += u64::from(request.is_some());
        Ok(request)
    }

    pub(super) fn check_not_empty(&self) -> Result<(), String> {
        match self.count {
            0 => Err(format!("failed to replay {}: it holds no request", self.path)),
            _ => Ok(()),
        }
    }

    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    pub(super) fn position_bytes(&self) -> u64 {
        match &self.source {
            Source::OracleGeneral(records) => records.position_bytes(),
            Source::Csv(lines) => lines.position_bytes(),
        }
    }

    pub(super) fn format(&self) -> &'static str {
        match &self.source {
            Source::OracleGeneral(_) => "oracle-general",
            Source::Csv(_) => "csv",
        }
    }
}

/// The format of a file with these first bytes; an error text if it has none, or not the one that the user chose.
fn detect(start: &[u8], asked: FormatChoice) -> Result<FormatChoice, String> {
    if start.is_empty() {
        return Err("it is empty".into());
    }
    if let Some((_, name)) = COMPRESSIONS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Err(format!("it is compressed; decompress it with {name} -d first"));
    }
    let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\r' | b'\n');
    let is_text = !start.iter().take(TEXT_BYTES).any(is_control);
    match (asked, is_text) {
        (FormatChoice::Auto | FormatChoice::Csv, true) => Ok(FormatChoice::Csv),
        (FormatChoice::Auto | FormatChoice::OracleGeneral, false) => Ok(FormatChoice::OracleGeneral),
        (FormatChoice::OracleGeneral, true) => Err("it is text, not oracle-general; try --format csv".into()),
        (FormatChoice::Csv, false) => Err("it is no text; try --format oracle-general".into()),
    }
}

/// Whether the bytes are text: a record of oracle-general has zero bytes, in the high bytes of its size at least.
const TEXT_BYTES: usize = 64;

/// Compression formats of published traces, by their first bytes.
const COMPRESSIONS: [(&[u8], &str); 3] =
    [(&[0x28, 0xb5, 0x2f, 0xfd], "zstd"), (&[0x1f, 0x8b], "gzip"), (&[0xfd, b'7', b'z', b'X', b'Z'], "xz")];

/// The longest request, far above what devices and file systems take at once: a larger size means a mistaken column.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// The buffer of the trace, which is read once from start to end.
const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(start: u64, length: u64) -> (u64, u64, Covered, Covered) {
        let request = Request::of_bytes(start, length, Direction::Write).unwrap();
        let Kind::Write { first, last } = request.kind else { panic!("a write was asked for") };
        (request.first_page, request.pages, first, last)
    }

    /// Goal: which pages a range of bytes touches, and which of them in part.
    #[test]
    fn pages_of_bytes() {
        use Covered::{Part, Whole};
        assert_eq!(write(4096, 8192), (1, 2, Whole, Whole));
        assert_eq!(write(4095, 2), (0, 2, Part, Part));
        assert_eq!(write(100, 100), (0, 1, Part, Part));
        assert_eq!(write(4096, 5000), (1, 2, Whole, Part));
        assert_eq!(write(0, 4096), (0, 1, Whole, Whole));
        assert_eq!(write(0, 100), (0, 1, Part, Part));
        assert_eq!(write(5000, 0).1, 0);
        assert!(Request::of_bytes(u64::MAX, 2, Direction::Read).is_err());
        assert!(Request::of_bytes(0, (1 << 30) + 1, Direction::Read).is_err());
    }

    /// Goal: formats are recognised by their first bytes, and a wrong choice is explained.
    #[test]
    fn formats_are_told_apart() {
        use FormatChoice::{Auto, Csv, OracleGeneral};
        let (text, binary) = (b"offset,size\n0,4096\n", [0; 24]);
        assert_eq!(detect(text, Auto), Ok(Csv));
        assert_eq!(detect(&binary, Auto), Ok(OracleGeneral));
        assert!(detect(text, OracleGeneral).unwrap_err().contains("--format csv"));
        assert!(detect(&binary, Csv).unwrap_err().contains("--format oracle-general"));
        assert!(detect(&[0x28, 0xb5, 0x2f, 0xfd, 0], Auto).unwrap_err().contains("zstd -d"));
        assert!(detect(&[], Auto).unwrap_err().contains("empty"));
    }
}
