//! Fork: a child process that goes on with what its parent had, for a test to look at.
//!
//! Owns: starting the child and its end, how long that takes.
//! Does not own: what the child does.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::waiting::patience;
use crate::{PATIENCE, hang};

/// Does the work in a forked child, which ends with it: no destructor and no exit handler runs there. Waits for the child.
///
/// # Panics
/// When the work panics, crashes or hangs.
pub fn run_forked(work: impl FnOnce()) {
    let Ended { status, .. } = forked_status("", work);
    assert_eq!(status.code(), Some(0), "the forked child: {status:?}");
}

/// The end of a forked child.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// How long this process was stopped meanwhile, or the machine paused: the child most likely as well.
    pub paused: Duration,
}

/// As [`run_forked`], for work that may end its process itself, in whatever way.
///
/// # Panics
/// When the work hangs, with `what` it is; where its threads are is printed.
pub fn forked_status(what: &str, work: impl FnOnce()) -> Ended {
    // SAFETY: the child has this thread alone, and locks that others held stay locked there. The C library makes its own
    // usable again, of which the allocator is the one that matters; that ours are not taken is what the test is about.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        hang::answer_reports();
        let panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(panicked)) };
    }
    let pid = Pid::from_raw(pid).expect("a child is forked");
    let (begun, mut looked) = (Instant::now(), Instant::now());
    let mut paused = Duration::ZERO;
    loop {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).expect("the child is ours") {
            return Ended { status: ExitStatus::from_raw(status.as_raw()), paused };
        }
        let taken = begun.elapsed().saturating_sub(paused);
        // The load is looked at only then.
        if taken > PATIENCE / 3 && taken > patience() / 3 {
            hang::report(pid);
            kill_process(pid, Signal::KILL).expect("the child is ours");
            panic!("the forked child hangs: {what}");
        }
        thread::sleep(Duration::from_millis(1));
        let since = looked.elapsed();
        paused += if since >= PAUSE { since } else { Duration::ZERO };
        looked = Instant::now();
    }
}

/// A thread that sleeps for a millisecond is not kept from running for so long by other threads.
const PAUSE: Duration = Duration::from_secs(1);

/// This thread waits in the kernel while `is_stuck`, and nothing can interrupt it there: it has a child that keeps it waiting, as
/// `vfork(2)` does. Returns whether it was let go, instead of having waited for as long as no test needs.
///
/// # Panics
/// When the system has no room for another process.
pub fn stuck_in_kernel(is_stuck: &AtomicBool) -> bool {
    extern "C" fn wait(is_stuck: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the parent waits with the value in place.
        let is_stuck = unsafe { &*is_stuck.cast::<AtomicBool>() };
        let look_every = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        for _ in 0..PATIENCE.as_millis() / 3 {
            if !is_stuck.load(Ordering::SeqCst) {
                return 0;
            }
            // SAFETY: the time is in place. What is left of it is not asked for.
            unsafe { libc::nanosleep(&raw const look_every, std::ptr::null_mut()) };
        }
        1
    }
    let mut stack = vec![0_u128; 4096];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = std::ptr::from_ref(is_stuck).cast_mut().cast();
    // SAFETY: the child has a stack of its own, calls one function that touches nothing but that stack and the flag, and ends; until
    // then this thread stands still with both in place. The stack grows down from its aligned end.
    let pid = unsafe { libc::clone(wait, stack.as_mut_ptr_range().end.cast(), flags, argument) };
    let pid = Pid::from_raw(pid.max(0)).expect("a child is cloned");
    let (_, status) =
        waitpid(Some(pid), WaitOptions::empty()).expect("the child is ours").expect("it has ended");
    status.exit_status() == Some(0)
}

/// Forks a child that ends at once, and waits for it. How long that took is what a fork costs this process with the memory
/// it has now.
///
/// # Panics
/// When the system has no room for another process.
#[must_use]
pub fn time_fork() -> Duration {
    let start = Instant::now();
    // SAFETY: the child does nothing but end.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    let pid = Pid::from_raw(pid.max(0)).expect("a child is forked");
    let ended = waitpid(Some(pid), WaitOptions::empty()).expect("the child is ours");
    assert_eq!(ended.and_then(|(_, status)| status.exit_status()), Some(0), "the forked child");
    start.elapsed()
}
