//! Page cache: what the kernel holds is used, and what it does not hold is not made to be held.
//!
//! Owns: `IoMode::Auto` against the kernel's cache.
//! Does not own: the bytes, beyond a check (see `oracle`).

use std::io::Read;

use headwater::{ByteRange, Caching, IoMode, OpenOptions, Residency};
use headwater_testkit::{Rng, again_if_dropped, on_each, tmpfs, with_seed};

use crate::rig::{Rig, Scratch, block_on, drivers, rigs};

/// Goal: reading in auto mode leaves a cold file cold. Method: scan, random reads, async reads; ask the kernel after each.
#[test]
fn a_cold_file_stays_cold() {
    with_seed("page_cache::a_cold_file_stays_cold", |seed| {
        for (kind, directory, driver) in on_each(drivers(seed)) {
            let (scratch, rig) = (Scratch::on(directory, seed, 2_000_000), Rig::new(driver));
            let file = rig.open(&scratch.path(), IoMode::Auto);
            if !file.is_direct() {
                continue;
            }
            let what = format!("{} on {kind}", rig.name());
            scratch.make_cold();
            assert_cold(&file, &format!("{what}: before"));
            let mut contents = Vec::new();
            file.reader().read_to_end(&mut contents).unwrap();
            scratch.check_all(0, usize::MAX, &contents);
            assert_cold(&file, &format!("{what}: a scan"));
            let mut rng = Rng::new(seed);
            for length in [10, 4096, 40_000, 500_000] {
                let offset_bytes = rng.below(1_500_000);
                file.read_exact_at(&mut contents[..length], offset_bytes).unwrap();
                scratch.check(offset_bytes, &contents[..length]);
                assert_cold(&file, &format!("{what}: read_at of {length}"));
                block_on(file.read_exact_at_async(offset_bytes, length)).unwrap();
                assert_cold(&file, &format!("{what}: read_at_async of {length}"));
            }
        }
    });
}

fn assert_cold(file: &headwater::File, what: &str) {
    assert_eq!(file.residency(ByteRange::new(0, 2_000_000)), Residency::None, "{what}");
}

/// Goal: a warm file is read without the device. Method: on `sim`, which counts its attempts.
#[test]
fn a_warm_file_is_read_from_there() {
    again_if_dropped(|| {
        with_seed("page_cache::a_warm_file_is_read_from_there", |seed| {
            let scratch = Scratch::new(seed, 2_000_000);
            std::fs::read(scratch.path()).unwrap();
            let rig = Rig::sim(seed);
            let file = rig.open(&scratch.path(), IoMode::Auto);
            let mut contents = Vec::new();
            file.reader().read_to_end(&mut contents).unwrap();
            scratch.check_all(0, usize::MAX, &contents);
            file.read_exact_at(&mut contents[..100_000], 77).unwrap();
            scratch.check(77, &contents[..100_000]);
            block_on(file.read_exact_at_async(1_999_990, 10)).unwrap();
            block_on(file.read_at_async(0, 2_500_000)).unwrap();
            assert_eq!(rig.control().attempts(), 0, "the device was asked for what the kernel has");
            rig.assert_idle();
        });
    });
}

/// Goal: a half-warm file is read with its cold half left cold.
#[test]
fn a_half_warm_file_keeps_its_halves() {
    again_if_dropped(|| {
        with_seed("page_cache::a_half_warm_file_keeps_its_halves", |seed| {
            let scratch = Scratch::new(seed, 4 << 20);
            let ordinary = scratch.file();
            for rig in rigs(seed) {
                let file = rig.open(&scratch.path(), IoMode::Auto);
                scratch.make_cold();
                // No readahead of the kernel's own, so that only this half is warm.
                rustix::fs::fadvise(&ordinary, 0, None, rustix::fs::Advice::Random).unwrap();
                std::os::unix::fs::FileExt::read_exact_at(&ordinary, &mut vec![0; 2 << 20], 0).unwrap();
                let (warm, cold) = (ByteRange::new(0, 2 << 20), ByteRange::new(2 << 20, 4 << 20));
                let mut contents = Vec::new();
                file.reader().read_to_end(&mut contents).unwrap();
                scratch.check_all(0, usize::MAX, &contents);
                assert_eq!((file.residency(warm), file.residency(cold)), (Residency::Whole, Residency::None));
                rig.assert_idle();
            }
        });
    });
}

/// Goal: a view of a file that is read around the cache is a copy and leaves no page in the cache, where it would be outdated after stores
/// through a mapping. Method: a handle without caching, and tmpfs, where the kernel's page cache is the file.
#[test]
fn views_of_files_that_are_not_cached_are_copies() {
    with_seed("page_cache::views_of_files_that_are_not_cached_are_copies", |seed| {
        for rig in rigs(seed) {
            let on_tmpfs =
                tmpfs().ok().map(|directory| (Scratch::on(directory, seed, 1_000_000), Caching::Auto));
            for (scratch, caching) in
                [(Scratch::new(seed, 1_000_000), Caching::Off)].into_iter().chain(on_tmpfs)
            {
                let mut options = OpenOptions::new();
                let file = options.engine(&rig.engine).caching(caching).open(scratch.path()).unwrap();
                scratch.check_all(5000, 300_000, &file.view(5000, 300_000).unwrap().to_vec());
                let view = block_on(file.view_async(5000, 300_000)).unwrap();
                scratch.check_all(5000, 300_000, &view.to_vec());
                scratch.check_all(4096, 4096, &file.peek(4096).unwrap());
                file.will_need(&[ByteRange::new(0, 1_000_000)]).unwrap();
                let cache = rig.engine.stats().cache;
                assert_eq!(
                    (cache.resident_pages, cache.loading_pages),
                    (0, 0),
                    "{caching:?} on {}",
                    rig.name()
                );
            }
            rig.assert_idle();
        }
    });
}
