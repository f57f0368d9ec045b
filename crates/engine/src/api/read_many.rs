//! Read many: several positional reads in one call.
//!
//! ```text
//!   a few at a time: ─► prefetch their pages ─► copy the resident ones ─┬─ all ─► done
//!                                                                       └─ rest ─► submitted, later
//!   then, in order: wait for what was submitted
//! ```
//!
//! One lookup at a time makes a processor wait for one cached page at a time, because pinning a page is an atomic operation past
//! which it does not speculate. With several, it gets prefetches for all of them first. And all reads of pages that are not
//! cached are in flight before the first is waited for.
//!
//! Owns: the order of steps.
//! Does not own: each read (cached).

use std::sync::Arc;

use headwater_core::units::ByteRange;
use smallvec::SmallVec;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::Result;
use crate::engine::handle::Source;
use crate::engine::handle::addressable;
use crate::inode::Inode;
use crate::load::submit::Caller;
use crate::read::cached::CachedRead;

/// One of the reads of [`File::read_many`].
#[derive(Debug)]
pub struct ManyRead<'a> {
    /// Offset of the first byte.
    pub offset_bytes: u64,
    /// Filled as far as the file reaches.
    pub buffer: &'a mut [u8],
    /// Bytes read, as [`File::read_at`] returns them. Set by [`File::read_many`].
    pub read_bytes: usize,
}

impl<'a> ManyRead<'a> {
    /// A read that is still to be done.
    pub fn new(offset_bytes: u64, buffer: &'a mut [u8]) -> ManyRead<'a> {
        ManyRead { offset_bytes, buffer, read_bytes: 0 }
    }
}

impl File {
    /// As [`File::read_at`] for each of `reads`, in one call: faster for cached pages, and the device gets the requests for the
    /// others together. Blocks until all are done.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, [1, 2, 3, 4, 5, 6])?;
    /// use headwater::{File, ManyRead};
    /// let (mut head, mut tail) = ([0; 2], [0; 4]);
    /// let mut reads = [ManyRead::new(0, &mut head), ManyRead::new(4, &mut tail)];
    /// File::open(&path)?.read_many(&mut reads)?;
    /// assert_eq!((reads[0].read_bytes, reads[1].read_bytes), (2, 2));
    /// assert_eq!((head, &tail[..2]), ([1, 2], &[5, 6][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// That of the first read in order that failed. The others are completed all the same, and failed ones have read 0 bytes.
    pub fn read_many(&self, reads: &mut [ManyRead<'_>]) -> Result<()> {
        reads.iter_mut().for_each(|read| read.read_bytes = 0);
        if let (Contents::Stored(source), Some(first)) = (&self.contents, reads.first()) {
            source.check_read(first.offset_bytes)?;
        }
        let mut outcome = Ok(());
        for together in reads.chunks_mut(STARTED_TOGETHER) {
            for read in self.late(together) {
                let done = self.read_at(read.buffer, read.offset_bytes);
                read.read_bytes = *done.as_ref().unwrap_or(&0);
                outcome = outcome.and(done.map(drop));
            }
        }
        outcome
    }

    /// Completes the reads that need no waiting. Submits the others and returns them.
    fn late<'r, 'b>(
        &self,
        reads: &'r mut [ManyRead<'b>],
    ) -> SmallVec<[&'r mut ManyRead<'b>; FETCHED_TOGETHER]> {
        let cached = match &self.contents {
            Contents::Stored(source) => source.cached().map(|inode| (&**source, inode)),
            Contents::Memory(_) => None,
        };
        let Some((source, inode)) = cached else { return reads.iter_mut().collect() };
        let mut late = SmallVec::new();
        for group in reads.chunks_mut(FETCHED_TOGETHER) {
            group.iter().for_each(|read| inode.fetch(read.offset_bytes, read.buffer.len()));
            late.extend(group.iter_mut().filter_map(|read| match source.copy_if_there(inode, read) {
                Copied::All => None,
                Copied::NotAll => Some(read),
            }));
        }
        late
    }
}

/// Outcome of a read that does not wait.
enum Copied {
    All,
    NotAll,
}

impl Source {
    fn copy_if_there(&self, inode: &Arc<Inode>, read: &mut ManyRead<'_>) -> Copied {
        let wanted = addressable(self.path(), read.offset_bytes, read.buffer.len());
        // The blocking read reports what is wrong with the range.
        let Ok(wanted) = wanted else { return Copied::NotAll };
        let Ok(mut cached) = CachedRead::new(self, inode, Caller::Task, wanted) else {
            return Copied::NotAll;
        };
        let buffer = &mut *read.buffer;
        let copy = |at: usize, bytes: &[u8]| buffer[at..at + bytes.len()].copy_from_slice(bytes);
        if cached.copy(copy).is_some() {
            return Copied::NotAll;
        }
        read.read_bytes = cached.done();
        inode.after_read(ByteRange::at(read.offset_bytes, read.read_bytes as u64));
        Copied::All
    }
}

/// Pages prefetched before the first is copied: what fits in the first-level cache beside its other contents.
const FETCHED_TOGETHER: usize = 8;

/// Reads in flight at once: enough to keep a device with a deep queue busy, few enough to leave frames to other readers.
const STARTED_TOGETHER: usize = 64;
