//! Kernel copy: bytes that the kernel copies, or that go through its page cache.
//!
//! Owns: `copy_file_range(2)`, and the buffer where that refuses.
//! Does not own: which files are copied so.

use std::io;

use headwater::ByteRange;
use headwater::ring::{OpenFile, Route};
use rustix::io::Errno;

use super::failure::{Failure, Side};
use super::progress::OnCopied;
use super::runs;

/// What becomes of bytes that the copy could do without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    /// Blocks and holes may be shared with the source: the kernel's own copy does so where it can.
    Shared,
    /// All are written.
    Written,
    /// Pages of zeros are left out. The file has its length already, so that they are holes.
    WithoutZeros,
}

/// Copies all of a range through the page cache: inside of the kernel, or where that refuses through a buffer.
pub(super) fn copy_by_kernel(
    source: &OpenFile,
    target: &OpenFile,
    range: ByteRange,
    on_copied: OnCopied<'_>,
    bytes: Bytes,
) -> Result<(), Failure> {
    let (mut from, mut to) = (range.start, range.start);
    while from < range.end && bytes == Bytes::Shared {
        let length = (range.end - from).min(KERNEL_COPY_BYTES) as usize;
        let (source, target) = (source.buffered(), target.buffered());
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
            Ok(copied_bytes) if copied_bytes > 0 => on_copied(copied_bytes as u64),
            Err(Errno::INTR) => {}
            // The end of the file, or an error: the copy through a buffer tells of which side.
            Ok(_) | Err(_) => break,
        }
    }
    let rest = ByteRange::new(from, range.end);
    let end_bytes = through_kernel_to(source, target, rest, on_copied, bytes)?;
    if end_bytes < range.end { Err(Failure::became_shorter(range)) } else { Ok(()) }
}

/// Copies through a buffer, up to the end of the range or of the file. Returns that position.
fn through_kernel_to(
    source: &OpenFile,
    target: &OpenFile,
    range: ByteRange,
    on_copied: OnCopied<'_>,
    bytes: Bytes,
) -> Result<u64, Failure> {
    let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(range.len()).unwrap_or(usize::MAX))];
    let mut position_bytes = range.start;
    while position_bytes < range.end {
        let length = buffer.len().min(usize::try_from(range.end - position_bytes).unwrap_or(usize::MAX));
        let of = |side| move |error| Failure { side, offset_bytes: Some(position_bytes), error };
        let read = source.read_blocking(Route::Buffered, &mut buffer[..length], position_bytes);
        let read_bytes = read.map_err(of(Side::Source))?;
        if read_bytes == 0 {
            break;
        }
        write(target, &buffer[..read_bytes], position_bytes, bytes).map_err(of(Side::Target))?;
        position_bytes += read_bytes as u64;
        on_copied(read_bytes as u64);
    }
    Ok(position_bytes)
}

/// Writes a part of the file, or what of it is not zeros.
pub(super) fn write(target: &OpenFile, part: &[u8], offset_bytes: u64, bytes: Bytes) -> io::Result<()> {
    if bytes != Bytes::WithoutZeros {
        return write_all(target, part, offset_bytes);
    }
    let mut runs = runs::without_zeros(part).into_iter();
    runs.try_for_each(|run| write_all(target, &part[run.clone()], offset_bytes + run.start as u64))
}

/// Writes all bytes. After a short write it goes on: if the cause was an error, the next write reports it.
fn write_all(target: &OpenFile, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += target.write_blocking(Route::Buffered, &bytes[done..], offset_bytes + done as u64)?;
    }
    Ok(())
}

pub(super) fn through_kernel(
    source: &OpenFile,
    target: &OpenFile,
    range: ByteRange,
    on_copied: OnCopied<'_>,
) -> Result<(), Failure> {
    through_kernel_to(source, target, range, on_copied, Bytes::Written).map(|_| ())
}

/// Copied by one system call: progress is shown, and signals are taken, a few times a second even on a slow device.
const KERNEL_COPY_BYTES: u64 = 16 << 20;

/// The same as in `headwater cat`.
pub(super) const COPY_BYTES: usize = 256 << 10;
