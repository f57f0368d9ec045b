//! Open file: a file's descriptors, what direct I/O asks of them, and what the kernel already holds.
//!
//! ```text
//!   open ──► ordinary descriptor ──► statx DIOALIGN ─┬─ alignment ─► reopen with O_DIRECT ─► Direct
//!                                                    ├─ zero ──────► none
//!                                                    └─ not told ──► reopen and probe with one page
//! ```
//!
//! Owns: the descriptors.
//! Does not own: offsets, which route a request takes, what the kernel caches (kernel cache).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use rustix::io::Errno;

use crate::kernel_cache::{KernelCache, Misses, Residency};
use crate::{sys, uring};

/// Which descriptor of the file a request uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The `O_DIRECT` descriptor: offset, length and memory must be aligned as [`OpenFile::direct`] says.
    Direct,
    /// The ordinary descriptor, through the kernel's page cache.
    Buffered,
}

/// Whether a file is to be opened for direct I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectIo {
    /// Opening fails where the file system refuses `O_DIRECT`.
    Required,
    /// Direct where possible.
    Preferred,
    /// Only through the kernel's page cache.
    Off,
}

/// What the descriptors are opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// What kind of file it is. Others have no positions and are refused at open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
}

/// What `O_DIRECT` asks of memory and file offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAlignment {
    /// Of memory addresses.
    pub memory: Alignment,
    /// Of offsets and lengths.
    pub offset: Alignment,
}

/// A file open for positioned transfers.
#[derive(Debug)]
pub struct OpenFile {
    buffered: File,
    direct: Option<Direct>,
    kind: FileKind,
    kernel_cache: KernelCache,
    polled_bytes_max: OnceLock<usize>,
}

#[derive(Debug)]
struct Direct {
    file: File,
    alignment: DirectAlignment,
}

impl OpenFile {
    /// Opens a regular file or block device.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for files without positions (FIFO, socket, character
    /// device), and with [`DirectIo::Required`] where the file system refuses `O_DIRECT`.
    pub fn open(path: &Path, direct_io: DirectIo, access: Access) -> io::Result<OpenFile> {
        // Opening a FIFO would wait for its other end, so look before.
        let kind = positioned_kind(&std::fs::metadata(path)?)?;
        let buffered = OpenOptions::new().read(true).write(access == Access::ReadWrite).open(path)?;
        positioned_kind(&buffered.metadata()?)?;
        let direct = match direct_io {
            DirectIo::Off => None,
            DirectIo::Preferred => open_direct(&buffered, kind, path, access).ok(),
            DirectIo::Required => Some(open_direct(&buffered, kind, path, access)?),
        };
        let misses = if direct.is_some() { Misses::AreWasted } else { Misses::AreUseful };
        if misses == Misses::AreWasted {
            // What a miss brings in is then no more than what was asked for. Only advice; nothing is lost without it.
            let _ = rustix::fs::fadvise(&buffered, 0, None, rustix::fs::Advice::Random);
        }
        let kernel_cache = KernelCache::new(misses);
        Ok(OpenFile { buffered, direct, kind, kernel_cache, polled_bytes_max: OnceLock::new() })
    }

    /// What direct transfers must be aligned to; `None` when the file is open without `O_DIRECT`.
    pub fn direct(&self) -> Option<DirectAlignment> {
        self.direct.as_ref().map(|direct| direct.alignment)
    }

    /// Regular file or block device.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The length now, bytes. One syscall.
    ///
    /// # Errors
    /// What `fstat(2)` or `lseek(2)` report.
    pub fn length_bytes(&self) -> io::Result<u64> {
        match self.kind {
            FileKind::Regular => Ok(self.buffered.metadata()?.len()),
            FileKind::BlockDevice => Ok(rustix::fs::seek(&self.buffered, rustix::fs::SeekFrom::End(0))?),
        }
    }

    /// Reads what the page cache holds of `[offset_bytes, offset_bytes + buffer.len())`, from its start up to the first
    /// page that is missing, without waiting for a device. `Ok(None)` means that nothing is known to be there;
    /// `Ok(Some(0))` is the end of the file. On a file that is open for direct I/O the range must be resident as a whole,
    /// because a miss would make the kernel read what the direct route then reads again.
    ///
    /// # Errors
    /// What `preadv2(2)` reports, other than that it would have to wait.
    pub fn read_if_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<Option<usize>> {
        self.kernel_cache.read_if_resident(&self.buffered, buffer, offset_bytes)
    }

    /// The same for a range that [`OpenFile::residency`] said is resident: does not ask again.
    ///
    /// # Errors
    /// As [`OpenFile::read_if_resident`].
    pub fn read_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<Option<usize>> {
        self.kernel_cache.read(&self.buffered, buffer, offset_bytes)
    }

    /// How much of `range`, as far as the file reaches, the kernel's page cache holds. One or two cheap syscalls. Where
    /// the kernel only answers the owner of the file, first and last page are probed and stand for the rest.
    pub fn residency(&self, range: ByteRange) -> Residency {
        self.kernel_cache.residency(&self.buffered, range)
    }

    /// Reads into borrowed memory and returns when it is done: until the buffer is full, the file ends, or an error.
    /// Never touches the ring: a lone reader pays one `pread(2)` and no thread switch. With [`Route::Direct`] offset,
    /// length and memory must be aligned.
    ///
    /// # Errors
    /// What `pread(2)` reports, if nothing was read before.
    pub fn read_blocking(&self, route: Route, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let file = self.file(route);
        let mut done_bytes = 0;
        while done_bytes < buffer.len() {
            match file.read_at(&mut buffer[done_bytes..], offset_bytes + done_bytes as u64) {
                Ok(0) => break,
                Ok(read_bytes) => done_bytes += read_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if done_bytes > 0 => break,
                Err(error) => return Err(error),
            }
            if self.ends_transfer(route, done_bytes) {
                break;
            }
        }
        Ok(done_bytes)
    }

    /// Whether a transfer that stands at `done_bytes` cannot be continued because the next offset would be unaligned:
    /// on the direct route that happens only at the end of the file.
    pub(crate) fn ends_transfer(&self, route: Route, done_bytes: usize) -> bool {
        !done_bytes.is_multiple_of(self.transfer_alignment_bytes(route))
    }

    /// What offsets and lengths must be multiples of on this route.
    pub(crate) fn transfer_alignment_bytes(&self, route: Route) -> usize {
        match route {
            Route::Buffered => 1,
            Route::Direct => self.direct().map_or(1, |direct| direct.offset.get() as usize),
        }
    }

    /// Forgets what the kernel caches of the whole file, as far as it is clean: makes it cold for a measurement.
    ///
    /// # Errors
    /// What `posix_fadvise(2)` reports.
    pub fn evict_from_kernel(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.buffered, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    /// Direct requests of up to this many bytes complete on a ring that polls the device; 0 where none do. Looked up and
    /// tried once for each open file.
    pub(crate) fn polled_bytes_max(&self) -> usize {
        let look = || {
            let (Some(direct), Ok(metadata)) = (&self.direct, self.buffered.metadata()) else { return 0 };
            match queue_polled_bytes_max(&metadata) {
                0 => 0,
                bytes if uring::polled_read_works(direct.file.as_fd()) => bytes,
                _ => 0,
            }
        };
        *self.polled_bytes_max.get_or_init(look)
    }

    pub(crate) fn descriptor(&self, route: Route) -> BorrowedFd<'_> {
        self.file(route).as_fd()
    }

    /// The ordinary descriptor, for the ways of moving bytes that stay inside the kernel (`splice`, `sendfile`).
    pub fn buffered(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    fn file(&self, route: Route) -> &File {
        match route {
            Route::Buffered => &self.buffered,
            Route::Direct => &self.direct.as_ref().expect("requests check the route").file,
        }
    }
}

/// Whether the device below a file completes polled I/O (`io_poll` in its queue's sysfs folder), the condition for
/// [`crate::Polling::Auto`] to make a difference.
///
/// # Errors
/// When the file has no metadata.
pub fn device_polls(path: &Path) -> io::Result<bool> {
    Ok(queue_polled_bytes_max(&std::fs::metadata(path)?) > 0)
}

/// The largest request that the device takes whole, if it polls, else 0. What the kernel has to split it does not poll
/// for: Linux 6.1 (seen on 6.1.192, 1 MiB to an NVMe disk that takes 512 KiB) never completes it.
fn queue_polled_bytes_max(metadata: &std::fs::Metadata) -> usize {
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let number = |queue: &str, name: &str| {
        std::fs::read_to_string(format!("{queue}/{name}")).ok().and_then(|text| text.trim().parse().ok())
    };
    // A partition has no queue of its own; its parent has.
    let queues = [format!("{folder}/queue"), format!("{folder}/../queue")];
    let Some(queue) = queues.iter().find(|queue| number(queue, "io_poll") == Some(1)) else { return 0 };
    let sectors_bytes = number(queue, "max_sectors_kb").unwrap_or(0) * 1024;
    let segments_bytes = number(queue, "max_segments").unwrap_or(0) * PAGE_SIZE_BYTES as usize;
    sectors_bytes.min(segments_bytes)
}

fn positioned_kind(metadata: &std::fs::Metadata) -> io::Result<FileKind> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        Ok(FileKind::Regular)
    } else if file_type.is_block_device() {
        Ok(FileKind::BlockDevice)
    } else if file_type.is_dir() {
        Err(Errno::ISDIR.into())
    } else {
        let text = "not a regular file or block device: it can be streamed, but has no positions to read at";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

fn open_direct(buffered: &File, kind: FileKind, path: &Path, access: Access) -> io::Result<Direct> {
    let refused = || {
        let text = "the file system does not support direct I/O (O_DIRECT) on this file";
        io::Error::new(io::ErrorKind::Unsupported, text)
    };
    // A block device lies in a file system in memory (/dev), but its contents do not.
    if kind == FileKind::Regular && is_memory_backed(buffered) {
        return Err(refused());
    }
    let told = sys::statx_direct_alignment(buffered.as_fd());
    if told.is_some_and(|(_, offset)| offset == 0) {
        return Err(refused());
    }
    let file = reopen(buffered, path, access).map_err(|_| refused())?;
    let alignment = match told {
        Some((memory, offset)) => direct_alignment(memory, offset),
        None => probe(&file),
    };
    Ok(Direct { file, alignment: alignment.ok_or_else(refused)? })
}

fn direct_alignment(memory: u64, offset: u64) -> Option<DirectAlignment> {
    let (memory, offset) = (Alignment::new(memory)?, Alignment::new(offset)?);
    // Extents and readahead are cut in pages; a file system that wants more is read through the page cache.
    let fits = memory.get() <= PAGE_SIZE_BYTES && offset.get() <= PAGE_SIZE_BYTES;
    fits.then_some(DirectAlignment { memory, offset })
}

/// tmpfs accepts `O_DIRECT` since Linux 6.6, but its page cache is the storage: reading around it gains nothing.
fn is_memory_backed(file: &File) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|stat| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&stat.f_type))
}

/// Opens the same file again, with `O_DIRECT`: by descriptor, so that a rename in between does no harm; without
/// /proc by path, checked to be the same file.
fn reopen(buffered: &File, path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite).custom_flags(libc::O_DIRECT);
    let by_descriptor = options.open(format!("/proc/self/fd/{}", buffered.as_raw_fd()));
    match by_descriptor {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = options.open(path)?;
            let (ours, theirs) = (buffered.metadata()?, file.metadata()?);
            let same = (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino());
            if same { Ok(file) } else { Err(Errno::STALE.into()) }
        }
        other => other,
    }
}

/// Where `statx` does not tell, one aligned page shows whether direct reads work; page alignment is then assumed.
fn probe(file: &File) -> Option<DirectAlignment> {
    let mut page = PageBuffer([0; PAGE_SIZE_BYTES as usize]);
    file.read_at(&mut page.0, 0).ok()?;
    Some(DirectAlignment { memory: Alignment::PAGE, offset: Alignment::PAGE })
}

/// A page for a trial read.
#[repr(C, align(4096))]
pub(crate) struct PageBuffer(pub(crate) [u8; PAGE_SIZE_BYTES as usize]);
