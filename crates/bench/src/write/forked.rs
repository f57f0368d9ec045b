//! Forked: what a fork costs a process that has much memory.

use std::hint::black_box;
use std::io;

use headwater::OpenOptions;
use headwater_measure::{Figures, median};
use headwater_testkit::time_fork;

use super::target::{MEMORY_BYTES_SPARE, engine};
use super::{ArmOptions, PIECE_BYTES, Side};
use crate::pages::PAGE;

/// The median of several forks.
pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    match options.side {
        Side::Headwater => with_engine(options),
        Side::Memory => {
            // Not zeros: those would be memory that was never touched.
            let memory = vec![1_u8; options.length_bytes() as usize];
            let figures = forks();
            black_box(&memory);
            Ok(figures)
        }
        Side::Nothing => Ok(forks()),
        Side::Headwater64M | Side::View | Side::Std | Side::StdDirect => Err(options.unknown()),
    }
}

/// With the whole file in the cache.
fn with_engine(options: &ArmOptions) -> io::Result<Figures> {
    let engine = engine(options.length_bytes() / 4 * 5 + MEMORY_BYTES_SPARE)?;
    let file = OpenOptions::new().engine(&engine).open(&options.file)?;
    let (mut buffer, pages) = (vec![0; PIECE_BYTES], options.length_bytes() / PAGE);
    // Of a file that was written just now the engine drops what it has read, once, when it next looks at it.
    for _ in 0..PASSES {
        for offset_bytes in (0..options.length_bytes()).step_by(PIECE_BYTES) {
            file.read_exact_at(&mut buffer, offset_bytes)?;
        }
        if file.stats().resident_pages >= pages {
            return Ok(forks());
        }
    }
    let resident = file.stats().resident_pages;
    Err(io::Error::other(format!("only {resident} of {pages} pages are in the cache")))
}

fn forks() -> Figures {
    Figures::from([("ms_each", median((0..FORKS).map(|_| time_fork().as_secs_f64() * 1e3)))])
}

const FORKS: usize = 15;

/// Twice the looks that can find a file changed: within a tick of its writing, and 30 s after that.
const PASSES: usize = 4;
