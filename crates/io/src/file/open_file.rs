//! Open file: a file's descriptors, the alignment of direct I/O, and the kernel's page cache of it.
//!
//! ```text
//!   open ──► ordinary descriptor ──► statx: kind, identity, stamp, alignment for O_DIRECT ──► Direct, or none
//! ```
//!
//! Owns: the descriptors.
//! Does not own: offsets, the route of a request, pages in the kernel's cache (kernel cache).

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headwater_core::backing::{Backing, Form};
use headwater_core::readahead::Advice;
use headwater_core::units::ByteRange;
use rustix::fs::OFlags;

use super::access::{
    Access, DirectIo, Given, IsNew, Opening, Route, create, let_wait, open_unwaiting, remove_created,
};
use super::clock::coarse_clock;
use super::descriptor::Descriptor;
use super::direct::{Direct, DirectAlignment};
use super::file_system::{self, FileSystem};
use super::kernel_cache::{KernelCache, Misses, Residency, is_dirty};
use super::polling::known_polled_bytes_max;
use super::status::{FileKey, FileKind, FileStamp, Status};

/// A file open for positioned transfers.
#[derive(Debug)]
pub struct OpenFile {
    pub(super) ordinary: Descriptor,
    /// Set once `ordinary` has the flags that transfers need; see [`OpenFile::buffered`].
    pub(super) is_ready: OnceLock<()>,
    is_new: IsNew,
    /// What the program gave, kept for its locks.
    given: Option<File>,
    /// Whether the position of `ordinary` is of no concern to the program.
    pub(super) may_seek: bool,
    pub(super) direct: Option<Direct>,
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
    /// Stamp to compare with later ones.
    pub stamp: FileStamp,
    /// By [`coarse_clock`], just before.
    pub looked_at: Duration,
}

/// A descriptor of a file that it keeps open.
#[derive(Clone, Debug)]
pub struct SharedDescriptor {
    file: Arc<OpenFile>,
    route: Route,
}

impl AsFd for SharedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.descriptor(self.route)
    }
}

impl OpenFile {
    /// Opens a regular file, block device or character device; the last without `O_DIRECT`. Two system calls, where the file system tells
    /// what `O_DIRECT` asks for: the descriptor for it is then opened when it is first used, and the flags of the ordinary one are set when it
    /// first moves bytes. On a network file system and on FUSE two more, one of which asks the server for length and times.
    ///
    /// # Errors
    /// What `open(2)` reports; `IsADirectory`; `Unsupported` for files without positions (FIFO, socket), and with
    /// [`DirectIo::Required`] for a character device and where the file system refuses `O_DIRECT`.
    pub fn open(path: &Path, direct_io: DirectIo, access: Access) -> io::Result<OpenFile> {
        OpenFile::open_as(path, direct_io, access, &Opening::default())
    }

    /// As [`OpenFile::open`], with more options of `open(2)`. A file that this call has created is removed again when it fails.
    ///
    /// # Errors
    /// Those of [`OpenFile::open`]; `AlreadyExists` with [`Creation::New`](super::Creation::New); `InvalidInput` for a file that is to
    /// be created and only read.
    pub fn open_as(
        path: &Path,
        direct_io: DirectIo,
        access: Access,
        opening: &Opening,
    ) -> io::Result<OpenFile> {
        let looked_at = coarse_clock();
        let flags = access.flags() | opening.custom_flags();
        let (buffered, is_new) = match opening.creation {
            None => (open_unwaiting(path, flags)?, IsNew::Unknown),
            Some(_) if access == Access::Read => {
                let text = "a file that is created is opened for writing";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            Some(creation) => create(path, flags, opening.permissions, creation)?,
        };
        // The others ask for something that was done, or concern names.
        let reopening = access.flags() | opening.custom_flags() & OFlags::NOATIME;
        let created = (is_new == IsNew::Yes).then(|| FileKey::of_descriptor(buffered.as_fd()));
        let open = Status::of(&buffered).and_then(|status| {
            OpenFile::from_ordinary(buffered, status, looked_at, path, (direct_io, reopening))
        });
        match (open, created) {
            (Ok(open), _) => Ok(OpenFile { is_new, ..open }),
            (Err(error), Some(Ok(key))) => {
                remove_created(path, key);
                Err(error)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Whether this opening has made the file. Also false where it may have: for a symbolic link to a file that was not there.
    pub fn is_created(&self) -> bool {
        self.is_new == IsNew::Yes
    }

    /// Removes a file that [`OpenFile::open_as`] has created, of which this was [`Opened::key`], for a caller that fails afterwards: if the
    /// path still leads to it, and it is still empty.
    pub fn remove_created(path: &Path, key: FileKey) {
        remove_created(path, key);
    }

    /// A file that the program has opened: the descriptor is used for nothing but to open the file anew, and kept. Where that is not
    /// possible, because there is no `/proc` or the process may not open the file itself, transfers use the descriptor, through the
    /// kernel's page cache. `path` serves error texts. Also returns what the file is open for: one that is open for writing alone is opened
    /// for reading as well, if the process may read it.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn from_std(
        file: File,
        given: Given,
        direct_io: DirectIo,
        path: &Path,
    ) -> io::Result<(OpenFile, Access)> {
        let (looked_at, status) = (coarse_clock(), Status::of(&file)?);
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reopen = |access: Access| Ok((Descriptor::open(&link, access.flags())?, access));
        let reopened: io::Result<_> = match given.access {
            Access::Write if direct_io == DirectIo::Required => reopen(Access::ReadWrite),
            Access::Write => reopen(Access::ReadWrite).or_else(|_| reopen(Access::Write)),
            access => reopen(access),
        };
        let (ordinary, access, given, direct_io) = match reopened {
            Ok((reopened, access)) => (reopened, access, Some(file), direct_io),
            // Nor could a direct descriptor be opened.
            Err(_) if given.serves && direct_io == DirectIo::Preferred => {
                (Descriptor::from(file), given.access, None, DirectIo::Off)
            }
            Err(_) if given.serves => (Descriptor::from(file), given.access, None, direct_io),
            Err(error) => return Err(error),
        };
        let open = OpenFile::from_ordinary(ordinary, status, looked_at, path, (direct_io, access.flags()))?;
        let may_seek = given.is_some();
        Ok((OpenFile { given, may_seek, ..open }, access))
    }

    /// Adds to the ordinary descriptor what else is wanted.
    pub(super) fn from_ordinary(
        ordinary: Descriptor,
        status: Status,
        looked_at: Duration,
        path: &Path,
        (direct_io, flags): (DirectIo, OFlags),
    ) -> io::Result<OpenFile> {
        let direct = Direct::choose(direct_io, &ordinary, &status, path, flags)?;
        let misses = if direct.is_some() { Misses::AreWasted } else { Misses::AreUseful };
        let opened = Opened { key: status.key, stamp: status.stamp, looked_at };
        let (kind, kernel_cache) = (status.kind, KernelCache::new(misses));
        let (is_ready, polled_bytes_max, file_system) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let given = None;
        let mut open = OpenFile {
            ordinary,
            is_ready,
            given,
            is_new: IsNew::Unknown,
            may_seek: true,
            direct,
            kind,
            opened,
            kernel_cache,
            polled_bytes_max,
            file_system,
        };
        if open.may_not_answer() {
            // What the kernel remembers of a file on a server may be from before a change.
            open.opened.stamp = Status::of_server(&open.ordinary)?.stamp;
        }
        Ok(open)
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
        *self.file_system.get_or_init(|| FileSystem::of(&self.ordinary, self.opened.key))
    }

    /// The length now, bytes. One syscall.
    ///
    /// # Errors
    /// What `fstat(2)` or `lseek(2)` report.
    pub fn length_bytes(&self) -> io::Result<u64> {
        match self.kind {
            FileKind::Regular | FileKind::CharacterDevice => Ok(self.ordinary.metadata()?.len()),
            FileKind::BlockDevice => Ok(rustix::fs::seek(&self.ordinary, rustix::fs::SeekFrom::End(0))?),
        }
    }

    /// Whether a file of length 0 may have contents all the same, as files of `/proc`, `/sys` and some of FUSE do, which are
    /// made up when they are read. One syscall, once, on a file system that has no block device of its own.
    pub fn may_hide_contents(&self) -> bool {
        let may_hide = |file_system| matches!(file_system, FileSystem::User | FileSystem::Unknown);
        self.kind == FileKind::Regular && !cfg!(miri) && may_hide(self.file_system())
    }

    /// Whether a server answers for the file, in this machine or another: any system call may last until it does. One syscall, once, on a
    /// file system that has no block device of its own.
    pub fn may_not_answer(&self) -> bool {
        // Miri has no `fstatfs(2)`.
        !cfg!(miri)
            && self.opened.key.is_on_no_device()
            && matches!(self.file_system(), FileSystem::Network | FileSystem::User | FileSystem::Unknown)
    }

    /// Which file this is, and what tells whether it has changed. One syscall, which on a network file system asks the server.
    ///
    /// # Errors
    /// As [`OpenFile::length_bytes`].
    pub fn identity(&self) -> io::Result<(FileKey, FileStamp)> {
        let status = if self.may_not_answer() {
            Status::of_server(&self.ordinary)
        } else {
            Status::of(&self.ordinary)
        };
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
        self.kernel_cache.read_if_resident(self.ready(), buffer, offset_bytes)
    }

    /// The same for a range that [`OpenFile::residency`] said is resident: does not ask again.
    ///
    /// # Errors
    /// As [`OpenFile::read_if_resident`].
    pub fn read_resident(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<Option<usize>> {
        self.kernel_cache.read(self.ready(), buffer, offset_bytes)
    }

    /// How much of `range`, as far as the file reaches, the kernel's page cache holds. One or two cheap syscalls. Where
    /// the kernel only answers the owner of the file, first and last page are probed and stand for the rest.
    pub fn residency(&self, range: ByteRange) -> Residency {
        self.kernel_cache.residency(&self.ordinary, range)
    }

    /// Before a range that is resident is copied from the kernel's page cache: notes that, or says `false` where the range is resident
    /// because the kernel reads ahead of earlier copies, and is better read from the device.
    pub fn begin_copy(&self, range: ByteRange) -> bool {
        self.kernel_cache.begin_copy(&self.ordinary, range)
    }

    /// How many pages of `range` the kernel's page cache holds. A range that reaches beyond the end of the file may count
    /// more pages than the file has: where the kernel caches several pages as one (ext4 and XFS), it keeps them together
    /// when the file is truncated. `None` where the kernel does not tell: before Linux 6.5, and of files that this process
    /// neither owns nor may write to. One syscall.
    pub fn resident_pages(&self, range: ByteRange) -> Option<u64> {
        self.kernel_cache.resident_pages(&self.ordinary, range)
    }

    /// Whether two changes always leave different times if the first was looked at in between, however short the time: from Linux
    /// 6.13 on ext4, XFS, Btrfs and tmpfs. One syscall, once the kernel is known to be new enough.
    pub fn has_fine_times(&self) -> bool {
        !self.may_not_answer() && file_system::has_fine_times(&self.ordinary)
    }

    /// Whether the kernel's page cache holds bytes of `range` that were written, by whatever process, and are not on the device.
    /// If a direct write meets pages that others write through the page cache, the next sync of the file fails. One syscall; `false`
    /// if the kernel does not answer.
    pub fn is_dirty_in_kernel(&self, range: ByteRange) -> bool {
        is_dirty(self.ordinary.as_fd(), range)
    }

    /// Reads into borrowed memory and returns when it is done: until the buffer is full, the file ends, or an error.
    /// Never touches the ring: a lone reader pays one `pread(2)` and no thread switch. With [`Route::Direct`] offset,
    /// length and memory must be aligned.
    ///
    /// # Errors
    /// `InvalidInput` when the direct route meets something unaligned. What `pread(2)` reports, if nothing was read before.
    ///
    /// # Panics
    /// With [`Route::Direct`] on a file without it ([`OpenFile::direct`]).
    pub fn read_blocking(&self, mut route: Route, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.check_aligned(route, (buffer.as_ptr(), buffer.len()), offset_bytes)?;
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
            match self.route_after(route, done_bytes, 0) {
                Some(next) => route = next,
                None => break,
            }
        }
        Ok(done_bytes)
    }

    /// Whether a failed read may succeed through the kernel's page cache: on XFS, a direct read fails with EIO where it meets delayed
    /// allocations of other programs' writes. If the device has failed, the second read fails as well. No for a request that was
    /// sent to a polled ring, which supports direct reads only.
    pub(crate) fn may_read_buffered(&self, route: Route, error: &io::Error, requested_bytes: usize) -> bool {
        route == Route::Direct
            && error.raw_os_error() == Some(libc::EIO)
            && !self.is_read_polled(requested_bytes)
    }

    fn is_read_polled(&self, requested_bytes: usize) -> bool {
        self.polled_bytes_max.get().is_some_and(|max| (1..=*max).contains(&requested_bytes))
    }

    /// How a read goes on that stands at `done_bytes`; `None` at the end of the file, the only place where a direct read stops
    /// within a block. If the size of blocks is assumed, a device with smaller ones may have stopped before a bad one: the
    /// kernel's page cache knows whether the file ends there.
    pub(crate) fn route_after(
        &self,
        route: Route,
        done_bytes: usize,
        requested_bytes: usize,
    ) -> Option<Route> {
        if !self.ends_transfer(route, done_bytes) {
            return Some(route);
        }
        let is_doubtful = self.direct.as_ref().is_some_and(|direct| direct.is_assumed);
        (is_doubtful && !self.is_read_polled(requested_bytes)).then_some(Route::Buffered)
    }

    /// Whether a transfer that stands at `done_bytes` cannot be continued on this route because the next offset would be unaligned.
    pub(crate) fn ends_transfer(&self, route: Route, done_bytes: usize) -> bool {
        !self.takes(route, 0, done_bytes)
    }

    /// Whether this route takes transfers of that length at that offset.
    pub(crate) fn takes(&self, route: Route, offset_bytes: u64, length_bytes: usize) -> bool {
        route == Route::Buffered
            || self.direct().is_none_or(|direct| direct.offset.is_aligned(offset_bytes | length_bytes as u64))
    }

    /// The kernel checks some transfers extent by extent: ext4 refuses an unaligned write with EINVAL after it has stored
    /// the beginning. So nothing unaligned is given to it.
    pub(crate) fn check_aligned(
        &self,
        route: Route,
        (memory, length_bytes): (*const u8, usize),
        offset_bytes: u64,
    ) -> io::Result<()> {
        let Some(DirectAlignment { memory: of_memory, offset }) =
            self.direct().filter(|_| route == Route::Direct)
        else {
            return Ok(());
        };
        if self.takes(route, offset_bytes, length_bytes) && of_memory.is_aligned(memory.addr() as u64) {
            return Ok(());
        }
        let text = format!(
            "a direct transfer of {length_bytes} bytes at offset {offset_bytes}, memory at {memory:p}: offset and length have to be \
             multiples of {}, the address of {} bytes",
            offset.get(),
            of_memory.get()
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// The alignment of offsets and lengths on this route.
    pub(crate) fn transfer_alignment_bytes(&self, route: Route) -> usize {
        match route {
            Route::Buffered => 1,
            Route::Direct => self.direct().map_or(1, |direct| direct.offset.get() as usize),
        }
    }

    /// Drops the file's clean pages from the kernel's page cache: makes it cold for a measurement.
    ///
    /// # Errors
    /// What `posix_fadvise(2)` reports.
    pub fn evict_from_kernel(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.ordinary, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    /// Advises the kernel on the ordinary descriptor, for which it reads ahead and caches. What is about an order of reads is about the whole
    /// file, now and when it has grown. To have or drop an empty range means nothing, not the rest of the file; in a range that reaches the
    /// end, the last page counts as whole.
    ///
    /// # Errors
    /// What `posix_fadvise(2)` and `fstat(2)` report.
    pub fn advise_kernel(&self, advice: Advice, range: ByteRange) -> io::Result<()> {
        let is_of_range = matches!(advice, Advice::WillNeed | Advice::DontNeed);
        if is_of_range && range.is_empty() {
            return Ok(());
        }
        self.kernel_cache.leave_advice_to_others();
        let range = if is_of_range { range } else { ByteRange::new(0, u64::MAX) };
        let reaches_end = !is_of_range || range.end >= self.length_bytes()?;
        let length = if reaches_end { None } else { NonZeroU64::new(range.len()) };
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::NoReuse => rustix::fs::Advice::NoReuse,
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
        };
        Ok(rustix::fs::fadvise(&self.ordinary, range.start, length, advice)?)
    }

    /// Direct requests of up to this many bytes complete on a ring that polls the device; 0 where none do. Looked up once for
    /// each device, and tried once for each open file, by `is_polled`: a read of the direct descriptor.
    pub(crate) fn polled_bytes_max(&self, is_polled: impl FnOnce(BorrowedFd<'_>) -> bool) -> usize {
        let look = || {
            let (Some(_), Ok(stat)) = (&self.direct, rustix::fs::fstat(&self.ordinary)) else {
                return 0;
            };
            let device = if self.kind == FileKind::BlockDevice { stat.st_rdev } else { stat.st_dev };
            match known_polled_bytes_max(device) {
                0 => 0,
                bytes if is_polled(self.file(Route::Direct).as_fd()) => bytes,
                _ => 0,
            }
        };
        *self.polled_bytes_max.get_or_init(look)
    }

    /// Where the kernel tells the alignment, as where it does not.
    #[cfg(test)]
    pub(crate) fn assume_alignment(&mut self) {
        use headwater_core::units::Alignment;
        let direct = self.direct.as_mut().expect("the file has a direct descriptor");
        direct.alignment = DirectAlignment { memory: Alignment::PAGE, offset: Alignment::PAGE };
        direct.is_assumed = true;
    }

    pub(crate) fn descriptor(&self, route: Route) -> BorrowedFd<'_> {
        self.file(route).as_fd()
    }

    /// The descriptor of a route, for [`Call`](crate::Call)s. Bytes are moved as they are then: alignment is the caller's, and so is
    /// what other routes would do after an error.
    pub fn shared_descriptor(self: &Arc<OpenFile>, route: Route) -> SharedDescriptor {
        SharedDescriptor { file: self.clone(), route }
    }

    /// The ordinary descriptor, for the ways of moving bytes that stay inside the kernel (`splice`, `sendfile`).
    pub fn buffered(&self) -> BorrowedFd<'_> {
        self.ready().as_fd()
    }

    /// The file as the standard library has it, for locks and metadata: what the program gave, else the ordinary descriptor.
    pub fn as_std(&self) -> &File {
        self.given.as_ref().unwrap_or_else(|| self.ready())
    }

    /// The ordinary descriptor, as transfers need it. One system call, the first time; waits for a direct read through it
    /// (`read_direct_first`).
    pub(super) fn ready(&self) -> &Descriptor {
        // No file that this opens refuses the call. If one did, its requests on a ring might fail with EAGAIN.
        self.is_ready.get_or_init(|| let_wait(&self.ordinary).unwrap_or_default());
        &self.ordinary
    }

    pub(super) fn file(&self, route: Route) -> &File {
        match route {
            Route::Buffered => self.ready(),
            Route::Direct => {
                let direct = self.direct.as_ref().expect("requests check the route");
                direct.file(&self.ordinary).unwrap_or_else(|| self.ready())
            }
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
