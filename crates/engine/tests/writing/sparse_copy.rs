//! Sparse copy: what a copy makes of the holes of its source, of bytes that only this engine has, and of a target that has others.
//!
//! Owns: room on the device, contents and lengths after copies of files with holes.
//! Does not own: shared extents (remap), every mixture with other operations (oracle).

use std::fs;
use std::io::ErrorKind;
use std::ops::Bound;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater::{Caching, File, OpenOptions, Result};
use headwater_testkit::{Pattern, Rng, ScratchDir, on_each, with_seed};

use crate::model::same;
use crate::rig::{Rig, block_on, drivers, watched};

/// Goal: a copy of a file with holes, to a new file, has its contents and takes no more room than its data do, in step with the source's
/// pages or not, and with a hole at its end. Method: islands in 16 MiB; a file system on which the source takes all of its room is passed over.
#[test]
fn holes_stay_holes() {
    for (kind, directory, driver) in on_each(drivers(1)) {
        let (rig, path) = (Rig::new(driver), directory.path().join("sparse"));
        let expected = islands(&path, &[(0, 70_000), (5_000_001, 9_000), (9 << 20, 4096)]);
        let room = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
        if room(&path) > expected.len() as u64 / 2 {
            continue;
        }
        let file = OpenOptions::new().engine(&rig.engine).open(&path).unwrap();
        for (at_bytes, way) in [0, 4096, 1000].into_iter().flat_map(|at| WAYS.map(|way| (at, way))) {
            let other = directory.path().join("copy");
            let copy = create(&rig, &other);
            assert_eq!(way(&file, ALL, &copy, at_bytes).unwrap(), expected.len() as u64);
            copy.sync_all().unwrap();
            let found = fs::read(&other).unwrap();
            let (zeros, rest) = found.split_at(at_bytes as usize);
            assert!(zeros.iter().all(|&byte| byte == 0));
            same("copied", at_bytes, &expected, rest).unwrap();
            let taken = room(&other);
            assert!(
                taken <= room(&path) + (256 << 10),
                "{taken} bytes at {at_bytes}: {kind}, {}",
                rig.name()
            );
        }
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: where the target had data, synced or not, it has zeros after a copy of a hole; what lies beside the copy stays, and a target that
/// is longer keeps its length. What reads, views and other programs see is the same.
#[test]
fn a_target_with_data_reads_as_zeros() {
    for (_, directory, driver) in on_each(drivers(2)) {
        let (rig, path) = (Rig::new(driver), directory.path().join("sparse"));
        let expected = islands(&path, &[(1 << 20, 10_000)]);
        let file = OpenOptions::new().engine(&rig.engine).open(&path).unwrap();
        let [blocking, task] = WAYS;
        for (is_synced, at_bytes, way) in
            [(false, 0, blocking), (true, 0, task), (false, 777, task), (true, 777, blocking)]
        {
            let other = directory.path().join("copy");
            let copy = create(&rig, &other);
            let mut model = vec![7; 6_000_000];
            copy.write_all_at(&model, 0).unwrap();
            if is_synced {
                copy.sync_data().unwrap();
            }
            assert_eq!(way(&file, from_to(500_000, 5_500_000), &copy, at_bytes).unwrap(), 5_000_000);
            let at = at_bytes as usize;
            model[at..at + 5_000_000].copy_from_slice(&expected[500_000..5_500_000]);
            let mut found = vec![0; model.len()];
            copy.read_exact_at(&mut found, 0).unwrap();
            same("read", 0, &model, &found).unwrap();
            assert!(copy.view(0, model.len()).unwrap() == model[..]);
            copy.flush().unwrap();
            same("on disk", 0, &model, &fs::read(&other).unwrap()).unwrap();
        }
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: bytes that were written into holes before the copy are copied, whether they are on the device yet, on their way there, or in
/// a window alone. Method: pages at random places, and a thread that writes back all the time.
#[test]
fn bytes_in_holes_are_copied_wherever_they_are() {
    with_seed("sparse_copy::bytes_in_holes_are_copied_wherever_they_are", |seed| {
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::sized(driver, 16 << 20, 16), ScratchDir::on_target().unwrap());
            let [path, other] = ["sparse", "copy"].map(|name| directory.path().join(name));
            let file = create(&rig, &path);
            let (done, mut rng) = (AtomicBool::new(false), Rng::new(seed));
            watched(rig.name(), || {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            file.flush().unwrap();
                        }
                    });
                    for round in 0..60 {
                        file.set_len(0).unwrap();
                        file.set_len(LENGTH_BYTES as u64).unwrap();
                        let mut model = vec![0; LENGTH_BYTES];
                        for _ in 0..12 {
                            let at = rng.below(LENGTH_BYTES as u64 - 5000) as usize;
                            let length = 1 + rng.below(5000) as usize;
                            model[at..at + length].fill(round + 1);
                            file.write_all_at(&model[at..at + length], at as u64).unwrap();
                        }
                        let copy = create(&rig, &other);
                        let copied = WAYS[round as usize % 2](&file, ALL, &copy, u64::from(round) % 3);
                        assert_eq!(copied.unwrap(), LENGTH_BYTES as u64);
                        let mut found = vec![0; LENGTH_BYTES];
                        copy.read_exact_at(&mut found, u64::from(round) % 3).unwrap();
                        same("copied", 0, &model, &found).unwrap_or_else(|error| {
                            done.store(true, Ordering::Relaxed);
                            panic!("{error}, round {round}")
                        });
                    }
                    done.store(true, Ordering::Relaxed);
                });
            });
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Goal: stores to a contiguous window over a hole are copied before they are written back.
#[test]
fn a_window_over_a_hole_is_data() {
    for driver in drivers(3) {
        let (rig, directory) = (Rig::sized(driver, 16 << 20, 16), ScratchDir::on_target().unwrap());
        let [path, other] = ["sparse", "copy"].map(|name| directory.path().join(name));
        let (file, copy) = (create(&rig, &path), create(&rig, &other));
        file.set_len(1 << 20).unwrap();
        let window = match file.map_contiguous(65_536..131_072) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return headwater_testkit::skip(error),
            window => window.unwrap(),
        };
        window.atomic_u64(8192).unwrap().store(u64::MAX, Ordering::Release);
        // Out of step, so that nothing is written back for shared extents.
        assert_eq!(file.copy_range_to(.., &copy, 1).unwrap(), 1 << 20);
        let mut word = [0; 8];
        copy.read_exact_at(&mut word, 65_537 + 8192).unwrap();
        assert_eq!(word, [255; 8]);
        drop((window, file, copy));
        rig.assert_idle();
    }
}

/// Goal: a copy of nothing but a hole makes the target as long as it has to be, and no longer than it was; a target that is open for
/// appending is refused, and stays as it was.
#[test]
fn a_hole_by_itself() {
    for driver in drivers(4) {
        let (rig, directory) = (Rig::new(driver), ScratchDir::on_target().unwrap());
        let [path, other] = ["sparse", "copy"].map(|name| directory.path().join(name));
        let file = create(&rig, &path);
        file.set_len(1 << 20).unwrap();
        for way in WAYS {
            let copy = create(&rig, &other);
            copy.write_all_at(b"abc", 0).unwrap();
            assert_eq!(way(&file, from_to(10, 100_010), &copy, 2).unwrap(), 100_000);
            assert_eq!(copy.len().unwrap(), 100_002);
            assert_eq!(way(&file, from_to(10, 50_010), &copy, 2).unwrap(), 50_000);
            assert_eq!((copy.len().unwrap(), copy.append(b"d").unwrap()), (100_002, 100_002));
            assert_eq!(copy.view(0, 4).unwrap(), b"ab\0\0");
            copy.flush().unwrap();
            assert_eq!(fs::metadata(&other).unwrap().len(), 100_003);
            // The source ends within the range.
            assert_eq!(way(&file, from_to(1_000_000, 9_000_000), &copy, 200_000).unwrap(), 48_576);
            assert_eq!(copy.len().unwrap(), 248_576);
            let log = OpenOptions::new().engine(&rig.engine).append(true).open(&other).unwrap();
            assert_eq!(way(&file, ALL, &log, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!((log.len().unwrap(), log.view(0, 2).unwrap() == b"ab"[..]), (248_576, true));
        }
        drop(file);
        rig.assert_idle();
    }
}

/// A file of 16 MiB with data at these places alone. Returns its contents.
fn islands(path: &Path, places: &[(usize, usize)]) -> Vec<u8> {
    let (file, mut expected) = (fs::File::create(path).unwrap(), vec![0; 16 << 20]);
    file.set_len(expected.len() as u64).unwrap();
    for &(at, length) in places {
        Pattern::new(at as u64).fill(0, &mut expected[at..at + length]);
        file.write_all_at(&expected[at..at + length], at as u64).unwrap();
    }
    file.sync_all().unwrap();
    expected
}

fn create(rig: &Rig, path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).write(true).create(true).truncate(true);
    options.open(path).unwrap()
}

type Range = (Bound<u64>, Bound<u64>);

type Way = fn(&File, Range, &File, u64) -> Result<u64>;

/// Blocking, and as a task.
const WAYS: [Way; 2] = [
    |file, range, copy, at_bytes| file.copy_range_to(range, copy, at_bytes),
    |file, range, copy, at_bytes| block_on(file.copy_range_to_async(range, copy, at_bytes)),
];

const ALL: Range = (Bound::Unbounded, Bound::Unbounded);

fn from_to(start: u64, end: u64) -> Range {
    (Bound::Included(start), Bound::Excluded(end))
}

const LENGTH_BYTES: usize = 2 << 20;
