//! Caching: positional reads through the cache, against an oracle, on every driver, in peace and under duress.
//!
//! ```text
//!   World ──► files, handles, threads at random ──► every byte checked ──► every gauge back to zero
//!   Faulty, Changing, Waiting … ──► one fault seen in other caches each
//!   Table ──► access patterns ──► misses, device reads, pages in vain
//! ```
//!
//! Owns: one module for each promise of the cache.
//! Does not own: rig, contents, seeds (shared with `reading`, and testkit).

#![forbid(unsafe_code)]

mod changing;
mod faults;
mod held;
mod memory;
mod once;
mod oracle;
#[allow(dead_code, unused_imports)] // these tests need a part of it
#[path = "../reading/rig.rs"]
mod rig;
mod scan;
mod table;
mod twice;
mod unanswered;
mod world;
