//! Report: what the alignment suite says of its rows.
//!
//! Owns: which figures there are, the words around them.
//! Does not own: the measurements.

use headwater_measure::{
    Better, Figure, Media, Method, Metric, Report, Row, Section, Skipped, Table, Whose, rounds,
};
use serde_json::json;

use super::row::Measured;
use super::{Contest, Outcome, Shape, Way, Work};
use crate::bench::suite;
use crate::shared::host::Host;
use crate::shared::target::place_words;
use crate::shared::units::readable;

pub(super) fn report(contest: &Contest<'_>, outcomes: &[Outcome]) -> Report {
    let target = contest.target;
    let (path, size) = (target.path.display().to_string(), readable(target.bytes));
    let measured = outcomes.iter().flat_map(|outcome| &outcome.rounds);
    let host = Host::with_driver(&target.path, measured.map(|measured| &measured.driver));
    let rows = rows(outcomes);
    let files = if target.is_made { "made in" } else { "of" };
    let head = format!(
        "{size} {files} {path}; up to {} requests at random places, one at a time; {}, medians; direct I/O here: {}",
        contest.ops,
        rounds::words(contest.rounds),
        needs(contest)
    );
    let facts = [
        ("File", format!("{size} {files} {}", place_words(&path))),
        ("Requests in a row, at most", contest.ops.to_string()),
        ("Rounds", contest.rounds.to_string()),
        ("Direct I/O", needs(contest)),
    ];
    let section = Section {
        id: "alignment",
        title: "Alignment".to_owned(),
        question: "What has to be aligned, and what does it cost where it is not?".to_owned(),
        answer: answer(&rows),
        figures: figures(&rows),
        methods: methods(contest),
        notes: notes(outcomes),
        ..Section::default()
    };
    let mut report = suite::report(&host, target, head, facts, section);
    report.fields.extend([
        ("made_for_this", json!(target.is_made)),
        ("bytes", json!(target.bytes)),
        ("ops", json!(contest.ops)),
        ("rounds", json!(contest.rounds)),
        ("memory_alignment_bytes", json!(contest.alignment.map(|alignment| alignment.memory.get()))),
        ("offset_alignment_bytes", json!(contest.alignment.map(|alignment| alignment.offset.get()))),
    ]);
    Report { rows, skipped: skipped(contest), ..report }
}

/// What `statx(2)` says.
fn needs(contest: &Contest<'_>) -> String {
    match (contest.alignment, &contest.target.direct_refusal) {
        (_, Some(refusal)) => format!("none ({refusal})"),
        (Some(alignment), None) => {
            let (memory, offset) = (alignment.memory.get(), alignment.offset.get());
            format!("memory at multiples of {memory} bytes, offsets and lengths of {offset}")
        }
        (None, None) => "unknown".to_owned(),
    }
}

fn rows(outcomes: &[Outcome]) -> Vec<Row> {
    let mut rows: Vec<Row> = outcomes.iter().map(row).collect();
    for (index, outcome) in outcomes.iter().enumerate() {
        let base = find(&rows, outcome.work, outcome.way, Shape::Aligned).and_then(|row| row.value(MICROS));
        rows[index].add_ratio("ratio_to_aligned", MICROS, base);
    }
    rows
}

fn row(outcome: &Outcome) -> Row {
    let Outcome { work, way, shape, rounds, .. } = outcome;
    let whose = if matches!(way, Way::Headwater | Way::Uncached) { Whose::Headwater } else { Whose::Peer };
    let refusal = rounds.iter().find_map(|measured| measured.refusal.as_deref());
    let done = || rounds.iter().filter(|measured| measured.refusal.is_none() && measured.ops > 0);
    let each = |value: fn(&Measured) -> f64| done().map(value);
    let per_op = |value: fn(&Measured) -> Option<u64>| {
        done().filter_map(move |measured| Some(value(measured)? as f64 / measured.ops as f64))
    };
    let read = per_op(|measured| measured.device_read_bytes);
    let written = per_op(|measured| measured.device_written_bytes);
    Row::new(whose, format!("{}, {}, {}", work.name(), way.name(), shape.name()))
        .label("id", format!("{}-{}-{}", work.id(), way.id(), shape.id()))
        .named()
        .label("work", work.id())
        .label("way", way.id())
        .label("shape", shape.id())
        .label("length_bytes", shape.length_bytes())
        .label("refusal", refusal)
        .label("ops", done().map(|measured| measured.ops).min().unwrap_or(0))
        .metric(Metric::new(MICROS, "µs", Better::Lower, each(|it| it.seconds * 1e6 / it.ops as f64)))
        .metric(Metric::new(DEVICE_READ, "bytes", Better::Lower, read))
        .metric(Metric::new(DEVICE_WRITTEN, "bytes", Better::Lower, written))
}

fn find(rows: &[Row], work: Work, way: Way, shape: Shape) -> Option<&Row> {
    rows.iter().find(|row| row.is(&[("work", work.id()), ("way", way.id()), ("shape", shape.id())]))
}

/// For each work a table of times, and what the device was asked for.
fn figures(rows: &[Row]) -> Vec<Figure> {
    let tables = [
        (Work::Read, MICROS, "A read from the device, µs"),
        (Work::Read, DEVICE_READ, "Bytes read from the device by a read"),
        (Work::Held, MICROS, "A read from memory, µs"),
        (Work::Write, MICROS, "A write, the sync of all divided among them, µs"),
        (Work::Write, DEVICE_READ, "Bytes read from the device by a write (read-modify-write)"),
        (Work::Write, DEVICE_WRITTEN, "Bytes written to the device by a write"),
    ];
    tables.into_iter().filter_map(|(work, metric, caption)| table(rows, work, metric, caption)).collect()
}

fn table(rows: &[Row], work: Work, metric: &str, caption: &str) -> Option<Figure> {
    let has_rows = |way: &Way| find(rows, work, *way, Shape::Aligned).is_some();
    let ways: Vec<Way> = Way::ALL.into_iter().filter(has_rows).collect();
    let cells = |shape: Shape| {
        let of_way =
            |way: &Way| find(rows, work, *way, shape).map_or_else(String::new, |row| cell(row, metric));
        [shape.name().to_owned()].into_iter().chain(ways.iter().map(of_way)).collect()
    };
    let table = Table {
        caption: caption.to_owned(),
        columns: [head(work, metric)]
            .into_iter()
            .chain(ways.iter().map(|way| way.name()))
            .map(str::to_owned)
            .collect(),
        rows: Shape::ALL.into_iter().map(|shape| (Whose::Peer, cells(shape))).collect(),
        minor: if ways.len() == Way::ALL.len() { vec![ways.len()] } else { Vec::new() },
        media: Media::Both,
    };
    (!ways.is_empty()).then_some(Figure::Table(table))
}

/// Of the first column, where the text has no caption.
fn head(work: Work, metric: &str) -> &'static str {
    match (work, metric) {
        (Work::Read, MICROS) => "read from the device, µs",
        (Work::Held, _) => "read from memory, µs",
        (Work::Write, MICROS) => "written and synced, µs",
        (Work::Read, _) => "device bytes a read",
        (Work::Write, DEVICE_READ) => "bytes read by a write",
        (Work::Write, _) => "bytes written by a write",
    }
}

fn cell(row: &Row, metric: &str) -> String {
    match row.value(metric) {
        _ if !row.text("refusal").is_empty() => row.text("refusal").to_owned(),
        None => "-".to_owned(),
        Some(value) if metric != MICROS => format!("{value:.0}"),
        Some(value) if value < 10.0 => format!("{value:.3}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// Where `O_DIRECT` fails, what headwater pays for the same, and what less than a block costs.
fn answer(rows: &[Row]) -> String {
    let mut parts = vec![refusals(rows)];
    let ratio = |work, way, shape| find(rows, work, way, shape).and_then(|row| row.value("ratio_to_aligned"));
    let costs = [Shape::BufferBy1, Shape::OffsetBy1, Shape::Length].map(|shape| {
        let ratio = ratio(Work::Read, Way::Headwater, shape)?;
        Some(format!("{ratio:.2} × with {}", shape.name()))
    });
    let costs: Vec<String> = costs.into_iter().flatten().collect();
    if !costs.is_empty() {
        let costs = costs.join(", ");
        parts.push(format!("headwater takes all of them; a read takes {costs}, against an aligned one"));
    }
    let partial = [Way::Buffered, Way::Headwater].map(|way| {
        let ratio = ratio(Work::Write, way, Shape::Few)?;
        let read = find(rows, Work::Write, way, Shape::Few)?.value(DEVICE_READ);
        let read = read.map(|bytes| format!(", {bytes:.0} bytes read first")).unwrap_or_default();
        Some(format!("{} {ratio:.2} × the time of a whole page{read}", way.name()))
    });
    let partial: Vec<String> = partial.into_iter().flatten().collect();
    if !partial.is_empty() {
        parts.push(format!("100 bytes written to a page that is not in memory: {}", partial.join("; ")));
    }
    parts.retain(|part| !part.is_empty());
    let text = parts.join("; ");
    if text.is_empty() { text } else { text + "." }
}

fn refusals(rows: &[Row]) -> String {
    let direct = |shape: &Shape| find(rows, Work::Read, Way::Direct, *shape);
    let is_refused = |shape: &Shape| direct(shape).is_some_and(|row| !row.text("refusal").is_empty());
    let refused: Vec<&str> = Shape::ALL.into_iter().filter(is_refused).map(Shape::name).collect();
    match (direct(&Shape::Aligned), refused.is_empty()) {
        (None, _) => String::new(),
        (Some(_), true) => "O_DIRECT takes every shape here".to_owned(),
        (Some(_), false) => format!("O_DIRECT fails (EINVAL) with {}", refused.join(", ")),
    }
}

fn methods(contest: &Contest<'_>) -> Vec<Method> {
    let how = format!(
        "Each row is a child process that makes up to {} requests of a thread, one at a time, at random pages with a page \
         between any two of them; a row ends after a second ({} ms where nothing goes to the device). Before rows that go to \
         the device the kernel was made to forget the file (posix_fadvise). What was read is compared with the file, what was \
         written is read again. {}",
        contest.ops,
        super::HELD_LIMIT.as_millis(),
        rounds::sentence(contest.rounds)
    );
    let ways = "buffered: pread and pwrite through the page cache. O_DIRECT: the same around it, where the first request shows \
                whether the kernel takes the shape. headwater: read_at and write_at; it reads whole blocks into memory of its own \
                and copies from there, so that callers align nothing. Uncached: the same with Caching::Off, where an aligned buffer is \
                read into at once.";
    let less = "Whole pages replace what is there; of less, the rest of the page is read first, unless it is in memory. The table \
                of bytes read by a write shows it: the kernel reads the page once, for headwater as well, which writes parts of \
                pages through the kernel. Writes end with fdatasync, which counts, divided among the writes. Bytes are \
                those of /proc/self/io: what the process has had devices read and write.";
    [("All rows", how.as_str()), ("Ways", ways), ("Less than a block", less)]
        .map(|(what, how)| Method::new(what, how))
        .to_vec()
}

fn skipped(contest: &Contest<'_>) -> Vec<Skipped> {
    let target = contest.target;
    let direct = target.direct_refusal.as_ref().map(|refusal| Skipped::new("", "O_DIRECT", refusal));
    let write = (!target.is_made).then(|| Skipped::new("", "writing", "a file of yours is not written to"));
    direct.into_iter().chain(write).collect()
}

fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let is_warm = outcomes.iter().any(|outcome| outcome.stayed_warm);
    let warm = "the page cache kept some of the file, so not all rows went to the device";
    is_warm.then(|| warm.to_owned()).into_iter().collect()
}

const MICROS: &str = "us_per_op";
const DEVICE_READ: &str = "device_read_bytes_per_op";
const DEVICE_WRITTEN: &str = "device_written_bytes_per_op";
