//! Engine: one memory budget and one queue of requests, shared by all files opened through it.
//!
//! Owns: the arena, the driver, the count of what is lent to users.
//! Does not own: files, readers.
//! Invariants: I6 frames stay within the budget; at most half of it is lent out as [`bytes::Bytes`], so that a caller
//! who keeps them all cannot stop the others.

pub(crate) mod background;
pub(crate) mod frames;
pub(crate) mod handle;
pub(crate) mod lease_thread;
pub(crate) mod loads;
pub mod profiles;
pub(crate) mod reclaim;
pub(crate) mod stats;
pub(crate) mod writes;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use headwater_core::limits::Limits;
use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_core::replacement::Policy;
use headwater_io::{
    Arena, ArenaStats, Driver, DriverKind, DriverOptions, DriverStats, Extent, FilePages, LocalDriver,
    OpenFile, PinnedPage, PolledRings, Polling, Pressure, SubmissionPolling,
};

use crate::api::ending::{self, UserHandle};
use crate::api::local::LocalEngine;
use crate::base::error::{Error, Result};
use crate::engine::background::{Keeper, Presence};
use crate::engine::frames::CacheParts;
use crate::engine::lease_thread::Leases;
use crate::engine::profiles::{Profiles, Tuned};
use crate::engine::reclaim::{Elasticity, Relieving};
use crate::engine::stats::CacheStats;
use crate::inode::EngineWatch;

/// Memory and driver for any number of files. Clones share them. [`Engine::global`] is enough for most programs.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    #[expect(dead_code, reason = "the last one dropped ends the engine")]
    user: Arc<UserHandle>,
}

pub(crate) struct Shared {
    pub(crate) arena: Arena,
    pub(crate) driver: Driver,
    /// Where no profile says otherwise.
    pub(crate) readahead: ReadaheadLimits,
    /// `None` when there are none, or limits were given.
    tuned: Option<Tuned>,
    pub(crate) readahead_policy: ReadaheadPolicy,
    pub(crate) cache: CacheParts,
    pub(crate) keeper: Keeper,
    pub(crate) leases: Leases,
    pub(crate) watch: Arc<EngineWatch>,
    lent_bytes: Arc<AtomicUsize>,
    lent_bytes_max: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) relieving: Relieving,
}

/// Settings of an engine; see [`Engine::builder`].
#[derive(Clone, Debug, Default)]
pub struct EngineBuilder {
    memory_bytes: Option<u64>,
    elasticity: Elasticity,
    queue_depth: Option<u32>,
    driver: DriverKind,
    rings: Option<u32>,
    polling: Polling,
    submission_polling: SubmissionPolling,
    readahead: Option<ReadaheadLimits>,
    readahead_policy: ReadaheadPolicy,
    replacement: Policy,
    profiles: Profiles,
}

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
    /// Whether the kernel completes requests only when the engine's thread asks: on a [`LocalEngine`], from Linux 6.1.
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
    /// Frame memory inside [`Bytes`] that users hold.
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
        let before: Vec<u64> = files.iter().map(|inode| inode.unwritten.failure_count()).collect();
        self.shared.flush_all();
        let failed = files.iter().zip(before).find_map(|(inode, before)| {
            let has_failed = inode.unwritten.failure_count() != before && inode.unwritten.pages() > 0;
            let error = has_failed.then(|| inode.unwritten.last_failure()).flatten()?;
            Some((inode.unwritten.path(), error))
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
            self.shared.tend();
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
            lent_bytes: self.shared.lent_bytes.load(Ordering::Relaxed),
            cache: self.shared.cache_stats(),
        }
    }

    /// The bytes `used` of an extent as [`Bytes`]: the frame itself while less than half of the budget is lent out and
    /// memory is not short, else a copy.
    pub(crate) fn lend(&self, extent: Extent, used: std::ops::Range<usize>) -> Bytes {
        let (arena, reserve_bytes) = (self.shared.arena.stats(), self.shared.arena.demand_reserve_bytes());
        // What callers keep must not be the pages of the reserve: those come back when the next demand needs them.
        let is_short = arena.used_bytes + reserve_bytes > arena.budget_bytes;
        match self.shared.count_lent(extent.len()) {
            Some(lent_bytes) if !is_short => {
                Bytes::from_owner(Lent { memory: extent, lent_bytes }).slice(used)
            }
            _ => Bytes::copy_from_slice(&extent[used]),
        }
    }
}

impl Engine {
    /// A part of a page as [`Bytes`]: the page itself under the same condition as in [`Engine::lend`], else a copy.
    pub(crate) fn lend_page(
        &self,
        page: PinnedPage<'_>,
        file: &FilePages,
        part: std::ops::Range<usize>,
    ) -> Bytes {
        // A copy of less is cheaper than its bookkeeping.
        if part.len() < LENT_BYTES_MIN || page.pins() > LENT_TIMES_MAX {
            return Bytes::copy_from_slice(&page[part]);
        }
        match self.shared.count_lent(page.len()) {
            Some(lent_bytes) => {
                Bytes::from_owner(Lent { memory: page.into_owned(file), lent_bytes }).slice(part)
            }
            None => Bytes::copy_from_slice(&page[part]),
        }
    }
}

impl Shared {
    /// The readahead of a file that is being opened.
    pub(crate) fn readahead_of(&self, file: &OpenFile) -> ReadaheadLimits {
        self.tuned.as_ref().and_then(|tuned| tuned.limits(file)).unwrap_or(self.readahead)
    }

    /// Counts so much as lent, unless that is too much.
    pub(crate) fn count_lent(&self, bytes: usize) -> Option<LentBytes> {
        // Added first, so that threads that lend at once do not exceed it together.
        let before_bytes = self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let lent_bytes = LentBytes { total: self.lent_bytes.clone(), bytes };
        (before_bytes + bytes <= self.lent_bytes_max).then_some(lent_bytes)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("info", &self.info()).field("stats", &self.stats()).finish()
    }
}

impl EngineBuilder {
    /// The memory budget in bytes, 3 MiB or more. Default 64 MiB. It is a ceiling, not a reservation: memory is taken when
    /// it is needed, while the system and the cgroups of this process have some to spare, and given back when they run
    /// short ([`EngineBuilder::elasticity`]). So it can be as large as what is read: the cache fills what nobody else wants.
    ///
    /// Readers at rest keep what they have read ahead, at the least a page of 4 KiB. Those get by in the eighth of the
    /// budget that readahead leaves free: 64 of them with 3 MiB, nearly 2000 with 64 MiB. More, all at rest at once, make
    /// further reads wait until one goes on or is dropped.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Whether memory follows what the system has to spare. Default [`Elasticity::On`]. What the cgroups are is looked up
    /// when the engine is built.
    pub fn elasticity(mut self, elasticity: Elasticity) -> Self {
        self.elasticity = elasticity;
        self
    }

    /// Requests in flight at most, 1 to 4096; more wait in the order they came. Default 128.
    pub fn queue_depth(mut self, requests: u32) -> Self {
        self.queue_depth = Some(requests);
        self
    }

    /// Which driver. Default: `uring` where allowed, else `threads`.
    pub fn driver(mut self, driver: DriverKind) -> Self {
        self.driver = driver;
        self
    }

    /// Rings that share the queue depth. By default one for each processor, but each with 32 requests at least.
    pub fn rings(mut self, rings: u32) -> Self {
        self.rings = Some(rings);
        self
    }

    /// Whether devices that poll are polled. Requests of the calling thread itself (up to 256 KiB, blocking) take no ring
    /// and are not.
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// Whether a kernel thread for each ring watches for requests (`IORING_SETUP_SQPOLL`). It takes a processor for
    /// itself: worth trying where there are some to spare and submitting is what limits.
    pub fn submission_polling(mut self, submission_polling: SubmissionPolling) -> Self {
        self.submission_polling = submission_polling;
        self
    }

    /// How far and in which sizes readers read ahead, on all devices. By default as the profile of a file's device says,
    /// else up to 1 MiB a request and 8 MiB ahead; less when the memory budget is small.
    pub fn readahead(mut self, limits: ReadaheadLimits) -> Self {
        self.readahead = Some(limits);
        self
    }

    /// Where profiles of devices come from, which `headwater tune` measures and stores. Read once, when the engine is built;
    /// each device is looked up when its first file is opened. Limits given by [`EngineBuilder::readahead`] go before
    /// profiles. A file of profiles that cannot be used is warned of through `tracing` and is as none.
    ///
    /// ```
    /// use headwater::{Engine, OpenOptions, Profiles, ReadaheadLimits};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// let engine = Engine::builder().profiles(Profiles::Off).build()?;
    /// assert_eq!(engine.info().profiles, 0);
    /// let file = OpenOptions::new().engine(&engine).open(&path)?;
    /// assert_eq!(file.readahead_limits(), Some(ReadaheadLimits::default()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn profiles(mut self, profiles: Profiles) -> Self {
        self.profiles = profiles;
        self
    }

    /// Which policy cached files follow, unless they are opened with another. Default [`ReadaheadPolicy::Adaptive`].
    pub fn readahead_policy(mut self, policy: ReadaheadPolicy) -> Self {
        self.readahead_policy = policy;
        self
    }

    /// Which pages leave the cache first. Default [`Policy::Clock2QPlus`]; the others are there to compare with.
    pub fn replacement(mut self, policy: Policy) -> Self {
        self.replacement = policy;
        self
    }

    /// Builds the engine. Maps no frame memory yet.
    ///
    /// # Errors
    /// `InvalidInput` for a setting out of range (a readahead size of more than 2 MiB is), an unknown `HEADWATER_DRIVER`, or
    /// a replacement that needs to hear of each hit ([`Policy::Lru`]); what the kernel says when
    /// [`DriverKind::Uring`] is demanded and refused.
    pub fn build(self) -> Result<Engine> {
        let options = self.driver_options()?;
        let presence = match options.kind {
            DriverKind::Sim(_) => Presence::Absent,
            DriverKind::Auto | DriverKind::Uring | DriverKind::Threads => Presence::Present,
        };
        self.build_with(presence, || Driver::new(&options))
    }

    /// Builds an engine for this thread alone; see [`LocalEngine`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// let engine = headwater::Engine::builder().local()?;
    /// let file = engine.open(&path)?;
    /// let bytes = engine.block_on(file.read_at_async(0, 3))?;
    /// assert_eq!(&bytes[..], b"abc");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`EngineBuilder::build`]; when there are no descriptors left.
    pub fn local(self) -> Result<LocalEngine> {
        let local = LocalDriver::new(&self.driver_options()?).map_err(Error::build)?;
        let engine = self.build_with(Presence::Absent, || Ok(local.driver().clone()))?;
        Ok(LocalEngine::new(engine, local))
    }

    fn driver_options(&self) -> Result<DriverOptions> {
        Ok(DriverOptions {
            kind: self.driver.clone().or_environment().map_err(Error::build)?,
            queue_depth: self.queue_depth.unwrap_or(Limits::QUEUE_DEPTH_DEFAULT),
            rings: self.rings,
            polling: self.polling,
            submission_polling: self.submission_polling,
            ..DriverOptions::default()
        })
    }

    fn build_with(self, presence: Presence, driver: impl FnOnce() -> io::Result<Driver>) -> Result<Engine> {
        let memory_bytes = self.memory_bytes.unwrap_or(Limits::MEMORY_BYTES_DEFAULT);
        check_memory(memory_bytes)?;
        check_replacement(self.replacement)?;
        let defaults = ReadaheadLimits::default();
        let readahead = self.readahead.unwrap_or_else(|| {
            readahead_for(memory_bytes, defaults.size_bytes_max, defaults.distance_bytes_max)
        });
        let tuned = self.tuned(memory_bytes);
        readahead.validate().map_err(|error| invalid(error.to_string()))?;
        check_size(readahead.size_bytes_max)?;
        let driver = driver().map_err(Error::build)?;
        let arena = match self.elasticity {
            Elasticity::On => Arena::elastic(memory_bytes as usize, Pressure::new()),
            Elasticity::Off => Arena::new(memory_bytes as usize),
        };
        let arena = arena.map_err(|error| invalid(error.to_string()))?;
        driver.register_memory(&arena);
        let (lent_bytes, lent_bytes_max) = (Arc::default(), arena.stats().budget_bytes / 2);
        let cache = CacheParts::new(&arena, &driver, self.replacement);
        let readahead_policy = self.readahead_policy;
        let shared = Shared {
            arena,
            driver,
            readahead,
            tuned,
            readahead_policy,
            cache,
            keeper: Keeper::new(presence),
            leases: Leases::default(),
            watch: Arc::default(),
            lent_bytes,
            lent_bytes_max,
            memory_bytes,
            relieving: Relieving::default(),
        };
        let shared = Arc::new(shared);
        shared.keeper.keep(&shared);
        let user = Arc::new(UserHandle::new(&shared));
        Ok(Engine { shared, user })
    }

    /// The profiles, where they count.
    fn tuned(&self, memory_bytes: u64) -> Option<Tuned> {
        // What is simulated has to be the same on every machine.
        let is_simulated = matches!(self.driver, DriverKind::Sim(_)) && self.profiles == Profiles::Default;
        let is_decided = self.readahead.is_some() || is_simulated;
        if is_decided { None } else { Tuned::load(&self.profiles, memory_bytes) }
    }
}

/// A frame or page in the hands of a user.
struct Lent<M: AsRef<[u8]>> {
    memory: M,
    #[expect(dead_code, reason = "dropped with the memory")]
    lent_bytes: LentBytes,
}

impl<M: AsRef<[u8]>> AsRef<[u8]> for Lent<M> {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref()
    }
}

/// A part of what is counted as lent, until it is dropped.
pub(crate) struct LentBytes {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl LentBytes {
    /// A part of it, to be dropped by itself.
    pub(crate) fn split(&mut self, bytes: usize) -> LentBytes {
        assert!(bytes <= self.bytes, "no more is split off than there is");
        self.bytes -= bytes;
        LentBytes { total: self.total.clone(), bytes }
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn check_memory(memory_bytes: u64) -> Result<()> {
    if memory_bytes < Limits::MEMORY_BYTES_MIN {
        let (have, need) = (memory_bytes, Limits::MEMORY_BYTES_MIN >> 20);
        return Err(invalid(format!(
            "a memory budget of {have} bytes is too small, it takes at least {need} MiB"
        )));
    }
    if memory_bytes > Limits::MEMORY_BYTES_MAX {
        let (have, most) = (memory_bytes >> 30, Limits::MEMORY_BYTES_MAX >> 40);
        return Err(invalid(format!("a memory budget of {have} GiB is more than {most} TiB")));
    }
    Ok(())
}

/// What is read at once has to fit a piece of memory.
fn check_size(size_bytes_max: u64) -> Result<()> {
    let most = Limits::RUN_BYTES_MAX;
    if size_bytes_max > most {
        return Err(invalid(format!("a readahead size of {size_bytes_max} bytes is more than {most}")));
    }
    Ok(())
}

/// A hit only counts itself in the page's word; nobody is called who could put the page at the end of a list.
fn check_replacement(policy: Policy) -> Result<()> {
    match policy {
        Policy::Clock2QPlus | Policy::Clock | Policy::S3Fifo => Ok(()),
        Policy::Lru => {
            let text = "the replacement lru needs to hear of every hit, which takes a lock; choose one that counts references";
            Err(invalid(text.to_owned()))
        }
    }
}

/// Limits of this size and distance, cut so that one reader leaves half of the frames to others and to demand.
pub(crate) fn readahead_for(memory_bytes: u64, size_bytes: u64, distance_bytes: u64) -> ReadaheadLimits {
    let defaults = ReadaheadLimits::default();
    let distance_bytes_max = distance_bytes.min(memory_bytes / 2);
    // Where memory cuts the distance, not more requests are fitted into it than were wanted.
    let depth = (distance_bytes / size_bytes).clamp(2, DEPTH_MIN);
    let size_bytes_max = size_bytes.min((distance_bytes_max / depth).next_power_of_two());
    let size_bytes_min = defaults.size_bytes_min.min(size_bytes_max);
    let share_bytes_max = memory_bytes / SHARE_DIVISOR;
    ReadaheadLimits { size_bytes_min, size_bytes_max, distance_bytes_max, share_bytes_max, ..defaults }
}

fn invalid(text: String) -> Error {
    Error::build(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Whatever keeps a page that as many keep already copies it. A frame counts to [`headwater_io::FilePages::PINS_MAX`], some
/// 64 000: the other half is for the threads that read the page at this moment, which wait for each other beyond it.
pub(crate) const LENT_TIMES_MAX: u32 = 32_768;

/// Lending a page allocates 72 bytes and pins it; copying less than this takes no longer.
pub(crate) const LENT_BYTES_MIN: usize = 512;

/// With little memory, requests shrink until this many fit the distance: depth matters more than size on devices with
/// queues (128 KiB × 16 reached 0.9 of the rate of 1 MiB × 32 on a virtio disk).
const DEPTH_MIN: u64 = 8;

/// Of the memory, what all streams of a file may have read ahead: enough for many streams at the full distance where
/// there is much, and never so much that what one reads pushes out what another is about to use.
const SHARE_DIVISOR: u64 = 4;
