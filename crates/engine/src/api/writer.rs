//! Writer: a blocking cursor for writing, with a buffer for small writes.
//!
//! ```text
//!   write ─┬─ it fits ─► buffer ─► full, flush, seek, sync, drop ─► one write into the engine's memory
//!          └─ it is as large as the buffer ─► the engine's memory
//! ```
//!
//! The buffer ends where a block of its size ends in the file, so that a writer in order hands over whole pages. On a file that is open for
//! appending, a write that does not fit begins the next buffer, so that the bytes of one call stay together.
//!
//! Owns: a position, bytes that the engine does not have yet.
//! Does not own: the write itself; see positional writes.

use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::OFFSET_BYTES_MAX;
use crate::write::positional::Reported;

/// Writes a file from a position onwards: `Write + Seek`. It gathers small writes by itself; a `BufWriter` around it gains nothing.
///
/// Written bytes are in the engine's memory, and visible to its readers, after [`Write::flush`], [`Seek::seek`], [`Writer::sync`] or
/// the drop of the writer, and once there are 64 KiB of them; in the file after [`Writer::sync`], or some seconds after they came
/// to the engine's memory; the table of [`File::flush`] has all calls of that kind. After an error the bytes that could not be written stay
/// in the buffer, and the next call tries again.
/// An error at the drop is reported by the next write or sync through any handle of the file, as one of writeback is.
///
/// On a file that was opened with [`OpenOptions::append`](crate::OpenOptions::append) it appends, wherever it stands, as a `BufWriter`
/// around such a file of std does: the buffer goes to the end of the file with one `write(2)`, and the bytes of one call of
/// [`Write::write`] or [`Write::write_all`] lie together. A seek leads nowhere then but to the position that
/// [`Seek::stream_position`] returns.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("lines");
/// use std::io::Write;
/// let file = headwater::File::create(&path)?;
/// let mut writer = file.writer();
/// for number in 0..1000 {
///     writeln!(writer, "{number}")?;
/// }
/// writer.sync()?;
/// assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 1000);
///
/// let mut log = headwater::OpenOptions::new().append(true).open(&path)?.writer();
/// writeln!(log, "the end")?;
/// log.flush()?;
/// assert!(std::fs::read_to_string(&path)?.ends_with("999\nthe end\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Writer {
    file: File,
    /// Where the buffer begins.
    position_bytes: u64,
    buffer: Vec<u8>,
    /// The length at which the buffer is handed over; 0 while it has not begun.
    buffer_bytes_max: usize,
}

impl File {
    /// A cursor at byte 0 for writing in this thread.
    pub fn writer(&self) -> Writer {
        Writer { file: self.clone(), position_bytes: 0, buffer: Vec::new(), buffer_bytes_max: 0 }
    }
}

impl Writer {
    /// The writer at `offset_bytes` instead of where it was; for one that has not written yet. Of no effect on what is written to a file
    /// that is open for appending.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("words");
    /// use std::io::Write;
    /// let file = headwater::File::create(&path)?;
    /// file.append(b"one two")?;
    /// write!(file.writer().starting_at(4), "six")?;
    /// assert_eq!(file.view(0, 7)?, b"one six");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If its buffer holds bytes.
    #[must_use]
    pub fn starting_at(mut self, offset_bytes: u64) -> Writer {
        assert!(self.buffer.is_empty(), "the writer has begun; seek it");
        self.position_bytes = offset_bytes;
        self
    }

    /// Writes what the buffer holds, then as [`File::sync_data`].
    ///
    /// # Errors
    /// As [`File::write_at`] and [`File::sync_data`].
    pub fn sync(&mut self) -> Result<()> {
        self.hand_over()?;
        self.file.sync_data()
    }

    /// Writes what the buffer holds, and returns the file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("lines");
    /// use std::io::Write;
    /// let mut writer = headwater::File::create(&path)?.writer();
    /// write!(writer, "one")?;
    /// assert_eq!(writer.into_inner()?.len()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`]. The bytes are given up then; [`Write::flush`] before it keeps them.
    pub fn into_inner(mut self) -> Result<File> {
        let written = self.hand_over();
        // Reported here, not by the drop as well.
        self.buffer.clear();
        written.map(|()| self.file.clone())
    }

    /// The position of the next byte.
    fn end_bytes(&self) -> u64 {
        self.position_bytes + self.buffer.len() as u64
    }

    /// A write that does not fit into the buffer, or begins it.
    #[inline(never)]
    fn write_beyond(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            return self.begin(bytes);
        }
        if self.file.appends() {
            self.hand_over()?;
            return self.begin(bytes);
        }
        let taken = bytes.len().min(self.buffer_bytes_max - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() < self.buffer_bytes_max {
            return Ok(taken);
        }
        let reported = self.file.writable(Operation::Write)?.reported();
        let Err(error) = self.hand_over() else { return Ok(taken) };
        // Bytes of this call that are not written were not accepted.
        let refused = taken.min(self.buffer.len());
        self.buffer.truncate(self.buffer.len() - refused);
        if self.buffer.is_empty() {
            self.buffer_bytes_max = 0;
        }
        if refused == taken {
            return Err(error.into());
        }
        self.file.writable(Operation::Write)?.report_again(reported);
        Ok(taken - refused)
    }

    /// Begins the buffer with a small write; hands a large one over.
    fn begin(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let block_bytes = BUFFER_BYTES as u64;
        let begun_bytes = if self.file.appends() { 0 } else { self.position_bytes % block_bytes };
        let room_bytes = (block_bytes - begun_bytes) as usize;
        if bytes.len() >= room_bytes {
            let (end_bytes, written_bytes) = self.file.put(bytes, self.position_bytes)?;
            self.position_bytes = end_bytes;
            return Ok(written_bytes);
        }
        self.file.check_put(self.position_bytes, bytes.len())?;
        if bytes.is_empty() {
            return Ok(0);
        }
        self.buffer.reserve_exact(BUFFER_BYTES);
        self.buffer_bytes_max = room_bytes;
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Writes the buffer into the engine's memory. What cannot be written stays.
    fn hand_over(&mut self) -> Result<()> {
        let mut done = 0;
        let result = loop {
            if done == self.buffer.len() {
                break Ok(());
            }
            match self.file.put(&self.buffer[done..], self.position_bytes) {
                Ok((end_bytes, written_bytes)) => {
                    self.position_bytes = end_bytes;
                    done += written_bytes;
                }
                Err(error) => break Err(error),
            }
        };
        self.buffer.drain(..done);
        self.buffer_bytes_max = if self.buffer.is_empty() { 0 } else { self.buffer_bytes_max - done };
        result
    }
}

impl File {
    /// Whether writers append, wherever they stand.
    pub(crate) fn appends(&self) -> bool {
        matches!(&self.contents, Contents::Stored(source) if source.appender.is_some())
    }

    /// Writes some bytes of a writer at its position, or appends them. Returns the position behind them, and how many there are.
    fn put(&self, bytes: &[u8], position_bytes: u64) -> Result<(u64, usize)> {
        let source = self.writable(Operation::Write)?;
        if source.appender.is_none() {
            let written_bytes = source.write_at(bytes, position_bytes)?;
            return Ok((position_bytes + written_bytes as u64, written_bytes));
        }
        source.append_some(bytes).map(|appended| (appended.end_bytes(), appended.length_bytes))
    }

    /// Whether a write of a writer would be refused before any byte is written.
    pub(crate) fn check_put(&self, position_bytes: u64, length: usize) -> Result<()> {
        let source = self.writable(Operation::Write)?;
        match source.appender {
            Some(_) => source.check_write(0, length),
            None => source.check_positioned_write(position_bytes, length),
        }
    }
}

impl Write for Writer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An empty buffer has no room, so that its first write is checked.
        if self.buffer.len() + bytes.len() < self.buffer_bytes_max {
            self.buffer.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        self.write_beyond(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.hand_over()?)
    }
}

impl Seek for Writer {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.hand_over()?;
        let position_bytes = match target {
            SeekFrom::Start(offset_bytes) => Some(offset_bytes),
            SeekFrom::Current(delta) => self.position_bytes.checked_add_signed(delta),
            SeekFrom::End(delta) => self.file.len()?.checked_add_signed(delta),
        };
        let Some(position_bytes) = position_bytes.filter(|&bytes| bytes <= OFFSET_BYTES_MAX) else {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "position is negative or above 2^63 - 1");
            return Err(Error::at(Operation::Seek, self.file.path(), self.position_bytes, error).into());
        };
        self.position_bytes = position_bytes;
        Ok(position_bytes)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.end_bytes())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let Contents::Stored(source) = &self.file.contents else { return };
        // A forked child has a copy of the buffer, which its parent writes.
        if source.shared().driver.is_forked() {
            return;
        }
        let taken = take_report(&self.file, self.position_bytes, self.buffer.len());
        let lost = self.hand_over().err();
        note_unwritten(&self.file, taken, lost);
    }
}

/// Takes the report of an earlier failure that the next write would give in place of writing: the last write of a writer has no caller to
/// give it to. Returns what the handle had reported before, if there was one.
pub(crate) fn take_report(file: &File, position_bytes: u64, length: usize) -> Option<Reported> {
    let reported = file.writable(Operation::Write).ok()?.reported();
    (length > 0 && file.check_put(position_bytes, length).is_err()).then_some(reported)
}

/// Gives back the report that was taken, and has the file's handles report that bytes were lost, which [`Engine::flush`](crate::Engine::flush)
/// does too.
pub(crate) fn note_unwritten(file: &File, taken: Option<Reported>, lost: Option<Error>) {
    let Contents::Stored(source) = &file.contents else { return };
    if let Some(taken) = taken {
        source.report_again(taken);
    }
    let (Some(inode), Some(lost)) = (source.known(), lost) else { return };
    let lost = lost.raw_os_error().map_or_else(|| lost.into(), io::Error::from_raw_os_error);
    inode.dirty.errseq.note(&lost);
    source.shared().cache.writes.note_lost(&lost);
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("position", &self.end_bytes()).field("file", &self.file).finish()
    }
}

/// 16 pages: what one write into the cache costs beside its copy is small then, and the buffer stays in the processor's cache.
const BUFFER_BYTES: usize = 64 << 10;

// As an engine.
impl UnwindSafe for Writer {}

impl RefUnwindSafe for Writer {}
