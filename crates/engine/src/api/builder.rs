//! Builder: the settings of an engine.
//!
//! Owns: which settings there are, their bounds, how the parts are put together.
//! Does not own: the parts.

use std::io;
use std::sync::{Arc, Mutex};

use headwater_core::limits::Limits;
use headwater_core::readahead::{ReadaheadLimits, ReadaheadPolicy};
use headwater_core::replacement::Policy;
use headwater_io::{
    Arena, Driver, DriverKind, DriverOptions, LocalDriver, Polling, Pressure, SubmissionPolling,
};

use crate::api::local::LocalEngine;
use crate::api::upcalls::UPCALLS;
use crate::base::error::{Error, Result};
use crate::engine::background::{BackgroundThread, Presence};
use crate::engine::cache::CacheParts;
use crate::engine::lease_thread::Leases;
use crate::engine::lending::Lending;
use crate::engine::profiles::{Profiles, Tuned, readahead_for};
use crate::engine::reclaim::Elasticity;
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
        let shared = Shared {
            cache: CacheParts::new(&arena, &driver, self.replacement),
            lending: Lending::new(arena.stats().budget_bytes),
            arena,
            driver,
            readahead,
            tuned,
            readahead_policy: self.readahead_policy,
            background: BackgroundThread::new(presence),
            leases: Leases::default(),
            watch: Arc::default(),
            memory_bytes,
            relieving: Mutex::default(),
            upcalls: UPCALLS,
        };
        Ok(Engine::new(shared))
    }

    /// The profiles, where they count.
    fn tuned(&self, memory_bytes: u64) -> Option<Tuned> {
        // What is simulated has to be the same on every machine.
        let is_simulated = matches!(self.driver, DriverKind::Sim(_)) && self.profiles == Profiles::Default;
        let is_decided = self.readahead.is_some() || is_simulated;
        if is_decided { None } else { Tuned::load(&self.profiles, memory_bytes) }
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

fn invalid(text: String) -> Error {
    Error::build(io::Error::new(io::ErrorKind::InvalidInput, text))
}
