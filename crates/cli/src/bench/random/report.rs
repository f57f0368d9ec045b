//! Report: the tables, the JSON and the section of a random suite.
//!
//! Owns: the words and columns.
//! Does not own: the measurements, what counts of them (`figures`).

use os_display::Quotable;
use serde::Serialize;

use super::figures::{Line, MemoryOf, lines};
use super::{Contest, IN_FLIGHT, Plan, Span, Way};
use crate::bench::file::Target;
use crate::bench::host::Host;
use crate::bench::section::{Bar, Bars, Better, Curve, Curves, Figure, Method, Section, Table, Whose};
use crate::bench::suite::rounds_words;
use crate::shared::units::readable;

#[derive(Serialize)]
pub(super) struct Report {
    suite: &'static str,
    host: Host,
    path: String,
    made_for_this: bool,
    bytes: u64,
    memory_bytes: u64,
    /// Whether each row had no more memory than that.
    limited: bool,
    in_flight: u32,
    rounds: u32,
    seconds: f64,
    rows: Vec<Line>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    fio: Vec<String>,
}

#[derive(Serialize)]
struct Skipped {
    id: String,
    name: String,
    reason: String,
}

impl Report {
    pub(super) fn new(plan: &Plan, target: &Target, contest: &Contest<'_>) -> Report {
        let mut host = Host::of(&target.path);
        let mut measured = contest.outcomes.iter().flat_map(|outcome| &outcome.rounds);
        host.driver = measured.find_map(|measured| measured.driver.clone());
        let skipped = contest.skipped.iter().map(|(span, way, reason)| Skipped {
            id: format!("{}-{}", span.id(), way.id()),
            name: format!("{}, {}", way.name(), span_words(*span)),
            reason: reason.clone(),
        });
        Report {
            suite: "random",
            host,
            path: target.path.display().to_string(),
            made_for_this: target.is_made,
            bytes: target.bytes,
            memory_bytes: contest.memory_bytes,
            limited: contest.cgroup_refusal.is_none(),
            in_flight: IN_FLIGHT,
            rounds: plan.rounds,
            seconds: plan.limit.as_secs_f64(),
            rows: lines(&contest.outcomes, |outcome| contest.span_bytes(outcome.span)),
            skipped: skipped.collect(),
            notes: notes(plan, contest),
            fio: Span::ALL.map(|span| fio_line(target, contest.span_bytes(span), plan)).to_vec(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.host.line(), self.head(), String::new()];
        for span in Span::ALL.into_iter().filter(|&span| self.of(span).next().is_some()) {
            lines.extend(self.table_text(span));
            lines.push(String::new());
        }
        lines.extend(self.skipped.iter().map(|row| format!("skipped {}: {}", row.name, row.reason)));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(self.answer());
        lines.push(format!("the device's limit: {}", self.fio[1]));
        lines.join("\n") + "\n"
    }

    fn head(&self) -> String {
        let made = if self.made_for_this { "made in" } else { "of" };
        let memory = readable(self.memory_bytes);
        let limit = match self.limited {
            true => format!("{memory} of memory for each row (cgroup)"),
            false => format!("rows planned for {memory} of memory, not limited to it"),
        };
        let (bytes, path, rounds) = (readable(self.bytes), &self.path, rounds_words(self.rounds));
        format!(
            "{bytes} {made} {path}; {limit}; {IN_FLIGHT} reads of 4 KiB in flight, {} s a row, {rounds}, medians",
            self.seconds
        )
    }

    fn of(&self, span: Span) -> impl Iterator<Item = &Line> {
        self.rows.iter().filter(move |line| line.span == span.id())
    }

    fn title_of(&self, span: Span) -> String {
        let bytes = self.of(span).next().map_or(0, |line| line.span_bytes);
        format!("{} of {}", span_words(span), readable(bytes))
    }

    fn table_text(&self, span: Span) -> Vec<String> {
        let rows: Vec<Vec<String>> = self.of(span).map(Line::cells).collect();
        let head = [vec![self.title_of(span)], COLUMNS.map(str::to_owned).to_vec()].concat();
        let width = |column: usize| {
            rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let show = |row: &Vec<String>| {
            let first = format!("{:<1$}", row[0], width(0));
            let rest = row.iter().enumerate().skip(1);
            first + &rest.map(|(column, cell)| format!("  {cell:>0$}", width(column))).collect::<String>()
        };
        [&head].into_iter().chain(&rows).map(show).collect()
    }

    /// One sentence with the figures of the best headwater row against the best other one, of each span.
    fn answer(&self) -> String {
        let parts: Vec<String> = Span::ALL.into_iter().filter_map(|span| self.answer_of(span)).collect();
        let sentence = parts.join("; ");
        let mut letters = sentence.chars();
        let first = letters.next().map(|letter| letter.to_uppercase().to_string());
        format!("{}{}.", first.unwrap_or_default(), letters.as_str())
    }

    fn answer_of(&self, span: Span) -> Option<String> {
        let best = |is_headwater: bool| {
            let rows = self.of(span).filter(|line| line.is_headwater == is_headwater);
            rows.max_by(|left, right| left.reads_per_s.total_cmp(&right.reads_per_s))
        };
        let (ours, theirs) = (best(true)?, best(false)?);
        let against = match ours.ratio.filter(|_| theirs.way != Way::Buffered.id()) {
            Some(ratio) => format!(" and {ratio:.2} × std buffered"),
            None => String::new(),
        };
        Some(format!(
            "{} {} reads {:.0} pages a second, {:.2} × {}{against}",
            span_words(span),
            ours.name,
            ours.reads_per_s,
            ours.reads_per_s / theirs.reads_per_s,
            theirs.name
        ))
    }

    pub(super) fn section(&self) -> Section {
        let figures = Span::ALL.into_iter().filter(|&span| self.of(span).next().is_some());
        Section {
            headline: String::new(),
            id: "random",
            title: "Random reads".to_owned(),
            question: format!(
                "How many pages of 4 KiB can be read at random with {IN_FLIGHT} reads in flight, when memory holds all of them, \
                 and when it does not?"
            ),
            answer: self.answer(),
            figures: figures.flat_map(|span| self.figures(span)).collect(),
            methods: self.methods(),
            facts: vec![
                ("File".to_owned(), format!("{} in {}", readable(self.bytes), self.path)),
                ("Memory of a row".to_owned(), self.memory_words()),
                ("Reads".to_owned(), format!("4 KiB, {IN_FLIGHT} in flight")),
                ("Time".to_owned(), format!("{} s a row, {}", self.seconds, rounds_words(self.rounds))),
            ],
            notes: self
                .skipped
                .iter()
                .map(|row| format!("Skipped {}: {}", row.name, row.reason))
                .chain(self.notes.iter().cloned())
                .collect(),
        }
    }

    fn memory_words(&self) -> String {
        match self.limited {
            true => format!("{}, by a cgroup", readable(self.memory_bytes)),
            false => "not limited".to_owned(),
        }
    }

    fn figures(&self, span: Span) -> [Figure; 3] {
        let bar = |line: &Line| Bar {
            label: line.name.clone(),
            value: line.reads_per_s,
            spread: (line.reads_per_s_min, line.reads_per_s_max),
            whose: line.whose(),
            note: String::new(),
        };
        let curve = |line: &Line| Curve {
            label: line.name.clone(),
            whose: line.whose(),
            points: line.within_us.clone(),
        };
        let caption = |what: &str| format!("{what}, {}", self.title_of(span));
        let columns = ["way"].into_iter().chain(COLUMNS).map(str::to_owned).collect();
        [
            Figure::Bars(Bars {
                caption: caption("Reads a second"),
                unit: "reads/s",
                better: Better::Higher,
                bars: self.of(span).map(bar).collect(),
            }),
            Figure::Curves(Curves {
                caption: caption("How long a read takes"),
                unit: "µs",
                curves: self.of(span).map(curve).collect(),
            }),
            Figure::Table(Table {
                caption: caption("All figures"),
                columns,
                rows: self.of(span).map(|line| (line.whose(), line.cells())).collect(),
            }),
        ]
    }

    fn methods(&self) -> Vec<Method> {
        let method = |what: &str, how: &str, fio: Option<String>| Method {
            what: what.to_owned(),
            how: how.to_owned(),
            fio,
        };
        let buffered = self.fio[0].replace("--direct=1", "--direct=0");
        let threads = buffered.replace("--ioengine=io_uring", "--ioengine=psync");
        let threads = threads.replace(
            &format!("--iodepth={IN_FLIGHT}"),
            &format!("--numjobs={IN_FLIGHT} --thread --group_reporting"),
        );
        vec![
            method(
                "All rows",
                "A process for each row and round, in a memory cgroup of its own where that is possible. The file is made cold \
                 before; rows go forwards and backwards in turn; places are the same for all rows of a round. The first word of \
                 every page is compared with what was written when the file was made here, and 64 pages with the file itself in \
                 any case. Latencies are from before a read to after it, in one clock reading a read.",
                None,
            ),
            method(
                "Rows with a cache",
                "The span is read once, from start to end in steps of 1 MiB, before the clock starts; of a span beyond memory \
                 that leaves what the cache kept.",
                None,
            ),
            method("std buffered and mmap", "Threads that read one page after the other.", Some(threads)),
            method(
                "O_DIRECT and headwater direct",
                "Around all caches: threads that read one page after the other, and tasks on one thread.",
                Some(self.fio[1].clone()),
            ),
        ]
    }
}

impl Line {
    fn whose(&self) -> Whose {
        if self.is_headwater { Whose::Headwater } else { Whose::Peer }
    }

    /// The name, and a cell for each of [`COLUMNS`].
    fn cells(&self) -> Vec<String> {
        let percent =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0));
        let memory = match self.memory_of {
            MemoryOf::Cgroup => format!("{:.0}", self.memory_mib),
            MemoryOf::Process => format!("{:.0} rss", self.memory_mib),
        };
        vec![
            self.name.clone(),
            format!("{:.0}", self.reads_per_s),
            format!("{:.0} – {:.0}", self.reads_per_s_min, self.reads_per_s_max),
            self.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{:.2}", self.cpu_us_per_read),
            memory,
            format!("{:.1}", self.p50_us),
            format!("{:.1}", self.p99_us),
            format!("{:.1}", self.p99_9_us),
            percent(self.hit_share),
            percent(self.kernel_share),
            percent(self.own_share),
        ]
    }
}

fn span_words(span: Span) -> &'static str {
    match span {
        Span::Within => "within memory",
        Span::Beyond => "beyond memory",
    }
}

fn notes(plan: &Plan, contest: &Contest<'_>) -> Vec<String> {
    let mut notes = vec![
        "kernel %, own %: of the span, in the kernel's page cache and in headwater's memory when the clock started"
            .to_owned(),
    ];
    if contest.cgroup_refusal.is_some() {
        notes.push(
            "without a cgroup memory is that of the process (rss); what the page cache holds for it is not counted"
                .to_owned(),
        );
    }
    if contest.memory_bytes < plan.memory_bytes {
        let (less, asked) = (readable(contest.memory_bytes), readable(plan.memory_bytes));
        notes.push(format!(
            "rows had {less} of memory instead of {asked}, so that the file is more than that"
        ));
    }
    let warm = contest.outcomes.iter().filter(|outcome| outcome.stayed_warm);
    let warm: Vec<String> =
        warm.map(|outcome| format!("{} memory, {}", outcome.span.id(), outcome.way.name())).collect();
    if !warm.is_empty() {
        notes.push(format!("the page cache kept some of the file before these rows: {}", warm.join("; ")));
    }
    notes
}

/// What measures the device without headwater.
fn fio_line(target: &Target, span_bytes: u64, plan: &Plan) -> String {
    let path = target.path.maybe_quote();
    let file = match target.is_made {
        true => format!("--filename={path}/fio.tmp --unlink=1"),
        false => format!("--filename={path} --readonly"),
    };
    let seconds = plan.limit.as_secs().max(1);
    format!(
        "fio --name=random {file} --size={span_bytes} --rw=randread --norandommap --bs=4k --ioengine=io_uring --direct=1 \
         --iodepth={IN_FLIGHT} --time_based --runtime={seconds}"
    )
}

const COLUMNS: [&str; 11] = [
    "reads/s",
    "min – max",
    "× buffered",
    "CPU µs",
    "MiB",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "hit %",
    "kernel %",
    "own %",
];
