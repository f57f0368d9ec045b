//! Command: the suites of `headwater bench`.
//!
//! Owns: their names.
//! Does not own: what they measure.

use clap::{Args, Subcommand};

use crate::bench::alignment::AlignmentArguments;
use crate::bench::arguments::{BenchCommon, CacheArguments, NopArguments, ReadaheadArguments, ScanArguments};
use crate::bench::cat::CatSuiteArguments;
use crate::bench::examples::{CACHE_EXAMPLES, NOP_EXAMPLES, READAHEAD_EXAMPLES, SCAN_EXAMPLES};
use crate::bench::random::RandomArguments;
use crate::bench::ubc::UbcArguments;

#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) suite: Option<Suite>,
    #[command(flatten)]
    pub(crate) common: BenchCommon,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Suite {
    /// Read a cold file from start to end in every way there is.
    #[command(after_help = SCAN_EXAMPLES)]
    Scan(ScanArguments),
    /// Read again what is cached: how long does one read take, and how does it scale?
    #[command(after_help = CACHE_EXAMPLES)]
    Cache(CacheArguments),
    /// Read a cold file in all kinds of orders: what does readahead make of them?
    #[command(after_help = READAHEAD_EXAMPLES)]
    Readahead(ReadaheadArguments),
    /// Read and write files as the paper on UBC did, in every way there is, and read one again and again.
    #[command(after_help = crate::bench::ubc::EXAMPLES)]
    Ubc(UbcArguments),
    /// Write a file to nothing in seven steps, from a byte at a time to headwater's, beside all other ways and programs.
    #[command(after_help = crate::bench::cat::EXAMPLES)]
    Cat(CatSuiteArguments),
    /// Read 4 KiB at random, from as much as memory holds and from more than that.
    #[command(after_help = crate::bench::random::EXAMPLES)]
    Random(RandomArguments),
    /// Read and write with aligned and with misaligned buffers, offsets and lengths: where does it fail, and what does it cost?
    #[command(after_help = crate::bench::alignment::EXAMPLES)]
    Alignment(AlignmentArguments),
    /// Measure what the ring itself costs, with batches of requests that do nothing.
    #[command(after_help = NOP_EXAMPLES)]
    Nop(NopArguments),
}
