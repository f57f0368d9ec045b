//! Ending: written bytes reach their files when the last handle of an engine is dropped, and when the process exits.
//!
//! ```text
//!   last user handle dropped ─► background threads stopped and joined ─► flush ─► losses reported   (in the dropping thread)
//!   exit ─► for each dirty engine, in a thread: ─► pages that need no size lock ─► size locks, seized from tasks ─► the rest ─► reported
//!        │                                        └► again while dropped writers hand over
//!        └► waits for all engines that are ending, as long as they make progress
//! ```
//!
//! Users hold engines; so, briefly, do the engine's own threads. Only users count: an engine ends when the last `UserHandle` is
//! dropped, in the dropping thread, even while its background thread is still at work. The drop waits for devices as `fsync`
//! does. An exit waits only for a limited time: a task that was suspended in the middle of a truncate loses its size lock after
//! [`GRACE_PERIOD`] (a truncate that has not happened changes nothing), and a device that writes nothing for [`STALL`] is
//! abandoned.
//!
//! Owns: when an engine ends, the global engine, how long an exit waits.
//! Does not own: writing (fsync, window flush), the size lock (inode).
//! Invariants: I7 bytes that could not be written are reported.
//! Locks: `ENGINES`, alone; a forked child may find it locked for ever, and continues without it.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use headwater_core::units::PAGE_BYTES;
use headwater_io::{lock, unpoisoned, without_signals};

use crate::base::error::{Error, Result};
use crate::base::events;
use crate::engine::writes::Writes;
use crate::engine::{Engine, Shared};
use crate::inode::size_lock::Taken;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::fsync;
use crate::write::fsync::HeldBack;
use crate::write::window_flush;
use crate::write::writeback;

/// The engine that files use by default, built on first use.
pub(crate) fn global() -> Result<Engine> {
    if let Some(engine) = GLOBAL.get() {
        return Ok(engine.clone());
    }
    let engine = Engine::builder().build()?;
    Ok(GLOBAL.get_or_init(|| engine).clone())
}

/// Makes an engine the one of [`global`], if there is none yet.
pub(crate) fn set_global(engine: &Engine) -> Result<()> {
    let refused = |_| {
        let text = "the process has a global engine already; set another before the first file is opened";
        Error::build(io::Error::new(io::ErrorKind::AlreadyExists, text))
    };
    GLOBAL.set(engine.clone()).map_err(refused)
}

static GLOBAL: OnceLock<Engine> = OnceLock::new();

/// Statics are not dropped, nor is what other threads have: an exit writes back engines that are alive.
static ENGINES: Mutex<Engines> = Mutex::new(Engines { alive: Vec::new(), ending: Vec::new() });

/// Signalled when an engine has left those that are ending.
static ENDED: Condvar = Condvar::new();

struct Engines {
    /// Those that any thread may use, and some that are gone.
    alive: Vec<Weak<Shared>>,
    /// Those in their final flush.
    ending: Vec<Weak<Shared>>,
}

/// Has an exit of the process write back this engine.
///
/// # Errors
/// When the system refuses to call anything at the exit.
pub(crate) fn flush_at_exit(engine: &Engine) -> io::Result<()> {
    hook_exit()?;
    if let Some(mut engines) = try_engines() {
        engines.alive.retain(|engine| engine.strong_count() > 0);
        engines.alive.push(Arc::downgrade(&engine.shared));
    }
    Ok(())
}

/// Makes an exit of the process wait for an engine, until dropped.
struct Ending {
    shared: Weak<Shared>,
}

impl Ending {
    fn begin(shared: &Arc<Shared>) -> Ending {
        // An exit does not wait for the engine if the hook cannot be installed, or if a thread of the parent held the lock at the fork.
        let _ = hook_exit();
        let shared = Arc::downgrade(shared);
        if let Some(mut engines) = try_engines() {
            engines.ending.push(shared.clone());
        }
        Ending { shared }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Without the lock the engine stays in the list, which holds it weakly: an exit takes it for one that is gone.
        let Some(mut engines) = try_engines() else { return };
        if let Some(place) = engines.ending.iter().position(|engine| engine.ptr_eq(&self.shared)) {
            engines.ending.swap_remove(place);
        }
        drop(engines);
        ENDED.notify_all();
    }
}

/// Called when the last user handle is gone. Blocks until all dirty pages are written, or have failed and are reported.
pub(crate) fn end(shared: &Arc<Shared>) {
    if shared.driver.is_forked() {
        return;
    }
    // The last handle may be dropped by a listener or a task in a thread of the engine, and no one joins that thread.
    let _ending = Ending::begin(shared);
    shared.background.stop();
    shared.leases.stop();
    fsync::flush_all(shared);
    report_lost(shared);
}

fn report_lost(shared: &Shared) {
    for inode in shared.cache.writes.dirty_files() {
        events::lost(inode.pages.id(), inode.dirty.unsaved_pages());
    }
    for (inode, length) in shared.cache.writes.late() {
        events::lost(inode.pages.id(), length.div_ceil(PAGE_BYTES) as u64);
    }
}

/// Writes back what the engine has, and what dropped writers hand over meanwhile, as long as the exit waits.
fn flush_leaving(shared: &Shared) {
    let writes = &shared.cache.writes;
    let (mut progress, mut moved) = (writes.progress(), Instant::now());
    loop {
        let late = writes.late();
        flush_dirty(shared);
        if late.is_empty() {
            return;
        }
        if std::mem::replace(&mut progress, writes.progress()) != progress {
            moved = Instant::now();
        } else if moved.elapsed() > GRACE_PERIOD {
            // They may wait for a task that was suspended with the right to change the length.
            late.iter().for_each(|(inode, _)| drop(inode.dirty.size_lock.lock_leaving(Instant::now())));
        }
        thread::sleep(LOOK);
    }
}

/// Writes back what can be written while the process exits. A device that hangs delays neither the other files nor what of them needs the
/// size lock: threads that find no file any more that was not visited do that.
fn flush_dirty(shared: &Shared) {
    let deadline = Instant::now() + GRACE_PERIOD;
    let (mut files, next, late) =
        (shared.cache.writes.dirty_files(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Files of servers last: one that does not answer would hold up a thread with each.
    files.sort_by_cached_key(|inode| writeback::may_last(inode));
    in_parallel(files.len(), || {
        while let Some(inode) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let held_back = fsync::flush_pages(shared, inode, ALL_PAGES);
            if held_back == HeldBack::Some || !inode.dirty.windows.is_empty() {
                lock(&late).push(inode.clone());
            }
        }
        let next_late = || lock(&late).pop();
        while let Some(inode) = next_late() {
            flush_with_size_lock(shared, &inode, deadline);
        }
    });
}

/// Writes windows, and the pages behind the barrier of a truncate, under the size lock.
fn flush_with_size_lock(shared: &Shared, inode: &Arc<Inode>, deadline: Instant) {
    let (size_lock, taken) = inode.dirty.size_lock.lock_leaving(deadline);
    if taken == Taken::Seized {
        inode.dirty.lock().barrier = None;
        await_requests(shared);
    }
    window_flush::flush_leaving(shared, inode, &size_lock);
    fsync::flush_pages(shared, inode, ALL_PAGES);
}

/// The task that lost its size lock may have left a write of a window in flight; the next write must not overtake it.
fn await_requests(shared: &Shared) {
    let deadline = Instant::now() + GRACE_PERIOD;
    while Instant::now() < deadline {
        let stats = shared.driver.stats();
        if stats.in_flight + stats.queued == 0 {
            return;
        }
        shared.driver.attend();
        thread::sleep(LOOK);
    }
}

/// Runs the work in one thread for each file, [`FLUSHERS`] at the most. Blocks.
fn in_parallel(files: usize, run: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..files.min(FLUSHERS) {
            // If no thread can be started, this one does all of the work.
            let builder = thread::Builder::new().name("headwater-exit".into());
            let _ = without_signals(|| builder.spawn_scoped(scope, &run));
        }
        run();
    });
}

/// Registers [`leave`] to run when the process exits.
fn hook_exit() -> io::Result<()> {
    static HOOKED: OnceLock<()> = OnceLock::new();
    if HOOKED.get().is_none() {
        // Two threads may both register it; the second call finds nothing to do.
        headwater_io::at_exit(leave)?;
        let _ = HOOKED.set(());
    }
    Ok(())
}

/// Flushes all engines and waits for those that are ending. Thread-locals of this thread may already be destroyed, so anything
/// that may use them runs in other threads.
extern "C" fn leave() {
    let mut lost = Vec::new();
    // Files with windows count as dirty.
    let is_to_flush = |writes: &Writes| !writes.dirty_files().is_empty() || !writes.late().is_empty();
    for shared in alive().into_iter().filter(|shared| is_to_flush(&shared.cache.writes)) {
        let ending = Ending::begin(&shared);
        let to_flush = shared.clone();
        let flush = move || {
            let _ending = ending;
            flush_leaving(&to_flush);
            report_lost(&to_flush);
        };
        let builder = thread::Builder::new().name("headwater-exit".into());
        if without_signals(|| builder.spawn(flush)).is_err() {
            lost.push(shared);
        }
    }
    report(lost);
    report(wait_for_ending());
}

/// The engines of this process that are alive, and not ending. They are never dropped: dropping a driver would wait for a hanging device.
fn alive() -> Vec<ManuallyDrop<Arc<Shared>>> {
    let Some(engines) = try_engines() else { return Vec::new() };
    let is_ending = |engine: &Weak<Shared>| engines.ending.iter().any(|ending| ending.ptr_eq(engine));
    let alive = engines.alive.iter().filter(|engine| !is_ending(engine)).filter_map(Weak::upgrade);
    alive.map(ManuallyDrop::new).filter(|shared| !shared.driver.is_forked()).collect()
}

/// An engine that is ending, as an exit watches it. It is never dropped: dropping the driver would wait for a hanging device.
struct Watched {
    shared: ManuallyDrop<Arc<Shared>>,
    progress: u64,
    /// How long there was none.
    quiet: Duration,
    /// Bounds the wait even with progress: other threads may go on writing through the engine.
    left: Duration,
}

impl Watched {
    fn new(shared: Arc<Shared>) -> Watched {
        let progress = shared.cache.writes.progress();
        let mapped_bytes = shared.arena.stats().mapped_bytes as u64;
        // An engine that has mapped little may have sparse writes on a disk that seeks.
        let left = STALL * 3 + Duration::from_secs(mapped_bytes / SLOWEST_BYTES_PER_SECOND);
        Watched { shared: ManuallyDrop::new(shared), progress, quiet: Duration::ZERO, left }
    }

    /// Whether to wait no longer; `passed` since the last look. Time in which `is_starved` holds, a thread that writes waits for a
    /// processor, says nothing about the device.
    fn is_stalled(&mut self, passed: Duration, is_starved: impl FnOnce() -> bool) -> bool {
        // Where the whole process stood still, stopped or without a processor, the threads that write did as well.
        let passed = passed.min(LOOK_AT_ENDING * 2);
        let progress = self.shared.cache.writes.progress();
        if progress != self.progress {
            self.quiet = Duration::ZERO;
        } else if !is_starved() {
            self.quiet += passed;
        }
        self.progress = progress;
        self.left = self.left.saturating_sub(passed);
        self.quiet >= STALL || self.left.is_zero()
    }
}

/// Waits until no engine is being flushed, or none of them makes progress; returns those.
fn wait_for_ending() -> Vec<ManuallyDrop<Arc<Shared>>> {
    let Some(mut engines) = try_engines() else { return Vec::new() };
    let (mut watched, mut looked_at): (Vec<Watched>, _) = (Vec::new(), Instant::now());
    loop {
        watched.retain(|one| engines.ending.iter().any(|engine| engine.as_ptr() == Arc::as_ptr(&one.shared)));
        for shared in engines.ending.iter().filter_map(Weak::upgrade).map(ManuallyDrop::new) {
            if !shared.driver.is_forked() && !watched.iter().any(|one| Arc::ptr_eq(&one.shared, &shared)) {
                watched.push(Watched::new(ManuallyDrop::into_inner(shared)));
            }
        }
        let passed = looked_at.elapsed();
        looked_at += passed;
        let stalled = watched
            .iter_mut()
            .map(|one| one.is_stalled(passed, any_waits_for_processor))
            .filter(|is_stalled| *is_stalled);
        if stalled.count() == watched.len() {
            return watched.into_iter().map(|one| one.shared).collect();
        }
        engines = unpoisoned(ENDED.wait_timeout(engines, LOOK_AT_ENDING)).0;
    }
}

/// Whether one of the threads that write while the process exits runs, or could if it had a processor.
fn any_waits_for_processor() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .any(|stat| is_runnable_writer(&stat))
}

/// From a line of `proc_pid_stat(5)`.
fn is_runnable_writer(stat: &str) -> bool {
    let named = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "));
    named.is_some_and(|(name, rest)| name.starts_with("headwater-") && rest.starts_with('R'))
}

/// Reports what these engines lose, in a thread of its own because a subscriber of the program may hang.
fn report(engines: Vec<ManuallyDrop<Arc<Shared>>>) {
    if engines.is_empty() {
        return;
    }
    let report = move || engines.iter().for_each(|shared| report_lost(shared));
    let reporting = without_signals(|| thread::Builder::new().spawn(report));
    let deadline = Instant::now() + GRACE_PERIOD;
    while reporting.as_ref().is_ok_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
        thread::sleep(LOOK);
    }
}

/// `None` in a child that was forked while another thread held the lock.
fn try_engines() -> Option<MutexGuard<'static, Engines>> {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    if *PROCESS.get_or_init(process::id) == process::id() {
        // The thread that holds it is in this process. It may hold it for a while, where there are thousands of threads to look at.
        return Some(lock(&ENGINES));
    }
    for _ in 0..100 {
        match ENGINES.try_lock() {
            Ok(engines) => return Some(engines),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK),
        }
    }
    None
}

/// An exit stops waiting for a device that writes nothing for this long: users take a lingering process for a hung one, and a
/// device that responds at all does so within a second.
const STALL: Duration = Duration::from_secs(1);

/// Even the slowest disk writes this much a second: bounds the time to write an engine's whole memory.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

/// An exit waits this long for a task to release the size lock, for requests that such a task left in flight, and for a subscriber
/// to take reports. A running task needs less, unless its device hangs.
const GRACE_PERIOD: Duration = Duration::from_millis(100);

/// Short compared with the cost of an exit.
const LOOK: Duration = Duration::from_millis(1);

/// How often an exit looks whether the engines that are ending make progress.
const LOOK_AT_ENDING: Duration = Duration::from_millis(20);

/// Files that are flushed at once: one device in four may hang, and the others still get their bytes.
const FLUSHERS: usize = 4;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::task::{Context, Waker};

    use headwater_io::{DriverKind, SimOptions};
    use tempfile::TempDir;

    use super::*;
    use crate::api::contents::Contents;
    use crate::api::file::File;
    use crate::{Caching, OpenOptions};

    const WRITTEN: &[u8] = b"acknowledged";

    fn engine() -> Engine {
        Engine::builder().memory(4 << 20).driver(DriverKind::Threads).build().unwrap()
    }

    /// A file with unsynced bytes. The engine is dropped before the directory.
    fn written() -> (Engine, File, PathBuf, TempDir) {
        let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
        let path = directory.path().join("file");
        let file = OpenOptions::new()
            .engine(&engine)
            .caching(Caching::On)
            .write(true)
            .create(true)
            .open(&path)
            .unwrap();
        file.write_all_at(WRITTEN, 0).unwrap();
        (engine, file, path, directory)
    }

    /// Goal: written bytes are in the file when the last handle is dropped, even while the background thread uses the engine.
    /// Method: hold the engine as that thread does.
    #[test]
    fn the_last_user_ends_the_engine() {
        let (engine, file, path, _directory) = written();
        let background = engine.shared.clone();
        drop(engine);
        assert_eq!(background.cache.writes.dirty_files().len(), 1, "a file is a user");
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), WRITTEN);
        assert_eq!(background.cache.writes.dirty().pages(), 0);
    }

    /// Goal: an exit writes what is held back by a task that truncates the file and is never polled again, and windows of such a
    /// file; a truncate that did not happen changes nothing. Method: a future that holds the size lock and has set the barrier;
    /// flush as an exit does; poll it again.
    #[test]
    fn an_exit_seizes_the_size_lock_of_a_truncate() {
        let (engine, file, path, _directory) = written();
        file.write_all_at(WRITTEN, 100_000).unwrap();
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let inode = source.known().unwrap().clone();
        let mut context = Context::from_waker(Waker::noop());
        let mut locking = Box::pin(inode.dirty.size_lock.lock_async(&engine.shared.driver));
        let std::task::Poll::Ready(size_lock) = locking.as_mut().poll(&mut context) else {
            panic!("no thread has it")
        };
        let mut waiting = Box::pin(file.set_len_async(4096));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        inode.dirty.lock().barrier = Some(headwater_core::units::PageIndex::new(1));
        flush_leaving(&engine.shared);
        assert!(!size_lock.holds());
        drop(size_lock);
        let disk = std::fs::read(&path).unwrap();
        assert_eq!((&disk[..WRITTEN.len()], &disk[100_000..]), (WRITTEN, WRITTEN));
        // The exit has released the size lock.
        while waiting.as_mut().poll(&mut context).is_pending() {}
        assert_eq!(file.len().unwrap(), 4096);
        assert_eq!(engine.shared.cache.writes.dirty().pages(), 0);
    }

    /// Goal: an exit writes windows of a file while another file's device does not answer. Method: flush as an exit does, in a thread; then the
    /// device answers.
    #[test]
    fn an_exit_writes_windows_beside_a_device_without_an_answer() {
        let (options, directory) = (SimOptions::hostile(1), tempfile::tempdir().unwrap());
        let control = options.control.clone();
        let engine = Engine::builder().memory(16 << 20).driver(DriverKind::Sim(options)).build().unwrap();
        let (silent, other) = (directory.path().join("silent"), directory.path().join("other"));
        let open = |path| {
            let mut options = OpenOptions::new();
            options
                .engine(&engine)
                .caching(Caching::On)
                .read(true)
                .write(true)
                .create(true)
                .open(path)
                .unwrap()
        };
        let (held, file) = (open(&silent), open(&other));
        held.write_all_at(&[1; 200_000], 0).unwrap();
        file.set_len(4096).unwrap();
        control.hold(std::fs::File::open(&silent).unwrap()).unwrap();
        // Where the kernel tracks no writes there are no such windows.
        let Ok(view) = file.map_contiguous(0..4096) else { return };
        view.as_cells().unwrap().iter().for_each(|cell| cell.store(2, Ordering::Relaxed));
        headwater_testkit::watched("an exit", || {
            thread::scope(|scope| {
                let leaving = scope.spawn(|| flush_leaving(&engine.shared));
                while std::fs::read(&other).unwrap() != [2; 4096] {
                    thread::sleep(LOOK);
                }
                assert!(!leaving.is_finished(), "one file is not written");
                control.release();
            });
        });
        assert_eq!(std::fs::read(&silent).unwrap(), [1; 200_000]);
    }

    /// Goal: a process that is stopped or gets no processor while it exits does not take its own standstill for one of the device.
    #[test]
    fn an_exit_counts_no_standstill_of_the_process() {
        let engine = engine();
        let mut watched = Watched::new(engine.shared.clone());
        assert!(!watched.is_stalled(STALL * 100, || false), "one look");
        assert!(
            (0..STALL.as_millis()).all(|_| !watched.is_stalled(LOOK, || true)),
            "no processor to write with"
        );
        let looks = (1..).find(|_| watched.is_stalled(LOOK_AT_ENDING, || false)).unwrap();
        assert_eq!(looks + 2, STALL.as_millis() / LOOK_AT_ENDING.as_millis());
        drop(ManuallyDrop::into_inner(watched.shared));
    }

    /// Goal: of the threads of a process, those count that write at an exit and could run.
    #[test]
    fn writers_that_could_run_are_known() {
        let lines = [
            "7 (headwater-exit) R 1 7",
            "7 (headwater-ring) S 1",
            "7 (compute) R 1",
            "7 (a) R) R 1",
            "",
            "7 (headwater-",
        ];
        assert_eq!(lines.map(is_runnable_writer), [true, false, false, false, false, false]);
    }

    /// Goal: a child that is forked while a thread of its parent ends an engine ends its own. Method: the parent holds the lock.
    #[test]
    fn a_child_forked_beside_an_end_ends_its_engines() {
        let held = try_engines();
        headwater_testkit::run_forked(|| drop(engine()));
        drop(held);
    }

    /// Goal: an engine that ends while something holds the list for long is waited for by an exit. Method: a thread that holds it for longer
    /// than a child would try.
    #[test]
    fn an_end_waits_for_its_place_in_the_list() {
        let engine = engine();
        let held = try_engines().unwrap();
        thread::scope(|scope| {
            let beginning = scope.spawn(|| Ending::begin(&engine.shared));
            thread::sleep(LOOK * 300);
            drop(held);
            let ending = beginning.join().unwrap();
            let is_there = |engines: &Engines| engines.ending.iter().any(|one| one.ptr_eq(&ending.shared));
            assert!(is_there(&try_engines().unwrap()));
        });
    }

    /// Goal: an exit abandons an engine that writes nothing, but only a second after its last progress. Method: an engine that is
    /// ending and idle, except for one completed write.
    #[test]
    fn an_exit_gives_up_when_nothing_is_written() {
        let engine = engine();
        let ending = Ending::begin(&engine.shared);
        let began = Instant::now();
        let writing = thread::spawn({
            let shared = engine.shared.clone();
            move || {
                thread::sleep(STALL / 2);
                shared.cache.writes.note_progress();
            }
        });
        let stalled = wait_for_ending();
        assert!(stalled.iter().any(|shared| Arc::ptr_eq(shared, &engine.shared)));
        assert!(began.elapsed() >= STALL * 3 / 2, "there was progress");
        drop(ending);
        assert!(!wait_for_ending().iter().any(|shared| Arc::ptr_eq(shared, &engine.shared)));
        writing.join().unwrap();
    }
}
