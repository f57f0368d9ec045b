//! Page cache: the memory that all files share, what is on its way, and the tasks that read ahead.
//!
//! ```text
//!   reader meets a mark ─► plan ─► loads ─► queue ─► serve: a task that sleeps until there is something, and reads it
//! ```
//!
//! Owns: settings, loads, the list of files.
//! Does not own: how memory is found (reclaim), the frames' states (frames), what a file does (file), the tasks themselves.
//! Locks: `files` and `loads`, spin locks, neither held together with another but `File::dirty` before `files`, and `loads` before the pool's.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use headwater_core::frame::FileId;
use headwater_core::readahead::Readahead;
use lock_api::Mutex;

use crate::file::CachedFile;
use crate::frames::Frames;
use crate::kernel::{Error, Failure, Kernel, Node, NodeKey, SyncScope, WaitQueue};
use crate::settings::Settings;
use crate::state::{Counters, File, Files, Load, Loads, PageCache};

/// What a cache has done, and has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Times that a reader met a page that nothing had begun to read.
    pub misses: u64,
    /// Times that a reader met a page on its way.
    pub joined: u64,
    /// Of these, times that it slept until another task had read it.
    pub waits: u64,
    /// Reads of nodes, each of one or more pages.
    pub loads: u64,
    /// Reads that found no memory, or failed twice, and went around the cache.
    pub bypassed: u64,
    /// Pages that made room.
    pub evicted_pages: u64,
    /// Pages written to their files.
    pub written_pages: u64,
    /// Pages that can be read now.
    pub resident_pages: u32,
    /// Pages on their way.
    pub loading_pages: u32,
    /// Pages that their files do not have yet.
    pub dirty_pages: u64,
    /// Files with pages that were read ahead and are not used yet.
    pub ahead_files: u64,
    /// Memory of the pages now, bytes.
    pub memory_bytes: usize,
    /// Memory that was given back to the kernel since the cache was made, bytes.
    pub released_bytes: u64,
    /// Memory beside that of the pages, bytes.
    pub metadata_bytes: usize,
}

impl<K: Kernel> fmt::Debug for PageCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<K: Kernel> PageCache<K> {
    /// A cache without pages. The caller spawns the tasks that call [`PageCache::serve`]; without any, readers
    /// also read ahead.
    ///
    /// # Errors
    /// [`Failure::InvalidInput`] for a policy and limits of readahead that do not fit together, or a largest size of more
    /// than 2 MiB.
    pub fn new(kernel: K, settings: Settings) -> Result<Arc<Self>, Failure> {
        let limits = settings.readahead_limits;
        let is_valid = Readahead::new(settings.readahead, limits).is_ok();
        if !is_valid || limits.size_bytes_max > headwater_core::CHUNK_BYTES as u64 {
            return Err(Failure::InvalidInput);
        }
        let files = Files {
            by_number: BTreeMap::new(),
            by_key: BTreeMap::new(),
            forgotten: 0,
            unwritten: BTreeMap::new(),
        };
        Ok(Arc::new(Self {
            kernel,
            frames: Arc::new(Frames::new(settings.memory_bytes, settings.replacement)),
            settings,
            loads: Mutex::new(Loads::new()),
            counters: Counters::default(),
            shrinking: Mutex::new(()),
            files: Mutex::new(files),
            abandoned: Mutex::new(Vec::new()),
            work: K::WaitQueue::new(),
            queued: AtomicUsize::new(0),
            serving: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        }))
    }

    /// The file behind a node: the same for all opens of one inode. It keeps its pages as long as a handle is
    /// open or a page is dirty: a kernel keeps it open as long as it remembers the inode.
    ///
    /// # Errors
    /// What the node reports of its length, and [`Failure::NoMemory`].
    pub fn open(self: &Arc<Self>, node: K::Node) -> Result<CachedFile<K>, Error<K>> {
        self.drop_abandoned();
        let key = node.key();
        let files = self.files.lock();
        let (known, mut forgotten) = (files.by_key.get(&key).and_then(Weak::upgrade), files.forgotten);
        drop(files);
        if let Some(file) = known {
            return Ok(CachedFile::new(file));
        }
        let made = Arc::new(File::new(self, key, node)?);
        let mut files = self.files.lock();
        loop {
            if let Some(file) = files.by_key.get(&key).and_then(Weak::upgrade) {
                drop(files);
                return Ok(CachedFile::new(file));
            }
            if files.forgotten == forgotten {
                break;
            }
            // A handle that was opened, and closed, meanwhile may have changed the length.
            forgotten = files.forgotten;
            drop(files);
            made.look_at_length()?;
            files = self.files.lock();
        }
        files.by_key.insert(key, Arc::downgrade(&made));
        files.by_number.insert(made.table.file(), Arc::downgrade(&made));
        drop(files);
        Ok(CachedFile::new(made))
    }

    /// The body of a task that reads ahead: sleeps until there is something to read, reads it, and so on. Returns after
    /// [`PageCache::stop`]. One such task is enough for a file system that reads one request at a time; more overlap.
    pub fn serve(&self) {
        self.serving.fetch_add(1, Ordering::AcqRel);
        loop {
            self.work.wait_until(|| self.queued.load(Ordering::Acquire) > 0 || self.is_stopped());
            match self.take_queued() {
                Some(load) => load.run(),
                None if self.is_stopped() => break,
                None => {}
            }
        }
        self.serving.fetch_sub(1, Ordering::AcqRel);
        // Something may have been queued by who saw this task still there.
        self.run_queued();
    }

    /// Lets the tasks in [`PageCache::serve`] return, for good. Reads go on, without them.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.work.notify_all();
        self.drop_abandoned();
    }

    /// Writes all dirty pages to their files, and has the node of each file synced that anything was written to since it
    /// last was. What a file system keeps for itself, of files that are closed too, is its own to sync. Blocks.
    ///
    /// # Errors
    /// The first one; the other files are written nevertheless.
    pub fn sync(&self) -> Result<(), Error<K>> {
        let files: Vec<Arc<File<K>>> =
            self.files.lock().by_number.values().filter_map(Weak::upgrade).collect();
        let unsynced = files.iter().filter(|file| file.is_unsynced());
        unsynced.map(|file| file.sync(SyncScope::All)).fold(Ok(()), Result::and)
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (resident_pages, loading_pages) = self.frames.pages();
        Stats {
            misses: read(&self.counters.misses),
            joined: read(&self.counters.joined),
            waits: read(&self.counters.waits),
            loads: read(&self.counters.loads),
            bypassed: read(&self.counters.bypassed),
            evicted_pages: read(&self.counters.evicted),
            written_pages: read(&self.counters.written),
            resident_pages,
            loading_pages,
            dirty_pages: read(&self.counters.dirty),
            ahead_files: read(&self.counters.ahead_files),
            memory_bytes: self.frames.memory_bytes(),
            released_bytes: read(&self.counters.released),
            metadata_bytes: self.frames.metadata_bytes(),
        }
    }

    /// Asserts what the state shows of the invariants; for tests, while no other thread uses the cache.
    pub fn check(&self) {
        self.frames.check();
    }

    pub(crate) fn is_served(&self) -> bool {
        self.serving.load(Ordering::Acquire) > 0 && !self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Leaves a load to the tasks that serve.
    pub(crate) fn queue(&self, load: Arc<Load<K>>) {
        let mut loads = self.loads.lock();
        loads.queue.push_back(load);
        self.queued.store(loads.queue.len(), Ordering::Release);
        drop(loads);
        self.work.notify_all();
        if !self.is_served() {
            // They were stopped meanwhile. The last of them looks at the queue after it is not counted any more: either it
            // finds the load, or this finds that it is gone.
            self.run_queued();
        }
    }

    fn run_queued(&self) {
        while let Some(load) = self.take_queued() {
            load.run();
        }
    }

    fn take_queued(&self) -> Option<Arc<Load<K>>> {
        let mut loads = self.loads.lock();
        let load = loads.queue.pop_front();
        self.queued.store(loads.queue.len(), Ordering::Release);
        load
    }

    /// Files with pages that nothing else has.
    pub(crate) fn unwritten(&self) -> Vec<Arc<File<K>>> {
        self.files.lock().unwritten.values().cloned().collect()
    }

    /// The file with this number, if it is open.
    pub(crate) fn file(&self, number: FileId) -> Option<Arc<File<K>>> {
        self.files.lock().by_number.get(&number).and_then(Weak::upgrade)
    }

    /// The file has pages that nothing else has, from now on.
    pub(crate) fn keep(&self, file: &Arc<File<K>>) {
        self.files.lock().unwritten.insert(file.table.file(), file.clone());
    }

    /// It has no more of them. The result is to be dropped without a lock.
    pub(crate) fn let_go(&self, file: FileId) -> Option<Arc<File<K>>> {
        self.files.lock().unwritten.remove(&file)
    }

    /// Forgets a dropped file. If it was opened again meanwhile, the key leads to another file, which stays.
    pub(crate) fn forget(&self, file: FileId, key: NodeKey) {
        let mut files = self.files.lock();
        files.forgotten += u64::from(files.by_number.remove(&file).is_some());
        if files.by_key.get(&key).is_some_and(|known| known.strong_count() == 0) {
            files.by_key.remove(&key);
        }
    }
}
