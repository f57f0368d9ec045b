//! Submit: planned reads become requests.
//!
//! ```text
//!   plan ─► missing runs, neighbours merged ─► frames ─┬─ none: refused, with all that comes after
//!                                                      └─ begin_load ─┬─ in the kernel's page cache ─► copied, published
//!                                                                     ├─ small and single ──────────► pread in this thread
//!                                                                     └─ else ──────────────────────► submitted, one plug for all
//! ```
//!
//! Owns: the way from a plan to loads.
//! Does not own: what is planned (`headwater-core`), the waiting readers (loads).
//! Invariants: I2 only missing pages are loaded; I5 no lock is held while submitting; I6 readahead without a frame or a place in
//! the queue gives up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::readahead::{
    MissingPages, MissingRun, MissingRuns, PlannedRead, Purpose, ReadResult, missing_runs,
};
use headwater_core::units::{PageIndex, PageRange};
use headwater_io::{
    Direction, Extents, Finished, Loading, NotBegun, Plug, Rejected, Request, Route, Transfer, Urgency,
};

use crate::base::listeners::defer;
use crate::engine::frames;
use crate::engine::frames::RUN_PAGES_MAX;
use crate::engine::handle::Source;
use crate::engine::loads::Load;
use crate::inode::Inode;

/// Starts planned reads.
pub(crate) struct Starter<'a> {
    pub(crate) source: &'a Source,
    pub(crate) inode: &'a Arc<Inode>,
    pub(crate) caller: Caller,
    /// Of a single page; more are read from the device.
    pub(crate) route: Route,
}

/// The kind of caller that reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A thread, which may execute a small demand by itself.
    Thread,
    /// A task, which must not block.
    Task,
    /// One that says what it, or another, is going to read.
    Adviser,
}

/// There is no frame, or no place in the queue.
struct Refused;

type Started = Result<(), Refused>;

impl Starter<'_> {
    /// Submits the missing pages of each planned read, in order, with one system call at the most. Does not wait for the device, except that
    /// a thread executes a single small demand by itself.
    pub(crate) fn start_all(&self, plan: &[PlannedRead]) {
        let _deferral = defer();
        let mut runs = self.missing(plan).into_iter();
        let is_awaited =
            self.caller == Caller::Task && runs.as_slice().iter().any(|run| run.purpose() == Purpose::Demand);
        let is_lone = runs.len() == 1 && self.caller == Caller::Thread;
        let alone = if is_lone { Alone::Yes } else { Alone::No };
        let mut plug = self.source.shared().driver.plug();
        for run in runs.by_ref() {
            let ids = run.ids.clone();
            if self.start(run, alone, &mut plug).is_err() {
                self.source.shared().cache.loads.complete(self.inode, &ids, ReadResult::Refused);
                break;
            }
        }
        // If one run gets no frame, later runs will not either.
        runs.for_each(|run| {
            self.source.shared().cache.loads.complete(self.inode, &run.ids, ReadResult::Refused)
        });
        if is_awaited {
            plug.flush_before_poll();
        }
        plan.iter().filter_map(|read| read.mark).for_each(|mark| self.inode.pages.mark(mark));
    }

    /// The runs of pages that a plan needs and that are missing.
    fn missing(&self, plan: &[PlannedRead]) -> MissingRuns {
        let missing = |pages: PageRange, found: &mut MissingPages| {
            self.inode.pages.missing(pages, found);
            self.inode.dirty.windows.leave_out(found);
        };
        let there = |id| self.source.shared().cache.loads.complete(self.inode, &[id], ReadResult::Read);
        missing_runs(plan, RUN_PAGES_MAX, missing, there)
    }

    /// Starts a run. If memory does not suffice for a demand, starts its first part.
    fn start(&self, run: MissingRun, alone: Alone, plug: &mut Plug<'_>) -> Started {
        let shared = self.source.shared();
        let bytes = run.pages.len().bytes() as usize;
        let Some(extents) = frames::for_pages(shared, bytes, run.purpose()) else {
            let Some(part) = run.smaller() else { return Err(Refused) };
            self.start(part, Alone::No, plug)?;
            return Err(Refused);
        };
        let load = shared.cache.loads.begin(self.inode, run.ids.clone(), run.purpose());
        let begin = || self.inode.pages.begin_load(run.pages, &extents, load.id(), run.ahead_from);
        let mut begun = begin();
        if matches!(begun, Err(NotBegun::NoTable)) {
            frames::make_room_in_tables(shared);
            begun = begin();
        }
        match begun {
            // A window was made after the lookup of missing pages; it drops only pages that were cached before.
            Ok(loading) if self.inode.dirty.windows.touches(run.pages) => {
                loading.fail(extents);
                shared.cache.loads.over(&load, run.pages.bytes(), ReadResult::Failed);
                Ok(())
            }
            Ok(loading) => self.bring(&run, &load, loading, extents, alone, plug),
            Err(NotBegun::NoTable) => {
                shared.cache.loads.forget(&load);
                Err(Refused)
            }
            Err(NotBegun::Present) => {
                // Another thread has loaded them meanwhile.
                shared.cache.loads.over(&load, run.pages.bytes(), ReadResult::Read);
                Ok(())
            }
        }
    }

    /// Fetches the pages: from the kernel's page cache, in this thread, or by a request.
    fn bring(
        &self,
        run: &MissingRun,
        load: &Arc<Load>,
        loading: Loading,
        mut extents: Extents,
        alone: Alone,
        plug: &mut Plug<'_>,
    ) -> Started {
        let (source, shared) = (self.source, self.source.shared());
        let range = loading.pages().bytes();
        let pages = loading.pages();
        if let Some(read_bytes) = source.copy_from_kernel(range.clip(self.inode.length_bytes()), &mut extents)
        {
            self.count(pages, run.ahead_from);
            loading.publish(extents, read_bytes);
            shared.cache.loads.over(load, range, ReadResult::Read);
            return Ok(());
        }
        let length_bytes = range.len() as usize;
        let route = if pages.len().get() == 1 { self.route } else { source.device_route() };
        if let ([extent], Alone::Yes, Purpose::Demand) = (&mut extents[..], alone, run.purpose())
            && range.len() <= IN_THREAD_BYTES_MAX
        {
            self.count(pages, run.ahead_from);
            let buffer = &mut extent[..length_bytes];
            let result = shared.driver.read_blocking(source.open(), route, buffer, range.start);
            shared.cache.loads.publish(
                load,
                Finished { extents, pages: None, result, stopped_by: None },
                loading,
            );
            return Ok(());
        }
        let request = Transfer {
            direction: Direction::Read,
            file: source.open().clone(),
            route,
            offset_bytes: range.start,
            length_bytes,
            extents,
        };
        match plug.submit(request, self.urgency(run.purpose())) {
            Ok(completion) => {
                self.count(pages, run.ahead_from);
                load.under_way(completion, loading);
                Ok(())
            }
            Err(Rejected { request, .. }) => {
                let Request::Transfer(transfer) = request else { unreachable!("a transfer was submitted") };
                loading.fail(transfer.extents);
                shared.cache.loads.forget(load);
                Err(Refused)
            }
        }
    }

    fn urgency(&self, purpose: Purpose) -> Urgency {
        match (purpose, self.caller) {
            (Purpose::Demand, _) => Urgency::Demand,
            (Purpose::Ahead, Caller::Adviser) => Urgency::Advised,
            (Purpose::Ahead, _) => Urgency::Readahead,
        }
    }

    fn count(&self, pages: PageRange, ahead_from: PageIndex) {
        let counters = &self.inode.counters;
        let demanded = ahead_from.clamp(pages.start, pages.end) - pages.start;
        counters.misses.fetch_add(demanded.get(), Ordering::Relaxed);
        counters.read_ahead.fetch_add(pages.len().get() - demanded.get(), Ordering::Relaxed);
        counters.device_reads.fetch_add(1, Ordering::Relaxed);
        counters.device_read_bytes.fetch_add(pages.len().bytes(), Ordering::Relaxed);
    }
}

/// Whether a run is the only one of its plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alone {
    Yes,
    No,
}

/// Up to this size a `pread` in the calling thread is as fast as a request, and cheaper.
const IN_THREAD_BYTES_MAX: u64 = 256 << 10;
