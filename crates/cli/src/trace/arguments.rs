//! Arguments: options of `headwater trace`, and its help.
//!
//! Owns: names of policies and formats.
//! Does not own: what they do.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use headwater::ReadaheadPolicy;
use headwater_core::replacement::Policy;
use headwater_core::units::PAGE_SIZE_BYTES;

use crate::shared::output::JsonArguments;
use crate::shared::readahead;
use crate::shared::units::ByteSize;

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

fn parse_cache(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if !CACHE_BYTES.contains(&size.0) {
        let (least, most) = (ByteSize(*CACHE_BYTES.start()), ByteSize(*CACHE_BYTES.end()));
        return Err(format!("a cache has from {least} to {most}"));
    }
    Ok(size)
}

/// From ten pages, as policies divide the cache into tenths, to as many as there are numbers for frames.
const CACHE_BYTES: RangeInclusive<u64> = 10 * PAGE_SIZE_BYTES..=8 << 40;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater trace replay w92.oracleGeneral.bin --cache 256M,1G
  headwater trace replay --help                 which formats are read, and what is counted";

pub(crate) const REPLAY_EXAMPLES: &str = "\
Examples:
  headwater trace replay w92.oracleGeneral.bin --cache 256M,1G
  headwater trace replay disk.csv --cache 64M --policy clock2q+ --json=out.json
  headwater trace replay disk.csv --cache 64M --policy clock2q+ --readahead adaptive

The format oracle-general has records of 24 bytes, little-endian: time (4 bytes), object (8),
size (4), next access (8). Each object is taken for one page of 4 KiB, whatever its size, and
each access for a read.

The format csv has a header that names its columns, then a request a line. Columns, in any order:
  offset  where the request starts, in bytes; or instead
  lbn     the same in sectors of 512 bytes; or
  obj_id  the number of an object, taken for one page of 4 KiB
  size    in bytes; needed with offset and lbn, else not looked at
  op      read or write, r or w; without it every request is a read
Others, such as time, are not looked at.

A write brings its pages into the cache as well, but of those that are missing it reads only what
it overwrites in part. Adjacent missing pages of one request are one read of the device.

Readahead hears of reads, not of writes; adjacent missing pages of what it plans at once are one
read, up to 2 MiB. Every read arrives at once, and files have no end. Columns: pages that were read ahead, those
of them that were used, and those that left the cache without having been used.";

#[cfg(test)]
mod tests {
    use super::*;
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
