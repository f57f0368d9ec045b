//! Object: one open file, and views of parts of it.
//!
//! Owns: which views are shared with the cache and which are copied.
//! Does not own: which parts are read (stream, ranges), the cache (`headwater`).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headwater::{ByteRange, File, View};

use crate::ahead::{Ahead, Share};
use crate::failure::Failure;
use crate::status::Status;

/// An open file.
#[derive(Debug)]
pub(crate) struct Object {
    file: File,
    status: Status,
    is_on_server: bool,
    ahead: Arc<Ahead>,
}

impl Object {
    /// The object of a file that was opened by its path.
    pub(crate) fn of(file: File, ahead: Arc<Ahead>) -> Object {
        let opened = file.opened_as().expect("a file with a path was opened");
        Object { file, status: opened.into(), is_on_server: opened.is_on_server, ahead }
    }

    /// Whether a question about the file may last as long as a server takes to answer.
    pub(crate) fn is_on_server(&self) -> bool {
        self.is_on_server
    }

    /// What the file was when it was opened.
    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// Has the next read see all changes made until now.
    pub(crate) fn refresh(&self) -> Result<(), Failure> {
        Ok(self.file.refresh()?)
    }

    /// Starts reading ranges, without waiting. What goes wrong is met again, and reported, by the read that needs the bytes.
    pub(crate) fn read_early(&self, ranges: &[ByteRange]) {
        let _ = self.file.will_need(ranges);
    }

    /// What one more reader may have in flight. A reader of one piece at most is never ahead of itself, and needs none.
    pub(crate) fn share(&self) -> Arc<Share> {
        self.ahead.share()
    }

    /// How far ahead of a sequential reader this file is read: up to [`IN_FLIGHT_BYTES`].
    pub(crate) fn distance_bytes(&self) -> u64 {
        let limits = self.file.readahead_limits();
        limits.map_or(PIECE_BYTES, |limits| limits.distance_bytes_max).min(IN_FLIGHT_BYTES)
    }

    /// The bytes of a range of up to [`PIECE_BYTES`], pinned.
    pub(crate) async fn view(&self, range: Range<u64>) -> Result<View, Failure> {
        let length = (range.end - range.start) as usize;
        self.file.view_async(range.start, length).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.out_of_range(&range),
            _ => error.into(),
        })
    }

    /// Whether the file had all bytes of a range when it was opened.
    pub(crate) fn check(&self, range: &Range<u64>) -> Result<(), Failure> {
        let Range { start, end } = *range;
        if start > end {
            return Err(Failure::Inverted { path: self.file.path().to_owned(), start, end });
        }
        if start < end && end > self.status.length_bytes {
            return Err(self.out_of_range(range));
        }
        Ok(())
    }

    /// The error of a read when memory is too short for its `length` bytes in one piece.
    pub(crate) fn out_of_memory(&self, length: u64) -> Failure {
        Failure::OutOfMemory { path: self.file.path().to_owned(), bytes: length }
    }

    fn out_of_range(&self, range: &Range<u64>) -> Failure {
        let length_bytes = self.file.len().unwrap_or(self.status.length_bytes);
        let path = self.file.path().to_owned();
        Failure::OutOfRange { path, start: range.start, end: range.end, length_bytes }
    }
}

/// A view in one piece: shared, unless it is so short that it would pin much more than it shows.
pub(crate) fn in_one_piece(view: View) -> Bytes {
    if view.len() < SHARED_BYTES_MIN { view.to_vec().into() } else { view.into_bytes() }
}

/// Bytes of named ranges in flight at once, where the engine has the memory: they keep a fast device busy for ten milliseconds.
pub(crate) const IN_FLIGHT_BYTES: u64 = 32 << 20;

/// Ranges up to this size are left to the readahead of the file: a reader that names many small ones in order gains by it. Behind
/// longer ones, which are the columns of a table, it reads what no reader has named.
pub(crate) const ADAPTIVE_BYTES_MAX: u64 = 64 << 10;

/// Read in one go: as much as lies in one piece of memory at most.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// A quarter of a page: shorter ones are copied faster than they are shared, too.
const SHARED_BYTES_MIN: usize = 1024;
