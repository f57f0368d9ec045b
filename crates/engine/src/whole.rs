//! Whole: files read from start to end by their path, the small ones of which there are many.
//!
//! ```text
//!   path ─► statx ─┬─ known, unchanged, all of it cached, readable ─► its bytes, the file is not opened
//!                  ├─ read for the first time ─► one descriptor, around the cache
//!                  └─ else ─► open ─► read ─► close: the pages stay for the next time
//! ```
//!
//! Opening and closing a small file costs more than its bytes. Which file a path leads to, whether it has changed, and whether
//! this process may read it, two system calls tell without opening it.
//!
//! Owns: the way without opening.
//! Does not own: what proves a file unchanged (inode), reading (read_at).
//! Invariants: I8, because a file with something unwritten is opened; I10.

use std::io::Read;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageRange};
use headwater_io::{Found, Opened, PinnedRun, WholeFile};

use crate::engine::{Engine, LENT_BYTES_MIN, LENT_TIMES_MAX, LentBytes};
use crate::error::{Error, Operation, Result};
use crate::file::OpenOptions;
use crate::inode::Inode;

impl Engine {
    /// Reads a whole file, as [`std::fs::read`] does. What the cache holds of it is taken from there, without opening the file
    /// while its times say that it is the same: two system calls, and no copy where its pages lie in one piece. A file that
    /// is read for the first time is read around the cache; from the second time on its pages stay, up to 1 MiB.
    ///
    /// Changes by others show at the next call, as far as the file's times tell: not writes through `mmap` that were not
    /// written back, and before Linux 6.13 not two writes within one tick of the clock. Blocks.
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
    /// As [`OpenOptions::open`] and [`crate::File::read_at`]; `OutOfMemory` for a file that does not fit memory.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Bytes> {
        let path = path.as_ref();
        let is_forked = self.shared.driver.is_forked();
        let small = |seen: &Opened| (1..=WHOLE_BYTES_MAX as u64).contains(&seen.stamp.length_bytes);
        // What goes wrong here goes wrong again below, where it is told.
        let bytes = match Opened::at(path).ok().filter(|seen| !is_forked && small(seen)) {
            Some(seen) => match self.shared.cache.inodes.find(seen.key) {
                Some(inode) => self.read_unopened(path, &seen, &inode),
                None => self.read_once(path, &seen),
            },
            None => None,
        };
        bytes.map_or_else(|| self.read_open(path), Ok)
    }

    /// What is cached of a known file, if that is all of it.
    fn read_unopened(&self, path: &Path, seen: &Opened, inode: &Inode) -> Option<Bytes> {
        if !inode.is_as_seen(seen) || headwater_io::check_readable(path).is_err() {
            return None;
        }
        self.lend_pages(inode, seen.stamp.length_bytes as usize)
    }

    /// A file that is read for the first time, around the cache: many are never read again.
    fn read_once(&self, path: &Path, seen: &Opened) -> Option<Bytes> {
        if self.shared.cache.inodes.was_read(seen.key) {
            return None;
        }
        let WholeFile { memory, file } = seen.read_whole(path).ok().flatten()?;
        Some(Bytes::from(memory).slice(file))
    }

    fn read_open(&self, path: &Path) -> Result<Bytes> {
        let file = OpenOptions::new().engine(self).open(path)?;
        let length = usize::try_from(file.opened_length_bytes()).unwrap_or(usize::MAX);
        let failed = |error: std::io::Error| Error::at(Operation::Read, path, 0, error);
        if length > WHOLE_BYTES_MAX || length == 0 {
            // As a stream, around the cache. Files of /proc say that they are empty.
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(length).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
            file.reader().read_to_end(&mut bytes).map_err(failed)?;
            return Ok(bytes.into());
        }
        let mut bytes = BytesMut::zeroed(length);
        let read_bytes = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read_bytes);
        Ok(bytes.freeze())
    }

    /// All pages of a file, if they are there: themselves where they lie in one piece, which those do that were loaded together;
    /// else a copy.
    fn lend_pages(&self, inode: &Inode, length: usize) -> Option<Bytes> {
        let (mut run, mut is_lendable) = (PinnedRun::of(&inode.pages), length >= LENT_BYTES_MIN);
        for page in PageRange::covering(ByteRange::new(0, length as u64)).iter() {
            let part = (length as u64 - page.start_bytes()).min(PAGE_SIZE_BYTES) as u32;
            let Found::Page(pinned) = inode.pages.pin(page, 0..part) else { return None };
            is_lendable &= pinned.pins() <= LENT_TIMES_MAX;
            run.push(pinned);
            inode.counters.hit(1);
        }
        is_lendable &= run.slices().nth(1).is_none();
        if is_lendable && let Some(lent_bytes) = self.shared.count_lent(run.len_bytes()) {
            return Some(Bytes::from_owner(LentRun { run, lent_bytes }).slice(..length));
        }
        let mut bytes = Vec::with_capacity(run.len_bytes());
        run.slices().for_each(|slice| bytes.extend_from_slice(slice));
        bytes.truncate(length);
        Some(bytes.into())
    }
}

/// Pages in one piece, inside of [`Bytes`].
struct LentRun {
    run: PinnedRun,
    #[expect(dead_code, reason = "dropped with the pages")]
    lent_bytes: LentBytes,
}

impl AsRef<[u8]> for LentRun {
    fn as_ref(&self) -> &[u8] {
        self.run.slices().next().unwrap_or_default()
    }
}

/// Reads a whole file with [`Engine::global`]; see [`Engine::read`].
///
/// # Errors
/// As there, and as [`Engine::global`].
pub fn read(path: impl AsRef<Path>) -> Result<Bytes> {
    Engine::global()?.read(path)
}

/// Beyond, opening the file is nothing beside reading it, and it would take much of the cache.
const WHOLE_BYTES_MAX: usize = 1 << 20;
