//! Writing: what writes, truncates and syncs do, one at a time.
//!
//! Owns: the rules that random operations would not show.
//! Does not own: random operations (oracle), failures (faults).

use axfs_ng_vfs::VfsError;
use headwater_arceos::{PageIndex, SyncScope};

use crate::node::{Call, Faults, Kind};
use crate::rig::{Rig, SMALL_BYTES, assert_pattern, pattern, read};

/// Goal: nothing written is nothing done, wherever it is.
#[test]
fn an_empty_write_does_not_lengthen() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    assert_eq!((file.write_at(&[], 10_000), file.append(&[])), (Ok(0), Ok((0, 4096))));
    assert_eq!((file.len(), node.take_calls()), (4096, Vec::new()));
    drop(file);
    rig.assert_empty();
}

/// Goal: a page beyond the end cannot be marked dirty, and no byte is written there.
#[test]
fn nothing_is_dirty_beyond_the_end() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(1);
    assert_eq!(file.mark_dirty(PageIndex::new(1)), Err(VfsError::InvalidInput));
    assert_eq!(file.with_page_or_insert(PageIndex::new(1), |_| ()), Err(VfsError::InvalidInput));
    assert_eq!((rig.stats().dirty_pages, node.take_calls()), (0, Vec::new()));
    drop(file);
    rig.assert_empty();
}

/// Goal: a write of whole pages reads nothing; neighbours are written by one call; the scope of a sync reaches the node.
#[test]
fn pages_that_are_overwritten_are_not_read() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(8);
    assert_eq!(file.write_at(&[1; 3 * 4096], 2 * 4096), Ok(3 * 4096));
    file.sync(SyncScope::Data).unwrap();
    let write = Call { kind: Kind::Write, offset: 2 * 4096, length: 3 * 4096 };
    let sync = |data_only| Call { kind: Kind::Sync, offset: data_only, length: 0 };
    assert_eq!(node.take_calls(), [write, sync(1)]);
    file.sync(SyncScope::All).unwrap();
    assert_eq!(node.take_calls(), [sync(0)]);
    drop(file);
    rig.assert_empty();
}

/// Goal: a truncate within a page that cannot be read leaves nothing behind, and does not lengthen the node.
#[test]
fn a_truncate_needs_no_read() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(2);
    node.set_faults(Faults { reads: 0..u64::MAX, ..Faults::default() });
    assert_eq!(file.set_len(5000), Ok(()));
    assert_eq!(file.set_len(6000), Ok(()));
    node.set_faults(Faults::default());
    let found = read(&file, 0, 6000);
    assert_pattern(&found[..5000], 0);
    assert_eq!((&found[5000..], node.bytes().len()), (&[0; 1000][..], 6000));
    drop(file);
    rig.assert_empty();
}

/// Goal: a truncate zeroes the rest of its page even while a reader has that pinned; the reader sees it as it was.
#[test]
fn a_truncate_within_a_pinned_page_zeroes_it() {
    let rig = Rig::small(0);
    let (_, file) = rig.patterned(1);
    file.with_page_or_insert(PageIndex::new(0), |page| {
        file.set_len(100).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(page[..], pattern(1));
    })
    .unwrap();
    let found = read(&file, 0, 4096);
    assert_pattern(&found[..100], 0);
    assert_eq!(found[100..], [0; 3996]);
    drop(file);
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: what is discarded is not written, and the file goes with its last handle.
#[test]
fn what_is_discarded_is_not_written() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(4);
    file.write_at(&[1; 10_000], 0).unwrap();
    file.discard();
    assert_eq!((rig.stats().dirty_pages, rig.stats().resident_pages), (0, 0));
    drop(file);
    rig.cache.sync().unwrap();
    assert_eq!(node.calls(Kind::Write), []);
    rig.assert_empty();
}

/// Goal: what a writer had to write back, or truncate, is synced with the cache: once, and again if that failed.
#[test]
#[cfg_attr(miri, ignore)]
fn what_was_written_back_before_is_synced() {
    let rig = Rig::small(0);
    let node = rig.node(Vec::new());
    let file = rig.open(&node);
    // One page more than may be dirty.
    let length = SMALL_BYTES / 2 + 4096;
    assert_eq!(file.append(&vec![1; length]), Ok((length, length as u64)));
    assert!(rig.stats().dirty_pages == 0 && node.is(&vec![1; length]), "{:?}", rig.stats());
    let syncs = || node.calls(Kind::Sync).len();
    node.set_faults(Faults { syncs_every: 1, ..Faults::default() });
    assert_eq!((rig.cache.sync(), syncs()), (Err(VfsError::Io), 1));
    node.set_faults(Faults::default());
    assert_eq!((rig.cache.sync(), syncs()), (Ok(()), 2));
    assert_eq!((rig.cache.sync(), syncs()), (Ok(()), 2), "nothing is new");
    file.write_at(&[2], 0).unwrap();
    assert_eq!((rig.cache.sync(), syncs()), (Ok(()), 3));
    file.set_len(100).unwrap();
    file.discard();
    assert_eq!((rig.cache.sync(), syncs()), (Ok(()), 4));
    drop(file);
    rig.assert_empty();
}
