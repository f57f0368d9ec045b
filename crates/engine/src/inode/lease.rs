//! Coherence: how what other processes do to a file comes to be seen, and the lease by which it is.
//!
//! ```text
//!   no lease ──lease [Inode::lease]──► held ──look: all that was written before──► trusted: no read looks
//!      ▲                                │                                            │
//!      └── give up: pages stay ◄────────┴──────── break: not trusted, pages leave ◄──┘
//! ```
//!
//! While a file is leased ([`headwater_io::Lease`]) nobody has it open for writing, so what was seen of it stays right and
//! nothing is asked. When somebody wants to write, the order is: no read trusts the lease any more, pages leave, the lease is
//! given up, he gets on. A read that begins after his write looks at the file; one that began before has the bytes from
//! before, and if it puts a page of them into the cache, the next look at the stamp, which is still that of the leased file,
//! drops it. A lease that was refused before finds the pages dropped as well: while somebody had the file mapped for writing,
//! the stamp did not tell of all he did. The same after this engine has written, among whose changes those of others hide.
//!
//! Owns: the lease of an inode, from taking to giving up; what users see of it.
//! Does not own: when it is tried again, the thread that hears of writers (leases).
//! Invariants: C1 `is_trusted` only while the kernel's lease is held and after a look that began under it; C2 pages leave
//! before the lease does, if somebody asked for it.
//! Locks: `state` before those of what is unwritten and of the cache; no user's code runs under it, and no look.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_io::{Dropped, Lease, LeaseOwner, LeaseState, OpenFile, coarse_tick};

use crate::base::events;
use crate::inode::{ALL_PAGES, Inode, REVALIDATE_INTERVAL};

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
    is_trusted: AtomicBool,
    /// Handles of this engine that are open for writing: as long as there are any, no lease is granted.
    writers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Open for reading, for as long as somebody who wishes a lease has the file open.
    file: Option<Arc<OpenFile>>,
    lease: Option<Lease>,
    /// Tells leases apart.
    number: u64,
    history: History,
}

/// Whether others have written since the pages were right for sure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum History {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inode {
    /// Somebody who has the file open for reading wishes a lease.
    pub(crate) fn wish_lease(&self, file: &Arc<OpenFile>) {
        self.leasing.lock().file.get_or_insert_with(|| file.clone());
    }

    /// Leases the file if that is wished and nobody writes.
    pub(crate) fn lease(&self, owner: &LeaseOwner) {
        let Some((file, number, history)) = self.begin_lease(owner) else { return };
        if history == History::Contested {
            let dropped = self.drop_contents();
            self.on_dropped(&dropped);
        }
        // Whoever wrote before has closed the file, so one strict look sees all he did.
        let looked = self.refresh(&file, Duration::ZERO);
        let mut state = self.leasing.lock();
        if state.number != number || state.lease.is_none() {
            // It was asked for meanwhile.
            return;
        }
        match looked {
            Ok(()) => {
                state.history = History::Quiet;
                self.leasing.is_trusted.store(true, Ordering::Release);
                events::leased(self.pages.id());
            }
            // Reads look, and report what they meet.
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
                    // Nor will it be granted another time.
                    state.file = None;
                }
                events::lease_refused(self.pages.id(), &error);
                return None;
            }
        }
        state.number += 1;
        Some((file, state.number, state.history))
    }

    /// Closes what is left open for writing when this engine has nothing to write any more; `None` while it has.
    fn close_writer(&self) -> Option<()> {
        let mut dirty = self.dirty.lock();
        let is_writing = self.leasing.writers.load(Ordering::Acquire) > 0 || !dirty.dirty.is_empty();
        let file = if is_writing { return None } else { dirty.file.take() };
        drop(dirty);
        drop(file);
        Some(())
    }

    /// Gives the lease up if somebody waits for that; says which pages left. Those who listen are still to be told.
    pub(crate) fn break_lease(&self) -> Option<Vec<Dropped>> {
        let mut state = self.leasing.lock();
        if state.lease.as_ref()?.state() == LeaseState::Held {
            return None;
        }
        state.history = History::Contested;
        self.distrust();
        let dropped = self.drop_contents();
        // Now he gets on.
        state.lease = None;
        Some(dropped)
    }

    /// Gives the lease up. What was seen under it is right until somebody writes, which the next look tells.
    pub(crate) fn give_up_lease(&self) {
        let mut state = self.leasing.lock();
        self.distrust();
        state.lease = None;
    }

    /// Nobody has the file open any more. What is to be dropped, unless somebody has again.
    pub(crate) fn end_leasing(&self) -> Option<Ended> {
        let mut state = self.leasing.lock();
        if !self.is_closed() {
            return None;
        }
        self.distrust();
        Some(Ended(state.lease.take(), state.file.take()))
    }

    /// From now on reads look.
    fn distrust(&self) {
        self.leasing.is_trusted.store(false, Ordering::Release);
        self.checked_nanoseconds.store(0, Ordering::Release);
    }

    /// Takes what is clean out of the cache, and what is on its way: others may have written, or are about to.
    fn drop_contents(&self) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        let _state = self.dirty.lock();
        self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| dropped.push(page));
        self.dirty.note_written();
        self.dirty.note_change();
        dropped
    }
}

/// A lease and the file that it is of, in the order in which they end.
#[derive(Debug)]
#[expect(dead_code, reason = "dropped, when no lock is held")]
pub(crate) struct Ended(Option<Lease>, Option<Arc<OpenFile>>);
