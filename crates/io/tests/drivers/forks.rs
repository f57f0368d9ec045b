//! Forks: what a child of `fork` can do with its parent's driver, which is nothing, and what it must not break.
//!
//! Owns: drivers, batches, plugs and completions in the child; the parent's requests meanwhile.
//! Does not own: how a fork is noticed (`fork` in `src`), engines, which have tests of their own.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use headwater_io::{
    Completion, Driver, DriverKind, DriverOptions, DriverStats, LocalDriver, Request, Urgency,
};
use headwater_testkit::{Rng, run_forked, with_seed};

use crate::bench::{Bench, block_on, drivers, in_child, watched};

/// Goal: a child with requests in flight, staged, queued and pushed is told so at every turn, hangs nowhere although
/// threads of the parent held locks, drops all of it and reads by a driver of its own; the parent's requests end well.
/// Method: many forks while two threads keep the driver busy.
#[test]
fn a_child_of_a_busy_driver() {
    with_seed("forks::a_child_of_a_busy_driver", |seed| {
        if !in_child("forks::a_child_of_a_busy_driver") {
            return;
        }
        for kind in drivers(seed) {
            for rings in [1, 2] {
                let options = DriverOptions {
                    kind: kind.clone(),
                    queue_depth: 4,
                    rings: Some(rings),
                    ..Default::default()
                };
                let mut bench = Some(Bench::with(&options, seed));
                watched("forks", || (0..15).for_each(|round| fork_once(&mut bench, seed + round)));
                bench.unwrap().assert_idle();
            }
        }
    });
}

fn fork_once(bench: &mut Option<Bench>, seed: u64) {
    let (stopping, rng) = (AtomicBool::new(false), &mut Rng::new(seed));
    let mut held = bench.as_ref().map(|bench| hold(bench, rng));
    let here = bench.as_ref().expect("there is a bench");
    let begun = Barrier::new(3);
    thread::scope(|scope| {
        let _stops = Stops(&stopping);
        for number in 0..2 {
            let (stopping, begun) = (&stopping, &begun);
            scope.spawn(move || {
                here.submit(here.request(0, 4096)).wait();
                begun.wait();
                keep_busy(here, &mut Rng::new(seed ^ number), stopping);
            });
        }
        // A thread that begins holds a lock of std's, which a child that starts threads of its own waits for.
        begun.wait();
        let mut pushed = here.driver.batch();
        pushed.push(Request::Nop).unwrap();
        pushed.push(here.request(0, 4096)).unwrap();
        let mut pushed = Some(pushed);
        let mut plug = here.driver.plug();
        let staged = plug.submit(here.request(4096, 4096), Urgency::Demand).unwrap();
        let mut plugged = Some(plug);
        run_forked(|| {
            assert_refused(here);
            let mut plug = plugged.take().expect("there is a plug");
            assert_eq!(
                plug.submit(Request::Nop, Urgency::Demand).unwrap_err().kind(),
                ErrorKind::Unsupported
            );
            plug.flush();
            drop(plug);
            let (mut batch, mut places) = (pushed.take().expect("there is a batch"), Vec::new());
            batch.finish(|place, finished| {
                assert_eq!(finished.result.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
                places.push(place);
            });
            assert_eq!(places, [0, 1]);
            drop((held.take(), batch));
        });
        drop(plugged);
        here.check(4096, 4096, &staged.wait());
        pushed.expect("taken by the child alone").finish(|_, finished| assert!(finished.result.is_ok()));
    });
    for (offset_bytes, length_bytes, completion) in held.take().expect("taken by the child alone") {
        here.check(offset_bytes, length_bytes, &completion.wait());
    }
    // Without other threads, which borrow it: everything.
    let held = bench.as_ref().map(|bench| hold(bench, rng));
    let mut everything = Some((held, bench.take()));
    run_forked(|| {
        let (held, bench) = everything.take().expect("there is all of it");
        let Bench { driver, arena, file, directory, .. } = bench.expect("there is a bench");
        drop((driver, held, arena, file));
        // The parent's file stays.
        std::mem::forget(directory);
    });
    let (held, kept) = everything.expect("taken by the child alone");
    *bench = kept;
    drop(held);
}

/// Ends the busy threads, also after a panic.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Held = Vec<(u64, usize, Completion)>;

/// More than have a place.
fn hold(bench: &Bench, rng: &mut Rng) -> Held {
    (0..8)
        .map(|_| {
            let (offset_bytes, length_bytes) = bench.draw(rng, 8);
            (offset_bytes, length_bytes, bench.submit(bench.request(offset_bytes, length_bytes)))
        })
        .collect()
}

fn keep_busy(bench: &Bench, rng: &mut Rng, stopping: &AtomicBool) {
    while !stopping.load(Ordering::Relaxed) {
        let (offset_bytes, length_bytes) = bench.draw(rng, 4);
        let mut completion = bench.submit(bench.request(offset_bytes, length_bytes));
        match rng.below(3) {
            0 => drop(completion),
            1 => bench.check(offset_bytes, length_bytes, &completion.wait()),
            _ => {
                let finished = block_on(std::future::poll_fn(|context| completion.poll(context)));
                bench.check(offset_bytes, length_bytes, &finished);
            }
        }
    }
}

/// In the child: every use is refused, and a driver built here works.
fn assert_refused(bench: &Bench) {
    let driver = &bench.driver;
    assert!(driver.is_forked());
    assert_eq!(driver.submit(Request::Nop, Urgency::Demand).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(driver.submit(Request::Nop, Urgency::Readahead).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(driver.batch().push(Request::Nop).unwrap_err().kind(), ErrorKind::Unsupported);
    let error = driver.read_blocking(&bench.file, bench.route(), &mut [0; 4096], 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert!(bench.arena.allocate(4096, Urgency::Demand).is_none());
    driver.attend();
    assert_eq!(driver.stats(), DriverStats::default());
    assert!(format!("{driver:?}").contains(bench.name()));
    let options = DriverOptions { kind: driver_kind(bench.name()), queue_depth: 4, ..Default::default() };
    let own = Bench { driver: Driver::new(&options).unwrap(), ..Bench::new(DriverKind::Threads, 1, 1) };
    for page in 0..8 {
        own.check(page * 4096, 8192, &own.submit(own.request(page * 4096, 8192)).wait());
    }
    own.assert_idle();
}

fn driver_kind(name: &str) -> DriverKind {
    match name {
        "uring" => DriverKind::Uring,
        "threads" => DriverKind::Threads,
        _ => DriverKind::Sim(headwater_io::SimOptions::hostile(1)),
    }
}

/// Goal: a completion of the parent can be looked at, cancelled and dropped in the child, and says what is wrong when
/// waited for; a local driver's `block_on` still runs what has nothing to do with it.
#[test]
fn a_child_of_a_local_driver() {
    if !in_child("forks::a_child_of_a_local_driver") {
        return;
    }
    let local = LocalDriver::new(&DriverOptions::default()).unwrap();
    assert!(local.driver().info().name != "uring" || local.driver().info().rings == 1);
    let shared = Driver::new(&DriverOptions::default()).unwrap();
    for driver in [local.driver(), &shared] {
        let mut submitted = Some([(); 3].map(|()| driver.submit(Request::Nop, Urgency::Demand).unwrap()));
        run_forked(|| {
            let [waited, cancelled, dropped] = submitted.take().unwrap();
            cancelled.cancel();
            let _ = cancelled.is_done();
            std::panic::set_hook(Box::new(|_| {}));
            let panic = catch_unwind(AssertUnwindSafe(|| waited.wait())).unwrap_err();
            let _ = std::panic::take_hook();
            assert_eq!(panic.downcast_ref(), Some(&"a request of the parent process is waited for there"));
            drop((cancelled, dropped));
            local.block_on(yield_once());
        });
        let submitted = submitted.take().unwrap();
        submitted.into_iter().for_each(|completion| assert!(completion.wait().result.is_ok()));
    }
}

/// Is pending once.
async fn yield_once() {
    let mut asked = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut asked, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
