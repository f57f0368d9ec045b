//! Report: medians, the table and the JSON.
//!
//! Owns: what counts of several measurements, the words and columns.
//! Does not own: the measurements.

mod figures;

use std::borrow::Cow;

use serde::Serialize;

use super::file::Target;
use super::host::Host;
use super::row::Measurement;
use super::rows::{BUFFERED_ID, Row};
use super::suite::{GIB, MIB, median};
use crate::shared::units::readable;

/// A row and what it took, a measurement a round.
pub(super) struct Outcome {
    pub(super) row: Row,
    pub(super) measurements: Vec<Measurement>,
    /// In some round the page cache still held a part of the file.
    pub(super) stayed_warm: bool,
}

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Host,
    file: FileFacts,
    rounds: u32,
    rows: Vec<Line>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    fio: String,
    /// Whether the page cache held nothing before all rows.
    #[serde(skip)]
    was_cold: bool,
    #[serde(skip)]
    fio_file: FioFile,
}

#[derive(Serialize)]
struct FileFacts {
    path: String,
    bytes: u64,
    made_for_this: bool,
}

#[derive(Serialize, Clone)]
struct Line {
    id: String,
    name: String,
    mib_per_s: f64,
    mib_per_s_min: f64,
    mib_per_s_max: f64,
    cpu_s_per_gib: f64,
    cpu_s_per_gib_min: f64,
    cpu_s_per_gib_max: f64,
    peak_rss_mib: f64,
    ratio_to_buffered: Option<f64>,
    /// What was read, when it was not the whole file.
    slice_bytes: Option<u64>,
    #[serde(skip)]
    is_headwater: bool,
}

#[derive(Serialize)]
struct Skipped {
    id: String,
    name: String,
    reason: String,
}

impl Outcome {
    pub(super) fn new(row: Row) -> Outcome {
        Outcome { row, measurements: Vec::new(), stayed_warm: false }
    }
}

impl Report {
    pub(super) fn new(
        host: Host,
        target: &Target,
        outcomes: Vec<Outcome>,
        skipped: &[(Row, String)],
        idle_rss_kib: u64,
        rounds: u32,
    ) -> Report {
        let mut rows: Vec<Line> =
            outcomes.iter().map(|outcome| line(outcome, target.bytes, idle_rss_kib)).collect();
        let buffered = rows.iter().find(|line| line.id == BUFFERED_ID).map(|line| line.mib_per_s);
        for line in &mut rows {
            line.ratio_to_buffered = buffered.map(|buffered| line.mib_per_s / buffered);
        }
        let skip = |(row, reason): &(Row, String)| Skipped {
            id: row.id.clone(),
            name: row.name.clone(),
            reason: reason.clone(),
        };
        let file = FileFacts {
            path: target.path.display().to_string(),
            bytes: target.bytes,
            made_for_this: target.is_made,
        };
        let (skipped, notes) = (skipped.iter().map(skip).collect(), notes(&outcomes));
        let (fio, fio_file) = (fio_line(target, "read"), FioFile::of(target, target.bytes));
        let was_cold = outcomes.iter().all(|outcome| !outcome.stayed_warm);
        Report { suite: "scan", host, file, rounds, rows, skipped, notes, fio, was_cold, fio_file }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.host.line(), self.file_line(), String::new()];
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        lines.push(format!(
            "{:width$}  {:>7}  {:>13}  {:>9}  {:>8}  {:>10}",
            "cold sequential read", "MiB/s", "min – max", "CPU s/GiB", "peak MiB", "× buffered"
        ));
        lines.extend(self.rows.iter().map(|row| row.text(width)));
        lines.push(String::new());
        lines.extend(self.skipped.iter().map(|row| format!("skipped {}: {}", row.name, row.reason)));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.extend(self.verdict());
        lines.push(format!("the device's limit: {}", self.fio));
        lines.join("\n") + "\n"
    }

    fn file_line(&self) -> String {
        let (size, path) = (readable(self.file.bytes), &self.file.path);
        let what = match self.file.made_for_this {
            true => format!("{size} made in {path} and removed"),
            false => format!("{size} of {path}"),
        };
        format!("{what}; made cold before each row, {} rounds, medians", self.rounds)
    }

    /// The winner, and what that means against plain reads.
    fn verdict(&self) -> Option<String> {
        let best = fastest(self.rows.iter())?;
        let buffered = self.rows.iter().find(|row| row.id == BUFFERED_ID)?;
        let against = |row: &Line| {
            let (rate, ratio) = (row.mib_per_s, row.ratio_to_buffered.unwrap_or(1.0));
            let cpu = row.cpu_s_per_gib / buffered.cpu_s_per_gib;
            let name = &buffered.name;
            format!("{rate:.0} MiB/s, {ratio:.2} × {name}, with {cpu:.2} × its processor time")
        };
        let mut text = format!("fastest: {} at {}", best.name, against(best));
        if let Some(ours) =
            fastest(self.rows.iter().filter(|row| row.is_headwater)).filter(|_| !best.is_headwater)
        {
            text += &format!("; best of headwater: {} at {}", ours.name, against(ours));
        }
        Some(text)
    }
}

impl Line {
    fn text(&self, width: usize) -> String {
        let spread = format!("{:.0} – {:.0}", self.mib_per_s_min, self.mib_per_s_max);
        let ratio = self.ratio_to_buffered.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let slice = self.slice_bytes.map(|bytes| format!("  first {} only", readable(bytes & !0xfffff)));
        format!(
            "{:width$}  {:>7.0}  {spread:>13}  {:>9.3}  {:>8.1}  {ratio:>10}{}",
            self.name,
            self.mib_per_s,
            self.cpu_s_per_gib,
            self.peak_rss_mib,
            slice.unwrap_or_default()
        )
    }
}

fn line(outcome: &Outcome, file_bytes: u64, idle_rss_kib: u64) -> Line {
    let each = |value: &dyn Fn(&Measurement) -> f64| outcome.measurements.iter().map(value).collect();
    let rates: Vec<f64> = each(&|measured| measured.bytes as f64 / MIB / measured.seconds);
    let cpu: Vec<f64> = each(&|measured| measured.cpu_seconds * GIB / measured.bytes as f64);
    let peaks: Vec<f64> =
        each(&|measured| measured.peak_rss_kib.saturating_sub(idle_rss_kib) as f64 / 1024.0);
    let read_bytes = outcome.measurements.iter().map(|measured| measured.bytes).min();
    Line {
        id: outcome.row.id.clone(),
        name: outcome.row.name.clone(),
        mib_per_s: median(rates.iter().copied()),
        mib_per_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        mib_per_s_max: rates.iter().copied().fold(0.0, f64::max),
        cpu_s_per_gib: median(cpu.iter().copied()),
        cpu_s_per_gib_min: cpu.iter().copied().fold(f64::INFINITY, f64::min),
        cpu_s_per_gib_max: cpu.iter().copied().fold(0.0, f64::max),
        peak_rss_mib: peaks.iter().copied().fold(0.0, f64::max),
        ratio_to_buffered: None,
        slice_bytes: read_bytes.filter(|&bytes| bytes < file_bytes),
        is_headwater: outcome.row.method.is_headwater(),
    }
}

fn fastest<'a>(rows: impl Iterator<Item = &'a Line>) -> Option<&'a Line> {
    rows.max_by(|left, right| left.mib_per_s.total_cmp(&right.mib_per_s))
}

fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let warm: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.stayed_warm)
        .map(|outcome| outcome.row.name.as_str())
        .collect();
    if warm.is_empty() {
        return Vec::new();
    }
    vec![format!("the page cache kept some of the file, so these rows were not cold: {}", warm.join("; "))]
}

/// What measures the device without headwater.
pub(super) fn fio_line(target: &Target, direction: &str) -> String {
    let options = "--ioengine=io_uring --direct=1 --bs=1M --iodepth=32 --mem=mmaphuge";
    FioFile::of(target, target.bytes).job("limit", &format!("--rw={direction} {options}"))
}

/// The file in a command line of fio: the user's own, or one that fio makes and removes.
pub(super) struct FioFile {
    options: String,
}

impl FioFile {
    pub(super) fn of(target: &Target, bytes: u64) -> FioFile {
        let path = target.path.display().to_string();
        let file = match target.is_made {
            true => format!("{} --unlink=1", quoted(&format!("--filename={}/fio.tmp", fio_name(&path)))),
            false => quoted(&format!("--filename={}", fio_name(&path))).into_owned(),
        };
        FioFile { options: format!("{file} --size={bytes}") }
    }

    pub(super) fn job(&self, name: &str, options: &str) -> String {
        format!("fio --name={name} {} {options}", self.options)
    }
}

/// fio takes a colon as the start of the next file.
fn fio_name(path: &str) -> String {
    path.replace(':', "\\:")
}

/// As the shell takes it for one word.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=+,@%".contains(letter);
    if word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line that is copied names one file, whatever its name.
    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("--filename=./fio.tmp"), "--filename=./fio.tmp");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(fio_name("a:b"), "a\\:b");
    }
}
