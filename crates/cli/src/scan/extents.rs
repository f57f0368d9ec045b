//! Extents: which parts of a range cannot be read.
//!
//! ```text
//!   read all of it ─┬─ works ─► nothing
//!                   └─ fails ─┬─ one page ─► an extent, joined with the one before
//!                             └─ longer ─► both halves
//! ```
//!
//! Owns: the bisection, which errors concern a place.
//! Does not own: reading.

use std::io;

use headwater::ByteRange;
use headwater_core::units::PAGE_SIZE_BYTES;
use rustix::io::Errno;

/// A part of a file that cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) range: ByteRange,
    pub(super) error: io::Error,
}

/// Adds the parts of `range` for which `read` fails, ascending and in whole pages (the last one may be shorter). `read` succeeds
/// or fails for a range as a whole.
///
/// # Errors
/// The first error of `read` that does not concern a place.
pub(super) fn locate(
    range: ByteRange,
    read: &mut impl FnMut(ByteRange) -> io::Result<()>,
    found: &mut Vec<Unreadable>,
) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    match read(range) {
        Ok(()) => Ok(()),
        Err(error) if !is_of_place(&error) => Err(error),
        Err(error) if range.len() <= PAGE_SIZE_BYTES => {
            append(found, Unreadable { range, error });
            Ok(())
        }
        Err(_) => {
            let middle = range.start + (range.len() / 2).next_multiple_of(PAGE_SIZE_BYTES);
            locate(ByteRange::new(range.start, middle), read, found)?;
            locate(ByteRange::new(middle, range.end), read, found)
        }
    }
}

fn append(found: &mut Vec<Unreadable>, next: Unreadable) {
    match found.last_mut() {
        Some(last)
            if last.range.end == next.range.start
                && last.error.raw_os_error() == next.error.raw_os_error() =>
        {
            last.range.end = next.range.end;
        }
        _ => found.push(next),
    }
}

/// Whether the error concerns this place only, while others may be readable.
/// Errors of block devices become one of these (`blk_errors` in Linux' block/blk-core.c); file systems with checksums add two.
pub(super) fn is_of_place(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO | Errno::BADMSG | Errno::UCLEAN)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a range when these pages are bad, and how often was read.
    fn found(range: ByteRange, bad: &[u64]) -> (Vec<(u64, u64)>, usize) {
        let (mut found, mut reads) = (Vec::new(), 0);
        let mut read = |range: ByteRange| {
            reads += 1;
            let hit = bad
                .iter()
                .any(|page| page * PAGE_SIZE_BYTES < range.end && range.start < (page + 1) * PAGE_SIZE_BYTES);
            if hit { Err(Errno::IO.into()) } else { Ok(()) }
        };
        locate(range, &mut read, &mut found).unwrap();
        (found.iter().map(|extent| (extent.range.start, extent.range.len())).collect(), reads)
    }

    const P: u64 = PAGE_SIZE_BYTES;

    /// Goal: exactly the bad pages are named, neighbours as one, the last page as far as the file reaches.
    #[test]
    fn bad_pages_are_found() {
        let range = ByteRange::new(0, 64 * P);
        assert_eq!(found(range, &[]), (vec![], 1));
        assert_eq!(found(range, &[17]).0, [(17 * P, P)]);
        assert!(found(range, &[17]).1 <= 2 * 6 + 1, "two reads for each halving");
        assert_eq!(found(range, &[0, 31, 32, 33, 63]).0, [(0, P), (31 * P, 3 * P), (63 * P, P)]);
        assert_eq!(found(ByteRange::new(3 * P, 5 * P + 100), &[5]).0, [(5 * P, 100)]);
        let all: Vec<u64> = (0..64).collect();
        assert_eq!(found(range, &all).0, [(0, 64 * P)]);
    }

    /// Goal: an error that is about the whole file ends the search.
    #[test]
    fn other_errors_end_the_search() {
        let mut reads = 0;
        let mut read = |_| {
            reads += 1;
            Err(Errno::STALE.into())
        };
        let error = locate(ByteRange::new(0, 64 * P), &mut read, &mut Vec::new()).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::STALE));
        assert_eq!(reads, 1);
    }
}
