//! Readahead: the kernel's setting of a device for a while.
//!
//! ```text
//!   lock ─► guard ─► set ─┬─ dropped ──────────────────► the guard's input ends ─┐
//!                         └─ a signal ends this process ─► the guard's input ends ─┴─► the guard puts back what was
//! ```
//!
//! Owns: the setting, its lock, its guard.
//! Does not own: what is measured meanwhile (reading), how guards run (folder).

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::folder::Guard;

/// The kernel's readahead of the device below a file; put back when this is dropped, or this process ends.
pub(super) struct KernelReadahead {
    // The order of the fields is that in which they go.
    #[expect(dead_code, reason = "it puts the setting back")]
    guard: Guard,
    #[expect(dead_code, reason = "it is locked while it is open")]
    lock: File,
}

impl KernelReadahead {
    /// Fails where sysfs does not show the device or may not be written, and while another run has changed the setting.
    pub(super) fn set_kib(path: &Path, kib: &str) -> io::Result<KernelReadahead> {
        let device = rustix::fs::stat(path)?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let setting = [folder.join("queue/read_ahead_kb"), folder.join("../queue/read_ahead_kb")]
            .into_iter()
            .find(|path| path.exists())
            .ok_or_else(|| io::Error::other("the device's read_ahead_kb is not to be found"))?;
        let lock = File::open(&setting)?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(io::Error::other("another run has changed the device's read_ahead_kb"));
        }
        let before = std::fs::read_to_string(&setting)?;
        let guard = Guard::start(&[COMMAND.as_ref(), setting.as_os_str(), OsStr::new(before.trim())])?;
        std::fs::write(&setting, kib)?;
        Ok(KernelReadahead { guard, lock })
    }
}

/// Of the command line; not for people.
pub(crate) const COMMAND: &str = "readahead-guard";

/// The guard: waits for the end of its parent, and puts the setting back.
///
/// # Errors
/// What writing it reports.
pub(crate) fn guard(setting: &Path, before: &str) -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    std::fs::write(setting, before)
}
