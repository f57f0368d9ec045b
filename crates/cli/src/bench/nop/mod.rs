//! Nop: what the ring itself costs, measured with batches of requests that do nothing.
//!
//! ```text
//!   rows ─► threads, pinned if asked ─► push a batch, finish it ─► a histogram each ─► merged ─► table, JSON, drawing
//! ```
//!
//! Owns: which rows there are, their order, what is said when io_uring is refused.
//! Does not own: the measured loop (`batches`), the words and columns (`report`).

pub(crate) mod affinity;
mod batches;
mod latency;
mod plot;
mod report;

use std::io;
use std::time::Duration;

use affinity::Affinity;

use indicatif::{ProgressBar, ProgressStyle};

use super::check_results;
use super::suite::{self, Findings};
use crate::bench::arguments::NopArguments;
use crate::shared::output;
use batches::Measured;
use report::{Outcome, Report};

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    sharing: RingUse,
    shape: Shape,
}

/// Who uses a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RingUse {
    /// All threads share one.
    AnyThread,
    /// Each thread has its own.
    Local,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    threads: u32,
    /// Of each ring.
    entries: u32,
    /// Requests in a batch.
    batch: u32,
}

/// What is measured, and for how long.
pub(super) struct Plan {
    pub(super) seconds: Duration,
    pub(super) affinity: Affinity,
    rows: Vec<Row>,
}

impl Plan {
    /// The table, each row for so long.
    pub(super) fn table(seconds: Duration) -> Plan {
        Plan { seconds, affinity: Affinity::None, rows: of_both(TABLE.to_vec()) }
    }

    fn of(arguments: &NopArguments) -> Result<Plan, String> {
        arguments.affinity.check()?;
        let (seconds, affinity) = (arguments.seconds, arguments.affinity.clone());
        Ok(Plan { seconds, affinity, rows: rows(arguments)? })
    }
}

pub(super) fn run(arguments: &NopArguments) -> Result<(), String> {
    check_results(&arguments.results)?;
    arguments.plot.iter().try_for_each(|path| output::check_file(path))?;
    let plan = Plan::of(arguments)?;
    if let Some(reason) = refusal() {
        return Err(reason);
    }
    let report = report(&plan)?;
    let findings = findings(&report);
    if arguments.results.json.to().wants_text() {
        findings.print("")?;
    }
    if let Some(path) = &arguments.plot {
        output::write_file(path, &report.plot()?)?;
    }
    suite::write_results(&[findings], &arguments.results)
}

/// Measures every row, or says why there is none.
///
/// # Errors
/// One sentence for the user.
pub(super) fn measure(plan: &Plan) -> Result<Findings, String> {
    if let Some(reason) = refusal() {
        return Ok(Findings::skipped("nop", report::TITLE, &reason));
    }
    Ok(findings(&report(plan)?))
}

fn findings(report: &Report) -> Findings {
    Findings::new(report.text(), report, report.section())
}

fn report(plan: &Plan) -> Result<Report, String> {
    let progress = progress_bar(plan.seconds * plan.rows.len() as u32);
    let outcomes: Result<Vec<Outcome>, String> =
        plan.rows.iter().map(|&row| measure_row(row, plan, &progress)).collect();
    progress.finish_and_clear();
    Ok(Report::new(outcomes?, plan))
}

fn measure_row(row: Row, plan: &Plan, progress: &ProgressBar) -> Result<Outcome, String> {
    progress.set_message(row.name());
    let before = progress.position();
    let mut tick = |elapsed: Duration| progress.set_position(before + elapsed.as_millis() as u64);
    let measured: io::Result<Measured> = batches::measure(row, plan.seconds, &plan.affinity, &mut tick);
    let measured = measured.map_err(|error| format!("failed to measure {}: {error}", row.name()))?;
    tick(plan.seconds);
    Ok(Outcome { row, measured })
}

/// The table, or with a shape of the user's the rows of that.
fn rows(arguments: &NopArguments) -> Result<Vec<Row>, String> {
    let (threads, entries, batch) = (arguments.threads, arguments.entries, arguments.batch);
    let shapes = match (threads, entries, batch) {
        (None, None, None) => TABLE.to_vec(),
        _ => vec![Shape::custom(threads, entries, batch)?],
    };
    Ok(of_both(shapes))
}

/// Of each shape a row for each way to use a ring.
fn of_both(shapes: Vec<Shape>) -> Vec<Row> {
    let both = |shape| [RingUse::AnyThread, RingUse::Local].map(|sharing| Row { sharing, shape });
    shapes.into_iter().flat_map(both).collect()
}

impl Shape {
    fn custom(threads: Option<u32>, entries: Option<u32>, batch: Option<u32>) -> Result<Shape, String> {
        let (threads, batch) = (threads.unwrap_or(1), batch.unwrap_or(BATCH));
        let needed = u64::from(threads) * u64::from(batch);
        let entries = entries.unwrap_or_else(|| {
            let enough = needed.max(ENTRIES_MIN).next_power_of_two();
            u32::try_from(enough).unwrap_or(u32::MAX)
        });
        let entries_max = headwater::testing::Limits::QUEUE_DEPTH_MAX;
        if needed > u64::from(entries) || entries > entries_max {
            return Err(format!(
                "batches of {batch} from {threads} threads need {needed} entries in a shared ring: \
                 give --entries as many, of {entries_max} at most, or a smaller --batch"
            ));
        }
        Ok(Shape { threads, entries, batch })
    }
}

impl Row {
    /// Stable, for the JSON.
    fn id(self) -> String {
        let sharing = match self.sharing {
            RingUse::AnyThread => "any-thread",
            RingUse::Local => "local",
        };
        format!("{sharing}-{}x{}", self.shape.threads, self.shape.entries)
    }

    /// For people.
    fn name(self) -> String {
        let threads = match self.shape.threads {
            1 => "1 thread".to_owned(),
            count => format!("{count} threads"),
        };
        let sharing = match (self.sharing, self.shape.threads) {
            (RingUse::AnyThread, _) => "any-thread",
            (RingUse::Local, 1) => "local",
            (RingUse::Local, _) => "a local ring each",
        };
        format!("{threads} × {}, {sharing}", self.shape.entries)
    }
}

fn progress_bar(time: Duration) -> ProgressBar {
    // Hidden when standard error is no terminal. Without colours, so NO_COLOR asks for nothing else.
    let style = ProgressStyle::with_template("{bar:30} {msg}, {eta} left");
    ProgressBar::new(time.as_millis() as u64).with_style(style.expect("the template is well-formed"))
}

/// Why there is nothing to measure, in one line.
pub(super) fn refusal() -> Option<String> {
    headwater::testing::uring_refusal().map(|reason| refused(&reason))
}

/// What the kernel said, and where to change its mind.
fn refused(reason: &str) -> String {
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let advice = match setting.trim() {
        "1" | "2" => "set the sysctl kernel.io_uring_disabled to 0",
        "0" => {
            "a seccomp filter, as container runtimes have one, forbids it; allow io_uring_setup, io_uring_enter and \
             io_uring_register in its profile"
        }
        _ => "it needs a kernel with CONFIG_IO_URING, and a seccomp profile that allows its system calls",
    };
    format!("there is no ring to measure, io_uring is refused ({reason}): {advice}")
}

/// The shapes of the table by which users compare io_uring libraries: one thread on a small ring, several on a large.
const TABLE: [Shape; 2] =
    [Shape { threads: 1, entries: 64, batch: BATCH }, Shape { threads: 4, entries: 1024, batch: BATCH }];

/// Enough that the system call is shared by many requests, as in that table.
const BATCH: u32 = 32;

const ENTRIES_MIN: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is not given follows from what is, and what does not fit is said before it is measured.
    #[test]
    fn custom_shapes() {
        let shape = |threads, entries, batch| Shape::custom(threads, entries, batch);
        assert_eq!(shape(Some(1), None, None), Ok(TABLE[0]));
        assert_eq!(shape(Some(5), None, None), Ok(Shape { threads: 5, entries: 256, batch: 32 }));
        assert_eq!(shape(None, None, Some(1)), Ok(Shape { threads: 1, entries: 64, batch: 1 }));
        assert!(shape(Some(4), Some(64), None).unwrap_err().contains("need 128 entries"));
        assert!(shape(Some(1024), None, Some(4096)).is_err());
    }
}
