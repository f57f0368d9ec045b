//! Loads: pages on their way from the device, and the readers that wait for them.
//!
//! ```text
//!   begin ─► request ─► shared completion ─► the first reader of one of its pages takes the result ─► publish
//!   publish: pages resident, or free if it failed ─► policy informed ─► all waiters woken
//! ```
//!
//! No thread or task waits for a read ahead. Its result stays with the driver until the first reader needs one of its pages and
//! takes it: no thread, task or callback for each load, and publishing a whole extent takes one lock. A reader that finds a page
//! pending never reads it again, but waits here.
//!
//! Owns: the list of loads in flight.
//! Does not own: which waiter takes a result (shared completion), the pages (page cache), what to read (readahead), memory (the
//! request).
//! Invariants: I2 one load for a page; I4 dropping a load frees nothing that the device still uses; I9 an error wakes the
//! waiters, which read again and get their own errors.
//! Locks: `list`, not held while waiting, publishing or waking.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headwater_core::frame::LoadId;
use headwater_core::readahead::{Purpose, ReadId, ReadIds, ReadResult};
use headwater_core::units::{ByteRange, PAGE_BYTES};

use headwater_io::{Arena, Completion, Driver, Finished, Loading, lock};
use smallvec::SmallVec;

use crate::base::counters::Latencies;
use crate::base::events;
use crate::base::shared_completion::{ANNOUNCED_MAX, Ended, HELD_UP, SharedCompletion};
use crate::inode::Inode;

/// All loads of an engine.
#[derive(Debug)]
pub(crate) struct Loads {
    next: AtomicU32,
    /// By number, so roughly by age.
    list: Mutex<BTreeMap<u32, Arc<Load>>>,
    pub(crate) latencies: Latencies,
    started: Instant,
}

/// Pages on their way, of one request.
#[derive(Debug)]
pub(crate) struct Load {
    id: LoadId,
    inode: Arc<Inode>,
    /// The planned reads that this load completes: mostly one; two where a demand was merged with the readahead behind it.
    reads: ReadIds,
    purpose: Purpose,
    began: Instant,
    /// The payload is dropped before the request: a frame is free before its memory is.
    completion: SharedCompletion<Loading>,
}

impl Default for Loads {
    fn default() -> Loads {
        let (latencies, started) = (Latencies::new(), Instant::now());
        Loads { next: AtomicU32::default(), list: Mutex::default(), latencies, started }
    }
}

impl Loads {
    /// The clock of the readahead policies.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Begins a load, just before its request is submitted.
    pub(crate) fn begin(&self, inode: &Arc<Inode>, reads: ReadIds, purpose: Purpose) -> Arc<Load> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (id, inode, began) = (LoadId::new(id), inode.clone(), Instant::now());
        let load = Arc::new(Load { id, inode, reads, purpose, began, completion: SharedCompletion::new() });
        self.lock().insert(id.get(), load.clone());
        load
    }

    /// The load with this number, unless it is over.
    pub(crate) fn find(&self, id: LoadId) -> Option<Arc<Load>> {
        self.lock().get(&id.get()).cloned()
    }

    /// The oldest load in flight that may soon be over.
    pub(crate) fn oldest_moving(&self) -> Option<Arc<Load>> {
        self.lock().values().find(|load| load.began.elapsed() < HELD_UP).cloned()
    }

    /// Blocks until a load is over.
    pub(crate) fn wait(&self, load: &Load) {
        let began = Instant::now();
        load.completion.wait(|ended| self.ended(load, ended));
        self.latencies.note_wait(began.elapsed());
    }

    /// As [`Loads::wait`], for `limit` at most.
    pub(crate) fn wait_at_most(&self, load: &Load, limit: Duration) {
        let began = Instant::now();
        load.completion.wait_at_most(limit, |ended| self.ended(load, ended));
        self.latencies.note_wait(began.elapsed());
    }

    /// Resolves when a load is over. May be dropped at any moment; a dropped wait is not counted.
    pub(crate) async fn ready(&self, load: &Load, driver: &Driver) {
        let began = Instant::now();
        load.completion.ready(driver, |ended| self.ended(load, ended)).await;
        self.latencies.note_wait(began.elapsed());
    }

    fn ended(&self, load: &Load, ended: Ended<Loading>) {
        match ended {
            Ended::Arrived(finished, loading) => self.publish(load, finished, loading),
            Ended::GivenUp => {
                self.complete(&load.inode, &load.reads, ReadResult::Refused);
                self.forget(load);
            }
        }
    }

    /// Waiters for memory are notified when one of the oldest loads that may soon be over is over, or has arrived and can be completed. Returns how many are
    /// over.
    pub(crate) fn announce_in(&self, arena: &Arena) -> usize {
        let mut loads: SmallVec<[Arc<Load>; ANNOUNCED_MAX]> = SmallVec::new();
        let list = self.lock();
        let moving = list.values().filter(|load| load.began.elapsed() < HELD_UP);
        loads.extend(moving.take(ANNOUNCED_MAX).cloned());
        drop(list);
        let is_over = |load: &&Arc<Load>| load.completion.announce_in(arena, |ended| self.ended(load, ended));
        loads.iter().filter(is_over).count()
    }

    /// Publishes loads that have arrived and that no reader has asked for. Returns how many.
    pub(crate) fn publish_arrived(&self) -> usize {
        let publish = |load: &&Arc<Load>| load.completion.take_arrived(|ended| self.ended(load, ended));
        self.all().iter().filter(publish).count()
    }

    /// Abandons the loads of a file after its last close, unless a reader that opened the file meanwhile waits for them.
    pub(crate) fn abandon(&self, inode: &Arc<Inode>) {
        let loads = self.all().into_iter().filter(|load| Arc::ptr_eq(&load.inode, inode));
        loads.for_each(|load| load.completion.abandon(|ended| self.ended(&load, ended)));
    }

    /// Publishes the pages, reports to the policy, wakes all waiters.
    pub(crate) fn publish(&self, load: &Load, finished: Finished, loading: Loading) {
        let range = loading.pages().bytes();
        let result = match finished.result {
            Ok(read_bytes) => {
                let end_bytes = range.start + read_bytes as u64;
                // Where less came than the file has, for whatever reason, a partially filled page is discarded.
                let is_whole = end_bytes >= range.end.min(load.inode.length_bytes());
                let valid_bytes = if is_whole { read_bytes } else { read_bytes / PAGE_BYTES * PAGE_BYTES };
                loading.publish(finished.extents, valid_bytes);
                if is_whole { ReadResult::Read } else { ReadResult::Partly }
            }
            Err(_) => {
                loading.fail(finished.extents);
                ReadResult::Failed
            }
        };
        self.over(load, range, result);
    }

    /// Ends a load without a request: this thread read the pages itself, or could not begin.
    pub(crate) fn over(&self, load: &Load, range: ByteRange, result: ReadResult) {
        self.complete(&load.inode, &load.reads, result);
        let took = load.began.elapsed();
        self.latencies.note_load(took);
        events::loaded(load.inode.pages.id(), range, load.purpose, result, took);
        self.forget(load);
    }

    /// Tells the policy of a file that planned reads are complete.
    pub(crate) fn complete(&self, inode: &Inode, reads: &[ReadId], result: ReadResult) {
        inode.complete(reads, result, self.now());
    }

    /// Removes a load that is over, or was never begun.
    pub(crate) fn forget(&self, load: &Load) {
        self.lock().remove(&load.id.get());
        load.completion.over();
    }

    /// Number of loads in flight.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn all(&self) -> Vec<Arc<Load>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Load>>> {
        lock(&self.list)
    }
}

impl Load {
    /// Whether a program has announced all of its pages.
    pub(crate) fn is_announced(&self) -> bool {
        !self.reads.is_empty() && self.reads.iter().all(|read| read.is_announced())
    }

    pub(crate) fn id(&self) -> LoadId {
        self.id
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// The request is submitted: from now on any thread may take its result.
    pub(crate) fn under_way(&self, completion: Completion, loading: Loading) {
        self.completion.under_way(completion, loading);
    }
}
