//! Attributes: permissions, times and extended attributes of a copy.
//!
//! ```text
//!   without --preserve: permissions less the umask, or what the directory's default access control list says in its place
//!   with it, each as it is wanted: owner ─► inherited access control lists go ─► permissions ─► extended attributes, the source's
//!   access control lists among them ─► times, last
//! ```
//!
//! Owns: which attributes a copy gets.
//! Does not own: its contents, its name.

use std::ffi::{CStr, CString};
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use headwater::ring::{FileKind, OpenFile};
use rustix::fs::{
    AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr,
    getxattr, lgetxattr, llistxattr, lremovexattr, lsetxattr,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::arguments::{Attribute, CopyArguments};

/// Gives `target`, which is made in `directory`, the permissions of the source, less those that a new file does not get there.
///
/// # Errors
/// What the system calls report.
pub(super) fn permit(
    source: &OpenFile,
    metadata: &Metadata,
    target: &File,
    directory: &Path,
) -> io::Result<()> {
    let withheld = withheld(|buffer| getxattr(directory, DEFAULT_LIST, buffer))?;
    set_mode(target, mode(source, metadata) & !withheld)
}

/// Sets the permissions of a new file. On a file system that has none it keeps those that it has.
fn set_mode(target: &File, bits: u32) -> io::Result<()> {
    let set = target.set_permissions(Permissions::from_mode(bits));
    set.or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        _ => Err(error),
    })
}

/// Gives the copy of a stream the permissions of a new file in `directory`, less those that the stream does not have.
///
/// # Errors
/// What the system calls report.
pub(super) fn permit_stream(stream: &Metadata, target: &File, directory: &Path) -> io::Result<()> {
    let withheld = withheld(|buffer| getxattr(directory, DEFAULT_LIST, buffer))?;
    set_mode(target, stream.mode() & 0o666 & !withheld)
}

/// Which attributes are those of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    mode: bool,
    ownership: bool,
    timestamps: bool,
    xattr: bool,
    /// Whether a copy fails that cannot have one of them: not if they are only among all that is kept.
    needs_xattr: bool,
}

impl Kept {
    pub(super) fn of(arguments: &CopyArguments) -> Kept {
        Kept {
            mode: arguments.keeps(Attribute::Mode),
            ownership: arguments.keeps(Attribute::Ownership),
            timestamps: arguments.keeps(Attribute::Timestamps),
            xattr: arguments.keeps(Attribute::Xattr),
            needs_xattr: arguments.preserve.contains(&Attribute::Xattr),
        }
    }

    pub(super) fn is_any(self) -> bool {
        self.mode || self.ownership || self.timestamps || self.xattr
    }
}

/// The permissions of a directory until all is in it. No other user may write to it meanwhile, nor read it if it is to have another owner or the
/// permissions of the source. Otherwise it is made as it stays, so that a user outside of its group need not change it: that takes away the
/// setgid bit.
pub(super) fn mode_of_new_directory(metadata: &Metadata, kept: Kept) -> u32 {
    let visible_bits = if kept.mode || kept.ownership { 0 } else { metadata.permissions().mode() & 0o1755 };
    visible_bits | FOR_THIS_USER
}

/// Gives a copied directory its attributes. A directory that was there before keeps those that are not taken from the source.
///
/// # Errors
/// What the system calls report.
pub(super) fn set_on_directory(
    source: &File,
    metadata: &Metadata,
    target: &File,
    is_new: bool,
    kept: Kept,
) -> io::Result<()> {
    let mut bits = metadata.permissions().mode() & DIRECTORY_BITS;
    if kept.ownership {
        give(metadata, target)?;
    }
    if kept.mode {
        let copy = target.metadata()?;
        if kept.ownership && owners(&copy) != owners(metadata) {
            // It meant the group of the source.
            bits &= !SETGID_BIT;
        }
        // As GNU cp: bits of the source's own replace what the directory around has given, and else that stays.
        let inherited = if bits > PERMISSION_BITS { 0 } else { copy.permissions().mode() & SETGID_BIT };
        Holder::Open(target.as_fd()).remove_lists()?;
        target.set_permissions(Permissions::from_mode(bits | inherited))?;
    } else if is_new {
        // Whether what is made in it inherits its group is the choice of the directory around it.
        let made = target.metadata()?.permissions().mode() & ALL_BITS;
        // It has inherited the default list of the directory around it.
        let withheld = withheld(|buffer| fgetxattr(target, DEFAULT_LIST, buffer))?;
        let wanted = bits & !SETGID_BIT & !withheld | made & SETGID_BIT;
        if made != wanted {
            target.set_permissions(Permissions::from_mode(wanted))?;
        }
    }
    copy_extended(Holder::Open(source.as_fd()), Holder::Open(target.as_fd()), kept)?;
    keep_times(metadata, target, kept)
}

/// Gives what is neither file nor directory its attributes; a symbolic link has no permissions of its own.
///
/// # Errors
/// What the system calls report.
pub(super) fn set_on_node(source: &Path, metadata: &Metadata, target: &Path, kept: Kept) -> io::Result<()> {
    if kept.ownership {
        let ids = (Some(Uid::from_raw(metadata.uid())), Some(Gid::from_raw(metadata.gid())));
        match rustix::fs::chownat(CWD, target, ids.0, ids.1, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if kept.mode && !metadata.is_symlink() {
        Holder::Named(target).remove_lists()?;
        std::fs::set_permissions(target, Permissions::from_mode(metadata.mode() & PERMISSION_BITS))?;
    }
    copy_extended(Holder::Named(source), Holder::Named(target), kept)?;
    if kept.timestamps {
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec()),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
        };
        rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn times(metadata: &Metadata) -> io::Result<FileTimes> {
    Ok(FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?))
}

/// Gives `target` owner and group of the source, as far as this user may.
fn give(metadata: &Metadata, target: &File) -> io::Result<()> {
    let [user, group] = [metadata.uid(), metadata.gid()];
    match std::os::unix::fs::fchown(target, Some(user), Some(group)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // The group alone, if this user is in it.
            let _ = std::os::unix::fs::fchown(target, None, Some(group));
            Ok(())
        }
        given => given,
    }
}

/// Gives `target` the attributes of the source that are kept.
///
/// # Errors
/// What the system calls report, except for attributes outside of `user.` that this user may not set or the file system does not have.
pub(super) fn preserve(source: &OpenFile, metadata: &Metadata, target: &File, kept: Kept) -> io::Result<()> {
    if kept.ownership {
        give(metadata, target)?;
    }
    if kept.mode {
        let is_same_owner = target.metadata().is_ok_and(|copy| owners(&copy) == owners(metadata));
        let is_whole = source.kind() == FileKind::Regular && is_same_owner;
        Holder::Open(target.as_fd()).remove_lists()?;
        let bits = if is_whole { metadata.mode() & ALL_BITS } else { mode(source, metadata) };
        target.set_permissions(Permissions::from_mode(bits))?;
    }
    if source.kind() == FileKind::Regular {
        copy_extended(Holder::Open(source.buffered()), Holder::Open(target.as_fd()), kept)?;
    }
    keep_times(metadata, target, kept)
}

/// Gives `target` the times of the source, if they are kept.
///
/// # Errors
/// What the system calls report.
pub(super) fn keep_times(metadata: &Metadata, target: &File, kept: Kept) -> io::Result<()> {
    if kept.timestamps { target.set_times(times(metadata)?) } else { Ok(()) }
}

/// Gives the copy of a stream the attributes of the stream that are kept.
///
/// # Errors
/// As [`preserve`].
pub(super) fn preserve_of_stream(
    path: &Path,
    metadata: &Metadata,
    target: &File,
    kept: Kept,
) -> io::Result<()> {
    if kept.ownership {
        give(metadata, target)?;
    }
    if kept.mode {
        Holder::Open(target.as_fd()).remove_lists()?;
        target.set_permissions(Permissions::from_mode(metadata.mode() & PERMISSION_BITS))?;
    }
    copy_extended(Holder::Named(path), Holder::Open(target.as_fd()), kept)?;
    keep_times(metadata, target, kept)
}

fn owners(metadata: &Metadata) -> (u32, u32) {
    (metadata.uid(), metadata.gid())
}

fn mode(source: &OpenFile, metadata: &Metadata) -> u32 {
    match source.kind() {
        FileKind::Regular => metadata.permissions().mode() & PERMISSION_BITS,
        // The permissions of a device govern its use, not its contents.
        _ => PRIVATE,
    }
}

/// The umask. The first call must come before other threads start, because reading the umask changes it for a moment.
pub(super) fn mask() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    *MASK.get_or_init(|| {
        let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        rustix::process::umask(mask);
        mask.bits()
    })
}

/// The permissions that a new file does not get in a directory with this default access control list: those that the list does not give,
/// or the umask where there is no list, as the kernel does (`acl(5)`).
fn withheld(list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<u32> {
    match whole(list) {
        Ok(list) => Ok(PERMISSION_BITS & !permitted(&list)),
        // None is there, or can be.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(mask()),
        Err(error) => Err(error.into()),
    }
}

/// The permissions that a list in the kernel's form (`linux/posix_acl_xattr.h`) gives at most: those of the owner, of all groups and further
/// users together, and of others.
fn permitted(list: &[u8]) -> u32 {
    let entries = list.get(LIST_HEADER_BYTES..).unwrap_or_default().chunks_exact(LIST_ENTRY_BYTES);
    let of = |wanted: u16| {
        let mut found = entries.clone().filter(|entry| entry[..2] == wanted.to_le_bytes());
        found.next().map(|entry| u32::from(entry[2]) & 7)
    };
    let group = of(MASK_ENTRY).or_else(|| of(GROUP_ENTRY));
    of(OWNER_ENTRY).unwrap_or(0) << 6 | group.unwrap_or(0) << 3 | of(OTHERS_ENTRY).unwrap_or(0)
}

/// What has extended attributes.
#[derive(Clone, Copy)]
enum Holder<'a> {
    Open(BorrowedFd<'a>),
    /// Not followed if it is a symbolic link.
    Named(&'a Path),
}

impl Holder<'_> {
    fn list(self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Holder::Open(file) => flistxattr(file, buffer),
            Holder::Named(path) => llistxattr(path, buffer),
        }
    }

    fn get(self, name: &CStr, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Holder::Open(file) => fgetxattr(file, name, buffer),
            Holder::Named(path) => lgetxattr(path, name, buffer),
        }
    }

    fn set(self, name: &CStr, value: &[u8]) -> rustix::io::Result<()> {
        match self {
            Holder::Open(file) => fsetxattr(file, name, value, XattrFlags::empty()),
            Holder::Named(path) => lsetxattr(path, name, value, XattrFlags::empty()),
        }
    }

    /// Removes the access control lists that the directory has given it: they would let in what the source keeps out.
    fn remove_lists(self) -> io::Result<()> {
        for name in [c"system.posix_acl_access", DEFAULT_LIST] {
            let removed = match self {
                Holder::Open(file) => fremovexattr(file, name),
                Holder::Named(path) => lremovexattr(path, name),
            };
            match removed {
                // None is there, or can be.
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                // Only directories have default lists.
                Err(Errno::ACCESS | Errno::PERM | Errno::INVAL) if name == DEFAULT_LIST => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn copy_extended(source: Holder<'_>, target: Holder<'_>, kept: Kept) -> io::Result<()> {
    if !kept.mode && !kept.xattr {
        return Ok(());
    }
    let names = match whole(|buffer| source.list(buffer)) {
        // A file system that has none.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        names => names?,
    };
    for name in names.split_inclusive(|&byte| byte == 0) {
        // Access control lists are permissions.
        if !(if name.starts_with(b"system.posix_acl_") { kept.mode } else { kept.xattr }) {
            continue;
        }
        let name = CString::from_vec_with_nul(name.to_vec()).map_err(|_| Errno::INVAL)?;
        let copied = whole(|buffer| source.get(&name, buffer)).and_then(|value| target.set(&name, &value));
        match copied {
            // Taken away meanwhile.
            Ok(()) | Err(Errno::NODATA) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS)
                if !kept.needs_xattr || !name.as_bytes().starts_with(b"user.") => {}
            Err(error) => {
                let text =
                    format!("its extended attribute {} cannot be set: {error}", name.to_string_lossy());
                return Err(io::Error::new(io::Error::from(error).kind(), text));
            }
        }
    }
    Ok(())
}

/// The whole result of a call, in a buffer that grows until the result fits.
fn whole(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; 1 << 10];
    loop {
        match call(&mut bytes) {
            Err(Errno::RANGE) if bytes.len() < ATTRIBUTE_BYTES_MAX => bytes.resize(2 * bytes.len(), 0),
            length => {
                bytes.truncate(length?);
                return Ok(bytes);
            }
        }
    }
}

/// The access control list that a directory gives to what is made in it.
const DEFAULT_LIST: &CStr = c"system.posix_acl_default";

/// The version.
const LIST_HEADER_BYTES: usize = 4;

/// Tag and permissions of 16 bits each, and a user or group of 32.
const LIST_ENTRY_BYTES: usize = 8;

/// The tags of `linux/posix_acl.h`.
const OWNER_ENTRY: u16 = 0x01;

const GROUP_ENTRY: u16 = 0x04;

const MASK_ENTRY: u16 = 0x10;

const OTHERS_ENTRY: u16 = 0x20;

/// The longest list of names, and the longest value, that the kernel takes (`XATTR_SIZE_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// All that `chmod(2)` sets. A copy is setuid or setgid for the same owner only.
const ALL_BITS: u32 = 0o7777;

/// The bits for reading, writing and executing.
const PERMISSION_BITS: u32 = 0o777;

/// The same, the sticky bit and the inheritance of the group.
const DIRECTORY_BITS: u32 = 0o3777;

/// `S_ISGID` of inode(7).
const SETGID_BIT: u32 = 0o2000;

/// All that its owner does with a directory.
const FOR_THIS_USER: u32 = 0o700;

/// As a partition holds the files of all users.
const PRIVATE: u32 = 0o600;
