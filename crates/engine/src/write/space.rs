//! Space: whether the device of a file has room for bytes written in memory.
//!
//! ```text
//!   write ─► checked lately? ─► plenty: accepted                   (writeback finds room: others take little in 10 ms)
//!                         └──► little: reserved ─┬─ room ─► accepted
//!                                                └─ none ─► the write fails, and nothing was promised
//! ```
//!
//! An accepted write is a promise. While the device has more free space than all dirty pages and [`MARGIN_BYTES`], the promise
//! needs no reservation: nothing fills that much between two checks. With less, the blocks of each write are reserved
//! (`fallocate(2)` with `FALLOC_FL_KEEP_SIZE`) before the write is accepted, as delayed allocation does in the kernel. Where a
//! file system cannot reserve, or an overwrite allocates new blocks all the same (Btrfs, reflinked files), and at the limit of a
//! quota, the error comes with the writeback.
//!
//! Owns: how full the device was at the last check.
//! Does not own: which pages are dirty.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES, PageRange};
use headwater_io::{FileKind, OpenFile};

use crate::base::clock::{REVALIDATE_INTERVAL, coarse_nanoseconds};
use crate::engine::Shared;
use crate::inode::Inode;
use crate::write::writeback;

/// Ensures that a write to a range of a file will find room on its device.
///
/// # Errors
/// `StorageFull`, and what else `fallocate(2)` reports.
#[inline]
pub(crate) fn promise(
    shared: &Shared,
    inode: &Arc<Inode>,
    file: &OpenFile,
    range: ByteRange,
) -> io::Result<()> {
    let space = &inode.space;
    let looked = space.looked_nanoseconds.load(Ordering::Relaxed);
    if coarse_nanoseconds().wrapping_sub(looked) >= REVALIDATE_INTERVAL.as_nanos() as u64 {
        look_at_space(shared, inode, file);
    }
    if space.is_short.load(Ordering::Relaxed) { set_aside(shared, inode, file, range) } else { Ok(()) }
}

#[cold]
fn look_at_space(shared: &Shared, inode: &Inode, file: &OpenFile) {
    let space = &inode.space;
    space.looked_nanoseconds.store(coarse_nanoseconds(), Ordering::Relaxed);
    // Where the file system reports no free space, an error shows at writeback.
    let free_bytes = match file.kind() {
        // A server's answer may take its time, and the space is not this machine's alone.
        FileKind::Regular if file.may_not_answer() => u64::MAX,
        FileKind::Regular => shared.driver.free_bytes(file).unwrap_or(u64::MAX),
        FileKind::BlockDevice | FileKind::CharacterDevice => u64::MAX,
    };
    let promised_bytes = shared.cache.writes.dirty().pages() * PAGE_SIZE_BYTES;
    let is_short = free_bytes < promised_bytes.saturating_add(MARGIN_BYTES);
    if is_short && !space.is_short.swap(is_short, Ordering::Relaxed) {
        // Writes accepted without a reservation are written back first.
        writeback::begin_any(shared);
    }
    space.is_short.store(is_short, Ordering::Relaxed);
}

#[cold]
fn set_aside(shared: &Shared, inode: &Arc<Inode>, file: &OpenFile, range: ByteRange) -> io::Result<()> {
    let pages = PageRange::covering(range);
    if inode.dirty.pages() > 0 && inode.dirty.lock().dirty.are_dirty(pages) {
        // Reserved when they became dirty.
        return Ok(());
    }
    inode.own_change(file, || shared.driver.reserve_blocking(file, pages.bytes())).map(drop)
}

/// Four times what a fast device writes in 10 ms: other programs and other engines write too.
const MARGIN_BYTES: u64 = 256 << 20;
