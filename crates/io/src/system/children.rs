//! Children: what processes that this one has started have cost, as the kernel counts it.
//!
//! Owns: the wait for a child that tells its costs, the processor time of all children.
//! Does not own: how children are started, time by the clock.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// How a child has ended, and what it has cost. Costs include those of its own children that it has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EndedChild {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// Processor time in user mode.
    pub user_time: Duration,
    /// Processor time in the kernel.
    pub system_time: Duration,
    /// The most memory that one of these processes had resident at a moment (`ru_maxrss`), in bytes: the largest of them, not their sum. The
    /// kernel counts from the fork on, with memory that is shared with the parent until another program is executed, so this is at least what
    /// the parent had resident at most.
    pub peak_resident_bytes: u64,
}

/// Closes the child's standard input, if it is a pipe of this process, and waits until the child has ended: `wait4(2)`.
///
/// # Errors
/// `ECHILD` for a child that was waited for before, or that nothing needs to wait for because `SIGCHLD` is ignored.
pub fn wait_for_child(mut child: Child) -> io::Result<EndedChild> {
    drop(child.stdin.take());
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::uninit());
    let process = child.id().cast_signed();
    // SAFETY: the kernel fills the two places that it is given.
    while unsafe { libc::wait4(process, &raw mut status, 0, usage.as_mut_ptr()) } != process {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: it was just filled, as the child was found.
    let usage = unsafe { usage.assume_init() };
    Ok(EndedChild {
        status: ExitStatus::from_raw(status),
        user_time: duration(usage.ru_utime),
        system_time: duration(usage.ru_stime),
        peak_resident_bytes: usage.ru_maxrss.cast_unsigned() << 10,
    })
}

/// Processor time, the kernel's part included, of all children of this process that have ended and were waited for, and of
/// theirs.
pub fn children_cpu_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the whole of what it is given a place for.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "`getrusage` fails only for other arguments");
    // SAFETY: it was just filled.
    let usage = unsafe { usage.assume_init() };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

#[cfg(all(test, not(miri), not(headwater_loom)))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Goal: a child's costs are those of what it has done, and of its own children. Method: `dd` as a child of a shell fills 64 MiB from
    /// /dev/zero, which takes some milliseconds in the kernel; what it takes is counted among all children's time too.
    #[test]
    fn a_child_is_waited_for_with_its_costs() {
        let before = children_cpu_time();
        let ended =
            wait_for_child(shell("dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; exit 3")).unwrap();
        assert_eq!((ended.status.code(), ended.status.signal()), (Some(3), None));
        assert!(ended.peak_resident_bytes >= 64 << 20, "{ended:?}");
        assert!(ended.system_time > Duration::ZERO, "{ended:?}");
        // Each of the times is cut to whole microseconds.
        let counted = children_cpu_time() - before + Duration::from_micros(4);
        assert!(counted >= ended.user_time + ended.system_time, "{counted:?}, {ended:?}");
    }

    /// Goal: a child that reads to the end of its input ends, one that is killed says so, and one that was waited for is an error.
    #[test]
    fn children_end_in_other_ways() {
        assert!(wait_for_child(shell("cat")).unwrap().status.success());
        assert_eq!(wait_for_child(shell("kill -9 $$")).unwrap().status.signal(), Some(9));
        let mut child = shell("exit 0");
        assert!(child.wait().unwrap().success());
        assert_eq!(wait_for_child(child).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }
}
