//! Lengths: a file that one thread truncates and makes longer while others read, write, append and sync it.
//!
//! Every word that is written tells where it belongs, and in which epoch; an epoch ends when the file is truncated to nothing
//! while no thread writes.
//!
//! Owns: what may be found in such a file.
//! Does not own: lengths that change while nothing else happens (actor).

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Advice, ByteRange, File, IoMode};
use headwater_testkit::{Rng, ScratchDir, soak_seconds, with_seed};

use crate::rig::{Rig, block_on, drivers};
use crate::threads::{open, watched_for};

/// Goal: nothing from before a truncate to nothing shows after it, words are where they belong, the length is a possible one, and
/// nobody waits for ever.
#[test]
fn nothing_comes_back_after_a_truncate() {
    with_seed("lengths::nothing_comes_back_after_a_truncate", |seed| {
        let (mut rng, directory) = (Rng::new(seed), ScratchDir::on_target().unwrap());
        for (number, driver) in drivers(seed).into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            let rig = Rig::sized(driver, [3 << 20, 16 << 20][rng.below(2) as usize], 16);
            watched_for(rig.name(), || disturb(&rig, &path, &mut rng));
            let file = open(&rig, &path, IoMode::Auto);
            file.sync_all().unwrap();
            let disk = std::fs::read(&path).unwrap();
            let mut bytes = vec![0; disk.len() + 1];
            let read = file.read_at(&mut bytes, 0).unwrap();
            assert!(bytes[..read] == disk, "the disk has something else");
            drop(file);
            rig.assert_idle();
        }
    });
}

fn disturb(rig: &Rig, path: &Path, rng: &mut Rng) {
    let (epoch, done) = (RwLock::new(1), AtomicBool::new(false));
    let shown = AtomicU64::new(1);
    let mut stranger = || (open(rig, path, IoMode::Auto), Rng::new(rng.next_u64()));
    thread::scope(|scope| {
        let (epoch, done, shown) = (&epoch, &done, &shown);
        for _ in 0..2 {
            let (file, rng) = stranger();
            scope.spawn(move || write(&file, epoch, done, rng));
            let (file, rng) = stranger();
            scope.spawn(move || read(&file, shown, done, rng));
        }
        let (file, rng) = stranger();
        let result = scope.spawn(move || truncate(&file, epoch, shown, rng)).join();
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

fn truncate(file: &File, epoch: &RwLock<u64>, shown: &AtomicU64, mut rng: Rng) {
    let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(0));
    let mut step = 0;
    while step < CUTS || Instant::now() < end {
        step += 1;
        match rng.below(4) {
            // With all writers at rest.
            0 => {
                let mut epoch = epoch.write().unwrap();
                file.set_len(0).unwrap();
                assert_eq!(file.len().unwrap(), 0);
                *epoch += 1;
                shown.store(*epoch, Ordering::Release);
            }
            1 => block_on(file.set_len_async(rng.below(WORDS) * 8)).unwrap(),
            2 => file.set_len(0).unwrap(),
            _ => file.set_len(rng.below(WORDS) * 8).unwrap(),
        }
        // Lets the others get somewhere in between.
        for _ in 0..rng.below(20) {
            thread::yield_now();
        }
    }
}

fn write(file: &File, epoch: &RwLock<u64>, done: &AtomicBool, mut rng: Rng) {
    while !done.load(Ordering::Relaxed) {
        let epoch = epoch.read().unwrap();
        let count = if rng.chance(1, 3) { 1 + rng.below(10_000) } else { 1 + rng.below(100) };
        let first = rng.below(WORDS - count);
        let words =
            |first: u64| (first..first + count).flat_map(|place| word(*epoch, place)).collect::<Vec<u8>>();
        match rng.below(8) {
            0..=3 => file.write_all_at(&words(first), first * 8).unwrap(),
            4 => block_on(file.write_all_at_async(words(first), first * 8)).unwrap(),
            // It grows without end otherwise.
            5..=6 if file.len().unwrap() < WORDS * 8 => {
                file.append(&word(*epoch, APPENDED).repeat(1 + rng.below(2000) as usize)).unwrap();
            }
            _ => file.sync_data().unwrap(),
        }
    }
}

fn read(file: &File, shown: &AtomicU64, done: &AtomicBool, mut rng: Rng) {
    while !done.load(Ordering::Relaxed) {
        let (least, first) = (shown.load(Ordering::Acquire), rng.below(WORDS));
        let mut bytes = vec![0; 8 * rng.below(9000) as usize];
        match rng.below(7) {
            0..=2 => {
                let read = file.read_at(&mut bytes, first * 8).unwrap();
                check(&bytes[..read], first, least);
            }
            3 => check(&block_on(file.read_at_async(first * 8, bytes.len())).unwrap(), first, least),
            4 => {
                let mut reader = file.reader();
                reader.seek(SeekFrom::Start(first * 8)).unwrap();
                let read = reader.read(&mut bytes).unwrap();
                check(&bytes[..read], first, least);
            }
            5 => {
                if let Ok(view) = file.view(first * 8, bytes.len()) {
                    check(&view.to_vec(), first, least);
                }
            }
            _ => {
                let range = ByteRange::new(first * 8, first * 8 + 500_000);
                // Where the file ends before it, there is nothing to advise.
                let _ = file.advise([Advice::WillNeed, Advice::DontNeed][rng.below(2) as usize], range);
            }
        }
        let length_bytes = file.len().unwrap();
        // Two appends on top of what stops them.
        assert!(
            length_bytes.is_multiple_of(8) && length_bytes <= WORDS * 8 + 2 * 16_000,
            "{length_bytes} bytes"
        );
    }
}

fn check(bytes: &[u8], first: u64, least: u64) {
    assert_eq!(bytes.len() % 8, 0, "the file ends within a word");
    for (place, found) in (first..).zip(bytes.as_chunks::<8>().0) {
        let [_, epoch] = split(*found);
        // Where bytes come from the kernel's page cache, a word that is being written or cut may have zeros in some of its bytes: the
        // kernel copies without a lock, and may be interrupted between two bytes.
        let of_words = [0, place, APPENDED].map(|place| word(epoch, place));
        let is_possible = (0..8).all(|at| of_words.iter().any(|word| word[at] == found[at]));
        assert!(is_possible, "{found:02x?} at {place}");
        assert!(epoch == 0 || epoch >= least, "word {place} is of epoch {epoch}, which ended before {least}");
    }
}

fn word(epoch: u64, place: u64) -> [u8; 8] {
    (epoch << 32 | place).to_le_bytes()
}

fn split(word: [u8; 8]) -> [u64; 2] {
    let word = u64::from_le_bytes(word);
    [word & u64::from(u32::MAX), word >> 32]
}

const WORDS: u64 = 600_000;
const APPENDED: u64 = u32::MAX as u64;
const CUTS: usize = 150;
