//! Chaos: eight threads that do with one driver whatever can be done with it, at random.
//!
//! ```text
//!   for each driver: rounds of half a second ─► 8 threads: submit, batch, plug ─► wait, poll, give up, cancel, drop,
//!                                                          pass on to another thread ─► all gauges back to zero
//! ```
//!
//! Two seconds for each driver; `HEADWATER_CHAOS_SECONDS=60` makes a soak of it.
//!
//! Owns: the mixture.
//! Does not own: what each of these does alone (the other modules).

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use headwater_io::{
    Completion, Direction, DriverKind, DriverOptions, Finished, Request, SimOptions, Transfer, Urgency,
};
use headwater_testkit::{Rng, with_seed};

use crate::bench::{Bench, block_on, chaos_seconds, drivers, errno, watched};

/// Goal: whatever eight threads do to each other, what is delivered is right, nobody waits for ever, and in the end
/// everything has come back.
#[test]
fn chaos_on_threads_and_sim() {
    with_seed("chaos::chaos_on_threads_and_sim", |seed| {
        for kind in [DriverKind::Threads, DriverKind::Sim(SimOptions::hostile(seed))] {
            rage(&DriverOptions { kind, queue_depth: 12, ..DriverOptions::default() }, seed);
        }
    });
}

/// Goal: the same on one ring, which all share, and on four, among which they move.
#[test]
fn chaos_on_rings() {
    with_seed("chaos::chaos_on_rings", |seed| {
        let has_rings = |kind: &DriverKind| matches!(kind, DriverKind::Uring);
        for kind in drivers(seed).into_iter().filter(has_rings) {
            for rings in [1, 4] {
                let (kind, rings) = (kind.clone(), Some(rings));
                rage(&DriverOptions { kind, rings, queue_depth: 12, ..DriverOptions::default() }, seed);
            }
        }
    });
}

fn rage(options: &DriverOptions, seed: u64) {
    let bench = Bench::with(options, seed);
    let end = Instant::now() + Duration::from_secs(chaos_seconds().unwrap_or(SECONDS));
    let mut rng = Rng::new(seed);
    while Instant::now() < end {
        let round_end = Instant::now() + ROUND;
        let shared: Mutex<Vec<Pending>> = Mutex::default();
        watched(bench.name(), || {
            thread::scope(|scope| {
                for _ in 0..8 {
                    let (bench, shared, mut rng) = (&bench, &shared, Rng::new(rng.next_u64()));
                    scope.spawn(move || {
                        while Instant::now() < round_end {
                            step(bench, shared, &mut rng);
                        }
                    });
                }
            });
            for pending in shared.into_inner().unwrap() {
                end_somehow(&bench, pending, &mut rng);
            }
            bench.assert_idle();
        });
    }
}

fn step(bench: &Bench, shared: &Mutex<Vec<Pending>>, rng: &mut Rng) {
    match rng.below(8) {
        0 | 1 => single(bench, rng),
        2 => several(bench, rng),
        3 => plugged(bench, rng),
        4 => batched(bench, rng),
        5 => readahead(bench, rng),
        6 if shared.lock().unwrap().len() < SHARED_MAX => {
            let pending = submit(bench, rng);
            shared.lock().unwrap().push(pending);
        }
        _ => {
            let pending = shared.lock().unwrap().pop();
            pending.into_iter().for_each(|pending| end_somehow(bench, pending, rng));
        }
    }
}

/// What was asked for, so that the answer can be judged.
#[derive(Clone, Copy)]
struct Asked {
    direction: Direction,
    offset_bytes: u64,
    length_bytes: usize,
    cancelled: bool,
}

struct Pending {
    asked: Asked,
    completion: Completion,
}

fn draw(bench: &Bench, rng: &mut Rng) -> (Asked, Transfer) {
    let (offset_bytes, length_bytes) = bench.draw(rng, 8);
    let mut transfer = bench.request(offset_bytes, length_bytes);
    if rng.chance(1, 8) {
        // Writes what is there already, so that everybody may read at any time.
        transfer.direction = Direction::Write;
        let mut at_bytes = offset_bytes;
        for extent in &mut transfer.extents {
            bench.pattern.fill(at_bytes, extent);
            at_bytes += extent.len() as u64;
        }
    }
    (Asked { direction: transfer.direction, offset_bytes, length_bytes, cancelled: false }, transfer)
}

fn submit(bench: &Bench, rng: &mut Rng) -> Pending {
    let (asked, transfer) = draw(bench, rng);
    Pending { asked, completion: bench.submit(transfer) }
}

fn single(bench: &Bench, rng: &mut Rng) {
    let pending = submit(bench, rng);
    end_somehow(bench, pending, rng);
}

fn several(bench: &Bench, rng: &mut Rng) {
    let mut under_way: Vec<Pending> = (0..1 + rng.below(6)).map(|_| submit(bench, rng)).collect();
    while !under_way.is_empty() {
        let pending = under_way.swap_remove(rng.below(under_way.len() as u64) as usize);
        end_somehow(bench, pending, rng);
    }
}

/// Some end while the plug is still open.
fn plugged(bench: &Bench, rng: &mut Rng) {
    let mut plug = bench.driver.plug();
    let mut under_way = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let (asked, transfer) = draw(bench, rng);
        let completion = plug.submit(transfer, Urgency::Demand).expect("demand is accepted");
        under_way.push(Pending { asked, completion });
        match rng.below(6) {
            0 => plug.flush(),
            1 => end_somehow(bench, under_way.swap_remove(0), rng),
            _ => {}
        }
    }
    if rng.chance(1, 2) {
        drop(plug);
    }
    under_way.into_iter().for_each(|pending| end_somehow(bench, pending, rng));
}

fn batched(bench: &Bench, rng: &mut Rng) {
    let mut batch = bench.driver.batch();
    let mut asked = Vec::new();
    for _ in 0..rng.below(20) {
        // No more memory than others can do without.
        if rng.chance(1, 2) {
            batch.push(Request::Nop).unwrap();
            asked.push(None);
        } else {
            let (one, transfer) = draw(bench, rng);
            batch.push(transfer).unwrap();
            asked.push(Some(one));
        }
    }
    let mut answers = 0;
    batch.finish(|place, finished| {
        assert_eq!(place, answers, "in the order of the requests");
        answers += 1;
        match asked[place] {
            Some(asked) => check(bench, asked, &finished),
            None => assert_eq!(finished.result.unwrap(), 0),
        }
    });
    assert_eq!(answers, asked.len());
}

fn readahead(bench: &Bench, rng: &mut Rng) {
    let (asked, transfer) = draw(bench, rng);
    if let Ok(completion) = bench.driver.submit(transfer, Urgency::Readahead) {
        end_somehow(bench, Pending { asked, completion }, rng);
    }
}

fn end_somehow(bench: &Bench, mut pending: Pending, rng: &mut Rng) {
    if rng.chance(1, 4) {
        pending.completion.cancel();
        pending.asked.cancelled = true;
    }
    let Pending { asked, mut completion } = pending;
    let finished = match rng.below(6) {
        0 => return,
        1 => match poll_shortly(&mut completion, rng) {
            Some(finished) => finished,
            None => return,
        },
        2 => {
            let patience = Instant::now() + Duration::from_micros(rng.below(200));
            while !completion.is_done() {
                if Instant::now() > patience {
                    return;
                }
            }
            completion.wait()
        }
        3 => block_on(std::future::poll_fn(|context| completion.poll(context))),
        4 => match poll_shortly(&mut completion, rng) {
            Some(finished) => finished,
            None => completion.wait(),
        },
        _ => completion.wait(),
    };
    check(bench, asked, &finished);
}

fn poll_shortly(completion: &mut Completion, rng: &mut Rng) -> Option<Finished> {
    for _ in 0..1 + rng.below(3) {
        if let Poll::Ready(finished) = completion.poll(&mut Context::from_waker(Waker::noop())) {
            // The slot is somebody else's by now, and must not hear of these.
            completion.cancel();
            assert!(completion.is_done());
            return Some(finished);
        }
    }
    None
}

fn check(bench: &Bench, asked: Asked, finished: &Finished) {
    let Asked { direction, offset_bytes, length_bytes, cancelled } = asked;
    let done_bytes = match &finished.result {
        Ok(done_bytes) => *done_bytes,
        Err(_) if cancelled => {
            assert_eq!(errno(&finished.result), Some(libc::ECANCELED));
            assert!(finished.stopped_by.is_none());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    if done_bytes < length_bytes {
        assert!(cancelled, "nobody stopped it after {done_bytes} of {length_bytes} bytes");
        let reason = finished.stopped_by.as_ref().and_then(std::io::Error::raw_os_error);
        assert_eq!(reason, Some(libc::ECANCELED));
    } else {
        assert!(finished.stopped_by.is_none());
    }
    if direction == Direction::Read {
        let bytes: Vec<u8> = finished.extents.iter().flat_map(|extent| extent.iter().copied()).collect();
        assert_eq!(bench.pattern.mismatch(offset_bytes, &bytes[..done_bytes]), None);
    }
}

/// For each driver, when nobody asks for more.
const SECONDS: u64 = 2;

/// How often all gauges must be zero, and far less than the patience of [`watched`].
const ROUND: Duration = Duration::from_millis(500);

/// Requests that wait for another thread to end them: their memory must be a small part of the arena.
const SHARED_MAX: usize = 16;
