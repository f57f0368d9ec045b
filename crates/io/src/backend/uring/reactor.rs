//! Reactor: a task for each tokio runtime that reaps when the ring's descriptor becomes readable.
//!
//! ```text
//!   a task polls a request ─► attend ─► first in this runtime? spawn the reactor
//!   reactor: descriptor readable ─► lead, drain, wake tasks ─► runs again after them ─► submits the requests they left
//!            timer, while requests are in flight ─► looks for stuck threads (stalls)
//! ```
//!
//! A runtime watches its descriptors only while a thread runs it, so each runtime whose tasks wait has a reactor of its own, and
//! none depends on another that may be standing still. No thread is added. For the same reason tasks leave requests only
//! to the burst of their own runtime.
//!
//! Owns: the reactors and when they end.
//! Does not own: reaping.
//! Invariants: a reactor keeps the ring's descriptor (a duplicate, so that its number cannot come to mean something
//! else), not the ring: the ring closes when its owner drops it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::task::AbortHandle;

use super::stalls::LOOK;
use super::{Attendant, Shared};
use crate::sync::lock;

/// The reactors of one ring.
#[derive(Default)]
pub(super) struct Reactors {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    runtime: Id,
    reactor: Attendant,
    state: State,
    /// For looks at stuck threads: it expires once after it was armed. It is never read: tokio reports each expiry once (`EPOLLET`), and
    /// arming it takes the last one back.
    timer: Option<Arc<OwnedFd>>,
    is_armed: bool,
}

enum State {
    Starting,
    Running(AbortHandle),
    /// The runtime was built without I/O.
    Impossible,
}

impl Reactors {
    /// The reactor of this task's runtime, started if need be. `None` outside of tokio.
    pub(super) fn attend(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Attendant> {
        static NEXT: AtomicUsize = AtomicUsize::new(Attendant::FIRST_REACTOR);
        let runtime = Handle::try_current().ok()?;
        // Tasks of other runtimes, and with them the reactor, may run in threads that cannot enter a local ring.
        if shared.owner.is_some() && runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return None;
        }
        let id = runtime.id();
        let reactor = {
            let mut entries = lock(&self.entries);
            if let Some(entry) = entries.iter_mut().find(|entry| entry.runtime == id) {
                entry.arm();
                return (!matches!(entry.state, State::Impossible)).then_some(entry.reactor);
            }
            let reactor = Attendant(NEXT.fetch_add(1, Ordering::Relaxed));
            entries.push(Entry {
                runtime: id,
                reactor,
                state: State::Starting,
                timer: None,
                is_armed: false,
            });
            reactor
        };
        let Some(descriptor) = watch(shared) else {
            self.set(id, State::Impossible);
            return None;
        };
        let timer = watch_timer(shared);
        if let Some(timer) = &timer {
            self.set_timer(id, timer.get_ref());
        }
        let registration = Registration { reactors: Arc::downgrade(self), runtime: id };
        let task = Reactor {
            shared: Arc::downgrade(shared),
            descriptor,
            timer,
            burst_under_way: false,
            number: reactor,
            registration,
        };
        // A runtime that is shutting down drops the task at once, and with it the registration.
        let task = runtime.spawn(task).abort_handle();
        self.set(id, State::Running(task)).then_some(reactor)
    }

    /// Whether the runtime was still registered.
    fn set(&self, runtime: Id, state: State) -> bool {
        let mut entries = lock(&self.entries);
        let entry = entries.iter_mut().find(|entry| entry.runtime == runtime);
        entry.map(|entry| entry.state = state).is_some()
    }

    fn set_timer(&self, runtime: Id, timer: &Arc<OwnedFd>) {
        if let Some(entry) = lock(&self.entries).iter_mut().find(|entry| entry.runtime == runtime) {
            entry.timer = Some(timer.clone());
            entry.arm();
        }
    }

    /// The timer has expired: it is armed again while requests are in flight. Under the lock of `attend`: of a task that found it armed
    /// before, the request is seen here.
    fn go_on(&self, runtime: Id, shared: &Shared) {
        if let Some(entry) = lock(&self.entries).iter_mut().find(|entry| entry.runtime == runtime) {
            entry.is_armed = false;
            if shared.slots.in_flight() > 0 {
                entry.arm();
            }
        }
    }

    /// Ends all of them.
    pub(super) fn stop(&self) {
        // Taken out first: a task that is dropped here takes itself off the list.
        let entries = std::mem::take(&mut *lock(&self.entries));
        for entry in entries {
            if let State::Running(task) = entry.state {
                task.abort();
            }
        }
    }
}

/// The descriptor, registered with the current runtime. `None` if that runtime has no I/O, or the process has no descriptor left.
/// tokio reports the former only by panicking: so where panics abort there are no reactors, and where no runtime of the
/// process has I/O tokio is not asked. The message of a panic remains where one runtime has I/O and another has not.
fn watch(shared: &Shared) -> Option<AsyncFd<OwnedFd>> {
    if cfg!(panic = "abort") || !any_runtime_has_io() {
        return None;
    }
    let duplicate = shared.ring.watched().try_clone_to_owned().ok()?;
    let register = || {
        // SAFETY: an `OwnedFd` has one descriptor, open until it is dropped.
        unsafe { AsyncFd::register_with_interest(duplicate, Interest::READABLE) }
    };
    catch_unwind(AssertUnwindSafe(register)).ok()?.ok()
}

/// A timer for looks at stuck threads, registered with the current runtime, which has I/O. `None` on a local ring, which is entered by the
/// thread that runs its tasks, or if the process has no descriptor left.
fn watch_timer(shared: &Shared) -> Option<AsyncFd<Arc<OwnedFd>>> {
    if shared.owner.is_some() {
        return None;
    }
    let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok()?;
    // SAFETY: an `OwnedFd` has one descriptor, open until its last handle is dropped.
    unsafe { AsyncFd::register_with_interest(Arc::new(descriptor), Interest::READABLE) }.ok()
}

impl Entry {
    /// Makes no system call if the timer is armed already.
    fn arm(&mut self) {
        let Some(timer) = &self.timer else { return };
        if std::mem::replace(&mut self.is_armed, true) {
            return;
        }
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        let once = Itimerspec { it_interval: never, it_value: soon };
        // It cannot fail with these arguments; if it did, no task would be helped past a stuck thread.
        _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
    }
}

/// Whether the process has a descriptor of `epoll(7)`, as each runtime with I/O has; also if that cannot be determined.
fn any_runtime_has_io() -> bool {
    let Ok(mut descriptors) = fs::read_dir("/proc/self/fd") else { return true };
    descriptors.any(|entry| {
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
    })
}

/// Takes the runtime off the list when its reactor ends.
struct Registration {
    reactors: Weak<Reactors>,
    runtime: Id,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(reactors) = self.reactors.upgrade() {
            lock(&reactors.entries).retain(|entry| entry.runtime != self.runtime);
        }
    }
}

struct Reactor {
    shared: Weak<Shared>,
    descriptor: AsyncFd<OwnedFd>,
    timer: Option<AsyncFd<Arc<OwnedFd>>>,
    /// Tasks were woken and may have left requests.
    burst_under_way: bool,
    number: Attendant,
    registration: Registration,
}

impl Future for Reactor {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(shared) = self.shared.upgrade() else { return Poll::Ready(()) };
        if std::mem::take(&mut self.burst_under_way) {
            shared.end_burst();
        }
        self.look(&shared, context);
        match self.reap(&shared, context) {
            Poll::Ready(Ok(())) => {
                // Behind the tasks that were just woken.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Reactor {
    /// Looks for stuck threads whenever the timer has expired, which goes on while requests are in flight.
    fn look(&self, shared: &Shared, context: &mut Context<'_>) {
        let Some(timer) = &self.timer else { return };
        while let Poll::Ready(Ok(mut expired)) = timer.poll_read_ready(context) {
            // Before it is armed again.
            expired.clear_ready();
            shared.look_for_tasks();
            if let Some(reactors) = self.registration.reactors.upgrade() {
                reactors.go_on(self.registration.runtime, shared);
            }
        }
    }

    /// Waits for completions and wakes their owners; ready once it has begun a burst. A task that was woken alone submits by itself, and
    /// if this one were ready beside it, tokio would wake another thread for it. An error means that the runtime is going away.
    fn reap(&mut self, shared: &Shared, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut readable = match self.descriptor.poll_read_ready(context) {
                Poll::Pending if self.burst_under_way => return Poll::Ready(Ok(())),
                other => ready!(other)?,
            };
            let Some(lead) = shared.try_lead() else {
                // The leader reaps what is ready, and notifies this task when it gives up the lead.
                if shared.follow_as_task(context.waker()) {
                    continue;
                }
                return if self.burst_under_way { Poll::Ready(Ok(())) } else { Poll::Pending };
            };
            let seen = shared.submit_and_reap(lead, self.number);
            shared.hand_over();
            if seen {
                self.burst_under_way |= shared.in_burst();
            } else {
                readable.clear_ready();
            }
        }
    }
}
