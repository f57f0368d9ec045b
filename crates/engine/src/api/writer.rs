//! Writer: a blocking cursor for writing.
//!
//! Owns: a position.
//! Does not own: the write itself; see positional writes.

use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};

use os_display::Quotable;

use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::OFFSET_BYTES_MAX;

/// Writes a file from a position onwards: `Write + Seek`. Written bytes are in the engine's memory at once, and in the file after
/// [`Writer::sync`], or some seconds later.
///
/// [`Write::flush`] does nothing, because the writer itself buffers nothing.
pub struct Writer {
    file: File,
    position_bytes: u64,
}

impl Writer {
    pub(crate) fn new(file: &File) -> Writer {
        Writer { file: file.clone(), position_bytes: 0 }
    }

    /// As [`File::sync_data`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written_bytes = self.file.write_at(bytes, self.position_bytes)?;
        self.position_bytes += written_bytes as u64;
        Ok(written_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Writer {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
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
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({} at byte {})", self.file.path().maybe_quote(), self.position_bytes)
    }
}
