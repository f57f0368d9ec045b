//! Gap: the zeros between the end of a file and a write behind it.
//!
//! Owns: the length of the device, extended for the write and taken back if it writes nothing.
//! Does not own: the order of the steps of a write (cached).
//! Invariants: until the first byte behind it, no other handle learns of the gap, so none writes into it (`State::gap`).

use std::io;

use headwater_core::units::ByteRange;

use super::CachedWrite;
use crate::base::error::Result;
use crate::inode::size_lock::SizeLockGuard;

impl CachedWrite<'_> {
    /// Extends the file on the device to the start of this write, so that the bytes in between read as zeros.
    pub(super) fn leave_gap(&mut self, start_bytes: u64) -> Result<()> {
        if start_bytes <= *self.inode.dirty.device_length() {
            return Ok(());
        }
        let (mut gap, end_bytes) = (None, self.inode.length_bytes());
        let left = self.inode.change_length(&self.source.open, |device_length| {
            let (driver, file) = (&self.source.shared().driver, &self.source.open);
            // Others may have extended it.
            let length_bytes = file.length_bytes()?;
            if length_bytes < start_bytes {
                gap = Some(ByteRange::new(end_bytes.max(length_bytes), start_bytes));
                self.inode.dirty.lock().gap = gap;
                driver.extend_blocking(file, start_bytes)?;
            }
            *device_length = length_bytes.max(start_bytes);
            Ok(())
        });
        self.gap = gap;
        left.map_err(|error: io::Error| self.error(error))
    }

    /// Undoes the gap of a write that ends without a byte behind it, unless others have extended the file further.
    fn close_gap(&self, gap: ByteRange) -> io::Result<()> {
        let (inode, shared) = (self.inode, self.source.shared());
        inode.change_length(&self.source.open, |device_length| {
            if self.source.open.length_bytes()? != gap.end {
                return Ok(());
            }
            shared.driver.set_len_blocking(&self.source.open, gap.start)?;
            *device_length = gap.start;
            Ok(())
        })
    }
}

impl Drop for CachedWrite<'_> {
    /// The write may have failed, or its task been dropped, between the gap and the bytes behind it.
    fn drop(&mut self) {
        if let Some(gap) = self.gap
            && !self.source.shared().driver.is_forked()
            && self.size_lock.as_ref().is_some_and(SizeLockGuard::make_firm)
        {
            let closed = self.close_gap(gap);
            self.inode.dirty.lock().gap = None;
            closed.unwrap_or_else(|error| self.inode.dirty.errseq.note(&error));
        }
    }
}
