//! Arguments: what `headwater bench ubc` can be told, and its help.

use std::path::PathBuf;

use clap::Args;

use crate::bench::arguments::PlaceArguments;
use crate::shared::arguments::QueueArguments;
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct UbcArguments {
    /// Read this file; it is only read. Files to write to are made beside it.
    #[arg(long, conflicts_with = "dir")]
    pub(crate) file: Option<PathBuf>,
    /// How much is read and written in the rows of large files: the size of the files to make (1G, or a quarter of the free
    /// space if that is less), or the part of --file to read (1G at most).
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
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
  headwater bench ubc                          1 GiB here; needs three times that
  headwater bench ubc --dir /mnt/nvme --size 4G --json=out.json
  headwater bench ubc --file big.log --size 512M

The rows are those of Chuck Silvers' paper on the unified buffer cache of NetBSD (UBC, 2000):
  raw device to null      as much of the beginning of the device under the file, if it can be opened
  raw file to null        a large cold file, from start to end, nothing kept
  zero to new file        zeros to a file that is empty, with the fsync at the end
  zero to overwrite       zeros to a file that has contents, with the fsync at the end
  large file to null      a large cold file through the cache, at positions
  50 MB to null           the first 50 MiB of it when it is cold, the opening included
  50 MB, read N of 4      the same 50 MiB four times by one process, cold at first

The columns are ways to read and write:
  buffered     through the kernel's page cache, 128 KiB at a time
  mmap         the page cache mapped; a byte of each page is read
  O_DIRECT     around the page cache, 1 MiB at a time
  headwater    read_at and write_at, 1 MiB at a time; the raw file by its reader
  view         headwater's pages themselves, pinned; the raw file as its reader lends it
  device       the ring alone: 32 direct requests of 1 MiB in flight, whose bytes are not looked at";
