//! Destination: where a copy goes, and how it gets its name.
//!
//! ```text
//!   file without a name (O_TMPFILE) ─► filled ─┬─ nothing there yet ─► link(DEST)
//!                                              └─ something there ───► link(.DEST.headwater-N) ─► rename(DEST)
//!   no such files here ─► .DEST.headwater-N, guarded ─► filled ─► rename(DEST)
//! ```
//!
//! Owns: which destinations are refused, the file meanwhile, the step that makes it the destination.
//! Does not own: its contents.
//! Invariants: DEST is the old file or the whole new one at any moment; what has no name goes with this process, however
//! that ends, and what has one is removed by its guard.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use os_display::Quotable;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::guard::Guard;

/// Where one copy goes.
pub(super) struct Destination {
    /// As the user wrote it, for messages.
    pub(super) shown: PathBuf,
    /// Behind symbolic links.
    path: PathBuf,
    existing: Option<Metadata>,
}

/// Whether what is in the way may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Replace {
    /// An ordinary file that may be written and has one name.
    Ordinary,
    /// Also one that is write-protected, or has further names.
    Forced,
}

impl Destination {
    /// Looks at what is there.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn find(shown: PathBuf) -> Result<Destination, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("failed to write {}: {error}", shown.maybe_quote());
        let is_link = fs::symlink_metadata(&shown).is_ok_and(|metadata| metadata.is_symlink());
        let path = match fs::canonicalize(&shown) {
            Ok(path) if is_link => path,
            Err(error) if is_link => {
                return Err(failed(&format_args!("it is a symbolic link that leads nowhere ({error})")));
            }
            _ => shown.clone(),
        };
        let existing = match fs::metadata(&path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&error)),
        };
        let destination = Destination { shown, path, existing };
        if destination.existing.is_none() {
            destination.check_parent()?;
        }
        Ok(destination)
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
    pub(super) fn check(&self, replace: Replace) -> Result<(), String> {
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
        if replace == Replace::Forced {
            return Ok(());
        }
        if existing.nlink() > 1 {
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

    /// The directory it is in.
    pub(super) fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        }
    }

    /// An empty file beside it that only this user may read.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn begin(&self) -> io::Result<Unfinished> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(self.directory(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(descriptor) => Ok(Unfinished { file: File::from(descriptor), named: None }),
            // `open(2)`: the file system cannot do it, or the kernel takes it for an ordinary opening of the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                self.begin_named()
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the file the destination, in one step for whoever looks.
    ///
    /// # Errors
    /// What `link(2)` and `rename(2)` report; the destination is as it was then.
    pub(super) fn complete(&self, unfinished: Unfinished) -> io::Result<()> {
        if let Some(named) = unfinished.named {
            fs::rename(named.path(), &self.path)?;
            return named.release();
        }
        let link = |name: &Path| {
            let from = format!("/proc/self/fd/{}", unfinished.file.as_raw_fd());
            rustix::fs::linkat(CWD, from, CWD, name, AtFlags::SYMLINK_FOLLOW)
        };
        if self.existing.is_none() {
            match link(&self.path) {
                Err(Errno::EXIST) => {}
                other => return Ok(other?),
            }
        }
        let name = first_free(|number| {
            let name = self.name_meanwhile(number);
            link(&name).map(|()| name).map_err(io::Error::from)
        })?;
        fs::rename(&name, &self.path).inspect_err(|_| {
            // The first error counts; what is left says by its name what it is.
            let _ = fs::remove_file(&name);
        })
    }

    /// Makes the name durable.
    ///
    /// # Errors
    /// What `fsync(2)` of the directory reports.
    pub(super) fn sync_directory(&self) -> io::Result<()> {
        File::open(self.directory())?.sync_all()
    }

    fn begin_named(&self) -> io::Result<Unfinished> {
        let (file, path) = first_free(|number| {
            let path = self.name_meanwhile(number);
            let mut options = fs::OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            Ok((file, path))
        })?;
        Ok(Unfinished { file, named: Some(Guard::over(path)?) })
    }

    fn name_meanwhile(&self, number: u32) -> PathBuf {
        let name = self.path.file_name().unwrap_or(OsStr::new("copy")).as_bytes();
        let mut hidden = OsString::from(".");
        // A name has 255 bytes at most; the rest is for what stands around it.
        hidden.push(OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_KEPT)]));
        hidden.push(format!(".headwater-{}", std::process::id().wrapping_add(number)));
        self.directory().join(hidden)
    }

    /// A sentence that names the directory that is missing, which `open(2)` does not.
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

/// The copy until it is the destination. Dropped before that, it is gone.
pub(super) struct Unfinished {
    file: File,
    named: Option<Guard>,
}

impl Unfinished {
    /// By which it can be opened once more.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
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

const NAME_BYTES_KEPT: usize = 200;

/// Names are taken only by copies to the same place at the same time, and by what a crash of the system left.
const ATTEMPTS_MAX: u32 = 1000;
