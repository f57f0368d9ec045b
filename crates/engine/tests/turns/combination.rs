//! Combinations: file systems, drivers and the ways in which a file is opened, all of them with each other.
//!
//! Owns: the list, opening a file in one of these ways.
//! Does not own: what is done with it.

use std::path::Path;

use headwater::testing::uring_refusal;
use headwater::{Caching, Coherence, DriverKind, Engine, Error, File, IoMode, OpenOptions};
use headwater_testkit::{ScratchDir, scratch_dirs, with_uring};

use crate::api::LEVELS;

/// A way to have a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combination {
    /// Index of a directory.
    pub(crate) place: usize,
    pub(crate) driver: Driver,
    pub(crate) level: Coherence,
    pub(crate) caching: Caching,
    pub(crate) mode: IoMode,
}

/// The drivers that are tested: real ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Driver {
    Uring,
    Threads,
}

/// What a handle is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    Reading,
    Writing,
}

impl Combination {
    pub(crate) fn name(&self, places: &[(&'static str, ScratchDir)]) -> String {
        let Combination { place, driver, level, caching, mode } = self;
        format!("{} {driver:?} {level:?} caching {caching:?} I/O {mode:?}", places[*place].0).to_lowercase()
    }

    pub(crate) fn engine(&self, memory_bytes: u64) -> Engine {
        engine_on(self.driver, memory_bytes)
    }

    pub(crate) fn options(&self, engine: &Engine) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.engine(engine).caching(self.caching).io(self.mode).coherence(self.level);
        options
    }

    pub(crate) fn open(&self, engine: &Engine, path: &Path, purpose: For) -> Result<File, Error> {
        let mut options = self.options(engine);
        if purpose == For::Writing {
            options.write(true);
        }
        options.open(path)
    }

    /// Whether this place has what the combination asks for.
    fn is_possible(&self, places: &[(&'static str, ScratchDir)], engine: &Engine) -> bool {
        let path = places[self.place].1.path().join("possible");
        std::fs::write(&path, "once").unwrap();
        let opened = self.open(engine, &path, For::Writing);
        opened.is_ok()
    }
}

pub(crate) fn engine_on(driver: Driver, memory_bytes: u64) -> Engine {
    let kind = match driver {
        Driver::Uring => DriverKind::Uring,
        Driver::Threads => DriverKind::Threads,
    };
    Engine::builder().memory(memory_bytes).queue_depth(16).driver(kind).build().unwrap()
}

/// Directories on ext4, XFS, Btrfs and tmpfs, as far as they are to be had.
pub(crate) fn places() -> Vec<(&'static str, ScratchDir)> {
    let mut places = scratch_dirs();
    if places.iter().any(|(name, _)| *name == "ext4") {
        places.retain(|(name, _)| *name != "default");
    }
    places
}

pub(crate) fn drivers() -> Vec<Driver> {
    with_uring([Driver::Threads], Driver::Uring, uring_refusal())
}

/// Every combination that these places have.
pub(crate) fn combinations(places: &[(&'static str, ScratchDir)]) -> Vec<Combination> {
    let engine = engine_on(Driver::Threads, 3 << 20);
    let mut found = Vec::new();
    for (place, driver) in
        (0..places.len()).flat_map(|place| drivers().into_iter().map(move |driver| (place, driver)))
    {
        for &(level, caching, mode) in &ways() {
            found.push(Combination { place, driver, level, caching, mode });
        }
    }
    found.retain(|combination| combination.is_possible(places, &engine));
    found
}

/// The ways to open a file.
pub(crate) fn ways() -> Vec<(Coherence, Caching, IoMode)> {
    let mut ways = Vec::new();
    for &level in LEVELS {
        for caching in [Caching::Auto, Caching::On, Caching::Off] {
            for mode in [IoMode::Auto, IoMode::Buffered, IoMode::Direct] {
                ways.push((level, caching, mode));
            }
        }
    }
    ways
}
