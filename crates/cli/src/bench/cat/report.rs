//! Report: the tables, the JSON and the section of a cat suite.
//!
//! Owns: what counts of several rounds, the words and columns.
//! Does not own: the measurements.

use serde::Serialize;

use super::steps::Sweep;
use super::ways::{GNU_ID, HEADWATER_ID};
use super::{Contest, Measured, Outcome, State};
use crate::bench::file::Target;
use crate::bench::host::Host;
use crate::bench::report::fio_line;
use crate::bench::section::{Bar, Bars, Better, Figure, Method, Section, Table, Whose};
use crate::bench::suite::{GIB, MIB, median, rounds_words};
use crate::shared::units::readable;

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Host,
    path: String,
    made_for_this: bool,
    cold_bytes: u64,
    warm_bytes: u64,
    rounds: u32,
    rows: Vec<Line>,
    skipped: Vec<Skipped>,
    /// XXH3 of the warm file, which every way has delivered through a pipe.
    xxh3: String,
    sweep: Sweep,
    /// How often the page cache was dropped meanwhile, by somebody else.
    page_cache_drops: u64,
    notes: Vec<String>,
    fio: String,
}

#[derive(Serialize)]
struct Line {
    id: String,
    name: String,
    state: &'static str,
    way: &'static str,
    bytes: u64,
    mib_per_s: f64,
    mib_per_s_min: f64,
    mib_per_s_max: f64,
    seconds: f64,
    cpu_s_per_gib: f64,
    /// Against GNU cat in the same state.
    ratio_to_gnu: Option<f64>,
    /// Of the file, in the page cache before: the least of all rounds where it should be warm, the most where cold.
    resident_share: Option<f64>,
    #[serde(skip)]
    is_step: bool,
}

#[derive(Serialize)]
struct Skipped {
    name: String,
    reason: String,
}

impl Report {
    pub(super) fn new(contest: &Contest<'_>, target: &Target, rounds: u32, page_cache_drops: u64) -> Report {
        let mut rows: Vec<Line> = contest.outcomes.iter().map(|outcome| line(contest, outcome)).collect();
        for state in State::ALL {
            let gnu = rows.iter().find(|row| row.state == state.id() && row.way == GNU_ID);
            let Some(gnu) = gnu.map(|row| row.mib_per_s) else { continue };
            for row in rows.iter_mut().filter(|row| row.state == state.id()) {
                row.ratio_to_gnu = Some(row.mib_per_s / gnu);
            }
        }
        let skip = |name: &str, reason: &str| Skipped { name: name.to_owned(), reason: reason.to_owned() };
        let absent = contest.ways.absent.iter().map(|(name, reason)| skip(name, reason));
        let warm = contest.warm_refusal.iter().map(|reason| skip("all warm rows", reason));
        Report {
            suite: "cat",
            host: Host::of(&target.path),
            path: target.path.display().to_string(),
            made_for_this: target.is_made,
            cold_bytes: contest.cold.bytes,
            warm_bytes: contest.warm.bytes,
            rounds,
            rows,
            skipped: absent.chain(warm).collect(),
            xxh3: format!("{:016x}", contest.sums[0]),
            sweep: contest.sweep.clone(),
            page_cache_drops,
            notes: notes(contest, page_cache_drops),
            fio: fio_line(target, "read"),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.host.line(), self.head()];
        for state in State::ALL.into_iter().filter(|&state| self.of(state).next().is_some()) {
            lines.push(String::new());
            lines.extend(self.table_text(state));
        }
        lines.push(String::new());
        lines.extend(self.skipped.iter().map(|row| format!("skipped {}: {}", row.name, row.reason)));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(self.sweep_words());
        lines.push(self.answer());
        lines.push(format!("the device's limit: {}", self.fio));
        lines.join("\n") + "\n"
    }

    fn head(&self) -> String {
        let made = if self.made_for_this { "made in" } else { "of" };
        let (warm, cold) = (readable(self.warm_bytes), readable(self.cold_bytes));
        let rounds = rounds_words(self.rounds);
        format!(
            "{warm} warm, {cold} cold, {made} {}, to /dev/null; starting a process counts; {rounds}, medians",
            self.path
        )
    }

    fn of(&self, state: State) -> impl Iterator<Item = &Line> {
        self.rows.iter().filter(move |row| row.state == state.id())
    }

    fn row(&self, state: State, way: &str) -> Option<&Line> {
        self.of(state).find(|row| row.way == way)
    }

    fn table_text(&self, state: State) -> Vec<String> {
        let rows: Vec<Vec<String>> = self.of(state).map(|row| row.cells(state)).collect();
        let head = columns(state);
        let width = |column: usize| {
            rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let show = |row: &Vec<String>| {
            let rest = row.iter().enumerate().skip(1);
            format!("{:<1$}", row[0], width(0))
                + &rest.map(|(column, cell)| format!("  {cell:>0$}", width(column))).collect::<String>()
        };
        [&head].into_iter().chain(&rows).map(show).collect()
    }

    /// The fastest that is not headwater.
    fn best_other(&self, state: State) -> Option<&Line> {
        let others = self.of(state).filter(|row| row.way != HEADWATER_ID);
        others.max_by(|left, right| left.mib_per_s.total_cmp(&right.mib_per_s))
    }

    /// One sentence with figures of both states.
    fn answer(&self) -> String {
        let parts: Vec<String> = State::ALL.into_iter().filter_map(|state| self.answer_of(state)).collect();
        format!("headwater cat moves {}.", parts.join(", and "))
    }

    fn answer_of(&self, state: State) -> Option<String> {
        let (ours, best) = (self.row(state, HEADWATER_ID)?, self.best_other(state)?);
        let gnu = ours.ratio_to_gnu.map(|ratio| format!("{ratio:.2} × GNU cat and "));
        Some(format!(
            "a {} file at {}, {}{:.2} × the best of the others ({})",
            state.id(),
            rate_words(state, ours.mib_per_s),
            gnu.unwrap_or_default(),
            ours.mib_per_s / best.mib_per_s,
            best.name
        ))
    }

    fn sweep_words(&self) -> String {
        let rates: Vec<String> = self
            .sweep
            .points
            .iter()
            .map(|point| format!("{} {:.1}", readable(point.buffer_bytes as u64), point.gib_per_s))
            .collect();
        format!("/dev/zero to /dev/null, GiB/s by buffer: {}", rates.join(", "))
    }

    pub(super) fn section(&self) -> Section {
        let states = || State::ALL.into_iter().filter(|&state| self.of(state).next().is_some());
        let mut figures: Vec<Figure> = states().flat_map(|state| self.figures(state)).collect();
        figures.push(self.sweep_figure());
        Section {
            headline: String::new(),
            id: "cat",
            title: "Seven ways to write cat".to_owned(),
            question: "How fast does a file get to standard output, step by step, and beside other programs?"
                .to_owned(),
            answer: self.answer(),
            figures,
            methods: self.methods(),
            facts: vec![
                ("File, warm".to_owned(), format!("{} in {}", readable(self.warm_bytes), self.path)),
                ("File, cold".to_owned(), format!("{} in {}", readable(self.cold_bytes), self.path)),
                ("Rounds".to_owned(), self.rounds.to_string()),
                ("XXH3 of the warm file".to_owned(), self.xxh3.clone()),
                ("Page cache dropped by others".to_owned(), format!("{} times", self.page_cache_drops)),
            ],
            notes: self
                .skipped
                .iter()
                .map(|row| format!("Skipped {}: {}", row.name, row.reason))
                .chain(self.notes.iter().cloned())
                .collect(),
        }
    }

    fn figures(&self, state: State) -> [Figure; 3] {
        let bars = |caption: &str, is_in: &dyn Fn(&Line) -> bool| {
            Figure::Bars(Bars {
                caption: format!("{caption}, {} file", state.id()),
                unit: unit(state),
                better: Better::Higher,
                bars: self.of(state).filter(|row| is_in(row)).map(|row| row.bar(state)).collect(),
            })
        };
        [
            bars("The seven cats", &|row| row.is_step),
            bars("headwater cat and everybody else", &|row| !row.is_step || row.way == HEADWATER_ID),
            Figure::Table(Table {
                caption: format!("All figures, {} file", state.id()),
                columns: columns(state),
                rows: self.of(state).map(|row| (row.whose(), row.cells(state))).collect(),
            }),
        ]
    }

    fn sweep_figure(&self) -> Figure {
        let bars = self.sweep.points.iter().map(|point| Bar {
            label: readable(point.buffer_bytes as u64),
            value: point.gib_per_s,
            spread: (point.gib_per_s, point.gib_per_s),
            whose: Whose::Limit,
            note: if point.buffer_bytes == self.sweep.best_bytes { "cat5".to_owned() } else { String::new() },
        });
        Figure::Bars(Bars {
            caption: "/dev/zero to /dev/null by size of the buffer".to_owned(),
            unit: "GiB/s",
            better: Better::Higher,
            bars: bars.collect(),
        })
    }

    fn methods(&self) -> Vec<Method> {
        let method = |what: &str, how: &str, fio: Option<String>| Method {
            what: what.to_owned(),
            how: how.to_owned(),
            fio,
        };
        vec![
            method(
                "All rows",
                "A process for each row and round, the file as standard input, /dev/null as standard output. The clock starts \
                 before the process and ends when it was waited for, so that starting it counts in all rows alike; processor \
                 time is that of the process (getrusage). Rows go forwards and backwards in turn. Before the first round every \
                 way writes the warm file into a pipe, and the sum of what arrives is compared with the file's.",
                None,
            ),
            method(
                "Warm rows",
                "The file is read before each row until the page cache holds all of it (cachestat).",
                None,
            ),
            method(
                "Cold rows",
                "The file is dropped from the page cache before each row (posix_fadvise).",
                Some(self.fio.clone()),
            ),
            method(
                "cat1",
                "A system call for every byte twice: measured with the first 256 KiB, and so its start weighs more.",
                None,
            ),
            method(
                "cat5",
                "The buffer is the one that was fastest from /dev/zero to /dev/null, 64 MiB each, the best of three.",
                None,
            ),
        ]
    }
}

impl Line {
    fn whose(&self) -> Whose {
        if self.way == HEADWATER_ID { Whose::Headwater } else { Whose::Peer }
    }

    fn bar(&self, state: State) -> Bar {
        Bar {
            label: self.name.clone(),
            value: in_unit(state, self.mib_per_s),
            spread: (in_unit(state, self.mib_per_s_min), in_unit(state, self.mib_per_s_max)),
            whose: self.whose(),
            note: String::new(),
        }
    }

    /// The name, and a cell for each other of [`columns`].
    fn cells(&self, state: State) -> Vec<String> {
        let rate = |mib_per_s| number(state, in_unit(state, mib_per_s));
        vec![
            self.name.clone(),
            rate(self.mib_per_s),
            format!("{} – {}", rate(self.mib_per_s_min), rate(self.mib_per_s_max)),
            format!("{:.3}", self.seconds),
            format!("{:.3}", self.cpu_s_per_gib),
            self.ratio_to_gnu.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            self.resident_share.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0)),
        ]
    }
}

fn columns(state: State) -> Vec<String> {
    let words = [state.id(), unit(state), "min – max", "seconds", "CPU s/GiB", "× GNU cat", "in cache %"];
    words.map(str::to_owned).to_vec()
}

fn line(contest: &Contest<'_>, outcome: &Outcome) -> Line {
    let (way, rounds) = (&contest.ways.all[outcome.way], &outcome.rounds);
    let rate = |measured: &Measured| measured.bytes as f64 / MIB / measured.seconds;
    let shares: Option<Vec<f64>> = rounds.iter().map(|measured| measured.resident_share).collect();
    let worst = match outcome.state {
        State::Warm => f64::min,
        State::Cold => f64::max,
    };
    Line {
        id: format!("{}-{}", outcome.state.id(), way.id),
        name: way.name.clone(),
        state: outcome.state.id(),
        way: way.id,
        bytes: rounds.first().map_or(0, |measured| measured.bytes),
        mib_per_s: median(rounds.iter().map(rate)),
        mib_per_s_min: rounds.iter().map(rate).fold(f64::INFINITY, f64::min),
        mib_per_s_max: rounds.iter().map(rate).fold(0.0, f64::max),
        seconds: median(rounds.iter().map(|measured| measured.seconds)),
        cpu_s_per_gib: median(
            rounds.iter().map(|measured| measured.cpu_seconds * GIB / measured.bytes as f64),
        ),
        ratio_to_gnu: None,
        resident_share: shares.and_then(|shares| shares.into_iter().reduce(worst)),
        is_step: way.is_step(),
    }
}

fn unit(state: State) -> &'static str {
    match state {
        State::Warm => "GiB/s",
        State::Cold => "MiB/s",
    }
}

fn in_unit(state: State, mib_per_s: f64) -> f64 {
    match state {
        State::Warm => mib_per_s / 1024.0,
        State::Cold => mib_per_s,
    }
}

/// With the digits that say something.
fn number(state: State, rate: f64) -> String {
    match state {
        State::Warm if rate < 0.1 => format!("{rate:.4}"),
        State::Warm => format!("{rate:.2}"),
        State::Cold if rate < 100.0 => format!("{rate:.1}"),
        State::Cold => format!("{rate:.0}"),
    }
}

fn rate_words(state: State, mib_per_s: f64) -> String {
    format!("{} {}", number(state, in_unit(state, mib_per_s)), unit(state))
}

fn notes(contest: &Contest<'_>, page_cache_drops: u64) -> Vec<String> {
    let mut notes = Vec::new();
    for state in State::ALL {
        let is_wrong = |outcome: &&Outcome| {
            outcome.state == state && outcome.rounds.iter().any(|measured| !measured.was_so)
        };
        let wrong = contest.outcomes.iter().filter(is_wrong);
        let wrong: Vec<&str> = wrong.map(|outcome| contest.ways.all[outcome.way].name.as_str()).collect();
        if !wrong.is_empty() {
            notes.push(format!("not {} in some round: {}", state.id(), wrong.join("; ")));
        }
    }
    if page_cache_drops > 0 {
        notes.push(format!(
            "the page cache was dropped {page_cache_drops} times meanwhile, by somebody else (/proc/vmstat)"
        ));
    }
    notes
}
