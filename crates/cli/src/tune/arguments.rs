//! Arguments: what `headwater tune` can be told, and its help.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::shared::output::JsonArguments;
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct TuneArguments {
    /// What to tune for: a directory, in which a scratch file without a name is made; a file or a block device, which is
    /// only read.
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// How long it may take altogether, the scratch file included.
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
    /// With --reset: those of all devices.
    #[arg(long, requires = "reset")]
    pub(crate) all: bool,
    /// Draw the maps into this file as SVG.
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

/// In less, no choice of settings can be made that says anything.
const SECONDS: std::ops::RangeInclusive<f64> = 1.0..=3600.0;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater tune                     the device below the current directory, in a minute
  headwater tune /data/big.bin       the same by reading a file that is there
  headwater tune --seconds 10 --dry-run --json /data
  headwater tune --write --svg map.svg /data
  headwater tune --show              what is stored
  headwater tune --reset /data       forget it

Few of all request sizes and queue depths are measured, with direct reads: coarse points first,
then around the best, then towards less memory. The fastest and the cheapest are measured again
in turn, and the cheapest within 3 % of the best is chosen: the knee.

The choice is stored for the device and its file system in $XDG_CONFIG_HOME/headwater/profiles.json
or ~/.config/headwater/profiles.json. Every program that uses headwater reads ahead by it from then
on, unless it says otherwise. HEADWATER_PROFILES names another file, or is `off`.";
