//! Writes: pages on their way to their files, and those who wait for that.
//!
//! ```text
//!   begin ─► request ─► joint ─► whoever needs it done takes the result ─► conclude
//!   conclude: pages clean, or dirty again and the failure noted ─► unpinned ─► all who wait are woken
//! ```
//!
//! Owns: which writes there are, which files have dirty pages, how many those are.
//! Does not own: who takes results (joint), which pages are written (write back).
//! Invariants: I3 a page is in one write at most; I4 a write keeps its pages pinned until the device is done with them; I7 a
//! write that failed leaves its pages dirty.
//! Locks: `list` and `files`, not held while waiting, concluding or waking; taken inside a file's `state`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headwater_core::cache::DirtyToo;
use headwater_core::dirty::{Taken, Written};
use headwater_core::frame::FileId;
use headwater_core::units::{ByteRange, PageRange};
use headwater_io::{Completion, Finished, OpenFile};

use crate::base::events;
use crate::base::shared_completion::{Joint, Waited};
use crate::engine::Shared;
use crate::inode::Inode;
use crate::inode::dirty::Cause;

/// All writes of an engine.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    next: AtomicU64,
    /// By number, so nearly by age.
    list: Mutex<BTreeMap<u64, Arc<PageWrite>>>,
    /// Files with dirty pages, which are known as long as they have any.
    files: Mutex<BTreeMap<FileId, Arc<Inode>>>,
    unwritten_pages: AtomicU64,
    /// Why pages were given up that nothing reports any more, until the next flush of the engine does.
    lost: Mutex<Option<Cause>>,
    /// Writes that are over, for a process that ends and waits as long as there is progress.
    progress: AtomicU64,
}

/// Whether a file was known to have dirty pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noted {
    New,
    Known,
}

/// Pages of a file on their way to it.
#[derive(Debug)]
pub(crate) struct PageWrite {
    id: u64,
    inode: Arc<Inode>,
    taken: Taken,
    /// Of the file, from the first byte that is written to the last.
    bytes: ByteRange,
    /// How much of it the request writes: of a page that is dirty in several places, the last.
    requested_bytes: u64,
    /// By which it is written.
    file: Arc<OpenFile>,
    began: Instant,
    /// Whether others have changed the file since it began.
    is_doubted: AtomicBool,
    joint: Joint<()>,
}

impl Writes {
    /// A write whose request is about to be submitted.
    pub(crate) fn begin(
        &self,
        inode: &Arc<Inode>,
        file: &Arc<OpenFile>,
        taken: Taken,
        bytes: ByteRange,
        requested_bytes: u64,
    ) -> Arc<PageWrite> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (inode, file, began, joint) = (inode.clone(), file.clone(), Instant::now(), Joint::new());
        let write = Arc::new(PageWrite {
            id,
            inode,
            taken,
            bytes,
            requested_bytes,
            file,
            began,
            is_doubted: AtomicBool::new(false),
            joint,
        });
        self.lock().insert(id, write.clone());
        write
    }

    /// One of the writes that have been under way for longest.
    pub(crate) fn oldest(&self) -> Option<Arc<PageWrite>> {
        self.lock().values().next().cloned()
    }

    /// Concludes what has arrived and nobody waits for. Says how many.
    pub(crate) fn conclude_arrived(&self, shared: &Shared) -> usize {
        let writes: Vec<Arc<PageWrite>> = self.lock().values().cloned().collect();
        writes.iter().filter(|write| write.conclude_if_arrived(shared)).count()
    }

    /// The pages of a file that are not on its device were so many, and are now so many.
    pub(crate) fn note_unwritten(&self, before: u64, now: u64) {
        if now >= before {
            self.unwritten_pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            self.unwritten_pages.fetch_sub(before - now, Ordering::AcqRel);
        }
    }

    /// Pages of a file were given up that no handle has open.
    fn note_lost(&self, error: &io::Error) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(Cause::of(error));
    }

    /// Why pages were given up since this was last asked.
    pub(crate) fn take_lost(&self) -> Option<io::Error> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take().map(|cause| cause.error())
    }

    /// Pages that devices do not have yet.
    #[inline]
    pub(crate) fn unwritten_pages(&self) -> u64 {
        self.unwritten_pages.load(Ordering::Acquire)
    }

    /// A write is over.
    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes that are over.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// The file has dirty pages. Says whether that is new.
    pub(crate) fn note_dirty(&self, inode: &Arc<Inode>) -> Noted {
        match self.files().insert(inode.pages.id(), inode.clone()) {
            None => Noted::New,
            Some(_) => Noted::Known,
        }
    }

    /// Files that have, or had until just now, dirty pages.
    pub(crate) fn dirty_files(&self) -> Vec<Arc<Inode>> {
        self.files().values().cloned().collect()
    }

    /// The file has none any more. One with windows may get some at any moment, and stays.
    pub(crate) fn forget(&self, inode: &Arc<Inode>) {
        if !inode.unwritten.windows.is_empty() {
            return;
        }
        let forgotten = self.files().remove(&inode.pages.id());
        // The inode takes locks of its own when it goes.
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<PageWrite>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<FileId, Arc<Inode>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageWrite {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn pages(&self) -> PageRange {
        self.taken.pages
    }

    /// From the first byte of the file that is written to the last.
    pub(crate) fn bytes(&self) -> ByteRange {
        self.bytes
    }

    /// Others have changed the file, and may have done so after the bytes of this write reached it.
    pub(crate) fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Release);
    }

    /// Whether it is of bytes that may be old when they are written: of a page that is dirty in part, or since overtaken.
    pub(crate) fn is_doubted(&self) -> bool {
        self.is_part() || self.is_doubted.load(Ordering::Acquire)
    }

    /// Whether it is of a page that is dirty in part.
    pub(crate) fn is_part(&self) -> bool {
        self.taken.parts.is_some()
    }

    /// The request is submitted: from now on anybody may take its result.
    pub(crate) fn under_way(&self, completion: Completion) {
        self.joint.under_way(completion, ());
    }

    /// Blocks until the write is over.
    pub(crate) fn wait(&self, shared: &Shared) {
        match self.joint.wait() {
            Waited::Over => {}
            Waited::Arrived(finished, ()) => self.conclude(shared, finished),
            Waited::GivenUp => unreachable!("only reads are given up"),
        }
    }

    /// Resolves when the write is over. May be dropped at any moment.
    pub(crate) async fn ready(&self, shared: &Shared) {
        if let Some((finished, ())) = self.joint.ready(shared).await {
            self.conclude(shared, finished);
        }
    }

    fn conclude_if_arrived(&self, shared: &Shared) -> bool {
        self.joint.take_arrived().map(|(finished, ())| self.conclude(shared, finished)).is_some()
    }

    fn conclude(&self, shared: &Shared, finished: Finished) {
        let outcome = self.let_go(finished);
        self.over(shared, outcome);
    }

    /// The pages are clean, if they were written. From now on they may leave, though they count as being written.
    pub(crate) fn let_go(&self, finished: Finished) -> io::Result<()> {
        let Finished { result, stopped_by, pages, .. } = finished;
        let outcome = match (result, stopped_by) {
            (Ok(written_bytes), _) if written_bytes as u64 >= self.requested_bytes => Ok(()),
            (Ok(_), Some(error)) | (Err(error), _) => Err(error),
            (Ok(_), None) => Err(io::ErrorKind::WriteZero.into()),
        };
        if let (Ok(()), Some(pages)) = (&outcome, &pages) {
            pages.clean();
        }
        // Before they may be evicted: who finds one missing reads the device, which has it.
        drop(pages);
        outcome
    }

    /// Blocks until the write is done, and leaves it to the caller to conclude it.
    #[cfg(test)]
    pub(crate) fn finished(&self) -> Finished {
        match self.joint.wait() {
            Waited::Arrived(finished, ()) => finished,
            Waited::Over | Waited::GivenUp => panic!("nothing else takes it"),
        }
    }

    /// Whether the file has no name and no handle any more: what cannot be written to it would keep its space for ever.
    fn is_of_no_file(&self) -> bool {
        self.inode.is_closed() && self.file.links().is_ok_and(|links| links == 0)
    }

    /// The write is over, with or without a request.
    pub(crate) fn over(&self, shared: &Shared, outcome: io::Result<()>) {
        let (unwritten, pages) = (&self.inode.unwritten, self.taken.pages);
        if let Err(error) = &outcome {
            unwritten.note_failure(error);
        }
        // Before the pages count as written.
        unwritten.note_written_at(pages.bytes());
        let is_lost = outcome.is_err() && self.is_of_no_file();
        let mut dropped = Vec::new();
        let is_clean = unwritten.change(shared, |state| {
            let written = if outcome.is_ok() { Written::Yes } else { Written::No };
            state.dirty.complete_taken(&self.taken, written);
            state.failed_at = outcome.is_err().then(|| shared.driver.now());
            state.in_flight.remove(&self.id);
            if is_lost {
                state.dirty.forget(pages);
                self.inode.pages.invalidate(pages, DirtyToo::Yes, |page| dropped.push(page));
            }
            let is_beside_others = self.is_part() && self.inode.is_contested();
            if is_beside_others || self.is_doubted.load(Ordering::Acquire) {
                // What others wrote beside it, or over it, is in the file, and not here.
                self.inode.pages.invalidate(pages, DirtyToo::No, |page| dropped.push(page));
            }
            let is_clean = state.dirty.is_empty();
            if is_clean {
                // Under the lock: who writes next notes the file anew.
                shared.cache.writes.forget(&self.inode);
            }
            is_clean
        });
        self.inode.on_dropped(&dropped);
        if let (true, Err(error)) = (is_lost, &outcome) {
            events::lost(&self.inode, pages.len().get());
            shared.cache.writes.note_lost(error);
        }
        self.inode.end_changes(&self.file, 1);
        self.inode.counters.wrote(pages.len().get(), self.bytes.len());
        events::wrote(&self.inode, pages, &outcome, self.began.elapsed());
        shared.cache.writes.lock().remove(&self.id);
        shared.cache.writes.note_progress();
        self.joint.over();
        if is_clean {
            self.inode.on_clean(shared, &self.file);
        }
    }
}
