//! Coherence: how changes by other processes become visible, and the lease of a file.
//!
//! ```text
//!   no lease ──lease [Inode::lease]──► held ──check: sees all earlier writes──► trusted: reads skip the check
//!      ▲                                │                                          │
//!      └── give up: pages stay ◄────────┴───────── break: untrusted, pages leave ◄─┘
//! ```
//!
//! While a file is leased ([`headwater_io::Lease`]), no process has it open for writing, so its known length and times stay valid
//! and reads skip the check. When another process opens it for writing, the order is: reads stop trusting the lease, pages leave,
//! the lease is released, the open returns. A read that begins after the write checks the file. A read that began before has the
//! old bytes; if it puts a page of them into the cache, the next check drops it, because the known stamp is still that of the
//! leased file. Pages are also dropped when a lease was refused earlier (a process that had the file mapped for writing may have
//! changed it without moving the stamp), and after this engine has written, because its own changes hide those of others.
//!
//! Owns: the lease of an inode, from taking to releasing; the public levels of coherence.
//! Does not own: retries and the thread that receives lease breaks (leases).
//! Invariants: C1 `is_trusted` only while the kernel's lease is held and after a check that began under it; C2 when a lease is
//! broken, pages leave before it is released.
//! Locks: `state`, before those of dirty pages and of the cache; no user code and no check runs under it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_io::{Dropped, Lease, LeaseOwner, LeaseState, OpenFile, coarse_tick};

use crate::base::events;
use crate::inode::{ALL_PAGES, Inode, REVALIDATE_INTERVAL};

/// How cached reads see what other processes write to a file.
///
/// Guarantees beside other programs that change the file, for all levels but [`Coherence::Private`]:
///
/// - *Alternating writers*: when one has finished before the other begins (this engine by a sync, the other program by the return
///   of its `write(2)`), no byte of either is lost, not even within one page or block: this engine writes exactly the bytes that
///   were written through it. Where both wrote the same bytes, the last to reach the kernel win; this engine's reach it at
///   writeback, by a sync or 5 s later. A change by others that is detected while this engine has dirty bytes is counted
///   ([`Counts::conflicts`](crate::Counts::conflicts)) and raises a `tracing` event.
/// - *Appending together*: [`crate::OpenOptions::append`].
/// - *Visibility*: writes, truncates and allocations by others are visible within the interval of
///   [`crate::OpenOptions::revalidate`] (10 ms) after their system call has returned, however much this engine itself writes to
///   the file; stores through a mapping, after their `msync(2)`, except on tmpfs, where nothing reports them. Opening the file
///   and [`crate::File::refresh`] check at once.
/// - Not seen until the file changes again: writes of this process that bypass headwater, made while this engine writes to the
///   file's device; stores through a mapping of another process, and its writes by `io_submit(2)` or a polled ring, if this
///   engine writes to the file between the same two checks.
/// - A window of [`crate::File::map_contiguous`] is written back in whole pages: no other program may write to these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Coherence {
    /// Every read sees what was written before it began, without a system call: the kernel makes other writers wait while the
    /// file is leased. Granted for regular files on ext4, XFS, Btrfs, F2FS and tmpfs, opened for reading, to their owner or with
    /// `CAP_LEASE`, while no process (this one included) has them open or mapped for writing.
    ///
    /// Without a lease, each read asks the kernel for length and times instead ([`Duration::ZERO`], unless
    /// [`crate::OpenOptions::revalidate`] says otherwise). The lease is tried at each opening that requests it, and once a
    /// second.
    ///
    /// Pages cached before the lease are kept if length and times prove them valid, within the limits of
    /// [`Coherence::Revalidated`]: writes through `mmap` that ended before the file was opened may be missed.
    ///
    /// Another process that opens a leased file for writing, or truncates it, blocks until the cached pages are dropped: some 0.1
    /// ms, if this process gets a processor. If this process is stopped (`SIGSTOP`, a frozen cgroup), the other one waits until
    /// it continues, at most `/proc/sys/fs/lease-break-time` seconds (45); if it continues later than that, reads may see old
    /// bytes until its lease thread has run. An open with `O_NONBLOCK` fails once instead of waiting.
    Leased,
    /// The kernel is asked for length and times at intervals: writes are visible after the time of
    /// [`crate::OpenOptions::revalidate`] at the latest. No other process waits.
    #[default]
    Revalidated,
    /// As [`Coherence::Revalidated`], where nothing proves which changes were this engine's own: after each device write of this
    /// engine, clean pages are read again. Costs reads after each writeback, and is correct everywhere.
    ///
    /// [`crate::File::coherence`] reports this level for files on file systems that can be written past this kernel (NFS, SMB,
    /// 9p, FUSE and unknown ones, where each check asks the server), and where the kernel grants no `fanotify(7)` (before Linux
    /// 5.13, in sandboxes). Files of overlayfs count as local: the kernel calls changes of its layers undefined.
    Unwatched,
    /// As [`Coherence::Revalidated`]; and if others change the file while this engine has dirty bytes of it, the next write,
    /// append, change of length or sync through this handle fails, once: [`crate::Error::Conflict`].
    Checked,
    /// No check after the opening, as with [`Duration::MAX`]: the user promises that no other program changes the file while it
    /// is open.
    Private,
}

impl Coherence {
    /// How long the length and times of a file without a lease are trusted, measured by the coarse clock. That clock lags by up
    /// to a tick, so this is one tick less, unless next to nothing would be left.
    pub(crate) fn interval(self, chosen: Option<Duration>) -> Duration {
        let (interval, tick) = (self.exact_interval(chosen), coarse_tick());
        let is_endless = interval >= Duration::from_nanos(u64::MAX);
        if interval > 2 * tick && !is_endless { interval - tick } else { interval }
    }

    fn exact_interval(self, chosen: Option<Duration>) -> Duration {
        match self {
            Coherence::Leased => chosen.unwrap_or(Duration::ZERO),
            Coherence::Revalidated | Coherence::Unwatched | Coherence::Checked => {
                chosen.unwrap_or(REVALIDATE_INTERVAL)
            }
            Coherence::Private => Duration::from_nanos(u64::MAX),
        }
    }
}

/// The lease of a file, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Leasing {
    is_trusted: AtomicBool,
    /// Handles of this engine that are open for writing; while there are any, no lease is granted.
    writers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Open for reading, as long as a handle that requests a lease is open.
    file: Option<Arc<OpenFile>>,
    lease: Option<Lease>,
    /// Distinguishes successive leases.
    number: u64,
    history: History,
}

/// Whether others may have written since the pages were last known to be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum History {
    #[default]
    Quiet,
    /// A lease was refused or broken, or this engine wrote: others may have written without moving the stamp.
    Contested,
}

impl Leasing {
    /// Whether the file cannot have changed.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Acquire)
    }

    /// Counts a handle of this engine open for writing. Meanwhile changes by others cannot be told from own ones.
    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
        self.lock().history = History::Contested;
    }

    /// Counts one such handle less.
    pub(crate) fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inode {
    /// Notes that a handle open for reading requests a lease.
    pub(crate) fn wish_lease(&self, file: &Arc<OpenFile>) {
        self.leasing.lock().file.get_or_insert_with(|| file.clone());
    }

    /// Leases the file if a handle requests it and no process has it open for writing.
    pub(crate) fn lease(&self, owner: &LeaseOwner) {
        let Some((file, number, history)) = self.begin_lease(owner) else { return };
        if history == History::Contested {
            let dropped = self.drop_contents();
            self.on_dropped(&dropped);
        }
        // All earlier writers have closed the file, so one strict check sees all they did.
        let looked = self.refresh(&file, Duration::ZERO);
        let mut state = self.leasing.lock();
        if state.number != number || state.lease.is_none() {
            // The lease was broken meanwhile.
            return;
        }
        match looked {
            Ok(()) => {
                state.history = History::Quiet;
                self.leasing.is_trusted.store(true, Ordering::Release);
                events::leased(self.pages.id());
            }
            // Reads check the file, and report the error.
            Err(_) => state.lease = None,
        }
    }

    fn begin_lease(&self, owner: &LeaseOwner) -> Option<(Arc<OpenFile>, u64, History)> {
        self.close_writer()?;
        let mut state = self.leasing.lock();
        if state.lease.is_some() || self.is_closed() {
            return None;
        }
        let file = state.file.clone()?;
        match Lease::take(&file, owner) {
            Ok(lease) => state.lease = Some(lease),
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    state.history = History::Contested;
                } else {
                    // A later attempt would be refused as well.
                    state.file = None;
                }
                events::lease_refused(self.pages.id(), &error);
                return None;
            }
        }
        state.number += 1;
        Some((file, state.number, state.history))
    }

    /// Closes the descriptor open for writing once nothing is dirty; `None` while this engine is writing.
    fn close_writer(&self) -> Option<()> {
        let mut dirty = self.dirty.lock();
        let is_writing = self.leasing.writers.load(Ordering::Acquire) > 0 || !dirty.dirty.is_empty();
        let file = if is_writing { return None } else { dirty.file.take() };
        drop(dirty);
        drop(file);
        Some(())
    }

    /// Releases the lease if the kernel asks for it. Returns the pages that left; the caller reports them to listeners.
    pub(crate) fn break_lease(&self) -> Option<Vec<Dropped>> {
        let mut state = self.leasing.lock();
        if state.lease.as_ref()?.state() == LeaseState::Held {
            return None;
        }
        state.history = History::Contested;
        self.distrust();
        let dropped = self.drop_contents();
        // Now the other process continues.
        state.lease = None;
        Some(dropped)
    }

    /// Releases the lease. Length and times read under it stay valid until the next write, which the next check detects.
    pub(crate) fn give_up_lease(&self) {
        let mut state = self.leasing.lock();
        self.distrust();
        state.lease = None;
    }

    /// After the last close: returns the parts to drop, unless the file was opened again.
    pub(crate) fn end_leasing(&self) -> Option<Ended> {
        let mut state = self.leasing.lock();
        if !self.is_closed() {
            return None;
        }
        self.distrust();
        Some(Ended(state.lease.take(), state.file.take()))
    }

    /// From now on reads check the file.
    fn distrust(&self) {
        self.leasing.is_trusted.store(false, Ordering::Release);
        self.checked_nanoseconds.store(0, Ordering::Release);
    }

    /// Drops clean pages and loads in flight: others may have written, or are about to.
    fn drop_contents(&self) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        let _state = self.dirty.lock();
        self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| dropped.push(page));
        self.dirty.note_written();
        self.dirty.note_change();
        dropped
    }
}

/// A lease and its file, in the order in which they are dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "dropped, when no lock is held")]
pub(crate) struct Ended(Option<Lease>, Option<Arc<OpenFile>>);
