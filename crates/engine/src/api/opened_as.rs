//! Opened as: what the kernel reported about a file when it was opened.

use crate::api::contents::Contents;
use crate::api::file::File;

/// Identity, length and times of a file at the moment of opening. Two of them that are equal show that a path still leads to the
/// same, unchanged file, as far as its times tell. The values are those of `std::os::unix::fs::MetadataExt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenedAs {
    /// The number of the device.
    pub device: u64,
    /// The number of the inode.
    pub inode: u64,
    /// Length in bytes. Files in `/proc` and character devices report 0 although they have contents.
    pub length_bytes: u64,
    /// Time of the last change of the contents: seconds since 1970 and nanoseconds.
    pub modified: (i64, i64),
    /// Time of the last change of the inode, the contents included: seconds since 1970 and nanoseconds.
    pub changed: (i64, i64),
    /// Whether a server answers for the file, in another machine or in this one (FUSE): a call may last until it does.
    pub is_on_server: bool,
}

impl File {
    /// What the kernel reported about the file when this handle was opened: no system call. `None` for a file in memory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// use std::os::unix::fs::MetadataExt;
    /// let opened_as = headwater::File::open(&path)?.opened_as().expect("it is no file in memory");
    /// let now = std::fs::metadata(&path)?;
    /// assert_eq!((opened_as.inode, opened_as.length_bytes), (now.ino(), 3));
    /// assert_eq!(opened_as.changed, (now.ctime(), now.ctime_nsec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn opened_as(&self) -> Option<OpenedAs> {
        let Contents::Stored(source) = &self.contents else { return None };
        let opened = source.open.opened();
        Some(OpenedAs {
            device: opened.key.device(),
            inode: opened.key.inode(),
            length_bytes: opened.stamp.length_bytes,
            modified: opened.stamp.modified(),
            changed: opened.stamp.changed(),
            is_on_server: source.open.may_not_answer(),
        })
    }
}
