//! UBC: the measurements of the paper on NetBSD's unified buffer cache (Silvers, FREENIX 2000), on the user's own device.
//!
//! Question: What do reading, writing and reading again cost in each way there is?
//!
//! ```text
//!   rounds × works × ways: make cold ─► child (bench-row) ─► passes, a measurement each ─► same bytes? ─► medians
//! ```
//!
//! Owns: works, ways, which of them go together, the files that are written to, what is said of them.
//! Does not own: reading and writing (`row`).

mod arguments;
mod row;

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_measure::table::shown;
use headwater_measure::{
    Bars, Better, Comparison, Figure, Findings, Media, Method, Metric, Report, Row, Section, Table, Whose,
    rounds, verdict,
};
use serde_json::json;

pub(crate) use arguments::{EXAMPLES, UbcArguments};
pub(super) use row::measure as measure_row;

use super::suite::{self, Task};
use super::tally::Sums;
use crate::bench::arguments::RowSuite;
use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::fio::FioFile;
use crate::shared::host::Host;
use crate::shared::target::{self, Fitting, SIZE_BYTES_MIN, Target, Wanted, place_words};
use crate::shared::units::{ByteSize, readable};
use os_display::Quotable;
use row::{Measured, Pass};

pub(super) struct Plan {
    /// Of a large file, at most.
    pub(super) bytes_max: u64,
    pub(super) rounds: u32,
    /// For one pass.
    pub(super) limit: Duration,
    pub(super) queue: QueueArguments,
}

/// What is done with a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Work {
    /// The beginning of the device that the file lies on is read, if it can be opened.
    Disk,
    /// A large cold file is read from start to end, and not kept.
    Raw,
    /// Zeros go to an empty file.
    New,
    /// Zeros go to a file that has contents.
    Overwrite,
    /// A large cold file is read at positions.
    Large,
    /// A part of it.
    Small,
    /// The same part four times.
    Again,
}

impl Work {
    const ALL: [Work; 7] =
        [Work::Disk, Work::Raw, Work::New, Work::Overwrite, Work::Large, Work::Small, Work::Again];

    fn id(self) -> &'static str {
        match self {
            Work::Disk => "disk",
            Work::Raw => "raw",
            Work::New => "new",
            Work::Overwrite => "overwrite",
            Work::Large => "large",
            Work::Small => "small",
            Work::Again => "again",
        }
    }

    fn name(self, pass: usize) -> String {
        match self {
            Work::Disk => "raw device to null".to_owned(),
            Work::Raw => "raw file to null".to_owned(),
            Work::New => "zero to new file".to_owned(),
            Work::Overwrite => "zero to overwrite".to_owned(),
            Work::Large => "large file to null".to_owned(),
            Work::Small => "50 MB to null".to_owned(),
            Work::Again => format!("50 MB, read {} of {PASSES}", pass + 1),
        }
    }

    /// Of a row: a pass of a work.
    fn row_id(self, pass: usize) -> String {
        if self == Work::Again { format!("{}-{}", self.id(), pass + 1) } else { self.id().to_owned() }
    }

    /// Whether it is read from start to end, and not kept.
    fn is_raw(self) -> bool {
        matches!(self, Work::Disk | Work::Raw)
    }

    fn writes(self) -> bool {
        matches!(self, Work::New | Work::Overwrite)
    }

    /// How many rows of the table it is.
    fn passes(self) -> usize {
        if self == Work::Again { PASSES } else { 1 }
    }

    fn bytes(self, large_bytes: u64) -> u64 {
        match self {
            Work::Disk | Work::Raw | Work::Large => large_bytes,
            // Direct writes are whole pages.
            Work::New | Work::Overwrite => large_bytes / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES,
            Work::Small | Work::Again => large_bytes.min(SMALL_BYTES),
        }
    }
}

/// How it is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Way {
    Buffered,
    Mapped,
    Direct,
    Headwater,
    View,
    /// What the device can do.
    Device,
}

impl Way {
    const ALL: [Way; 6] = [Way::Buffered, Way::Mapped, Way::Direct, Way::Headwater, Way::View, Way::Device];

    /// For the child's command line and the JSON.
    fn id(self) -> &'static str {
        match self {
            Way::Buffered => "buffered",
            Way::Mapped => "mmap",
            Way::Direct => "direct",
            Way::Headwater => "headwater",
            Way::View => "view",
            Way::Device => "device",
        }
    }

    /// The head of its column.
    fn name(self) -> &'static str {
        if self == Way::Direct { "O_DIRECT" } else { self.id() }
    }

    fn whose(self) -> Whose {
        match self {
            Way::Headwater | Way::View => Whose::Headwater,
            Way::Device => Whose::Limit,
            Way::Buffered | Way::Mapped | Way::Direct => Whose::Peer,
        }
    }

    fn can(self, work: Work) -> bool {
        match self {
            // A file system keeps its own blocks in the page cache of its device.
            Way::Buffered | Way::Mapped if work == Work::Disk => false,
            Way::Buffered | Way::Direct | Way::Headwater => true,
            Way::Mapped | Way::View => !work.writes(),
            Way::Device => work != Work::Again,
        }
    }
}

/// A work in one way, and what it took, a child a round.
struct Outcome {
    work: Work,
    way: Way,
    rounds: Vec<Measured>,
    stayed_warm: bool,
}

/// A new file to read, of the size asked for or what fits: the files that are written to need as much each.
///
/// # Errors
/// One sentence for the user.
pub(super) fn wanted(size: Option<ByteSize>, dir: Option<&Path>) -> Result<Wanted, String> {
    let dir = target::usable_directory(dir)?;
    let fitting_bytes = (target::free_bytes_in(&dir)? / FILES_AND_ROOM) & !(SIZE_BYTES_MIN - 1);
    let size = size.unwrap_or(ByteSize(SIZE_DEFAULT.0.min(fitting_bytes.max(SIZE_BYTES_MIN))));
    target::require_room(size.0.saturating_mul(FILES), &dir, SIZED)?;
    Ok(Wanted::New { dir: Some(dir), size, fitting: SIZED })
}

pub(super) fn run(plan: &Plan, target: &Target) -> Result<Findings, String> {
    let mut contest = Contest::new(plan, target);
    let mut outcomes = contest.outcomes();
    let name = |outcome: &Outcome| format!("{}, {}", outcome.work.id(), outcome.way.name());
    rounds::with_progress(&mut outcomes, plan.rounds, name, |outcome, _| contest.measure(outcome))?;
    Ok(contest.report(&outcomes).findings())
}

struct Contest<'a> {
    plan: &'a Plan,
    target: &'a Target,
    large_bytes: u64,
    engine: EngineArguments,
    /// Where files are written, and the one that is overwritten; or why there is none.
    written: Result<(PathBuf, Target), String>,
    /// The device of the file, open for reading; or why it is not.
    device: Result<OwnedFd, String>,
    /// By the end of what was read.
    sums: Sums<u64>,
}

impl<'a> Contest<'a> {
    fn new(plan: &'a Plan, target: &'a Target) -> Contest<'a> {
        let large_bytes = target.bytes.min(plan.bytes_max);
        let engine = EngineArguments { memory: ByteSize(MEMORY_BYTES), queue: plan.queue.clone() };
        let written = written(target, large_bytes);
        let device = device_of(target, large_bytes);
        Contest { plan, target, large_bytes, engine, written, device, sums: Sums::new() }
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let is_possible = |work: Work, way: Way| {
            let used = match &self.written {
                _ if work == Work::Disk && self.device.is_err() => None,
                _ if !work.writes() => Some(self.target),
                Ok((_, overwritten)) => Some(overwritten),
                Err(_) => None,
            };
            let is_direct = matches!(way, Way::Direct | Way::Device);
            way.can(work) && used.is_some_and(|used| !is_direct || used.direct_refusal.is_none())
        };
        let pairs = Work::ALL.into_iter().flat_map(|work| Way::ALL.map(|way| (work, way)));
        let pairs = pairs.filter(|&(work, way)| is_possible(work, way));
        pairs.map(|(work, way)| Outcome { work, way, rounds: Vec::new(), stayed_warm: false }).collect()
    }

    fn measure(&mut self, outcome: &mut Outcome) -> Result<(), String> {
        let (work, way) = (outcome.work, outcome.way);
        let (descriptor, was_cold) = self.descriptor(work)?;
        let task = Task {
            suite: RowSuite::Ubc,
            row: &format!("{}:{}", work.id(), way.id()),
            bytes: work.bytes(self.large_bytes),
            limit: self.plan.limit,
            places: u64::MAX,
            seed: 0,
            engine: &self.engine,
            kernel_affinity: None,
        };
        let measured: Measured = task.run_in(None, descriptor)?;
        let sums = measured.passes.iter().flat_map(|pass| pass.sums.iter().copied());
        self.sums.compare(way.name(), sums)?;
        outcome.stayed_warm |= !was_cold;
        outcome.rounds.push(measured);
        Ok(())
    }

    /// The file that a child works on, and whether the page cache holds nothing of it.
    fn descriptor(&self, work: Work) -> Result<(OwnedFd, bool), String> {
        let of = |target: &Target| {
            let was_cold = target.make_cold();
            let descriptor = target.descriptor();
            descriptor.map(|descriptor| (descriptor, was_cold)).map_err(|error| error.to_string())
        };
        match (work, &self.written) {
            (Work::Disk, _) => {
                let device = self.device.as_ref().map_err(String::clone)?;
                // It is read directly: nothing of it gets into the page cache.
                device.try_clone().map(|device| (device, true)).map_err(|error| error.to_string())
            }
            (Work::New, Ok((dir, _))) => {
                // Without a name, so it goes with the child.
                let made = tempfile::tempfile_in(dir);
                let made =
                    made.map_err(|error| format!("failed to make a file in {}: {error}", dir.maybe_quote()))?;
                Ok((made.into(), true))
            }
            (Work::Overwrite, Ok((_, overwritten))) => of(overwritten),
            _ => of(self.target),
        }
    }

    fn report(&self, outcomes: &[Outcome]) -> Report {
        let (target, rounds) = (self.target, self.plan.rounds);
        let (path, made) = (target.path.display().to_string(), target.is_made);
        let (small_bytes, large) = (Work::Small.bytes(self.large_bytes), readable(self.large_bytes));
        let measured = outcomes.iter().flat_map(|outcome| &outcome.rounds);
        let host = Host::with_driver(&target.path, measured.map(|measured| &measured.driver));
        let has_row = |work: &Work| *work != Work::Disk || self.device.is_ok();
        let works = Work::ALL.into_iter().filter(has_row);
        let lines: Vec<Line> = works.flat_map(|work| lines(work, outcomes)).collect();
        let fio_file = FioFile::of(target, target.bytes);
        let mut fio = vec![fio_file.limit("read")];
        // A file of the user's is not written to.
        fio.extend(made.then(|| fio_file.limit("write") + " --end_fsync=1"));
        let files = if made { "made in" } else { "of" };
        let facts =
            [("Files", format!("{large} {files} {}", place_words(&path))), ("Rounds", rounds.to_string())];
        let section = Section {
            id: "ubc",
            title: TITLE.to_owned(),
            question: "What do reading, writing and reading again cost in each way there is?".to_owned(),
            answer: answer(&lines, &large).unwrap_or_default(),
            figures: self.figures(&lines),
            methods: self.methods(&fio),
            notes: self.notes(outcomes),
            ..Section::default()
        };
        let head = format!(
            "large: {large}, 50 MB: {}, {}{files} {path}; {}, medians",
            readable(small_bytes),
            if made { "files " } else { "" },
            rounds::words(rounds)
        );
        let mut report = suite::report(&host, target, head, facts, section);
        report.fields.extend([
            ("made_for_this", json!(made)),
            ("bytes", json!(self.large_bytes)),
            ("small_bytes", json!(small_bytes)),
            ("rounds", json!(rounds)),
            ("fio", json!(fio)),
        ]);
        let commands = fio.iter().map(|line| format!("the device's limit: {line}")).collect();
        Report { commands, rows: lines.iter().map(Line::row).collect(), ..report }
    }

    fn figures(&self, lines: &[Line]) -> Vec<Figure> {
        let bars =
            [(Work::Raw, "A large cold file to nothing"), (Work::Overwrite, "Zeros over a file, synced")];
        let bars = bars.into_iter().filter_map(|(work, caption)| {
            let line = lines.iter().find(|line| line.work == work && !line.cells.is_empty())?;
            let mut bars = Bars::of(caption, RATE, &line.cells);
            for (bar, cell) in bars.bars.iter_mut().zip(&line.cells) {
                // A part of the file is another one in each round, so it has no spread.
                if cell.number("bytes") != work.bytes(self.large_bytes) {
                    bar.spread = (bar.value, bar.value);
                }
            }
            Some(Figure::Bars(bars))
        });
        let tables = [
            (RATE, "GB/s", "Rates, GB/s", 2),
            ("seconds", "seconds", "Times, s", 3),
            ("cpu_seconds", "CPU seconds", "Processor time, s", 3),
        ];
        let tables = tables.map(|(metric, head, caption, places)| {
            let columns = [head, "page cache before"].into_iter().chain(Way::ALL.map(Way::name));
            let row = |line: &Line| {
                let cells =
                    Way::ALL.map(|way| shown(line.cell(way).and_then(|cell| cell.value(metric)), places));
                let names = [line.work.name(line.pass), line.page_cache.words().to_owned()];
                (Whose::Peer, names.into_iter().chain(cells).collect())
            };
            Figure::Table(Table {
                caption: caption.to_owned(),
                columns: columns.map(str::to_owned).collect(),
                minor: vec![1],
                rows: lines.iter().filter(|line| !line.cells.is_empty()).map(row).collect(),
                media: Media::Both,
            })
        });
        bars.chain(tables).collect()
    }

    fn methods(&self, fio: &[String]) -> Vec<Method> {
        let how = format!(
            "The rows of Chuck Silvers' paper on NetBSD's unified buffer cache (UBC, 2000), each in a child process of \
             its own, after the kernel was made to forget the file (posix_fadvise, POSIX_FADV_DONTNEED); the column \
             on the page cache says where it was not. Writing ends with fsync, which counts. Large is {}, 50 MB is \
             {}. {}",
            readable(self.large_bytes),
            readable(Work::Small.bytes(self.large_bytes)),
            rounds::sentence(self.plan.rounds)
        );
        let ways = "buffered: the page cache, 128 KiB at a time. mmap: a byte of each mapped page. O_DIRECT: 1 MiB at a \
                    time. headwater: read_at and write_at, 1 MiB at a time, the raw file by its reader. view: \
                    headwater's pages themselves. device: 32 direct requests of 1 MiB in flight, whose bytes are not \
                    looked at.";
        let limits = ["The device's limit when it reads", "The device's limit when it writes"];
        let limits = limits.into_iter().zip(fio);
        let limits =
            limits.map(|(what, line)| Method::new(what, "32 requests of 1 MiB in flight.").fio(line));
        [Method::new("All rows", how), Method::new("Ways", ways)].into_iter().chain(limits).collect()
    }

    fn notes(&self, outcomes: &[Outcome]) -> Vec<String> {
        let written = self.written.as_ref().err().map(|reason| format!("nothing was written: {reason}"));
        let refusal = self.target.direct_refusal.as_ref();
        let refusal = refusal.map(|refusal| format!("no figures for O_DIRECT and device: {refusal}"));
        let no_device =
            self.device.as_ref().err().map(|reason| format!("no row for the raw device: {reason}"));
        let reading = Some("mmap and view only read: - where something is written".to_owned());
        let is_cut = |outcome: &&Outcome| {
            let wanted_bytes = outcome.work.bytes(self.large_bytes);
            outcome.rounds.iter().flat_map(|measured| &measured.passes).any(|pass| pass.bytes < wanted_bytes)
        };
        let cut = outcomes.iter().filter(is_cut);
        let cut: Vec<String> =
            cut.map(|outcome| format!("{} by {}", outcome.work.id(), outcome.way.name())).collect();
        let cut = (!cut.is_empty())
            .then(|| format!("time was up before the end, so seconds are of a part: {}", cut.join("; ")));
        let is_warm = outcomes.iter().any(|outcome| outcome.stayed_warm);
        let warm =
            is_warm.then(|| "the page cache kept some of the file, so not all rows were cold".to_owned());
        [written, refusal, no_device, reading, cut, warm].into_iter().flatten().collect()
    }
}

/// A pass of a work in all ways.
struct Line {
    work: Work,
    pass: usize,
    page_cache: PageCache,
    /// A way that does not go with the work has none.
    cells: Vec<Row>,
}

/// What the page cache held of the file before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

impl PageCache {
    fn words(self) -> &'static str {
        match self {
            PageCache::Dropped => "dropped",
            PageCache::NotDropped => "not dropped",
            PageCache::Kept => "kept",
            PageCache::New => "new file",
        }
    }

    /// For the JSON.
    fn id(self) -> &'static str {
        match self {
            PageCache::NotDropped => "not-dropped",
            PageCache::New => "new",
            other => other.words(),
        }
    }
}

impl Line {
    fn cell(&self, way: Way) -> Option<&Row> {
        self.cells.iter().find(|cell| cell.text("way") == way.id())
    }

    fn row(&self) -> Row {
        Row::new(Whose::Peer, self.work.name(self.pass))
            .label("id", self.work.row_id(self.pass))
            .named()
            .label("page_cache", self.page_cache.id())
            .label("cells", json!(self.cells))
    }
}

/// A line for each pass of a work.
fn lines(work: Work, outcomes: &[Outcome]) -> impl Iterator<Item = Line> {
    let of_work = outcomes.iter().filter(move |outcome| outcome.work == work);
    let is_warm = of_work.clone().any(|outcome| outcome.stayed_warm);
    let page_cache = move |pass: usize| match work {
        Work::New => PageCache::New,
        Work::Again if pass > 0 => PageCache::Kept,
        _ if is_warm => PageCache::NotDropped,
        _ => PageCache::Dropped,
    };
    (0..work.passes()).map(move |pass| {
        let cells = of_work.clone().map(|outcome| cell(outcome, pass)).collect();
        Line { work, pass, page_cache: page_cache(pass), cells }
    })
}

fn cell(outcome: &Outcome, pass: usize) -> Row {
    let passes = || outcome.rounds.iter().filter_map(|measured| measured.passes.get(pass));
    let each = |value: fn(&Pass) -> f64| passes().map(value);
    let rates = each(|pass| pass.bytes as f64 / pass.seconds / GIGABYTE);
    Row::new(outcome.way.whose(), outcome.way.name())
        .label("way", outcome.way.id())
        .label("bytes", passes().map(|pass| pass.bytes).min().unwrap_or(0))
        .metric(Metric::new("seconds", "s", Better::Lower, each(|pass| pass.seconds)))
        .metric(Metric::new(RATE, "GB/s", Better::Higher, rates))
        .metric(Metric::new("cpu_seconds", "CPU s", Better::Lower, each(|pass| pass.cpu_seconds)).plain())
}

/// Reading and writing against the best other way, with what the device can do where that is known.
fn answer(lines: &[Line], size: &str) -> Option<String> {
    let cells = |work| lines.iter().find(|line| line.work == work).map(|line| &line.cells);
    let raw = cells(Work::Raw)?;
    let read = Comparison::of_best(raw.iter(), RATE)?;
    let mut text = format!("headwater reads a cold file of {size} at {:.2} GB/s", read.ours.value(RATE)?);
    if read.ours.text("way") == Way::View.id() {
        text += " by its views";
    }
    text += &format!(", {}", read.words());
    let limits = raw.iter().filter(|cell| cell.whose == Whose::Limit);
    if let Some(limit) = verdict::best(limits, RATE).and_then(|limit| limit.value(RATE)) {
        text += &format!(" and {:.2} × the ring alone", read.ours.value(RATE)? / limit);
    }
    if let Some(write) = cells(Work::Overwrite).and_then(|cells| Comparison::of_best(cells.iter(), RATE)) {
        text += &format!("; it overwrites one at {:.2} GB/s, {}", write.ours.value(RATE)?, write.words());
    }
    Some(text + ".")
}

/// The device that the file lies on, if it has as many bytes and this process may read it.
fn device_of(target: &Target, bytes: u64) -> Result<OwnedFd, String> {
    if target.is_device() {
        return Err("the file is the device".to_owned());
    }
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        format!("failed to open {}, which takes a user who may read it: {error}", path.maybe_quote())
    };
    let number = std::fs::metadata(&target.path).map_err(|error| failed(&target.path, &error))?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let events = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"));
    let events = events.map_err(|_| "the file system has no block device of its own".to_owned())?;
    let name = events.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let path = Path::new("/dev").join(name.ok_or("the device has no name")?);
    let device = std::fs::File::open(&path).map_err(|error| failed(&path, &error))?;
    let length_bytes =
        rustix::fs::seek(&device, rustix::fs::SeekFrom::End(0)).map_err(|error| failed(&path, &error))?;
    if length_bytes < bytes { Err("the device is too small".to_owned()) } else { Ok(device.into()) }
}

/// Where to write, and the file that is overwritten there.
fn written(target: &Target, large_bytes: u64) -> Result<(PathBuf, Target), String> {
    if target.is_device() {
        return Err("beside a device there is no place for files".to_owned());
    }
    let dir = match (target.is_made, target.path.parent()) {
        (true, _) => target.path.clone(),
        (false, Some(parent)) if !parent.as_os_str().is_empty() => parent.to_owned(),
        (false, _) => PathBuf::from("."),
    };
    let size = ByteSize(large_bytes);
    target::require_room(size.0.saturating_mul(FILES - 1), &dir, SIZED)?;
    let wanted = Wanted::New { dir: Some(dir.clone()), size, fitting: SIZED };
    Ok((dir, Target::prepare(&wanted)?))
}

/// Files are as large as the user says.
const SIZED: Fitting = Fitting::Exact("--size");

const PASSES: usize = 4;

/// The 50 MB of the paper.
const SMALL_BYTES: u64 = 50 << 20;

/// A second or more on the fastest devices of a few years ago, and more than headwater's memory here.
pub(super) const SIZE_DEFAULT: ByteSize = ByteSize(1 << 30);

/// One is read, one overwritten, one new.
const FILES: u64 = 3;

/// So that a file system is not filled by files that no option asks for.
const FILES_AND_ROOM: u64 = FILES + 1;

/// Twice of what is read again, and a fraction of a large file.
const MEMORY_BYTES: u64 = 128 << 20;

const RATE: &str = "gb_per_s";

/// The unit of devices' data sheets, and of the paper.
const GIGABYTE: f64 = 1e9;

/// Of the section.
pub(super) const TITLE: &str = "Reading and writing files";
