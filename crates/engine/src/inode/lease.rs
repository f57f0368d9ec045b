//! Lease: a file that no other process has open for writing, so that no read has to look at it.
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
//! Owns: the lease of an inode, from taking to giving up.
//! Does not own: when it is tried again, the thread that hears of writers (leases).
//! Invariants: C1 `is_trusted` only while the kernel's lease is held and after a look that began under it; C2 pages leave
//! before the lease does, if somebody asked for it.
//! Locks: `state` before those of what is unwritten and of the cache; no user's code runs under it, and no look.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_io::{Dropped, Lease, LeaseOwner, LeaseState, OpenFile};

use crate::base::events;
use crate::inode::coherence::History;
use crate::inode::{ALL_PAGES, Inode};

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
