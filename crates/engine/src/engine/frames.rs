//! Frames: memory for reads and writes, from the arena or from pages that the cache evicts.
//!
//! ```text
//!   frames ─► arena, one piece ─► evict, one piece ─► arena, in pieces ─► complete arrived loads, evict ─► none
//! ```
//!
//! The cache uses memory that nothing else needs, up to all of the budget but an eighth, or 16 MiB of a large one: that is for reads
//! around it. An allocation that finds the arena empty evicts pages; where the system itself has no more memory, it also releases
//! some (reclaim).
//!
//! Owns: the order in which memory is looked for.
//! Does not own: the memory.
//! Invariants: I6 all share the arena's budget; readahead gives up where a demand continues.

use headwater_core::readahead::Purpose;
use headwater_core::units::PAGE_BYTES;
use headwater_io::{Extent, Extents, Urgency};

use crate::base::events;
use crate::engine::Shared;
use crate::engine::reclaim;

/// Frames for pages of the cache. `None` when none can be had without waiting, or, for readahead, only in small pieces.
pub(crate) fn for_pages(shared: &Shared, bytes: usize, purpose: Purpose) -> Option<Extents> {
    note_growth(shared);
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

/// As many bytes are going to be read in order.
pub(crate) fn expect(shared: &Shared, bytes: u64) {
    if bytes >= LONG_BYTES_MIN {
        shared.arena.expect_much();
    }
}

/// One extent for a read around the cache; evicts pages if need be.
pub(crate) fn allocate(shared: &Shared, bytes: usize, urgency: Urgency) -> Option<Extent> {
    note_growth(shared);
    if !leaves_cache(shared, bytes) {
        return None;
    }
    shared.arena.allocate(bytes, urgency).or_else(|| {
        make_room(shared, bytes);
        shared.arena.allocate(bytes, urgency)
    })
}

/// As [`allocate`], in several extents if need be.
pub(crate) fn allocate_run(shared: &Shared, bytes: usize, urgency: Urgency) -> Option<Extents> {
    note_growth(shared);
    if !leaves_cache(shared, bytes) {
        return None;
    }
    shared.arena.allocate_run(bytes, urgency).or_else(|| {
        make_room(shared, bytes);
        shared.arena.allocate_run(bytes, urgency)
    })
}

/// The background thread watches the memory of an engine from the first allocation that finds 16 MiB mapped. If other threads keep it from
/// its processor, the allocating one does it.
fn note_growth(shared: &Shared) {
    if !shared.arena.has_mapped(UNWATCHED_BYTES_MAX) {
        return;
    }
    shared.background.note();
    if shared.background.is_late() {
        shared.background.begin_round();
        let relief = reclaim::relieve(shared);
        shared.background.end_round(Some(relief.look_again));
    }
}

/// Evicts pages; if none can be, first completes loads that have arrived. Returns the number of evicted pages.
fn make_room(shared: &Shared, bytes: usize) -> usize {
    if shared.arena.take_refusal() {
        reclaim::relieve(shared);
    }
    let pages = (bytes / PAGE_BYTES).max(EVICT_PAGES_MIN);
    match evict(shared, pages) {
        0 if shared.cache.loads.publish_arrived() > 0 => evict(shared, pages),
        evicted => evicted,
    }
}

/// Evicts pages when tables are full: pages that lie far apart fill the tables before the frames.
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
    shared.arena.stats().cached_bytes + on_their_way_bytes + bytes
        <= cached_bytes_of(shared.arena.budget_bytes())
}

/// Whether the cache keeps a few frames beside a read around it. Tasks that are not polled, and readers, may keep what they have for as
/// long as they like, and the thread that blocks in a write may be theirs.
fn leaves_cache(shared: &Shared, bytes: usize) -> bool {
    shared.arena.stats().used_bytes + bytes + CACHE_BYTES_MIN <= shared.arena.usable_bytes()
}

/// The most memory that the cache can hold as things are: while the system refuses more, of what the engine has.
pub(crate) fn cache_bytes_max(shared: &Shared) -> u64 {
    cached_bytes_of(shared.arena.usable_bytes()) as u64
}

/// An engine that only reads, and has no more mapped than this, has no thread that returns memory: it would relieve no one.
const UNWATCHED_BYTES_MAX: usize = 16 << 20;

/// What one demand may load at once, in bytes: a page must not be evicted before it is copied.
pub(crate) fn demand_bytes_max(shared: &Shared) -> u64 {
    shared.readahead.share_bytes_max.min(shared.arena.usable_bytes() as u64 / DEMAND_DIVISOR)
}

/// What the cache takes of this much memory. The rest is for reads around it: as much as readahead leaves to demands.
fn cached_bytes_of(bytes: usize) -> usize {
    bytes - (bytes / UNCACHED_DIVISOR).min(UNCACHED_BYTES_MAX)
}

/// With one frame a write goes on, page by page; several threads may allocate at once.
pub(crate) const CACHE_BYTES_MIN: usize = 16 * PAGE_BYTES;

/// The cache leaves this fraction of the budget to other uses.
const UNCACHED_DIVISOR: usize = 8;

/// Reads around the cache keep some mebibytes in flight, however large the budget. With an eighth of it, memory of 1.12 times a set
/// held 98 % of the set, and re-reading it ran at half of the speed of std.
const UNCACHED_BYTES_MAX: usize = 16 << 20;

/// With a quarter, other readers keep most of the memory.
const DEMAND_DIVISOR: u64 = 4;

/// What takes some milliseconds to read, against some 0.1 ms for a huge page.
const LONG_BYTES_MIN: u64 = 16 << 20;

/// Longest run in one request, read or written: 1 MiB, beyond which devices get no faster.
pub(crate) const RUN_PAGES_MAX: u64 = 256;

/// Pages evicted when tables are full: enough that some of them were alone in their table nodes.
const TABLE_PAGES: usize = 64;

/// Pages are evicted in batches of at least this size, so that one lock serves several single pages.
const EVICT_PAGES_MIN: usize = 16;
