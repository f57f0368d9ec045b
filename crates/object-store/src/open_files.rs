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
//! Owns: which files are kept, and how long; a thread that closes unused ones, as long as any are kept.
//! Does not own: opening, the comparison (store).
//! Locks: one, held across no system call; files are closed after it was released.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{process, thread};

use rustix::process::{Resource, getrlimit};

use crate::object::Object;

/// The files kept open.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default, Debug)]
struct Kept {
    files: HashMap<PathBuf, Entry>,
    /// The process that has the thread which closes unused files; a forked child has none.
    closer: Option<u32>,
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
        OpenFiles { most, kept: Mutex::default() }
    }

    /// The file that this path led to.
    pub(crate) fn find(&self, path: &Path) -> Option<Arc<Object>> {
        self.find_at(path, Instant::now())
    }

    fn find_at(&self, path: &Path, now: Instant) -> Option<Arc<Object>> {
        let mut kept = self.lock();
        let entry = kept.files.get_mut(path)?;
        entry.used = now;
        Some(entry.object.clone())
    }

    /// Keeps a file, instead of the one that was not used for the longest time where there are too many.
    pub(crate) fn keep(self: &Arc<Self>, path: PathBuf, object: &Arc<Object>) {
        if self.most == 0 {
            return;
        }
        let mut kept = self.lock();
        let replaced = kept.files.insert(path, Entry { object: object.clone(), used: Instant::now() });
        let oldest = if kept.files.len() > self.most { kept.take_oldest() } else { None };
        let has_closer = kept.closer.replace(process::id()) == Some(process::id());
        drop(kept);
        drop((replaced, oldest));
        if !has_closer {
            self.start_closer();
        }
    }

    fn start_closer(self: &Arc<Self>) {
        let files = Arc::downgrade(self);
        let started =
            thread::Builder::new().name("headwater-close".to_owned()).spawn(move || close_unused(&files));
        if started.is_err() {
            // The next one that is kept tries again.
            self.lock().closer = None;
        }
    }

    /// Closes the files that were not used for some time. Returns whether others are kept.
    fn close_unused_at(&self, now: Instant) -> bool {
        let mut kept = self.lock();
        let is_unused = |entry: &Entry| now.saturating_duration_since(entry.used) >= KEPT_UNUSED;
        let unused: Vec<_> = kept.files.extract_if(|_, entry| is_unused(entry)).collect();
        let are_others_kept = !kept.files.is_empty();
        if !are_others_kept {
            kept.closer = None;
        }
        drop(kept);
        drop(unused);
        are_others_kept
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
    fn take_oldest(&mut self) -> Option<Entry> {
        let (path, _) = self.files.iter().min_by_key(|(_, entry)| entry.used)?;
        let path = path.clone();
        self.files.remove(&path)
    }
}

/// Here, and not in a get: the last close of a large file that was deleted takes its file system a while.
fn close_unused(files: &Weak<OpenFiles>) {
    loop {
        thread::sleep(KEPT_UNUSED);
        let are_others_kept = files.upgrade().is_some_and(|files| files.close_unused_at(Instant::now()));
        if !are_others_kept {
            return;
        }
    }
}

/// Enough for the files of a table that a query reads side by side, few enough to look through for the oldest.
const FILES_MAX: u64 = 256;

/// One eighth of the descriptors that the process may have; a file takes two.
const SHARE: u64 = 16;

/// As long as a query's reads of one object may lie apart. A file that others delete keeps its space as long, and up to as long again.
const KEPT_UNUSED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::Ahead;

    fn object(path: &Path) -> Arc<Object> {
        std::fs::write(path, "an object").unwrap();
        Arc::new(Object::of(headwater::File::open(path).unwrap(), Ahead::of(None)))
    }

    /// Goal: a file without use for ten seconds is closed without any get, one that is used is not, and the thread for that ends with the
    /// last file. Method: the clock is an argument.
    #[test]
    fn unused_files_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(OpenFiles::at_most(256));
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        let kept: Vec<_> = [&a, &b].map(|path| object(path)).into();
        for (path, object) in [&a, &b].into_iter().zip(&kept) {
            files.keep(path.clone(), object);
        }
        let count = || [&kept[0], &kept[1]].map(|object: &Arc<Object>| Arc::strong_count(object));
        let after = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(files.find_at(&b, after(6)).is_some());
        assert!(files.close_unused_at(after(9)));
        assert_eq!(count(), [2, 2]);
        assert!(files.close_unused_at(after(11)) && files.lock().closer.is_some());
        assert_eq!(count(), [1, 2]);
        assert!(!files.close_unused_at(after(17)) && files.lock().closer.is_none());
        assert_eq!(count(), [1, 1]);
    }

    /// Goal: the bound holds, the file that was used least lately goes first, and forgotten ones are gone.
    #[test]
    fn the_oldest_of_too_many_goes() {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(OpenFiles::at_most(2));
        let path = |name: &str| folder.path().join(name);
        let keep = |name: &str| files.keep(path(name), &object(&path(name)));
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
