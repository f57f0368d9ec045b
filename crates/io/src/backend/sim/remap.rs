//! Remap: holes and shared extents, which the file system makes and the simulated device may refuse.
//!
//! Owns: whether they are made.
//! Does not own: making them (`OpenFile`).

use std::io;

use headwater_core::units::ByteRange;

use super::Sim;
use crate::file::{FileKey, OpenFile};
use crate::system::sys::Direction;

impl Sim {
    pub(crate) fn punch_hole(&self, file: &OpenFile, range: ByteRange) -> io::Result<()> {
        self.admit_remap(file, range)?;
        file.punch_hole(range)
    }

    pub(crate) fn clone_range(
        &self,
        source: &OpenFile,
        range: ByteRange,
        target: &OpenFile,
        at_bytes: u64,
    ) -> io::Result<()> {
        self.admit_remap(target, ByteRange::at(at_bytes, range.len()))?;
        source.clone_range(range, target, at_bytes)
    }

    /// All of the range, or an error.
    fn admit_remap(&self, file: &OpenFile, range: ByteRange) -> io::Result<()> {
        if !self.options.remaps {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let key = FileKey::of_descriptor(file.buffered())?;
        self.control().admit(Direction::Write, key, range, range.len().max(1)).map(drop)
    }
}
