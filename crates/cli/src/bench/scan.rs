//! Scan: reads one cold file in every way there is, and says what each costs.
//!
//! ```text
//!   file ─► rounds × rows: make cold ─► child (bench-row) ─► measurement ─► medians ─► table, JSON
//! ```
//!
//! Owns: what is measured on which part of the file, the comparison of the sums.
//! Does not own: order and children (`suite`), the loops (`row`), the words (`report`).

use std::collections::HashMap;
use std::time::Duration;

use headwater::testing::device_polls;
use indicatif::ProgressBar;

use super::file::Target;
use super::host::Host;
use super::report::{Outcome, Report};
use super::row::{Measurement, SUM_BYTES};
use super::rows::{self, BUFFERED_ID, IDLE_ID, Method, Row};
use super::suite::{self, Findings, Task};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::EngineArguments;

pub(super) struct Plan {
    pub(super) rounds: u32,
    /// For one measurement of one row.
    pub(super) limit: Duration,
    pub(super) engine: EngineArguments,
}

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let mut scan = Scan::new(plan, target);
    for round in 0..plan.rounds {
        scan.round(round)?;
    }
    scan.progress.finish_and_clear();
    let report = scan.into_report();
    Ok(Findings::new(report.text(), &report, report.section()))
}

struct Scan<'a> {
    plan: &'a Plan,
    target: &'a Target,
    outcomes: Vec<Outcome>,
    skipped: Vec<(Row, String)>,
    sums: HashMap<u64, (u64, String)>,
    idle_rss_kib: u64,
    driver: Option<String>,
    progress: ProgressBar,
}

impl<'a> Scan<'a> {
    fn new(plan: &'a Plan, target: &'a Target) -> Scan<'a> {
        let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
        for row in rows::all(&plan.engine) {
            match reason_to_skip(&row, target) {
                None => outcomes.push(Outcome::new(row)),
                Some(reason) => skipped.push((row, reason)),
            }
        }
        let progress = suite::progress_bar(u64::from(plan.rounds) * outcomes.len() as u64);
        let (sums, idle_rss_kib, driver) = (HashMap::new(), 0, None);
        Scan { plan, target, outcomes, skipped, sums, idle_rss_kib, driver, progress }
    }

    fn round(&mut self, round: u32) -> Result<(), String> {
        self.idle_rss_kib = self.idle_rss_kib.max(self.child(IDLE_ID, self.target.bytes)?.peak_rss_kib);
        for index in suite::order(self.outcomes.len(), round) {
            self.progress.set_message(self.outcomes[index].row.name.clone());
            self.progress.tick();
            self.measure(index)?;
            self.progress.inc(1);
        }
        Ok(())
    }

    fn measure(&mut self, index: usize) -> Result<(), String> {
        let was_cold = self.target.make_cold();
        let row = self.outcomes[index].row.clone();
        let measured = self.child(&row.id, self.bytes_for(row.method))?;
        self.compare_sums(&row, &measured)?;
        self.driver = measured.driver.clone().or(self.driver.take());
        let outcome = &mut self.outcomes[index];
        outcome.stayed_warm |= !was_cold;
        outcome.measurements.push(measured);
        Ok(())
    }

    /// A mapping cannot stop when time is up, so it gets as much as buffered reads manage within it.
    fn bytes_for(&self, method: Method) -> u64 {
        let buffered = self.outcomes.iter().find(|outcome| outcome.row.id == BUFFERED_ID);
        match (method, buffered.and_then(|outcome| outcome.measurements.last())) {
            (Method::Mapped(_), Some(measured)) if measured.bytes < self.target.bytes => {
                measured.bytes.next_multiple_of(SUM_BYTES).min(self.target.bytes)
            }
            _ => self.target.bytes,
        }
    }

    fn child(&self, row_id: &str, bytes: u64) -> Result<Measurement, String> {
        let (suite, limit, engine) = (RowSuite::Scan, self.plan.limit, &self.plan.engine);
        Task { suite, row: row_id, bytes, limit, places: u64::MAX, seed: 0, engine }.run(self.target)
    }

    /// All rows read the same bytes, or the table is worthless.
    fn compare_sums(&mut self, row: &Row, measured: &Measurement) -> Result<(), String> {
        for &(offset_bytes, sum) in &measured.sums {
            let first = self.sums.entry(offset_bytes).or_insert_with(|| (sum, row.name.clone()));
            if first.0 != sum {
                return Err(format!(
                    "{} and {} read different bytes before offset {offset_bytes}: has the file changed?",
                    first.1, row.name
                ));
            }
        }
        Ok(())
    }

    fn into_report(self) -> Report {
        let mut host = Host::of(&self.target.path);
        host.driver = self.driver;
        Report::new(host, self.target, self.outcomes, &self.skipped, self.idle_rss_kib, self.plan.rounds)
    }
}

fn reason_to_skip(row: &Row, target: &Target) -> Option<String> {
    if row.method.is_direct()
        && let Some(refusal) = &target.direct_refusal
    {
        return Some(refusal.clone());
    }
    let polls = matches!(row.method, Method::Headwater { polls: true, .. });
    let device_polls = device_polls(&target.path).unwrap_or(false);
    (polls && !device_polls).then(|| "the device does not complete polled I/O".to_owned())
}
