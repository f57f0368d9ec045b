//! Report: what a cat suite says of its rows.
//!
//! Owns: which figures there are, the words around them, units.
//! Does not own: the measurements.

use headwater_measure::table::shown;
use headwater_measure::{
    Bar, Bars, Better, Column, Comparison, Figure, Method, Metric, Report, Row, Section, Skipped, Summary,
    Table, Whose, rounds,
};
use serde_json::json;

use super::ways::GNU_ID;
use super::{Contest, Counts, Measured, Outcome, State, Sweep};
use crate::bench::suite;
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::target::{Target, place_words};
use crate::shared::units::readable;
use crate::shared::units::{GIB, MIB};

pub(super) fn report(contest: &Contest<'_>, target: &Target, counts: Counts) -> Report {
    let Counts { rounds: done, warmup, page_cache_drops } = counts;
    let (host, path) = (Host::of(&target.path), target.path.display().to_string());
    let (warm_bytes, cold_bytes) = (contest.warm.bytes, contest.cold.bytes);
    let (warm, cold) = (readable(warm_bytes), readable(cold_bytes));
    let (xxh3, fio) = (format!("{:016x}", contest.sums[0]), FioFile::of(target, target.bytes).limit("read"));
    let rows = rows(contest);
    let head = format!(
        "{warm} warm, {cold} cold, {} {path}, to /dev/null; starting a process counts; {}{}, medians",
        if target.is_made { "made in" } else { "of" },
        rounds::words(done),
        if warmup > 0 { format!(" after {warmup} to warm up") } else { String::new() }
    );
    let facts = [
        ("File, warm", format!("{warm} in {}", place_words(&path))),
        ("File, cold", format!("{cold} in {}", place_words(&path))),
        ("Rounds", done.to_string()),
        ("Rounds to warm up", warmup.to_string()),
        ("XXH3 of the warm file", xxh3.clone()),
        ("Page cache dropped by others", format!("{page_cache_drops} times")),
    ];
    let mut figures: Vec<Figure> = State::ALL.into_iter().flat_map(|state| figures(state, &rows)).collect();
    figures.push(sweep_figure(&contest.sweep));
    let absent = contest.ways.absent.iter().map(|(name, reason)| Skipped::new("", *name, *reason));
    let failed = contest.ways.all.iter().filter_map(|way| {
        let reason = way.failure.as_ref()?;
        Some(Skipped::new(way.id.as_str(), way.name.as_str(), reason))
    });
    let all_warm = contest.warm_refusal.iter().map(|reason| Skipped::new("", "all warm rows", reason));
    let section = Section {
        id: "cat",
        title: TITLE.to_owned(),
        question: "How fast does a file get to standard output, step by step, and beside other programs?"
            .to_owned(),
        answer: answer(&rows),
        figures,
        methods: methods(&fio),
        notes: notes(contest, page_cache_drops),
        ..Section::default()
    };
    let mut report = suite::report(&host, target, head, facts, section);
    report.fields.extend([
        ("made_for_this", json!(target.is_made)),
        ("cold_bytes", json!(cold_bytes)),
        ("warm_bytes", json!(warm_bytes)),
        ("rounds", json!(done)),
        ("warmup", json!(warmup)),
        // Of the warm file, which every way has delivered through a pipe.
        ("xxh3", json!(xxh3)),
        ("sweep", json!(contest.sweep)),
        ("page_cache_drops", json!(page_cache_drops)),
        ("fio", json!(fio)),
    ]);
    let (tail, commands) = (vec![sweep_words(&contest.sweep)], vec![format!("the device's limit: {fio}")]);
    Report { tail, commands, rows, skipped: absent.chain(failed).chain(all_warm).collect(), ..report }
}

fn rows(contest: &Contest<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = contest.outcomes.iter().map(|outcome| row(contest, outcome)).collect();
    for state in State::ALL {
        let gnu = of(&rows, state).find(|row| row.text("way") == GNU_ID).and_then(|row| row.value(RATE));
        let of_state = rows.iter_mut().filter(|row| row.text("state") == state.id());
        of_state.for_each(|row| row.add_ratio("ratio_to_gnu", RATE, gnu));
    }
    rows
}

fn row(contest: &Contest<'_>, outcome: &Outcome) -> Row {
    let (way, state, rounds) = (&contest.ways.all[outcome.way], outcome.state, &outcome.rounds);
    let each = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
    let rates = each(&|measured| measured.bytes as f64 / MIB / measured.seconds);
    let cpu = each(&|measured| measured.cpu_seconds() * GIB / measured.bytes as f64);
    let times = Summary::of(&outcome.seconds());
    let of_times = |part: fn(&Summary) -> Option<f64>| times.as_ref().and_then(part);
    let mean = |part: fn(&Measured) -> f64| Summary::of(&each(&part)).map(|summary| summary.mean);
    let shares: Option<Vec<f64>> = rounds.iter().map(|measured| measured.resident_share).collect();
    let shares = Metric::new("resident_share", "", Better::Higher, shares.unwrap_or_default());
    // In bars of warm rows, whose rates are higher.
    let gib_rates = rates.iter().map(|rate| rate / 1024.0).collect::<Vec<f64>>();
    Row::new(if way.is_headwater() { Whose::Headwater } else { Whose::Peer }, way.name.clone())
        .label("id", format!("{}-{}", state.id(), way.id))
        .named()
        .label("state", state.id())
        .label("way", way.id.as_str())
        .label("kind", if way.is_step() { STEP } else { "other" })
        .label("output", if contest.others.contains(&outcome.way) { OTHER_BYTES } else { "file" })
        .label("bytes", rounds.first().map_or(0, |measured| measured.bytes))
        .label("runs", rounds.len())
        .label("outliers", times.as_ref().map_or(0, |times| times.outliers.len()))
        .metric(Metric::new(RATE, "MiB/s", Better::Higher, rates))
        .metric(Metric::new(GIB_RATE, "GiB/s", Better::Higher, gib_rates))
        .metric(Metric::new("seconds", "s", Better::Lower, outcome.seconds()))
        .metric(Metric::only("seconds_mean", of_times(|times| Some(times.mean))))
        .metric(Metric::only("seconds_stddev", of_times(|times| times.stddev)))
        .metric(Metric::only("user_seconds", mean(|measured| measured.user_seconds)))
        .metric(Metric::only("system_seconds", mean(|measured| measured.system_seconds)))
        .metric(Metric::new("cpu_s_per_gib", "CPU s/GiB", Better::Lower, cpu).plain())
        // The worst round: the least where it should be warm, the most where cold.
        .metric(if state == State::Warm { shares.least() } else { shares.most() })
}

fn of(rows: &[Row], state: State) -> impl Iterator<Item = &Row> + Clone {
    rows.iter().filter(move |row| row.text("state") == state.id())
}

/// One sentence with figures of both states, against the best of all others.
fn answer(rows: &[Row]) -> String {
    let of_state = |state: State| {
        let cats = of(rows, state).filter(|row| row.text("output") != OTHER_BYTES);
        let rivals = Comparison::of_best(cats, RATE)?;
        let gnu = rivals.ours.value("ratio_to_gnu").map(|ratio| format!("{ratio:.2} × GNU cat and "));
        let (rate, unit) = (number(state, rivals.ours), unit(state));
        let (state, gnu, against) = (state.id(), gnu.unwrap_or_default(), rivals.words());
        Some(format!("a {state} file at {rate} {unit}, {gnu}{against}, the best of the others"))
    };
    let parts: Vec<String> = State::ALL.into_iter().filter_map(of_state).collect();
    format!("headwater cat moves {}.", parts.join(", and "))
}

fn figures(state: State, rows: &[Row]) -> Vec<Figure> {
    if of(rows, state).next().is_none() {
        return Vec::new();
    }
    let bars = |caption: &str, is_in: &dyn Fn(&Row) -> bool| {
        let caption = format!("{caption}, {} file", state.id());
        Figure::Bars(Bars::of(caption, rate(state), of(rows, state).filter(|row| is_in(row))))
    };
    let spread = |row: &Row| {
        let (low, high) = row.spread(rate(state)).unwrap_or_default();
        format!("{}\u{a0}–\u{a0}{}", places(state, low), places(state, high))
    };
    let columns = [
        Column::names(state.id()),
        Column::new(unit(state), move |row| number(state, row)),
        Column::new("min – max", spread).minor(3),
        Column::value("seconds", "seconds", 3).minor(2),
        Column::value("CPU s/GiB", "cpu_s_per_gib", 3).minor(4),
        Column::value("× GNU cat", "ratio_to_gnu", 2),
        Column::percent("in cache %", "resident_share").minor(1),
    ];
    vec![
        bars("The seven cats", &|row| row.text("kind") == STEP),
        bars("headwater cat and everybody else", &|row| {
            row.text("kind") != STEP || row.whose == Whose::Headwater
        }),
        Figure::Table(Table::of(format!("All figures, {} file", state.id()), &columns, of(rows, state))),
        Figure::Table(times(state, rows)),
    ]
}

/// The same runs as times of processes, in the words of hyperfine.
fn times(state: State, rows: &[Row]) -> Table {
    let summed = |words: fn(&Summary) -> String| {
        move |row: &Row| {
            let samples = row.find("seconds").map(|metric| &metric.samples[..]).unwrap_or_default();
            Summary::of(samples).map_or_else(String::new, |times| words(&times))
        }
    };
    let columns = [
        Column::names(format!("{}, ms", state.id())),
        Column::new("mean ± σ", summed(|times| times.mean_words(1e3, 1))),
        Column::scaled("user", "user_seconds", 1e3, 1).minor(4),
        Column::scaled("system", "system_seconds", 1e3, 1).minor(5),
        Column::new("min … max", summed(|times| times.range_words(1e3, 1))).minor(3),
        Column::new("runs", |row| row.number("runs").to_string()).minor(2),
        Column::new("outliers", |row| row.number("outliers").to_string()).minor(1),
    ];
    Table::of(format!("Times of the processes, {} file, ms", state.id()), &columns, of(rows, state))
}

fn sweep_figure(sweep: &Sweep) -> Figure {
    let bars = sweep.points.iter().map(|point| Bar {
        label: readable(point.buffer_bytes as u64),
        value: point.gib_per_s,
        spread: (point.gib_per_s, point.gib_per_s),
        whose: Whose::Limit,
        note: if point.buffer_bytes == sweep.best_bytes { "cat5".to_owned() } else { String::new() },
    });
    let caption = "/dev/zero to /dev/null by size of the buffer".to_owned();
    Figure::Bars(Bars { caption, unit: "GiB/s", better: Better::Higher, bars: bars.collect() })
}

fn sweep_words(sweep: &Sweep) -> String {
    let points = sweep.points.iter();
    let rates: Vec<String> = points
        .map(|point| format!("{} {:.1}", readable(point.buffer_bytes as u64), point.gib_per_s))
        .collect();
    format!("/dev/zero to /dev/null, GiB/s by buffer: {}", rates.join(", "))
}

fn methods(fio: &str) -> Vec<Method> {
    vec![
        Method::new(
            "All rows",
            "A process for each row and round, the file as standard input, /dev/null as standard output. The clock starts \
             before the process and ends when it was waited for, so that starting it counts in all rows alike; processor \
             time is that of the process (wait4). Rows go forwards and backwards in turn. Before the first round every \
             way writes the warm file into a pipe, and the sum of what arrives is compared with the file's.",
        ),
        Method::new(
            "Times",
            "Mean, standard deviation of a sample, and range of all rounds; user and system time are means (wait4). An \
             outlier lies more than ten standard deviations from the median, which are estimated by the median absolute \
             deviation.",
        ),
        Method::new(
            "Warm rows",
            "The file is read before each row until the page cache holds all of it (cachestat).",
        ),
        Method::new("Cold rows", "The file is dropped from the page cache before each row (posix_fadvise).")
            .fio(fio),
        Method::new(
            "cat1",
            "A system call for every byte twice: measured with the first 256 KiB, and so its start weighs more.",
        ),
        Method::new(
            "cat5",
            "The buffer is the one that was fastest from /dev/zero to /dev/null, 64 MiB each, the best of three.",
        ),
    ]
}

fn rate(state: State) -> &'static str {
    match state {
        State::Warm => GIB_RATE,
        State::Cold => RATE,
    }
}

fn unit(state: State) -> &'static str {
    match state {
        State::Warm => "GiB/s",
        State::Cold => "MiB/s",
    }
}

fn number(state: State, row: &Row) -> String {
    row.value(rate(state)).map_or_else(String::new, |rate| places(state, rate))
}

/// With the digits that say something.
fn places(state: State, rate: f64) -> String {
    let places = match state {
        State::Warm if rate < 0.1 => 4,
        State::Warm => 2,
        State::Cold if rate < 100.0 => 1,
        State::Cold => 0,
    };
    shown(Some(rate), places)
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
    let others: Vec<&str> = contest.others.iter().map(|&way| contest.ways.all[way].name.as_str()).collect();
    if !others.is_empty() {
        notes.push(format!("no cats, as they write other bytes than the file has: {}", others.join("; ")));
    }
    notes.extend(outliers(contest));
    if page_cache_drops > 0 {
        notes.push(format!(
            "another program dropped the page cache {page_cache_drops} times meanwhile (/proc/vmstat)"
        ));
    }
    notes
}

/// Which rows have runs that are far from the others, and what to do.
fn outliers(contest: &Contest<'_>) -> Option<String> {
    let (mut rows, mut is_first) = (Vec::new(), false);
    for outcome in &contest.outcomes {
        let found = Summary::of(&outcome.seconds()).map(|times| times.outliers).unwrap_or_default();
        if !found.is_empty() {
            let (state, name) = (outcome.state.id(), &contest.ways.all[outcome.way].name);
            rows.push(format!("{name}, {state} ({} of {} runs)", found.len(), outcome.rounds.len()));
            is_first |= found.contains(&0);
        }
    }
    let advice = match is_first {
        true => "among them first runs, which --warmup keeps out",
        false => "something else was busy: measure again when it is quiet, or with more --rounds",
    };
    (!rows.is_empty()).then(|| format!("outliers in {}; {advice}", rows.join("; ")))
}

impl Measured {
    fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

const RATE: &str = "mib_per_s";
const GIB_RATE: &str = "gib_per_s";

/// What a command of the user's writes that is no cat.
const OTHER_BYTES: &str = "other";

/// The kind of the seven.
const STEP: &str = "step";

/// Of the section.
pub(in crate::bench) const TITLE: &str = "Seven ways to write cat";
