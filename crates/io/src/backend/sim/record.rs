//! Record: a log of the changes that a simulated device made to files, from which a test derives what a crash may leave.
//!
//! The beginning and the end of each operation take the next number. A sync makes durable the operations that ended before it
//! began; one that was under way then may or may not survive.
//!
//! Owns: the entries and their numbers.
//! Does not own: the operations (sim), what may survive a crash (the testkit).

use std::collections::BTreeMap;

use headwater_core::units::ByteRange;

use crate::file::FileKey;
use crate::system::sys::SyncScope;

/// What happened to a file. `began` and `ended` are moments, numbered from 0 in the order in which they came; what has not
/// ended has no end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceEvent {
    /// Bytes were written, or were to be written.
    Write {
        /// Which file.
        file: FileKey,
        /// Where the first byte lies.
        offset_bytes: u64,
        /// What.
        bytes: Vec<u8>,
        /// From when on the device had it.
        began: u64,
        /// When it had all of it.
        ended: Option<u64>,
    },
    /// What was written before was to be kept.
    Sync {
        /// Which file.
        file: FileKey,
        /// How much of it.
        scope: SyncScope,
        /// What ended before this is kept, if it succeeded.
        began: u64,
        /// When it answered.
        ended: Option<u64>,
        /// Its answer, once it has ended.
        succeeded: bool,
    },
    /// The file was truncated or extended.
    SetLen {
        /// Which file.
        file: FileKey,
        /// Its new length.
        length_bytes: u64,
        /// When this began.
        began: u64,
        /// When it was done.
        ended: Option<u64>,
    },
    /// Space was set aside, and the file extended to the end of it.
    Allocate {
        /// Which file.
        file: FileKey,
        /// For which bytes.
        range: ByteRange,
        /// When this began.
        began: u64,
        /// When it was done.
        ended: Option<u64>,
    },
}

/// A log that is being written.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    id: u64,
    next_moment: u64,
    next_number: u64,
    events: BTreeMap<u64, DeviceEvent>,
}

/// Names an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    recording: u64,
    number: u64,
    began: u64,
}

impl Recording {
    pub(super) fn new(id: u64) -> Recording {
        Recording { id, next_moment: 0, next_number: 0, events: BTreeMap::new() }
    }

    /// Whether the entry is one of this log, and not of an earlier one.
    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.id == ticket.recording
    }

    pub(super) fn begin(&mut self, event: DeviceEvent) -> Ticket {
        let began = self.tick();
        self.insert(event, began)
    }

    /// The rest of what another entry began.
    pub(super) fn go_on(&mut self, event: DeviceEvent, earlier: Ticket) -> Ticket {
        self.insert(event, earlier.began)
    }

    /// Where it was written in the end, and what.
    pub(super) fn end_append(&mut self, ticket: Ticket, placed_at: u64, written: Vec<u8>) {
        if let Some(DeviceEvent::Write { offset_bytes, .. }) = self.events.get_mut(&ticket.number) {
            *offset_bytes = placed_at;
        }
        self.end_write(ticket, written);
    }

    /// What was written in the end, which may be less.
    pub(super) fn end_write(&mut self, ticket: Ticket, written: Vec<u8>) {
        if let Some(DeviceEvent::Write { bytes, .. }) = self.events.get_mut(&ticket.number) {
            *bytes = written;
        }
        self.end(ticket);
    }

    pub(super) fn end_sync(&mut self, ticket: Ticket, result: &std::io::Result<()>) {
        if let Some(DeviceEvent::Sync { succeeded, .. }) = self.events.get_mut(&ticket.number) {
            *succeeded = result.is_ok();
        }
        self.end(ticket);
    }

    pub(super) fn end(&mut self, ticket: Ticket) {
        let now = self.tick();
        if let Some(event) = self.events.get_mut(&ticket.number) {
            *event.times_mut().1 = Some(now);
        }
    }

    /// If it has not ended: it failed and changed nothing.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        if self.events.get(&ticket.number).is_some_and(|event| event.ended().is_none()) {
            self.events.remove(&ticket.number);
        }
    }

    pub(super) fn next_moment(&self) -> u64 {
        self.next_moment
    }

    pub(super) fn into_events(self) -> Vec<DeviceEvent> {
        self.events.into_values().collect()
    }

    fn insert(&mut self, mut event: DeviceEvent, began: u64) -> Ticket {
        *event.times_mut().0 = began;
        let number = self.next_number;
        self.next_number += 1;
        self.events.insert(number, event);
        Ticket { recording: self.id, number, began }
    }

    fn tick(&mut self) -> u64 {
        self.next_moment += 1;
        self.next_moment - 1
    }
}

impl DeviceEvent {
    /// Which file.
    pub fn file(&self) -> FileKey {
        match self {
            DeviceEvent::Write { file, .. }
            | DeviceEvent::Sync { file, .. }
            | DeviceEvent::SetLen { file, .. }
            | DeviceEvent::Allocate { file, .. } => *file,
        }
    }

    /// When it began.
    pub fn began(&self) -> u64 {
        match self {
            DeviceEvent::Write { began, .. }
            | DeviceEvent::Sync { began, .. }
            | DeviceEvent::SetLen { began, .. }
            | DeviceEvent::Allocate { began, .. } => *began,
        }
    }

    /// When it ended, if it has.
    pub fn ended(&self) -> Option<u64> {
        match self {
            DeviceEvent::Write { ended, .. }
            | DeviceEvent::Sync { ended, .. }
            | DeviceEvent::SetLen { ended, .. }
            | DeviceEvent::Allocate { ended, .. } => *ended,
        }
    }

    fn times_mut(&mut self) -> (&mut u64, &mut Option<u64>) {
        match self {
            DeviceEvent::Write { began, ended, .. }
            | DeviceEvent::Sync { began, ended, .. }
            | DeviceEvent::SetLen { began, ended, .. }
            | DeviceEvent::Allocate { began, ended, .. } => (began, ended),
        }
    }
}
