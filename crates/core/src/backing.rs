//! Backing: where the bytes of a file come from, as far as a cache needs to know.
//!
//! ```text
//!                     ┌─ Cached ────► pages in frames; misses ask the backing for aligned runs
//!   file.read_at ─────┼─ Direct ────► the backing, each time
//!                     └─ InMemory ──► the backing, which copies: nothing to cache
//! ```
//!
//! The seam between a cache and its system: a file on a disk, bytes that a program holds, a character device, a node of
//! a kernel's virtual file system. It assumes no descriptors, no threads and no allocator: errors are the backing's own
//! type, memory is the caller's. A cache that can do better than a blocking call (a ring on Linux, a block queue in a
//! kernel) does so for the backings it knows, and falls back on [`Backing::read_at`].
//
// Owns: the trait, and the one implementation that needs no system: [`InMemory`].
// Does not own: files, devices, caching.

use core::convert::Infallible;

/// How reads of a file reach its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Worth keeping: reading is slow, has a length, and gives the same bytes twice unless it is written.
    Cached,
    /// Not to be kept: each read is the device's (a character device, or a file that the user wants uncached).
    Direct,
    /// In memory already.
    InMemory,
}

/// Where bytes come from.
///
/// ```
/// use headwater_core::backing::{Backing, Form, InMemory};
/// let numbers = InMemory::new([1, 2, 3, 4]);
/// let mut buffer = [0; 8];
/// assert_eq!(numbers.read_at(&mut buffer, 1), Ok(3));
/// assert_eq!((&buffer[..3], numbers.length_bytes()), (&[2, 3, 4][..], Ok(Some(4))));
/// assert_eq!(numbers.form(), Form::InMemory);
/// ```
pub trait Backing {
    /// What goes wrong.
    type Error;

    /// How reads are to reach it.
    fn form(&self) -> Form;

    /// The length now in bytes; `None` for what has no end, as most character devices.
    ///
    /// # Errors
    /// What the system reports.
    fn length_bytes(&self) -> Result<Option<u64>, Self::Error>;

    /// Fills `buffer` from `offset_bytes` on and returns when that is done; fewer bytes only where there are no more, none
    /// at or beyond the end. May block.
    ///
    /// # Errors
    /// What the system reports, if no byte was read.
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, Self::Error>;
}

/// Bytes in memory as a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InMemory<B> {
    bytes: B,
}

impl<B: AsRef<[u8]>> InMemory<B> {
    /// A file with these contents.
    pub const fn new(bytes: B) -> Self {
        Self { bytes }
    }

    /// The bytes themselves.
    pub const fn bytes(&self) -> &B {
        &self.bytes
    }
}

impl<B: AsRef<[u8]>> Backing for InMemory<B> {
    type Error = Infallible;

    fn form(&self) -> Form {
        Form::InMemory
    }

    fn length_bytes(&self) -> Result<Option<u64>, Infallible> {
        Ok(Some(self.bytes.as_ref().len() as u64))
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize, Infallible> {
        let bytes = self.bytes.as_ref();
        let start = usize::try_from(offset_bytes).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        let length = buffer.len().min(bytes.len() - start);
        buffer[..length].copy_from_slice(&bytes[start..start + length]);
        Ok(length)
    }
}
