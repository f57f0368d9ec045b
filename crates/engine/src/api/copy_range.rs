//! Copy range: bytes from one file to another, or to another place in the same file.
//!
//! ```text
//!   copy_range_to ─► bytes before the first whole page ─► whole pages share extents, where the files can ─► the rest
//!                    └─ views of the source, written to the target                                          └─ as the first
//! ```
//!
//! In this order, because pages that share extents may make the target longer: a reader of the new length finds no gap before them.
//!
//! Owns: the order of these two, and what a copy may not do.
//! Does not own: sharing extents (`write/remap`), views, writes.

use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::{OFFSET_BYTES_MAX, Source, byte_range};

impl File {
    /// Copies a range of this file to `at_bytes` in another, or elsewhere in this one, and returns the bytes copied: fewer than the range
    /// has where this file ends. Extends the other file if need be. Whole pages of files that can share extents (Btrfs, XFS) share
    /// them, and take no room until they are written to; other bytes go from cache to cache, and the kernel's page cache sees
    /// nothing of them. Blocks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, other) = (dir.path().join("data"), dir.path().join("other"));
    /// let (file, other) = (headwater::File::create(&path)?, headwater::File::create(&other)?);
    /// file.write_all_at(b"one two three", 0)?;
    /// assert_eq!(file.copy_range_to(4.., &other, 1)?, 9);
    /// assert_eq!(other.view(0, 10)?, b"\0two three");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::view`] and [`File::write_at`]; some of the bytes may be copied then. `InvalidInput` if the ranges overlap in one file.
    pub fn copy_range_to(&self, range: impl RangeBounds<u64>, target: &File, at_bytes: u64) -> Result<u64> {
        if let Some(range) = self.unsized_range(&range, target)? {
            let (mut buffer, mut done) = (vec![0; PIECE_BYTES as usize], 0);
            while let Some(wanted) = next_piece(range, done) {
                let read_bytes = self.read_at(&mut buffer[..wanted], range.start + done)?;
                if read_bytes == 0 {
                    break;
                }
                target.write_all_at(&buffer[..read_bytes], at_bytes + done)?;
                done += read_bytes as u64;
            }
            return Ok(done);
        }
        let Some(copy) = self.plan_copy(&range, target, at_bytes)? else { return Ok(0) };
        let write = |parts: &[ByteRange]| -> Result<()> {
            for piece in pieces(parts) {
                let view = self.view(copy.source_bytes(piece), piece.len() as usize)?;
                let mut at_bytes = piece.start;
                for chunk in view.chunks() {
                    target.write_all_at(chunk, at_bytes)?;
                    at_bytes += chunk.len() as u64;
                }
            }
            Ok(())
        };
        let (first, whole) = copy.split();
        write(&[first])?;
        let left = match copy.source {
            Some(source) => copy.target.clone_from(whole, source, copy.source_bytes(whole))?,
            None => vec![whole],
        };
        write(&left)?;
        Ok(copy.read.len())
    }

    /// As [`File::copy_range_to`], for tasks on any executor. If it is dropped, some of the bytes may be copied.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the target may wait for it. The kernel shares
    /// extents within one poll, which takes as long as its `ioctl_ficlonerange(2)`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let (file, other) = (headwater::File::from_bytes("one two three"), headwater::File::create(&path)?);
    /// assert_eq!(file.copy_range_to_async(4.., &other, 0).await?, 9);
    /// assert_eq!(other.view_async(0, 9).await?, b"two three");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::copy_range_to`].
    pub fn copy_range_to_async(
        &self,
        range: impl RangeBounds<u64>,
        target: &File,
        at_bytes: u64,
    ) -> impl Future<Output = Result<u64>> + Send + 'static {
        let (file, target) = (self.clone(), target.clone());
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        async move {
            if let Some(range) = file.unsized_range(&range, &target)? {
                let mut done = 0;
                while let Some(wanted) = next_piece(range, done) {
                    let bytes = file.read_at_async(range.start + done, wanted).await?;
                    if bytes.is_empty() {
                        break;
                    }
                    let read_bytes = bytes.len() as u64;
                    target.write_all_at_async(bytes, at_bytes + done).await?;
                    done += read_bytes;
                }
                return Ok(done);
            }
            let Some(copy) = file.plan_copy(&range, &target, at_bytes)? else { return Ok(0) };
            let write = async |parts: &[ByteRange]| -> Result<()> {
                for piece in pieces(parts) {
                    let view = file.view_async(copy.source_bytes(piece), piece.len() as usize).await?;
                    let mut at_bytes = piece.start;
                    for chunk in view.chunks() {
                        target.write_slice_async(chunk, at_bytes).await?;
                        at_bytes += chunk.len() as u64;
                    }
                }
                Ok(())
            };
            let (first, whole) = copy.split();
            write(&[first]).await?;
            let left = match copy.source {
                Some(source) => copy.target.clone_from_async(whole, source, copy.source_bytes(whole)).await?,
                None => vec![whole],
            };
            write(&left).await?;
            Ok(copy.read.len())
        }
    }

    /// The range to read until the file ends, if its length does not tell where that is: some that the kernel makes (`/proc`, devices)
    /// have a length of 0.
    fn unsized_range(&self, range: &impl RangeBounds<u64>, target: &File) -> Result<Option<ByteRange>> {
        target.writable(Operation::Write)?;
        if self.len()? > 0 {
            return Ok(None);
        }
        byte_range((Operation::Read, self.path()), range, || Ok(OFFSET_BYTES_MAX)).map(Some)
    }

    /// `None` if there is nothing to copy.
    fn plan_copy<'a>(
        &'a self,
        range: &impl RangeBounds<u64>,
        target: &'a File,
        at_bytes: u64,
    ) -> Result<Option<CopyPlan<'a>>> {
        let to = target.writable(Operation::Write)?;
        let range = byte_range((Operation::Read, self.path()), range, || self.len())?;
        let read = if range.is_empty() { return Ok(None) } else { range.clip(self.len()?) };
        to.check_end(at_bytes, read.len() as usize)?;
        let written = ByteRange::at(at_bytes, read.len());
        let source = match &self.contents {
            Contents::Stored(source) => Some(source),
            Contents::Memory(_) => None,
        };
        if source.is_some_and(|from| from.open.opened().key == to.open.opened().key)
            && !read.intersect(written).is_empty()
        {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "the range overlaps its copy");
            return Err(Error::at(Operation::Write, target.path(), at_bytes, error));
        }
        Ok(Some(CopyPlan { read, written, source, target: to }))
    }
}

/// A copy that may be made.
struct CopyPlan<'a> {
    read: ByteRange,
    written: ByteRange,
    /// `None` for a file in memory.
    source: Option<&'a Arc<Source>>,
    target: &'a Arc<Source>,
}

impl CopyPlan<'_> {
    /// What is written before the first page that could be shared, and from there on.
    fn split(&self) -> (ByteRange, ByteRange) {
        let ByteRange { start, end } = self.written;
        // A file in memory shares nothing.
        let page_start = if self.source.is_some() { start.next_multiple_of(PAGE_SIZE_BYTES) } else { start };
        let middle = page_start.min(end);
        (ByteRange::new(start, middle), ByteRange::new(middle, end))
    }

    /// Where the bytes of a part of what is written come from.
    fn source_bytes(&self, part: ByteRange) -> u64 {
        self.read.start + (part.start - self.written.start)
    }
}

/// The ranges in parts of up to [`COPY_BYTES`].
fn pieces(ranges: &[ByteRange]) -> impl Iterator<Item = ByteRange> {
    ranges.iter().flat_map(|range| {
        let starts = (range.start..range.end).step_by(COPY_BYTES as usize);
        starts.map(|start| ByteRange::at(start, (range.end - start).min(COPY_BYTES)))
    })
}

/// How many bytes to read next of a range of which this many are read; `None` if that is all.
fn next_piece(range: ByteRange, done: u64) -> Option<usize> {
    let left = range.end.saturating_sub(range.start).checked_sub(done).filter(|&left| left > 0)?;
    Some(left.min(PIECE_BYTES) as usize)
}

/// Read at once of a file without a length, most of which are small.
const PIECE_BYTES: u64 = 64 << 10;

/// Bytes that a copy moves at once.
const COPY_BYTES: u64 = 1 << 20;
