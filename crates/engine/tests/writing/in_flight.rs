//! In flight: operations that begin while the device still has to write pages of the same file.
//!
//! ```text
//!   write ─► six seconds ─► requests at the device, none of them done ─► the operation ─► what readers find, and the disk
//! ```
//!
//! Owns: one operation at a time, on a device that does requests late and in any order.
//! Does not own: mixtures of operations (oracle, swarm).

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use headwater::testing::SimOptions;
use headwater::{Caching, Coherence, DriverKind, File, IoMode, OpenOptions};
use headwater_testkit::{Pattern, ScratchDir, as_owner, is_more_than_owner, make_cold, skip};

use crate::model::same;
use crate::remap::sharing_file_systems;
use crate::rig::{Rig, block_on, watched};
use crate::threads::open;

/// How an operation is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Call,
    Task,
}

const WAYS: [Way; 2] = [Way::Call, Way::Task];

/// A file of which the device has not yet written all bytes that it was given.
struct Late {
    rig: Rig,
    path: PathBuf,
    file: File,
    /// As readers find them.
    bytes: Vec<u8>,
    what: String,
}

impl Late {
    fn new(directory: &Path, seed: u64, way: Way) -> Late {
        Late::on(SimOptions { remaps: true, ..SimOptions::hostile(seed) }, directory, format!("{way:?}"))
    }

    fn on(options: SimOptions, directory: &Path, what: String) -> Late {
        let seed = options.seed;
        let rig = Rig::sized(DriverKind::Sim(options), 6 << 20, 16);
        let (path, mut bytes) = (directory.join("late"), contents(1, LENGTH));
        fs::write(&path, &bytes).unwrap();
        if is_more_than_owner() {
            // So that its owner opens it for writing alone.
            fs::set_permissions(&path, Permissions::from_mode(0o200)).unwrap();
        }
        make_cold(&fs::File::open(&path).unwrap()).unwrap();
        // Where it is not watched, the writes go directly to the device, else through the kernel's page cache.
        let coherence = [Coherence::Unwatched, Coherence::Revalidated][seed as usize % 2];
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).caching(Caching::On).coherence(coherence).write(true);
        let (file, new) = (options.open(&path).unwrap(), contents(2, LENGTH));
        // Else the first writes to a small file go into the kernel's page cache.
        assert!(file.view(0, LENGTH).unwrap() == bytes[..]);
        // With a page between any two runs, each is a request of its own.
        for start in LATE.step_by(RUN + PAGE) {
            file.write_all_at(&new[start..start + RUN], start as u64).unwrap();
            bytes[start..start + RUN].copy_from_slice(&new[start..start + RUN]);
        }
        let late = Late { rig, path, file, bytes, what: format!("seed {seed}, {what}") };
        late.send();
        late
    }

    /// What is dirty becomes so old that the engine sends it to the device, which does nothing before something waits for it.
    fn send(&self) {
        self.rig.control().advance(Duration::from_secs(6));
        self.rig.engine.maintain();
        let in_flight = self.rig.engine.stats().driver.in_flight;
        assert!(in_flight >= RUNS, "{}: {in_flight} requests in flight", self.what);
    }

    /// Another file of this content, which no page in flight belongs to.
    fn other(&self, bytes: &[u8]) -> File {
        let path = self.path.with_extension("other");
        fs::write(&path, bytes).unwrap();
        make_cold(&fs::File::open(&path).unwrap()).unwrap();
        open(&self.rig, &path, IoMode::Auto)
    }

    fn check_disk(&self) {
        same(&self.what, 0, &self.bytes, &fs::read(&self.path).unwrap()).unwrap();
    }

    /// Readers find these bytes, at once and after a sync, and so does the disk.
    fn check_bytes(&self) {
        let found = || self.file.view(0, self.file.len().unwrap() as usize).unwrap().to_vec();
        same(&self.what, 0, &self.bytes, &found()).unwrap();
        self.file.sync_data().unwrap();
        self.check_disk();
        same(&self.what, 0, &self.bytes, &found()).unwrap();
    }

    /// The same, and once nothing of the file is in memory.
    fn check(self) {
        self.check_bytes();
        let Late { rig, path, file, bytes, what } = self;
        drop(file);
        make_cold(&fs::File::open(&path).unwrap()).unwrap();
        same(&what, 0, &bytes, &fs::read(&path).unwrap()).unwrap();
        rig.assert_idle();
    }
}

/// Goal: a hole stays one: no write that was in flight when it was made arrives after it. Method: holes over these pages, to the end of the
/// file and within it, where the device makes them.
#[test]
fn a_hole_is_not_undone() {
    each(|late, way| {
        for range in [4 * PAGE..175 * PAGE, 4 * PAGE + 9..150 * PAGE - 7, 60 * PAGE..LENGTH + PAGE] {
            let mut late = late();
            let hole = range.start as u64..range.end as u64;
            match way {
                Way::Call => late.file.punch_hole(hole).unwrap(),
                Way::Task => block_on(late.file.punch_hole_async(hole)).unwrap(),
            }
            late.bytes[range.start..range.end.min(LENGTH)].fill(0);
            late.check();
        }
    });
}

/// Goal: what another program appends while a hole waits for writes in flight stays, though the hole reaches to the end of the file as it
/// was, which is within a page. Method: a task that has asked for the hole and waits.
#[test]
fn a_hole_leaves_what_others_append() {
    let directory = ScratchDir::on_target().unwrap();
    for seed in 0..SEEDS {
        let options = SimOptions { remaps: true, repolls: false, ..SimOptions::hostile(seed) };
        let (mut late, others) = (Late::on(options, directory.path(), "a hole".to_owned()), contents(5, 700));
        let clock = late.rig.open(Path::new("/proc/version"), IoMode::Buffered);
        let mut hole = Box::pin(late.file.punch_hole_async(4 * PAGE as u64..LENGTH as u64));
        let mut context = Context::from_waker(Waker::noop());
        assert!(hole.as_mut().poll(&mut context).is_pending(), "{}", late.what);
        fs::OpenOptions::new().append(true).open(&late.path).unwrap().write_all(&others).unwrap();
        watched(&late.what, || {
            while hole.as_mut().poll(&mut context).map(Result::unwrap).is_pending() {
                // Moves the device.
                let _ = pin!(clock.read_at_async(0, 100)).poll(&mut context);
            }
        });
        drop(hole);
        late.bytes[4 * PAGE..].fill(0);
        late.bytes.extend_from_slice(&others);
        late.file.refresh().unwrap();
        late.check_bytes();
    }
}

/// Goal: a file that was made shorter is not made longer again by a write that was in flight, nor does one that grows again show its
/// bytes. Method: ends before, within and behind these pages, and a growth right behind each.
#[test]
fn a_truncate_is_not_undone() {
    each(|late, way| {
        for length in [0, 100, 70 * PAGE, 70 * PAGE + 77, LENGTH - 1, LENGTH + 3 * PAGE] {
            for lengths in [vec![length], vec![length, LENGTH + 5]] {
                let mut late = late();
                for length in lengths {
                    match way {
                        Way::Call => late.file.set_len(length as u64).unwrap(),
                        Way::Task => block_on(late.file.set_len_async(length as u64)).unwrap(),
                    }
                    late.bytes.resize(length, 0);
                }
                late.check();
            }
        }
    });
}

/// Goal: bytes that are copied over pages in flight stay, and bytes that are copied out of them are the latest. Method: whole pages and
/// parts of them, data and holes, from another file and to another one, where files share extents and where they do not.
#[test]
fn copies_are_not_undone() {
    let shared = sharing_file_systems().map(|(_, directory)| directory);
    for directory in [ScratchDir::on_target().unwrap()].into_iter().chain(shared) {
        each_in(directory.path(), SEEDS.min(2), |late, way| {
            for (start, length, at) in [
                (0, 170 * PAGE, 2 * PAGE),
                (9, 150 * PAGE, 5 * PAGE + 9),
                (9, 150 * PAGE, 5 * PAGE),
                (0, LENGTH, 0),
            ] {
                for source in [contents(3, LENGTH), vec![0; LENGTH]] {
                    let mut late = late();
                    let other = late.other(&source);
                    copy(way, &other, start..start + length, &late.file, at);
                    let copied = &source[start..(start + length).min(LENGTH)];
                    let end = at + copied.len();
                    late.bytes.resize(late.bytes.len().max(end), 0);
                    late.bytes[at..end].copy_from_slice(copied);
                    late.check();
                }
                let late = late();
                let other = late.other(&[]);
                copy(way, &late.file, start..start + length, &other, at);
                let mut expected = vec![0; at];
                expected.extend_from_slice(&late.bytes[start..(start + length).min(LENGTH)]);
                other.sync_data().unwrap();
                let disk = fs::read(late.path.with_extension("other")).unwrap();
                same(&late.what, 0, &expected, &disk).unwrap();
                drop(other);
                late.check();
            }
        });
    }
}

fn copy(way: Way, from: &File, range: Range<usize>, to: &File, at: usize) {
    let bytes = range.start as u64..range.end as u64;
    let copied = match way {
        Way::Call => from.copy_range_to(bytes, to, at as u64),
        Way::Task => block_on(from.copy_range_to_async(bytes, to, at as u64)),
    };
    assert_eq!(copied.unwrap(), (range.end.min(LENGTH) - range.start) as u64);
}

/// Goal: a flush and a sync that begin while writes are in flight end after them: the disk has all bytes. Method: none is dirty any more
/// when they begin, and the same once a page in flight has been written again.
#[test]
fn a_sync_waits_for_what_others_began() {
    each(|late, way| {
        for scope in 0..3 {
            for is_rewritten in [false, true] {
                let mut late = late();
                if is_rewritten {
                    let start = LATE.start + 2 * PAGE;
                    late.file.write_all_at(&[7; PAGE], start as u64).unwrap();
                    late.bytes[start..start + PAGE].fill(7);
                }
                let file = &late.file;
                match (way, scope) {
                    (Way::Call, 0) => file.flush(),
                    (Way::Call, 1) => file.sync_data(),
                    (Way::Call, _) => file.sync_all(),
                    (Way::Task, 0) => block_on(file.flush_async()),
                    (Way::Task, 1) => block_on(file.sync_data_async()),
                    (Way::Task, _) => block_on(file.sync_all_async()),
                }
                .unwrap();
                late.check_disk();
                late.check();
            }
        }
    });
}

/// Goal: a handle of the engine that only writes puts its bytes over those in flight, not below them. Method: all of these pages, and some
/// bytes of each.
#[test]
fn a_write_that_cannot_read_comes_last() {
    if !is_more_than_owner() {
        return skip("only root opens what its owner cannot read");
    }
    each(|late, way| {
        for (step, length) in [(PAGE, PAGE), (3 * PAGE + 1000, 700), (7 * PAGE, 2 * PAGE)] {
            let mut late = late();
            let mut options = OpenOptions::new();
            let only = as_owner(|| options.engine(&late.rig.engine).write(true).open(&late.path)).unwrap();
            assert_eq!(only.view(0, 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
            for start in LATE.step_by(step) {
                let piece = vec![9; length];
                match way {
                    Way::Call => only.write_all_at(&piece, start as u64).unwrap(),
                    Way::Task => block_on(only.write_all_at_async(piece.clone(), start as u64)).unwrap(),
                }
                late.bytes[start..start + piece.len()].copy_from_slice(&piece);
            }
            drop(only);
            late.check();
        }
    });
}

/// Goal: what is appended while the last pages are in flight lies behind them and stays, also where it is durable at once. Method: an end
/// within a page, appended to by the handle that wrote it and by one that appends together with other programs.
#[test]
fn an_append_lies_behind_what_is_in_flight() {
    each(|late, way| {
        for (is_shared, is_durable) in [(false, false), (false, true), (true, false), (true, true)] {
            for more in [1, 777, 18 * PAGE] {
                let mut late = late();
                let end = contents(4, more);
                late.file.append(&end).unwrap();
                late.bytes.extend_from_slice(&end);
                late.send();
                let mut options = OpenOptions::new();
                let shared = options.engine(&late.rig.engine).append(true).open(&late.path).unwrap();
                let log = if is_shared { &shared } else { &late.file };
                let record = contents(5, 1000);
                let at = match (way, is_durable) {
                    (Way::Call, false) => log.append(&record),
                    (Way::Call, true) => log.append_durable(&record),
                    (Way::Task, false) => block_on(log.append_async(record.clone())),
                    (Way::Task, true) => block_on(log.append_durable_async(record.clone())),
                };
                assert_eq!(at.unwrap(), late.bytes.len() as u64, "{}", late.what);
                late.bytes.extend_from_slice(&record);
                if is_durable {
                    late.check_disk();
                }
                drop(shared);
                late.check();
            }
        }
    });
}

/// Goal: what a handle writes and appends while another one waits for the device, to write alone or to append together with other programs,
/// is neither lost nor written over. Method: a task that has been polled once, a write and an append that do not wait, the rest of the task.
#[test]
fn what_comes_while_a_call_waits_stays() {
    if !is_more_than_owner() {
        return skip("only root opens what its owner cannot read");
    }
    let directory = ScratchDir::on_target().unwrap();
    for (seed, kind) in (0..SEEDS).flat_map(|seed| ["alone", "shared", "durable"].map(|kind| (seed, kind))) {
        let options = SimOptions { repolls: false, ..SimOptions::hostile(seed) };
        let mut late = Late::on(options, directory.path(), kind.to_owned());
        let clock = late.rig.open(Path::new("/proc/version"), IoMode::Buffered);
        let mut options = OpenOptions::new();
        options.engine(&late.rig.engine);
        let alone = as_owner(|| options.write(true).open(&late.path)).unwrap();
        let shared = options.append(true).open(&late.path).unwrap();
        let (record, other, place) = (contents(6, 900), contents(7, 700), LATE.start + PAGE);
        let mut waiting: Pin<Box<dyn Future<Output = u64>>> = match kind {
            "alone" => {
                let written = alone.write_all_at_async(record.clone(), place as u64);
                Box::pin(async { written.await.map(|()| 0).unwrap() })
            }
            "shared" => Box::pin(shared.append_async(record.clone()).map(Result::unwrap)),
            _ => Box::pin(shared.append_durable_async(record.clone()).map(Result::unwrap)),
        };
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "{}", late.what);
        assert_eq!(late.file.append(&other).unwrap(), LENGTH as u64);
        late.bytes.extend_from_slice(&other);
        late.file.write_all_at(&other, (place + 2000) as u64).unwrap();
        late.bytes[place + 2000..place + 2700].copy_from_slice(&other);
        let at = watched(&late.what, || {
            loop {
                if let Poll::Ready(at) = waiting.as_mut().poll(&mut context) {
                    break at as usize;
                }
                // Moves the device.
                let _ = pin!(clock.read_at_async(0, 100)).poll(&mut context);
            }
        });
        if kind == "alone" {
            late.bytes[place..place + record.len()].copy_from_slice(&record);
        } else {
            assert_eq!(at, late.bytes.len(), "{}", late.what);
            late.bytes.extend_from_slice(&record);
        }
        late.check_bytes();
    }
}

/// Goal: reserved space changes no byte, whether its range is in flight, or lies behind.
#[test]
fn reserved_space_changes_nothing() {
    each(|late, _| {
        for range in [0..LENGTH, 3 * PAGE + 1..LENGTH * 2] {
            let late = late();
            match late.file.allocate(range.start as u64..range.end as u64) {
                Err(error) if error.kind() != ErrorKind::Unsupported => panic!("{error}"),
                _ => late.check(),
            }
        }
    });
}

/// Goal: the end of an engine waits for what is in flight, and one file that is opened again has it. Method: all handles are dropped; the
/// file is opened again, or the engine ends.
#[test]
fn a_close_loses_nothing() {
    each(|late, _| {
        let Late { rig, path, file, bytes, what } = late();
        drop(file);
        let again = open(&rig, &path, IoMode::Auto);
        same(&what, 0, &bytes, &again.view(0, LENGTH).unwrap().to_vec()).unwrap();
        Late { rig, path, file: again, bytes, what }.check();

        let Late { rig, path, file, bytes, what } = late();
        drop((file, rig));
        same(&what, 0, &bytes, &fs::read(path).unwrap()).unwrap();
    });
}

/// Runs a test with each seed, by calls and by tasks. What the test is given makes a file with pages in flight, as often as it is called.
fn each(test: impl Fn(&dyn Fn() -> Late, Way)) {
    let directory = ScratchDir::on_target().unwrap();
    each_in(directory.path(), SEEDS, test);
}

fn each_in(directory: &Path, seeds: u64, test: impl Fn(&dyn Fn() -> Late, Way)) {
    for seed in 0..seeds {
        for way in WAYS {
            watched(&format!("seed {seed}, {way:?}"), || test(&|| Late::new(directory, seed, way), way));
        }
    }
}

fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Pattern::new(seed).fill(0, &mut bytes);
    bytes
}

const PAGE: usize = 4096;

/// Not whole pages.
const LENGTH: usize = 180 * PAGE + 123;

/// More pages than the engine copies into the kernel's page cache itself, and enough of them in all that they go to the device directly.
const RUN: usize = 40 * PAGE;

const RUNS: usize = 4;

/// From here to there, runs are in flight.
const LATE: Range<usize> = 6 * PAGE..6 * PAGE + RUNS * (RUN + PAGE);

const SEEDS: u64 = 4;
