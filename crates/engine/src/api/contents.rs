//! Contents: where the bytes of a file lie.
//!
//! Owns: the choice between a file and memory.
//! Does not own: either.

use std::sync::Arc;

use crate::api::memory_file::MemoryFile;
use crate::engine::handle::Source;

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// In a file.
    Stored(Arc<Source>),
    /// In memory already.
    Memory(Arc<MemoryFile>),
}
