//! Group sync: one `fdatasync` for all callers that wait for one, with the records that they append together.
//!
//! ```text
//!   join ─► open: more callers and records come ─► led [Leading] ─► closed: records written, fdatasync ─► over: each member wakes once
//!             │                                       ▲                                        └► leader dropped: abandoned
//!             └─ the callers of the last group return soon? gather: wait for them, at most one fdatasync long
//! ```
//!
//! Callers that append and sync in a loop would fall into two halves: one half waits for the sync in flight, and the next sync
//! begins before the other half is back, so each sync serves half of them. So a group stays open until as many callers have joined
//! as the last sync left behind. That waits no longer than a sync takes, and gets rarer where it was in vain. The last caller to
//! join runs the sync: the leader is a thread that runs already.
//!
//! Owns: which sync is in flight, which callers and records it covers, which of them leads.
//! Does not own: how long a group waits for callers (sync_pace), the writeback before a sync, the write of the records (write).
//! Invariants: a sync covers every caller that joined before [`Leading::close`]; at most one sync is in flight.
//! Locks: `syncs`; within it that of `errseq`.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use headwater_io::{AppendFile, Appended, Completion, SyncScope, lock};

use crate::base::handover::Handover;
use crate::inode::errseq::{Cause, Errseq};
use crate::inode::sync_pace::Pace;

/// The syncs of a file.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    syncs: Mutex<Syncs>,
}

#[derive(Debug)]
struct Syncs {
    open: Open,
    leadership: Leadership,
    /// Numbers the calls that gather.
    gathered: u64,
    pace: Pace,
    /// A sync in flight that lost its leader to a drop. The next leader waits for it, because the device does not report its error
    /// twice.
    left_behind: Option<Completion>,
}

/// The group that callers join.
#[derive(Debug)]
struct Open {
    group: Arc<Group>,
    callers: usize,
    batch: Batch,
}

/// What the leader of a group does for its members.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The widest that a member asked for.
    pub(crate) scope: SyncScope,
    /// Records to append, one behind the other.
    pub(crate) records: Vec<u8>,
    /// The descriptor to append them by.
    pub(crate) appender: Option<Arc<AppendFile>>,
}

/// The callers that one sync serves.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Where its records lie, set once after they are written; and why none do.
    pub(crate) appended: OnceLock<Result<Appended, Cause>>,
    outcome: OnceLock<Outcome>,
    pub(crate) over: Handover,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Durable,
    /// The sync failed, or lost its leader.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leadership {
    None,
    /// A caller waits for the others to come back.
    Gathering(u64),
    Leading,
}

/// A caller's place in a group.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    syncs: &'a GroupSync,
    pub(crate) group: Arc<Group>,
    /// The caller's bytes among the group's records.
    pub(crate) record: Range<usize>,
    gathering: Option<Gathering>,
}

#[derive(Clone, Copy, Debug)]
struct Gathering {
    number: u64,
    until: Instant,
}

/// What a member does next.
pub(crate) enum Part<'a> {
    /// Close the group, and sync for it.
    Lead(Leading<'a>),
    /// Wait until the group is over, or until this moment; with the number of callers that have joined.
    Gather(Instant, usize),
    /// Wait until the group is over.
    Wait,
    /// Nothing: a sync that began after the caller joined has succeeded.
    Done,
    /// Report what has failed, or join another group.
    Again,
}

impl GroupSync {
    /// Joins the group of the sync that covers all writes so far: the next to begin.
    pub(crate) fn join(&self, scope: SyncScope) -> Member<'_> {
        let mut syncs = self.lock();
        let open = &mut syncs.open;
        open.callers += 1;
        if scope == SyncScope::All {
            open.batch.scope = scope;
        }
        Member { syncs: self, group: open.group.clone(), record: 0..0, gathering: None }
    }

    /// As [`GroupSync::join`], with a record to append before the sync; `None` if it has no room among the others.
    pub(crate) fn join_with(&self, record: &[u8], appender: &Arc<AppendFile>) -> Option<Member<'_>> {
        let mut syncs = self.lock();
        let open = &mut syncs.open;
        let start = open.batch.records.len();
        if record.len() > RECORD_BYTES_MAX || start + record.len() > GROUP_BYTES_MAX {
            return None;
        }
        open.callers += 1;
        open.batch.records.extend_from_slice(record);
        open.batch.appender.get_or_insert_with(|| appender.clone());
        let record = start..start + record.len();
        Some(Member { syncs: self, group: open.group.clone(), record, gathering: None })
    }

    /// Records the error of the abandoned sync, once it has completed. Under the lock: the next leader finds the sync or its error.
    pub(crate) fn settle(&self, errseq: &Errseq) {
        let mut syncs = self.lock();
        let answered = syncs.left_behind.take_if(|completion| completion.is_done());
        if let Some(Err(error)) = answered.map(|completion| completion.wait().result) {
            errseq.latch(&error);
        }
    }

    /// Forgets a sync that lost its leader: its answer concerns no caller any more.
    pub(crate) fn forget(&self) {
        let left_behind = self.lock().left_behind.take();
        drop(left_behind);
    }

    fn lock(&self) -> MutexGuard<'_, Syncs> {
        lock(&self.syncs)
    }
}

impl<'a> Member<'a> {
    /// What to do next; asked again after each wait.
    pub(crate) fn part(&mut self) -> Part<'a> {
        match self.group.outcome.get() {
            Some(Outcome::Durable) => return Part::Done,
            Some(Outcome::Unknown) => return Part::Again,
            None => {}
        }
        let mut syncs = self.syncs.lock();
        if !Arc::ptr_eq(&syncs.open.group, &self.group) {
            return Part::Wait;
        }
        let is_complete = syncs.open.callers >= syncs.pace.expected;
        let is_own = |number| self.gathering.is_some_and(|gathering| gathering.number == number);
        match syncs.leadership {
            Leadership::Leading => return Part::Wait,
            Leadership::Gathering(number) if !is_complete && is_own(number) => {
                let until = self.gathering.expect("its own").until;
                if Instant::now() < until {
                    return Part::Gather(until, syncs.open.callers);
                }
            }
            Leadership::Gathering(_) if !is_complete => return Part::Wait,
            Leadership::None if !is_complete => return self.gather(&mut syncs),
            Leadership::None | Leadership::Gathering(_) => {}
        }
        syncs.leadership = Leadership::Leading;
        let left_behind = syncs.left_behind.take();
        Part::Lead(Leading {
            syncs: self.syncs,
            led: None,
            outcome: Outcome::Unknown,
            completion: left_behind,
        })
    }

    /// Begins to wait for the callers of the last group.
    fn gather(&mut self, syncs: &mut Syncs) -> Part<'a> {
        syncs.gathered += 1;
        syncs.leadership = Leadership::Gathering(syncs.gathered);
        let until = Instant::now() + syncs.pace.begin_gathering(syncs.open.callers);
        self.gathering = Some(Gathering { number: syncs.gathered, until });
        Part::Gather(until, syncs.open.callers)
    }

    /// Waits no longer for the callers of the last group.
    pub(crate) fn end_gathering(&mut self) {
        if let Some(gathering) = &mut self.gathering {
            gathering.until = Instant::now();
        }
    }
}

impl Drop for Member<'_> {
    /// A task that gathers may be dropped; another member takes its place.
    fn drop(&mut self) {
        let Some(gathering) = self.gathering else { return };
        let mut syncs = self.syncs.lock();
        if syncs.leadership == Leadership::Gathering(gathering.number) {
            syncs.leadership = Leadership::None;
            let group = syncs.open.group.clone();
            drop(syncs);
            group.over.notify_one();
        }
    }
}

/// The leadership of a group; ends when dropped.
pub(crate) struct Leading<'a> {
    syncs: &'a GroupSync,
    led: Option<Led>,
    outcome: Outcome,
    /// The sync that the leader waits for: first an abandoned one, if there is one.
    pub(crate) completion: Option<Completion>,
}

/// A closed group.
struct Led {
    group: Arc<Group>,
    callers: usize,
    began: Instant,
}

impl Leading<'_> {
    /// Closes the group, unless it has records: the size lock is taken before these are written.
    pub(crate) fn close_without_records(&mut self) -> Option<SyncScope> {
        let syncs = self.syncs.lock();
        syncs.open.batch.appender.is_none().then(|| self.close_locked(syncs).1.scope)
    }

    /// Closes the group: callers that come later join the next one.
    pub(crate) fn close(&mut self) -> (Arc<Group>, Batch) {
        let syncs = self.syncs.lock();
        self.close_locked(syncs)
    }

    fn close_locked(&mut self, mut syncs: MutexGuard<'_, Syncs>) -> (Arc<Group>, Batch) {
        let Open { group, callers, batch } = std::mem::take(&mut syncs.open);
        syncs.pace.end_gathering(callers);
        self.led = Some(Led { group: group.clone(), callers, began: Instant::now() });
        (group, batch)
    }

    /// The sync has succeeded.
    pub(crate) fn succeed(&mut self) {
        self.outcome = Outcome::Durable;
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
    /// Ends the leadership, after success, failure or a drop.
    fn drop(&mut self) {
        let mut syncs = self.syncs.lock();
        syncs.leadership = Leadership::None;
        syncs.left_behind = self.completion.take();
        if let Some(led) = &self.led {
            let callers_after = syncs.open.callers;
            syncs.pace.on_end(led.callers + callers_after, led.began.elapsed());
        }
        let next = (syncs.open.callers > 0).then(|| syncs.open.group.clone());
        drop(syncs);
        if let Some(next) = next {
            next.over.notify_one();
        }
        if let Some(led) = self.led.take() {
            let _ = led.group.outcome.set(self.outcome);
            // The list is locked while it notifies, and each thread that wakes up locks it too.
            (1..=led.callers / WOKEN_TOGETHER).for_each(|turn| led.group.over.notify(turn * WOKEN_TOGETHER));
            led.group.over.notify(usize::MAX);
        }
    }
}

impl Default for Syncs {
    fn default() -> Syncs {
        Syncs {
            open: Open::default(),
            leadership: Leadership::None,
            gathered: 0,
            pace: Pace::default(),
            left_behind: None,
        }
    }
}

impl Default for Open {
    fn default() -> Open {
        let batch = Batch { scope: SyncScope::Data, records: Vec::new(), appender: None };
        Open { group: Arc::default(), callers: 0, batch }
    }
}

/// A longer record gains nothing from sharing a system call, and copying it costs as much as that call.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// The records of one group: what a device writes in about the time of a sync.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Few enough that a thread woken first does not wait for the lock of the list until the last is woken.
const WOKEN_TOGETHER: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headwater_io::SyncScope;

    use super::{GroupSync, Leading, Member, Part};
    use crate::inode::sync_pace::RESTS_MAX;

    fn lead<'a>(member: &mut Member<'a>) -> Leading<'a> {
        let Part::Lead(mut leading) = member.part() else { panic!("it leads") };
        leading.close();
        leading
    }

    fn is_waiting(member: &mut Member<'_>) -> bool {
        matches!(member.part(), Part::Wait)
    }

    fn sync_slowly(syncs: &GroupSync) {
        syncs.lock().pace.sync_time = Duration::from_secs(3600);
    }

    /// Goal: a sync serves callers that joined before it began, and no others. Method: one caller before, one during the sync.
    #[test]
    fn a_sync_serves_earlier_callers() {
        let syncs = GroupSync::default();
        let (mut first, mut second) = (syncs.join(SyncScope::Data), syncs.join(SyncScope::All));
        let Part::Lead(mut leading) = first.part() else { panic!("it leads") };
        assert_eq!(leading.close_without_records(), Some(SyncScope::All));
        let mut late = syncs.join(SyncScope::Data);
        assert!(is_waiting(&mut second) && is_waiting(&mut late));
        leading.succeed();
        drop(leading);
        assert!(matches!(first.part(), Part::Done) && matches!(second.part(), Part::Done));
        assert!(!matches!(late.part(), Part::Done));
    }

    /// Goal: a leader that is dropped leaves no one behind. Method: before and after the group is closed.
    #[test]
    fn another_leads_after_a_drop() {
        let syncs = GroupSync::default();
        let (mut first, mut second) = (syncs.join(SyncScope::Data), syncs.join(SyncScope::Data));
        drop(first.part());
        let leading = lead(&mut second);
        assert!(is_waiting(&mut first));
        drop(leading);
        assert!(matches!(first.part(), Part::Again) && matches!(second.part(), Part::Again));
        let mut again = syncs.join(SyncScope::Data);
        drop(first);
        again.end_gathering();
        sync_slowly(&syncs);
        while !matches!(again.part(), Part::Lead(_)) {
            again.end_gathering();
        }
    }

    /// Goal: a group waits for as many callers as the last sync left behind; the last of them leads; without them, one of those
    /// there. Method: two groups of three, the second one complete, the third not; the caller that gathers is dropped.
    #[test]
    fn a_group_gathers_the_callers_of_the_last() {
        let syncs = GroupSync::default();
        let mut members = [0; 3].map(|_| syncs.join(SyncScope::Data));
        lead(&mut members[0]).succeed();
        sync_slowly(&syncs);
        let (mut first, mut second) = (syncs.join(SyncScope::Data), syncs.join(SyncScope::Data));
        assert!(matches!(first.part(), Part::Gather(_, 2)) && is_waiting(&mut second));
        let mut third = syncs.join(SyncScope::Data);
        lead(&mut third).succeed();
        assert!(matches!(first.part(), Part::Done) && matches!(second.part(), Part::Done));
        sync_slowly(&syncs);
        let (mut first, mut second) = (syncs.join(SyncScope::Data), syncs.join(SyncScope::Data));
        assert!(matches!(first.part(), Part::Gather(..)) && is_waiting(&mut second));
        drop(first);
        assert!(matches!(second.part(), Part::Gather(..)));
        second.end_gathering();
        lead(&mut second).succeed();
    }

    /// Goal: where callers do not come back, groups soon stop waiting for them, and try again now and then. Method: groups of two
    /// of which one caller comes alone each time.
    #[test]
    fn groups_that_wait_in_vain_wait_rarely() {
        let syncs = GroupSync::default();
        let mut waits = 0;
        for _ in 0..10 * RESTS_MAX {
            // One more than the callers there are.
            if syncs.lock().pace.expected > 0 {
                syncs.lock().pace.expected = 5;
            }
            let mut member = syncs.join(SyncScope::Data);
            sync_slowly(&syncs);
            if matches!(member.part(), Part::Gather(..)) {
                waits += 1;
                member.end_gathering();
            }
            lead(&mut member).succeed();
        }
        assert!((10..30).contains(&waits), "{waits} waits");
    }
}
