//! File: a file open for reading at positions and from start to end.
//!
//! Owns: what a user of a file sees, and the options of opening one.
//! Does not own: descriptors and mode (the source's), memory and queue (the engine's), positions (the readers').

use std::path::Path;
use std::sync::Arc;

use headwater_core::units::ByteRange;
use headwater_io::{Access, DirectIo, OpenFile, Residency};

use crate::async_reader::{AsyncReader, ByteStream};
use crate::engine::Engine;
use crate::error::{Error, Operation, Result};
use crate::reader::Reader;
use crate::source::{IoMode, Source};

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

    /// Opens a regular file or a block device. Blocks for as long as `open(2)` does.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for a FIFO, socket or character device, and for
    /// [`IoMode::Direct`] where the file system has none; what [`Engine::global`] reports.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => Engine::global()?,
        };
        let direct_io = match self.mode {
            IoMode::Auto => DirectIo::Preferred,
            IoMode::Direct => DirectIo::Required,
            IoMode::Buffered => DirectIo::Off,
        };
        let open = OpenFile::open(path, direct_io, Access::Read)
            .map_err(|error| Error::on_file(Operation::Open, path, error))?;
        let source = Source { open: Arc::new(open), path: path.to_owned(), mode: self.mode, engine };
        Ok(File { source: Arc::new(source) })
    }
}

/// A file open for reading. Clones share it; all methods take `&self` and may be called from any thread.
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) source: Arc<Source>,
}

impl File {
    /// Opens `path` for reading with the defaults of [`OpenOptions`].
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().open(path)
    }

    /// The length now, bytes: one syscall. Files in `/proc` say 0 although they have contents.
    ///
    /// # Errors
    /// What `fstat(2)` reports.
    #[allow(clippy::len_without_is_empty)] // The name is that of `std::fs::Metadata::len`, which has no `is_empty` either.
    pub fn len(&self) -> Result<u64> {
        self.source.length_bytes()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Whether device reads of this file go around the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.source.open.direct().is_some()
    }

    /// How much of a byte range the kernel's page cache holds.
    pub fn residency(&self, range: ByteRange) -> Residency {
        self.source.open.residency(range)
    }

    /// A cursor at byte 0 for sequential reading in this thread.
    pub fn reader(&self) -> Reader {
        Reader::new(&self.source)
    }

    /// A cursor at byte 0 for sequential reading in async tasks, on any runtime.
    pub fn async_reader(&self) -> AsyncReader {
        AsyncReader::new(&self.source)
    }

    /// The file from byte 0 to its end as a stream of [`bytes::Bytes`] that share the frames.
    pub fn stream(&self) -> ByteStream {
        self.async_reader().into_stream()
    }
}
