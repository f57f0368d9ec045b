//! Report: the table and the JSON of a cache suite.
//!
//! Owns: what counts of several rounds, the words and columns.
//! Does not own: the measurements.

mod figures;

use serde::Serialize;

use super::{Access, Cell, Measured, Plan, Source, THREADS};
use crate::bench::file::Target;
use crate::bench::host::Host;
use crate::bench::report::FioFile;
use crate::bench::suite::{PAGE_BYTES, median, rounds_words};
use crate::shared::units::readable;

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Host,
    path: String,
    set_bytes: u64,
    rounds: u32,
    seconds: f64,
    rows: Vec<Line>,
    caches: Vec<CacheState>,
    notes: Vec<String>,
    #[serde(skip)]
    fio_file: FioFile,
}

#[derive(Serialize)]
struct Line {
    id: String,
    name: String,
    source: &'static str,
    bytes: u64,
    threads: u32,
    /// As one thread waits for it.
    ns_per_read: f64,
    ns_per_read_min: f64,
    ns_per_read_max: f64,
    cpu_ns_per_read: f64,
    reads_per_s: f64,
    gb_per_s: f64,
    ratio_to_pread: f64,
    /// The rate of all threads against that of one.
    scaling: Option<f64>,
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

type Sources = [(Source, Vec<Measured>)];

impl Report {
    pub(super) fn new(plan: &Plan, target: &Target, set_bytes: u64, measured: &Sources) -> Report {
        let mut host = Host::of(&target.path);
        host.driver = measured.iter().flat_map(|(_, rounds)| rounds).find_map(|round| round.driver.clone());
        let kinds = Access::ALL.into_iter().flat_map(|access| THREADS.map(|threads| (access, threads)));
        let rows = kinds.flat_map(|(access, threads)| {
            measured.iter().map(move |(source, _)| line(measured, *source, access, threads))
        });
        let caches: Vec<CacheState> = measured.iter().map(state).collect();
        let pages = set_bytes / PAGE_BYTES;
        Report {
            suite: "cache",
            host,
            path: target.path.display().to_string(),
            set_bytes,
            rounds: plan.rounds,
            seconds: plan.limit.as_secs_f64(),
            rows: rows.collect(),
            notes: caches.iter().filter_map(|cache| cache.note(pages)).collect(),
            caches,
            fio_file: FioFile::of(target, set_bytes),
        }
    }

    pub(super) fn text(&self) -> String {
        let head = format!(
            "random reads of a cached set of {} in {}; {} of {} s, medians",
            readable(self.set_bytes),
            self.path,
            rounds_words(self.rounds),
            self.seconds
        );
        let mut lines = vec![self.host.line(), head];
        lines.extend(self.caches.iter().map(|cache| cache.text(self.set_bytes / PAGE_BYTES)));
        lines.push(String::new());
        lines.push(format!(
            "{:<20}  {:>7}  {:>9}  {:>9}  {:>9}  {:>7}  {:>7}  {:>7}",
            "cached random read", "threads", "ns/read", "CPU ns", "M reads/s", "GB/s", "× pread", "scaling"
        ));
        lines.extend(self.rows.iter().map(Line::text));
        lines.push(String::new());
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(self.verdict());
        lines.join("\n") + "\n"
    }

    fn verdict(&self) -> String {
        let ours = self.rows.iter().filter(|row| row.source == Source::Headwater.id() && row.threads == 1);
        let each = ours.map(|row| {
            format!("{} in {:.0} ns, {:.2} × pread", readable(row.bytes), row.ns_per_read, row.ratio_to_pread)
        });
        format!("headwater reads {}", each.collect::<Vec<_>>().join("; "))
    }
}

impl Line {
    fn text(&self) -> String {
        let scaling = self.scaling.map_or("-".to_owned(), |scaling| format!("{scaling:.2}"));
        format!(
            "{:<20}  {:>7}  {:>9.1}  {:>9.1}  {:>9.3}  {:>7.2}  {:>7.2}  {scaling:>7}",
            self.name,
            self.threads,
            self.ns_per_read,
            self.cpu_ns_per_read,
            self.reads_per_s / 1e6,
            self.gb_per_s,
            self.ratio_to_pread,
        )
    }
}

fn line(measured: &Sources, source: Source, access: Access, threads: u32) -> Line {
    let rate =
        |source, threads| median(cells(measured, source, access, threads).map(|cell| cell.reads_per_s));
    let reads_per_s = rate(source, threads);
    let waited_ns = |reads_per_s: f64| 1e9 * f64::from(threads) / reads_per_s;
    let rounds_ns = || cells(measured, source, access, threads).map(|cell| waited_ns(cell.reads_per_s));
    let cpu = cells(measured, source, access, threads).map(|cell| cell.cpu_seconds / cell.reads as f64);
    Line {
        id: format!("{}-{}-{threads}", source.id(), access.bytes()),
        name: format!("{}, {}", readable(access.bytes()), source.id()),
        source: source.id(),
        bytes: access.bytes(),
        threads,
        ns_per_read: waited_ns(reads_per_s),
        ns_per_read_min: rounds_ns().fold(f64::INFINITY, f64::min),
        ns_per_read_max: rounds_ns().fold(0.0, f64::max),
        cpu_ns_per_read: 1e9 * median(cpu),
        reads_per_s,
        gb_per_s: reads_per_s * access.bytes() as f64 / 1e9,
        ratio_to_pread: reads_per_s / rate(Source::Pread, threads),
        scaling: (threads > 1).then(|| reads_per_s / rate(source, 1)),
    }
}

fn cells(measured: &Sources, source: Source, access: Access, threads: u32) -> impl Iterator<Item = Cell> {
    let rounds = measured.iter().filter(move |(known, _)| *known == source).flat_map(|(_, rounds)| rounds);
    let cells = rounds.flat_map(|round| round.cells.iter().copied());
    cells.filter(move |cell| cell.bytes == access.bytes() && cell.threads == threads)
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
        if source != Source::Headwater.id() {
            let missing = self.kernel_pages_before.is_some_and(|before| before < pages);
            return missing.then(|| format!("the kernel did not keep all of the set for {source}"));
        }
        if self.kernel_pages_after.is_some_and(|after| after > pages / 10) {
            return Some(
                "the kernel cached much of the set too, and may have answered for headwater".to_owned(),
            );
        }
        match self.held_bytes {
            Some(held_bytes) if held_bytes >= pages * PAGE_BYTES => None,
            Some(held_bytes) => Some(format!("headwater kept only {} of the set", readable(held_bytes))),
            None => Some("this headwater has no cache of its own: its rows read from the device".to_owned()),
        }
    }
}
