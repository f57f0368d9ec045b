//! Sync: locks, atomics and cells of the parts that loom explores; from loom when it does, else from std.
//!
//! `RUSTFLAGS="--cfg headwater_loom" cargo test -p headwater-io --release --lib loom` runs those models.

use std::sync::PoisonError;

#[cfg(headwater_loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    sync::{Mutex, MutexGuard},
};
#[cfg(not(headwater_loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    sync::{Mutex, MutexGuard},
};

/// Locks one of std's own. A panic while one of these is held can only come from an assertion; what it guards is then
/// still safe to use.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
