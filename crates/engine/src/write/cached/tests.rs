//! Tests: writes that find no memory, and their files until there is some.
//!
//! Owns: an engine, and all of its memory, which the test takes and returns.
//! Does not own: writes with memory (the engine's `writing` tests).

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

use headwater_io::{DriverKind, Extent, Urgency};
use headwater_testkit::{block_on, run_forked, run_self_with_env};
use tempfile::TempDir;

use super::*;
use crate::api::contents::Contents;
use crate::api::file::File;
use crate::engine::Engine;
use crate::inode::ALL_PAGES;
use crate::write::fsync;
use crate::{Caching, IoMode, OpenOptions};

/// Goal: a page that was read past the cache is not used once the page was written to, and no written byte is lost. Method: a
/// write to a part of it waits for memory; the whole page is written, also to the device, and leaves.
#[test]
fn a_page_written_since_it_was_read_is_read_again() {
    let bench = Bench::new(&[1; LENGTH]);
    let mut held = bench.all_memory();
    let mut write = bench.write_a_part();
    let next = write.advance(&PART).unwrap();
    write.wait(next.expect("there is no memory")).unwrap();
    let next = write.advance(&PART).unwrap();
    assert!(write.base.is_some() && matches!(next, Some(WriteNext::Wait(MemoryWait::Memory(_)))));
    held.clear();
    bench.file.write_all_at(&[3; LENGTH], 0).unwrap();
    bench.file.sync_data().unwrap();
    bench.drop_pages();
    finish(write);
    bench.assert_merged_with(3);
}

/// Goal: as above, if the page was written to before it was read past the cache, and has reached the device since. Method: the
/// page leaves when its write ends, before that is recorded.
#[test]
fn a_page_being_written_when_it_was_read_is_read_again() {
    let bench = Bench::new(&[1; LENGTH]);
    let mut held = bench.all_memory();
    let mut write = bench.write_a_part();
    let next = write.advance(&PART).unwrap();
    held.truncate(held.len() - 2 * LENGTH / PAGE_BYTES);
    bench.file.write_all_at(&[3; LENGTH], 0).unwrap();
    write.wait(next.expect("there is no memory")).unwrap();
    let shared = &bench.engine.shared;
    writeback::begin(shared, bench.inode(), ALL_PAGES, writeback::SYNC_RUNS, Awaited::No);
    let writing = shared.cache.writes.oldest_moving().expect("too much to be copied at once");
    let outcome = writing.let_go(writing.finished());
    bench.drop_pages();
    let next = write.advance(&PART).unwrap();
    shared.cache.writes.over(&writing, outcome);
    if let Some(next) = next {
        write.wait(next).unwrap();
        finish(write);
    }
    bench.assert_merged_with(3);
}

/// Goal: a page that was read past the cache is used although something was written beside it, so that a busy writer does not keep
/// others waiting. Method: a write to a part of it waits for memory; another page is written, also to the device.
#[test]
fn a_page_beside_which_was_written_is_used() {
    let bench = Bench::new(&[1; 3 * LENGTH]);
    let mut held = bench.all_memory();
    let mut write = bench.write_a_part();
    let next = write.advance(&PART).unwrap();
    write.wait(next.expect("there is no memory")).unwrap();
    held.clear();
    bench.file.write_all_at(&[3; LENGTH], 2 * LENGTH as u64).unwrap();
    bench.file.sync_data().unwrap();
    bench.file.write_all_at(&[3; LENGTH], 2 * LENGTH as u64).unwrap();
    bench.drop_pages();
    assert!(write.advance(&PART).unwrap().is_none() && write.base.is_none(), "it is read again");
    drop(write);
    bench.assert_merged_with(1);
}

/// Goal: a write beyond the end that is dropped before its bytes are in the file removes the gap of zeros that it made; only the
/// process that began the write does so, not a forked child. Method: a task that waits for memory is dropped first by a child, in
/// which a lock of the file stays locked, then by its process.
#[test]
fn a_child_leaves_a_gap_to_its_parent() {
    const CHILD: &str = "HEADWATER_GAP_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let name = "write::cached::tests::a_child_leaves_a_gap_to_its_parent";
        // Other tests of this binary have threads that hold locks.
        let output = run_self_with_env(name, CHILD, "1");
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let bench = Bench::new(b"");
    let held = bench.all_memory();
    let mut writing = Box::pin(bench.file.write_all_at_async(&PART[..], 10_000));
    assert!(writing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let length_bytes = || std::fs::metadata(&bench.path).unwrap().len();
    assert_eq!(length_bytes(), 10_000, "no gap");
    let mut inherited = Some(writing);
    let taken = bench.inode().dirty.device_length();
    run_forked(|| drop(inherited.take()));
    assert_eq!(length_bytes(), 10_000, "the child has truncated the file");
    drop(taken);
    drop(inherited);
    assert_eq!(length_bytes(), 0);
    drop(held);
}

/// Goal: while a write beyond the end waits for memory, no check takes the zeros before it for the file, so that no other write lands among
/// them, to be cut off when the first is dropped. What another program appends meanwhile stays.
#[test]
fn a_check_takes_no_gap_for_the_file() {
    let bench = Bench::new(b"");
    let length_bytes = || std::fs::metadata(&bench.path).unwrap().len();
    let begin = |at_bytes| {
        let mut writing = Box::pin(bench.file.write_all_at_async(&PART[..], at_bytes));
        assert!(writing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        bench.file.refresh().unwrap();
        writing
    };
    let held = bench.all_memory();
    let writing = begin(10_000);
    assert_eq!((length_bytes(), bench.file.len().unwrap()), (10_000, 0));
    drop(writing);
    assert_eq!((length_bytes(), bench.file.len().unwrap()), (0, 0));
    let writing = begin(10_000);
    std::fs::OpenOptions::new().append(true).open(&bench.path).unwrap().write_all(b"others").unwrap();
    bench.file.refresh().unwrap();
    assert_eq!(bench.file.len().unwrap(), 10_006);
    drop(writing);
    assert_eq!(length_bytes(), 10_006);
    let writing = begin(20_000);
    drop(held);
    block_on(writing).unwrap();
    bench.file.refresh().unwrap();
    assert_eq!(bench.file.len().unwrap(), 20_000 + PART.len() as u64);
}

/// Goal: the same beside a write to another place of the file, which is no part of that gap: what is written and synced between them
/// stays.
#[test]
fn a_write_elsewhere_leaves_the_gap() {
    let bench = Bench::new(&[1; 100]);
    let mut held = bench.all_memory();
    let mut writing = Box::pin(bench.file.write_all_at_async(&PART[..], 10_000));
    assert!(writing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The task is not polled, so the page has this.
    drop(held.pop());
    bench.file.write_all_at(b"x", 0).unwrap();
    bench.file.refresh().unwrap();
    assert_eq!(bench.file.len().unwrap(), 100);
    drop(writing);
    assert_eq!(std::fs::metadata(&bench.path).unwrap().len(), 100);
    drop(held);
}

/// Goal: a task that an exit has taken the size lock from appends nothing more, and does not remove the gap that it has left: another
/// write may lie there by then. Method: tasks that wait for memory, of which the first is polled again and the second is dropped.
#[test]
fn a_task_that_lost_the_size_lock_changes_nothing() {
    let bench = Bench::new(b"");
    let mut held = bench.all_memory();
    let seize = || drop(bench.inode().dirty.size_lock.lock_leaving(Instant::now()));
    let mut appending = Box::pin(bench.file.append_async(&PART[..]));
    assert!(appending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    seize();
    held.truncate(held.len() - 2);
    bench.file.append(b"another").unwrap();
    let error = block_on(appending).unwrap_err();
    assert!(error.to_string().contains("the process ends"), "{error}");
    bench.file.sync_data().unwrap();
    bench.drop_pages();
    held.extend(bench.all_memory());
    let mut writing = Box::pin(bench.file.write_all_at_async(&PART[..], 10_000));
    assert!(writing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    seize();
    held.truncate(held.len() - 2);
    bench.file.write_all_at(b"x", 9_999).unwrap();
    bench.file.sync_data().unwrap();
    drop(writing);
    let disk = std::fs::read(&bench.path).unwrap();
    assert_eq!((&disk[..7], &disk[9_999..]), (&b"another"[..], &b"x"[..]));
}

/// Goal: what sees that a file was written to also sees that its device lacks bytes, so that nothing takes the device's for the newest.
/// Method: first writes after a sync, beside a thread that looks at both.
#[test]
fn a_new_version_is_seen_with_its_dirty_pages() {
    let bench = Bench::new(&[1; 100]);
    let (inode, seen) = (bench.inode().clone(), AtomicU64::new(0));
    let (rounds, mut before) = (2000, inode.dirty.generation());
    std::thread::scope(|scope| {
        let look = || {
            for round in 1..=rounds {
                while inode.dirty.generation() == before {
                    std::thread::yield_now();
                }
                assert!(inode.dirty.may_lack(), "round {round}");
                before = inode.dirty.generation();
                seen.store(round, Ordering::Release);
            }
        };
        let looking = scope.spawn(look);
        for round in 1..=rounds {
            bench.file.write_all_at(b"x", 0).unwrap();
            while seen.load(Ordering::Acquire) < round && !looking.is_finished() {
                std::thread::yield_now();
            }
            if looking.is_finished() {
                break;
            }
            fsync::flush(&bench.engine.shared, &inode, ALL_PAGES);
        }
    });
}

/// Goal: a file that is to be at least so long, and that another program makes longer while this waits for memory, keeps what that program
/// has written.
#[test]
fn growing_cuts_off_nothing() {
    let bench = Bench::new(b"");
    let held = bench.all_memory();
    let mut growing = Box::pin(bench.source().grow_to_async(10_000));
    assert!(growing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::fs::write(&bench.path, [7; 20_000]).unwrap();
    drop(held);
    block_on(growing).unwrap();
    bench.file.refresh().unwrap();
    assert_eq!(bench.file.len().unwrap(), 20_000);
    assert!(std::fs::read(&bench.path).unwrap() == [7; 20_000]);
}

/// Goal: a closed file that cannot be forgotten because it has unwritten bytes is forgotten once they are written.
#[test]
fn an_unwritten_file_is_forgotten_in_the_end() {
    let bench = Bench::new(b"");
    let shared = &bench.engine.shared;
    let closed = |name, is_written| {
        let path = bench.path.with_extension(name);
        std::fs::write(&path, [1; LENGTH]).unwrap();
        let mut options = OpenOptions::new();
        let file = options.engine(&bench.engine).caching(Caching::On).write(true).open(&path).unwrap();
        file.view(0, LENGTH).unwrap();
        if is_written {
            file.write_all_at(&[2; LENGTH], 0).unwrap();
        }
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        source.known().unwrap().clone()
    };
    let unwritten = closed("unwritten", true);
    assert!(unwritten.dirty.may_lack());
    shared.cache.inodes.remember_closed(&closed("second", false), 1);
    fsync::flush(shared, &unwritten, ALL_PAGES);
    let known = Arc::downgrade(&unwritten);
    drop(unwritten);
    assert!(known.upgrade().is_some());
    shared.cache.inodes.remember_closed(&closed("third", false), 1);
    assert!(known.upgrade().is_none());
}

/// An engine used by this thread only, and a file. The engine is dropped before the directory.
struct Bench {
    engine: Engine,
    file: File,
    path: PathBuf,
    _directory: TempDir,
}

impl Bench {
    fn new(contents: &[u8]) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, contents).unwrap();
        let engine = Engine::builder().memory(3 << 20).driver(DriverKind::Threads).build().unwrap();
        engine.shared.background.stop();
        let mut options = OpenOptions::new();
        options.engine(&engine).caching(Caching::On).io(IoMode::Buffered).write(true);
        let file = options.open(&path).unwrap();
        Bench { engine, file, path, _directory: directory }
    }

    /// All frames, page by page.
    fn all_memory(&self) -> Vec<Extent> {
        std::iter::from_fn(|| self.engine.shared.arena.allocate(PAGE_BYTES, Urgency::Demand)).collect()
    }

    fn source(&self) -> &Arc<Source> {
        let Contents::Stored(source) = &self.file.contents else { panic!("it is a file") };
        source
    }

    fn inode(&self) -> &Arc<Inode> {
        self.source().known().unwrap()
    }

    fn write_a_part(&self) -> CachedWrite<'_> {
        let place = Place::At(PART_START as u64);
        CachedWrite::new(self.source(), self.inode(), Caller::Thread, PART.len(), place)
    }

    fn drop_pages(&self) {
        self.inode().drop_pages(ALL_PAGES);
        assert!(!self.inode().pages.holds(PageIndex::new(0)));
    }

    /// Asserts that the file begins with this byte in all places, but for those that a part was written to after that.
    fn assert_merged_with(&self, byte: u8) {
        let mut expected = [byte; LENGTH];
        expected[PART_START..][..PART.len()].copy_from_slice(&PART);
        let mut found = [0; LENGTH];
        self.file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found.iter().zip(&expected).position(|(found, expected)| found != expected), None);
    }
}

/// Continues until all is written.
fn finish(mut write: CachedWrite<'_>) {
    while let Some(next) = write.advance(&PART).unwrap() {
        write.wait(next).unwrap();
    }
}

const PART: [u8; 100] = [2; 100];

const PART_START: usize = 200;

/// More than is written without a request.
const LENGTH: usize = 32 * PAGE_BYTES;
