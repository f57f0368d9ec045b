//! Gate: a counting semaphore.
//!
//! Owns: the count.
//! Does not own: the work of its holders.
//! Locks: its own, for a few instructions; entering blocks.

use std::sync::{Condvar, Mutex, MutexGuard};

use headwater_io::{lock, unpoisoned};

pub(super) struct Gate {
    places: Mutex<Places>,
    left: Condvar,
}

struct Places {
    free: usize,
    /// The number of waiting threads: leaving makes a system call only if there are any.
    waiting: usize,
}

/// A permit, held until dropped.
pub(super) struct Entered<'a> {
    gate: &'a Gate,
}

impl Gate {
    /// A gate with this many permits.
    pub(super) fn new(free: usize) -> Gate {
        Gate { places: Mutex::new(Places { free, waiting: 0 }), left: Condvar::new() }
    }

    /// Waits for a permit.
    pub(super) fn enter(&self) -> Entered<'_> {
        let mut places = self.lock();
        while places.free == 0 {
            places.waiting += 1;
            places = unpoisoned(self.left.wait(places));
            places.waiting -= 1;
        }
        places.free -= 1;
        Entered { gate: self }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut places = self.gate.lock();
        places.free += 1;
        let is_awaited = places.waiting > 0;
        drop(places);
        if is_awaited {
            self.gate.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Goal: never more than there are places. Method: many threads count themselves.
    #[test]
    fn places_are_limited() {
        let (gate, inside, most) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _entered = gate.enter();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
        let places = gate.lock();
        assert_eq!((places.free, places.waiting), (2, 0));
    }
}
