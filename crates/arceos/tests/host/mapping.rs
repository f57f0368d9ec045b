//! Mapping: what faults get, and what a mapping sees of writes, truncates, evictions and write-back.
//!
//! Owns: one rule each.
//! Does not own: random mixtures (oracle, soak), the mappings themselves (address space), listeners (listeners).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use axfs_ng_vfs::VfsError;
use headwater_arceos::{
    FileBackend, PageAccess, PageIndex, PageRange, PutPages, ReadaheadPolicy, ShrinkScope, SyncScope,
};
use headwater_testkit::watched;

use crate::address_space::Mapping;
use crate::node::{Faults, Kind, Moment};
use crate::rig::{File, Rig, SMALL_BYTES, assert_pattern, pattern, read, until};

/// Goal: a fault maps what is there around it, reads nothing for that, and a mapping that is read in order is read ahead all the same.
#[test]
#[cfg_attr(miri, ignore)]
fn a_fault_maps_its_neighbours() {
    let rig = Rig::small(1);
    let (node, file) = rig.patterned(256);
    let mapping = Mapping::new(&file, 16);
    assert_pattern(&loaded(&mapping, 0, 256 * 4096), 0);
    assert_eq!(rig.stats().misses, 1, "what is behind a mark is not read ahead");
    // Nothing is marked any more.
    let (alone, together) = (Mapping::new(&file, 1), Mapping::new(&file, 16));
    node.take_calls();
    for mapping in [&alone, &together] {
        assert_pattern(&loaded(mapping, 0, 256 * 4096), 0);
    }
    assert_eq!((alone.faults(), together.faults()), (256, 16));
    file.put_pages(pages(3, 5), PutPages::Free).unwrap();
    assert_eq!((alone.pages(), together.pages()), ((254, 0), (254, 0)));
    let again = Mapping::new(&file, 16);
    let _ = loaded(&again, 0, 1);
    assert_eq!((again.pages(), node.calls(Kind::Read).len()), ((14, 0), 0));
    drop((mapping, alone, together, again, file));
    rig.assert_empty();
}

/// Goal: a page that is stored to is written once for each time that it is dirty, and what is stored while it is written, or after that failed,
/// is written too.
#[test]
#[cfg_attr(miri, ignore)]
fn a_store_beside_a_write_back_is_not_lost() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    let mapping = Mapping::new(&file, 1);
    mapping.store(0, &[1]).unwrap();
    mapping.store(1, &[1]).unwrap();
    assert_eq!((mapping.faults(), mapping.pages(), rig.stats().dirty_pages), (1, (1, 1), 1));
    let gate = node.gate(Kind::Write, Moment::After, 0..4096);
    watched("a store beside a write-back", || {
        thread::scope(|scope| {
            let syncer = scope.spawn(|| file.sync(SyncScope::Data));
            gate.await_arrivals(1);
            assert_eq!((mapping.protected(), mapping.pages()), (1, (1, 0)));
            let storer = scope.spawn(|| mapping.store(0, &[2]));
            gate.open();
            assert_eq!((syncer.join().unwrap(), storer.join().unwrap()), (Ok(()), Ok(())));
        });
    });
    assert_eq!((node.bytes()[..2].to_vec(), rig.stats().dirty_pages), (vec![1, 1], 1));
    node.set_faults(Faults { writes: 0..4096, ..Faults::default() });
    assert_eq!(file.sync(SyncScope::Data), Err(VfsError::Io));
    mapping.store(1, &[3]).unwrap();
    node.set_faults(Faults::default());
    file.sync(SyncScope::Data).unwrap();
    assert_eq!((node.bytes()[..2].to_vec(), rig.stats().dirty_pages), (vec![2, 3], 0));
    drop((mapping, file));
    rig.assert_empty();
}

/// Goal: how a page may be mapped follows what becomes of it while the fault has it pinned: dirty, being written, written, cut off.
#[test]
#[cfg_attr(miri, ignore)]
fn access_is_that_of_the_moment() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    let events = Arc::new(AtomicU64::new(0));
    let counter = events.clone();
    file.add_evict_listener(move |_| _ = counter.fetch_add(1, Ordering::AcqRel));
    let gate = node.gate(Kind::Write, Moment::Before, 0..4096);
    watched("a page that changes while a fault has it", || {
        let mut seen = Vec::new();
        let fault = thread::scope(|scope| {
            file.get_pages(PageIndex::new(0), PageAccess::Write, pages(0, 1), |found| {
                seen.push(("dirty", found.access()));
                let syncer = scope.spawn(|| file.sync(SyncScope::Data));
                until(|| events.load(Ordering::Acquire) == 1);
                seen.push(("being written", found.access()));
                gate.open();
                assert_eq!(syncer.join().unwrap(), Ok(()));
                seen.push(("clean", found.access()));
                assert_eq!((file.set_len(0), events.load(Ordering::Acquire)), (Ok(()), 2));
                seen.push(("cut off", found.access()));
            })
        });
        let (read, write) = (Some(PageAccess::Read), Some(PageAccess::Write));
        let expected = [("dirty", write), ("being written", read), ("clean", read), ("cut off", None)];
        assert_eq!((fault, seen.as_slice()), (Ok(()), expected.as_slice()));
    });
    drop(file);
    rig.assert_empty();
}

/// Goal: once the write of a page is decided on, a store to the page waits for that write, one time, and the next sync writes the
/// store. Method: two pages that do not lie together, so that the second is not held while the first is written.
#[test]
#[cfg_attr(miri, ignore)]
fn a_store_waits_for_a_write_that_is_about_to_begin() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (node, file) = rig.patterned(2);
    let (mapping, other) = (Mapping::new(&file, 1), Mapping::new(&file, 1));
    mapping.store(4096, &[1]).unwrap();
    mapping.store(0, &[1]).unwrap();
    let gate = node.gate(Kind::Write, Moment::Before, 0..4096);
    watched("a store before a write", || {
        thread::scope(|scope| {
            let syncer = scope.spawn(|| file.sync(SyncScope::Data));
            gate.await_arrivals(1);
            // A page in between is dirty by a call as well.
            file.mark_dirty(PageIndex::new(1)).unwrap();
            let storer = scope.spawn(|| other.store(4096, &[2]));
            until(|| other.faults() > 0);
            (0..1000).for_each(|_| thread::yield_now());
            gate.open();
            assert_eq!((syncer.join().unwrap(), storer.join().unwrap()), (Ok(()), Ok(())));
        });
    });
    assert!(other.faults() <= 2, "{} faults for a store", other.faults());
    other.check();
    file.sync(SyncScope::Data).unwrap();
    assert_eq!((node.bytes()[0], node.bytes()[4096]), (1, 2));
    drop((mapping, other, file));
    rig.assert_empty();
}

/// Goal: a page that was marked before its write began, and is clean after it, is not stored to without another mark, which is another write.
#[test]
#[cfg_attr(miri, ignore)]
fn a_mark_before_a_write_allows_no_store_after_it() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (node, file) = rig.patterned(2);
    let mapping = Mapping::new(&file, 1);
    mapping.store(4096, &[1]).unwrap();
    mapping.store(0, &[1]).unwrap();
    let gate = node.gate(Kind::Write, Moment::Before, 0..4096);
    watched("a mark before a write", || {
        thread::scope(|scope| {
            let syncer = scope.spawn(|| file.put_pages(pages(0, 2), PutPages::WriteBack));
            gate.await_arrivals(1);
            file.mark_dirty(PageIndex::new(1)).unwrap();
            gate.open();
            assert_eq!(syncer.join().unwrap(), Ok(()));
        });
    });
    let other = Mapping::new(&file, 1);
    assert_eq!(loaded(&other, 4096, 1), [1]);
    other.check();
    other.store(4096, &[2]).unwrap();
    file.sync(SyncScope::Data).unwrap();
    assert_eq!(node.bytes()[4096], 2);
    drop((mapping, other, file));
    rig.assert_empty();
}

/// Goal: a sync brings what was stored before it to the node, whatever is written back and evicted meanwhile. Method: numbers that grow, in
/// pages that are neighbours, stored by one thread; two others sync, and shrink the cache.
#[test]
#[cfg_attr(miri, ignore)]
fn a_sync_brings_what_was_stored_before_it() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(16);
    let (mapping, other) = (Mapping::new(&file, 16), Mapping::new(&file, 16));
    let (stored, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    watched("stores beside syncs", || {
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (1u64..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                    let store = || mapping.store(number % 16 * 4096, &number.to_le_bytes());
                    // The other thread may have taken the one chunk out of circulation, and then lost its processor.
                    while let Err(error) = store() {
                        assert_eq!(error, VfsError::NoMemory);
                        thread::yield_now();
                    }
                    // A neighbour of what is dirty, and of what is about to be clean.
                    let _ = loaded(&other, (number + 8) % 16 * 4096, 1);
                    stored.store(number, Ordering::Release);
                }
            });
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    file.put_pages(pages(0, 16), PutPages::Free).unwrap();
                    rig.cache.shrink(0, ShrinkScope::Clean);
                }
            });
            let mut lost = None;
            for _ in 0..ROUNDS {
                let before = stored.load(Ordering::Acquire);
                file.sync(SyncScope::Data).unwrap();
                let bytes = node.bytes();
                let page = before as usize % 16 * 4096;
                let found = u64::from_le_bytes(bytes[page..][..8].try_into().unwrap());
                if before > 0 && found < before {
                    lost = lost.or(Some((before, found)));
                }
            }
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(lost, None, "a store did not reach the node");
        });
    });
    drop((mapping, other, file));
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: a truncate takes pages out of mappings, what is behind the end is an error, and what a program stored behind the end in the last page
/// is gone when the file gets longer, however that happens.
#[test]
#[cfg_attr(miri, ignore)]
fn a_truncate_takes_pages_out_of_mappings() {
    for grow in [by_length, by_append, by_write, by_direct_write] {
        let rig = Rig::small(0);
        let (node, file) = rig.patterned(20);
        let mapping = Mapping::new(&file, 16);
        let _ = loaded(&mapping, 0, 20 * 4096);
        mapping.store(2 * 4096, &[1; 4096]).unwrap();
        file.set_len(2 * 4096 + 100).unwrap();
        assert_eq!(mapping.pages().0, 3);
        assert_eq!(mapping.load(3 * 4096, &mut [0]), Err(VfsError::InvalidInput));
        assert_eq!(mapping.store(3 * 4096, &[0]), Err(VfsError::InvalidInput));
        let mut expected = [[1; 100].as_slice(), &[0; 3996]].concat();
        assert_eq!(loaded(&mapping, 2 * 4096, 4096), expected);
        mapping.store(2 * 4096 + 50, &[2; 300]).unwrap();
        file.sync(SyncScope::Data).unwrap();
        mapping.store(2 * 4096 + 90, &[2; 300]).unwrap();
        grow(&file);
        expected[50..100].fill(2);
        assert_eq!(loaded(&mapping, 2 * 4096, 4096), expected);
        assert_eq!(read(&file, 2 * 4096, 4096), expected);
        file.sync(SyncScope::Data).unwrap();
        assert_eq!(node.bytes()[2 * 4096..][..4096], expected);
        // A page that a call has made dirty can be stored to after a load.
        let other = rig.open(&rig.node(vec![0; 100]));
        other.write_at(&[1; 50], 0).unwrap();
        let of_other = Mapping::new(&other, 1);
        let _ = loaded(&of_other, 0, 100);
        of_other.store(0, &[2; 300]).unwrap();
        grow(&other);
        assert_eq!(
            (of_other.faults(), read(&other, 0, 4096)),
            (1, [[2; 100].as_slice(), &[0; 3996]].concat())
        );
        drop((mapping, file, of_other, other));
        rig.cache.sync().unwrap();
        rig.assert_empty();
    }
}

fn by_length(file: &File) {
    file.set_len(4 * 4096).unwrap();
}

fn by_append(file: &File) {
    file.append(&[0; 8000]).unwrap();
}

fn by_write(file: &File) {
    file.write_at(&[7; 10], 4 * 4096).unwrap();
}

fn by_direct_write(file: &File) {
    FileBackend::Direct(file.clone()).write_at(&[7; 10], 4 * 4096).unwrap();
}

/// Goal: a fault that meets a truncate does not map what was cut off. Method: threads fault in a page as it is written, cut off, and there
/// again as nothing; it is loaded from after each.
#[test]
#[cfg_attr(miri, ignore)]
fn no_fault_maps_what_was_cut_off() {
    let rig = Rig::small(0);
    let (_, file) = rig.patterned(1);
    let (mapping, is_done) = (Mapping::new(&file, 1), AtomicBool::new(false));
    watched("faults beside truncates", || {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        // Beyond the end half of the time.
                        let _ = mapping.fault(0, PageAccess::Read);
                    }
                });
            }
            let mut stale = 0;
            for _ in 0..ROUNDS {
                file.write_at(&[5; 4096], 0).unwrap();
                file.set_len(0).unwrap();
                file.set_len(4096).unwrap();
                stale += u32::from(loaded(&mapping, 9, 1) != [0]);
            }
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(stale, 0, "pages are mapped that were cut off");
        });
    });
    drop((mapping, file));
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: no mapping shows what was there before a change that has returned, though the page was being evicted: the change waits for the
/// listeners. Method: a listener that takes long, before that of the mapping.
#[test]
#[cfg_attr(miri, ignore)]
fn a_change_waits_until_what_left_is_unmapped() {
    for change in [by_short_write, by_truncate, by_store, by_short_direct_write] {
        let rig = Rig::small(0);
        let (_, file) = rig.patterned(1);
        let (is_told, may_return) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (is_told.clone(), may_return.clone());
        let id = file.add_evict_listener(move |_| {
            flags.0.store(true, Ordering::Release);
            until(|| flags.1.load(Ordering::Acquire));
        });
        let mapping = Mapping::new(&file, 1);
        let _ = loaded(&mapping, 0, 1);
        watched("a change of a page that is being evicted", || {
            thread::scope(|scope| {
                let evictor = scope.spawn(|| rig.cache.shrink(0, ShrinkScope::Clean));
                let freeing = scope.spawn(|| file.put_pages(pages(0, 1), PutPages::Free));
                until(|| is_told.load(Ordering::Acquire));
                let changer = scope.spawn(|| change(&file));
                until(|| rig.dials.yields.load(Ordering::Acquire) > 1 || changer.is_finished());
                let is_stale = changer.is_finished() && mapping.pages().0 == 1;
                may_return.store(true, Ordering::Release);
                changer.join().unwrap();
                assert!(!is_stale, "a page is mapped that was changed elsewhere");
                assert_eq!(loaded(&mapping, 0, 1), [9]);
                let _ = evictor.join().unwrap();
                freeing.join().unwrap().unwrap();
            })
        });
        file.remove_evict_listener(id);
        drop((mapping, file));
        rig.cache.sync().unwrap();
        rig.assert_empty();
    }
}

fn by_short_write(file: &File) {
    file.write_at(&[9], 0).unwrap();
}

fn by_short_direct_write(file: &File) {
    FileBackend::Direct(file.clone()).write_at(&[9], 0).unwrap();
}

fn by_truncate(file: &File) {
    file.set_len(0).unwrap();
    file.append(&[9]).unwrap();
}

fn by_store(file: &File) {
    Mapping::new(file, 1).store(0, &[9]).unwrap();
}

/// Goal: a write from a mapping of the very page that it changes returns, and the page then holds those bytes, resident before or not.
#[test]
#[cfg_attr(miri, ignore)]
fn a_write_from_its_own_mapping_ends() {
    let rig = Rig::small(0);
    let (_, file) = rig.patterned(2);
    let (mapping, mut expected) = (Mapping::new(&file, 1), pattern(2));
    watched("writes from the mapping of their own file", || {
        for (from, to, length) in [(0, 1, 4000), (4096, 0, 4096), (2000, 100, 6000), (0, 0, 8192)] {
            // So that copying from the mapping faults.
            file.put_pages(pages(0, 2), PutPages::Free).unwrap();
            let buffer = loaded(&mapping, from as u64, length);
            assert_eq!(file.write_at(&buffer, to as u64), Ok(length));
            expected.copy_within(from..from + length, to);
            assert!(loaded(&mapping, 0, 8192) == expected, "{from} to {to}");
            mapping.check();
        }
    });
    drop((mapping, file));
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: pages that are mapped make room like others, no more than half of the memory is dirty by stores, and every byte is right.
#[test]
#[cfg_attr(miri, ignore)]
fn mapped_pages_make_room() {
    let rig = Rig::small(1);
    let (node, file) = rig.patterned(3 * FRAMES);
    let mapping = Mapping::new(&file, 16);
    assert_pattern(&loaded(&mapping, 0, 3 * SMALL_BYTES), 0);
    assert!(mapping.pages().0 as u64 <= FRAMES && rig.stats().evicted_pages >= 2 * FRAMES);
    mapping.check();
    for page in 0..3 * FRAMES {
        mapping.store(page * 4096, &[page as u8]).unwrap();
        assert!(rig.stats().dirty_pages <= FRAMES / 2 + 1, "{:?}", rig.stats());
    }
    mapping.check();
    file.sync(SyncScope::Data).unwrap();
    assert_eq!(mapping.pages().1, 0);
    let bytes = node.bytes();
    assert!((0..3 * FRAMES as usize).all(|page| bytes[page * 4096] == page as u8), "a store is lost");
    drop((mapping, file));
    rig.assert_empty();
}

fn loaded(mapping: &Mapping, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; length];
    mapping.load(offset, &mut bytes).unwrap();
    bytes
}

fn pages(start: u64, end: u64) -> PageRange {
    PageRange::new(PageIndex::new(start), PageIndex::new(end))
}

const ROUNDS: u64 = 2000;

/// Pages of the small cache.
const FRAMES: u64 = SMALL_BYTES as u64 / 4096;
