//! By kernel: writes of a handle that cannot read its file, into the kernel's page cache.
//!
//! ```text
//!   write ─┬─ the handle reads ─► the cache
//!          └─ it only writes ──► dirty pages of other handles are written ─► size lock ─► pwrite(2) ─► pages of the range leave
//! ```
//!
//! A page that is written in part has to be read first, and so has a block of direct I/O. Where the process may not read the file the kernel
//! puts the bytes together.
//!
//! Owns: which of the two ways a write takes.
//! Does not own: the write into the cache (cached), what the cache has of the range (append).
//! Invariants: I5 no lock is held while waiting but the size lock; I8 written bytes are visible to all readers when this returns.

use std::io;
use std::sync::Arc;

use headwater_core::units::ByteRange;
use headwater_io::{Appended, Route};

use crate::base::error::{Operation, Result};
use crate::base::listeners::calls_after;
use crate::engine::handle::Source;
use crate::inode::size_lock::SizeLockGuard;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::cached::Accepted;
use crate::write::fsync;
use crate::write::place::{Growth, Place};

impl Source {
    /// Writes into the cache, or around it where the handle only writes. Blocks. Returns how many bytes were accepted, if any.
    pub(crate) fn write_to(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        bytes: &[u8],
        place: Place<'_>,
    ) -> Result<Accepted> {
        if self.access.reads() {
            return self.write_cached(inode, bytes, place);
        }
        let (offset_bytes, growth, size_lock) = place.parts();
        let locked = match size_lock {
            Some(size_lock) => self.flush_locked(inode, size_lock),
            None => {
                fsync::flush(self.shared(), inode, ALL_PAGES);
                self.lock_end(inode)
            }
        };
        self.write_by_kernel(inode, bytes, (offset_bytes, growth), locked)
    }

    /// As [`Source::write_to`], for a task.
    pub(crate) async fn write_to_async(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        bytes: &[u8],
        place: Place<'_>,
    ) -> Result<Accepted> {
        if self.access.reads() {
            return self.write_cached_async(inode, bytes, place).await;
        }
        let (offset_bytes, growth, size_lock) = place.parts();
        if size_lock.is_none() {
            fsync::flush_async(self.shared(), inode).await;
        }
        let write = async {
            let locked = match size_lock {
                Some(size_lock) => self.flush_locked_async(inode, size_lock).await,
                None => self.lock_end_async(inode).await,
            };
            self.write_by_kernel(inode, bytes, (offset_bytes, growth), locked)
        };
        calls_after(write).await
    }

    /// One `pwrite(2)`, or more where it ends early.
    fn write_by_kernel(
        &self,
        inode: &Arc<Inode>,
        bytes: &[u8],
        (offset_bytes, growth): (u64, Growth),
        locked: io::Result<SizeLockGuard<'_>>,
    ) -> Result<Accepted> {
        if bytes.is_empty() {
            return Ok(Accepted { bytes: 0, stopped_by: None });
        }
        let failed = |error| self.error(Operation::Write, offset_bytes, error);
        let (size_lock, before_bytes) = (locked.map_err(failed)?, inode.length_bytes());
        let range = ByteRange::at(offset_bytes, bytes.len() as u64);
        let part = if growth == Growth::Refused { range.clip(before_bytes) } else { range };
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here");
        if part.is_empty() {
            return Err(self.error(Operation::Write, before_bytes.max(offset_bytes), ended()));
        }
        let (part_bytes, mut why) = (&bytes[..part.len() as usize], ended());
        let written = self.change_by_kernel(inode, part_bytes, size_lock, || {
            let (driver, mut length_bytes) = (&self.shared().driver, 0);
            while length_bytes < part_bytes.len() {
                let (rest, at_bytes) = (&part_bytes[length_bytes..], offset_bytes + length_bytes as u64);
                match driver.write_blocking(&self.open, Route::Buffered, rest, at_bytes) {
                    Ok(written_bytes) => length_bytes += written_bytes,
                    Err(error) if length_bytes == 0 => return Err(error),
                    Err(error) => {
                        why = error;
                        break;
                    }
                }
            }
            Ok(Appended { offset_bytes, length_bytes })
        });
        inode.note_length_since(before_bytes);
        let done = written.map_err(failed)?.length_bytes;
        let stopped_by =
            (done < bytes.len()).then(|| self.error(Operation::Write, offset_bytes + done as u64, why));
        Ok(Accepted { bytes: done, stopped_by })
    }
}
