//! Kernel cache: which pages of a file the kernel's page cache holds, and reads of them that do not wait for the device.
//!
//! ```text
//!   read_if_resident ─┬─ warm of late ───────────────────────► RWF_NOWAIT ─► bytes | miss: no longer warm
//!                     └─ else cachestat ─┬─ whole ───────────► RWF_NOWAIT
//!                                        ├─ part, none ──────► nothing
//!                                        └─ refused ─────────► RWF_NOWAIT now and then, rarer after each miss
//! ```
//!
//! A miss with `RWF_NOWAIT` has a side effect: it starts reading the missing pages into the page cache
//! (seen on Linux 6.18), so a direct reader that probed with it would read everything twice and fill the page cache.
//! Random 4 KiB reads with such a probe ran at 0.79 of the rate without. `cachestat(2)` starts no reads, but needs a process
//! that owns the file or may write to it. See
//! `docs/decisions/0001-ask-before-probing-the-page-cache.md`.
//!
//! Owns: what was learned about one file: which calls work, whether recent reads hit; and about small files read whole.
//! Does not own: the descriptor.
//! Hot path: warm: 1 syscall (`preadv2`); cold: 1 syscall (`cachestat`).

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use headwater_core::units::{ByteRange, PageRange};
use rustix::io::{Errno, ReadWriteFlags};

use crate::file::clock::coarse_clock;
use crate::file::copied_runs::CopiedRuns;
use crate::system::pages::SystemPages;
use crate::system::sys;

/// How much of a range the kernel's page cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residency {
    /// All of it.
    Whole,
    /// Some of it.
    Part,
    /// Nothing.
    None,
    /// The kernel does not answer this process.
    Unknown,
}

/// As [`crate::OpenFile::resident_pages`], for any descriptor of a file, also one for direct I/O: for programs that read
/// many small files once each and open them by themselves. One syscall.
pub fn resident_pages(file: BorrowedFd<'_>, range: ByteRange) -> Option<u64> {
    // To the kernel a length of 0 is the rest of the file.
    if range.is_empty() {
        return Some(0);
    }
    let stat = sys::cachestat(file, PageRange::covering(range).bytes()).ok()?;
    Some(SystemPages::here().resident(range, stat.cached))
}

/// Whether the kernel's page cache holds dirty pages of a range, or pages under writeback. No, if the kernel does not answer. One
/// syscall.
pub(crate) fn is_dirty(file: BorrowedFd<'_>, range: ByteRange) -> bool {
    let stat = sys::cachestat(file, PageRange::covering(range).bytes());
    !range.is_empty() && stat.is_ok_and(|stat| stat.dirty + stat.writeback > 0)
}

/// How many small files, read whole one after the other, were in the kernel's page cache. A hint, so relaxed accesses do.
#[derive(Debug, Default)]
pub struct WarmFiles {
    /// Files in a row that the page cache held, up to [`WARM_STREAK`].
    streak: AtomicU32,
}

impl WarmFiles {
    /// Whether the last [`WARM_STREAK`] files were there, so that the next is read without asking `cachestat`. If it is cold, the kernel
    /// reads it into the page cache: at most one file in seventeen.
    pub(super) fn are_likely(&self) -> bool {
        self.streak.load(Ordering::Relaxed) >= WARM_STREAK
    }

    pub(super) fn learn(&self, residency: Residency) {
        let streak = self.streak.load(Ordering::Relaxed);
        let next = if residency == Residency::Whole { (streak + 1).min(WARM_STREAK) } else { 0 };
        // Written only when it changes: otherwise every file would take the cache line away from other threads.
        if next != streak {
            self.streak.store(next, Ordering::Relaxed);
        }
    }
}

/// What a miss of `RWF_NOWAIT` costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misses {
    /// Nothing: the file is read through the page cache anyway, and the pages that the miss reads will be used.
    AreUseful,
    /// A read that the direct route repeats: ask `cachestat` first.
    AreWasted,
}

/// All fields are hints, each for itself, so relaxed accesses do: a lost update costs one syscall.
#[derive(Debug)]
pub(crate) struct KernelCache {
    misses: Misses,
    /// Cleared when the file system turns out not to support `RWF_NOWAIT`.
    nowait: AtomicBool,
    /// Cleared when `cachestat` turns out to be missing or refused.
    cachestat: AtomicBool,
    /// Whether the kernel was advised how the file is read.
    is_advised: AtomicBool,
    /// Reads in a row that were resident.
    warm_streak: AtomicU32,
    /// Reads to let pass before probing again, without `cachestat`.
    skips: AtomicU32,
    /// What `skips` becomes after the next miss.
    backoff: AtomicU32,
    runs: CopiedRuns,
}

impl KernelCache {
    pub(crate) fn new(misses: Misses) -> KernelCache {
        KernelCache {
            misses,
            nowait: AtomicBool::new(true),
            cachestat: AtomicBool::new(true),
            is_advised: AtomicBool::new(misses == Misses::AreUseful),
            warm_streak: AtomicU32::new(0),
            skips: AtomicU32::new(0),
            backoff: AtomicU32::new(0),
            runs: CopiedRuns::default(),
        }
    }

    /// The caller advises the kernel itself how the file is read.
    pub(crate) fn leave_advice_to_others(&self) {
        self.is_advised.store(true, Ordering::Relaxed);
    }

    /// How much of `range`, clipped to the file, is resident. Without `cachestat` the first and last byte are probed and stand for
    /// the rest; that may read their two pages in.
    pub(crate) fn residency(&self, file: &File, range: ByteRange) -> Residency {
        match self.cachestat_residency(file, range) {
            Residency::Unknown if self.nowait.load(Ordering::Relaxed) && !range.is_empty() => {
                self.probed(file, range)
            }
            known => known,
        }
    }

    fn probed(&self, file: &File, range: ByteRange) -> Residency {
        let probe = |offset| self.read(file, &mut [0], offset).ok().flatten();
        if probe(range.start) != Some(1) {
            return Residency::None;
        }
        let holds_last = |range: ByteRange| range.end > range.start && probe(range.end - 1) == Some(1);
        // What lies beyond the end is not there, or a miss (Linux 5.10).
        let is_whole = holds_last(range) || holds_last(range.clip(end_of(file)));
        if is_whole { Residency::Whole } else { Residency::Part }
    }

    /// As [`crate::OpenFile::resident_pages`].
    pub(crate) fn resident_pages(&self, file: &File, range: ByteRange) -> Option<u64> {
        resident_pages(file.as_fd(), range)
    }

    /// Reads from a range thought to be resident, up to the first page that is not. `Ok(None)`: not even the first.
    pub(crate) fn read(
        &self,
        file: &File,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> io::Result<Option<usize>> {
        // `preadv2(2)` would take the last offset for the position of the descriptor.
        if i64::try_from(ByteRange::at(offset_bytes, buffer.len() as u64).end).is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if !self.is_advised.load(Ordering::Relaxed) && !self.is_advised.swap(true, Ordering::Relaxed) {
            // A miss then reads no more than the range. Only advice; nothing is lost without it.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
        }
        while self.nowait.load(Ordering::Relaxed) {
            let mut buffers = [IoSliceMut::new(buffer)];
            match rustix::io::preadv2(file, &mut buffers, offset_bytes, ReadWriteFlags::NOWAIT) {
                Ok(read_bytes) => return Ok(Some(read_bytes)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.nowait.store(false, Ordering::Relaxed)
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Without RWF_NOWAIT (tmpfs, FUSE, NFS): if all of the range is there, an ordinary read does not wait either.
        match self.cachestat_residency(file, ByteRange::at(offset_bytes, buffer.len() as u64)) {
            Residency::Whole => file.read_at(buffer, offset_bytes).map(Some),
            _ => Ok(None),
        }
    }

    /// As [`KernelCache::read`], for a range that may not be resident.
    pub(crate) fn read_if_resident(
        &self,
        file: &File,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> io::Result<Option<usize>> {
        if !self.is_worth_trying(file, ByteRange::at(offset_bytes, buffer.len() as u64)) {
            return Ok(None);
        }
        let read = self.read(file, buffer, offset_bytes)?;
        self.learn(read.is_some());
        Ok(read)
    }

    fn is_worth_trying(&self, file: &File, range: ByteRange) -> bool {
        if self.misses == Misses::AreUseful {
            return true;
        }
        if self.warm_streak.load(Ordering::Relaxed) >= WARM_STREAK {
            return self.begin_copy(file, range);
        }
        match self.cachestat_residency(file, range) {
            Residency::Whole => self.begin_copy(file, range),
            Residency::Part | Residency::None => {
                self.warm_streak.store(0, Ordering::Relaxed);
                false
            }
            Residency::Unknown => {
                let skips = self.skips.load(Ordering::Relaxed);
                self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
                skips == 0
            }
        }
    }

    /// As [`crate::OpenFile::begin_copy`]; always `true` where the kernel does not tell what is resident.
    pub(crate) fn begin_copy(&self, file: &File, range: ByteRange) -> bool {
        let is_resident = |range| self.cachestat_residency(file, range) == Residency::Whole;
        let admits = |range| self.runs.admits(range, coarse_clock(), is_resident);
        // What lies beyond the end of the file is not resident.
        !self.cachestat.load(Ordering::Relaxed) || admits(range) || admits(range.clip(end_of(file)))
    }

    fn learn(&self, hit: bool) {
        if hit {
            let streak = self.warm_streak.load(Ordering::Relaxed);
            self.warm_streak.store(streak.saturating_add(1), Ordering::Relaxed);
            self.backoff.store(0, Ordering::Relaxed);
        } else {
            self.warm_streak.store(0, Ordering::Relaxed);
            let backoff = (2 * self.backoff.load(Ordering::Relaxed) + 1).min(BACKOFF_MAX);
            self.backoff.store(backoff, Ordering::Relaxed);
            self.skips.store(backoff, Ordering::Relaxed);
        }
    }

    /// The residency of the range by `cachestat`, clipped to the end of the file.
    fn cachestat_residency(&self, file: &File, range: ByteRange) -> Residency {
        if range.is_empty() {
            return Residency::None;
        }
        if !self.cachestat.load(Ordering::Relaxed) {
            return Residency::Unknown;
        }
        match self.counted(file, range) {
            // Fewer than asked for: absent pages, or the range reaches beyond the end of the file.
            Residency::Part => match range.clip(end_of(file)) {
                real if real == range => Residency::Part,
                // Of a file that was truncated, the kernel keeps pages beyond the end.
                real => self.counted(file, real),
            },
            counted => counted,
        }
    }

    fn counted(&self, file: &File, range: ByteRange) -> Residency {
        match resident_pages(file.as_fd(), range) {
            Some(0) => Residency::None,
            Some(cached) if cached >= PageRange::covering(range).len().get() => Residency::Whole,
            Some(_) => Residency::Part,
            None => {
                self.cachestat.store(false, Ordering::Relaxed);
                Residency::Unknown
            }
        }
    }
}

/// By seeking, because the length in the metadata of a block device is 0.
fn end_of(file: &File) -> u64 {
    rustix::fs::seek(file, rustix::fs::SeekFrom::End(0)).unwrap_or(u64::MAX)
}

/// After this many resident reads in a row `cachestat` is skipped. A file that is partly warm then costs at most one
/// wasted read in seventeen.
const WARM_STREAK: u32 = 16;

/// At most this many reads pass between two probes of a file without `cachestat`: cold random reads of
/// such a file pay 1.6 % more, and a file that becomes warm is noticed within 64 reads.
const BACKOFF_MAX: u32 = 63;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: without `cachestat`, misses make probes rarer, up to the limit, and a hit makes them frequent.
    #[test]
    fn misses_back_off_and_hits_recover() {
        let cache = KernelCache::new(Misses::AreWasted);
        for expected in [1, 3, 7, 15, 31, 63, 63] {
            cache.learn(false);
            assert_eq!(cache.skips.load(Ordering::Relaxed), expected);
        }
        cache.learn(true);
        cache.learn(false);
        assert_eq!(cache.skips.load(Ordering::Relaxed), 1);
    }

    /// Goal: the end of the file does not make a resident range look partial. Method: a file of one and a half pages,
    /// written and so resident, a range longer than it, with `cachestat` and with probes.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's page cache
    fn a_range_beyond_the_end_is_whole() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[1; 6000]).unwrap();
        let cache = KernelCache::new(Misses::AreWasted);
        for has_cachestat in [true, false] {
            cache.cachestat.store(has_cachestat, Ordering::Relaxed);
            for end in [6000, 6001, 8192, 1 << 20] {
                let residency = cache.residency(&file, ByteRange::new(0, end));
                assert!(
                    matches!(residency, Residency::Whole | Residency::Unknown),
                    "{has_cachestat}, {end}: {residency:?}"
                );
            }
        }
        assert_eq!(cache.read_if_resident(&file, &mut [0; 8192], 0).unwrap(), Some(6000));
    }

    /// Goal: an offset that no file can have is an error and not the position of the descriptor, and the next read does not wait as
    /// before. Method: the largest offset of all, for which `preadv2(2)` takes the position.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's page cache
    fn offsets_that_files_cannot_have() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[1; 6000]).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let cache = KernelCache::new(Misses::AreUseful);
        for offset_bytes in [u64::MAX, 1 << 63, i64::MAX as u64 - 9] {
            let read = cache.read_if_resident(&file, &mut [0; 10], offset_bytes);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{offset_bytes}");
        }
        assert!(cache.nowait.load(Ordering::Relaxed));
        assert_eq!(cache.read_if_resident(&file, &mut [0; 8192], 0).unwrap(), Some(6000));
    }

    /// Goal: pages that the kernel keeps beyond the end of a truncated file do not stand for absent ones. Method: a hole of 16 pages, then
    /// 1 MiB that is truncated to 19 pages; which pages the kernel keeps depends on the file system.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's page cache
    fn pages_beyond_the_end_do_not_count() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; 1 << 20], 16 * 4096).unwrap();
        file.set_len(35 * 4096).unwrap();
        let cache = KernelCache::new(Misses::AreWasted);
        let residency =
            |start_page: u64| cache.residency(&file, ByteRange::new(start_page * 4096, 100 * 4096));
        assert!(matches!(residency(0), Residency::Part | Residency::None | Residency::Unknown));
        assert!(matches!(residency(16), Residency::Whole | Residency::Unknown));
    }

    /// Goal: resident pages are counted for each range by itself, also across the end of the file. Method: three pages,
    /// the last a short one, written and so resident.
    #[test]
    #[cfg_attr(miri, ignore)] // needs the kernel's page cache
    fn resident_pages_are_counted() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[1; 8192 + 100]).unwrap();
        let cache = KernelCache::new(Misses::AreUseful);
        let count = |start, end| cache.resident_pages(&file, ByteRange::new(start, end));
        if count(0, 1).is_none() {
            return; // before Linux 6.5
        }
        let expected = [((0, 0), 0), ((0, 1), 1), ((4095, 4097), 2), ((4096, 1 << 20), 2), ((0, 1 << 20), 3)];
        for ((start, end), pages) in expected {
            assert_eq!(count(start, end), Some(pages), "{start}..{end}");
        }
        assert_eq!(count(1 << 20, 2 << 20), Some(0));
    }
}
