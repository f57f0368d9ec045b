//! Page table against a sorted map: one set of nodes under several tables, until it is used up.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use headwater_core::frame::FileId;
use headwater_core::table::{FreeNodes, NoNode, Nodes, PageTable};
use headwater_core::{FrameId, PageIndex};
use proptest::prelude::*;

const TABLES: usize = 3;

const PAGES: u64 = 1 << 52;

/// Leaves and directories come in segments of this many.
const SEGMENT_NODES: usize = 64;

/// Pages in a map, and for each table how many levels of directories it has: as many as its furthest page needed since
/// it was empty.
struct Naive {
    pages: [BTreeMap<u64, u32>; TABLES],
    levels: [u32; TABLES],
    nodes_max: (usize, usize),
}

impl Naive {
    fn new(frames_max: u32) -> Naive {
        let whole_segments = |nodes: u32| (nodes as usize).next_multiple_of(SEGMENT_NODES);
        let nodes_max = (whole_segments(frames_max), whole_segments(frames_max / 12 + 32));
        Naive { pages: Default::default(), levels: [0; TABLES], nodes_max }
    }

    fn insert(&mut self, table: usize, page: u64, frame: u32) -> Result<(), NoNode> {
        let level = self.levels[table];
        self.levels[table] = (level..).find(|level| page >> (4 + 6 * level) == 0).unwrap();
        self.pages[table].insert(page, frame);
        let (leaves, directories) = self.nodes();
        if leaves > self.nodes_max.0 || directories > self.nodes_max.1 {
            self.pages[table].remove(&page);
            self.levels[table] = level;
            return Err(NoNode);
        }
        Ok(())
    }

    fn remove(&mut self, table: usize, page: u64) -> Option<u32> {
        let frame = self.pages[table].remove(&page);
        if self.pages[table].is_empty() {
            self.levels[table] = 0;
        }
        frame
    }

    /// Leaves and directories on the way to the pages that are there.
    fn nodes(&self) -> (usize, usize) {
        let count = |table: usize, level: u32| {
            let nodes: BTreeSet<u64> = self.pages[table].keys().map(|page| page >> (4 + 6 * level)).collect();
            nodes.len()
        };
        let leaves = (0..TABLES).map(|table| count(table, 0)).sum();
        let levels = (0..TABLES).flat_map(|table| (1..=self.levels[table]).map(move |level| (table, level)));
        (leaves, levels.map(|(table, level)| count(table, level)).sum())
    }
}

struct Pair {
    naive: Naive,
    nodes: Nodes,
    free: FreeNodes,
    tables: [PageTable; TABLES],
    frames: u32,
}

impl Pair {
    fn new(frames_max: u32) -> Pair {
        Pair {
            naive: Naive::new(frames_max),
            nodes: Nodes::new(frames_max),
            free: FreeNodes::default(),
            tables: [0, 1, 2].map(|file| PageTable::new(FileId::new(file))),
            frames: 0,
        }
    }

    /// Removes the page if it is there, and enters it if not.
    fn toggle(&mut self, table: usize, page: u64) {
        let (real, index) = (&self.tables[table], PageIndex::new(page));
        if let Some(frame) = self.naive.remove(table, page) {
            assert_eq!(real.remove(&self.nodes, &mut self.free, index), FrameId::new(frame));
        } else {
            self.frames += 1;
            let entered = real.insert(&self.nodes, &mut self.free, index, FrameId::new(self.frames));
            assert_eq!(entered, self.naive.insert(table, page, self.frames), "page {page:#x}");
        }
    }

    /// Enters another frame for the page, if it is there.
    fn replace(&mut self, table: usize, page: u64) {
        if let Some(frame) = self.naive.pages[table].get_mut(&page) {
            self.frames += 1;
            *frame = self.frames;
            self.tables[table].replace(&self.nodes, PageIndex::new(page), FrameId::new(self.frames));
        }
    }

    fn next(&self, table: usize, from: u64) -> Option<(u64, u32)> {
        let next = self.tables[table].next(&self.nodes, PageIndex::new(from));
        next.map(|(page, frame)| (page.get(), frame.get()))
    }

    fn compare_at(&self, table: usize, page: u64) {
        let naive = &self.naive.pages[table];
        let found = self.tables[table].find(&self.nodes, PageIndex::new(page)).map(FrameId::get);
        assert_eq!(found, naive.get(&page).copied());
        assert_eq!(self.next(table, page), naive.range(page..).next().map(|(page, frame)| (*page, *frame)));
    }

    fn compare(&self) {
        for (table, naive) in self.tables.iter().zip(&self.naive.pages) {
            assert_eq!(table.check(&self.nodes), naive.len() as u64);
            assert_eq!(table.is_empty(), naive.is_empty());
        }
        let (leaves, directories) = self.naive.nodes();
        assert_eq!(self.free.used() as usize, leaves + directories);
    }

    fn compare_all(&self) {
        for (table, naive) in self.naive.pages.iter().enumerate() {
            let first = self.next(table, 0);
            let all = std::iter::successors(first, |(page, _)| self.next(table, page + 1));
            assert!(all.eq(naive.iter().map(|(page, frame)| (*page, *frame))));
        }
    }
}

/// Clustered, in steps of a leaf, a directory and more, at the borders of levels, at the end, and anywhere.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..40u64,
        3 => (0..70u64).prop_map(|page| page << 4),
        2 => (0..70u64).prop_map(|page| page << 10),
        2 => (0..52u32, 0..3u64).prop_map(|(bit, off)| ((1u64 << bit) + off).saturating_sub(1).min(PAGES - 1)),
        2 => (1..20u64).prop_map(|page| PAGES - page),
        1 => 0..PAGES,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Goal: T1 and T2; what is entered is found, in order, and nothing else; a table that finds no node is as it was; at
    /// the end every node is free. Method: random pages of three tables are entered and removed in turn, and others replaced.
    #[test]
    #[cfg_attr(miri, ignore)] // minutes there
    fn equals_a_sorted_map(
        frames_max in prop_oneof![Just(1u32), Just(64), Just(5000)],
        steps in prop::collection::vec((0..TABLES, page(), page()), 1..300),
    ) {
        let mut pair = Pair::new(frames_max);
        for (table, page, other) in steps {
            pair.toggle(table, page);
            pair.replace(table, other);
            pair.compare();
            pair.compare_at(table, page);
            pair.compare_at((table + 1) % TABLES, page);
            pair.compare_at(table, other);
        }
        pair.compare_all();
        for table in 0..TABLES {
            let pages: Vec<u64> = pair.naive.pages[table].keys().copied().collect();
            pages.into_iter().for_each(|page| pair.toggle(table, page));
        }
        pair.compare();
        prop_assert_eq!(pair.free.used(), 0);
    }
}

/// Goal: when no directory is left, pages that need none are still entered, and the others again once one is given back.
/// Method: lone pages far apart until none fits, then their neighbours.
#[test]
fn a_full_pool_refuses_only_what_needs_it() {
    let mut pair = Pair::new(64);
    let lone: Vec<u64> = (0..64).map(|place| place << 10).collect();
    lone.iter().for_each(|page| pair.toggle(0, *page));
    assert_eq!(pair.naive.nodes().1, 64, "all directories are used");
    let (entered, refused): (Vec<u64>, Vec<u64>) =
        lone.iter().partition(|page| pair.naive.pages[0].contains_key(page));
    pair.compare_all();
    entered[..5].iter().for_each(|page| pair.toggle(0, page + 1));
    assert_eq!(pair.naive.pages[0].len(), entered.len() + 5);
    pair.toggle(0, entered[10]);
    pair.toggle(0, refused[0]);
    assert!(pair.naive.pages[0].contains_key(&refused[0]));
    pair.compare();
    pair.compare_all();
}

/// Goal: what cannot be done panics and changes nothing. Method: pages that are not there within and beyond the table's
/// reach, one that is, and numbers that are none.
#[test]
fn impossible_calls_panic_and_change_nothing() {
    for there in [0, 3, 1 << 20, PAGES - 1] {
        let mut pair = Pair::new(64);
        pair.toggle(0, there);
        let Pair { nodes, free, tables, .. } = &mut pair;
        let free = std::sync::Mutex::new(free);
        let locked = || free.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let index = PageIndex::new;
        for absent in [1, 16, there ^ (1 << 4), there ^ (1 << 30), PAGES] {
            let removed = catch_unwind(|| tables[0].remove(nodes, &mut locked(), index(absent)));
            assert!(removed.is_err(), "removed {absent:#x} with only {there:#x} there");
            let replaced = catch_unwind(|| tables[0].replace(nodes, index(absent), FrameId::new(9)));
            assert!(replaced.is_err(), "replaced {absent:#x} with only {there:#x} there");
        }
        assert!(catch_unwind(|| tables[1].remove(nodes, &mut locked(), index(there))).is_err());
        assert!(catch_unwind(|| tables[1].replace(nodes, index(there), FrameId::new(9))).is_err());
        assert!(catch_unwind(|| tables[0].replace(nodes, index(there), FrameId::new(u32::MAX))).is_err());
        for (page, frame) in [(there, 9), (PAGES, 9), (there ^ (1 << 30), u32::MAX)] {
            let insert = || tables[0].insert(nodes, &mut locked(), index(page), FrameId::new(frame));
            assert!(catch_unwind(insert).is_err(), "entered {page:#x} with {there:#x} there");
        }
        assert_eq!(tables[0].find(nodes, index(PAGES)), None);
        assert_eq!(tables[0].next(nodes, index(PAGES)), None);
        pair.compare();
        pair.compare_all();
    }
}

/// Metadata of the nodes for these pages, in bytes a page, without the fixed part.
fn bytes_per_page(frames_max: u32, pages: impl Iterator<Item = u64>) -> f64 {
    let nodes = Nodes::new(frames_max);
    let fixed = nodes.metadata_bytes();
    let (table, mut free) = (PageTable::new(FileId::new(0)), FreeNodes::default());
    let mut count = 0;
    for page in pages {
        count += 1;
        table.insert(&nodes, &mut free, PageIndex::new(page), FrameId::new(0)).unwrap();
    }
    (nodes.metadata_bytes() - fixed) as f64 / f64::from(count)
}

/// Random numbers below `end`, each once.
fn random_pages(count: usize, end: u64) -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    let mut seen = BTreeSet::new();
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 12) % end
    })
    .filter(move |page| seen.insert(*page))
    .take(count)
}

/// Goal: the table costs a tenth of a percent where pages lie together, and one leaf and its share of the directories
/// where they do not. Method: bytes a page for 64 MiB of a file, for 16 384 pages further and further apart, and at random.
#[test]
#[cfg_attr(miri, ignore)] // a hundred thousand pages
fn nodes_cost_what_the_layout_needs() {
    let frames_max = 1 << 20;
    let dense = bytes_per_page(frames_max, 0..16384);
    assert!((4.0..=5.1).contains(&dense), "64 MiB in order: {dense}");
    let each_leaf = bytes_per_page(frames_max, (0..16384).map(|page| page << 4));
    assert!((64.0..=69.0).contains(&each_leaf), "one page in each 64 KiB: {each_leaf}");
    let each_directory = bytes_per_page(frames_max, (0..16384).map(|page| page << 10));
    assert!((320.0..=326.0).contains(&each_directory), "one page in each 4 MiB: {each_directory}");
    let random = bytes_per_page(frames_max, random_pages(16384, 1 << 28));
    assert!((320.0..=390.0).contains(&random), "at random in 1 TiB: {random}");
}

/// Goal: however the pages lie, all nodes together stay below 72 bytes a frame and what a few directories cost. Method:
/// enter random pages of 1 TiB until all frames are used or nothing fits.
#[test]
#[cfg_attr(miri, ignore)] // a hundred thousand pages
fn nodes_cost_no_more_than_the_budget() {
    let frames_max = 1 << 14;
    let nodes = Nodes::new(frames_max);
    let (table, mut free) = (PageTable::new(FileId::new(0)), FreeNodes::default());
    let entered = random_pages(frames_max as usize, 1 << 28)
        .filter(|page| table.insert(&nodes, &mut free, PageIndex::new(*page), FrameId::new(0)).is_ok())
        .count();
    assert_eq!(table.check(&nodes), entered as u64);
    let budget_bytes = frames_max as usize * 72 + 64 * 256 + 4096;
    assert!(nodes.metadata_bytes() <= budget_bytes, "{} bytes", nodes.metadata_bytes());
}
