//! Child: one way in a process of its own, for as long as it may take.
//!
//! A process of its own, so that memory and processor time are those of this way and nothing else.
//
// Owns: the process, its end if it hangs, how its failure is told.
// Does not own: what it does, the cgroup that it enters.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

/// Why a child has no result.
#[derive(Debug)]
pub enum Failure {
    /// It did not start, or what it printed was no result.
    Io(io::Error),
    /// It complained and ended as programs do that fail.
    Said(String),
    /// It panicked, with these words.
    Panicked(String),
    /// A signal ended it; the last that it said.
    Signal(i32, String),
    /// It did not end in time.
    Late(Duration),
    /// Anything else.
    Ended(ExitStatus, String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Io(error) => write!(f, "{error}"),
            Failure::Said(said) => f.write_str(said),
            Failure::Panicked(said) => write!(f, "panicked: {said}"),
            Failure::Signal(signal, said) => write!(f, "ended by signal {signal}: {said}"),
            Failure::Late(limit) => write!(f, "hung, ended after {:.0} s", limit.as_secs_f64()),
            Failure::Ended(status, said) => write!(f, "{status}: {said}"),
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        match failure {
            Failure::Io(error) => error,
            failure => io::Error::other(failure.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

/// Runs a command that prints its result as JSON. Without a limit it may take for ever.
///
/// # Errors
/// How it failed.
pub fn result<T: DeserializeOwned>(command: &mut Command, limit: Option<Duration>) -> Result<T, Failure> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (status, output, complaint) = run_to_end(child, limit)?;
    if !status.success() {
        return Err(failure(status, &complaint));
    }
    serde_json::from_slice(&output).map_err(|error| Failure::Io(error.into()))
}

/// Exit status, standard output and standard error.
fn run_to_end(mut child: Child, limit: Option<Duration>) -> Result<(ExitStatus, Vec<u8>, String), Failure> {
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let (ended, end) = mpsc::channel();
    let output = thread::spawn(move || {
        let mut output = Vec::new();
        // What was read of it is no result, which is found later.
        let _ = stdout.read_to_end(&mut output);
        // The receiver is gone if the child was late.
        let _ = ended.send(());
        output
    });
    let complaint = thread::spawn(move || {
        let mut complaint = Vec::new();
        let _ = stderr.read_to_end(&mut complaint);
        String::from_utf8_lossy(&complaint).into_owned()
    });
    let late = limit.filter(|limit| end.recv_timeout(*limit).is_err());
    if late.is_some() {
        child.kill()?;
    }
    let status = child.wait()?;
    let output = output.join().expect("reading a pipe does not panic");
    let complaint = complaint.join().expect("reading a pipe does not panic");
    late.map_or(Ok((status, output, complaint)), |limit| Err(Failure::Late(limit)))
}

fn failure(status: ExitStatus, complaint: &str) -> Failure {
    let last = complaint.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("note:"));
    let said = last.map_or("it said nothing", |line| line.strip_prefix("headwater: ").unwrap_or(line));
    let said = said.strip_prefix("headwater-bench: ").unwrap_or(said).to_owned();
    match (status.code(), status.signal()) {
        (Some(1), _) => Failure::Said(said),
        (Some(101), _) => Failure::Panicked(said),
        (_, Some(signal)) => Failure::Signal(signal, said),
        _ => Failure::Ended(status, said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> Result<u32, Failure> {
        result(Command::new("sh").args(["-c", script]), Some(limit))
    }

    /// Goal: what fails says why, and what hangs is ended.
    #[test]
    fn failures_are_told_apart() {
        let minute = Duration::from_secs(60);
        let failure_of = |script| run(script, minute).unwrap_err().to_string();
        assert_eq!(failure_of("echo 'headwater-bench: no ring' >&2; exit 1"), "no ring");
        assert_eq!(failure_of("echo boom >&2; echo 'note: x' >&2; exit 101"), "panicked: boom");
        assert_eq!(failure_of("kill -9 $$"), "ended by signal 9: it said nothing");
        assert!(matches!(run("exec sleep 600", Duration::from_millis(50)), Err(Failure::Late(_))));
        assert_eq!(run("echo 7", minute).unwrap(), 7);
        assert!(matches!(run("echo seven", minute), Err(Failure::Io(_))));
    }
}
