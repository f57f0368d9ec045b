//! Beside: random reads of cached pages, while another thread is at work.
//!
//! The second thread writes the half of the file that is not read, or copies as much in memory of its own: what both
//! cost the reader is processor time, what only the first costs is contention.
//!
//! Owns: the two threads, the pace of the second.
//! Does not own: the file and its contents (target, contents).

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater::{File, OpenOptions};
use headwater_measure::Figures;
use headwater_testkit::Rng;

use super::contents::{self, Contents};
use super::target::{MEMORY_BYTES_SPARE, engine};
use super::{ArmOptions, PIECE_BYTES, Side, Work};
use crate::pages::PAGE;

pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    if options.side != Side::Headwater {
        return Err(options.unknown());
    }
    let memory_bytes = options.length_bytes() * 3 + MEMORY_BYTES_SPARE;
    let file = OpenOptions::new().engine(&engine(memory_bytes)?).write(true).open(&options.file)?;
    for _ in 0..FILLS {
        fill(&file, options.length_bytes())?;
    }
    let half_pages = (options.length_bytes() / PAGE / 2) as u32;
    let missed = || {
        let counts = file.stats().counts;
        counts.misses + counts.bypassed
    };
    let missed_before = missed();
    let figures = both(options, &file, half_pages)?;
    if missed() > missed_before {
        return Err(io::Error::other(format!("{} pages were not in the cache", missed() - missed_before)));
    }
    file.sync_data()?;
    contents::check(&options.file, options.length_bytes(), |page| (page < half_pages).then_some(0))?;
    Ok(figures)
}

fn fill(file: &File, length_bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    for offset_bytes in (0..length_bytes).step_by(PIECE_BYTES) {
        file.read_exact_at(&mut buffer, offset_bytes)?;
    }
    Ok(())
}

fn both(options: &ArmOptions, file: &File, half_pages: u32) -> io::Result<Figures> {
    let (ready, is_over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let work = second_work(options, file, half_pages);
            ready.wait();
            repeat(options.pace, &is_over, work)
        });
        ready.wait();
        let reads_per_s = reads_per_s(file, half_pages, options.seconds);
        // Also when reading failed: the second waits for it.
        is_over.store(true, Ordering::Relaxed);
        let beside_per_s = second.join().expect("the second thread does not panic")?;
        Ok(Figures::from([("reads_per_s", reads_per_s?), ("beside_per_s", beside_per_s)]))
    })
}

fn reads_per_s(file: &File, half_pages: u32, seconds: f64) -> io::Result<f64> {
    let (mut rng, mut buffer, mut count) = (Rng::new(READ_SEED), vec![0; PAGE as usize], 0_u64);
    let start = Instant::now();
    loop {
        for _ in 0..READS_BETWEEN_LOOKS {
            let page = rng.below(u64::from(half_pages)) as u32;
            file.read_exact_at(&mut buffer, u64::from(page) * PAGE)?;
            if contents::page_of(&buffer) != page {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("page {page} has other bytes"),
                ));
            }
        }
        count += READS_BETWEEN_LOOKS;
        let elapsed_s = start.elapsed().as_secs_f64();
        if elapsed_s >= seconds {
            return Ok(count as f64 / elapsed_s);
        }
    }
}

/// One step of what the second thread does; `None` if there is nothing to do.
type Step<'a> = Box<dyn FnMut() -> io::Result<()> + 'a>;

fn second_work<'a>(options: &ArmOptions, file: &'a File, half_pages: u32) -> Option<Step<'a>> {
    let (mut rng, mut contents, mut version) = (Rng::new(WRITE_SEED), Contents::new(), 0);
    let mut next = move || rng.below(u64::from(half_pages)) as u32;
    match options.work {
        Work::BesideWriting => Some(Box::new(move || {
            version += 1;
            let page = half_pages + next();
            Ok(file.write_all_at(contents.page(page, version), u64::from(page) * PAGE)?)
        })),
        Work::BesideCopying => {
            let mut memory = vec![1; half_pages as usize * PAGE as usize];
            Some(Box::new(move || {
                version += 1;
                let page = next();
                let start = page as usize * PAGE as usize;
                memory[start..start + PAGE as usize].copy_from_slice(contents.page(page, version));
                Ok(())
            }))
        }
        _ => None,
    }
}

/// Until it is over. How many steps were done in a second.
fn repeat(pace: u32, is_over: &AtomicBool, work: Option<Step<'_>>) -> io::Result<f64> {
    let Some(mut step) = work else { return Ok(0.0) };
    let (start, mut count) = (Instant::now(), 0_u64);
    while !is_over.load(Ordering::Relaxed) {
        step()?;
        count += 1;
        if pace > 0 && count.is_multiple_of(u64::from(pace / TICKS_A_SECOND).max(1)) {
            let due = Duration::from_secs_f64(count as f64 / f64::from(pace));
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// The first brings the pages in, the others mark them as used as often as is counted.
const FILLS: usize = 4;

/// A look at the clock costs a tenth of a read.
const READS_BETWEEN_LOOKS: u64 = 64;

/// Sleep is not to be had shorter than some fifty microseconds.
const TICKS_A_SECOND: u32 = 1000;

const READ_SEED: u64 = 2;

const WRITE_SEED: u64 = 3;
