//! Chunks: all frames there are, in portions that come with the chunks of memory they are about.
//!
//! Owns: the frames, found by number.
//! Does not own: what a frame is, memory of pages.
//! Locks: none; threads may race to make a chunk, the first one's stays.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::Frame;
use crate::apart::{Apart, apart};
use crate::slots::Slots;
use crate::units::{FrameId, PAGE_BYTES};

/// The frames of all chunks that memory may grow to; those of a chunk exist once it is there.
#[derive(Debug)]
pub struct Frames {
    chunks: Slots<[Apart<Frame>; CHUNK_FRAMES]>,
}

/// Frames of one chunk.
pub const CHUNK_FRAMES: usize = crate::buddy::CHUNK_BYTES / PAGE_BYTES;

impl Frames {
    /// Room for this many chunks, none of which is there yet.
    pub fn new(chunks_max: u32) -> Self {
        Self { chunks: Slots::new(chunks_max as usize) }
    }

    /// Chunks at most.
    pub fn chunks_max(&self) -> u32 {
        self.chunks.count_max() as u32
    }

    /// Makes the frames of a chunk, if they are not there.
    ///
    /// # Errors
    /// When there is no memory for them.
    ///
    /// # Panics
    /// If the chunk was added before.
    pub fn add_chunk(&self, chunk: u32) -> Result<(), alloc::collections::TryReserveError> {
        if self.chunks.get(chunk as usize).is_some() {
            return Ok(());
        }
        let mut frames = Vec::new();
        frames.try_reserve_exact(CHUNK_FRAMES)?;
        frames.extend((0..CHUNK_FRAMES).map(|_| apart(Frame::new())));
        let frames: Box<[Apart<Frame>; CHUNK_FRAMES]> =
            frames.into_boxed_slice().try_into().expect("as many as were made");
        self.chunks.set(chunk as usize, frames)
    }

    /// The frame with this number, if its chunk is there.
    #[inline]
    pub fn get(&self, frame: FrameId) -> Option<&Frame> {
        let (chunk, place) = (frame.get() as usize / CHUNK_FRAMES, frame.get() as usize % CHUNK_FRAMES);
        Some(&self.chunks.get(chunk)?[place])
    }

    /// Frames of one chunk, by number.
    ///
    /// # Panics
    /// If they are of several, or it is not there.
    #[inline]
    pub(crate) fn run(&self, frames: Range<u32>) -> &[Apart<Frame>] {
        let (chunk, place) = (frames.start as usize / CHUNK_FRAMES, frames.start as usize % CHUNK_FRAMES);
        let chunk = self.chunks.get(chunk).expect("the frames' chunk is there");
        &chunk[place..place + frames.len()]
    }

    /// All frames there are.
    pub fn iter(&self) -> impl Iterator<Item = (FrameId, &Frame)> {
        self.chunks.iter().flat_map(|(chunk, frames)| {
            let numbered = frames.iter().enumerate();
            numbered.map(move |(place, frame)| -> (FrameId, &Frame) {
                (FrameId::new((chunk * CHUNK_FRAMES + place) as u32), frame)
            })
        })
    }

    /// Memory of the frames that are there, bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.chunks.iter().count() * size_of::<[Frame; CHUNK_FRAMES]>() + self.chunks.table_bytes()
    }
}

impl core::ops::Index<FrameId> for Frames {
    type Output = Frame;

    /// # Panics
    /// If its chunk is not there.
    fn index(&self, frame: FrameId) -> &Frame {
        self.get(frame).expect("the frame's chunk is there")
    }
}
