//! Soak: everything at once, for as long as one likes.
//!
//! ```text
//!   rounds ─► for each driver: threads of the world (oracle) + a file that changes + pages kept ─► gauges at zero
//! ```
//!
//! A second in all; `HEADWATER_SOAK_SECONDS=600` makes a soak of it (`just soak 10m`). Prints the seed and what was read.
//!
//! Owns: the mixture, and how long it lasts.
//! Does not own: the operations (world).

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater::io::DriverKind;
use headwater::{Caching, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, soak_seconds, tmpfs, with_seed};

use crate::rig::{Rig, Scratch, block_on, drivers, watched};
use crate::world::{Dweller, Shelf, assert_exact};

/// Goal: whatever threads do, for however long, bytes are right, nobody waits for ever, and after each round every gauge
/// is zero but for what is cached.
#[test]
fn soak() {
    with_seed("soak::soak", |seed| {
        let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(SECONDS));
        let mut rng = Rng::new(seed);
        let shelves: Vec<Shelf> = [ScratchDir::on_target(), tmpfs()]
            .into_iter()
            .flatten()
            .map(|place| Shelf::new(place, &mut rng))
            .collect();
        let (start, read_bytes, mut rounds) = (Instant::now(), AtomicU64::new(0), 0);
        while rounds == 0 || Instant::now() < end {
            for driver in drivers(rng.next_u64()) {
                let shelf = &shelves[rng.below(shelves.len() as u64) as usize];
                round(driver, shelf, &mut rng, &read_bytes);
            }
            rounds += 1;
        }
        let (mebibytes, seconds) = (read_bytes.into_inner() >> 20, start.elapsed().as_secs_f64());
        println!("seed {seed:#x}: {rounds} rounds, {mebibytes} MiB read and compared in {seconds:.1} s");
    });
}

fn round(driver: DriverKind, shelf: &Shelf, rng: &mut Rng, read_bytes: &AtomicU64) {
    let memory_bytes = [3 << 20, 4 << 20, 6 << 20, 16 << 20, 64 << 20][rng.below(5) as usize];
    let rig = Rig::sized(driver, memory_bytes, 1 + rng.below(40) as u32);
    if rng.chance(1, 2) {
        shelf.make_cold();
    }
    let mut watching = if rng.chance(1, 2) { shelf.open_all(&rig) } else { Vec::new() };
    let (disturbed, done) = (Scratch::new(rng.next_u64(), DISTURBED_BYTES), AtomicBool::new(false));
    let round_end = Instant::now() + ROUND;
    let what = format!("{} with {memory_bytes} bytes", rig.name());
    watched(&what, || {
        thread::scope(|scope| {
            let (rig, disturbed, done) = (&rig, &disturbed, &done);
            let seeds = (rng.next_u64(), rng.next_u64());
            let disturber = scope.spawn(move || disturb(disturbed, done, seeds.0));
            let reader = scope.spawn(move || read_disturbed(rig, disturbed, done, seeds.1));
            let dwellers: Vec<_> = (0..THREADS)
                .map(|_| {
                    let mut dweller = Dweller::new(rig, shelf, rng.next_u64());
                    scope.spawn(move || {
                        while Instant::now() < round_end {
                            dweller.step();
                        }
                        read_bytes.fetch_add(dweller.read_bytes, Ordering::Relaxed);
                    })
                })
                .collect();
            // Not when one of them has panicked either.
            let results: Vec<_> = dwellers.into_iter().map(|dweller| dweller.join()).collect();
            done.store(true, Ordering::Relaxed);
            let results = results.into_iter().chain([disturber.join(), reader.join()]);
            assert_eq!(
                results.filter(Result::is_err).count(),
                0,
                "threads panicked: {what}, {:?}",
                rig.engine
            );
        });
    });
    watching.extend(shelf.open_all(&rig));
    watching.truncate(shelf.files.len());
    let file = OpenOptions::new().engine(&rig.engine).caching(Caching::On).open(disturbed.path()).unwrap();
    watching.push(file);
    assert_exact(&rig, &watching);
}

/// Cuts the file and writes it again, all the time.
fn disturb(scratch: &Scratch, done: &AtomicBool, seed: u64) {
    let (file, mut rng) = (scratch.file(), Rng::new(seed));
    let mut data = vec![0; scratch.length_bytes as usize];
    scratch.pattern.fill(0, &mut data);
    while !done.load(Ordering::Relaxed) {
        let cut = rng.below(scratch.length_bytes);
        file.set_len(cut).unwrap();
        file.write_all_at(&data[cut as usize..], cut).unwrap();
    }
}

/// Each byte is that of its place, or zero where the file was just being cut and written.
fn read_disturbed(rig: &Rig, scratch: &Scratch, done: &AtomicBool, seed: u64) {
    let mut rng = Rng::new(seed);
    let revalidate = [Duration::ZERO, Duration::from_millis(1)][rng.below(2) as usize];
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).revalidate(revalidate);
    let file = options.open(scratch.path());
    // Where it was just cut to nothing it is not cached, which is no harm.
    let file = file.unwrap();
    while !done.load(Ordering::Relaxed) {
        let (offset_bytes, length) = (rng.below(scratch.length_bytes), rng.below(60_000) as usize);
        let mut buffer = vec![0; length];
        let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
        check_or_zero(scratch, offset_bytes, &buffer[..read_bytes]);
        let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
        check_or_zero(scratch, offset_bytes, &bytes);
    }
}

fn check_or_zero(scratch: &Scratch, offset_bytes: u64, bytes: &[u8]) {
    for (at, &byte) in (offset_bytes..).zip(bytes) {
        assert!(byte == 0 || byte == scratch.pattern.byte(at), "garbage at {at}");
    }
}

const SECONDS: u64 = 1;

/// How often all gauges must be zero, and far less than the patience of [`watched`].
const ROUND: Duration = Duration::from_millis(300);

const THREADS: usize = 5;
const DISTURBED_BYTES: u64 = 400_000;
