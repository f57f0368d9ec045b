//! Promises: writes to a device that is nearly full, and what becomes of those that find no room.
//!
//! Owns: that an accepted write finds room, and that what is lost is reported.
//! Does not own: a device that was filled and has room again (space).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use headwater::{Engine, File, OpenOptions};
use headwater_testkit::{FileSystem, LoopMount, skip};
use rustix::fs::FallocateFlags;

/// A small file system with some tens of MiB free.
fn small(kind: FileSystem) -> Option<LoopMount> {
    let size_bytes = if kind == FileSystem::Xfs { 300 << 20 } else { 48 << 20 };
    let mount = LoopMount::new(kind, size_bytes);
    mount.inspect_err(|reason| skip(format!("{}: {reason}", kind.name()))).ok()
}

fn free_bytes(mount: &LoopMount) -> u64 {
    let status = rustix::fs::statvfs(mount.path()).unwrap();
    status.f_bavail * status.f_frsize
}

fn open(engine: &Engine, mount: &LoopMount, name: &str) -> File {
    OpenOptions::new().engine(engine).write(true).create(true).open(mount.path().join(name)).unwrap()
}

/// Appends pieces until one is refused. Says how many bytes were accepted.
fn fill(file: &File, piece_bytes: usize) -> u64 {
    let piece = vec![5; piece_bytes];
    for number in 0.. {
        if let Err(error) = file.append(&piece) {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            return number * piece_bytes as u64;
        }
    }
    unreachable!("the device has an end")
}

/// Goal: what a nearly full device accepts is on disk after the file was dropped and the engine flushed, in pieces that gather
/// in memory and in large ones. Method: half of the engine's memory may be unwritten, and that is more than the device has.
#[test]
fn what_is_accepted_finds_room() {
    for kind in [FileSystem::Ext4, FileSystem::Xfs] {
        let Some(mount) = small(kind) else { return };
        for piece_bytes in [100_000, 1 << 20] {
            let engine = Engine::builder().memory(1 << 30).build().unwrap();
            let path = mount.path().join("log");
            let file = open(&engine, &mount, "log");
            let accepted_bytes = fill(&file, piece_bytes);
            drop(file);
            engine.flush().unwrap();
            let disk = fs::read(&path).unwrap();
            assert!(accepted_bytes > 8 << 20, "{accepted_bytes} bytes on {}", kind.name());
            // The piece that was refused may have got in a part.
            assert!(disk.len() as u64 >= accepted_bytes, "{} of {accepted_bytes}", disk.len());
            assert!(disk.iter().all(|&byte| byte == 5));
            fs::remove_file(&path).unwrap();
        }
    }
}

/// Goal: a file whose unwritten pages can never be written, because others have filled the device meanwhile, gives its space
/// back when it is deleted and closed; the next flush says so, once; other files go on. Method: on a file system that sets
/// nothing aside for the overwrite of a hole that was punched after it was promised.
#[test]
fn a_deleted_file_keeps_no_space() {
    let Some(mount) = small(FileSystem::Ext4) else { return };
    let engine = Engine::builder().memory(32 << 20).build().unwrap();
    let file = open(&engine, &mount, "fill");
    file.write_all_at(&vec![9; 4 << 20], 0).unwrap();
    file.sync_data().unwrap();
    for page in 0..500 {
        file.write_all_at(&[8; 4096], page * 8192).unwrap();
    }
    // What was set aside for them goes to another program.
    let holes = fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&holes, flags, 0, 4 << 20).unwrap();
    drop(holes);
    let (ballast, mut at) = (fs::File::create(mount.path().join("ballast")).unwrap(), 0);
    // In large pieces first: the keeper writes what it can within some seconds.
    for step in [1 << 20, 65_536, 4096] {
        while rustix::fs::fallocate(&ballast, FallocateFlags::empty(), at, step).is_ok() {
            at += step;
        }
    }
    while ballast.write_all_at(&[7; 4096], at).and_then(|()| ballast.sync_all()).is_ok() {
        at += 4096;
    }
    let error = file.sync_data().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(engine.stats().cache.dirty_pages > 0);
    fs::remove_file(file.path()).unwrap();
    drop(file);
    let error = engine.flush().unwrap_err();
    assert_eq!((error.kind(), engine.stats().cache.dirty_pages), (ErrorKind::StorageFull, 0), "{error}");
    engine.flush().unwrap();
    drop(ballast);
    fs::remove_file(mount.path().join("ballast")).unwrap();
    let free_bytes = free_bytes(&mount);
    assert!(free_bytes > 24 << 20, "{free_bytes} bytes are free");
    let other = open(&engine, &mount, "other");
    other.write_all_at(&vec![1; 10 << 20], 0).unwrap();
    other.sync_data().unwrap();
}
