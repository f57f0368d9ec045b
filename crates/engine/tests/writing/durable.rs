//! Durable: appends that return when the record is on the device, from many threads and tasks that share syncs.
//!
//! Owns: what is promised of a record whose append has returned, or failed.
//! Does not own: appends without a sync (appends), power loss (the crash suite).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::thread;

use futures_util::future::join_all;
use headwater::{Caching, Error, File, OpenOptions, Operation};
use headwater_testkit::{Rng, ScratchDir, with_seed};

use crate::appends::{Parser, record, record_of};
use crate::faults::{EIO, is_latched};
use crate::rig::{Rig, block_on, calm, drivers};
use crate::threads::watched_for;

/// Goal: when an append returns, its record is in the file, at that offset, and a sync has followed; all records are there once,
/// whole, each sender's in order. Method: threads and tasks, with handles open for appending and with others, some records too
/// large to share a write.
#[test]
fn records_are_in_the_file_when_appends_return() {
    with_seed("durable::records_are_in_the_file_when_appends_return", |seed| {
        let mut rng = Rng::new(seed);
        for driver in drivers(seed) {
            for appending in [true, false] {
                let (rig, directory) =
                    (Rig::sized(driver.clone(), 3 << 20, 16), ScratchDir::on_target().unwrap());
                let path = directory.path().join("file");
                watched_for(rig.name(), || append_all(&rig, &path, appending, &mut rng));
                let mut parser = Parser::new(SENDERS as usize);
                parser.parse(&fs::read(&path).unwrap());
                assert_eq!(parser.next, [RECORDS; SENDERS as usize]);
                assert_eq!(parser.position_bytes, fs::metadata(&path).unwrap().len());
                rig.assert_idle();
            }
        }
    });
}

fn append_all(rig: &Rig, path: &Path, appending: bool, rng: &mut Rng) {
    thread::scope(|scope| {
        for sender in 0..THREADS {
            let (file, mut rng) = (open(rig, path, appending), Rng::new(rng.next_u64()));
            scope.spawn(move || {
                for sequence in 0..RECORDS {
                    let record = some_record(sender, sequence, &mut rng);
                    check(path, file.append_durable(&record).unwrap(), &record);
                }
            });
        }
        let (file, seed) = (open(rig, path, appending), rng.next_u64());
        scope.spawn(move || {
            let tasks = (THREADS..SENDERS).map(|sender| append_by_task(&file, path, sender, seed));
            block_on(join_all(tasks));
        });
    });
}

async fn append_by_task(file: &File, path: &Path, sender: u64, seed: u64) {
    let mut rng = Rng::new(seed + sender);
    for sequence in 0..RECORDS {
        let record = some_record(sender, sequence, &mut rng);
        let offset_bytes = file.append_durable_async(record.clone()).await.unwrap();
        check(path, offset_bytes, &record);
        if rng.chance(1, 10) {
            file.sync_all_async().await.unwrap();
        }
    }
}

fn check(path: &Path, offset_bytes: u64, record: &[u8]) {
    let mut found = vec![0; record.len()];
    fs::File::open(path).unwrap().read_exact_at(&mut found, offset_bytes).unwrap();
    assert!(found == record, "another record is at byte {offset_bytes}");
}

/// Now and then too large to share a write.
fn some_record(sender: u64, sequence: u64, rng: &mut Rng) -> Vec<u8> {
    match rng.below(40) {
        0 => record_of(sender, sequence, 70_000),
        _ => record(sender, sequence, rng),
    }
}

/// Goal: a failed sync fails every append that waited for it, and all later ones, which write nothing. Method: threads and tasks
/// that begin together.
#[test]
fn a_failed_sync_is_reported_to_each_caller() {
    for appending in [true, false] {
        let (rig, directory) = (calm(1), ScratchDir::on_target().unwrap());
        let path = directory.path().join("file");
        let file = open(&rig, &path, appending);
        rig.control().fail_syncs(EIO, 1);
        let begin = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    begin.wait();
                    let tasks = join_all([0; 3].map(|_| file.append_durable_async("a record")));
                    block_on(tasks).iter().for_each(|result| assert_failed(result.as_ref().unwrap_err()));
                    assert_failed(&file.append_durable(b"a record").unwrap_err());
                });
            }
        });
        let length_bytes = file.len().unwrap();
        assert_failed(&file.append_durable(b"a record").unwrap_err());
        assert_failed(&block_on(file.append_durable_async("a record")).unwrap_err());
        assert_failed(&open(&rig, &path, appending).append_durable(b"a record").unwrap_err());
        assert_eq!(file.len().unwrap(), length_bytes);
        drop(file);
        rig.assert_idle();
    }
}

fn assert_failed(error: &Error) {
    assert_eq!(error.operation(), Operation::Sync, "{error}");
    assert!(error.raw_os_error() == Some(EIO) || is_latched(error), "{error}");
}

/// Goal: on a full device each append either succeeds, with its record whole in the file, or reports that there is no room.
/// Method: more records than there is room for, appended together; then again with room.
#[test]
fn a_full_device_refuses_what_has_no_room() {
    let (rig, directory) = (calm(2), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    let file = open(&rig, &path, true);
    rig.control().space_left(Some(1000));
    let results = block_on(join_all((b'a'..b'i').map(|byte| file.append_durable_async(vec![byte; 300]))));
    for (byte, result) in (b'a'..b'i').zip(&results) {
        match result {
            Ok(offset_bytes) => check(&path, *offset_bytes, &[byte; 300]),
            Err(error) => {
                let kinds = (error.operation(), error.kind());
                assert_eq!(kinds, (Operation::Write, ErrorKind::StorageFull), "{error}");
            }
        }
    }
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
    rig.control().space_left(None);
    check(&path, file.append_durable(b"again").unwrap(), b"again");
    drop(file);
    rig.assert_idle();
}

/// Goal: a task that is dropped, at whatever step, holds up no other, and its record is in the file once or not at all. Method:
/// tasks that are polled a few times and then dropped, among others.
#[test]
fn dropped_tasks_hold_up_no_other() {
    with_seed("durable::dropped_tasks_hold_up_no_other", |seed| {
        let mut rng = Rng::new(seed);
        for driver in drivers(seed) {
            let (rig, directory) = (Rig::sized(driver, 3 << 20, 16), ScratchDir::on_target().unwrap());
            let path = directory.path().join("file");
            let file = open(&rig, &path, true);
            watched_for(rig.name(), || {
                for _ in 0..ROUNDS {
                    drop_some(&file, &mut rng);
                    block_on(file.append_durable_async("0123456789")).unwrap();
                    file.append_durable(b"0123456789").unwrap();
                }
            });
            let found = fs::read(&path).unwrap();
            let (records, rest) = found.as_chunks::<10>();
            assert!(records.iter().all(|record| record == b"0123456789") && rest.is_empty());
            assert!((2 * ROUNDS..=(2 + TASKS) * ROUNDS).contains(&records.len()));
            drop(file);
            rig.assert_idle();
        }
    });
}

/// Polls tasks at random, drops some of them, and awaits the others.
fn drop_some(file: &File, rng: &mut Rng) {
    let mut tasks: Vec<_> = (0..TASKS).map(|_| Box::pin(file.append_durable_async("0123456789"))).collect();
    let mut done = [false; TASKS];
    for _ in 0..rng.below(12) {
        let index = rng.below(TASKS as u64) as usize;
        let context = &mut Context::from_waker(Waker::noop());
        done[index] = done[index] || tasks[index].as_mut().poll(context).is_ready();
    }
    let mut done = done.into_iter();
    tasks.retain(|_| done.next() == Some(false) && rng.chance(1, 2));
    block_on(join_all(tasks)).into_iter().for_each(|result| _ = result.unwrap());
}

fn open(rig: &Rig, path: &Path, appending: bool) -> File {
    let mut options = OpenOptions::new();
    options
        .engine(&rig.engine)
        .caching(Caching::On)
        .write(true)
        .create(true)
        .append(appending)
        .open(path)
        .unwrap()
}

const THREADS: u64 = 3;

/// Threads, and tasks of one more.
const SENDERS: u64 = 6;
const RECORDS: u64 = 60;
const ROUNDS: usize = 100;
const TASKS: usize = 4;
