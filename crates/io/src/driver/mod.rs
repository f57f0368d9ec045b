//! Driver: queues of requests, which one of three backends carries out.
//!
//! ```text
//!   submit ──► queue: the thread's own, or the least loaded ──► slot ─┬─ uring:   SQE, io_uring_enter
//!                                                                    ├─ threads: queue, preadv/pwritev on a worker
//!                                                                    └─ sim:     seeded order, delays, faults
//!   queues of a uring driver: a ring for each processor; polled ones beside them for devices that poll
//!   files that a server answers for: a queue with worker threads of its own
//! ```
//!
//! Owns: the queues, and the choice of one for each request; calls that are carried out at once, in the calling thread.
//! Does not own: which driver there is (choice), the ways to submit (completion, plug, batch, calling), request state (slots),
//! memory (arena), the work of a queue.
//! Invariants: I4 dropping a [`Driver`] at any moment frees nothing that the device still uses.

pub(crate) mod batch;
pub(crate) mod calling;
pub(crate) mod choice;
pub(crate) mod completion;
pub(crate) mod local;
pub(crate) mod plug;
pub(crate) mod queue;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use headwater_core::units::ByteRange;

use crate::backend::sim::Sim;
use crate::backend::uring::{DevicePolling, Sharing, polled_read_works};
use crate::driver::choice::{Choice, DriverKind, DriverOptions, Polling};
use crate::driver::queue::{Backend, Queue};
use crate::file::{Allocated, AppendFile, Appended, OpenFile, Route};
use crate::memory::arena::{Arena, ArenaKey};
use crate::request::Request;
use crate::system::fork::ProcessMark;
use crate::system::reject::RejectReason;
use crate::system::sys::SyncScope;

/// The features that a driver has got.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DriverInfo {
    /// `"uring"`, `"threads"` or `"sim"`.
    pub name: &'static str,
    /// Why [`DriverKind::Auto`](crate::DriverKind::Auto) could not use io_uring.
    pub uring_refusal: Option<String>,
    /// Rings, 0 for other drivers.
    pub rings: u32,
    /// Rings that poll the device; 0 before a file on a device that supports polling is used.
    pub polled_rings: u32,
    /// Why the kernel refused rings that poll, so that ordinary ones take their place.
    pub polling_refusal: Option<String>,
    /// Whether the kernel posts completions only when the owning thread enters the ring (`IORING_SETUP_DEFER_TASKRUN`).
    pub completions_deferred: bool,
    /// Memory registered with the rings, in bytes; see [`Driver::register_memory`].
    pub registered_bytes: u64,
    /// Why the kernel refused to register more.
    pub registration_refusal: Option<String>,
    /// Requests in flight at most.
    pub queue_depth: u32,
}

/// A driver's gauges and counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DriverStats {
    /// Requests in flight, abandoned ones included.
    pub in_flight: usize,
    /// Requests that wait for a place in the queue.
    pub queued: usize,
    /// Requests whose memory the driver holds: queued, in flight, or done and not taken yet.
    pub slots_used: usize,
    /// Calls of `io_uring_enter` so far.
    pub enters: u64,
    /// Completions so far that named no request under way, and were ignored. More than 0 only if the kernel errs.
    pub unmatched_completions: u64,
    /// Waits for a read that ended because the thread that submitted it was stuck in the kernel, or got no processor for some
    /// milliseconds. Each may read the same bytes again.
    pub stuck_waits: u64,
}

/// Carries out requests. Clones share the driver; the last one waits for what is still in flight.
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    /// Chosen by the first request where no refusal of the kernel is an error: a ring takes ten system calls.
    chosen: OnceLock<Choice>,
    polled: OnceLock<Result<Box<[Arc<Queue>]>, String>>,
    /// One queue, for files that a server answers for: requests without an answer take no place that others need, neither here nor in
    /// the kernel, which has a few threads for those that it cannot begin without blocking.
    servers: OnceLock<Box<[Arc<Queue>]>>,
    memory: OnceLock<ArenaKey>,
    options: DriverOptions,
    sharing: Sharing,
    mark: ProcessMark,
}

impl Driver {
    /// Builds a driver. With [`DriverKind::Auto`](crate::DriverKind::Auto) a refused ring is no error; [`Driver::info`] tells why. The
    /// rings or threads of such a driver are set up when the first request needs them.
    ///
    /// # Errors
    /// `InvalidInput` for a queue depth or a number of rings out of range; with [`DriverKind::Uring`](crate::DriverKind::Uring) what the kernel
    /// reports.
    pub fn new(options: &DriverOptions) -> io::Result<Driver> {
        Driver::shared_by(Sharing::AnyThread, options)
    }

    fn shared_by(sharing: Sharing, options: &DriverOptions) -> io::Result<Driver> {
        choice::check(options, sharing)?;
        let chosen = match (&options.kind, sharing) {
            (DriverKind::Auto, Sharing::AnyThread) => OnceLock::new(),
            _ => OnceLock::from(choice::choose(options, sharing)?),
        };
        Ok(Driver::of_choice(chosen, options.clone(), sharing))
    }

    fn of_choice(chosen: OnceLock<Choice>, options: DriverOptions, sharing: Sharing) -> Driver {
        let (polled, servers, memory) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let mark = ProcessMark::here();
        Driver { inner: Arc::new(Inner { chosen, polled, servers, memory, options, sharing, mark }) }
    }

    /// A driver of a queue that a test has built.
    #[cfg(all(test, not(headwater_loom)))]
    pub(crate) fn of_queue(queue: Queue) -> Driver {
        let options = DriverOptions { polling: Polling::Off, ..DriverOptions::default() };
        let choice = Choice { queues: Box::new([Arc::new(queue)]), refusal: None };
        Driver::of_choice(OnceLock::from(choice), options, Sharing::AnyThread)
    }

    /// Injects these faults into each ring, once.
    ///
    /// # Panics
    /// When that was called before.
    #[cfg(all(feature = "faults", not(headwater_loom)))]
    pub fn inject(&self, faults: &crate::KernelFaults) {
        self.ordinary_queues();
        self.all_queues().for_each(|queue| queue.inject(faults));
    }

    /// The kind of driver, and why a requested feature is not in use. Sets up what the first request would.
    pub fn info(&self) -> DriverInfo {
        let Choice { queues, refusal } = self.chosen();
        let (name, rings, completions_deferred) = match &queues[0].backend {
            Backend::Uring(uring) => ("uring", queues.len() as u32, uring.is_deferred()),
            Backend::Threads(_) => ("threads", 0, false),
            Backend::Sim(_) => ("sim", 0, false),
        };
        let (polled_rings, polling_refusal) = match self.inner.polled.get() {
            None => (0, None),
            Some(Ok(queues)) => (queues.len() as u32, None),
            Some(Err(reason)) => (0, Some(reason.clone())),
        };
        let memory = || self.all_queues().filter_map(|queue| queue.registered_memory());
        DriverInfo {
            name,
            registered_bytes: memory().map(|(bytes, _)| bytes).max().unwrap_or(0),
            registration_refusal: memory().find_map(|(_, refusal)| refusal).map(str::to_owned),
            uring_refusal: refusal.clone(),
            rings,
            polled_rings,
            polling_refusal,
            completions_deferred,
            queue_depth: self.inner.options.queue_depth,
        }
    }

    /// From now on, rings register each 2 MiB of this arena on first use, up to the limit of locked memory, so that the kernel need
    /// not look up pages for each request. Only one arena can be registered; others work as before. Drivers other than `uring`
    /// ignore this.
    pub fn register_memory(&self, arena: &Arena) {
        let key = self.inner.memory.get_or_init(|| arena.key());
        self.all_queues().for_each(|queue| queue.register_memory(key.clone()));
    }

    /// Descriptors that are readable when requests of its rings are done, for a thread that waits for something else at the same time
    /// and then asks [`Calling::is_done`](crate::Calling::is_done). Worker threads carry out requests for files of network file systems
    /// and FUSE, which make none readable. None without a ring, in a forked child, and where the kernel refuses a ring from now on: worker
    /// threads carry out what it has not taken. Such a refusal while the thread waits makes none of them readable.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all_queues().filter(|queue| !queue.is_forked()).filter_map(|queue| match &queue.backend {
            Backend::Uring(uring) => uring.readable(),
            Backend::Threads(_) | Backend::Sim(_) => None,
        })
    }

    /// Ensures that abandoned requests are completed although no caller waits for them.
    pub fn attend(&self) {
        if !self.is_forked() {
            self.all_queues().filter(|queue| queue.slots.in_flight() > 0).for_each(|queue| queue.attend());
        }
    }

    /// Completes requests of a local ring, for `limit` at most, if any are under way: on such a driver only its own thread does.
    /// Returns whether there were any. On other drivers there never are: [`Driver::attend`] has them completed.
    ///
    /// # Panics
    /// On a local driver when called by another thread than the one that built it.
    pub fn reap_own(&self, limit: Duration) -> bool {
        if self.inner.sharing != Sharing::Local || self.is_forked() {
            return false;
        }
        self.check_thread();
        self.all_queues().fold(false, |reaped, queue| queue.reap(limit) | reaped)
    }

    /// The time; on `sim` ahead by as much as a test has advanced it.
    pub fn now(&self) -> Instant {
        Instant::now() + self.sim().map_or(Duration::ZERO, Sim::ahead)
    }

    /// Whether this process is a forked child of the one that built the driver. Every operation is refused then.
    pub fn is_forked(&self) -> bool {
        !self.inner.mark.is_here()
    }

    /// Reads into borrowed memory in this thread; see [`OpenFile::read_blocking`].
    ///
    /// # Errors
    /// Those of [`OpenFile::read_blocking`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    ///
    /// # Panics
    /// When [`OpenFile::read_blocking`] does.
    pub fn read_blocking(
        &self,
        file: &OpenFile,
        route: Route,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> io::Result<usize> {
        match self.simulation()? {
            Some(sim) => sim.read_blocking(file, route, buffer, offset_bytes),
            None => file.read_blocking(route, buffer, offset_bytes),
        }
    }

    /// Reads from the beginning of a small file into borrowed, aligned memory, around the kernel's page cache, in this thread: with
    /// the ordinary descriptor, if nothing has used the file before. Once, so the end is not looked for.
    ///
    /// # Errors
    /// As [`Driver::read_blocking`].
    ///
    /// # Panics
    /// When [`OpenFile::read_blocking`] does.
    pub fn read_direct_first(&self, file: &OpenFile, buffer: &mut [u8]) -> io::Result<usize> {
        match self.simulation()? {
            Some(sim) => sim.read_blocking(file, Route::Direct, buffer, 0),
            None => file.read_direct_first(buffer),
        }
    }

    /// Writes borrowed memory in this thread; see [`OpenFile::write_blocking`].
    ///
    /// # Errors
    /// Those of [`OpenFile::write_blocking`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    ///
    /// # Panics
    /// When [`OpenFile::write_blocking`] does.
    pub fn write_blocking(
        &self,
        file: &OpenFile,
        route: Route,
        bytes: &[u8],
        offset_bytes: u64,
    ) -> io::Result<usize> {
        match self.simulation()? {
            Some(sim) => sim.write_blocking(file, route, bytes, offset_bytes),
            None => file.write_blocking(route, bytes, offset_bytes),
        }
    }

    /// Writes borrowed memory to the end of the file, in this thread; see [`AppendFile::append`].
    ///
    /// # Errors
    /// Those of [`AppendFile::append`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    pub fn append_blocking(&self, file: &AppendFile, bytes: &[u8]) -> io::Result<Appended> {
        match self.simulation()? {
            Some(sim) => sim.append(file, bytes),
            None => file.append(bytes),
        }
    }

    /// Writes the file back to its device, in this thread; see [`OpenFile::sync`].
    ///
    /// # Errors
    /// Those of [`OpenFile::sync`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    pub fn sync_blocking(&self, file: &OpenFile, scope: SyncScope) -> io::Result<()> {
        match self.simulation()? {
            Some(sim) => sim.sync_blocking(file, scope),
            None => file.sync(scope),
        }
    }

    /// Truncates or extends the file; see [`OpenFile::set_len`].
    ///
    /// # Errors
    /// Those of [`OpenFile::set_len`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    pub fn set_len_blocking(&self, file: &OpenFile, length_bytes: u64) -> io::Result<()> {
        match self.simulation()? {
            Some(sim) => sim.set_len(file, length_bytes),
            None => file.set_len(length_bytes),
        }
    }

    /// Sets space aside; see [`OpenFile::allocate`].
    ///
    /// # Errors
    /// Those of [`OpenFile::allocate`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    pub fn allocate_blocking(&self, file: &OpenFile, range: ByteRange) -> io::Result<Allocated> {
        match self.simulation()? {
            Some(sim) => sim.allocate(file, range),
            None => file.allocate(range),
        }
    }

    /// Sets space aside and leaves the length; see [`OpenFile::reserve`].
    ///
    /// # Errors
    /// Those of [`OpenFile::reserve`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    pub fn reserve_blocking(&self, file: &OpenFile, range: ByteRange) -> io::Result<Allocated> {
        match self.simulation()? {
            Some(sim) => sim.reserve(file, range),
            None => file.reserve(range),
        }
    }

    /// Makes a hole; see [`OpenFile::punch_hole`].
    ///
    /// # Errors
    /// Those of [`OpenFile::punch_hole`], and [`RejectReason::Forked`]. `Unsupported` on the `sim` driver, unless its options say else.
    pub fn punch_hole_blocking(&self, file: &OpenFile, range: ByteRange) -> io::Result<()> {
        match self.simulation()? {
            Some(sim) => sim.punch_hole(file, range),
            None => file.punch_hole(range),
        }
    }

    /// Shares extents; see [`OpenFile::clone_range`].
    ///
    /// # Errors
    /// Those of [`OpenFile::clone_range`], and [`RejectReason::Forked`]. `Unsupported` on the `sim` driver, unless its options say else.
    pub fn clone_range_blocking(
        &self,
        source: &OpenFile,
        range: ByteRange,
        target: &OpenFile,
        at_bytes: u64,
    ) -> io::Result<()> {
        match self.simulation()? {
            Some(sim) => sim.clone_range(source, range, target, at_bytes),
            None => source.clone_range(range, target, at_bytes),
        }
    }

    /// See [`OpenFile::is_dirty_in_kernel`]. Always `false` on the `sim` driver, which does not simulate the kernel's writeback.
    pub fn is_dirty_in_kernel(&self, file: &OpenFile, range: ByteRange) -> bool {
        matches!(self.simulation(), Ok(None)) && file.is_dirty_in_kernel(range)
    }

    /// Whether the kernel's page cache is known to hold any of a range; no on the `sim` driver.
    pub fn is_held_by_kernel(&self, file: &OpenFile, range: ByteRange) -> bool {
        matches!(self.simulation(), Ok(None)) && file.resident_pages(range).is_some_and(|pages| pages > 0)
    }

    /// The same, but yes where the kernel does not answer (before Linux 6.5).
    pub fn may_be_held_by_kernel(&self, file: &OpenFile, range: ByteRange) -> bool {
        matches!(self.simulation(), Ok(None)) && file.resident_pages(range).is_none_or(|pages| pages > 0)
    }

    /// Makes the file at least this long; see [`OpenFile::extend`].
    ///
    /// # Errors
    /// Those of [`OpenFile::extend`], those that the `sim` driver injects, and [`RejectReason::Forked`].
    pub fn extend_blocking(&self, file: &OpenFile, length_bytes: u64) -> io::Result<()> {
        match self.simulation()? {
            Some(sim) => sim.extend(file, length_bytes),
            None => file.extend(length_bytes),
        }
    }

    /// Free space of the file system, bytes; see [`OpenFile::free_bytes`]. On the `sim` driver at most that of the simulated device.
    ///
    /// # Errors
    /// Those of [`OpenFile::free_bytes`], and [`RejectReason::Forked`].
    pub fn free_bytes(&self, file: &OpenFile) -> io::Result<u64> {
        let simulated = self.simulation()?.and_then(Sim::free_bytes);
        simulated.map_or_else(|| file.free_bytes(), Ok)
    }

    /// The control of the simulated device, on the `sim` driver.
    fn simulation(&self) -> io::Result<Option<&Sim>> {
        if self.is_forked() {
            return Err(RejectReason::Forked.into());
        }
        Ok(self.sim())
    }

    /// A simulated device is there from the beginning.
    fn sim(&self) -> Option<&Sim> {
        match &self.inner.chosen.get()?.queues[0].backend {
            Backend::Sim(sim) => Some(sim),
            Backend::Uring(_) | Backend::Threads(_) => None,
        }
    }

    /// The driver's gauges.
    pub fn stats(&self) -> DriverStats {
        let mut stats = DriverStats::default();
        if self.is_forked() {
            return stats;
        }
        for queue in self.all_queues() {
            stats.in_flight += queue.slots.in_flight();
            stats.queued += queue.slots.queued();
            stats.slots_used += queue.slots.used();
            stats.stuck_waits += queue.stuck_waits();
            if let Some(relief) = queue.started_relief() {
                stats.in_flight += relief.slots.in_flight();
                stats.queued += relief.slots.queued();
                stats.slots_used += relief.slots.used();
            }
            if let Backend::Uring(uring) = &queue.backend {
                stats.enters += uring.enters();
                stats.unmatched_completions += uring.unmatched();
            }
        }
        stats
    }

    /// Whether this is a local driver in another thread than the one that built it, where submitting panics.
    pub fn is_foreign(&self) -> bool {
        let chosen = self.inner.chosen.get();
        chosen.is_some_and(
            |chosen| matches!(&chosen.queues[0].backend, Backend::Uring(uring) if uring.is_foreign()),
        )
    }

    /// # Panics
    /// On a local driver in another thread than its own.
    pub(crate) fn check_thread(&self) {
        if let Some(chosen) = self.inner.chosen.get() {
            chosen.queues[0].check_thread();
        }
    }

    /// The caller ensures that this is no forked child.
    fn chosen(&self) -> &Choice {
        self.inner.chosen.get_or_init(|| {
            let choice = choice::ring_or_threads(&self.inner.options, self.inner.sharing);
            if let Some(arena) = self.inner.memory.get() {
                choice.queues.iter().for_each(|queue| queue.register_memory(arena.clone()));
            }
            choice
        })
    }

    pub(crate) fn ordinary_queues(&self) -> &[Arc<Queue>] {
        &self.chosen().queues
    }

    /// Those that are set up.
    pub(crate) fn all_queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        let chosen = self.inner.chosen.get().map(|chosen| &chosen.queues);
        let polled = self.inner.polled.get().and_then(|polled| polled.as_ref().ok());
        chosen.into_iter().chain(polled).chain(self.inner.servers.get()).flatten()
    }

    /// The queue for files that a server answers for. A simulated device serves all.
    pub(crate) fn queues_of_servers(&self) -> &[Arc<Queue>] {
        if self.sim().is_some() {
            return self.ordinary_queues();
        }
        self.inner.servers.get_or_init(|| choice::threads(&self.inner.options))
    }

    /// The queues that a request may take. Polled rings take neither syncs nor writeback, for which no thread would spin.
    pub(crate) fn queues_for(&self, request: &Request) -> &[Arc<Queue>] {
        if request.file().is_some_and(|file| file.may_not_answer()) {
            return self.queues_of_servers();
        }
        let ordinary = self.ordinary_queues();
        match request {
            Request::Transfer(transfer)
                if transfer.route == Route::Direct
                    && self.inner.options.polling == Polling::Auto
                    && transfer.length_bytes <= transfer.file.polled_bytes_max(polled_read_works)
                    && matches!(ordinary[0].backend, Backend::Uring(_)) =>
            {
                let polled = self.inner.polled.get_or_init(|| {
                    let queues =
                        choice::rings(&self.inner.options, self.inner.sharing, DevicePolling::Polled);
                    let queues = queues.map_err(|error| error.to_string())?;
                    if let Some(arena) = self.inner.memory.get() {
                        queues.iter().for_each(|queue| queue.register_memory(arena.clone()));
                    }
                    Ok(queues)
                });
                polled.as_deref().unwrap_or(ordinary)
            }
            _ => ordinary,
        }
    }

    /// The queue where a burst of tasks is under way, so that they submit together; else the one that this thread used
    /// last, unless it is half full or another thread is submitting there; then the least loaded one.
    pub(crate) fn pick<'a>(&self, queues: &'a [Arc<Queue>]) -> &'a Arc<Queue> {
        if let [queue] = queues {
            return queue;
        }
        if let Some(queue) = queues.iter().find(|queue| queue.expects_more()) {
            return queue;
        }
        let home = &queues[HOME.get() % queues.len()];
        if !home.is_busy() && home.slots.in_flight() <= home.slots.depth() as usize / 2 {
            return home;
        }
        let places = queues.iter().enumerate();
        let best = places.min_by_key(|(_, queue)| {
            (queue.load() >= queue.slots.depth() as usize, queue.is_busy(), queue.load())
        });
        let (place, queue) = best.expect("a driver has a queue");
        HOME.set(place);
        queue
    }
}

thread_local! {
    /// Threads begin at different queues.
    static HOME: Cell<usize> = Cell::new(NEXT_HOME.fetch_add(1, Ordering::Relaxed));
}

static NEXT_HOME: AtomicUsize = AtomicUsize::new(0);

// Panics of wakers are contained, and so are those of the drop of what an abandoned call was given. A receiver, an iterator of calls and
// memory that panic interrupt the call that they were passed to; what it had begun is completed or dropped.
impl UnwindSafe for Driver {}

impl RefUnwindSafe for Driver {}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("info", &self.info()).field("stats", &self.stats()).finish()
    }
}

/// What miri runs of the low-level interface, beside the tests of arena, page cache, slots and quota. It cannot run, and tests on a
/// kernel do instead:
///
/// | what | because miri lacks |
/// |---|---|
/// | rings: submission, completions, registered memory, polled and local drivers | `io_uring_setup(2)` |
/// | `ChangeWatch`, `Watched` | `fanotify_init(2)`, `name_to_handle_at(2)` |
/// | `Lease`, `LeaseWatch` | `F_SETLEASE`, signals |
/// | `LiveMemory`, `MappedFile` | `mmap(2)` of a file, `userfaultfd(2)` |
/// | `Pressure`, `device_number` and the like | files of `/proc` and `/sys`, `statfs(2)` |
/// | direct I/O, `OpenFile::read_direct_first`, what the kernel's page cache holds | `O_DIRECT`, `cachestat(2)`, `preadv2(2)` |
/// | `fallocate(2)` below `allocate`, `reserve` and `extend` | that call: here they find it unsupported |
/// | children, and all that refuses to work in them | `fork(2)` |
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::backend::sim::SimOptions;
    use crate::file::{Access, Allocated, AppendFile, Creation, DirectIo, OpenFile, Route};
    use crate::memory::arena::{Arena, Extents, Urgency};
    use crate::request::call::Call;
    use crate::request::{Fsync, Request, Transfer};
    use crate::system::sys::{Direction, SyncScope};

    /// Goal: every way to ask a driver and to get the answer touches only what is the request's. Method: under miri, requests in one
    /// piece and in several, alone, plugged and in a batch; waited for, polled, cancelled and given up.
    #[test]
    fn every_way_of_asking() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let contents: Vec<u8> = (0..12_288_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &contents).unwrap();
        let file = Arc::new(OpenFile::open(&path, DirectIo::Off, Access::ReadWrite).unwrap());
        let arena = Arena::new(4 << 20).unwrap();
        let options = DriverOptions { kind: DriverKind::Threads, queue_depth: 2, ..DriverOptions::default() };
        let driver = Driver::new(&options).unwrap();
        let transfer = |direction, sizes: &[usize]| {
            let mut extents: Extents =
                sizes.iter().map(|&bytes| arena.allocate(bytes, Urgency::Demand).unwrap()).collect();
            let mut rest = &contents[..];
            for extent in &mut extents {
                let here;
                (here, rest) = rest.split_at(extent.len());
                extent.copy_from_slice(here);
            }
            let (file, route, length_bytes) = (file.clone(), Route::Buffered, sizes.iter().sum());
            Transfer { direction, file, route, offset_bytes: 0, length_bytes, extents }
        };
        let read = |sizes: &[usize]| transfer(Direction::Read, sizes);
        let write = transfer(Direction::Write, &[4096, 8192]);
        let submit = |request: Request| driver.submit(request, Urgency::Demand).unwrap();
        assert_eq!(submit(write.into()).wait().result.unwrap(), 12_288);
        let mut plug = driver.plug();
        let plugged = plug.submit(read(&[4096, 4096]), Urgency::Demand).unwrap();
        drop(plug);
        drop(submit(read(&[4096]).into()));
        let cancelled = submit(read(&[4096]).into());
        cancelled.cancel();
        drop(cancelled.wait());
        let mut polled = submit(read(&[4096]).into());
        let _ = polled.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        drop(polled);
        let finished = plugged.wait();
        // Whole pages: miri takes a minute for their bytes.
        assert!(
            finished.extents.iter().flat_map(|extent| extent.chunks(4096)).eq(contents[..8192].chunks(4096))
        );
        submit(Fsync { file: file.clone(), scope: SyncScope::Data }.into()).wait().result.unwrap();
        let mut batch = driver.batch();
        batch.push(read(&[8192])).unwrap();
        batch.push(Request::Nop).unwrap();
        batch.finish(|_, finished| assert!(finished.result.is_ok()));
        let mut buffer = [0; 100];
        assert_eq!(driver.read_blocking(&file, Route::Buffered, &mut buffer, 50).unwrap(), 100);
        assert_eq!(buffer, contents[50..150]);
        assert_eq!(driver.write_blocking(&file, Route::Buffered, &buffer, 50).unwrap(), 100);
        drop(driver);
        drop(finished);
        assert_eq!(arena.stats().used_bytes, 0);
    }

    /// Goal: I1, I4: a call's descriptor and buffers are touched by the driver alone until they come back. Method: under miri, on the drivers
    /// that it can run: every kind of transfer, waited for, polled, cancelled, dropped and leaked.
    #[test]
    fn every_way_of_calling() {
        let sim = SimOptions { repolls: false, ..SimOptions::hostile(5) };
        for kind in [DriverKind::Threads, DriverKind::Sim(sim)] {
            let directory = tempfile::tempdir().unwrap();
            let options = std::fs::File::options().read(true).write(true).create(true).truncate(true).clone();
            let file = Arc::new(options.open(directory.path().join("file")).unwrap());
            let options = DriverOptions { kind, queue_depth: 2, ..DriverOptions::default() };
            let driver = Driver::new(&options).unwrap();
            let parts = vec![vec![1; 3000], vec![2; 3000], vec![3; 100]];
            let written = driver.call(Call::pwritev(file.clone(), parts, 10)).wait();
            assert_eq!((written.result.unwrap(), written.given.1.len()), (6100, 3));
            driver.call(Call::pwrite(file.clone(), [9; 10], 0)).wait().result.unwrap();
            let mut plug = driver.plug();
            let mut calls: Vec<_> =
                (0..5).map(|_| plug.call(Call::preadv(file.clone(), vec![[0_u8; 2000]; 2], 0))).collect();
            drop(plug);
            let polled = std::pin::Pin::new(&mut calls[0]).poll(&mut Context::from_waker(Waker::noop()));
            drop((polled, calls.remove(0)));
            calls[0].cancel();
            let read = calls.pop().unwrap().wait();
            assert_eq!(read.result.unwrap(), 4000);
            assert_eq!((read.given.1[0][9], read.given.1[0][10], read.given.1[1][1010]), (9, 1, 2));
            drop(calls);
            let chain = || {
                Call::nop(vec![0; 10]).then(Call::pwrite(file.clone(), [9; 10], 0)).then(Call::nop("given"))
            };
            let ((nothing, _), last) = driver.call(chain()).wait();
            assert_eq!((nothing.given.len(), last.given), (10, "given"));
            drop(driver.call(chain().keeping(vec![1; 10])));
            let reads = (0..5).map(|part| Call::pread(file.clone(), vec![0; 100], 10 + part * 100));
            driver.call_all(reads, |_, read| assert!(read.result.is_ok() && read.given.1 == [1; 100]));
            let short = driver.call(Call::pread(file.clone(), vec![0; 200], 6000)).wait();
            assert_eq!(short.result.unwrap(), 110);
            assert!(short.given.1[10..110].iter().all(|&byte| byte == 3) && short.given.1[9] == 2);
            driver.attend();
            drop((driver, short.given, read.given));
            // `written` has the other.
            assert_eq!(Arc::strong_count(&file), 2);
        }
    }

    /// Goal: every call by which the calling thread changes a file, and asks for its room, touches only what it was given, and does what
    /// it says. Method: under miri, on the drivers that it can run.
    #[test]
    fn every_way_of_changing_a_file() {
        let sim = SimOptions { short_per_mille: 0, transient_per_mille: 0, ..SimOptions::hostile(3) };
        for kind in [DriverKind::Threads, DriverKind::Sim(sim)] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let options = DriverOptions { kind, queue_depth: 2, ..DriverOptions::default() };
            let driver = Driver::new(&options).unwrap();
            let creation = Creation::New;
            let file = OpenFile::create(&path, DirectIo::Off, Access::ReadWrite, creation).unwrap();
            let appending = AppendFile::open(&file, &path).unwrap();
            for (bytes, offset_bytes) in [(&b"head"[..], 0), (b"", 4), (b"water", 4)] {
                let mut done = 0;
                loop {
                    let appended = driver.append_blocking(&appending, &bytes[done..]).unwrap();
                    assert_eq!(appended.offset_bytes, offset_bytes + done as u64);
                    done += appended.length_bytes;
                    // Miri writes in parts now and then.
                    if done == bytes.len() {
                        break;
                    }
                }
            }
            assert_eq!(appending.append(b"!").unwrap().offset_bytes, 9);
            driver.set_len_blocking(&file, 9).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"headwater");
            assert_eq!(driver.allocate_blocking(&file, ByteRange::new(7, 7)).unwrap(), Allocated::Yes);
            let reaches = driver.allocate_blocking(&file, ByteRange::new(0, 5000)).unwrap();
            let length_bytes = if reaches == Allocated::Yes { 5000 } else { 9 };
            driver.reserve_blocking(&file, ByteRange::new(0, 9000)).unwrap();
            assert_eq!(file.length_bytes().unwrap(), length_bytes);
            driver.extend_blocking(&file, 7000).unwrap();
            driver.extend_blocking(&file, 6000).unwrap();
            assert_eq!(file.length_bytes().unwrap(), 7000);
            driver.sync_blocking(&file, SyncScope::All).unwrap();
            let contents = std::fs::read(&path).unwrap();
            assert!(contents.starts_with(b"headwater") && contents[9..].iter().all(|&byte| byte == 0));
            assert_eq!((contents.len(), file.links().unwrap()), (7000, 1));
        }
    }
}
