//! Local driver: a driver for one thread, and the loop that runs futures on it.
//!
//! ```text
//!   block_on ─► poll the future ─► submit its requests, reap what is complete ─┬─ something: again
//!       ▲                                                                             └─ nothing: poll(2) on
//!       └──────────────────────────── completion, or the future's waker ◄───────────────── ring and waker
//! ```
//!
//! Owns: how the thread sleeps while there is nothing to do.
//! Does not own: the queue (driver).

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::backend::uring::Sharing;
use crate::driver::Driver;
use crate::driver::choice::DriverOptions;
use crate::driver::queue::Backend;

/// A driver that stays in the thread that built it, for thread-per-core programs. The kernel does not interrupt the thread to
/// complete a request, and rings are not shared.
///
/// ```
/// use headwater_io::{DriverOptions, LocalDriver, Request, Urgency};
/// let local = LocalDriver::new(&DriverOptions::default())?;
/// let mut completion = local.driver().submit(Request::Nop, Urgency::Demand)?;
/// let finished = local.block_on(std::future::poll_fn(|context| completion.poll(context)));
/// assert!(finished.result.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalDriver {
    driver: Driver,
    wakeup: Arc<Wakeup>,
    not_send: PhantomData<*const ()>,
}

impl LocalDriver {
    /// Builds the driver for this thread, with one ring where there are any.
    ///
    /// # Errors
    /// As [`Driver::new`]; `InvalidInput` for more than one ring; when there are no descriptors left.
    pub fn new(options: &DriverOptions) -> io::Result<LocalDriver> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wakeup = Wakeup { descriptor, woken: AtomicBool::new(false), sleeping: AtomicBool::new(false) };
        let driver = Driver::shared_by(Sharing::Local, options)?;
        Ok(LocalDriver { driver, wakeup: Arc::new(wakeup), not_send: PhantomData })
    }

    /// The driver. Clones of it and what they return can be moved to other threads, but panic when used there.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Has [`LocalDriver::block_on`] poll its future again, from any thread.
    pub fn waker(&self) -> Waker {
        Waker::from(self.wakeup.clone())
    }

    /// Runs a future to its end in this thread, and completes requests of this driver meanwhile. The future may wait for
    /// anything else as well.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = self.waker();
        let mut context = Context::from_waker(&waker);
        let _driven: Vec<_> = self.rings().map(|uring| uring.drive_locally()).collect();
        self.wakeup.woken.store(true, Ordering::Release);
        loop {
            if self.wakeup.woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                // Of the loop around this one, if there is one.
                self.wakeup.woken.store(true, Ordering::Release);
                return output;
            }
            let mut moved = false;
            for uring in self.rings() {
                moved |= uring.submit_and_reap();
            }
            if !moved && !self.wakeup.woken.load(Ordering::Acquire) {
                self.sleep();
            }
        }
    }

    fn rings(&self) -> impl Iterator<Item = &crate::backend::uring::Uring> {
        // The rings of a parent are not here.
        self.driver.all_queues().filter(|queue| !queue.is_forked()).filter_map(|queue| match &queue.backend {
            Backend::Uring(uring) => Some(uring),
            Backend::Threads(_) | Backend::Sim(_) => None,
        })
    }

    /// Sleeps until a completion is ready or the future is woken.
    fn sleep(&self) {
        let wakeup = &self.wakeup;
        wakeup.sleeping.store(true, Ordering::SeqCst);
        self.rings().for_each(|uring| uring.silence());
        // Once more: the kernel does not signal again for completions that it has signalled before.
        let moved = self.rings().fold(false, |moved, uring| uring.submit_and_reap() | moved);
        if !moved && !wakeup.woken.load(Ordering::SeqCst) {
            let limit = self.rings().filter_map(|uring| uring.sleep_limit()).min();
            let limit = limit.map(|limit| limit.try_into().expect("it is short"));
            let mut descriptors: Vec<PollFd<'_>> = self
                .rings()
                .map(|uring| PollFd::from_borrowed_fd(uring.descriptor(), PollFlags::IN))
                .collect();
            descriptors.push(PollFd::new(&wakeup.descriptor, PollFlags::IN));
            // An error (EINTR) means that there may be nothing; the caller looks and comes again.
            let _ = poll(&mut descriptors, limit.as_ref());
            if descriptors.last().is_some_and(|wakeup| !wakeup.revents().is_empty()) {
                let _ = rustix::io::read(&wakeup.descriptor, &mut [0; 8]);
            }
        }
        wakeup.sleeping.store(false, Ordering::SeqCst);
    }
}

impl fmt::Debug for LocalDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.driver.fmt(f)
    }
}

/// Wakes the loop from any thread.
struct Wakeup {
    descriptor: OwnedFd,
    woken: AtomicBool,
    sleeping: AtomicBool,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) {
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }
}
