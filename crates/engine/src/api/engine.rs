//! Engine: what a program asks of one.
//!
//! Owns: its statistics and settings as users see them.
//! Does not own: how it is built (builder), how it ends (ending).

use std::fmt;

use headwater_io::{ArenaStats, DriverStats, PolledRings};

use crate::api::builder::EngineBuilder;
use crate::api::{ending, upcalls};
use crate::base::error::{Error, Result};
use crate::engine::Engine;
use crate::engine::profiles::Tuned;
use crate::engine::reclaim::{self, Relief};
use crate::engine::stats::{self, CacheStats};
use crate::write::fsync;

/// What an engine turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// `"uring"`, `"threads"` or `"sim"`.
    pub driver: &'static str,
    /// Why there is no ring, if one was wanted.
    pub uring_refusal: Option<String>,
    /// Rings, 0 for other drivers.
    pub rings: u32,
    /// Whether there are rings that poll the device, and if not, why.
    pub polled_rings: PolledRings,
    /// Whether the kernel completes requests only when the engine's thread asks: on a [`LocalEngine`](crate::LocalEngine), from Linux 6.1.
    pub completions_deferred: bool,
    /// The memory budget.
    pub memory_bytes: u64,
    /// Memory that the rings know beforehand; grows as memory is used.
    pub registered_bytes: u64,
    /// Why it is not more: mostly the limit of locked memory.
    pub registration_refusal: Option<String>,
    /// Requests in flight at most.
    pub queue_depth: u32,
    /// For how many devices there are profiles; see [`EngineBuilder::profiles`].
    pub profiles: usize,
}

/// Gauges of an engine; all but `arena.budget_bytes`, `arena.mapped_bytes`, `arena.released_bytes` and those of the cache are
/// zero when nobody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Frame memory.
    pub arena: ArenaStats,
    /// Requests.
    pub driver: DriverStats,
    /// Frame memory inside [`bytes::Bytes`] that users hold.
    pub lent_bytes: usize,
    /// The cache: what it did, and what it holds.
    pub cache: CacheStats,
}

impl Engine {
    /// Settings to build an engine from.
    ///
    /// ```
    /// let engine = headwater::Engine::builder().memory(8 << 20).queue_depth(32).build()?;
    /// assert_eq!(engine.info().queue_depth, 32);
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// The engine that the whole process shares, built when first used: 64 MiB at most, mapped as needed; the driver
    /// that the system allows. `HEADWATER_DRIVER` (`auto`, `uring`, `threads`) chooses otherwise.
    ///
    /// # Errors
    /// When it cannot be built, at each call anew.
    pub fn global() -> Result<Engine> {
        ending::global()
    }

    /// Writes back what was written to all files through this engine, and waits for that; see [`File::sync_data`](crate::File::sync_data) for
    /// what survives a loss of power. Dropping the last handle of an engine, its files included, does the same before it returns, in
    /// whichever thread that is.
    ///
    /// # Errors
    /// The first failure among the files that could not be written; all of them stay as they were written. And, once, why pages
    /// of a file were given up since the last call that has neither a name nor a handle any more.
    pub fn flush(&self) -> Result<()> {
        if self.shared.driver.is_forked() {
            return Err(Error::build(headwater_io::RejectReason::Forked.into()));
        }
        let writes = &self.shared.cache.writes;
        let files: Vec<_> = writes.dirty_files();
        let before: Vec<u64> = files.iter().map(|inode| inode.dirty.errseq.count()).collect();
        fsync::flush_all(&self.shared);
        let failed = files.iter().zip(before).find_map(|(inode, before)| {
            let has_failed = inode.dirty.errseq.count() != before && inode.dirty.pages() > 0;
            let error = has_failed.then(|| inode.dirty.errseq.last()).flatten()?;
            Some((inode.dirty.path(), error))
        });
        match failed.or_else(|| Some((None, writes.take_lost()?))) {
            Some((path, error)) => Err(Error::flush(path, error)),
            None => Ok(()),
        }
    }

    /// Does once what the engine's own thread does from time to time, for tests on the driver `sim`, where there is no such thread.
    #[doc(hidden)]
    pub fn keep(&self) {
        if !self.shared.driver.is_forked() {
            upcalls::tend(&self.shared);
        }
    }

    /// Driver, limits, and why a wish was not met.
    pub fn info(&self) -> Info {
        let driver = self.shared.driver.info();
        Info {
            driver: driver.name,
            uring_refusal: driver.uring_refusal,
            rings: driver.rings,
            polled_rings: driver.polled_rings,
            completions_deferred: driver.completions_deferred,
            memory_bytes: self.shared.memory_bytes,
            registered_bytes: driver.registered_bytes,
            registration_refusal: driver.registration_refusal,
            queue_depth: driver.queue_depth,
            profiles: self.shared.tuned.as_ref().map_or(0, Tuned::count),
        }
    }

    /// The gauges now. What was read ahead and has arrived meanwhile becomes resident by this.
    pub fn stats(&self) -> Stats {
        if !self.shared.driver.is_forked() {
            self.shared.cache.loads.conclude_arrived();
            self.shared.cache.writes.conclude_arrived();
            self.shared.cache.inodes.conclude_syncs();
        }
        Stats {
            arena: self.shared.arena.stats(),
            driver: self.shared.driver.stats(),
            lent_bytes: self.shared.lending.bytes(),
            cache: stats::cache_stats(&self.shared),
        }
    }

    /// Looks whether the system, or a cgroup that this process is in, is short of memory, and gives some back if it is:
    /// free memory first, then pages of the cache. Costs some 25 µs when all is well, and up to milliseconds when not.
    ///
    /// The engine does the same when it is refused memory.
    pub fn relieve(&self) -> Relief {
        reclaim::relieve(&self.shared)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("info", &self.info()).field("stats", &self.stats()).finish()
    }
}
