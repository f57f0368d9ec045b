//! Panics: a driver after code of its user has panicked within it.
//!
//! Owns: receivers and iterators of calls, memory that panics when it is asked for or dropped.
//! Does not own: receivers of batches (batches), wakers (tests of the engine).

use std::fs::File;
use std::io::{PipeReader, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use headwater_io::{Call, CallOutput, Calling, Driver};

use crate::bench::{Bench, drivers, watched};

/// Goal: closures that use a driver may be caught with the driver shared, as its `UnwindSafe` says; whichever panics of those that a call
/// runs, the driver works on and nothing stays in use. Method: `catch_unwind` without `AssertUnwindSafe`.
#[test]
fn closures_that_panic() {
    for kind in drivers(5) {
        let bench = Bench::new(kind, DEPTH, 5);
        let (driver, file) = (&bench.driver, &open(&bench));
        watched(bench.name(), || {
            let read = || Call::pread(file.clone(), vec![0; 100], 0);
            // Late enough that some are done, some under way, and some wait for a place.
            for last in [0, 1, 9, 39] {
                let receiver = catch_unwind(|| {
                    driver.call_all((0..40).map(|_| read()), |place, _| stop_at(place == last));
                });
                assert!(receiver.is_err());
                work_on(driver, file);
                let iterator = catch_unwind(|| {
                    let calls = (0..40).map(|place| {
                        stop_at(place == last);
                        read()
                    });
                    driver.call_all(calls, |_, _| {});
                });
                assert!(iterator.is_err());
                work_on(driver, file);
            }
            let no_memory = catch_unwind(|| {
                let waits = driver.call(read());
                driver.call(Call::pread(file.clone(), NoMemory, 0)).wait().result.unwrap();
                drop(waits);
            });
            assert!(no_memory.is_err());
            work_on(driver, file);
        });
        bench.assert_idle();
        assert_eq!(Arc::strong_count(file), 1);
    }
}

/// Goal: what a call was given may panic when it is dropped. That is the panic of the thread that drops it, if the call is done by then;
/// else no thread that waits for a call of its own meets it, and no thread of the driver ends by it. No slot is lost. Method: calls that
/// are abandoned early and late, more of each than there are threads and slots.
#[test]
fn memory_that_panics_when_it_is_dropped() {
    for kind in drivers(6) {
        let bench = Bench::new(kind, DEPTH, 6);
        let (driver, file, drops) = (&bench.driver, &open(&bench), &Arc::new(AtomicUsize::new(0)));
        watched(bench.name(), || {
            for round in 0..ROUNDS {
                let (reader, writer) = pipe().unwrap();
                let is_late = round % 2 == 1;
                let read = driver.call(Call::pread(file.clone(), Panics(vec![0; 5000], drops.clone()), 0));
                if is_late {
                    wait(driver, &read);
                }
                // Early it may be done all the same.
                let outcome = abandon(read);
                assert!(outcome.is_err() || !is_late, "what is done is dropped here");
                // Done by what is written, or by the end that a dropped poll has; waited for by nothing.
                let poll = driver.call(Call::poll(Panics(reader, drops.clone()), POLLIN));
                _ = abandon(poll);
                drop(writer);
                work_on(driver, file);
            }
        });
        bench.assert_idle();
        assert_eq!(drops.load(Ordering::SeqCst), 2 * ROUNDS, "each is dropped once");
        assert_eq!(Arc::strong_count(file), 1);
    }
}

/// More than places and slots, waits on the way.
fn work_on(driver: &Driver, file: &Arc<File>) {
    let reads = (0..3 * DEPTH).map(|_| Call::pread(file.clone(), vec![0; 100], 0));
    let mut done = 0;
    driver.call_all(reads, |_, read| done += read.result.unwrap());
    assert_eq!(done, 300 * DEPTH as usize);
}

fn abandon<T>(call: Calling<T>) -> thread::Result<()> {
    catch_unwind(AssertUnwindSafe(|| drop(call)))
}

fn wait<T: CallOutput>(driver: &Driver, call: &Calling<T>) {
    while !call.is_done() {
        driver.attend();
        thread::yield_now();
    }
}

/// Without the message of a panic.
fn stop_at(is_here: bool) {
    if is_here {
        resume_unwind(Box::new("on purpose"));
    }
}

fn open(bench: &Bench) -> Arc<File> {
    Arc::new(File::open(bench.path()).unwrap())
}

/// Counts its drops, and panics in each.
struct Panics<T>(T, Arc<AtomicUsize>);

impl AsMut<[u8]> for Panics<Vec<u8>> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsFd for Panics<PipeReader> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T> Drop for Panics<T> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        stop_at(!thread::panicking());
    }
}

/// Panics when it is asked for.
struct NoMemory;

impl AsMut<[u8]> for NoMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        resume_unwind(Box::new("on purpose"));
    }
}

const DEPTH: u32 = 4;

const ROUNDS: usize = 100;

const POLLIN: u32 = libc::POLLIN as u32;
