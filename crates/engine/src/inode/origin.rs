//! Origin: whether a change of a file on its device was this engine's alone.
//!
//! ```text
//!   begin ─► watch check (changes so far are those of others) ─► own change in flight ─► end ─► watch check
//!                                                                   └─ by this engine alone, or by others as well?
//!   others: an event of another process ─ an event of this process while no own change was in flight
//!           ─ a change counted by another engine of this process ─ no watch: unknown
//! ```
//!
//! A stamp taken after an own change cannot prove that nothing else changed the file in between: the own change has moved the
//! times too. Proof comes from the kernel's fanotify ([`ChangeWatch`]), which reports changes with the process that made them,
//! and, for other engines of this process, from a ledger of changes that all engines share. Without a watch (a sandbox forbids
//! it, or the file lies on a network) there is no proof, and pages that were clean before the own change are read again after it.
//!
//! A *watch check* (`check_watch`) reads the watch alone; a *check* (`check`) also calls `statx`. A check makes the next write move the
//! file's times (Linux 6.13 and later), and then the next sync has to write the inode: overwriting 4 KiB and syncing took 220 us
//! with a check in each round, 145 without, and 150 with a watch check (ext4). Without a watch, a watch check is a check.
//!
//! The watch does not report: a store through a mapping of another process or a write by `io_submit(2)`, if this engine changes
//! the file between two checks; and a write of this process that bypasses the engines while an own change is in flight. They show
//! when the file changes again.
//!
//! Owns: the stamp of a file, which own changes are in flight, the watch of a file.
//! Does not own: which pages are dropped (revalidate).
//! Invariants: O1 the watch check before an own change happens while none is in flight, the one after when the last has ended.
//! Locks: `seen` across `statx`; those of the length, of dirty pages and of the cache are taken inside it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use headwater_io::{ChangeWatch, FileKey, FileStamp, FileSystem, OpenFile, Watched, lock, try_lock};

use crate::base::clock::coarse_nanoseconds;

/// The watch of an engine, created at the first change of a file; `None` inside where the system grants none.
#[derive(Debug, Default)]
pub(crate) struct EngineWatch(OnceLock<Option<ChangeWatch>>);

impl EngineWatch {
    fn get(&self) -> Option<&ChangeWatch> {
        self.0.get_or_init(|| ChangeWatch::new().ok()).as_ref()
    }

    /// Empties the kernel's queue, so that it does not overflow while no file is checked.
    pub(crate) fn drain(&self) {
        if let Some(watch) = self.running() {
            watch.drain();
        }
    }

    /// The watch, if it exists already.
    fn running(&self) -> Option<&ChangeWatch> {
        self.0.get().and_then(Option::as_ref)
    }
}

/// What is known of the changes of one file.
#[derive(Debug)]
pub(crate) struct Origin {
    watch: Arc<EngineWatch>,
    ledger: &'static AtomicU64,
    seen: Mutex<Seen>,
}

/// The result of the last check, and this engine's changes since.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) stamp: Option<FileStamp>,
    /// Own changes in flight.
    in_flight: usize,
    /// Whether an own change was in flight since the last check of the stamp.
    has_changed: bool,
    /// Whether an own change was in flight since the last watch check.
    has_written: bool,
    watched: Option<Watched>,
    /// Whether a handle opted out of the watch, or the kernel refused one, since the file was last without a handle.
    is_unwatched: bool,
    /// Whether others have changed the file since the last check, or (`is_doubtful`) other engines of this process may have.
    is_foreign: bool,
    is_doubtful: bool,
    /// Changes by other processes that the watch had reported.
    foreign_changes: u64,
    /// Changes by this process that the watch had reported.
    own_changes: u64,
    /// Openings by other processes that the watch had reported, and when the last were found, by the coarse clock.
    foreign_openings: u64,
    opened_nanoseconds: Option<u64>,
    /// Changes that this engine has counted in the ledger.
    own_entries: u64,
    /// The ledger's other entries.
    other_entries: u64,
}

/// Evidence of changes beside the stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Evidence {
    /// Something other than an engine of this process has changed the file.
    Foreign,
    /// Only this engine has changed it.
    OwnAlone,
    /// There is no proof either way.
    None,
}

impl Origin {
    pub(super) fn new(key: FileKey, watch: &Arc<EngineWatch>) -> Origin {
        Origin { watch: watch.clone(), ledger: ledger_of(key), seen: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// `None` while another thread checks the file.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Seen>> {
        try_lock(&self.seen)
    }

    pub(super) fn is_locked(&self) -> bool {
        try_lock(&self.seen).is_none()
    }

    /// Ends the watch because a handle opted out of it.
    pub(crate) fn leave_unwatched(&self) {
        let mut seen = self.lock();
        seen.is_unwatched = true;
        // Its mark in the kernel goes with the engine.
        seen.watched = None;
    }

    /// Ends the watch: there will be no own change until the file is opened again, which starts a new one. Returns the evidence
    /// up to now; `None` if another process has opened the file meanwhile, because its write may end after the watch.
    pub(super) fn end_watch(&self, seen: &mut Seen, file: &OpenFile) -> Option<Evidence> {
        if let (Some(watched), Some(watch)) = (&seen.watched, self.watch.running()) {
            // A mark that stays costs memory, and nothing else.
            let _ = watch.remove(watched, file);
        }
        let evidence = self.evidence(seen);
        let was_opened = seen.note_openings().is_some();
        (seen.watched, seen.is_unwatched, seen.is_foreign, seen.is_doubtful) = (None, false, false, false);
        (!was_opened || evidence == Evidence::Foreign).then_some(evidence)
    }

    /// Whether the kernel reports which changes come from other processes.
    pub(crate) fn is_watched(&self) -> bool {
        self.lock().watched.is_some()
    }

    /// Whether the kernel reports, or would report, which changes come from other processes.
    pub(crate) fn can_watch(&self, file: &OpenFile) -> bool {
        let is_refused = self.lock().is_unwatched;
        !is_refused && sees_all_writers(file) && self.watch.get().is_some()
    }

    /// Starts the watch, if the kernel grants one. Returns whether it is new.
    pub(super) fn watch(&self, seen: &mut Seen, file: &OpenFile) -> Watching {
        if seen.watched.is_some() || seen.is_unwatched {
            return Watching::AsBefore;
        }
        let watched = match self.watch.get() {
            Some(watch) if sees_all_writers(file) => {
                // Events left over from an earlier watch are discarded: the stamp shows those changes as well.
                watch.drain();
                watch.add(file).ok()
            }
            _ => None,
        };
        seen.is_unwatched = watched.is_none();
        seen.foreign_changes = watched.as_ref().map_or(0, Watched::foreign_changes);
        seen.own_changes = watched.as_ref().map_or(0, Watched::own_changes);
        seen.foreign_openings = watched.as_ref().map_or(0, Watched::foreign_openings);
        // An empty file is mostly new, with no other process writing to it.
        let is_empty = file.opened().stamp.length_bytes == 0;
        seen.opened_nanoseconds =
            (!is_empty).then(|| coarse_nanoseconds().wrapping_sub(OPENED_NANOSECONDS - UNKNOWN_NANOSECONDS));
        seen.other_entries = self.ledger.load(Ordering::Acquire).wrapping_sub(seen.own_entries);
        seen.watched = watched;
        Watching::New
    }

    /// Whether another process has changed the file since the evidence was last taken, or has opened it so recently that its
    /// first write may be near, or the watch has only just begun. Always false without a watch.
    pub(crate) fn has_company(&self) -> bool {
        let mut seen = self.lock();
        if !seen.is_watched() {
            return false;
        }
        if let Some(watch) = self.watch.running() {
            watch.drain();
        }
        let opened = seen.note_openings();
        seen.watched.as_ref().is_some_and(|watched| watched.foreign_changes() != seen.foreign_changes)
            || opened.is_some_and(|opened| coarse_nanoseconds().wrapping_sub(opened) < OPENED_NANOSECONDS)
    }

    /// The evidence of changes since the last check.
    pub(super) fn evidence(&self, seen: &mut Seen) -> Evidence {
        let Some(watched) = &seen.watched else { return Evidence::None };
        if let Some(watch) = self.watch.running() {
            watch.drain();
        }
        let (foreign, own) = (watched.foreign_changes(), watched.own_changes());
        let others = self.ledger.load(Ordering::Acquire).wrapping_sub(seen.own_entries);
        let has_written = std::mem::replace(&mut seen.has_written, seen.in_flight > 0);
        let is_foreign = std::mem::replace(&mut seen.foreign_changes, foreign) != foreign;
        let is_beside = std::mem::replace(&mut seen.own_changes, own) != own && !has_written;
        let is_alone = std::mem::replace(&mut seen.other_entries, others) == others;
        // Kept until a check has dealt with it.
        seen.is_foreign |= is_foreign || is_beside;
        seen.is_doubtful |= !is_alone;
        match (seen.is_foreign, seen.is_doubtful) {
            (true, _) => Evidence::Foreign,
            (false, false) => Evidence::OwnAlone,
            (false, true) => Evidence::None,
        }
    }

    /// Whether no engine of this process has ever changed the file, as far as the ledger shows.
    pub(super) fn is_untouched(&self) -> bool {
        self.ledger.load(Ordering::Acquire) == 0
    }

    /// Begins own changes, visible to all engines of this process.
    pub(super) fn begin(&self, seen: &mut Seen, changes: usize) {
        seen.in_flight += changes;
        self.enter(seen);
    }

    /// Ends own changes. Returns whether others are still in flight.
    pub(super) fn end(&self, seen: &mut Seen, changes: usize) -> Remaining {
        seen.in_flight = seen.in_flight.checked_sub(changes).expect("what ends has begun");
        self.enter(seen);
        if seen.in_flight == 0 { Remaining::None } else { Remaining::Some }
    }

    fn enter(&self, seen: &mut Seen) {
        (seen.has_changed, seen.has_written) = (true, true);
        seen.own_entries = seen.own_entries.wrapping_add(1);
        self.ledger.fetch_add(1, Ordering::AcqRel);
    }
}

/// `New` if the call started the watch; `AsBefore` if it was running, or is not available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watching {
    New,
    AsBefore,
}

/// Whether own changes are still in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remaining {
    Some,
    None,
}

impl Seen {
    /// Whether an own change may have moved the stamp since the last check. A check while none is in flight resets this.
    pub(super) fn take_own_changes(&mut self) -> bool {
        (self.is_foreign, self.is_doubtful) = (false, false);
        let has_changed = self.has_changed;
        self.has_changed = self.in_flight > 0;
        has_changed
    }

    /// When another process was last found to have opened the file, or may have.
    fn note_openings(&mut self) -> Option<u64> {
        let openings = self.watched.as_ref()?.foreign_openings();
        if std::mem::replace(&mut self.foreign_openings, openings) != openings {
            self.opened_nanoseconds = Some(coarse_nanoseconds());
        }
        self.opened_nanoseconds
    }

    pub(super) fn is_changing(&self) -> bool {
        self.in_flight > 0
    }

    /// Grows with each own change that begins or ends.
    pub(super) fn own_entries(&self) -> u64 {
        self.own_entries
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// Notes that own changes in flight may have come before or after those of others: the end of the last one is followed by a
    /// check, which determines the length of the file.
    pub(super) fn look_again_after_changes(&mut self) {
        self.is_doubtful |= self.in_flight > 0;
    }
}

/// Whether all changes of the file pass through this kernel.
fn sees_all_writers(file: &OpenFile) -> bool {
    matches!(file.file_system(), FileSystem::Local | FileSystem::Overlay)
}

/// A change by a handle without an inode: the engines of this process that know the file learn of it.
pub(crate) struct ChangeAround(&'static AtomicU64);

impl ChangeAround {
    /// From now until this is dropped.
    pub(crate) fn begin(key: FileKey) -> ChangeAround {
        let change = ChangeAround(ledger_of(key));
        change.count();
        change
    }

    fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for ChangeAround {
    fn drop(&mut self) {
        self.count();
    }
}

/// The ledger entry in which the engines of this process count their changes of a file. Files that share an entry only cost each
/// other proof.
fn ledger_of(key: FileKey) -> &'static AtomicU64 {
    static LEDGER: [AtomicU64; LEDGER_PLACES] = [const { AtomicU64::new(0) }; LEDGER_PLACES];
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    &LEDGER[hasher.finish() as usize % LEDGER_PLACES]
}

/// Programs that write to a file they open mostly begin within this time.
const OPENED_NANOSECONDS: u64 = 1_000_000_000;

/// When a watch begins, another process may already have the file open and be writing: its writes show within this time.
const UNKNOWN_NANOSECONDS: u64 = 20_000_000;

/// 32 KiB: of a hundred files written at the same time, two share an entry.
const LEDGER_PLACES: usize = 4096;
