//! Lookup without a lock: readers walk tables and pin frames while one writer loads, evicts and invalidates.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater_core::frame::{
    CHUNK_FRAMES, FileId, Frame, FrameState, Frames, Invalidated, LoadId, LoadKind, Pin, Unpinned,
};
use headwater_core::table::{FreeNodes, Nodes, PageTable};
use headwater_core::{FrameId, PageIndex};

const FILES: u32 = 3;

/// In release builds as much as there is time for, else a number of changes.
const STRESS: Duration = Duration::from_millis(1500);
const CHANGES: u64 = 300_000;

/// What a page's memory holds when the allocator has it.
const GARBAGE: u64 = u64::MAX;

/// Numbers without a pattern (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// A file and one of its 256 pages: together, in steps of a leaf and of a directory, and far out, so that nodes change
    /// their files and their levels.
    fn page(&mut self) -> (u32, u64) {
        let (file, place) = (self.below(u64::from(FILES)) as u32, self.below(64));
        let page = match self.below(4) {
            0 => place,
            1 => (place + 4) << 4,
            2 => (place + 2) << 10,
            _ => (1 << 43) + (place << (place % 36)),
        };
        (file, page)
    }
}

/// A cache without I/O: the bytes of a page are one word.
struct Cache {
    nodes: Nodes,
    frames: Frames,
    tables: [PageTable; FILES as usize],
    bytes: Vec<AtomicU64>,
    free_frames: Mutex<Vec<FrameId>>,
    is_done: AtomicBool,
}

/// What the bytes of a page are.
fn contents(file: u32, page: u64) -> u64 {
    page << 8 | u64::from(file)
}

impl Cache {
    fn new() -> Cache {
        let frames = Frames::new(1);
        frames.add_chunk(0).unwrap();
        let free_frames = frames.iter().map(|(number, _)| number).collect();
        Cache {
            nodes: Nodes::new(CHUNK_FRAMES as u32),
            frames,
            tables: [0, 1, 2].map(|file| PageTable::new(FileId::new(file))),
            bytes: (0..CHUNK_FRAMES).map(|_| AtomicU64::new(GARBAGE)).collect(),
            free_frames: Mutex::new(free_frames),
            is_done: AtomicBool::new(false),
        }
    }

    fn give_back(&self, frame: FrameId) {
        assert_eq!(self.frames[frame].state(), FrameState::Free);
        self.bytes[frame.get() as usize].store(GARBAGE, Ordering::Relaxed);
        self.free_frames.lock().unwrap().push(frame);
    }

    /// Whether the page was there.
    fn read(&self, file: u32, page: u64) -> bool {
        let (table, index) = (&self.tables[file as usize], PageIndex::new(page));
        let Some(number) = table.find(&self.nodes, index) else { return false };
        let Some(frame) = self.frames.get(number) else { return false };
        let Pin::Pinned(_) = frame.pin(table.file(), index, 0, 0) else { return false };
        let bytes = &self.bytes[number.get() as usize];
        assert_eq!((frame.file(), frame.page()), (table.file(), index));
        assert_eq!(bytes.load(Ordering::Relaxed), contents(file, page));
        thread::yield_now();
        assert_eq!(bytes.load(Ordering::Relaxed), contents(file, page), "changed while pinned");
        if frame.unpin() == Unpinned::Freed {
            self.give_back(number);
        }
        true
    }

    fn read_until_done(&self, seed: u64) {
        let mut random = Random(seed);
        while !self.is_done.load(Ordering::Acquire) {
            let (file, page) = random.page();
            self.read(file, page);
            let next = self.tables[file as usize].next(&self.nodes, PageIndex::new(page));
            assert!(next.is_none_or(|(next, _)| next.get() >= page));
        }
    }
}

/// Whoever has the control lock.
struct Writer<'a> {
    cache: &'a Cache,
    free_nodes: FreeNodes,
    there: BTreeMap<(u32, u64), FrameId>,
}

impl Writer<'_> {
    fn change(&mut self, random: &mut Random) {
        let (file, page) = random.page();
        match self.there.get(&(file, page)) {
            Some(&number) if random.below(2) == 0 => self.evict(file, page, number),
            Some(_) => self.invalidate(file, page),
            None => self.load(file, page, random.below(8)),
        }
    }

    fn load(&mut self, file: u32, page: u64, outcome: u64) {
        let Some(number) = self.cache.free_frames.lock().unwrap().pop() else { return };
        let (frame, table) = (&self.cache.frames[number], &self.cache.tables[file as usize]);
        frame.begin_load(FileId::new(file), PageIndex::new(page), LoadId::new(0), LoadKind::Demand);
        let entered = table.insert(&self.cache.nodes, &mut self.free_nodes, PageIndex::new(page), number);
        if entered.is_err() || outcome == 0 {
            frame.fail_load();
            if entered.is_ok() {
                self.remove(file, page);
            }
            return self.cache.give_back(number);
        }
        self.cache.bytes[number.get() as usize].store(contents(file, page), Ordering::Relaxed);
        frame.complete_load();
        self.there.insert((file, page), number);
    }

    fn evict(&mut self, file: u32, page: u64, number: FrameId) {
        if self.cache.frames[number].evict().is_some() {
            self.remove(file, page);
            self.cache.give_back(number);
        }
    }

    fn invalidate(&mut self, file: u32, page: u64) {
        let number = self.remove(file, page);
        if self.cache.frames[number].invalidate().0 == Invalidated::Freed {
            self.cache.give_back(number);
        }
    }

    fn remove(&mut self, file: u32, page: u64) -> FrameId {
        self.there.remove(&(file, page));
        self.cache.tables[file as usize].remove(&self.cache.nodes, &mut self.free_nodes, PageIndex::new(page))
    }

    fn stress(&mut self) {
        let (mut random, start) = (Random(0), Instant::now());
        let goes_on = |changes| match cfg!(debug_assertions) {
            true => changes < CHANGES,
            false => start.elapsed() < STRESS,
        };
        (0..).take_while(|changes| goes_on(*changes)).for_each(|_| self.change(&mut random));
    }

    /// Nobody else is left: everything is found, and then given back.
    fn finish(mut self) {
        for ((file, page), _) in std::mem::take(&mut self.there) {
            assert!(self.cache.read(file, page));
            self.invalidate(file, page);
        }
        assert_eq!(self.free_nodes.used(), 0);
        assert_eq!(self.cache.free_frames.lock().unwrap().len(), CHUNK_FRAMES);
        self.cache.frames.iter().for_each(|(_, frame)| frame.check());
    }
}

/// Lets the readers go, also when the writer panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Goal: whoever looks a page up without a lock and pins it gets that page or none, and what is pinned stays; nobody
/// panics; afterwards every node and frame is free. Method: two readers and a writer at random.
#[test]
#[cfg_attr(miri, ignore)] // hundreds of thousands of changes
fn readers_get_the_page_they_ask_for() {
    let cache = Cache::new();
    let mut writer = Writer { cache: &cache, free_nodes: FreeNodes::default(), there: BTreeMap::new() };
    thread::scope(|scope| {
        let cache = &cache;
        for seed in [1, 2] {
            scope.spawn(move || cache.read_until_done(seed));
        }
        let _done = Done(&cache.is_done);
        writer.stress();
    });
    writer.finish();
}

/// Goal: frames are there chunk by chunk, under their numbers. Method: two of three chunks, the later one first.
#[test]
fn frames_are_numbered_across_chunks() {
    let frames = Frames::new(3);
    assert_eq!(frames.iter().count(), 0);
    let empty_bytes = frames.metadata_bytes();
    for chunk in [2, 0, 2] {
        frames.add_chunk(chunk).unwrap();
    }
    assert_eq!(frames.metadata_bytes() - empty_bytes, 2 * CHUNK_FRAMES * size_of::<Frame>());
    let size = CHUNK_FRAMES as u32;
    let numbers: Vec<u32> = frames.iter().map(|(number, _)| number.get()).collect();
    assert!(numbers.into_iter().eq((0..size).chain(2 * size..3 * size)));
    for (number, frame) in frames.iter() {
        assert!(core::ptr::eq(frame, &frames[number]));
    }
    for absent in [size, 2 * size - 1, 3 * size, u32::MAX] {
        assert!(frames.get(FrameId::new(absent)).is_none());
    }
}

/// Goal: a frame that is not there is not made up. Method: panic.
#[test]
#[should_panic(expected = "chunk is there")]
fn absent_frames_are_caught() {
    let _ = &Frames::new(1)[FrameId::new(0)];
}
