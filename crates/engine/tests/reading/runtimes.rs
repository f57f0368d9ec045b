//! Runtimes: tokio, with the feature of that name, where tasks wait by the runtime's own I/O.
//!
//! ```text
//!   one engine ─┬─ runtime that runs                 ┐
//!               ├─ runtime that stands still, or ends ├─ none waits for another
//!               ├─ runtime without I/O                │
//!               └─ thread that blocks                ┘
//! ```
//!
//! Owns: several runtimes and threads on one ring.
//! Does not own: what works on any executor (see `executors`).

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use futures_util::future;
use headwater::ring::{Driver, DriverOptions, Request, Urgency};
use headwater::{Caching, DriverKind, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{PATIENCE, Rng, skip, with_seed};
use tokio::runtime::{Builder, Runtime};

use crate::refusal::in_child;
use crate::rig::{Rig, Scratch, uring_refusal, watched};

/// An engine of one ring, which all share, or `None` where there are none.
fn rig() -> Option<Rig> {
    if let Some(reason) = uring_refusal() {
        skip(format!("uring: {reason}"));
        return None;
    }
    let builder = Engine::builder().memory(8 << 20).queue_depth(16).rings(1).driver(DriverKind::Uring);
    Some(Rig { engine: builder.build().unwrap(), control: None })
}

/// These tests are about the ring: each read shall take it.
fn uncached(rig: &Rig, scratch: &Scratch) -> File {
    let mut options = OpenOptions::new();
    options.engine(&rig.engine).io(IoMode::Direct).caching(Caching::Off);
    options.open(scratch.path()).unwrap()
}

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_io().build().unwrap(),
        Builder::new_multi_thread().worker_threads(3).enable_io().build().unwrap(),
    ]
}

fn current_thread() -> Runtime {
    let [runtime, _] = runtimes();
    runtime
}

/// As many tasks as reads, each in a place of its own.
async fn read_much(scratch: &Scratch, file: &File, seed: u64, tasks: u64) {
    let read = |number| {
        let (file, mut rng) = (file.clone(), Rng::new(seed ^ number));
        tokio::spawn(async move {
            let (offset_bytes, length) = (rng.below(1_900_000), 1 + rng.below(60_000) as usize);
            (offset_bytes, length, file.read_at_async(offset_bytes, length).await.unwrap().to_vec())
        })
    };
    for done in future::join_all((0..tasks).map(read)).await {
        let (offset_bytes, length, bytes) = done.unwrap();
        scratch.check_all(offset_bytes, length, &bytes);
    }
}

/// Goal: both runtimes, one after the other and both at once on one ring; no thread is started for tasks. Method: a process of its own, whose threads are listed.
#[test]
fn runtimes_wait_without_a_thread() {
    with_seed("runtimes::runtimes_wait_without_a_thread", |seed| {
        let Some(rig) = rig() else { return };
        if !in_child("runtimes::runtimes_wait_without_a_thread") {
            return;
        }
        let scratch = Scratch::new(seed, 2_000_000);
        let file = uncached(&rig, &scratch);
        watched("tasks", || {
            for runtime in runtimes() {
                runtime.block_on(read_much(&scratch, &file, seed, TASKS));
            }
            thread::scope(|scope| {
                for (number, runtime) in (0..).zip(runtimes()) {
                    let (scratch, file) = (&scratch, &file);
                    scope.spawn(move || {
                        for round in 0..20 {
                            runtime.block_on(read_much(scratch, file, seed + 2 * round + number, TASKS / 2));
                        }
                    });
                }
            });
        });
        // Where a panic aborts, runtimes are not asked whether they have I/O.
        assert_eq!(has_ring_thread(), cfg!(panic = "abort"), "tasks of tokio need no thread");
        rig.assert_idle();
    });
}

/// Goal: a task that reads by itself keeps one worker busy, and wakes no other. Method: a process of its own, whose threads wait once for
/// each read, and now and then for a look at stuck threads.
#[test]
fn a_lone_read_wakes_one_worker() {
    let Some(rig) = rig() else { return };
    // Runtimes are not asked whether they have I/O then.
    if cfg!(panic = "abort") {
        return skip("where a panic aborts, a thread reaps for tasks, and wakes them");
    }
    if !in_child("runtimes::a_lone_read_wakes_one_worker") {
        return;
    }
    let scratch = Scratch::new(1, 2_000_000);
    let file = uncached(&rig, &scratch);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
    let reading = async move {
        for number in 0..LONE_READS {
            let bytes = file.read_at_async(number * 4096 % 1_900_000, 4096).await.unwrap();
            assert_eq!(bytes.len(), 4096);
        }
    };
    let (before, began) = (waits(), Instant::now());
    watched("lone reads", || runtime.block_on(async { tokio::spawn(reading).await.unwrap() }));
    let (waits, elapsed) = (waits() - before, began.elapsed());
    let most = LONE_READS * 3 / 2 + 2 * elapsed.as_millis() as u64;
    assert!(waits <= most, "threads waited {waits} times in {LONE_READS} reads, {elapsed:?}");
    println!("threads waited {waits} times in {LONE_READS} reads, {elapsed:?}");
    rig.assert_idle();
}

const LONE_READS: u64 = 2000;

/// How often the threads of this process have waited.
fn waits() -> u64 {
    let of_thread = |task: std::io::Result<std::fs::DirEntry>| {
        // One that has just ended has none.
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count = line.and_then(|count| count.trim().parse::<u64>().ok());
        Some(count.expect("the kernel counts what a thread waits"))
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(of_thread).sum()
}

/// Goal: tasks and threads that block, on one ring.
#[test]
fn tasks_beside_threads() {
    with_seed("runtimes::tasks_beside_threads", |seed| {
        let Some(rig) = rig() else { return };
        let scratch = Scratch::new(seed, 2_000_000);
        let file = uncached(&rig, &scratch);
        watched("tasks and threads", || {
            thread::scope(|scope| {
                let (scratch, file) = (&scratch, &file);
                for (number, runtime) in (0..).zip(runtimes()) {
                    scope.spawn(move || {
                        for round in 0..40 {
                            runtime.block_on(read_much(scratch, file, seed + 2 * round + number, 10));
                        }
                    });
                    scope.spawn(move || block(scratch, file, seed + number));
                }
            });
        });
        rig.assert_idle();
    });
}

/// Large enough to go through the ring.
fn block(scratch: &Scratch, file: &File, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..50 {
        let (offset_bytes, mut buffer) = (rng.below(1_000_000), vec![0; 600_000]);
        file.read_exact_at(&mut buffer, offset_bytes).unwrap();
        scratch.check_all(offset_bytes, buffer.len(), &buffer);
    }
}

fn has_ring_thread() -> bool {
    std::fs::read_dir("/proc/self/task").unwrap().any(|task| {
        let name = std::fs::read_to_string(task.unwrap().path().join("comm"));
        name.is_ok_and(|name| name.trim() == "headwater-ring")
    })
}

/// One was started. Until it has run, it has no name.
fn expect_ring_thread() {
    let began = Instant::now();
    while !has_ring_thread() {
        assert!(began.elapsed() < PATIENCE, "no thread was started");
        thread::yield_now();
    }
}

/// Goal: a runtime without I/O is served by the thread, beside one that needs none.
#[test]
fn a_runtime_without_io() {
    with_seed("runtimes::a_runtime_without_io", |seed| {
        let Some(rig) = rig() else { return };
        let scratch = Scratch::new(seed, 2_000_000);
        let file = uncached(&rig, &scratch);
        watched("tasks", || {
            thread::scope(|scope| {
                let without = [
                    Builder::new_current_thread().build().unwrap(),
                    Builder::new_multi_thread().worker_threads(2).build().unwrap(),
                ];
                for runtime in without.into_iter().chain(runtimes()) {
                    let (scratch, file) = (&scratch, &file);
                    scope.spawn(move || runtime.block_on(read_much(scratch, file, seed, 100)));
                }
            });
        });
        expect_ring_thread();
        rig.assert_idle();
    });
}

/// Goal: where no runtime has I/O, none is asked for it: tokio answers with a panic, whose message a user would see. Method: a
/// process of its own, whose panics are counted.
#[test]
fn runtimes_without_io_see_no_panic() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    if !in_child("runtimes::runtimes_without_io_see_no_panic") {
        return;
    }
    let Some(rig) = rig() else { return };
    let scratch = Scratch::new(1, 2_000_000);
    let file = uncached(&rig, &scratch);
    std::panic::set_hook(Box::new(|_| _ = PANICS.fetch_add(1, Ordering::Relaxed)));
    Builder::new_current_thread().build().unwrap().block_on(read_much(&scratch, &file, 1, 100));
    Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap()
        .block_on(read_much(&scratch, &file, 1, 100));
    expect_ring_thread();
    _ = std::panic::take_hook();
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

/// Goal: a runtime dropped with requests in flight takes nobody with it: neither another runtime, nor a thread, nor the
/// memory of its requests.
#[test]
fn a_runtime_dropped_in_the_middle() {
    with_seed("runtimes::a_runtime_dropped_in_the_middle", |seed| {
        let Some(rig) = rig() else { return };
        let scratch = Scratch::new(seed, 2_000_000);
        let file = uncached(&rig, &scratch);
        watched("those who stay", || {
            thread::scope(|scope| {
                let (scratch, file) = (&scratch, &file);
                let staying = current_thread();
                scope.spawn(move || {
                    (0..60).for_each(|round| staying.block_on(read_much(scratch, file, seed + round, 8)));
                });
                scope.spawn(move || block(scratch, file, seed));
                for _ in 0..20 {
                    for runtime in runtimes() {
                        (0..6).for_each(|number| {
                            let file = file.clone();
                            _ = runtime.spawn(async move {
                                loop {
                                    file.read_at_async(number * 300_000, 40_000).await.unwrap();
                                }
                            });
                        });
                        runtime.block_on(file.read_at_async(0, 9000)).unwrap();
                        runtime.shutdown_background();
                    }
                }
            });
        });
        rig.assert_idle();
    });
}

/// Goal: a runtime that nobody runs, with requests in flight, holds up nobody else, and goes on later.
#[test]
fn a_runtime_that_stands_still() {
    with_seed("runtimes::a_runtime_that_stands_still", |seed| {
        let Some(rig) = rig() else { return };
        let scratch = Scratch::new(seed, 2_000_000);
        let file = uncached(&rig, &scratch);
        watched("the other runtime", || {
            let (still, running) = (current_thread(), current_thread());
            for round in 0..50 {
                let reads: Vec<_> =
                    (0..4).map(|number| still.spawn(file.read_at_async(number * 400_000, 100_000))).collect();
                // Far enough for the requests to be made, mostly not for the answers.
                still.block_on(async {
                    for _ in 0..round % 5 {
                        tokio::task::yield_now().await;
                    }
                });
                running.block_on(read_much(&scratch, &file, seed + round, 8));
                for (number, read) in (0..).zip(still.block_on(future::join_all(reads))) {
                    scratch.check_all(number * 400_000, 100_000, &read.unwrap().unwrap());
                }
            }
        });
        rig.assert_idle();
    });
}

/// Goal: a task that was woken with others and then blocks its runtime until somebody else has read does not wait for
/// ever: what the others ask for is not left to the runtime that it blocks.
#[test]
fn a_task_that_blocks_for_another_runtime() {
    with_seed("runtimes::a_task_that_blocks_for_another_runtime", |seed| {
        let Some(rig) = rig() else { return };
        let scratch = Scratch::new(seed, 2_000_000);
        let file = uncached(&rig, &scratch);
        let (ask, asked) = channel::<()>();
        let (answer, answered) = channel::<()>();
        let other_file = file.clone();
        let other = thread::spawn(move || {
            let runtime = current_thread();
            for () in asked {
                runtime.block_on(other_file.read_at_async(4096, 4096)).unwrap();
                answer.send(()).unwrap();
            }
        });
        let (runtime, answered) = (current_thread(), Arc::new(Mutex::new(answered)));
        for _ in 0..200 {
            let first = Arc::new(AtomicBool::new(true));
            let read = |number: u64| {
                let (file, first) = (file.clone(), first.clone());
                let (ask, answered) = (ask.clone(), answered.clone());
                runtime.spawn(async move {
                    file.read_at_async(number * 4096, 4096).await.unwrap();
                    if first.swap(false, Ordering::Relaxed) {
                        ask.send(()).unwrap();
                        let answer = answered.lock().unwrap().recv_timeout(PATIENCE / 6);
                        answer.expect("the other runtime is not held up");
                    }
                })
            };
            let reads: Vec<_> = (0..8).map(read).collect();
            runtime.block_on(future::join_all(reads)).into_iter().for_each(Result::unwrap);
        }
        drop(ask);
        other.join().unwrap();
        rig.assert_idle();
    });
}

/// More than there are places, but each with a frame: a read that is put together drops readahead, which takes a thread.
const TASKS: u64 = 48;

/// Goal: a task that waits for a request whose plug it keeps open does not hang.
#[test]
fn a_task_that_keeps_its_plug_open() {
    let Some(_) = rig() else { return };
    let driver = Driver::new(&DriverOptions { kind: DriverKind::Uring, ..Default::default() }).unwrap();
    watched("an open plug", || {
        for runtime in runtimes() {
            for _ in 0..50 {
                runtime.block_on(async {
                    let mut plug = driver.plug();
                    for _ in 0..3 {
                        let mut completion = plug.submit(Request::Nop, Urgency::Demand).unwrap();
                        assert!(poll_fn(|context| completion.poll(context)).await.result.is_ok());
                    }
                });
            }
        }
    });
}
