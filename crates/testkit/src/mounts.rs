//! Loop mounts: a small file system of a chosen kind for one test.
//!
//! ```text
//!   image (sparse file) ─ mkfs ─► losetup ─► mount ─► losetup -d (marks the device: detach at the last unmount)
//!   drop: umount ─ busy? ─► umount -l ─► remove the directory
//! ```
//!
//! Everything of one mount lies in one directory whose name holds the process id and a random part, so that tests
//! of many threads and processes do not meet. A process that died without dropping leaves its directory behind;
//! the next test unmounts and removes what belongs to no living process.
//!
//! Owns: image, loop device, mount, and their removal.
//! Does not own: which file systems a test wants (see `scratch`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use tempfile::TempDir;

use crate::Skip;

/// The kinds of file system that can be made in a file and mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Direct I/O in units of the logical block; the kind most users have.
    Ext4,
    /// Allocates late and in long extents; direct I/O of several writers at once.
    Xfs,
    /// Checksums every block, so direct reads may be checked, retried or buffered.
    Btrfs,
}

impl FileSystem {
    /// Its name, as `mount` and the names of tests write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// The smallest image the kind's mkfs accepts, from its man page; below 300 MiB mkfs.xfs refuses.
    #[must_use]
    pub const fn size_bytes_min(self) -> u64 {
        match self {
            FileSystem::Ext4 => 4 * MIB,
            FileSystem::Xfs => 300 * MIB,
            FileSystem::Btrfs => 114 * MIB,
        }
    }

    pub(crate) fn mkfs(self, image: &Path) -> Command {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            // Zeroing the inode tables in the background would be I/O of its own during the test.
            FileSystem::Ext4 => {
                command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"])
            }
            FileSystem::Xfs => command.args(["-q", "-K"]),
            FileSystem::Btrfs => command.args(["-q", "-K"]),
        };
        command.arg(image);
        command
    }
}

/// A mounted file system of its own; dropping it unmounts and deletes it. Files in it must be closed by then, or
/// the file system lives on, without a path, until they are.
#[derive(Debug)]
pub struct LoopMount {
    directory: MountDir,
}

impl LoopMount {
    /// Makes and mounts an empty file system of `size_bytes` (raised to the kind's minimum) in a sparse file, with
    /// direct I/O from the loop device to that file where it is possible.
    ///
    /// # Errors
    /// [`Skip`] when the process is not root, a tool is missing, or the kernel refuses.
    pub fn new(kind: FileSystem, size_bytes: u64) -> Result<LoopMount, Skip> {
        let directory = MountDir::new()?;
        let image = directory.root().join(IMAGE);
        let size = size_bytes.max(kind.size_bytes_min());
        File::create(&image).and_then(|file| file.set_len(size)).map_err(|error| Skip(error.to_string()))?;
        run(&mut kind.mkfs(&image))?;
        LoopMount::of_image(kind, directory)
    }

    /// Mounts a copy of the image of a file system.
    ///
    /// # Errors
    /// [`Skip`] as for a new one.
    pub fn of_copy(kind: FileSystem, image: &Path) -> Result<LoopMount, Skip> {
        let directory = MountDir::new()?;
        run(Command::new("cp").arg("--sparse=always").arg(image).arg(directory.root().join(IMAGE)))?;
        LoopMount::of_image(kind, directory)
    }

    /// Mounts the image that lies in the directory.
    fn of_image(kind: FileSystem, directory: MountDir) -> Result<LoopMount, Skip> {
        let device = attach(&directory.root().join(IMAGE))?;
        let mounted =
            run(Command::new("mount").args(["-t", kind.name(), &device]).arg(directory.mount_point()));
        // Detaching a mounted device only marks it: the kernel detaches it when the last user has gone, even if
        // this process has died by then (`losetup(8)`, autoclear).
        detach(&device);
        mounted?;
        Ok(LoopMount { directory })
    }

    /// The root directory of the file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.mount_point()
    }
}

/// A directory with a mount point in it, unmounted and removed at drop whether or not something is mounted.
#[derive(Debug)]
pub(crate) struct MountDir {
    // Taken out at drop when the file system cannot be unmounted: removing its directory would fail anyway.
    directory: Option<TempDir>,
    mount_point: PathBuf,
}

impl MountDir {
    /// An empty mount point, after cleaning up behind processes that died.
    pub(crate) fn new() -> Result<MountDir, Skip> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skip("mounting needs root".to_owned()));
        }
        remove_leftovers();
        let prefix = format!("{PREFIX}{}-", process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir();
        let directory = directory.map_err(|error| Skip(error.to_string()))?;
        let mount_point = directory.path().join(MOUNT_POINT);
        fs::create_dir(&mount_point).map_err(|error| Skip(error.to_string()))?;
        Ok(MountDir { directory: Some(directory), mount_point })
    }

    pub(crate) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    fn root(&self) -> &Path {
        self.mount_point.parent().expect("the mount point was made inside a directory")
    }
}

impl Drop for MountDir {
    fn drop(&mut self) {
        if let (Err(error), Some(directory)) = (unmount(&self.mount_point), self.directory.take()) {
            eprintln!("{} is left mounted: {error}", directory.keep().display());
        }
    }
}

/// Runs a tool to its end and returns what it printed. [`Skip`] says which tool failed and how.
pub(crate) fn run(command: &mut Command) -> Result<String, Skip> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| Skip(format!("{tool}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(Skip(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Attaches the image to a free loop device and returns the device. Direct I/O to the image keeps its contents
/// out of the kernel's cache, so that a cold file is cold; an old losetup or kernel does without.
pub(crate) fn attach(image: &Path) -> Result<String, Skip> {
    let losetup =
        |options: &[&str]| run(Command::new("losetup").args(["--find", "--show"]).args(options).arg(image));
    losetup(&["--direct-io=on"]).or_else(|_| {
        detach_image(image);
        losetup(&[])
    })
}

pub(crate) fn detach(device: &str) {
    // A device that cannot be detached is in use, and detached by whoever uses it.
    let _ = run(Command::new("losetup").args(["--detach", device]));
}

/// Detaches whatever device has this image behind it.
fn detach_image(image: &Path) {
    let devices =
        run(Command::new("losetup").args(["--noheadings", "--output", "NAME", "--associated"]).arg(image));
    for device in devices.unwrap_or_default().lines() {
        detach(device.trim());
    }
}

/// Unmounts what is mounted there, if anything is; a busy file system loses its path at once and goes when its
/// last file is closed.
fn unmount(mount_point: &Path) -> Result<(), Skip> {
    if !is_mounted(mount_point) {
        return Ok(());
    }
    run(Command::new("umount").arg(mount_point))
        .or_else(|_| run(Command::new("umount").arg("--lazy").arg(mount_point)))
        .map(|_| ())
}

fn is_mounted(mount_point: &Path) -> bool {
    let path = fs::canonicalize(mount_point).unwrap_or_else(|_| mount_point.to_owned());
    // The fifth field is the mount point (`proc_pid_mountinfo(5)`); our names hold nothing it would escape.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|mounted| Path::new(mounted) == path)
}

/// Unmounts and removes what dead processes left. Two processes may do it at once: each step is harmless when the
/// other has done it, hence the errors ignored.
fn remove_leftovers() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !owner(&name.to_string_lossy()).is_some_and(is_dead) {
            continue;
        }
        let directory = entry.path();
        if unmount(&directory.join(MOUNT_POINT)).is_ok() {
            detach_image(&directory.join(IMAGE));
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

/// The process that made the directory of this name, `None` if it is not one of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_dead(process: u32) -> bool {
    !Path::new("/proc").join(process.to_string()).exists()
}

const PREFIX: &str = "headwater-mount-";
const IMAGE: &str = "image";
const MOUNT_POINT: &str = "mount";
const MIB: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    /// Goal: a mount can be written to, and nothing of it is left afterwards.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_mount_goes_with_its_owner() {
        let mount = match LoopMount::new(FileSystem::Ext4, 16 * MIB) {
            Ok(mount) => mount,
            Err(reason) => return skip(format!("ext4: {reason}")),
        };
        let path = mount.path().to_owned();
        assert!(is_mounted(&path));
        fs::write(path.join("file"), "contents").unwrap();
        drop(mount);
        assert!(!is_mounted(&path));
        assert!(!path.parent().unwrap().exists());
    }

    /// Goal: an open file does not stop the owner from unmounting.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_busy_mount_loses_its_path() {
        let mount = match LoopMount::new(FileSystem::Ext4, 16 * MIB) {
            Ok(mount) => mount,
            Err(reason) => return skip(format!("ext4: {reason}")),
        };
        let path = mount.path().to_owned();
        let _open = File::create(path.join("file")).unwrap();
        drop(mount);
        assert!(!is_mounted(&path));
        assert!(!path.parent().unwrap().exists());
    }

    /// Goal: what a dead process left is removed. Method: a directory named after a child that has ended.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn leftovers_of_the_dead_are_removed() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}{}-left", child.id()));
        fs::create_dir_all(left.join(MOUNT_POINT)).unwrap();
        remove_leftovers();
        assert!(!left.exists());
    }

    #[test]
    fn only_our_names_have_an_owner() {
        assert_eq!(owner("headwater-mount-12-abc"), Some(12));
        assert_eq!(owner("headwater-mount-abc"), None);
        assert_eq!(owner("elsewhere-12-abc"), None);
    }
}
