//! Arguments: what `headwater bench cat` can be told, and its help.

use std::path::PathBuf;

use clap::Args;

use crate::bench::arguments::PlaceArguments;
use crate::shared::target::SIZE_BYTES_MIN;
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct CatSuiteArguments {
    /// Measure with this file, all of it; it is only read.
    #[arg(long, conflicts_with_all = ["dir", "size", "warm"])]
    pub(crate) file: Option<PathBuf>,
    /// The size of the file to make for the cold rows.
    #[arg(long, default_value = "4G", value_parser = parse_size)]
    pub(crate) size: ByteSize,
    /// The size of the file to make for the warm rows; it has to fit into memory.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) warm: ByteSize,
    /// How often every row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

fn parse_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if size.0 < SIZE_BYTES_MIN {
        return Err(format!("a file of less than {} says nothing", ByteSize(SIZE_BYTES_MIN)));
    }
    Ok(size)
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater bench cat                          4 GiB cold and 1 GiB warm, made here
  headwater bench cat --dir /mnt/nvme --size 8G --warm 2G --rounds 5
  headwater bench cat --file big.log --html=report.html

Seven steps to a cat that is fast, each on top of the one before:
  cat1   reads and writes a byte at a time (256 KiB of the file only)
  cat2   a page at a time
  cat3   into a buffer aligned to a page
  cat4   of the least common multiple of a page and the block size of the file
  cat5   of the size that was fastest from /dev/zero to /dev/null on this machine
  cat6   and tells the kernel that it reads from start to end
  cat7   headwater cat
Beside them GNU cat and that of uutils where they are installed, sendfile, and splice through a pipe. All write to
/dev/null, each as a process of its own whose start counts.";
