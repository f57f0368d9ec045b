//! CSV: traces with a header that names the columns, then a request on each line.
//!
//! Owns: the columns, error texts with line numbers.
//! Does not own: other formats.

use std::io::{BufRead, Read};

use super::request::{Direction, Request};

pub(super) struct Csv<R> {
    reader: R,
    columns: Columns,
    line: Vec<u8>,
    /// Number of the last line read, from 1.
    line_number: u64,
    position_bytes: u64,
}

/// Indexes of the columns, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Columns {
    place: Place,
    size: Option<usize>,
    operation: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    OffsetBytes(usize),
    Sector(usize),
    Object(usize),
}

impl<R: BufRead> Csv<R> {
    /// Reads the header.
    pub(super) fn new(reader: R) -> Result<Self, String> {
        // Replaced below; nothing is read by it.
        let nowhere = Columns { place: Place::Object(0), size: None, operation: None };
        let mut csv = Self { reader, columns: nowhere, line: Vec::new(), line_number: 0, position_bytes: 0 };
        csv.read_line()?;
        csv.columns = Columns::from_header(csv.text()?)?;
        Ok(csv)
    }

    /// Reads the next line that is not blank.
    pub(super) fn next_request(&mut self) -> Result<Option<Request>, String> {
        while self.read_line()? {
            let text = self.text()?;
            if !text.is_empty() {
                let request = self.columns.request(text);
                return request.map(Some).map_err(|text| format!("line {}: {text}", self.line_number));
            }
        }
        Ok(None)
    }

    pub(super) fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// Whether there was a line.
    fn read_line(&mut self) -> Result<bool, String> {
        self.line.clear();
        self.line_number += 1;
        let number = self.line_number;
        let mut limited = self.reader.by_ref().take(LINE_BYTES_MAX);
        let read_bytes =
            limited.read_until(b'\n', &mut self.line).map_err(|error| format!("line {number}: {error}"))?;
        self.position_bytes += read_bytes as u64;
        if read_bytes as u64 == LINE_BYTES_MAX {
            return Err(format!("line {number} is longer than {LINE_BYTES_MAX} bytes; this is no CSV"));
        }
        Ok(read_bytes > 0)
    }

    fn text(&self) -> Result<&str, String> {
        let text = std::str::from_utf8(&self.line);
        text.map(str::trim).map_err(|_| format!("line {} is no text", self.line_number))
    }
}

impl Columns {
    fn from_header(header: &str) -> Result<Columns, String> {
        let header = header.trim_start_matches(BYTE_ORDER_MARK);
        let names: Vec<String> = header.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let find = |wanted: &str| names.iter().position(|name| name == wanted);
        let places = [
            find("offset").map(Place::OffsetBytes),
            find("lbn").map(Place::Sector),
            find("obj_id").map(Place::Object),
        ];
        let mut places = places.into_iter().flatten();
        let (place, other) = (places.next(), places.next());
        let problem = match (place, other) {
            (None, _) => "it needs a column offset, lbn or obj_id",
            (Some(_), Some(_)) => "it has more than one of the columns offset, lbn and obj_id",
            (Some(Place::OffsetBytes(_) | Place::Sector(_)), None) if find("size").is_none() => {
                "it needs a column size"
            }
            (Some(place), None) => {
                return Ok(Columns { place, size: find("size"), operation: find("op") });
            }
        };
        let start: String = header.chars().take(HEADER_LETTERS_SHOWN).collect();
        Err(format!("line 1: {problem}; the header is {start:?}"))
    }

    fn request(&self, line: &str) -> Result<Request, String> {
        let value = |column: usize, name: &str| {
            line.split(',').nth(column).map(str::trim).ok_or_else(|| format!("no {name} in {line:?}"))
        };
        let number = |column: usize, name: &str| {
            let text = value(column, name)?;
            text.parse::<u64>().map_err(|_| format!("{name} {text:?} is no number"))
        };
        let direction = match self.operation {
            Some(column) => direction(value(column, "op")?)?,
            None => Direction::Read,
        };
        let size = || number(self.size.expect("a place in bytes has a size"), "size");
        match self.place {
            Place::Object(column) => Ok(Request::of_object(number(column, "obj_id")?, direction)),
            Place::OffsetBytes(column) => Request::of_bytes(number(column, "offset")?, size()?, direction),
            Place::Sector(column) => {
                let sector = number(column, "lbn")?;
                let start =
                    sector.checked_mul(SECTOR_BYTES).ok_or("lbn beyond the 16 EiB that offsets can say")?;
                Request::of_bytes(start, size()?, direction)
            }
        }
    }
}

fn direction(text: &str) -> Result<Direction, String> {
    match text.to_ascii_lowercase().as_str() {
        "r" | "read" => Ok(Direction::Read),
        "w" | "write" => Ok(Direction::Write),
        _ => Err(format!("op {text:?} is neither read nor write")),
    }
}

/// The size of a sector, in which the kernel and all block traces count.
const SECTOR_BYTES: u64 = 512;

/// The longest line; lines of numbers are shorter, and a binary file has no line feeds.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The byte order mark, with which some spreadsheets begin their files.
const BYTE_ORDER_MARK: char = '\u{feff}';

const HEADER_LETTERS_SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use super::super::request::{Covered, Kind};
    use super::*;

    fn requests(text: &str) -> Result<Vec<Request>, String> {
        let mut csv = Csv::new(text.as_bytes())?;
        std::iter::from_fn(|| csv.next_request().transpose()).collect()
    }

    fn read(first_page: u64, pages: u64) -> Request {
        Request { first_page, pages, kind: Kind::Read }
    }

    /// Goal: columns in any order and spelling, the three ways to say where, blank lines, both ends of lines.
    #[test]
    fn columns_are_found() {
        assert_eq!(requests("time,offset,size\n1,8192,4097\n"), Ok(vec![read(2, 2)]));
        assert_eq!(requests("SIZE, LBN\r\n4096, 16\r\n\r\n512,7"), Ok(vec![read(2, 1), read(0, 1)]));
        assert_eq!(requests("\u{feff}obj_id\n7\n"), Ok(vec![read(7, 1)]));
        let whole = Kind::Write { first: Covered::Whole, last: Covered::Whole };
        let written = Request { first_page: 1, pages: 1, kind: whole };
        assert_eq!(requests("op,offset,size\nRead,0,1\nW,4096,4096\n"), Ok(vec![read(0, 1), written]));
    }

    /// Goal: an error names the problem and the line.
    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("a,b\n1,2\n", "line 1: it needs a column offset"),
            ("offset,op\n1,r\n", "line 1: it needs a column size"),
            ("offset,lbn,size\n", "line 1: it has more than one"),
            ("offset,size\n0,1\n0\n", "line 3: no size in \"0\""),
            ("offset,size\n-1,1\n", "line 2: offset \"-1\" is no number"),
            ("obj_id,op\n1,trim\n", "line 2: op \"trim\" is neither"),
            ("offset,size\n\n0,99999999999\n", "line 3: 99999999999 bytes"),
            ("lbn,size\n99999999999999999,1\n", "line 2: lbn beyond"),
        ];
        for (text, expected) in cases {
            let error = requests(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
