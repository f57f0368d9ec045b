//! Coherence: what reads see of the changes of other processes, as users choose it, and the lease of a file.
//!
//! Owns: the choices, and what is known of a lease.
//! Does not own: taking, breaking and giving up a lease (lease).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headwater_io::{Lease, OpenFile, coarse_tick, lock};

use crate::base::clock::REVALIDATE_INTERVAL;

/// How reads through the cache come to see what other processes write to a file.
///
/// What holds with all of them, but [`Coherence::Private`], beside other programs that change the file:
///
/// - *Taking turns*: when one has finished before the other begins (this engine by a sync, the other program by the return of
///   its `write(2)`), no byte of either is lost, not even within one page or block: this engine writes exactly the bytes that
///   were written to it. Of bytes that both wrote, those stay that reach the kernel last; this engine's do when they are
///   written back, by a sync or 5 s later. A change by others that is seen while bytes of this engine are not written is
///   counted ([`Counts::conflicts`](crate::Counts::conflicts)) and a `tracing` event.
/// - *Appending together*: [`crate::OpenOptions::append`].
/// - *Visibility*: what others wrote, cut off or allocated shows within the time of [`crate::OpenOptions::revalidate`] (10 ms) after
///   their system call has returned, however much this engine writes to the file itself; stores through a mapping after their
///   `msync(2)`, except on tmpfs, where nothing tells of them. Opening the file and [`crate::File::refresh`] look at once.
/// - Not seen, until the file changes again: writes of this process that go past headwater and are made while this engine writes
///   to the file's device; stores through a mapping of another process and its writes by `io_submit(2)` or a polled ring, if this
///   engine writes to the file between the same two looks.
/// - A window of [`crate::File::map_contiguous`] is written in whole pages: these have to be this engine's alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Coherence {
    /// Every read sees what was written before it began, and asks nothing for that: the kernel has other writers wait while
    /// the file is leased. Granted for regular files on ext4, XFS, Btrfs, F2FS and tmpfs, opened for reading, to their owner
    /// or with `CAP_LEASE`, while nobody has them open for writing or mapped for it, this process included.
    ///
    /// Where it is not granted, and until it is again, each read asks the kernel for length and times instead
    /// ([`Duration::ZERO`], unless [`crate::OpenOptions::revalidate`] says otherwise). It is tried at each opening that wishes
    /// it, and once a second.
    ///
    /// What was cached before the file was leased is kept if length and times tell that it is right, with the limits of
    /// [`Coherence::Revalidated`]: writes through `mmap` that ended before the file was opened may be missed.
    ///
    /// Another process that opens a leased file for writing, or truncates it, waits until the cached pages are dropped: some
    /// 0.1 ms, if this process gets a processor. If it is stopped (`SIGSTOP`, a frozen cgroup), others wait until it goes on,
    /// at most `/proc/sys/fs/lease-break-time` seconds (45); when it goes on after longer, reads may see old bytes until its
    /// thread for that has run. An open with `O_NONBLOCK` fails once instead of waiting.
    Leased,
    /// The kernel is asked for length and times now and then: what was written shows after the time of
    /// [`crate::OpenOptions::revalidate`] at the latest. Nobody waits for us.
    #[default]
    Revalidated,
    /// As [`Coherence::Revalidated`], where nothing proves which changes were this engine's own: what was cached before this
    /// engine wrote to the device is read again after it. It costs reads after each write-back, and is right everywhere.
    ///
    /// [`crate::File::coherence`] says so of files on file systems that others can reach past this kernel (NFS, SMB, 9p, FUSE
    /// and those that headwater does not know, where each look asks the server), and where the kernel grants no `fanotify(7)`
    /// (before Linux 5.13, in sandboxes). Files of overlayfs count as local: the kernel calls changes of its layers undefined.
    Unwatched,
    /// As [`Coherence::Revalidated`]; and if others change the file while bytes that were written to it by this engine are not
    /// on the device, the next write, append, change of length or sync by this handle fails, once: [`crate::Error::Conflict`].
    Checked,
    /// Never asked after the opening, as with [`Duration::MAX`]: the user promises that nobody else changes the file while it
    /// is open.
    Private,
}

impl Coherence {
    /// How long what was seen of a file without a lease is trusted, by the coarse clock: as that lies behind by up to a tick, one
    /// tick less, unless that left next to nothing.
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
    /// Handles of this engine that are open for writing: as long as there are any, no lease is granted.
    pub(super) writers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Open for reading, for as long as somebody who wishes a lease has the file open.
    pub(super) file: Option<Arc<OpenFile>>,
    pub(super) lease: Option<Lease>,
    /// Tells leases apart.
    pub(super) number: u64,
    pub(super) history: History,
}

/// Whether others have written since the pages were right for sure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum History {
    #[default]
    Quiet,
    /// A lease was refused or asked for, or this engine wrote: somebody may have written in ways of which no stamp tells.
    Contested,
}

impl Leasing {
    /// Whether nothing of the file can have changed.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Acquire)
    }

    /// A handle of this engine was opened for writing. What others do meanwhile cannot be told from what we do.
    pub(crate) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
        self.lock().history = History::Contested;
    }

    /// It was closed.
    pub(crate) fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
