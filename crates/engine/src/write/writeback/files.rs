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

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use headwater_io::{OpenFile, lock, try_lock, without_signals};

use super::{Awaited, EARLY_RUNS, SYNC_RUNS, begin, sweep};
use crate::base::shared_completion::HELD_UP;
use crate::engine::Shared;
use crate::inode::{ALL_PAGES, Inode};

/// Begins writeback of all files but those that failed just now, or are held up. Where a background thread does this, files of servers are
/// left to it. Returns the number of pages.
pub(crate) fn begin_any(shared: &Shared) -> u64 {
    let files = shared.cache.writes.dirty_files();
    let is_failing = |failed_at| has_failed_just_now(shared, failed_at);
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
        if !is_old || has_failed_just_now(shared, failed_at) {
            continue;
        }
        if shared.background.is_present() && file.may_not_answer() {
            begin_apart(shared, inode, &file);
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
fn begin_apart(shared: &Arc<Shared>, inode: Arc<Inode>, file: &OpenFile) {
    let Some(place) = Place::take(&inode, file) else { return };
    let shared = shared.clone();
    let work = move || {
        begin(&shared, &place.inode, ALL_PAGES, SYNC_RUNS, Awaited::No);
        drop(place);
    };
    let builder = thread::Builder::new().name("headwater-server".into()).stack_size(STACK_BYTES);
    let _ = without_signals(|| builder.spawn(work));
}

/// The right to write a file back apart: one at a time for each file, [`SERVER_THREADS_MAX`] for each file system, and [`THREADS_MAX`] in
/// all.
struct Place {
    inode: Arc<Inode>,
    device: u64,
}

impl Place {
    fn take(inode: &Arc<Inode>, file: &OpenFile) -> Option<Place> {
        if inode.dirty.is_begun_apart.swap(true, Ordering::AcqRel) {
            return None;
        }
        let device = file.opened().key.device();
        let is_taken = Places::lock().is_some_and(|mut places| places.take(device));
        if is_taken {
            return Some(Place { inode: inode.clone(), device });
        }
        inode.dirty.is_begun_apart.store(false, Ordering::Release);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut places) = Places::lock() {
            let place = places.devices.iter().position(|device| *device == self.device);
            place.map(|place| places.devices.swap_remove(place));
        }
        self.inode.dirty.is_begun_apart.store(false, Ordering::Release);
    }
}

/// The file systems that threads of this process are at work for, once for each thread.
struct Places {
    process: u32,
    devices: Vec<u64>,
}

static PLACES: Mutex<Places> = Mutex::new(Places { process: 0, devices: Vec::new() });

impl Places {
    /// `None` in a child that was forked while a thread of its parent held the lock.
    fn lock() -> Option<MutexGuard<'static, Places>> {
        let process = std::process::id();
        static PROCESS: OnceLock<u32> = OnceLock::new();
        let is_first = *PROCESS.get_or_init(|| process) == process;
        let mut places = if is_first { lock(&PLACES) } else { try_lock(&PLACES)? };
        if places.process != process {
            // None of the parent's threads are here.
            *places = Places { process, devices: Vec::new() };
        }
        Some(places)
    }

    fn take(&mut self, device: u64) -> bool {
        let of_server = self.devices.iter().filter(|taken| **taken == device).count();
        let is_free = of_server < SERVER_THREADS_MAX && self.devices.len() < THREADS_MAX;
        if is_free {
            self.devices.push(device);
        }
        is_free
    }
}

/// Enough for a server that answers slowly; one that does not leaves the rest to others.
const SERVER_THREADS_MAX: usize = 4;

/// More than there are servers, usually, with all of theirs.
const THREADS_MAX: usize = 64;

/// As that of the background thread.
const STACK_BYTES: usize = 256 << 10;

/// Whether `since`, if set, is at least `age` ago.
/// Whether something failed so short ago that it is not tried again.
pub(super) fn has_failed_just_now(shared: &Shared, failed_at: Option<Instant>) -> bool {
    has_passed(failed_at, RETRY_AGE, shared.driver.now()) == Some(false)
}

fn has_passed(since: Option<Instant>, age: Duration, now: Instant) -> Option<bool> {
    since.map(|since| now.saturating_duration_since(since) >= age)
}

/// Long enough that a page that is rewritten often reaches the device only now and then; the kernel waits 5 to 30 s.
const DIRTY_AGE: Duration = Duration::from_secs(5);

/// A full device is not retried more often than this.
const RETRY_AGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::{Places, SERVER_THREADS_MAX, THREADS_MAX};

    /// Goal: a server without an answer takes some of the threads, and the others are for other servers.
    #[test]
    fn a_server_takes_no_more_than_its_places() {
        let mut places = Places { process: 0, devices: Vec::new() };
        let taken = |places: &mut Places, device| (0..100).filter(|_| places.take(device)).count();
        assert_eq!(taken(&mut places, 1), SERVER_THREADS_MAX);
        assert_eq!(taken(&mut places, 2), SERVER_THREADS_MAX);
        assert_eq!((3..100).map(|device| taken(&mut places, device)).sum::<usize>(), THREADS_MAX - 8);
    }
}
