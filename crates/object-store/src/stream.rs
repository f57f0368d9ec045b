//! Stream: a range of an object in order, as pieces that share frames.
//!
//! ```text
//!   next ─► pieces left? ─► the next one
//!        └► read ahead (1 MiB at first, twice as far after each) ─► view of up to 1 MiB ─► its chunks are the pieces
//! ```
//!
//! Owns: the position, how far ahead is read.
//! Does not own: views (object).
//! Hot path: for each MiB one pass over its page table, no copy, an allocation for each piece.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use headwater::{ByteRange, View};

use crate::failure::Failure;
use crate::object::{Object, PIECE_BYTES, in_one_piece, piece_end};

/// The bytes of a range. Ends after the first error. May be dropped at any moment.
pub(crate) fn stream(
    object: Arc<Object>,
    range: Range<u64>,
) -> impl Stream<Item = Result<Bytes, Failure>> + Send + 'static {
    stream::try_unfold(Reading::new(object, range), async |mut reading| {
        Ok(reading.next().await?.map(|bytes| (bytes, reading)))
    })
}

/// A range that is read in order.
struct Reading {
    object: Arc<Object>,
    /// What is left beside the pieces.
    rest: Range<u64>,
    /// Up to here it is being read.
    ahead_end: u64,
    distance_bytes: u64,
    pieces: VecDeque<Bytes>,
}

impl Reading {
    fn new(object: Arc<Object>, rest: Range<u64>) -> Reading {
        let (ahead_end, distance_bytes) = (rest.start, PIECE_BYTES);
        Reading { object, rest, ahead_end, distance_bytes, pieces: VecDeque::new() }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(piece) = self.pieces.pop_front() {
            return Ok(Some(piece));
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let is_short = self.rest.end - self.rest.start <= PIECE_BYTES;
        let end = if is_short { self.rest.end } else { piece_end(self.rest.start) };
        if end < self.rest.end {
            self.read_ahead();
        }
        let view = self.object.view(self.rest.start..end).await?;
        self.rest.start = end;
        self.pieces = pieces(view);
        Ok(self.pieces.pop_front())
    }

    /// Starts the reads up to the distance ahead, which grows: a reader that stops early is to cost little.
    fn read_ahead(&mut self) {
        let start = self.ahead_end.max(self.rest.start);
        let end = piece_end(self.rest.start).saturating_add(self.distance_bytes).min(self.rest.end);
        if start < end {
            self.object.read_early(&[ByteRange::new(start, end)]);
            self.ahead_end = end;
        }
        self.distance_bytes = (self.distance_bytes * 2).min(self.object.distance_bytes().max(PIECE_BYTES));
    }
}

/// The chunks of a view; where they are small, one copy of them all.
fn pieces(view: View) -> VecDeque<Bytes> {
    let (length, chunks) = (view.len(), view.chunks().count());
    if chunks <= 1 || length / chunks < CHUNK_BYTES_MIN {
        return VecDeque::from([in_one_piece(view)]);
    }
    view.into_chunks().into()
}

/// Smaller chunks cost their reader more than a copy.
const CHUNK_BYTES_MIN: usize = 32 << 10;
