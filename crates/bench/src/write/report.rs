//! Report: lines and verdicts as they come, printed and kept for JSON.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::{Figures, Row};
use headwater_measure::verdict::{Limit, Verdict, detail, skipped};

#[derive(Default, Serialize)]
pub(super) struct Report {
    lines: Vec<Line>,
    verdicts: Vec<Verdict>,
    skipped: Vec<Skipped>,
}

/// Medians of a contender.
#[derive(Serialize)]
struct Line {
    row: Row,
    contender: String,
    size_bytes: u64,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
struct Skipped {
    title: String,
    reason: String,
}

#[derive(Serialize)]
struct Document<'a> {
    suite: &'static str,
    rounds: u32,
    seconds: f64,
    shrink: u64,
    #[serde(flatten)]
    report: &'a Report,
}

impl Report {
    /// `words` says what matters of the figures.
    pub(super) fn line(
        &mut self,
        row: Row,
        contender: &str,
        size_bytes: u64,
        figures: Figures,
        words: &str,
    ) -> io::Result<()> {
        self.lines.push(Line { row, contender: contender.to_owned(), size_bytes, figures });
        detail(&format!("{contender:<44} {words}"))
    }

    pub(super) fn verdict(&mut self, title: &str, measured: f64, bar: Limit) -> io::Result<()> {
        let verdict = Verdict::new(title.to_owned(), measured, bar);
        verdict.print()?;
        self.verdicts.push(verdict);
        Ok(())
    }

    pub(super) fn skipped(&mut self, title: &str, reason: &dyn std::fmt::Display) -> io::Result<()> {
        self.skipped.push(Skipped { title: title.to_owned(), reason: reason.to_string() });
        skipped(title, reason)
    }

    pub(super) fn write_json(&self, path: &Path, rounds: u32, seconds: f64, shrink: u64) -> io::Result<()> {
        let document = Document { suite: "write", rounds, seconds, shrink, report: self };
        std::fs::write(path, serde_json::to_string_pretty(&document)? + "\n")
    }
}
