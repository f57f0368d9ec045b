//! Forbidding system calls: what the seccomp profile of a container runtime does, for a test to do to itself.
//!
//! A filter cannot be taken off again, so the part of a test that wants it runs in a child process:
//!
//! ```text
//!   test ─ run_self_with_env(name, "CHILD", "1") ─► same binary, same test, CHILD=1
//!                                                    └─ forbid_io_uring() ─► the part under the filter
//! ```
//!
//! Owns: the filter, starting the child.
//! Does not own: the meaning of the variable, what is asserted about the output.

use std::collections::BTreeMap;
use std::env;
use std::process::{Child, Command, Output, Stdio};

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, apply_filter_all_threads,
};

/// From now on, and for good, every thread of this process gets `EPERM` from `io_uring_setup(2)`,
/// `io_uring_enter(2)` and `io_uring_register(2)`. Needs no privilege: `seccomp(2)` is preceded by
/// `PR_SET_NO_NEW_PRIVS`.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_io_uring() {
    apply_filter_all_threads(&filter(&IO_URING_CALLS)).expect("the kernel accepts the filter");
}

/// From now on, and for good, every thread of this process gets `ENOMEM` from `io_uring_setup(2)`, as a user whose limit of locked memory
/// is reached does before Linux 5.12.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn exhaust_io_uring() {
    apply_filter_all_threads(&filter_with(&IO_URING_CALLS[..1], Errno::NOMEM))
        .expect("the kernel accepts the filter");
}

/// As [`forbid_io_uring`] for this thread alone, and for those that it starts.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_io_uring_here() {
    apply_filter(&filter(&IO_URING_CALLS)).expect("the kernel accepts the filter");
}

/// The same for `userfaultfd(2)`.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_userfaultfd() {
    apply_filter_all_threads(&filter(&[libc::SYS_userfaultfd])).expect("the kernel accepts the filter");
}

/// The same for `sched_setaffinity(2)`, from this thread on and for those that it starts.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_affinity_here() {
    apply_filter(&filter(&[libc::SYS_sched_setaffinity])).expect("the kernel accepts the filter");
}

/// The same for `statx(2)`, `fstat(2)` and their like, by which a file is asked for its length and times.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_status_here() {
    apply_filter(&filter(&[libc::SYS_statx, libc::SYS_fstat, libc::SYS_newfstatat]))
        .expect("the kernel accepts the filter");
}

/// Forbids the calling thread to start threads and processes, for as long as it lives: `clone(2)` fails with `EAGAIN`, as at a user's limit
/// of processes.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_threads_here() {
    apply_filter(&filter_with(&[libc::SYS_clone, libc::SYS_clone3], Errno::AGAIN))
        .expect("the kernel accepts the filter");
}

fn filter(calls: &[i64]) -> BpfProgram {
    filter_with(calls, Errno::PERM)
}

fn filter_with(calls: &[i64], errno: Errno) -> BpfProgram {
    let filter = SeccompFilter::new(
        calls.iter().map(|&call| (call, Vec::new())).collect::<BTreeMap<_, _>>(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error() as u32),
        TargetArch::try_from(env::consts::ARCH).expect("seccompiler knows this architecture"),
    );
    filter.and_then(BpfProgram::try_from).expect("the filter is well-formed")
}

/// Runs the test `test_name` (its full path in this binary, `module::tests::name`) of the current test binary in a
/// child process that has the variable `key` set to `value`, waits for it, and returns its output.
///
/// # Panics
/// When the child does not start, or found no test of that name: it would otherwise pass having run nothing.
#[must_use]
pub fn run_self_with_env(test_name: &str, key: &str, value: &str) -> Output {
    let output = this_test(test_name, key, value).output().expect("the test binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "the child ran no test named {test_name}:\n{text}");
    output
}

/// The same without waiting: its standard output is a pipe, and the caller ends it. The harness may print to the pipe
/// too, before the test does.
///
/// # Panics
/// When the child does not start.
#[must_use]
pub fn spawn_self_with_env(test_name: &str, key: &str, value: &str) -> Child {
    this_test(test_name, key, value).stdout(Stdio::piped()).spawn().expect("the test binary starts")
}

fn this_test(test_name: &str, key: &str, value: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test binary knows its path"));
    command.args(["--exact", test_name, "--include-ignored", "--nocapture"]).env(key, value);
    command
}

/// `io_uring_setup`, `io_uring_enter`, `io_uring_register`: the same numbers on every architecture but alpha.
const IO_URING_CALLS: [i64; 3] = [425, 426, 427];

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::IoUring;

    /// Goal: under the filter no ring can be made, all else works. Method: this test again, in a child.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn no_ring_under_the_filter() {
        const CHILD: &str = "HEADWATER_TESTKIT_FORBID";
        if env::var_os(CHILD).is_some() {
            forbid_io_uring();
            let error = IoUring::new(4).err().expect("no ring under the filter");
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            std::thread::spawn(|| assert!(IoUring::new(4).is_err())).join().unwrap();
            println!("saw EPERM");
            return;
        }
        let output = run_self_with_env("forbid_uring::tests::no_ring_under_the_filter", CHILD, "1");
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("saw EPERM"), "{output:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    #[should_panic(expected = "ran no test named")]
    fn a_misspelt_name_is_noticed() {
        let _ = run_self_with_env("no::such::test", "UNUSED", "1");
    }
}
