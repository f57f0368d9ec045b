//! Memory: what the cache takes of the system is what was granted.
//!
//! Owns: the budget seen from outside, while pages come and go.
//! Does not own: tables and states, which are measured where they are (`headwater-io`).

use std::time::Duration;

use headwater::{Caching, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, with_seed};

use crate::rig::{Rig, calm_device, drivers};

/// Goal: whatever is read, frames stay within the budget, and the cache within its share, up to what threads may take at
/// the same moment. Method: pages all over a large sparse file, then in order, with little memory.
#[test]
fn the_budget_holds() {
    with_seed("memory::the_budget_holds", |seed| {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        std::fs::File::create(&path).unwrap().set_len(FILE_BYTES).unwrap();
        let mut kinds = drivers(seed);
        kinds.push(calm_device(seed));
        for driver in kinds {
            let rig = Rig::sized(driver, 5 << 20, 16);
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).caching(Caching::On).revalidate(Duration::MAX);
            let file = options.open(&path).unwrap();
            let (mut rng, mut buffer) = (Rng::new(seed), [0; 4096]);
            for round in 0..3000 {
                let offset_bytes = if round < 1500 { rng.below(FILE_BYTES) } else { round * 4096 };
                file.read_at(&mut buffer, offset_bytes).unwrap();
                let arena = rig.engine.stats().arena;
                assert!(
                    arena.mapped_bytes <= arena.budget_bytes && arena.budget_bytes <= 5 << 20,
                    "{arena:?}"
                );
                assert!(arena.cached_bytes <= arena.budget_bytes / 8 * 7, "{arena:?}");
            }
            rig.assert_idle();
        }
    });
}

const FILE_BYTES: u64 = 1 << 40;
