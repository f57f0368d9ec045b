//! Into window: writes to pages that lie in live memory instead of the cache.
//!
//! Owns: the steps of a write into a window.
//! Does not own: windows.

use super::*;
use crate::inode::windows::{Stage, Window};

impl CachedWrite<'_> {
    /// Writes a part of a page that lies in a window, or did just now.
    pub(super) fn write_window(
        &mut self,
        page: PageIndex,
        part: Range<u32>,
        bytes: &[u8],
    ) -> Result<Option<WriteNext>> {
        // Copied before any lock is taken.
        let mut buffer = [0; PAGE_BYTES];
        let buffer = &mut buffer[..part.len()];
        buffer.copy_from_slice(&bytes[self.done..][..part.len()]);
        let written = ByteRange::at(page.start_bytes() + u64::from(part.start), part.len() as u64);
        self.commit_to_window(written, |window| window.memory.write(window.place(written.start), buffer).ok())
    }

    /// As `commit`, for a range inside one window. No page becomes dirty, because the kernel tracks writes to windows; and the
    /// device is always as long as the file.
    pub(super) fn commit_to_window(
        &mut self,
        written: ByteRange,
        change: impl FnOnce(&Window) -> Option<()>,
    ) -> Result<Option<WriteNext>> {
        let (inode, shared) = (self.inode, self.source.shared());
        if written.end > inode.length_bytes() && self.size_lock.is_some() {
            self.leave_gap(written.end)?;
        }
        let mut next = None;
        let is_done = inode.dirty.change(shared.cache.writes.dirty(), |state| {
            let Some(window) = inode.dirty.windows.find(PageIndex::containing(written.start)) else {
                return false;
            };
            let needs_size_lock = written.end > inode.length_bytes() || window.stage() != Stage::Live;
            if needs_size_lock && !self.holds_size_lock() {
                // One that an exit has seized is not taken again.
                next = self.size_lock.is_none().then_some(WriteNext::SizeLock);
                return false;
            }
            let is_done = change(&window).is_some();
            if is_done {
                self.note(state, written);
            }
            is_done
        });
        if is_done {
            self.done += written.len() as usize;
            (self.attempts, self.gap) = (0, None);
        } else if next.is_none() {
            self.after_nothing(written)?;
        }
        Ok(next)
    }
}
