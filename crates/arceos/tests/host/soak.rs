//! Soak: everything at once, for as long as one likes.
//!
//! ```text
//!   rounds ─► threads with files of their own (model) + one file that all write whole pages to + stop ─► gauges at zero
//! ```
//!
//! Two seconds; `HEADWATER_SOAK_SECONDS=600` makes a soak of it. Prints the seed.
//!
//! Owns: the mixture, and how long it lasts.
//! Does not own: the operations (model).

use std::thread;
use std::time::{Duration, Instant};

use headwater_arceos::{MemoryHint, PageIndex, Policy, Settings, ShrinkScope, SyncScope};
use headwater_testkit::{Rng, soak_seconds, watched, with_seed};

use crate::model::Actor;
use crate::node::{Faults, Node};
use crate::oracle::POLICIES;
use crate::rig::{File, Rig};

/// Goal: whatever threads do, for however long, bytes are right, nobody waits for ever, and after each round every gauge
/// is zero.
#[test]
#[cfg_attr(miri, ignore)]
fn soak() {
    with_seed("soak::soak", |seed| {
        let (start, mut rng, mut rounds) = (Instant::now(), Rng::new(seed), 0);
        let end = start + Duration::from_secs(soak_seconds().unwrap_or(SECONDS));
        while rounds == 0 || Instant::now() < end {
            round(&mut rng);
            rounds += 1;
        }
        println!("seed {seed:#x}: {rounds} rounds in {:.1} s", start.elapsed().as_secs_f64());
    });
}

fn round(rng: &mut Rng) {
    let settings = Settings {
        readahead: POLICIES[rng.below(4) as usize],
        replacement: [Policy::Clock, Policy::default()][rng.below(2) as usize],
        ..Settings::new([2, 4, 8][rng.below(3) as usize] << 20)
    };
    let what = format!("{settings:?}");
    let rig = Rig::new(settings, rng.below(3) as usize);
    let shared_node = rig.node(vec![0; SHARED_PAGES * 4096]);
    let shared = rig.open(&shared_node);
    let (seeds, end) = (rng.next_u64(), Instant::now() + ROUND);
    watched(&what, || {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (rig, shared, mut rng) = (&rig, &shared, Rng::new(seeds ^ number));
                scope.spawn(move || dwell(rig, shared, &mut rng, end));
            }
            if rng.chance(1, 4) {
                rig.cache.stop();
            }
            if rng.chance(1, 2) {
                scope.spawn(|| squeeze(&rig, &mut Rng::new(!seeds), end));
            }
        });
    });
    shared.sync(SyncScope::Data).unwrap();
    assert!(shared_node.bytes().chunks(4096).all(is_whole), "a page reached the node in parts: {what}");
    drop(shared);
    rig.assert_empty();
}

fn dwell(rig: &Rig, shared: &File, rng: &mut Rng, end: Instant) {
    while Instant::now() < end {
        let node = own_node(rig, rng);
        let actor = Actor::new(rig, node, (1 + rng.below(4)) << 20, rng.next_u64());
        let mut actor = if rng.chance(1, 3) { actor.mapped() } else { actor };
        for _ in 0..rng.below(200) {
            actor.step();
            share(shared, rng);
        }
        actor.finish();
    }
}

/// Memory goes back and comes again, and what is dirty is written as if it were old.
fn squeeze(rig: &Rig, rng: &mut Rng, end: Instant) {
    while Instant::now() < end {
        let scope = [ShrinkScope::Clean, ShrinkScope::All][rng.below(2) as usize];
        rig.cache.shrink(rng.below(8 << 20) as usize, scope);
        rig.dials.skip(Duration::from_secs(rng.below(40)));
        rig.dials.set_memory(HINTS[rng.below(3) as usize]);
        rig.cache.tend();
        thread::sleep(Duration::from_micros(rng.below(2000)));
    }
}

fn own_node(rig: &Rig, rng: &mut Rng) -> std::sync::Arc<Node> {
    let node = rig.node(Vec::new());
    let every = |rng: &mut Rng| if rng.chance(1, 3) { 2 + rng.below(5) } else { 0 };
    let (short_every, interrupted_every) = (every(rng), every(rng));
    node.set_faults(Faults { short_every, interrupted_every, ..Faults::default() });
    node
}

/// Whole pages, written and read.
fn share(shared: &File, rng: &mut Rng) {
    let page = rng.below(SHARED_PAGES as u64 - 16);
    let bytes = |rng: &mut Rng| (1 + rng.below(16) as usize) * 4096;
    match rng.below(20) {
        0..6 => drop(shared.write_at(&vec![rng.next_u64() as u8; bytes(rng)], page * 4096).unwrap()),
        6 => shared.sync(SyncScope::Data).unwrap(),
        7..10 => {
            let found = shared.with_page_or_insert(PageIndex::new(page), |page| is_whole(page));
            assert!(found.unwrap(), "a page is seen in parts");
        }
        _ => {
            let mut buffer = vec![0; bytes(rng)];
            assert_eq!(shared.read_at(&mut buffer, page * 4096), Ok(buffer.len()));
            assert!(buffer.chunks(4096).all(is_whole), "a page is seen in parts");
        }
    }
}

fn is_whole(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == page[0])
}

const HINTS: [MemoryHint; 3] = [MemoryHint::Plenty, MemoryHint::Low, MemoryHint::Critical];
const SECONDS: u64 = 2;
const ROUND: Duration = Duration::from_millis(300);
const THREADS: u64 = 4;

/// With the files of the threads far more than fits.
const SHARED_PAGES: usize = 400;
