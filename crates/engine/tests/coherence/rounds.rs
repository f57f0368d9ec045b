//! Rounds: a file that is leased, written by another process and leased again, thousands of times, read meanwhile.
//!
//! Owns: that no read has older bytes than were written before it began.
//! Does not own: when a file is leased (levels).

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use headwater::{Caching, Coherence, DriverKind, File, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, scratch_dirs, watched, with_seed, with_uring};

use crate::peer::{Peer, contents, in_peer};
use crate::rig::{Rig, uring_refusal};

/// Goal: every read that begins after a write of another process has ended sees it, also while many read; that process is
/// never kept waiting for good, and nobody is killed by a signal. Method: versions in every word of a page, announced by the
/// one who writes.
#[test]
fn a_read_after_a_write_sees_it() {
    const NAME: &str = "rounds::a_read_after_a_write_sees_it";
    if in_peer() {
        return;
    }
    with_seed(NAME, |seed| {
        for driver in threaded() {
            let (world, rig) = (World::new(NAME, ScratchDir::on_target().unwrap()), Rig::new(driver));
            let leased = watched(rig.name(), || hammer(world, &rig, seed));
            assert!(leased > ROUNDS / 20, "leased in {leased} rounds of {ROUNDS}, which tells little");
            rig.assert_idle();
        }
    });
}

/// Goal: the same on every file system, alone, with files that are truncated, emptied and extended.
#[test]
fn every_file_system() {
    const NAME: &str = "rounds::every_file_system";
    if in_peer() {
        return;
    }
    with_seed(NAME, |seed| {
        for (name, directory) in scratch_dirs() {
            let rig = Rig::new(DriverKind::Threads);
            let mut world = World::new(NAME, directory);
            watched(name, || change_in_turn(&mut world, &rig, name, seed));
            rig.assert_idle();
        }
    });
}

/// A file of [`PAGES`] pages, and who writes to it.
struct World {
    // Before the directory, which the peer has files in.
    peer: Peer,
    versions: Vec<AtomicU64>,
    directory: ScratchDir,
    /// For the socket: not every file system has room for one.
    _sockets: ScratchDir,
}

impl World {
    fn new(name: &str, directory: ScratchDir) -> World {
        let (sockets, path) = (ScratchDir::on_target().unwrap(), directory.path().join("file"));
        std::fs::write(&path, vec![0; PAGES as usize * 4096]).unwrap();
        let versions = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        World { peer: Peer::new(name, sockets.path(), &path), versions, directory, _sockets: sockets }
    }
}

fn hammer(mut world: World, rig: &Rig, seed: u64) -> u64 {
    let path = world.directory.path().join("file");
    let (done, versions, peer) = (AtomicBool::new(false), &world.versions, &mut world.peer);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (path, done) = (&path, &done);
            scope.spawn(move || observe(rig, path, versions, done, seed ^ reader));
        }
        let ended = Ended(&done);
        let leased = write_in_rounds(rig, &path, versions, peer, seed);
        drop(ended);
        leased
    })
}

/// Says in how many rounds the file was leased before it was written.
fn write_in_rounds(rig: &Rig, path: &Path, versions: &[AtomicU64], peer: &mut Peer, seed: u64) -> u64 {
    let (mut rng, mut leased) = (Rng::new(seed), 0);
    let mut file = open(rig, path);
    for _ in 0..ROUNDS {
        if rng.chance(2, 3) {
            // An opening leases it again.
            file = open(rig, path);
        }
        leased += u64::from(file.coherence() == Coherence::Leased);
        let page = rng.below(PAGES);
        let version = versions[page as usize].load(Ordering::Relaxed) + 1;
        peer.write(page, version);
        versions[page as usize].store(version, Ordering::Release);
        assert_eq!(oldest(&file, page), version, "page {page}");
    }
    leased
}

fn observe(rig: &Rig, path: &Path, versions: &[AtomicU64], done: &AtomicBool, seed: u64) {
    let (mut file, mut rng) = (open(rig, path), Rng::new(seed));
    while !done.load(Ordering::Relaxed) {
        if rng.chance(1, 1000) {
            file = open(rig, path);
        }
        let page = rng.below(PAGES);
        let announced = versions[page as usize].load(Ordering::Acquire);
        let seen = oldest(&file, page);
        assert!(seen >= announced, "page {page} is of version {seen}, {announced} was written before");
    }
}

fn change_in_turn(world: &mut World, rig: &Rig, name: &str, seed: u64) {
    let (path, mut rng) = (world.directory.path().join("file"), Rng::new(seed));
    let (mut model, mut file) = (vec![0; PAGES as usize * 4096], open(rig, &path));
    // A child of another test may have a descriptor for a moment that is open for writing.
    while file.coherence() != Coherence::Leased {
        thread::yield_now();
    }
    for version in 1..200 {
        if rng.chance(1, 2) {
            file = open(rig, &path);
        }
        let page = rng.below(PAGES);
        match rng.below(8) {
            0 => {
                let length = rng.below(PAGES * 4096);
                world.peer.tell(&format!("length {length}"));
                model.resize(length as usize, 0);
            }
            1 => {
                world.peer.tell("empty");
                model.clear();
            }
            2 => world.peer.tell("read"),
            _ => {
                world.peer.write(page, version);
                let end = (page as usize + 1) * 4096;
                model.resize(model.len().max(end), 0);
                model[end - 4096..end].copy_from_slice(&contents(version));
            }
        }
        assert_eq!(file.len().unwrap(), model.len() as u64, "{name}");
        let mut seen = vec![0; PAGES as usize * 4096 + 1];
        let length = file.read_at(&mut seen, 0).unwrap();
        assert!(seen[..length] == model, "{name}: version {version}");
    }
}

/// Ends the readers, also when the writer has failed.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn oldest(file: &File, page: u64) -> u64 {
    let mut buffer = [0; 4096];
    file.read_exact_at(&mut buffer, page * 4096).unwrap();
    buffer.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).min().unwrap()
}

fn open(rig: &Rig, path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).caching(Caching::On).coherence(Coherence::Leased).open(path).unwrap()
}

/// Drivers whose engines have a background thread.
fn threaded() -> Vec<DriverKind> {
    with_uring([DriverKind::Threads], DriverKind::Uring, uring_refusal())
}

const PAGES: u64 = 32;
const ROUNDS: u64 = 2000;
