//! Faults: a device that fails on demand, fills up, and keeps a log, seen through requests and blocking calls.
//!
//! Owns: what `SimControl` promises.
//! Does not own: what may be left after a crash (`crashes`); what the engine makes of errors, which has tests there.

use std::io;

use headwater_core::units::ByteRange;
use headwater_io::{
    Allocated, DeviceEvent, DriverKind, FaultOn, FaultRange, Fsync, Route, SimControl, SimOptions, SyncScope,
};
use headwater_testkit::{Rng, with_seed};

use crate::bench::{Bench, errno};
use crate::writing::{Pages, Scatter, write_back};

const EIO: i32 = 5;
const ENOSPC: i32 = libc::ENOSPC;

/// A device that is on time and whole, apart from what a test wants.
fn calm(seed: u64) -> (Bench, SimControl) {
    let control = SimControl::default();
    let calm = SimOptions { delay_steps_max: 0, short_per_mille: 0, transient_per_mille: 0, ..hostile(seed) };
    let options = SimOptions { control: control.clone(), ..calm };
    (Bench::new(DriverKind::Sim(options), 8, seed), control)
}

fn hostile(seed: u64) -> SimOptions {
    SimOptions::hostile(seed)
}

fn raw<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Goal: a range fails for those that it concerns; a write that reaches it is short and says why, and unpins.
#[test]
fn ranges_fail_one_way_or_both() {
    for (operation, reads, writes) in
        [(FaultOn::Any, true, true), (FaultOn::Reads, true, false), (FaultOn::Writes, false, true)]
    {
        let (bench, control) = calm(1);
        let pages = Pages::new(8, Scatter::EachPage, 1);
        control.add_fault(FaultRange { operation, ..FaultRange::new(ByteRange::new(8192, 12_288), EIO) });
        let written = bench.submit(write_back(&bench, 0, pages.run(0..4))).wait();
        assert_eq!(written.result.unwrap(), if writes { 8192 } else { 16_384 });
        assert_eq!(written.stopped_by.and_then(|error| error.raw_os_error()), writes.then_some(EIO));
        drop(written.pages);
        let none = bench.submit(write_back(&bench, 8192, pages.run(2..4))).wait();
        assert_eq!(errno(&none.result), writes.then_some(EIO));
        drop(none);
        let read = bench.submit(bench.request(8192, 4096)).wait();
        assert_eq!(errno(&read.result), reads.then_some(EIO));
        drop(read);
        pages.assert_unpinned();
        bench.assert_idle();
    }
}

/// Goal: so many syncs fail as were asked to, queued ones and blocking ones; what succeeds is counted.
#[test]
fn syncs_fail() {
    let (bench, control) = calm(2);
    let queued = || bench.submit(Fsync { file: bench.file.clone(), scope: SyncScope::Data }).wait();
    let blocking = || bench.driver.sync_blocking(&bench.file, SyncScope::All);
    control.fail_syncs(EIO, 3);
    assert_eq!(errno(&queued().result), Some(EIO));
    assert_eq!(raw(blocking()), Some(EIO));
    assert_eq!(errno(&queued().result), Some(EIO));
    assert_eq!(control.syncs(), 0);
    blocking().unwrap();
    assert_eq!(queued().result.unwrap(), 0);
    assert_eq!(control.syncs(), 2);
    control.fail_syncs(EIO, 0);
    blocking().unwrap();
    bench.assert_idle();
}

/// Goal: a device makes holes and shares extents only if its options say so, and not where writes fail. Method: a hole in a page, beside
/// a bad page.
#[test]
fn holes_are_made_where_they_may_be() {
    let control = SimControl::default();
    for remaps in [false, true] {
        let device = SimOptions { control: control.clone(), remaps, ..hostile(7) };
        let bench = Bench::new(DriverKind::Sim(device), 8, 7);
        let (driver, file) = (&bench.driver, &bench.file);
        control.add_fault(FaultRange {
            operation: FaultOn::Writes,
            ..FaultRange::new(ByteRange::at(8192, 4096), EIO)
        });
        let punch = |page: u64| driver.punch_hole_blocking(file, ByteRange::at(page * 4096, 4096));
        let is_unsupported =
            |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::Unsupported;
        let bytes = |page: u64| {
            let mut bytes = vec![0; 4096];
            driver.read_blocking(file, Route::Buffered, &mut bytes, page * 4096).unwrap();
            bytes
        };
        let before = [1, 2].map(bytes);
        if !remaps {
            assert!(is_unsupported(punch(1)));
            let cloned = driver.clone_range_blocking(file, ByteRange::at(0, 4096), file, 4096);
            assert!(is_unsupported(cloned));
            assert_eq!([1, 2].map(bytes), before);
            continue;
        }
        match punch(1) {
            Ok(()) => assert!(bytes(1).iter().all(|&byte| byte == 0)),
            // The file system of the tests makes none.
            refused => assert!(is_unsupported(refused)),
        }
        assert_eq!(raw(punch(2)), Some(EIO));
        assert_eq!(bytes(2), before[1]);
        control.clear_faults();
        bench.assert_idle();
    }
}

/// Goal: a full device takes what there is room for, then nothing, until there is room again; what was allocated can be
/// written, and what is left is not touched by who is refused.
#[test]
fn a_full_device() {
    let (bench, control) = calm(3);
    let (driver, file) = (&bench.driver, &bench.file);
    let write = |bytes: usize, offset| driver.write_blocking(file, Route::Buffered, &vec![9; bytes], offset);
    control.space_left(Some(100_000));
    assert_eq!(driver.allocate_blocking(file, ByteRange::new(0, 40_000)).unwrap(), Allocated::Yes);
    assert_eq!(raw(driver.allocate_blocking(file, ByteRange::new(40_000, 140_000))), Some(ENOSPC));
    // Twice the same: what was set aside is not used up.
    assert_eq!(driver.allocate_blocking(file, ByteRange::new(10_000, 50_000)).unwrap(), Allocated::Yes);
    assert_eq!(write(50_000, 0).unwrap(), 50_000);
    assert_eq!(write(40_000, 30_000).unwrap(), 40_000);
    assert_eq!(write(50_000, 200_000).unwrap(), 30_000);
    assert_eq!(raw(write(1, 400_000)), Some(ENOSPC));
    assert_eq!(write(50_001, 0).unwrap(), 50_000);
    driver.set_len_blocking(file, 100).unwrap();
    assert_eq!(write(200, 0).unwrap(), 100);
    assert_eq!((control.writes(), control.written_bytes()), (5, 170_100));
    control.space_left(None);
    assert_eq!(write(200, 0).unwrap(), 200);
    bench.assert_idle();
}

/// Goal: on a full device what was reserved can be written, and a file that is made longer takes room for its last byte; none of both
/// truncates the file.
#[test]
fn reserving_on_a_full_device() {
    let (bench, control) = calm(6);
    let (driver, file) = (&bench.driver, &bench.file);
    let (write, length_bytes) = (
        |bytes: usize, offset| driver.write_blocking(file, Route::Buffered, &vec![9; bytes], offset),
        file.length_bytes().unwrap(),
    );
    control.space_left(Some(10_000));
    assert_eq!(driver.free_bytes(file).unwrap(), 10_000);
    assert_eq!(raw(driver.reserve_blocking(file, ByteRange::new(0, 10_001))), Some(ENOSPC));
    let beyond = ByteRange::at(length_bytes + 5000, 9000);
    assert_eq!(driver.reserve_blocking(file, beyond).unwrap(), Allocated::Yes);
    assert_eq!((driver.free_bytes(file).unwrap(), file.length_bytes().unwrap()), (1000, length_bytes));
    driver.extend_blocking(file, length_bytes).unwrap();
    driver.extend_blocking(file, beyond.end).unwrap();
    assert_eq!((driver.free_bytes(file).unwrap(), file.length_bytes().unwrap()), (1000, beyond.end));
    assert_eq!(write(2000, 0).unwrap(), 1000);
    assert_eq!(raw(driver.extend_blocking(file, beyond.end + 10)), Some(ENOSPC));
    assert_eq!(file.length_bytes().unwrap(), beyond.end);
    assert_eq!(write(10_000, beyond.start).unwrap(), 9000);
    control.space_left(None);
    control.fail_at(0, EIO);
    assert_eq!(raw(driver.extend_blocking(file, 1)), Some(EIO));
    control.fail_at(0, EIO);
    assert_eq!(raw(driver.reserve_blocking(file, ByteRange::new(0, 1))), Some(EIO));
    driver.extend_blocking(file, beyond.end + 10).unwrap();
    assert_eq!(file.length_bytes().unwrap(), beyond.end + 10);
    bench.assert_idle();
}

/// Goal: a write back to a device that fills up is short at a boundary that can be gone on from, and keeps the reason.
#[test]
fn write_back_to_a_full_device() {
    let (bench, control) = calm(4);
    let pages = Pages::new(16, Scatter::EachPage, 4);
    control.space_left(Some(10_000));
    let finished = bench.submit(write_back(&bench, 0, pages.run(0..16))).wait();
    let done_bytes = finished.result.unwrap();
    let alignment_bytes = bench.file.direct().map_or(1, |direct| direct.offset.get() as usize);
    assert_eq!(done_bytes, 10_000 / alignment_bytes * alignment_bytes);
    assert_eq!(finished.stopped_by.and_then(|error| error.raw_os_error()), Some(ENOSPC));
    drop(finished.pages);
    let bytes = std::fs::read(bench.path()).unwrap();
    assert_eq!(pages.pattern.mismatch(0, &bytes[..done_bytes]), None);
    assert_eq!(bench.pattern.mismatch(done_bytes as u64, &bytes[done_bytes..]), None);
    pages.assert_unpinned();
    bench.assert_idle();
}

/// Goal: each operation of a sequence can be made to fail, one at a time, and only that one fails.
#[test]
fn each_operation_fails_in_turn() {
    for nth in 0.. {
        let (bench, control) = calm(5);
        let (driver, file) = (&bench.driver, &bench.file);
        control.fail_at(nth, EIO);
        let read = bench.submit(bench.request(0, 4096)).wait();
        bench.check(0, 4096, &read);
        let results = [
            driver.write_blocking(file, Route::Buffered, &[1; 100], 0).map(|_| ()),
            driver.sync_blocking(file, SyncScope::Data),
            driver.set_len_blocking(file, 5000),
            driver.allocate_blocking(file, ByteRange::new(0, 9000)).map(|_| ()),
            bench.submit(Fsync { file: file.clone(), scope: SyncScope::All }).wait().result.map(|_| ()),
        ];
        let failed = results.iter().position(|result| result.is_err());
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), usize::from(nth < 5));
        assert_eq!((failed, control.is_failure_to_come()), ((nth < 5).then_some(nth as usize), nth >= 5));
        drop(read);
        bench.assert_idle();
        if nth >= 5 {
            break;
        }
    }
}

/// Goal: the log says what was done and when, without what failed, and with what has not ended.
#[test]
fn the_log_says_what_was_done() {
    let (bench, control) = calm(6);
    let (driver, file) = (&bench.driver, &bench.file);
    let key = file.identity().unwrap().0;
    let pages = Pages::new(2, Scatter::EachPage, 6);
    driver.set_len_blocking(file, 7000).unwrap();
    control.record();
    driver.write_blocking(file, Route::Buffered, b"some", 10).unwrap();
    control.fail_at(0, EIO);
    driver.write_blocking(file, Route::Buffered, b"none", 10).unwrap_err();
    control.fail_syncs(EIO, 1);
    driver.sync_blocking(file, SyncScope::Data).unwrap_err();
    let write = bench.submit(write_back(&bench, 4096, pages.run(0..2)));
    driver.sync_blocking(file, SyncScope::All).unwrap();
    driver.set_len_blocking(file, 5000).unwrap();
    driver.allocate_blocking(file, ByteRange::new(1, 8000)).unwrap();
    let mut both = vec![0; 8192];
    pages.pattern.fill(0, &mut both);
    let write_event =
        |ended| DeviceEvent::Write { file: key, offset_bytes: 4096, bytes: both.clone(), began: 5, ended };
    let mut expected = vec![
        DeviceEvent::Write { file: key, offset_bytes: 10, bytes: b"some".to_vec(), began: 0, ended: Some(1) },
        // Of the write that failed nothing is left but its moment.
        DeviceEvent::Sync { file: key, scope: SyncScope::Data, began: 3, ended: Some(4), succeeded: false },
        write_event(None),
        DeviceEvent::Sync { file: key, scope: SyncScope::All, began: 6, ended: Some(7), succeeded: true },
        DeviceEvent::SetLen { file: key, length_bytes: 5000, began: 8, ended: Some(9) },
        DeviceEvent::Allocate { file: key, range: ByteRange::new(1, 8000), began: 10, ended: Some(11) },
    ];
    assert_eq!(control.log(), expected);
    drop(write.wait());
    expected[2] = write_event(Some(12));
    assert_eq!(control.take_log(), expected);
    assert_eq!(control.take_log(), []);
    pages.assert_unpinned();
    bench.assert_idle();
}

/// Goal: on a hostile device too the log, done in order, makes of the old file the new one.
#[test]
fn the_log_replayed_is_the_file() {
    with_seed("faults::the_log_replayed_is_the_file", |seed| {
        let options = hostile(seed);
        let control = options.control.clone();
        let (bench, mut rng) = (Bench::new(DriverKind::Sim(options), 8, seed), Rng::new(seed));
        let pages = Pages::new(64, Scatter::EachPage, seed);
        let mut expected = std::fs::read(bench.path()).unwrap();
        control.record();
        for _ in 0..20 {
            // Apart, since what overlaps in flight has no order.
            let writes: Vec<_> = (0..8)
                .map(|place| {
                    let (first, count) = (rng.below(48), 1 + rng.below(16));
                    bench.submit(write_back(&bench, (place * 16) << 12, pages.run(first..first + count)))
                })
                .collect();
            bench.driver.write_blocking(&bench.file, Route::Buffered, &[7; 9999], 5 << 20).unwrap();
            for write in writes {
                assert!(write.wait().result.is_ok());
            }
            bench.driver.set_len_blocking(&bench.file, (6 << 20) + rng.below(1 << 20)).unwrap();
        }
        let mut log = control.take_log();
        assert!(log.iter().all(|event| event.ended().is_some()));
        log.sort_by_key(DeviceEvent::ended);
        for event in log {
            match event {
                DeviceEvent::Write { offset_bytes, bytes, .. } => {
                    expected[offset_bytes as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
                DeviceEvent::SetLen { length_bytes, .. } => expected.resize(length_bytes as usize, 0),
                other => panic!("{other:?}"),
            }
        }
        assert!(std::fs::read(bench.path()).unwrap() == expected);
        pages.assert_unpinned();
        bench.assert_idle();
    });
}
