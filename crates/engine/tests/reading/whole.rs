//! Whole files by their path: what is cached is taken without opening them, and nothing stale ever.

use std::fs;
use std::io;
use std::path::Path;

use headwater::Engine;
use headwater_testkit::{Pattern, ScratchDir};

use crate::rig::{calm, drivers, rigs};

/// Of no page, a part of one, one, several, and more than is kept of a file that is read whole.
const LENGTHS: [u64; 6] = [0, 1, 4096, 4097, 100_000, (1 << 20) + 5];

fn contents(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    Pattern::new(seed).fill(0, &mut bytes);
    bytes
}

/// Until another write would move the file's times.
fn age(path: &Path) {
    let is_young = || {
        let changed = fs::metadata(path).unwrap().modified().unwrap();
        changed.elapsed().is_ok_and(|age| age < std::time::Duration::from_millis(20))
    };
    while is_young() {
        std::thread::yield_now();
    }
}

fn assert_reads(engine: &Engine, path: &Path, expected: &[u8], when: &str) {
    for time in 0..3 {
        let read = engine.read(path).unwrap();
        assert!(read == expected, "{when}, {} bytes, reading {time}", expected.len());
    }
}

/// Goal: the same bytes at the first reading and at later ones, also after the file has changed in each way there is.
#[test]
fn whole_files_are_as_they_are_now() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, other) = (scratch.path().join("file"), scratch.path().join("other"));
    for driver in drivers(71) {
        let engine = Engine::builder().driver(driver).memory(16 << 20).build().unwrap();
        for (seed, length) in (0..).step_by(3).zip(LENGTHS) {
            fs::write(&path, contents(seed, length)).unwrap();
            age(&path);
            assert_reads(&engine, &path, &contents(seed, length), "at first");
            fs::write(&path, contents(seed + 1, length)).unwrap();
            assert_reads(&engine, &path, &contents(seed + 1, length), "written in place");
            fs::write(&other, contents(seed + 2, length)).unwrap();
            fs::rename(&other, &path).unwrap();
            assert_reads(&engine, &path, &contents(seed + 2, length), "another by that name");
            fs::remove_file(&path).unwrap();
            let error = io::Error::from(engine.read(&path).unwrap_err());
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}

/// Goal: what this engine has written and not yet written back is what is read.
#[test]
fn whole_files_hold_what_is_unwritten() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("file");
    for rig in rigs(72) {
        fs::write(&path, contents(1, 10_000)).unwrap();
        age(&path);
        assert_reads(&rig.engine, &path, &contents(1, 10_000), "before");
        let file = headwater::OpenOptions::new().engine(&rig.engine).write().open(&path).unwrap();
        file.write_all_at(&contents(2, 12_000), 0).unwrap();
        assert_reads(&rig.engine, &path, &contents(2, 12_000), "unwritten");
        drop(file);
        assert_reads(&rig.engine, &path, &contents(2, 12_000), "closed");
        rig.engine.flush().unwrap();
        assert_reads(&rig.engine, &path, &contents(2, 12_000), "flushed");
    }
}

/// Goal: the first reading leaves the cache as it is, the third meets the cache alone. Method: its counters.
#[test]
fn whole_files_come_from_the_cache() {
    let scratch = ScratchDir::on_target().unwrap();
    let rig = calm(73);
    for length in [4096, 100_000] {
        let path = scratch.path().join(format!("file{length}"));
        fs::write(&path, contents(1, length)).unwrap();
        age(&path);
        let resident_before = rig.engine.stats().cache.resident_pages;
        assert_eq!(rig.engine.read(&path).unwrap(), contents(1, length));
        assert_eq!(rig.engine.stats().cache.resident_pages, resident_before);
        assert_eq!(rig.engine.read(&path).unwrap().len() as u64, length);
        let before = rig.engine.stats().cache.counts;
        assert_eq!(rig.engine.read(&path).unwrap(), contents(1, length));
        let after = rig.engine.stats().cache.counts;
        assert_eq!((after.hits - before.hits, after.misses - before.misses), (length.div_ceil(4096), 0));
    }
    rig.assert_idle();
}

/// Goal: what is no regular file is read as std reads it, or refused.
#[test]
fn whole_of_other_kinds() {
    let scratch = ScratchDir::on_target().unwrap();
    let rig = calm(74);
    assert_eq!(rig.engine.read("/proc/version").unwrap(), fs::read("/proc/version").unwrap());
    let error = io::Error::from(rig.engine.read(scratch.path()).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    let fifo = scratch.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = io::Error::from(rig.engine.read(&fifo).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::Unsupported, "and it does not wait for the other end");
}
