//! Revalidate: whether a file is still as its cached pages have it, and what happens if it is not.
//!
//! ```text
//!   read ─► due? ─► look: what the watch reported, then statx ─┬─ as it was ─────────────────────────► go on
//!                                                              ├─ moved, by own changes alone ───────► new stamp, pages stay
//!                                                              └─ moved otherwise, or nothing proves ─► pages dropped
//!   dropped ─► dirty in part? ─► those bytes are written, then these pages leave as well   (settle)
//!   own change on the device ─► glance before it and after it: the watch alone; without one, a look
//! ```
//!
//! The cache's bytes are right as long as nothing else writes to the file. The stamp (length, time of modification and of
//! change) shows what does. It is looked at when the file is opened, at most every [`REVALIDATE_INTERVAL`] while the file is read
//! or written, and whenever a read reaches the known end. So what another process writes shows within that interval, and what it
//! appends at once. A write moves the times when it begins, so what was read within 30 s of a change is dropped once more after
//! these, unless the file is watched. Linux 6.13 and later tell two writes apart however short the time between them; before, a
//! write within the same tick of the clock (4 ms) as the look before goes unnoticed, so a stamp younger than a tick is not
//! trusted. Writes through `mmap` that are not written back move no stamp; block devices have none.
//!
//! From the first change by others on, the file is *contested*: this engine writes to it through the kernel's page cache, as
//! others do, because the kernel marks a file as failed when direct and buffered writes meet in one page; and a page that is
//! dirty in part is written at once, and leaves when that is done, because the bytes beside are those of others.
//!
//! Owns: when a file is looked at, what is dropped then, its length as others changed it.
//! Does not own: the stamp and its origin (origin).
//! Invariants: I10 no page outlives a change of length that was seen; R1 no page that was clean before a change by others was
//! seen is read after that.
//! Locks: `seen` of the origin, inside it the length on the device, then what is unwritten, then the cache's.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headwater_core::cache::DirtyToo;
use headwater_core::units::ByteRange;
use headwater_io::{Dropped, FileKind, FileStamp, OpenFile, Opened, StampTrust};

use super::origin::{Evidence, Remaining, Seen, Watching};
use super::{ALL_PAGES, Inode};
use crate::base::clock::{REVALIDATE_INTERVAL, coarse_nanoseconds};
use crate::base::events;
use crate::inode::dirty::{ContentVersion, Dirty};

/// What a look has led to, for listeners and subscribers: reported when no lock is held.
#[derive(Debug, Default)]
struct Report {
    dropped: Vec<Dropped>,
    /// The length, if the file was, or may have been, changed by others.
    changed_bytes: Option<u64>,
    /// Pages that were not written when others changed the file.
    conflict_pages: Option<u64>,
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// Nothing, or nothing but what this engine did.
    No,
    /// Own changes may be the only cause that the times have moved, or the times are too young to tell.
    Unproven,
    /// Others have changed the file.
    Foreign,
}

impl Inode {
    /// Whether the file is not leased, and was not looked at for as long as `interval`.
    #[inline]
    pub(super) fn is_due(&self, interval: Duration) -> bool {
        if self.leasing.is_trusted() {
            return false;
        }
        let checked = self.checked_nanoseconds.load(Ordering::Relaxed);
        coarse_nanoseconds().wrapping_sub(checked) >= interval.as_nanos() as u64
    }

    /// Looks at the file again if that was not done for as long as `interval`.
    #[inline]
    pub(crate) fn revalidate(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        if self.is_due(interval) { self.look(file, trust_for(interval)) } else { Ok(()) }
    }

    /// Looks at the file now, unless it is leased.
    pub(crate) fn refresh(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        if self.leasing.is_trusted() { Ok(()) } else { self.look(file, trust_for(interval)) }
    }

    /// The same for a file that was just opened: what was seen then is enough, unless it says that something has changed.
    pub(crate) fn refresh_opened(&self, file: &OpenFile, interval: Duration) -> io::Result<()> {
        let opened = file.opened();
        if self.leasing.is_trusted() {
            return Ok(());
        }
        let mut seen = self.origin.lock();
        let is_as_known = match seen.stamp {
            Some(_) => self.is_unchanged(&mut seen, &opened.stamp, interval),
            // What was seen at the opening may be older than a change by an engine that has forgotten the file since.
            None => file.kind() == FileKind::Regular && self.origin.is_untouched(),
        };
        if !is_as_known {
            drop(seen);
            return self.look(file, trust_for(interval));
        }
        if seen.stamp.replace(opened.stamp).is_none() {
            // No engine has changed the file yet.
            *self.dirty.device_length() = opened.stamp.length_bytes;
            self.length_bytes.store(opened.stamp.length_bytes, Ordering::Release);
        }
        self.checked_nanoseconds.fetch_max(opened.looked_at.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the file, seen just now, holds what is cached of it, all of which is on the device.
    pub(crate) fn is_as_seen(&self, opened: &Opened) -> bool {
        let mut seen = self.origin.lock();
        !self.dirty.may_lack()
            && self.length_bytes() == opened.stamp.length_bytes
            && self.is_unchanged(&mut seen, &opened.stamp, REVALIDATE_INTERVAL)
    }

    /// Whether a stamp that was taken just now proves that the file is as the last look saw it.
    fn is_unchanged(&self, seen: &mut Seen, stamp: &FileStamp, interval: Duration) -> bool {
        let is_same = |known: &FileStamp| known.proves_unchanged(stamp, trust_for(interval));
        seen.stamp.as_ref().is_some_and(is_same)
            && !seen.is_changing()
            && self.origin.evidence(seen) != Evidence::Foreign
    }

    /// Asks whether others have changed the file: the watch alone, where there is one.
    pub(crate) fn glance_at_origin(&self, file: &OpenFile) -> io::Result<()> {
        if self.leasing.is_trusted() {
            return Ok(());
        }
        let mut seen = self.origin.lock();
        let report = self.glance_locked(&mut seen, file)?;
        drop(seen);
        self.report(report);
        Ok(())
    }

    fn glance_locked(&self, seen: &mut Seen, file: &OpenFile) -> io::Result<Report> {
        if !seen.is_watched() {
            return self.look_locked(seen, file, StampTrust::Settling);
        }
        match self.origin.evidence(seen) {
            Evidence::OwnAlone => Ok(Report::default()),
            evidence => self.look_with(seen, file, StampTrust::Settling, evidence),
        }
    }

    #[cold]
    fn look(&self, file: &OpenFile, trust: StampTrust) -> io::Result<()> {
        let mut seen = self.origin.lock();
        let report = self.look_locked(&mut seen, file, trust)?;
        drop(seen);
        self.report(report);
        Ok(())
    }

    fn look_locked(&self, seen: &mut Seen, file: &OpenFile, trust: StampTrust) -> io::Result<Report> {
        let evidence = self.origin.evidence(seen);
        self.look_with(seen, file, trust, evidence)
    }

    /// Says which pages left; the listeners are still to be called. Of two looks at once, the one that saw less must not have
    /// the last word, so the lock is held. A change by others after the evidence was taken shows by the next.
    fn look_with(
        &self,
        seen: &mut Seen,
        file: &OpenFile,
        trust: StampTrust,
        evidence: Evidence,
    ) -> io::Result<Report> {
        let (mut now, version) = self.take_stamp(file)?;
        if evidence == Evidence::OwnAlone {
            // A write of others that is under way shows by its event when it ends.
            now = now.settled();
        }
        Ok(self.judge(seen, file, (now, version), trust, evidence))
    }

    /// Asks for the file's times and length, and says what the engine had written before that.
    fn take_stamp(&self, file: &OpenFile) -> io::Result<(FileStamp, ContentVersion)> {
        // Before the look, so that what is changed after it is not taken for seen.
        self.checked_nanoseconds.store(coarse_nanoseconds(), Ordering::Relaxed);
        let version = self.dirty.version();
        let mut device_length = self.dirty.device_length();
        let (_, now) = file.identity()?;
        *device_length = now.length_bytes;
        Ok((now, version))
    }

    /// Finds out what a stamp and the evidence say together, and has that take effect.
    fn judge(
        &self,
        seen: &mut Seen,
        file: &OpenFile,
        (now, version): (FileStamp, ContentVersion),
        trust: StampTrust,
        evidence: Evidence,
    ) -> Report {
        let has_moved = seen.stamp.as_ref().is_some_and(|known| !known.is_same(&now));
        let is_modification_same = seen.stamp.as_ref().is_some_and(|known| known.is_same_modification(&now));
        let is_proven = seen.stamp.as_ref().is_none_or(|known| {
            let is_recent = known.is_fresh() && !now.is_old();
            let is_fine = || trust == StampTrust::Settling && is_recent && file.has_fine_times();
            known.proves_unchanged(&now, trust) || known.is_same(&now) && is_fine()
        });
        let change = match (evidence, seen.take_own_changes()) {
            (Evidence::Foreign, _) => Change::Foreign,
            (Evidence::OwnAlone, true) => Change::No,
            // Permissions, links or names: a write would have been reported.
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
        let mut report = self.take_length(now.length_bytes, change, version);
        report.changed_bytes = (change != Change::No).then_some(now.length_bytes);
        report
    }

    /// The length is what was seen, or where the bytes end that this engine has still to write; clean pages leave if the file
    /// was, or may have been, changed by others.
    fn take_length(&self, device_bytes: u64, change: Change, version: ContentVersion) -> Report {
        let mut report = Report::default();
        let state = self.dirty.lock();
        let length_before = self.length_bytes.load(Ordering::Acquire);
        // What this engine has changed since the look may have made the file longer since.
        let is_current = self.dirty.version() == version;
        let length_bytes = device_bytes.max(Dirty::end_bytes(&state, length_before));
        let is_changed = change != Change::No || is_current && length_before > length_bytes;
        if change == Change::Foreign && !state.dirty.is_empty() {
            self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
            let pages = state.dirty.dirty_pages().get() + state.dirty.writing_pages().get();
            report.conflict_pages = Some(pages);
        }
        if is_changed {
            // Under the lock: a read that begins after it sees none of the old pages.
            self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| report.dropped.push(page));
            self.dirty.note_written();
            self.dirty.note_change();
            state.in_flight.values().for_each(|write| write.doubt());
            if Dirty::is_doubtful(&state) || device_bytes < length_bytes {
                self.dirty.set_unsettled();
            }
        }
        if self.dirty.is_unsettled() {
            // The next read settles it before it takes anything from a page.
            self.checked_nanoseconds.store(0, Ordering::Release);
        }
        if is_current && length_bytes > length_before {
            // What a window holds beyond an end shows to no reader.
            self.dirty.windows.zero(ByteRange::new(length_before, length_bytes));
        }
        if is_current {
            // After the pages: a read that does not look must not go beyond the old end in the old last page.
            self.length_bytes.store(length_bytes, Ordering::Release);
        }
        if is_changed && length_before != length_bytes {
            // And what was loaded in between, up to the old end.
            self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| report.dropped.push(page));
        }
        report
    }

    /// This engine is about to change the file on its device, by so many requests or calls. Each is ended by
    /// [`Inode::end_changes`]. No lock of the file's length or of what is unwritten may be held.
    pub(crate) fn begin_changes(&self, file: &OpenFile, changes: usize) {
        let mut seen = self.origin.lock();
        let mut report = Report::default();
        if !seen.is_changing() {
            report = match self.origin.watch(&mut seen, file) {
                Watching::New => {
                    self.or_forget(&mut seen, |seen| self.look_locked(seen, file, StampTrust::Settling))
                }
                Watching::AsBefore => self.or_forget(&mut seen, |seen| self.glance_locked(seen, file)),
            };
        }
        self.origin.begin(&mut seen, changes);
        drop(seen);
        self.report(report);
    }

    /// So many own changes have ended.
    pub(crate) fn end_changes(&self, file: &OpenFile, changes: usize) {
        let mut seen = self.origin.lock();
        let mut report = Report::default();
        if self.origin.end(&mut seen, changes) == Remaining::None {
            report = self.or_forget(&mut seen, |seen| self.glance_locked(seen, file));
        }
        drop(seen);
        self.report(report);
    }

    /// Ends the watch of a file that no handle has open, and of which nothing is unwritten, with a last look: its stamp will show a
    /// change while the file is closed.
    ///
    /// The stamp is taken first, then the watch ends, then the evidence is taken: it includes every write of another process that ends in
    /// between. A write that ends later may have moved the stamp when it began; so the stamp is not settled, and pages stay only if no
    /// other process has opened or changed the file.
    pub(crate) fn end_watch(&self, file: &OpenFile) {
        let mut seen = self.origin.lock();
        // A handle that was opened meanwhile may have asked for no watch.
        if seen.is_changing() || !self.is_closed() {
            return;
        }
        let looked = seen.is_watched().then(|| self.take_stamp(file));
        let evidence = self.origin.end_watch(&mut seen, file);
        let report = match (looked, evidence) {
            (None, _) => Report::default(),
            (Some(Ok(looked)), Some(evidence)) if !self.is_contested() => {
                self.judge(&mut seen, file, looked, StampTrust::Settling, evidence)
            }
            _ => self.forget(&mut seen),
        };
        drop(seen);
        self.report(report);
    }

    /// Changes the length on the device, which nothing else changes meanwhile.
    pub(crate) fn change_length<R>(
        &self,
        file: &OpenFile,
        change: impl FnOnce(&mut u64) -> io::Result<R>,
    ) -> io::Result<R> {
        self.begin_changes(file, 1);
        let changed = change(&mut self.dirty.device_length());
        self.end_changes(file, 1);
        changed
    }

    /// A file that cannot be looked at is one of which nothing is known.
    fn or_forget(&self, seen: &mut Seen, look: impl FnOnce(&mut Seen) -> io::Result<Report>) -> Report {
        look(seen).unwrap_or_else(|_| self.forget(seen))
    }

    /// Nothing is known of the file any more but what is dirty.
    fn forget(&self, seen: &mut Seen) -> Report {
        seen.stamp = None;
        let mut report = Report::default();
        self.pages.invalidate(ALL_PAGES, DirtyToo::No, |page| report.dropped.push(page));
        self.checked_nanoseconds.store(0, Ordering::Release);
        report
    }

    /// Listeners and subscribers are the user's, and may do anything.
    fn report(&self, report: Report) {
        if let Some(unwritten_pages) = report.conflict_pages {
            events::conflict(self.pages.id(), unwritten_pages);
        }
        if let Some(length_bytes) = report.changed_bytes {
            events::changed(self.pages.id(), length_bytes, report.dropped.len());
        }
        self.on_dropped(&report.dropped);
    }

    /// Whether others were seen to change the file.
    pub(crate) fn is_contested(&self) -> bool {
        self.is_contested.load(Ordering::Acquire)
    }
}

/// With a look at each read, nothing may be missed.
fn trust_for(interval: Duration) -> StampTrust {
    if interval.is_zero() { StampTrust::Strict } else { StampTrust::Settling }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use headwater_core::readahead::ReadaheadLimits;
    use headwater_io::{Access, DirectIo, DriverKind};

    use super::*;
    use crate::{Caching, Engine, OpenOptions};

    /// Goal: an opening that looked at the file before this engine's last change of it knows the length after that, although the file
    /// was forgotten at the close, because others had changed it. Method: the looks and changes in this order.
    #[test]
    fn an_old_look_does_not_shorten_a_forgotten_file() {
        let engine = Engine::builder().memory(4 << 20).driver(DriverKind::Threads).build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).write().open(&path).unwrap();
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
}
