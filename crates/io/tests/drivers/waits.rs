//! Waits: calls that last as long as something else pleases, and what has to go on beside them.
//!
//! Owns: requests that keep each other waiting: for a place, for a worker thread, in a waker.
//! Does not own: what timeouts and polls return (see `operations`).

use std::fs::File;
use std::io::pipe;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use headwater_io::{
    Call, CallOutput, Calling, Driver, DriverKind, DriverOptions, RingOperations, uring_refusal,
};
use headwater_testkit::skip;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::bench::watched;

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
