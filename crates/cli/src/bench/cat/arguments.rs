//! Arguments: what `headwater bench cat` can be told, and its help.

use std::path::PathBuf;

use clap::Args;

use super::also::Also;
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
    /// How often every row is measured: in rates the median counts, in times mean, deviation and range are shown.
    #[arg(long, visible_alias = "runs", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// How often every row runs before that without being counted, beside the run in which its bytes are checked.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) warmup: u32,
    /// Measure this command as well, once for each time the option is given; each {} in it is the path of the file, which
    /// is standard input too. Quotes work as in a shell, but no shell runs it.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) also: Vec<Also>,
    /// Write times and memory of all runs to this file in the form of `hyperfine --export-json`.
    #[arg(long, value_name = "FILE")]
    pub(crate) export_json: Option<PathBuf>,
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
  headwater bench cat --also 'pv -q {}' --also 'busybox cat {}'
  headwater bench cat --also 'pv -q {}' --warmup 1 --rounds 10
  headwater bench cat --rounds 10 --export-json times.json
  headwater bench cat --also 'sh -c \"tac | tac\"'

Seven steps to a cat that is fast, each on top of the one before:
  cat1   reads and writes a byte at a time (256 KiB of the file only)
  cat2   a page at a time
  cat3   into a buffer aligned to a page
  cat4   of the least common multiple of a page and the block size of the file
  cat5   of the size that was fastest from /dev/zero to /dev/null on this machine
  cat6   and tells the kernel that it reads from start to end
  cat7   headwater cat
Beside them GNU cat and that of uutils where they are installed, GNU dd and cp, sendfile, and splice through a pipe. All
write to /dev/null, each as a process of its own whose start counts.

Times are those of hyperfine: mean and standard deviation, user and system time, range, and outliers, which are runs more
than ten standard deviations from the median (estimated by the median deviation). A command of --also is started without
a shell, so give `sh -c '...'` for pipelines. One that fails ends the measurement, with its exit code and what it said; one
that writes other bytes than the file has is measured, and is no rival of the others.

memory_usage_byte of --export-json is the most that one process of each run had resident. The kernel counts what headwater
bench itself held when it started the process, so no figure is below that, a few MiB.";
