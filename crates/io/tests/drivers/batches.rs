//! Batches: requests handed over together, by batch and by plug, on every driver.
//!
//! Owns: order and places, more than the queue holds, receivers that panic, plugs that stay open.
//! Does not own: all of this by many threads at once (see `chaos`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use headwater_io::{Batch, Completion, Request, Urgency};
use headwater_testkit::{Rng, with_seed};

use crate::bench::{Bench, block_on, drivers, watched};

/// Goal: results come in the order of the requests, each with its place, for batches up to many times the queue depth of
/// transfers and such as do nothing.
#[test]
fn batches_of_all_sizes() {
    with_seed("batches::batches_of_all_sizes", |seed| {
        for kind in drivers(seed) {
            for queue_depth in [1, 2, 16, 40] {
                let (bench, mut rng) = (Bench::new(kind.clone(), queue_depth, seed), Rng::new(seed));
                let mut batch = bench.driver.batch();
                watched(bench.name(), || {
                    for count in [0, 1, 2, 31, 32, 33, 64, 65, 200] {
                        fill_and_finish(&bench, &mut batch, count, &mut rng);
                    }
                });
                bench.assert_idle();
            }
        }
    });
}

fn fill_and_finish(bench: &Bench, batch: &mut Batch, count: usize, rng: &mut Rng) {
    let asked: Vec<_> = (0..count).map(|_| push_some(bench, batch, rng)).collect();
    assert_eq!((batch.len(), batch.is_empty()), (count, count == 0));
    let mut answers = 0;
    batch.finish(|place, finished| {
        assert_eq!(place, answers);
        answers += 1;
        match asked[place] {
            Some((offset_bytes, length_bytes)) => bench.check(offset_bytes, length_bytes, &finished),
            None => assert!(finished.result.unwrap() == 0 && finished.extents.is_empty()),
        }
    });
    assert_eq!(answers, count);
    assert!(batch.is_empty());
}

/// One in three does nothing, the others read.
fn push_some(bench: &Bench, batch: &mut Batch, rng: &mut Rng) -> Option<(u64, usize)> {
    if rng.chance(1, 3) {
        batch.push(Request::Nop).unwrap();
        return None;
    }
    let (offset_bytes, length_bytes) = bench.draw(rng, 3);
    batch.push(bench.request(offset_bytes, length_bytes)).unwrap();
    Some((offset_bytes, length_bytes))
}

/// Goal: a receiver that panics at any place takes nothing with it: memory and slots come back, and the batch works on.
#[test]
fn a_receiver_that_panics() {
    with_seed("batches::a_receiver_that_panics", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 8, seed), Rng::new(seed));
            let mut batch = bench.driver.batch();
            watched(bench.name(), || {
                for (count, last) in [(1, 0), (8, 0), (8, 7), (40, 0), (40, 31), (40, 32), (100, 50)] {
                    (0..count).for_each(|_| _ = push_some(&bench, &mut batch, &mut rng));
                    let mut answers = 0;
                    let finish = AssertUnwindSafe(|| {
                        batch.finish(|place, finished| {
                            answers += 1;
                            if place == last {
                                // Without the message of a panic.
                                resume_unwind(Box::new(finished.extents.len()));
                            }
                        });
                    });
                    assert!(catch_unwind(finish).is_err());
                    assert_eq!(answers, last + 1, "nothing is handed over after a panic");
                    bench.assert_idle();
                    fill_and_finish(&bench, &mut batch, 50, &mut rng);
                }
            });
            bench.assert_idle();
        }
    });
}

/// Goal: a batch dropped full gives its memory back and submits nothing.
#[test]
fn a_batch_that_is_never_finished() {
    for kind in drivers(2) {
        let (bench, mut rng) = (Bench::new(kind, 8, 2), Rng::new(2));
        let mut batch = bench.driver.batch();
        (0..20).for_each(|_| _ = push_some(&bench, &mut batch, &mut rng));
        assert_eq!(bench.driver.stats().slots_used, 0);
        drop(batch);
        bench.assert_idle();
    }
}

/// Goal: what is submitted through a plug is carried out, whether the plug is dropped, flushed, or outlives its requests;
/// more than the queue holds, and with those that do nothing.
#[test]
fn plugs_of_all_sizes() {
    with_seed("batches::plugs_of_all_sizes", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 8, seed), Rng::new(seed));
            watched(bench.name(), || {
                for count in [1, 7, 8, 9, 100] {
                    for flushed in [true, false] {
                        let mut plug = bench.driver.plug();
                        let mut submit = |number| {
                            let nop = plug.submit(Request::Nop, Urgency::Demand).unwrap();
                            let (offset_bytes, length_bytes) = bench.draw(&mut rng, 3);
                            let request = bench.request(offset_bytes, length_bytes);
                            let read = plug.submit(request, Urgency::Demand).unwrap();
                            if flushed && number % 3 == 0 {
                                plug.flush();
                            }
                            (offset_bytes, length_bytes, read, nop)
                        };
                        let under_way: Vec<_> = (0..count).map(&mut submit).collect();
                        drop(plug);
                        for (offset_bytes, length_bytes, read, nop) in under_way {
                            bench.check(offset_bytes, length_bytes, &read.wait());
                            assert_eq!(nop.wait().result.unwrap(), 0);
                        }
                    }
                }
            });
            bench.assert_idle();
        }
    });
}

/// Goal: what is staged and given up is not forgotten: the memory comes back after the plug is gone.
#[test]
fn a_plug_dropped_without_waiting() {
    with_seed("batches::a_plug_dropped_without_waiting", |seed| {
        for kind in drivers(seed) {
            for completions_first in [true, false] {
                let (bench, mut rng) = (Bench::new(kind.clone(), 8, seed), Rng::new(seed));
                let mut plug = bench.driver.plug();
                let under_way: Vec<Completion> =
                    (0..20).map(|_| stage(&bench, &mut plug, &mut rng).2).collect();
                if completions_first {
                    drop(under_way);
                    drop(plug);
                } else {
                    drop(plug);
                    drop(under_way);
                }
                bench.assert_idle();
            }
        }
    });
}

/// Goal: who waits for a request whose plug is open does not hang, by waiting or as a task, in this thread or another,
/// while the ring is idle and while a thread is waiting in it.
#[test]
fn waiting_while_the_plug_is_open() {
    with_seed("batches::waiting_while_the_plug_is_open", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 8, seed), Rng::new(seed));
            watched(bench.name(), || {
                for round in 0..100 {
                    let mut plug = bench.driver.plug();
                    let (offset_bytes, length_bytes, mut first) = stage(&bench, &mut plug, &mut rng);
                    let second = stage(&bench, &mut plug, &mut rng);
                    let finished = match round % 3 {
                        0 => first.wait(),
                        1 => block_on(std::future::poll_fn(|context| first.poll(context))),
                        _ => std::thread::scope(|scope| scope.spawn(|| first.wait()).join().unwrap()),
                    };
                    bench.check(offset_bytes, length_bytes, &finished);
                    // The first is gone, the second was handed over with it, and a third is staged.
                    let third = stage(&bench, &mut plug, &mut rng);
                    for (offset_bytes, length_bytes, completion) in [third, second] {
                        bench.check(offset_bytes, length_bytes, &completion.wait());
                    }
                }
            });
            bench.assert_idle();
        }
    });
}

fn stage(bench: &Bench, plug: &mut headwater_io::Plug<'_>, rng: &mut Rng) -> (u64, usize, Completion) {
    let (offset_bytes, length_bytes) = bench.draw(rng, 3);
    let completion = plug.submit(bench.request(offset_bytes, length_bytes), Urgency::Demand).unwrap();
    (offset_bytes, length_bytes, completion)
}

/// Goal: a request that does nothing is done, waited for and polled, dropped and cancelled, on every driver.
#[test]
fn nothing_on_every_driver() {
    for kind in drivers(3) {
        let bench = Bench::new(kind, 2, 3);
        watched(bench.name(), || {
            for _ in 0..100 {
                assert_eq!(bench.submit(Request::Nop).wait().result.unwrap(), 0);
                let mut polled = bench.submit(Request::Nop);
                let finished = block_on(std::future::poll_fn(|context| polled.poll(context)));
                assert!(finished.extents.is_empty() && finished.stopped_by.is_none());
                drop(bench.submit(Request::Nop));
                let cancelled = bench.submit(Request::Nop);
                cancelled.cancel();
                let result = cancelled.wait().result;
                assert!(result.is_ok() || crate::bench::errno(&result) == Some(libc::ECANCELED));
            }
        });
        bench.assert_idle();
    }
}
