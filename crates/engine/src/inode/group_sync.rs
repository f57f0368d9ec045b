//! Group sync: one `fdatasync` for all that wait for one.
//!
//! Owns: which sync is under way, and for which writes it counts.
//! Does not own: what is written before (write).
//! Locks: `syncs`, alone.

use std::io;
use std::sync::{Mutex, MutexGuard};

use headwater_io::{Completion, Event, SyncScope, lock};

/// Who syncs a file for whom.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    syncs: Mutex<Turns>,
    pub(crate) ended: Event,
}

#[derive(Debug, Default)]
struct Turns {
    /// Syncs begun so far.
    begun: u64,
    /// The last one that succeeded, by when it began; those before count as well.
    succeeded: u64,
    is_running: bool,
    /// Under way, and nobody waits for its answer any more: the next who syncs does, because the device does not repeat it.
    left_behind: Option<Completion>,
}

/// What one who wants a sync has to do.
pub(crate) enum Part {
    /// Do it, and tell the others.
    Lead(u64),
    /// Wait for somebody who does.
    Wait,
    /// Nothing: one that began after this was wanted has succeeded.
    Done,
}

impl GroupSync {
    /// Which sync is needed for what was written until now: the next to begin.
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

    /// The leader is done, or gone.
    fn end(&self, number: Option<u64>, left_behind: Option<Completion>) {
        let mut syncs = self.lock();
        syncs.is_running = false;
        syncs.left_behind = left_behind;
        syncs.succeeded = syncs.succeeded.max(number.unwrap_or(0));
        drop(syncs);
        self.ended.notify(usize::MAX);
    }

    /// The sync that was left behind, once its answer is there.
    pub(crate) fn take_answered(&self) -> Option<Completion> {
        self.lock().left_behind.take_if(|completion| completion.is_done())
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        lock(&self.syncs)
    }
}

/// Ends the turn of a leader, also of one that is dropped.
pub(crate) struct Leading<'a> {
    syncs: &'a GroupSync,
    pub(crate) number: Option<u64>,
    /// What it waits for.
    pub(crate) completion: Option<Completion>,
}

impl<'a> Leading<'a> {
    /// With what another has left behind, if anything.
    pub(crate) fn new(syncs: &'a GroupSync) -> Leading<'a> {
        let completion = syncs.lock().left_behind.take();
        Leading { syncs, number: None, completion }
    }

    /// The answer to what it waits for. May be dropped at any moment.
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
