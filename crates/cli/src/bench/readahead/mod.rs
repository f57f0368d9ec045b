//! Readahead: reads a cold file in all kinds of orders, through the kernel's page cache and by headwater.
//!
//! ```text
//!   rounds × patterns × readers: make cold ─► child (bench-row) ─► same bytes? ─► medians ─► table, JSON
//! ```
//!
//! Owns: readers, which rows there are, the comparison of what they read.
//! Does not own: orders of reads (`patterns`), reading (`row`), the words (`report`).

mod patterns;
mod report;
mod row;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::time::Duration;

use headwater::ReadaheadPolicy;

pub(super) use row::measure as measure_row;

use super::file::Target;
use super::suite::{self, Findings, Task};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::EngineArguments;
use crate::shared::readahead;
use crate::shared::storage::{Storage, read_ahead_setting};
use os_display::Quotable;
use patterns::Pattern;
use report::Report;
use row::Measurement;

pub(super) struct Plan {
    /// Of the file, at most.
    pub(super) bytes_max: u64,
    /// Reads of patterns that touch places of the file.
    pub(super) places: u64,
    pub(super) rounds: u32,
    /// For one measurement of one row.
    pub(super) limit: Duration,
    pub(super) engine: EngineArguments,
    /// headwater's rows.
    pub(super) policies: Vec<ReadaheadPolicy>,
}

impl Plan {
    fn readers(&self) -> Vec<Reader> {
        let ours = self.policies.iter().copied().map(Reader::Headwater);
        [Reader::Kernel, Reader::Kernel128].into_iter().chain(ours).collect()
    }
}

/// Who reads, and so who reads ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reader {
    /// `pread` through the page cache, readahead as the device is set.
    Kernel,
    /// The same with the readahead that most systems have.
    Kernel128,
    /// `headwater::File::read_at`.
    Headwater(ReadaheadPolicy),
}

impl Reader {
    /// Stable, for the child's command line and the JSON: the policy by default has no name of its own.
    fn id(self) -> String {
        match self {
            Reader::Kernel => "kernel".to_owned(),
            Reader::Kernel128 => "kernel-128k".to_owned(),
            Reader::Headwater(ReadaheadPolicy::Adaptive) => "headwater".to_owned(),
            Reader::Headwater(policy) => format!("headwater-{}", readahead::name(policy)),
        }
    }

    fn of_id(id: &str) -> Option<Reader> {
        match id {
            "kernel" => Some(Reader::Kernel),
            "kernel-128k" => Some(Reader::Kernel128),
            "headwater" => Some(Reader::Headwater(ReadaheadPolicy::Adaptive)),
            _ => id
                .strip_prefix("headwater-")
                .and_then(|name| readahead::parse(name).ok())
                .map(Reader::Headwater),
        }
    }
}

/// A pattern by one reader, and what it took, a measurement a round.
struct Outcome {
    pattern: Pattern,
    reader: Reader,
    measurements: Vec<Measurement>,
    stayed_warm: bool,
}

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let mut contest = Contest::new(plan, target);
    let progress = suite::progress_bar(u64::from(plan.rounds) * contest.outcomes.len() as u64);
    for round in 0..plan.rounds {
        for index in suite::order(contest.outcomes.len(), round) {
            let outcome = &contest.outcomes[index];
            progress.set_message(format!("{}, {}", outcome.pattern.name(), outcome.reader.id()));
            progress.tick();
            contest.measure(index, round)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let report = Report::new(plan, target, contest.bytes, &contest.outcomes, contest.skipped);
    Ok(Findings::new(report.text(), &report, report.section()))
}

struct Contest<'a> {
    plan: &'a Plan,
    target: &'a Target,
    bytes: u64,
    outcomes: Vec<Outcome>,
    /// A reader that cannot take part, and why.
    skipped: Option<(Reader, String)>,
    /// By pattern, round and number of reads: the sum, and whose.
    sums: HashMap<(&'static str, u32, u64), (u64, Reader)>,
}

impl<'a> Contest<'a> {
    fn new(plan: &'a Plan, target: &'a Target) -> Contest<'a> {
        let skipped = reason_to_skip_128(target).map(|reason| (Reader::Kernel128, reason));
        let readers = plan
            .readers()
            .into_iter()
            .filter(|&reader| skipped.as_ref().is_none_or(|(absent, _)| *absent != reader));
        let readers: Vec<Reader> = readers.collect();
        let outcome =
            |pattern, &reader| Outcome { pattern, reader, measurements: Vec::new(), stayed_warm: false };
        let patterns = Pattern::ALL.into_iter();
        let outcomes =
            patterns.flat_map(|pattern| readers.iter().map(move |reader| outcome(pattern, reader)));
        let (outcomes, bytes) = (outcomes.collect(), target.bytes.min(plan.bytes_max));
        Contest { plan, target, bytes, outcomes, skipped, sums: HashMap::new() }
    }

    fn measure(&mut self, index: usize, round: u32) -> Result<(), String> {
        let was_cold = self.target.make_cold();
        let outcome = &self.outcomes[index];
        let (pattern, reader, plan) = (outcome.pattern, outcome.reader, self.plan);
        let task = Task {
            suite: RowSuite::Readahead,
            row: &format!("{}:{}", pattern.id(), reader.id()),
            bytes: self.bytes,
            limit: plan.limit,
            places: plan.places,
            seed: round.into(),
            engine: &plan.engine,
        };
        let measured: Measurement = task.run(self.target)?;
        self.compare_sums(pattern, reader, round, &measured)?;
        let outcome = &mut self.outcomes[index];
        outcome.stayed_warm |= !was_cold;
        outcome.measurements.push(measured);
        Ok(())
    }

    /// All readers read the same bytes, or the table is worthless.
    fn compare_sums(
        &mut self,
        pattern: Pattern,
        reader: Reader,
        round: u32,
        measured: &Measurement,
    ) -> Result<(), String> {
        for &(reads, sum) in &measured.sums {
            let first = *self.sums.entry((pattern.id(), round, reads)).or_insert((sum, reader));
            if first.0 != sum {
                let (one, other, name) = (first.1.id(), reader.id(), pattern.name());
                return Err(format!(
                    "{one} and {other} read different bytes ({name}): has the file changed?"
                ));
            }
        }
        Ok(())
    }
}

fn reason_to_skip_128(target: &Target) -> Option<String> {
    let path = target.input_path();
    if Storage::of(&path).read_ahead_kb == Some(READ_AHEAD_KB) {
        return Some("the device is set to it".to_owned());
    }
    match read_ahead_setting(&path) {
        None => Some("the device's read_ahead_kb is not to be found".to_owned()),
        Some(setting) => {
            let opened = OpenOptions::new().write(true).open(&setting);
            opened.err().map(|error| format!("{}: {error}", setting.maybe_quote()))
        }
    }
}

/// The default of Linux (`VM_READAHEAD_PAGES`).
const READ_AHEAD_KB: u64 = 128;
