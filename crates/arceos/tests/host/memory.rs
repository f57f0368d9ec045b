//! Memory: a cache that is full of what cannot leave.
//!
//! Owns: frames that are all on their way or all dirty, the limit of dirty ones.
//! Does not own: eviction in the ordinary way (oracle).

use std::thread;

use axfs_ng_vfs::{NodeFlags, NodeType, VfsError};
use headwater_arceos::{ReadaheadPolicy, SyncScope};
use headwater_testkit::watched;

use crate::node::{Faults, Kind, Moment, Node};
use crate::rig::{Rig, SMALL_BYTES, assert_pattern, read};

/// Goal: a reader who finds all memory on its way waits for some of it.
#[test]
#[cfg_attr(miri, ignore)]
fn a_full_cache_of_loads_is_waited_for() {
    let rig = Rig::with_policy(ReadaheadPolicy::Off, SMALL_BYTES, 0);
    let (node, file) = rig.patterned(FRAMES);
    let (_, other) = rig.patterned(8);
    let gate = node.gate(Kind::Read, Moment::Before, 0..u64::MAX);
    watched("a cache full of loads", || {
        thread::scope(|scope| {
            let length = FRAMES as usize * 4096 / 4;
            for part in 0..4 {
                let (file, offset) = (&file, part * length as u64);
                scope.spawn(move || assert_pattern(&read(file, offset, length), offset));
            }
            let other = scope.spawn(|| {
                gate.await_arrivals(4);
                assert_pattern(&read(&other, 0, 8 * 4096), 0);
            });
            gate.await_arrivals(4);
            gate.open();
            other.join().unwrap();
        });
    });
    drop((file, other));
    rig.assert_empty();
}

/// Goal: where nothing can be written back, reads go around the cache, writes report it, and nothing is lost.
#[test]
#[cfg_attr(miri, ignore)]
fn a_full_cache_of_dirty_pages_is_read_around() {
    let rig = Rig::small(1);
    let (_, other) = rig.patterned(64);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    node.set_faults(Faults { writes: 0..u64::MAX, ..Faults::default() });
    let mut written = Vec::new();
    let error = loop {
        match file.append(&[written.len() as u8; 3 * 4096]) {
            Ok((length, _)) => written.extend(std::iter::repeat_n(written.len() as u8, length)),
            Err(error) => break error,
        }
    };
    assert_eq!(error, VfsError::Io);
    assert_eq!((file.len(), node.bytes().len()), (written.len() as u64, written.len()));
    assert!(rig.stats().dirty_pages > FRAMES * 3 / 4, "{:?}", rig.stats());
    assert_pattern(&read(&other, 0, 64 * 4096), 0);
    assert!(rig.stats().bypassed > 0);
    assert!(read(&file, 0, written.len()) == written);
    assert_eq!(file.sync(SyncScope::All), Err(VfsError::Io));
    node.set_faults(Faults::default());
    assert_eq!(file.sync(SyncScope::All), Ok(()));
    assert!(node.is(&written), "what was written is lost");
    drop((file, other));
    rig.assert_empty();
}

/// Goal: a file that cannot be written does not keep the pages of another in memory.
#[test]
#[cfg_attr(miri, ignore)]
fn a_broken_file_does_not_block_another() {
    let rig = Rig::small(0);
    let (broken, sound) = (rig.node(Vec::new()), rig.node(Vec::new()));
    let (broken_file, sound_file) = (rig.open(&broken), rig.open(&sound));
    broken.set_faults(Faults { writes: 0..u64::MAX, ..Faults::default() });
    let half = FRAMES as usize / 2 * 4096;
    assert_eq!(broken_file.write_at(&vec![1; half], 0), Ok(half));
    // In one call, so that memory and not the limit of dirty pages is what it comes to.
    assert_eq!(sound_file.write_at(&vec![2; 2 * half], 0), Ok(2 * half));
    assert_eq!(rig.stats().bypassed, 0, "{:?}", rig.stats());
    assert_eq!(sound_file.sync(SyncScope::Data), Ok(()));
    assert!(sound.is(&vec![2; 2 * half]));
    assert!(read(&broken_file, 0, half) == vec![1; half]);
    broken_file.discard();
    drop((broken_file, sound_file));
    rig.assert_empty();
}

/// Goal: no more than half of the memory is dirty after a write.
#[test]
#[cfg_attr(miri, ignore)]
fn dirty_pages_are_limited() {
    let rig = Rig::small(1);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    for _ in 0..100 {
        file.append(&[5; 70_000]).unwrap();
        assert!(rig.stats().dirty_pages <= FRAMES / 2, "{:?}", rig.stats());
    }
    drop(file);
    rig.cache.sync().unwrap();
    assert!(node.is(&[5; 7_000_000]));
    rig.assert_empty();
}

/// Goal: a file in memory takes no more than there is, keeps what it has, and others are written back to make room for it.
#[test]
#[cfg_attr(miri, ignore)]
fn files_in_memory_fill_it_and_stay() {
    let rig = Rig::small(1);
    let node = Node::special(&rig.file_system, 1, Vec::new(), NodeFlags::ALWAYS_CACHE, NodeType::RegularFile);
    let file = rig.open(&node);
    let other_node = rig.node(Vec::new());
    let other = rig.open(&other_node);
    other.write_at(&[1; 200 * 4096], 0).unwrap();
    // Holes that a reader fills with nothing, until there is no more.
    file.set_len(2 * FRAMES * 4096).unwrap();
    let mut pages = 0;
    watched("a file in memory that fills it", || {
        while file.read_at(&mut [0], pages * 4096).is_ok() {
            pages += 1;
        }
    });
    assert_eq!(pages, FRAMES);
    assert_eq!(file.write_at(&[7; 4096], pages * 4096), Err(VfsError::StorageFull));
    assert_eq!(file.write_at(&[7; 4096], 0), Ok(4096));
    assert_eq!(read(&other, 0, 200 * 4096), [1; 200 * 4096]);
    assert_eq!(read(&file, 0, 8192), [[7; 4096], [0; 4096]].concat());
    assert_eq!((node.calls(Kind::Read), node.calls(Kind::Write)), (Vec::new(), Vec::new()));
    file.discard();
    drop((file, other));
    rig.assert_empty();
}

/// Pages of the small cache.
const FRAMES: u64 = SMALL_BYTES as u64 / 4096;
