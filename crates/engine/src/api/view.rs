//! View: bytes of a file as they are at one moment, pinned.
//!
//! ```text
//!   view ─► within the file? ─► pages pinned, as a read finds them ─► runs of frames ─► slices
//!                                  └─ no frame for one ─► read past the cache into memory of its own
//! ```
//!
//! Owns: the pins, a share of the lending quota.
//! Does not own: the pages. A write to a pinned page puts another frame in its place (loan-break).
//! Invariants: I1 a view never changes; I6 at most half of the budget is lent.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageRange};
use headwater_io::{LentPages, OwnedPage, PinnedPage, PinnedRun};
use smallvec::{SmallVec, smallvec};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::handle::Source;
use crate::engine::lending::LENT_TIMES_MAX;
use crate::inode::Inode;
use crate::load::submit::Caller;
use crate::read::cached::{CachedRead, Next, let_others_run};

/// A snapshot of a range of a file, whatever is written later: slices of the cache's own pages, without a copy. Its memory is
/// never unmapped or truncated; there is no `SIGBUS`.
///
/// A view keeps its pages in memory. While views and lent [`Bytes`] hold half of the engine's budget
/// ([`Stats::lent_bytes`](crate::Stats::lent_bytes)), further views are copies in memory of their own. Each page of a view is as
/// it was at one moment between call and return.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let file = headwater::File::create(dir.path().join("data"))?;
/// file.write_all_at(b"before", 0)?;
/// let view = file.view(0, 6)?;
/// file.write_all_at(b"after!", 0)?;
/// assert_eq!(view.as_slice(), Some(&b"before"[..]));
/// file.append(&view.to_vec())?;
/// assert_eq!(file.view(0, 12)?.to_vec(), b"after!before");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct View {
    /// Nearly always one, which takes no allocation.
    pieces: SmallVec<[Piece; 1]>,
}

/// Bytes that are adjacent in the file.
struct Piece {
    memory: Memory,
    /// Within the memory.
    range: Range<usize>,
}

enum Memory {
    Page(OwnedPage),
    Pages(PinnedRun),
    Bytes(Bytes),
}

impl File {
    /// The bytes `[offset_bytes, offset_bytes + length)` as they are now, in the cache's pages; missing pages are loaded first.
    /// Blocks for that.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; `OutOfMemory`; as [`File::read_at`].
    pub fn view(&self, offset_bytes: u64, length: usize) -> Result<View> {
        let source = match &self.contents {
            Contents::Stored(source) => source,
            Contents::Memory(memory) => {
                return self.whole(memory.slice(offset_bytes, length)?, offset_bytes, length);
            }
        };
        if let Some(view) = source.view_at_once(offset_bytes, length, Caller::Thread) {
            return Ok(view);
        }
        let range = source.viewable(offset_bytes, length)?;
        let Some((inode, lent)) = source.reserve_view(range) else {
            let mut bytes = Vec::new();
            let too_much = |_| source.error(Operation::View, offset_bytes, io::ErrorKind::OutOfMemory.into());
            bytes.try_reserve_exact(length).map_err(too_much)?;
            bytes.resize(length, 0);
            self.read_exact_at(&mut bytes, offset_bytes)?;
            return self.whole(bytes.into(), offset_bytes, length);
        };
        let mut read = CachedRead::new(source, inode, Caller::Thread, range)?;
        let mut making = Making::new(range, lent);
        while let Some(next) = read.pin(|done, page, part| making.keep(done, page, part)) {
            match next {
                Next::Wait(load) => source.shared().cache.loads.wait(&load),
                Next::Memory(shortage) => shortage.wait(source.shared()),
                Next::Bypass(part) => {
                    let mut bytes = vec![0; part.len() as usize];
                    let read_bytes = source.read_device(&mut bytes, part)?;
                    bytes.truncate(read_bytes);
                    making.past_the_cache(source, &mut read, bytes.into(), part)?;
                }
            }
        }
        making.finish(source, &read)
    }

    /// As [`File::view`], for tasks on any executor. May be dropped at any moment.
    ///
    /// # Errors
    /// As [`File::view`].
    pub fn view_async(
        &self,
        offset_bytes: u64,
        length: usize,
    ) -> impl Future<Output = Result<View>> + Send + 'static + use<> {
        let file = self.clone();
        async move {
            let view = file.view_for_task(offset_bytes, length).await?;
            let_others_run(length).await;
            Ok(view)
        }
    }

    async fn view_for_task(&self, offset_bytes: u64, length: usize) -> Result<View> {
        let source = match &self.contents {
            Contents::Stored(source) => source,
            Contents::Memory(memory) => {
                return self.whole(memory.slice(offset_bytes, length)?, offset_bytes, length);
            }
        };
        if let Some(view) = source.view_at_once(offset_bytes, length, Caller::Task) {
            return Ok(view);
        }
        let range = source.viewable(offset_bytes, length)?;
        let Some((inode, lent)) = source.reserve_view(range) else {
            let bytes = self.read_exact_at_async(offset_bytes, length).await?;
            return self.whole(bytes, offset_bytes, length);
        };
        let mut read = CachedRead::of_task(source, inode, range).await?;
        let mut making = Making::new(range, lent);
        while let Some(next) = read.pin(|done, page, part| making.keep(done, page, part)) {
            match next {
                Next::Wait(load) => source.shared().cache.loads.ready(&load, &source.shared().driver).await,
                Next::Memory(shortage) => shortage.begin(source.shared()).await,
                Next::Bypass(part) => {
                    let bytes = source.read_device_async(part).await?;
                    making.past_the_cache(source, &mut read, bytes, part)?;
                }
            }
        }
        making.finish(source, &read)
    }

    fn whole(&self, bytes: Bytes, offset_bytes: u64, length: usize) -> Result<View> {
        if bytes.len() < length {
            return Err(ended(self.path(), offset_bytes, offset_bytes + bytes.len() as u64));
        }
        let piece = (length > 0).then(|| Piece::of(bytes));
        Ok(View { pieces: piece.into_iter().collect() })
    }
}

impl Source {
    /// A view within one page that can be read at once.
    #[inline]
    fn view_at_once(&self, offset_bytes: u64, length: usize, caller: Caller) -> Option<View> {
        if length as u64 > PAGE_SIZE_BYTES - offset_bytes % PAGE_SIZE_BYTES {
            return None;
        }
        let lent = self.shared().lending.reserve(1)?;
        let (page, part) = self.pin_at_once(offset_bytes, length as u64, caller)?;
        if part.len() < length || page.pins() > LENT_TIMES_MAX {
            return None;
        }
        let piece = Piece { memory: Memory::Page(page.into_owned(lent)), range: part };
        Some(View { pieces: smallvec![piece] })
    }

    /// The range to view. Checks the length of the file, where it has one.
    fn viewable(&self, offset_bytes: u64, length: usize) -> Result<ByteRange> {
        self.check_read_for(Operation::View)?;
        let end_bytes = offset_bytes.saturating_add(length as u64);
        if !self.has_length() || length == 0 {
            return Ok(ByteRange::new(offset_bytes, end_bytes));
        }
        let length_bytes = match self.known() {
            Some(inode) if end_bytes <= inode.length_bytes() => inode.length_bytes(),
            _ => self.length_bytes()?,
        };
        let is_known = length_bytes > 0 || self.known().is_some_and(|inode| !self.may_hide_contents(inode));
        if end_bytes > length_bytes && is_known {
            return Err(ended(self.path(), offset_bytes, length_bytes));
        }
        Ok(ByteRange::new(offset_bytes, end_bytes))
    }

    /// The inode, and quota for the pages of a range. `None` if the file is not cached, or the lending quota is exhausted.
    fn reserve_view(&self, range: ByteRange) -> Option<(&Arc<Inode>, LentPages)> {
        let inode = self.inode_for(range)?;
        let lent = self.shared().lending.reserve(PageRange::covering(range).len().bytes() as usize)?;
        Some((inode, lent))
    }
}

/// A view under construction.
struct Making {
    /// Pinned pages that follow those in `pieces`, with the quota for those that are not pinned yet.
    run: Option<PinnedRun>,
    /// Bytes at the beginning of the first of these pages that precede the view.
    skip: usize,
    range: ByteRange,
    /// Bytes in `pieces`.
    done: usize,
    pieces: SmallVec<[Piece; 1]>,
}

impl Making {
    fn new(range: ByteRange, lent: LentPages) -> Making {
        let (run, skip) = (Some(PinnedRun::of(lent)), (range.start % PAGE_SIZE_BYTES) as usize);
        Making { run, skip, range, done: 0, pieces: SmallVec::new() }
    }

    /// Adds a part that was read past the cache, in memory of its own.
    fn past_the_cache(
        &mut self,
        source: &Source,
        read: &mut CachedRead<'_>,
        bytes: Bytes,
        part: ByteRange,
    ) -> Result<()> {
        if bytes.is_empty() {
            return Err(ended(source.path(), self.range.start, part.start));
        }
        // Fewer bytes than the part has may come before an error, which the next read meets.
        let read_bytes = bytes.len();
        self.push_copy(read.done(), bytes);
        read.bypassed(read_bytes);
        Ok(())
    }

    /// Adds the next page, of which the view covers `part`: pinned, or copied once the page has its maximum of pins.
    #[inline]
    fn keep(&mut self, pinned_bytes: usize, page: PinnedPage<'_>, part: Range<u32>) {
        if page.pins() <= LENT_TIMES_MAX {
            if pinned_bytes == self.done {
                // The first page of its piece. A read past the cache may have ended within it.
                self.skip = part.start as usize;
            }
            return self.run.as_mut().expect("there is quota for each page").push(page);
        }
        let bytes = Bytes::copy_from_slice(&page[part.start as usize..part.end as usize]);
        self.push_copy(pinned_bytes, bytes);
    }

    /// Adds bytes in memory of their own behind the first `pinned_bytes` of the view.
    fn push_copy(&mut self, pinned_bytes: usize, bytes: Bytes) {
        self.close_run(pinned_bytes);
        self.done += bytes.len();
        self.pieces.push(Piece::of(bytes));
        self.skip = 0;
    }

    /// Turns the pinned pages up to the first `pinned_bytes` of the view into a piece.
    fn close_run(&mut self, pinned_bytes: usize) {
        let length = pinned_bytes - self.done;
        if length == 0 {
            return;
        }
        let mut run = self.run.take().expect("it has pages");
        self.run = run.split_unused().map(PinnedRun::of);
        self.pieces.push(Piece { memory: Memory::Pages(run), range: self.skip..self.skip + length });
        self.done += length;
    }

    fn finish(mut self, source: &Source, read: &CachedRead<'_>) -> Result<View> {
        self.close_run(read.done());
        if (self.done as u64) < self.range.len() {
            // The file was truncated meanwhile.
            return Err(ended(source.path(), self.range.start, self.range.start + self.done as u64));
        }
        Ok(View { pieces: self.pieces })
    }
}

impl Piece {
    fn of(bytes: Bytes) -> Piece {
        let range = 0..bytes.len();
        Piece { memory: Memory::Bytes(bytes), range }
    }

    /// The same bytes, pinned once more or copied.
    fn another(&self) -> Piece {
        let memory = match &self.memory {
            Memory::Page(page) => page.try_clone(LENT_TIMES_MAX).map(Memory::Page),
            Memory::Pages(run) => run.try_clone(LENT_TIMES_MAX).map(Memory::Pages),
            Memory::Bytes(bytes) => Some(Memory::Bytes(bytes.clone())),
        };
        match memory {
            Some(memory) => Piece { memory, range: self.range.clone() },
            None => Piece::of(self.slices().collect::<Vec<_>>().concat().into()),
        }
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let (pages, bytes) = match &self.memory {
            Memory::Page(page) => (None, Some(&page[..])),
            Memory::Pages(run) => (Some(run.slices()), None),
            Memory::Bytes(bytes) => (None, Some(&bytes[..])),
        };
        let mut at = 0;
        let slices = pages.into_iter().flatten().chain(bytes);
        slices.filter_map(move |slice| {
            let (start, end) =
                (self.range.start.max(at) - at, self.range.end.min(at + slice.len()).max(at) - at);
            at += slice.len();
            slice.get(start..end).filter(|slice| !slice.is_empty())
        })
    }
}

impl View {
    /// Length in bytes.
    ///
    /// ```
    /// let file = headwater::File::from_bytes("one two");
    /// assert_eq!(file.view(4, 3)?.len(), 3);
    /// assert!(file.view(4, 0)?.is_empty());
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.range.len()).sum()
    }

    /// Whether the view is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in order, in pieces that are contiguous in memory: bytes read or written in one operation mostly form one piece,
    /// up to 1 MiB.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flat_map(Piece::slices)
    }

    /// All bytes as one slice, if they are contiguous in memory.
    #[inline]
    pub fn as_slice(&self) -> Option<&[u8]> {
        if let [Piece { memory: Memory::Page(page), range }] = &self.pieces[..] {
            return Some(&page[range.clone()]);
        }
        let mut chunks = self.chunks();
        let first = chunks.next().unwrap_or(&[]);
        chunks.next().is_none().then_some(first)
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes
    }

    /// The bytes as [`Bytes`]: without a copy where they are contiguous in memory, in one allocation.
    pub fn into_bytes(mut self) -> Bytes {
        if let [Piece { memory: Memory::Bytes(bytes), range }] = &mut self.pieces[..] {
            return std::mem::take(bytes).slice(range.clone());
        }
        match self.as_slice() {
            Some([]) => Bytes::new(),
            Some(_) => Bytes::from_owner(Contiguous(self)),
            None => self.gathered().into(),
        }
    }

    /// A copy in one piece, which counts as [`CacheStats::copied_bytes`](crate::CacheStats::copied_bytes).
    pub(super) fn gathered(&self) -> Vec<u8> {
        let run = self.pieces.iter().find_map(|piece| match &piece.memory {
            Memory::Pages(run) => Some(run),
            Memory::Page(_) | Memory::Bytes(_) => None,
        });
        run.into_iter().for_each(|run| run.note_copied(self.len()));
        self.to_vec()
    }

    /// The bytes in order, as [`Bytes`] that share the pages without a copy.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// let file = headwater::File::create(&path)?;
    /// file.write_all_at(&[7; 10_000], 0)?;
    /// let chunks: Vec<bytes::Bytes> = file.view(100, 9000)?.into_chunks();
    /// assert_eq!(chunks.iter().map(|chunk| chunk.len()).sum::<usize>(), 9000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_chunks(self) -> Vec<Bytes> {
        let view = Arc::new(self);
        let count = view.chunks().count();
        (0..count).map(|place| Bytes::from_owner(Chunk { view: view.clone(), place })).collect()
    }
}

/// Pins the same pages once more, or copies the bytes where as much is lent as may be.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// let file = headwater::File::create(&path)?;
/// file.write_all_at(b"before", 0)?;
/// let view = file.view(0, 6)?;
/// let same = view.clone();
/// drop(view);
/// file.write_all_at(b"after!", 0)?;
/// assert_eq!(same, b"before");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Clone for View {
    fn clone(&self) -> View {
        View { pieces: self.pieces.iter().map(Piece::another).collect() }
    }
}

/// The rest of the view, in the chunks of [`View::chunks`]. What was passed is no longer pinned once its whole piece was.
impl Buf for View {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        self.chunks().next().unwrap_or(&[])
    }

    /// # Panics
    /// If fewer bytes remain.
    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.len(), "cannot advance by {bytes} of {} bytes", self.len());
        let passed = self.pieces.iter().take_while(|piece| {
            let is_passed = piece.range.len() <= bytes;
            bytes -= if is_passed { piece.range.len() } else { 0 };
            is_passed
        });
        let passed = passed.count();
        self.pieces.drain(..passed);
        if let Some(piece) = self.pieces.first_mut() {
            piece.range.start += bytes;
        }
    }
}

impl PartialEq<[u8]> for View {
    fn eq(&self, other: &[u8]) -> bool {
        let mut rest = other;
        let is_same = self.chunks().all(|chunk| {
            let (part, behind) = rest.split_at_checked(chunk.len()).unwrap_or_default();
            rest = behind;
            part == chunk
        });
        is_same && rest.is_empty()
    }
}

impl PartialEq<&[u8]> for View {
    fn eq(&self, other: &&[u8]) -> bool {
        *self == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for View {
    fn eq(&self, other: &[u8; N]) -> bool {
        *self == other[..]
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for View {
    fn eq(&self, other: &&[u8; N]) -> bool {
        *self == other[..]
    }
}

impl PartialEq for View {
    fn eq(&self, other: &View) -> bool {
        let (mut ours, mut theirs) = (self.chunks(), other.chunks());
        let (mut left, mut right): (&[u8], &[u8]) = (&[], &[]);
        loop {
            left = if left.is_empty() { ours.next().unwrap_or(&[]) } else { left };
            right = if right.is_empty() { theirs.next().unwrap_or(&[]) } else { right };
            let length = left.len().min(right.len());
            if length == 0 {
                return left.len() == right.len();
            }
            if left[..length] != right[..length] {
                return false;
            }
            (left, right) = (&left[length..], &right[length..]);
        }
    }
}

impl Eq for View {}

/// A view of one slice.
struct Contiguous(View);

impl AsRef<[u8]> for Contiguous {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().expect("checked when it was made, and a view never changes")
    }
}

/// One chunk of a view.
struct Chunk {
    view: Arc<View>,
    place: usize,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self.view.chunks().nth(self.place).expect("counted when it was made, and a view never changes")
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} bytes)", self.len())
    }
}

fn ended(path: &std::path::Path, offset_bytes: u64, length_bytes: u64) -> Error {
    let error = io::Error::new(io::ErrorKind::UnexpectedEof, format!("the file ends at byte {length_bytes}"));
    Error::at(Operation::View, path, offset_bytes, error)
}
