//! Status: which file a path leads to, and what tells whether it has changed.
//!
//! Owns: the comparison, the tag and the time that objects show.
//! Does not own: asking the kernel (store, `headwater`).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use headwater::OpenedAs;
use rustix::fs::Statx;

/// Identity, length and times of a file. Two equal ones: the same file, unchanged as far as its times show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    device: u64,
    inode: u64,
    pub(crate) length_bytes: u64,
    /// Seconds since 1970 and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Status {
    /// When the contents were changed last.
    pub(crate) fn last_modified(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.modified;
        let seconds_away = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 {
            SystemTime::UNIX_EPOCH - seconds_away
        } else {
            SystemTime::UNIX_EPOCH + seconds_away
        };
        second + Duration::from_nanos(nanoseconds.unsigned_abs())
    }

    /// As `LocalFileSystem` makes it, but for the quotes that versions from 0.14 on put around it: inode, microseconds since 1970 (0 for
    /// earlier times) and length.
    pub(crate) fn e_tag(&self) -> String {
        let since = self.last_modified().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        format!("{:x}-{:x}-{:x}", self.inode, since.as_micros(), self.length_bytes)
    }
}

impl From<&Statx> for Status {
    fn from(found: &Statx) -> Status {
        let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, i64::from(time.tv_nsec));
        Status {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            length_bytes: found.stx_size,
            modified: time(found.stx_mtime),
            changed: time(found.stx_ctime),
        }
    }
}

impl From<&Metadata> for Status {
    fn from(metadata: &Metadata) -> Status {
        Status {
            device: metadata.dev(),
            inode: metadata.ino(),
            length_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl From<OpenedAs> for Status {
    fn from(opened: OpenedAs) -> Status {
        Status {
            device: opened.device,
            inode: opened.inode,
            length_bytes: opened.length_bytes,
            modified: opened.modified,
            changed: opened.changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a path and the file opened by it have the same status, and times before 1970 are what the standard library makes of them.
    #[test]
    fn statuses_agree_with_the_standard_library() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for since in [Duration::ZERO, Duration::from_millis(1500)] {
            for time in [SystemTime::UNIX_EPOCH - since, SystemTime::UNIX_EPOCH + since] {
                file.as_file().set_modified(time).unwrap();
                let status = Status::from(&file.as_file().metadata().unwrap());
                assert_eq!(status.last_modified(), time);
                let opened = headwater::File::open(file.path()).unwrap();
                assert_eq!(status, Status::from(opened.opened_as().unwrap()));
            }
        }
    }
}
