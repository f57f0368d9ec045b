//! Sync pace: when a group of syncs waits for more callers, and how long.
//!
//! Owns: how many callers are expected back after a sync, what waiting for them has brought.
//! Does not own: the group (group_sync).

use std::time::Duration;

/// When to wait for callers to come back.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Callers that the next group waits for.
    pub(super) expected: usize,
    /// How long the last sync took.
    pub(super) sync_time: Duration,
    /// How many groups do not wait, because earlier ones waited in vain.
    rests: u32,
    /// How many groups rested after the last vain wait; twice as many after the next.
    rests_next: u32,
    /// Callers there when the present wait began.
    found: Option<usize>,
}

impl Pace {
    /// A sync of this length has ended; `callers` were in its group and are in the next.
    pub(super) fn on_end(&mut self, callers: usize, sync_time: Duration) {
        self.sync_time = sync_time;
        self.expected = if self.rests > 0 { 0 } else { callers };
        self.rests = self.rests.saturating_sub(1);
    }

    /// A group of `callers` begins to wait for more. Returns how long at most: a longer wait costs these more than a sync of their
    /// own would.
    pub(super) fn begin_gathering(&mut self, callers: usize) -> Duration {
        self.found = Some(callers);
        self.sync_time.min(GATHER_TIME_MAX)
    }

    /// A group of `callers` is closed. If fewer than half of the missing ones came, the next groups do not wait.
    pub(super) fn end_gathering(&mut self, callers: usize) {
        let Some(found) = self.found.take() else { return };
        let missing = self.expected.saturating_sub(found);
        if callers.saturating_sub(found) * 2 >= missing {
            self.rests_next = 0;
            return;
        }
        self.rests_next = (self.rests_next * 2).clamp(1, RESTS_MAX);
        self.rests = self.rests_next;
    }
}

/// On a device with slower syncs, larger groups gain less than callers lose by waiting.
const GATHER_TIME_MAX: Duration = Duration::from_millis(2);

/// While callers do not come back within a sync, one group in this many still tries.
pub(super) const RESTS_MAX: u32 = 256;
