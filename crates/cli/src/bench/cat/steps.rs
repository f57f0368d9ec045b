//! Steps, the child's side of the cat suite: standard input to standard output, in the ways that are no program of their own.
//!
//! Owns: the loops, the sizes of their buffers and the sweep that finds the best one.
//! Does not own: clocks, the programs compared.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Instant;

use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use headwater_measure::standard;
use rustix::fs::{Advice, fadvise, sendfile};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};
use serde::Serialize;

use crate::bench::arguments::RowArguments;
use crate::shared::buffer::aligned;
use crate::shared::units::GIB;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Byte,
    Page,
    Aligned,
    Block,
    Best,
    Advised,
    Sendfile,
    Splice,
}

impl Step {
    /// Of the seven, those that are not headwater's.
    pub(super) const SIX: [Step; 6] =
        [Step::Byte, Step::Page, Step::Aligned, Step::Block, Step::Best, Step::Advised];

    /// What else the kernel offers.
    pub(super) const OTHERS: [Step; 2] = [Step::Sendfile, Step::Splice];

    /// For the child's command line and the JSON.
    pub(super) fn id(self) -> &'static str {
        match self {
            Step::Byte => "cat1",
            Step::Page => "cat2",
            Step::Aligned => "cat3",
            Step::Block => "cat4",
            Step::Best => "cat5",
            Step::Advised => "cat6",
            Step::Sendfile => "sendfile",
            Step::Splice => "splice",
        }
    }

    pub(super) fn slice_bytes(self) -> u64 {
        if self == Step::Byte { SLICE_BYTES } else { u64::MAX }
    }
}

/// How much is read at a time.
pub(super) fn buffer_bytes(step: Step, block_bytes: u64, best_bytes: usize) -> usize {
    match step {
        Step::Byte => 1,
        Step::Page | Step::Aligned => PAGE_BYTES,
        Step::Block => lcm_with_page(block_bytes),
        Step::Best | Step::Advised => best_bytes,
        Step::Sendfile => SENDFILE_BYTES,
        Step::Splice => PIPE_BYTES,
    }
}

/// Of a page and what a file says its blocks are. Some say 0, or a number that makes no buffer; then a page has to do.
fn lcm_with_page(block_bytes: u64) -> usize {
    if block_bytes == 0 {
        return PAGE_BYTES;
    }
    let (mut greater, mut less) = (PAGE_SIZE_BYTES, block_bytes);
    while less != 0 {
        (greater, less) = (less, greater % less);
    }
    let multiple = (PAGE_SIZE_BYTES / greater).checked_mul(block_bytes);
    multiple.filter(|&bytes| bytes <= BUFFER_BYTES_MAX).unwrap_or(PAGE_SIZE_BYTES) as usize
}

/// # Errors
/// What reading or writing reports; an unknown row.
pub(in crate::bench) fn run(arguments: &RowArguments) -> io::Result<()> {
    let step = Step::SIX.into_iter().chain(Step::OTHERS).find(|step| step.id() == arguments.row);
    let step = step.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no such row"))?;
    let input = standard::input()?;
    let output = standard::output()?;
    let bytes = usize::try_from(arguments.places).map_err(io::Error::other)?;
    match step {
        Step::Byte | Step::Page => copy(input.take(arguments.bytes), output, &mut vec![0; bytes]),
        Step::Aligned | Step::Block | Step::Best => copy(input, output, aligned(&mut Vec::new(), bytes)),
        Step::Advised => {
            fadvise(&input, 0, None, Advice::Sequential)?;
            copy(input, output, aligned(&mut Vec::new(), bytes))
        }
        Step::Sendfile => until_end(|| sendfile(&output, &input, None, bytes)),
        Step::Splice => {
            let (reader, writer) = io::pipe()?;
            // As large as is allowed.
            let _ = fcntl_setpipe_size(&writer, bytes);
            until_end(|| {
                let moved_bytes = splice(&input, None, &writer, None, bytes, SpliceFlags::empty())?;
                let mut left_bytes = moved_bytes;
                while left_bytes > 0 {
                    left_bytes -= splice(&reader, None, &output, None, left_bytes, SpliceFlags::empty())?;
                }
                Ok(moved_bytes)
            })
        }
    }
}

fn copy(mut input: impl Read, mut output: impl Write, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        match input.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(read_bytes) => output.write_all(&buffer[..read_bytes])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn until_end(mut step: impl FnMut() -> Result<usize, Errno>) -> io::Result<()> {
    loop {
        match step() {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a read from `/dev/zero` and a write to `/dev/null` make of buffers.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Sweep {
    pub(super) best_bytes: usize,
    pub(super) points: Vec<Point>,
}

#[derive(Serialize, Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) buffer_bytes: usize,
    pub(super) gib_per_s: f64,
}

/// Finds the buffer that is fastest without a file: 4 KiB to 4 MiB.
///
/// # Errors
/// What `/dev/zero` and `/dev/null` report.
pub(super) fn sweep() -> io::Result<Sweep> {
    let (zero, null) = (File::open("/dev/zero")?, File::options().write(true).open("/dev/null")?);
    let mut points = Vec::new();
    for shift in SWEEP_SHIFTS {
        let buffer_bytes = 1 << shift;
        let mut room = Vec::new();
        let buffer = aligned(&mut room, buffer_bytes);
        let mut best_seconds = f64::INFINITY;
        for _ in 0..SWEEP_PASSES {
            let started = Instant::now();
            copy((&zero).take(SWEEP_BYTES), &null, buffer)?;
            best_seconds = best_seconds.min(started.elapsed().as_secs_f64());
        }
        points.push(Point { buffer_bytes, gib_per_s: SWEEP_BYTES as f64 / GIB / best_seconds });
    }
    let best = points.iter().max_by(|left, right| left.gib_per_s.total_cmp(&right.gib_per_s));
    let best_bytes = best.map_or(PAGE_BYTES, |point| point.buffer_bytes);
    Ok(Sweep { best_bytes, points })
}

/// A fifth of a second at a byte at a time.
pub(super) const SLICE_BYTES: u64 = 256 << 10;

/// What the kernel moves in one call at most.
const SENDFILE_BYTES: usize = 0x7fff_f000;

/// `/proc/sys/fs/pipe-max-size` as it comes.
const PIPE_BYTES: usize = 1 << 20;

/// More makes no buffer.
const BUFFER_BYTES_MAX: u64 = 64 << 20;

const SWEEP_SHIFTS: std::ops::RangeInclusive<u32> = 12..=22;

/// 2 to 10 ms each.
const SWEEP_BYTES: u64 = 64 << 20;

/// The best of them: others have something to do as well.
const SWEEP_PASSES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever a file system says, there is a buffer of whole pages.
    #[test]
    fn buffers_of_odd_blocks() {
        assert_eq!(lcm_with_page(4096), 4096);
        assert_eq!(lcm_with_page(512), 4096);
        assert_eq!(lcm_with_page(6144), 12288);
        assert_eq!(lcm_with_page(128 << 10), 128 << 10);
        assert_eq!(lcm_with_page(3), 12288);
        assert_eq!(lcm_with_page(0), 4096);
        assert_eq!(lcm_with_page(u64::MAX), 4096);
    }
}
