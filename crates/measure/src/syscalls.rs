//! Syscalls: how many a command makes with all its threads, counted from outside by perf or strace.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output};

/// Runs the command and returns how many system calls it made, and what it printed. Counting makes it slower.
///
/// # Errors
/// When neither perf nor strace may count here.
pub fn count(command: &Command) -> io::Result<(f64, Vec<u8>)> {
    counted(&PERF, command, perf_count).or_else(|| counted(&STRACE, command, strace_count)).ok_or_else(|| {
        io::Error::other("neither `perf stat -e raw_syscalls:sys_enter` nor `strace -fc` can count here")
    })
}

fn counted(
    counter: &[&str],
    command: &Command,
    parse: impl Fn(&str) -> Option<f64>,
) -> Option<(f64, Vec<u8>)> {
    let output = under(counter, command).ok().filter(|output| output.status.success())?;
    Some((parse(&String::from_utf8_lossy(&output.stderr))?, output.stdout))
}

fn under(counter: &[&str], command: &Command) -> io::Result<Output> {
    let words = counter.iter().map(OsStr::new).chain([command.get_program()]).chain(command.get_args());
    let words: Vec<&OsStr> = words.collect();
    Command::new(words[0]).args(&words[1..]).output()
}

/// `123,,raw_syscalls:sys_enter,…`
fn perf_count(text: &str) -> Option<f64> {
    text.lines().find(|line| line.contains(",raw_syscalls:sys_enter"))?.split(',').next()?.parse().ok()
}

/// `123 total`
fn strace_count(text: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| line.trim().strip_suffix(" total"))?.trim().parse().ok()
}

const PERF: [&str; 6] = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "--"];

const STRACE: [&str; 5] = ["strace", "-f", "-c", "-U", "calls,name"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        let perf = "a word of the command\n29,,raw_syscalls:sys_enter,599128,100.00,,\n";
        assert_eq!(perf_count(perf), Some(29.0));
        assert_eq!(perf_count("<not supported>,,raw_syscalls:sys_enter,0,100.00,,"), None);
        assert_eq!(
            strace_count("    calls syscall\n------\n       12 read\n------\n       30 total\n"),
            Some(30.0)
        );
    }
}
