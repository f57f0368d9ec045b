//! Sync: earlier writes are on the device, and stay there.
//!
//! ```text
//!   sync ─► one sweep: every dirty page ─► wait for all in flight ─► pages dirtied again under writeback, or left beside direct writes: once more ─► wait
//!        ─► pages held back by a truncate? size lock ─► one more sweep
//!        ─► failed? reported, once to each handle
//!        ─► join the group of the next fdatasync ─► wait for it, or lead it: write the group's records, fdatasync
//! ```
//!
//! Owns: the order of these steps, which caller runs `fdatasync` for the others.
//! Does not own: writeback, errors (inode).
//! Invariants: I3; I5; I11; I7 success means that the device has confirmed all earlier writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use headwater_core::units::{PageIndex, PageRange};
use headwater_io::{Completion, Fsync, OpenFile, SyncScope, Urgency};

use crate::base::error::{Error, Operation, Result};
use crate::base::listeners::{calls_after, defer};
use crate::base::shared_completion::HELD_UP;
use crate::engine::Shared;
use crate::engine::handle::Source;
use crate::inode::group_sync::{Leading, Member, Part};
use crate::inode::page_write::PageWrite;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::stretches::Claims;
use crate::write::window_flush;
use crate::write::writeback;
use crate::write::writeback::{Awaited, SYNC_RUNS};

/// The writeback of a whole file, with its progress.
struct Sweep<'a> {
    shared: &'a Shared,
    inode: &'a Arc<Inode>,
    pages: PageRange,
    /// Where the first round continues.
    from: PageIndex,
    /// Pages dirtied again under writeback, for the second round.
    again: Vec<PageRange>,
    /// Writes to wait for.
    waits: Vec<Arc<PageWrite>>,
    failures_before: u64,
    round: Round,
    /// Whether pages were held back by a truncate.
    is_held_back: bool,
    /// What was left because of direct writes beside it, for another round.
    left: Vec<PageRange>,
    claims: Claims<'a>,
    /// Writes in flight where this sweep has been, and those before it; if one fails, the second round writes its pages again.
    passed: Vec<Arc<PageWrite>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    /// Every page that is dirty and not in flight.
    First,
    /// Pages that were dirty and in flight when the sync began; those in flight then, if a write has failed since; those left.
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
            pages,
            from: pages.start,
            again,
            passed: waits.clone(),
            failures_before: inode.dirty.errseq.count(),
            waits,
            round: Round::First,
            is_held_back: false,
            left: Vec::new(),
            claims: Claims::new(shared, inode),
        }
    }

    /// Begins writes, and returns the next one to wait for. `None` when all are written, or have failed.
    fn step(&mut self) -> Option<Arc<PageWrite>> {
        loop {
            match self.round {
                Round::First if self.from < self.pages.end => {
                    let rest = PageRange::new(self.from, self.pages.end);
                    let in_flight = self.inode.dirty.lock().in_flight.len();
                    let runs_max = SYNC_RUNS.saturating_sub(in_flight).max(1);
                    self.from = self.begin(rest, runs_max);
                    if self.from < self.pages.end {
                        // The younger half stays in flight while the next writes begin.
                        self.waits.drain(..self.waits.len() / 2);
                    }
                }
                Round::Second => match self.again.pop() {
                    Some(pages) => {
                        self.begin(pages, usize::MAX);
                        if self.waits.len() < SYNC_RUNS {
                            continue;
                        }
                    }
                    None => {
                        self.round = Round::Over;
                        self.take_in_flight();
                    }
                },
                Round::First | Round::Over => {}
            }
            if let Some(write) = self.waits.pop() {
                return Some(write);
            }
            if (self.round != Round::First || self.from == self.pages.end) && !self.goes_on() {
                return None;
            }
        }
    }

    /// Once no write is left to wait for: whether there is another round.
    fn goes_on(&mut self) -> bool {
        if self.round == Round::First && self.inode.dirty.errseq.count() != self.failures_before {
            self.again.extend(self.passed.iter().map(|write| write.pages()));
        }
        self.leave_withdrawn();
        match self.round {
            Round::Over if self.left.is_empty() => return false,
            // No direct write has begun beside these since they were claimed.
            Round::First | Round::Over => {
                self.round = Round::Second;
                self.again.append(&mut self.left);
            }
            Round::Second => {}
        }
        true
    }

    /// Pages that this sweep has passed over, because they were in a write of another thread, are dirty again if that was withdrawn. What
    /// is claimed is not withdrawn once more.
    fn leave_withdrawn(&mut self) {
        let is_withdrawn = |write: &Arc<PageWrite>| write.is_withdrawn.load(Ordering::Acquire);
        let withdrawn: Vec<_> =
            self.passed.drain(..).filter(is_withdrawn).map(|write| write.pages()).collect();
        self.claims.add(&withdrawn);
        self.left.extend(withdrawn);
    }

    /// Begins writes of a range. Returns the first page not visited.
    fn begin(&mut self, pages: PageRange, runs_max: usize) -> PageIndex {
        let mut begun = writeback::begin(self.shared, self.inode, pages, runs_max, Awaited::Yes);
        self.is_held_back |= begun.is_held_back;
        self.claims.add(&begun.left);
        self.left.append(&mut begun.left);
        self.passed.append(&mut begun.passed);
        self.take_in_flight();
        begun.next
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
    if flush_pages_async(shared, inode).await == HeldBack::Some {
        let flush = async {
            let _size_lock = inode.dirty.size_lock.lock_async(&shared.driver).await;
            flush_pages_async(shared, inode).await
        };
        calls_after(flush).await;
    }
}

/// As [`flush_pages`] of all pages, for a task.
pub(crate) async fn flush_pages_async(shared: &Shared, inode: &Arc<Inode>) -> HeldBack {
    let mut sweep = Sweep::new(shared, inode, ALL_PAGES);
    while let Some(write) = sweep.step() {
        shared.cache.writes.ready(&write).await;
    }
    if sweep.is_held_back { HeldBack::Some } else { HeldBack::None }
}

/// Writes back all files, and waits. A file whose device does not answer leaves none of the others unwritten: those of servers come last, and
/// no other is waited for long before all had their turn.
pub(crate) fn flush_all(shared: &Shared) {
    let files = shared.cache.writes.dirty_files();
    let (last, first): (Vec<_>, Vec<_>) = files.into_iter().partition(|inode| writeback::may_last(inode));
    if first.len() + last.len() > 1 {
        first.iter().for_each(|inode| flush_for_a_while(shared, inode));
    }
    for inode in first.iter().chain(&last) {
        flush(shared, inode, ALL_PAGES);
    }
}

/// Writes back pages of a file as long as its device answers.
fn flush_for_a_while(shared: &Shared, inode: &Arc<Inode>) {
    let mut sweep = Sweep::new(shared, inode, ALL_PAGES);
    while let Some(write) = sweep.step() {
        shared.cache.writes.wait_at_most(&write, HELD_UP);
        if write.began.elapsed() >= HELD_UP && inode.dirty.lock().in_flight.contains_key(&write.id()) {
            return;
        }
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
        if let Some(synced) = self.sync_around(scope) {
            return synced.map_err(|error| self.sync_error(error));
        }
        let Some(inode) = self.known() else { return sync() };
        let since = inode.dirty.errseq.count();
        flush(shared, inode, ALL_PAGES);
        self.report(inode, since)?;
        self.sync_in_group(inode, inode.group_sync.join(scope), scope, since)
    }

    /// Returns when the group of a caller is durable: waits, or runs the sync itself.
    pub(crate) fn sync_in_group<'a>(
        &self,
        inode: &'a Arc<Inode>,
        mut member: Member<'a>,
        scope: SyncScope,
        since: u64,
    ) -> Result<()> {
        let mut listener = None;
        loop {
            // Asked once more after each `listen`, so that no wake-up is missed.
            match (member.part(), listener.take()) {
                // An earlier sync may have failed since the caller joined: no success is reported after that.
                (Part::Done, _) if inode.dirty.errseq.count() == since => return Ok(()),
                (Part::Done, _) => return self.report(inode, since),
                (Part::Again, _) => {
                    self.report(inode, since)?;
                    member = inode.group_sync.join(scope);
                }
                (Part::Lead(leading), _) => {
                    // A listener that syncs would wait for this thread.
                    let _deferral = defer();
                    let mut leading = leading;
                    let result = self.lead(inode, &mut leading);
                    self.complete_sync(inode, result, &mut leading)?;
                }
                (Part::Gather(..) | Part::Wait, None) => listener = Some(member.group.over.listen()),
                (Part::Gather(until, _), Some(listener)) => {
                    listener.wait_timeout(until.saturating_duration_since(Instant::now()));
                }
                (Part::Wait, Some(listener)) => listener.wait(),
            }
        }
    }

    /// Writes the records of a group, and makes it durable.
    fn lead(&self, inode: &Arc<Inode>, leading: &mut Leading<'_>) -> io::Result<()> {
        let before = leading.completion.take().map_or(Ok(()), |before| before.wait().result.map(|_| ()));
        let scope = leading.close_without_records().unwrap_or_else(|| {
            let locked = self.lock_end(inode);
            self.append_group(inode, leading.close(), locked)
        });
        before.and_then(|()| self.shared().driver.sync_blocking(&self.synced_by(inode), scope))
    }

    /// As [`Source::sync`], for a task.
    pub(crate) async fn sync_async(&self, scope: SyncScope) -> Result<()> {
        self.check_process_for(Operation::Sync)?;
        let shared = self.shared();
        let Some(inode) = self.known() else {
            let synced = async {
                let mut completion = self.submit_sync(self.open.clone(), scope)?;
                std::future::poll_fn(|context| completion.poll(context)).await.result.map(|_| ())
            };
            return synced.await.map_err(|error| self.sync_error(error));
        };
        let since = inode.dirty.errseq.count();
        flush_async(shared, inode).await;
        self.report(inode, since)?;
        self.sync_in_group_async(inode, inode.group_sync.join(scope), scope, since).await
    }

    /// As [`Source::sync_in_group`], for a task.
    pub(crate) async fn sync_in_group_async<'a>(
        &self,
        inode: &'a Arc<Inode>,
        mut member: Member<'a>,
        scope: SyncScope,
        since: u64,
    ) -> Result<()> {
        let driver = &self.shared().driver;
        let (mut listener, mut gathered, mut in_vain) = (None, 0, 0);
        loop {
            match (member.part(), listener.take()) {
                // An earlier sync may have failed since the caller joined: no success is reported after that.
                (Part::Done, _) if inode.dirty.errseq.count() == since => return Ok(()),
                (Part::Done, _) => return self.report(inode, since),
                (Part::Again, _) => {
                    self.report(inode, since)?;
                    member = inode.group_sync.join(scope);
                }
                (Part::Lead(mut leading), _) => {
                    let result = self.lead_async(inode, &mut leading).await;
                    self.complete_sync(inode, result, &mut leading)?;
                }
                // No timer is at hand on every executor, but a task that yields comes after all that are ready.
                (Part::Gather(_, callers), _) => {
                    in_vain = if callers == gathered { in_vain + 1 } else { 0 };
                    gathered = callers;
                    if in_vain == YIELDS_IN_VAIN_MAX {
                        member.end_gathering();
                    }
                    yield_once().await;
                }
                (Part::Wait, None) => {
                    listener = Some(member.group.over.listen_async(driver));
                }
                (Part::Wait, Some(listener)) => listener.await,
            }
        }
    }

    /// As [`Source::lead`], for a task.
    async fn lead_async(&self, inode: &Arc<Inode>, leading: &mut Leading<'_>) -> io::Result<()> {
        let before = leading.answer().await;
        if let Err(error) = &before {
            // At once: the device does not report it again, should this task be dropped.
            inode.dirty.errseq.latch(error);
        }
        let scope = match leading.close_without_records() {
            Some(scope) => scope,
            None => {
                let append = async {
                    let locked = self.lock_end_async(inode).await;
                    self.append_group(inode, leading.close(), locked)
                };
                calls_after(append).await
            }
        };
        before?;
        leading.completion = Some(self.submit_sync(self.synced_by(inode), scope)?);
        leading.answer().await
    }

    /// The file through which a group is synced: the one that writes it back, which was open before its bytes came. The kernel reports what
    /// its own write-back could not write to those that were open then, and once it has, to none that is opened later.
    fn synced_by(&self, inode: &Inode) -> Arc<OpenFile> {
        inode.dirty.lock().file.clone().unwrap_or_else(|| self.open.clone())
    }

    fn submit_sync(&self, file: Arc<OpenFile>, scope: SyncScope) -> io::Result<Completion> {
        let request = Fsync { file, scope };
        let submitted = self.shared().driver.submit(request, Urgency::Demand);
        submitted.map_err(io::Error::from)
    }

    /// Completes a sync that this handle led.
    fn complete_sync(&self, inode: &Inode, result: io::Result<()>, leading: &mut Leading<'_>) -> Result<()> {
        match result {
            Ok(()) => {
                leading.succeed();
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
    pub(crate) fn report(&self, inode: &Inode, since: u64) -> Result<()> {
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

/// Lets the other tasks of the executor run.
async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A task that gathers yields this often without meeting a new caller: those that were woken have run by then, on an executor with
/// several threads too, and it takes a few microseconds.
const YIELDS_IN_VAIN_MAX: u32 = 16;

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
        let file = options.engine(&engine).caching(Caching::On).write(true).create(true).open(&path).unwrap();
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
