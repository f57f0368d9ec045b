//! Pool: what changes a cache and what divides its memory, as one: pages in blocks of adjacent frames.
//!
//! ```text
//!   allocate ─► frames of the caller ────┬─ begin_load ─► Loading ─► end_load ─┬─ Resident
//!                                         │                                     └─ free again
//!                                         └─ install ─► Dirty
//!   evict ─► frames of the caller ─► free ─► adjacent ones merge into one block
//! ```
//!
//! A cache that reads by one call into one slice needs memory that lies together. What is loaded together is in one
//! block, and is of one age; so the neighbours of a page that makes room leave with it if they can (as Linux reclaimed
//! "lumpily" for its large pages, `mm/vmscan.c` until 3.5), and memory does not fall to single pages.
//!
//! A chunk of which all pages can leave goes out of circulation by `empty_chunk`, `free_left` and `retire`, and its memory may go back to
//! the system; `add_chunk` takes its number again.
//!
//! Invariants: K1 a frame is free in the buddy only while it is Free and no caller has it from `allocate`, `evict` or
//! `invalidate`. K2 the memory of a page that left is not free before [`Pool::free_left`], even if readers had it pinned.
//! Locks: methods need `&mut`: one lock, which is not held across I/O.
//
// Owns: [`Control`] and [`Buddy`], which change together here.
// Does not own: the memory, and the bytes in it.

use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::buddy::{Block, Buddy};
use crate::cache::{Cache, Control, DirtyToo, Evicted, LoadResult, frames_of};
use crate::frame::{CHUNK_FRAMES, Ended, FirstUse, FrameState, Invalidated, LoadId, LoadKind, Usage};
use crate::replacement::Policy;
use crate::table::{NoNode, PageTable};
use crate::units::{FrameId, PageCount, PageIndex, PageRange};

/// The control of a cache, and its frames' memory.
///
/// ```
/// # use headwater_core::cache::Lookup;
/// # use headwater_core::frame::{FirstUse, LoadId};
/// # use headwater_core::{FrameId, PageIndex, PageRange, pool::Pool, replacement::Policy};
/// let (cache, mut pool) = Pool::new(1, Policy::default());
/// let file = pool.control().add_file()?;
/// pool.add_chunk(&cache)?;
///
/// // Four frames that lie together; two pages are read into them, the others are not needed.
/// let frames = pool.allocate(2).expect("a chunk is free");
/// let wanted = PageRange::new(PageIndex::new(10), PageIndex::new(12));
/// let pages = pool.begin_load(&cache, &file, wanted, wanted.end, LoadId::new(0), frames.clone());
/// assert_eq!(pages, wanted);
/// pool.free((frames.start + 2..frames.end).map(FrameId::new));
/// pool.end_load(&cache, frames.start..frames.start + 2, 2);
///
/// // Found and pinned without the pool.
/// let found = cache.find(&file, wanted.start).expect("it is in the table");
/// assert_eq!(cache.pin(&file, wanted.start, found, 0, 4096), Lookup::Pinned(found, FirstUse::No));
/// cache.unpin(found);
///
/// // Both leave together, and once they are free all of the chunk is one block again.
/// let left = pool.evict(&cache, 1);
/// assert_eq!(left.pages.len(), 2);
/// pool.free_left(left);
/// assert_eq!(pool.allocate(9).map(|frames| frames.len()), Some(512));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    control: Control,
    buddy: Buddy,
    /// Frames pinned when their page left, whose listeners are being notified.
    doomed: Vec<(FrameId, Pins)>,
}

/// Whether anybody has a doomed frame pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pins {
    Held,
    Gone,
}

/// Pages that were taken out of use. Their memory is used again once [`Pool::free_left`] has this back.
#[must_use]
#[derive(Default, Debug)]
pub struct Left {
    /// Which.
    pub pages: Vec<Evicted>,
    /// Frames that are free.
    frames: Vec<FrameId>,
    /// Frames that are with the last pin.
    doomed: Vec<FrameId>,
}

impl Pool {
    /// A cache of at most `chunks_max` chunks, none of which is there yet, and its pool.
    pub fn new(chunks_max: u32, policy: Policy) -> (Cache, Self) {
        let (cache, control) = Cache::new(chunks_max, policy);
        (cache, Self { control, buddy: Buddy::new(), doomed: Vec::new() })
    }

    /// Frames for another chunk of memory, all of them free; says which chunk it is: one that was retired, if any is.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn add_chunk(&mut self, cache: &Cache) -> Result<u32, TryReserveError> {
        if let Some(chunk) = self.buddy.first_retired() {
            self.buddy.restore(chunk);
            return Ok(chunk);
        }
        self.control.add_chunk(cache, self.buddy.chunk_count())?;
        Ok(self.buddy.add_chunk())
    }

    /// What changes tables and frames one at a time.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// `2^order` adjacent frames, which are the caller's. `None` if no block that large is free.
    pub fn allocate(&mut self, order: u8) -> Option<Range<u32>> {
        let block = self.buddy.allocate(order)?;
        self.buddy.break_up(block);
        Some(block.frames())
    }

    /// The largest block that is free, of at most `2^order` frames.
    pub fn allocate_at_most(&mut self, order: u8) -> Option<Range<u32>> {
        let largest = self.buddy.largest_free_order()?;
        self.allocate(order.min(largest))
    }

    /// Takes back frames that were the caller's.
    ///
    /// # Panics
    /// If one of them was not.
    pub fn free(&mut self, frames: impl IntoIterator<Item = FrameId>) {
        frames.into_iter().for_each(|frame| self.buddy.free(Block::of_frame(frame)));
    }

    /// Takes back a frame whose last pin was given up.
    pub fn free_unpinned(&mut self, frame: FrameId) {
        match self.doomed.iter_mut().find(|(doomed, _)| *doomed == frame) {
            Some((_, pins)) => *pins = Pins::Gone,
            None => self.free([frame]),
        }
    }

    /// Frees the memory of pages that left; the caller has notified all listeners.
    ///
    /// # Panics
    /// If the frame has not left.
    pub fn free_left(&mut self, left: Left) {
        self.free(left.frames);
        for frame in left.doomed {
            let place = self.doomed.iter().position(|(doomed, _)| *doomed == frame).expect("K2");
            let (_, pins) = self.doomed.swap_remove(place);
            if pins == Pins::Gone {
                self.free([frame]);
            }
        }
    }

    /// The first pages of `wanted` that are missing, as many as follow each other and have a frame, become Loading, in the
    /// first of `frames`. None of them if all are there, or the table has no node. Those before `ahead_from` are demanded.
    pub fn begin_load(
        &mut self,
        cache: &Cache,
        table: &Arc<PageTable>,
        wanted: PageRange,
        ahead_from: PageIndex,
        load: LoadId,
        frames: Range<u32>,
    ) -> PageRange {
        let mut pages = PageRange::new(wanted.end, wanted.end);
        for page in wanted.iter() {
            let is_there = self.control.state(cache, table, page).is_some();
            match (is_there, pages.is_empty()) {
                (true, true) => continue,
                (true, false) => break,
                (false, true) => pages = PageRange::new(page, page),
                (false, false) => {}
            }
            let frame = FrameId::new(frames.start + pages.len().get() as u32);
            let kind = if page < ahead_from { LoadKind::Demand } else { LoadKind::Ahead };
            if !frames.contains(&frame.get())
                || self.control.begin_load(cache, table, page, frame, (load, kind)).is_err()
            {
                break;
            }
            pages.end = page + PageCount::new(1);
        }
        pages
    }

    /// The load of these frames is over: the first `read_pages` have their bytes. The memory of the others, and of those
    /// invalidated meanwhile, is free.
    ///
    /// # Panics
    /// If no load was begun.
    pub fn end_load(&mut self, cache: &Cache, frames: Range<u32>, read_pages: u32) {
        let read_end = frames.start + read_pages;
        for frame in frames {
            let result = if frame < read_end { LoadResult::Read } else { LoadResult::Failed };
            let ended = self.control.end_load(cache, FrameId::new(frame), result);
            if ended == Ended::Stale || result == LoadResult::Failed {
                self.free([FrameId::new(frame)]);
            }
        }
    }

    /// The frame, which was the caller's and holds the page as it was written, takes the place of what the table had,
    /// which is the result.
    ///
    /// # Errors
    /// When the table has no node for it; the frame is the caller's still.
    pub fn install(
        &mut self,
        cache: &Cache,
        table: &PageTable,
        page: PageIndex,
        frame: FrameId,
    ) -> Result<Left, NoNode> {
        // Nobody has seen a page that was on its way.
        let was_there =
            |frame: &FrameId| cache.frame(*frame).is_some_and(|frame| frame.state() != FrameState::Loading);
        let before = cache.find(table, page).filter(was_there);
        let installed = self.control.install(cache, table, page, frame)?;
        let mut left = Left::default();
        if let Some(frame) = before {
            left.pages.push(Evicted { frame, file: table.file(), page, usage: Usage::Used });
            match installed.freed {
                Some(freed) => left.frames.push(freed),
                None => {
                    self.doomed.push((frame, Pins::Held));
                    left.doomed.push(frame);
                }
            }
        }
        Ok(left)
    }

    /// Takes pages of a file out of use.
    pub fn invalidate(
        &mut self,
        cache: &Cache,
        table: &PageTable,
        pages: PageRange,
        dirty_too: DirtyToo,
    ) -> Left {
        let (mut left, doomed) = (Left::default(), &mut self.doomed);
        self.control.invalidate(cache, table, pages, dirty_too, |frame, page, became, usage| {
            match became {
                // Nobody has seen it.
                Invalidated::Stale => return,
                Invalidated::Freed => left.frames.push(frame),
                Invalidated::Doomed => {
                    doomed.push((frame, Pins::Held));
                    left.doomed.push(frame);
                }
            }
            left.pages.push(Evicted { frame, file: table.file(), page, usage });
        });
        left
    }

    /// Evicts pages until `2^order` adjacent frames may be free once these are, or as many pages have left; fewer if there
    /// are no more that can.
    pub fn evict(&mut self, cache: &Cache, order: u8) -> Left {
        let (mut pages, mut looked_at) = (Vec::new(), 0..0);
        let mut looks = if order > 0 { LOOKS_MAX } else { 0 };
        while pages.len() < 1 << order {
            let Some(victim) = self.control.evict(cache) else { break };
            pages.push(victim);
            let block = block_around(victim.frame, order);
            // Victims follow each other in one block.
            if looks == 0 || block == looked_at {
                continue;
            }
            if self.evict_block(cache, block.clone(), &mut pages) {
                break;
            }
            (looked_at, looks) = (block, looks - 1);
        }
        let frames = pages.iter().map(|page| page.frame).collect();
        Left { pages, frames, doomed: Vec::new() }
    }

    /// Evicts what is left of a block, if all of it can be, and none of it is much used. Says whether.
    fn evict_block(&mut self, cache: &Cache, block: Range<u32>, evicted: &mut Vec<Evicted>) -> bool {
        let frames = || block.clone().map(FrameId::new);
        let may_leave = |id| {
            cache.frame(id).is_some_and(|frame| match frame.state() {
                FrameState::Free => true,
                _ => frame.references() <= REFERENCES_MAX && self.control.is_evictable(cache, id),
            })
        };
        if !frames().all(may_leave) {
            return false;
        }
        evicted.extend(frames().filter_map(|frame| self.control.evict_frame(cache, frame)));
        true
    }

    /// Evicts all pages of a chunk, if all of them can be, and gives none of its frames out from now on: to be followed by
    /// [`Pool::free_left`] and [`Pool::retire`]. `None`, and nothing has changed, if a page of it is pinned, dirty or on its way, if the
    /// caller has a frame of it, or if it is emptied already.
    ///
    /// Panics if there is no such chunk.
    pub fn empty_chunk(&mut self, cache: &Cache, chunk: u32) -> Option<Left> {
        let evictable = frames_of(chunk).filter(|frame| self.control.is_evictable(cache, *frame)).count();
        if evictable + (self.buddy.free_pages_in(chunk) as usize) < CHUNK_FRAMES {
            return None;
        }
        self.buddy.withhold(chunk)?;
        // A reader may have pinned one meanwhile, without the lock: it stays, and `retire` says so.
        let pages: Vec<Evicted> =
            frames_of(chunk).filter_map(|frame| self.control.evict_frame(cache, frame)).collect();
        let frames = pages.iter().map(|page| page.frame).collect();
        Some(Left { pages, frames, doomed: Vec::new() })
    }

    /// Takes a chunk that was emptied out of circulation: nothing has a frame of it until [`Pool::add_chunk`] names it again. If a page
    /// of it stayed, it goes on as before, and this says `false`.
    ///
    /// Panics unless it was emptied.
    pub fn retire(&mut self, chunk: u32) -> bool {
        let is_retired = self.buddy.retire_withheld(chunk);
        if !is_retired {
            self.buddy.reinstate(chunk);
        }
        is_retired
    }

    /// A reader waits for a page that is loading. `None` if it is not loading.
    pub fn demand(&mut self, cache: &Cache, table: &PageTable, page: PageIndex) -> Option<FirstUse> {
        self.control.demand(cache, table, page)
    }

    /// Free frames: they hold no page and no caller has them.
    pub fn free_pages(&self) -> u64 {
        self.buddy.free_pages()
    }

    /// Asserts what its parts assert of themselves, and K1.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self, cache: &Cache) {
        self.control.check(cache);
        self.buddy.check();
        for chunk in 0..self.buddy.chunk_count() {
            let frames = Block { chunk, page: 0, order: crate::buddy::ORDER_MAX }.frames();
            let is_free = |frame| cache.frame(FrameId::new(frame)).map(crate::frame::Frame::state);
            let free = frames.filter(|frame| is_free(*frame) == Some(FrameState::Free)).count();
            assert!(self.buddy.free_pages_in(chunk) as usize <= free, "K1: memory of a page in use is free");
        }
    }
}

/// The block of `2^order` frames that a frame lies in.
fn block_around(frame: FrameId, order: u8) -> Range<u32> {
    let first = frame.get() & !((1 << order) - 1);
    first..first + (1 << order)
}

/// How many blocks of victims are looked at: a look is at up to 512 frames, under a lock.
const LOOKS_MAX: u32 = 4;

/// Neighbours with more references than this stay: one is the first use of a page that was read ahead.
const REFERENCES_MAX: u8 = 1;
