//! Mapping: live windows onto files, beside all other ways to read and write them.
//!
//! ```text
//!   random accesses through files, views and snapshots ──► every byte against a vector, and against the disk
//!   words, ends, what is refused ──► one promise each
//! ```
//!
//! Owns: one module for each promise.
//! Does not own: rig (shared with `reading`), contents, seeds (testkit).

#![forbid(unsafe_code)]

mod contiguous;
mod deadlock;
mod ends;
mod forks;
mod on_demand;
mod oracle;
#[allow(dead_code, unused_imports)] // these tests need a part of it
#[path = "../reading/rig.rs"]
mod rig;
mod tasks;
mod words;

use std::path::Path;

use headwater::{Caching, File, IoMode, OpenOptions};

use rig::Rig;

/// Opens a file for reading and writing.
fn open(rig: &Rig, path: &Path, mode: IoMode, caching: Caching) -> File {
    OpenOptions::new()
        .engine(&rig.engine)
        .io(mode)
        .caching(caching)
        .write(true)
        .create(true)
        .open(path)
        .unwrap()
}
