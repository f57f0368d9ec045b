//! Drops: futures, readers, streams and engines given up at any moment, and threads that end (invariants 1 and 4).
//!
//! Owns: giving up through the public interface; what is read afterwards is still right, and every gauge returns.
//! Does not own: the proof on the memory itself, which the driver's tests have.

use std::future::Future;
use std::io::Read;
use std::pin::pin;
use std::task::Context;
use std::thread;

use futures_util::StreamExt;
use futures_util::io::{AsyncBufReadExt, AsyncReadExt};
use headwater::{File, IoMode};
use headwater_testkit::{Rng, make_cold, skip, with_seed};

use crate::rig::{Scratch, block_on, rigs, unparker, watched};

/// Goal: whatever is dropped after however many polls, later reads are right and nothing stays in use. Method: random
/// futures, polled a random number of times and dropped, with whole reads between.
#[test]
fn futures_dropped_at_any_poll() {
    with_seed("drops::futures_dropped_at_any_poll", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for rig in rigs(seed) {
            let (file, mut rng) = (rig.open(&scratch.path(), IoMode::Direct), Rng::new(seed));
            watched(rig.name(), || {
                for _ in 0..150 {
                    give_up(&file, &mut rng);
                    if rng.chance(1, 5) {
                        check_some(&file, &scratch, &mut rng);
                    }
                }
            });
            rig.assert_idle();
            check_some(&file, &scratch, &mut rng);
        }
    });
}

fn give_up(file: &File, rng: &mut Rng) {
    let (offset_bytes, polls) = (rng.below(2_000_000), rng.below(6));
    match rng.below(4) {
        0 => poll_times(file.read_at_async(offset_bytes, rng.below(100_000) as usize), polls),
        1 => poll_times(file.read_at_async(0, 2_000_000 + rng.below(2_000_000) as usize), polls),
        2 => {
            let mut reader = file.async_reader();
            let mut buffer = vec![0; rng.below(300_000) as usize];
            poll_times(reader.read_exact(&mut buffer), polls);
            poll_times(reader.fill_buf(), polls);
        }
        _ => {
            let mut stream = file.stream();
            for _ in 0..rng.below(4) {
                poll_times(stream.next(), polls);
            }
        }
    }
}

fn poll_times<F: Future>(future: F, times: u64) {
    let mut future = pin!(future);
    for _ in 0..times {
        // A waker of its own each time: the last one counts.
        if future.as_mut().poll(&mut Context::from_waker(&unparker())).is_ready() {
            return;
        }
    }
}

fn check_some(file: &File, scratch: &Scratch, rng: &mut Rng) {
    let (offset_bytes, length) = (rng.below(2_000_000), rng.below(700_000) as usize);
    let bytes = block_on(file.read_at_async(offset_bytes, length)).unwrap();
    scratch.check_all(offset_bytes, length, &bytes);
}

/// Goal: a reader dropped with prefetch in flight costs nothing and harms nobody. Method: many readers that stop at
/// random points beside one that goes on to the end.
#[test]
fn readers_dropped_at_any_point() {
    with_seed("drops::readers_dropped_at_any_point", |seed| {
        let scratch = Scratch::new(seed, 3_000_000);
        for rig in rigs(seed) {
            let (file, mut rng) = (rig.open(&scratch.path(), IoMode::Direct), Rng::new(seed));
            let (mut survivor, mut contents) = (file.reader(), Vec::new());
            while contents.len() < 3_000_000 {
                let mut buffer = vec![0; rng.below(200_000) as usize];
                file.reader().read_exact(&mut buffer).unwrap();
                scratch.check(0, &buffer);
                let read_bytes = survivor.read(&mut buffer).unwrap();
                contents.extend_from_slice(&buffer[..read_bytes]);
            }
            scratch.check_all(0, usize::MAX, &contents);
            drop(survivor);
            rig.assert_idle();
        }
    });
}

/// Goal: frames lent out outlive everything and never change. Method: keep what a stream gave, drop stream, file and
/// engine while more is in flight, start over with a new engine, look at the bytes.
#[test]
fn engines_dropped_with_requests_in_flight() {
    with_seed("drops::engines_dropped_with_requests_in_flight", |seed| {
        let scratch = Scratch::new(seed, 3_000_000);
        for round in 0..5 {
            for rig in rigs(seed + round) {
                let file = rig.open(&scratch.path(), IoMode::Direct);
                let mut stream = file.stream();
                let first = block_on(stream.next()).unwrap().unwrap();
                poll_times(file.read_at_async(1_000_000, 500_000), 1);
                poll_times(file.async_reader().fill_buf(), 1);
                drop((rig, file, stream));
                scratch.check(0, &first);
            }
        }
    });
}

/// Goal: requests of a thread that has ended complete all the same: the kernel cancels what it had in flight, and looks for a buffer in
/// memory that is no longer there. Method: a short-lived thread starts them, another one waits; around the kernel's page cache, and
/// through it, where the file is not.
#[test]
fn threads_that_end_after_submitting() {
    with_seed("drops::threads_that_end_after_submitting", |seed| {
        let scratch = Scratch::new(seed, 3_000_000);
        for (mode, rig) in
            MODES.into_iter().flat_map(|mode| rigs(seed).into_iter().map(move |rig| (mode, rig)))
        {
            let file = rig.open(&scratch.path(), mode);
            let mut left = 0;
            watched(rig.name(), || {
                for round in 0..30_u64 {
                    make_cold(&std::fs::File::open(scratch.path()).unwrap()).unwrap();
                    let offset_bytes = round * 50_000;
                    // Each in a thread that is gone before the result is asked for.
                    let mut reading = Box::pin(file.read_at_async(offset_bytes, 100_000));
                    let mut reader = file.async_reader();
                    let (reading, mut reader) = thread::scope(|scope| {
                        let begin = scope.spawn(move || {
                            let waker = unparker();
                            let mut context = Context::from_waker(&waker);
                            let ready = reading.as_mut().poll(&mut context);
                            poll_times(reader.fill_buf(), 1);
                            (ready.is_pending().then_some(reading), reader)
                        });
                        begin.join().unwrap()
                    });
                    if let Some(reading) = reading {
                        left += 1;
                        scratch.check_all(offset_bytes, 100_000, &block_on(reading).unwrap());
                    }
                    let mut front = vec![0; 300_000];
                    block_on(reader.read_exact(&mut front)).unwrap();
                    scratch.check(0, &front);
                }
            });
            // The simulated device answers each poll; a file system in memory has nothing to wait for.
            if left == 0 && mode == IoMode::Direct && rig.name() != "sim" {
                skip(format!("{}: no read was under way when its thread ended", rig.name()));
            }
            rig.assert_idle();
        }
    });
}

const MODES: [IoMode; 3] = [IoMode::Direct, IoMode::Buffered, IoMode::Auto];
