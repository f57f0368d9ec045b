//! Arguments: options of `headwater tune`, and its help.
//!
//! Owns: options and help of the search for request size and depth, which subcommands there are.
//! Does not own: the options of those (`sweep`).

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::sweep::{self, SweepArguments};
use crate::shared::output::JsonArguments;
use crate::shared::units::ByteSize;

#[derive(Subcommand, Debug)]
pub(crate) enum TuneCommand {
    /// Measure how fast bytes get into memory by the size of the buffer, with read(2) or write(2) and with headwater. Stores
    /// nothing.
    #[command(after_help = sweep::EXAMPLES)]
    Memory(SweepArguments),
}

#[derive(Args, Debug)]
pub(crate) struct TuneArguments {
    #[command(subcommand)]
    pub(crate) of: Option<TuneCommand>,
    /// Storage to tune for: a directory, in which an unnamed scratch file is made; or a file or a block device, which is
    /// only read.
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// How many seconds the run may take, making the scratch file included.
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// Size of the scratch file, or the part of PATH to read [default: what suits the time, or all of PATH].
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
    /// Measure sequential writes as well, always to a scratch file.
    #[arg(long)]
    pub(crate) write: bool,
    /// Measure, but store nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the stored profiles instead.
    #[arg(long, conflicts_with_all = ["reset", "write", "dry_run", "svg", "size"])]
    pub(crate) show: bool,
    /// Remove the stored profile of PATH's device instead.
    #[arg(long, conflicts_with_all = ["write", "dry_run", "svg", "size"])]
    pub(crate) reset: bool,
    /// With --reset: remove the profiles of all devices.
    #[arg(long, requires = "reset")]
    pub(crate) all: bool,
    /// Draw the heat maps into this file as SVG.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    let wrong = || format!("it must be from {} to {} seconds", SECONDS.start(), SECONDS.end());
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Shorter runs measure too little for a meaningful choice.
const SECONDS: std::ops::RangeInclusive<f64> = 1.0..=3600.0;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater tune                     the device below the current directory, in a minute
  headwater tune /data/big.bin       the same by reading a file that is there
  headwater tune --seconds 10 --dry-run --json /data
  headwater tune --write --svg map.svg /data
  headwater tune --show              what is stored
  headwater tune --reset /data       forget it
  headwater tune memory              how large should a buffer be?

Direct reads measure only some combinations of request size and queue depth: first a coarse grid,
then the neighbours of the best, then combinations that take less memory. The fastest and the
cheapest are measured again in turn; chosen is the one within 3 % of the best rate that takes the
least memory for requests in flight, the knee of the curve.

The choice is stored for the device and its file system in $XDG_CONFIG_HOME/headwater/profiles.json
or ~/.config/headwater/profiles.json. From then on, readahead in every program that uses
headwater follows it, unless the program opts out. The environment variable HEADWATER_PROFILES
names another file; `off` disables profiles.";
