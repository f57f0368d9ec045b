//! Pages: a page cache with any pages, parts and extents, page by page against what was put there.
//!
//! Owns: the operations, which page must have which bytes, the pages of another file around it.
//! Does not own: requests other than write-back (requests).

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arbitrary::Arbitrary;
use headwater_core::cache::DirtyToo;
use headwater_core::frame::LoadId;
use headwater_core::replacement::Policy;
use headwater_core::units::{PAGE_BYTES, PageCount, PageIndex, PageRange};
use headwater_fuzz::bounds::Number;
use headwater_fuzz::guarded::{Guarded, Side};
use headwater_fuzz::memory_file::MemoryFile;
use headwater_fuzz::panics::{INVERTED, documented};
use headwater_io::{
    Access, Arena, DirectIo, Driver, DriverKind, DriverOptions, Extents, FilePages, Found, Loading, Modified,
    OpenFile, OptimisticRead, Overwritten, OwnedPage, PageCache, PinnedRun, Route, SimOptions, Urgency,
    WriteBack,
};

#[derive(Arbitrary, Debug)]
pub(crate) enum Operation {
    Install { pages: Pages, room: u8, from: From },
    BeginLoad { pages: Pages, room: u8, ahead_from: Number, from: From },
    EndLoad { which: u8, read: Option<Number>, swap: bool },
    Pin { page: Number, start: Number, end: Number, keep: Keep },
    ReadOptimistic { page: Number, start: Number, end: Number, room: u8 },
    Fetch { page: Number, start: Number, end: Number },
    Overwrite { page: Number, start: Number, length: u16, side: Side },
    Modify { page: Number, start: Number, replace: bool },
    WriteBack { pages: Pages, skip: Number, length: Number, offset: Number },
    Invalidate { pages: Pages, dirty_too: bool },
    Look { pages: Pages },
    Mark { page: Number },
    Evict { pages: Number },
    Shrink { bytes: Number },
    Release { bytes: Number },
    Forget { which: u8 },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Pages {
    start: Number,
    length: u8,
    /// In place of the length.
    end: Option<Number>,
}

/// Whose memory it is.
#[derive(Arbitrary, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    Arena,
    OtherArena,
    /// What a load has been begun with, perhaps.
    Kept,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Keep {
    No,
    Owned,
    Run,
}

pub(crate) fn run(operations: &[Operation]) {
    let mut bench = Bench::new();
    operations.iter().take(OPERATIONS_MAX).for_each(|operation| bench.perform(operation));
    bench.finish();
}

struct Bench {
    arena: Arena,
    other_arena: Arena,
    cache: PageCache,
    file: FilePages,
    secret: FilePages,
    /// What the file must show of each page that is there.
    there: BTreeMap<u64, Vec<u8>>,
    /// Which load brings a page.
    loading: BTreeMap<u64, u32>,
    loads: Vec<(Loading, u32)>,
    /// With what fills them, and the load that they were begun with.
    kept: Vec<(Extents, u8, u32)>,
    owned: Vec<(OwnedPage, Vec<u8>)>,
    runs: Vec<(PinnedRun, Vec<u8>)>,
    guarded: Guarded,
    number: u32,
}

thread_local! {
    static SPARE: std::cell::Cell<Option<Guarded>> = const { std::cell::Cell::new(None) };
    static DISK: (MemoryFile, Driver) = (MemoryFile::new(), sim());
}

fn sim() -> Driver {
    let sim = SimOptions {
        delay_steps_max: 2,
        short_per_mille: 300,
        transient_per_mille: 0,
        ..SimOptions::hostile(1)
    };
    let options = DriverOptions { kind: DriverKind::Sim(sim), queue_depth: 2, ..DriverOptions::default() };
    Driver::new(&options).expect("a simulation is never refused")
}

impl Bench {
    fn new() -> Bench {
        let arena = Arena::new(3 << 20).expect("it holds a chunk");
        let cache = PageCache::new(&arena, Policy::Clock2QPlus);
        let [file, secret] = [(); 2].map(|()| cache.add_file().expect("there is memory for two files"));
        for number in 0..4 {
            let mut extents = arena.allocate_run(PAGE_BYTES, Urgency::Demand).expect("the arena is empty");
            extents[0].fill(SECRET);
            let page = PageIndex::new(number);
            secret.install(PageRange::new(page, page + PageCount::new(1)), extents);
        }
        Bench {
            arena,
            other_arena: Arena::new(3 << 20).expect("it holds a chunk"),
            cache,
            file,
            secret,
            there: BTreeMap::new(),
            loading: BTreeMap::new(),
            loads: Vec::new(),
            kept: Vec::new(),
            owned: Vec::new(),
            runs: Vec::new(),
            guarded: SPARE.take().unwrap_or_else(|| Guarded::new(17)),
            number: 0,
        }
    }

    fn perform(&mut self, operation: &Operation) {
        self.number += 1;
        match *operation {
            Operation::Install { pages, room, from } => self.install(range(pages), room, from),
            Operation::BeginLoad { pages, room, ahead_from, from } => {
                self.begin_load(range(pages), room, page(ahead_from), from);
            }
            Operation::EndLoad { which, read, swap } => self.end_load(which, read, swap),
            Operation::Pin { page: at, start, end, keep } => self.pin(page(at), part(start, end), keep),
            Operation::ReadOptimistic { page: at, start, end, room } => {
                self.read_optimistic(page(at), part(start, end), room)
            }
            Operation::Fetch { page: at, start, end } => self.file.fetch(page(at), part(start, end)),
            Operation::Overwrite { page: at, start, length, side } => {
                self.overwrite(page(at), start.get() as u32, (usize::from(length), side));
            }
            Operation::Modify { page: at, start, replace } => {
                self.modify(page(at), start.get() as u32, replace)
            }
            Operation::WriteBack { pages, skip, length, offset } => {
                self.write_back(range(pages), (skip.get() as usize, length.get() as usize, offset.get()));
            }
            Operation::Invalidate { pages, dirty_too } => self.invalidate(range(pages), dirty_too),
            Operation::Look { pages } => self.look(range(pages)),
            Operation::Mark { page: at } => {
                self.file.mark(page(at));
                self.file.demand(page(at));
                assert_eq!(self.file.is_resident(page(at)), self.there.contains_key(&page(at).get()));
            }
            Operation::Evict { pages } => self.evict(|cache, out| _ = cache.evict(pages.get() as usize, out)),
            Operation::Shrink { bytes } => {
                self.evict(|cache, out| _ = cache.shrink(bytes.get() as usize, out))
            }
            Operation::Release { bytes } => _ = self.arena.release(bytes.get() as usize),
            Operation::Forget { which } => {
                drop(take(&mut self.owned, which));
                drop(take(&mut self.runs, which));
                drop(take(&mut self.kept, which));
            }
        }
    }

    /// Memory filled with a byte that nothing else has lately.
    fn extents(&mut self, room: u8, from: From) -> (Extents, u8) {
        if from == From::Kept
            && let Some((extents, fill, _)) = take(&mut self.kept, room)
        {
            return (extents, fill);
        }
        let arena = if from == From::OtherArena { &self.other_arena } else { &self.arena };
        let bytes = usize::from(room % 8) * PAGE_BYTES;
        let mut extents = arena.allocate_run(bytes, Urgency::Demand).unwrap_or_default();
        let fill = (self.number % 128) as u8 + 100;
        extents.iter_mut().for_each(|extent| extent.fill(fill));
        (extents, fill)
    }

    fn install(&mut self, pages: PageRange, room: u8, from: From) {
        let (extents, fill) = self.extents(room, from);
        let install = || self.file.install(pages, extents);
        let Some(installed) = documented(&NOT_ITS_EXTENTS, install) else { return };
        for page in pages.iter().take(installed.get() as usize) {
            self.there.insert(page.get(), vec![fill; PAGE_BYTES]);
            self.loading.remove(&page.get());
        }
    }

    fn begin_load(&mut self, pages: PageRange, room: u8, ahead_from: PageIndex, from: From) {
        let (extents, fill) = self.extents(room, from);
        let (file, load) = (&self.file, LoadId::new(self.number));
        let begun = documented(&NOT_ITS_EXTENTS, || file.begin_load(pages, &extents, load, ahead_from));
        if let Some(Ok(loading)) = begun {
            for page in loading.pages().iter() {
                assert!(!self.there.contains_key(&page.get()), "what is there is not loaded");
                self.loading.insert(page.get(), self.number);
            }
            self.loads.push((loading, self.number));
            self.kept.push((extents, fill, self.number));
        }
    }

    /// Published with so many bytes, or failed.
    fn end_load(&mut self, which: u8, read: Option<Number>, swap: bool) {
        let Some((loading, load)) = take(&mut self.loads, which) else { return };
        let pages = loading.pages();
        let own = self.kept.iter().position(|(_, _, of)| *of == load).filter(|_| !swap);
        let kept = own.map(|own| self.kept.swap_remove(own)).or_else(|| self.kept.pop());
        let Some((extents, fill, _)) = kept else { return self.forget(pages, load) };
        let Some(read) = read.map(|read| read.get() as usize) else {
            loading.fail(extents);
            return self.forget(pages, load);
        };
        if documented(&["its extents"], || loading.publish(extents, read)).is_none() {
            return self.forget(pages, load);
        }
        for (place, page) in pages.iter().enumerate() {
            let left = read.saturating_sub(place * PAGE_BYTES).min(PAGE_BYTES);
            let is_current = self.loading.get(&page.get()) == Some(&load);
            if is_current {
                self.loading.remove(&page.get());
            }
            if is_current && left > 0 {
                let mut contents = vec![fill; PAGE_BYTES];
                contents[left..].fill(0);
                self.there.insert(page.get(), contents);
            }
        }
    }

    fn forget(&mut self, pages: PageRange, load: u32) {
        for page in pages.iter() {
            if self.loading.get(&page.get()) == Some(&load) {
                self.loading.remove(&page.get());
            }
        }
    }

    fn pin(&mut self, page: PageIndex, part: Range<u32>, keep: Keep) {
        let expected = self.there.get(&page.get());
        match self.file.pin(page, part) {
            Found::Page(pinned) => {
                let expected = expected.expect("only what was put there is there");
                assert!(*pinned == **expected, "page {page:?}");
                match keep {
                    Keep::No => {}
                    Keep::Owned => self.owned.push((pinned.into_owned(&self.file), expected.clone())),
                    Keep::Run => {
                        let mut run = PinnedRun::of(&self.file);
                        run.push(pinned);
                        self.runs.push((run, expected.clone()));
                    }
                }
            }
            Found::Pending(_) => assert!(self.loading.contains_key(&page.get())),
            Found::Absent => assert!(expected.is_none() && !self.loading.contains_key(&page.get())),
        }
    }

    fn read_optimistic(&mut self, page: PageIndex, part: Range<u32>, room: u8) {
        let buffer = self.guarded.buffer(usize::from(room), Side::End, 0);
        if self.file.read_optimistic(page, part.clone(), buffer) == OptimisticRead::Copied {
            let expected = &self.there[&page.get()][part.start as usize..part.end as usize];
            assert!(
                buffer[..expected.len()] == *expected
                    && buffer[expected.len()..].iter().all(|&byte| byte == 0)
            );
        }
    }

    fn overwrite(&mut self, page: PageIndex, start: u32, (length, side): (usize, Side)) {
        let bytes = &*self.guarded.buffer(length, side, self.number as u8);
        let overwrite = || self.file.overwrite(page, start, bytes);
        let overwritten = documented(&["a part of a page is written"], overwrite);
        let end = start as usize + bytes.len();
        assert_eq!(overwritten.is_some(), end <= PAGE_BYTES, "{length} bytes at {start}");
        if let Some(Overwritten::Done(_)) = overwritten {
            let expected = self.there.get_mut(&page.get()).expect("only what is there is written");
            expected[start as usize..end].copy_from_slice(bytes);
        }
    }

    fn modify(&mut self, page: PageIndex, start: u32, replace: bool) {
        let mut seen = None;
        let mut change = |word: u64| {
            seen = Some(word);
            replace.then_some(!word)
        };
        let texts = &["a word of a page is changed", "the word is aligned"];
        let modified = documented(texts, || self.file.modify(page, start, &mut change));
        assert_eq!(modified.is_some(), start.is_multiple_of(8) && start < PAGE_BYTES as u32, "{start}");
        if let Some(Modified::Done(_) | Modified::Unchanged(_)) = modified {
            let expected = self.there.get_mut(&page.get()).expect("only what is there is changed");
            let word = expected[start as usize..].first_chunk_mut().expect("it lies in the page");
            assert_eq!(Some(u64::from_ne_bytes(*word)), seen);
            if replace {
                *word = (!u64::from_ne_bytes(*word)).to_ne_bytes();
            }
        }
    }

    fn write_back(&mut self, pages: PageRange, (skip, length, offset): (usize, usize, u64)) {
        let texts = &["what is to be written is dirty"];
        let Some(run) = documented(texts, || self.file.hold(pages)) else { return };
        let contents: Vec<u8> = run.slices().flatten().copied().collect();
        let expected = pages.iter().flat_map(|page| &self.there[&page.get()]);
        assert!(contents.iter().eq(expected), "the run has the pages' bytes");
        let request = |file: &Arc<OpenFile>| WriteBack {
            file: file.clone(),
            route: Route::Buffered,
            offset_bytes: offset,
            length_bytes: length,
            skip_bytes: skip,
            pages: run,
        };
        DISK.with(|(disk, driver)| {
            disk.file.set_len(0).expect("a file can be empty");
            let file = OpenFile::open(disk.path(), DirectIo::Off, Access::ReadWrite);
            let file = Arc::new(file.expect("it is a regular file"));
            let submit = || driver.submit(request(&file), Urgency::Demand).expect("there is a place").wait();
            let finished = documented(&REFUSED, submit);
            let room = contents.len().saturating_sub(skip);
            let is_sound = skip < PAGE_BYTES && (1..=room).contains(&length) && offset <= i64::MAX as u64;
            assert_eq!(finished.is_some(), is_sound, "{length} bytes behind {skip} of {}", contents.len());
            let Some(finished) = finished else { return };
            let Ok(written) = finished.result else {
                return assert!(offset.saturating_add(length as u64) >= i64::MAX as u64);
            };
            let mut found = vec![0; written];
            disk.file.read_exact_at(&mut found, offset).expect("it was written");
            assert!(found == contents[skip..skip + written], "the file has other bytes than the pages");
            if written == contents.len() {
                finished.pages.expect("a write-back has pages").clean();
            }
        });
    }

    fn invalidate(&mut self, pages: PageRange, dirty_too: bool) {
        let mut dropped = Vec::new();
        let dirty_too = if dirty_too { DirtyToo::Yes } else { DirtyToo::No };
        self.file.invalidate(pages, dirty_too, |page| dropped.push(page.page.get()));
        assert!(dropped.iter().all(|page| pages.iter().any(|asked| asked.get() == *page)));
        // A dirty page stays, unless dirty ones are meant too.
        self.there.retain(|page, _| self.file.is_resident(PageIndex::new(*page)));
        self.loading.retain(|page, _| !(pages.start.get()..pages.end.get()).contains(page));
    }

    fn look(&self, pages: PageRange) {
        let (mut runs, length) = (Vec::new(), pages.end.get().saturating_sub(pages.start.get()));
        self.file.missing(pages, &mut runs);
        let counts = self.file.count(pages);
        let missing: u64 = runs.iter().map(|run| run.len().get()).sum();
        assert_eq!(missing + counts.resident + counts.loading, length, "{pages:?}");
    }

    fn evict(&mut self, evict: impl FnOnce(&PageCache, &mut Vec<headwater_core::cache::Evicted>)) {
        let mut evicted = Vec::new();
        evict(&self.cache, &mut evicted);
        for page in evicted {
            assert_eq!(page.file, self.file.id(), "pages of the other file are dirty, and stay");
            assert!(self.there.remove(&page.page.get()).is_some(), "only what is there leaves");
        }
    }

    fn finish(mut self) {
        let is_as_kept = |run: &PinnedRun, expected: &Vec<u8>| run.slices().flatten().eq(expected);
        assert!(self.runs.iter().all(|(run, expected)| is_as_kept(run, expected)));
        assert!(self.owned.iter().all(|(page, expected)| **page == **expected));
        for number in 0..4 {
            let Found::Page(page) = self.secret.pin(PageIndex::new(number), 0..4096) else {
                panic!("it is dirty")
            };
            assert!(page.iter().all(|&byte| byte == SECRET), "page {number} of another file was changed");
        }
        self.loads.clear();
        assert_eq!(self.cache.loading_pages(), 0);
        self.cache.check();
        SPARE.set(Some(self.guarded));
    }
}

fn page(number: Number) -> PageIndex {
    let number = number.get();
    // Mostly few pages, so that they meet; else any that there is.
    PageIndex::new(if number < 1 << 16 { number % 24 } else { number.min(PageIndex::MAX.get()) })
}

/// Any two numbers are a range to a caller that does not check; but a long one takes its time.
fn range(pages: Pages) -> PageRange {
    let start = page(pages.start);
    let length = u64::from(pages.length % 9);
    let end = match pages.end.map(page) {
        Some(end) if end.get() <= start.get().saturating_add(1000) => end,
        _ => PageIndex::new((start.get() + length).min(PageIndex::MAX.get())),
    };
    PageRange { start, end }
}

fn part(start: Number, end: Number) -> Range<u32> {
    start.get() as u32..end.get() as u32
}

fn take<T>(from: &mut Vec<T>, which: u8) -> Option<T> {
    let count = from.len();
    (count > 0).then(|| from.swap_remove(usize::from(which) % count))
}

const NOT_ITS_EXTENTS: [&str; 7] = [
    "the extents hold the pages",
    "the extents are of this arena",
    "the extents are those of no load",
    "only a free frame is loaded",
    "only a free frame changes its page",
    INVERTED,
    "a distance in pages is never negative",
];

const REFUSED: [&str; 4] = [
    "a request transfers at least one byte",
    "a request fits its memory",
    "file offsets are below 2^63",
    "what is skipped is a part of the first page",
];

/// In no page but those of the other file.
const SECRET: u8 = 0x5E;

const OPERATIONS_MAX: usize = 80;
