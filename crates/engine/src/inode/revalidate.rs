//! Revalidate: whether cached pages of a file are still valid, and what happens if not.
//!
//! ```text
//!   read ─► due? ─► check: watch events, then statx ─┬─ unchanged ────────────────────────► continue
//!                                                   ├─ moved, by own changes alone ──────► new stamp, pages stay
//!                                                   └─ moved otherwise, or no proof ─────► pages dropped
//!   dropped ─► dirty in part? ─► those bytes are written, then these pages leave as well   (reconcile)
//!   own change on the device ─► watch check before it and after it; without a watch, a check
//! ```
//!
//! Cached bytes are valid as long as nothing else writes to the file. Other writers show in its stamp (length, times of
//! modification and of change). The stamp is checked when the file is opened, at most every [`REVALIDATE_INTERVAL`] while the
//! file is read or written, and whenever a read reaches the known end. So writes of another process are visible within that
//! interval, and its appends at once. The kernel moves the times when a write begins, so pages read within 30 s of a change are
//! dropped once more after these, unless the file is watched. Linux 6.13 and later distinguish two writes however close; before,
//! a write within the same tick of the clock (4 ms) as the preceding check goes unnoticed, so a stamp younger than a tick is not
//! trusted. Writes through `mmap` move no stamp before their writeback; block devices have none.
//!
//! From the first change by others on, the file is *contested*: this engine writes to it through the kernel's page cache, as
//! others do, because the kernel marks a file as failed when direct and buffered writes meet in one page; and a page that is
//! dirty in part is written at once and then leaves, because its other bytes belong to the other writers.
//!
//! Owns: when a file is checked, what is dropped then, its length as changed by others.
//! Does not own: the stamp and its origin (origin).
//! Invariants: I10 no page outlives a detected change of length; R1 no page that was clean before a change by others was detected
//! is read after that.
//! Locks: `seen` of the origin; inside it the length on the device, then those of dirty pages, then the cache's.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageIndex, PageRange};
use headwater_io::{Dropped, FileKind, FileStamp, OpenFile, Opened, StampTrust};

use super::origin::{Evidence, Remaining, Seen, Watching};
use super::{ALL_PAGES, Inode};
use crate::base::clock::{REVALIDATE_INTERVAL, coarse_nanoseconds};
use crate::base::events;
use crate::inode::dirty::{ContentVersion, Dirty, State};

/// Results of a check for listeners and subscribers, reported when no lock is held.
#[derive(Debug, Default)]
struct Report {
    dropped: Vec<Dropped>,
    /// The length, if others have changed the file, or may have.
    changed_bytes: Option<u64>,
    /// Pages that were dirty or in flight when others changed the file.
    conflict_pages: Option<u64>,
}

/// Which attributes of a file a check looks at.
#[derive(Clone, Copy, Debug)]
enum Attributes<'a> {
    /// Those that the file has now. Blocks until a server has answered, if there is one.
    Now(&'a OpenFile),
    /// Those of an answer to a question that was asked at this moment, and since which this engine has changed nothing.
    Answered(&'a OpenFile, FileStamp, u64),
}

impl Attributes<'_> {
    fn file(&self) -> &OpenFile {
        match self {
            Attributes::Now(file) | Attributes::Answered(file, ..) => file,
        }
    }

    fn stamp(&self) -> io::Result<FileStamp> {
        match self {
            Attributes::Now(file) => Ok(file.identity()?.1),
            Attributes::Answered(_, stamp, _) => Ok(*stamp),
        }
    }
}

/// What an answer of a server is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    asked_nanoseconds: u64,
    /// Own changes begun and ended, and the version of the contents; `None` if an own change was in flight.
    unchanged: Option<(u64, ContentVersion)>,
}

/// The verdict of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// Nothing has changed, or only through this engine.
    No,
    /// No proof: own changes may be the only cause that the times have moved, or the times are too recent.
    Unproven,
    /// Others have changed the file.
    Foreign,
}

/// The page in which a file of this length ends, if it ends within one: behind the end the page has zeros.
fn end_page(length_bytes: u64) -> PageRange {
    let end = PageIndex::new(length_bytes.div_ceil(PAGE_SIZE_BYTES));
    PageRange::new(PageIndex::new(length_bytes / PAGE_SIZE_BYTES), end)
}

impl Inode {
    /// Whether the file is not leased, and the last check is older than `interval`.
    #[inline]
    pub(super) fn is_due(&self, interval: Duration) -> bool {
        if self.leasing.is_trusted() {
            return false;
        }
        let checked = self.checked_nanoseconds.load(Ordering::Acquire);
        coarse_nanoseconds().wrapping_sub(checked) >= interval.as_nanos() as u64
    }

    /// Checks the file if the last check is older than `interval`.
    #[inline]
    pub(crate) fn revalidate(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        if self.is_due(interval) { self.check_if_due(file, interval) } else { Ok(()) }
    }

    /// Whether a task had better ask the server now, so that other tasks go on meanwhile; one of them does.
    pub(crate) fn is_to_be_asked(&self, interval: Duration) -> bool {
        if !self.is_due(interval / 2) {
            return false;
        }
        let (now, asked) = (coarse_nanoseconds(), self.asked_nanoseconds.load(Ordering::Relaxed));
        let is_asked = now.wrapping_sub(asked) < interval.as_nanos() as u64 / 2;
        let claim =
            || self.asked_nanoseconds.compare_exchange(asked, now, Ordering::Relaxed, Ordering::Relaxed);
        self.is_due(interval) || !is_asked && claim().is_ok()
    }

    /// A question to the server begins.
    pub(crate) fn begin_question(&self) -> Question {
        let asked_nanoseconds = coarse_nanoseconds();
        let seen = self.origin.try_lock().filter(|seen| !seen.is_changing());
        Question { asked_nanoseconds, unchanged: seen.map(|seen| (seen.own_entries(), self.dirty.version())) }
    }

    /// As [`Inode::refresh`], with the server's answer. Blocks until the server has answered once more only if the answer may be older than
    /// a change by this engine, or is none.
    pub(crate) fn refresh_answered(
        &self,
        file: &OpenFile,
        interval: Duration,
        Question { asked_nanoseconds, unchanged }: Question,
        answer: Option<&headwater_io::Attributes>,
    ) -> io::Result<()> {
        if self.leasing.is_trusted() {
            return Ok(());
        }
        let mut seen = self.origin.lock();
        if self.checked_nanoseconds.load(Ordering::Acquire) > asked_nanoseconds {
            // By a check that began after the question.
            return Ok(());
        }
        let is_unchanged = |(own_entries, version): (u64, ContentVersion)| {
            own_entries == seen.own_entries() && !seen.is_changing() && version == self.dirty.version()
        };
        let attributes = match answer.filter(|_| unchanged.is_some_and(is_unchanged)) {
            Some(answer) => {
                let passed = coarse_nanoseconds().wrapping_sub(asked_nanoseconds);
                let (length_bytes, times) = (answer.length_bytes, [answer.modified, answer.changed]);
                let stamp = FileStamp::of_answer(length_bytes, times, Duration::from_nanos(passed));
                Attributes::Answered(file, stamp, asked_nanoseconds)
            }
            None => Attributes::Now(file),
        };
        let report = self.check_locked(&mut seen, attributes, trust_for(interval))?;
        drop(seen);
        self.report(report);
        Ok(())
    }

    /// Whether another thread looks at the file's times, or at the length on the device, or changes that: it may wait for the device.
    pub(crate) fn is_being_checked(&self) -> bool {
        self.origin.is_locked() || self.dirty.is_length_changing()
    }

    /// Checks the file now, unless it is leased.
    pub(crate) fn refresh(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        if self.leasing.is_trusted() {
            Ok(())
        } else {
            self.check(Attributes::Now(file), trust_for(interval))
        }
    }

    /// As [`Inode::refresh`] for a file that was just opened: the stamp taken then suffices, unless it shows a change.
    pub(crate) fn refresh_opened(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        let opened = file.opened();
        if self.leasing.is_trusted() {
            return Ok(());
        }
        let mut seen = self.origin.lock();
        let is_as_known = match seen.stamp {
            Some(_) => self.is_unchanged(&mut seen, &opened.stamp, interval),
            // The stamp of the opening may be older than a change by an engine that has forgotten the file since.
            None => file.kind() == FileKind::Regular && self.origin.is_untouched(),
        };
        if !is_as_known {
            drop(seen);
            return self.check(Attributes::Now(file), trust_for(interval));
        }
        if seen.stamp.replace(opened.stamp).is_none() {
            // No engine has changed the file yet.
            *self.dirty.device_length() = opened.stamp.length_bytes;
            self.length_bytes.store(opened.stamp.length_bytes, Ordering::Release);
        }
        self.checked_nanoseconds.fetch_max(opened.looked_at.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the cached pages match the file as it was just opened, with nothing dirty.
    pub(crate) fn is_as_seen(&self, opened: &Opened) -> bool {
        let mut seen = self.origin.lock();
        !self.dirty.may_lack()
            && self.length_bytes() == opened.stamp.length_bytes
            && self.is_unchanged(&mut seen, &opened.stamp, REVALIDATE_INTERVAL)
    }

    /// Whether a stamp taken just now proves that the file is as at the last check.
    fn is_unchanged(&self, seen: &mut Seen, stamp: &FileStamp, interval: Duration) -> bool {
        let is_same = |known: &FileStamp| known.proves_unchanged(stamp, trust_for(interval));
        seen.stamp.as_ref().is_some_and(is_same)
            && !seen.is_changing()
            && self.origin.evidence(seen) != Evidence::Foreign
    }

    /// Checks for changes by others: the watch alone, where there is one.
    pub(crate) fn check_watch(&self, file: &OpenFile) -> io::Result<()> {
        if self.leasing.is_trusted() {
            return Ok(());
        }
        let mut seen = self.origin.lock();
        let report = self.check_watch_locked(&mut seen, file)?;
        drop(seen);
        self.report(report);
        Ok(())
    }

    fn check_watch_locked(&self, seen: &mut Seen, file: &OpenFile) -> io::Result<Report> {
        if !seen.is_watched() {
            return self.check_locked(seen, Attributes::Now(file), StampTrust::Settling);
        }
        match self.origin.evidence(seen) {
            Evidence::OwnAlone => Ok(Report::default()),
            evidence => self.check_with(seen, Attributes::Now(file), StampTrust::Settling, evidence),
        }
    }

    /// Waits for a check that is under way, and then need not make another.
    #[cold]
    fn check_if_due(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        let mut seen = self.origin.lock();
        if !self.is_due(interval) {
            return Ok(());
        }
        let report = self.check_locked(&mut seen, Attributes::Now(file), trust_for(interval))?;
        drop(seen);
        self.report(report);
        Ok(())
    }

    #[cold]
    fn check(&self, attributes: Attributes<'_>, trust: StampTrust) -> io::Result<()> {
        let mut seen = self.origin.lock();
        let report = self.check_locked(&mut seen, attributes, trust)?;
        drop(seen);
        self.report(report);
        Ok(())
    }

    fn check_locked(
        &self,
        seen: &mut Seen,
        attributes: Attributes<'_>,
        trust: StampTrust,
    ) -> io::Result<Report> {
        let evidence = self.origin.evidence(seen);
        self.check_with(seen, attributes, trust, evidence)
    }

    /// Returns the pages that left; the caller reports them to listeners. The lock is held across `statx`, so that of two
    /// concurrent checks the one with the older result does not take effect last. The next check finds a change by others after
    /// the evidence.
    fn check_with(
        &self,
        seen: &mut Seen,
        attributes: Attributes<'_>,
        trust: StampTrust,
        evidence: Evidence,
    ) -> io::Result<Report> {
        // Before the `statx`, so that a later change does not count as checked.
        let looked = match attributes {
            Attributes::Now(_) => coarse_nanoseconds(),
            Attributes::Answered(.., looked) => looked,
        };
        let (mut now, version) = self.take_stamp(attributes)?;
        if evidence == Evidence::OwnAlone {
            // A write of others in progress shows by its event when it ends.
            now = now.as_old();
        }
        let report = self.judge(seen, attributes, (now, version), trust, evidence);
        // Once it has taken effect: until then, readers wait for it. Without a stamp, the length was not to be had.
        if seen.stamp.is_some() {
            self.checked_nanoseconds.fetch_max(looked, Ordering::Release);
        }
        Ok(report)
    }

    /// Reads the file's times and length, and the version of the contents before that.
    fn take_stamp(&self, attributes: Attributes<'_>) -> io::Result<(FileStamp, ContentVersion)> {
        let version = self.dirty.version();
        let mut device_length = self.dirty.device_length();
        let now = attributes.stamp()?;
        *device_length = now.length_bytes;
        Ok((now, version))
    }

    /// Combines a stamp with the evidence, and applies the result.
    fn judge(
        &self,
        seen: &mut Seen,
        attributes: Attributes<'_>,
        (now, version): (FileStamp, ContentVersion),
        trust: StampTrust,
        evidence: Evidence,
    ) -> Report {
        let has_moved = seen.stamp.as_ref().is_some_and(|known| !known.is_same(&now));
        let is_modification_same = seen.stamp.as_ref().is_some_and(|known| known.is_same_modification(&now));
        let is_proven = seen.stamp.as_ref().is_none_or(|known| {
            let is_recent = known.is_fresh() && !now.is_old();
            let is_fine = || trust == StampTrust::Settling && is_recent && attributes.file().has_fine_times();
            known.proves_unchanged(&now, trust) || known.is_same(&now) && is_fine()
        });
        let change = match (evidence, seen.take_own_changes()) {
            (Evidence::Foreign, _) => Change::Foreign,
            (Evidence::OwnAlone, true) => Change::No,
            // Permissions, links or names changed: a write would have been reported.
            (Evidence::OwnAlone, false) if is_modification_same => Change::No,
            (_, false) if has_moved => Change::Foreign,
            _ if is_proven => Change::No,
            _ => Change::Unproven,
        };
        seen.stamp = Some(now);
        if change != Change::No {
            seen.look_again_after_changes();
        }
        if change == Change::Foreign {
            self.is_contested.store(true, Ordering::Release);
        }
        let Ok(mut report) = self.take_length(attributes, (now.length_bytes, version), change) else {
            // The length is not known, so no page may count as checked. The next check reports the error.
            return self.forget(seen);
        };
        report.changed_bytes = (change != Change::No).then_some(now.length_bytes);
        report
    }

    /// The length becomes the device's, or the end of this engine's dirty bytes beyond it. Clean pages leave if others have
    /// changed the file, or may have.
    fn take_length(
        &self,
        attributes: Attributes<'_>,
        (mut device_bytes, version): (u64, ContentVersion),
        change: Change,
    ) -> io::Result<Report> {
        let mut report = Report::default();
        let state = self.dirty.lock();
        if self.dirty.version() != version {
            // Own writes after the `statx` may have extended the file. Under the lock there are none: a check that gives up instead
            // would never see an append by others beside a busy writer.
            device_bytes = attributes.stamp()?.length_bytes;
        }
        if let Some(gap) = state.gap.filter(|gap| gap.end == device_bytes) {
            device_bytes = gap.start;
        }
        let length_before = self.length_bytes.load(Ordering::Acquire);
        let length_bytes = device_bytes.max(Dirty::end_bytes(&state, length_before));
        let is_changed = change != Change::No || length_before > length_bytes;
        if change == Change::Foreign && !state.dirty.is_empty() {
            self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
            let pages = state.dirty.dirty_pages().get() + state.dirty.writing_pages().get();
            report.conflict_pages = Some(pages);
        }
        if is_changed {
            self.doubt_contents(&state, &mut report);
            if device_bytes < length_bytes {
                self.dirty.set_unreconciled(&state);
            }
        }
        // The kernel has bytes behind the old end that an append of this engine is about to announce.
        let is_longer = length_bytes > length_before;
        let end_page = end_page(length_before);
        if is_longer {
            self.drop_changed(&state, end_page, &mut report.dropped);
            // A writer may have read the page around the cache.
            self.dirty.note_written_at(end_page.bytes());
            self.dirty.note_change();
            // Bytes that a window holds beyond the end must not become visible.
            self.dirty.windows.zero(ByteRange::new(length_before, length_bytes));
        }
        // After the pages: a read without a check must not go beyond the old end in the old last page.
        self.length_bytes.store(length_bytes, Ordering::Release);
        if is_changed && length_before != length_bytes {
            // Pages loaded in between, up to the old end, leave as well.
            self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| report.dropped.push(page));
            self.dirty.on_demand.forget(ALL_PAGES.bytes());
        }
        if is_longer {
            // The same.
            self.pages.invalidate(end_page, DirtyToo::No, |page| report.dropped.push(page));
            self.dirty.on_demand.forget(ByteRange::new(length_before, length_bytes));
        }
        Ok(report)
    }

    /// Others have changed the file, or may have: clean pages leave, and what is dirty in part is read again. Under the lock of `state`, so that
    /// a read that begins afterwards finds none of the old pages.
    fn doubt_contents(&self, state: &State, report: &mut Report) {
        self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| report.dropped.push(page));
        self.dirty.note_written();
        self.dirty.note_change();
        state.in_flight.values().for_each(|write| write.doubt());
        if Dirty::is_doubtful(state) {
            self.dirty.set_unreconciled(state);
        }
    }

    /// Drops pages of which the kernel has other bytes than the cache, those before the next read that are dirty or in flight. Called
    /// under the lock of `state`.
    pub(crate) fn drop_changed(&self, state: &State, pages: PageRange, dropped: &mut Vec<Dropped>) {
        self.pages.invalidate(pages, DirtyToo::No, |page| dropped.push(page));
        let mut is_stale = state.dirty.first_in_part(pages).is_some();
        for write in state.in_flight.values() {
            if write.pages().meets(pages) {
                write.doubt();
                is_stale = true;
            }
        }
        if is_stale {
            self.dirty.set_unreconciled(state);
        }
    }

    /// Announces own changes of the file on its device, by `changes` requests or calls, each ended by [`Inode::end_changes`]. The
    /// locks of the length and of dirty pages must not be held.
    pub(crate) fn begin_changes(&self, file: &OpenFile, changes: usize) {
        let mut seen = self.origin.lock();
        let mut report = Report::default();
        if !seen.is_changing() {
            report = match self.origin.watch(&mut seen, file) {
                Watching::New => self.or_forget(&mut seen, |seen| {
                    self.check_locked(seen, Attributes::Now(file), StampTrust::Settling)
                }),
                Watching::AsBefore => self.or_forget(&mut seen, |seen| self.check_watch_locked(seen, file)),
            };
        }
        self.origin.begin(&mut seen, changes);
        drop(seen);
        self.report(report);
    }

    /// Ends `changes` own changes. Whichever thread completes a write does this, and waits for no server: of its files the next check looks.
    pub(crate) fn end_changes(&self, file: &OpenFile, changes: usize) {
        let mut seen = self.origin.lock();
        let mut report = Report::default();
        if self.origin.end(&mut seen, changes) == Remaining::Some {
            return;
        }
        if file.may_not_answer() && !seen.is_watched() {
            self.checked_nanoseconds.store(0, Ordering::Release);
        } else {
            report = self.or_forget(&mut seen, |seen| self.check_watch_locked(seen, file));
        }
        drop(seen);
        self.report(report);
    }

    /// Ends the watch of a file that no handle has open and that has nothing dirty, with a last check: the stamp will show
    /// changes while the file is closed.
    ///
    /// The stamp is taken first, then the watch ends, then the evidence is taken: it includes every write of another process that
    /// ends in between. A write that ends later may have moved the stamp when it began; so the stamp is not settled, and pages
    /// stay only if no other process has opened or changed the file.
    pub(crate) fn end_watch(&self, file: &OpenFile) {
        let mut seen = self.origin.lock();
        // A handle opened meanwhile may have opted out of the watch.
        if seen.is_changing() || !self.is_closed() {
            return;
        }
        let looked = seen.is_watched().then(|| self.take_stamp(Attributes::Now(file)));
        let evidence = self.origin.end_watch(&mut seen, file);
        let report = match (looked, evidence) {
            (None, _) => Report::default(),
            (Some(Ok(looked)), Some(evidence)) if !self.is_contested() => {
                self.judge(&mut seen, Attributes::Now(file), looked, StampTrust::Settling, evidence)
            }
            _ => self.forget(&mut seen),
        };
        drop(seen);
        self.report(report);
    }

    /// Makes a change of the file on its device, announced as this engine's own. The locks of the length and of dirty pages must not be held.
    pub(crate) fn own_change<R>(&self, file: &OpenFile, change: impl FnOnce() -> R) -> R {
        self.begin_changes(file, 1);
        let changed = change();
        self.end_changes(file, 1);
        changed
    }

    /// Changes the length on the device, under the lock that excludes other changes of it.
    pub(crate) fn change_length<R>(
        &self,
        file: &OpenFile,
        change: impl FnOnce(&mut u64) -> io::Result<R>,
    ) -> io::Result<R> {
        self.own_change(file, || change(&mut self.dirty.device_length()))
    }

    /// A file that cannot be checked is forgotten.
    fn or_forget(&self, seen: &mut Seen, look: impl FnOnce(&mut Seen) -> io::Result<Report>) -> Report {
        look(seen).unwrap_or_else(|_| self.forget(seen))
    }

    /// Drops everything known of the file except what is dirty.
    fn forget(&self, seen: &mut Seen) -> Report {
        seen.stamp = None;
        let mut report = Report::default();
        // The next check has nothing to compare with, so others may have changed the file until then.
        self.doubt_contents(&self.dirty.lock(), &mut report);
        self.dirty.on_demand.forget(ALL_PAGES.bytes());
        self.checked_nanoseconds.store(0, Ordering::Release);
        report
    }

    /// Listeners and subscribers are user code: no lock is held.
    fn report(&self, report: Report) {
        if let Some(dirty_pages) = report.conflict_pages {
            events::conflict(self.pages.id(), dirty_pages);
        }
        if let Some(length_bytes) = report.changed_bytes {
            events::changed(self.pages.id(), length_bytes, report.dropped.len());
        }
        self.on_dropped(&report.dropped);
    }

    /// Whether others have changed the file.
    pub(crate) fn is_contested(&self) -> bool {
        self.is_contested.load(Ordering::Acquire)
    }
}

/// With a check at each read, no change may be missed.
fn trust_for(interval: Duration) -> StampTrust {
    if interval.is_zero() { StampTrust::Strict } else { StampTrust::Settling }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use headwater_core::readahead::ReadaheadLimits;
    use headwater_io::{Access, DirectIo, DriverKind, FaultOn, FaultRange, SimOptions};

    use super::*;
    use crate::{Caching, Engine, OpenOptions};

    /// Goal: an opening with a stamp older than this engine's last change of the file knows the length after that change,
    /// although the file was forgotten at the close, because others had changed it. Method: the checks and changes in this order.
    #[test]
    fn an_old_look_does_not_shorten_a_forgotten_file() {
        let engine = Engine::builder().memory(4 << 20).driver(DriverKind::Threads).build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).write(true).open(&path).unwrap();
        file.write_all_at(&[2], 0).unwrap();
        file.sync_data().unwrap();
        let status = Command::new("sh").arg("-c").arg(r#"printf x >>"$0""#).arg(&path).status().unwrap();
        assert!(status.success());
        file.refresh().unwrap();
        let opened = OpenFile::open(&path, DirectIo::Preferred, Access::Read).unwrap();
        assert_eq!(opened.opened().stamp.length_bytes, 10_001);
        file.append(&[3; 5000]).unwrap();
        file.sync_data().unwrap();
        drop(file);
        let shared = &engine.shared;
        let inode = crate::api::upcalls::open(shared, &opened, None, ReadaheadLimits::default()).unwrap();
        assert_eq!(inode.length_bytes(), 15_001);
        (shared.upcalls.close)(shared, &inode, &opened);
    }

    /// An engine, and a file of eight bytes, open for writing, with its inode.
    fn rig(directory: &Path) -> (Engine, OpenFile, Arc<Inode>) {
        rig_on(directory, DriverKind::Threads)
    }

    fn rig_on(directory: &Path, driver: DriverKind) -> (Engine, OpenFile, Arc<Inode>) {
        let engine = Engine::builder().memory(4 << 20).driver(driver).build().unwrap();
        let path = directory.join("file");
        std::fs::write(&path, [1; 8]).unwrap();
        let opened = OpenFile::open(&path, DirectIo::Preferred, Access::ReadWrite).unwrap();
        let inode =
            crate::api::upcalls::open(&engine.shared, &opened, None, ReadaheadLimits::default()).unwrap();
        inode.refresh(&opened, Duration::ZERO).unwrap();
        (engine, opened, inode)
    }

    fn append(directory: &Path) {
        let mut file = std::fs::File::options().append(true).open(directory.join("file")).unwrap();
        file.write_all(&[2]).unwrap();
    }

    /// Goal: a check that finds an append of this engine before it is announced invalidates copies of the last page that were read
    /// around the cache.
    #[test]
    fn an_append_that_a_check_finds_is_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, opened, inode) = rig(directory.path());
        inode.begin_changes(&opened, 1);
        let version = inode.dirty.version();
        append(directory.path());
        inode.refresh(&opened, Duration::ZERO).unwrap();
        assert_eq!(inode.length_bytes(), 9);
        assert!(!version.is_now(&inode.dirty), "the page has other bytes");
        inode.end_changes(&opened, 1);
        (engine.shared.upcalls.close)(&engine.shared, &inode, &opened);
    }

    /// Goal: a check beside writes of this engine learns the length after an append by others, as a check alone does. Method: a
    /// writer that overwrites without a pause.
    #[test]
    fn a_check_beside_a_writer_knows_the_length() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, opened, inode) = rig(directory.path());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _state = inode.dirty.lock();
                    inode.dirty.note_change();
                }
            });
            for length_bytes in 9..1000 {
                append(directory.path());
                let known = inode.refresh(&opened, Duration::ZERO).map(|()| inode.length_bytes());
                is_over.store(known.as_ref().ok() != Some(&length_bytes), Ordering::Relaxed);
                assert_eq!(known.unwrap(), length_bytes);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        (engine.shared.upcalls.close)(&engine.shared, &inode, &opened);
    }

    /// Goal: no read takes bytes from a page that is dirty in part and may be stale, also while another thread checks the file.
    #[test]
    fn a_page_that_may_be_stale_is_not_current() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, opened, inode) = rig(directory.path());
        let file =
            OpenOptions::new().engine(&engine).write(true).open(directory.path().join("file")).unwrap();
        file.write_all_at(&[3], 0).unwrap();
        inode.drop_changed(&inode.dirty.lock(), ALL_PAGES, &mut Vec::new());
        inode.take_stamp(Attributes::Now(&opened)).unwrap();
        let mut bytes = [0; 8];
        assert!(!inode.is_current(Duration::MAX) && inode.copy_resident(&mut bytes, 0).is_none());
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(inode.is_current(Duration::MAX) && bytes == [3, 1, 1, 1, 1, 1, 1, 1]);
        drop(file);
        (engine.shared.upcalls.close)(&engine.shared, &inode, &opened);
    }

    /// Goal: a stream has what is unwritten from the cache, also while the file cannot be reconciled with a change by others; the kernel has
    /// other bytes there. Method: the mark of such a change, and a truncate under way that keeps the page from being written back.
    #[test]
    fn a_stream_of_a_file_that_cannot_be_reconciled() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, opened, inode) = rig(directory.path());
        let file =
            OpenOptions::new().engine(&engine).write(true).open(directory.path().join("file")).unwrap();
        file.read_exact_at(&mut [0; 8], 0).unwrap();
        file.write_all_at(&[3], 0).unwrap();
        assert_eq!(inode.dirty.pages(), 1, "it is written to the cache alone");
        let mut state = inode.dirty.lock();
        state.barrier = Some(PageIndex::new(0));
        inode.dirty.set_unreconciled(&state);
        drop(state);
        let mut bytes = [0; 8];
        file.reader().read_exact(&mut bytes).unwrap();
        assert!(inode.dirty.is_unreconciled(), "nothing else could reconcile it");
        inode.dirty.lock().barrier = None;
        assert_eq!(bytes, [3, 1, 1, 1, 1, 1, 1, 1]);
        drop(file);
        (engine.shared.upcalls.close)(&engine.shared, &inode, &opened);
    }

    /// Goal: bytes of others in a page that could not be written show once it is. Method: own changes, so that no check finds them; the write that
    /// reconciles the page fails once.
    #[test]
    fn a_page_that_could_not_be_reconciled_stays_doubtful() {
        let directory = tempfile::tempdir().unwrap();
        let (options, path) = (SimOptions::hostile(1), directory.path().join("file"));
        let control = options.control.clone();
        let (engine, opened, inode) = rig_on(directory.path(), DriverKind::Sim(options));
        let mut form = OpenOptions::new();
        let file = form.engine(&engine).caching(Caching::On).read(true).write(true).open(&path).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        file.write_all_at(&[3], 0).unwrap();
        assert_eq!(inode.dirty.pages(), 1, "it is written to the cache alone");
        inode.begin_changes(&opened, 1);
        std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&[9], 5).unwrap();
        inode.drop_changed(&inode.dirty.lock(), ALL_PAGES, &mut Vec::new());
        inode.end_changes(&opened, 1);
        let everything = ByteRange::new(0, 1 << 40);
        control.add_fault(FaultRange { operation: FaultOn::Writes, ..FaultRange::new(everything, 5) });
        file.read_exact_at(&mut bytes, 0).unwrap();
        control.clear_faults();
        let _reported = file.flush();
        file.flush().unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [3, 1, 1, 1, 1, 9, 1, 1]);
        drop(file);
        (engine.shared.upcalls.close)(&engine.shared, &inode, &opened);
    }

    /// Goal: a reader beside a check that is under way does not take the file for checked. Method: a check that waits for the length of the
    /// file on the device.
    #[test]
    fn a_check_under_way_is_no_check() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, opened, inode) = rig(directory.path());
        let interval = Duration::from_secs(5);
        inode.checked_nanoseconds.store(0, Ordering::Relaxed);
        assert!(inode.is_due(interval));
        let held = inode.dirty.device_length();
        std::thread::scope(|scope| {
            let checking = scope.spawn(|| inode.revalidate(&opened, interval));
            std::thread::sleep(Duration::from_millis(50));
            let is_due = inode.is_due(interval);
            drop(held);
            checking.join().unwrap().unwrap();
            assert!(is_due && !inode.is_due(interval));
        });
        (engine.shared.upcalls.close)(&engine.shared, &inode, &opened);
    }
}
