//! Copy range: bytes from one file to another, or to another place in the same file.
//!
//! ```text
//!   copy_range_to ─► bytes before the first whole page ─► whole pages share extents, where the files can ─► the rest
//!                    └─ holes ─► zeros that the target does not store                                     └─ as the first
//!                    └─ data ──► views of the source, written to the target
//! ```
//!
//! In this order, because pages that share extents may make the target longer: a reader of the new length finds no gap before them.
//!
//! Owns: the order of these steps, and what a copy may not do.
//! Does not own: sharing extents and making holes (`write/remap`), where holes are (`read/stretches`), views, writes.

use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{FileKind, Stretch};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::{OFFSET_BYTES_MAX, Source, byte_range};

impl File {
    /// Copies a range of this file to `at_bytes` in another, or elsewhere in this one, and returns the bytes copied: fewer than the range
    /// has where this file ends. Extends the other file if need be. Whole pages of files that can share extents (Btrfs, XFS) share
    /// them, and take no room until they are written to; other bytes go from cache to cache, and the kernel's page cache sees
    /// nothing of them. Holes of a file on this machine stay holes: the other file has zeros there, which take no room where its file
    /// system makes holes. Blocks.
    ///
    /// `copy_file_range(2)` is not used: where extents are not shared, it moves bytes through the kernel's page cache, which then has them
    /// besides, and it fills holes. Its gain on NFS and CIFS, a copy by the server, is given up for that.
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
    /// As [`File::view`] and [`File::write_at`], and as [`File::punch_hole`] and [`File::set_len`] on the other file; some of the bytes
    /// may be copied then. `InvalidInput` if the ranges overlap in one file, and for a range that ends before it begins.
    pub fn copy_range_to(&self, range: impl RangeBounds<u64>, target: &File, at_bytes: u64) -> Result<u64> {
        if let Some(range) = self.unsized_range(&range, target)? {
            return self.copy_until_end(range, target, at_bytes);
        }
        let Some(mut copy) = self.plan_copy(&range, target, at_bytes)? else { return Ok(0) };
        let (first, whole) = copy.split();
        self.copy_parts(&mut copy, target, vec![first])?;
        if !copy.has_ended {
            let left = match copy.source {
                Some(source) => copy.target.clone_from(whole, source, copy.source_bytes(whole))?,
                None => vec![whole],
            };
            self.copy_parts(&mut copy, target, left)?;
        }
        if copy.ends_in_hole {
            copy.target.grow_to(copy.written.end)?;
        }
        Ok(copy.written.len())
    }

    /// As [`File::copy_range_to`], for tasks on any executor. If it is dropped, some of the bytes may be copied.
    ///
    /// Poll it when woken until it is done or dropped: appends, truncates and syncs of the target may wait for it. The kernel shares
    /// extents within one poll, which takes as long as its `ioctl_ficlonerange(2)`, and is asked for holes within one.
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
                return file.copy_until_end_async(range, &target, at_bytes).await;
            }
            let Some(mut copy) = file.plan_copy(&range, &target, at_bytes)? else { return Ok(0) };
            let (first, whole) = copy.split();
            file.copy_parts_async(&mut copy, &target, vec![first]).await?;
            if !copy.has_ended {
                let left = match copy.source {
                    Some(source) => {
                        copy.target.clone_from_async(whole, source, copy.source_bytes(whole)).await?
                    }
                    None => vec![whole],
                };
                file.copy_parts_async(&mut copy, &target, left).await?;
            }
            if copy.ends_in_hole {
                copy.target.grow_to_async(copy.written.end).await?;
            }
            Ok(copy.written.len())
        }
    }

    fn copy_parts(&self, copy: &mut CopyPlan<'_>, target: &File, mut parts: Vec<ByteRange>) -> Result<()> {
        parts.reverse();
        while let Some(step) = copy.next_step(&mut parts)? {
            let copied_bytes = match step {
                Step::Bytes(piece) => self.copy_piece(copy.source_bytes(piece), piece, target)?,
                Step::Zeros(hole) => copy.target.punch_hole(&hole).map(|()| hole.len())?,
                Step::End(_) => 0,
            };
            copy.note(step, copied_bytes);
        }
        Ok(())
    }

    async fn copy_parts_async(
        &self,
        copy: &mut CopyPlan<'_>,
        target: &File,
        mut parts: Vec<ByteRange>,
    ) -> Result<()> {
        parts.reverse();
        while let Some(step) = copy.next_step(&mut parts)? {
            let copied_bytes = match step {
                Step::Bytes(piece) => self.copy_piece_async(copy.source_bytes(piece), piece, target).await?,
                Step::Zeros(hole) => copy.target.punch_hole_async(&hole).await.map(|()| hole.len())?,
                Step::End(_) => 0,
            };
            copy.note(step, copied_bytes);
        }
        Ok(())
    }

    /// Returns the bytes copied: fewer than the piece has where the file ends.
    fn copy_piece(&self, from_bytes: u64, piece: ByteRange, target: &File) -> Result<u64> {
        let view = match self.view(from_bytes, piece.len() as usize) {
            // Files in `/sys` have a length that is larger than what can be read.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return self.copy_until_end(ByteRange::at(from_bytes, piece.len()), target, piece.start);
            }
            view => view?,
        };
        let mut at_bytes = piece.start;
        for chunk in view.chunks() {
            target.write_all_at(chunk, at_bytes)?;
            at_bytes += chunk.len() as u64;
        }
        Ok(piece.len())
    }

    async fn copy_piece_async(&self, from_bytes: u64, piece: ByteRange, target: &File) -> Result<u64> {
        let view = match self.view_async(from_bytes, piece.len() as usize).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let range = ByteRange::at(from_bytes, piece.len());
                return self.copy_until_end_async(range, target, piece.start).await;
            }
            view => view?,
        };
        let mut at_bytes = piece.start;
        for chunk in view.chunks() {
            target.write_slice_async(chunk, at_bytes).await?;
            at_bytes += chunk.len() as u64;
        }
        Ok(piece.len())
    }

    /// Copies a range of a file that has no length to tell where it ends.
    fn copy_until_end(&self, range: ByteRange, target: &File, at_bytes: u64) -> Result<u64> {
        let (mut buffer, mut done) = (vec![0; PIECE_BYTES as usize], 0);
        while let Some(wanted) = next_piece(range, done) {
            let read_bytes = self.read_at(&mut buffer[..wanted], range.start + done)?;
            if read_bytes == 0 {
                break;
            }
            target.write_all_at(&buffer[..read_bytes], at_bytes + done)?;
            done += read_bytes as u64;
        }
        Ok(done)
    }

    async fn copy_until_end_async(&self, range: ByteRange, target: &File, at_bytes: u64) -> Result<u64> {
        let mut done = 0;
        while let Some(wanted) = next_piece(range, done) {
            let bytes = self.read_at_async(range.start + done, wanted).await?;
            if bytes.is_empty() {
                break;
            }
            let read_bytes = bytes.len() as u64;
            target.write_all_at_async(bytes, at_bytes + done).await?;
            done += read_bytes;
        }
        Ok(done)
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
        if let Contents::Stored(source) = &self.contents {
            source.check_read(0)?;
        }
        let range = byte_range((Operation::Read, self.path()), range, || self.len())?;
        let read = if range.is_empty() { return Ok(None) } else { range.clip(self.len()?) };
        to.check_positioned_write(at_bytes, read.len() as usize)?;
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
        Ok(Some(CopyPlan::new(read, written, source, to)))
    }
}

/// A copy that may be made, and how far it has come.
struct CopyPlan<'a> {
    /// Offset of the first byte in the source.
    from_bytes: u64,
    /// Ends earlier once the source was found to end before its length says.
    written: ByteRange,
    /// `None` for a file in memory.
    source: Option<&'a Arc<Source>>,
    target: &'a Arc<Source>,
    /// Before this offset of the target, the source is known to have no hole.
    data_end: u64,
    has_ended: bool,
    /// Whether the last bytes copied were a hole, which a target that ended before it does not reach yet.
    ends_in_hole: bool,
}

/// What is to be done for the next bytes of the target.
#[derive(Clone, Copy)]
enum Step {
    /// Copy them.
    Bytes(ByteRange),
    /// Make them zeros, as far as the target has them.
    Zeros(ByteRange),
    /// The source ends at this offset of the target.
    End(u64),
}

impl<'a> CopyPlan<'a> {
    fn new(
        read: ByteRange,
        written: ByteRange,
        source: Option<&'a Arc<Source>>,
        target: &'a Arc<Source>,
    ) -> CopyPlan<'a> {
        let makes_holes = target.open.kind() == FileKind::Regular && target.known().is_some();
        let data_end = if source.is_some() && makes_holes { written.start } else { written.end };
        let from_bytes = read.start;
        CopyPlan { from_bytes, written, source, target, data_end, has_ended: false, ends_in_hole: false }
    }

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
        self.from_bytes + (part.start - self.written.start)
    }

    /// Takes the next step off the parts of the target that are left, the first of which is last in the list. `None` when all is done.
    fn next_step(&mut self, parts: &mut Vec<ByteRange>) -> Result<Option<Step>> {
        let (Some(part), false) = (parts.pop(), self.has_ended) else { return Ok(None) };
        if part.is_empty() {
            return self.next_step(parts);
        }
        let step = self.first_step(part)?;
        if let Step::Bytes(range) | Step::Zeros(range) = step {
            parts.push(ByteRange::new(range.end, part.end));
        }
        Ok(Some(step))
    }

    fn first_step(&mut self, part: ByteRange) -> Result<Step> {
        let bytes_until =
            |end: u64| Step::Bytes(ByteRange::new(part.start, end.min(part.start + COPY_BYTES)));
        let Some(source) = self.source.filter(|_| part.start >= self.data_end) else {
            return Ok(bytes_until(part.end.min(self.data_end)));
        };
        let from = ByteRange::at(self.source_bytes(part), part.len());
        let in_target = |offset_bytes: u64| part.start + (offset_bytes - from.start);
        let hole_end = match source.first_stretch(from)? {
            Stretch::Data(end) => {
                self.data_end = in_target(end);
                return Ok(bytes_until(self.data_end));
            }
            Stretch::Hole(end) => end,
        };
        // Beyond the end there is no data either.
        match hole_end.min(source.length_bytes()?) {
            end if end <= from.start => Ok(Step::End(part.start)),
            end if has_whole_page(part.start, in_target(end)) => {
                Ok(Step::Zeros(ByteRange::new(part.start, in_target(end))))
            }
            end => Ok(bytes_until(in_target(end))),
        }
    }

    /// After a step that has copied this many bytes.
    fn note(&mut self, step: Step, copied_bytes: u64) {
        let (range, is_hole) = match step {
            Step::Bytes(range) => (range, false),
            Step::Zeros(range) => (range, true),
            Step::End(at_bytes) => (ByteRange::at(at_bytes, 1), self.ends_in_hole),
        };
        if copied_bytes < range.len() {
            self.has_ended = true;
            self.written = ByteRange::new(self.written.start, range.start + copied_bytes);
        }
        self.ends_in_hole = if copied_bytes > 0 { is_hole } else { self.ends_in_hole };
    }
}

/// Whether a range of a file has a page that could be a hole.
fn has_whole_page(start: u64, end: u64) -> bool {
    start.next_multiple_of(PAGE_SIZE_BYTES) + PAGE_SIZE_BYTES <= end
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
