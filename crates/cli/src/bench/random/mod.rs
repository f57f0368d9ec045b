//! Random: pages of 4 KiB at random with 20 reads in flight, in every way there is.
//!
//! Question: How many can be read when memory holds all of them, and when it does not?
//!
//! ```text
//!   rounds × spans × ways: make cold ─► cgroup ─► child (bench-row) ─► warm ─► read until time is up ─► its peak ─► medians
//! ```
//!
//! Owns: spans, ways, which of them go together, what is warm before, what is said of them.
//! Does not own: reading (`row`), tasks (`tasks`).

mod arguments;
mod row;
mod tasks;

use std::time::Duration;

use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_io::DemandMemory;
use headwater_measure::cgroup::MemoryCgroup;
use headwater_measure::{
    Bars, Better, Column, Comparison, Curve, Curves, Figure, Findings, Method, Metric, Report, Row, Section,
    Skipped, Table, Whose, median, rounds,
};
use serde_json::json;

pub(crate) use arguments::{EXAMPLES, RandomArguments};
pub(super) use row::measure as measure_row;

use super::suite::{self, Task};
use super::{measure, wanted};
use crate::bench::arguments::{KernelThreadArguments, RowSuite};
use crate::cp::Guard;
use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::target::{SIZE_BYTES_MIN, Target, place_words};
use crate::shared::units::MIB;
use crate::shared::units::{ByteSize, readable};
use row::{Measured, SHARES};

pub(super) struct Plan {
    /// Of each row; less where the file is too small for it.
    pub(super) memory_bytes: u64,
    pub(super) rounds: u32,
    /// For one measurement of one row.
    pub(super) limit: Duration,
    pub(super) queue: QueueArguments,
    pub(super) kernel_thread: KernelThreadArguments,
}

impl Plan {
    /// Nineteen rows that read a quarter of a second, and warm up: 9 s.
    pub(super) fn quick(queue: QueueArguments) -> Plan {
        let kernel_thread = KernelThreadArguments::default();
        Plan { memory_bytes: QUICK_MEMORY_BYTES, rounds: 1, limit: QUICK_LIMIT, queue, kernel_thread }
    }
}

/// Which part of the file is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Span {
    /// Half of the memory.
    Within,
    /// Two and a half times of it.
    Beyond,
}

impl Span {
    const ALL: [Span; 2] = [Span::Within, Span::Beyond];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Span::Within => "within",
            Span::Beyond => "beyond",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Span::Within => "within memory",
            Span::Beyond => "beyond memory",
        }
    }

    fn bytes(self, memory_bytes: u64) -> u64 {
        let bytes = match self {
            Span::Within => memory_bytes / 2,
            Span::Beyond => memory_bytes / 2 * 5,
        };
        bytes / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES
    }
}

/// How it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Buffered,
    Mapped,
    MappedRandom,
    Direct,
    HeadwaterThreads,
    HeadwaterTasks,
    HeadwaterViews,
    HeadwaterWindow,
    HeadwaterDirect,
    HeadwaterSqpoll,
}

impl Way {
    const ALL: [Way; 10] = [
        Way::Buffered,
        Way::Mapped,
        Way::MappedRandom,
        Way::Direct,
        Way::HeadwaterThreads,
        Way::HeadwaterTasks,
        Way::HeadwaterViews,
        Way::HeadwaterWindow,
        Way::HeadwaterDirect,
        Way::HeadwaterSqpoll,
    ];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Way::Buffered => "buffered",
            Way::Mapped => "mmap",
            Way::MappedRandom => "mmap-random",
            Way::Direct => "direct",
            Way::HeadwaterThreads => "headwater-threads",
            Way::HeadwaterTasks => "headwater-tasks",
            Way::HeadwaterViews => "headwater-views",
            Way::HeadwaterWindow => "headwater-window",
            Way::HeadwaterDirect => "headwater-direct",
            Way::HeadwaterSqpoll => "headwater-direct-sqpoll",
        }
    }

    fn name(self) -> String {
        match self {
            Way::Buffered => format!("std buffered, {IN_FLIGHT} threads"),
            Way::Mapped => format!("mmap, {IN_FLIGHT} threads"),
            Way::MappedRandom => format!("mmap, MADV_RANDOM, {IN_FLIGHT} threads"),
            Way::Direct => format!("O_DIRECT, {IN_FLIGHT} threads"),
            Way::HeadwaterThreads => format!("headwater cached, {IN_FLIGHT} threads"),
            Way::HeadwaterTasks => format!("headwater cached, {IN_FLIGHT} tasks on 1"),
            Way::HeadwaterViews => format!("headwater views, {IN_FLIGHT} threads"),
            Way::HeadwaterWindow => format!("headwater window, {IN_FLIGHT} threads"),
            Way::HeadwaterDirect => format!("headwater direct, {IN_FLIGHT} tasks on 1"),
            Way::HeadwaterSqpoll => format!("headwater direct, SQPOLL, {IN_FLIGHT} tasks on 1"),
        }
    }

    fn is_headwater(self) -> bool {
        !matches!(self, Way::Buffered | Way::Mapped | Way::MappedRandom | Way::Direct)
    }

    /// Whether it takes nothing from a cache, and fills none.
    fn is_direct(self) -> bool {
        matches!(self, Way::Direct | Way::HeadwaterDirect | Way::HeadwaterSqpoll)
    }

    /// The most memory of an engine in a cgroup with `memory_bytes`, which it shares with threads, buffers and the kernel.
    fn engine_bytes(self, memory_bytes: u64) -> u64 {
        match self {
            _ if self.is_direct() => DIRECT_MEMORY_BYTES,
            // The memory of a window is taken at once, that of a cache as far as the cgroup has it to spare.
            Way::HeadwaterWindow => memory_bytes / 10 * 7,
            _ => memory_bytes,
        }
    }

    /// Views are about what is in memory.
    fn can(self, span: Span) -> bool {
        self != Way::HeadwaterViews || span == Span::Within
    }
}

/// A span in one way, and what it took, a child a round.
struct Outcome {
    span: Span,
    way: Way,
    rounds: Vec<Measured>,
    /// Of the cgroup, in each round.
    peaks_bytes: Vec<u64>,
    /// In some round the page cache still held a part of the file when the row began.
    stayed_warm: bool,
}

impl Outcome {
    fn new(span: Span, way: Way) -> Outcome {
        Outcome { span, way, rounds: Vec::new(), peaks_bytes: Vec::new(), stayed_warm: false }
    }

    /// MiB in each round: what the cgroup was charged, or what the process had.
    fn memory(&self) -> (Vec<f64>, &'static str) {
        if self.peaks_bytes.is_empty() {
            return (self.rounds.iter().map(|one| one.peak_rss_kib as f64 / 1024.0).collect(), PROCESS);
        }
        (self.peaks_bytes.iter().map(|&bytes| bytes as f64 / MIB).collect(), "cgroup")
    }
}

pub(super) fn run(arguments: &RandomArguments) -> Result<(), String> {
    let place = &arguments.place;
    let size = ByteSize(Span::Beyond.bytes(arguments.memory.0));
    let wanted = wanted(arguments.file.as_ref(), Some(size), "--memory", place);
    let (memory_bytes, rounds, limit) = (arguments.memory.0, arguments.rounds, arguments.seconds);
    arguments.kernel_thread.check()?;
    let (queue, kernel_thread) = (arguments.queue.clone(), arguments.kernel_thread.clone());
    let plan = Plan { memory_bytes, rounds, limit, queue, kernel_thread };
    measure(&wanted, place, &|target| run_plan(&plan, target))
}

/// Measures all rows on one file.
///
/// # Errors
/// One sentence for the user.
pub(super) fn run_plan(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let memory_bytes = memory_bytes(plan, target);
    let cgroup_refusal = MemoryCgroup::new(memory_bytes, Guard::over).err();
    let contest = Contest { plan, target, memory_bytes, cgroup_refusal };
    let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
    let pairs = Span::ALL.into_iter().flat_map(|span| Way::ALL.map(|way| (span, way)));
    for (span, way) in pairs.filter(|(span, way)| way.can(*span)) {
        match contest.reason_to_skip(span, way) {
            Some(reason) => {
                let id = format!("{}-{}", span.id(), way.id());
                skipped.push(Skipped::new(id, format!("{}, {}", way.name(), span.words()), reason));
            }
            None => outcomes.push(Outcome::new(span, way)),
        }
    }
    let name = |outcome: &Outcome| format!("{}, {}", outcome.span.words(), outcome.way.name());
    rounds::with_progress(&mut outcomes, plan.rounds, name, |outcome, round| {
        contest.measure(outcome, round)
    })?;
    Ok(contest.report(&outcomes, skipped).findings())
}

struct Contest<'a> {
    plan: &'a Plan,
    target: &'a Target,
    memory_bytes: u64,
    /// Why rows are not in cgroups.
    cgroup_refusal: Option<String>,
}

impl Contest<'_> {
    fn reason_to_skip(&self, span: Span, way: Way) -> Option<String> {
        if let Some(refusal) = self.target.direct_refusal.as_ref().filter(|_| way.is_direct()) {
            return Some(refusal.clone());
        }
        if let Some(refusal) = self.plan.queue.uring_refusal().filter(|_| way == Way::HeadwaterSqpoll) {
            return Some(refusal);
        }
        if way == Way::HeadwaterWindow
            && let Err(error) = DemandMemory::new(1)
        {
            return Some(error.to_string());
        }
        if span == Span::Within {
            return None;
        }
        let needed_bytes = span.bytes(self.memory_bytes);
        let is_small = self.target.bytes < needed_bytes;
        let small = is_small.then(|| {
            let (has, needed) = (readable(self.target.bytes), readable(needed_bytes));
            format!("the file has {has}, and {needed} are the least that is more than memory")
        });
        self.cgroup_refusal.clone().or(small)
    }

    fn span_bytes(&self, span: Span) -> u64 {
        span.bytes(self.memory_bytes).min(self.target.bytes / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES)
    }

    fn measure(&self, outcome: &mut Outcome, round: u32) -> Result<(), String> {
        let (span, way) = (outcome.span, outcome.way);
        let was_cold = self.target.make_cold();
        let cgroup = match &self.cgroup_refusal {
            None => Some(MemoryCgroup::new(self.memory_bytes, Guard::over)?),
            Some(_) => None,
        };
        let engine = EngineArguments {
            memory: ByteSize(way.engine_bytes(self.memory_bytes)),
            queue: self.plan.queue.clone(),
        };
        let contents = if self.target.is_made { row::MADE } else { row::GIVEN };
        let task = Task {
            suite: RowSuite::Random,
            row: &format!("{}:{contents}", way.id()),
            bytes: self.span_bytes(span),
            limit: self.plan.limit,
            places: u64::MAX,
            seed: u64::from(round) << 1 | u64::from(span == Span::Beyond),
            engine: &engine,
            kernel_affinity: self.plan.kernel_thread.kernel_affinity,
        };
        let failed = |error: std::io::Error| format!("failed to measure {}: {error}", way.name());
        let descriptor = self.target.descriptor().map_err(failed)?;
        let measured = task.run_in(cgroup.as_ref().map(MemoryCgroup::path), descriptor);
        if measured.is_err() && cgroup.as_ref().is_some_and(|cgroup| cgroup.kills() > 0) {
            let (name, memory) = (way.name(), readable(self.memory_bytes));
            return Err(format!("{memory} are too little for {name}: give more --memory"));
        }
        outcome.rounds.push(measured?);
        outcome.peaks_bytes.extend(cgroup.and_then(|cgroup| cgroup.peak_bytes()));
        outcome.stayed_warm |= !was_cold;
        Ok(())
    }

    fn report(&self, outcomes: &[Outcome], skipped: Vec<Skipped>) -> Report {
        let (plan, target, limited) = (self.plan, self.target, self.cgroup_refusal.is_none());
        let measured = outcomes.iter().flat_map(|outcome| &outcome.rounds);
        let host = Host::with_driver(&target.path, measured.map(|measured| &measured.driver));
        let (path, bytes, memory) =
            (target.path.display().to_string(), readable(target.bytes), readable(self.memory_bytes));
        let (seconds, rounds) = (plan.limit.as_secs_f64(), rounds::words(plan.rounds));
        let limit = match limited {
            true => format!("{memory} of memory for each row (cgroup)"),
            false => format!("rows planned for {memory} of memory, not limited to it"),
        };
        let made = if target.is_made { "made in" } else { "of" };
        let head = format!(
            "{bytes} {made} {path}; {limit}; {IN_FLIGHT} reads of 4 KiB in flight, {seconds} s a row, {rounds}, medians"
        );
        let fio = Span::ALL.map(|span| fio_line(target, self.span_bytes(span), plan));
        let rows = self.rows(outcomes);
        let memory = if limited { format!("{memory}, by a cgroup") } else { "not limited".to_owned() };
        let facts = [
            ("File", format!("{bytes} in {}", place_words(&path))),
            ("Memory of a row", memory),
            ("Reads", format!("4 KiB, {IN_FLIGHT} in flight")),
            ("Time", format!("{seconds} s a row, {rounds}")),
        ];
        let section = Section {
            id: "random",
            title: TITLE.to_owned(),
            question: format!(
                "How many pages of 4 KiB can be read at random with {IN_FLIGHT} reads in flight, when memory holds all of them, \
                 and when it does not?"
            ),
            answer: answer(&rows),
            figures: Span::ALL.into_iter().flat_map(|span| figures(span, &rows)).collect(),
            methods: methods(&fio),
            notes: self.notes(outcomes),
            ..Section::default()
        };
        let mut report = suite::report(&host, target, head, facts, section);
        report.fields.extend([
            ("made_for_this", json!(target.is_made)),
            ("bytes", json!(target.bytes)),
            ("memory_bytes", json!(self.memory_bytes)),
            ("limited", json!(limited)),
            ("in_flight", json!(IN_FLIGHT)),
            ("rounds", json!(plan.rounds)),
            ("seconds", json!(seconds)),
            ("fio", json!(fio)),
        ]);
        Report { commands: vec![format!("the device's limit: {}", fio[1])], rows, skipped, ..report }
    }

    fn rows(&self, outcomes: &[Outcome]) -> Vec<Row> {
        let mut rows: Vec<Row> =
            outcomes.iter().map(|outcome| row(outcome, self.span_bytes(outcome.span))).collect();
        for span in Span::ALL {
            let buffered =
                rows.iter().find(|row| row.is(&[("span", span.id()), ("way", Way::Buffered.id())]));
            let base = buffered.and_then(|row| row.value(RATE));
            let of_span = rows.iter_mut().filter(|row| row.text("span") == span.id());
            of_span.for_each(|row| row.add_ratio("ratio", RATE, base));
        }
        rows
    }

    fn notes(&self, outcomes: &[Outcome]) -> Vec<String> {
        let mut notes = vec![
            "kernel %, own %: of the span, in the kernel's page cache and in headwater's memory when the clock started"
                .to_owned(),
            "device ×: bytes that the device read for each byte asked for".to_owned(),
        ];
        if self.cgroup_refusal.is_some() {
            notes.push(
                "without a cgroup memory is that of the process (rss); what the page cache holds for it is not counted"
                    .to_owned(),
            );
        }
        if self.memory_bytes < self.plan.memory_bytes {
            let (less, asked) = (readable(self.memory_bytes), readable(self.plan.memory_bytes));
            notes.push(format!(
                "rows had {less} of memory instead of {asked}, so that the file is more than that"
            ));
        }
        let warm = outcomes.iter().filter(|outcome| outcome.stayed_warm);
        let warm: Vec<String> =
            warm.map(|outcome| format!("{}, {}", outcome.span.words(), outcome.way.name())).collect();
        if !warm.is_empty() {
            notes
                .push(format!("the page cache kept some of the file before these rows: {}", warm.join("; ")));
        }
        notes
    }
}

fn row(outcome: &Outcome, span_bytes: u64) -> Row {
    let (way, rounds) = (outcome.way, &outcome.rounds);
    let each = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let within = |index: usize| median(rounds.iter().map(|measured| measured.within_us[index].1));
    let within_us: Vec<(f64, f64)> =
        SHARES.into_iter().enumerate().map(|(index, share)| (share, within(index))).collect();
    let at = |name, wanted: f64| {
        Metric::cost(name, "µs", within_us.iter().find(|point| point.0 == wanted).map(|point| point.1))
    };
    // headwater reads a little ahead of the span's end. Where the kernel does not tell in each round, there is no least.
    let share = |name, pages_of: fn(&Measured) -> Option<u64>| {
        let share = |held| (held as f64 / (span_bytes / PAGE_SIZE_BYTES) as f64).min(1.0);
        let shares: Option<Vec<f64>> = rounds.iter().map(|one| pages_of(one).map(share)).collect();
        Metric::new(name, "", Better::Higher, shares.unwrap_or_default()).least()
    };
    let hits: Option<Vec<f64>> = rounds.iter().map(|measured| measured.hit_share).collect();
    let asked_bytes = |one: &Measured| (one.reads * PAGE_SIZE_BYTES) as f64;
    let amplified: Option<Vec<f64>> =
        rounds.iter().map(|one| Some(one.device_bytes? as f64 / asked_bytes(one))).collect();
    let (memory, memory_of) = outcome.memory();
    let cpu = each(&|one| one.cpu_seconds * 1e6 / one.reads as f64);
    let whose = if way.is_headwater() { Whose::Headwater } else { Whose::Peer };
    Row::new(whose, way.name())
        .label("id", format!("{}-{}", outcome.span.id(), way.id()))
        .named()
        .label("span", outcome.span.id())
        .label("way", way.id())
        .label("span_bytes", span_bytes)
        .label("memory_of", memory_of)
        .label("within_us", json!(within_us))
        .metric(Metric::new(RATE, "reads/s", Better::Higher, each(&|one| one.reads as f64 / one.seconds)))
        .metric(Metric::new("cpu_us_per_read", "CPU µs", Better::Lower, cpu).plain())
        .metric(Metric::new("memory_mib", "MiB", Better::Lower, memory).most())
        .metric(at("p50_us", 0.5))
        .metric(at("p99_us", 0.99))
        .metric(at("p99_9_us", 0.999))
        .metric(Metric::new("amplification", "×", Better::Lower, amplified.unwrap_or_default()).plain())
        .metric(Metric::new("hit_share", "", Better::Higher, hits.unwrap_or_default()).plain())
        .metric(share("kernel_share", |one| one.kernel_pages))
        .metric(share("own_share", |one| one.own_pages))
}

fn of(rows: &[Row], span: Span) -> impl Iterator<Item = &Row> + Clone {
    rows.iter().filter(move |row| row.text("span") == span.id())
}

/// One sentence with the figures of the best headwater row against the best other one, of each span.
fn answer(rows: &[Row]) -> String {
    let of_span = |span: Span| {
        let rivals = Comparison::of_best(of(rows, span), RATE)?;
        let against =
            match rivals.ours.value("ratio").filter(|_| rivals.theirs.text("way") != Way::Buffered.id()) {
                Some(ratio) => format!(" and {ratio:.2} × std buffered"),
                None => String::new(),
            };
        let (words, name, rate) = (span.words(), &rivals.ours.name, rivals.ours.value(RATE)?);
        Some(format!("{words} {name} reads {rate:.0} pages a second, {}{against}", rivals.words()))
    };
    let parts: Vec<String> = Span::ALL.into_iter().filter_map(of_span).collect();
    headwater_measure::sentence(&parts.join("; "))
}

fn figures(span: Span, rows: &[Row]) -> Vec<Figure> {
    let Some(first) = of(rows, span).next() else { return Vec::new() };
    let title = format!("{} of {}", span.words(), readable(first.number("span_bytes")));
    let caption = |what: &str| format!("{what}, {title}");
    let curve = |row: &Row| {
        let points = row.points("within_us");
        Curve { label: row.name.clone(), whose: row.whose, points }
    };
    let memory = |row: &Row| {
        let of_process = if row.text("memory_of") == PROCESS { " rss" } else { "" };
        format!("{:.0}{of_process}", row.value("memory_mib").unwrap_or(0.0))
    };
    let columns = [
        Column::names(&title),
        Column::value("reads/s", RATE, 0),
        Column::spread(RATE, 0).minor(6),
        Column::value("× buffered", "ratio", 2),
        Column::value("CPU µs", "cpu_us_per_read", 2).minor(8),
        Column::new("MiB", memory).minor(7),
        Column::value("p50 µs", "p50_us", 1).minor(5),
        Column::value("p99 µs", "p99_us", 1),
        Column::value("p99.9 µs", "p99_9_us", 1).minor(4),
        Column::value("device ×", "amplification", 2).minor(3),
        Column::percent("hit %", "hit_share").minor(3),
        Column::percent("kernel %", "kernel_share").minor(2),
        Column::percent("own %", "own_share").minor(1),
    ];
    let curves = of(rows, span).map(curve).collect();
    vec![
        Figure::Bars(Bars::of(caption("Reads a second"), RATE, of(rows, span))),
        Figure::Curves(Curves { caption: caption("How long a read takes"), unit: "µs", curves }),
        Figure::Table(Table::of(caption("All figures"), &columns, of(rows, span))),
    ]
}

fn methods(fio: &[String; 2]) -> Vec<Method> {
    let threads = fio[0]
        .replace("--direct=1", "--direct=0")
        .replace("--ioengine=io_uring", "--ioengine=psync")
        .replace(
            &format!("--iodepth={IN_FLIGHT}"),
            &format!("--numjobs={IN_FLIGHT} --thread --group_reporting"),
        );
    vec![
        Method::new(
            "All rows",
            "A process for each row and round, in a memory cgroup of its own where that is possible. The file is made cold \
             before; rows go forwards and backwards in turn; places are the same for all rows of a round. Every row uses all \
             of a page, whose words it combines, where the page lies. The first word of every page is compared with what was \
             written when the file was made here, and 64 pages with the file itself in any case. Latencies are from before a \
             read to after it, in one clock reading a read.",
        ),
        Method::new(
            "Rows with a cache",
            "The span is read once, from start to end in steps of 1 MiB, before the clock starts; of a span beyond memory \
             that leaves what the cache kept.",
        ),
        Method::new(
            "headwater window",
            "File::map_on_demand with three quarters of the engine's memory. Pages beside the engine's cache: it counts no hits.",
        ),
        Method::new("std buffered and mmap", "Threads that read one page after the other.").fio(threads),
        Method::new(
            "O_DIRECT and headwater direct",
            "Around all caches: threads that read one page after the other, and tasks on one thread. With SQPOLL a thread of the kernel \
             submits; its processor time is the row's, and it needs a processor of its own.",
        )
        .fio(&fio[1]),
    ]
}

/// What measures the device without headwater.
fn fio_line(target: &Target, span_bytes: u64, plan: &Plan) -> String {
    let seconds = plan.limit.as_secs().max(1);
    let options = "--rw=randread --norandommap --bs=4k --ioengine=io_uring --direct=1";
    let options = format!("{options} --iodepth={IN_FLIGHT} --time_based --runtime={seconds}");
    FioFile::of(target, span_bytes).job("random", &options)
}

/// As much as is asked for, or as a given file is large enough for.
fn memory_bytes(plan: &Plan, target: &Target) -> u64 {
    let of_file = (target.bytes / 5 * 2) & !(SIZE_BYTES_MIN - 1);
    plan.memory_bytes.min(of_file.max(MEMORY_BYTES_MIN))
}

/// As in the comparison of Glommio's author (2020) whose second table this is.
const IN_FLIGHT: u32 = 20;

/// Twenty threads with their stacks and histograms, and an engine, which leaves the cgroup 16 MiB of headroom.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// What is in flight, and what the engine keeps for itself.
const DIRECT_MEMORY_BYTES: u64 = 4 << 20;

const QUICK_MEMORY_BYTES: u64 = 256 << 20;

const QUICK_LIMIT: Duration = Duration::from_millis(250);

const RATE: &str = "reads_per_s";

/// Whose memory it is where there was no cgroup.
const PROCESS: &str = "process";

/// Of the section.
pub(super) const TITLE: &str = "Random reads";
