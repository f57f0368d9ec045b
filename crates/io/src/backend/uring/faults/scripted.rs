//! Scripted: one injected fault at a time, and how the driver handles it.
//!
//! Owns: the expected state after each fault.
//! Does not own: many at once (random).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use headwater_testkit::{block_on, skip, watched};

use super::{Enter, Faults, Shown};
use crate::backend::uring::uring_refusal;
use crate::driver::Driver;
use crate::driver::choice::{DriverKind, DriverOptions};
use crate::driver::completion::Completion;
use crate::driver::local::LocalDriver;
use crate::driver::queue::Backend;
use crate::file::{Access, DirectIo, OpenFile, Route};
use crate::memory::arena::{Arena, Urgency};
use crate::request::{Finished, Request, Transfer};
use crate::sync::lock;
use crate::system::sys::Direction;

/// A ring, a file, and a kernel that does as it is told.
struct Bench {
    driver: Driver,
    arena: Arena,
    file: Arc<OpenFile>,
    contents: Vec<u8>,
    kernel: Kernel,
}

/// What the kernel is told; clones are one.
#[derive(Clone, Default)]
struct Kernel {
    /// Calls that fail before the kernel obeys again, and how.
    failing: Arc<AtomicU32>,
    code: Arc<AtomicU32>,
    /// Calls that take one entry alone.
    slow: Arc<AtomicU32>,
    /// Completions that the driver does not see for now, and how many more are to be kept from it.
    kept: Arc<Mutex<Vec<Shown>>>,
    keeps: Arc<AtomicUsize>,
    /// Shows one completion at a look.
    one_by_one: Arc<AtomicBool>,
    /// What the driver sees next, beside what is true.
    invented: Arc<Mutex<Vec<Shown>>>,
    /// What it has seen.
    seen: Arc<Mutex<Vec<Shown>>>,
    /// The result of the next completion, if it is not the true one.
    result: Arc<Mutex<Option<i32>>>,
}

impl Kernel {
    fn faults(&self) -> Faults {
        let (before, after) = (self.clone(), self.clone());
        Faults::new(move |want| before.enter(want), move |shown| after.show(shown))
    }

    fn enter(&self, want: usize) -> Enter {
        let counts_down = |count: &AtomicU32| {
            count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        };
        if counts_down(&self.failing) {
            Enter::Fails(self.code.load(Ordering::SeqCst) as i32)
        } else if counts_down(&self.slow) {
            Enter::Takes(1)
        } else {
            // The kernel wakes no thread for completions that this layer invents or holds back.
            let is_quiet = lock(&self.invented).is_empty() && lock(&self.kept).is_empty();
            Enter::Waits(if is_quiet { want } else { 0 })
        }
    }

    fn show(&self, shown: &mut Vec<Shown>) {
        let keeps = self.keeps.load(Ordering::SeqCst).min(shown.len());
        self.keeps.fetch_sub(keeps, Ordering::SeqCst);
        lock(&self.kept).extend(shown.drain(..keeps));
        if self.one_by_one.load(Ordering::SeqCst) {
            let mut kept = lock(&self.kept);
            kept.append(shown);
            shown.extend((!kept.is_empty()).then(|| kept.remove(0)));
        }
        if let Some(first) = shown.first_mut()
            && let Some(result) = lock(&self.result).take()
        {
            first.1 = result;
        }
        shown.append(&mut lock(&self.invented));
        lock(&self.seen).extend_from_slice(shown);
    }

    fn fail(&self, calls: u32, code: i32) {
        self.code.store(code as u32, Ordering::SeqCst);
        self.failing.store(calls, Ordering::SeqCst);
    }

    /// The driver sees what was kept from it.
    fn give_back(&self) {
        let mut kept = std::mem::take(&mut *lock(&self.kept));
        lock(&self.invented).append(&mut kept);
    }
}

impl Bench {
    /// `None` where there is no ring.
    fn new() -> Option<Bench> {
        let driver = Driver::new(&options()).map_err(no_ring).ok()?;
        Some(Bench::on(driver))
    }

    fn on(driver: Driver) -> Bench {
        let kernel = Kernel::default();
        inject(&driver, &kernel);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/uring/mod.rs");
        let file = Arc::new(OpenFile::open(path.as_ref(), DirectIo::Off, Access::Read).unwrap());
        let contents = std::fs::read(path).unwrap();
        Bench { driver, arena: Arena::new(4 << 20).unwrap(), file, contents, kernel }
    }

    fn read(&self, offset_bytes: u64) -> Completion {
        self.read_by(Route::Buffered, offset_bytes)
    }

    fn read_by(&self, route: Route, offset_bytes: u64) -> Completion {
        let transfer = Transfer {
            direction: Direction::Read,
            file: self.file.clone(),
            route,
            offset_bytes,
            length_bytes: LENGTH_BYTES,
            extents: self.arena.allocate_run(LENGTH_BYTES, Urgency::Demand).unwrap(),
        };
        self.submit(transfer)
    }

    fn submit(&self, request: impl Into<Request>) -> Completion {
        self.driver.submit(request, Urgency::Demand).expect("demand is accepted")
    }

    fn check(&self, offset_bytes: u64, finished: &Finished) {
        let bytes: Vec<u8> = finished.extents.iter().flat_map(|extent| extent.iter().copied()).collect();
        assert_eq!(finished.result.as_ref().unwrap(), &LENGTH_BYTES);
        assert!(bytes == self.contents[offset_bytes as usize..][..LENGTH_BYTES]);
    }

    fn unmatched(&self) -> u64 {
        self.driver.stats().unmatched_completions
    }

    /// Has the driver see these, whether it waits for anything or not.
    fn show(&self, invented: &[Shown]) {
        lock(&self.kernel.invented).extend_from_slice(invented);
        let Backend::Uring(uring) = &self.driver.ordinary_queues()[0].backend else { unreachable!() };
        while !lock(&self.kernel.invented).is_empty() {
            uring.reap_ready();
        }
    }

    fn assert_idle(&self) {
        self.driver.attend();
        let in_use = || {
            let stats = self.driver.stats();
            (stats.in_flight, stats.slots_used, self.arena.stats().used_bytes)
        };
        while in_use() != (0, 0, 0) {
            thread::yield_now();
        }
    }
}

impl Drop for Bench {
    /// A test that fails ends all the same.
    fn drop(&mut self) {
        self.kernel.keeps.store(0, Ordering::SeqCst);
        self.kernel.give_back();
    }
}

fn options() -> DriverOptions {
    DriverOptions { kind: DriverKind::Uring, queue_depth: 4, rings: Some(1), ..DriverOptions::default() }
}

fn no_ring(error: std::io::Error) {
    skip(format!("uring: {error}"));
}

fn inject(driver: &Driver, kernel: &Kernel) {
    let Backend::Uring(uring) = &driver.ordinary_queues()[0].backend else { unreachable!("it is a ring") };
    uring.inject(kernel.faults());
}

fn poll_to_end(completion: &mut Completion) -> impl Future<Output = Finished> {
    std::future::poll_fn(|context| completion.poll(context))
}

/// Goal: completions that name no request end none: not of a slot that is free, done, queued or used again, nor of one that there never
/// was. Method: all that was ever seen, and numbers of no meaning, shown in each of these states.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn completions_of_no_request_are_ignored() {
    let Some(bench) = Bench::new() else { return };
    watched("no request", || {
        bench.check(0, &bench.read(0).wait());
        let old = lock(&bench.kernel.seen).clone();
        assert_eq!((old.len(), bench.unmatched()), (1, 0));
        let senseless =
            [(u64::MAX, 0), (0xf_ffff, 7), (1 << 20, -5), (9 << 32 | 4, 4096), (200, 1), (1 << 40, 0)];
        // Free.
        bench.show(&old);
        bench.show(&senseless);
        assert_eq!(bench.unmatched(), 7);
        // Done, and not taken yet; and used again by then.
        let done: Vec<_> = (0..4).map(|_| bench.read(0)).collect();
        while !done.iter().all(Completion::is_done) {}
        let before = bench.unmatched();
        let seen = lock(&bench.kernel.seen).clone();
        bench.show(&seen);
        assert_eq!(bench.unmatched() - before, seen.len() as u64);
        // In flight, and waiting for a place.
        bench.kernel.keeps.store(4, Ordering::SeqCst);
        let reads: Vec<_> = (0..8).map(|_| bench.read(4096)).collect();
        bench.show(&seen);
        assert!(reads.iter().all(|read| !read.is_done()));
        assert_eq!(bench.driver.stats().queued, 4);
        while lock(&bench.kernel.kept).len() < 4 {
            assert!(reads.iter().all(|read| !read.is_done()));
        }
        bench.kernel.give_back();
        reads.into_iter().for_each(|read| bench.check(4096, &read.wait()));
        done.into_iter().for_each(|read| bench.check(0, &read.wait()));
        bench.assert_idle();
    });
}

/// Goal: the second completion of an attempt does not end the next attempt of the same request, to whose memory the kernel still
/// writes. Method: a short first attempt, whose completion comes again while the second is kept back.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn an_attempt_is_not_ended_by_the_one_before() {
    let Some(bench) = Bench::new() else { return };
    watched("attempts", || {
        for result in [512, -libc::EINTR, -libc::EAGAIN] {
            *lock(&bench.kernel.result) = Some(result);
            let read = bench.read(0);
            while lock(&bench.kernel.result).is_some() {
                // The first attempt is seen, and nothing later: that one is kept.
                bench.kernel.keeps.store(0, Ordering::SeqCst);
                assert!(!read.is_done());
            }
            bench.kernel.keeps.store(1, Ordering::SeqCst);
            let first = *lock(&bench.kernel.seen).last().unwrap();
            let before = bench.unmatched();
            while lock(&bench.kernel.kept).is_empty() {
                assert!(!read.is_done());
            }
            bench.show(&[(first.0, LENGTH_BYTES as i32)]);
            bench.show(&[(first.0, -libc::EIO)]);
            assert!(!read.is_done() && bench.driver.stats().in_flight == 1);
            assert_eq!(bench.unmatched() - before, 2);
            bench.kernel.give_back();
            bench.check(0, &read.wait());
        }
        bench.assert_idle();
    });
}

/// Goal: where the kernel does not tell the block size, a read that stops within a page is not taken for one that met the end of the
/// file: a device with smaller blocks may have stopped before a bad one. Method: a short first attempt; then one at the true end.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn a_read_that_stops_within_an_assumed_block_goes_on() {
    let Some(mut bench) = Bench::new() else { return };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/uring/mod.rs");
    let Ok(mut file) = OpenFile::open(path.as_ref(), DirectIo::Required, Access::Read) else {
        return skip("direct I/O on this file system");
    };
    file.assume_alignment();
    bench.file = Arc::new(file);
    watched("assumed blocks", || {
        *lock(&bench.kernel.result) = Some(512);
        bench.check(0, &bench.read_by(Route::Direct, 0).wait());
        let last_bytes = bench.contents.len() % LENGTH_BYTES;
        let tail = bench.read_by(Route::Direct, (bench.contents.len() - last_bytes) as u64);
        let Finished { result, stopped_by, .. } = tail.wait();
        assert_eq!((result.unwrap(), stopped_by.is_none()), (last_bytes, true));
        bench.assert_idle();
    });
}

/// Goal: a completion that never comes holds up its own request and no other: threads and tasks, those that wait for a place, and
/// memory. Method: one that is waited for, one that a task polls, one that was given up, kept back while others go on in the one
/// place that is left.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn a_lost_completion_holds_up_nobody_else() {
    let Some(bench) = Bench::new() else { return };
    watched("lost", || {
        bench.kernel.keeps.store(3, Ordering::SeqCst);
        let mut lost: Vec<_> = (0..3).map(|_| bench.read(8192)).collect();
        while lock(&bench.kernel.kept).len() < 3 {
            assert!(lost.iter().all(|read| !read.is_done()));
        }
        drop(lost.pop());
        let mut task = lost.pop().unwrap();
        thread::scope(|scope| {
            let [waits, polls] = [
                scope.spawn(|| lost.pop().unwrap().wait()),
                scope.spawn(|| block_on(poll_to_end(&mut task))),
            ];
            let others: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let (waited, mut polled) = (bench.read(0), bench.read(4096));
                            bench.check(4096, &block_on(poll_to_end(&mut polled)));
                            bench.check(0, &waited.wait());
                        }
                    })
                })
                .collect();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(!waits.is_finished() && !polls.is_finished());
            assert_eq!(bench.driver.stats().in_flight, 3);
            bench.kernel.give_back();
            for thread in [waits, polls] {
                bench.check(8192, &thread.join().unwrap());
            }
        });
        bench.assert_idle();
        assert_eq!(bench.unmatched(), 0);
    });
}

/// Goal: a kernel that is interrupted, short of memory or of room for completions for a while only delays results, in whatever
/// way threads and tasks wait for them.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn a_busy_kernel_delays_only() {
    let Some(bench) = Bench::new() else { return };
    for code in [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::EBADR] {
        for calls in [1, 2, 63, 64, 65, 200] {
            watched("busy", || {
                bench.kernel.fail(calls, code);
                bench.check(0, &bench.read(0).wait());
                bench.kernel.fail(calls, code);
                bench.check(4096, &block_on(poll_to_end(&mut bench.read(4096))));
                bench.kernel.fail(calls, code);
                drop(bench.read(0));
                bench.assert_idle();
            });
        }
    }
}

/// Goal: however many requests follow each other while the kernel takes none, the stack does not grow with them. Method: as many in flight
/// as wait, whose completions show one by one, each to a kernel that refuses the next; a driver thread, whose stack is small.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn a_busy_kernel_needs_no_stack() {
    let options = DriverOptions { queue_depth: 200, ..options() };
    let Some(bench) = Driver::new(&options).map_err(no_ring).ok().map(Bench::on) else { return };
    watched("stack", || {
        bench.kernel.keeps.store(usize::MAX, Ordering::SeqCst);
        let mut requests: Vec<_> = (0..400).map(|_| bench.submit(Request::Nop)).collect();
        while lock(&bench.kernel.kept).len() < 200 {
            assert!(!requests[0].is_done());
        }
        bench.kernel.fail(1000, libc::EBUSY);
        bench.kernel.one_by_one.store(true, Ordering::SeqCst);
        bench.kernel.keeps.store(0, Ordering::SeqCst);
        block_on(poll_to_end(&mut requests[399])).result.unwrap();
        requests.truncate(399);
        requests.into_iter().for_each(|request| assert_eq!(request.wait().result.unwrap(), 0));
        bench.assert_idle();
    });
}

/// Goal: entries that the kernel does not take at once are taken soon, although no thread submits again.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn entries_left_over_are_handed_over() {
    let Some(bench) = Bench::new() else { return };
    watched("left over", || {
        for _ in 0..100 {
            bench.kernel.slow.store(2, Ordering::SeqCst);
            let mut plug = bench.driver.plug();
            let mut reads: Vec<_> = (0..4)
                .map(|_| {
                    let extents = bench.arena.allocate_run(LENGTH_BYTES, Urgency::Demand).unwrap();
                    let (direction, file) = (Direction::Read, bench.file.clone());
                    let (route, offset_bytes, length_bytes) = (Route::Buffered, 0, LENGTH_BYTES);
                    let read = Transfer { direction, file, route, offset_bytes, length_bytes, extents };
                    plug.submit(read, Urgency::Demand).unwrap()
                })
                .collect();
            drop(plug);
            let taken = lock(&bench.kernel.seen).len();
            bench.check(0, &block_on(poll_to_end(&mut reads.pop().unwrap())));
            reads.into_iter().for_each(|read| bench.check(0, &read.wait()));
            assert!(taken <= lock(&bench.kernel.seen).len());
            bench.assert_idle();
        }
    });
}

/// Goal: the same for a ring of one thread, which sleeps on descriptors that show nothing of what is only staged.
#[test]
#[cfg_attr(miri, ignore)] // needs the kernel's rings
fn a_busy_kernel_delays_a_local_ring_only() {
    if let Some(refusal) = uring_refusal() {
        return skip(format!("uring: {refusal}"));
    }
    let local = LocalDriver::new(&options()).unwrap();
    let bench = Bench::on(local.driver().clone());
    for calls in [1, 2, 3, 4, 64, 65, 66, 200] {
        watched("local", || {
            // Several together, whose owners then ask again as a burst.
            let mut reads: Vec<_> = (0..3).map(|_| bench.read(0)).collect();
            local.block_on(async {
                for number in 0..20 {
                    bench.kernel.fail(calls, libc::EAGAIN);
                    let mut next = Vec::new();
                    for read in &mut reads {
                        bench.check(0, &poll_to_end(read).await);
                        next.push(bench.read(0));
                        if number % 2 == 0 {
                            bench.kernel.fail(calls, libc::EBUSY);
                        }
                    }
                    reads = next;
                }
            });
            reads.into_iter().for_each(|read| bench.check(0, &read.wait()));
        });
    }
    assert_eq!(bench.arena.stats().used_bytes, 0);
}

const LENGTH_BYTES: usize = 4096;
