//! Eviction listener: a function of the program that is called with the pages of a file that left the cache.
//!
//! Owns: the guard.
//! Does not own: when listeners are called (`base::listeners`).

use std::fmt;
use std::sync::Arc;

use headwater_core::units::PageRange;
use os_display::Quotable;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::listeners::Listeners;

impl File {
    /// Has `listener` called with pages of this file after they left the cache, until the guard is dropped: to make room,
    /// on [`Advice::DontNeed`](crate::Advice::DontNeed) or [`Advice::NoReuse`](crate::Advice::NoReuse), or because the file
    /// had changed. Pages that follow each other are told together. A file that is not cached never calls.
    ///
    /// It is called by whichever thread made the pages leave, before that thread's read or advice returns, with no lock
    /// held: it may use this file and any other, but must not block long, in a thread that runs tasks not at all. It is not called while it runs in the same
    /// thread; what leaves meanwhile is told afterwards. So a listener that reads what has just left, while the cache is
    /// full, keeps its thread busy without end. Several threads may call it at once.
    ///
    /// A page that failed to load never was in the cache, and is not told. A page may be back by the time of the call. A panic of the
    /// listener is reported by the panic hook and goes no further, where panics unwind.
    ///
    /// The guard keeps the file open. A call that another thread has begun may still be running when it has been dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use headwater::{Advice, Caching, OpenOptions};
    /// let file = OpenOptions::new().caching(Caching::On).open(&path)?;
    /// let left = Arc::new(AtomicU64::new(0));
    /// let counter = left.clone();
    /// let guard = file.on_evicted(move |pages| {
    ///     counter.fetch_add(pages.len().get(), Ordering::Relaxed);
    /// });
    /// file.read_at(&mut [0; 4096], 0)?;
    /// file.advise_all(Advice::DontNeed)?;
    /// assert_eq!(left.load(Ordering::Relaxed), file.stats().counts.evictions);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_evicted(&self, listener: impl Fn(PageRange) + Send + Sync + 'static) -> EvictionListener {
        let id = listeners(self).map(|listeners| listeners.add(listener));
        EvictionListener { file: self.clone(), id }
    }
}

/// Keeps a listener registered; see [`File::on_evicted`].
#[must_use = "the listener is called no more once this is dropped"]
pub struct EvictionListener {
    file: File,
    /// `None` of a file that is not cached.
    id: Option<u64>,
}

impl Drop for EvictionListener {
    fn drop(&mut self) {
        if let (Some(listeners), Some(id)) = (listeners(&self.file), self.id) {
            listeners.remove(id);
        }
    }
}

impl fmt::Debug for EvictionListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EvictionListener({})", self.file.path().maybe_quote())
    }
}

fn listeners(file: &File) -> Option<&Arc<Listeners>> {
    match &file.contents {
        // In a forked child, a thread that is not there may hold the list.
        Contents::Stored(source) if source.shared().driver.is_forked() => None,
        Contents::Stored(source) => source.inode.as_ref().map(|inode| &inode.listeners),
        Contents::Memory(_) => None,
    }
}
