//! File: a file open for reading and writing at positions, and from start to end.
//!
//! Owns: what a user of a file sees.
//! Does not own: opening (options), descriptors and mode (`Source`), memory and queue (the engine), positions (the readers).

use std::fmt;
use std::ops::RangeBounds;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::readahead::ReadaheadLimits;
use headwater_io::{FileKind, Residency};

use crate::api::contents::Contents;
use crate::api::memory_file::MemoryFile;
use crate::base::counters::FileStats;
use crate::base::error::{Operation, Result};
use crate::engine::handle::{OFFSET_BYTES_MAX, byte_range};
use crate::inode::coherence::Coherence;

/// A file open for reading, or for reading and writing. Clones share it; all methods take `&self` and may be called from any
/// thread.
#[derive(Clone)]
pub struct File {
    pub(crate) contents: Contents,
}

impl File {
    /// A file of these bytes, named `<memory>` in errors. It needs no engine and works wherever a file is read: positional reads
    /// copy, [`File::read_at_async`] and [`File::stream`] share the bytes, readers show them in place.
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

    /// As [`File::from_bytes`], with a name of the caller's choice.
    ///
    /// ```
    /// let header = headwater::File::from_bytes_named("header.bin", "abc");
    /// let error = header.read_exact_at(&mut [0; 4], 0).unwrap_err();
    /// assert_eq!(error.to_string(), "read header.bin at byte 3: the file ends here");
    /// ```
    pub fn from_bytes_named(name: impl Into<PathBuf>, bytes: impl Into<Bytes>) -> File {
        File { contents: Contents::Memory(Arc::new(MemoryFile::new(name.into(), bytes.into()))) }
    }

    /// The current length in bytes: one system call. Files in `/proc` and character devices report 0 although they have contents.
    ///
    /// ```
    /// assert_eq!(headwater::File::from_bytes("one two").len()?, 7);
    /// # Ok::<(), headwater::Error>(())
    /// ```
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

    /// The length when the file was opened, or the cached length while pages are dirty: no system call.
    pub(crate) fn opened_length_bytes(&self) -> u64 {
        match &self.contents {
            Contents::Stored(source) => match source.known().filter(|inode| inode.dirty.pages() > 0) {
                Some(inode) => inode.length_bytes(),
                None => source.open.opened().stamp.length_bytes,
            },
            Contents::Memory(memory) => memory.length_bytes(),
        }
    }

    /// Checks the file for changes at once, so that the next read sees what other programs have done until now, whatever
    /// [`OpenOptions::revalidate`](crate::OpenOptions::revalidate) says: for programs that alternate on a file faster than that
    /// interval. One or two system calls, unless the file is leased; blocks if others have written to pages that are partly dirty.
    ///
    /// # Errors
    /// What `statx(2)` reports.
    pub fn refresh(&self) -> Result<()> {
        let Contents::Stored(source) = &self.contents else { return Ok(()) };
        source.check_process_for(Operation::Length)?;
        let Some(inode) = source.known() else { return Ok(()) };
        source.refresh(inode).map_err(|error| source.length_error(error))
    }

    /// The path the file was opened by, or its given name.
    pub fn path(&self) -> &Path {
        match &self.contents {
            Contents::Stored(source) => source.path(),
            Contents::Memory(memory) => memory.path(),
        }
    }

    pub(crate) fn is_regular(&self) -> bool {
        matches!(&self.contents, Contents::Stored(source) if source.open.kind() == FileKind::Regular)
    }

    /// Whether device reads of this file go around the kernel's page cache.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// use headwater::{File, IoMode, OpenOptions};
    /// println!("{}", if File::open(&path)?.is_direct() { "direct" } else { "through the page cache" });
    /// assert!(!OpenOptions::new().io(IoMode::Buffered).open(&path)?.is_direct());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_direct(&self) -> bool {
        match &self.contents {
            Contents::Stored(source) => source.open.direct().is_some(),
            Contents::Memory(_) => false,
        }
    }

    /// The limits of readahead in this file: those of the engine's builder, else those of the profile of its device
    /// ([`EngineBuilder::profiles`](crate::EngineBuilder::profiles)), else the defaults. `None` for a file in memory, which needs
    /// no readahead.
    pub fn readahead_limits(&self) -> Option<ReadaheadLimits> {
        match &self.contents {
            Contents::Stored(source) => Some(source.readahead),
            Contents::Memory(_) => None,
        }
    }

    /// How changes by other programs are seen now: [`Coherence::Leased`] while the file is leased, through any handle;
    /// [`Coherence::Private`] if chosen, and for a file in memory; [`Coherence::Unwatched`] where nothing proves which changes
    /// are this engine's own, because of where the file lies or by choice; else [`Coherence::Checked`] or
    /// [`Coherence::Revalidated`], as chosen. A file that is not cached is read anew each time, and counts as revalidated. In a
    /// forked child always as chosen.
    pub fn coherence(&self) -> Coherence {
        match &self.contents {
            Contents::Stored(source) => source.coherence(),
            Contents::Memory(_) => Coherence::Private,
        }
    }

    /// How much of a byte range the kernel's page cache holds. [`Residency::Whole`] for a file in memory, else [`Residency::None`] for an
    /// empty range, and for one that ends before it begins: this method has no error to refuse it with, as the others do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// use headwater::{File, IoMode, OpenOptions, Residency};
    /// std::fs::write(&path, vec![7; 100_000])?;
    /// let file = OpenOptions::new().io(IoMode::Buffered).open(&path)?;
    /// file.read_exact_at(&mut vec![0; 100_000], 0)?;
    /// assert!(matches!(file.residency(..), Residency::Whole | Residency::Unknown));
    /// assert_eq!(file.residency(5..5), Residency::None);
    /// assert_eq!(File::from_bytes("in memory").residency(..), Residency::Whole);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn residency(&self, range: impl RangeBounds<u64>) -> Residency {
        let Contents::Stored(source) = &self.contents else { return Residency::Whole };
        let range = byte_range((Operation::Read, self.path()), &range, || Ok(OFFSET_BYTES_MAX));
        range.map_or(Residency::None, |range| source.open.residency(range))
    }

    /// Counts of this file's cached reads, through all handles, and what the cache holds of it now. All zero for a file that is
    /// not cached, or is in memory, and in a forked child.
    pub fn stats(&self) -> FileStats {
        let Contents::Stored(source) = &self.contents else { return FileStats::default() };
        if source.shared().driver.is_forked() {
            return FileStats::default();
        }
        source.inode().map_or_else(FileStats::default, |inode| inode.stats())
    }
}

impl fmt::Debug for File {
    /// Path, length and mode. Asks the kernel for the length, and changes nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("File");
        fields.field("path", &self.path());
        match &self.contents {
            Contents::Stored(source) => source.show(&mut fields),
            Contents::Memory(memory) => {
                fields.field("length", &memory.length_bytes()).field("read", &true).field("write", &false);
            }
        }
        fields.finish()
    }
}

// As an engine.
impl UnwindSafe for File {}

impl RefUnwindSafe for File {}
