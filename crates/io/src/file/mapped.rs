//! Mapped file: a read-only mapping used to measure `mmap` and to ask for the residency of single pages.
//!
//! Owns: the mapping.
//! Does not own: the descriptor, which may be closed.
//! Invariants: no reference into the mapping is ever made, because the file may change under it; bytes are read one at a
//! time, volatile, or copied out through raw pointers.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use headwater_core::units::{PAGE_BYTES, PageRange};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::system::pages::SystemPages;
use crate::system::sys;

/// Advice to the kernel on the order of accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAdvice {
    /// Nothing.
    Normal,
    /// `MADV_SEQUENTIAL`.
    Sequential,
    /// `MADV_RANDOM`.
    Random,
}

/// A file mapped read-only from its start.
#[derive(Debug)]
pub struct MappedFile {
    base: NonNull<u8>,
    length_bytes: usize,
}

impl MappedFile {
    /// Maps the first `length_bytes` of `file`.
    ///
    /// # Errors
    /// What `mmap(2)` reports; `InvalidInput` for an empty file.
    pub fn map(file: BorrowedFd<'_>, length_bytes: u64, advice: MapAdvice) -> io::Result<MappedFile> {
        let length_bytes = usize::try_from(length_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping placed by the kernel disturbs nothing that exists.
        let raw =
            unsafe { rustix::mm::mmap(nowhere, length_bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(raw.cast()).ok_or(io::ErrorKind::Other)?;
        let mapped = MappedFile { base, length_bytes };
        let advice = match advice {
            MapAdvice::Normal => return Ok(mapped),
            MapAdvice::Sequential => Advice::Sequential,
            MapAdvice::Random => Advice::Random,
        };
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        unsafe { rustix::mm::madvise(raw, length_bytes, advice) }?;
        Ok(mapped)
    }

    /// Reads the first byte of each page and returns their sum (wrapping). Every page is faulted in on the way. If
    /// another process truncates the file meanwhile, the kernel ends this process with SIGBUS: that is what `mmap`
    /// offers, and why headwater does not read this way.
    pub fn sum_of_pages(&self) -> u64 {
        (0..self.length_bytes).step_by(PAGE_BYTES).fold(0, |sum, offset| {
            // SAFETY: the offset lies within the mapping; the read is volatile, so a concurrent change is only a
            // different value.
            sum.wrapping_add(u64::from(unsafe { self.base.add(offset).read_volatile() }))
        })
    }

    /// The words of 8 bytes of a range, combined by exclusive or: those that lie within the mapping, at multiples of 8 of the file. Faults pages
    /// in; ends with SIGBUS as [`MappedFile::sum_of_pages`] does.
    pub fn sum_of_words(&self, offset_bytes: u64, length: usize) -> u64 {
        let start = usize::try_from(offset_bytes).map_or(self.length_bytes, |at| at.min(self.length_bytes));
        let words = start.div_ceil(8)..start.saturating_add(length).min(self.length_bytes) / 8;
        let base = self.base.cast::<u64>();
        words.fold(0, |sum, word| {
            // SAFETY: the word lies within the mapping, whose base is page-aligned; the read is volatile, so a concurrent change is only a
            // different value.
            sum ^ u64::from_le(unsafe { base.add(word).read_volatile() })
        })
    }

    /// Copies bytes from `offset_bytes` on into `buffer`, and returns how many there are before the end of the mapping.
    /// Faults pages in; ends with SIGBUS as [`MappedFile::sum_of_pages`] does.
    pub fn copy_at(&self, buffer: &mut [u8], offset_bytes: u64) -> usize {
        let start = usize::try_from(offset_bytes).map_or(self.length_bytes, |at| at.min(self.length_bytes));
        let length = buffer.len().min(self.length_bytes - start);
        // SAFETY: start..start + length lies within the mapping and is disjoint from `buffer`, as the mapping lends nothing.
        // Who writes to the file meanwhile is outside of this process or the kernel; all values of bytes are valid.
        unsafe { self.base.as_ptr().add(start).copy_to_nonoverlapping(buffer.as_mut_ptr(), length) };
        length
    }

    /// For each page of `pages` whether it is in the kernel's page cache, by `mincore(2)`. For a file that this
    /// process neither owns nor may write to, the kernel answers "resident" always.
    ///
    /// # Errors
    /// What `mincore(2)` reports; `InvalidInput` beyond the mapping, for no pages, and for a range that ends before it begins.
    pub fn residency(&self, pages: PageRange) -> io::Result<Vec<bool>> {
        if pages.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (start, end) =
            (pages.bytes().start as usize, (pages.bytes().end as usize).min(self.length_bytes));
        if start >= end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let system = SystemPages::here();
        let first = system.start_of(start);
        let mut answer = vec![0; system.covering(end - first)];
        // SAFETY: `first` begins one of the kernel's pages, and `first..end` lies within the mapping.
        unsafe { sys::mincore(self.base.add(first), end - first, &mut answer)? };
        let is_resident = |offset: usize| answer[system.covering(offset + 1 - first) - 1] & 1 == 1;
        Ok((start..end).step_by(PAGE_BYTES).map(is_resident).collect())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers into it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length_bytes) };
    }
}

// SAFETY: the mapping is only read, and unmapped once, by its owner; addresses are the same in all threads.
unsafe impl Send for MappedFile {}

// SAFETY: as above: shared use only reads.
unsafe impl Sync for MappedFile {}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use headwater_core::units::PageIndex;

    use super::*;

    /// Goal: copies are the file's bytes, clipped at the end of the mapping.
    #[test]
    #[cfg_attr(miri, ignore)] // miri maps no files
    fn copies_end_with_the_mapping() {
        let bytes: Vec<u8> = (0..9000_u32).map(|index| index as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mapped = MappedFile::map(file.as_fd(), 9000, MapAdvice::Normal).unwrap();
        let mut buffer = [0; 4096];
        for (offset, length) in [(0, 4096), (4095, 4096), (8990, 10), (9000, 0), (u64::MAX, 0)] {
            assert_eq!(mapped.copy_at(&mut buffer, offset), length, "at {offset}");
            let start = offset.min(9000) as usize;
            assert_eq!(buffer[..length], bytes[start..start + length], "at {offset}");
            let whole = &bytes[start.next_multiple_of(8).min(9000)..(start + length) / 8 * 8];
            let sum = whole.as_chunks().0.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
            assert_eq!(mapped.sum_of_words(offset, 4096), sum, "at {offset}");
        }
    }

    /// Goal: residency is told of pages of the mapping alone, and what is no range of them is an error.
    #[test]
    #[cfg_attr(miri, ignore)] // miri maps no files
    fn residency_is_of_the_mapping() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 9000]).unwrap();
        let mapped = MappedFile::map(file.as_fd(), 9000, MapAdvice::Normal).unwrap();
        let residency = |start, end| {
            mapped.residency(PageRange { start: PageIndex::new(start), end: PageIndex::new(end) })
        };
        for ((start, end), pages) in [((0, 3), 3), ((2, 3), 1), ((1, 1 << 52), 2)] {
            assert_eq!(residency(start, end).unwrap().len(), pages, "{start}..{end}");
        }
        for (start, end) in [(0, 0), (3, 4), (1 << 52, 1 << 52), (2, 1), (1 << 52, 0)] {
            assert_eq!(
                residency(start, end).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{start}..{end}"
            );
        }
    }
}
