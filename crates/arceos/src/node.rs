//! Node: a file of ArceOS's VFS as the cache knows files.
//!
//! Owns: what a node's flags, kind and file system say about caching it; reads and writes that are complete.
//! Does not own: what is cached.

use alloc::sync::Arc;

use axfs_ng_vfs::{FileNodeOps, NodeFlags, NodeType, VfsError, VfsResult};
use headwater_kernel::{Backing, Failure, Form, Node, NodeKey, SyncScope};

/// A node, and how it is to be read.
pub struct VfsNode {
    node: Arc<dyn FileNodeOps>,
    form: Form,
}

impl VfsNode {
    /// A node of any file system: regular files are cached; devices, streams, and files that are made up as they are read
    /// are not; those of file systems without a device live in the cache.
    pub fn new(node: Arc<dyn FileNodeOps>) -> Self {
        Self { form: form(&*node), node }
    }
}

impl Backing for VfsNode {
    type Error = VfsError;

    fn form(&self) -> Form {
        self.form
    }

    fn length_bytes(&self) -> VfsResult<Option<u64>> {
        match self.form {
            Form::Direct => Ok(self.node.len().ok()),
            Form::Cached | Form::InMemory => self.node.len().map(Some),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        if self.form == Form::Direct {
            // What there is now: a terminal would wait for the rest.
            return self.node.read_at(buffer, offset);
        }
        let mut done = 0;
        while done < buffer.len() {
            match self.node.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(VfsError::Interrupted) => {}
                // Whoever needs what is missing asks again, and hears of it then.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Node for VfsNode {
    fn error(failure: Failure) -> VfsError {
        match failure {
            Failure::InvalidInput => VfsError::InvalidInput,
            Failure::NoMemory => VfsError::NoMemory,
            Failure::FileTooLarge => VfsError::FileTooLarge,
            Failure::StorageFull => VfsError::StorageFull,
        }
    }

    fn key(&self) -> NodeKey {
        (core::ptr::from_ref(self.node.filesystem()).cast::<()>() as usize, self.node.inode())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> VfsResult<usize> {
        loop {
            match self.node.write_at(buffer, offset) {
                // Whoever writes pages back is not who was interrupted.
                Err(VfsError::Interrupted) if self.form != Form::Direct => {}
                result => return result,
            }
        }
    }

    fn append(&self, buffer: &[u8]) -> VfsResult<(usize, u64)> {
        self.node.append(buffer)
    }

    fn set_len(&self, length_bytes: u64) -> VfsResult<()> {
        self.node.set_len(length_bytes)
    }

    fn sync(&self, scope: SyncScope) -> VfsResult<()> {
        self.node.sync(scope == SyncScope::Data)
    }
}

fn form(node: &dyn FileNodeOps) -> Form {
    let flags = node.flags();
    let is_file = node.metadata().is_ok_and(|metadata| metadata.node_type == NodeType::RegularFile);
    if flags.contains(NodeFlags::ALWAYS_CACHE) || is_file && is_memory(node.filesystem().name()) {
        Form::InMemory
    } else if !is_file || flags.intersects(NodeFlags::NON_CACHEABLE | NodeFlags::STREAM) {
        Form::Direct
    } else {
        Form::Cached
    }
}

/// The file systems whose nodes cannot read: ArceOS's own cache knows them by these names too.
fn is_memory(file_system: &str) -> bool {
    matches!(file_system, "tmpfs" | "ramfs")
}
