//! Missing runs against their definition: every missing page of a plan in one run, every planned read completed once.

use std::collections::{BTreeMap, BTreeSet};

use headwater_core::readahead::{
    MissingPages, MissingRun, Plan, PlannedRead, Purpose, ReadId, Readahead, ReadaheadLimits,
    ReadaheadPolicy, missing_runs,
};
use headwater_core::{PageIndex, PageRange};
use proptest::prelude::*;

/// As many numbers of planned reads as a test wants: only a policy makes them.
fn read_ids(count: usize) -> Vec<ReadId> {
    let limits = ReadaheadLimits { size_bytes_min: 4096, size_bytes_max: 4096, ..ReadaheadLimits::default() };
    let mut readahead = Readahead::new(ReadaheadPolicy::Off, limits).expect("limits fit together");
    let mut plan = Plan::new();
    readahead.on_will_need(pages(0, count as u64), PageIndex::MAX, &mut plan);
    plan.reads().iter().map(|read| read.id).collect()
}

fn pages(start: u64, end: u64) -> PageRange {
    PageRange::new(PageIndex::new(start), PageIndex::new(end))
}

/// Gap before a planned read, its length, who waits for it.
type Piece = (u64, u64, Purpose);

/// A plan as policies make them: ranges that do not overlap, what is demanded in front.
fn plan_of(demanded: &[(u64, u64)], ahead: &[(u64, u64)], behind: u64) -> Vec<PlannedRead> {
    let with = |purpose| move |(gap, length): &(u64, u64)| -> Piece { (*gap, *length, purpose) };
    let pieces = demanded.iter().map(with(Purpose::Demand)).chain(ahead.iter().map(with(Purpose::Ahead)));
    let mut end = behind;
    let mut plan = Vec::new();
    for (id, (gap, length, purpose)) in read_ids(demanded.len() + ahead.len()).into_iter().zip(pieces) {
        // What is demanded has no gaps.
        let start = if purpose == Purpose::Demand { end } else { end + gap };
        end = start + length;
        plan.push(PlannedRead { id, range: pages(start, end), mark: None, purpose });
    }
    plan
}

/// What the function says of a plan, and which reads it calls done at once.
fn run(plan: &[PlannedRead], pages_max: u64, is_there: &BTreeSet<u64>) -> (Vec<MissingRun>, Vec<ReadId>) {
    let mut there = Vec::new();
    let missing = |range: PageRange, found: &mut MissingPages| {
        assert!(found.is_empty(), "each range begins with an empty list");
        for page in range.iter().map(PageIndex::get).filter(|page| !is_there.contains(page)) {
            match found.last_mut() {
                Some(last) if last.end.get() == page => last.end = PageIndex::new(page + 1),
                _ => found.push(pages(page, page + 1)),
            }
        }
    };
    let runs = missing_runs(plan, pages_max, missing, |id| there.push(id));
    (runs.into_vec(), there)
}

/// The missing pages of a plan, and whether anybody waits for them.
fn missing_pages(plan: &[PlannedRead], is_there: &BTreeSet<u64>) -> BTreeMap<u64, Purpose> {
    let all = plan.iter().flat_map(|read| read.range.iter().map(|page| (page.get(), read.purpose)));
    all.filter(|(page, _)| !is_there.contains(page)).collect()
}

fn check_pages(runs: &[MissingRun], missing: &BTreeMap<u64, Purpose>) {
    let mut left = missing.clone();
    for run in runs {
        assert!(
            !run.pages.is_empty() && run.pages.start <= run.ahead_from && run.ahead_from <= run.pages.end
        );
        for page in run.pages.iter() {
            let purpose =
                left.remove(&page.get()).expect("each missing page is in one run, and no other page");
            let place = if page < run.ahead_from { Purpose::Demand } else { Purpose::Ahead };
            assert_eq!(place, purpose, "what is demanded is in front");
        }
        let is_awaited = missing[&run.pages.start.get()] == Purpose::Demand;
        assert_eq!(run.purpose() == Purpose::Demand, is_awaited);
    }
    assert!(left.is_empty(), "no run has {left:?}");
}

/// A read is done with the run that has the last of its missing pages, or at once if none of them is missing.
fn check_ids(plan: &[PlannedRead], runs: &[MissingRun], there: &[ReadId], is_there: &BTreeSet<u64>) {
    let with = |id: ReadId| runs.iter().filter(move |run| run.ids.contains(&id));
    let told: usize = runs.iter().map(|run| run.ids.len()).sum();
    assert_eq!(told + there.len(), plan.len(), "each read is completed once");
    for read in plan {
        match read.range.iter().rfind(|page| !is_there.contains(&page.get())) {
            None => assert!(there.contains(&read.id) && with(read.id).count() == 0),
            Some(last) => {
                let run = with(read.id).next().expect("a run completes it");
                assert!(run.pages.start <= last && last < run.pages.end);
            }
        }
    }
}

/// No run is too long, and none could have been joined with the next.
fn check_lengths(plan: &[PlannedRead], runs: &[MissingRun], pages_max: u64) {
    for run in runs {
        let is_of_one =
            |read: &PlannedRead| read.range.start <= run.pages.start && run.pages.end <= read.range.end;
        assert!(run.pages.len().get() <= pages_max || plan.iter().any(is_of_one));
    }
    for pair in runs.windows(2) {
        let joined = pair[0].pages.len().get() + pair[1].pages.len().get();
        let is_in_order = pair[0].ahead_from == pair[0].pages.end || pair[1].purpose() == Purpose::Ahead;
        let could = pair[0].pages.end == pair[1].pages.start && joined <= pages_max && is_in_order;
        assert!(!could, "{pair:?} could be read at once");
    }
}

fn pieces() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((prop_oneof![3 => Just(0), 1 => 1..8u64], 1..12u64), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Goal: the runs are the missing pages of the plan, each once, in as few requests as the rules allow, and each
    /// planned read is completed once. Method: random plans and caches, each property by its definition.
    #[test]
    fn runs_are_what_is_missing(
        (demanded, ahead, behind) in (pieces(), pieces(), 0..4u64),
        is_there in prop::collection::btree_set(0..100u64, 0..60),
        pages_max in 1..40u64,
    ) {
        let plan = plan_of(&demanded, &ahead, behind);
        let (runs, there) = run(&plan, pages_max, &is_there);
        check_pages(&runs, &missing_pages(&plan, &is_there));
        check_ids(&plan, &runs, &there, &is_there);
        check_lengths(&plan, &runs, pages_max);
    }

    /// Goal: what is tried with less memory is a shorter beginning of what is demanded, down to a page, and never what
    /// nobody waits for. Method: every run of some pages, made smaller until nothing is left.
    #[test]
    fn smaller_runs_are_demanded(start in 0..1000u64, length in 1..64u64, demanded in 0..64u64) {
        let demanded = demanded.min(length);
        let ahead_from = PageIndex::new(start + demanded);
        let mut run = MissingRun { pages: pages(start, start + length), ahead_from, ids: read_ids(2).into() };
        let mut expected = if demanded == length { length / 2 } else { demanded };
        while let Some(smaller) = run.smaller() {
            prop_assert_eq!(smaller.pages, pages(start, start + expected));
            prop_assert_eq!(smaller.ahead_from, smaller.pages.end);
            prop_assert!(smaller.ids.is_empty(), "the reads are done when the whole is");
            expected /= 2;
            run = smaller;
        }
        prop_assert_eq!(expected, 0);
    }
}

/// Goal: neighbours are read together though only the first is demanded, a hole parts them, and a read whose pages are
/// there is done at once. Method: four planned reads, the cache of one page and of one read, by hand.
#[test]
fn neighbours_are_read_together() {
    let plan = plan_of(&[(0, 2)], &[(0, 4), (0, 4), (6, 2)], 0);
    let (runs, there) = run(&plan, 8, &BTreeSet::from([8, 16, 17]));
    let ids: Vec<ReadId> = plan.iter().map(|read| read.id).collect();
    let first = MissingRun { pages: pages(0, 8), ahead_from: PageIndex::new(2), ids: ids[..2].into() };
    let second = MissingRun { pages: pages(9, 10), ahead_from: PageIndex::new(9), ids: ids[2..3].into() };
    assert_eq!((runs, there), (vec![first, second], vec![ids[3]]));
}
