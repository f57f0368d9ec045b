//! Page table: which frame holds which page of a file, found without a lock and without hashing.
//!
//! ```text
//!   page 0b…  [ directory: 6 bits each, as many levels as the file needs ] [ leaf: 4 bits ]
//!
//!   root ─► directory (64 slots) ─► … ─► leaf (16 slots) ─► frame
//! ```
//!
//! A leaf is one cache line and covers 64 KiB of the file; a directory node has 64 slots. The root says how deep the
//! table is: 16 pages, 1024, 65 536, … up to every page of a 64-bit offset. Nodes exist only on the way to pages that
//! are there, so a sparse set costs little: a lone page 64 bytes of leaf, and a directory node for each 4 MiB in which
//! there is anything.
//!
//! Nodes are numbered in pools that never shrink, and are used again for other files. A reader without a lock may
//! therefore walk through a node that has become another file's, and find a wrong frame or none: the frame knows whose
//! page it holds ([`crate::frame`]), so a wrong one is noticed, and a page that seems absent is looked up again
//! under the lock before the cache acts on it.
//!
//! Invariants: T1 a page that is there has one path, all of whose nodes are this table's. T2 no node is empty but a root
//! of nothing. T3 a node in no table has empty slots, but for the number of the next free one.
//! Locks: `find` and `next` none; everything that takes [`FreeNodes`] is called under the cache's control lock.
//! Hot path: `find` loads the root, a slot for each level, nothing else.
//
// Owns: the nodes and their numbers.
// Does not own: frames.

use alloc::vec::Vec;

use crate::apart::{Apart, apart};
use crate::frame::FileId;
use crate::slots::Slots;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{FrameId, PageIndex};

/// The pages of one file that are in memory or on their way.
#[derive(Debug)]
pub struct PageTable {
    file: FileId,
    /// Number of the root node plus one, and above it the number of levels; 0 when there are no pages.
    root: AtomicU64,
}

/// No node, or no memory for one, is left: the page cannot be entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoNode;

impl core::fmt::Display for NoNode {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("no node is left for the page table")
    }
}

impl core::error::Error for NoNode {}

/// The nodes of all tables of one cache.
#[derive(Debug)]
pub struct Nodes {
    leaves: Pool<LEAF_SLOTS>,
    directories: Pool<DIRECTORY_SLOTS>,
}

/// Which nodes are in no table. Access to this is permission to change tables.
#[derive(Debug, Default)]
pub struct FreeNodes {
    leaves: Free,
    directories: Free,
}

impl PageTable {
    /// An empty table.
    pub fn new(file: FileId) -> Self {
        Self { file, root: AtomicU64::new(0) }
    }

    /// The file number in the identity of its frames.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The frame that seems to hold the page. Without the lock, it may be another page's, and `None` may be untrue.
    #[inline]
    pub fn find(&self, nodes: &Nodes, page: PageIndex) -> Option<FrameId> {
        frame_in(&self.leaf(nodes, page)?[slot_of(page, 0)])
    }

    /// The frames that seem to hold the page and those behind it, in the same way: up to the first that is missing, and at most those
    /// that one leaf names.
    #[inline]
    pub fn find_run<'a>(&self, nodes: &'a Nodes, page: PageIndex) -> impl Iterator<Item = FrameId> + use<'a> {
        let slots = self.leaf(nodes, page).map_or(&[][..], |leaf| &leaf[slot_of(page, 0)..]);
        slots.iter().map_while(frame_in)
    }

    #[inline]
    fn leaf<'a>(&self, nodes: &'a Nodes, page: PageIndex) -> Option<&'a [AtomicU32; LEAF_SLOTS]> {
        let (mut node, mut level) = unpack(self.root.load(Ordering::Acquire))?;
        if page.get() >> pages_shift(level) != 0 {
            return None;
        }
        while level > 0 {
            let slots = nodes.directories.get(node)?;
            node = slots[slot_of(page, level)].load(Ordering::Acquire).checked_sub(1)?;
            level -= 1;
        }
        nodes.leaves.get(node)
    }

    /// Enters a page.
    ///
    /// # Errors
    /// When there is no node for it; nothing has changed then.
    ///
    /// # Panics
    /// If `frame` is the largest number.
    pub fn insert(
        &self,
        nodes: &Nodes,
        free: &mut FreeNodes,
        page: PageIndex,
        frame: FrameId,
    ) -> Result<(), NoNode> {
        let entry = frame.get().checked_add(1).expect("the largest number is no frame's");
        let (leaves, directories) = self.missing(nodes, page);
        nodes.leaves.prepare(&mut free.leaves, leaves)?;
        nodes.directories.prepare(&mut free.directories, directories)?;
        self.deepen(nodes, free, page);
        let (mut node, mut level) = unpack(self.root.load(Ordering::Acquire)).expect("there is a root now");
        while level > 0 {
            let slot = &nodes.directories[node][slot_of(page, level)];
            level -= 1;
            node = match slot.load(Ordering::Acquire).checked_sub(1) {
                Some(child) => child,
                None => {
                    let child = nodes.take(free, level);
                    slot.store(child + 1, Ordering::Release);
                    child
                }
            };
        }
        let slot = &nodes.leaves[node][slot_of(page, 0)];
        assert!(slot.load(Ordering::Acquire) == 0, "T1: a page is entered once");
        slot.store(entry, Ordering::Release);
        Ok(())
    }

    /// Replaces the frame of a page in the table. Lookups without the lock find one or the other.
    ///
    /// # Panics
    /// If the page is not there.
    pub fn replace(&self, nodes: &Nodes, page: PageIndex, frame: FrameId) {
        let entry = frame.get().checked_add(1).expect("the largest number is no frame's");
        let slot = &self.leaf(nodes, page).expect("the page is there")[slot_of(page, 0)];
        assert!(slot.load(Ordering::Acquire) != 0, "T1: only a page that is there is replaced");
        slot.store(entry, Ordering::Release);
    }

    /// How many leaves and directories the path to the page lacks.
    fn missing(&self, nodes: &Nodes, page: PageIndex) -> (u32, u32) {
        let top = level_for(page);
        let Some((mut node, mut level)) = unpack(self.root.load(Ordering::Acquire)) else {
            return (1, top);
        };
        if top > level {
            // Roots above the root, and a path of its own below the topmost: the others lead to what was there.
            return (1, top - level + top - 1);
        }
        while level > 0 {
            level -= 1;
            node = match nodes.directories[node][slot_of(page, level + 1)]
                .load(Ordering::Acquire)
                .checked_sub(1)
            {
                Some(child) => child,
                None => return (1, level),
            };
        }
        (0, 0)
    }

    /// Puts roots above the root until the page is within reach.
    fn deepen(&self, nodes: &Nodes, free: &mut FreeNodes, page: PageIndex) {
        loop {
            let root = match unpack(self.root.load(Ordering::Acquire)) {
                None => {
                    let level = level_for(page);
                    pack(nodes.take(free, level), level)
                }
                Some((_, level)) if page.get() >> pages_shift(level) == 0 => return,
                Some((node, level)) => {
                    let above = nodes.take(free, level + 1);
                    nodes.directories[above][0].store(node + 1, Ordering::Release);
                    pack(above, level + 1)
                }
            };
            self.root.store(root, Ordering::Release);
        }
    }

    /// Takes a page out, and the nodes that are empty then.
    ///
    /// # Panics
    /// If the page is not there.
    pub fn remove(&self, nodes: &Nodes, free: &mut FreeNodes, page: PageIndex) -> FrameId {
        let (root, level) = unpack(self.root.load(Ordering::Acquire)).expect("the page is there");
        assert!(page.get() >> pages_shift(level) == 0, "the page is there");
        let (frame, left) = nodes.remove(free, root, level, page);
        if left == Left::Nothing {
            self.root.store(0, Ordering::Release);
            nodes.give_back(free, root, level);
        }
        frame
    }

    /// The first page from `from` on that is there. Without the lock, no truer than `find`.
    pub fn next(&self, nodes: &Nodes, from: PageIndex) -> Option<(PageIndex, FrameId)> {
        let (root, level) = unpack(self.root.load(Ordering::Acquire))?;
        if from.get() >> pages_shift(level) != 0 {
            return None;
        }
        nodes.next(root, level, 0, from.get())
    }

    /// Whether no page is there.
    pub fn is_empty(&self) -> bool {
        self.root.load(Ordering::Acquire) == 0
    }

    /// Asserts T2 for every node, and counts the pages. The caller holds the lock.
    pub fn check(&self, nodes: &Nodes) -> u64 {
        unpack(self.root.load(Ordering::Acquire)).map_or(0, |(root, level)| nodes.check(root, level))
    }
}

impl Nodes {
    /// Nodes for as many pages as there can be frames, however they lie.
    pub fn new(frames_max: u32) -> Self {
        // A page in each leaf; a directory of 4 MiB for each 128 KiB of memory: files up to 32 times the memory, touched
        // anywhere. Beyond that fewer pages are cached.
        let directories_max = frames_max / FRAMES_PER_DIRECTORY + 4 * LEVELS_MAX;
        Self { leaves: Pool::new(frames_max), directories: Pool::new(directories_max) }
    }

    /// Memory of the nodes that are there, bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.leaves.metadata_bytes() + self.directories.metadata_bytes()
    }

    fn take(&self, free: &mut FreeNodes, level: u32) -> u32 {
        match level {
            0 => self.leaves.take(&mut free.leaves),
            _ => self.directories.take(&mut free.directories),
        }
    }

    fn give_back(&self, free: &mut FreeNodes, node: u32, level: u32) {
        match level {
            0 => self.leaves.give_back(&mut free.leaves, node),
            _ => self.directories.give_back(&mut free.directories, node),
        }
    }

    fn get(&self, node: u32, level: u32) -> Option<&[AtomicU32]> {
        match level {
            0 => Some(self.leaves.get(node)?),
            _ => Some(self.directories.get(node)?),
        }
    }

    fn slots(&self, node: u32, level: u32) -> &[AtomicU32] {
        self.get(node, level).expect("nodes in use are there")
    }

    fn is_empty(&self, node: u32, level: u32) -> bool {
        self.slots(node, level).iter().all(|slot| slot.load(Ordering::Acquire) == 0)
    }

    fn remove(&self, free: &mut FreeNodes, node: u32, level: u32, page: PageIndex) -> (FrameId, Left) {
        let slot = &self.slots(node, level)[slot_of(page, level)];
        let child = slot.load(Ordering::Acquire).checked_sub(1).expect("the page is there");
        let frame = match level {
            0 => FrameId::new(child),
            _ => match self.remove(free, child, level - 1, page) {
                (frame, Left::Something) => return (frame, Left::Something),
                (frame, Left::Nothing) => frame,
            },
        };
        slot.store(0, Ordering::Release);
        if level > 0 {
            self.give_back(free, child, level - 1);
        }
        (frame, if self.is_empty(node, level) { Left::Nothing } else { Left::Something })
    }

    /// `before` are the pages left of the node; the result is not left of `from`.
    fn next(&self, node: u32, level: u32, before: u64, from: u64) -> Option<(PageIndex, FrameId)> {
        let span_shift = slot_shift(level);
        let first = from.saturating_sub(before) >> span_shift;
        // Without the lock, a node that has become another level's leads to numbers that no node has.
        let slots = self.get(node, level)?.iter().enumerate().skip(first as usize);
        slots
            .filter_map(|(place, slot)| Some((place, slot.load(Ordering::Acquire).checked_sub(1)?)))
            .find_map(|(place, child)| {
                let at = before + ((place as u64) << span_shift);
                match level {
                    0 => Some((PageIndex::new(at), FrameId::new(child))),
                    _ => self.next(child, level - 1, at, from),
                }
            })
    }

    fn check(&self, node: u32, level: u32) -> u64 {
        assert!(!self.is_empty(node, level), "T2: a node is empty");
        let children =
            self.slots(node, level).iter().filter_map(|slot| slot.load(Ordering::Acquire).checked_sub(1));
        match level {
            0 => children.count() as u64,
            _ => children.map(|child| self.check(child, level - 1)).sum(),
        }
    }
}

impl FreeNodes {
    /// Nodes that are in tables.
    pub fn used(&self) -> u32 {
        self.leaves.used + self.directories.used
    }
}

/// What is left of a node after a page was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    Nothing,
    Something,
}

/// Nodes of one kind.
#[derive(Debug)]
struct Pool<const SLOTS: usize> {
    segments: Slots<[Apart<Node<SLOTS>>; SEGMENT_NODES]>,
}

/// The slots of one node; aligned, or a leaf would lie in two cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct Node<const SLOTS: usize>([AtomicU32; SLOTS]);

/// The free nodes of one kind: a list through their first slots.
#[derive(Debug, Default)]
struct Free {
    /// Number plus one of the first.
    first: u32,
    /// On the list.
    listed: u32,
    /// Nodes whose segment is there.
    made: u32,
    used: u32,
}

impl<const SLOTS: usize> Pool<SLOTS> {
    fn new(nodes_max: u32) -> Self {
        Self { segments: Slots::new((nodes_max as usize).div_ceil(SEGMENT_NODES)) }
    }

    #[inline]
    fn get(&self, node: u32) -> Option<&[AtomicU32; SLOTS]> {
        let (segment, place) = (node as usize / SEGMENT_NODES, node as usize % SEGMENT_NODES);
        Some(&self.segments.get(segment)?[place].0)
    }

    /// Makes sure that this many nodes are free.
    fn prepare(&self, free: &mut Free, count: u32) -> Result<(), NoNode> {
        while free.listed < count {
            let segment = free.made as usize / SEGMENT_NODES;
            if segment >= self.segments.count_max() {
                return Err(NoNode);
            }
            assert!(self.segments.get(segment).is_none(), "one at a time makes nodes");
            let mut nodes = Vec::new();
            nodes.try_reserve_exact(SEGMENT_NODES).map_err(|_| NoNode)?;
            let empty = || Node(core::array::from_fn(|_| AtomicU32::new(0)));
            nodes.extend((0..SEGMENT_NODES).map(|_| apart(empty())));
            let nodes = nodes.into_boxed_slice().try_into().expect("as many as were made");
            self.segments.set(segment, nodes).map_err(|_| NoNode)?;
            let made = free.made;
            free.made += SEGMENT_NODES as u32;
            (made..free.made).rev().for_each(|node| self.list(free, node));
        }
        Ok(())
    }

    fn list(&self, free: &mut Free, node: u32) {
        self[node][0].store(free.first, Ordering::Release);
        free.first = node + 1;
        free.listed += 1;
    }

    fn take(&self, free: &mut Free) -> u32 {
        let node = free.first.checked_sub(1).expect("prepared");
        free.first = self[node][0].swap(0, Ordering::AcqRel);
        free.listed -= 1;
        free.used += 1;
        node
    }

    fn give_back(&self, free: &mut Free, node: u32) {
        assert!(self[node].iter().all(|slot| slot.load(Ordering::Acquire) == 0), "T3: a used node is free");
        free.used -= 1;
        self.list(free, node);
    }

    fn metadata_bytes(&self) -> usize {
        let nodes_bytes = size_of::<[Node<SLOTS>; SEGMENT_NODES]>();
        self.segments.iter().count() * nodes_bytes + self.segments.table_bytes()
    }
}

impl<const SLOTS: usize> core::ops::Index<u32> for Pool<SLOTS> {
    type Output = [AtomicU32; SLOTS];

    fn index(&self, node: u32) -> &[AtomicU32; SLOTS] {
        self.get(node).expect("nodes in use are there")
    }
}

fn pack(node: u32, level: u32) -> u64 {
    u64::from(level) << 32 | u64::from(node + 1)
}

/// Node and level of a root.
#[inline]
fn unpack(root: u64) -> Option<(u32, u32)> {
    Some(((root as u32).checked_sub(1)?, (root >> 32) as u32))
}

/// The least deep table that reaches the page.
fn level_for(page: PageIndex) -> u32 {
    (0..=LEVELS_MAX)
        .find(|&level| page.get() >> pages_shift(level) == 0)
        .expect("the deepest reaches every page")
}

/// Binary logarithm of the pages under a slot of a node of this level.
#[inline]
fn slot_shift(level: u32) -> u32 {
    if level == 0 { 0 } else { LEAF_BITS + DIRECTORY_BITS * (level - 1) }
}

/// Binary logarithm of the pages under a node of this level.
#[inline]
fn pages_shift(level: u32) -> u32 {
    LEAF_BITS + DIRECTORY_BITS * level
}

#[inline]
fn frame_in(slot: &AtomicU32) -> Option<FrameId> {
    slot.load(Ordering::Acquire).checked_sub(1).map(FrameId::new)
}

#[inline]
fn slot_of(page: PageIndex, level: u32) -> usize {
    let slots = if level == 0 { LEAF_SLOTS } else { DIRECTORY_SLOTS };
    (page.get() >> slot_shift(level)) as usize & (slots - 1)
}

/// A leaf is one cache line: 16 frame numbers of 4 bytes.
const LEAF_BITS: u32 = 4;
const LEAF_SLOTS: usize = 1 << LEAF_BITS;

/// 256 bytes: an eighth of what 512 slots would cost where files are cached in a few places only, and at 8 GiB three
/// levels above the leaves, all but the last of which stay in the processor's first cache.
const DIRECTORY_BITS: u32 = 6;
const DIRECTORY_SLOTS: usize = 1 << DIRECTORY_BITS;

/// 4 + 8 × 6 bits are the 52 of a page number.
const LEVELS_MAX: u32 = 8;

/// Nodes are made this many at a time: 4 KiB of leaves, 16 KiB of directories.
const SEGMENT_NODES: usize = 64;

/// 22 bytes for each frame at most, 0.5 % of the memory: with all other metadata at its worst 3 %. A directory above
/// leaves reaches over 4 MiB, so this many hold pages spread over 85 times the memory.
const FRAMES_PER_DIRECTORY: u32 = 12;

const _: () = assert!(LEAF_BITS + DIRECTORY_BITS * LEVELS_MAX >= u64::BITS - crate::units::PAGE_SHIFT);
const _: () =
    assert!(size_of::<Node<LEAF_SLOTS>>() == 64 || cfg!(headwater_loom), "a leaf is one cache line");
