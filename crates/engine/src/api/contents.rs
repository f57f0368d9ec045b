//! Contents: where the bytes of a file come from.
//!
//! Owns: the choice between a file and memory.
//! Does not own: files on a device (`Source`), bytes in memory (memory file).

use std::sync::Arc;

use crate::api::memory_file::MemoryFile;
use crate::engine::handle::Source;

/// Where the bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// A file, through descriptors.
    Stored(Arc<Source>),
    /// Memory of the program.
    Memory(Arc<MemoryFile>),
}
