//! Walk: the files that the arguments name, in order.
//!
//! ```text
//!   argument ─┬─ `-` ─► standard input
//!             ├─ file, block device ─► itself
//!             └─ directory ─► its entries by name ─┬─ regular file ─► itself
//!                                                  ├─ directory ─► the same again
//!                                                  └─ symbolic link, special file ─► counted
//! ```
//!
//! Owns: the order, what is skipped.
//! Does not own: opening files, printing errors.
//! Hot path: `getdents64(2)` of the directory, and no system call for each file.

use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// An input to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    StandardInput,
    File(PathBuf),
}

impl Subject {
    /// The input that a list of sums names.
    pub(super) fn named(path: PathBuf) -> Subject {
        if path == Path::new(STANDARD_INPUT) { Subject::StandardInput } else { Subject::File(path) }
    }

    /// The path as the argument or the list has it.
    pub(super) fn path(&self) -> &Path {
        match self {
            Subject::StandardInput => Path::new(STANDARD_INPUT),
            Subject::File(path) => path,
        }
    }
}

/// A path that was not reached, and the error.
#[derive(Debug)]
pub(super) struct Unreached {
    pub(super) path: PathBuf,
    pub(super) error: io::Error,
}

/// All files below the arguments.
pub(super) struct Walk {
    /// Steps to come, the next one last.
    stack: Vec<Step>,
    skipped: u64,
}

enum Step {
    Argument(PathBuf),
    File(PathBuf),
    Directory(PathBuf),
    Broken(Unreached),
}

impl Walk {
    pub(super) fn new(arguments: &[PathBuf]) -> Walk {
        Walk { stack: arguments.iter().rev().cloned().map(Step::Argument).collect(), skipped: 0 }
    }

    /// Symbolic links and special files so far.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    fn argument(&mut self, path: PathBuf) -> Option<Result<Subject, Unreached>> {
        if path == Path::new(STANDARD_INPUT) {
            return Some(Ok(Subject::StandardInput));
        }
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                self.stack.push(Step::Directory(path));
                None
            }
            Ok(metadata) if metadata.is_file() || metadata.file_type().is_block_device() => {
                Some(Ok(Subject::File(path)))
            }
            Ok(_) => {
                let text = "it is neither a file nor a directory nor a block device";
                Some(Err(Unreached { path, error: io::Error::new(io::ErrorKind::Unsupported, text) }))
            }
            Err(error) => Some(Err(Unreached { path, error })),
        }
    }

    fn enter(&mut self, path: PathBuf) {
        let mut entries = match std::fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(error) => return self.stack.push(Step::Broken(Unreached { path, error })),
        };
        entries.sort_by_cached_key(|entry| std::cmp::Reverse(entry.file_name()));
        for entry in &entries {
            match step(entry) {
                Some(step) => self.stack.push(step),
                None => self.skipped += 1,
            }
        }
    }
}

fn step(entry: &DirEntry) -> Option<Step> {
    let path = entry.path();
    match entry.file_type() {
        Ok(file_type) if file_type.is_file() => Some(Step::File(path)),
        Ok(file_type) if file_type.is_dir() => Some(Step::Directory(path)),
        Ok(_) => None,
        Err(error) => Some(Step::Broken(Unreached { path, error })),
    }
}

impl Iterator for Walk {
    type Item = Result<Subject, Unreached>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.stack.pop()? {
                Step::File(path) => return Some(Ok(Subject::File(path))),
                Step::Broken(unreached) => return Some(Err(unreached)),
                Step::Directory(path) => self.enter(path),
                Step::Argument(path) => {
                    if let Some(found) = self.argument(path) {
                        return Some(found);
                    }
                }
            }
        }
    }
}

pub(super) const STANDARD_INPUT: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: arguments keep their order, entries are sorted, links are not followed, and a missing file is an error at its
    /// place.
    #[test]
    fn order() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("tree/b")).unwrap();
        for name in ["tree/c", "tree/b/z", "tree/b/a", "tree/a", "single"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink(at("single"), at("tree/link")).unwrap();
        std::os::unix::fs::symlink(at("single"), at("given")).unwrap();
        let mut walk = Walk::new(&[at("single"), at("missing"), at("tree"), "-".into(), at("given")]);
        let names: Vec<String> = walk
            .by_ref()
            .map(|found| match found {
                Ok(Subject::StandardInput) => "-".to_owned(),
                Ok(Subject::File(path)) => path.strip_prefix(dir.path()).unwrap().display().to_string(),
                Err(unreached) => format!("{:?}", unreached.error.kind()),
            })
            .collect();
        let expected = ["single", "NotFound", "tree/a", "tree/b/a", "tree/b/z", "tree/c", "-", "given"];
        assert_eq!(names, expected);
        assert_eq!(walk.skipped(), 1);
    }
}
