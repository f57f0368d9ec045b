//! Crew: threads that set up each its own, start together, and time what they do.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity::Affinity;
use crate::latency::Latencies;

/// In each thread: pins it, prepares what it needs, waits for the others, works. Results are in the order of the threads.
///
/// # Errors
/// The first that pinning, `prepare` or `work` reports.
pub fn run<P, T: Send>(
    threads: u32,
    affinity: &Affinity,
    prepare: impl Fn(u32) -> io::Result<P> + Sync,
    work: impl Fn(P) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let ready = Barrier::new(threads as usize);
    let one = |index: u32| {
        let prepared = affinity.apply(index as usize).and_then(|()| prepare(index));
        // A thread that failed to prepare comes here too, or the others would wait for ever.
        ready.wait();
        work(prepared?)
    };
    thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..threads).map(|index| scope.spawn(move || one(index))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a measuring thread does not panic")).collect()
    })
}

/// Does something over and over until time is up, and takes the time of each.
///
/// # Errors
/// The first that `step` reports.
pub fn time_steps(time: Duration, mut step: impl FnMut() -> io::Result<()>) -> io::Result<Latencies> {
    let mut clock = Clock::start(time);
    while clock.runs() {
        step()?;
        clock.lap();
    }
    Ok(clock.latencies)
}

/// The end of one step is the start of the next, so that latencies add up to the time.
pub struct Clock {
    before: Instant,
    deadline: Instant,
    /// Of all laps so far.
    pub latencies: Latencies,
}

impl Clock {
    /// Starts now.
    pub fn start(time: Duration) -> Clock {
        let (latencies, before) = (Latencies::new(), Instant::now());
        Clock { before, deadline: before + time, latencies }
    }

    /// Whether time is left, as of the last lap.
    pub fn runs(&self) -> bool {
        self.before < self.deadline
    }

    /// Ends a step.
    pub fn lap(&mut self) {
        let now = Instant::now();
        self.latencies.record(now - self.before);
        self.before = now;
    }
}
