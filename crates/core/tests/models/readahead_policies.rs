//! Readahead policies: random readers, completions and evictions against what every plan must hold.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_core::{
    Access, Advice, ByteRange, Lookup, Outcome, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange, Plan,
    Presence, Purpose, ReadId, ReadResult, Readahead, ReadaheadLimits, ReadaheadPolicy,
};
use proptest::prelude::*;

/// A cache that holds pages by a rule, not by its history: a policy must cope with any.
struct Pattern(u64);

impl Lookup for Pattern {
    fn is_cached(&self, page: PageIndex) -> Presence {
        let mixed = (page.get() ^ self.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
        if mixed < self.0 % 17 { Presence::Cached } else { Presence::Absent }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Where (see [`place`]), how many pages, which of them, what it met.
    Read(Place, u64, u64, Outcome),
    Complete(u64, ReadResult),
    Unused(Place, u64),
    Advise(Advice),
    /// All streams together get at most so many pages from now on.
    Share(u64),
    End(u64),
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Where one of four readers goes on, by its stride.
    Reader(usize),
    /// Anywhere in the first pages of the file.
    Any(u64),
    /// This far before the end of what offsets can address.
    Last(u64),
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Miss),
        2 => Just(Outcome::Hit),
        1 => Just(Outcome::Pending),
        1 => Just(Outcome::PendingMarked),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        8 => (0..4usize).prop_map(Place::Reader),
        2 => (0..5000u64).prop_map(Place::Any),
        1 => (1..3000u64).prop_map(Place::Last),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let result = prop_oneof![
        4 => Just(ReadResult::Read),
        1 => Just(ReadResult::Partly),
        1 => Just(ReadResult::Failed),
        1 => Just(ReadResult::Refused),
    ];
    let advice = prop_oneof![
        Just(Advice::Normal),
        Just(Advice::Sequential),
        Just(Advice::Random),
        Just(Advice::NoReuse),
        Just(Advice::WillNeed),
    ];
    let pages = prop_oneof![6 => 1..20u64, 1 => 200..900u64];
    prop_oneof![
        16 => (place(), pages, any::<u64>(), outcome()).prop_map(|(a, b, c, d)| Step::Read(a, b, c, d)),
        6 => (any::<u64>(), result).prop_map(|(back, result)| Step::Complete(back, result)),
        1 => (place(), 1..40u64).prop_map(|(place, pages)| Step::Unused(place, pages)),
        1 => advice.prop_map(Step::Advise),
        1 => (0..4000u64).prop_map(Step::Share),
        1 => prop_oneof![1..6000u64, Just(PageIndex::MAX.get())].prop_map(Step::End),
    ]
}

fn setting() -> impl Strategy<Value = (ReadaheadPolicy, ReadaheadLimits)> {
    let limits =
        (0..6u32, 0..5u32, 0..4000u64, 0..4000u64, 0..20u64).prop_map(|(min, more, far, share, span)| {
            let size_bytes_max = PAGE_SIZE_BYTES << (min + more);
            ReadaheadLimits {
                size_bytes_min: PAGE_SIZE_BYTES << min,
                size_bytes_max,
                distance_bytes_max: size_bytes_max + far * PAGE_SIZE_BYTES,
                share_bytes_max: share * PAGE_SIZE_BYTES,
                span_bytes_max: span * PAGE_SIZE_BYTES,
            }
        });
    let policy = prop_oneof![
        6 => Just(ReadaheadPolicy::Adaptive),
        2 => Just(ReadaheadPolicy::Linux),
        1 => Just(ReadaheadPolicy::Off),
        1 => Just(ReadaheadPolicy::Fixed(1)),
    ];
    (policy, limits)
}

/// Two policies that are told the same, and what they answered last.
struct Twins {
    policy: ReadaheadPolicy,
    limits: ReadaheadLimits,
    share_bytes: u64,
    both: [Readahead; 2],
    plans: [Plan; 2],
    readers: [u64; 4],
    ids: u64,
    end: u64,
    now: Duration,
}

impl Twins {
    fn new(policy: ReadaheadPolicy, limits: ReadaheadLimits) -> Self {
        let one = || Readahead::new(policy, limits).unwrap();
        let (both, plans) = ([one(), one()], [Plan::new(), Plan::new()]);
        let end = PageIndex::MAX.get();
        let share_bytes = limits.share_bytes_max;
        Self {
            policy,
            limits,
            share_bytes,
            both,
            plans,
            readers: [0, 1000, 2000, 4000],
            ids: 0,
            end,
            now: Duration::ZERO,
        }
    }

    fn apply(&mut self, step: &Step) {
        self.now += Duration::from_micros(7);
        match *step {
            Step::Read(place, pages, at, outcome) => self.read(place, pages, at, outcome),
            Step::Complete(back, result) => {
                let planned = self.plans[0].reads();
                let Some(read) = planned.get((back % planned.len().max(1) as u64) as usize) else { return };
                let id: ReadId = read.id;
                self.both.iter_mut().for_each(|one| one.complete(id, result, self.now));
            }
            Step::Unused(place, pages) => {
                let range = self.range(place, pages);
                self.both.iter_mut().for_each(|one| one.on_unused(range));
                let range = self.range(place, pages * 30);
                self.both.iter_mut().for_each(|one| one.on_dropped(range));
            }
            Step::Advise(advice) => self.both.iter_mut().for_each(|one| one.advise(advice)),
            Step::Share(pages) => {
                self.share_bytes = (pages * PAGE_SIZE_BYTES).min(self.limits.share_bytes_max);
                self.both.iter_mut().for_each(|one| one.set_share(pages * PAGE_SIZE_BYTES));
            }
            Step::End(end) => self.end = end,
        }
    }

    fn read(&mut self, place: Place, pages: u64, at: u64, outcome: Outcome) {
        let pages = self.range(place, pages);
        let at = pages.start + PageCount::new(at % pages.len().get());
        let handle = match place {
            Place::Reader(reader) => reader as u32,
            Place::Any(_) | Place::Last(_) => 9,
        };
        let bytes: ByteRange = pages.bytes();
        let access = Access { pages, at, outcome, bytes, handle };
        let ahead_bytes_before = self.ahead_bytes();
        let cache = Pattern(self.now.as_micros() as u64 % 40);
        for (one, plan) in self.both.iter_mut().zip(&mut self.plans) {
            one.on_read(access, PageIndex::new(self.end), self.now, &cache, plan);
            one.check();
        }
        self.check(access);
        assert!(self.ahead_bytes() <= self.share_bytes.max(ahead_bytes_before), "S1");
    }

    fn ahead_bytes(&self) -> u64 {
        self.both[0].stats().ahead_pages * PAGE_SIZE_BYTES
    }

    fn range(&mut self, place: Place, pages: u64) -> PageRange {
        let start = match place {
            Place::Any(start) => start,
            Place::Last(before) => PageIndex::MAX.get() - before,
            Place::Reader(0) => self.advance(0, pages),
            Place::Reader(reader) => self.advance(reader, pages * reader as u64),
        };
        let end = (start + pages).min(PageIndex::MAX.get());
        PageRange::new(PageIndex::new(start), PageIndex::new(end))
    }

    fn advance(&mut self, reader: usize, pages: u64) -> u64 {
        let start = self.readers[reader];
        self.readers[reader] = (start + pages) % 100_000;
        start
    }

    fn check(&mut self, access: Access) {
        assert_eq!(self.plans[0].reads(), self.plans[1].reads(), "A5: not a function of its inputs");
        self.check_demand(access);
        self.check_reads(access);
    }

    /// A1 and A3.
    fn check_demand(&self, access: Access) {
        let reads = self.plans[0].reads();
        let demanded = reads.iter().take_while(|read| read.purpose == Purpose::Demand);
        let mut next = None;
        for read in demanded.clone() {
            assert!(next.is_none_or(|next| next == read.range.start), "P1: a gap in what is demanded");
            assert!(access.pages.start <= read.range.start, "A3: not asked for");
            assert!(read.range.end <= access.pages.end, "A3: not asked for");
            next = Some(read.range.end);
        }
        let ahead = &reads[demanded.count()..];
        assert!(ahead.iter().all(|read| read.purpose == Purpose::Ahead), "A3: demand behind readahead");
        let end = access.pages.end.min(PageIndex::new(self.end));
        if access.outcome == Outcome::Miss && access.at < end {
            assert_eq!(reads[0].range.start, access.at, "A1");
            assert_eq!(next, Some(end), "A1");
        }
    }

    /// A2 and A4, and that numbers are new.
    fn check_reads(&mut self, access: Access) {
        let extent_pages = self.limits.size_bytes_max / PAGE_SIZE_BYTES;
        let pages = access.pages.len().get() + self.limits.distance_bytes_max / PAGE_SIZE_BYTES;
        let pieces = 2 * (pages / extent_pages) + 2 * pages.ilog2() as u64 + 2 * 64;
        assert!(self.plans[0].reads().len() as u64 <= pieces, "A4: {:?}", self.policy);
        for read in self.plans[0].reads() {
            assert!(!read.range.is_empty());
            assert!(read.range.end.get() <= self.end, "A2");
            assert!(read.range.len().get() <= extent_pages, "A4");
            assert!(read.mark.is_none_or(|mark| read.range.start <= mark && mark < read.range.end), "P3");
            assert!(read.id.get() >= self.ids, "a number is given twice");
            self.ids = read.id.get() + 1;
        }
    }
}

proptest! {
    /// Goal: A1 to A5, S1 and P1 to P3 hold whatever happens. Method: random steps, told to two policies at once.
    #[test]
    fn plans_hold_their_invariants(
        (policy, limits) in setting(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut twins = Twins::new(policy, limits);
        steps.iter().for_each(|step| twins.apply(step));
    }
}

/// Goal: when a stride turns out to be a run, pages that its earlier requests have asked for do not count as read ahead: the share bounds
/// those (S1). Method: a share of no page; one of the four readers asks for more, then for less of a run that goes on and on.
#[test]
fn what_a_stride_has_asked_for_is_not_ahead() {
    let page_bytes = PAGE_SIZE_BYTES;
    let limits = ReadaheadLimits {
        size_bytes_min: page_bytes,
        size_bytes_max: page_bytes,
        distance_bytes_max: page_bytes,
        share_bytes_max: 0,
        span_bytes_max: 0,
    };
    let mut twins = Twins::new(ReadaheadPolicy::Adaptive, limits);
    let reader = Place::Reader;
    for (place, pages, at) in [
        (reader(0), 1, 0),
        (reader(1), 1, 0),
        (reader(2), 762, 0),
        (reader(2), 1, 0),
        (Place::Any(4342), 7, 0),
        (reader(2), 234, 0),
        (Place::Any(3982), 19, 6_487_613_466_850_136_936),
        (reader(2), 13, 118_622_788_851_198_105),
        (reader(2), 1, 0),
    ] {
        twins.apply(&Step::Read(place, pages, at, Outcome::Miss));
    }
}

/// Goal: what will be needed is planned by every policy: all that the file has of it, ahead, in extents, unmarked, with
/// numbers of its own that may be completed. Method: ranges around extents and the end of the file, between misses.
#[test]
fn what_will_be_needed_is_planned() {
    let limits = ReadaheadLimits::default();
    let (extent, end) = (limits.size_bytes_max / PAGE_SIZE_BYTES, PageIndex::new(1000));
    let policies =
        [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Linux, ReadaheadPolicy::Off, ReadaheadPolicy::Fixed(8)];
    for policy in policies {
        let mut readahead = Readahead::new(policy, limits).unwrap();
        let (mut plan, mut ids) = (Plan::new(), Vec::new());
        for (start, stop) in
            [(0, 1), (0, extent), (extent - 1, 3 * extent + 1), (900, 1200), (1000, 1100), (5, 5)]
        {
            let pages = PageRange::new(PageIndex::new(start), PageIndex::new(stop));
            readahead.on_will_need(pages, end, &mut plan);
            let planned: Vec<u64> =
                plan.reads().iter().flat_map(|read| read.range.iter().map(PageIndex::get)).collect();
            assert_eq!(planned, (start..stop.min(1000)).collect::<Vec<_>>(), "{policy:?}");
            for read in plan.reads() {
                assert_eq!((read.purpose, read.mark), (Purpose::Ahead, None));
                assert!(read.id.is_announced());
                assert!(read.range.len().get() <= extent);
                ids.push(read.id);
                readahead.complete(read.id, ReadResult::Read, Duration::ZERO);
            }
            let miss = PageRange::new(PageIndex::new(start % 999), PageIndex::new(start % 999 + 1));
            let (at, outcome) = (miss.start, Outcome::Miss);
            let access = Access { pages: miss, at, outcome, bytes: miss.bytes(), handle: 0 };
            readahead.on_read(access, end, Duration::ZERO, &Pattern(0), &mut plan);
            assert!(plan.reads().iter().all(|read| !read.id.is_announced()));
            ids.extend(plan.reads().iter().map(|read| read.id));
            readahead.check();
        }
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "numbers are new");
    }
}
