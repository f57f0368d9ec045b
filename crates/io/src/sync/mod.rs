//! Sync: locks, atomics, threads and cells for code that loom explores; from loom in its models, else from std.
//!
//! `RUSTFLAGS="--cfg headwater_loom" cargo test -p headwater-io --release --lib loom` runs those models.
//!
//! Owns: the differences between the two: names of threads, signals, time.
//! Does not own: the models.

pub(crate) mod background;
pub(crate) mod event;

#[cfg(headwater_loom)]
use std::io;
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

#[cfg(not(headwater_loom))]
pub(crate) use crate::system::signals::spawn;

#[cfg(headwater_loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
#[cfg(not(headwater_loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

pub(crate) type JoinHandle = thread::JoinHandle<()>;

/// Starts a thread, as `signals::spawn` does outside of loom.
#[cfg(headwater_loom)]
pub(crate) fn spawn(_: &str, _: usize, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    Ok(thread::spawn(run))
}

/// Waits to be notified, or for so long.
#[cfg(not(headwater_loom))]
pub(crate) fn wait_timeout<'a, T>(
    notified: &Condvar,
    _: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    unpoisoned(notified.wait_timeout(guard, time)).0
}

/// Loom has no time: it may be over at any moment.
#[cfg(headwater_loom)]
pub(crate) fn wait_timeout<'a, T>(
    _: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _: Duration,
) -> MutexGuard<'a, T> {
    drop(guard);
    thread::yield_now();
    unpoisoned(mutex.lock())
}

/// As [`lock`]; `None` while another thread has it.
pub fn try_lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> Option<std::sync::MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Locks a mutex of std, poisoned or not: see [`unpoisoned`].
pub fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// What a lock guards, also after a panic of a thread that held it. Such panics come from assertions, which leave the
/// guarded state safe to use; to panic again in every other thread would only hide the first message.
pub fn unpoisoned<G>(outcome: LockResult<G>) -> G {
    outcome.unwrap_or_else(PoisonError::into_inner)
}

/// A cell that is entered by pointer, so that loom can see each access.
#[cfg(not(headwater_loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(headwater_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, enter: impl FnOnce(*mut T) -> R) -> R {
        enter(self.0.get())
    }
}
