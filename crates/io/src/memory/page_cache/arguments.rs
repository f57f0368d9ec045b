//! Arguments: tests that no arguments of safe code make the page cache access memory that is not its own.
//!
//! Owns: arbitrary pages, ranges, lengths, extents and their order.
//! Does not own: tests with arguments in range (page cache, writing).
//! Invariants: I1.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use headwater_core::cache::DirtyToo;
use headwater_core::frame::LoadId;
use headwater_core::units::{ByteRange, PAGE_BYTES, PageCount, PageIndex, PageRange};
use headwater_testkit::Rng;

use super::tests::{assert_idle, bench, load};
use super::*;
use crate::memory::arena::{Extent, Extents, Urgency};

/// In no page but the secret ones.
const SECRET: u8 = 0x5E;

/// Pages on both sides of the file under test in memory.
fn surround(arena: &Arena, cache: &PageCache) -> FilePages {
    let secret = cache.add_file().unwrap();
    for number in 0..16 {
        let mut extent = arena.allocate(PAGE_BYTES, Urgency::Demand).unwrap();
        extent.fill(SECRET);
        assert_eq!(secret.install(range(number, number + 1), [extent].into()), PageCount::new(1));
    }
    secret
}

/// Whether pages are, or reach into, secret ones. Miri sees that at their ends, and takes long for each byte.
fn has_secret(pages: &[u8]) -> bool {
    if cfg!(miri) { [pages.first(), pages.last()].contains(&Some(&SECRET)) } else { pages.contains(&SECRET) }
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange { start: PageIndex::new(start), end: PageIndex::new(end) }
}

/// Reads the page until its reference count is at its maximum, so that it can be read optimistically.
fn make_popular(file: &FilePages, page: PageIndex) {
    for at in 0..8 {
        assert!(matches!(file.pin(page, at * 100..at * 100 + 1), Found::Page(_)));
    }
}

/// Goal: an optimistic read beyond the page, at more than it may be, or at nothing that a range could mean, copies nothing. Method: a page
/// that can be read so, among pages with other bytes; the bounds, and what wraps around.
#[test]
fn optimistic_reads_stay_within_the_page() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    let secret = surround(&arena, &cache);
    let page = PageIndex::new(0);
    make_popular(&file, page);
    let read = |part: Range<u32>, room: usize| {
        let mut buffer = vec![0xAA; room];
        let outcome = file.read_optimistic(page, part.clone(), &mut buffer);
        let expected = if outcome == OptimisticRead::Copied { part.len() } else { 0 };
        let (copied, rest) = buffer.split_at(expected);
        assert!(copied.iter().all(|&byte| byte == 0) && rest.iter().all(|&byte| byte == 0xAA), "{part:?}");
        outcome
    };
    for part in [0..64, 4032..4096, 4095..4096, 7..9, 0..0, 4096..4096] {
        assert_eq!(read(part.clone(), 64), OptimisticRead::Copied, "{part:?}");
    }
    let longest = FilePages::OPTIMISTIC_BYTES_MAX;
    for part in [0..longest, 1..longest, 0..longest - 1, 4096 - longest + 3..4096] {
        assert_eq!(read(part.clone(), longest as usize), OptimisticRead::Copied, "{part:?}");
    }
    let (inverted, last) = (Range { start: 64, end: 0 }, u32::MAX);
    let wrong = [
        0..65,
        4095..4097,
        4096..4160,
        4097..4097,
        2 << 20..(2 << 20) + 64,
        last - 64..last,
        last..last,
        inverted,
    ];
    for part in wrong {
        assert_eq!(read(part.clone(), 64), OptimisticRead::Failed, "{part:?}");
    }
    assert_eq!(read(0..64, 63), OptimisticRead::Failed, "the buffer is shorter");
    assert_eq!(
        read(0..longest + 1, 2 * PAGE_BYTES),
        OptimisticRead::Failed,
        "longer than such a read may be"
    );
    drop((secret, file, cache));
    assert_idle(&arena);
}

/// Goal: a write that is longer than a page, by as much as 32 bits do not hold, is refused, and leaves the page as usable as
/// it was.
#[test]
#[cfg_attr(miri, ignore)] // four gibibytes of zeros, which only the system has for nothing
fn writes_are_as_long_as_they_say() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 1..2).unwrap();
    let page = PageIndex::new(1);
    let zeros = vec![0; (1 << 32) + 8];
    for (start, length) in
        [(0, 4097), (1, 4096), (u32::MAX, 1), (8, (1 << 32) - 8), (0, 1 << 32), (4088, (1 << 32) + 8)]
    {
        let write = || file.overwrite(page, start, &zeros[..length]);
        assert!(catch_unwind(AssertUnwindSafe(write)).is_err(), "{length} bytes at {start}");
    }
    let change = || file.modify(page, u32::MAX - 7, &mut |_| Some(0));
    assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
    assert!(matches!(file.pin(page, 0..1), Found::Page(page) if page.iter().all(|&byte| byte == 1)));
    assert!(matches!(file.overwrite(page, 4095, b"x"), Overwritten::Done(_)));
    drop((file, cache));
    assert_idle(&arena);
}

/// Goal: a page can be pinned as often as is counted, and no more; then it is refused or waited for, can still be held for its
/// file, read optimistically and replaced; each pin that is given up makes room for another.
#[test]
#[cfg_attr(miri, ignore)] // minutes
fn a_page_has_so_many_pins() {
    let (arena, cache, file) = bench();
    let page = PageIndex::new(0);
    let mut extents = arena.allocate_run(PAGE_BYTES, Urgency::Demand).unwrap();
    extents[0].fill(7);
    file.install(range(0, 1), extents);
    make_popular(&file, page);
    let pin = || match file.pin(page, 0..4096) {
        Found::Page(pinned) => Some(pinned),
        Found::Pending(_) | Found::Absent => None,
    };
    let mut pins: Vec<_> = std::iter::from_fn(pin).collect();
    assert_eq!(pins.len(), FilePages::PINS_MAX as usize);
    assert!(pin().is_none() && file.is_resident(page));
    let held = file.hold(range(0, 1));
    assert_eq!(file.read_optimistic(page, 0..64, &mut [0; 64]), OptimisticRead::Copied);
    assert_eq!(file.overwrite(page, 0, b"new"), Overwritten::Pinned);
    std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| matches!(file.pin_or_wait(page, 0..4096), Found::Page(pinned) if pinned[9] == 7));
        // One for the hold, which counts as well.
        pins.truncate(pins.len() - 2);
        assert!(waits.join().unwrap());
    });
    assert!(pin().is_some());
    held.clean();
    drop(held);
    let mut extents = arena.allocate_run(PAGE_BYTES, Urgency::Demand).unwrap();
    extents[0].fill(8);
    file.install(range(0, 1), extents);
    assert_eq!((pin().unwrap()[0], pins[0][0]), (8, 7));
    let holds = || refusable(|| file.hold(range(0, 1)));
    let held: Vec<_> = std::iter::from_fn(holds).collect();
    assert_eq!(held.len(), usize::from(u16::MAX), "the page that nothing else has pinned");
    drop((held, pins));
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

/// Safe code that passes anything.
struct Anyone {
    rng: Rng,
    arena: Arena,
    /// Of the same budget, so that its frames have the same numbers.
    other_arena: Arena,
    cache: PageCache,
    file: FilePages,
    extents: Vec<Extents>,
    loads: Vec<Loading>,
    runs: Vec<PinnedRun>,
    owned: Vec<OwnedPage>,
}

impl Anyone {
    /// Mostly small, sometimes at a bound, sometimes anything.
    fn number(&mut self, bounds: &[u64]) -> u64 {
        match self.rng.below(8) {
            0 => self.rng.next_u64(),
            1 | 2 => bounds[self.rng.below(bounds.len() as u64) as usize]
                .wrapping_add(self.rng.below(3))
                .wrapping_sub(1),
            _ => self.rng.below(6),
        }
    }

    fn page(&mut self) -> PageIndex {
        let last = PageIndex::MAX.get();
        let number = self.number(&[last, 1 << 44, 1 << 32, 512, 1 << 18]);
        PageIndex::new(number.min(last))
    }

    fn pages(&mut self) -> PageRange {
        let start = self.page();
        let count = self.rng.below(4);
        let end = PageIndex::new(start.get().saturating_add(count).min(PageIndex::MAX.get()));
        // Any two numbers are a range to a caller that does not check.
        if self.rng.chance(1, 8) {
            PageRange { start: self.page(), end: start }
        } else {
            PageRange { start, end }
        }
    }

    fn offset(&mut self) -> u32 {
        self.number(&[4096, 1 << 32, 1 << 31, 64, 1 << 21, 4088]) as u32
    }

    fn part(&mut self) -> Range<u32> {
        let start = self.offset();
        let length = self.rng.below(200) as u32;
        if self.rng.chance(1, 4) { start..self.offset() } else { start..start.wrapping_add(length) }
    }

    fn extents(&mut self) -> Extents {
        let is_other = self.rng.chance(1, 16);
        let arena = if is_other { &self.other_arena } else { &self.arena };
        let bytes = (1 + self.rng.below(4) as usize) * PAGE_BYTES;
        let mut extents = arena.allocate_run(bytes, Urgency::Demand).unwrap_or_default();
        extents.iter_mut().for_each(|extent: &mut Extent| extent.fill(self.rng.below(64) as u8));
        extents
    }

    /// One of those that were kept, or new ones.
    fn some_extents(&mut self) -> Extents {
        if self.rng.chance(1, 2) {
            self.extents()
        } else {
            take(&mut self.rng, &mut self.extents).unwrap_or_default()
        }
    }

    fn look(&mut self) {
        let (page, part, mut buffer) = (self.page(), self.part(), vec![0; self.rng.below(100) as usize]);
        self.file.fetch(page, part.clone());
        if self.file.read_optimistic(page, part.clone(), &mut buffer) == OptimisticRead::Copied {
            assert!(part.end <= 4096 && part.len() <= buffer.len(), "{part:?} of a page");
            assert!(!buffer.contains(&SECRET), "an optimistic read of {part:?}");
        }
        if let Found::Page(pinned) = self.file.pin(page, part) {
            assert_eq!(pinned.len(), PAGE_BYTES);
            assert!(!has_secret(&pinned));
            match self.rng.below(4) {
                0 => self.owned.push(pinned.into_owned(&self.file)),
                1 => {
                    let mut run = PinnedRun::of(&self.file);
                    run.push(pinned);
                    self.runs.push(run);
                }
                _ => {}
            }
        }
    }

    fn look_at_several(&mut self) {
        let (start, end) = (self.number(&[u64::MAX, 1 << 44, 4096]), self.number(&[u64::MAX, 1 << 44, 9000]));
        let mut run = PinnedRun::of(&self.file);
        self.file.pin_each(ByteRange { start, end }, |pinned, part| {
            assert!(part.start < part.end && part.end <= 4096, "{part:?} of a page");
            assert!(!has_secret(&pinned));
            run.push(pinned);
        });
        self.runs.push(run);
    }

    fn write(&mut self) {
        let (page, start, length) = (self.page(), self.offset(), self.number(&[4096, 64]).min(9000) as usize);
        if self.rng.chance(1, 2) {
            refusable(|| self.file.overwrite(page, start, &vec![1; length]));
        } else {
            refusable(|| self.file.modify(page, start, &mut |word| (word & 1 == 0).then_some(0)));
        }
    }

    fn change_pages(&mut self) {
        let pages = self.pages();
        match self.rng.below(6) {
            0 => {
                let extents = self.some_extents();
                refusable(|| self.file.install(pages, extents));
            }
            1 => self.runs.extend(refusable(|| self.file.hold(pages))),
            2 => self.file.invalidate(pages, DirtyToo::Yes, |_| {}),
            3 => self.file.missing(pages, &mut Vec::new()),
            4 => assert!(self.file.count(pages).loading <= 4096),
            _ => {
                self.file.mark(pages.start);
                self.file.demand(pages.start);
                assert!(!self.file.is_resident(pages.start) || self.file.holds(pages.start));
            }
        }
    }

    fn begin_load(&mut self) {
        let (pages, ahead_from) = (self.pages(), self.page());
        let extents = self.some_extents();
        let load = LoadId::new(self.rng.next_u64() as u32);
        let begun = refusable(|| self.file.begin_load(pages, &extents, load, ahead_from));
        self.loads.extend(begun.and_then(Result::ok));
        // Kept, or given back although a load may wait for them.
        if self.rng.chance(3, 4) {
            self.extents.push(extents);
        }
    }

    fn end_load(&mut self) {
        let Some(loading) = take(&mut self.rng, &mut self.loads) else { return };
        let read_bytes = self.number(&[4096, 8192, u64::MAX]) as usize;
        let place = self
            .extents
            .iter()
            .position(|extents| extents.iter().map(Extent::frames).eq(loading.frames.iter().cloned()));
        let extents = match place {
            Some(place) if self.rng.chance(3, 4) => self.extents.swap_remove(place),
            _ => self.some_extents(),
        };
        match self.rng.below(3) {
            0 => loading.fail(extents),
            _ => _ = refusable(|| loading.publish(extents, read_bytes)),
        }
    }

    fn make_room(&mut self) {
        let (count, mut evicted) = (self.number(&[u64::MAX]) as usize, Vec::new());
        match self.rng.below(6) {
            0 => self.runs.clear(),
            1 => self.owned.clear(),
            2 => self.extents.clear(),
            3 => _ = self.cache.shrink(count, &mut evicted),
            4 => _ = self.arena.release(count),
            _ => _ = self.cache.evict(count, &mut evicted),
        }
    }
}

/// What may be refused with a panic, which must leave everything as usable as it was.
fn refusable<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

fn take<T>(rng: &mut Rng, from: &mut Vec<T>) -> Option<T> {
    if from.is_empty() {
        return None;
    }
    let place = rng.below(from.len() as u64) as usize;
    Some(from.swap_remove(place))
}

/// Goal: whatever is passed, in whatever order, no byte of another file is seen or changed, and the cache's own records stay
/// right. Method: random operations with random arguments, of which many panic, on a file between two of another's pages that
/// are full of a byte that no other page has.
#[test]
fn arbitrary_arguments_reach_no_other_file() {
    let (arena, cache, file) = bench();
    let secret = surround(&arena, &cache);
    let other_arena = Arena::new(3 << 20).unwrap();
    let (extents, loads, runs, owned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let rng = Rng::new(0xA11);
    let mut anyone = Anyone { rng, arena, other_arena, cache, file, extents, loads, runs, owned };
    for round in 0..ROUNDS {
        match anyone.rng.below(9) {
            0 | 1 => anyone.look(),
            7 => anyone.look_at_several(),
            2 => anyone.write(),
            3 | 4 => anyone.change_pages(),
            5 => anyone.begin_load(),
            6 => anyone.end_load(),
            _ => anyone.make_room(),
        }
        if round % 64 == 0 {
            anyone.cache.check();
        }
    }
    let slices = |run: &PinnedRun| run.slices().all(|slice| !has_secret(slice));
    assert!(anyone.runs.iter().all(slices) && anyone.owned.iter().all(|page| !has_secret(page)));
    for number in 0..16 {
        let Found::Page(page) = secret.pin(PageIndex::new(number), 0..4096) else { panic!("it is dirty") };
        assert!(page[..] == [SECRET; PAGE_BYTES], "page {number} was changed");
    }
    anyone.loads.clear();
    assert_eq!(anyone.cache.loading_pages(), 0, "what was refused in the middle was not ended");
    anyone.cache.check();
    let Anyone { arena, other_arena, cache, file, extents, runs, owned, .. } = anyone;
    drop((secret, file, cache, extents, runs, owned));
    assert_idle(&arena);
    assert_idle(&other_arena);
}

/// Goal: extents that a load still needs are refused as a whole: no page changes, and their memory returns to the arena. Method: the
/// load's frames are the last of three, so that two pages could have been installed before.
#[test]
fn extents_of_a_load_are_not_installed() {
    let (arena, cache, file) = bench();
    load(&arena, &file, 0..1).unwrap();
    let wanted = arena.allocate_run(PAGE_BYTES, Urgency::Demand).unwrap();
    let loading = file.begin_load(range(9, 10), &wanted, LoadId::new(0), PageIndex::new(9)).unwrap();
    let others = [(); 2].map(|()| arena.allocate(PAGE_BYTES, Urgency::Demand).unwrap());
    let extents: Extents = others.into_iter().chain(wanted).collect();
    let cached_bytes = arena.stats().cached_bytes;
    assert!(refusable(|| file.install(range(0, 3), extents)).is_none());
    assert_eq!((arena.stats().used_bytes, arena.stats().cached_bytes), (0, cached_bytes));
    assert!(matches!(file.pin(PageIndex::new(0), 0..1), Found::Page(page) if page[0] == 0));
    assert!(matches!(file.pin(PageIndex::new(1), 0..1), Found::Absent));
    drop(loading);
    cache.check();
    drop((file, cache));
    assert_idle(&arena);
}

const ROUNDS: u64 = if cfg!(miri) { 100 } else { 6000 };
