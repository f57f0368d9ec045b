//! Loads: pages on their way, and those who wait for them.
//!
//! ```text
//!   begin ─► request ─► joint ─► whoever meets one of the pages takes the result ─► conclude
//!   conclude: pages published or failed ─► policy told ─► all who wait are woken
//! ```
//!
//! A read ahead has no owner who waits. Its result stays with the driver until the first reader meets one of its pages
//! and takes it: no thread, task or callback per load, and publishing a whole extent costs one lock. Who finds a page
//! pending never reads it again, but waits here.
//!
//! Owns: which loads there are.
//! Does not own: who takes their results (joint), the pages (page cache), what to read (readahead), memory (the request's).
//! Invariants: I2 one load a page; I4 dropping a load gives nothing away that the device still uses; I9 an error wakes
//! those who wait, who read again and get their own.
//! Locks: `list`, not held while waiting, publishing or waking.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headwater_core::frame::LoadId;
use headwater_core::readahead::{Purpose, ReadId, ReadResult};
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};

use headwater_io::{Completion, EventListener, Finished, Loading};

use crate::base::events;
use crate::base::shared_completion::{Abandoned, Joint, Waited};
use crate::engine::Shared;
use crate::inode::Inode;

/// All loads of an engine.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    next: AtomicU32,
    /// By number, so nearly by age.
    list: Mutex<BTreeMap<u32, Arc<Load>>>,
}

/// Pages on their way, of one request.
#[derive(Debug)]
pub(crate) struct Load {
    id: LoadId,
    inode: Arc<Inode>,
    /// The planned reads that this completes: mostly one, two where a demand was merged with what lies ahead of it.
    reads: Vec<ReadId>,
    purpose: Purpose,
    began: Instant,
    /// The pages are dropped before the request: a frame is free before its memory is.
    joint: Joint<Loading>,
}

impl Loads {
    /// A load whose request is about to be submitted.
    pub(crate) fn begin(&self, inode: &Arc<Inode>, reads: Vec<ReadId>, purpose: Purpose) -> Arc<Load> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (id, inode, began) = (LoadId::new(id), inode.clone(), Instant::now());
        let load = Arc::new(Load { id, inode, reads, purpose, began, joint: Joint::new() });
        self.lock().insert(id.get(), load.clone());
        load
    }

    /// The load with this number, unless it is over.
    pub(crate) fn find(&self, id: LoadId) -> Option<Arc<Load>> {
        self.lock().get(&id.get()).cloned()
    }

    /// One of the loads under way that have been so for longest.
    pub(crate) fn oldest(&self) -> Option<Arc<Load>> {
        self.lock().values().next().cloned()
    }

    /// Publishes what has arrived and nobody has asked for. Says how many loads.
    pub(crate) fn conclude_arrived(&self, shared: &Shared) -> usize {
        let loads: Vec<Arc<Load>> = self.lock().values().cloned().collect();
        loads.iter().filter(|load| load.conclude_if_arrived(shared)).count()
    }

    /// Nobody reads the file any more: what is on its way is given up.
    pub(crate) fn abandon(&self, shared: &Shared, inode: &Arc<Inode>) {
        let of_inode = |load: &Load| Arc::ptr_eq(&load.inode, inode);
        let loads: Vec<Arc<Load>> = self.lock().values().filter(|load| of_inode(load)).cloned().collect();
        loads.iter().for_each(|load| load.abandon(shared));
    }

    /// Loads not over yet.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Load>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    pub(crate) fn id(&self) -> LoadId {
        self.id
    }

    /// The request is submitted: from now on anybody may take its result.
    pub(crate) fn under_way(&self, completion: Completion, loading: Loading) {
        self.joint.under_way(completion, loading);
    }

    /// The load is over without a request of the driver's: this thread read the pages, or could not begin.
    pub(crate) fn over(&self, shared: &Shared, range: ByteRange, result: ReadResult) {
        self.inode.complete(shared, &self.reads, result);
        let took = self.began.elapsed();
        shared.cache.latencies.note_load(took);
        events::loaded(&self.inode, range, self.purpose, result, took);
        self.forget(shared);
    }

    /// The load was not begun after all; whoever planned it knows.
    pub(crate) fn refused(&self, shared: &Shared) {
        self.forget(shared);
    }

    fn forget(&self, shared: &Shared) {
        shared.cache.loads.lock().remove(&self.id.get());
        self.joint.over();
    }

    /// Blocks until the load is over.
    pub(crate) fn wait(&self, shared: &Shared) {
        match self.joint.wait() {
            Waited::Over => {}
            Waited::Arrived(finished, loading) => self.conclude(shared, finished, loading),
            Waited::GivenUp => self.given_up(shared),
        }
    }

    /// Its pages are not on their way any more.
    fn given_up(&self, shared: &Shared) {
        self.inode.complete(shared, &self.reads, ReadResult::Refused);
        self.forget(shared);
    }

    /// Resolves when the load is over. May be dropped at any moment.
    pub(crate) async fn ready(&self, shared: &Shared) {
        if let Some((finished, loading)) = self.joint.ready(shared).await {
            self.conclude(shared, finished, loading);
        }
    }

    /// Told when the load is over, or has arrived so that it can be concluded.
    pub(crate) fn listen(&self, shared: &Shared) -> EventListener {
        let (listener, arrived) = self.joint.listen();
        if let Some((finished, loading)) = arrived {
            self.conclude(shared, finished, loading);
        }
        listener
    }

    fn conclude_if_arrived(&self, shared: &Shared) -> bool {
        let arrived = self.joint.take_arrived();
        arrived.map(|(finished, loading)| self.conclude(shared, finished, loading)).is_some()
    }

    /// Publishes what was read, tells the policy, wakes all.
    pub(crate) fn conclude(&self, shared: &Shared, finished: Finished, loading: Loading) {
        let range = loading.pages().bytes();
        let result = match finished.result {
            Ok(read_bytes) => {
                let end_bytes = range.start + read_bytes as u64;
                // Where less came than the file has, for whatever reason, a page of which only the beginning came is none.
                let is_whole = end_bytes >= range.end.min(self.inode.length_bytes());
                let valid_bytes = if is_whole { read_bytes } else { read_bytes / PAGE_BYTES * PAGE_BYTES };
                loading.publish(finished.extents, valid_bytes);
                if is_whole { ReadResult::Read } else { ReadResult::Partly }
            }
            Err(_) => {
                loading.fail(finished.extents);
                ReadResult::Failed
            }
        };
        self.over(shared, range, result);
    }

    /// A load that somebody is at (the file was opened again meanwhile) goes on.
    fn abandon(&self, shared: &Shared) {
        if self.joint.abandon() == Abandoned::Yes {
            self.given_up(shared);
        }
    }
}

impl Shared {
    /// Blocks until a load is over, for a reader.
    pub(crate) fn wait(&self, load: &Load) {
        let began = Instant::now();
        load.wait(self);
        self.cache.latencies.note_wait(began.elapsed());
    }

    /// As [`Shared::wait`], for a task. One that gives up is not counted.
    pub(crate) async fn ready(&self, load: &Load) {
        let began = Instant::now();
        load.ready(self).await;
        self.cache.latencies.note_wait(began.elapsed());
    }
}

const PAGE_BYTES: usize = PAGE_SIZE_BYTES as usize;
