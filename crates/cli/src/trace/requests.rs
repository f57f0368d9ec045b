//! Requests: reads and writes of a trace in any format.
//!
//! Owns: recognising the format of a file, errors about other files.
//! Does not own: the formats (`csv`, `oracle_general`), one request (`request`).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use headwater_measure::standard;
use os_display::Quotable;

use super::csv::Csv;
use super::oracle_general::OracleGeneral;
use super::request::Request;
use crate::trace::arguments::FormatChoice;

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
        let file = if path == Path::new("-") { standard::input() } else { File::open(path) };
        let file = file.map_err(|error| format!("failed to open {path_text}: {error}"))?;
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

/// The buffer of the trace, which is read once from start to end.
const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

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
