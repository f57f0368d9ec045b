//! Coherence: how changes by other processes become visible to reads, and the state of a file's lease.
//!
//! Owns: the public levels, and the state of a lease.
//! Does not own: taking, breaking and releasing a lease (lease).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headwater_io::{Lease, OpenFile, coarse_tick, lock};

use crate::base::clock::REVALIDATE_INTERVAL;

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Coherence {
    /// Every read sees what was written before it began, without a system call: the kernel makes other writers wait while the
    /// file is leased. Granted for regular files on ext4, XFS, Btrfs, F2FS and tmpfs, opened for reading, to their owner or with
    /// `CAP_LEASE`, while no process (this one included) has them open or mapped for writing.
    ///
    /// Without a lease, each read asks the kernel for length and times instead ([`Duration::ZERO`], unless
    /// [`crate::OpenOptions::revalidate`] says otherwise). The lease is tried at each opening that requests it, and
    /// once a second while another opening stands in the way. Only handles that read through the cache have one, and none of a
    /// [`LocalEngine`](crate::LocalEngine).
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
    /// 5.13 to users but root, in sandboxes, and beyond 128 groups of a user, of which each engine that writes takes one). Files of overlayfs count as local: the kernel calls changes of its layers undefined.
    Unwatched,
    /// As [`Coherence::Revalidated`]; and if others change the file while this engine has dirty bytes of it, the next write,
    /// append, change of length or sync through this handle fails, once: [`crate::Error::Conflict`].
    ///
    /// Before Linux 6.13 a file's times do not tell a change from another one in the same tick of the kernel's clock (1 to 10 ms): a change so
    /// close behind the file's last one keeps its bytes, as any does, but may not be reported.
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
    pub(super) is_trusted: AtomicBool,
    /// Handles of this engine that are open for writing; while there are any, no lease is granted.
    pub(super) writers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Open for reading, as long as a handle that requests a lease is open.
    pub(super) file: Option<Arc<OpenFile>>,
    pub(super) lease: Option<Lease>,
    /// Distinguishes successive leases.
    pub(super) number: u64,
    pub(super) history: History,
}

/// Whether others may have written since the pages were last known to be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum History {
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

    /// Counts a handle of this engine open for writing. Meanwhile changes by others cannot be distinguished from own ones.
    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
        self.lock().history = History::Contested;
    }

    /// Counts one such handle less.
    pub(crate) fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
