//! In place: the moment at which an existing file gives its contents up for those of the source.
//!
//! ```text
//!   can blocks be shared? ─┬─ yes ────────────────────────────────────────► emptied ─► filled
//!                          └─ no ─ must they be? ─ room? ─ a queue, if needed? ─▲
//! ```
//!
//! Owns: what is found out before that moment.
//! Does not own: which file is overwritten in place (`destination`), its new contents.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use headwater::ring::{FileKind, OpenFile};
use os_display::Quotable;
use rustix::io::Errno;

use super::destination::{Destination, Unfinished};
use super::failure::Failure;
use super::{Copier, QUEUE_BYTES_MIN, Reflink, Source, Sparse, room, tell};

impl Copier<'_> {
    /// Empties a file that is overwritten in place, unless what comes next would clearly fail: for want of space, of a way to share
    /// blocks, or of a queue.
    pub(super) fn empty(
        &mut self,
        source: &Source<'_>,
        destination: &Destination,
        unfinished: &Unfinished,
        target: &Arc<OpenFile>,
    ) -> Result<(), String> {
        let text = |failure: Failure| tell(&failure, source, destination, 0);
        // Blocks that are shared take no room, and no queue.
        if !self.can_share_blocks(source, target) {
            if self.arguments.reflink == Reflink::Always {
                // It fails again, with the error text.
                self.share_blocks(source, target).map_err(text)?;
            }
            let metadata = unfinished.file().metadata().map_err(|error| text(Failure::of_target(error)))?;
            if let Some(missing) = room::missing(source, destination, metadata.blocks() * 512) {
                return Err(format!("failed to write {}: {missing}", destination.shown.maybe_quote()));
            }
            let is_direct = source.open.direct().is_some() || target.direct().is_some();
            if is_direct && room::needed_bytes(source) >= QUEUE_BYTES_MIN {
                self.pipeline().map_err(text)?;
            }
        }
        self.entry.in_place = true;
        unfinished.file().set_len(0).map_err(|error| text(Failure::of_target(error)))
    }

    /// Whether blocks are shared where that is possible.
    pub(super) fn wants_shared_blocks(&self, source: &Source<'_>) -> bool {
        let is_possible = source.open.kind() == FileKind::Regular && source.length_bytes > 0;
        match self.arguments.reflink {
            Reflink::Always => true,
            Reflink::Auto => is_possible && self.arguments.sparse == Sparse::Auto,
            Reflink::Never => false,
        }
    }

    /// Whether blocks will be shared, for all that a try shows. The file system refuses a try before it changes anything; other errors may
    /// be due to what the file has still, and end with it.
    fn can_share_blocks(&self, source: &Source<'_>, target: &OpenFile) -> bool {
        let is_refused = |tried| matches!(tried, Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY));
        self.wants_shared_blocks(source)
            && !is_refused(rustix::fs::ioctl_ficlone(target.buffered(), source.open.buffered()))
    }
}
