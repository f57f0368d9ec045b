//! Scratch directories: one empty directory on every kind of file system this machine offers.
//!
//! Owns: the choice of kinds, directories on file systems that exist already, tmpfs.
//! Does not own: loop mounts (see `mounts`).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use crate::mounts::{MountDir, run};
use crate::{FileSystem, LoopMount, Skip, skip};

/// An empty directory for one test, removed at drop with all that is in it.
#[derive(Debug)]
pub struct ScratchDir {
    place: Place,
}

#[derive(Debug)]
enum Place {
    Directory(TempDir),
    Loop(LoopMount),
    Tmpfs(MountDir),
    Within { directory: TempDir, _parent: Arc<ScratchDir> },
}

impl ScratchDir {
    /// A directory on the file system the project is built on.
    ///
    /// # Errors
    /// [`Skip`] when no directory can be made there.
    pub fn on_target() -> Result<ScratchDir, Skip> {
        ScratchDir::inside(&target_tmp())
    }

    /// The same for a test that fills a part of the disk.
    ///
    /// # Errors
    /// [`Skip`] when fewer than `needed_bytes` are free there, or little more.
    pub fn with_room(needed_bytes: u64) -> Result<ScratchDir, Skip> {
        let directory = ScratchDir::on_target()?;
        let status = rustix::fs::statvfs(directory.path()).map_err(|error| Skip(error.to_string()))?;
        let free_bytes = status.f_bavail.saturating_mul(status.f_frsize);
        if free_bytes < needed_bytes.saturating_add(ROOM_BYTES) {
            let place = target_tmp();
            return Err(Skip(format!(
                "{}: {} MiB are free, and the test needs {}, with {} MiB to spare",
                place.display(),
                free_bytes >> 20,
                needed_bytes >> 20,
                ROOM_BYTES >> 20
            )));
        }
        Ok(directory)
    }

    /// Where the directory is.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.place {
            Place::Directory(directory) => directory.path(),
            Place::Loop(mount) => mount.path(),
            Place::Tmpfs(mount) => mount.mount_point(),
            Place::Within { directory, .. } => directory.path(),
        }
    }

    /// A directory of its own in another one, which stays as long as this does.
    pub(crate) fn within(parent: &Arc<ScratchDir>) -> ScratchDir {
        let directory = tempfile::tempdir_in(parent.path())
            .expect("an empty directory can be made in a scratch directory");
        ScratchDir { place: Place::Within { directory, _parent: parent.clone() } }
    }

    fn inside(parent: &Path) -> Result<ScratchDir, Skip> {
        let directory = tempfile::Builder::new().prefix("headwater-").tempdir_in(parent);
        let directory = directory.map_err(|error| Skip(format!("{}: {error}", parent.display())))?;
        Ok(ScratchDir { place: Place::Directory(directory) })
    }

    /// On a new file system in a file below `TMPDIR`, which needs root.
    ///
    /// # Errors
    /// [`Skip`] without, or where a tool is missing.
    pub fn on_loop(kind: FileSystem) -> Result<ScratchDir, Skip> {
        Ok(ScratchDir { place: Place::Loop(LoopMount::new(kind, LOOP_BYTES)?) })
    }
}

/// A scratch directory on every kind of file system to be had, with the kind's name: `default` (where the project
/// is built), `ext4`, `xfs`, `btrfs`, `tmpfs`. Each test calls it for itself. The missing ones go through
/// [`skip`]: they are printed, or fail the test where nothing may be skipped.
#[must_use]
pub fn scratch_dirs() -> Vec<(&'static str, ScratchDir)> {
    let on_loop = |kind: FileSystem| (kind.name(), ScratchDir::on_loop(kind));
    let candidates = [
        ("default", ScratchDir::on_target()),
        on_loop(FileSystem::Ext4),
        on_loop(FileSystem::Xfs),
        on_loop(FileSystem::Btrfs),
        ("tmpfs", tmpfs()),
    ];
    candidates.into_iter().filter_map(|(name, candidate)| available(name, candidate)).collect()
}

/// A directory on tmpfs: in `/dev/shm` where that is one, else on a tmpfs mounted for it, which needs root.
///
/// # Errors
/// [`Skip`] when there is neither.
pub fn tmpfs() -> Result<ScratchDir, Skip> {
    if is_tmpfs(Path::new(SHARED_MEMORY)) {
        return ScratchDir::inside(Path::new(SHARED_MEMORY));
    }
    mount_tmpfs("size=50%")
}

/// A tmpfs of its own with this capacity in bytes; mounting it needs root.
///
/// # Errors
/// [`Skip`] without.
pub fn small_tmpfs(bytes: u64) -> Result<ScratchDir, Skip> {
    mount_tmpfs(&format!("size={bytes}"))
}

fn mount_tmpfs(options: &str) -> Result<ScratchDir, Skip> {
    let mount = MountDir::new()?;
    run(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(mount.mount_point()))?;
    Ok(ScratchDir { place: Place::Tmpfs(mount) })
}

/// `tmp` in cargo's target directory, made if it is missing; the system's directory for temporary files when the
/// binary does not lie in a target directory. Like `CARGO_TARGET_TMPDIR`, which unit tests do not get.
#[must_use]
pub fn target_tmp() -> PathBuf {
    // target/<profile>/deps/<test binary>
    let binary = env::current_exe().unwrap_or_default();
    match binary.ancestors().nth(3).filter(|_| binary.parent().is_some_and(|parent| parent.ends_with("deps")))
    {
        Some(target) if fs::create_dir_all(target.join("tmp")).is_ok() => target.join("tmp"),
        _ => env::temp_dir(),
    }
}

fn available(name: &'static str, candidate: Result<ScratchDir, Skip>) -> Option<(&'static str, ScratchDir)> {
    match candidate {
        Ok(directory) => Some((name, directory)),
        Err(reason) => {
            skip(format!("{name}: {reason}"));
            None
        }
    }
}

fn is_tmpfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|status| status.f_type == TMPFS_MAGIC)
}

const SHARED_MEMORY: &str = "/dev/shm";

/// From `statfs(2)`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// The size of the sparse images: above the minimum of all kinds, and room for a few test files.
const LOOP_BYTES: u64 = 512 << 20;

/// What a test leaves free: for tests at its side, and for what a linker writes.
const ROOM_BYTES: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    /// Goal: every directory takes a file, all are distinct, none is left over.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn every_directory_takes_a_file() {
        let directories = scratch_dirs();
        assert_eq!(directories[0].0, "default");
        let paths: Vec<PathBuf> = directories.iter().map(|(_, scratch)| scratch.path().to_owned()).collect();
        for path in &paths {
            Pattern::new(5).write_file(path.join("file"), 70_000).unwrap();
        }
        drop(directories);
        assert!(paths.iter().all(|path| !path.exists()));
    }

    /// Goal: a test that needs more of the disk than is free is skipped before it writes, with both figures in the reason.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn room_is_asked_for_first() {
        let Skip(reason) = ScratchDir::with_room(1 << 60).unwrap_err();
        assert!(reason.contains("MiB are free") && reason.contains(&(1_u64 << 40).to_string()), "{reason}");
    }

    /// Goal: mounts of one process do not meet. Method: four threads mount at once.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn threads_may_mount_at_once() {
        std::thread::scope(|scope| {
            for number in 0..4_u8 {
                scope.spawn(move || {
                    let Some((_, scratch)) = available("ext4", ScratchDir::on_loop(FileSystem::Ext4)) else {
                        return;
                    };
                    let file = scratch.path().join("file");
                    assert!(!file.exists());
                    fs::write(&file, [number]).unwrap();
                    assert_eq!(fs::read(&file).unwrap(), [number]);
                });
            }
        });
    }
}
