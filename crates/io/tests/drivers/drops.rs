//! Drops: completions given up and drivers dropped with I/O in flight; the memory is looked at (invariants 1 and 4).
//!
//! Owns: the proof that late I/O writes into nobody else's memory, and that nothing leaks.
//! Does not own: dropping through the engine's futures, which has tests there.

use std::task::{Context, Waker};
use std::time::Instant;

use headwater_io::{Driver, DriverKind, DriverOptions, LocalDriver, Urgency};
use headwater_testkit::{PATIENCE, Rng, with_seed};

use crate::bench::{Bench, chaos_seconds, drivers, in_child, watched};

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
        if !in_child("drops::short_lived_drivers_leave_nothing") {
            return;
        }
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind.clone(), 4, seed), Rng::new(seed));
            bench.open_all();
            let before = descriptors_and_threads();
            for _ in 0..200 {
                live_shortly(&bench, kind.clone(), &mut rng);
            }
            assert_soon_as(before);
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

/// Goal: thousands of rings (with `HEADWATER_CHAOS_SECONDS` ten thousand) leave no descriptor and no thread, whether they were never used, used, or dropped with a
/// request in flight that nobody, a thread or a task waits for. Method: as above; one small ring each.
#[test]
fn rings_leave_nothing() {
    with_seed("drops::rings_leave_nothing", |seed| {
        if !drivers(seed).iter().any(|kind| matches!(kind, DriverKind::Uring))
            || !in_child("drops::rings_leave_nothing")
        {
            return;
        }
        let (bench, mut rng) = (Bench::new(DriverKind::Uring, 4, seed), Rng::new(seed));
        bench.open_all();
        let before = descriptors_and_threads();
        let rings = if chaos_seconds().is_some() { 10_000 } else { RINGS };
        watched("short-lived rings", || (0..rings).for_each(|_| live_as_one_ring(&bench, &mut rng)));
        assert_soon_as(before);
        bench.assert_idle();
    });
}

fn live_as_one_ring(bench: &Bench, rng: &mut Rng) {
    let (kind, rings) = (DriverKind::Uring, Some(1));
    let options = DriverOptions { kind, rings, queue_depth: 2, ..DriverOptions::default() };
    let is_shared = rng.chance(1, 2);
    let driver = if is_shared {
        Driver::new(&options).unwrap()
    } else {
        LocalDriver::new(&options).unwrap().driver().clone()
    };
    let (offset_bytes, length_bytes) = bench.draw(rng, 4);
    let submit = || driver.submit(bench.request(offset_bytes, length_bytes), Urgency::Demand).unwrap();
    match rng.below(8) {
        0 | 1 => drop(submit()),
        2 => bench.check(offset_bytes, length_bytes, &submit().wait()),
        3 if is_shared => {
            drop(submit().poll(&mut Context::from_waker(Waker::noop())));
        }
        _ => {}
    }
    drop(driver);
    assert_eq!(bench.arena.stats().used_bytes, 0, "dropping a driver waits for what is in flight");
}

fn descriptors_and_threads() -> (usize, usize) {
    let count = |directory: &str| std::fs::read_dir(directory).unwrap().count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// A thread that was joined has run to its end, and the kernel takes it off its list a moment later.
fn assert_soon_as(before: (usize, usize)) {
    let deadline = Instant::now() + PATIENCE;
    while descriptors_and_threads() != before {
        assert!(Instant::now() < deadline, "{:?} instead of {before:?}", descriptors_and_threads());
        std::thread::yield_now();
    }
}

/// In every run of the tests.
const RINGS: usize = 3000;
