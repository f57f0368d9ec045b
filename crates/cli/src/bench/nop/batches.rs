//! Batches: the measured loop over headwater's ring, in one thread or in several at once.
//!
//! Owns: threads, the clock around a batch, counting what enters the kernel.
//! Does not own: rows, what is made of the histogram.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use headwater::DriverKind;
use headwater::ring::{Driver, DriverOptions, Request, Sharing};

use super::latency::Latencies;
use super::{Affinity, RingUse, Row};

/// What a row took.
pub(super) struct Measured {
    pub(super) latencies: Latencies,
    pub(super) elapsed: Duration,
    /// `io_uring_enter` calls of all threads.
    pub(super) enters: u64,
}

/// Runs batches in all threads of the row for `time`, and calls `tick` now and then with how long it has been.
pub(super) fn measure(
    row: Row,
    time: Duration,
    affinity: &Affinity,
    tick: &mut dyn FnMut(Duration),
) -> io::Result<Measured> {
    let shared = match row.sharing {
        RingUse::AnyThread => Some(driver(row)?),
        RingUse::Local => None,
    };
    let threads = row.shape.threads as usize;
    let ready = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let (ready, shared) = (&ready, shared.as_ref());
        let work = |index| move || work(row, shared, time, ready, affinity.apply(index));
        let workers: Vec<_> = (0..threads).map(|index| scope.spawn(work(index))).collect();
        ready.wait();
        let start = Instant::now();
        watch(time, tick);
        let mut measured = Measured { latencies: Latencies::new(), elapsed: Duration::ZERO, enters: 0 };
        for worker in workers {
            let (latencies, enters) = worker.join().expect("a measuring thread does not panic")?;
            measured.latencies.merge(&latencies);
            measured.enters += enters;
        }
        measured.elapsed = start.elapsed();
        measured.enters += shared.map_or(0, |driver| driver.stats().enters);
        Ok(measured)
    })
}

fn driver(row: Row) -> io::Result<Driver> {
    let sharing = match row.sharing {
        RingUse::AnyThread => Sharing::AnyThread,
        RingUse::Local => Sharing::Local,
    };
    let queue_depth = row.shape.entries;
    Driver::new(&DriverOptions { kind: DriverKind::Uring, queue_depth, sharing, ..DriverOptions::default() })
}

/// One thread: waits for the others whether it can start or not, so that nobody waits for it in vain.
fn work(
    row: Row,
    shared: Option<&Driver>,
    time: Duration,
    ready: &Barrier,
    pinned: rustix::io::Result<()>,
) -> io::Result<(Latencies, u64)> {
    let own = if shared.is_none() { Some(driver(row)) } else { None };
    ready.wait();
    pinned?;
    let own = own.transpose()?;
    let driver = shared.or(own.as_ref()).expect("a thread has a ring, shared or its own");
    let latencies = batches(driver, row.shape.batch, time)?;
    Ok((latencies, own.map_or(0, |driver| driver.stats().enters)))
}

/// The end of a batch is the start of the next, so that the latencies add up to the time.
fn batches(driver: &Driver, size: u32, time: Duration) -> io::Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut batch = driver.batch();
    let mut before = Instant::now();
    let deadline = before + time;
    while before < deadline {
        for _ in 0..size {
            batch.push(Request::Nop).map_err(|_| io::Error::other("the ring took no whole batch"))?;
        }
        let mut outcome = Ok(());
        batch.finish(|_, finished| {
            if let Err(error) = finished.result {
                outcome = Err(error);
            }
        });
        outcome?;
        let now = Instant::now();
        latencies.record(now - before);
        before = now;
    }
    Ok(latencies)
}

/// Seldom enough to leave the processors to what is measured.
fn watch(time: Duration, tick: &mut dyn FnMut(Duration)) {
    let start = Instant::now();
    loop {
        let elapsed = start.elapsed().min(time);
        tick(elapsed);
        if elapsed == time {
            return;
        }
        thread::sleep(TICK.min(time - elapsed));
    }
}

const TICK: Duration = Duration::from_millis(250);
