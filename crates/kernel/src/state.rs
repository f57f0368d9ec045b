//! State: what a cache consists of. It has files and loads, a file has its cache, a load its file: so their types lie together.
//!
//! Owns: the types of cache, file and load.
//! Does not own: what they do (`page_cache`, `file`, `write`, `load`).
//! Locks: as the files say that use them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use headwater_core::backing::Form;
use headwater_core::cache::Evicted;
use headwater_core::dirty::DirtyPages;
use headwater_core::frame::{FileId, LoadId};
use headwater_core::readahead::{ReadIds, Readahead};
use headwater_core::table::PageTable;
use headwater_core::units::PageIndex;
use lock_api::Mutex;

use crate::frames::{Filling, Frames, Leaving};
use crate::kernel::{Kernel, NodeKey};
use crate::settings::Settings;

/// A page cache for all files of a kernel.
pub struct PageCache<K: Kernel> {
    pub(crate) kernel: K,
    pub(crate) settings: Settings,
    pub(crate) frames: Arc<Frames<K>>,
    pub(crate) loads: Mutex<K::SpinLock, Loads<K>>,
    pub(crate) counters: Counters,
    /// Held while chunks are emptied, and only ever tried.
    pub(crate) shrinking: Mutex<K::SleepLock, ()>,
    pub(crate) files: Mutex<K::SpinLock, Files<K>>,
    /// Files that lost their last handle while pages of theirs left. Their nodes go where file systems may be called.
    pub(crate) abandoned: Mutex<K::SpinLock, Vec<File<K>>>,
    pub(crate) work: K::WaitQueue,
    pub(crate) queued: AtomicUsize,
    pub(crate) serving: AtomicUsize,
    pub(crate) is_stopped: AtomicBool,
}

/// Which files there are.
pub(crate) struct Files<K: Kernel> {
    pub(crate) by_number: BTreeMap<FileId, Weak<File<K>>>,
    pub(crate) by_key: BTreeMap<NodeKey, Weak<File<K>>>,
    /// Files that were known and are no more, so far.
    pub(crate) forgotten: u64,
    /// Files with dirty pages. The reference keeps them alive when no handle is open.
    pub(crate) unwritten: BTreeMap<FileId, Arc<File<K>>>,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) misses: AtomicU64,
    pub(crate) joined: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) loads: AtomicU64,
    pub(crate) bypassed: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) written: AtomicU64,
    /// A gauge: pages that are dirty or being written.
    pub(crate) dirty: AtomicU64,
    /// A gauge: files with pages that were read ahead and are not used yet.
    pub(crate) ahead_files: AtomicU64,
    pub(crate) released: AtomicU64,
}

/// A file as the cache knows it.
pub(crate) struct File<K: Kernel> {
    pub(crate) cache: Arc<PageCache<K>>,
    pub(crate) node: K::Node,
    pub(crate) form: Form,
    pub(crate) table: Arc<PageTable>,
    pub(crate) key: NodeKey,
    pub(crate) length_bytes: AtomicU64,
    /// The length of the node: as long, or longer while a write is under way that lengthens the file.
    pub(crate) node_bytes: AtomicU64,
    pub(crate) readahead: Mutex<K::SpinLock, Readahead>,
    /// Pages used since the last report to the policy.
    pub(crate) used: AtomicU64,
    /// Pages that were read ahead and are not used yet: what the policy said last, less what was used or evicted since.
    pub(crate) ahead: AtomicU64,
    pub(crate) listeners: Mutex<K::SpinLock, Vec<(ListenerId, Listener)>>,
    pub(crate) next_listener: AtomicU64,
    pub(crate) dirty: Mutex<K::SpinLock, DirtyPages>,
    /// When the oldest dirty page became so, or was last tried to be written; nanoseconds of the kernel's clock.
    pub(crate) dirty_since_nanos: AtomicU64,
    /// Times that something was written to the node, or its length set.
    pub(crate) writes: AtomicU64,
    /// As many as were followed by a sync.
    pub(crate) synced_writes: AtomicU64,
    /// Set once programs may store to pages through mappings: behind the end of the file, too.
    pub(crate) is_stored_to: AtomicBool,
    /// Held while bytes or length change.
    pub(crate) writers: Mutex<K::SleepLock, ()>,
    /// Held while pages are written to the node; taken after `writers`.
    pub(crate) flushing: Mutex<K::SleepLock, ()>,
    /// Held while bytes are copied into a page, so that waiters spin for one copy only.
    pub(crate) copying: Mutex<K::SpinLock, ()>,
}

/// Pages of one file on their way, of one read of its node.
pub(crate) struct Load<K: Kernel> {
    pub(crate) id: LoadId,
    pub(crate) file: Arc<File<K>>,
    /// The planned reads that end with this.
    pub(crate) reads: ReadIds,
    pub(crate) filling: Mutex<K::SpinLock, Option<Filling<K>>>,
    pub(crate) is_over: AtomicBool,
    pub(crate) waiters: K::WaitQueue,
}

/// All loads of a cache.
pub(crate) struct Loads<K: Kernel> {
    pub(crate) next: u32,
    /// In the order of their numbers: few at a time, and those that end are among the first.
    pub(crate) by_id: VecDeque<Arc<Load<K>>>,
    /// Loads that had no waiter when they were queued.
    pub(crate) queue: VecDeque<Arc<Load<K>>>,
}

/// A change of a page, reported to its mappers before it happens, with no spin lock held. The file's sleeping
/// locks may be held, so a listener must not call the file, nor wait for a task that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEvent {
    /// It leaves its memory, which will hold something else as soon as all listeners have returned: unmap it.
    Evict {
        /// The page.
        page: PageIndex,
        /// Where its memory begins, as the kernel addresses it.
        address: usize,
    },
    /// It is written to the file now: what is stored through a mapping from here on needs another
    /// [`CachedFile::mark_dirty`](crate::CachedFile::mark_dirty), so protect it.
    WriteBack {
        /// The page.
        page: PageIndex,
        /// Where its memory begins, as the kernel addresses it.
        address: usize,
    },
}

impl PageEvent {
    /// A page has left.
    pub(crate) fn evict<K: Kernel>(leaving: &Leaving<'_, K>, page: &Evicted) -> PageEvent {
        PageEvent::Evict { page: page.page, address: leaving.address(page.frame) }
    }
}

/// Names a listener, to take it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenerId(pub(crate) u64);

pub(crate) type Listener = Arc<dyn Fn(PageEvent) + Send + Sync>;

pub(crate) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
