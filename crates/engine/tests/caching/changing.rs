//! Changing: files that others write, truncate and grow while they are cached.
//!
//! Owns: what shows, and when, of what others do.
//! Does not own: readers beside the cache (see `changing` of `reading`).

use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headwater::{Caching, DriverKind, File, IoMode, OpenOptions, Result};
use headwater_testkit::{Rng, on_each, with_seed};

use crate::rig::{Rig, Scratch, block_on, calm, drivers, watched};

/// Goal: what was written, truncated or grown is seen by the reads that begin after it, to the byte, whatever the pages were
/// doing before: cached, on their way, or absent. Method: the contents are kept in memory beside the file; random changes
/// through the standard library while reads are under way, each followed by reads through two handles.
#[test]
fn changes_are_seen_at_once_if_asked_for() {
    with_seed("changing::changes_are_seen_at_once_if_asked_for", |seed| {
        let mut rng = Rng::new(seed);
        for (kind, directory, driver) in on_each(drivers(rng.next_u64())) {
            let scratch = Scratch::on(directory, seed, 0);
            for mode in [IoMode::Auto, IoMode::Buffered] {
                let rig = Rig::new(driver.clone());
                let what = format!("{} on {kind}, {mode:?}", rig.name());
                eprintln!("{what}");
                watched(&what, || Changed::new(&rig, &scratch, mode, &mut rng).run());
                rig.assert_idle();
            }
        }
    });
}

/// A file that changes, and what it must contain.
struct Changed<'a> {
    rng: Rng,
    ordinary: std::fs::File,
    handles: Vec<File>,
    contents: Vec<u8>,
    under_way: Vec<Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>>,
    rig: &'a Rig,
}

impl<'a> Changed<'a> {
    fn new(rig: &'a Rig, scratch: &Scratch, mode: IoMode, rng: &mut Rng) -> Changed<'a> {
        let (ordinary, mut rng) = (scratch.file(), Rng::new(rng.next_u64()));
        let mut contents = vec![0; 600_000];
        contents.fill_with(|| rng.next_u64() as u8);
        ordinary.set_len(0).unwrap();
        ordinary.write_all_at(&contents, 0).unwrap();
        let handles = vec![exact(rig, scratch, mode), exact(rig, scratch, mode)];
        Changed { rng, ordinary, handles, contents, under_way: Vec::new(), rig }
    }

    fn run(&mut self) {
        for _ in 0..60 {
            self.begin();
            self.change();
            (0..3).for_each(|_| self.read());
        }
        self.under_way.clear();
    }

    /// A read that is under way while the file changes; what it gives is old or new, and not looked at.
    fn begin(&mut self) {
        let (offset_bytes, handle) = (self.rng.below(LENGTH_BYTES_MAX), self.rng.below(2) as usize);
        let mut reading = Box::pin(self.handles[handle].read_at_async(offset_bytes, 50_000));
        let _ = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.under_way.push(reading);
        if self.under_way.len() > 3 {
            drop(self.under_way.swap_remove(self.rng.below(4) as usize));
        }
    }

    fn change(&mut self) {
        let length = self.contents.len() as u64;
        match self.rng.below(4) {
            0 => self.set_length(self.rng.clone().below(length + 1)),
            1 => {
                // Truncated and regrown: a hole where there were bytes.
                self.set_length(length / 2);
                self.set_length(length);
            }
            2 => self.write(length.min(LENGTH_BYTES_MAX - 50_000)),
            _ => self.write(self.rng.clone().below(length + 1).min(LENGTH_BYTES_MAX - 50_000)),
        }
        self.rng.next_u64();
    }

    fn set_length(&mut self, length_bytes: u64) {
        self.ordinary.set_len(length_bytes).unwrap();
        self.contents.resize(length_bytes as usize, 0);
    }

    fn write(&mut self, offset_bytes: u64) {
        let mut bytes = vec![0; 1 + self.rng.below(50_000) as usize];
        bytes.fill_with(|| self.rng.next_u64() as u8);
        self.ordinary.write_all_at(&bytes, offset_bytes).unwrap();
        let (start, end) = (offset_bytes as usize, offset_bytes as usize + bytes.len());
        self.contents.resize(self.contents.len().max(end), 0);
        self.contents[start..end].copy_from_slice(&bytes);
    }

    fn read(&mut self) {
        let file = &self.handles[self.rng.below(2) as usize];
        let (offset_bytes, length) = (self.rng.below(LENGTH_BYTES_MAX), self.rng.below(80_000) as usize);
        let start = (offset_bytes as usize).min(self.contents.len());
        let expected = &self.contents[start..(start + length).min(self.contents.len())];
        let read = if self.rng.chance(1, 2) {
            block_on(file.read_at_async(offset_bytes, length)).unwrap()
        } else {
            let mut buffer = vec![0; length];
            let read_bytes = file.read_at(&mut buffer, offset_bytes).unwrap();
            buffer.truncate(read_bytes);
            buffer.into()
        };
        assert_eq!(read.len(), expected.len(), "length of {length} at {offset_bytes}");
        let differs = read.iter().zip(expected).position(|(read, expected)| read != expected);
        assert_eq!(
            differs,
            None,
            "of {length} at {offset_bytes}: an older byte; {:?}",
            self.rig.engine.stats()
        );
    }
}

/// Goal: the same when writer and readers are threads: a read sees every write that had returned before it began. Method:
/// each page of the file tells how many times it was written; readers compare that with what was announced before they
/// began; the file grows and is truncated meanwhile.
#[test]
fn a_write_that_has_returned_is_seen_by_every_thread() {
    with_seed("changing::a_write_that_has_returned_is_seen_by_every_thread", |seed| {
        for driver in drivers(seed) {
            let scratch = Scratch::new(seed, 0);
            scratch.file().write_all_at(&vec![0; PAGES as usize * 4096], 0).unwrap();
            let rig = Rig::new(driver);
            let versions: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
            let done = AtomicBool::new(false);
            watched(rig.name(), || {
                thread::scope(|scope| {
                    for reader in 0..3 {
                        let (rig, scratch, versions, done) = (&rig, &scratch, &versions, &done);
                        scope.spawn(move || observe(rig, scratch, versions, done, seed ^ reader));
                    }
                    write_versions(&scratch, &versions, seed);
                    done.store(true, Ordering::Relaxed);
                });
            });
            rig.assert_idle();
        }
    });
}

fn write_versions(scratch: &Scratch, versions: &[AtomicU64], seed: u64) {
    let (ordinary, mut rng) = (scratch.file(), Rng::new(seed));
    for _ in 0..400 {
        let page = rng.below(PAGES);
        let version = versions[page as usize].load(Ordering::Relaxed) + 1;
        let bytes: Vec<u8> = version.to_le_bytes().repeat(512);
        ordinary.write_all_at(&bytes, page * 4096).unwrap();
        versions[page as usize].store(version, Ordering::Release);
    }
}

fn observe(rig: &Rig, scratch: &Scratch, versions: &[AtomicU64], done: &AtomicBool, seed: u64) {
    let (file, mut rng) = (exact(rig, scratch, IoMode::Auto), Rng::new(seed));
    let mut buffer = [0; 4096];
    while !done.load(Ordering::Relaxed) {
        let page = rng.below(PAGES);
        let announced = versions[page as usize].load(Ordering::Acquire);
        file.read_exact_at(&mut buffer, page * 4096).unwrap();
        let seen = buffer.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).min().unwrap();
        assert!(seen >= announced, "page {page} is of version {seen}, {announced} was written before");
    }
}

/// Goal: what a large write has written is seen when it has returned, also by who read while it was under way. Method: one
/// write of 64 MiB, pages read beside it; then all.
#[test]
fn a_large_write_is_seen_when_it_has_returned() {
    let scratch = Scratch::new(1, 64 << 20);
    let rig = Rig::sized(DriverKind::Threads, 128 << 20, 16);
    let (file, done) = (exact(&rig, &scratch, IoMode::Buffered), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut rng, mut buffer) = (Rng::new(1), [0; 4096]);
            while !done.load(Ordering::Relaxed) {
                file.read_exact_at(&mut buffer, rng.below(16_384) * 4096).unwrap();
            }
        });
        scratch.file().write_all_at(&vec![7; 64 << 20], 0).unwrap();
        done.store(true, Ordering::Relaxed);
    });
    let mut contents = vec![0; 64 << 20];
    file.read_exact_at(&mut contents, 0).unwrap();
    assert_eq!(contents.iter().filter(|byte| **byte != 7).count(), 0);
}

/// Goal: what is appended is seen at once, also in the last page, by whoever reads to the end. Method: appends by one
/// thread, which announces the length; readers that reach for it.
#[test]
fn appended_bytes_are_seen_by_every_thread() {
    with_seed("changing::appended_bytes_are_seen_by_every_thread", |seed| {
        for driver in drivers(seed) {
            let scratch = Scratch::new(seed, 1);
            let (rig, length_bytes) = (Rig::new(driver), AtomicU64::new(1));
            watched(rig.name(), || {
                thread::scope(|scope| {
                    for reader in 0..3 {
                        let (rig, scratch, length_bytes) = (&rig, &scratch, &length_bytes);
                        scope.spawn(move || follow(rig, scratch, length_bytes, seed ^ reader));
                    }
                    append(&scratch, &length_bytes, seed);
                });
            });
            rig.assert_idle();
        }
    });
}

fn append(scratch: &Scratch, length_bytes: &AtomicU64, seed: u64) {
    let (ordinary, mut rng) = (scratch.file(), Rng::new(seed));
    let mut at = 1;
    while at < APPENDED_BYTES {
        let mut bytes = vec![0; 1 + rng.below(3000) as usize];
        scratch.pattern.fill(at, &mut bytes);
        ordinary.write_all_at(&bytes, at).unwrap();
        at += bytes.len() as u64;
        length_bytes.store(at, Ordering::Release);
    }
}

fn follow(rig: &Rig, scratch: &Scratch, length_bytes: &AtomicU64, seed: u64) {
    // The interval is of no matter at the end: who reaches for it has it looked for.
    let mut options = OpenOptions::new();
    let file = options.engine(&rig.engine).caching(Caching::On).open(scratch.path()).unwrap();
    let (mut rng, mut buffer) = (Rng::new(seed), vec![0; 40_000]);
    loop {
        let announced = length_bytes.load(Ordering::Acquire);
        let offset_bytes = announced.saturating_sub(rng.below(20_000));
        // To the end that is known to be there, or beyond it.
        let wanted_bytes = if rng.chance(1, 2) { buffer.len() } else { (announced - offset_bytes) as usize };
        let read_bytes = file.read_at(&mut buffer[..wanted_bytes], offset_bytes).unwrap();
        let end_bytes = offset_bytes + read_bytes as u64;
        assert!(end_bytes >= announced, "the end is at {end_bytes}, {announced} was written before");
        assert_eq!(scratch.pattern.mismatch(offset_bytes, &buffer[..read_bytes]), None);
        if announced >= APPENDED_BYTES {
            return;
        }
    }
}

/// Goal: another handle opened after a change sees it, although the first one looks at the file only now and then.
#[test]
fn opening_sees_what_has_changed() {
    with_seed("changing::opening_sees_what_has_changed", |seed| {
        for driver in drivers(seed) {
            let (scratch, rig) = (Scratch::new(seed, 100_000), Rig::new(driver));
            let seldom = || {
                let mut options = OpenOptions::new();
                options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::MAX);
                options.open(scratch.path()).unwrap()
            };
            let first = seldom();
            let mut buffer = [0; 3000];
            first.read_exact_at(&mut buffer, 50_000).unwrap();
            scratch.file().write_all_at(&[7; 3000], 50_000).unwrap();
            seldom().read_exact_at(&mut buffer, 50_000).unwrap();
            assert!(buffer == [7; 3000]);
            buffer.fill(0);
            first.read_exact_at(&mut buffer, 50_000).unwrap();
            assert!(buffer == [7; 3000], "the handles share their pages");
            drop(first);
            rig.assert_idle();
        }
    });
}

/// Goal: any interval means what it says, also one that the clock cannot count. Method: what another writes does not show.
#[test]
fn an_interval_longer_than_the_clock_counts() {
    for interval in [Duration::from_secs(1 << 40), Duration::from_nanos(u64::MAX) + Duration::from_nanos(1)] {
        let (scratch, rig) = (Scratch::new(1, 100_000), calm(1));
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).caching(Caching::On).revalidate(interval);
        let (file, mut buffer) = (options.open(scratch.path()).unwrap(), [0; 100]);
        file.read_exact_at(&mut buffer, 0).unwrap();
        scratch.file().write_all_at(&[7; 100], 0).unwrap();
        file.read_exact_at(&mut buffer, 0).unwrap();
        scratch.check(0, &buffer);
    }
}

/// A handle that looks at the file before each read.
fn exact(rig: &Rig, scratch: &Scratch, mode: IoMode) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).io(mode).caching(Caching::On).revalidate(Duration::ZERO);
    options.open(scratch.path()).unwrap()
}

const LENGTH_BYTES_MAX: u64 = 700_000;
const PAGES: u64 = 64;
const APPENDED_BYTES: u64 = 400_000;
