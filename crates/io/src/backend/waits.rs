//! Waits: one thread waits for all timeouts and descriptors of the `threads` driver, so that no worker does.
//!
//! ```text
//!   worker: add ─► bell ─► the thread: poll(2) of all descriptors, until the next deadline ─► each that is over: end
//!   cancel ─► bell ─► the thread looks which are cancelled
//! ```
//!
//! Owns: the waits under way, the thread, the bell that makes it look again.
//! Does not own: the requests (slots), what follows when one ends (threads).
//! Invariants: I4 the thread knows a descriptor only until the request it belongs to has ended.
//! Locks: `state`, for list operations only; the thread waits without it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::request::slot_table::SlotId;
use crate::sync::lock;
use crate::system::calls::{SystemCall, monotonic, ready_events};

/// The waits of one driver.
#[derive(Default)]
pub(crate) struct Waits {
    state: Mutex<State>,
    bell: OnceLock<OwnedFd>,
}

#[derive(Default)]
struct State {
    arrived: Vec<Wait>,
    thread: Option<JoinHandle<()>>,
    is_stopping: bool,
}

/// A request that waits.
pub(crate) struct Wait {
    pub(crate) id: SlotId,
    pub(crate) call: SystemCall,
}

impl Waits {
    /// Takes over a request, and starts the thread if need be.
    ///
    /// # Errors
    /// When there is no descriptor or no thread left.
    pub(crate) fn add(
        &self,
        wait: Wait,
        start: impl FnOnce() -> io::Result<JoinHandle<()>>,
    ) -> io::Result<()> {
        let mut state = lock(&self.state);
        if self.bell.get().is_none() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            _ = self.bell.set(bell);
        }
        if state.thread.is_none() {
            state.thread = Some(start()?);
        }
        state.arrived.push(wait);
        drop(state);
        self.ring();
        Ok(())
    }

    /// The thread looks at all waits again.
    pub(crate) fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            // A bell that is full rings already.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// No wait is added any more: ends the thread when all have ended.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = lock(&self.state);
            state.is_stopping = true;
            state.thread.take()
        };
        self.ring();
        // A waker that drops the last handle runs on that thread, which then ends by itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    /// What the thread does. `is_cancelled` says whether a request is to end early; `end` ends it.
    pub(crate) fn work(
        &self,
        is_cancelled: impl Fn(SlotId) -> bool,
        end: impl Fn(SlotId, io::Result<usize>),
    ) {
        let mut waits: Vec<Wait> = Vec::new();
        loop {
            let is_stopping = {
                let mut state = lock(&self.state);
                waits.append(&mut state.arrived);
                state.is_stopping
            };
            let cancelled = waits.extract_if(.., |wait| is_cancelled(wait.id));
            for wait in cancelled.collect::<Vec<_>>() {
                end(wait.id, Err(io::Error::from_raw_os_error(libc::ECANCELED)));
            }
            if is_stopping && waits.is_empty() {
                return;
            }
            for (wait, result) in self.await_some(&mut waits) {
                end(wait.id, result);
            }
        }
    }

    /// Blocks until one is over or the bell rings. Takes out those that are over.
    fn await_some(&self, waits: &mut Vec<Wait>) -> Vec<(Wait, io::Result<usize>)> {
        let bell = self.bell.get().expect("there is one before the first wait");
        let mut descriptors = vec![PollFd::new(bell, PollFlags::IN)];
        descriptors.extend(waits.iter().filter_map(|wait| match wait.call {
            SystemCall::Poll { descriptor, events } => {
                // SAFETY: the request keeps it open until it has ended, which only this thread brings about.
                let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
                Some(PollFd::from_borrowed_fd(descriptor, PollFlags::from_bits_retain(events as _)))
            }
            _ => None,
        }));
        let next = waits.iter().filter_map(|wait| deadline(&wait.call)).min();
        let time = next.map(|next| next.saturating_sub(monotonic()));
        // Times beyond what the call takes are looked at again then. An error (EINTR, ENOMEM) means that there may be nothing.
        let limit = time.map(|time| time.min(LOOK_MAX).try_into().expect("it is short"));
        let polled = match poll(&mut descriptors, limit.as_ref()) {
            Err(Errno::INVAL) => poll_in_parts(&mut descriptors, time.unwrap_or(PAUSE)),
            polled => polled,
        };
        if !descriptors[0].revents().is_empty() {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        let mut ready = descriptors[1..].iter().map(|descriptor| descriptor.revents().bits());
        let results: Vec<Option<io::Result<usize>>> = waits
            .iter()
            .map(|wait| match deadline(&wait.call) {
                Some(deadline) => (deadline <= monotonic()).then_some(Ok(0)),
                None => match ready.next() {
                    Some(events) if events != 0 && polled.is_ok() => Some(ready_events(events as i16)),
                    _ => None,
                },
            })
            .collect();
        drop(ready);
        let mut results = results.into_iter();
        let mut over = Vec::new();
        for wait in std::mem::take(waits) {
            match results.next().flatten() {
                Some(result) => over.push((wait, result)),
                None => waits.push(wait),
            }
        }
        over
    }
}

/// As `poll(2)`, which takes no more descriptors at a time than a process may have open (`RLIMIT_NOFILE`): several requests may wait for
/// the same one, and those that are open stay so when the limit is lowered. Looks at all of them, and where none is ready lets `time` pass,
/// or [`PAUSE`] if that is shorter.
#[cold]
fn poll_in_parts(descriptors: &mut [PollFd<'_>], time: Duration) -> rustix::io::Result<usize> {
    let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most.max(1) as usize);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = descriptors.chunks_mut(most).map(|part| poll(part, Some(&now))).sum();
    if !matches!(ready, Ok(1..)) {
        thread::sleep(time.min(PAUSE));
    }
    ready
}

/// When it is over, if time decides that.
fn deadline(call: &SystemCall) -> Option<Duration> {
    match call {
        SystemCall::Timeout { deadline, .. } => *deadline,
        _ => None,
    }
}

/// Between looks at more descriptors than `poll(2)` takes, each of which costs processor time.
const PAUSE: Duration = Duration::from_millis(2);

/// The thread wakes once an hour if nothing happens before.
const LOOK_MAX: Duration = Duration::from_secs(3600);
