//! Known: a fact about the system that is found out once.
//!
//! Threads that ask at the same time may all find it out: a `OnceLock` would wait for the first, and a child forked meanwhile has
//! no such thread.
//!
//! Owns: the fact, once it is known.
//! Does not own: finding it out, which returns the same each time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is found out at its first use.
#[derive(Debug)]
pub(crate) struct KnownNumber(AtomicU64);

impl KnownNumber {
    pub(crate) const fn new() -> KnownNumber {
        KnownNumber(AtomicU64::new(UNKNOWN))
    }

    /// The number, which is below `u64::MAX`.
    #[inline]
    pub(crate) fn get_or(&self, find_out: impl FnOnce() -> u64) -> u64 {
        // Nothing else is published with the number.
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => {
                let number = find_out();
                self.0.store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }

    /// The same for a fact that is true or false.
    pub(crate) fn is(&self, find_out: impl FnOnce() -> bool) -> bool {
        self.get_or(|| u64::from(find_out())) == 1
    }
}

const UNKNOWN: u64 = u64::MAX;

#[cfg(all(test, not(headwater_loom), not(miri)))]
mod tests {
    use headwater_testkit::run_forked;

    use super::*;

    /// Goal: a child that is forked while a thread of its parent finds out a fact does not wait for that thread.
    #[test]
    fn a_child_finds_out_by_itself() {
        let fact = KnownNumber::new();
        let found = fact.get_or(|| {
            run_forked(|| assert_eq!(fact.get_or(|| 2), 2));
            1
        });
        assert_eq!((found, fact.get_or(|| 3)), (1, 1));
    }
}
