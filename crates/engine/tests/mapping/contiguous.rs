//! Contiguous: windows in one piece of memory, which are read and written without a call.
//!
//! Owns: what is stored there shows everywhere, and the other way round; what goes to the file, and when.
//! Does not own: windows among all other accesses (oracle).

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headwater::testing::{FaultRange, SimOptions};
use headwater::{ByteRange, Caching, DriverKind, File, IoMode, OpenOptions, SharedView};
use headwater_testkit::{Rng, block_on, forbid_userfaultfd, run_self_with_env};

use crate::open;
use crate::rig::{Rig, Scratch, calm_device, drivers, watched};

/// A view, unless this system has none; then the reason is printed.
pub(crate) fn window(file: &File, start: u64, end: u64) -> Option<SharedView> {
    match file.map_contiguous(ByteRange::new(start, end)) {
        Ok(view) => Some(view),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            headwater_testkit::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Engines whose memory is not in use yet.
pub(crate) fn roomy_rigs(seed: u64) -> Vec<Rig> {
    drivers(seed).into_iter().map(|driver| Rig::sized(driver, 64 << 20, 16)).collect()
}

/// Goal: what is stored without a call is seen at once by all who read, whatever their way, and by others after a sync; what is
/// written by others is seen without a call.
#[test]
fn stores_are_seen_everywhere() {
    for rig in roomy_rigs(1) {
        let scratch = Scratch::new(1, 1_000_001);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let others =
            [Caching::On, Caching::Off].map(|caching| open(&rig, &scratch.path(), IoMode::Auto, caching));
        // Dirty, clean and absent pages.
        file.write_all_at(&[9; 5000], 100_000).unwrap();
        let mut expected = vec![0; 1_000_001];
        scratch.pattern.fill(0, &mut expected);
        expected[100_000..105_000].fill(9);
        let Some(view) = window(&file, 50_004, 999_000) else { return };
        let cells = view.as_cells().unwrap();
        assert_eq!(cells.len() as u64, view.len());
        assert!(
            cells
                .iter()
                .map(|cell| cell.load(Ordering::Relaxed))
                .eq(expected[50_004..999_000].iter().copied())
        );
        for round in 0..20_u64 {
            let at = 4 + (round + 1) * 40_008;
            let start = (50_004 + at) as usize;
            view.atomic_u64(at).unwrap().store(round | 1 << 40, Ordering::Release);
            expected[start..start + 8].copy_from_slice(&(round | 1 << 40).to_ne_bytes());
            view.as_cells().unwrap()[77].store(round as u8, Ordering::Relaxed);
            expected[50_004 + 77] = round as u8;
            compare(&others[round as usize % 2], &expected);
            let part = &mut expected[start - 3000..start - 2990];
            part.fill(round as u8);
            others[round as usize % 2].write_all_at(part, start as u64 - 3000).unwrap();
            assert_eq!(cells[at as usize - 2995].load(Ordering::Acquire), round as u8);
        }
        view.sync().unwrap();
        assert!(std::fs::read(scratch.path()).unwrap() == expected, "the disk has something else");
        drop((view, file, others));
        rig.assert_idle();
    }
}

/// All ways to read.
fn compare(file: &File, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected, "read_at");
    assert!(
        block_on(file.read_at_async(40_000, 20_000)).unwrap() == expected[40_000..60_000],
        "read_at_async"
    );
    assert!(file.view(49_000, 100_000).unwrap().to_vec() == expected[49_000..149_000], "view");
    let mut reader = file.reader();
    reader.seek(SeekFrom::Start(30_000)).unwrap();
    bytes.clear();
    reader.read_to_end(&mut bytes).unwrap();
    assert!(bytes == expected[30_000..], "reader");
    let view = file.map(ByteRange::new(0, expected.len() as u64)).unwrap();
    let word = u64::from_ne_bytes(*expected[50_008..].first_chunk().unwrap());
    assert_eq!(view.load_u64(50_008).unwrap(), word, "load");
}

/// Goal: what is appended together with other programs shows in a window that reaches beyond the end, is on disk, and stays there when the
/// window is written back; what was stored beyond the end stays hidden. Method: stores and appends in turn, in one page and across two,
/// by calls and by tasks.
#[test]
fn shared_appends_are_seen() {
    for rig in roomy_rigs(4) {
        let scratch = Scratch::new(4, 5000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let log = OpenOptions::new().engine(&rig.engine).append(true).open(scratch.path()).unwrap();
        let mut expected = vec![0; 5000];
        scratch.pattern.fill(0, &mut expected);
        let Some(view) = window(&file, 4096, 20_000) else { return };
        let cells = view.as_cells().unwrap();
        for round in 0..8_u8 {
            let record = vec![round + 1; 1 + 700 * usize::from(round % 4)];
            let end = expected.len();
            cells[end + record.len() + 3 - 4096].store(0xCD, Ordering::Relaxed);
            let at = match round % 2 {
                0 => log.append(&record).unwrap(),
                _ => block_on(log.append_async(record.clone())).unwrap(),
            };
            assert_eq!(at, end as u64);
            expected.extend_from_slice(&record);
            let shown = cells[..expected.len() - 4096].iter().map(|cell| cell.load(Ordering::Relaxed));
            assert!(shown.eq(expected[4096..].iter().copied()), "cells, round {round}");
            cells[end - 4096].store(0xAB, Ordering::Relaxed);
            expected[end] = 0xAB;
            assert!(file.view(0, expected.len()).unwrap() == *expected, "view, round {round}");
            if round % 3 == 2 {
                view.sync().unwrap();
                assert!(std::fs::read(scratch.path()).unwrap() == expected, "disk, round {round}");
            }
        }
        drop((view, log, file));
        assert!(std::fs::read(scratch.path()).unwrap() == expected, "on disk at the end");
        rig.assert_idle();
    }
}

/// Goal: exactly the pages that were written go to the device. Method: the simulated device counts.
#[test]
fn only_what_was_written_is_written() {
    let rig = Rig::sized(calm_device(2), 64 << 20, 16);
    let scratch = Scratch::new(2, 400_000);
    let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
    let Some(view) = window(&file, 0, 400_000) else { return };
    let written = || file.stats().counts.device_write_pages;
    view.sync().unwrap();
    assert_eq!(written(), 0, "filling is no writing");
    for (at, pages) in [(0, 1), (4096 * 7 + 8, 2), (4096 * 97, 3)] {
        view.atomic_u64(at).unwrap().store(1, Ordering::Relaxed);
        view.atomic_u64(at).unwrap().store(2, Ordering::Relaxed);
        view.sync().unwrap();
        assert_eq!(written(), pages);
    }
    view.sync().unwrap();
    assert_eq!(written(), 3, "once");
    drop(view);
    assert_eq!(written(), 3);
    drop(file);
    rig.assert_idle();
}

/// Goal: dropping the last clone writes what was stored, and gives the pages back to the cache.
#[test]
fn a_drop_writes_back() {
    for rig in roomy_rigs(3) {
        let scratch = Scratch::new(3, 10_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, 4096, 20_000) else { return };
        let clone = view.clone();
        view.as_cells().unwrap()[5903].store(0xAB, Ordering::Relaxed);
        // Beyond the end: lost.
        view.as_cells().unwrap()[5904].store(0xCD, Ordering::Relaxed);
        drop(view);
        assert_eq!(clone.load_u8(5903).unwrap(), 0xAB);
        assert_eq!(clone.load_u8(5904).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(rig.engine.stats().arena.lent_out_bytes > 0);
        let overlapping = file.map_contiguous(ByteRange::new(8000, 9000)).unwrap_err();
        assert_eq!(overlapping.kind(), ErrorKind::ResourceBusy, "{overlapping}");
        drop(clone);
        assert_eq!(rig.engine.stats().arena.lent_out_bytes, 0);
        let disk = std::fs::read(scratch.path()).unwrap();
        assert_eq!((disk.len(), disk[9999]), (10_000, 0xAB));
        scratch.check(0, &disk[..9999]);
        let mut bytes = vec![0; 10_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == disk);
        drop(file);
        rig.assert_idle();
    }
}

/// Goal: the file is truncated and made longer under a window: what is cut off becomes zeros and is not written; what grows into the
/// window shows.
#[test]
fn a_window_over_the_end() {
    for rig in roomy_rigs(4) {
        let scratch = Scratch::new(4, 30_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, 0, 60_000) else { return };
        let cell = |at: usize| view.as_cells().unwrap()[at].load(Ordering::Relaxed);
        view.as_cells().unwrap()[30_000].store(1, Ordering::Relaxed);
        file.set_len(5000).unwrap();
        assert!((5000..30_000).all(|at| cell(at) == 0));
        view.as_cells().unwrap()[6000].store(2, Ordering::Relaxed);
        view.sync().unwrap();
        assert_eq!(std::fs::read(scratch.path()).unwrap().len(), 5000);
        assert_eq!(view.fetch_add_u64(8000, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        file.write_all_at(b"end", 50_000).unwrap();
        assert_eq!([cell(6000), cell(50_000), cell(50_002)], [0, b'e', b'd']);
        assert_eq!(file.append(&[7; 20_000]).unwrap(), 50_003);
        assert_eq!([cell(50_003), cell(59_999)], [7, 7]);
        assert_eq!(view.fetch_add_u64(8000, 1).unwrap(), 0);
        view.sync().unwrap();
        let mut expected = vec![0; 70_003];
        scratch.pattern.fill(0, &mut expected[..5000]);
        expected[8000..8008].copy_from_slice(&1_u64.to_ne_bytes());
        expected[50_000..50_003].copy_from_slice(b"end");
        expected[50_003..].fill(7);
        assert!(std::fs::read(scratch.path()).unwrap() == expected);
        drop((view, file));
        rig.assert_idle();
    }
}

/// Goal: additions without a call, through the view, and through another view of the same file sum up; windows that come and go
/// meanwhile lose nothing.
#[test]
fn additions_sum_up() {
    for rig in roomy_rigs(5) {
        let scratch = Scratch::new(5, 16_384);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        file.write_all_at(&[0; 16_384], 0).unwrap();
        if window(&file, 0, 4096).is_none() {
            return;
        }
        let (chunked, done) = (file.map(ByteRange::new(0, 16_384)).unwrap(), AtomicBool::new(false));
        let mut raw = 0;
        watched(rig.name(), || {
            thread::scope(|scope| {
                let (done, chunked) = (&done, &chunked);
                let adder =
                    scope.spawn(move || (0..1000).for_each(|_| _ = chunked.fetch_add_u64(8200, 1).unwrap()));
                let reader = scope.spawn(|| {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        let mut word = [0; 8];
                        file.read_exact_at(&mut word, 8200).unwrap();
                        assert!(u64::from_ne_bytes(word) >= last, "a sum went back");
                        last = u64::from_ne_bytes(word);
                    }
                });
                let windows = scope.spawn(|| (0..30).map(|_| add_through_a_window(&file)).sum::<u64>());
                let (windows, added) = (windows.join(), adder.join());
                done.store(true, Ordering::Relaxed);
                raw = windows.unwrap();
                added.unwrap();
                reader.join().unwrap();
            });
        });
        assert_eq!(chunked.load_u64(8200).unwrap(), 1000 + raw);
        chunked.sync().unwrap();
        let disk = std::fs::read(scratch.path()).unwrap();
        assert_eq!(disk[8200..8208], (1000_u64 + raw).to_ne_bytes());
        drop((chunked, file));
        rig.assert_idle();
    }
}

fn add_through_a_window(file: &File) -> u64 {
    let view = file.map_contiguous(ByteRange::new(8192, 16_384)).unwrap();
    for _ in 0..50 {
        view.atomic_u64(8).unwrap().fetch_add(1, Ordering::AcqRel);
        view.fetch_add_u64(8, 1).unwrap();
    }
    100
}

/// Goal: memory of windows is part of the budget: what cannot be spared is refused in words, and given back it can be had again.
#[test]
fn windows_are_part_of_the_budget() {
    let rig = Rig::sized(DriverKind::Threads, 17 << 20, 16);
    let scratch = Scratch::new(6, 40_000);
    let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
    let Some(view) = window(&file, 0, 8 << 20) else { return };
    let stats = rig.engine.stats().arena;
    assert_eq!((stats.budget_bytes, stats.lent_out_bytes), (8 << 20, 8 << 20));
    let error = file.map_contiguous(ByteRange::new(8 << 20, 17 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("more than half of the engine's memory"), "{error}");
    let error = file.map_contiguous(ByteRange::new(8 << 20, 16 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("does not use yet"), "{error}");
    assert_eq!(file.map_contiguous(ByteRange::new(5, 5)).unwrap_err().kind(), ErrorKind::InvalidInput);
    let read_only = rig.open(&scratch.path(), IoMode::Auto).map_contiguous(ByteRange::new(0, 5)).unwrap_err();
    assert_eq!(read_only.kind(), ErrorKind::PermissionDenied);
    drop(view);
    drop(window(&file, 8 << 20, 16 << 20));
    drop(file);
    rig.assert_idle();
}

/// Goal: a device that refuses what was stored is told to who syncs; nothing is lost, and it is written when that is possible.
#[test]
fn what_cannot_be_written_stays() {
    let rig = Rig::sized(DriverKind::Sim(SimOptions::hostile(7)), 64 << 20, 16);
    let scratch = Scratch::new(7, 100_000);
    let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
    let Some(view) = window(&file, 0, 100_000) else { return };
    view.as_cells().unwrap()[50_000].store(0x55, Ordering::Relaxed);
    rig.control().add_fault(FaultRange::new(ByteRange::new(49_152, 53_248), 5));
    assert_eq!(view.sync().unwrap_err().raw_os_error(), Some(5));
    drop(view);
    assert_eq!(rig.engine.flush().unwrap_err().raw_os_error(), Some(5));
    let mut byte = [0];
    file.read_exact_at(&mut byte, 50_000).unwrap();
    assert_eq!(byte, [0x55]);
    rig.control().clear_faults();
    let _told_of_the_drop = file.sync_data();
    file.sync_data().unwrap();
    assert_eq!(std::fs::read(scratch.path()).unwrap()[50_000], 0x55);
    assert_eq!(rig.engine.stats().arena.lent_out_bytes, 0);
    drop(file);
    rig.assert_idle();
}

/// Goal: what is written just when a window is made shows at once, also in pages that the cache had before. Method: threads that write and
/// read back the last pages of a file now and then, while windows of it are made all the time.
#[test]
fn a_write_shows_while_a_window_is_made() {
    const LENGTH_BYTES: u64 = 24 << 20;
    let rig = Rig::sized(DriverKind::Threads, 96 << 20, 16);
    let scratch = Scratch::new(9, LENGTH_BYTES);
    let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
    let (mut contents, is_over) = (vec![0; LENGTH_BYTES as usize], AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 1..=16 {
            let (file, is_over, mut rng) = (&file, &is_over, Rng::new(thread));
            scope.spawn(move || {
                let at = LENGTH_BYTES - thread * 4096;
                for number in 0_u64.. {
                    file.write_all_at(&number.to_ne_bytes(), at).unwrap();
                    let mut seen = [0; 8];
                    file.read_exact_at(&mut seen, at).unwrap();
                    assert_eq!(u64::from_ne_bytes(seen), number, "what was written does not show");
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    thread::sleep(Duration::from_micros(rng.below(20_000)));
                }
            });
        }
        for _ in 0..60 {
            file.read_exact_at(&mut contents, 0).unwrap();
            let Some(view) = window(&file, 0, LENGTH_BYTES) else { break };
            drop(view);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Goal: where the kernel does not do its part, the error says what is missing, and chunked views work. Method: a child in which
/// `userfaultfd(2)` is forbidden.
#[test]
fn refused_where_it_is_forbidden() {
    const CHILD: &str = "HEADWATER_MAPPING_FORBID";
    if std::env::var_os(CHILD).is_some() {
        forbid_userfaultfd();
        let scratch = Scratch::new(8, 5000);
        let rig = Rig::new(DriverKind::Threads);
        let file = open(&rig, Path::new(&scratch.path()), IoMode::Auto, Caching::On);
        let error = file.map_contiguous(ByteRange::new(0, 5000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("userfaultfd"), "{error}");
        file.map(ByteRange::new(0, 5000)).unwrap().fetch_add_u64(0, 1).unwrap();
        println!("saw: {error}");
        return;
    }
    let output = run_self_with_env("contiguous::refused_where_it_is_forbidden", CHILD, "1");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("saw: "), "{output:?}");
}
