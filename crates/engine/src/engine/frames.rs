//! Memory: frames for whoever needs them, from the arena or from what the cache gives up.
//!
//! ```text
//!   frames ─► arena, one piece ─► evict, one piece ─► arena, in pieces ─► what has arrived unasked ─► none
//! ```
//!
//! The cache fills what nobody else uses, up to seven eighths of the budget: the last eighth is for those who read
//! without it. Whoever finds the arena empty has pages evicted; where it is the system that has no more to give, some of
//! its memory goes back besides (elastic).
//!
//! Owns: the parts of the cache, and the order in which memory is looked for.
//! Does not own: the memory.
//! Invariants: I6 the arena's budget is that of all; readahead gives up where a demand goes on.

use std::io;
use std::sync::Arc;

use headwater_core::readahead::Purpose;
use headwater_core::replacement::Policy;
use headwater_core::units::{PAGE_SIZE_BYTES, PageCount};
use headwater_io::{Arena, Driver, EventListener, Extent, Extents, PageCache, Urgency};
use os_display::Quotable;

use crate::base::events;
use crate::base::shared_completion::Told;
use crate::engine::Shared;
use crate::engine::loads::{Load, Loads};
use crate::engine::writes::Writes;
use crate::inode::page_write::PageWrite;
use crate::inode::{Inode, Inodes};

/// The cache of an engine.
#[derive(Debug)]
pub(crate) struct CacheParts {
    pub(crate) pages: PageCache,
    pub(crate) loads: Loads,
    pub(crate) writes: Writes,
    pub(crate) inodes: Inodes,
}

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
            Room::Freed(listener) => Told { listener: Some(listener), driver: &shared.driver }.await,
            Room::Failing(error) => return Err(error),
        }
        Ok(())
    }
}

impl CacheParts {
    pub(crate) fn new(arena: &Arena, driver: &Driver, policy: Policy) -> CacheParts {
        CacheParts {
            pages: PageCache::new(arena, policy),
            loads: Loads::default(),
            writes: Writes::new(driver),
            inodes: Inodes::default(),
        }
    }
}

impl Shared {
    /// Frames for pages of the cache. `None` when there are none to be had without waiting, or for readahead only in small
    /// pieces.
    pub(crate) fn frames(&self, bytes: usize, purpose: Purpose) -> Option<Extents> {
        let urgency = match purpose {
            Purpose::Demand if bytes <= PAGE_BYTES => Urgency::Demand,
            Purpose::Demand | Purpose::Ahead => Urgency::Readahead,
        };
        let one_piece = || Some(Extents::from_iter([self.arena.allocate(bytes, urgency)?]));
        if self.leaves_share(bytes)
            && let Some(extents) = one_piece()
        {
            return Some(extents);
        }
        let evicted_pages = self.make_room(bytes);
        if !self.leaves_share(bytes) {
            return None;
        }
        if evicted_pages > 0
            && let Some(extents) = one_piece()
        {
            return Some(extents);
        }
        self.arena.allocate_run(bytes, urgency)
    }

    /// Frames for written pages of a file: for all of them, or the first few. Else what to wait for.
    pub(crate) fn frames_for_write(
        &self,
        inode: &Inode,
        pages: PageCount,
    ) -> Result<(Extents, PageCount), Room> {
        let smaller = |pages: u64| (pages > 1).then_some(pages / 2);
        for pages in std::iter::successors(Some(pages.get()), |&pages| smaller(pages)) {
            let pages = PageCount::new(pages);
            if let Some(extents) = self.frames(pages.bytes() as usize, Purpose::Demand) {
                return Ok((extents, pages));
            }
        }
        let freed = self.arena.freed();
        self.cache.writes.conclude_arrived();
        if let Some(extents) = self.frames(PAGE_BYTES, Purpose::Demand) {
            return Ok((extents, PageCount::new(1)));
        }
        if self.cache.writes.oldest().is_none() {
            self.write_back_any();
        }
        if let Some(write) = self.cache.writes.oldest() {
            return Err(Room::Write(write));
        }
        if let Some(load) = self.cache.loads.oldest() {
            return Err(Room::Load(load));
        }
        if let Some(error) = self.failing_write_back(inode) {
            return Err(Room::Failing(error));
        }
        self.driver.attend();
        Err(Room::Freed(freed))
    }

    /// What a reader waits for that began to listen (`freed`) and then found no memory: the oldest load, whose pages can be evicted when
    /// it is over; if there is none, memory that another holder gives back.
    pub(crate) fn room_to_read(&self, freed: EventListener) -> EventListener {
        self.driver.attend();
        self.cache.loads.oldest().map_or(freed, |load| self.cache.loads.listen(&load))
    }

    /// Why dirty pages stay in memory, for a writer of this file: its own failure; else that another file fails, under that file's
    /// name.
    fn failing_write_back(&self, inode: &Inode) -> Option<io::Error> {
        inode.unwritten.failing().or_else(|| {
            self.cache.writes.dirty_files().iter().find_map(|other| {
                let error = other.unwritten.failing()?;
                let path = other.unwritten.path().unwrap_or_default();
                let text = format!(
                    "the memory is lent, or holds bytes that cannot be written to {}: {error}",
                    path.maybe_quote()
                );
                Some(io::Error::new(io::ErrorKind::OutOfMemory, text))
            })
        })
    }

    /// One extent for somebody who reads without the cache, which makes room if need be.
    pub(crate) fn allocate(&self, bytes: usize, urgency: Urgency) -> Option<Extent> {
        self.arena.allocate(bytes, urgency).or_else(|| {
            self.make_room(bytes);
            self.arena.allocate(bytes, urgency)
        })
    }

    /// As [`Shared::allocate`], in pieces if need be.
    pub(crate) fn allocate_run(&self, bytes: usize, urgency: Urgency) -> Option<Extents> {
        self.arena.allocate_run(bytes, urgency).or_else(|| {
            self.make_room(bytes);
            self.arena.allocate_run(bytes, urgency)
        })
    }

    /// Has pages evicted, with what has arrived and nobody asked for first among those that can be. Says how many.
    fn make_room(&self, bytes: usize) -> usize {
        if self.arena.take_refusal() {
            self.relieve();
        }
        let pages = (bytes / PAGE_BYTES).max(EVICT_PAGES_MIN);
        match self.evict(pages) {
            0 if self.cache.loads.conclude_arrived() > 0 => self.evict(pages),
            evicted => evicted,
        }
    }

    /// Pages that lie far apart fill the tables before the frames: some leave.
    pub(crate) fn make_room_in_tables(&self) {
        self.evict(TABLE_PAGES);
    }

    fn evict(&self, pages: usize) -> usize {
        let mut evicted = Vec::with_capacity(pages);
        self.cache.pages.evict(pages, &mut evicted);
        if !evicted.is_empty() {
            events::evicted(&evicted, pages);
        }
        self.cache.inodes.on_evicted(&evicted);
        evicted.len()
    }

    fn leaves_share(&self, bytes: usize) -> bool {
        let on_their_way_bytes = self.cache.pages.loading_pages() * PAGE_BYTES;
        (self.arena.stats().cached_bytes + on_their_way_bytes + bytes) as u64 <= self.cache_bytes_max()
    }

    /// What the cache can hold at most.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        (self.arena.budget_bytes() / UNCACHED_DIVISOR * (UNCACHED_DIVISOR - 1)) as u64
    }
}

const PAGE_BYTES: usize = PAGE_SIZE_BYTES as usize;

/// The part of the budget that the cache leaves to others: as much as readahead leaves to demands.
const UNCACHED_DIVISOR: usize = 8;

/// Longest run in one request, read or written: 1 MiB, beyond which devices gain nothing.
pub(crate) const RUN_PAGES_MAX: u64 = 256;

/// Pages that leave when tables are full: enough for some of them to have been alone in their nodes.
const TABLE_PAGES: usize = 64;

/// Pages that leave together, so that a lock is taken once for several single pages.
const EVICT_PAGES_MIN: usize = 16;
