//! Open files: those that gets have opened lately, kept for the next ones.
//!
//! ```text
//!   find(path) ─► kept? ─► statx of the path ─┬─ same file, unchanged ─► this one
//!                                             └─ else ────────────────► closed; the caller opens the path
//! ```
//!
//! A footer, a page index and forty column chunks of an object are then one `open`. A file is never used on the word of this table
//! alone: the caller compares its status with that of the path first.
//!
//! Owns: which files are kept, and how long.
//! Does not own: opening, the comparison (store).
//! Locks: one, held across no system call; files are closed after it was released.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::object::Object;

/// The files kept open.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    files: HashMap<PathBuf, Entry>,
    /// Files that were not used for some time are looked for from then on.
    next_look: Instant,
}

#[derive(Debug)]
struct Entry {
    object: Arc<Object>,
    used: Instant,
}

impl OpenFiles {
    /// Keeps so few that most of the descriptors of the process are left to others.
    pub(crate) fn new() -> OpenFiles {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        OpenFiles::at_most((limit / SHARE).min(FILES_MAX) as usize)
    }

    fn at_most(most: usize) -> OpenFiles {
        let kept = Kept { files: HashMap::new(), next_look: Instant::now() + KEPT_UNUSED };
        OpenFiles { most, kept: Mutex::new(kept) }
    }

    /// The file that this path led to.
    pub(crate) fn find(&self, path: &Path) -> Option<Arc<Object>> {
        let mut kept = self.lock();
        let entry = kept.files.get_mut(path)?;
        entry.used = Instant::now();
        Some(entry.object.clone())
    }

    /// Keeps a file, instead of the one that was not used for the longest time where there are too many.
    pub(crate) fn keep(&self, path: PathBuf, object: &Arc<Object>) {
        let now = Instant::now();
        let mut closed = Vec::new();
        let mut kept = self.lock();
        closed.extend(kept.unused(now));
        if self.most > 0 {
            closed.extend(kept.files.insert(path, Entry { object: object.clone(), used: now }));
        }
        if kept.files.len() > self.most {
            closed.extend(kept.take_oldest());
        }
        drop(kept);
        drop(closed);
    }

    /// Keeps the file of this path no longer, because the path may lead elsewhere from now on, and what has no name is to free its
    /// space.
    pub(crate) fn forget(&self, path: &Path) {
        let closed = self.lock().files.remove(path);
        drop(closed);
    }

    /// Closes all, because the process has no descriptors left. Returns whether that was any.
    pub(crate) fn clear(&self) -> bool {
        let closed = std::mem::take(&mut self.lock().files);
        !closed.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Takes the files that were not used for some time.
    fn unused(&mut self, now: Instant) -> Vec<Entry> {
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now + KEPT_UNUSED;
        self.files.extract_if(|_, entry| now - entry.used >= KEPT_UNUSED).map(|(_, entry)| entry).collect()
    }

    fn take_oldest(&mut self) -> Option<Entry> {
        let (path, _) = self.files.iter().min_by_key(|(_, entry)| entry.used)?;
        let path = path.clone();
        self.files.remove(&path)
    }
}

/// Enough for the files of a table that a query reads side by side, few enough to look through for the oldest.
const FILES_MAX: u64 = 256;

/// One eighth of the descriptors that the process may have; a file takes two.
const SHARE: u64 = 16;

/// As long as a query's reads of one object may lie apart. A file that others delete keeps its space as long, at the most twice that.
const KEPT_UNUSED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the bound holds, the file that was used least lately goes first, and forgotten ones are gone.
    #[test]
    fn the_oldest_of_too_many_goes() {
        let folder = tempfile::tempdir().unwrap();
        let files = OpenFiles::at_most(2);
        let path = |name: &str| folder.path().join(name);
        let keep = |name: &str| {
            std::fs::write(path(name), name).unwrap();
            let object = Arc::new(Object::of(headwater::File::open(path(name)).unwrap()));
            files.keep(path(name), &object);
        };
        keep("a");
        keep("b");
        assert!(files.find(&path("a")).is_some());
        keep("c");
        let kept = ["a", "b", "c"].map(|name| files.find(&path(name)).is_some());
        assert_eq!(kept, [true, false, true]);
        files.forget(&path("a"));
        assert!(files.find(&path("a")).is_none());
        assert!(files.clear() && !files.clear());
    }
}
