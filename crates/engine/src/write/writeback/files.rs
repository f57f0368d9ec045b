//! Files: which of them are written back although no caller waits for that.
//!
//! ```text
//!   old pages, closed file ─┬─ of this machine ─► begun in the thread that looks, unless something waits for the file's device
//!                           └─ of a server ─────► begun in a thread of its own: the call may last until the server answers
//! ```
//!
//! To begin a write takes calls that a device without an answer holds up: space is allocated, a few pages are copied into the kernel's page
//! cache, the file's times are looked at. The thread that does this for all files must not stay in one of them.
//!
//! Owns: when a file is due, in which thread its writeback begins.
//! Does not own: the writes (writeback).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater_io::{OpenFile, without_signals};

use super::{Awaited, EARLY_RUNS, SYNC_RUNS, begin, sweep};
use crate::base::shared_completion::HELD_UP;
use crate::engine::Shared;
use crate::inode::{ALL_PAGES, Inode};

/// Begins writeback of all files but those that failed just now, or are held up. Where a background thread does this, files of servers are
/// left to it. Returns the number of pages.
pub(crate) fn begin_any(shared: &Shared) -> u64 {
    let (files, now) = (shared.cache.writes.dirty_files(), shared.driver.now());
    let is_failing = |failed_at| has_passed(failed_at, RETRY_AGE, now) == Some(false);
    let is_left = |file: &OpenFile| shared.background.is_present() && file.may_not_answer();
    files
        .iter()
        .filter(|inode| {
            Candidate::of(inode).is_some_and(|one| !is_failing(one.failed_at) && !is_left(&one.file))
        })
        .map(|inode| sweep(shared, inode, EARLY_RUNS))
        .sum()
}

/// Begins writeback of old pages and of closed files; retries failed ones after a while.
pub(crate) fn begin_old(shared: &Arc<Shared>) {
    let now = shared.driver.now();
    for inode in shared.cache.writes.dirty_files() {
        let Some(Candidate { file, dirty_since, failed_at }) = Candidate::of(&inode) else { continue };
        let is_old = has_passed(dirty_since, DIRTY_AGE, now) == Some(true) || inode.is_closed();
        if !is_old || has_passed(failed_at, RETRY_AGE, now) == Some(false) {
            continue;
        }
        if shared.background.is_present() && file.may_not_answer() {
            begin_apart(shared, inode);
        } else {
            begin(shared, &inode, ALL_PAGES, SYNC_RUNS, Awaited::No);
        }
    }
}

/// Whether the writeback of a file may wait for an answer that does not come.
pub(crate) fn may_last(inode: &Inode) -> bool {
    Candidate::of(inode).is_none_or(|candidate| candidate.file.may_not_answer())
}

/// A file with dirty pages, whose device answers as far as is known.
struct Candidate {
    file: Arc<OpenFile>,
    dirty_since: Option<Instant>,
    failed_at: Option<Instant>,
}

impl Candidate {
    /// `None` without dirty pages, and where another thread is at the file's times or length, or a write takes long.
    fn of(inode: &Inode) -> Option<Candidate> {
        if inode.is_being_checked() {
            return None;
        }
        let state = inode.dirty.try_lock()?;
        if state.in_flight.values().any(|write| write.began.elapsed() >= HELD_UP) {
            return None;
        }
        Some(Candidate {
            file: state.file.clone()?,
            dirty_since: state.dirty_since,
            failed_at: state.failed_at,
        })
    }
}

/// Begins the writeback of a file in a thread of its own, unless one is at work for it. Where the system refuses a thread, and while others
/// wait for servers, the next round tries again.
fn begin_apart(shared: &Arc<Shared>, inode: Arc<Inode>) {
    let Some(place) = Place::take(&inode) else { return };
    let shared = shared.clone();
    let work = move || {
        begin(&shared, &place.0, ALL_PAGES, SYNC_RUNS, Awaited::No);
        drop(place);
    };
    let builder = thread::Builder::new().name("headwater-server".into()).stack_size(STACK_BYTES);
    let _ = without_signals(|| builder.spawn(work));
}

/// The right to write a file back apart: one at a time for each file, and [`THREADS_MAX`] in all.
struct Place(Arc<Inode>);

impl Place {
    fn take(inode: &Arc<Inode>) -> Option<Place> {
        if inode.dirty.is_begun_apart.swap(true, Ordering::AcqRel) {
            return None;
        }
        // Given back by the drop, also if there is none.
        let place = Place(inode.clone());
        (THREADS.fetch_add(1, Ordering::AcqRel) < THREADS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
        self.0.dirty.is_begun_apart.store(false, Ordering::Release);
    }
}

/// Of the process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// More than there are servers, usually.
const THREADS_MAX: usize = 8;

/// As that of the background thread.
const STACK_BYTES: usize = 256 << 10;

/// Whether `since`, if set, is at least `age` ago.
fn has_passed(since: Option<Instant>, age: Duration, now: Instant) -> Option<bool> {
    since.map(|since| now.saturating_duration_since(since) >= age)
}

/// Long enough that a page that is rewritten often reaches the device only now and then; the kernel waits 5 to 30 s.
const DIRTY_AGE: Duration = Duration::from_secs(5);

/// A full device is not retried more often than this.
const RETRY_AGE: Duration = Duration::from_secs(1);
