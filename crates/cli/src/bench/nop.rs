//! Nop: batches of requests that do nothing, by headwater's ring.
//!
//! Question: what does the way into the kernel cost, without any device?
//!
//! ```text
//!   rows ─► threads, pinned if asked ─► push a batch, finish it ─► latencies of all ─► report, drawing
//! ```
//!
//! Owns: which rows there are, the measured loop, what is said when io_uring is refused.
//! Does not own: threads and their clocks, the drawing (`headwater-measure`).

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater::DriverKind;
use headwater::ring::{Driver, DriverOptions, LocalDriver, Request};
use headwater_measure::affinity::Affinity;
use headwater_measure::{
    Better, Column, Curve, Curves, Figure, Findings, Latencies, Machine, Method, Metric, Report, Row as Line,
    Section, Table, Whose, crew, latency, machine, rounds, standard, svg, verdict,
};
use indicatif::ProgressBar;
use serde_json::json;

use super::results::Results;
use crate::bench::arguments::{KernelThreadArguments, NopArguments};
use crate::shared::output;

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    sharing: RingUse,
    shape: Shape,
}

/// How threads share rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RingUse {
    /// All threads share a driver, whose entries are divided among a ring for each processor, with 32 at least.
    AnyThread,
    /// All threads share a driver with one ring, and a thread of the kernel submits (SQPOLL).
    Polled,
    /// Each thread has a ring of its own.
    Local,
}

impl RingUse {
    /// Stable, for the JSON.
    fn id(self) -> &'static str {
        match self {
            RingUse::AnyThread => "any-thread",
            RingUse::Polled => "any-thread-sqpoll",
            RingUse::Local => "local",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    threads: u32,
    /// Of a local ring, or of all rings of a shared driver together.
    entries: u32,
    /// Requests in a batch.
    batch: u32,
}

/// What is measured, and for how long.
pub(super) struct Plan {
    pub(super) seconds: Duration,
    pub(super) affinity: Affinity,
    kernel_thread: KernelThreadArguments,
    rows: Vec<Row>,
}

impl Plan {
    /// The table, each row for so long.
    pub(super) fn table(seconds: Duration) -> Plan {
        let kernel_thread = KernelThreadArguments::default();
        Plan { seconds, affinity: Affinity::None, kernel_thread, rows: of_each(TABLE.to_vec()) }
    }

    fn of(arguments: &NopArguments) -> Result<Plan, String> {
        arguments.affinity.check()?;
        arguments.kernel_thread.check()?;
        let (seconds, affinity) = (arguments.seconds, arguments.affinity.clone());
        Ok(Plan { seconds, affinity, kernel_thread: arguments.kernel_thread.clone(), rows: rows(arguments)? })
    }
}

pub(super) fn run(arguments: &NopArguments) -> Result<(), String> {
    let mut results = Results::begin(&arguments.results, arguments.plot.as_deref(), None)?;
    let plan = Plan::of(arguments)?;
    if let Some(reason) = refusal() {
        return Err(reason);
    }
    let outcomes = outcomes(&plan)?;
    results.add(report(&plan, &outcomes).findings())?;
    let plot = |path: &PathBuf| output::write_file(path, &svg(&curves(&outcomes)));
    results.end(|| arguments.plot.iter().try_for_each(plot))
}

/// Measures every row, or says why there is none.
///
/// # Errors
/// One sentence for the user.
pub(super) fn measure(plan: &Plan) -> Result<Findings, String> {
    match refusal() {
        Some(reason) => Ok(Findings::skipped("nop", TITLE, &reason)),
        None => Ok(report(plan, &outcomes(plan)?).findings()),
    }
}

/// A row and what it took.
struct Outcome {
    row: Row,
    latencies: Latencies,
    elapsed: Duration,
    /// `io_uring_enter` calls of all threads.
    enters: u64,
}

fn outcomes(plan: &Plan) -> Result<Vec<Outcome>, String> {
    let progress = rounds::time_bar((plan.seconds * plan.rows.len() as u32).as_millis() as u64);
    let outcome = |&row: &Row| {
        standard::check_reader()?;
        progress.set_message(row.name());
        let outcome = measure_row(row, plan, &progress);
        outcome.map_err(|error| format!("failed to measure {}: {error}", row.name()))
    };
    let outcomes = plan.rows.iter().map(outcome).collect();
    progress.finish_and_clear();
    outcomes
}

/// Batches in all threads of the row at once.
fn measure_row(row: Row, plan: &Plan, progress: &ProgressBar) -> io::Result<Outcome> {
    let shared = match row.sharing {
        RingUse::AnyThread | RingUse::Polled => Some(driver(row, plan)?),
        RingUse::Local => None,
    };
    let enters = AtomicU64::new(0);
    let prepare = |_| if shared.is_none() { driver(row, plan).map(Some) } else { Ok(None) };
    let work = |own: Option<Driver>| {
        let driver = shared.as_ref().or(own.as_ref()).expect("a thread has a ring, shared or its own");
        let latencies = batches(driver, row.shape.batch, plan.seconds);
        enters.fetch_add(own.map_or(0, |own| own.stats().enters), Ordering::Relaxed);
        latencies
    };
    thread::scope(|scope| {
        let (start, before) = (Instant::now(), progress.position());
        let crew = scope.spawn(|| crew::run(row.shape.threads, &plan.affinity, prepare, work));
        while !crew.is_finished() {
            progress.set_position(before + start.elapsed().min(plan.seconds).as_millis() as u64);
            let left = plan.seconds.saturating_sub(start.elapsed());
            thread::sleep(left.clamp(Duration::from_millis(1), TICK));
        }
        let latencies = Latencies::sum(crew.join().expect("a measuring thread does not panic")?);
        let elapsed = plan.seconds;
        progress.set_position(before + plan.seconds.as_millis() as u64);
        let shared_enters = shared.as_ref().map_or(0, |driver| driver.stats().enters);
        Ok(Outcome { row, latencies, elapsed, enters: enters.load(Ordering::Relaxed) + shared_enters })
    })
}

fn driver(row: Row, plan: &Plan) -> io::Result<Driver> {
    let options =
        DriverOptions { kind: DriverKind::Uring, queue_depth: row.shape.entries, ..DriverOptions::default() };
    match row.sharing {
        RingUse::AnyThread => Driver::new(&options),
        // With all entries in one ring: another one would have another thread of the kernel.
        RingUse::Polled => {
            let submission_polling = plan.kernel_thread.polling();
            Driver::new(&DriverOptions { rings: Some(1), submission_polling, ..options })
        }
        RingUse::Local => Ok(LocalDriver::new(&options)?.driver().clone()),
    }
}

fn batches(driver: &Driver, size: u32, time: Duration) -> io::Result<Latencies> {
    let mut batch = driver.batch();
    crew::time_steps(time, || {
        for _ in 0..size {
            batch.push(Request::Nop).map_err(|_| io::Error::other("the ring took no whole batch"))?;
        }
        let mut outcome = Ok(());
        batch.finish(|_, finished| {
            if let Err(error) = finished.result {
                outcome = Err(error);
            }
        });
        outcome
    })
}

fn report(plan: &Plan, outcomes: &[Outcome]) -> Report {
    let (host, rows) = (Machine::here(), outcomes.iter().map(line).collect::<Vec<Line>>());
    let (batch, seconds) = (rows.first().map_or(0, |row| row.number("batch")), plan.seconds.as_secs_f64());
    let affinity = plan.affinity.to_string();
    let what = format!(
        "batches of {batch} requests that do nothing, {seconds} s a row, affinity {affinity}; latencies of a batch in µs"
    );
    let how = format!(
        "Threads push batches of {batch} requests that do nothing (IORING_OP_NOP) into headwater's ring and wait for \
         all of them, for {seconds} s a row in this process; each batch goes into a histogram of three digits. \
         Any-thread: all threads share a driver, whose entries are divided among a ring for each processor. Any-thread, SQPOLL: \
         they share one ring, and a thread of the kernel submits. Local: each thread has a ring of its own with all entries. Enters are calls of io_uring_enter(2)."
    );
    let facts =
        machine::known([("Time a row", format!("{seconds} s")), ("Affinity of threads", affinity.clone())]);
    let figures = vec![Figure::Curves(curves(outcomes)), Figure::Table(table(&rows))];
    let section = Section {
        id: "nop",
        title: TITLE.to_owned(),
        question: "What does the way into the kernel cost, without any device?".to_owned(),
        answer: answer(&rows).unwrap_or_default(),
        figures,
        methods: vec![Method::new("All rows", how)],
        facts: host.facts().into_iter().chain(facts).collect(),
        ..Section::default()
    };
    Report {
        head: vec![host.words(), what],
        fields: vec![("host", json!(host)), ("seconds", json!(seconds)), ("affinity", json!(affinity))],
        section,
        rows,
        ..Report::default()
    }
}

fn line(outcome: &Outcome) -> Line {
    let (row, latencies) = (outcome.row, &outcome.latencies);
    let (batches, figures) = (latencies.count(), latencies.figures());
    let rate = batches as f64 / outcome.elapsed.as_secs_f64();
    let cost_ns = figures.get("mean_us") * 1e3 / f64::from(row.shape.batch);
    let line = Line::new(Whose::Headwater, row.name())
        .label("id", row.id())
        .named()
        .label("ring", row.sharing.id())
        .label("threads", row.shape.threads)
        .label("entries", row.shape.entries)
        .label("batch", row.shape.batch)
        .label("batches", batches)
        .metric(Metric::only("batches_per_s", Some(rate)));
    let columns = latency::COLUMNS.into_iter();
    let line =
        columns.fold(line, |line, (name, ..)| line.metric(Metric::cost(name, "µs", figures.find(name))));
    line.metric(Metric::cost("enters_per_batch", "", Some(outcome.enters as f64 / batches.max(1) as f64)))
        .metric(Metric::new("ns_per_request", "ns", Better::Lower, [cost_ns]).plain())
}

fn answer(rows: &[Line]) -> Option<String> {
    let best = verdict::best(rows.iter(), "ns_per_request")?;
    Some(format!("cheapest: {} with {:.0} ns a request", best.name, best.value("ns_per_request")?))
}

/// In the order in which they go from a narrow terminal.
const MINOR_LATENCIES: [&str; 6] = ["p99.9999", "min", "p99.999", "p90", "p99.9", "p50"];

fn table(rows: &[Line]) -> Table {
    let mut columns = vec![
        Column::names("threads × entries"),
        Column::new("batches", |row| row.number("batches").to_string()).minor(1),
        Column::value("batches/s", "batches_per_s", 0),
    ];
    columns.extend(latency::COLUMNS.map(|(name, head, places)| {
        let column = Column::value(head, name, places);
        // Each tells something between its neighbours.
        match MINOR_LATENCIES.iter().position(|minor| *minor == head) {
            Some(rank) => column.minor(2 + rank as u8),
            None => column,
        }
    }));
    columns.push(Column::value("enters", "enters_per_batch", 2).minor(8));
    Table::of("Batches and their latencies in µs; enters of a batch", &columns, rows)
}

fn curves(outcomes: &[Outcome]) -> Curves {
    let curve = |outcome: &Outcome| Curve {
        label: outcome.row.name(),
        whose: Whose::Headwater,
        points: outcome.latencies.points(),
    };
    let curves = outcomes.iter().map(curve).collect();
    Curves { caption: "Latency of a batch of requests that do nothing".to_owned(), unit: "µs", curves }
}

/// The table, or with a shape of the user's the rows of that.
fn rows(arguments: &NopArguments) -> Result<Vec<Row>, String> {
    let (threads, entries, batch) = (arguments.threads, arguments.entries, arguments.batch);
    let shapes = match (threads, entries, batch) {
        (None, None, None) => TABLE.to_vec(),
        _ => vec![Shape::custom(threads, entries, batch)?],
    };
    Ok(of_each(shapes))
}

/// Of each shape a row for each way to use a ring.
fn of_each(shapes: Vec<Shape>) -> Vec<Row> {
    let ways = [RingUse::AnyThread, RingUse::Polled, RingUse::Local];
    shapes.into_iter().flat_map(|shape| ways.map(|sharing| Row { sharing, shape })).collect()
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
                "batches of {batch} from {threads} threads need {needed} entries in what they share: \
                 give --entries as many, of {entries_max} at most, or a smaller --batch"
            ));
        }
        Ok(Shape { threads, entries, batch })
    }
}

impl Row {
    /// Stable, for the JSON.
    fn id(self) -> String {
        format!("{}-{}x{}", self.sharing.id(), self.shape.threads, self.shape.entries)
    }

    /// For people.
    fn name(self) -> String {
        let threads = match self.shape.threads {
            1 => "1 thread".to_owned(),
            count => format!("{count} threads"),
        };
        let sharing = match (self.sharing, self.shape.threads) {
            (RingUse::AnyThread, _) => "any-thread",
            (RingUse::Polled, _) => "any-thread, SQPOLL",
            (RingUse::Local, 1) => "local",
            (RingUse::Local, _) => "a local ring each",
        };
        format!("{threads} × {}, {sharing}", self.shape.entries)
    }
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

/// Of the section.
pub(super) const TITLE: &str = "The ring alone";

/// Seldom enough to leave the processors to what is measured.
const TICK: Duration = Duration::from_millis(250);

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
