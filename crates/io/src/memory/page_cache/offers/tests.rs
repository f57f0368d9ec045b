//! Tests: pages on offer, and a kernel that takes them.
//!
//! The kernel's pressure is `MADV_PAGEOUT`, which reclaims a range as a shortage of memory would; or, where a part of a huge page is to
//! be taken, and under miri, zeros that are stored in pages on offer.
//!
//! Owns: what a reader sees then.
//! Does not own: orders of the steps (loom, in core), real shortages (`tests/elastic` of the engine).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use headwater_core::buddy::CHUNK_BYTES;
use headwater_core::cache::DirtyToo;
use headwater_core::units::{PAGE_BYTES, PageIndex, PageRange};

use headwater_testkit::{Rng, watched};

use super::super::tests::{assert_idle, bench, load, pin};
use super::super::{FilePages, Found, Overwritten};
use super::OfferForm::{AsAWhole, InPages};
use super::*;
use crate::memory::arena::{Arena, Chunk, ChunkUser, Forgotten, Urgency};

/// Pages in the chunk: all that it has room for, or under miri a few more than those without which it is not offered.
const PAGES: u64 = if cfg!(miri) { CHUNK_FRAMES as u64 / 2 + 4 } else { CHUNK_FRAMES as u64 };

/// The same as a count of frames.
const FRAMES: usize = PAGES as usize;

/// From one byte that is looked at to the next.
const STEP_BYTES: usize = 509;

/// A cache of one chunk, all pages of which are on offer.
fn offered() -> (Arena, PageCache, FilePages) {
    offered_as(AsAWhole)
}

fn offered_as(form: OfferForm) -> (Arena, PageCache, FilePages) {
    let (arena, cache, file) = bench();
    load_up_to(&arena, &file, PAGES);
    assert_eq!(cache.offer(CHUNK_BYTES, form), CHUNK_BYTES);
    assert_eq!(cache.stats().offered_pages, FRAMES);
    check(&cache);
    (arena, cache, file)
}

/// The file's pages before `end`, in extents that have no room for more.
fn load_up_to(arena: &Arena, file: &FilePages, end: u64) {
    const HALF: u64 = CHUNK_FRAMES as u64 / 2;
    for pages in [0..HALF.min(end), HALF..end] {
        load(arena, file, pages).unwrap();
    }
}

/// The cache's invariants. Takes miri seconds for a full chunk, and has no unsafe code; it does so in the tests of few pages.
fn check(cache: &PageCache) {
    if !cfg!(miri) {
        cache.check();
    }
}

/// As the kernel does: each of these pages is zeros, unless it was touched since it was offered.
fn take(file: &FilePages, pages: impl Iterator<Item = u64>) {
    let shared = &file.file.shared;
    for id in pages.filter_map(|page| shared.cache.find(&file.file.table, PageIndex::new(page))) {
        if shared.cache.frame(id).unwrap().state() == FrameState::Offered {
            let base = shared.arena.frame(id).unwrap();
            // Words as wide as a sentinel: miri does not know atomic accesses of two widths to one place; and it is slow, so that there only
            // those go that are looked at, the sentinel's among them.
            let step_bytes = if cfg!(miri) { STEP_BYTES } else { 4 };
            for word in (0..PAGE_BYTES).step_by(step_bytes).map(|byte| byte / 4) {
                // SAFETY: the word lies in a page on offer, which is accessed atomically.
                unsafe { AtomicU32::from_ptr(base.as_ptr().cast::<u32>().add(word)) }
                    .store(0, Ordering::Relaxed);
            }
        }
    }
}

/// The kernel reclaims what it can of the first chunk.
fn press(arena: &Arena, file: &FilePages) {
    if cfg!(miri) {
        return take(file, 0..PAGES);
    }
    press_chunk(arena, 0);
}

fn press_chunk(arena: &Arena, chunk: u32) {
    let base = arena.frame(FrameId::new(chunk * CHUNK_FRAMES as u32)).unwrap();
    // SAFETY: the chunk is mapped; reclaiming changes nothing but what is on offer.
    let result = unsafe { libc::madvise(base.as_ptr().cast(), CHUNK_BYTES, libc::MADV_PAGEOUT) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn holds_its_number(file: &FilePages, page: u64) -> Option<bool> {
    pin(file, page).map(|pinned| pinned.iter().step_by(STEP_BYTES).all(|&byte| byte == page as u8))
}

/// Goal: a page that was taken is a miss, and a page of zeros is zeros; pages that were taken are reported, and their memory is back with
/// the system.
#[test]
fn what_was_taken_is_a_miss() {
    let (arena, cache, file) = offered();
    press(&arena, &file);
    for page in 0..PAGES {
        let expected = (page as u8 == 0).then_some(true);
        assert_eq!(holds_its_number(&file, page), expected, "page {page}");
    }
    assert_eq!(arena.stats().taken_bytes, (PAGES - 2) * PAGE_BYTES as u64);
    let mut evicted = Vec::new();
    cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut evicted);
    evicted.sort_by_key(|page| page.page);
    assert!(evicted.iter().all(|page| page.file == file.id()));
    let pages = evicted.iter().map(|page| page.page.get()).filter(|page| *page as u8 != 0);
    assert!(pages.eq((0..PAGES).filter(|page| *page as u8 != 0)));
    check(&cache);
    drop((cache, file));
    assert_idle(&arena);
}

/// Goal: what no reader looked at is found by looking after it: it leaves, and the chunk goes back to the system as a whole.
#[test]
fn what_was_taken_is_noticed() {
    let (arena, cache, file) = offered();
    press(&arena, &file);
    let mut evicted = Vec::new();
    cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut evicted);
    assert_eq!((evicted.len(), cache.stats().resident_pages), (FRAMES, 0));
    let stats = arena.stats();
    assert_eq!((stats.mapped_bytes, stats.cached_bytes, stats.offered_bytes), (0, 0, 0));
    assert_eq!(stats.taken_bytes, (PAGES - 2) * PAGE_BYTES as u64);
    load(&arena, &file, 0..if cfg!(miri) { 8 } else { PAGES }).unwrap();
    assert_eq!(holds_its_number(&file, 7), Some(true));
    check(&cache);
}

/// Goal: a page that was used is not taken any more: a reader's touch has written to it. What is offered in pages can be taken beside
/// it. Method: pages are used, then the kernel takes what it can.
#[test]
fn what_was_used_stays() {
    for form in [AsAWhole, InPages] {
        let (arena, cache, file) = offered_as(form);
        let used = [1, 5, 200, PAGES - 1];
        assert!(used.iter().all(|page| holds_its_number(&file, *page) == Some(true)));
        assert_eq!(cache.stats().offered_pages, FRAMES - used.len());
        press(&arena, &file);
        assert!(used.iter().all(|page| holds_its_number(&file, *page) == Some(true)));
        for page in 0..PAGES {
            assert_ne!(holds_its_number(&file, page), Some(false), "page {page}");
        }
        let left_pages = PAGES - arena.stats().taken_bytes / PAGE_BYTES as u64;
        // Page 0 of zeros, and those that were used, with one or the other that the kernel did not get at.
        assert!(form == AsAWhole || left_pages <= 32, "{left_pages} pages are left");
        check(&cache);
    }
}

/// Goal: a huge page that is taken in parts: each page by itself is there, or a miss. Method: every second page is taken.
#[test]
fn parts_of_a_chunk_are_taken() {
    let (arena, cache, file) = offered();
    take(&file, (1..PAGES).step_by(2));
    for page in 0..PAGES {
        assert_eq!(holds_its_number(&file, page), (page % 2 == 0).then_some(true), "page {page}");
    }
    assert_eq!(arena.stats().taken_bytes, PAGES / 2 * PAGE_BYTES as u64);
    check(&cache);
    drop((cache, file));
    assert_idle(&arena);
}

/// Goal: a chunk of which little was taken stays on offer, and what was taken of it leaves.
#[test]
fn a_few_pages_that_were_taken_leave() {
    let (arena, cache, file) = offered();
    take(&file, 1..10);
    assert_eq!(pin(&file, 1).map(|_| ()), None);
    let mut evicted = Vec::new();
    cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut evicted);
    assert_eq!((evicted.len(), cache.stats().offered_pages), (9, FRAMES - 9));
    assert!(arena.allocate(PAGE_BYTES, Urgency::Demand).is_none(), "its free frames are withheld");
    assert_eq!(holds_its_number(&file, 10), Some(true));
    check(&cache);
}

/// Goal: nothing is offered of a chunk in which anything is in use, and it is as before. Method: each use there is.
#[test]
fn what_is_in_use_is_not_offered() {
    let (arena, cache, file) = bench();
    load_up_to(&arena, &file, PAGES - 1);
    let refused = |what: &str| {
        for _ in 0..=REFUSED_ROUNDS {
            cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut Vec::new());
        }
        assert_eq!((cache.offer(CHUNK_BYTES, AsAWhole), cache.stats().offered_pages), (0, 0), "{what}");
        check(&cache);
    };
    let pinned = pin(&file, 3).unwrap();
    refused("a page that is pinned");
    drop(pinned);
    let extent = arena.allocate(PAGE_BYTES, Urgency::Demand).expect("no memory is withheld");
    refused("memory around the cache");
    drop(extent);
    assert!(matches!(file.overwrite(PageIndex::new(9), 0, &[9]), Overwritten::Done(_)));
    refused("a page that is dirty");
    drop(file.hold(PageRange::new(PageIndex::new(9), PageIndex::new(10))));
    file.invalidate(PageRange::new(PageIndex::new(9), PageIndex::new(10)), DirtyToo::Yes, |_| {});
    for _ in 0..=REFUSED_ROUNDS {
        cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut Vec::new());
    }
    assert_eq!(cache.offer(CHUNK_BYTES, AsAWhole), CHUNK_BYTES, "beside free frames");
    assert_eq!(arena.stats().offered_bytes, CHUNK_BYTES);
}

/// Goal: a chunk of which a few pages were used is offered again, if that is wanted; one that is used more, or not wanted, comes back, and
/// what is free of it is allocated again.
#[test]
fn what_is_used_much_comes_back() {
    for (uses, wanted_bytes, is_kept) in [(3, CHUNK_BYTES, true), (100, CHUNK_BYTES, false), (3, 0, false)] {
        let (arena, cache, file) = offered();
        assert!((0..uses).all(|page| holds_its_number(&file, page) == Some(true)));
        file.invalidate(PageRange::new(PageIndex::new(0), PageIndex::new(1)), DirtyToo::No, |_| {});
        let mut evicted = Vec::new();
        cache.tend_offers(wanted_bytes, AsAWhole, &mut evicted);
        assert!(evicted.is_empty());
        let offered_pages = if is_kept { FRAMES - 1 } else { 0 };
        assert_eq!(cache.stats().offered_pages, offered_pages, "{uses} uses");
        assert_eq!(arena.allocate(PAGE_BYTES, Urgency::Demand).is_some(), !is_kept);
        press(&arena, &file);
        let is_there = |page| holds_its_number(&file, page) == Some(true);
        assert_eq!((1..PAGES).all(is_there), !is_kept);
        check(&cache);
        drop((cache, file));
        assert_idle(&arena);
    }
}

/// Goal: of a chunk that the kernel takes in pages, those that were used are offered again when they have become many, and the kernel may take the
/// others meanwhile. Method: ten pages are used between two rounds.
#[test]
fn a_chunk_in_pages_is_offered_again_when_it_is_worth_it() {
    let (arena, cache, file) = offered_as(InPages);
    let mut expected_pages = FRAMES;
    for (round, used) in [100..110, 110..120, 120..130, 130..140].into_iter().enumerate() {
        assert!(used.clone().all(|page| holds_its_number(&file, page) == Some(true)));
        expected_pages -= used.count();
        cache.tend_offers(CHUNK_BYTES, InPages, &mut Vec::new());
        if round == 3 {
            expected_pages = FRAMES;
        }
        assert_eq!(cache.stats().offered_pages, expected_pages, "round {round}");
    }
    assert_eq!(holds_its_number(&file, 100), Some(true));
    cache.tend_offers(CHUNK_BYTES, InPages, &mut Vec::new());
    press(&arena, &file);
    assert_eq!(holds_its_number(&file, 100), Some(true), "it was used");
    assert_eq!(holds_its_number(&file, 101), None, "the kernel was told again");
    assert_eq!(holds_its_number(&file, 5), None, "it was never used");
    check(&cache);
}

/// Goal: a page on offer is written to like any other, and its chunk, which is dirty then, comes back.
#[test]
fn a_page_on_offer_is_written() {
    let (arena, cache, file) = offered();
    assert!(matches!(file.overwrite(PageIndex::new(9), 100, &[77; 3]), Overwritten::Done(_)));
    press(&arena, &file);
    assert_eq!(pin(&file, 9).unwrap()[99..104], [9, 77, 77, 77, 9]);
    cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut Vec::new());
    assert_eq!((cache.stats().offered_pages, arena.stats().offered_bytes), (0, 0));
    check(&cache);
}

/// Goal: when nothing else can be evicted, what is on offer is, as a whole, and its memory can be used; so it is under pressure.
#[test]
fn an_offer_is_evicted() {
    let (arena, cache, file) = offered();
    assert!(arena.allocate(PAGE_BYTES, Urgency::Demand).is_none());
    let mut evicted = Vec::new();
    assert_eq!(cache.evict(1, &mut evicted), FRAMES);
    assert!(arena.allocate(CHUNK_BYTES, Urgency::Demand).is_some());
    load_up_to(&arena, &file, PAGES);
    assert_eq!(cache.offer(CHUNK_BYTES, AsAWhole), CHUNK_BYTES);
    assert_eq!((cache.shrink(1, &mut evicted), arena.release(1)), (1, CHUNK_BYTES));
    assert_eq!((evicted.len(), arena.stats().offered_bytes), (2 * FRAMES, 0));
    check(&cache);
}

/// Goal: all rings forget a chunk before it is offered; one that does not keeps it from being offered, and its pages are as before.
#[test]
fn rings_forget_a_chunk_first() {
    struct Ring(AtomicBool, AtomicUsize);
    impl ChunkUser for Ring {
        fn forget(&self, _: &Chunk) -> Forgotten {
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.0.load(Ordering::Relaxed) { Forgotten::No } else { Forgotten::Yes }
        }
    }
    let (arena, cache, file) = bench();
    let ring = Arc::new(Ring(AtomicBool::new(true), AtomicUsize::new(0)));
    let weak: Weak<Ring> = Arc::downgrade(&ring);
    arena.key().add_ring(weak);
    load_up_to(&arena, &file, PAGES);
    assert_eq!((cache.offer(CHUNK_BYTES, AsAWhole), cache.stats().offered_pages), (0, 0));
    press(&arena, &file);
    assert!((0..PAGES).all(|page| holds_its_number(&file, page) == Some(true)));
    ring.0.store(false, Ordering::Relaxed);
    for _ in 0..=REFUSED_ROUNDS {
        cache.tend_offers(CHUNK_BYTES, AsAWhole, &mut Vec::new());
    }
    assert_eq!((cache.offer(CHUNK_BYTES, AsAWhole), ring.1.load(Ordering::Relaxed)), (CHUNK_BYTES, 2));
}

/// Goal: readers, the offerer and a kernel that takes what it can race, and every reader sees the page or a miss. Method: three chunks,
/// which readers fill with what they miss; every byte that is read is compared.
#[test]
#[cfg_attr(miri, ignore)] // minutes there
fn readers_race_with_the_kernel() {
    const CHUNKS: u64 = 3;
    let arena = Arena::new((CHUNKS as usize * CHUNK_BYTES) + (1 << 20)).unwrap();
    let cache = PageCache::new(&arena, headwater_core::replacement::Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    let (done, reads, misses) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let read = |mut at: u64| {
            while reads.fetch_add(1, Ordering::Relaxed) < 400_000 {
                at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let page = (at >> 33) % (CHUNKS * CHUNK_FRAMES as u64);
                match file.pin(PageIndex::new(page), 0..4096) {
                    Found::Page(pinned) => assert!(pinned.iter().all(|&byte| byte == page as u8), "{page}"),
                    Found::Pending(_) => {}
                    Found::Absent => {
                        misses.fetch_add(1, Ordering::Relaxed);
                        load_one(&arena, &cache, &file, page);
                    }
                }
            }
        };
        let readers = [1, 2].map(|seed| scope.spawn(move || read(seed)));
        scope.spawn(|| {
            let (mut evicted, mut rng) = (Vec::new(), Rng::new(3));
            while !done.load(Ordering::Relaxed) {
                let form = if rng.chance(1, 2) { AsAWhole } else { InPages };
                cache.tend_offers(2 * CHUNK_BYTES, form, &mut evicted);
                cache.offer(2 * CHUNK_BYTES, form);
                let mapped = arena.stats().mapped_bytes / CHUNK_BYTES;
                (0..mapped as u32).for_each(|chunk| press_chunk(&arena, chunk));
                evicted.clear();
            }
        });
        let readers = readers.map(|reader| reader.join());
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.unwrap());
    });
    println!("{} misses, {:?}", misses.load(Ordering::Relaxed), arena.stats());
    assert!(arena.stats().taken_bytes > 0);
    check(&cache);
    drop((cache, file));
    assert_idle(&arena);
}

fn load_one(arena: &Arena, cache: &PageCache, file: &FilePages, page: u64) {
    let Some(mut extent) = arena.allocate(PAGE_BYTES, Urgency::Demand) else {
        cache.evict(16, &mut Vec::new());
        return;
    };
    extent.store(0, &[page as u8; PAGE_BYTES]);
    let extents = crate::memory::arena::Extents::from_iter([extent]);
    let pages = PageRange::new(PageIndex::new(page), PageIndex::new(page + 1));
    if let Ok(loading) = file.begin_load(pages, &extents, headwater_core::frame::LoadId::new(0), pages.end) {
        loading.publish(extents, PAGE_BYTES);
    }
}

/// Goal: no ring registers memory that the kernel may still take because nothing was written to it: what a device writes there does not count.
/// Method: frames of a chunk that was on offer when its pages were evicted.
#[test]
fn what_the_kernel_may_still_take_is_not_registered() {
    let (arena, cache, file) = bench();
    let before = arena.allocate(PAGE_BYTES, Urgency::Demand).unwrap();
    assert!(before.chunk_to_register().is_some());
    drop(before);
    load_up_to(&arena, &file, PAGES);
    assert_eq!(cache.offer(CHUNK_BYTES, AsAWhole), CHUNK_BYTES);
    assert!(cache.evict(PAGES as usize, &mut Vec::new()) > 0);
    let after = arena.allocate(PAGE_BYTES, Urgency::Demand).unwrap();
    assert!(after.chunk_to_register().is_none());
    drop((after, cache, file));
}

/// Goal: what waits for memory may ask for it at once when it is woken. Method: a waker that evicts, as an allocation does.
#[test]
#[cfg_attr(miri, ignore)] // has no unsafe code of its own
fn a_waker_may_evict() {
    struct Evicts(PageCache);
    impl Wake for Evicts {
        fn wake(self: Arc<Self>) {
            self.0.evict(1, &mut Vec::new());
        }
    }
    let (arena, cache, file) = offered();
    let mut freed = arena.freed();
    let waker = Waker::from(Arc::new(Evicts(cache.clone())));
    assert!(Pin::new(&mut freed).poll(&mut Context::from_waker(&waker)).is_pending());
    watched("an eviction", || assert!(cache.evict(1, &mut Vec::new()) > 0));
    drop((freed, waker, cache, file));
    assert_idle(&arena);
}
