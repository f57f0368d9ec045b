//! Load: pages being read from a node, by the first task that takes the load.
//!
//! ```text
//!   planned reads ─► begin ─► queued ─┬─ a prefetch task takes it ─────────────┐
//!                                     └─ a reader that meets its pages takes it┴─► run ─► publish ─► wake
//! ```
//!
//! A queued load is run by the reader that needs it, which would else sleep until another task ran it: a switch
//! of tasks costs as much as a small read. One that is under way is waited for, never read again.
//!
//! Owns: one read of the node, its place among the loads, its waiters.
//! Does not own: what to read (readahead), memory (frames).
//! Invariants: L1 a load that a page leads to is found by its number. L2 the task that takes `filling` runs it, once.
//! Locks: the list of loads, before the pool's; `filling`, alone. None while reading or waiting.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use headwater_core::backing::Backing;
use headwater_core::buddy::order_for_bytes;
use headwater_core::frame::LoadId;
use headwater_core::readahead::{
    MissingPages, MissingRun, PlannedRead, Purpose, ReadIds, ReadResult, missing_runs,
};
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageRange};
use lock_api::Mutex;
use smallvec::SmallVec;

use crate::frames::Filling;
use crate::kernel::{Kernel, WaitQueue};
use crate::state::{File, Load, Loads, PageCache, count};

impl<K: Kernel> Loads<K> {
    pub(crate) const fn new() -> Self {
        Self { next: 0, by_id: VecDeque::new(), queue: VecDeque::new() }
    }

    /// The load with this number, unless it is over.
    pub(crate) fn find(&self, id: LoadId) -> Option<Arc<Load<K>>> {
        self.place(id).map(|place| self.by_id[place].clone())
    }

    /// The one that has been under way for longest.
    pub(crate) fn oldest(&self) -> Option<Arc<Load<K>>> {
        self.by_id.front().cloned()
    }

    /// The load that `begin` enters pages for, and these; with its planned reads.
    fn add(
        &mut self,
        file: &Arc<File<K>>,
        reads: &mut ReadIds,
        begin: impl FnOnce(LoadId) -> Option<Filling<K>>,
    ) -> Option<(Arc<Load<K>>, PageRange)> {
        let id = LoadId::new(self.next);
        let filling = begin(id)?;
        self.next = self.next.wrapping_add(1);
        let (file, reads, pages) = (file.clone(), core::mem::take(reads), filling.pages());
        let (filling, is_over) = (Mutex::new(Some(filling)), AtomicBool::new(false));
        let load = Arc::new(Load { id, file, reads, filling, is_over, waiters: K::WaitQueue::new() });
        self.by_id.push_back(load.clone());
        Some((load, pages))
    }

    fn remove(&mut self, id: LoadId) {
        if let Some(place) = self.place(id) {
            self.by_id.remove(place);
        }
    }

    fn place(&self, id: LoadId) -> Option<usize> {
        // Numbers wrap around.
        let oldest = self.by_id.front()?.id.get();
        let age = |id: LoadId| id.get().wrapping_sub(oldest);
        self.by_id.binary_search_by_key(&age(id), |load| age(load.id)).ok()
    }
}

impl<K: Kernel> Load<K> {
    /// Reads the pages, unless another task does already.
    pub(crate) fn run(&self) {
        let Some(mut filling) = self.filling.lock().take() else { return };
        let file = &*self.file;
        let range = filling.pages().bytes().clip(file.len());
        let wanted = range.len() as usize;
        let read = file.node.read_at(&mut filling.bytes_mut()[..wanted], range.start).unwrap_or(0);
        // Of a page of which only the beginning came, though the file has more, nothing is kept.
        let kept = if read == wanted { read } else { read / PAGE_BYTES * PAGE_BYTES };
        filling.publish(kept);
        count(&file.cache.counters.loads, 1);
        let result = match read {
            _ if read == wanted => ReadResult::Read,
            0 => ReadResult::Failed,
            _ => ReadResult::Partly,
        };
        self.end(result);
    }

    /// Returns when the load is over. Blocks.
    pub(crate) fn wait(&self) {
        self.waiters.wait_until(|| self.is_over());
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn end(&self, result: ReadResult) {
        self.file.complete(&self.reads, result);
        self.file.cache.loads.lock().remove(self.id);
        self.is_over.store(true, Ordering::Release);
        self.waiters.notify_all();
    }
}

impl<K: Kernel> PageCache<K> {
    /// Begins what was planned for a file, and leaves it to the prefetch tasks, but for what the caller waits for (the
    /// first demand) and everything if there are no such tasks: these are the result, to be run.
    pub(crate) fn start(self: &Arc<Self>, file: &Arc<File<K>>, plan: &[PlannedRead]) -> OwnLoads<K> {
        let size_pages_max = self.settings.readahead_limits.size_bytes_max / PAGE_SIZE_BYTES;
        let missing = |pages: PageRange, found: &mut MissingPages| self.missing(file, pages, found);
        let there = |id| file.complete(&[id], ReadResult::Read);
        let (mut own, is_served) = (OwnLoads::new(), self.is_served());
        for run in missing_runs(plan, size_pages_max, missing, there) {
            let is_own = !is_served || own.is_empty() && run.purpose() == Purpose::Demand;
            self.begin(file, run, |load| if is_own { own.push(load) } else { self.queue(load) });
        }
        let marks = plan.iter().filter_map(|read| read.mark);
        marks.for_each(|page| self.frames.mark(&file.table, page));
        own
    }

    /// Enters the pages of a run, in one load if there is memory that lies together for all, else in several: `give` gets each.
    fn begin(self: &Arc<Self>, file: &Arc<File<K>>, run: MissingRun, mut give: impl FnMut(Arc<Load<K>>)) {
        let (mut rest, purpose) = (run.pages, run.purpose());
        let (mut reads, mut attempts) = (run.ids, 0);
        while !rest.is_empty() {
            let order = order_for_bytes(rest.len().bytes() as usize).expect("a run fits into a chunk");
            let Some(spare) = self.allocate(order, purpose) else { break };
            // The planned reads end with the last load that is begun for them.
            let is_last = u64::from(spare.len()) >= rest.len().get();
            let own_reads = if is_last { &mut reads } else { &mut ReadIds::new() };
            let begin = |id| self.frames.begin_load(&file.table, rest, run.ahead_from, id, spare);
            // L1: a task that meets one of the pages looks for its load under the same lock.
            let begun = self.loads.lock().add(file, own_reads, begin);
            match begun {
                Some((load, pages)) => {
                    rest.start = pages.end;
                    give(load);
                }
                None => {
                    // Others were quicker, or there is no node for the page: a few pages that leave give some back.
                    let is_missing = !self.frames.holds(&file.table, rest.start);
                    attempts += 1;
                    if !is_missing || attempts > ATTEMPTS_MAX || !self.make_room(NODES_ORDER, purpose) {
                        break;
                    }
                }
            }
        }
        file.complete(&reads, ReadResult::Refused);
    }

    /// The missing runs of a range, looked up without the lock, so they may be outdated.
    fn missing(&self, file: &File<K>, pages: PageRange, found: &mut MissingPages) {
        for page in pages.iter().filter(|page| !self.frames.holds(&file.table, *page)) {
            let end = page + PageCount::new(1);
            match found.last_mut() {
                Some(last) if last.end == page => last.end = end,
                _ => found.push(PageRange::new(page, end)),
            }
        }
    }
}

/// What the caller runs of a plan: one load for a miss without a pattern.
type OwnLoads<K> = SmallVec<[Arc<Load<K>>; 1]>;

/// How many pages, as a power of two, leave at once for the nodes of their tables.
const NODES_ORDER: u8 = 4;

/// How often: nodes come back only when all of their pages have left.
const ATTEMPTS_MAX: u32 = 4;
