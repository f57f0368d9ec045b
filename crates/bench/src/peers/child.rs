//! Child: one arm in a process of its own, for as long as it may take.
//!
//! Owns: the process, its end if it hangs, the words for how it failed.
//! Does not own: what it does.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Options;
use super::fixture::Fixture;
use super::rows::{Arm, Row};
use super::work::Sample;
use crate::tools::name_of;

/// Where peers are given memory, it is a `Vec`'s: with this, glibc asks for huge pages below what is large, so that direct
/// reads into it are as fast as they can be.
pub(super) const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// # Errors
/// How the arm failed: what it says, that it panicked, or that it hung.
pub(super) fn run(row: Row, arm: Arm, fixture: &Fixture, options: &Options) -> io::Result<Sample> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([OsStr::new("peers-arm"), OsStr::new(&name_of(row)), OsStr::new(&name_of(arm))])
        .args(["--seconds", &options.seconds.to_string(), "--files", &options.files.to_string()])
        .arg("--path")
        .arg(fixture.path(row))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if arm.needs_uring() {
        command.env(HUGE_PAGES.0, HUGE_PAGES.1);
    }
    let limit = Duration::from_secs_f64(options.seconds + options.limit);
    let (status, output, complaint) = run_to_end(command.spawn()?, limit)?;
    match serde_json::from_slice(&output) {
        Ok(sample) if status.success() => Ok(sample),
        _ => Err(io::Error::other(failure(status, &complaint))),
    }
}

/// Exit status, standard output and standard error.
fn run_to_end(mut child: Child, limit: Duration) -> io::Result<(ExitStatus, Vec<u8>, String)> {
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let (ended, end) = mpsc::channel();
    let output = thread::spawn(move || {
        let mut output = Vec::new();
        // Nothing that was not read is JSON.
        let _ = stdout.read_to_end(&mut output);
        // Nobody waits any more if it was too late.
        let _ = ended.send(());
        output
    });
    let complaint = thread::spawn(move || {
        let mut complaint = Vec::new();
        let _ = stderr.read_to_end(&mut complaint);
        String::from_utf8_lossy(&complaint).into_owned()
    });
    let is_late = end.recv_timeout(limit).is_err();
    if is_late {
        child.kill()?;
    }
    let status = child.wait()?;
    let output = output.join().expect("reading a pipe does not panic");
    let complaint = complaint.join().expect("reading a pipe does not panic");
    if is_late {
        let seconds = limit.as_secs_f64();
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("hung, ended after {seconds:.0} s")));
    }
    Ok((status, output, complaint))
}

fn failure(status: ExitStatus, complaint: &str) -> String {
    let last = complaint.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("note:"));
    let said = last.unwrap_or("it said nothing").trim_start_matches("headwater-bench: ");
    match (status.code(), status.signal()) {
        (Some(1), _) => said.to_owned(),
        (Some(101), _) => format!("panicked: {said}"),
        (_, Some(signal)) => format!("ended by signal {signal}: {said}"),
        _ => format!("{status}: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Goal: what fails says why, and what hangs is ended.
    #[test]
    fn failures_are_told_apart() {
        let failure_of = |script| {
            let (status, _, complaint) = run_to_end(shell(script), Duration::from_secs(60)).unwrap();
            failure(status, &complaint)
        };
        assert_eq!(failure_of("echo 'headwater-bench: no ring' >&2; exit 1"), "no ring");
        assert_eq!(failure_of("echo boom >&2; echo 'note: x' >&2; exit 101"), "panicked: boom");
        assert_eq!(failure_of("kill -9 $$"), "ended by signal 9: it said nothing");
        let hung = run_to_end(shell("exec sleep 600"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(hung.kind(), io::ErrorKind::TimedOut);
    }
}
