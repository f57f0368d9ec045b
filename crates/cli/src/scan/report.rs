//! Report: the lines and errors of files, in their order, and the summary.
//!
//! Owns: lines, error texts, counts, the JSON, whether the scan succeeded.
//! Does not own: reading, the order of files (`crew`).

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use os_display::Quotable;
use serde::Serialize;

use super::arguments::ScanFilesArguments;
use super::candidates::{Candidates, Sums};
use super::contents::{Failure, Found};
use super::extents::Unreadable;
use super::lines::{End, Target, sum_line, verdict_line};
use super::output::Output;
use super::progress::Progress;
use crate::shared::complain::complain;
use crate::shared::json_path;
use crate::shared::output::{self, JsonTo, unwritten};
use crate::shared::units::readable;

/// The outcome of one file.
pub(super) struct Outcome {
    pub(super) path: PathBuf,
    pub(super) expected: Option<String>,
    pub(super) result: Result<Found, Failure>,
}

pub(super) struct Report<'a> {
    arguments: &'a ScanFilesArguments,
    candidates: &'a Candidates,
    progress: &'a Progress,
    output: Output,
    target: Target,
    totals: Totals,
    /// The first error of standard output, where a file takes the results all the same. Nothing is printed after it.
    unprinted: Option<io::Error>,
    /// Files of the JSON; empty without --json.
    entries: Vec<Entry>,
}

#[derive(Serialize, Default, Clone, Copy)]
pub(super) struct Totals {
    /// Files read to their ends.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Files not opened, or not read to their ends.
    pub(super) failed_files: u64,
    /// With --check: files whose sum differs.
    pub(super) mismatched_files: u64,
    pub(super) unreadable_extents: u64,
    pub(super) unreadable_bytes: u64,
    /// Symbolic links and special files below directories.
    pub(super) skipped: u64,
    pub(super) seconds: f64,
    pub(super) bytes_per_second: f64,
}

/// A file in the JSON.
#[derive(Serialize)]
struct Entry {
    #[serde(flatten, serialize_with = "json_path::as_path")]
    path: PathBuf,
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<String>,
    /// Of which one is that of the algorithm, once this is known.
    #[serde(skip)]
    sums: Sums,
    #[serde(skip_serializing_if = "Option::is_none")]
    agrees: Option<bool>,
    unreadable: Vec<Extent>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Extent {
    offset_bytes: u64,
    length_bytes: u64,
    error: String,
}

#[derive(Serialize)]
struct Document<'a> {
    algorithm: Option<&'static str>,
    files: &'a [Entry],
    summary: Totals,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        arguments: &'a ScanFilesArguments,
        candidates: &'a Candidates,
        progress: &'a Progress,
    ) -> Report<'a> {
        let (output, totals, entries) = (Output::new(), Totals::default(), Vec::new());
        let target = if io::stdout().is_terminal() { Target::Terminal } else { Target::File };
        Report { arguments, candidates, progress, output, target, totals, unprinted: None, entries }
    }

    /// Reports the next file.
    ///
    /// # Errors
    /// What writing to standard output reports, unless a file takes the results; that the sums [are refused](Candidates::refused).
    pub(super) fn tell(&mut self, outcome: Outcome) -> io::Result<()> {
        let agrees = self.count(&outcome);
        if let Some(text) = self.candidates.refused() {
            return Err(io::Error::other(text));
        }
        self.complain(&outcome);
        let line = self.line(&outcome, agrees);
        if self.arguments.json.to() != JsonTo::Nowhere {
            self.entries.push(Entry::new(&outcome, agrees));
        }
        line.map_or(Ok(()), |line| self.print(|output| output.push(&line)))
    }

    /// # Errors
    /// What writing to standard output reports, unless a file takes the results.
    fn print(&mut self, write: impl FnOnce(&mut Output) -> io::Result<()>) -> io::Result<()> {
        if self.unprinted.is_some() {
            return Ok(());
        }
        let output = &mut self.output;
        let printed = self.progress.beside(|| write(output));
        if matches!(self.arguments.json.to(), JsonTo::File(_)) {
            self.unprinted = printed.err();
            return Ok(());
        }
        printed
    }

    /// Counts a file. Returns whether its sum is the expected one; `None` without an expectation, or after an error.
    fn count(&mut self, outcome: &Outcome) -> Option<bool> {
        let totals = &mut self.totals;
        let Ok(found) = &outcome.result else {
            totals.failed_files += 1;
            return None;
        };
        totals.files += 1;
        totals.bytes += found.bytes;
        totals.unreadable_extents += found.unreadable.len() as u64;
        totals.unreadable_bytes += found.unreadable.iter().map(|extent| extent.range.len()).sum::<u64>();
        let expected = outcome.expected.as_ref();
        let agrees = expected.map(|expected| self.candidates.agrees(&found.sums, expected));
        totals.mismatched_files += u64::from(agrees == Some(false));
        agrees
    }

    fn complain(&self, outcome: &Outcome) {
        let say = |text: String| self.progress.beside(|| complain(text));
        match &outcome.result {
            Ok(found) => found.unreadable.iter().for_each(|extent| say(tell_extent(outcome, extent))),
            Err(failure) => say(tell_failure(outcome, failure)),
        }
    }

    /// The line of a file on standard output, if it has one.
    fn line(&self, outcome: &Outcome, agrees: Option<bool>) -> Option<Vec<u8>> {
        if !self.arguments.json.to().wants_text() {
            return None;
        }
        if self.arguments.check {
            let verdict = match (&outcome.result, agrees) {
                (Ok(_), Some(true)) if self.arguments.quiet => return None,
                (Ok(_), Some(true)) => "OK",
                (Ok(_), _) => "FAILED",
                (Err(_), _) => "FAILED open or read",
            };
            return (!self.arguments.status).then(|| verdict_line(&outcome.path, verdict, self.target));
        }
        let (_, sum) = outcome.result.as_ref().ok()?.sums.first()?;
        let end = if self.arguments.zero { End::Zero } else { End::LineFeed };
        Some(sum_line(sum, &outcome.path, end, self.target))
    }

    /// Prints the summary, and writes the JSON. `None` if the reader of the output has gone, and nothing else takes results.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn finish(mut self, skipped: u64, elapsed: Duration) -> Result<Option<Totals>, String> {
        match self.print(Output::flush) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(None),
            flushed => flushed.map_err(|error| unwritten(&error))?,
        }
        self.totals.skipped = skipped;
        self.totals.seconds = elapsed.as_secs_f64();
        self.totals.bytes_per_second = self.totals.bytes as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
        let (json, algorithm) = (self.arguments.json.to(), self.candidates.first());
        let has_summary = json.wants_text() && algorithm.is_none();
        let printed = if has_summary { output::print(&self.totals.text()) } else { Ok(()) };
        for entry in &mut self.entries {
            entry.sum = self.candidates.sum_in(std::mem::take(&mut entry.sums));
        }
        let document = Document {
            algorithm: algorithm.map(|algorithm| algorithm.name()),
            files: &self.entries,
            summary: self.totals,
        };
        json.write_results(&document)?;
        let unprinted = self.unprinted.filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        unprinted.map_or(printed, |error| Err(unwritten(&error)))?;
        Ok(Some(self.totals))
    }
}

impl Totals {
    /// Whether all files were read, and have the expected sums.
    pub(super) fn is_success(&self) -> bool {
        self.failed_files + self.mismatched_files + self.unreadable_extents == 0
    }

    fn text(&self) -> String {
        let files = |count: u64| format!("{count} file{}", if count == 1 { "" } else { "s" });
        let mut lines = vec![
            format!("{:<12}{}", "read", files(self.files)),
            format!("{:<12}{} ({} bytes)", "bytes", readable(self.bytes), self.bytes),
            format!("{:<12}{:.2} s, {}/s", "time", self.seconds, readable(self.bytes_per_second as u64)),
        ];
        let extents = match self.unreadable_extents {
            0 => "nothing".to_owned(),
            count => format!(
                "{} in {count} extent{}",
                readable(self.unreadable_bytes),
                if count == 1 { "" } else { "s" }
            ),
        };
        lines.push(format!("{:<12}{extents}", "unreadable"));
        if self.failed_files > 0 {
            lines.push(format!("{:<12}{}", "failed", files(self.failed_files)));
        }
        if self.skipped > 0 {
            lines.push(format!("{:<12}{} symbolic links and special files", "skipped", self.skipped));
        }
        lines.join("\n") + "\n"
    }
}

impl Entry {
    fn new(outcome: &Outcome, agrees: Option<bool>) -> Entry {
        let path = outcome.path.clone();
        match &outcome.result {
            Ok(found) => Entry {
                path,
                bytes: Some(found.bytes),
                sum: None,
                sums: found.sums.clone(),
                agrees,
                unreadable: found.unreadable.iter().map(Extent::new).collect(),
                error: None,
            },
            Err(failure) => {
                let error = Some(tell_failure(outcome, failure));
                Entry {
                    path,
                    bytes: None,
                    sum: None,
                    sums: Vec::new(),
                    agrees,
                    unreadable: Vec::new(),
                    error,
                }
            }
        }
    }
}

impl Extent {
    fn new(extent: &Unreadable) -> Extent {
        Extent {
            offset_bytes: extent.range.start,
            length_bytes: extent.range.len(),
            error: said(&extent.error),
        }
    }
}

fn tell_extent(outcome: &Outcome, extent: &Unreadable) -> String {
    let (length, start) = (extent.range.len(), extent.range.start);
    format!(
        "{}: unreadable: {length} bytes at offset {start}: {}",
        outcome.path.maybe_quote(),
        said(&extent.error)
    )
}

/// The text of an error without `(os error N)`, which the standard library adds.
fn said(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn tell_failure(outcome: &Outcome, failure: &Failure) -> String {
    let path = outcome.path.maybe_quote();
    match failure {
        Failure::Open(error) => format!("failed to open {path}: {error}"),
        Failure::Read(error) => format!("failed to read {path}: {error}"),
        Failure::ReadAt(offset, error) => format!("failed to read {path} at byte {offset}: {error}"),
    }
}
