//! Status: kind, identity, stamp and direct I/O alignment of an open file, by one system call.
//!
//! Owns: the identity of files, the stamps that show a change.
//! Does not own: descriptors, the reaction to a change.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, makedev, statx};
use rustix::io::Errno;

/// What `statx(2)` returns for an open file.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) kind: FileKind,
    pub(super) key: FileKey,
    pub(super) stamp: FileStamp,
    /// Alignment of memory and of offsets that `O_DIRECT` requires (Linux 6.1); zeros mean that there is no direct I/O. `None` where
    /// kernel or file system does not return it.
    pub(super) direct: Option<(u64, u64)>,
}

/// What kind of file it is. Others have no positions and are refused at open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
    /// A character device: no length, and what is read need not be the same twice.
    CharacterDevice,
}

impl Status {
    /// One system call. A block device's length is not in it.
    ///
    /// # Errors
    /// What `statx(2)` reports; `IsADirectory`; `Unsupported` for files without positions.
    pub(super) fn of(file: &File) -> io::Result<Status> {
        Status::asked(file, AtFlags::empty())
    }

    /// The same, from the server of a network file system instead of the kernel's cached attributes.
    pub(super) fn of_server(file: &File) -> io::Result<Status> {
        Status::asked(file, AtFlags::STATX_FORCE_SYNC)
    }

    fn asked(file: &File, flags: AtFlags) -> io::Result<Status> {
        if cfg!(miri) {
            return Status::in_brief(file);
        }
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        match statx(file, "", AtFlags::EMPTY_PATH | flags, wanted) {
            Ok(found) => Status::of_statx(&found),
            // Sandboxes older than the call forbid it with either error.
            Err(Errno::NOSYS | Errno::PERM) => Status::in_brief(file),
            Err(error) => Err(error.into()),
        }
    }

    fn of_statx(found: &Statx) -> io::Result<Status> {
        let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, i64::from(time.tv_nsec));
        let has_alignment = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        let direct = (u64::from(found.stx_dio_mem_align), u64::from(found.stx_dio_offset_align));
        Ok(Status {
            kind: positioned_kind(FileType::from_raw_mode(u32::from(found.stx_mode)))?,
            key: FileKey { device: makedev(found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino },
            stamp: FileStamp::of(found.stx_size, time(found.stx_mtime), time(found.stx_ctime)),
            direct: has_alignment.then_some(direct),
        })
    }

    /// The same without the alignment for `O_DIRECT`, by `fstat(2)`, which is 0.1 us cheaper.
    pub(super) fn in_brief(file: &File) -> io::Result<Status> {
        // Miri has `statx(2)` alone, as the standard library calls it.
        if cfg!(miri) {
            return Status::of_metadata(&file.metadata()?);
        }
        let found = rustix::fs::fstat(file)?;
        let (modified, changed) =
            ((found.st_mtime, found.st_mtime_nsec as i64), (found.st_ctime, found.st_ctime_nsec as i64));
        Ok(Status {
            kind: positioned_kind(FileType::from_raw_mode(found.st_mode))?,
            key: FileKey { device: found.st_dev, inode: found.st_ino },
            stamp: FileStamp::of(found.st_size.cast_unsigned(), modified, changed),
            direct: None,
        })
    }

    fn of_metadata(metadata: &std::fs::Metadata) -> io::Result<Status> {
        let (modified, changed) =
            ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
        Ok(Status {
            kind: positioned_kind(FileType::from_raw_mode(metadata.mode()))?,
            key: FileKey { device: metadata.dev(), inode: metadata.ino() },
            stamp: FileStamp::of(metadata.len(), modified, changed),
            direct: None,
        })
    }
}

/// What kind of file it is, if it is one that has positions.
pub(super) fn positioned_kind(file_type: FileType) -> io::Result<FileKind> {
    match file_type {
        FileType::RegularFile => Ok(FileKind::Regular),
        FileType::BlockDevice => Ok(FileKind::BlockDevice),
        FileType::CharacterDevice => Ok(FileKind::CharacterDevice),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => {
            let text = "a FIFO or socket can be streamed, but has no positions to read at";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

/// Seconds since 1970 and nanoseconds, which count upwards also before.
fn parts_of(time: SystemTime) -> (i64, i64) {
    let nanoseconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    (nanoseconds.div_euclid(1_000_000_000) as i64, nanoseconds.rem_euclid(1_000_000_000) as i64)
}

/// Identity of a file, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileKey {
    device: u64,
    inode: u64,
}

impl FileKey {
    /// Whether its file system has no block device of its own: in memory, on a network, or above others.
    pub(super) fn is_on_no_device(self) -> bool {
        rustix::fs::major(self.device) == 0
    }

    /// The number of the device, as `stat(2)` reports it.
    pub fn device(self) -> u64 {
        self.device
    }

    /// The number of the inode.
    pub fn inode(self) -> u64 {
        self.inode
    }

    /// Which file a path leads to.
    ///
    /// # Errors
    /// What `stat(2)` reports.
    pub fn of_path(path: &Path) -> io::Result<FileKey> {
        Ok(FileKey::of_metadata(&std::fs::metadata(path)?))
    }

    pub(super) fn of_metadata(metadata: &std::fs::Metadata) -> FileKey {
        FileKey { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(crate) fn of_descriptor(file: BorrowedFd<'_>) -> io::Result<FileKey> {
        // Miri has `statx(2)` alone, as the standard library calls it.
        if cfg!(miri) {
            let metadata = File::from(file.try_clone_to_owned()?).metadata()?;
            return Ok(FileKey { device: metadata.dev(), inode: metadata.ino() });
        }
        let stat = rustix::fs::fstat(file)?;
        Ok(FileKey { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// Length and times of a file at a check; two stamps show whether it has changed in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStamp {
    /// Length, bytes.
    pub length_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    age: StampAge,
}

/// Time between the last change and the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StampAge {
    /// So short that another change might not move the time.
    Fresh,
    /// So short that the write may still be under way: it moves the time when it begins.
    Young,
    /// Long.
    Old,
}

/// The changes that a comparison of stamps must not miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampTrust {
    /// A write that was under way at the first check may be missed until the stamp is old.
    Settling,
    /// No change may be missed.
    Strict,
}

impl FileStamp {
    /// The stamp of a file with this length and these times of change, of the contents and of the inode, which were asked for that long
    /// ago.
    pub fn of_answer(length_bytes: u64, times: [SystemTime; 2], asked: Duration) -> FileStamp {
        let [modified, changed] = times.map(parts_of);
        FileStamp::of_earlier(length_bytes, modified, changed, asked)
    }

    fn of(length_bytes: u64, modified: (i64, i64), changed: (i64, i64)) -> FileStamp {
        FileStamp::of_earlier(length_bytes, modified, changed, Duration::ZERO)
    }

    /// As it was when that much time had not passed yet: a change since may not have moved the times.
    fn of_earlier(
        length_bytes: u64,
        modified: (i64, i64),
        changed: (i64, i64),
        passed: Duration,
    ) -> FileStamp {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let passed = i128::from(now.tv_sec - changed.0) * 1_000_000_000 + i128::from(now.tv_nsec - changed.1)
            - passed.as_nanos() as i128;
        // A time in the future is another clock's (a network file system's): its ticks are not ours.
        let age = if passed <= -TICK_NANOSECONDS || passed >= WRITE_NANOSECONDS {
            StampAge::Old
        } else if passed >= TICK_NANOSECONDS {
            StampAge::Young
        } else {
            StampAge::Fresh
        };
        FileStamp { length_bytes, modified, changed, age }
    }

    /// Time of the last change of the contents: seconds since 1970 and nanoseconds.
    pub fn modified(&self) -> (i64, i64) {
        self.modified
    }

    /// Time of the last change of the inode, the contents included: seconds since 1970 and nanoseconds.
    pub fn changed(&self) -> (i64, i64) {
        self.changed
    }

    pub(super) fn with_length(self, length_bytes: u64) -> FileStamp {
        FileStamp { length_bytes, ..self }
    }

    /// The stamp as an old one, for a caller that made the change itself and knows that it is over: any later change moves the times.
    pub fn as_old(self) -> FileStamp {
        FileStamp { age: StampAge::Old, ..self }
    }

    /// Whether the last change was so short a time ago that another one might not move the time, where the kernel keeps that by its
    /// ticks alone.
    pub fn is_fresh(&self) -> bool {
        self.age == StampAge::Fresh
    }

    /// Whether the last change was so long ago that it is over.
    pub fn is_old(&self) -> bool {
        self.age == StampAge::Old
    }

    /// Whether length and times are the same, without regard to age.
    pub fn is_same(&self, later: &FileStamp) -> bool {
        let times = |stamp: &FileStamp| (stamp.length_bytes, stamp.modified, stamp.changed);
        times(self) == times(later)
    }

    /// Whether length and time of modification are the same: permissions, links or names may have changed, or a program has
    /// written and then set the time back.
    pub fn is_same_modification(&self, later: &FileStamp) -> bool {
        (self.length_bytes, self.modified) == (later.length_bytes, later.modified)
    }

    /// Whether bytes read after the file had this stamp are still valid when it has the later one.
    pub fn proves_unchanged(&self, later: &FileStamp, trust: StampTrust) -> bool {
        let is_equal = self.is_same(later);
        match self.age {
            StampAge::Fresh => false,
            // Bytes read while a write may have been under way are dropped once, when that write must be over.
            StampAge::Young => is_equal && trust == StampTrust::Settling && later.age == StampAge::Young,
            StampAge::Old => is_equal,
        }
    }
}

/// The longest tick of the kernel's clock for file times: 10 ms with `CONFIG_HZ=100`.
const TICK_NANOSECONDS: i128 = 10_000_000;

/// The longest that one write of another process is taken to last: 30 s, in which a slow disk writes the 2 GiB that a system
/// call takes at most at 70 MB/s.
const WRITE_NANOSECONDS: i128 = 30_000_000_000;

#[cfg(all(test, not(headwater_loom), not(miri)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::Driver;
    use crate::driver::choice::DriverOptions;
    use crate::file::{Access, DirectIo, OpenFile};

    /// Goal: the stamp of an answer is that of the file, with times of every kind, and counts as young as it was when it was asked for.
    #[test]
    fn an_answer_is_as_a_look() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(OpenFile::open(named.path(), DirectIo::Off, Access::ReadWrite).unwrap());
        let driver = Driver::new(&DriverOptions::default()).unwrap();
        let away = [0, 1, 1_500_000_000, 2_000_000_000].map(Duration::from_nanos);
        for time in
            away.iter().flat_map(|&away| [SystemTime::UNIX_EPOCH - away, SystemTime::UNIX_EPOCH + away])
        {
            named.as_file().set_modified(time).unwrap();
            let answer = driver.ask_server(&file).wait().result.unwrap();
            let (_, looked) = file.identity().unwrap();
            let times = [answer.modified, answer.changed];
            assert!(
                FileStamp::of_answer(answer.length_bytes, times, Duration::ZERO).is_same(&looked),
                "{time:?}"
            );
        }
        let age = |changed: Duration, asked| {
            let times = [SystemTime::now() - changed; 2];
            let stamp = FileStamp::of_answer(0, times, asked);
            (stamp.is_fresh(), stamp.is_old())
        };
        let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
        assert_eq!(age(hour, Duration::ZERO), (false, true));
        assert_eq!(age(hour, hour), (true, false));
        assert_eq!(age(minute, minute - Duration::from_secs(5)), (false, false));
    }

    /// Goal: bytes are kept where no write can have come between two looks: not after a change so short ago that the next may have the same
    /// time, once more after one that may still have been under way, always after an old one; never where anything differs.
    #[test]
    fn what_a_stamp_proves() {
        use StampTrust::{Settling, Strict};
        let hour = Duration::from_secs(3600);
        let times = [SystemTime::now() - hour; 2];
        let [fresh, young, old] = [hour, hour - Duration::from_secs(5), Duration::ZERO]
            .map(|asked| FileStamp::of_answer(7, times, asked));
        let ages = |stamp: FileStamp| (stamp.is_fresh(), stamp.is_old());
        assert_eq!([fresh, young, old].map(ages), [(true, false), (false, false), (false, true)]);
        let proves = |first: FileStamp, later: FileStamp| {
            [Settling, Strict].map(|trust| first.proves_unchanged(&later, trust))
        };
        for later in [fresh, young, old] {
            assert_eq!(proves(fresh, later), [false, false], "{later:?}");
            assert_eq!(proves(old, later), [true, true], "{later:?}");
            let longer = later.with_length(8);
            [fresh, young, old].iter().for_each(|&first| assert_eq!(proves(first, longer), [false, false]));
            let moved =
                FileStamp::of_answer(7, [times[0], times[1] + Duration::from_nanos(1)], Duration::ZERO);
            assert_eq!(proves(old, FileStamp { age: later.age, ..moved }), [false, false]);
        }
        assert_eq!(proves(young, young), [true, false]);
        assert_eq!(proves(young, old), [false, false]);
    }
}
