//! Ahead: the extents of a stream, from the one at the position on.
//!
//! Owns: the state of each extent.
//! Does not own: when one becomes the next.

use headwater_core::units::{ByteRange, PAGE_SIZE_BYTES};
use headwater_io::{Completion, Extent, Extents, Finished, Urgency};

use super::ReadStream;
use crate::inode::dirty::ContentVersion;

/// An extent that is planned and not yet consumed.
pub(super) enum Ahead {
    /// The kernel's page cache held it when it was planned.
    Resident(ByteRange),
    /// In flight from the device.
    Pending { asked: Asked, completion: Completion },
    /// Arrived, and not yet examined.
    Arrived { asked: Asked, finished: Finished },
}

/// A request to the device.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) range: ByteRange,
    pub(super) urgency: Urgency,
    /// Version of the file's contents at the request.
    pub(super) version: Option<ContentVersion>,
    /// The fill that requested it: writes during that fill need not show.
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
    /// The valid range of the file.
    pub(super) range: ByteRange,
    /// Version of the file's contents before they were read.
    pub(super) version: Option<ContentVersion>,
}

impl Current {
    /// Removes the first extent, for lending. There must be one.
    pub(super) fn take_first(&mut self) -> Extent {
        let extent = self.extents.remove(0);
        self.start_bytes += extent.len() as u64;
        extent
    }
}

impl ReadStream {
    /// The part of an extent that is checked for residency before the read: all of it, or, within a run of resident extents, only
    /// its last page. The kernel examines every page of the range, which took 7 % of a warm scan; a wrong answer costs one more
    /// read.
    pub(super) fn residency_sample(&self, range: ByteRange) -> ByteRange {
        let range = range.clip(self.length_bytes);
        if self.resident_extents < RESIDENT_RUN || range.len() <= PAGE_SIZE_BYTES {
            return range;
        }
        ByteRange::new(range.end - 1, range.end)
    }
}

/// After this many consecutive resident extents the file counts as warm, and one page stands for each further one.
const RESIDENT_RUN: u32 = 4;
