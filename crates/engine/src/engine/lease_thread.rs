//! Leases: the files of an engine that are, or are to be, leased, and the thread that hears of who wants to write.
//!
//! ```text
//!   open ─► enlist ─► Inode::lease          own open for writing ─► make_way
//!   watch: signal ─► each file: asked for? pages leave, lease given up ─► keeper tells those who listen
//!   keeper, once a second: each file without: Inode::lease
//! ```
//!
//! It is a thread of its own because the keeper waits for devices and runs what users gave it, while somebody else's `open(2)`
//! hangs here. It sleeps until the kernel sends it a signal, and then asks for the state of every file: 0.2 µs each, so that
//! with a thousand files others wait for 0.2 ms instead of 0.02. It is started when the first lease is wished.
//!
//! Owns: the list, the thread, when leases are tried again.
//! Does not own: the lease of one file (coherence).
//! Locks: `files` before the lease of a file; `dropped`, `tried` and `thread` alone. There are no leases where there is no keeper.

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
    /// Not tried, running, or refused.
    thread: Mutex<Option<Option<Watching>>>,
    tried: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Watching {
    owner: LeaseOwner,
    thread: JoinHandle<()>,
}

/// What the thread has.
#[derive(Debug, Default)]
struct Enlisted {
    files: Mutex<HashMap<FileId, Weak<Inode>>>,
    /// How many there are.
    count: AtomicUsize,
    /// Pages of which nobody was told yet that they left.
    dropped: Mutex<Vec<(Arc<Inode>, Vec<Dropped>)>>,
    /// The engine goes, or the thread has gone.
    is_over: AtomicBool,
}

impl Leases {
    /// A handle that reads wishes its file leased.
    pub(crate) fn enlist(&self, background: &BackgroundThread, inode: &Arc<Inode>, file: &Arc<OpenFile>) {
        let Some(owner) = self.owner(background) else { return };
        self.enlisted.add(inode, file);
        self.enlisted.lease(inode, &owner);
        if !inode.leasing.is_trusted() {
            // It tries again.
            background.wake();
        }
    }

    /// Nobody has the file open any more.
    pub(crate) fn delist(&self, inode: &Arc<Inode>) {
        if self.enlisted.count.load(Ordering::Acquire) == 0 {
            return;
        }
        self.enlisted.remove(inode);
    }

    /// This engine is about to open a file for writing, and would wait for itself.
    pub(crate) fn make_way(&self, inodes: &Inodes, path: &Path) {
        if self.enlisted.count.load(Ordering::Acquire) == 0 {
            return;
        }
        // If it cannot be looked at, opening it says why.
        if let Ok(key) = FileKey::of_path(path)
            && let Some(inode) = inodes.find(key)
        {
            inode.give_up_lease();
        }
    }

    /// A round of the keeper. Says when the next is due.
    pub(crate) fn tend(&self) -> Option<Duration> {
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

    /// The engine goes.
    pub(crate) fn stop(&self) {
        self.enlisted.is_over.store(true, Ordering::Release);
        let Some(watching) = lock(&self.thread).take().flatten() else { return };
        // It cannot fail: its counter is far from full. If it did, the thread would stay, and answer.
        if watching.owner.wake().is_ok() && watching.thread.thread().id() != std::thread::current().id() {
            // A thread that panicked has said so.
            let _ = watching.thread.join();
        }
    }

    /// Whom the kernel tells, unless it cannot be done.
    fn owner(&self, background: &BackgroundThread) -> Option<LeaseOwner> {
        let mut thread = lock(&self.thread);
        let watching = thread.get_or_insert_with(|| {
            let waker = background.waker()?;
            // Without it files are looked at, as without leases.
            start(&self.enlisted, waker).ok()
        });
        watching.as_ref().map(|watching| watching.owner.clone()).filter(|_| !self.enlisted.is_over())
    }
}

impl Enlisted {
    /// Under the lock, so that who opens the file is not taken off the list by who closes it.
    fn add(&self, inode: &Arc<Inode>, file: &Arc<OpenFile>) {
        let mut files = lock(&self.files);
        inode.wish_lease(file);
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

    /// Tries to. The file is in the list by then, so that whoever ends meanwhile gives this lease up too, or is seen here.
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

/// Gives all leases up when the thread ends, however it does: nobody would answer.
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
    // If it cannot hear any more, it ends, and with it the leases.
    while watch.wait().is_ok() && !enlisted.is_over() {
        let mut told = Vec::new();
        for inode in enlisted.files() {
            if let Some(dropped) = inode.break_lease() {
                told.push((inode, dropped));
            }
        }
        if !told.is_empty() {
            lock(&enlisted.dropped).append(&mut told);
            background.wake();
        }
    }
}

/// How often a lease is tried of a file that has none: a refusal costs 1.5 µs, and who opens a file for writing again and
/// again waits for us once a second.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// It drops pages.
const STACK_BYTES: usize = 256 << 10;
