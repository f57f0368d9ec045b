//! Stretches: which parts of a file are stored, and which are holes that read as zeros.
//!
//! ```text
//!   range ─► dirty bytes and windows of this engine: data ─► in front of them: what the kernel and the device have
//! ```
//!
//! In this order: bytes that are written back in between are on the device by the time that it is asked.
//!
//! Owns: that a hole is one to this engine as well.
//! Does not own: asking the file system (`headwater-io`), what is dirty (inode).

use headwater_core::units::ByteRange;
use headwater_io::Stretch;

use crate::base::error::Result;
use crate::engine::handle::Source;

impl Source {
    /// What the bytes from the start of a range on are, as far as it reaches. Bytes that others write meanwhile may count as a hole.
    pub(crate) fn first_stretch(&self, range: ByteRange) -> Result<Stretch> {
        let Some(inode) = self.known().filter(|inode| !self.may_hide_contents(inode)) else {
            return Ok(Stretch::Data(range.end));
        };
        let clean_end = match inode.dirty.first(range) {
            Some(dirty) if dirty.start == range.start => return Ok(Stretch::Data(dirty.end)),
            dirty => dirty.map_or(range.end, |dirty| dirty.start),
        };
        let stretch = self.open.first_stretch(ByteRange::new(range.start, clean_end));
        stretch.map_err(|error| self.read_error(range.start, error))
    }
}
