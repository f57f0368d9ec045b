//! Buddy: which pages of the arena's 2 MiB chunks are free, and in blocks of which size.
//!
//! ```text
//!   order 9  node 1      ┌───────────────── 2 MiB ─────────────────┐
//!   order 8  nodes 2-3   ├───────── 1 MiB ────┬────────────────────┤
//!   order 7  nodes 4-7   ├─────────┬──────────┼─────────┬──────────┤
//!     ...                          buddies: node and node ^ 1
//!   order 0  nodes 512-1023: a page of 4 KiB each
//! ```
//!
//! A chunk is a binary tree of 1023 nodes, numbered like a heap, and its state two bit sets over them: which
//! nodes are free blocks, which are allocated ones. Knuth, The Art of Computer Programming 1, section 2.5.
//!
//! Allocation takes the smallest block that is large enough, and among equals the one in the lowest chunk at
//! the lowest page: what is broken gets broken further, and whole chunks stay whole for large extents. The
//! same calls always give the same blocks.
//!
//! States of a node: free -> split into two free `[allocate]`; free -> allocated `[allocate]`;
//! allocated -> free `[free]`; two free buddies -> one free parent `[free]`; allocated -> its pages allocated one by one
//! `[break_up]`. A chunk that is one free block can leave circulation `[retire]` and come back `[restore]`: it has no
//! blocks in between. A chunk whose memory is on offer to the kernel keeps its blocks, but gives out none `[withhold]`; it comes back
//! with all of them `[reinstate]`, or leaves circulation once it is one free block `[retire_withheld]`.
//!
//! Invariants:
//!
//! - B1 Every page of a chunk in circulation is in exactly one block, which is either free or allocated.
//! - B2 No two buddies are both free: they are their parent.
//! - B3 The index of an order holds exactly the chunks that have a free block of it and are not withheld.
//!
//! Hot path: `allocate` and `free` of a page that needs no split or merge read and write two words of the
//! chunk and at most two of the index; no allocation, no loop over chunks.
//
// Owns: the state of every page, free or in exactly one block.
// Does not own: the memory (a [`Block`] is a name, not an address), a lock, or a record of which
// caller has which block.

mod index;

use alloc::vec::Vec;

use self::index::ChunkIndex;
use crate::units::{FrameId, PAGE_BYTES};

/// Size of a chunk: a huge page of x86-64. Reads into huge pages were measured at 1.5 to 2 times the speed of
/// reads into scattered 4 KiB pages.
pub const CHUNK_BYTES: usize = 2 << 20;

/// Order of a block that is a whole chunk; a block of order `n` has `2^n` pages.
pub const ORDER_MAX: u8 = 9;

/// The order of the smallest block that holds `bytes`; `None` if a whole chunk is too small.
///
/// ```
/// # use headwater_core::buddy::order_for_bytes;
/// assert_eq!([0, 4096, 4097].map(order_for_bytes), [Some(0), Some(0), Some(1)]);
/// assert_eq!([2 << 20, (2 << 20) + 1].map(order_for_bytes), [Some(9), None]);
/// ```
pub const fn order_for_bytes(bytes: usize) -> Option<u8> {
    if bytes > CHUNK_BYTES {
        return None;
    }
    let pages = bytes.div_ceil(PAGE_BYTES);
    Some(pages.next_power_of_two().trailing_zeros() as u8)
}

/// Adjacent pages within one chunk, as many as a power of two, at a multiple of their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// Number of the chunk, as [`Buddy::add_chunk`] returned it.
    pub chunk: u32,
    /// First page of the block within the chunk, 0 to 511.
    pub page: u16,
    /// Binary logarithm of the number of pages, 0 to [`ORDER_MAX`].
    pub order: u8,
}

impl Block {
    /// Length in bytes.
    pub const fn bytes(&self) -> usize {
        PAGE_BYTES << self.order
    }

    /// Distance from the start of the chunk in bytes.
    pub const fn offset_bytes(&self) -> usize {
        self.page as usize * PAGE_BYTES
    }

    /// Numbers of its pages, counted through the chunks.
    pub const fn frames(&self) -> core::ops::Range<u32> {
        let first = self.chunk * CHUNK_PAGES as u32 + self.page as u32;
        first..first + (1 << self.order)
    }

    /// The block that is just this page.
    pub const fn of_frame(frame: FrameId) -> Self {
        let pages = CHUNK_PAGES as u32;
        Self { chunk: frame.get() / pages, page: (frame.get() % pages) as u16, order: 0 }
    }

    /// The block's node.
    ///
    /// # Panics
    /// If there is no such block in a chunk.
    fn node(&self) -> usize {
        assert!(self.order <= ORDER_MAX, "block larger than a chunk");
        assert!((self.page as usize) < CHUNK_PAGES, "block outside its chunk");
        assert!(self.page as usize & ((1 << self.order) - 1) == 0, "block not at a multiple of its size");
        first_node(self.order) + (self.page as usize >> self.order)
    }
}

/// The allocator. Empty until [`Buddy::add_chunk`].
///
/// ```
/// # use headwater_core::buddy::Buddy;
/// let mut buddy = Buddy::new();
/// buddy.add_chunk();
/// let block = buddy.allocate(3).unwrap();
/// assert_eq!((block.offset_bytes(), block.bytes()), (0, 32768));
/// assert_eq!(buddy.largest_free_order(), Some(8));
/// buddy.free(block);
/// assert_eq!((buddy.largest_free_order(), buddy.free_pages()), (Some(9), 512));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Buddy {
    chunks: Vec<Chunk>,
    /// For each order, the chunks that have a free block of just that order.
    index: [ChunkIndex; ORDERS],
    /// Chunks out of circulation.
    retired: ChunkIndex,
    /// Chunks with blocks, of which none is given out.
    withheld: ChunkIndex,
    /// Without those of withheld chunks.
    free_pages: u64,
}

impl Buddy {
    /// An allocator without chunks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a chunk, wholly free, and returns its number; numbers count up from 0. The only function here
    /// that allocates memory (about 256 bytes a chunk), so the others can run where that is forbidden.
    ///
    /// # Panics
    /// If there are 2^32 chunks.
    pub fn add_chunk(&mut self) -> u32 {
        let chunk = u32::try_from(self.chunks.len()).expect("chunks are numbered in 32 bits");
        self.chunks.push(Chunk::default());
        self.index.iter_mut().for_each(|index| index.grow(self.chunks.len()));
        self.retired.grow(self.chunks.len());
        self.withheld.grow(self.chunks.len());
        self.mark_free(chunk, ROOT, ORDER_MAX);
        self.free_pages += CHUNK_PAGES as u64;
        chunk
    }

    /// A block of `2^order` pages, or `None` if no block that large is free.
    ///
    /// # Panics
    /// If `order` is larger than that of a chunk.
    pub fn allocate(&mut self, order: u8) -> Option<Block> {
        assert!(order <= ORDER_MAX, "block larger than a chunk");
        let (found_order, chunk) =
            (order..=ORDER_MAX).find_map(|order| Some((order, self.index[order as usize].first()?)))?;
        let mut node = self.chunks[chunk as usize].first_free(found_order);
        self.unmark_free(chunk, node, found_order);
        for split_order in (order..found_order).rev() {
            node *= 2;
            self.mark_free(chunk, node + 1, split_order);
        }
        self.chunks[chunk as usize].allocated.insert(node);
        self.free_pages -= 1 << order;
        Some(Block { chunk, page: ((node - first_node(order)) << order) as u16, order })
    }

    /// Takes back a block that [`Buddy::allocate`] gave out, and merges it with its free buddies.
    ///
    /// # Panics
    /// If the block is not allocated just so: freed before, never given out, or of another order.
    pub fn free(&mut self, block: Block) {
        let Block { chunk, mut order, .. } = block;
        assert!((chunk as usize) < self.chunks.len(), "block of a chunk that was never added");
        let mut node = block.node();
        let state = &mut self.chunks[chunk as usize];
        assert!(state.allocated.contains(node), "block is not allocated: freed twice, or of another order");
        state.allocated.remove(node);
        if !self.withheld.contains(chunk) {
            self.free_pages += 1 << order;
        }
        while node != ROOT && self.chunks[chunk as usize].free.contains(node ^ 1) {
            self.unmark_free(chunk, node ^ 1, order);
            node /= 2;
            order += 1;
        }
        self.mark_free(chunk, node, order);
    }

    /// From now on each page of an allocated block is a block of its own, to be freed by itself.
    ///
    /// # Panics
    /// As [`Buddy::free`].
    pub fn break_up(&mut self, block: Block) {
        let allocated = &mut self.chunks[block.chunk as usize].allocated;
        assert!(
            allocated.contains(block.node()),
            "block is not allocated: freed before, or of another order"
        );
        allocated.remove(block.node());
        let pages = block.page..block.page + (1 << block.order);
        pages.for_each(|page| allocated.insert(Block { page, order: 0, ..block }.node()));
    }

    /// Takes the wholly free chunk with the highest number out of circulation, because allocation prefers the lowest:
    /// no block of it is given out until [`Buddy::restore`]. `None` if no chunk is wholly free.
    ///
    /// ```
    /// # use headwater_core::buddy::Buddy;
    /// let mut buddy = Buddy::new();
    /// buddy.add_chunk();
    /// assert_eq!((buddy.retire(), buddy.allocate(0)), (Some(0), None));
    /// buddy.restore(0);
    /// assert_eq!((buddy.allocate(0).is_some(), buddy.retire()), (true, None));
    /// ```
    pub fn retire(&mut self) -> Option<u32> {
        let chunk = self.index[ORDER_MAX as usize].last()?;
        self.unmark_free(chunk, ROOT, ORDER_MAX);
        self.retired.insert(chunk);
        self.free_pages -= CHUNK_PAGES as u64;
        Some(chunk)
    }

    /// The retired chunk with the lowest number, if any is.
    pub fn first_retired(&self) -> Option<u32> {
        self.retired.first()
    }

    /// Puts a chunk back into circulation, wholly free.
    ///
    /// # Panics
    /// If the chunk was not retired.
    pub fn restore(&mut self, chunk: u32) {
        assert!((chunk as usize) < self.chunks.len(), "a chunk that was never added");
        assert!(self.retired.contains(chunk), "a chunk that is in circulation");
        self.retired.remove(chunk);
        self.mark_free(chunk, ROOT, ORDER_MAX);
        self.free_pages += CHUNK_PAGES as u64;
    }

    /// From now on no block of this chunk is given out until [`Buddy::reinstate`]; blocks that are allocated can be freed. Says how
    /// many of its pages are free; `None`, and nothing changes, if it is withheld already or out of circulation.
    ///
    /// ```
    /// # use headwater_core::buddy::Buddy;
    /// let mut buddy = Buddy::new();
    /// buddy.add_chunk();
    /// let block = buddy.allocate(0).unwrap();
    /// assert_eq!((buddy.withhold(0), buddy.allocate(0)), (Some(511), None));
    /// buddy.free(block);
    /// assert_eq!((buddy.free_pages(), buddy.free_pages_in(0)), (0, 512));
    /// buddy.reinstate(0);
    /// assert_eq!(buddy.free_pages(), 512);
    /// ```
    ///
    /// # Panics
    /// If the chunk was never added.
    pub fn withhold(&mut self, chunk: u32) -> Option<u32> {
        assert!((chunk as usize) < self.chunks.len(), "a chunk that was never added");
        if self.withheld.contains(chunk) || self.retired.contains(chunk) {
            return None;
        }
        let free_pages = self.free_pages_in(chunk);
        self.index.iter_mut().for_each(|index| index.remove(chunk));
        self.withheld.insert(chunk);
        self.free_pages -= u64::from(free_pages);
        Some(free_pages)
    }

    /// Gives out blocks of a chunk again.
    ///
    /// # Panics
    /// Unless it is withheld.
    pub fn reinstate(&mut self, chunk: u32) {
        self.end_withholding(chunk);
        let state = &self.chunks[chunk as usize];
        (0..=ORDER_MAX)
            .filter(|order| state.has_free(*order))
            .for_each(|order| self.index[order as usize].insert(chunk));
        self.free_pages += u64::from(self.free_pages_in(chunk));
    }

    /// Takes a withheld chunk that is wholly free out of circulation, as [`Buddy::retire`] does with one that is not withheld. Says
    /// whether it was wholly free; if not, nothing changes.
    ///
    /// # Panics
    /// If the chunk is not withheld.
    pub fn retire_withheld(&mut self, chunk: u32) -> bool {
        assert!(self.is_withheld(chunk), "a chunk that is not withheld");
        if !self.chunks[chunk as usize].has_free(ORDER_MAX) {
            return false;
        }
        self.end_withholding(chunk);
        self.chunks[chunk as usize].free.remove(ROOT);
        self.retired.insert(chunk);
        true
    }

    /// Whether the chunk is withheld.
    ///
    /// # Panics
    /// If the chunk was never added.
    pub fn is_withheld(&self, chunk: u32) -> bool {
        assert!((chunk as usize) < self.chunks.len(), "a chunk that was never added");
        self.withheld.contains(chunk)
    }

    fn end_withholding(&mut self, chunk: u32) {
        assert!(self.is_withheld(chunk), "a chunk that is not withheld");
        self.withheld.remove(chunk);
    }

    /// Pages of one chunk that are free, given out or not; none of a retired one.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn free_pages_in(&self, chunk: u32) -> u32 {
        self.chunks[chunk as usize].free_pages()
    }

    /// Pages that are free, in blocks of whatever order, without those of withheld chunks.
    pub fn free_pages(&self) -> u64 {
        self.free_pages
    }

    /// The largest order that [`Buddy::allocate`] could serve now; `None` if nothing is free.
    pub fn largest_free_order(&self) -> Option<u8> {
        (0..=ORDER_MAX).rev().find(|order| self.index[*order as usize].first().is_some())
    }

    /// Chunks added so far.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Asserts B1 to B3 over every chunk; takes time in proportion to their number.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        let mut free_pages = 0;
        for (chunk, state) in (0u32..).zip(&self.chunks) {
            if self.retired.contains(chunk) {
                state.check_retired();
            } else {
                let pages = state.check();
                free_pages += if self.withheld.contains(chunk) { 0 } else { pages };
            }
            for order in 0..=ORDER_MAX {
                let is_indexed = self.index[order as usize].contains(chunk);
                let is_given_out = state.has_free(order) && !self.withheld.contains(chunk);
                assert!(is_indexed == is_given_out, "B3: chunk {chunk}, order {order}");
            }
        }
        assert!(free_pages == self.free_pages, "the count of free pages is off");
        self.index.iter().chain([&self.retired, &self.withheld]).for_each(ChunkIndex::check);
    }

    fn mark_free(&mut self, chunk: u32, node: usize, order: u8) {
        self.chunks[chunk as usize].free.insert(node);
        if !self.withheld.contains(chunk) {
            self.index[order as usize].insert(chunk);
        }
    }

    fn unmark_free(&mut self, chunk: u32, node: usize, order: u8) {
        let state = &mut self.chunks[chunk as usize];
        state.free.remove(node);
        if !state.has_free(order) {
            self.index[order as usize].remove(chunk);
        }
    }
}

/// State of one chunk: 256 bytes, four cache lines.
#[derive(Clone, Debug, Default)]
struct Chunk {
    free: NodeSet,
    allocated: NodeSet,
}

impl Chunk {
    fn has_free(&self, order: u8) -> bool {
        self.free.first_of(order).is_some()
    }

    /// The free node of this order at the lowest page.
    ///
    /// # Panics
    /// If there is none, against B3.
    fn first_free(&self, order: u8) -> usize {
        self.free.first_of(order).expect("B3: an indexed chunk has a free block of the order")
    }

    fn free_pages(&self) -> u32 {
        (0..=ORDER_MAX).map(|order| self.free.count_of(order) << order).sum()
    }

    /// Asserts that there are no blocks.
    fn check_retired(&self) {
        let nodes = self.free.0.iter().chain(&self.allocated.0);
        assert!(nodes.copied().all(|word| word == 0), "B1: a retired chunk has blocks");
    }

    /// Asserts B1 and B2 and returns how many pages are free.
    fn check(&self) -> u64 {
        let (mut free_pages, mut pages_seen) = (0, 0);
        for order in 0..=ORDER_MAX {
            for node in first_node(order)..2 * first_node(order) {
                let (is_free, is_allocated) = (self.free.contains(node), self.allocated.contains(node));
                assert!(!(is_free && is_allocated), "B1: node {node} is free and allocated");
                assert!(node == ROOT || !is_free || !self.free.contains(node ^ 1), "B2: node {node}");
                free_pages += u64::from(is_free) << order;
                pages_seen += u64::from(is_free || is_allocated) << order;
                assert!(!(is_free || is_allocated) || !self.is_below_block(node), "B1: node {node} overlaps");
            }
        }
        assert!(pages_seen == CHUNK_PAGES as u64, "B1: pages are lost");
        free_pages
    }

    fn is_below_block(&self, node: usize) -> bool {
        core::iter::successors(Some(node / 2), |node| Some(node / 2))
            .take_while(|node| *node >= ROOT)
            .any(|node| self.free.contains(node) || self.allocated.contains(node))
    }
}

/// A set of a chunk's nodes; bit `n` stands for node `n`, bit 0 for none.
#[derive(Clone, Debug, Default)]
struct NodeSet([u64; NODES / 64]);

impl NodeSet {
    fn contains(&self, node: usize) -> bool {
        self.0[node / 64] & (1 << (node % 64)) != 0
    }

    fn insert(&mut self, node: usize) {
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn remove(&mut self, node: usize) {
        self.0[node / 64] &= !(1 << (node % 64));
    }

    /// How many members are of this order.
    fn count_of(&self, order: u8) -> u32 {
        let first = first_node(order);
        if first < 64 {
            return (self.0[0] & (((1 << first) - 1) << first)).count_ones();
        }
        self.0[first / 64..first / 32].iter().map(|word| word.count_ones()).sum()
    }

    /// The lowest member of this order. The orders from 4 up share the first word, the others have words to
    /// themselves.
    fn first_of(&self, order: u8) -> Option<usize> {
        let first = first_node(order);
        if first < 64 {
            let members = self.0[0] & (((1 << first) - 1) << first);
            return (members != 0).then(|| members.trailing_zeros() as usize);
        }
        (first / 64..first / 32)
            .find(|word| self.0[*word] != 0)
            .map(|word| word * 64 + self.0[word].trailing_zeros() as usize)
    }
}

/// The node of this order at page 0; there are as many nodes of the order as this number.
const fn first_node(order: u8) -> usize {
    1 << (ORDER_MAX - order)
}
const CHUNK_PAGES: usize = CHUNK_BYTES / PAGE_BYTES;
const ORDERS: usize = ORDER_MAX as usize + 1;
const ROOT: usize = 1;
const NODES: usize = 2 * CHUNK_PAGES;

const _: () = assert!(CHUNK_PAGES == 1 << ORDER_MAX);
