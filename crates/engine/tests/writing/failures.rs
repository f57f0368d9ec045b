//! Failures: what could not be written, which handles report it, how often, and what becomes of it.
//!
//! Owns: devices that fail for a while, or for ever.
//! Does not own: single failures (faults), file systems that are full (space).

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use futures_util::future::join;
use headwater::testing::{FaultOn, FaultRange, SimOptions};
use headwater::{Advice, ByteRange, DriverKind, Error, File, IoMode, OpenOptions, Operation};
use headwater_testkit::{Pattern, ScratchDir, make_cold, skip};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::faults::{EIO, is_latched};
use crate::model::same;
use crate::rig::{Rig, block_on, watched};
use crate::threads::open;

pub(crate) struct Bench {
    pub(crate) rig: Rig,
    directory: ScratchDir,
}

impl Bench {
    pub(crate) fn new(seed: u64) -> Bench {
        let rig = Rig::sized(DriverKind::Sim(SimOptions::hostile(seed)), 3 << 20, 8);
        Bench { rig, directory: ScratchDir::on_target().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn open(&self, name: &str) -> File {
        open(&self.rig, &self.path(name), IoMode::Auto)
    }

    /// Nothing can be written from here on, in any file.
    pub(crate) fn break_from(&self, offset_bytes: u64) {
        let range = ByteRange::new(offset_bytes, 1 << 40);
        let fault = FaultRange { operation: FaultOn::Writes, ..FaultRange::new(range, EIO) };
        self.rig.control().add_fault(fault);
    }

    pub(crate) fn heal(&self) {
        self.rig.control().clear_faults();
    }

    pub(crate) fn check_disk(&self, name: &str, expected: &[u8]) {
        same(name, 0, expected, &fs::read(self.path(name)).unwrap()).unwrap();
    }
}

fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(seed).fill(0, &mut bytes);
    bytes
}

/// Goal: what is appended together with other programs never lies among bytes that were accepted before and could not be written: the append
/// fails, and when the device is in order again, it comes behind them. Method: the last page of the file cannot be written, those before it
/// can, whose success comes before or after; by calls and by tasks, durably and not.
#[test]
fn a_shared_append_behind_bytes_that_cannot_be_written() {
    for seed in 0..24 {
        let bench = Bench::new(seed);
        let mut expected = contents(1, 9 << 12);
        fs::write(bench.path("a"), &expected).unwrap();
        let file = bench.open("a");
        let log = OpenOptions::new().engine(&bench.rig.engine).append(true).open(bench.path("a")).unwrap();
        expected.resize(41_000, 0);
        for (at, length) in [(0, 4096), (9 << 12, 41_000 - (9 << 12))] {
            let bytes = contents(2, length);
            file.write_all_at(&bytes, at as u64).unwrap();
            expected[at..at + length].copy_from_slice(&bytes);
        }
        bench.break_from(10 << 12);
        let append = || match seed % 4 {
            0 => log.append(b"one"),
            1 => block_on(log.append_async(&b"one"[..])),
            2 => log.append_durable(b"one"),
            _ => block_on(log.append_durable_async(&b"one"[..])),
        };
        watched("a device that fails", || {
            assert_eq!(append().unwrap_err().raw_os_error(), Some(EIO), "{seed}")
        });
        bench.heal();
        let at = watched("a device that is in order again", || append().unwrap());
        assert_eq!(at, 41_000, "{seed}");
        expected.extend_from_slice(b"one");
        _ = file.sync_data();
        file.sync_data().unwrap();
        bench.check_disk("a", &expected);
    }
}

/// Goal: a vectored write that stops within a buffer writes nothing of those behind it, and says how much it has written. Method: the page
/// in which the first buffer ends cannot be read.
#[test]
fn a_vectored_write_stops_where_a_buffer_does() {
    let bench = Bench::new(3);
    let mut expected = contents(2, 4 << 12);
    fs::write(bench.path("a"), &expected).unwrap();
    make_cold(&fs::File::open(bench.path("a")).unwrap()).unwrap();
    let file = bench.open("a");
    let fault = FaultRange::new(ByteRange::at(4096, 4096), EIO);
    bench.rig.control().add_fault(FaultRange { operation: FaultOn::Reads, ..fault });
    let (first, second) = (contents(3, 5000), contents(4, 8192));
    assert_eq!(file.write_vectored_at(&[&first, &second].map(|bytes| IoSlice::new(bytes)), 0).unwrap(), 4096);
    bench.heal();
    expected[..4096].copy_from_slice(&first[..4096]);
    file.sync_data().unwrap();
    bench.check_disk("a", &expected);
}

/// Goal: a write of a part of a page that cannot be read fails with what reading it gives, and is not tried for ever. Method: a task
/// and a thread, with the page alone and with it in the middle of what is read ahead.
#[test]
fn a_part_of_a_page_that_cannot_be_read() {
    for first_page in [4, 0] {
        let bench = Bench::new(first_page);
        let before = contents(2, 32 << 12);
        fs::write(bench.path("a"), &before).unwrap();
        make_cold(&fs::File::open(bench.path("a")).unwrap()).unwrap();
        let file = bench.open("a");
        file.advise(Advice::Sequential, ByteRange::new(0, before.len() as u64)).unwrap();
        let fault = FaultRange::new(ByteRange::at(4 << 12, 4096), EIO);
        bench.rig.control().add_fault(FaultRange { operation: FaultOn::Reads, ..fault });
        let _ = file.read_at(&mut [0; 100], first_page << 12);
        let errors = watched("a page that cannot be read", || {
            let task = block_on(file.write_all_at_async(vec![7; 100], (4 << 12) + 50));
            let thread = file.write_all_at(&[7; 100], (4 << 12) + 50);
            [task.unwrap_err(), thread.unwrap_err()]
        });
        for error in errors {
            assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
        }
        bench.heal();
        file.write_all_at(&[7; 100], (4 << 12) + 50).unwrap();
        file.sync_data().unwrap();
        let mut after = before;
        after[(4 << 12) + 50..][..100].fill(7);
        bench.check_disk("a", &after);
    }
}

/// Goal: a failed write is told once to each handle that was open then, by whatever kind of sync, and to none that is opened
/// later; the next that fails is told again.
#[test]
fn each_handle_is_told_once() {
    let bench = Bench::new(1);
    let (first, second, third) = (bench.open("a"), bench.open("a"), bench.open("a"));
    let bytes = contents(1, 10_000);
    for round in 0..2 {
        bench.break_from(0);
        first.write_all_at(&bytes, round).unwrap();
        let error = first.sync_data().unwrap_err();
        assert_eq!((error.operation(), error.raw_os_error()), (Operation::Sync, Some(EIO)));
        assert_eq!(error.path(), Some(&*bench.path("a")));
        bench.heal();
        let later = bench.open("a");
        later.sync_data().unwrap();
        assert_eq!(second.sync_all().unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!(block_on(third.sync_data_async()).unwrap_err().raw_os_error(), Some(EIO));
        for file in [&first, &second, &third, &later] {
            file.sync_data().unwrap();
            block_on(file.sync_all_async()).unwrap();
        }
    }
    bench.check_disk("a", &[&bytes[..1], &bytes[..]].concat());
    drop((first, second, third));
    bench.rig.assert_idle();
}

/// Goal: a failure is reported by one write through each handle that was open then, which writes nothing; the next write goes through, and
/// so does the first one of a handle that has reported it by a sync. Method: writes by a thread, by a task and at the end, on a device
/// that is well again.
#[test]
fn one_write_of_each_handle_reports_a_failure() {
    let bench = Bench::new(12);
    let handles = [(); 4].map(|()| bench.open("a"));
    handles.iter().for_each(|file| file.write_all_at(&[7; 400], 0).unwrap());
    bench.break_from(0);
    assert_eq!(handles[0].flush().unwrap_err().raw_os_error(), Some(EIO));
    bench.heal();
    let write = |place: usize| match (&handles[place], place) {
        (file, 1) => block_on(file.write_all_at_async(vec![1; 100], 100)),
        (file, 3) => file.append(&[3; 100]).map(drop),
        (file, _) => file.write_all_at(&[place as u8; 100], place as u64 * 100),
    };
    for place in [3, 2, 1] {
        assert_eq!(write(place).unwrap_err().raw_os_error(), Some(EIO), "{place}");
        assert_eq!(handles[0].len().unwrap(), 400 + if place < 3 { 100 } else { 0 });
        write(place).unwrap();
    }
    write(0).unwrap();
    handles[0].sync_data().unwrap();
    let written = [0, 1, 2, 7, 3].map(|byte| [byte; 100]);
    bench.check_disk("a", &written.concat());
}

/// Goal: after a sync that failed no sync of that file succeeds, through whatever handle; reading, writing and other files go
/// on.
#[test]
fn a_failed_sync_is_for_ever() {
    let bench = Bench::new(2);
    let (first, second, other) = (bench.open("a"), bench.open("a"), bench.open("b"));
    let bytes = contents(2, 10_000);
    first.write_all_at(&bytes, 0).unwrap();
    bench.rig.control().fail_syncs(EIO, 1);
    assert_eq!(first.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    let third = bench.open("a");
    for file in [&first, &second, &third, &first] {
        for error in [file.sync_data(), file.sync_all(), block_on(file.sync_data_async())] {
            let error = error.unwrap_err();
            assert!(is_latched(&error) && error.path() == Some(&*bench.path("a")), "{error}");
        }
    }
    second.write_all_at(&bytes, 5000).unwrap();
    let mut found = vec![0; 10_000];
    first.read_exact_at(&mut found, 5000).unwrap();
    assert_eq!(found, bytes);
    other.write_all_at(&bytes, 0).unwrap();
    other.sync_data().unwrap();
    drop((first, second, third, other));
    bench.rig.engine.flush().unwrap();
    bench.check_disk("a", &[&bytes[..5000], &bytes[..]].concat());
    // Also for who opens it when nobody had it open.
    assert!(is_latched(&bench.open("a").sync_data().unwrap_err()));
    bench.rig.assert_idle();
}

/// Goal: a failed sync is not reported of another file that has got the number of the deleted one.
#[test]
fn a_failed_sync_is_not_that_of_a_successor() {
    let bench = Bench::new(15);
    let file = bench.open("a");
    file.write_all_at(&contents(3, 50_000), 0).unwrap();
    file.read_exact_at(&mut [0; 50_000], 0).unwrap();
    file.write_all_at(&contents(4, 50_000), 0).unwrap();
    bench.rig.control().fail_syncs(EIO, 1);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    let number = fs::metadata(bench.path("a")).unwrap().ino();
    drop(file);
    fs::remove_file(bench.path("a")).unwrap();
    let named = (0..100).map(|round: u32| (bench.open(&round.to_string()), bench.path(&round.to_string())));
    let mut named = named.filter(|(_, path)| fs::metadata(path).unwrap().ino() == number);
    let Some((successor, _)) = named.next() else { return skip("no file gets the number of a deleted one") };
    successor.write_all_at(b"bytes", 0).unwrap();
    successor.sync_data().unwrap();
}

/// Goal: a file that cannot be written does not stop the others, though it has as much unwritten as may be; nobody is told of
/// another file's failure.
#[test]
fn a_failing_file_stops_no_other() {
    for seed in 0..8 {
        let bench = Bench::new(seed);
        let (bad, good) = (bench.open("bad"), bench.open("good"));
        bench.break_from(BAD_FROM);
        watched(&format!("seed {seed}"), || {
            let piece = contents(3, 50_000);
            let mut at = BAD_FROM;
            let error = loop {
                match bad.write_at(&piece, at) {
                    Ok(written) => at += written as u64,
                    Err(error) => break error,
                }
                assert!(at < BAD_FROM + (64 << 20), "more than there is memory for was acknowledged");
            };
            assert_eq!((error.path(), error.raw_os_error()), (Some(&*bench.path("bad")), Some(EIO)));
            let bytes = contents(4, 6 << 20);
            for (number, piece) in bytes.chunks(70_000).enumerate() {
                good.write_all_at(piece, number as u64 * 70_000).unwrap();
            }
            good.sync_data().unwrap();
            bench.check_disk("good", &bytes);
            bad.sync_data().unwrap_err();
            bench.heal();
            bad.sync_data().unwrap();
            let mut expected = vec![0; (at - BAD_FROM) as usize];
            expected.chunks_mut(piece.len()).for_each(|part| part.copy_from_slice(&piece[..part.len()]));
            assert_eq!(bad.len().unwrap(), at);
            let mut found = vec![0; expected.len()];
            fs::File::open(bench.path("bad")).unwrap().read_exact_at(&mut found, BAD_FROM).unwrap();
            same("bad, healed", 0, &expected, &found).unwrap();
        });
        drop((bad, good));
        bench.rig.assert_idle();
    }
}

/// Goal: a writer that gets no memory, because all of it is lent or holds what another file cannot write, hears that, and which
/// file it is: not that file's failure as its own. Its own file is as good as before. Method: a file whose pages stay
/// unwritten, views of the rest of the memory, and writes and a truncate of a third file.
#[test]
fn a_failing_file_is_named_to_the_others() {
    let bench = Bench::new(9);
    let (bad, lent, good) = (bench.open("bad"), bench.open("lent"), bench.open("good"));
    lent.write_all_at(&contents(5, 3 << 20), 0).unwrap();
    lent.sync_data().unwrap();
    good.write_all_at(&[1; 10], 0).unwrap();
    good.sync_data().unwrap();
    bench.break_from(BAD_FROM);
    let mut at = BAD_FROM;
    while let Ok(written) = bad.write_at(&contents(3, 50_000), at) {
        at += written as u64;
    }
    let mut views = Vec::new();
    for page in 0..768 {
        views.extend(lent.view(page * 4096, 4096).ok());
    }
    watched("writes without memory", || {
        let error = good.write_all_at(&contents(6, 1 << 20), 0).unwrap_err();
        is_about_memory(&error, &bench.path("good"), &bench.path("bad"));
        is_about_memory(&good.set_len(5).unwrap_err(), &bench.path("good"), &bench.path("bad"));
        good.sync_data().unwrap();
        drop(views);
        good.write_all_at(&contents(6, 1 << 20), 0).unwrap();
        good.sync_data().unwrap();
    });
    bench.check_disk("good", &contents(6, 1 << 20));
    bad.sync_data().unwrap_err();
    bench.heal();
    bad.sync_data().unwrap();
    drop((bad, lent, good));
    bench.rig.assert_idle();
}

fn is_about_memory(error: &Error, path: &Path, failing: &Path) {
    assert_eq!((error.kind(), error.path()), (ErrorKind::OutOfMemory, Some(path)), "{error}");
    assert!(error.to_string().contains(&*failing.to_string_lossy()), "{error}");
}

/// Beyond all that the good file has.
const BAD_FROM: u64 = 100 << 20;

/// Goal: what is left in a file that was closed while it cannot be written stays, is found by who opens it again, and is
/// written when the device is well.
#[test]
fn what_is_closed_unwritten_is_kept() {
    let bench = Bench::new(5);
    let bytes = contents(5, 30_000);
    bench.break_from(0);
    bench.open("a").write_all_at(&bytes, 0).unwrap();
    let error = bench.rig.engine.flush().unwrap_err();
    assert_eq!((error.operation(), error.raw_os_error()), (Operation::Sync, Some(EIO)), "{error}");
    assert_eq!(error.path(), Some(&*fs::canonicalize(bench.path("a")).unwrap()));
    let mut found = vec![0; 30_000];
    bench.open("a").read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, bytes);
    bench.rig.engine.flush().unwrap_err();
    bench.heal();
    bench.rig.engine.flush().unwrap();
    bench.check_disk("a", &bytes);
    bench.open("a").sync_data().unwrap();
    bench.rig.assert_idle();
}

/// Goal: a sync that failed counts though nobody waited for its answer: the device does not say so again. Method: syncs that are
/// dropped while they are under way.
#[test]
fn a_sync_that_was_dropped_fails_for_all() {
    let mut dropped = 0;
    for seed in 0..40 {
        let bench = Bench::new(seed);
        let (file, other) = (bench.open("a"), bench.open("a"));
        // Pages enough that some are written directly, whatever direct writes are aligned to.
        file.write_all_at(&contents(seed, 50_000), 0).unwrap();
        bench.rig.control().fail_syncs(EIO, 1);
        let mut syncing = Box::pin(file.sync_data_async());
        let polled = syncing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        dropped += u64::from(polled.is_pending());
        drop(syncing);
        // Long enough for the device to answer, sometimes.
        (0..seed % 20).for_each(|_| bench.rig.pass_time());
        let error = match seed % 2 {
            0 => other.sync_data().unwrap_err(),
            _ => block_on(other.sync_all_async()).unwrap_err(),
        };
        // The one that fails may be this one.
        assert!(is_latched(&error) || error.raw_os_error() == Some(EIO), "{error}");
        assert!(is_latched(&file.sync_data().unwrap_err()));
        drop((file, other));
        bench.rig.assert_idle();
    }
    assert!(dropped > 0, "every sync was over at once, which tells nothing");
}

/// Goal: of two syncs of one handle at once none succeeds, though both wait for the same write, and its failure is told once to a
/// handle. Method: two tasks on a device that leaves time between their polls.
#[test]
fn syncs_of_one_handle_fail_together() {
    for seed in 0..20 {
        let options = SimOptions { repolls: false, ..SimOptions::hostile(seed) };
        let rig = Rig::sized(DriverKind::Sim(options), 3 << 20, 8);
        let bench = Bench { rig, directory: ScratchDir::on_target().unwrap() };
        let (file, clock) = (bench.open("a"), bench.rig.open(Path::new("/proc/version"), IoMode::Buffered));
        file.write_all_at(&contents(seed, 50_000), 0).unwrap();
        bench.break_from(0);
        let mut syncs = pin!(join(file.sync_data_async(), file.flush_async()));
        let mut context = Context::from_waker(Waker::noop());
        let (synced, flushed) = loop {
            if let Poll::Ready(both) = syncs.as_mut().poll(&mut context) {
                break both;
            }
            // Moves the device.
            let _ = pin!(clock.read_at_async(0, 100)).poll(&mut context);
        };
        for error in [synced.unwrap_err(), flushed.unwrap_err()] {
            assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
        }
        bench.heal();
        file.sync_data().unwrap();
        bench.check_disk("a", &contents(seed, 50_000));
    }
}

/// Goal: what cannot be written once, by a write that the end of the engine only meets, is written then. Method: a write that fails
/// unseen on a device that is well again when the last handle goes.
#[test]
fn a_write_that_failed_unseen_is_made_again_at_the_end() {
    let mut waited = 0;
    for seed in 0..20 {
        let options = SimOptions { repolls: false, ..SimOptions::hostile(seed) };
        let rig = Rig::sized(DriverKind::Sim(options), 3 << 20, 8);
        let Bench { rig, directory } = Bench { rig, directory: ScratchDir::on_target().unwrap() };
        let path = directory.path().join("a");
        let file = open(&rig, &path, IoMode::Auto);
        let clock = rig.open(Path::new("/proc/version"), IoMode::Buffered);
        file.write_all_at(&contents(seed, 50_000), 0).unwrap();
        rig.control().add_fault(FaultRange::new(ByteRange::new(0, 1 << 30), EIO));
        let mut context = Context::from_waker(Waker::noop());
        let mut syncing = Box::pin(file.sync_data_async());
        waited += u64::from(syncing.as_mut().poll(&mut context).is_pending());
        // Moves the device, until the write has failed.
        (0..40).for_each(|_| _ = pin!(clock.read_at_async(0, 100)).poll(&mut context));
        rig.control().clear_faults();
        drop((syncing, file, clock, rig));
        same("at the end", 0, &contents(seed, 50_000), &fs::read(&path).unwrap()).unwrap();
    }
    assert!(waited > 0, "every sync was over at once, which tells nothing");
}

/// Goal: a sync that is dropped while it is under way leaves nothing behind, and is no sync of those who come later.
#[test]
fn a_sync_that_was_dropped_leaves_nothing() {
    for seed in 0..40 {
        let bench = Bench::new(seed);
        let file = bench.open("a");
        file.write_all_at(&contents(seed, 5000), 0).unwrap();
        let mut syncing = Box::pin(file.sync_data_async());
        let _ = syncing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(syncing);
        if seed % 2 == 0 {
            let before = bench.rig.control().syncs();
            file.sync_data().unwrap();
            assert!(bench.rig.control().syncs() > before);
        }
        bench.rig.assert_idle();
    }
}

/// Goal: threads that sync one file at once each find on disk what they had written; once a sync has failed, none that begins
/// later succeeds, whoever it was that asked the device. Method: the device fails one sync in the middle.
#[test]
fn syncs_at_once_fail_together() {
    for seed in 0..10 {
        let bench = Bench::new(seed);
        let (has_failed, succeeded) = (AtomicBool::new(false), AtomicU64::new(0));
        let work = &|number: u64| {
            let file = bench.open("a");
            for round in 0..30 {
                let (bytes, at) = (contents(number * 100 + round, 3000), number * 3000);
                file.write_all_at(&bytes, at).unwrap();
                let must_fail = has_failed.load(Ordering::Acquire);
                match file.sync_data() {
                    Ok(()) => {
                        assert!(!must_fail, "success after a sync that failed");
                        let mut found = vec![0; 3000];
                        fs::File::open(bench.path("a")).unwrap().read_exact_at(&mut found, at).unwrap();
                        same("synced", at, &bytes, &found).unwrap();
                        if succeeded.fetch_add(1, Ordering::Relaxed) == 20 {
                            bench.rig.control().fail_syncs(EIO, 1);
                        }
                    }
                    Err(error) => {
                        assert!(is_latched(&error) || error.raw_os_error() == Some(EIO), "{error}");
                        has_failed.store(true, Ordering::Release);
                    }
                }
            }
        };
        watched(&format!("seed {seed}"), || {
            thread::scope(|scope| (0..4).for_each(|number| _ = scope.spawn(move || work(number))));
        });
        assert!(has_failed.into_inner());
        bench.rig.assert_idle();
    }
}

thread_local! {
    /// Errors told in this thread.
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the errors.
struct Errors;

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "headwater" && *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        HEARD.with_borrow_mut(|heard| heard.push(text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

/// Goal: what cannot be written when the engine goes is told to who listens, once for each file, and how much it is; what
/// can is written.
#[test]
fn what_is_lost_is_told() {
    let Bench { rig, directory } = Bench::new(6);
    let bench = Bench { rig, directory };
    let bytes = contents(6, 30_000);
    bench.break_from(8192);
    bench.open("lost").write_all_at(&bytes, 8192).unwrap();
    bench.open("kept").write_all_at(&bytes[..8192], 0).unwrap();
    let Bench { rig, directory } = bench;
    tracing::subscriber::with_default(Errors, || watched("the engine goes", || drop(rig)));
    let heard = HEARD.take();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("lost") && heard[0].contains("pages=8 "), "{heard:?}");
    same("kept", 0, &bytes[..8192], &fs::read(directory.path().join("kept")).unwrap()).unwrap();
}
