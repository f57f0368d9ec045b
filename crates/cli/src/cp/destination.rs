//! Destination: the file that a copy replaces or creates, and how the copy gets its name.
//!
//! ```text
//!   file without a name (O_TMPFILE) ─► filled ─┬─ nothing there yet ─► link(DEST)
//!                                              └─ something there ───► link(.DEST.headwater-N) ─► rename(DEST)
//!   no such files here ─► .DEST.headwater-N, guarded ─► filled ─► rename(DEST)
//!   the directory takes no other file in DEST's place ─► DEST itself, emptied ─► filled
//! ```
//!
//! Owns: which destinations are refused, the unfinished file, the step that makes it the destination.
//! Does not own: the contents of the file.
//! Invariants: DEST is the old file or the whole new one at any moment, unless it is written in place; an unfinished file without a
//! name vanishes with this process, and one with a name is removed by its guard.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater::ring::{self, DirectIo, OpenFile};
use headwater_io::{FileSystem, without_signals};
use os_display::Quotable;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RenameFlags, StatVfs, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::guard::Guard;

/// The destination of one copy.
pub(super) struct Destination {
    /// The path as the user wrote it, for messages.
    pub(super) shown: PathBuf,
    /// The path with symbolic links resolved.
    path: PathBuf,
    existing: Option<Metadata>,
    replace: Replace,
}

/// Which existing files may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Replace {
    /// None.
    Nothing,
    /// A regular file that may be written and has one hard link.
    Ordinary,
    /// Also one with several hard links: those of the source are kept, and a copy that is made again has them already.
    Linked,
    /// Also a regular file that is write-protected.
    Forced,
}

/// Whether a server may refuse what was written (a quota, an upload) only once it is sent: that has to be known before the copy takes the place
/// of another file.
pub(super) fn must_settle(target: &OpenFile) -> bool {
    matches!(target.file_system(), FileSystem::Network | FileSystem::User)
}

impl Destination {
    /// Looks up the destination.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn find(shown: PathBuf, replace: Replace) -> Result<Destination, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("failed to write {}: {error}", shown.maybe_quote());
        let is_link = fs::symlink_metadata(&shown).is_ok_and(|metadata| metadata.is_symlink());
        let path = match fs::canonicalize(&shown) {
            Ok(path) if is_link => path,
            // A loop leads to nothing that could be created or replaced, so the link itself is.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) && replace == Replace::Forced => {
                return Ok(Destination { path: shown.clone(), shown, existing: None, replace });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_link && is_posix() => end_of(&shown),
            Err(error) if is_link => {
                let reason = "not written through a symbolic link that leads nowhere";
                return Err(failed(&format_args!("{reason} ({error})")));
            }
            _ => shown.clone(),
        };
        let existing = match fs::metadata(&path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&error)),
        };
        let destination = Destination { shown, path, existing, replace };
        if destination.existing.is_none() {
            destination.check_parent()?;
        }
        Ok(destination)
    }

    /// The path with symbolic links resolved.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is the same file as the source.
    pub(super) fn is(&self, source: &Metadata) -> bool {
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        self.existing.as_ref().is_some_and(|existing| identity(existing) == identity(source))
    }

    /// Refuses what must not be replaced.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(existing) = &self.existing else { return Ok(()) };
        let refused = |reason: &str| Err(format!("failed to replace {}: {reason}", self.shown.maybe_quote()));
        let file_type = existing.file_type();
        if file_type.is_dir() {
            return refused("it is a directory");
        }
        if file_type.is_block_device() || file_type.is_char_device() {
            return refused("it is a device");
        }
        if !file_type.is_file() {
            return refused("it is a FIFO or socket");
        }
        match self.replace {
            Replace::Nothing => return refused("it has just been made"),
            Replace::Forced => return Ok(()),
            Replace::Ordinary | Replace::Linked => {}
        }
        if existing.nlink() > 1 && self.replace == Replace::Ordinary {
            let names = existing.nlink();
            return refused(&format!(
                "it is one of {names} names of a file; --force replaces this one alone"
            ));
        }
        match rustix::fs::accessat(CWD, &self.path, Access::WRITE_OK, AtFlags::EACCESS) {
            Err(Errno::ACCESS) => refused("it is write-protected; --force replaces it"),
            Err(error) => refused(&io::Error::from(error).to_string()),
            Ok(()) => Ok(()),
        }
    }

    /// The directory of the destination.
    pub(super) fn directory(&self) -> &Path {
        directory_of(&self.path)
    }

    /// The file system of the copy, and its free space.
    ///
    /// # Errors
    /// What `statvfs(3)` reports.
    pub(super) fn file_system(&self) -> rustix::io::Result<StatVfs> {
        // A file that something is mounted on is on another than its directory.
        let place = if self.existing.is_some() { self.path.as_path() } else { self.directory() };
        rustix::fs::statvfs(place)
    }

    /// Creates an empty file in the same directory that only this user may read; or opens the existing file, unchanged, where no
    /// other file can take its place.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn begin(&self) -> io::Result<Unfinished> {
        match (self.begin_beside(), &self.existing) {
            (Err(refusal), Some(existing)) if is_of_directory(&refusal) => {
                begin_in_place(&self.path, existing).map_err(|error| {
                    let text = format!("{error}; its directory takes no other file in its place: {refusal}");
                    io::Error::new(error.kind(), text)
                })
            }
            (begun, _) => begun,
        }
    }

    fn begin_beside(&self) -> io::Result<Unfinished> {
        self.check_replaceable()?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(self.directory(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(descriptor) => Ok(Unfinished { file: File::from(descriptor), state: State::Nameless }),
            // `open(2)`: the file system cannot do it, or the kernel takes it for an ordinary opening of the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                self.begin_named()
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the file the destination, atomically for other processes.
    ///
    /// # Errors
    /// What `link(2)` and `rename(2)` report; the destination is as it was then. `AlreadyExists` if it has come into being and nothing may
    /// be replaced.
    pub(super) fn complete(&self, unfinished: Unfinished) -> io::Result<()> {
        match unfinished.state {
            State::Nameless => {}
            State::Named(guard) => {
                self.rename(guard.path())?;
                return guard.release();
            }
            State::InPlace => return Ok(()),
        }
        let link = |name: &Path| {
            let from = format!("/proc/self/fd/{}", unfinished.file.as_raw_fd());
            rustix::fs::linkat(CWD, from, CWD, name, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
        };
        if self.existing.is_none() {
            match link(&self.path) {
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && self.replace != Replace::Nothing => {}
                other => return other,
            }
        }
        put_in_place(&self.path, link)
    }

    fn rename(&self, from: &Path) -> io::Result<()> {
        if self.replace == Replace::Nothing {
            match rustix::fs::renameat_with(CWD, from, CWD, &self.path, RenameFlags::NOREPLACE) {
                // A file system without that flag, such as NFS. What another program makes between the next two calls is lost.
                Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(&self.path).is_err() => {}
                Err(Errno::INVAL | Errno::NOSYS) => return Err(Errno::EXIST.into()),
                renamed => return Ok(renamed?),
            }
        }
        fs::rename(from, &self.path)
    }

    /// Makes the destination one more name of `copy`, atomically for other processes.
    ///
    /// # Errors
    /// What `link(2)` and `rename(2)` report; the destination is as it was then.
    pub(super) fn link(&self, copy: &Path) -> io::Result<()> {
        if self.existing.is_none() {
            return fs::hard_link(copy, &self.path);
        }
        put_in_place(&self.path, |name| fs::hard_link(copy, name))
    }

    /// No signal ends this process between the file and its guard, which inherits that signals are blocked: one to all processes of a service
    /// leaves the guard.
    fn begin_named(&self) -> io::Result<Unfinished> {
        without_signals(|| {
            let (file, path) = first_free(|number| {
                let path = name_meanwhile(&self.path, number);
                let mut options = fs::OpenOptions::new();
                let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
                Ok((file, path))
            })?;
            Ok(Unfinished { file, state: State::Named(Guard::over(path)?) })
        })
    }

    /// Predicts errors of the `rename(2)` that follows the copy: a mount point cannot be replaced, and in a sticky directory only
    /// owners replace a file.
    fn check_replaceable(&self) -> rustix::io::Result<()> {
        let Some(existing) = &self.existing else { return Ok(()) };
        let looked = rustix::fs::statx(CWD, &self.path, AtFlags::empty(), StatxFlags::empty());
        if looked.is_ok_and(|status| status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
            return Err(Errno::BUSY);
        }
        let user = rustix::process::geteuid();
        let Ok(directory) = fs::metadata(self.directory()) else { return Ok(()) };
        let is_owner = [existing.uid(), directory.uid()].contains(&user.as_raw());
        match directory.mode() & STICKY_BIT {
            0 => Ok(()),
            _ if is_owner || user.is_root() => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    /// An error text that names the missing directory, which that of `open(2)` does not.
    fn check_parent(&self) -> Result<(), String> {
        let (shown, directory) = (self.shown.maybe_quote(), self.directory());
        if self.path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(format!("failed to write {shown}: there is no such directory"));
        }
        match fs::metadata(directory) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(format!("failed to write {shown}: {} is not a directory", directory.maybe_quote())),
            Err(error) => Err(format!("failed to write {shown}: {}: {error}", directory.maybe_quote())),
        }
    }
}

/// Puts what `make` makes at a path in the place of what is there, atomically for other processes. A signal that ends this one waits, so
/// that nothing is left under the name that it has meanwhile.
///
/// # Errors
/// Those of `make`, and what `rename(2)` reports; what is there stays then.
pub(super) fn put_in_place(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    without_signals(|| put(path, make))
}

fn put(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let name = first_free(|number| {
        let name = name_meanwhile(path, number);
        match make(&name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                // The first error counts; what is left says by its name what it is.
                let _ = fs::remove_file(&name);
                Err(error)
            }
            made => made.map(|()| name),
        }
    })?;
    let renamed = fs::rename(&name, path);
    // A rename between two names of one file does nothing, and leaves both.
    let _ = fs::remove_file(&name);
    renamed
}

/// Makes the name of a file durable.
///
/// # Errors
/// What `fsync(2)` of its directory reports.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

fn name_meanwhile(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or(OsStr::new("copy")).as_bytes();
    let mut hidden = OsString::from(".");
    // A name has 255 bytes at most; the rest is for what stands around it. Some file systems refuse a part of a character.
    let is_inside = |&at: &usize| name.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let kept = (NAME_BYTES_KEPT - 3..=NAME_BYTES_KEPT).rev().find(|at| !is_inside(at));
    hidden.push(OsStr::from_bytes(&name[..name.len().min(kept.unwrap_or(NAME_BYTES_KEPT))]));
    hidden.push(format!(".headwater-{}", std::process::id().wrapping_add(number)));
    directory_of(path).join(hidden)
}

/// The copy until it is the destination. Dropped before that, it is removed, unless it is written in place.
pub(super) struct Unfinished {
    file: File,
    state: State,
}

enum State {
    Nameless,
    Named(Guard),
    /// It is the destination already.
    InPlace,
}

impl Unfinished {
    /// The file as requests need it.
    ///
    /// # Errors
    /// What opening it reports.
    pub(super) fn open_again(&self) -> io::Result<Arc<OpenFile>> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let open = OpenFile::open(Path::new(&path), DirectIo::Preferred, ring::Access::ReadWrite);
        open.map(Arc::new).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other("cp needs /proc, which is not mounted"),
            _ => error,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is the existing file of the destination, with its old contents.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.state, State::InPlace)
    }
}

/// Whether a file is made where a symbolic link leads to none, as POSIX says. By default it is not, as by GNU cp: a user with the right to
/// write to the directory of the link, such as /tmp, could choose the place.
fn is_posix() -> bool {
    std::env::var_os("POSIXLY_CORRECT").is_some()
}

/// Where the file would be that a dangling symbolic link leads to. There are no circles among its links.
fn end_of(link: &Path) -> PathBuf {
    let mut path = link.to_owned();
    while let Ok(next) = fs::read_link(&path) {
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    path
}

/// Opens the existing file without changing it. Refuses a file with several hard links, whose other names would get the new contents.
fn begin_in_place(path: &Path, existing: &Metadata) -> io::Result<Unfinished> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino(), opened.nlink()) != (existing.dev(), existing.ino(), 1) {
        return Err(io::Error::other("it has other names, or was just replaced"));
    }
    Ok(Unfinished { file, state: State::InPlace })
}

/// Whether the error means that the directory takes no new files.
fn is_of_directory(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY))
}

/// Tries names until one is not taken.
fn first_free<T>(mut attempt: impl FnMut(u32) -> io::Result<T>) -> io::Result<T> {
    let mut number = 0;
    loop {
        match attempt(number) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < ATTEMPTS_MAX => {
                number += 1
            }
            other => return other,
        }
    }
}

/// `S_ISVTX` of inode(7).
const STICKY_BIT: u32 = 0o1000;

const NAME_BYTES_KEPT: usize = 200;

/// Attempts at a name. One is taken only by a concurrent copy to the same destination, or by what a system crash left.
const ATTEMPTS_MAX: u32 = 1000;
