//! Arguments: options of `headwater trace`, and its help.
//!
//! Owns: options, names of policies and formats.
//! Does not own: the policies, the formats.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use headwater::ReadaheadPolicy;
use headwater_core::replacement::Policy;
use headwater_core::units::PAGE_SIZE_BYTES;

use crate::shared::output::{JsonArguments, WideArguments};
use crate::shared::readahead;
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    pub(crate) action: TraceAction,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TraceAction {
    /// Count the cache misses and device reads of a trace, by replacement policy and cache size.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArguments),
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArguments {
    /// The trace, uncompressed; `-` is standard input.
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Replacement policy: which page is evicted when the cache is full.
    #[arg(long, value_name = "POLICY", default_value = "all")]
    pub(crate) policy: PolicyChoice,
    /// Cache size, or several, separated by commas.
    #[arg(long, value_name = "SIZE[,SIZE..]", required = true, value_delimiter = ',', value_parser = parse_cache)]
    pub(crate) cache: Vec<ByteSize>,
    /// Format of the trace.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) format: FormatChoice,
    /// Readahead policy: which pages are read before they are requested.
    #[arg(long, value_name = "off|linux|adaptive|fixed:N", default_value = "off", value_parser = readahead::parse)]
    pub(crate) readahead: ReadaheadPolicy,
    #[command(flatten)]
    pub(crate) wide: WideArguments,
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
    /// All of these.
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
  headwater trace replay disk.csv --cache 64M --policy clock2q+ --json
  headwater trace replay disk.csv --cache 64M --readahead adaptive

The format oracle-general has records of 24 bytes, little-endian: time (4 bytes), object (8),
size (4), next access (8). Each object counts as one page of 4 KiB, whatever its size, and each
access as a read.

The format csv has a header that names its columns, then a request a line. Columns, in any order:
  offset  where the request starts, in bytes; or instead
  lbn     the same in sectors of 512 bytes; or
  obj_id  the number of an object, which counts as one page of 4 KiB
  size    in bytes; required with offset and lbn, else ignored
  op      read or write, r or w; without it every request is a read
Other columns, such as time, are ignored.

A write brings its pages into the cache as well; of the missing ones, only those that it overwrites
in part are read from the device. Adjacent missing pages of one request count as one device read.

Readahead sees reads, not writes; adjacent missing pages that it plans at once count as one device
read, of 2 MiB at most. Reads complete at once, and files have no end. Columns: `read ahead` counts
pages read before they were requested, `used` those of them that were requested later, and `unused`
those that were evicted before.";

#[cfg(test)]
mod tests {
    use super::*;
    /// Goal: a policy has the same name here as in the library.
    #[test]
    fn policies_have_their_names() {
        for choice in PolicyChoice::value_variants().iter().filter(|&&choice| choice != PolicyChoice::All) {
            let name = choice.to_possible_value().expect("no policy is hidden").get_name().to_owned();
            assert_eq!(choice.policies(), [name.parse().unwrap()]);
        }
        assert_eq!(PolicyChoice::All.policies(), Policy::ALL);
    }
}
