//! Upcalls: the steps of opening and closing a file, and of one round of the background thread.
//!
//! ```text
//!   file opened for writing, memory grows ─► woken ─► tick ─┬─ requests done? completed; pages old, or file closed? written back
//!     ▲                                                     └─ memory short? released; lease refused before? tried again
//!     └── nothing is open or dirty: sleeps ◄── until the next tick, which the state of memory sets ──┘
//! ```
//!
//! Owns: the order of the steps when a file is opened and closed, and in a round of the background thread. The engine's room
//! calls these through `Upcalls`.
//! Does not own: the steps.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_io::{OpenFile, Pause, lock};

use crate::api::ending;
use crate::base::clock::REVALIDATE_INTERVAL;
use crate::engine::handle::{Entry, Source};
use crate::engine::{Shared, Upcalls, reclaim};
use crate::inode::table::{WasClosed, WasLast};
use crate::inode::{ALL_PAGES, Inode};
use crate::write::fsync;
use crate::write::window_flush;
use crate::write::writeback::{self, Awaited, SYNC_RUNS};

/// The upcalls of every engine.
pub(crate) const UPCALLS: Upcalls =
    Upcalls { reconcile: writeback::reconcile, enter, close, flush, maintain, end: ending::end };

/// The inode of a file that is being opened.
pub(crate) fn open(
    shared: &Shared,
    file: &OpenFile,
    policy: Option<ReadaheadPolicy>,
    limits: ReadaheadLimits,
) -> io::Result<Arc<Inode>> {
    let key = file.opened().key;
    let (inode, was_closed) = shared.cache.inodes.enter(key, || {
        Inode::new(key, shared.cache.pages.add_file()?, &shared.watch, shared.readahead_policy, limits)
    })?;
    // Whether a server answers for it is asked now, while one does: the background thread must not ask.
    let _ = file.may_not_answer();
    let refreshed = inode.refresh_opened(file, REVALIDATE_INTERVAL);
    let refreshed = refreshed.and_then(|()| policy.map_or(Ok(()), |policy| inode.set_policy(policy)));
    if was_closed == WasClosed::Yes {
        inode.forgive(&file.opened().stamp);
    }
    if let Err(error) = refreshed {
        close(shared, &inode, file);
        return Err(error);
    }
    Ok(inode)
}

/// Enters a file that was opened a while ago, as it is now. If that fails it is read around the cache.
fn enter(source: &Source) -> Entry {
    let (shared, file, key) = (source.shared(), &source.open, source.open.opened().key);
    let entered = shared.cache.inodes.enter(key, || {
        let pages = shared.cache.pages.add_file()?;
        Inode::new(key, pages, &shared.watch, shared.readahead_policy, source.readahead)
    });
    let Ok((inode, _)) = entered else { return Entry::Nothing };
    if inode.refresh(file, source.revalidate_after).is_err() {
        close(shared, &inode, file);
        return Entry::Nothing;
    }
    source.mark_reported(&inode);
    if source.access.writes() {
        inode.leasing.add_writer();
        shared.background.note();
    }
    Entry::Cached(inode)
}

/// Closes a handle. With the last handle of a file, readahead in flight is abandoned; pages stay, for the next opening.
fn close(shared: &Shared, inode: &Arc<Inode>, file: &OpenFile) {
    if shared.cache.inodes.leave(inode) == WasLast::No {
        return;
    }
    shared.leases.delist(inode);
    shared.cache.loads.abandon(inode);
    let dirty_pages = inode.dirty.pages();
    if dirty_pages > 0 {
        // Of a local engine in a foreign thread, its own thread writes them by the next sync, or at the engine's end.
        let begins_here = dirty_pages <= CLOSE_PAGES_MAX || !shared.background.is_present();
        if begins_here && !shared.driver.is_foreign() {
            // The background thread writes the pages that this submission leaves over, or that fail.
            writeback::begin(shared, inode, ALL_PAGES, SYNC_RUNS, Awaited::No);
        }
        shared.background.wake();
    } else {
        inode.on_clean(shared.cache.writes.dirty(), file);
    }
    shared.cache.inodes.remember_closed(inode, closed_files_max(shared));
}

fn flush(shared: &Shared, inode: &Arc<Inode>) {
    fsync::flush(shared, inode, ALL_PAGES);
}

/// Number of closed files that are remembered. Each takes some three kilobytes beside its pages: beyond the minimum, a twentieth
/// of the memory that the engine can count on.
fn closed_files_max(shared: &Shared) -> usize {
    (shared.arena.usable_bytes() / CLOSED_FILE_BYTES).max(CLOSED_MAX_LEAST)
}

/// One round of the background thread. Returns when the next is due.
pub(crate) fn maintain(shared: &Arc<Shared>) -> Pause {
    shared.background.begin_round();
    shared.arena.prepare();
    shared.cache.writes.complete_arrived();
    shared.watch.drain();
    let leases = shared.leases.maintain();
    let is_small =
        shared.arena.stats().mapped_bytes <= reclaim::KEPT_BYTES && lock(&shared.on_demand).is_empty();
    let memory = if is_small { GROWTH_TICK } else { relieve(shared) };
    // Last: only these two make calls that may wait for a device.
    writeback::begin_old(shared);
    window_flush::flush_old(shared);
    let dirty = (!shared.cache.writes.dirty_files().is_empty()).then_some(DIRTY_TICK);
    let memory = (!is_small || shared.cache.inodes.are_open()).then_some(memory);
    let tick = [dirty, memory, leases].into_iter().flatten().min();
    shared.background.end_round(tick);
    tick.map_or(Pause::UntilCalled(GROWTH_TICK), Pause::AtMost)
}

/// Returns memory where the system is short of it. Returns when to look again.
fn relieve(shared: &Shared) -> Duration {
    let relief = reclaim::relieve(shared);
    if relief.missing_bytes > 0 {
        // Dirty pages keep their chunks: written, they can go.
        writeback::begin_any(shared);
    }
    relief.look_again
}

/// 64 KiB: what the caller copies into the kernel's page cache as fast as the thread wakes.
const CLOSE_PAGES_MAX: u64 = 16;

/// While pages are dirty: short beside the age at which they are written back, long beside the cost of a round.
const DIRTY_TICK: Duration = Duration::from_millis(100);

/// How often a small engine is checked for growth.
const GROWTH_TICK: Duration = Duration::from_secs(1);

/// Applies to budgets up to 256 MiB.
const CLOSED_MAX_LEAST: usize = 4096;

const CLOSED_FILE_BYTES: usize = 64 << 10;
