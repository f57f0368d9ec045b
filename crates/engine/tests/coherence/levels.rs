//! Levels: when a file is leased, when it is not, and what a handle says.
//!
//! Owns: each way in which a lease begins and ends.
//! Does not own: that reads see everything (rounds).

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater::{Caching, Coherence, DriverKind, File, OpenOptions};
use headwater_testkit::{ScratchDir, run_forked, run_self_with_env, skip, watched};

use crate::peer::{Peer, contents, in_peer};
use crate::rig::{Rig, calm};

/// Goal: a lease is refused where somebody writes, the handle says so, reads see him all the same, and when he is gone the
/// file is leased without anybody's doing.
#[test]
fn refused_where_somebody_writes() {
    with_peer("levels::refused_where_somebody_writes", |world, peer| {
        peer.tell("hold");
        let file = world.open(Coherence::Leased);
        for version in 1..100 {
            peer.tell(&format!("put 3 {version}"));
            assert!(read(&file, 3) == contents(version));
            assert_eq!(file.coherence(), Coherence::Revalidated);
        }
        peer.tell("release");
        wait_for(&file, Coherence::Leased);
        assert!(read(&file, 3) == contents(99));
    });
}

/// Goal: a lease ends when somebody wants to write, also if he does not wait, and not when he wants to read; who listens is
/// told of the pages that left.
#[test]
fn ends_when_somebody_wants_to_write() {
    with_peer("levels::ends_when_somebody_wants_to_write", |world, peer| {
        let (file, told) = (world.open_leased(), Arc::new(AtomicBool::new(false)));
        let listener = { told.clone() };
        let _listener = file.on_evicted(move |_| listener.store(true, Ordering::Release));
        assert!(read(&file, 3) == contents(0));
        peer.tell("read");
        assert_eq!(file.coherence(), Coherence::Leased);
        assert!(!peer.is_free_to_write(), "it is leased");
        while !told.load(Ordering::Acquire) {
            thread::yield_now();
        }
        wait_for(&file, Coherence::Leased);
        peer.write(3, 7);
        assert!(read(&file, 3) == contents(7));
    });
}

/// Goal: this process's own writers do not wait for each other: by the engine, and past it, in any thread.
#[test]
fn our_own_writers() {
    with_peer("levels::our_own_writers", |world, _| {
        let file = world.open_leased();
        for version in 1..300 {
            if version % 3 == 0 {
                drop(world.open(Coherence::Leased));
            }
            let at = version % PAGES * 4096;
            match version % 2 {
                0 => {
                    let mut options = OpenOptions::new();
                    let writer = options.engine(&world.rig.engine).write(true).open(&world.path).unwrap();
                    writer.write_all_at(&contents(version), at).unwrap();
                    assert_eq!(file.coherence(), Coherence::Revalidated);
                    assert!(read(&file, version % PAGES) == contents(version));
                    // As long as we have something to write, nobody can tell what others did.
                    writer.sync_all().unwrap();
                }
                _ => {
                    let writer = std::fs::OpenOptions::new().write(true).open(&world.path).unwrap();
                    assert_eq!(file.coherence(), Coherence::Revalidated);
                    writer.write_all_at(&contents(version), at).unwrap();
                }
            }
            assert!(read(&file, version % PAGES) == contents(version));
        }
        wait_for(&file, Coherence::Leased);
    });
}

/// Goal: handles share the lease, whoever wished it; it ends with the last of them, not with the one that brought it.
#[test]
fn handles_share_it() {
    with_peer("levels::handles_share_it", |world, peer| {
        let (first, other) = (world.open_leased(), world.open(Coherence::Revalidated));
        assert_eq!(other.coherence(), Coherence::Leased);
        drop(first);
        assert_eq!(other.coherence(), Coherence::Leased);
        assert!(!peer.is_free_to_write());
        wait_for(&other, Coherence::Leased);
        drop(other);
        assert!(peer.is_free_to_write());
        let again = world.open(Coherence::Revalidated);
        assert_eq!(again.coherence(), Coherence::Revalidated);
        assert!(peer.is_free_to_write());
    });
}

/// Goal: a file that was cached and closed is right when it is opened again, leased before, after, or both times.
#[test]
fn closed_and_opened_again() {
    with_peer("levels::closed_and_opened_again", |world, peer| {
        let levels = [Coherence::Leased, Coherence::Revalidated];
        for version in 1..100 {
            let (before, after) = (levels[version as usize % 2], levels[version as usize / 2 % 2]);
            assert!(read(&world.open(before), 3) == contents(version - 1));
            peer.write(3, version);
            let file = world.open(after);
            if after == Coherence::Leased {
                wait_for(&file, Coherence::Leased);
            }
            assert!(read(&file, 3) == contents(version));
        }
    });
}

/// Goal: who promises that nobody writes is not bothered by who does.
#[test]
fn private_files() {
    with_peer("levels::private_files", |world, peer| {
        let file = world.open(Coherence::Private);
        assert_eq!(file.coherence(), Coherence::Private);
        assert!(read(&file, 3) == contents(0));
        peer.write(3, 7);
        assert!(peer.is_free_to_write());
        assert!(read(&file, 3) == contents(0));
        assert_eq!(File::from_bytes("memory").coherence(), Coherence::Private);
    });
}

/// Goal: a handle that asks for no watch leaves its file unwatched for as long as any handle has the file open, and no longer,
/// although the pages stay.
#[test]
fn a_wish_for_no_watch_ends_with_the_handles() {
    let world = World::new(Rig::new(DriverKind::Threads));
    let other = world.open(Coherence::Revalidated);
    if other.coherence() == Coherence::Unwatched {
        return skip("the kernel gives no watch (fanotify)");
    }
    let file = world.open(Coherence::Unwatched);
    assert!(read(&file, 3) == contents(0));
    assert_eq!((file.coherence(), other.coherence()), (Coherence::Unwatched, Coherence::Unwatched));
    drop(file);
    assert_eq!(other.coherence(), Coherence::Unwatched);
    drop(other);
    assert_eq!(world.open(Coherence::Revalidated).coherence(), Coherence::Revalidated);
}

/// Goal: where there is no keeper, and what is not cached, has no lease.
#[test]
fn without_a_keeper_or_a_cache() {
    let world = World::new(calm(1));
    assert_eq!(world.open(Coherence::Leased).coherence(), Coherence::Revalidated);
    let world = World::new(Rig::new(DriverKind::Threads));
    let mut options = OpenOptions::new();
    options.engine(&world.rig.engine).caching(Caching::Off).coherence(Coherence::Leased);
    assert_eq!(options.open(&world.path).unwrap().coherence(), Coherence::Revalidated);
    assert_eq!(options.open("/dev/zero").unwrap().coherence(), Coherence::Revalidated);
    options.caching(Caching::On).write(true);
    assert_eq!(options.open(&world.path).unwrap().coherence(), Coherence::Revalidated);
}

/// Goal: a forked child that drops all it has of a leased file leaves the lease to its parent.
#[test]
fn forked() {
    const NAME: &str = "levels::forked";
    const CHILD: &str = "HEADWATER_COHERENCE_FORKING";
    if std::env::var_os(CHILD).is_none() && std::env::var_os("HEADWATER_COHERENCE_PEER").is_none() {
        let output = run_self_with_env(NAME, CHILD, "1");
        std::io::stdout().write_all(&output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    with_peer(NAME, |world, peer| {
        let mut file = Some(world.open_leased());
        assert!(read(file.as_ref().unwrap(), 3) == contents(0));
        run_forked(|| drop(file.take()));
        assert_eq!(file.as_ref().unwrap().coherence(), Coherence::Leased);
        peer.write(3, 7);
        assert!(read(file.as_ref().unwrap(), 3) == contents(7));
    });
}

/// Goal: who may only read the file gets no lease, and reads it all the same. Method: this test again, as another user.
#[test]
fn not_the_owner() {
    const CHILD: &str = "HEADWATER_COHERENCE_USER";
    if let Some(path) = std::env::var_os(CHILD) {
        let world = World { rig: Rig::new(DriverKind::Threads), path: path.into(), _directory: None };
        let file = world.open(Coherence::Leased);
        assert_eq!(file.coherence(), Coherence::Revalidated);
        return assert!(read(&file, 3) == contents(0));
    }
    if !rustix::process::geteuid().is_root() {
        return skip("becoming another user needs root");
    }
    let world = World::new(Rig::new(DriverKind::Threads));
    drop(world.open_leased());
    let directory = world.path.parent().unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "levels::not_the_owner", "--nocapture"]).env(CHILD, &world.path);
    match command.uid(NOBODY).gid(NOBODY).current_dir("/").output() {
        Err(error) => skip(format!("another user cannot run this: {error}")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("running 1 test"), "{output:?}");
        }
    }
}

/// A file of [`PAGES`] pages, and an engine.
struct World {
    rig: Rig,
    path: PathBuf,
    _directory: Option<ScratchDir>,
}

impl World {
    fn new(rig: Rig) -> World {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; PAGES as usize * 4096]).unwrap();
        World { rig, path, _directory: Some(directory) }
    }

    /// Waits until it is leased: a child that another test starts at the same time has our descriptors for a moment, also one
    /// that was open for writing.
    fn open_leased(&self) -> File {
        let file = self.open(Coherence::Leased);
        wait_for(&file, Coherence::Leased);
        file
    }

    fn open(&self, wished: Coherence) -> File {
        let mut options = OpenOptions::new();
        options.engine(&self.rig.engine).caching(Caching::On).coherence(wished).open(&self.path).unwrap()
    }
}

fn with_peer(name: &str, work: impl FnOnce(&World, &mut Peer)) {
    if in_peer() {
        return;
    }
    let (world, sockets) = (World::new(Rig::new(DriverKind::Threads)), ScratchDir::on_target().unwrap());
    let mut peer = Peer::new(name, sockets.path(), Path::new(&world.path));
    watched(name, || work(&world, &mut peer));
    world.rig.assert_idle();
}

fn wait_for(file: &File, level: Coherence) {
    while file.coherence() != level {
        thread::yield_now();
    }
}

fn read(file: &File, page: u64) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    file.read_exact_at(&mut buffer, page * 4096).unwrap();
    buffer
}

const PAGES: u64 = 16;

/// Who owns nothing.
const NOBODY: u32 = 65_534;
