//! Access: opens the ordinary descriptor of a file; the options of an opening, and the routes of a transfer.
//!
//! Owns: the options of an opening, and their flags of `open(2)`.
//! Does not own: the descriptor with `O_DIRECT` (direct), closing (descriptor).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::descriptor::{Descriptor, USUAL_PERMISSIONS};
use super::status::{FileKey, positioned_kind};

/// The descriptor of the file that a transfer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The `O_DIRECT` descriptor: offset, length and memory must be aligned as [`OpenFile::direct`](super::OpenFile::direct) says.
    Direct,
    /// The ordinary descriptor, through the kernel's page cache.
    Buffered,
}

/// Whether a file is to be opened for direct I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DirectIo {
    /// Opening fails where the file system refuses `O_DIRECT`.
    Required,
    /// Direct where possible.
    Preferred,
    /// Only through the kernel's page cache.
    Off,
}

/// What the descriptors are opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Access {
    /// Reading.
    #[default]
    Read,
    /// Reading and writing.
    ReadWrite,
    /// Writing alone, for a file that this process may not read. It has no direct I/O: a block that is written in part would have to be
    /// read first.
    Write,
}

impl Access {
    /// Whether bytes can be read by the descriptors.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether bytes can be written by the descriptors.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    pub(super) fn flags(self) -> OFlags {
        match self {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
            Access::Write => OFlags::WRONLY,
        }
    }
}

/// Whether opening creates the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// Creates the file if there is none.
    IfMissing,
    /// Creates the file, or fails if there is one already, or a symbolic link.
    New,
}

/// How a file is opened by its path, beside what for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Whether it is created.
    pub creation: Option<Creation>,
    /// The permissions of a new file, less the process's umask.
    pub permissions: u32,
    /// More flags of `open(2)`, none of those that [`Opening::check_flags`] refuses.
    pub flags: i32,
}

impl Default for Opening {
    /// A file that exists, without more flags.
    fn default() -> Self {
        Self { creation: None, permissions: USUAL_PERMISSIONS, flags: 0 }
    }
}

impl Opening {
    /// The flags without those of the access mode, which count for nothing, as with the standard library.
    ///
    /// # Errors
    /// `InvalidInput` for flags that would change what a transfer does: each is replaced by something that the text names.
    pub fn check_flags(flags: i32) -> io::Result<i32> {
        const DATA_SYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());
        const REFUSED: [(OFlags, &str, &str); 7] = [
            (OFlags::DIRECT, "O_DIRECT", "use OpenOptions::io with IoMode::Direct"),
            (OFlags::APPEND, "O_APPEND", "use OpenOptions::append"),
            (OFlags::TRUNC, "O_TRUNC", "use OpenOptions::truncate"),
            (OFlags::CREATE, "O_CREAT", "use OpenOptions::create"),
            (OFlags::EXCL, "O_EXCL", "use OpenOptions::create_new"),
            // Of `O_SYNC` it is a part.
            (
                DATA_SYNC,
                "O_SYNC or O_DSYNC",
                "use File::sync_all or sync_data after the writes, or File::append_durable",
            ),
            (OFlags::PATH, "O_PATH", "such a descriptor has no contents"),
        ];
        let given = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::ACCMODE;
        match REFUSED.iter().find(|(flag, ..)| given.contains(*flag)) {
            Some((_, name, instead)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name} as a custom flag: {instead}"),
            )),
            None => Ok(given.bits().cast_signed()),
        }
    }

    pub(super) fn custom_flags(&self) -> OFlags {
        OFlags::from_bits_retain(self.flags.cast_unsigned())
    }
}

/// What a descriptor that the program has opened is open for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// As the descriptor is. [`OpenFile::from_std`](super::OpenFile::from_std) opens a file for reading as well, if it may.
    pub access: Access,
    /// Whether it has `O_APPEND`.
    pub is_appending: bool,
    /// Whether transfers can use it as it is: with `O_APPEND`, writes would not go to their offset; with `O_DIRECT`, all would have
    /// to be aligned.
    pub(super) serves: bool,
}

impl Given {
    /// One system call.
    ///
    /// # Errors
    /// What `fcntl(2)` reports; `EBADF` for a descriptor with `O_PATH`.
    pub fn of(file: &File) -> io::Result<Given> {
        let flags = rustix::fs::fcntl_getfl(file)?;
        if flags.contains(OFlags::PATH) {
            return Err(rustix::io::Errno::BADF.into());
        }
        let access = match flags & OFlags::ACCMODE {
            mode if mode == OFlags::RDONLY => Access::Read,
            mode if mode == OFlags::WRONLY => Access::Write,
            _ => Access::ReadWrite,
        };
        let is_appending = access.writes() && flags.contains(OFlags::APPEND);
        Ok(Given { access, is_appending, serves: !flags.intersects(OFlags::APPEND | OFlags::DIRECT) })
    }
}

/// The ordinary descriptor. Opening does not wait for the other end of a FIFO, which is refused; [`let_wait`] then makes the
/// descriptor an ordinary one.
pub(super) fn open_unwaiting(path: &Path, flags: OFlags) -> io::Result<Descriptor> {
    // Miri has no such flag.
    let unwaiting = if cfg!(miri) { OFlags::empty() } else { OFlags::NONBLOCK };
    match Descriptor::open(path, flags | unwaiting) {
        // Another process holds a lease on the file: wait until it gives that up. A socket cannot be opened at all; say so.
        Err(error) if [Some(libc::EAGAIN), Some(libc::ENXIO)].contains(&error.raw_os_error()) => {
            let mode = std::fs::metadata(path)?.mode();
            positioned_kind(rustix::fs::FileType::from_raw_mode(mode))?;
            Descriptor::open(path, flags)
        }
        opened => opened,
    }
}

/// The ordinary descriptor of a file that may be new.
pub(super) fn create(
    path: &Path,
    flags: OFlags,
    permissions: u32,
    creation: Creation,
) -> io::Result<(Descriptor, IsNew)> {
    let flags = flags | OFlags::CREATE;
    match Descriptor::open_with(path, flags | OFlags::EXCL, permissions) {
        Ok(file) => return Ok((file, IsNew::Yes)),
        Err(error) if creation == Creation::New => return Err(error),
        // It is there, or is a link to nowhere; else the next attempt fails as well.
        Err(_) => {}
    }
    // Opening a FIFO would wait for its other end, so look before.
    match std::fs::metadata(path) {
        Ok(metadata) => _ = positioned_kind(rustix::fs::FileType::from_raw_mode(metadata.mode()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok((Descriptor::open_with(path, flags, permissions)?, IsNew::Unknown))
}

/// Removes a file that an opening has made and then failed to use, if the path still leads to it and it is still empty: another program
/// may have found it meanwhile.
pub(super) fn remove_created(path: &Path, key: FileKey) {
    let is_ours = |metadata: std::fs::Metadata| {
        metadata.is_file() && metadata.len() == 0 && FileKey::of_metadata(&metadata) == key
    };
    if std::fs::symlink_metadata(path).is_ok_and(is_ours) {
        _ = std::fs::remove_file(path);
    }
}

/// Whether an opening has made the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IsNew {
    Yes,
    Unknown,
}

/// Removes flags from a descriptor that was opened to be examined first: with `O_NONBLOCK`, requests on a ring would fail instead
/// of waiting.
pub(super) fn let_wait(file: &File) -> io::Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    Ok(rustix::fs::fcntl_setfl(file, OFlags::empty())?)
}
