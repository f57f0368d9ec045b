//! Readahead faults: what went wrong in other implementations, and cases nobody measured, one test each.

use std::time::Duration;

use headwater_core::{
    Access, ByteRange, LimitsError, Lookup, Outcome, PageIndex, PageRange, Plan, Presence, Readahead,
    ReadaheadLimits, ReadaheadPolicy,
};

use crate::readahead_sim::{Counts, Marks, Random, Setup, Sim};
use crate::readahead_table::cases;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const POLICIES: [ReadaheadPolicy; 4] =
    [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Linux, ReadaheadPolicy::Fixed(64), ReadaheadPolicy::Off];

/// Nothing is cached.
struct Empty;

impl Lookup for Empty {
    fn is_cached(&self, _page: PageIndex) -> Presence {
        Presence::Absent
    }
}

fn adaptive(file_pages: u64) -> Sim {
    Sim::new(Setup::new(ReadaheadPolicy::Adaptive, file_pages))
}

fn read_pages(sim: &mut Sim, pages: impl IntoIterator<Item = u64>) {
    pages.into_iter().for_each(|page| sim.read(page * PAGE, PAGE));
}

/// Goal: a window stops at the end of the file, wherever that is. Method: files of every small length, read to the
/// end and beyond it; the simulation refuses reads beyond the end.
#[test]
fn windows_are_clamped_at_the_end_of_the_file() {
    for policy in POLICIES {
        for file_pages in 1..70 {
            let mut sim = Sim::new(Setup::new(policy, file_pages));
            (0..file_pages + 3).for_each(|page| sim.read(page * PAGE, 3 * PAGE));
            let counts = sim.finish();
            assert_eq!((counts.device_pages, counts.wasted_pages), (file_pages, 0), "{policy:?}");
        }
    }
}

/// Goal: a miss in the middle of a request belongs to the stream. Method: a hole in what was read ahead; the reader
/// misses it, and nothing else.
#[test]
fn miss_within_a_request_is_not_random() {
    let mut sim = adaptive(16_384);
    (0..64).for_each(|request| sim.read(request * 16 * PAGE, 16 * PAGE));
    sim.invalidate(1029..1031);
    (64..512).for_each(|request| sim.read(request * 16 * PAGE, 16 * PAGE));
    assert_eq!(sim.finish().misses, 2);
}

/// Goal: a request larger than the largest extent is in flight as a whole, and the next one is read ahead too.
/// Method: requests of 3 MiB; each is pending when it is asked for, or demanded in the same plan.
#[test]
fn oversized_requests_keep_their_prefetch() {
    let mut sim = adaptive(64 * MIB / PAGE);
    sim.read(0, 3 * MIB);
    assert!(sim.counts.in_flight_max >= 4, "three extents demanded, and one ahead");
    (1..8).for_each(|request| sim.read(request * 3 * MIB, 3 * MIB));
    let counts = sim.finish();
    assert_eq!(counts.device_pages - counts.wasted_pages, 24 * MIB / PAGE);
    assert!(counts.wasted_pages <= 1024, "{counts:?}");
}

/// Goal: another handle that meets the mark of a stream joins it, and moves no other. Method: two streams; a second
/// handle runs through the pages of the first one.
#[test]
fn marks_met_by_another_handle_move_their_own_stream() {
    let mut sim = adaptive(65_536);
    for page in 0..2048 {
        sim.read_by(1, page * PAGE, PAGE);
        sim.read_by(2, (32_768 + page) * PAGE, PAGE);
        sim.read_by(3, page * PAGE, PAGE);
    }
    let counts = sim.finish();
    assert!(counts.misses <= 3, "{counts:?}");
    assert!(counts.wasted_pages <= 2 * 512, "{counts:?}");
}

/// Goal: an error in what was read ahead fails the reads that need the bad page, and no other. Method: one bad page
/// in a stream, for all policies.
#[test]
fn errors_ahead_fail_only_who_asks() {
    for policy in POLICIES {
        let mut setup = Setup::new(policy, 4096);
        setup.bad_pages.insert(1000);
        let mut sim = Sim::new(setup);
        read_pages(&mut sim, 0..4096);
        assert_eq!(sim.finish().failed_requests, 1, "{policy:?}");
    }
}

/// Goal: page numbers of more than 32 bits, and the last there are. Method: streams up to the end of what offsets
/// can address, and down from it.
#[test]
fn page_numbers_have_64_bits() {
    let end = PageIndex::MAX.get();
    for first in [u64::from(u32::MAX) - 500, end - 1000] {
        let mut sim = adaptive(end);
        read_pages(&mut sim, first..first + 999);
        assert!(sim.finish().misses <= 2);
        let mut sim = adaptive(end);
        read_pages(&mut sim, (first..first + 999).rev());
        assert!(sim.finish().misses <= 3);
        let mut sim = adaptive(end);
        read_pages(&mut sim, (0..9).map(|step| first.saturating_sub(step * (first / 8))));
        assert!(sim.finish().misses <= 9);
    }
}

/// Goal: a cache that two windows fill exactly is read through without reading anything twice. Method: a cache of two
/// of the largest extents, and one of two of the smallest.
#[test]
fn two_windows_that_fill_the_cache_do_not_thrash() {
    for (cache_pages, misses_max) in [(512, 4), (64, 200)] {
        let mut setup = Setup::new(ReadaheadPolicy::Adaptive, 16_384);
        setup.cache_pages = cache_pages;
        let mut sim = Sim::new(setup);
        read_pages(&mut sim, 0..16_384);
        let counts = sim.finish();
        assert!(counts.misses <= misses_max, "{counts:?}");
        assert!(counts.wasted_pages <= 16_384 / 33, "{counts:?}");
    }
}

/// Goal: a jump back continues nothing. Method: reads that go back by ever longer jumps read what they ask for.
#[test]
fn backward_jumps_are_not_sequential() {
    for policy in [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Linux] {
        let mut sim = Sim::new(Setup::new(policy, 1 << 20));
        read_pages(&mut sim, (1..40).map(|step| (1 << 19) - step * step * step));
        let counts = sim.finish();
        assert_eq!((counts.misses, counts.device_pages), (39, 39), "{policy:?}");
    }
}

/// Goal: when pages are evicted before they are used, streams shrink until what they read is used. Method: eight
/// streams in a cache that holds a fraction of their windows.
#[test]
fn thrashing_streams_shrink() {
    let mut setup = Setup::new(ReadaheadPolicy::Adaptive, 65_536);
    setup.cache_pages = 512;
    let mut sim = Sim::new(setup);
    for page in 0..2048 {
        (0..8).for_each(|stream| sim.read((stream * 8192 + page) * PAGE, PAGE));
    }
    let counts = sim.finish();
    assert!(counts.wasted_pages * 4 <= counts.device_pages, "{counts:?}");
    assert!(counts.misses * 10 <= 8 * 2048, "{counts:?}");
}

/// Goal: a stream whose reads are refused now and then goes on at full size. Method: every fourth read ahead finds
/// no frame; each costs a miss at most, and large reads are still the rule.
#[test]
fn refused_reads_do_not_shrink_a_stream() {
    let mut sim = Sim::new(Setup { refused_nth: 4, ..Setup::new(ReadaheadPolicy::Adaptive, 16_384) });
    read_pages(&mut sim, 0..16_384);
    let refused = sim.readahead.stats().refused;
    let counts = sim.finish();
    assert!(refused > 10 && counts.misses <= refused + 1, "{refused} refused, {counts:?}");
    assert!(counts.average_kib() >= 256, "{counts:?}");
}

/// Goal: who waits for what another one demanded proves no stream. Method: two handles ask for the same random pages,
/// 64 KiB each time, the second while they are on their way; what is planned in vain stays within the credit.
#[test]
fn readers_of_the_same_random_pages_are_no_stream() {
    let mut random = Random(11);
    let mut readahead = Readahead::new(ReadaheadPolicy::Adaptive, ReadaheadLimits::default()).unwrap();
    let mut plan = Plan::new();
    for step in 0..512 {
        let now = Duration::from_micros(step);
        let bytes = ByteRange::at((1 + random.below(1 << 16)) * 16 * PAGE, 16 * PAGE);
        let pages = PageRange::covering(bytes);
        for (handle, outcome) in [(0, Outcome::Miss), (1, Outcome::Pending)] {
            let access = Access { pages, at: pages.start, outcome, bytes, handle };
            readahead.on_read(access, PageIndex::new(1 << 24), now, &Empty, &mut plan);
        }
    }
    assert!(readahead.stats().read_ahead_pages <= 128);
}

/// Goal: the distance covers the latency of a slow device and the pace of its reader, and no more than two extents
/// where that is enough. Method: a reader that computes for 4 us a page, at latencies of 5 ms and of 80 us.
#[test]
fn distance_follows_latency_and_pace() {
    let run = |latency| {
        let compute = Duration::from_micros(4);
        let mut sim = Sim::new(Setup { latency, compute, ..Setup::new(ReadaheadPolicy::Adaptive, 1 << 20) });
        (0..1 << 16).for_each(|request| sim.read(request * 4 * PAGE, 4 * PAGE));
        sim.finish()
    };
    let (slow, fast) = (run(Duration::from_millis(5)), run(Duration::from_micros(80)));
    let compute = Duration::from_micros(4) * (4 << 16);
    assert!(slow.elapsed <= compute + compute / 10, "{slow:?}");
    assert!(slow.ahead_pages_max > 1024, "{slow:?}");
    assert!(fast.elapsed <= compute + compute / 50, "{fast:?}");
    assert!(fast.ahead_pages_max <= 512, "{fast:?}");
}

/// Goal: a file that is cached is read again without a word to the policy or a look at the cache. Method: twice the
/// same reads.
#[test]
fn cached_files_are_read_without_the_policy() {
    for policy in POLICIES {
        let mut sim = Sim::new(Setup::new(policy, 4096));
        read_pages(&mut sim, 0..4096);
        let (calls, reads) = (sim.counts.calls, sim.counts.device_reads);
        read_pages(&mut sim, 0..4096);
        let counts = sim.finish();
        assert_eq!((counts.calls, counts.device_reads), (calls, reads), "{policy:?}");
    }
}

/// Goal: a file that shrinks and grows is followed without taking what was cut off for evicted. Method: a reader goes
/// up to the end, the file is cut short before it and grows again, and the reader goes on.
#[test]
fn truncated_and_extended_files_are_followed() {
    let mut sim = adaptive(16_384);
    read_pages(&mut sim, 0..1000);
    sim.invalidate(1010..16_384);
    sim.setup.file_pages = 1010;
    read_pages(&mut sim, 1000..1012);
    sim.setup.file_pages = 16_384;
    let reads = sim.counts.device_reads;
    read_pages(&mut sim, 1010..8000);
    let counts = sim.finish();
    assert!(counts.misses <= 3, "{counts:?}");
    assert!(counts.device_reads - reads <= 40, "{counts:?}");
}

/// Goal: a cached file with holes is read with few misses and few lookups. Method: drop a page of every hundred.
#[test]
fn sparse_holes_make_no_storm() {
    let mut sim = adaptive(16_384);
    read_pages(&mut sim, 0..16_384);
    (0..163).for_each(|hole| sim.invalidate(hole * 100 + 50..hole * 100 + 51));
    let before = sim.counts;
    read_pages(&mut sim, 0..16_384);
    let counts = sim.finish();
    assert!(counts.misses - before.misses <= 5, "{counts:?}");
    assert_eq!(counts.device_pages - before.device_pages, 163);
    assert!(counts.lookups <= 4 * 16_384, "{counts:?}");
}

/// Goal: two threads on one handle, and sixteen handles on one file, cost what one reader costs. Method: they take
/// turns, the first two page by page, the others all reading everything.
#[test]
fn several_readers_share_a_stream() {
    let mut sim = adaptive(16_384);
    (0..4096).for_each(|pair| read_pages(&mut sim, [2 * pair + 1, 2 * pair]));
    let counts = sim.finish();
    assert!(counts.misses <= 4, "{counts:?}");
    let mut sim = adaptive(16_384);
    for page in 0..4096 {
        (0..16).for_each(|handle| sim.read_by(handle, page * PAGE, PAGE));
    }
    let counts = sim.finish();
    assert_eq!((counts.misses, counts.wasted_pages <= 512), (1, true), "{counts:?}");
}

/// Goal: settings that cannot be honoured are refused, not bent. Method: by hand.
#[test]
fn impossible_settings_are_errors() {
    let limits = ReadaheadLimits::default();
    let refused = |policy, limits| Readahead::new(policy, limits).err();
    assert_eq!(refused(ReadaheadPolicy::Fixed(2048), limits), None);
    for pages in [0, 2049, u32::MAX] {
        let error = refused(ReadaheadPolicy::Fixed(pages), limits);
        assert_eq!(error, Some(LimitsError::FixedBeyondDistance));
    }
    let odd = ReadaheadLimits { size_bytes_min: 0, ..limits };
    assert_eq!(refused(ReadaheadPolicy::Off, odd), Some(LimitsError::SizeZero));
}

/// Goal: without a share nothing is read ahead, and everything works. Method: a share of none.
#[test]
fn no_share_reads_nothing_ahead() {
    let mut setup = Setup::new(ReadaheadPolicy::Adaptive, 4096);
    setup.limits.share_bytes_max = 0;
    let mut sim = Sim::new(setup);
    read_pages(&mut sim, 0..256);
    assert_eq!(sim.finish().device_pages, 256);
}

/// Goal: reading while the consumer computes beats reading in between. Method: a reader that computes as long as the
/// device takes, against no readahead in requests of a window, and against windows without marks.
#[test]
fn reading_ahead_beats_reading_in_between() {
    let reads: Vec<(u64, u64)> = (0..512).map(|request| (request * 32 * PAGE, 32 * PAGE)).collect();
    let run = |policy, marks| -> Counts {
        let compute = Duration::from_nanos(4200);
        let mut sim = Sim::new(Setup { marks, compute, ..Setup::new(policy, 16_384) });
        reads.iter().for_each(|(offset, length)| sim.read(*offset, *length));
        sim.finish()
    };
    let ahead = run(ReadaheadPolicy::Adaptive, Marks::Set).elapsed;
    for policy in [ReadaheadPolicy::Off, ReadaheadPolicy::Linux] {
        let between = run(policy, Marks::Ignored).elapsed;
        assert!(ahead * 13 <= between * 10, "{policy:?}: {ahead:?} against {between:?}");
    }
}

/// Goal: reading ahead is never slower than not to, nor than Linux with and without marks. Method: the time of each
/// case, with little and with much to compute. Among random reads a fiftieth is allowed: they wait behind larger extents,
/// and in a small file Linux reads some of them by accident.
#[test]
fn reading_ahead_is_slower_in_no_case() {
    let others = [
        (ReadaheadPolicy::Off, Marks::Set),
        (ReadaheadPolicy::Linux, Marks::Ignored),
        (ReadaheadPolicy::Linux, Marks::Set),
    ];
    for (name, case) in cases() {
        for compute in [Duration::from_nanos(500), Duration::from_micros(4)] {
            let elapsed = |policy, marks| {
                let mut sim =
                    Sim::new(Setup { marks, compute, ..Setup::new(policy, case.file_bytes / PAGE) });
                case.reads.iter().for_each(|(offset, length)| sim.read(*offset, *length));
                sim.finish().elapsed
            };
            let ahead = elapsed(ReadaheadPolicy::Adaptive, Marks::Set);
            for (policy, marks) in others {
                let other = elapsed(policy, marks);
                let percent = if name.contains("random") { 102 } else { 100 };
                assert!(
                    ahead * 100 <= other * percent,
                    "{name}, {policy:?}, {marks:?}: {ahead:?}, {other:?}"
                );
            }
        }
    }
}
