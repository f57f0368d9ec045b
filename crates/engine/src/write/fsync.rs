//! Sync: earlier writes are on the device, and stay there.
//!
//! ```text
//!   sync ─► one sweep: every dirty page ─► wait for all in flight ─► pages dirtied again under writeback: once more ─► wait
//!        ─► pages held back by a truncate? size lock ─► one more sweep
//!        ─► failed? reported, once to each handle
//!        ─► fdatasync: the next to begin, shared by all that wait for it
//! ```
//!
//! Owns: the order of these steps, which caller runs `fdatasync` for the others.
//! Does not own: writeback, errors (inode).
//! Invariants: I3; I5; I7 success means that the device has confirmed all earlier writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::units::{PageIndex, PageRange};
use headwater_io::{Completion, Fsync, Rejected, SyncScope, Urgency};

use crate::base::error::{Error, Operation, Result};
use crate::base::shared_completion::Notified;
use crate::engine::Shared;
use crate::engine::handle::Source;
use crate::inode::group_sync::{Leading, Part};
use crate::inode::page_write::PageWrite;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::window_flush;
use crate::write::writeback;
use crate::write::writeback::{Awaited, SYNC_RUNS};

/// The writeback of a whole file, with its progress.
struct Sweep<'a> {
    shared: &'a Shared,
    inode: &'a Arc<Inode>,
    /// Where the first round continues.
    from: PageIndex,
    end: PageIndex,
    /// Pages dirtied again under writeback, for the second round.
    again: Vec<PageRange>,
    /// Writes to wait for.
    waits: Vec<Arc<PageWrite>>,
    /// Writes begun before the sweep; if one fails, the second round writes its pages again.
    begun_before: Vec<Arc<PageWrite>>,
    failures_before: u64,
    round: Round,
    /// Whether pages were held back by a truncate.
    is_held_back: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    /// Every page that is dirty and not in flight.
    First,
    /// Pages that were dirty and in flight when the sync began; also those in flight then, if a write has failed since.
    Second,
    Over,
}

/// Whether a sweep left out pages because the file is being truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeldBack {
    Some,
    None,
}

impl<'a> Sweep<'a> {
    fn new(shared: &'a Shared, inode: &'a Arc<Inode>, pages: PageRange) -> Sweep<'a> {
        let state = inode.dirty.lock();
        let mut again = Vec::new();
        let mut from = pages.start;
        while let Some(run) = state.dirty.first_rewritten(PageRange::new(from, pages.end)) {
            again.push(run);
            from = run.end;
        }
        let waits: Vec<_> = state.in_flight.values().cloned().collect();
        drop(state);
        Sweep {
            shared,
            inode,
            from: pages.start,
            end: pages.end,
            again,
            begun_before: waits.clone(),
            failures_before: inode.dirty.errseq.count(),
            waits,
            round: Round::First,
            is_held_back: false,
        }
    }

    /// Begins writes, and returns the next one to wait for. `None` when all are written, or have failed.
    fn step(&mut self) -> Option<Arc<PageWrite>> {
        loop {
            match self.round {
                Round::First if self.from < self.end => {
                    let rest = PageRange::new(self.from, self.end);
                    let in_flight = self.inode.dirty.lock().in_flight.len();
                    let runs_max = SYNC_RUNS.saturating_sub(in_flight).max(1);
                    let begun = writeback::begin(self.shared, self.inode, rest, runs_max, Awaited::Yes);
                    self.is_held_back |= begun.is_held_back;
                    self.from = begun.next;
                    self.take_in_flight();
                    if self.from < self.end {
                        // The younger half stays in flight while the next writes begin.
                        self.waits.drain(..self.waits.len() / 2);
                    }
                }
                Round::Second => {
                    let pages = self.again.pop();
                    match pages {
                        Some(pages) => {
                            let begun =
                                writeback::begin(self.shared, self.inode, pages, usize::MAX, Awaited::Yes);
                            self.is_held_back |= begun.is_held_back;
                        }
                        None => self.round = Round::Over,
                    }
                    self.take_in_flight();
                }
                Round::First | Round::Over => {}
            }
            if let Some(write) = self.waits.pop() {
                return Some(write);
            }
            match self.round {
                Round::First if self.from == self.end => {
                    self.round = Round::Second;
                    if self.inode.dirty.errseq.count() != self.failures_before {
                        self.again.extend(self.begun_before.drain(..).map(|write| write.pages()));
                    }
                }
                Round::Over => return None,
                Round::First | Round::Second => {}
            }
        }
    }

    /// Collects all writes in flight to wait for, also those begun by others.
    fn take_in_flight(&mut self) {
        let state = self.inode.dirty.lock();
        self.waits = state.in_flight.values().rev().cloned().collect();
    }
}

/// Writes back the dirty pages of a file and waits. Failures are noted in its errseq.
pub(crate) fn flush(shared: &Shared, inode: &Arc<Inode>, pages: PageRange) {
    window_flush::flush(shared, inode);
    if flush_pages(shared, inode, pages) == HeldBack::Some {
        // Under the size lock no truncate begins.
        let _size_lock = inode.dirty.size_lock.lock();
        flush_pages(shared, inode, pages);
    }
}

/// One sweep over pages, which waits for its writes, but not for a truncate.
pub(crate) fn flush_pages(shared: &Shared, inode: &Arc<Inode>, pages: PageRange) -> HeldBack {
    let mut sweep = Sweep::new(shared, inode, pages);
    while let Some(write) = sweep.step() {
        shared.cache.writes.wait(&write);
    }
    if sweep.is_held_back { HeldBack::Some } else { HeldBack::None }
}

/// As [`flush`], for a task.
pub(crate) async fn flush_async(shared: &Shared, inode: &Arc<Inode>) {
    window_flush::flush_async(shared, inode).await;
    let mut sweep = Sweep::new(shared, inode, ALL_PAGES);
    while let Some(write) = sweep.step() {
        shared.cache.writes.ready(&write).await;
    }
    if sweep.is_held_back {
        let _size_lock = inode.dirty.size_lock.lock_async(&shared.driver).await;
        let mut sweep = Sweep::new(shared, inode, ALL_PAGES);
        while let Some(write) = sweep.step() {
            shared.cache.writes.ready(&write).await;
        }
    }
}

/// Writes back all files, when the engine ends.
pub(crate) fn flush_all(shared: &Shared) {
    for inode in shared.cache.writes.dirty_files() {
        flush(shared, &inode, ALL_PAGES);
    }
}

impl Source {
    /// Returns when earlier writes are in the file.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_process_for(Operation::Sync)?;
        let Some(inode) = self.known() else { return Ok(()) };
        let since = inode.dirty.errseq.count();
        flush(self.shared(), inode, ALL_PAGES);
        self.report(inode, since)
    }

    /// As [`Source::flush`], for a task.
    pub(crate) async fn flush_async(&self) -> Result<()> {
        self.check_process_for(Operation::Sync)?;
        let Some(inode) = self.known() else { return Ok(()) };
        let since = inode.dirty.errseq.count();
        flush_async(self.shared(), inode).await;
        self.report(inode, since)
    }

    /// Returns when earlier writes are durable.
    pub(crate) fn sync(&self, scope: SyncScope) -> Result<()> {
        self.check_process_for(Operation::Sync)?;
        let shared = self.shared();
        let sync = || {
            let result = shared.driver.sync_blocking(&self.open, scope);
            result.map_err(|error| self.sync_error(error))
        };
        let Some(inode) = self.known() else { return sync() };
        let since = inode.dirty.errseq.count();
        flush(shared, inode, ALL_PAGES);
        self.report(inode, since)?;
        let (group, ticket) = (&inode.group_sync, inode.group_sync.ticket());
        loop {
            let listener = group.ended.listen();
            match group.part(ticket, scope) {
                Part::Done => return Ok(()),
                Part::Wait => listener.wait(),
                Part::Lead(number) => {
                    let mut leading = Leading::new(group);
                    let before =
                        leading.completion.take().map_or(Ok(()), |before| before.wait().result.map(|_| ()));
                    let result = before.and_then(|()| shared.driver.sync_blocking(&self.open, scope));
                    return self.complete_sync(inode, result, number, &mut leading);
                }
            }
            self.report(inode, since)?;
        }
    }

    /// As [`Source::sync`], for a task.
    pub(crate) async fn sync_async(&self, scope: SyncScope) -> Result<()> {
        self.check_process_for(Operation::Sync)?;
        let shared = self.shared();
        let Some(inode) = self.known() else {
            let synced = async {
                let mut completion = self.submit_sync(scope)?;
                std::future::poll_fn(|context| completion.poll(context)).await.result.map(|_| ())
            };
            return synced.await.map_err(|error| self.sync_error(error));
        };
        let since = inode.dirty.errseq.count();
        flush_async(shared, inode).await;
        self.report(inode, since)?;
        let (group, ticket) = (&inode.group_sync, inode.group_sync.ticket());
        loop {
            let listener = Notified { listener: Some(group.ended.listen()), driver: &shared.driver };
            match group.part(ticket, scope) {
                Part::Done => return Ok(()),
                Part::Wait => listener.await,
                Part::Lead(number) => {
                    drop(listener);
                    let mut leading = Leading::new(group);
                    let mut result = leading.answer().await;
                    if result.is_ok() {
                        result = match self.submit_sync(scope) {
                            Ok(completion) => {
                                leading.completion = Some(completion);
                                leading.answer().await
                            }
                            Err(error) => Err(error),
                        };
                    }
                    return self.complete_sync(inode, result, number, &mut leading);
                }
            }
            self.report(inode, since)?;
        }
    }

    fn submit_sync(&self, scope: SyncScope) -> io::Result<Completion> {
        let request = Fsync { file: self.open.clone(), scope };
        let submitted = self.shared().driver.submit(request, Urgency::Demand);
        submitted.map_err(|Rejected { reason, .. }| io::Error::from(reason))
    }

    /// Completes a sync that this handle led.
    fn complete_sync(
        &self,
        inode: &Inode,
        result: io::Result<()>,
        number: u64,
        leading: &mut Leading<'_>,
    ) -> Result<()> {
        match result {
            Ok(()) => {
                leading.number = Some(number);
                Ok(())
            }
            Err(error) => {
                inode.dirty.errseq.latch(&error);
                Err(self.sync_error(error))
            }
        }
    }

    /// Reports the failures that this handle has not reported yet, or that came after the first `since`: another call through
    /// this handle may have reported those that this call waited for.
    fn report(&self, inode: &Inode, since: u64) -> Result<()> {
        self.check_conflicts(Operation::Sync)?;
        match inode.dirty.errseq.report(&self.reported_failures, since) {
            Some(error) => Err(self.sync_error(error)),
            None => Ok(()),
        }
    }

    /// Marks earlier failures and conflicts of the file as reported through this handle, which is new.
    pub(crate) fn mark_reported(&self, inode: &Inode) {
        self.reported_failures.store(inode.dirty.errseq.count(), Ordering::Release);
        self.reported_conflicts.store(inode.counters.conflicts.load(Ordering::Acquire), Ordering::Release);
    }

    fn sync_error(&self, error: io::Error) -> Error {
        Error::on_file(Operation::Sync, self.path(), error)
    }
}

#[cfg(test)]
mod tests {
    use headwater_core::units::PageIndex;
    use headwater_io::DriverKind;

    use crate::api::contents::Contents;
    use crate::{Caching, Engine, OpenOptions};

    /// Goal: I7: a sync includes the pages that a truncate in progress holds back: the truncate may fail, and keeps a part of its
    /// page in any case. Method: simulate the truncate, which holds the size lock, until the sync waits for it, or is done.
    #[test]
    fn a_truncate_under_way_does_not_hide_pages() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let engine = Engine::builder().memory(3 << 20).driver(DriverKind::Threads).build().unwrap();
        let mut options = OpenOptions::new();
        let file = options.engine(&engine).caching(Caching::On).create().open(&path).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let dirty = &source.known().unwrap().dirty;
        let size_lock = dirty.size_lock.lock();
        dirty.lock().barrier = Some(PageIndex::new(1));
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| {
                file.sync_data().unwrap();
                let disk = std::fs::read(&path).unwrap();
                let wrong = disk.iter().position(|&byte| byte != 7);
                assert_eq!((disk.len(), wrong), (10_000, None), "synced, and not on disk");
            });
            for _ in 0..100_000 {
                if syncing.is_finished() {
                    break;
                }
                std::thread::yield_now();
            }
            dirty.lock().barrier = None;
            drop(size_lock);
        });
    }
}
