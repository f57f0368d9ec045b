//! Table: what was measured of a shape, for people and as JSON.
//!
//! Owns: the words and columns.
//! Does not own: the measurements, the bars (promises).

use std::io::{self, Write};

use serde::Serialize;

use super::latency::NopSample;
use super::promises::{self, Verdict};
use super::{Arm, Options, Shape};
use crate::tools::name_of;

#[derive(Serialize)]
pub(super) struct Table {
    #[serde(flatten)]
    pub(super) shape: Shape,
    pub(super) lines: Vec<Line>,
}

#[derive(Serialize)]
pub(super) struct Line {
    pub(super) arm: Arm,
    #[serde(flatten)]
    pub(super) sample: NopSample,
    /// A batch; `None` where they cannot be counted.
    pub(super) syscalls: Option<f64>,
}

impl Table {
    pub(super) fn of(&self, arm: Arm) -> Option<&NopSample> {
        self.lines.iter().find(|line| line.arm == arm).map(|line| &line.sample)
    }

    pub(super) fn print(&self, options: &Options) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let Shape { threads, entries, batch } = self.shape;
        writeln!(
            out,
            "\nthreads x entries: {threads} x {entries}, batches of {batch}; {} s x {} rounds, medians; affinity {}; \
             us a batch",
            options.seconds, options.rounds, options.affinity
        )?;
        writeln!(
            out,
            "{:<18} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8}",
            "arm",
            "batches",
            "mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
            "enters",
            "syscalls"
        )?;
        self.lines.iter().try_for_each(|line| writeln!(out, "{}", line.text()))?;
        writeln!(out)
    }
}

impl Line {
    fn text(&self) -> String {
        let sample = &self.sample;
        let known = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.2}"));
        format!(
            "{:<18} {:>9.0} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.1} {:>8.1} {:>8.1} {:>8.0} {:>7} {:>8}",
            name_of(self.arm),
            sample.batches,
            sample.mean_us,
            sample.p50_us,
            sample.p90_us,
            sample.p99_us,
            sample.p99_9_us,
            sample.p99_99_us,
            sample.p99_999_us,
            sample.max_us,
            known(sample.enters),
            known(self.syscalls),
        )
    }
}

#[derive(Serialize)]
struct Report<'a> {
    suite: &'static str,
    seconds: f64,
    rounds: usize,
    affinity: String,
    tables: &'a [Table],
    verdicts: Vec<Verdict>,
}

pub(super) fn json(options: &Options, tables: &[Table]) -> io::Result<String> {
    let report = Report {
        suite: "nop",
        seconds: options.seconds,
        rounds: options.rounds,
        affinity: options.affinity.to_string(),
        tables,
        verdicts: tables.iter().flat_map(promises::verdicts).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)?)
}
