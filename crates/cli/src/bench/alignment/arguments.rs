//! Arguments: what `headwater bench alignment` takes, and its help.

use std::path::PathBuf;

use clap::Args;

use crate::bench::arguments::PlaceArguments;
use crate::shared::arguments::QueueArguments;
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct AlignmentArguments {
    /// Read this file; it is only read, so that there are no rows of writing.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// The size of the file to make, or the part of --file to read.
    #[arg(long, default_value = "256M")]
    pub(crate) size: ByteSize,
    /// How many reads or writes a row makes at most, each at another place.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) ops: u64,
    /// How often every row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater bench alignment                    a file of 256 MiB, made here
  headwater bench alignment --dir /mnt/nvme --ops 10000 --rounds 5
  headwater bench alignment --file big.log --html=report.html

What has to be aligned, where does it fail (EINVAL), and what does it cost? Each row reads or writes at random places, one
request at a time:
  aligned        4 KiB at a multiple of 4 KiB, into a buffer that begins at a page
  buffer + 512   the buffer begins 512 bytes behind the start of a page
  buffer + 1     the buffer begins a byte behind it
  offset + 1     the offset is a byte behind a multiple of 4 KiB, so that two pages are touched
  length - 1     4095 bytes
  all of them    4095 bytes at an odd offset, across a page, from an odd buffer
  512 bytes      a block of most devices, less than a page
  100 bytes      less than any block: written, it makes the kernel read the rest of its page first

The columns are ways: through the kernel's page cache; around it (O_DIRECT); headwater with its cache, and without.";
