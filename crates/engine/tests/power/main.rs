//! Power: what a sync has acknowledged is there after the power fails, on real file systems.
//!
//! ```text
//!   writes to one of four files ─► sync ─► mark in the device's log ─► … ─► the device as of each mark, recovered ─► compare
//! ```
//!
//! Where the kernel has a device that logs writes; the `sim` driver says the same of all orders in which writes can be lost (crash).
//!
//! Owns: that nothing acknowledged is missing, not even between two marks.
//! Does not own: the log (testkit).

#![forbid(unsafe_code)]

use std::path::Path;

use headwater::{Caching, DriverKind, Engine, File, OpenOptions};
use headwater_testkit::{FileSystem, LoggedMount, Rng, lack, with_seed};

/// Goal: after a power failure at any moment, each file holds what its last acknowledged sync covers, and its length; of what is written
/// after that, any part. Method: writes, appends and changes of length to one of four files, then its sync; the device as it was at
/// each sync, and at a moment drawn between that and the next.
#[test]
fn what_was_synced_survives() {
    with_seed("what_was_synced_survives", |seed| {
        for (kind, driver) in [
            (FileSystem::Ext4, DriverKind::Uring),
            (FileSystem::Xfs, DriverKind::Threads),
            (FileSystem::Btrfs, DriverKind::Uring),
        ] {
            if let Err(reason) = fail_power(kind, driver, seed) {
                return lack(format!("power failures: {reason}"));
            }
        }
    });
}

fn fail_power(kind: FileSystem, driver: DriverKind, seed: u64) -> Result<(), headwater_testkit::Skip> {
    let mount = LoggedMount::new(kind, SIZE_BYTES)?;
    let mut rng = Rng::new(seed);
    let history = write(&mount, &driver, &mut rng);
    let mut log = mount.finish();
    let marks = log.marks();
    assert_eq!(marks.len(), history.len(), "{}: each sync is marked", kind.name());
    for (step, &mark) in marks.iter().enumerate() {
        check(log.mount_after(mark).path(), &history[step], &history[step], kind, step);
        let Some((next, contents)) = marks.get(step + 1).zip(history.get(step + 1)) else { break };
        let between = mark + rng.below((next - mark) as u64) as usize;
        check(log.mount_after(between).path(), &history[step], contents, kind, step);
    }
    println!("{}, {driver:?}: {} syncs hold", kind.name(), marks.len());
    Ok(())
}

/// What each file holds.
type Contents = [Vec<u8>; FILES];

/// Changes the files step by step; returns what they hold after each, when it is synced and marked.
fn write(mount: &LoggedMount, driver: &DriverKind, rng: &mut Rng) -> Vec<Contents> {
    let engine = Engine::builder().memory(16 << 20).driver(driver.clone()).build().unwrap();
    let open = |number| {
        let mut options = OpenOptions::new();
        options.engine(&engine).caching(Caching::On).write(true).create(true);
        options.open(mount.path().join(name(number))).unwrap()
    };
    let files: [File; FILES] = std::array::from_fn(open);
    // A new name is there once its directory was synced, as with `fsync(2)`.
    std::fs::File::open(mount.path()).unwrap().sync_all().unwrap();
    let (mut contents, mut history) = (Contents::default(), Vec::new());
    for _ in 0..STEPS {
        let number = rng.below(FILES as u64) as usize;
        for _ in 0..1 + rng.below(4) {
            change(&files[number], &mut contents[number], rng);
        }
        if rng.chance(1, 2) {
            files[number].sync_data().unwrap()
        } else {
            files[number].sync_all().unwrap()
        }
        mount.mark();
        history.push(contents.clone());
    }
    history
}

fn change(file: &File, contents: &mut Vec<u8>, rng: &mut Rng) {
    let length_bytes_max = if rng.chance(1, 8) { 1 << 20 } else { 20_000 };
    let mut bytes = vec![0; 1 + rng.below(length_bytes_max) as usize];
    bytes.fill_with(|| rng.below(256) as u8);
    match rng.below(8) {
        0 => {
            let length_bytes = rng.below(contents.len() as u64 + 1);
            file.set_len(length_bytes).unwrap();
            contents.resize(length_bytes as usize, 0);
        }
        1..3 => {
            file.write_all_at(&bytes, contents.len() as u64).unwrap();
            contents.extend(bytes);
        }
        _ => {
            let start = rng.below((contents.len() as u64 + 1).min(LENGTH_BYTES_MAX)) as usize;
            file.write_all_at(&bytes, start as u64).unwrap();
            contents.resize(contents.len().max(start + bytes.len()), 0);
            contents[start..start + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// The files that are the same before and after hold just that. The one that is being changed may hold any part of its changes.
fn check(place: &Path, before: &Contents, after: &Contents, kind: FileSystem, step: usize) {
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let found = std::fs::read(place.join(name(number))).unwrap_or_default();
        if before == after {
            let differs = found.iter().zip(before).position(|(found, expected)| found != expected);
            let (found, expected) = (found.len(), before.len());
            assert!(
                differs.is_none() && found == expected,
                "{}, step {step}: file {number} has {found} bytes of {expected}, wrong from {differs:?} on",
                kind.name()
            );
        }
    }
}

fn name(number: usize) -> String {
    format!("file-{number}")
}

const FILES: usize = 4;
const STEPS: u64 = 10;
const SIZE_BYTES: u64 = 128 << 20;
const LENGTH_BYTES_MAX: u64 = 8 << 20;
