//! Memory wait: frames for written pages, or what a writer waits for until there are some.
//!
//! ```text
//!   frames ─► fewer at a time ─► one ─► what has been written leaves ─► a write-back begins ─► wait for the oldest write, load, or holder
//! ```
//!
//! Owns: the order in which a writer looks for memory.
//! Does not own: where frames come from (engine).

use std::io;
use std::sync::Arc;

use headwater_core::readahead::Purpose;
use headwater_core::units::{PAGE_BYTES, PageCount};
use headwater_io::{EventListener, Extents};
use os_display::Quotable;

use crate::base::shared_completion::Notified;
use crate::engine::Shared;
use crate::engine::frames;
use crate::engine::loads::Load;
use crate::inode::Inode;
use crate::inode::page_write::PageWrite;
use crate::write::writeback;

/// What gives memory to somebody who cannot do without.
pub(crate) enum Room {
    /// When this is over, pages can be evicted.
    Load(Arc<Load>),
    /// When this is over, pages are clean.
    Write(Arc<PageWrite>),
    /// When somebody gives up what he holds.
    Freed(EventListener),
    /// Nothing, because what is dirty cannot be written.
    Failing(io::Error),
}

impl Room {
    /// Blocks until it may be worth another try.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn wait(self, shared: &Shared) -> io::Result<()> {
        match self {
            Room::Load(load) => shared.cache.loads.wait(&load),
            Room::Write(write) => shared.cache.writes.wait(&write),
            Room::Freed(listener) => listener.wait(),
            Room::Failing(error) => return Err(error),
        }
        Ok(())
    }

    /// The same for a task.
    pub(crate) async fn ready(self, shared: &Shared) -> io::Result<()> {
        match self {
            Room::Load(load) => shared.cache.loads.ready(&load, &shared.driver).await,
            Room::Write(write) => shared.cache.writes.ready(&write).await,
            Room::Freed(listener) => Notified { listener: Some(listener), driver: &shared.driver }.await,
            Room::Failing(error) => return Err(error),
        }
        Ok(())
    }
}

/// Frames for written pages of a file: for all of them, or the first few. Else what to wait for.
pub(crate) fn frames_for_write(
    shared: &Shared,
    inode: &Inode,
    pages: PageCount,
) -> Result<(Extents, PageCount), Room> {
    let smaller = |pages: u64| (pages > 1).then_some(pages / 2);
    for pages in std::iter::successors(Some(pages.get()), |&pages| smaller(pages)) {
        let pages = PageCount::new(pages);
        if let Some(extents) = frames::for_pages(shared, pages.bytes() as usize, Purpose::Demand) {
            return Ok((extents, pages));
        }
    }
    let freed = shared.arena.freed();
    shared.cache.writes.conclude_arrived();
    if let Some(extents) = frames::for_pages(shared, PAGE_BYTES, Purpose::Demand) {
        return Ok((extents, PageCount::new(1)));
    }
    if shared.cache.writes.oldest().is_none() {
        writeback::begin_any(shared);
    }
    if let Some(write) = shared.cache.writes.oldest() {
        return Err(Room::Write(write));
    }
    if let Some(load) = shared.cache.loads.oldest() {
        return Err(Room::Load(load));
    }
    if let Some(error) = failing_write_back(shared, inode) {
        return Err(Room::Failing(error));
    }
    shared.driver.attend();
    Err(Room::Freed(freed))
}

/// Why dirty pages stay in memory, for a writer of this file: its own failure; else that another file fails, under that file's
/// name.
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
