//! Reader: a blocking cursor with readahead.
//!
//! Owns: the cursor.
//! Does not own: readahead, memory (see the read stream).
//! Blocking: every read may wait for the device; a thread that waits alone reaps its own completion, without a thread switch.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::api::cursor::Cursor;
use crate::api::file::File;

/// Reads a file from a position onwards: `Read + BufRead + Seek`. May be dropped at any moment; the drop does not wait.
///
/// [`BufRead::fill_buf`] lends the frames themselves: no copy. [`Read::read`] copies once.
///
/// An error names the first byte that could not be read. The position stays there: reading again retries, seeking skips it.
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
    cursor: Cursor,
}

impl File {
    /// A cursor at byte 0 for sequential reading in this thread.
    pub fn reader(&self) -> Reader {
        Reader::at(Cursor::new(&self.contents, None))
    }
}

impl Reader {
    pub(crate) fn at(cursor: Cursor) -> Reader {
        Reader { cursor }
    }

    /// The reader at `offset_bytes` instead of where it was. At or beyond the end of the file it reads nothing.
    ///
    /// ```
    /// use std::io::Read;
    /// let file = headwater::File::from_bytes("one two");
    /// assert_eq!(std::io::read_to_string(file.reader().starting_at(4))?, "two");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn starting_at(mut self, offset_bytes: u64) -> Reader {
        self.cursor.start_at(offset_bytes);
        self
    }

    /// The file; what was read ahead is dropped. [`Seek::stream_position`] tells the position before that.
    ///
    /// ```
    /// use std::io::BufRead;
    /// let mut reader = headwater::File::from_bytes("one\ntwo\n").reader();
    /// reader.skip_until(b'\n')?;
    /// assert_eq!(reader.into_inner().len()?, 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> File {
        File { contents: self.cursor.contents() }
    }

    /// Announces that the next `bytes` will be read, so that readahead need not find out: up to 2 MiB of them are requested together
    /// with the first. No promise; what is announced and not read was read in vain. A seek ends the announcement.
    ///
    /// ```
    /// use std::io::Read;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// let file = headwater::File::open(&path)?;
    /// let mut reader = file.reader();
    /// reader.will_read(file.len()?);
    /// let mut bytes = Vec::new();
    /// reader.read_to_end(&mut bytes)?;
    /// assert_eq!(bytes.len(), 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn will_read(&mut self, bytes: u64) {
        self.cursor.expect(bytes);
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.len() >= STRAIGHT_READ_BYTES_MIN
            && let Some(read_bytes) = self.cursor.read_resident_into(buffer)?
        {
            return Ok(read_bytes);
        }
        let chunk = self.cursor.fill_blocking()?;
        let length = chunk.len().min(buffer.len());
        buffer[..length].copy_from_slice(&chunk[..length]);
        self.cursor.consume(length);
        Ok(length)
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.cursor.fill_blocking()?)
    }

    /// # Panics
    /// If `bytes` is more than `fill_buf` showed.
    fn consume(&mut self, bytes: usize) {
        self.cursor.consume(bytes);
    }
}

impl Seek for Reader {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        Ok(self.cursor.seek(target)?)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.show("Reader", f)
    }
}

/// Reads at least this large copy resident bytes from the kernel's page cache straight into the caller's buffer. For smaller
/// reads, one large copy into a frame serves many of them with one system call.
const STRAIGHT_READ_BYTES_MIN: usize = 64 << 10;

// As an engine.
impl UnwindSafe for Reader {}

impl RefUnwindSafe for Reader {}
