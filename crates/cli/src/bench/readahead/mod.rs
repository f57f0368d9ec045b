//! Readahead: a cold file in all kinds of orders, through the kernel's page cache and by headwater.
//!
//! Question: What does readahead make of a cold file that is read in some order?
//!
//! ```text
//!   rounds × patterns × readers: make cold ─► child (bench-row) ─► same bytes? ─► rows ─► report
//! ```
//!
//! Owns: readers, which rows there are, what is said of them.
//! Does not own: orders of reads (`patterns`), reading (`row`).

mod patterns;
mod row;

use std::fs::OpenOptions;
use std::time::Duration;

use headwater::ReadaheadPolicy;
use headwater_measure::table::shown;
use headwater_measure::{
    Bar, Bars, Better, Column, Figure, Findings, HeatMap, Media, Method, Metric, Report, Row, Section, Table,
    Whose, median, rounds,
};
use serde_json::json;

pub(super) use row::measure as measure_row;

use super::suite::{self, Task};
use super::tally::Sums;
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::EngineArguments;
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::readahead;
use crate::shared::storage::{Storage, read_ahead_setting};
use crate::shared::target::{Target, place_words};
use crate::shared::units::readable;
use crate::shared::units::{GIB, MIB};
use os_display::Quotable;
use patterns::Pattern;
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

/// The reader, and so the readahead.
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

    /// For columns.
    fn short(self) -> String {
        match self {
            Reader::Headwater(policy) => readahead::name(policy),
            Reader::Kernel | Reader::Kernel128 => self.id(),
        }
    }

    fn whose(self) -> Whose {
        if matches!(self, Reader::Headwater(_)) { Whose::Headwater } else { Whose::Peer }
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
    let refusal = reason_to_skip_128(target);
    let readers = plan.readers().into_iter();
    let readers: Vec<Reader> =
        readers.filter(|&reader| refusal.is_none() || reader != Reader::Kernel128).collect();
    let outcome =
        |pattern, &reader: &Reader| Outcome { pattern, reader, measurements: Vec::new(), stayed_warm: false };
    let pairs = Pattern::ALL.into_iter();
    let mut outcomes: Vec<Outcome> =
        pairs.flat_map(|pattern| readers.iter().map(move |reader| outcome(pattern, reader))).collect();
    let bytes = target.bytes.min(plan.bytes_max);
    let mut sums = Sums::new();
    let name = |outcome: &Outcome| format!("{}, {}", outcome.pattern.name(), outcome.reader.id());
    rounds::with_progress(&mut outcomes, plan.rounds, name, |outcome, round| {
        let was_cold = target.make_cold();
        let (pattern, reader) = (outcome.pattern, outcome.reader.id());
        let task = Task {
            suite: RowSuite::Readahead,
            row: &format!("{}:{reader}", pattern.id()),
            bytes,
            limit: plan.limit,
            places: plan.places,
            seed: round.into(),
            engine: &plan.engine,
            kernel_affinity: None,
        };
        let measured: Measurement = task.run(target)?;
        let keyed = measured.sums.iter().map(|&(reads, sum)| ((pattern.id(), round, reads), sum));
        sums.compare(&format!("{reader} ({})", pattern.name()), keyed)?;
        outcome.stayed_warm |= !was_cold;
        outcome.measurements.push(measured);
        Ok::<_, String>(())
    })?;
    let contest = Contest { plan, target, bytes, host: host(target, &outcomes), rows: rows(&outcomes) };
    Ok(contest.report(&outcomes, refusal).findings())
}

fn host(target: &Target, outcomes: &[Outcome]) -> Host {
    let measurements = outcomes.iter().flat_map(|outcome| &outcome.measurements);
    Host::with_driver(&target.path, measurements.map(|measured| &measured.driver))
}

fn rows(outcomes: &[Outcome]) -> Vec<Row> {
    let mut rows: Vec<Row> = outcomes.iter().map(row).collect();
    for pattern in Pattern::ALL {
        for (name, kernel) in RATIOS {
            let base = find(&rows, pattern, kernel).and_then(|row| row.value(RATE));
            let of_pattern = rows.iter_mut().filter(|row| row.text("pattern") == pattern.id());
            of_pattern.for_each(|row| row.add_ratio(name, RATE, base));
        }
    }
    rows
}

fn row(outcome: &Outcome) -> Row {
    let each =
        |value: fn(&Measurement) -> f64| -> Vec<f64> { outcome.measurements.iter().map(value).collect() };
    let device: Option<Vec<f64>> = outcome
        .measurements
        .iter()
        .map(|one| one.device_bytes.map(|device_bytes| device_bytes as f64 / one.bytes as f64))
        .collect();
    let (reader, measurements) = (outcome.reader, &outcome.measurements);
    let name = format!("{}: {}", outcome.pattern.name(), reader.id());
    Row::new(reader.whose(), name)
        .label("id", format!("{}-{}", outcome.pattern.id(), reader.id()))
        .label("pattern", outcome.pattern.id())
        .label("reader", reader.id())
        .metric(Metric::new(RATE, "MiB/s", Better::Higher, each(|one| one.bytes as f64 / MIB / one.seconds)))
        .metric(
            Metric::new(
                "cpu_s_per_gib",
                "CPU s/GiB",
                Better::Lower,
                each(|one| one.cpu_seconds * GIB / one.bytes as f64),
            )
            .plain(),
        )
        .metric(Metric::new("amplification", "", Better::Lower, device.unwrap_or_default()).plain())
        .label("reads", measurements.iter().map(|measured| measured.reads).min())
        .label("reads_wanted", measurements.iter().map(|measured| measured.reads_wanted).max())
}

fn find(rows: &[Row], pattern: Pattern, reader: Reader) -> Option<&Row> {
    rows.iter().find(|row| row.is(&[("pattern", pattern.id()), ("reader", &reader.id())]))
}

/// All that the report is made of.
struct Contest<'a> {
    plan: &'a Plan,
    target: &'a Target,
    bytes: u64,
    host: Host,
    rows: Vec<Row>,
}

impl Contest<'_> {
    fn report(self, outcomes: &[Outcome], refusal: Option<String>) -> Report {
        let (plan, path, size) = (self.plan, self.target.path.display().to_string(), readable(self.bytes));
        let (rounds, places) = (plan.rounds, plan.places);
        let facts =
            [("Read", format!("up to {size} of {}", place_words(&path))), ("Rounds", rounds.to_string())];
        let head =
            format!("up to {size} of {path}, made cold before each row; {}, medians", rounds::words(rounds));
        let section = Section {
            id: "readahead",
            title: TITLE.to_owned(),
            question: "What does readahead make of a cold file that is read in some order?".to_owned(),
            answer: self.answer().unwrap_or_default(),
            figures: self.figures(),
            methods: vec![self.method()],
            notes: notes(outcomes, refusal),
            ..Section::default()
        };
        let mut report = suite::report(&self.host, self.target, head, facts, section);
        report.fields.extend([
            ("bytes", json!(self.bytes)),
            ("places", json!(places)),
            ("rounds", json!(rounds)),
        ]);
        let tail = [
            "kernel and the kilobytes of its readahead; all others by headwater, named after their readahead",
            "device: bytes read from it for each byte wanted",
        ];
        Report { tail: tail.map(str::to_owned).to_vec(), rows: self.rows, ..report }
    }

    /// The reader that the kernel is compared with: the last named.
    fn ours(&self) -> Option<Reader> {
        self.plan.readers().pop()
    }

    fn of_ours(&self, pattern: Pattern) -> Option<&Row> {
        find(&self.rows, pattern, self.ours()?)
    }

    /// headwater's row of each pattern, and how many times the kernel's rate that is.
    fn compared(&self, ratio: &str) -> Vec<(Pattern, f64)> {
        let of = |pattern| Some((pattern, self.of_ours(pattern)?.value(ratio)?));
        Pattern::ALL.into_iter().filter_map(of).collect()
    }

    fn answer(&self) -> Option<String> {
        let compared = self.compared(RATIOS[0].0);
        let ordered = |left: &&(Pattern, f64), right: &&(Pattern, f64)| left.1.total_cmp(&right.1);
        let (best, worst) = (compared.iter().max_by(ordered)?, compared.iter().min_by(ordered)?);
        let middle = |compared: &[(Pattern, f64)]| median(compared.iter().map(|(_, ratio)| *ratio));
        let common = self.compared(RATIOS[1].0);
        let against_common = match common.is_empty() {
            true => String::new(),
            false => {
                format!(
                    ", and at {:.2} × that of the {}",
                    middle(&common),
                    self.kernel_words(Reader::Kernel128)
                )
            }
        };
        Some(format!(
            "In the median of {} orders headwater reads at {:.2} × the rate of the {}{against_common}; it is {:.2} × in the \
             worst ({}) and {:.2} × in the best ({}).",
            compared.len(),
            middle(&compared),
            self.kernel_words(Reader::Kernel),
            worst.1,
            worst.0.name(),
            best.1,
            best.0.name()
        ))
    }

    fn figures(&self) -> Vec<Figure> {
        let ratios = self.ratios().map(Figure::Bars);
        let overview =
            [Figure::HeatMap(self.overview()), Figure::Table(self.text()), Figure::Table(self.rates())];
        ratios.into_iter().chain(overview).collect()
    }

    /// A line for each order, a reader beside the other.
    fn text(&self) -> Table {
        let readers = self.plan.readers();
        let mut columns = vec!["cold reads, MiB/s".to_owned()];
        for reader in &readers {
            columns.extend([self.reader_head(*reader), "device".to_owned()]);
        }
        let ours = self.ours().map_or(String::new(), |reader| reader.short());
        columns.extend(RATIOS.map(|(_, kernel)| format!("{ours} : {}", self.reader_head(kernel))));
        let line = |pattern: Pattern| {
            let mut cells = vec![pattern.name().to_owned()];
            for reader in &readers {
                let value = |metric| find(&self.rows, pattern, *reader).and_then(|row| row.value(metric));
                cells.extend([shown(value(RATE), 0), shown(value("amplification"), 2)]);
            }
            let ratio = |name| self.of_ours(pattern).and_then(|row| row.value(name));
            cells.extend(RATIOS.map(|(name, _)| shown(ratio(name), 2)));
            (Whose::Headwater, cells)
        };
        let rows = Pattern::ALL.into_iter().map(line).collect();
        let minor = (0..readers.len()).map(|reader| 2 + 2 * reader).collect();
        Table { caption: String::new(), columns, minor, rows, media: Media::Text }
    }

    /// All rates at a glance: which reader suits which order.
    fn overview(&self) -> HeatMap {
        let has_rows = |reader: &Reader| self.rows.iter().any(|row| row.text("reader") == reader.id());
        let readers: Vec<Reader> = self.plan.readers().into_iter().filter(has_rows).collect();
        let rate = |pattern, reader: &Reader| find(&self.rows, pattern, *reader)?.value(RATE);
        let cells = |pattern| readers.iter().map(|reader| rate(pattern, reader)).collect();
        let orders = Pattern::ALL.map(|pattern| pattern.name().to_owned()).to_vec();
        HeatMap {
            caption: "Rates by order and reader".to_owned(),
            unit: "MiB/s",
            across: ("reader".to_owned(), readers.iter().map(|reader| self.reader_words(*reader)).collect()),
            down: ("order of reads".to_owned(), orders),
            cells: Pattern::ALL.into_iter().map(cells).collect(),
            chosen: None,
        }
    }

    fn ratios(&self) -> Option<Bars> {
        let bar = |label: &str, value, whose| {
            let label = label.to_owned();
            Bar { label, value, spread: (value, value), whose, note: String::new() }
        };
        let compared = self.compared(RATIOS[0].0);
        let ours = compared.iter().map(|&(pattern, ratio)| bar(pattern.name(), ratio, Whose::Headwater));
        let words = self.kernel_words(Reader::Kernel);
        let bars = [bar(&words, 1.0, Whose::Peer)].into_iter().chain(ours).collect();
        let caption = format!("Rate of headwater against the {words}, by order of reads");
        let bars = Bars { caption, unit: "× the kernel's rate", better: Better::Higher, bars };
        (!compared.is_empty()).then_some(bars)
    }

    fn rates(&self) -> Table {
        let name = |row: &Row| {
            let (pattern, _) = row.name.split_once(": ").unwrap_or_default();
            let reader = Reader::of_id(row.text("reader"));
            format!("{pattern}: {}", reader.map_or(String::new(), |reader| self.reader_words(reader)))
        };
        let kernel = |(ratio, kernel)| Column::value(format!("× {}", self.reader_words(kernel)), ratio, 2);
        let columns = [
            Column::new("order: reader", name),
            Column::value("MiB/s", RATE, 0),
            Column::spread(RATE, 0),
            Column::value("CPU s/GiB", "cpu_s_per_gib", 3),
            Column::value("device bytes per byte", "amplification", 2),
        ];
        let columns: Vec<Column<'_>> = columns.into_iter().chain(RATIOS.map(kernel)).collect();
        Table { media: Media::Page, ..Table::of("All orders and readers", &columns, &self.rows) }
    }

    fn kernel_words(&self, kernel: Reader) -> String {
        let size = match (kernel, self.host.storage.read_ahead_kb) {
            (Reader::Kernel, None) => "as the device is set".to_owned(),
            (Reader::Kernel, Some(kib)) => format!("of {kib} KiB"),
            _ => format!("of {READ_AHEAD_KB} KiB"),
        };
        format!("kernel with readahead {size}")
    }

    /// For the text, whose columns are narrow.
    fn reader_head(&self, reader: Reader) -> String {
        match (reader, self.host.storage.read_ahead_kb) {
            (Reader::Kernel, Some(kib)) => format!("kernel {kib}K"),
            (Reader::Kernel128, _) => format!("kernel {READ_AHEAD_KB}K"),
            _ => reader.short(),
        }
    }

    fn reader_words(&self, reader: Reader) -> String {
        match (reader, self.host.storage.read_ahead_kb) {
            (Reader::Kernel, Some(kib)) => format!("kernel, {kib} KiB"),
            (Reader::Kernel, None) => "kernel".to_owned(),
            (Reader::Kernel128, _) => format!("kernel, {READ_AHEAD_KB} KiB"),
            (Reader::Headwater(_), _) => format!("headwater, {}", reader.short()),
        }
    }

    fn method(&self) -> Method {
        let how = format!(
            "Each row is measured in a child process of its own, after the kernel was made to forget the file \
             (posix_fadvise, POSIX_FADV_DONTNEED), and all readers of an order must read the same bytes. The kernel's \
             rows are pread(2) through the page cache, with the readahead the device is set to, or with {READ_AHEAD_KB} \
             KiB, which most systems have; headwater's are File::read_at. Device bytes per byte is what the process \
             asked of devices (/proc/self/io) for each byte it wanted. {}",
            rounds::sentence(self.plan.rounds)
        );
        let options = "--rw=randread --ioengine=psync --direct=0 --invalidate=1 --fadvise_hint=0 --bs=4k";
        let options = format!("{options} --number_ios={}", self.plan.places);
        Method::new("All rows; the line is random, 4 KiB, by the kernel", how)
            .fio(FioFile::of(self.target, self.bytes).job("random", &options))
    }
}

fn notes(outcomes: &[Outcome], refusal: Option<String>) -> Vec<String> {
    let refusal =
        refusal.map(|reason| format!("no rows with a kernel readahead of {READ_AHEAD_KB} KiB: {reason}"));
    let is_cut = |outcome: &&Outcome| outcome.measurements.iter().any(|one| one.reads < one.reads_wanted);
    let cut = outcomes.iter().filter(is_cut);
    let cut: Vec<String> =
        cut.map(|outcome| format!("{} by {}", outcome.pattern.id(), outcome.reader.id())).collect();
    let cut = (!cut.is_empty()).then(|| format!("time was up before the end: {}", cut.join("; ")));
    let is_warm = outcomes.iter().any(|outcome| outcome.stayed_warm);
    let warm = is_warm.then(|| "the page cache kept some of the file, so not all rows were cold".to_owned());
    [refusal, cut, warm].into_iter().flatten().collect()
}

const RATE: &str = "mib_per_s";

/// Against which kernel.
const RATIOS: [(&str, Reader); 2] = [("ratio", Reader::Kernel), ("ratio_128", Reader::Kernel128)];

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

/// Of the section.
pub(super) const TITLE: &str = "Readahead";
