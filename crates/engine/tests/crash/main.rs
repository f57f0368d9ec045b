//! Crash: what is left of files when the power fails, at any moment of what an engine does to them.
//!
//! ```text
//!   seed ─► Case ─► steps on a recorded device ─► History: what the user did, what was acknowledged, when
//!                                     └─► log ─► CrashImages ─► crash points ─► images ─► each is legal after the History
//! ```
//!
//! Some hundreds of sequences; `HEADWATER_SOAK_SECONDS=600` makes a soak of it.
//!
//! Owns: how many, and that what is found is checked.
//! Does not own: what may be left on a disk (`headwater-testkit`).

#![forbid(unsafe_code)]

mod history;
mod sequence;
mod threads;

use std::time::{Duration, Instant};

use headwater_testkit::{CrashImages, Rng, ScratchDir, soak_seconds, tmpfs, watched, with_seed};

use crate::history::History;
use crate::sequence::Case;

/// Goal: invariants 7 and 10: what a sync acknowledged is there after a crash at any later moment, until it is changed;
/// what was changed since is old, new or, where the file ended, zero; the file is as long as it was at some time since,
/// and what was cut off does not come back. Method: random steps, random crash points, what is lost at the most, at the
/// least, and drawn.
#[test]
fn what_was_synced_survives_a_crash() {
    with_seed("what_was_synced_survives_a_crash", |seed| {
        // A disk has its ways with blocks; memory is faster.
        let directories: Vec<ScratchDir> = [ScratchDir::on_target(), tmpfs()].into_iter().flatten().collect();
        let mut rng = Rng::new(seed);
        let end = Instant::now() + Duration::from_secs(soak_seconds().unwrap_or(0));
        let mut cases = 0;
        while cases < CASES || Instant::now() < end {
            let case = Case::new(rng.next_u64());
            let path = directories[cases % directories.len()].path().join("file");
            cases += 1;
            let (history, images) = watched(&format!("{case:#x?}"), || case.run(&path));
            check(&case, &history, &images);
        }
        println!("{cases} sequences");
    });
}

fn check(case: &Case, history: &History, images: &CrashImages) {
    let (points, mut rng) = (images.crash_points(), Rng::new(case.seed));
    for _ in 0..POINTS.min(points.len()) {
        let point = points[rng.below(points.len() as u64) as usize];
        let legal = history.legal(point);
        let judge = |image: Vec<u8>, what: &str| {
            if let Err(error) = legal.check(&image) {
                panic!("{what} after a crash at {point}: {error}\n{case:#x?}\n{history}");
            }
        };
        judge(images.least(point), "the least");
        judge(images.most(point), "the most");
        (0..SAMPLES).for_each(|_| judge(images.sample(&mut rng, point), "a sample"));
    }
}

const CASES: usize = 240;

/// Of each sequence.
const POINTS: usize = 16;

/// At each point.
const SAMPLES: usize = 4;
