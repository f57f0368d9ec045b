//! Writing: the engine against an oracle, alone and with many threads, and what is on disk afterwards.
//!
//! ```text
//!   operations from a seed ──► Actor: handles of all kinds ──► every byte against a vector, and against the disk
//!   threads, views, a process that is killed, a full disk … ──► one promise each
//! ```
//!
//! Owns: one module for each promise.
//! Does not own: rig, contents, seeds, mounts (shared with `reading`, and testkit).

#![forbid(unsafe_code)]

mod actor;
mod append_writer;
mod appends;
mod bad_input;
mod children;
mod clean;
mod collision;
mod dropped_writers;
mod durable;
mod empty;
mod exits;
mod failures;
mod faults;
mod forked;
mod fresh;
mod growth;
mod in_flight;
mod killed;
mod lengths;
mod local;
mod model;
mod names;
mod only_written;
mod operations;
mod oracle;
mod overtaken;
mod promises;
mod ranges;
mod remap;
mod reports;
#[allow(dead_code, unused_imports)] // these tests need a part of it
#[path = "../reading/rig.rs"]
mod rig;
mod shrink;
mod small;
mod space;
mod sparse_copy;
mod standard;
mod threads;
mod views;
mod writer;
