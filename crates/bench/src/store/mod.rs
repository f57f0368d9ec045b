//! Store: gets of objects through headwater, against `LocalFileSystem` of the crate object_store.
//!
//! Question: What does a query engine gain that reads local objects through headwater?
//!
//! ```text
//!   row ─► rounds × arms, each in a process of its own (store-arm) ─► every page checked ─► medians ─► table ─► ratios against bars
//! ```
//!
//! Owns: the rows, the arms, what is promised, the files and what is cached of them.
//! Does not own: rounds and verdicts (contest), how an arm reads (ways).

mod ways;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use headwater_measure::{Figures, Limit, child};
use headwater_testkit::Pattern;

use crate::contest::{self, Contest, Promise, shown};
use crate::folder::Folder;
use crate::tools::{self, name_of};

/// Options of `store`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder on the device to measure; the objects in it are removed afterwards.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// MiB of the object that is read as a stream and by ranges.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=tools::MIB_MAX))]
    mib: u64,
    /// How many small objects.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
    /// Seconds of each run that reads ranges over and over.
    #[arg(long, default_value_t = 1.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these rows.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Row>,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One arm, in a process of its own.
#[derive(Clone, clap::Args)]
pub(crate) struct ArmOptions {
    row: Row,
    arm: Arm,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    mib: u64,
    #[arg(long)]
    objects: u32,
    #[arg(long)]
    seconds: f64,
}

/// What is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Row {
    /// All of a large object as a stream, cached.
    StreamWarm,
    /// The same, from the device.
    StreamCold,
    /// 100 ranges of 64 KiB in one call, cached.
    RangesWarm,
    /// The same, from the device.
    RangesCold,
    /// One range of 64 KiB in each call, 32 calls in flight, cached.
    RangeWarm,
    /// Small objects, each once, one after the other, cached.
    ObjectsWarm,
    /// The same, from the device.
    ObjectsCold,
}

/// How it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Arm {
    /// `LocalFileSystem`; cached is what the kernel's page cache holds.
    Local,
    /// `HeadwaterFileSystem`; cached is what its own cache holds.
    Headwater,
    /// The same where the kernel's page cache holds it and headwater's does not yet.
    HeadwaterFirst,
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    contest::begin(options.json.as_deref())?;
    let folder = Folder::create(&options.dir)?;
    folder.require_room((options.mib << 20) + (0..options.objects).map(small_bytes).sum::<u64>())?;
    let rows = Row::value_variants().iter().copied();
    let rows: Vec<Row> = rows.filter(|row| options.only.is_empty() || options.only.contains(row)).collect();
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    make(options, &rows, folder.path())?;
    for row in rows {
        let outcome = contest(row, options, folder.path()).run(row.id(), options.rounds, PROMISES)?;
        failed.extend(outcome.failed);
        let findings = outcome.report.findings();
        tools::print(&findings.text)?;
        all.push(findings);
    }
    contest::finish("store", &all, &failed, options.json.as_deref())
}

fn make(options: &Options, rows: &[Row], folder: &Path) -> io::Result<()> {
    if rows.iter().any(|row| !row.is_of_small_objects()) {
        pattern(LARGE).write_file(folder.join(LARGE), options.mib << 20)?;
    }
    if rows.iter().any(|row| row.is_of_small_objects()) {
        for index in 0..options.objects {
            let name = index.to_string();
            pattern(&name).write_file(folder.join(&name), small_bytes(index))?;
        }
    }
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

fn contest<'a>(row: Row, options: &'a Options, folder: &'a Path) -> Contest<'a> {
    let mut contest = Contest::default();
    for &arm in row.arms() {
        contest.way(name_of(arm), move || {
            prepare(row, arm, options, folder)?;
            Ok(child::result::<Figures>(&mut command(row, arm, options, folder)?, None)?)
        });
    }
    contest
}

/// What the kernel's page cache holds when the arm starts.
fn prepare(row: Row, arm: Arm, options: &Options, folder: &Path) -> io::Result<()> {
    let is_in_kernel = row.is_warm() && arm != Arm::Headwater;
    let bring = |path: PathBuf| if is_in_kernel { tools::make_warm(&path) } else { tools::make_cold(&path) };
    if row.is_of_small_objects() {
        return (0..options.objects).try_for_each(|index| bring(folder.join(index.to_string())));
    }
    bring(folder.join(LARGE))
}

fn command(row: Row, arm: Arm, options: &Options, folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command
        .args(["store-arm", &name_of(row), &name_of(arm), "--folder"])
        .arg(folder)
        .args(["--mib", &options.mib.to_string(), "--objects", &options.objects.to_string()])
        .args(["--seconds", &options.seconds.to_string()]);
    Ok(command)
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let figures = ways::run(options)?;
    tools::print_json(&figures)
}

impl Row {
    fn id(self) -> &'static str {
        match self {
            Row::StreamWarm => "stream-warm",
            Row::StreamCold => "stream-cold",
            Row::RangesWarm => "ranges-warm",
            Row::RangesCold => "ranges-cold",
            Row::RangeWarm => "range-warm",
            Row::ObjectsWarm => "objects-warm",
            Row::ObjectsCold => "objects-cold",
        }
    }

    fn is_warm(self) -> bool {
        matches!(self, Row::StreamWarm | Row::RangesWarm | Row::RangeWarm | Row::ObjectsWarm)
    }

    fn is_of_small_objects(self) -> bool {
        matches!(self, Row::ObjectsWarm | Row::ObjectsCold)
    }

    fn arms(self) -> &'static [Arm] {
        match self {
            Row::StreamWarm | Row::ObjectsWarm => &[Arm::Local, Arm::Headwater, Arm::HeadwaterFirst],
            _ => &[Arm::Local, Arm::Headwater],
        }
    }
}

/// Contents that are the same for all arms.
fn pattern(name: &str) -> Pattern {
    Pattern::new(name.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into())))
}

/// From 4 KiB to 16 KiB, of no round length.
fn small_bytes(index: u32) -> u64 {
    4096 + u64::from(index) * 7919 % (12 << 10)
}

/// The name of the large object.
const LARGE: &str = "large";

const RATE: &str = "mib_per_s";
const CPU: &str = "cpu_s_per_gib";
const OBJECTS: &str = "files_per_s";

const fn faster(row: &'static str, figure: &'static str, at_least: f64) -> Promise {
    contest::ratio(row, "headwater", "local", figure, Limit::AtLeast(at_least))
}

const fn cheaper(row: &'static str, at_most: f64) -> Promise {
    contest::ratio(row, "headwater", "local", CPU, Limit::AtMost(at_most))
}

const PROMISES: &[Promise] = &[
    faster("stream-warm", RATE, 10.0),
    cheaper("stream-warm", 0.25),
    shown("stream-warm", "headwater-first", "local", RATE),
    faster("stream-cold", RATE, 1.5),
    cheaper("stream-cold", 0.25),
    faster("ranges-warm", RATE, 3.0),
    shown("ranges-warm", "headwater", "local", CPU),
    faster("ranges-cold", RATE, 2.0),
    shown("ranges-cold", "headwater", "local", CPU),
    faster("range-warm", RATE, 3.0),
    shown("range-warm", "headwater", "local", CPU),
    faster("objects-warm", OBJECTS, 1.2),
    shown("objects-warm", "headwater", "local", "cpu_us"),
    shown("objects-warm", "headwater-first", "local", OBJECTS),
    faster("objects-cold", OBJECTS, 1.2),
    shown("objects-cold", "headwater", "local", "cpu_us"),
];
