//! Window create: live windows, contiguous in memory, made and filled.
//!
//! ```text
//!   supported? ─► a share of the budget ─► live memory ─► size lock ─► Making: writes to these pages wait
//!        ─► their dirty pages written back ─► filled from the device ─► tracked ─► Live ─► pages leave the cache
//! ```
//!
//! Owns: the steps from a range to a window, and the end of its use.
//! Does not own: the memory (live memory), the list of windows, writeback.
//! Invariants: I6 memory of windows is part of the arena's budget; I8 between the last write of a page through the cache and the
//! first through the window the page is on the device; W2, W3.

use std::fmt;
use std::io;
use std::sync::Arc;

use headwater_core::cache::DirtyToo;
use headwater_core::units::{ByteRange, PageRange};
use headwater_io::LiveMemory;

use crate::base::error::{Operation, Result};
use crate::engine::handle::Source;
use crate::inode::Inode;
use crate::inode::windows::{Stage, Window};
use crate::write::window_flush;
use crate::write::writeback;

/// The right to use a window. When dropped, the window is written back and its pages belong to the cache again.
pub(crate) struct WindowUse {
    source: Arc<Source>,
    inode: Arc<Inode>,
    pub(crate) window: Arc<Window>,
}

impl Source {
    /// Makes a window of the pages that a range touches. Blocks.
    pub(crate) fn make_window(self: &Arc<Self>, range: ByteRange) -> Result<WindowUse> {
        let refused = |error| self.error(Operation::View, range.start, error);
        let Some(inode) = self.known() else {
            let error = io::Error::new(io::ErrorKind::Unsupported, "a file without pages has no windows");
            return Err(refused(error));
        };
        inode.dirty.windows.check(PageRange::covering(range)).map_err(|other| refused(overlap(other)))?;
        let window = Arc::new(self.empty_window(range).map_err(refused)?);
        let size_lock = inode.dirty.size_lock.lock();
        let length_bytes = self.length_bytes()?;
        self.announce(inode, &window).map_err(refused)?;
        let made = WindowUse { source: self.clone(), inode: inode.clone(), window };
        // If an error drops it, the window is still Making, and is only taken from the list.
        self.reach_to(inode, length_bytes).map_err(refused)?;
        self.write_back_below(inode, made.window.pages).map_err(refused)?;
        self.fill(&made.window, length_bytes)?;
        made.window.memory.track().map_err(refused)?;
        let mut dropped = Vec::new();
        inode.dirty.change(self.shared().cache.writes.dirty(), |_| {
            // A lookup that misses in the cache finds the window. Under the lock: what is written to the window from now on is in no page.
            made.window.set_stage(Stage::Live);
            inode.pages.invalidate(made.window.pages, DirtyToo::No, |page| dropped.push(page));
        });
        drop(size_lock);
        inode.on_dropped(&dropped);
        Ok(made)
    }

    /// Memory for a window, charged to the budget.
    fn empty_window(&self, range: ByteRange) -> io::Result<Window> {
        let pages = PageRange::covering(range);
        let bytes = pages.bytes().len();
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        if range.is_empty() {
            return Err(invalid("a window has one byte at the least".to_owned()));
        }
        let stats = self.shared().arena.stats();
        let bytes_max = ((stats.budget_bytes + stats.lent_out_bytes) / 2) as u64;
        if bytes > bytes_max {
            let text =
                format!("a window of {bytes} bytes takes more than half of the engine's memory, {bytes_max}");
            return Err(invalid(text));
        }
        let charge = self.shared().arena.lend_out(bytes as usize).map_err(|left_bytes| {
            let text = format!(
                "a window of {bytes} bytes needs memory that the engine does not use yet, of which {left_bytes} bytes are left"
            );
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        })?;
        Ok(Window::new(LiveMemory::new(bytes as usize)?, pages, self.open.clone(), charge))
    }

    /// From here on writes to the pages wait for the size lock, and the pages are not loaded.
    fn announce(&self, inode: &Arc<Inode>, window: &Arc<Window>) -> io::Result<()> {
        let added =
            inode.dirty.change(self.shared().cache.writes.dirty(), |_| inode.dirty.windows.add(window));
        added.map_err(overlap)?;
        // The background thread visits the file as long as it has windows.
        self.shared().cache.writes.note_dirty(inode);
        self.shared().background.wake();
        Ok(())
    }

    /// Extends the file on the device to its length in memory.
    fn reach_to(&self, inode: &Inode, length_bytes: u64) -> io::Result<()> {
        if length_bytes <= *inode.dirty.device_length() {
            return Ok(());
        }
        inode.change_length(&self.open, |device_length| {
            self.shared().driver.extend_blocking(&self.open, length_bytes)?;
            *device_length = length_bytes.max(*device_length);
            Ok(())
        })
    }

    /// Writes the dirty pages of a range back and waits. No write adds to them meanwhile.
    fn write_back_below(&self, inode: &Arc<Inode>, pages: PageRange) -> io::Result<()> {
        let shared = self.shared();
        loop {
            let failures = inode.dirty.errseq.count();
            writeback::begin_all(shared, inode, pages);
            let state = inode.dirty.lock();
            let write = state.in_flight.values().find(|write| write.pages().meets(pages)).cloned();
            let is_done = state.dirty.first_dirty(pages).is_none();
            drop(state);
            match write {
                Some(write) => shared.cache.writes.wait(&write),
                None if is_done => return Ok(()),
                None => {}
            }
            if inode.dirty.errseq.count() != failures {
                let error = inode.dirty.failing();
                return Err(error.unwrap_or_else(|| io::Error::other("pages could not be written back")));
            }
        }
    }

    /// Copies the bytes from the device.
    fn fill(self: &Arc<Self>, window: &Window, length_bytes: u64) -> Result<()> {
        let bytes = window.pages.bytes().clip(length_bytes);
        let mut buffer = vec![0; (bytes.len() as usize).min(FILL_BYTES)];
        let mut at_bytes = bytes.start;
        while at_bytes < bytes.end {
            let part = ByteRange::new(at_bytes, bytes.end.min(at_bytes + FILL_BYTES as u64));
            let read_bytes = self.read_device(&mut buffer[..part.len() as usize], part)?;
            if read_bytes == 0 {
                // Others have truncated the file; the rest reads as zeros.
                break;
            }
            let filled = window.memory.fill_copied(window.place(at_bytes), &buffer[..read_bytes]);
            filled.map_err(|error| self.error(Operation::View, at_bytes, error))?;
            at_bytes += read_bytes as u64;
        }
        Ok(())
    }
}

impl WindowUse {
    /// The length of the file.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.inode.length_bytes()
    }

    /// Fails if a range reaches beyond the end, or in a forked child, which has no window.
    pub(crate) fn check(&self, range: ByteRange) -> Result<()> {
        self.source.check_read(range.start)?;
        if range.end <= self.length_bytes() {
            return Ok(());
        }
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends here");
        Err(self.source.error(Operation::Read, range.start.max(self.length_bytes()), error))
    }
}

impl Drop for WindowUse {
    fn drop(&mut self) {
        let shared = self.source.shared();
        if shared.driver.is_forked() {
            return;
        }
        if self.window.stage() != Stage::Making {
            return window_flush::close(shared, &self.inode, &self.window);
        }
        self.inode.dirty.change(shared.cache.writes.dirty(), |state| {
            self.inode.dirty.windows.remove(&self.window);
            if state.dirty.is_empty() {
                shared.cache.writes.forget(&self.inode);
            }
        });
    }
}

impl fmt::Debug for WindowUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.window.fmt(f)
    }
}

fn overlap(other: PageRange) -> io::Error {
    let (start, end) = (other.bytes().start, other.bytes().end);
    let text = format!("it would overlap the window {start}..{end} of the same file");
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Read at once to fill a window; larger requests do not make devices faster.
const FILL_BYTES: usize = 1 << 20;
