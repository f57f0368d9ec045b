//! Bench: a driver, an arena and a file with known contents.
//!
//! Owns: building requests, checking what came back, the wait for gauges to return to zero.
//! Does not own: what is tested.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_io::{
    Access, Arena, Completion, DirectIo, Direction, Driver, DriverKind, DriverOptions, Extents, Finished,
    OpenFile, Request, RingOperations, Route, SimOptions, Transfer, Urgency, uring_refusal,
};
use headwater_testkit::{PATIENCE, Pattern, Rng, ScratchDir, make_cold, with_uring};
pub(crate) use headwater_testkit::{block_on, watched};

pub(crate) struct Bench {
    pub(crate) driver: Driver,
    pub(crate) arena: Arena,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) pattern: Pattern,
    pub(crate) directory: ScratchDir,
}

impl Bench {
    pub(crate) fn new(kind: DriverKind, queue_depth: u32, seed: u64) -> Bench {
        Bench::with(&DriverOptions { kind, queue_depth, ..DriverOptions::default() }, seed)
    }

    pub(crate) fn with(options: &DriverOptions, seed: u64) -> Bench {
        let directory = ScratchDir::on_target().unwrap();
        let (path, pattern) = (directory.path().join("file"), Pattern::new(seed));
        pattern.write_file(&path, LENGTH_BYTES).unwrap();
        make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
        let file = Arc::new(OpenFile::open(&path, DirectIo::Preferred, Access::ReadWrite).unwrap());
        let driver = Driver::new(options).unwrap();
        Bench { driver, arena: Arena::new(9 << 20).unwrap(), file, pattern, directory }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    pub(crate) fn route(&self) -> Route {
        if self.file.direct().is_some() { Route::Direct } else { Route::Buffered }
    }

    /// Uses the file once, which opens its direct descriptor.
    pub(crate) fn open_all(&self) {
        let mut extent = self.arena.allocate(PAGE_SIZE_BYTES as usize, Urgency::Demand).unwrap();
        self.file.read_blocking(self.route(), &mut extent, 0).unwrap();
    }

    /// Memory may be refused for a moment, while other threads map what there is.
    pub(crate) fn request(&self, offset_bytes: u64, length_bytes: usize) -> Transfer {
        loop {
            let freed = self.arena.freed();
            if let Some(extents) = self.arena.allocate_run(length_bytes, Urgency::Demand) {
                return self.request_into(offset_bytes, length_bytes, extents);
            }
            freed.wait();
        }
    }

    pub(crate) fn request_into(&self, offset_bytes: u64, length_bytes: usize, extents: Extents) -> Transfer {
        let (direction, file, route) = (Direction::Read, self.file.clone(), self.route());
        Transfer { direction, file, route, offset_bytes, length_bytes, extents }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.driver.info().name
    }

    pub(crate) fn submit(&self, request: impl Into<Request>) -> Completion {
        self.driver.submit(request, Urgency::Demand).expect("demand is accepted")
    }

    /// Pages somewhere in the file: offset and length.
    pub(crate) fn draw(&self, rng: &mut Rng, pages_max: u64) -> (u64, usize) {
        let pages = 1 + rng.below(pages_max);
        (
            rng.below(LENGTH_BYTES / PAGE_SIZE_BYTES - pages) * PAGE_SIZE_BYTES,
            (pages * PAGE_SIZE_BYTES) as usize,
        )
    }

    pub(crate) fn check(&self, offset_bytes: u64, length_bytes: usize, finished: &Finished) {
        assert_eq!(finished.result.as_ref().unwrap(), &length_bytes);
        let bytes: Vec<u8> = finished.extents.iter().flat_map(|extent| extent.iter().copied()).collect();
        assert_eq!(self.pattern.mismatch(offset_bytes, &bytes[..length_bytes]), None);
    }

    /// All gauges return to zero, once what was abandoned is done.
    pub(crate) fn assert_idle(&self) {
        self.driver.attend();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (stats, arena) = (self.driver.stats(), self.arena.stats());
            if stats.in_flight == 0 && stats.slots_used == 0 && arena.used_bytes == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "still in use: {stats:?} {arena:?}");
            thread::yield_now();
        }
    }
}

/// The drivers of this machine.
pub(crate) fn drivers(seed: u64) -> Vec<DriverKind> {
    let others = [DriverKind::Threads, DriverKind::Sim(SimOptions::hostile(seed))];
    with_uring(others, DriverKind::Uring, uring_refusal())
}

pub(crate) fn errno(result: &io::Result<usize>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

pub(crate) const LENGTH_BYTES: u64 = 8 << 20;

/// How long who wants a soak wants it for.
pub(crate) fn chaos_seconds() -> Option<u64> {
    let text = std::env::var("HEADWATER_CHAOS_SECONDS").ok()?;
    Some(text.parse().expect("HEADWATER_CHAOS_SECONDS is a number of seconds"))
}

/// Runs the test again in a process of its own and says whether this is that process.
pub(crate) fn in_child(test_name: &str) -> bool {
    const CHILD: &str = "HEADWATER_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = headwater_testkit::run_self_with_env(test_name, CHILD, "1");
    assert!(output.status.success(), "{output:?}");
    false
}

/// Every driver, and a ring that leaves all of this to worker threads.
pub(crate) fn all_kinds(seed: u64) -> Vec<Bench> {
    let mut all = Vec::new();
    for kind in drivers(seed) {
        for operations in [RingOperations::Calls, RingOperations::Transfers] {
            if operations == RingOperations::Calls || matches!(kind, DriverKind::Uring) {
                let kind = kind.clone();
                all.push(Bench::with(
                    &DriverOptions { kind, operations, queue_depth: 4, ..Default::default() },
                    seed,
                ));
            }
        }
    }
    all
}

pub(crate) fn is_closed_on_exec(file: &OwnedFd) -> bool {
    rustix::io::fcntl_getfd(file).unwrap().contains(rustix::io::FdFlags::CLOEXEC)
}

pub(crate) fn errno_of(result: io::Result<()>) -> i32 {
    result.unwrap_err().raw_os_error().expect("an error of the kernel")
}
