//! Positioned files: regular files and block devices, part by part from the page cache or from the device.
//!
//! Owns: the engine (built for the first part that is not cached), the reader of the current file.
//! Does not own: routes, the output.
//! Blocking: everything here.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::testing::{MapAdvice, MappedFile};
use headwater::{ByteRange, Engine, OpenOptions, PageRange, Reader, Residency};
use os_display::Quotable;

use super::Failure;
use super::output::{Moved, Output};
use super::route::{Router, Source};
use crate::cat::arguments::CatArguments;
use crate::shared::arguments::{EngineArguments, IoChoice};

pub(super) struct Positioned {
    engine: Option<Engine>,
    arguments: EngineArguments,
    io: IoChoice,
    by_headwater_bytes: u64,
}

/// One file on its way to the output.
struct Copy<'a> {
    name: &'a OsStr,
    /// The path of the open descriptor in `/proc`, so that the engine opens the same file even after a rename.
    path: PathBuf,
    input: &'a File,
    range: ByteRange,
    output: &'a mut Output,
}

impl Positioned {
    pub(super) fn new(arguments: &CatArguments) -> Positioned {
        Positioned {
            engine: None,
            arguments: arguments.engine.clone(),
            io: arguments.io,
            by_headwater_bytes: 0,
        }
    }

    /// Bytes that headwater has read so far; the rest came through the kernel's page cache.
    pub(super) fn by_headwater_bytes(&self) -> u64 {
        self.by_headwater_bytes
    }

    /// Copies from `start_bytes` to the end that the file has now. Returns the position reached, which is lower if the file
    /// shrank, or if its descriptor cannot be opened again through `/proc`.
    pub(super) fn copy(
        &mut self,
        name: &OsStr,
        input: &File,
        start_bytes: u64,
        output: &mut Output,
    ) -> Result<u64, Failure> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", input.as_raw_fd()));
        let direct_io = match self.io {
            IoChoice::Auto => DirectIo::Preferred,
            IoChoice::Direct => DirectIo::Required,
            IoChoice::Buffered => DirectIo::Off,
        };
        let open = match OpenFile::open(&path, direct_io, Access::Read) {
            Ok(open) => open,
            Err(_) if self.io != IoChoice::Direct => return Ok(start_bytes),
            Err(error) => return Err(opening(name, &error)),
        };
        let end_bytes = open.length_bytes().map_err(|error| Failure::read(name, &error))?;
        let range = ByteRange::new(start_bytes, end_bytes.max(start_bytes));
        let mut copy = Copy { name, path, input, range, output };
        if self.io == IoChoice::Direct {
            let mut device = self.device(&copy)?;
            self.count(device.copy(&mut copy, range), range, &copy)?;
        } else if open.direct().is_none() {
            copy.through_kernel(open.buffered(), range)?;
        } else if !copy.clone_all(&open) {
            self.copy_by_route(&mut copy, &open)?;
        }
        Ok(copy.range.start)
    }

    fn copy_by_route(&mut self, copy: &mut Copy<'_>, open: &OpenFile) -> Result<(), Failure> {
        let mut router = Router::new();
        let mut device = None;
        while !copy.range.is_empty() {
            let (part, source) = router.next(copy.range, |range| residency(open, range));
            let source =
                if source == Source::Kernel && !open.begin_copy(part) { Source::Device } else { source };
            match (source, &mut device) {
                (Source::Kernel, _) => copy.through_kernel(open.buffered(), part)?,
                (Source::Device, Some(device)) => self.count(Device::copy(device, copy, part), part, copy)?,
                (Source::Device, None) => {
                    let mut opened = self.device(copy)?;
                    self.count(opened.copy(copy, part), part, copy)?;
                    device = Some(opened);
                }
            }
            if copy.range.start < part.end {
                break;
            }
        }
        Ok(())
    }

    /// Counts the bytes copied of a part, also after an error.
    fn count(
        &mut self,
        copied: Result<(), Failure>,
        part: ByteRange,
        copy: &Copy<'_>,
    ) -> Result<(), Failure> {
        self.by_headwater_bytes += copy.range.start.saturating_sub(part.start);
        copied
    }

    fn device(&mut self, copy: &Copy<'_>) -> Result<Device, Failure> {
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => {
                let built = self.arguments.builder().build();
                let engine = built.map_err(|error| Failure::Input(format!("failed to {error}")))?;
                self.engine.insert(engine).clone()
            }
        };
        let file = OpenOptions::new().engine(&engine).io(self.io.mode()).open(&copy.path);
        let file = file.map_err(|error| opening(copy.name, &cause(error.into())))?;
        Ok(Device { reader: file.reader(), position_bytes: 0 })
    }
}

/// The part of a file that headwater reads.
struct Device {
    reader: Reader,
    position_bytes: u64,
}

impl Device {
    /// Copies a part; stops earlier where the file has become shorter.
    fn copy(&mut self, copy: &mut Copy<'_>, part: ByteRange) -> Result<(), Failure> {
        if self.position_bytes != part.start {
            self.reader.seek(SeekFrom::Start(part.start)).map_err(|error| reading(copy.name, error))?;
            self.position_bytes = part.start;
        }
        self.reader.will_read(copy.range.end - part.start);
        while self.position_bytes < part.end {
            let chunk = self.reader.fill_buf().map_err(|error| reading(copy.name, error))?;
            let left_bytes = usize::try_from(part.end - self.position_bytes).unwrap_or(usize::MAX);
            let length = chunk.len().min(left_bytes);
            if length == 0 {
                return Ok(());
            }
            copy.output.write(&chunk[..length])?;
            self.reader.consume(length);
            self.position_bytes += length as u64;
            copy.range.start = self.position_bytes;
        }
        Ok(())
    }
}

impl Copy<'_> {
    /// Copies a part inside the kernel, or by read and write where the kernel refuses.
    fn through_kernel(&mut self, file: BorrowedFd<'_>, part: ByteRange) -> Result<(), Failure> {
        let mut left = part;
        let moved = self.output.splice_file(file, &mut left);
        self.range.start = left.start;
        match moved? {
            Moved::Done => Ok(()),
            Moved::Refused => self.by_hand(left),
        }
    }

    fn by_hand(&mut self, part: ByteRange) -> Result<(), Failure> {
        let mut buffer = self.output.take_buffer();
        while self.range.start < part.end {
            let length = buffer.len().min(usize::try_from(part.end - self.range.start).unwrap_or(usize::MAX));
            match self.input.read_at(&mut buffer[..length], self.range.start) {
                Ok(0) => break,
                Ok(read_bytes) => {
                    self.output.write(&buffer[..read_bytes])?;
                    self.range.start += read_bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::read(self.name, &error)),
            }
        }
        self.output.give_buffer(buffer);
        Ok(())
    }

    /// Shares extents between input and output where their file system can, without copying. `false` if it cannot, or if a part
    /// remains.
    fn clone_all(&mut self, open: &OpenFile) -> bool {
        let device = self.input.metadata().map(|metadata| metadata.dev()).ok();
        if device.is_none() || self.output.clone_target_device() != device || !shares_extents(self.input) {
            return false;
        }
        self.output.clone_range(open.buffered(), &mut self.range) == Moved::Done
    }
}

/// The pages of a range in the page cache, by `mincore(2)` where `cachestat(2)` does not answer.
fn residency(open: &OpenFile, range: ByteRange) -> Residency {
    match open.residency(range) {
        Residency::Unknown => mapped_residency(open, range).unwrap_or(Residency::Unknown),
        known => known,
    }
}

fn mapped_residency(open: &OpenFile, range: ByteRange) -> io::Result<Residency> {
    let mapped = MappedFile::map(open.buffered().as_fd(), range.end, MapAdvice::Normal)?;
    let pages = mapped.residency(PageRange::covering(range))?;
    Ok(match pages.iter().filter(|&&resident| resident).count() {
        0 => Residency::None,
        all if all == pages.len() => Residency::Whole,
        _ => Residency::Part,
    })
}

fn shares_extents(file: &File) -> bool {
    const KINDS: [u64; 3] = [0x9123_683e, 0x5846_5342, 0xca45_1a4e]; // btrfs, XFS, bcachefs: `statfs(2)`
    rustix::fs::fstatfs(file).is_ok_and(|status| KINDS.contains(&(status.f_type as u64)))
}

fn opening(name: &OsStr, error: &io::Error) -> Failure {
    Failure::Input(format!("failed to open {}: {error}", Path::new(name).maybe_quote()))
}

fn reading(name: &OsStr, error: io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<headwater::Error>());
    let place = inner.and_then(headwater::Error::offset_bytes).map(|offset| format!(" at byte {offset}"));
    let name = Path::new(name).maybe_quote();
    Failure::Input(format!("failed to read {name}{}: {}", place.unwrap_or_default(), cause(error)))
}

/// The kernel's error, without the path in `/proc` that the engine's error names.
pub(crate) fn cause(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<headwater::Error>());
    let Some(inner) = inner else { return error };
    match (inner.raw_os_error(), std::error::Error::source(inner)) {
        (Some(number), _) => io::Error::from_raw_os_error(number),
        (None, Some(source)) => io::Error::new(inner.kind(), source.to_string()),
        (None, None) => error,
    }
}
