//! File: a file open for reading and writing at positions, and from start to end.
//!
//! Owns: what a user of a file sees, and the options of opening one.
//! Does not own: descriptors and mode (the source's), memory and queue (the engine's), positions (the readers').

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headwater_core::backing::{Backing, Form};
use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_core::units::ByteRange;
use headwater_io::{Access, AppendFile, Creation, DirectIo, FileKind, OpenFile, Residency, SeenFile};

use crate::api::async_reader::{AsyncReader, ByteStream};
use crate::api::contents::Contents;
use crate::api::memory_file::MemoryFile;
use crate::api::reader::Reader;
use crate::api::upcalls;
use crate::api::writer::Writer;
use crate::base::counters::FileStats;
use crate::base::error::{Error, Operation, Result};
use crate::base::events::{self, Directness};
use crate::engine::Engine;
use crate::engine::handle::{IoMode, Source};
use crate::inode::coherence::Coherence;

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
    access: Access,
    creation: Option<Creation>,
    truncate: Truncate,
    appending: Appending,
}

/// Whether what is written goes to the end of the file, as the kernel orders it among processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Appending {
    Yes,
    #[default]
    No,
}

/// Whether a file is cut to length 0 when it is opened: by the engine, which may have pages of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Truncate {
    Yes,
    #[default]
    No,
}

/// Whether what is read of a file is kept in the engine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Caching {
    /// If the file is read directly; what comes through the kernel's page cache is kept there already.
    #[default]
    Auto,
    /// Yes.
    On,
    /// No: each read is the device's, or the kernel's page cache's.
    Off,
}

impl OpenOptions {
    /// Reading, [`IoMode::Auto`], [`Engine::global`].
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets how bytes come from the device.
    pub fn io(&mut self, mode: IoMode) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Sets the engine whose memory and queue the file uses.
    pub fn engine(&mut self, engine: &Engine) -> &mut Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets whether positional reads go through the engine's cache.
    pub fn caching(&mut self, caching: Caching) -> &mut Self {
        self.caching = caching;
        self
    }

    /// Sets how positional reads through the cache read ahead, for all who have the file open with this engine.
    pub fn readahead(&mut self, policy: ReadaheadPolicy) -> &mut Self {
        self.readahead = Some(policy);
        self
    }

    /// Sets how long what was seen of the file's length and times is trusted: what others have written to it shows in cached
    /// reads after this time at the latest. Default 10 ms; not asked while the file is leased, see [`Coherence`].
    /// [`Duration::ZERO`] asks the kernel at each read;
    /// [`Duration::MAX`] never again, for files that nobody else writes.
    ///
    /// A write changes the times when it begins. Pages that are read while a single long write of another process is under
    /// way may stay as they were before it for up to 30 s after its beginning, except with [`Duration::ZERO`], which keeps
    /// nothing of a file that was written in the last 30 s.
    pub fn revalidate(&mut self, interval: Duration) -> &mut Self {
        // What the clock can count: longer is for ever as well.
        self.revalidate = Some(interval.min(Duration::from_nanos(u64::MAX)));
        self
    }

    /// Sets how reads through the cache see what other processes write. Default [`Coherence::Revalidated`], because a lease
    /// has others wait. What it is, [`File::coherence`] says.
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
    /// // Waits, in another process or in this one, until what is cached of the file was dropped.
    /// std::fs::write(&path, b"xyz")?;
    /// file.read_exact_at(&mut seen, 0)?;
    /// assert_eq!(&seen, b"xyz");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn coherence(&mut self, wished: Coherence) -> &mut Self {
        self.coherence = wished;
        self
    }

    /// Opens for reading and writing. Default: reading.
    pub fn write(&mut self) -> &mut Self {
        self.access = Access::ReadWrite;
        self
    }

    /// Makes the file if it is not there, with the permissions that the process's mask leaves of `0o666`; opens it for writing
    /// too.
    pub fn create(&mut self) -> &mut Self {
        self.creation.get_or_insert(Creation::IfMissing);
        self.write()
    }

    /// Makes the file, which must not be there; opens it for writing too.
    pub fn create_new(&mut self) -> &mut Self {
        self.creation = Some(Creation::New);
        self.write()
    }

    /// Opens for appending together with other processes, as `O_APPEND` does: each [`File::append`] becomes one `write(2)` at the end
    /// that the file has at that moment, whole and in the order in which the kernel takes them, through the kernel's page
    /// cache. Nothing is held back: other programs see it at once. Opens it for reading and writing too; [`File::write_at`] at
    /// a position is refused, [`File::set_len`] is not. Without it, appends of all handles of one engine follow each other,
    /// are gathered in memory and written in large pieces, at the end as this engine last saw it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("log");
    /// use std::io::Write;
    /// let log = headwater::OpenOptions::new().create().append(true).open(&path)?;
    /// log.append(b"one\n")?;
    /// std::fs::OpenOptions::new().append(true).open(&path)?.write_all(b"two\n")?;
    /// assert_eq!(log.append(b"three\n")?, 8);
    /// assert_eq!(std::fs::read(&path)?, b"one\ntwo\nthree\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.appending = if append { Appending::Yes } else { Appending::No };
        if append { self.write() } else { self }
    }

    /// Cuts the file to length 0; opens it for writing too.
    pub fn truncate(&mut self) -> &mut Self {
        self.truncate = Truncate::Yes;
        self.write()
    }

    /// Opens a regular file, a block device or a character device. Blocks for as long as `open(2)` does.
    ///
    /// A character device has no length and gives other bytes each time (`/dev/zero`, `/dev/urandom`): its reads are the
    /// device's, never cached and never direct, whatever [`OpenOptions::caching`] says.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for a FIFO or socket, and for [`IoMode::Direct`] where the
    /// file system, or the kind of file, has none; what [`Engine::global`] reports.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => Engine::global()?,
        };
        if self.access == Access::ReadWrite {
            engine.shared.leases.make_way(&engine.shared.cache.inodes, path);
        }
        let open = self.open_file(path).map_err(|error| Error::on_file(Operation::Open, path, error))?;
        self.register(engine, open, path)
    }

    /// Goes on with a descriptor that was opened for reading, and looked at, with this engine.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub(crate) fn open_seen(&self, engine: &Engine, seen: SeenFile, path: &Path) -> Result<File> {
        let open = seen.into_open_file(path, self.direct_io());
        let open = open.map_err(|error| Error::on_file(Operation::Open, path, error))?;
        self.register(engine.clone(), open, path)
    }

    /// Makes the cache know an open file.
    fn register(&self, engine: Engine, open: OpenFile, path: &Path) -> Result<File> {
        let failed = |error| Error::on_file(Operation::Open, path, error);
        let readahead = engine.shared.readahead_of(&open);
        let inode = match open.form() {
            // Empty ones too, so that all handles see what is written to them.
            Form::Cached => {
                let inode = upcalls::open(&engine.shared, &open, self.readahead, readahead);
                Some(inode.map_err(failed)?)
            }
            Form::Direct | Form::InMemory => None,
        };
        let direct = open.direct().map_or(Directness::Buffered, |_| Directness::Direct);
        let (inode, beside) = if self.is_cached(&open) { (inode, None) } else { (None, inode) };
        events::opened(path, direct, inode.as_ref().map(|inode| inode.pages.id()));
        let appender = match self.appending {
            Appending::Yes => Some(AppendFile::open(&open, path).map_err(failed)?),
            Appending::No => None,
        };
        static NEXT_HANDLE: AtomicU32 = AtomicU32::new(0);
        let source = Source {
            open: Arc::new(open),
            access: self.access,
            path: path.to_owned(),
            mode: self.mode,
            engine,
            inode,
            beside,
            reported_failures: AtomicU64::new(0),
            reported_conflicts: AtomicU64::new(0),
            appender,
            coherence: self.coherence,
            revalidate_after: self.coherence.interval(self.revalidate),
            handle: NEXT_HANDLE.fetch_add(1, Ordering::Relaxed),
            readahead,
        };
        if let Some(inode) = source.known() {
            source.note_told(inode);
        }
        source.begin_coherence();
        let file = File { contents: Contents::Stored(Arc::new(source)) };
        // As `open(2)` with `O_TRUNC`, which leaves devices as they are.
        if self.truncate == Truncate::Yes && file.is_regular() {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn open_file(&self, path: &Path) -> io::Result<OpenFile> {
        match self.creation {
            Some(creation) => OpenFile::create(path, self.direct_io(), self.access, creation),
            None => OpenFile::open(path, self.direct_io(), self.access),
        }
    }

    fn direct_io(&self) -> DirectIo {
        match self.mode {
            IoMode::Auto => DirectIo::Preferred,
            IoMode::Direct => DirectIo::Required,
            IoMode::Buffered => DirectIo::Off,
        }
    }

    fn is_cached(&self, open: &OpenFile) -> bool {
        match self.caching {
            Caching::Auto => open.direct().is_some(),
            Caching::On => true,
            Caching::Off => false,
        }
    }
}

/// A file open for reading, or for reading and writing. Clones share it; all methods take `&self` and may be called from any thread.
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) contents: Contents,
}

impl File {
    /// Opens `path` for reading with the defaults of [`OpenOptions`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().open(path)
    }

    /// Opens `path` for reading and writing, empty: made if it is not there, else cut to length 0.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().create().truncate().open(path)
    }

    /// A file of these bytes, named `<memory>` in errors. It needs no engine, and everything that reads a file reads it:
    /// positional reads copy, [`File::read_at_async`] and [`File::stream`] share the bytes, readers show them as they lie
    /// there.
    ///
    /// ```
    /// use std::io::{BufRead, Read};
    /// let file = headwater::File::from_bytes("one\ntwo\n");
    /// let mut word = [0; 3];
    /// file.read_exact_at(&mut word, 4)?;
    /// assert_eq!((&word, file.reader().lines().count()), (b"two", 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes(bytes: impl Into<Bytes>) -> File {
        File::from_bytes_named("<memory>", bytes)
    }

    /// The same with a name of one's own.
    pub fn from_bytes_named(name: impl Into<PathBuf>, bytes: impl Into<Bytes>) -> File {
        File { contents: Contents::Memory(Arc::new(MemoryFile::new(name.into(), bytes.into()))) }
    }

    /// The length now, bytes: one syscall. Files in `/proc` and character devices say 0 although they have contents.
    ///
    /// # Errors
    /// What `fstat(2)` reports.
    #[allow(clippy::len_without_is_empty)] // The name is that of `std::fs::Metadata::len`, which has no `is_empty` either.
    pub fn len(&self) -> Result<u64> {
        match &self.contents {
            Contents::Stored(source) => source.length_bytes(),
            Contents::Memory(memory) => Ok(memory.length_bytes()),
        }
    }

    /// What the length was when the file was opened, or is in the cache if it was written there: no system call.
    pub(crate) fn opened_length_bytes(&self) -> u64 {
        match &self.contents {
            Contents::Stored(source) => match source.known().filter(|inode| inode.dirty.pages() > 0) {
                Some(inode) => inode.length_bytes(),
                None => source.open.opened().stamp.length_bytes,
            },
            Contents::Memory(memory) => memory.length_bytes(),
        }
    }

    /// Looks at the file at once, so that what other programs have done to it until now shows in the next read, whatever
    /// [`OpenOptions::revalidate`] says: for turns that are handed over in less than its time. One or two system calls, unless the
    /// file is leased; blocks if others have written to pages that are dirty in part.
    ///
    /// # Errors
    /// What `statx(2)` reports.
    pub fn refresh(&self) -> Result<()> {
        let Contents::Stored(source) = &self.contents else { return Ok(()) };
        source.check_process_for(Operation::Length)?;
        let Some(inode) = source.known() else { return Ok(()) };
        source.refresh(inode).map_err(|error| source.length_error(error))
    }

    /// The path it was opened by, or the name that it was given.
    pub fn path(&self) -> &Path {
        match &self.contents {
            Contents::Stored(source) => source.path(),
            Contents::Memory(memory) => memory.path(),
        }
    }

    fn is_regular(&self) -> bool {
        matches!(&self.contents, Contents::Stored(source) if source.open.kind() == FileKind::Regular)
    }

    /// Whether device reads of this file go around the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        match &self.contents {
            Contents::Stored(source) => source.open.direct().is_some(),
            Contents::Memory(_) => false,
        }
    }

    /// How far and in which sizes readahead goes in this file: the limits of the engine's builder, else those of the
    /// profile of its device ([`EngineBuilder::profiles`](crate::EngineBuilder::profiles)), else the defaults. `None` for a file in memory, of which
    /// nothing is read ahead.
    pub fn readahead_limits(&self) -> Option<ReadaheadLimits> {
        match &self.contents {
            Contents::Stored(source) => Some(source.readahead),
            Contents::Memory(_) => None,
        }
    }

    /// How what other programs do to the file is seen now: [`Coherence::Leased`] while the file is leased, for whichever handle;
    /// [`Coherence::Private`] if that was chosen, and for a file in memory; [`Coherence::Unwatched`] where nothing proves which
    /// changes are this engine's own, by the file's place or by choice; else [`Coherence::Checked`] or [`Coherence::Revalidated`],
    /// as chosen. What is not cached is read anew, and counts as revalidated. In a forked child always as chosen.
    pub fn coherence(&self) -> Coherence {
        match &self.contents {
            Contents::Stored(source) => source.coherence(),
            Contents::Memory(_) => Coherence::Private,
        }
    }

    /// How much of a byte range the kernel's page cache holds. [`Residency::Whole`] for a file in memory.
    pub fn residency(&self, range: ByteRange) -> Residency {
        match &self.contents {
            Contents::Stored(source) => source.open.residency(range),
            Contents::Memory(_) => Residency::Whole,
        }
    }

    /// What cached reads of this file met so far, through all handles, and what the cache holds of it now. All zero for a
    /// file that is not cached, or is in memory, and in a forked child.
    pub fn stats(&self) -> FileStats {
        let Contents::Stored(source) = &self.contents else { return FileStats::default() };
        if source.shared().driver.is_forked() {
            return FileStats::default();
        }
        source.inode.as_ref().map_or_else(FileStats::default, |inode| inode.stats())
    }

    /// A cursor at byte 0 for writing in this thread.
    pub fn writer(&self) -> Writer {
        Writer::new(self)
    }

    /// A cursor at byte 0 for sequential reading in this thread.
    pub fn reader(&self) -> Reader {
        Reader::new(&self.contents)
    }

    /// A cursor at byte 0 for sequential reading in async tasks, on any runtime.
    pub fn async_reader(&self) -> AsyncReader {
        AsyncReader::new(&self.contents)
    }

    /// The file from byte 0 to its end as a stream of [`bytes::Bytes`] that share the frames.
    pub fn stream(&self) -> ByteStream {
        self.async_reader().into_stream()
    }
}
