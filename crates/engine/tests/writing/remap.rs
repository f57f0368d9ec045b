//! Remap: holes, reserved space and shared extents, on the device and beside other calls.
//!
//! Owns: what other programs and the device see of them, threads that make them, refusals.
//! Does not own: every mixture with other operations (oracle).

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater::{Caching, DriverKind, File, OpenOptions, Operation};
use headwater_testkit::{FileSystem, Pattern, Rng, ScratchDir, block_on, on_each, skip, with_seed};

use crate::rig::{Rig, drivers, watched};

/// Goal: a hole has no room on the device, is zeros for other programs, and for views made after it; views from before keep what
/// they show, and a window shows the hole. What was written and never synced does not come back.
#[test]
fn holes_have_no_room() {
    for (kind, directory, driver) in on_each(drivers(1)) {
        let (rig, path) = (Rig::new(driver), directory.path().join("holes"));
        let file = create(&rig, &path);
        let bytes = pattern(1 << 20);
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
        let blocks = || std::fs::metadata(&path).unwrap().blocks();
        let (before, full) = (file.view(90_000, 50_000).unwrap(), blocks());
        file.write_all_at(&bytes[5..60_005], 200_000).unwrap();
        watched(rig.name(), || file.punch_hole(100_000..900_000)).unwrap();
        assert!(before == bytes[90_000..140_000], "a view never changes");
        let mut expected = bytes.clone();
        expected[100_000..900_000].fill(0);
        assert!(file.view(0, 1 << 20).unwrap() == expected[..]);
        file.sync_all().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
        if matches!(kind, "ext4" | "xfs") && rig.name() != "sim" {
            assert!(blocks() + (700_000 / 512) < full, "{kind}: {} of {full} blocks", blocks());
        }
        drop((file, before));
        rig.assert_idle();
    }
}

/// Goal: a hole up to the end and beyond it leaves the length, also of a file whose end was never written to the device.
#[test]
fn a_hole_keeps_the_length() {
    for (_, directory, driver) in on_each(drivers(2)) {
        let (rig, path) = (Rig::new(driver), directory.path().join("tail"));
        let file = create(&rig, &path);
        file.append(&pattern(50_001)).unwrap();
        file.punch_hole(10_000..).unwrap();
        file.punch_hole(60_000..70_000).unwrap();
        file.punch_hole(5..5).unwrap();
        assert_eq!(file.len().unwrap(), 50_001);
        file.sync_data().unwrap();
        let mut expected = pattern(50_001);
        expected[10_000..].fill(0);
        assert!(std::fs::read(&path).unwrap() == expected);
        assert_eq!(file.append(b"on").unwrap(), 50_001);
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: threads that write, punch and copy in parts of one file that share pages see what they did themselves, whatever the others
/// do and while the file grows and shrinks behind them all. Method: parts of unaligned length, and a thread that appends and truncates.
#[test]
fn parts_of_a_file_in_threads() {
    with_seed("remap::parts_of_a_file_in_threads", |seed| {
        for (kind, directory, driver) in on_each(drivers(seed)) {
            let (rig, path) = (Rig::new(driver), directory.path().join("parts"));
            let file = create(&rig, &path);
            file.write_all_at(&vec![0; PART_BYTES * 3], 0).unwrap();
            watched(&format!("{} on {kind}", rig.name()), || {
                thread::scope(|scope| {
                    for part in 0..3 {
                        let file = &file;
                        scope.spawn(move || alone_in(file, part, seed));
                    }
                    scope.spawn(|| {
                        for _ in 0..ROUNDS {
                            file.append(&[7; 9000]).unwrap();
                            file.set_len(PART_BYTES as u64 * 3).unwrap();
                        }
                    });
                });
                file.sync_data().unwrap();
            });
            let on_device = std::fs::read(&path).unwrap();
            assert!(file.view(0, PART_BYTES * 3).unwrap() == on_device[..], "{} on {kind}", rig.name());
            drop(file);
            rig.assert_idle();
        }
    });
}

fn alone_in(file: &File, part: u64, seed: u64) {
    let (mut rng, start, mut model) = (Rng::new(seed ^ part), part * PART_BYTES as u64, vec![0; PART_BYTES]);
    for round in 0..ROUNDS {
        let at = rng.below(PART_BYTES as u64) as usize;
        let length = (1 + rng.below(60_000) as usize).min(PART_BYTES - at);
        let range = start + at as u64..start + (at + length) as u64;
        match rng.below(4) {
            0 => {
                block_on(file.punch_hole_async(range)).unwrap();
                model[at..at + length].fill(0);
            }
            1 => {
                let to = rng.below((PART_BYTES - length) as u64 + 1) as usize;
                let to_bytes = start + to as u64;
                let copied = match rng.below(2) {
                    0 => file.copy_range_to(range, file, to_bytes),
                    _ => block_on(file.copy_range_to_async(range, file, to_bytes)),
                };
                match copied {
                    Ok(copied_bytes) => {
                        assert_eq!(copied_bytes, length as u64);
                        model.copy_within(at..at + length, to);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}"),
                }
            }
            _ => {
                let bytes = vec![(round % 255) as u8 + 1; length];
                file.write_all_at(&bytes, range.start).unwrap();
                model[at..at + length].copy_from_slice(&bytes);
            }
        }
        let view = file.view(start, PART_BYTES).unwrap();
        assert!(view == model[..], "part {part} after round {round}");
    }
}

/// Goal: where extents can be shared, a copy takes no room, and has its own bytes once one of the two is written to.
#[test]
fn copies_share_extents() {
    for (kind, directory) in sharing_file_systems() {
        for driver in drivers(3).into_iter().filter(|driver| !matches!(driver, DriverKind::Sim(_))) {
            let rig = Rig::new(driver);
            let (path, copy) = (directory.path().join("from"), directory.path().join("to"));
            let (file, other, bytes) = (create(&rig, &path), create(&rig, &copy), pattern((8 << 20) + 77));
            file.write_all_at(&bytes, 0).unwrap();
            other.write_all_at(b"before", 0).unwrap();
            file.sync_all().unwrap();
            let free = || {
                let space = rustix::fs::statvfs(directory.path()).unwrap();
                space.f_bfree * space.f_frsize
            };
            for is_async in [false, true] {
                let free_before = free();
                let copied = match is_async {
                    true => block_on(file.copy_range_to_async(..8 << 20, &other, 0)),
                    false => file.copy_range_to(..8 << 20, &other, 0),
                };
                assert_eq!(copied.unwrap(), 8 << 20);
                other.sync_all().unwrap();
                let taken = free_before.saturating_sub(free());
                assert!(taken < 4 << 20, "{kind:?}: {taken} bytes for a copy");
            }
            let copied_bytes = block_on(file.copy_range_to_async(4096.., &other, 4096)).unwrap();
            assert_eq!(copied_bytes, bytes.len() as u64 - 4096);
            other.sync_all().unwrap();
            file.write_all_at(b"changed", 4096).unwrap();
            file.sync_all().unwrap();
            assert!(other.view(0, bytes.len()).unwrap() == bytes[..]);
            assert!(std::fs::read(&copy).unwrap() == bytes);
            drop((file, other));
            rig.assert_idle();
        }
    }
}

/// Goal: a copy that shares extents has what was last written to its source, of which the device has the bytes from before. Method: a
/// part that is written again and not synced, whole pages, copied by a thread and by a task.
#[test]
fn shared_extents_have_what_was_just_written() {
    for (kind, directory) in sharing_file_systems() {
        for driver in drivers(8).into_iter().filter(|driver| !matches!(driver, DriverKind::Sim(_))) {
            let rig = Rig::new(driver);
            let (path, copy) = (directory.path().join("from"), directory.path().join("to"));
            let (file, other, mut bytes) = (create(&rig, &path), create(&rig, &copy), pattern(1 << 20));
            for is_async in [false, true] {
                file.write_all_at(&bytes, 0).unwrap();
                file.sync_all().unwrap();
                bytes[100_000..300_000].fill(1 + u8::from(is_async));
                file.write_all_at(&bytes[100_000..300_000], 100_000).unwrap();
                let copied = match is_async {
                    true => block_on(file.copy_range_to_async(.., &other, 0)),
                    false => file.copy_range_to(.., &other, 0),
                };
                assert_eq!(copied.unwrap(), 1 << 20);
                assert!(other.view(0, 1 << 20).unwrap() == bytes[..], "{} on {kind:?}", rig.name());
                other.sync_all().unwrap();
                assert!(std::fs::read(&copy).unwrap() == bytes, "{} on {kind:?}", rig.name());
            }
            drop((file, other));
            rig.assert_idle();
        }
    }
}

/// Goal: what copies that share extents make a file longer by is never zeros for a reader that finds the new length, neither at once nor
/// later. Method: a thread that views the end of the file again and again.
#[test]
fn a_follower_of_copies_sees_no_zeros() {
    const STEP_BYTES: u64 = 16 << 10;
    const STEPS: u64 = 200;
    for (kind, directory) in sharing_file_systems() {
        for driver in drivers(5).into_iter().filter(|driver| !matches!(driver, DriverKind::Sim(_))) {
            let rig = Rig::new(driver);
            let (from, to) = (directory.path().join("from"), directory.path().join("to"));
            let (file, other) = (create(&rig, &from), create(&rig, &to));
            // Copies end within a page in every second round.
            for more_bytes in [0, 1] {
                let step_bytes = STEP_BYTES + more_bytes;
                let bytes = pattern((STEPS * step_bytes) as usize);
                file.write_all_at(&bytes, 0).unwrap();
                other.set_len(0).unwrap();
                let is_done = AtomicBool::new(false);
                watched("a follower of copies", || {
                    thread::scope(|scope| {
                        let following = scope.spawn(|| {
                            while !is_done.load(Ordering::Acquire) {
                                let end = other.len().unwrap();
                                let start = end.saturating_sub(2 * step_bytes);
                                let view = other.view(start, (end - start) as usize).unwrap();
                                assert!(
                                    view == bytes[start as usize..][..view.len()],
                                    "{} on {kind:?}: other bytes in {start}..{end}",
                                    rig.name()
                                );
                            }
                        });
                        for start in (0..STEPS).map(|step| step * step_bytes) {
                            if following.is_finished() {
                                break;
                            }
                            let copied = file.copy_range_to(start..start + step_bytes, &other, start);
                            assert_eq!(copied.unwrap(), step_bytes);
                        }
                        is_done.store(true, Ordering::Release);
                    });
                });
                assert!(other.view(0, bytes.len()).unwrap() == bytes[..]);
            }
            drop((file, other));
            rig.assert_idle();
        }
    }
}

/// Goal: what a window stored beyond the end stays hidden when the file becomes longer, also by a copy that shares extents, which no byte
/// goes through. Method: stores into a window of which the file has nothing, then each way to make the file longer behind it.
#[test]
fn stores_beyond_the_end_stay_hidden() {
    type Lengthen = fn(&File, &File);
    let ways: [(&str, Lengthen); 4] = [
        ("a write", |_, target| target.write_all_at(&pattern(8192), END_BYTES - 8192).unwrap()),
        ("a new length", |_, target| target.set_len(END_BYTES).unwrap()),
        ("a copy", |file, target| _ = file.copy_range_to(..8192, target, END_BYTES - 8192).unwrap()),
        ("a copy by a task", |file, target| {
            _ = block_on(file.copy_range_to_async(..8192, target, END_BYTES - 8192)).unwrap();
        }),
    ];
    for (kind, directory) in sharing_file_systems() {
        for driver in drivers(9) {
            let rig = Rig::sized(driver, 32 << 20, 16);
            let file = create(&rig, &directory.path().join("from"));
            file.write_all_at(&pattern(8192), 0).unwrap();
            for (way, lengthen) in ways {
                let path = directory.path().join("to");
                let target = create(&rig, &path);
                target.write_all_at(b"some", 0).unwrap();
                let view = match target.map_contiguous(4096..9000) {
                    Err(error) if error.kind() == ErrorKind::Unsupported => return skip(error.to_string()),
                    view => view.unwrap(),
                };
                view.as_cells().unwrap()[77].store(0xAB, Ordering::Relaxed);
                lengthen(&file, &target);
                let hidden = |bytes: &[u8]| bytes.len() as u64 == END_BYTES && bytes[4096 + 77] == 0;
                assert!(hidden(&target.view(0, END_BYTES as usize).unwrap().to_vec()), "{way} on {kind:?}");
                drop(view);
                target.sync_all().unwrap();
                assert!(hidden(&std::fs::read(&path).unwrap()), "{way} on {kind:?}, on disk");
            }
            drop(file);
            rig.assert_idle();
        }
    }
}

/// Goal: what was reserved is there, and the length is as before.
#[test]
fn reserved_space_is_there() {
    for (kind, directory, driver) in on_each(drivers(4)) {
        let (rig, path) = (Rig::new(driver), directory.path().join("reserved"));
        let file = create(&rig, &path);
        file.append(b"some").unwrap();
        match file.allocate(..3 << 20) {
            Ok(()) => {
                let blocks = std::fs::metadata(&path).unwrap().blocks();
                assert!(blocks >= (3 << 20) / 512 || kind == "btrfs", "{kind}: {blocks} blocks");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{kind}: {error}"),
        }
        assert_eq!(file.len().unwrap(), 4);
        assert!(file.allocate(..=u64::MAX).is_err());
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: files that are not open for writing, files in memory and ranges that overlap their copy are refused, with operation and path.
#[test]
fn refusals() {
    let (rig, directory) = (Rig::sim(1), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(9000)).unwrap();
    let reading = OpenOptions::new().engine(&rig.engine).open(&path).unwrap();
    let memory = File::from_bytes("abc");
    for (operation, result) in [
        (Operation::Allocate, reading.allocate(..10)),
        (Operation::PunchHole, reading.punch_hole(..10)),
        (Operation::PunchHole, block_on(reading.punch_hole_async(..10))),
        (Operation::PunchHole, memory.punch_hole(..10)),
        (Operation::Write, memory.copy_range_to(.., &reading, 0).map(drop)),
        (Operation::Write, block_on(memory.copy_range_to_async(.., &reading, 0)).map(drop)),
    ] {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::PermissionDenied, operation), "{error}");
        assert!(error.path().is_some());
    }
    let file = create(&rig, &path.with_extension("other"));
    assert_eq!(memory.copy_range_to(1.., &file, 10).unwrap(), 2);
    assert_eq!(reading.copy_range_to(8990..20_000, &file, 4).unwrap(), 10);
    assert!(file.view(4, 10).unwrap() == pattern(9000)[8990..]);
    let error = file.copy_range_to(4..14, &file, 5).unwrap_err();
    assert_eq!((error.kind(), error.offset_bytes()), (ErrorKind::InvalidInput, Some(5)), "{error}");
    let error = block_on(file.copy_range_to_async(4..14, &file, 5)).unwrap_err();
    assert_eq!((error.kind(), error.offset_bytes()), (ErrorKind::InvalidInput, Some(5)), "{error}");
    assert_eq!(file.copy_range_to(14.., &file, 5).unwrap(), 0);
    assert_eq!(reading.copy_range_to(8.., &file, u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop((reading, file));
    rig.assert_idle();
}

/// Those on which files can share extents.
pub(crate) fn sharing_file_systems() -> impl Iterator<Item = (FileSystem, ScratchDir)> {
    [FileSystem::Btrfs, FileSystem::Xfs].into_iter().filter_map(|kind| {
        let made = ScratchDir::on_loop(kind).map_err(|reason| skip(format!("{kind:?}: {reason}")));
        Some((kind, made.ok()?))
    })
}

fn create(rig: &Rig, path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).write(true).create(true).truncate(true);
    options.open(path).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(1).fill(0, &mut bytes);
    bytes
}

const PART_BYTES: usize = 150_001;

const END_BYTES: u64 = 128 << 10;

const ROUNDS: u64 = 60;
