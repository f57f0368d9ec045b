//! Elastic: memory goes back to the kernel and comes again; dirty pages get old; many files share what is read ahead.
//!
//! Owns: shrinking, hints of low memory, write-back by age, the bound of all windows.
//! Does not own: eviction where one page makes room for another (oracle), the limit of dirty pages (memory).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use axfs_ng_vfs::{NodeFlags, NodeType};
use headwater_arceos::{MemoryHint, PageIndex, Settings, ShrinkScope};
use headwater_testkit::{Rng, thread_cpu_time, watched, with_seed};

use crate::model::Actor;
use crate::node::{Faults, Kind, Node};
use crate::rig::{File, Rig, assert_pattern, read};

/// Goal: a cache shrinks to the size that it is told, loses no byte, and grows again. Method: 64 MiB full of clean pages shrink to 8, and the
/// file is read again. Shrinking may take 100 ms of its thread's own time, which other programs do not lengthen.
#[test]
#[cfg_attr(miri, ignore)]
fn a_full_cache_shrinks_and_grows_again() {
    let rig = Rig::new(Settings::new(64 << 20), 1);
    let (_, file) = rig.patterned(PAGES);
    read_all(&file, PAGES);
    assert_eq!(rig.stats().memory_bytes, 64 << 20);
    let start = thread_cpu_time();
    let left = rig.cache.shrink(8 << 20, ShrinkScope::Clean);
    let taken = thread_cpu_time() - start;
    println!("64 MiB of clean pages became 8 in {:.2} ms", taken.as_secs_f64() * 1e3);
    assert!(taken <= Duration::from_millis(100), "{taken:?}");
    let stats = rig.stats();
    assert_eq!((left, stats.memory_bytes, stats.released_bytes), (8 << 20, 8 << 20, 56 << 20));
    assert!(stats.resident_pages <= 2048, "{stats:?}");
    rig.cache.check();
    read_all(&file, PAGES);
    assert_eq!(rig.stats().memory_bytes, 64 << 20);
    drop(file);
    rig.assert_empty();
}

/// Goal: a chunk is given back, and another takes its number.
#[test]
#[cfg_attr(miri, ignore)] // minutes there
fn a_chunk_is_given_back_and_made_again() {
    let rig = Rig::new(Settings::new(4 << 20), 0);
    let mut bytes = vec![0; 3 << 20];
    for offset in [0, 1 << 20, 2 << 20] {
        bytes[offset..offset + 100].fill(5);
    }
    let file = rig.open(&rig.node(bytes.clone()));
    let is_read = |offset: usize, length| {
        let mut buffer = vec![0; length];
        file.read_at(&mut buffer, offset as u64) == Ok(length) && buffer == bytes[offset..offset + length]
    };
    // Of one chunk a part is in use then, and it has room for one block of 1 MiB.
    assert!(is_read(0, 4096) && is_read(1 << 20, 1 << 20));
    for _ in 0..2 {
        assert!(is_read(2 << 20, 1 << 20));
        assert_eq!(rig.stats().memory_bytes, 4 << 20);
        // The chunk with fewer pages.
        assert_eq!(rig.cache.shrink(0, ShrinkScope::Clean), 2 << 20);
    }
    file.write_at(&[7; 100], 5000).unwrap();
    assert_eq!(rig.cache.shrink(0, ShrinkScope::All), 2 << 20);
    assert_eq!(read(&file, 5000, 100), [7; 100]);
    drop(file);
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: dirty pages stay where the caller wants no node to be called, and are written first where it does not mind.
#[test]
#[cfg_attr(miri, ignore)]
fn dirty_pages_are_kept_or_written() {
    let rig = Rig::new(Settings::new(64 << 20), 1);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    let bytes = crate::rig::pattern(HALF_PAGES);
    file.write_at(&bytes, 0).unwrap();
    assert_eq!(node.calls(Kind::Write), []);
    assert!(rig.cache.shrink(0, ShrinkScope::Clean) >= bytes.len());
    assert_eq!((node.calls(Kind::Write), rig.stats().dirty_pages), (Vec::new(), HALF_PAGES));
    let start = Instant::now();
    assert!(rig.cache.shrink(8 << 20, ShrinkScope::All) <= 8 << 20);
    println!("32 MiB of dirty pages became 8 in {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    assert!(node.is(&bytes) && rig.stats().dirty_pages == 0);
    read_all(&file, HALF_PAGES);
    drop(file);
    rig.assert_empty();
}

/// Goal: where no node may be called none is dropped either. Method: the last handle is closed while the cache tells of a page that leaves.
#[test]
#[cfg_attr(miri, ignore)]
fn a_node_goes_only_where_nodes_may_be_called() {
    let rig = Rig::new(Settings::new(4 << 20), 0);
    let (node, file) = rig.patterned(1024);
    read_all(&file, 1024);
    let last = Arc::new(Mutex::new(None));
    file.add_evict_listener({
        let last = last.clone();
        move |_| drop(last.lock().unwrap().take())
    });
    let holders = Arc::strong_count(&node);
    *last.lock().unwrap() = Some(file);
    assert_eq!(rig.cache.shrink(0, ShrinkScope::Clean), 2 << 20);
    assert!(last.lock().unwrap().is_none(), "a listener has closed the file");
    assert_eq!(Arc::strong_count(&node), holders);
    rig.cache.tend();
    assert_eq!(Arc::strong_count(&node), 1);
    rig.assert_empty();
}

/// Goal: what cannot be written stays, and so do a page that is pinned and a file in memory.
#[test]
#[cfg_attr(miri, ignore)]
fn what_cannot_leave_stays() {
    let rig = Rig::new(Settings::new(16 << 20), 1);
    let kind = NodeType::RegularFile;
    let memory_node = Node::special(&rig.file_system, 1, Vec::new(), NodeFlags::ALWAYS_CACHE, kind);
    let in_memory = rig.open(&memory_node);
    in_memory.write_at(&[3; 4096], 0).unwrap();
    let broken_node = rig.node(Vec::new());
    let broken = rig.open(&broken_node);
    broken_node.set_faults(Faults { writes: 0..u64::MAX, ..Faults::default() });
    broken.write_at(&[5; 4096], 0).unwrap();
    let (_, file) = rig.patterned(2048);
    read_all(&file, 2048);
    let last = PageIndex::new(2047);
    file.with_page_or_insert(last, |page| {
        let left = rig.cache.shrink(0, ShrinkScope::All);
        assert!((2 << 20..=6 << 20).contains(&left), "{left} bytes are left");
        assert_pattern(page, 2047 * 4096);
    })
    .unwrap();
    assert_eq!((read(&in_memory, 0, 4096), read(&broken, 0, 4096)), (vec![3; 4096], vec![5; 4096]));
    broken_node.set_faults(Faults::default());
    rig.cache.sync().unwrap();
    assert!(broken_node.is(&[5; 4096]));
    in_memory.discard();
    assert_eq!(rig.cache.shrink(0, ShrinkScope::Clean), 2 << 20);
    drop((in_memory, broken, file));
    rig.assert_empty();
}

/// Goal: whatever is done to files while their memory goes and comes, every byte is right.
#[test]
#[cfg_attr(miri, ignore)]
fn files_are_their_models_while_the_cache_shrinks() {
    with_seed("elastic::files_are_their_models_while_the_cache_shrinks", |seed| {
        let mut rng = Rng::new(seed);
        for servers in 0..2 {
            let rig = Rig::new(Settings::new(8 << 20), servers);
            let (seeds, is_over) = ([rng.next_u64(), rng.next_u64()], AtomicBool::new(false));
            watched(&format!("seed {seed:#x} with {servers} servers"), || {
                thread::scope(|scope| {
                    let actors = seeds.map(|seed| {
                        let rig = &rig;
                        scope.spawn(move || {
                            let mut actor = Actor::new(rig, rig.node(Vec::new()), 6 << 20, seed);
                            (0..300).for_each(|_| actor.step());
                            actor.finish();
                        })
                    });
                    let shrinking = scope.spawn(|| {
                        while !is_over.load(Ordering::Acquire) {
                            rig.cache.shrink(rng.below(8 << 20) as usize, ShrinkScope::Clean);
                            rig.cache.shrink(rng.below(8 << 20) as usize, ShrinkScope::All);
                            thread::yield_now();
                        }
                    });
                    let results = actors.map(|actor| actor.join());
                    is_over.store(true, Ordering::Release);
                    shrinking.join().unwrap();
                    results.into_iter().for_each(|result| result.unwrap());
                });
            });
            assert!(rig.stats().released_bytes > 0, "nothing was given back");
            rig.assert_empty();
        }
    });
}

/// Goal: a kernel that is low on memory is not asked for more, one that is critical gets some back, and one that has plenty is asked again.
#[test]
#[cfg_attr(miri, ignore)]
fn hints_of_low_memory_are_heeded() {
    let rig = Rig::new(Settings::new(64 << 20), 1);
    let (_, file) = rig.patterned(PAGES);
    read_all(&file, HALF_PAGES / 2);
    let before = rig.stats().memory_bytes;
    assert!((16 << 20..32 << 20).contains(&before), "{before} bytes");
    rig.dials.set_memory(MemoryHint::Low);
    read_all(&file, PAGES);
    rig.cache.tend();
    assert_eq!(rig.stats().memory_bytes, before);
    rig.dials.set_memory(MemoryHint::Critical);
    rig.cache.tend();
    let after = rig.stats().memory_bytes;
    assert!(after <= before - before / 4 && after > 0, "{before} bytes became {after}");
    read_all(&file, PAGES);
    assert_eq!(rig.stats().memory_bytes, after);
    rig.dials.set_memory(MemoryHint::Plenty);
    rig.cache.tend();
    read_all(&file, PAGES);
    assert_eq!(rig.stats().memory_bytes, 64 << 20);
    drop(file);
    rig.assert_empty();
}

/// Goal: with less memory than its settings say, less may be dirty.
#[test]
#[cfg_attr(miri, ignore)]
fn fewer_pages_may_be_dirty_in_less_memory() {
    let rig = Rig::new(Settings::new(64 << 20), 0);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    file.append(&[1; 4 << 20]).unwrap();
    rig.dials.set_memory(MemoryHint::Low);
    let memory_pages = rig.stats().memory_bytes as u64 / 4096;
    for _ in 0..10 {
        file.append(&[1; 1 << 20]).unwrap();
        assert!(rig.stats().dirty_pages <= memory_pages / 2, "{:?}", rig.stats());
    }
    drop(file);
    rig.cache.sync().unwrap();
    assert!(node.is(&[1; 14 << 20]));
    rig.assert_empty();
}

/// Goal: a page is written once it is old, not before, and not again; what failed is tried again at that age, and a sync reports it.
#[test]
fn pages_are_written_back_by_age() {
    let rig = Rig::new(Settings::new(4 << 20), 0);
    let (old_node, young_node) = (rig.node(Vec::new()), rig.node(Vec::new()));
    let (old, young) = (rig.open(&old_node), rig.open(&young_node));
    let writes = |node: &Node| node.calls(Kind::Write).len();
    let (age, second) = (Settings::new(4 << 20).dirty_age_max, Duration::from_secs(1));
    old.write_at(&[1; 100], 0).unwrap();
    rig.dials.skip(age / 2);
    young.write_at(&[2; 100], 0).unwrap();
    rig.cache.tend();
    assert_eq!((writes(&old_node), writes(&young_node)), (0, 0));
    rig.dials.skip(age / 2 + second);
    rig.cache.tend();
    assert_eq!((writes(&old_node), writes(&young_node)), (1, 0));
    assert!(old_node.is(&[1; 100]));
    young_node.set_faults(Faults { writes: 0..u64::MAX, ..Faults::default() });
    rig.dials.skip(age / 2);
    rig.cache.tend();
    let failed = writes(&young_node);
    assert_eq!((writes(&old_node), failed), (1, 1));
    rig.dials.skip(age / 2);
    rig.cache.tend();
    assert_eq!(writes(&young_node), failed, "a write that failed is tried again at once");
    assert!(rig.cache.sync().is_err());
    young_node.set_faults(Faults::default());
    rig.dials.skip(age + second);
    rig.cache.tend();
    assert!(young_node.is(&[2; 100]));
    drop((old, young));
    rig.assert_empty();
}

/// Goal: a hundred files that are read by turns do not push out each other's windows. Method: 2 MiB of each, by 4 KiB in turn, in 64 MiB;
/// each page is to be read once, in requests of more than one page.
#[test]
#[cfg_attr(miri, ignore)]
fn a_hundred_files_share_what_is_read_ahead() {
    let rig = Rig::new(Settings::new(64 << 20), 1);
    let files: Vec<_> = (0..100).map(|_| rig.patterned(FILE_PAGES)).collect();
    for page in 0..FILE_PAGES {
        for (_, file) in &files {
            assert_pattern(&read(file, page * 4096, 4096), page * 4096);
        }
    }
    rig.stop();
    let calls: Vec<_> = files.iter().flat_map(|(node, _)| node.calls(Kind::Read)).collect();
    let read_pages = calls.iter().map(|call| call.length.div_ceil(4096)).sum::<u64>();
    println!(
        "{} requests of {} KiB each, {read_pages} pages",
        calls.len(),
        4 * read_pages / calls.len() as u64
    );
    println!("{:?}", rig.stats());
    let wanted = 100 * FILE_PAGES;
    assert!(read_pages <= wanted + wanted / 50, "{read_pages} pages are read for {wanted}");
    assert!(calls.len() as u64 <= wanted / 8, "{} requests", calls.len());
    drop(files);
    assert_eq!(rig.stats().ahead_files, 0);
    rig.assert_empty();
}

/// Goal: files that were read ahead and are not read any more do not keep others from it.
#[test]
#[cfg_attr(miri, ignore)]
fn windows_that_nobody_reads_make_room() {
    let rig = Rig::new(Settings::new(16 << 20), 1);
    let idle: Vec<_> = (0..100).map(|_| rig.patterned(256)).collect();
    for (_, file) in &idle {
        (0..4).for_each(|page| assert_pattern(&read(file, page * 4096, 4096), page * 4096));
    }
    let (node, file) = rig.patterned(PAGES);
    read_all(&file, PAGES);
    rig.stop();
    // Once twice the memory has gone through the cache. As long as all count, a request has 32 KiB: 1024 of them.
    let calls = node.calls(Kind::Read).into_iter().filter(|call| call.offset >= 32 << 20).count();
    assert!(calls < 200, "{calls} requests for 32 MiB, {:?}", rig.stats());
    drop((idle, file));
    rig.assert_empty();
}

/// By 64 KiB, with every byte compared.
fn read_all(file: &File, pages: u64) {
    for offset in (0..pages * 4096).step_by(64 << 10) {
        assert_pattern(&read(file, offset, 64 << 10), offset);
    }
}

/// As many as 64 MiB have, and half of them.
const PAGES: u64 = 16_384;
const HALF_PAGES: u64 = PAGES / 2;

/// Of each of a hundred files.
const FILE_PAGES: u64 = 512;
