//! Resident: the bytes of a stream that are in memory already, in a dirty page or in the kernel's page cache.
//!
//! Owns: how they are copied, and what a stream gives up to get a frame for the copy.
//! Does not own: whether an extent is resident (stream), what the page cache holds (handle).
//! Invariants: I6 a stream without a frame gives up its readahead before it waits, and plans none before it has gone on.

use headwater_core::units::{ByteRange, PAGE_BYTES, PageRange};
use headwater_io::{Extents, Urgency};

use super::extents::Ahead;
use super::overtaken::Fill;
use super::{Current, ReadStream, for_memory};
use crate::base::error::Result;
use crate::engine::frames;
use crate::engine::shortage::Shortage;

impl ReadStream {
    /// Fills `buffer` straight from the kernel's page cache when the next extent is resident: one copy instead of two. `None`
    /// when it is not, or when the stream already has bytes at the position.
    pub(crate) fn read_resident_into(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        if self.current.is_some() || self.position_bytes >= self.bound_bytes {
            return Ok(None);
        }
        self.begin_fill(Fill::First)?;
        if self.ahead.is_empty() && (self.is_at_end()? || self.start_demand()?.is_some()) {
            return Ok(None);
        }
        let Some(&Ahead::Resident(range)) = self.ahead.front() else { return Ok(None) };
        let left_bytes = range.end.min(self.bound_bytes) - self.position_bytes;
        let length = buffer.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
        let read = self.source.read_resident(&mut buffer[..length], self.position_bytes);
        let Some(read_bytes) = read else { return Ok(None) };
        self.position_bytes += read_bytes as u64;
        if self.position_bytes >= range.end {
            self.ahead.pop_front();
            self.catch_up();
            self.top_up();
        }
        Ok(Some(read_bytes))
    }

    /// Makes a part of a resident extent current. Where the page cache no longer holds it, falls back to the device. Returns what
    /// to wait for when there is no frame.
    pub(super) fn copy_resident(&mut self, mut range: ByteRange) -> Option<Shortage> {
        let source = self.source.clone();
        let shortage = Shortage::listen(source.shared());
        let page = || frames::allocate(source.shared(), PAGE_BYTES, Urgency::Demand);
        let wanted_bytes = (range.end - self.position_bytes).min(self.copy_bytes) as usize;
        let urgency = for_memory(wanted_bytes, Urgency::Demand);
        let mut extent = frames::allocate(source.shared(), wanted_bytes, urgency).or_else(page);
        if extent.is_none() {
            range = self.give_up_ahead(range);
            extent = page();
        }
        let Some(mut extent) = extent else {
            self.ahead.push_front(Ahead::Resident(range));
            return Some(shortage);
        };
        let length = extent.len().min(wanted_bytes).min((range.end - self.position_bytes) as usize);
        let version = self.source.known().map(|inode| inode.dirty.version());
        match self.source.read_resident(&mut extent[..length], self.position_bytes) {
            None => {
                self.distrust_end_bytes = range.end;
                self.resident_extents = 0;
                self.forget_ahead();
            }
            Some(read_bytes) => {
                let valid = ByteRange::at(self.position_bytes, read_bytes as u64);
                if valid.end < range.end {
                    self.ahead.push_front(Ahead::Resident(ByteRange::new(valid.end, range.end)));
                }
                let extents = Extents::from_iter([extent]);
                self.current = Some(Current { extents, start_bytes: valid.start, range: valid, version });
            }
        }
        None
    }

    /// Frees the readahead, so that readers do not wait for each other's unused memory, and leaves of a resident extent a page.
    /// Readahead begins anew behind that page: before it, it would take the memory again.
    fn give_up_ahead(&mut self, range: ByteRange) -> ByteRange {
        let page = PageRange::covering(ByteRange::at(self.position_bytes, 1));
        let left = range.intersect(page.bytes());
        self.ahead.clear();
        self.policy.on_failed(left.end);
        left
    }
}
