//! Arguments: what `headwater scan` can be told, and its help.
//!
//! Owns: options, their ranges and defaults, the text of the help.
//! Does not own: options that other commands have too.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::digest::Algorithm;
use crate::shared::arguments::EngineArguments;
use crate::shared::output::JsonArguments;

#[derive(Args, Debug)]
#[command(
    override_usage = "headwater scan [OPTIONS] <PATH>...\n       headwater scan [OPTIONS] --check <SUMS>..."
)]
pub(crate) struct ScanFilesArguments {
    /// Files, block devices and directories with all that is below them; `-` is standard input. With --check: files of
    /// lines to verify.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Print a line for each file, as sha256sum and its relatives do.
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) hash: Option<Algorithm>,
    /// Read lines as --hash prints them, and verify the files that they name. Without --hash they are BLAKE3.
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check: say nothing of files that agree.
    #[arg(long, requires = "check")]
    pub(crate) quiet: bool,
    /// With --check: say nothing at all, the exit code tells.
    #[arg(long, requires = "check")]
    pub(crate) status: bool,
    /// End each line with a zero byte instead of a line feed, and write names as they are.
    #[arg(long, short = 'z', requires = "hash", conflicts_with = "check")]
    pub(crate) zero: bool,
    /// Files hashed at the same time, and threads that hash parts of a large one [default: the processors].
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

impl ScanFilesArguments {
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        self.hash.or(self.check.then_some(Algorithm::Blake3))
    }

    pub(crate) fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(processors, NonZeroUsize::get)
    }
}

fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX);
    threads.ok_or_else(|| format!("it must be from 1 to {THREADS_MAX}"))
}

/// Several for each processor of a large machine.
const THREADS_MAX: usize = 1024;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater scan /srv/archive                          is all of it readable?
  headwater scan --hash blake3 /srv/archive > sums     a line for each file, in order
  headwater scan --check sums                          does all of it still agree?
  headwater scan --hash sha256 *.iso | sha256sum -c    sha256sum's lines
  headwater scan /dev/nvme0n1                          a whole device
  headwater scan --json=out.json /srv/archive          for programs

Below a directory, files are taken in the order of their names; symbolic links and special files
are skipped. Lines come in that order, however many files are read at the same time.

Without --hash a place that cannot be read is searched for page by page, and all around it is
read. With --hash such a file fails and has no line.

The lines of blake3 are those of b3sum, of sha256 those of sha256sum, of xxh3 those of xxh128sum
(128 bits). crc32c has lines of the same form with 8 digits, which other tools do not verify.

What the kernel's page cache holds is taken from there; the rest is read directly. The page cache
stays as it is; only where a file system has no direct I/O, and of standard input, it takes part.
--queue-depth is also how many files are open at the same time [default: 32].";
