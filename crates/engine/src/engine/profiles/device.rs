//! Device: the storage of a file, and a key by which it is recognised after a restart.
//!
//! ```text
//!   descriptor ─► mount (fdinfo, mountinfo) ─► kind of file system, source ─┬─ memory: no key
//!                                                 ├─ a block device below: kind, UUID or source, model
//!                                                 └─ network, overlay, others: kind, source
//! ```
//!
//! Device numbers (`254:0`) and names (`sda`) may change with every boot, so neither is part of a key where there is something
//! better. The UUID is the file system's own (`FS_IOC_GETFSUUID`, Linux 6.9), or that by which udev knows the device. The model
//! is part of the key because a file system can be moved to another disk.
//!
//! Owns: the key, and where its parts are found (`proc_pid_mountinfo(5)`, sysfs).
//! Does not own: the profiles stored under it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use headwater_io::{device_number, file_system_uuid};
use serde::Serialize;

/// The storage of a file. Empty strings mean that the system does not report the value.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Device {
    /// The key of its profile, the same after a restart; `None` where nothing can be tuned or identified.
    pub key: Option<String>,
    /// Kind of the file system: `ext4`; empty for a block device itself.
    pub file_system: String,
    /// What is mounted: `/dev/sda1`, `server:/export`.
    pub source: String,
    /// The disk's model, or its driver.
    pub model: String,
    /// The kind of storage.
    pub nature: Nature,
}

/// The kind of storage below a file.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Nature {
    /// A block device.
    Disk,
    /// Memory, without a device.
    Memory,
    /// Another machine, or the host of this virtual machine.
    Network,
    /// Several file systems, one on top of the other.
    Overlay,
    /// Something else, such as a program (FUSE).
    Other,
}

impl Device {
    /// The storage of an open file or directory; for a block device, itself.
    ///
    /// # Errors
    /// What `fstat(2)` reports.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Device> {
        let number = device_number(file)?;
        let linked = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        if fs::metadata(&linked)?.file_type().is_block_device() {
            return Ok(block_device(number, &fs::read_link(&linked).unwrap_or_default()));
        }
        let mount = mount_of(file).unwrap_or_default();
        Ok(on_mount(mount, number, file_system_uuid(file)))
    }

    /// In words: `ext4 on /dev/vda (virtio_blk)`.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use headwater::testing::profiles::Device;
    /// let device = Device::of(std::fs::File::open("/proc/version")?.as_fd())?;
    /// assert_eq!(device.words(), "proc on proc");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn words(&self) -> String {
        let model = if self.model.is_empty() { String::new() } else { format!(" ({})", self.model) };
        match (self.file_system.as_str(), self.source.as_str()) {
            ("", "") => "an unknown device".to_owned(),
            ("", source) => format!("{source}{model}"),
            (kind, "" | "none") => format!("{kind}{model}"),
            (kind, source) => format!("{kind} on {source}{model}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Mount {
    kind: String,
    source: String,
    options: String,
}

fn on_mount(mount: Mount, number: (u32, u32), uuid: Option<[u8; 16]>) -> Device {
    // Some file systems (btrfs) use device numbers of their own.
    let disk = disk_path(number).map(|_| number).or_else(|| number_of(&mount.source));
    let model = disk.map(model_of).unwrap_or_default();
    let nature = nature_of(&mount.kind, disk.is_some());
    let key = match nature {
        Nature::Memory => None,
        _ if mount.kind.is_empty() => None,
        Nature::Disk => Some(disk_key(&mount, uuid, &model)),
        Nature::Overlay => Some(format!("overlay {}", overlay_top(&mount))),
        Nature::Network | Nature::Other => Some(format!("{} {}", mount.kind, mount.source)),
    };
    Device { key, file_system: mount.kind, source: mount.source, model, nature }
}

fn disk_key(mount: &Mount, uuid: Option<[u8; 16]>, model: &str) -> String {
    let uuid = uuid.map(uuid_text).or_else(|| link_to(Path::new(BY_UUID), &mount.source));
    let which = uuid.map_or_else(|| mount.source.clone(), |uuid| format!("uuid {uuid}"));
    format!("{} {which} {model}", mount.kind).trim_end().to_owned()
}

/// Containers' overlays have no source; their upper directories distinguish them.
fn overlay_top(mount: &Mount) -> &str {
    let option = |name: &str| mount.options.split(',').find_map(|option| option.strip_prefix(name));
    option("upperdir=").or_else(|| option("lowerdir=")).unwrap_or(&mount.source)
}

fn nature_of(kind: &str, has_disk: bool) -> Nature {
    match kind {
        _ if MEMORY.contains(&kind) => Nature::Memory,
        "overlay" | "aufs" => Nature::Overlay,
        _ if has_disk => Nature::Disk,
        _ if NETWORK.contains(&kind) => Nature::Network,
        _ => Nature::Other,
    }
}

fn block_device(number: (u32, u32), path: &Path) -> Device {
    let model = model_of(number);
    let source = path.display().to_string();
    let folder = disk_path(number).unwrap_or_default();
    // The disk's own identifier; for a partition the one in its `uevent`.
    let serial = ["wwid", "device/wwid", "device/serial", "serial"]
        .iter()
        .find_map(|name| text_of(&folder.join(name)))
        .or_else(|| {
            let event = text_of(&folder.join("uevent"))?;
            event.lines().find_map(|line| line.strip_prefix("PARTUUID=").map(str::to_owned))
        });
    let which = serial.unwrap_or_else(|| source.clone());
    let key = Some(format!("block {which} {model}").trim_end().to_owned());
    Device { key, file_system: String::new(), source, model, nature: Nature::Disk }
}

/// The mount of a descriptor, by the number in `fdinfo`, which is correct for subvolumes and bind mounts too.
fn mount_of(file: BorrowedFd<'_>) -> Option<Mount> {
    let information = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = information.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    mount_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, id)
}

fn mount_in(mounts: &str, id: &str) -> Option<Mount> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let mut words = line.split_once(" - ")?.1.split(' ').map(str::to_owned);
    Some(Mount { kind: words.next()?, source: words.next()?, options: words.next().unwrap_or_default() })
}

fn disk_path((major, minor): (u32, u32)) -> Option<PathBuf> {
    // Device numbers without a block device have major number 0.
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    path.exists().then_some(path)
}

fn number_of(source: &str) -> Option<(u32, u32)> {
    let file = fs::metadata(source).ok().filter(|_| source.starts_with('/'))?;
    let number = fs::File::open(source).ok().and_then(|file| {
        use std::os::fd::AsFd;
        device_number(file.as_fd()).ok()
    });
    number.filter(|_| file.file_type().is_block_device() && file.rdev() != 0)
}

/// The model of the disk, or of the partition's disk; else its driver, or the kernel's name for its kind.
fn model_of(number: (u32, u32)) -> String {
    let Some(folder) = disk_path(number) else { return String::new() };
    let disk = if folder.join("partition").exists() { folder.join("..") } else { folder };
    let named = ["device/model", "dm/uuid", "md/uuid"].iter().find_map(|name| text_of(&disk.join(name)));
    let driver = || {
        let driver = fs::read_link(disk.join("device/driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    };
    let kind = || {
        let name = fs::canonicalize(&disk).ok()?.file_name()?.to_string_lossy().into_owned();
        Some(name.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned())
    };
    named.or_else(driver).or_else(kind).unwrap_or_default()
}

fn text_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The name of the link in `folder` that points to the same file as `target`.
fn link_to(folder: &Path, target: &str) -> Option<String> {
    let target = fs::canonicalize(target).ok()?;
    let mut links = fs::read_dir(folder).ok()?.flatten();
    let link = links.find(|link| fs::canonicalize(link.path()).is_ok_and(|path| path == target))?;
    Some(link.file_name().to_string_lossy().into_owned())
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

const BY_UUID: &str = "/dev/disk/by-uuid";

const MEMORY: [&str; 9] =
    ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "proc", "sysfs", "cgroup", "cgroup2", "debugfs"];

const NETWORK: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "virtiofs",
    "ceph",
    "lustre",
    "glusterfs",
    "afs",
    "ocfs2",
    "gfs2",
    "vboxsf",
];

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/none rw,discard
31 27 0:40 / /mnt/a\\040b rw - nfs4 server:/export rw,vers=4.2
32 27 0:41 / /run/c rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/up,workdir=/work
33 27 0:42 / /dev/shm rw - tmpfs tmpfs rw";

    fn device(id: &str, uuid: Option<[u8; 16]>) -> Device {
        on_mount(mount_in(MOUNTS, id).unwrap(), (0, 0), uuid)
    }

    /// Goal: a key names what is stable: the server and its directory, the upper directory; memory has no key.
    #[test]
    fn keys_of_mounts() {
        assert_eq!(mount_in(MOUNTS, "3"), None);
        let network = device("31", None);
        assert_eq!((network.key.as_deref(), network.nature), (Some("nfs4 server:/export"), Nature::Network));
        assert_eq!(network.words(), "nfs4 on server:/export");
        let overlay = device("32", None);
        assert_eq!((overlay.key.as_deref(), overlay.nature), (Some("overlay /up"), Nature::Overlay));
        let memory = device("33", Some([1; 16]));
        assert_eq!((memory.key, memory.nature), (None, Nature::Memory));
    }

    /// Goal: a disk is identified by the UUID of its file system, not by its name.
    #[test]
    fn keys_of_disks() {
        let mount = mount_in(MOUNTS, "27").unwrap();
        let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        let key = disk_key(&mount, Some(uuid), "Best Disk");
        assert_eq!(key, "ext4 uuid 12345678-9abc-def0-0102-030405060708 Best Disk");
        assert_eq!(disk_key(&mount, None, ""), "ext4 /dev/none");
        assert_eq!(nature_of("ext4", true), Nature::Disk);
        assert_eq!(nature_of("fuse.sshfs", false), Nature::Other);
    }

    /// Goal: a file and its directory have one key, and files in memory have none.
    #[test]
    fn files_lie_where_their_directories_do() {
        let place = tempfile::tempdir().unwrap();
        let file = fs::File::create(place.path().join("file")).unwrap();
        let directory = fs::File::open(place.path()).unwrap();
        assert_eq!(Device::of(file.as_fd()).unwrap(), Device::of(directory.as_fd()).unwrap());
        let proc = fs::File::open("/proc/version").unwrap();
        assert_eq!(Device::of(proc.as_fd()).unwrap().key, None);
    }
}
