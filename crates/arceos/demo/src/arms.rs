//! Arms: the ways to read a file that are compared.
//!
//! An arm is made anew for each workload, so whatever it caches is empty. Another one is a type with the two traits
//! and a line in `arm`.
//!
//! Owns: the names of the arms; reading without a cache, and by ArceOS's own.
//! Does not own: headwater's arms, those of the story, what is read.

use alloc::boxed::Box;
use alloc::sync::Arc;

use ax_fs_ng::file::CachedFile;
use axfs_ng_vfs::{FileNodeOps, VfsError, VfsResult};
use headwater_arceos::ReadaheadPolicy;

use crate::arm::{Arm, Reader, locate, node};
use crate::headwater_arms::{Ahead, Headwater};
use crate::story::{self, Story};

/// The arm of that name, with empty caches of its own.
///
/// # Errors
/// [`VfsError::NotFound`] for an unknown name, and what setting it up gives.
pub fn arm(name: &str) -> VfsResult<Box<dyn Arm>> {
    if let Some(way) = story::way(name) {
        return Ok(Box::new(Story::new(way)));
    }
    let (policy, ahead) = match name {
        "node" => return Ok(Box::new(Node)),
        "stock" => return Ok(Box::new(Stock)),
        "off" => (ReadaheadPolicy::Off, Ahead::ByReader),
        "sync" => (ReadaheadPolicy::Adaptive, Ahead::ByReader),
        "adaptive" => (ReadaheadPolicy::Adaptive, Ahead::ByTask),
        "linux" => (ReadaheadPolicy::Linux, Ahead::ByTask),
        _ => return Err(VfsError::NotFound),
    };
    Ok(Box::new(Headwater::new(policy, ahead)?))
}

/// The file system's own operations, without a cache of the file's pages.
struct Node;

impl Arm for Node {
    fn open(&self, path: &str) -> VfsResult<Box<dyn Reader>> {
        Ok(Box::new(NodeReader(node(path)?)))
    }
}

struct NodeReader(Arc<dyn FileNodeOps>);

impl Reader for NodeReader {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> VfsResult<usize> {
        self.0.read_at(bytes, offset)
    }
}

/// The page cache that ArceOS has.
struct Stock;

impl Arm for Stock {
    fn open(&self, path: &str) -> VfsResult<Box<dyn Reader>> {
        Ok(Box::new(StockReader(CachedFile::get_or_create(locate(path)?)?)))
    }
}

struct StockReader(CachedFile);

impl Reader for StockReader {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> VfsResult<usize> {
        self.0.read_at(bytes, offset)
    }
}
