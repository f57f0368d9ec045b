//! Drops: completions given up and drivers dropped with I/O in flight; the memory is looked at (invariants 1 and 4).
//!
//! Owns: the proof that late I/O writes into nobody else's memory, and that nothing leaks.
//! Does not own: dropping through the engine's futures, which has tests there.

use std::task::{Context, Waker};

use headwater_io::{Driver, DriverKind, DriverOptions, Urgency};
use headwater_testkit::{Rng, with_seed};

use crate::bench::{Bench, drivers, watched};

/// Goal: I1, I4: memory that comes back is never written by the I/O of a completion dropped before. Method: drop
/// requests in flight after random polls; take memory as it comes back, fill it with a canary, let all the I/O end, and
/// look.
#[test]
fn late_io_writes_into_nobodys_memory() {
    with_seed("drops::late_io_writes_into_nobodys_memory", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 16, seed), Rng::new(seed));
            watched(bench.name(), || (0..40).for_each(|_| drop_and_look(&bench, &mut rng)));
            bench.assert_idle();
        }
    });
}

fn drop_and_look(bench: &Bench, rng: &mut Rng) {
    for _ in 0..12 {
        let (offset_bytes, length_bytes) = bench.draw(rng, 60);
        let mut completion = bench.submit(bench.request(offset_bytes, length_bytes));
        for _ in 0..rng.below(4) {
            if completion.poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                break;
            }
        }
    }
    let mut canaries = Vec::new();
    loop {
        // Before the memory is asked for: what is in flight now may come back in the meantime.
        let in_flight = bench.driver.stats().in_flight;
        while let Some(mut extent) = bench.arena.allocate(64 << 10, Urgency::Demand) {
            extent.fill(0xC5);
            canaries.push(extent);
        }
        if in_flight == 0 {
            break;
        }
        bench.driver.attend();
        std::thread::yield_now();
    }
    assert!(canaries.iter().all(|extent| extent.iter().all(|&byte| byte == 0xC5)), "late I/O");
}

/// Goal: a driver dropped with requests in flight waits for them, and leaves no descriptor, thread or memory behind.
/// Method: 200 short-lived drivers, each given up at another point; count before and after.
#[test]
fn short_lived_drivers_leave_nothing() {
    with_seed("drops::short_lived_drivers_leave_nothing", |seed| {
        // In a process of its own: other tests open files too.
        const CHILD: &str = "HEADWATER_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let name = "drops::short_lived_drivers_leave_nothing";
            let output = headwater_testkit::run_self_with_env(name, CHILD, "1");
            return assert!(output.status.success(), "{output:?}");
        }
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind.clone(), 4, seed), Rng::new(seed));
            let before = (count("/proc/self/fd"), count("/proc/self/task"));
            for _ in 0..200 {
                live_shortly(&bench, kind.clone(), &mut rng);
            }
            assert_eq!((count("/proc/self/fd"), count("/proc/self/task")), before, "{kind:?}");
            bench.assert_idle();
        }
    });
}

fn live_shortly(bench: &Bench, kind: DriverKind, rng: &mut Rng) {
    let driver = Driver::new(&DriverOptions { kind, queue_depth: 8, ..DriverOptions::default() }).unwrap();
    for _ in 0..rng.below(5) {
        let (offset_bytes, length_bytes) = bench.draw(rng, 20);
        let mut completion =
            driver.submit(bench.request(offset_bytes, length_bytes), Urgency::Demand).unwrap();
        match rng.below(3) {
            0 => bench.check(offset_bytes, length_bytes, &completion.wait()),
            1 => drop(completion.poll(&mut Context::from_waker(Waker::noop()))),
            _ => drop(completion),
        }
    }
    drop(driver);
    assert_eq!(bench.arena.stats().used_bytes, 0, "dropping a driver waits for what is in flight");
}

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}
