//! Failure: why an object cannot be read, before it becomes the error of a version of `object_store`.

use std::io;
use std::path::{Path, PathBuf};

use headwater::Operation;

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no file of that name, or it is a folder.
    #[error("no object at {path:?}")]
    NotFound { path: PathBuf, source: io::Error },
    /// The system refused something else; the text names the file.
    #[error("failed to {0}")]
    Io(headwater::Error),
    /// Asking for length and times failed.
    #[error("failed to get the metadata of {path:?}: {source}")]
    Metadata { path: PathBuf, source: io::Error },
    /// The path leads to another object, or another version of it, than the one that was described.
    #[error("{path:?} has changed since its head")]
    Changed { path: PathBuf },
    /// The file is shorter than the range.
    #[error("range {start}..{end} of {path:?} reaches beyond its {length_bytes} bytes")]
    OutOfRange { path: PathBuf, start: u64, end: u64, length_bytes: u64 },
    /// The range ends before it begins.
    #[error("range {start}..{end} of {path:?} ends before it begins")]
    Inverted { path: PathBuf, start: u64, end: u64 },
    /// The bytes of one range do not fit in memory.
    #[error("no memory for {bytes} bytes of {path:?}")]
    OutOfMemory { path: PathBuf, bytes: u64 },
}

impl Failure {
    /// The error of `stat(2)` on a path.
    pub(crate) fn of_metadata(path: &Path, source: io::Error) -> Failure {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Failure::NotFound { path, source },
            _ => Failure::Metadata { path, source },
        }
    }

    /// A folder, which is no object.
    pub(crate) fn folder(path: &Path) -> Failure {
        let source = io::Error::new(io::ErrorKind::NotFound, "it is a folder");
        Failure::NotFound { path: path.to_owned(), source }
    }
}

impl From<headwater::Error> for Failure {
    fn from(error: headwater::Error) -> Failure {
        let path = error.path().map(Path::to_owned).unwrap_or_default();
        match (error.operation(), error.kind()) {
            (Operation::Open, io::ErrorKind::NotFound) => Failure::NotFound { path, source: error.into() },
            (Operation::Open, io::ErrorKind::IsADirectory) => Failure::folder(&path),
            _ => Failure::Io(error),
        }
    }
}
