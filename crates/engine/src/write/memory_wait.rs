//! Memory wait: frames for written pages, or what a writer waits for until there are some.
//!
//! ```text
//!   frames ─► fewer at a time ─► one ─► complete writes, evict clean pages ─► begin writeback ─► wait for memory
//! ```
//!
//! Owns: the order in which a writer looks for memory.
//! Does not own: where frames come from (engine).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::readahead::Purpose;
use headwater_core::units::{PAGE_BYTES, PageCount};
use headwater_io::{Extents, Urgency};
use os_display::Quotable;

use crate::engine::Shared;
use crate::engine::frames;
use crate::engine::loads::Load;
use crate::engine::shortage::Shortage;
use crate::inode::Inode;
use crate::inode::page_write::PageWrite;
use crate::write::writeback;

/// What a writer waits for when no frame can be had.
pub(crate) enum MemoryWait {
    /// The load that brings the page.
    Load(Arc<Load>),
    /// The write that is in the way.
    Write(Arc<PageWrite>),
    /// Any memory.
    Memory(Shortage),
    /// Nothing: the dirty pages cannot be written.
    Failing(io::Error),
}

impl MemoryWait {
    /// Blocks until another attempt may succeed.
    ///
    /// # Errors
    /// Why no further attempt can succeed.
    pub(crate) fn wait(self, shared: &Shared) -> io::Result<()> {
        match self {
            MemoryWait::Load(load) => shared.cache.loads.wait(&load),
            MemoryWait::Write(write) => shared.cache.writes.wait(&write),
            MemoryWait::Memory(shortage) => shortage.wait(shared),
            MemoryWait::Failing(error) => return Err(error),
        }
        Ok(())
    }

    /// As [`MemoryWait::wait`], for `limit` at most, or as long as a [`Shortage`] waits.
    ///
    /// # Errors
    /// As for [`MemoryWait::wait`].
    pub(crate) fn wait_at_most(self, shared: &Shared, limit: Duration) -> io::Result<()> {
        match self {
            MemoryWait::Load(load) => shared.cache.loads.wait_at_most(&load, limit),
            MemoryWait::Write(write) => shared.cache.writes.wait_at_most(&write, limit),
            other => return other.wait(shared),
        }
        Ok(())
    }

    /// As [`MemoryWait::wait`], for a task.
    pub(crate) async fn ready(self, shared: &Shared) -> io::Result<()> {
        match self {
            MemoryWait::Load(load) => shared.cache.loads.ready(&load, &shared.driver).await,
            MemoryWait::Write(write) => shared.cache.writes.ready(&write).await,
            MemoryWait::Memory(shortage) => shortage.begin(shared).await,
            MemoryWait::Failing(error) => return Err(error),
        }
        Ok(())
    }
}

/// Frames for all of the written pages, or the first few; else what to wait for.
pub(crate) fn frames_for_write(
    shared: &Shared,
    inode: &Inode,
    pages: PageCount,
) -> Result<(Extents, PageCount), MemoryWait> {
    let smaller = |pages: u64| (pages > 1).then_some(pages / 2);
    for pages in std::iter::successors(Some(pages.get()), |&pages| smaller(pages)) {
        let pages = PageCount::new(pages);
        if let Some(extents) = frames::for_pages(shared, pages.bytes() as usize, Purpose::Demand) {
            return Ok((extents, pages));
        }
    }
    let shortage = Shortage::listen(shared);
    let (loads, writes) = (&shared.cache.loads, &shared.cache.writes);
    writes.complete_arrived();
    if let Some(extents) = frames::for_pages(shared, PAGE_BYTES, Purpose::Demand) {
        return Ok((extents, PageCount::new(1)));
    }
    if writes.oldest_moving().is_none() {
        writeback::begin_any(shared);
    }
    if writes.oldest_moving().is_none() && loads.oldest_moving().is_none() {
        if let Some(error) = failing_write_back(shared, inode) {
            return Err(MemoryWait::Failing(error));
        }
        // All that the cache may have is pinned, perhaps by views of this thread, or of requests that are held up.
        if let Some(extents) = frames::allocate_run(shared, PAGE_BYTES, Urgency::Demand) {
            return Ok((extents, PageCount::new(1)));
        }
    }
    Err(MemoryWait::Memory(shortage))
}

/// Why dirty pages stay in memory, for a writer of this file: its own failure; else that of another file, naming that file.
fn failing_write_back(shared: &Shared, inode: &Inode) -> Option<io::Error> {
    inode.dirty.failing().or_else(|| {
        shared.cache.writes.dirty_files().iter().find_map(|other| {
            let error = other.dirty.failing()?;
            let path = other.dirty.path().unwrap_or_default();
            let text = format!(
                "the memory is lent, or holds bytes that cannot be written to {}: {error}",
                path.maybe_quote()
            );
            Some(io::Error::new(io::ErrorKind::OutOfMemory, text))
        })
    })
}
