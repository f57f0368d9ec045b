//! Memory: frames, the cache's pages in them, windows on them, and what the system has left.

pub(crate) mod arena;
pub(crate) mod live;
pub(crate) mod page_cache;
pub(crate) mod pressure;
