//! Counts: how many calls of the node reading takes.
//!
//! Owns: sequential, random and interleaved reads.
//! Does not own: the policies (`headwater-core`).

use std::collections::BTreeSet;

use headwater_arceos::{ReadaheadPolicy, Settings};
use headwater_testkit::{Rng, with_seed};

use crate::node::{Kind, Node};
use crate::rig::{File, Rig, assert_pattern, read};

/// Goal: 8 MiB in order, 4 KiB at a time, are 20 calls at most, and the reader meets one page that nobody had begun.
#[test]
#[cfg_attr(miri, ignore)]
fn sequential_reads_are_few_calls() {
    let rig = Rig::new(Settings::new(64 << 20), 1);
    let (node, file) = rig.patterned(2048);
    in_order(&file, 0..2048);
    let (calls, stats) = (node.calls(Kind::Read), rig.stats());
    assert!(calls.len() <= 20, "{} calls", calls.len());
    assert_eq!((stats.misses, node.doubled()), (1, Vec::new()), "{stats:?}");
    assert_eq!(calls.iter().map(|call| call.length).sum::<u64>(), 8 << 20);
    drop(file);
    rig.assert_empty();
}

/// Goal: a random read of an absent page is one call of one page, as without any cache; of a page that is there, none.
#[test]
#[cfg_attr(miri, ignore)]
fn random_reads_are_one_call_each() {
    with_seed("counts::random_reads_are_one_call_each", |seed| {
        for policy in [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Off] {
            let (rig, mut rng) = (Rig::with_policy(policy, 64 << 20, 1), Rng::new(seed));
            let (node, file) = rig.patterned(8000);
            let mut seen = BTreeSet::new();
            for _ in 0..1000 {
                let page = 40 + unrelated(rng.below(UNRELATED));
                assert_pattern(&read(&file, page * 4096, 4096), page * 4096);
                let calls = node.take_calls();
                let expected = usize::from(seen.insert(page));
                assert_eq!(calls.len(), expected, "{policy:?}, page {page}: {calls:?}");
                assert!(calls.iter().all(|call| call.length == 4096), "{policy:?}, page {page}: {calls:?}");
            }
            drop(file);
            rig.assert_empty();
        }
    });
}

/// Goal: four streams through one file, a page of each at a time, cost hardly more calls than four files one after the
/// other.
#[test]
#[cfg_attr(miri, ignore)]
fn interleaved_streams_are_told_apart() {
    let rig = Rig::new(Settings::new(STREAMS as usize * STREAM as usize * 4096 * 2), 1);
    let separate: usize = (0..STREAMS)
        .map(|_| {
            let (node, file) = rig.patterned(STREAM);
            in_order(&file, 0..STREAM);
            calls(&node)
        })
        .sum();
    let (node, file) = rig.patterned(STREAMS * STREAM);
    for page in 0..STREAM {
        for stream in 0..STREAMS {
            in_order(&file, stream * STREAM + page..stream * STREAM + page + 1);
        }
    }
    let together = calls(&node);
    assert!(together * 10 <= separate * 11, "{together} calls together, {separate} one after the other");
    drop(file);
    rig.assert_empty();
}

/// Pages that belong to no stream: at least 61 apart, and no two pairs of them equally far apart, so no three are a
/// progression by chance (P. Erdős, P. Turán, "On a problem of Sidon in additive number theory", 1941).
fn unrelated(index: u64) -> u64 {
    2 * UNRELATED * index + index * index % UNRELATED
}

fn calls(node: &Node) -> usize {
    node.calls(Kind::Read).len()
}

fn in_order(file: &File, pages: std::ops::Range<u64>) {
    pages.for_each(|page| assert_pattern(&read(file, page * 4096, 4096), page * 4096));
}

/// How many unrelated pages there are: a prime number.
const UNRELATED: u64 = 61;

const STREAMS: u64 = 4;

/// Pages of each: 24 MiB, because it takes two reads more to see a stream that does not begin where the file does.
const STREAM: u64 = 6144;
