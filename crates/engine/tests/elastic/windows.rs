//! Windows: the memory of windows on demand, where others need it.
//!
//! Owns: that their pages leave in time, and come again, right.
//! Does not own: what a window shows (`mapping on_demand`).

use headwater::SharedView;
use headwater_testkit::Rng;

use super::{LIMIT_BYTES, PATTERN, STEP_BYTES, run_limited};

/// Goal: others in the cgroup take half of it, and get it from a window that holds as much, and the window has it again when they are done.
/// Method: steps that the reserve has room for; pages are touched meanwhile, by calls and as cells.
#[test]
fn others_take_memory_of_a_window() {
    run_limited("windows::others_take_memory_of_a_window", |world| {
        let view = match world.file.map_on_demand(.., WINDOW_BYTES) {
            Ok(view) => view,
            Err(error) => return headwater_testkit::skip(error),
        };
        touch(&view, 60_000, 0);
        let full_bytes = LIMIT_BYTES - world.unused_bytes();
        assert!(full_bytes > WINDOW_BYTES, "{full_bytes} bytes are used");
        let mut taken = Vec::new();
        for step in 1..5_u8 {
            taken.push(vec![step; STEP_BYTES]);
            touch(&view, 2000, u64::from(step));
            world.engine.relieve();
        }
        assert!(
            taken.iter().zip(1..).all(|(memory, step)| memory.iter().step_by(4096).all(|&byte| byte == step))
        );
        drop(taken);
        world.engine.relieve();
        touch(&view, 60_000, 5);
        let again_bytes = LIMIT_BYTES - world.unused_bytes();
        assert!(again_bytes > WINDOW_BYTES, "{again_bytes} bytes are used");
        view.check().unwrap();
        drop(view);
        // What follows looks at the cache.
        world.read_all();
    });
}

/// Compares bytes at random places.
fn touch(view: &SharedView, places: usize, seed: u64) {
    let (mut rng, cells) = (Rng::new(seed), view.as_cells().unwrap());
    for place in 0..places {
        let at = rng.below(view.len());
        let byte = match place % 2 {
            0 => view.load_u8(at).unwrap(),
            _ => cells[at as usize].load(std::sync::atomic::Ordering::Relaxed),
        };
        assert_eq!(byte, PATTERN.byte(at));
    }
}

/// Half of the cgroup.
const WINDOW_BYTES: u64 = 128 << 20;
