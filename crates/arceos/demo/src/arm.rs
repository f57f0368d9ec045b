//! Arm: one way to read a file, as all of them look from outside.
//!
//! Owns: the traits, what an arm counts, where files are found.
//! Does not own: which arms there are (arms).

use alloc::boxed::Box;
use alloc::sync::Arc;

use ax_fs_ng::ROOT_FS_CONTEXT;
use axfs_ng_vfs::{FileNodeOps, Location, VfsResult};

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

pub fn locate(path: &str) -> VfsResult<Location> {
    ROOT_FS_CONTEXT
        .get()
        .expect("the kernel has mounted the root before it starts the application")
        .resolve(path)
}

pub fn node(path: &str) -> VfsResult<Arc<dyn FileNodeOps>> {
    Ok(locate(path)?.entry().as_file()?.inner().clone())
}
