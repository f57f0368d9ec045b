//! Metadata: what a cache needs beside the memory of its pages, measured when it is full, and what it does without.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_kernel::{
    Backing, Failure, Form, Kernel, Node, NodeKey, PageCache, Settings, Stats, SyncScope, WaitQueue,
};
use headwater_testkit::mix;
const MEMORY_BYTES: u64 = 64 << 20;
const FILE_BYTES: u64 = 16 << 30;

/// A file that is never written.
struct Zeros {
    inode: u64,
}

impl Backing for Zeros {
    type Error = Failure;

    fn form(&self) -> Form {
        Form::Cached
    }

    fn length_bytes(&self) -> Result<Option<u64>, Failure> {
        Ok(Some(FILE_BYTES))
    }

    fn read_at(&self, buffer: &mut [u8], _offset: u64) -> Result<usize, Failure> {
        buffer.fill(0);
        Ok(buffer.len())
    }
}

impl Node for Zeros {
    fn error(failure: Failure) -> Failure {
        failure
    }

    fn key(&self) -> NodeKey {
        (0, self.inode)
    }

    fn write_at(&self, _buffer: &[u8], _offset: u64) -> Result<usize, Failure> {
        Err(Failure::StorageFull)
    }

    fn append(&self, _buffer: &[u8]) -> Result<(usize, u64), Failure> {
        Err(Failure::StorageFull)
    }

    fn set_len(&self, _length_bytes: u64) -> Result<(), Failure> {
        Err(Failure::StorageFull)
    }

    fn sync(&self, _scope: SyncScope) -> Result<(), Failure> {
        Ok(())
    }
}

struct Host;

impl Kernel for Host {
    type Node = Zeros;
    type SpinLock = parking_lot::RawMutex;
    type SleepLock = parking_lot::RawMutex;
    type WaitQueue = Queue;

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }
}

struct Queue {
    lock: Mutex<()>,
    changed: Condvar,
}

impl WaitQueue for Queue {
    fn new() -> Self {
        Self { lock: Mutex::new(()), changed: Condvar::new() }
    }

    fn wait_until(&self, condition: impl Fn() -> bool) {
        let mut turn = self.lock.lock().unwrap();
        while !condition() {
            turn = self.changed.wait(turn).unwrap();
        }
    }

    fn notify_all(&self) {
        drop(self.lock.lock().unwrap());
        self.changed.notify_all();
    }
}

/// Reads these pages, each named by its file and its place there, and says what the cache has then.
fn after_reading(files: u64, pages: impl Iterator<Item = (u64, u64)>) -> Stats {
    let cache = PageCache::new(Host, Settings::new(MEMORY_BYTES as usize)).expect("settings are valid");
    let files: Vec<_> = (0..files).map(|inode| cache.open(Zeros { inode }).expect("it opens")).collect();
    let mut buffer = [0; PAGE_SIZE_BYTES as usize];
    for (file, page) in pages {
        assert_eq!(files[file as usize].read_at(&mut buffer, page * PAGE_SIZE_BYTES), Ok(buffer.len()));
    }
    cache.check();
    cache.stats()
}

/// Asserts that a full cache has at most so many bytes of metadata a page.
fn assert_cost(what: &str, stats: Stats, bytes_max: f64) {
    let pages = f64::from(stats.resident_pages);
    let bytes = stats.metadata_bytes as f64 / pages;
    println!("{what}: {pages} pages, {bytes:.1} bytes of metadata each, {:.2} %", bytes / 40.96);
    assert!(pages >= 0.9 * (MEMORY_BYTES / PAGE_SIZE_BYTES) as f64, "{what}: the cache is not full");
    assert!(bytes <= bytes_max, "{what}: {bytes} bytes a page");
}

/// Goal: the memory beside the pages is what docs/guide/kernels.md says. Method: 64 MiB filled by one file in order, by many files
/// one after the other, and by lone pages of a file of 32 times the memory.
#[test]
fn a_page_costs_some_tens_of_bytes() {
    let pages = 2 * MEMORY_BYTES / PAGE_SIZE_BYTES;
    assert_cost("one file in order", after_reading(1, (0..pages).map(|page| (0, page))), 40.0);
    let files = after_reading(FILES, (0..pages).map(|page| (page * FILES / pages, page % (pages / FILES))));
    assert_cost("files one after the other", files, 40.0);
    let lone = after_reading(1, (0..pages).map(|place| (0, place * 7919 % pages * 16)));
    assert_cost("lone pages", lone, 110.0);
}

/// Goal: lone reads all over a file of 256 times the memory, for which page tables have too few nodes, go through the cache:
/// old pages leave for new ones. Method: reads in no order, of four times the memory.
#[test]
fn a_cache_without_nodes_evicts() {
    let (memory_pages, file_pages) = (MEMORY_BYTES / PAGE_SIZE_BYTES, FILE_BYTES / PAGE_SIZE_BYTES);
    let reads = 4 * memory_pages;
    let stats = after_reading(1, (0..reads).map(|place| (0, mix(place) % file_pages)));
    println!("lone reads: {stats:?}");
    assert!(stats.evicted_pages >= reads - memory_pages, "{stats:?}");
    assert!(stats.bypassed < reads / 100, "{stats:?}");
}

const FILES: u64 = 128;
