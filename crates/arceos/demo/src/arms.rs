//! Arms: the ways to read a file that are compared.
//!
//! An arm is made anew for each workload, so whatever it caches is empty. Another one is a type with the two traits
//! and a line in `arm`.
//!
//! Owns: the names of the arms; reading without a cache, and by ArceOS's own.
//! Does not own: headwater's arms, those of the story, what is read.

use alloc::boxed::Box;
use alloc::sync::Arc;

use ax_fs_ng::ROOT_FS_CONTEXT;
use ax_fs_ng::file::CachedFile;
use axfs_ng_vfs::{FileNodeOps, Location, VfsError, VfsResult};
use headwater_arceos::ReadaheadPolicy;

use crate::headwater_arms::{Ahead, Headwater};
use crate::story::{self, Story};

pub trait Arm {
    fn open(&self, path: &str) -> VfsResult<Box<dyn Reader>>;

    /// What the arm has counted until now, if it does.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// How often a read met a page that nothing had begun to read, how often it slept until another task had read one, and how many bytes
/// processors copied.
#[derive(Clone, Copy)]
pub struct Counts {
    pub misses: u64,
    pub waits: u64,
    pub copied_bytes: u64,
}

pub trait Reader {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> VfsResult<usize>;
}

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

pub fn locate(path: &str) -> VfsResult<Location> {
    ROOT_FS_CONTEXT
        .get()
        .expect("the kernel has mounted the root before it starts the application")
        .resolve(path)
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

pub fn node(path: &str) -> VfsResult<Arc<dyn FileNodeOps>> {
    Ok(locate(path)?.entry().as_file()?.inner().clone())
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
