//! Rig: a cache with threads that serve it, on file systems in memory.
//!
//! Owns: setting one up, and what must hold once all is dropped.
//! Does not own: nodes, the host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use headwater_arceos::{CachedFile, PageCache, ReadaheadPolicy, Settings, Stats, VfsNode};
use headwater_testkit::Pattern;

use crate::kernel::{Dials, Host, report_waiting};
use crate::node::{FileSystem, Node};

pub(crate) type File = CachedFile<Host>;

/// A cache, its threads, a file system.
pub(crate) struct Rig {
    pub(crate) cache: Arc<PageCache<Host>>,
    pub(crate) file_system: Arc<FileSystem>,
    pub(crate) dials: Arc<Dials>,
    next_inode: AtomicU64,
    servers: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Rig {
    /// With so little memory that what files have does not fit.
    pub(crate) fn small(servers: usize) -> Self {
        Self::new(Settings::new(SMALL_BYTES), servers)
    }

    pub(crate) fn with_policy(policy: ReadaheadPolicy, memory_bytes: usize, servers: usize) -> Self {
        Self::new(Settings { readahead: policy, ..Settings::new(memory_bytes) }, servers)
    }

    pub(crate) fn new(settings: Settings, servers: usize) -> Self {
        let dials = Arc::default();
        let rig = Self {
            cache: PageCache::new(Host::new(&dials), settings).unwrap(),
            dials,
            file_system: FileSystem::new("ext4"),
            next_inode: AtomicU64::new(2),
            servers: Arc::default(),
        };
        (0..servers).for_each(|_| rig.add_server());
        rig
    }

    /// Returns once the thread waits for work.
    pub(crate) fn add_server(&self) {
        let (waits, is_waiting) = channel();
        let cache = self.cache.clone();
        let server = thread::spawn(move || {
            report_waiting(waits);
            cache.serve();
        });
        is_waiting.recv().expect("a thread that serves waits first");
        self.servers.lock().unwrap().push(server);
    }

    /// A regular file with these bytes.
    pub(crate) fn node(&self, bytes: Vec<u8>) -> Arc<Node> {
        Node::new(&self.file_system, self.next_inode.fetch_add(1, Ordering::Relaxed), bytes)
    }

    pub(crate) fn open(&self, node: &Arc<Node>) -> File {
        self.cache.open(VfsNode::new(node.clone())).unwrap()
    }

    /// A file of so many pages, each with bytes of its own.
    pub(crate) fn patterned(&self, pages: u64) -> (Arc<Node>, File) {
        let node = self.node(pattern(pages));
        let file = self.open(&node);
        (node, file)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// Ends the threads; whatever was queued is done then.
    pub(crate) fn stop(&self) {
        self.stopper()();
    }

    /// What [`Rig::stop`] does, for whoever does not have the rig.
    pub(crate) fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let (cache, servers) = (self.cache.clone(), self.servers.clone());
        move || {
            cache.stop();
            let servers = std::mem::take(&mut *servers.lock().unwrap());
            servers.into_iter().for_each(|server| server.join().unwrap());
        }
    }

    /// Every gauge is zero once all files are dropped, and nothing keeps the cache.
    pub(crate) fn assert_empty(self) {
        self.stop();
        self.cache.check();
        let stats = self.stats();
        assert_eq!((stats.resident_pages, stats.loading_pages, stats.dirty_pages), (0, 0, 0), "{stats:?}");
        assert_eq!(Arc::strong_count(&self.cache), 1, "something keeps the cache");
    }
}

/// The bytes of files of [`Rig::patterned`].
pub(crate) fn pattern(pages: u64) -> Vec<u8> {
    let mut bytes = vec![0; pages as usize * 4096];
    Pattern::new(SEED).fill(0, &mut bytes);
    bytes
}

/// Fails unless the bytes are those of [`Rig::patterned`] from there on.
pub(crate) fn assert_pattern(bytes: &[u8], offset: u64) {
    assert_eq!(Pattern::new(SEED).mismatch(offset, bytes), None, "a byte is wrong");
}

/// Reads so much, which must be there.
pub(crate) fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xa5; length];
    let read = file.read_at(&mut buffer, offset).unwrap();
    assert_eq!(read, length, "a read falls short");
    buffer
}

/// Returns once it is so: for what other threads are bound to come to.
pub(crate) fn until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

pub(crate) const SMALL_BYTES: usize = 2 << 20;
const SEED: u64 = 42;
