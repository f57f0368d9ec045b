//! Arguments: what `headwater bench random` can be told, and its help.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::MEMORY_BYTES_MIN;
use crate::bench::arguments::{KernelThreadArguments, PlaceArguments, parse_seconds};
use crate::shared::arguments::QueueArguments;
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct RandomArguments {
    /// Measure with this file; it is only read.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// Memory limit of each row's cgroup, page cache included. A span of half of it is read at random, then one of two and
    /// a half times; the file to make is as large as that.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_memory)]
    pub(crate) memory: ByteSize,
    /// How often every row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// How long each row is measured in a round.
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
    #[command(flatten)]
    pub(crate) kernel_thread: KernelThreadArguments,
}

fn parse_memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    let (least, most) = (ByteSize(MEMORY_BYTES_MIN), ByteSize(MEMORY_BYTES_MAX));
    if !(least..=most).contains(&size) {
        return Err(format!("rows take from {least} to {most} of memory"));
    }
    Ok(size)
}

/// More than machines have; far from where its multiples do not fit a number.
const MEMORY_BYTES_MAX: u64 = 1 << 50;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater bench random                       256 MiB of memory for each row, a file of 640 MiB here
  headwater bench random --memory 2G --seconds 20 --dir /mnt/nvme
  headwater bench random --file big.db --html=report.html

Every row has 20 reads in flight, 4 KiB each, at places that are the same for all rows of a round:
  std buffered, mmap        20 threads, through the kernel's page cache
  O_DIRECT                  20 threads, around it
  headwater cached          20 threads, or 20 tasks on one thread; headwater takes what the cgroup can spare
  headwater views           20 threads that look at headwater's pages where they are
  headwater window          20 threads that copy from File::map_on_demand, with half of the memory
  headwater direct          20 tasks on one thread, nothing is kept; with SQPOLL a thread of the kernel submits

Rows with a cache have read the whole span once before the clock starts. The span beyond memory needs a memory
cgroup for each row: root has them, and a user to whom one was delegated (systemd-run --scope -p Delegate=yes).";
