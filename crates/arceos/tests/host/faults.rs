//! Faults: nodes whose reads and writes fail, and who hears of it.
//!
//! Owns: errors of each call, a full device.
//! Does not own: short reads and interrupted calls, which nobody hears of (oracle).

use axfs_ng_vfs::VfsError;
use headwater_arceos::{PageIndex, ReadaheadPolicy, Settings, SyncScope};
use headwater_testkit::{Pattern, Rng, with_seed};

use crate::node::{Faults, Kind};
use crate::oracle::POLICIES;
use crate::rig::{Rig, assert_pattern, pattern, read};

/// Goal: a page that cannot be read harms only who asks for it, wherever it lies in a window.
#[test]
#[cfg_attr(miri, ignore)]
fn an_error_ahead_does_not_reach_the_reader() {
    for policy in POLICIES {
        for servers in 0..2 {
            let rig = Rig::with_policy(policy, 8 << 20, servers);
            let (node, file) = rig.patterned(200);
            node.set_faults(Faults { reads: 100 * 4096..101 * 4096, ..Faults::default() });
            for page in (0..100).chain(101..200) {
                assert_pattern(&read(&file, page * 4096, 4096), page * 4096);
            }
            assert_eq!(file.read_at(&mut [0; 10], 100 * 4096), Err(VfsError::Io), "{policy:?}");
            node.set_faults(Faults::default());
            assert_pattern(&read(&file, 0, 200 * 4096), 0);
            drop(file);
            rig.assert_empty();
        }
    }
}

/// Goal: of a read that meets an error the bytes before it are delivered, and the next one hears of it.
#[test]
fn an_error_comes_after_the_bytes_before_it() {
    let rig = Rig::small(1);
    let (node, file) = rig.patterned(16);
    node.set_faults(Faults { reads: 9 * 4096 + 100..9 * 4096 + 101, ..Faults::default() });
    let mut buffer = vec![0; 16 * 4096];
    assert_eq!(file.read_at(&mut buffer, 10), Ok(9 * 4096 - 10));
    assert_pattern(&buffer[..9 * 4096 - 10], 10);
    assert_eq!(file.read_at(&mut buffer, 9 * 4096), Err(VfsError::Io));
    assert_eq!(file.with_page_or_insert(PageIndex::new(9), |_| ()), Err(VfsError::Io));
    assert_eq!(file.mark_dirty(PageIndex::new(9)), Err(VfsError::Io));
    // Beside the bad bytes of the page the good ones can be had, around the cache.
    assert_pattern(&read(&file, 9 * 4096, 100), 9 * 4096);
    drop(file);
    rig.assert_empty();
}

/// Goal: where each so many reads fail, bytes are right or there is an error, and reading on gets to the end.
#[test]
#[cfg_attr(miri, ignore)]
fn reads_that_fail_now_and_then_bring_no_wrong_byte() {
    with_seed("faults::reads_that_fail_now_and_then_bring_no_wrong_byte", |seed| {
        let mut rng = Rng::new(seed);
        for policy in POLICIES {
            let rig = Rig::with_policy(policy, 2 << 20, rng.below(3) as usize);
            let (node, file) = rig.patterned(1000);
            node.set_faults(Faults { reads_every: 2 + rng.below(3), ..Faults::default() });
            let (mut offset, mut failed) = (0, 0);
            while offset < file.len() {
                let mut buffer = vec![0; 1 + rng.below(30_000) as usize];
                match file.read_at(&mut buffer, offset) {
                    Ok(read) => {
                        assert!(read > 0, "an end where there is none");
                        assert_pattern(&buffer[..read], offset);
                        offset += read as u64;
                    }
                    Err(_) => failed += 1,
                }
                assert!(failed < 1000, "nothing can be read");
            }
            drop(file);
            rig.assert_empty();
        }
    });
}

/// Goal: what could not be written stays, even when nobody has the file open; each sync says so until it is written.
#[test]
fn a_failed_write_stays_dirty() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(8);
    // By one read, so that pages lie together and neighbours are written by one call.
    let mut expected = read(&file, 0, 8 * 4096);
    for page in [1, 2, 5] {
        expected[page * 4096 + 7..][..100].fill(9);
        file.write_at(&[9; 100], page as u64 * 4096 + 7).unwrap();
    }
    node.set_faults(Faults { writes: 2 * 4096..3 * 4096, ..Faults::default() });
    assert_eq!(file.sync(SyncScope::Data), Err(VfsError::Io));
    // Written together, so both are dirty still; the third is not.
    assert_eq!(rig.stats().dirty_pages, 2);
    assert_eq!(node.bytes()[5 * 4096..], expected[5 * 4096..]);
    drop(file);
    assert_eq!(rig.cache.sync(), Err(VfsError::Io));
    assert_eq!(read(&rig.open(&node), 0, 8 * 4096), expected);
    node.set_faults(Faults::default());
    assert_eq!(rig.cache.sync(), Ok(()));
    assert_eq!(node.bytes(), expected);
    rig.assert_empty();
}

/// Goal: the same where each so many writes fail, under random writes.
#[test]
#[cfg_attr(miri, ignore)]
fn writes_that_fail_now_and_then_lose_nothing() {
    with_seed("faults::writes_that_fail_now_and_then_lose_nothing", |seed| {
        let (rig, mut rng) = (Rig::small(1), Rng::new(seed));
        let (node, file) = rig.patterned(1000);
        let mut expected = pattern(1000);
        node.set_faults(Faults { writes_every: 3, ..Faults::default() });
        for _ in 0..500 {
            let mut bytes = vec![0; 1 + rng.below(20_000) as usize];
            Pattern::new(rng.next_u64()).fill(0, &mut bytes);
            let offset = rng.below((expected.len() - bytes.len()) as u64);
            let written = file.write_at(&bytes, offset).unwrap_or(0);
            expected[offset as usize..][..written].copy_from_slice(&bytes[..written]);
            // What the rest became is not said, if the memory was full and it went to the node.
            assert!(written == bytes.len() || rig.stats().bypassed > 0);
            let _ = rng.chance(1, 20).then(|| file.sync(SyncScope::Data));
        }
        while file.sync(SyncScope::Data).is_err() {}
        assert!(read(&file, 0, expected.len()) == expected);
        assert!(node.is(&expected), "a write is lost");
        drop(file);
        rig.assert_empty();
    });
}

/// Goal: a full device is reported to the writer at once; the file is as long as what it took, and the node too.
#[test]
fn a_full_device_is_reported_to_the_writer() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(2);
    node.set_faults(Faults { capacity_bytes: 10_000, ..Faults::default() });
    assert_eq!(file.append(&[1; 3000]), Err(VfsError::StorageFull));
    assert_eq!(file.write_at(&[1; 1], 10_000), Err(VfsError::StorageFull));
    assert_eq!(file.set_len(10_001), Err(VfsError::StorageFull));
    assert_eq!((file.len(), node.bytes().len()), (8192, 8192));
    assert_eq!(file.append(&[1; 1000]), Ok((1000, 9192)));
    assert_eq!(file.write_at(&[2; 10], 0), Ok(10));
    assert_eq!(file.sync(SyncScope::All), Ok(()));
    assert_eq!((&node.bytes()[8192..], &node.bytes()[..10]), (&[1; 1000][..], &[2; 10][..]));
    assert_eq!(file.write_at(&[1; 4], u64::MAX - 2), Err(VfsError::FileTooLarge));
    drop(file);
    rig.assert_empty();
}

/// Goal: a node that is interrupted all the time is asked again, for reads and for writes.
#[test]
fn interrupted_calls_are_made_again() {
    let rig = Rig::new(Settings { readahead: ReadaheadPolicy::Off, ..Settings::new(2 << 20) }, 0);
    let (node, file) = rig.patterned(4);
    node.set_faults(Faults { interrupted_every: 2, ..Faults::default() });
    for page in 0..4 {
        assert_pattern(&read(&file, page * 4096, 4096), page * 4096);
        file.write_at(&[3; 4096], page * 4096).unwrap();
        assert_eq!(file.sync(SyncScope::Data), Ok(()));
    }
    assert_eq!(node.bytes(), [3; 4 * 4096]);
    assert!(node.calls(Kind::Write).len() > 4, "no write was interrupted");
    drop(file);
    rig.assert_empty();
}
