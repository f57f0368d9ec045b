//! Waiting: many threads and tasks on one driver, more requests than slots, and every way to ask for a result.
//!
//! Owns: leaders and followers, slots as a limit, threads that end.
//! Does not own: single requests (see `transfers`).

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use headwater_io::{Completion, Direction, Fsync, SyncScope, Transfer, Urgency};
use headwater_testkit::{Rng, stuck_in_kernel, with_seed};

use crate::bench::{Bench, block_on, drivers, watched};

/// Goal: no wake-up is lost between leaders and followers. Method: eight threads with several requests each wait for
/// them in random order, thousands in all, on fewer slots than are wanted.
#[test]
fn eight_threads_wait_in_random_order() {
    with_seed("waiting::eight_threads_wait_in_random_order", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 12, seed);
            watched(bench.name(), || {
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

/// Goal: who leaves the lead wakes who follows, also when that is the last one and nobody else will come. Method: two
/// threads alone that wait at the same moment, one of them for a request that takes much longer.
#[test]
fn the_last_follower_leads() {
    for kind in drivers(6) {
        let (bench, barrier) = (Bench::new(kind, 12, 6), Barrier::new(2));
        let wait_often = |length_bytes| {
            for _ in 0..300 {
                barrier.wait();
                let completion = bench.submit(bench.request(4096, length_bytes));
                bench.check(4096, length_bytes, &completion.wait());
            }
        };
        watched(bench.name(), || {
            thread::scope(|scope| {
                scope.spawn(|| wait_often(4096));
                scope.spawn(|| wait_often(1 << 20));
            });
        });
        bench.assert_idle();
    }
}

/// Goal: the same with tasks and blocking waiters mixed, each completion asked for in a manner of its own.
#[test]
fn tasks_and_threads_wait_together() {
    with_seed("waiting::tasks_and_threads_wait_together", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 12, seed);
            watched(bench.name(), || {
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
        let first = bench.submit(bench.request(offset_bytes, length_bytes));
        under_way.push((offset_bytes, length_bytes, first));
        let (offset_bytes, length_bytes) = bench.draw(rng, 3);
        under_way.push((offset_bytes, length_bytes, bench.submit(bench.request(offset_bytes, length_bytes))));
        while !under_way.is_empty() {
            let place = rng.below(under_way.len() as u64) as usize;
            let (offset_bytes, length_bytes, mut completion) = under_way.swap_remove(place);
            let how = if manner == Manner::Blocking { 0 } else { rng.below(5) };
            let early = match how {
                // With a waker that nobody will call for: the next one, or the thread, replaces it.
                2 | 3 => completion.poll(&mut Context::from_waker(Waker::noop())),
                _ => Poll::Pending,
            };
            let finished = match (early, how) {
                (Poll::Ready(finished), _) => finished,
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

/// One less than the arena has room for.
const HELD_MAX: usize = 7;

/// Goal: more requests than places: readahead is refused while there are still places for demand, demand waits in order
/// and is served, and what is done but not taken stops nobody.
#[test]
fn places_run_out() {
    with_seed("waiting::places_run_out", |seed| {
        for kind in drivers(seed) {
            let (bench, mut rng) = (Bench::new(kind, 4, seed), Rng::new(seed));
            let (mut held, mut attempts) = (Vec::new(), 0);
            let refused = loop {
                let (offset_bytes, _) = bench.draw(&mut rng, 1);
                match bench.driver.submit(bench.request(offset_bytes, 1 << 20), Urgency::Readahead) {
                    Ok(completion) => held.push((offset_bytes, completion)),
                    Err(rejected) => break rejected,
                }
                // On a fast device the first are done by now: what is done and not taken holds memory, and no place.
                if held.len() > HELD_MAX {
                    held.remove(0);
                }
                attempts += 1;
                assert!(attempts < 1000);
            };
            assert_eq!(refused.kind(), ErrorKind::WouldBlock);
            assert!(held.len() >= 3, "readahead leaves one place");
            drop((refused, held));
            let untaken: Vec<_> =
                (0..40).map(|page| bench.submit(bench.request(page * 4096, 4096))).collect();
            watched(bench.name(), || {
                thread::scope(|scope| {
                    for _ in 0..6 {
                        scope.spawn(|| drop(bench.submit(bench.request(0, 4096)).wait()));
                    }
                    scope.spawn(|| {
                        let mut completion = bench.submit(bench.request(4096, 4096));
                        let finished = block_on(std::future::poll_fn(|context| completion.poll(context)));
                        bench.check(4096, 4096, &finished);
                    });
                });
                for (page, completion) in untaken.into_iter().enumerate() {
                    bench.check(page as u64 * 4096, 4096, &completion.wait());
                }
            });
            bench.assert_idle();
        }
    });
}

/// Goal: requests of a thread that has ended are completed: the kernel cancels them, and they are made again.
#[test]
fn threads_that_end_after_submitting() {
    with_seed("waiting::threads_that_end_after_submitting", |seed| {
        for kind in drivers(seed) {
            let bench = Bench::new(kind, 16, seed);
            watched(bench.name(), || {
                for round in 0..40 {
                    let submitted = Mutex::new(Vec::new());
                    thread::scope(|scope| {
                        for number in 0..3 {
                            let (bench, submitted, mut rng) =
                                (&bench, &submitted, Rng::new(seed ^ (round * 8 + number)));
                            scope.spawn(move || {
                                let (offset_bytes, length_bytes) = bench.draw(&mut rng, 60);
                                let completion = bench.submit(bench.request(offset_bytes, length_bytes));
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

/// Goal: places are given in the order in which they were asked for. Method: one place; a hundred requests, some dropped
/// while they wait, and a thread that waits for the last; at any moment, what is done is what came first.
#[test]
fn places_are_given_in_order() {
    for kind in drivers(9) {
        let bench = Bench::new(kind, 1, 9);
        let mut waiting: Vec<Completion> =
            (0..100).map(|page| bench.submit(bench.request(page * 4096, 4096))).collect();
        (0..8).for_each(|nth| drop(waiting.remove(30 + 7 * nth)));
        let last = waiting.pop().unwrap();
        watched(bench.name(), || {
            thread::scope(|scope| {
                let waiter = scope.spawn(|| drop(last.wait()));
                while !waiter.is_finished() {
                    // From the last to the first: what is looked at later must be done if this is.
                    let done: Vec<bool> = waiting.iter().rev().map(Completion::is_done).collect();
                    assert!(done.is_sorted(), "{}: {done:?}", bench.name());
                }
            });
        });
        assert!(waiting.iter().all(Completion::is_done));
        drop(waiting);
        bench.assert_idle();
    }
}

/// Goal: a thread that waits for a read which another has submitted does not wait for that thread, should it be stuck in the kernel; the
/// memory comes back when that thread does. Method: a thread that nothing can interrupt, on each driver.
#[test]
fn a_stuck_submitter_holds_up_no_reader() {
    for kind in drivers(8) {
        let (bench, is_stuck) = (Bench::new(kind, 12, 8), AtomicBool::new(true));
        let (give, take) = channel();
        let waited = watched(bench.name(), || {
            thread::scope(|scope| {
                let (bench, is_stuck) = (&bench, &is_stuck);
                scope.spawn(move || {
                    for (offset_bytes, length_bytes) in STUCK_READS {
                        give.send(bench.submit(bench.request(offset_bytes, length_bytes))).unwrap();
                    }
                    drop(give);
                    assert!(stuck_in_kernel(is_stuck), "this thread was waited for");
                });
                let completions: Vec<Completion> = take.into_iter().collect();
                let began = Instant::now();
                for (completion, (offset_bytes, length_bytes)) in completions.into_iter().zip(STUCK_READS) {
                    bench.check(offset_bytes, length_bytes, &completion.wait());
                }
                is_stuck.store(false, Ordering::SeqCst);
                began.elapsed()
            })
        });
        println!("{}: {waited:?} for {} reads", bench.name(), STUCK_READS.len());
        bench.assert_idle();
    }
}

/// Goal: the same for a task that waits for several reads, of which one has not been polled by the time the thread is stuck. Method: a
/// runtime of its own, which the driver thread serves.
#[test]
fn a_stuck_submitter_holds_up_no_task() {
    for kind in drivers(10) {
        let (bench, is_stuck) = (Bench::new(kind, 12, 10), AtomicBool::new(true));
        let (give, take) = channel();
        let waited = watched(bench.name(), || {
            thread::scope(|scope| {
                let (bench, is_stuck) = (&bench, &is_stuck);
                scope.spawn(move || {
                    for (place, (offset_bytes, length_bytes)) in STUCK_READS.into_iter().enumerate() {
                        let mut completion = bench.submit(bench.request(offset_bytes, length_bytes));
                        // A task may have moved since: the next to poll it replaces the waker.
                        let mut context = Context::from_waker(Waker::noop());
                        let early = (place > 0).then(|| completion.poll(&mut context));
                        give.send((completion, early)).unwrap();
                    }
                    drop(give);
                    assert!(stuck_in_kernel(is_stuck), "this thread was waited for");
                });
                let (mut reads, began): (Vec<_>, _) = (take.into_iter().collect(), Instant::now());
                block_on(poll_fn(|context| {
                    let pending = reads.iter_mut().filter(|(_, done)| !matches!(done, Some(Poll::Ready(_))));
                    pending.for_each(|(completion, done)| *done = Some(completion.poll(context)));
                    let all = reads.iter().all(|(_, done)| matches!(done, Some(Poll::Ready(_))));
                    if all { Poll::Ready(()) } else { Poll::Pending }
                }));
                is_stuck.store(false, Ordering::SeqCst);
                for ((_, done), (offset_bytes, length_bytes)) in reads.iter().zip(STUCK_READS) {
                    let Some(Poll::Ready(finished)) = done else { unreachable!("all are done") };
                    bench.check(offset_bytes, length_bytes, finished);
                }
                began.elapsed()
            })
        });
        println!("{}: {waited:?} for {} reads", bench.name(), STUCK_READS.len());
        bench.assert_idle();
    }
}

/// Goal: a write that a stuck thread has prepared and not yet submitted is submitted by those that wait for it, once, and in order: what
/// is written there later stays. Method: a plug that stays open while nothing can interrupt its thread; a thread and a task that wait.
#[test]
fn what_a_stuck_thread_has_staged_is_submitted_by_others() {
    for kind in drivers(11) {
        let (bench, is_stuck) = (Bench::new(kind, 12, 11), AtomicBool::new(true));
        let (give, take) = channel();
        let write = |offset_bytes, byte: u8| {
            let mut write = Transfer { direction: Direction::Write, ..bench.request(offset_bytes, 4096) };
            write.extents.iter_mut().for_each(|extent| extent.fill(byte));
            write
        };
        let written = |offset_bytes| {
            let finished = bench.submit(bench.request(offset_bytes, 4096)).wait();
            assert_eq!(finished.result.unwrap(), 4096);
            let first = finished.extents[0][0];
            assert!(finished.extents[0][..4096].iter().all(|&byte| byte == first));
            first
        };
        let waited = watched(bench.name(), || {
            thread::scope(|scope| {
                let (bench, write, is_stuck) = (&bench, &write, &is_stuck);
                scope.spawn(move || {
                    let mut plug = bench.driver.plug();
                    let mut stage =
                        |at, byte| plug.submit(write(at, byte), Urgency::Demand).expect("there is a place");
                    give.send([stage(0, 1), stage(8192, 2)]).unwrap();
                    assert!(stuck_in_kernel(is_stuck), "this thread was waited for");
                });
                let ([first, mut second], began) = (take.recv().unwrap(), Instant::now());
                assert_eq!(first.wait().result.unwrap(), 4096);
                assert_eq!(block_on(poll_fn(|context| second.poll(context))).result.unwrap(), 4096);
                for (offset_bytes, byte) in [(0, 3), (8192, 4)] {
                    assert_eq!(bench.submit(write(offset_bytes, byte)).wait().result.unwrap(), 4096);
                }
                is_stuck.store(false, Ordering::SeqCst);
                began.elapsed()
            })
        });
        assert_eq!([written(0), written(8192)], [3, 4], "{}", bench.name());
        println!("{}: {waited:?} for two writes, and two over them", bench.name());
        bench.assert_idle();
    }
}

/// Goal: a sync that a thread has submitted is over for others when the device has done it, should that thread be stuck in the kernel: a
/// worker of the kernel's carries it out, and ends it. Method: a thread that nothing can interrupt; a thread and a task that wait.
#[test]
fn a_stuck_submitter_holds_up_no_sync() {
    for kind in drivers(9) {
        let (bench, is_stuck) = (Bench::new(kind, 12, 9), AtomicBool::new(true));
        let (give, take) = channel();
        let waited = watched(bench.name(), || {
            thread::scope(|scope| {
                let (bench, is_stuck) = (&bench, &is_stuck);
                scope.spawn(move || {
                    let sync = || Fsync { file: bench.file.clone(), scope: SyncScope::Data };
                    give.send([bench.submit(sync()), bench.submit(sync())]).unwrap();
                    assert!(stuck_in_kernel(is_stuck), "this thread was waited for");
                });
                let ([first, mut second], began) = (take.recv().unwrap(), Instant::now());
                first.wait().result.unwrap();
                block_on(poll_fn(|context| second.poll(context))).result.unwrap();
                is_stuck.store(false, Ordering::SeqCst);
                began.elapsed()
            })
        });
        println!("{}: {waited:?} for two syncs", bench.name());
        bench.assert_idle();
    }
}

const STUCK_READS: [(u64, usize); 3] = [(4096, 4096), (16384, 1 << 20), (0, 40960)];
