//! Origin: whether a change of a file on its device was this engine's alone.
//!
//! ```text
//!   begin ─► glance (changes until here are those of others) ─► own change on its way ─► end ─► glance
//!                                                                  └─ by this engine alone, or by others as well?
//!   others: an event of another process ─ an event of this process while no own change was on its way
//!           ─ a change counted by another engine of this process ─ no watch: unknown
//! ```
//!
//! A stamp that is taken after an own change never proves that nothing else changed the file in between: the own change has
//! moved the times too. What proves it is the kernel's fanotify ([`ChangeWatch`]), which reports changes with the process that
//! made them, and, for other engines of this process, a count of changes that all engines keep together. Where there is no such
//! watch (a sandbox forbids it, or the file lives on a network), nothing proves it, and what was cached before the own change is
//! read again after it.
//!
//! A glance asks the watch alone. It does not look at the file's times, because a look makes the next write move them (Linux 6.13
//! and later), and then the next sync has the inode to write: overwriting 4 KiB and syncing took 220 us with a look in each
//! round and 145 without, 150 with a glance (ext4). Without a watch, a glance is a look.
//!
//! What no watch reports: a store through a mapping of another process or a write by `io_submit(2)`, if this engine changes the
//! file between two looks at its times; and a write of this process that does not go through an engine, while an own change is on
//! its way. They show when the file changes again.
//!
//! Owns: the stamp of a file, which own changes are on their way, the watch of a file.
//! Does not own: what is dropped (revalidate).
//! Invariants: O1 the glance before an own change happens while none is on its way, the one after when the last has ended.
//! Locks: `seen` across `statx`; those of the length, of what is unwritten and of the cache are taken inside it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use headwater_io::{ChangeWatch, FileKey, FileStamp, FileSystem, OpenFile, Watched, lock};

use crate::base::clock::coarse_nanoseconds;

/// The watch of an engine, once a file is changed; `None` in it where the system has none.
#[derive(Debug, Default)]
pub(crate) struct EngineWatch(OnceLock<Option<ChangeWatch>>);

impl EngineWatch {
    fn get(&self) -> Option<&ChangeWatch> {
        self.0.get_or_init(|| ChangeWatch::new().ok()).as_ref()
    }

    /// Empties the kernel's queue, so that it does not overflow while no file is looked at.
    pub(crate) fn drain(&self) {
        if let Some(watch) = self.running() {
            watch.drain();
        }
    }

    /// The watch, if a file was changed already.
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

/// What the last look saw, and what this engine has changed since.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) stamp: Option<FileStamp>,
    /// Own changes on their way.
    in_flight: usize,
    /// Whether an own change was on its way since the last look at the stamp.
    has_changed: bool,
    /// Whether an own change was on its way since the watch was last asked.
    has_written: bool,
    watched: Option<Watched>,
    /// Whether a handle asked for no watch, or the kernel refused one, since no handle had the file open.
    is_unwatched: bool,
    /// Whether others have changed the file since the last look, or other engines of this process may have.
    is_foreign: bool,
    is_doubtful: bool,
    /// Changes of other processes that the watch had reported.
    foreign_changes: u64,
    /// And those of this process.
    own_changes: u64,
    /// Openings by other processes that the watch had reported, and when the last were found, by the coarse clock.
    foreign_openings: u64,
    opened_nanoseconds: Option<u64>,
    /// Changes that this engine has counted in the ledger.
    own_entries: u64,
    /// What the ledger held beside them.
    other_entries: u64,
}

/// What a look finds out beside the stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Evidence {
    /// Something else than an engine of this process has changed the file.
    Foreign,
    /// Nothing but this engine has changed it.
    OwnAlone,
    /// Nothing tells.
    None,
}

impl Origin {
    pub(super) fn new(key: FileKey, watch: &Arc<EngineWatch>) -> Origin {
        Origin { watch: watch.clone(), ledger: ledger_of(key), seen: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// A handle asked for no watch.
    pub(crate) fn leave_unwatched(&self) {
        let mut seen = self.lock();
        seen.is_unwatched = true;
        // Its mark in the kernel goes with the engine.
        seen.watched = None;
    }

    /// No own change comes any more, until the file is opened again: then the kernel is asked anew. Says what is known of changes
    /// until now; `None` if another process has opened the file meanwhile: a write by it may end after the watch.
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

    /// Whether the kernel tells which changes come from other processes.
    pub(crate) fn is_watched(&self) -> bool {
        self.lock().watched.is_some()
    }

    /// Whether the kernel tells, or would tell, which changes come from other processes.
    pub(crate) fn can_watch(&self, file: &OpenFile) -> bool {
        let is_refused = self.lock().is_unwatched;
        !is_refused && sees_all_writers(file) && self.watch.get().is_some()
    }

    /// Has the kernel report changes from now on, if it can. Says whether this is new.
    pub(super) fn watch(&self, seen: &mut Seen, file: &OpenFile) -> Watching {
        if seen.watched.is_some() || seen.is_unwatched {
            return Watching::AsBefore;
        }
        let watched = match self.watch.get() {
            Some(watch) if sees_all_writers(file) => {
                // What is left from when the file was last watched, the stamp tells as well.
                watch.drain();
                watch.add(file).ok()
            }
            _ => None,
        };
        seen.is_unwatched = watched.is_none();
        seen.foreign_changes = watched.as_ref().map_or(0, Watched::foreign_changes);
        seen.own_changes = watched.as_ref().map_or(0, Watched::own_changes);
        seen.foreign_openings = watched.as_ref().map_or(0, Watched::foreign_openings);
        // An empty file is mostly new.
        let is_empty = file.opened().stamp.length_bytes == 0;
        seen.opened_nanoseconds =
            (!is_empty).then(|| coarse_nanoseconds().wrapping_sub(OPENED_NANOSECONDS - UNKNOWN_NANOSECONDS));
        seen.other_entries = self.ledger.load(Ordering::Acquire).wrapping_sub(seen.own_entries);
        seen.watched = watched;
        Watching::New
    }

    /// Whether another process has changed the file since the evidence was last taken, or has opened it so lately that its first
    /// write may be near, or the watch has only just begun. Without a watch, nothing tells.
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

    /// What is known of changes since the last look.
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
        // Until a look has dealt with it.
        seen.is_foreign |= is_foreign || is_beside;
        seen.is_doubtful |= !is_alone;
        match (seen.is_foreign, seen.is_doubtful) {
            (true, _) => Evidence::Foreign,
            (false, false) => Evidence::OwnAlone,
            (false, true) => Evidence::None,
        }
    }

    /// Whether no engine of this process has ever changed the file, as far as the ledger tells.
    pub(super) fn is_untouched(&self) -> bool {
        self.ledger.load(Ordering::Acquire) == 0
    }

    /// Own changes begin: all engines of this process can tell.
    pub(super) fn begin(&self, seen: &mut Seen, changes: usize) {
        seen.in_flight += changes;
        self.enter(seen);
    }

    /// Own changes have ended. Says whether they were the last on their way.
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

/// Whether a watch was there already, or will not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watching {
    New,
    AsBefore,
}

/// Whether own changes are still on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remaining {
    Some,
    None,
}

impl Seen {
    /// Whether an own change may have moved the stamp since the last look. A look that happens while none is on its way ends
    /// that.
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

    pub(super) fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// Own changes that are on their way may have come before or after those of others: the end of the last is followed by a
    /// look, which says how long the file is.
    pub(super) fn look_again_after_changes(&mut self) {
        self.is_doubtful |= self.in_flight > 0;
    }
}

/// Whether all that changes a file does it through this kernel.
fn sees_all_writers(file: &OpenFile) -> bool {
    matches!(file.file_system(), FileSystem::Local | FileSystem::Overlay)
}

/// Where the engines of this process count their changes of a file. Files that share a place make each other look less sure,
/// nothing else.
fn ledger_of(key: FileKey) -> &'static AtomicU64 {
    static LEDGER: [AtomicU64; LEDGER_PLACES] = [const { AtomicU64::new(0) }; LEDGER_PLACES];
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    &LEDGER[hasher.finish() as usize % LEDGER_PLACES]
}

/// Programs that write what they open mostly begin within that.
const OPENED_NANOSECONDS: u64 = 1_000_000_000;

/// When a watch begins, another process may have had the file open before, and be writing: that shows within some moments.
const UNKNOWN_NANOSECONDS: u64 = 20_000_000;

/// 32 KiB: of a hundred files that are written at once, two share a place.
const LEDGER_PLACES: usize = 4096;
