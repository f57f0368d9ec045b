//! Report: what the sweep says of its ways and buffers.
//!
//! Owns: which figures there are, the words around them.
//! Does not own: the measurements, the forms of a report (`headwater-measure`).

use headwater_measure::{
    Better, Comparison, Figure, Line, Lines, Media, Method, Metric, Report, Row, Section, Table, Whose,
    machine, rounds, verdict,
};
use serde_json::json;

use super::Sweep;
use super::arms::{Arm, Pass};
use crate::shared::foreign::Foreign;
use crate::shared::host::Host;
use crate::shared::json_path;
use crate::shared::units::{ByteSize, MIB, readable};

/// With the drawing of the rates.
pub(super) fn report(sweep: &Sweep<'_>) -> (Report, Lines) {
    let (arguments, target) = (sweep.arguments, sweep.target);
    let path = target.path.display().to_string();
    let drivers: Vec<Option<String>> = sweep.arms.iter().map(Arm::driver).collect();
    let host = Host::with_driver(&target.path, &drivers);
    let rows = rows(sweep);
    let (size, rounds) = (readable(arguments.size.0), rounds::words(arguments.rounds));
    let direction = if arguments.write { "written over from a buffer" } else { "read into a buffer" };
    let plot = plot(sweep, &rows, RATE);
    let facts = machine::known([
        ("File", format!("{size} in {path}")),
        ("Rounds", arguments.rounds.to_string()),
        ("Limit of a measurement", format!("{:.0} s", super::LIMIT.as_secs_f64())),
    ]);
    let section = Section {
        id: "tune-memory",
        title: if arguments.write {
            "Writing by the size of the buffer"
        } else {
            "Reading by the size of the buffer"
        }
        .to_owned(),
        question: "How large should a buffer be?".to_owned(),
        answer: answer(&rows, arguments.write),
        figures: figures(sweep, &rows, &plot),
        methods: methods(sweep),
        facts: host.facts().into_iter().chain(facts).collect(),
        notes: notes(sweep),
        ..Section::default()
    };
    let head = format!("{size} made in {path} and {direction}; {rounds}, medians, GiB/s");
    let mut fields = vec![("host", json!(host))];
    fields.extend(json_path::fields(&target.path));
    fields.extend([
        ("write", json!(arguments.write)),
        ("bytes", json!(arguments.size)),
        ("from_bytes", json!(arguments.from)),
        ("to_bytes", json!(arguments.to)),
        ("rounds", json!(arguments.rounds)),
    ]);
    (Report { head: vec![host.line(), head], fields, section, rows, ..Report::default() }, plot)
}

/// Only what is written reaches the storage.
fn notes(sweep: &Sweep<'_>) -> Vec<String> {
    let foreign = if sweep.arguments.write { Foreign::at(&sweep.target.path) } else { None };
    let foreign = foreign.map(|foreign| foreign.of_figures());
    foreign.into_iter().chain(sweep.arms.iter().filter_map(Arm::note)).collect()
}

fn rows(sweep: &Sweep<'_>) -> Vec<Row> {
    let cells = sweep.arms.iter().zip(&sweep.cells);
    let rows = cells.flat_map(|(arm, of_arm)| {
        sweep.buffers.iter().zip(of_arm).map(|(&buffer, passes)| row(arm, buffer as u64, passes))
    });
    rows.collect()
}

fn row(arm: &Arm<'_>, buffer_bytes: u64, passes: &[Pass]) -> Row {
    let rate = |bytes: u64, seconds: f64| bytes as f64 / MIB / seconds;
    let rates = passes.iter().map(|pass| rate(pass.bytes, pass.seconds));
    let synced = passes.iter().filter_map(|pass| Some(rate(pass.bytes, pass.synced_seconds?)));
    let name = format!("{} with {}", arm.name(), readable(buffer_bytes));
    let row = Row::new(arm.whose(), name)
        .label("id", format!("{}-{}", arm.id(), ByteSize(buffer_bytes)))
        .named()
        .label("way", arm.id())
        .label("buffer_bytes", buffer_bytes)
        .label("bytes", passes.iter().map(|pass| pass.bytes).min().unwrap_or(0))
        .metric(Metric::new(RATE, "MiB/s", Better::Higher, rates));
    let synced = Metric::new(SYNCED, "MiB/s", Better::Higher, synced);
    if synced.samples.is_empty() { row } else { row.metric(synced) }
}

fn of<'a>(rows: &'a [Row], arm: &Arm<'_>) -> impl Iterator<Item = &'a Row> + use<'a> {
    let id = arm.id();
    rows.iter().filter(move |row| row.text("way") == id)
}

fn figures(sweep: &Sweep<'_>, rows: &[Row], rates: &Lines) -> Vec<Figure> {
    let mut figures = vec![Figure::Lines(rates.clone()), Figure::Table(table(sweep, rows, RATE))];
    if sweep.arguments.write {
        let plot = plot(sweep, rows, SYNCED);
        figures.extend([Figure::Lines(plot), Figure::Table(table(sweep, rows, SYNCED))]);
    }
    figures
}

fn plot(sweep: &Sweep<'_>, rows: &[Row], metric: &str) -> Lines {
    let point = |row: &Row| {
        let (value, (low, high)) = row.value(metric).zip(row.spread(metric))?;
        Some((value / GIB_PER_S, (low / GIB_PER_S, high / GIB_PER_S)))
    };
    let line = |arm: &Arm<'_>| Line {
        label: arm.name().to_owned(),
        whose: arm.whose(),
        points: of(rows, arm).map(point).collect(),
    };
    let steps = sweep.buffers.iter().map(|&bytes| readable(bytes as u64)).collect();
    Lines {
        caption: caption(sweep, metric).to_owned(),
        unit: "GiB/s",
        better: Better::Higher,
        across: ("buffer".to_owned(), steps),
        lines: sweep.arms.iter().map(line).collect(),
    }
}

fn caption(sweep: &Sweep<'_>, metric: &str) -> &'static str {
    match (sweep.arguments.write, metric) {
        (false, _) => "Read into memory, by size of buffer",
        (true, SYNCED) => "Written until all is on the device, by size of buffer",
        (true, _) => "Written until the last write returns, by size of buffer",
    }
}

/// A row for each buffer, and for each way its rate and the spread of that.
fn table(sweep: &Sweep<'_>, rows: &[Row], metric: &str) -> Table {
    let first = if metric == SYNCED { "buffer, synced" } else { "buffer" };
    let heads = sweep.arms.iter().flat_map(|arm| [arm.name(), "min – max"]);
    let columns = [first].into_iter().chain(heads).map(str::to_owned).collect();
    let best = |arm: &Arm<'_>| verdict::best(of(rows, arm), metric).map(|row| row.number("buffer_bytes"));
    let cells = |bytes: u64| {
        let of_arm = |arm: &Arm<'_>| {
            let row = of(rows, arm).find(|row| row.number("buffer_bytes") == bytes);
            let rate = row.and_then(|row| row.value(metric)).unwrap_or_default() / GIB_PER_S;
            let (low, high) = row.and_then(|row| row.spread(metric)).unwrap_or_default();
            let mark = if best(arm) == Some(bytes) { "*" } else { "\u{a0}" };
            [
                format!("{rate:.2}{mark}"),
                format!("{:.2}\u{a0}–\u{a0}{:.2}", low / GIB_PER_S, high / GIB_PER_S),
            ]
        };
        [readable(bytes)].into_iter().chain(sweep.arms.iter().flat_map(of_arm)).collect()
    };
    Table {
        caption: format!("{}, GiB/s; * the best of a way", caption(sweep, metric)),
        columns,
        rows: sweep.buffers.iter().map(|&bytes| (Whose::Peer, cells(bytes as u64))).collect(),
        // The spread of each way.
        minor: (0..sweep.arms.len()).map(|arm| 2 + 2 * arm).collect(),
        media: Media::Both,
    }
}

/// The best buffer of each way, the smallest that is nearly as good, and headwater against the plain calls: writes until they are on the
/// device, as only then both have done the same.
fn answer(rows: &[Row], write: bool) -> String {
    let metric = if write { SYNCED } else { RATE };
    let Some(rivals) = Comparison::of_best(rows.iter(), metric) else { return String::new() };
    let words = |row: &Row| {
        let best = row.value(metric).unwrap_or_default();
        let of_way = rows.iter().filter(|other| other.text("way") == row.text("way"));
        let good = of_way.filter(|other| other.value(metric).is_some_and(|rate| rate >= best * NEARLY));
        let least = good.map(|row| row.number("buffer_bytes")).min().unwrap_or_default();
        let (bytes, rate) = (row.number("buffer_bytes"), best / GIB_PER_S);
        let least = if least < bytes {
            format!(" ({} are enough for 95 % of it)", readable(least))
        } else {
            String::new()
        };
        format!(
            "{} at {rate:.2} GiB/s with buffers of {}{least}",
            row.name.split(" with ").next().unwrap_or_default(),
            readable(bytes)
        )
    };
    let head = if write { "Fastest until all is on the device" } else { "Fastest" };
    format!("{head}: {}; {}; {}.", words(rivals.theirs), words(rivals.ours), rivals.words())
}

fn methods(sweep: &Sweep<'_>) -> Vec<Method> {
    let all = format!(
        "In one process and thread, through one buffer that begins at a page; {} each, or as much as a second allows. {}",
        readable(sweep.arguments.size.0),
        rounds::sentence(sweep.arguments.rounds)
    );
    let of_arm = |arm: &Arm<'_>| match arm {
        Arm::Zero { .. } => {
            Method::new(arm.name(), "read(2) from /dev/zero and write(2) to /dev/null: no file takes part.")
        }
        Arm::Read { .. } => Method::new(
            arm.name(),
            "read(2) from start to end of a file that the page cache holds (cachestat).",
        ),
        Arm::Held { .. } => Method::new(
            arm.name(),
            "File::read_at from start to end of the same file, which an engine holds in its memory. Its bytes were compared with \
             the file's.",
        ),
        Arm::Write { .. } => {
            Method::new(arm.name(), "write(2) over a file from start to end, then fdatasync(2).")
        }
        Arm::Through { .. } => Method::new(
            arm.name(),
            "File::write_at over a file of its own from start to end, then File::sync_data. headwater writes sequential pages to \
             the device as they come, so that less is left to the sync.",
        ),
    };
    [Method::new("All ways", all)].into_iter().chain(sweep.arms.iter().map(of_arm)).collect()
}

const RATE: &str = "mib_per_s";
const SYNCED: &str = "synced_mib_per_s";

/// Of rates in MiB/s.
const GIB_PER_S: f64 = 1024.0;

/// A larger buffer takes memory, and caches from others, for less than measurements differ.
const NEARLY: f64 = 0.95;
