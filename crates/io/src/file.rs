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

mod writing;

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use headwater_core::backing::{Backing, Form};
use headwater_core::readahead::Advice;
use headwater_core::units::{Alignment, ByteRange, PAGE_SIZE_BYTES};
use rustix::io::Errno;

use crate::kernel_cache::{KernelCache, Misses, Residency};
use crate::{sys, uring};

pub use writing::{Allocated, Creation};

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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Reading.
    #[default]
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
    /// A character device: no length, and what is read need not be the same twice.
    CharacterDevice,
}

/// Tells files apart, whatever their names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileKey {
    device: u64,
    inode: u64,
}

impl FileKey {
    /// Which file a path leads to.
    ///
    /// # Errors
    /// What `stat(2)` reports.
    pub fn of_path(path: &Path) -> io::Result<FileKey> {
        Ok(FileKey::of(&std::fs::metadata(path)?))
    }

    fn of(metadata: &std::fs::Metadata) -> FileKey {
        FileKey { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(crate) fn of_descriptor(file: BorrowedFd<'_>) -> io::Result<FileKey> {
        let stat = rustix::fs::fstat(file)?;
        Ok(FileKey { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// What tells whether a file has changed since it was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStamp {
    /// Length, bytes.
    pub length_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    age: StampAge,
}

/// How long before the look the last change was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StampAge {
    /// So shortly that another change would not move the time.
    Fresh,
    /// So shortly that the write may still be under way: it moves the time when it begins.
    Young,
    /// Long ago.
    Old,
}

/// How much a stamp has to prove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampTrust {
    /// A write that began before the first look, and was still under way then, may be missed until the stamp is old.
    Settling,
    /// Nothing may be missed.
    Strict,
}

impl FileStamp {
    fn of(metadata: &std::fs::Metadata, length_bytes: u64) -> FileStamp {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let passed = i128::from(now.tv_sec - changed.0) * 1_000_000_000 + i128::from(now.tv_nsec - changed.1);
        // A time in the future is another clock's (a network file system's): its ticks are not ours.
        let age = if passed <= -TICK_NANOSECONDS || passed >= WRITE_NANOSECONDS {
            StampAge::Old
        } else if passed >= TICK_NANOSECONDS {
            StampAge::Young
        } else {
            StampAge::Fresh
        };
        FileStamp { length_bytes, modified: (metadata.mtime(), metadata.mtime_nsec()), changed, age }
    }

    /// The stamp of a change whose author knows that it is over: who changes the file next moves the times.
    pub fn settled(self) -> FileStamp {
        FileStamp { age: StampAge::Old, ..self }
    }

    /// Whether what was read of a file after it had this stamp is still right when it has the other one later.
    pub fn proves_unchanged(&self, later: &FileStamp, trust: StampTrust) -> bool {
        let times = |stamp: &FileStamp| (stamp.length_bytes, stamp.modified, stamp.changed);
        let is_equal = times(self) == times(later);
        match self.age {
            StampAge::Fresh => false,
            // What was read while a write may have been under way goes once, when that must be over.
            StampAge::Young => is_equal && trust == StampTrust::Settling && later.age == StampAge::Young,
            StampAge::Old => is_equal,
        }
    }
}

/// The longest tick of the kernel's clock for file times: 10 ms with `CONFIG_HZ=100`.
const TICK_NANOSECONDS: i128 = 10_000_000;

/// The longest that one write of another process is taken to last: 30 s, in which a slow disk writes the 2 GiB that a system
/// call takes at most at 70 MB/s.
const WRITE_NANOSECONDS: i128 = 30_000_000_000;

/// Time since some moment, as of the kernel's last tick: cheaper to ask than the exact time.
pub fn coarse_clock() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
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
    /// Opens a regular file, block device or character device; the last without `O_DIRECT`.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for files without positions (FIFO, socket), and with
    /// [`DirectIo::Required`] for a character device and where the file system refuses `O_DIRECT`.
    pub fn open(path: &Path, direct_io: DirectIo, access: Access) -> io::Result<OpenFile> {
        // Opening a FIFO would wait for its other end, so look before.
        positioned_kind(&std::fs::metadata(path)?)?;
        let buffered = OpenOptions::new().read(true).write(access == Access::ReadWrite).open(path)?;
        OpenFile::from_ordinary(buffered, path, direct_io, access)
    }

    /// Adds to the ordinary descriptor what else is wanted.
    fn from_ordinary(
        buffered: File,
        path: &Path,
        direct_io: DirectIo,
        access: Access,
    ) -> io::Result<OpenFile> {
        let kind = positioned_kind(&buffered.metadata()?)?;
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

    /// What kind of file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The length now, bytes. One syscall.
    ///
    /// # Errors
    /// What `fstat(2)` or `lseek(2)` report.
    pub fn length_bytes(&self) -> io::Result<u64> {
        match self.kind {
            FileKind::Regular | FileKind::CharacterDevice => Ok(self.buffered.metadata()?.len()),
            FileKind::BlockDevice => Ok(rustix::fs::seek(&self.buffered, rustix::fs::SeekFrom::End(0))?),
        }
    }

    /// Which file this is, and what tells whether it has changed. One syscall.
    ///
    /// # Errors
    /// As [`OpenFile::length_bytes`].
    pub fn identity(&self) -> io::Result<(FileKey, FileStamp)> {
        let metadata = self.buffered.metadata()?;
        let length_bytes = match self.kind {
            FileKind::Regular | FileKind::CharacterDevice => metadata.len(),
            FileKind::BlockDevice => self.length_bytes()?,
        };
        Ok((FileKey::of(&metadata), FileStamp::of(&metadata, length_bytes)))
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

    /// How many pages of `range`, as far as the file reaches, the kernel's page cache holds. `None` where the kernel does
    /// not tell: before Linux 6.5, and of files that this process neither owns nor may write to. One syscall.
    pub fn resident_pages(&self, range: ByteRange) -> Option<u64> {
        self.kernel_cache.resident_pages(&self.buffered, range)
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

    /// Gives the kernel advice about the ordinary descriptor, for which it reads ahead and caches. An empty range means
    /// nothing, not the rest of the file; with one that reaches the end, the last page counts as whole.
    ///
    /// # Errors
    /// What `posix_fadvise(2)` and `fstat(2)` report.
    pub fn advise_kernel(&self, advice: Advice, range: ByteRange) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let reaches_end = range.end >= self.length_bytes()?;
        let length = if reaches_end { None } else { NonZeroU64::new(range.len()) };
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::NoReuse => rustix::fs::Advice::NoReuse,
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
        };
        Ok(rustix::fs::fadvise(&self.buffered, range.start, length, advice)?)
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

impl Backing for OpenFile {
    type Error = io::Error;

    fn form(&self) -> Form {
        match self.kind {
            FileKind::Regular | FileKind::BlockDevice => Form::Cached,
            FileKind::CharacterDevice => Form::Direct,
        }
    }

    fn length_bytes(&self) -> io::Result<Option<u64>> {
        match self.kind {
            FileKind::Regular | FileKind::BlockDevice => OpenFile::length_bytes(self).map(Some),
            FileKind::CharacterDevice => Ok(None),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.read_blocking(Route::Buffered, buffer, offset_bytes)
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
    } else if file_type.is_char_device() {
        Ok(FileKind::CharacterDevice)
    } else if file_type.is_dir() {
        Err(Errno::ISDIR.into())
    } else {
        let text = "a FIFO or socket can be streamed, but has no positions to read at";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

fn open_direct(buffered: &File, kind: FileKind, path: &Path, access: Access) -> io::Result<Direct> {
    let refused = || {
        let text = "the file system does not support direct I/O (O_DIRECT) on this file";
        io::Error::new(io::ErrorKind::Unsupported, text)
    };
    if kind == FileKind::CharacterDevice {
        let text = "a character device has no direct I/O (O_DIRECT)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
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
