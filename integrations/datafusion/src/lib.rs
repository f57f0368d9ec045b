//! headwater-datafusion: TPC-H on DataFusion over several object stores, and what reading costs with each.
//!
//! ```text
//!   generate ─► Parquet files ─► run ─► rounds × queries × stores, each in a process of its own ─► answers compared ─► tables, JSON
//!                                          └─ session: DataFusion ─► counting store ─► local │ direct │ headwater ─► files
//! ```
//!
//! Owns: the data, the queries, the stores that are compared, what is measured of a query.
//! Does not own: the object store of headwater (`headwater-object-store`), rounds and reports (`headwater-measure`), the engine that
//! runs queries (`datafusion`).

#![forbid(unsafe_code)]

pub mod answer;
pub mod answers;
pub mod args;
mod compare;
pub mod data;
mod error;
mod one;
pub mod queries;
pub mod session;
pub mod stores;
pub mod tables;

pub use compare::run;
pub use error::Error;
pub use one::{block_on, one};

/// What all of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
