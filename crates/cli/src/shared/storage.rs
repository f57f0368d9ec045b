//! Storage: the file system and the block device that a file is stored on, as the system describes them.
//!
//! Owns: the facts and their sources (`proc_pid_mountinfo(5)`, sysfs).
//! Does not own: which facts a command shows.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The storage of a file. Empty texts and `None` mean that the system does not report the fact.
#[derive(Serialize, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) file_system: String,
    pub(crate) device: String,
    /// `major:minor`, as sysfs names it.
    pub(crate) device_number: String,
    pub(crate) read_ahead_kb: Option<u64>,
    pub(crate) logical_block_bytes: Option<u64>,
    pub(crate) rotational: Option<bool>,
    /// Whether the device completes polled I/O.
    pub(crate) polls: Option<bool>,
}

impl Storage {
    pub(crate) fn of(path: &Path) -> Storage {
        let Ok(metadata) = fs::metadata(path) else { return Storage::default() };
        if metadata.file_type().is_block_device() {
            return Storage { device: path.display().to_string(), ..Storage::on(metadata.rdev()) };
        }
        let mount = mount_of(metadata.dev(), path).unwrap_or_default();
        let mut storage = Storage::on(metadata.dev());
        if !Path::new(&format!("/sys/dev/block/{}", storage.device_number)).exists()
            && let Some(device) = block_device(&mount.source)
        {
            // Some file systems (btrfs) have device numbers of their own.
            let own = std::mem::replace(&mut storage, Storage::on(device));
            storage.read_ahead_kb = own.read_ahead_kb.or(storage.read_ahead_kb);
        }
        Storage { file_system: mount.file_system, device: mount.source, ..storage }
    }

    /// The attributes of a device in sysfs.
    fn on(device: u64) -> Storage {
        let device_number = number_of(device);
        let queue = |name: &str| number_in(&queue_path(&device_number)?.join(name));
        Storage {
            read_ahead_kb: number_in(&read_ahead_path(&device_number)).or_else(|| queue("read_ahead_kb")),
            logical_block_bytes: queue("logical_block_size"),
            rotational: queue("rotational").map(|number| number == 1),
            polls: queue("io_poll").map(|number| number == 1),
            device_number,
            ..Storage::default()
        }
    }
}

/// The sysfs file that sets the kernel's readahead for a file; `None` where there is none.
pub(crate) fn read_ahead_setting(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    let number = number_of(if is_device { metadata.rdev() } else { metadata.dev() });
    let of_queue = queue_path(&number).map(|queue| queue.join("read_ahead_kb"));
    [Some(read_ahead_path(&number)), of_queue].into_iter().flatten().find(|setting| setting.exists())
}

#[derive(Default)]
struct Mount {
    file_system: String,
    source: String,
}

/// The mount with this device number. Subvolumes of Btrfs have numbers that no mount has: then the innermost mount above the path.
fn mount_of(device: u64, path: &Path) -> Option<Mount> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (wanted, path) = (number_of(device), fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
    let by_number = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&wanted));
    let around = |line: &&str| line.split(' ').nth(4).is_some_and(|point| path.starts_with(unescaped(point)));
    let length = |line: &&str| line.split(' ').nth(4).map_or(0, str::len);
    let mount = by_number.or_else(|| mounts.lines().filter(around).max_by_key(length))?;
    let mut words = mount.split_once(" - ")?.1.split(' ');
    Some(Mount { file_system: words.next()?.to_owned(), source: words.next()?.to_owned() })
}

/// A path of `mountinfo`, where a space is written `\040`, in octal, as are tabs, line feeds and backslashes.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut parts = text.split('\\');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part[3..].bytes());
            }
            None => bytes.extend(part.bytes()),
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

fn block_device(source: &str) -> Option<u64> {
    let metadata = fs::metadata(source).ok().filter(|_| source.starts_with('/'))?;
    metadata.file_type().is_block_device().then(|| metadata.rdev())
}

fn number_of(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

fn read_ahead_path(device_number: &str) -> PathBuf {
    PathBuf::from(format!("/sys/class/bdi/{device_number}/read_ahead_kb"))
}

/// The directory of the request queue; a partition uses that of its disk.
fn queue_path(device_number: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/sys/dev/block/{device_number}"));
    [folder.join("queue"), folder.join("../queue")].into_iter().find(|queue| queue.exists())
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file and its directory are on the same storage, and its file system has a name.
    #[test]
    fn files_lie_where_their_directories_do() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, "abc").unwrap();
        let storage = Storage::of(&path);
        assert_eq!(storage, Storage::of(place.path()));
        assert!(!storage.file_system.is_empty(), "{storage:?}");
        assert_eq!(Storage::of(Path::new("/nowhere")), Storage::default());
    }

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescaped("/mnt"), Path::new("/mnt"));
        assert_eq!(unescaped(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescaped(r"/a\b"), Path::new("/ab"));
    }
}
