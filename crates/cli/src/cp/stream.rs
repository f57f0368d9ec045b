//! Stream: copies of what has no length and no positions: pipes, FIFOs, character devices.
//!
//! ```text
//!   stream ─► file without a name, or the file that is there ─► the end of the stream ─► attributes, name
//! ```
//!
//! Owns: such copies, from opening to naming. The end of some never comes; an interrupted copy leaves nothing, as any other.
//! Does not own: which destinations are refused (`destination`).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use os_display::Quotable;

use super::destination::Destination;
use super::{Copier, attributes};

/// Copies what `path` gives, to its end. Blocks, also for another process to open the other end of a FIFO.
pub(super) fn copy(copier: &mut Copier<'_>, path: &Path, shown: PathBuf) -> Result<(), String> {
    let from = path.maybe_quote();
    if copier.arguments.verify {
        return Err(format!("failed to copy {from}: it cannot be read again to be compared"));
    }
    let failed = |error: io::Error| format!("failed to copy {from}: {error}");
    let mut stream = File::open(path).map_err(failed)?;
    let metadata = stream.metadata().map_err(failed)?;
    let replace = copier.replace(&metadata);
    let destination = Destination::find(shown, replace)?;
    copier.check((path, &metadata), &destination, replace)?;
    let unfinished = destination.begin().map_err(failed)?;
    let mut file = unfinished.file();
    copier.entry.in_place = unfinished.is_in_place();
    if copier.entry.in_place {
        file.set_len(0).map_err(failed)?;
    } else {
        attributes::permit_stream(&metadata, file, destination.directory()).map_err(failed)?;
    }
    let copied_bytes = io::copy(&mut stream, &mut file).map_err(failed)?;
    (copier.entry.copied_bytes, copier.entry.length_bytes) = (copied_bytes, copied_bytes);
    attributes::preserve_of_stream(path, &metadata, file, copier.kept).map_err(failed)?;
    if copier.arguments.sync {
        file.sync_all().map_err(failed)?;
    }
    copier.name(&destination, unfinished).map_err(failed)?;
    copier.note_made(destination.shown, &metadata);
    Ok(())
}
