//! Contest: ways of doing the same, measured in turn, and what is promised of their rows.
//!
//! ```text
//!   rounds × ways ─► figures of each run ─► a row for each name ─┬─► table
//!                                                                └─► promises ─► ratios against bars
//! ```
//!
//! Owns: the order of runs, the end of a way that fails, which row a promise means.
//! Does not own: what a way does, which promises there are (`bars/promises`).

use std::fmt::Display;
use std::io;
use std::path::Path;

use headwater_measure::process::page_cache_drops;
use headwater_measure::standard::{self, Unread};
use headwater_measure::verdict::best;
use headwater_measure::{
    Better, Column, Comparison, Figure, Figures, Findings, Limit, Metric, Report, Row, Section, Skipped,
    Table, Verdict, Whose, latency, report, result_file, rounds,
};
use serde_json::json;

use crate::tools::{self, about};

/// What one run of a way reports: figures for each of its rows.
pub(crate) type Runs = Vec<(String, Figures)>;

/// Ways that are held against each other.
pub(crate) struct Contest<'a> {
    endings: Vec<String>,
    ways: Vec<Way<'a>>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    needs_page_cache: bool,
    rounds_min: u32,
}

struct Way<'a> {
    name: String,
    is_optional: bool,
    run: Box<dyn Fn() -> io::Result<Runs> + 'a>,
    runs: Runs,
    failure: Option<String>,
}

/// What was found out.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) verdicts: Vec<Verdict>,
    /// The ways that failed and must not.
    pub(crate) failed: Vec<String>,
}

impl Default for Contest<'_> {
    fn default() -> Self {
        let (ways, skipped, notes) = (Vec::new(), Vec::new(), Vec::new());
        let endings = vec![String::new()];
        Contest { endings, ways, skipped, notes, needs_page_cache: false, rounds_min: 0 }
    }
}

impl<'a> Contest<'a> {
    /// Adds a way that gives a row of its name. If it fails, so does the contest, but for [`io::ErrorKind::Unsupported`]: this machine
    /// cannot do it.
    pub(crate) fn way(&mut self, name: impl Into<String>, run: impl Fn() -> io::Result<Figures> + 'a) {
        let name = name.into();
        self.ways.push(Way::new(name.clone(), move || Ok(vec![(name.clone(), run()?)])));
    }

    /// Adds a way that may be missing on this machine: it needs another program, or a setting of the system.
    pub(crate) fn optional(&mut self, name: impl Into<String>, run: impl Fn() -> io::Result<Figures> + 'a) {
        self.way(name, run);
        self.make_optional();
    }

    /// Adds a way that gives several rows.
    pub(crate) fn several(&mut self, name: impl Into<String>, run: impl Fn() -> io::Result<Runs> + 'a) {
        self.ways.push(Way::new(name.into(), run));
    }

    /// The way that was added last may be missing on this machine.
    pub(crate) fn make_optional(&mut self) {
        self.ways.last_mut().expect("one was added").is_optional = true;
    }

    /// Adds to the report why a row is missing.
    pub(crate) fn skip(&mut self, name: impl Into<String>, reason: &dyn Display) {
        self.skipped.push(Skipped::new("", name, reason.to_string()));
    }

    /// Adds to the report a sentence that a reader needs beside the rows.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Makes the contest give no verdict if the kernel drops its whole page cache meanwhile.
    pub(crate) fn needs_page_cache(&mut self) {
        self.needs_page_cache = true;
    }

    /// Raises the number of rounds to this at least, for a bar that is narrow.
    pub(crate) fn rounds_at_least(&mut self, rounds: u32) {
        self.rounds_min = rounds;
    }

    /// Makes each promise hold for the rows of each of these endings of names, one by one.
    pub(crate) fn judge_each(&mut self, endings: impl IntoIterator<Item = String>) {
        self.endings = endings.into_iter().collect();
    }

    /// Runs all ways in turn and judges their rows.
    ///
    /// # Errors
    /// That the run ends with its reader, which has gone. A way that fails is in the outcome.
    pub(crate) fn run(
        mut self,
        id: &'static str,
        rounds: u32,
        promises: &[Promise],
    ) -> Result<Outcome, Unread> {
        let (rounds, drops_before) = (rounds.max(self.rounds_min), page_cache_drops());
        let name = |way: &Way<'_>| format!("{id}, {}", way.name);
        rounds::with_progress(&mut self.ways, rounds, name, |way, _| {
            way.run();
            Ok::<(), Unread>(())
        })?;
        let is_spoiled = self.needs_page_cache && page_cache_drops() != drops_before;
        let failed = self.ways.iter().filter(|way| way.failure.is_some() && !way.is_optional);
        let failed = failed.map(|way| format!("{id}, {}", way.name)).collect();
        let rows = self.rows();
        let mut verdicts = Vec::new();
        for promise in promises.iter().filter(|promise| promise.group == id && !rows.is_empty()) {
            for ending in self.endings.clone() {
                match promise.verdict(&ending, &rows).filter(|_| !is_spoiled) {
                    Some(verdict) => verdicts.push(verdict),
                    None if is_spoiled => {
                        self.skip(promise.title(&ending), &"the page cache was dropped meanwhile")
                    }
                    None => self.skip(
                        promise.title(&ending),
                        &"not all of its rows were measured, or the figure to compare with is 0",
                    ),
                }
            }
        }
        Ok(Outcome { report: self.report(id, rounds, rows, &verdicts), verdicts, failed })
    }

    /// One row for each name, in the order in which the names were first met.
    fn rows(&self) -> Vec<Row> {
        let mut names: Vec<&str> = Vec::new();
        let runs = || self.ways.iter().flat_map(|way| &way.runs);
        for (name, _) in runs() {
            if !names.contains(&&**name) {
                names.push(name);
            }
        }
        let row = |name: &str| {
            let samples = |figure: &'static str| {
                runs().filter(|(of, _)| of == name).filter_map(move |(_, figures)| figures.find(figure))
            };
            let whose = if name.contains("headwater") { Whose::Headwater } else { Whose::Peer };
            FIGURES.iter().filter(|(figure, ..)| samples(figure).next().is_some()).fold(
                Row::new(whose, name).named(),
                |row, &(figure, unit, better, _)| {
                    row.metric(Metric::new(figure, unit, better, samples(figure)))
                },
            )
        };
        names.into_iter().map(row).collect()
    }

    fn report(self, id: &'static str, rounds: u32, rows: Vec<Row>, verdicts: &[Verdict]) -> Report {
        let shown = FIGURES.iter().filter(|(figure, ..)| rows.iter().any(|row| row.find(figure).is_some()));
        let mut columns = vec![Column::names(id)];
        columns.extend(shown.map(|&(figure, unit, _, places)| Column::value(unit, figure, places)));
        columns.insert(columns.len().min(2), Column::new("spread", spread));
        let figures = vec![Figure::Table(Table::of(id, &columns, &rows))];
        let failures = self.ways.into_iter().filter_map(|way| Some(Skipped::new("", way.name, way.failure?)));
        Report {
            section: Section { id, title: id.to_owned(), figures, notes: self.notes, ..Section::default() },
            fields: vec![("rounds", json!(rounds)), ("verdicts", json!(verdicts))],
            rows,
            skipped: self.skipped.into_iter().chain(failures).collect(),
            head: Vec::new(),
            tail: verdicts.iter().map(Verdict::to_string).collect(),
            commands: Vec::new(),
        }
    }
}

impl<'a> Way<'a> {
    fn new(name: String, run: impl Fn() -> io::Result<Runs> + 'a) -> Way<'a> {
        Way { name, is_optional: false, run: Box::new(run), runs: Vec::new(), failure: None }
    }

    /// A way that has failed once is not run again, and has no rows.
    fn run(&mut self) {
        if self.failure.is_some() {
            return;
        }
        match (self.run)() {
            Ok(runs) => self.runs.extend(runs),
            Err(error) => {
                self.is_optional |= error.kind() == io::ErrorKind::Unsupported;
                self.failure = Some(error.to_string());
                self.runs.clear();
            }
        }
    }
}

/// How far the row's first figure ranges over the rounds, in per cent of its median.
fn spread(row: &Row) -> String {
    let figure = FIGURES.iter().map(|(figure, ..)| *figure).find(|figure| row.find(figure).is_some());
    let spread = figure.and_then(|figure| row.spread(figure).zip(row.value(figure)));
    spread.map_or(String::new(), |((low, high), value)| format!("{:.0} %", (high - low) / value * 100.0))
}

/// What is promised of a row.
pub(crate) struct Promise {
    group: &'static str,
    ours: &'static str,
    /// The row that is its rival; `None` if the limit is for the figure itself.
    theirs: Option<&'static str>,
    figure: &'static str,
    /// `None` if the figure is shown without a verdict.
    limit: Option<Limit>,
}

/// The promise of a row against a rival. `fio *` is the best of those whose names begin so, `*` the best of all but headwater's.
pub(crate) const fn ratio(
    group: &'static str,
    ours: &'static str,
    theirs: &'static str,
    figure: &'static str,
    limit: Limit,
) -> Promise {
    Promise { group, ours, theirs: Some(theirs), figure, limit: Some(limit) }
}

/// The ratio of two rows, shown without a verdict.
pub(crate) const fn shown(
    group: &'static str,
    ours: &'static str,
    theirs: &'static str,
    figure: &'static str,
) -> Promise {
    Promise { group, ours, theirs: Some(theirs), figure, limit: None }
}

/// The promise of a row by its own figure, without a rival.
pub(crate) const fn own(
    group: &'static str,
    ours: &'static str,
    figure: &'static str,
    limit: Limit,
) -> Promise {
    Promise { group, ours, theirs: None, figure, limit: Some(limit) }
}

impl Promise {
    fn verdict(&self, ending: &str, rows: &[Row]) -> Option<Verdict> {
        let best_of =
            |is_meant: &dyn Fn(&Row) -> bool| best(rows.iter().filter(|row| is_meant(row)), self.figure);
        let find = |name: &str| match name.strip_suffix('*') {
            Some("") => best_of(&|row| row.whose != Whose::Headwater),
            Some(start) => best_of(&|row| row.name.starts_with(start)),
            None => rows.iter().find(|row| row.name.strip_suffix(ending) == Some(name)),
        };
        let ours = find(self.ours)?;
        let Some(theirs) = self.theirs else {
            let title = format!("{}, {}", ours.name, self.unit());
            return Some(Verdict::new(title, ours.value(self.figure)?, self.limit));
        };
        let comparison = Comparison::of(ours, find(theirs)?, self.figure)?;
        let title = format!("{} : {}, {}", ours.name, comparison.theirs.name, self.unit());
        Some(match self.limit {
            Some(limit) => Verdict::of(title, &comparison, limit),
            None => Verdict::new(title, comparison.ratio, None),
        })
    }

    /// The name that stands in the report where there is no verdict.
    fn title(&self, ending: &str) -> String {
        let theirs = self.theirs.map_or(String::new(), |theirs| format!(" : {theirs}{ending}"));
        format!("{}{ending}{theirs}, {}", self.ours, self.unit())
    }

    fn unit(&self) -> &'static str {
        FIGURES.iter().find(|(figure, ..)| *figure == self.figure).map_or("", |(_, unit, ..)| unit)
    }
}

/// Those of `all` that `--only` names, and all where it is not given. `is_meant`: whether a word means the thing of this name.
///
/// # Errors
/// For a word that means nothing, with the names that there are.
pub(crate) fn chosen<'a, T>(
    all: &'a [T],
    name: impl Fn(&T) -> &str,
    only: &[String],
    is_meant: impl Fn(&str, &str) -> bool,
) -> io::Result<Vec<&'a T>> {
    if let Some(word) = only.iter().find(|word| !all.iter().any(|thing| is_meant(name(thing), word))) {
        let names = all.iter().map(name).collect::<Vec<_>>().join(", ");
        return Err(io::Error::other(format!("--only {word}: there is only {names}")));
    }
    let is_chosen = |thing: &&T| only.is_empty() || only.iter().any(|word| is_meant(name(thing), word));
    Ok(all.iter().filter(is_chosen).collect())
}

/// Whether a word of `--only` is this name.
pub(crate) fn is_name(name: &str, word: &str) -> bool {
    name == word
}

/// Whether a word of `--only` is this name, or what names of several begin with.
pub(crate) fn is_family(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Before the work: checks that the JSON file, if the arguments name one, can be written after it. Without one the run ends with the reader of
/// standard output, as nothing else takes what it measures.
///
/// # Errors
/// That of opening the file, with its path.
pub(crate) fn begin(json: Option<&Path>) -> io::Result<()> {
    let Some(path) = json else {
        standard::end_with_reader();
        return Ok(());
    };
    tools::has_file();
    result_file::check(path).map_err(|error| about(path, error))
}

/// Writes the JSON file, if the arguments name one.
///
/// # Errors
/// The error of writing the file; an error that names the ways that failed, and what could not be printed.
pub(crate) fn finish(
    name: &str,
    findings: &[Findings],
    failed: &[String],
    json: Option<&Path>,
) -> io::Result<()> {
    if let Some(path) = json {
        let written = std::fs::write(path, report::json_as(name, findings) + "\n");
        written.map_err(|error| about(path, error))?;
    }
    let failed: Vec<String> = failed.iter().cloned().chain(tools::unprinted()).collect();
    if failed.is_empty() { Ok(()) } else { Err(io::Error::other(format!("failed: {}", failed.join("; ")))) }
}

/// All figures of ways: the name in JSON, the unit, which way is better, how many places are shown.
const FIGURES: [(&str, &str, Better, usize); 46] = [
    ("appends_per_s", "appends/s", Better::Higher, 0),
    ("batches", "batches", Better::Higher, 0),
    ("units_per_s", "units/s", Better::Higher, 0),
    LATENCIES[0],
    LATENCIES[1],
    LATENCIES[2],
    LATENCIES[3],
    LATENCIES[4],
    LATENCIES[5],
    LATENCIES[6],
    LATENCIES[7],
    LATENCIES[8],
    LATENCIES[9],
    ("enters", "enters", Better::Lower, 2),
    ("cpu_ns_per_get", "CPU ns", Better::Lower, 1),
    ("gets_per_cpu_s", "gets/CPU s", Better::Higher, 0),
    ("gets_per_s", "gets/s", Better::Higher, 0),
    ("cpu_ns_per_get_x2", "CPU ns x2", Better::Lower, 1),
    ("gets_per_s_x2", "gets/s x2", Better::Higher, 0),
    ("scaling", "scaling", Better::Higher, 2),
    ("mib_per_s", "MiB/s", Better::Higher, 0),
    ("iops", "IOPS", Better::Higher, 0),
    ("files_per_s", "files/s", Better::Higher, 0),
    ("elapsed_s", "s", Better::Lower, 3),
    ("cpu_s", "CPU s", Better::Lower, 3),
    ("system_cpu_s", "CPU s of all", Better::Lower, 3),
    ("sync_s", "s of the sync", Better::Lower, 3),
    ("cpu_s_per_gib", "CPU s/GiB", Better::Lower, 3),
    ("cpu_us", "CPU us each", Better::Lower, 1),
    ("syscalls", "system calls each", Better::Lower, 3),
    ("ms_each", "ms each", Better::Lower, 3),
    ("peak_rss_mib", "peak MiB", Better::Lower, 1),
    ("queue_kib", "queue KiB", Better::Lower, 0),
    ("hit_share", "hits", Better::Higher, 3),
    ("cached_mib", "cached MiB", Better::Higher, 0),
    ("hot_share", "hot set kept", Better::Higher, 3),
    ("reads_per_s", "reads/s", Better::Higher, 0),
    ("asked_kib", "KiB asked", Better::Higher, 0),
    ("device_kib", "KiB of the device", Better::Lower, 0),
    ("amplification", "device : asked", Better::Lower, 2),
    ("beside_per_s", "beside/s", Better::Higher, 0),
    ("dirtied_pages", "pages dirtied", Better::Lower, 0),
    ("device_writes", "device writes", Better::Lower, 0),
    ("device_write_pages", "pages written", Better::Lower, 0),
    ("written_per_dirtied", "written : dirtied", Better::Lower, 3),
    ("kib_per_write", "KiB a write", Better::Higher, 1),
];

const LATENCIES: [(&str, &str, Better, usize); latency::COLUMNS.len()] = {
    let mut figures = [("", "", Better::Lower, 0); latency::COLUMNS.len()];
    let mut index = 0;
    while index < figures.len() {
        let (name, head, places) = latency::COLUMNS[index];
        figures[index] = (name, head, Better::Lower, places);
        index += 1;
    }
    figures
};

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(value: f64) -> io::Result<Figures> {
        Ok(Figures::from([("mib_per_s", value)]))
    }

    fn promise(group: &'static str, theirs: Option<&'static str>, limit: f64) -> Promise {
        let limit = Some(Limit::AtLeast(limit));
        Promise { group, ours: "headwater", theirs, figure: "mib_per_s", limit }
    }

    /// Goal: what has no ratio is said to have none, instead of being written as one.
    #[test]
    fn nothing_is_held_against_zero() {
        let mut contest = Contest::default();
        contest.way("headwater", || rate(30.0));
        contest.way("std", || rate(0.0));
        let Outcome { report, verdicts, .. } =
            contest.run("x", 1, &[promise("x", Some("std"), 1.0)]).unwrap();
        assert!(verdicts.is_empty());
        assert!(format!("{:?}", report.skipped).contains("is 0"), "{:?}", report.skipped);
    }

    /// Goal: a rival with a star is the best of them; promises of other groups are not looked at.
    #[test]
    fn the_best_of_several_rivals_counts() {
        let mut contest = Contest::default();
        contest.way("headwater", || rate(30.0));
        contest.optional("fio 1", || rate(10.0));
        contest.optional("fio 2", || rate(20.0));
        let promises =
            [("x", Some("fio *"), 1.4), ("x", Some("*"), 1.4), ("x", None, 29.0), ("y", None, 1.0)];
        let promises = promises.map(|(group, theirs, limit)| promise(group, theirs, limit));
        let Outcome { report, failed, .. } = contest.run("x", 3, &promises).unwrap();
        assert!(failed.is_empty());
        assert_eq!(report.tail.len(), 3, "{:?}", report.tail);
        for line in &report.tail[..2] {
            assert!(
                line.starts_with("headwater : fio 2, ") && line.contains(" 1.500 >=  1.4  met"),
                "{line}"
            );
        }
        assert_eq!(report.rows[0].find("mib_per_s").unwrap().samples, [30.0; 3]);
    }

    /// Goal: what fails has no row, its promises are skipped, and it is named as failed unless it may be missing.
    #[test]
    fn failures_are_reported() {
        let fails = || Err(io::Error::other("no"));
        let mut contest = Contest::default();
        contest.way("headwater", fails);
        contest.optional("fio", fails);
        contest.way("other", || rate(1.0));
        let Outcome { report, failed, .. } = contest.run("x", 2, &[promise("x", Some("fio"), 1.0)]).unwrap();
        assert_eq!(failed, ["x, headwater"]);
        assert_eq!((report.rows.len(), report.skipped.len(), report.tail.len()), (1, 3, 0));
    }
}
