//! Report: the table, the JSON and the drawing of a nop suite.
//!
//! Owns: the words and columns, what is written where.
//! Does not own: the measurements, how a drawing is made (`plot`).

mod figures;

use serde::Serialize;

use super::batches::Measured;
use super::latency::Percentiles;
use super::{Plan, RingUse, Row, plot};
use crate::bench::host::Machine;

/// Of the section.
pub(super) const TITLE: &str = "The ring alone";

/// A row and what it took.
pub(super) struct Outcome {
    pub(super) row: Row,
    pub(super) measured: Measured,
}

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Machine,
    seconds: f64,
    affinity: String,
    rows: Vec<Line>,
    #[serde(skip)]
    outcomes: Vec<Outcome>,
}

#[derive(Serialize)]
struct Line {
    id: String,
    name: String,
    ring: &'static str,
    threads: u32,
    entries: u32,
    batch: u32,
    batches: u64,
    batches_per_s: f64,
    #[serde(flatten)]
    latency: Percentiles,
    enters_per_batch: f64,
}

impl Report {
    pub(super) fn new(outcomes: Vec<Outcome>, plan: &Plan) -> Report {
        Report {
            suite: "nop",
            host: Machine::here(),
            seconds: plan.seconds.as_secs_f64(),
            affinity: plan.affinity.to_string(),
            rows: outcomes.iter().map(line).collect(),
            outcomes,
        }
    }

    /// The drawing of the latencies.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn plot(&self) -> Result<String, String> {
        plot::svg(&self.outcomes)
    }

    pub(super) fn text(&self) -> String {
        let what = format!(
            "batches of {} requests that do nothing, {} s a row, affinity {}; latencies of a batch in µs",
            self.rows.first().map_or(0, |row| row.batch),
            self.seconds,
            self.affinity
        );
        let mut lines = vec![self.host.words(), what, String::new()];
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        lines.push(format!(
            "{:width$}  {:>10}  {:>9}  {:>7}  {:>7}  {:>7}  {:>7}  {:>8}  {:>8}  {:>8}  {:>8}  {:>6}",
            "threads × entries",
            "batches",
            "batches/s",
            "mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
            "enters"
        ));
        lines.extend(self.rows.iter().map(|row| row.text(width)));
        lines.push(String::new());
        lines.extend(self.verdict());
        lines.join("\n") + "\n"
    }

    fn verdict(&self) -> Option<String> {
        let cost_ns = |row: &Line| row.latency.mean_us * 1e3 / f64::from(row.batch);
        let best = self.rows.iter().min_by(|left, right| cost_ns(left).total_cmp(&cost_ns(right)))?;
        Some(format!("cheapest: {} with {:.0} ns a request", best.name, cost_ns(best)))
    }
}

impl Line {
    fn text(&self, width: usize) -> String {
        let latency = &self.latency;
        format!(
            "{:width$}  {:>10}  {:>9.0}  {:>7.2}  {:>7.2}  {:>7.2}  {:>7.2}  {:>8.1}  {:>8.1}  {:>8.1}  \
             {:>8.0}  {:>6.2}",
            self.name,
            self.batches,
            self.batches_per_s,
            latency.mean_us,
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p99_9_us,
            latency.p99_99_us,
            latency.p99_999_us,
            latency.max_us,
            self.enters_per_batch,
        )
    }
}

fn line(outcome: &Outcome) -> Line {
    let (row, measured) = (outcome.row, &outcome.measured);
    let batches = measured.latencies.count();
    Line {
        id: row.id(),
        name: row.name(),
        ring: match row.sharing {
            RingUse::AnyThread => "any-thread",
            RingUse::Local => "local",
        },
        threads: row.shape.threads,
        entries: row.shape.entries,
        batch: row.shape.batch,
        batches,
        batches_per_s: batches as f64 / measured.elapsed.as_secs_f64(),
        latency: measured.latencies.percentiles(),
        enters_per_batch: measured.enters as f64 / batches.max(1) as f64,
    }
}
