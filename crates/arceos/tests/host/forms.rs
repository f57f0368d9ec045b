//! Forms: files that live in the cache, files that are not cached, and which nodes are the same file.
//!
//! Owns: what a node's flags, kind, file system and inode decide.
//! Does not own: cached files in general.

use std::sync::Arc;

use axfs_ng_vfs::{NodeFlags, NodeType, VfsError};
use headwater_arceos::{
    Failure, PageCache, PageIndex, ReadaheadLimits, ReadaheadPolicy, Settings, SyncScope,
};

use crate::kernel::Host;
use crate::node::{Call, FileSystem, Kind, Node};
use crate::rig::{Rig, assert_pattern, pattern, read};

/// Goal: settings that do not fit together are refused at once, not by the first file that is opened.
#[test]
fn settings_have_to_fit_together() {
    let refused = |settings: Settings| PageCache::new(Host::new(&Arc::default()), settings).err();
    let defaults = Settings::new(2 << 20);
    let limits = ReadaheadLimits { size_bytes_max: 4 << 20, ..ReadaheadLimits::default() };
    let far = ReadaheadPolicy::Fixed(u32::MAX);
    assert_eq!(refused(Settings { readahead: far, ..defaults }), Some(Failure::InvalidInput));
    assert_eq!(refused(Settings { readahead_limits: limits, ..defaults }), Some(Failure::InvalidInput));
    assert_eq!(refused(defaults), None);
}

/// Goal: a file that is always cached, by its flag or its file system, is never read from its node nor written to it, and
/// nothing of it leaves.
#[test]
#[cfg_attr(miri, ignore)]
fn files_in_memory_live_in_the_cache() {
    for (name, flags) in
        [("tmpfs", NodeFlags::empty()), ("ramfs", NodeFlags::empty()), ("ext4", NodeFlags::ALWAYS_CACHE)]
    {
        let rig = Rig::small(1);
        let file_system = FileSystem::new(name);
        let node = Node::special(&file_system, 1, Vec::new(), flags, NodeType::RegularFile);
        let file = rig.open(&node);
        assert!(file.in_memory() && !file.is_direct());
        file.write_at(&pattern(100), 0).unwrap();
        file.set_len(200 * 4096).unwrap();
        drop(file);
        // As much as there is memory, so that whatever can leave does.
        let (_, other) = rig.patterned(600);
        assert_pattern(&read(&other, 0, 600 * 4096), 0);
        let file = rig.open(&node);
        assert_pattern(&read(&file, 0, 100 * 4096), 0);
        assert!(read(&file, 100 * 4096, 100 * 4096).iter().all(|byte| *byte == 0));
        file.sync(SyncScope::All).unwrap();
        rig.cache.sync().unwrap();
        assert_eq!((node.calls(Kind::Read), node.calls(Kind::Write)), (Vec::new(), Vec::new()), "{name}");
        file.discard();
        drop((file, other));
        rig.assert_empty();
    }
}

/// Goal: what is not cached goes to the node each time, by one call, whatever it says.
#[test]
fn direct_files_go_to_the_node() {
    let kinds = [
        (NodeFlags::NON_CACHEABLE, NodeType::RegularFile),
        (NodeFlags::STREAM, NodeType::RegularFile),
        (NodeFlags::empty(), NodeType::CharacterDevice),
        (NodeFlags::empty(), NodeType::BlockDevice),
        (NodeFlags::empty(), NodeType::Fifo),
    ];
    for (number, (flags, kind)) in kinds.into_iter().enumerate() {
        let rig = Rig::small(1);
        let node = Node::special(&rig.file_system, number as u64, pattern(2), flags, kind);
        let file = rig.open(&node);
        assert!(file.is_direct() && !file.in_memory());
        node.take_calls();
        for _ in 0..2 {
            assert_pattern(&read(&file, 5, 100), 5);
        }
        let mut buffer = [0; 10_000];
        // Less than asked for is what there is now: no second call.
        assert_eq!(file.read_at(&mut buffer, 8000), Ok(192));
        assert_eq!(file.write_at(&[1; 10], 3), Ok(10));
        assert_eq!(file.append(&[2; 10]), Ok((10, 8202)));
        assert_eq!(file.set_len(8200), Ok(()));
        assert_eq!(file.sync(SyncScope::Data), Ok(()));
        let calls: Vec<Kind> = node.take_calls().iter().map(|call| call.kind).collect();
        use Kind::{Append, Read, SetLen, Sync, Write};
        assert_eq!(calls, [Read, Read, Read, Write, Append, SetLen, Sync]);
        assert_eq!(file.with_page_or_insert(PageIndex::new(0), |_| ()), Err(VfsError::InvalidInput));
        assert_eq!(file.with_page_or_insert(PageIndex::MAX, |_| ()), Err(VfsError::InvalidInput));
        assert_eq!(file.mark_dirty(PageIndex::new(0)), Err(VfsError::InvalidInput));
        assert!(file.with_page(PageIndex::new(0), |page| page.is_none()));
        assert_eq!(node.take_calls(), []);
        drop(file);
        rig.assert_empty();
    }
}

/// Goal: a file that is made up as it is read, of unknown length, can be read: as `/proc` and `SimpleFile` have them.
#[test]
fn a_file_without_a_length_is_read() {
    let rig = Rig::small(0);
    let flags = NodeFlags::NON_CACHEABLE;
    let node = Node::special(&rig.file_system, 1, Vec::new(), flags, NodeType::RegularFile);
    let file = rig.open(&node);
    assert_eq!(file.len(), 0);
    node.append_quietly(&pattern(1));
    assert_pattern(&read(&file, 0, 4096), 0);
    assert_eq!(node.take_calls(), [Call { kind: Kind::Read, offset: 0, length: 4096 }]);
    drop(file);
    rig.assert_empty();
}

/// Goal: all who open an inode have the same pages; an equal number of another file system is another file.
#[test]
fn an_inode_is_one_file() {
    let rig = Rig::small(0);
    let (node, file) = rig.patterned(4);
    assert_pattern(&read(&file, 0, 4096), 0);
    let again = rig.open(&node);
    assert!(again.ptr_eq(&file));
    again.write_at(&[1; 10], 0).unwrap();
    assert_eq!(read(&file, 0, 10), [1; 10]);
    let other_system: Arc<FileSystem> = FileSystem::new("ext4");
    let inode = axfs_ng_vfs::NodeOps::inode(&*node);
    let other_node = Node::new(&other_system, inode, vec![7; 4 * 4096]);
    let other = rig.open(&other_node);
    assert!(!other.ptr_eq(&file));
    assert_eq!((read(&other, 0, 10), read(&again, 0, 10)), (vec![7; 10], vec![1; 10]));
    drop((file, again, other));
    rig.cache.sync().unwrap();
    rig.assert_empty();
}

/// Goal: numbers of files that are gone are used again, and none of their pages is found by who has the number next.
#[test]
fn numbers_of_files_are_used_again() {
    let rig = Rig::small(1);
    let before = rig.stats().metadata_bytes;
    let rounds = if cfg!(miri) { 20 } else { 500 };
    for round in 0..rounds {
        let value = round as u8;
        let node = rig.node(vec![value; 3 * 4096]);
        let file = rig.open(&node);
        assert_eq!(read(&file, 0, 3 * 4096), [value; 3 * 4096]);
        file.append(&[value ^ 1; 5]).unwrap();
        drop(file);
        // Dirty, so it is there still.
        assert_eq!(read(&rig.open(&node), 3 * 4096, 5), [value ^ 1; 5]);
        rig.cache.sync().unwrap();
        assert_eq!((rig.stats().resident_pages, node.bytes().len()), (0, 3 * 4096 + 5));
    }
    let after = rig.stats().metadata_bytes;
    assert!(after < before + 100_000, "{before} bytes of metadata became {after}");
    rig.assert_empty();
}
