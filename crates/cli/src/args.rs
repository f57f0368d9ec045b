//! Arguments: what can be typed, and what is said when it is wrong.
//!
//! Owns: options, their ranges and defaults, the texts of the help.
//! Does not own: checks that need the file or the device.

#[cfg(fuzzing)]
pub(crate) mod fuzzing;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use headwater::io::{DriverKind, Limits};
use headwater::policy::{PAGE_SIZE_BYTES, Policy};
use headwater::{Engine, EngineBuilder, IoMode, ReadaheadPolicy};
use headwater_measure::affinity::Affinity;

use crate::bench::{CatSuiteArguments, RandomArguments, UBC_EXAMPLES, UbcArguments};
use crate::cp::CopyArguments;
use crate::examples::{
    BENCH_EXAMPLES, CACHE_EXAMPLES, CAT_EXAMPLES, CAT_JSON, EXAMPLES, NOP_EXAMPLES, READAHEAD_EXAMPLES,
    REPLAY_EXAMPLES, STAT_EXAMPLES, TRACE_EXAMPLES,
};
use crate::manual::{CompletionsArguments, ManArguments};
use crate::output::{JsonArguments, unwritten};
use crate::scan::ScanFilesArguments;
use crate::tune::TuneArguments;
use crate::units::ByteSize;
use crate::{complain, exit_code, readahead, standard};

#[derive(Parser, Debug)]
#[command(name = "headwater", version, about = ABOUT, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write files to standard output.
    #[command(after_help = CAT_EXAMPLES)]
    Cat(CatArguments),
    /// Copy files, keeping holes, sharing blocks where the file system can.
    #[command(after_help = crate::cp::EXAMPLES)]
    Cp(CopyArguments),
    /// Say what the kernel caches of files, how they can be read, and what lies below them.
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatArguments),
    /// Read files and whole trees at the speed of the device: hash them, verify them, or find what cannot be read.
    #[command(after_help = crate::scan::EXAMPLES)]
    Scan(ScanFilesArguments),
    /// Find the request size and the queue depth that suit a device, and use them from then on.
    #[command(after_help = crate::tune::EXAMPLES)]
    Tune(TuneArguments),
    /// Measure this machine's storage. Without a suite: all of them, in quick form.
    #[command(after_help = BENCH_EXAMPLES, args_conflicts_with_subcommands = true)]
    Bench(BenchArguments),
    /// Run traces of other systems' accesses through the cache's decisions, without their data.
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(TraceArguments),
    /// Print man pages.
    #[command(after_help = crate::manual::MAN_EXAMPLES)]
    Man(ManArguments),
    /// Print what lets a shell complete commands and options.
    #[command(after_help = crate::manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    /// One measurement in a process of its own.
    #[command(hide = true)]
    BenchRow(RowArguments),
    /// Removes an unfinished copy, or the cgroup of a measurement, if its maker ends.
    #[command(hide = true)]
    CpGuard(GuardArguments),
}

#[derive(Args, Debug)]
#[command(mut_arg("json", |json| json.help(CAT_JSON).long_help(CAT_JSON)))]
pub(crate) struct CatArguments {
    /// Files to write one after the other; `-` is standard input, and so is no file at all.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Where bytes come from.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) io: IoChoice,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Debug)]
pub(crate) struct StatArguments {
    /// Files and block devices to look at; nothing is read but a page where the file system does not tell about direct I/O.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) suite: Option<Suite>,
    #[command(flatten)]
    pub(crate) common: BenchCommon,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Suite {
    /// Read a cold file from start to end in every way there is.
    #[command(after_help = BENCH_EXAMPLES)]
    Scan(ScanArguments),
    /// Read again what is cached: how long does one read take, and how does it scale?
    #[command(after_help = CACHE_EXAMPLES)]
    Cache(CacheArguments),
    /// Read a cold file in all kinds of orders: what does readahead make of them?
    #[command(after_help = READAHEAD_EXAMPLES)]
    Readahead(ReadaheadArguments),
    /// Read and write files as the paper on UBC did, in every way there is, and read one again and again.
    #[command(after_help = UBC_EXAMPLES)]
    Ubc(UbcArguments),
    /// Write a file to nothing in seven steps, from a byte at a time to headwater's, beside all other ways and programs.
    #[command(after_help = crate::bench::CAT_EXAMPLES)]
    Cat(CatSuiteArguments),
    /// Read 4 KiB at random, from as much as memory holds and from more than that.
    #[command(after_help = crate::bench::RANDOM_EXAMPLES)]
    Random(RandomArguments),
    /// Measure what the ring itself costs, with batches of requests that do nothing.
    #[command(after_help = NOP_EXAMPLES)]
    Nop(NopArguments),
}

#[derive(Args, Debug)]
pub(crate) struct ScanArguments {
    /// Measure with this file; it is only read.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// How much to read: the size of the file to make (4G if not given), or the part of --file to read (all of it).
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
    /// How often every row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) common: BenchCommon,
}

#[derive(Args, Debug)]
pub(crate) struct CacheArguments {
    /// Measure with this file; it is only read.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// How much is cached and read: the size of the file to make, or the part of --file. headwater gets this much memory
    /// and a quarter more.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_set)]
    pub(crate) set: ByteSize,
    /// How often every row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// How long each row is measured in a round.
    #[arg(long, value_name = "N", default_value = "0.5", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ReadaheadArguments {
    /// Measure with this file; it is only read.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// How much to read in each row at most: the size of the file to make, or the part of --file to read.
    #[arg(long, default_value = "1G")]
    pub(crate) size: ByteSize,
    /// How many reads strides, runs and random orders make at most.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) places: u64,
    /// How headwater reads ahead, a column each; the last one is compared with the kernel.
    #[arg(long, value_name = "POLICY[,POLICY..]", default_value = "off,linux,adaptive", value_delimiter = ',', value_parser = readahead::parse)]
    pub(crate) policy: Vec<ReadaheadPolicy>,
    /// How often every row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) common: BenchCommon,
}

#[derive(Args, Debug)]
pub(crate) struct NopArguments {
    /// How long each row is measured.
    #[arg(long, value_name = "N", default_value = "5", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// Measure rows with this many threads instead of the table [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    pub(crate) threads: Option<u32>,
    /// Measure rows with this many entries in a ring instead of the table [default: what the threads need, 64 at least].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=Limits::QUEUE_DEPTH_MAX as i64))]
    pub(crate) entries: Option<u32>,
    /// Measure rows with this many requests in a batch instead of the table [default: 32].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=Limits::QUEUE_DEPTH_MAX as i64))]
    pub(crate) batch: Option<u32>,
    /// Where threads run: `none` leaves it to the kernel, `spread` gives each a processor of its own, a list such as
    /// `0` or `0,2-3` keeps all of them on these.
    #[arg(long, value_name = "WHERE", default_value = "none")]
    pub(crate) affinity: Affinity,
    #[command(flatten)]
    pub(crate) results: ResultArguments,
    /// Draw the latencies, percentile by percentile, into this file as SVG.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    pub(crate) action: TraceAction,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TraceAction {
    /// Count the misses and the reads of the device that a trace causes, by replacement policy and size of the cache.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArguments {
    /// The trace, not compressed.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Which pages leave the cache when it is full.
    #[arg(long, value_name = "POLICY", default_value = "all")]
    pub(crate) policy: PolicyChoice,
    /// Size of the cache, or several separated by commas.
    #[arg(long, value_name = "SIZE[,SIZE..]", required = true, value_delimiter = ',', value_parser = parse_cache)]
    pub(crate) cache: Vec<ByteSize>,
    /// How the trace is written.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) format: FormatChoice,
    /// Which pages are read before they are asked for.
    #[arg(long, value_name = "off|linux|adaptive|fixed:N", default_value = "off", value_parser = readahead::parse)]
    pub(crate) readahead: ReadaheadPolicy,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchCommon {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArguments {
    /// Where to make the file to measure with [default: the current directory]. It never outlives the measurement.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) results: ResultArguments,
}

/// Where the results of a measurement go, beside the table.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResultArguments {
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    /// Write a report to this file as well: one page of HTML with tables, plots and how every figure was taken.
    #[arg(long, value_name = "OUT.html")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowSuite {
    Scan,
    Cache,
    Readahead,
    Ubc,
    Cat,
    Random,
}

#[derive(Args, Debug)]
pub(crate) struct RowArguments {
    /// Of which suite.
    #[arg(long)]
    pub(crate) suite: RowSuite,
    /// Which row.
    #[arg(long)]
    pub(crate) row: String,
    /// Reads at most, where a row has a limit of them.
    #[arg(long, default_value_t = u64::MAX)]
    pub(crate) places: u64,
    /// What random orders begin with: the same in all rows of a round.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many bytes of standard input, from its start.
    #[arg(long)]
    pub(crate) bytes: u64,
    /// When to stop, in milliseconds from the start.
    #[arg(long)]
    pub(crate) limit_ms: u64,
    /// The cgroup to measure in.
    #[arg(long)]
    pub(crate) cgroup: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Debug)]
pub(crate) struct GuardArguments {
    /// The copy, or the cgroup.
    pub(crate) path: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArguments {
    /// Memory for reading ahead, at most.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_memory)]
    pub(crate) memory: ByteSize,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct QueueArguments {
    /// How requests reach the kernel.
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    pub(crate) driver: DriverChoice,
    /// Requests in flight, at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=Limits::QUEUE_DEPTH_MAX as i64))]
    pub(crate) queue_depth: Option<u32>,
}

impl QueueArguments {
    /// With memory by default.
    pub(crate) fn builder(&self) -> EngineBuilder {
        let builder = Engine::builder().driver(self.driver.kind());
        match self.queue_depth {
            Some(depth) => builder.queue_depth(depth),
            None => builder,
        }
    }
}

impl EngineArguments {
    pub(crate) fn builder(&self) -> EngineBuilder {
        self.queue.builder().memory(self.memory.0)
    }

    /// The same as arguments for a child process.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let driver = name_of(self.queue.driver);
        let mut arguments = vec!["--memory".into(), self.memory.0.to_string(), "--driver".into(), driver];
        if let Some(depth) = self.queue.queue_depth {
            arguments.extend(["--queue-depth".into(), depth.to_string()]);
        }
        arguments
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoChoice {
    /// What the kernel's page cache holds from there, the rest from the device.
    Auto,
    /// From the device, around the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

impl IoChoice {
    pub(crate) fn mode(self) -> IoMode {
        match self {
            IoChoice::Auto => IoMode::Auto,
            IoChoice::Direct => IoMode::Direct,
            IoChoice::Buffered => IoMode::Buffered,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DriverChoice {
    /// io_uring where the system allows it, else threads; HEADWATER_DRIVER decides if it is set.
    Auto,
    /// io_uring.
    Uring,
    /// A small pool of threads.
    Threads,
}

impl DriverChoice {
    pub(crate) fn kind(self) -> DriverKind {
        match self {
            DriverChoice::Auto => DriverKind::Auto,
            DriverChoice::Uring => DriverKind::Uring,
            DriverChoice::Threads => DriverKind::Threads,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PolicyChoice {
    /// Clock2Q+, the policy of headwater's cache.
    #[value(name = "clock2q+")]
    Clock2QPlus,
    /// CLOCK: one queue and a reference bit.
    Clock,
    /// S3-FIFO.
    S3Fifo,
    /// Least recently used.
    Lru,
    /// Each of these.
    All,
}

impl PolicyChoice {
    pub(crate) fn policies(self) -> Vec<Policy> {
        match self {
            PolicyChoice::Clock2QPlus => vec![Policy::Clock2QPlus],
            PolicyChoice::Clock => vec![Policy::Clock],
            PolicyChoice::S3Fifo => vec![Policy::S3Fifo],
            PolicyChoice::Lru => vec![Policy::Lru],
            PolicyChoice::All => Policy::ALL.to_vec(),
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FormatChoice {
    /// CSV if it is text, else oracle-general.
    Auto,
    /// The binary oracleGeneral format of libCacheSim.
    OracleGeneral,
    /// Lines of values separated by commas, below a header.
    Csv,
}

/// As it is written on a command line.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}

/// All commands and options.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

/// The command of this process, or the exit code when it has been answered already.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    match Arguments::try_parse() {
        Ok(arguments) => Ok(arguments.command),
        Err(error) => Err(answer(&error)),
    }
}

/// Help and version as clap prints them; an error as one line.
fn answer(error: &clap::Error) -> ExitCode {
    if is_help(error) {
        return print_help(error);
    }
    complain(usage_error(error));
    ExitCode::from(EXIT_USAGE)
}

fn is_help(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// What is wrong with the command line, in one line.
fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<&str> = first.split_whitespace().collect();
    format!("{} (see --help)", words.join(" ").trim_start_matches("error: "))
}

/// Coloured on a terminal.
fn print_help(error: &clap::Error) -> ExitCode {
    let printed = if error.use_stderr() { Ok(()) } else { standard::output().map(drop) };
    match printed.and_then(|()| error.print()) {
        Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe => exit_code(Err(unwritten(&failure))),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if size.0 < Limits::MEMORY_BYTES_MIN {
        return Err(format!("headwater needs at least {}", ByteSize(Limits::MEMORY_BYTES_MIN)));
    }
    if size.0 > Limits::MEMORY_BYTES_MAX {
        return Err(format!("headwater manages {} at most", ByteSize(Limits::MEMORY_BYTES_MAX)));
    }
    Ok(size)
}

fn parse_cache(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if !CACHE_BYTES.contains(&size.0) {
        let (least, most) = (ByteSize(*CACHE_BYTES.start()), ByteSize(*CACHE_BYTES.end()));
        return Err(format!("a cache has from {least} to {most}"));
    }
    Ok(size)
}

fn parse_set(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if size.0 < SET_BYTES_MIN {
        return Err(format!("a set of less than {} says nothing", ByteSize(SET_BYTES_MIN)));
    }
    Ok(size)
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("it must be from {} to {} seconds", SECONDS.start(), SECONDS.end()))
}

const ABOUT: &str = "Reads, copies, hashes and measures files at the speed of the device, and leaves the kernel's page cache as it is";

/// What shells and clap use for a command line that makes no sense.
const EXIT_USAGE: u8 = 2;

/// From ten pages, as policies divide the cache into tenths, to as many as there are numbers for frames.
const CACHE_BYTES: std::ops::RangeInclusive<u64> = 10 * PAGE_SIZE_BYTES..=8 << 40;

/// Sixteen of the largest reads.
const SET_BYTES_MIN: u64 = 1 << 20;

/// Below it a row has too few batches for its percentiles; above it somebody has mistaken the unit.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=3600.0;

/// Several for each processor of a large machine.
const THREADS_MAX: i64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Goal: a child gets the same engine as its parent was asked for.
    #[test]
    fn engine_arguments_survive_a_round_trip() {
        let line = ["headwater", "cat", "--memory", "5M", "--driver", "threads", "--queue-depth", "7"];
        let Command::Cat(parsed) = Arguments::parse_from(line).command else { panic!("cat was asked for") };
        let again =
            ["headwater".to_owned(), "cat".to_owned()].into_iter().chain(parsed.engine.to_arguments());
        let Command::Cat(again) = Arguments::parse_from(again).command else { panic!("cat was asked for") };
        assert_eq!(format!("{:?}", again.engine), format!("{:?}", parsed.engine));
    }

    /// Goal: a policy is called the same here as in the library.
    #[test]
    fn policies_have_their_names() {
        for choice in PolicyChoice::value_variants().iter().filter(|&&choice| choice != PolicyChoice::All) {
            let name = choice.to_possible_value().expect("no policy is hidden").get_name().to_owned();
            assert_eq!(choice.policies(), [name.parse().unwrap()]);
        }
        assert_eq!(PolicyChoice::All.policies(), Policy::ALL);
    }
}
