//! Waiting: a runtime of one thread, a watchdog for tests that could hang, and how long a soak lasts.
//!
//! Owns: nothing.
//! Does not own: what is waited for.

use std::fs;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::time::ClockId;

use crate::hang;

/// Runs a future on this thread: park until woken.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = unparker();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The processor time that this thread has taken so far. What others do on the same processors is not in it.
pub fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::ThreadCPUTime)
}

/// The same of all threads of this process.
pub fn process_cpu_time() -> Duration {
    cpu_time(ClockId::ProcessCPUTime)
}

fn cpu_time(clock: ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Wakes this thread.
pub fn unparker() -> Waker {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Ends the process, after it printed where its threads are, if the work takes so long that it must hang: [`PATIENCE`], and on a machine
/// with other work as many times that as it has threads to run for each processor. Time in which the process is stopped, or the machine
/// paused, does not count.
pub fn watched<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, watched) = channel::<()>();
    let what = what.to_owned();
    let watchdog = thread::spawn(move || {
        let mut waited = Duration::ZERO;
        while watched.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            waited += LOOK_EVERY;
            if waited >= patience() {
                eprintln!("hangs: {what}");
                hang::answer_reports();
                hang::report(rustix::process::getpid());
                std::process::abort();
            }
        }
    });
    let result = work();
    drop(done);
    watchdog.join().expect("the watchdog does not panic");
    result
}

/// [`PATIENCE`], and on a machine with other work as many times that as it has threads to run for each processor.
pub(crate) fn patience() -> Duration {
    PATIENCE.mul_f64(load().max(1.0))
}

/// Threads that ran or wanted to, for each processor, on average of the last minute (proc_loadavg(5)). 1 if unavailable.
fn load() -> f64 {
    let told = fs::read_to_string("/proc/loadavg").ok();
    let threads: Option<f64> = told.and_then(|text| text.split(' ').next()?.parse().ok());
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    threads.map_or(1.0, |threads| threads / processors as f64)
}

/// How long `HEADWATER_SOAK_SECONDS` wants tests to go on that can go on for ever: `90`, `90s`, `10m` or `2h`.
///
/// # Panics
/// When it holds anything else.
#[must_use]
pub fn soak_seconds() -> Option<u64> {
    let text = std::env::var("HEADWATER_SOAK_SECONDS").ok()?;
    let (number, unit) = match text.trim_end_matches(['s', 'm', 'h']) {
        number if text.ends_with('m') => (number, 60),
        number if text.ends_with('h') => (number, 3600),
        number => (number, 1),
    };
    Some(unit * number.parse::<u64>().expect("HEADWATER_SOAK_SECONDS is a number of seconds, or 10m, or 2h"))
}

/// No test waits this long unless something hangs; miri is some hundred times slower.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 60 });

/// How often the watchdog looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
