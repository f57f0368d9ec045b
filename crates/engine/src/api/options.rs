//! Options: how a file is opened, by its path or from a descriptor of the program's.
//!
//! Owns: the options, which of them go together, entering an open file into the cache.
//! Does not own: flags of `open(2)` (`headwater-io`), what an open file does (file).

use std::io;
use std::os::fd::AsRawFd;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use headwater_core::backing::{Backing, Form};
use headwater_core::readahead::ReadaheadPolicy;
use headwater_io::{Access, AppendFile, Creation, DirectIo, FileKind, Given, OpenFile, Opening, SeenFile};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::api::upcalls;
use crate::base::error::{Error, Operation, Result};
use crate::base::events::{self, Directness};
use crate::engine::Engine;
use crate::engine::handle::{Around, Entry, IoMode, Source};
use crate::inode::coherence::Coherence;

impl File {
    /// Opens `path` for reading with the defaults of [`OpenOptions`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().open(path)
    }

    /// Opens `path` for reading and writing, empty: created if it does not exist, else truncated to length 0.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates the file `path`, which must not exist, for reading and writing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `AlreadyExists`.
    pub fn create_new(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }
}

/// How to open a file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, b"abc")?;
/// use headwater::{Engine, IoMode, OpenOptions};
/// let engine = Engine::builder().memory(16 << 20).build()?;
/// let file = OpenOptions::new().engine(&engine).io(IoMode::Buffered).open(&path)?;
/// assert_eq!(file.len()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    mode: IoMode,
    engine: Option<Engine>,
    caching: Caching,
    readahead: Option<ReadaheadPolicy>,
    revalidate: Option<Duration>,
    coherence: Coherence,
    /// `None` until it is set: for reading, and beside writing if the file may be read.
    read: Option<bool>,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    opening: Opening,
}

/// Whether positional reads of a file are kept in the engine's cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Caching {
    /// Only if the file is read directly; otherwise the kernel's page cache already keeps the bytes. The first read of a file of up to 1 MiB
    /// goes around the cache if it takes the whole file: many files are read once.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: each read goes to the device, or to the kernel's page cache.
    Off,
}

impl OpenOptions {
    /// Reading, [`IoMode::Auto`], [`Engine::global`].
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets whether I/O bypasses the kernel's page cache.
    pub fn io(&mut self, mode: IoMode) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Sets the engine that provides memory and queue of the file.
    pub fn engine(&mut self, engine: &Engine) -> &mut Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets whether positional reads go through the engine's cache.
    pub fn caching(&mut self, caching: Caching) -> &mut Self {
        self.caching = caching;
        self
    }

    /// Sets the readahead policy of cached positional reads, for all handles of the file in this engine. The distance of
    /// [`ReadaheadPolicy::Fixed`] is at most that of [`File::readahead_limits`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// use headwater::{Caching, Engine, OpenOptions, ReadaheadPolicy};
    /// let engine = Engine::builder().memory(16 << 20).build()?;
    /// let mut options = OpenOptions::new();
    /// options.engine(&engine).caching(Caching::On).readahead(ReadaheadPolicy::Off);
    /// let file = options.open(&path)?;
    /// file.read_exact_at(&mut [0; 4096], 40_960)?;
    /// assert_eq!(file.stats().counts.read_ahead, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn readahead(&mut self, policy: ReadaheadPolicy) -> &mut Self {
        self.readahead = Some(policy);
        self
    }

    /// Sets how long the known length and times of the file are trusted: writes by other processes are visible to cached reads
    /// after this interval at the latest. Default 10 ms; irrelevant while the file is leased, see [`Coherence`].
    /// [`Duration::ZERO`] asks the kernel at each read; [`Duration::MAX`] never again, for files that no other process writes.
    ///
    /// The kernel changes a file's times when a write begins. Pages read during a single long write of another process may
    /// therefore stay stale for up to 30 s after its beginning, except with [`Duration::ZERO`], which caches nothing of a file
    /// that was written in the last 30 s.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, "before")?;
    /// use std::time::Duration;
    /// let file = headwater::OpenOptions::new().revalidate(Duration::ZERO).open(&path)?;
    /// let mut seen = [0; 6];
    /// file.read_exact_at(&mut seen, 0)?;
    /// // Another program; the next read sees it.
    /// std::fs::write(&path, "after!")?;
    /// file.read_exact_at(&mut seen, 0)?;
    /// assert_eq!(&seen, b"after!");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revalidate(&mut self, interval: Duration) -> &mut Self {
        // The limit of the clock's range; longer is for ever as well.
        self.revalidate = Some(interval.min(Duration::from_nanos(u64::MAX)));
        self
    }

    /// Sets how cached reads see writes of other processes. Default [`Coherence::Revalidated`], because a lease makes other
    /// processes wait. [`File::coherence`] says what is in effect.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// use headwater::{Caching, Coherence, OpenOptions};
    /// let mut options = OpenOptions::new();
    /// let file = options.caching(Caching::On).coherence(Coherence::Leased).open(&path)?;
    /// let mut seen = [0; 3];
    /// file.read_exact_at(&mut seen, 0)?;
    /// // Blocks, in another process or in this one, until the cached pages of the file are dropped.
    /// std::fs::write(&path, b"xyz")?;
    /// file.read_exact_at(&mut seen, 0)?;
    /// assert_eq!(&seen, b"xyz");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn coherence(&mut self, coherence: Coherence) -> &mut Self {
        self.coherence = coherence;
        self
    }

    /// Whether the file is opened for reading. A file that is opened for writing is opened for reading as well if the process may read it,
    /// because a page that is written in part is read first. Where it may not, `true` makes the opening fail, as with the standard
    /// library; `false`, and the default, leave a file that is only written: reads fail with `PermissionDenied`, and the kernel's page
    /// cache takes each write at once. A file that is not opened for writing is opened for reading by default.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("drop");
    /// use std::fs::Permissions;
    /// use std::os::unix::fs::PermissionsExt;
    /// std::fs::write(&path, "one\n")?;
    /// // Others may add to the file, and not read it.
    /// std::fs::set_permissions(&path, Permissions::from_mode(0o222))?;
    /// let file = headwater::OpenOptions::new().append(true).open(&path)?;
    /// assert_eq!(file.append(b"two\n")?, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = Some(read);
        self
    }

    /// Whether the file is opened for writing, and for reading too if the process may read it ([`OpenOptions::read`]). Default `false`.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Whether the file is created if it does not exist. Takes [`OpenOptions::write`] or [`OpenOptions::append`].
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Whether the file is created, and must not exist, not even as a symbolic link. Takes [`OpenOptions::write`] or
    /// [`OpenOptions::append`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("lock");
    /// let mut options = headwater::OpenOptions::new();
    /// options.write(true).create_new(true).open(&path)?;
    /// let error = options.open(&path).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// The permissions of a file that is created, less the process's umask. Default `0o666`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use std::os::unix::fs::PermissionsExt;
    /// use headwater::OpenOptions;
    /// use rustix::fs::OFlags;
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    /// let secret = options.open(&path)?;
    /// assert_eq!(secret.metadata()?.permissions().mode() & 0o777, 0o600);
    /// let link = dir.path().join("link");
    /// std::os::unix::fs::symlink(&path, &link)?;
    /// assert!(options.open(&link).is_err(), "another file may be behind it");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mode(&mut self, permissions: u32) -> &mut Self {
        self.opening.permissions = permissions;
        self
    }

    /// More flags of `open(2)`, as `O_NOFOLLOW` or `O_NOATIME`; those of the access mode are ignored. [`OpenOptions::open`] refuses
    /// flags that another method stands for (`O_APPEND`, `O_DIRECT`, `O_SYNC` and others) with `InvalidInput`, and names the method.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.opening.flags = flags;
        self
    }

    /// Opens for appending together with other processes, as `O_APPEND` does: each [`File::append`] of up to 2 GiB becomes one
    /// `write(2)` at the current end of the file, whole and in the kernel's order, through the kernel's page cache. Nothing is held
    /// back: other programs see it at once. A [`Writer`](crate::Writer) appends what it has gathered in the same way. Opens for writing, as [`OpenOptions::write`] does;
    /// [`File::write_at`] at a position is refused, [`File::set_len`] is not. Without this option, appends through all handles of one
    /// engine are ordered among themselves, gathered in memory, and written in large pieces at the end of the file as this engine last
    /// saw it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("log");
    /// use std::io::Write;
    /// let log = headwater::OpenOptions::new().create(true).append(true).open(&path)?;
    /// log.append(b"one\n")?;
    /// std::fs::OpenOptions::new().append(true).open(&path)?.write_all(b"two\n")?;
    /// assert_eq!(log.append(b"three\n")?, 8);
    /// assert_eq!(std::fs::read(&path)?, b"one\ntwo\nthree\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Whether the file is truncated to length 0. Takes [`OpenOptions::write`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"old")?;
    /// use headwater::{File, OpenOptions};
    /// let file = OpenOptions::new().write(true).truncate(true).open(&path)?;
    /// assert_eq!(file.len()?, 0);
    /// // The same, but also where there is no file yet.
    /// assert_eq!(File::create(&path)?.len()?, 0);
    /// assert!(OpenOptions::new().truncate(true).open(&path).is_err(), "it takes `write`");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Opens a regular file, a block device or a character device. Blocks as long as `open(2)` does.
    ///
    /// A character device has no length and returns different bytes each time (`/dev/zero`, `/dev/urandom`): its reads always go
    /// to the device, never cached and never direct, whatever [`OpenOptions::caching`] says.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for a FIFO or socket, for [`OpenOptions::append`] on anything but a regular
    /// file, and for [`IoMode::Direct`] where the file system, or the kind of file, has no direct I/O; `InvalidInput` for options that
    /// `std::fs::OpenOptions` refuses together, for some [custom flags](OpenOptions::custom_flags), and for a fixed readahead of 0; what [`Engine::global`] reports. After an error, a file that
    /// this call has created is removed again, but not one behind a symbolic link.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let failed = |error| Error::on_file(Operation::Open, path, error);
        let access = self.access().map_err(failed)?;
        let engine = self.chosen_engine()?;
        if access.writes() {
            engine.shared.leases.make_way(&engine.shared.cache.inodes, path);
        }
        let (open, access) = self.open_for(path, access).map_err(failed)?;
        let created = open.is_created().then(|| open.opened().key);
        let file = self.register(engine, open, access, path);
        if let (Err(_), Some(key)) = (&file, created) {
            OpenFile::remove_created(path, key);
        }
        file
    }

    /// Makes a file of one that the program has opened itself, by whatever means: `tempfile`, `memfd_create`, a descriptor that
    /// another process passed. What it is open for counts, [`OpenOptions::append`] included, and not what these options say about
    /// that. The descriptor is kept until the last clone of the file is dropped, and never moves its position: locks that were taken
    /// through it stay, and [`File::as_std`] returns it. Errors name the file by its path in `/proc`.
    ///
    /// Reads and writes go through a descriptor of headwater's own, opened through `/proc`; where that is not possible, through the
    /// given one and the kernel's page cache.
    ///
    /// ```
    /// use headwater::{Engine, OpenOptions};
    /// let engine = Engine::builder().memory(16 << 20).build()?;
    /// let file = OpenOptions::new().engine(&engine).open_std(tempfile::tempfile()?)?;
    /// file.write_all_at(b"in a file without a name", 0)?;
    /// assert_eq!(file.len()?, 24);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_std(&self, file: std::fs::File) -> Result<File> {
        let path = path_of(&file);
        let failed = |error| Error::on_file(Operation::Open, &path, error);
        let engine = self.chosen_engine()?;
        let given = Given::of(&file).map_err(failed)?;
        let (open, access) = OpenFile::from_std(file, given, self.direct_io(), &path).map_err(failed)?;
        let mut options = self.clone();
        (options.append, options.truncate) = (given.is_appending, false);
        options.register(engine, open, access, &path)
    }

    /// As [`OpenOptions::open`], with a descriptor that this engine has already opened for reading and examined.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub(crate) fn open_seen(&self, engine: &Engine, seen: SeenFile, path: &Path) -> Result<File> {
        let open = seen.into_open_file(path, self.direct_io());
        let open = open.map_err(|error| Error::on_file(Operation::Open, path, error))?;
        self.register(engine.clone(), open, Access::Read, path)
    }

    fn chosen_engine(&self) -> Result<Engine> {
        match &self.engine {
            Some(engine) => Ok(engine.clone()),
            None => Engine::global(),
        }
    }

    /// # Errors
    /// `InvalidInput` for what the standard library refuses.
    fn access(&self) -> io::Result<Access> {
        let refused = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let is_written = self.write || self.append;
        if !is_written && (self.truncate || self.create || self.create_new) {
            return refused("truncate, create and create_new take write or append");
        }
        if self.append && self.truncate && !self.create_new {
            return refused("truncate does not go with append");
        }
        match (self.read, is_written) {
            (_, true) => Ok(Access::ReadWrite),
            (None | Some(true), false) => Ok(Access::Read),
            (Some(false), false) => refused("neither read, write nor append is set"),
        }
    }

    /// Opens the file, for writing alone where reading is refused and was not asked for.
    fn open_for(&self, path: &Path, access: Access) -> io::Result<(OpenFile, Access)> {
        let opening = self.opening()?;
        let may_only_write =
            access == Access::ReadWrite && self.read != Some(true) && self.mode != IoMode::Direct;
        match OpenFile::open_as(path, self.direct_io(), access, &opening) {
            Err(error) if may_only_write && error.kind() == io::ErrorKind::PermissionDenied => {
                Ok((OpenFile::open_as(path, self.direct_io(), Access::Write, &opening)?, Access::Write))
            }
            opened => Ok((opened?, access)),
        }
    }

    /// # Errors
    /// As [`Opening::check_flags`].
    fn opening(&self) -> io::Result<Opening> {
        let creation = match (self.create_new, self.create) {
            (true, _) => Some(Creation::New),
            (false, true) => Some(Creation::IfMissing),
            (false, false) => None,
        };
        Ok(Opening { creation, flags: Opening::check_flags(self.opening.flags)?, ..self.opening })
    }

    /// Enters an open file into the cache.
    fn register(&self, engine: Engine, open: OpenFile, access: Access, path: &Path) -> Result<File> {
        let failed = |error| Error::on_file(Operation::Open, path, error);
        let readahead = engine.shared.readahead_of(&open);
        let is_created = open.is_created();
        let length_bytes = if self.truncate { 0 } else { open.opened().stamp.length_bytes };
        let may_be_around =
            |_: &_| access == Access::ReadWrite && !self.append && self.may_stay_unknown(&engine, &open);
        let around = Around::of_file(length_bytes).filter(may_be_around);
        // First, because a file that is entered has to be closed.
        let appender = match self.append {
            true => Some(Arc::new(AppendFile::open(&open, path).map_err(failed)?)),
            false => None,
        };
        let entry = match open.form() {
            Form::Cached if access == Access::Read && self.may_be_read_once(&engine, &open) => {
                OnceLock::new()
            }
            Form::Cached if around.is_some() => OnceLock::new(),
            // Empty files too, so that all handles see later writes.
            Form::Cached => {
                let inode =
                    upcalls::open(&engine.shared, &open, self.readahead, readahead).map_err(failed)?;
                OnceLock::from(if access.reads() && self.is_cached(&open) {
                    Entry::Cached(inode)
                } else {
                    Entry::Beside(inode)
                })
            }
            Form::Direct | Form::InMemory => OnceLock::from(Entry::Nothing),
        };
        let direct = open.direct().map_or(Directness::Buffered, |_| Directness::Direct);
        let cached = match entry.get() {
            Some(Entry::Cached(inode)) => Some(inode.pages.id()),
            _ => None,
        };
        events::opened(path, direct, cached);
        static NEXT_HANDLE: AtomicU32 = AtomicU32::new(0);
        let source = Source {
            open: Arc::new(open),
            access,
            path: path.to_owned(),
            mode: self.mode,
            engine,
            entry,
            reported_failures: AtomicU64::new(0),
            reported_conflicts: AtomicU64::new(0),
            appender,
            coherence: self.coherence,
            revalidate_after: self.coherence.interval(self.revalidate),
            handle: NEXT_HANDLE.fetch_add(1, Ordering::Relaxed),
            readahead,
            around: around.map(Mutex::new),
            is_locked: AtomicBool::new(false),
        };
        if source.entered().is_some()
            && let Some(inode) = source.known()
        {
            source.mark_reported(inode);
        }
        source.begin_coherence();
        if access.writes() && source.entered().is_some() {
            source.engine.shared.background.note();
        }
        let file = File { contents: Contents::Stored(Arc::new(source)) };
        // As `O_TRUNC` of `open(2)`, which does nothing to devices and new files: ext4 writes a truncated file when it is closed.
        if self.truncate && !is_created && file.is_regular() {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn direct_io(&self) -> DirectIo {
        match self.mode {
            IoMode::Auto => DirectIo::Preferred,
            IoMode::Direct => DirectIo::Required,
            IoMode::Buffered => DirectIo::Off,
        }
    }

    /// Whether the file may be entered into the cache later: a small one that is not known, opened as most are.
    fn may_be_read_once(&self, engine: &Engine, open: &OpenFile) -> bool {
        (1..=SMALL_BYTES_MAX).contains(&open.opened().stamp.length_bytes)
            && self.may_stay_unknown(engine, open)
    }

    /// Whether a file needs no inode yet: one that is not known, opened as most are.
    fn may_stay_unknown(&self, engine: &Engine, open: &OpenFile) -> bool {
        self.caching == Caching::Auto
            && self.mode == IoMode::Auto
            && self.coherence == Coherence::default()
            && self.readahead.is_none()
            && open.kind() == FileKind::Regular
            && open.direct().is_some()
            && engine.shared.cache.inodes.find(open.opened().key).is_none()
    }

    fn is_cached(&self, open: &OpenFile) -> bool {
        match self.caching {
            Caching::Auto => open.direct().is_some(),
            Caching::On => true,
            Caching::Off => false,
        }
    }
}

/// The path by which the kernel knows an open file, for error texts.
fn path_of(file: &std::fs::File) -> PathBuf {
    let descriptor = file.as_raw_fd();
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
    link.unwrap_or_else(|_| PathBuf::from(format!("<descriptor {descriptor}>")))
}

/// Larger files are rarely read by one call.
const SMALL_BYTES_MAX: u64 = 1 << 20;

// As an engine.
impl UnwindSafe for OpenOptions {}

impl RefUnwindSafe for OpenOptions {}
