//! Buddy against a map of single pages, in which free blocks are found by looking at all of them.

use headwater_core::{Block, Buddy, CHUNK_BYTES, ORDER_MAX, order_for_bytes};
use proptest::prelude::*;

const CHUNK_PAGES: usize = 512;

/// Every page by itself; a free block is the largest aligned stretch of free pages around it.
#[derive(Default)]
struct NaiveBuddy {
    chunks: Vec<[bool; CHUNK_PAGES]>,
    /// Out of circulation; all their pages count as used.
    retired: Vec<u32>,
    /// Gives out nothing.
    withheld: Vec<u32>,
}

impl NaiveBuddy {
    fn is_free(&self, chunk: usize, page: usize, order: u8) -> bool {
        self.chunks[chunk][page..page + (1 << order)].iter().all(|is_used| !is_used)
    }

    fn is_free_block(&self, chunk: usize, page: usize, order: u8) -> bool {
        let parent = page & !((2 << order) - 1);
        self.is_free(chunk, page, order) && (order == ORDER_MAX || !self.is_free(chunk, parent, order + 1))
    }

    fn find(&self, order: u8) -> Option<Block> {
        (0..self.chunks.len())
            .filter(|chunk| !self.withheld.contains(&(*chunk as u32)))
            .flat_map(|chunk| (0..CHUNK_PAGES).step_by(1 << order).map(move |page| (chunk, page)))
            .find(|(chunk, page)| self.is_free_block(*chunk, *page, order))
            .map(|(chunk, page)| Block { chunk: chunk as u32, page: page as u16, order })
    }

    fn allocate(&mut self, order: u8) -> Option<Block> {
        let found = (order..=ORDER_MAX).find_map(|order| self.find(order))?;
        let block = Block { order, ..found };
        self.set(block, true);
        Some(block)
    }

    fn retire(&mut self) -> Option<u32> {
        let is_retired =
            |chunk: &usize| self.is_free(*chunk, 0, ORDER_MAX) && !self.withheld.contains(&(*chunk as u32));
        let chunk = (0..self.chunks.len()).rev().find(is_retired)?;
        self.chunks[chunk].fill(true);
        self.retired.push(chunk as u32);
        Some(chunk as u32)
    }

    fn restore(&mut self, which: prop::sample::Index) -> Option<u32> {
        let place = (!self.retired.is_empty()).then(|| which.index(self.retired.len()))?;
        let chunk = self.retired.swap_remove(place);
        self.chunks[chunk as usize].fill(false);
        Some(chunk)
    }

    fn withhold(&mut self, chunk: u32) -> Option<u32> {
        if self.withheld.contains(&chunk) || self.retired.contains(&chunk) {
            return None;
        }
        self.withheld.push(chunk);
        Some(self.free_pages_in(chunk))
    }

    /// A withheld chunk.
    fn take_withheld(&mut self, which: prop::sample::Index) -> Option<u32> {
        let place = (!self.withheld.is_empty()).then(|| which.index(self.withheld.len()))?;
        Some(self.withheld.swap_remove(place))
    }

    fn free_pages_in(&self, chunk: u32) -> u32 {
        self.chunks[chunk as usize].iter().filter(|is_used| !**is_used).count() as u32
    }

    fn set(&mut self, block: Block, is_used: bool) {
        let page = block.page as usize;
        self.chunks[block.chunk as usize][page..page + (1 << block.order)].fill(is_used);
    }

    fn free_pages(&self) -> u64 {
        let chunks = (0..self.chunks.len() as u32).filter(|chunk| !self.withheld.contains(chunk));
        chunks.map(|chunk| u64::from(self.free_pages_in(chunk))).sum()
    }

    fn largest_free_order(&self) -> Option<u8> {
        (0..=ORDER_MAX).rev().find(|order| self.find(*order).is_some())
    }
}

#[derive(Clone, Debug)]
enum Step {
    AddChunk,
    Allocate(u8),
    /// Free the live block at this part of the list.
    Free(prop::sample::Index),
    FreeAll,
    Retire,
    /// Put the retired chunk at this part of the list back.
    Restore(prop::sample::Index),
    Withhold(prop::sample::Index),
    /// Of the withheld chunk at this part of the list.
    Reinstate(prop::sample::Index),
    RetireWithheld(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::AddChunk),
        20 => (0..=ORDER_MAX).prop_map(Step::Allocate),
        10 => (0..4u8).prop_map(Step::Allocate),
        24 => any::<prop::sample::Index>().prop_map(Step::Free),
        2 => Just(Step::FreeAll),
        3 => Just(Step::Retire),
        2 => any::<prop::sample::Index>().prop_map(Step::Restore),
        3 => any::<prop::sample::Index>().prop_map(Step::Withhold),
        2 => any::<prop::sample::Index>().prop_map(Step::Reinstate),
        2 => any::<prop::sample::Index>().prop_map(Step::RetireWithheld),
    ]
}

struct Pair {
    real: Buddy,
    naive: NaiveBuddy,
    live: Vec<Block>,
}

impl Pair {
    fn with_chunk() -> Self {
        let mut pair = Self { real: Buddy::new(), naive: NaiveBuddy::default(), live: Vec::new() };
        pair.apply(Step::AddChunk);
        pair
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::AddChunk => {
                assert_eq!(self.real.add_chunk() as usize, self.naive.chunks.len());
                self.naive.chunks.push([false; CHUNK_PAGES]);
            }
            Step::Allocate(order) => {
                let block = self.real.allocate(order);
                assert_eq!(block, self.naive.allocate(order));
                self.live.extend(block);
            }
            Step::Free(which) if !self.live.is_empty() => {
                let block = self.live.swap_remove(which.index(self.live.len()));
                self.free(block);
            }
            Step::Free(_) => {}
            Step::Retire => assert_eq!(self.real.retire(), self.naive.retire()),
            Step::Restore(which) => {
                self.naive.restore(which).into_iter().for_each(|chunk| self.real.restore(chunk))
            }
            Step::Withhold(which) => {
                let chunk = which.index(self.naive.chunks.len()) as u32;
                assert_eq!(self.real.withhold(chunk), self.naive.withhold(chunk));
            }
            Step::Reinstate(which) => {
                self.naive.take_withheld(which).into_iter().for_each(|chunk| self.real.reinstate(chunk))
            }
            Step::RetireWithheld(which) => {
                self.naive.take_withheld(which).into_iter().for_each(|chunk| self.retire_withheld(chunk))
            }
            Step::FreeAll => core::mem::take(&mut self.live).into_iter().for_each(|block| self.free(block)),
        }
    }

    fn retire_withheld(&mut self, chunk: u32) {
        let is_free = self.naive.is_free(chunk as usize, 0, ORDER_MAX);
        assert_eq!(self.real.retire_withheld(chunk), is_free);
        if is_free {
            self.naive.chunks[chunk as usize].fill(true);
            self.naive.retired.push(chunk);
        } else {
            self.naive.withheld.push(chunk);
        }
    }

    fn free(&mut self, block: Block) {
        self.real.free(block);
        self.naive.set(block, false);
    }

    fn compare(&self) {
        self.real.check();
        assert_eq!(self.real.free_pages(), self.naive.free_pages());
        assert_eq!(self.real.largest_free_order(), self.naive.largest_free_order());
        assert_eq!(self.real.chunk_count() as usize, self.naive.chunks.len());
        (0..self.real.chunk_count())
            .for_each(|chunk| assert_eq!(self.real.free_pages_in(chunk), self.naive.free_pages_in(chunk)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: B1 to B3, and that the very block promised is given. Method: random calls on both, compared
    /// after each; at the end everything is freed and the chunks are whole again.
    #[test]
    #[cfg_attr(miri, ignore)] // the naive model takes minutes there
    fn equals_the_naive_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::with_chunk();
        for step in steps {
            pair.apply(step);
            pair.compare();
        }
        pair.apply(Step::FreeAll);
        core::mem::take(&mut pair.naive.withheld).into_iter().for_each(|chunk| pair.real.reinstate(chunk));
        for chunk in core::mem::take(&mut pair.naive.retired) {
            pair.naive.chunks[chunk as usize].fill(false);
            pair.real.restore(chunk);
        }
        pair.compare();
        prop_assert_eq!(pair.real.free_pages(), 512 * u64::from(pair.real.chunk_count()));
        prop_assert_eq!(pair.real.largest_free_order(), Some(ORDER_MAX));
    }

    /// Goal: the order for a size is the smallest that holds it. Method: try all orders.
    #[test]
    fn order_for_bytes_is_the_smallest(bytes in 0..=CHUNK_BYTES + 4096) {
        let naive = (0..=ORDER_MAX).find(|order| 4096usize << order >= bytes);
        prop_assert_eq!(order_for_bytes(bytes), naive);
    }
}

/// Goal: many chunks, beyond one word of the index and beyond one word of its summary. Method: take every
/// page block of an eighth chunk, give some back far apart, and expect them lowest first.
#[test]
#[cfg_attr(miri, ignore)] // thousands of chunks take minutes there
fn thousands_of_chunks_are_found_in_order() {
    let mut buddy = Buddy::new();
    (0..5000).for_each(|chunk| assert_eq!(buddy.add_chunk(), chunk));
    let blocks: Vec<Block> = core::iter::from_fn(|| buddy.allocate(6)).collect();
    assert_eq!(blocks.len(), 5000 * 8);
    assert_eq!((buddy.free_pages(), buddy.largest_free_order()), (0, None));
    assert_eq!(buddy.allocate(0), None);
    for chunk in [4999, 4096, 64, 63, 0] {
        buddy.free(blocks[chunk * 8 + 3]);
    }
    buddy.check();
    let found: Vec<u32> = core::iter::from_fn(|| buddy.allocate(6)).map(|block| block.chunk).collect();
    assert_eq!(found, [0, 63, 64, 4096, 4999]);
}

/// Goal: whole chunks stay whole: small blocks go where something is broken already. Method: break chunk 1,
/// not 0, and see the next page come from chunk 1.
#[test]
fn broken_chunks_are_preferred() {
    let mut buddy = Buddy::new();
    buddy.add_chunk();
    buddy.add_chunk();
    let first = buddy.allocate(ORDER_MAX).unwrap();
    let page = buddy.allocate(0).unwrap();
    assert_eq!((first.chunk, page.chunk), (0, 1));
    buddy.free(first);
    assert_eq!(buddy.allocate(0).unwrap().chunk, 1);
    assert_eq!(buddy.allocate(ORDER_MAX), Some(first));
}

/// Goal: of many chunks, beyond one word of the index and of its summary, the last that is wholly free is retired, and
/// what is retired is given out no more. Method: thousands, of which some are in use.
#[test]
#[cfg_attr(miri, ignore)] // thousands of chunks take minutes there
fn the_last_free_chunk_is_retired() {
    let mut buddy = Buddy::new();
    (0..5000).for_each(|_| _ = buddy.add_chunk());
    let blocks: Vec<Block> = core::iter::from_fn(|| buddy.allocate(ORDER_MAX)).collect();
    assert_eq!(buddy.retire(), None);
    let free = [4999, 4096, 4095, 64, 63, 0];
    free.iter().for_each(|chunk| buddy.free(blocks[*chunk]));
    let retired: Vec<u32> = core::iter::from_fn(|| buddy.retire()).collect();
    assert_eq!(retired, free.map(|chunk| chunk as u32));
    assert_eq!((buddy.allocate(0), buddy.free_pages()), (None, 0));
    buddy.restore(64);
    buddy.check();
    assert_eq!(buddy.allocate(0).map(|block| block.chunk), Some(64));
}

/// Goal: a chunk that is in use is not put back. Method: panic.
#[test]
#[should_panic(expected = "in circulation")]
fn restoring_what_was_not_retired_is_caught() {
    let mut buddy = Buddy::new();
    buddy.add_chunk();
    buddy.restore(0);
}

/// Goal: a chunk that gives out blocks anyway is not reinstated. Method: panic.
#[test]
#[should_panic(expected = "not withheld")]
fn reinstating_what_was_not_withheld_is_caught() {
    let mut buddy = Buddy::new();
    buddy.add_chunk();
    buddy.reinstate(0);
}

/// Goal: an empty allocator refuses, and has nothing. Method: all getters.
#[test]
fn no_chunk_has_no_memory() {
    let mut buddy = Buddy::new();
    assert_eq!(buddy.allocate(0), None);
    assert_eq!((buddy.free_pages(), buddy.largest_free_order(), buddy.chunk_count()), (0, None, 0));
    buddy.check();
}

/// Goal: sizes and offsets of a block. Method: by hand.
#[test]
fn block_geometry() {
    let block = Block { chunk: 7, page: 48, order: 4 };
    assert_eq!((block.bytes(), block.offset_bytes()), (64 << 10, 192 << 10));
}

/// Takes two blocks of order 1 and one of order 0, and frees `wrong(them)`.
fn free_wrongly(wrong: impl FnOnce(&mut Buddy, [Block; 3]) -> Block) {
    let mut buddy = Buddy::new();
    buddy.add_chunk();
    let blocks = [1, 1, 0].map(|order| buddy.allocate(order).unwrap());
    let block = wrong(&mut buddy, blocks);
    buddy.free(block);
}

/// Goal: a block freed twice is caught while its buddy is in use. Method: panic.
#[test]
#[should_panic(expected = "not allocated")]
fn double_free_is_caught() {
    free_wrongly(|buddy, [block, ..]| {
        buddy.free(block);
        block
    });
}

/// Goal: a block freed twice is caught when it has merged with its buddy. Method: panic.
#[test]
#[should_panic(expected = "not allocated")]
fn double_free_after_merge_is_caught() {
    free_wrongly(|buddy, [first, second, _]| {
        buddy.free(first);
        buddy.free(second);
        first
    });
}

/// Goal: freeing half of a block is caught. Method: panic.
#[test]
#[should_panic(expected = "not allocated")]
fn free_of_a_smaller_order_is_caught() {
    free_wrongly(|_, [block, ..]| Block { order: 0, ..block });
}

/// Goal: freeing two blocks as one is caught. Method: panic.
#[test]
#[should_panic(expected = "not allocated")]
fn free_of_a_larger_order_is_caught() {
    free_wrongly(|_, [block, ..]| Block { order: 2, ..block });
}

/// Goal: a block that no chunk can have is caught. Method: panic.
#[test]
#[should_panic(expected = "not at a multiple")]
fn misplaced_block_is_caught() {
    free_wrongly(|_, [block, ..]| Block { page: 1, ..block });
}

/// As above, beyond the chunk.
#[test]
#[should_panic(expected = "outside its chunk")]
fn block_outside_its_chunk_is_caught() {
    free_wrongly(|_, [block, ..]| Block { page: 512, ..block });
}

/// As above, beyond the chunks.
#[test]
#[should_panic(expected = "never added")]
fn block_of_an_unknown_chunk_is_caught() {
    free_wrongly(|_, [block, ..]| Block { chunk: 1, ..block });
}

/// As above, larger than a chunk.
#[test]
#[should_panic(expected = "larger than a chunk")]
fn block_larger_than_a_chunk_is_caught() {
    free_wrongly(|_, [block, ..]| Block { order: 10, page: 0, ..block });
}
