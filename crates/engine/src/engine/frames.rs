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

use headwater_core::readahead::Purpose;
use headwater_core::units::PAGE_BYTES;
use headwater_io::{EventListener, Extent, Extents, Urgency};

use crate::base::events;
use crate::engine::Shared;
use crate::engine::reclaim;

/// Frames for pages of the cache. `None` when there are none to be had without waiting, or for readahead only in small
/// pieces.
pub(crate) fn for_pages(shared: &Shared, bytes: usize, purpose: Purpose) -> Option<Extents> {
    let urgency = match purpose {
        Purpose::Demand if bytes <= PAGE_BYTES => Urgency::Demand,
        Purpose::Demand | Purpose::Ahead => Urgency::Readahead,
    };
    let one_piece = || Some(Extents::from_iter([shared.arena.allocate(bytes, urgency)?]));
    if leaves_share(shared, bytes)
        && let Some(extents) = one_piece()
    {
        return Some(extents);
    }
    let evicted_pages = make_room(shared, bytes);
    if !leaves_share(shared, bytes) {
        return None;
    }
    if evicted_pages > 0
        && let Some(extents) = one_piece()
    {
        return Some(extents);
    }
    shared.arena.allocate_run(bytes, urgency)
}

/// What a reader waits for that began to listen (`freed`) and then found no memory: the oldest load, whose pages can be evicted when
/// it is over; if there is none, memory that another holder gives back.
pub(crate) fn room_to_read(shared: &Shared, freed: EventListener) -> EventListener {
    shared.driver.attend();
    shared.cache.loads.oldest().map_or(freed, |load| shared.cache.loads.listen(&load))
}

/// One extent for somebody who reads without the cache, which makes room if need be.
pub(crate) fn allocate(shared: &Shared, bytes: usize, urgency: Urgency) -> Option<Extent> {
    shared.arena.allocate(bytes, urgency).or_else(|| {
        make_room(shared, bytes);
        shared.arena.allocate(bytes, urgency)
    })
}

/// As [`Shared::allocate`], in pieces if need be.
pub(crate) fn allocate_run(shared: &Shared, bytes: usize, urgency: Urgency) -> Option<Extents> {
    shared.arena.allocate_run(bytes, urgency).or_else(|| {
        make_room(shared, bytes);
        shared.arena.allocate_run(bytes, urgency)
    })
}

/// Has pages evicted, with what has arrived and nobody asked for first among those that can be. Says how many.
fn make_room(shared: &Shared, bytes: usize) -> usize {
    if shared.arena.take_refusal() {
        reclaim::relieve(shared);
    }
    let pages = (bytes / PAGE_BYTES).max(EVICT_PAGES_MIN);
    match evict(shared, pages) {
        0 if shared.cache.loads.conclude_arrived() > 0 => evict(shared, pages),
        evicted => evicted,
    }
}

/// Pages that lie far apart fill the tables before the frames: some leave.
pub(crate) fn make_room_in_tables(shared: &Shared) {
    evict(shared, TABLE_PAGES);
}

fn evict(shared: &Shared, pages: usize) -> usize {
    let mut evicted = Vec::with_capacity(pages);
    shared.cache.pages.evict(pages, &mut evicted);
    if !evicted.is_empty() {
        events::evicted(&evicted, pages);
    }
    shared.cache.inodes.on_evicted(&evicted);
    evicted.len()
}

fn leaves_share(shared: &Shared, bytes: usize) -> bool {
    let on_their_way_bytes = shared.cache.pages.loading_pages() * PAGE_BYTES;
    (shared.arena.stats().cached_bytes + on_their_way_bytes + bytes) as u64 <= cache_bytes_max(shared)
}

/// What the cache can hold at most.
pub(crate) fn cache_bytes_max(shared: &Shared) -> u64 {
    (shared.arena.budget_bytes() / UNCACHED_DIVISOR * (UNCACHED_DIVISOR - 1)) as u64
}

/// The part of the budget that the cache leaves to others: as much as readahead leaves to demands.
const UNCACHED_DIVISOR: usize = 8;

/// Longest run in one request, read or written: 1 MiB, beyond which devices gain nothing.
pub(crate) const RUN_PAGES_MAX: u64 = 256;

/// Pages that leave when tables are full: enough for some of them to have been alone in their nodes.
const TABLE_PAGES: usize = 64;

/// Pages that leave together, so that a lock is taken once for several single pages.
const EVICT_PAGES_MIN: usize = 16;
