//! Read once: small files that are opened, read by one call, and closed.
//!
//! Owns: that the first such read leaves nothing in the cache, and is right beside other handles and programs.
//! Does not own: `Engine::read` (`whole`).

use std::fs;
use std::os::unix::fs::FileExt;

use headwater::{File, IoMode, OpenOptions};
use headwater_testkit::{block_on, make_cold_from, with_seed};

use crate::rig::{Rig, Scratch, rigs};

/// The caller that reads.
#[derive(Clone, Copy, Debug)]
enum Way {
    Thread,
    Task,
}

impl Way {
    /// A read from the beginning of the file.
    fn read(self, file: &File, length: usize) -> Vec<u8> {
        match self {
            Way::Thread => {
                let mut buffer = vec![0; length];
                let read_bytes = file.read_at(&mut buffer, 0).unwrap();
                buffer.truncate(read_bytes);
                buffer
            }
            Way::Task => block_on(file.read_at_async(0, length)).unwrap().to_vec(),
        }
    }
}

/// Goal: the first read of all of a file, and those that follow, give its bytes and its end. Method: lengths around pages, cold and warm, buffers that are longer, on every driver.
#[test]
fn every_read_gives_the_file() {
    with_seed("read_once::every_read_gives_the_file", |seed| {
        for (length, beyond) in [(1, 0), (4095, 7), (4096, 0), (4097, 4096), (100_000, 65_536), (1 << 20, 1)]
        {
            for rig in rigs(seed) {
                let scratch = Scratch::new(seed, length);
                for is_cold in [true, false] {
                    if is_cold {
                        scratch.make_cold();
                    } else {
                        fs::read(scratch.path()).unwrap();
                    }
                    for way in [Way::Thread, Way::Task] {
                        let file = rig.open(&scratch.path(), IoMode::Auto);
                        for _ in 0..3 {
                            let bytes = way.read(&file, length as usize + beyond);
                            assert_eq!(bytes.len() as u64, length, "{}", rig.name());
                            scratch.check(0, &bytes);
                        }
                        assert_eq!(file.read_at(&mut [0; 8], length).unwrap(), 0);
                    }
                }
                rig.assert_idle();
            }
        }
    });
}

/// Goal: a file that no other handle has used leaves no page behind when it is read as a whole, once.
#[test]
fn a_file_read_once_is_not_cached() {
    with_seed("read_once::a_file_read_once_is_not_cached", |seed| {
        for way in [Way::Thread, Way::Task] {
            for rig in rigs(seed) {
                let scratch = Scratch::new(seed, 30_000);
                scratch.make_cold();
                let file = rig.open(&scratch.path(), IoMode::Auto);
                let pages = || rig.engine.stats().cache.resident_pages;
                if !file.is_direct() {
                    continue;
                }
                assert_eq!(way.read(&file, 65_536).len(), 30_000);
                drop(file);
                assert_eq!(pages(), 0, "{way:?}, {}", rig.name());
                let file = rig.open(&scratch.path(), IoMode::Auto);
                assert_eq!(way.read(&file, 65_536).len(), 30_000);
                assert_eq!(pages(), 8, "{way:?}, {}", rig.name());
            }
        }
    });
}

/// Goal: what other programs append after the opening is read, and the end is where it is then. Method: within the last page and beyond
/// it; cold, and with all but what was appended in the page cache, after enough warm files that the next is expected to be warm.
#[test]
fn a_file_that_grew_is_read_to_its_end() {
    with_seed("read_once::a_file_that_grew_is_read_to_its_end", |seed| {
        for way in [Way::Thread, Way::Task] {
            for rig in rigs(seed) {
                // Kept: a new file may have the number of one that is gone, and was read then.
                let mut kept = Vec::new();
                for is_cold in [true, false] {
                    for (length, more_bytes) in [(10_000, 1), (10_000, 5_000), (8192, 5), (8192, 12_000)] {
                        let scratch = Scratch::new(seed, length);
                        if !is_cold {
                            kept.extend(warm_up(&rig, way, seed));
                        }
                        let file = rig.open(&scratch.path(), IoMode::Auto);
                        let mut expected = fs::read(scratch.path()).unwrap();
                        expected.resize(expected.len() + more_bytes, 7);
                        let stranger = fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
                        stranger.write_all_at(&expected[length as usize..], length).unwrap();
                        make_cold_from(&stranger, if is_cold { 0 } else { 8192 }).unwrap();
                        let bytes = way.read(&file, 65_536);
                        assert!(bytes == expected, "{way:?}, {}: {} bytes", rig.name(), bytes.len());
                        kept.push(scratch);
                    }
                }
            }
        }
    });
}

/// Reads warm files, each for the first time.
fn warm_up(rig: &Rig, way: Way, seed: u64) -> Vec<Scratch> {
    let scratches: Vec<Scratch> = (0..20).map(|_| Scratch::new(seed, 5_000)).collect();
    for scratch in &scratches {
        fs::read(scratch.path()).unwrap();
        way.read(&rig.open(&scratch.path(), IoMode::Auto), 65_536);
    }
    scratches
}

/// Goal: a handle that has not been used yet sees what other handles have written and not synced, and what other programs write.
/// Method: write through a second handle after the opening; lengthen; write past the engine.
#[test]
fn an_unused_handle_sees_what_others_write() {
    with_seed("read_once::an_unused_handle_sees_what_others_write", |seed| {
        for rig in rigs(seed) {
            for is_used in [false, true] {
                let scratch = Scratch::new(seed, 10_000);
                let mut expected = fs::read(scratch.path()).unwrap();
                let (file, mut buffer) = (rig.open(&scratch.path(), IoMode::Auto), vec![0; 65_536]);
                if is_used {
                    file.read_at(&mut buffer, 0).unwrap();
                }
                let writer = OpenOptions::new().engine(&rig.engine).write(true).open(scratch.path()).unwrap();
                writer.write_all_at(b"written", 9_997).unwrap();
                expected.truncate(9_997);
                expected.extend_from_slice(b"written");
                assert_eq!(file.len().unwrap(), 10_004, "{}", rig.name());
                assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10_004, "{}", rig.name());
                assert!(buffer[..10_004] == expected, "{}", rig.name());
                drop(writer);
                let unused = rig.open(&scratch.path(), IoMode::Auto);
                rig.engine.flush().unwrap();
                let stranger = fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
                stranger.write_all_at(b"X", 5).unwrap();
                expected[5] = b'X';
                unused.refresh().unwrap();
                assert_eq!(unused.read_at(&mut buffer, 0).unwrap(), 10_004);
                assert!(buffer[..10_004] == expected, "{}", rig.name());
            }
        }
    });
}
