//! Signals: headwater's threads block the signals of the program.
//!
//! The kernel gives a signal of the process to any thread that does not block it. A program that blocks a signal in order to wait for
//! it (`sigwait(3)`, `signalfd(2)`) does that for its own threads; a thread of headwater, started before, would take the signal, whose
//! default action might end the process.
//!
//! Owns: the signal mask of new threads.
//! Does not own: the threads.

use std::io;
use std::thread::{self, JoinHandle};

/// Starts a thread that takes none of the program's signals.
pub(crate) fn spawn(
    name: &str,
    stack_bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = thread::Builder::new().name(name.into()).stack_size(stack_bytes);
    without_signals(|| builder.spawn(run))
}

/// Runs `start`, which starts threads: they inherit that all signals are blocked, but for those that a thread causes itself.
pub fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    let _restored = Restored(block());
    start()
}

/// What this thread blocked before, and blocks again.
struct Restored(Option<libc::sigset_t>);

impl Drop for Restored {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set was filled in by `block`; the other is not asked for.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

/// Blocks signals in this thread, and returns the mask from before.
fn block() -> Option<libc::sigset_t> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: zeroed sets are valid memory for `sigfillset` and for what was blocked before, and live through the calls.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(&raw mut all, own);
        }
        (libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) == 0).then_some(before)
    }
}
