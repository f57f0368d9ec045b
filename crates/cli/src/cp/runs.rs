//! Runs: which ranges of a file hold data, and which are holes or could be.
//!
//! Owns: the questions to the file system (`SEEK_DATA`, `SEEK_HOLE` of `lseek(2)`), and to the bytes.
//! Does not own: the copy.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use headwater::ByteRange;
use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The ranges with data up to `length_bytes`, ascending and disjoint, widened to whole pages or the end of the file. Where the file
/// system does not report holes, everything is data.
///
/// # Errors
/// What `lseek(2)` reports.
pub(super) fn with_data(file: BorrowedFd<'_>, length_bytes: u64) -> io::Result<Vec<ByteRange>> {
    let mut runs: Vec<ByteRange> = Vec::new();
    let mut position_bytes = 0;
    while position_bytes < length_bytes {
        let start = match rustix::fs::seek(file, SeekFrom::Data(position_bytes)) {
            Ok(start) if start < length_bytes => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(whole(length_bytes)),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.max(start + 1);
        append(&mut runs, start, end, length_bytes);
        position_bytes = end;
    }
    Ok(runs)
}

/// One run, if there is anything.
pub(super) fn whole(length_bytes: u64) -> Vec<ByteRange> {
    let runs = [ByteRange::new(0, length_bytes)];
    runs.into_iter().filter(|run| !run.is_empty()).collect()
}

/// The ranges of pages that hold more than zeros, neighbours joined.
pub(super) fn without_zeros(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, page) in bytes.chunks(PAGE_BYTES).enumerate().filter(|(_, page)| !is_zero(page)) {
        let start = index * PAGE_BYTES;
        match runs.last_mut() {
            Some(last) if last.end == start => last.end += page.len(),
            _ => runs.push(start..start + page.len()),
        }
    }
    runs
}

/// Whether a page holds zeros alone: its first byte does, and each other byte is as the one before.
pub(super) fn is_zero(page: &[u8]) -> bool {
    page.first().is_none_or(|&first| first == 0 && page[1..] == page[..page.len() - 1])
}

/// Adds a range, widened to pages; joins it with the previous one if they touch.
fn append(runs: &mut Vec<ByteRange>, start: u64, end: u64, length_bytes: u64) {
    let start = start / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
    let end = end.next_multiple_of(PAGE_SIZE_BYTES).min(length_bytes);
    match runs.last_mut() {
        Some(last) if last.end >= start => last.end = last.end.max(end),
        _ => runs.push(ByteRange::new(start, end)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Goal: neighbours are joined, and nothing reaches beyond the end.
    #[test]
    fn runs_are_whole_pages() {
        let mut runs = Vec::new();
        for (start, end) in [(1024, 2048), (3072, 5120), (7000, 9000), (100_000, 100_500)] {
            append(&mut runs, start, end, 100_200);
        }
        assert_eq!(runs, [ByteRange::new(0, 12_288), ByteRange::new(98_304, 100_200)]);
        assert_eq!(whole(0), []);
    }

    /// Goal: every page with a byte that is not zero is in a run, wherever that byte is, and no other page.
    #[test]
    fn runs_leave_out_zeros() {
        let mut bytes = vec![0; 5 * PAGE_BYTES + 100];
        assert_eq!(without_zeros(&bytes), []);
        for at in [PAGE_BYTES, 3 * PAGE_BYTES - 1, 5 * PAGE_BYTES + 99] {
            bytes[at] = 1;
        }
        let end = 5 * PAGE_BYTES;
        assert_eq!(without_zeros(&bytes), [PAGE_BYTES..3 * PAGE_BYTES, end..end + 100]);
        assert_eq!(without_zeros(&[]), []);
    }

    /// Goal: every byte that is not zero lies in a run. Method: a file with holes around its data, or without support.
    #[test]
    fn runs_cover_the_data() {
        let file = tempfile::tempfile().unwrap();
        let length = 10 << 20;
        file.set_len(length).unwrap();
        for offset in [1_000_000, 5 << 20] {
            file.write_all_at(&[1; 5000], offset).unwrap();
        }
        let runs = with_data(file.as_fd(), length).unwrap();
        for offset in [1_000_000, 1_004_999, 5 << 20, (5 << 20) + 4999] {
            assert!(runs.iter().any(|run| run.start <= offset && offset < run.end), "{offset} in {runs:?}");
        }
        assert!(runs.iter().all(|run| run.end <= length));
        file.set_len(0).unwrap();
        assert_eq!(with_data(file.as_fd(), 0).unwrap(), []);
    }
}
