//! Ahead: the extents of a stream, from the one at the position on.
//!
//! Owns: what is known of each.
//! Does not own: when one becomes the next.

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Completion, Extent, Extents, Finished, Urgency};

use super::ReadStream;
use crate::inode::dirty::ContentVersion;

/// An extent that was planned and not consumed yet.
pub(super) enum Ahead {
    /// The kernel's page cache held it when it was planned.
    Resident(ByteRange),
    /// On its way from the device.
    Pending { asked: Asked, completion: Completion },
    /// Arrived, not looked at yet.
    Arrived { asked: Asked, finished: Finished },
}

/// What the device was asked for, and when.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) range: ByteRange,
    pub(super) urgency: Urgency,
    /// What the file was then.
    pub(super) version: Option<ContentVersion>,
    /// In which fill: what is written while a fill is under way, it need not show.
    pub(super) fill: u64,
}

impl Ahead {
    pub(super) fn range(&self) -> ByteRange {
        match self {
            Ahead::Resident(range) => *range,
            Ahead::Pending { asked, .. } | Ahead::Arrived { asked, .. } => asked.range,
        }
    }
}

/// The extent being consumed.
pub(super) struct Current {
    pub(super) extents: Extents,
    /// File offset of the first byte in `extents`.
    pub(super) start_bytes: u64,
    /// File bytes that are valid.
    pub(super) range: ByteRange,
    /// What the file was before they were read.
    pub(super) version: Option<ContentVersion>,
}

impl Current {
    /// Gives away the first extent. There must be one.
    pub(super) fn take_first(&mut self) -> Extent {
        let extent = self.extents.remove(0);
        self.start_bytes += extent.len() as u64;
        extent
    }
}

impl ReadStream {
    /// What the kernel is asked about before an extent: all of it, or within a run of resident ones only its last page.
    /// The kernel looks at every page of the question, which took 7 % of a warm scan; an answer that turns out wrong
    /// costs one more read.
    pub(super) fn residency_sample(&self, range: ByteRange) -> ByteRange {
        let range = range.clip(self.length_bytes);
        if self.resident_extents < RESIDENT_RUN || range.len() <= PAGE_SIZE_BYTES {
            return range;
        }
        ByteRange::new(range.end - 1, range.end)
    }
}

/// After this many resident extents the file counts as warm, and one page stands for the next.
const RESIDENT_RUN: u32 = 4;
