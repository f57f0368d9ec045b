//! Arguments: options of the suites.
//!
//! Owns: what they have in common, and the options of suites that have no folder or no other options.
//! Does not own: which suites there are (command).

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use headwater::testing::Limits;
use headwater::{ReadaheadPolicy, SubmissionPolling};
use headwater_measure::Shown;
use headwater_measure::affinity::Affinity;

use crate::shared::arguments::{EngineArguments, QueueArguments};
use crate::shared::output::{JsonArguments, WideArguments};
use crate::shared::readahead;
use crate::shared::units::ByteSize;

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
    /// Measure only these rows, by the ids that they have in the JSON, such as buffered-128k.
    #[arg(long, value_name = "ROW[,ROW..]", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
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
    /// Measure rows with this many entries, of a local ring or of all shared rings together, instead of the table [default: what
    /// the threads need, 64 at least].
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
    pub(crate) kernel_thread: KernelThreadArguments,
    #[command(flatten)]
    pub(crate) results: ResultArguments,
    /// Draw the latencies, percentile by percentile, into this file as SVG.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Clone, Default, Debug)]
pub(crate) struct KernelThreadArguments {
    /// The processor for the kernel thread that submits for the row with SQPOLL [default: the kernel chooses]. On the
    /// processor of the row's own thread (`taskset --cpu-list N headwater …`) each waits for the other's time slice.
    #[arg(long, value_name = "PROCESSOR")]
    pub(crate) kernel_affinity: Option<u32>,
}

impl KernelThreadArguments {
    /// # Errors
    /// That there is no such processor.
    pub(crate) fn check(&self) -> Result<(), String> {
        // Not one that this process may run on: the kernel's thread need not run there.
        let is_there = |processor| Path::new(&format!("/sys/devices/system/cpu/cpu{processor}")).exists();
        match self.kernel_affinity {
            Some(processor) if !is_there(processor) => {
                Err(format!("--kernel-affinity {processor}: there is no processor {processor}"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn polling(&self) -> SubmissionPolling {
        SubmissionPolling::On { idle_ms: SQPOLL_IDLE_MS, processor: self.kernel_affinity }
    }
}

/// The kernel's thread stays awake between the batches of twenty tasks.
const SQPOLL_IDLE_MS: u32 = 10;

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
    #[command(flatten)]
    wide: WideArguments,
}

impl ResultArguments {
    /// Which columns tables have.
    pub(crate) fn shown(&self) -> Shown {
        self.wide.shown()
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowSuite {
    Scan,
    Cache,
    Readahead,
    Alignment,
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
    /// The process that measures: a row ends with it.
    #[arg(long)]
    pub(crate) parent: Option<u32>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten)]
    pub(crate) kernel_thread: KernelThreadArguments,
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

/// Sixteen of the largest reads.
const SET_BYTES_MIN: u64 = 1 << 20;

/// Below it a row has too few batches for its percentiles; above it the unit was mistaken.
const SECONDS: RangeInclusive<f64> = 0.01..=3600.0;

/// Several for each processor of a large machine.
const THREADS_MAX: i64 = 1024;
