//! Driver: hands requests to the kernel and gives them back, in one of three ways.
//!
//! ```text
//!   try_submit ──► slot ──► Backend::start ─┬─ uring:   SQE, io_uring_enter
//!                                           ├─ threads: queue, preadv/pwritev on a worker
//!                                           └─ sim:     seeded order, delays, faults; runs when waited for
//!   Completion: wait (blocks) | poll (any executor) | drop (the I/O goes on, its memory comes back after it)
//! ```
//!
//! Owns: the choice of backend, the public handle of a request under way.
//! Does not own: request state (slots), memory (arena).
//! Invariants: I4 dropping a [`Completion`] or the [`Driver`] at any moment frees nothing that the device still uses.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use event_listener::{EventListener, Listener};
use headwater_core::limits::Limits;

use crate::arena::Urgency;
use crate::file::{OpenFile, Route};
use crate::request::{Finished, Request};
use crate::sim::{Sim, SimOptions};
use crate::slots::{SlotId, Slots, Waiter};
use crate::threads::Threads;
use crate::uring::{Polling, Uring};

/// Which driver is wanted.
#[derive(Clone, Debug, Default)]
pub enum DriverKind {
    /// `uring` where the kernel allows it, else `threads`.
    #[default]
    Auto,
    /// io_uring; an error where it is missing or forbidden.
    Uring,
    /// Positioned vectored reads and writes on a small pool of threads.
    Threads,
    /// Deterministic simulation on top of real files, for tests.
    Sim(SimOptions),
}

/// How a driver is built.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Which driver.
    pub kind: DriverKind,
    /// Requests in flight at most, 1 to [`Limits::QUEUE_DEPTH_MAX`].
    pub queue_depth: u32,
    /// Only for `uring`.
    pub polling: Polling,
}

impl Default for DriverOptions {
    fn default() -> Self {
        let queue_depth = Limits::QUEUE_DEPTH_DEFAULT;
        DriverOptions { kind: DriverKind::Auto, queue_depth, polling: Polling::Off }
    }
}

/// A driver's gauges and counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverStats {
    /// Requests in flight, abandoned ones included.
    pub in_flight: usize,
    /// Slots in use: in flight, or done and not taken yet.
    pub slots_used: usize,
}

/// Carries out requests. Clones share the driver; the last one waits for what is still in flight.
#[derive(Clone)]
pub struct Driver {
    inner: Arc<Inner>,
}

struct Inner {
    slots: Arc<Slots>,
    backend: Backend,
    refusal: Option<String>,
}

enum Backend {
    Uring(Uring),
    Threads(Threads),
    Sim(Sim),
}

impl Driver {
    /// Builds a driver. With [`DriverKind::Auto`] a refused ring is no error; [`Driver::uring_refusal`] tells why.
    ///
    /// # Errors
    /// `InvalidInput` for a queue depth out of range; with [`DriverKind::Uring`] what the kernel says.
    pub fn new(options: &DriverOptions) -> io::Result<Driver> {
        let depth = options.queue_depth;
        if !(1..=Limits::QUEUE_DEPTH_MAX).contains(&depth) {
            let text = format!("queue depth {depth} is not within 1 to {}", Limits::QUEUE_DEPTH_MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let slots = Arc::new(Slots::new(depth));
        let (backend, refusal) = match &options.kind {
            DriverKind::Uring => (Backend::Uring(Uring::new(&slots, options.polling)?), None),
            DriverKind::Threads => (Backend::Threads(Threads::new(&slots)), None),
            DriverKind::Sim(sim) => (Backend::Sim(Sim::new(&slots, sim)), None),
            DriverKind::Auto => match Uring::new(&slots, options.polling) {
                Ok(uring) => (Backend::Uring(uring), None),
                Err(error) => (Backend::Threads(Threads::new(&slots)), Some(error.to_string())),
            },
        };
        Ok(Driver { inner: Arc::new(Inner { slots, backend, refusal }) })
    }

    /// `"uring"`, `"threads"` or `"sim"`.
    pub fn name(&self) -> &'static str {
        match self.inner.backend {
            Backend::Uring(_) => "uring",
            Backend::Threads(_) => "threads",
            Backend::Sim(_) => "sim",
        }
    }

    /// Why [`DriverKind::Auto`] did not get a ring.
    pub fn uring_refusal(&self) -> Option<&str> {
        self.inner.refusal.as_deref()
    }

    /// Starts a request if a slot is free, else gives it back. Does not wait. Readahead leaves slots to demand.
    ///
    /// # Errors
    /// The request itself, when there is no slot: wait for [`Driver::slot_freed`] and try again.
    ///
    /// # Panics
    /// If the request does not fit its extents, or takes the direct route on a file without one.
    #[allow(clippy::result_large_err)] // The request goes back to its owner by value; boxing it would allocate.
    pub fn try_submit(&self, request: Request, urgency: Urgency) -> Result<Completion, Request> {
        let id = self.inner.slots.begin(request, urgency)?;
        let completion = Completion { inner: self.inner.clone(), id, taken: false };
        self.inner.backend.start(id);
        Ok(completion)
    }

    /// Starts a request, waiting for a slot if need be. Blocks the thread.
    pub fn submit_blocking(&self, mut request: Request) -> Completion {
        loop {
            match self.try_submit(request, Urgency::Demand) {
                Ok(completion) => return completion,
                Err(back) => request = back,
            }
            let freed = self.slot_freed();
            match self.try_submit(request, Urgency::Demand) {
                Ok(completion) => return completion,
                Err(back) => request = back,
            }
            freed.wait();
        }
    }

    /// Resolves when a slot becomes free. Listen, try again, then wait.
    pub fn slot_freed(&self) -> EventListener {
        let freed = self.inner.slots.freed();
        self.inner.backend.attend();
        freed
    }

    /// Makes sure that requests whose owners are gone are completed although nobody waits for them.
    pub fn attend(&self) {
        self.inner.backend.attend();
    }

    /// Reads into borrowed memory in this thread; see [`OpenFile::read_blocking`].
    ///
    /// # Errors
    /// As there, and what the `sim` driver injects.
    pub fn read_blocking(
        &self,
        file: &OpenFile,
        route: Route,
        buffer: &mut [u8],
        offset_bytes: u64,
    ) -> io::Result<usize> {
        match &self.inner.backend {
            Backend::Sim(sim) => sim.read_blocking(file, route, buffer, offset_bytes),
            Backend::Uring(_) | Backend::Threads(_) => file.read_blocking(route, buffer, offset_bytes),
        }
    }

    /// The driver's gauges.
    pub fn stats(&self) -> DriverStats {
        let slots = &self.inner.slots;
        DriverStats { in_flight: slots.in_flight(), slots_used: slots.used() }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.name()).field("stats", &self.stats()).finish()
    }
}

impl Backend {
    fn start(&self, id: SlotId) {
        match self {
            Backend::Uring(uring) => uring.start(id),
            Backend::Threads(threads) => threads.start(id),
            Backend::Sim(sim) => sim.start(id),
        }
    }

    fn wait(&self, id: SlotId) -> Finished {
        match self {
            Backend::Uring(uring) => uring.wait(id),
            Backend::Threads(threads) => threads.wait(id),
            Backend::Sim(sim) => sim.wait(id),
        }
    }

    /// Somebody waits without a thread of their own, or nobody waits at all: completions must still be reaped.
    fn attend(&self) {
        match self {
            Backend::Uring(uring) => uring.attend(),
            Backend::Threads(_) => {}
            Backend::Sim(sim) => sim.settle(),
        }
    }

    /// Looks whether something is complete, without a syscall where possible.
    fn glance(&self) {
        match self {
            Backend::Uring(uring) => uring.glance(),
            Backend::Threads(_) | Backend::Sim(_) => {}
        }
    }
}

/// A request under way. Dropping it does not stop the I/O, whose memory returns to the arena afterwards.
pub struct Completion {
    inner: Arc<Inner>,
    id: SlotId,
    taken: bool,
}

impl Completion {
    /// Blocks until the request is done. In a lone thread on `uring` this costs no thread switch: it reaps for itself.
    pub fn wait(mut self) -> Finished {
        let finished = self.inner.backend.wait(self.id);
        self.taken = true;
        finished
    }

    /// The result if it is there, else arranges for the task to be woken.
    ///
    /// # Panics
    /// If polled again after it was ready.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Finished> {
        assert!(!self.taken, "a completion is polled again after it was ready");
        let waiter = || Waiter::Task(context.waker().clone());
        let mut finished = self.inner.slots.take(self.id, waiter);
        if finished.is_none() {
            match &self.inner.backend {
                // The simulation moves only when somebody asks, so it does, and is asked again.
                Backend::Sim(sim) => {
                    sim.step();
                    finished = self.inner.slots.take(self.id, waiter);
                    context.waker().wake_by_ref();
                }
                backend => backend.attend(),
            }
        }
        match finished {
            Some(finished) => {
                self.taken = true;
                Poll::Ready(finished)
            }
            None => Poll::Pending,
        }
    }

    /// Whether the result is there. No syscall.
    pub fn is_done(&self) -> bool {
        if !self.inner.slots.is_done(self.id) {
            self.inner.backend.glance();
        }
        self.inner.slots.is_done(self.id)
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.id)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let under_way = !self.taken && self.inner.slots.abandon(self.id);
        // The simulation completes what is abandoned with its later steps.
        if under_way && !matches!(self.inner.backend, Backend::Sim(_)) {
            self.inner.backend.attend();
        }
    }
}
