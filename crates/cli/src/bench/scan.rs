//! Scan: reads one cold file in every way there is, and says what each costs.
//!
//! ```text
//!   file ─► rounds × rows: make cold ─► child (bench-row) ─► measurement ─► medians ─► table, JSON
//! ```
//!
//! Rounds go through the rows forwards and backwards in turn, so that no row always follows the same other one.
//!
//! Owns: the order, the children, the comparison of the sums.
//! Does not own: the loops (`row`), the words (`report`).

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater::io::device_polls;
use indicatif::{ProgressBar, ProgressStyle};

use super::check_output;
use super::file::{Target, Wanted};
use super::host::Host;
use super::report::{Outcome, Report};
use super::row::{Measurement, SUM_BYTES};
use super::rows::{self, BUFFERED_ID, IDLE_ID, Method, Row};
use crate::args::BenchCommon;

pub(super) struct Plan {
    pub(super) wanted: Wanted,
    pub(super) rounds: u32,
    /// For one measurement of one row.
    pub(super) limit: Duration,
    pub(super) common: BenchCommon,
}

pub(super) fn run(plan: &Plan) -> Result<(), String> {
    if let Some(path) = &plan.common.json {
        check_output(path)?;
    }
    let progress = progress_bar();
    let target = Target::prepare(&plan.wanted, &mut |written_bytes| {
        progress.set_message(format!("writing the file: {} MiB", written_bytes >> 20));
        progress.tick();
    })?;
    let mut scan = Scan::new(plan, &target, progress);
    for round in 0..plan.rounds {
        scan.round(round)?;
    }
    scan.progress.finish_and_clear();
    let report = scan.into_report();
    report.print().map_err(|error| format!("failed to write to standard output: {error}"))?;
    match &plan.common.json {
        Some(path) => {
            report.write(path).map_err(|error| format!("failed to write {}: {error}", path.display()))
        }
        None => Ok(()),
    }
}

fn progress_bar() -> ProgressBar {
    // Hidden when standard error is no terminal. Without colours, so NO_COLOR asks for nothing else.
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left");
    ProgressBar::new(0).with_style(style.expect("the template is well-formed"))
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
    fn new(plan: &'a Plan, target: &'a Target, progress: ProgressBar) -> Scan<'a> {
        let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
        for row in rows::all(&plan.common.engine) {
            match reason_to_skip(&row, target) {
                None => outcomes.push(Outcome::new(row)),
                Some(reason) => skipped.push((row, reason)),
            }
        }
        progress.set_length(u64::from(plan.rounds) * outcomes.len() as u64);
        progress.set_position(0);
        progress.reset_eta();
        let (sums, idle_rss_kib, driver) = (HashMap::new(), 0, None);
        Scan { plan, target, outcomes, skipped, sums, idle_rss_kib, driver, progress }
    }

    fn round(&mut self, round: u32) -> Result<(), String> {
        self.idle_rss_kib = self.idle_rss_kib.max(self.child(IDLE_ID, self.target.bytes)?.peak_rss_kib);
        let mut order: Vec<usize> = (0..self.outcomes.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
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
        let failed = |error: String| format!("failed to measure {row_id}: {error}");
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let descriptor = self.target.descriptor().map_err(|error| failed(error.to_string()))?;
        let output = Command::new(program)
            .args(["bench-row", "--row", row_id, "--bytes", &bytes.to_string()])
            .args(["--limit-ms", &self.plan.limit.as_millis().to_string()])
            .args(self.plan.common.engine.to_arguments())
            .stdin(Stdio::from(descriptor))
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().trim_start_matches("headwater: ");
            return Err(if said.is_empty() { failed(output.status.to_string()) } else { said.to_owned() });
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
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
