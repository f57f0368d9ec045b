//! Shared view: a live window onto a file, with the meaning of `mmap(MAP_SHARED)` and none of its faults.
//!
//! ```text
//!   load ─► optimistic read, else through the cache                 (no page is pinned between calls)
//!   store ─► as any write, but never beyond the end of the file
//!   fetch_add, compare_exchange ─► the word of the page, latched
//! ```
//!
//! A view holds nothing between two calls: a pinned page cannot be written in place, so a view that kept pins would make every
//! writer copy. Nor does it remember the frame of the last access: to prove that the frame still holds the page, its state word
//! and its identity would have to be read again, which is all that an optimistic read does beyond the table walk.
//!
//! Owns: the live window as users see it, and its end.
//! Does not own: the pages (cache), how writes are made (cached write).
//! Invariants: I1, I8 as for all reads and writes: a view takes their paths. A view never makes a file longer.

use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use headwater_core::units::ByteRange;
use headwater_io::OptimisticRead;
use os_display::Quotable;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::{READABLE_BYTES_MAX, Source, byte_range};
use crate::inode::Inode;
use crate::read::on_demand::OnDemand;
use crate::write::place::Place;
use crate::write::window_create::WindowUse;

/// A range of a file as it is at each moment: writes through any handle, view or window of the same engine are visible here at
/// once, and writes through this view are visible there. They are on the device after [`SharedView::sync`], like all writes.
///
/// Offsets count from the beginning of the view. A value within one aligned word of eight bytes of the file is read and written
/// atomically; so is, in fact, everything within one page. Loads acquire and stores release: a load that sees a store also sees
/// all that the storing thread wrote before it. [`SharedView::fetch_add_u64`] and [`SharedView::compare_exchange_u64`] do both.
///
/// The file may be shorter than the view, or become so. Bytes beyond its end can be neither read nor written: the access returns
/// an error, and never raises a signal. When the file grows again, they are zeros.
///
/// Pages are loaded on demand, so every access may block. The view keeps the file open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("counters");
/// # std::fs::write(&path, vec![0; 8192])?;
/// use headwater::{ByteRange, OpenOptions};
/// let file = OpenOptions::new().write(true).open(&path)?;
/// let view = file.map(ByteRange::new(4096, 8192))?;
/// view.store_u64(8, 40)?;
/// assert_eq!(view.fetch_add_u64(8, 2)?, 40);
///
/// let mut bytes = [0; 8];
/// file.read_exact_at(&mut bytes, 4096 + 8)?;
/// assert_eq!(u64::from_ne_bytes(bytes), 42);
///
/// file.set_len(4096)?;
/// let error = view.load_u64(8).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedView {
    file: File,
    range: ByteRange,
    memory: Memory,
}

/// Where the bytes of a view lie.
#[derive(Clone)]
enum Memory {
    /// In the cache, page by page.
    Cache,
    /// In one piece of memory.
    Whole(Arc<WindowUse>),
    /// In one piece, as far as they were touched.
    OnDemand(Arc<OnDemand>),
}

impl File {
    /// A live window onto a range of the file; see [`SharedView`]. The range may reach beyond the end, for a file that will grow. Reads
    /// nothing, and blocks for no more than a look at the file's length, where the range has no end.
    ///
    /// # Errors
    /// `InvalidInput` for a range that ends before it begins, or beyond the largest file offset; `Unsupported` for a device
    /// without a length; `PermissionDenied` when the file is not open for reading.
    ///
    /// ```
    /// let file = headwater::File::from_bytes("in memory");
    /// let view = file.map(3..9)?;
    /// let mut word = [0; 6];
    /// view.read(0, &mut word)?;
    /// assert_eq!(&word, b"memory");
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn map(&self, range: impl RangeBounds<u64>) -> Result<SharedView> {
        let range = byte_range((Operation::View, self.path()), &range, || self.len())?;
        let refused = |kind, text: &str| {
            Err(Error::at(Operation::View, self.path(), range.start, io::Error::new(kind, text)))
        };
        if range.end > READABLE_BYTES_MAX {
            return refused(io::ErrorKind::InvalidInput, "offsets of files end at 2^63 - 1");
        }
        if let Contents::Stored(source) = &self.contents {
            source.check_read_for(Operation::View)?;
            if !source.has_length() {
                return refused(io::ErrorKind::Unsupported, "a device without a length has no pages");
            }
        }
        Ok(SharedView { file: self.clone(), range, memory: Memory::Cache })
    }

    /// A live window onto a range of the file, with its bytes contiguous in memory ([`SharedView::as_cells`],
    /// [`SharedView::atomic_u64`]), read and written without a call. Stores are visible at once to everything that uses the same
    /// engine, and the other way round; the kernel records which pages were written. They are written to the file by a sync,
    /// every few seconds, and when the last clone of the view is dropped, which blocks for that.
    ///
    /// All of the range is read when the view is made, and stays in memory as long as the view. It counts against the engine's
    /// budget: at most half of it, and only memory that the cache has not used before. What other processes write to the file
    /// meanwhile does not show. Stores beyond the end of the file are lost. In a forked child there are no bytes.
    ///
    /// # Errors
    /// As [`File::map`], for a file that is open for writing; `Unsupported`, naming what is missing, where the kernel does not
    /// track written pages (Linux 6.8 and later do) or does not permit it; `ResourceBusy` if another contiguous view overlaps in
    /// a page; `OutOfMemory` and `InvalidInput` for more memory than the engine can spare, `InvalidInput` for an
    /// empty range; what the device reports.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("ring");
    /// # std::fs::write(&path, vec![0; 8192])?;
    /// # if headwater_io::live_support().is_err() { return Ok(()) }
    /// use std::sync::atomic::Ordering;
    /// use headwater::{ByteRange, OpenOptions};
    /// let file = OpenOptions::new().write(true).open(&path)?;
    /// let view = file.map_contiguous(ByteRange::new(0, 8192))?;
    /// let word = view.atomic_u64(4096).expect("inside, and aligned");
    /// word.store(7, Ordering::Release);
    /// let mut bytes = [0; 8];
    /// file.read_exact_at(&mut bytes, 4096)?;
    /// assert_eq!(u64::from_ne_bytes(bytes), 7);
    /// view.sync()?;
    /// assert_eq!(std::fs::read(&path)?[4096..4104], 7_u64.to_ne_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_contiguous(&self, range: impl RangeBounds<u64>) -> Result<SharedView> {
        let view = self.map(range)?;
        let range = view.range;
        let window = Arc::new(self.writable(Operation::View)?.make_window(range)?);
        Ok(SharedView { memory: Memory::Whole(window), ..view })
    }

    /// A live window onto a range of the file that may be much larger than memory, with its bytes contiguous in address space: as
    /// `mmap` for reading, without its signals. A page is read when it is touched, by a call or through a cell
    /// ([`SharedView::as_cells`], [`SharedView::atomic_u64`]), and leaves when its memory is needed for another. Pages that are touched
    /// in order are read ahead, up to 256 KiB; pages leave in the order in which they came.
    ///
    /// At most `memory_bytes` of pages are in memory, which come in steps of 2 MiB from what the engine has not mapped yet: pages of the cache do not make room for them; page tables of touched
    /// parts take up to a five-hundredth of the range beyond that. Where the system or a cgroup is short of memory, pages leave for other
    /// programs too, down to half a MiB, as those of the cache do ([`Elasticity`](crate::Elasticity)). Threads of the window, 16 at most, read for accesses through cells.
    /// Bytes come from the cache where it has them, and around it else.
    ///
    /// A call reports what is wrong with its bytes. An access through a cell cannot: it finds zeros in place of a page that cannot be read
    /// or lies beyond the end of the file, and [`SharedView::check`] reports that afterwards. It blocks while the page is read, however
    /// long the device takes; in a task, that blocks the executor's thread. A page is read for it by another thread, which takes more
    /// processor time than a call does that reads the page itself. A system call that is given such memory fails with `EFAULT` where a
    /// page is missing.
    ///
    /// The window shows writes through the same engine at once, and stores to the cells of a contiguous view when it loads their page again.
    /// It shows writes and truncations of other programs after the next check of the file: calls and arriving pages check it as [`OpenOptions::revalidate`](crate::OpenOptions::revalidate) says. Stores to the cells of this view reach no file, and last until their page leaves.
    /// In a forked child there are no bytes.
    ///
    /// # Errors
    /// As [`File::map`]; `Unsupported` for a file that the engine has no pages of, such as one in memory, and, naming what is missing,
    /// where userfaultfd is forbidden (containers often forbid it) or needs privileges (before Linux 5.11); `InvalidInput` for
    /// an empty range or less than 1 MiB of memory; `OutOfMemory` where less is left unmapped, as in an engine whose cache has grown to
    /// its ceiling; what keeps the system from starting a thread.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("table");
    /// # std::fs::write(&path, vec![7; 8 << 20])?;
    /// # if headwater_io::DemandMemory::new(1).is_err() { return Ok(()) }
    /// use std::sync::atomic::Ordering;
    /// let file = headwater::File::open(&path)?;
    /// let table = file.map_on_demand(.., 2 << 20)?;
    /// assert_eq!(table.load_u64(4 << 20)?, u64::from_ne_bytes([7; 8]));
    /// let cells = table.as_cells().expect("not in a forked child");
    /// let sum: u64 = cells.iter().step_by(100_000).map(|cell| u64::from(cell.load(Ordering::Relaxed))).sum();
    /// // Only now is it certain that all of them were read.
    /// table.check()?;
    /// assert_eq!(sum, 84 * 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_on_demand(&self, range: impl RangeBounds<u64>, memory_bytes: u64) -> Result<SharedView> {
        let view = self.map(range)?;
        let Contents::Stored(source) = &self.contents else {
            let error = io::Error::new(io::ErrorKind::Unsupported, "a file in memory has no windows");
            return Err(view.refused(view.range.start, error));
        };
        let window = Arc::new(OnDemand::new(source, view.range, memory_bytes)?);
        Ok(SharedView { memory: Memory::OnDemand(window), ..view })
    }
}

impl SharedView {
    /// Length of the window in bytes, whether the file reaches that far or not.
    pub fn len(&self) -> u64 {
        self.range.len()
    }

    /// Whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The range of the file that this window shows.
    ///
    /// ```
    /// let view = headwater::File::from_bytes("in memory").map(3..)?;
    /// assert_eq!((view.range().start, view.len(), view.is_empty()), (3, 6, false));
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Copies the bytes from `at_bytes` on into `buffer`. With concurrent writes, some pages may be older than others. Blocks while bytes
    /// are read that are not in memory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"one two")?;
    /// let view = headwater::File::open(&path)?.map(4..)?;
    /// let mut word = [0; 3];
    /// view.read(0, &mut word)?;
    /// assert_eq!(&word, b"two");
    /// assert_eq!(view.read(1, &mut word).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `UnexpectedEof`, with the path and the first missing offset, when the file ends before; `InvalidInput` when the bytes are
    /// not all inside the view; as [`File::read_at`]. The buffer's contents are then unspecified.
    #[inline]
    pub fn read(&self, at_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let range = self.within(at_bytes, buffer.len())?;
        match &self.memory {
            Memory::Cache => {}
            Memory::Whole(used) => {
                used.check(range)?;
                let read = used.window.read(buffer, range.start);
                return read.map_err(|error| self.refused(range.start, error));
            }
            Memory::OnDemand(window) => return window.read(range, buffer),
        }
        match &self.file.contents {
            Contents::Stored(source) => {
                let Some(inode) = source.known() else { return self.file.read_exact_at(buffer, range.start) };
                match inode.read_optimistic(buffer, range.start, source.revalidate_after) {
                    OptimisticRead::Copied => Ok(()),
                    OptimisticRead::Failed if source.may_hide_contents(inode) => {
                        self.file.read_exact_at(buffer, range.start)
                    }
                    OptimisticRead::Failed => self.read_cached(source, inode, buffer, range),
                }
            }
            Contents::Memory(_) => self.file.read_exact_at(buffer, range.start),
        }
    }

    /// Writes `bytes` from `at_bytes` on. Nothing is written if the file is too short when the call begins. Blocks as [`File::write_at`] does:
    /// for pages that are written in part and not in memory, and while too many are dirty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"one two")?;
    /// let file = headwater::OpenOptions::new().write(true).open(&path)?;
    /// let view = file.map(..)?;
    /// view.write(4, b"TWO")?;
    /// // Every reader of the engine sees it at once.
    /// assert_eq!(file.view(0, 7)?, b"one TWO");
    /// assert!(view.write(5, b"TWO").is_err(), "a view ends where it ends");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `UnexpectedEof`, with the path and the first missing offset; `InvalidInput` when the bytes are not all inside the view;
    /// `PermissionDenied` when the file is not open for writing; what the device reports. Some of the bytes may be written when
    /// the file is truncated meanwhile, or the device fails.
    pub fn write(&self, at_bytes: u64, bytes: &[u8]) -> Result<()> {
        let range = self.within(at_bytes, bytes.len())?;
        let (source, inode) = self.writable(range)?;
        let mut done = 0;
        while done < bytes.len() {
            let place = Place::Within(range.start + done as u64);
            done += source.write_cached(inode, &bytes[done..], place)?.bytes;
        }
        Ok(())
    }

    /// Adds to the eight bytes at `at_bytes`, wrapping around, and returns their previous value. Atomic with respect to all reads
    /// and writes of the file through the same engine.
    ///
    /// # Errors
    /// As [`SharedView::write`]; `InvalidInput` if the offset in the file is no multiple of eight.
    pub fn fetch_add_u64(&self, at_bytes: u64, value: u64) -> Result<u64> {
        let mut before = 0;
        self.modify(at_bytes, &mut |word| {
            before = word;
            Some(word.wrapping_add(value))
        })?;
        Ok(before)
    }

    /// Writes `new` to the eight bytes at `at_bytes` if they are `current`, atomically like [`SharedView::fetch_add_u64`]. Returns
    /// their previous value: they were replaced if that is `current`; else nothing was dirtied.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("lock");
    /// # std::fs::write(&path, vec![0; 8])?;
    /// # use headwater::{ByteRange, OpenOptions};
    /// let file = OpenOptions::new().write(true).open(&path)?;
    /// let view = file.map(ByteRange::new(0, 8))?;
    /// assert_eq!(view.compare_exchange_u64(0, 0, 7)?, 0);
    /// assert_eq!(view.compare_exchange_u64(0, 0, 8)?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`SharedView::fetch_add_u64`].
    pub fn compare_exchange_u64(&self, at_bytes: u64, current: u64, new: u64) -> Result<u64> {
        let mut before = 0;
        self.modify(at_bytes, &mut |word| {
            before = word;
            (word == current).then_some(new)
        })?;
        Ok(before)
    }

    /// As [`File::sync_data`]: all earlier writes to the file, through this view or otherwise, survive a power loss. Blocks.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// Reports the first access through a cell, since the last call, that found zeros in place of bytes of the file: the page could not
    /// be read, or lay beyond the end when it came. Such pages are read anew when they are next touched. Views other than those of
    /// [`File::map_on_demand`] have none. Does not block.
    ///
    /// ```
    /// let view = headwater::File::from_bytes("in memory").map(..)?;
    /// assert!(view.check().is_ok());
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the device reported, or `UnexpectedEof`, with path and offset of the page.
    pub fn check(&self) -> Result<()> {
        match &self.memory {
            Memory::OnDemand(window) => window.check(),
            Memory::Cache | Memory::Whole(_) => Ok(()),
        }
    }

    /// All bytes of a view that is contiguous. `None` for those of [`File::map`] and in a forked child.
    pub fn as_cells(&self) -> Option<&[AtomicU8]> {
        let (cells, start) = match &self.memory {
            Memory::Cache => return None,
            Memory::Whole(used) => (used.window.memory.as_cells(), used.window.place(self.range.start)),
            Memory::OnDemand(window) => (window.memory().as_cells(), window.at(self.range.start)),
        };
        cells.get(start..start + self.range.len() as usize)
    }

    /// The eight bytes at `at_bytes` of a view that is contiguous, in the processor's byte order. `None` for those of [`File::map`], in
    /// a forked child, if the offset in the file is no multiple of eight, and beyond the end of the view.
    pub fn atomic_u64(&self, at_bytes: u64) -> Option<&AtomicU64> {
        let range = self.within(at_bytes, size_of::<u64>()).ok()?;
        match &self.memory {
            Memory::Cache => None,
            Memory::Whole(used) => used.window.memory.atomic_u64(used.window.place(range.start)),
            Memory::OnDemand(window) => window.memory().atomic_u64(window.at(range.start)),
        }
    }

    fn modify(&self, at_bytes: u64, change: &mut dyn FnMut(u64) -> Option<u64>) -> Result<()> {
        let range = self.within(at_bytes, size_of::<u64>())?;
        if !range.start.is_multiple_of(size_of::<u64>() as u64) {
            let text = "what is changed atomically begins at a multiple of 8 in the file";
            return Err(self.refused(range.start, io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let (source, inode) = self.writable(range)?;
        source.modify_cached(inode, range.start, change)
    }

    fn read_cached(
        &self,
        source: &Arc<Source>,
        inode: &Arc<Inode>,
        buffer: &mut [u8],
        range: ByteRange,
    ) -> Result<()> {
        source.check_read(range.start)?;
        let mut done = 0;
        while done < buffer.len() {
            let rest = ByteRange::new(range.start + done as u64, range.end);
            match source.read_cached(inode, &mut buffer[done..], rest)? {
                0 => return Err(self.file.ended_early(rest.start)),
                read_bytes => done += read_bytes,
            }
        }
        Ok(())
    }

    /// The open file, after a check of its length if the write might reach beyond the known one.
    fn writable(&self, range: ByteRange) -> Result<(&Arc<Source>, &Arc<Inode>)> {
        let source = self.file.writable(Operation::Write)?;
        source.check_process_for(Operation::Write)?;
        let Some(inode) = source.known() else {
            let text = "a device without pages cannot be written through a view";
            return Err(self.refused(range.start, io::Error::new(io::ErrorKind::Unsupported, text)));
        };
        if range.end > inode.length_bytes() {
            source.length_bytes()?;
        }
        Ok((source, inode))
    }

    /// The range of the file that corresponds to this part of the view.
    #[inline]
    fn within(&self, at_bytes: u64, length: usize) -> Result<ByteRange> {
        match at_bytes.checked_add(length as u64) {
            Some(end_bytes) if end_bytes <= self.len() => {
                Ok(ByteRange::at(self.range.start + at_bytes, length as u64))
            }
            _ => Err(self.beyond(at_bytes, length)),
        }
    }

    #[cold]
    fn beyond(&self, at_bytes: u64, length: usize) -> Error {
        let text = format!("{length} bytes at {at_bytes} are not inside a view of {} bytes", self.len());
        let offset_bytes = self.range.start.saturating_add(at_bytes);
        self.refused(offset_bytes, io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn refused(&self, offset_bytes: u64, error: io::Error) -> Error {
        Error::at(Operation::View, self.file.path(), offset_bytes, error)
    }
}

/// Loads and stores of one width.
macro_rules! words {
    ($($word:ident $load:ident $store:ident),+) => {
        impl SharedView {
            $(
                #[doc = concat!("Reads the `", stringify!($word), "` at `at_bytes`, in the processor's order.")]
                ///
                /// # Errors
                /// As [`SharedView::read`].
                #[inline]
                pub fn $load(&self, at_bytes: u64) -> Result<$word> {
                    let mut bytes = [0; size_of::<$word>()];
                    self.read(at_bytes, &mut bytes)?;
                    Ok($word::from_ne_bytes(bytes))
                }

                #[doc = concat!("Writes the `", stringify!($word), "` at `at_bytes`, in the processor's order.")]
                ///
                /// # Errors
                /// As [`SharedView::write`].
                pub fn $store(&self, at_bytes: u64, value: $word) -> Result<()> {
                    self.write(at_bytes, &value.to_ne_bytes())
                }
            )+
        }
    };
}

words!(u8 load_u8 store_u8, u16 load_u16 store_u16, u32 load_u32 store_u32, u64 load_u64 store_u64);

impl fmt::Debug for SharedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SharedView({} at {}..{})",
            self.file.path().maybe_quote(),
            self.range.start,
            self.range.end
        )
    }
}

// As an engine.
impl UnwindSafe for SharedView {}

impl RefUnwindSafe for SharedView {}
