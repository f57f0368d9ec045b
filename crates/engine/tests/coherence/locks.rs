//! Locks: what the program has locked by `fcntl(2)` stays locked while an engine works with the file.
//!
//! Owns: every use that closes descriptors, at once or in the background.
//! Does not own: kinds and ranges of locks (`headwater-io`).

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::{Coherence, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{PATIENCE, ScratchDir, run_forked};
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::rig::{Rig, drivers};

const LENGTH_BYTES: usize = 300_000;

/// Goal: the program's locks, shared and exclusive, stay while an engine opens, reads, writes, closes and evicts the file, by every
/// mode and by path; once they are given up, the engine's descriptors are closed by its background thread. Method: another process
/// tries to lock the file after each use.
#[test]
fn the_programs_locks_stay() {
    for kind in drivers(1) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let (path, other) = (directory.path().join("file"), directory.path().join("other"));
        fs::write(&path, vec![7; LENGTH_BYTES]).unwrap();
        fs::write(&other, vec![7; 20 << 20]).unwrap();
        let host = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for exclusive in [FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared] {
            fcntl_lock(&host, exclusive).unwrap();
            for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
                for coherence in [Coherence::Revalidated, Coherence::Leased] {
                    let open = |options: &mut OpenOptions| {
                        options.engine(&rig.engine).io(mode).coherence(coherence).open(&path).unwrap()
                    };
                    read_all(&open(&mut OpenOptions::new()));
                    assert_locked(&path);
                    let file = open(OpenOptions::new().write(true));
                    read_all(&file);
                    file.write_all_at(&[8; 5000], 3000).unwrap();
                    file.sync_data().unwrap();
                    file.set_len(LENGTH_BYTES as u64).unwrap();
                    file.write_all_at(&[8; 5000], 13000).unwrap();
                    drop(file);
                    assert_locked(&path);
                }
            }
            assert_eq!(rig.engine.read(&path).unwrap().len(), LENGTH_BYTES);
            assert_locked(&path);
            evict(&rig.engine, &other);
            assert_eq!(rig.engine.read(&path).unwrap().len(), LENGTH_BYTES);
            assert_locked(&path);
            rig.engine.flush().unwrap();
            assert_locked(&path);
        }
        let is_kept = rig.control.is_none();
        if is_kept {
            // Its background thread is not at rest while a file is open, nor a second after.
            drop(OpenOptions::new().engine(&rig.engine).open(&other).unwrap());
        }
        fcntl_lock(&host, FlockOperation::Unlock).unwrap();
        if is_kept {
            wait_until_closed(&path, || thread::sleep(Duration::from_millis(10)));
        }
        drop(rig);
        // Without an engine, whatever is opened next does it.
        wait_until_closed(&path, || drop(OpenFile::open(&other, DirectIo::Off, Access::Read).unwrap()));
    }
}

fn read_all(file: &File) {
    let mut bytes = vec![0; LENGTH_BYTES];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), LENGTH_BYTES);
}

/// Reads more than there is memory for, so that the file's pages leave, and the file with them.
fn evict(engine: &Engine, other: &Path) {
    let file = OpenOptions::new().engine(engine).open(other).unwrap();
    let mut bytes = vec![0; 1 << 20];
    for offset_bytes in (0..20).map(|number| number << 20) {
        file.read_at(&mut bytes, offset_bytes).unwrap();
    }
}

/// Another process cannot lock the file.
fn assert_locked(path: &Path) {
    run_forked(|| {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let locked = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        assert!(locked.is_err(), "the lock is gone");
    });
}

/// Until the program's own descriptor is the only one.
fn wait_until_closed(path: &Path, mut each: impl FnMut()) {
    let deadline = Instant::now() + PATIENCE;
    while descriptors(path) > 1 {
        assert!(Instant::now() < deadline, "{} descriptors are open", descriptors(path));
        each();
    }
}

/// Descriptors of the file that this process has.
fn descriptors(path: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path)).count()
}
