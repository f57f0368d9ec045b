//! Plan: what a request to the device was to bring, and what a short one brought.
//!
//! ```text
//!   wanted             ├───────────────────┤
//!   range (aligned) ├──────────────────────────┤
//!   read            ├───────────────┤               the file ends here, or the read was short
//!   delivered          ├────────────┤
//! ```

use crate::units::ByteRange;

/// One request to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// What the device is asked for: aligned, not empty.
    pub range: ByteRange,
    /// The part of `range` that the caller asked for; not empty.
    pub wanted: ByteRange,
}

impl Run {
    /// The wanted bytes among the first `read_bytes` of the run: what a read that ended early (at the end of
    /// the file, or short) delivered. Empty at the start of `wanted` if it did not get there.
    ///
    /// # Panics
    /// If more was read than the range has.
    pub fn delivered(&self, read_bytes: u64) -> ByteRange {
        assert!(read_bytes <= self.range.len(), "more was read than asked for");
        self.wanted.intersect(ByteRange::at(self.range.start, read_bytes))
    }
}
