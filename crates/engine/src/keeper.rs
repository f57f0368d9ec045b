//! Keeper: a thread that sees to what nobody waits for.
//!
//! ```text
//!   a file is opened, or becomes dirty ─► woken ─► tick ─┬─ arrived? concluded; old, or closed? written back
//!     ▲                                                    └─ memory short? given back; not leased? tried again
//!     └── nothing is open or dirty: rests ◄── until the next, which the memory decides ──┘
//! ```
//!
//! An opening or a first dirty page wakes it only from its rest. While files come and go, it looks once in a while and does not
//! rest: to be woken by each of them cost 30 us for a file that is opened, read and closed within 10, and as much for each sync.
//!
//! Who writes much has his pages written as he goes, and who syncs waits; the keeper is for the rest: what was written a while
//! ago, of files that are closed, results that nobody asked for, memory that others need, and leases that were refused. It knows the engine weakly, so that it does not keep it.
//!
//! Owns: the thread.
//! Does not own: what is to be written back, how much memory goes.
//! Locks: `signal`, not held while working. There is no thread on local engines, where only one may use the ring, nor on
//! `sim`, where time passes only for those who ask.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use headwater_io::{close_parked, without_signals};

use crate::engine::Shared;

/// The thread of an engine, once there is something to do.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    presence: Presence,
    is_started: AtomicBool,
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The engine that it keeps.
    engine: OnceLock<Weak<Shared>>,
}

/// Whether an engine has a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Presence {
    #[default]
    Present,
    Absent,
}

#[derive(Debug, Default)]
struct Signal {
    call: Mutex<Call>,
    called: Condvar,
    /// Whether it waits for a call alone. Before it does, it looks at `has_news`, which is set before the look here.
    is_resting: AtomicBool,
    /// Whether a file was opened, or became dirty, since it last looked.
    has_news: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Call {
    #[default]
    None,
    Wake,
    Stop,
}

impl Keeper {
    pub(crate) fn new(presence: Presence) -> Keeper {
        Keeper { presence, ..Keeper::default() }
    }

    /// Tells it which engine it is the keeper of.
    pub(crate) fn keep(&self, shared: &Arc<Shared>) {
        // Told once, when the engine is built.
        let _ = self.engine.set(Arc::downgrade(shared));
    }

    /// A file was opened, or became dirty: there is something to watch, from the next tick on.
    pub(crate) fn note(&self) {
        if !self.is_started.load(Ordering::Acquire) {
            return self.wake();
        }
        if !self.signal.has_news.load(Ordering::Relaxed) {
            self.signal.has_news.store(true, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if self.signal.is_resting.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// There is something to do.
    pub(crate) fn wake(&self) {
        let Some(shared) = self.engine.get().filter(|_| self.presence == Presence::Present) else { return };
        if !self.is_started.swap(true, Ordering::AcqRel) {
            let (signal, shared) = (self.signal.clone(), shared.clone());
            let builder = std::thread::Builder::new().name("headwater-keeper".into()).stack_size(STACK_BYTES);
            match without_signals(|| builder.spawn(move || keep(&signal, &shared))) {
                Ok(thread) => *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
                // Without it what is dirty is written by those who write and sync; the next one tries again.
                Err(_) => self.is_started.store(false, Ordering::Release),
            }
        }
        self.signal.send(Call::Wake);
    }

    /// To wake it by, once it is started. `None` where there is none.
    pub(crate) fn bell(&self) -> Option<Bell> {
        (self.presence == Presence::Present).then(|| Bell(self.signal.clone()))
    }

    /// The engine goes.
    pub(crate) fn stop(&self) {
        self.signal.send(Call::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may have been the keeper's own.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A keeper that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Wakes a keeper, by who does not know its engine.
#[derive(Debug)]
pub(crate) struct Bell(Arc<Signal>);

impl Bell {
    pub(crate) fn ring(&self) {
        self.0.send(Call::Wake);
    }
}

impl Signal {
    fn send(&self, call: Call) {
        let mut now = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != Call::Stop {
            *now = call;
        }
        drop(now);
        self.called.notify_all();
    }

    /// Waits for a call, or for the next tick.
    fn wait(&self, tick: Option<Duration>) -> Call {
        self.is_resting.store(tick.is_none(), Ordering::SeqCst);
        let has_news = self.has_news.swap(false, Ordering::SeqCst);
        let tick = tick.or_else(|| has_news.then_some(GROWTH_TICK));
        self.is_resting.store(tick.is_none(), Ordering::SeqCst);
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        while *call == Call::None {
            let Some(tick) = tick else {
                call = self.called.wait(call).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            call = self.called.wait_timeout(call, tick).unwrap_or_else(PoisonError::into_inner).0;
            break;
        }
        self.is_resting.store(false, Ordering::SeqCst);
        if *call == Call::Stop { Call::Stop } else { std::mem::take(&mut *call) }
    }
}

fn keep(signal: &Signal, shared: &Weak<Shared>) {
    let mut tick = None;
    while signal.wait(tick) != Call::Stop {
        let Some(shared) = shared.upgrade() else { return };
        tick = shared.tend();
    }
}

impl Shared {
    /// One round of the keeper. Says when the next is due, `None` for when it is called.
    pub(crate) fn tend(&self) -> Option<Duration> {
        self.cache.writes.conclude_arrived(self);
        self.write_back_old();
        self.watch.drain();
        let leases = self.leases.tend();
        let is_small = self.arena.stats().mapped_bytes <= WATCHED_BYTES_MIN;
        let memory = if is_small { GROWTH_TICK } else { self.relieve().look_again };
        let dirty = (!self.cache.writes.dirty_files().is_empty()).then_some(DIRTY_TICK);
        let memory = (!is_small || self.cache.inodes.are_open()).then_some(memory);
        let parked = (close_parked() > 0).then_some(PARKED_TICK);
        [dirty, memory, leases, parked].into_iter().flatten().min()
    }
}

/// While pages are dirty: short beside the age at which they are written, long beside what looking costs.
const DIRTY_TICK: Duration = Duration::from_millis(100);

/// An engine with so little is not asked for memory: what it could give would help nobody.
const WATCHED_BYTES_MIN: usize = 64 << 20;

/// How often a small engine is looked at, whether it has grown.
const GROWTH_TICK: Duration = Duration::from_secs(1);

/// How soon descriptors that wait for locks of the program are looked at again: such locks are held for moments or for hours.
const PARKED_TICK: Duration = Duration::from_secs(1);

/// It runs system calls and wakers.
const STACK_BYTES: usize = 256 << 10;
