//! Small: files that are written by a few calls, which go into the kernel's page cache; and parts of pages.
//!
//! Owns: which handles see such bytes, when an inode stands for the file, what the device has to read.
//! Does not own: these writes among all others (oracle), their errors (failures).

use std::fs;
use std::sync::Barrier;
use std::thread;

use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::{ByteRange, DriverKind, Engine, IoMode, OpenOptions};
use headwater_testkit::{ScratchDir, block_on, lack, make_cold, run_self_with_env, watched};

use crate::rig::{Rig, drivers, rigs, uring_refusal};

/// Goal: the first writes to a small file are in the file when they return, and take nothing of the engine; what follows, and other
/// handles, see them. Method: a file by the standard library, and by handles of all kinds.
#[test]
fn first_writes_are_in_the_file() {
    for rig in rigs(1) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).write(true).create(true).truncate(true);
        let file = options.open(&path).unwrap();
        file.write_all_at(b"contents", 0).unwrap();
        file.write_all_at(b" and more", 8).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"contents and more");
        assert_eq!(rig.engine.stats().cache.resident_pages, 0, "on {}", rig.name());
        file.sync_all().unwrap();
        // Not behind the others: by the cache.
        file.write_all_at(b"C", 0).unwrap();
        let other = rig.open(&path, IoMode::Auto);
        let mut bytes = [0; 17];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"Contents and more");
        assert_eq!(block_on(file.read_exact_at_async(9, 8)).unwrap(), b"and more"[..]);
        file.write_all_at(b"M", 13).unwrap();
        drop(file);
        // Made empty by its opening, and short.
        let again = options.open(&path).unwrap();
        assert_eq!((again.len().unwrap(), other.len().unwrap()), (0, 0));
        again.write_all_at(b"short", 0).unwrap();
        assert_eq!(other.read_at(&mut bytes, 0).unwrap(), 5, "on {}", rig.name());
        assert_eq!(&bytes[..5], b"short");
        again.sync_data().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        drop((again, other));
        rig.assert_idle();
    }
}

/// Goal: what the kernel's page cache has of a file is written over there, and nothing is held twice; what it lacks is written to the
/// cache. Method: a file of some mebibytes in large pieces, to its end and beyond, warm and cold.
#[test]
fn pages_that_the_kernel_has_are_written_there() {
    for rig in rigs(3).into_iter().filter(|rig| rig.control.is_none()) {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![1; LONG_BYTES]).unwrap();
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).write(true);
        let write = |byte: u8, bytes: usize| {
            let file = options.open(&path).unwrap();
            let piece = vec![byte; PIECE_BYTES];
            for at in (0..bytes).step_by(PIECE_BYTES) {
                file.write_all_at(&piece[..PIECE_BYTES.min(bytes - at)], at as u64).unwrap();
            }
            let kept_pages = rig.engine.stats().cache.resident_pages;
            // The standard library sees it, without a sync, if the kernel has it.
            let seen = fs::read(&path).unwrap();
            file.sync_all().unwrap();
            drop(file);
            assert_eq!(fs::read(&path).unwrap(), vec![byte; bytes.max(LONG_BYTES)], "on {}", rig.name());
            (kept_pages, seen == vec![byte; LONG_BYTES])
        };
        let warm = write(2, LONG_BYTES);
        let longer = write(3, LONG_BYTES + PIECE_BYTES);
        fs::File::options().write(true).open(&path).unwrap().set_len(LONG_BYTES as u64).unwrap();
        make_cold(&fs::File::open(&path).unwrap()).unwrap();
        let cold = write(4, LONG_BYTES);
        rig.assert_idle();
        if OpenFile::open(&path, DirectIo::Off, Access::Read)
            .unwrap()
            .resident_pages(ByteRange::new(0, 1))
            .is_none()
        {
            return lack("the kernel has no cachestat (before Linux 6.5)");
        }
        assert_eq!(warm, (0, true), "on {}", rig.name());
        assert!(longer.0 as usize >= PIECE_BYTES / 4096 && !longer.1, "the part beyond the end: {longer:?}");
        assert!(cold.0 as usize >= LONG_BYTES / 4096, "{cold:?}");
    }
}

/// Goal: I8: a write that has returned is seen by every read that begins later, also through handles that enter the file meanwhile.
/// Method: a handle writes a new file in pieces while another opens and reads it; each looks at what the other has done.
#[test]
fn readers_that_come_meanwhile_see_each_write() {
    for rig in rigs(2) {
        let directory = ScratchDir::on_target().unwrap();
        watched(rig.name(), || {
            for round in 0..FILES {
                meet(&rig, &directory.path().join(round.to_string()));
            }
        });
        rig.assert_idle();
    }
}

fn meet(rig: &Rig, path: &std::path::Path) {
    let (start, engine) = (Barrier::new(2), &rig.engine);
    let options = |write: bool| {
        let mut options = OpenOptions::new();
        options.engine(engine).read(true).write(write);
        options
    };
    fs::write(path, [0; PIECES]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = options(true).open(path).unwrap();
            start.wait();
            for at in 0..PIECES as u64 {
                file.write_all_at(&[1], at).unwrap();
                let mut byte = [0];
                let seen = options(false).open(path).unwrap();
                seen.read_exact_at(&mut byte, at).unwrap();
                assert_eq!(byte, [1], "byte {at} was written");
            }
        });
        scope.spawn(|| {
            start.wait();
            let (file, mut before) = (options(false).open(path).unwrap(), 0);
            while before < PIECES {
                let mut bytes = [0; PIECES];
                file.read_exact_at(&mut bytes, 0).unwrap();
                let now = bytes.iter().take_while(|&&byte| byte == 1).count();
                assert!(now >= before, "{before} pieces were seen, and then {now}");
                before = now;
            }
        });
    });
}

/// Goal: a write to a part of a page that no cache holds reads that page once, though the kernel writes the part. Method: the bytes
/// that a process of its own has the device read.
#[test]
fn a_part_of_a_page_is_read_once() {
    const CHILD: &str = "HEADWATER_PART_CHILD";
    if let Ok(driver) = std::env::var(CHILD) {
        let driver = if driver == "uring" { DriverKind::Uring } else { DriverKind::Threads };
        return write_parts(driver);
    }
    for driver in drivers(0).into_iter().filter(|driver| !matches!(driver, DriverKind::Sim(_))) {
        let name = if matches!(driver, DriverKind::Threads) { "threads" } else { "uring" };
        assert!(name == "threads" || uring_refusal().is_none());
        let output = run_self_with_env("small::a_part_of_a_page_is_read_once", CHILD, name);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

fn write_parts(driver: DriverKind) {
    let Some(before) = device_read_bytes() else {
        return lack("the kernel does not count what processes read");
    };
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![1; 4 << 20]).unwrap();
    make_cold(&fs::File::open(&path).unwrap()).unwrap();
    let engine = Engine::builder().memory(16 << 20).driver(driver).build().unwrap();
    let file = OpenOptions::new().engine(&engine).write(true).open(&path).unwrap();
    // Where the file lies is known after its first page.
    file.write_all_at(&[2; 100], 5000).unwrap();
    file.sync_data().unwrap();
    assert!(device_read_bytes() > Some(before), "nothing is counted here");
    let before = device_read_bytes().unwrap();
    // Apart, so that nothing is read ahead.
    let pages: [u64; 8] = [700, 100, 500, 200, 900, 300, 800, 400];
    for page in pages {
        file.write_all_at(&[3; 100], page * 4096 + 1000).unwrap();
        file.sync_data().unwrap();
    }
    let read_bytes = device_read_bytes().unwrap() - before;
    assert_eq!(read_bytes, pages.len() as u64 * 4096);
    // That is counted: the kernel cannot write a part of a page that it does not have.
    let direct = OpenOptions::new().engine(&engine).io(IoMode::Direct).write(true).open(&path).unwrap();
    direct.write_all_at(&[3; 100], 600 * 4096).unwrap();
    direct.sync_data().unwrap();
    assert!(device_read_bytes().unwrap() - before - read_bytes >= 2 * 4096);
    let disk = fs::read(&path).unwrap();
    for page in pages {
        let start = page as usize * 4096 + 1000;
        assert!(disk[start..start + 100] == [3; 100] && disk[start - 1] == 1 && disk[start + 100] == 1);
    }
}

/// What the devices have read for this process.
fn device_read_bytes() -> Option<u64> {
    let counts = fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

const FILES: usize = 40;

/// A file that is not small, and no multiple of the pieces it is written in.
const LONG_BYTES: usize = 3_000_000;

const PIECE_BYTES: usize = 128 << 10;

/// More writes than go around the cache.
const PIECES: usize = 40;
