//! Once: a small file that is read whole, with one descriptor that nobody keeps.
//!
//! ```text
//!   open ─► cachestat ─┬─ all in the kernel's page cache ─► pread
//!                      └─ else ─► the descriptor becomes O_DIRECT ─► pread into aligned memory
//! ```
//!
//! Owns: the descriptor, for as long as that takes.
//! Does not own: who has the bytes in a cache, what is done where this does not work.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};
use rustix::fs::{OFlags, fcntl_setfl};

use super::Opened;
use super::descriptor::Descriptor;
use crate::kernel_cache::resident_pages;

/// The bytes of a whole file, within memory that is larger.
pub struct WholeFile {
    /// The memory.
    pub memory: Vec<u8>,
    /// Which part of it is the file.
    pub file: Range<usize>,
}

impl Opened {
    /// Reads all of the file that was seen at `path`, around the kernel's page cache unless that has all of it: at most five
    /// system calls. `None` where that does not work (no `O_DIRECT`, a kernel that does not tell what it caches) or is not all
    /// (the file has grown meanwhile): it is to be opened then. Blocks.
    ///
    /// # Errors
    /// What `open(2)` and `pread(2)` report.
    pub fn read_whole(&self, path: &Path) -> io::Result<Option<WholeFile>> {
        // If a FIFO is there by now, nobody waits for its other end; positions it has none.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let file = Descriptor::new(file);
        let length_bytes = self.stamp.length_bytes;
        let cached = resident_pages(file.as_fd(), ByteRange::new(0, length_bytes));
        let Some(cached_pages) = cached else { return Ok(None) };
        let is_cached = cached_pages >= length_bytes.div_ceil(PAGE_SIZE_BYTES);
        if !is_cached && fcntl_setfl(&file, OFlags::DIRECT).is_err() {
            return Ok(None);
        }
        read_to_end(&file, length_bytes)
    }
}

/// Into memory with room for a byte more, so that the end shows.
fn read_to_end(file: &File, length_bytes: u64) -> io::Result<Option<WholeFile>> {
    const PAGE: usize = PAGE_SIZE_BYTES as usize;
    let room = (length_bytes as usize + 1).next_multiple_of(PAGE);
    let mut memory = vec![0; room + PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let mut done = 0;
    while done < room {
        match file.read_at(&mut memory[start + done..start + room], done as u64) {
            // What is left is unaligned after a short direct read, which only the end of the file makes.
            Ok(read_bytes) => {
                done += read_bytes;
                if read_bytes == 0 || !done.is_multiple_of(PAGE) {
                    return Ok(Some(WholeFile { memory, file: start..start + done }));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Of a device with larger blocks, and of whatever has no positions.
            Err(error) if [Some(libc::EINVAL), Some(libc::ESPIPE)].contains(&error.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
