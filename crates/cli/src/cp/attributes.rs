//! Attributes: permissions, times and extended attributes of a copy.
//!
//! ```text
//!   without --preserve: permissions less the umask
//!   with it: permissions as they are ─► extended attributes, access control lists among them ─► times, last
//! ```
//!
//! Owns: which attributes a copy gets.
//! Does not own: its contents, its name.

use std::ffi::CString;
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::OnceLock;

use headwater::ring::{FileKind, OpenFile};
use rustix::fs::{Mode, XattrFlags, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;

/// Gives `target` the permissions of the source, less the umask.
///
/// # Errors
/// What `fchmod(2)` reports.
pub(super) fn permit(source: &OpenFile, metadata: &Metadata, target: &File) -> io::Result<()> {
    target.set_permissions(Permissions::from_mode(mode(source, metadata) & !mask()))
}

/// Gives a copied directory its permissions, and if they are preserved its owner and times.
///
/// # Errors
/// What the system calls report.
pub(super) fn set_on_directory(metadata: &Metadata, target: &File, preserve: bool) -> io::Result<()> {
    let bits = metadata.permissions().mode() & DIRECTORY_BITS;
    if !preserve {
        return target.set_permissions(Permissions::from_mode(bits & !mask()));
    }
    give(metadata, target)?;
    target.set_permissions(Permissions::from_mode(bits))?;
    target.set_times(FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?))
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

/// Gives `target` owner, permissions, extended attributes and times of the source.
///
/// # Errors
/// What the system calls report, except for attributes outside of `user.` that this user may not set or the file system does not have.
pub(super) fn preserve(source: &OpenFile, metadata: &Metadata, target: &File) -> io::Result<()> {
    give(metadata, target)?;
    target.set_permissions(Permissions::from_mode(mode(source, metadata)))?;
    if source.kind() == FileKind::Regular {
        copy_extended(source.buffered(), target)?;
    }
    let times = FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?);
    target.set_times(times)
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

fn copy_extended(source: BorrowedFd<'_>, target: &File) -> io::Result<()> {
    let names = match whole(|buffer| flistxattr(source, buffer)) {
        // A file system that has none.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        names => names?,
    };
    for name in names.split_inclusive(|&byte| byte == 0) {
        let name = CString::from_vec_with_nul(name.to_vec()).map_err(|_| Errno::INVAL)?;
        let copied = whole(|buffer| fgetxattr(source, &name, buffer))
            .and_then(|value| fsetxattr(target, &name, &value, XattrFlags::empty()));
        match copied {
            // Taken away meanwhile.
            Ok(()) | Err(Errno::NODATA) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) if !name.as_bytes().starts_with(b"user.") => {
            }
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

/// The longest list of names, and the longest value, that the kernel takes (`XATTR_SIZE_MAX`).
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// The bits for reading, writing and executing: a copy does not become setuid or setgid.
const PERMISSION_BITS: u32 = 0o777;

/// The same, the sticky bit and the inheritance of the group.
const DIRECTORY_BITS: u32 = 0o3777;

/// As a partition holds the files of all users.
const PRIVATE: u32 = 0o600;
