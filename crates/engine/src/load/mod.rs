//! Load: from a missing page to a pinned one.
//!
//! Owns: the cached read, and the requests that it makes.
//! Does not own: the list of loads in flight (engine), what is read ahead (core).

pub(crate) mod cached;
pub(crate) mod submit;
