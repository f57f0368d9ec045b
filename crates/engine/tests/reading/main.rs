//! Reading: the engine against an oracle, on every driver and file system, in peace and under duress.
//!
//! ```text
//!   Rig (uring | threads | sim, small memory) ──► File ──► read_at, Reader, AsyncReader, ByteStream
//!                                                   │                     │
//!   Pattern ──► scratch file ───────────────────────┘      every byte checked against Pattern
//! ```
//!
//! Owns: one module for each kind of adversity.
//! Does not own: contents, seeds, mounts (testkit).

#![forbid(unsafe_code)]

mod advice;
mod bad_input;
mod builders;
mod changing;
mod contents;
mod cores;
mod drops;
mod events;
mod evictions;
mod executors;
mod faults;
mod forks;
mod local;
mod oracle;
mod page_cache;
mod positions;
mod pressure;
mod profiles;
mod read_once;
mod refusal;
#[allow(dead_code)] // shared with other tests
mod rig;
#[cfg(feature = "tokio")]
mod runtimes;
mod short;
mod spawned;
mod statistics;
mod tails;
mod texts;
mod whole;
