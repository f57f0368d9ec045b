//! Leases: the files of an engine that are leased or to be leased, and the thread that receives lease breaks.
//!
//! ```text
//!   open ─► enlist ─► Inode::lease          own open for writing ─► make_way
//!   watch: signal ─► each file: break pending? pages leave, lease released ─► background thread calls listeners
//!   background thread, once a second: each file without a lease: Inode::lease
//! ```
//!
//! The lease thread is separate because the background thread waits for devices and runs user code, while another process's
//! `open(2)` blocks on the lease. It sleeps until the kernel sends a signal, then asks for the state of every file: 0.2 µs each,
//! so that with a thousand files an open waits 0.2 ms instead of 0.02. It starts with the first request for a lease.
//!
//! Owns: the list, the thread, when leases are retried.
//! Does not own: the lease of one file (`inode::lease`).
//! Locks: `files` before the lease of a file; `dropped`, `tried` and `thread` alone. Without a background thread there are no
//! leases.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headwater_core::frame::FileId;
use headwater_io::{
    BackgroundWaker, Dropped, FileKey, LeaseOwner, LeaseWatch, OpenFile, lock, without_signals,
};

use crate::engine::background::BackgroundThread;
use crate::inode::Inode;
use crate::inode::table::Inodes;

/// Leases of an engine.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    enlisted: Arc<Enlisted>,
    /// Not tried, running, or refused by the system.
    thread: Mutex<Option<Option<Watching>>>,
    tried: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Watching {
    owner: LeaseOwner,
    thread: JoinHandle<()>,
}

/// The state shared with the thread.
#[derive(Debug, Default)]
struct Enlisted {
    files: Mutex<HashMap<FileId, Weak<Inode>>>,
    /// Number of enlisted files.
    count: AtomicUsize,
    /// Pages that left, not yet reported to listeners.
    dropped: Mutex<Vec<(Arc<Inode>, Vec<Dropped>)>>,
    /// Set when the engine ends, or the thread has ended.
    is_over: AtomicBool,
}

impl Leases {
    /// Enlists a file for which a reading handle requests a lease.
    pub(crate) fn enlist(&self, background: &BackgroundThread, inode: &Arc<Inode>, file: &Arc<OpenFile>) {
        let Some(owner) = self.owner(background) else { return };
        // It calls the listeners when the lease ends.
        background.note();
        self.enlisted.add(inode, file);
        self.enlisted.lease(inode, &owner);
        if !inode.leasing.is_trusted() {
            // The background thread retries.
            background.wake();
        }
    }

    /// Takes a file off the list after its last close.
    pub(crate) fn delist(&self, inode: &Arc<Inode>) {
        if self.enlisted.count.load(Ordering::Acquire) == 0 {
            return;
        }
        self.enlisted.remove(inode);
    }

    /// Releases the lease of a file that this engine is about to open for writing, which would otherwise wait for itself.
    pub(crate) fn make_way(&self, inodes: &Inodes, path: &Path) {
        if self.enlisted.count.load(Ordering::Acquire) == 0 {
            return;
        }
        // If the path cannot be examined, opening it reports why.
        if let Ok(key) = FileKey::of_path(path)
            && let Some(inode) = inodes.find(key)
        {
            inode.give_up_lease();
        }
    }

    /// The lease work of a round of the background thread. Returns when the next is due.
    pub(crate) fn maintain(&self) -> Option<Duration> {
        for (inode, dropped) in self.enlisted.take_dropped() {
            inode.on_dropped(&dropped);
        }
        if self.enlisted.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut tried = lock(&self.tried);
        if tried.is_some_and(|tried| tried.elapsed() < RETRY_INTERVAL) {
            return Some(RETRY_INTERVAL);
        }
        *tried = Some(Instant::now());
        drop(tried);
        let owner =
            lock(&self.thread).as_ref().and_then(Option::as_ref).map(|watching| watching.owner.clone());
        if let Some(owner) = owner {
            self.enlisted.files().iter().for_each(|inode| self.enlisted.lease(inode, &owner));
        }
        Some(RETRY_INTERVAL)
    }

    /// Stops the thread, when the engine ends.
    pub(crate) fn stop(&self) {
        self.enlisted.is_over.store(true, Ordering::Release);
        let Some(watching) = lock(&self.thread).take().flatten() else { return };
        // This cannot fail: the counter is far from full. If it did, the thread would stay, and continue to answer.
        if watching.owner.wake().is_ok() && watching.thread.thread().id() != std::thread::current().id() {
            // A panic of the thread was reported by the panic hook.
            let _ = watching.thread.join();
        }
    }

    /// The recipient of the kernel's signals, unless the thread cannot be started.
    fn owner(&self, background: &BackgroundThread) -> Option<LeaseOwner> {
        let mut thread = lock(&self.thread);
        let watching = thread.get_or_insert_with(|| {
            let waker = background.waker()?;
            // Without the thread files are checked, as without leases.
            start(&self.enlisted, waker).ok()
        });
        watching.as_ref().map(|watching| watching.owner.clone()).filter(|_| !self.enlisted.is_over())
    }
}

impl Enlisted {
    /// Under the lock, so that a concurrent close does not take the file off the list again.
    fn add(&self, inode: &Arc<Inode>, file: &Arc<OpenFile>) {
        let mut files = lock(&self.files);
        inode.request_lease(file);
        files.insert(inode.pages.id(), Arc::downgrade(inode));
        self.count.store(files.len(), Ordering::Release);
    }

    fn remove(&self, inode: &Arc<Inode>) {
        let mut files = lock(&self.files);
        let ended = inode.end_leasing();
        if ended.is_some() {
            files.remove(&inode.pages.id());
            self.count.store(files.len(), Ordering::Release);
        }
        drop(files);
        drop(ended);
    }

    /// Tries to lease a file, which is already in the list: so the end of the thread either releases this lease too, or is seen
    /// here.
    fn lease(&self, inode: &Inode, owner: &LeaseOwner) {
        inode.lease(owner);
        if self.is_over() {
            inode.give_up_lease();
        }
    }

    fn files(&self) -> Vec<Arc<Inode>> {
        lock(&self.files).values().filter_map(Weak::upgrade).collect()
    }

    fn take_dropped(&self) -> Vec<(Arc<Inode>, Vec<Dropped>)> {
        std::mem::take(&mut *lock(&self.dropped))
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Releases all leases when the thread ends, for whatever reason: no one would answer their breaks.
struct Ending<'a>(&'a Enlisted);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.files().iter().for_each(|inode| inode.give_up_lease());
    }
}

fn start(enlisted: &Arc<Enlisted>, waker: BackgroundWaker) -> io::Result<Watching> {
    let (enlisted, (owners, owner)) = (enlisted.clone(), mpsc::channel());
    let builder = std::thread::Builder::new().name("headwater-leases".into()).stack_size(STACK_BYTES);
    let run = move || {
        let watch = LeaseWatch::here();
        let owner = watch.as_ref().map(|watch| watch.owner().clone());
        let is_wanted = owners.send(owner.map_err(|error| error.kind())).is_ok();
        if let Some(watch) = watch.ok().filter(|_| is_wanted) {
            let _ending = Ending(&enlisted);
            answer(&watch, &enlisted, &waker);
        }
    };
    let thread = without_signals(|| builder.spawn(run))?;
    let owner = owner.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
    Ok(Watching { owner, thread })
}

fn answer(watch: &LeaseWatch, enlisted: &Enlisted, background: &BackgroundWaker) {
    // If the thread can no longer receive signals, it ends, and all leases with it.
    while watch.wait().is_ok() && !enlisted.is_over() {
        let mut dropped_pages = Vec::new();
        for inode in enlisted.files() {
            if let Some(dropped) = inode.break_lease() {
                dropped_pages.push((inode, dropped));
            }
        }
        if !dropped_pages.is_empty() {
            lock(&enlisted.dropped).append(&mut dropped_pages);
            background.wake();
        }
    }
}

/// How often a lease is tried for a file without one: a refusal costs 1.5 µs, and a program that opens the file for writing again
/// and again waits for the lease at most once a second.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The thread drops pages, and calls nothing of the user's.
const STACK_BYTES: usize = 256 << 10;
