//! Remap: holes, reserved space and shared extents, which the device makes without moving bytes.
//!
//! ```text
//!   punch_hole ─┬─ whole pages ─► barrier ─► the device ─► these pages leave the cache      (no holes there: zeros are written)
//!               └─ their edges ─► zeros are written
//!   copy ─► source written back ─► barrier in the target ─► shared extents ─► these pages leave the cache
//!                                    └─ cannot be shared ─► the caller copies bytes
//! ```
//!
//! Owns: the order of these steps.
//! Does not own: copying bytes, what the device can do.

use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use headwater_core::cache::DirtyToo;
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageIndex, PageRange};
use headwater_io::{Allocated, Dropped, FileKind, RejectReason};

use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::{calls_after, defer};
use crate::engine::handle::{Source, byte_range};
use crate::inode::Inode;
use crate::write::barrier::Barrier;
use crate::write::cached::Accepted;
use crate::write::place::Place;

impl Source {
    pub(crate) fn allocate(self: &Arc<Self>, range: &impl RangeBounds<u64>) -> Result<()> {
        let inode = self.remappable(Operation::Allocate)?;
        let range = byte_range((Operation::Allocate, self.path()), range, || self.length_bytes())?;
        let reserve = || self.shared().driver.reserve_blocking(&self.open, range);
        let reserved = inode.own_change(&self.open, reserve);
        let refused = "this file system reserves no space";
        let reserved = reserved.and_then(|reserved| match reserved {
            Allocated::Yes => Ok(()),
            Allocated::Unsupported => Err(io::Error::new(io::ErrorKind::Unsupported, refused)),
        });
        reserved.map_err(|error| Error::on_file(Operation::Allocate, self.path(), error))
    }

    pub(crate) fn punch_hole(self: &Arc<Self>, range: &impl RangeBounds<u64>) -> Result<()> {
        let inode = self.remappable(Operation::PunchHole)?;
        let range = byte_range((Operation::PunchHole, self.path()), range, || Ok(u64::MAX))?;
        let barrier = Barrier::new(self, inode, inode.dirty.size_lock.lock(), first_page(range))?;
        barrier.wait();
        for block in remap(barrier, range, Change::Hole)?.into_iter().flat_map(blocks) {
            let zeros = &ZEROS[..block.len() as usize];
            if is_behind_the_end(self.write_to(inode, zeros, Place::Within(block.start)))? {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn punch_hole_async(self: &Arc<Self>, range: &impl RangeBounds<u64>) -> Result<()> {
        let inode = self.remappable(Operation::PunchHole)?;
        let range = byte_range((Operation::PunchHole, self.path()), range, || Ok(u64::MAX))?;
        let punch = async {
            let size_lock = inode.dirty.size_lock.lock_async(&self.shared().driver).await;
            let barrier = Barrier::new(self, inode, size_lock, first_page(range))?;
            barrier.ready().await;
            remap(barrier, range, Change::Hole)
        };
        for block in calls_after(punch).await?.into_iter().flat_map(blocks) {
            let zeros = &ZEROS[..block.len() as usize];
            if is_behind_the_end(self.write_to_async(inode, zeros, Place::Within(block.start)).await)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes whole pages of `range` share the extents of `source` from `from_bytes` on. Returns what of the range is left to be copied.
    /// Blocks.
    pub(crate) fn clone_from(
        self: &Arc<Self>,
        range: ByteRange,
        source: &Arc<Source>,
        from_bytes: u64,
    ) -> Result<Vec<ByteRange>> {
        let Some(inode) = self.shares_with(range, source, from_bytes)? else { return Ok(vec![range]) };
        source.flush()?;
        let barrier = Barrier::new(self, inode, inode.dirty.size_lock.lock(), first_page(range))?;
        barrier.wait();
        remap(barrier, range, Change::Clone { source, from_bytes })
    }

    /// As [`Source::clone_from`], for a task.
    pub(crate) async fn clone_from_async(
        self: &Arc<Self>,
        range: ByteRange,
        source: &Arc<Source>,
        from_bytes: u64,
    ) -> Result<Vec<ByteRange>> {
        let Some(inode) = self.shares_with(range, source, from_bytes)? else { return Ok(vec![range]) };
        source.flush_async().await?;
        let clone = async {
            let size_lock = inode.dirty.size_lock.lock_async(&self.shared().driver).await;
            let barrier = Barrier::new(self, inode, size_lock, first_page(range))?;
            barrier.ready().await;
            remap(barrier, range, Change::Clone { source, from_bytes })
        };
        calls_after(clone).await
    }

    /// The inode, if it could share extents of `source`, as far as pages and kinds of files go.
    fn shares_with(&self, range: ByteRange, source: &Source, from_bytes: u64) -> Result<Option<&Arc<Inode>>> {
        let is_in_step = range.start % PAGE_SIZE_BYTES == from_bytes % PAGE_SIZE_BYTES;
        let kinds = [self.open.kind(), source.open.kind()];
        let inode = self.known().filter(|_| is_in_step && kinds == [FileKind::Regular; 2]);
        if inode.is_some() {
            self.check_positioned_write(range.start, range.len() as usize)?;
        }
        Ok(inode)
    }

    /// The inode, if it is a regular file.
    fn remappable(&self, operation: Operation) -> Result<&Arc<Inode>> {
        if self.shared().driver.is_forked() {
            return Err(Error::on_file(operation, self.path(), RejectReason::Forked.into()));
        }
        self.check_conflicts(operation)?;
        match self.known() {
            Some(inode) if self.open.kind() == FileKind::Regular => Ok(inode),
            _ => {
                let error =
                    io::Error::new(io::ErrorKind::InvalidInput, "only regular files have space to change");
                Err(Error::on_file(operation, self.path(), error))
            }
        }
    }
}

/// What the device is to do.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// A hole; the length stays.
    Hole,
    /// The extents of `source` from `from_bytes` on, in step with the range's pages.
    Clone { source: &'a Source, from_bytes: u64 },
}

/// The first page that may be changed whole.
fn first_page(range: ByteRange) -> PageIndex {
    PageIndex::new(range.start.div_ceil(PAGE_SIZE_BYTES))
}

/// Changes whole pages of a range on the device, and drops them from the cache. Returns the parts of the range that are left to be
/// written. Listeners are called after the barrier is lifted, because they may use the file.
fn remap(barrier: Barrier<'_>, range: ByteRange, change: Change<'_>) -> Result<Vec<ByteRange>> {
    let Barrier { inode, source, .. } = barrier;
    let (deferral, length_bytes) = (defer(), inode.length_bytes());
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let given = range;
    let (range, end_bytes) = match change {
        // The page in which the file ends is whole, and nothing grows there under the size lock.
        Change::Hole if range.end >= length_bytes => {
            (range.clip(length_bytes), length_bytes.next_multiple_of(PAGE_SIZE_BYTES))
        }
        _ => (range, range.end),
    };
    let (first, end) = (first_page(range), PageIndex::new(end_bytes / PAGE_SIZE_BYTES));
    let is_in_window = matches!(change, Change::Clone { .. }) && inode.dirty.windows.overlaps(range);
    if range.is_empty() || first >= end || is_in_window {
        return Ok(vec![range]);
    }
    let pages = PageRange::new(first, end);
    let changed = inode.own_change(&source.open, || change_pages(&barrier, pages, given, change));
    drop(barrier);
    inode.note_length_since(length_bytes);
    let (operation, whole) = (change.operation(), pages.bytes());
    match changed {
        Ok(dropped) => {
            inode.on_dropped(&dropped);
            drop(deferral);
            let edges = [
                ByteRange::new(range.start, whole.start),
                ByteRange::new(whole.end, range.end.max(whole.end)),
            ];
            Ok(edges.into_iter().filter(|edge| !edge.is_empty()).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(vec![range]),
        Err(error) => Err(Error::on_file(operation, source.path(), error)),
    }
}

fn change_pages(
    barrier: &Barrier<'_>,
    pages: PageRange,
    given: ByteRange,
    change: Change<'_>,
) -> io::Result<Vec<Dropped>> {
    let Barrier { inode, source, .. } = *barrier;
    let (shared, bytes) = (source.shared(), pages.bytes());
    barrier.make_firm()?;
    let changed = {
        let mut device_length = inode.dirty.device_length();
        let (driver, file) = (&shared.driver, &source.open);
        match change {
            Change::Hole => {
                // Dirty pages that leave the cache would have made the file longer.
                let end_bytes = bytes.end.min(inode.length_bytes());
                if end_bytes > *device_length {
                    driver.extend_blocking(file, end_bytes)?;
                    *device_length = end_bytes;
                }
                // Behind the range there may be what another program has appended meanwhile.
                driver.punch_hole_blocking(file, ByteRange::new(bytes.start, bytes.end.min(given.end)))
            }
            Change::Clone { source: from, from_bytes } => {
                let from_range = ByteRange::at(from_bytes + (bytes.start - given.start), bytes.len());
                let cloned = driver.clone_range_blocking(&from.open, from_range, file, bytes.start);
                if cloned.is_ok() {
                    *device_length = bytes.end.max(*device_length);
                }
                cloned
            }
        }
    };
    if let Err(error) = &changed
        && error.kind() == io::ErrorKind::Unsupported
    {
        return changed.map(|()| Vec::new());
    }
    let mut dropped = Vec::new();
    inode.dirty.change(shared.cache.writes.dirty(), |state| {
        // After an error some of the pages may have changed.
        let mut dirty_too = DirtyToo::No;
        if changed.is_ok() {
            dirty_too = DirtyToo::Yes;
            state.dirty.forget(pages);
            // A read that finds the new length finds none of the old pages; nor, below, those loaded in between up to the old end.
            inode.pages.invalidate(pages, dirty_too, |page| dropped.push(page));
            match change {
                Change::Hole => inode.dirty.windows.zero(bytes),
                Change::Clone { .. } => inode.grow(bytes),
            }
        }
        inode.pages.invalidate(pages, dirty_too, |page| dropped.push(page));
        inode.dirty.note_written_at(bytes);
        inode.dirty.note_change_at(bytes);
        if state.dirty.is_empty() {
            shared.cache.writes.forget(inode);
        }
    });
    changed.map(|()| dropped)
}

impl Change<'_> {
    fn operation(self) -> Operation {
        match self {
            Change::Hole => Operation::PunchHole,
            Change::Clone { .. } => Operation::Write,
        }
    }
}

/// Pieces of a range as long as [`ZEROS`] at most.
fn blocks(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let starts = (range.start..range.end).step_by(ZEROS.len());
    starts.map(move |start| ByteRange::new(start, range.end.min(start + ZEROS.len() as u64)))
}

/// Whether zeros were not written because the file has been truncated meanwhile.
fn is_behind_the_end(written: Result<Accepted>) -> Result<bool> {
    let stopped_by = written.and_then(|accepted| accepted.stopped_by.map_or(Ok(()), Err));
    match stopped_by {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        Err(error) => Err(error),
    }
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
