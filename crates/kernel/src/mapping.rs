//! Mapping: pages for a kernel's fault handler, and what it asks of pages that it has mapped.
//!
//! ```text
//!   fault ─► get_pages ─┬─ a store? ─► mark_dirty ───────────────┐
//!                       ├─ the page: found, or read ─► pinned ───┴─► map: the kernel's lock ─► Page::access ─► its tables
//!                       └─ neighbours that are there ─► pinned ────► the same
//!   a page leaves, or is written back ─► listeners: the kernel's lock ─► unmap, or protect ─► flush
//!   msync, madvise, a hole ─► put_pages ─► written, out of use, or dropped
//! ```
//!
//! A mapped page is not pinned: it may be evicted like any other, once the listeners have unmapped it. So memory that is mapped
//! costs the cache nothing, and there is nothing to give back when a mapping ends.
//!
//! Owns: the order of these steps, how a page may be mapped at a moment.
//! Does not own: page tables and their lock, which are the kernel's; dirty pages (write); the list of listeners (file).
//! Invariants: V1 a page is mapped only while it is the file's. V2 a page that can be stored to is dirty, and not being written.
//! Both hold because the state that [`Page::access`] reads changes before the listeners are called: under the lock that these
//! take, either the change is seen, or the listener finds what was mapped.
//! Locks: those of `mark_dirty`, before the page is pinned; `dirty` in `Page::access`, inside the kernel's lock.

use core::sync::atomic::Ordering;

use headwater_core::backing::Form;
use headwater_core::cache::DirtyToo;
use headwater_core::units::{PageCount, PageIndex, PageRange};

use crate::file::{CachedFile, Page};
use crate::kernel::{Error, Kernel};

/// What a fault wants of a page, and how a page may be mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PageAccess {
    /// To load from it, or execute it.
    Read,
    /// To store to it as well.
    Write,
}

/// What [`CachedFile::put_pages`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutPages {
    /// What is dirty is written to the node: for `msync` with `MS_ASYNC` and `sync_file_range`. Durable after a
    /// [`CachedFile::sync`].
    WriteBack,
    /// The same, and the pages leave, out of mappings too: for `posix_fadvise` with `POSIX_FADV_DONTNEED`. The next access reads them
    /// again. Pages that were stored to meanwhile stay, and those of files in memory.
    Free,
    /// The pages leave, written or not: for a hole that the file system is about to punch. A file in memory has zeros there from then on.
    /// The file system must keep reads and writes of the range away until it has punched: what is read, or written in part, between the
    /// two brings the old bytes back.
    Discard,
}

impl<K: Kernel> CachedFile<K> {
    /// Serves a fault of a mapping at `page`: has `map` called with the page, which is read first if it is not there, and then with each
    /// page of `around` that is there already. Nothing is read for `around`; sixteen pages, aligned, within the mapping are what Linux
    /// takes. A page of it at which more is to be read ahead is left out, so that its own fault reads on. Blocks.
    ///
    /// Each page is pinned while `map` has it. `map` takes the lock that the kernel's listeners take, asks [`Page::access`], maps
    /// [`Page::address`] with no more than that, and releases the lock. If it finds that the page may not be mapped, or not as the fault
    /// wants it, a truncate or a write-back was quicker: the fault returns nevertheless, and the instruction faults again.
    ///
    /// With [`PageAccess::Write`] the page is dirty first, as after [`CachedFile::mark_dirty`], and [`Page::access`] allows stores until
    /// the page is written back. For a private mapping, which copies the page, it is [`PageAccess::Read`].
    ///
    /// Listeners are added before, and the lock that they take is not held by the caller.
    ///
    /// # Errors
    /// [`Failure::InvalidInput`](crate::Failure::InvalidInput) beyond the end and for files that are not cached,
    /// [`Failure::NoMemory`](crate::Failure::NoMemory), and the node's own. The program gets a `SIGBUS`. `map` was not called then.
    pub fn get_pages(
        &self,
        page: PageIndex,
        access: PageAccess,
        around: PageRange,
        mut map: impl FnMut(&Page<'_, K>),
    ) -> Result<(), Error<K>> {
        if access == PageAccess::Write {
            // Without memory for it the fault comes again.
            self.try_mark_dirty(page)?;
            if self.file.dirty.lock().first_rewritten(only(page)).is_some() {
                // Its write is about to begin, and will clean it: it can be stored to after that.
                drop(self.file.flushing.lock());
                self.try_mark_dirty(page)?;
            }
        }
        self.with_page_or_insert(page, &mut map)?;
        for neighbour in around.iter().filter(|neighbour| *neighbour != page) {
            if let Some(found) =
                self.resident(neighbour).filter(|found| !found.pinned().first_use().is_marked())
            {
                map(&found);
            }
        }
        Ok(())
    }

    /// Gives pages of a range back, mapped or not: writes them, has them leave, or both. Blocks.
    ///
    /// # Errors
    /// The first of the node's: what could not be written stays dirty, and no page has left.
    pub fn put_pages(&self, pages: PageRange, put: PutPages) -> Result<(), Error<K>> {
        match put {
            PutPages::WriteBack => self.file.write_back_pages(pages),
            PutPages::Free => {
                self.file.write_back_pages(pages)?;
                self.file.drop_pages(pages, DirtyToo::No);
                Ok(())
            }
            PutPages::Discard => {
                let _turn = self.file.writers.lock();
                let _pause = self.file.flushing.lock();
                self.file.forget(pages);
                self.file.await_unmapped();
                Ok(())
            }
        }
    }
}

impl<K: Kernel> Page<'_, K> {
    /// How the page may be mapped at this moment: `None` if it has been cut off, replaced or dropped since it was found. It holds as long as
    /// the caller has the lock that the file's listeners take. Takes a spin lock, and does not block.
    pub fn access(&self) -> Option<PageAccess> {
        let (file, page) = (self.file(), self.index());
        let is_there = page.start_bytes() < file.len() && self.pinned().is_current(&file.table, page);
        let may_store = || {
            // Of a file in memory no page is ever written back. Of others both are needed: a page that was marked while its write was
            // about to begin is noted as dirty after it, though the write has cleaned it. The state of the page last: a write cleans it
            // before it is noted as over.
            file.form == Form::InMemory || file.dirty.lock().is_whole(only(page)) && self.pinned().is_dirty()
        };
        if is_there && may_store() {
            file.is_stored_to.store(true, Ordering::Release);
            return Some(PageAccess::Write);
        }
        is_there.then_some(PageAccess::Read)
    }
}

pub(crate) fn only(page: PageIndex) -> PageRange {
    PageRange::new(page, page + PageCount::new(1))
}
