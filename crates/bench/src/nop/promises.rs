//! Promises: which arm is held against which, and the bar.
//!
//! Owns: the pairs, the bars, the words for them.
//! Does not own: what was measured (table).

use std::io;

use serde::Serialize;

use super::Arm;
use super::latency::NopSample;
use super::table::Table;
use crate::tools::name_of;
use crate::verdict::{Bar, detail, report};

/// A promise, and what was measured.
#[derive(Serialize)]
pub(super) struct Verdict {
    title: String,
    measured: f64,
    /// `None` for what is only told.
    bar: Option<Bar>,
    is_met: bool,
}

struct Promise {
    ours: Arm,
    theirs: Arm,
    measure: Measure,
    bar: Option<Bar>,
}

#[derive(Clone, Copy)]
enum Measure {
    Batches,
    /// The time that 999 of 1000 batches stay within.
    Tail,
}

impl Measure {
    fn of(self, sample: &NopSample) -> f64 {
        match self {
            Measure::Batches => sample.batches,
            Measure::Tail => sample.p99_9_us,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Measure::Batches => "batches",
            Measure::Tail => "p99.9 of a batch",
        }
    }
}

pub(super) fn judge(table: &Table) -> io::Result<()> {
    for verdict in verdicts(table) {
        match verdict.bar {
            Some(bar) => report(&verdict.title, verdict.measured, bar)?,
            None => detail(&format!("{:<64} {:>9.3}", verdict.title, verdict.measured))?,
        }
    }
    Ok(())
}

/// Of those promises whose arms have run.
pub(super) fn verdicts(table: &Table) -> Vec<Verdict> {
    let promises = if table.shape.threads == 1 { &ONE_THREAD[..] } else { &MANY_THREADS };
    promises.iter().filter_map(|promise| promise.verdict(table)).collect()
}

impl Promise {
    fn verdict(&self, table: &Table) -> Option<Verdict> {
        let (ours, theirs) = (table.of(self.ours)?, table.of(self.theirs)?);
        let measured = self.measure.of(ours) / self.measure.of(theirs);
        let (ours, theirs) = (name_of(self.ours), name_of(self.theirs));
        let (threads, entries) = (table.shape.threads, table.shape.entries);
        Some(Verdict {
            title: format!("{}, {threads} x {entries}, {ours} : {theirs}", self.measure.name()),
            measured,
            bar: self.bar,
            is_met: self.bar.is_none_or(|bar| bar.is_met(measured)),
        })
    }
}

const fn batches(ours: Arm, theirs: Arm, at_least: f64) -> Promise {
    Promise { ours, theirs, measure: Measure::Batches, bar: Some(Bar::AtLeast(at_least)) }
}

const fn tail(ours: Arm, theirs: Arm, at_most: f64) -> Promise {
    Promise { ours, theirs, measure: Measure::Tail, bar: Some(Bar::AtMost(at_most)) }
}

const fn told(ours: Arm, theirs: Arm) -> Promise {
    Promise { ours, theirs, measure: Measure::Batches, bar: None }
}

/// What bookkeeping, safe cancellation and sharing may cost beyond the bare ring.
const ONE_THREAD: [Promise; 10] = [
    batches(Arm::Local, Arm::Raw, 0.75),
    told(Arm::Local, Arm::RawDefer),
    batches(Arm::Local, Arm::TokioUring, 3.0),
    told(Arm::Local, Arm::TokioUringGroups),
    batches(Arm::Local, Arm::Rio, 12.0),
    batches(Arm::AnyThread, Arm::Raw, 0.5),
    told(Arm::AnyThread, Arm::RawDefer),
    batches(Arm::AnyThread, Arm::TokioUring, 2.0),
    told(Arm::AnyThread, Arm::TokioUringGroups),
    batches(Arm::AnyThread, Arm::Rio, 8.0),
];

/// One handle for all threads against a ring for each.
const MANY_THREADS: [Promise; 8] = [
    batches(Arm::AnyThread, Arm::Raw, 0.6),
    told(Arm::AnyThread, Arm::RawDefer),
    batches(Arm::AnyThread, Arm::TokioUring, 2.4),
    told(Arm::AnyThread, Arm::TokioUringGroups),
    batches(Arm::AnyThread, Arm::Rio, 15.0),
    tail(Arm::AnyThread, Arm::TokioUring, 0.25),
    tail(Arm::AnyThread, Arm::Rio, 0.25),
    told(Arm::Local, Arm::Raw),
];
