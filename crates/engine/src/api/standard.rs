//! Standard: what `std::fs::File` has beside reading and writing.
//!
//! ```text
//!   lock ─► flock(2) ─► check the file: reads see what others have written under their lock
//!   unlock, drop ─► write back ─► flock(2): others see what was written under this one
//! ```
//!
//! Owns: metadata, permissions, times and locks of an open file; conversions from the standard library's.
//! Does not own: opening, writing back.

use std::fs::{FileTimes, Metadata, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::api::options::OpenOptions;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::Source;

impl File {
    /// The file as the standard library has it, for its descriptor (`AsFd`, `AsRawFd`) and for what is not offered here: the one
    /// given to [`OpenOptions::open_std`], else one of headwater's own. `None` for a file in memory, which has no descriptor: for that
    /// reason `File` itself has neither `AsFd` nor `AsRawFd`, which cannot say so.
    ///
    /// The descriptor is open as long as this file. What may be done with it:
    ///
    /// - Asking (`fstat`, extended attributes, `ioctl`s that report), and reading at positions. Bytes that the engine has not written back
    ///   are not there yet; [`File::flush`] comes first.
    /// - Changing owner, attributes and the like.
    /// - Writing, truncating, punching holes: counts as done by another program, and shows to reads as such, within
    ///   [`OpenOptions::revalidate`] or after [`File::refresh`]. [`File::flush`] comes first, else the engine may write older bytes over it.
    /// - Duplicating it: the duplicate keeps the file open after the drop of this one. A lock of [`File::lock`] ends with the drop all
    ///   the same.
    ///
    /// Of one of headwater's own, the flags are not to be changed (`fcntl(2)` with `F_SETFL`): with `O_APPEND`, writes at positions would
    /// go to the end of the file, and with `O_NONBLOCK` or `O_DIRECT` some would fail. Nor is its position of use, which headwater moves.
    /// A lock that is taken through it, instead of by [`File::lock`], does not have reads see what others wrote under theirs, nor does it
    /// wait for write-back when this file is dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use std::os::fd::AsRawFd;
    /// let file = headwater::File::create(&path)?;
    /// let std_file = file.as_std().expect("a file on a device");
    /// // Anything that takes `impl AsFd`, and what needs the number.
    /// assert_eq!(rustix::fs::fstat(std_file)?.st_size, 0);
    /// let descriptor = std_file.as_raw_fd();
    /// assert_eq!(std::fs::read_link(format!("/proc/self/fd/{descriptor}"))?, path.canonicalize()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_std(&self) -> Option<&std::fs::File> {
        match &self.contents {
            Contents::Stored(source) => Some(source.open.as_std()),
            Contents::Memory(_) => None,
        }
    }

    /// As [`Clone::clone`], which cannot fail: for code that was written for the standard library.
    ///
    /// ```
    /// let file = headwater::File::from_bytes("shared");
    /// assert_eq!(file.try_clone()?.view(0, 6)?, b"shared");
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> Result<File> {
        Ok(self.clone())
    }

    /// Permissions, owner, times and length. Writes back first, and blocks for that, if the kernel does not know the length yet.
    /// The times are those of the last write that the kernel has seen; after [`File::flush`] it has seen them all.
    ///
    /// # Errors
    /// What `statx(2)` reports, and what [`File::flush`] does; `Unsupported` for a file in memory.
    pub fn metadata(&self) -> Result<Metadata> {
        let source = self.stored(Operation::Metadata)?;
        let metadata =
            || source.open.as_std().metadata().map_err(|error| failed(source, Operation::Metadata, error));
        let found = metadata()?;
        if !found.is_file() || self.is_clean() || found.len() == source.length_bytes()? {
            return Ok(found);
        }
        source.flush()?;
        metadata()
    }

    /// Changes the permissions. One system call, which blocks as long as `fchmod(2)` does; what is dirty is not written before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use std::fs::{FileTimes, Permissions};
    /// use std::os::unix::fs::PermissionsExt;
    /// use std::time::{Duration, SystemTime};
    /// let file = headwater::File::create(&path)?;
    /// file.append(b"dated\n")?;
    /// file.set_permissions(Permissions::from_mode(0o640))?;
    /// let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// file.set_modified(past)?;
    /// file.set_times(FileTimes::new().set_accessed(past))?;
    /// let metadata = file.metadata()?;
    /// assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (6, 0o640));
    /// assert_eq!((metadata.modified()?, metadata.accessed()?), (past, past));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What `fchmod(2)` reports; `Unsupported` for a file in memory.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let source = self.stored(Operation::SetMetadata)?;
        set(source, |file| file.set_permissions(permissions))
    }

    /// Sets the times of the last access and modification. Writes back first, and blocks for that, so that earlier writes do not
    /// change them afterwards.
    ///
    /// # Errors
    /// What `futimens(2)` reports, and what [`File::flush`] does; `Unsupported` for a file in memory.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        let source = self.stored(Operation::SetMetadata)?;
        if !self.is_clean() {
            source.flush()?;
        }
        set(source, |file| file.set_times(times))
    }

    /// Sets the time of the last modification, as [`File::set_times`] does.
    ///
    /// # Errors
    /// As [`File::set_times`].
    pub fn set_modified(&self, time: SystemTime) -> Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Takes the exclusive lock of the file, as `std::fs::File::lock` does (`flock(2)`), and blocks until it is free. Afterwards
    /// reads see what other programs wrote before they unlocked. The lock belongs to this file and its clones; it ends with
    /// [`File::unlock`], or when the last of them is dropped, either of which writes back first what was written. A lock does
    /// not keep programs from reading or writing that do not ask for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("counter");
    /// let ours = headwater::File::create(&path)?;
    /// let theirs = std::fs::File::open(&path)?;
    /// ours.lock()?;
    /// assert!(theirs.try_lock().is_err());
    /// ours.write_all_at(b"1", 0)?;
    /// ours.unlock()?;
    /// theirs.lock()?;
    /// assert_eq!(std::fs::read(&path)?, b"1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What `flock(2)` reports, and `statx(2)` afterwards; `Unsupported` for a file in memory. After an error the file is locked only
    /// if it was before.
    pub fn lock(&self) -> Result<()> {
        self.take_lock(std::fs::File::lock)
    }

    /// As [`File::lock`], beside others that share it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use headwater::File;
    /// let (writer, reader) = (File::create(&path)?, File::open(&path)?);
    /// let another = File::open(&path)?;
    /// reader.lock_shared()?;
    /// another.try_lock_shared()?;
    /// assert!(matches!(writer.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    /// drop((reader, another));
    /// writer.lock()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::lock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.take_lock(std::fs::File::lock_shared)
    }

    /// As [`File::lock`], without blocking.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] while others have it; else as [`File::lock`].
    pub fn try_lock(&self) -> std::result::Result<(), TryLockError> {
        self.try_to_lock(std::fs::File::try_lock)
    }

    /// As [`File::lock_shared`], without blocking.
    ///
    /// # Errors
    /// As [`File::try_lock`].
    pub fn try_lock_shared(&self) -> std::result::Result<(), TryLockError> {
        self.try_to_lock(std::fs::File::try_lock_shared)
    }

    /// Ends the lock, once all that was written is in the file. Blocks for that.
    ///
    /// # Errors
    /// What [`File::flush`] reports, and the lock stays then; what `flock(2)` does.
    pub fn unlock(&self) -> Result<()> {
        let source = self.stored(Operation::Lock)?;
        source.flush()?;
        source.open.as_std().unlock().map_err(|error| failed(source, Operation::Lock, error))?;
        source.is_locked.store(false, Ordering::Release);
        Ok(())
    }

    fn take_lock(&self, lock: impl FnOnce(&std::fs::File) -> io::Result<()>) -> Result<()> {
        let source = self.stored(Operation::Lock)?;
        lock(source.open.as_std()).map_err(|error| failed(source, Operation::Lock, error))?;
        self.locked(source)
    }

    fn try_to_lock(
        &self,
        try_lock: impl FnOnce(&std::fs::File) -> std::result::Result<(), TryLockError>,
    ) -> std::result::Result<(), TryLockError> {
        let refused = |error: Error| TryLockError::Error(error.into());
        let source = self.stored(Operation::Lock).map_err(refused)?;
        try_lock(source.open.as_std()).map_err(|error| match error {
            TryLockError::Error(error) => refused(failed(source, Operation::Lock, error)),
            TryLockError::WouldBlock => TryLockError::WouldBlock,
        })?;
        self.locked(source).map_err(refused)
    }

    /// What others have written under their lock is seen from here on. Without a look at the file that would not be so, and the lock
    /// ends; one that this file and its clones had before stays theirs.
    fn locked(&self, source: &Source) -> Result<()> {
        let was_locked = source.is_locked.swap(true, Ordering::AcqRel);
        let looked = self.refresh();
        if looked.is_err() && !was_locked {
            _ = source.open.as_std().unlock();
            source.is_locked.store(false, Ordering::Release);
        }
        looked
    }

    /// # Errors
    /// `Unsupported` for a file in memory; [`Error::Forked`] in a forked child.
    fn stored(&self, operation: Operation) -> Result<&Arc<Source>> {
        match &self.contents {
            Contents::Stored(source) => {
                source.check_process_for(operation)?;
                Ok(source)
            }
            Contents::Memory(memory) => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "a file in memory has none");
                Err(Error::on_file(operation, memory.path(), error))
            }
        }
    }
}

/// Sets metadata of a file, which moves its times: announced, so that no check takes that for a change by another program.
fn set(source: &Source, change: impl FnOnce(&std::fs::File) -> io::Result<()>) -> Result<()> {
    let change = || change(source.open.as_std());
    let changed = match source.known() {
        Some(inode) => inode.own_change(&source.open, change),
        None => change(),
    };
    changed.map_err(|error| failed(source, Operation::SetMetadata, error))
}

fn failed(source: &Source, operation: Operation, error: io::Error) -> Error {
    Error::on_file(operation, source.path(), error)
}

/// Not `From`, as `tokio::fs::File` has it, because it can fail: the descriptor may be one of a FIFO or a directory; and the first file of a
/// program builds [`Engine::global`](crate::Engine::global).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, b"abc")?;
/// let file = headwater::File::try_from(std::fs::File::open(&path)?)?;
/// assert_eq!(file.len()?, 3);
/// let error = headwater::File::try_from(std::fs::File::open(dir.path())?).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::IsADirectory);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<std::fs::File> for File {
    type Error = Error;

    /// As [`OpenOptions::open_std`] with the defaults.
    fn try_from(file: std::fs::File) -> Result<File> {
        OpenOptions::new().open_std(file)
    }
}

/// Not `From`, for the reasons given with `TryFrom<std::fs::File>`.
impl TryFrom<OwnedFd> for File {
    type Error = Error;

    /// As [`OpenOptions::open_std`] with the defaults.
    fn try_from(descriptor: OwnedFd) -> Result<File> {
        OpenOptions::new().open_std(descriptor.into())
    }
}
