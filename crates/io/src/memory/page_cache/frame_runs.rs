//! Frame runs: the frames of pages in file order, in pieces that are contiguous in memory.
//!
//! ```text
//!   pages    7  8  9  10        frames   40..42 │ 17 │ 511 │ 512..514
//!   pieces   [40 41] [17] [511] [512 513]        two chunks are never one piece
//! ```
//!
//! Owns: which frames are one piece.
//! Does not own: their pins.

use std::ops::Range;
use std::ptr::NonNull;

use headwater_core::frame::CHUNK_FRAMES;
use headwater_core::units::{FrameId, PAGE_BYTES};
use smallvec::{Array, SmallVec};

use super::Shared;

/// Frames; as many pieces as `A` has items take no allocation.
pub(super) struct FrameRuns<A: Array<Item = Range<u32>>> {
    pieces: SmallVec<A>,
}

impl<A: Array<Item = Range<u32>>> FrameRuns<A> {
    pub(super) fn new() -> Self {
        FrameRuns { pieces: SmallVec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, frame: FrameId) {
        let number = frame.get();
        match self.pieces.last_mut() {
            // Chunks are mapped each for itself.
            Some(last) if last.end == number && !number.is_multiple_of(CHUNK_FRAMES as u32) => last.end += 1,
            _ => self.pieces.push(number..number + 1),
        }
    }

    pub(super) fn pieces(&self) -> &[Range<u32>] {
        &self.pieces
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Range::len).sum()
    }

    /// Where each piece begins, and its bytes.
    ///
    /// Panics if a frame is not mapped; those that are pinned are.
    pub(super) fn segments(&self, shared: &Shared) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        self.pieces.iter().map(|piece| {
            let base = shared.arena.frame(FrameId::new(piece.start)).expect("pinned frames are mapped");
            (base, piece.len() * PAGE_BYTES)
        })
    }

    /// The bytes of each piece.
    ///
    /// # Safety
    /// The frames are `shared`'s and pinned for as long as what this returns is used.
    pub(super) unsafe fn slices<'a>(&'a self, shared: &'a Shared) -> impl Iterator<Item = &'a [u8]> {
        self.segments(shared).map(|(base, length_bytes)| {
            // SAFETY: the frames are adjacent in one chunk, which is mapped as long as the arena, which `shared` keeps, and the
            // first's pointer may access all of it; M1 of `headwater_core::frame`, as the caller ensures.
            unsafe { std::slice::from_raw_parts(base.as_ptr(), length_bytes) }
        })
    }

    /// Gives up one pin of each.
    #[inline]
    pub(super) fn release(&self, shared: &Shared) {
        self.pieces.iter().for_each(|piece| shared.release_run(piece.clone()));
    }
}

#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use super::*;

    /// Goal: frames are merged as far as memory goes: upwards, without gaps, within a chunk.
    #[test]
    fn frames_are_merged_within_chunks() {
        let merged = |numbers: &[u32]| {
            let mut runs = FrameRuns::<[_; 2]>::new();
            numbers.iter().for_each(|&number| runs.push(FrameId::new(number)));
            assert_eq!(runs.len(), numbers.len());
            runs.pieces().to_vec()
        };
        assert_eq!(merged(&[40, 41, 17, 511, 512, 513]), [40..42, 17..18, 511..512, 512..514]);
        assert_eq!(merged(&[5, 4, 3]), [5..6, 4..5, 3..4]);
        assert_eq!(merged(&[]), []);
    }
}
