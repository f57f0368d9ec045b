//! Chunk: two mebibytes of mapped memory, and its index for rings that register it.
//!
//! Owns: the mapping of a chunk.
//! Does not own: the allocation of its blocks (the buddy, extents).

use std::ptr::NonNull;
use std::sync::Arc;

use headwater_core::buddy::CHUNK_BYTES;

use super::elastic::Rings;
use super::offers::Standing;
use crate::system::chunk_memory;
use crate::system::fork::ProcessMark;
use crate::system::sys::IoSegment;

/// Names an arena.
#[derive(Clone, Debug)]
pub(crate) struct ArenaKey {
    pub(crate) id: u64,
    pub(crate) chunks_max: usize,
    pub(super) rings: Arc<Rings>,
}

/// Names a chunk of an arena and says where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Chunk {
    pub(crate) arena: u64,
    pub(crate) index: usize,
    pub(super) base: NonNull<u8>,
}

impl Chunk {
    pub(crate) const BYTES: usize = CHUNK_BYTES;

    pub(crate) fn segment(&self) -> IoSegment {
        IoSegment::new(self.base, CHUNK_BYTES)
    }
}

/// One mapped chunk; unmapped when dropped, which happens when the arena and all extents are gone.
pub(super) struct MappedChunk {
    pub(super) base: NonNull<u8>,
    pub(super) standing: Standing,
    mark: ProcessMark,
}

// SAFETY: the chunk is plain memory owned by this value; access goes through extents.
unsafe impl Send for MappedChunk {}

impl MappedChunk {
    pub(super) fn map() -> Option<MappedChunk> {
        chunk_memory::map_chunk(CHUNK_BYTES).map(MappedChunk::at_base)
    }

    fn at_base(base: NonNull<u8>) -> MappedChunk {
        MappedChunk { base, standing: Standing::Ordinary, mark: ProcessMark::here() }
    }

    /// A chunk of which only what is used is touched, until [`MappedChunk::fill`].
    pub(super) fn map_sparse() -> Option<MappedChunk> {
        chunk_memory::map_sparse_chunk(CHUNK_BYTES).map(MappedChunk::at_base)
    }

    pub(super) fn at(&self, offset_bytes: usize) -> NonNull<u8> {
        assert!(offset_bytes < CHUNK_BYTES);
        // SAFETY: the offset lies inside the mapping.
        unsafe { self.base.add(offset_bytes) }
    }
}

impl Drop for MappedChunk {
    fn drop(&mut self) {
        if !self.mark.is_here() {
            // A forked child never had the mapping, and something else may lie there now.
            return;
        }
        // SAFETY: `base` came from `map_chunk` with this size, and no extent refers to it any more: each holds an
        // `Arc` of the `Shared` that owns this chunk.
        unsafe { chunk_memory::unmap_chunk(self.base, CHUNK_BYTES) }
    }
}
