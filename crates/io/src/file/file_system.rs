//! File system: the kind of a file's file system, which decides whether this kernel sees all writers of the file.
//!
//! Owns: the kinds, by the magic numbers of `statfs(2)` and <linux/magic.h>.
//! Does not own: the consequences for caching.

use std::fs::File;

use super::status::FileKey;
use crate::system::known::KnownNumber;

/// What kind of file system a file lies on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileSystem {
    /// On a device of this machine or in its memory: every change of the file goes through this kernel and this file system.
    Local,
    /// Files of other file systems, which can be changed there too: overlayfs, eCryptfs, aufs.
    Overlay,
    /// Shared with other machines or with the host of a virtual one: NFS, SMB, 9p, Ceph, AFS, Lustre, OCFS2, GFS2 and others.
    Network,
    /// A program in user space serves the files and may change them: FUSE, virtiofs among it.
    User,
    /// None of the known ones, and without a block device of its own: procfs, for instance.
    Unknown,
}

impl FileSystem {
    /// One system call; [`FileSystem::Unknown`] if it fails.
    pub(super) fn of(file: &File, key: FileKey) -> FileSystem {
        // On some targets the number is signed; the kernel compares 32 bits of it.
        let magic = rustix::fs::fstatfs(file).map(|status| status.f_type as u32);
        match magic {
            Ok(magic) => FileSystem::known(magic).unwrap_or(match key.is_on_no_device() {
                true => FileSystem::Unknown,
                false => FileSystem::Local,
            }),
            Err(_) => FileSystem::Unknown,
        }
    }

    fn known(magic: u32) -> Option<FileSystem> {
        let kinds = [
            (FileSystem::Local, LOCAL),
            (FileSystem::Overlay, OVERLAY),
            (FileSystem::Network, NETWORK),
            (FileSystem::User, USER),
        ];
        kinds.into_iter().find(|(_, magics)| magics.contains(&magic)).map(|(kind, _)| kind)
    }
}

/// Whether the kernel and the file system keep multigrain timestamps. One system call, once the kernel is known to be new enough.
pub(super) fn has_fine_times(file: &File) -> bool {
    is_multigrain_kernel()
        && rustix::fs::fstatfs(file).is_ok_and(|status| FINE.contains(&(status.f_type as u32)))
}

/// Whether the kernel has multigrain timestamps: Linux 6.13. Looked up once.
fn is_multigrain_kernel() -> bool {
    static IS: KnownNumber = KnownNumber::new();
    IS.is(|| {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers =
            release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 13)
    })
}

/// ext4, XFS, Btrfs, tmpfs: `FS_MGTIME` in Linux 6.13.
const FINE: &[u32] = &[0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994];

/// Those without a block device of their own: tmpfs, ramfs, hugetlbfs, Btrfs, bcachefs, ZFS, UBIFS, JFFS2.
const LOCAL: &[u32] =
    &[0x0102_1994, 0x8584_58F6, 0x9584_58F6, 0x9123_683E, 0xCA45_1A4E, 0x2FC1_2FC1, 0x2405_1905, 0x72B6];

/// overlayfs, eCryptfs, aufs.
const OVERLAY: &[u32] = &[0x794C_7630, 0xF15F, 0x6175_6673];

/// NFS, SMB (three generations), 9p, Ceph, AFS (two), Coda, Lustre, GPFS, BeeGFS, OrangeFS, OCFS2, GFS2, NCP; folders of the
/// host in VirtualBox, VMware, Parallels and User Mode Linux.
const NETWORK: &[u32] = &[
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x0102_1997,
    0x00C3_6400,
    0x5346_414F,
    0x6B41_4653,
    0x7375_7245,
    0x0BD0_0BD0,
    0x4750_4653,
    0x1983_0326,
    0x2003_0528,
    0x7461_636F,
    0x0116_1970,
    0x564C,
    0x786F_4256,
    0xBACB_ACBC,
    0x7C7C_6673,
    0x00C0_FFEE,
];

/// FUSE, also with a block device (`fuseblk`) and as virtiofs.
const USER: &[u32] = &[0x6573_5546];
