//! Cache: reads of what is cached, by headwater, `pread` and `mmap`.
//!
//! Question: What does it cost to read again what is cached, and does a second thread help?
//!
//! ```text
//!   rounds × sources: a child each ─► fill the source's cache, check ─► accesses × threads: random reads ─► medians
//! ```
//!
//! Owns: sources, accesses, what is said of them.
//! Does not own: filling and reading (`row`).

mod row;

use std::time::Duration;

use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::verdict::Outcome;
use headwater_measure::{
    Bars, Better, Column, Comparison, Figure, Findings, Media, Method, Metric, Report, Row, Section, Table,
    Whose, median, rounds,
};
use serde::Serialize;
use serde_json::json;

pub(super) use row::measure as measure_row;

use super::suite::{self, Task};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::target::{Target, place_words};
use crate::shared::units::{ByteSize, readable};
use row::{Cell, Measured};

pub(super) struct Plan {
    pub(super) set_bytes: u64,
    pub(super) rounds: u32,
    /// For one cell of one row.
    pub(super) limit: Duration,
    pub(super) queue: QueueArguments,
}

/// Whose cache is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// headwater's own memory.
    Headwater,
    /// The kernel's page cache, a system call for each read.
    Pread,
    /// The kernel's page cache, mapped.
    Mapped,
}

impl Source {
    const ALL: [Source; 3] = [Source::Headwater, Source::Pread, Source::Mapped];

    fn id(self) -> &'static str {
        match self {
            Source::Headwater => "headwater",
            Source::Pread => "pread",
            Source::Mapped => "mmap",
        }
    }

    fn whose(self) -> Whose {
        if self == Source::Headwater { Whose::Headwater } else { Whose::Peer }
    }
}

/// What one read takes. Another way to read (several places in one call, say) is a row here and an arm in `row`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// A number somewhere in a page.
    Word,
    Page,
    /// Sixteen pages.
    Extent,
}

impl Access {
    const ALL: [Access; 3] = [Access::Word, Access::Page, Access::Extent];

    fn bytes(self) -> u64 {
        match self {
            Access::Word => 8,
            Access::Page => 4 << 10,
            Access::Extent => EXTENT_BYTES,
        }
    }
}

/// One thread, and two that must not be in each other's way.
const THREADS: [u32; 2] = [1, 2];

type Sources = [(Source, Vec<Measured>)];

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let set_bytes = plan.set_bytes.min(target.bytes) / EXTENT_BYTES * EXTENT_BYTES;
    if set_bytes == 0 {
        return Err(format!("a set of {} is too small, it takes at least 64K", ByteSize(target.bytes)));
    }
    let memory = ByteSize((set_bytes + set_bytes / 4).max(MEMORY_BYTES_MIN));
    let engine = EngineArguments { memory, queue: plan.queue.clone() };
    let mut measured = Source::ALL.map(|source| (source, Vec::new()));
    let name = |(source, _): &(Source, _)| format!("cached reads by {}", source.id());
    rounds::with_progress(&mut measured, plan.rounds, name, |(source, results), round| {
        // What the kernel holds must not be what headwater's rows read from.
        target.make_cold();
        let (suite, row, limit) = (RowSuite::Cache, source.id(), plan.limit);
        let task = Task {
            suite,
            row,
            bytes: set_bytes,
            limit,
            places: u64::MAX,
            seed: round.into(),
            engine: &engine,
            kernel_affinity: None,
        };
        results.push(task.run(target)?);
        Ok::<_, String>(())
    })?;
    Ok(report(plan, target, set_bytes, &measured).findings())
}

fn report(plan: &Plan, target: &Target, set_bytes: u64, measured: &Sources) -> Report {
    let drivers = measured.iter().flat_map(|(_, rounds)| rounds).map(|round| &round.driver);
    let host = Host::with_driver(&target.path, drivers);
    let kinds = Access::ALL.into_iter().flat_map(|access| THREADS.map(|threads| (access, threads)));
    let rows = kinds.flat_map(|(access, threads)| {
        measured.iter().map(move |(source, _)| row(measured, *source, access, threads))
    });
    let rows: Vec<Row> = rows.collect();
    let caches: Vec<CacheState> = measured.iter().map(state).collect();
    let (pages, seconds) = (set_bytes / PAGE_SIZE_BYTES, plan.limit.as_secs_f64());
    let (path, set) = (target.path.display().to_string(), readable(set_bytes));
    let head = format!(
        "random reads of a cached set of {set} in {path}; {} of {seconds} s, medians",
        rounds::words(plan.rounds)
    );
    let facts = [("Set", format!("{set} in {}", place_words(&path))), ("Rounds", plan.rounds.to_string())];
    let section = Section {
        id: "cache",
        title: TITLE.to_owned(),
        question: "What does it cost to read again what is cached, and does a second thread help?".to_owned(),
        answer: answer(&rows),
        figures: figures(&rows, &caches, pages),
        methods: methods(plan, set_bytes, &FioFile::of(target, set_bytes)),
        notes: caches.iter().filter_map(|cache| cache.note(pages)).collect(),
        ..Section::default()
    };
    let mut report = suite::report(&host, target, head, facts, section);
    report.head.extend(caches.iter().map(|cache| cache.text(pages)));
    report.fields.extend([
        ("set_bytes", json!(set_bytes)),
        ("rounds", json!(plan.rounds)),
        ("seconds", json!(seconds)),
        ("caches", json!(caches)),
    ]);
    Report { rows, ..report }
}

fn row(measured: &Sources, source: Source, access: Access, threads: u32) -> Row {
    let cells = |source, threads| cells(measured, source, access, threads);
    let rate = |source, threads| median(cells(source, threads).map(|cell| cell.reads_per_s));
    // As one thread waits for it.
    let waited = cells(source, threads).map(|cell| 1e9 * f64::from(threads) / cell.reads_per_s);
    let cpu = cells(source, threads).map(|cell| 1e9 * cell.cpu_seconds / cell.reads as f64);
    let rates = cells(source, threads).map(|cell| cell.reads_per_s);
    let rate_here = rate(source, threads);
    Row::new(source.whose(), format!("{}, {}", readable(access.bytes()), source.id()))
        .label("id", format!("{}-{}-{threads}", source.id(), access.bytes()))
        .named()
        .label("source", source.id())
        .label("bytes", access.bytes())
        .label("threads", threads)
        .metric(Metric::new("ns_per_read", "ns per read", Better::Lower, waited))
        .metric(Metric::new("cpu_ns_per_read", "CPU ns", Better::Lower, cpu))
        .metric(Metric::new("reads_per_s", "reads/s", Better::Higher, rates))
        .metric(Metric::only("gb_per_s", Some(rate_here * access.bytes() as f64 / 1e9)))
        .metric(Metric::only("ratio_to_pread", Some(rate_here / rate(Source::Pread, threads))))
        .metric(Metric::only("scaling", (threads > 1).then(|| rate_here / rate(source, 1))))
}

fn cells(
    measured: &Sources,
    source: Source,
    access: Access,
    threads: u32,
) -> impl Iterator<Item = Cell> + Clone {
    let rounds = measured.iter().filter(move |(known, _)| *known == source).flat_map(|(_, rounds)| rounds);
    let cells = rounds.flat_map(|round| round.cells.iter().copied());
    cells.filter(move |cell| cell.bytes == access.bytes() && cell.threads == threads)
}

/// headwater's reads by one thread, each against the faster of the other two.
fn answer(rows: &[Row]) -> String {
    let each = Access::ALL.into_iter().filter_map(|access| {
        let of = |row: &&Row| row.number("bytes") == access.bytes() && row.number("threads") == 1;
        let rivals = Comparison::of_best(rows.iter().filter(of), "reads_per_s")?;
        let (ns, bytes) = (rivals.ours.value("ns_per_read")?, readable(access.bytes()));
        let pread = rivals.ours.value("ratio_to_pread")?;
        let theirs = rivals.theirs.text("source");
        let best = match rivals.outcome {
            _ if theirs == Source::Pread.id() => String::new(),
            Outcome::NoDifference => format!(" and no difference to {theirs}"),
            _ => format!(" and {:.2} × {theirs}", rivals.ratio),
        };
        Some(format!("{bytes} in {ns:.0} ns, {pread:.2} × pread{best}"))
    });
    format!("headwater reads {}", each.collect::<Vec<_>>().join("; "))
}

fn figures(rows: &[Row], caches: &[CacheState], pages: u64) -> Vec<Figure> {
    let text = Table::of(
        "All rows",
        &[
            Column::names("cached random read"),
            Column::new("threads", |row| row.number("threads").to_string()),
            Column::value("ns/read", "ns_per_read", 1),
            Column::value("CPU ns", "cpu_ns_per_read", 1).minor(3),
            Column::scaled("M reads/s", "reads_per_s", 1e-6, 3).minor(4),
            Column::value("GB/s", "gb_per_s", 2).minor(2),
            Column::value("× pread", "ratio_to_pread", 2),
            Column::value("scaling", "scaling", 2).minor(1),
        ],
        rows,
    );
    let bars = Access::ALL.into_iter().map(|access| {
        let caption =
            format!("Random reads of {} from a cache, as one thread waits", readable(access.bytes()));
        let of_access = rows.iter().filter(|row| row.number("bytes") == access.bytes());
        let bars = Bars::labelled(caption, "ns_per_read", of_access, |row| match row.number("threads") {
            1 => format!("{}, 1 thread", row.text("source")),
            threads => format!("{}, {threads} threads", row.text("source")),
        });
        Figure::Bars(bars)
    });
    let known = |pages: Option<u64>| pages.map_or("unknown".to_owned(), |pages| pages.to_string());
    let residency = Table {
        caption: format!("Where the set of {pages} pages was, in pages"),
        columns: ["read by", "page cache before", "page cache after", "headwater's cache"]
            .map(str::to_owned)
            .to_vec(),
        rows: caches
            .iter()
            .map(|cache| {
                let held = cache.held_bytes.map_or("-".to_owned(), readable);
                let [before, after] = [cache.kernel_pages_before, cache.kernel_pages_after].map(known);
                (cache.whose(), vec![cache.source.to_owned(), before, after, held])
            })
            .collect(),
        minor: Vec::new(),
        media: Media::Page,
    };
    bars.chain([Figure::Table(text), Figure::Table(residency)]).collect()
}

fn methods(plan: &Plan, set_bytes: u64, fio_file: &FioFile) -> Vec<Method> {
    let how = format!(
        "A set of {} is made cold (posix_fadvise, POSIX_FADV_DONTNEED). Then a child process for each of the \
         three fills its cache by reading the set, counts which of its pages are where, and reads at random \
         places for {} s a row, with one thread and with two that have a file descriptor in common. {}",
        readable(set_bytes),
        plan.limit.as_secs_f64(),
        rounds::sentence(plan.rounds)
    );
    let options = "--rw=randread --ioengine=psync --direct=0 --invalidate=0 --pre_read=1 --bs=4k --runtime=5 --time_based";
    let ours = "File::read_at from headwater's own memory; the kernel's page cache holds nothing of the set.";
    let mapped =
        "A copy from the mapped page cache: no system call, and a page fault for each page at first.";
    vec![
        Method::new("All rows", how),
        Method::new("headwater", ours),
        Method::new("pread", "pread(2) from the kernel's page cache, a system call for each read.")
            .fio(fio_file.job("cached", options)),
        Method::new("mmap", mapped),
    ]
}

/// Where the set was while it was read.
#[derive(Serialize)]
struct CacheState {
    source: &'static str,
    /// The fewest of all rounds before the first read.
    kernel_pages_before: Option<u64>,
    /// The most of all rounds after the last read.
    kernel_pages_after: Option<u64>,
    held_bytes: Option<u64>,
}

fn state((source, rounds): &(Source, Vec<Measured>)) -> CacheState {
    CacheState {
        source: source.id(),
        kernel_pages_before: rounds.iter().filter_map(|round| round.kernel_pages[0]).min(),
        kernel_pages_after: rounds.iter().filter_map(|round| round.kernel_pages[1]).max(),
        held_bytes: rounds.iter().filter_map(|round| round.held_bytes).min(),
    }
}

impl CacheState {
    fn whose(&self) -> Whose {
        if self.source == Source::Headwater.id() { Whose::Headwater } else { Whose::Peer }
    }

    fn text(&self, pages: u64) -> String {
        let known = |pages: Option<u64>| pages.map_or("?".to_owned(), |pages| pages.to_string());
        let held = self.held_bytes.map(|bytes| format!(", {} in headwater's cache", readable(bytes)));
        format!(
            "  {:<10} {} of {pages} pages in the kernel's page cache before, {} after{}",
            self.source,
            known(self.kernel_pages_before),
            known(self.kernel_pages_after),
            held.unwrap_or_default()
        )
    }

    /// Whether the reads were answered by the cache that they are to measure.
    fn note(&self, pages: u64) -> Option<String> {
        let source = self.source;
        if self.whose() != Whose::Headwater {
            let missing = self.kernel_pages_before.is_some_and(|before| before < pages);
            return missing.then(|| format!("the kernel did not keep all of the set for {source}"));
        }
        if self.kernel_pages_after.is_some_and(|after| after > pages / 10) {
            return Some(
                "the kernel cached much of the set too, and may have answered for headwater".to_owned(),
            );
        }
        match self.held_bytes {
            Some(held_bytes) if held_bytes >= pages * PAGE_SIZE_BYTES => None,
            Some(held_bytes) => Some(format!("headwater kept only {} of the set", readable(held_bytes))),
            None => Some("this headwater has no cache of its own: its rows read from the device".to_owned()),
        }
    }
}

/// The largest read, which sets consist of.
const EXTENT_BYTES: u64 = 64 << 10;

/// A quarter more than a small set is not much.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// Of the section.
pub(super) const TITLE: &str = "Cached reads";
