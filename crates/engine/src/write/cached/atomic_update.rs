//! Atomic update: a word of a cached page, read, changed and written without interference.
//!
//! ```text
//!   modify ─► in place ─┬─ Done, Unchanged
//!                       ├─ pinned ─► copy of the page, changed ─► install      (loan-break)
//!                       └─ pending, absent ─► as for any write of a part of a page ─► again
//! ```
//!
//! Owns: the order of these steps.
//! Does not own: the steps shared with all writes (cached write).
//! Invariants: no other write touches the word between its read and its write: in place, because the page is latched; in a copy,
//! because all writes to a file hold the lock of `dirty`; in a window, because of compare-and-swap.

use crate::write::writeback;
use std::sync::atomic::Ordering;

use headwater_core::units::{PageCount, PageRange};
use headwater_io::Modified;

use super::*;

impl Source {
    /// Calls `change` with the aligned eight bytes at `offset_bytes`, in the processor's byte order, and writes its result back;
    /// `None` leaves them as they are. Of several calls of `change` the last counts, so it should record its argument. Blocks.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before the end of the word; otherwise as for writes.
    pub(crate) fn modify_cached(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        offset_bytes: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<()> {
        let place = Place::Within(offset_bytes);
        let looked = self.revalidate(inode);
        looked.map_err(|error| self.error(Operation::Write, offset_bytes, error))?;
        let mut write = CachedWrite::new(self, inode, Caller::Thread, WORD_BYTES as usize, place);
        loop {
            match write.modify(change)? {
                Step::Over => return Ok(()),
                Step::Again => {}
                Step::Next(next) => write.wait(next)?,
            }
        }
    }
}

/// Progress of an update.
enum Step {
    /// Done, or `change` left the word as it was.
    Over,
    Next(WriteNext),
    Again,
}

impl CachedWrite<'_> {
    /// Tries once.
    fn modify(&mut self, change: &mut dyn FnMut(u64) -> Option<u64>) -> Result<Step> {
        if self.range.end > self.inode.length_bytes() {
            return self.beyond_end().map(Step::Next);
        }
        if let Some(next) = self.limit()? {
            return Ok(Step::Next(next));
        }
        let (page, part) = self.part();
        self.promise(page)?;
        if self.inode.dirty.windows.holds(page) {
            return self.modify_window(change);
        }
        let mut found = Modified::Absent;
        self.commit(self.range, |inode, _| {
            found = inode.pages.modify(page, part.start, change);
            matches!(found, Modified::Done(_)).then_some(WORD_BYTES)
        })?;
        match found {
            Modified::Done(first_use) | Modified::Unchanged(first_use) => {
                self.inode.note_written_ahead(first_use);
                writeback::begin_early(self.source.shared(), self.inode);
                Ok(Step::Over)
            }
            Modified::Pending(load) => {
                let load = self.source.shared().cache.loads.find(load);
                Ok(load.map_or(Step::Again, |load| Step::Next(WriteNext::Wait(MemoryWait::Load(load)))))
            }
            Modified::Pinned => self.modify_copy(page, part, change),
            Modified::Absent if self.base.as_ref().is_some_and(|base| base.page == page) => {
                self.modify_copy(page, part, change)
            }
            Modified::Absent => Ok(self.bring(page)?.map_or(Step::Again, Step::Next)),
        }
    }

    /// Updates a word of a window by compare-and-swap: the program's own threads change it without any lock.
    fn modify_window(&mut self, change: &mut dyn FnMut(u64) -> Option<u64>) -> Result<Step> {
        let (range, mut is_over) = (self.range, false);
        let next = self.commit_to_window(range, |window| {
            let word = window.memory.atomic_u64(window.place(range.start))?;
            is_over = true;
            let mut before = word.load(Ordering::Acquire);
            loop {
                let after = change(before)?;
                match word.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return Some(()),
                    Err(now) => before = now,
                }
            }
        })?;
        Ok(match next {
            _ if is_over => Step::Over,
            None => Step::Again,
            Some(next) => Step::Next(next),
        })
    }

    /// Replaces the page's frame by one with the changed word.
    fn modify_copy(
        &mut self,
        page: PageIndex,
        part: Range<u32>,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Step> {
        let (mut extents, _) = match self.memory(PageCount::new(1)) {
            Ok(found) => found,
            Err(next) => return Ok(Step::Next(next)),
        };
        let base = self.base.take();
        let mut step = Step::Again;
        let pages = PageRange::new(page, page + PageCount::new(1));
        self.commit(self.range, |inode, state| {
            match inode.pages.pin_or_wait(page, part.clone()) {
                Found::Page(pinned) => extents[0].store(0, &pinned),
                Found::Absent => {
                    let base = base.filter(|base| base.is_as_now(inode, state))?;
                    extents[0].store(0, &base.bytes);
                }
                Found::Pending(_) => return None,
            }
            let word = extents[0][part.start as usize..].first_chunk().expect("the word lies in the page");
            let Some(next) = change(u64::from_ne_bytes(*word)) else {
                step = Step::Over;
                return None;
            };
            extents[0].store(part.start as usize, &next.to_ne_bytes());
            let installed = inode.pages.install(pages, std::mem::take(&mut extents));
            if installed < PageCount::new(1) {
                return None;
            }
            step = Step::Over;
            Some(WORD_BYTES)
        })?;
        Ok(step)
    }
}

const WORD_BYTES: u64 = size_of::<u64>() as u64;
