//! Group sync: one `fdatasync` for all callers that wait for one.
//!
//! Owns: which sync is in flight, and which earlier writes it covers.
//! Does not own: the writeback before it (write).
//! Locks: `syncs`, alone.

use std::io;
use std::sync::{Mutex, MutexGuard};

use headwater_io::{Completion, Event, SyncScope, lock};

/// Lets one caller sync the file on behalf of all that wait.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    syncs: Mutex<Syncs>,
    pub(crate) ended: Event,
}

#[derive(Debug, Default)]
struct Syncs {
    /// Syncs begun so far.
    begun: u64,
    /// Number of the latest sync that succeeded; it covers all earlier ones.
    succeeded: u64,
    is_running: bool,
    /// A sync in flight that lost its leader to a drop. The next leader waits for it, because the device does not report its error
    /// twice.
    left_behind: Option<Completion>,
}

/// The part of a caller in a sync.
pub(crate) enum Part {
    /// Submit the sync, as number `.0`, and wake the waiting callers.
    Lead(u64),
    /// Wait for the leader.
    Wait,
    /// Nothing: a sync that began after the ticket was drawn has succeeded.
    Done,
}

impl GroupSync {
    /// The number of the sync that covers all writes so far: the next to begin.
    pub(crate) fn ticket(&self) -> u64 {
        self.lock().begun + 1
    }

    pub(crate) fn part(&self, ticket: u64, scope: SyncScope) -> Part {
        let mut syncs = self.lock();
        if syncs.succeeded >= ticket && scope == SyncScope::Data {
            return Part::Done;
        }
        if syncs.is_running {
            return Part::Wait;
        }
        syncs.is_running = true;
        syncs.begun += 1;
        Part::Lead(syncs.begun)
    }

    /// Ends the leadership, after success, failure or a drop.
    fn end(&self, number: Option<u64>, left_behind: Option<Completion>) {
        let mut syncs = self.lock();
        syncs.is_running = false;
        syncs.left_behind = left_behind;
        syncs.succeeded = syncs.succeeded.max(number.unwrap_or(0));
        drop(syncs);
        self.ended.notify(usize::MAX);
    }

    /// The abandoned sync, once it has completed.
    pub(crate) fn take_answered(&self) -> Option<Completion> {
        self.lock().left_behind.take_if(|completion| completion.is_done())
    }

    fn lock(&self) -> MutexGuard<'_, Syncs> {
        lock(&self.syncs)
    }
}

/// The leadership of a sync; ends when dropped.
pub(crate) struct Leading<'a> {
    syncs: &'a GroupSync,
    pub(crate) number: Option<u64>,
    /// The sync that the leader waits for.
    pub(crate) completion: Option<Completion>,
}

impl<'a> Leading<'a> {
    /// Takes over an abandoned sync, if there is one.
    pub(crate) fn new(syncs: &'a GroupSync) -> Leading<'a> {
        let completion = syncs.lock().left_behind.take();
        Leading { syncs, number: None, completion }
    }

    /// Awaits the sync. May be dropped at any moment.
    pub(crate) async fn answer(&mut self) -> io::Result<()> {
        let Some(completion) = &mut self.completion else { return Ok(()) };
        let finished = std::future::poll_fn(|context| completion.poll(context)).await;
        self.completion = None;
        finished.result.map(|_| ())
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.syncs.end(self.number, self.completion.take());
    }
}
