//! Verify: reads two files to their ends and compares them.
//!
//! Owns: dropping both files from the page cache, the comparison.
//! Does not own: the error text.

use std::io::{self, BufRead};
use std::os::fd::AsRawFd;

use headwater::ring::OpenFile;
use headwater::{ByteRange, Caching, Engine, File, IoMode, OpenOptions, Reader};

use super::failure::{Failure, Side};
use super::progress::OnCopied;
use crate::cat::cause;

/// Where the compared bytes were read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// Both files from their devices.
    Devices,
    /// At least one file through the kernel's page cache, as it has no direct I/O.
    PageCache,
}

/// Compares the contents of `source`, which had this length when its copy began, and `target`. `target` has been synced, so that the kernel
/// can drop its pages.
///
/// # Errors
/// What reading reports; `InvalidData` of the target with the first byte that differs; of the source if it has another length now.
pub(super) fn compare(
    (source, length_bytes): (&OpenFile, u64),
    engine: &Engine,
    target: &OpenFile,
    on_compared: OnCopied<'_>,
) -> Result<Depth, Failure> {
    let of = |side| move |error| Failure { side, offset_bytes: None, error: cause(error) };
    let (first, first_direct) = cold_reader(engine, source).map_err(of(Side::Source))?;
    let (second, second_direct) = cold_reader(engine, target).map_err(of(Side::Target))?;
    compare_readers(first, second, length_bytes, on_compared)?;
    Ok(if first_direct && second_direct { Depth::Devices } else { Depth::PageCache })
}

/// A reader from the start, and whether it reads the device.
fn cold_reader(engine: &Engine, open: &OpenFile) -> io::Result<(Reader, bool)> {
    // What stays is read around if the file has direct I/O, and is all there is if not.
    open.evict_from_kernel()?;
    let path = format!("/proc/self/fd/{}", open.buffered().as_raw_fd());
    let mode = if open.direct().is_some() { IoMode::Direct } else { IoMode::Buffered };
    let file: File = OpenOptions::new().engine(engine).io(mode).caching(Caching::Off).open(path)?;
    Ok((file.reader(), open.direct().is_some()))
}

/// Compares a source that had `length_bytes` bytes with its copy.
fn compare_readers(
    mut first: Reader,
    mut second: Reader,
    length_bytes: u64,
    on_compared: OnCopied<'_>,
) -> Result<(), Failure> {
    let mut position_bytes = 0;
    let failed = |side, offset, error| Failure { side, offset_bytes: Some(offset), error: cause(error) };
    loop {
        let left = first.fill_buf().map_err(|error| failed(Side::Source, position_bytes, error))?;
        let right = second.fill_buf().map_err(|error| failed(Side::Target, position_bytes, error))?;
        let length = left.len().min(right.len());
        match (left.is_empty(), right.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) if position_bytes < length_bytes => {
                return Err(Failure::became_shorter(ByteRange::at(position_bytes, 0)));
            }
            // The copy has all that there was.
            (false, true) if position_bytes >= length_bytes => {
                return Err(Failure::became_longer(position_bytes));
            }
            _ => {}
        }
        let (left, right) = (&left[..length], &right[..length]);
        if length == 0 || left != right {
            let equal = left.iter().zip(right).take_while(|(left, right)| left == right).count();
            let error = io::Error::new(io::ErrorKind::InvalidData, "it differs from the source");
            return Err(failed(Side::Target, position_bytes + equal as u64, error));
        }
        first.consume(length);
        second.consume(length);
        position_bytes += length as u64;
        on_compared(length as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source had this length.
    fn compared(first: &[u8], second: &[u8], length_bytes: u64) -> (Result<(), (Side, Option<u64>)>, u64) {
        let readers = [first, second].map(|bytes| File::from_bytes(bytes.to_vec()).reader());
        let [first, second] = readers;
        let mut compared_bytes = 0;
        let result = compare_readers(first, second, length_bytes, &mut |bytes| compared_bytes += bytes);
        (result.map_err(|failure| (failure.side, failure.offset_bytes)), compared_bytes)
    }

    /// Goal: the first byte that differs is named, in the middle and where one of them ends, and the file that does not have the length
    /// that the source had: the source grows or is cut while it is copied, a copy lacks something or has too much.
    #[test]
    fn differences_are_found() {
        let bytes = vec![7; 300_000];
        assert_eq!(compared(&bytes, &bytes, 300_000), (Ok(()), 300_000));
        assert_eq!(compared(&[], &[], 0), (Ok(()), 0));
        let mut other = bytes.clone();
        other[123_456] = 8;
        assert_eq!(compared(&bytes, &other, 300_000).0, Err((Side::Target, Some(123_456))));
        for (left, right, length_bytes, side) in [
            (&bytes[..], &bytes[..1000], 300_000, Side::Target),
            (&bytes[..1000], &bytes, 1000, Side::Target),
            (&bytes, &bytes[..1000], 1000, Side::Source),
            (&bytes[..1000], &bytes, 300_000, Side::Source),
        ] {
            assert_eq!(compared(left, right, length_bytes).0, Err((side, Some(1000))));
        }
        // Files of which nothing is known before they are read.
        assert_eq!(compared(&bytes, &bytes[..1000], 0).0, Err((Side::Source, Some(1000))));
    }
}
