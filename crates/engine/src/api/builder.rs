//! Builder: the settings of an engine.
//!
//! Owns: the settings, their bounds, the construction of an engine from its parts.
//! Does not own: the parts (`engine/`).

use std::io;
use std::sync::{Arc, Mutex};

use headwater_core::limits::Limits;
use headwater_core::readahead::{LimitsError, ReadaheadLimits, ReadaheadPolicy};
use headwater_core::replacement::Policy;
use headwater_io::{
    Arena, Driver, DriverKind, DriverOptions, Notices, Polling, Pressure, RingOperations, SubmissionPolling,
    system_memory_bytes,
};

use crate::api::ending;
use crate::api::upcalls::UPCALLS;
use crate::base::error::{Error, Result};
use crate::engine::background::{BackgroundThread, Presence};
use crate::engine::cache::CacheParts;
use crate::engine::lease_thread::Leases;
use crate::engine::lending::Lending;
use crate::engine::profiles::{Profiles, Tuned, readahead_for};
use crate::engine::reclaim::Elasticity;
use crate::engine::shortage::LookAgain;
use crate::engine::{Engine, Shared};

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
    #[cfg(feature = "testing")]
    pressure_root: Option<std::path::PathBuf>,
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
}

impl EngineBuilder {
    /// The most memory that the engine may use, in bytes, 3 MiB or more. Default: as much as is free, as the kernel's page cache
    /// does it. Memory is mapped on demand while the system and the cgroups of this process have some to spare, and returned when
    /// they run short ([`EngineBuilder::elasticity`]); [`Stats::memory`](crate::Stats::memory) says how much that is, and why.
    ///
    /// Engines that cannot follow the system have 64 MiB by default: with [`Elasticity::Off`], those built by
    /// [`EngineBuilder::local`], because they have no thread that would return memory, and those on the driver `sim`.
    ///
    /// An idle reader keeps what it has read ahead, at least one page of 4 KiB. Idle readers fit in the eighth of the budget, 16 MiB
    /// at most, that readahead leaves free: 64 of them with 3 MiB, nearly 2000 with 64 MiB, 4000 with more. With more of them, all
    /// idle at once, further reads wait until one continues or is dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// let engine = headwater::Engine::builder().build()?;
    /// let memory = engine.stats().memory;
    /// assert!(memory.mapped_bytes <= memory.possible_bytes && memory.possible_bytes <= memory.ceiling_bytes);
    /// println!("{} of {} MiB, bounded by {}", memory.mapped_bytes >> 20, memory.possible_bytes >> 20, memory.bound.name());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Whether memory use follows what the system has to spare. Default [`Elasticity::On`]. The cgroups are determined when the
    /// engine is built.
    pub fn elasticity(mut self, elasticity: Elasticity) -> Self {
        self.elasticity = elasticity;
        self
    }

    /// Maximum number of requests in flight, 1 to 4096; further requests queue in order of arrival. Default 128. Files of network file
    /// systems and FUSE have a queue of their own with as many places.
    pub fn queue_depth(mut self, requests: u32) -> Self {
        self.queue_depth = Some(requests);
        self
    }

    /// Which driver. Default: `uring` where allowed, else `threads`.
    pub fn driver(mut self, driver: DriverKind) -> Self {
        self.driver = driver;
        self
    }

    /// Number of rings that share the queue depth. Default: one for each processor, as long as each has at least 32 requests.
    ///
    /// ```
    /// use headwater::{DriverKind, Engine, Polling, ReadaheadLimits, ReadaheadPolicy, ReplacementPolicy, SubmissionPolling};
    /// let engine = Engine::builder()
    ///     .memory(64 << 20)
    ///     .driver(DriverKind::Auto)
    ///     .rings(1)
    ///     .polling(Polling::Off)
    ///     .submission_polling(SubmissionPolling::Off)
    ///     .readahead(ReadaheadLimits { size_bytes_max: 256 << 10, ..ReadaheadLimits::default() })
    ///     .readahead_policy(ReadaheadPolicy::Fixed(16))
    ///     .replacement(ReplacementPolicy::S3Fifo)
    ///     .build()?;
    /// assert!(engine.info().rings <= 1);
    /// # Ok::<(), headwater::Error>(())
    /// ```
    pub fn rings(mut self, rings: u32) -> Self {
        self.rings = Some(rings);
        self
    }

    /// Whether to use polled I/O on devices that support it. Blocking requests of up to 256 KiB run in the calling thread without
    /// a ring, and are not polled.
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// Whether a kernel thread for each ring polls for submissions (`IORING_SETUP_SQPOLL`). Each such thread occupies a
    /// processor: worth trying where processors are idle and submission is the bottleneck.
    pub fn submission_polling(mut self, submission_polling: SubmissionPolling) -> Self {
        self.submission_polling = submission_polling;
        self
    }

    /// How far ahead and in which sizes readers read, on all devices. Default: the profile of the file's device, else up to 1 MiB
    /// a request and 8 MiB ahead; less with a small memory budget.
    pub fn readahead(mut self, limits: ReadaheadLimits) -> Self {
        self.readahead = Some(limits);
        self
    }

    /// Where the engine finds the device profiles that `headwater tune` measures and stores. Read once, when the engine is built;
    /// a device is looked up when its first file is opened. Limits set by [`EngineBuilder::readahead`] override profiles. An
    /// unusable profile file is reported through `tracing` and otherwise ignored.
    ///
    /// ```
    /// use headwater::{Engine, OpenOptions, Profiles, ReadaheadLimits};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, b"abc")?;
    /// let engine = Engine::builder().profiles(Profiles::Off).build()?;
    /// assert_eq!(engine.info().profiles, 0);
    /// let file = OpenOptions::new().engine(&engine).open(&path)?;
    /// let longest = file.readahead_limits().map(|limits| limits.size_bytes_max);
    /// assert_eq!(longest, Some(ReadaheadLimits::default().size_bytes_max));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn profiles(mut self, profiles: Profiles) -> Self {
        self.profiles = profiles;
        self
    }

    /// The readahead policy of cached files, unless [`OpenOptions::readahead`](crate::OpenOptions::readahead) names another.
    /// Default [`ReadaheadPolicy::Adaptive`]. The distance of [`ReadaheadPolicy::Fixed`] is at most that of the file's limits.
    pub fn readahead_policy(mut self, policy: ReadaheadPolicy) -> Self {
        self.readahead_policy = policy;
        self
    }

    /// Which pages are evicted first. Default [`Policy::Clock2QPlus`]; the others exist for comparison.
    pub fn replacement(mut self, policy: Policy) -> Self {
        self.replacement = policy;
        self
    }

    /// Where the engine finds `proc/meminfo` and the cgroups that limit its memory, in place of `/`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let root = dir.path();
    /// std::fs::create_dir(root.join("proc"))?;
    /// std::fs::write(root.join("proc/meminfo"), "MemTotal: 65536 kB\nMemAvailable: 1024 kB\n")?;
    /// let engine = headwater::Engine::builder().memory(64 << 20).pressure_below(root).build()?;
    /// let memory = engine.stats().memory;
    /// assert_eq!((memory.possible_bytes, memory.bound.name()), (4 << 20, "system"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "testing")]
    pub fn pressure_below(mut self, root: &std::path::Path) -> Self {
        self.pressure_root = Some(root.to_owned());
        self
    }

    /// Builds the engine. Maps no frame memory yet. Some system calls, and a read of the stored profiles; waits for nothing else.
    ///
    /// ```
    /// use headwater::Engine;
    /// let engine = Engine::builder().memory(16 << 20).queue_depth(32).build()?;
    /// assert_eq!(engine.info().queue_depth, 32);
    /// assert!(Engine::builder().queue_depth(0).build().is_err(), "a queue of none");
    /// # Ok::<(), headwater::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for a setting out of range (for one, a readahead size of more than 2 MiB, or a fixed distance of 0), an unknown `HEADWATER_DRIVER`,
    /// or a replacement policy that needs to see every hit ([`Policy::Lru`]); the kernel's reason when [`DriverKind::Uring`] is
    /// demanded and refused.
    pub fn build(self) -> Result<Engine> {
        let options = self.driver_options()?;
        let presence = match options.kind {
            DriverKind::Sim(_) => Presence::Absent,
            _ => Presence::Present,
        };
        let engine = self.build_with(presence, || Driver::new(&options))?;
        ending::flush_at_exit(&engine).map_err(Error::build)?;
        Ok(engine)
    }

    pub(crate) fn driver_options(&self) -> Result<DriverOptions> {
        Ok(DriverOptions {
            kind: self.driver.clone().or_environment().map_err(Error::build)?,
            queue_depth: self.queue_depth.unwrap_or(Limits::QUEUE_DEPTH_DEFAULT),
            rings: self.rings,
            polling: self.polling,
            submission_polling: self.submission_polling,
            operations: RingOperations::Transfers,
        })
    }

    pub(crate) fn build_with(
        self,
        presence: Presence,
        driver: impl FnOnce() -> io::Result<Driver>,
    ) -> Result<Engine> {
        let Memory { ceiling_bytes: memory_bytes, planned_bytes } = self.memory_for(presence);
        check_memory(memory_bytes)?;
        check_replacement(self.replacement)?;
        let defaults = ReadaheadLimits::default();
        let readahead = self.readahead.unwrap_or_else(|| {
            readahead_for(planned_bytes, defaults.size_bytes_max, defaults.distance_bytes_max)
        });
        let tuned = self.tuned(planned_bytes);
        readahead.validate().map_err(|error| invalid(error.to_string()))?;
        check_size(readahead.size_bytes_max).map_err(invalid)?;
        if self.readahead_policy == ReadaheadPolicy::Fixed(0) {
            return Err(invalid(LimitsError::FixedBeyondDistance.to_string()));
        }
        let driver = driver().map_err(Error::build)?;
        let arena = match self.elasticity {
            Elasticity::On => Arena::elastic(memory_bytes as usize, self.pressure()),
            Elasticity::Off => Arena::new(memory_bytes as usize),
        };
        let arena = arena.map_err(|error| invalid(error.to_string()))?;
        driver.register_memory(&arena);
        let background = BackgroundThread::new(presence);
        if let Some(waker) = background.waker() {
            arena.prepare_by(waker);
        }
        let cache = CacheParts::new(&arena, &driver, self.replacement);
        let shared = Shared {
            lending: Lending::new(&cache.pages, arena.stats().budget_bytes),
            cache,
            arena,
            driver,
            readahead,
            tuned,
            readahead_policy: self.readahead_policy,
            background,
            leases: Leases::default(),
            watch: Arc::default(),
            memory_bytes,
            relieving: Mutex::default(),
            look_again: LookAgain::default(),
            on_demand: Mutex::default(),
            notices: Notices::default(),
            upcalls: UPCALLS,
        };
        Ok(Engine::new(shared))
    }

    fn pressure(&self) -> Pressure {
        #[cfg(feature = "testing")]
        if let Some(root) = &self.pressure_root {
            return Pressure::at(root);
        }
        Pressure::new()
    }

    /// The budget, and what readahead is planned for. Without a number the engine has to follow what the system has to spare, and
    /// needs a thread for that.
    fn memory_for(&self, presence: Presence) -> Memory {
        let follows = self.elasticity == Elasticity::On && presence == Presence::Present;
        match self.memory_bytes {
            None if follows => {
                let ceiling_bytes = system_memory_bytes();
                let ceiling_bytes = ceiling_bytes.clamp(Limits::MEMORY_BYTES_MIN, Limits::MEMORY_BYTES_MAX);
                Memory { ceiling_bytes, planned_bytes: ceiling_bytes.min(Limits::MEMORY_BYTES_PLANNED) }
            }
            number => {
                let bytes = number.unwrap_or(Limits::MEMORY_BYTES_DEFAULT);
                Memory { ceiling_bytes: bytes, planned_bytes: bytes }
            }
        }
    }

    /// The profiles, unless explicit limits or a simulated driver make them irrelevant.
    fn tuned(&self, memory_bytes: u64) -> Option<Tuned> {
        // A simulation has to behave the same on every machine.
        let is_simulated = matches!(self.driver, DriverKind::Sim(_)) && self.profiles == Profiles::Default;
        let is_decided = self.readahead.is_some() || is_simulated;
        if is_decided { None } else { Tuned::load(&self.profiles, memory_bytes) }
    }
}

/// How much memory an engine has.
struct Memory {
    ceiling_bytes: u64,
    /// What readahead counts on.
    planned_bytes: u64,
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

/// A readahead request has to fit into one extent.
pub(crate) fn check_size(size_bytes_max: u64) -> std::result::Result<(), String> {
    let most = Limits::RUN_BYTES_MAX;
    if size_bytes_max > most {
        return Err(format!("a readahead size of {size_bytes_max} bytes is more than {most}"));
    }
    Ok(())
}

/// A hit only sets reference bits in the page's word; there is no hook by which a policy could move the page in a list.
fn check_replacement(policy: Policy) -> Result<()> {
    match policy {
        Policy::Clock2QPlus | Policy::Clock | Policy::S3Fifo => Ok(()),
        _ => {
            let reason = "needs to see every hit, which takes a lock; choose one that counts references";
            Err(invalid(format!("the replacement {policy} {reason}")))
        }
    }
}

fn invalid(text: String) -> Error {
    Error::build(io::Error::new(io::ErrorKind::InvalidInput, text))
}
