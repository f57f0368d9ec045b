//! Write log: a file system on a device that notes every write in its order, and what the device holds after any of them.
//!
//! ```text
//!   LoggedMount ─ mount ─► dm-log-writes ─┬─► image
//!        │ mark: after a sync             └─► log: header, entries (sector, length, flags), each with its data
//!        └─ finish: unmount ─► WriteLog ─ replay_to(n) ─► image as of entry n ─ mount ─► copy of it, recovered by the file system
//! ```
//!
//! The kernel logs a write once a flush has come that covers it (`Documentation/admin-guide/device-mapper/log-writes.rst`), so that
//! what comes before a mark is what a device with a volatile cache keeps for certain when the power fails there.
//!
//! Owns: the mapped device, the images, the format of the log.
//! Does not own: what is written, and what has to be there (the test).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::mounts::{MountDir, attach, detach, run};
use crate::{FileSystem, LoopMount, Skip};

/// A file system whose writes are logged.
#[derive(Debug)]
pub struct LoggedMount {
    // Dropped in this order: unmounted, unmapped, removed.
    mount: MountDir,
    device: MappedDevice,
    directory: TempDir,
    kind: FileSystem,
}

impl LoggedMount {
    /// Makes and mounts an empty file system of `size_bytes`, or of the kind's minimum. Its making is logged too.
    ///
    /// # Errors
    /// [`Skip`] when the process is not root, `dmsetup` or the kernel's target `log-writes` is missing, or something is refused.
    pub fn new(kind: FileSystem, size_bytes: u64) -> Result<LoggedMount, Skip> {
        let mount = MountDir::new()?;
        let has_target = run(dmsetup().arg("targets"))?.lines().any(|line| line.starts_with("log-writes"));
        if !has_target {
            return Err(Skip("the kernel has no device that logs writes (dm-log-writes)".to_owned()));
        }
        let directory = tempfile::tempdir().map_err(|error| Skip(error.to_string()))?;
        let size_bytes = size_bytes.max(kind.size_bytes_min());
        let device = MappedDevice::new(directory.path(), size_bytes)?;
        run(&mut kind.mkfs(&device.path()))?;
        run(Command::new("mount").args(["-t", kind.name()]).arg(device.path()).arg(mount.mount_point()))?;
        Ok(LoggedMount { mount, device, directory, kind })
    }

    /// The root directory of the file system.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.mount_point()
    }

    /// Notes in the log that all that a sync has acknowledged comes before.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn mark(&self) {
        let marked = run(dmsetup().args(["message", &self.device.name, "0", "mark", "synced"]));
        marked.expect("the device takes marks");
    }

    /// Unmounts it and reads its log. All files have to be closed.
    ///
    /// # Panics
    /// When it is busy, or the log is no log.
    #[must_use]
    pub fn finish(self) -> WriteLog {
        let LoggedMount { mount, device, directory, kind } = self;
        drop(mount);
        let size_bytes = device.size_bytes;
        drop(device);
        let log = File::open(directory.path().join(LOG)).expect("there is a log");
        let entries = read_entries(&log).expect("the log is whole");
        let image =
            File::options().create_new(true).read(true).write(true).open(directory.path().join(REPLAYED));
        let image = image.expect("there is room");
        image.set_len(size_bytes).expect("it is sparse");
        WriteLog { log, entries, image, replayed: 0, directory, kind }
    }
}

/// What was written to a device, in order, and the device as it was after a part of that.
#[derive(Debug)]
pub struct WriteLog {
    log: File,
    entries: Vec<Entry>,
    image: File,
    replayed: usize,
    directory: TempDir,
    kind: FileSystem,
}

impl WriteLog {
    /// After how many entries each mark comes.
    #[must_use]
    pub fn marks(&self) -> Vec<usize> {
        let is_mark = |(_, entry): &(usize, &Entry)| entry.kind == EntryKind::Mark(true);
        self.entries.iter().enumerate().filter(is_mark).map(|(place, _)| place).collect()
    }

    /// Makes the device what it was after this number of entries, and mounts a copy of it, which its file system recovers.
    ///
    /// # Panics
    /// When it was replayed beyond that already, or cannot be mounted.
    #[must_use]
    pub fn mount_after(&mut self, entries: usize) -> LoopMount {
        assert!(self.replayed <= entries, "a log is replayed forwards");
        for entry in &self.entries[self.replayed..entries] {
            entry.replay(&self.log, &self.image).expect("the image takes it");
        }
        self.replayed = entries;
        LoopMount::of_copy(self.kind, &self.directory.path().join(REPLAYED))
            .expect("a device after a crash can be mounted")
    }
}

/// Two images as loop devices, and the device that writes to one and logs to the other.
#[derive(Debug)]
struct MappedDevice {
    name: String,
    loops: Vec<String>,
    size_bytes: u64,
}

impl MappedDevice {
    fn new(directory: &Path, size_bytes: u64) -> Result<MappedDevice, Skip> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("headwater-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut device = MappedDevice { name, loops: Vec::new(), size_bytes };
        for (name, size_bytes) in [(IMAGE, size_bytes), (LOG, LOG_BYTES)] {
            let image = directory.join(name);
            File::create(&image)
                .and_then(|file| file.set_len(size_bytes))
                .map_err(|error| Skip(error.to_string()))?;
            device.loops.push(attach(&image)?);
        }
        let sectors = size_bytes / SECTOR_BYTES;
        let table = format!("0 {sectors} log-writes {} {}", device.loops[0], device.loops[1]);
        let mut create = dmsetup();
        create.args(["create", &device.name, "--table", &table]);
        run(&mut create)?;
        Ok(device)
    }

    fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }
}

impl Drop for MappedDevice {
    fn drop(&mut self) {
        // One that was not created cannot be removed.
        let _ = run(dmsetup().args(["remove", "--retry", &self.name]));
        self.loops.iter().for_each(|device| detach(device));
    }
}

/// Without udev, which makes the devices' nodes a moment later, or is not there.
fn dmsetup() -> Command {
    let mut dmsetup = Command::new("dmsetup");
    dmsetup.env("DM_DISABLE_UDEV", "1");
    dmsetup
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    /// Where on the device, bytes.
    offset_bytes: u64,
    length_bytes: u64,
    kind: EntryKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryKind {
    /// Where in the log its data is, bytes; also a flush, which has none.
    Write {
        data_bytes: u64,
    },
    Discard,
    /// Whether it is one of ours.
    Mark(bool),
}

impl Entry {
    fn replay(&self, log: &File, image: &File) -> io::Result<()> {
        const PIECE_BYTES: u64 = 1 << 20;
        let mut piece = vec![0; PIECE_BYTES.min(self.length_bytes) as usize];
        for done_bytes in (0..self.length_bytes).step_by(PIECE_BYTES as usize) {
            let piece = &mut piece[..PIECE_BYTES.min(self.length_bytes - done_bytes) as usize];
            match self.kind {
                EntryKind::Write { data_bytes } => log.read_exact_at(piece, data_bytes + done_bytes)?,
                // What is read there afterwards is not promised: not what was, for one.
                EntryKind::Discard => piece.fill(0),
                EntryKind::Mark(_) => return Ok(()),
            }
            image.write_all_at(piece, self.offset_bytes + done_bytes)?;
        }
        Ok(())
    }
}

/// The structures `log_write_super` and `log_write_entry` of `drivers/md/dm-log-writes.c`, numbers little-endian.
fn read_entries(log: &File) -> io::Result<Vec<Entry>> {
    let number = |bytes: &[u8], place: usize| {
        u64::from_le_bytes(bytes[8 * place..8 * place + 8].try_into().expect("eight bytes"))
    };
    let mut header = [0; 32];
    log.read_exact_at(&mut header, 0)?;
    let unit_bytes = number(&header, 3) & u64::from(u32::MAX);
    if (number(&header, 0), number(&header, 1)) != (MAGIC, VERSION) || unit_bytes < SECTOR_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no log of writes"));
    }
    let (mut entries, mut at_bytes) = (Vec::new(), unit_bytes);
    for _ in 0..number(&header, 2) {
        let mut entry = [0; 32 + MARK.len()];
        log.read_exact_at(&mut entry, at_bytes)?;
        at_bytes += unit_bytes;
        let (offset_bytes, length_bytes) = (number(&entry, 0) * unit_bytes, number(&entry, 1) * unit_bytes);
        let flags = number(&entry, 2);
        let kind = match flags {
            _ if flags & FLAG_MARK != 0 => EntryKind::Mark(&entry[32..] == MARK),
            _ if flags & FLAG_DISCARD != 0 => EntryKind::Discard,
            _ => EntryKind::Write { data_bytes: at_bytes },
        };
        if matches!(kind, EntryKind::Write { .. }) {
            at_bytes += length_bytes;
        }
        entries.push(Entry { offset_bytes, length_bytes, kind });
    }
    Ok(entries)
}

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLAG_DISCARD: u64 = 1 << 2;
const FLAG_MARK: u64 = 1 << 3;
const SECTOR_BYTES: u64 = 512;

/// The text of our marks.
const MARK: &[u8] = b"synced";

/// Files of the directory.
const IMAGE: &str = "image";
const LOG: &str = "log";
const REPLAYED: &str = "replayed";

/// Sparse, and more than any test writes.
const LOG_BYTES: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: entries of each kind are read and replayed in order, to wherever it shall be. Method: a log made by hand.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_log_is_read_and_replayed() {
        let mut bytes = Vec::new();
        let mut add = |numbers: [u64; 4], data: &[u8]| {
            let mut sector: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            sector.extend_from_slice(data);
            sector.resize(sector.len().next_multiple_of(512), 0);
            bytes.extend(sector);
        };
        add([MAGIC, VERSION, 5, 512], &[]);
        add([2, 1, 0, 0], &[&[0; 480][..], &[7; 512]].concat());
        add([0, 0, FLAG_MARK, 6], b"synced");
        add([0, 0, 1, 0], &[]);
        add([2, 1, FLAG_DISCARD, 0], &[]);
        add([0, 0, FLAG_MARK, 3], b"end");
        let (log, image) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        log.write_all_at(&bytes, 0).unwrap();
        log.set_len(bytes.len() as u64 + 4096).unwrap();
        image.set_len(2048).unwrap();
        let entries = read_entries(&log).unwrap();
        let kinds: Vec<EntryKind> = entries.iter().map(|entry| entry.kind).collect();
        assert!(matches!(
            kinds[..],
            [
                EntryKind::Write { data_bytes: 1024 },
                EntryKind::Mark(true),
                EntryKind::Write { .. },
                EntryKind::Discard,
                EntryKind::Mark(false)
            ]
        ));
        let sector = || {
            let mut sector = [1; 512];
            image.read_exact_at(&mut sector, 1024).unwrap();
            sector
        };
        entries[..3].iter().for_each(|entry| entry.replay(&log, &image).unwrap());
        assert_eq!(sector(), [7; 512]);
        entries[3..].iter().for_each(|entry| entry.replay(&log, &image).unwrap());
        assert_eq!(sector(), [0; 512]);
        assert!(read_entries(&image).is_err());
    }
}
