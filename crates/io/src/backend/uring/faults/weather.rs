//! Weather: a mixture of all that a kernel may do to a ring, drawn from random numbers.
//!
//! Owns: which fault comes when, until it is calm again.
//! Does not own: how it comes to the driver (the seam).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use headwater_core::units::PAGE_BYTES;

use super::{Enter, Faults, Shown};
use crate::sync::lock;

/// What a kernel does to the rings of a driver, short of lying about bytes: `io_uring_enter(2)` interrupted, short of memory, of room for
/// completions, stopped, or taking only some entries; completions delayed, reordered, doubled, invented, short, interrupted; threads that
/// look stuck. Clones are one. For [`Driver::inject`](crate::Driver::inject).
#[derive(Clone)]
pub struct KernelFaults {
    control: Arc<Control>,
}

struct Control {
    random: Mutex<Box<dyn FnMut() -> u64 + Send>>,
    is_calm: AtomicBool,
    is_refusing: AtomicBool,
    /// Completions without a request that the driver was shown, or will be.
    untrue: AtomicU64,
}

impl KernelFaults {
    /// Faults that random numbers decide.
    pub fn new(random: impl FnMut() -> u64 + Send + 'static) -> KernelFaults {
        let control = Control {
            random: Mutex::new(Box::new(random)),
            is_calm: AtomicBool::new(false),
            is_refusing: AtomicBool::new(false),
            untrue: AtomicU64::new(0),
        };
        KernelFaults { control: Arc::new(control) }
    }

    /// From now on the kernel does as it should, and shows what it has kept back.
    pub fn clear_up(&self) {
        self.control.is_calm.store(true, Ordering::SeqCst);
    }

    /// From now on each `io_uring_enter(2)` is refused, as by a sandbox.
    pub fn refuse(&self) {
        self.control.is_refusing.store(true, Ordering::SeqCst);
    }

    /// Completions without a request that the driver was shown, or will be.
    pub fn untrue(&self) -> u64 {
        self.control.untrue.load(Ordering::SeqCst)
    }

    pub(crate) fn of_ring(&self) -> Faults {
        let weather =
            Weather { control: self.control.clone(), failing: 0, late: Vec::new(), past: Vec::new() };
        let before = Arc::new(Mutex::new(weather));
        let after = before.clone();
        let enter = move |want| {
            let (enters, stops) = lock(&before).enter(want);
            stops.into_iter().for_each(thread::sleep);
            enters
        };
        let sky = self.control.clone();
        let look = move || !sky.is_calm();
        Faults::new(enter, move |shown| lock(&after).show(shown)).and_looks(look)
    }
}

impl fmt::Debug for KernelFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelFaults({} untrue)", self.untrue())
    }
}

impl Control {
    fn below(&self, bound: u64) -> u64 {
        (*lock(&self.random))() % bound
    }

    fn chance(&self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }
}

/// Of one ring.
struct Weather {
    control: Arc<Control>,
    /// Calls that fail before one succeeds.
    failing: u64,
    /// Completions that are late, and for how many looks yet.
    late: Vec<(u64, Shown)>,
    /// What named a request once.
    past: Vec<u64>,
}

impl Weather {
    /// And how long the thread stops before.
    fn enter(&mut self, want: usize) -> (Enter, Option<Duration>) {
        let sky = &self.control;
        if sky.is_refusing.load(Ordering::SeqCst) {
            return (Enter::Fails(libc::EPERM), None);
        }
        // The kernel wakes no thread for completions that this layer holds back.
        let want = if self.late.is_empty() { want } else { 0 };
        if sky.is_calm() {
            return (Enter::Waits(want), None);
        }
        if self.failing == 0 && sky.chance(16) {
            let calls_max = if sky.chance(64) { 300 } else { 4 };
            self.failing = 1 + sky.below(calls_max);
        }
        if self.failing > 0 {
            self.failing -= 1;
            let codes = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::EBADR];
            return (Enter::Fails(codes[sky.below(4) as usize]), None);
        }
        if sky.chance(8) {
            return (Enter::Takes(sky.below(3) as u32), None);
        }
        let stops = sky.chance(64).then(|| Duration::from_micros(sky.below(2000)));
        (Enter::Waits(want), stops)
    }

    fn show(&mut self, shown: &mut Vec<Shown>) {
        let (came, sky) = (std::mem::take(shown), self.control.clone());
        for (name, result) in came {
            if sky.is_calm() {
                shown.push((name, result));
                continue;
            }
            let result = self.lessen(result);
            if sky.chance(8) {
                let looks_max = if sky.chance(16) { 3000 } else { 30 };
                self.late.push((sky.below(looks_max), (name, result)));
            } else {
                self.see((name, result), shown);
            }
        }
        for (looks, one) in std::mem::take(&mut self.late) {
            if looks == 0 || sky.is_calm() {
                self.see(one, shown);
            } else {
                self.late.push((looks - 1, one));
            }
        }
    }

    fn see(&mut self, one: Shown, shown: &mut Vec<Shown>) {
        shown.push(one);
        let sky = &self.control;
        if sky.is_calm() {
            return;
        }
        self.past.push(one.0);
        if sky.chance(8) {
            sky.untrue.fetch_add(1, Ordering::SeqCst);
            shown.push(one);
        }
        if sky.chance(8) {
            sky.untrue.fetch_add(1, Ordering::SeqCst);
            let name = match sky.below(2) {
                0 => self.past[sky.below(self.past.len() as u64) as usize],
                // A slot that there is not.
                _ => sky.below(u64::MAX) | 1 << 19,
            };
            shown.push((name, sky.below(1 << 16) as i32 - 64));
        }
    }

    /// A transfer that was not whole, or not made: it is made again.
    fn lessen(&self, result: i32) -> i32 {
        let (pages, sky) = (result / PAGE_BYTES as i32, &self.control);
        match sky.below(12) {
            0 if pages > 0 => [-libc::EINTR, -libc::EAGAIN, -libc::ECANCELED][sky.below(3) as usize],
            1 if pages > 1 => (1 + sky.below(pages as u64 - 1) as i32) * PAGE_BYTES as i32,
            _ => result,
        }
    }
}
