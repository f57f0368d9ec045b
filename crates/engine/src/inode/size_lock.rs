//! Size lock: the right to change the length of a file.
//!
//! ```text
//!   free ─► a thread: firm, until it is released
//!      └──► a task: loose ─┬─ make_firm ─► firm
//!                          └─ the process exits [lock_leaving] ─► seized: the task finds out by `holds`
//! ```
//!
//! Owns: which thread or task may change the length, which of them wait.
//! Does not own: the length.
//! Locks: taken before all others of a file, and kept while waiting for memory or for the device.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headwater_io::Driver;

use crate::base::handover::Handover;
use crate::base::listeners::{Deferral, defer};

/// The right to change the length of a file: one holder at a time, which keeps it while waiting for memory or for the device.
///
/// A thread that holds the lock runs on until it releases it. A task may never be polled again, so an exit of the process seizes
/// the lock from it ([`SizeLock::lock_leaving`]); from then on the task has to ask [`SizeLockGuard::holds`].
#[derive(Debug, Default)]
pub(crate) struct SizeLock {
    /// 0 while free; else [`FIRM`], or the ticket of a task that may lose the lock, or both.
    holder: AtomicU64,
    tickets: AtomicU64,
    /// An upper bound of waiting threads and tasks: releasing the lock without waiters takes no other lock.
    waiting: AtomicU64,
    released: Handover,
}

/// Counts a thread or task as waiting, until dropped.
struct Waiting<'a>(&'a SizeLock);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the lock can be seized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// No: a thread holds it.
    Firm = FIRM as isize,
    /// At exit: a task holds it.
    Loose = 0,
}

/// Releases the lock when dropped.
#[derive(Debug)]
pub(crate) struct SizeLockGuard<'a> {
    lock: &'a SizeLock,
    /// 0 for a thread, which holds the lock until it releases it, and calls no listener before: a listener may write to the file.
    ticket: u64,
}

impl SizeLock {
    /// Blocks until this thread holds the lock.
    pub(crate) fn lock(&self) -> SizeLockGuard<'_> {
        if let Some(guard) = self.try_hold(Hold::Firm) {
            return guard;
        }
        let _waiting = self.wait();
        loop {
            let listener = self.released.listen();
            if let Some(guard) = self.try_hold(Hold::Firm) {
                return guard;
            }
            listener.wait();
        }
    }

    /// As [`SizeLock::lock`], for a task. May be dropped at any moment.
    pub(crate) async fn lock_async(&self, driver: &Driver) -> SizeLockGuard<'_> {
        if let Some(guard) = self.try_hold(Hold::Loose) {
            return guard;
        }
        let _waiting = self.wait();
        loop {
            let listener = self.released.listen_async(driver);
            if let Some(guard) = self.try_hold(Hold::Loose) {
                return guard;
            }
            listener.await;
        }
    }

    /// As [`SizeLock::lock`], when the process exits: from `deadline` on, seizes the lock from a task. Blocks as long as threads
    /// hold it. Returns whether a task lost it.
    pub(crate) fn lock_leaving(&self, deadline: Instant) -> (SizeLockGuard<'_>, Taken) {
        let _waiting = self.wait();
        loop {
            if let Some(guard) = self.try_hold(Hold::Firm) {
                return (guard, Taken::Given);
            }
            if Instant::now() >= deadline
                && let Some(guard) = self.seize()
            {
                return (guard, Taken::Seized);
            }
            let _ = self.released.listen().wait_timeout(LOOK_AGAIN);
        }
    }

    /// Called before the attempt that fails: either that attempt finds the lock free, or its holder sees a waiter.
    fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    /// The lock, if it is free.
    pub(crate) fn try_lock(&self) -> Option<SizeLockGuard<'_>> {
        self.try_hold(Hold::Firm)
    }

    fn try_hold(&self, hold: Hold) -> Option<SizeLockGuard<'_>> {
        self.replace(0, hold)
    }

    fn seize(&self) -> Option<SizeLockGuard<'_>> {
        let holder = self.holder.load(Ordering::Acquire);
        if holder & FIRM == FIRM { None } else { self.replace(holder, Hold::Firm) }
    }

    fn replace(&self, holder: u64, hold: Hold) -> Option<SizeLockGuard<'_>> {
        if self.holder.load(Ordering::SeqCst) != holder {
            return None;
        }
        let ticket = match hold {
            Hold::Firm => 0,
            Hold::Loose => (self.tickets.fetch_add(1, Ordering::Relaxed) + 1) << 1,
        };
        let taken =
            self.holder.compare_exchange(holder, ticket | hold as u64, Ordering::SeqCst, Ordering::SeqCst);
        // Constructed only on success: dropping a guard releases the lock, whichever thread holds it.
        taken.is_ok().then(|| {
            if hold == Hold::Firm {
                defer().leave_open();
            }
            SizeLockGuard { lock: self, ticket }
        })
    }
}

impl SizeLockGuard<'_> {
    /// Whether the lock was not seized.
    pub(crate) fn holds(&self) -> bool {
        self.ticket == 0 || self.lock.holder.load(Ordering::Acquire) & !FIRM == self.ticket
    }

    /// As [`SizeLockGuard::holds`].
    ///
    /// # Errors
    /// When an exit of the process has seized the lock.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.holds() { Ok(()) } else { Err(seized()) }
    }

    /// As [`SizeLockGuard::make_firm`]: from here on an exit of the process waits for the holder.
    ///
    /// # Errors
    /// When the exit came first.
    pub(crate) fn keep(&self) -> io::Result<()> {
        if self.make_firm() { Ok(()) } else { Err(seized()) }
    }

    /// Makes the lock impossible to seize; false if it was seized before.
    pub(crate) fn make_firm(&self) -> bool {
        if self.ticket == 0 {
            return true;
        }
        let holder = &self.lock.holder;
        let firm = self.ticket | FIRM;
        match holder.compare_exchange(self.ticket, firm, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(other) => other == firm,
        }
    }
}

impl Drop for SizeLockGuard<'_> {
    fn drop(&mut self) {
        // Deferred calls of listeners run when the lock is released.
        let _deferral = (self.ticket == 0).then(Deferral::left_open);
        // A firm lock cannot be seized between this and the store.
        if self.make_firm() {
            self.lock.holder.store(0, Ordering::SeqCst);
            if self.lock.waiting.load(Ordering::SeqCst) > 0 {
                self.lock.released.notify_one();
            }
        }
    }
}

fn seized() -> io::Error {
    io::Error::other("the process ends, and writes what the file has")
}

/// How the lock was acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Given,
    Seized,
}

/// Alone, or beside a ticket, which is even: the lock cannot be seized.
const FIRM: u64 = 1;

/// While a process exits: short beside the second that an exit may take.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, mpsc};
    use std::task::{Context, Waker};
    use std::thread;
    use std::time::{Duration, Instant};

    use headwater_io::{Driver, DriverOptions};

    use super::{Hold, SizeLock, Taken};

    /// Goal: the lock has one holder until that releases it, however many wait. Method: an attempt that fails, and threads that
    /// add one in two steps.
    #[test]
    fn one_holds_the_lock() {
        let lock = SizeLock::default();
        let taken = lock.lock();
        assert!(lock.try_hold(Hold::Firm).is_none());
        assert!(lock.try_hold(Hold::Firm).is_none(), "a failed attempt releases the lock");
        drop(taken);
        let sum = std::sync::atomic::AtomicU64::new(0);
        let add = || {
            let _taken = lock.lock();
            let before = sum.load(std::sync::atomic::Ordering::Relaxed);
            thread::yield_now();
            sum.store(before + 1, std::sync::atomic::Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5000).for_each(|_| add()));
            }
        });
        assert_eq!(sum.into_inner(), 20_000);
        assert!(lock.try_hold(Hold::Firm).is_some());
    }

    /// Goal: a thread gets the lock behind a task that waits for it and is never polled again. Method: the task comes first.
    #[test]
    fn a_task_that_waits_holds_up_no_thread() {
        let (lock, driver) = (Arc::new(SizeLock::default()), Driver::new(&DriverOptions::default()).unwrap());
        let taken = lock.lock();
        let mut task = Box::pin(lock.lock_async(&driver));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (got, gets) = mpsc::channel();
        let waiter = lock.clone();
        thread::spawn(move || {
            drop(waiter.lock());
            got.send(())
        });
        while lock.waiting.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        // Until the thread sleeps: one that does not sleep yet finds the lock free.
        thread::sleep(Duration::from_millis(20));
        drop(taken);
        gets.recv_timeout(Duration::from_secs(60)).expect("the task has swallowed the notification");
    }

    /// Goal: an exit seizes the lock from a task, not from a thread, nor from a task that cannot go back; the task finds out, and
    /// does not release the new holder's lock. Method: each in turn.
    #[test]
    fn a_task_loses_the_lock_at_exit() {
        let lock = SizeLock::default();
        let thread = lock.lock();
        assert!(lock.seize().is_none());
        drop(thread);
        let task = lock.try_hold(Hold::Loose).unwrap();
        assert!(lock.try_hold(Hold::Firm).is_none());
        let (ending, taken) = lock.lock_leaving(Instant::now());
        assert_eq!((taken, task.holds(), ending.holds()), (Taken::Seized, false, true));
        assert!(!task.make_firm());
        drop(task);
        assert!(lock.try_hold(Hold::Firm).is_none(), "the task releases the exit's lock");
        drop(ending);
        let task = lock.try_hold(Hold::Loose).unwrap();
        assert!(task.make_firm() && task.holds() && lock.seize().is_none());
        drop(task);
        assert_eq!(lock.lock_leaving(Instant::now()).1, Taken::Given);
    }
}
