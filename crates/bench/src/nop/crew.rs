//! Crew: the threads of an arm, which set up each its own, start together and time their batches.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::ArmOptions;
use super::latency::Latencies;

/// In each thread: pins it, prepares what it needs, waits for the others, works.
pub(super) fn run<T>(
    options: &ArmOptions,
    prepare: impl Fn() -> io::Result<T> + Sync,
    work: impl Fn(T) -> io::Result<Latencies> + Sync,
) -> io::Result<Latencies> {
    let threads = options.threads as usize;
    let ready = Barrier::new(threads);
    let one = |index| {
        let prepared = options.affinity.apply(index).and_then(|()| prepare());
        // Also who has failed comes here, so that nobody waits in vain.
        ready.wait();
        work(prepared?)
    };
    let mut all = Latencies::new();
    thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..threads).map(|index| scope.spawn(move || one(index))).collect();
        for worker in workers {
            all.merge(&worker.join().expect("a measuring thread does not panic")?);
        }
        Ok(all)
    })
}

/// Batches until time is up. The end of one is the start of the next, so that latencies add up to the time.
pub(super) fn time_batches(
    options: &ArmOptions,
    mut batch: impl FnMut() -> io::Result<()>,
) -> io::Result<Latencies> {
    let mut clock = Clock::start(options);
    while clock.runs() {
        batch()?;
        clock.lap();
    }
    Ok(clock.latencies)
}

pub(super) struct Clock {
    before: Instant,
    deadline: Instant,
    pub(super) latencies: Latencies,
}

impl Clock {
    pub(super) fn start(options: &ArmOptions) -> Clock {
        let latencies = Latencies::new();
        let before = Instant::now();
        Clock { before, deadline: before + Duration::from_secs_f64(options.seconds), latencies }
    }

    pub(super) fn runs(&self) -> bool {
        self.before < self.deadline
    }

    pub(super) fn lap(&mut self) {
        let now = Instant::now();
        self.latencies.record(now - self.before);
        self.before = now;
    }
}
