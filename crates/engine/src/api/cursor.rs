//! Cursor: the position that readers read from, in a stream of frames or in bytes in memory.
//!
//! Owns: the choice between the two, seeking.
//! Does not own: reading.

use std::fmt;
use std::io::{self, SeekFrom};
use std::path::Path;
use std::task::{Context, Poll};

use bytes::Bytes;
use headwater_core::readahead::ReadaheadLimits;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::api::memory_file::MemoryReader;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::OFFSET_BYTES_MAX;
use crate::read::stream::ReadStream;

/// A position in a file, and the bytes available there. The methods are those of [`ReadStream`].
pub(crate) enum Cursor {
    Stored(Box<ReadStream>),
    Memory(MemoryReader),
}

impl Cursor {
    /// A cursor at byte 0; for `own` see [`ReadStream::new`].
    pub(crate) fn new(contents: &Contents, own: Option<ReadaheadLimits>) -> Cursor {
        match contents {
            Contents::Stored(source) => Cursor::Stored(Box::new(ReadStream::new(source, own))),
            Contents::Memory(file) => Cursor::Memory(MemoryReader { file: file.clone(), position_bytes: 0 }),
        }
    }

    pub(crate) fn expect(&mut self, bytes: u64) {
        match self {
            Cursor::Stored(stream) => stream.expect(bytes),
            Cursor::Memory(_) => {}
        }
    }

    pub(crate) fn chunk(&self) -> &[u8] {
        match self {
            Cursor::Stored(stream) => stream.chunk(),
            Cursor::Memory(memory) => memory.chunk(),
        }
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        match self {
            Cursor::Stored(stream) => stream.consume(bytes),
            Cursor::Memory(memory) => memory.consume(bytes),
        }
    }

    pub(crate) fn take_chunk(&mut self) -> Option<Bytes> {
        match self {
            Cursor::Stored(stream) => stream.take_chunk(),
            Cursor::Memory(memory) => memory.take_chunk(),
        }
    }

    pub(crate) fn fill_blocking(&mut self) -> Result<&[u8]> {
        match self {
            Cursor::Stored(stream) => stream.fill_blocking(),
            Cursor::Memory(memory) => Ok(memory.chunk()),
        }
    }

    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Cursor::Stored(stream) => stream.poll_fill(context),
            Cursor::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn read_resident_into(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match self {
            Cursor::Stored(stream) => stream.read_resident_into(buffer),
            Cursor::Memory(_) => Ok(None),
        }
    }

    /// Moves to `target` and returns the new position. A position beyond the end is allowed, as in the standard library; one
    /// before the start is not.
    pub(crate) fn seek(&mut self, target: SeekFrom) -> Result<u64> {
        let position_bytes = match target {
            SeekFrom::Start(offset_bytes) => Some(offset_bytes),
            SeekFrom::Current(delta) => self.position_bytes().checked_add_signed(delta),
            SeekFrom::End(delta) => self.length_bytes()?.checked_add_signed(delta),
        };
        let Some(position_bytes) = position_bytes.filter(|&bytes| bytes <= OFFSET_BYTES_MAX) else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "position is negative or above 2^63 - 1");
            return Err(Error::at(Operation::Seek, self.path(), self.position_bytes(), error));
        };
        self.start_at(position_bytes);
        Ok(position_bytes)
    }

    /// Moves to a position; beyond the largest of files, to that.
    pub(crate) fn start_at(&mut self, position_bytes: u64) {
        let position_bytes = position_bytes.min(OFFSET_BYTES_MAX);
        match self {
            Cursor::Stored(stream) => stream.go_to(position_bytes),
            Cursor::Memory(memory) => memory.position_bytes = position_bytes,
        }
    }

    /// What it reads from.
    pub(crate) fn contents(&self) -> Contents {
        match self {
            Cursor::Stored(stream) => Contents::Stored(stream.source().clone()),
            Cursor::Memory(memory) => Contents::Memory(memory.file.clone()),
        }
    }

    /// What `Debug` shows of a reader.
    pub(crate) fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = File { contents: self.contents() };
        f.debug_struct(name).field("position", &self.position_bytes()).field("file", &file).finish()
    }

    pub(crate) fn position_bytes(&self) -> u64 {
        match self {
            Cursor::Stored(stream) => stream.position_bytes(),
            Cursor::Memory(memory) => memory.position_bytes,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Cursor::Stored(stream) => stream.source().path(),
            Cursor::Memory(memory) => memory.file.path(),
        }
    }

    fn length_bytes(&self) -> Result<u64> {
        match self {
            Cursor::Stored(stream) => stream.source().length_bytes(),
            Cursor::Memory(memory) => Ok(memory.file.length_bytes()),
        }
    }
}
