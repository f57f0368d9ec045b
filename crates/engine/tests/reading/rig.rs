//! Rig: the same small engine on each driver, scratch files with known contents, and the check that nothing is left.
//!
//! Owns: the choice of drivers, the wait for abandoned requests.
//! Does not own: what is tested.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

pub(crate) use headwater::testing::{SimControl, SimOptions, uring_refusal};
pub(crate) use headwater::{DriverKind, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{PATIENCE, Pattern, ScratchDir, with_uring};
pub(crate) use headwater_testkit::{block_on, unparker, watched};

/// An engine on one driver.
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    /// Only on `sim`.
    pub(crate) control: Option<SimControl>,
}

impl Rig {
    /// 6 MiB, so that pressure is the rule, and 16 requests.
    pub(crate) fn new(kind: DriverKind) -> Rig {
        Rig::sized(kind, 6 << 20, 16)
    }

    pub(crate) fn sized(kind: DriverKind, memory_bytes: u64, queue_depth: u32) -> Rig {
        let control = match &kind {
            DriverKind::Sim(options) => Some(options.control.clone()),
            _ => None,
        };
        let builder = Engine::builder().memory(memory_bytes).queue_depth(queue_depth).driver(kind);
        Rig { engine: builder.build().unwrap(), control }
    }

    pub(crate) fn sim(seed: u64) -> Rig {
        Rig::new(DriverKind::Sim(SimOptions::hostile(seed)))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.engine.info().driver
    }

    pub(crate) fn control(&self) -> &SimControl {
        self.control.as_ref().expect("a rig on sim")
    }

    pub(crate) fn open(&self, path: &Path, mode: IoMode) -> File {
        OpenOptions::new().engine(&self.engine).io(mode).open(path).unwrap()
    }

    /// Every gauge goes back to zero. Abandoned requests are completed by the driver, so this waits for them; on `sim`
    /// time passes only with requests, so it makes some: `/proc/version` is never read through the page cache.
    pub(crate) fn assert_idle(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_idle() {
            assert!(Instant::now() < deadline, "still in use: {:?}", self.engine.stats());
            self.pass_time();
        }
    }

    pub(crate) fn pass_time(&self) {
        if self.control.is_some() {
            self.control().clear_faults();
            let clock = self.open(Path::new("/proc/version"), IoMode::Buffered);
            let _ = block_on(clock.read_at_async(0, 100));
        } else {
            thread::yield_now();
        }
    }

    fn is_idle(&self) -> bool {
        let stats = self.engine.stats();
        assert!(stats.arena.mapped_bytes <= stats.arena.budget_bytes, "I6: {stats:?}");
        stats.arena.used_bytes == 0
            && stats.driver.in_flight == 0
            && stats.driver.slots_used == 0
            && stats.lent_bytes == 0
    }
}

/// The drivers of this machine.
pub(crate) fn drivers(seed: u64) -> Vec<DriverKind> {
    let others = [DriverKind::Threads, DriverKind::Sim(SimOptions::hostile(seed))];
    with_uring(others, DriverKind::Uring, uring_refusal())
}

/// A simulated device that delivers at once, whole and without errors.
pub(crate) fn calm_device(seed: u64) -> DriverKind {
    let hostile = SimOptions::hostile(seed);
    DriverKind::Sim(SimOptions { delay_steps_max: 0, short_per_mille: 0, transient_per_mille: 0, ..hostile })
}

/// Such a device, 64 MiB, 64 requests.
pub(crate) fn calm(seed: u64) -> Rig {
    Rig::sized(calm_device(seed), 64 << 20, 64)
}

pub(crate) fn rigs(seed: u64) -> Vec<Rig> {
    drivers(seed).into_iter().map(Rig::new).collect()
}

/// A file with contents known by position, on the file system the project is built on.
pub(crate) struct Scratch {
    directory: ScratchDir,
    pub(crate) pattern: Pattern,
    pub(crate) length_bytes: u64,
}

impl Scratch {
    pub(crate) fn new(seed: u64, length_bytes: u64) -> Scratch {
        Scratch::on(ScratchDir::on_target().unwrap(), seed, length_bytes)
    }

    pub(crate) fn on(directory: ScratchDir, seed: u64, length_bytes: u64) -> Scratch {
        let scratch = Scratch { directory, pattern: Pattern::new(seed), length_bytes };
        scratch.pattern.write_file(scratch.path(), length_bytes).unwrap();
        scratch.make_cold();
        scratch
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    pub(crate) fn make_cold(&self) {
        headwater_testkit::make_cold(&self.file()).unwrap();
    }

    /// See [`headwater_testkit::let_age`].
    pub(crate) fn age(&self) {
        headwater_testkit::let_age(&self.path());
    }

    /// The file as the standard library has it, open for reading and writing.
    pub(crate) fn file(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.path()).unwrap()
    }

    /// `bytes` are those of the file from `offset_bytes` on.
    pub(crate) fn check(&self, offset_bytes: u64, bytes: &[u8]) {
        let end_bytes = offset_bytes + bytes.len() as u64;
        assert!(end_bytes <= self.length_bytes.max(offset_bytes), "bytes beyond the end: {end_bytes}");
        assert_eq!(self.pattern.mismatch(offset_bytes, bytes), None, "of {offset_bytes}..{end_bytes}");
    }

    /// The same where others truncate the file and write it again: a byte may be zero.
    pub(crate) fn check_or_zero(&self, offset_bytes: u64, bytes: &[u8]) {
        for (at, &byte) in (offset_bytes..).zip(bytes) {
            assert!(byte == 0 || byte == self.pattern.byte(at), "garbage at {at}");
        }
    }

    /// `bytes` are all that the file has in this range.
    pub(crate) fn check_all(&self, offset_bytes: u64, wanted_bytes: usize, bytes: &[u8]) {
        let left_bytes = self.length_bytes.saturating_sub(offset_bytes);
        assert_eq!(bytes.len() as u64, left_bytes.min(wanted_bytes as u64), "read at {offset_bytes}");
        self.check(offset_bytes, bytes);
    }
}
