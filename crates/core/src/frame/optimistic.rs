//! Optimistic reads: bytes of a page are copied without a pin, and count if the page has not changed meanwhile.
//!
//! ```text
//!   begin_optimistic_read ─► copy, atomically ─► is_unchanged ─┬─ yes: the bytes are of the page
//!                                                             └─ no: pin
//! ```

use super::{AHEAD, DIRTY, FRESH, FileId, Frame, MARK, REFERENCES, RESIDENT, STATE, VERSION};
use crate::sync::{Ordering, fence};
use crate::units::PageIndex;

/// State and version of a frame when an optimistic read began.
#[derive(Clone, Copy, Debug)]
pub struct PageVersion(u64);

impl Frame {
    /// The first half of an optimistic read: bytes are copied without a pin, and count if the frame
    /// [is unchanged](Frame::is_unchanged) afterwards. `None` unless the frame holds the page and a pin would change nothing
    /// else: the reference count is at its maximum, and no first use is to be reported.
    ///
    /// Once a page has left, stores into the frame's memory are atomic and follow a release fence, so that a reader that
    /// sees such a store also sees that the page has left.
    #[inline]
    pub fn begin_optimistic_read(&self, file: FileId, page: PageIndex) -> Option<PageVersion> {
        let word = self.word.load(Ordering::Acquire);
        let seen = word & (STATE | REFERENCES | MARK | AHEAD | FRESH);
        let is_settled = seen == RESIDENT | REFERENCES || seen == DIRTY | REFERENCES;
        (is_settled && self.holds(file, page)).then_some(PageVersion(word & (STATE | VERSION)))
    }

    /// Whether the frame has held the same page, unchanged, since [`Frame::begin_optimistic_read`]: then the bytes read meanwhile are
    /// of that page.
    #[inline]
    pub fn is_unchanged(&self, version: PageVersion) -> bool {
        // What was read before stays before.
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & (STATE | VERSION) == version.0
    }
}
