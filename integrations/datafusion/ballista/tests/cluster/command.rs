//! Command: what `headwater-ballista` prints, what it leaves behind, and what it says about bad input.
//!
//! Owns: command lines, the ends of processes.
//! Does not own: what the queries answer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{data, folder, program};

fn ballista(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().unwrap()
}

fn complaint(arguments: &[&str]) -> String {
    let output = ballista(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The command `cluster`, with the address of its scheduler and the numbers of all its processes.
struct Running {
    command: Child,
    address: String,
    processes: Vec<u32>,
}

impl Running {
    fn start(work: &Path) -> Running {
        let mut command = Command::new(program());
        command.args(["cluster", "--memory", "32M", "--work"]).arg(work);
        let mut command = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(command.stdout.take().unwrap()).lines();
        let text: Vec<String> = lines.take(3).map(Result::unwrap).collect();
        let address = text[0].split([' ', ',']).nth(1).unwrap().to_owned();
        let after = |line: &str| line.rsplit_once("process").unwrap().1.to_owned();
        let numbers = |text: String| -> Vec<u32> {
            text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
        };
        let processes = [numbers(after(&text[0])), numbers(after(&text[1]))].concat();
        assert_eq!(processes.len(), 3, "{text:?}");
        Running { command, address, processes }
    }

    /// Sends the signal, and waits until all processes have ended.
    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.command), signal).unwrap();
        let status = self.command.wait().unwrap();
        wait_until("all processes have ended", || !self.processes.iter().any(|&process| runs(process)));
        status.code()
    }
}

/// Whether the process is there and has not ended. One that has ended stays in `/proc` until its parent waits for it.
fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not so: {what}");
        sleep(Duration::from_millis(10));
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Goal: the command starts a cluster that answers, and the signals of Ctrl-C and `kill` stop it without a process or file left.
#[test]
fn signals_stop_all_of_it() {
    let folder = data().folder().to_str().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let work = crate::folder();
        let running = Running::start(work.path());
        let target = ["--scheduler", &running.address, "--folder", folder];
        let output = ballista(&[&["query"][..], &target, &["select count(*) as c from region"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("| 5 |"), "{text} {}", String::from_utf8_lossy(&output.stderr));
        let output = ballista(&[&["check"][..], &target, &["--queries", "6,columns"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("give the same answers to 2 queries"), "{text}");
        assert_eq!(running.end(signal), Some(0));
        assert_eq!(entries(work.path()), 0, "files after {signal:?}");
    }
}

/// Goal: a signal while the cluster starts leaves nothing either.
#[test]
fn a_signal_stops_a_cluster_that_starts() {
    let work = folder();
    let mut command = Command::new(program());
    command.args(["cluster", "--executors", "64", "--memory", "32M", "--work"]).arg(work.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("its folder is made, after it listens for signals", || entries(work.path()) > 0);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("headwater-ballista: stopped"));
    assert_eq!(entries(work.path()), 0);
}

/// Goal: a command that is killed takes its processes with it, and what they have written.
#[test]
fn processes_end_with_a_command_that_is_killed() {
    let work = folder();
    let running = Running::start(work.path());
    assert_eq!(running.end(Signal::KILL), None);
    // The folder that was the command's own is left, and empty.
    let left =
        || fs::read_dir(work.path()).unwrap().map(|entry| entries(&entry.unwrap().path())).sum::<usize>();
    assert_eq!(left(), 0);
}

/// Goal: an executor that ends is named, and without any the command ends with an error.
#[test]
fn ends_of_executors_are_named() {
    let work = folder();
    let mut command = Command::new(program());
    command.args(["cluster", "--executors", "1", "--memory", "32M", "--work"]).arg(work.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.contains("executors over")).unwrap();
    let number = line.rsplit('[').next().unwrap().trim_end_matches(']').parse().unwrap();
    kill_process(Pid::from_raw(number).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(words.contains("executor 1 has ended: signal: 9"), "{words}");
    assert!(words.contains("no executor is left"), "{words}");
}

/// Goal: each mistake is named.
#[test]
fn mistakes_are_explained() {
    let folder = data().folder().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = address.rsplit(':').next().unwrap();
    assert!(
        complaint(&["cluster", "--port", port]).contains(&format!("scheduler: cannot listen at {address}"))
    );
    assert!(complaint(&["scheduler", "--listen", "0.0.0.0:0"]).contains("it needs --advertise"));
    assert!(complaint(&["cluster", "--work", "/no/such/folder"]).contains("/no/such/folder: "));
    assert!(complaint(&["cluster", "--executors", "0"]).contains("--executors"));
    drop(taken);
    let nobody = ["--scheduler", &address, "--folder", folder];
    assert!(complaint(&[&["check"][..], &nobody].concat()).contains(&format!("no scheduler at {address}")));
    assert!(complaint(&["executor", "--scheduler", &address]).contains(&address));
    assert!(complaint(&["run", "--folder", "/no/such/folder"]).contains("holds no TPC-H data"));
    let json = ["run", "--folder", "/no/such/folder", "--json", "/no/such/folder/out"];
    assert!(
        complaint(&json).contains("/no/such/folder/out: "),
        "before the work, which would end with another error"
    );
    assert!(complaint(&["run", "--folder", folder, "--queries", "23"]).contains("there are 1 to 22"));
}

/// Goal: a report names every store, and its JSON has figures of each query and store.
#[test]
fn a_run_reports_every_store() {
    let (folder, scratch) = (data().folder().to_str().unwrap(), folder());
    let json = scratch.path().join("out.json");
    for state in ["--cold", "--warm"] {
        let options = ["--queries", "6,columns", "--rounds", "1", "--memory", "32M", state];
        let output = ballista(
            &[&["run", "--folder", folder, "--json", json.to_str().unwrap()], &options[..]].concat(),
        );
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for word in [
            "local",
            "headwater",
            "q6",
            "columns",
            "2 executors",
            "the same answers to 2 queries",
            &state[2..],
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        for row in rows {
            let value = |metric: &str| row[metric].as_f64().unwrap_or_else(|| panic!("{metric}: {row}"));
            assert!(value("seconds") > 0.0 && value("cpu_seconds") > 0.0 && value("peak_mib") > 1.0, "{row}");
        }
    }
}
