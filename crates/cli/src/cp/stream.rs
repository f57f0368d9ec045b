//! Stream: copies of what has no length and no positions: pipes, FIFOs, character devices.
//!
//! ```text
//!   stream ─► file without a name, or the file that is there ─► the end of the stream ─► attributes, name
//! ```
//!
//! Owns: such copies, from opening to naming. The end of some never comes; an interrupted copy leaves nothing, as any other.
//! Does not own: which destinations are refused (`destination`).

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use os_display::Quotable;

use super::destination::{Destination, must_settle};
use super::failure::{Failure, Side};
use super::kernel_copy::COPY_BYTES;
use super::links::check_same;
use super::progress::Progress;
use super::{Copier, Reflink, Sparse, attributes, room, runs};

/// Copies what `path` gives, to its end. Blocks, also for another process to open the other end of a FIFO.
pub(super) fn copy(
    copier: &mut Copier<'_>,
    path: &Path,
    shown: PathBuf,
    looked: Option<&Metadata>,
) -> Result<(), String> {
    let from = path.maybe_quote();
    if copier.arguments.verify {
        return Err(format!("failed to copy {from}: it cannot be read again to be compared"));
    }
    if copier.arguments.reflink == Reflink::Always {
        return Err(format!("failed to copy {from}: it has no blocks that could be shared"));
    }
    let unread = |error: io::Error| format!("failed to read {from}: {error}");
    let stream = File::open(path).map_err(unread)?;
    let metadata = stream.metadata().map_err(unread)?;
    check_same(path, looked, &metadata)?;
    let destination = Destination::find(shown, copier.replace(&metadata))?;
    copier.check((path, &metadata), &destination)?;
    let to = destination.shown.maybe_quote();
    let unwritten = |error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull => format!("failed to write {to}: {}", room::no_space(&destination)),
        _ => format!("failed to write {to}: {error}"),
    };
    let unfinished = destination.begin().map_err(unwritten)?;
    let file = unfinished.file();
    copier.entry.in_place = unfinished.is_in_place();
    if copier.entry.in_place {
        file.set_len(0).map_err(unwritten)?;
    } else {
        let directory = destination.directory();
        attributes::permit_stream(&metadata, file, directory, copier.kept).map_err(unwritten)?;
    }
    copier.progress.begin("copying", path, None);
    let copied = copy_bytes(&stream, file, copier.arguments.sparse, &copier.progress);
    let copied_bytes = copied.map_err(|failure| {
        let text = match failure.side {
            Side::Source => unread(failure.error),
            Side::Target => unwritten(failure.error),
        };
        if copier.entry.in_place {
            format!("{text}; {to} is incomplete: it was written in place")
        } else {
            text
        }
    })?;
    (copier.entry.copied_bytes, copier.entry.length_bytes) = (copied_bytes, copied_bytes);
    let kept = if copier.entry.in_place { copier.kept.of_existing() } else { copier.kept };
    attributes::preserve_of_stream(path, &metadata, file, kept).map_err(unwritten)?;
    if copier.arguments.sync || must_settle(&*unfinished.open_again().map_err(unwritten)?) {
        file.sync_all().map_err(unwritten)?;
    }
    if copier.name(&destination, unfinished).map_err(unwritten)? {
        copier.note_made(destination.shown, &metadata);
    }
    Ok(())
}

/// Copies to the end, and returns the length.
fn copy_bytes(stream: &File, file: &File, sparse: Sparse, progress: &Progress) -> Result<u64, Failure> {
    let (mut buffer, mut length_bytes) = (Vec::with_capacity(COPY_BYTES), 0);
    loop {
        buffer.clear();
        stream.take(COPY_BYTES as u64).read_to_end(&mut buffer).map_err(Failure::of_source)?;
        if buffer.is_empty() {
            break;
        }
        let written = match sparse {
            Sparse::Always => runs::without_zeros(&buffer),
            Sparse::Auto | Sparse::Never => std::iter::once(0..buffer.len()).collect(),
        };
        for run in written {
            let offset_bytes = length_bytes + run.start as u64;
            file.write_all_at(&buffer[run], offset_bytes).map_err(Failure::of_target)?;
        }
        length_bytes += buffer.len() as u64;
        progress.add(buffer.len() as u64);
    }
    // Zeros at the end may have been left out.
    file.set_len(length_bytes).map_err(Failure::of_target)?;
    Ok(length_bytes)
}
