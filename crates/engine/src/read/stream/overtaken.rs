//! Overtaken: bytes of a stream that are stale because the file was written to.
//!
//! Owns: when the bytes of a stream are compared with the file.
//! Does not own: when an extent was read (extents), what was written (inode).
//! Invariants: I8 a fill shows nothing from before a write of the same engine that had returned when the fill began.

use std::time::Instant;

use headwater_core::units::ByteRange;

use super::extents::Asked;
use super::{COPY_BYTES_MIN, ReadStream};
use crate::base::error::Result;
use crate::inode::dirty::ContentVersion;

/// Whether a caller requests bytes, of a file that is to be checked or was checked by a task, or a task polls again for bytes that it
/// waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    First,
    Checked,
    Again,
}

/// A fill that a task waits for.
pub(super) struct Polled {
    pub(super) began: Instant,
    /// Whether it was left for long before, and begun again.
    pub(super) is_repeated: bool,
}

impl ReadStream {
    /// Begins a fill. I8: drops bytes that were read before a write that has returned by now, and, when a check is due, those
    /// read before a change by others.
    #[inline]
    pub(super) fn begin_fill(&mut self, fill: Fill) -> Result<()> {
        self.source.check_read(self.position_bytes)?;
        let Some(inode) = self.source.known() else {
            self.fills += 1;
            return Ok(());
        };
        // Only once for each request: a task that checks again at each poll might invalidate its own request for ever.
        if fill == Fill::First && !self.source.may_hide_contents(inode) {
            let looked = self.source.revalidate(inode);
            looked.map_err(|error| self.source.length_error(error))?;
        } else if fill == Fill::Checked {
            self.source.reconcile(inode);
        }
        // A task that polls again continues its fill, unless something was written since it asked.
        let now = Some(inode.dirty.version());
        if std::mem::replace(&mut self.fill_moment, now) != now || fill != Fill::Again {
            self.fills += 1;
        }
        let version = self.current.as_ref().and_then(|current| current.version);
        let is_as_read =
            |version: ContentVersion| version.is_now(&inode.dirty) && inode.dirty.windows.is_empty();
        if version.is_none_or(is_as_read) {
            return Ok(());
        }
        self.check_current();
        Ok(())
    }

    /// The file was written to since the current extent was read. If the write touched the rest of the extent, that is read
    /// again, with all extents ahead; in smaller copies, because more writes may follow.
    #[cold]
    fn check_current(&mut self) {
        let (Some(inode), Some(current)) = (self.source.known(), &mut self.current) else { return };
        let now = inode.dirty.version();
        let rest = ByteRange::new(self.position_bytes, current.range.end);
        let Some(version) = &mut current.version else { return };
        if !inode.dirty.has_changed(*version, rest) {
            *version = now;
            return;
        }
        self.current = None;
        self.ahead.clear();
        self.copy_bytes = COPY_BYTES_MIN;
        self.policy.restart(self.position_bytes);
    }

    /// Whether a requested range has been written to since the request.
    pub(super) fn is_overtaken(&self, asked: Asked) -> bool {
        let (Some(inode), Some(version)) = (self.source.known(), asked.version) else { return false };
        inode.dirty.has_changed(version, asked.range)
    }
}
