//! Releasing: memory goes back to the system while rings know it, and pages of it are cached.
//!
//! Owns: registered memory that is released and taken again; chunks of a cache that are emptied.
//! Does not own: the arena by itself, and when it may grow (beside their code).

use std::sync::atomic::{AtomicBool, Ordering};

use headwater_core::cache::DirtyToo;
use headwater_core::frame::LoadId;
use headwater_core::replacement::Policy;
use headwater_core::units::{PageIndex, PageRange};
use headwater_io::{Arena, DriverKind, FilePages, Found, OptimisticRead, PageCache, Urgency, uring_refusal};
use headwater_testkit::{Rng, skip, with_seed};

use crate::bench::{Bench, drivers, watched};

/// Goal: a ring does not go on with memory that was given back. Method: register all by reading into it, release all,
/// read into what comes next; fixed reads into the old pages would leave zeros.
#[test]
fn rings_forget_what_is_released() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    let bench = Bench::new(DriverKind::Uring, 16, 1);
    bench.driver.register_memory(&bench.arena);
    for _ in 0..3 {
        // The second reading finds the memory registered.
        (0..2).for_each(|_| read_all(&bench));
        let info = bench.driver.info();
        if info.registered_bytes == 0 {
            return skip(format!("nothing can be registered: {:?}", info.registration_refusal));
        }
        bench.assert_idle();
        let mapped_bytes = bench.arena.stats().mapped_bytes;
        assert_eq!(bench.arena.release(usize::MAX), mapped_bytes);
        assert_eq!(bench.driver.info().registered_bytes, 0);
    }
    assert_eq!(bench.arena.stats().mapped_bytes, 0);
}

/// The whole file, with all of it in memory at once.
fn read_all(bench: &Bench) {
    let reads = [0, 1, 2, 3].map(|number| {
        let (offset_bytes, length_bytes) = (number * (2 << 20), 2 << 20);
        (offset_bytes, length_bytes, bench.submit(bench.request(offset_bytes, length_bytes)))
    });
    for (offset_bytes, length_bytes, read) in reads {
        bench.check(offset_bytes, length_bytes, &read.wait());
    }
}

/// Goal: the same while requests come and go: each gets its bytes. Method: two threads read, one releases all the time.
#[test]
fn releases_race_with_requests() {
    with_seed("releasing::releases_race_with_requests", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 16, seed);
            bench.driver.register_memory(&bench.arena);
            let done = AtomicBool::new(false);
            watched("releases beside requests", || {
                std::thread::scope(|scope| {
                    let readers = [1, 2].map(|number| {
                        let bench = &bench;
                        scope.spawn(move || {
                            let mut rng = Rng::new(seed ^ number);
                            let mut rounds = 0;
                            // Until something was released, which the releaser may come to late.
                            while rounds < 200 || bench.arena.stats().released_bytes == 0 {
                                rounds += 1;
                                let reads = [(); 2].map(|()| {
                                    let (offset_bytes, length_bytes) = bench.draw(&mut rng, 256);
                                    let read = bench.submit(bench.request(offset_bytes, length_bytes));
                                    (offset_bytes, length_bytes, read)
                                });
                                for (offset_bytes, length_bytes, read) in reads {
                                    bench.check(offset_bytes, length_bytes, &read.wait());
                                }
                            }
                        })
                    });
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            // One more chunk than the readers need, so that one is often free.
                            drop(bench.arena.allocate(2 << 20, Urgency::Demand));
                            bench.arena.release(usize::MAX);
                            std::thread::yield_now();
                        }
                    });
                    let results = readers.map(|reader| reader.join());
                    done.store(true, Ordering::Relaxed);
                    results.into_iter().for_each(|result| result.unwrap());
                });
            });
            bench.assert_idle();
        }
    });
}

fn pin_all(file: &FilePages, pages: u64) -> u64 {
    (0..pages)
        .filter(|&page| match file.pin(PageIndex::new(page), 0..4096) {
            Found::Page(pinned) => {
                assert!(pinned.iter().step_by(509).all(|&byte| byte == page as u8));
                true
            }
            Found::Pending(_) | Found::Absent => false,
        })
        .count() as u64
}

fn load(arena: &Arena, file: &FilePages, page: u64) {
    let pages = PageRange::new(PageIndex::new(page), PageIndex::new(page + 1));
    let mut extents = arena.allocate_run(4096, Urgency::Demand).unwrap();
    let loading = file.begin_load(pages, &extents, LoadId::new(0), pages.end).unwrap();
    extents[0].fill(page as u8);
    loading.publish(extents, 4096);
}

/// Goal: a cache gives up whole chunks, those first that cost it least, and none in which something is pinned; what stays is
/// right. Method: fill four chunks, pin a page of one, thin out another.
#[test]
fn chunks_leave_whole() {
    let arena = Arena::new(9 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    (0..2048).for_each(|page| load(&arena, &file, page));
    let Found::Page(pinned) = file.pin(PageIndex::new(1024), 0..4096) else { panic!("it was loaded") };
    file.invalidate(PageRange::new(PageIndex::new(512), PageIndex::new(900)), DirtyToo::Yes, |_| {});
    let mut evicted = Vec::new();
    assert_eq!(cache.shrink(1, &mut evicted), 1);
    assert_eq!(evicted.len(), 512 - 388, "the chunk with the most free pages");
    assert_eq!(arena.release(usize::MAX), 2 << 20);
    assert_eq!(cache.shrink(usize::MAX, &mut evicted), 2, "all but the one with the pinned page");
    assert_eq!((pin_all(&file, 2048), arena.release(usize::MAX)), (512, 4 << 20));
    drop(pinned);
    cache.check();
    (0..2048).filter(|page| !(1024..1536).contains(page)).for_each(|page| load(&arena, &file, page));
    assert_eq!(pin_all(&file, 2048), 2048);
    cache.check();
    drop((file, cache));
    assert_eq!((arena.stats().cached_bytes, arena.stats().used_bytes), (0, 0));
    assert_eq!(arena.release(usize::MAX), 8 << 20);
}

/// Goal: the reason why chunks are emptied one at a time: in the order of the policy, half of the pages that were loaded at
/// random can leave before any chunk is free.
#[test]
fn the_order_of_the_policy_leaves_holes() {
    with_seed("releasing::the_order_of_the_policy_leaves_holes", |seed| {
        let arena = Arena::new(33 << 20).unwrap();
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let (file, mut rng) = (cache.add_file().unwrap(), Rng::new(seed));
        (0..8192).for_each(|page| load(&arena, &file, page));
        for _ in 0..40_000 {
            let page = rng.below(12_288);
            if let Found::Page(_) = file.pin(PageIndex::new(page), 0..4096) {
                continue;
            }
            if arena.stats().cached_bytes == 32 << 20 {
                cache.evict(1, &mut Vec::new());
            }
            load(&arena, &file, page);
        }
        cache.evict(4096, &mut Vec::new());
        assert!(arena.release(usize::MAX) <= 2 << 20);
    });
}

/// Goal: readers, pinning and optimistic, see a page's bytes or none while chunks leave, go back to the system and are
/// taken again. Method: a cache of four chunks of which some are emptied all the time; each page is full of its number.
#[test]
fn readers_race_with_shrinking() {
    let arena = Arena::new(9 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let (file, done) = (cache.add_file().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in [1, 2] {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let (page, mut bytes) = (rng.below(1600), [0; 16]);
                    let index = PageIndex::new(page);
                    if file.read_optimistic(index, 100..116, &mut bytes) == OptimisticRead::Copied {
                        assert_eq!(bytes, [page as u8; 16], "an optimistic read of page {page}");
                    } else if let Found::Page(pinned) = file.pin(index, 0..4096) {
                        assert!(pinned.iter().step_by(509).all(|&byte| byte == page as u8), "page {page}");
                    }
                }
            });
        }
        let mut evicted = Vec::new();
        for round in 0..60 {
            let missing = (0..1600).filter(|page| !file.holds(PageIndex::new(*page)));
            missing.for_each(|page| load(&arena, &file, page));
            evicted.clear();
            cache.shrink((1 + round % 4) << 21, &mut evicted);
            arena.release(usize::MAX);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(arena.stats().released_bytes > 20 << 21, "{arena:?}");
    cache.check();
    drop((file, cache));
    arena.release(usize::MAX);
    assert_eq!((arena.stats().cached_bytes, arena.stats().mapped_bytes), (0, 0));
}
