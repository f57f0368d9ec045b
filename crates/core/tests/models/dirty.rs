//! Dirty pages against a map with two bits for each page.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use headwater_core::dirty::{DirtyPages, Taken, Written};
use headwater_core::{PageIndex, PageRange};
use proptest::prelude::*;

/// Dirty, and being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Bits {
    dirty: bool,
    writing: bool,
}

#[derive(Clone, Debug, Default)]
struct Naive(BTreeMap<u64, Bits>);

impl Naive {
    fn get(&self, page: u64) -> Bits {
        self.0.get(&page).copied().unwrap_or_default()
    }

    /// Changes each page, and says of how many `dirty` changed.
    fn change(&mut self, pages: PageRange, change: impl Fn(&mut Bits)) -> u64 {
        let mut changed = 0;
        for page in pages.start.get()..pages.end.get() {
            let bits = self.0.entry(page).or_default();
            let before = *bits;
            change(bits);
            changed += u64::from(before.dirty != bits.dirty);
            if *bits == Bits::default() {
                self.0.remove(&page);
            }
        }
        changed
    }

    fn first_run(&self, within: PageRange, max: u64, is_one: impl Fn(Bits) -> bool) -> Option<PageRange> {
        if within.is_empty() || max == 0 {
            return None;
        }
        let mut ones = self.0.range(within.start.get()..within.end.get());
        let start = *ones.find(|(_, bits)| is_one(**bits))?.0;
        let is_in = |page: &u64| *page < within.end.get() && page - start < max && is_one(self.get(*page));
        let length = (start..u64::MAX).take_while(is_in).count() as u64;
        Some(range(start, start + length))
    }
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(PageIndex::new(start), PageIndex::new(end))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Mark(PageRange),
    Take(PageRange, u64),
    /// All of one that was taken, or a part.
    Complete(usize, Written, u64),
    Forget(PageRange),
}

struct Pair {
    real: DirtyPages,
    naive: Naive,
    taken: Vec<PageRange>,
}

impl Pair {
    fn new() -> Pair {
        Pair { real: DirtyPages::new(), naive: Naive::default(), taken: Vec::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Mark(pages) => {
                let marked = self.naive.change(pages, |bits| bits.dirty = true);
                assert_eq!(self.real.mark(pages), marked);
            }
            Step::Take(within, max) => {
                let run = self.naive.first_run(within, max, |bits| bits.dirty && !bits.writing);
                assert_eq!(
                    self.real.take(within, max).map(|taken| (taken.pages, taken.parts)),
                    run.map(|run| (run, None))
                );
                if let Some(run) = run {
                    self.naive.change(run, |bits| *bits = Bits { dirty: false, writing: true });
                    self.taken.push(run);
                }
            }
            Step::Complete(choice, written, pages) => self.complete(choice, written, pages),
            Step::Forget(pages) => {
                let pages_there = self.naive.0.range(pages.start.get()..pages.end.get());
                let there: Vec<u64> = pages_there.map(|(page, _)| *page).collect();
                let one = |page: u64| range(page, page + 1);
                let forgotten: u64 = there
                    .into_iter()
                    .map(|page| self.naive.change(one(page), |bits| bits.dirty = false))
                    .sum();
                assert_eq!(self.real.forget(pages), forgotten);
            }
        }
        self.real.check();
    }

    fn complete(&mut self, choice: usize, written: Written, pages: u64) {
        if self.taken.is_empty() {
            return;
        }
        let place = choice % self.taken.len();
        let whole = &mut self.taken[place];
        let end = whole.start.get() + pages.clamp(1, whole.len().get());
        let part = range(whole.start.get(), end);
        whole.start = part.end;
        if whole.is_empty() {
            self.taken.remove(place);
        }
        self.real.complete(part, written);
        self.naive.change(part, |bits| {
            bits.writing = false;
            bits.dirty |= written == Written::No;
        });
    }

    fn compare(&self, within: PageRange) {
        let (real, naive) = (&self.real, &self.naive);
        let unwritten = naive.first_run(within, u64::MAX, |bits| bits.dirty || bits.writing);
        assert_eq!(real.first_dirty(within), unwritten);
        let rewritten = naive.first_run(within, u64::MAX, |bits| bits.dirty && bits.writing);
        assert_eq!(real.first_rewritten(within), rewritten);
        let whole = naive.first_run(within, u64::MAX, |bits| bits.dirty && !bits.writing);
        assert_eq!(real.is_whole(within), whole == Some(within));
        let count = |is_one: fn(&Bits) -> bool| naive.0.values().filter(|bits| is_one(bits)).count() as u64;
        assert_eq!(real.dirty_pages().get(), count(|bits| bits.dirty));
        assert_eq!(real.writing_pages().get(), count(|bits| bits.writing));
        assert_eq!(real.is_empty(), naive.0.is_empty());
    }
}

/// At the borders of leaves, at the last page of frames, at the last of offsets, and where no file has one.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..300u64,
        2 => (0..4u64, 0..3u64).prop_map(|(leaf, off)| (leaf * 64 + off).saturating_sub(1)),
        2 => (0..70u64).prop_map(|off| (1 << 44) - off),
        1 => (0..70u64).prop_map(|off| PageIndex::MAX.get() - off),
    ]
}

/// Within a leaf, over a few, none.
fn pages() -> impl Strategy<Value = PageRange> {
    let length = prop_oneof![1 => Just(0u64), 4 => 1..8u64, 2 => 60..70u64, 1 => 1..300u64];
    (page(), length)
        .prop_map(|(start, length)| range(start, start.saturating_add(length).min(PageIndex::MAX.get())))
}

/// The same, or as much as there can be.
fn within() -> impl Strategy<Value = PageRange> {
    let rest = page().prop_map(|start| range(start, PageIndex::MAX.get()));
    prop_oneof![3 => pages(), 1 => rest, 1 => Just(range(0, PageIndex::MAX.get()))]
}

fn step() -> impl Strategy<Value = Step> {
    let max = prop_oneof![Just(0u64), Just(1), 2..100u64, Just(u64::MAX)];
    let written = prop_oneof![2 => Just(Written::Yes), 1 => Just(Written::No)];
    let part = prop_oneof![2 => Just(u64::MAX), 1 => 1..70u64];
    prop_oneof![
        4 => pages().prop_map(Step::Mark),
        4 => (within(), max).prop_map(|(within, max)| Step::Take(within, max)),
        4 => (any::<usize>(), written, part).prop_map(|(c, written, part)| Step::Complete(c, written, part)),
        1 => within().prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Goal: D1 to D3; runs are the first and the longest there are, sorted; what changes while it is written stays dirty,
    /// what fails becomes so again. Method: random steps against a map.
    #[test]
    #[cfg_attr(miri, ignore)] // minutes there
    fn equals_a_map_of_bits(steps in prop::collection::vec((step(), within()), 1..120)) {
        let mut pair = Pair::new();
        for (step, within) in steps {
            pair.step(step);
            pair.compare(within);
            pair.compare(range(0, PageIndex::MAX.get()));
        }
        while !pair.taken.is_empty() {
            pair.complete(0, Written::Yes, u64::MAX);
        }
        pair.step(Step::Forget(range(0, PageIndex::MAX.get())));
        prop_assert!(pair.real.is_empty());
    }
}

/// Goal: D1: what is not being written is not completed, in part either, and nothing changes by the attempt.
#[test]
fn only_what_is_being_written_is_completed() {
    let mut dirty = DirtyPages::new();
    dirty.mark(range(60, 70));
    let taken = dirty.take(range(62, 66), 64).unwrap().pages;
    assert_eq!(taken, range(62, 66));
    for pages in [range(60, 62), range(61, 63), range(62, 67), range(200, 201), range(66, 70)] {
        let mut copy = dirty.clone();
        assert!(catch_unwind(move || copy.complete(pages, Written::Yes)).is_err(), "{pages:?}");
    }
    dirty.complete(taken, Written::No);
    dirty.check();
    assert!(dirty.is_whole(range(60, 70)));
}

/// Goal: the last pages that there are can be dirty, also in one run with those before them. Method: up to the end of
/// what a page number can be.
#[test]
fn the_last_pages_are_like_others() {
    let end = PageIndex::MAX.get();
    for first in [end - 1, end - 64, end - 65, end - 130] {
        let mut dirty = DirtyPages::new();
        let pages = range(first, end);
        assert_eq!(dirty.mark(pages), end - first);
        assert!(dirty.is_whole(pages));
        assert_eq!(dirty.take(range(0, end), u64::MAX).map(|taken| taken.pages), Some(pages));
        assert_eq!(dirty.mark(pages), end - first);
        assert_eq!(dirty.first_rewritten(range(0, end)), Some(pages));
        dirty.complete(pages, Written::Yes);
        assert_eq!(dirty.forget(range(0, end)), end - first);
        dirty.check();
        assert!(dirty.is_empty());
    }
}

/// What is dirty and what is being written, byte by byte, of two pages.
#[derive(Clone, Default)]
struct Bytes {
    dirty: BTreeMap<u64, [bool; PAGE]>,
    writing: BTreeMap<u64, [bool; PAGE]>,
}

const PAGE: usize = 4096;

impl Bytes {
    fn change(&mut self, page: u64, bytes: std::ops::Range<usize>) {
        self.dirty.entry(page).or_insert([false; PAGE])[bytes].fill(true);
    }
}

fn bytes_of(taken: &Taken) -> Vec<(u64, [bool; PAGE])> {
    let mut pages = Vec::new();
    for page in taken.pages.iter() {
        let mut bytes = [taken.parts.is_none(); PAGE];
        taken.parts.iter().flat_map(|parts| parts.iter()).for_each(|range| {
            bytes[range.start as usize..range.end as usize].fill(true);
        });
        pages.push((page.get(), bytes));
    }
    pages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Goal: D4: exactly the changed bytes are taken, however they were changed, by parts or as a whole, before and while they
    /// are written, and after a write that failed. Method: random steps against a map of bytes.
    #[test]
    #[cfg_attr(miri, ignore)] // minutes there
    fn parts_equal_a_map_of_bytes(
        steps in prop::collection::vec((0..8u8, 0..4u64, 0..PAGE as u32, 1..=PAGE as u32, any::<bool>()), 1..80)
    ) {
        let (mut real, mut naive, mut taken) = (DirtyPages::new(), Bytes::default(), Vec::<Taken>::new());
        for (step, page, start, length, is_written) in steps {
            match step {
                0..4 => {
                    let part = start..(start + length).min(PAGE as u32);
                    let marked = real.mark_part(PageIndex::new(page), part.clone());
                    prop_assert_eq!(marked == 1, !naive.dirty.contains_key(&page));
                    naive.change(page, part.start as usize..part.end as usize);
                }
                4 => {
                    real.mark(range(page, page + 2));
                    (page..page + 2).for_each(|page| naive.change(page, 0..PAGE));
                }
                5 => if let Some(run) = real.take(range(0, 9), 1 + u64::from(start % 3)) {
                    for (page, bytes) in bytes_of(&run) {
                        prop_assert_eq!(naive.dirty.remove(&page), Some(bytes));
                        prop_assert!(naive.writing.insert(page, bytes).is_none());
                    }
                    taken.push(run);
                },
                6 => if !taken.is_empty() {
                    let run = taken.swap_remove(start as usize % taken.len());
                    real.complete_taken(&run, if is_written { Written::Yes } else { Written::No });
                    for page in run.pages.iter() {
                        let bytes = naive.writing.remove(&page.get()).unwrap();
                        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte && !is_written) {
                            naive.change(page.get(), at..at + 1);
                        }
                    }
                },
                _ => {
                    real.forget_behind(PageIndex::new(page), start);
                    if let Some(bytes) = naive.dirty.get_mut(&page) {
                        bytes[start as usize..].fill(false);
                        if !bytes.contains(&true) {
                            naive.dirty.remove(&page);
                        }
                    }
                }
            }
            real.check();
            let last = naive.dirty.iter().next_back().map(|(page, bytes)| {
                (PageIndex::new(*page), bytes.iter().rposition(|byte| *byte).unwrap() as u32 + 1)
            });
            prop_assert_eq!(real.last_dirty(), last);
            let is_part = |(_, bytes): &(&u64, &[bool; PAGE])| bytes.contains(&false);
            let first = naive.dirty.iter().find(is_part).map(|(page, _)| PageIndex::new(*page));
            prop_assert_eq!(real.first_in_part(range(0, 9)), first);
        }
    }
}
