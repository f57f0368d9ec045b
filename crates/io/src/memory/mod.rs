//! Memory: frames, the page cache in them, live windows, and the memory pressure of the system.

pub(crate) mod arena;
pub(crate) mod live;
pub(crate) mod page_cache;
pub(crate) mod pressure;
mod quota;
