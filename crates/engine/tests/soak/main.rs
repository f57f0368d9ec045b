//! Soak: everything that an engine does at once, for as long as one likes, and what the process holds meanwhile.
//!
//! ```text
//!   rounds ─► long-lived engines: readers, writers (oracle), windows, lists, listeners, a file that others change, a forked child
//!          ├► engines that come and go                                      ─► everything let go ─► gauges
//!          └► the gauges at the end ≤ those of the warm-up + tolerance, and a table of them
//! ```
//!
//! A test binary of its own: the descriptors, threads and memory of the process are those of this test alone.
//!
//! Owns: the mixture, how long it lasts, the gauges of the process.
//! Does not own: the operations of readers (`caching/world`) and writers (`writing/actor`), the rig.

#![forbid(unsafe_code)]

#[allow(dead_code)] // a soak needs a part of it
#[path = "../writing/actor.rs"]
mod actor;
mod forgotten;
mod gauges;
#[allow(dead_code)]
#[path = "../writing/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "../writing/operations.rs"]
mod operations;
#[allow(dead_code, unused_imports)]
#[path = "../reading/rig.rs"]
mod rig;
mod soak;
mod tenant;
#[allow(dead_code)]
#[path = "../caching/world.rs"]
mod world;
