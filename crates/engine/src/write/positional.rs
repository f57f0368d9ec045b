//! Positional: the path of a write at an offset, and its checks.
//!
//! Owns: the checks before a write, what a handle has reported.
//! Does not own: the write into the cache (cached).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::frame::PAGES_MAX;
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_io::{FileKind, RejectReason, Route};

use crate::base::error::{Operation, Result};
use crate::engine::handle::{Entry, READABLE_BYTES_MAX, Source};
use crate::write::place::Place;

/// The failures and conflicts that a handle has reported.
#[derive(Clone, Copy)]
pub(crate) struct Reported {
    failures: u64,
    conflicts: u64,
}

impl Source {
    pub(crate) fn write_at(self: &Arc<Self>, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.check_positioned_write(offset_bytes, bytes.len())?;
        if let Some(written_bytes) = self.write_around(bytes, offset_bytes) {
            return Ok(written_bytes);
        }
        match self.known() {
            Some(inode) => Ok(self.write_to(inode, bytes, Place::At(offset_bytes))?.bytes),
            None => self.write_through(bytes, offset_bytes),
        }
    }

    pub(crate) async fn write_at_async(self: &Arc<Self>, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        self.check_positioned_write(offset_bytes, bytes.len())?;
        match self.known() {
            Some(inode) => Ok(self.write_to_async(inode, bytes, Place::At(offset_bytes)).await?.bytes),
            None => self.write_through(bytes, offset_bytes),
        }
    }

    /// Writes to devices without pages: those that are no block devices.
    fn write_through(&self, bytes: &[u8], offset_bytes: u64) -> Result<usize> {
        let written = self.shared().driver.write_blocking(&self.open, Route::Buffered, bytes, offset_bytes);
        written.map_err(|error| self.error(Operation::Write, offset_bytes, error))
    }

    /// Whether a write at a position would be refused before any byte is written.
    pub(crate) fn check_positioned_write(&self, offset_bytes: u64, length: usize) -> Result<()> {
        self.check_positioned(offset_bytes)?;
        self.check_write(offset_bytes, length)
    }

    /// A file open for appending can be written only at its end.
    fn check_positioned(&self, offset_bytes: u64) -> Result<()> {
        if self.appender.is_none() {
            return Ok(());
        }
        let text = "the file is open for appending; open it without to write at a position";
        Err(self.error(Operation::Write, offset_bytes, io::Error::new(io::ErrorKind::InvalidInput, text)))
    }

    pub(crate) fn check_write(&self, offset_bytes: u64, length: usize) -> Result<()> {
        if self.shared().driver.is_forked() {
            return Err(self.error(Operation::Write, offset_bytes, RejectReason::Forked.into()));
        }
        self.check_conflicts(Operation::Write)?;
        // A file that is not entered has nothing to report.
        let entered = self.entered().and_then(Entry::inode);
        let failure = entered.and_then(|inode| inode.dirty.errseq.report_write(&self.reported_failures));
        if let Some(error) = failure {
            return Err(self.error(Operation::Write, offset_bytes, error));
        }
        self.check_end(offset_bytes, length)
    }

    /// Which failures and conflicts this handle has reported.
    pub(crate) fn reported(&self) -> Reported {
        Reported {
            failures: self.reported_failures.load(Ordering::Acquire),
            conflicts: self.reported_conflicts.load(Ordering::Acquire),
        }
    }

    /// Has this handle report again what it has reported since, in a call whose caller did not get the report.
    pub(crate) fn report_again(&self, before: Reported) {
        self.reported_failures.store(before.failures, Ordering::Release);
        self.reported_conflicts.store(before.conflicts, Ordering::Release);
    }

    /// Whether a file can be that long.
    pub(crate) fn check_end(&self, offset_bytes: u64, length: usize) -> Result<()> {
        let end_bytes = offset_bytes.checked_add(length as u64);
        let error = match end_bytes {
            None => io::Error::new(io::ErrorKind::InvalidInput, "offsets of files end at 2^63 - 1"),
            Some(end_bytes) if end_bytes > WRITABLE_BYTES_MAX => io::ErrorKind::FileTooLarge.into(),
            Some(end_bytes)
                if self.open.kind() == FileKind::BlockDevice && end_bytes > self.length_bytes()? =>
            {
                io::ErrorKind::StorageFull.into()
            }
            Some(_) => return Ok(()),
        };
        Err(self.error(Operation::Write, offset_bytes, error))
    }
}

/// The largest file that can be written: what frames can number.
pub(crate) const WRITABLE_BYTES_MAX: u64 = if READABLE_BYTES_MAX < PAGES_MAX * PAGE_SIZE_BYTES {
    READABLE_BYTES_MAX
} else {
    PAGES_MAX * PAGE_SIZE_BYTES
};
