//! Sandboxes: `io_uring_enter` is forbidden when the ring has been in use.
//!
//! Owns: that requests are carried out all the same, once, those under way and those that follow.
//! Does not own: rings that are refused from the start (engine).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_io::{Call, DriverKind, DriverOptions, Fsync, LocalDriver, Returned, SyncScope, uring_refusal};
use headwater_testkit::{Rng, forbid_io_uring, forbid_io_uring_here, process_cpu_time, skip};

use crate::bench::{Bench, block_on, in_child, watched};

/// Goal: a process that forbids itself the ring loses no request, and does not spin. Method: requests under way, staged and waiting for
/// a place, by threads and tasks, while a filter is put in place; then more.
#[test]
fn the_ring_is_forbidden_later() {
    forbidden_in_the_middle("sandboxes::the_ring_is_forbidden_later", forbid_io_uring);
}

/// Goal: the same where one thread forbids it itself, and the others could go on. Method: the same, with a thread that submits under the
/// filter.
#[test]
fn the_ring_is_forbidden_to_one_thread() {
    forbidden_in_the_middle("sandboxes::the_ring_is_forbidden_to_one_thread", forbid_io_uring_here);
}

/// Goal: a ring of one thread goes on with worker threads as well, if nothing was under way when the process forbade itself the ring. Method:
/// calls before and after, by tasks and by waiting, several at once.
#[test]
fn a_local_ring_is_forbidden_while_it_rests() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    if !in_child("sandboxes::a_local_ring_is_forbidden_while_it_rests") {
        return;
    }
    let options = DriverOptions { kind: DriverKind::Uring, queue_depth: 4, ..DriverOptions::default() };
    let (bench, local) = (Bench::with(&options, 9), LocalDriver::new(&options).unwrap());
    let file = Arc::new(std::fs::File::open(bench.path()).unwrap());
    let read = |place: u64| local.driver().call(Call::pread(file.clone(), vec![0; 5000], place * 5000));
    let check = |place: u64, returned: Returned<usize, (Arc<std::fs::File>, Vec<u8>)>| {
        assert_eq!(returned.result.unwrap(), 5000);
        assert_eq!(bench.pattern.mismatch(place * 5000, &returned.given.1), None);
    };
    check(0, local.block_on(read(0)));
    forbid_io_uring();
    watched("a ring of one thread", || {
        for round in 1..5 {
            let calls: Vec<_> = (0..6).map(|place| (round * place, read(round * place))).collect();
            for (place, call) in calls {
                check(place, if round % 2 == 0 { call.wait() } else { local.block_on(call) });
            }
        }
    });
}

fn forbidden_in_the_middle(test_name: &str, forbid: fn()) {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    if !in_child(test_name) {
        return;
    }
    let bench = Bench::new(DriverKind::Uring, 8, 9);
    thread::scope(|scope| {
        for number in 0..4 {
            let bench = &bench;
            scope.spawn(move || read_for(bench, number, Duration::from_millis(400)));
        }
        thread::sleep(Duration::from_millis(100));
        forbid();
        read_for(&bench, 4, Duration::from_millis(100));
    });
    let enters = bench.driver.stats().enters;
    watched("after", || {
        let mut held = bench.submit(bench.request(0, 4096));
        let plug = bench.driver.plug();
        assert_eq!(bench.submit(bench.request(4096, 4096)).wait().result.unwrap(), 4096);
        drop(plug);
        bench.submit(Fsync { file: bench.file.clone(), scope: SyncScope::Data }).wait().result.unwrap();
        block_on(std::future::poll_fn(|context| held.poll(context))).result.unwrap();
        let file = std::fs::File::open(bench.path()).unwrap();
        let read = block_on(bench.driver.call(Call::preadv(file, vec![vec![0; 100]; 3], 50)));
        assert_eq!(bench.pattern.mismatch(50, &read.given.1.concat()), None);
    });
    bench.assert_idle();
    let before = process_cpu_time();
    thread::sleep(Duration::from_millis(300));
    assert!(process_cpu_time() - before < Duration::from_millis(60), "something spins");
    assert!(bench.driver.stats().enters - enters < 1000, "the ring is tried again and again");
}

fn read_for(bench: &Bench, number: u64, time: Duration) {
    let (mut rng, began) = (Rng::new(number), Instant::now());
    watched(bench.name(), || {
        while began.elapsed() < time {
            let mut reads: Vec<_> = (0..6)
                .map(|_| {
                    let (offset_bytes, length_bytes) = bench.draw(&mut rng, 8);
                    (offset_bytes, length_bytes, bench.submit(bench.request(offset_bytes, length_bytes)))
                })
                .collect();
            while let Some((offset_bytes, length_bytes, mut completion)) = reads.pop() {
                let finished = match rng.below(2) {
                    0 => completion.wait(),
                    _ => block_on(std::future::poll_fn(|context| completion.poll(context))),
                };
                bench.check(offset_bytes, length_bytes, &finished);
            }
        }
    });
}
