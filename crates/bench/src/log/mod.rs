//! Log: small records, each appended and made durable, by headwater and by the few lines of std that one writes for that.
//!
//! Question: What does a durable append cost, alone and from many threads or tasks?
//!
//! ```text
//!   shape ─► rounds × arms, each in a process of its own (log-arm) ─► medians ─► table ─► ratios against bars
//! ```
//!
//! One shape more writes without syncs: what gathering small writes costs.
//!
//! Owns: the arms, the shapes, what is promised of which arm against which.
//! Does not own: rounds and verdicts (contest), how an arm appends (ways), std's lines (plain).

mod plain;
mod ways;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use headwater_measure::{Figures, Limit, child};

use crate::contest::{self, Contest, Promise, shown};
use crate::folder::Folder;
use crate::tools::{self, name_of};

/// Options of `log`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder on the device to measure; the log in it is removed afterwards.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Bytes of a record.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=RECORD_BYTES_MAX))]
    record_bytes: u32,
    /// Seconds of each run of an arm.
    #[arg(long, default_value_t = 1.0, value_parser = tools::seconds)]
    seconds: f64,
    /// Interleaved rounds; medians are reported.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these shapes, of log-1, log-8, log-64, log-64-tasks and writer.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the results to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One arm, in a process of its own.
#[derive(clap::Args)]
pub(crate) struct ArmOptions {
    arm: Arm,
    file: PathBuf,
    /// Threads, or tasks of the arms with tasks.
    #[arg(long)]
    callers: u32,
    #[arg(long)]
    record_bytes: usize,
    #[arg(long)]
    seconds: f64,
}

/// A way to append and sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arm {
    /// std: each caller writes and syncs for itself.
    StdEach,
    /// std: one write each under a mutex, one fdatasync for all that wait.
    Std,
    /// The same from tasks, by `spawn_blocking`.
    StdTasks,
    /// headwater: `append`, `sync_data`.
    HeadwaterTwoCalls,
    /// headwater: `append_durable`.
    Headwater,
    /// headwater: `append_async`, `sync_data_async`.
    HeadwaterTwoCallsTasks,
    /// headwater: `append_durable_async`.
    HeadwaterTasks,
    /// headwater, a handle not opened for appending: `append_durable`.
    HeadwaterCached,
    /// std: `BufWriter`, nothing synced.
    StdWriter,
    /// headwater: `Writer`, nothing synced.
    HeadwaterWriter,
    /// The same with a `BufWriter` around it.
    HeadwaterWriterWrapped,
}

struct Shape {
    id: &'static str,
    callers: u32,
    arms: &'static [Arm],
}

pub(crate) fn run(options: &Options) -> io::Result<()> {
    let shapes = contest::chosen(&SHAPES, |shape| shape.id, &options.only, contest::is_name)?;
    contest::begin(options.json.as_deref())?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    let folder = Folder::create(&options.dir)?;
    for shape in shapes {
        let contest = contest(options, shape, folder.path());
        let outcome = contest.run(shape.id, options.rounds, PROMISES)?;
        failed.extend(outcome.failed);
        let findings = outcome.report.findings();
        tools::print(&findings.text)?;
        all.push(findings);
    }
    contest::finish("log", &all, &failed, options.json.as_deref())
}

fn contest<'a>(options: &'a Options, shape: &'a Shape, folder: &'a Path) -> Contest<'a> {
    let mut contest = Contest::default();
    for &arm in shape.arms {
        contest.way(name_of(arm), move || {
            let file = folder.join("log");
            let figures = child::result(&mut command(arm, shape, options, &file)?, None)?;
            std::fs::remove_file(&file)?;
            Ok(figures)
        });
    }
    contest.note(format!(
        "{} callers, records of {} bytes; {} s a run; latencies and processor time of an append",
        shape.callers, options.record_bytes, options.seconds
    ));
    contest
}

fn command(arm: Arm, shape: &Shape, options: &Options, file: &Path) -> io::Result<Command> {
    let mut command = Command::new(tools::this_program());
    command
        .args(["log-arm", &name_of(arm)])
        .arg(file)
        .args(["--callers", &shape.callers.to_string(), "--seconds", &options.seconds.to_string()])
        .args(["--record-bytes", &options.record_bytes.to_string()]);
    Ok(command)
}

pub(crate) fn run_arm(options: &ArmOptions) -> io::Result<()> {
    let figures: Figures = ways::run(options)?;
    tools::print_json(&figures)
}

impl ArmOptions {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

const THREADS: &[Arm] = &[Arm::Std, Arm::Headwater, Arm::HeadwaterTwoCalls, Arm::HeadwaterCached];

/// Far more than a log appends at once; each caller has one.
const RECORD_BYTES_MAX: i64 = 64 << 20;

const SHAPES: [Shape; 5] = [
    Shape {
        id: "log-1",
        callers: 1,
        arms: &[Arm::StdEach, Arm::Std, Arm::Headwater, Arm::HeadwaterTwoCalls, Arm::HeadwaterCached],
    },
    Shape { id: "log-8", callers: 8, arms: THREADS },
    Shape { id: "log-64", callers: 64, arms: THREADS },
    Shape {
        id: "log-64-tasks",
        callers: 64,
        arms: &[Arm::StdTasks, Arm::HeadwaterTasks, Arm::HeadwaterTwoCallsTasks],
    },
    Shape {
        id: "writer",
        callers: 1,
        arms: &[Arm::StdWriter, Arm::HeadwaterWriter, Arm::HeadwaterWriterWrapped],
    },
];

const APPENDS: &str = "appends_per_s";
const CPU: &str = "cpu_us";

const fn appends(shape: &'static str, ours: &'static str, theirs: &'static str, at_least: f64) -> Promise {
    contest::ratio(shape, ours, theirs, APPENDS, Limit::AtLeast(at_least))
}

const fn cpu(shape: &'static str, ours: &'static str, theirs: &'static str) -> Promise {
    contest::ratio(shape, ours, theirs, CPU, Limit::AtMost(1.0))
}

const PROMISES: &[Promise] = &[
    // The device's sync is all there is; two spreads of it are compared.
    appends("log-1", "headwater", "std-each", 0.95),
    shown("log-1", "headwater", "std", APPENDS),
    shown("log-1", "headwater", "std", CPU),
    appends("log-8", "headwater", "std", 1.2),
    cpu("log-8", "headwater", "std"),
    shown("log-8", "headwater-two-calls", "std", APPENDS),
    appends("log-64", "headwater", "std", 1.2),
    cpu("log-64", "headwater", "std"),
    shown("log-64", "headwater-two-calls", "std", APPENDS),
    appends("log-64-tasks", "headwater-tasks", "std-tasks", 1.2),
    cpu("log-64-tasks", "headwater-tasks", "std-tasks"),
    shown("log-64-tasks", "headwater-two-calls-tasks", "std-tasks", APPENDS),
    // A buffer around the writer's own gains nothing.
    appends("writer", "headwater-writer", "headwater-writer-wrapped", 0.95),
    shown("writer", "headwater-writer", "std-writer", APPENDS),
];
