//! Folder: the files of one run, which vanish with it, however it ends.
//!
//! ```text
//!   create ─► lock ─► guard ─┬─ dropped ───────────────────► removed, and the guard ends
//!                            ├─ a signal ends this process ─► the guard's input ends ─► the guard removes it
//!                            └─ the guard was killed too ───► the next run in the same place finds it unlocked, and removes it
//! ```
//!
//! The guard is a process of its own: no process can act on SIGKILL, and a handler of the other signals would need unsafe code.
//!
//! Owns: the folder's name, its lock, its guard, its removal.
//! Does not own: what is in it.
//! Invariants: F1 a folder with a name of ours is locked while its run lives; only one that is not locked is removed for another run.
//! Locks: `flock(2)` of the folder itself, never waited for.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::tools::{THIS_PROGRAM, about, complain};

/// A folder that is removed when it is dropped, or when this process is killed.
pub(crate) struct Folder {
    // The order of the fields is that in which they go: removed, then released, then unlocked.
    folder: TempDir,
    #[expect(dead_code, reason = "it ends with this")]
    guard: Guard,
    #[expect(dead_code, reason = "it is locked while it is open")]
    lock: File,
}

impl Folder {
    /// A folder in `directory`, from which what dead runs have left is removed first.
    ///
    /// # Errors
    /// What making a directory or starting a process reports, with the directory.
    pub(crate) fn create(directory: &Path) -> io::Result<Folder> {
        Folder::made_in(directory).map_err(|error| about(directory, error))
    }

    fn made_in(directory: &Path) -> io::Result<Folder> {
        remove_left(directory)?;
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempdir_in(directory)?;
            if let Some(lock) = lock_new(folder.path())? {
                let guard = Guard::over(folder.path())?;
                return Ok(Folder { folder, guard, lock });
            }
        }
    }

    /// Next to `file`, so on the same device.
    ///
    /// # Errors
    /// As [`Folder::create`].
    pub(crate) fn beside(file: &Path) -> io::Result<Folder> {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        Folder::create(parent.unwrap_or(Path::new(".")))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// # Errors
    /// That there is no room for this many bytes of files.
    pub(crate) fn require_room(&self, bytes: u64) -> io::Result<()> {
        let status = rustix::fs::statvfs(self.path())?;
        let free_bytes = status.f_bavail.saturating_mul(status.f_frsize);
        if bytes <= free_bytes {
            return Ok(());
        }
        let [needed, free] = [bytes, free_bytes].map(|bytes| bytes >> 20);
        let place = self.path().parent().unwrap_or(Path::new("/")).display();
        Err(io::Error::other(format!(
            "no room: {needed} MiB are needed in {place}, {free} are free; measure less, or give another --dir"
        )))
    }
}

/// Locks a folder that has just been made. `None` if another run was quicker: for a moment it looked like one that a dead run has left.
fn lock_new(path: &Path) -> io::Result<Option<File>> {
    let taken = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(error),
    };
    let lock = match File::open(path) {
        Ok(lock) => lock,
        Err(error) => return taken(error),
    };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        // On a file system without locks no other run can take it either.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    match path.metadata() {
        Ok(_) => Ok(Some(lock)),
        Err(error) => taken(error),
    }
}

/// Removes the folders of runs that are dead, and says so. Names are chosen at random, and none is used twice: what has been locked here
/// is what the name stands for.
fn remove_left(directory: &Path) -> io::Result<()> {
    for entry in directory.read_dir()? {
        let path = entry?.path();
        let Some(_lock) = lock_left(&path) else { continue };
        match std::fs::remove_dir_all(&path) {
            Ok(()) => complain(format_args!("removed {}, which a killed run had left", path.display())),
            // It is only in the way.
            Err(error) => complain(format_args!("{} is left by a killed run: {error}", path.display())),
        }
    }
    Ok(())
}

/// The lock of a folder of this user with a name of ours, if no process has it.
fn lock_left(path: &Path) -> Option<File> {
    let name = path.file_name()?.to_str()?;
    let chosen = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let is_ours = chosen.len() == CHOSEN_BYTES && chosen.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let found = path.symlink_metadata().ok()?;
    if !is_ours || !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let lock = File::open(path).ok()?;
    lock.try_lock().ok()?;
    Some(lock)
}

const PREFIX: &str = "headwater-bench-";

/// Names without it are not looked at: no lock says whether their run lives.
const SUFFIX: &str = ".files";

/// What `tempfile` puts between the two.
const CHOSEN_BYTES: usize = 6;

/// A process that removes a folder, or puts something back, when this is dropped or this process ends.
pub(crate) struct Guard(Child);

impl Guard {
    /// Over a folder, or a cgroup.
    ///
    /// # Errors
    /// What starting a process reports.
    pub(crate) fn over(path: &Path) -> io::Result<Guard> {
        Guard::start(&[OsStr::new(COMMAND), path.as_os_str()])
    }

    /// This program with other arguments, the standard input of which ends then.
    ///
    /// # Errors
    /// What starting a process reports.
    pub(crate) fn start(arguments: &[&OsStr]) -> io::Result<Guard> {
        let mut command = Command::new(THIS_PROGRAM);
        // In a group of its own it does not get Ctrl-C, nor the hangup of a terminal.
        command.args(arguments).process_group(0);
        Ok(Guard(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Of the command line; not for people.
pub(crate) const COMMAND: &str = "folder-guard";

/// The guard: waits for the end of its parent, and removes the folder or cgroup. A program that outlives the parent, as fio may, can still make files in it.
///
/// # Errors
/// What the last attempt to remove it reported.
pub(crate) fn guard(path: &Path) -> io::Result<()> {
    // Nothing is written to it: the end is what comes.
    io::stdin().read_to_end(&mut Vec::new())?;
    let deadline = Instant::now() + REMOVAL_LIMIT;
    loop {
        // The files of a cgroup go with it, and cannot be removed.
        let removed = std::fs::remove_dir(path).or_else(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => std::fs::remove_dir_all(path),
            _ => Err(error),
        });
        match removed.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::NotFound) => return Ok(()),
            // A cgroup is busy until its processes have ended.
            Err(io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy)
                if Instant::now() < deadline =>
            {
                std::thread::sleep(REMOVAL_PAUSE);
            }
            _ => return removed,
        }
    }
}

/// Longer than most such programs run.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

const REMOVAL_PAUSE: Duration = Duration::from_millis(20);
