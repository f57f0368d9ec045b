//! Tests: pages from load to eviction, small enough for miri; `tests/drivers/page_cache.rs` has the rest.
//!
//! Owns: a bench of one file in a small arena, also for the tests of the other files.
//! Does not own: what needs a driver.

use std::ops::Range;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_core::frame::{FrameState, LoadId};
use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageIndex, PageRange};

use super::*;
use crate::memory::arena::tests::announces;
use crate::memory::arena::{Extents, Urgency};

pub(super) fn bench() -> (Arena, PageCache, FilePages) {
    let arena = Arena::new(3 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    (arena, cache, file)
}

fn begin(arena: &Arena, file: &FilePages, pages: Range<u64>) -> Result<(Loading, Extents), NotBegun> {
    let pages = PageRange::new(PageIndex::new(pages.start), PageIndex::new(pages.end));
    let extents = arena.allocate_run(pages.len().bytes() as usize, Urgency::Demand).unwrap();
    let loading = file.begin_load(pages, &extents, LoadId::new(0), pages.end)?;
    Ok((loading, extents))
}

/// Each page is full of its number.
pub(super) fn load(arena: &Arena, file: &FilePages, pages: Range<u64>) -> Result<(), NotBegun> {
    let (loading, mut extents) = begin(arena, file, pages.clone())?;
    let frames = extents.iter_mut().flat_map(|extent| extent.as_chunks_mut::<PAGE_BYTES>().0);
    frames.zip(pages.clone()).for_each(|(frame, page)| frame.fill(page as u8));
    loading.publish(extents, (pages.end - pages.start) as usize * PAGE_BYTES);
    Ok(())
}

pub(super) fn pin(file: &FilePages, page: u64) -> Option<PinnedPage<'_>> {
    match file.pin(PageIndex::new(page), 0..4096) {
        Found::Page(pinned) => Some(pinned),
        Found::Pending(_) | Found::Absent => None,
    }
}

pub(super) fn assert_idle(arena: &Arena) {
    let stats = arena.stats();
    assert_eq!((stats.used_bytes, stats.cached_bytes), (0, 0));
}

/// Goal: what is pinned outlives eviction, invalidation, file and cache, and its memory comes back after that.
#[test]
fn a_pinned_page_outlives_all_else() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..3).unwrap();
    let owned = pin(&file, 1).unwrap().into_owned(&file);
    assert_eq!(cache.evict(10, &mut Vec::new()), 2);
    file.invalidate(PageRange::new(PageIndex::new(0), PageIndex::MAX), DirtyToo::Yes, |_| {});
    load(&arena, &file, 1..2).unwrap();
    assert_eq!(arena.stats().cached_bytes, 2 * PAGE_BYTES);
    cache.check();
    drop((cache, file));
    assert_eq!(arena.stats().cached_bytes, PAGE_BYTES);
    assert!(owned.iter().step_by(509).all(|&byte| byte == 1));
    drop(owned);
    assert_idle(&arena);
}

/// Goal: a pin waits for a thread that changes the page, however long that takes, and in little stack. Method: the change goes on until
/// the other thread has looked for long; with 64 KiB of stack, which a call for each look would use up.
#[test]
fn a_pin_waits_for_a_change() {
    let (arena, _cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    let (give, has_begun) = channel();
    thread::scope(|scope| {
        let file = &file;
        scope.spawn(move || {
            let mut calls = 0;
            let changed = file.modify(PageIndex::new(0), 8, &mut |_| {
                calls += 1;
                if calls == 2 {
                    give.send(()).unwrap();
                    thread::sleep(LONG);
                }
                Some(7)
            });
            assert!(matches!(changed, Modified::Done(_)));
        });
        has_begun.recv().unwrap();
        let pinning = thread::Builder::new().stack_size(64 << 10);
        let pinned = pinning.spawn_scoped(scope, || pin(file, 0).unwrap()[8..16].to_vec()).unwrap();
        assert_eq!(pinned.join().unwrap(), 7_u64.to_ne_bytes());
    });
    drop(file);
    assert_idle(&arena);
}

/// Some ten thousand looks at a page.
const LONG: Duration = Duration::from_millis(if cfg!(miri) { 1 } else { 30 });

/// Goal: pages are pinned in order with what the range has of each, up to the first that is missing, wherever they lie and however
/// many are found in one step. Method: ranges that begin and end within pages, across the sixteenth page and a missing one.
#[test]
fn pages_are_pinned_together() {
    let (arena, cache, file) = bench();
    for page in (0..15).chain(17..40).rev() {
        load(&arena, &file, page..page + 1).unwrap();
    }
    load(&arena, &file, 15..17).unwrap();
    file.invalidate(PageRange::new(PageIndex::new(35), PageIndex::new(36)), DirtyToo::Yes, |_| {});
    let size = PAGE_SIZE_BYTES;
    for (start, end, pages) in [
        (0, size, 0..1),
        (size + 100, 2 * size - 100, 1..2),
        (2 * size + 1, 34 * size + 5, 2..35),
        (30 * size, 40 * size, 30..35),
        (36 * size, 99 * size, 36..40),
        (35 * size, 40 * size, 35..35),
        (size, size, 1..1),
    ] {
        let mut at = start;
        file.pin_each(ByteRange::new(start, end), |pinned, part| {
            assert!(pinned.iter().step_by(509).all(|&byte| u64::from(byte) == at / size));
            assert_eq!(
                (u64::from(part.start), u64::from(part.end)),
                (at % size, size.min(end - at / size * size))
            );
            at = (at / size + 1) * size;
        });
        assert_eq!(at.div_ceil(size).max(pages.start), pages.end, "{start}..{end}");
    }
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: a task that waits for memory is woken when a page becomes evictable, and when pages have left. Method: pages kept in
/// each way there is, and let go; pages that leave in each way there is.
#[test]
fn pages_that_are_let_go_are_announced() {
    let (arena, cache, file) = bench();
    let pages = |pages: Range<u64>| PageRange::new(PageIndex::new(pages.start), PageIndex::new(pages.end));
    load(&arena, &file, 0..4).unwrap();
    let owned = pin(&file, 0).unwrap().into_owned(&file);
    announces(&arena, "an owned page", || drop(owned));
    let mut run = PinnedRun::of(&file);
    run.push(pin(&file, 1).unwrap());
    announces(&arena, "a run", || drop(run));
    let doomed = pin(&file, 3).unwrap();
    announces(&arena, "an eviction", || assert_eq!(cache.evict(1, &mut Vec::new()), 1));
    announces(&arena, "an invalidation", || file.invalidate(pages(0..3), DirtyToo::No, |_| {}));
    file.invalidate(pages(3..4), DirtyToo::No, |_| {});
    announces(&arena, "a page that had left", || drop(doomed));
    let (loading, extents) = begin(&arena, &file, 0..2).unwrap();
    announces(&arena, "a load of less", || loading.publish(extents, PAGE_BYTES));
    let (loading, extents) = begin(&arena, &file, 4..6).unwrap();
    announces(&arena, "a load of all", || loading.publish(extents, 2 * PAGE_BYTES));
    announces(&arena, "a file", || drop(file));
    assert_idle(&arena);
}

/// Goal: a load that was overtaken brings nothing, however it ends. Method: invalidate while loading, load anew, then
/// let the old one end, or be abandoned.
#[test]
fn an_overtaken_load_brings_nothing() {
    for is_abandoned in [false, true] {
        let (arena, cache, file) = bench();
        let (loading, extents) = begin(&arena, &file, 4..6).unwrap();
        let overtaken = PageRange::new(PageIndex::new(5), PageIndex::new(6));
        file.invalidate(overtaken, DirtyToo::No, |_| panic!("none was there"));
        load(&arena, &file, 5..6).unwrap();
        if is_abandoned {
            drop(loading);
            drop(extents);
        } else {
            loading.publish(extents, 2 * PAGE_BYTES);
        }
        assert_eq!(pin(&file, 4).is_some(), !is_abandoned);
        assert_eq!(pin(&file, 5).unwrap()[77], 5);
        cache.check();
        drop((file, cache));
        assert_idle(&arena);
    }
}

/// Goal: fewer bytes than pages are zeroes behind, in pieces of memory too; pages that got none are not there.
#[test]
fn a_tail_is_zeroed() {
    let (arena, cache, file) = bench();
    let pieces = [1, 2, 1].map(|pages| arena.allocate(pages * PAGE_BYTES, Urgency::Demand).unwrap());
    let mut extents = Extents::from_iter(pieces);
    extents.iter_mut().for_each(|extent| extent.fill(0xEE));
    let pages = PageRange::new(PageIndex::new(0), PageIndex::new(4));
    let loading = file.begin_load(pages, &extents, LoadId::new(0), pages.start).unwrap();
    loading.publish(extents, 2 * PAGE_BYTES + 100);
    let tail = pin(&file, 2).unwrap();
    assert!(tail[..100].iter().all(|&byte| byte == 0xEE) && tail[100..].iter().all(|&byte| byte == 0));
    assert!(pin(&file, 3).is_none());
    drop(tail);
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: readers of one page race with its eviction and with loads into the same memory, and see its bytes or none.
#[test]
fn readers_race_with_eviction() {
    let (arena, cache, file) = bench();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    if let Some(pinned) = pin(&file, round % 2) {
                        assert!(pinned.iter().step_by(509).all(|&byte| byte == (round % 2) as u8));
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            let _ = load(&arena, &file, round % 2..round % 2 + 1);
            cache.evict(1, &mut Vec::new());
        }
    });
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

fn page(number: u64) -> PageIndex {
    PageIndex::new(number)
}

fn pages(range: Range<u64>) -> PageRange {
    PageRange::new(page(range.start), page(range.end))
}

/// Extents full of one byte.
fn full_of(arena: &Arena, count: u64, byte: u8) -> Extents {
    let mut extents = arena.allocate_run(count as usize * PAGE_BYTES, Urgency::Demand).unwrap();
    for extent in &mut extents {
        let contents = vec![byte; extent.len()];
        extent.store(0, &contents);
    }
    extents
}

fn overwrite(file: &FilePages, number: u64, start: u32, bytes: &[u8]) -> Overwritten {
    file.overwrite(page(number), start, bytes)
}

/// Goal: a part of a page is written in place, at any offset and length, and nothing beside it; the page is dirty then.
#[test]
fn a_part_is_overwritten_in_place() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..2).unwrap();
    let mut expected = vec![1; PAGE_BYTES];
    for (start, length) in [(0, 1), (3, 2), (7, 9), (16, 8), (4095, 1), (100, 333), (0, 4096), (50, 0)] {
        let bytes = vec![(start + length) as u8; length];
        let written = overwrite(&file, 1, start as u32, &bytes);
        assert!(matches!(written, Overwritten::Done(_)), "{written:?}");
        expected[start..start + length].copy_from_slice(&bytes);
        assert!(pin(&file, 1).unwrap()[..] == expected, "{start} {length}");
    }
    assert!(pin(&file, 0).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(file.file.shared.cache.state(&file.file.table, page(1)), Some(FrameState::Dirty));
    assert_eq!(overwrite(&file, 7, 0, b"nowhere"), Overwritten::Absent);
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: what is pinned or on its way is not written to.
#[test]
fn what_is_pinned_or_pending_is_not_overwritten() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    let pinned = pin(&file, 0).unwrap();
    assert_eq!(overwrite(&file, 0, 5, b"new"), Overwritten::Pinned);
    assert!(pinned.iter().all(|&byte| byte == 0));
    drop(pinned);
    let (loading, extents) = begin(&arena, &file, 1..2).unwrap();
    assert_eq!(overwrite(&file, 1, 5, b"new"), Overwritten::Pending(LoadId::new(0)));
    loading.fail(extents);
    assert_eq!(overwrite(&file, 1, 5, b"new"), Overwritten::Absent);
    assert!(matches!(overwrite(&file, 0, 5, b"new"), Overwritten::Done(_)));
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: a page installed over a pinned one, a loading one, a resident one or none is what all lookups find from then on;
/// a reader that had it pinned keeps the old bytes, whose memory comes back after its unpin.
#[test]
fn what_is_installed_replaces_what_was_there() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..2).unwrap();
    let owned = pin(&file, 1).unwrap().into_owned(&file);
    let (loading, extents) = begin(&arena, &file, 2..3).unwrap();
    assert_eq!(file.install(pages(0..4), full_of(&arena, 4, 0xAB)), PageCount::new(4));
    assert!((0..4).all(|number| pin(&file, number).unwrap().iter().all(|&byte| byte == 0xAB)));
    loading.publish(extents, PAGE_BYTES);
    assert!(pin(&file, 2).unwrap().iter().all(|&byte| byte == 0xAB), "an overtaken load brings nothing");
    cache.check();
    assert_eq!(arena.stats().cached_bytes, 5 * PAGE_BYTES);
    assert!(owned.iter().all(|&byte| byte == 1));
    drop(owned);
    assert_eq!(arena.stats().cached_bytes, 4 * PAGE_BYTES);
    // Memory for more than the pages goes back at once.
    assert_eq!(file.install(pages(0..1), full_of(&arena, 2, 0xCD)), PageCount::new(1));
    assert_eq!(arena.stats().cached_bytes, 4 * PAGE_BYTES);
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: pages that are lent stay as they are, singly and in runs, although they are replaced, and file, cache and quota are gone;
/// their shares return with them.
#[test]
fn lent_pages_outlive_all_else() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..4).unwrap();
    let quota = cache.lending(4 * PAGE_BYTES);
    let page = pin(&file, 0).unwrap().into_owned(quota.reserve(PAGE_BYTES).unwrap());
    let mut run = PinnedRun::of(quota.reserve(3 * PAGE_BYTES).unwrap());
    (1..3).for_each(|number| run.push(pin(&file, number).unwrap()));
    assert!(quota.reserve(1).is_none());
    let rest = run.split_unused().expect("one page was not pinned");
    assert!(run.split_unused().is_none());
    assert_eq!((rest.len_bytes(), quota.lent_bytes()), (PAGE_BYTES, 4 * PAGE_BYTES));
    drop(rest);
    let other = pin(&file, 3).unwrap().into_owned(quota.reserve(1).unwrap());
    assert_eq!(cache.stats().pinned_pages, 0, "the quota counts them");
    file.install(pages(0..2), full_of(&arena, 2, 0xAB));
    drop((other, file, cache));
    assert_eq!(quota.lent_bytes(), 3 * PAGE_BYTES);
    drop(quota);
    assert!(page.iter().all(|&byte| byte == 0));
    let bytes: Vec<u8> = run.slices().flatten().copied().step_by(PAGE_BYTES).collect();
    assert_eq!(bytes, [1, 2]);
    std::thread::spawn(move || drop((page, run))).join().unwrap();
    assert_idle(&arena);
}

/// Goal: a page is not taken over by the keeper of another cache.
#[test]
#[should_panic(expected = "the page is of that cache")]
fn a_share_of_another_cache() {
    let (arena, _cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    let (_arena, other, _file) = bench();
    let quota = other.lending(PAGE_BYTES);
    let page = pin(&file, 0).unwrap();
    drop(page.into_owned(quota.reserve(1).unwrap()));
}

/// Goal: what is dirty is neither evicted nor dropped with what is clean; what was held and is clean leaves again, but
/// not while it is held; what was replaced meanwhile stays dirty.
#[test]
fn what_is_dirty_stays_until_it_is_clean() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    file.install(pages(1..4), full_of(&arena, 3, 0xAB));
    assert!(matches!(overwrite(&file, 0, 0, b"new"), Overwritten::Done(_)));
    let all = PageRange::new(page(0), PageIndex::MAX);
    let evict = || cache.evict(10, &mut Vec::new());
    assert_eq!(evict(), 0);
    file.invalidate(all, DirtyToo::No, |_| panic!("all are dirty"));
    let run = file.hold(pages(0..3));
    assert_eq!((run.len_bytes(), cache.stats().pinned_pages), (3 * PAGE_BYTES, 3));
    assert_eq!(overwrite(&file, 0, 0, b"newer"), Overwritten::Pinned);
    file.install(pages(0..1), full_of(&arena, 1, 0xCD));
    run.clean();
    assert_eq!(evict(), 0, "held");
    cache.check();
    drop(run);
    assert_eq!(cache.stats().pinned_pages, 0);
    assert_eq!(evict(), 2, "1 and 2 are clean, 0 was replaced, 3 is dirty");
    assert_eq!(pin(&file, 0).unwrap()[0], 0xCD);
    let mut left = Vec::new();
    file.invalidate(all, DirtyToo::Yes, |dropped| left.push(dropped.page.get()));
    assert_eq!(left, [0, 3]);
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: a run that is not cleaned leaves its pages dirty; one whose cache is gone is memory for as long as it is held.
#[test]
fn a_run_that_failed_leaves_pages_dirty() {
    let (arena, cache, file) = bench();
    file.install(pages(0..2), full_of(&arena, 2, 0xAB));
    drop(file.hold(pages(0..2)));
    assert_eq!(cache.evict(10, &mut Vec::new()), 0);
    let run = file.hold(pages(0..2));
    drop((file, cache));
    run.clean();
    assert_eq!(arena.stats().cached_bytes, 2 * PAGE_BYTES);
    drop(run);
    assert_idle(&arena);
}

/// Goal: I1: readers of a page race with writes in place, with its replacement and with its writing to a device, and see
/// whole writes through pins, which do not change, and whole words in optimistic reads. Method: each write fills the page.
#[test]
fn readers_race_with_writers() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    let look = || {
        if let Some(pinned) = pin(&file, 0) {
            let first = pinned[0];
            assert!(pinned.iter().step_by(257).all(|&byte| byte == first), "a torn page");
        }
        for part in [100..164, 0..FilePages::OPTIMISTIC_BYTES_MAX] {
            let mut bytes = vec![0; part.len()];
            if file.read_optimistic(page(0), part, &mut bytes) == OptimisticRead::Copied {
                assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a torn read: {bytes:?}");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..ROUNDS).for_each(|_| look()));
        }
        for round in 0..ROUNDS {
            let contents = [round as u8; PAGE_BYTES];
            match overwrite(&file, 0, 0, &contents) {
                Overwritten::Done(_) if round % 3 == 0 => file.hold(pages(0..1)).clean(),
                Overwritten::Done(_) => {}
                Overwritten::Pinned => {
                    file.install(pages(0..1), full_of(&arena, 1, round as u8));
                }
                other => panic!("{other:?}, and nobody else takes the page away"),
            }
            assert_eq!(pin(&file, 0).unwrap()[4095], round as u8);
        }
    });
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: the same with eviction and loads of what is on the device: what is found is the last that was written, or absent
/// after it was clean. Method: the device is a word.
#[test]
fn writers_race_with_eviction() {
    let (arena, cache, file) = bench();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                cache.evict(1, &mut Vec::new());
                file.invalidate(pages(0..1), DirtyToo::No, |_| {});
                std::thread::yield_now();
            }
        });
        let mut device = 0;
        for round in 0..ROUNDS {
            let byte = round as u8;
            if let Some(pinned) = pin(&file, 0) {
                assert_eq!((pinned[0], pinned[4095]), (device, device));
            }
            if !matches!(overwrite(&file, 0, 0, &[byte; PAGE_BYTES]), Overwritten::Done(_)) {
                file.install(pages(0..1), full_of(&arena, 1, byte));
            }
            // It is dirty, so it must be there.
            assert_eq!(pin(&file, 0).unwrap()[77], byte);
            let run = file.hold(pages(0..1));
            device = byte;
            run.clean();
        }
        is_done.store(true, Ordering::Release);
    });
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };

/// Goal: memory that is given back costs as little as it can: chunks of pages that nothing has used again go first, and among those in
/// use none that is pinned. Method: four chunks, of which all but the third are used again.
#[test]
#[cfg_attr(miri, ignore)]
fn the_coldest_chunk_goes_first() {
    let arena = Arena::new(9 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    (0..4).for_each(|chunk| load(&arena, &file, chunk * 512..(chunk + 1) * 512).unwrap());
    let mut hot = (0..2048).filter(|page| !(1024..1536).contains(page));
    assert!(hot.by_ref().all(|page| (0..3).all(|_| pin(&file, page).is_some())));
    let mut evicted = Vec::new();
    assert_eq!(cache.shrink(1, &mut evicted), 1);
    assert!(evicted.iter().all(|page| (1024..1536).contains(&page.page.get())), "the cold chunk");
    let pinned = pin(&file, 0).unwrap();
    assert_eq!(cache.shrink(usize::MAX, &mut evicted), 2);
    assert!(evicted.iter().all(|page| page.page.get() >= 512), "the pinned chunk stays");
    assert_eq!(arena.release(usize::MAX), 6 << 20);
    drop(pinned);
}
