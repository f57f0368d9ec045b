//! Events: what an engine does, told to whoever listens through `tracing`.
//!
//! The target is `headwater`. A file is told by its path when it is opened, and by its number (`file`) from then on. Levels:
//! `warn` for what was not written to a device and for profiles that cannot be read, `error` for what never will be, `debug` for what happens once for a file or is worth a look (opening, invalidation, reads around the cache), `trace` for
//! what happens at each miss. A hit tells nothing; with no subscriber each event is one atomic load.
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

/// A file of profiles that is no use.
pub(crate) fn profiles_ignored(path: &Path, error: &io::Error) {
    warn!(target: TARGET, path = %path.maybe_quote(), %error, "profiles ignored");
}

/// How the device is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Directness {
    Direct,
    Buffered,
}

/// A read met a page that is missing, on its way or marked, and so many reads were planned.
pub(crate) fn miss(file: FileId, at: PageIndex, outcome: Outcome, reads: usize) {
    trace!(target: TARGET, file = number(file), page = at.get(), ?outcome, reads, "miss");
}

/// Pages came, or did not.
pub(crate) fn loaded(file: FileId, range: ByteRange, purpose: Purpose, result: ReadResult, took: Duration) {
    let (file, offset, length) = (number(file), range.start, range.len());
    trace!(target: TARGET, file, offset, length, ?purpose, ?result, ?took, "load");
}

/// Pages were written to the device, or not.
pub(crate) fn wrote(file: FileId, pages: PageRange, outcome: &io::Result<()>, took: Duration) {
    let (file, offset, length) = (number(file), pages.start.start_bytes(), pages.len().bytes());
    match outcome {
        Ok(()) => trace!(target: TARGET, file, offset, length, ?took, "write back"),
        Err(error) => warn!(target: TARGET, file, offset, length, %error, "write back failed"),
    }
}

/// The engine goes, and pages could not be written.
pub(crate) fn lost(file: FileId, pages: u64) {
    error!(target: TARGET, file = number(file), pages, "lost what could not be written");
}

/// Nobody else writes to a file until we let him.
pub(crate) fn leased(file: FileId) {
    debug!(target: TARGET, file = number(file), "lease");
}

/// The kernel grants no lease.
pub(crate) fn lease_refused(file: FileId, error: &io::Error) {
    trace!(target: TARGET, file = number(file), %error, "lease refused");
}

/// Pages made room.
pub(crate) fn evicted(evicted: &[Evicted], wanted_pages: usize) {
    let (pages, first) = (evicted.len(), evicted.first().map(|page| number(page.file)));
    trace!(target: TARGET, pages, wanted_pages, first_file = first, "evict");
}

/// The system was short of memory, and some went back.
pub(crate) fn relieved(headroom_bytes: u64, wanted_bytes: usize, released_bytes: usize, pages: usize) {
    debug!(target: TARGET, headroom_bytes, wanted_bytes, released_bytes, pages, "relieve");
}

/// Somebody wrote to a file, and its pages left.
pub(crate) fn changed(file: FileId, length_bytes: u64, pages: usize) {
    debug!(target: TARGET, file = number(file), length_bytes, pages, "invalidate");
}

/// Others have changed a file of which this engine has pages to write.
pub(crate) fn conflict(file: FileId, unwritten_pages: u64) {
    warn!(target: TARGET, file = number(file), unwritten_pages, "changed by others while unwritten");
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
