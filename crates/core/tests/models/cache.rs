//! Cache against a naive model: pages of two files that are loaded, pinned, written, replaced, cleaned and evicted in
//! random order, and every frame accounted for.

use std::collections::{BTreeMap, BTreeSet};

use headwater_core::cache::{Cache, Control, DirtyToo, LoadResult, Lookup, NotOffered, WithdrawnFor};
use headwater_core::frame::{
    CHUNK_FRAMES, Ended, FrameState, Invalidated, LoadId, LoadKind, PAGES_MAX, Unpinned, WriteLatch,
};
use headwater_core::replacement::Policy;
use headwater_core::table::{NoNode, PageTable};
use headwater_core::{FrameId, PageIndex, PageRange};
use proptest::prelude::*;

const FILES: usize = 2;

/// Neighbours, in several leaves, and far out.
const PAGES: [u64; 8] = [0, 1, 2, 15, 16, 70, 1 << 20, PAGES_MAX - 1];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Loading,
    Resident,
    Dirty,
    Offered,
}

/// Where a page is.
#[derive(Clone, Copy, Debug)]
struct Place {
    frame: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Load,
    EndLoad(LoadResult),
    Pin,
    Unpin,
    Write,
    Install,
    Hold,
    Clean,
    Invalidate(u64, DirtyToo),
    Evict,
    Offer,
    /// Found, or taken.
    Touch(WithdrawnFor, bool),
    EvictOffered,
}

/// The cache and what it must be like.
struct Pair {
    cache: Cache,
    control: Control,
    tables: Vec<std::sync::Arc<PageTable>>,
    pages: BTreeMap<(usize, u64), Place>,
    /// Frames whose page left while it was loaded.
    stale: BTreeSet<u32>,
    /// Loads under way, the oldest first.
    loads: Vec<u32>,
    /// One entry for each pin.
    pins: Vec<u32>,
    /// Those of them that were taken of dirty pages to write them, and not cleaned.
    held: Vec<u32>,
    free: BTreeSet<u32>,
}

impl Pair {
    fn new(policy: Policy) -> Pair {
        let (cache, mut control) = Cache::new(1, policy);
        control.add_chunk(&cache, 0).unwrap();
        let tables = (0..FILES).map(|_| control.add_file().unwrap()).collect();
        Pair {
            cache,
            control,
            tables,
            pages: BTreeMap::new(),
            stale: BTreeSet::new(),
            loads: Vec::new(),
            pins: Vec::new(),
            held: Vec::new(),
            free: (0..CHUNK_FRAMES as u32).collect(),
        }
    }

    fn is_pinned(&self, frame: u32) -> bool {
        self.pins.contains(&frame)
    }

    /// C3: named free once.
    fn give_back(&mut self, frame: FrameId) {
        assert!(self.free.insert(frame.get()), "C3: {frame:?} is given back twice");
    }

    fn take_frame(&mut self) -> FrameId {
        FrameId::new(self.free.pop_first().expect("there are more frames than pages and pins"))
    }

    fn step(&mut self, step: Step, file: usize, page: u64, choice: usize) {
        match step {
            Step::Load => self.load(file, page),
            Step::EndLoad(result) => self.end_load(choice, result),
            Step::Pin => self.pin(file, page),
            Step::Unpin => self.unpin(choice),
            Step::Write => self.write(file, page),
            Step::Install => self.install(file, page),
            Step::Hold => self.hold(file, page),
            Step::Clean => self.clean(choice),
            Step::Invalidate(end, dirty_too) => self.invalidate(file, page..end, dirty_too),
            Step::Evict => self.evict(),
            Step::Offer => self.offer(),
            Step::Touch(why, is_taken) => self.touch(choice, why, is_taken),
            Step::EvictOffered => self.evict_offered(choice),
        }
        self.compare();
    }

    fn load(&mut self, file: usize, page: u64) {
        if self.pages.contains_key(&(file, page)) {
            return;
        }
        let frame = self.take_frame();
        let load = (LoadId::new(frame.get()), LoadKind::Demand);
        let begun =
            self.control.begin_load(&self.cache, &self.tables[file], PageIndex::new(page), frame, load);
        assert_eq!(begun, Ok(()));
        self.pages.insert((file, page), Place { frame: frame.get(), state: State::Loading });
        self.loads.push(frame.get());
    }

    fn end_load(&mut self, choice: usize, result: LoadResult) {
        if self.loads.is_empty() {
            return;
        }
        let frame = self.loads.remove(choice % self.loads.len());
        let ended = self.control.end_load(&self.cache, FrameId::new(frame), result);
        if self.stale.remove(&frame) {
            assert_eq!(ended, Ended::Stale);
            return self.give_back(FrameId::new(frame));
        }
        assert_eq!(ended, Ended::Current);
        let key = *self.pages.iter().find(|(_, place)| place.frame == frame).expect("it is current").0;
        match result {
            LoadResult::Read => self.pages.get_mut(&key).unwrap().state = State::Resident,
            LoadResult::Failed => {
                self.pages.remove(&key);
                self.give_back(FrameId::new(frame));
            }
        }
    }

    fn pin(&mut self, file: usize, page: u64) {
        let (table, index) = (&self.tables[file], PageIndex::new(page));
        let found = self.cache.find(table, index);
        let looked = found.map_or(Lookup::Absent, |found| self.cache.pin(table, index, found, 0, 4096));
        match (self.pages.get(&(file, page)), looked) {
            (None, Lookup::Absent) => {}
            (Some(Place { frame, state: State::Loading }), Lookup::Pending(load)) => {
                assert_eq!(load.get(), *frame);
            }
            (Some(place), Lookup::Offered(frame)) if place.state == State::Offered => {
                assert_eq!(frame.get(), place.frame);
            }
            (Some(place), Lookup::Pinned(frame, _))
                if !matches!(place.state, State::Loading | State::Offered) =>
            {
                assert_eq!(frame.get(), place.frame);
                self.pins.push(place.frame);
            }
            (expected, found) => panic!("{found:?} where {expected:?} is"),
        }
    }

    fn unpin(&mut self, choice: usize) {
        if self.pins.is_empty() {
            return;
        }
        let frame = self.pins.remove(choice % self.pins.len());
        if !self.is_pinned(frame) {
            self.held.retain(|held| *held != frame);
        }
        let is_last = !self.is_pinned(frame) && self.pages.values().all(|place| place.frame != frame);
        let expected = if is_last { Unpinned::Freed } else { Unpinned::Kept };
        assert_eq!(self.cache.unpin(FrameId::new(frame)), expected);
        if is_last {
            self.give_back(FrameId::new(frame));
        }
    }

    fn write(&mut self, file: usize, page: u64) {
        let (table, index) = (&self.tables[file], PageIndex::new(page));
        let found = self.cache.find(table, index);
        let latch =
            found.map_or(WriteLatch::Absent, |found| self.cache.begin_write(table, index, found, 0, 100));
        let place = self.pages.get(&(file, page)).copied();
        match (place, latch) {
            (None, WriteLatch::Absent) => {}
            (Some(Place { frame, state: State::Loading }), WriteLatch::Pending(load)) => {
                assert_eq!(load.get(), frame);
            }
            (Some(place), WriteLatch::Offered) => assert_eq!(place.state, State::Offered),
            (Some(place), WriteLatch::Pinned) => assert!(self.is_pinned(place.frame)),
            (Some(place), WriteLatch::Latched(_)) => {
                assert!(!self.is_pinned(place.frame));
                assert!(matches!(place.state, State::Resident | State::Dirty));
                // Half done, as others may meet it.
                assert_eq!(self.cache.state(table, index), Some(FrameState::Writing));
                assert_eq!(self.cache.pin(table, index, FrameId::new(place.frame), 0, 1), Lookup::Busy);
                assert!(self.cache.hold(table, index).is_none());
                self.control.check(&self.cache);
                self.cache.end_write(FrameId::new(place.frame));
                self.pages.get_mut(&(file, page)).unwrap().state = State::Dirty;
            }
            (expected, found) => panic!("{found:?} where {expected:?} is"),
        }
    }

    /// Over what is absent, on its way, there, dirty, pinned.
    fn install(&mut self, file: usize, page: u64) {
        let frame = self.take_frame();
        let installed =
            self.control.install(&self.cache, &self.tables[file], PageIndex::new(page), frame).unwrap();
        let place = Place { frame: frame.get(), state: State::Dirty };
        let before = self.pages.insert((file, page), place);
        let freed = before.and_then(|before| self.left(before));
        assert_eq!(installed.freed.map(FrameId::get), freed);
    }

    /// A page left its table: which frame is free by that.
    fn left(&mut self, place: Place) -> Option<u32> {
        if place.state == State::Loading {
            self.stale.insert(place.frame);
            return None;
        }
        let is_free = !self.is_pinned(place.frame);
        if is_free {
            self.give_back(FrameId::new(place.frame));
        }
        is_free.then_some(place.frame)
    }

    fn hold(&mut self, file: usize, page: u64) {
        let dirty = self.pages.get(&(file, page)).filter(|place| place.state == State::Dirty);
        let held = self.cache.hold(&self.tables[file], PageIndex::new(page)).map(FrameId::get);
        assert_eq!(held, dirty.map(|place| place.frame));
        if let Some(frame) = held {
            self.pins.push(frame);
            self.held.push(frame);
        }
    }

    /// What was replaced meanwhile stays dirty, under another frame.
    fn clean(&mut self, choice: usize) {
        if self.held.is_empty() {
            return;
        }
        let frame = self.held.remove(choice % self.held.len());
        self.cache.clean(FrameId::new(frame));
        if let Some(place) = self.pages.values_mut().find(|place| place.frame == frame) {
            place.state = State::Resident;
        }
    }

    fn invalidate(&mut self, file: usize, range: std::ops::Range<u64>, dirty_too: DirtyToo) {
        let range = range.start..range.end.max(range.start);
        let pages = PageRange::new(PageIndex::new(range.start), PageIndex::new(range.end));
        let mut told = Vec::new();
        let note = |frame: FrameId, page: PageIndex, became, _| told.push((page.get(), frame.get(), became));
        self.control.invalidate(&self.cache, &self.tables[file], pages, dirty_too, note);
        let within = self.pages.range((file, range.start)..(file, range.end));
        let leaving: Vec<((usize, u64), Place)> = within
            .filter(|(_, place)| dirty_too == DirtyToo::Yes || place.state != State::Dirty)
            .map(|(key, place)| (*key, *place))
            .collect();
        let mut expected = Vec::new();
        for (key, place) in leaving {
            self.pages.remove(&key);
            let became = match self.left(place) {
                Some(_) => Invalidated::Freed,
                None if place.state == State::Loading => Invalidated::Stale,
                None => Invalidated::Doomed,
            };
            expected.push((key.1, place.frame, became));
        }
        assert_eq!(told, expected);
    }

    fn evict(&mut self) {
        let may_leave =
            |pair: &Pair, place: &Place| place.state == State::Resident && !pair.is_pinned(place.frame);
        match self.control.evict(&self.cache) {
            None => {
                let left = self.pages.iter().find(|(_, place)| may_leave(self, place));
                assert!(left.is_none(), "nothing is evicted, though {left:?} could be");
            }
            Some(evicted) => {
                let file = self.tables.iter().position(|table| table.file() == evicted.file).unwrap();
                let place = self.pages.remove(&(file, evicted.page.get())).expect("it was there");
                assert!(place.frame == evicted.frame.get() && may_leave(self, &place), "{place:?}");
                self.give_back(evicted.frame);
            }
        }
    }

    /// Every page of the chunk or none, and only if none is in another use.
    fn offer(&mut self) {
        let is_offerable = |place: &Place| {
            matches!(place.state, State::Resident | State::Offered) && !self.is_pinned(place.frame)
        };
        let is_possible =
            self.pages.values().all(is_offerable) && self.pages.len() + self.free.len() == CHUNK_FRAMES;
        let mut offered = Vec::new();
        let begun = self.control.begin_offer(&self.cache, 0, self.free.len() as u32, &mut offered);
        assert_eq!(begun, if is_possible { Ok(()) } else { Err(NotOffered) });
        let mut expected: Vec<u32> = Vec::new();
        if is_possible {
            let resident = self.pages.values_mut().filter(|place| place.state == State::Resident);
            resident.for_each(|place| {
                place.state = State::Offered;
                expected.push(place.frame);
            });
            assert!(!self.cache.chunk_offer(0).unwrap().is_settled());
            self.control.end_offer(&self.cache, 0);
        }
        expected.sort_unstable();
        assert_eq!(offered.into_iter().map(FrameId::get).collect::<Vec<_>>(), expected);
        assert!(self.cache.chunk_offer(0).unwrap().is_settled());
    }

    fn a_page_on_offer(&self, choice: usize) -> Option<((usize, u64), u32)> {
        let offered: Vec<_> = self.pages.iter().filter(|(_, place)| place.state == State::Offered).collect();
        let (key, place) = offered.get(choice % offered.len().max(1))?;
        Some((**key, place.frame))
    }

    fn touch(&mut self, choice: usize, why: WithdrawnFor, is_taken: bool) {
        let Some((key, frame)) = self.a_page_on_offer(choice) else { return };
        let id = FrameId::new(frame);
        assert!(self.cache.begin_touch(id).unwrap().is_settled());
        // Half done, as others may meet it: neither offered again nor evicted.
        assert_eq!(self.control.begin_offer(&self.cache, 0, 0, &mut Vec::new()), Err(NotOffered));
        assert_eq!(self.control.evict_offered(&self.cache, id), None);
        if is_taken {
            let evicted = self.control.drop_taken(&self.cache, id).unwrap();
            assert_eq!((evicted.file, evicted.page.get()), (self.tables[key.0].file(), key.1));
            assert_eq!(self.control.drop_taken(&self.cache, id), None);
            self.pages.remove(&key);
            assert_eq!(self.cache.unpin(id), Unpinned::Freed);
            self.give_back(id);
        } else {
            self.control.withdraw(&self.cache, id, why);
            self.control.withdraw(&self.cache, id, why);
            self.pages.get_mut(&key).unwrap().state = State::Resident;
            assert_eq!(self.cache.unpin(id), Unpinned::Kept);
        }
        assert!(self.cache.begin_touch(id).is_none());
    }

    fn evict_offered(&mut self, choice: usize) {
        let Some((key, frame)) = self.a_page_on_offer(choice) else { return };
        let evicted = self.control.evict_offered(&self.cache, FrameId::new(frame)).unwrap();
        assert_eq!((evicted.file, evicted.page.get()), (self.tables[key.0].file(), key.1));
        self.pages.remove(&key);
        self.give_back(evicted.frame);
    }

    fn compare(&self) {
        self.control.check(&self.cache);
        for (file, table) in self.tables.iter().enumerate() {
            for page in PAGES {
                let state = self.pages.get(&(file, page)).map(|place| match place.state {
                    State::Loading => FrameState::Loading,
                    State::Resident => FrameState::Resident,
                    State::Dirty => FrameState::Dirty,
                    State::Offered => FrameState::Offered,
                });
                assert_eq!(self.cache.state(table, PageIndex::new(page)), state);
            }
        }
        let loading = self.pages.values().filter(|place| place.state == State::Loading).count();
        assert_eq!(self.control.resident_pages() as usize, self.pages.len() - loading);
        assert_eq!(self.control.loading_pages() as usize, self.loads.len());
        let offered = self.pages.values().filter(|place| place.state == State::Offered).count();
        assert_eq!(self.control.offered_pages() as usize, offered);
    }

    /// Everything is let go, and then every frame is free.
    fn finish(mut self) {
        (0..FILES).for_each(|file| self.invalidate(file, 0..PAGES_MAX, DirtyToo::Yes));
        while !self.loads.is_empty() {
            self.end_load(0, LoadResult::Read);
        }
        while !self.pins.is_empty() {
            self.unpin(0);
        }
        self.compare();
        assert_eq!(self.free.len(), CHUNK_FRAMES);
        self.tables.iter().for_each(|table| self.control.remove_file(table));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let result = prop_oneof![3 => Just(LoadResult::Read), 1 => Just(LoadResult::Failed)];
    let too = prop_oneof![Just(DirtyToo::Yes), Just(DirtyToo::No)];
    let why = prop_oneof![Just(WithdrawnFor::Use), Just(WithdrawnFor::Chunk)];
    let end = prop_oneof![Just(1), Just(16), Just(1 << 10), Just(PAGES_MAX)];
    prop_oneof![
        4 => Just(Step::Load),
        4 => result.prop_map(Step::EndLoad),
        3 => Just(Step::Pin),
        3 => Just(Step::Unpin),
        4 => Just(Step::Write),
        4 => Just(Step::Install),
        4 => Just(Step::Hold),
        4 => Just(Step::Clean),
        1 => (end, too).prop_map(|(end, too)| Step::Invalidate(end, too)),
        2 => Just(Step::Evict),
        6 => Just(Step::Offer),
        3 => (why, any::<bool>()).prop_map(|(why, is_taken)| Step::Touch(why, is_taken)),
        1 => Just(Step::EvictOffered),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Goal: C1, C2 and C3; what is dirty is not evicted and outlives an invalidation that spares it; what replaces a page
    /// leaves the old bytes to those who have pinned them. Method: random steps against maps of pages, pins and frames.
    #[test]
    #[cfg_attr(miri, ignore)] // minutes there
    fn equals_maps_of_pages_and_frames(
        policy in prop_oneof![Just(Policy::Clock2QPlus), Just(Policy::Clock), Just(Policy::S3Fifo)],
        steps in prop::collection::vec((step(), 0..FILES, 0..PAGES.len(), any::<usize>()), 1..200),
    ) {
        let mut pair = Pair::new(policy);
        for (step, file, page, choice) in steps {
            pair.step(step, file, PAGES[page], choice);
        }
        pair.finish();
    }
}

/// Goal: a page beyond what frames can number is refused, and the frame stays free.
#[test]
fn pages_beyond_all_are_refused() {
    let mut pair = Pair::new(Policy::Clock2QPlus);
    let (frame, beyond) = (FrameId::new(7), PageIndex::new(PAGES_MAX));
    let installed = pair.control.install(&pair.cache, &pair.tables[0], beyond, frame);
    assert_eq!(installed, Err(NoNode));
    let load = (LoadId::new(0), LoadKind::Demand);
    let begun = pair.control.begin_load(&pair.cache, &pair.tables[0], beyond, frame, load);
    assert_eq!(begun, Err(NoNode));
    pair.compare();
    pair.finish();
}

/// Goal: a page for which tables have no node is not installed, its frame is free again, and what is there is replaced all
/// the same. Method: a cache of one chunk, lone pages far apart until none fits.
#[test]
fn full_tables_refuse_only_what_is_new() {
    let mut pair = Pair::new(Policy::Clock2QPlus);
    let install = |pair: &mut Pair, page: u64| {
        let frame = pair.take_frame();
        let index = PageIndex::new(page);
        (pair.control.install(&pair.cache, &pair.tables[0], index, frame), frame)
    };
    let mut there = 0;
    let refused = loop {
        let (installed, frame) = install(&mut pair, there << 30);
        match installed {
            Ok(installed) => assert_eq!(installed.freed, None),
            Err(NoNode) => break frame,
        }
        there += 1;
        assert!(there < CHUNK_FRAMES as u64, "tables have room for all");
    };
    assert_eq!(pair.cache.frame(refused).unwrap().state(), FrameState::Free);
    pair.give_back(refused);
    pair.control.check(&pair.cache);
    assert_eq!(u64::from(pair.control.resident_pages()), there);
    let before = pair.cache.find(&pair.tables[0], PageIndex::new(1 << 30));
    let (replaced, frame) = install(&mut pair, 1 << 30);
    assert_eq!(replaced.unwrap().freed, before);
    assert_eq!(pair.cache.find(&pair.tables[0], PageIndex::new(1 << 30)), Some(frame));
    pair.control.check(&pair.cache);
}
