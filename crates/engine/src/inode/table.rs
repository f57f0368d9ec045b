//! Inodes: the files that an engine knows, open ones and closed ones with pages.
//!
//! Owns: the maps, which closed file is forgotten first, which unknown files are being written to around the cache.
//! Does not own: what is known of a file (inode).
//! Locks: `known`, before `cache.control` of the page cache; forgotten inodes are dropped without it.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, OnceLock};

use headwater_io::{lock, unpoisoned};

use super::*;

/// All files of an engine that are open or have pages.
#[derive(Default)]
pub(crate) struct Inodes {
    known: Mutex<Known>,
    /// Notified when a write around the cache ends.
    written: Condvar,
    /// Marks of files that were read by their path, around the cache.
    read: OnceLock<Box<[AtomicU32]>>,
}

#[derive(Default)]
struct Known {
    by_key: HashMap<FileKey, Arc<Inode>>,
    by_id: HashMap<FileId, Arc<Inode>>,
    /// Closed files, the longest closed first; some may be open again, or forgotten.
    closed: VecDeque<Weak<Inode>>,
    /// When `closed` is longer than this, the entries of forgotten files are removed: each holds memory.
    closed_sweep_length: usize,
    /// Counts of forgotten files.
    forgotten: Counts,
    /// Unknown files that are being written to around the cache, and how many such writes each has.
    around: HashMap<FileKey, usize>,
    /// Callers that wait for one of these to end.
    waiting: usize,
}

/// While this lives, no inode stands for the file.
pub(crate) struct WriteAround<'a> {
    inodes: &'a Inodes,
    key: FileKey,
}

impl Drop for WriteAround<'_> {
    fn drop(&mut self) {
        let mut known = self.inodes.lock();
        let writes = known.around.get_mut(&self.key).expect("it was counted when it began");
        *writes -= 1;
        if *writes == 0 {
            known.around.remove(&self.key);
            if known.waiting > 0 {
                self.inodes.written.notify_all();
            }
        }
    }
}

/// Whether a file had no handle before it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WasClosed {
    Yes,
    No,
}

/// Whether a handle that was closed was the last of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WasLast {
    Yes,
    No,
}

impl Inodes {
    /// Counts one more handle of a file, which `make` creates if it is not known. Returns whether the file had no handle. Blocks while
    /// the file is being written to around the cache.
    pub(crate) fn enter(
        &self,
        key: FileKey,
        make: impl FnOnce() -> io::Result<Inode>,
    ) -> io::Result<(Arc<Inode>, WasClosed)> {
        let mut known = self.lock();
        while known.around.contains_key(&key) {
            known.waiting += 1;
            known = unpoisoned(self.written.wait(known));
            known.waiting -= 1;
        }
        let inode = match known.by_key.get(&key) {
            Some(inode) => inode.clone(),
            None => {
                let inode = Arc::new(make()?);
                known.by_key.insert(key, inode.clone());
                known.by_id.insert(inode.pages.id(), inode.clone());
                inode
            }
        };
        let was_closed = inode.opens.fetch_add(1, Ordering::AcqRel) == 0;
        inode.is_reopened.store(true, Ordering::Relaxed);
        Ok((inode, if was_closed { WasClosed::Yes } else { WasClosed::No }))
    }

    /// Counts one handle less. Returns whether it was the last.
    pub(crate) fn leave(&self, inode: &Inode) -> WasLast {
        if inode.opens.fetch_sub(1, Ordering::AcqRel) > 1 { WasLast::No } else { WasLast::Yes }
    }

    /// Remembers a closed file, in case it is opened again. Beyond `closed_max`, forgets those closed the longest time ago.
    pub(crate) fn remember_closed(&self, inode: &Arc<Inode>, closed_max: usize) {
        let mut known = self.lock();
        // Inodes taken from the list are dropped without the lock: an inode takes locks of its own when dropped.
        let (mut leaving, mut kept) = (Vec::new(), Vec::new());
        if !inode.has_pages() && !inode.dirty.may_lack() {
            leaving.push(inode.clone());
        } else if !inode.is_listed.swap(true, Ordering::Relaxed) {
            // Once, however often it is opened and closed: else it would evict itself.
            inode.is_reopened.store(false, Ordering::Relaxed);
            known.closed.push_back(Arc::downgrade(inode));
            known.sweep_closed();
        }
        let mut unwritten = 0;
        while known.closed.len() > closed_max && unwritten < UNWRITTEN_PASSED_MAX {
            let Some(oldest) = known.closed.pop_front().and_then(|oldest| oldest.upgrade()) else { continue };
            let may_lack = oldest.dirty.may_lack();
            unwritten += usize::from(may_lack);
            if oldest.is_reopened.swap(false, Ordering::Relaxed) || may_lack {
                // Used since it was listed, or not written yet: another round.
                known.closed.push_back(Arc::downgrade(&oldest));
                kept.push(oldest);
                continue;
            }
            oldest.is_listed.store(false, Ordering::Relaxed);
            leaving.push(oldest);
        }
        drop(known);
        drop(kept);
        leaving.iter().for_each(|inode| self.forget(inode));
    }

    /// Forgets a file, unless it is open again. Its counts go into the total after its last pages.
    fn forget(&self, inode: &Arc<Inode>) {
        if !self.lock().is_closed(inode) {
            return;
        }
        if inode.dirty.may_lack() {
            return;
        }
        inode.drop_pages(ALL_PAGES);
        let forgotten = self.lock().forget_closed(inode);
        // The inode takes locks of its own when dropped.
        drop(forgotten);
    }

    /// Updates the inodes of pages that were evicted.
    pub(crate) fn on_evicted(&self, evicted: &[Evicted]) {
        let mut rest = evicted;
        while let Some(first) = rest.first() {
            let run = rest.chunk_by(follows).next().expect("there is a first");
            rest = &rest[run.len()..];
            let Some(inode) = self.lock().by_id.get(&first.file).cloned() else { continue };
            let pages = PageRange::new(first.page, first.page + PageCount::new(run.len() as u64));
            if first.usage == Usage::Unused {
                inode.reading().policy.on_unused(pages);
            }
            inode.on_left(pages, first.usage);
        }
    }

    /// Begins a write around the cache. `None` if the file is known: some of it may be cached.
    pub(crate) fn begin_around(&self, key: FileKey) -> Option<WriteAround<'_>> {
        let mut known = self.lock();
        if known.by_key.contains_key(&key) {
            return None;
        }
        *known.around.entry(key).or_default() += 1;
        Some(WriteAround { inodes: self, key })
    }

    pub(crate) fn find(&self, key: FileKey) -> Option<Arc<Inode>> {
        self.lock().by_key.get(&key).cloned()
    }

    /// Whether an unknown file was probably read by its path before; records that it is read now.
    pub(crate) fn was_read(&self, key: FileKey) -> bool {
        let read = self.read.get_or_init(|| (0..READ_ONCE_MAX).map(|_| AtomicU32::new(0)).collect());
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        // Files with equal marks, one in two billion, are mistaken for each other: the only effect is on what is cached.
        let (set, mark) = (hash as usize % (READ_ONCE_MAX / READ_ONCE_WAYS), (hash >> 32) as u32 | 1);
        let places = &read[set * READ_ONCE_WAYS..][..READ_ONCE_WAYS];
        let holds = |wanted: u32| places.iter().position(|place| place.load(Ordering::Relaxed) == wanted);
        if holds(mark).is_some() {
            return true;
        }
        let place = holds(0).unwrap_or((hash >> 29) as usize % READ_ONCE_WAYS);
        places[place].store(mark, Ordering::Relaxed);
        false
    }

    /// Whether any file is open.
    pub(crate) fn are_open(&self) -> bool {
        self.lock().by_id.values().any(|inode| !inode.is_closed())
    }

    /// Records the results of abandoned syncs.
    pub(crate) fn record_abandoned_syncs(&self) {
        let inodes: Vec<Arc<Inode>> = self.lock().by_id.values().cloned().collect();
        inodes.iter().for_each(|inode| inode.record_abandoned_sync());
    }

    /// Read counts of all files, forgotten ones included.
    pub(crate) fn counts(&self) -> Counts {
        let known = self.lock();
        let mut counts = known.forgotten;
        known.by_id.values().for_each(|inode| counts += inode.counters.counts());
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

impl Known {
    /// Whether this inode, not a later one of the same number, is known and has no open handle.
    fn is_closed(&self, inode: &Arc<Inode>) -> bool {
        let is_known = self.by_id.get(&inode.pages.id()).is_some_and(|known| Arc::ptr_eq(known, inode));
        is_known && inode.opens.load(Ordering::Acquire) == 0
    }

    /// Removes forgotten files whenever the list has doubled, so that it is at most twice as long as needed.
    fn sweep_closed(&mut self) {
        if self.closed.len() > self.closed_sweep_length {
            self.closed.retain(|inode| inode.strong_count() > 0);
            self.closed_sweep_length = 2 * self.closed.len() + CLOSED_SWEEP_LEAST;
        }
    }

    /// Forgets a file, unless it was opened again meanwhile.
    fn forget_closed(&mut self, inode: &Arc<Inode>) -> Option<Arc<Inode>> {
        if !self.is_closed(inode) || inode.dirty.may_lack() {
            return None;
        }
        let inode = self.by_id.remove(&inode.pages.id())?;
        self.by_key.remove(&inode.key);
        self.forgotten += inode.counters.counts();
        Some(inode)
    }
}

impl fmt::Debug for Inodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inodes({})", self.lock().by_id.len())
    }
}

fn follows(a: &Evicted, b: &Evicted) -> bool {
    (a.file, a.page + PageCount::new(1), a.usage) == (b.file, b.page, b.usage)
}

/// Remembered files that were read once: 128 KiB, for eight times the files that are remembered with their pages.
const READ_ONCE_MAX: usize = 32 << 10;

/// Places that a mark can be in: with one, a quarter of 10 000 files evicted each other again and again.
const READ_ONCE_WAYS: usize = 8;

/// Files with unwritten bytes that one call leaves in the list before it gives up. A call adds one file at most, so a few are enough for the
/// list to shrink once they are written.
const UNWRITTEN_PASSED_MAX: usize = 4;

/// Shorter lists hold little memory.
const CLOSED_SWEEP_LEAST: usize = 64;
