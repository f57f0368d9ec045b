//! Blocks: one rule of the pool each, on a chunk of which each block was loaded at once.
//!
//! Owns: pages in use, refused pages, memory that is freed though it is in use.
//! Does not own: the model, random steps (pool).

use headwater_core::cache::DirtyToo;
use headwater_core::frame::{LoadId, PAGES_MAX, WriteLatch};
use headwater_core::replacement::Policy;
use headwater_core::table::NoNode;
use headwater_core::{FrameId, ORDER_MAX, PageCount, PageIndex, PageRange};

use super::{CHUNK, Pair, State, Step, full_of_blocks};

/// Goal: what cannot leave stays, be it pinned, dirty or on its way, and does not keep others from making room. Method: a
/// chunk of blocks; one page of the first block in each state; blocks are evicted until nothing leaves any more.
#[test]
fn what_is_in_use_stays() {
    type Hinder = fn(&mut Pair);
    let hinder: [(State, Hinder); 3] = [
        (State::Resident, |pair| pair.pin(0, 5)),
        (State::Dirty, |pair| write_in_place(pair, 5)),
        (State::Loading, |pair| load_again(pair, 5)),
    ];
    for (state, hinder) in hinder {
        let mut pair = full_of_blocks(Policy::Clock2QPlus, 4);
        hinder(&mut pair);
        for _ in 0..CHUNK {
            pair.step(Step::Evict(4), 0, 0);
            pair.free_left(0);
        }
        assert_eq!(pair.pages.keys().collect::<Vec<_>>(), [&(0, 5)], "{state:?}");
        assert_eq!(pair.pages[&(0, 5)].state, state);
        assert_eq!(pair.pool.free_pages(), u64::from(CHUNK) - 1);
        pair.finish();
    }
}

/// Where it lies, so that the page keeps its frame.
fn write_in_place(pair: &mut Pair, page: u64) {
    let (table, index) = (&pair.tables[0], PageIndex::new(page));
    let frame = pair.cache.find(table, index).unwrap();
    assert!(matches!(pair.cache.begin_write(table, index, frame, 0, 1), WriteLatch::Latched(_)));
    pair.cache.end_write(frame);
    pair.pages.get_mut(&(0, page)).unwrap().state = State::Dirty;
}

/// Dropped, its frame is the only one that is free, and it is on its way into that.
fn load_again(pair: &mut Pair, page: u64) {
    pair.invalidate(0, page..page + 1, DirtyToo::No);
    pair.free_left(0);
    pair.allocate(0);
    pair.begin_load(0, 0, page, 1, 1);
}

/// Goal: an eviction gives the block that it says, though a page of the block that the first victims are in cannot leave.
/// Method: a chunk of blocks, the first with a page that is dirty or pinned; then there is a whole block free.
#[test]
fn a_page_in_use_does_not_keep_another_block() {
    let hinder: [fn(&mut Pair); 2] = [|pair| write_in_place(pair, 5), |pair| pair.pin(0, 5)];
    for (hinder, order) in hinder.into_iter().flat_map(|hinder| [3, 4, 6].map(|order| (hinder, order))) {
        let mut pair = full_of_blocks(Policy::Lru, order);
        hinder(&mut pair);
        pair.step(Step::Evict(order), 0, 0);
        pair.free_left(0);
        let block = pair.pool.allocate(order);
        assert!(block.is_some(), "no block of 2^{order} is free");
        pair.pool.free(block.into_iter().flatten().map(FrameId::new));
        pair.finish();
    }
}

/// Goal: a page that is much used does not leave for being the neighbour of one that is not. Method: a chunk of blocks; in
/// each of the first four a page that was used thrice; then a block of the others leaves.
#[test]
fn a_neighbour_much_used_stays() {
    let mut pair = full_of_blocks(Policy::Clock, 4);
    let much_used = [5, 21, 37, 53];
    for page in much_used.into_iter().cycle().take(12) {
        pair.pin(0, page);
        pair.unpin(0);
    }
    pair.step(Step::Evict(4), 0, 0);
    much_used.iter().for_each(|page| assert!(pair.pages.contains_key(&(0, *page)), "page {page} has left"));
    pair.finish();
}

/// Goal: a page for which tables have no node is refused, and its frame stays the caller's. Method: a page beyond all.
#[test]
fn a_refused_page_leaves_the_frame_to_the_caller() {
    let mut pair = full_of_blocks(Policy::Clock, ORDER_MAX);
    pair.evict(0);
    pair.free_left(0);
    pair.allocate(0);
    let (frame, beyond) = (pair.own[0].start, PageIndex::new(PAGES_MAX));
    let installed = pair.pool.install(&pair.cache, &pair.tables[0], beyond, FrameId::new(frame));
    assert!(matches!(installed, Err(NoNode)));
    let wanted = PageRange::new(beyond, beyond + PageCount::new(1));
    let load = LoadId::new(0);
    let begun = pair.pool.begin_load(&pair.cache, &pair.tables[0], wanted, beyond, load, frame..frame + 1);
    assert!(begun.is_empty());
    pair.compare();
    pair.finish();
}

/// Goal: K1 is looked at. Method: a frame is given back though a page is in it.
#[test]
#[should_panic(expected = "K1: memory of a page in use is free")]
fn memory_in_use_that_is_free_is_noticed() {
    let mut pair = full_of_blocks(Policy::Clock, ORDER_MAX);
    pair.pool.free([FrameId::new(7)]);
    pair.pool.check(&pair.cache);
}
