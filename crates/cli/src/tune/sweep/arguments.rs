//! Arguments: options of `headwater tune memory`, and its help.
//!
//! Owns: which buffers are measured, what is refused without looking at the machine.
//! Does not own: whether the files fit (`sweep`).

use std::path::PathBuf;

use clap::Args;

use crate::shared::output::{JsonArguments, WideArguments};
use crate::shared::units::ByteSize;

#[derive(Args, Debug)]
pub(crate) struct SweepArguments {
    /// The smallest buffer.
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = parse_buffer)]
    pub(crate) from: ByteSize,
    /// The largest buffer; between the two each is twice as large as the one before.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_buffer)]
    pub(crate) to: ByteSize,
    /// How much is moved in each measurement: the size of the file that is made for it.
    #[arg(long, default_value = "256M")]
    pub(crate) size: ByteSize,
    /// How often every buffer is measured; the median counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Measure writing instead of reading.
    #[arg(long)]
    pub(crate) write: bool,
    /// Where to make the file [default: the current directory]. It never outlives the measurement.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Draw the rates, with their spread, into this file as SVG.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Write a report to this file as well: one page of HTML with the same plot, tables, and how every figure was taken.
    #[arg(long, value_name = "OUT.html")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wide: WideArguments,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

impl SweepArguments {
    /// The buffers, from small to large.
    ///
    /// # Errors
    /// One sentence for the user, if there are none, or none that suits the file.
    pub(super) fn buffers(&self) -> Result<Vec<usize>, String> {
        let (from, to, size) = (self.from, self.to, self.size);
        if from > to {
            return Err(format!("--from {from} is more than --to {to}"));
        }
        if to > size {
            return Err(format!(
                "--to {to} is more than --size {size}, which is what a buffer is filled from"
            ));
        }
        let twice = |bytes: &u64| Some(bytes * 2);
        let buffers = std::iter::successors(Some(from.0), twice).take_while(|bytes| *bytes <= to.0);
        Ok(buffers.map(|bytes| bytes as usize).collect())
    }
}

fn parse_buffer(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    if (BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&size.0) {
        return Ok(size);
    }
    let (least, most) = (ByteSize(BUFFER_BYTES_MIN), ByteSize(BUFFER_BYTES_MAX));
    Err(format!("a buffer has from {least} bytes to {most}"))
}

/// Below it a system call is all there is to measure.
const BUFFER_BYTES_MIN: u64 = 64;

/// Twice of what one call moves at most is no question any more.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater tune memory                                       reading with buffers from 1 KiB to 64 MiB
  headwater tune memory --from 1K --to 64M --size 1G --rounds 10
  headwater tune memory --write --dir /data --svg write.svg   writing, with a drawing
  headwater tune memory --json                                for programs

How large should a buffer be? Small ones cost system calls, large ones exceed the processor's caches. Reading is measured
from /dev/zero to /dev/null, which needs no file; from a file in the page cache with read(2); and from headwater's memory.
Writing goes over a file in the page cache with write(2), and over one by headwater: until the last write has returned, and
until everything is on the device (fdatasync). A measurement ends after a second, however little was moved by then.

For a directory of this name: headwater tune ./memory";
