//! Open file: a file's descriptors, what direct I/O asks of them, and what the kernel already holds.
//!
//! ```text
//!   open ──► ordinary descriptor ──► statx: kind, identity, stamp, alignment for O_DIRECT ──► Direct, or none
//! ```
//!
//! Owns: the descriptors.
//! Does not own: offsets, which route a request takes, what the kernel caches (kernel cache).

mod append;
mod descriptor;
mod direct;
mod file_system;
pub(crate) mod identity;
pub(crate) mod kernel_cache;
pub(crate) mod lease;
pub(crate) mod mapped;
mod once;
mod status;
pub(crate) mod watch;
mod writing;

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use headwater_core::backing::{Backing, Form};
use headwater_core::readahead::Advice;
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};
use rustix::fs::OFlags;

use crate::backend::uring;
use crate::file::kernel_cache::{KernelCache, Misses, Residency, is_dirty};

use descriptor::Descriptor;
use direct::{Direct, Opening};
use status::{Status, positioned_kind};

pub use append::{AppendFile, Appended};
pub use descriptor::close_parked;
pub use direct::DirectAlignment;
pub use file_system::FileSystem;
pub use once::{SeenFile, WholeFile};
pub use status::{FileKey, FileStamp, StampTrust};
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

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        }
    }
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

/// Time since some moment, as of the kernel's last tick: cheaper to ask than the exact time.
pub fn coarse_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// How far [`coarse_clock`] may lie behind the exact time: 1 to 10 ms. Asked of the kernel once.
pub fn coarse_tick() -> Duration {
    static TICK: OnceLock<Duration> = OnceLock::new();
    *TICK.get_or_init(|| {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        Duration::new(tick.tv_sec as u64, tick.tv_nsec as u32)
    })
}

/// Whether the kernel keeps file times as finely as they are asked for: Linux 6.13. Looked up once.
fn is_multigrain_kernel() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers =
            release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 13)
    })
}

/// A file open for positioned transfers.
#[derive(Debug)]
pub struct OpenFile {
    buffered: Descriptor,
    direct: Option<Direct>,
    kind: FileKind,
    opened: Opened,
    kernel_cache: KernelCache,
    polled_bytes_max: OnceLock<usize>,
    file_system: OnceLock<FileSystem>,
}

/// What was seen of a file when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Which file.
    pub key: FileKey,
    /// What tells whether it has changed since.
    pub stamp: FileStamp,
    /// By [`coarse_clock`], just before.
    pub looked_at: Duration,
}

impl OpenFile {
    /// Opens a regular file, block device or character device; the last without `O_DIRECT`. Three system calls, where
    /// the file system tells what `O_DIRECT` asks for: the descriptor for it is then opened when it is first used.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for files without positions (FIFO, socket), and with
    /// [`DirectIo::Required`] for a character device and where the file system refuses `O_DIRECT`.
    pub fn open(path: &Path, direct_io: DirectIo, access: Access) -> io::Result<OpenFile> {
        let looked_at = coarse_clock();
        let buffered = open_unwaiting(path, access)?;
        let status = Status::of(&buffered)?;
        let_wait(&buffered)?;
        OpenFile::from_ordinary(buffered, status, looked_at, path, (direct_io, access))
    }

    /// Adds to the ordinary descriptor what else is wanted.
    fn from_ordinary(
        buffered: Descriptor,
        status: Status,
        looked_at: Duration,
        path: &Path,
        (direct_io, access): (DirectIo, Access),
    ) -> io::Result<OpenFile> {
        let direct = match direct_io {
            DirectIo::Off => None,
            DirectIo::Preferred => Direct::find(&buffered, &status, path, access, Opening::WhenUsed).ok(),
            DirectIo::Required => Some(Direct::find(&buffered, &status, path, access, Opening::Now)?),
        };
        let misses = if direct.is_some() { Misses::AreWasted } else { Misses::AreUseful };
        let opened = Opened { key: status.key, stamp: status.stamp, looked_at };
        let (kind, kernel_cache) = (status.kind, KernelCache::new(misses));
        let (polled_bytes_max, file_system) = (OnceLock::new(), OnceLock::new());
        Ok(OpenFile { buffered, direct, kind, opened, kernel_cache, polled_bytes_max, file_system })
    }

    /// What was seen of the file when it was opened, its length unless it is a block device.
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// What direct transfers must be aligned to; `None` when the file is open without `O_DIRECT`.
    pub fn direct(&self) -> Option<DirectAlignment> {
        self.direct.as_ref().map(|direct| direct.alignment)
    }

    /// What kind of file.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// What kind of file system the file lies on. One system call, the first time.
    pub fn file_system(&self) -> FileSystem {
        *self.file_system.get_or_init(|| FileSystem::of(&self.buffered, self.opened.key))
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

    /// Whether a file of length 0 may have contents all the same, as files of `/proc`, `/sys` and some of FUSE do, which are
    /// made up when they are read. One syscall, once, on a file system that has no block device of its own.
    pub fn may_hide_contents(&self) -> bool {
        let may_hide = |file_system| matches!(file_system, FileSystem::User | FileSystem::Unknown);
        self.kind == FileKind::Regular && !cfg!(miri) && may_hide(self.file_system())
    }

    /// Which file this is, and what tells whether it has changed. One syscall, which on a network file system asks the server.
    ///
    /// # Errors
    /// As [`OpenFile::length_bytes`].
    pub fn identity(&self) -> io::Result<(FileKey, FileStamp)> {
        let is_remote = self.opened.key.is_on_no_device()
            && matches!(self.file_system(), FileSystem::Network | FileSystem::User | FileSystem::Unknown);
        let status = if is_remote { Status::of_server(&self.buffered) } else { Status::of(&self.buffered) };
        let Status { key, stamp, .. } = status?;
        let length_bytes = match self.kind {
            FileKind::Regular | FileKind::CharacterDevice => stamp.length_bytes,
            FileKind::BlockDevice => self.length_bytes()?,
        };
        Ok((key, stamp.with_length(length_bytes)))
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

    /// How many pages of `range` the kernel's page cache holds. A range that reaches beyond the end of the file may count
    /// more pages than the file has: where the kernel caches several pages as one (ext4 and XFS), it keeps them together
    /// when the file is cut. `None` where the kernel does not tell: before Linux 6.5, and of files that this process
    /// neither owns nor may write to. One syscall.
    pub fn resident_pages(&self, range: ByteRange) -> Option<u64> {
        self.kernel_cache.resident_pages(&self.buffered, range)
    }

    /// Whether two changes always leave different times if the first was looked at in between, however short the time: from Linux
    /// 6.13 on ext4, XFS, Btrfs and tmpfs. One syscall, once the kernel is known to be new enough.
    pub fn has_fine_times(&self) -> bool {
        is_multigrain_kernel() && file_system::has_fine_times(&self.buffered)
    }

    /// Whether the kernel's page cache holds bytes of `range` that were written, by whatever process, and are not on the device.
    /// Direct writes to pages that others write through it have the next sync of the file fail. One syscall; `false` where the
    /// kernel does not tell.
    pub fn is_dirty_in_kernel(&self, range: ByteRange) -> bool {
        is_dirty(self.buffered.as_fd(), range)
    }

    /// Reads into borrowed memory and returns when it is done: until the buffer is full, the file ends, or an error.
    /// Never touches the ring: a lone reader pays one `pread(2)` and no thread switch. With [`Route::Direct`] offset,
    /// length and memory must be aligned.
    ///
    /// # Errors
    /// What `pread(2)` reports, if nothing was read before.
    ///
    /// # Panics
    /// With [`Route::Direct`] on a file without it ([`OpenFile::direct`]).
    pub fn read_blocking(&self, mut route: Route, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let mut done_bytes = 0;
        while done_bytes < buffer.len() {
            match self.file(route).read_at(&mut buffer[done_bytes..], offset_bytes + done_bytes as u64) {
                Ok(0) => break,
                Ok(read_bytes) => done_bytes += read_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.may_read_buffered(route, &error, 0) => route = Route::Buffered,
                Err(_) if done_bytes > 0 => break,
                Err(error) => return Err(error),
            }
            if self.ends_transfer(route, done_bytes) {
                break;
            }
        }
        Ok(done_bytes)
    }

    /// Whether a read that failed may succeed through the kernel's page cache: a direct one fails with EIO also where it meets space
    /// that is promised to bytes which others have written, but not found yet (XFS). Should the device have failed, it fails again.
    /// Not a request of so many bytes that was sent to a ring which polls: that knows no other reads.
    pub(crate) fn may_read_buffered(&self, route: Route, error: &io::Error, requested_bytes: usize) -> bool {
        let is_polled =
            || self.polled_bytes_max.get().is_some_and(|max| (1..=*max).contains(&requested_bytes));
        route == Route::Direct && error.raw_os_error() == Some(libc::EIO) && !is_polled()
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
        self.kernel_cache.leave_advice_to_others();
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

    /// Direct requests of up to this many bytes complete on a ring that polls the device; 0 where none do. Looked up once for
    /// each device, and tried once for each open file.
    pub(crate) fn polled_bytes_max(&self) -> usize {
        let look = || {
            let (Some(direct), Ok(stat)) = (&self.direct, rustix::fs::fstat(&self.buffered)) else {
                return 0;
            };
            let device = if self.kind == FileKind::BlockDevice { stat.st_rdev } else { stat.st_dev };
            match known_polled_bytes_max(device) {
                0 => 0,
                bytes if uring::polled_read_works(direct.file_or(&self.buffered).as_fd()) => bytes,
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
            Route::Direct => self.direct.as_ref().expect("requests check the route").file_or(&self.buffered),
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
    let metadata = std::fs::metadata(path)?;
    let is_device = metadata.file_type().is_block_device();
    Ok(queue_polled_bytes_max(if is_device { metadata.rdev() } else { metadata.dev() }) > 0)
}

/// The same, remembered: opening one small file after the other must not read sysfs for each.
fn known_polled_bytes_max(device: u64) -> usize {
    static KNOWN: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&(_, bytes)) = known.iter().find(|(of, _)| *of == device) {
        return bytes;
    }
    let bytes = queue_polled_bytes_max(device);
    if known.len() < DEVICES_KNOWN_MAX {
        known.push((device, bytes));
    }
    bytes
}

/// More than a machine has file systems in use at once.
const DEVICES_KNOWN_MAX: usize = 64;

/// The largest request that the device takes whole, if it polls, else 0. What the kernel has to split it does not poll
/// for: Linux 6.1 (seen on 6.1.192, 1 MiB to an NVMe disk that takes 512 KiB) never completes it.
fn queue_polled_bytes_max(device: u64) -> usize {
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

/// The ordinary descriptor. Opening does not wait for the other end of a FIFO, which is refused; [`let_wait`] then makes the
/// descriptor an ordinary one.
fn open_unwaiting(path: &Path, access: Access) -> io::Result<Descriptor> {
    let flags = access.flags();
    // Miri has no such flag.
    let unwaiting = if cfg!(miri) { OFlags::empty() } else { OFlags::NONBLOCK };
    match Descriptor::open(path, flags | unwaiting) {
        // What others hold a lease on has to be waited for. A socket cannot be opened at all, which is better said so.
        Err(error) if [Some(libc::EAGAIN), Some(libc::ENXIO)].contains(&error.raw_os_error()) => {
            let mode = std::fs::metadata(path)?.mode();
            positioned_kind(rustix::fs::FileType::from_raw_mode(mode))?;
            Descriptor::open(path, flags)
        }
        opened => opened,
    }
}

/// Takes the flags off a descriptor that was opened for a first look: on a ring, `O_NONBLOCK` would have requests fail that
/// must wait.
fn let_wait(file: &File) -> io::Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    Ok(rustix::fs::fcntl_setfl(file, OFlags::empty())?)
}

/// A page for a trial read.
#[repr(C, align(4096))]
pub(crate) struct PageBuffer(pub(crate) [u8; PAGE_SIZE_BYTES as usize]);
