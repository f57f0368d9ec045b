//! Hang: where the threads of a process are that does not get on.
//!
//! ```text
//!   report: each thread ─┬─► its name, what it waits for in the kernel, its call ─► stderr
//!                        └─► signal ─► it prints its backtrace, unless it has the signal blocked
//! ```
//!
//! Owns: what is printed.
//! Does not own: when something hangs (waiting, fork).

use std::backtrace::Backtrace;
use std::fs;
use std::io::Write;
use std::thread;

use rustix::process::Pid;

use crate::PATIENCE;

/// From now on the threads of this process answer [`report`], also in children that it forks.
pub(crate) fn answer_reports() {
    // SAFETY: the function has the type of a handler of signals.
    unsafe { libc::signal(libc::SIGUSR2, print_backtrace as *const () as libc::sighandler_t) };
}

/// Prints where the threads of a process are that calls [`answer_reports`], this process or a child of it. It may hang afterwards as it
/// did before.
pub(crate) fn report(pid: Pid) {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten().flatten();
    for task in tasks {
        let field = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse::<libc::pid_t>().ok()) else {
            continue;
        };
        if thread == rustix::thread::gettid().as_raw_pid() {
            continue;
        }
        // A thread that waits as `futex` before it has its name is one that the standard library begins: it holds a lock
        // meanwhile, and a child that is forked just then starts no thread.
        let [name, waits_for, call, stack] = ["comm", "wchan", "syscall", "stack"].map(field);
        print(&format!("thread {thread} {} waits for {waits_for} in {}\n{stack}", name.trim(), call.trim()));
        // SAFETY: takes plain numbers. A thread that is gone gets nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, pid.as_raw_pid(), thread, libc::SIGUSR2) };
        thread::sleep(PATIENCE / 60);
    }
}

/// The process hangs, and is about to be killed: what this function does may hang as well.
extern "C" fn print_backtrace(_signal: libc::c_int) {
    print(&format!("thread {:?} is here:\n{}", rustix::thread::gettid(), Backtrace::force_capture()));
}

/// The test harness would keep the output of a print macro to itself.
fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::run_self_with_env;

    /// Goal: what hangs is shown with its place. Method: a child that waits in a function of this test, with a watchdog's report.
    #[test]
    #[cfg_attr(miri, ignore)] // miri has no signals
    fn a_report_shows_where_threads_are() {
        const CHILD: &str = "HEADWATER_HANGS";
        if std::env::var_os(CHILD).is_some() {
            answer_reports();
            let (_keeps_waiting, waited_for) = mpsc::channel::<()>();
            thread::Builder::new().name("stands".into()).spawn(move || stands_still(&waited_for)).unwrap();
            thread::sleep(PATIENCE / 600);
            return report(rustix::process::getpid());
        }
        let name = "hang::tests::a_report_shows_where_threads_are";
        let output = run_self_with_env(name, CHILD, "1");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        for shown in ["stands waits for", "is here:", "stands_still"] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
    }

    #[inline(never)]
    fn stands_still(waited_for: &mpsc::Receiver<()>) {
        let _ = waited_for.recv();
        std::hint::black_box(waited_for);
    }
}
