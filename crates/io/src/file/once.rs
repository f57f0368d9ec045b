//! Once: a file that is opened, examined, perhaps read whole, and closed, with one descriptor.
//!
//! ```text
//!   open ─► fstat ─► known to a cache? its bytes, close
//!              ├───► small and new? cachestat ─┬─ all in the kernel's page cache ─► pread, close
//!              │                               └─ else ─► the descriptor becomes O_DIRECT ─► pread into aligned memory, close
//!              └───► else ─► the descriptor becomes an `OpenFile`'s
//! ```
//!
//! An [`OpenFile`] whose first use is a read of the whole file does the same with its ordinary descriptor: it has `O_DIRECT` during that
//! read, and afterwards the flags that other transfers need. Opening a second descriptor would cost as much as the first.
//!
//! Only `open(2)` makes all the checks that may forbid reading a file: permissions, Landlock, security modules, listeners of
//! fanotify. All later calls use the descriptor, so they concern the file that was opened, even if its name leads elsewhere.
//!
//! Owns: the descriptor, from opening to closing or to its becoming an [`OpenFile`]'s; that read of an [`OpenFile`].
//! Does not own: the cache, the fallback where this does not work.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use headwater_core::units::{ByteRange, PAGE_BYTES, PAGE_SIZE_BYTES};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};

use super::access::{Access, DirectIo, Route, let_wait, open_unwaiting};
use super::clock::coarse_clock;
use super::descriptor::Descriptor;
use super::kernel_cache::{Residency, WarmFiles, resident_pages};
use super::open_file::{OpenFile, Opened};
use super::status::{FileKind, Status};
/// A file opened for reading, and the one look at it.
#[derive(Debug)]
pub struct SeenFile {
    /// Closed with this, unless it becomes an [`OpenFile`]'s.
    descriptor: Descriptor,
    status: Status,
    looked_at: Duration,
}

/// The bytes of a whole file, within memory that is larger.
#[derive(Debug)]
pub struct WholeFile {
    /// The memory.
    pub memory: Vec<u8>,
    /// Which part of it is the file.
    pub file: Range<usize>,
}

impl SeenFile {
    /// Opens a regular file, block device or character device for reading, and looks at it: two system calls. Waits for
    /// a lease of another process, but for nothing else.
    ///
    /// # Errors
    /// As [`OpenFile::open`] without direct I/O.
    pub fn open(path: &Path) -> io::Result<SeenFile> {
        let looked_at = coarse_clock();
        let descriptor = open_unwaiting(path, Access::Read.flags())?;
        let status = Status::in_brief(&descriptor)?;
        Ok(SeenFile { descriptor, status, looked_at })
    }

    /// What was seen of the file when it was opened.
    pub fn opened(&self) -> Opened {
        Opened { key: self.status.key, stamp: self.status.stamp, looked_at: self.looked_at }
    }

    /// What kind of file.
    pub fn kind(&self) -> FileKind {
        self.status.kind
    }

    /// Reads all of a regular file, around the kernel's page cache unless that has all of it: at most four system calls, of
    /// which the last finds the end. `None` where that does not work (no `O_DIRECT`, a kernel that does not tell what it
    /// caches) or is not all (the file has become longer or shorter since it was opened): another way is to be taken then.
    /// Blocks.
    ///
    /// # Errors
    /// What `pread(2)` reports, whatever was read before.
    pub fn read_whole(&self) -> io::Result<Option<WholeFile>> {
        let length_bytes = self.status.stamp.length_bytes;
        let cached = resident_pages(self.descriptor.as_fd(), ByteRange::new(0, length_bytes));
        let Some(cached_pages) = cached else { return Ok(None) };
        let is_cached = cached_pages >= length_bytes.div_ceil(PAGE_SIZE_BYTES);
        if !is_cached && fcntl_setfl(&self.descriptor, OFlags::DIRECT).is_err() {
            return Ok(None);
        }
        read_to_end(&self.descriptor, length_bytes)
    }

    /// Goes on with the same descriptor as an open file.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn into_open_file(self, path: &Path, direct_io: DirectIo) -> io::Result<OpenFile> {
        let status = Status::of(&self.descriptor)?;
        OpenFile::from_ordinary(
            self.descriptor,
            status,
            self.looked_at,
            path,
            (direct_io, Access::Read.flags()),
        )
    }
}

impl OpenFile {
    /// Reads all of a small regular file, whose length was `length` when it was opened, if the kernel's page cache holds it. The buffer
    /// may be longer; if what is read fills whole pages, the file may go on behind it. `None` if the page cache lacks a part, or on an
    /// error: the caller then takes another way. One system call while `files` are warm, else two; some more where the kernel does not
    /// report what it holds.
    pub fn copy_first(&self, buffer: &mut [u8], length: usize, files: &WarmFiles) -> Option<usize> {
        let is_whole = |read_bytes: &usize| *read_bytes >= length;
        // Another thread may be in `read_direct_first`: the descriptor then has `O_DIRECT`, and refuses unaligned reads with an error,
        // after which the caller takes another way.
        if files.are_likely() {
            let mut buffers = [IoSliceMut::new(buffer)];
            let read = preadv2(&self.ordinary, &mut buffers, 0, ReadWriteFlags::NOWAIT);
            if let Ok(read_bytes) = read
                && is_whole(&read_bytes)
            {
                return Some(read_bytes);
            }
            files.learn(Residency::None);
            // The kernel has begun to read what it lacked: a direct read would do that a second time.
            if read.is_ok() || read == Err(Errno::AGAIN) {
                return self.ordinary.read_at(buffer, 0).ok().filter(is_whole);
            }
        }
        let read = match self.has_first(length) {
            Some(false) => None,
            Some(true) => self.ordinary.read_at(buffer, 0).ok(),
            None => self.read_if_resident(buffer, 0).ok().flatten(),
        };
        let read = read.filter(is_whole);
        files.learn(read.map_or(Residency::None, |_| Residency::Whole));
        read
    }

    /// The same for a task, which must not wait for the device: what leaves the page cache meanwhile counts as absent.
    pub fn copy_first_at_once(&self, buffer: &mut [u8], length: usize, files: &WarmFiles) -> Option<usize> {
        let has_all = if files.are_likely() { Some(true) } else { self.has_first(length) };
        let read = match has_all {
            Some(false) => None,
            Some(true) => {
                let mut buffers = [IoSliceMut::new(buffer)];
                preadv2(&self.ordinary, &mut buffers, 0, ReadWriteFlags::NOWAIT).ok()
            }
            None => self.read_if_resident(buffer, 0).ok().flatten(),
        };
        let read = read.filter(|read_bytes| *read_bytes >= length);
        files.learn(read.map_or(Residency::None, |_| Residency::Whole));
        read
    }

    /// Whether the kernel's page cache holds the first `length` bytes; `None` where the kernel does not tell.
    fn has_first(&self, length: usize) -> Option<bool> {
        let pages = resident_pages(self.ordinary.as_fd(), ByteRange::new(0, length as u64))?;
        Some(pages >= (length as u64).div_ceil(PAGE_SIZE_BYTES))
    }

    /// One direct read from the beginning of the file, into aligned memory. If nothing has used the file's descriptors yet, the ordinary
    /// one has `O_DIRECT` during this read, and transfers of other threads wait for its end.
    ///
    /// # Errors
    /// What `pread(2)` reports.
    pub(crate) fn read_direct_first(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = None;
        if !cfg!(miri) && self.direct.as_ref().is_some_and(|direct| !direct.is_opened()) {
            self.is_ready.get_or_init(|| {
                if fcntl_setfl(&self.ordinary, OFlags::DIRECT).is_ok() {
                    read = Some(retry_on_intr(|| pread(&self.ordinary, &mut *buffer, 0)));
                }
                // As in `ready`.
                let_wait(&self.ordinary).unwrap_or_default();
            });
        }
        match read {
            Some(read) => Ok(read?),
            None => self.read_blocking(Route::Direct, buffer, 0),
        }
    }
}

/// Into memory with room for a byte more, so that the end shows.
fn read_to_end(file: &File, length_bytes: u64) -> io::Result<Option<WholeFile>> {
    let length = length_bytes as usize;
    let room = (length + 1).next_multiple_of(PAGE_BYTES);
    let mut memory = vec![0; room + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    let mut done = 0;
    while done < room {
        match file.read_at(&mut memory[start + done..start + room], done as u64) {
            Ok(read_bytes) => {
                done += read_bytes;
                let is_end = read_bytes == 0 || !done.is_multiple_of(PAGE_BYTES);
                if is_end {
                    // A read that stops within a page met the end of the file, or an error that the next read would report.
                    // The length tells which.
                    let whole = WholeFile { memory, file: start..start + done };
                    return Ok((done == length).then_some(whole));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Of a device with larger blocks, of whatever has no positions, and see `OpenFile::may_read_buffered`.
            Err(error)
                if [libc::EINVAL, libc::ESPIPE, libc::EIO].map(Some).contains(&error.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(all(test, not(miri), not(headwater_loom)))]
mod tests {
    use std::fs;
    use std::thread;

    use headwater_testkit::{ScratchDir, again_if_dropped, make_cold, skip};
    use rustix::fs::fcntl_getfl;

    use super::*;

    const LENGTH: usize = 10_000;

    #[repr(C, align(4096))]
    struct Aligned([u8; 3 * PAGE_BYTES]);

    fn contents() -> Vec<u8> {
        (0..LENGTH).map(|at| (at % 251) as u8).collect()
    }

    /// A cold file of these contents, on a file system with direct I/O.
    fn cold_file(directory: &Path) -> Option<OpenFile> {
        let path = directory.join("file");
        fs::write(&path, contents()).unwrap();
        let written = File::open(&path).unwrap();
        // A page that the kernel works with stays for a moment.
        for _ in 0..100 {
            make_cold(&written).unwrap();
            let whole = ByteRange::new(0, LENGTH as u64);
            if resident_pages(written.as_fd(), whole).is_none_or(|pages| pages == 0) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let file = OpenFile::open(&path, DirectIo::Preferred, Access::Read).unwrap();
        file.direct.as_ref().is_some_and(|direct| !direct.is_opened()).then_some(file)
    }

    fn is_second_open(file: &OpenFile) -> bool {
        file.direct.as_ref().unwrap().is_opened()
    }

    /// Goal: the first direct read of all of a file opens no second descriptor, and leaves the first one without the flags of the
    /// opening and of the read; so does any other first transfer. A later read has a second descriptor.
    #[test]
    fn a_first_direct_read_takes_the_only_descriptor() {
        let Ok(directory) = ScratchDir::on_target() else { return skip("a directory") };
        let Some(file) = cold_file(directory.path()) else { return skip("direct I/O") };
        assert!(fcntl_getfl(&file.ordinary).unwrap().contains(OFlags::NONBLOCK));
        let mut memory = Aligned([0; _]);
        for is_first in [true, false] {
            memory.0.fill(0);
            assert_eq!(file.read_direct_first(&mut memory.0).unwrap(), LENGTH);
            assert!(memory.0[..LENGTH] == contents());
            assert_eq!(is_second_open(&file), !is_first);
            let flags = fcntl_getfl(&file.ordinary).unwrap();
            assert!(!flags.intersects(OFlags::NONBLOCK | OFlags::DIRECT), "{flags:?}");
        }
        let other = cold_file(directory.path()).unwrap();
        assert!(!fcntl_getfl(other.buffered()).unwrap().contains(OFlags::NONBLOCK));
    }

    /// Goal: a transfer that needs no alignment succeeds beside a first direct read through the same descriptor, and so do further
    /// copies of all of the file.
    #[test]
    fn other_threads_read_beside_a_first_direct_read() {
        let Ok(directory) = ScratchDir::on_target() else { return skip("a directory") };
        for _ in 0..100 {
            let Some(file) = cold_file(directory.path()) else { return skip("direct I/O") };
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut memory = Aligned([0; _]);
                    assert_eq!(file.read_direct_first(&mut memory.0).unwrap(), LENGTH);
                    assert!(memory.0[..LENGTH] == contents());
                });
                scope.spawn(|| {
                    let mut buffer = vec![0; LENGTH];
                    if let Some(read_bytes) = file.copy_first(&mut buffer, LENGTH, &WarmFiles::default()) {
                        assert!(buffer[..read_bytes] == contents());
                    }
                });
                let mut buffer = [0; 777];
                assert_eq!(file.read_blocking(Route::Buffered, &mut buffer, 1).unwrap(), 777);
                assert!(buffer == contents()[1..778]);
            });
        }
    }

    /// Goal: after many warm files the kernel is not asked for the next; one that is cold is read all the same, once, and ends that.
    /// A file that has become shorter is not taken for whole.
    #[test]
    fn a_cold_file_ends_a_row_of_warm_ones() {
        again_if_dropped(|| {
            let Ok(directory) = ScratchDir::on_target() else { return skip("a directory") };
            let (files, mut buffer) = (WarmFiles::default(), vec![0; LENGTH + 100]);
            let Some(file) = cold_file(directory.path()) else { return skip("direct I/O") };
            if resident_pages(file.ordinary.as_fd(), ByteRange::new(0, LENGTH as u64)) != Some(0) {
                return skip("what the page cache holds");
            }
            assert_eq!(file.copy_first(&mut buffer, LENGTH, &files), None);
            assert_eq!(file.copy_first(&mut buffer, LENGTH, &files), None);
            fs::read(directory.path().join("file")).unwrap();
            for _ in 0..20 {
                assert_eq!(file.copy_first(&mut buffer, LENGTH, &files), Some(LENGTH));
            }
            assert!(files.are_likely());
            let cold = cold_file(directory.path()).unwrap();
            buffer.fill(0);
            assert_eq!(cold.copy_first(&mut buffer, LENGTH, &files), Some(LENGTH));
            assert!(buffer[..LENGTH] == contents());
            assert!(!files.are_likely());
            assert_eq!(cold.copy_first(&mut buffer, LENGTH + 1, &files), None);
        });
    }
}
