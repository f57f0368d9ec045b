//! Engine: statistics, settings and flushing of an engine.
//!
//! Owns: an engine's statistics and settings as users see them.
//! Does not own: how it is built (builder), how it ends (ending).

use std::fmt;
use std::sync::Arc;

use headwater_io::{ArenaStats, DriverStats};

use crate::api::{ending, upcalls};
use crate::base::error::{Error, Result};
use crate::engine::Engine;
use crate::engine::profiles::Tuned;
use crate::engine::reclaim::{self, MemoryStats, Relief};
use crate::engine::stats::{self, CacheStats};
use crate::write::fsync;

/// The settings that an engine ended up with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// `"uring"`, `"threads"` or `"sim"`.
    pub driver: &'static str,
    /// Why there is no ring, if one was requested.
    pub uring_refusal: Option<String>,
    /// Number of rings, 0 for other drivers.
    pub rings: u32,
    /// Number of rings that poll the device; 0 before a file on a device that supports polling is used.
    pub polled_rings: u32,
    /// Why the kernel refused rings that poll, so that ordinary ones take their place.
    pub polling_refusal: Option<String>,
    /// Whether the kernel defers completions until the engine's thread asks for them: on a
    /// [`LocalEngine`](crate::LocalEngine), from Linux 6.1.
    pub completions_deferred: bool,
    /// The memory budget: [`EngineBuilder::memory`](crate::EngineBuilder::memory); without it, all memory of the
    /// machine, or 64 MiB for a [`LocalEngine`](crate::LocalEngine) and with [`Elasticity::Off`](crate::Elasticity::Off).
    pub memory_bytes: u64,
    /// Memory registered with the rings; grows as memory is used.
    pub registered_bytes: u64,
    /// Why not more is registered: mostly the limit of locked memory.
    pub registration_refusal: Option<String>,
    /// Maximum number of requests in flight.
    pub queue_depth: u32,
    /// Number of devices with a profile; see [`EngineBuilder::profiles`](crate::EngineBuilder::profiles).
    pub profiles: usize,
}

/// Gauges of an engine. While it is idle, those of requests and of lent memory are zero: `lent_bytes`, and those of `driver` but its
/// running counts (`enters`, `unmatched_completions`, `stuck_waits`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Frame memory.
    pub arena: ArenaStats,
    /// The engine's memory: what it has, could have and gave back, and why.
    pub memory: MemoryStats,
    /// Requests.
    pub driver: DriverStats,
    /// Frame memory lent to users inside [`bytes::Bytes`], [`View`](crate::View)s and [`PageRef`](crate::PageRef)s.
    pub lent_bytes: usize,
    /// The cache: its counts, and what it holds.
    pub cache: CacheStats,
}

impl Engine {
    /// The engine that the whole process shares, built on first use: memory as needed while the system has some to spare, the best
    /// driver that it allows. `HEADWATER_DRIVER` (`auto`, `uring`, `threads`) overrides the choice. Another one, with a bound for its
    /// memory for one, is set by [`Engine::set_global`]. The first call blocks as long as [`EngineBuilder::build`](crate::EngineBuilder::build)
    /// does, and so do others meanwhile; later ones do not.
    ///
    /// ```
    /// use headwater::{Engine, File};
    /// let file = File::open("/proc/self/status")?;
    /// let mut name = [0; 5];
    /// file.read_exact_at(&mut name, 0)?;
    /// // Opened without an engine of its own.
    /// assert!(!Engine::global()?.info().driver.is_empty());
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it cannot be built; the next call tries again.
    pub fn global() -> Result<Engine> {
        ending::global()
    }

    /// Makes this the engine of [`Engine::global`] for the rest of the process: files use it by default. For a program's `main`, before the
    /// first file is opened. Waits for no more than another thread that builds or sets it at the same time.
    ///
    /// ```
    /// use headwater::Engine;
    /// let engine = Engine::builder().memory(32 << 20).build()?;
    /// engine.set_global()?;
    /// assert_eq!(Engine::global()?.info().memory_bytes, 32 << 20);
    /// let error = engine.set_global().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` if there is one. Nothing has changed then.
    pub fn set_global(&self) -> Result<()> {
        ending::set_global(self)
    }

    /// Writes back the dirty pages of all files of this engine and waits; [`File::sync_data`](crate::File::sync_data) says what
    /// survives a power loss. Dropping the last handle of an engine, its files included, does the same before it returns, in the
    /// dropping thread. Waits for a task that syncs or truncates a file with contiguous windows until that task is polled to its end
    /// or dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// let engine = headwater::Engine::builder().memory(16 << 20).build()?;
    /// let file = headwater::OpenOptions::new().engine(&engine).write(true).create(true).open(&path)?;
    /// file.append(b"for other programs")?;
    /// engine.flush()?;
    /// assert!(file.is_clean());
    /// assert_eq!(std::fs::read(&path)?, b"for other programs");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first failure among the files that could not be written; their pages stay dirty. Also, once, the error for which
    /// pages were discarded since the last call, of a file with neither a name nor a handle.
    pub fn flush(&self) -> Result<()> {
        if self.shared.driver.is_forked() {
            return Err(Error::build(headwater_io::RejectReason::Forked.into()));
        }
        let writes = &self.shared.cache.writes;
        let files: Vec<_> = writes.dirty_files();
        let before: Vec<u64> = files.iter().map(|inode| inode.dirty.errseq.count()).collect();
        fsync::flush_all(&self.shared);
        let failed = files.iter().zip(before).find_map(|(inode, before)| {
            let has_failed = inode.dirty.errseq.count() != before && inode.dirty.unsaved_pages() > 0;
            let error = has_failed.then(|| inode.dirty.errseq.last()).flatten()?;
            Some((inode.dirty.path(), error))
        });
        match failed.or_else(|| Some((None, writes.take_lost()?))) {
            Some((path, error)) => Err(Error::flush(path, error)),
            None => Ok(()),
        }
    }

    /// Runs one round of the background thread, for tests on the driver `sim`, which has no such thread.
    #[doc(hidden)]
    pub fn maintain(&self) {
        if !self.shared.driver.is_forked() {
            upcalls::maintain(&self.shared);
        }
    }

    /// From now on the kernel does this to each ring of the engine. Once.
    #[cfg(feature = "faults")]
    pub fn inject(&self, faults: &headwater_io::KernelFaults) {
        self.shared.driver.inject(faults);
    }

    /// Driver, limits, and why a requested feature is not in use.
    pub fn info(&self) -> Info {
        let driver = self.shared.driver.info();
        Info {
            driver: driver.name,
            uring_refusal: driver.uring_refusal,
            rings: driver.rings,
            polled_rings: driver.polled_rings,
            polling_refusal: driver.polling_refusal,
            completions_deferred: driver.completions_deferred,
            memory_bytes: self.shared.memory_bytes,
            registered_bytes: driver.registered_bytes,
            registration_refusal: driver.registration_refusal,
            queue_depth: driver.queue_depth,
            profiles: self.shared.tuned.as_ref().map_or(0, Tuned::count),
        }
    }

    /// The gauges now. The call first completes requests that have arrived, such as readahead, so that their pages count as
    /// resident.
    pub fn stats(&self) -> Stats {
        if !self.shared.driver.is_forked() {
            self.shared.cache.loads.publish_arrived();
            self.shared.cache.writes.complete_arrived();
            self.shared.cache.inodes.record_abandoned_syncs();
        }
        Stats {
            arena: self.shared.arena.stats(),
            memory: reclaim::memory_stats(&self.shared),
            driver: self.shared.driver.stats(),
            lent_bytes: self.shared.lending.bytes(),
            cache: stats::cache_stats(&self.shared),
        }
    }

    /// Checks whether the system, or a cgroup of this process, is short of memory, and if so returns some: free memory first,
    /// then pages of the cache. Costs some 25 µs when memory is plentiful, and up to milliseconds when not.
    ///
    /// The engine does the same when an allocation is refused.
    ///
    /// ```
    /// let engine = headwater::Engine::builder().memory(16 << 20).build()?;
    /// let relief = engine.relieve();
    /// println!("{} bytes returned, look again in {:?}", relief.released_bytes, relief.look_again);
    /// assert!(relief.look_again > std::time::Duration::ZERO);
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn relieve(&self) -> Relief {
        reclaim::relieve(&self.shared)
    }
}

/// Whether two handles are of the same engine.
impl PartialEq for Engine {
    fn eq(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Engine {}

impl fmt::Debug for Engine {
    /// Driver, memory and the pages of the cache; all there is to know is in [`Engine::info`] and [`Engine::stats`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shared, cache) = (&self.shared, stats::held_pages(&self.shared));
        let mut fields = f.debug_struct("Engine");
        fields.field("driver", &shared.driver.info().name).field("memory_bytes", &shared.memory_bytes);
        fields.field("mapped_bytes", &shared.arena.stats().mapped_bytes);
        fields.field("resident_pages", &cache.resident).field("dirty_pages", &cache.dirty).finish()
    }
}
