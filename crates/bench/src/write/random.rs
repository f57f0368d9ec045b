//! Random: pages of a file written over in random order, then synced.
//!
//! Owns: the orders, and how many different pages they dirty.
//! Does not own: the file (target), what is in a page (contents).

use std::io;

use headwater_measure::Figures;
use headwater_testkit::Rng;

use super::contents::{self, Contents};
use super::target::{MEMORY_BYTES_SPARE, Target, engine, timed};
use super::{ArmOptions, Work};
use crate::pages::{PAGE, shuffle};

pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let pages = (options.length_bytes() / PAGE) as u32;
    let order = order(options.work, pages);
    // Others than those of the runs before, whose bytes are in the file.
    let versions = || (0..).map(|write: u32| std::process::id().rotate_left(16).wrapping_add(write));
    let (engine, mut contents) = (engine(options.length_bytes() * 3 + MEMORY_BYTES_SPARE)?, Contents::new());
    let target = Target::open(options, &engine)?;
    let ((), figures) = timed(order.len() as u64 * PAGE, || {
        for (version, &page) in versions().zip(&order) {
            target.write_all_at(contents.page(page, version), u64::from(page) * PAGE)?;
        }
        target.sync()
    })?;
    let mut written_last = vec![None; pages as usize];
    versions().zip(&order).for_each(|(version, &page)| written_last[page as usize] = Some(version));
    contents::check(&options.file, options.length_bytes(), |page| written_last[page as usize])?;
    let dirtied_pages = written_last.iter().flatten().count() as f64;
    Ok(target.counted(figures.with("dirtied_pages", dirtied_pages)))
}

/// Which pages are written, one after the other: the same for every side.
fn order(work: Work, pages: u32) -> Vec<u32> {
    let mut rng = Rng::new(ORDER_SEED);
    match work {
        Work::RandomDense => {
            let mut blocks: Vec<u32> = (0..pages / BLOCK_PAGES).collect();
            shuffle(&mut blocks, &mut rng);
            blocks.truncate(blocks.len() / 2);
            let pages =
                blocks.iter().flat_map(|block| (0..BLOCK_PAGES).map(move |page| block * BLOCK_PAGES + page));
            let mut pages: Vec<u32> = pages.collect();
            shuffle(&mut pages, &mut rng);
            pages
        }
        Work::RandomRepeated => (0..pages).map(|_| rng.below(u64::from(pages / 4)) as u32).collect(),
        _ => (0..pages).map(|_| rng.below(u64::from(pages)) as u32).collect(),
    }
}

const BLOCK_PAGES: u32 = (256 << 10) / PAGE as u32;

const ORDER_SEED: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the dense order has each page of half of the blocks once; the repeated one stays within a quarter.
    #[test]
    fn orders_are_what_their_names_say() {
        let mut dense = order(Work::RandomDense, 1024);
        assert!(!dense.is_sorted());
        dense.sort_unstable();
        let blocks = dense.chunks(BLOCK_PAGES as usize);
        assert!(blocks.clone().all(|block| (block[0]..block[0] + BLOCK_PAGES).eq(block.iter().copied())));
        assert_eq!(blocks.len(), 1024 / BLOCK_PAGES as usize / 2);
        let repeated = order(Work::RandomRepeated, 1024);
        assert!(repeated.len() == 1024 && repeated.iter().all(|&page| page < 256));
    }
}
