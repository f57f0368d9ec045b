//! headwater's arms: its page cache, with each policy of readahead.
//!
//! Owns: the cache of an arm, and the tasks that serve it.
//! Does not own: the adapter, which is the crate around.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use ax_std::os::arceos::task::sched::{RtPriority, SchedulePolicy};
use ax_std::os::arceos::task::thread::current::current_thread_handle;
use ax_std::thread::{self, JoinHandle};
use axfs_ng_vfs::{VfsError, VfsResult};
use headwater_arceos::{ArceOs, CachedFile, PageCache, ReadaheadPolicy, Settings, VfsNode};

use crate::arm::{Arm, Counts, Reader, node};
use crate::layout::LONG_BYTES;
use crate::processors::{DISK_PROCESSOR, bind};

/// The thread that reads ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The reader itself, before it goes on.
    ByReader,
    /// A task of the cache's.
    ByTask,
}

/// A cache of its own, and the tasks that serve it.
pub struct Headwater {
    cache: Arc<PageCache<ArceOs>>,
    copied_bytes: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Headwater {
    pub fn new(readahead: ReadaheadPolicy, ahead: Ahead) -> VfsResult<Headwater> {
        let settings = Settings { readahead, ..Settings::new(MEMORY_BYTES) };
        let kernel = ArceOs::new(ax_hal::time::monotonic_time);
        let cache = PageCache::new(kernel, settings).map_err(|_| VfsError::InvalidInput)?;
        let tasks = if ahead == Ahead::ByTask { TASKS } else { 0 };
        let tasks = (0..tasks).map(|_| spawn_server(cache.clone())).collect();
        Ok(Headwater { cache, copied_bytes: Arc::default(), tasks })
    }
}

impl Arm for Headwater {
    fn open(&self, path: &str) -> VfsResult<Box<dyn Reader>> {
        let file = self.cache.open(VfsNode::new(node(path)?))?;
        Ok(Box::new(HeadwaterReader { file, copied_bytes: self.copied_bytes.clone() }))
    }

    fn counts(&self) -> Option<Counts> {
        let stats = self.cache.stats();
        let copied_bytes = self.copied_bytes.load(Ordering::Relaxed);
        Some(Counts { misses: stats.misses, waits: stats.waits, copied_bytes })
    }
}

impl Drop for Headwater {
    fn drop(&mut self) {
        self.cache.stop();
        self.tasks.drain(..).for_each(|task| task.join().expect("a task that serves does not panic"));
    }
}

/// A task that goes first whenever it has something to do: it does little else but submit a request and wait for it. With
/// the priority of the readers it would not run before one of them sleeps or its time slice ends, on a single processor. It
/// is bound to the processor that the disk interrupts: from another one each request is two wake-ups across processors.
fn spawn_server(cache: Arc<PageCache<ArceOs>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let priority = RtPriority::new(1).expect("1 is the lowest of the real-time priorities");
        let task = current_thread_handle().expect("a task has a handle to itself");
        task.set_policy(SchedulePolicy::Fifo { priority }).expect("any task may have a real-time priority");
        bind(DISK_PROCESSOR);
        cache.serve();
    })
}

struct HeadwaterReader {
    file: CachedFile<ArceOs>,
    /// From pages into the reader's buffer, the only copy there is.
    copied_bytes: Arc<AtomicU64>,
}

impl Reader for HeadwaterReader {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> VfsResult<usize> {
        let read = self.file.read_at(bytes, offset)?;
        self.copied_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// As much as a long file: what is read stays.
const MEMORY_BYTES: usize = LONG_BYTES;
/// The file systems read one request at a time.
const TASKS: usize = 1;
