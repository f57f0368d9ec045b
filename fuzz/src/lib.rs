//! Fuzz: what the fuzz targets share.
//!
//! Owns: memory between guard pages, files in memory, which panics are documented, numbers near bounds, a sparse model.
//! Does not own: what is called (the targets).

#![deny(unsafe_code)]

pub mod bounds;
pub mod guarded;
pub mod memory_file;
pub mod model;
pub mod panics;
