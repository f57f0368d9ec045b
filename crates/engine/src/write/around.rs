//! Around: the first writes to a file, into the kernel's page cache instead of this one.
//!
//! ```text
//!   no inode stands for the file? ─► the handle's first writes, in order ─► pwrite(2), as the standard library does
//!                                 ├► more, over pages that the kernel has ─► the same
//!                                 └► more than that, a read, an error ─► an inode ─► the cache
//! ```
//!
//! Many files are made, written by a call or a few, and closed. An inode, its watch and the requests of its writeback cost ten times
//! what such a file takes; the kernel copies its bytes, and they are in the file when the call returns. What the kernel's page cache
//! has of a file is written over there: pages of this cache would come on top, and touching new memory takes longer than the copy.
//! Writers that go on, and whatever reads the file, use the cache.
//!
//! Owns: which writes go around, and the sync of a file that has had no others.
//! Does not own: that no inode is made meanwhile (`inode::table`).
//! Invariants: I8 a handle that enters the file waits for such a write, and sees it.
//! Hot path: the system call, two short locks, no allocation.

use std::io;
use std::sync::MutexGuard;

use headwater_core::units::{ByteRange, PageRange};
use headwater_io::{Route, SyncScope, lock};

use crate::engine::handle::{Around, Source};
use crate::inode::origin::ChangeAround;
use crate::inode::table::WriteAround;

impl Source {
    /// Writes into the kernel's page cache. `None` if the cache has to; errors are left to that write.
    pub(crate) fn write_around(&self, bytes: &[u8], offset_bytes: u64) -> Option<usize> {
        let (mut around, _writing) = self.begin_around()?;
        let range = ByteRange::at(offset_bytes, bytes.len() as u64);
        if !around.admits(range) && !self.is_over_resident(&mut around, range) {
            return None;
        }
        let driver = &self.shared().driver;
        let _change = ChangeAround::begin(self.open.opened().key);
        let written_bytes = driver.write_blocking(&self.open, Route::Buffered, bytes, offset_bytes).ok()?;
        around.note(ByteRange::at(offset_bytes, written_bytes as u64));
        Some(written_bytes)
    }

    /// Truncates the file to nothing, if the cache need not know. Errors are left to the cache.
    pub(crate) fn empty_around(&self) -> bool {
        let Some(_writing) = self.begin_around() else { return false };
        let _change = ChangeAround::begin(self.open.opened().key);
        self.shared().driver.set_len_blocking(&self.open, 0).is_ok()
    }

    /// Syncs the file, if the kernel has all that was written. `None` if the cache may have some of it. A failure is reported by
    /// every later sync and write as well.
    pub(crate) fn sync_around(&self, scope: SyncScope) -> Option<io::Result<()>> {
        // An inode made meanwhile has no earlier writes.
        drop(self.begin_around()?);
        let synced = self.shared().driver.sync_blocking(&self.open, scope);
        if let (Err(error), Some(inode)) = (&synced, self.known()) {
            inode.dirty.errseq.latch(error);
        }
        Some(synced)
    }

    /// Whether a write follows the others, and the kernel's page cache has all that it is over.
    fn is_over_resident(&self, around: &mut Around, range: ByteRange) -> bool {
        if !around.follows(range) || range.len() < RESIDENT_PIECE_BYTES_MIN {
            return false;
        }
        if range.end > around.resident_end_bytes {
            let step = ByteRange::at(range.start, range.len().max(RESIDENT_STEP_BYTES));
            let ahead = step.clip(self.open.opened().stamp.length_bytes);
            let is_resident =
                || self.open.resident_pages(ahead) == Some(PageRange::covering(ahead).len().get());
            if range.end > ahead.end || !is_resident() {
                return false;
            }
            around.resident_end_bytes = ahead.end;
        }
        true
    }

    /// The handle's writes around the cache, while no inode stands for the file. `None` if one does.
    fn begin_around(&self) -> Option<(MutexGuard<'_, Around>, WriteAround<'_>)> {
        let is_entered = self.entered().is_some();
        let around = self.around.as_ref().filter(|_| !is_entered && !self.shared().driver.is_forked())?;
        let around = lock(around);
        let writing = self.shared().cache.inodes.begin_around(self.open.opened().key)?;
        Some((around, writing))
    }
}

impl Around {
    /// For the first handle of a file that is as long when it is opened; `None` if nothing is gained.
    pub(crate) fn of_file(length_bytes: u64) -> Option<Around> {
        let is_small = length_bytes <= AROUND_BYTES_MAX;
        let around = Around { is_small, end_bytes: None, bytes: 0, writes: 0, resident_end_bytes: 0 };
        (length_bytes <= RESIDENT_BYTES_MAX).then_some(around)
    }

    /// Whether a write is the first, or follows the others and makes them not too many.
    fn admits(&self, range: ByteRange) -> bool {
        self.is_small
            && self.follows(range)
            && self.bytes + range.len() <= AROUND_BYTES_MAX
            && self.writes < AROUND_WRITES_MAX
    }

    fn follows(&self, range: ByteRange) -> bool {
        self.end_bytes.is_none_or(|end_bytes| end_bytes == range.start)
    }

    fn note(&mut self, written: ByteRange) {
        self.end_bytes = Some(written.end);
        self.bytes += written.len();
        self.writes += 1;
    }
}

/// 1 MiB: what the cache needs to begin a file is a few percent beside more.
const AROUND_BYTES_MAX: u64 = 1 << 20;

/// A writer of more and smaller pieces gains from the cache, where a write makes no system call.
const AROUND_WRITES_MAX: u32 = 16;

/// A writer of a longer file gains from direct I/O, which takes a third of the kernel's processor time.
const RESIDENT_BYTES_MAX: u64 = 64 << 20;

/// Smaller pieces are written to the cache faster than by system calls.
const RESIDENT_PIECE_BYTES_MIN: u64 = 16 << 10;

/// `cachestat` covers this at once.
const RESIDENT_STEP_BYTES: u64 = 2 << 20;
