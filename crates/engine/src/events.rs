//! Events: what an engine does, told to whoever listens through `tracing`.
//!
//! The target is `headwater`. A file is told by its path when it is opened, and by its number (`file`) from then on. Levels:
//! `debug` for what happens once for a file or is worth a look (opening, invalidation, reads around the cache), `trace` for
//! what happens at each miss. A hit tells nothing; with no subscriber each event is one atomic load.
//!
//! Owns: names and fields.
//! Does not own: counts (counters).

use std::path::Path;
use std::time::Duration;

use headwater_core::cache::Evicted;
use headwater_core::frame::FileId;
use headwater_core::readahead::{Outcome, Purpose, ReadResult};
use headwater_core::units::{ByteRange, PageIndex};
use tracing::{debug, trace};

use crate::inode::Inode;

/// A file was opened; `file` is absent if it is not cached.
pub(crate) fn opened(path: &Path, direct: Directness, inode: Option<&Inode>) {
    let file = inode.map(|inode| number(inode.pages.id()));
    debug!(target: TARGET, path = %path.display(), ?direct, file, "open");
}

/// How the device is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Directness {
    Direct,
    Buffered,
}

/// A read met a page that is missing, on its way or marked, and so many reads were planned.
pub(crate) fn miss(inode: &Inode, at: PageIndex, outcome: Outcome, reads: usize) {
    trace!(target: TARGET, file = number(inode.pages.id()), page = at.get(), ?outcome, reads, "miss");
}

/// Pages came, or did not.
pub(crate) fn loaded(inode: &Inode, range: ByteRange, purpose: Purpose, result: ReadResult, took: Duration) {
    let (file, offset, length) = (number(inode.pages.id()), range.start, range.len());
    trace!(target: TARGET, file, offset, length, ?purpose, ?result, ?took, "load");
}

/// Pages made room.
pub(crate) fn evicted(evicted: &[Evicted], wanted_pages: usize) {
    let (pages, first) = (evicted.len(), evicted.first().map(|page| number(page.file)));
    trace!(target: TARGET, pages, wanted_pages, first_file = first, "evict");
}

/// Somebody wrote to a file, and its pages left.
pub(crate) fn changed(inode: &Inode, length_bytes: u64, pages: usize) {
    debug!(target: TARGET, file = number(inode.pages.id()), length_bytes, pages, "invalidate");
}

/// A part of a read goes around the cache.
pub(crate) fn bypassed(inode: &Inode, range: ByteRange) {
    let (file, offset, length) = (number(inode.pages.id()), range.start, range.len());
    debug!(target: TARGET, file, offset, length, "bypass");
}

fn number(file: FileId) -> u32 {
    file.get()
}

const TARGET: &str = "headwater";
