//! Replacement against naive policies, and what every policy promises.
//!
//! Owns: equality step by step, bounded work, memory, what scans and readahead do to a hot set.
//! Does not own: miss ratios (`replacement_traces`).

use headwater_core::FrameId;
use headwater_core::replacement::{Origin, Policy, Replacement, UnknownPolicy};
use proptest::prelude::*;

use crate::replacement_naive::{Naive, naive};
use crate::simulation::{Cache, Simulated};

/// Frames in use by the random operations. Far more are announced, so that the ghost is exact.
const FRAMES: u32 = 48;
const FRAMES_ANNOUNCED: u32 = 4096;

#[derive(Clone, Debug)]
enum Step {
    Insert {
        page: u64,
        origin: Origin,
    },
    /// The inserted frame at this part of the list is used, so often.
    Use(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Evict,
    /// The inserted frame at this part of the list becomes busy, or free again.
    Toggle(prop::sample::Index),
    AllFree,
}

fn step() -> impl Strategy<Value = Step> {
    let origin = prop_oneof![3 => Just(Origin::Demand), 1 => Just(Origin::Readahead)];
    prop_oneof![
        24 => (0..150_u64, origin).prop_map(|(page, origin)| Step::Insert { page, origin }),
        20 => (any::<prop::sample::Index>(), 1..4_u8).prop_map(|(which, times)| Step::Use(which, times)),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        14 => Just(Step::Evict),
        4 => any::<prop::sample::Index>().prop_map(Step::Toggle),
        1 => Just(Step::AllFree),
    ]
}

/// The real policy and the naive one, each with its own frames.
struct Pair {
    real: Replacement,
    real_frames: Simulated,
    naive: Box<dyn Naive>,
    naive_frames: Simulated,
    inserted: Vec<FrameId>,
}

impl Pair {
    fn new(policy: Policy) -> Self {
        let mut real = Replacement::new(policy);
        real.grow(FRAMES_ANNOUNCED).unwrap();
        let frames = || Simulated::new(FRAMES as usize);
        let (real_frames, naive_frames) = (frames(), frames());
        Self { real, real_frames, naive: naive(policy), naive_frames, inserted: Vec::new() }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Insert { page, origin } => self.insert(page, origin),
            Step::Evict => self.evict(),
            Step::AllFree => self.both(|frames| frames.busy.fill(false)),
            Step::Use(which, times) => {
                self.chosen(which).into_iter().for_each(|frame| self.use_it(frame, times))
            }
            Step::Remove(which) => self.chosen(which).into_iter().for_each(|frame| self.remove(frame)),
            Step::Toggle(which) => {
                if let Some(frame) = self.chosen(which) {
                    self.both(|frames| frames.busy[frame.get() as usize] ^= true);
                }
            }
        }
    }

    fn both(&mut self, change: impl Fn(&mut Simulated)) {
        change(&mut self.real_frames);
        change(&mut self.naive_frames);
    }

    fn chosen(&self, which: prop::sample::Index) -> Option<FrameId> {
        (!self.inserted.is_empty()).then(|| self.inserted[which.index(self.inserted.len())])
    }

    /// Into a free frame, if there is one and the page is not there.
    fn insert(&mut self, page: u64, origin: Origin) {
        let holds = |frame: &FrameId| self.real_frames.pages[frame.get() as usize] == page;
        let free = (0..FRAMES).map(FrameId::new).find(|&frame| !self.real.contains(frame));
        let Some(frame) = free.filter(|_| !self.inserted.iter().any(holds)) else { return };
        self.both(|frames| frames.fill(frame, page));
        self.real.insert(frame, origin, &mut self.real_frames);
        self.naive.insert(frame, origin, &mut self.naive_frames);
        self.inserted.push(frame);
    }

    fn use_it(&mut self, frame: FrameId, times: u8) {
        for _ in 0..times {
            self.both(|frames| frames.reference(frame));
            self.real.on_hit(frame);
            self.naive.on_hit(frame);
        }
    }

    fn remove(&mut self, frame: FrameId) {
        self.real.remove(frame);
        self.naive.remove(frame);
        self.forget(frame);
    }

    fn evict(&mut self) {
        let evicted = self.real.evict(&mut self.real_frames);
        assert_eq!(evicted, self.naive.evict(&mut self.naive_frames));
        evicted.into_iter().for_each(|frame| self.forget(frame));
    }

    fn forget(&mut self, frame: FrameId) {
        self.inserted.retain(|&other| other != frame);
        self.both(|frames| frames.busy[frame.get() as usize] = false);
    }

    fn compare(&self) {
        self.real.check();
        assert_eq!(self.real.len() as usize, self.inserted.len());
        assert_eq!(self.naive.len(), self.inserted.len());
        assert!(self.inserted.iter().all(|&frame| self.real.contains(frame)));
        assert_eq!(self.real_frames.references, self.naive_frames.references);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Goal: E1, E2 and that the very page promised is chosen. Method: random operations on both, compared after
    /// each with all reference counts; at the end everything is evicted.
    #[test]
    #[cfg_attr(miri, ignore)] // the naive model takes minutes there
    fn equals_the_naive_model(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut pair = Pair::new(policy);
        for step in steps {
            pair.apply(step);
            pair.compare();
        }
        pair.apply(Step::AllFree);
        while !pair.real.is_empty() {
            pair.apply(Step::Evict);
            pair.compare();
        }
        prop_assert_eq!(pair.real.evict(&mut pair.real_frames), None);
    }
}

/// A cache that is full of pages 0, 1, 2 and so on.
fn full_cache(policy: Policy, pages: u32) -> Cache {
    let mut cache = Cache::new(policy, pages);
    (0..u64::from(pages)).for_each(|page| cache.access(page));
    cache
}

/// Goal: E3. Method: count what is looked at while every frame is busy, all of them referenced three times.
#[test]
fn busy_pages_cost_a_bounded_number_of_looks() {
    const PAGES: u32 = 1000;
    for policy in Policy::ALL {
        let mut cache = full_cache(policy, PAGES);
        cache.frames.busy.fill(true);
        for _ in 0..3 {
            cache.frames.references.fill(3);
            cache.frames.looks = 0;
            assert_eq!(cache.replacement.evict(&mut cache.frames), None, "{policy}");
            cache.replacement.check();
            assert!(cache.frames.looks <= 20 * u64::from(PAGES), "{policy}: {} looks", cache.frames.looks);
        }
        assert_eq!(cache.replacement.len(), PAGES);
        cache.frames.busy[PAGES as usize / 2] = false;
        assert_eq!(cache.replacement.evict(&mut cache.frames), Some(FrameId::new(PAGES / 2)), "{policy}");
    }
}

/// Goal: a scan three times the cache, each page touched four times in a row, leaves a hot set of half the cache
/// where it is; that fools the others. Method: the hot set is used while the scan goes by, less often than it would
/// take LRU to keep it.
#[test]
fn a_scan_does_not_push_out_a_hot_set() {
    let survivors = |policy| {
        let mut cache = full_cache(policy, 1000);
        for round in 0..3 {
            (0..500).for_each(|page| cache.access(page));
            (0..1000).for_each(|page| (0..4).for_each(|_| cache.access((round + 1) * 10_000 + page)));
        }
        (0..500).filter(|&page| cache.contains(page)).count()
    };
    assert_eq!(survivors(Policy::Clock2QPlus), 500);
    assert_eq!(survivors(Policy::Lru), 0);
    assert_eq!(survivors(Policy::S3Fifo), 0, "which is why it is not the policy of the cache");
}

/// Goal: what was read ahead and never used leaves first, in the order in which it came. Method: four times the cache of
/// it, beside a hot set in main; no page of the hot set leaves.
#[test]
fn unused_readahead_leaves_first() {
    let mut cache = full_cache(Policy::Clock2QPlus, 1000);
    (0..600).for_each(|page| cache.access(page));
    (0..4000).for_each(|page| cache.read_ahead(10_000 + page));
    assert!((0..600).all(|page| cache.contains(page)));
    let left = (10_000..14_000).position(|page| cache.contains(page)).unwrap();
    assert!(left >= 3600, "{left} have left");
    assert!((10_000 + left as u64..14_000).all(|page| cache.contains(page)), "not in order");
}

/// Goal: the first use of a page that was read ahead is no second one. Method: read ahead and use once, long after
/// the window; twice; not at all.
#[test]
fn the_first_use_of_readahead_is_not_a_reference() {
    let mut cache = full_cache(Policy::Clock2QPlus, 100);
    (0..60).for_each(|page| cache.access(page));
    let (once, twice) = (1000, 1001);
    cache.read_ahead(once);
    cache.read_ahead(twice);
    (2000..2008).for_each(|page| cache.access(page)); // beyond the window
    [once, twice, twice].into_iter().for_each(|page| cache.access(page));
    (3000..3100).for_each(|page| cache.access(page));
    assert!(!cache.contains(once));
    assert!(cache.contains(twice));
}

/// Goal: a page that comes back soon after it left stays; one that was never used before it left does not.
#[test]
fn the_ghost_remembers_used_pages() {
    let mut cache = full_cache(Policy::Clock2QPlus, 100);
    (0..60).for_each(|page| cache.access(page));
    cache.access(1000);
    cache.read_ahead(1001);
    (2000..2040).for_each(|page| cache.access(page));
    assert!(!cache.contains(1000) && !cache.contains(1001));
    cache.access(1000);
    cache.access(1001);
    (3000..3050).for_each(|page| cache.access(page));
    assert!(cache.contains(1000));
    assert!(!cache.contains(1001));
}

/// Goal: pages that were loaded together leave together, in their order. Method: a scan through a full cache.
#[test]
fn pages_of_a_scan_leave_in_order() {
    let mut cache = full_cache(Policy::Clock2QPlus, 200);
    let mut left = Vec::new();
    for page in 1000..1500 {
        let before: Vec<u64> = cache.frames.pages.clone();
        cache.access(page);
        left.extend(before.into_iter().filter(|&other| !cache.contains(other)));
    }
    assert!(left.is_sorted(), "{left:?}");
}

/// Goal: a cache that overflows for the first time keeps what was used while it filled, and no more. Method: every
/// fourth page is used again, long after it came.
#[test]
fn the_first_overflow_keeps_what_was_used() {
    let mut cache = full_cache(Policy::Clock2QPlus, 1000);
    (0..800).step_by(4).for_each(|page| cache.access(page));
    (5000..5900).for_each(|page| cache.access(page));
    assert!((0..800).step_by(4).all(|page| cache.contains(page)));
    assert!((1..800).step_by(4).all(|page| !cache.contains(page)));
}

/// Goal: E4. Method: many frames, in one step and in two.
#[test]
fn memory_is_thirteen_bytes_a_frame() {
    for policy in Policy::ALL {
        let mut replacement = Replacement::new(policy);
        replacement.grow(100_000).unwrap();
        replacement.check();
        replacement.grow(1_000_000).unwrap();
        replacement.check();
        println!("{policy}: {:.2} bytes a frame", replacement.memory_bytes() as f64 / 1e6);
        replacement.grow(10).unwrap();
        assert!(!replacement.contains(FrameId::new(999_999)));
        assert!(!replacement.contains(FrameId::new(u32::MAX)));
    }
}

/// Goal: a page that was taken out and used comes back among those that have proved themselves. Method: taken out of a full cache and
/// put back, beside a scan of four times the cache; one that was merely inserted has left.
#[test]
fn what_is_inserted_again_stays() {
    let mut cache = full_cache(Policy::Clock2QPlus, 100);
    let (again, merely) = (FrameId::new(50), FrameId::new(51));
    let pages = [again, merely].map(|frame| cache.frames.pages[frame.get() as usize]);
    [again, merely].into_iter().for_each(|frame| cache.replacement.remove(frame));
    cache.frames.references[50..52].fill(0);
    cache.replacement.insert_again(again);
    cache.replacement.insert(merely, Origin::Demand, &mut cache.frames);
    cache.replacement.check();
    (1000..1400).for_each(|page| cache.access(page));
    assert_eq!(pages.map(|page| cache.contains(page)), [true, false]);
}

/// Goal: names are understood as they are printed, and others refused with a list.
#[test]
fn names_go_there_and_back() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!("mru".parse::<Policy>(), Err(UnknownPolicy));
    assert_eq!(UnknownPolicy.to_string(), "a policy is clock2q+, clock, s3-fifo or lru");
}

fn with_one_frame() -> (Replacement, Simulated) {
    let mut replacement = Replacement::new(Policy::Clock2QPlus);
    replacement.grow(1).unwrap();
    (replacement, Simulated::new(2))
}

/// Goal: a frame that is inserted twice is caught. Method: panic.
#[test]
#[should_panic(expected = "inserted twice")]
fn double_insertion_is_caught() {
    let (mut replacement, mut frames) = with_one_frame();
    (0..2).for_each(|_| replacement.insert(FrameId::new(0), Origin::Demand, &mut frames));
}

/// As above, a frame beyond those announced.
#[test]
#[should_panic(expected = "never announced")]
fn an_unknown_frame_is_caught() {
    let (mut replacement, mut frames) = with_one_frame();
    replacement.insert(FrameId::new(1), Origin::Demand, &mut frames);
}

/// As above, the removal of what is not there.
#[test]
#[should_panic(expected = "not inserted")]
fn removal_of_nothing_is_caught() {
    with_one_frame().0.remove(FrameId::new(0));
}
