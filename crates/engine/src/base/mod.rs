//! Base: what every room uses and none owns.
//!
//! Owns: errors, counters, events, listeners, completions with several waiters.
//! Does not own: files, memory, requests.

pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod handover;
pub(crate) mod listeners;
pub(crate) mod shared_completion;
