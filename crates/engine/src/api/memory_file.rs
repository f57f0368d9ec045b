//! In memory: bytes of the program, read as a file.
//!
//! Owns: the bytes, the name for error texts, a position for each reader.
//! Does not own: positional reads of bytes in memory ([`InMemory`]).
//! Hot path: `read_at` is one copy; everything else shares the bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::backing::{Backing, InMemory};

use crate::base::error::Result;
use crate::engine::handle::addressable;

/// Bytes with a name.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    contents: InMemory<Bytes>,
    path: PathBuf,
}

impl MemoryFile {
    pub(crate) fn new(path: PathBuf, bytes: Bytes) -> MemoryFile {
        MemoryFile { contents: InMemory::new(bytes), path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.contents.bytes().len() as u64
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        addressable(&self.path, offset_bytes, buffer.len())?;
        let Ok(read_bytes) = self.contents.read_at(buffer, offset_bytes);
        Ok(read_bytes)
    }

    /// Shares the bytes.
    pub(crate) fn slice(&self, offset_bytes: u64, length: usize) -> Result<Bytes> {
        let range = addressable(&self.path, offset_bytes, length)?;
        let place = |offset_bytes: u64| offset_bytes.min(self.length_bytes()) as usize;
        Ok(self.contents.bytes().slice(place(range.start)..place(range.end)))
    }
}

/// A position in bytes in memory.
pub(crate) struct MemoryReader {
    pub(crate) file: Arc<MemoryFile>,
    pub(crate) position_bytes: u64,
}

impl MemoryReader {
    /// All bytes from the position on.
    pub(crate) fn chunk(&self) -> &[u8] {
        let bytes = self.file.contents.bytes();
        &bytes[self.position_bytes.min(bytes.len() as u64) as usize..]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.chunk().len(), "no more is consumed than was shown");
        self.position_bytes += bytes as u64;
    }

    /// Takes the chunk and moves past it. `None` at the end.
    pub(crate) fn take_chunk(&mut self) -> Option<Bytes> {
        let rest = self.file.contents.bytes().slice_ref(self.chunk());
        self.position_bytes += rest.len() as u64;
        (!rest.is_empty()).then_some(rest)
    }
}
