//! Load: from missing pages to requests.
//!
//! Owns: the way from a plan of the readahead to loads under way.
//! Does not own: the list of loads in flight (engine), what is read ahead (core), which reader waits (read).

pub(crate) mod submit;
