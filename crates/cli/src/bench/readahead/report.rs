//! Report: the table and the JSON of a readahead suite.
//!
//! Owns: what counts of several rounds, the words and columns.
//! Does not own: the measurements.

mod figures;

use serde::Serialize;

use super::row::Measurement;
use super::{Outcome, Pattern, Plan, READ_AHEAD_KB, Reader};
use crate::bench::file::Target;
use crate::bench::host::Host;
use crate::bench::report::FioFile;
use crate::bench::suite::{GIB, MIB, median, rounds_words};
use crate::shared::readahead;
use crate::shared::units::readable;

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Host,
    path: String,
    bytes: u64,
    places: u64,
    rounds: u32,
    rows: Vec<Line>,
    notes: Vec<String>,
    #[serde(skip)]
    readers: Vec<Reader>,
    #[serde(skip)]
    fio_file: FioFile,
}

#[derive(Serialize)]
struct Line {
    id: String,
    pattern: &'static str,
    reader: String,
    mib_per_s: f64,
    mib_per_s_min: f64,
    mib_per_s_max: f64,
    cpu_s_per_gib: f64,
    /// Bytes that the device was asked for, for each byte wanted.
    amplification: Option<f64>,
    /// The fewest of all rounds.
    reads: u64,
    reads_wanted: u64,
    /// Against `kernel`.
    ratio: Option<f64>,
    /// Against `kernel-128k`.
    ratio_128: Option<f64>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        target: &Target,
        bytes: u64,
        outcomes: &[Outcome],
        skipped: Option<(Reader, String)>,
    ) -> Report {
        let mut host = Host::of(&target.path);
        let mut measurements = outcomes.iter().flat_map(|outcome| &outcome.measurements);
        host.driver = measurements.find_map(|measured| measured.driver.clone());
        let mut rows: Vec<Line> = outcomes.iter().map(line).collect();
        for pattern in Pattern::ALL {
            let of = |reader| rate_of(&rows, pattern, reader);
            let (kernel, kernel_128) = (of(Reader::Kernel), of(Reader::Kernel128));
            for row in rows.iter_mut().filter(|row| row.pattern == pattern.id()) {
                row.ratio = kernel.map(|kernel| row.mib_per_s / kernel);
                row.ratio_128 = kernel_128.map(|kernel| row.mib_per_s / kernel);
            }
        }
        Report {
            suite: "readahead",
            host,
            path: target.path.display().to_string(),
            bytes,
            places: plan.places,
            rounds: plan.rounds,
            rows,
            notes: notes(outcomes, skipped),
            readers: plan.readers(),
            fio_file: FioFile::of(target, bytes),
        }
    }

    pub(super) fn text(&self) -> String {
        let head = format!(
            "up to {} of {}, made cold before each row; {}, medians",
            readable(self.bytes),
            self.path,
            rounds_words(self.rounds)
        );
        let mut lines = vec![self.host.line(), head, String::new()];
        lines.extend(self.columns());
        lines.extend(Pattern::ALL.into_iter().map(|pattern| self.pattern_text(pattern)));
        lines.push(String::new());
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push("all others by headwater, named after their readahead".to_owned());
        lines.push("device: bytes read from it for each byte wanted".to_owned());
        lines.join("\n") + "\n"
    }

    /// Two lines above the columns: whose they are, and what is in them.
    fn columns(&self) -> [String; 2] {
        let own = self.host.storage.read_ahead_kb.map_or("as set".to_owned(), |kb| format!("{kb} KiB"));
        let common = format!("{READ_AHEAD_KB} KiB");
        let mut lines = [format!("{:<26}", "cold reads"), " ".repeat(26)];
        for reader in &self.readers {
            let name = match reader {
                Reader::Kernel => format!("kernel {own}"),
                Reader::Kernel128 => format!("kernel {common}"),
                Reader::Headwater(_) => column_name(*reader),
            };
            lines[0] += &format!("  {name:>16}");
            lines[1] += &format!("  {:>9} {:>6}", "MiB/s", "device");
        }
        let whose = self.ours().map_or(String::new(), |reader| format!("{} : kernel", column_name(reader)));
        lines[0] += &format!("  {whose:>18}");
        lines[1] += &format!("  {own:>9} {common:>8}");
        lines
    }

    fn pattern_text(&self, pattern: Pattern) -> String {
        let mut text = format!("{:<26}", pattern.name());
        for reader in &self.readers {
            let row = self.row(pattern, *reader);
            let rate = row.map_or("-".to_owned(), |row| format!("{:.0}", row.mib_per_s));
            let device = row.and_then(|row| row.amplification);
            let device = device.map_or("-".to_owned(), |device| format!("{device:.2}"));
            text += &format!("  {rate:>9} {device:>6}");
        }
        let ours = self.ours().and_then(|reader| self.row(pattern, reader));
        let words = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let ratio = words(ours.and_then(|row| row.ratio));
        let ratio_128 = words(ours.and_then(|row| row.ratio_128));
        text + &format!("  {ratio:>9} {ratio_128:>8}")
    }

    /// The reader that the kernel is compared with: the last named.
    fn ours(&self) -> Option<Reader> {
        self.readers.last().copied()
    }

    fn row(&self, pattern: Pattern, reader: Reader) -> Option<&Line> {
        self.rows.iter().find(|row| row.pattern == pattern.id() && row.reader == reader.id())
    }
}

fn column_name(reader: Reader) -> String {
    match reader {
        Reader::Headwater(policy) => readahead::name(policy),
        Reader::Kernel | Reader::Kernel128 => reader.id(),
    }
}

fn line(outcome: &Outcome) -> Line {
    let each = |value: fn(&Measurement) -> f64| outcome.measurements.iter().map(value);
    let rate = |measured: &Measurement| measured.bytes as f64 / MIB / measured.seconds;
    let device = outcome.measurements.iter().map(|measured| {
        measured.device_bytes.map(|device_bytes| device_bytes as f64 / measured.bytes as f64)
    });
    let device: Option<Vec<f64>> = device.collect();
    Line {
        id: format!("{}-{}", outcome.pattern.id(), outcome.reader.id()),
        pattern: outcome.pattern.id(),
        reader: outcome.reader.id(),
        mib_per_s: median(each(rate)),
        mib_per_s_min: each(rate).fold(f64::INFINITY, f64::min),
        mib_per_s_max: each(rate).fold(0.0, f64::max),
        cpu_s_per_gib: median(each(|measured| measured.cpu_seconds * GIB / measured.bytes as f64)),
        amplification: device.map(|device| median(device.into_iter())),
        reads: outcome.measurements.iter().map(|measured| measured.reads).min().unwrap_or(0),
        reads_wanted: outcome.measurements.iter().map(|measured| measured.reads_wanted).max().unwrap_or(0),
        ratio: None,
        ratio_128: None,
    }
}

fn rate_of(rows: &[Line], pattern: Pattern, reader: Reader) -> Option<f64> {
    let row = rows.iter().find(|row| row.pattern == pattern.id() && row.reader == reader.id());
    row.map(|row| row.mib_per_s)
}

fn notes(outcomes: &[Outcome], skipped: Option<(Reader, String)>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((_, reason)) = skipped {
        notes.push(format!("no rows with a kernel readahead of {READ_AHEAD_KB} KiB: {reason}"));
    }
    let cut: Vec<String> = outcomes
        .iter()
        .filter(|outcome| outcome.measurements.iter().any(|measured| measured.reads < measured.reads_wanted))
        .map(|outcome| format!("{} by {}", outcome.pattern.id(), outcome.reader.id()))
        .collect();
    if !cut.is_empty() {
        notes.push(format!("time was up before the end: {}", cut.join("; ")));
    }
    if outcomes.iter().any(|outcome| outcome.stayed_warm) {
        notes.push("the page cache kept some of the file, so not all rows were cold".to_owned());
    }
    notes
}
