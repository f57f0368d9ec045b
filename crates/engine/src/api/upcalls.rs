//! Upcalls: what the engine's room has the rooms above do, and how files are opened.
//!
//! ```text
//!   a file is opened, or becomes dirty ─► woken ─► tick ─┬─ arrived? concluded; old, or closed? written back
//!     ▲                                                    └─ memory short? given back; not leased? tried again
//!     └── nothing is open or dirty: rests ◄── until the next, which the memory decides ──┘
//! ```
//!
//! Owns: the order of the steps when a file is opened and closed, and in a round of the background thread.
//! Does not own: the steps.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_io::{OpenFile, Pause, close_parked};

use crate::api::ending;
use crate::base::clock::REVALIDATE_INTERVAL;
use crate::engine::{Shared, Upcalls, reclaim};
use crate::inode::table::{WasClosed, WasLast};
use crate::inode::{ALL_PAGES, Inode};
use crate::write::writeback::{self, Awaited, SYNC_RUNS};

/// Those of every engine.
pub(crate) const UPCALLS: Upcalls = Upcalls { settle: writeback::settle, close, tend, end: ending::end };

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
    shared.background.note();
    let settled = inode.refresh_opened(file, REVALIDATE_INTERVAL);
    let settled = settled.and_then(|()| policy.map_or(Ok(()), |policy| inode.set_policy(policy)));
    if was_closed == WasClosed::Yes {
        inode.forgive(&file.opened().stamp);
    }
    if let Err(error) = settled {
        close(shared, &inode, file);
        return Err(error);
    }
    Ok(inode)
}

/// A handle is closed. With the last of a file, readahead on its way is given up; pages stay, in case it is opened again.
fn close(shared: &Shared, inode: &Arc<Inode>, file: &OpenFile) {
    if shared.cache.inodes.leave(inode) == WasLast::No {
        return;
    }
    shared.leases.delist(inode);
    shared.cache.loads.abandon(inode);
    if inode.dirty.pages() > 0 {
        // The background thread writes what is left after these, or fails.
        writeback::begin(shared, inode, ALL_PAGES, SYNC_RUNS, Awaited::No);
        shared.background.wake();
    } else {
        inode.on_clean(shared.cache.writes.dirty(), file);
    }
    shared.cache.inodes.remember_closed(inode, closed_files_max(shared));
}

/// Files remembered after they were closed. Each takes some three kilobytes beside its pages: beyond the least number
/// a twentieth of the memory budget.
fn closed_files_max(shared: &Shared) -> usize {
    let by_memory = usize::try_from(shared.memory_bytes / CLOSED_FILE_BYTES).unwrap_or(usize::MAX);
    by_memory.max(CLOSED_MAX_LEAST)
}

/// One round of the background thread. Says when the next is due.
pub(crate) fn tend(shared: &Shared) -> Pause {
    shared.cache.writes.conclude_arrived();
    writeback::begin_old(shared);
    shared.watch.drain();
    let leases = shared.leases.tend();
    let is_small = shared.arena.stats().mapped_bytes <= WATCHED_BYTES_MIN;
    let memory = if is_small { GROWTH_TICK } else { reclaim::relieve(shared).look_again };
    let dirty = (!shared.cache.writes.dirty_files().is_empty()).then_some(DIRTY_TICK);
    let memory = (!is_small || shared.cache.inodes.are_open()).then_some(memory);
    let parked = (close_parked() > 0).then_some(PARKED_TICK);
    let tick = [dirty, memory, leases, parked].into_iter().flatten().min();
    tick.map_or(Pause::UntilCalled(GROWTH_TICK), Pause::AtMost)
}

/// While pages are dirty: short beside the age at which they are written, long beside what looking costs.
const DIRTY_TICK: Duration = Duration::from_millis(100);

/// An engine with so little is not asked for memory: what it could give would help nobody.
const WATCHED_BYTES_MIN: usize = 64 << 20;

/// How often a small engine is looked at, whether it has grown.
const GROWTH_TICK: Duration = Duration::from_secs(1);

/// How soon descriptors that wait for locks of the program are looked at again: such locks are held for moments or for hours.
const PARKED_TICK: Duration = Duration::from_secs(1);

/// With budgets up to 256 MiB.
const CLOSED_MAX_LEAST: usize = 4096;

const CLOSED_FILE_BYTES: u64 = 64 << 10;
