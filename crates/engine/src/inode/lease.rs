//! Lease: a file that no other process has open for writing, so that reads skip the check.
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
//! Owns: the lease of an inode, from taking to releasing.
//! Does not own: retries and the thread that receives lease breaks (leases).
//! Invariants: C1 `is_trusted` only while the kernel's lease is held and after a check that began under it; C2 when a lease is
//! broken, pages leave before it is released.
//! Locks: `state`, before those of dirty pages and of the cache; no user code and no check runs under it.

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
    /// Notes that a handle open for reading requests a lease.
    pub(crate) fn request_lease(&self, file: &Arc<OpenFile>) {
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
