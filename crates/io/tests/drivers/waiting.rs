//! Waiting: many threads and tasks on one driver, more requests than slots, and every way to ask for a result.
//!
//! Owns: leaders and followers, slots as a limit, threads that end.
//! Does not own: single requests (see `transfers`).

use std::sync::Mutex;
use std::task::{Context, Waker};
use std::thread;

use headwater_io::{Completion, Listener, Urgency};
use headwater_testkit::{Rng, with_seed};

use crate::bench::{Bench, block_on, drivers, watched};

/// Goal: no wake-up is lost between leaders and followers. Method: eight threads with several requests each wait for
/// them in random order, thousands in all, on fewer slots than are wanted.
#[test]
fn eight_threads_wait_in_random_order() {
    with_seed("waiting::eight_threads_wait_in_random_order", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 12, seed);
            watched(bench.driver.name(), || {
                thread::scope(|scope| {
                    for number in 0..8 {
                        let bench = &bench;
                        scope.spawn(move || keep_busy(bench, &mut Rng::new(seed + number), Manner::Blocking));
                    }
                });
            });
            bench.assert_idle();
        }
    });
}

/// Goal: the same with tasks and blocking waiters mixed, each completion asked for in a manner of its own.
#[test]
fn tasks_and_threads_wait_together() {
    with_seed("waiting::tasks_and_threads_wait_together", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 12, seed);
            watched(bench.driver.name(), || {
                thread::scope(|scope| {
                    for number in 0..6 {
                        let bench = &bench;
                        scope.spawn(move || keep_busy(bench, &mut Rng::new(seed + number), Manner::Mixed));
                    }
                });
            });
            bench.assert_idle();
        }
    });
}

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Blocking,
    Mixed,
}

/// Two requests at a time, so that eight threads want more slots than there are, but none keeps all others out.
fn keep_busy(bench: &Bench, rng: &mut Rng, manner: Manner) {
    for _ in 0..200 {
        let mut under_way: Vec<(u64, usize, Completion)> = Vec::new();
        let (offset_bytes, length_bytes) = bench.draw(rng, 30);
        let first = bench.driver.submit_blocking(bench.request(offset_bytes, length_bytes));
        under_way.push((offset_bytes, length_bytes, first));
        let (offset_bytes, length_bytes) = bench.draw(rng, 3);
        if let Ok(second) =
            bench.driver.try_submit(bench.request(offset_bytes, length_bytes), Urgency::Demand)
        {
            under_way.push((offset_bytes, length_bytes, second));
        }
        while !under_way.is_empty() {
            let place = rng.below(under_way.len() as u64) as usize;
            let (offset_bytes, length_bytes, mut completion) = under_way.swap_remove(place);
            let how = if manner == Manner::Blocking { 0 } else { rng.below(5) };
            let early = match how {
                // With a waker that nobody will call for: the next one, or the thread, replaces it.
                2 | 3 => completion.poll(&mut Context::from_waker(Waker::noop())),
                _ => std::task::Poll::Pending,
            };
            let finished = match (early, how) {
                (std::task::Poll::Ready(finished), _) => finished,
                (_, 0 | 2) => completion.wait(),
                (_, 1 | 3) => block_on(std::future::poll_fn(|context| completion.poll(context))),
                _ => {
                    drop(completion);
                    continue;
                }
            };
            bench.check(offset_bytes, length_bytes, &finished);
        }
    }
}

/// Goal: more requests than slots: each is refused or served, those who wait for a slot are all served.
#[test]
fn slots_run_out() {
    with_seed("waiting::slots_run_out", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 4, seed), Rng::new(seed));
            let mut held = Vec::new();
            let last = loop {
                let (offset_bytes, _) = bench.draw(&mut rng, 1);
                match bench.driver.try_submit(bench.request(offset_bytes, 4096), Urgency::Readahead) {
                    Ok(completion) => held.push((offset_bytes, completion)),
                    Err(back) => break back,
                }
            };
            assert_eq!(held.len(), 3, "readahead leaves a slot");
            let demanded = bench.driver.try_submit(last, Urgency::Demand).expect("that slot is for demand");
            assert!(bench.driver.try_submit(bench.request(0, 4096), Urgency::Demand).is_err());
            watched(bench.driver.name(), || {
                thread::scope(|scope| {
                    for _ in 0..6 {
                        scope.spawn(|| drop(bench.driver.submit_blocking(bench.request(0, 4096)).wait()));
                    }
                    scope.spawn(|| block_on(read_when_free(&bench)));
                    demanded.wait();
                    for (offset_bytes, completion) in held {
                        bench.check(offset_bytes, 4096, &completion.wait());
                    }
                });
            });
            bench.assert_idle();
        }
    });
}

async fn read_when_free(bench: &Bench) {
    let mut request = bench.request(4096, 4096);
    let mut completion = loop {
        let freed = bench.driver.slot_freed();
        match bench.driver.try_submit(request, Urgency::Demand) {
            Ok(completion) => break completion,
            Err(back) => request = back,
        }
        freed.await;
    };
    let finished = std::future::poll_fn(|context| completion.poll(context)).await;
    bench.check(4096, 4096, &finished);
}

/// Goal: requests of a thread that has ended are completed: the kernel cancels them, and they are made again.
#[test]
fn threads_that_end_after_submitting() {
    with_seed("waiting::threads_that_end_after_submitting", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 16, seed);
            watched(bench.driver.name(), || {
                for round in 0..40 {
                    let submitted = Mutex::new(Vec::new());
                    thread::scope(|scope| {
                        for number in 0..3 {
                            let (bench, submitted, mut rng) =
                                (&bench, &submitted, Rng::new(seed ^ (round * 8 + number)));
                            scope.spawn(move || {
                                let (offset_bytes, length_bytes) = bench.draw(&mut rng, 60);
                                let completion =
                                    bench.driver.submit_blocking(bench.request(offset_bytes, length_bytes));
                                submitted.lock().unwrap().push((offset_bytes, length_bytes, completion));
                            });
                        }
                    });
                    for (offset_bytes, length_bytes, completion) in submitted.into_inner().unwrap() {
                        bench.check(offset_bytes, length_bytes, &completion.wait());
                    }
                }
            });
            bench.assert_idle();
        }
    });
}

/// Goal: a slot's notice reaches a blocking listener although nobody reaps for it.
#[test]
fn a_notice_of_a_free_slot_needs_no_reaper() {
    for kind in drivers(9) {
        let bench = Bench::new(kind, 1, 9);
        let abandoned = bench.driver.submit_blocking(bench.request(0, 1 << 20));
        let freed = bench.driver.slot_freed();
        drop(abandoned);
        watched(bench.driver.name(), || freed.wait());
        bench.assert_idle();
    }
}
