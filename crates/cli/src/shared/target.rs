//! File to measure with: the user's own, or one made for it that leaves nothing behind.
//!
//! ```text
//!   Existing ─► open
//!   New ─► room enough? ─► a file without a name ─► incompressible bytes, synced and dropped as they are written
//! ```
//!
//! Owns: the file, its contents, making it cold.
//! Does not own: what is measured.
//! Invariants: a new file has no name from the start, so the kernel removes it whatever ends this process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headwater::ring::{Access, DirectIo, FileKind, OpenFile};
use headwater::{ByteRange, Residency};
use headwater_measure::standard;
use indicatif::ProgressBar;
use os_display::Quotable;
use rustix::fs::{Advice, FallocateFlags, fadvise};

use crate::shared::holes;
use crate::shared::progress::{BYTES, style};
use crate::shared::random::mixed;
use crate::shared::units::{ByteSize, readable};

/// What the user asked for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Existing { path: PathBuf, limit: Option<ByteSize> },
    New { dir: Option<PathBuf>, size: ByteSize, fitting: Fitting },
}

impl Wanted {
    /// The user's own file.
    pub(crate) fn existing(&self) -> Option<&Path> {
        match self {
            Wanted::Existing { path, .. } => Some(path),
            Wanted::New { .. } => None,
        }
    }
}

/// What to do when the size asked for does not fit the room or the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fitting {
    /// Fail; the option by which the user says how much.
    Exact(&'static str),
    /// Make it as large as half of the free space and 20 s allow.
    AsPossible,
}

pub(crate) struct Target {
    /// For `statfs` and the like: the file or the directory it was made in.
    pub(crate) path: PathBuf,
    /// Whether it was made here.
    pub(crate) is_made: bool,
    pub(crate) bytes: u64,
    /// Why there is no direct I/O.
    pub(crate) direct_refusal: Option<String>,
    /// How many of those bytes no device reads, because they are holes or were never written.
    pub(crate) hole_bytes: u64,
    open: OpenFile,
}

/// Takes the number of bytes that are written, and of those that are to be.
type OnWritten<'a> = &'a mut dyn FnMut(u64, u64);

/// For the report page: a directory or a file by a name that says something elsewhere.
pub(crate) fn place_words(path: &str) -> &str {
    if path == "." { "the current directory" } else { path }
}

impl Target {
    /// Opens or makes the file, with a bar on standard error while it is written.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn prepare(wanted: &Wanted) -> Result<Target, String> {
        let bar = ProgressBar::new(0).with_style(style(BYTES)).with_message("writing the file");
        let target = match wanted {
            Wanted::Existing { path, limit } => existing(path, *limit),
            Wanted::New { dir, size, fitting } => {
                made(dir.as_deref(), *size, *fitting, &mut |written_bytes, size_bytes| {
                    bar.set_length(size_bytes);
                    bar.set_position(written_bytes);
                })
            }
        };
        bar.finish_and_clear();
        target
    }

    /// By which the file can be looked at, with a name or without.
    pub(crate) fn input_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.open.buffered().as_raw_fd()))
    }

    /// The same for other processes, in whatever directory.
    ///
    /// # Errors
    /// What asking for the current directory reports.
    pub(crate) fn path_for_others(&self) -> io::Result<PathBuf> {
        match self.is_made {
            true => {
                let (process, file) = (std::process::id(), self.open.buffered().as_raw_fd());
                Ok(PathBuf::from(format!("/proc/{process}/fd/{file}")))
            }
            false => std::path::absolute(&self.path),
        }
    }

    /// Whether it is a block device, and no file.
    pub(crate) fn is_device(&self) -> bool {
        self.open.kind() == FileKind::BlockDevice
    }

    /// What a reader of figures has to know about what was read.
    pub(crate) fn note(&self) -> Option<String> {
        (self.hole_bytes > 0).then(|| holes::of_figures(self.hole_bytes, self.bytes))
    }

    /// A descriptor for a child.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.open.buffered().try_clone_to_owned()
    }

    /// How many pages of it the kernel's page cache holds; `None` where the kernel does not tell.
    pub(crate) fn resident_pages(&self) -> Option<u64> {
        self.open.resident_pages(ByteRange::new(0, self.bytes))
    }

    /// Makes the kernel forget the file. Returns whether it did.
    pub(crate) fn make_cold(&self) -> bool {
        for _ in 0..COLD_ATTEMPTS_MAX {
            let evicted = self.open.evict_from_kernel();
            match self.open.residency(ByteRange::new(0, self.bytes)) {
                Residency::None => return true,
                _ if evicted.is_err() => return false,
                _ => std::thread::sleep(COLD_PAUSE),
            }
        }
        false
    }
}

fn existing(path: &Path, limit: Option<ByteSize>) -> Result<Target, String> {
    let shown = path.maybe_quote();
    let open = OpenFile::open(path, DirectIo::Off, Access::Read).map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => {
            format!("failed to measure with {shown}: it is a directory; --dir makes a file there")
        }
        _ => format!("failed to open {shown}: {error}"),
    })?;
    if open.kind() == FileKind::CharacterDevice {
        return Err(format!("failed to measure with {shown}: it is a character device, which has no end"));
    }
    let length_bytes =
        open.length_bytes().map_err(|error| format!("failed to get the length of {shown}: {error}"))?;
    if length_bytes == 0 {
        return Err(format!("failed to measure with {shown}: it is empty"));
    }
    let bytes = limit.map_or(length_bytes, |limit| limit.0.min(length_bytes));
    check_size(bytes, length_bytes)?;
    // What others have just written is dirty, and dirty pages cannot be made cold. Where syncing is not allowed, they
    // show in the check before each measurement.
    let _ = rustix::fs::fsync(open.buffered());
    // Space that was never written counts as data while the page cache has zeros of it.
    let _ = open.evict_from_kernel();
    let hole_bytes = holes::hole_bytes(open.buffered(), bytes);
    Ok(Target {
        path: path.to_owned(),
        is_made: false,
        bytes,
        direct_refusal: refusal(path),
        hole_bytes,
        open,
    })
}

fn check_size(bytes: u64, length_bytes: u64) -> Result<(), String> {
    if bytes == 0 || (bytes < SIZE_BYTES_MIN && bytes < length_bytes) {
        let minimum = readable(SIZE_BYTES_MIN);
        return Err(format!(
            "--size {} is too small to measure, it takes at least {minimum}",
            ByteSize(bytes)
        ));
    }
    Ok(())
}

fn made(
    dir: Option<&Path>,
    size: ByteSize,
    fitting: Fitting,
    on_written: OnWritten<'_>,
) -> Result<Target, String> {
    check_size(size.0, u64::MAX)?;
    let (mut file, dir) = create_in(dir)?;
    let size_bytes = fit(size, &dir, fitting)?;
    let shown = dir.maybe_quote();
    let written_bytes = fill(&mut file, size_bytes, fitting, on_written)
        .map_err(|error| format!("failed to write {} to {shown}: {error}", readable(size_bytes)))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let open = OpenFile::open(&path, DirectIo::Off, Access::Read)
        .map_err(|error| format!("failed to open the file made in {shown}: {error}"))?;
    let direct_refusal = refusal(&path);
    Ok(Target { path: dir, is_made: true, bytes: written_bytes, direct_refusal, hole_bytes: 0, open })
}

/// Without a directory given: here, or where temporary files go if nothing can be made here.
fn create_in(dir: Option<&Path>) -> Result<(File, PathBuf), String> {
    let here = dir.unwrap_or(Path::new("."));
    match (tempfile::tempfile_in(here), dir) {
        (Ok(file), _) => Ok((file, here.to_owned())),
        (Err(error), Some(dir)) => {
            let hint = match error.kind() {
                io::ErrorKind::NotADirectory => "; suites measure with a file that is there by --file",
                _ => "",
            };
            Err(format!("failed to make a file in {}: {error}{hint}", dir.maybe_quote()))
        }
        (Err(error), None) => {
            let other = std::env::temp_dir();
            let made = tempfile::tempfile_in(&other);
            made.map(|file| (file, other)).map_err(|_| {
                format!("failed to make a file in the current directory: {error}; choose another with --dir")
            })
        }
    }
}

/// Where files can be made.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn usable_directory(dir: Option<&Path>) -> Result<PathBuf, String> {
    create_in(dir).map(|(_, dir)| dir)
}

/// # Errors
/// One sentence for the user.
pub(crate) fn free_bytes_in(dir: &Path) -> Result<u64, String> {
    let status = rustix::fs::statvfs(dir)
        .map_err(|error| format!("failed to ask for the free space of {}: {error}", dir.maybe_quote()))?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Refuses what does not fit, and names what the user can do.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn require_room(bytes: u64, dir: &Path, fitting: Fitting) -> Result<(), String> {
    let smaller = match fitting {
        Fitting::Exact(option) => format!("a smaller {option} or "),
        Fitting::AsPossible => String::new(),
    };
    let (needed_bytes, free_bytes) = (bytes.saturating_add(SPARE_BYTES), free_bytes_in(dir)?);
    if needed_bytes <= free_bytes {
        return Ok(());
    }
    Err(format!(
        "no room: {} are needed in {}, {} are free; give {smaller}another directory",
        readable(needed_bytes),
        dir.maybe_quote(),
        readable(free_bytes),
    ))
}

fn fit(size: ByteSize, dir: &Path, fitting: Fitting) -> Result<u64, String> {
    let free_bytes = free_bytes_in(dir)?;
    let reachable_bytes = match fitting {
        Fitting::Exact(_) => size.0,
        Fitting::AsPossible => size.0.min(free_bytes / 2) & !(SIZE_BYTES_MIN - 1),
    };
    require_room(reachable_bytes.max(SIZE_BYTES_MIN), dir, fitting)?;
    Ok(reachable_bytes)
}

/// Writes up to `size_bytes`, and returns how many when time is short.
fn fill(file: &mut File, size_bytes: u64, fitting: Fitting, on_written: OnWritten<'_>) -> io::Result<u64> {
    // Only so that the extents are long; file systems that cannot do it are read as they are.
    let _ = rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, size_bytes);
    let deadline = Instant::now() + FILL_LIMIT;
    let mut block = vec![0_u8; BLOCK_BYTES];
    let mut written_bytes = 0;
    while written_bytes < size_bytes {
        let length = (size_bytes - written_bytes).min(BLOCK_BYTES as u64) as usize;
        scramble(written_bytes, &mut block[..length]);
        file.write_all(&block[..length])?;
        written_bytes += length as u64;
        if written_bytes.is_multiple_of(SYNC_BYTES) || written_bytes == size_bytes {
            file.sync_data()?;
            fadvise(&*file, 0, None, Advice::DontNeed)?;
            on_written(written_bytes, size_bytes);
            standard::check_reader()?;
            if fitting == Fitting::AsPossible && Instant::now() >= deadline {
                break;
            }
        }
    }
    file.set_len(written_bytes)?;
    file.sync_all()?;
    Ok(written_bytes)
}

/// Bytes that no device compresses.
pub(crate) fn scramble(offset_bytes: u64, block: &mut [u8]) {
    let (words, _) = block.as_chunks_mut::<8>();
    for (index, word) in (offset_bytes / 8..).zip(words) {
        *word = mixed(index).to_le_bytes();
    }
}

fn refusal(path: &Path) -> Option<String> {
    OpenFile::open(path, DirectIo::Required, Access::Read).err().map(|error| error.to_string())
}

/// Below, rates say nothing.
pub(crate) const SIZE_BYTES_MIN: u64 = 1 << 20;

/// What a file system needs beside the data.
const SPARE_BYTES: u64 = 16 << 20;

const BLOCK_BYTES: usize = 1 << 20;

/// Written back and dropped this often: the page cache keeps what others have in it.
const SYNC_BYTES: u64 = 64 << 20;

/// For the quick form, which has 90 s for all.
const FILL_LIMIT: Duration = Duration::from_secs(20);

/// Pages under writeback or in the hands of a process that just ended go a moment later.
const COLD_ATTEMPTS_MAX: u32 = 10;
const COLD_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a bar of the bytes of a new file has an end from its first step on, and reaches it. Method: the steps of a file of three, and
    /// a part of one.
    #[test]
    fn steps_of_a_new_file_have_an_end() {
        let scratch = tempfile::tempdir().unwrap();
        let size = ByteSize(3 * SYNC_BYTES + SIZE_BYTES_MIN);
        let mut steps = Vec::new();
        let made = made(Some(scratch.path()), size, Fitting::Exact("--size"), &mut |done, all| {
            steps.push((done, all))
        });
        made.unwrap();
        let done = [SYNC_BYTES, 2 * SYNC_BYTES, 3 * SYNC_BYTES, size.0];
        assert_eq!(steps, done.map(|done| (done, size.0)));
    }
}
