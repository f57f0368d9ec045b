//! Faults: faults of the kernel, injected between the driver and a real ring.
//!
//! In tests only: those of this crate, and with the feature `faults` those of crates above it.
//!
//! ```text
//!   enter ───────► Faults::enter ─► io_uring_enter     refused, partly done, late
//!   drain_ready ◄─ Faults::show ◄── completion queue   kept back, doubled, invented, altered
//!   look for stuck threads ◄─ Faults::look             one is found where there is none
//! ```
//!
//! Owns: the seam, and the tests of how the driver handles these faults.
//! Does not own: faults of the device, which `sim` simulates.

#[cfg(test)]
mod random;
#[cfg(test)]
mod scripted;
mod weather;

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::Mutex;

use io_uring::IoUring;

use crate::sync::lock;
pub use weather::KernelFaults;

/// What happens to a ring.
pub(crate) struct Faults {
    /// Decides on a call of `io_uring_enter` from the number of completions that it waits for.
    enter: Box<dyn Fn(usize) -> Enter + Send + Sync>,
    show: Mutex<Show>,
    /// Whether a look for threads that are stuck finds one.
    look: Box<dyn Fn() -> bool + Send + Sync>,
}

struct Show {
    /// Is given what came since the last look, if anything, and leaves what the driver is to see.
    change: Box<Change>,
    /// What the driver is to see and has not seen yet.
    left: VecDeque<Shown>,
}

type Change = dyn FnMut(&mut Vec<Shown>) + Send;

/// A completion: what it names, and its result.
pub(super) type Shown = (u64, i32);

/// What becomes of a system call.
pub(super) enum Enter {
    /// It is made, and waits for this many completions.
    Waits(usize),
    /// The kernel takes no more entries than these, and does not wait.
    Takes(u32),
    Fails(i32),
}

impl Faults {
    pub(super) fn new(
        enter: impl Fn(usize) -> Enter + Send + Sync + 'static,
        change: impl FnMut(&mut Vec<Shown>) + Send + 'static,
    ) -> Faults {
        let show = Show { change: Box::new(change), left: VecDeque::new() };
        Faults { enter: Box::new(enter), show: Mutex::new(show), look: Box::new(|| false) }
    }

    /// The same, with looks for threads that are stuck.
    pub(super) fn and_looks(self, look: impl Fn() -> bool + Send + Sync + 'static) -> Faults {
        Faults { look: Box::new(look), ..self }
    }

    pub(super) fn shows_a_stuck_thread(&self) -> bool {
        (self.look)()
    }
}

/// For how many completions the caller's system call waits, or what became of the one that was made here.
pub(super) fn enter(
    faults: Option<&Faults>,
    ring: &IoUring,
    want: usize,
) -> ControlFlow<io::Result<usize>, usize> {
    match faults.map_or(Enter::Waits(want), |faults| (faults.enter)(want)) {
        Enter::Waits(want) => ControlFlow::Continue(want),
        Enter::Takes(entries) => {
            // SAFETY: what is in the queue was put there as `entry::push` asks.
            let taken = unsafe { ring.submitter().enter::<()>(entries, 0, 0, None) };
            ControlFlow::Break(taken)
        }
        Enter::Fails(code) => ControlFlow::Break(Err(io::Error::from_raw_os_error(code))),
    }
}

/// What the driver sees of the completion queue.
pub(super) fn show<'a>(
    faults: Option<&'a Faults>,
    queue: impl Iterator<Item = Shown> + 'a,
) -> Box<dyn Iterator<Item = Shown> + 'a> {
    let Some(faults) = faults else { return Box::new(queue) };
    let mut show = lock(&faults.show);
    let mut shown: Vec<Shown> = queue.collect();
    (show.change)(&mut shown);
    show.left.extend(shown);
    Box::new(std::iter::from_fn(move || show.left.pop_front()))
}
