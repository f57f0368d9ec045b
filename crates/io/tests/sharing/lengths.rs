//! Lengths: a file is made longer while others append, and space is set aside for it.
//!
//! Owns: lengths, holes, links and free space, on every kind of file system.
//! Does not own: the simulated device (`drivers`).

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater_core::units::ByteRange;
use headwater_io::{Access, Allocated, Creation, DirectIo, OpenFile, Route};
use headwater_testkit::{FileSystem, LoopMount, Rng, ScratchDir, run_forked, scratch_dirs, skip, with_seed};
use rustix::io::Errno;

use crate::beside::Shell;

fn create(path: &Path) -> OpenFile {
    OpenFile::create(path, DirectIo::Preferred, Access::ReadWrite, Creation::New).unwrap()
}

/// Goal: a file that is extended again and again loses nothing that others append meanwhile. Method: another process appends lines;
/// between the holes, all of them are there, in order. A length that was looked at before it is set cuts some off.
#[test]
fn extending_cuts_no_appends() {
    const LINES: usize = 20_000;
    for (name, directory) in scratch_dirs() {
        let path = directory.path().join("file");
        let (file, stopping) = (create(&path), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for hole_bytes in (0..100).cycle() {
                    file.extend(file.length_bytes().unwrap() + hole_bytes).unwrap();
                    if stopping.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            run_forked(|| {
                let mut file = File::options().append(true).open(&path).unwrap();
                (0..LINES).for_each(|number| file.write_all(format!("{number}\n").as_bytes()).unwrap());
            });
            stopping.store(true, Ordering::Relaxed);
        });
        let mut bytes = fs::read(&path).unwrap();
        bytes.retain(|byte| *byte != 0);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.lines().eq((0..LINES).map(|number| number.to_string())), "{name}: lines are gone");
    }
}

/// Goal: the file is as long as the longest that it was extended to, with the same bytes and zeroes behind them, and sparse; shorter
/// lengths change nothing. Method: random lengths beside a model.
#[test]
fn extending_never_shortens() {
    with_seed("lengths::extending_never_shortens", |seed| {
        for (name, directory) in scratch_dirs() {
            check_random_lengths(name, &directory.path().join("file"), &mut Rng::new(seed));
            let path = directory.path().join("sparse");
            let file = create(&path);
            file.extend(1 << 30).unwrap();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(metadata.len(), 1 << 30, "{name}");
            assert!(metadata.blocks() * 512 <= 1 << 20, "{name}: {} blocks", metadata.blocks());
            file.extend(1 << 29).unwrap();
            let later = fs::metadata(&path).unwrap();
            let seen = |metadata: &fs::Metadata| (metadata.len(), metadata.blocks(), metadata.ctime_nsec());
            assert_eq!(seen(&later), seen(&metadata), "{name}: it is longer already");
        }
    });
}

fn check_random_lengths(name: &str, path: &Path, rng: &mut Rng) {
    let (file, mut expected) = (create(path), Vec::new());
    for _ in 0..100 {
        let length_bytes = rng.below(200_000);
        match rng.below(4) {
            0 => {
                file.set_len(length_bytes).unwrap();
                expected.resize(length_bytes as usize, 0);
            }
            1 => {
                let bytes = [rng.below(255) as u8 + 1; 3000];
                file.write_blocking(Route::Buffered, &bytes, length_bytes).unwrap();
                let end = length_bytes as usize + bytes.len();
                expected.resize(expected.len().max(end), 0);
                expected[length_bytes as usize..end].copy_from_slice(&bytes);
            }
            2 => {
                let range = ByteRange::at(length_bytes, rng.below(10_000));
                assert_eq!(file.reserve(range).unwrap(), Allocated::Yes, "{name}");
            }
            _ => {
                file.extend(length_bytes).unwrap();
                expected.resize(expected.len().max(length_bytes as usize), 0);
            }
        }
        assert!(fs::read(path).unwrap() == expected, "{name}");
    }
}

/// Goal: where a file system has no `fallocate`, files are made longer all the same, and never shorter; nothing is set aside. Method: an
/// ext4 without extents.
#[test]
fn extending_without_fallocate() {
    let place = match LoopMount::new(FileSystem::Ext4, 64 << 20) {
        Ok(place) => place,
        Err(reason) => return skip(format!("ext4: {reason}")),
    };
    let (image, mount) = (place.path().join("image"), place.path().join("mount"));
    fs::create_dir(&mount).unwrap();
    let mut shell = Shell::new();
    shell.run(&format!("truncate -s 16M {0} && mkfs.ext4 -q -O ^extent,^64bit {0}", image.display()));
    shell.run(&format!("mount -o loop {} {}", image.display(), mount.display()));
    let file = create(&mount.join("file"));
    let results = (file.reserve(ByteRange::new(0, 10)), file.extend(5000), file.extend(100));
    let length_bytes = file.length_bytes();
    drop(file);
    shell.run(&format!("umount {}", mount.display()));
    assert_eq!(results.0.unwrap(), Allocated::Unsupported);
    results.1.unwrap();
    results.2.unwrap();
    assert_eq!(length_bytes.unwrap(), 5000);
}

/// Goal: what is reserved can be written when the file system is full, what is not cannot; free space says so. Method: ext4 and XFS
/// that another file fills.
#[test]
fn reserved_space_is_there_when_the_rest_is_full() {
    for kind in [FileSystem::Ext4, FileSystem::Xfs] {
        let place = match LoopMount::new(kind, 64 << 20) {
            Ok(place) => place,
            Err(reason) => {
                skip(format!("{}: {reason}", kind.name()));
                continue;
            }
        };
        let (file, other) = (create(&place.path().join("file")), create(&place.path().join("other")));
        let free_bytes = file.free_bytes().unwrap();
        assert_eq!(file.reserve(ByteRange::new(0, 8 << 20)).unwrap(), Allocated::Yes, "{kind:?}");
        assert_eq!(file.length_bytes().unwrap(), 0, "{kind:?}");
        let taken_bytes = free_bytes - file.free_bytes().unwrap();
        assert!(taken_bytes >= 8 << 20, "{kind:?}: {taken_bytes} of {free_bytes}");
        let (mut offset_bytes, mut piece_bytes) = (0, 16 << 20);
        while piece_bytes >= 4096 {
            match other.reserve(ByteRange::at(offset_bytes, piece_bytes)) {
                Ok(_) => offset_bytes += piece_bytes,
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{kind:?}");
                    piece_bytes /= 2;
                }
            }
        }
        let bytes = vec![7; 8 << 20];
        assert_eq!(file.write_blocking(Route::Buffered, &bytes, 0).unwrap(), bytes.len(), "{kind:?}");
        file.sync(headwater_io::SyncScope::All).unwrap();
        let beyond = file.write_blocking(Route::Buffered, &bytes, 8 << 20);
        assert!(beyond.as_ref().is_ok_and(|written| *written < bytes.len()) || beyond.is_err(), "{kind:?}");
    }
}

/// Goal: names are counted, down to none.
#[test]
fn links_are_counted() {
    let directory = ScratchDir::on_target().unwrap();
    let (path, link) = (directory.path().join("file"), directory.path().join("link"));
    let file = create(&path);
    assert_eq!(file.links().unwrap(), 1);
    fs::hard_link(&path, &link).unwrap();
    assert_eq!(file.links().unwrap(), 2);
    fs::remove_file(&path).unwrap();
    fs::remove_file(&link).unwrap();
    assert_eq!(file.links().unwrap(), 0);
}
