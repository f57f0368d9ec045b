//! Pool against a naive model: the owner of every frame, as blocks are handed out, loaded, installed, pinned, dropped and
//! evicted in random order.

mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use headwater_core::cache::{Cache, DirtyToo, Evicted, Lookup};
use headwater_core::frame::{CHUNK_FRAMES, FirstUse, FrameState, LoadId, Unpinned, Usage};
use headwater_core::pool::{Left, Pool};
use headwater_core::replacement::Policy;
use headwater_core::table::PageTable;
use headwater_core::{FrameId, ORDER_MAX, PageIndex, PageRange};
use proptest::prelude::*;

const FILES: usize = 2;
const PAGES: u64 = 1200;
const CHUNKS_MAX: u32 = 3;
const CHUNK: u32 = CHUNK_FRAMES as u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Loading,
    Resident,
    Dirty,
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    frame: u32,
    state: State,
    is_ahead: bool,
}

#[derive(Clone, Debug)]
enum Step {
    AddChunk,
    Allocate(u8),
    AllocateAtMost(u8),
    /// Gives back what the caller has at this place of its list.
    Free(usize),
    /// Gives back what has left, the same.
    FreeLeft(usize),
    /// Loads so many pages into what the caller has there; from that many on they are read ahead.
    BeginLoad(usize, u64, u64),
    /// The oldest, or any, ends with so many pages.
    EndLoad(usize, u32),
    Install(usize),
    /// The page is written to its file, unless it is not dirty.
    Clean,
    Demand,
    Pin,
    Unpin(usize),
    Invalidate(u64, DirtyToo),
    Evict(u8),
    /// A chunk goes out of circulation, if all of it can.
    Retire(u32),
}

/// The pool and what it must be like.
struct Pair {
    cache: Cache,
    pool: Pool,
    tables: Vec<std::sync::Arc<PageTable>>,
    chunks: u32,
    retired: BTreeSet<u32>,
    pages: BTreeMap<(usize, u64), Place>,
    /// Frames that are nobody's.
    free: BTreeSet<u32>,
    /// What is the caller's.
    own: Vec<Range<u32>>,
    /// What has left and was not given back, with its frames: those that are pinned come back only after both.
    left: Vec<(Left, Vec<u32>)>,
    /// Loads under way, the oldest first.
    loads: Vec<Range<u32>>,
    /// Frames of them whose page left meanwhile.
    stale: BTreeSet<u32>,
    /// One entry for each pin.
    pins: Vec<u32>,
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(PageIndex::new(start), PageIndex::new(end))
}

impl Pair {
    fn new(policy: Policy) -> Self {
        let (cache, mut pool) = Pool::new(CHUNKS_MAX, policy);
        let tables = (0..FILES).map(|_| pool.control().add_file().unwrap()).collect();
        let (pages, free, own, left) = (BTreeMap::new(), BTreeSet::new(), Vec::new(), Vec::new());
        let (loads, stale, pins) = (Vec::new(), BTreeSet::new(), Vec::new());
        let retired = BTreeSet::new();
        Self { cache, pool, tables, chunks: 0, retired, pages, free, own, left, loads, stale, pins }
    }

    fn step(&mut self, step: Step, file: usize, page: u64) {
        match step {
            Step::AddChunk => self.add_chunk(),
            Step::Allocate(order) => self.allocate(order),
            Step::AllocateAtMost(order) => self.allocate_at_most(order),
            Step::Free(which) => self.free_own(which),
            Step::FreeLeft(which) => self.free_left(which),
            Step::BeginLoad(which, count, demanded) => self.begin_load(which, file, page, count, demanded),
            Step::EndLoad(which, read_pages) => self.end_load(which, read_pages),
            Step::Install(which) => self.install(which, file, page),
            Step::Clean => self.clean(file, page),
            Step::Demand => self.demand(file, page),
            Step::Pin => self.pin(file, page),
            Step::Unpin(which) => self.unpin(which),
            Step::Invalidate(count, dirty_too) => self.invalidate(file, page..page + count, dirty_too),
            Step::Evict(order) => self.evict(order),
            Step::Retire(chunk) => self.retire(chunk),
        }
        self.compare();
    }

    fn add_chunk(&mut self) {
        if let Some(chunk) = self.retired.pop_first() {
            assert_eq!(self.pool.add_chunk(&self.cache), Ok(chunk));
            self.free.extend(chunk * CHUNK..(chunk + 1) * CHUNK);
        } else if self.chunks < CHUNKS_MAX {
            assert_eq!(self.pool.add_chunk(&self.cache), Ok(self.chunks));
            self.free.extend(self.chunks * CHUNK..(self.chunks + 1) * CHUNK);
            self.chunks += 1;
        }
    }

    /// Whether any aligned block of this order is free.
    fn has_free(&self, order: u8) -> bool {
        let mut blocks = (0..self.chunks * CHUNK).step_by(1 << order);
        blocks.any(|first| self.free.range(first..first + (1 << order)).count() == 1 << order)
    }

    fn allocate(&mut self, order: u8) {
        let block = self.pool.allocate(order);
        assert_eq!(block.is_some(), self.has_free(order));
        block.into_iter().for_each(|block| self.take(block, order));
    }

    fn allocate_at_most(&mut self, order: u8) {
        let largest = (0..=order).rev().find(|order| self.has_free(*order));
        let block = self.pool.allocate_at_most(order);
        assert_eq!(block.is_some(), largest.is_some());
        block.into_iter().zip(largest).for_each(|(block, order)| self.take(block, order));
    }

    /// The pool gave a block to the caller.
    fn take(&mut self, block: Range<u32>, order: u8) {
        assert_eq!((block.len(), block.start % (1 << order)), (1 << order, 0));
        block.clone().for_each(|frame| assert!(self.free.remove(&frame), "frame {frame} is somebody's"));
        self.own.push(block);
    }

    fn free_own(&mut self, which: usize) {
        if let Some(block) = self.pick_own(which) {
            self.free(block);
        }
    }

    fn pick_own(&mut self, which: usize) -> Option<Range<u32>> {
        (!self.own.is_empty()).then(|| self.own.swap_remove(which % self.own.len()))
    }

    fn free(&mut self, frames: Range<u32>) {
        self.free.extend(frames.clone());
        self.pool.free(frames.map(FrameId::new));
    }

    fn begin_load(&mut self, which: usize, file: usize, page: u64, count: u64, demanded: u64) {
        let Some(block) = self.pick_own(which) else { return };
        let is_missing = |page: &u64| !self.pages.contains_key(&(file, *page));
        let missing = (page..page + count).skip_while(|page| !is_missing(page)).take_while(is_missing);
        let expected: Vec<u64> = missing.take(block.len()).collect();
        let ahead_from = page + demanded;
        let begun = self.pool.begin_load(
            &self.cache,
            &self.tables[file],
            range(page, page + count),
            PageIndex::new(ahead_from),
            LoadId::new(block.start),
            block.clone(),
        );
        assert_eq!(begun.iter().map(PageIndex::get).collect::<Vec<u64>>(), expected);
        for (frame, page) in block.clone().zip(&expected) {
            let place = Place { frame, state: State::Loading, is_ahead: *page >= ahead_from };
            self.pages.insert((file, *page), place);
        }
        let used = block.start + expected.len() as u32;
        self.loads.extend(Some(block.start..used).filter(|frames| !frames.is_empty()));
        self.own.extend(Some(used..block.end).filter(|frames| !frames.is_empty()));
    }

    fn end_load(&mut self, which: usize, read_pages: u32) {
        if self.loads.is_empty() {
            return;
        }
        let frames = self.loads.remove(which % self.loads.len());
        let read_pages = read_pages.min(frames.len() as u32);
        self.pool.end_load(&self.cache, frames.clone(), read_pages);
        for frame in frames.clone() {
            let is_read = frame < frames.start + read_pages;
            let key = self.pages.iter().find(|(_, place)| place.frame == frame).map(|(key, _)| *key);
            match (self.stale.remove(&frame), key) {
                (false, Some(key)) if is_read => self.pages.get_mut(&key).unwrap().state = State::Resident,
                (false, Some(key)) => {
                    self.pages.remove(&key);
                    self.free.insert(frame);
                }
                (true, None) => {
                    self.free.insert(frame);
                }
                (is_stale, key) => panic!("frame {frame}: stale {is_stale}, page {key:?}"),
            }
        }
    }

    /// The last frame of what the caller has there.
    fn install(&mut self, which: usize, file: usize, page: u64) {
        let Some(mut block) = self.pick_own(which) else { return };
        let frame = block.next_back().expect("what the caller has is not empty");
        self.own.extend(Some(block).filter(|block| !block.is_empty()));
        let left = self
            .pool
            .install(&self.cache, &self.tables[file], PageIndex::new(page), FrameId::new(frame))
            .unwrap();
        let place = Place { frame, state: State::Dirty, is_ahead: false };
        let before = self.pages.insert((file, page), place);
        let expected: Vec<u32> = before.and_then(|before| self.leaves(before)).into_iter().collect();
        self.has_left(left, expected);
    }

    /// A page left its table; in which frame, if anybody can have seen it there.
    fn leaves(&mut self, place: Place) -> Option<u32> {
        if place.state == State::Loading {
            self.stale.insert(place.frame);
        }
        (place.state != State::Loading).then_some(place.frame)
    }

    fn clean(&mut self, file: usize, page: u64) {
        let place = self.pages.get_mut(&(file, page)).filter(|place| place.state == State::Dirty);
        let held = self.cache.hold(&self.tables[file], PageIndex::new(page));
        assert_eq!(held.map(FrameId::get), place.as_ref().map(|place| place.frame));
        if let (Some(place), Some(frame)) = (place, held) {
            self.cache.clean(frame);
            assert_eq!(self.cache.unpin(frame), Unpinned::Kept);
            place.state = State::Resident;
        }
    }

    fn demand(&mut self, file: usize, page: u64) {
        let place = self.pages.get_mut(&(file, page)).filter(|place| place.state == State::Loading);
        let demanded = self.pool.demand(&self.cache, &self.tables[file], PageIndex::new(page));
        assert_eq!(demanded.map(FirstUse::is_ahead), place.as_ref().map(|place| place.is_ahead));
        place.into_iter().for_each(|place| place.is_ahead = false);
    }

    fn pin(&mut self, file: usize, page: u64) {
        let (table, index) = (&self.tables[file], PageIndex::new(page));
        let found = self.cache.find(table, index);
        let looked = found.map_or(Lookup::Absent, |found| self.cache.pin(table, index, found, 0, 4096));
        match (self.pages.get_mut(&(file, page)), looked) {
            (None, Lookup::Absent) => {}
            (Some(place), Lookup::Pending(_)) if place.state == State::Loading => {}
            (Some(place), Lookup::Pinned(frame, first_use)) if place.state != State::Loading => {
                assert_eq!((frame.get(), first_use.is_ahead()), (place.frame, place.is_ahead));
                place.is_ahead = false;
                self.pins.push(place.frame);
            }
            (expected, found) => panic!("{found:?} where {expected:?} is"),
        }
    }

    fn unpin(&mut self, which: usize) {
        if self.pins.is_empty() {
            return;
        }
        let frame = self.pins.swap_remove(which % self.pins.len());
        let is_last = !self.pins.contains(&frame) && self.pages.values().all(|place| place.frame != frame);
        let expected = if is_last { Unpinned::Freed } else { Unpinned::Kept };
        assert_eq!(self.cache.unpin(FrameId::new(frame)), expected);
        if is_last {
            self.pool.free_unpinned(FrameId::new(frame));
            // K2
            if self.left.iter().all(|(_, frames)| !frames.contains(&frame)) {
                self.free.insert(frame);
            }
        }
    }

    fn invalidate(&mut self, file: usize, pages: Range<u64>, dirty_too: DirtyToo) {
        let left =
            self.pool.invalidate(&self.cache, &self.tables[file], range(pages.start, pages.end), dirty_too);
        let within = self.pages.range((file, pages.start)..(file, pages.end));
        let leaving: Vec<((usize, u64), Place)> = within
            .filter(|(_, place)| dirty_too == DirtyToo::Yes || place.state != State::Dirty)
            .map(|(key, place)| (*key, *place))
            .collect();
        let mut expected = Vec::new();
        for (key, place) in leaving {
            self.pages.remove(&key);
            expected.extend(self.leaves(place));
        }
        self.has_left(left, expected);
    }

    /// These have to be the pages that have left.
    fn has_left(&mut self, left: Left, expected: Vec<u32>) {
        let frames: Vec<u32> = left.pages.iter().map(|page| page.frame.get()).collect();
        assert_eq!(frames, expected);
        self.left.push((left, frames));
    }

    /// Everybody was told of what has left there.
    fn free_left(&mut self, which: usize) {
        if self.left.is_empty() {
            return;
        }
        let (left, frames) = self.left.swap_remove(which % self.left.len());
        self.pool.free_left(left);
        // K2
        self.free.extend(frames.into_iter().filter(|frame| !self.pins.contains(frame)));
    }

    fn is_evictable(&self, place: &Place) -> bool {
        place.state == State::Resident && !self.pins.contains(&place.frame)
    }

    fn evict(&mut self, order: u8) {
        let left = self.pool.evict(&self.cache, order);
        let frames: Vec<u32> = left.pages.iter().map(|page| page.frame.get()).collect();
        left.pages.iter().for_each(|page| self.evicted(page));
        assert!(frames.len() < 2 << order, "{} pages leave for a block of 2^{order}", frames.len());
        let is_enough = frames.len() >= 1 << order || frames.iter().any(|frame| self.is_empty(*frame, order));
        let rest = self.pages.values().find(|place| self.is_evictable(place));
        assert!(is_enough || rest.is_none(), "{} pages left, though {rest:?} could", frames.len());
        self.has_left(left, frames);
    }

    /// It can exactly if each of its frames is free or has a page that can be evicted.
    fn retire(&mut self, chunk: u32) {
        if chunk >= self.chunks {
            return;
        }
        let frames = chunk * CHUNK..(chunk + 1) * CHUNK;
        let evictable =
            self.pages.values().filter(|place| frames.contains(&place.frame) && self.is_evictable(place));
        let (evictable, free) = (evictable.count(), self.free.range(frames.clone()).count());
        let Some(left) = self.pool.empty_chunk(&self.cache, chunk) else {
            assert!(evictable + free < CHUNK_FRAMES, "chunk {chunk} can be emptied");
            return;
        };
        assert_eq!((left.pages.len(), evictable + free), (evictable, CHUNK_FRAMES));
        left.pages.iter().for_each(|page| self.evicted(page));
        self.pool.free_left(left);
        assert!(self.pool.retire(chunk), "nothing of chunk {chunk} is in use");
        self.free.retain(|frame| !frames.contains(frame));
        self.retired.insert(chunk);
    }

    fn evicted(&mut self, page: &Evicted) {
        let file = self.tables.iter().position(|table| table.file() == page.file).unwrap();
        let place = self.pages.remove(&(file, page.page.get())).expect("it was there");
        assert_eq!(place.frame, page.frame.get());
        assert!(self.is_evictable(&place), "{place:?} is evicted");
        let is_unused = page.usage == Usage::Unused;
        assert_eq!(is_unused, place.is_ahead);
    }

    /// Whether no frame of the block around this one holds a page or gets one.
    fn is_empty(&self, frame: u32, order: u8) -> bool {
        let block = block_around(frame, order);
        let holds = |place: &Place| block.contains(&place.frame);
        let is_held = self.pages.values().any(holds);
        !is_held && !self.pins.iter().chain(&self.stale).any(|frame| block.contains(frame))
    }

    fn compare(&mut self) {
        self.pool.check(&self.cache);
        assert_eq!(self.pool.free_pages(), self.free.len() as u64);
        for (&(file, page), place) in &self.pages {
            let (table, page) = (&self.tables[file], PageIndex::new(page));
            let state = match place.state {
                State::Loading => FrameState::Loading,
                State::Resident => FrameState::Resident,
                State::Dirty => FrameState::Dirty,
            };
            assert_eq!(self.cache.find(table, page), Some(FrameId::new(place.frame)));
            assert_eq!(self.cache.state(table, page), Some(state));
        }
        let loading = self.pages.values().filter(|place| place.state == State::Loading).count();
        let control = self.pool.control();
        assert_eq!(control.resident_pages() as usize, self.pages.len() - loading);
        assert_eq!(
            control.loading_pages() as usize,
            self.loads.iter().map(ExactSizeIterator::len).sum::<usize>()
        );
    }

    /// Everything is let go, and then every frame is nobody's, and the chunks are whole.
    fn finish(mut self) {
        (0..FILES).for_each(|file| self.invalidate(file, 0..PAGES * 2, DirtyToo::Yes));
        while !self.loads.is_empty() {
            self.end_load(0, u32::MAX);
        }
        while !self.pins.is_empty() {
            self.unpin(0);
        }
        while !self.own.is_empty() {
            self.free_own(0);
        }
        while !self.left.is_empty() {
            self.free_left(0);
        }
        while !self.retired.is_empty() {
            self.add_chunk();
        }
        self.compare();
        assert_eq!(self.free.len(), (self.chunks * CHUNK) as usize);
        self.tables.iter().for_each(|table| self.pool.control().remove_file(table));
        let whole: Vec<_> = std::iter::from_fn(|| self.pool.allocate(ORDER_MAX)).collect();
        assert_eq!(whole.len(), self.chunks as usize);
    }
}

fn block_around(frame: u32, order: u8) -> Range<u32> {
    let first = frame >> order << order;
    first..first + (1 << order)
}

fn step() -> impl Strategy<Value = Step> {
    let order = || prop_oneof![6 => 0..5u8, 2 => 0..=ORDER_MAX];
    let count = || prop_oneof![4 => 1..40u64, 1 => 1..600u64];
    let read_pages = prop_oneof![4 => Just(u32::MAX), 1 => 0..20u32];
    let too = prop_oneof![Just(DirtyToo::Yes), Just(DirtyToo::No)];
    let which = any::<usize>;
    prop_oneof![
        2 => Just(Step::AddChunk),
        8 => order().prop_map(Step::Allocate),
        2 => order().prop_map(Step::AllocateAtMost),
        2 => which().prop_map(Step::Free),
        4 => which().prop_map(Step::FreeLeft),
        9 => (which(), count(), 0..40u64).prop_map(|(which, count, ahead)| Step::BeginLoad(which, count, ahead)),
        8 => (which(), read_pages).prop_map(|(which, pages)| Step::EndLoad(which, pages)),
        3 => which().prop_map(Step::Install),
        2 => Just(Step::Clean),
        2 => Just(Step::Demand),
        4 => Just(Step::Pin),
        4 => which().prop_map(Step::Unpin),
        2 => (count(), too).prop_map(|(count, too)| Step::Invalidate(count, too)),
        4 => order().prop_map(Step::Evict),
        2 => (0..CHUNKS_MAX).prop_map(Step::Retire),
    ]
}

/// Neighbours, so that steps meet, and far ones.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..48u64, 1 => 0..PAGES]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Clock2QPlus), Just(Policy::Clock), Just(Policy::S3Fifo), Just(Policy::Lru)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Goal: K1, K2, and that nothing is lost: what is free is what nobody was given and no page is in, after each step; at the
    /// end every chunk is whole again. Method: random steps against the owners of all frames.
    #[test]
    #[cfg_attr(miri, ignore)] // minutes there
    fn equals_the_owners_of_frames(
        policy in policy(),
        steps in prop::collection::vec((step(), 0..FILES, page()), 1..150),
    ) {
        let mut pair = Pair::new(policy);
        pair.step(Step::AddChunk, 0, 0);
        for (step, file, page) in steps {
            pair.step(step, file, page);
        }
        pair.finish();
    }

    /// Goal: what was loaded in blocks makes room in blocks. Method: memory full of blocks of one order, of pages that were
    /// used once or not; each eviction frees just one of them, whole, until none is left.
    #[test]
    #[cfg_attr(miri, ignore)] // minutes there
    fn blocks_leave_as_blocks(
        policy in policy(),
        order in 0..=ORDER_MAX,
        used in prop::collection::btree_set(0..u64::from(CHUNK), 0..100),
    ) {
        let mut pair = full_of_blocks(policy, order);
        used.into_iter().for_each(|page| pair.pin(0, page));
        (0..pair.pins.len()).for_each(|_| pair.unpin(0));
        for block in 1..=u64::from(CHUNK >> order) {
            pair.step(Step::Evict(order), 0, 0);
            pair.free_left(0);
            prop_assert_eq!(pair.pool.free_pages(), block << order);
            prop_assert!(pair.has_free(order));
        }
        pair.finish();
    }
}

/// A chunk of which each block of this order was loaded at once.
fn full_of_blocks(policy: Policy, order: u8) -> Pair {
    let mut pair = Pair::new(policy);
    pair.add_chunk();
    let pages = 1 << order;
    for first in (0..u64::from(CHUNK)).step_by(pages) {
        pair.allocate(order);
        pair.begin_load(0, 0, first, pages as u64, pages as u64);
        pair.end_load(0, u32::MAX);
    }
    pair.compare();
    pair
}
