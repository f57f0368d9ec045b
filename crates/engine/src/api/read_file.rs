//! Whole files: read from start to end by their path, for many small files.
//!
//! ```text
//!   path ─► open, fstat ─┬─ known, unchanged, all of it cached ─► its bytes from the cache ─► close
//!                        ├─ read for the first time ─► around the cache, with the same descriptor ─► close
//!                        └─ else ─► a `File` of the same descriptor ─► read to the end ─► close: the pages stay
//! ```
//!
//! The file is opened each time, because only `open(2)` makes all permission checks, and because only an `fstat` of the
//! descriptor concerns the file that was opened. What the cache saves is the read.
//!
//! Owns: the ways of reading to the end.
//! Does not own: the descriptor (io), what proves a file unchanged (inode), reading parts (read_at).
//! Invariants: I8, because a file with dirty pages is read as a `File`; I10.

use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageRange};
use headwater_io::{FileKind, Found, PinnedRun, SeenFile, WholeFile};

use crate::api::file::File;
use crate::api::options::OpenOptions;
use crate::base::error::{Error, Operation, Result};
use crate::engine::Engine;
use crate::engine::lending::{LENT_BYTES_MIN, LENT_TIMES_MAX};
use crate::inode::Inode;

impl Engine {
    /// Reads a whole file, as [`std::fs::read`] does. The file is opened, so all permission checks are made. As long as its times
    /// prove it unchanged, cached bytes are returned: three system calls in all, and no copy of 512 bytes or more whose pages are contiguous. A
    /// file's first read goes around the cache; from the second on the pages of files of up to 1 MiB are cached. Before Linux 6.5,
    /// and where the process neither owns the file nor may write to it, they are cached from the first.
    ///
    /// Changes by other processes are visible to the next call, as far as the file's times show them: not writes through `mmap`
    /// before their writeback, and before Linux 6.13 not two writes within one tick of the clock. Blocks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("small");
    /// # std::fs::write(&path, b"abc")?;
    /// let engine = headwater::Engine::builder().memory(16 << 20).build()?;
    /// assert_eq!(engine.read(&path)?, &b"abc"[..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`] and [`crate::File::read_at`], even if bytes were read before; `OutOfMemory` for a file that does
    /// not fit in memory; `FileTooLarge` for one that reports no length, as devices and files of `/proc` do, and has not ended
    /// after 256 MiB.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Bytes> {
        let path = path.as_ref();
        let seen = SeenFile::open(path).map_err(|error| Error::on_file(Operation::Open, path, error))?;
        match self.read_seen(&seen) {
            Some(bytes) => Ok(bytes),
            None => self.read_open(seen, path),
        }
    }

    /// The bytes of a small file, if all of it is cached, or if it is read for the first time. Errors are ignored here: the path
    /// that follows meets and reports them.
    fn read_seen(&self, seen: &SeenFile) -> Option<Bytes> {
        let opened = seen.opened();
        let is_small = (1..=WHOLE_BYTES_MAX as u64).contains(&opened.stamp.length_bytes);
        if !is_small || seen.kind() != FileKind::Regular || self.shared.driver.is_forked() {
            return None;
        }
        let inodes = &self.shared.cache.inodes;
        match inodes.find(opened.key) {
            Some(inode) if inode.is_as_seen(&opened) => {
                self.lend_pages(&inode, opened.stamp.length_bytes as usize)
            }
            Some(_) => None,
            // The first read is not cached: many files are never read again.
            None if inodes.was_read(opened.key) => None,
            None => {
                let WholeFile { memory, file } = seen.read_whole().ok().flatten()?;
                Some(Bytes::from(memory).slice(file))
            }
        }
    }

    fn read_open(&self, seen: SeenFile, path: &Path) -> Result<Bytes> {
        let file = OpenOptions::new().open_seen(self, seen, path)?;
        let length = usize::try_from(file.opened_length_bytes()).unwrap_or(usize::MAX);
        // A long file is streamed around the cache; so is one that reports length 0, as files of /proc do.
        let bytes = if length > WHOLE_BYTES_MAX || length == 0 {
            stream_to_end(&file, length)?
        } else {
            read_to_end(&file, length)?
        };
        Ok(bytes.into())
    }

    /// All pages of a file, if they are cached: lent where they are contiguous, as pages of one load are; else a copy.
    fn lend_pages(&self, inode: &Inode, length: usize) -> Option<Bytes> {
        let pages = PageRange::covering(ByteRange::new(0, length as u64));
        let is_worth_it = length >= LENT_BYTES_MIN;
        let lent = if is_worth_it { self.shared.lending.reserve(length) } else { None };
        let Some(lent) = lent else {
            let mut bytes = vec![0; length];
            return (inode.copy_resident(&mut bytes, 0)? == length).then(|| bytes.into());
        };
        let (mut run, mut is_lendable) = (PinnedRun::of(lent), true);
        for page in pages.iter() {
            let part = (length as u64 - page.start_bytes()).min(PAGE_SIZE_BYTES) as u32;
            let Found::Page(pinned) = inode.pages.pin_or_wait(page, 0..part) else { return None };
            is_lendable &= pinned.pins() <= LENT_TIMES_MAX;
            run.push(pinned);
            inode.counters.hit(1);
        }
        is_lendable &= run.slices().nth(1).is_none();
        if is_lendable {
            return Some(Bytes::from_owner(LentRun(run)).slice(..length));
        }
        let mut bytes = Vec::with_capacity(run.len_bytes());
        run.slices().for_each(|slice| bytes.extend_from_slice(slice));
        bytes.truncate(length);
        Some(bytes.into())
    }
}

/// Reads until a read returns 0: a short read may mean an error, which the next read reports.
fn read_to_end(file: &File, length: usize) -> Result<Vec<u8>> {
    // One byte more than the known length shows whether the file has grown.
    let (mut bytes, mut done) = (vec![0; length + 1], 0);
    loop {
        let read_bytes = file.read_at(&mut bytes[done..], done as u64)?;
        done += read_bytes;
        if read_bytes == 0 {
            bytes.truncate(done);
            return Ok(bytes);
        }
        if done == bytes.len() {
            bytes.resize(done * 2, 0);
        }
    }
}

fn stream_to_end(file: &File, length: usize) -> Result<Vec<u8>> {
    let failed = |error: io::Error| match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::at(Operation::Read, file.path(), 0, error),
    };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    let limit_bytes = if length == 0 { UNSIZED_BYTES_MAX } else { u64::MAX };
    let mut reader = file.reader();
    reader.will_read(length as u64);
    reader.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit_bytes {
        let text =
            "it tells no length, and has not ended after 256 MiB; `File::reader` reads any number of bytes";
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    Ok(bytes)
}

/// Contiguous pages, inside of [`Bytes`].
struct LentRun(PinnedRun);

impl AsRef<[u8]> for LentRun {
    fn as_ref(&self) -> &[u8] {
        self.0.slices().next().unwrap_or_default()
    }
}

/// Reads a whole file with [`Engine::global`]; see [`Engine::read`].
///
/// # Errors
/// As [`Engine::read`] and [`Engine::global`].
pub fn read(path: impl AsRef<Path>) -> Result<Bytes> {
    Engine::global()?.read(path)
}

/// More than files of `/proc` and `/sys` without a length hold; `/dev/zero` never ends.
const UNSIZED_BYTES_MAX: u64 = 256 << 20;

/// A larger file would take much of the cache for little gain: the device delivers as fast as bytes are copied.
const WHOLE_BYTES_MAX: usize = 1 << 20;
