//! Gate: counts the threads inside a section, and closes it for good.
//!
//! ```text
//!   enter ─► inside ─► leave          closed: enter is refused
//!                                     sealed: closed, and none is inside: so it stays
//! ```
//!
//! Owns: the number of threads inside, whether more may enter.
//! Does not own: the section that it guards.

use crate::sync::{AtomicUsize, Ordering};

pub(crate) struct Gate(AtomicUsize);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(AtomicUsize::new(0))
    }

    /// Goes in, if it is open. [`Gate::leave`] follows in any case.
    pub(crate) fn enter(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) & CLOSED == 0
    }

    /// Goes out, or away. Says whether the gate is sealed then.
    pub(crate) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) - 1 == CLOSED
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) & CLOSED != 0
    }

    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::SeqCst);
    }
}

/// Beyond any count of threads.
const CLOSED: usize = 1 << (usize::BITS - 1);

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::Gate;

    /// Goal: what is inside of the gate is taken once: by a thread that was let in, or by the last one to leave when none is let in any
    /// more. Method: a thread that takes it if it is let in, and one that is refused and closes the gate.
    #[test]
    fn loom_the_last_one_out_takes_over() {
        loom::model(|| {
            let (gate, taken) = (Arc::new(Gate::new()), Arc::new(AtomicU32::new(0)));
            let take_over = |gate: &Gate, taken: &AtomicU32| {
                if gate.leave() {
                    // One of those who find it sealed, under a lock; the kernel looks at no lock.
                    let _ = taken.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
                }
            };
            let other = {
                let (gate, taken) = (gate.clone(), taken.clone());
                thread::spawn(move || {
                    if gate.enter() {
                        // As the kernel takes an entry: a look, then the rest.
                        let seen = taken.load(Ordering::Relaxed);
                        thread::yield_now();
                        if seen == 0 {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    take_over(&gate, &taken);
                })
            };
            gate.enter();
            gate.close();
            take_over(&gate, &taken);
            other.join().unwrap();
            assert_eq!(taken.load(Ordering::Relaxed), 1);
        });
    }
}
