//! Scan: one cold file from start to end, in every way there is.
//!
//! Question: How fast is it, and what does it cost?
//!
//! ```text
//!   file ─► rounds × ways: make cold ─► child (bench-row) ─► measurement ─► rows ─► report
//! ```
//!
//! Owns: what is measured on which part of the file, the comparison of the sums.
//! Does not own: the ways (`ways`), the loops (`row`), the sentence for the whole page (`headline`).

mod row;
mod ways;

use std::time::Duration;

use headwater::testing::device_polls;
use headwater_measure::verdict;
use headwater_measure::{
    Bars, Better, Column, Comparison, Figure, Findings, Media, Method as How, Metric, Report, Row, Section,
    Skipped, Table, Whose, rounds,
};
use serde_json::json;

pub(super) use row::measure as measure_row;

use super::headline::{self, CPU, Cold, RATE, fastest};
use super::suite::{self, Task};
use super::tally::{SUM_BYTES, Sums};
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::EngineArguments;
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::target::{Target, place_words};
use crate::shared::units::readable;
use crate::shared::units::{GIB, MIB};
use row::Measurement;
use ways::{BUFFERED_ID, IDLE_ID, Method, Way};

pub(super) struct Plan {
    pub(super) rounds: u32,
    /// For one measurement of one row.
    pub(super) limit: Duration,
    pub(super) engine: EngineArguments,
    /// The rows to measure; none of them is all.
    pub(super) only: Vec<String>,
}

impl Plan {
    /// Without the steps, of which two take all the time they get.
    pub(super) fn quick(rounds: u32, limit: Duration, engine: EngineArguments) -> Plan {
        let only = ways::quick(&engine).into_iter().map(|way| way.id).collect();
        Plan { rounds, limit, engine, only }
    }

    /// # Errors
    /// Which row there is not, as a sentence for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let ids: Vec<String> = ways::all(&self.engine).into_iter().map(|way| way.id).collect();
        match self.only.iter().find(|id| !ids.contains(id)) {
            None => Ok(()),
            Some(id) => Err(format!("--only {id}: there is no such row; the rows are {}", ids.join(", "))),
        }
    }

    fn ways(&self) -> impl Iterator<Item = Way> {
        let is_wanted = |way: &Way| self.only.is_empty() || self.only.contains(&way.id);
        ways::all(&self.engine).into_iter().filter(is_wanted)
    }
}

/// A way and what it took, a measurement a round.
struct Outcome {
    way: Way,
    measurements: Vec<Measurement>,
    /// In some round the page cache still held a part of the file.
    stayed_warm: bool,
}

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
    for way in plan.ways() {
        match reason_to_skip(&way, target) {
            None => outcomes.push(Outcome { way, measurements: Vec::new(), stayed_warm: false }),
            Some(reason) => skipped.push(Skipped::new(way.id, way.name, reason)),
        }
    }
    let mut scan = Scan { plan, target, sums: Sums::new(), idle_rss_kib: 0, buffered_bytes: target.bytes };
    let name = |outcome: &Outcome| outcome.way.name.clone();
    rounds::with_progress(&mut outcomes, plan.rounds, name, |outcome, _| scan.measure(outcome))?;
    Ok(scan.report(&outcomes, skipped).findings())
}

struct Scan<'a> {
    plan: &'a Plan,
    target: &'a Target,
    sums: Sums<u64>,
    /// The most that a process has that does nothing.
    idle_rss_kib: u64,
    /// How much buffered reads manage in their time.
    buffered_bytes: u64,
}

impl Scan<'_> {
    fn measure(&mut self, outcome: &mut Outcome) -> Result<(), String> {
        if self.idle_rss_kib == 0 {
            self.idle_rss_kib = self.child(IDLE_ID, self.target.bytes)?.peak_rss_kib;
        }
        let was_cold = self.target.make_cold();
        let way = &outcome.way;
        let measured = self.child(&way.id, self.bytes_for(way.method))?;
        self.sums.compare(&way.name, measured.sums.iter().copied())?;
        if way.id == BUFFERED_ID {
            self.buffered_bytes = measured.bytes;
        }
        outcome.stayed_warm |= !was_cold;
        outcome.measurements.push(measured);
        Ok(())
    }

    /// A mapping cannot stop when time is up, so it gets as much as buffered reads manage within it.
    fn bytes_for(&self, method: Method) -> u64 {
        match method {
            Method::Mapped(_) => self.buffered_bytes.next_multiple_of(SUM_BYTES).min(self.target.bytes),
            _ => self.target.bytes,
        }
    }

    fn child(&self, row_id: &str, bytes: u64) -> Result<Measurement, String> {
        let (suite, limit, engine) = (RowSuite::Scan, self.plan.limit, &self.plan.engine);
        Task { suite, row: row_id, bytes, limit, places: u64::MAX, seed: 0, engine, kernel_affinity: None }
            .run(self.target)
    }

    fn report(&self, outcomes: &[Outcome], skipped: Vec<Skipped>) -> Report {
        let (target, rounds) = (self.target, self.plan.rounds);
        let drivers = outcomes.iter().flat_map(|outcome| &outcome.measurements).map(|one| &one.driver);
        let host = Host::with_driver(&target.path, drivers);
        let mut rows: Vec<Row> = outcomes.iter().map(|outcome| self.row(outcome)).collect();
        let buffered = rows.iter().find(|row| row.is(&[("id", BUFFERED_ID)])).and_then(|row| row.value(RATE));
        rows.iter_mut().for_each(|row| row.add_ratio("ratio_to_buffered", RATE, buffered));
        let fio_file = FioFile::of(target, target.bytes);
        let (fio, path) = (fio_file.limit("read"), target.path.display().to_string());
        let size = readable(target.bytes);
        let what = |path: &str| match target.is_made {
            true => format!("{size} made in {path} and removed"),
            false => format!("{size} of {path}"),
        };
        let head = format!("{}; made cold before each row, {}, medians", what(&path), rounds::words(rounds));
        let facts = [("File", what(place_words(&path))), ("Rounds", rounds.to_string())];
        let section = Section {
            id: "scan",
            title: TITLE.to_owned(),
            question: "How fast is a cold file read from start to end, and what does that cost?".to_owned(),
            answer: answer(&rows).unwrap_or_default(),
            headline: headline(&rows, outcomes),
            figures: figures(&rows),
            methods: methods(&fio_file, rounds, &fio),
            notes: notes(outcomes),
            ..Section::default()
        };
        let file = json!({"path": path, "bytes": target.bytes, "made_for_this": target.is_made});
        let mut report = suite::report(&host, target, head, facts, section);
        report.fields.extend([("file", file), ("rounds", json!(rounds)), ("fio", json!(fio))]);
        Report { commands: vec![format!("the device's limit: {fio}")], rows, skipped, ..report }
    }

    fn row(&self, outcome: &Outcome) -> Row {
        let each = |value: &dyn Fn(&Measurement) -> f64| -> Vec<f64> {
            outcome.measurements.iter().map(value).collect()
        };
        let rates = each(&|measured| measured.bytes as f64 / MIB / measured.seconds);
        let cpu = each(&|measured| measured.cpu_seconds * GIB / measured.bytes as f64);
        let peaks = each(&|one| one.peak_rss_kib.saturating_sub(self.idle_rss_kib) as f64 / 1024.0);
        let way = &outcome.way;
        let read_bytes = outcome.measurements.iter().map(|measured| measured.bytes).min();
        let slice_bytes = read_bytes.filter(|&bytes| bytes < self.target.bytes);
        let whose = if way.method.is_headwater() { Whose::Headwater } else { Whose::Peer };
        let mut row = Row::new(whose, way.name.clone())
            .label("id", way.id.clone())
            .named()
            .metric(Metric::new(RATE, "MiB/s", Better::Higher, rates))
            .metric(Metric::new(CPU, "CPU s/GiB", Better::Lower, cpu))
            .metric(Metric::new("peak_rss_mib", "MiB", Better::Lower, peaks).most())
            .label("slice_bytes", slice_bytes);
        row.remark =
            slice_bytes.map_or(String::new(), |bytes| format!("first {} only", readable(bytes & !0xfffff)));
        row
    }
}

fn reason_to_skip(way: &Way, target: &Target) -> Option<String> {
    if let Some(refusal) = target.direct_refusal.as_ref().filter(|_| way.method.is_direct()) {
        return Some(refusal.clone());
    }
    let polls = matches!(way.method, Method::Headwater { polls: true, .. });
    let device_polls = device_polls(&target.path).unwrap_or(false);
    (polls && !device_polls).then(|| "the device does not complete polled I/O".to_owned())
}

fn headline(rows: &[Row], outcomes: &[Outcome]) -> String {
    let was_cold = if outcomes.iter().any(|outcome| outcome.stayed_warm) { Cold::No } else { Cold::Yes };
    let plain = rows.iter().find(|row| row.is(&[("id", BUFFERED_ID)]));
    plain.map_or(String::new(), |plain| headline::sentence(rows, plain, was_cold))
}

/// The winner, what that means against plain reads, and whether the best of the other side is any slower.
fn answer(rows: &[Row]) -> Option<String> {
    let buffered = rows.iter().find(|row| row.is(&[("id", BUFFERED_ID)]))?;
    let (ours, theirs) = (fastest(rows, Whose::Headwater), fastest(rows, Whose::Peer)?);
    let against = |row: &Row| {
        let (rate, cpu) = (row.value(RATE)?, row.value(CPU)? / buffered.value(CPU)?);
        let (ratio, name) = (row.value("ratio_to_buffered")?, &buffered.name);
        Some(format!(
            "{} at {rate:.0} MiB/s, {ratio:.2} × {name}, with {cpu:.2} × its processor time",
            row.name
        ))
    };
    let Some(comparison) = ours.and_then(|ours| Comparison::of(ours, theirs, RATE)) else {
        return Some(format!("fastest: {}", against(theirs)?));
    };
    let (rivals, words) = match comparison.ratio >= 1.0 {
        true => ((comparison.ours, comparison.theirs), "the best other way"),
        false => ((comparison.theirs, comparison.ours), "best of headwater"),
    };
    let (first, second) = (against(rivals.0)?, against(rivals.1)?);
    Some(match comparison.outcome {
        verdict::Outcome::NoDifference => format!("fastest: {first}; no difference to {words}, {second}"),
        _ => format!("fastest: {first}; {words}: {second}"),
    })
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let text = Table {
        media: Media::Text,
        ..Table::of(
            "",
            &[
                Column::names("cold sequential read"),
                Column::value("MiB/s", RATE, 0),
                Column::spread(RATE, 0).minor(2),
                Column::value("CPU s/GiB", CPU, 3).minor(4),
                Column::value("peak MiB", "peak_rss_mib", 1).minor(1),
                Column::value("× buffered", "ratio_to_buffered", 2),
                Column::new("", |row| row.remark.clone()).minor(3),
            ],
            rows,
        )
    };
    let memory = Table {
        media: Media::Page,
        ..Table::of(
            "Memory of the process at its peak, without that of one that does nothing",
            &[
                Column::names("way to read"),
                Column::value("peak, MiB", "peak_rss_mib", 1),
                Column::value("rate, × buffered", "ratio_to_buffered", 2),
                Column::new("read", |row| {
                    if row.remark.is_empty() { "all of it".to_owned() } else { row.remark.clone() }
                }),
            ],
            rows,
        )
    };
    vec![
        Figure::Table(text),
        Figure::Bars(Bars::of("Rate of a cold sequential read", RATE, rows)),
        Figure::Bars(Bars::of("Processor time", CPU, rows)),
        Figure::Table(memory),
    ]
}

fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let warm = outcomes.iter().filter(|outcome| outcome.stayed_warm);
    let warm: Vec<&str> = warm.map(|outcome| &*outcome.way.name).collect();
    let note =
        format!("the page cache kept some of the file, so these rows were not cold: {}", warm.join("; "));
    if warm.is_empty() { Vec::new() } else { vec![note] }
}

fn methods(file: &FioFile, rounds: u32, limit: &str) -> Vec<How> {
    let job = |name: &str, options: &str| file.job(name, &format!("--rw=read {options}"));
    let all = format!(
        "Each row is measured in a child process of its own, so processor time and memory are its own too. Before \
         each, the kernel is told to forget the file (posix_fadvise, POSIX_FADV_DONTNEED), and whether it did is \
         checked. {} Everyone looks at the first byte of each page, and the sums of those must \
         agree. The page cache is never dropped as a whole, so nothing else on the machine is slowed down.",
        rounds::sentence(rounds)
    );
    vec![
        How::new("All rows", all),
        How::new("std buffered", "std::fs::File::read, blocks of that size, through the page cache.")
            .fio(job("buffered", "--ioengine=psync --direct=0 --invalidate=1 --bs=128k")),
        How::new(
            "O_DIRECT",
            "read(2) around the page cache, one request at a time, into an aligned buffer of 4 KiB pages or in a huge page.",
        )
        .fio(job("direct", "--ioengine=psync --direct=1 --bs=1M --mem=mmaphuge")),
        How::new("mmap", "The file is mapped, and a byte of each page is read; with MADV_SEQUENTIAL where that is said.")
            .fio(job("mmap", "--ioengine=mmap --invalidate=1 --bs=4k")),
        How::new(
            "headwater 4 KiB × n and 128 KiB × n",
            "headwater's reader with requests of that size and n of them in flight, whatever the device would like.",
        )
        .fio(job("fixed", "--ioengine=io_uring --direct=1 --bs=128k --iodepth=32 --mem=mmaphuge")),
        How::new(
            "headwater 4 KiB × 1 to 512 KiB × 5",
            "The steps of Glommio's article \"Modern storage is plenty fast. It is the APIs that are bad\": one read of 4 KiB at a time, \
             read ahead, without the copy into a buffer of 4 KiB, in few large requests, and asking the device instead of waiting \
             for its interrupts.",
        )
        .fio(job("step", "--ioengine=io_uring --direct=1 --bs=512k --iodepth=5 --mem=mmaphuge")),
        How::new(
            "headwater tuned",
            "headwater's reader as it comes: zero-copy looks at the frames themselves, copying reads into a buffer of \
             1 MiB, polled asks the device instead of waiting for its interrupts.",
        ),
        How::new("The device's limit", "32 requests of 1 MiB in flight, whose bytes are not looked at.").fio(limit),
    ]
}

/// Of the section.
pub(super) const TITLE: &str = "Cold sequential read";
