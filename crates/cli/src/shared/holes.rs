//! Holes: how much of a file is no data on any device.
//!
//! ```text
//!   data ─► SEEK_HOLE ─► hole ─► SEEK_DATA ─► data ─► … ─► end
//! ```
//!
//! Holes, and space that was allocated and never written, read as zeros at the speed of memory: figures of them say nothing of the device.
//!
//! Owns: the questions to the file system, the words.
//! Does not own: what follows from them.

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};

use super::units::readable;

/// How many of the first `bytes` bytes are holes or were never written; 0 where the file system does not tell. What the page cache has
/// of space that was never written counts as data. Moves the position of the file.
pub(crate) fn hole_bytes(file: impl AsFd, bytes: u64) -> u64 {
    let (mut position_bytes, mut found_bytes) = (0, 0);
    for _ in 0..HOLES_MAX {
        // The end of a file counts as a hole.
        let Ok(start) = seek(&file, SeekFrom::Hole(position_bytes)) else { break };
        if start >= bytes {
            break;
        }
        // Without data behind it the hole reaches the end.
        let end = seek(&file, SeekFrom::Data(start)).unwrap_or(bytes).min(bytes);
        found_bytes += end - start;
        position_bytes = end;
    }
    found_bytes
}

/// A note for figures of such a file.
pub(crate) fn of_figures(hole_bytes: u64, bytes: u64) -> String {
    format!(
        "{} of the {} that were read are holes, or were never written: no device reads them, and they come at the speed of memory",
        readable(hole_bytes),
        readable(bytes)
    )
}

/// The kernel answers for this number of holes in less than a second.
const HOLES_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use headwater_testkit::ScratchDir;
    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    /// Goal: holes at the start, in the middle and at the end are counted as far as is asked, and data are not. Method: 1 MiB of data
    /// in 4 MiB.
    #[test]
    fn holes_are_counted() {
        let scratch = ScratchDir::on_target().unwrap();
        let file = tempfile::tempfile_in(scratch.path()).unwrap();
        file.set_len(4 * MIB).unwrap();
        if hole_bytes(&file, 4 * MIB) == 0 {
            return headwater_testkit::skip("the file system does not tell where holes are");
        }
        assert_eq!(hole_bytes(&file, 4 * MIB), 4 * MIB);
        file.write_all_at(&[1; MIB as usize], MIB).unwrap();
        file.sync_all().unwrap();
        assert_eq!(hole_bytes(&file, 4 * MIB), 3 * MIB);
        assert_eq!(hole_bytes(&file, 2 * MIB), MIB);
        file.write_all_at(&[1; 4 * MIB as usize], 0).unwrap();
        assert_eq!(hole_bytes(&file, 4 * MIB), 0);
    }

    /// Goal: space that was allocated and never written is none of the data.
    #[test]
    fn allocated_space_is_counted() {
        let scratch = ScratchDir::on_target().unwrap();
        let file = tempfile::tempfile_in(scratch.path()).unwrap();
        if let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB) {
            return headwater_testkit::skip(format!("no space can be allocated here: {error}"));
        }
        if hole_bytes(&file, 4 * MIB) == 0 {
            return headwater_testkit::skip("the file system does not tell what was never written");
        }
        file.write_all_at(&[1; MIB as usize], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(hole_bytes(&file, 4 * MIB), 3 * MIB);
    }

    const MIB: u64 = 1 << 20;
}
