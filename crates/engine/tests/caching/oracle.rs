//! Oracle: threads that do to a few files whatever the cache offers, at random; every byte compared with the pattern.
//!
//! Owns: budgets, drivers and file systems to do it on.
//! Does not own: the operations (world).

use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use headwater::{Caching, DriverKind, IoMode, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, tmpfs, with_seed};

use crate::rig::{Rig, Scratch, block_on, drivers, watched};
use crate::world::{Dweller, Shelf, assert_exact};

/// Goal: every byte right whatever threads do at once, with little memory and with much, and nothing left over.
#[test]
fn threads_agree_on_the_default_file_system() {
    with_seed("oracle::threads_agree_on_the_default_file_system", |seed| {
        let mut rng = Rng::new(seed);
        let shelf = Shelf::new(ScratchDir::on_target().unwrap(), &mut rng);
        everywhere(&shelf, &mut rng);
    });
}

/// Goal: the same for files that are read through the kernel's page cache.
#[test]
fn threads_agree_on_tmpfs() {
    with_seed("oracle::threads_agree_on_tmpfs", |seed| {
        let mut rng = Rng::new(seed);
        match tmpfs() {
            Ok(directory) => everywhere(&Shelf::new(directory, &mut rng), &mut rng),
            Err(reason) => headwater_testkit::skip(format!("tmpfs: {reason}")),
        }
    });
}

fn everywhere(shelf: &Shelf, rng: &mut Rng) {
    for driver in drivers(rng.next_u64()) {
        for memory_bytes in [3 << 20, 5 << 20, 64 << 20] {
            shelf.make_cold();
            dwell(driver.clone(), memory_bytes, shelf, rng);
        }
    }
}

fn dwell(driver: DriverKind, memory_bytes: u64, shelf: &Shelf, rng: &mut Rng) {
    let rig = Rig::sized(driver, memory_bytes, 1 + rng.below(32) as u32);
    // Without these, files are closed while others open them.
    let mut watching = if rng.chance(1, 2) { shelf.open_all(&rig) } else { Vec::new() };
    watched(&format!("{} with {memory_bytes} bytes", rig.name()), || {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let mut dweller = Dweller::new(&rig, shelf, rng.next_u64());
                scope.spawn(move || (0..STEPS).for_each(|_| dweller.step()));
            }
        });
    });
    watching.extend(shelf.open_all(&rig));
    watching.truncate(shelf.files.len());
    assert_exact(&rig, &watching);
}

/// Goal: what the last handle of a file gives up when it is dropped is not what those begin who open it at that moment.
/// Method: threads that open, ask, look once or wait, and close, all on one file.
#[test]
fn closed_by_one_while_opened_by_another() {
    with_seed("oracle::closed_by_one_while_opened_by_another", |seed| {
        let mut rng = Rng::new(seed);
        let scratch = Scratch::new(seed, 8_000_000);
        for driver in drivers(seed) {
            // Too little memory to find much of it there.
            let rig = Rig::sized(driver, 3 << 20, 16);
            watched(rig.name(), || {
                thread::scope(|scope| {
                    for _ in 0..3 {
                        let (rig, scratch, mut rng) = (&rig, &scratch, Rng::new(rng.next_u64()));
                        scope.spawn(move || (0..400).for_each(|_| open_and_close(rig, scratch, &mut rng)));
                    }
                });
            });
            let file = rig.open(&scratch.path(), IoMode::Auto);
            assert_exact(&rig, &[file]);
        }
    });
}

fn open_and_close(rig: &Rig, scratch: &Scratch, rng: &mut Rng) {
    let mut options = OpenOptions::new();
    // Asked for anew each time, so that there is something to give up.
    let revalidate = if rng.chance(1, 4) { Duration::ZERO } else { Duration::MAX };
    let file = options.engine(&rig.engine).caching(Caching::On).revalidate(revalidate).open(scratch.path());
    let (file, offset_bytes) = (file.unwrap(), rng.below(8_000_000));
    let mut reading = Box::pin(file.read_at_async(offset_bytes, 20_000));
    let first_look = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(bytes) = first_look {
        scratch.check_all(offset_bytes, 20_000, &bytes.unwrap());
    } else if rng.chance(1, 2) {
        scratch.check_all(offset_bytes, 20_000, &block_on(reading).unwrap());
    }
}

const THREADS: usize = 5;
const STEPS: usize = 600;
