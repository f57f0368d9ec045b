//! Stores: `HeadwaterFileSystem` against the tests of `object_store`, against `LocalFileSystem`, a model, and duress.
//!
//! ```text
//!   each engine (uring | threads, small memory) × each version ─► HeadwaterFileSystem ─┬─ object_store's own tests
//!                                                                                      ├─ LocalFileSystem of the same folder
//!                                                                                      └─ InMemory, with changes from outside
//! ```
//!
//! Owns: one module for each way of looking.
//! Does not own: contents, seeds, mounts (testkit).

#![forbid(unsafe_code)]
// A list of one range is what some calls are to get.
#![allow(clippy::single_range_in_vec_init)]

mod changes;
mod duress;
mod integration;
mod local;
mod model;
mod reads;
mod remote;
mod rig;
