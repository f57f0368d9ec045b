//! Identity: the device number and the file system's UUID of a descriptor.
//!
//! Owns: the two system calls.
//! Does not own: names of devices and mounts (text in `/proc` and sysfs).

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

/// The device that a file lies on, as major and minor number; of a block device, its own. One syscall.
///
/// # Errors
/// What `fstat(2)` reports.
pub fn device_number(file: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let stat = rustix::fs::fstat(file)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let device = if is_device { stat.st_rdev } else { stat.st_dev };
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// The UUID of the file system that a file lies on. `None` before Linux 6.9, and for file systems without one.
pub fn file_system_uuid(file: BorrowedFd<'_>) -> Option<[u8; 16]> {
    // SAFETY: FS_IOC_GETFSUUID writes a `struct fsuuid2`, which is what `FileSystemUuid` is, and nothing beyond it.
    let answer = unsafe { ioctl(file, Getter::<FS_IOC_GETFSUUID, FileSystemUuid>::new()) }.ok()?;
    let is_whole = usize::from(answer.length) == answer.uuid.len();
    (is_whole && answer.uuid != [0; 16]).then_some(answer.uuid)
}

/// `struct fsuuid2` of `linux/fs.h`.
#[repr(C)]
struct FileSystemUuid {
    length: u8,
    uuid: [u8; 16],
}

const FS_IOC_GETFSUUID: Opcode = opcode::read::<FileSystemUuid>(0x15, 0);

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Goal: the number is that of `stat(2)`, and the same UUID comes each time, or none.
    #[test]
    #[cfg_attr(miri, ignore)] // needs system calls that miri does not have
    fn a_file_and_its_directory_agree() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        let directory = std::fs::File::open(place.path()).unwrap();
        let device = file.metadata().unwrap().dev();
        let expected = (rustix::fs::major(device), rustix::fs::minor(device));
        assert_eq!(device_number(file.as_fd()).unwrap(), expected);
        assert_eq!(device_number(directory.as_fd()).unwrap(), expected);
        assert_eq!(file_system_uuid(file.as_fd()), file_system_uuid(directory.as_fd()));
    }
}
