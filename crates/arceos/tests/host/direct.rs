//! Direct: a file that is open through the cache and past it at once.
//!
//! Owns: what one kind of handle finds of what the other wrote, and which calls that costs.
//! Does not own: files of which no handle is cached (forms), both kinds at random (model).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use axfs_ng_vfs::VfsError;
use headwater_arceos::{FileBackend, PageEvent, PageIndex, ReadaheadPolicy, SyncScope};
use headwater_testkit::{Rng, watched, with_seed};

use crate::kernel::Host;
use crate::node::{Call, Faults, Kind, Moment, Node};
use crate::rig::{File, Rig, SMALL_BYTES, assert_pattern, pattern, read};

fn direct(file: &File) -> FileBackend<Host> {
    FileBackend::Direct(file.clone())
}

fn read_directly(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xa5; length];
    let read = direct(file).read_at(&mut buffer, offset).unwrap();
    buffer.truncate(read);
    buffer
}

/// A cache without readahead, and a file of four pages.
fn small() -> (Rig, Arc<Node>, File) {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (node, file) = rig.patterned(4);
    (rig, node, file)
}

/// Goal: a direct read is one read of the node, keeps nothing, and ends with the file.
#[test]
fn a_direct_read_keeps_nothing() {
    let (rig, node, file) = small();
    for _ in 0..2 {
        assert_pattern(&read_directly(&file, 100, 9000), 100);
    }
    let call = Call { kind: Kind::Read, offset: 100, length: 9000 };
    assert_eq!((node.take_calls(), rig.stats().resident_pages), (vec![call, call], 0));
    assert_eq!(read_directly(&file, 4 * 4096 - 10, 100).len(), 10);
    assert_eq!(read_directly(&file, 4 * 4096, 100), []);
    assert!(direct(&file).file().ptr_eq(&file));
    drop(file);
    rig.assert_empty();
}

/// Goal: what was written through the cache is found by a direct read, which writes its range and no more.
#[test]
fn a_direct_read_finds_what_is_dirty() {
    let (rig, node, file) = small();
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[2; 4096], 2 * 4096).unwrap();
    node.take_calls();
    assert_eq!(read_directly(&file, 2 * 4096 + 5, 10), [2; 10]);
    assert_eq!(node.calls(Kind::Write), [Call { kind: Kind::Write, offset: 2 * 4096, length: 4096 }]);
    assert_eq!(rig.stats().dirty_pages, 1);
    drop(file);
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: what was written directly is found through the cache, with the bytes around it that were dirty, and longer files too.
#[test]
fn a_cached_read_finds_what_was_written_directly() {
    let (rig, node, file) = small();
    let mut expected = pattern(4);
    assert_pattern(&read(&file, 0, 4 * 4096), 0);
    file.write_at(&[1; 10], 4096).unwrap();
    assert_eq!(direct(&file).write_at(&[2; 5000], 4200), Ok(5000));
    expected[4096..4106].fill(1);
    expected[4200..9200].fill(2);
    assert_eq!(read(&file, 0, expected.len()), expected);
    assert!(node.is(&expected));
    assert_eq!(direct(&file).append(&[3; 100]), Ok((100, expected.len() as u64 + 100)));
    expected.extend([3; 100]);
    assert_eq!(direct(&file).write_at(&[4; 10], expected.len() as u64 + 10_000), Ok(10));
    expected.resize(expected.len() + 10_000, 0);
    expected.extend([4; 10]);
    assert_eq!(file.len(), expected.len() as u64);
    assert_eq!((read(&file, 0, expected.len()), rig.stats().dirty_pages), (expected.clone(), 0));
    assert_eq!(direct(&file).write_at(&[1], u64::MAX), Err(VfsError::FileTooLarge));
    let syncs = node.calls(Kind::Sync).len();
    rig.cache.sync().unwrap();
    assert_eq!(node.calls(Kind::Sync).len(), syncs + 1, "a direct write is to be synced too");
    drop(file);
    rig.assert_empty();
}

/// Goal: pages that are mapped leave by an event when they are written directly.
#[test]
fn a_direct_write_unmaps() {
    let (rig, _, file) = small();
    let evicted = Arc::new(AtomicUsize::new(0));
    let counted = evicted.clone();
    let listener = file.add_evict_listener(move |event| {
        let is_second = matches!(event, PageEvent::Evict { page, .. } if page == PageIndex::new(1));
        counted.fetch_add(usize::from(is_second), Ordering::AcqRel);
    });
    assert_pattern(&read(&file, 0, 4 * 4096), 0);
    direct(&file).write_at(&[1; 10], 5000).unwrap();
    assert_eq!((evicted.load(Ordering::Acquire), rig.stats().resident_pages), (1, 3));
    file.remove_evict_listener(listener);
    drop(file);
    rig.assert_empty();
}

/// Goal: what cannot be written back fails the direct call that needs it, and nothing is lost; calls beside it go on.
#[test]
fn a_write_back_that_fails_is_reported() {
    let (rig, node, file) = small();
    file.write_at(&[1; 4096], 0).unwrap();
    node.set_faults(Faults { writes: 0..4096, ..Faults::default() });
    let mut buffer = [0; 10];
    assert_eq!(direct(&file).read_at(&mut buffer, 0), Err(VfsError::Io));
    assert_eq!(direct(&file).write_at(&[2; 10], 100), Err(VfsError::Io));
    assert_eq!(direct(&file).write_at(&[3; 10], 8192), Ok(10));
    assert_eq!((read(&file, 0, 4096), read(&file, 8192, 10)), (vec![1; 4096], vec![3; 10]));
    node.set_faults(Faults::default());
    assert_eq!(read_directly(&file, 0, 4096), [1; 4096]);
    file.sync(SyncScope::Data).unwrap();
    drop(file);
    rig.assert_empty();
}

/// Goal: a load that began before a direct write and ends after it leaves nothing old behind.
#[test]
fn a_late_load_does_not_undo_a_direct_write() {
    let (rig, node, file) = small();
    let gate = node.gate(Kind::Read, Moment::After, 4096..8192);
    watched("a load that a direct write overtakes", || {
        thread::scope(|scope| {
            let reader = scope.spawn(|| file.read_at(&mut [0; 4096], 4096));
            gate.await_arrivals(1);
            direct(&file).write_at(&[9; 4096], 4096).unwrap();
            gate.open();
            assert_eq!(reader.join().unwrap(), Ok(4096));
        });
    });
    assert_eq!(read(&file, 4096, 4096), [9; 4096]);
    drop(file);
    rig.assert_empty();
}

/// Goal: tasks that write a byte of their own by handles of both kinds, and read it by both, always find what they wrote last. Method: all bytes are in two pages, so that each write is around those of the others.
#[test]
#[cfg_attr(miri, ignore)]
fn handles_of_both_kinds_agree() {
    with_seed("direct::handles_of_both_kinds_agree", |seed| {
        let rig = Rig::small(1);
        let file = rig.open(&rig.node(vec![0; 8192]));
        watched(&format!("seed {seed:#x}"), || {
            thread::scope(|scope| {
                for task in 0..4 {
                    let (file, rig) = (&file, &rig);
                    scope.spawn(move || agree(rig, file, 2048 * task + 2000, &mut Rng::new(seed ^ task)));
                }
            });
        });
        drop(file);
        rig.cache.sync().unwrap();
        rig.assert_empty();
    });
}

fn agree(rig: &Rig, file: &File, offset: u64, rng: &mut Rng) {
    let handles = [FileBackend::Cached(file.clone()), direct(file)];
    for value in 0..2000 {
        let (writer, reader) = (rng.below(2) as usize, rng.below(2) as usize);
        assert_eq!(handles[writer].write_at(&[value as u8; 3], offset), Ok(3));
        if rng.chance(1, 20) {
            rig.cache.sync().unwrap();
        }
        let mut found = [0; 3];
        assert_eq!(handles[reader].read_at(&mut found, offset), Ok(3));
        assert_eq!(found, [value as u8; 3], "step {value}: written by {writer}, read by {reader}");
    }
}
