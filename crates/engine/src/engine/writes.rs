//! Writes: pages in flight to their files, and the threads and tasks that wait for them.
//!
//! ```text
//!   begin ─► request ─► shared completion ─► the first waiter takes the result ─► complete
//!   complete: pages clean, or dirty again and the error noted ─► unpinned ─► all waiters woken
//! ```
//!
//! Owns: the list of writes in flight, the files with dirty pages, the number of these pages, what dropped writers still hold.
//! Does not own: which waiter takes a result (shared completion), which pages are written (writeback).
//! Invariants: I3 a page is in one write at most; I4 a write keeps its pages pinned until the device is done with them; I7 a
//! failed write leaves its pages dirty.
//! Locks: `list`, `files` and `late`, not held while waiting, completing or waking; taken inside a file's `state`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_core::dirty::{Taken, Written};
use headwater_core::frame::FileId;
use headwater_core::units::ByteRange;
use headwater_io::{Arena, Driver, OpenFile, lock};
use smallvec::SmallVec;

use crate::base::events;
use crate::base::shared_completion::{ANNOUNCED_MAX, Ended, HELD_UP};
use crate::inode::Inode;
use crate::inode::dirty::DirtyTotal;
use crate::inode::errseq::Cause;
use crate::inode::page_write::PageWrite;

/// All writes of an engine.
#[derive(Debug)]
pub(crate) struct Writes {
    next: AtomicU64,
    /// By number, so roughly by age.
    list: Mutex<BTreeMap<u64, Arc<PageWrite>>>,
    /// Files with dirty pages, kept alive as long as they have any.
    files: Mutex<BTreeMap<FileId, Arc<Inode>>>,
    dirty: DirtyTotal,
    /// The file and the number of bytes of each dropped writer that a thread goes on with.
    late: Mutex<Vec<(Arc<Inode>, usize)>>,
    /// Why pages were discarded of files without a handle, until the next flush of the engine reports it.
    lost: Mutex<Option<Cause>>,
    /// Number of writes that have succeeded: an exiting process waits while it grows.
    progress: AtomicU64,
}

/// Whether a file was known to have dirty pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    New,
    Known,
}

impl Writes {
    pub(crate) fn new(driver: &Driver) -> Writes {
        Writes {
            next: AtomicU64::default(),
            list: Mutex::default(),
            files: Mutex::default(),
            late: Mutex::default(),
            dirty: DirtyTotal::new(driver),
            lost: Mutex::default(),
            progress: AtomicU64::default(),
        }
    }

    /// Begins a write, just before its request is submitted.
    pub(crate) fn begin(
        &self,
        inode: &Arc<Inode>,
        file: &Arc<OpenFile>,
        taken: Taken,
        bytes: ByteRange,
        requested_bytes: u64,
    ) -> Arc<PageWrite> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let write = Arc::new(PageWrite::new(id, (inode, file), taken, bytes, requested_bytes));
        self.lock().insert(id, write.clone());
        write
    }

    /// The oldest write in flight that may soon be over.
    pub(crate) fn oldest_moving(&self) -> Option<Arc<PageWrite>> {
        self.lock().values().find(|write| write.began.elapsed() < HELD_UP).cloned()
    }

    /// Blocks until a write is over.
    pub(crate) fn wait(&self, write: &PageWrite) {
        write.completion.wait(|ended| self.ended(write, ended));
    }

    /// As [`Writes::wait`], for `limit` at most.
    pub(crate) fn wait_at_most(&self, write: &PageWrite, limit: Duration) {
        write.completion.wait_at_most(limit, |ended| self.ended(write, ended));
    }

    /// Waiters for memory are notified when one of the oldest writes that may soon be over is over, or has arrived and can be completed. Returns how many are
    /// over.
    pub(crate) fn announce_in(&self, arena: &Arena) -> usize {
        let mut writes: SmallVec<[Arc<PageWrite>; ANNOUNCED_MAX]> = SmallVec::new();
        let list = self.lock();
        let moving = list.values().filter(|write| write.began.elapsed() < HELD_UP);
        writes.extend(moving.take(ANNOUNCED_MAX).cloned());
        drop(list);
        let is_over =
            |write: &&Arc<PageWrite>| write.completion.announce_in(arena, |ended| self.ended(write, ended));
        writes.iter().filter(is_over).count()
    }

    /// Resolves when a write is over. May be dropped at any moment.
    pub(crate) async fn ready(&self, write: &PageWrite) {
        write.completion.ready(&self.dirty.driver, |ended| self.ended(write, ended)).await;
    }

    /// Completes writes that have arrived and that nothing waits for. Returns how many.
    pub(crate) fn complete_arrived(&self) -> usize {
        let writes: Vec<Arc<PageWrite>> = self.lock().values().cloned().collect();
        let complete =
            |write: &&Arc<PageWrite>| write.completion.take_arrived(|ended| self.ended(write, ended));
        writes.iter().filter(complete).count()
    }

    fn ended(&self, write: &PageWrite, ended: Ended<()>) {
        match ended {
            Ended::Arrived(finished, ()) => {
                let outcome = write.let_go(finished);
                self.over(write, outcome);
            }
            Ended::GivenUp => unreachable!("only reads are given up"),
        }
    }

    /// Notes that a thread goes on with bytes of a dropped writer, until [`Writes::end_late`] has the same.
    pub(crate) fn begin_late(&self, inode: &Arc<Inode>, length: usize) {
        lock(&self.late).push((inode.clone(), length));
    }

    /// The engine has these bytes, or never will.
    pub(crate) fn end_late(&self, inode: &Arc<Inode>, length: usize) {
        let mut late = lock(&self.late);
        let place = late.iter().position(|(other, bytes)| Arc::ptr_eq(other, inode) && *bytes == length);
        let ended = place.map(|place| late.swap_remove(place));
        drop(late);
        // The inode takes locks of its own when dropped.
        drop(ended);
        self.note_progress();
    }

    /// Of dropped writers, what is not in the engine's memory yet.
    pub(crate) fn late(&self) -> Vec<(Arc<Inode>, usize)> {
        lock(&self.late).clone()
    }

    /// Notes that bytes were discarded of a file that may have no handle any more.
    pub(crate) fn note_lost(&self, error: &io::Error) {
        lock(&self.lost).get_or_insert(Cause::of(error));
    }

    /// Why bytes were discarded since the last call.
    pub(crate) fn take_lost(&self) -> Option<io::Error> {
        lock(&self.lost).take().map(|cause| cause.error())
    }

    /// The number of dirty pages, and the clock for their age.
    #[inline]
    pub(crate) fn dirty(&self) -> &DirtyTotal {
        &self.dirty
    }

    /// Ends a write, with or without a request.
    pub(crate) fn over(&self, write: &PageWrite, outcome: io::Result<()>) {
        let (inode, dirty, pages) = (&write.inode, &write.inode.dirty, write.taken.pages);
        if let Err(error) = &outcome {
            dirty.errseq.note(error);
        }
        // Before the pages become clean.
        dirty.note_written_at(pages.bytes());
        let is_lost = outcome.is_err() && write.is_of_no_file();
        let mut dropped = Vec::new();
        let is_clean = dirty.change(&self.dirty, |state| {
            let written = if outcome.is_ok() { Written::Yes } else { Written::No };
            state.dirty.complete_taken(&write.taken, written);
            state.failed_at = outcome.is_err().then(|| self.dirty.driver.now());
            state.in_flight.remove(&write.id);
            if is_lost {
                state.dirty.forget(pages);
                inode.pages.invalidate(pages, DirtyToo::Yes, |page| dropped.push(page));
            }
            let is_beside_others = write.is_part() && inode.is_contested();
            if is_beside_others || write.is_doubted.load(Ordering::Acquire) {
                // Bytes that others wrote beside or over these are in the file, and not in these pages.
                inode.pages.invalidate(pages, DirtyToo::No, |page| dropped.push(page));
            }
            let is_clean = state.dirty.is_empty();
            if is_clean {
                // Under the lock: the next write notes the file anew.
                self.forget(inode);
            }
            is_clean
        });
        inode.on_dropped(&dropped);
        if let (true, Err(error)) = (is_lost, &outcome) {
            events::lost(inode.pages.id(), pages.len().get());
            self.note_lost(error);
        }
        inode.end_changes(&write.file, 1);
        inode.counters.wrote(pages.len().get(), write.bytes.len());
        events::wrote(inode.pages.id(), pages, &outcome, write.began.elapsed());
        self.lock().remove(&write.id);
        if outcome.is_ok() {
            self.note_progress();
        }
        write.completion.over();
        if is_clean {
            inode.on_clean(&self.dirty, &write.file);
        }
    }

    /// Ends a write before its first byte: its pages are as dirty as before.
    pub(crate) fn withdraw(&self, write: &PageWrite) {
        let inode = &write.inode;
        inode.dirty.change(&self.dirty, |state| {
            state.dirty.complete_taken(&write.taken, Written::No);
            state.in_flight.remove(&write.id);
            write.is_withdrawn.store(true, Ordering::Release);
        });
        inode.end_changes(&write.file, 1);
        self.lock().remove(&write.id);
        write.completion.over();
    }

    /// Counts a write that has succeeded, or a dropped writer that has ended.
    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of writes that have succeeded.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Notes that a file has dirty pages. Returns whether that is new.
    pub(crate) fn note_dirty(&self, inode: &Arc<Inode>) -> Noted {
        match self.files().insert(inode.pages.id(), inode.clone()) {
            None => Noted::New,
            Some(_) => Noted::Known,
        }
    }

    /// Files that have dirty pages, or had until just now.
    pub(crate) fn dirty_files(&self) -> Vec<Arc<Inode>> {
        self.files().values().cloned().collect()
    }

    /// Notes that a file has no dirty pages any more. A file with windows may get some at any moment, and stays.
    pub(crate) fn forget(&self, inode: &Arc<Inode>) {
        if !inode.dirty.windows.is_empty() {
            return;
        }
        let forgotten = self.files().remove(&inode.pages.id());
        // The inode takes locks of its own when dropped.
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<PageWrite>>> {
        lock(&self.list)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<FileId, Arc<Inode>>> {
        lock(&self.files)
    }
}
