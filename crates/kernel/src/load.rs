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
//! Invariants: L1 a load is found by its number before any page leads to it. L2 the task that takes `filling` runs it, once.
//! Locks: the list of loads, alone; `filling` before the pool's. None while reading or waiting.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use headwater_core::backing::Backing;
use headwater_core::buddy::order_for_bytes;
use headwater_core::frame::LoadId;
use headwater_core::readahead::{MissingRun, PlannedRead, Purpose, ReadId, ReadResult, missing_runs};
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES, PageCount, PageRange};
use lock_api::Mutex;

use crate::frames::Filling;
use crate::kernel::{Kernel, WaitQueue};
use crate::state::{File, Load, Loads, PageCache, count};

impl<K: Kernel> Loads<K> {
    pub(crate) const fn new() -> Self {
        Self { next: 0, by_id: BTreeMap::new(), queue: VecDeque::new() }
    }

    /// The load with this number, unless it is over.
    pub(crate) fn find(&self, id: LoadId) -> Option<Arc<Load<K>>> {
        self.by_id.get(&id.get()).cloned()
    }

    /// One of those that have been under way for longest.
    pub(crate) fn oldest(&self) -> Option<Arc<Load<K>>> {
        self.by_id.values().next().cloned()
    }

    fn add(&mut self, file: &Arc<File<K>>, reads: Vec<ReadId>) -> Arc<Load<K>> {
        let id = LoadId::new(self.next);
        self.next = self.next.wrapping_add(1);
        let (filling, is_over) = (Mutex::new(None), AtomicBool::new(false));
        let load =
            Arc::new(Load { id, file: file.clone(), reads, filling, is_over, waiters: K::WaitQueue::new() });
        self.by_id.insert(id.get(), load.clone());
        load
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
        self.file.cache.loads.lock().by_id.remove(&self.id.get());
        self.is_over.store(true, Ordering::Release);
        self.waiters.notify_all();
    }
}

impl<K: Kernel> PageCache<K> {
    /// Begins what was planned for a file, and leaves it to the prefetch tasks, but for what the caller waits for (the
    /// first demand) and everything if there are no such tasks: these are the result, to be run.
    pub(crate) fn start(self: &Arc<Self>, file: &Arc<File<K>>, plan: &[PlannedRead]) -> Vec<Arc<Load<K>>> {
        let size_pages_max = self.settings.readahead_limits.size_bytes_max / PAGE_SIZE_BYTES;
        let missing = |pages: PageRange, found: &mut Vec<PageRange>| self.missing(file, pages, found);
        let there = |id| file.complete(&[id], ReadResult::Read);
        let (mut own, is_served) = (Vec::new(), self.is_served());
        for run in missing_runs(plan, size_pages_max, missing, there) {
            let is_own = !is_served || own.is_empty() && run.purpose() == Purpose::Demand;
            let mut loads = self.begin(file, run).into_iter();
            own.extend(loads.by_ref().take(if is_own { usize::MAX } else { 0 }));
            loads.for_each(|load| self.queue(load));
        }
        let marks = plan.iter().filter_map(|read| read.mark);
        marks.for_each(|page| self.frames.mark(&file.table, page));
        own
    }

    /// Enters the pages of a run, in one load if there is memory that lies together for all, else in several.
    fn begin(self: &Arc<Self>, file: &Arc<File<K>>, run: MissingRun) -> Vec<Arc<Load<K>>> {
        let (mut loads, mut rest, purpose) = (Vec::new(), run.pages, run.purpose());
        let (mut reads, mut attempts) = (run.ids, 0);
        while !rest.is_empty() {
            let order = order_for_bytes(rest.len().bytes() as usize).expect("a run fits into a chunk");
            let Some(spare) = self.allocate(order, purpose) else { break };
            // The planned reads end with the last load that is begun for them.
            let is_last = u64::from(spare.len()) >= rest.len().get();
            let own_reads = if is_last { core::mem::take(&mut reads) } else { Vec::new() };
            // L1
            let load = self.loads.lock().add(file, own_reads);
            // Whoever meets one of the pages at once shall find something to run.
            let mut place = load.filling.lock();
            *place = self.frames.begin_load(&file.table, rest, run.ahead_from, load.id, spare);
            let begun = place.as_ref().map(Filling::pages);
            drop(place);
            match begun {
                Some(pages) => {
                    rest.start = pages.end;
                    loads.push(load);
                }
                None => {
                    load.end(ReadResult::Refused);
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
        loads
    }

    /// The missing runs of a range, looked up without the lock, so they may be outdated.
    fn missing(&self, file: &File<K>, pages: PageRange, found: &mut Vec<PageRange>) {
        for page in pages.iter().filter(|page| !self.frames.holds(&file.table, *page)) {
            let end = page + PageCount::new(1);
            match found.last_mut() {
                Some(last) if last.end == page => last.end = end,
                _ => found.push(PageRange::new(page, end)),
            }
        }
    }
}

/// How many pages, as a power of two, leave at once for the nodes of their tables.
const NODES_ORDER: u8 = 4;

/// How often: nodes come back only when all of their pages have left.
const ATTEMPTS_MAX: u32 = 4;
