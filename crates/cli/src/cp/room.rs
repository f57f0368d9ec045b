//! Room: whether the file system has space for a copy, and how much is missing.
//!
//! Owns: allocating the space, the error text.
//! Does not own: the contents.

use headwater::ByteRange;
use headwater::ring::OpenFile;
use os_display::Quotable;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::Source;
use super::destination::Destination;
use super::failure::Failure;
use crate::shared::units::readable;

/// Allocates space for all data before the first write: extents get long, and too little space is found out early.
///
/// # Errors
/// `ENOSPC` and its like.
pub(super) fn reserve(target: &OpenFile, runs: &[ByteRange]) -> Result<(), Failure> {
    // Of files in memory, that would fill them with zeros first.
    let mut runs =
        runs.iter().filter(|run| target.direct().is_some() && run.len() >= RESERVED_BYTES_MIN).peekable();
    // Btrfs compresses nothing that is written into such space.
    let is_btrfs =
        || rustix::fs::fstatfs(target.buffered()).is_ok_and(|status| status.f_type as u32 == BTRFS);
    if runs.peek().is_none() || is_btrfs() {
        return Ok(());
    }
    for run in runs {
        match rustix::fs::fallocate(target.buffered(), FallocateFlags::empty(), run.start, run.len()) {
            Ok(()) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                return Err(Failure::of_target(error));
            }
            // Only a help: what cannot be claimed is written as it is.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// The text that follows an error such as `ENOSPC`.
pub(super) fn missing_words(source: &Source<'_>, destination: &Destination, taken_bytes: u64) -> String {
    missing(source, destination, taken_bytes).unwrap_or_else(|| no_space(destination))
}

/// The error text with the number of missing bytes; `None` if the file system reports enough space. `taken_bytes` are allocated to
/// the copy already.
pub(super) fn missing(source: &Source<'_>, destination: &Destination, taken_bytes: u64) -> Option<String> {
    let status = destination.file_system().ok()?;
    let blocks = if rustix::process::geteuid().is_root() { status.f_bfree } else { status.f_bavail };
    let free_bytes = blocks.saturating_mul(status.f_frsize).saturating_add(taken_bytes);
    let needed_bytes = needed_bytes(source);
    let missing_bytes = needed_bytes.checked_sub(free_bytes).filter(|&bytes| bytes > 0)?;
    let (needed, free, missing) = (readable(needed_bytes), readable(free_bytes), readable(missing_bytes));
    let words = no_space(destination);
    Some(format!("{words}: {needed} are needed, {free} are free, {missing} are missing"))
}

/// What is written of a source.
pub(super) fn needed_bytes(source: &Source<'_>) -> u64 {
    source.runs().map_or(source.length_bytes, |runs| runs.iter().map(|run| run.len()).sum())
}

pub(super) fn no_space(destination: &Destination) -> String {
    format!("no space left in {}", destination.directory().maybe_quote())
}

/// `BTRFS_SUPER_MAGIC` of `linux/magic.h`.
const BTRFS: u32 = 0x9123_683E;

/// Shorter runs are not allocated ahead: they fit between others.
const RESERVED_BYTES_MIN: u64 = 1 << 20;
