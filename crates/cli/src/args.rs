//! Arguments: what can be typed, and what is said when it is wrong.
//!
//! Owns: options, their ranges and defaults, the texts of the help.
//! Does not own: checks that need the file or the device.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use headwater::io::{DriverKind, Limits};
use headwater::{Engine, EngineBuilder, IoMode};

use crate::bench::Affinity;
use crate::complain;
use crate::units::ByteSize;

/// Reads files at the speed of the device, and leaves the kernel's page cache as it is.
#[derive(Parser, Debug)]
#[command(name = "headwater", version, about, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write files to standard output.
    #[command(after_help = CAT_EXAMPLES)]
    Cat(CatArguments),
    /// Measure this machine's storage. Without a suite: all of them, in quick form.
    #[command(after_help = BENCH_EXAMPLES, args_conflicts_with_subcommands = true)]
    Bench(BenchArguments),
    /// One measurement in a process of its own.
    #[command(hide = true)]
    BenchRow(RowArguments),
}

#[derive(Args, Debug)]
pub(crate) struct CatArguments {
    /// Files to write one after the other; `-` is standard input, and so is no file at all.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Where bytes come from.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) io: IoChoice,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
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
    /// Write the results to this file as JSON too.
    #[arg(long, value_name = "OUT")]
    pub(crate) json: Option<PathBuf>,
    /// Draw the latencies, percentile by percentile, into this file as SVG.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchCommon {
    /// Where to make the file to measure with [default: the current directory]. It never outlives the measurement.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Write the results to this file as JSON too.
    #[arg(long, value_name = "OUT")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Debug)]
pub(crate) struct RowArguments {
    /// Which row.
    #[arg(long)]
    pub(crate) row: String,
    /// How many bytes of standard input, from its start.
    #[arg(long)]
    pub(crate) bytes: u64,
    /// When to stop, in milliseconds from the start.
    #[arg(long)]
    pub(crate) limit_ms: u64,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArguments {
    /// Memory for reading ahead, at most.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_memory)]
    pub(crate) memory: ByteSize,
    /// How requests reach the kernel.
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    pub(crate) driver: DriverChoice,
    /// Requests in flight, at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=Limits::QUEUE_DEPTH_MAX as i64))]
    pub(crate) queue_depth: Option<u32>,
}

impl EngineArguments {
    pub(crate) fn builder(&self) -> EngineBuilder {
        let driver = match self.driver {
            DriverChoice::Auto => DriverKind::Auto,
            DriverChoice::Uring => DriverKind::Uring,
            DriverChoice::Threads => DriverKind::Threads,
        };
        let builder = Engine::builder().memory(self.memory.0).driver(driver);
        match self.queue_depth {
            Some(depth) => builder.queue_depth(depth),
            None => builder,
        }
    }

    /// The same as arguments for a child process.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let driver = self.driver.to_possible_value().expect("no driver is hidden").get_name().to_owned();
        let mut arguments = vec!["--memory".into(), self.memory.0.to_string(), "--driver".into(), driver];
        if let Some(depth) = self.queue_depth {
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

/// The command of this process, or the exit code when it has been answered already.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    match Arguments::try_parse() {
        Ok(arguments) => Ok(arguments.command),
        Err(error) => Err(answer(&error)),
    }
}

/// Help and version as clap prints them; an error as one line.
fn answer(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A closed pipe is no error here either.
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<&str> = first.split_whitespace().collect();
    complain(format_args!("{} (see --help)", words.join(" ").trim_start_matches("error: ")));
    ExitCode::from(EXIT_USAGE)
}

fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if size.0 < Limits::MEMORY_BYTES_MIN {
        return Err(format!("headwater needs at least {}", ByteSize(Limits::MEMORY_BYTES_MIN)));
    }
    if size.0 > MEMORY_BYTES_MAX {
        return Err(format!("an address space holds {} at most", ByteSize(MEMORY_BYTES_MAX)));
    }
    Ok(size)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("it must be from {} to {} seconds", SECONDS.start(), SECONDS.end()))
}

/// What shells and clap use for a command line that makes no sense.
const EXIT_USAGE: u8 = 2;

/// The user half of a 48-bit address space.
const MEMORY_BYTES_MAX: u64 = 128 << 40;

/// Below it a row has too few batches for its percentiles; above it somebody has mistaken the unit.
const SECONDS: std::ops::RangeInclusive<f64> = 0.01..=3600.0;

/// Several for each processor of a large machine.
const THREADS_MAX: i64 = 1024;

const EXAMPLES: &str = "\
Examples:
  headwater cat big.log | grep -c error     read a file at device speed, whatever is cached stays cached
  headwater bench                           a quick look at this machine's storage
  headwater bench scan --size 8G            the full table";

const CAT_EXAMPLES: &str = "\
Examples:
  headwater cat part-* > whole              join files
  zcat a.gz | headwater cat header - > b    standard input between files
  headwater cat --io direct --memory 4M f   with 4 MiB of memory, around the page cache";

const BENCH_EXAMPLES: &str = "\
Examples:
  headwater bench                                     every suite in quick form
  headwater bench scan --dir /mnt/nvme --size 8G      on the file system mounted there
  headwater bench scan --file big.log --json out.json with a file that exists
  headwater bench nop                                 what the ring costs, without storage";

const NOP_EXAMPLES: &str = "\
Examples:
  headwater bench nop                          1 thread x 64 entries and 4 threads x 1024
  headwater bench nop --plot latency.svg       with a drawing of the latencies
  headwater bench nop --threads 8 --batch 16   a shape of your own
  headwater bench nop --affinity 0             all threads on processor 0: what does that cost?

A ring is used in two ways: one that all threads share, as any thread may, or a local one for each thread.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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
}
