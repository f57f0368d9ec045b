//! Table: the access patterns of the readahead case table, through the whole engine: what is missed, read, and read in vain.
//!
//! The rows are those of `headwater-core`'s `readahead_table`, which runs them against a simulated cache with a clock of
//! its own. Here the files are real and the time is the machine's, so what depends on how long the device took (distances,
//! sizes of later requests) is a bound instead of a number. The simulated device delivers when somebody waits for it, whole
//! and without errors, and the files are holes: what they contain is of no matter.
//!
//! Owns: the bounds.
//! Does not own: the policy.

use std::time::Duration;

use headwater::{Caching, Counts, IoMode, OpenOptions, ReadaheadPolicy};
use headwater_testkit::{Rng, ScratchDir};

use crate::rig::{Rig, calm_device, watched};

const PAGE: u64 = 4096;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Reads, offset and length in bytes, of a file of this length.
struct Case {
    file_bytes: u64,
    reads: Vec<(u64, u64)>,
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    misses: u64,
    device_reads: u64,
    average_kib: u64,
    wasted_pages: u64,
    counts: Counts,
}

impl Case {
    fn new(file_bytes: u64, reads: impl IntoIterator<Item = (u64, u64)>) -> Case {
        Case { file_bytes, reads: reads.into_iter().collect() }
    }

    fn run(&self) -> Outcome {
        self.run_with(ReadaheadPolicy::Adaptive)
    }

    fn run_with(&self, policy: ReadaheadPolicy) -> Outcome {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::File::create(&path).unwrap().set_len(self.file_bytes).unwrap();
        // Room for all, so that what is wasted is wasted by readahead.
        let rig = Rig::sized(calm_device(1), 256 << 20, 64);
        let mut options = OpenOptions::new();
        options.engine(&rig.engine).caching(Caching::On).readahead(policy).revalidate(Duration::MAX);
        let direct = options.io(IoMode::Direct).open(&path);
        let file = direct.or_else(|_| options.io(IoMode::Buffered).open(&path)).unwrap();
        let mut buffer = vec![0; 2 << 20];
        watched("a case", || {
            for &(offset_bytes, length_bytes) in &self.reads {
                file.read_at(&mut buffer[..length_bytes as usize], offset_bytes).unwrap();
            }
        });
        rig.assert_idle();
        let counts = file.stats().counts;
        Outcome {
            misses: counts.sync_misses,
            device_reads: counts.device_reads,
            average_kib: counts.device_read_bytes / KIB / counts.device_reads.max(1),
            wasted_pages: counts.read_ahead - counts.used,
            counts,
        }
    }
}

fn sequential(range_bytes: std::ops::Range<u64>, step_bytes: u64, length_bytes: u64) -> Case {
    Case::new(64 * MIB, range_bytes.step_by(step_bytes as usize).map(|at| (at, length_bytes)))
}

fn interleaved(streams: u64, length_bytes: u64) -> Case {
    let read = |round, stream| (stream * 32 * MIB + round * length_bytes, length_bytes);
    let rounds = 0..16 * MIB / length_bytes;
    Case::new(
        streams * 32 * MIB,
        rounds.flat_map(|round| (0..streams).map(move |stream| read(round, stream))),
    )
}

fn strided(count: u64, delta_bytes: u64, length_bytes: u64) -> Case {
    Case::new(count * delta_bytes, (0..count).map(|index| (index * delta_bytes, length_bytes)))
}

fn backward(length_bytes: u64) -> Case {
    let last = 16 * MIB / length_bytes;
    Case::new(16 * MIB, (0..last).rev().map(|index| (index * length_bytes, length_bytes)))
}

fn random(count: u64, file_bytes: u64, length_bytes: u64, grain_bytes: u64) -> Case {
    let mut rng = Rng::new(0x9E37_79B9_7F4A_7C15);
    let places = (file_bytes - length_bytes) / grain_bytes;
    Case::new(file_bytes, (0..count).map(|_| (rng.below(places) * grain_bytes, length_bytes)))
}

/// The farthest that a stream reads ahead, which is what is read in vain behind its end.
const WINDOW_PAGES: u64 = 2048;

/// Goal: one miss, and no more in vain than a window. Method: reads of a page from the start, of a mebibyte from start and
/// middle, overlapping ones. Requests are large: demand and what is ahead are two to begin with, not yet one.
#[test]
fn sequential_reads() {
    let cases = [
        sequential(0..16 * MIB, PAGE, PAGE),
        sequential(0..16 * MIB, MIB, MIB),
        sequential(16 * MIB..32 * MIB, MIB, MIB),
        sequential(0..8 * MIB - 32 * KIB, 32 * KIB, 64 * KIB),
    ];
    for case in cases {
        let outcome = case.run();
        assert_eq!(outcome.misses, 1, "{outcome:?}");
        assert!(outcome.wasted_pages <= WINDOW_PAGES, "{outcome:?}");
        assert!(outcome.average_kib >= 500, "{outcome:?}");
    }
}

/// Goal: pages that come out of order within groups of eight are a stream all the same.
#[test]
fn shuffled_within_groups() {
    let outcome = shuffled().run();
    assert!(outcome.misses <= 9 && outcome.wasted_pages <= WINDOW_PAGES, "{outcome:?}");
    assert!(outcome.average_kib >= 120, "{outcome:?}");
}

/// Goal: streams of one handle are told apart: a miss each, or two, and large requests.
#[test]
fn streams_of_one_handle() {
    let (four, eight) = (interleaved(4, 16 * KIB).run(), interleaved(8, 16 * KIB).run());
    assert!(four.misses <= 4 && four.average_kib >= 120, "{four:?}");
    assert!(eight.misses <= 16 && eight.average_kib >= 120, "{eight:?}");
    let wasted = (four.wasted_pages / 4, eight.wasted_pages / 8);
    assert!(wasted.0.max(wasted.1) <= WINDOW_PAGES, "{four:?} {eight:?}");
}

/// Goal: random reads between those of a stream neither end it nor are followed: all but a few of the misses are those of
/// the random reads, 2012 different pages.
#[test]
fn a_stream_among_random_reads() {
    let outcome = stream_among_random().run();
    assert!(outcome.misses <= 2048 + 4, "{outcome:?}");
    assert!(outcome.device_reads <= outcome.misses + 30, "{outcome:?}");
    assert!(outcome.wasted_pages <= WINDOW_PAGES, "{outcome:?}");
}

/// Goal: reads from the end to the beginning are found after four, and nothing is read in vain.
#[test]
fn backward_reads() {
    for case in [backward(PAGE), backward(64 * KIB)] {
        let outcome = case.run();
        assert!(outcome.misses <= 4 && outcome.wasted_pages == 0, "{outcome:?}");
        assert!(outcome.average_kib >= 500, "{outcome:?}");
    }
}

/// Goal: equal distances are found after four reads; what lies between is skipped where that is cheaper, else read.
#[test]
fn strides() {
    for case in
        [strided(1024, 64 * KIB, PAGE), strided(1024, 128 * KIB, 16 * KIB), strided(2048, 32 * KIB, PAGE)]
    {
        let outcome = case.run();
        assert!(outcome.misses <= 4 && outcome.wasted_pages <= 16, "{outcome:?}");
    }
    let short = strided(2048, 8 * KIB, PAGE).run();
    assert!(short.misses <= 4 && short.device_reads <= 40, "{short:?}");
    assert_eq!(short.wasted_pages, 2048, "the gaps, and nothing else");
}

/// Goal: the length of runs is learned, and each is read in about one piece before it is asked for.
#[test]
fn runs_with_jumps() {
    let outcome = runs_and_jumps().run();
    assert!(outcome.misses <= 4 && outcome.device_reads <= 128 + 32, "{outcome:?}");
    assert!(outcome.wasted_pages <= 64, "{outcome:?}");
}

/// Goal: random reads read what they ask for: no more than a hundredth in vain.
#[test]
fn random_reads() {
    let cases = [
        random(2048, 64 * MIB, PAGE, PAGE),
        // Of a file so large that neighbours are rare: when most of it is cached, what is left looks like streams.
        random(1024, 1024 * MIB, 64 * KIB, 64 * KIB),
        random(2048, 64 * MIB, 8 * KIB, 512),
    ];
    for case in cases {
        let outcome = case.run();
        assert!(outcome.wasted_pages * 100 <= outcome.counts.device_read_bytes / PAGE, "{outcome:?}");
    }
}

/// Goal: a file that is there is read again without the device, and without a word to the policy.
#[test]
fn a_second_time() {
    let mut case = sequential(0..16 * MIB, 64 * KIB, 64 * KIB);
    case.reads.extend(case.reads.clone());
    let outcome = case.run();
    assert_eq!(outcome.misses, 1, "{outcome:?}");
    assert!(outcome.counts.device_read_bytes <= 16 * MIB + WINDOW_PAGES * PAGE, "{outcome:?}");
}

/// Goal: without readahead each request is one demand, and with a fixed distance that much is ahead.
#[test]
fn other_policies() {
    let case = sequential(0..16 * MIB, MIB, MIB);
    let off = case.run_with(ReadaheadPolicy::Off);
    assert_eq!((off.misses, off.device_reads, off.average_kib, off.wasted_pages), (16, 16, 1024, 0));
    let fixed = sequential(0..16 * MIB, PAGE, PAGE).run_with(ReadaheadPolicy::Fixed(64));
    assert_eq!(fixed.misses, 1, "{fixed:?}");
    assert!(fixed.wasted_pages <= 64, "{fixed:?}");
    let linux = sequential(0..16 * MIB, PAGE, PAGE).run_with(ReadaheadPolicy::Linux);
    assert_eq!(linux.misses, 1, "{linux:?}");
    assert!((100..=140).contains(&linux.average_kib), "windows of 128 KiB: {linux:?}");
}

fn shuffled() -> Case {
    let mut rng = Rng::new(7);
    let groups = (0..512).map(|group| {
        let mut pages: Vec<u64> = (group * 8..group * 8 + 8).collect();
        (1..8).rev().for_each(|last| pages.swap(last, rng.below(last as u64 + 1) as usize));
        pages
    });
    Case::new(64 * MIB, groups.flatten().map(|page| (page * PAGE, PAGE)))
}

fn stream_among_random() -> Case {
    let random = random(2048, 256 * MIB, PAGE, PAGE);
    let reads = (0..).zip(random.reads);
    let pairs = reads.flat_map(|(index, (offset, _))| [(index * PAGE, PAGE), (64 * MIB + offset, PAGE)]);
    Case::new(320 * MIB, pairs)
}

fn runs_and_jumps() -> Case {
    let runs = (0..128).flat_map(|run| (0..16).map(move |page| (run * MIB + page * PAGE, PAGE)));
    Case::new(128 * MIB, runs)
}
