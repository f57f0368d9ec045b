//! headwater-ballista: a Ballista cluster whose executors read through headwater.
//!
//! ```text
//!   client ─► scheduler ─► executor ─┐ tasks, each with a part of the files
//!      ▲          └──────► executor ─┤ one process-wide store: HeadwaterFileSystem ─► shared folder
//!      └─────────── rows ◄───────────┘ shuffles: each other's local files, by network
//! ```
//!
//! Owns: the processes of a cluster on one machine, what is measured of it.
//! Does not own: the engine that runs queries over several processes (`ballista`), data, queries and answers
//! (`headwater-datafusion`).

#![forbid(unsafe_code)]

pub mod args;
pub mod client;
pub mod cluster;
mod costs;
pub mod executor;
pub mod measure;
pub mod scheduler;
pub mod stop;

pub use headwater_datafusion::{Error, Result};
