//! Links: files with several names, which are one file in the copy as well.
//!
//! ```text
//!   a source of which a copy was made ─► another name of that copy ─► in the place of what is there, at once
//! ```
//!
//! Owns: which sources were copied to where, the further names, whether two looks were at one file.
//! Does not own: whether hard links are kept, which destinations are refused.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use os_display::Quotable;

/// The copies of sources that may come again, by device and inode.
#[derive(Default)]
pub(super) struct Links {
    copies: HashMap<FileId, Copy>,
}

struct Copy {
    path: PathBuf,
    id: FileId,
}

impl Links {
    pub(super) fn note(&mut self, source: &Metadata, copy: &Path) {
        if let Ok(made) = fs::symlink_metadata(copy) {
            self.copies.insert(id(source), Copy { path: copy.to_owned(), id: id(&made) });
        }
    }

    /// The copy that was made of a file under another of its names, unless another file has come in its place since.
    pub(super) fn copy_of(&self, source: &Metadata) -> Option<&Path> {
        let copy = self.copies.get(&id(source))?;
        fs::symlink_metadata(&copy.path).is_ok_and(|now| id(&now) == copy.id).then_some(&*copy.path)
    }
}

/// Device and inode.
pub(super) type FileId = (u64, u64);

pub(super) fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Refuses what came to be at a path after it was looked at, such as a symbolic link that leads elsewhere.
pub(super) fn check_same(path: &Path, looked: Option<&Metadata>, opened: &Metadata) -> Result<(), String> {
    match looked.is_none_or(|looked| id(looked) == id(opened)) {
        true => Ok(()),
        false => Err(format!("failed to copy {}: another file has taken its place", path.maybe_quote())),
    }
}
