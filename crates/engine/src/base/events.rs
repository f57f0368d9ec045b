//! Events: an engine's actions, reported through `tracing`.
//!
//! The target is `headwater`. A file is named by its path when it is opened, and by its number (`file`) from then on. Levels:
//! `warn` for failed writes to a device and for unreadable profiles; `error` for bytes that are lost; `debug` for what happens
//! once for a file or deserves attention (opening, invalidation, reads around the cache); `trace` for what happens at each miss.
//! A hit reports nothing; without a subscriber each event is one atomic load.
//! Events are reported where they happen, inside of requests and under locks: a subscriber that uses the engine in the thread that reports may
//! wait for itself.
//!
//! Owns: names and fields.
//! Does not own: counts (counters).

use std::io;
use std::path::Path;
use std::time::Duration;

use headwater_core::cache::Evicted;
use headwater_core::frame::FileId;
use headwater_core::readahead::{Outcome, Purpose, ReadResult};
use headwater_core::units::{ByteRange, PageIndex, PageRange};
use os_display::Quotable;
use tracing::{debug, error, trace, warn};

/// A file was opened; `file` is absent if it is not cached.
pub(crate) fn opened(path: &Path, direct: Directness, file: Option<FileId>) {
    let file = file.map(number);
    debug!(target: TARGET, path = %path.maybe_quote(), ?direct, file, "open");
}

/// A file of profiles is unusable.
pub(crate) fn profiles_ignored(path: &Path, error: &io::Error) {
    warn!(target: TARGET, path = %path.maybe_quote(), %error, "profiles ignored");
}

/// Whether the device is read with `O_DIRECT`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Directness {
    Direct,
    Buffered,
}

/// A read met a page that is missing, pending or marked, and `reads` reads were planned.
pub(crate) fn miss(file: FileId, at: PageIndex, outcome: Outcome, reads: usize) {
    trace!(target: TARGET, file = number(file), page = at.get(), ?outcome, reads, "miss");
}

/// A load succeeded or failed.
pub(crate) fn loaded(file: FileId, range: ByteRange, purpose: Purpose, result: ReadResult, took: Duration) {
    let (file, offset, length) = (number(file), range.start, range.len());
    trace!(target: TARGET, file, offset, length, ?purpose, ?result, ?took, "load");
}

/// Pages were written to the device, or the write failed.
pub(crate) fn wrote(file: FileId, pages: PageRange, outcome: &io::Result<()>, took: Duration) {
    let (file, offset, length) = (number(file), pages.start.start_bytes(), pages.len().bytes());
    match outcome {
        Ok(()) => trace!(target: TARGET, file, offset, length, ?took, "write back"),
        Err(error) => warn!(target: TARGET, file, offset, length, %error, "write back failed"),
    }
}

/// Pages of a file are lost: they could not be written.
pub(crate) fn lost(file: FileId, pages: u64) {
    error!(target: TARGET, file = number(file), pages, "lost what could not be written");
}

/// The file is leased: other processes wait before they open it for writing.
pub(crate) fn leased(file: FileId) {
    debug!(target: TARGET, file = number(file), "lease");
}

/// The kernel grants no lease.
pub(crate) fn lease_refused(file: FileId, error: &io::Error) {
    trace!(target: TARGET, file = number(file), %error, "lease refused");
}

/// Pages were evicted to make room.
pub(crate) fn evicted(evicted: &[Evicted], wanted_pages: usize) {
    let (pages, first) = (evicted.len(), evicted.first().map(|page| number(page.file)));
    trace!(target: TARGET, pages, wanted_pages, first_file = first, "evict");
}

/// The system was short of memory, and the engine returned some.
pub(crate) fn relieved(headroom_bytes: u64, wanted_bytes: usize, released_bytes: usize, pages: usize) {
    debug!(target: TARGET, headroom_bytes, wanted_bytes, released_bytes, pages, "relieve");
}

/// Another program changed a file, and its pages left the cache.
pub(crate) fn changed(file: FileId, length_bytes: u64, pages: usize) {
    debug!(target: TARGET, file = number(file), length_bytes, pages, "invalidate");
}

/// Another program changed a file that has dirty pages here.
pub(crate) fn conflict(file: FileId, dirty_pages: u64) {
    warn!(target: TARGET, file = number(file), dirty_pages, "changed by others while dirty");
}

/// A part of a read goes around the cache.
pub(crate) fn bypassed(file: FileId, range: ByteRange) {
    let (file, offset, length) = (number(file), range.start, range.len());
    debug!(target: TARGET, file, offset, length, "bypass");
}

fn number(file: FileId) -> u32 {
    file.get()
}

const TARGET: &str = "headwater";
