//! Arguments: options of `headwater scan`, and its help.
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
    /// Files, block devices and directories, which are scanned recursively; `-` is standard input. With --check: lists of
    /// sums to verify.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Hash the files, and print a line for each in the format of sha256sum.
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) hash: Option<Algorithm>,
    /// Read lists of sums, and verify the files that they name. Understands what --hash, sha256sum, b3sum and xxh128sum print, with
    /// --tag or without. Without --hash, the first lines show the algorithm.
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check: print no lines for files that match.
    #[arg(long, requires = "check")]
    pub(crate) quiet: bool,
    /// With --check: print no lines at all; the exit code is the result.
    #[arg(long, requires = "check")]
    pub(crate) status: bool,
    /// With --check: fail also if a list has a line that is not verified, because it is no sum or one of another algorithm. Without this,
    /// headwater warns of such lines, as sha256sum does.
    #[arg(long, requires = "check")]
    pub(crate) strict: bool,
    /// End each line with a NUL byte instead of a line feed, and do not escape names.
    #[arg(long, short = 'z', requires = "hash", conflicts_with = "check")]
    pub(crate) zero: bool,
    /// Files to hash at the same time, and threads that hash one large file [default: number of processors].
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

impl ScanFilesArguments {
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
  headwater scan --check sums                          does all of it still match?
  headwater scan --hash sha256 *.iso | sha256sum -c    sha256sum's lines
  headwater scan /dev/nvme0n1                          a whole device
  headwater scan --json=out.json /srv/archive          for programs

The files of a directory are read in the order of their names; symbolic links and special files in
it are skipped. Lines come in that order, however many files are read at the same time.

Without --hash, unreadable places are located page by page, and everything around them is read.
With --hash, a file with an unreadable place fails and has no line.

With --check, all sums are of one algorithm: that of --hash, else that of the first tag, else the one
whose sums are as long as the first and agree with a file first. Until that shows, files are hashed
with each such algorithm. Lists may be of any length; they are verified while they are read.

Lines of blake3 have the format of b3sum, lines of sha256 that of sha256sum, lines of xxh3 that of
xxh128sum (128 bits). Lines of crc32c have the same form with 8 digits; other tools do not verify
them.

What the kernel's page cache holds is copied from there; the rest is read with direct I/O, which
leaves the page cache as it is. Only standard input, and files on file systems without direct I/O,
are read through the page cache. --queue-depth also limits how many files are open at the same time
[default: 64].";
