//! Stream: a range of an object in order, as pieces that share frames, or as one piece.
//!
//! ```text
//!   next ─► pieces left? ─► the next one
//!        └► read ahead ─► view of up to 1 MiB ─► its chunks are the pieces
//!            ├─ a whole object: 1 MiB at first, twice as far after each; its reader may stop early
//!            ├─ a range that was named: all of it, up to 32 MiB at once, and nothing behind it
//!            └─ neither farther than the reader's share of the engine's memory
//!
//!   bytes(range) ─┬─ up to 1 MiB ─► a view ─► Bytes, without a copy where that pins little
//!                 └─ more ────────► views in order, copied together
//! ```
//!
//! Owns: the position, how far ahead is read.
//! Does not own: views (object), shares (ahead).
//! Hot path: for each MiB one pass over its page table, no copy, an allocation for each piece.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use headwater::{ByteRange, View};

use crate::ahead::Share;
use crate::failure::Failure;
use crate::object::{ADAPTIVE_BYTES_MAX, IN_FLIGHT_BYTES, Object, PIECE_BYTES, in_one_piece};

/// The bytes of a range. Ends after the first error. May be dropped at any moment.
pub(crate) fn stream(
    object: Arc<Object>,
    range: Range<u64>,
    wanted: Wanted,
) -> impl Stream<Item = Result<Bytes, Failure>> + Send + 'static {
    stream::try_unfold(Reading::new(object, range, wanted, None), async |mut reading| {
        Ok(reading.next().await?.map(|bytes| (bytes, reading)))
    })
}

impl Object {
    /// The bytes of a range in one piece, for a reader that may have a share.
    pub(crate) async fn bytes(
        self: &Arc<Self>,
        range: Range<u64>,
        share: Option<&Arc<Share>>,
    ) -> Result<Bytes, Failure> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end - range.start <= PIECE_BYTES {
            return Ok(in_one_piece(self.view(range).await?));
        }
        self.assembled(range, share.cloned()).await
    }

    async fn assembled(
        self: &Arc<Self>,
        range: Range<u64>,
        share: Option<Arc<Share>>,
    ) -> Result<Bytes, Failure> {
        let length = range.end - range.start;
        let mut bytes = Vec::new();
        let room = usize::try_from(length).ok().and_then(|length| bytes.try_reserve_exact(length).ok());
        if room.is_none() {
            return Err(self.out_of_memory(length));
        }
        let mut reading = Reading::new(self.clone(), range, Wanted::Named, share);
        while let Some(view) = reading.next_view().await? {
            view.chunks().for_each(|chunk| bytes.extend_from_slice(chunk));
        }
        Ok(bytes.into())
    }
}

/// How much of a range its reader will read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// All: the reader has named it.
    Named,
    /// Perhaps only the beginning.
    Unknown,
}

/// A range that is read in order.
struct Reading {
    object: Arc<Object>,
    /// What is left beside the pieces.
    rest: Range<u64>,
    /// Even a range of one piece is begun as what it is: the readahead of the file would go on behind it.
    is_exact: bool,
    /// Up to here it is being read.
    ahead_end: u64,
    distance_bytes: u64,
    distance_bytes_max: u64,
    /// From the first view on: a stream that is not polled takes nothing of the others. `None` for what is one piece.
    share: Option<Arc<Share>>,
    pieces: VecDeque<Bytes>,
}

impl Reading {
    fn new(object: Arc<Object>, rest: Range<u64>, wanted: Wanted, share: Option<Arc<Share>>) -> Reading {
        let most = object.distance_bytes().max(PIECE_BYTES);
        let (distance_bytes, distance_bytes_max) = match wanted {
            Wanted::Named => (IN_FLIGHT_BYTES.min(most * 4), IN_FLIGHT_BYTES.min(most * 4)),
            Wanted::Unknown => (PIECE_BYTES, most),
        };
        let is_exact = wanted == Wanted::Named && rest.end - rest.start > ADAPTIVE_BYTES_MAX;
        let ahead_end = rest.start;
        let pieces = VecDeque::new();
        Reading { object, rest, is_exact, ahead_end, distance_bytes, distance_bytes_max, share, pieces }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(piece) = self.pieces.pop_front() {
            return Ok(Some(piece));
        }
        let Some(view) = self.next_view().await? else { return Ok(None) };
        self.pieces = pieces(view);
        Ok(self.pieces.pop_front())
    }

    /// The next megabyte, less where the share is less, or what is left.
    async fn next_view(&mut self) -> Result<Option<View>, Failure> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if self.share.is_none() && self.rest.end - self.rest.start > PIECE_BYTES {
            self.share = Some(self.object.share());
        }
        let share_bytes = self.share.as_ref().map_or(PIECE_BYTES, |share| share.bytes());
        let end = self.piece_end(share_bytes);
        if end < self.rest.end || self.is_exact {
            self.read_ahead(end, share_bytes);
        }
        let view = self.object.view(self.rest.start..end).await?;
        self.rest.start = end;
        if self.rest.is_empty() {
            self.share = None;
        }
        Ok(Some(view))
    }

    /// Where the next view ends: those after the first begin on multiples of their size.
    fn piece_end(&self, share_bytes: u64) -> u64 {
        let piece_bytes = 1 << share_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES).ilog2();
        if self.rest.end - self.rest.start <= piece_bytes {
            return self.rest.end;
        }
        (self.rest.start / piece_bytes + 1).saturating_mul(piece_bytes)
    }

    /// Starts the reads up to the distance ahead of the next view, which ends at `view_end`. The distance grows: a reader that stops early
    /// is to cost little.
    fn read_ahead(&mut self, view_end: u64, share_bytes: u64) {
        let start = self.ahead_end.max(self.rest.start);
        let distance_bytes = self.distance_bytes.min(share_bytes);
        let end = view_end.saturating_add(distance_bytes).min(self.rest.end);
        if start < end {
            self.object.read_early(&[ByteRange::new(start, end)]);
            self.ahead_end = end;
        }
        self.distance_bytes = (self.distance_bytes * 2).min(self.distance_bytes_max);
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

/// A piece of a reader with a small share. Smaller requests keep no device busy.
const PIECE_BYTES_MIN: u64 = 128 << 10;

/// Smaller chunks cost their reader more than a copy.
const CHUNK_BYTES_MIN: usize = 32 << 10;
