//! Races: threads that meet where it is narrow, again and again.
//!
//! Owns: pairs of operations of which one must not undo the other.
//! Does not own: random mixtures (soak).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use axfs_ng_vfs::{NodeFlags, NodeType};
use headwater_arceos::{PageIndex, ReadaheadPolicy, SyncScope};
use headwater_testkit::watched;

use crate::node::{Kind, Moment, Node};
use crate::rig::{Rig, SMALL_BYTES, pattern, read, until};

/// Goal: a sync brings what was written before it to the node, even while another write to the same page is under way.
#[test]
fn a_sync_brings_what_was_written_before_it() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    file.write_at(&[0; 8], 0).unwrap();
    let (written, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    watched("sync beside writes", || {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = [0; 4096];
                for number in 1u64.. {
                    bytes[..8].copy_from_slice(&number.to_le_bytes());
                    file.write_at(&bytes[..4095], 0).unwrap();
                    written.store(number, Ordering::Release);
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let mut lost = None;
            while lost.is_none() && written.load(Ordering::Relaxed) < 50 * ROUNDS as u64 {
                let before = written.load(Ordering::Acquire);
                file.sync(SyncScope::Data).unwrap();
                let found = u64::from_le_bytes(node.bytes()[..8].try_into().unwrap());
                lost = (found < before).then_some((before, found));
            }
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(lost, None, "a write did not reach the node");
        });
    });
    file.sync(SyncScope::Data).unwrap();
    drop(file);
    rig.assert_empty();
}

/// Goal: a sync of the cache does not return while another one of the file is under way, which may fail yet.
#[test]
#[cfg_attr(miri, ignore)]
fn a_sync_of_the_cache_does_not_pass_one_of_a_file() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    file.write_at(&[1], 0).unwrap();
    let gate = node.gate(Kind::Sync, Moment::Before, 0..u64::MAX);
    watched("two syncs", || {
        thread::scope(|scope| {
            let first = scope.spawn(|| file.sync(SyncScope::Data));
            gate.await_arrivals(1);
            let second = scope.spawn(|| rig.cache.sync());
            until(|| gate.arrivals() == 2 || second.is_finished());
            let is_over = second.is_finished();
            gate.open();
            assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(()), Ok(())));
            assert!(!is_over, "the cache is synced before the file is");
        });
    });
    drop(file);
    rig.assert_empty();
}

/// Goal: what comes to the node while that is being synced is synced by the next one. Method: a page for which there is no
/// memory, so that it is written through.
#[test]
#[cfg_attr(miri, ignore)]
fn a_write_beside_a_sync_is_synced_later() {
    let rig = Rig::small(0);
    let filler =
        Node::special(&rig.file_system, 1, Vec::new(), NodeFlags::ALWAYS_CACHE, NodeType::RegularFile);
    let (filler, (node, file)) = (rig.open(&filler), rig.patterned(1));
    filler.set_len(SMALL_BYTES as u64).unwrap();
    let _ = read(&filler, 0, SMALL_BYTES);
    let gate = node.gate(Kind::Write, Moment::Before, 0..4096);
    watched("a write beside a sync", || {
        thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_at(&[1; 4096], 0));
            gate.await_arrivals(1);
            file.sync(SyncScope::Data).unwrap();
            gate.open();
            assert_eq!(writer.join().unwrap(), Ok(4096));
        });
    });
    assert_eq!((rig.cache.sync(), node.calls(Kind::Sync).len()), (Ok(()), 2));
    filler.discard();
    drop((filler, file));
    rig.assert_empty();
}

/// Goal: what is appended reaches the node, however many syncs come between its bytes and the new length.
#[test]
fn no_append_is_lost_to_a_sync() {
    let rig = Rig::small(0);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    let is_done = AtomicBool::new(false);
    watched("appends beside syncs", || {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    file.sync(SyncScope::Data).unwrap();
                }
            });
            // Each has a page of its own, which no later one makes dirty again.
            for number in 0..ROUNDS {
                file.append(&[number as u8; 4096]).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
    });
    file.sync(SyncScope::Data).unwrap();
    let expected: Vec<u8> = (0..ROUNDS).flat_map(|number| [number as u8; 4096]).collect();
    assert!(node.is(&expected), "an append is not in the node");
    drop(file);
    rig.assert_empty();
}

/// Goal: a page that may be mapped by the time a writer has copied it is not replaced: a program may have stored to it. Method: the writer
/// finds the page pinned and looks for memory; a listener that hears of the page that leaves for it adds one to the file.
#[test]
#[cfg_attr(miri, ignore)]
fn a_page_that_is_mapped_meanwhile_is_not_replaced() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (_, victim) = rig.patterned(512);
    let file = rig.open(&rig.node(Vec::new()));
    file.append(&[1; 100]).unwrap();
    // No page is free from here on.
    (0..512).for_each(|page| drop(read(&victim, page * 4096, 1)));
    let (is_pinned, is_replaced) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let (added, replaced) = (Arc::new(Mutex::new(None)), is_replaced.clone());
    let (mapped, adds) = (file.clone(), added.clone());
    let id = victim.add_evict_listener(move |_| {
        let replaced = replaced.clone();
        adds.lock().unwrap().get_or_insert_with(|| {
            mapped.add_evict_listener(move |_| replaced.store(true, Ordering::Release))
        });
    });
    watched("a writer beside one that maps", || {
        thread::scope(|scope| {
            scope.spawn(|| {
                file.with_page_or_insert(PageIndex::new(0), |_| {
                    is_pinned.store(true, Ordering::Release);
                    until(|| added.lock().unwrap().is_some());
                })
                .unwrap();
            });
            until(|| is_pinned.load(Ordering::Acquire));
            file.append(&[2; 50]).unwrap();
        });
    });
    assert!(!is_replaced.load(Ordering::Acquire));
    assert_eq!(read(&file, 0, 150), [&[1; 100][..], &[2; 50]].concat());
    // The listeners have the file.
    victim.remove_evict_listener(id);
    file.remove_evict_listener(added.lock().unwrap().take().expect("it was added"));
    file.sync(SyncScope::Data).unwrap();
    drop((victim, file));
    rig.assert_empty();
}

/// Goal: a reader who finds nothing in a file in memory does not undo what a writer puts there.
#[test]
#[cfg_attr(miri, ignore)]
fn zeros_do_not_replace_what_is_written() {
    let rig = Rig::small(0);
    let kind = NodeType::RegularFile;
    let pages = ROUNDS.min(400) as u64;
    for round in 0..10 {
        let node = Node::special(&rig.file_system, round, Vec::new(), NodeFlags::ALWAYS_CACHE, kind);
        let file = rig.open(&node);
        file.set_len(pages * 4096).unwrap();
        let arrived = AtomicU64::new(0);
        let meet = |page| {
            arrived.fetch_add(1, Ordering::AcqRel);
            // Not asleep, so that both go on at the same moment.
            until(|| arrived.load(Ordering::Acquire) >= 2 * (page + 1));
        };
        watched("zeros beside writes", || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    for page in 0..pages {
                        meet(page);
                        let _ = read(&file, page * 4096, 1);
                    }
                });
                for page in 0..pages {
                    meet(page);
                    file.write_at(&[1; 4096], page * 4096).unwrap();
                }
            });
        });
        assert!(read(&file, 0, pages as usize * 4096).iter().all(|byte| *byte == 1), "a write is undone");
        file.discard();
    }
    rig.assert_empty();
}

/// Goal: `stop` at any moment leaves no load behind.
#[test]
fn stop_loses_no_load() {
    for _ in 0..ROUNDS / 20 {
        let rig = Rig::small(1);
        let files: Vec<_> = (0..2).map(|_| rig.patterned(300)).collect();
        watched("stop beside reads", || {
            thread::scope(|scope| {
                for (_, file) in &files {
                    scope.spawn(move || {
                        for page in 0..300 {
                            let _ = read(file, page * 4096, 4096);
                        }
                    });
                }
                rig.cache.stop();
            });
        });
        rig.stop();
        assert_eq!(rig.stats().loading_pages, 0, "a load is never run");
        drop(files);
        rig.assert_empty();
    }
}

/// Goal: a load that is queued after the last task has returned is read nevertheless.
#[test]
#[cfg_attr(miri, ignore)]
fn a_load_that_is_queued_too_late_is_read() {
    let rig = Rig::small(1);
    let (_, victim) = rig.patterned(512);
    let (_, file) = rig.patterned(512);
    let _ = read(&victim, 0, 512 * 4096);
    let _ = read(&file, 0, 4096);
    // The next page of the victim leaves while a reader begins what it will queue.
    let (has_stopped, stop) = (Arc::new(AtomicBool::new(false)), rig.stopper());
    let stopped = has_stopped.clone();
    victim.add_evict_listener(move |_| {
        if !stopped.swap(true, Ordering::AcqRel) {
            stop();
        }
    });
    let pages = 1..512;
    for page in pages.take_while(|_| !has_stopped.load(Ordering::Acquire)) {
        let _ = read(&file, page * 4096, 4096);
    }
    assert!(has_stopped.load(Ordering::Acquire), "nothing has left");
    assert_eq!(rig.stats().loading_pages, 0, "a load is never run");
    drop((file, victim));
    rig.assert_empty();
}

/// Goal: appends of several threads do not overlap.
#[test]
fn appends_do_not_overlap() {
    let rig = Rig::small(1);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    let count = ROUNDS as u64 / 10;
    thread::scope(|scope| {
        for writer in 1..4u8 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..count {
                    let (written, end) = file.append(&[writer; 1001]).unwrap();
                    assert_eq!(written, 1001);
                    assert_eq!(read(file, end - 1001, 1001), [writer; 1001], "another append is here");
                }
            });
        }
    });
    assert_eq!(file.len(), count * 3 * 1001);
    file.sync(SyncScope::All).unwrap();
    for writer in 1..4u8 {
        let bytes = node.bytes().into_iter().filter(|byte| *byte == writer).count() as u64;
        assert_eq!(bytes, count * 1001);
    }
    drop(file);
    rig.assert_empty();
}

/// Goal: a reader sees a page before or after each write, not in between, while pages are read, evicted and written back.
#[test]
fn pages_are_seen_whole() {
    for policy in [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Off] {
        let rig = Rig::with_policy(policy, SMALL_BYTES, 1);
        // More than fits.
        let node = rig.node(vec![0; PAGES * 4096]);
        let file = rig.open(&node);
        let is_done = AtomicBool::new(false);
        watched("whole pages", || {
            thread::scope(|scope| {
                for reader in 0..2 {
                    let (file, is_done) = (&file, &is_done);
                    scope.spawn(move || read_whole(file, is_done, reader));
                }
                let writers: Vec<_> = (0..2)
                    .map(|writer| {
                        scope.spawn({
                            let file = &file;
                            move || write_whole(file, writer)
                        })
                    })
                    .collect();
                let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
                is_done.store(true, Ordering::Relaxed);
                assert!(results.iter().all(Result::is_ok));
            });
        });
        file.sync(SyncScope::Data).unwrap();
        assert!(node.bytes().chunks(4096).all(is_whole), "a page reached the node in parts");
        drop(file);
        rig.assert_empty();
    }
}

fn write_whole(file: &crate::rig::File, writer: usize) {
    let mut rng = headwater_testkit::Rng::new(writer as u64);
    for _ in 0..ROUNDS * 2 {
        let (page, pages) = (rng.below(PAGES as u64 - 4), 1 + rng.below(4) as usize);
        file.write_at(&vec![rng.next_u64() as u8; pages * 4096], page * 4096).unwrap();
        if rng.chance(1, 50) {
            file.sync(SyncScope::Data).unwrap();
        }
    }
}

fn read_whole(file: &crate::rig::File, is_done: &AtomicBool, reader: u64) {
    let mut rng = headwater_testkit::Rng::new(100 + reader);
    while !is_done.load(Ordering::Relaxed) {
        let page = rng.below(PAGES as u64 - 8);
        assert!(read(file, page * 4096, 8 * 4096).chunks(4096).all(is_whole), "a page is seen in parts");
        let found = file.with_page_or_insert(PageIndex::new(page), |page| is_whole(page));
        assert_eq!(found, Ok(true), "a page that is pinned changes");
    }
}

fn is_whole(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == page[0])
}

/// Goal: threads that read the same absent pages at once have them read once.
#[test]
fn nobody_reads_a_page_that_is_on_its_way() {
    for servers in 0..3 {
        let rig = Rig::new(headwater_arceos::Settings::new(8 << 20), servers);
        let (node, file) = rig.patterned(600);
        let barrier = Barrier::new(4);
        watched("readers of the same pages", || {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for page in 0..600 {
                            if page % 50 == 0 {
                                barrier.wait();
                            }
                            assert_eq!(
                                read(&file, page * 4096, 4096)[..],
                                pattern(600)[page as usize * 4096..][..4096]
                            );
                        }
                    });
                }
            });
        });
        rig.stop();
        let asked: u64 = node.calls(Kind::Read).iter().map(|call| call.length.div_ceil(4096)).sum();
        assert_eq!((node.doubled(), asked), (Vec::new(), 600), "a page is read twice");
        drop(file);
        rig.assert_empty();
    }
}

const ROUNDS: usize = if cfg!(miri) { 40 } else { 4000 };
const PAGES: usize = if cfg!(miri) { 20 } else { 800 };
