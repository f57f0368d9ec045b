//! Read: from a position to bytes, in order.
//!
//! Owns: streams, and reads around the cache.
//! Does not own: pages (load).

pub(crate) mod stream;
pub(crate) mod uncached;
