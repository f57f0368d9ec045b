//! Ending: what was written reaches its files when an engine's last handle is dropped, and when the process ends.
//!
//! ```text
//!   last user handle dropped ─► background threads stopped and joined ─► flush ─► rest reported       (any thread)
//!   exit ─► global engine dirty? a thread: ─► what needs no turn ─► turns, taken away from tasks ─► the rest ─► reported
//!        └► waits for all engines that end, as long as they make progress
//! ```
//!
//! Engines are held by their users and, for moments, by their own threads. Only users count: an engine ends when the last
//! `UserHandle` is dropped, in that thread, however long its background thread still works. A drop waits for devices as
//! `fsync` does. An exit does not wait for ever: a task that was left in the middle of a cut loses its turn after
//! [`TURN_PATIENCE`] (a cut that did not happen changes nothing), and devices that write nothing for [`STALL`] are given up.
//!
//! Owns: when an engine ends, the global engine, how long an exit waits.
//! Does not own: writing (sync, window flush), the turn (unwritten).
//! Invariants: I7 what could not be written is reported.
//! Locks: `ENDING`, alone; a forked child may find it locked for ever, and goes without.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use headwater_io::{lock, unpoisoned, without_signals};

use crate::base::error::{Error, Result};
use crate::base::events;
use crate::engine::{Engine, Shared};
use crate::inode::size_lock::Taken;
use crate::inode::{ALL_PAGES, Inode};
use crate::write::fsync;
use crate::write::fsync::HeldBack;
use crate::write::window_flush;

/// The engine of callers that name none, built when first used.
pub(crate) fn global() -> Result<Engine> {
    if let Some(engine) = GLOBAL.get() {
        return Ok(engine.clone());
    }
    let engine = Engine::builder().build()?;
    hook_exit().map_err(Error::build)?;
    Ok(GLOBAL.get_or_init(|| engine).clone())
}

/// Statics are not dropped, so the exit of the process flushes this engine.
static GLOBAL: OnceLock<Engine> = OnceLock::new();

/// Engines that are being flushed for the last time.
static ENDING: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// An engine has left [`ENDING`].
static ENDED: Condvar = Condvar::new();

/// Has an exit wait for an engine, until dropped.
struct Ending {
    shared: Weak<Shared>,
}

impl Ending {
    fn begin(shared: &Arc<Shared>) -> Ending {
        // Without the hook an exit just does not wait.
        let _ = hook_exit();
        let shared = Arc::downgrade(shared);
        ending().push(shared.clone());
        Ending { shared }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut engines = ending();
        if let Some(place) = engines.iter().position(|engine| engine.ptr_eq(&self.shared)) {
            engines.swap_remove(place);
        }
        drop(engines);
        ENDED.notify_all();
    }
}

/// The last user has gone. Blocks until what is dirty is written, or has failed and is reported.
pub(crate) fn end(shared: &Arc<Shared>) {
    if shared.driver.is_forked() {
        return;
    }
    // The last user may have been a listener or a task in a thread of the engine, which nothing joins.
    let _ending = Ending::begin(shared);
    shared.background.stop();
    shared.leases.stop();
    fsync::flush_all(shared);
    report_lost(shared);
}

fn report_lost(shared: &Shared) {
    for inode in shared.cache.writes.dirty_files() {
        events::lost(inode.pages.id(), inode.dirty.pages());
    }
}

/// Writes what can be written while the process ends.
fn flush_leaving(shared: &Shared) {
    let deadline = Instant::now() + TURN_PATIENCE;
    let late = Mutex::new(Vec::new());
    in_parallel(&shared.cache.writes.dirty_files(), |inode| {
        let held_back = fsync::flush_pages(shared, inode, ALL_PAGES);
        if held_back == HeldBack::Some || !inode.dirty.windows.is_empty() {
            lock(&late).push(inode.clone());
        }
    });
    let late = unpoisoned(late.into_inner());
    in_parallel(&late, |inode| flush_with_turn(shared, inode, deadline));
}

/// Writes what a change of the length held back, and windows.
fn flush_with_turn(shared: &Shared, inode: &Arc<Inode>, deadline: Instant) {
    let (turn, taken) = inode.dirty.size_lock.lock_leaving(deadline);
    if taken == Taken::Seized {
        inode.dirty.lock().barrier = None;
        await_requests(shared);
    }
    window_flush::flush_leaving(shared, inode, &turn);
    fsync::flush_pages(shared, inode, ALL_PAGES);
}

/// The task that lost its turn may have left a write of a window under way, which must not come after the next.
fn await_requests(shared: &Shared) {
    let deadline = Instant::now() + TURN_PATIENCE;
    while Instant::now() < deadline {
        let stats = shared.driver.stats();
        if stats.in_flight + stats.queued == 0 {
            return;
        }
        shared.driver.attend();
        thread::sleep(LOOK);
    }
}

/// Does the work for each file, so that a device that hangs does not keep back the files of others. Blocks.
fn in_parallel(files: &[Arc<Inode>], work: impl Fn(&Arc<Inode>) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(inode) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(inode);
        }
    };
    thread::scope(|scope| {
        for _ in 1..files.len().min(FLUSHERS) {
            // Without another thread, this one does it all.
            let builder = thread::Builder::new().name("headwater-exit".into());
            let _ = without_signals(|| builder.spawn_scoped(scope, run));
        }
        run();
    });
}

/// Has the process call [`leave`] when it ends.
fn hook_exit() -> std::io::Result<()> {
    static HOOKED: OnceLock<()> = OnceLock::new();
    if HOOKED.get().is_none() {
        // Called twice, it finds nothing to do.
        headwater_io::at_exit(leave)?;
        let _ = HOOKED.set(());
    }
    Ok(())
}

/// Flushes the global engine, and waits for others that end. Thread-locals of this thread may be gone, so that whatever
/// may need some runs in other threads.
extern "C" fn leave() {
    let global = GLOBAL.get().map(|engine| &engine.shared).filter(|shared| !shared.driver.is_forked());
    // Files with windows count as dirty.
    if let Some(shared) = global.filter(|shared| !shared.cache.writes.dirty_files().is_empty()) {
        let ending = Ending::begin(shared);
        let flush = move || {
            let _ending = ending;
            flush_leaving(shared);
            report_lost(shared);
        };
        let builder = thread::Builder::new().name("headwater-exit".into());
        if without_signals(|| builder.spawn(flush)).is_err() {
            report(vec![ManuallyDrop::new(shared.clone())]);
        }
    }
    report(wait_for_ending());
}

/// An engine that ends, as an exit sees it. It is never dropped: the driver would wait for a device that hangs.
struct Watched {
    shared: ManuallyDrop<Arc<Shared>>,
    progress: u64,
    since: Instant,
    /// Other threads may go on writing through the global engine, which counts as progress.
    deadline: Instant,
}

impl Watched {
    fn new(shared: Arc<Shared>) -> Watched {
        let (progress, since) = (shared.cache.writes.progress(), Instant::now());
        let deadline = since + STALL + Duration::from_secs(shared.memory_bytes / SLOWEST_BYTES_PER_SECOND);
        Watched { shared: ManuallyDrop::new(shared), progress, since, deadline }
    }

    fn is_stalled(&mut self) -> bool {
        let progress = self.shared.cache.writes.progress();
        if progress != self.progress {
            (self.progress, self.since) = (progress, Instant::now());
        }
        self.since.elapsed() >= STALL || Instant::now() >= self.deadline
    }
}

/// Waits until no engine is being flushed, or those that are make no progress, which it gives back.
fn wait_for_ending() -> Vec<ManuallyDrop<Arc<Shared>>> {
    let Some(mut engines) = try_ending() else { return Vec::new() };
    let mut watched: Vec<Watched> = Vec::new();
    loop {
        watched.retain(|one| engines.iter().any(|engine| engine.as_ptr() == Arc::as_ptr(&one.shared)));
        for shared in engines.iter().filter_map(Weak::upgrade).map(ManuallyDrop::new) {
            if !shared.driver.is_forked() && !watched.iter().any(|one| Arc::ptr_eq(&one.shared, &shared)) {
                watched.push(Watched::new(ManuallyDrop::into_inner(shared)));
            }
        }
        let stalled = watched.iter_mut().map(Watched::is_stalled).filter(|is_stalled| *is_stalled).count();
        if stalled == watched.len() {
            return watched.into_iter().map(|one| one.shared).collect();
        }
        engines = unpoisoned(ENDED.wait_timeout(engines, LOOK * 20)).0;
    }
}

/// Reports what these engines lose, in a thread that may hang: subscribers are the program's.
fn report(engines: Vec<ManuallyDrop<Arc<Shared>>>) {
    if engines.is_empty() {
        return;
    }
    let report = move || engines.iter().for_each(|shared| report_lost(shared));
    let reporting = without_signals(|| thread::Builder::new().spawn(report));
    let deadline = Instant::now() + TURN_PATIENCE;
    while reporting.as_ref().is_ok_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
        thread::sleep(LOOK);
    }
}

fn ending() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    lock(&ENDING)
}

/// `None` in a child that was forked while another thread had the lock.
fn try_ending() -> Option<MutexGuard<'static, Vec<Weak<Shared>>>> {
    for _ in 0..100 {
        match ENDING.try_lock() {
            Ok(engines) => return Some(engines),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK),
        }
    }
    None
}

/// An exit that waits for a device which writes nothing for so long gives up: users take a process that lingers for one that
/// hangs, and devices that answer at all do so within a second.
const STALL: Duration = Duration::from_secs(1);

/// With all of its memory dirty, an engine gets this much through to the slowest of disks.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

/// A task that still runs gives its turn up within this time, unless its device hangs.
const TURN_PATIENCE: Duration = Duration::from_millis(100);

/// Short beside what an exit costs anyhow.
const LOOK: Duration = Duration::from_millis(1);

/// Files that are flushed at once: one device in four may hang, and the others get their bytes.
const FLUSHERS: usize = 4;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::task::{Context, Waker};

    use headwater_io::DriverKind;
    use tempfile::TempDir;

    use super::*;
    use crate::api::contents::Contents;
    use crate::api::file::File;
    use crate::{Caching, OpenOptions};

    const WRITTEN: &[u8] = b"acknowledged";

    fn engine() -> Engine {
        Engine::builder().memory(4 << 20).driver(DriverKind::Threads).build().unwrap()
    }

    /// A file that was written to, and not synced. The engine goes before the directory.
    fn written() -> (Engine, File, PathBuf, TempDir) {
        let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
        let path = directory.path().join("file");
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).create().open(&path).unwrap();
        file.write_all_at(WRITTEN, 0).unwrap();
        (engine, file, path, directory)
    }

    /// Goal: what was written is in the file when the last handle is dropped, also while the background thread works with the
    /// engine. Method: hold the engine as that thread does.
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

    /// Goal: an exit writes what a task holds back that cuts the file and is never polled again, and windows of such a file;
    /// a cut that did not happen changes nothing. Method: a future that has the turn and has set the barrier; flush as an
    /// exit does; poll it again.
    #[test]
    fn an_exit_takes_the_turn_of_a_cut() {
        let (engine, file, path, _directory) = written();
        file.write_all_at(WRITTEN, 100_000).unwrap();
        let Contents::Stored(source) = &file.contents else { panic!("it is a file") };
        let inode = source.known().unwrap().clone();
        let mut context = Context::from_waker(Waker::noop());
        let mut has_turn = Box::pin(inode.dirty.size_lock.lock_async(&engine.shared.driver));
        let std::task::Poll::Ready(turn) = has_turn.as_mut().poll(&mut context) else {
            panic!("no thread has it")
        };
        let mut waiting = Box::pin(file.set_len_async(4096));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        inode.dirty.lock().barrier = Some(headwater_core::units::PageIndex::new(1));
        flush_leaving(&engine.shared);
        assert!(!turn.holds());
        drop(turn);
        let disk = std::fs::read(&path).unwrap();
        assert_eq!((&disk[..WRITTEN.len()], &disk[100_000..]), (WRITTEN, WRITTEN));
        // The exit has given the turn up again.
        while waiting.as_mut().poll(&mut context).is_pending() {}
        assert_eq!(file.len().unwrap(), 4096);
        assert_eq!(engine.shared.cache.writes.dirty().pages(), 0);
    }

    /// Goal: an exit gives an engine up that writes nothing, and not before a second has passed since it did. Method: an
    /// engine that ends and does nothing, but for one write that is over.
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
