//! Read: from a position to bytes.
//!
//! Owns: reads through the cache, reads around it, and streams.
//! Does not own: how a missing page is fetched (load).

pub(crate) mod cached;
pub(crate) mod on_demand;
pub(crate) mod once;
pub(crate) mod stream;
pub(crate) mod stretches;
pub(crate) mod uncached;
