//! Dirty pages: which pages of a file are to be written, and which are being written.
//!
//! ```text
//!             mark                take               complete, written
//!   clean ───────────► dirty ───────────► writing ───────────────────────► clean
//!                        ▲                  │  │ mark
//!                        └── complete,  ────┘  ▼
//!                            failed         dirty and writing: written once more when this write is done
//! ```
//!
//! Two bits a page in leaves of 64 pages, in order: writeback takes pages sorted and in the longest runs there are,
//! which is what makes random writes cheap for the device.
//!
//! A page that was changed in part has its changed bytes noted besides ([`Parts`]), until it is taken: another program may
//! have written the bytes beside them, so a write-back writes these bytes and no others.
//!
//! Invariants: D1 (invariant 3 of the engine) a page that is being written is not taken. D2 the counts are those of the
//! bits. D3 there is no leaf without bits. D4 a page with noted parts is dirty, and they are neither none nor all of it.
//
// Owns: the bits, their counts, the changed bytes of pages that are dirty in part.
// Does not own: the pages, the time of writeback, waiting for it.

mod parts;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::units::{PageCount, PageIndex, PageRange};

pub use parts::Parts;

/// The pages of one file that its device does not have yet.
///
/// ```
/// # use headwater_core::dirty::{DirtyPages, Written};
/// # use headwater_core::{PageIndex, PageRange};
/// let pages = |start, end| PageRange::new(PageIndex::new(start), PageIndex::new(end));
/// let mut dirty = DirtyPages::new();
/// dirty.mark(pages(7, 9));
/// dirty.mark(pages(5, 7));
/// let taken = dirty.take(pages(0, 100), 64).unwrap();
/// assert_eq!((taken.pages, taken.parts), (pages(5, 9), None));
/// dirty.complete(taken.pages, Written::Yes);
/// assert!(dirty.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct DirtyPages {
    leaves: BTreeMap<u64, Leaf>,
    dirty_pages: u64,
    writing_pages: u64,
}

#[derive(Clone, Debug, Default)]
struct Leaf {
    dirty: u64,
    writing: u64,
    /// Dirty pages that are not changed as a whole.
    in_part: u64,
    /// The changed bytes of each of these, in order.
    parts: Vec<Parts>,
}

impl Leaf {
    /// Where the parts of a page are, or belong.
    fn place(&self, bit: u64) -> usize {
        (self.in_part & (bit - 1)).count_ones() as usize
    }

    fn parts_of(&self, bit: u64) -> Option<&Parts> {
        (self.in_part & bit != 0).then(|| &self.parts[self.place(bit)])
    }

    fn take_parts(&mut self, bit: u64) -> Option<Parts> {
        if self.in_part & bit == 0 {
            return None;
        }
        let parts = self.parts.remove(self.place(bit));
        self.in_part &= !bit;
        Some(parts)
    }

    /// The pages with these bits have no parts any more.
    fn forget_parts(&mut self, mask: u64) {
        let mut bits = self.in_part & mask;
        while bits != 0 {
            self.take_parts(bits & bits.wrapping_neg());
            bits &= bits - 1;
        }
    }

    /// These bytes of a page have changed. Says whether it was clean before.
    fn mark_part(&mut self, bit: u64, bytes: Range<u32>) -> bool {
        let is_new = self.dirty & bit == 0;
        if !is_new && self.in_part & bit == 0 {
            // Changed as a whole.
            return false;
        }
        let place = self.place(bit);
        if is_new {
            self.parts.insert(place, Parts::default());
            (self.dirty, self.in_part) = (self.dirty | bit, self.in_part | bit);
        }
        self.parts[place].add(bytes);
        if self.parts[place].is_whole() {
            self.take_parts(bit);
        }
        is_new
    }
}

/// Pages that are being written from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Which.
    pub pages: PageRange,
    /// The bytes to write of the page, which is alone then. `None` for whole pages.
    pub parts: Option<Parts>,
}

/// How writing pages ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// The device has them.
    Yes,
    /// It has not, so they are dirty again.
    No,
}

impl DirtyPages {
    /// None.
    pub const fn new() -> Self {
        Self { leaves: BTreeMap::new(), dirty_pages: 0, writing_pages: 0 }
    }

    /// The pages have changed as a whole. Says how many of them were not dirty before.
    pub fn mark(&mut self, pages: PageRange) -> u64 {
        let mut marked = 0;
        each_leaf(pages, |number, mask| {
            let leaf = self.leaves.entry(number).or_default();
            leaf.forget_parts(mask);
            marked += u64::from((mask & !leaf.dirty).count_ones());
            leaf.dirty |= mask;
        });
        self.dirty_pages += marked;
        marked
    }

    /// These bytes of the page have changed. Says how many pages were not dirty before: 0 or 1.
    ///
    /// # Panics
    /// If the bytes are none, or not of a page.
    pub fn mark_part(&mut self, page: PageIndex, bytes: Range<u32>) -> u64 {
        let (number, bit) = place_of(page);
        let marked = u64::from(self.leaves.entry(number).or_default().mark_part(bit, bytes));
        self.dirty_pages += marked;
        marked
    }

    /// Takes the first run of dirty pages within a range that are not being written, at most `pages_max` of them: they are
    /// being written from now on. A page that is dirty in part comes alone.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn take(&mut self, within: PageRange, pages_max: u64) -> Option<Taken> {
        let mut run = self.first_run(within, pages_max, |leaf| leaf.dirty & !leaf.writing)?;
        let mut parts = None;
        if let Some(page) = self.first_in_part(run) {
            if page == run.start {
                run.end = run.start + PageCount::new(1);
                let (number, bit) = place_of(page);
                parts = self.leaves.get_mut(&number).and_then(|leaf| leaf.take_parts(bit));
            } else {
                run.end = page;
            }
        }
        each_leaf(run, |number, mask| {
            let leaf = self.leaves.get_mut(&number).expect("a run lies in leaves");
            leaf.dirty &= !mask;
            leaf.writing |= mask;
        });
        self.dirty_pages -= run.len().get();
        self.writing_pages += run.len().get();
        Some(Taken { pages: run, parts })
    }

    /// What was taken is written, or not: then the same is dirty again, beside what has changed since.
    ///
    /// # Panics
    /// If one of the pages is not being written.
    pub fn complete_taken(&mut self, taken: &Taken, written: Written) {
        let Some(parts) = taken.parts.as_ref().filter(|_| written == Written::No) else {
            return self.complete(taken.pages, written);
        };
        self.complete(taken.pages, Written::Yes);
        parts.iter().for_each(|bytes| _ = self.mark_part(taken.pages.start, bytes));
    }

    /// Pages that were taken as a whole are written, or not.
    ///
    /// # Panics
    /// If a page of them was not taken.
    pub fn complete(&mut self, pages: PageRange, written: Written) {
        let mut again = 0;
        each_leaf(pages, |number, mask| {
            let leaf = self.leaves.get_mut(&number).expect("what is completed was taken");
            assert!(leaf.writing & mask == mask, "D1: what is completed is being written");
            leaf.writing &= !mask;
            if written == Written::No {
                leaf.forget_parts(mask);
                again += u64::from((mask & !leaf.dirty).count_ones());
                leaf.dirty |= mask;
            }
            self.shed(number);
        });
        self.writing_pages -= pages.len().get();
        self.dirty_pages += again;
    }

    /// What was written to the pages is of no interest any more. Those that are being written go on being so. Says how many
    /// were dirty.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn forget(&mut self, pages: PageRange) -> u64 {
        let mut forgotten = 0;
        let mut from = pages.start;
        while let Some(run) = self.first_run(PageRange::new(from, pages.end), u64::MAX, |leaf| leaf.dirty) {
            each_leaf(run, |number, mask| {
                let leaf = self.leaves.get_mut(&number).expect("a run lies in leaves");
                leaf.forget_parts(mask);
                leaf.dirty &= !mask;
                self.shed(number);
            });
            forgotten += run.len().get();
            from = run.end;
        }
        self.dirty_pages -= forgotten;
        forgotten
    }

    /// The first run, within a range, of pages that the device does not have: dirty, being written, or both.
    pub fn first_dirty(&self, within: PageRange) -> Option<PageRange> {
        self.first_run(within, u64::MAX, |leaf| leaf.dirty | leaf.writing)
    }

    /// The first run of pages that are dirty and being written: they changed after their write began.
    pub fn first_rewritten(&self, within: PageRange) -> Option<PageRange> {
        self.first_run(within, u64::MAX, |leaf| leaf.dirty & leaf.writing)
    }

    /// The bytes of the page from `end` on are of no interest any more. A page of which no other bytes have changed is not
    /// dirty then.
    pub fn forget_behind(&mut self, page: PageIndex, end: u32) {
        let (number, bit) = place_of(page);
        let Some(leaf) = self.leaves.get_mut(&number).filter(|leaf| leaf.dirty & bit != 0) else { return };
        if end >= PAGE_END {
            return;
        }
        let mut parts = leaf.take_parts(bit).unwrap_or_else(Parts::whole);
        parts.cut(end);
        if parts.is_empty() {
            self.forget(PageRange::new(page, page + PageCount::new(1)));
        } else {
            leaf.parts.insert(leaf.place(bit), parts);
            leaf.in_part |= bit;
        }
    }

    /// The first page within a range that is dirty in part, whether it is being written or not.
    pub fn first_in_part(&self, within: PageRange) -> Option<PageIndex> {
        let run = self.first_run(within, 1, |leaf| leaf.in_part)?;
        Some(run.start)
    }

    /// The last page that is dirty, and where its changed bytes end within it.
    pub fn last_dirty(&self) -> Option<(PageIndex, u32)> {
        let (number, leaf) = self.leaves.iter().rev().find(|(_, leaf)| leaf.dirty != 0)?;
        let place = leaf.dirty.ilog2();
        let end = leaf.parts_of(1 << place).map_or(PAGE_END, Parts::end);
        Some((PageIndex::new(number * LEAF_PAGES + u64::from(place)), end))
    }

    /// Whether all of the pages are dirty, and none is being written.
    pub fn is_whole(&self, pages: PageRange) -> bool {
        let run = self.first_run(pages, u64::MAX, |leaf| leaf.dirty & !leaf.writing);
        run == Some(pages)
    }

    /// Whether all of the pages are dirty or being written.
    pub fn are_dirty(&self, pages: PageRange) -> bool {
        self.first_dirty(pages) == Some(pages)
    }

    /// Dirty pages, those included that are being written and have changed since.
    pub fn dirty_pages(&self) -> PageCount {
        PageCount::new(self.dirty_pages)
    }

    /// Pages that are being written.
    pub fn writing_pages(&self) -> PageCount {
        PageCount::new(self.writing_pages)
    }

    /// Whether the device has all.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Asserts D2, D3 and D4.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        let sum = |bits: fn(&Leaf) -> u64| -> u64 {
            self.leaves.values().map(|leaf| u64::from(bits(leaf).count_ones())).sum()
        };
        assert_eq!(
            (sum(|leaf| leaf.dirty), sum(|leaf| leaf.writing)),
            (self.dirty_pages, self.writing_pages)
        );
        assert!(self.leaves.values().all(|leaf| leaf.dirty | leaf.writing != 0), "D3");
        for leaf in self.leaves.values() {
            assert!(
                leaf.in_part & !leaf.dirty == 0 && leaf.in_part.count_ones() as usize == leaf.parts.len(),
                "D4"
            );
            assert!(leaf.parts.iter().all(|parts| !parts.is_empty() && !parts.is_whole()), "D4");
            leaf.parts.iter().for_each(Parts::check);
        }
    }

    fn shed(&mut self, number: u64) {
        if self.leaves.get(&number).is_some_and(|leaf| leaf.dirty | leaf.writing == 0) {
            self.leaves.remove(&number);
        }
    }

    /// The first run of pages with a bit, of at most `pages_max`.
    fn first_run(&self, within: PageRange, pages_max: u64, bits: impl Fn(&Leaf) -> u64) -> Option<PageRange> {
        if within.is_empty() || pages_max == 0 {
            return None;
        }
        let (first, last) = (within.start.get() / LEAF_PAGES, (within.end.get() - 1) / LEAF_PAGES);
        let mut run: Option<PageRange> = None;
        for (&number, leaf) in self.leaves.range(first..=last) {
            let mut bits = bits(leaf) & mask_of(within, number);
            while bits != 0 {
                let start = number * LEAF_PAGES + u64::from(bits.trailing_zeros());
                let length = u64::from((!(bits >> bits.trailing_zeros())).trailing_zeros()).min(LEAF_PAGES);
                let piece = PageRange::new(PageIndex::new(start), PageIndex::new(start + length));
                match &mut run {
                    None => run = Some(piece),
                    Some(run) if run.end == piece.start => run.end = piece.end,
                    Some(_) => return cut(run, pages_max),
                }
                if run.is_some_and(|run| run.len().get() >= pages_max) {
                    return cut(run, pages_max);
                }
                bits &= !bits_between(start % LEAF_PAGES, start % LEAF_PAGES + length);
            }
        }
        run
    }
}

fn cut(run: Option<PageRange>, pages_max: u64) -> Option<PageRange> {
    run.map(|run| {
        let end = run.start.get().saturating_add(pages_max).min(run.end.get());
        PageRange::new(run.start, PageIndex::new(end))
    })
}

/// The leaf of a page, and its bit in it.
fn place_of(page: PageIndex) -> (u64, u64) {
    (page.get() / LEAF_PAGES, 1 << (page.get() % LEAF_PAGES))
}

/// Each leaf of a range, with the bits of its pages.
fn each_leaf(pages: PageRange, mut each: impl FnMut(u64, u64)) {
    if pages.is_empty() {
        return;
    }
    for number in pages.start.get() / LEAF_PAGES..=(pages.end.get() - 1) / LEAF_PAGES {
        each(number, mask_of(pages, number));
    }
}

/// The bits of a leaf that belong to pages of a range.
fn mask_of(pages: PageRange, number: u64) -> u64 {
    let base = number * LEAF_PAGES;
    let start = pages.start.get().saturating_sub(base).min(LEAF_PAGES);
    let end = pages.end.get().saturating_sub(base).min(LEAF_PAGES);
    bits_between(start, end)
}

fn bits_between(start: u64, end: u64) -> u64 {
    let below = |end: u64| if end >= LEAF_PAGES { u64::MAX } else { (1 << end) - 1 };
    below(end) & !below(start)
}

/// As many as a word has bits: 256 KiB of a file.
const LEAF_PAGES: u64 = 64;

/// Where the bytes of a page end.
const PAGE_END: u32 = crate::units::PAGE_SIZE_BYTES as u32;
