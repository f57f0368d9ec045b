//! Read: from a position to bytes, in order.
//!
//! Owns: streams.
//! Does not own: pages (load).

pub(crate) mod stream;
pub(crate) mod uncached;
