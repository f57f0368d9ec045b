//! Eviction listener: a callback of the program for pages of a file that left the cache.
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
    /// Calls `listener` with pages of this file after they left the cache, until the guard is dropped: pages evicted to make
    /// room, dropped by [`Advice::DontNeed`](crate::Advice::DontNeed) or [`Advice::NoReuse`](crate::Advice::NoReuse), or dropped
    /// because the file had changed. Adjacent pages are reported together. A file that is not cached never calls.
    ///
    /// The call runs in the thread that made the pages leave, before that thread's read or advice returns, with no lock held; for a task
    /// that changes the length of a file, when it has done so or is dropped. It
    /// may use this file and any other, but must not block for long, and not at all in a thread that runs tasks. Calls do not
    /// nest: pages that leave during a call are reported by a later call of the same thread. So a listener that rereads evicted
    /// pages while the cache is full keeps its thread busy for ever. Several threads may call it at once.
    ///
    /// A page that failed to load was never in the cache and is not reported. A page may be cached again by the time of the call.
    /// A panic of the listener is reported by the panic hook and caught, where panics unwind.
    ///
    /// The guard keeps the file open. After it is dropped, a call that another thread has begun may still be running.
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
    /// file.advise(Advice::DontNeed, ..)?;
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
    /// `None` for a file that is not cached.
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
        // In a forked child, the list may be locked by a thread that does not exist there.
        Contents::Stored(source) if source.shared().driver.is_forked() => None,
        Contents::Stored(source) => source.inode().map(|inode| &inode.listeners),
        Contents::Memory(_) => None,
    }
}
