//! In place: the moment at which an existing file gives its contents up for those of the source.
//!
//! ```text
//!   nothing changed yet: another descriptor ─ blocks shared, if they must be? ─ room? ─ a queue? ─► emptied ─► filled
//! ```
//!
//! Owns: what is found out before that moment.
//! Does not own: which file is overwritten in place (`destination`), its new contents.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use headwater::ring::{FileKind, OpenFile};
use os_display::Quotable;

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
        let metadata = unfinished.file().metadata().map_err(|error| text(Failure::of_target(error)))?;
        let may_share = metadata.dev() == source.metadata.dev() && !shares_no_extents(target);
        if self.arguments.reflink == Reflink::Always && !may_share {
            // It fails, and changes nothing.
            self.share_blocks(source, target).map_err(text)?;
        }
        // Blocks that are shared take no room, and no queue.
        if !(may_share && self.wants_shared_blocks(source)) {
            if let Some(missing) = room::missing(source, destination, metadata.blocks() * 512) {
                return Err(format!("failed to write {}: {missing}", destination.shown.maybe_quote()));
            }
            let is_direct = source.open.direct().is_some() || target.direct().is_some();
            if is_direct && source.length_bytes >= QUEUE_BYTES_MIN {
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
}

/// Whether it is known that no two files of this file system have blocks in common. Of others, and of those that lie above others, only a
/// try tells.
fn shares_no_extents(file: &OpenFile) -> bool {
    const KINDS: [u32; 5] = [0xEF53, 0x0102_1994, 0x8584_58F6, 0x4D44, 0xF2F5_2010]; // ext, tmpfs, ramfs, FAT, F2FS: `statfs(2)`
    let found: io::Result<_> = rustix::fs::fstatfs(file.buffered()).map_err(io::Error::from);
    found.is_ok_and(|status| KINDS.contains(&(status.f_type as u32)))
}
