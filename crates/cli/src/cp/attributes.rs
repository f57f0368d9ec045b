//! Attributes: permissions, times and extended attributes of a copy.
//!
//! ```text
//!   without --preserve: permissions less the umask, or what the directory's default access control list says in its place
//!   with it, each as it is wanted: owner ─► extended attributes ─► inherited access control lists go ─► permissions ─► the source's
//!   access control lists ─► times, last
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

/// Sets the permissions. On a file system that has none the file keeps those that it has.
fn set_mode(target: &File, bits: u32, kept: Kept) -> io::Result<()> {
    match rustix::fs::fchmod(target, Mode::from_raw_mode(bits)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) if kept.forgives(error, Holder::Open(target.as_fd())) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives the copy of a stream the permissions of a new file in `directory`, less those that the stream does not have.
///
/// # Errors
/// What the system calls report.
pub(super) fn permit_stream(
    stream: &Metadata,
    target: &File,
    directory: &Path,
    kept: Kept,
) -> io::Result<()> {
    let withheld = withheld(|buffer| getxattr(directory, DEFAULT_LIST, buffer))?;
    set_mode(target, stream.mode() & 0o666 & !withheld, kept)
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
    /// Whether this command has made what gets them. Where it belongs to another user nevertheless, the file system has owners of its own choice
    /// (vfat, exFAT, SMB), and what that refuses is left out.
    is_new: bool,
}

impl Kept {
    pub(super) fn of(arguments: &CopyArguments) -> Kept {
        Kept {
            mode: arguments.keeps(Attribute::Mode),
            ownership: arguments.keeps(Attribute::Ownership),
            timestamps: arguments.keeps(Attribute::Timestamps),
            xattr: arguments.keeps(Attribute::Xattr),
            needs_xattr: arguments.preserve.contains(&Attribute::Xattr),
            is_new: true,
        }
    }

    /// For a file or a directory that was there before.
    pub(super) fn of_existing(self) -> Kept {
        Kept { is_new: false, ..self }
    }

    /// Whether a refusal is the file system's, and no reason to fail.
    fn forgives(self, error: Errno, target: Holder<'_>) -> bool {
        self.is_new && error == Errno::PERM && target.is_of_another()
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
    let kept = if is_new { kept } else { kept.of_existing() };
    let (from, to) = (Holder::Open(source.as_fd()), Holder::Open(target.as_fd()));
    if kept.ownership {
        give(metadata, target)?;
    }
    copy_extended(from, to, Extended::Others, kept)?;
    if kept.mode {
        let copy = target.metadata()?;
        if kept.ownership && owners(&copy) != owners(metadata) {
            // It meant the group of the source.
            bits &= !SETGID_BIT;
        }
        // As GNU cp: bits of the source's own replace what the directory around has given, and else that stays.
        let inherited = if bits > PERMISSION_BITS { 0 } else { copy.permissions().mode() & SETGID_BIT };
        to.remove_lists(kept)?;
        set_mode(target, from.without_list(bits | inherited)?, kept)?;
    } else if is_new {
        // Whether what is made in it inherits its group is the choice of the directory around it.
        let made = target.metadata()?.permissions().mode() & ALL_BITS;
        // It has inherited the default list of the directory around it.
        let withheld = withheld(|buffer| fgetxattr(target, DEFAULT_LIST, buffer))?;
        let wanted = bits & !SETGID_BIT & !withheld | made & SETGID_BIT;
        if made != wanted {
            set_mode(target, wanted, kept)?;
        }
    }
    copy_extended(from, to, Extended::Lists, kept)?;
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
            // Nor is an owner given that this user namespace does not have.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (from, to) = (Holder::Named(source), Holder::Named(target));
    copy_extended(from, to, Extended::Others, kept)?;
    if kept.mode && !metadata.is_symlink() {
        to.remove_lists(kept)?;
        let bits = from.without_list(metadata.mode() & PERMISSION_BITS)?;
        std::fs::set_permissions(target, Permissions::from_mode(bits))?;
    }
    copy_extended(from, to, Extended::Lists, kept)?;
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
        // Forbidden, or without that owner in this user namespace.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::INVAL)) => {
            // The group alone, if this user is in it.
            let _ = std::os::unix::fs::fchown(target, None, Some(group));
            Ok(())
        }
        given => given,
    }
}

/// Gives `target` the attributes of the source that are kept. If it is new, made in the directory `made_in`, and those of the source are not kept,
/// it gets its permissions less those that a new file does not get there.
///
/// # Errors
/// What the system calls report, except for attributes outside of `user.` that this user may not set or the file system does not have.
pub(super) fn set(
    source: &OpenFile,
    metadata: &Metadata,
    target: &File,
    made_in: Option<&Path>,
    kept: Kept,
) -> io::Result<()> {
    if kept.ownership {
        give(metadata, target)?;
    }
    let (from, to) = (Holder::Open(source.buffered()), Holder::Open(target.as_fd()));
    let is_regular = source.kind() == FileKind::Regular;
    if is_regular {
        copy_extended(from, to, Extended::Others, kept)?;
    }
    if kept.mode {
        let is_same_owner = target.metadata().is_ok_and(|copy| owners(&copy) == owners(metadata));
        to.remove_lists(kept)?;
        let bits =
            if is_regular && is_same_owner { metadata.mode() & ALL_BITS } else { mode(source, metadata) };
        set_mode(target, from.without_list(bits)?, kept)?;
    } else if let Some(directory) = made_in {
        let withheld = withheld(|buffer| getxattr(directory, DEFAULT_LIST, buffer))?;
        set_mode(target, mode(source, metadata) & !withheld, kept)?;
    }
    if is_regular {
        copy_extended(from, to, Extended::Lists, kept)?;
    }
    keep_times(metadata, target, kept)
}

/// Gives `target` the times of the source, if they are kept.
///
/// # Errors
/// What the system calls report.
pub(super) fn keep_times(metadata: &Metadata, target: &File, kept: Kept) -> io::Result<()> {
    if !kept.timestamps {
        return Ok(());
    }
    let set = target.set_times(times(metadata)?);
    set.or_else(|error| match Errno::from_io_error(&error) {
        Some(errno) if kept.forgives(errno, Holder::Open(target.as_fd())) => Ok(()),
        _ => Err(error),
    })
}

/// Gives the copy of a stream the attributes of the stream that are kept.
///
/// # Errors
/// As [`set`].
pub(super) fn preserve_of_stream(
    path: &Path,
    metadata: &Metadata,
    target: &File,
    kept: Kept,
) -> io::Result<()> {
    if kept.ownership {
        give(metadata, target)?;
    }
    let (from, to) = (Holder::Named(path), Holder::Open(target.as_fd()));
    copy_extended(from, to, Extended::Others, kept)?;
    if kept.mode {
        to.remove_lists(kept)?;
        set_mode(target, from.without_list(metadata.mode() & PERMISSION_BITS)?, kept)?;
    }
    copy_extended(from, to, Extended::Lists, kept)?;
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
    let of = |wanted| entry_of(list, wanted);
    let group = of(MASK_ENTRY).or_else(|| of(GROUP_ENTRY));
    of(OWNER_ENTRY).unwrap_or(0) << 6 | group.unwrap_or(0) << 3 | of(OTHERS_ENTRY).unwrap_or(0)
}

/// The permissions in the first entry of a list with this tag.
fn entry_of(list: &[u8], wanted: u16) -> Option<u32> {
    let mut entries = list.get(LIST_HEADER_BYTES..).unwrap_or_default().chunks_exact(LIST_ENTRY_BYTES);
    let found = entries.find(|entry| entry[..2] == wanted.to_le_bytes());
    found.map(|entry| u32::from(entry[2]) & 7)
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

    /// Whether it belongs to another user: what this user has made does where the file system has owners of its own choice.
    fn is_of_another(self) -> bool {
        let found = match self {
            Holder::Open(file) => rustix::fs::fstat(file),
            Holder::Named(path) => rustix::fs::lstat(path),
        };
        found.is_ok_and(|found| found.st_uid != rustix::process::geteuid().as_raw())
    }

    /// What is left of its permissions for a copy that has not its access control list, or not yet: with a list, the list's mask stands in the place
    /// of what the group may do.
    fn without_list(self, bits: u32) -> io::Result<u32> {
        match whole(|buffer| self.get(ACCESS_LIST, buffer)) {
            Ok(list) => Ok(bits & !(!(entry_of(&list, GROUP_ENTRY).unwrap_or(0) << 3) & 0o070)),
            // None is there, or can be.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(bits),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the access control lists that the directory has given it: they would let in what the source keeps out.
    fn remove_lists(self, kept: Kept) -> io::Result<()> {
        for name in [ACCESS_LIST, DEFAULT_LIST] {
            let removed = match self {
                Holder::Open(file) => fremovexattr(file, name),
                Holder::Named(path) => lremovexattr(path, name),
            };
            match removed {
                // None is there, or can be.
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                // Only directories have default lists.
                Err(Errno::ACCESS | Errno::PERM | Errno::INVAL) if name == DEFAULT_LIST => {}
                Err(error) if kept.forgives(error, self) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Which extended attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extended {
    /// Access control lists: permissions, and set after those that the list stands above.
    Lists,
    /// The others: set while this user may write to the copy, which attributes of `user.` need.
    Others,
}

fn copy_extended(source: Holder<'_>, target: Holder<'_>, which: Extended, kept: Kept) -> io::Result<()> {
    let is_kept = match which {
        Extended::Lists => kept.mode,
        Extended::Others => kept.xattr,
    };
    if !is_kept {
        return Ok(());
    }
    let names = match whole(|buffer| source.list(buffer)) {
        // A file system that has none.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        names => names?,
    };
    for name in names.split_inclusive(|&byte| byte == 0) {
        if name.starts_with(b"system.posix_acl_") != (which == Extended::Lists) {
            continue;
        }
        let name = CString::from_vec_with_nul(name.to_vec()).map_err(|_| Errno::INVAL)?;
        let value = match whole(|buffer| source.get(&name, buffer)) {
            // Taken away meanwhile.
            Err(Errno::NODATA) => continue,
            value => value?,
        };
        match target.set(&name, &value) {
            Ok(()) => {}
            Err(error)
                if is_for_another_place(error)
                    && !(kept.needs_xattr && name.as_bytes().starts_with(b"user.")) => {}
            Err(error) => {
                let text =
                    format!("its extended attribute {} cannot be set: {error}", name.to_string_lossy());
                return Err(io::Error::other(text));
            }
        }
    }
    Ok(())
}

/// Whether an attribute is refused for what the file system is: it has none of that kind, or none that large (ext4: 4 KiB).
fn is_for_another_place(error: Errno) -> bool {
    let of_kind = [Errno::OPNOTSUPP, Errno::PERM, Errno::ACCESS];
    let of_size = [Errno::NOSPC, Errno::DQUOT, Errno::TOOBIG, Errno::RANGE, Errno::INVAL];
    of_kind.contains(&error) || of_size.contains(&error)
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

/// The access control list of a file.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

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
