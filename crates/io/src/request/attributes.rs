//! Attributes: what `statx(2)` says of a file.
//!
//! Owns: their form for callers.
//! Does not own: asking for them (operations), what headwater itself derives from them (`file`).

use std::time::{Duration, SystemTime};

use rustix::fs::{Statx, StatxFlags, StatxTimestamp, makedev};

/// What [`Call::attributes`](crate::Call::attributes) returns.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Attributes {
    /// Type of the file and permissions, as `st_mode` of `stat(2)`.
    pub mode: u32,
    /// Length in bytes.
    pub length_bytes: u64,
    /// Bytes that are allocated for it.
    pub allocated_bytes: u64,
    /// Device that the file is on.
    pub device: u64,
    /// Number of the file on that device.
    pub inode: u64,
    /// Names of the file.
    pub links: u32,
    /// User that owns it.
    pub user: u32,
    /// Group that owns it.
    pub group: u32,
    /// Last read, as far as the mount notes it.
    pub accessed: SystemTime,
    /// Last change of the contents.
    pub modified: SystemTime,
    /// Last change of contents or attributes.
    pub changed: SystemTime,
    /// When it was created, where the file system stores that.
    pub created: Option<SystemTime>,
    /// Alignments of memory and of offsets that `O_DIRECT` demands (Linux 6.1); `None` where kernel or file system does not say, or there
    /// is no direct I/O.
    pub direct_alignments_bytes: Option<(u32, u32)>,
}

impl Attributes {
    pub(crate) fn of(found: &Statx) -> Attributes {
        let has = |flag: StatxFlags| found.stx_mask & flag.bits() != 0;
        let direct = (found.stx_dio_mem_align, found.stx_dio_offset_align);
        Attributes {
            mode: found.stx_mode.into(),
            length_bytes: found.stx_size,
            allocated_bytes: found.stx_blocks * 512,
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            links: found.stx_nlink,
            user: found.stx_uid,
            group: found.stx_gid,
            accessed: time_of(found.stx_atime),
            modified: time_of(found.stx_mtime),
            changed: time_of(found.stx_ctime),
            created: has(StatxFlags::BTIME).then(|| time_of(found.stx_btime)),
            direct_alignments_bytes: (has(StatxFlags::DIOALIGN) && direct.1 > 0).then_some(direct),
        }
    }
}

/// Nanoseconds count upwards, also before 1970.
fn time_of(time: StatxTimestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    let second =
        if time.tv_sec < 0 { SystemTime::UNIX_EPOCH - seconds } else { SystemTime::UNIX_EPOCH + seconds };
    second + Duration::from_nanos(time.tv_nsec.into())
}
