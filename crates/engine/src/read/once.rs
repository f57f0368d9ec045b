//! Once: the first read of a small file, if it asks for all of it.
//!
//! ```text
//!   not entered, not read before? ─► the kernel's page cache has all ─► copied
//!                                 └► one direct read into a frame ─► copied; lent to a task       changed meanwhile, an error ─► the cache
//! ```
//!
//! Many files are opened, read once and closed. Such a read leaves nothing behind: no inode, no page. From the second read on, the
//! file is cached. `Engine::read` does the same with one descriptor.
//!
//! Owns: this read.
//! Does not own: when a file is entered (`handle`), which files were read before (`inode::table`).
//! Hot path: one system call where the page cache has the file and those before it; no allocation in a thread.

use bytes::Bytes;
use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES};
use headwater_io::{Access, Finished, Urgency};

use crate::engine::frames;
use crate::engine::handle::Source;
use crate::read::cached::let_others_run;

impl Source {
    /// Reads the file into `buffer`, from its beginning. `None` if the cache has to; errors are left to that read.
    pub(crate) fn read_once(&self, buffer: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let length = self.length_at_first_read(offset_bytes, buffer.len())?;
        self.copy_whole(buffer, length).or_else(|| self.read_whole(buffer, length))
    }

    /// The same for a task.
    pub(crate) async fn read_once_async(&self, range: ByteRange) -> Option<Bytes> {
        let length =
            self.length_at_first_read(range.start, range.len() as usize).filter(|&length| length > 0)?;
        // No byte more, that would show the end: a frame that the file fills would be twice as long.
        let read = ByteRange::new(0, length.next_multiple_of(self.unit_bytes()) as u64);
        // Larger frames than a page only where they are plentiful: a task that is not polled keeps its own.
        let urgency = if read.len() > PAGE_SIZE_BYTES { Urgency::Readahead } else { Urgency::Demand };
        let mut frame = frames::allocate(self.shared(), read.len() as usize, urgency)?;
        let files = &self.shared().cache.warm_files;
        let copied = self.open.copy_first_at_once(&mut frame, length, files);
        let frame = if copied == Some(length) {
            let_others_run(length).await;
            frame
        } else {
            let Finished { mut extents, result, stopped_by, .. } = self.transfer(read, frame).await.ok()?;
            (result.ok()? == length && stopped_by.is_none()).then(|| extents.pop())??
        };
        self.ends_behind(length, range.len() as usize).then(|| self.lend(frame, 0..length))
    }

    /// The length of the file, if a read of `wanted_bytes` is the first one, and takes all of it.
    fn length_at_first_read(&self, offset_bytes: u64, wanted_bytes: usize) -> Option<usize> {
        if self.entered().is_some() || self.access != Access::Read {
            return None;
        }
        let opened = self.open.opened();
        let length = usize::try_from(opened.stamp.length_bytes).ok()?;
        let inodes = &self.shared().cache.inodes;
        let is_whole = offset_bytes == 0 && wanted_bytes >= length;
        (is_whole && inodes.find(opened.key).is_none() && !inodes.was_read(opened.key)).then_some(length)
    }

    /// All of the file from the kernel's page cache.
    fn copy_whole(&self, buffer: &mut [u8], length: usize) -> Option<usize> {
        let room_bytes = buffer.len();
        let read_bytes = self.open.copy_first(buffer, length, &self.shared().cache.warm_files)?;
        self.ends_behind(read_bytes, room_bytes).then_some(read_bytes)
    }

    /// Whether a read that had room for more ended where the file does now. Within a page it did: at the end of one, the next may be
    /// absent from the kernel's page cache, or was not asked for.
    fn ends_behind(&self, read_bytes: usize, room_bytes: usize) -> bool {
        let may_go_on = read_bytes < room_bytes && read_bytes.is_multiple_of(PAGE_BYTES);
        !may_go_on || self.open.length_bytes().is_ok_and(|length_bytes| length_bytes <= read_bytes as u64)
    }

    /// All of the file from its device, if it is as long as it was.
    fn read_whole(&self, buffer: &mut [u8], length: usize) -> Option<usize> {
        // A byte more, so that the end shows.
        let wanted_bytes = (length + 1).next_multiple_of(self.unit_bytes());
        let mut frame = frames::allocate(self.shared(), wanted_bytes, Urgency::Demand)?;
        let read = self.shared().driver.read_direct_first(&self.open, &mut frame[..wanted_bytes]);
        // A read that stops within a page met the end of the file, or an error. The length tells which.
        if read.ok()? != length {
            return None;
        }
        buffer[..length].copy_from_slice(&frame[..length]);
        Some(length)
    }

    /// What is read at a time at the least.
    fn unit_bytes(&self) -> usize {
        (self.offset_alignment().get() as usize).max(PAGE_BYTES)
    }
}
