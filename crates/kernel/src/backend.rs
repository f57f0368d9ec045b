//! Backend: how a handle reaches its file, through the cache or past it, both at once and in agreement.
//!
//! ```text
//!   Cached ─► CachedFile
//!   Direct ─┬─ read ──► what is dirty of the range is written first ─► the node's read_at, into the caller's buffer
//!           └─ write ─► the file's turn ─► the same ─► the node's write_at ─► cached pages of the range leave
//! ```
//!
//! Owns: the order of these steps.
//! Does not own: whether a user wants it (`O_DIRECT`), alignment, which is the node's.
//! Invariants: I8 a read after a write finds what was written, whichever handle either went through. I10 as in `file`.
//! Locks: `writers`, then `flushing`, as other writes; a read takes `flushing` only where the range is dirty.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;

use headwater_core::backing::{Backing, Form};
use headwater_core::cache::DirtyToo;
use headwater_core::units::{ByteRange, PageRange};

use crate::file::CachedFile;
use crate::kernel::{Error, Failure, Kernel, Node, SyncScope};
use crate::state::File;

/// A handle of a file, which is its own choice: others of the same file may be of the other kind, at the same time, and each finds
/// what any of them wrote. Clones are of the same kind.
pub enum FileBackend<K: Kernel> {
    /// Through the cache.
    Cached(CachedFile<K>),
    /// Past it: for programs that have a cache of their own, and for files that are read once. Nothing is read ahead, and nothing kept. Files
    /// in memory have no node to go to, and are reached through the cache.
    Direct(CachedFile<K>),
}

impl<K: Kernel> Clone for FileBackend<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Cached(file) => Self::Cached(file.clone()),
            Self::Direct(file) => Self::Direct(file.clone()),
        }
    }
}

impl<K: Kernel> fmt::Debug for FileBackend<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, file) = match self {
            Self::Cached(file) => ("Cached", file),
            Self::Direct(file) => ("Direct", file),
        };
        f.debug_tuple(kind).field(file).finish()
    }
}

impl<K: Kernel> FileBackend<K> {
    /// The file, with what concerns all of its handles: length, listeners, pages.
    pub fn file(&self) -> &CachedFile<K> {
        match self {
            Self::Cached(file) | Self::Direct(file) => file,
        }
    }

    /// As [`CachedFile::read_at`]. Directly it is one read of the node, after what is dirty of the range was written to it.
    ///
    /// # Errors
    /// As [`CachedFile::read_at`], and directly those of that write.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error<K>> {
        match self {
            Self::Direct(file) if file.file.form == Form::Cached => file.file.read_directly(buffer, offset),
            Self::Direct(file) | Self::Cached(file) => file.read_at(buffer, offset),
        }
    }

    /// As [`CachedFile::write_at`]. Directly it is one write of the node, which may take a part. Dirty pages of the range are written to
    /// the node before it, and cached pages of the range leave after it.
    ///
    /// # Errors
    /// As [`CachedFile::write_at`]; directly, the node has none of `buffer` if what was dirty could not be written.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<usize, Error<K>> {
        match self {
            Self::Direct(file) if file.file.form == Form::Cached => {
                let _turn = file.file.writers.lock();
                file.file.write_directly(buffer, offset)
            }
            Self::Direct(file) | Self::Cached(file) => file.write_at(buffer, offset),
        }
    }

    /// As [`CachedFile::append`], and as [`FileBackend::write_at`].
    ///
    /// # Errors
    /// Those of [`FileBackend::write_at`].
    pub fn append(&self, buffer: &[u8]) -> Result<(usize, u64), Error<K>> {
        match self {
            Self::Direct(file) if file.file.form == Form::Cached => {
                let _turn = file.file.writers.lock();
                let end = file.file.len();
                file.file.write_directly(buffer, end).map(|written| (written, end + written as u64))
            }
            Self::Direct(file) | Self::Cached(file) => file.append(buffer),
        }
    }

    /// As [`CachedFile::set_len`]: the same for both kinds.
    ///
    /// # Errors
    /// Those of [`CachedFile::set_len`].
    pub fn set_len(&self, length_bytes: u64) -> Result<(), Error<K>> {
        self.file().set_len(length_bytes)
    }

    /// As [`CachedFile::sync`], which a direct write needs too: the device may have it in a cache of its own.
    ///
    /// # Errors
    /// Those of [`CachedFile::sync`].
    pub fn sync(&self, scope: SyncScope) -> Result<(), Error<K>> {
        self.file().sync(scope)
    }
}

impl<K: Kernel> File<K> {
    fn read_directly(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Result<usize, Error<K>> {
        let range = ByteRange::at(offset, buffer.len() as u64).clip(self.len());
        if range.is_empty() {
            return Ok(0);
        }
        self.write_back_dirty(PageRange::covering(range))?;
        self.node.read_at(&mut buffer[..range.len() as usize], range.start)
    }

    /// The caller holds `writers`: nothing of the range gets dirty meanwhile.
    fn write_directly(self: &Arc<Self>, buffer: &[u8], offset: u64) -> Result<usize, Error<K>> {
        let end = offset.checked_add(buffer.len() as u64).ok_or(K::Node::error(Failure::FileTooLarge))?;
        if buffer.is_empty() {
            return Ok(0);
        }
        let pages = PageRange::covering(ByteRange::new(offset, end));
        if end > self.len() {
            self.zero_stored_tail();
        }
        self.write_back_dirty(pages)?;
        let result = self.node.write_at(buffer, offset);
        self.writes.fetch_add(1, Ordering::AcqRel);
        if let Ok(written) = result {
            let reached = offset + written as u64;
            self.node_bytes.fetch_max(reached, Ordering::AcqRel);
            self.set_length(self.len().max(reached));
        }
        // Loads that began before the write too. What failed may have come there in part.
        self.drop_pages(pages, DirtyToo::No);
        self.await_unmapped();
        result
    }

    /// The node has what was written to these pages through the cache.
    fn write_back_dirty(self: &Arc<Self>, pages: PageRange) -> Result<(), Error<K>> {
        // Also where another task is writing them: the lock of that is waited for.
        let is_dirty = self.dirty.lock().first_dirty(pages).is_some();
        if is_dirty { self.write_back_pages(pages) } else { Ok(()) }
    }
}
