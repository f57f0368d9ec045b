//! Report: the tables and the JSON of a UBC suite.
//!
//! Owns: what counts of several rounds, the words and columns.
//! Does not own: the measurements.

mod figures;

use serde::Serialize;

use super::row::Pass;
use super::{Contest, Outcome, Plan, Way, Work};
use crate::bench::file::Target;
use crate::bench::host::Host;
use crate::bench::report::fio_line;
use crate::bench::suite::{median, rounds_words};
use crate::shared::units::readable;

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Host,
    path: String,
    made_for_this: bool,
    bytes: u64,
    small_bytes: u64,
    rounds: u32,
    rows: Vec<Line>,
    notes: Vec<String>,
    fio: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    id: String,
    name: String,
    /// What the page cache held of the file before.
    page_cache: PageCache,
    /// A way that does not go with the row has none.
    cells: Vec<Cell>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
enum PageCache {
    /// Nothing: it was dropped.
    Dropped,
    /// Some of it, as it could not be dropped.
    NotDropped,
    /// What the read before has left there.
    Kept,
    /// Nothing: the file is new.
    New,
}

#[derive(Serialize)]
struct Cell {
    way: &'static str,
    seconds: f64,
    seconds_min: f64,
    seconds_max: f64,
    gb_per_s: f64,
    cpu_seconds: f64,
    /// What was read or written; less than wanted when time was up.
    bytes: u64,
}

impl Report {
    pub(super) fn new(plan: &Plan, target: &Target, contest: &Contest<'_>) -> Report {
        let mut host = Host::of(&target.path);
        let mut rounds = contest.outcomes.iter().flat_map(|outcome| &outcome.rounds);
        host.driver = rounds.find_map(|measured| measured.driver.clone());
        let rows = Work::ALL.into_iter().flat_map(|work| lines(work, &contest.outcomes)).collect();
        let mut fio = vec![fio_line(target, "read")];
        // A file of the user's is not written to.
        fio.extend(target.is_made.then(|| fio_line(target, "write") + " --end_fsync=1"));
        Report {
            suite: "ubc",
            host,
            path: target.path.display().to_string(),
            made_for_this: target.is_made,
            bytes: contest.large_bytes,
            small_bytes: Work::Small.bytes(contest.large_bytes),
            rounds: plan.rounds,
            rows,
            notes: contest.notes.iter().cloned().chain(notes(contest)).collect(),
            fio,
        }
    }

    pub(super) fn text(&self) -> String {
        let made = if self.made_for_this { "files made in" } else { "of" };
        let (large, small) = (readable(self.bytes), readable(self.small_bytes));
        let rounds = rounds_words(self.rounds);
        let head = format!("large: {large}, 50 MB: {small}, {made} {}; {rounds}, medians", self.path);
        let mut lines = vec![self.host.line(), head];
        lines.extend(self.table("GB/s", |cell| format!("{:.2}", cell.gb_per_s)));
        lines.extend(self.table("seconds", |cell| format!("{:.3}", cell.seconds)));
        lines.extend(self.table("CPU seconds", |cell| format!("{:.3}", cell.cpu_seconds)));
        lines.push(String::new());
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.extend(self.fio.iter().map(|line| format!("the device's limit: {line}")));
        lines.join("\n") + "\n"
    }

    fn table(&self, figure: &str, show: impl Fn(&Cell) -> String) -> Vec<String> {
        let mut head = format!("{figure:<20}  {:<11}", "page cache");
        Way::ALL.iter().for_each(|way| head += &format!("  {:>9}", way.name()));
        let row = |line: &Line| {
            let mut text = format!("{:<20}  {:<11}", line.name, line.page_cache.words());
            for way in Way::ALL {
                let cell = line.cells.iter().find(|cell| cell.way == way.id());
                text += &format!("  {:>9}", cell.map_or("-".to_owned(), &show));
            }
            text
        };
        [String::new(), head].into_iter().chain(self.rows.iter().map(row)).collect()
    }
}

impl PageCache {
    fn of(work: Work, pass: usize, outcomes: &[&Outcome]) -> PageCache {
        match work {
            Work::New => PageCache::New,
            Work::Again if pass > 0 => PageCache::Kept,
            _ if outcomes.iter().any(|outcome| outcome.stayed_warm) => PageCache::NotDropped,
            _ => PageCache::Dropped,
        }
    }

    fn words(self) -> &'static str {
        match self {
            PageCache::Dropped => "dropped",
            PageCache::NotDropped => "not dropped",
            PageCache::Kept => "kept",
            PageCache::New => "new file",
        }
    }
}

/// A row for each pass of a work.
fn lines(work: Work, outcomes: &[Outcome]) -> Vec<Line> {
    let of_work: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.work == work).collect();
    let line = |pass: usize| Line {
        id: if work.passes() == 1 { work.id().to_owned() } else { format!("{}-{}", work.id(), pass + 1) },
        name: name(work, pass),
        page_cache: PageCache::of(work, pass, &of_work),
        cells: of_work.iter().map(|outcome| cell(outcome, pass)).collect(),
    };
    (0..work.passes()).map(line).collect()
}

fn name(work: Work, pass: usize) -> String {
    match work {
        Work::Raw => "raw file to null".to_owned(),
        Work::New => "zero to new file".to_owned(),
        Work::Overwrite => "zero to overwrite".to_owned(),
        Work::Large => "large file to null".to_owned(),
        Work::Small => "50 MB to null".to_owned(),
        Work::Again => format!("50 MB, read {} of {}", pass + 1, work.passes()),
    }
}

fn cell(outcome: &Outcome, pass: usize) -> Cell {
    let passes = || outcome.rounds.iter().filter_map(|measured| measured.passes.get(pass));
    let each = |value: fn(&Pass) -> f64| passes().map(value);
    Cell {
        way: outcome.way.id(),
        seconds: median(each(|pass| pass.seconds)),
        seconds_min: each(|pass| pass.seconds).fold(f64::INFINITY, f64::min),
        seconds_max: each(|pass| pass.seconds).fold(0.0, f64::max),
        gb_per_s: median(each(|pass| pass.bytes as f64 / pass.seconds / GIGABYTE)),
        cpu_seconds: median(each(|pass| pass.cpu_seconds)),
        bytes: passes().map(|pass| pass.bytes).min().unwrap_or(0),
    }
}

fn notes(contest: &Contest<'_>) -> Vec<String> {
    let mut notes = vec!["mmap and view only read: - where something is written".to_owned()];
    let cut: Vec<String> = contest
        .outcomes
        .iter()
        .filter(|outcome| {
            let wanted_bytes = outcome.work.bytes(contest.large_bytes);
            outcome.rounds.iter().flat_map(|measured| &measured.passes).any(|pass| pass.bytes < wanted_bytes)
        })
        .map(|outcome| format!("{} by {}", outcome.work.id(), outcome.way.name()))
        .collect();
    if !cut.is_empty() {
        notes.push(format!("time was up before the end, so seconds are of a part: {}", cut.join("; ")));
    }
    if contest.outcomes.iter().any(|outcome| outcome.stayed_warm) {
        notes.push("the page cache kept some of the file, so not all rows were cold".to_owned());
    }
    notes
}

/// The unit of devices' data sheets, and of the paper.
const GIGABYTE: f64 = 1e9;
