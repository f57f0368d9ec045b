//! Held: memory that cannot be had, because callers keep pages or requests fill them (invariant 6).
//!
//! Owns: pages kept as `Bytes`, caches full of pages on their way.
//! Does not own: who waits for one page (see `once`).

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headwater::{Caching, File, IoMode, OpenOptions, Result};
use headwater_testkit::{Rng, with_seed};
use rustix::fs::{Advice, fadvise};

use crate::rig::{Rig, Scratch, block_on, calm_device, drivers, watched};
use crate::world::assert_exact;

/// Goal: when callers keep all the pages that they can get, everybody else goes on, with right bytes, and what is kept
/// does not change. Method: single pages kept until no more are lent, then reads of all sizes, threads and tasks, while parts of the
/// file come into the kernel's page cache and leave it.
#[test]
fn a_cache_full_of_kept_pages() {
    with_seed("held::a_cache_full_of_kept_pages", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        for memory_bytes in [3 << 20, 5 << 20, 9 << 20] {
            for driver in drivers(seed) {
                let rig = Rig::sized(driver, memory_bytes, 8);
                let file = cached(&rig, &scratch);
                let what = format!("{} with {memory_bytes} bytes", rig.name());
                watched(&what, || keep_and_read(&rig, &file, &scratch, seed));
                assert_exact(&rig, &[file]);
            }
        }
    });
}

fn keep_and_read(rig: &Rig, file: &File, scratch: &Scratch, seed: u64) {
    let lend = |page: u64| (page, block_on(file.read_at_async(page * 4096, 4096)).unwrap());
    let kept: Vec<(u64, Bytes)> = (0..LENGTH_BYTES / 4096).map(lend).collect();
    let stats = rig.engine.stats();
    assert!(stats.lent_bytes > 0 && stats.lent_bytes <= stats.arena.budget_bytes / 2, "{stats:?}");
    let readers = AtomicUsize::new(3);
    thread::scope(|scope| {
        scope.spawn(|| come_and_go(scratch, &readers, seed));
        for thread in 0..3 {
            let readers = &readers;
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ thread);
                for length in [10, 4096, 100_000, 1_000_000, 3_000_000].repeat(4) {
                    let (offset_bytes, mut buffer) = (rng.below(LENGTH_BYTES), vec![0; length]);
                    let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
                    scratch.check_all(offset_bytes, length, &buffer[..read_bytes]);
                    let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
                    scratch.check_all(offset_bytes, length, &bytes);
                }
                readers.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    kept.iter().for_each(|(page, bytes)| scratch.check_all(page * 4096, 4096, bytes));
}

/// Has the kernel hold parts of the file and forget others, as long as there are readers.
fn come_and_go(scratch: &Scratch, readers: &AtomicUsize, seed: u64) {
    let (file, mut rng) = (fs::File::open(scratch.path()).unwrap(), Rng::new(seed));
    while readers.load(Ordering::Relaxed) > 0 {
        let at = rng.below(LENGTH_BYTES);
        match rng.below(2) {
            0 => fadvise(&file, at, NonZeroU64::new(300_000), Advice::DontNeed).unwrap(),
            _ => _ = file.read_at(&mut vec![0; 300_000], at).unwrap(),
        }
    }
}

/// Goal: when every page of the cache is on its way, a demand waits or goes on without it, and readahead gives up. Method:
/// tasks that ask for more than the memory holds and look once; then one thread reads, then all are finished.
#[test]
fn a_cache_full_of_pages_on_their_way() {
    with_seed("held::a_cache_full_of_pages_on_their_way", |seed| {
        let scratch = Scratch::new(seed, LENGTH_BYTES);
        for driver in drivers(seed) {
            let rig = Rig::sized(driver, 3 << 20, 64);
            let file = cached(&rig, &scratch);
            watched(rig.name(), || {
                let places = (0..LENGTH_BYTES).step_by(100_000);
                let tasks: Vec<(u64, Looked)> =
                    places.map(|place| (place, Looked::at(&file, place))).collect();
                let mut buffer = vec![0; 50_000];
                for place in (0..LENGTH_BYTES - 50_000).step_by(350_000) {
                    file.read_exact_at(&mut buffer, place).unwrap();
                    scratch.check(place, &buffer);
                }
                for (place, looked) in tasks {
                    scratch.check_all(place, 100_000, &looked.finish());
                }
            });
            assert_exact(&rig, &[file]);
        }
    });
}

/// A task that has looked once.
enum Looked {
    Waits(Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>),
    Has(Bytes),
}

impl Looked {
    fn at(file: &File, place: u64) -> Looked {
        let mut reading = Box::pin(file.read_at_async(place, 100_000));
        match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(bytes) => Looked::Has(bytes.unwrap()),
            Poll::Pending => Looked::Waits(reading),
        }
    }

    fn finish(self) -> Bytes {
        match self {
            Looked::Has(bytes) => bytes,
            Looked::Waits(reading) => block_on(reading).unwrap(),
        }
    }
}

/// Goal: one page may be lent as often as anybody likes. Method: more often than its state can count.
#[test]
fn one_page_lent_70_000_times() {
    let scratch = Scratch::new(1, 4096);
    let rig = Rig::sized(calm_device(1), 1 << 30, 8);
    let file = cached(&rig, &scratch);
    let lent: Vec<Bytes> = (0..70_000).map(|_| block_on(file.read_at_async(0, 4096)).unwrap()).collect();
    scratch.check_all(0, 4096, &lent[0]);
    scratch.check_all(0, 4096, &lent[69_999]);
    drop(lent);
    assert_exact(&rig, &[file]);
}

/// Goal: what was lent stays as it was, and its memory comes back, after file and engine are gone.
#[test]
fn lent_pages_outlive_everything() {
    with_seed("held::lent_pages_outlive_everything", |seed| {
        let scratch = Scratch::new(seed, 100_000);
        for driver in drivers(seed) {
            let rig = Rig::new(driver);
            let file = cached(&rig, &scratch);
            let lent: Vec<Bytes> =
                (0..20).map(|page| block_on(file.read_at_async(page * 4096, 4096)).unwrap()).collect();
            assert!(rig.engine.stats().lent_bytes > 0);
            drop((rig, file));
            for (page, bytes) in (0..).zip(&lent) {
                scratch.check_all(page * 4096, 4096, bytes);
            }
        }
    });
}

fn cached(rig: &Rig, scratch: &Scratch) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).io(IoMode::Auto).caching(Caching::On).revalidate(Duration::MAX);
    options.open(scratch.path()).unwrap()
}

const LENGTH_BYTES: u64 = 12_000_000;
