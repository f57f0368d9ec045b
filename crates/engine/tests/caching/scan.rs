//! Scan: what is used often stays when much is read once.
//!
//! Owns: the promise about scans, through all layers.
//! Does not own: the policy by itself (traces in `headwater-core`).

use std::time::Duration;

use headwater::{Caching, DriverKind, File, IoMode, OpenOptions};
use headwater_testkit::{Rng, ScratchDir, with_seed};

use crate::rig::Rig;

/// Goal: of a quarter of the cache that is used often, 95 % are there after a scan of four times the cache. Method: pages
/// of one file at random, each several times; then another file from start to end; then the first again, by its misses.
#[test]
fn a_scan_leaves_what_is_used_often() {
    with_seed("scan::a_scan_leaves_what_is_used_often", |seed| {
        let directory = ScratchDir::on_target().unwrap();
        let rig = Rig::sized(DriverKind::Threads, 16 << 20, 32);
        let cache_bytes = rig.engine.stats().arena.budget_bytes as u64 / 8 * 7;
        let (hot_pages, scanned_bytes) = (cache_bytes / 4 / 4096, cache_bytes * 4 / 65_536 * 65_536);
        let hot = holes(&rig, &directory, "hot", hot_pages * 4096);
        let scanned = holes(&rig, &directory, "scanned", scanned_bytes);
        touch(&hot, hot_pages, 6, seed);
        assert_eq!(hot.stats().resident_pages, hot_pages);
        let mut buffer = vec![0; 65_536];
        for offset_bytes in (0..scanned_bytes).step_by(65_536) {
            scanned.read_exact_at(&mut buffer, offset_bytes).unwrap();
        }
        let kept_pages = hot.stats().resident_pages;
        assert!(kept_pages * 100 >= hot_pages * 95, "{kept_pages} of {hot_pages} pages are left");
        let before = hot.stats().counts;
        touch(&hot, hot_pages, 1, seed);
        let after = hot.stats().counts;
        assert!(
            (after.device_read_bytes - before.device_read_bytes) / 4096 <= hot_pages / 20 * 2,
            "{after:?}"
        );
        rig.assert_idle();
    });
}

/// Each page so many times, in another order each time.
fn touch(file: &File, pages: u64, times: u32, seed: u64) {
    let (mut rng, mut buffer) = (Rng::new(seed), [0; 4096]);
    let mut order: Vec<u64> = (0..pages).collect();
    for _ in 0..times {
        (1..order.len()).rev().for_each(|last| order.swap(last, rng.below(last as u64 + 1) as usize));
        order.iter().for_each(|page| file.read_exact_at(&mut buffer, page * 4096).unwrap());
    }
}

/// A file that is one hole: what it contains is of no matter here.
fn holes(rig: &Rig, directory: &ScratchDir, name: &str, length_bytes: u64) -> File {
    let path = directory.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(length_bytes).unwrap();
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).io(IoMode::Auto).caching(Caching::On).revalidate(Duration::MAX);
    options.open(path).unwrap()
}
