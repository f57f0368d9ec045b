//! Page cache: pages of files in the frames of an arena, without any I/O, against what they must contain.
//!
//! ```text
//!   Model: page ─► the bytes that were published last        PageCache: begin_load ─► fill ─► publish | fail | drop
//!                        └────────── every pinned page compared ──────────┘
//! ```
//!
//! Owns: the model, threads that change one cache at once, the memory that tables take.
//! Does not own: requests (the other modules), states and tables by themselves (`headwater-core`).

use std::collections::BTreeMap;
use std::thread;

use headwater_core::cache::DirtyToo;
use headwater_core::frame::LoadId;
use headwater_core::replacement::Policy;
use headwater_core::units::{PAGE_BYTES, PageIndex, PageRange};
use headwater_io::{
    Arena, Extents, FilePages, Found, Loading, NotBegun, OwnedPage, PageCache, PinnedPage, Urgency,
};
use headwater_testkit::{Rng, mix, with_seed};
use proptest::prelude::{ProptestConfig, any};
use proptest::{collection, proptest};

/// A cache, its files, and what each page must contain.
struct Model {
    arena: Arena,
    cache: PageCache,
    files: Vec<FilePages>,
    /// What was published last, by file and page: a version, and how many bytes of it. Evicted pages may stay.
    expected: BTreeMap<(usize, u64), (u64, usize)>,
    loading: Vec<UnderWay>,
    owned: Vec<(OwnedPage, u64, usize)>,
    next_version: u64,
}

/// A load with its memory, as a request holds it.
struct UnderWay {
    file: usize,
    loading: Loading,
    extents: Extents,
    version: u64,
    /// Pages that were invalidated since.
    stale: Vec<u64>,
}

impl Model {
    fn new(memory_bytes: usize) -> Model {
        let arena = Arena::new(memory_bytes).unwrap();
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let files = (0..3).map(|_| cache.add_file().unwrap()).collect();
        let (expected, loading, owned) = (BTreeMap::new(), Vec::new(), Vec::new());
        Model { arena, cache, files, expected, loading, owned, next_version: 1 }
    }

    fn apply(&mut self, rng: &mut Rng) {
        match rng.below(16) {
            0..=4 => self.begin(rng),
            5..=7 => self.publish(rng),
            8 => self.fail(rng),
            9 | 10 => self.pin(rng),
            11 => self.own(rng),
            12 => drop(self.owned.pop()),
            13 => self.evict(rng),
            14 => self.invalidate(rng),
            _ => self.replace_file(rng),
        }
        let stats = self.cache.stats();
        let in_flight: u64 = self.loading.iter().map(|load| load.loading.pages().len().get()).sum();
        assert_eq!(stats.loading_pages as u64, in_flight);
        // Pages that were lent and have left the cache since are memory of nobody else's.
        assert!(self.arena.stats().cached_bytes >= stats.resident_pages * PAGE_BYTES);
        assert!(self.arena.stats().cached_bytes <= (stats.resident_pages + self.owned.len()) * PAGE_BYTES);
    }

    /// Near the start or far out, where tables are deep.
    fn draw(rng: &mut Rng) -> (usize, u64) {
        let file = rng.below(3) as usize;
        let base = [0, 0, 0, 1 << 20, 1 << 40, (1 << 44) - 64][rng.below(6) as usize];
        (file, base + rng.below(48))
    }

    fn begin(&mut self, rng: &mut Rng) {
        let ((file, first), pages) = (Model::draw(rng), 1 + rng.below(24));
        let pages = PageRange::new(PageIndex::new(first), PageIndex::new(first + pages));
        let urgency = if rng.chance(1, 3) { Urgency::Readahead } else { Urgency::Demand };
        let bytes = pages.len().bytes() as usize;
        let Some(extents) = self.arena.allocate_run(bytes, urgency) else {
            self.evict(rng);
            return;
        };
        let version = self.next_version;
        self.next_version += 1;
        let ahead_from = if rng.chance(1, 2) { pages.end } else { pages.start };
        match self.files[file].begin_load(pages, &extents, LoadId::new(version as u32), ahead_from) {
            Ok(loading) => self.loading.push(UnderWay { file, loading, extents, version, stale: Vec::new() }),
            Err(obstacle) => {
                assert_eq!(obstacle, NotBegun::Present);
                assert!(self.files[file].holds(pages.start));
            }
        }
    }

    fn publish(&mut self, rng: &mut Rng) {
        let Some(mut load) = self.take_load(rng) else { return };
        let pages = load.loading.pages();
        let whole_bytes = pages.len().bytes() as usize;
        let read_bytes =
            if rng.chance(1, 3) { rng.below(whole_bytes as u64 + 1) as usize } else { whole_bytes };
        fill(&mut load.extents, load.version, pages, whole_bytes);
        load.loading.publish(load.extents, read_bytes);
        for (place, page) in pages.iter().enumerate() {
            let valid_bytes = read_bytes.saturating_sub(place * PAGE_BYTES).min(PAGE_BYTES);
            if load.stale.contains(&page.get()) {
                continue;
            }
            if valid_bytes > 0 {
                self.expected.insert((load.file, page.get()), (load.version, valid_bytes));
            } else {
                self.expected.remove(&(load.file, page.get()));
                assert!(!self.files[load.file].holds(page));
            }
        }
    }

    fn fail(&mut self, rng: &mut Rng) {
        let Some(load) = self.take_load(rng) else { return };
        if rng.chance(1, 2) {
            load.loading.fail(load.extents);
        } else {
            // As a request that is abandoned does it.
            drop(load.loading);
            drop(load.extents);
        }
    }

    fn take_load(&mut self, rng: &mut Rng) -> Option<UnderWay> {
        let count = self.loading.len() as u64;
        (count > 0).then(|| self.loading.swap_remove(rng.below(count) as usize))
    }

    fn is_loading(&self, file: usize, page: u64) -> bool {
        self.loading.iter().any(|load| {
            let pages = load.loading.pages();
            let covers = pages.start.get() <= page && page < pages.end.get();
            load.file == file && covers && !load.stale.contains(&page)
        })
    }

    fn pin(&mut self, rng: &mut Rng) {
        let (file, page) = Model::draw(rng);
        match self.files[file].pin(PageIndex::new(page), 0..4096) {
            Found::Page(pinned) => {
                assert_eq!(pinned.pins() as usize, 1 + self.owners(&pinned));
                let (version, valid_bytes) = self.expected[&(file, page)];
                check(&pinned, version, page, valid_bytes);
                // What is pinned stays, whatever is evicted and invalidated beside it.
                self.cache.evict(if rng.chance(1, 8) { 4096 } else { 8 }, &mut Vec::new());
                check(&pinned, version, page, valid_bytes);
            }
            Found::Pending(_) => assert!(self.is_loading(file, page)),
            Found::Absent => assert!(!self.is_loading(file, page)),
        }
    }

    fn owners(&self, pinned: &PinnedPage<'_>) -> usize {
        self.owned.iter().filter(|(owned, ..)| owned.as_ptr() == pinned.as_ptr()).count()
    }

    fn own(&mut self, rng: &mut Rng) {
        let (file, page) = Model::draw(rng);
        if let Found::Page(pinned) = self.files[file].pin(PageIndex::new(page), 0..1) {
            let (version, valid_bytes) = self.expected[&(file, page)];
            self.owned.push((pinned.into_owned(&self.files[file]), version ^ page, valid_bytes));
        }
        for (owned, salt, valid_bytes) in &self.owned {
            check(owned, *salt, 0, *valid_bytes);
        }
    }

    fn evict(&mut self, rng: &mut Rng) {
        let mut evicted = Vec::new();
        let count = self.cache.evict(1 + rng.below(40) as usize, &mut evicted);
        assert_eq!(count, evicted.len());
        for page in evicted {
            let Some(file) = self.files.iter().position(|file| file.id() == page.file) else {
                panic!("a page of no file was evicted")
            };
            assert!(self.expected.remove(&(file, page.page.get())).is_some());
            assert!(!self.files[file].holds(page.page));
        }
    }

    fn invalidate(&mut self, rng: &mut Rng) {
        let ((file, first), pages) = (Model::draw(rng), 1 + rng.below(48));
        self.invalidate_pages(file, first, first + pages);
    }

    fn invalidate_pages(&mut self, file: usize, first: u64, end: u64) {
        let pages = PageRange::new(PageIndex::new(first), PageIndex::new(end));
        let mut dropped = Vec::new();
        self.files[file].invalidate(pages, DirtyToo::Yes, |page| dropped.push(page.page.get()));
        let loading: Vec<u64> =
            (first..end.min(first + 100)).filter(|page| self.is_loading(file, *page)).collect();
        for load in self.loading.iter_mut().filter(|load| load.file == file) {
            let covered = load.loading.pages();
            load.stale.extend(loading.iter().filter(|page| covered.iter().any(|p| p.get() == **page)));
        }
        for page in dropped {
            assert!(self.expected.remove(&(file, page)).is_some());
        }
        assert_eq!(self.files[file].count(pages).resident, 0);
        let left = self.expected.range((file, first)..(file, end)).count();
        assert!(
            self.expected
                .range((file, first)..(file, end))
                .all(|((_, page), _)| !self.files[file].holds(PageIndex::new(*page))),
            "{left}"
        );
    }

    /// A file goes, with pages that are pinned and on their way, and another comes.
    fn replace_file(&mut self, rng: &mut Rng) {
        let file = rng.below(3) as usize;
        self.loading.retain(|load| load.file != file);
        self.files[file] = self.cache.add_file().unwrap();
        self.expected.retain(|(owner, _), _| *owner != file);
    }

    fn finish(mut self) {
        self.cache.check();
        self.loading.clear();
        self.files.clear();
        self.cache.check();
        let stats = self.cache.stats();
        assert_eq!((stats.resident_pages, stats.loading_pages), (0, 0));
        let cache = self.cache;
        drop(cache);
        for (owned, salt, valid_bytes) in &self.owned {
            check(owned, *salt, 0, *valid_bytes);
        }
        self.owned.clear();
        assert_idle(&self.arena);
    }
}

fn assert_idle(arena: &Arena) {
    let stats = arena.stats();
    assert_eq!((stats.used_bytes, stats.cached_bytes), (0, 0), "{stats:?}");
}

/// Fills the pages with words that tell version and page.
fn fill(extents: &mut Extents, version: u64, pages: PageRange, whole_bytes: usize) {
    let mut numbers = pages.iter();
    let mut left_bytes = whole_bytes;
    for page in extents.iter_mut().flat_map(|extent| extent.as_chunks_mut::<PAGE_BYTES>().0) {
        // Beyond what was asked for, memory is whatever it was.
        let word = match numbers.next() {
            Some(number) if left_bytes > 0 => mix(version ^ number.get()).to_le_bytes(),
            _ => [0xEE; 8],
        };
        left_bytes = left_bytes.saturating_sub(PAGE_BYTES);
        page.as_chunks_mut::<8>().0.fill(word);
    }
}

/// The page has these words, and zeros behind what is valid.
fn check(bytes: &[u8], version: u64, page: u64, valid_bytes: usize) {
    let word = mix(version ^ page).to_le_bytes();
    let expected = (0..PAGE_BYTES).map(|at| if at < valid_bytes { word[at % 8] } else { 0 });
    assert!(bytes.iter().copied().eq(expected), "page {page} has other bytes than were published");
}

/// Goal: whatever is done to pages in whatever order, those that can be read are what was published last, no frame is lost
/// or named twice, and all memory comes back. Method: random operations against a model, made short when they fail.
#[test]
fn operations_agree_with_a_model() {
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(operations in collection::vec(any::<u64>(), 1..200))| {
        let mut model = Model::new(3 << 20);
        operations.iter().for_each(|&operation| model.apply(&mut Rng::new(operation)));
        model.finish();
    });
}

/// Goal: the same for long.
#[test]
fn many_operations_agree_with_a_model() {
    with_seed("page_cache::many_operations_agree_with_a_model", |seed| {
        let (mut model, mut rng) = (Model::new(5 << 20), Rng::new(seed));
        for step in 0..6000 {
            model.apply(&mut rng);
            if step % 500 == 0 {
                model.cache.check();
            }
        }
        model.finish();
    });
}

/// Goal: threads that load, pin, evict and invalidate pages of the same files at once never see another page's bytes, and
/// lose no frame. Method: bytes that tell file and page; memory for a part of the pages only.
#[test]
fn threads_see_the_pages_they_ask_for() {
    with_seed("page_cache::threads_see_the_pages_they_ask_for", |seed| {
        let arena = Arena::new(3 << 20).unwrap();
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let files: Vec<FilePages> = (0..3).map(|_| cache.add_file().unwrap()).collect();
        thread::scope(|scope| {
            for number in 0..4 {
                let (arena, cache, files) = (&arena, &cache, files.clone());
                scope.spawn(move || {
                    let mut dweller =
                        Dweller { arena, cache, files, rng: Rng::new(seed ^ number), owned: Vec::new() };
                    (0..4000).for_each(|_| dweller.step());
                });
            }
        });
        cache.check();
        drop(files);
        assert_eq!(cache.stats().resident_pages + cache.stats().loading_pages, 0);
        assert_idle(&arena);
    });
}

/// What one thread has of a cache.
struct Dweller<'a> {
    arena: &'a Arena,
    cache: &'a PageCache,
    files: Vec<FilePages>,
    rng: Rng,
    owned: Vec<(OwnedPage, u64, u64)>,
}

impl Dweller<'_> {
    fn step(&mut self) {
        let (file, page) = (self.rng.below(3), self.rng.below(800));
        let pages = &self.files[file as usize].clone();
        match self.rng.below(10) {
            0..=5 => match pages.pin(PageIndex::new(page), 0..4096) {
                Found::Page(pinned) => {
                    check(&pinned, salt(file), page, PAGE_BYTES);
                    if self.rng.chance(1, 16) {
                        self.owned.push((pinned.into_owned(pages), file, page));
                    }
                }
                Found::Pending(_) => {}
                Found::Absent => self.load(file, page),
            },
            6 => {
                self.cache.evict(self.rng.below(20) as usize, &mut Vec::new());
            }
            7 if self.rng.chance(1, 8) => {
                let range = PageRange::new(PageIndex::new(page), PageIndex::new(page + 40));
                pages.invalidate(range, DirtyToo::Yes, |dropped| {
                    assert!((page..page + 40).contains(&dropped.page.get()))
                });
            }
            8 => pages.mark(PageIndex::new(page)),
            _ => {
                pages.demand(PageIndex::new(page));
            }
        }
        if self.owned.len() > 20 {
            let (owned, file, page) = self.owned.swap_remove(self.rng.below(20) as usize);
            check(&owned, salt(file), page, PAGE_BYTES);
        }
    }

    fn load(&mut self, file: u64, page: u64) {
        let range = PageRange::new(PageIndex::new(page), PageIndex::new(page + 1 + self.rng.below(16)));
        let bytes = range.len().bytes() as usize;
        let Some(mut extents) = self.arena.allocate_run(bytes, Urgency::Demand) else {
            self.cache.evict(16, &mut Vec::new());
            return;
        };
        let begun = self.files[file as usize].begin_load(range, &extents, LoadId::new(1), range.start);
        let Ok(loading) = begun else { return };
        fill(&mut extents, salt(file), range, bytes);
        match self.rng.below(10) {
            0 => loading.fail(extents),
            1 => drop((loading, extents)),
            _ => loading.publish(extents, bytes),
        }
    }
}

fn salt(file: u64) -> u64 {
    (file + 1) << 56
}

/// Goal: pages beyond those that frames have numbers for are refused, and nothing else happens.
#[test]
fn pages_without_a_number() {
    let arena = Arena::new(3 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    for page in [1 << 44, 1 << 51] {
        assert_eq!(load_one(&arena, &file, PageIndex::new(page)), Err(NotBegun::NoTable));
        assert!(matches!(file.pin(PageIndex::new(page), 0..1), Found::Absent));
    }
    assert_eq!(load_one(&arena, &file, PageIndex::new((1 << 44) - 1)), Ok(()));
    cache.check();
}

/// Goal: tables that are full refuse a page and nothing else; when pages have left, it is taken. Method: pages as far apart
/// as can be.
#[test]
fn full_tables_refuse_a_page() {
    let arena = Arena::new(3 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    let mut refused = 0;
    for number in 0..1000 {
        let far = PageIndex::new(number << 34);
        if load_one(&arena, &file, far) == Err(NotBegun::NoTable) {
            refused += 1;
            assert!(cache.evict(64, &mut Vec::new()) > 0);
            assert_eq!(load_one(&arena, &file, far), Ok(()), "pages have left");
        }
        assert!(matches!(file.pin(far, 0..1), Found::Page(_)));
    }
    assert!(refused > 0, "tables were never full");
    cache.check();
    drop(file);
    assert_idle(&arena);
}

fn load_one(arena: &Arena, file: &FilePages, page: PageIndex) -> Result<(), NotBegun> {
    let extents = arena.allocate_run(PAGE_BYTES, Urgency::Demand).expect("there is memory");
    let pages = PageRange::new(page, PageIndex::new(page.get() + 1));
    let loading = file.begin_load(pages, &extents, LoadId::new(1), pages.end)?;
    loading.publish(extents, PAGE_BYTES);
    Ok(())
}

/// Goal: with all that is kept about pages, memory is at most 3 % more than was granted, wherever the pages lie; and of
/// pages that lie together, that is at most a hundredth of their bytes. Method: pages at random in files of a terabyte, then in
/// order, until the memory is full, and on.
#[test]
fn memory_is_what_was_granted() {
    for memory_bytes in [3 << 20, 16 << 20, 64 << 20] {
        let arena = Arena::new(memory_bytes).unwrap();
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let (sparse, dense) = (cache.add_file().unwrap(), cache.add_file().unwrap());
        let (mut rng, pages) = (Rng::new(1), memory_bytes as u64 / 4096);
        let most_bytes = memory_bytes / 100 * 103;
        for _ in 0..pages * 2 {
            load_somehow(&arena, &cache, &sparse, PageIndex::new(rng.below(1 << 28)));
            let (mapped_bytes, metadata_bytes) = (arena.stats().mapped_bytes, cache.stats().metadata_bytes);
            assert!(mapped_bytes + metadata_bytes <= most_bytes, "{mapped_bytes} + {metadata_bytes}");
        }
        drop(sparse);
        for page in 0..pages * 2 {
            load_somehow(&arena, &cache, &dense, PageIndex::new(page));
        }
        let (mapped_bytes, metadata_bytes) = (arena.stats().mapped_bytes, cache.stats().metadata_bytes);
        assert!(mapped_bytes + metadata_bytes <= most_bytes, "{mapped_bytes} + {metadata_bytes}");
        drop(dense);
        assert_idle(&arena);
    }
}

/// Goal: what is kept about pages that lie together is a hundredth of their bytes. Method: as above, without a sparse
/// past, whose tables stay.
#[test]
fn tables_are_a_hundredth_of_dense_pages() {
    let arena = Arena::new(64 << 20).unwrap();
    let cache = PageCache::new(&arena, Policy::Clock2QPlus);
    let file = cache.add_file().unwrap();
    let pages = arena.stats().budget_bytes / PAGE_BYTES;
    for page in 0..pages as u64 {
        load_one(&arena, &file, PageIndex::new(page)).unwrap();
    }
    let stats = cache.stats();
    assert_eq!(stats.resident_pages, pages);
    let (metadata_bytes, cached_bytes) = (stats.metadata_bytes, arena.stats().cached_bytes);
    assert!(metadata_bytes * 100 <= cached_bytes, "{metadata_bytes} of {cached_bytes}");
}

fn load_somehow(arena: &Arena, cache: &PageCache, file: &FilePages, page: PageIndex) {
    if arena.allocate(PAGE_BYTES, Urgency::Demand).is_none() {
        cache.evict(16, &mut Vec::new());
    }
    if load_one(arena, file, page) == Err(NotBegun::NoTable) {
        cache.evict(64, &mut Vec::new());
        let _ = load_one(arena, file, page);
    }
}
