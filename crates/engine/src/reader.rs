//! Reader: a blocking cursor with readahead.
//!
//! Owns: nothing but the stream.
//! Does not own: readahead, memory; see the read stream.
//! Blocking: every read may wait for the device; a thread that waits alone pays no thread switch.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use crate::error::{Error, Operation};
use crate::file::File;
use crate::stream::ReadStream;

/// Reads a file from a position onwards: `Read + BufRead + Seek`. Dropping it at any moment is safe and does not wait.
///
/// [`BufRead::fill_buf`] shows the frames themselves: no copy. [`Read::read`] copies once.
///
/// An error names the first byte that could not be read; the position stays there, so reading again tries again and a
/// seek goes past it.
///
/// ```
/// use std::io::BufRead;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("words");
/// # std::fs::write(&path, b"one\ntwo\n")?;
/// let lines = headwater::File::open(&path)?.reader().lines().count();
/// assert_eq!(lines, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader {
    stream: ReadStream,
}

impl Reader {
    pub(crate) fn new(file: &File) -> Reader {
        Reader { stream: ReadStream::new(file) }
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.len() >= STRAIGHT_READ_BYTES_MIN
            && let Some(read_bytes) = self.stream.read_resident_into(buffer)?
        {
            return Ok(read_bytes);
        }
        let chunk = self.stream.fill_blocking()?;
        let length = chunk.len().min(buffer.len());
        buffer[..length].copy_from_slice(&chunk[..length]);
        self.stream.consume(length);
        Ok(length)
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.stream.fill_blocking()?)
    }

    /// # Panics
    /// If `bytes` is more than `fill_buf` showed.
    fn consume(&mut self, bytes: usize) {
        self.stream.consume(bytes);
    }
}

impl Seek for Reader {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position_bytes = resolve_seek(&self.stream, target)?;
        self.stream.seek(position_bytes);
        Ok(position_bytes)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} at byte {})", self.stream.file().path.display(), self.stream.position_bytes())
    }
}

/// Where a seek leads. Beyond the end is allowed, as for files of the standard library; before the start is not.
pub(crate) fn resolve_seek(stream: &ReadStream, target: SeekFrom) -> io::Result<u64> {
    let position_bytes = match target {
        SeekFrom::Start(offset_bytes) => Some(offset_bytes),
        SeekFrom::Current(delta) => stream.position_bytes().checked_add_signed(delta),
        SeekFrom::End(delta) => stream.file().length_bytes()?.checked_add_signed(delta),
    };
    position_bytes.filter(|&bytes| i64::try_from(bytes).is_ok()).ok_or_else(|| {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "position is negative or above 2^63 - 1");
        Error::at(Operation::Seek, &stream.file().path, stream.position_bytes(), source).into()
    })
}

/// Reads at least this large take what the kernel's page cache holds straight into the caller's buffer; below, a larger
/// piece copied into a frame serves many of them with one syscall.
const STRAIGHT_READ_BYTES_MIN: usize = 64 << 10;
