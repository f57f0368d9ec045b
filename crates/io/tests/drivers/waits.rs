//! Waits: calls that last as long as something else pleases, and what has to go on beside them.
//!
//! Owns: requests that keep each other waiting: for a place, for a worker thread, in a waker, for a thread that is not to be had.
//! Does not own: what timeouts and polls return (see `operations`).

use std::fs::File;
use std::io::{Write, pipe};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use headwater_io::{
    Call, CallOutput, Calling, Driver, DriverKind, DriverOptions, RingOperations, uring_refusal,
};
use headwater_testkit::{forbid_threads_here, skip};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bench::{block_on, in_child, watched};

/// Goal: calls that a ring leaves to worker threads do not wait for timeouts and polls that it leaves to them too: these need a place, of
/// which there are as many as in the ring, and no thread. Method: more timeouts than such a ring has threads.
#[test]
fn waits_beside_a_ring_keep_no_call_waiting() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    let operations = RingOperations::Transfers;
    let options = DriverOptions { kind: DriverKind::Uring, rings: Some(1), operations, ..Default::default() };
    let (driver, directory) = (Driver::new(&options).unwrap(), tempfile::tempdir().unwrap());
    let hours: Vec<_> = (0..20).map(|_| driver.call(Call::timeout(HOUR))).collect();
    watched("calls beside timeouts", || {
        driver.call(Call::timeout(Duration::from_millis(1))).wait().result.unwrap();
        let parent = File::open(directory.path()).unwrap();
        driver.call(Call::make_directory_at(parent, "made", 0o700)).wait().result.unwrap();
    });
    assert!(directory.path().join("made").is_dir());
    assert!(!hours.iter().any(Calling::is_done));
}

/// Goal: a request that gets its place when another ends is carried out by a worker that has nothing to do, if the one that ended the
/// other runs a waker, which may wait for it. Method: two places, of which a poll keeps one; the other goes to a call that lasts until
/// this test opens a pipe, and then to a call that its waker waits for.
#[test]
fn a_request_that_gets_its_place_late_is_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    watched("a waker that waits for a request without a place", || {
        for round in 0..8 {
            let driver = of_threads(2);
            let path = directory.path().join(format!("{round}"));
            mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
            let mut opened = driver.call(Call::open(&path, libc::O_RDONLY, 0));
            let (never, _writer) = pipe().unwrap();
            let poll = driver.call(Call::poll(never, libc::POLLIN as u32));
            let queued = driver.call(Call::nop(round));
            let (give, take) = channel();
            poll_once(&mut opened, &waker_that(move || give.send(queued.wait()).unwrap()));
            let _writer = File::options().write(true).open(&path).unwrap();
            assert_eq!(take.recv().unwrap().given, round);
            opened.wait().result.unwrap();
            drop(poll);
        }
    });
}

/// Goal: a waker may wait for a timeout or a poll, although one and the same thread waits for all of them; timeouts end meanwhile. Method:
/// a waker of a timeout waits for another timeout and for a poll; one place, so that they get it late, and several.
#[test]
fn a_waker_may_wait_for_a_timeout() {
    for queue_depth in [1, 2, 8] {
        watched(&format!("timeouts, one after another, with {queue_depth} places"), || {
            let driver = of_threads(queue_depth);
            let timeout = |milliseconds| driver.call(Call::timeout(Duration::from_millis(milliseconds)));
            let (mut first, second) = (timeout(200), timeout(250));
            let (reader, mut writer) = pipe().unwrap();
            let poll = driver.call(Call::poll(reader, libc::POLLIN as u32));
            let (give, take) = channel();
            let waker = waker_that(move || {
                second.wait().result.unwrap();
                give.send("second").unwrap();
                poll.wait().result.unwrap();
                give.send("poll").unwrap();
            });
            poll_once(&mut first, &waker);
            assert_eq!(take.recv().unwrap(), "second");
            if queue_depth > 1 {
                timeout(1).wait().result.unwrap();
            }
            writer.write_all(b"x").unwrap();
            assert_eq!(take.recv().unwrap(), "poll");
            first.wait().result.unwrap();
        });
    }
}

/// Goal: the same for what an abandoned timeout was given to keep, which is dropped when it ends. Method: a drop that waits for another.
#[test]
fn a_drop_may_wait_for_a_timeout() {
    struct Waits(Option<Box<dyn FnOnce() + Send>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|wait| wait());
        }
    }
    watched("a drop that waits", || {
        let driver = of_threads(4);
        let timeout = |milliseconds| driver.call(Call::timeout(Duration::from_millis(milliseconds)));
        let (second, (give, take)) = (timeout(200), channel());
        let wait = move || give.send(second.wait().result.is_ok()).unwrap();
        let hour = driver.call(Call::timeout(HOUR).keeping(Waits(Some(Box::new(wait)))));
        // By then the thread for timeouts has it.
        timeout(10).wait().result.unwrap();
        drop(hour);
        assert!(take.recv().unwrap());
    });
}

/// Goal: polls end, and timeouts, also if there are more polls than the process may have descriptors, which `poll(2)` refuses. Method: a
/// low limit, and many polls of one descriptor.
#[test]
fn more_polls_than_descriptors() {
    if !in_child("waits::more_polls_than_descriptors") {
        return;
    }
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let (driver, event) = (of_threads(128), Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
    let poll = || driver.call(Call::poll(event.clone(), libc::POLLIN as u32));
    let polls: Vec<_> = (0..120).map(|_| poll()).collect();
    watched("polls", || {
        driver.call(Call::timeout(Duration::from_millis(20))).wait().result.unwrap();
        assert!(!polls.iter().any(Calling::is_done));
        rustix::io::write(&*event, &1_u64.to_ne_bytes()).unwrap();
        for poll in polls {
            assert_eq!(poll.wait().result.unwrap(), libc::POLLIN as u32);
        }
    });
}

/// Goal: a task is woken although there is no thread to be had that reaps for it, and its runtime cannot watch a ring. Method: threads
/// that may start none poll at the same moment, each for bytes that come later.
#[test]
fn tasks_are_woken_without_a_thread_that_reaps() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    for _ in 0..4 {
        let options = DriverOptions { kind: DriverKind::Uring, rings: Some(1), ..DriverOptions::default() };
        let (driver, barrier) = (Driver::new(&options).unwrap(), Barrier::new(TASKS + 1));
        let wait_for = |reader| {
            forbid_threads_here();
            let read = driver.call(Call::pread(reader, [0; 1], 0));
            barrier.wait();
            assert_eq!(block_on(read).result.unwrap(), 1);
        };
        watched("tasks without a thread", || {
            thread::scope(|scope| {
                let (readers, writers): (Vec<_>, Vec<_>) = (0..TASKS).map(|_| pipe().unwrap()).unzip();
                readers.into_iter().for_each(|reader| _ = scope.spawn(|| wait_for(reader)));
                barrier.wait();
                for mut writer in writers {
                    // Long enough for each task to be polled in vain.
                    thread::sleep(Duration::from_millis(50));
                    writer.write_all(b"x").unwrap();
                }
            });
        });
    }
}

fn of_threads(queue_depth: u32) -> Driver {
    let kind = DriverKind::Threads;
    Driver::new(&DriverOptions { kind, queue_depth, ..DriverOptions::default() }).unwrap()
}

fn poll_once<T: CallOutput>(call: &mut Calling<T>, waker: &Waker) {
    assert!(Pin::new(call).poll(&mut Context::from_waker(waker)).is_pending());
}

/// Runs this when it is woken first.
fn waker_that(run: impl FnOnce() + Send + 'static) -> Waker {
    struct Runs<R>(Mutex<Option<R>>);
    impl<R: FnOnce() + Send> Wake for Runs<R> {
        fn wake(self: Arc<Self>) {
            let run = self.0.lock().unwrap().take();
            run.into_iter().for_each(|run| run());
        }
    }
    Waker::from(Arc::new(Runs(Mutex::new(Some(run)))))
}

const HOUR: Duration = Duration::from_secs(3600);

/// Of which one finds that there is no thread, and others that it looks for one.
const TASKS: usize = 3;
