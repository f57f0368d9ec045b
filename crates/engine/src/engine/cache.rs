//! Cache: the parts of an engine's cache.
//!
//! Owns: their grouping.
//! Does not own: their work.

use headwater_core::replacement::Policy;
use headwater_io::{Arena, Driver, PageCache, WarmFiles};

use crate::engine::loads::Loads;
use crate::engine::writes::Writes;
use crate::inode::table::Inodes;

/// The cache of an engine.
#[derive(Debug)]
pub(crate) struct CacheParts {
    pub(crate) pages: PageCache,
    pub(crate) loads: Loads,
    pub(crate) writes: Writes,
    pub(crate) inodes: Inodes,
    pub(crate) warm_files: WarmFiles,
}

impl CacheParts {
    pub(crate) fn new(arena: &Arena, driver: &Driver, policy: Policy) -> CacheParts {
        CacheParts {
            pages: PageCache::new(arena, policy),
            loads: Loads::default(),
            writes: Writes::new(driver),
            inodes: Inodes::default(),
            warm_files: WarmFiles::default(),
        }
    }
}
