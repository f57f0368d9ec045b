//! Live memory: contiguous memory for windows onto files, which all threads read and write at once.
//!
//! ```text
//!   Extents ──► fill_moved ─┬─ a whole huge page, nothing there yet: its mapping moves (UFFDIO_MOVE)
//!   &[u8]   ──► fill_copied ┴─ else: pages are copied into place (UFFDIO_COPY), or over what is there
//!
//!   track ──► write, write ──► take_written: 8192..12288, once ──► write ──► take_written: …
//! ```
//!
//! The memory is private and anonymous, and belongs to no file. It is registered with a userfaultfd of its own for
//! asynchronous write protection alone, not for missing pages (memory `on_demand` is): a page that was never filled reads as zeros at
//! once, and no access ever waits for a handler. The kernel keeps track of written pages in its page tables: the first write to a protected page is
//! one short fault, later ones cost nothing.
//!
//! Filling copies unless a whole huge page can move. Moving less splits the arena's huge page for good, and costs with the
//! pages that the arena then needs anew more than the copy.
//!
//! Owns: the mapping, atomic access to its bytes, the set of written pages.
//! Does not own: the file behind a window, writeback.
//! Invariants: no reference to plain bytes is ever made, only to atomics; the memory stays where it is until it is dropped;
//! a page written since the last [`LiveMemory::take_written`] is returned by one of the next.
//! Locks: none.

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::memory::arena::{Chunk, Extent, Extents};
use crate::system::fork::ProcessMark;
use crate::system::sys;

mod on_demand;
mod userfault;

use headwater_core::units::PAGE_BYTES;
pub use on_demand::DemandMemory;
use userfault::{Protection, Reports, Userfault};

/// Whether this kernel has what [`LiveMemory`] needs, and lets this process use it: userfaultfd with `UFFD_FEATURE_MOVE`
/// (Linux 6.8) and `UFFD_FEATURE_WP_ASYNC` (6.7), and `PAGEMAP_SCAN` (6.7).
///
/// # Errors
/// `Unsupported`, with what is missing in the text. What has nothing to do with the kernel, like too many open files, is
/// reported as it is.
pub fn live_support() -> io::Result<()> {
    Userfault::open().map(drop)
}

/// Zeroed memory that threads read and write at once, that frame memory moves into, and that knows which of its pages were
/// written.
///
/// Several accesses to the same bytes at once are atomic word by word: a value of up to eight bytes that does not cross an
/// aligned word is seen whole, of longer ones some words may be older than others. All are relaxed: what orders them is
/// the caller's business. (That atomics of different widths overlap is beyond what the language's memory model speaks of; it
/// is what processors do.)
///
/// A forked child has none of the memory: operations fail there with `Unsupported`, the atomics are not to be had, and
/// references and pointers that the parent took before the fork point to nothing.
pub struct LiveMemory {
    base: NonNull<u8>,
    length_bytes: usize,
    faults: Userfault,
    tracked: AtomicBool,
    mark: ProcessMark,
}

// SAFETY: the memory is this value's own, unmapped once, and the same in all threads.
unsafe impl Send for LiveMemory {}
// SAFETY: through `&LiveMemory` the bytes are only accessed atomically, or by the kernel.
unsafe impl Sync for LiveMemory {}

impl LiveMemory {
    /// Reserves memory of `bytes`, all zeros. Takes two descriptors and address space; memory only where it is filled or
    /// written to. From 2 MiB on it begins at a multiple of 2 MiB.
    ///
    /// # Errors
    /// As [`live_support`]; `InvalidInput` for 0 bytes; `OutOfMemory` when there is no room in the address space.
    pub fn new(bytes: usize) -> io::Result<LiveMemory> {
        if bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        LiveMemory::reserve(bytes, Userfault::open()?, Reports::Written)
    }

    fn reserve(bytes: usize, faults: Userfault, reports: Reports) -> io::Result<LiveMemory> {
        let mapped_bytes = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let alignment = if bytes >= Chunk::BYTES { Chunk::BYTES } else { PAGE_BYTES };
        let base = sys::reserve(mapped_bytes, alignment)?;
        let (tracked, mark) = (AtomicBool::new(false), ProcessMark::here());
        let memory = LiveMemory { base, length_bytes: bytes, faults, tracked, mark };
        // SAFETY: all of the mapping just made, which is private and anonymous.
        unsafe { memory.faults.register(memory.addresses(), reports) }?;
        Ok(memory)
    }

    /// How many bytes there are, as asked for.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// Fills `length_bytes` from `at_bytes` on with the bytes of the extents in their order, which go back to their arena.
    /// Whole huge pages are moved where nothing is yet; their frames are zeros then, and take a fault when next used. In the
    /// last page, bytes after the end become zeros where nothing was, and stay where something was.
    ///
    /// Others may access the range meanwhile, and see a page that was not there as it was or filled, one that was there also
    /// filled in part. After [`LiveMemory::track`]
    /// filling does not count as writing, except to a page that was there already.
    ///
    /// # Errors
    /// `InvalidInput` when the range reaches beyond the end, does not begin with a page, or is longer than the extents;
    /// `OutOfMemory`; `Unsupported` in a forked child. A part may be filled then.
    pub fn fill_moved(&self, at_bytes: usize, length_bytes: usize, mut extents: Extents) -> io::Result<()> {
        let range = self.reach(at_bytes, length_bytes)?;
        let room_bytes: usize = extents.iter().map(|extent| extent.len()).sum();
        if !at_bytes.is_multiple_of(PAGE_BYTES) || room_bytes < length_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut at = range.start;
        for extent in &mut extents {
            let part_bytes = extent.len().min(range.end - at);
            let moved_bytes = if part_bytes == Chunk::BYTES { self.move_huge(at, extent) } else { 0 };
            self.place(at + moved_bytes, &extent[moved_bytes..part_bytes])?;
            at += part_bytes;
        }
        Ok(())
    }

    /// Fills the memory from `at_bytes` on with a copy of `bytes`. Where nothing is yet, this takes fewer faults than
    /// [`LiveMemory::write`]; and as with [`LiveMemory::fill_moved`] it does not count as writing there.
    ///
    /// # Errors
    /// `InvalidInput` when the range reaches beyond the end; `OutOfMemory`; `Unsupported` in a forked child. A part may be
    /// filled then.
    pub fn fill_copied(&self, at_bytes: usize, bytes: &[u8]) -> io::Result<()> {
        let range = self.reach(at_bytes, bytes.len())?;
        let lead_bytes = (at_bytes.next_multiple_of(PAGE_BYTES) - at_bytes).min(bytes.len());
        let (lead, rest) = bytes.split_at(lead_bytes);
        self.place_part(range.start, lead)?;
        self.place(range.start + lead_bytes, rest)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// `InvalidInput` when the range reaches beyond the end, `Unsupported` in a forked child.
    #[inline]
    pub fn read(&self, at_bytes: usize, buffer: &mut [u8]) -> io::Result<()> {
        let range = self.reach(at_bytes, buffer.len())?;
        // SAFETY: the range is mapped up to the end of its last word, and accessed atomically by all.
        unsafe { sys::load_racing(self.base, range, buffer) };
        Ok(())
    }

    /// Copies bytes in. What others write beside them at the same time is kept.
    ///
    /// # Errors
    /// As [`LiveMemory::read`].
    #[inline]
    pub fn write(&self, at_bytes: usize, bytes: &[u8]) -> io::Result<()> {
        let range = self.reach(at_bytes, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { sys::store_racing(self.base, range, bytes) };
        Ok(())
    }

    /// Writes zeros.
    ///
    /// # Errors
    /// As [`LiveMemory::read`]; also for a range that ends before it begins.
    pub fn zero(&self, range: Range<usize>) -> io::Result<()> {
        const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let length = range.end.checked_sub(range.start).ok_or(io::ErrorKind::InvalidInput)?;
        let range = self.reach(range.start, length)?;
        let mut at = range.start;
        while at < range.end {
            let end = (at + 1).next_multiple_of(PAGE_BYTES).min(range.end);
            // SAFETY: as in `read`.
            unsafe { sys::store_racing(self.base, at..end, &ZEROS[..end - at]) };
            at = end;
        }
        Ok(())
    }

    /// The eight bytes at an offset, in the processor's order. `None` beyond the end, at an offset that is not a multiple of 8,
    /// and in a forked child.
    #[inline]
    pub fn atomic_u64(&self, at_bytes: usize) -> Option<&AtomicU64> {
        let range = self
            .reach(at_bytes, size_of::<u64>())
            .ok()
            .filter(|_| at_bytes.is_multiple_of(size_of::<u64>()))?;
        // SAFETY: inside the mapping, which lives as long as `self`, aligned, and accessed atomically by all.
        Some(unsafe { self.base.add(range.start).cast::<AtomicU64>().as_ref() })
    }

    /// All bytes, one beside the other. Empty in a forked child.
    #[must_use]
    pub fn as_cells(&self) -> &[AtomicU8] {
        if !self.mark.is_here() {
            return &[];
        }
        // SAFETY: mapped and initialised for as long as `self` lives, and accessed atomically by all.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length_bytes) }
    }

    /// Begins to track writes: what was filled or written before does not count. Called again, it forgets writes that were
    /// not yet taken. Needs page tables for all of the memory, a five-hundredth of it.
    ///
    /// # Errors
    /// `OutOfMemory`, `Unsupported` in a forked child.
    pub fn track(&self) -> io::Result<()> {
        self.reach(0, 0)?;
        // Before the pages are protected: one that is placed meanwhile is either protected as it arrives or then.
        self.tracked.store(true, Ordering::Release);
        // SAFETY: registered when it was made.
        unsafe { self.faults.protect(self.addresses()) }
    }

    /// Replaces the contents of `written` by the pages written since the last call, or since [`LiveMemory::track`]:
    /// whole pages (but not beyond the end), neighbours merged, ascending. A page is reported once for any number of writes.
    /// One that is written during the call is reported now or by the next call; if now, its bytes read after the call may or may
    /// not be the last.
    ///
    /// # Errors
    /// `InvalidInput` before [`LiveMemory::track`], `Unsupported` in a forked child, else what keeps the kernel from walking
    /// its tables. What was found by then is in `written`; the rest is reported by the next call.
    pub fn take_written(&self, written: &mut Vec<Range<usize>>) -> io::Result<()> {
        written.clear();
        self.reach(0, 0)?;
        if !self.tracked.load(Ordering::Acquire) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let addresses = self.addresses();
        let append = |found: Range<usize>| {
            let (start, end) = (found.start - addresses.start, found.end - addresses.start);
            let end = end.min(self.length_bytes);
            match written.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => written.push(start..end),
            }
        };
        // SAFETY: registered when it was made.
        unsafe { self.faults.scan_written(addresses.clone(), append) }
    }

    /// The range, if there is such a one and the memory is there at all.
    #[inline]
    fn reach(&self, at_bytes: usize, length_bytes: usize) -> io::Result<Range<usize>> {
        if !self.mark.is_here() {
            return Err(forked());
        }
        match at_bytes.checked_add(length_bytes) {
            Some(end) if end <= self.length_bytes => Ok(at_bytes..end),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn mapped_bytes(&self) -> usize {
        self.length_bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Of all pages, for the kernel.
    fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr().expose_provenance();
        start..start + self.mapped_bytes()
    }

    /// Moves an extent that is one huge page, if possible, and returns how many bytes moved. The rest is left to be copied:
    /// there was a page already, the extent is pinned for I/O, or other pages took its place.
    fn move_huge(&self, at: usize, extent: &mut Extent) -> usize {
        let destination = self.addresses().start + at;
        let tracked = self.tracked.load(Ordering::Acquire);
        if tracked || !destination.is_multiple_of(Chunk::BYTES) || !self.faults.is_huge(extent) {
            return 0;
        }
        // SAFETY: the range lies in the registered mapping, whose bytes all access atomically; the extent is lent for
        // writing, and private anonymous memory. What it reads as afterwards are zeros, so its bytes stay initialised.
        unsafe { self.faults.move_pages(destination, extent) }.unwrap_or(0)
    }

    /// Fills from the beginning of a page on.
    fn place(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (at, bytes);
        while rest.len() >= PAGE_BYTES {
            let whole = &rest[..rest.len() / PAGE_BYTES * PAGE_BYTES];
            let placed_bytes = match self.place_pages(at, whole) {
                Ok(placed_bytes) => placed_bytes,
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => return Err(error),
                Err(_) => {
                    self.write(at, &rest[..PAGE_BYTES])?;
                    PAGE_BYTES
                }
            };
            (at, rest) = (at + placed_bytes, &rest[placed_bytes..]);
        }
        self.place_part(at, rest)
    }

    /// Fills a part of one page. If there is none, the rest of it are zeros.
    fn place_part(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (mut page, skip) = ([0; PAGE_BYTES], at % PAGE_BYTES);
        page[skip..skip + bytes.len()].copy_from_slice(bytes);
        match self.place_pages(at - skip, &page) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Err(error),
            Err(_) => self.write(at, bytes),
        }
    }

    fn place_pages(&self, at: usize, pages: &[u8]) -> io::Result<usize> {
        let tracked = self.tracked.load(Ordering::Acquire);
        let protection = if tracked { Protection::Protected } else { Protection::Open };
        assert!(at + pages.len() <= self.mapped_bytes(), "pages are placed inside the mapping");
        // SAFETY: page-aligned, inside the registered mapping, whose bytes all access atomically.
        unsafe { self.faults.place(self.addresses().start + at, pages, protection) }
    }
}

impl fmt::Debug for LiveMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tracked = self.tracked.load(Ordering::Relaxed);
        write!(f, "LiveMemory({} bytes{})", self.length_bytes, if tracked { ", tracked" } else { "" })
    }
}

impl Drop for LiveMemory {
    fn drop(&mut self) {
        // In a child something else may lie there.
        if self.mark.is_here() {
            // SAFETY: mapped by `reserve` with this length; `&mut self` ends all borrows of the atomics.
            unsafe { sys::release(self.base, self.mapped_bytes()) };
        }
    }
}

fn forked() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "live memory stays with the process that made it")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use headwater_testkit::{Rng, skip};

    use super::*;

    fn memory(bytes: usize) -> Option<LiveMemory> {
        match LiveMemory::new(bytes) {
            Ok(memory) => Some(memory),
            Err(error) => {
                skip(error);
                None
            }
        }
    }

    /// Goal: reads, writes, fills and zeros of all lengths and places do what they do to an array.
    #[test]
    fn accesses_agree_with_an_array() {
        let (bytes, rounds) = if cfg!(miri) { (5000, 40) } else { (20_001, 3000) };
        let Some(memory) = memory(bytes) else { return };
        let (mut model, mut rng) = (vec![0_u8; bytes], Rng::new(7));
        for round in 0..rounds {
            let length = rng.below([20, 300, bytes as u64][round % 3]) as usize;
            let at = rng.below((bytes - length) as u64 + 1) as usize;
            let fresh: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
            match rng.below(4) {
                0 => {
                    memory.write(at, &fresh).unwrap();
                    model[at..at + length].copy_from_slice(&fresh);
                }
                1 => {
                    memory.fill_copied(at, &fresh).unwrap();
                    model[at..at + length].copy_from_slice(&fresh);
                }
                2 => {
                    memory.zero(at..at + length).unwrap();
                    model[at..at + length].fill(0);
                }
                _ => {
                    let mut read = fresh;
                    memory.read(at, &mut read).unwrap();
                    assert_eq!(read, model[at..at + length], "{length} at {at}");
                }
            }
        }
        let cells = memory.as_cells().iter().map(|cell| cell.load(Ordering::Relaxed));
        assert!(cells.eq(model));
    }

    /// Goal: what reaches beyond the end is refused, and changes nothing.
    #[test]
    fn the_end_is_the_end() {
        let Some(memory) = memory(4099) else { return };
        let refused =
            |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        refused(memory.write(4096, &[1; 4]));
        refused(memory.fill_copied(4096, &[1; 4]));
        refused(memory.read(usize::MAX, &mut [0; 2]));
        refused(memory.zero(4096..4100));
        #[expect(clippy::reversed_empty_ranges, reason = "this is what is refused")]
        refused(memory.zero(5..4));
        refused(memory.fill_moved(4096, 4, Extents::new()));
        refused(memory.take_written(&mut Vec::new()));
        assert!(LiveMemory::new(0).is_err() && LiveMemory::new(usize::MAX).is_err());
        assert!(memory.write(4099, &[]).is_ok() && memory.zero(4099..4099).is_ok());
        assert!(memory.as_cells().iter().all(|cell| cell.load(Ordering::Relaxed) == 0));
        assert_eq!(memory.as_cells().len(), memory.length_bytes());
    }

    /// Goal: atomics are there where they are aligned and inside, and are the bytes that are read.
    #[test]
    fn atomics_are_the_bytes() {
        let Some(memory) = memory(4099) else { return };
        assert!(memory.atomic_u64(4088).is_some() && memory.atomic_u64(4096).is_none());
        assert!(memory.atomic_u64(4).is_none() && memory.atomic_u64(usize::MAX - 7).is_none());
        memory.atomic_u64(8).unwrap().store(u64::from_ne_bytes(*b"headwate"), Ordering::Relaxed);
        memory.as_cells()[16].store(b'r', Ordering::Relaxed);
        let mut text = [0; 9];
        memory.read(8, &mut text).unwrap();
        assert_eq!(&text, b"headwater");
    }

    /// Goal: a huge page moves, and only onto nothing; its frames are zeros then and take bytes. Where the system gives none,
    /// nothing moves.
    #[test]
    #[cfg_attr(miri, ignore)] // miri moves no pages
    fn a_huge_page_moves() {
        let Some(memory) = memory(2 * Chunk::BYTES) else { return };
        let arena = crate::Arena::new(Chunk::BYTES + (512 << 10)).unwrap();
        let mut extent = arena.allocate(Chunk::BYTES, crate::Urgency::Demand).unwrap();
        if !memory.faults.is_huge(&extent) {
            assert_eq!(memory.move_huge(0, &mut extent), 0);
            return skip("the arena has no huge pages");
        }
        extent.fill(5);
        assert_eq!(memory.move_huge(PAGE_BYTES, &mut extent), 0, "not a place for a huge page");
        assert_eq!(memory.move_huge(0, &mut extent), Chunk::BYTES);
        assert!(!memory.faults.is_huge(&extent));
        assert!(extent.iter().all(|&byte| byte == 0));
        extent.fill(6);
        assert_eq!(memory.move_huge(0, &mut extent), 0, "there is a page");
        assert!(extent.iter().all(|&byte| byte == 6));
        assert!(memory.as_cells()[..Chunk::BYTES].iter().all(|cell| cell.load(Ordering::Relaxed) == 5));
    }

    /// Goal: threads that write neighbouring bytes of the same words lose nothing of each other's.
    #[test]
    fn neighbours_are_kept() {
        let Some(memory) = memory(4096) else { return };
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        // Cuts within words: 0..3, 3..13, 13..90, 90..200.
        let cuts = [0, 3, 13, 90, 200];
        thread::scope(|scope| {
            for (number, part) in cuts.windows(2).enumerate() {
                let (start, length, memory) = (part[0], part[1] - part[0], &memory);
                scope.spawn(move || {
                    let (mut value, mut read) = (0, vec![0; length]);
                    for round in 0..rounds {
                        // Still there, whatever the others wrote since.
                        memory.read(start, &mut read).unwrap();
                        assert!(read.iter().all(|&byte| byte == value), "{start}: {read:?} is not {value}");
                        value = (round * 4 + number) as u8;
                        memory.write(start, &[value; 128][..length]).unwrap();
                    }
                });
            }
        });
    }
}
