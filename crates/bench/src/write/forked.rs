//! Forked: what a fork costs a process that has much memory.

use std::hint::black_box;
use std::io;

use headwater::OpenOptions;
use headwater_testkit::time_fork;

use super::target::{MEMORY_BYTES_SPARE, engine};
use super::{ArmOptions, Figures, PIECE_BYTES, Side};
use crate::arms::PAGE;
use crate::measure::median;

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
        Side::View | Side::Std | Side::StdDirect => Err(options.unknown()),
    }
}

/// With the whole file in the cache.
fn with_engine(options: &ArmOptions) -> io::Result<Figures> {
    let engine = engine(options.length_bytes() / 4 * 5 + MEMORY_BYTES_SPARE)?;
    let file = OpenOptions::new().engine(&engine).open(&options.file)?;
    let mut buffer = vec![0; PIECE_BYTES];
    for offset_bytes in (0..options.length_bytes()).step_by(PIECE_BYTES) {
        file.read_exact_at(&mut buffer, offset_bytes)?;
    }
    let (resident, pages) = (file.stats().resident_pages, options.length_bytes() / PAGE);
    if resident < pages {
        return Err(io::Error::other(format!("only {resident} of {pages} pages are in the cache")));
    }
    Ok(forks())
}

fn forks() -> Figures {
    let elapsed_s = median((0..FORKS).map(|_| time_fork().as_secs_f64()));
    Figures { elapsed_s, ..Figures::default() }
}

const FORKS: usize = 15;
