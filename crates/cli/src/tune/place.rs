//! Place: the storage that PATH names, and the file to measure there.
//!
//! ```text
//!   directory ─► memory below? ─► no device          file, block device ─► memory below? ─► no device
//!       └► scratch file without a name                     └► opened, only read
//! ```
//!
//! Owns: what is refused and why, what is said where there is nothing to tune.
//! Does not own: making the file (`bench::file`), the device's key (`headwater::profiles`).

use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater::testing::profiles::{Device, Nature};
use os_display::Quotable;

use super::block_size::BlockSize;
use crate::shared::foreign::Foreign;
use crate::shared::target::{Fitting, SIZE_BYTES_MIN, Wanted, free_bytes_in};
use crate::shared::units::{ByteSize, readable};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) device: Device,
    pub(super) block_size: BlockSize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Directory,
    File,
    BlockDevice,
}

impl Place {
    /// # Errors
    /// One sentence for the user.
    pub(super) fn of(path: &Path) -> Result<Place, String> {
        let shown = path.maybe_quote();
        let failed = |error: std::io::Error| format!("failed to look at {shown}: {error}");
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let kind = kind_of(&metadata).map_err(|what| {
            format!("failed to tune for {shown}: it is {what}; give a file, a directory or a block device")
        })?;
        let file = File::open(path).map_err(|error| format!("failed to open {shown}: {error}"))?;
        let device = Device::of(file.as_fd()).map_err(failed)?;
        let block_size = BlockSize::of(metadata.blksize());
        Ok(Place { path: path.to_owned(), kind, device, block_size })
    }

    /// Whether there is anything but memory.
    pub(super) fn has_device(&self) -> bool {
        self.device.nature != Nature::Memory
    }

    /// What a reader has to know about what lies below.
    pub(super) fn notes(&self) -> Vec<String> {
        let foreign = Foreign::of(&self.device);
        let words = |foreign: Foreign| match self.device.nature {
            Nature::Memory => {
                let kind = &self.device.file_system;
                format!("{kind} is made of memory, so there is no device to tune for and nothing is stored")
            }
            _ => foreign.of_figures(),
        };
        foreign.map(words).into_iter().collect()
    }

    /// The file to read.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn wanted(&self, size: Option<ByteSize>, time: Duration) -> Result<Wanted, String> {
        match self.kind {
            Kind::Directory => scratch(&self.path, size, time),
            Kind::File | Kind::BlockDevice => Ok(Wanted::Existing { path: self.path.clone(), limit: size }),
        }
    }

    /// A file to write to, beside the one that is read.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn wanted_for_writing(
        &self,
        size: Option<ByteSize>,
        time: Duration,
    ) -> Result<Wanted, String> {
        match self.kind {
            Kind::Directory => scratch(&self.path, size, time),
            Kind::File => {
                let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
                scratch(parent.unwrap_or(Path::new(".")), size, time)
            }
            Kind::BlockDevice => Err(format!(
                "failed to tune for writing to {}: a device is never written to; give a directory on it",
                self.path.maybe_quote()
            )),
        }
    }
}

/// A file in `directory`; as large as the time allows, and half of the free room, unless a size is given.
fn scratch(directory: &Path, size: Option<ByteSize>, time: Duration) -> Result<Wanted, String> {
    let free_bytes = free_bytes_in(directory)?;
    let shown = directory.maybe_quote();
    // The file system needs some room beside the file.
    if free_bytes < SCRATCH_BYTES_MIN * 2 {
        return Err(format!(
            "failed to make a scratch file in {shown}: {} are free, {} are needed; give a file to read instead, or \
             another directory",
            readable(free_bytes),
            readable(SCRATCH_BYTES_MIN * 2),
        ));
    }
    let fitting = if size.is_some() { Fitting::Exact("--size") } else { Fitting::AsPossible };
    let size = size.unwrap_or_else(|| ByteSize(scratch_bytes(time)));
    Ok(Wanted::New { dir: Some(directory.to_owned()), size, fitting })
}

fn scratch_bytes(time: Duration) -> u64 {
    let bytes = (time.as_secs_f64() * SCRATCH_BYTES_PER_S) as u64;
    bytes.clamp(SCRATCH_BYTES_MIN, SCRATCH_BYTES_MAX) & !(SIZE_BYTES_MIN - 1)
}

fn kind_of(metadata: &Metadata) -> Result<Kind, &'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => Ok(Kind::Directory),
        () if kind.is_file() => Ok(Kind::File),
        () if kind.is_block_device() => Ok(Kind::BlockDevice),
        () if kind.is_fifo() => Err("a FIFO, which has nothing to read twice"),
        () if kind.is_socket() => Err("a socket, which has nothing to read twice"),
        () => Err("a character device, which has no end"),
    }
}

/// A tenth of the time on a disk of 300 MB/s.
const SCRATCH_BYTES_PER_S: f64 = 32.0 * 1048576.0;

/// Eight of the largest requests.
const SCRATCH_BYTES_MIN: u64 = 16 << 20;

/// More than the caches of most disks hold.
const SCRATCH_BYTES_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_tuned_for_is_refused() {
        let refused = Place::of(Path::new("/dev/null")).unwrap_err();
        assert!(refused.contains("a character device") && refused.contains("give a file"), "{refused}");
        assert!(Place::of(Path::new("/nowhere")).unwrap_err().contains("No such file"));
    }

    #[test]
    fn scratch_files_suit_the_time() {
        assert_eq!(scratch_bytes(Duration::from_millis(10)), 16 << 20);
        assert_eq!(scratch_bytes(Duration::from_secs(10)), 320 << 20);
        assert_eq!(scratch_bytes(Duration::from_secs(3600)), 2 << 30);
    }
}
