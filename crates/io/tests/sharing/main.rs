//! Sharing: files that other processes use at the same time.
//!
//! Owns: one module for each thing that is shared.
//! Does not own: drivers, caching, which have tests of their own.

mod appending;
mod beside;
mod lengths;
mod locking;
mod reading;
mod watching;
